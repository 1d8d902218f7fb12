//! The gate: one worker's flows of one family, and what they say about a burst. No graphs, clocks or threads: packets, times and
//! settings are handed in.
//!
//! Source: Fu 2020, 4.4 (algorithms 5 to 7); the order is that of 5.2.2.
//!
//! ```text
//!  burst --> destinations --policy LPM--> Route ----------------------------------------------------------> on
//!                                         Drop -----------------------------------------------------------> policy-drop
//!                                         no Drop, but dressed as ours, to a Grantor itself --------------> tunnel-forged
//!                                         Grantors --> flows, found or made --> Request  (DSCP 3 to 63) --> solicitor
//!                                                                               Granted  (DSCP 1, or 2) --> encapsulate
//!                                                                               Granted, direct ----------> on
//!                                                                               Declined -----------------> flow-declined
//!                                                                               over its rate ------------> flow-over-rate
//! ```
//!
//! * **One pass** ([`Order::OnePass`]): the policies of all destinations, then the flows in one step that finds or makes them. The paper's order
//!   ([`Order::FlowFirst`]) looks flows up first, policies for those that have none, and makes these in a third step: a flow keeps the policy that it has until policies
//!   change. Then its next packet looks again, and so does each up to the end of that second, for flows have stamps of whole seconds.
//! * **A full table** is bounded work. Packets make flows until there are as many as the gate has room for, which are four fifths of the table's slots: up to there a new flow
//!   goes where it belongs, beyond it a burst looks up and no more ([`FlowTable::keep_free`]). Should a search for room fail all the same, it is the last of its burst and of some
//!   bursts after it, by any driver. A packet whose flow found no room still asks, as one of a new flow ([`Fate::Unplaced`]). A grant about such a flow makes it all the same: in
//!   the last fifth, or else one that only asks gives way ([`Gate::impose`]).
//! * **A new flow's first packet** is a request of the one level that these have, whatever it is: its state is known before it is made, and nobody reads it back.
//! * **Grantors believe outer packets**, so none may reach one from the front, not in one of ours either: what would be taken for ours there is dropped before it is routed
//!   or asks ([`Gated::is_for_grantors`](crate::family::Gated::is_for_grantors)), whatever the policies and its flow say.
//! * **Programs** ([`crate::programs`]) decide about the packets of flows that have one; what they say is done like what a state says.
//! * **Revocation** ([`tidemill_decision::revocation`]): a flow whose decision counts no more is found to be so by its next packet. It is not visited.
//! * **Policies that change.** A flow notes the number of the policy that it was made by, or was decided about by, and its decision holds under no policy that does not
//!   name the Grantor that decided (`gate/holds.rs`): its next packet finds that out, and is a request as of a new flow, without grace, for nobody that this destination asks now
//!   has granted anything. A policy with a Grantor more, or one less, so costs the flows of that Grantor only, and those of which it is not sure who decided. Numbers that mean nothing any more ([`crate::policy`])
//!   are given up by the flow's next packet, in either order, or by the sweep that reclaims; [`Gate::passed`] says when none is left.
//! * **Reclaim** goes a few buckets per burst and per tick, as fast as time goes: [`Gate::keep_up`].
//! * A fragment is a packet like any other: flows have no ports.

mod given;
mod holds;
mod outcome;
mod pace;
mod shown;

