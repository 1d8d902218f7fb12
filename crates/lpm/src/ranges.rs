//! What a RIB says of a region, as ranges of addresses.

use crate::fib::Label;
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;

/// The ranges of `region`: first addresses, ascending from the region's own, with their labels; neighbors differ.
pub(crate) fn ranges<A: Address>(rib: &Rib<A>, region: Prefix<A>) -> Vec<(A, Label)> {
    let mut ranges = Vec::new();
    ranges_into(rib, region, &mut ranges);
    ranges
}

/// The same in place of what is in `ranges`.
pub(crate) fn ranges_into<A: Address>(rib: &Rib<A>, region: Prefix<A>, ranges: &mut Vec<(A, Label)>) {
    let mut inside = rib.inside(region).peekable();
    // Mostly the region is a prefix of the table, which saves the search for what covers it.
    let outer = match inside.next_if(|&(prefix, _)| prefix == region) {
        Some((_, label)) => label,
        None => rib.covering(region).map_or(Label::NONE, |(_, label)| label),
    };
    ranges.clear();
    ranges.push((region.first(), outer));
    let cut = |ranges: &mut Vec<(A, Label)>, start, label| {
        if ranges.last().is_some_and(|&(last, _)| last == start) {
            ranges.pop();
        }
        if ranges.last().is_none_or(|&(_, last)| last != label) {
            ranges.push((start, label));
        }
    };
    // The prefixes that are open at this point, outermost first: last address and label. The region itself is not among them.
    let mut open: Vec<(A, Label)> = Vec::new();
    let close = |ranges: &mut Vec<_>, open: &mut Vec<(A, Label)>, before: Option<A>| {
        while let Some(&(last, _)) = open.last().filter(|(last, _)| before.is_none_or(|at| *last < at)) {
            open.pop();
            if last != region.last() {
                cut(ranges, last + A::one(), open.last().map_or(outer, |&(_, label)| label));
            }
        }
    };
    for (prefix, label) in inside {
        close(ranges, &mut open, Some(prefix.first()));
        open.push((prefix.last(), label));
        cut(ranges, prefix.first(), label);
    }
    close(ranges, &mut open, None);
}

/// The prefixes without those inside others, by address: who brings what they cover up to date does all.
pub(crate) fn outermost<A: Address>(changed: &[Prefix<A>]) -> Vec<Prefix<A>> {
    let mut prefixes = changed.to_vec();
    // By address and then length: what covers comes before what is covered.
    prefixes.sort_unstable();
    prefixes.dedup_by(|next, kept| kept.covers(*next));
    prefixes
}
