//! Reads a recording, also one that is still being written or that a kill cut short.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{Header, MAGIC, MAX_FRAME, MAX_HEADER, MAX_RECORD, MAX_VERSION, VERSION};
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
    /// From a later podlapse. The number may be of any size.
    #[error(
        "recording has format version {0}, this podlapse reads {VERSION}: it was made by a newer podlapse, use that one"
    )]
    Newer(String),
    /// From none.
    #[error(
        "recording has format version {0}, this podlapse reads {VERSION}: no podlapse wrote that, the file is damaged"
    )]
    NoVersion(u32),
    /// The header line does not parse.
    #[error("recording's header is damaged: {0}")]
    Header(String),
    /// The file ends inside a frame or its head.
    #[error(
        "recording is truncated after {records} records: the {bytes} bytes behind them are no whole frame; \
         its writer was killed, the disk was full, or the copy is incomplete"
    )]
    Truncated {
        /// Records before it.
        records: u64,
        /// From that frame's begin to the file's end.
        bytes: u64,
    },
    /// A frame does not decompress, or does not hold whole records.
    #[error("recording is damaged after {records} records, the {bytes} bytes behind them are not read: {cause}")]
    Damaged {
        /// Records before it.
        records: u64,
        /// From that frame's begin to the file's end.
        bytes: u64,
        /// What is wrong.
        cause: String,
    },
    /// Reading failed.
    #[error("cannot read the recording: {0}")]
    Read(io::Error),
}

impl ReadError {
    /// Whether what was read before it is good, as far as it goes.
    pub fn keeps_what_was_read(&self) -> bool {
        matches!(self, ReadError::Truncated { .. } | ReadError::Damaged { .. })
    }
}

/// A recording that is being read.
pub struct Reader {
    header: Header,
    input: Counted,
    /// The frame at hand, unpacked.
    frame: Vec<u8>,
    /// Its records that were not asked for yet.
    waiting: std::vec::IntoIter<Record>,
    records: u64,
    /// The last frame that was read is the end.
    ended: bool,
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
        let first = line(&mut input, MAX_VERSION)?;
        check_version(&first)?;
        let json = line(&mut input, MAX_HEADER)?;
        if !json.ends_with(b"\n") {
            return Err(if json.len() as u64 == MAX_HEADER {
                ReadError::Header("its line is too long".into())
            } else {
                ReadError::Truncated { records: 0, bytes: (first.len() + json.len()) as u64 }
            });
        }
        let header = serde_json::from_slice(&json).map_err(|error| ReadError::Header(error.to_string()))?;
        let input = Counted { input, read: 0 };
        Ok(Reader { header, input, frame: Vec::new(), waiting: Vec::new().into_iter(), records: 0, ended: false })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether its writer came to an end. A recording that is read up to `None` and has none is still being written, or
    /// was cut off between two frames.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// As for [`Reader::read_frame`].
    pub fn read(&mut self) -> Result<Option<Record>, ReadError> {
        while self.waiting.as_slice().is_empty() {
            match self.unpack()? {
                Some(records) => self.waiting = records.into_iter(),
                None => return Ok(None),
            }
        }
        self.records += 1;
        Ok(self.waiting.next())
    }

    /// The records of the next frame, or what is left of the one at hand; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`] where the file ends too early or is damaged; the records before were good.
    pub fn read_frame(&mut self) -> Result<Option<Vec<Record>>, ReadError> {
        let records = match self.waiting.as_slice().is_empty() {
            true => self.unpack()?,
            false => Some(std::mem::take(&mut self.waiting).collect()),
        };
        self.records += records.as_ref().map_or(0, Vec::len) as u64;
        Ok(records)
    }

    /// A frame is read whole or not at all: only its end has the checksum.
    fn unpack(&mut self) -> Result<Option<Vec<Record>>, ReadError> {
        let begin = self.input.read;
        // A head alone is truncated: a run has records, or an end.
        if begin > 0 && self.input.fill_buf().map_err(ReadError::Read)?.is_empty() {
            return Ok(None);
        }
        self.frame.clear();
        let decoder = zstd::Decoder::with_buffer(&mut self.input).map(zstd::Decoder::single_frame);
        let unpacked = decoder.and_then(|frame| frame.take(MAX_FRAME).read_to_end(&mut self.frame));
        let cause = match unpacked.map(|_| records(&self.frame)) {
            Ok(Ok(records)) => {
                self.ended = records.is_empty();
                return Ok(Some(records));
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    return Err(ReadError::Truncated { records: self.records, bytes: self.input.read - begin });
                }
                io::ErrorKind::Other | io::ErrorKind::InvalidData => error.to_string(),
                _ => return Err(ReadError::Read(error)),
            },
        };
        io::copy(&mut self.input, &mut io::sink()).map_err(ReadError::Read)?;
        Err(ReadError::Damaged { records: self.records, bytes: self.input.read - begin, cause })
    }
}

/// The first line, `podlapse-recording VERSION`.
fn check_version(line: &[u8]) -> Result<(), ReadError> {
    let number = line.strip_prefix(MAGIC.as_bytes()).and_then(|rest| rest.strip_prefix(b" ")?.strip_suffix(b"\n"));
    let number = number.and_then(|number| str::from_utf8(number).ok()).ok_or(ReadError::NotARecording)?;
    if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(ReadError::NotARecording);
    }
    match number.parse() {
        Ok(VERSION) => Ok(()),
        Ok(version) if version < VERSION => Err(ReadError::NoVersion(version)),
        Ok(_) | Err(_) => Err(ReadError::Newer(number.to_owned())),
    }
}

/// The records that a frame holds.
fn records(mut frame: &[u8]) -> Result<Vec<Record>, DecodeError> {
    let mut records = Vec::new();
    while !frame.is_empty() {
        let len = len_of(frame).filter(|len| (24..=MAX_RECORD).contains(len) && *len <= frame.len());
        let (record, rest) = frame.split_at(len.ok_or(DecodeError::Value("len"))?);
        records.push(decode(record)?);
        frame = rest;
    }
    Ok(records)
}

/// An input, and how much of it was read.
struct Counted {
    input: Box<dyn BufRead + Send>,
    read: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.read += amount as u64;
        self.input.consume(amount);
    }
}

fn line(input: &mut impl BufRead, limit: u64) -> Result<Vec<u8>, ReadError> {
    let mut line = Vec::new();
    input.by_ref().take(limit).read_until(b'\n', &mut line).map_err(ReadError::Read)?;
    Ok(line)
}
