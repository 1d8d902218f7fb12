//! What can be wrong with a request log, and where.

use std::io;

/// Why a log was not read. Every message is one line and begins with the file.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system or a decompressor failed; the message names the file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A record of a binary file is wrong.
    #[error("{file}: record {record} at byte {offset}: {fault}")]
    Record {
        /// The file's name.
        file: String,
        /// Record number, from 1.
        record: u64,
        /// Offset of the record in the uncompressed file.
        offset: u64,
        /// What is wrong there.
        fault: Fault,
    },
    /// A line of a text file is wrong.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// The file's name.
        file: String,
        /// Line number, from 1.
        line: u64,
        /// What is wrong there.
        fault: Fault,
    },
    /// The format cannot be told by the file's name.
    #[error("{file}: the name does not tell the format: say oraclegeneral, csv or int32")]
    Format {
        /// The file's name.
        file: String,
    },
    /// More requests than are kept.
    #[error("{file}: more than {most} requests: give a limit")]
    TooLong {
        /// The file's name.
        file: String,
        /// So many.
        most: usize,
    },
    /// There are no requests.
    #[error("{file}: no requests: give a request log")]
    Empty {
        /// The file's name.
        file: String,
    },
}

/// What is wrong with a record or a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends within a record.
    #[error("{got} bytes are left of a record of {wanted}: the file is cut short, or of another format")]
    Short {
        /// Bytes that are there.
        got: usize,
        /// Bytes of a record.
        wanted: usize,
    },
    /// The next request of the key lies before this one.
    #[error("the key's next request is number {0}, which is not behind this one: not oracleGeneral")]
    Next(i64),
    /// A size that memcached has not.
    #[error("{0} bytes for a key or a value: the largest is 1073741823; is the format another one?")]
    Large(u64),
    /// More different keys than can be numbered.
    #[error("more than 4294967294 keys: give a limit")]
    Keys,
    /// A line is too long.
    #[error("longer than {0} bytes: not a line of a request log")]
    Long(usize),
    /// A wrong number of fields.
    #[error("{0} fields: there have to be 7 (timestamp, key, key size, value size, client, operation, TTL)")]
    Fields(usize),
    /// A field that is no number.
    #[error("the {0} is not a number: give a whole one from 0")]
    Number(&'static str),
    /// An empty key.
    #[error("the key is empty: give one")]
    NoKey,
    /// An operation that memcached has not.
    #[error(
        "operation \"{0}\": use get, gets, set, add, replace, cas, append, prepend, incr, decr or delete"
    )]
    Operation(String),
}
