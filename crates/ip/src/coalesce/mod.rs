//! Coalescing: TCP segments of one flow that follow each other in a burst become one long packet, and later segments again.
//!
//! Whoever does something expensive to every packet (a lookup in a policy, a rule set, a key-value cache) does it once for
//! the long packet. Fu 2020, 5.2.2, hopes so for Gatekeeper and measures nothing; what it gains and costs here is in the
//! README of `crates/router`. The idea is Linux's GRO, the rules below are ours, and stricter: what is cut again must be,
//! byte for byte, what came.
//!
//! ```text
//! burst  | A1 | B1 | A2 | A3 | B2' | A4 |     A1..A4 and B1 continue each other, B2' repeats B1
//!          |    |    away  away  |   away
//!        | A1..A4  | B1 |       | B2' |       the long packet takes the place of its first segment
//! ```
//!
//! A segment goes into the packet before it of its flow if
//! * it is plain: no IPv4 options, no IPv6 extension headers, no fragment, in no tunnel, with a TTL above 1 (what the next
//!   step drops, it drops one by one), ACK and none of SYN, RST, URG, some payload, and right checksums;
//! * everything in front of the payload is the same - addresses, VLAN tags, DSCP and ECN, TTL, flow label, ports,
//!   acknowledgement, window, options with their timestamps - but lengths, checksums, and what follows from its place: the
//!   sequence number continues; IPv4's identification counts up, or, with "don't fragment", is the same for all;
//! * the segments before it are all of one size and it is no longer; a shorter one is the last;
//! * the one before it has neither PSH nor FIN (so these stay with the last), and it has no CWR (which stays with the first);
//! * the first one's frame has the room, and there are no more than [`MAX_SEGMENTS`].
//!
//! Nothing overtakes a packet of its flow: any other segment of a flow ends what was open, and begins anew if it may; what
//! cannot be told to a flow (a fragment, an extension header) ends everything. Nothing waits: the burst's end ends all. A
//! longer wait would merge more when there is little to do, which is when it is worth least, and cost the wait.
//!
//! What is merged is told from the packets alone, so it is the same every time; how much is depends on how full bursts are.
//!
//! The long packet is a right packet, with lengths and checksums of its own, so anybody may read it. It carries
//! [`Merged`], the size of its segments; whatever looks at a link's MTU asks [`fits`], and
//! [`tcp-segment`](crate::nodes::tcp_segment) cuts it where it leaves.
//!
//! Costs: what is merged is read twice (checksum) and copied twice; what is not pays for its headers and a look into a table of
//! 8 KiB. No allocation after start.

mod header;

use header::{Header, Read};
use tidemill_burst::{BURST, Merged, Packet};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_wire::checksum;
use tidemill_wire::tcp::{self, Flags};

/// The most segments of one long packet.
pub const MAX_SEGMENTS: usize = 64;

/// Where flows are found; two that share a slot end each other. Four times a burst's packets.
const SLOTS: usize = 1024;
/// As in [`each`](crate::nodes::each).
const AHEAD: usize = crate::nodes::AHEAD;

const LAST: u8 = (Flags::FIN.bits() | Flags::PSH.bits()) as u8;
const CWR: u8 = Flags::CWR.bits() as u8;

/// Merges segments within bursts of packets whose IP headers have been checked, and whose padding is cut off. One per
/// worker and address family.
pub struct Coalescer {
    /// By flow: the number of the burst (or of the part of it since something ended all), and which long packet.
    slots: Box<[u64; SLOTS]>,
    round: u64,
    /// Of this burst.
    merges: Vec<Merge>,
}

/// A packet that others may go into.
struct Merge {
    /// Its place in the burst.
    at: usize,
    header: Header,
    /// Segments in it.
    count: usize,
    /// Sequence number of the next.
    next_seq: u32,
    /// Sum of the payload so far.
    sum: u16,
    /// PSH and FIN of the last.
    last: u8,
    /// All have the same identification.
    fixed_ident: bool,
    /// Its own checksum is not right, or the last one is in.
    closed: bool,
}

impl Default for Coalescer {
    fn default() -> Self {
        Coalescer { slots: Box::new([0; SLOTS]), round: 0, merges: Vec::with_capacity(BURST) }
    }
}

