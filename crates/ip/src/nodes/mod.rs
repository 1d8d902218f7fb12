//! The nodes, one file each; the header comment of a file is the node's manual page.

pub mod arp_input;
pub mod icmp4_error;
pub mod icmp6_error;
pub mod ip_neighbor;
pub mod local;
pub mod nd_input;
pub mod path_queue;
pub mod tcp_coalesce;
pub mod tcp_segment;

use crate::icmp::Cause;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::Verdict;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_wire::ethernet;

/// How many packets ahead of the one in work a header is asked into the cache. Frames lie 2 KiB apart, so they share few
/// sets of a first-level cache, and a larger number would have them evict each other before their turn.
pub const AHEAD: usize = 8;

/// Gives each packet its verdict, with the headers of the next ones on their way into the cache.
#[inline(always)]
pub fn each(burst: &mut [Packet], verdicts: &mut [Verdict], mut step: impl FnMut(&mut Packet) -> Verdict) {
    for i in 0..burst.len().min(verdicts.len()) {
        if let Some(next) = burst.get(i + AHEAD) {
            prefetch_read(next.data_ptr());
        }
        verdicts[i] = step(&mut burst[i]);
    }
}

/// Why a packet that ends too early is dropped: its capture was cut short, or it is itself wrong.
#[cold]
pub fn short(packet: &Packet, reason: DropReason) -> Verdict {
    let cut = packet.wire_len() as usize > packet.len();
    Verdict::Drop(if cut { DropReason::CaptureTruncated } else { reason })
}

/// Makes the link-layer header the plain 14 bytes in front of the network header (VLAN tags go), ready to be written.
#[inline(always)]
pub fn untag(packet: &mut Packet) {
    let tags = usize::from(packet.l3).saturating_sub(ethernet::HEADER_LEN);
    if tags > 0 && packet.cut_front(tags) {
        packet.l3 = ethernet::HEADER_LEN as u8;
    }
}

/// Hands a packet to the error node, or drops it if it is one of our own.
#[cold]
pub fn error(packet: &mut Packet, reason: DropReason, mtu: u16, output: u8) -> Verdict {
    if packet.is_own() {
        return Verdict::Drop(reason);
    }
    Cause::mark(packet, reason, mtu);
    Verdict::Next(output)
}
