//! Looks at a cache from another process, by what it has pinned; and takes it away.

use super::KvError;
use super::layout::{COUNTS, LAYOUT, WAYS, entry, state};
use super::state::{State, now_ns};
use super::values::{Hot, Values};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemill_bpf::maps::{Map, MapData, MapInfo, PerCpuArray};
use tidemill_bpf::{BpfError, Mapped, Pins, to_io};

/// A cache, looked at.
#[derive(Debug)]
pub struct Look {
    root: PathBuf,
    name: String,
    state: State,
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
        let read = |at: usize| -> Result<u64, KvError> {
            Ok(counts.get(&(at as u32), 0).map_err(|error| system(to_io(error)))?.iter().sum())
        };
        COUNTS.iter().enumerate().map(|(at, (name, _))| Ok((*name, read(at)?))).collect()
    }

    /// What is served now, and why not: whether the daemon lives, connections that are blind, mutations of everything outstanding.
    pub fn state(&self) -> [(&'static str, u64); 4] {
        let now = now_ns();
        let serving = self.state.get(state::PORT) >> 16 & 1 == 1 && self.state.get(state::LEASE) > now;
        let flush = self.state.get(state::FLUSH_UNTIL).saturating_sub(now) / 1_000_000_000;
        [
            ("serving", u64::from(serving)),
            ("blind", self.state.get(state::BLIND)),
            ("held", self.state.get(state::HOLD)),
            ("flush-seconds", flush),
        ]
    }

    /// The number of values that are served, and the most wanted of them.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn hot(&self, limit: usize) -> Result<(usize, Vec<Hot>), KvError> {
        let count = entries(&self.root, &self.name, "kv_values")?;
        let map = Pins::map(&self.root, &self.name, LAYOUT, "kv_values")?;
        let values = Values::new(Mapped::of(&map, count * entry::WORDS)?, (count / WAYS) as u64);
        let now = now_ns();
        Ok(values.hot(limit, |hash, word, epoch, end| end > now && !self.state.is_void(hash, word, epoch)))
    }

    /// Makes everything void.
    pub fn flush(&self) {
        self.state.void();
    }
}

fn entries(root: &Path, name: &str, map: &str) -> Result<usize, KvError> {
    let path = root.join(name).join(format!("layout-{LAYOUT}")).join(map);
    let info = MapInfo::from_pin(path).map_err(to_io);
    let info = info.map_err(|source| BpfError::System { action: "cannot open a pinned map", source })?;
    Ok(info.max_entries() as usize)
}

/// Ends the process that works with a cache, and waits for it; or takes away what one has left. Says whether there was anything.
///
/// # Errors
/// The process does not end; rights are missing.
pub fn detach(root: &Path, name: &str) -> Result<bool, KvError> {
    let is_ours = |other: &str| {
        other == name
            || other
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
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
