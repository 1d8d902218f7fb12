//! What figures measure with: structures by name, rates of one thread and of several, misses of a modelled cache.
//!
//! The runs of all structures alternate; every timed answer is stored, and a checksum that is not the oracle's ends the figure.

use super::Setting;
use crate::bench::lpm::Case;
use crate::bench::pass::{Checksum, Order, expected, look_up, on_huge_pages, sustained, timed_pass};
use crate::bench::statistics::median;
use crate::progress::Progress;
use anyhow::{Result, bail};
use std::cell::RefCell;
use std::sync::{Arc, Barrier};
use std::time::Instant;
use tidemill_lookup::cache::{CacheConfig, Hierarchy};
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::{Pattern, keys};
use tidemill_lpm::{Algorithm, Family, Fib, Label, Oracle, Rib};

/// A structure that stands.
pub(super) struct Built<A: Family> {
    pub(super) name: String,
    pub(super) fib: Arc<dyn Fib<A>>,
    /// How long it took, run by run.
    pub(super) build_ms: Vec<f64>,
}

impl<A: Family> Built<A> {
    /// One of the structure's own figures; 0 if it has none of that name.
    pub(super) fn detail(&self, name: &str) -> f64 {
        self.fib.details().iter().find(|detail| detail.0 == name).map_or(0.0, |detail| detail.1)
    }
}

/// Builds structures, each `times` times.
///
/// # Errors
/// A name that is none, or a structure that cannot hold the table.
pub(super) fn build<A: Family>(
    setting: &Setting<'_>,
    rib: &Rib<A>,
    names: &[String],
    times: usize,
) -> Result<Vec<Built<A>>> {
    let progress = Progress::new(format!("{}, building", setting.figure.name), (names.len() * times) as u64);
    let mut built: Vec<Built<A>> = Vec::new();
    for name in names {
        let algorithm = Algorithm::parse::<A>(name)?;
        progress.message(name.as_str());
        let mut build_ms = Vec::new();
        let fib = loop {
            let start = Instant::now();
            let writer = algorithm.writer(rib, &Domain::new())?;
            build_ms.push(start.elapsed().as_secs_f64() * 1e3);
            progress.add(1);
            if build_ms.len() >= times {
                break writer.fib();
            }
        };
        built.push(Built { name: name.clone(), fib, build_ms });
    }
    Ok(built)
}

/// Keys in their order, and the right checksum.
struct Ready<A> {
    order: Order,
    keys: Arc<Array<A>>,
    expected: String,
}

fn ready<A: Family>(
    setting: &Setting<'_>,
    rib: &Rib<A>,
    case: Case,
    oracle: &Oracle<A>,
    seed: u64,
) -> Ready<A> {
    let random = on_huge_pages(keys(rib, Pattern::Random, setting.args.lookups(), seed));
    let (order, keys) = case.keys(rib, &random, setting.args.batch, seed);
    Ready { order, expected: expected(oracle, &keys, order), keys }
}

fn wrong(name: &str, case: Case, found: &str, expected: &str) -> anyhow::Error {
    let case = case.name();
    anyhow::anyhow!("WRONG: {name} {case}: checksum {found}, the oracle's is {expected}: run `fib verify`")
}

/// M lookups/s of one thread: for each structure the median over the runs.
///
/// # Errors
/// A wrong checksum.
pub(super) fn rates<A: Family>(
    setting: &Setting<'_>,
    rib: &Rib<A>,
    built: &[Built<A>],
    case: Case,
) -> Result<Vec<f64>> {
    let oracle = Oracle::new(&crate::tables::routes(rib));
    let Ready { order, keys, expected } = ready(setting, rib, case, &oracle, setting.args.seed);
    let what = format!("{}, {}", setting.figure.name, case.name());
    let progress = Progress::new(what, (setting.args.runs * built.len()) as u64);
    let mut rates = vec![Vec::new(); built.len()];
    for run in 0..setting.args.runs {
        // Who goes first changes from run to run.
        for i in (0..built.len()).map(|i| (i + run) % built.len()) {
            let Built { name, fib, .. } = &built[i];
            progress.message(name.as_str());
            let mut found = None;
            rates[i].push(sustained(setting.args.slice(), keys.len(), || {
                let pass = timed_pass(fib.as_ref(), &keys, order);
                if pass.checksum != expected {
                    found = Some(pass.checksum);
                }
                pass.time
            }));
            if let Some(found) = found {
                bail!(wrong(name, case, &found, &expected));
            }
            progress.add(1);
        }
    }
    Ok(rates.iter().map(|rates| median(rates)).collect())
}

/// M lookups/s of 1 to so many threads together on one structure, each with keys of its own: for each structure, by threads,
/// the median over the runs.
///
/// # Errors
/// A wrong checksum.
pub(super) fn rates_by_threads<A: Family>(
    setting: &Setting<'_>,
    rib: &Rib<A>,
    built: &[Built<A>],
    case: Case,
    most: usize,
) -> Result<Vec<Vec<f64>>> {
    let oracle = Oracle::new(&crate::tables::routes(rib));
    let seeds = (0..most as u64).map(|thread| setting.args.seed.wrapping_add(thread << 32));
    let sections: Vec<Ready<A>> = seeds.map(|seed| ready(setting, rib, case, &oracle, seed)).collect();
    let what = format!("{}, {}, 1 to {most} threads", setting.figure.name, case.name());
    let progress = Progress::new(what, (setting.args.runs * built.len() * most) as u64);
    let mut rates = vec![vec![Vec::new(); most]; built.len()];
    for run in 0..setting.args.runs {
        for i in (0..built.len()).map(|i| (i + run) % built.len()) {
            let Built { name, fib, .. } = &built[i];
            progress.message(name.as_str());
            for threads in 1..=most {
                let rate = together(setting, fib.as_ref(), &sections[..threads]);
                rates[i][threads - 1].push(rate.map_err(|(found, right)| wrong(name, case, &found, &right))?);
                progress.add(1);
            }
        }
    }
    Ok(rates.iter().map(|rates| rates.iter().map(|rates| median(rates)).collect()).collect())
}

