//! From prefixes to ranges, and the choice of the descriptor's split.

use super::{Layout, MAX_RANGE_WORDS, Split};
use crate::fib::{BuildError, Label};
use crate::prefix::Prefix;
use crate::rib::Rib;

/// Addresses from `start` to the next range's start have one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) label: u32,
}

/// Deepest nesting of prefixes: lengths 0 to 32.
const DEPTH: usize = 33;

/// Flattens prefixes into sorted ranges with different neighbours, in one pass (Zec 3.1 and 3.5). `prefixes` come by
/// address and then length and lie inside `span`; `outer` is the label of what covers `span` from outside. The first
/// range begins at `span`'s first address; `ranges` is cleared before.
pub(crate) fn flatten(
    span: Prefix<u32>,
    outer: Label,
    prefixes: impl Iterator<Item = (Prefix<u32>, Label)>,
    ranges: &mut Vec<Range>,
) {
    ranges.clear();
    ranges.push(Range { start: span.first(), label: outer.0 });
    // The prefixes that cover the address we are at, outermost first: last address and label.
    let mut open = [(span.last(), outer.0); DEPTH + 1];
    let mut depth = 0;
    for (prefix, label) in prefixes {
        depth = close(&open, depth, prefix.first(), ranges);
        // A prefix is longer than what covers it, so at most 33 are open.
        depth = (depth + 1).min(DEPTH);
        open[depth] = (prefix.last(), label.0);
        begin(ranges, prefix.first(), label.0);
    }
    close_all(&open, depth, span.last(), ranges);
}

/// What the RIB says about `span`.
pub(crate) fn flatten_from(rib: &Rib<u32>, span: Prefix<u32>, ranges: &mut Vec<Range>) {
    let mut inside = rib.inside(span).peekable();
    // Most prefixes are there themselves, which saves the search for what covers them.
    let outer = match inside.peek() {
        Some(&(prefix, label)) if prefix == span => label,
        _ => rib.covering(span).map_or(Label::NONE, |(_, label)| label),
    };
    flatten(span, outer, inside, ranges);
}

/// Ends the prefixes that end before `address`; returns how many stay open.
#[inline]
fn close(open: &[(u32, u32)], mut depth: usize, address: u32, ranges: &mut Vec<Range>) -> usize {
    while depth > 0 && open[depth].0 < address {
        begin(ranges, open[depth].0 + 1, open[depth - 1].1);
        depth -= 1;
    }
    depth
}

fn close_all(open: &[(u32, u32)], mut depth: usize, last: u32, ranges: &mut Vec<Range>) {
    while depth > 0 {
        if open[depth].0 < last {
            begin(ranges, open[depth].0 + 1, open[depth - 1].1);
        }
        depth -= 1;
    }
}

/// From `start` on the label is `label`, whatever was said before about `start`.
#[inline]
fn begin(ranges: &mut Vec<Range>, start: u32, label: u32) {
    if let Some(last) = ranges.last_mut() {
        if last.start == start {
            last.label = label;
            let len = ranges.len();
            if len > 1 && ranges[len - 2].label == label {
                ranges.pop();
            }
            return;
        }
        if last.label == label {
            return;
        }
    }
    ranges.push(Range { start, label });
}

/// A copy of ranges with other content in some places.
pub(super) struct Splice<'a> {
    old: &'a [Range],
    /// Of `old`, those in front of this one are in `to` or replaced.
    at: usize,
    last: u32,
    to: &'a mut Vec<Range>,
}

impl<'a> Splice<'a> {
    /// Begins a copy of `old`, which covers `span`, in `to`, which is cleared before.
    pub(super) fn new(span: Prefix<u32>, old: &'a [Range], to: &'a mut Vec<Range>) -> Self {
        to.clear();
        Splice { old, at: 0, last: span.last(), to }
    }

    /// Replaces what the ranges say about `span`, which is behind those replaced before, by `inner`.
    pub(super) fn replace(&mut self, span: Prefix<u32>, inner: &[Range]) {
        self.copy(|range| range.start < span.first());
        inner.iter().for_each(|range| begin(self.to, range.start, range.label));
        self.at += self.old[self.at..].iter().take_while(|range| range.start <= span.last()).count();
        if span.last() < self.last
            && let Some(goes_on) = self.at.checked_sub(1).and_then(|at| self.old.get(at))
        {
            begin(self.to, span.last() + 1, goes_on.label);
        }
    }

