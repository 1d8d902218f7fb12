//! The generator: counts to prefixes, top down; then labels, in order.

use super::SynthError;
use super::profile::{
    CLASSES, COVERS, HALF, LEFT_FULL, Level, Locality, Profile, RELATIONS, RIGHT_FULL, Siblings, State, WAYS,
    near,
};
use crate::table::mix;
use tidemill_lpm::{Address, Label, Prefix, Rib};

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same for ever, which library generators do not promise.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        let value = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// Uniform below `bound` (not 0), by multiplication; the bias is below 2^-32 for the bounds used here.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// An index, with probability in proportion to its weight; 0 if all weights are 0.
    fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        if total == 0 {
            return 0;
        }
        let mut at = self.below(total);
        for (index, &weight) in weights.iter().enumerate() {
            match at.checked_sub(u64::from(weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        0
    }
}

pub(super) fn rib<A: Address>(
    profile: &Profile,
    prefixes: usize,
    next_hops: u32,
    seed: u64,
) -> Result<Rib<A>, SynthError> {
    let full = profile.prefixes().max(prefixes as u64);
    let mut random = Random(mix(seed ^ mix(u64::from(A::FAMILY))));
    let mut cascade =
        Cascade { profile, levels: filled(&profile.levels), random: &mut random, before: 0, out: Vec::new() };
    for (block, n) in shares(profile, full, prefixes)? {
        let first = A::from_u128(u128::from(block) << (A::BITS - profile.base_len));
        cascade.node(first, profile.base_len, n, 0);
    }
    let prefixes: Vec<Prefix<A>> = sample(cascade.out, prefixes, seed);
    Ok(label(profile, &prefixes, next_hops, &mut random))
}

/// How many prefixes a node of `level` has room for.
fn room(level: u8, max_len: u8) -> u64 {
    match level > max_len {
        true => 0,
        false => 2u64.checked_shl(u32::from(max_len - level)).map_or(u64::MAX / 4, |nodes| nodes - 1),
    }
}

/// Divides `full` prefixes among the blocks in proportion to the profile, largest remainders first.
fn shares(profile: &Profile, full: u64, asked: usize) -> Result<Vec<(u32, u64)>, SynthError> {
    let room = room(profile.base_len, profile.max_len);
    let most = room.saturating_mul(profile.blocks.len() as u64);
    if full > most {
        return Err(SynthError::TooMany { family: profile.family, asked, most });
    }
    let (total, mut left) = (u128::from(profile.prefixes()), full);
    let mut shares: Vec<(u32, u64, u128)> = (profile.blocks.iter())
        .map(|(&block, &n)| {
            let exact = u128::from(n) * u128::from(full);
            (block, ((exact / total) as u64).min(room), exact % total)
        })
        .collect();
    left -= shares.iter().map(|&(_, n, _)| n).sum::<u64>();
    shares.sort_by_key(|&(block, _, remainder)| (std::cmp::Reverse(remainder), block));
    // One round is enough unless blocks are full.
    while left > 0 {
        for (_, n, _) in shares.iter_mut().filter(|(_, n, _)| *n < room) {
            let more = left.min(1);
            *n += more;
            left -= more;
        }
    }
    shares.sort_by_key(|&(block, _, _)| block);
    Ok(shares.into_iter().map(|(block, n, _)| (block, n)).collect())
}

/// Counts where there were none: those of the nearest class, or of the level above or below.
fn filled(levels: &[Level]) -> Vec<Level> {
    let mut filled = levels.to_vec();
    for at in 0..levels.len() {
        for of in 0..CLASSES {
            for (cover, relation) in (0..COVERS).flat_map(|c| (0..RELATIONS).map(move |r| (c, r))) {
                let found = nearest(levels, at, of, |level, class| {
                    // Any cover or relation of the same cell is closer than another cell.
                    let own = level.present[cover][class][relation];
                    let any = || level.present.iter().flat_map(|c| &c[class]).copied().find(|c| *c != [0; 2]);
                    if own == [0; 2] { any() } else { Some(own) }
                });
                filled[at].present[cover][of][relation] = found.unwrap_or([1, 1]);
            }
            let found = nearest(levels, at, of, |level, class| {
                Some(level.split[class]).filter(|ways| *ways != [0; WAYS])
            });
            filled[at].split[of] = found.unwrap_or([1; WAYS]);
        }
    }
    filled
}

fn nearest<T>(
    levels: &[Level],
    at: usize,
    of: usize,
    find: impl Fn(&Level, usize) -> Option<T>,
) -> Option<T> {
    let by_distance = |center: usize, count: usize| {
        (0..count).flat_map(move |d| {
            let below = center.checked_sub(d);
            let above = (d > 0).then_some(center + d).filter(|&i| i < count);
            below.into_iter().chain(above)
        })
    };
    // The same class one level off is more alike than another class.
    let close = at.saturating_sub(1)..(at + 2).min(levels.len());
    by_distance(of, CLASSES)
        .find_map(|class| {
            let mut near = by_distance(at, levels.len()).filter(|l| close.contains(l));
            near.find_map(|level| find(&levels[level], class))
        })
        .or_else(|| by_distance(at, levels.len()).find_map(|level| find(&levels[level], of)))
}

struct Cascade<'a, A: Address> {
    profile: &'a Profile,
    levels: Vec<Level>,
    random: &'a mut Random,
    /// Length of the prefix made last.
    before: u8,
    out: Vec<Prefix<A>>,
}

