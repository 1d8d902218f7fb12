//! A run's control side: what happens beside the packets, on a thread of its own or at burst boundaries.

use super::api;
use super::config::{Config, ControlSection};
use super::devices::Devices;
use super::log::Level;
use super::role::{LeftOver, Role, Trouble};
use super::watch::{Look, Watched};
use crate::usage::{one_line, usage};
use anyhow::Result;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tidemill_control::Tcp;
use tidemill_control::schema::Severity;
use tidemill_daemon::notify;
use tidemill_graph::{Clock, Graph, Handle, Snapshot};

/// A run, as its control thread and the control socket see it.
pub(crate) struct Service {
    pub(crate) handle: Handle,
    pub(crate) graph: Graph,
    pub(crate) role: Arc<dyn Role>,
    /// The configuration in force, and where it came from.
    pub(crate) config: Mutex<Config>,
    pub(crate) path: PathBuf,
    pub(crate) rates: Mutex<Rates>,
    /// Set by SIGHUP.
    pub(crate) hangup: Arc<AtomicBool>,
    pub(crate) reloads: AtomicU64,
    /// The reload that is under way. What it waits for must hold up nobody who only looks at `config`.
    pub(crate) reloading: Mutex<Reloading>,
    pub(crate) trouble: Arc<Trouble>,
    pub(crate) started_ns: u64,
    pub(crate) devices: Mutex<Devices>,
    pub(crate) watched: Mutex<Watched>,
    /// Who may call over TCP.
    pub(crate) tcp: Option<Tcp>,
}

/// The reload that is under way, if one is.
#[derive(Default)]
pub(crate) struct Reloading {
    since: Option<Instant>,
    /// Whether it has been said that a SIGHUP's waits for it.
    told: bool,
}

/// A reload is under way, until this goes.
struct UnderWay<'a>(&'a Service);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *lock(&self.0.reloading) = Reloading::default();
    }
}

/// How long a reload waits for another without a word.
const BRIEFLY: Duration = Duration::from_secs(1);

/// Each worker's counters, now and about a second before.
#[derive(Default)]
pub(crate) struct Rates {
    taken: Option<Instant>,
    pub(crate) seconds: f64,
    pub(crate) before: Vec<Snapshot>,
    pub(crate) now: Vec<Snapshot>,
}

impl Rates {
    /// Returns whether a second was over.
    fn tick(&mut self, handle: &Handle) -> bool {
        let elapsed = self.taken.map(|taken| taken.elapsed());
        if elapsed.is_some_and(|elapsed| elapsed < Duration::from_secs(1)) {
            return false;
        }
        self.before = std::mem::replace(&mut self.now, handle.per_worker());
        self.seconds = elapsed.map_or(0.0, |elapsed| elapsed.as_secs_f64());
        self.taken = Some(Instant::now());
        true
    }
}

/// The clock of this process's run, which workers and control side share: wall time at its start, and from then on what has passed. The ends of rules, flows
/// and sessions are handed from one to the other, so a step of the system's time must not come between them.
pub(crate) fn clock() -> Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::wall).clone()
}

/// The time of the run's [`clock`], ns since the epoch.
pub(crate) fn now_ns() -> u64 {
    clock().now_ns(0)
}

/// The system's own time, ns since the epoch: for what another process will read.
pub(crate) fn system_ns() -> u64 {
    Clock::wall().now_ns(0)
}

