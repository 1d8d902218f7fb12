//! What becomes of one packet: pure; time is handed in.
//!
//! A routed packet has two ways, in by one interface and out by another, and has to pass on both, as in pf. A connection that is known covers
//! those ways of its packets on which a rule with state has let its first one pass; rules are asked about the others. So with state on both,
//! which is usual, a packet of a known connection costs one lookup.
//!
//! ```text
//! ahead.rs      a burst is read and looked up
//! straight.rs   the usual packet of a known connection, judged on the connection's words
//! here          any packet: `whole`
//! pieces.rs     fragments
//! ```

mod ahead;
mod pieces;
mod straight;
#[cfg(test)]
mod tests;

use crate::filter::connection::{Connection, Kind, NO_RULE, Words, rule_of};
use crate::filter::counters::{Counter, Counters};
use crate::filter::image::Saved;
use crate::filter::log::{Budget, LogLine};
use crate::filter::net::{Ends, Net};
use crate::filter::packet::{Load, Read, first_piece, pair, quoted};
use crate::filter::rules::{Asked, Decision, Rules};
use crate::filter::settings::Plan;
use crate::filter::states::{NoRoom, States};
use crate::filter::tcp::{Tcp, flag};
use crate::filter::text::{Action, Direction};
use crate::nat::fragments::{Fragments, Token};
use ahead::Ahead;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use tidemill_burst::DropReason;
use tidemill_flow::flowtable::{FlowReader, Slot};
use tidemill_flow::hash::mix;
use tidemill_flow::key::Key;
use tidemill_flow::sharded::shard_of;
use tidemill_flow::table::SizeError;
use tidemill_wire::{icmpv4, icmpv6};

/// By which interfaces a packet comes and goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ways {
    /// In.
    pub from: u16,
    /// Out, or [`NOWHERE`].
    pub to: u16,
}

/// The number of no interface: for a packet that no route leads on. It is judged on its way in, and begins no connection.
pub const NOWHERE: u16 = u16::MAX;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Passes,
    /// A fragment that waits for the first one of its packet.
    Waits(Token),
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and its sender is told.
    Tell(DropReason),
}

/// One worker's filter of one family.
pub struct Filter<A, const W: usize> {
    worker: usize,
    workers: usize,
    states: States<A, W>,
    fragments: Fragments<A>,
    counters: Counters,
    budget: Budget,
    log: Arc<ArrayQueue<LogLine>>,
    /// A packet whose first fragment has just been judged.
    settled: Option<Token>,
    ahead: Box<Ahead<A, W>>,
    pairs: u64,
}

impl<A: Net<W>, const W: usize> Filter<A, W> {
    /// Tables of this size for worker number `worker` of `workers`, with a secret that nobody can foresee. What it logs goes to `log`.
    ///
    /// # Errors
    /// Tables that are too large.
    pub fn new(
        plan: &Plan,
        (worker, workers): (usize, usize),
        secret: u128,
        log: Arc<ArrayQueue<LogLine>>,
    ) -> Result<Self, SizeError> {
        let own = secret ^ (worker as u128) << 64;
        Ok(Filter {
            worker,
            workers: workers.max(1),
            states: States::new(plan, own)?,
            fragments: Fragments::new(plan.fragments, mix(own as u64 ^ (own >> 64) as u64)),
            counters: Counters::default(),
            budget: Budget::default(),
            log,
            settled: None,
            ahead: Box::new(Ahead::new()),
            // The same for all workers: they must agree on whose a packet is.
            pairs: mix(secret as u64 ^ 0x5bd1),
        })
    }

    /// Connections.
    pub fn states(&self) -> &States<A, W> {
        &self.states
    }

