//! Rules below us: something that drops what is filtered before it becomes a packet here, such as a program in the driver.
//!
//! User space learns and decides alone; an offload only repeats its rules. It may know fewer rules than there are (a map that is
//! full, a rule that came a moment ago): what it lets through is dropped here. It must never know more for long: rules are
//! handed over with the time at which they end, and it drops nothing after that.
//!
//! ```text
//! workers --- RuleEvent, a bounded queue each ---> MitigatorControl::poll ---> Offload::apply
//!        \--- "lost, scan anew" -----------------> scans the tables --------> Offload::replace
//!        \--- a question lifts a rule: at once ---------------------------> Lift::lift
//! ```
//!
//! [`Offload`] is called from the control side, never from a worker, and may take its time (milliseconds). A rule that a question
//! lifts cannot wait for that: the answer may be here in microseconds. So each worker has a [`Lift`] of its own, that takes rules out and does
//! nothing else.
//!
//! **No rule comes back.** The control side may be about to install what a worker lifts just now. So whoever installs puts the rule where `lift` finds it
//! first, without effect; then asks whether it `stands`, in the workers' tables; then brings it into force if it is still there, in one step. A worker
//! changes its table first and lifts then. If the lift comes before the first step, the second sees it; if it comes later, the third does.

#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;

use crate::tuple::Tuple;

/// What has become of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleEvent {
    /// To be dropped from now on. Of a tuple that is there already: with another end.
    Filtered {
        /// What is filtered, as the tuple mode has it.
        key: Tuple,
        /// When the rule ends, nanoseconds of the clock that [`Offload`] is called with.
        expires_ns: u64,
    },
    /// To be dropped no longer: expired, lifted, allow-listed. Perhaps of a tuple that never was there.
    Removed {
        /// What was filtered.
        key: Tuple,
    },
}

/// What an offload must know beside rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadSettings {
    /// How many parts a tuple has, 4 to 1; never changes while running.
    pub tuple: u8,
    /// The ports that answers come from, ascending. Packets from others are not looked up.
    pub protocols: Vec<u16>,
    /// Whether to count only, and to drop nothing.
    pub dry_run: bool,
    /// The most rules of one family that there can be, over all workers.
    pub entries: usize,
}

/// What a rule has kept away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets; later fragments, which have no ports, are in the sums of all rules only.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub bytes: u64,
}

impl std::ops::AddAssign for Hits {
    fn add_assign(&mut self, more: Hits) {
        self.packets = self.packets.saturating_add(more.packets);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// What an offload has done so far, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OffloadCounters {
    /// Dropped there: these packets never came in here, so they are in no other counter.
    pub dropped: Hits,
    /// Let through in dry run that would have been dropped. These come in here and are counted here as well.
    pub would_drop: Hits,
    /// Rules it has now.
    pub rules: u64,
    /// Rules that it had no room for and that user space carries alone, in all.
    pub refused: u64,
}

/// Whether a rule holds in the workers' tables, now.
pub type Stands<'a> = &'a dyn Fn(&Tuple) -> bool;

/// A worker's own hand on the rules below us.
pub trait Lift: Send {
    /// Takes a rule out at once, whether it is there or not, and says whether it is out. May be called while the control side is in
    /// any call of [`Offload`]'s; takes about a microsecond (one system call), and waits for nobody.
    fn lift(&mut self, key: &Tuple) -> bool;
}

/// What the rules below us have kept away. Whoever reads it holds up nobody: it may take as long as it likes, while the control side is in any call of
/// [`Offload`]'s.
pub trait Account: Send {
    /// What one rule has kept away since it came; zero if it is not there.
    fn hits(&self, key: &Tuple) -> Hits;

    /// The hits of all rules that have any; one that is put in meanwhile may be missing.
    fn collect(&self, each: &mut dyn FnMut(Tuple, Hits));
}

/// Something that drops by our rules, below us.
pub trait Offload: Send {
    /// Its name in the configuration, such as `"xdp"`.
    fn name(&self) -> &'static str;

    /// Called once before any rule, and after every reload.
    ///
    /// # Errors
    /// One line for the log: what, where, what to do. The settings before stay in force; user space does all of the work meanwhile.
    fn configure(&mut self, settings: &OffloadSettings) -> Result<(), String>;

    /// Rules that a process before has left, with their ends in the clock of `now_ns`. Asked once, behind
    /// [`configure`](Self::configure) and before packets flow: whoever asks takes them on, and says when they end.
    fn adopted(&mut self, _now_ns: u64) -> Vec<(Tuple, u64)> {
        Vec::new()
    }

    /// A worker's own hand; none if rules end by the control side's word alone. Asked for behind [`configure`](Self::configure).
    fn lifter(&mut self) -> Option<Box<dyn Lift>> {
        None
    }

    /// Rules that came and went since the last call, in order for each tuple. A rule that does not `stand` any more when it is put in is left out: see the
    /// [module](self).
    fn apply(&mut self, now_ns: u64, events: &[RuleEvent], stands: Stands<'_>);

    /// All rules that there are, with their ends: whatever else it has must go. `rules` has no order; a tuple may come twice (from two
    /// workers), then the later end counts. Hits of rules that stay are kept. What does not `stand` any more is left out.
    fn replace(&mut self, now_ns: u64, rules: &mut dyn Iterator<Item = (Tuple, u64)>, stands: Stands<'_>);

    /// Whatever it does beside rules, called often (every few milliseconds): true if it had something to do.
    fn poll(&mut self, now_ns: u64) -> bool;

    /// What rules have kept away, for whoever reads it beside us.
    fn account(&self) -> Box<dyn Account>;

    /// What one rule has kept away since it came; zero if it is not there.
    fn hits(&mut self, key: &Tuple) -> Hits {
        self.account().hits(key)
    }

    /// What it has done so far.
    fn counters(&self) -> OffloadCounters;

    /// Lines for the log since the last call.
    fn take_notes(&mut self) -> Vec<String>;
}
