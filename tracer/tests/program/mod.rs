//! Runs the built binary.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A command that is not run yet.
pub(crate) fn podlapse(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podlapse"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    podlapse(arguments).output().unwrap()
}

/// Runs podlapse and expects its exit code, nothing on stdout, and all of `says` on stderr.
pub(crate) fn fails(arguments: &[&str], code: i32, says: &[&str]) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in says {
        assert!(stderr.contains(word), "{arguments:?} does not say {word:?}: {stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// A path of a test is UTF-8.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
