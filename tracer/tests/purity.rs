//! Holds the invariant that the engine's modules are pure: they import nothing that does I/O, reads a clock or runs
//! tasks, and each forbids `unsafe`.

use std::fs;
use std::path::{Path, PathBuf};

const PURE: &[&str] = &["record", "wire", "cri", "lifecycle", "trace", "stats", "engine.rs", "ids.rs"];
/// Of `pods`, what reads is beside what joins.
const PURE_OF_PODS: &[&str] = &["find.rs", "init.rs", "join.rs", "model.rs", "place.rs", "proc.rs"];
const FOREIGN: &[&str] = &[
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::os",
    "tokio::",
    "aya::",
    "rustix::",
    "libc::",
    "println!",
];

fn sources(path: &Path, out: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a source folder is readable") {
            sources(&entry.expect("a folder entry is readable").path(), out);
        }
    } else if path.extension().is_some_and(|e| e == "rs") {
        out.push(path.to_owned());
    }
}

#[test]
fn the_engine_is_pure() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    for part in PURE {
        sources(&src.join(part), &mut files);
    }
    files.extend(PURE_OF_PODS.iter().map(|file| src.join("pods").join(file)));
    assert!(files.len() >= 8, "the engine's sources are not where this test looks: {}", src.display());
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file is readable");
        for foreign in FOREIGN {
            assert!(!text.contains(foreign), "{} names {foreign}", file.display());
        }
    }
}

#[test]
fn the_engine_forbids_unsafe() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for part in PURE.iter().filter(|p| **p != "ids.rs") {
        let root = if part.ends_with(".rs") { src.join(part) } else { src.join(part).join("mod.rs") };
        let text = fs::read_to_string(&root).unwrap_or_default();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{} does not forbid unsafe", root.display());
    }
}