impl<A: Address> Cascade<'_, A> {
    /// Puts `n` prefixes into the node `first`/`level`. Recursion is as deep as prefixes are long.
    fn node(&mut self, first: A, level: u8, n: u64, cover: usize) {
        if n == 0 {
            return;
        }
        let max_len = self.profile.max_len;
        let room = room(level + 1, max_len);
        let at = usize::from(level - self.profile.base_len);
        let state = State { level, n, before: self.before };
        let weights = self.levels[at].present[cover][state.class(max_len)][state.relation()];
        let here = n > room.saturating_mul(2) || self.random.weighted(&weights) == 1;
        let m = n - u64::from(here);
        if here {
            self.out.extend(Prefix::new(first, level));
            self.before = level;
        }
        if m == 0 {
            return;
        }
        let state = State { level, n: m, before: self.before };
        let ways = self.levels[at].split[state.class(max_len)];
        // A half with more than its longest prefixes and a few around them is rare: no more than that, or than an even
        // division forces. Without this bound a few dense regions would fill up to the last node.
        let leaves = room / 2 + 1;
        let room = (leaves + leaves / 8).max(m.div_ceil(2) + leaves / 16).min(room);
        let left = self.divide(&ways, state).clamp(m.saturating_sub(room), room.min(m));
        let cover = (cover + usize::from(here)).min(COVERS - 1);
        self.node(first, level + 1, left, cover);
        let half = A::one() << usize::from(A::BITS - level - 1);
        self.node(first | half, level + 1, m - left, cover);
    }

    /// How many of `state.n` go left: a way by its weight, then any number of that way.
    fn divide(&mut self, ways: &[u32; WAYS], state: State) -> u64 {
        let (m, full) = (state.n, state.full_half(self.profile.max_len));
        let bounds = |chosen: usize| match chosen {
            0 => (0, 0),
            1 => (1, m.div_ceil(64).saturating_sub(1)),
            2 => (m.div_ceil(64).max(1), m.div_ceil(8).saturating_sub(1)),
            3 => (m.div_ceil(8).max(1), (3 * m).div_ceil(8).saturating_sub(1)),
            4 => ((3 * m).div_ceil(8), 5 * m / 8),
            5 => (5 * m / 8 + 1, 7 * m / 8),
            6 => (7 * m / 8 + 1, 63 * m / 64),
            7 => (63 * m / 64 + 1, m - 1),
            8 => (m, m),
            LEFT_FULL if full < m => (full, full),
            RIGHT_FULL if full < m => (m - full, m - full),
            HALF => (m.div_ceil(2), m / 2),
            _ => (1, 0),
        };
        let mut possible = *ways;
        for (chosen, weight) in possible.iter_mut().enumerate() {
            let (low, high) = bounds(chosen);
            if low > high || (chosen != HALF && low == high && low * 2 == m) {
                *weight = 0;
            }
        }
        if possible == [0; WAYS] {
            return if self.random.below(2) == 0 { 0 } else { m };
        }
        let chosen = self.random.weighted(&possible);
        let (low, high) = bounds(chosen);
        match chosen {
            // Small shares are spread over orders of magnitude.
            1 => self.any_magnitude(high),
            7 => m - self.any_magnitude(m - low),
            _ => low + self.random.below(high - low + 1),
        }
    }

    /// From 1 to `most`, every power of two as often as the next.
    fn any_magnitude(&mut self, most: u64) -> u64 {
        let bits = self.random.below(u64::from(most.max(1).ilog2()) + 1) as u32;
        ((1 << bits) + self.random.below(1 << bits)).min(most.max(1))
    }
}

