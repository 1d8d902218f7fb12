//! Refusals as rules of an XDP program: `bpf/gate.bpf.c`, made into an object that is part of this one. Linux 5.9, as root or with `cap_net_admin` and `cap_bpf`.
//!
//! **One program, several interfaces.** All ports share the object and its maps; each has a link of its own. An interface takes one program: that of an AF_XDP port
//! stands behind this one ([`Offload::front`], `PortSpec::set_front`). Of AF_PACKET ports what is not dropped goes up into the kernel, whose packet socket the port is.
//!
//! **Ends** are in the kernel's clock, by which the program compares them. They are reckoned by its coarse clock, which lags by some milliseconds: so a rule ends that much before its flow's refusal, and the gate drops
//! what comes in between.
//!
//! **A full map** refuses new rules, which is counted, and no rule that holds leaves: the gate goes on dropping what such flows send. Dead rules are removed within a second or two.
//!
//! **Who is left.** The program is held by links of this process, so that it goes with it, however that ends; nothing is pinned.

mod rules;

use super::{Picks, Tally, WORDS, Words};
use rules::{Rules, Times};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_bpf::{BpfError, Front, Kernel, Mapped, Mode, Object, Source, Verdict, coarse_now_ns};
use tidemill_flow::key::Key;

static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../../bpf/gate.bpf.o"),
    program: "tidemill_gate",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};

/// Rules of each family that there is room for, if nobody says otherwise.
pub const ROOM: u32 = 65_536;

/// How often interfaces are looked at.
const LOOK_NS: u64 = 200_000_000;
/// How long an interface that another program is on is waited for at the start.
const PATIENCE: Duration = Duration::from_secs(1);

/// A flow as the program has it: source and destination.
type Flow4 = [u8; 8];
type Flow6 = [u8; 32];

impl Words for Mapped {
    fn words(&self) -> &[AtomicU64] {
        Mapped::words(self)
    }
}

/// A port on a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadPort {
    /// Its name.
    pub name: String,
    /// The interface's name.
    pub interface: String,
    /// Where in the kernel the program runs.
    pub mode: Mode,
    /// The port has a program of its own, which stands behind this one, and attaches both.
    pub is_behind: bool,
}

struct Port {
    number: u16,
    spec: OffloadPort,
    front: Arc<Front>,
    /// What was said last, so that it is said once.
    said: String,
}

/// The rules of both families.
type BothRules = (Rules<u32, Flow4, 1>, Rules<u128, Flow6, 4>);

/// The program, and the rules that it goes by once it is told whose. Dropped, it leaves the interfaces.
pub struct Offload {
    /// Before the object: programs leave first.
    ports: Vec<Port>,
    object: Arc<Mutex<Object>>,
    words: Arc<dyn Words>,
    rules: Option<BothRules>,
    looked_ns: Option<u64>,
    /// Rules could not be changed, and that was said.
    has_failed: bool,
    notes: Vec<String>,
}

