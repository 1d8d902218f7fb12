//! Figures 4.8 to 4.15 and Tables 3.5 and 4.1 of Tokusashi's thesis (2019), with what its text states beside ours.
//!
//! What the model assumes is in `tidemill_cachesim::lake`; what a figure assumes on top is said at its function.

use super::{Lake, QUERIES};
use crate::bench::drawing::{Panel, Point, Series, X};
use crate::sim::study::{Figure, Made, in_parallel, threads};
use anyhow::{Result, anyhow};
use tidemill_cachesim::lake::ondemand::{OnDemand, Side, Threshold};
use tidemill_cachesim::lake::power::{CROSSING_MQPS, Power};
use tidemill_cachesim::lake::queries::{drawn, found};
use tidemill_cachesim::lake::{Ask, Config, Gaps, Load, Outcome, Place, Query, Variant, simulate};
use tidemill_cachesim::model::Model;
use tidemill_cachesim::throughput::{Query as Element, set_miss_mops};

/// More than the port passes.
const FLOOD_MQPS: f64 = 20.0;
/// At which latencies were measured (4.3.2).
const LONE_MQPS: f64 = 0.01;
/// With which the DRAM alone answers what the paper measured.
const FITTED_BUSY_NS: f64 = 80.0;

pub(super) const FIGURES: &[Figure<Lake>] = &[
    Figure {
        name: "tok-3.5t",
        title: "Throughput of an element by query (Tokusashi 2019, Table 3.5)",
        make: by_query,
    },
    Figure { name: "tok-4.1t", title: "LaKe and memcached (Tokusashi 2019, Table 4.1)", make: table },
    Figure {
        name: "tok-4.4t",
        title: "LaKe with fewer memories (Tokusashi 2019, section 4.4)",
        make: memories,
    },
    Figure {
        name: "tok-4.8",
        title: "Throughput and latency by processing elements (Tokusashi 2019, Figure 4.8)",
        make: elements,
    },
    Figure {
        name: "tok-4.9",
        title: "Power efficiency by throughput (Tokusashi 2019, Figure 4.9)",
        make: efficiency,
    },
    Figure {
        name: "tok-4.10",
        title: "Throughput and latency by core frequency (Tokusashi 2019, Figure 4.10)",
        make: clock,
    },
    Figure {
        name: "tok-4.11",
        title: "Throughput and latency by hits in the shared cache (Tokusashi 2019, Figure 4.11)",
        make: on_chip,
    },
    Figure {
        name: "tok-4.12",
        title: "Throughput by hits in LaKe, 10 % in the shared cache (Tokusashi 2019, Figure 4.12)",
        make: hits,
    },
    Figure { name: "tok-4.14", title: "Power by throughput (Tokusashi 2019, Figure 4.14)", make: power },
    Figure {
        name: "tok-4.15",
        title: "Power with the on-demand controller (Tokusashi 2019, Figure 4.15)",
        make: on_demand,
    },
];

/// Gets, of which such parts are hits.
struct Case {
    config: Config,
    on_chip: f64,
    dram: f64,
    offered_mqps: f64,
}

impl Case {
    fn flood(config: Config, on_chip: f64, dram: f64) -> Self {
        Case { config, on_chip, dram, offered_mqps: FLOOD_MQPS }
    }

    fn lone(config: Config, on_chip: f64, dram: f64) -> Self {
        Case { config, on_chip, dram, offered_mqps: LONE_MQPS }
    }
}

/// Runs them all; what each came to.
fn outcomes(args: &Lake, cases: &[Case]) -> Result<Vec<Outcome>> {
    let one = |case: &Case| -> Result<Outcome> {
        let queries = drawn(args.queries.unwrap_or(QUERIES), case.on_chip, case.dram, args.seed)?;
        let load = Load { offered_mqps: case.offered_mqps, gaps: Gaps::Even, seed: args.seed };
        Ok(simulate(&case.config, load, &queries)?)
    };
    in_parallel(threads(args.jobs), cases, one).into_iter().collect()
}

