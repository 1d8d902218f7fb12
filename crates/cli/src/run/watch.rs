//! What becomes an event of its own in a run, beside what the roles have to say: links, drops beyond a rate, workers without time or without
//! work, published tables. A state machine over what is looked at once a second; the time is handed in.

use std::collections::BTreeMap;
use tidemill_control::schema::{DropCount, Event, Link, Port, Severity, Table, Worker};

/// Looks in a row that must agree before a worker's state is said, or an end of drops: what changes every second says nothing.
const AGREE: u32 = 3;
/// Seconds between two events about one table: a full feed changes it many times a second.
const TABLE_S: f64 = 5.0;
/// Days before a certificate ends that this is told of.
const SOON_DAYS: u64 = 14;

/// The kinds of events that every run has.
pub(super) const KINDS: [(&str, &str); 8] = [
    ("run", "The run has begun, or stops"),
    ("reload", "The configuration was read again: taken, or refused"),
    ("table", "A table was published; several changes within five seconds are one event"),
    ("port", "A port's link went up or down, its device went away or came back"),
    ("drops", "Drops for a reason went beyond control.alarm_drops_pps, or fell below half of it again"),
    (
        "worker",
        "A worker is not on its CPU; has no time left, or hardly any frames, or has them again; sleeps, or is awake again",
    ),
    ("trouble", "Something beside the packets went wrong: the run will fail in the end"),
    ("certificate", "The API's certificate ends within 14 days, or has ended"),
];

/// What there is to look at, at one moment.
pub(super) struct Look<'a> {
    pub(super) now_s: f64,
    pub(super) ports: &'a [Port],
    pub(super) drops: &'a [DropCount],
    pub(super) workers: &'a [Worker],
    pub(super) tables: &'a [Table],
}

/// What was seen, and what was said of it.
#[derive(Default)]
pub(crate) struct Watched {
    seen_s: Option<f64>,
    links: BTreeMap<String, Link>,
    reasons: BTreeMap<String, Reason>,
    workers: BTreeMap<u32, Seat>,
    tables: BTreeMap<String, Seen>,
    /// The certificate that was told of, by its end, and whether that was over.
    certificate: Option<(u64, bool)>,
    /// Whether the system's clock was found to be another one than that of our start.
    is_clock_set: bool,
}

/// Drops for one reason.
#[derive(Default)]
struct Reason {
    /// So far, by place.
    counts: BTreeMap<String, u64>,
    alarmed: bool,
    calm: u32,
}

/// A worker.
struct Seat {
    load: Said<Load>,
    frames: Said<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    Works,
    Sleeps,
    Full,
}

/// A state that was said, and another that may be next.
struct Said<T> {
    said: T,
    next: T,
    times: u32,
}

impl<T: Copy + PartialEq> Said<T> {
    fn new(state: T) -> Self {
        Said { said: state, next: state, times: 0 }
    }

    /// The new state, once it has been seen often enough in a row; with the one before.
    fn see(&mut self, state: T) -> Option<(T, T)> {
        self.times = if state == self.next { self.times + 1 } else { 1 };
        self.next = state;
        if state == self.said || self.times < AGREE {
            return None;
        }
        Some((std::mem::replace(&mut self.said, state), state))
    }
}

/// A table.
struct Seen {
    generation: u64,
    said_s: f64,
}

fn event(kind: &str, severity: Severity, about: impl Into<String>, message: impl Into<String>) -> Event {
    Event { kind: kind.into(), severity, about: about.into(), message: message.into(), ..Event::default() }
}

/// What is to be said of a certificate that begins and ends then; all are seconds since 1970.
pub(super) fn certificate(begins_s: Option<u64>, ends_s: Option<u64>, now_s: u64) -> Option<String> {
    if let Some(begins_s) = begins_s.filter(|begins_s| *begins_s > now_s) {
        let days = (begins_s - now_s).div_ceil(86_400);
        return Some(format!(
            "control.certificate is not good yet, but within {days} days: nobody takes it until then"
        ));
    }
    let days = ends_s?.saturating_sub(now_s).div_ceil(86_400);
    let what = match days {
        0 => "has ended: nobody takes it any more".to_owned(),
        1 => "ends within a day".to_owned(),
        2..=SOON_DAYS => format!("ends within {days} days"),
        _ => return None,
    };
    Some(format!("control.certificate {what}: renew it, then tidemill reload"))
}

impl Watched {
    /// What has happened since the last look. Drops beyond `alarm_pps` packets a second are told of; 0 is never.
    pub(super) fn look(&mut self, look: &Look<'_>, alarm_pps: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let over_s = self.seen_s.map(|seen_s| look.now_s - seen_s);
        self.seen_s = Some(look.now_s);
        look.ports.iter().for_each(|port| events.extend(self.link(port)));
        self.dropped(look, over_s, alarm_pps as f64, &mut events);
        look.workers.iter().for_each(|worker| self.worker(worker, &mut events));
        look.tables.iter().for_each(|table| events.extend(self.table(table, look.now_s)));
        events
    }

