//! Beside the suite: the picture on the page, what is on chip, Fu's Table 3.2 by the access probe, bounded changes, wide cells, and
//! several FIBs against as many oracles.

// Megabytes of plain data: nothing for Miri.
#![cfg(not(miri))]

use super::*;
use crate::copies::Whole;
use crate::fib::Fib;
use crate::keys::Random;
use crate::oracle::Oracle;
use crate::rib::Change;
use crate::suite::{Case, edge_cases, edges, random_case};
use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lookup::qsbr::Domain;

type B = Levels<EveryLevel, 17, 16>;
type U = Levels<EverySixth, 17, 16>;
type L = Pushed<17, 17, 16>;
type L8 = Pushed<17, 8, 8>;
type Lv = Virtually<17, 16>;
type LvWide = Virtually<32, 32>;
type M = Overlay<17, 16>;

/// A structure that knows its on-chip part.
trait Chip: Whole<u32> {
    fn make(rib: &Rib<u32>) -> Result<Self, Outgrown>;
    fn is_on_chip(&self, address: usize) -> bool;
    /// Chunks of all kinds in use.
    fn all_chunks(&self) -> usize;
}

macro_rules! chip {
    ($type:ty, $build:expr, |$sail:ident| $chunks:expr) => {
        impl Chip for $type {
            fn make(rib: &Rib<u32>) -> Result<Self, Outgrown> {
                ($build)(rib)
            }
            fn is_on_chip(&self, address: usize) -> bool {
                self.on_chip(address)
            }
            fn all_chunks(&self) -> usize {
                let $sail = self;
                $chunks
            }
        }
    };
}
chip!(B, B::build, |sail| sail.chunks());
chip!(U, U::build, |sail| sail.chunks());
chip!(L, L::build, |sail| sail.chunks().iter().sum());
chip!(L8, L8::build, |sail| sail.chunks().iter().sum());
chip!(Lv, Lv::build, |sail| sail.chunks().iter().sum());
chip!(LvWide, LvWide::build, |sail| sail.chunks().iter().sum());
chip!(M, |rib| M::build(std::slice::from_ref(rib)), |sail| sail.chunks().iter().sum());

/// Accesses: on chip, off chip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Accesses {
    reads: [usize; 2],
    writes: [usize; 2],
}

impl Accesses {
    fn of(sail: &impl Chip, recorder: &mut Recorder) -> Self {
        let mut all = Accesses::default();
        for access in recorder.take() {
            match access {
                Access::Read { address, size, .. } => {
                    assert!(size <= 8, "a load of one word");
                    all.reads[usize::from(!sail.is_on_chip(address))] += 1;
                }
                Access::Write { address, size } => {
                    assert!(size <= 8, "a store of one word");
                    all.writes[usize::from(!sail.is_on_chip(address))] += 1;
                }
            }
        }
        all
    }

    /// The greater one of each.
    fn most(&mut self, other: Accesses) {
        for i in 0..2 {
            self.reads[i] = self.reads[i].max(other.reads[i]);
            self.writes[i] = self.writes[i].max(other.writes[i]);
        }
    }
}

fn lookup<S: Chip>(sail: &S, key: u32) -> (Label, Accesses) {
    let mut recorder = Recorder::with_log();
    let label = sail.lookup_probed(key, &recorder);
    (label, Accesses::of(sail, &mut recorder))
}

fn change<S: Chip>(sail: &mut S, rib: &Rib<u32>, prefix: Prefix<u32>) -> Result<Accesses, Outgrown> {
    let mut recorder = Recorder::with_log();
    sail.change(rib, prefix, &recorder)?;
    Ok(Accesses::of(sail, &mut recorder))
}

fn rib(prefixes: &[(&str, u32)]) -> Rib<u32> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn key(text: &str) -> u32 {
    crate::prefix::Address::parse(text).unwrap()
}

