//! JSON Lines to a file that is renamed and begun again when it is full. A disk that is full ends nothing: lines are
//! dropped and counted, and what is in the file stays whole lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What it is for its owner alone.
const MODE: u32 = 0o600;

/// A file and those before it: `FILE`, `FILE.1`, …; the highest number is the oldest.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    /// Bytes at which the next file begins.
    max_size: u64,
    /// Files beside `path`.
    keep: u32,
    file: Option<File>,
    /// Of whole lines; a regular file holds no more.
    size: u64,
}

impl LineFile {
    /// Opens the file, or makes it, for its owner alone. A line that a podlapse before did not get to write whole is
    /// cut off.
    ///
    /// # Errors
    /// When it cannot be written to, or is no regular file.
    pub fn open(path: &Path, max_size: u64, keep: u32) -> io::Result<LineFile> {
        let mut lines = LineFile { path: path.to_owned(), max_size, keep, file: None, size: 0 };
        lines.file = Some(lines.open_whole()?);
        Ok(lines)
    }

    /// Writes a line, newline included, or nothing of it.
    ///
    /// # Errors
    /// When the file does not take the whole of it; the next line may fare better.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size.saturating_add(line.len() as u64) > self.max_size {
            self.file = None;
            self.rotate()?;
            self.size = 0;
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open_whole()?,
        };
        let written = file.write_all(line);
        self.file = match written {
            Ok(()) => {
                self.size += line.len() as u64;
                Some(file)
            }
            // What fitted of it is cut off, which takes no room.
            Err(_) => self.open_whole().ok(),
        };
        written
    }

    fn rotate(&self) -> io::Result<()> {
        let numbered = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        let absent_is_well = |done: io::Result<()>| match done {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
        if self.keep == 0 {
            return absent_is_well(fs::remove_file(&self.path));
        }
        for number in (1..self.keep).rev() {
            absent_is_well(fs::rename(numbered(number), numbered(number + 1)))?;
        }
        absent_is_well(fs::rename(&self.path, numbered(1)))
    }

    /// The file, without a last line that is not whole.
    fn open_whole(&mut self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // A pipe or device could be opened, and would then hold the agent up.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        options.read(true).append(true).create(true).mode(MODE).custom_flags(flags);
        let file = options.open(&self.path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file; for stdout give -"));
        }
        if found.mode() & 0o777 != MODE {
            file.set_permissions(fs::Permissions::from_mode(MODE))?;
        }
        self.size = whole_lines(&file, found.size())?;
        if self.size < found.size() {
            file.set_len(self.size)?;
        }
        Ok(file)
    }
}

/// How much of a file is whole lines.
fn whole_lines(mut file: &File, size: u64) -> io::Result<u64> {
    const PIECE: u64 = 64 * 1024;
    let (mut end, mut piece) = (size, Vec::new());
    while end > 0 {
        let begin = end.saturating_sub(PIECE);
        file.seek(SeekFrom::Start(begin))?;
        piece.clear();
        file.take(end - begin).read_to_end(&mut piece)?;
        if let Some(last) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + last as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
