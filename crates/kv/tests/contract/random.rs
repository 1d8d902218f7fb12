//! The randomised client: actors fight for a few keys in rounds; after each round everything is waited for, what memcached has is
//! read, and each key's history goes to the checker.
//!
//! ```text
//! round: actor 0  |--set--|   |-get-|      |---incr---|          quiet: memcached's     then: mg of each key (TCP)
//!        actor 1      |---get---|  |--delete (noreply)- - - - -| socket is empty, all         get of each key (UDP)
//!        actor 2   |--append--|      |-get-|                     its threads have spoken -->  check(history of key)
//! ```
//! So a datagram without a reply has been executed by the end of its round, or never is, and rounds are checked by themselves.
//! The seed decides who does what in which order; when it happens is the machine's.
//!
//! In some rounds memcached is killed and another one started, or the cache's daemon is replaced, or the cache is taken away and put there again ([`Turn`]).

use super::actor::{Actor, Keys, Pace, Seen};
use super::checker::{Item, MOST, Verdict, check, loosen, minimal, over_ns};
use super::client::{Tcp, Udp};
use super::history::{Action, Event, Outcome, SECOND_NS, trimmed};
use super::lab::{Lab, Memcached, PORT, THREADS};
use super::wire::{self, Ask, Said, Speech};
use crate::rng::Rng;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Clients on the other side of the cable, and such beside memcached, on its loopback interface.
const ACTORS: usize = 5;
const BESIDE: usize = 1;

/// What a run did.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) commands: u64,
    pub(crate) rounds: u64,
    /// UDP requests, and such without a reply.
    pub(crate) asked: u64,
    pub(crate) lost: u64,
    /// Datagrams that the cache has answered.
    pub(crate) hits: u64,
    /// How many of them in each tenth of the commands.
    pub(crate) tenths: [u64; 10],
    /// Times that memcached or the cache went.
    pub(crate) turns: u64,
}

/// Fewer commands than this are over before a cache that serves nothing for some seconds, as it does now and then, serves again.
const LONG: u64 = 1_000_000;

impl Ran {
    /// A long run is answered by the cache not at its beginning alone: in each tenth before the last eighth, in which a cache keeps less.
    pub(crate) fn is_answered_throughout(&self) -> bool {
        self.commands < LONG || self.tenths[..8].iter().all(|hits| *hits > 0)
    }
}

/// A datagram is under way between two ends of a cable for less than this.
const UNDER_WAY_NS: u64 = 100_000_000;

/// What becomes of memcached or of the cache while clients ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// memcached is killed, and there is another one.
    Killed,
    /// The cache's daemon is: another one takes its programs over.
    Replaced,
    /// The cache goes, with programs and all that it has kept, and comes again.
    Detached,
}

impl Turn {
    /// The one of a round, if there is one: often enough for a short run, and seldom in a long one.
    fn of(round: u64, lab: &Lab) -> Option<Self> {
        // Whoever does not stand on memcached's machine does not see how it ends.
        if !lab.sees_loopback || round % 80 != 30 || (round >= 320 && round % 800 != 30) {
            return None;
        }
        let all = [Turn::Killed, Turn::Replaced, Turn::Detached];
        let turn = all[(round / 80 % 3) as usize];
        (turn == Turn::Killed || lab.cache.is_some()).then_some(turn)
    }

    /// Lets it happen. `hits` is what caches have answered that are gone, with their counts. Gives between which times memcached was killed.
    fn happens(self, lab: &mut Lab, epoch: Instant, hits: &mut u64) -> Option<(u64, u64)> {
        let now_ns = || epoch.elapsed().as_nanos() as u64;
        std::thread::sleep(Duration::from_millis(100));
        if self == Turn::Killed {
            let from_ns = now_ns();
            lab.cached.memcached.kill();
            if let Some(cache) = &lab.cache {
                // The daemon answers between two of its rounds: it has done one when the second answer comes, and seen this.
                (0..2).for_each(|_| drop(cache.counts()));
            }
            let to_ns = now_ns();
            lab.cached.memcached = Memcached::start(&lab.cached.net, THREADS);
            return Some((from_ns, to_ns));
        }
        if let Some(cache) = lab.cache.take() {
            if self == Turn::Detached {
                *hits += cache.count("get-hit");
                cache.detach();
            } else {
                cache.leave();
            }
            lab.attach();
        }
        None
    }
}

/// A wrong history, for people.
pub(crate) struct Fault {
    pub(crate) text: String,
    /// Events in the shortest form.
    pub(crate) events: usize,
}