    /// Ends the copy.
    pub(super) fn finish(mut self) {
        self.copy(|_| true);
    }

    #[inline]
    fn copy(&mut self, wanted: impl Fn(&Range) -> bool) {
        while let Some(range) = self.old.get(self.at).filter(|range| wanted(range)) {
            begin(self.to, range.start, range.label);
            self.at += 1;
        }
    }
}

/// Chunks with one content: several if one range fills them, otherwise one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch<'a> {
    /// The first chunk's number.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// Their ranges, of which the first may begin before the chunk.
    pub(crate) ranges: &'a [Range],
}

/// A span's chunks, by stretches: most of the space, and all but a little of a small table, is long ones.
pub(crate) struct Chunks<'a> {
    ranges: &'a [Range],
    rest: u32,
    next: u64,
    end: u64,
}

impl<'a> Chunks<'a> {
    /// The chunks of `2^rest` addresses in `span`, which is one or a power of two of them, and `ranges` its [`flatten`]ed
    /// content.
    pub(crate) fn new(rest: u32, span: Prefix<u32>, ranges: &'a [Range]) -> Self {
        let (next, end) = (u64::from(span.first()), u64::from(span.last()) + 1);
        Chunks { ranges, rest, next, end }
    }

    /// Where the range behind the first one begins.
    #[inline]
    fn second(&self) -> u64 {
        self.ranges.get(1).map_or(self.end, |range| range.start.into())
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Stretch<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let first = (self.next >> self.rest) as usize;
        let filled = (self.second() >> self.rest) as usize - first;
        let count = filled.max(1);
        self.next += (count as u64) << self.rest;
        let next = self.next;
        let inside = match filled {
            0 => self.ranges.iter().take_while(|range| u64::from(range.start) < next).count(),
            _ => 1,
        };
        let ranges = &self.ranges[..inside];
        // The last one may go on in the next chunk.
        self.ranges = &self.ranges[inside - 1..];
        if self.second() == next && self.ranges.len() > 1 {
            self.ranges = &self.ranges[1..];
        }
        Some(Stretch { first, count, ranges })
    }
}

/// Builds the words of one chunk.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    /// The words of the last chunk, filled up to whole units.
    pub(super) words: Vec<u32>,
}

impl Encoder {
    /// Encodes a chunk whose `ranges` begin with what covers its first address; one range alone is written twice. Returns
    /// whether the chunk is long.
    pub(super) fn encode(&mut self, rest: u32, ranges: &[Range], label_bits: u8, unit_shift: u32) -> bool {
        let mask = u32::MAX >> (32 - rest);
        let one = ranges.len() == 1;
        let entries = ranges.iter().chain(ranges.iter().take(usize::from(one))).enumerate();
        let entries = entries.map(|(i, r)| (if i == 0 || one { 0 } else { r.start & mask }, r.label));
        let long = is_long(rest, ranges);
        self.words.clear();
        match (long, label_bits) {
            (false, _) => {
                for (i, (start, label)) in entries.enumerate() {
                    let entry = start & 0xff00 | label;
                    match self.words.last_mut() {
                        Some(word) if i % 2 == 1 => *word |= entry << 16,
                        _ => self.words.push(entry),
                    }
                }
            }
            (true, 32) => self.words.extend(entries.flat_map(|(start, label)| [start << 16, label])),
            (true, _) => self.words.extend(entries.map(|(start, label)| start << 16 | label)),
        }
        self.words.resize(self.words.len().next_multiple_of(1 << unit_shift), 0);
        long
    }
}

/// Whether a chunk needs 16-bit starts or labels.
fn is_long(rest: u32, ranges: &[Range]) -> bool {
    let mask = (u32::MAX >> (32 - rest)) & 0xff;
    let inner = ranges.get(1..).unwrap_or_default();
    inner.iter().any(|range| range.start & mask != 0) || ranges.iter().any(|range| range.label > 0xff)
}

/// What a table needs from a split, counted without sharing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Census {
    /// Chunks of several ranges, and those of one range with a label too wide for a descriptor.
    pub(super) chunks: u64,
    /// Their words.
    pub(super) words: u64,
    /// Entries of the largest one.
    pub(super) largest: u64,
    /// The widest label.
    pub(super) label: u32,
}

