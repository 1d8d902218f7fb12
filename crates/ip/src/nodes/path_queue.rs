//! `queue:PORT`: the queue management of a Gatekeeper system's path (Fu 2020, 4.3.4 and figure 4.2), in front of a port.
//!
//! ```text
//!                  all else                  [ operational: first in, first out ]     5 % is kept for it
//! packets by the
//! outer header's ->  DSCP 3 to 63, IP in IP  [ requests: 64 levels, bounded ]         5 % at most          --> PORT
//!                    DSCP 1 and 2, no ND     [ granted: RED queues by destination ]   what is left, 90 to 100 %
//! ```
//!
//! **Who goes next**, whenever the link has room: operational packets within their share, then requests within theirs, then
//! granted packets (in turn, by bytes), then further operational ones. So each of the first two has its share whatever the
//! others do, granted packets have at least what is left of the link (95 % with one of the others idle, 90 % with both
//! busy), and what nobody uses goes to granted and operational packets; never to requests.
//!
//! * A packet that finds nothing of its kind waiting and room on the link passes at once, untouched by RED (an empty queue is
//!   as good as idle). Requests always wait for the turn's end, so that the highest of a burst goes first.
//! * A request is always an outer packet: protocol 4, next header 41, or that behind a fragment header. What else has such a code point
//!   (46 for voice; 48 for routing protocols, ICMP errors, and decisions and probes of ours) is operational, as in the paper. Neighbor
//!   discovery is known by its messages, whatever its DSCP. Codes 1 and 2 on other traffic are taken for granted packets.
//! * **Code points are believed**: who can send by this link takes what class he likes. Our gate clears those of what it routes from the front (`gatekeeper.keep_dscp`); edges
//!   without a gate have to. What has none is operational, so what is routed past the Grantors shares that class, its 5 % and its queue, with ARP and all else.
//! * The shares are budgets ([`Budget`]) that the port's queues of all workers draw on, in bytes on the wire. What is within
//!   a share is charged to the link and never refused by it; the others wait until that is made up for. So over any time `t`
//!   requests take at most `burst + 5 % rate t` and a packet per worker, and the link at most `rate t` and the three bursts,
//!   and a packet per worker. Bursts are [`BURST_NS`] at the link's rate, [`SHARE_BURST_NS`] at a share's, and two long
//!   packets at least.
//! * Order: packets of one class and destination never overtake each other, also when the hash's seed changes (see
//!   [`Granted`]); requests of one level neither; a higher level overtakes. Between workers there is no order.
//! * A worker that has nothing else to do wakes when the next packet may go. While packets go at short intervals it polls,
//!   as it does while packets come in.
//! * A full class turns away: `operational-queue-full`, `request-queue-full`, `granted-queue-full`; `request-evicted` gave way
//!   to a higher level; `red-drop` is RED's.
//!
//! **Memory**: what waits is the pool's, up to [`PathQueueOptions::packets`] frames for each port with a queue and each worker;
//! `memory.frames` must have room for these on top of what ports and rings hold. Nothing is allocated while packets flow.
//!
//! Departures from the figure: the share of operational packets is taken from what granted packets could have (5 + 5 + 95 is
//! more than a link has); packets waiting longer than others are not aged; priorities hold within a worker.
//!
//! Randomness comes from a seed that is handed in; the same packets at the same times then have the same fates, so a run on a
//! capture gives the same output every time, and its record is replayed exactly. Not so that of a run by the wall clock: in which turns
//! in which nothing but time passed the queue was looked at is in no record.
//!
//! Output: `out`.

use crate::queue::{
    Board, Budget, ClassStats, Granted, GrantedOptions, Levels, Purse, Requests, Shown, Sum, wire_bytes,
};
use std::collections::VecDeque;
use std::sync::Arc;
use tidemill_burst::{BURST, DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, Protocol, icmpv6, ipv4, ipv6};

/// The output's name.
pub const OUTPUTS: [&str; 1] = ["out"];

/// What may go at once, in time at the link's rate: workers come round more often than that.
pub const BURST_NS: u64 = 200_000;
/// The same of a share, at its rate.
pub const SHARE_BURST_NS: u64 = 1_000_000;

