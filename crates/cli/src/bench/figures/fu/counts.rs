//! What the probe and the prefixes say; nothing is timed.

use super::{extremes, keys, paper, rib};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::figures::Setting;
use crate::bench::updates::alternating;
use crate::fib::read_changes;
use crate::progress::Progress;
use crate::usage;
use anyhow::{Result, ensure};
use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lpm::copies::Whole;
use tidemill_lpm::keys::Pattern;
use tidemill_lpm::sail::{EveryLevel, EverySixth, Form, Levels, Overlay, Pushed};
use tidemill_lpm::{Change, Label, Rib};

/// Longer prefixes are the paper's long ones.
const LONG: u8 = 24;
/// The paper's windows.
const WINDOW: usize = 500;
/// Points of a curve.
const POINTS: usize = 20;
/// A structure's updates end when they have made so many accesses: where each rewrites much of a structure, few are as good as many. A
/// limit of time would make the figure another one in each run.
const ACCESSES: u64 = 30_000_000;
/// Updates between two signs of progress.
const BEAT: usize = 256;

fn point(name: &str, y: f64, paper: Option<f64>) -> Point {
    Point { x: X::Name(name.into()), y, paper }
}

fn named(name: &str, points: Vec<Point>) -> Series {
    Series { name: name.into(), points }
}

/// Table 3.4.
pub(super) fn long_prefixes(setting: &Setting<'_>) -> Result<Drawing> {
    let (mut points, mut notes) = (Vec::new(), Vec::new());
    for subject in &setting.tables {
        let rib = &subject.table.v4;
        let long = rib.iter().filter(|(prefix, _)| prefix.len() > LONG).count();
        let (like, paper) = paper::long_prefixes_like(rib.len());
        points.push(point(&subject.name, 100.0 * long as f64 / rib.len().max(1) as f64, Some(paper)));
        notes.push(format!(
            "{}: {long} of {} prefixes; beside it the paper's {like}",
            subject.name,
            rib.len()
        ));
    }
    notes.push("the paper: mostly 1 to 2 %, between 0.25 % and 7.55 %".into());
    Ok(Drawing {
        panels: vec![Panel::new("table", "% of the prefixes", vec![named("longer than 24 bits", points)])],
        notes,
        ..setting.figure.drawing(setting)
    })
}

/// The long prefixes that are inside no other one: their first and last addresses, in order.
fn long_ranges(rib: &Rib<u32>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for (prefix, _) in rib.iter().filter(|(prefix, _)| prefix.len() > LONG) {
        if ranges.last().is_none_or(|range| range.1 < prefix.first()) {
            ranges.push((prefix.first(), prefix.last()));
        }
    }
    ranges
}

/// Figure 3.10.
pub(super) fn long_matches(setting: &Setting<'_>) -> Result<Drawing> {
    const TRACES: u64 = 25;
    let ranges = long_ranges(rib(setting));
    let matches = |key: &u32| {
        let behind = ranges.partition_point(|range| range.0 <= *key);
        behind > 0 && ranges[behind - 1].1 >= *key
    };
    let count = setting.args.lookups();
    let progress = Progress::new(setting.figure.name, TRACES);
    let shares: Vec<f64> = (0..TRACES)
        .map(|trace| {
            let keys = keys::random(count, setting.args.seed.wrapping_add(trace << 32));
            progress.add(1);
            100.0 * keys.iter().filter(|key| matches(key)).count() as f64 / count as f64
        })
        .collect();
    let covered: u64 = ranges.iter().map(|range| u64::from(range.1 - range.0) + 1).sum();
    let (least, most) = extremes(shares.iter().copied());
    let all = "all traces";
    let summary = [
        ("least", least, Some(paper::LONG_MATCHES.0)),
        ("most", most, Some(paper::LONG_MATCHES.1)),
        ("of all addresses", 100.0 * covered as f64 / 2_f64.powi(32), None),
    ];
    let traces = (1..).zip(shares).map(|(trace, share)| (f64::from(trace), share, None));
    Ok(Drawing {
        panels: vec![
            Panel::new("trace", "% of the keys", vec![Series::new("longer than 24 bits", traces)]),
            Panel::new(
                "",
                "% of the keys",
                summary.map(|(name, share, paper)| named(name, vec![point(all, share, paper)])).into(),
            ),
        ],
        notes: vec![format!(
            "{count} keys each, uniform over all addresses; {:.3} % of the prefixes are longer than 24 bits",
            100.0 * rib(setting).iter().filter(|(prefix, _)| prefix.len() > LONG).count() as f64
                / rib(setting).len() as f64
        )],
        ..setting.figure.drawing(setting)
    })
}

