//! The capture reader: pcap (microseconds and nanoseconds, both byte orders, the modified header of old Red Hats) and
//! pcapng (several sections and interfaces, `if_tsresol`, `if_tsoffset`; enhanced, simple and obsolete packet blocks).
//!
//! Strict: the first thing that breaks the format ends the capture with an error; what came before was delivered.

use super::link::{Conversion, LinkType};
use crate::PortError;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

/// The longest packet that is believed, as in libpcap; more is a corrupt length, not a packet.
const MAX_PACKET: u32 = 262_144;
/// The longest block of a kind that has to be read whole (a packet block with its options).
const MAX_BLOCK: u32 = 16 << 20;

/// Interfaces of a section that are believed; a small file may unpack to any number.
const MAX_INTERFACES: usize = 1 << 16;

/// Bytes of pcap's file header.
const FILE_HEADER: usize = 24;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// One captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since the epoch; a simple packet block has no time and repeats the packet's before it.
    pub timestamp_ns: u64,
    /// What `data` begins with.
    pub link: LinkType,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length on the wire. At least `data.len()`: more if the capture was cut to a snap length.
    pub wire_len: u32,
}

impl Record<'_> {
    /// The packet as an Ethernet frame: as it is, or put together in `buffer` with a header that is made up.
    pub fn frame<'b>(&'b self, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        let Conversion { skip, header } = self.link.conversion(self.data);
        let Some(header) = header else { return self.data };
        buffer.clear();
        buffer.extend(header);
        buffer.extend(self.data.get(skip..).unwrap_or_default());
        buffer
    }
}

/// Reads one capture from any buffered reader.
pub struct Reader {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    /// Bytes consumed.
    offset: u64,
    /// Where the block or record being read begins.
    at: u64,
    packets: u64,
    format: Format,
    big_endian: bool,
    /// What was read last: the body of a block, or a record.
    body: Vec<u8>,
    last_ns: u64,
    over: bool,
}

enum Format {
    Pcap { link: Result<LinkType, String>, nanoseconds: bool, swap_lengths: bool, extra: usize },
    PcapNg { interfaces: Vec<Interface> },
}

struct Interface {
    link: Result<LinkType, String>,
    snap_len: u32,
    resolution: u8,
    offset_s: i64,
}

/// Why reading stopped, before the place is added.
enum Fault {
    Io(io::Error),
    Format(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

fn broken<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Format(what.into()))
}

impl Reader {
    /// Opens a capture, plain or compressed, and reads its header.
    pub fn open(path: &Path) -> Result<Self, PortError> {
        let input = tidemill_archive::open(path).map_err(PortError::File)?;
        Self::new(path, input)
    }

    /// Reads a capture (not compressed) from `input`; `path` is for messages.
    pub fn new(path: &Path, input: Box<dyn BufRead + Send>) -> Result<Self, PortError> {
        let mut reader = Reader {
            path: path.to_owned(),
            input,
            offset: 0,
            at: 0,
            packets: 0,
            format: Format::PcapNg { interfaces: Vec::new() },
            big_endian: false,
            body: Vec::new(),
            last_ns: 0,
            over: false,
        };
        reader.header().map_err(|fault| reader.place(fault))?;
        Ok(reader)
    }