/// The most packets that leave in one turn.
const MOST: usize = 4 * BURST;

/// What a port's queue is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathQueueOptions {
    /// The link's rate.
    pub bits_per_s: u64,
    /// What is kept for operational packets, 0 to 1.
    pub operational_share: f64,
    /// What requests have at most, 0 to 1.
    pub request_share: f64,
    /// Operational packets that may wait, on each worker.
    pub operational: usize,
    /// Requests that may wait, on each worker.
    pub requests: usize,
    /// Granted packets, on each worker.
    pub granted: GrantedOptions,
}

impl PathQueueOptions {
    /// Packets that may wait on each worker.
    pub fn packets(&self) -> usize {
        self.operational + self.requests + self.granted.capacity
    }
}

/// The budgets that the queues of one port share.
#[derive(Debug, Clone)]
pub struct PathBudgets {
    link: Arc<Budget>,
    operational: Arc<Budget>,
    requests: Arc<Budget>,
}

impl PathBudgets {
    /// For a port of which all workers have a queue.
    pub fn new(options: &PathQueueOptions) -> Self {
        let part = |share: f64| {
            let bits_per_s = (options.bits_per_s as f64 * share) as u64;
            Arc::new(Budget::with_burst_ns(bits_per_s, SHARE_BURST_NS))
        };
        PathBudgets {
            link: Arc::new(Budget::with_burst_ns(options.bits_per_s, BURST_NS)),
            operational: part(options.operational_share),
            requests: part(options.request_share),
        }
    }
}

/// What an operator sees of a port's queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Operational packets.
    pub operational: ClassStats,
    /// Requests, by level.
    pub requests: Levels,
    /// Granted packets.
    pub granted: ClassStats,
}

impl Clone for PathStats {
    fn clone(&self) -> Self {
        PathStats { operational: self.operational, requests: self.requests.clone(), granted: self.granted }
    }

    // Copied on the packet path: nothing must be allocated.
    fn clone_from(&mut self, source: &Self) {
        (self.operational, self.granted) = (source.operational, source.granted);
        self.requests.clone_from(&source.requests);
    }
}

impl Sum for PathStats {
    fn add(&mut self, other: &Self) {
        self.operational.add(&other.operational);
        self.requests.add(&other.requests);
        self.granted.add(&other.granted);
    }
}

/// Where the workers of one port show their counters.
pub type PathBoard = Board<PathStats>;

struct Waiting {
    packet: Packet,
    since_ns: u64,
    bytes: u32,
}

/// The node.
pub struct PathQueue {
    operational: VecDeque<Waiting>,
    most_operational: usize,
    operational_stats: ClassStats,
    requests: Requests<Packet>,
    granted: Granted<Packet>,
    /// Of a burst at work: operational packets that will wait, and granted ones that ask to.
    coming: (usize, usize),
    link: Purse,
    operational_share: Purse,
    request_share: Purse,
    shown: Shown<PathStats>,
    stats: PathStats,
}

/// What a packet is, also as its `label` from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Operational,
    Request(u8),
    /// With its queue.
    Granted(u32),
}

impl Class {
    fn label(self) -> u32 {
        match self {
            Class::Operational => 0,
            Class::Request(level) => 1 << 30 | u32::from(level),
            Class::Granted(queue) => 2 << 30 | queue,
        }
    }

    fn of_label(label: u32) -> Self {
        match label >> 30 {
            1 => Class::Request(label as u8),
            2 => Class::Granted(label & 0x3fff_ffff),
            _ => Class::Operational,
        }
    }
}

/// The first code point of requests.
const REQUESTS: u8 = 3;

