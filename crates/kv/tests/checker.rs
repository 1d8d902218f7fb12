//! The checker of the randomised client, against histories that are right, and such with a fault of each kind planted.

#![allow(clippy::unwrap_used)] // a test may

#[path = "contract/checker.rs"]
mod checker;
#[allow(dead_code)] // its events come from elsewhere
#[path = "contract/history.rs"]
mod history;
#[allow(dead_code, unreachable_pub)] // a generator like any other
#[path = "../../port/src/rng.rs"]
mod rng;
#[allow(dead_code)] // nothing is sent here
#[path = "contract/wire.rs"]
mod wire;

use checker::{Verdict, check, loosen, minimal, unfirm};
use history::{Action, Event, Expiry, OPEN, Outcome, SECOND_NS, trimmed};
use rng::Rng;
use wire::{Mode, Said};

/// A memcached of one key, with a clock of seconds that is late by up to one.
#[derive(Default)]
struct Server {
    value: Option<(Vec<u8>, u32, Option<u64>)>,
    /// In which second it was stored, and what was stored by which second is flushed from then on.
    stored: u64,
    flush: Option<u64>,
    /// How far the clock is behind, nanoseconds.
    late_ns: u64,
}

impl Server {
    fn seconds(&self, at_ns: u64) -> u64 {
        (10 * SECOND_NS + at_ns - self.late_ns) / SECOND_NS
    }

    fn end(&self, at_ns: u64, expiry: Expiry) -> Option<u64> {
        match expiry {
            Expiry::Never => None,
            Expiry::Past => Some(0),
            Expiry::In(seconds) => Some(self.seconds(at_ns) + u64::from(seconds)),
        }
    }

    fn act(&mut self, at_ns: u64, action: &Action) -> Outcome {
        let now = self.seconds(at_ns);
        let flushed = self.flush.is_some_and(|flush| flush <= now && self.stored <= flush);
        self.value = self.value.take().filter(|(.., end)| !flushed && end.is_none_or(|end| now < end));
        let before = self.value.clone();
        let outcome = self.does(at_ns, action);
        if self.value.as_ref().map(|value| &value.0) != before.as_ref().map(|value| &value.0) {
            self.stored = now;
        }
        outcome
    }

