//! Rates of one thread and of several; misses of a modelled cache.

use super::{KS, paper, structure};
use crate::bench::drawing::{Drawing, Panel, Series};
use crate::bench::figures::Setting;
use crate::bench::figures::measure::{self, Built, build, rates, rates_by_threads};
use crate::bench::lpm::Case;
use anyhow::Result;
use tidemill_lookup::cache::{CacheConfig, LevelConfig};
use tidemill_lpm::{Algorithm, Rib};

const K: &str = "K";
const MLPS: &str = "M lookups/s";

fn rib<'a>(setting: &'a Setting<'_>) -> &'a Rib<u32> {
    &setting.tables[0].table.v4
}

/// Structures by K, and their rates.
struct ByK {
    ks: Vec<u8>,
    built: Vec<Built<u32>>,
    rates: Vec<f64>,
}

impl ByK {
    /// `DxR` from 16 on.
    fn plain(setting: &Setting<'_>, case: Case, last: u8) -> Result<Self> {
        let ks: Vec<u8> = (*KS.start()..=last).collect();
        let names: Vec<String> = ks.iter().map(|&k| structure(None, k)).collect();
        let built = build(setting, rib(setting), &names, 1)?;
        let rates = rates(setting, rib(setting), &built, case)?;
        Ok(ByK { ks, built, rates })
    }

    fn series(&self, name: &str, paper: impl Fn(u8) -> Option<f64>) -> Series {
        Series::new(name, self.ks.iter().zip(&self.rates).map(|(&k, &rate)| (k.into(), rate, paper(k))))
    }

    /// The greatest rate, with what the paper's is.
    fn best(&self, paper: f64) -> Series {
        let at = |best: usize, i: usize| if self.rates[i] > self.rates[best] { i } else { best };
        let best = (0..self.rates.len()).fold(0, at);
        Series::new("the best", [(self.ks[best].into(), self.rates[best], Some(paper))])
    }
}

/// Figures 3.13 and 3.14; `best` is the highest rate that the text has, on whichever of its five machines.
pub(super) fn by_k(setting: &Setting<'_>, case: Case, best: f64) -> Result<Drawing> {
    let by_k = ByK::plain(setting, case, *KS.end())?;
    let series = vec![by_k.series("DxR", |_| None), by_k.best(best)];
    Ok(Drawing {
        panels: vec![Panel::new(K, MLPS, series)],
        notes: vec![
            "the paper: best where the structure takes about half of the L3 cache, and a fall where it exceeds it; its best rate is of one of \
             five machines, at a K that is not stated"
                .into(),
        ],
        ..setting.figure.drawing(setting)
    })
}

