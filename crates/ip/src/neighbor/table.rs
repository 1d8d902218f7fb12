//! The control side's table of neighbors: one state machine for ARP (RFC 826, RFC 1122 2.3.2) and neighbor discovery
//! (RFC 4861 7.3). Pure: events and the time go in, actions come out; it has no socket, no clock and no bound that the
//! network could push.
//!
//! ```text
//!            Wanted, held                solicited reply                reachable_ns (x 0.5 to 1.5)
//!   (none) --------------> Incomplete ---------------------> Reachable -------------------------> Probe
//!      |                    |      ^  \                        ^    |                             |   |
//!      | Request            |      |   \ gratuitous, request   |    | another MAC, unsolicited    |   | no answer
//!      |           solicits |      |    \                      |    v            solicited reply  |   v
//!      +--------------------|------|-----+---------------->  Stale ---- delay_ns ----> Probe -----+  Lost:
//!                           v      | asked again, back-off                                        held: Incomplete
//!                        Failed ---+  (not held: forgotten after failed_hold_ns)                  else: forgotten
//! ```
//!
//! * The data path says nothing of what it uses, so every neighbor with an address is probed, by unicast, when
//!   `reachable_ns` is over; packets go on flowing meanwhile. With RFC 4861's words: all entries are always in use.
//! * Gateways of routes are **held**: asked for at once and for ever, every `backoff_ns` at last, never forgotten.
//! * An answer counts only if the entry exists. Who asks *us* is learnt (its traffic wants a way back), if it is on the
//!   link; that is proven, as everything else, by a probe.
//! * **Bounds**: `incomplete` addresses that never answered, oldest out first, and `entries` that did, those out first
//!   that were silent longest; interfaces that have the most give way first. So a scan costs `incomplete` entries of
//!   memory and never an entry that works, and an address that exists answers long before it is the oldest. About 0.3 KB
//!   per entry, 22 MB when both are full at the defaults.
//! * All operations are O(log n), but for [`Table::interface_down`], [`Table::interface_up`] and [`Table::iter`]: O(n).
//!
//! Departures from RFC 4861: no DELAY state (there is no word from upper layers to wait for), and failed addresses are
//! remembered for `failed_hold_ns`, in which packets to them are refused at once rather than queued.

mod shelf;
#[cfg(test)]
mod tests;
mod types;

use super::{Event, How, Key};
use shelf::Shelf;
use std::collections::{BTreeSet, HashMap};
use tidemill_wire::MacAddr;
use types::SECOND_NS;

pub use types::{Action, Limits, Loss, Neighbor, Origin, State, Stats, Timers};

/// More than any timer: what the clock jumps ahead beyond this makes no difference.
const JUMP_NS: u64 = 3600 * SECOND_NS;
/// Entries that one tick handles at most: what is asked at once fits into the workers' mailboxes.
const BATCH: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Entry {
    state: State,
    mac: MacAddr,
    origin: Origin,
    held: bool,
    /// It has answered a question of ours since it was made.
    confirmed: bool,
    /// Questions asked in this state.
    tries: u8,
    /// Its place in the order of giving way.
    stamp: u64,
    since_ns: u64,
    asked_ns: Option<u64>,
    moved_ns: Option<u64>,
    due_ns: Option<u64>,
}

/// The order in which an entry gives way.
enum Place {
    /// Never.
    Pinned,
    Answered,
    Unanswered,
}

impl Entry {
    fn place(&self) -> Place {
        match self {
            _ if self.held || self.state == State::Static => Place::Pinned,
            _ if self.confirmed => Place::Answered,
            _ => Place::Unanswered,
        }
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    timers: Timers,
    limits: Limits,
    entries: HashMap<Key, Entry>,
    due: BTreeSet<(u64, Key)>,
    answered: Shelf,
    unanswered: Shelf,
    down: BTreeSet<u16>,
    /// Our own time: goes on by what passes on the clock that is handed in, and never back.
    now_ns: u64,
    seen_ns: u64,
    sequence: u64,
    stats: Stats,
}

impl Table {
    /// An empty table.
    pub fn new(timers: Timers, limits: Limits) -> Self {
        let mut table = Table {
            timers,
            limits: Limits {
                entries: limits.entries.max(1),
                per_interface: limits.per_interface.max(1),
                incomplete: limits.incomplete.max(1),
            },
            entries: HashMap::new(),
            due: BTreeSet::new(),
            answered: Shelf::default(),
            unanswered: Shelf::default(),
            down: BTreeSet::new(),
            now_ns: 0,
            seen_ns: 0,
            sequence: 0,
            stats: Stats::default(),
        };
        table.set_timers(timers);
        table
    }

