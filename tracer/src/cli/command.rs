//! `-- COMMAND`: a child with podlapse's stdin and stderr; its stdout goes to stderr, since ours holds traces only.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::{env, io};

use rustix::fs::Access;

/// A COMMAND that cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {name}: {error}")]
pub(super) struct CommandError {
    name: String,
    error: io::Error,
}

/// A COMMAND that runs. When podlapse ends first it is told to end, too.
#[derive(Debug)]
pub(super) struct Command(Child);

impl Command {
    /// Whether there is such a program; asked before anything is attached or written.
    pub(super) fn check(words: &[OsString]) -> Result<(), CommandError> {
        let Some(name) = words.first() else { return Ok(()) };
        let runs = |path: &Path| match path.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => rustix::fs::access(path, Access::EXEC_OK).map_err(io::Error::from),
        };
        let found = if name.as_bytes().contains(&b'/') {
            runs(name.as_ref())
        } else {
            let path = env::var_os("PATH").unwrap_or_default();
            let found = env::split_paths(&path).map(|dir| runs(&dir.join(name))).find(Result::is_ok);
            found.unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::NotFound, "no such program in PATH")))
        };
        found.map_err(|error| CommandError { name: name.to_string_lossy().into_owned(), error })
    }

    /// Starts it with the caller's privileges: this comes before podlapse drops its own.
    pub(super) fn start(words: &[OsString]) -> Result<Option<Command>, CommandError> {
        let Some((name, arguments)) = words.split_first() else { return Ok(None) };
        let failed = |error| CommandError { name: name.to_string_lossy().into_owned(), error };
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let child = std::process::Command::new(name).args(arguments).stdout(Stdio::from(stderr)).spawn();
        child.map(|child| Some(Command(child))).map_err(failed)
    }

    /// How it ended, once it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // It may just have ended; then there is nobody to tell.
            let _ =
                rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        }
    }
}
