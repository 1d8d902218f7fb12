//! What a RIB says of a region, as ranges of addresses.

use crate::fib::Label;
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;

/// The ranges of `region`: first addresses, ascending from the region's own, with their labels; neighbors differ.
pub(crate) fn ranges<A: Address>(rib: &Rib<A>, region: Prefix<A>) -> Vec<(A, Label)> {
    let outer = rib.covering(region).map_or(Label::NONE, |(_, label)| label);
    let mut ranges = vec![(region.first(), outer)];
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
    for (prefix, label) in rib.inside(region) {
        close(&mut ranges, &mut open, Some(prefix.first()));
        open.push((prefix.last(), label));
        cut(&mut ranges, prefix.first(), label);
    }
    close(&mut ranges, &mut open, None);
    ranges
}
