//! Reassembly of fragments that are addressed to us (IPv4: RFC 791, RFC 815; IPv6: RFC 8200 4.5). Pure: packets and the
//! time go in, whole datagrams and packets that are done with come out.
//!
//! ```text
//! insert -> Datagram { pieces, sorted: | 0..1480 | 1480..2960 |  hole  | 4440..5000, the last | }  -> whole, copied out
//!             |                                                                                   -> timed out
//!             +- dead: something was wrong with it; takes no more, and is forgotten when its time is over
//! ```
//!
//! A fragment stays in its own frame until the datagram is whole, and is then copied once, into a buffer of the caller's
//! that is longer than any frame. Every packet that goes in comes out again with its [`Fate`].
//!
//! * Overlapping fragments condemn the whole datagram, those still to come included (RFC 5722; for IPv4 as well, as
//!   nothing honest sends them). A fragment that came twice, byte for byte the same, is dropped alone.
//! * So does one that disagrees about the datagram's length, and one too many.
//! * Refused alone: fragments without data; of a length that is no multiple of 8, but for the last; beyond 65,535 bytes;
//!   first ones too short for the upper layer's header (RFC 1858, RFC 7112), and IPv4 TCP at offset 8 (RFC 3128).
//! * "Atomic" fragments (RFC 6946) are whole packets and do not belong here: [`is_fragment`] says no.
//! * **Bounds**: [`Limits`]; when there are too many, the datagram that has waited longest gives way.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use tidemill_burst::Packet;
use tidemill_wire::{Protocol, ipv4, ipv6, ipv6_ext, tcp};

/// How long IPv4 fragments wait for the rest, in nanoseconds: what hosts do (RFC 791 begins at 15 s).
pub const TIMEOUT_V4_NS: u64 = 30_000_000_000;
/// How long IPv6 fragments wait for the rest, in nanoseconds (RFC 8200 4.5).
pub const TIMEOUT_V6_NS: u64 = 60_000_000_000;
/// The longest datagram in bytes, without the fixed header for IPv6.
const LONGEST: usize = 65_535;

/// How much waits at most. Each is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Datagrams of which something is missing.
    pub datagrams: usize,
    /// Fragments of one datagram.
    pub fragments: usize,
    /// Fragments of all of them: so many frames are kept.
    pub packets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { datagrams: 128, fragments: 64, packets: 512 }
    }
}

/// What becomes of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is part of the datagram that has just become whole.
    Assembled,
    /// It is wrong, or came when too many were waiting.
    Refused,
    /// The rest never came.
    TimedOut {
        /// It is the datagram's first: the sender is to be told about it (RFC 792, RFC 8200 4.5).
        first: bool,
    },
}

/// Fragments that are done with, and why.
pub type Back = Vec<(Packet, Fate)>;

/// What fragments of one datagram have in common. IPv6 has no protocol here: only the first fragment's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Id {
    vrf: u16,
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    ident: u32,
}

struct Fragment {
    id: Id,
    offset: usize,
    len: usize,
    more: bool,
    /// Where its payload starts, from the start of the packet's data.
    at: usize,
}

struct Piece {
    offset: u16,
    len: u16,
    at: u16,
    packet: Packet,
}

impl Piece {
    fn end(&self) -> usize {
        usize::from(self.offset) + usize::from(self.len)
    }

    fn bytes(&self) -> &[u8] {
        let at = usize::from(self.at);
        self.packet.data().get(at..at + usize::from(self.len)).unwrap_or_default()
    }
}

struct Datagram {
    due_ns: u64,
    serial: u64,
    pieces: Vec<Piece>,
    received: usize,
    total: Option<usize>,
    dead: bool,
}

/// What came of adding a fragment to a datagram.
enum Added {
    Waiting,
    Whole,
    /// The fragment is refused.
    No(Packet),
    /// The datagram is condemned.
    Wrong(Packet),
}

/// Fragments of one family, waiting for the rest.
pub struct Reassembler {
    timeout_ns: u64,
    limits: Limits,
    datagrams: HashMap<Id, Datagram>,
    /// Longest waiting first.
    order: BTreeMap<(u64, u64), Id>,
    packets: usize,
    serial: u64,
}

/// Whether the IP packet is a fragment, to be handed to [`Reassembler::insert`]. An IPv6 packet that is broken is not.
pub fn is_fragment(ip: &[u8]) -> bool {
    match ipv4::version(ip) {
        4 => ipv4::Packet::new_checked(ip).is_ok_and(|ip| ip.is_fragment()),
        _ => ipv6_ext::walk(ip).is_ok_and(|walk| walk.is_fragment()),
    }
}

impl Reassembler {
    /// One that waits for `timeout_ns`.
    pub fn new(timeout_ns: u64, limits: Limits) -> Self {
        Reassembler {
            timeout_ns,
            limits,
            datagrams: HashMap::new(),
            order: BTreeMap::new(),
            packets: 0,
            serial: 0,
        }
    }

    /// Another limit on the packets kept, from the next fragment on.
    pub fn set_packets(&mut self, packets: usize) {
        self.limits.packets = packets;
    }

