//! Reads a recording, also one that is still being written or that a kill cut short.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{Header, MAGIC, MAX_HEADER, MAX_RECORD, VERSION};
use crate::record::{DecodeError, Record, decode, len_of};

/// Why a recording cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open the recording {}: {}", .0.display(), .1)]
    Open(PathBuf, io::Error),
    /// It is a directory.
    #[error("{} is a directory, not a recording: name a file that `podlapse record` wrote", .0.display())]
    Directory(PathBuf),
    /// Something else.
    #[error("not a podlapse recording: name a file that `podlapse record` wrote")]
    NotARecording,
    /// From a later podlapse.
    #[error("recording has format version {0}, this podlapse reads up to {VERSION}: use a newer podlapse")]
    Newer(u32),
    /// The header line does not parse.
    #[error("recording's header is damaged: {0}")]
    Header(String),
    /// The file ends inside a frame or its head.
    #[error(
        "recording is truncated after {0} records: its writer was killed, the disk was full, or the copy is incomplete"
    )]
    Truncated(u64),
    /// A frame does not decompress.
    #[error("recording is damaged after {0} records: {1}")]
    Damaged(u64, io::Error),
    /// A record does not decode.
    #[error("recording is damaged after {0} records: {1}")]
    Record(u64, DecodeError),
    /// Reading failed.
    #[error("cannot read the recording: {0}")]
    Read(io::Error),
}

/// A recording that is being read.
pub struct Reader {
    header: Header,
    body: zstd::Decoder<'static, Box<dyn BufRead + Send>>,
    buffer: Vec<u8>,
    records: u64,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("header", &self.header).field("records", &self.records).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens the file at `path` and reads its head.
    ///
    /// # Errors
    /// [`ReadError`] when it is not a recording that this version can read.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        let open = |error| ReadError::Open(path.to_owned(), error);
        let file = File::open(path).map_err(open)?;
        if file.metadata().map_err(open)?.is_dir() {
            return Err(ReadError::Directory(path.to_owned()));
        }
        Reader::new(Box::new(BufReader::new(file)))
    }

    /// Reads the head of a recording.
    ///
    /// # Errors
    /// As for [`Reader::open`].
    pub fn new(mut input: Box<dyn BufRead + Send>) -> Result<Reader, ReadError> {
        let first = line(&mut input, MAGIC.len() as u64 + 12)?;
        let version = first
            .strip_prefix(MAGIC.as_bytes())
            .and_then(|rest| str::from_utf8(rest).ok()?.strip_prefix(' ')?.strip_suffix('\n')?.parse().ok())
            .ok_or(ReadError::NotARecording)?;
        if version > VERSION {
            return Err(ReadError::Newer(version));
        }
        let json = line(&mut input, MAX_HEADER)?;
        if !json.ends_with(b"\n") {
            return Err(if json.len() as u64 == MAX_HEADER {
                ReadError::Header("its line is too long".into())
            } else {
                ReadError::Truncated(0)
            });
        }
        let header = serde_json::from_slice(&json).map_err(|error| ReadError::Header(error.to_string()))?;
        let body = zstd::Decoder::with_buffer(input).map_err(ReadError::Read)?;
        Ok(Reader { header, body, buffer: Vec::new(), records: 0 })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`] where the file ends too early or is damaged; the records before were good.
    pub fn read(&mut self) -> Result<Option<Record>, ReadError> {
        self.buffer.resize(16, 0);
        match self.body.read(&mut self.buffer[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(self.failed(error)),
        }
        self.body.read_exact(&mut self.buffer[1..]).map_err(|error| self.failed(error))?;
        let len = len_of(&self.buffer).unwrap_or(0);
        if !(24..=MAX_RECORD).contains(&len) {
            return Err(ReadError::Record(self.records, DecodeError::Value("len")));
        }
        self.buffer.resize(len, 0);
        self.body.read_exact(&mut self.buffer[16..]).map_err(|error| self.failed(error))?;
        let record = decode(&self.buffer).map_err(|error| ReadError::Record(self.records, error))?;
        self.records += 1;
        Ok(Some(record))
    }

    fn failed(&self, error: io::Error) -> ReadError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ReadError::Truncated(self.records),
            io::ErrorKind::Other | io::ErrorKind::InvalidData => ReadError::Damaged(self.records, error),
            _ => ReadError::Read(error),
        }
    }
}

fn line(input: &mut impl BufRead, limit: u64) -> Result<Vec<u8>, ReadError> {
    let mut line = Vec::new();
    input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(ReadError::Read)?;
    Ok(line)
}
