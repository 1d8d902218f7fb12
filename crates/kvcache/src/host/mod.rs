//! Who answers, the cache or memcached, by what the host does: the host-side controller of Tokusashi 2019, 4.5.3. The control side reads files once a second, and tells the data path one bit.
//!
//! ```text
//!  /proc/stat or /proc/PID/stat --> cpu   --+                    up:   cpu and watts above, over up.ms            --> the cache answers
//!  RAPL, or a model             --> power --+--> controller -->
//!  what the cache has counted   --> gets  --+                    down: cpu, watts and gets below, over down.ms    --> memcached answers
//! ```
//! Why gets, too: while the cache answers, memcached has nothing to do, and its CPU use says nothing of what would come back to it.

mod controller;
mod cpu;
mod power;

use crate::config::OnDemandHostSection;
use crate::counters::{Counter, Counters};
use crate::error::{KvcacheError, within};
use controller::{Controller, Limits, Reading};
use cpu::Cpu;
use power::Power;
use std::path::Path;

/// The time between two readings.
const SAMPLE_MS: u32 = 1000;
const SAMPLE_NS: u64 = SAMPLE_MS as u64 * 1_000_000;
/// Different complaints that are kept, so that each is said once.
const SAID: usize = 16;

/// The section, checked.
#[derive(Debug, Clone)]
pub(crate) struct HostRules {
    up: Limits,
    down: Limits,
    section: OnDemandHostSection,
}

impl HostRules {
    pub(crate) fn new(section: &OnDemandHostSection) -> Result<Self, KvcacheError> {
        let OnDemandHostSection { up, down, process, .. } = section;
        let percent_max = if process.is_some() { 100_000 } else { 99 };
        within("on_demand_host.up.cpu", up.cpu.into(), 2, percent_max)?;
        within("on_demand_host.down.cpu", down.cpu.into(), 1, u64::from(up.cpu) - 1)?;
        match (up.watts, down.watts) {
            (None, None) => {}
            (Some(up), Some(down)) => {
                within("on_demand_host.up.watts", up.into(), 2, 100_000)?;
                within("on_demand_host.down.watts", down.into(), 1, u64::from(up) - 1)?;
            }
            (up, _) => {
                let (key, other) = if up.is_none() { ("up", "down") } else { ("down", "up") };
                let what = format!("there are none, and on_demand_host.{other} has some: give both, or none");
                return Err(KvcacheError::new(format!("on_demand_host.{key}.watts"), what));
            }
        }
        within("on_demand_host.down.gets", down.gets.into(), 1, u32::MAX.into())?;
        for (key, ms) in [("on_demand_host.up.ms", up.ms), ("on_demand_host.down.ms", down.ms)] {
            within(key, ms.into(), SAMPLE_MS.into(), 600_000)?;
            if !ms.is_multiple_of(SAMPLE_MS) {
                return Err(KvcacheError::new(
                    key,
                    format!("{ms}: the host is read once a second: give thousands"),
                ));
            }
        }
        // What the kernel keeps of a name is 15 bytes.
        if let Some(name) = process.as_ref().filter(|name| !(1..=15).contains(&name.len())) {
            let what = format!("{name:?}: give a name as /proc/PID/comm has it, 1 to 15 bytes");
            return Err(KvcacheError::new("on_demand_host.process", what));
        }
        let readings = |ms: u32| (ms / SAMPLE_MS) as usize;
        Ok(HostRules {
            up: Limits {
                cpu: up.cpu.into(),
                watts: up.watts.map(f64::from),
                gets: None,
                readings: readings(up.ms),
            },
            down: Limits {
                cpu: down.cpu.into(),
                watts: down.watts.map(f64::from),
                gets: Some(down.gets.into()),
                readings: readings(down.ms),
            },
            section: section.clone(),
        })
    }
}

/// The host, looked at.
#[derive(Debug)]
pub(crate) struct Host {
    controller: Controller,
    cpu: Cpu,
    /// None: it is not looked at.
    power: Option<Power>,
    /// In words, for the log.
    process: Option<String>,
    due_ns: u64,
    /// When it was read last, and what had been counted: gets, and those of them that memcached was left.
    last: Option<(u64, [u64; 2])>,
    latest: Option<Reading>,
    /// The last shift.
    shifted: Option<String>,
    read: u64,
    unread: u64,
    said: Vec<String>,
    notes: Vec<String>,
}

impl Host {
    /// By the files of this machine.
    pub(crate) fn new(rules: &HostRules) -> Self {
        Host::at(rules, Path::new("/proc"), Path::new("/sys/class/powercap"))
    }

