//! `tok-5.4`: how many of an attack's combinations a direct-mapped table serves, by hash and size (Tokusashi 2019, 5.3.2).
//!
//! The paper's metric is of a table whose newest key takes its slot, whoever is there, while the same combinations come over and
//! over: a packet is a hit if the packet before in its slot had the same key. From the second round on that is so for the keys that are
//! alone in their slot: 1/e of 1,000 in 1,024 slots, if the hash is random. Its own replacement rule (5.3.4) serves more: one key in
//! every slot that has any.
//!
//! The shape for CRC-32 follows from its being linear: counting up in bits that the hash takes apart, slots fill without
//! any collision until all that the counter can reach are taken, and then every new key takes an old one's away, so that at twice as many
//! nothing is left. How many can be reached depends on how the key is laid out and which bits are used ([`PAPERS`]).

use super::{Amp, Figure};
use crate::bench::drawing::{Drawing, Panel, Series};
use anyhow::Result;
use tidemill_amp::yardstick::{Bits, Cam, Direct, Function, Order, Ours, Place, RuleTable, Tuple4};

/// The paper's sizes, as powers of two: 1K and 262K entries.
const SIZES: [u32; 2] = [10, 18];
/// The paper's expiry, seconds: nothing expires here.
const EXPIRY_S: u16 = 7830;

/// What an attack counts up from one combination to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Increment {
    /// The amplifier's address.
    Source,
    /// The victim's port.
    Port,
    /// Both.
    Both,
}

const INCREMENTS: [(Increment, &str); 3] =
    [(Increment::Source, "source"), (Increment::Port, "port"), (Increment::Both, "source and port")];

/// The layout with which the paper's numbers come out, all of them: a structure of C on a PC, the hash modulo the size.
const PAPERS: (Order, Bits, Increment) = (Order::Little, Bits::Low, Increment::Both);

impl Increment {
    /// Combination number `i`. Both begin at zero in their low bits.
    fn tuple(self, i: u32) -> Tuple4 {
        let (source, port) = match self {
            Increment::Source => (i, 0),
            Increment::Port => (0, i),
            Increment::Both => (i, i),
        };
        Tuple4 {
            source: 0x0a00_0000 + source,
            destination: 0xc000_0201,
            source_port: 53,
            destination_port: port as u16,
        }
    }
}

/// Numbers of combinations.
fn steps(log2_slots: u32) -> impl Iterator<Item = u32> {
    let step = if log2_slots == 10 { 100 } else { 100_000 };
    (1..=10).map(move |i| i * step)
}

/// Percent of the first `n` combinations that are alone in their slot, at each step.
fn alone(place: Place, log2_slots: u32, increment: Increment) -> Vec<(f64, f64)> {
    let (mut keys, mut alone, mut done) = (vec![0_u32; 1 << log2_slots], 0_u32, 0);
    let mut at = |n: u32| {
        for i in done..n {
            let slot = &mut keys[place.slot(&increment.tuple(i), log2_slots)];
            *slot += 1;
            match *slot {
                1 => alone += 1,
                2 => alone -= 1,
                _ => {}
            }
        }
        done = n;
        (f64::from(n), 100.0 * f64::from(alone) / f64::from(n))
    };
    steps(log2_slots).map(&mut at).collect()
}

/// Percent of the first `n` combinations that get a rule and keep it, if each is sent and its ICMP message comes.
fn kept(table: &mut dyn RuleTable, log2_slots: u32, increment: Increment) -> Vec<(f64, f64)> {
    let (mut kept, mut done) = (0_u32, 0);
    let mut at = |n: u32| {
        for i in done..n {
            let tuple = increment.tuple(i);
            table.packet(&tuple, 0);
            kept += u32::from(table.confirm(&tuple, 0));
        }
        done = n;
        (f64::from(n), 100.0 * f64::from(kept) / f64::from(n))
    };
    steps(log2_slots).map(&mut at).collect()
}

/// Slots that as many combinations as there are slots lead to.
fn reached(place: Place, log2_slots: u32, increment: Increment) -> usize {
    let mut slots = vec![false; 1 << log2_slots];
    (0..1 << log2_slots).for_each(|i| slots[place.slot(&increment.tuple(i), log2_slots)] = true);
    slots.into_iter().filter(|reached| *reached).count()
}

fn place(function: Function, order: Order, bits: Bits) -> Place {
    Place { function, order, bits }
}

/// What the paper says of its own table: for CRC-32 nothing is mitigated beyond 600 and 500,000 combinations, with lookup3 38 % at 1,000.
fn papers(function: Function, n: f64) -> Option<f64> {
    match function {
        Function::Crc32 if n > 500_000.0 || n > 600.0 && n <= 1000.0 => Some(0.0),
        Function::Lookup3 if n == 1000.0 => Some(38.0),
        _ => None,
    }
}

fn series(name: &str, points: Vec<(f64, f64)>, paper: impl Fn(f64) -> Option<f64>) -> Series {
    Series::new(name, points.into_iter().map(|(n, y)| (n, y, paper(n))))
}

