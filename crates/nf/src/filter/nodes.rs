//! The nodes `filter4` and `filter6`: behind the lookup of a route, where both interfaces of a packet are known, and before anything is done for it: before
//! a neighbor is asked for, and before its sender is told that no route leads on. Outputs: `forward`, `neighbor`, `error`.
//!
//! What no route leads on comes by way of `filter4-lost` and `filter6-lost`, which say so, and by which interface it comes in; it is judged on its way in. A packet that waits for its neighbor's address
//! is looked up again, and is not judged again for that.
//!
//! Where NAT is in the graph, too, packets have their inside addresses here. Hairpins are judged twice, as both ends see them: by way of `filter4-turn` and `filter6-turn`, on their way to the pool, as if
//! they left by an interface outside (output `turn`, to NAT); and when NAT has done with them, as if they came in by that.
//!
//! Packets to us do not come here, and our own pass. Each judges what belongs to its worker, and hands the rest over to its instance there by bounded
//! rings: `filter-handover-full`. It keeps fragments that wait for the first one of their packet, as NAT does: where there is no room a source's own oldest one goes, else the oldest.
//!
//! A packet that was handed over, or has waited, goes on by its next hop of then, if that still leads out by the same interface: its rules were asked about that one.

use crate::AT_ONCE;
use crate::filter::control::Seat;
use crate::filter::counters::Counter;
use crate::filter::judge::{Fate, NOWHERE, Ways};
use crate::filter::net::Net;
use crate::filter::rules::Rules;
use crate::lanes::Lanes;
use crate::nat::fragments::Token;
use crate::nat::nodes::{has_turned, noted_outside};
use crate::nat::waiting::Waiting;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict, Waker};
use tidemill_ip::nodes::{AHEAD, each, error};
use tidemill_ip::{Adjacency, Kind, NextHops};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::publish::View;

/// Outputs; beside NAT [one more](TURNS).
pub(crate) const OUTPUTS: [&str; 3] = ["forward", "neighbor", "error"];
/// For hairpins that may go to the pool.
pub(crate) const TURNS: &str = "turn";
const FORWARD: u8 = 0;
const NEIGHBOR: u8 = 1;
const ERROR: u8 = 2;
const TURN: u8 = 3;

/// The first label of what no route leads on: its lower half says by which interface that comes. Why no route does is in its `hash` then, where NAT's note was. No next hop has such a label: tables of
/// routes are not that large.
const LOST: u32 = 0xffff_0000;
/// The label of a hairpin on its way to the pool, which is not looked up yet.
const TURNING: u32 = LOST - 1;

/// Whether its label is a next hop's.
fn has_hop(packet: &Packet) -> bool {
    packet.label < TURNING
}

/// How often numbers are shown, and the sweep goes on.
const SHOW_NS: u64 = 10_000_000;
/// In how many such steps it comes round.
const STEPS: usize = 100;

/// What a packet is kept for.
#[derive(Clone, Copy)]
enum Order {
    Wait(Token),
    Hand(usize),
}

/// See the [module](self).
pub(crate) struct Judge<A, const W: usize> {
    rules: View<Rules>,
    hops: View<NextHops>,
    /// None if this graph's tables are with another engine already: then nothing passes.
    seat: Option<Box<Seat<A, W>>>,
    lanes: Lanes<(Packet, Ways)>,
    worker: usize,
    beside_nat: bool,
    held: Waiting<(Packet, Ways)>,
    /// What this burst's packets are kept for, in order, and the next of them.
    orders: Vec<(Order, Ways)>,
    kept: usize,
    /// Packets whose first fragment was judged.
    settled: Vec<Token>,
    shown_ns: u64,
}

/// By which interface a packet comes: a hairpin that comes back from the pool by one outside.
fn comes_by(packet: &Packet, beside_nat: bool) -> u16 {
    if beside_nat && has_turned(packet) { noted_outside(packet) } else { packet.port }
}

/// A packet's interfaces.
fn ways(packet: &Packet, hops: &NextHops, beside_nat: bool) -> Ways {
    let to = match packet.label {
        LOST.. => return Ways { from: packet.label as u16, to: NOWHERE },
        TURNING => noted_outside(packet),
        label => hops.get(label).interface,
    };
    Ways { from: comes_by(packet, beside_nat), to }
}

/// Its bytes from the IP header on.
fn ip(packet: &Packet) -> &[u8] {
    packet.data().get(usize::from(packet.l3)..).unwrap_or_default()
}

/// Lets a packet go on that may: by which output, if its next hop is there. Where it waits for an address it notes by which interface it was judged.
fn onward(packet: &mut Packet, hop: &Adjacency) -> Option<u8> {
    match packet.label {
        LOST.. => {
            packet.label = packet.hash;
            return Some(ERROR);
        }
        TURNING => return Some(TURN),
        _ => {}
    }
    match hop.kind {
        Kind::Forward => Some(FORWARD),
        Kind::Glean | Kind::Unresolved => {
            packet.set_note(hop.interface.into());
            Some(NEIGHBOR)
        }
        _ => None,
    }
}