    /// Other timers, from now on: what is due already stays so.
    pub fn set_timers(&mut self, timers: Timers) {
        let retransmit_ns = timers.retransmit_ns.max(1_000_000);
        self.timers = Timers {
            retransmit_ns,
            backoff_ns: timers.backoff_ns.max(retransmit_ns),
            solicits: timers.solicits.max(1),
            probes: timers.probes.max(1),
            ..timers
        };
    }

    /// What a worker told. `on_link`: whether the neighbor's address is in a prefix of its interface, or link-local;
    /// others get no new entry.
    pub fn event(&mut self, now_ns: u64, event: &Event, on_link: bool, out: &mut Vec<Action>) {
        self.advance(now_ns);
        match *event {
            Event::Wanted(key) => self.wanted(key, on_link, out),
            Event::Heard { key, mac, how } => self.heard(key, mac, how, on_link, out),
        }
    }

    /// Does what is due, for up to 1,024 neighbors; returns when to come again, on the clock that is handed in. `None`
    /// if nothing is waiting.
    pub fn tick(&mut self, now_ns: u64, out: &mut Vec<Action>) -> Option<u64> {
        self.advance(now_ns);
        for _ in 0..BATCH {
            let &(due_ns, key) = self.due.first()?;
            if due_ns > self.now_ns {
                break;
            }
            match self.detach(key) {
                Some(entry) => self.step(key, entry, out),
                None => drop(self.due.pop_first()),
            }
        }
        let wait_ns = self.due.first()?.0.saturating_sub(self.now_ns);
        Some(now_ns.saturating_add(wait_ns))
    }

    /// Keeps the neighbor resolved: a route needs it. False, with [`Action::Lost`], if there are too many such
    /// already. Harmless when repeated.
    pub fn hold(&mut self, now_ns: u64, key: Key, out: &mut Vec<Action>) -> bool {
        self.advance(now_ns);
        let Some(mut entry) = self.detach(key) else {
            let mut entry = self.fresh(State::Incomplete);
            entry.held = true;
            return self.begin(key, entry, out);
        };
        entry.held = true;
        match entry.state {
            State::Failed => return self.begin(key, entry, out),
            State::Incomplete => {}
            _ => out.push(Action::Resolved { key, mac: entry.mac, fresh: false }),
        }
        self.attach(key, entry, out)
    }

    /// No route needs the neighbor any more: it lives on as any other does.
    pub fn release(&mut self, now_ns: u64, key: Key, out: &mut Vec<Action>) {
        self.advance(now_ns);
        let Some(mut entry) = self.detach(key) else { return };
        entry.held = false;
        if entry.state == State::Failed {
            entry.due_ns = Some(self.now_ns.saturating_add(self.timers.failed_hold_ns));
        }
        self.attach(key, entry, out);
    }

    /// Fixes the neighbor's MAC address. False, with [`Action::Lost`], if the table is full of held and static ones.
    pub fn set_static(&mut self, key: Key, mac: MacAddr, out: &mut Vec<Action>) -> bool {
        let known = self.entries.get(&key).filter(|entry| entry.state.is_known()).map(|entry| entry.mac);
        let mut entry = self.detach(key).unwrap_or_else(|| self.fresh(State::Static));
        self.enter(&mut entry, State::Static, None);
        (entry.mac, entry.origin) = (mac, Origin::Static);
        let placed = self.attach(key, entry, out);
        if placed && known != Some(mac) {
            self.resolved(key, mac, out);
        }
        placed
    }