    /// Takes a fragment. True if its datagram is whole now: `datagram` is then overwritten with it, from the IP header
    /// on, right in all lengths and the IPv4 header's checksum. What is done with is added to `back`.
    ///
    /// Datagrams of different VRFs do not mix.
    pub fn insert(
        &mut self,
        now_ns: u64,
        vrf: u16,
        packet: Packet,
        datagram: &mut Vec<u8>,
        back: &mut Back,
    ) -> bool {
        let Some(fragment) = Fragment::of(&packet, vrf).filter(Fragment::is_sound) else {
            back.push((packet, Fate::Refused));
            return false;
        };
        let id = fragment.id;
        self.make_room(id, back);
        let slot = self.datagrams.entry(id).or_insert_with(|| {
            self.serial += 1;
            let due_ns = now_ns.saturating_add(self.timeout_ns);
            self.order.insert((due_ns, self.serial), id);
            Datagram {
                due_ns,
                serial: self.serial,
                pieces: Vec::new(),
                received: 0,
                total: None,
                dead: false,
            }
        });
        // With `packets` all taken by this datagram, it cannot become whole.
        let full = slot.pieces.len() >= self.limits.fragments || self.packets >= self.limits.packets.max(1);
        match slot.add(fragment, packet, full) {
            Added::Waiting => self.packets += 1,
            Added::No(packet) => back.push((packet, Fate::Refused)),
            Added::Wrong(packet) => {
                back.push((packet, Fate::Refused));
                slot.dead = true;
                self.packets -= slot.pieces.len();
                back.extend(std::mem::take(&mut slot.pieces).into_iter().map(|p| (p.packet, Fate::Refused)));
            }
            Added::Whole => {
                self.packets += 1;
                let whole = slot.assemble(datagram).is_some();
                self.remove(id, |_| if whole { Fate::Assembled } else { Fate::Refused }, back);
                return whole;
            }
        }
        false
    }

    /// Gives up what has waited too long.
    pub fn expire(&mut self, now_ns: u64, back: &mut Back) {
        while let Some((&(due_ns, _), &id)) = self.order.first_key_value()
            && due_ns <= now_ns
        {
            self.remove(id, |piece| Fate::TimedOut { first: piece.offset == 0 }, back);
        }
    }

    /// Gives up everything, at the end of a run.
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.order.clear();
        self.packets = 0;
        self.datagrams.drain().flat_map(|(_, datagram)| datagram.pieces).map(|piece| piece.packet)
    }

    /// Fragments that wait.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Lets the longest waiting datagrams go until there is room for a fragment of `id`.
    fn make_room(&mut self, id: Id, back: &mut Back) {
        let refused = |_: &Piece| Fate::Refused;
        if !self.datagrams.contains_key(&id)
            && self.datagrams.len() >= self.limits.datagrams.max(1)
            && let Some((_, &oldest)) = self.order.first_key_value()
        {
            self.remove(oldest, refused, back);
        }
        while self.packets >= self.limits.packets.max(1) {
            let Some(oldest) = self.order.values().copied().find(|other| *other != id) else { return };
            self.remove(oldest, refused, back);
        }
    }

    fn remove(&mut self, id: Id, fate: impl Fn(&Piece) -> Fate, back: &mut Back) {
        let Some(datagram) = self.datagrams.remove(&id) else { return };
        self.order.remove(&(datagram.due_ns, datagram.serial));
        self.packets -= datagram.pieces.len();
        back.extend(datagram.pieces.into_iter().map(|piece| {
            let fate = fate(&piece);
            (piece.packet, fate)
        }));
    }
}

impl std::fmt::Debug for Reassembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reassembler({} fragments of {} datagrams)", self.packets, self.datagrams.len())
    }
}

impl Datagram {
    fn add(&mut self, fragment: Fragment, packet: Packet, full: bool) -> Added {
        let Fragment { offset, len, more, at, .. } = fragment;
        let end = offset + len;
        if self.dead {
            return Added::No(packet);
        }
        let place = self.pieces.partition_point(|piece| usize::from(piece.offset) < offset);
        if let Some(twin) = self.pieces.get(place)
            && (usize::from(twin.offset), usize::from(twin.len)) == (offset, len)
            && more == (self.total != Some(end))
            && packet.data().get(at..at + len) == Some(twin.bytes())
        {
            return Added::No(packet);
        }
        let before = place.checked_sub(1).and_then(|before| self.pieces.get(before));
        let overlaps = before.is_some_and(|before| before.end() > offset)
            || self.pieces.get(place).is_some_and(|after| usize::from(after.offset) < end);
        let total = if more { self.total } else { Some(end) };
        let last_end = self.pieces.last().map_or(0, Piece::end).max(end);
        let disagrees = total.is_some_and(|total| last_end > total) || (!more && self.total.is_some());
        if overlaps || disagrees || full {
            return Added::Wrong(packet);
        }
        // Below 65,536, all of them: `is_sound`, and a frame's size.
        self.pieces.insert(place, Piece { offset: offset as u16, len: len as u16, at: at as u16, packet });
        self.total = total;
        self.received += len;
        if self.total == Some(self.received) { Added::Whole } else { Added::Waiting }
    }

