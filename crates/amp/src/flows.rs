//! The table of one address family: what is known of each flow of answers, and what follows from it.
//!
//! ```text
//! entry    | key: 2 or 5 words | stamp: second of the last packet | word 0: until, status, packets (high) | word 1: packets (low), bytes |
//! word 0   | 63 ... 38: packets >> 16 | 37 ... 34: lifetime | 33, 32: status | 31 ... 0: until, seconds |
//! word 1   | 63 ... 48: packets & 0xffff | 47 ... 0: bytes |
//! ```
//!
//! A suspected flow has no `until`: its stamp says how old the suspicion is. Packets and bytes are those that a filtered flow has lost; 2^48
//! bytes are more than a day at 25 Gb/s. The lifetime is the number of the `expiry_s` that a rule was made with, so that its beginning is known whatever
//! holds now; 0: nobody knows. Of a solicited flow it is 1 if some worker's mailbox had no room for the question: the next one is told again; and its word 1
//! is the second in which the others were told last.

use crate::counters::Counter;
use crate::mitigator::{Common, Now};
use crate::offload::{Hits, RuleEvent};
use crate::parse::{Parsed, parse};
use crate::tuple::{Mode, TupleKey};
use tidemill_burst::BURST;
use tidemill_flow::flowtable::{Flow, FlowReader, FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

/// What an entry holds beside its key.
pub(crate) type State = [u64; 2];

/// What is known of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Answers came that nobody was seen to ask for.
    Suspected,
    /// Somebody inside asked.
    Solicited,
    /// The victim said that nobody listens: its packets are dropped.
    Filtered,
}

impl Status {
    /// One word.
    pub fn text(self) -> &'static str {
        match self {
            Status::Suspected => "suspected",
            Status::Solicited => "solicited",
            Status::Filtered => "filtered",
        }
    }
}

const SUSPECTED: u64 = 0;
const SOLICITED: u64 = 1;
const FILTERED: u64 = 2;

#[inline(always)]
fn status(word: u64) -> u64 {
    word >> 32 & 3
}

#[inline(always)]
fn until(word: u64) -> u32 {
    word as u32
}

/// A rule until then, made with the `expiry_s` of this number.
fn filtered(until_s: u32, lifetime: u8) -> State {
    [u64::from(lifetime & 15) << LIFETIME | FILTERED << 32 | u64::from(until_s), 0]
}

/// Where the number of its `expiry_s` is in a rule's first word, and its packets.
const LIFETIME: u32 = 34;
const PACKETS: u32 = 38;

/// Asked for until then; whether somebody has not been told, and when the others were.
fn solicited(until_s: u32, untold: bool, told_s: u32) -> State {
    [u64::from(untold) << LIFETIME | SOLICITED << 32 | u64::from(until_s), u64::from(told_s)]
}

/// Whether a solicited flow is one that some worker has not been told of.
fn is_untold(word: u64) -> bool {
    word >> LIFETIME & 15 != 0
}

#[inline(always)]
fn holds(word: u64, what: u64, now_s: u32) -> bool {
    status(word) == what && until(word) > now_s
}

/// An entry, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) status: Status,
    /// When it ends, seconds; of a suspected flow the second of its last packet.
    pub(crate) until_s: u32,
    /// The number of the `expiry_s` that a rule was made with.
    pub(crate) lifetime: u8,
    pub(crate) hits: Hits,
}

impl Known {
    pub(crate) fn new(stamp: u32, state: State) -> Self {
        let (status, until_s) = match status(state[0]) {
            SUSPECTED => (Status::Suspected, stamp),
            SOLICITED => (Status::Solicited, until(state[0])),
            _ => (Status::Filtered, until(state[0])),
        };
        let packets = state[0] >> PACKETS << 16 | state[1] >> 48;
        let lifetime = (state[0] >> LIFETIME & 15) as u8;
        let hits = match status {
            Status::Filtered => Hits { packets, bytes: state[1] & ((1 << 48) - 1) },
            Status::Suspected | Status::Solicited => Hits::default(),
        };
        Known { status, until_s, lifetime, hits }
    }

    /// Whether it still counts at this time.
    pub(crate) fn holds(&self, now_s: u32, suspect_s: u32) -> bool {
        match self.status {
            Status::Suspected => now_s.saturating_sub(self.until_s) <= suspect_s,
            Status::Solicited | Status::Filtered => self.until_s > now_s,
        }
    }
}

