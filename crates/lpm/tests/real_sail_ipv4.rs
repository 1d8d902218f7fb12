//! SAIL on a real table and a real stream of updates: memory accesses per change, as in Fu's Figure 3.11. Release takes seconds.
#![allow(clippy::unwrap_used)]

mod common;

use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lpm::copies::Whole;
use tidemill_lpm::rib::Change;
use tidemill_lpm::sail::{EveryLevel, EverySixth, Levels, Overlay, Pushed, Virtually};
use tidemill_lpm::{Label, Rib};

/// The RIB after so many changes of the stream, and the changes that did change something. The stream has no next hops: an
/// announcement moves its prefix to another label, unless it is the one that the prefix has.
fn stream(data: &std::path::Path) -> (Rib<u32>, Vec<Change<u32>>) {
    let list = common::table::<u32>(&data.join("rib/ris-as3333-20260511.v4.nh148.zst"));
    let text = common::text(&data.join("rib/ris-as3333-20260511.v4.updates.zst"));
    let changes = text.lines().enumerate().take(319 * 500).map(|(i, line)| match line.split_once('\t') {
        Some(("A", prefix)) => Change::Announce(prefix.parse().unwrap(), Label(1 + i as u32 % 148)),
        Some((_, prefix)) => Change::Withdraw(prefix.parse().unwrap()),
        None => panic!("line {}", i + 1),
    });
    (list.into_iter().collect(), changes.collect())
}

/// Means per change: loads; stores on chip, off chip, and the greatest mean of stores over 500 changes.
struct Means {
    loads: f64,
    stores: [f64; 2],
    worst: f64,
}

fn play<S: Whole<u32>>(
    (rib, changes): &(Rib<u32>, Vec<Change<u32>>),
    mut sail: S,
    on_chip: fn(&S, usize) -> bool,
    greatest_on_chip: usize,
) -> Means {
    let mut rib = rib.clone();
    let mut recorder = Recorder::with_log();
    let (mut updates, mut loads, mut stores, mut windows) = (0, 0, [0; 2], vec![0]);
    for change in changes {
        if !rib.apply(change) {
            continue;
        }
        sail.change(&rib, change.prefix(), &recorder).unwrap();
        let mut written = [0; 2];
        for access in recorder.take() {
            match access {
                Access::Read { .. } => loads += 1,
                Access::Write { address, .. } => written[usize::from(!on_chip(&sail, address))] += 1,
            }
        }
        assert!(written[0] <= greatest_on_chip, "{change:?}: {written:?}");
        (0..2).for_each(|i| stores[i] += written[i]);
        updates += 1;
        *windows.last_mut().unwrap() += written[0] + written[1];
        if updates % 500 == 0 {
            windows.push(0);
        }
    }
    let mean = |count: usize| count as f64 / f64::from(updates);
    let worst = windows.into_iter().max().unwrap_or_default() as f64 / 500.0;
    let means = Means { loads: mean(loads), stores: stores.map(mean), worst };
    println!(
        "{}: {updates} changes one by one: {:.2} stores on chip, {:.2} off chip, {:.2} in the worst 500; {:.2} loads",
        sail.name(),
        means.stores[0],
        means.stores[1],
        means.worst,
        means.loads
    );
    means
}

#[test]
fn real_ipv4_accesses_per_update() {
    let Some(data) = common::data("real_ipv4_accesses_per_update (sail)") else { return };
    let stream = stream(&data);
    let rib = &stream.0;
    // On chip, one store at most, is asserted for each change.
    let b = play(&stream, Levels::<EveryLevel, 17, 16>::build(rib).unwrap(), Levels::on_chip, 1);
    let u = play(&stream, Levels::<EverySixth, 17, 16>::build(rib).unwrap(), Levels::on_chip, 1);
    let l = play(&stream, Pushed::<17, 16>::build(rib).unwrap(), Pushed::on_chip, usize::MAX);
    let lv = play(&stream, Virtually::<17, 16>::build(rib).unwrap(), Virtually::on_chip, 2);
    let m = Overlay::<17, 16>::build(std::slice::from_ref(rib)).unwrap();
    let m = play(&stream, m, Overlay::on_chip, usize::MAX);
    // Fu has 1.8 to 2.3 stores for SAIL_L, on three streams of 2013; this one's prefixes are longer, so it takes fewer.
    for means in [&b, &u, &l, &lv, &m] {
        let stores = means.stores[0] + means.stores[1];
        assert!((1.0..=2.3).contains(&stores) && means.loads < 3.0, "{stores}, {}", means.loads);
    }
    assert!(lv.worst < l.worst, "{} and {}", lv.worst, l.worst);
}