    /// What to say of the API's certificate, once when it ends soon and once when it has ended; both are seconds since 1970.
    pub(super) fn certificate(&mut self, ends_s: u64, now_s: u64) -> Option<String> {
        let line = certificate(None, Some(ends_s), now_s)?;
        let told = Some((ends_s, ends_s <= now_s));
        if std::mem::replace(&mut self.certificate, told) == told {
            return None;
        }
        Some(line)
    }

    /// What to say of the system's clock, once, where it is further ahead of that of our start, or behind it, than other machines' clocks may be; and where it is no longer.
    pub(super) fn clock(&mut self, ahead_ns: i64, most_s: u16) -> Option<String> {
        let is_set = ahead_ns.unsigned_abs() > u64::from(most_s) * 1_000_000_000;
        let was_set = std::mem::replace(&mut self.is_clock_set, is_set);
        let (s, side) = (ahead_ns.unsigned_abs() as f64 / 1e9, if ahead_ns < 0 { "back" } else { "forward" });
        match (was_set, is_set) {
            (false, true) => Some(format!(
                "warning: the clock was set {side} by {s:.1} s since our start, or the machine was suspended: packets go by the clock of the start, and what others sign may not count, nor \
                 what we do: start again, or set it as it was"
            )),
            (true, false) => Some(format!("the clock is within {most_s} s of that of our start again")),
            _ => None,
        }
    }

    /// What goes away and comes back is told of where it is noticed first ([`Devices`](super::devices::Devices)).
    fn link(&mut self, port: &Port) -> Option<Event> {
        let link = port.link.filter(|link| *link != Link::Away)?;
        let before = self.links.insert(port.name.clone(), link);
        match (before, link) {
            (Some(before), link) if before == link => None,
            (None, Link::Up) => None,
            (_, Link::Up) => Some(event("port", Severity::Info, &port.name, "its link is up")),
            _ => Some(event("port", Severity::Warning, &port.name, "its link is down")),
        }
    }

    fn dropped(&mut self, look: &Look<'_>, over_s: Option<f64>, alarm_pps: f64, events: &mut Vec<Event>) {
        let mut more: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
        for drop in look.drops {
            let reason = self.reasons.entry(drop.reason.clone()).or_default();
            let before = reason.counts.insert(drop.at.clone(), drop.count).unwrap_or(0);
            let here = drop.count.saturating_sub(before);
            let (sum, most, at) = more.entry(&drop.reason).or_default();
            *sum += here;
            if here >= *most {
                (*most, *at) = (here, &drop.at);
            }
        }
        let Some(over_s) = over_s.filter(|over_s| *over_s > 0.0 && alarm_pps > 0.0) else { return };
        for (name, reason) in &mut self.reasons {
            let (sum, _, at) = more.get(name.as_str()).copied().unwrap_or_default();
            let pps = sum as f64 / over_s;
            let said = match reason.alarmed {
                false if pps > alarm_pps => Some((
                    Severity::Warning,
                    format!("{pps:.0} packets are dropped a second, most of them at {at}"),
                )),
                true => {
                    reason.calm = if pps < alarm_pps / 2.0 { reason.calm + 1 } else { 0 };
                    (reason.calm >= AGREE)
                        .then(|| (Severity::Info, format!("{pps:.0} packets are dropped a second now")))
                }
                false => None,
            };
            if let Some((severity, message)) = said {
                (reason.alarmed, reason.calm) = (!reason.alarmed, 0);
                let values = BTreeMap::from([("packets_per_s".to_owned(), pps)]);
                events.push(Event { values, ..event("drops", severity, name, message) });
            }
        }
    }

