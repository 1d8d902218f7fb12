//! The decision: one worker's tables, and what they say about a burst. No packets, graphs, clocks or threads: bytes, times and settings are
//! handed in.
//!
//! Source: Tokusashi 2019, chapter 5 (mitiKV). A flow is what the tuple mode makes of a UDP packet from a protocol's port, outside to inside.
//!
//! ```text
//!                   an answer comes that nobody asked for
//!          (nothing) ------------------------------------> suspected ---- suspect_s without a packet ----> (nothing)
//!            |    ^                                         |     |
//!  a question|    | query_s without                a question     | the victim's ICMP port unreachable comes from inside,
//!  goes out  |    | a question                      goes out|     | and everything about it is right
//!            v    |                                         |     v
//!          solicited <--------------------------------------+   filtered: dropped until expiry_s have passed, then (nothing)
//!            ^                                                    |
//!            +------------- a question goes out (tuple = 4, 3) ---+
//! ```
//!
//! The paper has suspected and filtered. **Solicited is ours**: a reflection is an answer that nobody asked for. Who asked is never suspected, and
//! no ICMP message, forged or late, can have the answers filtered.
//!
//! * **A question lifts a rule** where the tuple is that of the conversation (4), or all that the two have to do with each other in
//!   that protocol (3): whoever asks wants the answer, and without this an attacker could keep a host from its own resolver by reflecting off just
//!   that. It speaks for its own address only. With 2 a question makes its pair solicited, but ends no rule: the rule may be about another
//!   protocol. With 1 questions do not count: one host's question would switch the protection off for all others.
//! * **An ICMP message counts** if it comes from inside, is whole, adds up, is about a UDP packet (not a later fragment) from a protocol's port, goes from that
//!   packet's destination to its source, is not on the allow-list, is within its sender's rate, and its flow is suspected. It is passed on in any case.
//! * **Within one burst** answers and questions are judged first, in order, then ICMP messages, then later fragments.
//! * **A full table**: a new flow may take the place of one whose time is over, or of a suspected one; a filtered or solicited one stays (paper, 5.3.3). At most
//!   32 such replacements a burst: a flood of new flows does not make the known ones slow.
//! * **Later fragments** have no ports: those of a datagram whose first fragment was dropped are dropped for 3 seconds.
//! * **Several workers** have a table each. Questions go to the others too, and so do ICMP messages that count, that are about nothing known, or that are about a
//!   flow which has a rule here and is suspected by another: its packets still pass there. Questions are
//!   read before each burst: they are written before they leave, so no answer overtakes them. A question that a full mailbox had no room for is told again
//!   with the flow's next one. No rule is made without a look into the others' tables: what one worker knows to be asked for, no message has another filter,
//!   whatever letters were lost.
//! * **With an offload** a worker takes the rule that a question lifts out there, too, before the question leaves: 64 a burst at most, about a microsecond each;
//!   of the others the offload hears from the control side, a millisecond later (`offload-late`). A rule takes a message within `icmp_rate` to make, so
//!   who wants to have us make these calls has to have rules made first, each for one of them.

use crate::counters::{Board, Counter, Counters};
use crate::flows::{Confirmed, Flows, Meta};
use crate::fragments::Fragments;
use crate::mail::{Events, LETTERS, Mailbox, Post, fills};
use crate::offload::{Lift, RuleEvent};
use crate::parse::{FragmentKey, Parsed, parse, plain};
use crate::rates::Rates;
use crate::settings::Settings;
use crate::tuple::{Tuple, TupleKey, WORDS4, WORDS6, key4, key6, ports};
use crate::unreachable::{about, victim};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use tidemill_burst::BURST;
use tidemill_flow::flowtable::FlowReader;
use tidemill_flow::hash::mix;
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;
use tidemill_graph::Waker;
use tidemill_wire::flow::Addresses;

/// The side of the bridge that a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where amplifiers are.
    Outside,
    /// Where victims are.
    Inside,
}

/// The time, and what holds at it.
pub(crate) struct Now<'a> {
    pub(crate) ns: u64,
    pub(crate) s: u32,
    pub(crate) settings: &'a Settings,
}

impl<'a> Now<'a> {
    fn new(ns: u64, settings: &'a Settings) -> Self {
        Now { ns, s: (ns / 1_000_000_000) as u32, settings }
    }
}

