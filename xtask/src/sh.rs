//! Running other programs: quietly, with their words in the error when they fail.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Runs to the end and returns stdout; an error carries the command line and what it wrote.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        let tail: Vec<&str> = stderr.trim_end().lines().rev().take(12).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        bail!("{} ended with {status}:\n{}", line(command), tail.join("\n"));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Runs to the end; what it prints on stdout goes to stderr, and stdout stays the caller's own.
pub(crate) fn loud(command: &mut Command) -> Result<()> {
    show(command.stdout(std::io::stderr()))
}

/// Runs to the end with this process's stdout and stderr.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// A command line for a human.
pub(crate) fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}
