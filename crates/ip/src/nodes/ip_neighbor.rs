//! `ip4-neighbor`, `ip6-neighbor`: packets whose next hop has no MAC address yet.
//!
//! The first few packets for a neighbor are kept while the control side asks for it (RFC 1122 2.3.2.2, RFC 4861
//! 7.2.2); when it answers they are looked up again, when it does not their senders are told
//! (`neighbor-unresolved`). What keeps a scan of a whole subnet from doing harm:
//!
//! * So many unknown neighbors per second are asked for, in all and for each source (an IPv4 address, an IPv6 /64);
//!   packets beyond that are dropped as `neighbor-rate-limited`. Whoever scans spends his own share.
//! * A flood from random sources would use up what may be asked for in all. So a source that was refused a neighbor, by
//!   its own limit or the overall one, and wants the same one again is served from a reserve: a fifth of the overall rate
//!   on top of it, and at least 100 per second (or the rate, if that is less), with the same share for each source. Hosts
//!   ask again (ping, a SYN's retransmission), scans rarely do. The refused are remembered as fingerprints in 1 MiB, which
//!   is allocated at the first refusal.
//! * So many neighbors are waited for; a new one displaces the one that has waited longest, which by then has had time
//!   to answer. Its packets, and those beyond the first few of one neighbor, are dropped as `neighbor-queue-full`.
//!
//! The node also sends the control side's ARP requests and neighbor solicitations.
//!
//! Outputs: `lookup`, `error`, and one per port, by name.

mod admission;

use crate::adjacency::{Kind, NextHops};
use crate::interface::Settings;
use crate::neighbor::{Event, Key, Link, Mailbox, Notice, solicit};
use crate::nodes::error;
use admission::Admission;
use arrayvec::ArrayVec;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict, Waker};
use tidemill_lookup::publish::View;
use tidemill_wire::{ipv4, ipv6};

/// The outputs' names in front of the ports'.
pub const OUTPUTS: [&str; 2] = ["lookup", "error"];

const LOOKUP: u8 = 0;
const ERROR: u8 = 1;
/// The output of port 0.
const PORTS: u8 = OUTPUTS.len() as u8;

/// Neighbors waited for, per worker and family.
const WAITING: usize = 512;
/// Packets that wait for one neighbor.
const PACKETS: usize = 4;
/// The longest that a packet waits: longer than three questions, a second apart, take to fail.
const PATIENCE_NS: u64 = 4_000_000_000;

/// The node.
pub struct IpNeighbor {
    settings: View<Settings>,
    hops: View<NextHops>,
    link: Arc<Link>,
    mailbox: Arc<Mailbox>,
    admission: Admission,
    waiting: HashMap<Key, Waiting>,
    /// Who is waited for, longest first, with the time of the question; may name some that are not any more.
    order: VecDeque<(Key, u64)>,
}

struct Waiting {
    since_ns: u64,
    packets: ArrayVec<Packet, PACKETS>,
}

impl IpNeighbor {
    /// The node of one worker and one family of packets. `mailbox` is that worker's own.
    pub fn new(
        settings: View<Settings>,
        hops: View<NextHops>,
        link: Arc<Link>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        IpNeighbor {
            settings,
            hops,
            link,
            mailbox,
            admission: Admission::new(), // set from the settings at each burst
            waiting: HashMap::with_capacity(2 * WAITING),
            order: VecDeque::with_capacity(2 * WAITING),
        }
    }

    fn give_up(&mut self, cx: &mut Context<'_>, key: &Key) {
        for mut packet in self.waiting.remove(key).into_iter().flat_map(|waiting| waiting.packets) {
            match error(&mut packet, DropReason::NeighborUnresolved, 0, ERROR) {
                Verdict::Next(output) => cx.release(output, packet),
                _ => cx.discard(DropReason::NeighborUnresolved, packet),
            }
        }
    }

    fn obey(&mut self, cx: &mut Context<'_>, notice: Notice) {
        match notice {
            Notice::Solicit { key, to } => {
                let interface = self.settings.get(cx.reader).interfaces.get(key.interface);
                let Some(interface) = interface.filter(|interface| interface.resolves) else { return };
                if let Some(packet) = solicit::solicit(cx.pool, interface, key.address, to) {
                    cx.emit(PORTS + interface.port as u8, packet);
                }
            }
            Notice::Resolved(key) => {
                for packet in self.waiting.remove(&key).into_iter().flat_map(|waiting| waiting.packets) {
                    cx.release(LOOKUP, packet);
                }
            }
            Notice::Lost(key) => self.give_up(cx, &key),
        }
    }
}

