//! What a generated table is made like: counts taken from a real table, small enough to embed.
//!
//! A table is seen as a binary trie in which every node knows how many prefixes lie in its subtree, itself included. Going
//! down from a node with `n` of them there are two questions: is the node itself a prefix, and how do the others
//! divide between its halves? A profile holds how often each answer occurs, by level and by a class of `n` (a
//! multiplicative cascade: Kohler, Li, Paxson, Shenker, "Observed structure of addresses in IP traffic", IMC 2002, show that
//! addresses divide so). Density, clustering, runs of neighbours, lengths and nesting all follow from it.
//!
//! Labels follow origins: a [`Locality`] holds how often a prefix has the origin of the prefix around it or of its
//! neighbour, by how close that neighbour is.

use std::collections::BTreeMap;
use std::fmt;
use tidemill_lpm::{Address, Label, Prefix, Rib};

/// Classes of `n`: 1, 2, 3-4, 5-8 and so on to 65,537 and more; then those of subtrees that are nearly, exactly or more
/// than full of prefixes of one length.
pub(super) const CLASSES: usize = 23;
const LOGS: usize = 18;
const NEARLY_FULL: usize = 18;
const FULL: usize = 19;
const FULL_AND_ONE: usize = 20;
const OVER: usize = 21;
const FAR_OVER: usize = 22;

/// How often a node is covered, up to this many less one.
pub(super) const COVERS: usize = 6;

/// A level beside the length of the prefix before: beyond it, at it, above it. Told apart for one or two prefixes only,
/// where it decides their length: neighbours often have the same.
pub(super) const RELATIONS: usize = 3;

/// Ways to divide `m` prefixes: the left half has none, below 1/64, below 1/8, below 3/8, up to 5/8, up to 7/8, up to
/// 63/64, more, all; exactly one half; or one half is full of prefixes of one length: the left, the right.
pub(super) const WAYS: usize = 12;
pub(super) const HALF: usize = 9;
pub(super) const LEFT_FULL: usize = 10;
pub(super) const RIGHT_FULL: usize = 11;

/// What a decision at a node depends on, besides its cover: level, number of prefixes, length of the prefix before.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) level: u8,
    pub(super) n: u64,
    pub(super) before: u8,
}

impl State {
    pub(super) fn class(self, max_len: u8) -> usize {
        let State { level, n, before } = self;
        let nodes = |len: u8| {
            let bits = len.saturating_sub(level);
            1u64.checked_shl(u32::from(bits)).unwrap_or(u64::MAX / 8)
        };
        let leaves = nodes(max_len);
        match () {
            () if n <= 1 => 0,
            () if n == leaves || n == nodes(before) => FULL,
            () if n - 1 == leaves => FULL_AND_ONE,
            () if n > leaves + leaves / 4 => FAR_OVER,
            () if n > leaves => OVER,
            () if n > leaves - leaves / 4 => NEARLY_FULL,
            () => ((n - 1).ilog2() as usize + 1).min(LOGS - 1),
        }
    }

    /// Prefixes in a half of this node that is full of those of the length before, or else of the longest.
    pub(super) fn full_half(self, max_len: u8) -> u64 {
        let len = if self.before > self.level { self.before } else { max_len };
        1u64.checked_shl(u32::from(len - self.level - 1)).unwrap_or(u64::MAX / 8)
    }

    /// The way in which `left` of the `n` go left.
    pub(super) fn way(self, left: u64, max_len: u8) -> usize {
        let (m, full) = (self.n, self.full_half(max_len));
        match () {
            () if left == 0 => 0,
            () if left == m => 8,
            () if left * 2 == m => HALF,
            () if left == full => LEFT_FULL,
            () if m - left == full => RIGHT_FULL,
            () if left * 64 < m => 1,
            () if left * 8 < m => 2,
            () if left * 8 < m * 3 => 3,
            () if left * 8 <= m * 5 => 4,
            () if left * 8 <= m * 7 => 5,
            () if left * 64 <= m * 63 => 6,
            () => 7,
        }
    }