    /// What RAPL counts is opened now: it may be root's alone, and the process another user's later.
    pub(crate) fn at(rules: &HostRules, proc: &Path, powercap: &Path) -> Self {
        let HostRules { up, down, section } = rules;
        let mut notes = Vec::new();
        let power = up.watts.map(|_| {
            let (power, note) = Power::open(section.power, powercap);
            notes.extend(note.map(|note| format!("warning: kvcache.on_demand_host: {note}")));
            power
        });
        Host {
            controller: Controller::new(*up, *down),
            cpu: Cpu::new(proc, section.process.clone()),
            power,
            process: section.process.clone(),
            due_ns: 0,
            last: None,
            latest: None,
            shifted: None,
            read: 0,
            unread: 0,
            said: Vec::new(),
            notes,
        }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Looks; whether the cache answers from now on.
    pub(crate) fn turn(&mut self, now_ns: u64, counters: &Counters) -> bool {
        self.due_ns = now_ns.saturating_add(SAMPLE_NS);
        let counted = gets(counters);
        let (then_ns, before) = self.last.replace((now_ns, counted)).unwrap_or((now_ns, counted));
        let elapsed_ns = now_ns.saturating_sub(then_ns).max(1);
        let rates = [0, 1].map(|at| counted[at].wrapping_sub(before[at]) as f64 * 1e9 / elapsed_ns as f64);
        let reading = self.look(elapsed_ns, rates).unwrap_or_else(|why| {
            self.unread += 1;
            if !self.said.contains(&why) && self.said.len() < SAID {
                let line = format!("warning: kvcache.on_demand_host: {why}: who answers stays as it is");
                self.notes.push(line);
                self.said.push(why);
            }
            None
        });
        self.read += u64::from(reading.is_some());
        self.latest = reading.or(self.latest);
        if let Some(mean) = self.controller.take(reading) {
            let who = if self.controller.answers() { "the cache" } else { "memcached" };
            let (words, seconds) = (self.words(&mean), self.controller.window_s());
            let why = format!("{who} answers: {words}, means over {seconds} s");
            self.notes.push(format!("kvcache: {why}"));
            self.shifted = Some(why);
        }
        self.controller.answers()
    }

    /// None: there was nothing before to compare with.
    fn look(&mut self, elapsed_ns: u64, [gets, left]: [f64; 2]) -> Result<Option<Reading>, String> {
        // Both, whatever the one says: each counts from its last reading.
        let cpu = self.cpu.percent(elapsed_ns);
        let watts = match &mut self.power {
            Some(power) => power.watts(elapsed_ns, left / 1e6),
            None => Ok(Some(0.0)),
        };
        Ok(cpu?.zip(watts?).map(|(cpu, watts)| Reading { cpu, watts, gets }))
    }

    /// A reading, or means of some.
    fn words(&self, Reading { cpu, watts, gets }: &Reading) -> String {
        let cpu = match &self.process {
            Some(name) => format!("{name} takes {cpu:.0} % of a processor"),
            None => format!("the machine's processors are busy to {cpu:.0} %"),
        };
        let watts = self.power.as_ref().map(|power| format!(", {watts:.1} W ({})", power.name()));
        format!("{cpu}{}, {gets:.0} gets a second", watts.unwrap_or_default())
    }

    /// What was read last, in words.
    pub(crate) fn latest(&self) -> Option<String> {
        self.latest.as_ref().map(|reading| self.words(reading))
    }

    /// The last shift, and what made it.
    pub(crate) fn shifted(&self) -> Option<&str> {
        self.shifted.as_deref()
    }

    /// What it has read, among the counters.
    pub(crate) fn show(&self, counters: &mut Counters) {
        counters.set(Counter::HostRead, self.read);
        counters.set(Counter::HostUnread, self.unread);
        if let Some(Reading { cpu, watts, gets }) = self.latest {
            counters.set(Counter::HostCpu, cpu.round() as u64);
            counters.set(Counter::HostWatts, watts.round() as u64);
            counters.set(Counter::HostGets, gets.round() as u64);
        }
    }

    /// Lines for the log since the last call.
    pub(crate) fn notes(&mut self) -> std::vec::Drain<'_, String> {
        self.notes.drain(..)
    }
}

/// Gets that the cache could have answered, and those of them that memcached was left.
fn gets(counters: &Counters) -> [u64; 2] {
    let sum = |of: &[Counter]| of.iter().fold(0_u64, |sum, one| sum.wrapping_add(counters.get(*one)));
    let passed = [Counter::Miss, Counter::Parked, Counter::Resting, Counter::NoRoom, Counter::Refresh];
    let limited = [Counter::Limited, Counter::LimitedTotal];
    let left = sum(&passed).wrapping_add(sum(&limited));
    [left.wrapping_add(sum(&[Counter::HitL0, Counter::HitL1])), left]
}

#[cfg(test)]
pub(crate) mod tests;