    /// The next packet, or `None` at the end. After an error the capture is at its end.
    #[allow(clippy::should_implement_trait)] // lends: the record is read over at the next call
    pub fn next(&mut self) -> Result<Option<Record<'_>>, PortError> {
        if self.over {
            return Ok(None);
        }
        let read = match self.format {
            Format::Pcap { .. } => self.next_pcap(),
            Format::PcapNg { .. } => self.next_pcapng(),
        };
        match read {
            Ok(Some(found)) => {
                self.packets += 1;
                self.last_ns = found.timestamp_ns;
                Ok(Some(Record {
                    timestamp_ns: found.timestamp_ns,
                    link: found.link,
                    data: &self.body[found.start..found.start + found.len],
                    wire_len: found.wire_len.max(found.len as u32),
                }))
            }
            Ok(None) => {
                self.over = true;
                Ok(None)
            }
            Err(fault) => {
                self.over = true;
                Err(self.place(fault))
            }
        }
    }

    /// Packets read so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    fn place(&self, fault: Fault) -> PortError {
        match fault {
            // The archive has named the file and the place in its own way.
            Fault::Io(source) => PortError::Read { packet: self.packets, source },
            Fault::Format(what) => {
                PortError::Corrupt { path: self.path.clone(), offset: self.at, packet: self.packets, what }
            }
        }
    }

    fn u16(&self, at: usize) -> u16 {
        let bytes = [self.body[at], self.body[at + 1]];
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    fn u32(&self, at: usize) -> u32 {
        let bytes = [self.body[at], self.body[at + 1], self.body[at + 2], self.body[at + 3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Reads exactly `len` bytes into `body`.
    fn fill(&mut self, len: usize, what: &str) -> Result<(), Fault> {
        let got = self.fill_some(len)?;
        if got < len { broken(format!("the file ends inside {what} ({got} of {len} bytes)")) } else { Ok(()) }
    }

    /// Reads up to `len` bytes into `body`, fewer only at the end of the file; how many.
    fn fill_some(&mut self, len: usize) -> Result<usize, Fault> {
        self.body.clear();
        // The common case by hand: everything is in the buffer.
        let buffered = self.input.fill_buf()?;
        if buffered.len() >= len {
            self.body.extend_from_slice(&buffered[..len]);
            self.input.consume(len);
        } else {
            // `take` grows the buffer as data comes, so that a corrupt length allocates no more than the file has.
            self.input.by_ref().take(len as u64).read_to_end(&mut self.body)?;
        }
        self.offset += self.body.len() as u64;
        Ok(self.body.len())
    }

    fn skip(&mut self, mut len: u64, what: &str) -> Result<(), Fault> {
        while len > 0 {
            let have = self.input.fill_buf()?.len().min(usize::try_from(len).unwrap_or(usize::MAX));
            if have == 0 {
                return broken(format!("the file ends inside {what} ({len} bytes are missing)"));
            }
            self.input.consume(have);
            self.offset += have as u64;
            len -= have as u64;
        }
        Ok(())
    }

    fn header(&mut self) -> Result<(), Fault> {
        let start = self.fill_some(4)?;
        if start < 4 {
            return broken(format!(
                "too short for a capture file ({start} bytes; a pcap file begins with {FILE_HEADER})"
            ));
        }
        let magic = self.u32(0);
        if magic == SECTION_HEADER {
            return self.section_header();
        }
        let (big_endian, nanoseconds, extra) = match magic {
            0xA1B2_C3D4 => (false, false, 0),
            0xA1B2_3C4D => (false, true, 0),
            0xA1B2_CD34 => (false, false, 8),
            0xD4C3_B2A1 => (true, false, 0),
            0x4D3C_B2A1 => (true, true, 0),
            0x34CD_B2A1 => (true, false, 8),
            _ => {
                let found = magic.to_le_bytes();
                return broken(format!("not a pcap or pcapng file (it begins with {found:02x?})"));
            }
        };
        self.big_endian = big_endian;
        let rest = self.fill_some(FILE_HEADER - 4)?;
        if rest < FILE_HEADER - 4 {
            return broken(format!(
                "the file ends inside the file header ({} of {FILE_HEADER} bytes)",
                4 + rest
            ));
        }
        let (major, minor) = (self.u16(0), self.u16(2));
        if major != 2 || minor > 4 {
            return broken(format!("pcap version {major}.{minor} (only up to 2.4 is known)"));
        }
        // The upper bits speak of frame check sequences.
        let link = link_type(self.u32(16) & 0x03FF_FFFF);
        // Before 2.3 the two lengths stood the other way round; 2.3 was written both ways.
        self.format = Format::Pcap { link, nanoseconds, swap_lengths: minor < 3, extra };
        Ok(())
    }

    fn next_pcap(&mut self) -> Result<Option<Found>, Fault> {
        let Format::Pcap { link, nanoseconds, swap_lengths, extra } = &self.format else { return Ok(None) };
        let (link, nanoseconds, swap, extra) = (link.clone(), *nanoseconds, *swap_lengths, *extra);
        self.at = self.offset;
        match self.fill_some(16 + extra)? {
            0 => return Ok(None),
            n if n < 16 + extra => {
                return broken(format!("the file ends inside a packet header ({n} of {} bytes)", 16 + extra));
            }
            _ => {}
        }
        let (seconds, fraction) = (u64::from(self.u32(0)), u64::from(self.u32(4)));
        let (mut len, mut wire_len) = (self.u32(8), self.u32(12));
        if swap {
            (len, wire_len) = (wire_len, len);
        }
        if len > MAX_PACKET {
            return broken(format!("a packet of {len} bytes (the limit is {MAX_PACKET})"));
        }
        let link = link.map_err(Fault::Format)?;
        let timestamp_ns = seconds * 1_000_000_000 + fraction * if nanoseconds { 1 } else { 1000 };
        self.fill(len as usize, "a packet")?;
        Ok(Some(Found { timestamp_ns, link, start: 0, len: len as usize, wire_len }))
    }

    fn next_pcapng(&mut self) -> Result<Option<Found>, Fault> {
        loop {
            self.at = self.offset;
            match self.fill_some(4)? {
                0 => return Ok(None),
                4 => {}
                n => return broken(format!("the file ends inside a block header ({n} of 8 bytes)")),
            }
            let kind = self.u32(0);
            if kind == SECTION_HEADER {
                self.section_header()?;
                continue;
            }
            self.fill(4, "a block header")?;
            let len = self.u32(0);
            if len < 12 || !len.is_multiple_of(4) {
                return broken(format!("a block of {len} bytes (at least 12, a multiple of 4)"));
            }
            if !matches!(kind, INTERFACE | OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
                self.skip(u64::from(len) - 12, "a block")?;
                self.trailer(len)?;
                continue;
            }
            if len > MAX_BLOCK {
                return broken(format!("a block of {len} bytes (the limit is {MAX_BLOCK})"));
            }
            // The body and the length after it, in one go.
            self.fill(len as usize - 8, "a block")?;
            let body_len = len as usize - 12;
            if self.u32(body_len) != len {
                let again = self.u32(body_len);
                return broken(format!("a block of {len} bytes says {again} bytes at its end"));
            }
            self.body.truncate(body_len);
            if let Some(found) = self.block(kind)? {
                return Ok(Some(found));
            }
        }
    }

    fn trailer(&mut self, len: u32) -> Result<(), Fault> {
        self.fill(4, "a block")?;
        let again = self.u32(0);
        if again != len {
            return broken(format!("a block of {len} bytes says {again} bytes at its end"));
        }
        Ok(())
    }

    /// Everything of a section header after its type.
    fn section_header(&mut self) -> Result<(), Fault> {
        self.fill(8, "a section header")?;
        self.big_endian = false;
        match self.u32(4) {
            0x1A2B_3C4D => {}
            0x4D3C_2B1A => self.big_endian = true,
            other => return broken(format!("byte-order magic {other:#010x} in a section header")),
        }
        let len = self.u32(0);
        if len < 28 || !len.is_multiple_of(4) {
            return broken(format!("a section header of {len} bytes (at least 28, a multiple of 4)"));
        }
        self.fill(12, "a section header")?;
        let (major, minor) = (self.u16(0), self.u16(2));
        if major != 1 || !matches!(minor, 0 | 2) {
            return broken(format!("pcapng version {major}.{minor} (only 1.0 is known)"));
        }
        self.skip(u64::from(len) - 28, "a section header")?;
        self.trailer(len)?;
        self.format = Format::PcapNg { interfaces: Vec::new() };
        Ok(())
    }

    fn block(&mut self, kind: u32) -> Result<Option<Found>, Fault> {
        let need = |bytes: usize, what: &str| match self.body.len() < bytes {
            true => broken(format!("{what} of {} bytes (at least {})", self.body.len() + 12, bytes + 12)),
            false => Ok(()),
        };
        let (interface, units, start, len, wire_len) = match kind {
            INTERFACE => {
                need(8, "an interface description")?;
                let interface = self.interface()?;
                if let Format::PcapNg { interfaces } = &mut self.format {
                    if interfaces.len() == MAX_INTERFACES {
                        return broken(format!("more interfaces than {MAX_INTERFACES}"));
                    }
                    interfaces.push(interface);
                }
                return Ok(None);
            }
            SIMPLE_PACKET => {
                need(4, "a simple packet block")?;
                let wire_len = self.u32(0);
                let Format::PcapNg { interfaces } = &self.format else { return Ok(None) };
                let snap = interfaces.first().map_or(0, |i| i.snap_len);
                let len = if snap == 0 { wire_len } else { wire_len.min(snap) };
                (0, None, 4, len, wire_len)
            }
            _ => {
                need(20, "a packet block")?;
                let interface = if kind == ENHANCED_PACKET { self.u32(0) } else { u32::from(self.u16(0)) };
                let units = u64::from(self.u32(4)) << 32 | u64::from(self.u32(8));
                (interface, Some(units), 20, self.u32(12), self.u32(16))
            }
        };
        let Format::PcapNg { interfaces } = &self.format else { return Ok(None) };
        let Some(described) = interfaces.get(interface as usize) else {
            let known = interfaces.len();
            return broken(format!("a packet of interface {interface}, and {known} are described"));
        };
        if len > MAX_PACKET || len as usize > self.body.len() - start {
            let room = self.body.len() - start;
            return broken(format!("a packet of {len} bytes in a block with room for {room}"));
        }
        let timestamp_ns = units.map_or(self.last_ns, |units| described.nanoseconds(units));
        let link = described.link.clone().map_err(Fault::Format)?;
        Ok(Some(Found { timestamp_ns, link, start, len: len as usize, wire_len }))
    }

    fn interface(&self) -> Result<Interface, Fault> {
        let mut interface = Interface {
            link: link_type(u32::from(self.u16(0))),
            snap_len: self.u32(4),
            resolution: 6,
            offset_s: 0,
        };
        let mut at = 8;
        while at + 4 <= self.body.len() {
            let (code, len) = (self.u16(at), usize::from(self.u16(at + 2)));
            at += 4;
            if code == 0 {
                break;
            }
            let Some(value) = self.body.get(at..at + len) else {
                return broken(format!("option {code} of {len} bytes runs over the end of its block"));
            };
            match (code, value) {
                (9, [resolution]) => interface.resolution = *resolution,
                (14, _) if len == 8 => {
                    let (a, b) = (u64::from(self.u32(at)), u64::from(self.u32(at + 4)));
                    let seconds = if self.big_endian { a << 32 | b } else { b << 32 | a };
                    interface.offset_s = seconds as i64;
                }
                (9 | 14, _) => return broken(format!("option {code} of {len} bytes")),
                _ => {}
            }
            at += len.next_multiple_of(4);
        }
        Ok(interface)
    }
}

/// A packet in `Reader::body`.
struct Found {
    timestamp_ns: u64,
    link: LinkType,
    start: usize,
    len: usize,
    wire_len: u32,
}

impl Interface {
    fn nanoseconds(&self, units: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7F);
        let units = u128::from(units);
        let ns = if self.resolution & 0x80 != 0 {
            (units * 1_000_000_000) >> exponent
        } else if exponent <= 9 {
            units * 10u128.pow(9 - exponent)
        } else {
            10u128.checked_pow(exponent - 9).map_or(0, |divisor| units / divisor)
        };
        // At most 2^94 + 2^93: no overflow.
        let ns = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

fn link_type(number: u32) -> Result<LinkType, String> {
    match u16::try_from(number) {
        Ok(number) => LinkType::from_number(number),
        Err(_) => Err(format!("link type {number} is not supported")),
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({}, {} packets)", self.path.display(), self.packets)
    }
}
