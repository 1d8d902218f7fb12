//! From a RIB to nodes: cut a region into ranges, then choose a line or a block for it, top down.

use super::{CELL, Entry, LINE_BITS, LINE_HEAD, Node, RANGES, STARTS, bits};
use crate::fib::{BuildError, Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;

/// A region with at least this many ranges gets an 8-bit block instead of a 4-bit one: one visit instead of two, where
/// the larger block is not mostly copies of one label.
const WIDE_RANGES: usize = 160;

/// Where new nodes are put.
pub(super) trait Space {
    /// Room for a node of `cells` cells: its first cell.
    fn take(&mut self, cells: u32) -> Result<u32, Outgrown>;
    /// Writes a word of a node that is not published yet.
    fn set(&mut self, word: usize, entry: u32);
}

/// A region cut into ranges: sorted starts, the first at the region's first address, and the label of each.
pub(super) struct Ranges<A> {
    pub(super) starts: Vec<A>,
    pub(super) labels: Vec<Label>,
}

impl<A: Address> Ranges<A> {
    /// The ranges of `region` by the prefixes of `rib`.
    pub(super) fn of(rib: &Rib<A>, region: Prefix<A>) -> Self {
        let outer = rib.covering(region).map_or(Label::NONE, |(_, label)| label);
        let mut ranges = Ranges { starts: vec![region.first()], labels: vec![outer] };
        // The prefixes that are open at this point, outermost first: last address and label.
        let mut open: Vec<(A, Label)> = vec![(region.last(), outer)];
        for (prefix, label) in rib.inside(region) {
            ranges.close(&mut open, |last| last < prefix.first());
            open.push((prefix.last(), label));
            ranges.cut(prefix.first(), label);
        }
        ranges.close(&mut open, |_| true);
        ranges
    }

    /// Ends the innermost open prefixes while `over` says so of their last address. The outermost, the region
    /// itself, stays.
    fn close(&mut self, open: &mut Vec<(A, Label)>, over: impl Fn(A) -> bool) {
        while let [.., (outer_last, outer), (last, _)] = open[..] {
            if !over(last) {
                break;
            }
            open.pop();
            if last != outer_last {
                self.cut(last + A::one(), outer);
            }
        }
    }

    fn cut(&mut self, start: A, label: Label) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.labels.pop();
        }
        if self.labels.last() != Some(&label) {
            self.starts.push(start);
            self.labels.push(label);
        }
    }

    /// Refuses labels that an entry cannot hold.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        match self.labels.iter().position(|l| l.0 > Entry::LABEL_MAX) {
            None => Ok(()),
            Some(at) => Err(BuildError::LabelTooWide {
                prefix: self.starts[at].to_ip().to_string(),
                label: self.labels[at].0,
                width_bits: 31,
            }),
        }
    }

    pub(super) fn slice(&self) -> Slice<'_, A> {
        Slice { starts: &self.starts, labels: &self.labels }
    }
}

/// The ranges that touch a region. The first may begin before it; none begins behind it.
#[derive(Clone, Copy)]
pub(super) struct Slice<'a, A> {
    starts: &'a [A],
    labels: &'a [Label],
}

impl<'a, A: Address> Slice<'a, A> {
    /// The part of it in a smaller region.
    fn within(self, region: Prefix<A>) -> Self {
        let from = self.starts.partition_point(|&s| s <= region.first()).max(1) - 1;
        let to = self.starts.partition_point(|&s| s <= region.last());
        self.cut(from, to)
    }

    fn cut(self, from: usize, to: usize) -> Self {
        Slice { starts: &self.starts[from..to], labels: &self.labels[from..to] }
    }
}

/// What one range of a line leads to.
#[derive(Clone, Copy)]
enum Target<'a, A> {
    Leaf(Label),
    Below(Slice<'a, A>),
}

/// The ranges of a line before its nodes below are made.
struct Plan<'a, A> {
    starts: [u16; RANGES],
    targets: [Target<'a, A>; RANGES],
    len: usize,
}

impl<'a, A: Address> Plan<'a, A> {
    /// A line for the bits of `slice` behind the first `depth`; `None` if it has too many ranges.
    fn new(slice: Slice<'a, A>, depth: u8) -> Option<Self> {
        let first = Target::Leaf(slice.labels[0]);
        let mut plan = Plan { starts: [0; RANGES], targets: [first; RANGES], len: 1 };
        let mut at = 1;
        while at < slice.starts.len() {
            let slot = bits(slice.starts[at], depth, LINE_BITS) as u16;
            let same = slice.starts[at..]
                .iter()
                .position(|&start| bits(start, depth, LINE_BITS) as u16 != slot)
                .map_or(slice.starts.len(), |n| at + n);
            let exact = A::BITS - depth <= LINE_BITS
                || (slice.starts[at] << usize::from(depth + LINE_BITS)).is_zero();
            if exact && same == at + 1 {
                plan.push(slot, Target::Leaf(slice.labels[at]))?;
            } else {
                // Ranges begin inside this slot: a node below sorts them out.
                plan.push(slot, Target::Below(slice.cut(if exact { at } else { at - 1 }, same)))?;
                if slot != u16::MAX {
                    plan.push(slot + 1, Target::Leaf(slice.labels[same - 1]))?;
                }
            }
            at = same;
        }
        Some(plan)
    }

