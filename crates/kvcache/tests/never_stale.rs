//! The cache between clients and a plain memcached: datagrams that are lost, late and out of order, connections cut into any segments, sent again, out of order, reset,
//! unknown, replies that come whenever they like, values that end, flushes at once and for later, another process, another cache in the middle of all that. Whatever the cache answers is what memcached
//! would answer at that moment, byte for byte. The same check finds planted faults.

#![allow(clippy::unwrap_used)]

mod common;

use common::memcached::{Item, Memcached};
use common::{ACK, ASK_PORT, FIN, PORT, RST, SECOND, SERVER, SYN, datagram, read, section, segment};
use std::net::Ipv4Addr;
use tidemill_burst::DropReason;
use tidemill_cachesim::random::Random;
use tidemill_kvcache::{Cache, Counter, Fate, Settings, Side};

const SETTLE: u64 = 3 * SECOND / 10;
const LEASE: u64 = SETTLE;
const ROOM: usize = 1800;

/// What the world does that it must not, according to what the cache rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Some mutations do not come by the cache.
    Bypass,
    /// A datagram is executed later than `settle`.
    LateDatagram,
    /// What came by a connection that is not followed is executed later than that.
    LateUnknown,
    /// What is not answered, of a connection that is followed.
    LateSilent,
    /// memcached is started again and says that it is the same.
    SilentRestart,
    /// It gives a value less time than it told.
    ShortLife,
}

const FAULTS: [Fault; 6] = [
    Fault::Bypass,
    Fault::LateDatagram,
    Fault::LateUnknown,
    Fault::LateSilent,
    Fault::SilentRestart,
    Fault::ShortLife,
];

struct Conn {
    client: (Ipv4Addr, u16),
    isn: [u32; 2],
    is_followed: bool,
    /// All that the client has written, how much of it has arrived in order, and pieces that have beyond.
    written: Vec<u8>,
    arrived: usize,
    beyond: Vec<(usize, usize)>,
    executed: usize,
    /// How much of that has passed the cache.
    passed: usize,
    /// Of a connection that is not followed: since when something waits to be executed.
    waits_since: Option<u64>,
    /// Since when a command that is not answered is the next, and all before has been.
    silent_since: Option<u64>,
    /// What memcached has written, and how much the client has.
    replies: Vec<u8>,
    heard: usize,
}

impl Conn {
    fn arrive(&mut self, from: usize, to: usize) {
        self.beyond.push((from, to));
        while let Some(at) = self.beyond.iter().position(|&(from, _)| from <= self.arrived) {
            self.arrived = self.arrived.max(self.beyond.remove(at).1);
        }
    }
}

struct World {
    cache: Cache,
    settings: Settings,
    /// Another cache comes in its place, now and then.
    is_replaced: bool,
    memcached: Memcached,
    draw: Random,
    now: u64,
    conns: Vec<Conn>,
    next_port: u16,
    /// Datagrams behind the cache, with when they passed it.
    to_memcached: Vec<(Vec<u8>, u64)>,
    /// Replies in front of the cache, with when their requests passed it.
    from_memcached: Vec<(Vec<u8>, u64)>,
    /// Of connections that are reset: bytes that may yet be executed, and until when.
    orphans: Vec<(Vec<u8>, u64)>,
    /// Before memcached was another: until when, and what it had.
    before: Vec<(u64, Vec<Option<Item>>)>,
    steps: u64,
    values: u64,
    hits: u64,
    fault: Option<Fault>,
    log: Vec<String>,
}

fn is_mutation(frame: &[u8]) -> bool {
    ![&b"get"[..], b"mg ", b"stats"].iter().any(|word| frame[50..].starts_with(word))
}

fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..3).map(|n| format!("k{n}").into_bytes()).collect();
    keys.push(vec![b'l'; 250]);
    keys
}