use crate::config::{Driver, Order};
use crate::counters::{Counter, Counters};
use crate::decision::Verdict;
use crate::family::Paired;
use crate::flow::{Act, FlowState, Installed};
use crate::mail::{By, Revocation};
use crate::offload::Hand;
use crate::policy::{Choice, Choices, MOST_CHOICES};
use crate::programs::{Catalog, Programs, Refused};
use crate::tag::Tag;
use crate::top::{Heavy, keys_of};
pub use given::{Now, Rules, Seen};
pub use outcome::{Applied, Fate};
use pace::Pace;
pub use pace::{RECLAIM_BURST, RECLAIM_TURN};
use std::sync::{Arc, Mutex};
use tidemill_burst::BURST;
use tidemill_decision::revocation::{Late, Revocations};
use tidemill_flow::flowtable::{FlowReader, FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;
use tidemill_lookup::cycles::about_now;
use tidemill_lookup::drive::{MAX_WIDTH, Steered, coroutine};
use tidemill_lpm::Label;

/// A burst's time and policies, and what their numbers mean.
struct At<'n, 'a, A> {
    now: &'n Now<'a, A>,
    choices: &'a Choices<A>,
}

/// How large the tables of one worker and family are, and what is secret about them.
#[derive(Debug, Clone)]
pub struct Size {
    /// Flows that packets make. What is decided has room for a quarter more.
    pub flows: usize,
    /// Room for flows with a program.
    pub program_flows: u32,
    /// What flows are hashed with.
    pub secret: u128,
    /// What spreads flows over Grantors; all workers share it.
    pub spread: u64,
}

/// Coroutines side by side, to begin with: as many as pay is found out (Fu 2020, 4.5.4). No packet's fate depends on it.
const COROUTINES: usize = 24;

/// Looks keys up as coroutines, as many side by side as pays.
fn by_coroutines<const W: usize>(
    table: &FlowTable<W, FlowState>,
    steered: &mut Steered,
    hashes: &[u64],
    keys: &[Key<W>],
    done: impl FnMut(usize, Option<Slot>),
) {
    let from = about_now();
    coroutine(keys.len(), steered.width(), |i| table.find_suspended(hashes[i], &keys[i]), done);
    steered.ran(keys.len(), from, about_now());
}

/// One worker's flows of one family.
pub struct Gate<A: Paired<W>, const W: usize> {
    table: FlowTable<W, FlowState>,
    /// How many lookups go side by side as coroutines.
    steered: Steered,
    pace: Pace,
    heavy: Heavy<W>,
    programs: Programs,
    revoked: Revocations<A>,
    /// The same, for who looks on, and whether it is the same now.
    shown: Arc<Mutex<Revocations<A>>>,
    is_shown: bool,
    /// Spreads flows over Grantors: the same in all workers.
    spread: u64,
    /// Tells of flows that are declined and send much, if somebody drops what those send before it comes in here.
    hand: Option<Hand<W>>,
    /// How many flows note each policy's number; that of 0 is any.
    uses: Box<[u32; MOST_CHOICES]>,
    /// Changes of what prefixes lead to that a burst has seen, and the second in which it saw the last one.
    moves: u64,
    moved_s: u32,
    labels: Box<[Label; BURST]>,
    destinations: Box<[A; BURST]>,
    keys: Box<[Key<W>; BURST]>,
    hashes: Box<[u64; BURST]>,
    outcomes: Box<[Outcome; BURST]>,
    found: Box<[Option<Slot>; BURST]>,
    /// Which packet of the burst a key is of.
    places: Box<[u16; BURST]>,
}

impl<A: Paired<W>, const W: usize> Gate<A, W> {
    /// Empty tables.
    ///
    /// # Errors
    /// A table that is too large.
    pub fn new(size: &Size, catalog: Catalog) -> Result<Self, SizeError> {
        let Size { flows, program_flows, secret, spread } = *size;
        let slots = flows.saturating_mul(5).div_ceil(4);
        let mut table = FlowTable::new(slots.max(1), Keyed::new(secret))?;
        table.keep_free(flows);
        Ok(Gate {
            pace: Pace::new(table.slots() / 31),
            table,
            steered: Steered::new(COROUTINES, MAX_WIDTH),
            heavy: Heavy::new(secret as u64 ^ spread)?,
            programs: Programs::new(catalog, program_flows)?,
            revoked: Revocations::new(u64::MAX),
            shown: Arc::new(Mutex::new(Revocations::new(u64::MAX))),
            is_shown: true,
            spread,
            hand: None,
            uses: Box::new([0; MOST_CHOICES]),
            moves: 0,
            moved_s: 0,
            labels: Box::new([Label::NONE; BURST]),
            destinations: Box::new([A::MIN; BURST]),
            keys: Box::new([Key([0; W]); BURST]),
            hashes: Box::new([0; BURST]),
            outcomes: Box::new([Outcome::Full; BURST]),
            found: Box::new([None; BURST]),
            places: Box::new([0; BURST]),
        })
    }

    /// Bytes of memory for each flow that there is room for.
    pub const BYTES_PER_FLOW: f64 = FlowTable::<W, FlowState>::BYTES_PER_SLOT * 5.0 / 4.0;

    /// The flows, to be read beside this worker.
    pub fn reader(&self) -> FlowReader<W, FlowState> {
        self.table.reader()
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Flows with a program.
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Has it tell of what it refuses.
    pub(crate) fn set_hand(&mut self, hand: Hand<W>) {
        self.hand = Some(hand);
    }

    /// A burst is going to be judged. To be called before anything that is published is looked at.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.hand.iter_mut().for_each(Hand::begin);
    }

    /// Where the most is dropped.
    pub(crate) fn heavy(&mut self) -> &mut Heavy<W> {
        &mut self.heavy
    }

    /// A packet from the front has an address of ours as its source: it is dropped, and nothing else is asked about it.
    #[cold]
    pub(crate) fn refuse_ours(&mut self, counters: &mut Counters, packet: &Seen<A>) {
        counters.one(Counter::Front);
        counters.one(Counter::SourceOurs);
        self.heavy.dropped(|| keys_of(packet.source, packet.destination));
    }

    /// Decides about a burst of packets from the front; at most [`BURST`].
    pub fn decide(
        &mut self,
        now: &Now<'_, A>,
        counters: &mut Counters,
        seen: &[Seen<A>],
        fates: &mut [Fate],
    ) {
        let count = seen.len().min(BURST).min(fates.len());
        let (seen, fates) = (&seen[..count], &mut fates[..count]);
        counters.add(Counter::Front, count as u64);
        match now.order {
            Order::OnePass => self.one_pass(now, counters, seen, fates),
            Order::FlowFirst => self.flow_first(now, counters, seen, fates),
        }
    }

    /// The policy of each destination, then flows and acts.
    fn one_pass(&mut self, now: &Now<'_, A>, counters: &mut Counters, seen: &[Seen<A>], fates: &mut [Fate]) {
        for (destination, packet) in self.destinations.iter_mut().zip(seen) {
            *destination = packet.destination;
        }
        self.policies(now, seen.len());
        let choices = now.rules.choices();
        let mut flows = 0;
        for (at, packet) in seen.iter().enumerate() {
            let label = self.labels[at];
            if self.bypasses(&At { now, choices }, counters, label, (at, packet), &mut fates[at]) {
                continue;
            }
            self.keys[flows] = A::key(packet.source, packet.destination);
            (self.labels[flows], self.places[flows]) = (label, at as u16);
            flows += 1;
        }
        self.table.hasher().hash_batch(&self.keys[..flows], &mut self.hashes[..flows]);
        if now.driver == Driver::Coroutine {
            self.warm(flows);
        }
        self.made(&At { now, choices }, counters, flows, seen, fates);
    }

    /// Flows and acts of those that have any, by the policies that these have; the policies of the others, their flows and
    /// acts (Fu 2020, algorithms 5, 8 and 9).
    fn flow_first(
        &mut self,
        now: &Now<'_, A>,
        counters: &mut Counters,
        seen: &[Seen<A>],
        fates: &mut [Fate],
    ) {
        let count = seen.len();
        for (key, packet) in self.keys.iter_mut().zip(seen) {
            *key = A::key(packet.source, packet.destination);
        }
        self.table.hasher().hash_batch(&self.keys[..count], &mut self.hashes[..count]);
        self.find(now, count);
        let at_first = At { now, choices: now.rules.choices() };
        let seconds = (now.ns / 1_000_000_000) as u32;
        if self.moves != at_first.choices.moves() {
            (self.moves, self.moved_s) = (at_first.choices.moves(), seconds);
        }
        let mut missing = 0;
        for (at, packet) in seen.iter().enumerate() {
            let known = self.found[at].map(|slot| (slot, u32::from(self.table.state(slot).note())));
            // One that was last seen before prefixes changed, or in that second, whose policy is no more, or that was decided about where there was none, is looked up as if it were new.
            let is_new = |slot| self.table.stamp(slot) <= self.moved_s;
            let holds = |number| number != 0 && !at_first.choices.is_retired(number);
            if let Some((slot, number)) = known.filter(|(slot, number)| holds(*number) && !is_new(*slot)) {
                if self.forges(&at_first, counters, (at, packet)) {
                    fates[at] = Fate::Forged;
                    continue;
                }
                self.table.touch(slot, seconds);
                fates[at] = self.act(&at_first, counters, slot, (at, packet), number);
                continue;
            }
            self.destinations[missing] = packet.destination;
            (self.keys[missing], self.hashes[missing]) = (self.keys[at], self.hashes[at]);
            self.places[missing] = at as u16;
            missing += 1;
        }
        self.policies(now, missing);
        let choices = now.rules.choices();
        let mut flows = 0;
        for i in 0..missing {
            let (label, at) = (self.labels[i], usize::from(self.places[i]));
            if self.bypasses(&At { now, choices }, counters, label, (at, &seen[at]), &mut fates[at]) {
                continue;
            }
            (self.keys[flows], self.hashes[flows]) = (self.keys[i], self.hashes[i]);
            (self.labels[flows], self.places[flows]) = (label, at as u16);
            flows += 1;
        }
        self.made(&At { now, choices }, counters, flows, seen, fates);
    }

    /// The policies' numbers of the first so many destinations.
    fn policies(&mut self, now: &Now<'_, A>, count: usize) {
        let (destinations, labels) = (&self.destinations[..count], &mut self.labels[..count]);
        if now.driver == Driver::Plain {
            for (label, destination) in labels.iter_mut().zip(destinations) {
                *label = now.rules.policies.lookup(*destination);
            }
        } else {
            now.rules.policies.lookup_batch(destinations, labels);
        }
    }

    /// Whether a packet has nothing to do with flows; then its fate is known.
    #[inline(always)]
    fn bypasses(
        &mut self,
        here: &At<'_, '_, A>,
        counters: &mut Counters,
        label: Label,
        (at, packet): (usize, &Seen<A>),
        fate: &mut Fate,
    ) -> bool {
        let choice = here.choices.get(label.0);
        if choice != Choice::Drop && self.forges(here, counters, (at, packet)) {
            *fate = Fate::Forged;
            return true;
        }
        match choice {
            Choice::Grantors(_) => return false,
            Choice::Route => {
                counters.one(Counter::Bypassed);
                *fate = Fate::Route;
            }
            Choice::Drop => {
                counters.one(Counter::PolicyDropped);
                self.heavy.dropped(|| keys_of(packet.source, packet.destination));
                *fate = Fate::PolicyDrop;
                if let Some(hand) = &mut self.hand {
                    hand.dropped(here.now.ns, A::key(packet.source, packet.destination));
                }
            }
        }
        true
    }

    /// Whether a packet goes to a Grantor that would take it for one of ours; then it is counted as dropped.
    #[inline(always)]
    fn forges(
        &mut self,
        At { now, choices }: &At<'_, '_, A>,
        counters: &mut Counters,
        (at, packet): (usize, &Seen<A>),
    ) -> bool {
        let is_forged = choices.is_grantor(packet.destination) && A::is_for_grantors((now.ip)(at));
        if is_forged {
            counters.one(Counter::TunnelForged);
            self.heavy.dropped(|| keys_of(packet.source, packet.destination));
        }
        is_forged
    }

    /// Finds the flows of the first so many keys.
    fn find(&mut self, now: &Now<'_, A>, count: usize) {
        let (hashes, keys) = (&self.hashes[..count], &self.keys[..count]);
        let found = &mut self.found[..count];
        match now.driver {
            Driver::Plain => {
                for ((found, hash), key) in found.iter_mut().zip(hashes).zip(keys) {
                    *found = self.table.find(*hash, key);
                }
            }
            Driver::Group => self.table.lookup_batch(hashes, keys, found),
            Driver::Coroutine => {
                by_coroutines(&self.table, &mut self.steered, hashes, keys, |i, slot| found[i] = slot);
            }
        }
    }

    /// Has the lines of the first so many keys fetched, by coroutines.
    fn warm(&mut self, count: usize) {
        let (hashes, keys) = (&self.hashes[..count], &self.keys[..count]);
        by_coroutines(&self.table, &mut self.steered, hashes, keys, |_, _| {});
    }

    /// Finds or makes the flows of the first so many keys, and acts by them.
    fn made(
        &mut self,
        here: &At<'_, '_, A>,
        counters: &mut Counters,
        flows: usize,
        seen: &[Seen<A>],
        fates: &mut [Fate],
    ) {
        let now = here.now;
        let seconds = (now.ns / 1_000_000_000) as u32;
        let (hashes, keys, labels) = (&self.hashes[..flows], &self.keys[..flows], &self.labels[..flows]);
        let outcomes = &mut self.outcomes[..flows];
        let first = |i: usize| FlowState::first(now.ns, labels[i].0 as u16);
        // One after the other, or all at once.
        match now.driver {
            Driver::Plain => self.table.find_or_insert_each_with(seconds, hashes, keys, outcomes, first),
            Driver::Group | Driver::Coroutine => {
                self.table.find_or_insert_batch_with(seconds, hashes, keys, outcomes, first);
            }
        }
        let (mut made, mut unplaced) = (0, 0);
        for i in 0..flows {
            let at = usize::from(self.places[i]);
            let (packet, number) = (&seen[at], self.labels[i].0);
            fates[at] = match self.outcomes[i] {
                Outcome::Found(slot) => self.act(here, counters, slot, (at, packet), number),
                Outcome::New(_) => {
                    made += 1;
                    self.uses_change(0, number);
                    Fate::Request(self.tag(here, packet, number, FlowState::FIRST_DSCP))
                }
                Outcome::Full => {
                    unplaced += 1;
                    Fate::Unplaced(self.tag(here, packet, number, FlowState::FIRST_DSCP))
                }
            };
        }
        counters.add(Counter::FlowsMade, made);
        counters.add(Counter::RequestsUntracked, unplaced);
        counters.add(Counter::Requests, made + unplaced);
    }

    /// Algorithm 7: what the state of its flow says about a packet, of which the place in its burst is given. `number` is its policy's.
    #[inline(always)]
    fn act(
        &mut self,
        here: &At<'_, '_, A>,
        counters: &mut Counters,
        slot: Slot,
        (at, packet): (usize, &Seen<A>),
        number: u32,
    ) -> Fate {
        let now = here.now;
        let before = self.table.state(slot);
        let mut state = before;
        let noted = u32::from(before.note());
        if noted != number && before.is_decided() {
            self.outgrow(here.choices, counters, &mut state, (packet.source, packet.destination), number);
        }
        let ask = state.rank() != 0 && self.revoke(here, counters, &mut state, packet, number);
        let act = match state.installed() {
            Some(program) => self.run(now, counters, &mut state, program, (at, packet), ask),
            None => state.packet(now.ns, packet.bytes),
        };
        if noted != number {
            state.set_note(number as u16);
            self.uses_change(noted, number);
        }
        // What is dropped changes nothing: no store, and no reader is disturbed.
        if state.differs(&before) {
            self.table.set_state(slot, state);
        }
        let bytes = u64::from(packet.bytes);
        match act {
            Act::Request { dscp } => {
                counters.one(Counter::Requests);
                Fate::Request(self.tag(here, packet, number, dscp))
            }
            Act::Granted { dscp, direct } => {
                counters.one(Counter::Granted);
                counters.add(Counter::GrantedBytes, bytes);
                if direct {
                    counters.one(Counter::GrantedDirect);
                    return Fate::Route;
                }
                counters.add(Counter::Renewals, u64::from(dscp == 2));
                Fate::Granted(self.tag(here, packet, number, dscp))
            }
            Act::Declined => {
                counters.one(Counter::Declined);
                counters.add(Counter::DeclinedBytes, bytes);
                self.heavy.dropped(|| keys_of(packet.source, packet.destination));
                if let (Some(hand), Some(until_ns)) = (&mut self.hand, state.refused_until(now.ns)) {
                    hand.refused(now.ns, A::key(packet.source, packet.destination), until_ns);
                }
                Fate::Declined
            }
            Act::OverRate => {
                counters.one(Counter::OverRate);
                counters.add(Counter::OverRateBytes, bytes);
                self.heavy.dropped(|| keys_of(packet.source, packet.destination));
                Fate::OverRate
            }
        }
    }

    /// A flow notes another number.
    #[inline(always)]
    fn uses_change(&mut self, from: u32, to: u32) {
        let (from, to) = (from as usize % MOST_CHOICES, to as usize % MOST_CHOICES);
        self.uses[from] = self.uses[from].wrapping_sub(1);
        self.uses[to] = self.uses[to].wrapping_add(1);
    }

    /// Up to which change of the policies the retired numbers are noted by no flow here.
    pub(crate) fn passed(&self, choices: &Choices<A>) -> u64 {
        choices.passed(|number| self.uses[number as usize % MOST_CHOICES] != 0)
    }

    /// What the flow's program says.
    #[inline(never)]
    fn run(
        &mut self,
        now: &Now<'_, A>,
        counters: &mut Counters,
        state: &mut FlowState,
        program: Installed,
        (at, packet): (usize, &Seen<A>),
        ask: bool,
    ) -> Act {
        if state.over(now.ns) {
            self.programs.release(program);
            *state = state.forgotten();
            return state.packet(now.ns, packet.bytes);
        }
        counters.one(Counter::Programs);
        match self.programs.run(program, now.ns, state, (now.ip)(at)) {
            Some(Act::Granted { .. }) if ask => Act::Granted { dscp: 2, direct: false },
            Some(act) => act,
            None => {
                counters.one(Counter::ProgramFaults);
                Act::Declined
            }
        }
    }

    /// Revokes the flow's decision if it counts no more. Returns whether this packet is to ask for the next, which its state does not know.
    #[inline(always)]
    fn revoke(
        &mut self,
        At { now, choices }: &At<'_, '_, A>,
        counters: &mut Counters,
        state: &mut FlowState,
        packet: &Seen<A>,
        number: u32,
    ) -> bool {
        let flow = (packet.source, packet.destination);
        if Self::stands(self.spread, choices, &self.revoked, state, flow, number) {
            return false;
        }
        counters.one(Counter::FlowsRevoked);
        state.revoke(now.ns, now.grace_ns)
    }

    /// The flow's Grantor.
    #[inline(always)]
    fn tag(&self, here: &At<'_, '_, A>, packet: &Seen<A>, number: u32, dscp: u8) -> Tag {
        Tag { grantor: self.decides(here.choices, number, packet.source, packet.destination), dscp }
    }

    /// The number of the Grantor of a flow with a policy of this number.
    #[inline(always)]
    fn decides(&self, choices: &Choices<A>, number: u32, source: A, destination: A) -> u16 {
        match choices.get(number) {
            Choice::Grantors(buckets) => Self::grantor(self.spread, choices, buckets, source, destination),
            // There is none: encapsulate finds no such Grantor and says so.
            Choice::Route | Choice::Drop => u16::MAX,
        }
    }

    /// The number of the Grantor that decides about a flow whose policy has these buckets.
    #[inline(always)]
    pub fn grantor(spread: u64, choices: &Choices<A>, buckets: u32, source: A, destination: A) -> u16 {
        choices.grantor(buckets, mix(source.fold() ^ spread ^ destination.fold().rotate_left(32)))
    }

    /// A decision about a flow has come: of a Grantor (none: of an operator), by a version of its policy, or one that cannot be revoked. The flow notes the policy that its
    /// destination has, `at`: its number and what numbers mean. Whether the Grantor is one of that policy's is for the caller to see: [`names`](Choices::names).
    pub fn apply(
        &mut self,
        now_ns: u64,
        at: (u32, &Choices<A>),
        flow: (A, A),
        verdict: &Verdict,
        grantor: Option<u16>,
        by: Option<By>,
    ) -> Applied {
        let key = A::key(flow.0, flow.1);
        let Some(slot) = self.table.find(self.table.hasher().hash(&key), &key) else {
            return Applied::Unknown;
        };
        let strays = Self::strays(self.spread, at.1, at.0, flow, grantor);
        let own = self.table.state(slot).installed();
        match self.accept(now_ns, flow.1, verdict, by, own) {
            Ok(accepted) => self.take(now_ns, (at.0, strays), (slot, &key), accepted),
            Err(applied) => applied,
        }
    }

    /// Whether a decision counts and can be done; then its program has a place: that of the flow's `own`, if it has one, which then has none any more.
    fn accept(
        &mut self,
        now_ns: u64,
        destination: A,
        verdict: &Verdict,
        by: Option<By>,
        own: Option<Installed>,
    ) -> Result<Accepted, Applied> {
        let rank = match by {
            Some(By { grantor, version }) => {
                let begun = self.revoked.begun();
                let rank = self.revoked.rank(now_ns, grantor, destination, version);
                if self.revoked.begun() != begun {
                    self.is_shown = false;
                    // The oldest may be dead now.
                    self.hand.iter().for_each(Hand::lift_all);
                }
                rank.ok_or(Applied::Revoked)?
            }
            None => 0,
        };
        let Verdict::Bpf { expire_s, program, ref cookie } = *verdict else {
            return Ok(Accepted { rank, verdict: *verdict, program: None, applied: Applied::Done });
        };
        let (verdict, applied) = (Verdict::Declined { expire_s }, Applied::NotTaken);
        match self.programs.install(now_ns, expire_s, program, cookie, own) {
            Ok(program) => {
                let program = Some((program, expire_s));
                Ok(Accepted { rank, verdict, program, applied: Applied::Done })
            }
            Err(Refused::Unsupported) => Err(Applied::Unsupported),
            Err(Refused::Full) => Err(Applied::Full),
            Err(Refused::NotTaken) => Ok(Accepted { rank, verdict, program: None, applied }),
        }
    }

    /// A flow takes a decision, by a policy of this number, and is a stray there or not.
    fn take(
        &mut self,
        now_ns: u64,
        (number, strays): (u32, bool),
        (slot, key): (Slot, &Key<W>),
        accepted: Accepted,
    ) -> Applied {
        let mut state = self.table.state(slot);
        let (before, was_refused) = (state.installed(), state.refused_until(now_ns).is_some());
        match accepted.program {
            Some((program, expire_s)) => state.install(now_ns, expire_s, program),
            None => state.decide(now_ns, &accepted.verdict),
        }
        // A program that comes has the place of the one before.
        if let Some(before) = before.filter(|_| accepted.program.is_none()) {
            self.programs.release(before);
        }
        state.set_rank(accepted.rank);
        state.set_stray(strays);
        self.uses_change(state.note().into(), number);
        state.set_note(number as u16);
        self.table.set_state(slot, state);
        if let Some(hand) = self.hand.as_ref().filter(|_| was_refused) {
            hand.lift(key);
        }
        accepted.applied
    }

    /// The same, and makes the flow if there is none and there is room: for what an operator says, and about flows of which this worker knows that they asked
    /// here. What lets a flow send may use all slots, and makes room where there is none: a flow that only asks, or whose decision is over, in one of the two buckets that it can
    /// lie in, gives way. A refusal gets no more room than a packet, or a flood of sources that are declined would push out those that wait. What does not count, or cannot be
    /// done, makes no flow and pushes none out.
    pub fn impose(
        &mut self,
        now_ns: u64,
        at: (u32, &Choices<A>),
        flow: (A, A),
        verdict: &Verdict,
        grantor: Option<u16>,
        by: Option<By>,
    ) -> Applied {
        let strays = Self::strays(self.spread, at.1, at.0, flow, grantor);
        let key = A::key(flow.0, flow.1);
        let hash = self.table.hasher().hash(&key);
        let own = self.table.find(hash, &key).and_then(|slot| self.table.state(slot).installed());
        let accepted = match self.accept(now_ns, flow.1, verdict, by, own) {
            Ok(accepted) => accepted,
            Err(applied) => return applied,
        };
        let now_s = (now_ns / 1_000_000_000) as u32;
        let mut outcome = [Outcome::Full];
        if accepted.refuses() {
            let new = |_| FlowState::default();
            self.table.find_or_insert_each_with(now_s, &[hash], &[key], &mut outcome, new);
        } else {
            outcome = [self.table.find_or_insert(now_s, hash, &key)];
        }
        if outcome[0] == Outcome::Full && !accepted.refuses() {
            let mut gone = None;
            outcome[0] = self.table.find_or_replace(now_s, hash, &key, |_, _, state| {
                let goes = !state.is_decided() || state.over(now_ns);
                gone = goes.then_some(state);
                goes
            });
            if let Some(state) = gone {
                let place = &mut self.uses[usize::from(state.note()) % MOST_CHOICES];
                *place = place.wrapping_sub(1);
                if let Some(program) = state.installed() {
                    self.programs.release(program);
                }
            }
        }
        match outcome[0].slot() {
            Some(slot) => self.take(now_ns, (at.0, strays), (slot, &key), accepted),
            None => {
                if let Some((program, _)) = accepted.program {
                    self.programs.release(program);
                }
                Applied::Unknown
            }
        }
    }

    /// Flows that gave way to others so far.
    pub(crate) fn replaced(&self) -> u64 {
        self.table.counters().replaced
    }

    /// A Grantor has taken back what it decided.
    ///
    /// # Errors
    /// It is to be said again later.
    pub fn withdraw(&mut self, now_ns: u64, revocation: &Revocation<A>) -> Result<(), Late> {
        let Revocation { below: By { grantor, version }, to } = *revocation;
        let revoked = self.revoked.revoke(now_ns, grantor, to, version);
        self.hand.iter().for_each(Hand::lift_all);
        self.is_shown = false;
        revoked
    }
}

/// A decision that counts and can be done.
struct Accepted {
    rank: u8,
    /// What it says, where it brings no program.
    verdict: Verdict,
    /// What it brings, and for how many seconds.
    program: Option<(Installed, u32)>,
    applied: Applied,
}

impl Accepted {
    fn refuses(&self) -> bool {
        self.program.is_none() && matches!(self.verdict, Verdict::Declined { .. })
    }
}

#[cfg(test)]
mod tests;
