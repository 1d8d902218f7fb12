//! A run's control side: what happens beside the packets, on a thread of its own or at burst boundaries.

use super::config::Config;
use super::devices::Devices;
use super::routes::UpdateFeed;
use super::rules::Rules;
use super::state::{Origin, StateFile};
use crate::usage::{one_line, usage};
use anyhow::Result;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidemill_feed::Labels;
use tidemill_feed::kernel::{KernelEvent, KernelFeed, KernelStats};
use tidemill_graph::record::Recorder;
use tidemill_graph::{Clock, Graph, Handle, Snapshot};
use tidemill_router::RouterControl;

/// A router that runs, as its control thread and the control socket see it.
pub(crate) struct Service {
    pub(crate) handle: Handle,
    pub(crate) graph: Graph,
    pub(crate) control: Mutex<RouterControl>,
    /// The configuration in force, and where it came from.
    pub(crate) config: Mutex<Config>,
    pub(crate) path: PathBuf,
    pub(crate) rules: Rules,
    pub(crate) feeds: Mutex<Feeds>,
    pub(crate) rates: Mutex<Rates>,
    /// Set by SIGHUP.
    pub(crate) hangup: Arc<AtomicBool>,
    pub(crate) reloads: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) failed: AtomicBool,
    pub(crate) started_ns: u64,
    pub(crate) state: Option<StateFile>,
    pub(crate) devices: Mutex<Devices>,
}

/// Where changes come from.
pub(crate) struct Feeds {
    pub(crate) updates: Option<UpdateFeed>,
    pub(crate) kernel: Option<Kernel>,
    /// What the table's routes have been made from so far.
    pub(crate) origin: Origin,
    /// The table's names, those of updates included if there are none any more.
    names: Labels,
    window: Window,
}

impl Feeds {
    pub(crate) fn new(
        updates: Option<UpdateFeed>,
        kernel: Option<Kernel>,
        names: Labels,
        origin: Origin,
    ) -> Self {
        Feeds { updates, kernel, origin, names, window: Window::default() }
    }

    /// What the table's labels are called.
    pub(crate) fn labels(&self) -> &Labels {
        self.updates.as_ref().map_or(&self.names, UpdateFeed::labels)
    }

    /// The table is another by now.
    pub(crate) fn take_table(&mut self, names: Labels, origin: Origin) {
        (self.names, self.origin) = (names, origin);
    }

    /// No more updates come.
    fn end_updates(&mut self) {
        self.names = self.labels().clone();
        self.updates = None;
    }
}

/// Collects changes of routes for `router.coalesce_ms` after some have been applied.
#[derive(Default)]
struct Window {
    ends_ns: u64,
}

impl Window {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.ends_ns
    }

    /// Some have been applied.
    fn begin(&mut self, now_ns: u64, coalesce_ms: u32) {
        self.ends_ns = now_ns.saturating_add(u64::from(coalesce_ms) * 1_000_000);
    }
}

/// The kernel's feed.
pub(crate) struct Kernel {
    feed: KernelFeed,
    events: Vec<KernelEvent>,
    pub(crate) stats: KernelStats,
    pub(crate) in_sync: bool,
    warned: bool,
}

impl Kernel {
    pub(crate) fn new(feed: KernelFeed) -> Self {
        Kernel { stats: feed.stats(), feed, events: Vec::new(), in_sync: false, warned: false }
    }
}

/// Each worker's counters, now and about a second before.
#[derive(Default)]
pub(crate) struct Rates {
    taken: Option<Instant>,
    pub(crate) seconds: f64,
    pub(crate) before: Vec<Snapshot>,
    pub(crate) now: Vec<Snapshot>,
}

impl Rates {
    fn tick(&mut self, handle: &Handle) {
        let elapsed = self.taken.map(|taken| taken.elapsed());
        if elapsed.is_some_and(|elapsed| elapsed < Duration::from_secs(1)) {
            return;
        }
        self.before = std::mem::replace(&mut self.now, handle.per_worker());
        self.seconds = elapsed.map_or(0.0, |elapsed| elapsed.as_secs_f64());
        self.taken = Some(Instant::now());
    }
}

/// The wall clock, ns since the epoch.
pub(crate) fn now_ns() -> u64 {
    Clock::wall().now_ns(0)
}