pub(crate) fn keys() -> Keys {
    let mut names: Vec<Vec<u8>> = (0..5).map(|number| format!("hot:{number}").into_bytes()).collect();
    names.push([&b"long:"[..], &[b'k'; 245]].concat());
    let numbers = names.len();
    names.extend([b"n".to_vec(), b"number:2".to_vec()]);
    Keys { names, numbers }
}

/// A lab with actors in it.
struct Run<'a> {
    lab: &'a mut Lab,
    keys: Keys,
    actors: Vec<Actor>,
    epoch: Instant,
    /// To each of memcached's threads.
    probes: Vec<Tcp>,
    judge: Tcp,
    judge_udp: Udp,
    /// Flushes for later of the rounds before that may still take effect.
    later: Vec<Event>,
    /// When each value that was last seen is known to have been there, at first.
    stored: Vec<Option<(Rc<[u8]>, u64)>>,
    /// What caches have answered that are gone.
    hits: u64,
}

/// An actor's connections: for text, and for the binary protocol.
fn connections(lab: &Lab, number: usize) -> [Tcp; 2] {
    let server = &lab.cached;
    if number >= ACTORS {
        let local = SocketAddr::from(([127, 0, 0, 1], PORT));
        return [(); 2].map(|()| Tcp::new(server.net.connect(local)));
    }
    let binary = if number.is_multiple_of(2) { lab.tcp(server) } else { lab.tcp6(server) };
    [lab.tcp(server), binary]
}

/// Connections to each of memcached's threads: it gives them to these one after the other, and one of the daemon's may come in between.
fn probes(lab: &Lab) -> Vec<Tcp> {
    (0..2 * THREADS).map(|_| lab.tcp(&lab.cached)).collect()
}

/// Does at least so many commands; the first wrong history ends it. `others`: what another cache than the lab's own has answered.
pub(crate) fn run(lab: &mut Lab, seed: u64, commands: u64, others: &dyn Fn() -> u64) -> Result<Ran, Fault> {
    let mut run = Run::new(lab, seed);
    let mut rng = Rng::new(seed);
    let (mut ran, mut tenth) = (Ran::default(), 0);
    let (start, mut shown) = (Instant::now(), Instant::now());
    while ran.commands < commands {
        let slow = rng.below(60) == 0;
        let calm = ran.rounds % 40 >= 5;
        // Nothing is served for some seconds then.
        let later = ran.rounds % 250 == 45;
        // A cache keeps less from then on.
        let stale = ran.commands > commands - commands / 8;
        let turn = Turn::of(ran.rounds, run.lab);
        let mortal = turn == Some(Turn::Killed);
        let pace = if turn.is_some() {
            let pause = Duration::from_millis(20);
            Pace { commands: 60, pause, calm: true, later: false, stale, mortal }
        } else if slow || later {
            Pace { commands: 25, pause: Duration::from_millis(300), calm, later, stale, mortal }
        } else {
            let pause = [Duration::ZERO, Duration::from_micros(200)][rng.below(2) as usize];
            Pace { commands: 60, pause, calm, later, stale, mortal }
        };
        ran.turns += u64::from(turn.is_some());
        let events = run
            .round(pace, turn)
            .map_err(|text| Fault { text: format!("seed {seed}, round {}: {text}", ran.rounds), events: 0 });
        let (first, events, end_ns) = events?;
        ran.commands += (run.actors.len() * pace.commands) as u64;
        run.judge(&first, &events, end_ns).map_err(|fault| {
            let text = format!("seed {seed}, round {}: {}", ran.rounds, fault.text);
            Fault { text, ..fault }
        })?;
        ran.rounds += 1;
        let ended = (10 * ran.commands / commands).min(10) as usize;
        if ended > tenth {
            let hits = run.hits() + others();
            ran.tenths[tenth] = hits.saturating_sub(ran.hits);
            (tenth, ran.hits) = (ended, hits);
        }
        (ran.asked, ran.lost) =
            run.actors.iter().fold((0, 0), |sum, actor| (sum.0 + actor.asked, sum.1 + actor.lost));
        if shown.elapsed() > Duration::from_secs(5) {
            shown = Instant::now();
            let rate = ran.commands as f64 / start.elapsed().as_secs_f64();
            // Past the test harness, which keeps what is printed.
            let line = format!("  {} of {commands} commands, {rate:.0}/s, seed {seed}\n", ran.commands);
            drop(std::io::stderr().write_all(line.as_bytes()));
        }
    }
    Ok(ran)
}

/// What was there first, and what happened, by key; and when all had arrived.
type Round = (Vec<Option<Item>>, Vec<Vec<Event>>, u64);

