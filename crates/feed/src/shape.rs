//! What a table looks like: the figures that lookup structures depend on.

use tidemill_lpm::{Address, Label, Prefix, Rib};

/// The shape of a table of one family.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Shape {
    /// 4 or 6.
    pub family: u8,
    /// Number of prefixes.
    pub prefixes: u64,
    /// Prefixes by length, from 0 to the family's width.
    pub by_length: Vec<u64>,
    /// Prefixes by the number of prefixes that cover them.
    pub by_depth: Vec<u64>,
    /// Prefixes inside another.
    pub nested: u64,
    /// The most prefixes that cover one.
    pub max_depth: u64,
    /// Nested prefixes that have the label of the closest prefix around them: they change nothing.
    pub redundant: u64,
    /// Distinct labels.
    pub labels: u64,
    /// Prefixes with the label of the one before, by address and length.
    pub label_repeats: u64,
    /// Disjoint ranges of addresses with one label, neighbours merged; "no route" counts as a label.
    pub ranges: u64,
    /// How the ranges fall into aligned blocks of /16, /20 and /24 (IPv4) or /32, /40 and /48 (IPv6).
    pub blocks: Vec<Blocks>,
}

/// The ranges as seen by a direct table of `2^len` entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Blocks {
    /// Prefix length of the blocks.
    pub len: u8,
    /// Blocks in which a prefix begins (all prefixes, also shorter ones).
    pub used: u64,
    /// Blocks that hold more than one range; all others have one answer.
    pub split: u64,
    /// Ranges in those.
    pub split_ranges: u64,
}

/// Measures a table in one pass.
pub fn shape<A: Address>(rib: &Rib<A>) -> Shape {
    let lens: [u8; 3] = if A::FAMILY == 4 { [16, 20, 24] } else { [32, 40, 48] };
    let mut shape = Shape {
        family: A::FAMILY,
        prefixes: rib.len() as u64,
        by_length: vec![0; usize::from(A::BITS) + 1],
        by_depth: Vec::new(),
        nested: 0,
        max_depth: 0,
        redundant: 0,
        labels: 0,
        label_repeats: 0,
        ranges: 0,
        blocks: lens.iter().map(|&len| Blocks { len, used: 0, split: 0, split_ranges: 0 }).collect(),
    };
    let mut labels = std::collections::HashSet::new();
    let mut used: Vec<Option<A>> = vec![None; lens.len()];
    let mut before = None;
    let mut around: Vec<(Prefix<A>, Label)> = Vec::new();
    for (prefix, label) in rib.iter() {
        while around.last().is_some_and(|(outer, _)| !outer.covers(prefix)) {
            around.pop();
        }
        let depth = around.len();
        if shape.by_depth.len() <= depth {
            shape.by_depth.resize(depth + 1, 0);
        }
        shape.by_depth[depth] += 1;
        shape.by_length[usize::from(prefix.len())] += 1;
        shape.redundant += u64::from(around.last().is_some_and(|&(_, outer)| outer == label));
        shape.label_repeats += u64::from(before == Some(label));
        for (block, used) in shape.blocks.iter_mut().zip(&mut used) {
            let start = prefix.first() & A::mask(block.len);
            block.used += u64::from(used.replace(start) != Some(start));
        }
        labels.insert(label);
        before = Some(label);
        around.push((prefix, label));
    }
    shape.nested = shape.by_depth.iter().skip(1).sum();
    shape.max_depth = shape.by_depth.len().saturating_sub(1) as u64;
    shape.labels = labels.len() as u64;
    let mut split: Vec<Option<A>> = vec![None; lens.len()];
    for_each_range(rib, |start, _| {
        shape.ranges += 1;
        for (block, split) in shape.blocks.iter_mut().zip(&mut split) {
            let at = start & A::mask(block.len);
            if start != at {
                // A range that begins inside a block splits it; the first split also makes the range before it one.
                let first = split.replace(at) != Some(at);
                block.split += u64::from(first);
                block.split_ranges += 1 + u64::from(first);
            }
        }
    });
    shape
}