#[test]
fn the_picture_on_the_page() {
    let rib = rib(&[("10.0.0.0/8", 1), ("10.1.2.0/23", 2), ("10.1.3.7/32", 3)]);
    // Loads on chip and off chip for an address of each prefix, for the chunk's rest, and for none.
    fn loads<S: Chip>(rib: &Rib<u32>) -> [[usize; 2]; 5] {
        let sail = S::make(rib).unwrap();
        let asked = [("10.200.0.0", 1), ("10.1.2.1", 2), ("10.1.3.7", 3), ("10.1.3.8", 2), ("11.0.0.0", 0)];
        asked.map(|(text, label)| {
            let (found, accesses) = lookup(&sail, key(text));
            assert_eq!(found, Label(label), "{} {text}", sail.name());
            accesses.reads
        })
    }
    assert_eq!(loads::<B>(&rib), [[17, 1], [2, 1], [1, 2], [1, 2], [25, 0]]);
    assert_eq!(loads::<U>(&rib), [[3, 1], [1, 1], [1, 2], [1, 2], [4, 0]]);
    assert_eq!(loads::<L>(&rib), [[1, 0], [1, 1], [1, 2], [1, 2], [1, 0]]);
    assert_eq!(loads::<L8>(&rib), [[1, 0], [1, 1], [1, 3], [1, 3], [1, 0]]);
    assert_eq!(loads::<Lv>(&rib), [[3, 1], [1, 1], [1, 2], [1, 3], [4, 0]]);
    assert_eq!(loads::<M>(&rib), [[1, 1], [2, 1], [2, 2], [2, 2], [1, 1]]);
    let (l, lv) = (L::build(&rib).unwrap(), Lv::build(&rib).unwrap());
    assert_eq!((l.chunks(), lv.chunks()), ([1, 1], [1, 1]));
}

/// 3.4.4: 4 MB, 2.03 MB and 2.13 MB.
#[test]
fn the_on_chip_part_is_as_large_as_fu_says() {
    let empty = Rib::new();
    assert_eq!(B::build(&empty).unwrap().on_chip_bytes(), (1 << 25) / 8);
    let sixths = (1 << 6) + (1 << 12) + (1 << 18) + (1 << 24);
    assert_eq!(U::build(&empty).unwrap().on_chip_bytes(), sixths / 8);
    // Every /16 has a chunk.
    let full: Rib<u32> = (0..1 << 16).map(|i| (Prefix::new(i << 16, 17).unwrap(), Label(1))).collect();
    let bound = ((1 << 16) * 17 + (1 << 24)) / 8;
    let (l, m) = (L::build(&full).unwrap(), M::build(&[full.clone(), empty]).unwrap());
    assert_eq!((l.on_chip_bytes(), l.chunks()), ((1 << 16) * 17 / 8, [1 << 16, 0]));
    assert_eq!((m.on_chip_bytes(), m.chunks()), (bound, [1 << 16, 0]));
    assert_eq!(Lv::build(&full).map(|lv| lv.on_chip_bytes()), Err(too_many_chunks((1 << 16) - 1)));
    let wide = Virtually::<32, 32>::build(&full).unwrap();
    assert!(wide.on_chip_bytes() < bound);
    assert_eq!([key("1.2.128.0"), key("1.2.127.0")].map(|key| wide.lookup(key)), [Label(0), Label(1)]);
}

/// The greatest numbers of accesses of one lookup and of one change: loads of lookups, stores of changes.
fn greatest<S: Chip>() -> Accesses {
    let (lookups, changes) = greatest_of_each::<S>();
    Accesses { reads: lookups.reads, writes: changes.writes }
}

/// Those of one lookup, and of one change.
fn greatest_of_each<S: Chip>() -> (Accesses, Accesses) {
    let (mut most, mut most_of_changes) = (Accesses::default(), Accesses::default());
    let named = edge_cases::<u32>().into_iter().map(|(_, case)| case);
    for case in named.chain((1..=60).map(random_case)).chain([dense(), scattered()]) {
        let mut rib: Rib<u32> = case.table.iter().copied().collect();
        let Ok(mut sail) = S::make(&rib) else { continue };
        let keys: Vec<u32> = case.prefixes().flat_map(edges).take(2000).collect();
        let look = |sail: &S, most: &mut Accesses| {
            keys.iter().for_each(|&key| most.most(lookup(sail, key).1));
        };
        look(&sail, &mut most);
        for batch in &case.batches {
            for a_change in batch {
                rib.apply(a_change);
                let Ok(accesses) = change(&mut sail, &rib, a_change.prefix()) else { break };
                most_of_changes.most(accesses);
            }
        }
        look(&sail, &mut most);
    }
    (most, most_of_changes)
}