/// Keeps `wanted` of the prefixes by taking whole regions in an order that the seed gives.
fn sample<A: Address>(prefixes: Vec<Prefix<A>>, wanted: usize, seed: u64) -> Vec<Prefix<A>> {
    if prefixes.len() <= wanted {
        return prefixes;
    }
    let region_len = if A::FAMILY == 4 { 16 } else { 32 };
    let region = |p: &Prefix<A>| p.first() & A::mask(region_len);
    let mut regions: Vec<&[Prefix<A>]> = prefixes.chunk_by(|p, q| region(p) == region(q)).collect();
    let key = |part: &&[Prefix<A>]| {
        part.first().map(|p| {
            let bits = (region(p).to_u128() >> (A::BITS - region_len)) as u64;
            (mix(seed ^ mix(bits)), bits)
        })
    };
    regions.sort_by_cached_key(key);
    let mut kept: Vec<Prefix<A>> = regions.into_iter().flatten().copied().take(wanted).collect();
    kept.sort_unstable();
    kept
}

/// Gives every prefix an origin by the profile's locality, and the origin's label.
fn label<A: Address>(
    profile: &Profile,
    prefixes: &[Prefix<A>],
    next_hops: u32,
    random: &mut Random,
) -> Rib<A> {
    let locality = filled_locality(&profile.locality);
    let mut walk: Siblings<A, u32> = Siblings::default();
    let mut rib = Rib::new();
    for &prefix in prefixes {
        let (parent, sibling) = walk.find(prefix);
        let at = &locality[usize::from(near(prefix, sibling.map(|(p, _)| p)))];
        let sibling = sibling.map(|(_, origin)| origin);
        let inherited = match (parent, sibling) {
            (None, None) => None,
            (None, Some(sibling)) => (random.weighted(&at.root) == 1).then_some(sibling),
            (Some(parent), None) => (random.weighted(&at.first) == 1).then_some(parent),
            (Some(parent), Some(sibling)) if parent == sibling => {
                (random.weighted(&at.stay) == 1).then_some(parent)
            }
            (Some(parent), Some(sibling)) => [None, Some(sibling), Some(parent)][random.weighted(&at.stray)],
        };
        let origin = inherited.unwrap_or_else(|| random.below(u64::from(profile.origins)) as u32);
        walk.settle(prefix, origin);
        let label = 1 + (mix(u64::from(origin)) % u64::from(next_hops)) as u32;
        rib.insert(prefix, Label(label));
    }
    rib
}

/// Fills levels that were not seen from the nearest ones.
fn filled_locality(levels: &[Locality]) -> Vec<Locality> {
    let mut filled = levels.to_vec();
    let distance = |a: usize| move |&(b, _): &(usize, &Locality)| a.abs_diff(b);
    for (at, level) in filled.iter_mut().enumerate() {
        let seen = |has: fn(&Locality) -> bool| {
            levels.iter().enumerate().filter(|(_, l)| has(l)).min_by_key(distance(at)).map(|(_, l)| *l)
        };
        if let Some(l) = seen(|l| l.root != [0; 2]) {
            level.root = l.root;
        }
        if let Some(l) = seen(|l| l.first != [0; 2]) {
            level.first = l.first;
        }
        if let Some(l) = seen(|l| l.stay != [0; 2]) {
            level.stay = l.stay;
        }
        if let Some(l) = seen(|l| l.stray != [0; 3]) {
            level.stray = l.stray;
        }
    }
    filled
}
