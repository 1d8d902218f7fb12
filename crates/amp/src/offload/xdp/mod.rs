//! Rules in the driver: an XDP program on the outside interface (`bpf/amp.bpf.c`) drops what is filtered before it becomes a
//! packet here. Linux 5.11, as root or with `cap_net_admin` and `cap_bpf`.
//!
//! ```text
//!  outside interface -> XDP program --a rule has it--> dropped, counted in the rule and per processor
//!                            |  ^
//!        the port, as ever <-'  '-- config, rules4, rules6: maps <--- XdpOffload <--- MitigatorControl
//! ```
//! **Parts.** `mod.rs`: the [`Offload`]; `rules.rs`: one family's map; `keys.rs`: tuples as the program has them. Loading,
//! attaching and pinning are crates/bpf's.
//!
//! **The port behind it.** An AF_PACKET port sees what the program passes; the interface is found by its name again when it
//! went away. An AF_XDP port has a program of its own, and an interface takes one: so the port is told of ours
//! ([`XdpOffload::front`], `PortSpec::set_front`) before it is opened, and its program runs behind ours, by a tail call.
//!
//! **The books.** What is dropped here never came in: it is in no port's counter and no part of
//! `in + made = out + dropped + consumed + held`; [`OffloadCounters::dropped`] is its account. Interface statistics of the
//! kernel count it as received. In a dry run packets go on, and user space counts them as it does without the program; rules here
//! count nothing then.
//!
//! **Ends.** A rule has its end with it, in the kernel's coarse clock (`CLOCK_MONOTONIC_COARSE`: it steps every few
//! milliseconds, and stands still while the machine sleeps), so the program needs nobody to end it. It ends 10 ms before its rule does in
//! user space, so that whoever asks then finds no rule that our tables have forgotten. What has ended is
//! removed by user space's word, or by a sweep of a few thousand rules each second.
//!
//! **Lifted** rules are taken out by the worker that sees the question, before that leaves ([`Lift`]): each has descriptors of both maps, and needs no lock.
//!
//! **A full map** refuses new rules: user space goes on dropping by those, which are counted, and no live rule leaves.
//!
//! **Upgrade** (`pin`): program and maps stay when the process ends, killed or in order, and the next one takes over without a gap; who wants them gone removes
//! them ([`Pins::remove`]). Rules that
//! it finds ([`Offload::adopted`]) are for user space to know; if it does not ask for them in its first minute, they end
//! a minute later, because user space could not lift a rule that it does not know. Counters start at 0 with each process. While a
//! process lives, a second one with the same name is refused.

mod keys;
mod rules;

pub use tidemill_bpf::{LeftBehind, Pins};

use super::{Account, Hits, Lift, Offload, OffloadCounters, OffloadSettings, RuleEvent, Stands};
use crate::tuple::Tuple;
use keys::{Key, Key4, Key6, key, tuple4, tuple6};
use rules::{Lifter, Rule, Rules, Walker};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tidemill_bpf::{BpfError, Front, Kernel, Mode, Object, Shared, Source, coarse_now_ns, to_io};

/// The words of `struct config` of bpf/amp.bpf.c: parts and flags, then a bit for each port.
const CONFIG_WORDS: usize = 1 + 1024;
const DRY_RUN: u64 = 1 << 32;
// Indices of `counts`.
const DROPPED: u32 = 0;
const WOULD: u32 = 2;

static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../../bpf/amp.bpf.o"),
    program: "tidemill_amp",
    minimum: Kernel(5, 11),
    layout: 1,
    shared: &[
        Shared { name: "config", key: 4, value: 8 * CONFIG_WORDS },
        Shared { name: "rules4", key: size_of::<Key4>(), value: size_of::<Rule>() },
        Shared { name: "rules6", key: size_of::<Key6>(), value: size_of::<Rule>() },
        Shared { name: "pieces", key: 40, value: 8 },
        Shared { name: "counts", key: 4, value: 8 },
    ],
};

