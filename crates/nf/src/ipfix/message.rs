//! IPFIX messages (RFC 7011, section 3): header, templates, records. Every number is big-endian.
//!
//! ```text
//! message | 10 | length | export time | sequence | domain |  sets ...
//! set     | id | length | templates, or records of template `id` |
//! ```

use crate::ipfix::record::Record;
use std::net::IpAddr;

/// The version of the protocol, which every message begins with.
pub const VERSION: u16 = 10;
/// Bytes of a message's header.
pub const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const TEMPLATES: u16 = 2;
const OPTIONS_TEMPLATES: u16 = 3;
/// The template of IPv4 flows.
pub const FLOWS4: u16 = 256;
/// The template of IPv6 flows.
pub const FLOWS6: u16 = 257;
/// The options template of what was exported, and what was left out.
pub const STATISTICS: u16 = 258;

/// An information element by its number in IANA's registry, with the bytes that it has here.
type Field = (u16, u16);

mod element {
    use super::Field;
    pub(super) const OCTETS: Field = (1, 8);
    pub(super) const PACKETS: Field = (2, 8);
    pub(super) const PROTOCOL: Field = (4, 1);
    pub(super) const CLASS_OF_SERVICE: Field = (5, 1);
    pub(super) const TCP_CONTROL_BITS: Field = (6, 2);
    pub(super) const SOURCE_PORT: Field = (7, 2);
    pub(super) const SOURCE_V4: Field = (8, 4);
    pub(super) const INGRESS_INTERFACE: Field = (10, 4);
    pub(super) const DESTINATION_PORT: Field = (11, 2);
    pub(super) const DESTINATION_V4: Field = (12, 4);
    pub(super) const SOURCE_V6: Field = (27, 16);
    pub(super) const DESTINATION_V6: Field = (28, 16);
    pub(super) const ICMP_TYPE_CODE_V4: Field = (32, 2);
    pub(super) const EXPORTED_OCTETS: Field = (40, 8);
    pub(super) const EXPORTED_MESSAGES: Field = (41, 8);
    pub(super) const EXPORTED_FLOW_RECORDS: Field = (42, 8);
    pub(super) const FLOW_END_REASON: Field = (136, 1);
    pub(super) const ICMP_TYPE_CODE_V6: Field = (139, 2);
    pub(super) const OBSERVATION_DOMAIN: Field = (149, 4);
    pub(super) const FLOW_START_MS: Field = (152, 8);
    pub(super) const FLOW_END_MS: Field = (153, 8);
    pub(super) const IGNORED_PACKETS: Field = (164, 8);
    pub(super) const IGNORED_OCTETS: Field = (165, 8);
    pub(super) const NOT_SENT_FLOWS: Field = (166, 8);
    pub(super) const NOT_SENT_PACKETS: Field = (167, 8);
    pub(super) const NOT_SENT_OCTETS: Field = (168, 8);
}

/// Fields of a flow's record, in the order in which [`put_record`] writes them.
const fn flow(source: Field, destination: Field, icmp: Field) -> [Field; 14] {
    [
        source,
        destination,
        element::SOURCE_PORT,
        element::DESTINATION_PORT,
        icmp,
        element::PROTOCOL,
        element::CLASS_OF_SERVICE,
        element::TCP_CONTROL_BITS,
        element::INGRESS_INTERFACE,
        element::PACKETS,
        element::OCTETS,
        element::FLOW_START_MS,
        element::FLOW_END_MS,
        element::FLOW_END_REASON,
    ]
}

const FIELDS4: [Field; 14] = flow(element::SOURCE_V4, element::DESTINATION_V4, element::ICMP_TYPE_CODE_V4);
const FIELDS6: [Field; 14] = flow(element::SOURCE_V6, element::DESTINATION_V6, element::ICMP_TYPE_CODE_V6);
/// The first is the scope: what the others are about.
const FIELDS_OF_STATISTICS: [Field; 9] = [
    element::OBSERVATION_DOMAIN,
    element::EXPORTED_MESSAGES,
    element::EXPORTED_FLOW_RECORDS,
    element::EXPORTED_OCTETS,
    element::IGNORED_PACKETS,
    element::IGNORED_OCTETS,
    element::NOT_SENT_FLOWS,
    element::NOT_SENT_PACKETS,
    element::NOT_SENT_OCTETS,
];

const fn bytes_of(fields: &[Field]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < fields.len() {
        sum += fields[at].1 as usize;
        at += 1;
    }
    sum
}

/// Bytes of an IPv4 flow's record.
pub const RECORD4: usize = bytes_of(&FIELDS4);
/// Bytes of an IPv6 flow's record.
pub const RECORD6: usize = bytes_of(&FIELDS6);

/// What was exported since the start, and what was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages that were sent.
    pub messages: u64,
    /// Records of flows in them.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were not metered.
    pub ignored_packets: u64,
    /// Their bytes.
    pub ignored_bytes: u64,
    /// Records that could not be sent.
    pub unsent: u64,
    /// Packets in them.
    pub unsent_packets: u64,
    /// Bytes in them.
    pub unsent_bytes: u64,
}

