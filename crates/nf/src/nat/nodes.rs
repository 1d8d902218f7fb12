//! The nodes, of each family that the pool has addresses of; the picture is in the crate's README.
//!
//! * `nat4-begin`, `nat6-begin`: which packets are to an address of the pool. Outputs: `lookup`, `nat`.
//! * `nat4-route`, `nat6-route`: of packets whose way is known, which leave from inside to outside. Those that will not go on (TTL, too big)
//!   stay as they are, so that whoever sent them knows them again in the ICMP error. Straight from outside to inside: `nat-untranslated`.
//!   Outputs: `forward`, `nat`.
//! * `nat4`, `nat6`: translates both sorts ([`translate`](super::Nat::translate)). Keeps fragments that wait. Outputs: `lookup`, `forward`,
//!   `error`.
//!
//! What one has found out it tells the next in the packet's `hash`, which nobody behind needs.

use crate::nat::control::Seat;
use crate::nat::counters::Counter;
use crate::nat::fragments::Token;
use crate::nat::ip::Family;
use crate::nat::settings::Rules;
use crate::nat::translate::{Fate, Now, Way};
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::{each, error};
use tidemill_ip::{Kind, NextHops, coalesce};
use tidemill_lookup::publish::View;
use tidemill_wire::{Protocol, ipv4, ipv6};

/// Outputs of `nat4-begin`.
pub(crate) const BEGIN: [&str; 2] = ["lookup", "nat"];
/// Outputs of `nat4-route`.
pub(crate) const ROUTE: [&str; 2] = ["forward", "nat"];
/// Outputs of `nat4`.
pub(crate) const OUTPUTS: [&str; 3] = ["lookup", "forward", "error"];
const NAT: u8 = 1;
const LOOKUP: u8 = 0;
const FORWARD: u8 = 1;
const ERROR: u8 = 2;

/// What is noted of a packet.
mod note {
    pub(super) const NONE: u32 = 0;
    pub(super) const TO_POOL: u32 = 1;
    pub(super) const HAIRPIN: u32 = 2;
    pub(super) const LEAVING: u32 = 3;
    pub(super) const OWN: u32 = 4;
    pub(super) const DONE: u32 = 5;
}

/// How often numbers are shown, and the sweep goes on.
const SHOW_NS: u64 = 10_000_000;
/// In how many such steps it comes round.
const STEPS: usize = 100;

/// See the [module](self).
pub(crate) struct Begin<A> {
    rules: View<Rules>,
    pool: Arc<[A]>,
}

impl<A> Begin<A> {
    pub(crate) fn new(rules: View<Rules>, pool: Arc<[A]>) -> Self {
        Begin { rules, pool }
    }
}

impl<A> Begin<A> {
    fn step<const E: usize, const S: usize, const T: usize>(
        &mut self,
        cx: &Context<'_>,
        burst: &mut [Packet],
        verdicts: &mut [Verdict],
    ) where
        A: Family<E, S, T>,
    {
        let rules = self.rules.get(cx.reader);
        let (Some(&first), Some(&last)) = (self.pool.first(), self.pool.last()) else { return };
        each(burst, verdicts, |packet| {
            let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
            let destination = A::read(ip.get(A::SOURCE + A::BYTES..).unwrap_or_default());
            packet.hash = note::NONE;
            if destination < first || destination > last || self.pool.binary_search(&destination).is_err() {
                return Verdict::Next(LOOKUP);
            }
            let inside = !packet.is_own() && rules.is_inside(packet.port);
            packet.hash = if inside { note::HAIRPIN } else { note::TO_POOL };
            Verdict::Next(NAT)
        });
    }
}

/// See the [module](self).
pub(crate) struct Route {
    rules: View<Rules>,
    hops: View<NextHops>,
    v6: bool,
}

impl Route {
    pub(crate) fn new(rules: View<Rules>, hops: View<NextHops>, v6: bool) -> Self {
        Route { rules, hops, v6 }
    }
}