impl World {
    fn new(seed: u64, toml: &str, fault: Option<Fault>) -> Self {
        let toml = format!("lease_ms = 300\nsettle_ms = 300\nmisses = {}\n{toml}", 1 + seed % 2);
        let settings = Settings::new(&section(&toml)).unwrap();
        let cache = Cache::new(settings.clone(), seed);
        let now = 1_000_000 * SECOND;
        let mut memcached = Memcached::default();
        memcached.restart(7, now);
        let (draw, conns) = (Random::new(seed), Vec::new());
        let mut world = World {
            cache,
            settings,
            is_replaced: false,
            memcached,
            draw,
            now,
            conns,
            next_port: 1000,
            to_memcached: Vec::new(),
            from_memcached: Vec::new(),
            orphans: Vec::new(),
            before: Vec::new(),
            steps: 0,
            values: 0,
            hits: 0,
            fault,
            log: Vec::new(),
        };
        (0..3).for_each(|_| world.open());
        world
    }

    fn below(&mut self, n: usize) -> usize {
        self.draw.below(n as u64) as usize
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let line = format!("{:.3} {}", (self.now % (1000 * SECOND)) as f64 / 1e9, what());
        self.log.push(line);
    }

    fn client(&mut self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, 1 + self.below(2) as u8)
    }

    fn through(&mut self, side: Side, frame: &[u8]) -> Fate {
        self.cache.frame(side, frame, true, ROOM, self.now)
    }

    fn lost(&self) -> u64 {
        self.cache.counters().get(Counter::TcpLost) + self.cache.counters().get(Counter::TcpClosed)
    }

    // ---- Connections.

    fn open(&mut self) {
        let client = self.client();
        // Ports are used again.
        self.next_port = 1000 + (self.next_port + 1) % 64;
        let port = self.next_port;
        if self.conns.iter().any(|conn| conn.client == (client, port)) {
            return;
        }
        let isn = [self.draw.bits() as u32, self.draw.bits() as u32];
        let mut is_followed = self.below(8) > 0;
        if is_followed {
            let lost = self.cache.counters().get(Counter::TcpLost);
            let frame =
                segment((SERVER, PORT), (client, port), isn[1].wrapping_sub(1), isn[0], SYN | ACK, &[]);
            assert_eq!(self.through(Side::Servers, &frame), Fate::Pass);
            is_followed = self.cache.counters().get(Counter::TcpLost) == lost;
        }
        self.note(|| format!("open {client}:{port} followed {is_followed}"));
        self.conns.push(Conn {
            client: (client, port),
            isn,
            is_followed,
            written: Vec::new(),
            arrived: 0,
            beyond: Vec::new(),
            executed: 0,
            waits_since: None,
            replies: Vec::new(),
            heard: 0,
            passed: 0,
            silent_since: None,
        });
    }

    fn command(&mut self, tcp: bool) -> Vec<u8> {
        let keys = keys();
        let key = String::from_utf8(keys[self.below(keys.len())].clone()).unwrap();
        self.values += 1;
        // A value like no other; sometimes with what looks like a command.
        let value = match self.below(12) {
            0 => format!("{}\r\nset k0 0 0 1\r\nx", self.values),
            1 => format!("{}{}", self.values, "-".repeat(900)),
            _ => format!("v{}", self.values),
        };
        let noreply = if self.below(4) == 0 { " noreply" } else { "" };
        let exptime = if self.below(3) == 0 { self.below(9) } else { 0 };
        let (flags, len) = (self.below(99), value.len());
        let text = match self.below(30) {
            0..=13 => format!("set {key} {flags} {exptime} {len}{noreply}\r\n{value}\r\n"),
            14..=16 => format!("append {key} 0 0 1{noreply}\r\n+\r\n"),
            17 => format!("add {key} {flags} 0 {len}{noreply}\r\n{value}\r\n"),
            18..=20 => format!("delete {key}{noreply}\r\n"),
            21 => format!("touch {key} {exptime}{noreply}\r\n"),
            22 => format!("gat {exptime} {key} k1\r\n"),
            23 => format!("replace {key} 0 {exptime} {len}{noreply}\r\n{value}\r\n"),
            24 if self.below(4) == 0 => "flush_all\r\n".into(),
            25 if self.below(4) == 0 => format!("flush_all {}{noreply}\r\n", 1 + self.below(6)),
            26 if self.below(4) == 0 => "unknown words\r\n".into(),
            27 if tcp => format!("get {key} k0\r\n"),
            _ => format!("gets {key}\r\n"),
        };
        text.into_bytes()
    }

    fn write(&mut self, at: usize) {
        let command = self.command(true);
        let client = self.conns[at].client;
        self.note(|| {
            format!("{client:?} writes {:?}", String::from_utf8_lossy(&command[..command.len().min(60)]))
        });
        self.conns[at].written.extend(command);
    }

    /// A client sends a piece of what it has written: the next one, one that came already, or one beyond.
    fn send(&mut self, at: usize) {
        let (arrived, written) = (self.conns[at].arrived, self.conns[at].written.len());
        let from = match self.below(10) {
            0 => self.below(arrived + 1),
            1 => arrived + self.below(written - arrived + 1),
            _ => arrived,
        };
        let most = [5, 60, 1000][self.below(3)];
        let to = (from + 1 + self.below(most)).min(written);
        if from >= to {
            return;
        }
        let conn = &self.conns[at];
        let (seq, ack) = (conn.isn[0].wrapping_add(from as u32), conn.isn[1].wrapping_add(conn.heard as u32));
        let frame = segment(conn.client, (SERVER, PORT), seq, ack, ACK, &conn.written[from..to]);
        let lost = self.lost();
        let bypass = self.fault == Some(Fault::Bypass) && self.below(4) == 0;
        let fate = if bypass { Fate::Pass } else { self.through(Side::Clients, &frame) };
        let client = self.conns[at].client;
        self.note(|| format!("{client:?} sends {from}..{to}: {fate:?}"));
        if self.lost() > lost {
            self.conns[at].is_followed = false;
        }
        match fate {
            Fate::Drop(DropReason::KvOutOfOrder) => assert!(from > arrived, "in order, and dropped"),
            Fate::Pass if self.below(8) > 0 => {
                let now = self.now;
                let conn = &mut self.conns[at];
                conn.arrive(from, to);
                if !conn.is_followed {
                    conn.waits_since.get_or_insert(now);
                }
            }
            Fate::Pass => {}
            fate => panic!("a segment: {fate:?}"),
        }
    }

    fn execute(&mut self, at: usize) -> bool {
        let conn = &mut self.conns[at];
        let early = conn.waits_since.is_some_and(|since| self.now < since + SETTLE);
        if self.fault == Some(Fault::LateUnknown) && early {
            return false;
        }
        let done = self.memcached.execute(&conn.written[conn.executed..conn.arrived], self.now);
        let Some((len, reply)) = done else {
            conn.waits_since = None;
            return false;
        };
        let text = String::from_utf8_lossy(&conn.written[conn.executed..][..len.min(60)]).into_owned();
        conn.executed += len;
        conn.replies.extend(reply);
        self.note(|| format!("executed {text:?}"));
        true
    }

    /// memcached's host sends a piece of its replies.
    fn answer(&mut self, at: usize) {
        let (heard, said) = (self.conns[at].heard, self.conns[at].replies.len());
        let from = match self.below(8) {
            0 => self.below(heard + 1),
            1 => heard + self.below(said - heard + 1),
            _ => heard,
        };
        let most = [4, 50, 900][self.below(3)];
        let to = (from + 1 + self.below(most)).min(said);
        if from >= to {
            return;
        }
        let conn = &self.conns[at];
        let (seq, ack) =
            (conn.isn[1].wrapping_add(from as u32), conn.isn[0].wrapping_add(conn.arrived as u32));
        let frame = segment((SERVER, PORT), conn.client, seq, ack, ACK, &conn.replies[from..to]);
        let lost = self.lost();
        let fate = self.through(Side::Servers, &frame);
        if self.lost() > lost {
            let now = self.now;
            self.conns[at].is_followed = false;
            self.conns[at].waits_since = Some(now);
        }
        let arrives = self.below(8) > 0;
        let conn = &mut self.conns[at];
        if fate == Fate::Pass {
            conn.passed = conn.passed.max(to);
        }
        match fate {
            Fate::Drop(DropReason::KvOutOfOrder) => assert!(from > heard),
            Fate::Pass if arrives && from <= conn.heard => conn.heard = conn.heard.max(to),
            Fate::Pass => {}
            fate => panic!("a reply: {fate:?}"),
        }
    }

    /// memcached's kernel acknowledges what has arrived.
    fn acknowledge(&mut self, at: usize) {
        let conn = &self.conns[at];
        let (seq, ack) =
            (conn.isn[1].wrapping_add(conn.heard as u32), conn.isn[0].wrapping_add(conn.arrived as u32));
        let frame = segment((SERVER, PORT), conn.client, seq, ack, ACK, &[]);
        assert_eq!(self.through(Side::Servers, &frame), Fate::Pass);
    }

    /// What is not answered and waits for nothing is executed within its time.
    fn hurry(&mut self, at: usize) {
        loop {
            let conn = &mut self.conns[at];
            let next = &conn.written[conn.executed..conn.arrived];
            let line = next.split(|&byte| byte == b'\n').next().unwrap();
            let idle = conn.is_followed && conn.passed == conn.replies.len();
            if !idle || !line.ends_with(b" noreply\r") || self.fault == Some(Fault::LateSilent) {
                conn.silent_since = None;
                return;
            }
            let since = *conn.silent_since.get_or_insert(self.now);
            if self.now < since + SETTLE || !self.execute(at) {
                return;
            }
        }
    }

    fn close(&mut self, at: usize) {
        let conn = self.conns.swap_remove(at);
        let (seq, ack) =
            (conn.isn[0].wrapping_add(conn.arrived as u32), conn.isn[1].wrapping_add(conn.heard as u32));
        let client = conn.client;
        if conn.heard == conn.replies.len() && conn.executed == conn.arrived && self.below(2) == 0 {
            let frame = segment((SERVER, PORT), conn.client, ack, seq, ACK | FIN, &[]);
            assert_eq!(self.through(Side::Servers, &frame), Fate::Pass);
            self.note(|| format!("{client:?} is closed"));
            return;
        }
        let frame = segment(conn.client, (SERVER, PORT), seq, ack, ACK | RST, &[]);
        assert_eq!(self.through(Side::Clients, &frame), Fate::Pass);
        let since = conn.waits_since.unwrap_or(self.now);
        self.note(|| format!("{client:?} is reset"));
        self.orphans.push((conn.written[conn.executed..conn.arrived].to_vec(), since + SETTLE));
    }

    // ---- Datagrams.

    fn get(&mut self) {
        let (keys, client) = (keys(), self.client());
        let (key, id) = (keys[self.below(keys.len())].clone(), self.below(60) as u16);
        let text = [b"get ", &key[..], b"\r\n"].concat();
        let frame = datagram((client, 5000), (SERVER, PORT), id, &text);
        match self.through(Side::Clients, &frame) {
            Fate::Answer => self.judge(client, id, &key),
            fate => self.passed(frame, fate),
        }
    }

    fn judge(&mut self, client: Ipv4Addr, id: u16, key: &[u8]) {
        let made = read(self.cache.made());
        assert_eq!((made.src, made.dst, made.id), ((SERVER, PORT), (client, 5000), id));
        self.hits += 1;
        let text = |item: &Item| {
            let head =
                format!("VALUE {} {} {}\r\n", String::from_utf8_lossy(key), item.flags, item.value.len());
            [head.as_bytes(), &item.value, b"\r\nEND\r\n"].concat()
        };
        let truth = self.memcached.item(key, self.now).as_ref().map(text);
        if truth.as_ref() == Some(&made.text) {
            return;
        }
        // A memcached that has just been started again is heard of within the lease.
        let was = |(until, before): &(u64, Vec<Option<Item>>)| {
            let at = keys().iter().position(|known| known == key).unwrap();
            self.now < *until && before[at].as_ref().map(text) == Some(made.text.clone())
        };
        if self.before.iter().any(was) {
            return;
        }
        panic!(
            "answered {:?}, memcached has {:?}\n{}",
            String::from_utf8_lossy(&made.text),
            truth.map(|truth| String::from_utf8_lossy(&truth).into_owned()),
            self.log[self.log.len().saturating_sub(60)..].join("\n")
        );
    }

    fn passed(&mut self, frame: Vec<u8>, fate: Fate) {
        assert!(matches!(fate, Fate::Pass | Fate::Ask), "{fate:?}");
        self.to_memcached.push((frame, self.now));
        if fate == Fate::Ask {
            self.asked();
        }
    }

    /// A question of the cache's own goes to memcached.
    fn asked(&mut self) {
        let made = self.cache.made().to_vec();
        let question = read(&made);
        assert_eq!((question.dst, question.src.1), ((SERVER, PORT), ASK_PORT));
        assert!(question.text.starts_with(b"mg ") || question.text.starts_with(b"stats"), "{question:?}");
        self.to_memcached.push((made, self.now));
    }

    fn mutate(&mut self) {
        let (client, id) = (self.client(), self.below(60) as u16);
        let mut text = self.command(false);
        if self.below(4) == 0 {
            text.extend(self.command(false));
        }
        let frame = datagram((client, 5000), (SERVER, PORT), id, &text);
        self.note(|| format!("datagram {:?}", String::from_utf8_lossy(&text[..text.len().min(60)])));
        let bypass = self.fault == Some(Fault::Bypass) && self.below(4) == 0;
        let fate = if bypass { Fate::Pass } else { self.through(Side::Clients, &frame) };
        self.passed(frame, fate);
    }

    fn execute_datagram(&mut self) {
        if self.to_memcached.is_empty() {
            return;
        }
        let at = self.below(self.to_memcached.len());
        let (frame, passed) = self.to_memcached.remove(at);
        if self.fault == Some(Fault::LateDatagram) && self.now < passed + SETTLE && is_mutation(&frame) {
            return self.to_memcached.push((frame, passed));
        }
        if self.below(12) == 0 {
            return;
        }
        let request = read(&frame);
        let (mut done, mut replies) = (0, Vec::new());
        while let Some((len, reply)) = self.memcached.execute(&request.text[done..], self.now) {
            done += len;
            replies.extend(reply);
        }
        assert_eq!(done, request.text.len());
        if !request.text.starts_with(b"get ") && !request.text.starts_with(b"stats") {
            self.note(|| format!("executed {:?}", String::from_utf8_lossy(&request.text[..done.min(60)])));
        }
        if !replies.is_empty() {
            self.from_memcached.push((datagram(request.dst, request.src, request.id, &replies), passed));
        }
    }

    fn reply(&mut self) {
        if self.from_memcached.is_empty() {
            return;
        }
        let at = self.below(self.from_memcached.len());
        let (frame, _) = self.from_memcached.remove(at);
        if self.below(12) == 0 {
            return;
        }
        let to_us = read(&frame).dst.1 == ASK_PORT;
        let fate = self.through(Side::Servers, &frame);
        if to_us || fate == Fate::Ask {
            self.note(|| format!("reply {:?}: {fate:?}", String::from_utf8_lossy(&read(&frame).text)));
        }
        match fate {
            Fate::Pass => assert!(!to_us),
            Fate::Consume => assert!(to_us),
            Fate::Ask => self.asked(),
            fate => panic!("a reply: {fate:?}"),
        }
    }

    // ---- Time.

    fn pass(&mut self, ns: u64) {
        let now = self.now + ns;
        let settle = |fault| if self.fault == Some(fault) { 5 * SETTLE } else { SETTLE };
        let (late, late_unknown) = (settle(Fault::LateDatagram), settle(Fault::LateUnknown));
        // What is not executed within its time never is, and replies that have taken longer are lost.
        self.to_memcached.retain(|(_, passed)| now < passed + late);
        self.from_memcached.retain(|(_, passed)| now < passed + SETTLE);
        self.orphans.retain(|(_, until)| now < *until);
        for at in 0..self.conns.len() {
            let since = self.conns[at].waits_since.filter(|since| now >= since + late_unknown);
            while since.is_some() && self.execute(at) {}
        }
        // In steps smaller than what they are to be seen in.
        while self.now < now {
            (0..self.conns.len()).for_each(|at| self.hurry(at));
            self.now = now.min(self.now + SETTLE / 8);
        }
        (0..self.conns.len()).for_each(|at| self.hurry(at));
    }

    fn execute_orphan(&mut self) {
        if self.orphans.is_empty() {
            return;
        }
        let at = self.below(self.orphans.len());
        if let Some((len, _)) = self.memcached.execute(&self.orphans[at].0, self.now) {
            self.orphans[at].0.drain(..len);
        }
    }

    fn restart(&mut self) {
        let before = keys().iter().map(|key| self.memcached.item(key, self.now)).collect();
        while !self.conns.is_empty() {
            self.close(0);
        }
        self.orphans.clear();
        let (pid, started) = (self.memcached.pid, self.memcached.started_ns);
        // Two in one second have two numbers.
        let again = started / SECOND == self.now / SECOND;
        let next = pid + u32::from(self.below(2) == 0 || again);
        self.memcached.restart(next, self.now);
        if self.fault == Some(Fault::SilentRestart) {
            (self.memcached.pid, self.memcached.started_ns) = (pid, started);
        }
        self.before.push((self.now + LEASE, before));
        self.note(|| "another memcached".into());
        (0..3).for_each(|_| self.open());
    }

    /// It knows of nothing that is under way, nor of any connection.
    fn replace(&mut self) {
        let (secret, now) = (self.draw.bits(), self.now);
        self.cache = Cache::new(self.settings.clone(), secret);
        for conn in &mut self.conns {
            if conn.is_followed && conn.executed < conn.arrived {
                conn.waits_since = Some(now);
            }
            conn.is_followed = false;
        }
        self.note(|| "another cache".into());
    }

    fn step(&mut self) {
        let conn = if self.conns.is_empty() { None } else { Some(self.below(self.conns.len())) };
        self.steps += 1;
        let calm = self.steps % 1000 < 700;
        match (self.below(100), conn) {
            (0..=14, _) => self.get(),
            // Where something is always being written, hardly anything is kept.
            (15, _) if calm => {}
            (68..=69, _) if calm && self.below(8) > 0 => {}
            (15, _) => self.mutate(),
            (16..=39, _) => self.execute_datagram(),
            (40..=67, _) => self.reply(),
            (68..=69, Some(at)) => self.write(at),
            (70..=76, Some(at)) => self.send(at),
            (77..=82, Some(at)) => drop(self.execute(at)),
            (83..=86, Some(at)) => self.answer(at),
            (87..=88, Some(at)) => self.acknowledge(at),
            (89, _) => self.execute_orphan(),
            (90, _) => match (self.below(8), conn) {
                (0, Some(at)) => self.close(at),
                (1, _) if self.below(10) == 0 => self.restart(),
                (2, _) if self.is_replaced && self.below(8) == 0 => self.replace(),
                _ if self.conns.len() < 4 => self.open(),
                _ => {}
            },
            _ => {
                let most = [1_000_000, 10_000_000, 150_000_000][self.below(3)];
                let ns = self.below(most) as u64;
                self.pass(ns);
                if self.fault == Some(Fault::ShortLife) && self.below(20) == 0 {
                    // Its clock jumps.
                    self.memcached.age(6);
                }
            }
        }
    }
}