/// See the [module](self): says of packets that no route leads on that they are such.
pub(crate) struct Lost {
    pub(crate) beside_nat: bool,
}

/// Its output.
pub(crate) const LOST_OUTPUTS: [&str; 1] = ["filter"];

impl Node for Lost {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let beside_nat = self.beside_nat;
        each(burst, verdicts, |packet| {
            let lost = LOST | u32::from(comes_by(packet, beside_nat));
            (packet.hash, packet.label) = (packet.label, lost);
            Verdict::Next(0)
        });
    }
}

/// See the [module](self): says of hairpins on their way to the pool that they are such.
pub(crate) struct Turn;

/// Its output.
pub(crate) const TURN_OUTPUTS: [&str; 1] = ["filter"];

impl Node for Turn {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        each(burst, verdicts, |packet| {
            packet.label = TURNING;
            Verdict::Next(0)
        });
    }
}

impl<A: Net<W>, const W: usize> Judge<A, W> {
    pub(crate) fn new(
        rules: View<Rules>,
        hops: View<NextHops>,
        seat: Option<Box<Seat<A, W>>>,
        lanes: Lanes<(Packet, Ways)>,
        worker: usize,
        beside_nat: bool,
    ) -> Self {
        let (room, salt) = seat.as_ref().map_or((0, 0), |seat| (seat.fragments, seat.filter.salt()));
        let burst = tidemill_burst::BURST;
        Judge {
            rules,
            hops,
            seat,
            lanes,
            worker,
            beside_nat,
            // A filter has no sides: all wait on one, which has half of the places.
            held: Waiting::new(2 * room, salt),
            orders: Vec::with_capacity(burst),
            kept: 0,
            settled: Vec::with_capacity(burst),
            shown_ns: 0,
        }
    }

    /// What waits for this token goes on, in the order in which it came.
    fn release(&mut self, cx: &mut Context<'_>, token: Token) {
        for _ in 0..self.held.count(token) {
            let Some((until_ns, kept)) = self.held.take(token) else { return };
            self.resume(cx, token, until_ns, kept);
        }
    }

    /// A fragment waits; the one that it pushes out does not any longer.
    fn wait(&mut self, cx: &mut Context<'_>, token: Token, until_ns: u64, kept: (Packet, Ways)) {
        let source: u128 = A::read(ip(&kept.0).get(A::SOURCE..).unwrap_or_default()).into();
        // Whoever has a link takes any address of it.
        let source = if A::V6 { source >> 64 } else { source };
        match self.held.put(token, until_ns, (source, false), kept) {
            Ok(None) => {}
            Ok(Some((gone, _))) => cx.discard(DropReason::FilterFragmentTimeout, gone),
            Err((packet, _)) => cx.discard(DropReason::FilterFragmentRefused, packet),
        }
    }

    /// One that has waited; it waits on if it has to and there is room.
    fn resume(&mut self, cx: &mut Context<'_>, token: Token, until_ns: u64, kept: (Packet, Ways)) {
        let Some(seat) = &mut self.seat else { return cx.discard(DropReason::FilterFragmentTimeout, kept.0) };
        let fate = seat.filter.resume(cx.now_ns / 1_000_000, token);
        self.carry_out(cx, fate, until_ns, kept);
    }

    /// What becomes of a packet that this node keeps, with the interfaces by which it is judged.
    fn carry_out(&mut self, cx: &mut Context<'_>, fate: Fate, until_ns: u64, kept: (Packet, Ways)) {
        let (mut packet, ways) = kept;
        match fate {
            Fate::Waits(token) => self.wait(cx, token, until_ns, (packet, ways)),
            Fate::Drop(reason) => cx.discard(reason, packet),
            Fate::Tell(reason) => match error(&mut packet, reason, 0, ERROR) {
                Verdict::Next(output) => cx.release(output, packet),
                _ => cx.discard(reason, packet),
            },
            Fate::Passes => {
                let hop = *self.hops.get(cx.reader).get(packet.label);
                // Its next hop's number may be another's by now.
                let same = !has_hop(&packet) || hop.interface == ways.to;
                match onward(&mut packet, &hop).filter(|_| same) {
                    Some(output) => cx.release(output, packet),
                    None => cx.discard(DropReason::NextHopUnknown, packet),
                }
            }
        }
    }

    fn hand_over(&mut self, cx: &mut Context<'_>, worker: usize, kept: (Packet, Ways)) {
        match self.lanes.hand_over(worker, kept) {
            Ok(()) => {
                cx.hand_over();
                if let Some(seat) = &mut self.seat {
                    seat.filter.counters_mut().one(Counter::HandedOver);
                }
            }
            Err((packet, _)) => cx.discard(DropReason::FilterHandoverFull, packet),
        }
    }