impl Node for Route {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let (rules, hops) = (self.rules.get(cx.reader), self.hops.get(cx.reader));
        let v6 = self.v6;
        each(burst, verdicts, |packet| {
            let hop = hops.get(packet.label);
            if packet.hash == note::DONE || hop.kind != Kind::Forward {
                return Verdict::Next(0);
            }
            if !rules.is_outside(hop.interface) {
                let straight = rules.is_outside(packet.port) && rules.is_inside(hop.interface);
                return match straight && !packet.is_own() {
                    true => Verdict::Drop(DropReason::NatUntranslated),
                    false => Verdict::Next(0),
                };
            }
            let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
            if packet.is_own() {
                let icmp = is_icmp(ip, v6);
                packet.hash = note::OWN;
                return Verdict::Next(if icmp { NAT } else { 0 });
            }
            if !rules.is_inside(packet.port) {
                return Verdict::Next(0);
            }
            let fits = ip.len() <= usize::from(hop.mtu) || coalesce::fits(packet, hop.mtu);
            let stays = match v6 {
                false => {
                    ip.len() < ipv4::HEADER_LEN || ipv4::ttl(ip) <= 1 || (!fits && ipv4::dont_fragment(ip))
                }
                true => ip.len() < ipv6::HEADER_LEN || ipv6::hop_limit(ip) <= 1 || !fits,
            };
            if stays {
                return Verdict::Next(0);
            }
            packet.hash = note::LEAVING;
            Verdict::Next(NAT)
        });
    }
}

fn is_icmp(ip: &[u8], v6: bool) -> bool {
    match v6 {
        false => ip.len() >= ipv4::HEADER_LEN && ipv4::protocol(ip) == Protocol::ICMP,
        true => ip.len() >= ipv6::HEADER_LEN && ipv6::next_header(ip) == Protocol::ICMPV6,
    }
}

/// A fragment that waits.
struct Held {
    token: Token,
    until_ns: u64,
    packet: Packet,
}

