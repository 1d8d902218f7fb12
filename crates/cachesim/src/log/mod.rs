//! Request logs: what clients asked a cache for, in order. A log is read whole: 8 bytes a request and 12 a key, and what finds a
//! key's number while reading (about 20 bytes a key).
//!
//! Keys are given numbers from 0 in order of appearance, so that a cache finds a key by one load; what was the key is hashed once.
//! Three formats are read, plain or compressed: [`Format`].

mod csv;
mod general;
mod int32;
mod keys;

use crate::{Key, LogError};
pub use keys::KeyInfo;
use keys::Keys;
use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// A value; a cache that has none gets it from behind and keeps it.
    Get,
    /// Store a value.
    Set,
    /// Change the value that there is, if there is one (incr, append, ...). Nothing is kept that was not.
    Change,
    /// Forget the value.
    Delete,
}

/// A value is at most this long, bytes.
pub const VALUE_MAX_BYTES: u32 = (1 << 30) - 1;

/// Requests of a log at most, 16 GiB of them: a small file may unpack to any number, and a pipe may have no end.
pub const REQUESTS_MAX: usize = 1 << 31;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key's number.
    pub key: Key,
    /// The value's bytes, shifted by 2; the operation.
    packed: u32,
}

const _: () = assert!(size_of::<Request>() == 8, "what the module's text says");

impl Request {
    /// A request; a longer value counts as [`VALUE_MAX_BYTES`].
    #[inline]
    pub fn new(op: Op, key: Key, value_bytes: u32) -> Self {
        Request { key, packed: value_bytes.min(VALUE_MAX_BYTES) << 2 | op as u32 }
    }

    /// What is asked for.
    #[inline]
    pub fn op(self) -> Op {
        match self.packed & 3 {
            0 => Op::Get,
            1 => Op::Set,
            2 => Op::Change,
            _ => Op::Delete,
        }
    }

    /// How long the value is: of a get, as the log says it was.
    #[inline]
    pub fn value_bytes(self) -> u32 {
        self.packed >> 2
    }
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// libCacheSim's oracleGeneral: records of 24 bytes (time, key, size, when the key comes next), little-endian.
    OracleGeneral,
    /// Twitter's cache traces: time, key, key size, value size, client, operation, time to live.
    Csv,
    /// cache2k's traces: keys of 32 bits, big-endian, nothing else.
    Int32,
}

impl Format {
    /// All of them with their names.
    pub const ALL: [(Format, &'static str); 3] =
        [(Format::OracleGeneral, "oraclegeneral"), (Format::Csv, "csv"), (Format::Int32, "int32")];

    /// By the file's name, without the ending of a compressed one: `.oracleGeneral` or `.oracleGeneral.bin`, `.csv`, `.trace`.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name =
            [".gz", ".xz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
        [
            (".oraclegeneral", Format::OracleGeneral),
            (".oraclegeneral.bin", Format::OracleGeneral),
            (".csv", Format::Csv),
            (".trace", Format::Int32),
        ]
        .into_iter()
        .find_map(|(ending, format)| name.ends_with(ending).then_some(format))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Format::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(format, _)| *format).ok_or_else(|| {
            format!("{text}: no such format: use {}", Format::ALL.map(|(_, name)| name).join(", "))
        })
    }
}

/// A log in memory.
#[derive(Debug, Default)]
pub struct Log {
    requests: Vec<Request>,
    keys: Vec<KeyInfo>,
}

impl Log {
    /// Of requests that somebody made up; `None` if one has a key without an entry in `keys`.
    pub fn new(requests: Vec<Request>, keys: Vec<KeyInfo>) -> Option<Self> {
        let all = keys.len() < Key::MAX as usize
            && requests.iter().all(|request| (request.key as usize) < keys.len());
        all.then_some(Log { requests, keys })
    }

    /// In order.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// By number.
    pub fn keys(&self) -> &[KeyInfo] {
        &self.keys
    }
}

/// Reads at most `limit` requests of a file.
///
/// # Errors
/// See [`LogError`]; each is one line that begins with the file's name. What lies behind the limit is not looked at.
pub fn load(path: &Path, format: Option<Format>, limit: usize) -> Result<Log, LogError> {
    let name = path.display().to_string();
    let Some(format) = format.or_else(|| Format::of_name(path)) else {
        return Err(LogError::Format { file: name });
    };
    read(tidemill_archive::open(path)?, &name, format, limit)
}

/// The same from a reader; `name` is what errors call it.
///
/// # Errors
/// As [`load`]'s.
pub fn read(reader: impl BufRead, name: &str, format: Format, limit: usize) -> Result<Log, LogError> {
    read_within(reader, name, format, limit, REQUESTS_MAX)
}

/// The same; a log with more than `most` is refused, unless the limit is below.
fn read_within(
    reader: impl BufRead,
    name: &str,
    format: Format,
    limit: usize,
    most: usize,
) -> Result<Log, LogError> {
    // With one more it is known that there are more.
    let limit = limit.min(most + 1);
    let log = match format {
        Format::OracleGeneral => general::read(reader, name, limit)?,
        Format::Csv => csv::read(reader, name, limit)?,
        Format::Int32 => int32::read(reader, name, limit)?,
    };
    if log.requests.is_empty() {
        return Err(LogError::Empty { file: name.into() });
    }
    if log.requests.len() > most {
        return Err(LogError::TooLong { file: name.into(), most });
    }
    Ok(log)
}

/// What readers put together.
struct Builder<'a> {
    file: &'a str,
    requests: Vec<Request>,
    keys: Keys,
    limit: usize,
}

impl<'a> Builder<'a> {
    fn new(file: &'a str, limit: usize) -> Self {
        Builder { file, requests: Vec::new(), keys: Keys::default(), limit }
    }

    fn is_full(&self) -> bool {
        self.requests.len() >= self.limit
    }

    fn push(&mut self, op: Op, key: Key, value_bytes: u32) {
        self.requests.push(Request::new(op, key, value_bytes));
    }

    fn finish(self) -> Log {
        Log { requests: self.requests, keys: self.keys.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let of = |text: &[u8], format, limit| {
            let read = read_within(text, "f", format, limit, 2);
            read.map(|log| log.requests.len()).map_err(|error| error.to_string())
        };
        let (three, long) = ([0_u8; 12], "f: more than 2 requests: give a limit".to_owned());
        assert_eq!(of(&three[..8], Format::Int32, usize::MAX), Ok(2));
        assert_eq!(of(&three, Format::Int32, usize::MAX), Err(long.clone()));
        assert_eq!(of(&three, Format::Int32, 3), Err(long));
        assert_eq!(of(&three, Format::Int32, 2), Ok(2));
        // A line without an end is not read on.
        let mut endless = std::io::BufReader::new(std::io::repeat(b'1'));
        let error = read(&mut endless, "f", Format::Csv, 1).unwrap_err().to_string();
        assert_eq!(error, "f:1: longer than 4096 bytes: not a line of a request log");
    }
}
