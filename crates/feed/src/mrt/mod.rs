//! MRT files (RFC 6396, RFC 8050): framing and the fields that tables and updates need.
//!
//! This reader is our own. bgpkit-parser 0.23, which our tests compare it with, drops the rest of a RIB record that is
//! corrupt and says so only in a log message; here that is an error with its place. It reads no attribute but next
//! hop, AS path and multiprotocol reachability, allocates one buffer per file and nothing per route.

pub(crate) mod attributes;
pub(crate) mod table;
pub(crate) mod update;

use crate::error::{FeedError, RecordFault};
use crate::table::AnyPrefix;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_lpm::{Address, Prefix};

pub(crate) const HEADER_BYTES: usize = 12;

/// The largest body that is believed. The largest real ones are RIB records of some hundred peers: below 1 MiB.
const BODY_MAX_BYTES: u32 = 16 << 20;

pub(crate) const TABLE_DUMP: u16 = 12;
pub(crate) const TABLE_DUMP_V2: u16 = 13;
pub(crate) const BGP4MP: u16 = 16;
pub(crate) const BGP4MP_ET: u16 = 17;

/// Whether IANA's registry has this MRT type. Type 0, "null", is left out: nobody writes it, and a file of zeros is no
/// table.
pub(crate) fn is_type(kind: u16) -> bool {
    matches!(kind, 1..=13 | 16 | 17 | 32 | 33 | 48 | 49)
}

/// One record.
pub(crate) struct Record<'a> {
    pub(crate) seconds: u32,
    pub(crate) kind: u16,
    pub(crate) subtype: u16,
    pub(crate) body: &'a [u8],
}

/// Reads records one at a time into one buffer.
pub(crate) struct Records {
    reader: Box<dyn BufRead + Send>,
    file: String,
    body: Vec<u8>,
    /// Number of the record read last, from 1.
    number: u64,
    /// Offset of its header.
    offset: u64,
    /// Offset of the next header.
    next_offset: u64,
}