/// `tok-5.4`.
pub(super) fn figure(args: &Amp, figure: &'static Figure) -> Result<Drawing> {
    let (order, bits, increment) = PAPERS;
    let (mut panels, mut notes) = (Vec::new(), Vec::new());
    for log2_slots in SIZES {
        let slots = 1 << log2_slots;
        let x = format!("combinations, {slots} entries");
        let (mut alones, mut kepts) = (Vec::new(), Vec::new());
        for (function, name) in [(Function::Crc32, "crc32"), (Function::Lookup3, "lookup3")] {
            let place = place(function, order, bits);
            alones.push(series(name, alone(place, log2_slots, increment), |n| papers(function, n)));
            let mut table = Direct::new(place, log2_slots, EXPIRY_S);
            kepts.push(series(name, kept(&mut table, log2_slots, increment), |_| None));
            notes.push(format!(
                "{slots} entries, {name}: {} of them are reached by {slots} combinations",
                reached(place, log2_slots, increment)
            ));
        }
        let mut cam = Cam::new(Cam::PAPER, EXPIRY_S.into());
        kepts.push(series("CAM, 1024 entries", kept(&mut cam, log2_slots, increment), |_| None));
        let mut ours = Ours::new(slots, EXPIRY_S.into())?;
        kepts.push(series("ours", kept(&mut ours, log2_slots, increment), |_| None));
        panels.push(Panel::new(&x, "percent alone in their slot", alones));
        panels.push(Panel::new(&x, "percent with a rule that stays", kepts));
        if args.patterns {
            panels.push(Panel::new(x, "percent alone in their slot, by pattern", patterns(log2_slots)));
        }
    }
    notes.push(
        "the paper's metric is the first of each pair; the second is what its replacement rule keeps".into(),
    );
    Ok(Drawing { panels, notes, ..figure.drawing() })
}

/// CRC-32 with all layouts, and lookup3 with the paper's.
fn patterns(log2_slots: u32) -> Vec<Series> {
    let mut all = Vec::new();
    for (increment, counted) in INCREMENTS {
        // There are 65,536 ports.
        if increment == Increment::Port && log2_slots > 16 {
            continue;
        }
        for (order, laid) in [(Order::Network, "network"), (Order::Little, "little")] {
            for (bits, used) in [(Bits::Low, "low"), (Bits::High, "high")] {
                let place = place(Function::Crc32, order, bits);
                let name = format!("crc32, {counted}, {laid}, {used}");
                all.push(series(&name, alone(place, log2_slots, increment), |_| None));
            }
        }
        let place = place(Function::Lookup3, PAPERS.0, PAPERS.1);
        all.push(series(&format!("lookup3, {counted}"), alone(place, log2_slots, increment), |_| None));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn papers_place(function: Function) -> Place {
        place(function, PAPERS.0, PAPERS.1)
    }

    /// Percent of the hits of a table whose newest key takes the slot, in the third round.
    fn overwriting(place: Place, log2_slots: u32, n: u32) -> f64 {
        let (mut slots, mut hits) = (vec![None; 1 << log2_slots], 0);
        for round in 0..3 {
            for i in 0..n {
                let tuple = PAPERS.2.tuple(i);
                let before = slots[place.slot(&tuple, log2_slots)].replace(tuple);
                hits += u32::from(round == 2 && before == Some(tuple));
            }
        }
        100.0 * f64::from(hits) / f64::from(n)
    }

    #[test]
    fn hits_of_an_overwriting_table_are_the_keys_that_are_alone() {
        for function in [Function::Crc32, Function::Lookup3] {
            let place = papers_place(function);
            for (n, percent) in alone(place, 10, PAPERS.2) {
                assert_eq!(percent, overwriting(place, 10, n as u32), "{function:?} {n}");
            }
        }
    }

    #[test]
    fn crc32_fails_where_the_paper_says() {
        let percents = |log2_slots| -> Vec<f64> {
            let all = alone(papers_place(Function::Crc32), log2_slots, PAPERS.2);
            all.into_iter().map(|(_, percent)| percent).collect()
        };
        let small = percents(10);
        assert_eq!(small[..2], [100.0; 2]);
        assert!(small[4] > 0.0, "500: {}", small[4]);
        assert_eq!(small[5..], [0.0; 5], "from 600 on");
        let large = percents(18);
        assert_eq!(large[..2], [100.0; 2], "no miss at 200,000");
        assert!(large[4] > 4.0, "500,000: {}", large[4]);
        assert_eq!(large[5..], [0.0; 5], "past 500,000");
        assert_eq!(SIZES.map(|size| reached(papers_place(Function::Crc32), size, PAPERS.2)), [256, 262_144]);
    }

    #[test]
    fn lookup3_is_random() {
        let all = alone(papers_place(Function::Lookup3), 10, PAPERS.2);
        let (n, percent) = all[9];
        assert_eq!(n, 1000.0);
        assert!((36.0..40.0).contains(&percent), "{percent}, 1/e is 37.7");
        let mut table = Direct::new(papers_place(Function::Lookup3), 10, EXPIRY_S);
        let percent = kept(&mut table, 10, PAPERS.2)[9].1;
        assert!((62.0..66.0).contains(&percent), "{percent}, 1 - 1/e of 1024 is 63.8 of 1000");
    }

    #[test]
    fn a_rule_that_is_kept_is_there_in_the_next_round() {
        for function in [Function::Crc32, Function::Lookup3] {
            let mut table = Direct::new(papers_place(function), 10, EXPIRY_S);
            let percent = kept(&mut table, 10, PAPERS.2)[9].1;
            let filtered = (0..1000)
                .filter(|i| table.packet(&PAPERS.2.tuple(*i), 1) == tidemill_amp::yardstick::Seen::Filtered);
            assert_eq!(percent, filtered.count() as f64 / 10.0, "{function:?}");
        }
    }
}