/// A table that is full of prefixes of all lengths, and short ones that flap above it.
fn dense() -> Case<u32> {
    let mut random = Random::new(7);
    let mut table = Vec::new();
    for i in 0..1024_u32 {
        let slot = 0x0a00_0000 | i << 8;
        if i % 4 == 0 {
            table.push((Prefix::new(slot, 24).unwrap(), Label(1 + i % 7)));
        }
        let within = random.below(256) as u32;
        table.push((Prefix::new(slot | within, 25 + (i % 8) as u8).unwrap(), Label(1 + i % 5)));
    }
    table.extend((17..24).map(|len| (Prefix::new(0x0a03_0000, len).unwrap(), Label(len.into()))));
    let mut batches = Vec::new();
    for len in 0..=32 {
        for base in [0x0a00_0000, 0x0a03_ff00, 0x0b00_0000, 0x0af0_1234] {
            let prefix = Prefix::new(base, len).unwrap();
            batches.push(vec![Change::Announce(prefix, Label(100)), Change::Announce(prefix, Label(101))]);
            batches.push(vec![Change::Withdraw(prefix)]);
        }
    }
    Case { seed: 1, table, batches }
}

/// A /17 that flaps above chunks whose numbers are in no order.
fn scattered() -> Case<u32> {
    let hosts = (0..128_u32).map(|i| Prefix::new(0x0a00_0001 | (i * 77 % 128) << 8, 32).unwrap());
    let above = Prefix::new(0x0a00_0000, 17).unwrap();
    let flap = [Change::Announce(above, Label(0x5555)), Change::Withdraw(above)];
    let batch = hosts.map(|host| Change::Announce(host, Label(1))).chain(flap).collect();
    Case { seed: 1, table: Vec::new(), batches: vec![batch] }
}

#[test]
fn table_3_2_holds_for_sail_b() {
    let most = greatest::<B>();
    assert_eq!((most.reads, most.writes[0]), ([25, 2], 1), "{most:?}");
}

#[test]
fn table_3_2_holds_for_sail_u() {
    let most = greatest::<U>();
    assert_eq!((most.reads, most.writes[0]), ([4, 2], 1), "{most:?}");
}

/// Off chip a change stores its own cells and what the chunks below inherit: 64 words each, made anew or not.
#[test]
fn off_chip_stores_of_sail_b_and_sail_u_are_bounded() {
    /// The most of one change that has no chunk below it, and of any other one.
    fn most<S: Chip>(own: usize) -> [usize; 2] {
        let mut most = [0; 2];
        let named = edge_cases::<u32>().into_iter().map(|(_, case)| case);
        for case in named.chain((1..=60).map(random_case)).chain([dense(), scattered(), wide_labels()]) {
            let mut rib: Rib<u32> = case.table.iter().copied().collect();
            let Ok(mut sail) = S::make(&rib) else { continue };
            for a_change in case.batches.iter().flatten() {
                rib.apply(a_change);
                let prefix = a_change.prefix();
                let Ok(accesses) = change(&mut sail, &rib, prefix) else { break };
                let at = Prefix::new(prefix.first(), prefix.len().min(PIVOT)).unwrap();
                let mut slots: Vec<u32> = (rib.inside(at).filter(|(inner, _)| inner.len() > PIVOT))
                    .map(|(inner, _)| inner.first() >> 8)
                    .collect();
                slots.dedup();
                let stores = accesses.writes[1];
                assert!(stores <= own + 64 * slots.len(), "{a_change:?}: {stores}, {} chunks", slots.len());
                let most = &mut most[usize::from(!slots.is_empty())];
                *most = (*most).max(stores);
            }
        }
        most
    }
    // A cell of 17 bits may lie in two words; 64 cells of 16 bits at level 6.
    let (b, u) = (most::<B>(2), most::<U>(16));
    assert!(b[0] == 2 && b[1] > 64, "{b:?}");
    assert!(u[0] == 16 && u[1] > 64, "{u:?}");
}

/// Neighbors whose labels have all bits set.
fn wide_labels() -> Case<u32> {
    let slots = (0..64_u32).map(|i| Prefix::new(0x0a00_0000 | i << 8, 24).unwrap());
    let batch = slots.map(|slot| Change::Announce(slot, Label(0xffff))).collect();
    Case { seed: 1, table: Vec::new(), batches: vec![batch] }
}