/// A lock that a panic elsewhere does not take from us.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// One round of the control side at `now_ns`: changes from the feeds, what workers have heard, timers. Returns
    /// whether there was anything to do.
    pub(crate) fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let mut feeds = lock(&self.feeds);
        let over = feeds.window.is_over(now_ns);
        let updated = over && self.update(&mut feeds, now_ns, recorder);
        let heard = self.hear_kernel(&mut feeds.kernel, now_ns, over);
        if updated || heard && over {
            feeds.window.begin(now_ns, lock(&self.config).router.coalesce_ms);
        }
        let mut control = lock(&self.control);
        let polled = control.poll(now_ns).unwrap_or_else(|error| {
            self.complain("neighbors", &error.into());
            true
        });
        control.collect();
        let notes = control.take_notes();
        drop((control, feeds));
        // Whoever does not read our standard error holds up nobody who needs these.
        notes.iter().for_each(|note| eprintln!("tidemill: {note}"));
        updated || heard || polled
    }

    /// What happens by the wall clock alone.
    pub(crate) fn housekeeping(&self) {
        lock(&self.rates).tick(&self.handle);
        lock(&self.devices).look(&self.handle, &lock(&self.config).port);
        if self.hangup.swap(false, Ordering::Relaxed) {
            match self.reload() {
                Ok(done) => eprintln!("tidemill: {done}"),
                Err(error) => {
                    eprintln!("tidemill: reload refused, nothing has changed: {}", one_line(&error));
                }
            }
        }
    }

    /// Applies the route changes that are due. Returns whether there were any.
    fn update(&self, feeds: &mut Feeds, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let Feeds { updates, origin, .. } = feeds;
        let Some(updates) = updates else { return false };
        let (changes, error) = updates.due(now_ns);
        let count = changes.len();
        let result = (|| -> Result<bool> {
            if count > 0 {
                let generation = changes.apply(&mut lock(&self.control))?;
                origin.taken += count as u64;
                self.applied.fetch_add(count as u64, Ordering::Relaxed);
                if let Some(recorder) = recorder {
                    recorder.control(generation, postcard::to_stdvec(&changes)?);
                }
            }
            // What came before the error has been applied.
            error.map_or(Ok(count > 0), Err)
        })();
        if updates.done {
            feeds.end_updates();
        }
        result.unwrap_or_else(|error| {
            // Routes stay as they are and packets flow on; the run fails in the end.
            feeds.end_updates();
            self.complain("updates stopped", &error);
            false
        })
    }

    /// Reads what the kernel says, since it does not wait, and takes it over if `apply`. Returns whether there was anything.
    fn hear_kernel(&self, kernel: &mut Option<Kernel>, now_ns: u64, apply: bool) -> bool {
        let Some(hears) = kernel else { return false };
        let progress = match hears.feed.poll(&mut hears.events) {
            Ok(progress) => progress,
            Err(error) => {
                // The last routes stay; without the kernel's word they may be wrong.
                self.complain("the kernel's routes stand still", &error.into());
                *kernel = None;
                return false;
            }
        };
        hears.stats = hears.feed.stats();
        hears.in_sync = !progress.syncing;
        if !apply {
            return progress.more || progress.messages > 0;
        }
        let taken = !hears.events.is_empty();
        if taken && let Err(error) = lock(&self.control).kernel(now_ns, &hears.events) {
            self.complain("routes from the kernel", &error.into());
        }
        if taken {
            self.tell_rules();
        }
        hears.events.clear();
        if hears.in_sync && !hears.warned {
            hears.warned = true;
            lock(&self.control)
                .kernel_conflicts()
                .iter()
                .for_each(|line| eprintln!("tidemill: warning: {line}"));
        }
        taken || progress.more || progress.messages > 0
    }

    /// Who owns what may have changed: those who take packets away from the kernel have to know.
    pub(crate) fn tell_rules(&self) {
        if let Err(error) = self.rules.tell(&lock(&self.control)) {
            self.complain("what is left to the kernel", &error.into());
        }
    }

    pub(crate) fn complain(&self, what: &str, error: &anyhow::Error) {
        eprintln!("tidemill: {what}: {}", one_line(error));
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Reads the configuration again and takes what has changed; all of it or nothing.
    pub(crate) fn reload(&self) -> Result<String> {
        let (new, text) = Config::read(&self.path)?;
        let name = self.path.display().to_string();
        let mut current = lock(&self.config);
        let fixed = |what: &str| {
            usage(format!(
                "{name}: {what}: cannot change while the router runs: put it back, or restart the router"
            ))
        };
        // What the command line has overridden stays overridden: these are compared as they are written.
        let same = [
            ("port", new.port == current.port),
            ("run", new.run == current.run),
            ("memory", new.memory == current.memory),
            ("table", new.table == current.table),
            ("updates", new.updates == current.updates),
            ("remap", new.remap == current.remap),
            ("dpdk", new.dpdk == current.dpdk),
            ("control", new.control == current.control),
            ("state", new.state == current.state),
        ];
        if let Some((what, _)) = same.iter().find(|(_, same)| !same) {
            return Err(fixed(what));
        }
        let reloaded = lock(&self.control).reload(now_ns(), &new.router());
        reloaded.map_err(|error| usage(format!("{name}: {error}")))?;
        self.tell_rules();
        *current = new;
        // Feeds are locked before the configuration, elsewhere.
        drop(current);
        lock(&self.feeds).origin.set_config(&text);
        let count = self.reloads.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(format!("{name}: reloaded (number {count})"))
    }
}