/// See the [module](self).
pub(crate) struct Translate<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    rules: View<Rules>,
    /// None if this graph's tables are with another engine already: then nothing is translated.
    seat: Option<Box<Seat<A, E, S, T>>>,
    held: Vec<Held>,
    /// Tokens of this burst's packets that are to be kept, in order, and the next of them.
    waiting: Vec<Token>,
    kept: usize,
    /// Tokens whose first fragment has come.
    come: Vec<Token>,
    room: usize,
    shown_ns: u64,
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Translate<A, E, S, T> {
    pub(crate) fn new(rules: View<Rules>, seat: Option<Box<Seat<A, E, S, T>>>) -> Self {
        let room = seat.as_ref().map_or(0, |seat| seat.nat.state().plan().fragments);
        let burst = tidemill_burst::BURST;
        Translate {
            rules,
            seat,
            held: Vec::with_capacity(room),
            waiting: Vec::with_capacity(burst),
            kept: 0,
            come: Vec::with_capacity(burst),
            room,
            shown_ns: 0,
        }
    }

    /// What waits for one of the tokens goes on.
    fn release(&mut self, cx: &mut Context<'_>, token: Token) {
        let mut at = 0;
        while at < self.held.len() {
            if self.held[at].token == token {
                // In the order in which they came.
                let held = self.held.remove(at);
                self.resume(cx, held);
            } else {
                at += 1;
            }
        }
    }

    /// One that has waited; it waits on if it has to and there is room.
    fn resume(&mut self, cx: &mut Context<'_>, held: Held) {
        let Held { token, until_ns, mut packet } = held;
        let Some(seat) = &mut self.seat else { return cx.discard(DropReason::NatFragmentTimeout, packet) };
        let l3 = usize::from(packet.l3);
        let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
        match seat.nat.resume(cx.now_ns / 1_000_000, token, ip) {
            Fate::Waits(_) if self.held.len() < self.room => self.held.push(Held { token, until_ns, packet }),
            Fate::Waits(_) => cx.discard(DropReason::NatFragmentRefused, packet),
            Fate::Drop(reason) | Fate::Tell(reason) => cx.discard(reason, packet),
            Fate::Translated | Fate::First(_) | Fate::Passed => {
                let leaving = packet.hash == note::LEAVING;
                packet.hash = note::DONE;
                packet.clear_checked();
                cx.release(if leaving { FORWARD } else { LOOKUP }, packet);
            }
        }
    }
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Node
    for Translate<A, E, S, T>
{
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let Some(seat) = &mut self.seat else { return };
        let rules = self.rules.get(cx.reader);
        let owners = if A::V6 { &rules.owners6 } else { &rules.owners4 };
        let now = Now { ms: cx.now_ns / 1_000_000, times: &rules.times, owners };
        self.kept = 0;
        self.waiting.clear();
        self.come.clear();
        let (waiting, come) = (&mut self.waiting, &mut self.come);
        each(burst, verdicts, |packet| {
            let way = match packet.hash {
                note::HAIRPIN => Way::Hairpin,
                note::LEAVING => Way::Leaving,
                note::OWN => Way::Own,
                _ => Way::ToPool,
            };
            let on = if matches!(way, Way::Leaving | Way::Own) { FORWARD } else { LOOKUP };
            let l3 = usize::from(packet.l3);
            let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
            match seat.nat.translate(&now, way, ip) {
                Fate::Translated => {
                    packet.hash = note::DONE;
                    packet.clear_checked();
                    Verdict::Next(on)
                }
                Fate::First(token) => {
                    come.push(token);
                    packet.hash = note::DONE;
                    packet.clear_checked();
                    Verdict::Next(on)
                }
                Fate::Passed => {
                    packet.hash = if on == FORWARD { note::DONE } else { note::NONE };
                    Verdict::Next(on)
                }
                Fate::Waits(token) => {
                    waiting.push(token);
                    Verdict::Keep
                }
                Fate::Drop(reason) => Verdict::Drop(reason),
                Fate::Tell(reason) => error(packet, reason, 0, ERROR),
            }
        });
        for at in 0..self.come.len() {
            self.release(cx, self.come[at]);
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let hold_ms = self.rules.get(cx.reader).times.fragment_ms;
        let until_ns = cx.now_ns + hold_ms * 1_000_000;
        let Some(token) = self.waiting.get(self.kept).copied() else {
            return cx.discard(DropReason::NatFragmentRefused, packet);
        };
        self.kept += 1;
        if let Some(seat) = &mut self.seat {
            seat.nat.counters_mut().one(Counter::FragmentsHeld);
        }
        // Its first fragment may have come later in the same burst.
        self.resume(cx, Held { token, until_ns, packet });
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        while let Some(at) = self.held.iter().position(|held| held.until_ns <= now_ns) {
            let held = self.held.remove(at);
            cx.discard(DropReason::NatFragmentTimeout, held.packet);
        }
        if let Some(next_ns) = self.held.iter().map(|held| held.until_ns).min() {
            cx.wake_at(next_ns);
        }
        let Some(seat) = &mut self.seat else { return };
        if now_ns.saturating_sub(self.shown_ns) >= SHOW_NS {
            self.shown_ns = now_ns;
            let buckets = seat.nat.state().buckets().div_ceil(STEPS);
            seat.nat.reclaim(now_ns / 1_000_000, buckets);
            seat.show();
        }
    }

    fn surrender(&mut self, pool: &mut Pool) {
        self.held.drain(..).for_each(|held| pool.free(held.packet));
        // The last burst's numbers, too.
        if let Some(seat) = &mut self.seat {
            seat.show();
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        let key = tidemill_wire::flow_key(packet.data(), usize::from(packet.l3))?;
        Some(match packet.hash {
            note::DONE => format!("now {key}"),
            _ => format!("as it was {key}"),
        })
    }
}

macro_rules! begin {
    ($($address:ty),*) => {$(
        impl Node for Begin<$address> {
            fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
                self.step(cx, burst, verdicts);
            }
        }
    )*};
}
begin!(u32, u128);
