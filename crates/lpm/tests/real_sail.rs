//! Memory accesses per update of SAIL on real streams (Fu 2020, Table 3.2 and Figure 3.11).
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::path::Path;
use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lpm::copies::Whole;
use tidemill_lpm::sail::{EveryLevel, EverySixth, Levels, Overlay, Pushed, Virtually};
use tidemill_lpm::{Change, Label, Rib};

/// What updates cost: of those that change the table, one by one.
#[derive(Debug, Default)]
struct Seen {
    updates: u32,
    /// Words of 64 bits that are stored.
    stores: u64,
    /// The most of one update.
    most: u64,
    /// The most on-chip ones of one update.
    on_chip: u64,
}

impl Seen {
    fn per_update(&self, count: u64) -> f64 {
        count as f64 / f64::from(self.updates)
    }
}

fn play<S: Whole<u32>>(
    mut rib: Rib<u32>,
    mut structure: S,
    changes: &[Change<u32>],
    on_chip: fn(&S, usize) -> bool,
) -> Seen {
    // Not by its writer: that brings its other copy up to date untold, with what the next update may change again.
    let (mut recorder, mut seen) = (Recorder::with_log(), Seen::default());
    for change in changes {
        if !rib.apply(change) {
            continue;
        }
        structure.change(&rib, change.prefix(), &recorder).unwrap();
        let (mut on, stores) = (0, seen.stores);
        for access in recorder.take() {
            if let Access::Write { address, size } = access {
                assert!(size <= 8, "one access each");
                seen.stores += 1;
                on += u64::from(on_chip(&structure, address));
            }
        }
        seen.updates += 1;
        seen.on_chip = seen.on_chip.max(on);
        seen.most = seen.most.max(seen.stores - stores);
    }
    seen
}

/// Lines `op prefix` or `time op peer prefix next-hop`. Without a next hop an announcement moves its prefix to another label.
fn changes(path: &Path, count: usize) -> Vec<Change<u32>> {
    let mut hops: HashMap<String, u32> = HashMap::new();
    let mut change = |(i, line): (usize, &str)| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (op, prefix, label) = match fields[..] {
            [op, prefix] => (op, prefix, 1 + i as u32 % 148),
            [_, op, _, prefix, hop] => {
                let new = hops.len() as u32 + 1;
                (op, prefix, *hops.entry(hop.into()).or_insert(new))
            }
            _ => panic!("line {}: {line:?}", i + 1),
        };
        let prefix = prefix.parse().unwrap();
        if op == "A" { Change::Announce(prefix, Label(label)) } else { Change::Withdraw(prefix) }
    };
    common::text(path).lines().take(count).enumerate().map(&mut change).collect()
}

fn rib(path: &Path) -> Rib<u32> {
    common::table::<u32>(path).into_iter().map(|(prefix, label)| (prefix, Label(1 + label.0 % 148))).collect()
}

/// The source has 1.854, 2.253 and 1.807 accesses of up to 64 bits per update of `SAIL_L`, for three tables of 2013; of its updates it
/// says no more. An update of a /24 is one access. What counts beside is how many are of shorter prefixes (a third in 2026; nearly
/// half in 2013, a fifth are /20s), and how many cells an access holds: the source's labels have 8 bits, eight to an access, as those
/// of `sail-l8`; the cells of `sail-l` have 17, fewer than four to an access, for tables with more labels.
#[test]
fn real_accesses_per_update() {
    let Some(data) = common::data("real_accesses_per_update") else { return };
    let streams = [
        ("ris-as3333-20260511.v4.nh148.zst", "ris-as3333-20260511.v4.updates.zst", 1.4..1.7, 1.0..1.4),
        ("routeviews-20140513.v4.origin.zst", "routeviews2-20130101.updates.txt.zst", 3.4..3.8, 1.8..2.3),
    ];
    for (table, stream, wide, narrow) in streams {
        let rib = rib(&data.join("rib").join(table));
        let changes = changes(&data.join("rib").join(stream), 400_000);
        let l = play(rib.clone(), Pushed::<17, 17, 16>::build(&rib).unwrap(), &changes, Pushed::on_chip);
        let l8 = play(rib.clone(), Pushed::<17, 8, 8>::build(&rib).unwrap(), &changes, Pushed::on_chip);
        let b =
            play(rib.clone(), Levels::<EveryLevel, 17, 16>::build(&rib).unwrap(), &changes, Levels::on_chip);
        let u =
            play(rib.clone(), Levels::<EverySixth, 17, 16>::build(&rib).unwrap(), &changes, Levels::on_chip);
        let lv = play(rib.clone(), Virtually::<17, 16>::build(&rib).unwrap(), &changes, Virtually::on_chip);
        let m = Overlay::<17, 16>::build(std::slice::from_ref(&rib)).unwrap();
        let m = play(rib.clone(), m, &changes, Overlay::on_chip);
        let all = [
            ("sail-l", &l),
            ("sail-l8", &l8),
            ("sail-b", &b),
            ("sail-u", &u),
            ("sail-lv", &lv),
            ("sail-m", &m),
        ];
        for (name, seen) in all {
            println!(
                "{stream}, {name}: {} updates, each {:.3} stores; at most {}, and {} on chip",
                seen.updates,
                seen.per_update(seen.stores),
                seen.most,
                seen.on_chip
            );
        }
        assert!(wide.contains(&l.per_update(l.stores)), "{l:?}");
        assert!(narrow.contains(&l8.per_update(l8.stores)), "{l8:?}");
        assert_eq!((b.on_chip, u.on_chip), (1, 1));
        // Without the domino.
        assert!(lv.stores < l.stores && lv.most <= 176 && lv.on_chip <= 2, "{lv:?}");
    }
}