    pub(crate) fn reader(&self) -> FlowReader<W, Words> {
        self.states.reader()
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// What nobody outside knows, for tables of whoever holds packets for it.
    pub(crate) fn salt(&self) -> u64 {
        self.fragments.salt()
    }

    /// The packet whose first fragment has been judged since this was last asked: those of it that wait can go on.
    pub fn settled(&mut self) -> Option<Token> {
        self.settled.take()
    }

    /// Ends connections whose time is over, in the next `buckets` buckets; returns how many.
    pub fn reclaim(&mut self, now_ms: u64, buckets: usize) -> usize {
        let gone = self.states.reclaim(now_ms, buckets);
        self.counters.add(Counter::StatesEnded, gone as u64);
        gone
    }

    /// The worker that the packet at this place belongs to: a hash of both addresses, so that all packets, fragments and errors of a connection are one
    /// worker's. What cannot be read is anybody's, but a first fragment whose others wait.
    pub fn owner(&self, place: usize, ip: &[u8]) -> usize {
        if self.workers < 2 {
            return self.worker;
        }
        match self.ahead.reads.get(place) {
            Some((_, Ok(read))) => self.owner_of(pair(ip, read)),
            Some((_, Err(_))) => first_piece::<A>(ip).map_or(self.worker, |(one, other, ..)| {
                self.owner_of(if one < other { (one, other) } else { (other, one) })
            }),
            None => self.worker,
        }
    }

    /// The worker that a connection between these belongs to, the lower address first.
    fn owner_of(&self, (low, high): (A, A)) -> usize {
        let fold = |address: A| {
            let bits: u128 = address.into();
            (bits >> 64) as u64 ^ mix(bits as u64)
        };
        shard_of(mix(mix(self.pairs ^ fold(low)) ^ fold(high)), self.workers)
    }

    /// The same, by its key.
    pub(crate) fn owner_of_key(&self, key: &Key<W>) -> usize {
        if self.workers < 2 {
            return self.worker;
        }
        let ends = A::of_key(key);
        let (one, other) = (ends.low.0, ends.high.0);
        self.owner_of(if one < other { (one, other) } else { (other, one) })
    }

    /// Goes on with a connection of another filter, or of this one before it was started again, if the rules allow it and there is room. `interfaces` are the numbers here
    /// of those that have other numbers there.
    pub(crate) fn adopt(
        &mut self,
        now_ms: u64,
        rules: &Rules,
        saved: &Saved<W>,
        interfaces: &[Option<u16>],
    ) -> bool {
        let Saved { mut key, mut connection } = *saved;
        for number in &mut connection.interfaces {
            let Some(Some(here)) = interfaces.get(usize::from(*number)) else { return false };
            *number = *here;
        }
        // VRFs have numbers as they were listed: it is the one that its packets come in by now.
        key = A::key(&Ends { vrf: rules.vrf(connection.interfaces[0]), ..A::of_key(&key) });
        if self.states.find(&key).is_some() || !self.still(rules, &key, &mut connection) {
            return false;
        }
        connection.until_ms += now_ms;
        if Kind::of(A::of_key(&key).protocol) == Kind::Tcp {
            connection.tcp = connection.tcp.resumed();
        }
        self.ahead.begun_by_others();
        self.states.restore(&key, connection)
    }

    /// What becomes of one packet, on its own.
    pub fn judge_one(&mut self, now_ms: u64, rules: &Rules, ways: Ways, ip: &[u8]) -> Fate {
        self.read(rules, std::iter::once((ways, ip)));
        self.look_up(rules);
        self.judge(0, now_ms, rules, ip)
    }

    /// What becomes of the packet at this place of the burst that was [read](Self::read) and [looked up](Self::look_up).
    pub fn judge(&mut self, place: usize, now_ms: u64, rules: &Rules, ip: &[u8]) -> Fate {
        self.settled = None;
        if place >= self.ahead.asked {
            self.ask_ahead(place, rules);
        }
        if let Some(change) = self.straight(place, now_ms, rules) {
            self.go(change, rules);
            return Fate::Passes;
        }
        self.in_full(place, now_ms, rules, ip)
    }

    /// What becomes of any packet: what its connection says, and what rules do.
    fn in_full(&mut self, place: usize, now_ms: u64, rules: &Rules, ip: &[u8]) -> Fate {
        // Lent to what judges it, not copied.
        let reads = std::mem::take(&mut self.ahead.reads);
        let fate = match reads.get(place) {
            Some((ways, Ok(read))) if read.fragment.is_none() => {
                self.whole(place, now_ms, rules, *ways, read, ip)
            }
            Some((ways, Ok(read))) => self.piece(place, now_ms, rules, *ways, read, ip),
            Some((ways, Err(reason))) => {
                self.refuse_rest(now_ms, rules, *ways, ip);
                Fate::Drop(*reason)
            }
            None => Fate::Drop(DropReason::FilterMalformed),
        };
        self.ahead.reads = reads;
        if fate == Fate::Passes {
            self.counters.one(Counter::Passed);
        }
        fate
    }

    /// A packet that is whole, or a first fragment.
    fn whole(
        &mut self,
        place: usize,
        now_ms: u64,
        rules: &Rules,
        ways: Ways,
        read: &Read<A, W>,
        ip: &[u8],
    ) -> Fate {
        if let Load::Error(at) = read.load
            && let Some(fate) = self.about(now_ms, rules, read, ip, at)
        {
            return fate;
        }
        let mut slot =
            if read.is_of_connection() { self.live(now_ms, rules, &read.key, Some(place)) } else { None };
        let mut known = slot.map(|slot| self.states.connection(slot));
        if let (Some(connection), Load::Tcp(segment)) = (&known, &read.load)
            && connection.tcp.is_over()
            && segment.opens()
        {
            // The same ports again.
            self.states.remove(&read.key);
            (slot, known) = (None, None);
        }
        let known = known.as_ref();
        let side = known.map_or(0, |connection| usize::from(connection.origin_low != read.from_low));
        if let (Some(connection), Load::Tcp(segment)) = (known, &read.load)
            && segment.opens()
            && connection.tcp.clone().step(side, segment).is_err()
        {
            return self.again(place, rules, ways, read);
        }
        // What is decided now, by the ways of the first packet; and by which rules the packet passes, by its own.
        let mut kept = [false; 2];
        let mut by_rule = [NO_RULE; 2];
        let mut decided = [None; 2];
        let mut asked = false;
        for way in 0..2 {
            let (out, interface) = (way == 1, if way == 0 { ways.from } else { ways.to });
            if (out && ways.to == NOWHERE) || rules.skips(interface) {
                continue;
            }
            let of_first = way ^ side;
            if let Some(connection) = known.filter(|connection| connection.kept[of_first]) {
                if connection.version == rules.version() {
                    decided[way] = rule_of(connection.rules[of_first]);
                }
                continue;
            }
            asked = true;
            let decision = self.decide(rules, place, read, out, interface);
            if decision.log {
                self.note(now_ms, rules, decision, read, out, interface);
            }
            decided[way] = decision.rule;
            if decision.action != Action::Pass {
                self.counters.one(Counter::ByRules);
                self.counters.one(Counter::Blocked);
                rules.count(self.worker, [decision.rule, None], read.bytes);
                return match decision.action {
                    Action::Tell => Fate::Tell(DropReason::FilterRejected),
                    _ => Fate::Drop(DropReason::FilterBlocked),
                };
            }
            kept[of_first] = decision.keep_state;
            by_rule[of_first] = decision.rule.unwrap_or(NO_RULE);
        }
        self.counters.one(if asked || known.is_none() { Counter::ByRules } else { Counter::ByState });
        match (slot, known) {
            (Some(slot), Some(before)) => {
                let mut after = *before;
                if let Load::Tcp(segment) = &read.load
                    && after.tcp.step(side, segment).is_err()
                {
                    self.counters.one(Counter::OutOfWindow);
                    return Fate::Drop(DropReason::FilterOutOfWindow);
                }
                for of_first in (0..2).filter(|of_first| kept[*of_first]) {
                    after.kept[of_first] = true;
                    after.turned[of_first] = side == 1;
                    after.rules[of_first] = by_rule[of_first];
                    after.interfaces[of_first] = if of_first ^ side == 0 { ways.from } else { ways.to };
                }
                after.answered |= side == 1;
                after.packets[side] = after.packets[side].saturating_add(1);
                let is_answered = match read.load {
                    Load::Tcp(_) => after.tcp.is_established() || after.tcp.is_over(),
                    _ => after.answered,
                };
                if after.waits() && is_answered {
                    self.states.opened(&read.key, &mut after);
                }
                after.until_ms = now_ms + after.timeout_ms(Kind::of(read.protocol), &rules.times);
                self.states.note(slot, before, &after);
            }
            _ if kept == [false; 2] || ways.to == NOWHERE => {}
            _ => {
                if let Some(reason) = self.begin(now_ms, rules, ways, read, kept, by_rule) {
                    return Fate::Drop(reason);
                }
                self.ahead.begins(place);
            }
        }
        rules.count(self.worker, decided, read.bytes);
        Fate::Passes
    }

    /// A SYN of a connection that both sides have opened: of a host that was started again and takes the same ports, or forged. The other host knows, and asks: its acknowledgement is in
    /// the window, and the reset that it brings about, at the very next number, ends the connection (RFC 5961, section 4). So the SYN passes where it might begin a connection, and
    /// changes nothing of this one.
    fn again(&mut self, place: usize, rules: &Rules, ways: Ways, read: &Read<A, W>) -> Fate {
        self.counters.one(Counter::ByRules);
        let mut decided = [None; 2];
        for (way, interface) in [ways.from, ways.to].into_iter().enumerate() {
            if (way == 1 && ways.to == NOWHERE) || rules.skips(interface) {
                continue;
            }
            let decision = self.decide(rules, place, read, way == 1, interface);
            if decision.action != Action::Pass {
                self.counters.one(Counter::OutOfWindow);
                return Fate::Drop(DropReason::FilterOutOfWindow);
            }
            decided[way] = decision.rule;
        }
        rules.count(self.worker, decided, read.bytes);
        Fate::Passes
    }

    /// Remembers a new connection, if the packet can begin one; why not, if it must be dropped for that.
    fn begin(
        &mut self,
        now_ms: u64,
        rules: &Rules,
        ways: Ways,
        read: &Read<A, W>,
        kept: [bool; 2],
        by_rule: [u32; 2],
    ) -> Option<DropReason> {
        let tcp = match &read.load {
            Load::Tcp(segment) if segment.opens() => Tcp::begun(segment),
            // Only rules that say so let it come here without a SYN.
            Load::Tcp(segment) if segment.flags & (flag::SYN | flag::RST | flag::ACK) == flag::ACK => {
                Tcp::picked_up(segment)
            }
            Load::Udp | Load::Echo(true) | Load::Other => Tcp::default(),
            _ => return None,
        };
        let mut connection = Connection {
            until_ms: 0,
            origin_low: read.from_low,
            kept,
            answered: false,
            turned: [false; 2],
            version: rules.version(),
            interfaces: [ways.from, ways.to],
            rules: by_rule,
            packets: [1, 0],
            tcp,
            half: crate::filter::half::NONE,
        };
        connection.until_ms = now_ms + connection.timeout_ms(Kind::of(read.protocol), &rules.times);
        let evicted = match self.states.insert(&read.key, &connection) {
            Ok(evicted) => evicted,
            Err(NoRoom::Source) => {
                self.counters.one(Counter::SourceLimit);
                return Some(DropReason::FilterSourceLimit);
            }
            Err(NoRoom::Full) => {
                self.counters.one(Counter::StatesFull);
                return Some(DropReason::FilterStatesFull);
            }
        };
        self.counters.add(Counter::HalfOpenEvicted, evicted.half_open);
        self.counters.add(Counter::UnansweredEvicted, evicted.unanswered);
        self.counters.one(Counter::StatesMade);
        for (rule, _) in by_rule.into_iter().zip(kept).filter(|(_, kept)| *kept) {
            if let Some(cell) = rules.cell(self.worker, rule_of(rule)) {
                cell.state();
            }
        }
        None
    }

    /// An ICMP error about a packet of a connection: it passes, and ends nothing. `None`: it is about none.
    fn about(&mut self, now_ms: u64, rules: &Rules, read: &Read<A, W>, ip: &[u8], at: usize) -> Option<Fate> {
        let (key, from_low, seq) = quoted(ip, read, at)?;
        let slot = self.live(now_ms, rules, &key, None)?;
        let connection = self.states.connection(slot);
        let side = usize::from(connection.origin_low != from_low);
        if seq.is_some_and(|seq| !connection.tcp.may_quote(side, seq)) {
            self.counters.one(Counter::OutOfWindow);
            return Some(Fate::Drop(DropReason::FilterOutOfWindow));
        }
        self.counters.one(Counter::ErrorsPassed);
        Some(Fate::Passes)
    }

    /// The slot of a connection that lives, and that the rules of now allow.
    fn live(&mut self, now_ms: u64, rules: &Rules, key: &Key<W>, place: Option<usize>) -> Option<Slot> {
        if place.is_some_and(|place| self.ahead.has_none(place)) {
            return None;
        }
        let hint = place.filter(|_| self.ahead.epoch == self.states.epoch());
        let slot = hint.and_then(|place| self.ahead.hints.get(place)?.slot);
        let slot = slot.or_else(|| self.states.find(key))?;
        let before = self.states.connection(slot);
        if before.until_ms <= now_ms {
            self.states.remove(key);
            self.counters.one(Counter::StatesEnded);
            return None;
        }
        if before.version != rules.version() && rules.recheck {
            let mut after = before;
            if !self.still(rules, key, &mut after) {
                self.states.remove(key);
                self.counters.one(Counter::StatesRevoked);
                return None;
            }
            self.states.note(slot, &before, &after);
        }
        Some(slot)
    }

    /// Holds a connection to other rules: whether they would let its first packet begin it.
    fn still(&self, rules: &Rules, key: &Key<W>, connection: &mut Connection) -> bool {
        let ends = A::of_key(key);
        let (from, to) = if connection.origin_low { (ends.low, ends.high) } else { (ends.high, ends.low) };
        let kind = Kind::of(ends.protocol);
        let index = A::index(rules.sets());
        let sets = (index.of(from.0), index.of(to.0));
        for of_first in 0..2 {
            let interface = connection.interfaces[of_first];
            if !connection.kept[of_first] || rules.skips(interface) {
                continue;
            }
            // A packet of the other side goes the other way.
            let turned = connection.turned[of_first];
            let (source, destination, sets, out) = match turned {
                false => (from, to, sets, of_first == 1),
                true => (to, from, (sets.1, sets.0), of_first == 0),
            };
            let asked = Asked {
                source: source.0,
                destination: destination.0,
                ports: match (kind, A::V6, turned) {
                    (Kind::Tcp | Kind::Udp, ..) => (source.1, destination.1),
                    (Kind::Icmp, false, false) => (icmpv4::kind::ECHO_REQUEST.into(), 0),
                    (Kind::Icmp, false, true) => (icmpv4::kind::ECHO_REPLY.into(), 0),
                    (Kind::Icmp, true, false) => (icmpv6::kind::ECHO_REQUEST.into(), 0),
                    (Kind::Icmp, true, true) => (icmpv6::kind::ECHO_REPLY.into(), 0),
                    (Kind::Other, ..) => (0, 0),
                },
                protocol: ends.protocol,
                flags: match kind {
                    Kind::Tcp if turned || connection.tcp.is_picked_up() => flag::ACK,
                    Kind::Tcp => flag::SYN,
                    _ => 0,
                },
            };
            let decision = rules.decide(out, &asked.key(out, interface, sets));
            if decision.action != Action::Pass {
                return false;
            }
            connection.kept[of_first] = decision.keep_state;
            connection.rules[of_first] = decision.rule.unwrap_or(NO_RULE);
        }
        connection.version = rules.version();
        connection.kept != [false; 2]
    }

    /// What rules say of a packet on one of its ways.
    fn decide(&self, rules: &Rules, place: usize, read: &Read<A, W>, out: bool, interface: u16) -> Decision {
        if let Some(ranks) = self.ahead.hints.get(place).and_then(|hint| hint.ranks) {
            return rules.decision(out, ranks[usize::from(out)]);
        }
        let index = A::index(rules.sets());
        let sets = (index.of(read.source), index.of(read.destination));
        rules.decide(out, &Asked::of(read).key(out, interface, sets))
    }

    fn note(
        &mut self,
        now_ms: u64,
        rules: &Rules,
        decision: Decision,
        read: &Read<A, W>,
        out: bool,
        interface: u16,
    ) {
        let line = LogLine {
            ms: now_ms,
            rule: decision.rule.unwrap_or(NO_RULE),
            version: rules.version(),
            action: decision.action,
            direction: if out { Direction::Out } else { Direction::In },
            interface,
            source: read.source.to_ip(),
            destination: read.destination.to_ip(),
            protocol: read.protocol,
            ports: read.ports,
            bytes: read.bytes,
        };
        let logged = self.budget.take(now_ms, rules.log_per_s) && self.log.push(line).is_ok();
        self.counters.one(if logged { Counter::Logged } else { Counter::LogSkipped });
    }
}