impl<'a> Run<'a> {
    fn new(lab: &'a mut Lab, seed: u64) -> Self {
        let epoch = Instant::now();
        let far = |number| {
            let server = &lab.cached;
            let udp = vec![lab.udp(server), lab.udp(server), lab.udp6(server)];
            Actor::new(number, seed, epoch, udp, connections(lab, number))
        };
        let mut actors: Vec<Actor> = (0..ACTORS).map(far).collect();
        // Where nobody looks at the loopback interface, nothing is answered while somebody is there.
        let beside = if lab.sees_loopback { BESIDE } else { 0 };
        for number in ACTORS..ACTORS + beside {
            let net = &lab.cached.net;
            let local = SocketAddr::from(([127, 0, 0, 1], PORT));
            let udp = vec![Udp::new(net.udp(([127, 0, 0, 1], 0).into()), local)];
            actors.push(Actor::new(number, seed, epoch, udp, connections(lab, number)));
        }
        let probes = probes(lab);
        let judge = lab.tcp(&lab.cached);
        let judge_udp = lab.udp(&lab.cached);
        let keys = keys();
        let stored = vec![None; keys.names.len()];
        Run { lab, keys, actors, epoch, probes, judge, judge_udp, later: Vec::new(), stored, hits: 0 }
    }

    /// Other connections: those from before have ended with memcached, or a cache that has come anew does not know them.
    fn reconnect(&mut self) {
        let lab = &*self.lab;
        for actor in &mut self.actors {
            actor.connect(connections(lab, actor.number));
        }
        self.probes = probes(lab);
        self.judge = lab.tcp(&lab.cached);
    }