/// A packet of the burst at hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meta {
    /// Its number in the burst.
    pub(crate) at: u8,
    /// It goes out: a question.
    pub(crate) query: bool,
    /// It is the first fragment of a datagram.
    pub(crate) first: bool,
}

/// What a burst's replacements in a full table may cost: one for each that succeeds, more for each that does not.
const REPLACEMENTS: usize = 32;
const FAILURE: usize = 8;

/// What an ICMP message came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmed {
    /// The flow is filtered from now on.
    Filtered,
    /// It is not, for that reason.
    Refused(Counter),
}

/// The flows of one family, and the packets of the burst at hand that belong to it.
pub(crate) struct Flows<const W: usize> {
    table: FlowTable<W, State>,
    count: usize,
    keys: Box<[Key<W>; BURST]>,
    hashes: Box<[u64; BURST]>,
    outcomes: Box<[Outcome; BURST]>,
    metas: Box<[Meta; BURST]>,
    crowded: Vec<u8>,
    /// The other workers' tables.
    others: Vec<FlowReader<W, State>>,
    swept_ns: u64,
    /// Buckets whose rules have not been held against a new allow-list yet.
    recheck: usize,
}

/// Buckets that one sweep looks at, at most.
const SWEEP: usize = 64;
/// Nanoseconds in which the whole table is swept once.
const SWEEP_NS: u64 = 1_000_000_000;