/// A curve: so many M/s or microseconds for each place, and what the paper states at some of them.
fn curve(
    args: &Lake,
    name: &str,
    places: &[f64],
    case: impl Fn(f64) -> Case,
    of: fn(&Outcome) -> f64,
    paper: &[(f64, f64)],
) -> Result<Series> {
    let cases: Vec<Case> = places.iter().map(|&x| case(x)).collect();
    let outcomes = outcomes(args, &cases)?;
    let stated = |x: f64| paper.iter().find(|(at, _)| *at == x).map(|(_, y)| *y);
    Ok(Series::new(name, places.iter().zip(&outcomes).map(|(&x, outcome)| (x, of(outcome), stated(x)))))
}

fn mqps(outcome: &Outcome) -> f64 {
    outcome.mqps
}

fn mean_us(outcome: &Outcome) -> f64 {
    outcome.mean_us
}

fn bar(name: impl Into<String>, y: f64, paper: Option<f64>) -> Point {
    Point { x: X::Name(name.into()), y, paper }
}

fn bars(name: &str, points: Vec<Point>) -> Series {
    Series { name: name.into(), points }
}

/// `tok-3.5t`. Gets and sets that hit are the paper's own rates; the set that misses is made of them and of the 200 cycles of its text. LaKe's element beside
/// them: DRAM alone, and a host that keeps up, since sets are written through.
fn by_query(args: &Lake) -> Result<Made> {
    let of = |query: Element| query.element_mops();
    let chapter = vec![
        bar("GET (hit)", of(Element::GetHit), Some(1.42354)),
        bar("SET (hit)", of(Element::SetHit), Some(2.20104)),
        bar("SET (miss)", set_miss_mops(200.0), Some(0.71049)),
    ];
    let config =
        Config { elements: 1, host_mqps: 1000.0, host_us: 1.0, host_queue: 100_000, ..Config::default() };
    let load = Load { offered_mqps: FLOOD_MQPS, gaps: Gaps::Even, seed: args.seed };
    let lake = [
        ("GET (hit)", Ask::Get, Place::Dram),
        ("SET (hit)", Ask::Set, Place::Dram),
        ("SET (miss)", Ask::Set, Place::Nowhere),
    ]
    .map(|(name, ask, place)| -> Result<Point> {
        let queries = vec![Query { ask, place }; args.queries.unwrap_or(QUERIES)];
        Ok(bar(name, simulate(&config, load, &queries)?.mqps, None))
    });
    let lake = lake.into_iter().collect::<Result<Vec<Point>>>()?;
    let notes = vec![
        "GET (hit) and SET (hit) of chapter 3 are taken from the table: only SET (miss) says anything".into(),
        "a set costs LaKe's element two visits: the host's reply passes it too".into(),
    ];
    let series = vec![bars("an element of chapter 3", chapter), bars("an element of LaKe, DRAM alone", lake)];
    Ok((vec![Panel::new("query", "M operations/s", series)], notes))
}