/// A form of SAIL with the part that the paper has on chip.
trait Sail: Whole<u32> {
    fn on_chip(&self, address: usize) -> bool;
}

impl<F: Form, const FLAGGED: u32, const PLAIN: u32> Sail for Levels<F, FLAGGED, PLAIN> {
    fn on_chip(&self, address: usize) -> bool {
        self.on_chip(address)
    }
}

impl<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> Sail for Pushed<ROOT, MIDDLE, PLAIN> {
    fn on_chip(&self, address: usize) -> bool {
        self.on_chip(address)
    }
}

impl<const FLAGGED: u32, const PLAIN: u32> Sail for Overlay<FLAGGED, PLAIN> {
    fn on_chip(&self, address: usize) -> bool {
        self.on_chip(address)
    }
}

/// What is to be told by the probe.
struct Work<'a> {
    progress: &'a Progress,
    rib: &'a Rib<u32>,
    keys: &'a [u32],
    /// Those that change nothing are no updates.
    changes: &'a [Change<u32>],
}

/// What the probe has told.
#[derive(Default)]
struct Seen {
    on_chip_bytes: f64,
    /// Loads of one lookup at most, on chip and off chip.
    lookup: [u64; 2],
    /// Words of 64 bits stored, of each update.
    stores: Vec<u64>,
    /// Words looked at, of all updates.
    loads: u64,
    /// Words stored on chip, of one update at most.
    on_chip_stores: u64,
    /// Not all updates were made: see [`ACCESSES`].
    cut_short: bool,
}

impl Seen {
    /// What to say of a structure whose updates were not all made.
    fn cut_short(&self, name: &str) -> Option<String> {
        let updates = self.stores.len();
        let note = || format!("{name}: {updates} updates only, which made {ACCESSES} accesses and more");
        self.cut_short.then(note)
    }

    fn mean(&self) -> f64 {
        mean(&self.stores)
    }

    /// The mean of the worst whole window.
    fn worst(&self) -> f64 {
        let whole = (self.stores.len() / WINDOW * WINDOW).max(WINDOW.min(self.stores.len()));
        extremes(self.stores[..whole].chunks(WINDOW).map(mean)).1
    }
}

fn mean(stores: &[u64]) -> f64 {
    stores.iter().sum::<u64>() as f64 / stores.len().max(1) as f64
}

impl Work<'_> {
    /// Cells of 16 bits if the table fits, else of 32; of 8 if asked for.
    fn of(&self, name: &str) -> Result<Seen> {
        let rib = self.rib;
        match name {
            "sail-b" => match Levels::<EveryLevel, 17, 16>::build(rib) {
                Ok(sail) => self.tell(sail),
                Err(_) => self.tell(Levels::<EveryLevel, 32, 32>::build(rib)?),
            },
            "sail-u" => match Levels::<EverySixth, 17, 16>::build(rib) {
                Ok(sail) => self.tell(sail),
                Err(_) => self.tell(Levels::<EverySixth, 32, 32>::build(rib)?),
            },
            "sail-l8" => self.tell(Pushed::<17, 8, 8>::build(rib)?),
            "sail-l" => match Pushed::<17, 17, 16>::build(rib) {
                Ok(sail) => self.tell(sail),
                Err(_) => self.tell(Pushed::<32, 32, 32>::build(rib)?),
            },
            _ => {
                let ribs = std::slice::from_ref(rib);
                match Overlay::<17, 16>::build(ribs) {
                    Ok(sail) => self.tell(sail),
                    Err(_) => self.tell(Overlay::<32, 32>::build(ribs)?),
                }
            }
        }
    }

    /// The structure itself is changed: its writer brings a second copy up to date untold, with what is changed again right after.
    fn tell<S: Sail>(&self, mut sail: S) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut recorder = Recorder::with_log();
        let details = sail.details();
        let bytes = details.iter().find(|detail| detail.0 == "on_chip_bytes");
        seen.on_chip_bytes = bytes.map_or(0.0, |detail| detail.1);
        for &key in self.keys {
            sail.lookup_probed(key, &recorder);
            let mut loads = [0; 2];
            for access in recorder.take() {
                if let Access::Read { address, .. } = access {
                    loads[usize::from(!sail.on_chip(address))] += 1;
                }
            }
            seen.lookup = [0, 1].map(|side| seen.lookup[side].max(loads[side]));
        }
        let mut rib = self.rib.clone();
        let mut accesses = 0;
        for (i, change) in self.changes.iter().enumerate() {
            if i % BEAT == 0 {
                self.progress.beat();
            }
            if accesses >= ACCESSES {
                seen.cut_short = true;
                break;
            }
            if !rib.apply(change) {
                continue;
            }
            sail.change(&rib, change.prefix(), &recorder)?;
            let (mut all, mut on_chip) = (0, 0);
            for access in recorder.take() {
                accesses += 1;
                match access {
                    Access::Write { address, size } => {
                        let words = size.div_ceil(8) as u64;
                        all += words;
                        on_chip += if sail.on_chip(address) { words } else { 0 };
                    }
                    Access::Read { .. } => seen.loads += 1,
                }
            }
            seen.stores.push(all);
            seen.on_chip_stores = seen.on_chip_stores.max(on_chip);
        }
        Ok(seen)
    }
}