    /// Takes a fixed MAC address out; the neighbor is asked for if a route needs it.
    pub fn unset_static(&mut self, now_ns: u64, key: Key, out: &mut Vec<Action>) {
        self.advance(now_ns);
        if self.entries.get(&key).is_none_or(|entry| entry.state != State::Static) {
            return;
        }
        let Some(mut entry) = self.detach(key) else { return };
        out.push(Action::Lost { key, why: Loss::Removed });
        if entry.held {
            entry.origin = Origin::Learnt;
            self.begin(key, entry, out);
        }
    }

    /// What the kernel's table says of a neighbor: its MAC address, or that it has none (any more), upon which it is
    /// probed. The kernel only believes what it was told in answer, so this counts as an answer.
    pub fn kernel(&mut self, now_ns: u64, key: Key, mac: Option<MacAddr>, out: &mut Vec<Action>) {
        self.advance(now_ns);
        let known = self.entries.get(&key).copied();
        if self.down.contains(&key.interface) || known.is_some_and(|entry| entry.state == State::Static) {
            return;
        }
        let Some(mac) = mac else {
            let proven = known.is_some_and(|entry| matches!(entry.state, State::Reachable | State::Stale));
            if proven && let Some(mut entry) = self.detach(key) {
                self.enter(&mut entry, State::Stale, Some(self.now_ns));
                self.attach(key, entry, out);
            }
            return;
        };
        if !mac.is_unicast() {
            self.stats.invalid += 1;
            return;
        }
        let mut entry = self.detach(key).unwrap_or_else(|| self.fresh(State::Incomplete));
        let fresh = !entry.state.is_known() || entry.mac != mac;
        (entry.mac, entry.origin, entry.confirmed) = (mac, Origin::Kernel, true);
        self.enter_reachable(&mut entry);
        if self.attach(key, entry, out) && fresh {
            self.resolved(key, mac, out);
        }
    }

    /// The interface cannot send: its neighbors are lost, but for static ones. Those held are asked for again when it
    /// is back.
    pub fn interface_down(&mut self, interface: u16, out: &mut Vec<Action>) {
        if !self.down.insert(interface) {
            return;
        }
        for key in self.keys_of(interface) {
            let Some(mut entry) = self.detach(key) else { continue };
            if entry.state != State::Static {
                if entry.state != State::Failed {
                    out.push(Action::Lost { key, why: Loss::Down });
                }
                if !entry.held {
                    continue;
                }
                self.enter(&mut entry, State::Failed, None);
            }
            self.attach(key, entry, out);
        }
    }

    /// The interface can send (again).
    pub fn interface_up(&mut self, now_ns: u64, interface: u16, out: &mut Vec<Action>) {
        self.advance(now_ns);
        if !self.down.remove(&interface) {
            return;
        }
        for key in self.keys_of(interface) {
            if self.entries.get(&key).is_some_and(|entry| entry.state == State::Failed)
                && let Some(entry) = self.detach(key)
            {
                self.begin(key, entry, out);
            }
        }
    }

    fn keys_of(&self, interface: u16) -> Vec<Key> {
        let mut keys: Vec<_> =
            self.entries.keys().filter(|key| key.interface == interface).copied().collect();
        keys.sort_unstable(); // the same order every time
        keys
    }

    /// The neighbor, if it has an entry.
    pub fn get(&self, key: Key) -> Option<Neighbor> {
        self.entries.get(&key).map(|entry| self.shown(key, entry))
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.entries.iter().map(|(key, entry)| self.shown(*key, entry))
    }

    fn shown(&self, key: Key, entry: &Entry) -> Neighbor {
        let Entry { state, held, origin, .. } = *entry;
        let age_ns = self.now_ns - entry.since_ns;
        Neighbor { key, state, mac: state.is_known().then_some(entry.mac), held, origin, age_ns }
    }