/// `tok-4.1t`. memcached's rate and latency are inputs of the model; Emu is not modelled.
fn table(args: &Lake) -> Result<Made> {
    let config = Config::default();
    let best = outcomes(args, &[Case::flood(config, 1.0, 0.0), Case::lone(config, 1.0, 0.0)])?;
    let power = Power::default();
    let (lake, host) = (best[0].mqps, power.host_peak_mqps);
    let rows = |memcached: (f64, f64), lake: (f64, f64)| {
        vec![
            bar("memcached", memcached.0, Some(memcached.1)),
            bar("LaKe (shared cache)", lake.0, Some(lake.1)),
        ]
    };
    let latency = rows((config.host_us, 238.84), (best[1].mean_us, 1.16));
    let rate = rows((host * 1e3, 962.0), (lake * 1e3, 13_120.0));
    let watt =
        rows((host * 1e3 / power.software_w(host), 9.938), (lake * 1e3 / power.lake_w(lake, 0.0), 242.962));
    let panels = vec![
        Panel::new("system", "latency, us", vec![bars("latency", latency)]),
        Panel::new("system", "throughput, kqps", vec![bars("throughput", rate)]),
        Panel::new("system", "power efficiency, kqps/W", vec![bars("efficiency", watt)]),
    ];
    let notes = vec![
        "memcached's rate and latency are taken from the table, LaKe's latency is fitted; Emu is not modelled".into(),
        format!(
            "LaKe's 243 kqps/W are {:.1} W in all, less than the 59 W that the same server draws idle in 4.5.1: two set-ups",
            13_120.0 / 242.962
        ),
    ];
    Ok((panels, notes))
}

/// `tok-4.4t`. Assumed: the workload (model ETC, 2 M requests, half warm-up), and that a chunk without a place in the free list is of no use.
fn memories(args: &Lake) -> Result<Made> {
    let model = Model::named("etc").ok_or_else(|| anyhow!("etc: no such model"))?;
    let log = model.log(args.queries.unwrap_or(2_000_000), args.seed);
    let log = log.ok_or_else(|| anyhow!("{}: the model cannot be made", model.name))?;
    let mut points: [Vec<Point>; 5] = Default::default();
    for variant in Variant::ALL {
        let config = Config { variant, ..Config::default() };
        let on_chip = f64::from(u8::from(variant.on_chip));
        let best = outcomes(args, &[Case::flood(config, on_chip, 1.0 - on_chip)])?[0].mqps;
        let queries = found(&log, &config, variant.entries(), log.requests().len() / 2, args.seed)?;
        let (gets, missed) = queries
            .iter()
            .filter(|query| query.ask == Ask::Get)
            .fold((0_u64, 0_u64), |(gets, missed), query| {
                (gets + 1, missed + u64::from(query.place == Place::Nowhere))
            });
        let load = Load { offered_mqps: FLOOD_MQPS, gaps: Gaps::Random, seed: args.seed };
        let run = simulate(&config, load, &queries)?;
        let (rate, watts) = match variant.name {
            "dram" => (Some(6.3), None),
            "bram" => (Some(13.1), Some(16.0)),
            "full" => (Some(13.12), None),
            _ => (None, None),
        };
        let values = [
            (best, rate),
            (variant.card_w(), watts),
            (variant.entries() as f64, None),
            (100.0 * missed as f64 / gets.max(1) as f64, None),
            (run.mqps, None),
        ];
        for (of, (y, paper)) in points.iter_mut().zip(values) {
            of.push(bar(variant.name, y, paper));
        }
    }
    let titles = [
        "M gets/s, all hits",
        "watts of the card",
        "values of 64 bytes",
        "percent of ETC's gets that go to the host",
        "M requests/s of ETC answered, host and all",
    ];
    let panels =
        titles.into_iter().zip(points).map(|(y, of)| Panel::new("memories", y, vec![bars("LaKe", of)]));
    let notes = vec![
        "full: BRAM, SRAM, DRAM; dram: no shared cache; dram-list: free chunks listed in DRAM; sram: no DRAM; bram: no SRAM either".into(),
        "watts and sizes are the paper's own (4.4): 16 W, 6 for the SRAM, 4 for one DRAM module".into(),
        "ETC is the model of crates/cachesim/src/model: its keys' popularity is an assumption; values count as one chunk".into(),
    ];
    Ok((panels.collect(), notes))
}