/// The user's update file, or flaps; and what to call them.
///
/// # Errors
/// The file; none of its first `most` changes anything.
fn changes(setting: &Setting<'_>, most: usize) -> Result<(Vec<Change<u32>>, String)> {
    let args = setting.args;
    let (mut changes, name) = match &args.updates {
        Some(file) => {
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
            (read_changes(file, &setting.tables[0].table.labels, &args.table.load)?, name.into_owned())
        }
        None => {
            let name = "random routes withdrawn and announced again in turn (no --updates)";
            (alternating(rib(setting), args.seed), name.into())
        }
    };
    changes.truncate(most);
    let mut after = rib(setting).clone();
    if !changes.iter().any(|change| after.apply(change)) {
        return Err(usage(format!("--updates: {name}: none of its IPv4 updates changes the table")));
    }
    Ok((changes, name))
}

/// Table 3.2.
pub(super) fn bounds(setting: &Setting<'_>) -> Result<Drawing> {
    const KEYS: usize = 1 << 16;
    const UPDATES: usize = 20_000;
    let rib = rib(setting);
    let count = setting.args.lookups().min(KEYS);
    let mut keys = keys::random(count, setting.args.seed);
    for pattern in [Pattern::PrefixBased, Pattern::Adversarial] {
        keys.extend(tidemill_lpm::keys::keys(rib, pattern, count, setting.args.seed));
    }
    let (changes, source) = changes(setting, UPDATES)?;
    let progress = Progress::new(setting.figure.name, paper::BOUNDS.len() as u64 + 1);
    let work = Work { progress: &progress, rib, keys: &keys, changes: &changes };
    let (narrow_rib, narrow_changes) = narrowed(rib, &changes);
    let narrow = Work { rib: &narrow_rib, changes: &narrow_changes, ..work };
    let mut cut_short = Vec::new();
    let (mut bytes, mut on, mut off, mut update) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The form with labels as the source's has no chunks in its cells of level 24, and so one load more off chip than the source says.
    let (l, more) = (&paper::BOUNDS[2].1, 1);
    let all = paper::BOUNDS.iter().map(|(name, bound)| (*name, bound, 0)).chain([(SOURCES, l, more)]);
    for (name, bound, more) in all {
        let seen = if name == SOURCES { narrow.of(name)? } else { work.of(name)? };
        progress.add(1);
        cut_short.extend(seen.cut_short(name));
        let [on_chip, off_chip] = seen.lookup;
        ensure!(
            seen.on_chip_bytes <= bound.on_chip_bytes
                && on_chip <= bound.lookup
                && off_chip <= paper::OFF_CHIP + more
                && bound.update.is_none_or(|most| seen.on_chip_stores <= most),
            "WRONG: {name}: beyond the paper's bound: {} bytes on chip, {on_chip} and {off_chip} loads of a lookup, {} \
             on-chip stores of an update",
            seen.on_chip_bytes,
            seen.on_chip_stores
        );
        bytes.push(point(name, seen.on_chip_bytes, Some(bound.on_chip_bytes)));
        on.push(point(name, on_chip as f64, Some(bound.lookup as f64)));
        off.push(point(name, off_chip as f64, Some(paper::OFF_CHIP as f64)));
        update.push(point(name, seen.on_chip_stores as f64, bound.update.map(|most| most as f64)));
    }
    let panel = |unit: &str, points| Panel::new("structure", unit, vec![named("most", points)]);
    Ok(Drawing {
        panels: vec![
            panel("bytes on chip", bytes),
            panel("on-chip loads of a lookup", on),
            panel("off-chip loads of a lookup", off),
            panel("on-chip stores of an update", update),
        ],
        notes: vec![
            format!(
                "the most that the probe saw of {} lookups (random, for each prefix, adverse) and {} updates ({source}); what is beyond a bound \
                 ends the figure with an error",
                keys.len(),
                work.changes.len()
            ),
            "sail-l has the bit of level 24 in the cell, as the paper's for CPUs: off chip; sail-m has it on chip, as far as there are chunks".into(),
            format!(
                "{SOURCES} has labels of 8 bits as the paper's (for it labels go up to {NARROW}, in turn), and the number of a chunk of level 32 in an \
                 array of its own: three loads off chip where the paper says two. sail-l has both in one cell of 17 bits, so two"
            ),
            "the paper: stores of an update of sail-l and sail-m are not bounded".into(),
        ]
        .into_iter()
        .chain(cut_short)
        .collect(),
        ..setting.figure.drawing(setting)
    })
}