    pub(super) fn relation(self) -> usize {
        match self.level.cmp(&self.before) {
            _ if self.n > 2 => 0,
            std::cmp::Ordering::Greater => 0,
            std::cmp::Ordering::Equal => 1,
            std::cmp::Ordering::Less => 2,
        }
    }
}

/// Counts of one level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// By cover, class and relation: nodes that are no prefix, nodes that are one.
    pub(super) present: [[[[u32; 2]; RELATIONS]; CLASSES]; COVERS],
    /// By class of what is left to divide: ways.
    pub(super) split: [[u32; WAYS]; CLASSES],
}

/// Whose origin a prefix shares, by level: for a first child its own length, else the length of what it has in common
/// with the sibling before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Locality {
    /// Uncovered: not the origin of the sibling before, that origin.
    pub(super) root: [u32; 2],
    /// First child: another origin, the parent's.
    pub(super) first: [u32; 2],
    /// The sibling before has the parent's origin: another, the parent's.
    pub(super) stay: [u32; 2],
    /// The sibling before has another: a third one, the sibling's, the parent's.
    pub(super) stray: [u32; 3],
}

/// What to make tables like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// 4 or 6.
    pub(super) family: u8,
    /// Length of the blocks at which the cascade starts.
    pub(super) base_len: u8,
    /// The longest length.
    pub(super) max_len: u8,
    /// Number of origins.
    pub(super) origins: u32,
    /// Blocks of `base_len` (by their leading bits) and the number of prefixes in each.
    pub(super) blocks: BTreeMap<u32, u32>,
    /// From `base_len` to `max_len`.
    pub(super) levels: Vec<Level>,
    /// From 0 to `max_len`.
    pub(super) locality: Vec<Locality>,
}

impl Profile {
    /// Prefixes in the table that this was taken from (those of at least the base length).
    pub fn prefixes(&self) -> u64 {
        self.blocks.values().map(|&n| u64::from(n)).sum()
    }

    /// 4 or 6.
    pub fn family(&self) -> u8 {
        self.family
    }

    /// Takes a profile of a table. Its labels are taken for origins, of which there are `origins` (a table whose labels
    /// are hashes of origins has fewer labels than origins). Prefixes shorter than /8 (IPv4) or /20 (IPv6), and longer
    /// than /24 or /48, are left out: the first would tie blocks together, the second are rare.
    pub fn measure<A: Address>(rib: &Rib<A>, origins: u32) -> Self {
        let (base_len, max_len) = if A::FAMILY == 4 { (8, 24) } else { (20, 48) };
        let mut profile = Profile {
            family: A::FAMILY,
            base_len,
            max_len,
            origins: origins.max(1),
            blocks: BTreeMap::new(),
            levels: vec![Level::default(); usize::from(max_len - base_len) + 1],
            locality: vec![Locality::default(); usize::from(max_len) + 1],
        };
        let routes: Vec<(Prefix<A>, Label)> =
            rib.iter().filter(|(p, _)| (base_len..=max_len).contains(&p.len())).collect();
        let block = |p: &Prefix<A>| (p.first().to_u128() >> (A::BITS - base_len)) as u32;
        let mut before = 0;
        for part in routes.chunk_by(|(p, _), (q, _)| block(p) == block(q)) {
            if let Some((first, _)) = part.first() {
                profile.blocks.insert(block(first), part.len() as u32);
                before = profile.measure_node(part, base_len, 0, before);
            }
        }
        profile.measure_locality(&routes);
        profile
    }

    fn level(&mut self, level: u8) -> &mut Level {
        &mut self.levels[usize::from(level - self.base_len)]
    }