/// How often the interface is looked at, and some rules are swept.
const LOOK_NS: u64 = 100_000_000;
const SWEEP_NS: u64 = 1_000_000_000;
/// How long rules that were found wait for somebody to ask for them, and how long they have then.
const ADOPT_NS: u64 = 60_000_000_000;
/// How much earlier than in user space a rule ends: more than a step of the coarse clock.
const AHEAD_NS: u64 = 10_000_000;
/// The largest MTU at which any driver may be expected to take a program: a frame has to fit into one buffer, with 256 bytes in front and the kernel's
/// bookkeeping behind. Drivers stop somewhere from here to 3500.
pub const LARGEST_MTU: usize = 3000;
/// How long an interface that another program is on is waited for at the start.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the program goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpOptions {
    /// The outside interface.
    pub interface: String,
    /// Where in the kernel the program runs.
    pub mode: Mode,
    /// Rules of one family that there is room for. Memory is taken as they come.
    pub entries: usize,
    /// Keep program and rules under this name when the process ends, and take over what is there.
    pub pin: Option<String>,
    /// Where names are.
    pub pin_root: PathBuf,
}

impl XdpOptions {
    /// The program on this interface, in the driver if that can, not pinned, with room for 262,144 rules of each family.
    pub fn new(interface: &str) -> Self {
        XdpOptions {
            interface: interface.to_owned(),
            mode: Mode::Auto,
            entries: 262_144,
            pin: None,
            pin_root: Pins::ROOT.into(),
        }
    }
}

/// The rules, in an XDP program. Dropped, it takes the program off the interface; with pins that were in force it leaves both.
pub struct XdpOffload {
    options: XdpOptions,
    front: Arc<Front>,
    rules4: Rules<Key4>,
    rules6: Rules<Key6>,
    settings: Option<OffloadSettings>,
    /// The program's counts when it was taken over: packets and bytes dropped, and those of dry runs.
    before: [u64; 4],
    refused: u64,
    /// Rules of a process before were there.
    inherits: bool,
    /// Rules were found that nobody has asked for yet, and since when.
    found: Option<Option<u64>>,
    looked_ns: Option<u64>,
    swept_ns: Option<u64>,
    /// Said already.
    is_lost: bool,
    has_failed: bool,
    /// What somebody who reads beside us could not read.
    unread: Arc<Mutex<Option<io::Error>>>,
    notes: Vec<String>,
}

impl Drop for XdpOffload {
    fn drop(&mut self) {
        // A start that fails before anything was in force leaves nothing, but what was there before it.
        if self.options.pin.is_some() && (self.inherits || self.settings.is_some()) {
            self.front.leave();
        }
    }
}

impl XdpOffload {
    /// Loads the program. It is attached, and has rules, later: by the port that it stands in front of, or else when
    /// [`configure`](Offload::configure) is called.
    ///
    /// # Errors
    /// One line: rights are missing, the kernel is too old, what is pinned does not fit or is another process's, there is no BPF file system.
    pub fn open(options: &XdpOptions) -> Result<Self, String> {
        Self::load(options).map_err(|error| at(&options.interface, &error))
    }

    fn load(options: &XdpOptions) -> Result<Self, BpfError> {
        let pins = options.pin.as_ref().map(|name| Pins::new(&options.pin_root, name, SOURCE.layout));
        let pins = pins.transpose()?;
        let entries = options.entries.clamp(1, 1 << 30) as u32;
        let mut object = Object::load(&SOURCE, &[("rules4", entries), ("rules6", entries)], pins.as_ref())?;
        let (rules4, rules6) = (Rules::new("rules4"), Rules::new("rules6"));
        let mut before = [0; 4];
        let read = rules4.recount(&mut object).and_then(|()| rules6.recount(&mut object)).and_then(|()| {
            for (which, before) in before.iter_mut().enumerate() {
                *before = object.sum("counts", which as u32)?;
            }
            Ok(())
        });
        read.map_err(|source| BpfError::System { action: "cannot read the XDP program's maps", source })?;
        let found = (rules4.count() + rules6.count() > 0).then_some(None);
        Ok(XdpOffload {
            options: options.clone(),
            front: Arc::new(Front::new(object, options.mode, pins)),
            rules4,
            rules6,
            settings: None,
            before,
            refused: 0,
            inherits: found.is_some(),
            found,
            looked_ns: None,
            swept_ns: None,
            is_lost: false,
            has_failed: false,
            unread: Arc::default(),
            notes: Vec::new(),
        })
    }

