//! The nodes, one file each; the header comment of a file is the node's manual page.

pub mod ethernet_input;
pub mod ip4_forward;
pub mod ip4_fragment;
pub mod ip4_input;
pub mod ip6_forward;
pub mod ip6_input;
pub mod lookup;

use tidemill_burst::{DropReason, Packet};
use tidemill_graph::Verdict;
use tidemill_ip::{Adjacency, Kind};
use tidemill_wire::ethernet;

/// Gives a packet, whose plain Ethernet header is 14 bytes long, the header of its next hop, which may be longer by a
/// VLAN tag. False if there is no room for it.
#[inline(always)]
fn write_header(packet: &mut Packet, hop: &Adjacency) -> bool {
    match (hop.plain_header(), packet.data_mut().first_chunk_mut::<{ ethernet::HEADER_LEN }>()) {
        (Some(header), Some(link)) => {
            *link = *header;
            true
        }
        _ => write_tagged(packet, hop.header()),
    }
}

#[cold]
fn write_tagged(packet: &mut Packet, header: &[u8]) -> bool {
    let more = header.len().saturating_sub(usize::from(packet.l3));
    if !packet.grow_front(more) {
        return false;
    }
    packet.l3 = header.len() as u8;
    match packet.data_mut().get_mut(..header.len()) {
        Some(link) => {
            link.copy_from_slice(header);
            true
        }
        None => false,
    }
}

/// Where a packet goes whose next hop has been replaced since its lookup: to be looked up again, if there is anything
/// new to be found.
#[cold]
fn replaced(hop: &Adjacency, lookup: u8) -> Verdict {
    match hop.kind {
        Kind::Unknown | Kind::Group => Verdict::Drop(DropReason::NextHopUnknown),
        _ => Verdict::Next(lookup),
    }
}
