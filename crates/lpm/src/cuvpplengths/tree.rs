//! In which order a search asks for the lengths: a tree that takes the fewest steps on average, where each length is as likely to
//! be the end of a search as it has prefixes.

use crate::hashlengths::hash::Cut;

/// No node: the search ends.
pub(super) const END: u8 = u8::MAX;

/// A length, and where to go on.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Node {
    pub(super) cut: Cut,
    /// If nothing is there.
    pub(super) shorter: u8,
    /// If something is.
    pub(super) longer: u8,
}

/// A search tree of lengths.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) root: u8,
    /// The most nodes on one way.
    pub(super) depth: usize,
    /// Of each length that is in the tree, the lengths on its way from which the search goes on to longer ones.
    ways: Vec<Option<Vec<u8>>>,
}

impl Tree {
    /// A tree of the lengths from 1 on that have prefixes, `counts[len]` of each.
    pub(super) fn new(counts: &[u32; 129]) -> Self {
        let lens: Vec<u8> = (1..=128).filter(|&len| counts[usize::from(len)] > 0).collect();
        let mut tree = Tree { nodes: Vec::new(), root: END, depth: 0, ways: vec![None; 129] };
        let splits = splits(&lens, counts);
        tree.root = tree.plant(&lens, &splits, (0, lens.len()), &mut Vec::new(), 0);
        tree
    }

    /// The lengths at which a prefix of this length leaves a marker; `None`: the length is not in the tree.
    pub(super) fn markers(&self, len: u8) -> Option<&[u8]> {
        self.ways[usize::from(len)].as_deref()
    }

    /// The nodes that part the gaps from one to another (see [`splits`]); returns the first.
    fn plant(
        &mut self,
        lens: &[u8],
        splits: &[Vec<u8>],
        (low, high): (usize, usize),
        way: &mut Vec<u8>,
        depth: usize,
    ) -> u8 {
        self.depth = self.depth.max(depth);
        if low == high {
            return END;
        }
        let at = usize::from(splits[low][high]);
        let len = lens[at];
        // At most 128 nodes, one for a length.
        let number = self.nodes.len();
        self.nodes.push(Node { cut: Cut::new(len), shorter: END, longer: END });
        self.ways[usize::from(len)] = Some(way.clone());
        let shorter = self.plant(lens, splits, (low, at), way, depth + 1);
        way.push(len);
        let longer = self.plant(lens, splits, (at + 1, high), way, depth + 1);
        way.pop();
        self.nodes[number] = Node { shorter, longer, ..self.nodes[number] };
        number as u8
    }
}

/// Where to part the gaps `low ..= high`: at which length. Gap 0 is before the first length, gap i behind length i - 1; a search ends in
/// the gap behind the longest length that it finds. Knuth's optimal search trees (1971), with all weight in the gaps.
fn splits(lens: &[u8], counts: &[u32; 129]) -> Vec<Vec<u8>> {
    let gaps = lens.len() + 1;
    let total: u64 = counts[1..].iter().map(|&count| u64::from(count)).sum();
    // What is rare has some weight too, so that no way is long.
    let least = total / (2 * gaps as u64) + 1;
    let weight = |gap: usize| {
        least + gap.checked_sub(1).map_or(0, |length| u64::from(counts[usize::from(lens[length])]))
    };
    let mut sums = vec![0];
    (0..gaps).for_each(|gap| sums.push(sums[gap] + weight(gap)));
    let mut cost = vec![vec![0_u64; gaps]; gaps];
    let mut splits = vec![vec![0; gaps]; gaps];
    for span in 1..gaps {
        for low in 0..gaps - span {
            let high = low + span;
            let parted = |at: usize| cost[low][at] + cost[at + 1][high];
            let best = (low..high).min_by_key(|&at| parted(at)).unwrap_or(low);
            (cost[low][high], splits[low][high]) = (parted(best) + sums[high + 1] - sums[low], best as u8);
        }
    }
    splits
}