fn run(seed: u64, steps: usize, toml: &str, fault: Option<Fault>) -> World {
    let mut world = World::new(seed, toml, fault);
    for _ in 0..steps {
        world.step();
    }
    world
}

const VARIANTS: [&str; 6] = [
    "",
    "inclusion = 'non-inclusive'\nl0 = { entries = 2, ways = 2, chunk = 2048, policy = 'sieve' }",
    "hash = 'crc32'\ninclusion = 'non-inclusive'\nwrite = 'back'\nl0 = { entries = 2, chunk = 2048 }\nl1 = { entries = 2, ways = 2, memory_mib = 1, policy = 's3fifo' }",
    "slots = 1\nl0 = { entries = 0 }\nl1 = { entries = 4, ways = 4, memory_mib = 1, policy = 'clock' }",
    "l0 = { entries = 4, ways = 2, chunk = 2048, policy = 'fifo' }\nl1 = { entries = 0 }",
    "hash = 'lookup3'\nl0 = { entries = 4, ways = 1, chunk = 300 }\nl1 = { entries = 3, ways = 1, memory_mib = 1, slab = 'E' }",
];

#[test]
fn never_stale() {
    let (mut hits, mut executed, mut counts) = (0, 0, std::collections::BTreeMap::new());
    for seed in 0..300 {
        let toml =
            format!("{}\n{}", if seed % 6 < 2 { "l1 = { memory_mib = 1 }" } else { "" }, VARIANTS[seed % 6]);
        let mut world = World::new(seed as u64, &toml, None);
        world.is_replaced = true;
        (0..8000).for_each(|_| world.step());
        hits += world.hits;
        executed += world.memcached.executed;
        for (name, count) in world.cache.counters().iter() {
            *counts.entry(name).or_insert(0) += count;
        }
    }
    println!("{hits} hits, {executed} commands executed, {counts:?}");
    assert!(hits > 15_000, "{hits}");
    // Everything that the check is about has happened.
    for name in [
        "hit-l0",
        "hit-l1",
        "get-parked",
        "udp-mutation",
        "tcp-mutation",
        "tcp-released",
        "tcp-out-of-order",
        "tcp-old",
        "tcp-unknown",
        "void",
        "flush-later",
        "fill-kept",
        "fill-stale",
        "fill-expires",
        "restarts",
        "checks-flush",
    ] {
        assert!(counts[name] > 20, "{name}: {}", counts[name]);
    }
}