/// DSCP and destination of a frame's IP packet; `None` if it is operational whatever they are.
#[inline]
fn dscp(frame: &[u8]) -> Option<(u8, u128)> {
    let l2 = L2::parse(frame).ok()?;
    let ip = frame.get(l2.l3_offset..)?;
    match l2.ethertype {
        EtherType::IPV4 if ip.len() >= 20 => {
            let dscp = ip[1] >> 2;
            let may = dscp < REQUESTS || ipv4::protocol(ip) == Protocol::IPV4;
            may.then(|| (dscp, ipv4::dst_u32(ip).into()))
        }
        EtherType::IPV6 if ip.len() >= 40 => {
            let dscp = (ip[0] & 15) << 2 | ip[1] >> 6;
            if dscp >= REQUESTS {
                let is_outer = match ipv6::next_header(ip) {
                    Protocol::IPV6 => true,
                    Protocol::FRAGMENT => ip.get(ipv6::HEADER_LEN) == Some(&Protocol::IPV6.0),
                    _ => false,
                };
                return is_outer.then(|| (dscp, ipv6::dst_u128(ip)));
            }
            // Neighbor discovery never comes through a router: its hop limit is 255 (RFC 4861 11.2).
            let neighbors = ipv6::next_header(ip) == Protocol::ICMPV6
                && ipv6::hop_limit(ip) == 255
                && ip.get(40).is_some_and(|kind| {
                    (icmpv6::kind::ROUTER_SOLICIT..=icmpv6::kind::REDIRECT).contains(kind)
                });
            (!neighbors).then(|| (dscp, ipv6::dst_u128(ip)))
        }
        _ => None,
    }
}

impl PathQueue {
    /// The node of one worker; `seed` begins all that is random.
    pub fn new(options: &PathQueueOptions, budgets: &PathBudgets, board: &PathBoard, seed: u64) -> Self {
        PathQueue {
            operational: VecDeque::with_capacity(options.operational),
            most_operational: options.operational,
            operational_stats: ClassStats::default(),
            requests: Requests::new(options.requests),
            granted: Granted::new(options.granted, seed),
            coming: (0, 0),
            link: Purse::new(budgets.link.clone()),
            operational_share: Purse::new(budgets.operational.clone()),
            request_share: Purse::new(budgets.requests.clone()),
            shown: board.register(),
            stats: PathStats::default(),
        }
    }

    #[inline]
    fn class(&self, packet: &Packet) -> Class {
        match dscp(packet.data()) {
            None | Some((0, _)) => Class::Operational,
            Some((1 | 2, destination)) => Class::Granted(self.granted.queue(destination)),
            Some((level, _)) => Class::Request(level),
        }
    }

    /// Whether nothing waits that another packet could overtake.
    #[inline]
    fn is_clear(&self) -> bool {
        self.coming == (0, 0) && self.operational.is_empty() && self.granted.is_empty()
    }

    fn arrive(&mut self, class: Class, bytes: u64) -> Verdict {
        if let Class::Request(level) = class {
            let admitted = self.requests.admits(level);
            return if admitted { Verdict::Keep } else { Verdict::Drop(DropReason::RequestQueueFull) };
        }
        let passes = self.is_clear() && self.link.has_any();
        if passes {
            self.link.spend(bytes);
        }
        if matches!(class, Class::Granted(_)) {
            if passes {
                self.granted.pass(bytes);
                return Verdict::Next(0);
            }
            self.coming.1 += 1;
            return Verdict::Keep;
        }
        self.operational_stats.arrived += 1;
        if passes {
            self.operational_stats.note_sent(bytes, 0);
            return Verdict::Next(0);
        }
        if self.operational.len() + self.coming.0 >= self.most_operational {
            self.operational_stats.refused += 1;
            return Verdict::Drop(DropReason::OperationalQueueFull);
        }
        self.coming.0 += 1;
        Verdict::Keep
    }

    /// Takes the packet that goes next, if one may go.
    fn next(&mut self, now_ns: u64) -> Option<Packet> {
        let room = self.link.has_any();
        if self.operational_share.has_any() && !self.operational.is_empty() {
            return self.next_operational(now_ns, true);
        }
        if self.request_share.has_any()
            && let Some((_, bytes, packet)) = self.requests.pop(now_ns)
        {
            self.request_share.spend(bytes);
            self.link.spend(bytes);
            return Some(packet);
        }
        if room && let Some((bytes, packet)) = self.granted.pop(now_ns) {
            self.link.spend(bytes);
            return Some(packet);
        }
        if room { self.next_operational(now_ns, false) } else { None }
    }

