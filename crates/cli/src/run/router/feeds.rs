//! Where the router's changes come from while it runs: an update file, the kernel, its own timers.

use super::Router;
use super::bgp::Bgp;
use super::routes::UpdateFeed;
use super::state::Origin;
use crate::run::service::lock;
use anyhow::Result;
use std::sync::atomic::Ordering;
use tidemill_feed::Labels;
use tidemill_feed::kernel::{KernelEvent, KernelFeed, KernelStats};
use tidemill_graph::record::Recorder;

/// Where changes come from.
pub(crate) struct Feeds {
    pub(crate) updates: Option<UpdateFeed>,
    pub(crate) kernel: Option<Kernel>,
    pub(crate) bgp: Option<Bgp>,
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
        bgp: Option<Bgp>,
        names: Labels,
        origin: Origin,
    ) -> Self {
        Feeds { updates, kernel, bgp, origin, names, window: Window::default() }
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

impl Router {
    /// One round of the control side at `now_ns`: changes from the feeds, what workers have heard, timers. Returns
    /// whether there was anything to do.
    pub(super) fn round(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let mut feeds = lock(&self.feeds);
        let over = feeds.window.is_over(now_ns);
        let updated = over && self.update(&mut feeds, now_ns, recorder);
        let heard = self.hear_kernel(&mut feeds.kernel, now_ns, over);
        let spoken = self.hear_bgp(&mut feeds.bgp, now_ns, over);
        if updated || (heard || spoken) && over {
            feeds.window.begin(now_ns, self.coalesce_ms.load(Ordering::Relaxed));
        }
        let mut control = lock(&self.control);
        let polled = control.poll(now_ns).unwrap_or_else(|error| {
            self.trouble.complain("neighbors", &error.into());
            true
        });
        control.collect();
        let notes = control.take_notes();
        drop((control, feeds));
        // Whoever does not read our standard error holds up nobody who needs these.
        notes.iter().for_each(|note| self.trouble.note("router", note));
        updated || heard || spoken || polled
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
            self.trouble.complain("updates stopped", &error);
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
                self.trouble.complain("the kernel's routes stand still", &error.into());
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
            self.trouble.complain("routes from the kernel", &error.into());
        }
        if taken {
            self.tell_rules();
        }
        hears.events.clear();
        if hears.in_sync && !hears.warned {
            hears.warned = true;
            lock(&self.control)
                .kernel_conflicts(|port| self.rules.left(port).is_some())
                .iter()
                .for_each(|line| self.trouble.note("router", &format!("warning: {line}")));
        }
        taken || progress.more || progress.messages > 0
    }

    /// Who owns what may have changed: those who take packets away from the kernel have to know.
    pub(crate) fn tell_rules(&self) {
        let control = lock(&self.control);
        if let Err(error) = self.rules.tell(|port| control.ownership(port)) {
            self.trouble.complain("what is left to the kernel", &error.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn changes_wait_for_the_end_of_a_window_that_the_last_ones_began() {
        let mut window = Window::default();
        assert!(window.is_over(0), "the first ones wait for nobody");
        window.begin(1_000, 5);
        assert_eq!([1_000, 5_000_999, 5_001_000].map(|now_ns| window.is_over(now_ns)), [false, false, true]);
        // Without coalescing none waits; and no time is too late.
        window.begin(7, 0);
        assert!(window.is_over(7));
        window.begin(u64::MAX, u32::MAX);
        assert!(window.is_over(u64::MAX));
    }
}
