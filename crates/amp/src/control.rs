//! The control side: owns the settings and publishes them, hands rules to the offload. What operators read is in `src/look.rs`.

use crate::allow::tuple_of;
use crate::config::{MitigatorSection, OffloadKind};
use crate::counters::{Board, Counter, Counters};
use crate::error::AmpError;
use crate::flows::{Known, State, Status};
use crate::look::{Look, known};
use crate::mail::{Events, Post};
use crate::mitigator::{Mitigator, Ties};
use crate::offload::{Offload, RuleEvent};
use crate::settings::Settings;
use crate::show::{Because, Explained, RulesPage, TopBy, TopLine, Wanted};
use crate::tuple::{Tuple, TupleKey, WORDS4, WORDS6, key4, key6, ports};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_flow::flowtable::FlowReader;
use tidemill_flow::key::Key;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;
use tidemill_wire::FlowKey;
use tidemill_wire::flow::Addresses;

/// The workers' halves, until their nodes are made.
pub(crate) struct Seats(Mutex<Vec<Option<Box<Mitigator>>>>);

impl Seats {
    pub(crate) fn take(&self, worker: usize) -> Option<Box<Mitigator>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }
}

/// One worker's tables and numbers, read from here.
struct Shown {
    v4: FlowReader<WORDS4, State>,
    v6: FlowReader<WORDS6, State>,
    board: Board,
    events: Option<Arc<Events>>,
}

/// The control side of a mitigator. Workers hold views of what it publishes, and never wait for it.
pub struct MitigatorControl {
    section: MitigatorSection,
    ports: Vec<String>,
    outside: usize,
    settings: Publisher<Settings>,
    seats: Arc<Seats>,
    workers: Vec<Shown>,
    offload: Option<Box<dyn Offload>>,
    notes: Vec<String>,
    full: Full,
    batch: Vec<RuleEvent>,
    lifetimes: Lifetimes,
    /// Rules below us have not been held against a new allow-list yet.
    relisted: bool,
}

/// The values that `expiry_s` has had, by the numbers that rules keep. 0 is none of them: there is room for 15.
#[derive(Debug, Clone)]
pub(crate) struct Lifetimes(Vec<u32>);

impl Lifetimes {
    fn number(&mut self, expiry_s: u32) -> u8 {
        let known = self.0.iter().position(|known| *known == expiry_s);
        let at = known.unwrap_or_else(|| {
            self.0.push(expiry_s);
            self.0.len() - 1
        });
        self.0.truncate(15);
        if at < 15 { at as u8 + 1 } else { 0 }
    }

    /// Seconds since a rule was made, if that can be known.
    pub(crate) fn since(&self, known: &Known, now_s: u32) -> Option<u32> {
        let expiry_s = self.0.get(usize::from(known.lifetime).checked_sub(1)?)?;
        Some(expiry_s.saturating_sub(known.until_s.saturating_sub(now_s)))
    }
}

/// Events handed to the offload at once.
const BATCH: usize = 4096;

impl MitigatorControl {
    /// Checks a configuration against the names of the ports, and makes the tables of so many workers of `domain`.
    ///
    /// # Errors
    /// Which key is wrong, and what to do; tables that are too large.
    pub fn new(
        section: &MitigatorSection,
        ports: &[String],
        workers: usize,
        domain: &Domain,
    ) -> Result<Self, AmpError> {
        // Nobody can foresee it: an attacker picks the keys.
        let random = |n: u64| u128::from(RandomState::new().hash_one(n));
        Self::with_secret(section, ports, workers, domain, random(0) << 64 | random(1))
    }

