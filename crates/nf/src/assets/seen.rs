//! What has been reported already: a worker's memory of hashes, so that a packet that adds nothing costs one look.
//!
//! ```text
//! hash  | 63 ... 32: set of 4 entries | 31 ... 0: tag |
//! entry | tag | second in which it is forgotten |       a set is half a line of memory
//! ```
//!
//! It forgets by itself after a while, so that what goes on is reported again and stays in the table; and it forgets what has the least time left
//! where a set is full: then something is reported more often than it would have to be. Two observations with one tag in one set pass for one, which
//! happens to one in 10^9; the hash has a secret, so nobody can make it happen.

use tidemill_lookup::probe::Probe;

const WAYS: usize = 4;

/// See the [module](self).
#[derive(Debug)]
pub struct Seen {
    sets: Box<[[u64; WAYS]]>,
}

fn pack(tag: u32, until_s: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(until_s)
}

impl Seen {
    /// One that remembers about so many; a power of two is made of it.
    pub fn new(entries: usize) -> Self {
        Seen { sets: vec![[0; WAYS]; Seen::sets_of(entries)].into_boxed_slice() }
    }

    fn sets_of(entries: usize) -> usize {
        entries.clamp(WAYS, 1 << 30).next_power_of_two() / WAYS
    }

    /// Bytes that one for so many occupies.
    pub fn bytes_of(entries: usize) -> usize {
        Seen::sets_of(entries) * size_of::<[u64; WAYS]>()
    }

    fn place(&self, hash: u64) -> (usize, u32) {
        // A power of two, at most 2^28.
        ((hash >> 32) as usize & (self.sets.len() - 1), hash as u32)
    }

    /// Whether this is remembered at `now_s`.
    #[inline]
    pub fn has(&self, hash: u64, now_s: u32) -> bool {
        self.has_probed(hash, now_s, &())
    }

    /// The same, and tells a probe.
    #[inline]
    pub fn has_probed<P: Probe>(&self, hash: u64, now_s: u32, probe: &P) -> bool {
        let (set, tag) = self.place(hash);
        let set = &self.sets[set];
        probe.read(set.as_ptr() as usize, size_of_val(set), false);
        probe.step();
        set.iter().any(|entry| (entry >> 32) as u32 == tag && *entry as u32 > now_s)
    }

    /// Remembers this until `until_s`.
    pub fn note(&mut self, hash: u64, now_s: u32, until_s: u32) {
        let (set, tag) = self.place(hash);
        let set = &mut self.sets[set];
        let left = |entry: &u64| (*entry as u32).saturating_sub(now_s);
        let same = set.iter().position(|entry| (entry >> 32) as u32 == tag);
        let least = || set.iter().enumerate().min_by_key(|(_, entry)| left(entry)).map(|(way, _)| way);
        if let Some(way) = same.or_else(least) {
            set[way] = pack(tag, until_s);
        }
    }

    /// Bytes that it occupies.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_lookup::probe::Recorder;

    #[test]
    fn it_remembers_for_its_time_and_makes_room_by_time_left() {
        let mut seen = Seen::new(1);
        assert!(!seen.has(1, 10));
        for hash in 1..=4 {
            seen.note(hash, 10, 20 + hash as u32);
        }
        assert!((1..=4).all(|hash| seen.has(hash, 10)));
        seen.note(5, 10, 30);
        assert_eq!([1, 2, 5].map(|hash| seen.has(hash, 10)), [false, true, true]);
        assert_eq!((seen.has(2, 21), seen.has(2, 22)), (true, false));
    }

    #[test]
    fn a_look_is_one_read_of_half_a_line() {
        let seen = Seen::new(1000);
        assert_eq!(seen.bytes(), 8192);
        let recorder = Recorder::default();
        seen.has_probed(u64::MAX, 0, &recorder);
        assert_eq!(recorder.counts().reads, 1);
    }
}
