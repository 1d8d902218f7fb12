//! The fast path as an XDP program: `bpf/route.bpf.c`, made into an object that is part of this one. As root, or with `cap_net_admin` and `cap_bpf`.
//!
//! **One program, several interfaces.** All ports share the object and its maps; each has a link of its own. An interface takes one program: that of an AF_XDP port
//! stands behind this one ([`Offload::front`], `PortSpec::set_front`), and gets by a tail call what is left to the router. Of AF_PACKET ports what is left goes up into the
//! kernel, whose packet socket the port is.
//!
//! **Devices.** A frame is redirected in the driver only to a device that is known to take it ([`Receivers`], Linux 6.3): packets for others are left to the router, as are those
//! for ports on no interface. Where the kernel does not say, programs run behind the drivers (generic mode), where every device takes frames, and packets cost more. What a
//! driver of an AF_XDP port in the driver receives on such a kernel is left to the router.
//!
//! **A turn** is three steps: [`Offload::look`] at the interfaces; [`Offload::cut`], under the control side's lock, writes all that is small and patches a few prefixes, or copies the routes; [`Offload::finish`], without it,
//! writes them whole if need be, names the generation and waits until nobody reads the one before.
//!
//! **Where somebody judges packets** (a Gatekeeper), the program is his, with this one's text and maps in it ([`Offload::over`]), and a generation has also what he goes by ([`Judge`]): which ports'
//! packets are judged, and to which destinations they pass all the same. It holds as long as his program's number is the one that he gave with it: he changes that, and nothing is forwarded until the next generation.

mod account;
mod devices;

pub use super::layout::PASSES;
pub use account::{Account, NO_PART, PORT_REASONS, PortCounters};
pub use devices::OffloadPort;

use super::image::{Full, Image};
use super::journal::Journal;
use super::layout::{DIRECT4, Hop, Input, Judged, LINE, NODES, write_hop, write_inputs, write_suspects};
use crate::control::RouterControl;
use devices::Devices;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_bpf::{BpfError, Front, Kernel, Mapped, Object, Source, grace};
use tidemill_ip::martian::Filter;
use tidemill_ip::{Kind, NextHops};
use tidemill_lpm::{Address, Prefix, Rib};

static SOURCE: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../../bpf/route.bpf.o"),
    program: "tidemill_route",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};

/// From so many changed prefixes on, all routes are written anew.
const PATCHES: usize = 4096;
/// How long routes that did not fit are let alone.
const RETRY_NS: u64 = 10_000_000_000;
/// Bytes in a line.
const LINE_BYTES: u64 = 8 * LINE as u64;
/// Lines for what comes beside twice the routes of the start.
const SPARE: u32 = 32_768;
/// Where generations begin: number 0 is none.
const FIRST_LINE: u32 = 1;
/// Lines of the destinations that pass a judge, in each generation: what routes of 16 bits take, and as much again twice over.
const PASSES_LINES: u32 = 3 * (NODES - DIRECT4);

/// What somebody who judges packets goes by.
pub struct Judge {
    /// Whether packets are judged that come in by a port, by its number.
    pub is_front: Vec<bool>,
    /// What passes from there keeps its code point.
    pub keeps_dscp: bool,
    /// Destinations, if they are asked for: those that pass have the label [`PASSES`].
    pub passes: Option<(Rib<u32>, Rib<u128>)>,
}

/// A [`Judge`]'s state by its number, and how to get it, with its destinations or without.
type Bench<'a> = (u64, &'a dyn Fn(bool) -> Judge);

/// One of the two.
struct Generation {
    image: Image,
    /// What has changed since its routes were written.
    stale4: Journal<u32>,
    stale6: Journal<u128>,
    /// Next hops of each family that are written.
    hops: [u32; 2],
    /// Destinations that pass a judge, if there is one.
    passes: Option<Image>,
    /// The number of the judge's state that is written.
    stamp: Option<u64>,
}

