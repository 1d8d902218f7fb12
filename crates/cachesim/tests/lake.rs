//! LaKe's model: nothing is lost uncounted, a lone query takes the sum of its parts, a flood what the narrowest part passes; and the paper's numbers.
#![allow(clippy::unwrap_used)] // a test may

use tidemill_cachesim::lake::ondemand::{OnDemand, Side, Threshold};
use tidemill_cachesim::lake::power::{CROSSING_MQPS, Power};
use tidemill_cachesim::lake::queries::{SHARED_ENTRIES, drawn, found};
use tidemill_cachesim::lake::{Ask, Config, FreeList, Gaps, Load, Outcome, Place, Query, Variant, simulate};
use tidemill_cachesim::log::KeyInfo;
use tidemill_cachesim::model::Alias;
use tidemill_cachesim::random::Random;
use tidemill_cachesim::{Log, Op, Request};

const FLOOD: Load = Load { offered_mqps: 100.0, gaps: Gaps::Even, seed: 1 };
/// 10 kqps, at which the paper measured latencies.
const LONE: Load = Load { offered_mqps: 0.01, gaps: Gaps::Even, seed: 1 };

fn gets(config: &Config, on_chip: f64, dram: f64, load: Load, count: usize) -> Outcome {
    simulate(config, load, &drawn(count, on_chip, dram, 7).unwrap()).unwrap()
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs()
}

#[test]
fn every_query_is_answered_or_counted_as_lost() {
    let mut random = Random::new(5);
    for case in 0..200 {
        let mut pick = |of: &[f64]| of[random.below(of.len() as u64) as usize];
        let config = Config {
            elements: pick(&[1.0, 2.0, 5.0, 16.0]) as usize,
            clock_mhz: pick(&[1.0, 160.0, 200.0]),
            variant: Variant::ALL[case % Variant::ALL.len()],
            dram_busy_ns: pick(&[0.0, 48.0, 115.0]),
            fifo: pick(&[1.0, 16.0]) as usize,
            host_mqps: pick(&[0.01, 0.962]),
            host_us: pick(&[0.0, 238.84]),
            host_queue: pick(&[1.0, 1024.0]) as usize,
            ..Config::default()
        };
        let gaps = [Gaps::Random, Gaps::Even, Gaps::Etc][case % 3];
        let load = Load { offered_mqps: pick(&[0.01, 1.0, 100.0]), gaps, seed: case as u64 };
        let asks = [Ask::Get, Ask::Get, Ask::Set, Ask::Delete];
        let places = [Place::OnChip, Place::Dram, Place::Nowhere];
        let mut query =
            || Query { ask: asks[random.below(4) as usize], place: places[random.below(3) as usize] };
        let queries: Vec<Query> = (0..2000).map(|_| query()).collect();
        let got = simulate(&config, load, &queries).unwrap();
        let sum = got.on_chip + got.dram + got.host + got.lost_at_elements + got.lost_at_host;
        assert_eq!((sum, got.queries), (2000, 2000), "case {case}: {config:?}, {load:?}: {got:?}");
        assert!(got.least_us <= got.mean_us && got.mean_us <= got.most_us && got.p99_us <= got.most_us);
        assert!((0.0..=1.0 + 1e-9).contains(&got.busy), "case {case}: {got:?}");
        assert!(config.variant.dram || got.reads + got.writes == 0, "case {case}");
        assert_eq!(got, simulate(&config, load, &queries).unwrap(), "case {case}: the same again");
        // Where nothing is lost, each is answered from where it lies.
        if got.lost_at_elements + got.lost_at_host == 0 {
            let of = |place| queries.iter().filter(|q| q.ask == Ask::Get && q.place == place).count() as u64;
            assert_eq!((got.on_chip, got.dram), (of(Place::OnChip), of(Place::Dram)), "case {case}");
        }
    }
}