    fn next_operational(&mut self, now_ns: u64, of_share: bool) -> Option<Packet> {
        let Waiting { packet, since_ns, bytes } = self.operational.pop_front()?;
        let bytes = u64::from(bytes);
        if of_share {
            self.operational_share.spend(bytes);
        }
        self.link.spend(bytes);
        self.operational_stats.note_unwaiting(bytes);
        self.operational_stats.note_sent(bytes, now_ns.saturating_sub(since_ns));
        Some(packet)
    }

    fn release(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        let operational = self.operational_stats.waiting_bytes;
        self.operational_share.draw(now_ns, operational);
        self.request_share.draw(now_ns, self.requests.waiting_bytes());
        self.link.draw(now_ns, operational + self.granted.waiting_bytes());
        for _ in 0..MOST {
            let Some(packet) = self.next(now_ns) else { break };
            cx.release(0, packet);
        }
        let operational = !self.operational.is_empty();
        let requests = !self.requests.is_empty();
        let anybody = operational || !self.granted.is_empty();
        self.operational_share.settle(now_ns, operational);
        self.request_share.settle(now_ns, requests);
        self.link.settle(now_ns, anybody);
        let purses =
            [(operational, &self.operational_share), (requests, &self.request_share), (anybody, &self.link)];
        for (_, purse) in purses.into_iter().filter(|(waits, _)| *waits) {
            cx.wake_at(purse.due_ns(now_ns));
        }
    }

    fn sum_up(&mut self) {
        self.stats.operational = self.operational_stats;
        self.stats.requests.clone_from(self.requests.levels());
        self.stats.granted = *self.granted.stats();
    }
}

impl Node for PathQueue {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        if self.is_clear() {
            // In bulk; what is not used goes back in this turn.
            let bytes: u64 = burst.iter().map(|packet| wire_bytes(packet.len())).sum();
            self.link.draw(cx.now_ns, bytes);
        }
        super::each(burst, verdicts, |packet| {
            let class = self.class(packet);
            packet.label = class.label();
            self.arrive(class, wire_bytes(packet.len()))
        });
    }

    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let (now_ns, bytes) = (cx.now_ns, wire_bytes(packet.len()));
        let gone = match Class::of_label(packet.label) {
            Class::Operational => {
                self.coming.0 = self.coming.0.saturating_sub(1);
                self.operational_stats.note_waiting(bytes);
                self.operational.push_back(Waiting { packet, since_ns: now_ns, bytes: bytes as u32 });
                None
            }
            Class::Request(level) => self.requests.push(now_ns, level, bytes, packet),
            Class::Granted(queue) => {
                self.coming.1 = self.coming.1.saturating_sub(1);
                self.granted.push(now_ns, queue, bytes, packet)
            }
        };
        if let Some((reason, packet)) = gone {
            cx.discard(reason, packet);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.is_clear() && self.requests.is_empty() {
            // What was drawn for packets that passed.
            self.link.settle(cx.now_ns, false);
        } else {
            self.release(cx);
        }
        self.granted.reseed(cx.now_ns);
        if self.shown.is_due(cx.now_ns) {
            self.sum_up();
            self.shown.show(cx.now_ns, &self.stats);
        }
    }

    fn surrender(&mut self, pool: &mut Pool) {
        self.sum_up();
        self.shown.end(&self.stats);
        self.operational.drain(..).for_each(|waiting| pool.free(waiting.packet));
        self.requests.surrender().for_each(|packet| pool.free(packet));
        self.granted.surrender().for_each(|packet| pool.free(packet));
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        Some(match Class::of_label(packet.label) {
            Class::Operational => format!("operational, {} wait", self.operational.len()),
            Class::Request(level) => format!("request of level {level}, {} wait", self.requests.len()),
            Class::Granted(queue) => {
                format!("granted, queue {queue}, {} wait in all", self.granted.stats().waiting)
            }
        })
    }
}
