//! A cache, and a memcached that is played: what it is asked it answers at once.

use super::{ACK, ASK_PORT, PORT, Read, SECOND, SERVER, SYN, datagram, read, section, segment};
use std::net::Ipv4Addr;
use tidemill_kvcache::{Cache, Counter, Fate, Settings, Side};

pub const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 4000);
pub const SERVED: (Ipv4Addr, u16) = (SERVER, PORT);
pub const SETTLE: u64 = 3 * SECOND;
pub const START: u64 = 1_000_000 * SECOND;
/// Its age at `START`.
pub const AGE_S: u64 = 1000;
pub const KEEPS: [&str; 2] = ["k", "other"];

/// A cache, and a memcached that has two keys and answers our questions at once.
pub struct World {
    pub cache: Cache,
    pub now: u64,
    /// `STAT oldest`.
    pub oldest: u64,
    /// Seconds that its clock is ahead of ours, since the start.
    pub ahead_s: u64,
    /// `STAT accepting_conns`, `listen_disabled_num`.
    pub accepts: [u64; 2],
    pub client: [u32; 2],
}

impl World {
    /// `k` is in the cache.
    pub fn new(toml: &str) -> Self {
        let mut world = World::begun(toml);
        // What was under way when it began has been executed.
        world.hits("k");
        world.now += SETTLE;
        assert!(world.settled());
        world
    }

    /// It has seen nothing yet.
    pub fn begun(toml: &str) -> Self {
        let toml = format!("misses = 1\nl1 = {{ memory_mib = 1 }}\n{toml}");
        let cache = Cache::new(Settings::new(&section(&toml)).unwrap(), 5);
        let (now, accepts, client) = (START, [1, 0], [500, 900]);
        World { cache, now, oldest: 0, ahead_s: 0, accepts, client }
    }

    pub fn through(&mut self, side: Side, frame: &[u8]) -> Fate {
        self.now += 1_000_000;
        let fate = self.cache.frame(side, frame, true, 1800, self.now);
        if fate == Fate::Ask {
            self.told(&read(self.cache.made()));
        }
        fate
    }

    pub fn told(&mut self, question: &Read) {
        let text = std::str::from_utf8(&question.text).unwrap();
        let age_s = AGE_S + (self.now - START) / SECOND + self.ahead_s;
        let told = match text.trim_end().rsplit(' ').next().unwrap() {
            "stats" => {
                let [accepts, stops] = self.accepts;
                let time_s = 5000 + age_s;
                let process = format!("STAT pid 7\r\nSTAT uptime {age_s}\r\nSTAT time {time_s}\r\n");
                format!("{process}STAT accepting_conns {accepts}\r\nSTAT listen_disabled_num {stops}\r\n")
            }
            "settings" => format!("STAT maxbytes 5\r\nSTAT oldest {}\r\n", self.oldest),
            nonce => format!("HD t-1 {nonce}\r\n"),
        };
        let frame = datagram(SERVED, (CLIENT.0, ASK_PORT), question.id, told.as_bytes());
        assert_eq!(self.through(Side::Servers, &frame), Fate::Consume);
    }

    /// Whether a get of this key is answered by the cache.
    pub fn hits(&mut self, key: &str) -> bool {
        let get = datagram(CLIENT, SERVED, 1, format!("get {key}\r\n").as_bytes());
        let fate = self.through(Side::Clients, &get);
        if fate == Fate::Answer {
            return true;
        }
        let value = datagram(SERVED, CLIENT, 1, format!("VALUE {key} 0 1\r\nx\r\nEND\r\n").as_bytes());
        self.through(Side::Servers, &value);
        false
    }

    /// Whether the cache gives answers when it has been asked a few times.
    pub fn settled(&mut self) -> bool {
        (0..8).filter(|_| KEEPS.iter().all(|key| self.hits(key))).count() > 1
    }

    /// The client's next bytes.
    pub fn sends(&mut self, data: &[u8]) -> Fate {
        let [seq, ack] = self.client;
        self.client[0] = seq.wrapping_add(data.len() as u32);
        self.through(Side::Clients, &segment(CLIENT, SERVED, seq, ack, ACK, data))
    }

    /// memcached's next bytes, which acknowledge all of the client's.
    pub fn says(&mut self, data: &[u8]) -> Fate {
        let [ack, seq] = self.client;
        self.client[1] = seq.wrapping_add(data.len() as u32);
        self.through(Side::Servers, &segment(SERVED, CLIENT, seq, ack, ACK, data))
    }

    pub fn opens(&mut self, client: u16, first: [u32; 2]) {
        let frame = segment(SERVED, (CLIENT.0, client), first[1].wrapping_sub(1), first[0], SYN | ACK, &[]);
        assert_eq!(self.through(Side::Servers, &frame), Fate::Pass);
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.cache.counters().get(counter)
    }
}