#[test]
fn table_3_2_holds_for_sail_l_and_sail_m() {
    let (l, m) = (greatest::<L>(), greatest::<M>());
    assert_eq!((l.reads, m.reads), ([1, 2], [2, 2]));
    // The numbers of chunks are loads of their own.
    assert_eq!(greatest::<L8>().reads, [1, 3]);
    // The domino: as many stores as the table is large.
    assert!(l.writes[0] > 10_000 && l.writes[1] > 10_000, "{l:?}");
    assert!(m.writes[0] <= 7 && m.writes[1] > 10_000, "{m:?}");
}

#[test]
fn virtual_pushing_bounds_lookups_and_changes() {
    let most = greatest::<Lv>();
    assert!(most.reads[0] <= 4 && most.reads[1] <= 4, "{most:?}");
    assert!(most.writes[0] <= 2 && most.writes[1] <= 174, "{most:?}");
    let wide = greatest::<LvWide>();
    assert!(wide.reads[0] <= 4 && wide.reads[1] <= 4, "{wide:?}");
    assert!(wide.writes[0] <= 2 && wide.writes[1] <= 322, "{wide:?}");
    assert!(wide.writes[1] > most.writes[1], "{wide:?}: cells twice as wide take more words");
    // Before a word is stored it is loaded, whether it changes or not: as many loads as words of cells.
    let loads = [greatest_of_each::<Lv>(), greatest_of_each::<LvWide>()].map(|(_, changes)| changes.reads);
    println!("loads of a change: {loads:?}");
    assert!(loads.iter().all(|loads| loads[0] <= 2), "{loads:?}");
    assert!(loads[0][1] <= 174 && loads[1][1] <= 322, "{loads:?}");
}

/// The same changes above a table with chunks everywhere, and above an empty one.
#[test]
fn with_virtual_pushing_the_table_does_not_matter() {
    let dense: Rib<u32> = dense().table.into_iter().collect();
    let (mut empty, mut full) = (Rib::new(), dense);
    let (mut above_none, mut above) = (Lv::build(&empty).unwrap(), Lv::build(&full).unwrap());
    let mut pushed = L::build(&full).unwrap();
    let mut dominoes = 0;
    for i in 0..200_u32 {
        let prefix = Prefix::new(0x0a00_0000, (i % 17) as u8).unwrap();
        let a_change = match i / 17 % 3 {
            2 => Change::Withdraw(prefix),
            _ => Change::Announce(prefix, Label(200 + i)),
        };
        assert!(empty.apply(&a_change) == full.apply(&a_change));
        let accesses = change(&mut above, &full, prefix).unwrap();
        assert_eq!(change(&mut above_none, &empty, prefix).unwrap(), accesses, "{a_change:?}");
        assert!(accesses.writes[0] <= 1 && accesses.writes[1] <= 1, "{accesses:?}");
        let domino = change(&mut pushed, &full, prefix).unwrap();
        dominoes = dominoes.max(domino.writes[0] + domino.writes[1]);
        for key in [0x0a00_0000, 0x0a03_ff80, 0x0a04_0000, 0x0b00_0000, 0xffff_ffff] {
            let expected = full.lookup(key).map_or(Label::NONE, |(_, label)| label);
            assert_eq!([above.lookup(key), pushed.lookup(key)], [expected; 2]);
        }
    }
    assert!(dominoes > 10_000, "{dominoes}");
}