/// What both families share.
pub(crate) struct Common {
    pub(crate) counters: Counters,
    pub(crate) fragments: Fragments,
    pub(crate) rates: Rates,
    worker: usize,
    post: Arc<Post>,
    alone: bool,
    events: Option<Arc<Events>>,
    lifter: Option<Box<dyn Lift>>,
    /// Rules that it may take out by itself yet, in this burst.
    lifts_left: u32,
}

/// Rules that one burst, or what the mail brings between two, may take out of the offload.
const LIFTS: u32 = 64;

impl Common {
    /// A packet is kept away, or would be.
    #[inline(always)]
    pub(crate) fn dropped(&mut self, now: &Now<'_>, bytes: u64) {
        let (packets, sum) = if now.settings.dry_run {
            (Counter::WouldDrop, Counter::WouldDropBytes)
        } else {
            (Counter::Dropped, Counter::DroppedBytes)
        };
        self.counters.one(packets);
        self.counters.add(sum, bytes);
    }

    /// A rule has ended.
    pub(crate) fn ended<const W: usize>(&mut self, why: Counter, key: &Key<W>)
    where
        Key<W>: TupleKey,
    {
        self.counters.one(why);
        self.counters.set(Counter::Rules, self.counters.get(Counter::Rules).saturating_sub(1));
        self.tell_rule(RuleEvent::Removed { key: key.tuple() });
    }

    pub(crate) fn tell_rule(&mut self, event: RuleEvent) {
        if let Some(events) = &self.events
            && !events.push(event)
        {
            self.counters.one(Counter::EventsLost);
        }
    }

    /// Takes a rule out of the offload at once, as far as that goes: the control side hears of it in any case, from whoever had the rule.
    pub(crate) fn lift<const W: usize>(&mut self, key: &Key<W>)
    where
        Key<W>: TupleKey,
    {
        let Some(lifter) = &mut self.lifter else { return };
        if self.lifts_left == 0 || !lifter.lift(&key.tuple()) {
            self.counters.one(Counter::OffloadLate);
        }
        self.lifts_left = self.lifts_left.saturating_sub(1);
    }

    /// Whether rules may have to be taken out of an offload.
    pub(crate) fn lifts(&self) -> bool {
        self.lifter.is_some()
    }

    /// Tells the other workers of a question; false if not all had room for it.
    pub(crate) fn tell_query<const W: usize>(&mut self, key: &Key<W>) -> bool
    where
        Key<W>: TupleKey,
    {
        if self.alone {
            return true;
        }
        let lost = self.post.send(self.worker, key.tuple(), |mailbox| &mailbox.queries);
        self.counters.add(Counter::MailLost, lost);
        lost == 0
    }

    fn tell_confirmation(&mut self, tuple: Tuple) {
        if !self.alone {
            let lost = self.post.send(self.worker, tuple, |mailbox| &mailbox.confirmations);
            self.counters.add(Counter::MailLost, lost);
        }
    }
}

/// What ties workers and the control side together.
pub(crate) struct Ties {
    pub(crate) worker: usize,
    pub(crate) post: Arc<Post>,
    pub(crate) events: Option<Arc<Events>>,
    pub(crate) board: Board,
}

/// A worker's tables, read by others.
pub(crate) type Readers = (FlowReader<WORDS4, [u64; 2]>, FlowReader<WORDS6, [u64; 2]>);

/// One worker's half of the mitigator. See the [module](self).
pub struct Mitigator {
    v4: Flows<WORDS4>,
    v6: Flows<WORDS6>,
    common: Common,
    board: Board,
    icmp: Vec<(u8, u16)>,
    later: Vec<(u8, FragmentKey)>,
    generation: u64,
}

/// Letters of each kind that a worker reads between two bursts; where its mailbox is more than half full, as many as fit into one at most.
const LETTERS_READ: usize = 512;

impl Mitigator {
    /// A worker's tables: room for `entries` flows of each family, hashed with this secret.
    ///
    /// # Errors
    /// Tables that are too large.
    pub fn new(entries: usize, secret: u128) -> Result<Self, SizeError> {
        let ties = Ties { worker: 0, post: Post::new(1), events: None, board: Board::default() };
        Self::tied(entries, secret, ties)
    }