/// `tok-4.8`. The rate at which the paper measured latency is not said: 10 kqps as in 4.11, and 90 % of the best.
fn elements(args: &Lake) -> Result<Made> {
    let places: Vec<f64> = (1..=6).map(f64::from).collect();
    let with = |n: f64| Config { elements: n as usize, ..Config::default() };
    let dram = |n: f64| Config { variant: Variant::ALL[1], ..with(n) };
    let slow = |n: f64| Config { dram_busy_ns: FITTED_BUSY_NS, ..dram(n) };
    let near =
        |n: f64| Case { offered_mqps: 0.9 * with(n).bound_mqps(1.0), ..Case::flood(with(n), 1.0, 0.0) };
    let near_dram =
        |n: f64| Case { offered_mqps: 0.9 * dram(n).bound_mqps(0.0), ..Case::flood(dram(n), 0.0, 1.0) };
    let rates = vec![
        curve(
            args,
            "shared cache",
            &places,
            |n| Case::flood(with(n), 1.0, 0.0),
            mqps,
            &[(1.0, 3.3), (5.0, 13.12)],
        )?,
        curve(args, "DRAM alone", &places, |n| Case::flood(dram(n), 0.0, 1.0), mqps, &[(5.0, 6.3)])?,
        curve(
            args,
            "DRAM alone, channel taken for 80 ns",
            &places,
            |n| Case::flood(slow(n), 0.0, 1.0),
            mqps,
            &[(5.0, 6.3)],
        )?,
    ];
    let late = vec![
        curve(
            args,
            "shared cache, 10 kqps",
            &places,
            |n| Case::lone(with(n), 1.0, 0.0),
            mean_us,
            &[(5.0, 1.16)],
        )?,
        curve(args, "shared cache, 90 % of the bound", &places, near, mean_us, &[])?,
        curve(args, "DRAM alone, 90 % of the bound", &places, near_dram, mean_us, &[])?,
    ];
    let loaded = outcomes(args, &[Case::flood(dram(5.0), 0.0, 1.0), Case::flood(slow(5.0), 0.0, 1.0)])?;
    let panels = vec![
        Panel::new("processing elements", "M gets/s", rates),
        Panel::new("processing elements", "mean latency, us", late),
    ];
    let notes = vec![
        "fitted: 3.3 M/s of one element, 1.16 us; the 13.1 follow from the length of a query".into(),
        format!(
            "a read of the DRAM takes {:.0} ns with five elements flooded (at most {:.0}), {:.0} ns (at most {:.0}) if it takes the channel for 80; the paper: 115 idle, almost twice under load, up to 650",
            loaded[0].read_ns, loaded[0].read_most_ns, loaded[1].read_ns, loaded[1].read_most_ns
        ),
        "80 ns are fitted to the paper's 6.3; 48 are the row cycle of DDR3-1866".into(),
    ];
    Ok((panels, notes))
}

/// `tok-4.9`.
fn efficiency(_: &Lake) -> Result<Made> {
    let power = Power::default();
    let lake = (0..=12)
        .map(f64::from)
        .chain([13.12])
        .map(|x| (x, x * 1e3 / power.lake_w(x, 0.0), (x == 13.12).then_some(242.962)));
    let host = [0.0, 0.25, 0.5, 0.75, 0.962]
        .map(|x| (x, x * 1e3 / power.software_w(x), (x == 0.962).then_some(9.938)));
    let series = vec![Series::new("LaKe in a server", lake), Series::new("memcached", host)];
    let notes = vec![
        "watts of the power model, no simulation; LaKe's 243 kqps/W are of a set-up that draws 54 W (tok-4.1t)".into(),
        "the paper: LaKe's efficiency is linear in its throughput".into(),
    ];
    Ok((vec![Panel::new("M queries/s", "kqps/W", series)], notes))
}