/// One thread for each section of keys, all at once; the sum of their rates. All answers of a pass are stored before the next one
/// begins, and nothing else is done meanwhile: the last pass's are checked when the time is up. A wrong checksum, and the right one.
fn together<A: Family>(
    setting: &Setting<'_>,
    fib: &dyn Fib<A>,
    sections: &[Ready<A>],
) -> Result<f64, (String, String)> {
    let barrier = Barrier::new(sections.len());
    let one = |section: &Ready<A>| {
        let Ready { order, keys, expected } = section;
        let mut labels = Array::filled(keys.len(), Label::NONE);
        collapse(&labels);
        // Not counted: it finds the caches full of the answers that were written just now.
        look_up(fib, keys, &mut labels, *order, Label::NONE);
        barrier.wait();
        let (start, mut passes) = (Instant::now(), 0);
        while passes == 0 || start.elapsed() < setting.args.slice() {
            look_up(fib, keys, &mut labels, *order, Label::NONE);
            std::hint::black_box(&labels);
            passes += 1;
        }
        let rate = (passes * keys.len()) as f64 / start.elapsed().as_secs_f64() / 1e6;
        let mut checksum = Checksum::new();
        checksum.add(&labels);
        let found = checksum.text();
        if found == *expected { Ok(rate) } else { Err((found, expected.clone())) }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = sections.iter().map(|section| scope.spawn(|| one(section))).collect();
        let failed = |_| Err(("of a failed thread".to_owned(), String::new()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(failed)).sum()
    })
}

/// Lookups before the misses are counted, and while they are.
const MODELLED: usize = 1 << 20;

/// Lines that a modelled cache fetches from memory, per lookup: those of the structure, by the access probe, and those of a
/// stream of 4-byte keys and one of 2-byte answers, as the paper has them.
///
/// # Errors
/// The cache's geometry is not possible.
pub(super) fn misses<A: Family>(
    setting: &Setting<'_>,
    rib: &Rib<A>,
    fib: &dyn Fib<A>,
    case: Case,
    cache: &CacheConfig,
) -> Result<f64> {
    // Far from all real addresses, and from each other.
    const KEYS: usize = 1 << 60;
    const ANSWERS: usize = 1 << 61;
    let count = setting.args.lookups().min(MODELLED);
    let keys = keys(rib, Pattern::Random, 2 * count, setting.args.seed);
    let model = RefCell::new(Hierarchy::new(cache)?);
    let mut previous = Label::NONE;
    for j in 0..2 * count {
        if j == count {
            model.borrow_mut().reset_stats();
        }
        // As `keys::repeated` has it.
        let at = if case == Case::Rep { j / 8 + j % 8 } else { j };
        model.read(KEYS + 4 * at, 4, false);
        let key = if case == Case::Seq { keys[at] ^ A::from_u128(previous.0.into()) } else { keys[at] };
        previous = fib.lookup_probed(key, &model);
        model.write(ANSWERS + 2 * at, 2);
    }
    let stats = model.borrow().stats();
    Ok(stats.last().map_or(0.0, |last| last.misses as f64 / count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::{Subject, figures};
    use crate::bench::lpm::Lpm;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        lpm: Lpm,
    }

    /// Wrong for one key in 256.
    struct Liar(Rib<u32>);

    impl Fib<u32> for Liar {
        fn lookup(&self, key: u32) -> Label {
            let right = self.0.lookup(key).map_or(Label::NONE, |(_, label)| label);
            if key & 0xff == 7 { Label(right.0 ^ 1) } else { right }
        }
        fn name(&self) -> String {
            "liar".into()
        }
        fn bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_wrong_answer_ends_the_figure() {
        let line = "x --figure zec-3.13 --runs 1 --seconds 0.001 --lookups-ki 4";
        let args = Line::parse_from(line.split(' ')).lpm;
        let table = tidemill_feed::synth::table(&tidemill_feed::synth::SynthOptions {
            v4: 500,
            v6: 0,
            ..Default::default()
        });
        let table = table.unwrap();
        let rib = table.v4.clone();
        let figure = figures().next().unwrap();
        let setting = Setting { figure, tables: vec![Subject { name: "t".into(), table }], args: &args };
        let honest = build(&setting, &rib, &["dxr-d16r".into()], 1).unwrap();
        let liar = Built { name: "liar".into(), fib: Arc::new(Liar(rib.clone())), build_ms: Vec::new() };
        for case in [Case::Rnd, Case::Rep, Case::Seq] {
            assert!(rates(&setting, &rib, &honest, case).unwrap()[0] > 0.0);
            assert_eq!(rates_by_threads(&setting, &rib, &honest, case, 2).unwrap()[0].len(), 2);
            for result in [
                rates(&setting, &rib, std::slice::from_ref(&liar), case).map(|_| ()),
                rates_by_threads(&setting, &rib, std::slice::from_ref(&liar), case, 2).map(|_| ()),
            ] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains("WRONG: liar") && error.contains("the oracle's is"), "{error}");
            }
        }
    }
}
