//! What can be wrong with a file, and where.

use crate::labels::NextHopName;
use std::io;
use tidemill_lpm::prefix::PrefixError;

/// Why a table or an update file was not read. Every message is one line and begins with the file.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The operating system or a decompressor failed; the message names the file (and, in compressed data, the
    /// uncompressed offset).
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line of a text file is wrong.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// The file's name.
        file: String,
        /// Line number, from 1.
        line: u64,
        /// What is wrong there.
        fault: LineFault,
    },
    /// A record of an MRT file is wrong.
    #[error("{file}: record {record} at byte {offset}: {fault}")]
    Record {
        /// The file's name.
        file: String,
        /// Record number, from 1.
        record: u64,
        /// Offset of the record's header in the (uncompressed) file.
        offset: u64,
        /// What is wrong there.
        fault: RecordFault,
    },
    /// The file as a whole is not what was asked for.
    #[error("{file}: {fault}")]
    File {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        fault: FileFault,
    },
}

/// What is wrong with a file as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// Neither MRT nor text.
    #[error(
        "neither an MRT file nor text (byte {offset} is {byte:#04x}): give a routing table or an update file"
    )]
    Unknown {
        /// Offset of the first byte that no text has.
        offset: usize,
        /// That byte.
        byte: u8,
    },
    /// MRT updates where a table was asked for.
    #[error("holds BGP updates (MRT BGP4MP), not a table: replay it as updates")]
    UpdatesNotTable,
    /// An MRT table where updates were asked for.
    #[error("holds a routing table (MRT {0}), not updates: load it as a table")]
    TableNotUpdates(&'static str),
    /// No route of the peer that was asked for.
    #[error("has no route of {wanted}; peers with routes: {seen}")]
    NoSuchPeer {
        /// The choice that was made.
        wanted: String,
        /// The peers there are, or some of them.
        seen: String,
    },
    /// More than there may be.
    #[error("more than {most} lines or records: give a smaller table")]
    TooLong {
        /// So many.
        most: u64,
    },
    /// The chosen column is not there.
    #[error("has no {wanted} column: its lines have {fields} fields")]
    NoColumn {
        /// The column that was asked for.
        wanted: &'static str,
        /// Fields of the first line.
        fields: usize,
    },
}

/// What is wrong with a line of text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The prefix cannot be read.
    #[error("{0}")]
    Prefix(#[from] PrefixError),
    /// A line with another number of fields than the first.
    #[error("{found} fields, but the first line has {wanted}")]
    Fields {
        /// Fields of this line.
        found: usize,
        /// Fields of the first line.
        wanted: usize,
    },
    /// A number of fields that no update form has.
    #[error(
        "{0} fields: updates are \"A|W prefix\", \"time A|W prefix nexthop\" or \"time A|W peerAS prefix nexthop\""
    )]
    UpdateFields(usize),
    /// An update's fields in another order than that of its form.
    #[error("the fields are in another order than \"{0}\"")]
    Order(&'static str),
    /// A comment that is not alone on its line.
    #[error("a comment behind other fields: give it a line of its own, which begins with #")]
    Comment,
    /// The line has more bytes than any line of a table.
    #[error("longer than {0} bytes: not a line of a table")]
    TooLong(usize),
    /// Not UTF-8, or a control character in it.
    #[error("not text (byte {0} of the line)")]
    NotText(usize),
    /// The next hop is empty, longer than any name, or has a separator in it.
    #[error("the next hop {0:?} is no name (1 to 255 bytes without white space and quotes)")]
    NextHop(String),
    /// A value that is no number, where every one has to be.
    #[error("the value {0} is no whole number: give one, or none at all")]
    Number(NextHopName),
    /// More different values than are kept.
    #[error("more than {0} different values: give a table with fewer")]
    Values(usize),
    /// Neither announce nor withdraw.
    #[error("{0:?} is neither A (announce) nor W (withdraw)")]
    Op(String),
    /// No time.
    #[error("{0:?} is no time in seconds since 1970")]
    Time(String),
    /// No AS number.
    #[error("{0:?} is no AS number")]
    Asn(String),
    /// A header line that names no prefix column, or none twice.
    #[error("the header names no \"prefix\" column")]
    Header,
}

impl LineFault {
    /// The same; or that a comment is what is wrong with `line`, if the fault may come from one.
    pub(crate) fn or_comment(self, line: &str) -> Self {
        let marked = [" #", "\t#"].iter().any(|mark| line.contains(mark));
        let counted = matches!(self, LineFault::Fields { .. } | LineFault::UpdateFields(_));
        if marked && (counted || self.to_string().contains('#')) { LineFault::Comment } else { self }
    }
}

/// What is wrong with an MRT record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The file ends inside the record.
    #[error("the file ends {have} bytes into a record of {want}")]
    Truncated {
        /// Bytes that are there, header included.
        have: u64,
        /// Bytes that the header announces, itself included.
        want: u64,
    },
    /// A length that no record has.
    #[error("a length of {0} bytes: the header is corrupt")]
    TooLong(u32),
    /// A type that RFC 6396 and IANA do not know.
    #[error("{0} is no MRT type: the header is corrupt")]
    Type(u16),
    /// A field reaches beyond what holds it.
    #[error("{field} at byte {at} of the body reaches beyond its end")]
    Short {
        /// The field.
        field: &'static str,
        /// Offset in the record's body.
        at: usize,
    },
    /// Bytes behind the last field.
    #[error("{0} bytes behind the last field")]
    Trailing(usize),
    /// A prefix length beyond the family's width.
    #[error("a prefix length of {len} in an IPv{family} prefix")]
    PrefixLength {
        /// The length.
        len: u8,
        /// 4 or 6.
        family: u8,
    },
    /// A route that refers to no peer.
    #[error("peer index {index}, but the peer table has {peers}")]
    Peer {
        /// The index.
        index: u16,
        /// Peers in the table; 0 if there was none.
        peers: usize,
    },
    /// An address family that is neither IPv4 nor IPv6.
    #[error("address family {0} is neither IPv4 (1) nor IPv6 (2)")]
    Family(u16),
    /// A next hop of a length that its family does not have.
    #[error("a next hop of {0} bytes")]
    NextHopLength(usize),
    /// An announcement without a next hop (RFC 4271, 6.3: a missing well-known attribute).
    #[error("the announcement of {0} has no next hop")]
    NoNextHop(String),
    /// An AS path segment of a type that RFC 4271 and RFC 5065 do not know.
    #[error("{0} is no AS path segment type")]
    Segment(u8),
    /// A BGP message without the marker of RFC 4271, 4.1.
    #[error("the BGP message does not begin with its marker")]
    Marker,
    /// A BGP message length that does not fit the record.
    #[error("a BGP message length of {len}, but the record has {have}")]
    MessageLength {
        /// The length that the message states.
        len: u16,
        /// Bytes that there are.
        have: usize,
    },
}