/// Figures 3.15 to 3.17.
pub(super) fn by_threads(setting: &Setting<'_>, case: Case) -> Result<Drawing> {
    const PLAIN: [u8; 4] = [16, 18, 20, 21];
    const OTHER: &str = "dir-24-8";
    // The text, of all structures and numbers of threads.
    let stated = (case == Case::Rnd).then_some(paper::RND_TOGETHER);
    let mut names: Vec<String> = PLAIN.iter().map(|&k| structure(None, k)).collect();
    let mut notes = vec![
        "the paper: a Ryzen 7 1700, 1 to 16 threads on 8 cores; D16R to D20R grow nearly with the cores, D21R and DIR-24-8 are held up by \
         memory"
            .to_owned(),
    ];
    match Algorithm::parse::<u32>(OTHER) {
        Ok(_) => names.push(OTHER.into()),
        Err(_) => notes.push("DIR-24-8 is left out: there is none here".into()),
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let most = if setting.args.threads > 1 { setting.args.threads } else { cores };
    let built = build(setting, rib(setting), &names, 1)?;
    let rates = rates_by_threads(setting, rib(setting), &built, case, most)?;
    let series = built.iter().zip(&rates).map(|(built, rates)| {
        let points = rates.iter().enumerate().map(|(i, &rate)| ((i + 1) as f64, rate, None));
        Series::new(built.name.as_str(), points)
    });
    let mut series: Vec<Series> = series.collect();
    let points = rates.iter().flat_map(|rates| rates.iter().zip(1_u32..));
    if let Some((&rate, threads)) = points.max_by(|a, b| a.0.total_cmp(b.0)) {
        series.push(Series::new("the best", [(threads.into(), rate, stated)]));
    }
    Ok(Drawing {
        panels: vec![Panel::new("threads", MLPS, series)],
        notes,
        ..setting.figure.drawing(setting)
    })
}

/// The caches of the paper's i7-4771.
fn i7_4771() -> CacheConfig {
    let level = |size_bytes, ways| LevelConfig { size_bytes, ways };
    CacheConfig { line_bytes: 64, levels: vec![level(32 << 10, 8), level(256 << 10, 8), level(8 << 20, 16)] }
}

/// Figures 3.18 to 3.20.
pub(super) fn misses(setting: &Setting<'_>, case: Case) -> Result<Drawing> {
    let by_k = ByK::plain(setting, case, 22)?;
    let (rate, missed): (Option<f64>, &[(u8, f64)]) = match case {
        Case::Rnd => (Some(211.18), &paper::MISSES),
        Case::Rep => (None, &paper::REP_MISSES),
        _ => (None, &paper::MISSES),
    };
    let mut modelled = Vec::new();
    for (k, built) in by_k.ks.iter().zip(&by_k.built) {
        let ours = measure::misses(setting, rib(setting), built.fib.as_ref(), case, &i7_4771())?;
        let paper = missed.iter().find(|(of, _)| of == k).map(|&(_, misses)| misses);
        modelled.push((f64::from(*k), ours, paper));
    }
    let rates = by_k.series("DxR", |k| rate.filter(|_| k == 21));
    Ok(Drawing {
        panels: vec![
            Panel::new(K, MLPS, vec![rates]),
            Panel::new(K, "L3 misses per lookup, modelled", vec![Series::new("DxR", modelled)]),
        ],
        notes: vec![
            "rates are this machine's; misses are those of a model of the paper's i7-4771 (32 KB, 256 KB, 8 MB; LRU, nothing fetched ahead), \
             4 bytes of key and 2 of answer per lookup as there"
                .into(),
        ],
        ..setting.figure.drawing(setting)
    })
}

/// Figures 4.6 to 4.8.
pub(super) fn arrangements(setting: &Setting<'_>, case: Case) -> Result<Drawing> {
    let stated: &[(u8, u8, f64)] = match case {
        Case::Rnd => &paper::RND,
        Case::Rep => &paper::REP,
        _ => &[],
    };
    let all: Vec<(Option<u8>, u8)> = [None, Some(12), Some(14), Some(16)]
        .into_iter()
        .flat_map(|d| KS.filter(move |&k| d.is_none_or(|d| d < k)).map(move |k| (d, k)))
        .collect();
    let names: Vec<String> = all.iter().map(|&(d, k)| structure(d, k)).collect();
    let built = build(setting, rib(setting), &names, 1)?;
    let rates = rates(setting, rib(setting), &built, case)?;
    let series =
        [(None, "DxR"), (Some(12), "D12XxR"), (Some(14), "D14XxR"), (Some(16), "D16XxR")].map(|(d, name)| {
            let of_d = all.iter().zip(&rates).filter(|((of, _), _)| *of == d);
            let paper =
                |k| stated.iter().find(|&&(of, at, _)| (of, at) == (d.unwrap_or(0), k)).map(|line| line.2);
            Series::new(name, of_d.map(|(&(_, k), &rate)| (k.into(), rate, paper(k))))
        });
    let verdict = match case {
        Case::Rnd => {
            "the paper: alike up to K = 21; at 22 DxR collapses and D16X6R is best (255.4); on a Ryzen 1700 up to 370 (Figure 4.9)"
        }
        Case::Rep => "the paper: nearly 400 and more with keys that come again",
        _ => "the paper: all more than 50",
    };
    Ok(Drawing {
        panels: vec![Panel::new(K, MLPS, series.into())],
        notes: vec![verdict.into(), "D16 begins at K = 17: without extension bits it is D16R".into()],
        ..setting.figure.drawing(setting)
    })
}