    /// Writes the whole datagram; `None` if it is longer than one can be.
    fn assemble(&self, out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        let first = self.pieces.first()?;
        let l3 = usize::from(first.packet.l3);
        let ip = first.packet.data().get(l3..)?;
        let v4 = ipv4::version(ip) == 4;
        let name = if v4 {
            out.extend_from_slice(first.packet.data().get(l3..usize::from(first.at))?);
            None
        } else {
            let header = fragment_header(ip)?;
            out.extend_from_slice(ip.get(..header.at)?);
            Some((header.name_at, header.repr.next_header))
        };
        for piece in &self.pieces {
            out.extend_from_slice(piece.bytes());
        }
        let counted = if v4 { out.len() } else { out.len() - ipv6::HEADER_LEN };
        if counted > LONGEST {
            return None;
        }
        match name {
            None => {
                let mut view = ipv4::Packet::new_unchecked(&mut out[..]);
                view.set_total_len(counted as u16);
                view.set_fragment(false, false, 0);
                view.fill_checksum();
            }
            Some((name_at, next_header)) => {
                *out.get_mut(name_at)? = next_header.0;
                ipv6::Packet::new_unchecked(&mut out[..]).set_payload_len(counted as u16);
            }
        }
        Some(())
    }
}

impl Fragment {
    fn of(packet: &Packet, vrf: u16) -> Option<Fragment> {
        let l3 = usize::from(packet.l3);
        let ip = packet.data().get(l3..)?;
        if ipv4::version(ip) == 4 {
            let view = ipv4::Packet::new_checked(ip).ok().filter(|view| view.is_fragment())?;
            let (src, dst, protocol) = (view.src().into(), view.dst().into(), view.protocol());
            let id = Id { vrf, src, dst, protocol: protocol.0, ident: view.ident().into() };
            let (offset, len) = (view.fragment_offset().into(), view.payload().len());
            let fragment =
                Fragment { id, offset, len, more: view.more_fragments(), at: l3 + view.header_len() };
            return fragment.starts_well(protocol).then_some(fragment);
        }
        let view = ipv6::Packet::new_checked(ip).ok()?;
        let header = fragment_header(ip)?;
        let ipv6_ext::FragmentRepr { offset, more, ident, .. } = header.repr;
        if offset == 0 && !more {
            return None;
        }
        let id = Id { vrf, src: view.src().into(), dst: view.dst().into(), protocol: 0, ident };
        let payload_at = header.at + ipv6_ext::FRAGMENT_LEN;
        let len = (ipv6::HEADER_LEN + view.payload().len()).checked_sub(payload_at)?;
        let fragment = Fragment { id, offset: offset.into(), len, more, at: l3 + payload_at };
        if offset == 0 {
            // The whole chain of headers is in the first fragment (RFC 7112).
            let walk = ipv6_ext::walk(ip).ok()?;
            let upper = Fragment { len: (payload_at + len).checked_sub(walk.upper_offset)?, ..fragment };
            return upper.starts_well(walk.upper).then_some(fragment);
        }
        Some(fragment)
    }

    /// Whether what filters look at is where they look for it: in the first fragment.
    fn starts_well(&self, protocol: Protocol) -> bool {
        match (self.offset, protocol) {
            (0, Protocol::TCP) => self.len >= tcp::HEADER_LEN,
            (0, Protocol::UDP | Protocol::ICMP | Protocol::ICMPV6) => self.len >= 8,
            (8, Protocol::TCP) => false,
            _ => true,
        }
    }

    fn is_sound(&self) -> bool {
        self.len > 0 && self.offset + self.len <= LONGEST && (!self.more || self.len.is_multiple_of(8))
    }
}

struct FragmentHeader {
    /// Where it starts, and where the byte is that names it; from the start of the IPv6 header.
    at: usize,
    name_at: usize,
    repr: ipv6_ext::FragmentRepr,
}

/// The first fragment header, behind the headers that may stand in front of it (RFC 8200 4.1, 4.5).
fn fragment_header(ip: &[u8]) -> Option<FragmentHeader> {
    let (mut next, mut at, mut name_at) =
        (ipv6::Packet::new_checked(ip).ok()?.next_header(), ipv6::HEADER_LEN, 6);
    for _ in 0..ipv6_ext::MAX_HEADERS {
        let header = ip.get(at..)?;
        match next {
            Protocol::FRAGMENT => {
                let view = ipv6_ext::FragmentPacket::new_checked(header).ok()?;
                let repr = ipv6_ext::FragmentRepr::parse(&view).ok()?;
                return Some(FragmentHeader { at, name_at, repr });
            }
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DEST_OPTIONS => {
                let view = ipv6_ext::Packet::new_checked(header).ok()?;
                (next, name_at, at) = (view.next_header(), at, at + view.header_len());
            }
            _ => return None,
        }
    }
    None
}