impl Generation {
    fn new(start: u32, lines: u32, passes: Option<Image>) -> Self {
        let (mut stale4, mut stale6) = (Journal::default(), Journal::default());
        (stale4.all, stale6.all) = (true, true);
        let image = Image::new(start, lines);
        Generation { image, stale4, stale6, hops: [0; 2], passes, stamp: None }
    }

    /// The first line of the destinations that pass.
    fn passes_line(&self) -> u32 {
        self.passes.as_ref().map_or(0, |image| image.start() + DIRECT4)
    }
}

/// An image of destinations alone, from this line on: of a generation it has only what lies behind its fixed parts, so that it begins in front of its own first line.
fn passes_at(line: u32) -> Image {
    Image::new(line - DIRECT4, DIRECT4 + PASSES_LINES)
}

/// What a generation was made of, but for routes: a number for each thing, that counts its changes.
type Made = [u64; 5];

/// A generation that is to come into force; of routes that are to be written whole, a copy.
pub struct Cut {
    now_ns: u64,
    ribs: Option<(Rib<u32>, Rib<u128>)>,
    /// The same of the destinations that pass a judge.
    passes: Option<(Rib<u32>, Rib<u128>)>,
    inputs: Vec<Input>,
}

/// The fast path. Dropped, its programs leave the interfaces.
pub struct Offload {
    /// Before the object: programs leave first.
    devices: Devices,
    object: Arc<Mutex<Object>>,
    lines: Mapped,
    root: Mapped,
    generations: [Generation; 2],
    /// The one in force, if any is.
    current: usize,
    made: Option<Made>,
    /// Routes did not fit, at this time.
    full_ns: Option<u64>,
    /// Generations that have come into force.
    flips: Arc<AtomicU64>,
    /// What passes a judge did not fit, and that was said.
    has_outgrown: bool,
    notes: Vec<String>,
}

/// Bytes that the images of these routes should have, both together: room for twice as much and some more.
pub fn bytes_for(rib4: &Rib<u32>, rib6: &Rib<u128>) -> u64 {
    let nodes = Image::measure(rib4, rib6).saturating_sub(NODES);
    2 * LINE_BYTES * u64::from(NODES.saturating_add(SPARE).saturating_add(nodes.saturating_mul(2)))
}

/// Lines of each of two images of so many bytes.
fn route_lines(bytes: u64) -> u32 {
    u32::try_from(bytes / LINE_BYTES / 2).unwrap_or(u32::MAX).clamp(NODES, (1 << 30) - 1)
}

/// Entries of the map `lines` for images of so many bytes; `judged` where a [`Judge`] has his part.
pub fn lines_for(bytes: u64, judged: bool) -> u32 {
    FIRST_LINE + 2 * (route_lines(bytes) + if judged { PASSES_LINES } else { 0 })
}

impl Offload {
    /// Loads the program. `ports` are those on network interfaces, by their numbers; `bytes` is the memory of both images.
    ///
    /// # Errors
    /// Rights or memory are missing; the kernel is too old.
    pub fn open(ports: Vec<(u16, OffloadPort)>, bytes: u64) -> Result<Self, BpfError> {
        let object = Object::load(&SOURCE, &[("lines", lines_for(bytes, false))], None)?;
        Self::on(ports, bytes, Arc::new(Mutex::new(object)), false)
    }