    pub(crate) fn tied(entries: usize, secret: u128, ties: Ties) -> Result<Self, SizeError> {
        let Ties { worker, post, events, board } = ties;
        // Of one secret, as many as there are tables, for each worker.
        let mut drawn = worker as u64 * 4;
        let mut draw = || {
            drawn += 1;
            let (low, high) = (secret as u64 ^ mix(drawn), (secret >> 64) as u64 ^ mix(!drawn));
            u128::from(mix(low)) << 64 | u128::from(mix(high))
        };
        let common = Common {
            counters: Counters::default(),
            fragments: Fragments::new(draw()),
            rates: Rates::new(draw()),
            worker,
            alone: post.of(1).is_none(),
            post,
            events,
            lifter: None,
            lifts_left: 0,
        };
        Ok(Mitigator {
            v4: Flows::new(entries, draw())?,
            v6: Flows::new(entries, draw())?,
            common,
            board,
            icmp: Vec::with_capacity(BURST),
            later: Vec::with_capacity(BURST),
            generation: 0,
        })
    }

    /// Bytes of memory for each flow that there is room for, of IPv4 and of IPv6, tables alone.
    pub fn bytes_per_entry() -> (f64, f64) {
        let slots = 20.0 / 19.0;
        (Flows::<WORDS4>::BYTES_PER_SLOT * slots, Flows::<WORDS6>::BYTES_PER_SLOT * slots)
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.common.counters
    }

    /// Has it look into the other workers' tables.
    pub(crate) fn heed(&mut self, others: impl Iterator<Item = Readers>) {
        let (v4, v6) = others.unzip();
        self.v4.heed(v4);
        self.v6.heed(v6);
    }

    /// Has it take the rules that questions lift out of the offload by itself, its own and those of other workers.
    pub(crate) fn set_lifter(&mut self, lifter: Box<dyn Lift>) {
        self.common.lifter = Some(lifter);
    }

