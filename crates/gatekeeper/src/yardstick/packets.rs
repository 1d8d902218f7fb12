//! Packets in an array, as DPDK's mbufs: what is known of one in its first line, then its bytes, with room in front.
//!
//! ```text
//! 64 bytes   hash from the NIC, where the frame begins, its length, Grantor, DSCP, neighbours in the solicitor's list
//! 192        | room for an outer header | frame ...
//! ```

use super::solicitor::Node;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use tidemill_flow::hash::mix;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_wire::{EtherType, Protocol, ipv4};

/// Where received frames begin.
const FRONT: usize = 64;
/// Bytes for a frame and what is put in front of it.
const ROOM: usize = 192;
/// An Ethernet header, and what a VLAN tag adds.
const ETHERNET: usize = 14;
const TAG: usize = 4;
/// Ethernet and the outer IPv4 header.
const OUTER: usize = ETHERNET + ipv4::HEADER_LEN;

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bytes([u8; ROOM]);

/// One packet.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Packet {
    pub(super) rss: u32,
    start: u16,
    len: u16,
    /// The Grantor's number, until the packet is encapsulated.
    pub(super) grantor: u16,
    /// The outer header's, which is the priority in the solicitor's list too.
    pub(super) dscp: u8,
    /// In the solicitor's list, if that goes through packets.
    pub(super) node: Node,
    bytes: Bytes,
}

/// What a gate reads of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) source: u32,
    pub(super) destination: u32,
}

impl Packet {
    /// The frame.
    #[inline(always)]
    pub(super) fn frame(&self) -> &[u8] {
        &self.bytes.0[usize::from(self.start)..][..usize::from(self.len)]
    }

    /// Asks for what a gate reads.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        prefetch_read(self);
        prefetch_read(&raw const self.bytes.0[FRONT]);
    }

    /// The addresses, if this is a whole IPv4 packet.
    #[inline(always)]
    pub(super) fn addresses(&self) -> Option<Addresses> {
        let (ip, _) = ip(self.frame())?;
        Some(Addresses { source: ipv4::src_u32(ip), destination: ipv4::dst_u32(ip) })
    }

    /// Takes the link's header off, if the packet is IPv4, and puts that of an outer packet in front.
    #[inline(always)]
    pub(super) fn encapsulate(&mut self, outer: &Outer, dscp: u8) {
        let Some((ip, link)) = ip(self.frame()) else { return };
        let (inner, ecn) = (ipv4::total_len(ip), ip[1] & 3);
        let start = usize::from(self.start) + link - OUTER;
        let header = &mut self.bytes.0[start..][..OUTER];
        header.copy_from_slice(&outer.0);
        let header = &mut header[ETHERNET..];
        let total = ipv4::HEADER_LEN as u16 + inner;
        header[1] = dscp << 2 | ecn;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        ipv4::fill_checksum(header);
        (self.start, self.len) = (start as u16, ETHERNET as u16 + total);
    }
}

/// The IPv4 packet in a frame, and where it begins.
#[inline(always)]
fn ip(frame: &[u8]) -> Option<(&[u8], usize)> {
    let ethertype =
        |at: usize| frame.get(at..at + 2).map(|bytes| EtherType(u16::from_be_bytes([bytes[0], bytes[1]])));
    let mut link = ETHERNET;
    if ethertype(12)? == EtherType::VLAN {
        link += TAG;
    }
    if ethertype(link - 2)? != EtherType::IPV4 {
        return None;
    }
    let ip = &frame[link..];
    ipv4::check(ip).ok()?;
    Some((ip, link))
}

/// The headers of packets to a Grantor, without length, DSCP and checksum.
#[derive(Debug, Clone)]
pub(super) struct Outer([u8; OUTER]);

impl Outer {
    /// To this Grantor; link addresses and source are anything.
    pub(super) fn new(grantor: Ipv4Addr) -> Self {
        let mut bytes = [0; OUTER];
        bytes[..ETHERNET].copy_from_slice(&[2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 0x08, 0x00]);
        let ip = &mut bytes[ETHERNET..];
        ip[0] = 0x45;
        // Do not fragment.
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = Protocol::IPV4.0;
        ip[12..16].copy_from_slice(&[198, 51, 100, 1]);
        ip[16..].copy_from_slice(&grantor.octets());
        Outer(bytes)
    }
}

/// Stands for what a NIC computes of a packet's two addresses.
pub fn rss(source: u32, destination: u32) -> u32 {
    mix(u64::from(source) << 32 | u64::from(destination)) as u32
}

/// A fixed number of packets: those that are free, longest free first, and those that somebody has.
#[derive(Debug)]
pub struct Packets {
    all: Vec<Packet>,
    free: VecDeque<u32>,
}

impl Packets {
    /// The longest frame.
    pub const LONGEST: usize = ROOM - FRONT;

    /// So many, all free.
    pub fn new(count: usize) -> Self {
        let packet = Packet {
            rss: 0,
            start: 0,
            len: 0,
            grantor: 0,
            dscp: 0,
            node: Node::default(),
            bytes: Bytes([0; ROOM]),
        };
        Packets { all: vec![packet; count], free: (0..count as u32).collect() }
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// A frame comes in, with the hash that the NIC has computed. `None`: it is too long, or no packet is free.
    pub fn receive(&mut self, frame: &[u8], rss: u32) -> Option<u32> {
        if frame.len() > Self::LONGEST {
            return None;
        }
        let id = self.free.pop_front()?;
        let packet = self.at(id);
        packet.bytes.0[FRONT..][..frame.len()].copy_from_slice(frame);
        (packet.start, packet.len, packet.rss) = (FRONT as u16, frame.len() as u16, rss);
        Some(id)
    }

    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> &Packet {
        &self.all[id as usize]
    }

    #[inline(always)]
    pub(super) fn at(&mut self, id: u32) -> &mut Packet {
        &mut self.all[id as usize]
    }

    /// The packet is not needed any more.
    #[inline(always)]
    pub(super) fn give_back(&mut self, id: u32) {
        // Never more than there were.
        self.free.push_back(id);
    }
}
