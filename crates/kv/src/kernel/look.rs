//! Looks at a cache from another process, by what it has pinned; and takes it away.

use super::KvError;
use super::layout::{
    BLIND, COMMANDS, COUNTS, Conn, LAYOUT, SCOPE, SHORT, Tuple, WAYS, conn, entry, state, why,
};
use super::places::pin_index;
use super::state::{State, now_ns};
use super::values::{Hot, Values};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemill_bpf::maps::{HashMap, Map, MapData, MapInfo, PerCpuArray};
use tidemill_bpf::{BpfError, Mapped, Pins, to_io};

/// A cache, looked at.
#[derive(Debug)]
pub struct Look {
    root: PathBuf,
    name: String,
    state: State,
}

/// A connection that cannot be followed: nothing is served until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blind {
    /// Whose it is.
    pub client: SocketAddr,
    /// The address that it came to.
    pub server: IpAddr,
    /// Why.
    pub why: &'static str,
    /// The end (8 bytes at most) of the word that was read last, where it was its requests; unprintable bytes escaped.
    pub word: Option<String>,
}

/// A connection that keeps everything from being admitted: it has more mutations that no answer has shown to be executed than are told apart, or its
/// answers cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Whose it is.
    pub client: SocketAddr,
    /// The address that it came to.
    pub server: IpAddr,
    /// Mutations that no answer has shown to be executed.
    pub mutations: u32,
    /// Its answers cannot be followed any more.
    pub is_deaf: bool,
}

/// How often a command was seen, by the way that it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Of the text protocols in small letters, of the binary one in large ones; `other`, `OTHER`: what is not known.
    pub name: &'static str,
    /// `udp` or `tcp`.
    pub transport: &'static str,
    /// Answered in the kernel: datagrams.
    pub hits: u64,
    /// Passed on to memcached.
    pub passes: u64,
}

pub(super) fn ends(tuple: &Tuple) -> (SocketAddr, IpAddr) {
    let address = |words: &[u32]| {
        let mut bytes = [0; 16];
        for (four, word) in bytes.chunks_mut(4).zip(words) {
            four.copy_from_slice(&word.to_ne_bytes());
        }
        Ipv6Addr::from(bytes).to_canonical()
    };
    let [a, b, ..] = tuple[8].to_ne_bytes();
    (SocketAddr::new(address(&tuple[..4]), u16::from_be_bytes([a, b])), address(&tuple[4..8]))
}

/// The same for people: a client whose address is a link's alone with that.
fn named(tuple: &Tuple) -> (SocketAddr, IpAddr) {
    let (mut client, server) = ends(tuple);
    if let SocketAddr::V6(client) = &mut client
        && client.ip().is_unicast_link_local()
    {
        client.set_scope_id(tuple[SCOPE]);
    }
    (client, server)
}

impl Look {
    /// The cache that is pinned under a name.
    ///
    /// # Errors
    /// There is none; rights are missing.
    pub fn open(root: &Path, name: &str) -> Result<Self, KvError> {
        if !root.join(name).exists() {
            let text = format!("no cache {name:?} is attached here: tidemill kv attach INTERFACE");
            return Err(KvError::Refused(text));
        }
        let map = Mapped::of(&Pins::map(root, name, LAYOUT, "kv_state")?, state::WORDS)?;
        let slots = Pins::map(root, name, LAYOUT, "kv_slots")?;
        let count = entries(root, name, "kv_slots")?;
        let slots = Mapped::of(&slots, 2 * count)?;
        Ok(Look {
            root: root.to_owned(),
            name: name.to_owned(),
            state: State { map, slots, slot_mask: count as u64 - 1 },
        })
    }