/// A lock that a panic elsewhere does not take from us.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// What happens by the wall clock alone.
    pub(crate) fn housekeeping(&self) {
        let second = lock(&self.rates).tick(&self.handle);
        let left = |port| self.role.left(port);
        lock(&self.devices).look(&self.handle, &lock(&self.config).port, &self.trouble, left);
        self.tell_of_waiting();
        if second {
            self.watch_clock();
            self.watch();
        }
    }

    /// Packets go by the clock of the start; what is said under a key counts within `clock_s` of the other end's.
    fn watch_clock(&self) {
        let config = lock(&self.config);
        let keyed = |keys: bool, file: bool, clock_s| (keys || file).then_some(clock_s);
        let gatekeeper = config
            .gatekeeper
            .as_ref()
            .and_then(|section| keyed(!section.keys.is_empty(), section.key_file.is_some(), section.clock_s));
        let grantor = config
            .grantor
            .as_ref()
            .and_then(|section| keyed(!section.keys.is_empty(), section.key_file.is_some(), section.clock_s));
        let Some(most_s) = gatekeeper.or(grantor).filter(|_| !super::setup::clock(&config).follows_packets())
        else {
            return;
        };
        let role = config.role.to_string();
        drop(config);
        let ahead_ns = system_ns().wrapping_sub(now_ns()) as i64;
        let line = lock(&self.watched).clock(ahead_ns, most_s);
        line.iter().for_each(|line| self.trouble.note(&role, line));
    }

    /// Of a SIGHUP's reload that waits for another its sender hears nothing.
    fn tell_of_waiting(&self) {
        if !self.hangup.load(Ordering::Relaxed) {
            return;
        }
        let mut reloading = lock(&self.reloading);
        let since = reloading.since.map(|since| since.elapsed()).filter(|since| *since >= BRIEFLY);
        let Some(since) = since.filter(|_| !reloading.told) else { return };
        reloading.told = true;
        drop(reloading);
        let line = format!("{}: the one that SIGHUP asks for comes after it", under_way(since));
        self.trouble.say("reload", Severity::Warning, &line);
        self.trouble.note_silently("reload", Severity::Warning, &self.path.display().to_string(), line);
    }

    /// Begins a reload: one at a time. While another one is under way it waits so long; then it is told for how long that one has been.
    fn begin_reload(&self, patience: Duration) -> Result<UnderWay<'_>, Duration> {
        let begun = Instant::now();
        loop {
            {
                let mut reloading = lock(&self.reloading);
                match reloading.since {
                    None => {
                        reloading.since = Some(Instant::now());
                        return Ok(UnderWay(self));
                    }
                    Some(since) if begun.elapsed() >= patience => return Err(since.elapsed()),
                    Some(_) => {}
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reloads whenever a SIGHUP came, until `done`. On a thread of its own: what a reload waits for holds up nothing else.
    pub(crate) fn follow_hangups(&self, done: &AtomicBool) {
        while !done.load(Ordering::Acquire) {
            if self.hangup.load(Ordering::Relaxed)
                && let Ok(_under_way) = self.begin_reload(Duration::ZERO)
            {
                // What comes from here on asks for another one.
                self.hangup.store(false, Ordering::Relaxed);
                let (severity, line) = match self.reload_alone() {
                    Reload::Taken(line) => (Severity::Info, line),
                    Reload::InPart(line) => (Severity::Error, line),
                    Reload::Refused(error) => {
                        let line = format!("reload refused, nothing has changed: {}", one_line(&error));
                        (Severity::Warning, line)
                    }
                };
                // With this level its event has been a line already.
                if !self.trouble.levels().says("reload", Level::Debug) {
                    self.trouble.say("reload", severity, &line);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Tells of what has changed by itself, to who listens.
    fn watch(&self) {
        let alarm_pps = match &lock(&self.config).control {
            Some(control) => control.alarm_drops_pps,
            None => return,
        };
        let (ports, workers) = (api::ports(self).ports, api::workers(self).workers);
        let (drops, tables) = (api::drops(self).drops, self.role.tables());
        let now_s = now_ns().saturating_sub(self.started_ns) as f64 / 1e9;
        let look = Look { now_s, ports: &ports, drops: &drops, workers: &workers, tables: &tables };
        let events = lock(&self.watched).look(&look, alarm_pps);
        events.into_iter().for_each(|event| self.trouble.pass_on(event));
        let ends_s = self.tcp.as_ref().and_then(Tcp::certificate_ends_s);
        let line =
            ends_s.and_then(|ends_s| lock(&self.watched).certificate(ends_s, system_ns() / 1_000_000_000));
        line.iter().for_each(|line| self.trouble.note("certificate", &format!("warning: {line}")));
    }

    /// Reads the configuration again and takes what has changed. It is refused while another reload goes on.
    pub(crate) fn reload(&self) -> Reload {
        match self.begin_reload(BRIEFLY) {
            Ok(_under_way) => self.reload_alone(),
            Err(since) => {
                Reload::Refused(anyhow::anyhow!("{}: reload again when it is over", under_way(since)))
            }
        }
    }

    fn reload_alone(&self) -> Reload {
        notify::reloading();
        let name = self.path.display().to_string();
        let done = match self.read_anew() {
            Ok((number, left)) if left.is_empty() => {
                Reload::Taken(format!("{name}: reloaded (number {number})"))
            }
            Ok((number, left)) => {
                Reload::InPart(format!("{name}: taken in part (number {number}): {}", left.join("; ")))
            }
            Err(error) => Reload::Refused(error),
        };
        let (severity, what) = match &done {
            Reload::Taken(line) => (Severity::Info, line.clone()),
            Reload::InPart(line) => (Severity::Error, line.clone()),
            Reload::Refused(error) => {
                (Severity::Warning, format!("refused, nothing has changed: {}", one_line(error)))
            }
        };
        notify::ready(&what);
        self.trouble.tell("reload", severity, &name, what);
        done
    }

    fn read_anew(&self) -> Result<(u64, LeftOver)> {
        let (new, text) = Config::read(&self.path)?;
        let name = self.path.display().to_string();
        let current = lock(&self.config).clone();
        // What the command line has overridden stays overridden: these are compared as they are written.
        unchanged(&name, &new.fixed_sections(&current))?;
        // Tokens and certificates are read anew, and refused before anything has changed.
        let tcp = new.control.as_ref().map(ControlSection::tcp).transpose()?.flatten();
        let left = self.role.reload(&name, &current, &new, &text)?;
        if let (Some(tcp), Some(fresh)) = (&self.tcp, &tcp) {
            tcp.renew(fresh);
        }
        self.trouble.levels().set(&new.log);
        *lock(&self.config) = new;
        Ok((self.reloads.fetch_add(1, Ordering::Relaxed) + 1, left))
    }
}

fn under_way(since: Duration) -> String {
    format!("a reload is under way since {:.1} s", since.as_secs_f64())
}

/// What became of a reload.
pub(crate) enum Reload {
    /// All of it is in force.
    Taken(String),
    /// It is in force, but for what the line says.
    InPart(String),
    /// Nothing has changed.
    Refused(anyhow::Error),
}

/// Refuses a reload of what cannot change; each section comes with whether it is the same.
pub(crate) fn unchanged(name: &str, same: &[(&str, bool)]) -> Result<()> {
    match same.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((what, _)) => Err(usage(format!(
            "{name}: {what}: cannot change while it runs: put it back, or stop and start again"
        ))),
    }
}

/// The room for flows that a check of a configuration makes tables with: little, unless they are more than the `most` that there can be, so that they are refused as when it
/// runs. What memory they ask for is warned of besides.
pub(super) fn checked_room(flows: usize, most: usize) -> usize {
    if flows <= most { flows.min(1 << 12) } else { flows }
}