    /// `part`: the routes inside a node of `level`, at least one, in order; `before`: the length of the route before
    /// them. Returns the length of the last.
    fn measure_node<A: Address>(
        &mut self,
        part: &[(Prefix<A>, Label)],
        level: u8,
        cover: usize,
        before: u8,
    ) -> u8 {
        let max_len = self.max_len;
        let here = part.first().is_some_and(|(p, _)| p.len() == level);
        let state = State { level, n: part.len() as u64, before };
        self.level(level).present[cover][state.class(max_len)][state.relation()][usize::from(here)] += 1;
        let (inside, mut before) = if here { (&part[1..], level) } else { (part, before) };
        if inside.is_empty() || level == max_len {
            return before;
        }
        let half = A::one() << usize::from(A::BITS - level - 1);
        let left = inside.partition_point(|(p, _)| p.first() & half == A::zero());
        let state = State { level, n: inside.len() as u64, before };
        self.level(level).split[state.class(max_len)][state.way(left as u64, max_len)] += 1;
        let cover = (cover + usize::from(here)).min(COVERS - 1);
        for side in [&inside[..left], &inside[left..]] {
            if !side.is_empty() {
                before = self.measure_node(side, level + 1, cover, before);
            }
        }
        before
    }

    fn measure_locality<A: Address>(&mut self, routes: &[(Prefix<A>, Label)]) {
        let mut walk = Siblings::default();
        for &(prefix, label) in routes {
            let (parent, sibling) = walk.enter(prefix, label);
            let at = near(prefix, sibling.map(|(p, _)| p));
            let at = &mut self.locality[usize::from(at)];
            let sibling = sibling.map(|(_, l)| l);
            match (parent, sibling) {
                (None, None) => {}
                (None, Some(sibling)) => at.root[usize::from(label == sibling)] += 1,
                (Some(parent), None) => at.first[usize::from(label == parent)] += 1,
                (Some(parent), Some(sibling)) if sibling == parent => {
                    at.stay[usize::from(label == parent)] += 1;
                }
                (Some(parent), Some(sibling)) => {
                    let way = if label == parent { 2 } else { usize::from(label == sibling) };
                    at.stray[way] += 1;
                }
            }
        }
    }
}

/// The level of a prefix's locality.
pub(super) fn near<A: Address>(prefix: Prefix<A>, sibling: Option<Prefix<A>>) -> u8 {
    match sibling {
        None => prefix.len(),
        Some(sibling) => (prefix.first() ^ sibling.first()).leading_zeros() as u8,
    }
    .min(prefix.len())
}

/// Walks over routes in order and knows each one's parent and the sibling before it.
pub(super) struct Siblings<A: Address, L> {
    around: Vec<(Prefix<A>, L)>,
    /// The last child of each of `around`, and before them the last uncovered prefix.
    last: Vec<Option<(Prefix<A>, L)>>,
}

impl<A: Address, L> Default for Siblings<A, L> {
    fn default() -> Self {
        Siblings { around: Vec::new(), last: vec![None] }
    }
}

/// A parent's label; a sibling with its label.
pub(super) type Kin<A, L> = (Option<L>, Option<(Prefix<A>, L)>);

impl<A: Address, L: Copy> Siblings<A, L> {
    /// Goes to the next prefix; [`settle`](Self::settle) must follow.
    pub(super) fn find(&mut self, prefix: Prefix<A>) -> Kin<A, L> {
        while self.around.last().is_some_and(|(outer, _)| !outer.covers(prefix)) {
            self.around.pop();
            self.last.pop();
        }
        (self.around.last().map(|&(_, l)| l), self.last.last().copied().flatten())
    }

    /// Says the label of the prefix that was found last.
    pub(super) fn settle(&mut self, prefix: Prefix<A>, label: L) {
        if let Some(last) = self.last.last_mut() {
            *last = Some((prefix, label));
        }
        self.around.push((prefix, label));
        self.last.push(None);
    }