    /// Has it woken when its mailbox fills.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        self.mailbox().into_iter().for_each(|mailbox| mailbox.wake_with(waker));
    }

    /// Whether letters wait for the next [`tick`](Self::tick).
    pub(crate) fn has_mail(&self) -> bool {
        let waits = |mailbox: &Mailbox| !mailbox.queries.is_empty() || !mailbox.confirmations.is_empty();
        !self.common.alone && self.mailbox().is_some_and(waits)
    }

    pub(crate) fn readers(&self) -> Readers {
        (self.v4.reader(), self.v6.reader())
    }

    /// Decides on a burst of up to [`BURST`] frames: `look` tells a frame's side and bytes, `dropped` is told the numbers of those that are to be
    /// dropped; all others pass as they are. In a dry run it is told none. What is beyond [`BURST`] passes unseen.
    #[inline]
    pub fn decide<T>(
        &mut self,
        settings: &Settings,
        now_ns: u64,
        burst: &[T],
        look: impl Fn(&T) -> (Side, &[u8]),
        mut dropped: impl FnMut(usize),
    ) {
        let now = Now::new(now_ns, settings);
        let burst = &burst[..burst.len().min(BURST)];
        self.common.lifts_left = LIFTS;
        self.hear(&now);
        let (mut answers, mut queries) = (0, 0);
        for (at, item) in burst.iter().enumerate() {
            let (side, frame) = look(item);
            let at = at as u8;
            let Some(p) = plain(frame) else {
                self.odd(&now, at, side, frame);
                continue;
            };
            match side {
                Side::Outside if settings.is_protocol(p.source_port) => {
                    answers += 1;
                    let key = key4(p.src, p.dst, ports(p.source_port, p.destination_port), &settings.mask4);
                    self.v4.push(key, Meta { at, query: false, first: false });
                }
                Side::Inside if settings.is_protocol(p.destination_port) => {
                    queries += 1;
                    if settings.heeds_questions() {
                        let key =
                            key4(p.dst, p.src, ports(p.destination_port, p.source_port), &settings.mask4);
                        self.v4.push(key, Meta { at, query: true, first: false });
                    }
                }
                _ => {}
            }
        }
        self.common.counters.add(Counter::Answers, answers);
        self.common.counters.add(Counter::Queries, queries);
        let frame = |at: u8| look(&burst[usize::from(at)]).1;
        self.v4.run(&mut self.common, &now, &frame, &mut dropped);
        self.v6.run(&mut self.common, &now, &frame, &mut dropped);
        if !self.icmp.is_empty() {
            for n in 0..self.icmp.len() {
                let (at, offset) = self.icmp[n];
                self.message(&now, frame(at).get(usize::from(offset)..).unwrap_or_default());
            }
            self.icmp.clear();
        }
        if !self.later.is_empty() {
            for n in 0..self.later.len() {
                let (at, key) = self.later[n];
                if self.common.fragments.goes(&key, now.s) {
                    self.common.dropped(&now, frame(at).len() as u64);
                    if !settings.dry_run {
                        self.common.counters.one(Counter::DroppedFragments);
                        dropped(at.into());
                    }
                }
            }
            self.later.clear();
        }
    }

    /// Notes a frame that is not plain.
    #[inline(never)]
    fn odd(&mut self, now: &Now<'_>, at: u8, side: Side, frame: &[u8]) {
        let counters = &mut self.common.counters;
        match (parse(frame), side) {
            (Parsed::Other, _) => {}
            (Parsed::Malformed, _) => counters.one(Counter::Malformed),
            (Parsed::Udp { tuple, fragment }, Side::Outside) => {
                if now.settings.is_protocol(tuple.source_port) {
                    counters.one(Counter::Answers);
                    self.note(now, tuple, Meta { at, query: false, first: fragment.is_some() });
                }
            }
            (Parsed::Udp { tuple, .. }, Side::Inside) => {
                if now.settings.is_protocol(tuple.destination_port) {
                    counters.one(Counter::Queries);
                    if now.settings.heeds_questions() {
                        self.note(now, reversed(tuple), Meta { at, query: true, first: false });
                    }
                }
            }
            (Parsed::Later(key), Side::Outside) => self.later.push((at, key)),
            (Parsed::Later(_), Side::Inside) => {}
            (Parsed::Unreachable { .. }, Side::Outside) => counters.one(Counter::IcmpOutside),
            (Parsed::Unreachable { at: offset }, Side::Inside) => self.icmp.push((at, offset as u16)),
        }
    }

    fn note(&mut self, now: &Now<'_>, tuple: Tuple, meta: Meta) {
        let ports = ports(tuple.source_port, tuple.destination_port);
        match tuple.addresses {
            Addresses::V4 { src, dst } => self.v4.push(key4(src, dst, ports, &now.settings.mask4), meta),
            Addresses::V6 { src, dst } => self.v6.push(key6(src, dst, ports, &now.settings.mask6), meta),
        }
    }

    /// A port unreachable from inside; `packet` begins with its IP header.
    fn message(&mut self, now: &Now<'_>, packet: &[u8]) {
        self.common.counters.one(Counter::IcmpSeen);
        let refused = match about(packet) {
            Err(reason) => Some(reason),
            Ok(tuple) if !now.settings.is_protocol(tuple.source_port) => Some(Counter::IcmpOtherProtocol),
            Ok(tuple) if now.settings.allow.find(&tuple).is_some() => Some(Counter::IcmpAllowed),
            Ok(tuple) => {
                let confirmed = self.confirm(now, tuple);
                let tells = match confirmed {
                    Confirmed::Filtered | Confirmed::Refused(Counter::IcmpUnknown) => true,
                    // Who suspects it had nothing of it when it was told, and lets it pass. Where nobody does, there is nothing to say.
                    Confirmed::Refused(Counter::IcmpAlready) => self.others_suspect(now, tuple),
                    Confirmed::Refused(_) => false,
                };
                if tells {
                    self.common.tell_confirmation(tuple);
                }
                match confirmed {
                    Confirmed::Filtered => None,
                    Confirmed::Refused(reason) => Some(reason),
                }
            }
        };
        if let Some(reason) = refused {
            self.common.counters.one(reason);
        }
    }

    fn confirm(&mut self, now: &Now<'_>, tuple: Tuple) -> Confirmed {
        let (common, ports) = (&mut self.common, ports(tuple.source_port, tuple.destination_port));
        let victim = victim(tuple.addresses);
        match tuple.addresses {
            Addresses::V4 { src, dst } => {
                self.v4.confirm(common, now, &key4(src, dst, ports, &now.settings.mask4), victim)
            }
            Addresses::V6 { src, dst } => {
                self.v6.confirm(common, now, &key6(src, dst, ports, &now.settings.mask6), victim)
            }
        }
    }

    /// Whether another worker suspects this flow.
    fn others_suspect(&mut self, now: &Now<'_>, tuple: Tuple) -> bool {
        let ports = ports(tuple.source_port, tuple.destination_port);
        match tuple.addresses {
            Addresses::V4 { src, dst } => {
                self.v4.others_suspect(now, &key4(src, dst, ports, &now.settings.mask4))
            }
            Addresses::V6 { src, dst } => {
                self.v6.others_suspect(now, &key6(src, dst, ports, &now.settings.mask6))
            }
        }
    }

    /// Takes on a rule of a process before; false if there is no room, or the allow-list forbids it.
    pub(crate) fn adopt(&mut self, settings: &Settings, now_ns: u64, tuple: Tuple, expires_ns: u64) -> bool {
        if settings.allow.forbids(&tuple, settings.mode) {
            return false;
        }
        // Ours ends last: whoever asks then finds no rule below that we have forgotten.
        let (now, until_s) = (Now::new(now_ns, settings), expires_ns.div_ceil(1_000_000_000) as u32);
        let (common, ports) = (&mut self.common, ports(tuple.source_port, tuple.destination_port));
        match tuple.addresses {
            Addresses::V4 { src, dst } => {
                self.v4.adopt(common, &now, &key4(src, dst, ports, &settings.mask4), until_s)
            }
            Addresses::V6 { src, dst } => {
                self.v6.adopt(common, &now, &key6(src, dst, ports, &settings.mask6), until_s)
            }
        }
    }

    /// Between bursts: reads the mailbox, takes out what is over, shows the counters.
    pub fn tick(&mut self, settings: &Settings, now_ns: u64) {
        let now = Now::new(now_ns, settings);
        if self.generation != settings.generation {
            self.generation = settings.generation;
            self.v4.recheck();
            self.v6.recheck();
        }
        self.common.lifts_left = LIFTS;
        self.hear(&now);
        if !self.common.alone {
            self.believe(&now);
        }
        self.v4.sweep(&mut self.common, &now);
        self.v6.sweep(&mut self.common, &now);
        self.show();
    }

    /// Reads questions that other workers have seen.
    #[inline]
    fn hear(&mut self, now: &Now<'_>) {
        if !self.common.alone && self.mailbox().is_some_and(|mailbox| !mailbox.queries.is_empty()) {
            self.read_queries(now);
        }
    }

    fn mailbox(&self) -> Option<&Mailbox> {
        self.common.post.of(self.common.worker)
    }

    /// Whether to read one more letter of a queue, of which so many have been read.
    fn reads_on(&self, read: usize, queue: impl Fn(&Mailbox) -> &ArrayQueue<Tuple>) -> bool {
        read < LETTERS_READ || read < LETTERS && self.mailbox().is_some_and(|mailbox| fills(queue(mailbox)))
    }

    #[cold]
    fn read_queries(&mut self, now: &Now<'_>) {
        let mut read = 0;
        while self.reads_on(read, |mailbox| &mailbox.queries) {
            let Some(tuple) = self.mailbox().and_then(|mailbox| mailbox.queries.pop()) else { break };
            read += 1;
            if !now.settings.heeds_questions() {
                continue;
            }
            let (common, ports) = (&mut self.common, ports(tuple.source_port, tuple.destination_port));
            match tuple.addresses {
                Addresses::V4 { src, dst } => {
                    self.v4.query_from_mail(common, now, &key4(src, dst, ports, &now.settings.mask4));
                }
                Addresses::V6 { src, dst } => {
                    self.v6.query_from_mail(common, now, &key6(src, dst, ports, &now.settings.mask6));
                }
            }
        }
    }

    /// Reads messages that other workers have seen.
    fn believe(&mut self, now: &Now<'_>) {
        let mut read = 0;
        while self.reads_on(read, |mailbox| &mailbox.confirmations) {
            let Some(tuple) = self.mailbox().and_then(|mailbox| mailbox.confirmations.pop()) else { break };
            read += 1;
            if self.confirm(now, tuple) == Confirmed::Filtered {
                self.common.counters.one(Counter::MailConfirmed);
            }
        }
    }

    /// Shows the counters to the control side.
    pub(crate) fn show(&mut self) {
        let counters = &mut self.common.counters;
        counters.set(Counter::Flows4, self.v4.len() as u64);
        counters.set(Counter::Flows6, self.v6.len() as u64);
        self.board.show(counters);
    }
}

/// The flow of the answers to a packet.
fn reversed(tuple: Tuple) -> Tuple {
    let addresses = match tuple.addresses {
        Addresses::V4 { src, dst } => Addresses::V4 { src: dst, dst: src },
        Addresses::V6 { src, dst } => Addresses::V6 { src: dst, dst: src },
    };
    let Tuple { source_port, destination_port, .. } = tuple;
    Tuple { addresses, source_port: destination_port, destination_port: source_port }
}
