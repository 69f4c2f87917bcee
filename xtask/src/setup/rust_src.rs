//! The standard library's source, from which the BPF build makes its own `core`.
//!
//! rustup has it; where rustup cannot download, Debian has the same upstream version.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Tools, apt::Apt};
use crate::sh;

/// Where the version of `rust-toolchain.toml` was found, and where it moves to later.
const SUITES: [&str; 4] = ["trixie-backports", "forky", "sid", "trixie"];

pub(super) fn ensure(tools: &Tools) -> Result<()> {
    let rustc = |args: &[&str]| {
        sh::output(Command::new("rustc").current_dir(&tools.workspace.root).args(args))
            .context("setup needs a Rust toolchain: install rustup")
    };
    let sysroot = PathBuf::from(rustc(&["--print", "sysroot"])?.trim());
    let link = sysroot.join("lib/rustlib/src/rust");
    if complete(&link) {
        eprintln!("setup: rust-src: already there");
        return Ok(());
    }
    let verbose = rustc(&["--version", "--verbose"])?;
    let release = verbose
        .lines()
        .find_map(|line| line.strip_prefix("release: "))
        .context("rustc --version --verbose names no release")?;

    eprintln!("setup: rust-src: rustup component add rust-src");
    let rustup =
        sh::output(Command::new("rustup").current_dir(&tools.workspace.root).args(["component", "add", "rust-src"]));
    if rustup.is_ok() && complete(&link) {
        return Ok(());
    }
    eprintln!("setup: rust-src: rustup could not; looking for rustc {release} among Debian's");
    from_debian(tools, release, &link).with_context(|| {
        format!(
            "rust-src of rustc {release} is missing; put it in place with \
             `rustup component add rust-src`, or its source at {}",
            link.display()
        )
    })
}

/// Cargo's `build-std` looks for this file.
fn complete(link: &Path) -> bool {
    link.join("library/Cargo.lock").exists()
}

fn from_debian(tools: &Tools, release: &str, link: &Path) -> Result<()> {
    let tree = tools.path("rust-src");
    let source = tree.join(format!("usr/src/rustc-{release}"));
    if complete(&source) {
        eprintln!("setup: rust-src: {} is already unpacked", source.display());
    } else {
        fetch(tools, release, &tree)?;
    }
    if !complete(&source) {
        bail!("the package rust-src has no {}", source.join("library/Cargo.lock").display());
    }
    // A link whose target went away is ours or nobody's.
    if link.is_symlink() && !link.exists() {
        fs::remove_file(link)?;
    }
    let parent = link.parent().context("the sysroot has no parent folder")?;
    fs::create_dir_all(parent)
        .and_then(|()| symlink(&source, link))
        .with_context(|| format!("cannot link {} to {}", link.display(), source.display()))?;
    eprintln!("setup: rust-src: linked {} to {} (the one thing outside the project)", link.display(), source.display());
    Ok(())
}

fn fetch(tools: &Tools, release: &str, tree: &Path) -> Result<()> {
    let upstream = format!("{release}+");
    let mut looked = Vec::new();
    for suite in SUITES {
        let versions = match Apt::suite(tools, suite).and_then(|apt| Ok((apt.versions("rust-src")?, apt))) {
            Ok(found) => found,
            Err(error) => {
                looked.push(format!("{suite}: {error:#}"));
                continue;
            }
        };
        let (versions, apt) = versions;
        if let Some(version) = versions.iter().find(|version| version.starts_with(&upstream)) {
            eprintln!("setup: rust-src: fetching rust-src {version} of {suite}");
            return apt.unpack(&[&format!("rust-src={version}")], tree);
        }
        looked.push(format!("{suite} has {}", versions.join(", ")));
    }
    bail!("no suite of this machine's mirror has it:\n{}", looked.join("\n"))
}