#[test]
fn withdrawals_leave_nothing_behind() {
    fn check<S: Chip>() {
        let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.0/24", 3), ("10.1.2.4/30", 4)]);
        let mut sail = S::make(&rib).unwrap();
        let before = sail.all_chunks();
        assert!(before > 0);
        let mut random = Random::new(3);
        let mut more: Vec<Prefix<u32>> = (0..300)
            .map(|_| Prefix::new(random.address::<u32>() >> 6 | 0x0a00_0000, random.below(33) as u8).unwrap())
            .filter(|&prefix| rib.get(prefix).is_none())
            .collect();
        more.sort_unstable();
        more.dedup();
        for (i, &prefix) in more.iter().enumerate() {
            rib.insert(prefix, Label(7 + i as u32 % 3));
            sail.change(&rib, prefix, &()).unwrap();
        }
        assert!(sail.all_chunks() > before);
        for (i, &prefix) in more.iter().enumerate().rev() {
            assert_eq!(sail.lookup(prefix.first()), rib.lookup(prefix.first()).unwrap().1, "{i}");
            rib.remove(prefix);
            sail.change(&rib, prefix, &()).unwrap();
        }
        assert_eq!(sail.all_chunks(), before, "{}", sail.name());
        let fresh = S::make(&rib).unwrap();
        for prefix in more {
            for key in edges(prefix) {
                // Not only the answer, but also the way to it.
                assert_eq!(lookup(&sail, key), lookup(&fresh, key), "{}", sail.name());
            }
        }
        let all: Vec<_> = rib.iter().collect();
        for (prefix, _) in all {
            rib.remove(prefix);
            sail.change(&rib, prefix, &()).unwrap();
        }
        assert_eq!((sail.all_chunks(), sail.lookup(key("10.1.2.4"))), (0, Label::NONE));
    }
    check::<B>();
    check::<U>();
    check::<L>();
    check::<L8>();
    check::<Lv>();
    check::<M>();
}

/// 17 bits of labels, or of numbers of chunks, take cells of 32.
#[test]
fn a_wide_label_or_many_chunks_take_wide_cells() {
    fn width(writer: fn(&Rib<u32>, &Domain) -> Built<u32>, rib: &Rib<u32>) -> f64 {
        let fib = writer(rib, &Domain::new()).unwrap().fib();
        for (prefix, label) in rib.iter().step_by(97) {
            assert_eq!(fib.lookup(prefix.first()), label, "{}", fib.name());
        }
        let details = fib.details();
        details.iter().find(|(name, _)| *name == "label_bits").unwrap().1
    }
    let narrow = rib(&[("10.0.0.0/8", 0xffff)]);
    let wide = rib(&[("10.0.0.0/8", 0x1_0000), ("10.128.0.0/9", 0x7fff_ffff)]);
    let hosts = |count: u32| -> Rib<u32> {
        (0..count).map(|i| (Prefix::new(i << 8 | 1, 32).unwrap(), Label(1 + i % 9))).collect()
    };
    let (fitting, many) = (hosts(0xffff), hosts(0x1_0001));
    for writer in [writer_b, writer_u, writer_l, writer_lv, writer_m] {
        assert_eq!([&narrow, &wide].map(|rib| width(writer, rib)), [16., 31.]);
    }
    for writer in [writer_b, writer_lv] {
        assert_eq!([&fitting, &many].map(|rib| width(writer, rib)), [16., 31.]);
    }
    assert_eq!(width(writer_l, &many), 31.);
}