    /// The program, for the port that it is to stand in front of.
    pub fn front(&self) -> &Arc<Front> {
        &self.front
    }

    /// Rules that a process before has left, with their ends in the clock of `now_ns`: whoever asks takes them on, and
    /// says when they end.
    pub fn adopted(&mut self, now_ns: u64) -> Vec<(Tuple, u64)> {
        let mut adopted = Vec::new();
        if self.found.take().is_none() {
            return adopted;
        }
        let now = coarse_now_ns();
        let live = |end: u64| (end > now).then(|| now_ns.saturating_add(end - now));
        let (rules4, rules6) = (&self.rules4, &self.rules6);
        let read = self.front.with(|object| {
            rules4.each(object, |key, [end, ..]| adopted.extend(live(end).map(|end| (tuple4(&key), end))))?;
            rules6.each(object, |key, [end, ..]| adopted.extend(live(end).map(|end| (tuple6(&key), end))))
        });
        self.heed(read, "cannot read the rules that were there");
        adopted
    }

    /// Says once what does not work.
    fn heed<T>(&mut self, result: io::Result<T>, action: &str) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    self.notes.push(format!("offload xdp: {}: {action}: {error}", self.options.interface));
                }
                None
            }
        }
    }

    /// Sees to it that the program is on the interface, wherever that is now.
    fn attach(&mut self, patience: Duration) -> Result<(), String> {
        let interface = self.options.interface.clone();
        let device = tidemill_port::device(&interface).map_err(|error| error.to_string())?;
        let before = self.front.attached();
        let attached =
            self.front.attach(&interface, device.index, patience).map_err(|error| at(&interface, &error))?;
        if before != Some(attached) {
            self.notes.push(match attached.native {
                true => format!("offload xdp: on {interface}, native"),
                false if self.options.mode == Mode::Generic => format!("offload xdp: on {interface}, generic"),
                false => format!(
                    "offload xdp: on {interface}, generic, which is slower: its driver takes no XDP program, or none at an MTU of {} (drivers stop at \
                     {LARGEST_MTU} to 3500)",
                    device.mtu
                ),
            });
        }
        Ok(())
    }

    /// Looks whether the program is where it should be.
    fn look(&mut self) {
        match self.attach(Duration::ZERO) {
            Ok(()) => self.is_lost = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    self.notes.push(format!("{error}; user space does all of the work meanwhile"));
                }
            }
        }
    }

    /// Rules that nobody has asked for: user space does not know them, so they end soon.
    fn limit_found(&mut self, now_ns: u64) {
        let Some(since) = self.found else { return };
        let Some(since) = since else {
            self.found = Some(Some(now_ns));
            return;
        };
        if now_ns.saturating_sub(since) < ADOPT_NS {
            return;
        }
        self.found = None;
        let now = coarse_now_ns();
        let end = now + ADOPT_NS;
        let (mut soon4, mut soon6) = (BTreeMap::new(), BTreeMap::new());
        let (rules4, rules6) = (&mut self.rules4, &mut self.rules6);
        let limited = self.front.with(|object| {
            rules4.each(object, |key, [old, ..]| {
                if old > end {
                    soon4.insert(key, Some(end));
                }
            })?;
            rules6.each(object, |key, [old, ..]| {
                if old > end {
                    soon6.insert(key, Some(end));
                }
            })?;
            rules4.change(object, &soon4, now, &|_| true)?;
            rules6.change(object, &soon6, now, &|_| true)
        });
        self.heed(limited, "cannot end the rules that were there");
    }

    /// Gives tuples their ends, in the clock of `now_ns`, and takes away those without one.
    fn change(
        &mut self,
        now_ns: u64,
        changes: impl Iterator<Item = (Tuple, Option<u64>)>,
        stands: Stands<'_>,
    ) {
        let now = coarse_now_ns();
        let end =
            |expires_ns: u64| now.saturating_add(expires_ns.saturating_sub(now_ns).saturating_sub(AHEAD_NS));
        let (mut of4, mut of6) = (BTreeMap::new(), BTreeMap::new());
        for (tuple, expires_ns) in changes {
            match key(&tuple) {
                Key::V4(key) => drop(of4.insert(key, expires_ns.map(end))),
                Key::V6(key) => drop(of6.insert(key, expires_ns.map(end))),
            }
        }
        let (rules4, rules6) = (&mut self.rules4, &mut self.rules6);
        let changed = self.front.with(|object| {
            let refused4 = rules4.change(object, &of4, now, &|key| stands(&tuple4(key)))?;
            Ok(refused4 + rules6.change(object, &of6, now, &|key| stands(&tuple6(key)))?)
        });
        self.refused += self.heed(changed, "cannot change rules").unwrap_or(0);
    }

    fn sum(&self, which: u32) -> u64 {
        let sum = self.front.with(|object| object.sum("counts", which).unwrap_or(0));
        sum.saturating_sub(self.before[which as usize])
    }
}