    /// What is counted, by name.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn counts(&self) -> Result<Vec<(&'static str, u64)>, KvError> {
        let data: MapData = Pins::map(&self.root, &self.name, LAYOUT, "kv_counts")?;
        let action = "cannot read what is counted";
        let system = |source| KvError::Bpf(BpfError::System { action, source });
        let counts =
            PerCpuArray::<_, u64>::try_from(Map::PerCpuArray(data)).map_err(|error| system(to_io(error)))?;
        let short = self.short()?;
        let read = |at: usize| -> Result<u64, KvError> {
            let more = if SHORT.contains(&at) { short } else { 0 };
            let counted: u64 =
                counts.get(&(at as u32), 0).map_err(|error| system(to_io(error)))?.iter().sum();
            Ok(counted + more)
        };
        COUNTS.iter().enumerate().map(|(at, (name, _))| Ok((*name, read(at)?))).collect()
    }

    /// Gets that were passed on the short way.
    fn short(&self) -> Result<u64, KvError> {
        let data: MapData = Pins::map(&self.root, &self.name, LAYOUT, "kv_told")?;
        let system =
            |source| KvError::Bpf(BpfError::System { action: "cannot read what is counted", source });
        let told = PerCpuArray::<_, [u64; 3]>::try_from(Map::PerCpuArray(data));
        let told = told.and_then(|told| told.get(&0, 0)).map_err(|error| system(to_io(error)))?;
        Ok(told.iter().map(|[_, _, passed]| passed).sum())
    }

    /// How often each command was seen, those that were.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn commands(&self) -> Result<Vec<Command>, KvError> {
        let data: MapData = Pins::map(&self.root, &self.name, LAYOUT, "kv_commands")?;
        let action = "cannot read how often commands came";
        let system = |source| KvError::Bpf(BpfError::System { action, source });
        let counts = PerCpuArray::<_, [u64; 2]>::try_from(Map::PerCpuArray(data));
        let counts = counts.map_err(|error| system(to_io(error)))?;
        let (short, mut seen) = (self.short()?, Vec::new());
        for (at, name) in (0..).zip(COMMANDS) {
            for (way, transport) in (0..).zip(["udp", "tcp"]) {
                let each = counts.get(&(2 * at + way), 0).map_err(|error| system(to_io(error)))?;
                let (hits, mut passes) =
                    each.iter().fold((0, 0), |sum, one| (sum.0 + one[0], sum.1 + one[1]));
                if (name, transport) == ("get", "udp") {
                    passes += short;
                }
                if hits + passes > 0 {
                    seen.push(Command { name, transport, hits, passes });
                }
            }
        }
        Ok(seen)
    }

    /// Connections that cannot be followed.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn blind(&self) -> Result<Vec<Blind>, KvError> {
        let mut blind = Vec::new();
        self.connections(|tuple, value| {
            let number = value[conn::BLIND] as usize;
            let Some(why) = number.checked_sub(1).map(|at| BLIND.get(at).copied().unwrap_or("unknown"))
            else {
                return;
            };
            let token = u64::from(value[conn::TOKEN]) | u64::from(value[conn::TOKEN + 1]) << 32;
            let bytes = token.to_be_bytes();
            let bytes = &bytes[token.leading_zeros() as usize / 8..];
            let word = (number == 2 && token != 0).then(|| bytes.escape_ascii().to_string());
            let (client, server) = named(tuple);
            blind.push(Blind { client, server, why, word });
        })?;
        blind.sort_by_key(|blind| blind.client);
        Ok(blind)
    }

    /// Connections that keep everything from being admitted.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn holding(&self) -> Result<Vec<Holding>, KvError> {
        let mut holding = Vec::new();
        let is_late = self.is_late();
        self.connections(|tuple, value| {
            let beyond = value[conn::OVERFLOW_IN].wrapping_sub(value[conn::OVERFLOW_OUT]);
            let is_deaf = value[conn::DEAF] != 0;
            let unread = value[conn::BEYOND_IN].wrapping_sub(value[conn::BEYOND_OUT]);
            if beyond == 0 && !is_deaf && !(is_late && unread != 0) {
                return;
            }
            let ring = value[conn::HEAD].wrapping_sub(value[conn::TAIL]);
            let mutations = ring.wrapping_add(beyond).wrapping_add(unread);
            let (client, server) = named(tuple);
            holding.push(Holding { client, server, mutations, is_deaf });
        })?;
        holding.sort_by_key(|one| one.client);
        Ok(holding)
    }

    /// A daemon works, and it is not sure that memcached has read what connections beyond their rings have written.
    fn is_late(&self) -> bool {
        let (now, sure) = (now_ns(), self.state.get(state::SURE));
        // 0: none has looked yet.
        sure != 0 && sure <= now && self.state.get(state::BEAT).saturating_add(1_000_000_000) > now
    }

    /// Each connection that is known.
    fn connections(&self, mut look: impl FnMut(&Tuple, &Conn)) -> Result<(), KvError> {
        let data: MapData = Pins::map(&self.root, &self.name, LAYOUT, "kv_conns")?;
        let system = |source| KvError::Bpf(BpfError::System { action: "cannot look at connections", source });
        let table = HashMap::<_, Tuple, Conn>::try_from(Map::HashMap(data));
        let table = table.map_err(|error| system(to_io(error)))?;
        for tuple in table.keys().flatten() {
            // One that is gone by now is none.
            if let Ok(value) = table.get(&tuple, 0) {
                look(&tuple, &value);
            }
        }
        Ok(())
    }

    /// What is served now: whether it is, connections that are blind, mutations of everything outstanding, for how long nothing is served or admitted for
    /// reasons of time; and what the daemon has done.
    pub fn state(&self) -> [(&'static str, u64, &'static str); 9] {
        let now = now_ns();
        let serving = self.state.get(state::PORT) >> 16 & 1 == 1 && self.state.get(state::LEASE) > now;
        let flush = self.state.get(state::FLUSH_UNTIL).saturating_sub(now).div_ceil(1_000_000_000);
        let parked = self.state.get(state::NOT_BEFORE).saturating_sub(now).div_ceil(1_000_000);
        let get = |word| self.state.get(word);
        [
            ("serving", u64::from(serving), "1: a daemon lives and lets values be served"),
            (
                "blind",
                get(state::BLIND),
                "connections that cannot be followed: nothing is served while there are",
            ),
            (
                "held",
                get(state::HOLD) + u64::from(self.is_late()),
                "mutations that wait, and may be of anything: nothing is admitted",
            ),
            ("flush-seconds", flush, "until a flush_all for later has taken effect: nothing is served"),
            ("parked-ms", parked, "until memcached has executed what may have come: nothing is admitted"),
            ("asked", get(state::ASKED), "keys that memcached was asked for by the last daemon"),
            ("admitted", get(state::ADMITTED), "values that it admitted"),
            ("deaths", get(state::DEATHS), "times that memcached ended under it"),
            (
                "unseen",
                get(state::UNSEEN),
                "connections that came by ways that are not seen: each makes everything void",
            ),
        ]
    }

    /// Why nothing is served, a reason each.
    pub fn why(&self) -> Vec<String> {
        let now = now_ns();
        let mut reasons = Vec::new();
        if self.state.get(state::BEAT).saturating_add(1_000_000_000) <= now {
            reasons.push("no daemon has worked for a second: tidemill kv attach takes over".to_owned());
        }
        let bits = self.state.get(state::WHY);
        let said = (0..).zip(why::TEXTS).filter(|(bit, _)| bits >> bit & 1 == 1);
        reasons.extend(said.map(|(_, text)| text.to_owned()));
        if self.state.get(state::BLIND) > 0 {
            reasons.push("connections cannot be followed".to_owned());
        }
        if self.state.get(state::FLUSH_UNTIL) > now {
            reasons.push("a flush_all for later waits".to_owned());
        }
        reasons
    }

    /// The number of values that are served, and the most wanted of them.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn hot(&self, limit: usize) -> Result<(usize, Vec<Hot>), KvError> {
        let count = entries(&self.root, &self.name, "kv_values")?;
        let map = Pins::map(&self.root, &self.name, LAYOUT, "kv_values")?;
        let tags = Pins::map(&self.root, &self.name, LAYOUT, "kv_tags")?;
        let sets = count / WAYS;
        let values =
            Values::new(Mapped::of(&map, count * entry::WORDS)?, Mapped::of(&tags, sets)?, sets as u64);
        let now = now_ns();
        Ok(values.hot(limit, |hash, word, epoch, end| end > now && !self.state.is_void(hash, word, epoch)))
    }

    /// Makes everything void.
    pub fn flush(&self) {
        self.state.void();
    }
}

