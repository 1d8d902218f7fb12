//! Which keys are asked for most, in fixed memory: Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams", 2005), on one of every [`EACH`] hits.
//!
//! A key that is not counted takes the place of the one with the least, and its count: a count is too large by at most what the least was then,
//! and a key that has more than hits / places is always there.

use tidemill_kv::codec::MAX_KEY;

/// One of so many hits is counted, for so many.
pub(crate) const EACH: u64 = 16;
const PLACES: usize = 128;

/// A key and how often it was given, as far as that is known.
pub type HotKey = (Vec<u8>, u64);

#[derive(Debug, Clone, Copy)]
struct Place {
    count: u64,
    key_len: u8,
    key: [u8; MAX_KEY],
}

/// The counts.
#[derive(Debug)]
pub(crate) struct Hot {
    hits: u64,
    hashes: [u64; PLACES],
    places: Box<[Place; PLACES]>,
}

impl Hot {
    pub(crate) fn new() -> Self {
        let place = Place { count: 0, key_len: 0, key: [0; MAX_KEY] };
        Hot { hits: 0, hashes: [0; PLACES], places: Box::new([place; PLACES]) }
    }

    /// A key was given.
    #[inline]
    pub(crate) fn hit(&mut self, hash: u64, key: &[u8]) {
        self.hits += 1;
        if self.hits.is_multiple_of(EACH) {
            self.count(hash, key);
        }
    }

    fn count(&mut self, hash: u64, key: &[u8]) {
        let there = self.hashes.iter().position(|known| *known == hash);
        let at = there.filter(|&at| self.places[at].key() == key);
        let at = at.unwrap_or_else(|| {
            let least = (0..PLACES).min_by_key(|&at| self.places[at].count).unwrap_or(0);
            let place = &mut self.places[least];
            if let Some(room) = place.key.get_mut(..key.len()) {
                room.copy_from_slice(key);
                place.key_len = key.len() as u8;
                self.hashes[least] = hash;
            }
            least
        });
        self.places[at].count += EACH;
    }

    /// The most first.
    pub(crate) fn top(&self) -> Vec<HotKey> {
        let counted = self.places.iter().filter(|place| place.count > 0);
        let mut top: Vec<HotKey> = counted.map(|place| (place.key().to_vec(), place.count)).collect();
        top.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top
    }
}

impl Place {
    fn key(&self) -> &[u8] {
        &self.key[..self.key_len.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_for_most_is_known() {
        let mut hot = Hot::new();
        let mut state = 1_u64;
        let mut exact = [0_u64; 4];
        for _ in 0..1_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of the hits are of four keys, the rest of a million.
            let draw = state >> 33;
            let number = if draw & 1 == 0 { draw >> 1 & 3 } else { 4 + (draw >> 1) % 1_000_000 };
            if let Some(exact) = exact.get_mut(number as usize) {
                *exact += 1;
            }
            hot.hit(tidemill_cachesim::random::mix(number), &number.to_be_bytes());
        }
        let top = hot.top();
        assert_eq!(top.len(), PLACES);
        let mut first: Vec<Vec<u8>> = top[..4].iter().map(|(key, _)| key.clone()).collect();
        first.sort();
        assert_eq!(first, (0..4_u64).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
        for (key, count) in &top[..4] {
            let exact = exact[usize::from(key[7])] as f64;
            assert!((*count as f64 / exact - 1.0).abs() < 0.1, "{count} of {exact}");
        }
    }
}