    /// The same with a secret of the caller's, for runs that are to be repeated.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_secret(
        section: &MitigatorSection,
        ports: &[String],
        workers: usize,
        domain: &Domain,
        secret: u128,
    ) -> Result<Self, AmpError> {
        let outside = sides(section, ports)?;
        let mut lifetimes = Lifetimes(Vec::new());
        let mut settings = Settings::new(section)?;
        settings.lifetime = lifetimes.number(section.expiry_s);
        let post = Post::new(workers);
        let mut control = MitigatorControl {
            section: section.clone(),
            ports: ports.to_vec(),
            outside,
            settings: Publisher::new(domain, settings),
            seats: Arc::new(Seats(Mutex::default())),
            workers: Vec::new(),
            offload: None,
            notes: Vec::new(),
            full: Full::default(),
            batch: Vec::new(),
            lifetimes,
            relisted: false,
        };
        let offloads = section.offload != OffloadKind::None;
        let mut seats = Vec::new();
        for worker in 0..workers {
            let (board, events) = (Board::default(), offloads.then(Events::new));
            let ties = Ties { worker, post: post.clone(), events: events.clone(), board: board.clone() };
            let mitigator = Mitigator::tied(section.entries, secret, ties)?;
            let (v4, v6) = mitigator.readers();
            control.workers.push(Shown { v4, v6, board, events });
            seats.push(Some(Box::new(mitigator)));
        }
        for (worker, mitigator) in seats.iter_mut().flatten().enumerate() {
            let others = control.workers.iter().enumerate().filter(|(other, _)| *other != worker);
            mitigator.heed(others.map(|(_, shown)| (shown.v4.clone(), shown.v6.clone())));
        }
        control.seats = Arc::new(Seats(Mutex::new(seats)));
        Ok(control)
    }

    /// Hands over what drops below us: before packets flow, with `offload` in the configuration.
    ///
    /// # Errors
    /// The configuration names none, or it does not take our settings.
    pub fn set_offload(&mut self, mut offload: Box<dyn Offload>) -> Result<(), AmpError> {
        if self.section.offload == OffloadKind::None {
            return Err(AmpError::Offload(format!(
                "the configuration names none, and here is {:?}: write offload = {:?}",
                offload.name(),
                offload.name()
            )));
        }
        let entries = self.section.entries.saturating_mul(self.workers.len());
        offload.configure(&self.settings.current().for_offload(entries)).map_err(AmpError::Offload)?;
        let seats = self.seats.clone();
        let mut seats = seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mitigator in seats.iter_mut().flatten() {
            offload.lifter().into_iter().for_each(|lifter| mitigator.set_lifter(lifter));
        }
        self.offload = Some(offload);
        Ok(())
    }

    /// Takes on the rules that the offload has from a process before us, as if they were made here: with the ends that they
    /// have, and lifted as others are. Call it behind [`set_offload`](Self::set_offload), before packets flow. Says how many.
    pub fn adopt(&mut self, now_ns: u64) -> usize {
        let Some(offload) = &mut self.offload else { return 0 };
        let seats = self.seats.clone();
        let mut seats = seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seats: Vec<&mut Mitigator> = seats.iter_mut().flatten().map(|seat| &mut **seat).collect();
        if seats.is_empty() {
            return 0;
        }
        let settings = self.settings.current();
        let (mut taken, mut left) = (0, Vec::new());
        for (tuple, expires_ns) in offload.adopted(now_ns) {
            // One table will do: where the offload has not the rule, another worker that gets such a flow suspects it, and is told with the victim's first
            // message about it. They take turns, for all of them together have room.
            let fits = (0..seats.len()).any(|more| {
                let seat = (taken + more) % seats.len();
                seats[seat].adopt(settings, now_ns, tuple, expires_ns)
            });
            if fits {
                taken += 1;
            } else {
                left.push(RuleEvent::Removed { key: tuple });
            }
        }
        seats.iter_mut().for_each(|seat| seat.show());
        offload.apply(now_ns, &left, &|_| true);
        if taken + left.len() > 0 {
            self.notes.push(format!(
                "mitigator.offload: {taken} rules of a process before are in force, {} are not any more",
                left.len()
            ));
        }
        taken
    }

    /// Takes another configuration: all of it or, with what is wrong, nothing. Ports, `tuple`, `entries` and `offload` stay as they are.
    ///
    /// # Errors
    /// What is wrong with it, or which keys would need a restart.
    pub fn reload(&mut self, section: &MitigatorSection) -> Result<(), AmpError> {
        let mut settings = Settings::new(section)?;
        let outside = sides(section, &self.ports)?;
        let same =
            [("outside", outside == self.outside)].into_iter().chain(section.fixed_keys(&self.section));
        let keys: Vec<&str> = same.filter(|(_, same)| !same).map(|(key, _)| key).collect();
        if !keys.is_empty() {
            return Err(AmpError::Restart(keys.join(", mitigator.")));
        }
        settings.generation = self.settings.current().generation + 1;
        if let Some(offload) = &mut self.offload {
            let entries = section.entries.saturating_mul(self.workers.len());
            offload.configure(&settings.for_offload(entries)).map_err(AmpError::Offload)?;
        }
        settings.lifetime = self.lifetimes.number(section.expiry_s);
        self.relisted |= !settings.allow.is_empty() && settings.allow != self.settings.current().allow;
        self.settings.publish(settings);
        self.section = section.clone();
        Ok(())
    }

    /// Whatever there is to do beside packets: rules for the offload. Call it every few milliseconds; true if there was something.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.settings.collect();
        self.note_full(now_ns);
        let MitigatorControl { offload: Some(offload), workers, settings, notes, batch, relisted, .. } = self
        else {
            return false;
        };
        let stands = |tuple: &Tuple| stands(workers, settings.current(), seconds(now_ns), tuple);
        let events = || workers.iter().filter_map(|worker| worker.events.as_ref());
        let mut busy = false;
        if events().any(|events| events.take_lost()) {
            // What waits is older than the tables, and what comes from here on is told in order.
            for events in events() {
                events.take_lost();
                while events.pop().is_some() {}
            }
            let rules = rules_of(workers, now_ns);
            notes.push(format!(
                "mitigator.offload: more rules changed than could be told at once: all {} told anew",
                rules.len()
            ));
            offload.replace(now_ns, &mut rules.into_iter(), &stands);
            busy = true;
        }
        if std::mem::take(relisted) {
            // A worker that sleeps comes round its table slowly, and what is dropped below never wakes it.
            let (mode, allow) = (settings.current().mode, &settings.current().allow);
            each_rule(workers, seconds(now_ns), &mut |key, _| {
                if allow.forbids(&key, mode) {
                    batch.push(RuleEvent::Removed { key });
                }
                if batch.len() == BATCH {
                    offload.apply(now_ns, batch, &stands);
                    batch.clear();
                }
            });
            offload.apply(now_ns, batch, &stands);
            batch.clear();
            busy = true;
        }
        for events in events() {
            batch.extend(std::iter::from_fn(|| events.pop()).take(BATCH));
            if !batch.is_empty() {
                // What one worker has given up another may have made anew.
                batch.retain(|event| !matches!(event, RuleEvent::Removed { key } if stands(key)));
                offload.apply(now_ns, batch, &stands);
                batch.clear();
                busy = true;
            }
        }
        busy | offload.poll(now_ns)
    }

    /// Says, once a minute at most, that answers find no room in the tables.
    fn note_full(&mut self, now_ns: u64) {
        if now_ns < self.full.next_ns {
            return;
        }
        self.full.next_ns = now_ns.saturating_add(FULL_LOOK_NS);
        let mut counters = Counters::default();
        self.workers.iter().for_each(|worker| worker.board.add_to(&mut counters));
        let untracked = counters.get(Counter::Untracked);
        let more = untracked - self.full.untracked.min(untracked);
        self.full.untracked = untracked;
        if more == 0 {
            return;
        }
        self.full.next_ns = now_ns.saturating_add(FULL_NOTE_NS);
        self.notes.push(format!(
            "mitigator.entries: the tables of flows are full: {more} more answers were let through that nothing can be learnt of; raise entries \
             ({} for each worker now), or lower expiry_s ({})",
            self.section.entries, self.section.expiry_s
        ));
    }

    /// Lines for the log since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        if let Some(offload) = &mut self.offload {
            notes.extend(offload.take_notes());
        }
        notes
    }

    /// How many protocols are looked at.
    pub fn protocols(&self) -> usize {
        self.settings.current().protocols.len()
    }

    /// Live numbers, of all workers together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.workers.iter().for_each(|worker| worker.board.add_to(&mut sum));
        if let Some(offload) = &self.offload {
            let counters = offload.counters();
            sum.set(Counter::OffloadDropped, counters.dropped.packets);
            sum.set(Counter::OffloadDroppedBytes, counters.dropped.bytes);
            sum.set(Counter::OffloadWouldDrop, counters.would_drop.packets);
            sum.set(Counter::OffloadRules, counters.rules);
            sum.set(Counter::OffloadRefused, counters.refused);
        }
        sum
    }

    /// One worker's numbers, the offload's left out.
    pub fn counters_of(&self, worker: usize) -> Option<Counters> {
        let mut counters = Counters::default();
        self.workers.get(worker)?.board.add_to(&mut counters);
        Some(counters)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        self.settings.current()
    }

    /// The configuration in force.
    pub fn section(&self) -> &MitigatorSection {
        &self.section
    }

    /// The names of the ports, in their order.
    pub fn ports(&self) -> &[String] {
        &self.ports
    }

    /// The name of the port where amplifiers are.
    pub fn outside(&self) -> &str {
        &self.ports[self.outside]
    }

    /// The name of the port where victims are.
    pub fn inside(&self) -> &str {
        &self.ports[1 - self.outside]
    }

    /// One worker's half, for whoever drives it without a graph: a simulation, a benchmark. None if it was handed over already.
    pub fn mitigator(&self, worker: usize) -> Option<Box<Mitigator>> {
        self.seats.take(worker)
    }

    pub(crate) fn view(&self) -> View<Settings> {
        self.settings.view()
    }

    pub(crate) fn seats(&self) -> Arc<Seats> {
        self.seats.clone()
    }

    /// What is known of flows, to be read without this control side: it may go on meanwhile, and nobody waits for who reads.
    pub fn look(&self) -> Look {
        Look {
            workers: self.workers.iter().map(|shown| (shown.v4.clone(), shown.v6.clone())).collect(),
            suspect_s: self.settings().suspect_s,
            lifetimes: self.lifetimes.clone(),
            account: self.offload.as_ref().map(|offload| offload.account()),
        }
    }

    /// [`Look::rules`] of a [`look`](Self::look) taken now.
    pub fn rules(&self, wanted: &Wanted, now_ns: u64) -> RulesPage {
        self.look().rules(wanted, now_ns)
    }

    /// [`Look::top`] of a [`look`](Self::look) taken now.
    pub fn top(&self, by: TopBy, n: usize, now_ns: u64) -> Vec<TopLine> {
        self.look().top(by, n, now_ns)
    }

    /// What would happen to a packet of this flow, outside to inside, and why.
    pub fn explain(&mut self, flow: &FlowKey, now_ns: u64) -> Explained {
        let settings = self.settings.current();
        let passes = |because| Explained {
            rule: None,
            drops: false,
            would_drop: false,
            because,
            workers: Vec::new(),
            filters: Vec::new(),
        };
        let Some(tuple) = tuple_of(flow) else { return passes(Because::NotUdp) };
        if !settings.is_protocol(tuple.source_port) {
            return passes(Because::NotAProtocol { port: tuple.source_port });
        }
        if let Some(&entry) = settings.allow.find(&tuple) {
            return passes(Because::Allowed { entry, text: entry.to_string() });
        }
        let (now_s, suspect_s) = (seconds(now_ns), settings.suspect_s);
        let dry_run = settings.dry_run;
        let ports = ports(tuple.source_port, tuple.destination_port);
        let (mask4, mask6) = (settings.mask4, settings.mask6);
        let (mut workers, mut filters, mut most) = (Vec::new(), Vec::new(), None::<Known>);
        for (worker, shown) in self.workers.iter_mut().enumerate() {
            let flow = match tuple.addresses {
                Addresses::V4 { src, dst } => shown.v4.get(&key4(src, dst, ports, &mask4)),
                Addresses::V6 { src, dst } => shown.v6.get(&key6(src, dst, ports, &mask6)),
            };
            let Some(known) = flow.map(known).filter(|known| known.holds(now_s, suspect_s)) else { continue };
            workers.push(worker);
            filters.extend((known.status == Status::Filtered).then_some(worker));
            let more = most.is_none_or(|most| known.status > most.status);
            most = Some(match most {
                Some(most) if !more => most,
                _ => known,
            });
        }
        let rule = tuple.masked(settings.mode);
        let because = match most {
            None => Because::Unknown,
            Some(Known { status: Status::Suspected, until_s, .. }) => {
                Because::Suspected { age_s: now_s.saturating_sub(until_s) }
            }
            Some(Known { status: Status::Solicited, until_s, .. }) => {
                Because::Solicited { left_s: until_s.saturating_sub(now_s) }
            }
            Some(known @ Known { status: Status::Filtered, until_s, mut hits, .. }) => {
                if let Some(offload) = &mut self.offload {
                    hits += offload.hits(&rule);
                }
                let left_s = until_s.saturating_sub(now_s);
                Because::Filtered { since_s: self.lifetimes.since(&known, now_s), left_s, hits, dry_run }
            }
        };
        let would_drop = matches!(because, Because::Filtered { .. });
        Explained { rule: Some(rule), drops: would_drop && !dry_run, would_drop, because, workers, filters }
    }
}