    fn worker(&mut self, worker: &Worker, events: &mut Vec<Event>) {
        let seat = self
            .workers
            .entry(worker.index)
            .or_insert_with(|| Seat { load: Said::new(Load::Works), frames: Said::new(true) });
        let load = match seat.load.said {
            // What is said is not taken back for a little less.
            Load::Full if worker.busy_percent >= 80.0 => Load::Full,
            _ if worker.busy_percent >= 95.0 => Load::Full,
            Load::Sleeps if worker.asleep_percent >= 90.0 => Load::Sleeps,
            _ if worker.asleep_percent >= 99.0 => Load::Sleeps,
            _ => Load::Works,
        };
        let about = format!("worker {}", worker.index);
        let busy = format!("{:.0} % of its time", worker.busy_percent);
        let mut say = |severity, message: String| {
            let values = BTreeMap::from([
                ("busy_percent".to_owned(), worker.busy_percent),
                ("asleep_percent".to_owned(), worker.asleep_percent),
                ("packets_per_s".to_owned(), worker.rx_pps),
                ("free_frames".to_owned(), worker.pool_free as f64),
            ]);
            events.push(Event { values, ..event("worker", severity, &about, message) });
        };
        match seat.load.see(load) {
            Some((_, Load::Full)) => {
                say(Severity::Warning, format!("has no time left: packets take {busy}"));
            }
            Some((Load::Full, _)) => say(Severity::Info, format!("has time again: packets take {busy}")),
            Some((_, Load::Sleeps)) => say(Severity::Info, "sleeps: there is nothing to do".into()),
            Some((_, Load::Works)) => say(Severity::Info, "is awake".into()),
            None => {}
        }
        let enough = worker.pool_free.saturating_mul(if seat.frames.said { 20 } else { 10 });
        match seat.frames.see(enough >= worker.pool_frames) {
            Some((_, false)) => say(
                Severity::Warning,
                format!(
                    "has {} of {} frames left: raise memory.frames",
                    worker.pool_free, worker.pool_frames
                ),
            ),
            Some((_, true)) => say(Severity::Info, format!("has {} frames again", worker.pool_free)),
            None => {}
        }
    }