#[test]
fn a_lone_query_takes_the_sum_of_its_parts() {
    for clock_mhz in [100.0, 160.0, 200.0] {
        let config = Config { clock_mhz, ..Config::default() };
        let us = |cycles: u64| cycles as f64 / clock_mhz;
        let service = 1.0 / config.host_mqps;
        for (name, place, ask, expected) in [
            ("on chip", Place::OnChip, Ask::Get, us(172 + 60)),
            ("in the DRAM", Place::Dram, Ask::Get, us(172 + 60) + 2.0 * 0.115),
            // One access and a read, then the host, then the fill: 20 + 1 + 6 + 6 + 20.
            ("nowhere", Place::Nowhere, Ask::Get, us(172 + 54 + 53) + 0.115 + 238.84f64.max(service)),
            ("set", Place::Dram, Ask::Set, us(172 + 60 + 40) + 0.115 + 238.84),
            ("new", Place::Nowhere, Ask::Set, us(172 + 67 + 40) + 0.115 + 238.84),
            ("delete", Place::OnChip, Ask::Delete, us(172 + 60 + 40) + 238.84),
        ] {
            let got = simulate(&config, LONE, &[Query { ask, place }; 40]).unwrap();
            // Each part is rounded to a picosecond.
            assert!(
                (got.mean_us - expected).abs() < 1e-4,
                "{name}, {clock_mhz} MHz: {} {expected}",
                got.mean_us
            );
            assert!((got.most_us - got.least_us).abs() < 1e-9, "{name}");
        }
        assert!((config.idle_get_us(2) - us(232) - 0.23).abs() < 1e-9);
    }
    // Chunks from a list in DRAM cost one more read.
    let listed = |free_list| {
        let variant = Variant { free_list, ..Variant::ALL[0] };
        let config = Config { variant, ..Config::default() };
        simulate(&config, LONE, &[Query { ask: Ask::Set, place: Place::Nowhere }; 40]).unwrap().mean_us
    };
    // And its channel is still taken by what was written just before: nothing else is.
    let more = listed(FreeList::Dram) - listed(FreeList::Sram);
    assert!((more - 0.115).abs() < 1e-6, "{more}");
}

#[test]
fn a_flood_gets_what_the_narrowest_part_passes() {
    let base = Config { wire_gbps: 1000.0, ..Config::default() };
    let cases = [
        ("the port", Config::default(), 1.0, 1250.0 / 94.0),
        ("three elements", Config { elements: 3, ..Config::default() }, 1.0, 10.0),
        ("one element, each get two reads", Config { elements: 1, ..base }, 0.0, 1.0 / 0.53),
        ("the memory network", Config { elements: 40, ..base }, 1.0, 50.0),
        ("the channel", Config { elements: 30, ..base }, 0.0, 1e3 / 96.0),
        ("half of all reads", Config { elements: 60, ..base }, 0.5, 1e3 / 48.0),
    ];
    for (name, config, on_chip, expected) in cases {
        assert!(close(config.bound_mqps(on_chip), expected, 1e-9), "{name}: {}", config.bound_mqps(on_chip));
        let got = gets(&config, on_chip, 1.0 - on_chip, FLOOD, 300_000);
        // Waits that cross leave gaps: 3 %. What is drawn differs by 1 %.
        assert!(
            got.mqps <= expected * 1.01 && got.mqps >= expected * 0.97,
            "{name}: {} {expected}",
            got.mqps
        );
    }
    // Below the bound, all that is offered is answered.
    for offered_mqps in [0.5, 5.0, 12.0] {
        let got = gets(&Config::default(), 1.0, 0.0, Load { offered_mqps, ..FLOOD }, 20_000);
        assert!(close(got.mqps, offered_mqps, 2e-3) && got.lost_at_elements == 0, "{got:?}");
    }
    // Never more, whatever it is.
    for elements in [1, 2, 4, 5, 8] {
        for percent in [0, 10, 50, 90, 100] {
            let (config, on_chip) = (Config { elements, ..Config::default() }, f64::from(percent) / 100.0);
            let got = gets(&config, on_chip, 1.0 - on_chip, FLOOD, 10_000);
            // Which queries fall in the time that counts is drawn: 3 %.
            assert!(got.mqps <= config.bound_mqps(on_chip) * 1.03, "{elements} {percent}: {}", got.mqps);
        }
    }
}