    fn enter(&mut self, prefix: Prefix<A>, label: L) -> Kin<A, L> {
        let kin = self.find(prefix);
        self.settle(prefix, label);
        kin
    }
}

/// The text form: one record per line, only what was counted.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "profile {} {} {} {}", self.family, self.base_len, self.max_len, self.origins)?;
        for (block, n) in &self.blocks {
            writeln!(f, "b {block} {n}")?;
        }
        for (level, at) in (self.base_len..).zip(&self.levels) {
            for (cover, classes) in at.present.iter().enumerate() {
                for (class, relations) in classes.iter().enumerate() {
                    for (relation, [no, yes]) in relations.iter().enumerate().filter(|(_, c)| **c != [0; 2]) {
                        writeln!(f, "p {level} {cover} {class} {relation} {no} {yes}")?;
                    }
                }
            }
            for (class, w) in at.split.iter().enumerate().filter(|(_, c)| **c != [0; WAYS]) {
                write!(f, "s {level} {class}")?;
                w.iter().try_for_each(|n| write!(f, " {n}"))?;
                writeln!(f)?;
            }
        }
        for (level, l) in self.locality.iter().enumerate().filter(|(_, l)| **l != Locality::default()) {
            write!(f, "l {level}")?;
            let counts = l.root.iter().chain(&l.first).chain(&l.stay).chain(&l.stray);
            counts.into_iter().try_for_each(|n| write!(f, " {n}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A profile's text is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the profile is wrong: {text:?}")]
pub struct ProfileError {
    /// Line number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

impl std::str::FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut profile: Option<Profile> = None;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            read_line(line, &mut profile)
                .ok_or_else(|| ProfileError { line: at + 1, text: line.chars().take(80).collect() })?;
        }
        profile
            .filter(|profile| profile.prefixes() > 0)
            .ok_or_else(|| ProfileError { line: 1, text: "no prefixes".into() })
    }
}

fn read_line(line: &str, profile: &mut Option<Profile>) -> Option<()> {
    let (kind, rest) = line.split_once(' ')?;
    let numbers: Option<Vec<u32>> = rest.split(' ').map(|n| n.parse().ok()).collect();
    let numbers = numbers?;
    let Some(profile) = profile else {
        let (&[family @ (4 | 6), base, max, origins], "profile") = (numbers.as_slice(), kind) else {
            return None;
        };
        let widest = if family == 4 { 32 } else { 64 };
        if !(1..=24).contains(&base) || max < base || max > widest || origins == 0 {
            return None;
        }
        *profile = Some(Profile {
            family: family as u8,
            base_len: base as u8,
            max_len: max as u8,
            origins,
            blocks: BTreeMap::new(),
            levels: vec![Level::default(); (max - base) as usize + 1],
            locality: vec![Locality::default(); max as usize + 1],
        });
        return Some(());
    };
    let level = |at: u32| at.checked_sub(u32::from(profile.base_len)).map(|at| at as usize);
    match (kind, numbers.as_slice()) {
        ("b", &[block, n]) if block >> profile.base_len == 0 => {
            profile.blocks.insert(block, n);
        }
        ("p", &[at, cover, class, relation, no, yes]) => {
            let at = profile.levels.get_mut(level(at)?)?;
            let classes = at.present.get_mut(cover as usize)?.get_mut(class as usize)?;
            *classes.get_mut(relation as usize)? = [no, yes];
        }
        ("s", &[at, class, ref ways @ ..]) => {
            let at = profile.levels.get_mut(level(at)?)?;
            *at.split.get_mut(class as usize)? = ways.try_into().ok()?;
        }
        ("l", &[at, r0, r1, f0, f1, s0, s1, t0, t1, t2]) => {
            let locality = Locality { root: [r0, r1], first: [f0, f1], stay: [s0, s1], stray: [t0, t1, t2] };
            *profile.locality.get_mut(at as usize)? = locality;
        }
        _ => return None,
    }
    Some(())
}