    /// How many entries there are: at most `limits.entries + limits.incomplete`.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What has happened so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Moves our time on. A clock that steps back by more than a second was set: time goes on from there.
    fn advance(&mut self, now_ns: u64) {
        match now_ns.checked_sub(self.seen_ns) {
            Some(passed_ns) => {
                self.now_ns += passed_ns.min(JUMP_NS);
                self.seen_ns = now_ns;
            }
            None if self.seen_ns - now_ns > SECOND_NS => self.seen_ns = now_ns,
            None => {}
        }
    }

    fn next_stamp(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn fresh(&mut self, state: State) -> Entry {
        Entry {
            state,
            mac: MacAddr::ZERO,
            origin: Origin::Learnt,
            held: false,
            confirmed: false,
            tries: 0,
            stamp: self.next_stamp(),
            since_ns: self.now_ns,
            asked_ns: None,
            moved_ns: None,
            due_ns: None,
        }
    }

    fn enter(&mut self, entry: &mut Entry, state: State, due_ns: Option<u64>) {
        (entry.state, entry.since_ns, entry.tries, entry.due_ns) = (state, self.now_ns, 0, due_ns);
    }

    /// Half to one and a half times `reachable_ns` (RFC 4861 6.3.2), so that neighbors met at once are not probed at
    /// once.
    fn enter_reachable(&mut self, entry: &mut Entry) {
        // Fibonacci hashing of the number of the entry's last event: as good as random here, and repeatable.
        let random = self.next_stamp().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let base_ns = self.timers.reachable_ns;
        let spread_ns = ((u128::from(base_ns) * u128::from(random)) >> 32) as u64;
        let due_ns = self.now_ns.saturating_add(base_ns / 2).saturating_add(spread_ns);
        self.enter(entry, State::Reachable, Some(due_ns));
    }

    fn enter_stale(&mut self, entry: &mut Entry) {
        self.enter(entry, State::Stale, Some(self.now_ns.saturating_add(self.timers.delay_ns)));
    }

    /// Takes an entry out, to be changed and attached again.
    fn detach(&mut self, key: Key) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        if let Some(due_ns) = entry.due_ns {
            self.due.remove(&(due_ns, key));
        }
        match entry.place() {
            Place::Pinned => {}
            Place::Answered => self.answered.remove(key, entry.stamp),
            Place::Unanswered => self.unanswered.remove(key, entry.stamp),
        }
        Some(entry)
    }

    /// Puts an entry in; others may have to give way. False, with [`Action::Lost`], if there is no room for it.
    fn attach(&mut self, key: Key, entry: Entry, out: &mut Vec<Action>) -> bool {
        let room = match entry.place() {
            Place::Unanswered => {
                if self.unanswered.len() >= self.limits.incomplete {
                    self.evict(self.unanswered.first(), out);
                }
                true
            }
            Place::Answered => {
                if self.answered.count(key.interface) >= self.limits.per_interface {
                    self.evict(self.answered.first_of(key.interface), out);
                }
                self.make_room(out)
            }
            Place::Pinned => self.make_room(out),
        };
        if !room {
            out.push(Action::Lost { key, why: Loss::GaveWay });
            self.stats.gave_way += 1;
            return false;
        }
        match entry.place() {
            Place::Pinned => {}
            Place::Answered => self.answered.insert(key, entry.stamp),
            Place::Unanswered => self.unanswered.insert(key, entry.stamp),
        }
        if let Some(due_ns) = entry.due_ns {
            self.due.insert((due_ns, key));
        }
        self.entries.insert(key, entry);
        true
    }

    fn make_room(&mut self, out: &mut Vec<Action>) -> bool {
        while self.entries.len() - self.unanswered.len() >= self.limits.entries {
            if self.answered.len() == 0 {
                return false;
            }
            self.evict(self.answered.first(), out);
        }
        true
    }

    fn evict(&mut self, key: Option<Key>, out: &mut Vec<Action>) {
        let Some(key) = key else { return };
        let Some(entry) = self.detach(key) else { return };
        self.stats.gave_way += 1;
        if entry.state != State::Failed {
            out.push(Action::Lost { key, why: Loss::GaveWay });
        }
    }

    fn resolved(&mut self, key: Key, mac: MacAddr, out: &mut Vec<Action>) {
        self.stats.resolved += 1;
        out.push(Action::Resolved { key, mac, fresh: true });
    }