#[test]
fn more_of_everything_is_no_worse() {
    let rate = |config: &Config, on_chip: f64| gets(config, on_chip, 1.0 - on_chip, FLOOD, 20_000).mqps;
    let rises = |name: &str, rates: Vec<f64>| {
        // Drawn places differ a little from step to step: 1 %.
        assert!(rates.windows(2).all(|two| two[1] >= two[0] * 0.99), "{name}: {rates:?}");
        assert!(rates[rates.len() - 1] > rates[0] * 1.2, "{name}: {rates:?}");
    };
    let base = Config::default();
    rises("elements", (1..=8).map(|elements| rate(&Config { elements, ..base }, 0.3)).collect());
    rises("clock", (2..=25).map(|n| rate(&Config { clock_mhz: f64::from(n) * 10.0, ..base }, 0.5)).collect());
    rises("hits", (0..=10).map(|tenths| rate(&base, f64::from(tenths) / 10.0)).collect());
    rises(
        "DRAM",
        (0..=6).map(|n| rate(&Config { dram_busy_ns: f64::from(90 - 15 * n), ..base }, 0.0)).collect(),
    );
    let late = |offered_mqps| {
        let load = Load { offered_mqps, gaps: Gaps::Random, seed: 3 };
        gets(&base, 0.5, 0.5, load, 20_000).mean_us
    };
    let late = [0.01, 1.0, 4.0, 8.0].map(late);
    assert!(late.windows(2).all(|two| two[1] > two[0]), "{late:?}");
}

#[test]
fn runs_differ_by_their_seed_alone() {
    let load = Load { offered_mqps: 5.0, gaps: Gaps::Random, seed: 1 };
    let one = gets(&Config::default(), 0.5, 0.4, load, 5000);
    assert_eq!(one, gets(&Config::default(), 0.5, 0.4, load, 5000));
    assert_ne!(one.mean_us, gets(&Config::default(), 0.5, 0.4, Load { seed: 2, ..load }, 5000).mean_us);
    assert_ne!(drawn(100, 0.5, 0.4, 1).unwrap(), drawn(100, 0.5, 0.4, 2).unwrap());
}

/// Those that nothing was fitted to are marked; bench/figures.md says why the rest of the paper's numbers are not here.
#[test]
fn the_papers_numbers() {
    let config = Config::default();
    // Fitted: 3.3 M/s of an element, 1.16 us.
    assert!(close(gets(&Config { elements: 1, ..config }, 1.0, 0.0, FLOOD, 20_000).mqps, 3.3, 0.015));
    assert!(close(gets(&config, 1.0, 0.0, LONE, 100).mean_us, 1.16, 1e-3));
    // Not fitted: 13.12 M/s by the length of a query alone: 2 %.
    assert!(close(gets(&config, 1.0, 0.0, FLOOD, 40_000).mqps, 13.12, 0.02));
    // Not fitted: "fully achieved at a core frequency of 160 MHz", not below.
    let at = |clock_mhz| gets(&Config { clock_mhz, ..config }, 1.0, 0.0, FLOOD, 40_000).mqps;
    assert!(close(at(160.0), at(200.0), 0.01) && at(150.0) < 0.96 * at(200.0), "{} {}", at(150.0), at(160.0));
    // Not fitted: 59 W, of 39 and the card's parts but for what 3.4 W of load are. The NIC that was taken out is unknown: 5 %.
    let power = Power::default();
    let parts = power.host_idle_w + Variant::ALL[0].card_w() - power.lake_dynamic_w;
    assert!(close(parts, power.lake_idle_w, 0.05), "{parts}");
    // Not fitted: memcached's 9.938 kqps/W, of 4.5's watts: 1 %.
    assert!(close(962.0 / power.software_w(0.962), 9.938, 0.01));
    // LaKe's 242.962 are not of the server that draws 59 W idle: 13 to 14 % less.
    let efficiency = 13_120.0 / power.lake_w(13.12, 0.0);
    assert!((0.86..0.87).contains(&(efficiency / 242.962)), "{efficiency}");
    // Fitted: where they cross.
    assert!(close(power.crossing_mqps().unwrap(), CROSSING_MQPS, 1e-6));
    let straight = Power { host_exponent: 1.0, ..power };
    assert!(close(straight.crossing_mqps().unwrap(), 0.332, 0.002), "{:?}", straight.crossing_mqps());
    assert_eq!(Power { lake_idle_w: 200.0, ..power }.crossing_mqps(), None);
    assert_eq!((power.software_w(0.0), power.lake_w(0.0, 0.0)), (39.0, 59.0));
}

