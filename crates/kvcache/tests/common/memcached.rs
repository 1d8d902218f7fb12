//! A plain memcached: what it stores, its clock of whole seconds, what it answers. Its commands are read by the library's slice parser, which is other
//! code than the stream parser that the cache uses.

use super::SECOND;
use std::collections::BTreeMap;
use tidemill_kv::codec::request::{Parsed, Request, parse};
use tidemill_kv::codec::verb::Verb;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub value: Vec<u8>,
    pub flags: u32,
    /// The second at which it is gone.
    until_s: Option<u64>,
}

/// The memcached.
#[derive(Debug, Default)]
pub struct Memcached {
    items: BTreeMap<Vec<u8>, Item>,
    /// At this second all stored until then ends.
    flush_s: Option<u64>,
    pub pid: u32,
    pub started_ns: u64,
    pub executed: u64,
}

impl Memcached {
    fn tick(&mut self, now_ns: u64) {
        let now_s = now_ns / SECOND;
        if self.flush_s.is_some_and(|at| at <= now_s) {
            self.items.clear();
            self.flush_s = None;
        }
        self.items.retain(|_, item| item.until_s.is_none_or(|at| at > now_s));
    }

    /// What is stored under a key now.
    pub fn item(&mut self, key: &[u8], now_ns: u64) -> Option<Item> {
        self.tick(now_ns);
        self.items.get(key).cloned()
    }

    fn until_s(exptime: i64, now_ns: u64) -> Option<u64> {
        match exptime {
            0 => None,
            ..0 => Some(0),
            _ => Some(now_ns / SECOND + exptime as u64),
        }
    }

    /// Executes the first command of `input`, if it is whole: how many bytes it was, and the reply.
    pub fn execute(&mut self, input: &[u8], now_ns: u64) -> Option<(usize, Vec<u8>)> {
        self.tick(now_ns);
        let (request, len) = match parse(input, false) {
            Parsed::Need(_) => return None,
            Parsed::Request(request, len) => (request, len),
            Parsed::Bad(bad) => {
                self.executed += 1;
                return Some((bad.skip.unwrap(), b"ERROR\r\n".to_vec()));
            }
        };
        self.executed += 1;
        Some((len, self.run(&request, now_ns)))
    }

    fn run(&mut self, request: &Request<'_>, now_ns: u64) -> Vec<u8> {
        let said = |text: &str, noreply: bool| if noreply { Vec::new() } else { text.as_bytes().to_vec() };
        match request {
            Request::Get { verb, exptime, keys, .. } => {
                let mut reply = Vec::new();
                for key in *keys {
                    if let Some(item) = self.items.get_mut(key) {
                        if verb.gets_and_touches() {
                            item.until_s = Self::until_s(exptime.unwrap(), now_ns);
                        }
                        let unique = (*verb == Verb::Gets).then_some(1);
                        tidemill_kv::codec::write::value(key, item.flags, &item.value, unique, &mut reply);
                    }
                }
                reply.extend(b"END\r\n");
                reply
            }
            Request::Store { verb, key, flags, exptime, value, noreply, .. } => {
                let there = self.items.get_mut(*key);
                let until_s = Self::until_s(*exptime, now_ns);
                match (verb, there) {
                    (Verb::Append, Some(item)) => item.value.extend_from_slice(value),
                    (Verb::Add, Some(_)) | (Verb::Append | Verb::Replace, None) => {
                        return said("NOT_STORED\r\n", *noreply);
                    }
                    _ => {
                        let item = Item { value: value.to_vec(), flags: *flags, until_s };
                        self.items.insert(key.to_vec(), item);
                    }
                }
                said("STORED\r\n", *noreply)
            }
            Request::Meta { verb: Verb::Mg, key, flags, .. } => {
                let Some(item) = self.items.get(*key) else { return Vec::new() };
                let left = item.until_s.map_or(-1, |at| at as i64 - (now_ns / SECOND) as i64);
                let nonce = { *flags }.find(|flag| flag[0] == b'O').unwrap();
                format!("HD t{left} {}\r\n", String::from_utf8_lossy(nonce)).into_bytes()
            }
            Request::Other { verb, key, line } => {
                let noreply = line.last() == Some(b"noreply");
                match verb {
                    Verb::Delete => match self.items.remove(*key) {
                        Some(_) => said("DELETED\r\n", noreply),
                        None => said("NOT_FOUND\r\n", noreply),
                    },
                    Verb::Touch => match self.items.get_mut(*key) {
                        Some(item) => {
                            let exptime = std::str::from_utf8(line.at(2)).unwrap().parse().unwrap();
                            item.until_s = Self::until_s(exptime, now_ns);
                            said("TOUCHED\r\n", noreply)
                        }
                        None => said("NOT_FOUND\r\n", noreply),
                    },
                    Verb::FlushAll => {
                        let delay = std::str::from_utf8(line.at(1)).unwrap().parse().unwrap_or(0);
                        match delay {
                            0 => (self.items, self.flush_s) = (BTreeMap::new(), None),
                            delay => self.flush_s = Some(now_ns / SECOND + delay),
                        }
                        said("OK\r\n", noreply)
                    }
                    Verb::Stats if line.at(1) == b"settings" => {
                        let started_s = self.started_ns / SECOND;
                        let oldest = self.flush_s.map_or(0, |at| at - started_s + 60 - 1);
                        format!("STAT maxbytes 5\r\nSTAT oldest {oldest}\r\nSTAT evictions on\r\n")
                            .into_bytes()
                    }
                    Verb::Stats => {
                        let age_s = (now_ns - self.started_ns) / SECOND;
                        let time_s = self.started_ns / SECOND + age_s;
                        format!("STAT pid {}\r\nSTAT uptime {age_s}\r\nSTAT time {time_s}\r\n", self.pid)
                            .into_bytes()
                    }
                    _ => unreachable!("nobody sends {verb:?}"),
                }
            }
            _ => unreachable!("nobody sends {request:?}"),
        }
    }

    /// It is started again, and empty.
    pub fn restart(&mut self, pid: u32, now_ns: u64) {
        let executed = self.executed;
        *self = Memcached { pid, started_ns: now_ns, executed, ..Memcached::default() };
    }
}

impl Memcached {
    /// Its clock jumps: what ends does so earlier.
    pub fn age(&mut self, seconds: u64) {
        for item in self.items.values_mut() {
            item.until_s = item.until_s.map(|at| at.saturating_sub(seconds));
        }
    }
}