/// `tok-4.10`.
fn clock(args: &Lake) -> Result<Made> {
    let places: Vec<f64> = (10..=20).map(|n| f64::from(n) * 10.0).collect();
    let with = |clock_mhz: f64| Config { clock_mhz, ..Config::default() };
    let rate = curve(
        args,
        "shared cache",
        &places,
        |f| Case::flood(with(f), 1.0, 0.0),
        mqps,
        &[(160.0, 13.12), (200.0, 13.12)],
    )?;
    let late = curve(
        args,
        "shared cache, 10 kqps",
        &places,
        |f| Case::lone(with(f), 1.0, 0.0),
        mean_us,
        &[(200.0, 1.16)],
    )?;
    let panels = vec![
        Panel::new("core clock, MHz", "M gets/s", vec![rate]),
        Panel::new("core clock, MHz", "mean latency, us", vec![late]),
    ];
    let notes = vec![
        "that 1.16 us were measured at 200 MHz is assumed; all cycles scale, those of the ports too".into(),
        "the paper: all of it from 160 MHz on, and below it the platform's ports are the limit; here it is five elements of 60 cycles".into(),
    ];
    Ok((panels, notes))
}

/// `tok-4.11`: what the shared cache misses the DRAM has.
fn on_chip(args: &Lake) -> Result<Made> {
    let places: Vec<f64> = (0..=10).map(|n| f64::from(n) * 10.0).collect();
    let config = Config::default();
    let parts = |percent: f64| (percent / 100.0, 1.0 - percent / 100.0);
    let flood = |x: f64| Case::flood(config, parts(x).0, parts(x).1);
    let lone = |x: f64| Case::lone(config, parts(x).0, parts(x).1);
    let rate = curve(args, "LaKe", &places, flood, mqps, &[(0.0, 6.3), (100.0, 13.12)])?;
    let late = curve(args, "LaKe, 10 kqps", &places, lone, mean_us, &[(0.0, 1.9), (100.0, 1.16)])?;
    let panels = vec![
        Panel::new("percent of gets that hit in the shared cache", "M gets/s", vec![rate]),
        Panel::new("percent of gets that hit in the shared cache", "mean latency, us", vec![late]),
    ];
    let notes = vec![
        "the paper has 1.9 us at most across all hit ratios (4.3.2), and 5.6 us for a hit in the DRAM (4.3.1.3)".into(),
        "two reads of 115 ns make 0.23 us; 0.74 (or 4.4) would be six (or 38) of them".into(),
        format!(
            "6.3 M/s of five elements are {:.0} ns a get and element: one that waits for its memory cannot hold a get for longer",
            5e3 / 6.3
        ),
    ];
    Ok((panels, notes))
}

/// `tok-4.12`.
fn hits(args: &Lake) -> Result<Made> {
    let places: Vec<f64> = (1..=10).map(|n| f64::from(n) * 10.0).collect();
    let config = Config::default();
    let case = |x: f64| Case::flood(config, 0.1, (x - 10.0) / 100.0);
    let rate = curve(args, "LaKe and memcached", &places, case, mqps, &[])?;
    let host = curve(args, "memcached's part", &places, case, |outcome| outcome.host_mqps, &[])?;
    let (first, last) = (rate.points[0].y, rate.points[places.len() - 1].y);
    let straight = |x: f64| first + (last - first) * (x - places[0]) / (places[places.len() - 1] - places[0]);
    let off = places
        .iter()
        .zip(&rate.points)
        .map(|(&x, point)| (point.y / straight(x) - 1.0).abs())
        .fold(0.0, f64::max);
    let notes = vec![
        "the paper: throughput increases linearly with the hit ratio in the DRAM".into(),
        format!("ours is off a straight line between its ends by at most {:.1} %", off * 100.0),
        "what neither LaKe nor memcached answers is lost".into(),
    ];
    Ok((vec![Panel::new("percent of gets that hit in LaKe", "M gets/s answered", vec![rate, host])], notes))
}

/// kqps of Figures 4.14 and 4.15.
const KQPS: [f64; 16] = [
    0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 400.0, 600.0, 800.0, 962.0, 1200.0, 1600.0,
    2000.0,
];

