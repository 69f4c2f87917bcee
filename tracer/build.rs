//! Compiles the BPF programs into `$OUT_DIR/tracer-ebpf`.
//!
//! `AYA_BUILD_SKIP=1` leaves them out (an empty object takes their place), for checks and documentation on a machine
//! without bpf-linker; such a podlapse says at attach that it was built without programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};
use aya_build::{Package, Toolchain};

const HINT: &str = "`cargo xtask setup` puts it in place (or set AYA_BUILD_SKIP=1 to build without the BPF programs)";

fn main() -> Result<()> {
    println!("cargo:rerun-if-env-changed=AYA_BUILD_SKIP");
    let out = PathBuf::from(env::var_os("OUT_DIR").context("OUT_DIR is not set")?);
    if env::var("AYA_BUILD_SKIP").is_ok_and(|skip| skip == "1" || skip.eq_ignore_ascii_case("true")) {
        return fs::write(out.join("tracer-ebpf"), []).context("cannot write an empty BPF object");
    }
    // SAFETY: a build script's main thread, before any other exists.
    unsafe { env::set_var("PATH", path()?) };
    tools()?;
    let features: &[&str] =
        if env::var("PROFILE").is_ok_and(|profile| profile == "debug") { &["programs", "log"] } else { &["programs"] };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer-ebpf");
    let root = root.to_str().context("the path of the project is not UTF-8")?;
    // SAFETY: a build script's main thread, before any other exists. Only the nested build inherits it: on a stable
    // toolchain that is what allows `-Z build-std=core` for the BPF target.
    unsafe {
        env::set_var("RUSTC_BOOTSTRAP", "1");
        // aya-build passes each line on as a warning of this package: warnings and errors are enough.
        env::set_var("CARGO_TERM_QUIET", "true");
    }
    // Under rustup, the pinned toolchain that builds the rest; without, whatever rustc is.
    let toolchain = env::var("RUSTUP_TOOLCHAIN").unwrap_or_else(|_| "stable".to_owned());
    let package = Package { name: "tracer-ebpf", root_dir: root, no_default_features: true, features };
    aya_build::build_ebpf([package], Toolchain::Custom(&toolchain)).context("the BPF programs did not build")
}

/// `PATH` with the project's tools folder in it, so that a plain `cargo build` works once `cargo xtask setup` has.
fn path() -> Result<OsString> {
    let tools = env::var_os("PODLAPSE_TOOLS").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools"));
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(env::split_paths(&path).chain([tools.join("bin")])).context("PATH cannot hold the tools folder")
}

/// What aya-build would miss only late and obscurely.
fn tools() -> Result<()> {
    if Command::new("bpf-linker").arg("--version").output().is_err() {
        bail!("bpf-linker is not on PATH: {HINT}");
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(&rustc).args(["--print", "sysroot"]).output().context("cannot run rustc")?.stdout;
    let sysroot = String::from_utf8(sysroot).context("the sysroot's path is not UTF-8")?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/Cargo.toml");
    if !core.exists() {
        bail!("rust-src is missing ({} does not exist): {HINT}", core.display());
    }
    Ok(())
}