/// How often it is looked whether the tables are full, and how often it is said.
const FULL_LOOK_NS: u64 = 1_000_000_000;
const FULL_NOTE_NS: u64 = 60_000_000_000;

/// What was said of full tables.
#[derive(Debug, Default)]
struct Full {
    next_ns: u64,
    untracked: u64,
}

/// The number of the outside port.
fn sides(section: &MitigatorSection, ports: &[String]) -> Result<usize, AmpError> {
    if ports.len() != 2 {
        let what = format!("a mitigator has two ports, and there are {}: give two [[port]]s", ports.len());
        return Err(AmpError::config("outside", what));
    }
    let find = |key: &str, name: &Option<String>| match name {
        None => Ok(None),
        Some(name) => ports.iter().position(|port| port == name).map(Some).ok_or_else(|| {
            AmpError::config(
                key,
                format!("there is no port {name:?}; there are {:?} and {:?}", ports[0], ports[1]),
            )
        }),
    };
    match (find("outside", &section.outside)?, find("inside", &section.inside)?) {
        (Some(outside), Some(inside)) if outside == inside => Err(AmpError::config(
            "inside",
            format!("{:?} is outside already: give the other port", ports[inside]),
        )),
        (Some(outside), _) => Ok(outside),
        (None, Some(inside)) => Ok(1 - inside),
        (None, None) => Ok(0),
    }
}