/// `SAIL_L` with labels as wide as the paper's.
const SOURCES: &str = "sail-l8";
/// The greatest label of that one.
const NARROW: u32 = tidemill_lpm::sail::NARROW_MOST;

/// The table and the changes with labels up to [`NARROW`].
fn narrowed(rib: &Rib<u32>, changes: &[Change<u32>]) -> (Rib<u32>, Vec<Change<u32>>) {
    let label = |label: Label| if label == Label::NONE { label } else { Label(1 + (label.0 - 1) % NARROW) };
    let change = |change: &Change<u32>| match *change {
        Change::Announce(prefix, to) => Change::Announce(prefix, label(to)),
        Change::Withdraw(prefix) => Change::Withdraw(prefix),
    };
    (rib.iter().map(|(prefix, of)| (prefix, label(of))).collect(), changes.iter().map(change).collect())
}

/// Figure 3.11.
pub(super) fn accesses(setting: &Setting<'_>) -> Result<Drawing> {
    // As many as the paper's, of which some change nothing.
    let (changes, source) = changes(setting, paper::WINDOWS * WINDOW)?;
    let changes = &changes[..];
    let names = [SOURCES, "sail-l", "sail-b", "sail-u"];
    let progress = Progress::new(setting.figure.name, names.len() as u64);
    let work = Work { progress: &progress, rib: rib(setting), keys: &[], changes };
    let (narrow_rib, narrow_changes) = narrowed(work.rib, changes);
    let narrow = Work { rib: &narrow_rib, changes: &narrow_changes, ..work };
    let (mut means, mut worst, mut on_chip, mut loads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let [a, b, c] = paper::ACCESSES;
    let mut notes = vec![
        format!(
            "updates: {source}, without those that change nothing; an access is a store of up to 64 bits, as in the paper"
        ),
        format!(
            "the paper: {a}, {b} and {c} for rrc00, rrc01 and rrc03 (beside ours: their mean), and at most 7.88 of 500 updates"
        ),
        format!(
            "its labels have 8 bits, eight to an access, as those of {SOURCES}; the cells of sail-l have 17"
        ),
    ];
    if narrow_changes != changes || narrow_rib.iter().ne(work.rib.iter()) {
        notes.push(format!(
            "for {SOURCES} labels go up to {NARROW}, in turn: some next hops share one, and what moves a route among those is no update"
        ));
    }
    let mut curves = Vec::new();
    for name in names {
        progress.message(name);
        let seen = if name == SOURCES { narrow.of(name)? } else { work.of(name)? };
        progress.add(1);
        notes.extend(seen.cut_short(name));
        let paper = |value| name.starts_with("sail-l").then_some(value);
        means.push(point(name, seen.mean(), paper((a + b + c) / 3.0)));
        worst.push(point(name, seen.worst(), paper(paper::WORST_ACCESSES)));
        on_chip.push(point(name, seen.on_chip_stores as f64, (!name.starts_with("sail-l")).then_some(1.0)));
        loads.push(point(name, seen.loads as f64 / seen.stores.len().max(1) as f64, None));
        if name.starts_with("sail-l") {
            let windows = seen.stores.len().div_ceil(WINDOW).div_ceil(POINTS).max(1);
            let parts: Vec<&[u64]> = seen.stores.chunks(windows * WINDOW).collect();
            let at = |i: usize| ((i * windows * WINDOW) as f64 + parts[i].len() as f64).round();
            let curve = |what: &str, of: &dyn Fn(&[u64]) -> f64| {
                let points = parts.iter().enumerate().map(|(i, part)| (at(i), of(part), None));
                Series::new(format!("{name}, {what}"), points)
            };
            curves.push(curve("mean", &mean));
            curves.push(curve("worst 500", &|part| extremes(part.chunks(WINDOW).map(mean)).1));
        }
    }
    Ok(Drawing {
        panels: vec![
            Panel::new("updates", "accesses per update of SAIL_L", curves),
            Panel::new(
                "structure",
                "accesses per update",
                vec![
                    named("mean", means),
                    named("worst 500", worst),
                    named("most of one, on chip", on_chip),
                    named("words looked at, mean", loads),
                ],
            ),
        ],
        notes,
        ..setting.figure.drawing(setting)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_lpm::Prefix;

    fn prefix(text: &str) -> Prefix<u32> {
        text.parse().unwrap()
    }

    #[test]
    fn what_matches_long_prefixes_is_counted_once() {
        let list = ["10.0.0.0/8", "10.0.0.0/25", "10.0.0.16/28", "10.0.0.128/25", "11.0.0.0/32"];
        let rib: Rib<u32> = list.into_iter().map(|text| (prefix(text), Label(1))).collect();
        let ranges = long_ranges(&rib);
        assert_eq!(
            ranges,
            [(0x0a00_0000, 0x0a00_007f), (0x0a00_0080, 0x0a00_00ff), (0x0b00_0000, 0x0b00_0000)]
        );
    }

    #[test]
    fn the_worst_window_is_a_whole_one() {
        let mut seen = Seen { stores: vec![1; 1200], ..Seen::default() };
        seen.stores[600] = 501;
        seen.stores[1100] = 9999;
        assert_eq!(seen.worst(), 2.0);
        assert_eq!(Seen { stores: vec![3, 5], ..Seen::default() }.worst(), 4.0);
        assert_eq!(Seen::default().worst(), 0.0);
    }

    /// A default route that flaps over nothing: each update rewrites a whole level of `sail-l`.
    #[test]
    fn updates_that_rewrite_everything_are_cut_short() {
        let rib: Rib<u32> = [(prefix("0.0.0.0/0"), Label(1))].into_iter().collect();
        let changes = alternating(&rib, 1);
        let progress = Progress::new("updates", 2);
        let work = Work { progress: &progress, rib: &rib, keys: &[], changes: &changes[..20_000] };
        let (l, b) = (work.of("sail-l").unwrap(), work.of("sail-b").unwrap());
        assert!(l.cut_short && l.stores.len() < 20_000 && l.mean() > 1_000.0, "{} updates", l.stores.len());
        assert!(l.cut_short("sail-l").is_some_and(|note| note.contains("updates only")));
        assert!(!b.cut_short && b.stores.len() == 20_000 && b.stores.iter().all(|&stores| stores >= 1));
    }

    #[test]
    fn updates_of_known_cost() {
        let rib: Rib<u32> =
            [(prefix("10.0.0.0/8"), Label(1)), (prefix("10.1.2.0/24"), Label(2))].into_iter().collect();
        let changes = [
            Change::Announce(prefix("10.1.2.0/24"), Label(2)),
            Change::Announce(prefix("10.1.2.0/24"), Label(3)),
            Change::Announce(prefix("10.1.2.0/24"), Label(4)),
        ];
        let progress = Progress::new("updates", 5);
        let work =
            Work { progress: &progress, rib: &rib, keys: &[0x0a01_0203, 0x0b00_0000], changes: &changes };
        for (name, loads) in [
            ("sail-b", [25, 1]),
            ("sail-u", [4, 1]),
            ("sail-l", [1, 1]),
            ("sail-l8", [1, 1]),
            ("sail-m", [2, 1]),
        ] {
            let seen = work.of(name).unwrap();
            assert_eq!(
                (seen.lookup, &seen.stores[..], seen.on_chip_stores),
                (loads, &[1, 1][..], 0),
                "{name}"
            );
        }
    }
}