/// Gives up whoever has waited longest.
fn displace(waiting: &mut HashMap<Key, Waiting>, order: &mut VecDeque<(Key, u64)>, cx: &mut Context<'_>) {
    while let Some((key, since_ns)) = order.pop_front() {
        if waiting.get(&key).is_some_and(|waits| waits.since_ns == since_ns) {
            for packet in waiting.remove(&key).into_iter().flat_map(|waits| waits.packets) {
                cx.discard(DropReason::NeighborQueueFull, packet);
            }
            return;
        }
    }
}

/// Source and destination of an IP packet.
fn addresses(packet: &Packet) -> Option<(IpAddr, IpAddr)> {
    let ip = packet.data().get(usize::from(packet.l3)..)?;
    match ipv4::version(ip) {
        4 => ipv4::Packet::new_checked(ip).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        _ => ipv6::Packet::new_checked(ip).ok().map(|ip| (ip.src().into(), ip.dst().into())),
    }
}

/// Whom a packet waits for, and what its source is charged under.
fn wanted(hops: &NextHops, packet: &Packet) -> Option<(Key, u64)> {
    let hop = hops.get(packet.label);
    let (source, destination) = addresses(packet)?;
    let address = match hop.kind {
        Kind::Glean => destination,
        Kind::Unresolved => hop.gateway()?,
        _ => return None,
    };
    let charged = match source {
        IpAddr::V4(source) => u32::from(source).into(),
        IpAddr::V6(source) => (u128::from(source) >> 64) as u64,
    };
    Some((Key { interface: hop.interface, address }, charged))
}

impl Node for IpNeighbor {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        self.admission.set(settings.neighbor_rate_per_s, settings.neighbor_rate_per_source_per_s);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let Some((key, charged)) = wanted(self.hops.get(cx.reader), packet) else {
                // The next hops have been replaced since the lookup: look again. But not at what cannot be read, for
                // that would be for ever.
                *verdict = match self.hops.get(cx.reader).get(packet.label).kind {
                    Kind::Glean | Kind::Unresolved => Verdict::Drop(DropReason::NeighborUnresolved),
                    _ => Verdict::Next(LOOKUP),
                };
                continue;
            };
            let resolves = settings.interfaces.get(key.interface).is_some_and(|interface| interface.resolves);
            *verdict = match self.waiting.get(&key) {
                _ if !resolves => error(packet, DropReason::NeighborUnresolved, 0, ERROR),
                Some(waiting) if waiting.packets.is_full() => Verdict::Drop(DropReason::NeighborQueueFull),
                Some(_) => Verdict::Keep,
                None if !self.admission.allow(cx.now_ns, &key, charged) => {
                    Verdict::Drop(DropReason::NeighborRateLimited)
                }
                None => {
                    if self.waiting.len() >= WAITING {
                        displace(&mut self.waiting, &mut self.order, cx);
                    }
                    if self.order.len() == self.order.capacity() {
                        let waiting = &self.waiting;
                        self.order.retain(|(key, ns)| waiting.get(key).is_some_and(|w| w.since_ns == *ns));
                    }
                    self.order.push_back((key, cx.now_ns));
                    self.waiting.insert(key, Waiting { since_ns: cx.now_ns, packets: ArrayVec::new() });
                    self.link.tell(Event::Wanted(key));
                    Verdict::Keep
                }
            };
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let Some((key, _)) = wanted(self.hops.get(cx.reader), &packet) else {
            // It has been resolved since the verdict.
            return cx.release(LOOKUP, packet);
        };
        let refused = match self.waiting.get_mut(&key) {
            Some(waiting) => waiting.packets.try_push(packet).err().map(|error| error.element()),
            None => Some(packet),
        };
        // More of one burst than there is room for, or displaced by those behind it.
        if let Some(packet) = refused {
            cx.discard(DropReason::NeighborQueueFull, packet);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        while let Some(notice) = self.mailbox.take() {
            self.obey(cx, notice);
        }
        while let Some(&(key, since_ns)) = self.order.front() {
            let waits = self.waiting.get(&key).is_some_and(|waiting| waiting.since_ns == since_ns);
            if waits && cx.now_ns < since_ns.saturating_add(PATIENCE_NS) {
                break;
            }
            self.order.pop_front();
            if waits {
                self.give_up(cx, &key);
            }
        }
    }

    fn wake_with(&mut self, waker: &Waker) {
        self.mailbox.wake_with(waker);
    }

    fn surrender(&mut self, pool: &mut Pool) {
        self.order.clear();
        for packet in self.waiting.drain().flat_map(|(_, waiting)| waiting.packets) {
            pool.free(packet);
        }
    }
}
