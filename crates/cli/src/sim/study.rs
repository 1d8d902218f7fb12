//! What the studies of caches share: their figures, configurations on all cores, numbers as people write them.

use crate::bench::catalogue::{Named, pick};
use crate::bench::drawing::{Drawing, Panel, check_plot};
use anyhow::Result;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tidemill_cachesim::model::Model;

/// A figure that is made with the arguments `A`.
pub(super) struct Figure<A> {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) make: fn(&A) -> Result<Made>,
}

/// Panels, and notes below them.
pub(super) type Made = (Vec<Panel>, Vec<String>);

impl<A> Named for Figure<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        self.title.into()
    }
}

/// Makes the figure of a name and shows it.
pub(super) fn show<A>(
    figures: &[Figure<A>],
    name: &str,
    args: &A,
    json: bool,
    plot: Option<&Path>,
) -> Result<bool> {
    let Some(figure) = pick(figures.iter(), name, json)? else { return Ok(true) };
    check_plot(plot)?;
    let (panels, notes) = (figure.make)(args)?;
    let drawing = Drawing { figure: figure.name, title: figure.title.to_owned(), table: None, panels, notes };
    drawing.show(json, plot)?;
    Ok(true)
}

/// As many threads as were asked for, or one for each core.
pub(super) fn threads(jobs: Option<u16>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    jobs.map_or_else(cores, usize::from)
}

/// Calls a function for every item on so many threads; results are in the items' order.
pub(super) fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(i) else { break };
                    let result = work(item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A number from 1, 2^N, or with k or M behind it.
pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    let number = |text: &str, factor: usize| text.parse::<usize>().ok()?.checked_mul(factor);
    let count = if let Some(power) = text.strip_prefix("2^") {
        power.parse().ok().and_then(|power| 1_usize.checked_shl(power))
    } else if let Some(thousands) = text.strip_suffix('k') {
        number(thousands, 1 << 10)
    } else if let Some(millions) = text.strip_suffix('M') {
        number(millions, 1 << 20)
    } else {
        number(text, 1)
    };
    let fits = count.filter(|count| (1..=1 << 30).contains(count));
    fits.ok_or_else(|| "give 1 to 2^30, such as 50000, 2^20, 420k, 2M".into())
}

pub(super) fn parse_model(text: &str) -> Result<Model, String> {
    let names = || Model::every().map(|model| model.name).collect::<Vec<_>>().join(", ");
    Model::named(text).ok_or_else(|| format!("no such model: use {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        for (text, count) in [("7", 7), ("2^10", 1024), ("420k", 430_080), ("2M", 1 << 21)] {
            assert_eq!(parse_count(text), Ok(count));
        }
        for wrong in ["0", "2^31", "2^99", "-1", "k", "1.5M", "99999999999999999999k", ""] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(in_parallel(4, &items, |i| i * 2), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        assert!(in_parallel(4, &[], |i: &u64| *i).is_empty());
    }
}
