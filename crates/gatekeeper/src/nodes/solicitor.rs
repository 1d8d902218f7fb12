//! `solicitor`: requests wait here for the part of the link that is theirs, the most urgent first.
//!
//! ```text
//! gate --label: Tag (DSCP = level)--> [ 64 levels, bounded ] --a rate that all workers share--> encapsulate
//!                                            |
//!            request-queue-full, request-evicted: the lowest level gives way, its last comer first
//! ```
//!
//! * Bytes are counted as they will be on an Ethernet, encapsulated: 20 or 40 more than the packet has, behind a header of
//!   14 (a VLAN tag towards the Grantor is not counted), with preamble, checksum and gap.
//! * Each worker has its own queue and draws on the one [`Budget`]: what one leaves the others may use. So priority holds
//!   within a worker; between workers it holds as far as RSS spreads flows evenly, and under a flood it does.
//! * Nothing is sent while a burst is processed: what may go goes once per turn ([`Node::tick`]), and is encapsulated only
//!   then. A worker without packets wakes when the next request may go.
//! * In a flood, arrivals that would be refused are dropped at once: neither kept nor looked at
//!   (`examples/solicitor_flood.rs` measures it). Kept packets are the pool's: `memory.frames` must hold `capacity` more
//!   than the ports need, for each worker.
//!
//! * A sample of what is dropped goes where `gate top` looks ([`crate::top`]); of requests whose flow found no room, those that leave are noted
//!   ([`crate::unplaced`]).
//!
//! Outputs: `encapsulate4`, `encapsulate6`, by the packet's family: both wait in one queue.

use crate::family::Gated;
use crate::tag::{Tag, UNPLACED};
use crate::top::Refused;
use crate::unplaced::Unplaced;
use std::sync::Arc;
use tidemill_burst::{BURST, DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::queue::{Board, Budget, Levels, Purse, Requests, Shown, wire_bytes};
use tidemill_wire::{ethernet, ipv4, ipv6};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 2] = ["encapsulate4", "encapsulate6"];

/// What workers show of their requests: counters for each level.
pub type SolicitorBoard = Board<Levels>;

/// The share of the link that requests have (Fu 2020, 4.3.2).
pub const SHARE: f64 = 0.05;

/// What may go at once, in time at the requests' rate: workers come round more often than that.
const BURST_NS: u64 = 1_000_000;

/// The budget of all workers' solicitors: `share` (0 to 1) of a link of `link_bits_per_s`.
pub fn budget(link_bits_per_s: u64, share: f64) -> Arc<Budget> {
    Arc::new(Budget::with_burst_ns((link_bits_per_s as f64 * share) as u64, BURST_NS))
}

/// What a worker keeps beside its requests.
pub(crate) struct Notes {
    pub(crate) refused: Refused,
    pub(crate) unplaced: Arc<Unplaced>,
}

impl Notes {
    /// A request leaves whose flow found no room.
    fn leaves(&self, packet: &Packet) {
        let ip = ip(packet);
        if output(packet) == 0 && ip.len() >= ipv4::HEADER_LEN {
            let (source, destination) = u32::pair(ip);
            self.unplaced.note(source, destination);
        } else if ip.len() >= ipv6::HEADER_LEN {
            let (source, destination) = u128::pair(ip);
            self.unplaced.note(source, destination);
        }
    }
}

/// The node.
pub struct Solicitor {
    requests: Requests<Packet>,
    purse: Purse,
    shown: Shown<Levels>,
    notes: Option<Box<Notes>>,
}

impl Solicitor {
    /// The node of one worker, with room for `capacity` requests.
    pub fn new(capacity: usize, budget: Arc<Budget>, board: &SolicitorBoard) -> Self {
        let (requests, purse) = (Requests::new(capacity), Purse::new(budget));
        Solicitor { requests, purse, shown: board.register(), notes: None }
    }

    /// The same, and notes what it drops and what leaves.
    pub(crate) fn with_notes(self, notes: Option<Box<Notes>>) -> Self {
        Solicitor { notes, ..self }
    }
}

/// A packet from its IP header on.
fn ip(packet: &Packet) -> &[u8] {
    packet.data().get(usize::from(packet.l3)..).unwrap_or_default()
}

/// The number of a packet's output.
fn output(packet: &Packet) -> u8 {
    let ip = Some(ip(packet)).filter(|ip| !ip.is_empty());
    u8::from(ip.map(ipv4::version) != Some(4))
}

/// What a packet will take on the wire when it is encapsulated.
fn encapsulated(packet: &Packet) -> u64 {
    let outer = [ipv4::HEADER_LEN, ipv6::HEADER_LEN][usize::from(output(packet))];
    wire_bytes(ethernet::HEADER_LEN + outer + packet.len().saturating_sub(packet.l3.into()))
}

impl Node for Solicitor {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            *verdict = match self.requests.admits(Tag::of(packet.label).dscp) {
                true => Verdict::Keep,
                false => {
                    if let Some(notes) = &mut self.notes {
                        notes.refused.dropped(|| ip(packet));
                    }
                    Verdict::Drop(DropReason::RequestQueueFull)
                }
            };
        }
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let (level, bytes) = (Tag::of(packet.label).dscp, encapsulated(&packet));
        if let Some((reason, packet)) = self.requests.push(cx.now_ns, level, bytes, packet) {
            if let Some(notes) = &mut self.notes {
                notes.refused.dropped(|| ip(&packet));
            }
            cx.discard(reason, packet);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if !self.requests.is_empty() {
            self.purse.draw(cx.now_ns, self.requests.waiting_bytes());
            for _ in 0..BURST {
                if !self.purse.has_any() {
                    break;
                }
                let Some((_, bytes, packet)) = self.requests.pop(cx.now_ns) else { break };
                self.purse.spend(bytes);
                if packet.label & UNPLACED != 0
                    && let Some(notes) = &self.notes
                {
                    notes.leaves(&packet);
                }
                cx.release(output(&packet), packet);
            }
            let more = !self.requests.is_empty();
            self.purse.settle(cx.now_ns, more);
            if more {
                cx.wake_at(self.purse.due_ns(cx.now_ns));
            }
        }
        if self.shown.is_due(cx.now_ns) {
            self.shown.show(cx.now_ns, self.requests.levels());
        }
        if let Some(at_ns) = self.notes.as_mut().and_then(|notes| notes.refused.tick(cx.now_ns)) {
            cx.wake_at(at_ns);
        }
    }

    fn surrender(&mut self, pool: &mut Pool) {
        self.shown.end(self.requests.levels());
        self.requests.surrender().for_each(|packet| pool.free(packet));
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        Some(format!("level {}, {} wait", Tag::of(packet.label).dscp, self.requests.len()))
    }
}