fn at(interface: &str, error: &BpfError) -> String {
    format!("offload xdp: {interface}: {error}")
}

/// A worker's hand on both families' rules.
struct Hand {
    rules4: Lifter<Key4>,
    rules6: Lifter<Key6>,
}

impl Lift for Hand {
    fn lift(&mut self, tuple: &Tuple) -> bool {
        match key(tuple) {
            Key::V4(key) => self.rules4.lift(&key),
            Key::V6(key) => self.rules6.lift(&key),
        }
    }
}

/// What rules have kept away hitherto. The maps are locked for a page of theirs at a time. It keeps nothing alive: an offload that is gone has kept nothing away.
struct Hitherto {
    front: Weak<Front>,
    rules4: Walker<Key4>,
    rules6: Walker<Key6>,
    unread: Arc<Mutex<Option<io::Error>>>,
}

impl Hitherto {
    fn heed<T>(&self, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                None
            }
        }
    }
}

impl Account for Hitherto {
    fn hits(&self, tuple: &Tuple) -> Hits {
        let rule = match key(tuple) {
            Key::V4(key) => self.rules4.get(&self.front, &key),
            Key::V6(key) => self.rules6.get(&self.front, &key),
        };
        self.heed(rule).flatten().map_or(Hits::default(), hits)
    }

    fn collect(&self, each: &mut dyn FnMut(Tuple, Hits)) {
        let mut some = |tuple: Tuple, rule: Rule| {
            if rule[1] > 0 {
                each(tuple, hits(rule));
            }
        };
        let walked = self.rules4.walk(&self.front, |key, rule| some(tuple4(&key), rule));
        self.heed(walked.and_then(|()| self.rules6.walk(&self.front, |key, rule| some(tuple6(&key), rule))));
    }
}

/// `struct config`.
fn config(settings: &OffloadSettings) -> [u64; CONFIG_WORDS] {
    let mut config = [0; CONFIG_WORDS];
    config[0] = u64::from(settings.tuple) | if settings.dry_run { DRY_RUN } else { 0 };
    for port in &settings.protocols {
        config[1 + usize::from(*port >> 6)] |= 1 << (port & 63);
    }
    config
}

impl Offload for XdpOffload {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn adopted(&mut self, now_ns: u64) -> Vec<(Tuple, u64)> {
        XdpOffload::adopted(self, now_ns)
    }

    fn configure(&mut self, settings: &OffloadSettings) -> Result<(), String> {
        let words = config(settings);
        let (rules4, rules6) = (&mut self.rules4, &mut self.rules6);
        let told = self.front.with(|object| {
            let mut config = object.array::<[u64; CONFIG_WORDS]>("config")?;
            let before = config.get(&0, 0).map_err(to_io)?[0] as u32;
            let mut gone = 0;
            if before != 0 && before != words[0] as u32 {
                // Rules of another tuple mode say nothing to this one.
                config.set(0, [0; CONFIG_WORDS], 0).map_err(to_io)?;
                gone += rules4.retain(object, |_, _| false)?;
                gone += rules6.retain(object, |_, _| false)?;
            }
            object.array::<[u64; CONFIG_WORDS]>("config")?.set(0, words, 0).map_err(to_io)?;
            Ok(gone)
        });
        let gone = told.map_err(|error: io::Error| {
            format!(
                "offload xdp: {}: cannot tell the XDP program its settings: {error}",
                self.options.interface
            )
        })?;
        if gone > 0 {
            self.notes.push(format!(
                "warning: offload xdp: {}: {gone} rules that were there are gone: they were made for another mitigator.tuple, and are learnt anew",
                self.options.interface
            ));
        }
        if settings.entries > self.options.entries && self.settings.is_none() {
            self.notes.push(format!(
                "offload xdp: {}: room for {} rules of {}: user space alone drops by the others",
                self.options.interface, self.options.entries, settings.entries
            ));
        }
        if self.settings.is_none() {
            self.attach(PATIENCE)?;
        } else {
            // An interface that is away now is no reason to refuse other settings.
            self.look();
        }
        self.settings = Some(settings.clone());
        Ok(())
    }

