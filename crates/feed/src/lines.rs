//! Lines of bounded length, with their numbers.

use crate::error::{FeedError, FileFault, LineFault};
use std::io::{self, BufRead};

/// No line of a table is longer.
pub(crate) const LINE_MAX_BYTES: usize = 4096;

/// What has no line end in so many bytes is no text, and may have no end either.
const ENDLESS_BYTES: usize = 1 << 20;

/// What some editors write before the first line.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads lines one at a time into one buffer.
pub(crate) struct Lines {
    reader: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    /// Number of the line read last, from 1.
    number: u64,
    /// Lines that there may be.
    most: Option<u64>,
    file: String,
}

impl Lines {
    pub(crate) fn new(reader: Box<dyn BufRead + Send>, file: String) -> Self {
        Lines { reader, buffer: Vec::new(), number: 0, most: None, file }
    }

    /// The same, refused where there are more.
    pub(crate) fn at_most(self, most: u64) -> Self {
        Lines { most: Some(most), ..self }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// An error at the line read last.
    pub(crate) fn error(&self, fault: LineFault) -> FeedError {
        FeedError::Line { file: self.file.clone(), line: self.number, fault }
    }

    /// The next line that is neither empty nor a comment (`#`), without white space at its ends; `Ok(None)` at the
    /// end. A fault is about that line, and the next call goes on behind it.
    pub(crate) fn next(&mut self) -> Result<Option<Result<&str, LineFault>>, FeedError> {
        loop {
            let whole = match self.fill()? {
                None => return Ok(None),
                Some(whole) => whole,
            };
            if let Some(most) = self.most.filter(|most| self.number > *most) {
                return Err(FeedError::File { file: self.file.clone(), fault: FileFault::TooLong { most } });
            }
            if !whole {
                return Ok(Some(Err(LineFault::TooLong(LINE_MAX_BYTES))));
            }
            let line = self.buffer.trim_ascii();
            if !line.is_empty() && line[0] != b'#' {
                break;
            }
        }
        let line = self.buffer.trim_ascii();
        Ok(Some(match std::str::from_utf8(line) {
            Err(e) => Err(LineFault::NotText(e.valid_up_to() + 1)),
            Ok(text) => match text.bytes().position(|b| b.is_ascii_control() && b != b'\t') {
                Some(at) => Err(LineFault::NotText(at + 1)),
                None => Ok(text),
            },
        }))
    }

    /// Reads one line; `Some(false)` if it was too long (and is consumed all the same, unless it seems to have no end).
    fn fill(&mut self) -> io::Result<Option<bool>> {
        self.buffer.clear();
        let (mut any, mut whole, mut passed) = (false, true, 0);
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let (take, ended) = match chunk.iter().position(|&b| b == b'\n') {
                Some(at) => (at, true),
                None => (chunk.len(), false),
            };
            if self.buffer.len() + take > LINE_MAX_BYTES {
                whole = false;
            } else {
                self.buffer.extend_from_slice(&chunk[..take]);
            }
            self.reader.consume(take + usize::from(ended));
            if ended {
                break;
            }
            passed += take;
            if passed > ENDLESS_BYTES {
                let (file, line) = (&self.file, self.number + 1);
                return Err(io::Error::other(format!(
                    "{file}:{line}: longer than {ENDLESS_BYTES} bytes: no text"
                )));
            }
        }
        if !any {
            return Ok(None);
        }
        self.number += 1;
        if self.number == 1 && self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some(whole))
    }
}