/// 255 is the mark of a cell that leads on. A `sail-l8` is never silently something else.
#[test]
fn labels_up_to_254_take_8_bits() {
    let table = |label: u32| rib(&[("10.1.2.0/24", label), ("10.1.2.3/32", 0)]);
    let mut more = table(254);
    let mut writer = writer_l8(&more, &Domain::new()).unwrap();
    let fib = writer.fib();
    assert_eq!([key("10.1.2.0"), key("10.1.2.3")].map(|key| fib.lookup(key)), [Label(254), Label(0)]);
    let bits = fib.details().iter().find(|(name, _)| *name == "label_bits").unwrap().1;
    assert_eq!((fib.name(), bits), ("sail-l8".into(), 8.));
    let host = "10.9.9.9/32".parse().unwrap();
    more.insert(host, Label(255));
    assert!(writer.patch(&more, &[host]).is_err());
    for label in [255, 256, 0x1_0000] {
        let error = writer_l8(&table(label), &Domain::new()).err().unwrap();
        assert!(matches!(error, BuildError::LabelTooWide { width_bits: 8, .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("label {label} of 10.1.2.0/24 ")), "{error}");
    }
}

#[test]
fn a_change_that_does_not_fit_is_refused() {
    fn check<S: Chip>() {
        let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.2.3/32", 2)]);
        let sail = S::make(&rib).unwrap();
        rib.insert(Prefix::DEFAULT, Label(0x1_0000));
        assert!(sail.clone().change(&rib, Prefix::DEFAULT, &()).is_err());
        // The default route is ahead, and what is withdrawn uncovers it.
        let uncovering = "10.0.0.0/8".parse().unwrap();
        rib.remove(uncovering);
        let mut uncovered = sail.clone();
        match uncovered.change(&rib, uncovering, &()) {
            Ok(()) => assert_eq!(uncovered.lookup(key("10.0.0.0")), Label::NONE, "{}", sail.name()),
            Err(error) => assert!(error.what.contains("65536 of 0.0.0.0/0"), "{error}"),
        }
    }
    check::<B>();
    check::<U>();
    check::<L>();
    check::<L8>();
    check::<Lv>();
    check::<M>();
}

/// Labels are never mixed up between FIBs, whatever comes to one of them.
#[test]
fn each_fib_of_an_overlay_answers_as_its_own_oracle() {
    const FIBS: usize = 5;
    let mut changes = 0;
    for round in 0..12 {
        let cases: Vec<Case<u32>> = (0..FIBS).map(|fib| random_case((round * FIBS + fib) as u64)).collect();
        let mut ribs: Vec<Rib<u32>> = cases.iter().map(|case| case.table.iter().copied().collect()).collect();
        let mut overlay = Overlay::<32, 32>::build(&ribs).unwrap();
        let near: Vec<u32> = cases.iter().flat_map(Case::prefixes).flat_map(edges).collect();
        let mut random = Random::new(round as u64);
        let check = |overlay: &Overlay<32, 32>, ribs: &[Rib<u32>], random: &mut Random| {
            let oracles: Vec<Oracle<u32>> =
                ribs.iter().map(|rib| Oracle::new(&rib.iter().collect::<Vec<_>>())).collect();
            let keys: Vec<(u32, usize)> = (0..2000)
                .map(|i| match near.is_empty() || i % 8 == 0 {
                    true => (random.address(), i % FIBS),
                    false => (near[random.below(near.len())], i % FIBS),
                })
                .collect();
            let mut labels = vec![Label(u32::MAX); keys.len()];
            overlay.lookup_batch_in(&keys, &mut labels);
            for (&(key, fib), &label) in keys.iter().zip(&labels) {
                let expected = oracles[fib].lookup(key);
                assert_eq!([label, overlay.lookup_in(key, fib)], [expected; 2], "{key:x} in FIB {fib}");
            }
        };
        check(&overlay, &ribs, &mut random);
        for step in 0..13 {
            for (fib, case) in cases.iter().enumerate() {
                for change in case.batches.get(step).into_iter().flatten() {
                    ribs[fib].apply(change);
                    overlay.change_fib(&ribs, fib, change.prefix(), &()).unwrap();
                    changes += 1;
                }
            }
            check(&overlay, &ribs, &mut random);
        }
        // Without any prefix there is no chunk, and no label.
        for fib in 0..FIBS {
            let all: Vec<_> = ribs[fib].iter().collect();
            for (prefix, _) in all {
                ribs[fib].remove(prefix);
                overlay.change_fib(&ribs, fib, prefix, &()).unwrap();
            }
        }
        assert_eq!(overlay.chunks(), [0, 0]);
        assert!(near.iter().all(|&key| (0..FIBS).all(|fib| overlay.lookup_in(key, fib) == Label::NONE)));
    }
    assert!(changes > 500, "{changes}");
}

/// However many FIBs there are, the on-chip part and a lookup's accesses are those of one with all their prefixes.
#[test]
fn more_fibs_cost_nothing_on_chip() {
    let prefixes: Vec<(Prefix<u32>, Label)> = dense().table;
    let one: Rib<u32> = prefixes.iter().copied().collect();
    let mut ribs = vec![Rib::new(); 12];
    prefixes.iter().enumerate().for_each(|(i, &(prefix, label))| {
        ribs[i % 12].insert(prefix, label);
    });
    let (single, twelve) = (M::build(&[one]).unwrap(), M::build(&ribs).unwrap());
    assert_eq!(single.on_chip_bytes(), twelve.on_chip_bytes());
    assert_eq!(single.chunks(), twelve.chunks());
    for key in prefixes.iter().flat_map(|&(prefix, _)| edges(prefix)).take(4000) {
        let mut recorder = Recorder::with_log();
        twelve.lookup_in_probed(key, key as usize % 12, &recorder);
        assert_eq!(Accesses::of(&twelve, &mut recorder), lookup(&single, key).1);
    }
}
