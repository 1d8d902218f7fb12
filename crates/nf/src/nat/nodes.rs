//! The nodes, of each family that the pool has addresses of; the picture is in the crate's README.
//!
//! * `nat4-begin`, `nat6-begin`: which packets are to an address of the pool. From an interface that is neither inside nor outside they reach
//!   what is ours there, and nothing that is mapped: `nat-untranslated`. Outputs: `lookup`, `nat`, and `turn` for those from inside (hairpins), which leads to NAT, too, but by
//!   way of a packet filter, if there is one.
//! * `nat4-route`, `nat6-route`: of packets whose way is known, which leave from inside to outside. Those that will not go on (TTL, too big)
//!   stay as they are, so that whoever sent them knows them again in the ICMP error. Straight from outside to inside: `nat-untranslated`.
//!   Outputs: `forward`, `nat`.
//! * `nat4`, `nat6`: translates both sorts ([`translate`](super::Nat::translate)). Keeps fragments that wait, and hands packets that belong
//!   to another worker over to its instance there, by bounded rings: `nat-handover-full`. Outputs: `lookup`, `forward`, `error`.
//!
//! What one has found out it tells the next in the packet's `hash`, which nobody else writes behind the first of them.
//!
//! A filter that is in the graph judges behind the lookup, so it sees inside addresses: what leaves before it is translated, what comes when it has been. What leaves and is kept here is looked
//! up again with the pool's address, and has a note that it was judged ([`Packet::note`]). A hairpin is judged as both of its ends see it: on its way to the pool as if it left by
//! an interface outside, and on its way from there as if it came in by that.

use crate::AT_ONCE;
use crate::lanes::Lanes;
use crate::nat::control::Seat;
use crate::nat::counters::Counter;
use crate::nat::fragments::Token;
use crate::nat::ip::Family;
use crate::nat::settings::{Rules, Whose};
use crate::nat::translate::{Fate, Handover, Nat, Now, Way};
use crate::nat::waiting::Waiting;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict, Waker};
use tidemill_ip::nodes::{AHEAD, each, error};
use tidemill_ip::{Kind, NextHops, coalesce};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::publish::View;
use tidemill_wire::{Protocol, ipv4, ipv6};

/// Outputs of `nat4-begin`.
pub(crate) const BEGIN: [&str; 3] = ["lookup", "nat", "turn"];
/// Outputs of `nat4-route`.
pub(crate) const ROUTE: [&str; 2] = ["forward", "nat"];
/// Outputs of `nat4`.
pub(crate) const OUTPUTS: [&str; 3] = ["lookup", "forward", "error"];
const NAT: u8 = 1;
const TURN: u8 = 2;
const LOOKUP: u8 = 0;
const FORWARD: u8 = 1;
const ERROR: u8 = 2;

/// Which half of a packet's `hash` has the note; the other one has the number of an interface outside, by which it leaves, or a hairpin turns.
const NOTE: u32 = 0xffff;

/// What is noted of a packet.
mod note {
    pub(super) const NONE: u32 = 0;
    pub(super) const TO_POOL: u32 = 1;
    pub(super) const HAIRPIN: u32 = 2;
    pub(super) const LEAVING: u32 = 3;
    pub(super) const OWN: u32 = 4;
    pub(super) const DONE: u32 = 5;
    pub(super) const FROM_US: u32 = 6;
    /// Done with, and a hairpin.
    pub(super) const TURNED: u32 = 7;
}

/// The interface outside that is noted of a packet, behind `nat4-begin` or `nat6-begin`.
pub(crate) fn noted_outside(packet: &Packet) -> u16 {
    (packet.hash >> 16) as u16
}

/// Whether a packet is a hairpin that comes back from the pool, as noted.
#[inline(always)]
pub(crate) fn has_turned(packet: &Packet) -> bool {
    packet.hash & NOTE == note::TURNED
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

/// Whether an address of the pool is an interface's, too.
fn is_ours<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    rules: &Rules,
    pool: &[A],
    address: A,
) -> bool {
    let owners = if A::V6 { &rules.owners6 } else { &rules.owners4 };
    pool.binary_search(&address).is_ok_and(|at| owners.get(at) == Some(&Whose::Ours))
}

