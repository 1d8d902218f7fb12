//! What can go wrong at a port: each error is one line that names the file or port and the place.

use std::io;
use std::path::PathBuf;

/// A port that could not be opened, read, written or closed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// A file could not be opened, written or closed; the message names it.
    #[error("{0}")]
    File(io::Error),
    /// A file could not be read on; the message names it and the place.
    #[error("{source} (after packet {packet})")]
    Read {
        /// Packets read before the fault.
        packet: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// A capture file breaks its format. Packets before the fault have been delivered.
    #[error("{}: byte {offset}, after packet {packet}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in the (decompressed) file the faulty block or record begins.
        offset: u64,
        /// Packets read before the fault.
        packet: u64,
        /// What is wrong.
        what: String,
    },
    /// A port's configuration does not make sense.
    #[error("port `{port}`: {what}")]
    Config {
        /// The port's name.
        port: String,
        /// What is wrong and what to do.
        what: String,
    },
    /// A port's device or socket failed.
    #[error("port `{port}`: {action}: {source}")]
    Device {
        /// The port's name.
        port: String,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A number as one would write it in a configuration, for messages: one of many digits by its exponent.
///
/// ```
/// use tidemill_port::number;
/// assert_eq!([0.5, -1.0, 1e12, -1e300, f64::NAN].map(number), ["0.5", "-1", "1000000000000", "-1e300", "NaN"]);
/// ```
pub fn number(value: f64) -> String {
    /// Characters of a number that is written out, at most.
    const MOST: usize = 21;
    let digits = value.to_string();
    if digits.len() > MOST { format!("{value:e}") } else { digits }
}

impl PortError {
    pub(crate) fn config(port: &str, what: impl Into<String>) -> Self {
        PortError::Config { port: port.to_owned(), what: what.into() }
    }
}