    /// What the lab's cache has answered, with those that are gone.
    fn hits(&self) -> u64 {
        self.hits + self.lab.cache.as_ref().map_or(0, |cache| cache.count("get-hit"))
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn round(&mut self, pace: Pace, turn: Option<Turn>) -> Result<Round, String> {
        let mut first: Vec<Option<Item>> = (0..self.keys.names.len()).map(|key| self.read(key).1).collect();
        for (item, stored) in first.iter_mut().zip(&mut self.stored) {
            // No two have the same bytes: one that was there before has been there since.
            if let (Some(item), Some((data, by_ns))) = (item.as_mut(), stored.as_ref())
                && item.data == *data
                && !data.is_empty()
            {
                item.stored_ns.1 = *by_ns;
            }
            *stored = item.as_ref().map(|item| (item.data.clone(), item.stored_ns.1));
        }
        let (keys, actors) = (&self.keys, &mut self.actors);
        let (lab, epoch, hits) = (&mut *self.lab, self.epoch, &mut self.hits);
        let (seen, killed) = std::thread::scope(|scope| {
            let threads: Vec<_> =
                actors.iter_mut().map(|actor| scope.spawn(move || actor.round(keys, pace))).collect();
            let killed = turn.and_then(|turn| turn.happens(lab, epoch, hits));
            let seen: Vec<Result<Seen, String>> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            (seen, killed)
        });
        let mut events = vec![Vec::new(); self.keys.names.len()];
        for seen in seen {
            for (key, event) in seen? {
                events[key].push(event);
            }
        }
        if matches!(turn, Some(Turn::Killed | Turn::Detached)) {
            self.reconnect();
        }
        if let Some((from_ns, to_ns)) = killed {
            let (action, outcome) = (Action::Death, Outcome::Unknown);
            let death = Event { from_ns, to_ns, action, outcome, optional: false, client: 99, how: "signal" };
            for events in &mut events {
                // What was sent well before was executed then, or went with that memcached's socket: the next one cannot get it.
                let ended = events
                    .iter_mut()
                    .filter(|event| event.optional && event.from_ns + UNDER_WAY_NS < from_ns);
                ended.for_each(|event| event.to_ns = event.to_ns.min(to_ns));
                events.push(death.clone());
            }
        }
        self.quiet();
        let end_ns = self.now_ns();
        for key in 0..self.keys.names.len() {
            let (event, _) = self.read(key);
            events[key].push(event);
            events[key].extend(self.later.iter().cloned());
            loosen(&mut events[key]);
            for _ in 0..2 {
                events[key].extend(self.read_udp(key)?);
            }
        }
        // Each is about all keys.
        self.later = events[0].iter().filter_map(|event| flush_to_come(event, end_ns)).collect();
        if killed.is_some() {
            // They were that memcached's.
            self.later.clear();
        }
        Ok((first, events, end_ns))
    }

    /// Waits until memcached has executed every datagram: none waits at its socket, and then each of its threads, which do one
    /// thing after the other, has answered. What one of them had begun before may be put off once.
    fn quiet(&mut self) {
        let start = Instant::now();
        let port = format!(":{PORT:04X} ");
        loop {
            let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
            let text = self.lab.cached.net.enter(|| read("udp") + &read("udp6"));
            let waiting = text.lines().filter(|line| {
                line.split_whitespace().nth(1).is_some_and(|own| format!("{own} ").ends_with(&port))
            });
            let waits = |line: &str| {
                let queues = line.split_whitespace().nth(4).and_then(|queues| queues.split(':').nth(1));
                queues.is_none_or(|queue| u64::from_str_radix(queue, 16) != Ok(0))
            };
            if !waiting.into_iter().any(waits) {
                break;
            }
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "memcached does not read its datagrams:\n{text}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..3 {
            for probe in &mut self.probes {
                let rest = probe.until_noop(false);
                assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
            }
        }
    }

    /// What memcached itself has: the event of reading it, and what follows for later.
    fn read(&mut self, key: usize) -> (Event, Option<Item>) {
        let from_ns = self.now_ns();
        // TCP is watched, never answered for.
        self.judge.send(&[b"mg ", &self.keys.names[key][..], b" t v f c\r\n"].concat());
        let (said, seconds) = self.judge.hear_with_seconds();
        let to_ns = self.now_ns();
        let item = match &said {
            Said::Value { data, flags, .. } => {
                // Of the last second any part may be over; the clock may be late.
                let dies_ns = seconds.map(|left| {
                    (from_ns + u64::saturating_sub(left, 2) * SECOND_NS, to_ns + (left + 1) * SECOND_NS)
                });
                let data = trimmed(data.clone()).into();
                Some(Item { data, flags: *flags, dies_ns, stored_ns: (0, to_ns) })
            }
            _ => None,
        };
        let outcome = Outcome::of(said).unwrap_or(Outcome::Unknown);
        let event = Event {
            from_ns,
            to_ns,
            action: Action::Read,
            outcome,
            optional: false,
            client: 99,
            how: "tcp meta",
        };
        (event, item)
    }

    fn read_udp(&mut self, key: usize) -> Result<Option<Event>, String> {
        let from_ns = self.now_ns();
        let bytes = wire::request(Speech::Ascii, &Ask::Get, &self.keys.names[key], false, 0);
        let request = self.judge_udp.send(&bytes);
        let Some(bytes) = self.judge_udp.receive(request) else { return Ok(None) };
        let to_ns = self.now_ns();
        let heard = wire::reply(Speech::Ascii, &Ask::Get, &bytes);
        let outcome = heard.and_then(|heard| Outcome::of(heard.said));
        let outcome = outcome.ok_or_else(|| format!("not a reply: {:?}", String::from_utf8_lossy(&bytes)))?;
        let event = Event {
            from_ns,
            to_ns,
            action: Action::Read,
            outcome,
            optional: false,
            client: 99,
            how: "udp ascii",
        };
        Ok(Some(event))
    }

    fn judge(&self, first: &[Option<Item>], events: &[Vec<Event>], end_ns: u64) -> Result<(), Fault> {
        for (key, events) in events.iter().enumerate() {
            let name = String::from_utf8_lossy(&self.keys.names[key]).into_owned();
            // A round is made so that this does not happen.
            let all = events.len();
            if all > MOST {
                return Err(Fault {
                    text: format!("{name}: {all} events in a round, room for {MOST}"),
                    events: 0,
                });
            }
            match check(&first[key], events, end_ns) {
                Verdict::Right => {}
                Verdict::TooHard => {
                    return Err(Fault {
                        text: format!("{name}: the search was given up after {all} events"),
                        events: 0,
                    });
                }
                Verdict::Wrong => {
                    let mut short = minimal(&first[key], events, end_ns);
                    short.sort_by_key(|event| event.from_ns);
                    let mut text = format!(
                        "{name}: no order explains these {} of {all} events; before them: {:?}",
                        short.len(),
                        first[key].as_ref().map(|item| String::from_utf8_lossy(&item.data).into_owned())
                    );
                    for event in &short {
                        let _ = write!(text, "\n  {event}");
                    }
                    return Err(Fault { text, events: short.len() });
                }
            }
        }
        Ok(())
    }
}

/// A flush for later, for the rounds after this one.
fn flush_to_come(event: &Event, end_ns: u64) -> Option<Event> {
    let Action::FlushLater { seconds, .. } = event.action else { return None };
    // All that was sent has arrived.
    let event = Event { to_ns: event.to_ns.min(end_ns), ..event.clone() };
    // Whoever read a key after its effect, at the end of a round, has taken away what it took.
    (over_ns(&event, seconds, end_ns) + 2 * SECOND_NS > end_ns).then_some(event)
}
