//! `--figure fu-4.7`: lookup speed against load, one lookup after the other, random keys that are there.

use super::tables::Subject;
use super::work::{Filled, How, Plan, Which, rate};
use crate::bench::drawing::{Drawing, Panel, Series as Curve};
use crate::bench::statistics::median;
use anyhow::Result;
use std::time::Duration;

/// The loads of the figure.
pub(super) const LOADS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// A point of one run.
pub(super) struct Climb {
    pub(super) load: f64,
    pub(super) mlps: f64,
}

/// One table, filled further and further; it ends where the table is full.
pub(super) fn climb<const W: usize, T: Subject<W>>(plan: &Plan<W>, loads: &[f64]) -> Result<Vec<Climb>> {
    let mut filled = Filled { table: plan.empty::<T>()?, flows: 0, time: Duration::ZERO, full: false };
    let mut points = Vec::new();
    for &load in loads {
        plan.fill(&mut filled, load)?;
        if filled.full {
            break;
        }
        let (time, _) = plan.lookups(&filled, Which::Hits, How::Plain)?;
        points.push(Climb { load, mlps: rate(plan.lookups as u64, time) });
    }
    Ok(points)
}

/// A table's curve: at each load the rates of all runs.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, Vec<f64>)>,
}

impl Series {
    pub(super) fn new(name: &'static str) -> Self {
        Series { name, points: Vec::new() }
    }

    /// Adds a run.
    pub(super) fn add(&mut self, run: Vec<Climb>) {
        for (i, Climb { load, mlps }) in run.into_iter().enumerate() {
            match self.points.get_mut(i) {
                Some((_, rates)) => rates.push(mlps),
                None => self.points.push((load, vec![mlps])),
            }
        }
    }

    /// The mean of the medians at the first so many loads.
    fn overall(&self, loads: usize) -> f64 {
        let medians = self.points.iter().take(loads).map(|(_, rates)| median(rates));
        medians.sum::<f64>() / loads.max(1) as f64
    }
}

/// The figure. The paper draws the curves and gives no numbers.
pub(super) fn drawing(series: &[Series], size: &str) -> Drawing {
    let curve = |Series { name, points }: &Series| {
        Curve::new(*name, points.iter().map(|(load, rates)| (*load, median(rates), None)))
    };
    let panel = Panel::new("load: keys / slots", "M lookups/s", series.iter().map(curve).collect());
    // Compared where all can be: not every table gets to the last load.
    let common = series.iter().map(|series| series.points.len()).min().unwrap_or(0);
    let last = common.checked_sub(1).map_or(0.0, |last| LOADS[last]);
    let mut order: Vec<(&str, f64)> = series.iter().map(|s| (s.name, s.overall(common))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let order: Vec<String> = order.iter().map(|(name, mean)| format!("{name} {mean:.1}")).collect();
    Drawing {
        figure: "fu-4.7",
        title: format!(
            "Lookup speed against load (Fu 2020, Figure 4.7), {size}, hits in random order, one after the other; medians"
        ),
        table: None,
        panels: vec![Panel { missing: "full", ..panel }],
        notes: vec![
            "the paper's verdict (Fu 2020, 4.6.2): hopscotch and chaining lead; chaining when insertions count".into(),
            format!("this machine, mean over loads up to {last}: {}", order.join(", ")),
        ],
    }
}