impl Coalescer {
    /// Merges what can be merged in `burst` (at most [`BURST`] packets); `away` is told the places of packets that are now
    /// in another, and to be freed.
    pub fn merge(&mut self, burst: &mut [Packet], mut away: impl FnMut(usize)) {
        self.merges.clear();
        self.round += 1;
        for at in 0..burst.len().min(BURST) {
            if let Some(next) = burst.get(at + AHEAD) {
                prefetch_read(next.data_ptr());
            }
            match header::read(&burst[at]) {
                Read::Foreign => {}
                Read::Opaque => self.round += 1,
                Read::OfFlow(slot) => self.slots[slot % SLOTS] = 0,
                Read::Segment(slot, header) => {
                    let slot = slot % SLOTS;
                    let named = self.slots[slot];
                    let open = (named >> 8 == self.round).then(|| self.merges.get_mut(named as usize & 0xff));
                    if let Some(merge) = open.flatten()
                        && let (front, [packet, ..]) = burst.split_at_mut(at)
                        && merge.append(&mut front[merge.at], packet, &header)
                    {
                        away(at);
                        continue;
                    }
                    // There are no more of them than packets in a burst, so the number fits a byte.
                    self.slots[slot] = self.round << 8 | self.merges.len() as u64;
                    self.merges.push(Merge::new(at, header));
                }
            }
        }
        for merge in self.merges.iter().filter(|merge| merge.count > 1) {
            merge.finish(&mut burst[merge.at]);
        }
    }
}

impl Merge {
    fn new(at: usize, header: Header) -> Self {
        Merge {
            at,
            count: 1,
            next_seq: header.seq.wrapping_add(header.payload_len() as u32),
            sum: 0,
            last: 0,
            fixed_ident: false,
            closed: header.flags & LAST != 0,
            header,
        }
    }

    /// Puts the payload of `packet`, whose header is `next`, behind `first`, if it belongs there.
    #[inline]
    fn append(&mut self, first: &mut Packet, packet: &Packet, next: &Header) -> bool {
        let size = self.header.payload_len();
        let len = next.payload_len();
        let total = self.header.end + (self.count - 1) * size + len - usize::from(first.l3);
        let fits = len <= size
            && next.seq == self.next_seq
            && self.count < MAX_SEGMENTS
            && len <= first.tailroom()
            && total <= usize::from(u16::MAX);
        if self.closed || !fits || next.flags & CWR != 0 || !self.header.same_flow(first, packet, next) {
            return false;
        }
        let step = next.ident.wrapping_sub(self.header.ident);
        let fixed = step == 0 && self.header.may_repeat_ident;
        let consecutive = usize::from(step) == self.count;
        if !(next.v6 || fixed && (self.count == 1 || self.fixed_ident) || consecutive && !self.fixed_ident) {
            return false;
        }
        if self.count == 1 {
            match self.header.payload_sum(first.data()) {
                Some(sum) => self.sum = sum,
                None => {
                    self.closed = true;
                    return false;
                }
            }
        }
        let Some(sum) = next.payload_sum(packet.data()) else { return false };
        let odd = (self.count * size) % 2 == 1;
        self.sum = checksum::add(self.sum, if odd { sum.swap_bytes() } else { sum });
        let end = first.len();
        first.set_len(end + len);
        first.data_mut()[end..].copy_from_slice(&packet.data()[next.data..next.end]);
        self.fixed_ident = fixed && !next.v6;
        self.count += 1;
        self.next_seq = self.next_seq.wrapping_add(len as u32);
        self.last = next.flags & LAST;
        self.closed = self.last != 0 || len < size;
        true
    }

    /// Gives the long packet its lengths and checksums.
    fn finish(&self, first: &mut Packet) {
        let size = self.header.payload_len() as u16;
        first.set_merged(Merged { size, fixed_ident: self.fixed_ident });
        self.header.finish(first.data_mut(), self.last, self.sum);
    }
}

/// Whether every segment of `packet` fits a link with this MTU. False if it is none that was merged.
pub fn fits(packet: &Packet, mtu: u16) -> bool {
    let segment = |merged: Merged| Some(headers(packet)? + usize::from(merged.size));
    packet.merged().and_then(segment).is_some_and(|len| len <= usize::from(mtu))
}

/// Bytes of IP and TCP header of a plain TCP packet.
fn headers(packet: &Packet) -> Option<usize> {
    let ip = packet.data().get(usize::from(packet.l3)..)?;
    let ip_len = header::ip_header_len(ip);
    Some(ip_len + tcp::Packet::new_checked(ip.get(ip_len..)?).ok()?.header_len())
}

#[cfg(test)]
mod tests;