/// A message that is being put together: never longer than `most` bytes.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
    most: usize,
    /// Where the set begins that is being written, and of which template it is.
    set: Option<(usize, u16)>,
    records: u32,
}

impl Message {
    /// An empty one.
    pub fn new(most: usize) -> Self {
        let mut message = Message { bytes: Vec::with_capacity(most), most, set: None, records: 0 };
        message.clear();
        message
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        (self.set, self.records) = (None, 0);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER
    }

    /// Records in it, of flows and of options: what the sequence number counts.
    pub fn records(&self) -> u32 {
        self.records
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the set that is being written.
    fn close(&mut self) {
        let Some((at, _)) = self.set.take() else { return };
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at + 2..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Makes room for so many bytes in a set of this number; `false` if there is none.
    fn open(&mut self, id: u16, bytes: usize) -> bool {
        let is_open = self.set.is_some_and(|(_, open)| open == id);
        let header = if is_open { 0 } else { SET_HEADER };
        if self.bytes.len() + header + bytes > self.most {
            return false;
        }
        if !is_open {
            self.close();
            self.set = Some((self.bytes.len(), id));
            self.put(&id.to_be_bytes());
            self.put(&[0; 2]);
        }
        true
    }

    /// Adds all templates; `false` if there is no room for them.
    pub fn put_templates(&mut self) -> bool {
        let most = 2 * SET_HEADER + (4 + FIELDS4.len() * 4) * 2 + 6 + FIELDS_OF_STATISTICS.len() * 4;
        if self.bytes.len() + most > self.most {
            return false;
        }
        for (id, fields) in [(FLOWS4, FIELDS4), (FLOWS6, FIELDS6)] {
            self.open(TEMPLATES, 4 + fields.len() * 4);
            self.put(&id.to_be_bytes());
            self.put(&(fields.len() as u16).to_be_bytes());
            self.put_fields(&fields);
        }
        self.open(OPTIONS_TEMPLATES, 6 + FIELDS_OF_STATISTICS.len() * 4);
        self.put(&STATISTICS.to_be_bytes());
        self.put(&(FIELDS_OF_STATISTICS.len() as u16).to_be_bytes());
        self.put(&1_u16.to_be_bytes());
        self.put_fields(&FIELDS_OF_STATISTICS);
        true
    }

    fn put_fields(&mut self, fields: &[Field]) {
        for (element, bytes) in fields {
            self.put(&element.to_be_bytes());
            self.put(&bytes.to_be_bytes());
        }
    }

    /// Adds a flow's record; `false` if there is no room for it.
    pub fn put_record(&mut self, record: &Record) -> bool {
        let (id, bytes) = if record.source.is_ipv6() { (FLOWS6, RECORD6) } else { (FLOWS4, RECORD4) };
        if !self.open(id, bytes) {
            return false;
        }
        for address in [record.source, record.destination] {
            match address {
                IpAddr::V4(v4) => self.put(&v4.octets()),
                IpAddr::V6(v6) => self.put(&v6.octets()),
            }
        }
        for two in [record.ports.0, record.ports.1, record.icmp] {
            self.put(&two.to_be_bytes());
        }
        self.put(&[record.protocol, record.class]);
        self.put(&record.flags.to_be_bytes());
        // Interfaces are counted from 1, as the kernel does.
        self.put(&(u32::from(record.port) + 1).to_be_bytes());
        for eight in [record.packets, record.bytes, record.first_ms, record.last_ms] {
            self.put(&eight.to_be_bytes());
        }
        self.put(&[record.ended as u8]);
        self.records += 1;
        true
    }

    /// Adds a record of what was exported; `false` if there is no room for it.
    pub fn put_statistics(&mut self, domain: u32, of: &Statistics) -> bool {
        if !self.open(STATISTICS, bytes_of(&FIELDS_OF_STATISTICS)) {
            return false;
        }
        self.put(&domain.to_be_bytes());
        for eight in [
            of.messages,
            of.records,
            of.bytes,
            of.ignored_packets,
            of.ignored_bytes,
            of.unsent,
            of.unsent_packets,
            of.unsent_bytes,
        ] {
            self.put(&eight.to_be_bytes());
        }
        self.records += 1;
        true
    }

    /// The message: `sequence` is the number of records in all messages before.
    pub fn finish(&mut self, export_s: u32, sequence: u32, domain: u32) -> &[u8] {
        self.close();
        let length = self.bytes.len() as u16;
        self.bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        self.bytes[2..4].copy_from_slice(&length.to_be_bytes());
        for (at, four) in [(4, export_s), (8, sequence), (12, domain)] {
            self.bytes[at..at + 4].copy_from_slice(&four.to_be_bytes());
        }
        &self.bytes
    }
}
