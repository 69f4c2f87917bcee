//! Holds ARCHITECTURE.md and the pages of docs/ to the code.

use std::fs;
use std::path::Path;
use std::process::Command;

use podlapse::trace::{LifeKind, STAGES};

#[test]
fn the_table_of_stages_is_the_registry() {
    let text = include_str!("../../ARCHITECTURE.md");
    let table: Vec<(&str, &str)> = text
        .split("\n## ")
        .find_map(|section| section.strip_prefix("Stages\n"))
        .expect("ARCHITECTURE.md has a section on stages")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .collect();
    let registry: Vec<(&str, &str)> = STAGES.iter().map(|stage| (stage.pattern, stage.doc)).collect();
    assert_eq!(table, registry);
}

/// `UPDATE_EXPECT=1` writes it there.
#[test]
fn the_table_of_events_is_the_closed_list() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join("life.md");
    let old = fs::read_to_string(&page).unwrap();
    let (head, _) = old.split_once("\n| `").expect("docs/life.md has a table of events");
    let row = |(kind, means): &(LifeKind, &str)| format!("| `{}` | {means} |\n", kind.name());
    let new = format!("{head}\n{}", LifeKind::ALL.iter().map(row).collect::<String>());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&page, &new).unwrap();
    } else {
        assert_eq!(old, new);
    }
}

/// Runs each `$ podlapse …` of a page and holds what it prints to what the page says; `UPDATE_EXPECT=1` writes it there.
#[test]
fn the_examples_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = root.with_file_name("docs");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let dir = tempfile::tempdir().unwrap();
    for folder in [root, &docs] {
        std::os::unix::fs::symlink(folder, dir.path().join(folder.file_name().unwrap())).unwrap();
    }

    let hint = "is not what podlapse prints: UPDATE_EXPECT=1 cargo test -p podlapse --test docs";
    for page in ["reading-traces.md", "life.md"] {
        let page = docs.join(page);
        let old = fs::read_to_string(&page).unwrap();
        let new = with_what_is_printed(&old, dir.path());
        if update {
            fs::write(&page, &new).unwrap();
        }
        assert!(new == old || update, "{} {hint}", page.display());
    }
    let perfetto = docs.join("example/three-containers.perfetto.json");
    let made = fs::read_to_string(dir.path().join("start.json")).unwrap();
    if update {
        fs::write(&perfetto, &made).unwrap();
    }
    assert!(fs::read_to_string(&perfetto).unwrap() == made, "{} {hint}", perfetto.display());
}

/// A page whose commands are followed by what they print.
fn with_what_is_printed(page: &str, dir: &Path) -> String {
    let mut new = String::new();
    let mut lines = page.lines().peekable();
    let mut inside = false;
    while let Some(line) = lines.next() {
        new += &format!("{line}\n");
        match line.strip_prefix("$ ") {
            Some(command) if inside => {
                while lines.next_if(|line| !line.starts_with("$ ") && !line.starts_with("```")).is_some() {}
                new += &run(command, dir);
            }
            _ => inside = line == "```console" || (inside && !line.starts_with("```")),
        }
    }
    new
}

fn run(command: &str, dir: &Path) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_podlapse"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-euc", command]).current_dir(dir).env("PATH", &path).env_remove("COLUMNS");
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