impl<const W: usize> Flows<W>
where
    Key<W>: TupleKey,
{
    /// Bytes that each flow costs in a full table: see the README.
    pub(crate) const BYTES_PER_SLOT: f64 = FlowTable::<W, State>::BYTES_PER_SLOT;

    pub(crate) fn new(entries: usize, secret: u128) -> Result<Self, SizeError> {
        // Flow tables take new flows up to a load of 0.95 and beyond.
        let slots = entries.saturating_add(entries / 19 + 1);
        Ok(Flows {
            table: FlowTable::new(slots, Keyed::new(secret))?,
            count: 0,
            keys: Box::new([Key([0; W]); BURST]),
            hashes: Box::new([0; BURST]),
            outcomes: Box::new([Outcome::Full; BURST]),
            metas: Box::new([Meta::default(); BURST]),
            crowded: Vec::with_capacity(BURST),
            others: Vec::new(),
            swept_ns: 0,
            recheck: 0,
        })
    }

    pub(crate) fn reader(&self) -> FlowReader<W, State> {
        self.table.reader()
    }

    /// Has it look into other workers' tables: for questions that no letter told of, and, where an offload repeats them, for rules that its questions lift.
    pub(crate) fn heed(&mut self, others: Vec<FlowReader<W, State>>) {
        self.others = others;
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Notes a packet of the burst for [`run`](Self::run).
    #[inline(always)]
    pub(crate) fn push(&mut self, key: Key<W>, meta: Meta) {
        if self.count < BURST {
            self.keys[self.count] = key;
            self.metas[self.count] = meta;
            self.count += 1;
        }
    }

    /// Decides on the packets noted, all at once: `frame` is the bytes of a packet of the burst, `dropped` is told which are to go.
    #[inline]
    pub(crate) fn run<'a>(
        &mut self,
        common: &mut Common,
        now: &Now<'_>,
        frame: &impl Fn(u8) -> &'a [u8],
        dropped: &mut impl FnMut(usize),
    ) {
        let count = std::mem::take(&mut self.count).min(BURST);
        if count == 0 {
            return;
        }
        self.table.hasher().hash_batch(&self.keys[..count], &mut self.hashes[..count]);
        let (hashes, keys) = (&self.hashes[..count], &self.keys[..count]);
        self.table.find_or_insert_batch(now.s, hashes, keys, &mut self.outcomes[..count]);
        // States change below, slots do not: what needs another's room waits.
        self.crowded.clear();
        for i in 0..count {
            match self.outcomes[i].slot() {
                Some(slot) => self.judge(common, now, i, slot, frame, dropped),
                None => self.crowded.push(i as u8),
            }
        }
        if !self.crowded.is_empty() {
            self.make_room(common, now, frame, dropped);
        }
    }

    #[inline(always)]
    fn judge<'a>(
        &mut self,
        common: &mut Common,
        now: &Now<'_>,
        i: usize,
        slot: Slot,
        frame: &impl Fn(u8) -> &'a [u8],
        dropped: &mut impl FnMut(usize),
    ) {
        let meta = self.metas[i];
        if meta.query {
            self.query(common, now, i, slot, true);
            return;
        }
        let word = self.table.word(slot, 0);
        let drops = match status(word) {
            SUSPECTED => {
                if matches!(self.outcomes[i], Outcome::New(_)) {
                    common.counters.one(Counter::Suspected);
                }
                false
            }
            FILTERED if until(word) > now.s => self.filtered(common, now, i, slot, word, frame(meta.at)),
            SOLICITED if until(word) > now.s => {
                common.counters.one(Counter::AnswersSolicited);
                false
            }
            _ => {
                self.over(common, i, slot, word);
                false
            }
        };
        if drops && !now.settings.dry_run {
            dropped(meta.at.into());
        }
        if meta.first {
            first_fragment(common, now, frame(meta.at), drops);
        }
    }

    /// A packet of a filtered flow: whether it goes. Counts.
    #[inline(always)]
    fn filtered(
        &mut self,
        common: &mut Common,
        now: &Now<'_>,
        i: usize,
        slot: Slot,
        word: u64,
        frame: &[u8],
    ) -> bool {
        if !now.settings.allow.is_empty() && self.allowed(now, i, frame) {
            return false;
        }
        let bytes = frame.len() as u64;
        let (low, carry) = self.table.word(slot, 1).overflowing_add(1 << 48 | bytes);
        if carry {
            self.table.set_state(slot, [word.wrapping_add(1 << PACKETS), low]);
        } else {
            self.table.set_word(slot, 1, low);
        }
        common.dropped(now, bytes);
        true
    }

    /// Whether the flow of a packet is on the list: where rules are about less than the list, the packet is asked.
    #[cold]
    fn allowed(&self, now: &Now<'_>, i: usize, frame: &[u8]) -> bool {
        let tuple = if now.settings.mode >= Mode::Three {
            self.keys[i].tuple()
        } else {
            match parse(frame) {
                Parsed::Udp { tuple, .. } => tuple,
                _ => return false,
            }
        };
        now.settings.allow.find(&tuple).is_some()
    }

    /// What was known of a flow is over: it begins anew, as a suspect.
    #[cold]
    fn over(&mut self, common: &mut Common, i: usize, slot: Slot, word: u64) {
        if status(word) == FILTERED {
            common.ended(Counter::RulesExpired, &self.keys[i]);
        }
        self.table.set_state(slot, [0, 0]);
        common.counters.one(Counter::Suspected);
    }

    /// Somebody asks: the answers are wanted.
    fn query(&mut self, common: &mut Common, now: &Now<'_>, i: usize, slot: Slot, ours: bool) {
        let key = self.keys[i];
        self.solicit(common, now, &key, slot, ours);
    }

    fn solicit(&mut self, common: &mut Common, now: &Now<'_>, key: &Key<W>, slot: Slot, ours: bool) {
        let word = self.table.word(slot, 0);
        let until_s = now.s.saturating_add(now.settings.query_s);
        let filtered = status(word) == FILTERED;
        if filtered {
            let lives = until(word) > now.s;
            if lives && !now.settings.questions_lift() {
                return;
            }
            common.ended(if lives { Counter::RulesLifted } else { Counter::RulesExpired }, key);
        }
        let known = holds(word, SOLICITED, now.s);
        let untold = known && is_untold(word);
        let told_s = if known { self.table.word(slot, 1) as u32 } else { now.s };
        // The others are told of what is new, again before they forget, and again if there was no room for it. They count from when they were
        // told, not from the last question.
        let half = now.settings.query_s.div_ceil(2);
        let tells = ours && (untold || !known || now.s.abs_diff(told_s) >= half);
        // What comes by mail has been told to all.
        let told_s = if tells || !ours { now.s } else { told_s };
        let before = self.table.state(slot);
        let until_s = if known { until(word).max(until_s) } else { until_s };
        let state = solicited(until_s, untold, told_s);
        if state != before {
            self.table.set_state(slot, state);
        }
        // Behind the change of the table, and before the question leaves: see `src/offload/mod.rs`.
        let looks = tells && common.lifts() && now.settings.questions_lift();
        if filtered || looks && self.others_filter(key, now.s) {
            common.lift(key);
        }
        if tells {
            let lost = !common.tell_query(key);
            if lost != untold {
                self.table.set_state(slot, solicited(until_s, lost, told_s));
            }
        }
    }

    /// Until when another worker has the answers of this flow asked for; 0 if none has. Its letter may have found no room.
    fn others_asked(&mut self, key: &Key<W>, now_s: u32) -> u32 {
        let asked = |table: &mut FlowReader<W, State>| {
            let word = table.get(key)?.state[0];
            holds(word, SOLICITED, now_s).then(|| until(word))
        };
        self.others.iter_mut().filter_map(asked).max().unwrap_or(0)
    }

    /// Whether another worker has a rule of this flow, that it has not heard the question about. It may be asleep, where an offload
    /// keeps its packets away.
    fn others_filter(&mut self, key: &Key<W>, now_s: u32) -> bool {
        self.others
            .iter_mut()
            .any(|table| table.get(key).is_some_and(|flow| holds(flow.state[0], FILTERED, now_s)))
    }

    /// Whether another worker suspects this flow: its packets pass there.
    pub(crate) fn others_suspect(&mut self, now: &Now<'_>, key: &Key<W>) -> bool {
        let suspects = |flow: Flow<State>| {
            let known = Known::new(flow.stamp, flow.state);
            known.status == Status::Suspected && known.holds(now.s, now.settings.suspect_s)
        };
        self.others.iter_mut().any(|table| table.get(key).is_some_and(suspects))
    }

    /// Packets of flows that found no room: at the cost of others, as far as that goes.
    #[cold]
    fn make_room<'a>(
        &mut self,
        common: &mut Common,
        now: &Now<'_>,
        frame: &impl Fn(u8) -> &'a [u8],
        dropped: &mut impl FnMut(usize),
    ) {
        let mut budget = REPLACEMENTS;
        for n in 0..self.crowded.len() {
            let i = usize::from(self.crowded[n]);
            let (key, hash) = (self.keys[i], self.hashes[i]);
            let outcome = if budget > 0 { self.put(common, now, hash, &key) } else { Outcome::Full };
            self.outcomes[i] = outcome;
            match outcome.slot() {
                Some(slot) => {
                    budget = budget.saturating_sub(1);
                    self.judge(common, now, i, slot, frame, dropped);
                }
                None => {
                    budget = budget.saturating_sub(FAILURE);
                    let query = self.metas[i].query;
                    common.counters.one(if query { Counter::QueriesUntracked } else { Counter::Untracked });
                    if query {
                        self.pass_on(common, now, &key);
                    }
                    if self.metas[i].first {
                        first_fragment(common, now, frame(self.metas[i].at), false);
                    }
                }
            }
        }
    }

    /// A question that we have no room for: the others may have, and what they filter ends all the same. Nobody remembers here that they were told, so
    /// each such question tells them.
    fn pass_on(&mut self, common: &mut Common, now: &Now<'_>, key: &Key<W>) {
        if common.lifts() && now.settings.questions_lift() && self.others_filter(key, now.s) {
            common.lift(key);
        }
        common.tell_query(key);
    }

    /// The flow of a key, at the cost of another one if need be: never of a filtered or solicited one whose time is not over.
    fn put(&mut self, common: &mut Common, now: &Now<'_>, hash: u64, key: &Key<W>) -> Outcome {
        let mut gone = None;
        let outcome = self.table.find_or_replace(now.s, hash, key, |key, _, [word, _]| {
            let goes = status(word) == SUSPECTED || until(word) <= now.s;
            gone = goes.then_some((*key, status(word)));
            goes
        });
        match gone {
            Some((_, SUSPECTED)) => common.counters.one(Counter::SuspectedReplaced),
            Some((key, FILTERED)) => common.ended(Counter::RulesExpired, &key),
            _ => {}
        }
        outcome
    }

    /// Another worker has seen a question.
    pub(crate) fn query_from_mail(&mut self, common: &mut Common, now: &Now<'_>, key: &Key<W>) {
        let hash = self.table.hasher().hash(key);
        match self.put(common, now, hash, key).slot() {
            Some(slot) => self.solicit(common, now, key, slot, false),
            None => common.counters.one(Counter::QueriesUntracked),
        }
    }

    /// A rule of a process before: it goes on until its end. False if there is no room.
    pub(crate) fn adopt(&mut self, common: &mut Common, now: &Now<'_>, key: &Key<W>, until_s: u32) -> bool {
        let hash = self.table.hasher().hash(key);
        let Some(slot) = self.put(common, now, hash, key).slot() else { return false };
        if status(self.table.word(slot, 0)) != FILTERED {
            common.counters.one(Counter::RulesAdopted);
            common.counters.one(Counter::Rules);
        }
        self.table.set_state(slot, filtered(until_s, 0));
        true
    }

    /// The victim of this flow says that nobody listens.
    pub(crate) fn confirm(
        &mut self,
        common: &mut Common,
        now: &Now<'_>,
        key: &Key<W>,
        victim: u128,
    ) -> Confirmed {
        let Some(slot) = self.table.find(self.table.hasher().hash(key), key) else {
            return Confirmed::Refused(Counter::IcmpUnknown);
        };
        let known = Known::new(self.table.stamp(slot), self.table.state(slot));
        if !known.holds(now.s, now.settings.suspect_s) {
            return Confirmed::Refused(Counter::IcmpUnknown);
        }
        match known.status {
            Status::Solicited => return Confirmed::Refused(Counter::IcmpSolicited),
            Status::Filtered => return Confirmed::Refused(Counter::IcmpAlready),
            Status::Suspected => {}
        }
        if now.settings.heeds_questions() {
            let until_s = self.others_asked(key, now.s);
            if until_s > 0 {
                // Who knows it has told us in vain: our own next question is told.
                self.table.set_state(slot, solicited(until_s, false, 0));
                return Confirmed::Refused(Counter::IcmpSolicited);
            }
        }
        if !common.rates.admit(victim, now.ns, now.settings.icmp_rate) {
            return Confirmed::Refused(Counter::IcmpRate);
        }
        let until_s = now.s.saturating_add(now.settings.expiry_s);
        self.table.set_state(slot, filtered(until_s, now.settings.lifetime));
        common.counters.one(Counter::RulesMade);
        common.counters.one(Counter::Rules);
        common.tell_rule(RuleEvent::Filtered {
            key: key.tuple(),
            expires_ns: u64::from(until_s) * 1_000_000_000,
        });
        Confirmed::Filtered
    }

    /// The allow-list may have changed: rules are to be held against it.
    pub(crate) fn recheck(&mut self) {
        // The last step of a round may be shorter.
        self.recheck = self.table.slots() / 31 + SWEEP;
    }

    /// Takes out what is over, a few buckets at a time: the whole table about once a second.
    pub(crate) fn sweep(&mut self, common: &mut Common, now: &Now<'_>) {
        let buckets = (self.table.slots() / 31).max(1) as u64;
        let elapsed = now.ns.saturating_sub(self.swept_ns).min(SWEEP_NS);
        let due = ((elapsed * buckets / SWEEP_NS) as usize).min(SWEEP);
        let steps = due.max(self.recheck.min(SWEEP));
        if steps == 0 {
            // A clock that went back begins anew.
            self.swept_ns = self.swept_ns.min(now.ns);
            return;
        }
        self.swept_ns = now.ns;
        let settings = now.settings;
        let recheck = self.recheck > 0 && !settings.allow.is_empty();
        self.recheck = self.recheck.saturating_sub(steps);
        self.table.expire(steps, |key, stamp, state| {
            let known = Known::new(stamp, state);
            let over = !known.holds(now.s, settings.suspect_s);
            let rule = known.status == Status::Filtered;
            if rule && over {
                common.ended(Counter::RulesExpired, key);
            } else if rule && recheck && settings.allow.forbids(&key.tuple(), settings.mode) {
                common.ended(Counter::RulesAllowed, key);
                return true;
            }
            over
        });
    }
}

/// The first fragment of a datagram has been judged: the later ones go its way.
#[cold]
fn first_fragment(common: &mut Common, now: &Now<'_>, frame: &[u8], dropped: bool) {
    if let Parsed::Udp { fragment: Some(key), .. } = parse(frame) {
        common.fragments.first(key, now.s, dropped);
    }
}