impl Records {
    pub(crate) fn new(reader: Box<dyn BufRead + Send>, file: String) -> Self {
        Records { reader, file, body: Vec::new(), number: 0, offset: 0, next_offset: 0 }
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// An error at the record read last.
    pub(crate) fn error(&self, fault: RecordFault) -> FeedError {
        FeedError::Record { file: self.file.clone(), record: self.number, offset: self.offset, fault }
    }

    /// The next record; `Ok(None)` at the end. After a framing error there is no way to find the next header: the
    /// caller must stop.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, FeedError> {
        let mut header = [0; HEADER_BYTES];
        let have = self.fill(&mut header)?;
        if have == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.offset = self.next_offset;
        if have < HEADER_BYTES {
            return Err(self.error(RecordFault::Truncated { have: have as u64, want: HEADER_BYTES as u64 }));
        }
        let [s0, s1, s2, s3, k0, k1, t0, t1, l0, l1, l2, l3] = header;
        let seconds = u32::from_be_bytes([s0, s1, s2, s3]);
        let (kind, subtype) = (u16::from_be_bytes([k0, k1]), u16::from_be_bytes([t0, t1]));
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        if !is_type(kind) {
            return Err(self.error(RecordFault::Type(kind)));
        }
        if length > BODY_MAX_BYTES {
            return Err(self.error(RecordFault::TooLong(length)));
        }
        self.body.clear();
        // read_to_end grows with the data that is there, not with the length that is claimed.
        self.reader.by_ref().take(u64::from(length)).read_to_end(&mut self.body)?;
        let have = self.body.len();
        if have < length as usize {
            let header = HEADER_BYTES as u64;
            let fault =
                RecordFault::Truncated { have: header + have as u64, want: header + u64::from(length) };
            return Err(self.error(fault));
        }
        self.next_offset += (HEADER_BYTES + have) as u64;
        Ok(Some(Record { seconds, kind, subtype, body: &self.body }))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

/// A record's body, read front to back. Every read says which field it is for.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    data: &'a [u8],
    /// Offset of `data` in the record's body.
    at: usize,
}

/// What reading a field comes to.
pub type Fault<T> = Result<T, RecordFault>;

impl<'a> Cursor<'a> {
    /// Reads `data`; places in errors count from its first byte.
    pub fn new(data: &'a [u8]) -> Self {
        Cursor { data, at: 0 }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.data.len()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The next `len` bytes, as a cursor of their own.
    pub fn part(&mut self, len: usize, field: &'static str) -> Fault<Cursor<'a>> {
        let (head, tail) =
            self.data.split_at_checked(len).ok_or(RecordFault::Short { field, at: self.at })?;
        let part = Cursor { data: head, at: self.at };
        self.data = tail;
        self.at += len;
        Ok(part)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize, field: &'static str) -> Fault<&'a [u8]> {
        self.part(len, field).map(|part| part.data)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Fault<[u8; N]> {
        let (head, tail) =
            self.data.split_first_chunk::<N>().ok_or(RecordFault::Short { field, at: self.at })?;
        self.data = tail;
        self.at += N;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Fault<u8> {
        self.array::<1>(field).map(|[b]| b)
    }

    /// Two bytes, as a number.
    pub fn u16(&mut self, field: &'static str) -> Fault<u16> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// Four bytes, as a number.
    pub fn u32(&mut self, field: &'static str) -> Fault<u32> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// An IPv4 address.
    pub fn v4(&mut self, field: &'static str) -> Fault<IpAddr> {
        self.u32(field).map(|a| Ipv4Addr::from(a).into())
    }

    /// An IPv6 address.
    pub fn v6(&mut self, field: &'static str) -> Fault<IpAddr> {
        self.array(field).map(|a| Ipv6Addr::from(u128::from_be_bytes(a)).into())
    }

    /// An AS number of 2 or 4 bytes.
    pub fn asn(&mut self, wide: bool, field: &'static str) -> Fault<u32> {
        if wide { self.u32(field) } else { self.u16(field).map(u32::from) }
    }

    /// A prefix as BGP encodes it: the length in bits, then as many bytes as it needs (RFC 4271, 4.3). Host bits
    /// are cleared and counted.
    pub fn prefix(&mut self, family: Family, masked: &mut u64) -> Fault<AnyPrefix> {
        Ok(match family {
            Family::V4 => AnyPrefix::V4(self.prefix_of(masked)?),
            Family::V6 => AnyPrefix::V6(self.prefix_of(masked)?),
        })
    }

    fn prefix_of<A: Address>(&mut self, masked: &mut u64) -> Fault<Prefix<A>> {
        let len = self.u8("a prefix length")?;
        if len > A::BITS {
            return Err(RecordFault::PrefixLength { len, family: A::FAMILY });
        }
        let mut value = 0u128;
        for &byte in self.bytes(usize::from(len).div_ceil(8), "a prefix")? {
            value = value << 8 | u128::from(byte);
        }
        let missing_bits = u32::from(A::BITS) - u32::from(len.div_ceil(8)) * 8;
        let addr = A::from_u128(value.checked_shl(missing_bits).unwrap_or(0));
        canonical(addr, len, masked)
    }
}

/// A prefix with its host bits cleared, which is counted.
pub(crate) fn canonical<A: Address>(addr: A, len: u8, masked: &mut u64) -> Fault<Prefix<A>> {
    let prefix = Prefix::new(addr, len).ok_or(RecordFault::PrefixLength { len, family: A::FAMILY })?;
    *masked += u64::from(prefix.first() != addr);
    Ok(prefix)
}

/// The address families that we route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(crate) fn of_afi(afi: u16) -> Fault<Self> {
        match afi {
            1 => Ok(Family::V4),
            2 => Ok(Family::V6),
            other => Err(RecordFault::Family(other)),
        }
    }
}