/// Calls `emit` with the start and the label of every disjoint range, neighbours of one label merged, from address 0.
pub(crate) fn for_each_range<A: Address>(rib: &Rib<A>, mut emit: impl FnMut(A, Label)) {
    let mut sweep = Sweep { next: Some(A::MIN), label: None };
    let mut around: Vec<(Prefix<A>, Label)> = Vec::new();
    let covering = |around: &[(Prefix<A>, Label)]| around.last().map_or(Label::NONE, |&(_, label)| label);
    for (prefix, label) in rib.iter() {
        while let Some(&(outer, outer_label)) = around.last()
            && !outer.covers(prefix)
        {
            sweep.fill_to(outer.last(), outer_label, &mut emit);
            around.pop();
        }
        if prefix.first() > A::MIN {
            sweep.fill_to(prefix.first() - A::one(), covering(&around), &mut emit);
        }
        around.push((prefix, label));
    }
    while let Some((outer, label)) = around.pop() {
        sweep.fill_to(outer.last(), label, &mut emit);
    }
    sweep.fill_to(A::MAX, Label::NONE, &mut emit);
}

struct Sweep<A> {
    /// The first address not yet filled; `None` behind the last.
    next: Option<A>,
    label: Option<Label>,
}

impl<A: Address> Sweep<A> {
    fn fill_to(&mut self, last: A, label: Label, emit: &mut impl FnMut(A, Label)) {
        let Some(next) = self.next.filter(|&next| next <= last) else { return };
        if self.label != Some(label) {
            emit(next, label);
            self.label = Some(label);
        }
        self.next = last.checked_add(&A::one());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rib(routes: &[(&str, u32)]) -> Rib<u32> {
        routes.iter().map(|&(p, l)| (p.parse().unwrap(), Label(l))).collect()
    }

    #[test]
    fn ranges_are_disjoint_and_merged() {
        let rib = rib(&[
            ("0.0.0.0/8", 1),
            ("10.0.0.0/8", 1),
            ("10.0.0.0/16", 2),
            ("10.1.0.0/16", 1),
            ("10.255.255.255/32", 3),
            ("11.0.0.0/8", 3),
            ("255.255.255.255/32", 4),
        ]);
        let mut found = Vec::new();
        for_each_range(&rib, |start, label| found.push((start, label.0)));
        assert_eq!(
            found,
            [
                (0, 1),
                (0x0100_0000, 0),
                (0x0a00_0000, 2),
                (0x0a01_0000, 1),
                (0x0aff_ffff, 3),
                (0x0c00_0000, 0),
                (0xffff_ffff, 4)
            ]
        );
        let shape = shape(&rib);
        assert_eq!((shape.ranges, shape.nested, shape.max_depth, shape.redundant), (7, 3, 1, 1));
        assert_eq!((shape.labels, shape.by_depth.as_slice()), (4, &[4, 3][..]));
        assert_eq!(shape.blocks[0], Blocks { len: 16, used: 6, split: 2, split_ranges: 4 });
    }

    #[test]
    fn an_empty_table_is_one_range() {
        let shape = shape(&Rib::<u128>::new());
        assert_eq!((shape.ranges, shape.prefixes, shape.max_depth), (1, 0, 0));
    }

    #[test]
    fn ranges_answer_as_the_rib_does() {
        let rib = rib(&[("0.0.0.0/0", 1), ("128.0.0.0/1", 2), ("192.0.2.0/24", 1), ("192.0.2.128/25", 5)]);
        let mut starts = Vec::new();
        for_each_range(&rib, |start, label| starts.push((start, label)));
        for &(start, label) in &starts {
            assert_eq!(rib.lookup(start).map(|(_, l)| l), Some(label));
            if start > 0 {
                assert_ne!(rib.lookup(start - 1).map(|(_, l)| l), Some(label));
            }
        }
        assert_eq!(starts.len(), 5);
    }
}