#[test]
fn variants_hold_what_their_memories_have_room_for() {
    let entries = Variant::ALL.map(|variant| (variant.name, variant.entries(), variant.card_w()));
    let expected = [
        ("full", 4_700_000, 26.0),
        ("dram", 4_700_000, 26.0),
        ("dram-list", 33_000_000, 20.0),
        ("sram", 512, 22.0),
        ("bram", 144, 16.0),
    ];
    assert_eq!(entries, expected);
    let idle = Variant::ALL.map(|variant| Power::with(&variant).lake_w(0.0, 0.0));
    assert_eq!(idle, [59.0, 59.0, 53.0, 55.0, 49.0]);
    assert_eq!(Variant::named("sram").unwrap().free_list, FreeList::Sram);
    assert_eq!(Variant::named("l2"), None);
}

fn log(keys: usize, requests: usize) -> Log {
    let (mut random, popular) = (Random::new(4), Alias::zipf(keys, 0.8).unwrap());
    let mut draw = || {
        let op = match random.below(20) {
            0 => Op::Delete,
            1 => Op::Change,
            2 | 3 => Op::Set,
            _ => Op::Get,
        };
        Request::new(op, popular.draw(&mut random), 8)
    };
    Log::new(
        (0..requests).map(|_| draw()).collect(),
        (0..keys as u64).map(|id| KeyInfo::number(id, 4)).collect(),
    )
    .unwrap()
}

/// Against an obvious model where nothing has to go: a key is somewhere if it was asked for or set and not deleted since.
#[test]
fn places_on_a_log_are_those_of_its_caches() {
    let log = log(3000, 30_000);
    let full = Config::default();
    let queries = found(&log, &full, 1 << 20, 0, 1).unwrap();
    let mut kept = vec![false; 3000];
    // The shared cache is direct-mapped: a slot has the key that came last.
    let mut slots = vec![None; SHARED_ENTRIES];
    for (request, query) in log.requests().iter().zip(&queries) {
        let key = request.key as usize;
        let slot = &mut slots[log.keys()[key].crc32 as usize % SHARED_ENTRIES];
        let place = match (kept[key], *slot == Some(key)) {
            (true, true) => Place::OnChip,
            (true, false) => Place::Dram,
            (false, in_slot) => {
                assert!(!in_slot);
                Place::Nowhere
            }
        };
        assert_eq!(query.place, place);
        kept[key] = matches!(request.op(), Op::Get | Op::Set);
        if kept[key] {
            *slot = Some(key);
        } else if *slot == Some(key) {
            *slot = None;
        }
    }
    let part = |of: &[Query], place| of.iter().filter(|query| query.place == place).count();
    assert!(part(&queries, Place::OnChip) > 3000 && part(&queries, Place::Dram) > 1000, "both are used");

    let bram = Config { variant: Variant::named("bram").unwrap(), ..full };
    let small = found(&log, &bram, bram.variant.entries(), 0, 1).unwrap();
    assert_eq!(part(&small, Place::Dram), 0);
    assert!(part(&small, Place::OnChip) < part(&queries, Place::OnChip) + part(&queries, Place::Dram));
    let dram = Config { variant: Variant::named("dram").unwrap(), ..full };
    let slow = found(&log, &dram, 1 << 20, 0, 1).unwrap();
    assert_eq!(part(&slow, Place::OnChip), 0);
    assert_eq!(part(&slow, Place::Nowhere), part(&queries, Place::Nowhere));
    assert_eq!(found(&log, &full, 1 << 20, 100, 1).unwrap(), queries[100..]);
    assert!(found(&log, &full, 7, 0, 1).is_err(), "less than a set");
}