pub(crate) fn seconds(now_ns: u64) -> u32 {
    (now_ns / 1_000_000_000) as u32
}

/// Visits all rules that hold.
fn each_rule(workers: &[Shown], now_s: u32, visit: &mut dyn FnMut(Tuple, Known)) {
    fn table<const W: usize>(reader: &FlowReader<W, State>, now_s: u32, visit: &mut dyn FnMut(Tuple, Known))
    where
        Key<W>: TupleKey,
    {
        reader.scan(0, usize::MAX, |key, flow| {
            let known = known(flow);
            if known.status == Status::Filtered && known.holds(now_s, 0) {
                visit(key.tuple(), known);
            }
        });
    }
    for worker in workers {
        table(&worker.v4, now_s, visit);
        table(&worker.v6, now_s, visit);
    }
}

/// Whether a rule holds: some worker has it, none has seen a question that lifts it, and the list does not forbid it. Who has it may not have read of
/// that yet.
fn stands(workers: &[Shown], settings: &Settings, now_s: u32, tuple: &Tuple) -> bool {
    if settings.allow.forbids(tuple, settings.mode) {
        return false;
    }
    let ports = ports(tuple.source_port, tuple.destination_port);
    let mut filtered = false;
    for shown in workers {
        let flow = match tuple.addresses {
            Addresses::V4 { src, dst } => shown.v4.clone().get(&key4(src, dst, ports, &settings.mask4)),
            Addresses::V6 { src, dst } => shown.v6.clone().get(&key6(src, dst, ports, &settings.mask6)),
        };
        match flow.map(known).filter(|known| known.holds(now_s, 0)).map(|known| known.status) {
            Some(Status::Solicited) if settings.questions_lift() => return false,
            Some(Status::Filtered) => filtered = true,
            _ => {}
        }
    }
    filtered
}