impl Census {
    /// Counts the chunks of `span` that have several ranges.
    pub(super) fn new(layout: Layout, span: Prefix<u32>, ranges: &[Range], label_bits: u8) -> Self {
        let mut census =
            Census { label: ranges.iter().map(|r| r.label).max().unwrap_or(0), ..Self::default() };
        let chunks = Chunks::new(layout.rest(), span, ranges).map(|stretch| stretch.ranges);
        for ranges in chunks.filter(|ranges| ranges.len() > 1) {
            let entries = ranges.len() as u64;
            census.chunks += 1;
            census.words += match is_long(layout.rest(), ranges) {
                true => entries * long_words(label_bits),
                false => entries.div_ceil(2),
            };
            census.largest = census.largest.max(entries);
        }
        census
    }

    /// The same with a chunk for each label from `inline` on: a chunk of one range is shared by all places with its label.
    pub(super) fn with_wide<'a>(
        self,
        ranges: impl Iterator<Item = &'a Range>,
        label_bits: u8,
        inline: u64,
    ) -> Self {
        let wide = ranges.map(|range| range.label).filter(|&label| u64::from(label) >= inline);
        let mut wide: Vec<u32> = wide.collect();
        wide.sort_unstable();
        wide.dedup();
        let count = wide.len() as u64;
        Census {
            chunks: self.chunks + count,
            words: self.words + count * 2 * long_words(label_bits),
            largest: self.largest.max(2),
            ..self
        }
    }

    /// Units that the chunks take at most.
    pub(super) fn units(&self, unit_shift: u32) -> u64 {
        if unit_shift == 0 { self.words } else { (self.words >> unit_shift) + self.chunks }
    }
}

/// Words of a long entry.
fn long_words(label_bits: u8) -> u64 {
    if label_bits == 32 { 2 } else { 1 }
}

impl std::iter::Sum for Census {
    fn sum<I: Iterator<Item = Census>>(parts: I) -> Self {
        parts.fold(Census::default(), |a, b| Census {
            chunks: a.chunks + b.chunks,
            words: a.words + b.words,
            largest: a.largest.max(b.largest),
            label: a.label.max(b.label),
        })
    }
}

/// Space for updates and further tables: as much again, and some. Lookups do not touch it.
pub(super) fn with_headroom(units: u64, least: u64) -> u64 {
    units + units.max(least)
}

/// Chooses the split for a table: units as small as possible, room for growth (at least `room` units) if possible, labels in
/// descriptors if possible, and then as many bits for counts as a chunk of this size can ever need. `with_wide` counts again,
/// with chunks for the labels from its argument on.
pub(super) fn choose_split(
    layout: Layout,
    room: u64,
    census: Census,
    with_wide: impl Fn(u64) -> Census,
) -> Result<(Split, Census), BuildError> {
    let split = best_split(layout, &census, room).ok_or_else(|| too_large(layout, &census))?;
    if u64::from(census.label) < split.values() {
        return Ok((split, census));
    }
    // Wide labels get chunks, which need space too, and more space can mean more bits for bases: that only widens what
    // a descriptor holds, so the second count is not too low.
    let census = with_wide(split.values());
    let split = best_split(layout, &census, room).ok_or_else(|| too_large(layout, &census))?;
    Ok((split, census))
}

pub(super) fn best_split(layout: Layout, census: &Census, room: u64) -> Option<Split> {
    let bits = |value: u64| 64 - value.leading_zeros();
    let least = bits(census.largest.saturating_sub(1)).max(1);
    for headroom in [true, false] {
        for unit_shift in 0..=8 {
            let mut units = census.units(unit_shift);
            if headroom {
                units = with_headroom(units, room);
            }
            let most = 31_u32.checked_sub(bits(units)).filter(|&most| most >= least);
            let Some(most) = most.filter(|_| units << unit_shift <= MAX_RANGE_WORDS as u64) else { continue };
            let inline = 31_u32.saturating_sub(bits(census.label.into()));
            // One bit less for counts is well spent if all labels then stay in descriptors.
            let most = if inline >= least { most.min(inline) } else { most };
            return Some(Split { count_bits: most.min(layout.rest()).max(least), unit_shift });
        }
    }
    None
}

fn too_large(layout: Layout, census: &Census) -> BuildError {
    BuildError::TooLarge {
        structure: layout.to_string(),
        what: format!(
            "{} range chunks of together {} words, the largest of {} ranges, cannot be described in 32 bits",
            census.chunks, census.words, census.largest
        ),
        advice: "choose a larger d + x, or another structure".into(),
    }
}