    /// Asks, and comes again when the time for an answer is over.
    fn solicit(&mut self, key: Key, entry: &mut Entry, to: Option<MacAddr>, out: &mut Vec<Action>) {
        entry.tries = entry.tries.saturating_add(1);
        entry.asked_ns = Some(self.now_ns);
        entry.due_ns = Some(self.now_ns.saturating_add(self.timers.retransmit_ns));
        self.stats.solicits += 1;
        out.push(Action::Solicit { key, to });
    }

    /// When a neighbor may be asked for again.
    fn may_ask_ns(&self, entry: &Entry) -> u64 {
        entry.asked_ns.map_or(0, |asked_ns| asked_ns.saturating_add(self.timers.retransmit_ns))
    }

    /// Asks everybody for it from the start, and puts the entry in.
    fn begin(&mut self, key: Key, mut entry: Entry, out: &mut Vec<Action>) -> bool {
        if self.down.contains(&key.interface) {
            out.push(Action::Lost { key, why: Loss::Down });
            self.enter(&mut entry, State::Failed, None);
            return self.attach(key, entry, out);
        }
        let may_ask_ns = self.may_ask_ns(&entry);
        self.enter(&mut entry, State::Incomplete, Some(may_ask_ns));
        if !self.attach(key, entry, out) {
            return false;
        }
        if may_ask_ns <= self.now_ns
            && let Some(mut entry) = self.detach(key)
        {
            self.solicit(key, &mut entry, None, out);
            return self.attach(key, entry, out);
        }
        true
    }

    /// A packet waits for it.
    fn wanted(&mut self, key: Key, on_link: bool, out: &mut Vec<Action>) {
        let down = self.down.contains(&key.interface);
        let Some(&entry) = self.entries.get(&key) else {
            if down || !on_link {
                self.stats.off_link += u64::from(!on_link);
                let why = if on_link { Loss::Down } else { Loss::Removed };
                out.push(Action::Lost { key, why });
                return;
            }
            let entry = self.fresh(State::Incomplete);
            self.begin(key, entry, out);
            return;
        };
        match entry.state {
            State::Incomplete => {}
            State::Failed if down => out.push(Action::Lost { key, why: Loss::Down }),
            State::Failed => {
                let held_until_ns = entry.since_ns.saturating_add(self.timers.failed_hold_ns);
                if self.now_ns < held_until_ns.max(self.may_ask_ns(&entry)) {
                    out.push(Action::Lost { key, why: Loss::Silent });
                } else if let Some(entry) = self.detach(key) {
                    self.begin(key, entry, out);
                }
            }
            _ => out.push(Action::Resolved { key, mac: entry.mac, fresh: false }),
        }
    }

    /// Somebody said which MAC address it has (RFC 826, RFC 4861 7.2.3, 7.2.5); `None` says that it is there.
    fn heard(&mut self, key: Key, mac: Option<MacAddr>, how: How, on_link: bool, out: &mut Vec<Action>) {
        if mac.is_some_and(|mac| !mac.is_unicast()) {
            self.stats.invalid += 1;
            return;
        }
        if self.down.contains(&key.interface) {
            return;
        }
        let Some(&entry) = self.entries.get(&key) else {
            match (how, mac) {
                (How::Request, Some(mac)) if on_link => {
                    let mut entry = self.fresh(State::Stale);
                    entry.mac = mac;
                    self.enter_stale(&mut entry);
                    if self.attach(key, entry, out) {
                        self.resolved(key, mac, out);
                    }
                }
                (How::Request, _) => self.stats.off_link += u64::from(!on_link),
                _ => self.stats.unasked += 1,
            }
            return;
        };
        match entry.state {
            State::Static => self.stats.contradicted += u64::from(mac.is_some_and(|mac| mac != entry.mac)),
            State::Incomplete | State::Failed => {
                if let Some(mac) = mac {
                    self.answered(key, mac, how, out);
                }
            }
            _ => self.confirmed(key, mac, how, out),
        }
    }