    /// The same with somebody's program that has this one's text and maps (`bpf/forward.h`), and drops what he does not let pass. It has been loaded with [`lines_for`] so many bytes, `judged`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(
        object: Arc<Mutex<Object>>,
        ports: Vec<(u16, OffloadPort)>,
        bytes: u64,
    ) -> Result<Self, BpfError> {
        Self::on(ports, bytes, object, true)
    }

    fn on(
        ports: Vec<(u16, OffloadPort)>,
        bytes: u64,
        object: Arc<Mutex<Object>>,
        judged: bool,
    ) -> Result<Self, BpfError> {
        // What cannot be waited for cannot be used twice.
        grace().map_err(|error| {
            BpfError::Refused(format!(
                "the kernel has no global memory barrier, by which memory that programs have read can be used again: {error}"
            ))
        })?;
        let lines = route_lines(bytes);
        let mapped = devices::lock(&object);
        let words = mapped.mapped("lines", lines_for(bytes, judged) as usize * LINE)?;
        let root = mapped.mapped("root", 1)?;
        drop(mapped);
        // Behind the routes of both.
        let behind = FIRST_LINE + 2 * lines;
        let passes = |number: u32| judged.then(|| passes_at(behind + number * PASSES_LINES));
        Ok(Offload {
            devices: Devices::new(ports, &object, judged)?,
            object,
            lines: words,
            root,
            generations: [
                Generation::new(FIRST_LINE, lines, passes(0)),
                Generation::new(FIRST_LINE + lines, lines, passes(1)),
            ],
            current: 1,
            made: None,
            full_ns: None,
            flips: Arc::default(),
            has_outgrown: false,
            notes: Vec::new(),
        })
    }

    /// The ports, and whether the program is in the driver of each, or behind it; nowhere while it is on no interface.
    pub fn places(&self) -> impl Iterator<Item = (&OffloadPort, Option<bool>)> {
        self.devices.places()
    }

    /// What stands on a port's interface, for the port that stands behind it.
    pub fn front(&self, port: u16) -> Option<&Arc<Front>> {
        self.devices.front(port)
    }

    /// What was forwarded and what was not, for whoever reads it beside us.
    pub fn account(&self) -> Account {
        let bytes = self.lines.words().len() as u64 * 8;
        Account::new(self.object.clone(), self.devices.names(), self.flips.clone(), bytes)
    }

    /// The program with its maps, for whoever runs it beside us; for tests.
    pub fn object(&self) -> Arc<Mutex<Object>> {
        self.object.clone()
    }

    /// Lines for the log since the last call; warnings begin with `warning: `.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = self.devices.take_notes();
        notes.append(&mut self.notes);
        notes
    }

    /// Looks at the interfaces, a few times a second, and puts the program where it is missing. Takes its time.
    pub fn look(&mut self, now_ns: u64) {
        self.devices.look(now_ns);
    }

    /// Looks whether anything has changed since the last cut, and writes what is to come into force. Call it every few milliseconds.
    pub fn cut(&mut self, control: &mut RouterControl, now_ns: u64) -> Option<Cut> {
        self.cut_by(control, now_ns, None)
    }

    /// The same where somebody judges, by the state that has this number; `judge` gives it, with its destinations if they are asked for.
    pub fn cut_judged(
        &mut self,
        control: &mut RouterControl,
        now_ns: u64,
        stamp: u64,
        judge: &dyn Fn(bool) -> Judge,
    ) -> Option<Cut> {
        self.cut_by(control, now_ns, Some((stamp, judge)))
    }

    fn cut_by(&mut self, control: &mut RouterControl, now_ns: u64, bench: Option<Bench<'_>>) -> Option<Cut> {
        let new4 = control.v4.journal.replace(Journal::default());
        let new6 = control.v6.journal.replace(Journal::default());
        for generation in &mut self.generations {
            match (&new4, &new6) {
                (Some(new4), Some(new6)) => {
                    generation.stale4.extend(new4);
                    generation.stale6.extend(new6);
                }
                // Nobody has taken notes so far.
                _ => (generation.stale4.all, generation.stale6.all) = (true, true),
            }
        }
        if let Some(full_ns) = self.full_ns {
            if now_ns.saturating_sub(full_ns) < RETRY_NS {
                return None;
            }
            self.full_ns = None;
            self.made = None;
        }
        let ((hops4, hops4_made), (hops6, hops6_made)) = (control.v4.hops(), control.v6.hops());
        let stamp = bench.map(|(stamp, _)| stamp);
        let settings_made = control.settings_generation();
        let made =
            [hops4_made, hops6_made, settings_made, self.devices.generation(), stamp.unwrap_or_default()];
        let is_quiet =
            new4.as_ref().is_some_and(Journal::is_empty) && new6.as_ref().is_some_and(Journal::is_empty);
        if is_quiet && self.made == Some(made) {
            return None;
        }
        self.made = Some(made);
        let words = self.lines.words();
        let spare = &mut self.generations[1 - self.current];
        let start = spare.image.start();
        let settings = control.settings();
        let judge = bench.map(|(_, judge)| judge(spare.stamp != stamp));
        let passes = spare.passes_line();
        let judged = |port: u16| match &judge {
            Some(judge) => Judged {
                stamp: stamp.unwrap_or_default(),
                // What he does not know is his.
                is_front: judge.is_front.get(usize::from(port)).copied().unwrap_or(true),
                keeps_dscp: judge.keeps_dscp,
                passes,
            },
            None => Judged::default(),
        };
        let inputs: Vec<Input> = self.devices.inputs(&settings.interfaces, &judged);
        for left_out in write_inputs(words, start, &inputs) {
            self.devices.has_no_place(left_out.port);
        }
        write_suspects(words, start, 4, Filter::v4(settings.martians).suspects());
        write_suspects(words, start, 6, Filter::v6(settings.martians).suspects());
        let [before4, before6] = &mut spare.hops;
        write_hops(words, start, 4, hops4, before4, &self.devices);
        write_hops(words, start, 6, hops6, before6, &self.devices);
        let (Some(table4), Some(table6)) = (control.v4.table(0), control.v6.table(0)) else { return None };
        let (rib4, rib6) = (table4.rib(), table6.rib());
        let is_patched = patch(&mut spare.image, words, rib4, &mut spare.stale4)
            && patch(&mut spare.image, words, rib6, &mut spare.stale6);
        (spare.stale4, spare.stale6) = Default::default();
        spare.stamp = stamp;
        let ribs = (!is_patched).then(|| (rib4.clone(), rib6.clone()));
        Some(Cut { now_ns, ribs, passes: judge.and_then(|judge| judge.passes), inputs })
    }

    /// Brings into force what was cut.
    pub fn finish(&mut self, cut: Cut) {
        let next = 1 - self.current;
        self.write_passes(next, cut.passes, cut.inputs);
        let image = &mut self.generations[next].image;
        if let Some((rib4, rib6)) = cut.ribs
            && let Err(Full) = image.build(self.lines.words(), &rib4, &rib6)
        {
            self.name(0);
            self.notes.push(format!(
                "warning: offload: the routes have outgrown the image ({} MiB): forwarding goes on in user space alone; set router.offload_mb to more, and restart",
                self.lines.words().len() >> 17
            ));
            (self.generations[next].stale4.all, self.generations[next].stale6.all) = (true, true);
            self.full_ns = Some(cut.now_ns);
            return;
        }
        let start = image.start();
        self.name(start);
        self.flips.fetch_add(1, Ordering::Relaxed);
        self.current = next;
        if let Err(error) = grace() {
            // It was there at the start: without it what comes next would be written under a program's eyes.
            self.name(0);
            self.notes.push(format!(
                "warning: offload: the kernel's memory barrier fails ({error}): forwarding goes on in user space alone"
            ));
            self.full_ns = Some(cut.now_ns);
            self.made = None;
        }
    }

    /// Writes the destinations that pass a judge, if they are others than those that are written. If they do not fit, none passes.
    fn write_passes(&mut self, next: usize, passes: Option<(Rib<u32>, Rib<u128>)>, mut inputs: Vec<Input>) {
        let (Some((rib4, rib6)), words) = (passes, self.lines.words()) else { return };
        let generation = &mut self.generations[next];
        let Some(image) = &mut generation.passes else { return };
        if image.build(words, &rib4, &rib6).is_ok() {
            return;
        }
        inputs.iter_mut().for_each(|input| input.judged.passes = 0);
        // Those that have no place were told of.
        write_inputs(words, generation.image.start(), &inputs);
        // The next cut is to write them whole again.
        generation.stamp = None;
        if !std::mem::replace(&mut self.has_outgrown, true) {
            self.notes.push(
                "warning: offload: the policies have outgrown their image: what they let pass is forwarded in user space"
                    .to_owned(),
            );
        }
    }

    /// Names the generation in force by its first line; 0 is none.
    fn name(&self, start: u32) {
        if let Some(root) = self.root.words().first() {
            root.store(u64::from(start), Ordering::SeqCst);
        }
    }

    /// Takes the programs off the interfaces; the router has all packets from then on.
    pub fn close(&mut self) {
        self.name(0);
        self.devices.close();
    }

    /// Runs the program once on a frame, as if the device `interface` had received it, and gives what it has made of that; for tests.
    ///
    /// # Errors
    /// As [`Object::run_once`].
    pub fn run_once(
        &self,
        frame: &[u8],
        interface: u32,
    ) -> std::io::Result<(tidemill_bpf::Verdict, Vec<u8>)> {
        devices::lock(&self.object).run_once(frame, interface)
    }
}

