//! Refusals as rules of an XDP program: `bpf/gate.bpf.c`, made into an object that is part of this one. Linux 5.9, as root or with `cap_net_admin` and `cap_bpf`.
//!
//! **One program, two parts.** Here is what it drops by, and the object that it is. On which interfaces it is, and what it forwards, is the router's fast path's part, which works on the same object
//! ([`Offload::object`]; `tidemill_router::offload::xdp::Offload::over`).
//!
//! **Ends** are in the kernel's clock, by which the program compares them. They are reckoned by its coarse clock, which lags by some milliseconds: so a rule ends that much before its flow's refusal, and the gate drops
//! what comes in between.
//!
//! **A full map** refuses new rules, which is counted, and no rule that holds leaves: the gate goes on dropping what such flows send. Dead rules are removed within a second or two. Flows that were
//! declined have three quarters of the places at most, and so have those that a policy drops: a flood of one kind leaves room for the other.

mod rules;

use super::{POLICY_NS, Picks, Tally, WORDS, Words};
use rules::{Rules, Times};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_bpf::{BpfError, Kernel, Mapped, Object, Source, Verdict, coarse_now_ns};
use tidemill_flow::key::Key;

static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../../bpf/gate.bpf.o"),
    program: "tidemill_gate",
    minimum: Kernel(5, 11),
    layout: 1,
    shared: &[],
};

/// Rules of each family that there is room for, if nobody says otherwise.
pub const ROOM: u32 = 65_536;

/// From one line about rules that found no room to the next.
const FULL_NOTE_NS: u64 = 60_000_000_000;

/// A flow as the program has it: source and destination.
type Flow4 = [u8; 8];
type Flow6 = [u8; 32];

impl Words for Mapped {
    fn words(&self) -> &[AtomicU64] {
        Mapped::words(self)
    }
}

/// The rules of both families.
type BothRules = (Rules<u32, Flow4, 1>, Rules<u128, Flow6, 4>);

/// The program, and the rules that it goes by once it is told whose.
pub struct Offload {
    object: Arc<Mutex<Object>>,
    words: Arc<dyn Words>,
    /// For rules of each family.
    room: u32,
    rules: Option<BothRules>,
    full: Full,
    /// Rules could not be changed, and that was said.
    has_failed: bool,
    notes: Vec<String>,
}

/// What was said of rules that found no room.
#[derive(Debug, Default)]
struct Full {
    said: u64,
    next_ns: u64,
}

impl Full {
    /// A line if so many are more than before, once in a while.
    fn line(&mut self, now_ns: u64, refused: u64) -> Option<String> {
        let more = refused.saturating_sub(self.said);
        if more == 0 || now_ns < self.next_ns {
            return None;
        }
        (self.said, self.next_ns) = (refused, now_ns.saturating_add(FULL_NOTE_NS));
        Some(format!(
            "warning: offload: {more} more rules of flows that send much found no room: the gate drops what they send in user space; \
             a rule of what a policy drops keeps its place for {} s",
            POLICY_NS / 1_000_000_000
        ))
    }
}

fn lock(object: &Mutex<Object>) -> MutexGuard<'_, Object> {
    object.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offload {
    /// Loads the program, onto no interface yet. `room` is for rules of each family; `lines` is for what it forwards by (`tidemill_router::offload::xdp::lines_for`).
    ///
    /// # Errors
    /// Rights or memory are missing; the kernel is too old.
    pub fn open(room: u32, lines: u32) -> Result<Self, BpfError> {
        let object = Object::load(&SOURCE, &[("rules4", room), ("rules6", room), ("lines", lines)], None)?;
        let words: Arc<dyn Words> = Arc::new(object.mapped("words", WORDS)?);
        let object = Arc::new(Mutex::new(object));
        let (rules, full, has_failed, notes) = (None, Full::default(), false, Vec::new());
        Ok(Offload { object, words, room, rules, full, has_failed, notes })
    }

    /// The program with its maps, for whoever puts it on interfaces and has it forward.
    pub fn object(&self) -> Arc<Mutex<Object>> {
        self.object.clone()
    }

    /// What it goes by, for [`GatekeeperControl::refuse_below`](crate::GatekeeperControl::refuse_below).
    pub fn words(&self) -> Arc<dyn Words> {
        self.words.clone()
    }

    /// Whose refusals it repeats, from now on.
    pub fn follow(&mut self, picks: (Picks<u32, 1>, Picks<u128, 4>)) {
        let rules4 = Rules::new("rules4", self.room, key4, picks.0);
        self.rules = Some((rules4, Rules::new("rules6", self.room, key6, picks.1)));
    }

    /// Lines for the log since the last call; warnings begin with `warning: `.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes up what the workers have told. Call it every few milliseconds. `clock` is the workers'.
    /// Returns whether there was anything to take up.
    pub fn turn(&mut self, clock: &dyn Fn() -> u64) -> bool {
        // In this order, and by the clock that lags: what is reckoned from one to the other ends too early, if anything.
        let kernel_ns = coarse_now_ns();
        let times = Times { kernel_ns, now_ns: clock() };
        let Some((rules4, rules6)) = &mut self.rules else { return false };
        let mut object = lock(&self.object);
        let done = rules4.turn(&mut object, times).and_then(|any| Ok(rules6.turn(&mut object, times)? | any));
        self.notes.extend(self.full.line(times.now_ns, rules4.refused() + rules6.refused()));
        match done {
            Ok(any) => any,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    self.notes.push(format!(
                        "warning: offload: cannot change rules: {error}: what is declined is dropped in user space"
                    ));
                }
                false
            }
        }
    }

    /// What it has dropped so far.
    pub fn tally(&self) -> Tally {
        let [dropped, bytes] = lock(&self.object).sums::<2>("dropped", 0).unwrap_or_default();
        let (rules, refused) = self.rules.as_ref().map_or((0, 0), |(rules4, rules6)| {
            (rules4.count() + rules6.count(), rules4.refused() + rules6.refused())
        });
        Tally { dropped, bytes, rules, refused, ..Tally::default() }
    }

    /// Tells the program that a device is a port's, and runs it once on a frame, as if that device had received it; for tests.
    ///
    /// # Errors
    /// As [`Object::run_once`].
    pub fn run_once(&self, frame: &[u8], interface: u32, port: u32) -> io::Result<Verdict> {
        let mut object = lock(&self.object);
        object.table::<u32, u32>("ports")?.insert(&interface, &port)?;
        Ok(object.run_once(frame, interface)?.0)
    }
}

fn key4(flow: &Key<1>) -> Flow4 {
    flow.0[0].to_be_bytes()
}

fn key6(flow: &Key<4>) -> Flow6 {
    let mut key = [0; 32];
    for (bytes, word) in key.chunks_exact_mut(8).zip(flow.0) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_is_no_room_is_said_once_in_a_while() {
        let mut full = Full::default();
        let start = 1_700_000_000_000_000_000;
        assert_eq!(full.line(start, 0), None);
        let line = full.line(start, 3).unwrap();
        assert!(line.contains(" 3 more rules") && line.ends_with("for 60 s"), "{line}");
        assert_eq!(full.line(start + FULL_NOTE_NS - 1, 500), None);
        let line = full.line(start + FULL_NOTE_NS, 503).unwrap();
        assert!(line.contains(" 500 more rules"), "{line}");
        assert_eq!(full.line(start + 3 * FULL_NOTE_NS, 503), None, "no more since");
    }
}
