//! Writes a recording: mode 0600, never through a symlink, never over a file unless told to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{FRAME, Header, MAGIC, VERSION};
use crate::ids::MonotonicNs;
use crate::record::{Event, Record, encode_into};
use crate::wire::{Limits, Redactor};

/// Longest time that records wait for their frame, ns of record time.
const FRAME_NS: u64 = 1_000_000_000;

const LEVEL: i32 = 3;

/// Why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The path is taken.
    #[error("{} exists: choose another name, or --force to replace it", .0.display())]
    Exists(PathBuf),
    /// The path is taken by something that is not replaced.
    #[error("{} is {}: a recording never replaces one, choose another name", .0.display(), .1)]
    NotAFile(PathBuf, &'static str),
    /// The file cannot be made.
    #[error("cannot create the recording {}: {}", .0.display(), .1)]
    Create(PathBuf, io::Error),
    /// The disk is full.
    #[error(
        "no space left for the recording: what was written before is kept and readable, up to its last whole frame"
    )]
    Full,
    /// It was full before the head was written.
    #[error("no space left for a recording at {}: free some, or record elsewhere", .0.display())]
    NoRoom(PathBuf),
    /// A write failed.
    #[error("cannot write the recording: {0}; what was written before is kept and readable")]
    Write(io::Error),
}

impl WriteError {
    fn write(error: io::Error) -> WriteError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => WriteError::Full,
            _ => WriteError::Write(error),
        }
    }
}

/// A recording that is being written.
pub struct Writer<W: Write = File> {
    out: W,
    frame: Vec<u8>,
    frame_began: MonotonicNs,
    compressor: zstd::bulk::Compressor<'static>,
    redactor: Redactor,
    records: u64,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Writer<File> {
    /// Whether [`Writer::create`] would find the path taken.
    ///
    /// # Errors
    /// [`WriteError`] when it would.
    pub fn check(path: &Path, force: bool) -> Result<(), WriteError> {
        taken(path, force).map(|_| ())
    }

    /// Makes the file at `path` and writes its head.
    ///
    /// # Errors
    /// [`WriteError`] when the path is taken (with `force`: by anything but a regular file) or cannot be written.
    pub fn create(path: &Path, force: bool, header: &Header) -> Result<Self, WriteError> {
        if taken(path, force)? {
            fs::remove_file(path).map_err(|error| WriteError::Create(path.to_owned(), error))?;
        }
        // O_EXCL never follows a symlink in the last component, whatever came between.
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::AlreadyExists => WriteError::Exists(path.to_owned()),
                    _ => WriteError::Create(path.to_owned(), error),
                }
            })?;
        // What has not even a head is of no use, and would be in the way of the next try.
        Writer::new(file, header).map_err(|error| {
            let _ = fs::remove_file(path);
            match error {
                WriteError::Full => WriteError::NoRoom(path.to_owned()),
                WriteError::Write(error) => WriteError::Create(path.to_owned(), error),
                error => error,
            }
        })
    }
}

/// Whether a file is there that may be replaced.
fn taken(path: &Path, force: bool) -> Result<bool, WriteError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(false) };
    let kind = found.file_type();
    match () {
        () if kind.is_symlink() => Err(WriteError::NotAFile(path.to_owned(), "a symlink")),
        () if kind.is_dir() => Err(WriteError::NotAFile(path.to_owned(), "a directory")),
        () if !kind.is_file() => Err(WriteError::NotAFile(path.to_owned(), "not a regular file")),
        () if !force => Err(WriteError::Exists(path.to_owned())),
        () => Ok(true),
    }
}

impl<W: Write> Writer<W> {
    /// Writes the head of a recording to `out`.
    ///
    /// # Errors
    /// [`WriteError`] when `out` refuses it.
    pub fn new(mut out: W, header: &Header) -> Result<Self, WriteError> {
        let json = serde_json::to_string(header).map_err(|error| WriteError::Write(error.into()))?;
        let head = format!("{MAGIC} {VERSION}\n{json}\n");
        out.write_all(head.as_bytes()).map_err(WriteError::write)?;
        let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(WriteError::write)?;
        compressor.include_checksum(true).map_err(WriteError::write)?;
        let (frame, frame_began) = (Vec::with_capacity(FRAME), MonotonicNs(0));
        Ok(Writer { out, frame, frame_began, compressor, redactor: Redactor::new(Limits::default()), records: 0 })
    }

    /// Takes one record. It is redacted in place, so that the engine is fed exactly what the file holds.
    ///
    /// # Errors
    /// [`WriteError`]; the recording is over then, and readable up to the last whole frame.
    pub fn write(&mut self, record: &mut Record) -> Result<(), WriteError> {
        // The programs send no more of a container process; a recording does not rely on it.
        if let Event::Exec(exec) = &mut record.event
            && exec.container
        {
            exec.argv.truncate(1);
        }
        self.redactor.record(record);
        if self.frame.is_empty() {
            self.frame_began = record.at;
        }
        encode_into(record, &mut self.frame);
        self.records += 1;
        if self.frame.len() >= FRAME || record.at.since(self.frame_began) >= FRAME_NS {
            self.flush()?;
        }
        Ok(())
    }

    /// Records taken.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.frame.is_empty() {
            return Ok(());
        }
        self.write_frame()
    }

    /// Without records it is the end.
    fn write_frame(&mut self) -> Result<(), WriteError> {
        let frame = self.compressor.compress(&self.frame).map_err(WriteError::write)?;
        self.frame.clear();
        self.out.write_all(&frame).and_then(|()| self.out.flush()).map_err(WriteError::write)
    }

    /// Writes what waits and the end, and gives the output back.
    ///
    /// # Errors
    /// As for [`Writer::write`].
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        self.write_frame()?;
        Ok(self.out)
    }
}
