//! Lookups of the switch's keys of one kind, to be counted by callgrind: `cargo xtask callgrind` runs it for every kind and divides.
//!
//! `table1 KIND` makes the tables, looks all keys up until nothing changes any more, and then again inside of `table1_counted`, which is all that is to be counted. It
//! prints how many lookups that were. Without a kind it prints the kinds.
#![allow(clippy::print_stdout)] // an example

use std::error::Error;
use std::hint::black_box;
use tidemill_classify::cache::{Cache, Settings};
use tidemill_classify::live::LiveRules;
use tidemill_classify::yardstick::CuckooLayers;
use tidemill_classify::{Field, Grouping, Key, Match, Rank, Rule};
use tidemill_lookup::qsbr::Domain;

/// Name, layer, masks: HALO's baseline and the switch's cache, each with exact matches or without, and the rules behind them. Without
/// filters the cache asks for exact matches where there is more than one mask.
const KINDS: [(&str, Layer, u32); 10] = [
    ("nothing", Layer::Nothing, 1),
    ("cuckoo-exact", Layer::Cuckoo(4096), 1),
    ("cuckoo-megaflow-1", Layer::Cuckoo(0), 1),
    ("cuckoo-megaflow-20", Layer::Cuckoo(0), 20),
    ("cache-exact", Layer::Cache(4096, 0, false), 2),
    ("cache-megaflow-1", Layer::Cache(0, 0, false), 1),
    ("cache-megaflow-20", Layer::Cache(0, 0, false), 20),
    ("cache-filters-20", Layer::Cache(0, 0, true), 20),
    ("cache-signature-20", Layer::Cache(0, 4096, false), 20),
    ("rules-20", Layer::Rules, 20),
];

#[derive(Clone, Copy)]
enum Layer {
    Nothing,
    /// With room for so many exact matches.
    Cuckoo(usize),
    /// With room for so many exact matches and signatures, and with filters or without.
    Cache(usize, usize, bool),
    Rules,
}

/// Keys, and how many times over they are counted.
const KEYS: u32 = 640;
const ROUNDS: usize = 16;
/// Keys in a call.
const BURST: usize = 32;

/// Looks up a burst.
type Run<'a> = dyn FnMut(&[Key], &mut [Rank]) + 'a;

#[inline(never)]
fn table1_counted(run: &mut Run<'_>, keys: &[Key], out: &mut [Rank]) {
    for _ in 0..ROUNDS {
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            run(black_box(keys), out);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(asked) = std::env::args().nth(1) else {
        KINDS.iter().for_each(|(name, ..)| println!("{name}"));
        return Ok(());
    };
    let kind = KINDS.into_iter().find(|(name, ..)| *name == asked);
    let (_, layer, masks) = kind.ok_or_else(|| format!("there is no kind {asked:?}"))?;
    // Each rule a prefix of destinations of another length, none inside another: as many masks as rules.
    let mut live = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
    for rule in 0..masks {
        let matches = Match::any().prefix(Field::Ipv4Destination, u128::from(16 + rule) << 24, 9 + rule);
        live.insert(Rule { matches, priority: 100 })?;
    }
    live.commit();
    let keys: Vec<Key> = (0..KEYS)
        .map(|flow| {
            let open = flow.wrapping_mul(0x9e37_79b9) & (u32::MAX >> (9 + flow % masks));
            Key::ipv4(0x0a00_0000 | flow, (16 + flow % masks) << 24 | open, 1000 + flow as u16, 53, 17)
        })
        .collect();
    let snapshot = live.snapshot();
    let mut out = vec![Rank::NONE; keys.len()];
    let mut run: Box<Run<'_>> = match layer {
        Layer::Nothing => Box::new(|keys, out| {
            black_box((keys, out));
        }),
        Layer::Cuckoo(exact) => {
            let mut layers = CuckooLayers::new(exact, 7)?;
            Box::new(move |keys, out| layers.classify(snapshot.space(), keys, out))
        }
        Layer::Cache(exact, signatures, filters) => {
            let settings = Settings { exact, signatures, megaflows: 4096, masks: 64, filters };
            let mut cache = Cache::new(settings, 7)?;
            Box::new(move |keys, out| cache.classify(snapshot, 0, keys, out))
        }
        Layer::Rules => Box::new(|keys, out| snapshot.space().lookup_batch(keys, out)),
    };
    for _ in 0..3 {
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            run(keys, out);
        }
    }
    table1_counted(&mut *run, &keys, &mut out);
    if !matches!(layer, Layer::Nothing) {
        let right = |(flow, found): (u32, &Rank)| found.rule().map(|id| id.0) == Some(flow % masks);
        assert!((0..).zip(&out).all(right), "a key is not of its rule");
    }
    println!("lookups {}", ROUNDS * keys.len());
    Ok(())
}