/// Who answers goes back and forth many times in each run, while all that happens happens: what was kept before memcached answered is true when the cache does again, or is not given.
#[test]
fn a_controller_that_flaps_falsifies_nothing() {
    let (mut hits, mut shifts, mut resting) = (0, 0, 0);
    for seed in 0..60 {
        // A world's gets are some sixty a second, in lumps.
        let toml = "on_demand = { up = 60, up_ms = 100, down = 40, down_ms = 100 }\nl1 = { memory_mib = 1 }";
        let world = run(1000 + seed, 8000, toml, None);
        hits += world.hits;
        shifts += world.cache.counters().get(Counter::Shifts);
        resting += world.cache.counters().get(Counter::Resting);
    }
    println!("{hits} hits, {shifts} shifts, {resting} gets while memcached answered");
    assert!(hits > 150 && shifts > 300 && resting > 1000, "{hits}, {shifts}, {resting}");
}

/// The same where the host decides, and says so at any moment, also that nothing has changed: worse than any controller.
#[test]
fn a_host_that_flaps_falsifies_nothing() {
    let rules = "up = { cpu = 60, ms = 1000 }\ndown = { cpu = 30, gets = 10, ms = 1000 }";
    let (mut hits, mut shifts, mut resting) = (0, 0, 0);
    for seed in 0..40 {
        let toml = format!("l1 = {{ memory_mib = 1 }}\n[on_demand_host]\n{rules}");
        let mut world = World::new(3000 + seed, &toml, None);
        for _ in 0..8000 {
            if world.below(60) == 0 {
                let answers = world.below(2) == 0;
                world.cache.shift_to(answers);
            }
            world.step();
        }
        hits += world.hits;
        shifts += world.cache.counters().get(Counter::Shifts);
        resting += world.cache.counters().get(Counter::Resting);
    }
    println!("{hits} hits, {shifts} shifts, {resting} gets while memcached answered");
    assert!(hits > 150 && shifts > 1000 && resting > 1000, "{hits}, {shifts}, {resting}");
}

#[test]
fn the_check_can_fail() {
    const RUNS: u64 = 600;
    for fault in FAULTS {
        let wrong = (0..RUNS).filter(|&seed| {
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| ()));
            let result =
                std::panic::catch_unwind(|| run(seed, 8000, "l1 = { memory_mib = 1 }", Some(fault)).hits);
            std::panic::set_hook(hook);
            result.is_err()
        });
        let wrong = wrong.count();
        println!("{fault:?}: wrong in {wrong} of {RUNS} runs");
        assert!(wrong > 2, "{fault:?}: {wrong} of {RUNS}");
    }
}