    /// Takes what other workers have handed over.
    fn take_over(&mut self, cx: &mut Context<'_>) {
        // As many as a burst, so that what is made of them has room.
        for _ in 0..tidemill_burst::BURST {
            let Some((packet, ways)) = self.lanes.take_over() else { return };
            cx.take_over();
            let Some(seat) = &mut self.seat else {
                cx.discard(DropReason::FilterBlocked, packet);
                continue;
            };
            let rules = self.rules.get(cx.reader);
            let until_ns = cx.now_ns + rules.times.fragment_ms * 1_000_000;
            let fate = seat.filter.judge_one(cx.now_ns / 1_000_000, rules, ways, ip(&packet));
            let settled = seat.filter.settled();
            self.carry_out(cx, fate, until_ns, (packet, ways));
            settled.into_iter().for_each(|token| self.release(cx, token));
        }
        // There is more.
        cx.wake_at(cx.now_ns);
    }
}

impl<A: Net<W>, const W: usize> Node for Judge<A, W> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let Some(seat) = &mut self.seat else {
            return each(burst, verdicts, |_| Verdict::Drop(DropReason::FilterBlocked));
        };
        let (rules, hops) = (self.rules.get(cx.reader), self.hops.get(cx.reader));
        let now_ms = cx.now_ns / 1_000_000;
        self.kept = 0;
        self.orders.clear();
        self.settled.clear();
        let (orders, settled, worker) = (&mut self.orders, &mut self.settled, self.worker);
        let beside_nat = self.beside_nat;
        let ways = |packet: &Packet| ways(packet, hops, beside_nat);
        for (burst, verdicts) in burst.chunks_mut(AT_ONCE).zip(verdicts.chunks_mut(AT_ONCE)) {
            seat.filter.read(
                rules,
                burst.iter().enumerate().map(|(at, packet)| {
                    if let Some(next) = burst.get(at + AHEAD) {
                        prefetch_read(next.data_ptr());
                    }
                    (ways(packet), ip(packet))
                }),
            );
            seat.filter.look_up(rules);
            let mut place = 0;
            each(burst, verdicts, |packet| {
                let at = place;
                place += 1;
                let hop = hops.get(packet.label);
                let goes =
                    !has_hop(packet) || matches!(hop.kind, Kind::Forward | Kind::Glean | Kind::Unresolved);
                // It has waited since it was judged by that interface: for an address, or in NAT.
                let judged = packet.note() == Some(hop.interface.into()) && has_hop(packet);
                if packet.is_own() || !goes || judged {
                    return Verdict::Next(onward(packet, hop).unwrap_or(FORWARD));
                }
                let owner = seat.filter.owner(at, ip(packet));
                let fate = match owner == worker {
                    true => seat.filter.judge(at, now_ms, rules, ip(packet)),
                    false => Fate::Passes,
                };
                settled.extend(seat.filter.settled());
                match fate {
                    _ if owner != worker => {
                        orders.push((Order::Hand(owner), ways(packet)));
                        Verdict::Keep
                    }
                    Fate::Passes => Verdict::Next(onward(packet, hop).unwrap_or(FORWARD)),
                    Fate::Waits(token) => {
                        orders.push((Order::Wait(token), ways(packet)));
                        Verdict::Keep
                    }
                    Fate::Drop(reason) => Verdict::Drop(reason),
                    Fate::Tell(reason) => error(packet, reason, 0, ERROR),
                }
            });
        }
        for at in 0..self.settled.len() {
            self.release(cx, self.settled[at]);
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let Some((order, ways)) = self.orders.get(self.kept).copied() else {
            return cx.discard(DropReason::FilterFragmentRefused, packet);
        };
        self.kept += 1;
        match order {
            Order::Wait(token) => {
                let hold_ns = self.rules.get(cx.reader).times.fragment_ms * 1_000_000;
                // Its first fragment may have come later in the same burst.
                self.resume(cx, token, cx.now_ns + hold_ns, (packet, ways));
            }
            Order::Hand(worker) => self.hand_over(cx, worker, (packet, ways)),
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        self.take_over(cx);
        while let Some((packet, _)) = self.held.take_over(now_ns) {
            cx.discard(DropReason::FilterFragmentTimeout, packet);
        }
        if let Some(next_ns) = self.held.next_ns() {
            cx.wake_at(next_ns);
        }
        let Some(seat) = &mut self.seat else { return };
        if now_ns.saturating_sub(self.shown_ns) >= SHOW_NS {
            self.shown_ns = now_ns;
            let buckets = seat.filter.states().buckets().div_ceil(STEPS);
            seat.filter.reclaim(now_ns / 1_000_000, buckets);
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
        self.held.drain().for_each(|(packet, _)| pool.free(packet));
        self.lanes.surrender(pool, |(packet, _)| packet);
        // The last burst's numbers, too.
        if let Some(seat) = &mut self.seat {
            seat.show();
        }
    }
}