fn lock(object: &Mutex<Object>) -> MutexGuard<'_, Object> {
    object.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offload {
    /// Loads the program. `ports` are those on network interfaces, by their numbers; `room` is for rules of each family.
    ///
    /// # Errors
    /// Rights or memory are missing; the kernel is too old.
    pub fn open(ports: Vec<(u16, OffloadPort)>, room: u32) -> Result<Self, BpfError> {
        let object = Object::load(&SOURCE, &[("rules4", room), ("rules6", room)], None)?;
        let words: Arc<dyn Words> = Arc::new(object.mapped("words", WORDS)?);
        let object = Arc::new(Mutex::new(object));
        let port = |(number, spec): (u16, OffloadPort)| {
            let front = Arc::new(Front::beside(object.clone(), number.into(), spec.mode));
            Port { number, spec, front, said: String::new() }
        };
        let is_door = |(number, _): &(u16, OffloadPort)| usize::from(*number) < super::MOST_DOORS;
        let ports = ports.into_iter().filter(is_door).map(port).collect();
        Ok(Offload {
            ports,
            object,
            words,
            rules: None,
            looked_ns: None,
            has_failed: false,
            notes: Vec::new(),
        })
    }

    /// What it goes by, for [`GatekeeperControl::refuse_below`](crate::GatekeeperControl::refuse_below).
    pub fn words(&self) -> Arc<dyn Words> {
        self.words.clone()
    }

    /// Whose refusals it repeats, from now on.
    pub fn follow(&mut self, picks: (Picks<u32, 1>, Picks<u128, 4>)) {
        self.rules = Some((Rules::new("rules4", key4, picks.0), Rules::new("rules6", key6, picks.1)));
    }

    /// What stands on a port's interface, for the port that stands behind it.
    pub fn front(&self, port: u16) -> Option<&Arc<Front>> {
        self.ports.iter().find(|there| there.number == port).map(|there| &there.front)
    }

    /// Lines for the log since the last call; warnings begin with `warning: `.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes up what the workers have told; looks at the interfaces, a few times a second. Call it every few milliseconds. `clock` is the workers'.
    /// Returns whether there was anything to take up.
    pub fn turn(&mut self, clock: &dyn Fn() -> u64) -> bool {
        // In this order, and by the clock that lags: what is reckoned from one to the other ends too early, if anything.
        let kernel_ns = coarse_now_ns();
        let times = Times { kernel_ns, now_ns: clock() };
        self.look(times.now_ns);
        let Some((rules4, rules6)) = &mut self.rules else { return false };
        let mut object = lock(&self.object);
        let done = rules4.turn(&mut object, times).and_then(|any| Ok(rules6.turn(&mut object, times)? | any));
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

    /// Sees to it that the program is where it should be.
    fn look(&mut self, now_ns: u64) {
        let patience = match self.looked_ns {
            Some(before) if now_ns.saturating_sub(before) < LOOK_NS => return,
            Some(_) => Duration::ZERO,
            None => PATIENCE,
        };
        self.looked_ns = Some(now_ns);
        for port in &mut self.ports {
            let says = port.look(patience);
            if says != port.said {
                self.notes.push(says.clone());
                port.said = says;
            }
        }
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        let [dropped, bytes] = lock(&self.object).sums::<2>("counts", 0).unwrap_or_default();
        let (rules, refused) = self.rules.as_ref().map_or((0, 0), |(rules4, rules6)| {
            (rules4.count() + rules6.count(), rules4.refused() + rules6.refused())
        });
        Tally { dropped, bytes, rules, refused }
    }

    /// The ports, and whether the program is in the driver of each, or behind it; nowhere while it is on no interface.
    pub fn places(&self) -> impl Iterator<Item = (&OffloadPort, Option<bool>)> {
        self.ports.iter().map(|port| (&port.spec, port.is_native()))
    }

    /// Takes the program off the interfaces; the gatekeeper has all packets from then on.
    pub fn close(&mut self) {
        self.ports.iter().for_each(|port| port.front.detach());
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

impl Port {
    /// Whether the program is in the driver of the interface that is there now, or behind it.
    fn is_native(&self) -> Option<bool> {
        let device = tidemill_port::device(&self.spec.interface).ok()?;
        let there = self.front.attached().filter(|there| there.index == device.index)?;
        Some(there.native)
    }

    /// What to say of it now.
    fn look(&self, patience: Duration) -> String {
        let OffloadPort { name, interface, is_behind, .. } = &self.spec;
        // An interface that is away is the port's to tell of.
        let Ok(device) = tidemill_port::device(interface) else { return self.said.clone() };
        let attached = match is_behind {
            true => Ok(self.front.attached()),
            false => self.front.attach(interface, device.index, patience).map(Some),
        };
        match attached.map(|attached| attached.filter(|there| there.index == device.index)) {
            Ok(Some(there)) => {
                let place = if there.native { "in" } else { "behind" };
                format!("offload: {name}: the program is on {interface}, {place} the driver")
            }
            Ok(None) => self.said.clone(),
            Err(error) => {
                format!("warning: offload: {name}: {error}: what is declined there is dropped in user space")
            }
        }
    }
}