    /// The first that is heard of a neighbor that was asked for.
    fn answered(&mut self, key: Key, mac: MacAddr, how: How, out: &mut Vec<Action>) {
        let Some(mut entry) = self.detach(key) else { return };
        (entry.mac, entry.origin, entry.stamp) = (mac, Origin::Learnt, self.next_stamp());
        if matches!(how, How::Reply { solicited: true, .. }) {
            entry.confirmed = true;
            self.enter_reachable(&mut entry);
        } else {
            self.enter_stale(&mut entry);
        }
        if self.attach(key, entry, out) {
            self.resolved(key, mac, out);
        }
    }

    /// More that is heard of a neighbor whose MAC address is known.
    fn confirmed(&mut self, key: Key, mac: Option<MacAddr>, how: How, out: &mut Vec<Action>) {
        let Some(mut entry) = self.detach(key) else { return };
        let moves = mac.filter(|mac| *mac != entry.mac);
        let overrides = !matches!(how, How::Reply { overrides: false, .. });
        // What comes when we have not asked proves nothing, whatever it says of itself.
        let proven = matches!(how, How::Reply { solicited: true, .. }) && entry.state == State::Probe;
        let locked = entry.moved_ns.is_some_and(|ns| self.now_ns < ns.saturating_add(self.timers.lock_ns));
        match moves {
            Some(_) if !overrides => {
                self.stats.contradicted += 1;
                if entry.state == State::Reachable {
                    self.enter_stale(&mut entry);
                }
                self.attach(key, entry, out);
                return;
            }
            Some(_) if locked => {
                self.stats.flapping += 1;
                self.attach(key, entry, out);
                return;
            }
            Some(mac) => {
                self.stats.moved += 1;
                (entry.mac, entry.origin, entry.moved_ns) = (mac, Origin::Learnt, Some(self.now_ns));
            }
            None => {}
        }
        entry.stamp = self.next_stamp();
        if proven {
            entry.confirmed = true;
            self.enter_reachable(&mut entry);
        } else if moves.is_some() {
            self.enter_stale(&mut entry);
        }
        if self.attach(key, entry, out)
            && let Some(mac) = moves
        {
            self.resolved(key, mac, out);
        }
    }

    /// What is due for an entry.
    fn step(&mut self, key: Key, mut entry: Entry, out: &mut Vec<Action>) {
        match entry.state {
            State::Incomplete if entry.tries < self.timers.solicits => {
                self.solicit(key, &mut entry, None, out);
            }
            State::Incomplete => {
                self.lose(key, out);
                let wait_ns = if entry.held { self.timers.retransmit_ns } else { self.timers.failed_hold_ns };
                self.enter(&mut entry, State::Failed, Some(self.now_ns.saturating_add(wait_ns)));
            }
            State::Reachable | State::Stale => {
                // A stale entry may be due sooner after its last probe than one may ask.
                let may_ask_ns = self.may_ask_ns(&entry);
                if may_ask_ns > self.now_ns {
                    entry.due_ns = Some(may_ask_ns);
                } else {
                    self.enter(&mut entry, State::Probe, None);
                    let mac = entry.mac;
                    self.solicit(key, &mut entry, Some(mac), out);
                }
            }
            State::Probe if entry.tries < self.timers.probes => {
                let mac = entry.mac;
                self.solicit(key, &mut entry, Some(mac), out);
            }
            State::Probe => {
                self.lose(key, out);
                if entry.held {
                    self.begin(key, entry, out);
                }
                return;
            }
            State::Failed if entry.held => {
                let tries = entry.tries;
                self.solicit(key, &mut entry, None, out);
                let wait_ns = self.timers.retransmit_ns.saturating_mul(2 << tries.min(30));
                entry.due_ns = Some(self.now_ns.saturating_add(wait_ns.min(self.timers.backoff_ns)));
            }
            State::Failed => return,
            State::Static => entry.due_ns = None,
        }
        self.attach(key, entry, out);
    }

    fn lose(&mut self, key: Key, out: &mut Vec<Action>) {
        self.stats.silent += 1;
        out.push(Action::Lost { key, why: Loss::Silent });
    }
}
