//! Rule sets and header traces as text: what ClassBench's generators write (Taylor and Turner, "ClassBench: A Packet
//! Classification Benchmark", 2005), and DPDK's test-acl reads.
//!
//! ```text
//! @15.0.0.0/8  0.0.0.0/0  0 : 65535  1024 : 2047  0x06/0xFF  0x1000/0x1000     a rule: source, destination, ports, protocol, flags
//! 3231124299   255664495  0          65535        6          565              a header: the same, and the first match (-1: none)
//! ```
//!
//! The flags may be missing, and so may the first match. Addresses of rules are dotted, or IPv6 in colons; in headers they may also be
//! numbers. Numbers are decimal or begin with `0x`. Empty lines and lines that begin with `#` are passed over. Everything else is
//! an error with line and column: bits behind a prefix or outside a mask, a range that ends before it begins.

mod header;
pub(crate) mod line;
mod rule;

pub use header::{Header, read_headers, read_headers_of};
pub use rule::{TextRule, in_order, read_rules};

use std::io::BufRead;

/// The longest line of a set or a trace, bytes: no rule needs a tenth of it.
const LONGEST_LINE: usize = 4096;

/// Lines of a set or a trace at most, empty ones and comments too: what is read may have no end.
const MOST_LINES: usize = 1 << 26;

/// What some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Why a file was refused. The caller knows its name.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A line is not what it should be.
    #[error("line {line}, column {column}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// Byte of the line, from 1.
        column: usize,
        /// What is wrong and what should be there.
        what: String,
    },
    /// The file cannot be read.
    #[error("after line {line}: {source}")]
    Read {
        /// Lines read before.
        line: usize,
        /// As the reader says.
        source: std::io::Error,
    },
}

/// Tells `each` every line that is neither empty nor a comment, with its number. None may have more than `longest` bytes.
pub(crate) fn lines(
    mut reader: impl BufRead,
    longest: usize,
    mut each: impl FnMut(line::Line<'_>) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let (mut text, mut number) = (Vec::new(), 0);
    loop {
        text.clear();
        let mut limited = std::io::Read::take(&mut reader, longest as u64 + 1);
        let read = limited.read_until(b'\n', &mut text);
        let read = read.map_err(|source| TextError::Read { line: number, source })?;
        if read == 0 {
            return Ok(());
        }
        number += 1;
        if number > MOST_LINES {
            let what = format!("there can be {MOST_LINES} lines: give fewer");
            return Err(TextError::Line { line: number, column: 1, what });
        }
        if text.len() > longest {
            let what = format!("a line of more than {longest} bytes: give one rule, header or group a line");
            return Err(TextError::Line { line: number, column: longest, what });
        }
        if number == 1 && text.starts_with(BYTE_ORDER_MARK) {
            let what = "the file begins with a byte order mark: save it without".into();
            return Err(TextError::Line { line: number, column: 1, what });
        }
        let line = line::Line::new(&text, number);
        if !line.is_idle() {
            each(line)?;
        }
    }
}