/// Makes the image what the RIB says of what has changed; false if that is to be written whole.
fn patch<A: Address>(image: &mut Image, words: &[AtomicU64], rib: &Rib<A>, stale: &mut Journal<A>) -> bool {
    if stale.all {
        return false;
    }
    let prefixes: &[Prefix<A>] = stale.sorted();
    let is_little = prefixes.len() <= PATCHES && !prefixes.iter().any(|prefix| Image::is_broad(*prefix));
    is_little && prefixes.iter().all(|prefix| image.update(words, rib, *prefix).is_ok())
}

/// Writes the next hops of a family, over `before` that were there.
fn write_hops(
    words: &[AtomicU64],
    start: u32,
    family: u8,
    hops: &NextHops,
    before: &mut u32,
    devices: &Devices,
) {
    let count = hops.len() as u32;
    for label in 0..count {
        let adjacency = hops.get(label);
        let ready = || {
            let header = adjacency.plain_header().filter(|_| adjacency.kind == Kind::Forward)?;
            let takes = devices.sends(adjacency.port)?;
            Some(Hop { header: *header, mtu: adjacency.mtu, port: adjacency.port.into(), takes })
        };
        write_hop(words, start, family, label, ready().as_ref());
    }
    (count..*before).for_each(|label| write_hop(words, start, family, label, None));
    *before = count;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_lpm::Label;

    fn rib<A: Address>(routes: &[(&str, u32)]) -> Rib<A> {
        routes.iter().map(|(prefix, label)| (prefix.parse().unwrap(), Label(*label))).collect()
    }

    /// What passes a judge lies behind the routes of both generations, and touches nothing else.
    #[test]
    fn destinations_lie_behind_the_routes() {
        let behind = FIRST_LINE + 2 * route_lines(0);
        let words = lines_for(0, true) as usize * LINE;
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let rib4 = rib::<u32>(&[("0.0.0.0/0", 1), ("10.0.0.0/8", 2), ("10.1.2.3/32", 1)]);
        let rib6 = rib::<u128>(&[("::/0", 2), ("2001:db8::/32", 1)]);
        let mut first = words.len();
        for number in [1, 0] {
            let line = behind + number * PASSES_LINES;
            let mut image = passes_at(line);
            assert_eq!(image.build(&words, &rib4, &rib6), Ok(()));
            let found = [0x0a01_0203, 0x0a01_0204, 0x0b00_0000].map(|to: u32| image.lookup(&words, to));
            assert_eq!(found, [1, 2, 1]);
            let found = [0x2001_0db8 << 96, 0x2001_0db9 << 96].map(|to: u128| image.lookup(&words, to));
            assert_eq!(found, [1, 2]);
            let is_written = |word: &AtomicU64| word.load(Ordering::Relaxed) != 0;
            assert_eq!(words.iter().position(is_written), Some(line as usize * LINE));
            let last = words[..first].iter().rposition(is_written).unwrap();
            assert!(last < (line + PASSES_LINES) as usize * LINE);
            first = line as usize * LINE;
        }
    }
}