pub(super) fn entries(root: &Path, name: &str, map: &str) -> Result<usize, KvError> {
    let path = root.join(name).join(format!("layout-{LAYOUT}")).join(map);
    let info = MapInfo::from_pin(path).map_err(to_io);
    let info = info.map_err(|source| BpfError::System { action: "cannot open a pinned map", source })?;
    Ok(info.max_entries() as usize)
}

/// Whether what is pinned under a name is a cache's: of any layout, or nothing but a folder yet.
pub(super) fn is_cache(root: &Path, name: &str) -> bool {
    let Ok(folders) = std::fs::read_dir(root.join(name)) else { return true };
    let mut is_empty = true;
    for folder in folders.flatten() {
        // What is no folder is another program.
        let Ok(maps) = std::fs::read_dir(folder.path()) else {
            is_empty = false;
            continue;
        };
        for map in maps.flatten() {
            if map.file_name().to_string_lossy().starts_with("kv_") {
                return true;
            }
            is_empty = false;
        }
    }
    is_empty
}

/// Ends the process that works with a cache, and waits for it; or takes away what one has left. Says whether there was anything.
///
/// # Errors
/// What has this name is no cache; the process does not end; rights are missing.
pub fn detach(root: &Path, name: &str) -> Result<bool, KvError> {
    let is_ours = |other: &str| other == name || pin_index(other, name).is_some();
    if !is_cache(root, name) {
        let text =
            format!("what is pinned as {name:?} is no cache: it is left as it is (ls {})", root.display());
        return Err(KvError::Refused(text));
    }
    let mut found = false;
    let started = Instant::now();
    loop {
        let left = Pins::left(root)?;
        let ours: Vec<_> = left.iter().filter(|left| is_ours(&left.name)).collect();
        let Some(first) = ours.first() else { return Ok(found) };
        let holder = ours.iter().find_map(|left| left.process);
        match holder.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            Some(pid) => {
                if !found {
                    kill_process(pid, Signal::TERM)
                        .map_err(|error| KvError::Refused(format!("cannot end process {pid}: {error}")))?;
                }
                if started.elapsed() > Duration::from_secs(10) {
                    let text = format!("process {pid} does not end: kill it, and detach again");
                    return Err(KvError::Refused(text));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            None => {
                Pins::remove(root, &first.name)?;
            }
        }
        found = true;
    }
}
