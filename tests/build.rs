//! Compiles the pause program for the sandbox image: static, so that its image needs nothing else.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=pause/pause.rs");
    let pause = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("pause");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let status = Command::new(rustc)
        .args(["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "opt-level=s"])
        .args(["-C", "panic=abort", "-C", "strip=symbols", "pause/pause.rs", "-o"])
        .arg(&pause)
        .status()
        .expect("rustc runs");
    assert!(status.success(), "rustc cannot build a static pause: is libc's static archive there (libc6-dev)?");
    assert!(fs::metadata(&pause).is_ok(), "rustc made no {}", pause.display());
}