    fn lifter(&mut self) -> Option<Box<dyn Lift>> {
        let (rules4, rules6) = (&self.rules4, &self.rules6);
        let made = self
            .front
            .with(|object| Ok(Hand { rules4: rules4.lifter(object)?, rules6: rules6.lifter(object)? }));
        let hand = self.heed(made, "workers cannot lift rules by themselves")?;
        Some(Box::new(hand))
    }

    fn apply(&mut self, now_ns: u64, events: &[RuleEvent], stands: Stands<'_>) {
        let changes = events.iter().map(|event| match *event {
            RuleEvent::Filtered { key, expires_ns } => (key, Some(expires_ns)),
            RuleEvent::Removed { key } => (key, None),
        });
        self.change(now_ns, changes, stands);
    }

    fn replace(&mut self, now_ns: u64, rules: &mut dyn Iterator<Item = (Tuple, u64)>, stands: Stands<'_>) {
        let mut wanted = BTreeMap::new();
        for (tuple, expires_ns) in rules {
            let end = wanted.entry(tuple).or_insert(expires_ns);
            *end = expires_ns.max(*end);
        }
        self.found = None;
        let (rules4, rules6) = (&mut self.rules4, &mut self.rules6);
        let retained = self.front.with(|object| {
            rules4.retain(object, |key, _| wanted.contains_key(&tuple4(key)))?;
            rules6.retain(object, |key, _| wanted.contains_key(&tuple6(key)))
        });
        self.heed(retained, "cannot remove rules");
        self.change(now_ns, wanted.into_iter().map(|(tuple, end)| (tuple, Some(end))), stands);
    }

    fn poll(&mut self, now_ns: u64) -> bool {
        let is_due = |at: &mut Option<u64>, every_ns: u64| {
            let due = at.is_none_or(|at| now_ns.wrapping_sub(at) >= every_ns);
            if due {
                *at = Some(now_ns);
            }
            due
        };
        let (look, sweep) = (is_due(&mut self.looked_ns, LOOK_NS), is_due(&mut self.swept_ns, SWEEP_NS));
        if look && self.settings.is_some() {
            self.look();
        }
        if sweep {
            self.limit_found(now_ns);
            let (rules4, rules6, now) = (&mut self.rules4, &mut self.rules6, coarse_now_ns());
            let swept = self.front.with(|object| {
                rules4.sweep(object, now)?;
                rules6.sweep(object, now)
            });
            self.heed(swept, "cannot sweep rules");
        }
        sweep
    }

    fn account(&self) -> Box<dyn Account> {
        let (rules4, rules6) = (self.rules4.walker(), self.rules6.walker());
        Box::new(Hitherto { front: Arc::downgrade(&self.front), rules4, rules6, unread: self.unread.clone() })
    }

    fn counters(&self) -> OffloadCounters {
        let of = |which| Hits { packets: self.sum(which), bytes: self.sum(which + 1) };
        OffloadCounters {
            dropped: of(DROPPED),
            would_drop: of(WOULD),
            rules: self.rules4.count() + self.rules6.count(),
            refused: self.refused,
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = unread {
            self.heed::<()>(Err(error), "cannot read what rules keep away");
        }
        std::mem::take(&mut self.notes)
    }
}

fn hits([_, packets, bytes]: Rule) -> Hits {
    Hits { packets, bytes }
}