/// All rules with their ends, nanoseconds.
fn rules_of(workers: &[Shown], now_ns: u64) -> Vec<(Tuple, u64)> {
    let mut rules = Vec::new();
    each_rule(workers, seconds(now_ns), &mut |tuple, known| {
        rules.push((tuple, u64::from(known.until_s) * 1_000_000_000));
    });
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sides_are_two_ports() {
        let ports: Vec<String> = vec!["a".into(), "b".into()];
        let side = |toml: &str, ports: &[String]| {
            sides(&toml::from_str(toml).unwrap(), ports).map_err(|e| e.to_string())
        };
        assert_eq!(side("", &ports), Ok(0));
        assert_eq!(side("outside = 'b'", &ports), Ok(1));
        assert_eq!(side("inside = 'a'", &ports), Ok(1));
        assert_eq!(side("outside = 'b'\ninside = 'a'", &ports), Ok(1));
        for (toml, ports, error) in [
            (
                "outside = 'c'",
                &ports[..],
                "mitigator.outside: there is no port \"c\"; there are \"a\" and \"b\"",
            ),
            (
                "outside = 'a'\ninside = 'a'",
                &ports,
                "mitigator.inside: \"a\" is outside already: give the other port",
            ),
            (
                "",
                &ports[..1],
                "mitigator.outside: a mitigator has two ports, and there are 1: give two [[port]]s",
            ),
        ] {
            assert_eq!(side(toml, ports), Err(error.into()));
        }
    }
}