#[test]
fn the_controller_shifts_once_and_not_back_and_forth() {
    let up = Threshold { mqps: 0.08, window: 10 };
    let down = Threshold { mqps: 0.06, window: 20 };
    let mut control = OnDemand::new(up, down).unwrap();
    // Between the two rates nothing shifts, however it swings.
    for i in 0..1000 {
        assert_eq!(control.sample(if i % 2 == 0 { 0.062 } else { 0.078 }), Side::Host);
    }
    // A spike shorter than the window is averaged away; a rise is seen after as much of the window as it takes.
    assert_eq!(control.sample(0.13), Side::Host);
    (0..20).for_each(|_| assert_eq!(control.sample(0.05), Side::Host));
    let after = (1..=10).find(|_| control.sample(0.1) == Side::Network).unwrap();
    // k of 10 samples at 0.1 and the rest at 0.05 exceed 0.08 from k = 7 on.
    assert_eq!(after, 7);
    for i in 0..1000 {
        assert_eq!(control.sample(if i % 2 == 0 { 0.062 } else { 0.078 }), Side::Network);
    }
    let after = (1..=20).find(|_| control.sample(0.0) == Side::Host).unwrap();
    // The mean of the last 20 was 0.07: below 0.06 with three samples at 0.
    assert_eq!((after, control.shifts()), (3, 2));
    // Before a window is full nothing is known.
    let mut new = OnDemand::new(up, down).unwrap();
    (0..9).for_each(|_| assert_eq!(new.sample(9.0), Side::Host));
    assert_eq!(new.sample(9.0), Side::Network);
    assert!(OnDemand::new(down, up).is_err() && OnDemand::new(up, up).is_err());
    assert!(OnDemand::new(Threshold { window: 0, ..up }, down).is_err());
}

/// Windows of different lengths: the longer one does not reach back behind the shift.
#[test]
fn a_load_that_stays_shifts_the_controller_once() {
    let threshold = |mqps, window| Threshold { mqps, window };
    let shifts = |up, down, loads: [(f64, usize); 2]| {
        let mut control = OnDemand::new(up, down).unwrap();
        for (mqps, samples) in loads {
            for _ in 0..samples {
                control.sample(mqps);
            }
        }
        control.shifts()
    };
    // Silence, then a load; and a load, then silence.
    assert_eq!(shifts(threshold(0.02, 10), threshold(0.01, 50), [(0.0, 50), (0.025, 100)]), 1);
    assert_eq!(shifts(threshold(0.001, 100), threshold(0.0005, 5), [(0.01, 100), (0.0, 100)]), 2);
}

#[test]
fn what_cannot_be_is_refused() {
    let base = Config::default();
    for (config, expected) in [
        (Config { elements: 0, ..base }, "0 processing elements: use 1 to 64"),
        (Config { elements: 65, ..base }, "65 processing elements"),
        (Config { clock_mhz: f64::NAN, ..base }, "clock (MHz) is NaN"),
        (Config { clock_mhz: 0.0, ..base }, "clock (MHz) is 0: use 1 to 10000"),
        (Config { dram_busy_ns: 116.0, ..base }, "DRAM busy (ns) is 116: use 0 to 115"),
        (Config { network_cycles: 7, ..base }, "memory network busy (cycles) is 7: use 0 to 6"),
        (Config { fifo: 0, ..base }, "FIFO (queries) is 0"),
    ] {
        let error = simulate(&config, FLOOD, &drawn(10, 1.0, 0.0, 1).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(simulate(&base, FLOOD, &[]).is_err());
    assert!(simulate(&base, Load { offered_mqps: 0.0, ..FLOOD }, &drawn(10, 1.0, 0.0, 1).unwrap()).is_err());
    assert!(drawn(10, 0.6, 0.5, 1).is_err() && drawn(10, -0.1, 0.5, 1).is_err());
    // One query is too few for rates, and answered.
    let one = simulate(&base, FLOOD, &drawn(1, 1.0, 0.0, 1).unwrap()).unwrap();
    assert_eq!((one.on_chip, one.mqps), (1, 0.0));
}