/// What is noted of a packet to the pool that came in by this interface; `None` if that is on neither side: what would answer it
/// leaves by an interface where nothing is translated.
fn to_pool(rules: &Rules, interface: u16, own: bool) -> Option<u32> {
    if own {
        return Some(note::FROM_US);
    }
    if rules.is_inside(interface) {
        return Some(note::HAIRPIN);
    }
    rules.is_outside(interface).then_some(note::TO_POOL)
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
        let turn = u32::from(rules.first_outside()) << 16;
        each(burst, verdicts, |packet| {
            let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
            let destination = A::read(ip.get(A::SOURCE + A::BYTES..).unwrap_or_default());
            packet.hash = note::NONE;
            if destination < first || destination > last || self.pool.binary_search(&destination).is_err() {
                return Verdict::Next(LOOKUP);
            }
            match to_pool(rules, packet.port, packet.is_own()) {
                Some(note::HAIRPIN) => {
                    packet.hash = turn | note::HAIRPIN;
                    return Verdict::Next(TURN);
                }
                Some(noted) => packet.hash = noted,
                // Nothing is translated for who is on neither side: the address is an interface's to him, or nobody's.
                None if is_ours(rules, &self.pool, destination) => return Verdict::Next(LOOKUP),
                None => return Verdict::Drop(DropReason::NatUntranslated),
            }
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
            if matches!(packet.hash & NOTE, note::DONE | note::TURNED) || hop.kind != Kind::Forward {
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
            packet.hash = u32::from(hop.interface) << 16 | note::LEAVING;
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

/// What a packet is kept for.
#[derive(Clone, Copy)]
enum Order {
    Wait(Token),
    Hand(Handover),
}

/// See the [module](self).
pub(crate) struct Translate<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    rules: View<Rules>,
    /// None if this graph's tables are with another engine already: then nothing is translated.
    seat: Option<Box<Seat<A, E, S, T>>>,
    lanes: Lanes<(Packet, Way)>,
    held: Waiting<Packet>,
    /// What this burst's packets are kept for, in order, and the next of them.
    orders: Vec<Order>,
    kept: usize,
    /// Tokens whose first fragment has come.
    come: Vec<Token>,
    shown_ns: u64,
}

/// How a packet is on its way, as noted.
fn way_of(packet: &Packet) -> Way {
    match packet.hash & NOTE {
        note::HAIRPIN => Way::Hairpin,
        note::LEAVING => Way::Leaving,
        note::OWN => Way::Own,
        note::FROM_US => Way::FromUs,
        _ => Way::ToPool,
    }
}

fn note_of(way: Way) -> u32 {
    match way {
        Way::Hairpin => note::HAIRPIN,
        Way::Leaving => note::LEAVING,
        Way::Own => note::OWN,
        Way::FromUs => note::FROM_US,
        Way::ToPool => note::TO_POOL,
    }
}

/// By which output a packet goes on that is done with; notes that it is.
fn on(packet: &mut Packet, fate: Fate) -> u8 {
    let way = way_of(packet);
    let leaving = matches!(way, Way::Leaving | Way::Own);
    // What comes from us and is not ours is the other half of a hairpin.
    let turned = way == Way::Hairpin || (way == Way::FromUs && !packet.is_own());
    packet.hash = match fate {
        Fate::Passed if !leaving => note::NONE,
        _ if turned => (packet.hash & !NOTE) | note::TURNED,
        _ => note::DONE,
    };
    packet.clear_checked();
    if leaving { FORWARD } else { LOOKUP }
}

/// What a family's packets are judged by now.
fn now<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    rules: &Rules,
    now_ns: u64,
) -> Now<'_> {
    let (owners, near) = if A::V6 { (&rules.owners6, &rules.near6) } else { (&rules.owners4, &rules.near4) };
    Now { ms: now_ns / 1_000_000, times: &rules.times, owners, near }
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Translate<A, E, S, T> {
    pub(crate) fn new(
        rules: View<Rules>,
        seat: Option<Box<Seat<A, E, S, T>>>,
        lanes: Lanes<(Packet, Way)>,
    ) -> Self {
        let (room, salt) =
            seat.as_ref().map_or((0, 0), |seat| (seat.nat.state().plan().fragments, seat.nat.salt()));
        let burst = tidemill_burst::BURST;
        Translate {
            rules,
            seat,
            lanes,
            held: Waiting::new(room, salt),
            orders: Vec::with_capacity(burst),
            kept: 0,
            come: Vec::with_capacity(2 * burst),
            shown_ns: 0,
        }
    }

    /// What waits for this token goes on, in the order in which it came.
    fn release(&mut self, cx: &mut Context<'_>, token: Token) {
        for _ in 0..self.held.count(token) {
            let Some((until_ns, packet)) = self.held.take(token) else { return };
            self.resume(cx, token, until_ns, packet);
        }
    }

    /// A fragment waits; the one that it pushes out does not any longer.
    fn wait(&mut self, cx: &mut Context<'_>, token: Token, until_ns: u64, packet: Packet) {
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        let source = Nat::<A, E, S, T>::source(way_of(&packet), ip);
        match self.held.put(token, until_ns, source, packet) {
            Ok(None) => {}
            Ok(Some(gone)) => cx.discard(DropReason::NatFragmentTimeout, gone),
            Err(packet) => cx.discard(DropReason::NatFragmentRefused, packet),
        }
    }

    /// One that has waited; it waits on if it has to and there is room.
    fn resume(&mut self, cx: &mut Context<'_>, token: Token, until_ns: u64, mut packet: Packet) {
        let Some(seat) = &mut self.seat else { return cx.discard(DropReason::NatFragmentTimeout, packet) };
        let rules = self.rules.get(cx.reader);
        let now = now::<A, E, S, T>(rules, cx.now_ns);
        let (way, l3) = (way_of(&packet), usize::from(packet.l3));
        let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
        let fate = seat.nat.resume(&now, way, token, ip);
        self.carry_out(cx, fate, until_ns, packet);
    }

    /// What becomes of a packet that this node keeps.
    fn carry_out(&mut self, cx: &mut Context<'_>, fate: Fate, until_ns: u64, mut packet: Packet) {
        match fate {
            Fate::Waits(token) => self.wait(cx, token, until_ns, packet),
            Fate::Drop(reason) => cx.discard(reason, packet),
            Fate::Tell(reason) => match error(&mut packet, reason, 0, ERROR) {
                Verdict::Next(output) => cx.release(output, packet),
                _ => cx.discard(reason, packet),
            },
            Fate::Elsewhere(handover) => self.hand_over(cx, handover, packet),
            Fate::Translated | Fate::First(..) | Fate::Passed => {
                if way_of(&packet) == Way::Leaving {
                    // A filter has let it pass, by this interface and with the address that it had.
                    packet.set_note(noted_outside(&packet).into());
                }
                on(&mut packet, fate);
                // Time has gone by, or it was another worker's: its next hop's number may be another's by now, so it is looked up again.
                cx.release(LOOKUP, packet);
            }
        }
    }

    fn hand_over(&mut self, cx: &mut Context<'_>, handover: Handover, mut packet: Packet) {
        packet.hash = (packet.hash & !NOTE) | note_of(handover.way);
        match self.lanes.hand_over(handover.worker, (packet, handover.way)) {
            Ok(()) => {
                cx.hand_over();
                if let Some(seat) = &mut self.seat {
                    seat.nat.counters_mut().one(Counter::HandedOver);
                }
            }
            Err((packet, _)) => cx.discard(DropReason::NatHandoverFull, packet),
        }
    }

    /// Takes what other workers have handed over.
    fn take_over(&mut self, cx: &mut Context<'_>) {
        // As many as a burst, so that what is made of them has room.
        for _ in 0..tidemill_burst::BURST {
            let Some((mut packet, way)) = self.lanes.take_over() else { return };
            cx.take_over();
            let Some(seat) = &mut self.seat else {
                cx.discard(DropReason::NatUntranslated, packet);
                continue;
            };
            let rules = self.rules.get(cx.reader);
            let now = now::<A, E, S, T>(rules, cx.now_ns);
            let until_ns = cx.now_ns + rules.times.fragment_ms * 1_000_000;
            let l3 = usize::from(packet.l3);
            let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
            let fate = seat.nat.adopt(&now, way, ip);
            self.carry_out(cx, fate, until_ns, packet);
            let settled = self.seat.as_ref().map(|seat| seat.nat.settled());
            if let Fate::First(token, _) = fate {
                self.release(cx, token);
            }
            // What is refused keeps nobody waiting.
            settled.into_iter().flatten().for_each(|token| self.release(cx, token));
        }
        // There is more.
        cx.wake_at(cx.now_ns);
    }
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Node
    for Translate<A, E, S, T>
{
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let Some(seat) = &mut self.seat else {
            return each(burst, verdicts, |packet| Verdict::Next(on(packet, Fate::Passed)));
        };
        let rules = self.rules.get(cx.reader);
        let now = now::<A, E, S, T>(rules, cx.now_ns);
        self.kept = 0;
        self.orders.clear();
        self.come.clear();
        let (orders, come) = (&mut self.orders, &mut self.come);
        for (burst, verdicts) in burst.chunks_mut(AT_ONCE).zip(verdicts.chunks_mut(AT_ONCE)) {
            seat.nat.look_ahead(burst.iter().enumerate().map(|(at, packet)| {
                if let Some(next) = burst.get(at + AHEAD) {
                    prefetch_read(next.data_ptr());
                }
                (way_of(packet), packet.data().get(usize::from(packet.l3)..).unwrap_or_default())
            }));
            let mut place = 0;
            each(burst, verdicts, |packet| {
                let (way, l3) = (way_of(packet), usize::from(packet.l3));
                let ip = packet.data_mut().get_mut(l3..).unwrap_or_default();
                let fate = seat.nat.translate_next(place, &now, way, ip);
                place += 1;
                match fate {
                    Fate::Translated | Fate::Passed => Verdict::Next(on(packet, fate)),
                    Fate::First(token, arrival) => {
                        come.push(token);
                        come.extend(arrival);
                        Verdict::Next(on(packet, fate))
                    }
                    Fate::Waits(token) => {
                        orders.push(Order::Wait(token));
                        Verdict::Keep
                    }
                    Fate::Elsewhere(handover) => {
                        orders.push(Order::Hand(handover));
                        Verdict::Keep
                    }
                    Fate::Drop(reason) => {
                        come.extend(seat.nat.settled());
                        Verdict::Drop(reason)
                    }
                    Fate::Tell(reason) => {
                        come.extend(seat.nat.settled());
                        error(packet, reason, 0, ERROR)
                    }
                }
            });
        }
        for at in 0..self.come.len() {
            self.release(cx, self.come[at]);
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let Some(order) = self.orders.get(self.kept).copied() else {
            return cx.discard(DropReason::NatFragmentRefused, packet);
        };
        self.kept += 1;
        match order {
            Order::Wait(token) => {
                let hold_ms = self.rules.get(cx.reader).times.fragment_ms;
                if let Some(seat) = &mut self.seat {
                    seat.nat.counters_mut().one(Counter::FragmentsHeld);
                }
                // Its first fragment may have come later in the same burst.
                self.resume(cx, token, cx.now_ns + hold_ms * 1_000_000, packet);
            }
            Order::Hand(handover) => {
                self.hand_over(cx, handover, packet);
                if let Some(token) = handover.first {
                    self.release(cx, token);
                }
            }
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        self.take_over(cx);
        while let Some(packet) = self.held.take_over(now_ns) {
            cx.discard(DropReason::NatFragmentTimeout, packet);
        }
        if let Some(next_ns) = self.held.next_ns() {
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

    fn wake_with(&mut self, waker: &Waker) {
        self.lanes.wake_with(waker);
    }

    fn is_handed_packets(&self) -> bool {
        self.lanes.are_shared()
    }

    fn surrender(&mut self, pool: &mut Pool) {
        self.held.drain().for_each(|packet| pool.free(packet));
        self.lanes.surrender(pool, |(packet, _)| packet);
        // The last burst's numbers, too.
        if let Some(seat) = &mut self.seat {
            seat.show();
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        let key = tidemill_wire::flow_key(packet.data(), usize::from(packet.l3))?;
        Some(match packet.hash & NOTE {
            note::DONE | note::TURNED => format!("now {key}"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::settings::Times;

    fn rules() -> Rules {
        let times = Times {
            udp_ms: 1,
            inbound_refresh: false,
            established_ms: 1,
            transitory_ms: 1,
            icmp_ms: 1,
            fragment_ms: 1,
        };
        let (inside, outside) = (vec![true, false, false], vec![false, true, false]);
        let owners4 = vec![Whose::Ours, Whose::Pool];
        let (owners6, near4, near6) = (Vec::new(), Vec::new(), Vec::new());
        Rules { inside, outside, owners4, owners6, near4, near6, times }
    }

    #[test]
    fn who_is_neither_inside_nor_outside_does_not_reach_the_pool() {
        let rules = rules();
        let noted = [0, 1, 2, 3].map(|interface| to_pool(&rules, interface, false));
        assert_eq!(noted, [Some(note::HAIRPIN), Some(note::TO_POOL), None, None]);
        assert_eq!(to_pool(&rules, 2, true), Some(note::FROM_US), "our own errors are about what is mapped");
        assert_eq!(to_pool(&rules, 1, true), Some(note::FROM_US), "and have addresses of ours");
        assert_eq!(
            [7, 8, 9].map(|address| is_ours::<u32, 1, 2, 4>(&rules, &[7, 9], address)),
            [true, false, false]
        );
    }
}