    fn table(&mut self, table: &Table, now_s: f64) -> Option<Event> {
        let generation = table.generation?;
        let seen = self
            .tables
            .entry(table.name.clone())
            .or_insert_with(|| Seen { generation, said_s: f64::NEG_INFINITY });
        if generation == seen.generation || now_s - seen.said_s < TABLE_S {
            return None;
        }
        let changes = generation.saturating_sub(seen.generation);
        *seen = Seen { generation, said_s: now_s };
        let times = if changes == 1 { "published".to_owned() } else { format!("published {changes} times") };
        let message = format!("{times}: {} entries, generation {generation}", table.entries);
        let values = BTreeMap::from([
            ("entries".to_owned(), table.entries as f64),
            ("generation".to_owned(), generation as f64),
        ]);
        Some(Event { values, ..event("table", Severity::Info, &table.name, message) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct World {
        watched: Watched,
        now_s: f64,
        ports: Vec<Port>,
        drops: Vec<DropCount>,
        workers: Vec<Worker>,
        tables: Vec<Table>,
    }

    impl World {
        /// A second later: what is told, as `kind about: message`.
        fn later(&mut self) -> Vec<String> {
            self.now_s += 1.0;
            let Self { watched, now_s, ports, drops, workers, tables } = self;
            let look = Look { now_s: *now_s, ports, drops, workers, tables };
            let events = watched.look(&look, 100);
            events.iter().map(|e| format!("{} {}: {}", e.kind, e.about, e.message)).collect()
        }

        fn drop(&mut self, reason: &str, at: &str, more: u64) {
            match self.drops.iter_mut().find(|drop| drop.reason == reason && drop.at == at) {
                Some(drop) => drop.count += more,
                None => self.drops.push(DropCount {
                    reason: reason.into(),
                    at: at.into(),
                    count: more,
                    ..DropCount::default()
                }),
            }
        }
    }

    #[test]
    fn drops_beyond_the_rate_are_told_once_and_when_they_end() {
        let mut world = World::default();
        world.drop("no-route", "lookup", 5000); // Before anybody looked.
        assert_eq!(world.later(), [""; 0]);
        world.drop("no-route", "lookup", 100);
        assert_eq!(world.later(), [""; 0], "not beyond it");
        world.drop("no-route", "lookup", 60);
        world.drop("no-route", "port:a", 50);
        assert_eq!(
            world.later(),
            ["drops no-route: 110 packets are dropped a second, most of them at lookup"]
        );
        for more in [500, 60, 10, 10, 60, 10, 10] {
            world.drop("no-route", "lookup", more);
            assert_eq!(world.later(), [""; 0], "{more}");
        }
        assert_eq!(world.later(), ["drops no-route: 0 packets are dropped a second now"]);
        world.drop("no-route", "lookup", 200);
        world.drop("ttl", "lookup", 300); // One that was never seen before begins at nothing.
        assert_eq!(world.later().len(), 2);
        let mut never = Watched::default();
        for now_s in [1.0, 2.0] {
            world.drop("no-route", "lookup", 100_000);
            let look = Look { now_s, ports: &[], drops: &world.drops, workers: &[], tables: &[] };
            assert_eq!(never.look(&look, 0), []);
        }
    }

    #[test]
    fn links_are_told_when_they_change() {
        let mut world = World::default();
        let port = |name: &str, link| Port { name: name.into(), link, ..Port::default() };
        world.ports = vec![port("a", Some(Link::Up)), port("b", Some(Link::Down)), port("c", None)];
        assert_eq!(world.later(), ["port b: its link is down"]);
        assert_eq!(world.later(), [""; 0]);
        world.ports = vec![port("a", Some(Link::Away)), port("b", Some(Link::Up)), port("c", None)];
        assert_eq!(world.later(), ["port b: its link is up"]);
        world.ports[0].link = Some(Link::Down);
        assert_eq!(world.later(), ["port a: its link is down"]);
    }

    #[test]
    fn workers_are_told_of_when_they_stay_so() {
        let mut world = World::default();
        let worker = |busy_percent, asleep_percent, pool_free| Worker {
            busy_percent,
            asleep_percent,
            pool_free,
            pool_frames: 1000,
            ..Worker::default()
        };
        let mut told = |busy, asleep, free| {
            world.workers = vec![worker(busy, asleep, free)];
            world.later()
        };
        for (busy, asleep) in [(10.0, 50.0), (99.0, 0.0), (99.0, 0.0), (10.0, 0.0), (96.0, 0.0), (96.0, 0.0)]
        {
            assert_eq!(told(busy, asleep, 900), [""; 0]);
        }
        assert_eq!(
            told(96.0, 0.0, 900),
            ["worker worker 0: has no time left: packets take 96 % of its time"]
        );
        assert!((0..9).all(|_| told(85.0, 0.0, 900).is_empty()), "a little less is not said");
        assert!((0..2).all(|_| told(50.0, 0.0, 900).is_empty()));
        assert_eq!(told(50.0, 0.0, 900), ["worker worker 0: has time again: packets take 50 % of its time"]);
        assert!((0..2).all(|_| told(0.0, 100.0, 900).is_empty()));
        assert_eq!(told(0.0, 100.0, 900), ["worker worker 0: sleeps: there is nothing to do"]);
        assert!((0..2).all(|_| told(1.0, 50.0, 900).is_empty()));
        assert_eq!(told(1.0, 50.0, 900), ["worker worker 0: is awake"]);
        assert!((0..2).all(|_| told(1.0, 50.0, 49).is_empty()));
        assert_eq!(told(1.0, 50.0, 49), ["worker worker 0: has 49 of 1000 frames left: raise memory.frames"]);
        assert!((0..9).all(|_| told(1.0, 50.0, 60).is_empty()));
        assert!((0..2).all(|_| told(1.0, 50.0, 500).is_empty()));
        assert_eq!(told(1.0, 50.0, 500), ["worker worker 0: has 500 frames again"]);
    }

    #[test]
    fn a_certificate_is_told_of_before_its_end_and_at_it() {
        const DAY_S: u64 = 86_400;
        let mut watched = Watched::default();
        let mut told = |ends: u64, now_s: u64| watched.certificate(ends * DAY_S, now_s);
        assert_eq!(told(1000, 986 * DAY_S - 1), None);
        let line = "control.certificate ends within 14 days: renew it, then tidemill reload";
        assert_eq!(told(1000, 986 * DAY_S).as_deref(), Some(line));
        assert_eq!(told(1000, 999 * DAY_S), None, "once");
        assert!(told(1000, 1000 * DAY_S).unwrap().starts_with("control.certificate has ended: "));
        assert_eq!(told(1000, 1001 * DAY_S), None, "once");
        // Another one in its place.
        assert_eq!(told(2000, 1001 * DAY_S), None);
        assert!(told(2000, 1999 * DAY_S).unwrap().contains("ends within a day: "));
    }

    #[test]
    fn a_clock_that_is_set_is_told_of_once() {
        let mut watched = Watched::default();
        let mut told = |ahead_ms: i64| watched.clock(ahead_ms * 1_000_000, 10);
        assert_eq!([told(0), told(10_000), told(-10_000)], [None, None, None]);
        assert!(told(30_300).unwrap().starts_with("warning: the clock was set forward by 30.3 s"));
        assert_eq!([told(30_300), told(31_000)], [None, None]);
        assert_eq!(told(9_000).unwrap(), "the clock is within 10 s of that of our start again");
        assert_eq!(told(0), None);
        assert!(told(-10_001).unwrap().starts_with("warning: the clock was set back by 10.0 s"));
        assert_eq!(told(-3_600_000), None);
    }

    #[test]
    fn changes_of_a_table_within_seconds_are_one_event() {
        let mut world = World::default();
        let table = |generation| {
            vec![
                Table { name: "IPv4".into(), entries: 7, generation, ..Table::default() },
                Table { name: "cache".into(), ..Table::default() },
            ]
        };
        let mut told = |generation| {
            world.tables = table(Some(generation));
            world.later()
        };
        assert_eq!(told(3), [""; 0]);
        assert_eq!(told(4), ["table IPv4: published: 7 entries, generation 4"]);
        assert!((5..9).all(|generation| told(generation).is_empty()));
        assert_eq!(told(9), ["table IPv4: published 5 times: 7 entries, generation 9"]);
    }
}