/// `tok-4.14`. The card alone has no host, and so no misses.
fn power(_: &Lake) -> Result<Made> {
    let power = Power::default();
    let card = Variant::ALL[0].card_w() - power.lake_dynamic_w;
    let paper = |kqps: f64, idle: f64| if kqps == 0.0 { Some(idle) } else { None };
    let best = power.host_peak_mqps * 1e3;
    let series = vec![
        Series::new(
            "memcached",
            KQPS.into_iter().filter(|&x| x <= best).map(|x| (x, power.software_w(x / 1e3), paper(x, 39.0))),
        ),
        Series::new("LaKe in a server", KQPS.map(|x| (x, power.lake_w(x / 1e3, 0.0), paper(x, 59.0)))),
        Series::new(
            "LaKe alone",
            KQPS.map(|x| (x, card + power.lake_w(x / 1e3, 0.0) - power.lake_idle_w, None)),
        ),
    ];
    let straight = Power { host_exponent: 1.0, ..power };
    let crossing = |power: &Power| power.crossing_mqps().map_or(f64::NAN, |mqps| mqps * 1e3);
    let crossings = vec![
        bar("as fitted", crossing(&power), Some(CROSSING_MQPS * 1e3)),
        bar("in a straight line", crossing(&straight), Some(CROSSING_MQPS * 1e3)),
    ];
    let notes = vec![
        format!(
            "memcached's watts grow with the rate to the power of {:.2}: fitted to the crossing",
            power.host_exponent
        ),
        format!(
            "39 W and the card's parts are {:.1} W, less what the NIC drew; the paper has 59",
            power.host_idle_w + card
        ),
    ];
    let panels = vec![
        Panel::new("kqps", "watts", series),
        Panel::new("memcached's watts", "kqps from which LaKe draws less", vec![bars("crossing", crossings)]),
    ];
    Ok((panels, notes))
}

/// `tok-4.15`. Assumed: up at 80 kqps, down at 60, windows of ten samples, each rate for thirty. While memcached answers, LaKe's card is taken to draw no more than
/// a NIC (the paper's curve), or as much as one with BRAM alone: 16 W (4.4).
fn on_demand(_: &Lake) -> Result<Made> {
    const SAMPLES: usize = 30;
    let power = Power::default();
    let parked = Variant::ALL[4].card_w();
    let mut control =
        OnDemand::new(Threshold { mqps: CROSSING_MQPS, window: 10 }, Threshold { mqps: 0.06, window: 10 })?;
    let mut steady = |kqps: f64| (0..SAMPLES).fold(Side::Host, |_, _| control.sample(kqps / 1e3));
    let rising: Vec<(f64, Side)> = KQPS.into_iter().map(|x| (x, steady(x))).collect();
    let falling: Vec<(f64, Side)> = KQPS.into_iter().rev().map(|x| (x, steady(x))).collect();
    let shifts = control.shifts();
    let of = |name: &str, sides: &[(f64, Side)], more: f64| {
        let watts = |&(x, side): &(f64, Side)| {
            let watts = match side {
                Side::Host => power.software_w(x / 1e3) + more,
                Side::Network => power.lake_w(x / 1e3, 0.0),
            };
            (x, watts, None)
        };
        Series::new(name, sides.iter().map(watts))
    };
    let best = power.host_peak_mqps * 1e3;
    let series = vec![
        of("on demand, rising", &rising, 0.0),
        of("on demand, falling", &falling, 0.0),
        of("on demand, rising, parked card draws 16 W", &rising, parked),
        Series::new(
            "memcached",
            KQPS.into_iter().filter(|&x| x <= best).map(|x| (x, power.software_w(x / 1e3), None)),
        ),
    ];
    let notes = vec![
        format!("one sweep up and down: {shifts} shifts; between 60 and 80 kqps it stays where it is"),
        "the paper gives neither thresholds nor windows; it takes the parked card to cost nothing".into(),
    ];
    Ok((vec![Panel::new("kqps", "watts", series)], notes))
}