    fn push(&mut self, start: u16, target: Target<'a, A>) -> Option<()> {
        if self.starts[self.len - 1] == start {
            self.len -= 1; // what was there only filled the gap up to here
        } else if self.len == RANGES {
            return None;
        }
        if let (Some(last), Target::Leaf(label)) = (self.len.checked_sub(1), target)
            && matches!(self.targets[last], Target::Leaf(l) if l == label)
        {
            return Some(());
        }
        (self.starts[self.len], self.targets[self.len]) = (start, target);
        self.len += 1;
        Some(())
    }
}

/// Makes the nodes for `region`, whose ranges are `slice`, and returns the entry that leads to them.
pub(super) fn build<A: Address>(
    space: &mut impl Space,
    slice: Slice<'_, A>,
    region: Prefix<A>,
) -> Result<Entry, Outgrown> {
    let depth = region.len();
    if slice.starts.len() == 1 {
        return Ok(Entry::leaf(slice.labels[0]));
    }
    if let Some(plan) = Plan::new(slice, depth) {
        let mut entries = [Entry(0); RANGES];
        for i in 0..plan.len {
            entries[i] = match plan.targets[i] {
                Target::Leaf(label) => Entry::leaf(label),
                Target::Below(part) => {
                    let slot = A::from_u128(u128::from(plan.starts[i]));
                    let shift = usize::from(A::BITS - depth - LINE_BITS);
                    build(space, part, child(region, slot << shift, depth + LINE_BITS))?
                }
            };
        }
        let cell = space.take(1)?;
        write_line(space, cell, &plan.starts[..plan.len], &entries[..plan.len]);
        return Ok(Entry::pointer(Node::Line, cell, depth));
    }
    let wide = slice.starts.len() >= WIDE_RANGES && depth + 8 <= A::BITS;
    let node = Node::Block(if wide { 8 } else { 4 });
    let cell = space.take(node.cells())?;
    build_children(space, slice, region, node.bits(), cell as usize * CELL)?;
    Ok(Entry::pointer(node, cell, depth))
}

/// Fills the 2^`width_bits` entries from `word` on.
pub(super) fn build_children<A: Address>(
    space: &mut impl Space,
    slice: Slice<'_, A>,
    region: Prefix<A>,
    width_bits: u8,
    word: usize,
) -> Result<(), Outgrown> {
    let depth = region.len() + width_bits;
    let mut rest = slice;
    for i in 0..1_usize << width_bits {
        let offset = A::from_u128(i as u128) << usize::from(A::BITS - depth);
        let part = child(region, offset, depth);
        // Children come in address order: what ends before this one is not looked at again.
        let passed = rest.starts.iter().take_while(|&&s| s <= part.first()).count().max(1) - 1;
        rest = rest.cut(passed, rest.starts.len());
        let entry = build(space, rest.within(part), part)?;
        space.set(word + i, entry.0);
    }
    Ok(())
}

/// The part of `region` that begins `offset` behind its start and has `depth` bits fixed.
pub(super) fn child<A: Address>(region: Prefix<A>, offset: A, depth: u8) -> Prefix<A> {
    // The depth of a child never exceeds the width: blocks are chosen so, and only regions wider than a line's 16
    // bits have anything below a line.
    Prefix::new(region.first() | offset, depth.min(A::BITS)).unwrap_or(region)
}

/// Writes a line of `entries.len()` ranges. See invariant 2 for the free places.
pub(super) fn write_line(space: &mut impl Space, cell: u32, starts: &[u16], entries: &[Entry]) {
    let word = cell as usize * CELL;
    let mut stored = [u16::MAX; STARTS];
    stored[..starts.len() - 1].copy_from_slice(&starts[1..]);
    for i in 0..LINE_HEAD {
        space.set(word + i, u32::from(stored[2 * i]) | u32::from(stored[2 * i + 1]) << 16);
    }
    for i in 0..RANGES {
        space.set(word + LINE_HEAD + i, entries[i.min(entries.len() - 1)].0);
    }
}
