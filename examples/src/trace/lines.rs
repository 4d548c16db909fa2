//! Bytes to lines: opens a trace, decompresses it as its first bytes say, and hands out one
//! bounded line of text at a time.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use super::TraceError;

/// Longest accepted line in bytes. The longest conversation published is a few MiB; the bound only
/// keeps a broken or hostile file from filling the memory.
pub(super) const MAX_LINE: u64 = 64 << 20;

const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// The lines of one trace file, plain, gzip or Zstandard.
pub(super) struct Lines {
    file: String,
    reader: Box<dyn BufRead>,
    buffer: Vec<u8>,
    number: u64,
    longest: u64,
    bytes_read: Rc<Cell<u64>>,
    bytes_total: u64,
}

impl Lines {
    /// Opens `path`. Holds one line and the decompressor's window (at most 128 MiB) in memory.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let open = || {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            let bytes_read = Rc::new(Cell::new(0));
            let counted = Counted { file, count: Rc::clone(&bytes_read) };
            Ok((decompress(counted)?, bytes_read, metadata.len()))
        };
        let (reader, bytes_read, bytes_total) =
            open().map_err(|source| TraceError::Open { file: name.clone(), source })?;
        Ok(Self {
            file: name,
            reader,
            buffer: Vec::new(),
            number: 0,
            longest: MAX_LINE,
            bytes_read,
            bytes_total,
        })
    }

    /// Bytes of the file read so far and its size; for a progress bar.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.bytes_read.get(), self.bytes_total)
    }

    /// The next line that is not blank, without its line end; `None` at the end of the file.
    pub(super) fn next_line(&mut self) -> Result<Option<&str>, TraceError> {
        loop {
            self.number += 1;
            self.buffer.clear();
            let read =
                (&mut self.reader).take(self.longest + 1).read_until(b'\n', &mut self.buffer);
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(self.bad(format!("cannot read: {error}"))),
            }
            if self.buffer.len() as u64 > self.longest && self.buffer.last() != Some(&b'\n') {
                return Err(self.bad(format!("line is longer than {} bytes", self.longest)));
            }
            if self.number == 1 && self.buffer.starts_with(BOM) {
                self.buffer.drain(..BOM.len());
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(self.buffer.trim_ascii());
        text.map(Some).map_err(|error| self.bad(format!("not UTF-8: {error}")))
    }

    /// An error that blames the line read last.
    pub(super) fn bad(&self, reason: impl Into<String>) -> TraceError {
        TraceError::Line { file: self.file.clone(), line: self.number, reason: reason.into() }
    }

    /// The error for a file that ended without a request.
    pub(super) fn empty(&self) -> TraceError {
        TraceError::Empty { file: self.file.clone() }
    }
}

fn decompress(file: Counted) -> io::Result<Box<dyn BufRead>> {
    let mut raw = BufReader::with_capacity(1 << 16, file);
    let start = raw.fill_buf()?;
    if start.starts_with(&GZIP) {
        let gzip = flate2::bufread::MultiGzDecoder::new(raw);
        Ok(Box::new(BufReader::new(gzip)))
    } else if start.starts_with(&ZSTD) {
        let zstd = zstd::stream::read::Decoder::with_buffer(raw)?;
        Ok(Box::new(BufReader::new(zstd)))
    } else {
        Ok(Box::new(raw))
    }
}

/// Counts the bytes taken from the file, so that progress is known even through a decompressor.
struct Counted {
    file: File,
    count: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}