    fn does(&mut self, at_ns: u64, action: &Action) -> Outcome {
        let value = self.value.clone();
        let mut put = |data: Vec<u8>, flags, end| {
            self.value = Some((data, flags, end));
            Outcome::Done
        };
        match (action, value) {
            (Action::Flush | Action::Death, _) => {
                (self.value, self.flush) = (None, None);
                Outcome::Done
            }
            (Action::FlushLater { seconds, .. }, _) => {
                self.flush = Some(self.seconds(at_ns) + u64::from(*seconds) - 1);
                Outcome::Done
            }
            (Action::Vivify(expiry), None) => {
                let end = self.end(at_ns, *expiry);
                self.value = Some((Vec::new(), 0, end));
                Outcome::Hit { data: Vec::new(), flags: 0 }
            }
            (Action::Put { mode, data, flags, expiry }, value) => match (mode, value) {
                (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => {
                    let end = self.end(at_ns, *expiry);
                    self.value = Some((data.clone(), *flags, end));
                    Outcome::Done
                }
                (Mode::Append, Some((old, flags, end))) => put([old, data.clone()].concat(), flags, end),
                (Mode::Prepend, Some((old, flags, end))) => put([data.clone(), old].concat(), flags, end),
                _ => Outcome::NotStored,
            },
            (_, None) => Outcome::Miss,
            (Action::Read | Action::Vivify(_), Some((data, flags, _))) => Outcome::Hit { data, flags },
            (Action::Stale, Some(_)) => Outcome::Done,
            (Action::CasStale { data, flags }, Some((_, _, end))) => {
                self.value = Some((data.clone(), *flags, end));
                Outcome::Done
            }
            (Action::ReadTouch(expiry), Some((data, flags, _))) => {
                let end = self.end(at_ns, *expiry);
                self.value = Some((data.clone(), flags, end));
                Outcome::Hit { data, flags }
            }
            (Action::Touch(expiry), Some((data, flags, _))) => {
                let end = self.end(at_ns, *expiry);
                self.value = Some((data, flags, end));
                Outcome::Done
            }
            (Action::Cas { wanted, data, flags, expiry }, Some((old, ..))) => {
                if old != *wanted {
                    return Outcome::Exists;
                }
                let end = self.end(at_ns, *expiry);
                self.value = Some((data.clone(), *flags, end));
                Outcome::Done
            }
            (Action::Delete, Some(_)) => {
                self.value = None;
                Outcome::Done
            }
            (Action::Count(by), Some((old, flags, end))) => {
                let old: u64 = String::from_utf8(old).unwrap().parse().unwrap();
                let number = old.saturating_add_signed(*by);
                put(number.to_string().into_bytes(), flags, end);
                Outcome::Number(number)
            }
        }
    }
}

/// Makes histories of one key as clients of a server see them.
struct Simulation {
    rng: Rng,
    server: Server,
    now_ns: u64,
    made: u64,
    /// Values that were seen, for `cas`.
    seen: Vec<Vec<u8>>,
    counts: bool,
    /// Whether datagrams are lost, and replies are not asked for.
    loses: bool,
    /// Whether there are flushes for later.
    flushes: bool,
    events: Vec<Event>,
}

const CLIENTS: usize = 6;

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let server = Server { late_ns: rng.below(2 * SECOND_NS), ..Server::default() };
        let counts = rng.chance(0.3);
        Simulation {
            rng,
            server,
            now_ns: 0,
            made: 0,
            seen: vec![b"?".to_vec()],
            counts,
            loses: true,
            flushes: false,
            events: Vec::new(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        self.made += 1;
        if self.counts {
            (self.rng.bits() >> 16).to_string().into_bytes()
        } else {
            format!("<{}>", self.made).into_bytes()
        }
    }

    fn expiry(&mut self) -> Expiry {
        match self.rng.below(10) {
            0 => Expiry::Past,
            1 => Expiry::In(1),
            2 => Expiry::In(3),
            _ => Expiry::Never,
        }
    }

    fn action(&mut self) -> Action {
        let expiry = self.expiry();
        let flags = self.rng.below(1000) as u32;
        match self.rng.below(12) {
            0..=4 => Action::Read,
            6 => Action::Touch(expiry),
            7 => Action::ReadTouch(expiry),
            8 if self.flushes && self.rng.chance(0.3) => {
                Action::FlushLater { seconds: 1 + self.rng.below(4) as u32, firm: true }
            }
            8 if self.rng.chance(0.5) => Action::Delete,
            8 => Action::Flush,
            5 if !self.counts && self.rng.chance(0.5) => match self.rng.below(3) {
                0 => Action::Vivify(expiry),
                1 => Action::Stale,
                _ => Action::CasStale { data: self.value(), flags },
            },
            9 if self.counts => Action::Count(self.rng.below(1 << 20) as i64 - (1 << 19)),
            9 => {
                let wanted = self.seen[self.seen.len() - 1].clone();
                Action::Cas { wanted, data: self.value(), flags, expiry }
            }
            5 => Action::Read,
            number => {
                let mode = match self.rng.below(5) {
                    0 => Mode::Add,
                    1 => Mode::Replace,
                    2 if !self.counts => Mode::Append,
                    3 if !self.counts => Mode::Prepend,
                    _ => Mode::Set,
                };
                let mode = if number == 10 { Mode::Set } else { mode };
                Action::Put { mode, data: self.value(), flags, expiry }
            }
        }
    }

    /// Commands of all clients at the same time, each at a moment of its own between sending and reply.
    fn round(&mut self) {
        let pause = [2_000, 2_000_000, 700_000_000][self.rng.below(3) as usize];
        let mut plans: Vec<(u64, u64, u64, usize)> = Vec::new();
        for client in 0..CLIENTS {
            let from = self.now_ns + self.rng.below(pause);
            let at = from + self.rng.below(pause);
            plans.push((at, from, at + self.rng.below(pause), client));
        }
        plans.sort_unstable();
        for (at_ns, from_ns, to_ns, client) in plans {
            let action = self.action();
            self.act(action, from_ns, at_ns, to_ns, client);
        }
        self.now_ns += 3 * pause;
    }

    fn act(&mut self, action: Action, from_ns: u64, at_ns: u64, to_ns: u64, client: usize) {
        let lost = self.loses && self.rng.chance(0.03);
        let outcome = if lost { Outcome::Unknown } else { self.server.act(at_ns, &action) };
        if let Outcome::Hit { data, .. } = &outcome {
            self.seen.push(data.clone());
        }
        // The request was lost, or only its reply, or none was asked for.
        let silent = lost || self.loses && self.rng.chance(0.05);
        let (outcome, to_ns) = if silent { (Outcome::Unknown, OPEN) } else { (outcome, to_ns) };
        self.events.push(Event {
            from_ns,
            to_ns,
            action,
            outcome,
            optional: lost || silent,
            client,
            how: "simulated",
        });
    }

    /// One command by itself, with a reply.
    fn alone(&mut self, action: Action) -> Outcome {
        let (from_ns, at_ns) = (self.now_ns, self.now_ns + 1000);
        self.now_ns += 3000;
        let outcome = self.server.act(at_ns, &action);
        let to_ns = self.now_ns - 1;
        self.events.push(Event {
            from_ns,
            to_ns,
            action,
            outcome: outcome.clone(),
            optional: false,
            client: 0,
            how: "alone",
        });
        outcome
    }

    fn set(&mut self, expiry: Expiry) {
        let data = self.value();
        self.alone(Action::Put { mode: Mode::Set, data, flags: 7, expiry });
    }

    fn verdict(&self) -> Verdict {
        let mut events = self.events.clone();
        unfirm(&mut events);
        check(&None, &events, self.now_ns)
    }
}

#[test]
fn right_histories_are_right() {
    for seed in 0..3000 {
        let mut simulation = Simulation::new(seed);
        (0..8).for_each(|_| simulation.round());
        let verdict = simulation.verdict();
        assert!(matches!(verdict, Verdict::Right), "seed {seed}: {verdict:?}: {:#?}", simulation.events);
    }
}

/// A fault that is planted into an otherwise right history.
type Plant = fn(&mut Simulation);

const FAULTS: [(&str, Plant); 10] = [
    ("a read gives the value before the last one", |simulation| {
        simulation.set(Expiry::Never);
        let old = simulation.server.value.clone().unwrap();
        simulation.set(Expiry::Never);
        simulation.alone(Action::Read);
        simulation.events.last_mut().unwrap().outcome = Outcome::Hit { data: old.0, flags: old.1 };
    }),
    ("a value is still read after it was deleted", |simulation| {
        simulation.set(Expiry::Never);
        let old = simulation.server.value.clone();
        simulation.alone(Action::Delete);
        simulation.server.value = old;
        simulation.alone(Action::Read);
    }),
    ("a value is still read after flush_all", |simulation| {
        simulation.set(Expiry::Never);
        let old = simulation.server.value.clone();
        simulation.alone(Action::Flush);
        simulation.server.value = old;
        simulation.alone(Action::Read);
    }),
    ("a value is still read after a flush for later", |simulation| {
        simulation.set(Expiry::Never);
        let old = simulation.server.value.clone();
        simulation.alone(Action::FlushLater { seconds: 2, firm: true });
        simulation.now_ns += 3 * SECOND_NS + SECOND_NS / 10;
        simulation.alone(Action::Read);
        let Some((data, flags, _)) = old else { unreachable!() };
        simulation.events.last_mut().unwrap().outcome = Outcome::Hit { data, flags };
    }),
    ("a value is still read after a stale one took its place", |simulation| {
        simulation.set(Expiry::Never);
        let old = simulation.server.value.clone();
        let data = simulation.value();
        simulation.alone(Action::CasStale { data, flags: 3 });
        simulation.server.value = old;
        simulation.alone(Action::Read);
    }),
    ("an update is lost", |simulation| {
        simulation.set(Expiry::Never);
        let old = simulation.server.value.clone();
        simulation.set(Expiry::Never);
        simulation.server.value = old;
        simulation.alone(Action::Read);
    }),
    ("two cas with one number both succeed", |simulation| {
        simulation.set(Expiry::Never);
        let Outcome::Hit { data: wanted, .. } = simulation.alone(Action::Read) else { unreachable!() };
        for _ in 0..2 {
            let data = simulation.value();
            simulation.alone(Action::Cas { wanted: wanted.clone(), data, flags: 1, expiry: Expiry::Never });
            simulation.events.last_mut().unwrap().outcome = Outcome::Done;
        }
    }),
    ("a value that nobody wrote", |simulation| {
        simulation.set(Expiry::Never);
        simulation.alone(Action::Read);
        simulation.events.last_mut().unwrap().outcome = Outcome::Hit { data: b"17?".to_vec(), flags: 7 };
    }),
    ("flags of another value", |simulation| {
        simulation.set(Expiry::Never);
        simulation.alone(Action::Read);
        let Outcome::Hit { flags, .. } = &mut simulation.events.last_mut().unwrap().outcome else {
            unreachable!()
        };
        *flags += 1;
    }),
    ("an answer past its time", |simulation| {
        simulation.set(Expiry::In(2));
        let Some((_, _, end)) = &mut simulation.server.value else { unreachable!() };
        *end = None;
        simulation.now_ns += 3 * SECOND_NS + SECOND_NS / 10;
        simulation.alone(Action::Read);
    }),
];

/// Every fault is found, wherever it happens; what is shown of it is wrong by itself, and short.
#[test]
fn planted_faults_are_found() {
    for (name, plant) in FAULTS {
        let mut longest = 0;
        for seed in 0..100 {
            let mut simulation = Simulation::new(seed);
            // A write whose fate is unknown may explain what comes after it: that would be no fault.
            simulation.loses = false;
            let before = simulation.rng.below(5);
            (0..before).for_each(|_| simulation.round());
            plant(&mut simulation);
            (0..3).for_each(|_| simulation.round());
            let (events, end) = (&simulation.events, simulation.now_ns);
            let verdict = simulation.verdict();
            assert!(matches!(verdict, Verdict::Wrong), "{name}, seed {seed}: {verdict:?}: {events:#?}");
            let short = minimal(&None, events, end);
            assert!(matches!(check(&None, &short, end), Verdict::Wrong), "{name}, seed {seed}: {short:#?}");
            longest = longest.max(short.len());
        }
        println!("{name}: at most {longest} events are shown");
    }
}

/// What is planted is a fault, and what leads to it is none: without it the same histories are right.
#[test]
fn unfaulted_histories_of_the_same_kind_are_right() {
    for seed in 0..100 {
        let mut simulation = Simulation::new(seed);
        simulation.round();
        for expiry in [Expiry::Never, Expiry::In(2)] {
            simulation.set(expiry);
            simulation.alone(Action::Read);
            simulation.now_ns += 3 * SECOND_NS + SECOND_NS / 10;
            simulation.alone(Action::Read);
            simulation.alone(Action::Delete);
            simulation.alone(Action::Read);
        }
        simulation.round();
        assert!(matches!(simulation.verdict(), Verdict::Right), "seed {seed}: {:#?}", simulation.events);
    }
}

/// Flushes for later, and what takes their place, among all the rest.
#[test]
fn histories_with_flushes_for_later_are_right() {
    let mut flushed = 0;
    for seed in 0..1000 {
        let mut simulation = Simulation::new(seed);
        simulation.flushes = true;
        (0..8).for_each(|_| simulation.round());
        flushed += usize::from(simulation.server.flush.is_some());
        assert!(matches!(simulation.verdict(), Verdict::Right), "seed {seed}: {:#?}", simulation.events);
    }
    assert!(flushed > 100, "{flushed}");
}

/// A lost datagram may still have been executed, long after its sender gave up; but not before it was sent.
#[test]
fn what_has_no_reply_may_happen_late_but_not_early() {
    let put = |data: &str, from_ns, to_ns, outcome| Event {
        from_ns,
        to_ns,
        action: Action::Put { mode: Mode::Set, data: data.into(), flags: 0, expiry: Expiry::Never },
        optional: outcome == Outcome::Unknown,
        outcome,
        client: 0,
        how: "",
    };
    let read = |data: &str, at| Event {
        from_ns: at,
        to_ns: at + 1,
        action: Action::Read,
        outcome: Outcome::Hit { data: data.into(), flags: 0 },
        optional: false,
        client: 1,
        how: "",
    };
    let first = put("a", 0, 1, Outcome::Done);
    let lost = put("b", 10, OPEN, Outcome::Unknown);
    let verdict = |events: &[Event]| check(&None, events, 1000);
    let late = [first.clone(), lost.clone(), read("a", 20), read("b", 900)];
    assert!(matches!(verdict(&late), Verdict::Right));
    let early = [first.clone(), lost.clone(), read("b", 5)];
    assert!(matches!(verdict(&early), Verdict::Wrong));
    // It happens once.
    let twice = [first, lost, read("a", 20), read("b", 30), read("a", 40)];
    assert!(matches!(verdict(&twice), Verdict::Wrong));
    assert_eq!(minimal(&None, &twice, 1000).len(), 3);
}

/// What happens once and for certain.
fn event(from_ns: u64, to_ns: u64, action: Action, outcome: Outcome) -> Event {
    Event { from_ns, to_ns, action, outcome, optional: false, client: 0, how: "" }
}

fn put(mode: Mode, data: &str) -> Action {
    Action::Put { mode, data: data.into(), flags: 0, expiry: Expiry::Never }
}

/// A flush beside an `append` may leave what the append had read; beside a plain `set`, or after it, it leaves nothing.
#[test]
fn a_flush_may_miss_what_is_stored_beside_it() {
    let hit = |data: &str| Outcome::Hit { data: data.into(), flags: 0 };
    for (mode, until, read, right) in
        [(Mode::Append, 30, "ab", true), (Mode::Append, 15, "ab", false), (Mode::Set, 30, "a", false)]
    {
        let mut events = [
            event(0, 1, put(Mode::Set, "a"), Outcome::Done),
            event(10, until, put(mode, "b"), Outcome::Done),
            event(20, 25, Action::Flush, Outcome::Done),
            event(40, 41, Action::Read, hit(read)),
        ];
        assert!(matches!(check(&None, &events, 50), Verdict::Wrong), "{mode:?} {until}");
        loosen(&mut events);
        assert_eq!(matches!(check(&None, &events, 50), Verdict::Right), right, "{mode:?} {until}");
    }
}

/// What a memcached had that was killed may be answered until it is known to be gone, and not beside what the next one says.
#[test]
fn nothing_outlives_memcached() {
    let hit = || Outcome::Hit { data: b"a".to_vec(), flags: 0 };
    let reads = |reads: &[(u64, Outcome)]| {
        let mut events = vec![
            event(0, 5, put(Mode::Set, "a"), Outcome::Done),
            // Beside one that stores what it has read a flush might leave that; this does not.
            event(8, 25, put(Mode::Add, "b"), Outcome::NotStored),
            event(10, 30, Action::Death, Outcome::Unknown),
        ];
        events.extend(reads.iter().map(|(at, said)| event(*at, at + 1, Action::Read, said.clone())));
        loosen(&mut events);
        matches!(check(&None, &events, 100), Verdict::Right)
    };
    assert!(reads(&[(7, hit()), (20, hit()), (25, Outcome::Miss), (40, Outcome::Miss)]));
    assert!(!reads(&[(40, hit())]));
    assert!(!reads(&[(20, Outcome::Miss), (25, hit())]));
}

#[test]
fn replies_are_read_as_memcached_writes_them() {
    let value = |data: &[u8], flags, cas| Said::Value { data: data.to_vec(), flags, cas };
    for (speech, ask, bytes, said) in [
        (wire::Speech::Ascii, wire::Ask::Get, "VALUE k 5 3\r\na\nb\r\nEND\r\n", value(b"a\nb", 5, None)),
        (
            wire::Speech::Ascii,
            wire::Ask::Gets,
            "VALUE k 0 5 9\r\nEND\r\n\r\nEND\r\n",
            value(b"END\r\n", 0, Some(9)),
        ),
        (wire::Speech::Ascii, wire::Ask::Get, "END\r\n", Said::Absent),
        (wire::Speech::Meta, wire::Ask::Gets, "VA 1 f3 c8 O7\r\nx\r\n", value(b"x", 3, Some(8))),
        (wire::Speech::Meta, wire::Ask::Incr(1), "VA 2\r\n12\r\n", Said::Number(12)),
        (wire::Speech::Ascii, wire::Ask::Decr(1), "11\r\n", Said::Number(11)),
    ] {
        for cut in 0..bytes.len() {
            assert!(wire::reply(speech, &ask, &bytes.as_bytes()[..cut]).is_none(), "{bytes:?} at {cut}");
        }
        let heard = wire::reply(speech, &ask, format!("{bytes}more").as_bytes()).unwrap();
        assert_eq!((heard.said, heard.used), (said, bytes.len()));
    }
    assert_eq!(
        [trimmed(b"99 ".to_vec()), trimmed(b" 9".to_vec()), trimmed(b"a ".to_vec())],
        [&b"99"[..], b" 9", b"a "]
    );
}
