//! A map of fixed size that forgets: what a policy remembers about sources, where sources are the attacker's to choose.
//!
//! ```text
//! key (up to 32 bytes) --keyed hash--> bucket of 8 places: key, time of last use, 4 numbers
//! ```
//! - It never grows. A new key takes a free place of its bucket, or one that nobody has used for `idle`, or else the one that was used
//!   longest ago (counted). So an attacker who makes up keys pushes others out, but cannot choose which: the hash is keyed.
//! - One lookup looks at 8 places; nothing ever walks the whole map.
//! - 88 bytes for each entry, taken when the script loads.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Places of a bucket.
const WAYS: usize = 8;

/// The longest key: source and destination of an IPv6 flow.
pub const KEY_MAX: usize = 32;

/// Numbers of an entry.
pub const VALUES: usize = 4;

/// The most entries of one map.
pub const ENTRIES_MAX: usize = 1 << 20;

/// A key: up to 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapKey {
    bytes: [u8; KEY_MAX],
    len: u8,
}

impl MapKey {
    /// `None` if it is too long.
    pub fn new(from: &[u8]) -> Option<MapKey> {
        let mut bytes = [0; KEY_MAX];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(MapKey { bytes, len: from.len() as u8 })
    }

    /// A number is another key than any bytes.
    pub fn number(from: f64) -> MapKey {
        let mut bytes = [0; KEY_MAX];
        bytes[..8].copy_from_slice(&from.to_le_bytes());
        MapKey { bytes, len: u8::MAX }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    key: MapKey,
    taken: bool,
    used_ns: u64,
    values: [f64; VALUES],
}

/// The map.
pub struct Expiring {
    entries: Box<[Entry]>,
    idle_ns: u64,
    seed: u64,
    evicted: u64,
}

impl Expiring {
    /// With room for about `entries` (a power of two of at least 8, at most [`ENTRIES_MAX`]), forgotten when unused for `idle_ns`.
    pub fn new(entries: usize, idle_ns: u64, seed: u64) -> Expiring {
        let size = entries.clamp(WAYS, ENTRIES_MAX).next_power_of_two();
        let key = MapKey { bytes: [0; KEY_MAX], len: 0 };
        let free = Entry { key, taken: false, used_ns: 0, values: [0.0; VALUES] };
        Expiring { entries: vec![free; size].into_boxed_slice(), idle_ns, seed, evicted: 0 }
    }

    /// Entries that there is room for.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Entries that gave way to others before their time.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Takes over what a map of the same size has, at once; when it forgets stays its own. Whether it did.
    pub fn inherit(&mut self, from: &mut Expiring) -> bool {
        let fits = self.entries.len() == from.entries.len();
        if fits {
            std::mem::swap(self, from);
            std::mem::swap(&mut self.idle_ns, &mut from.idle_ns);
        }
        fits
    }

    /// Goes on as a map of so many `entries` would that forgets after `idle_ns`, if it has that size; whether it does.
    pub fn take_up(&mut self, entries: usize, idle_ns: u64) -> bool {
        let fits = self.entries.len() == entries;
        if fits {
            self.idle_ns = idle_ns;
        }
        fits
    }

    fn bucket(&mut self, key: &MapKey) -> &mut [Entry] {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write(&key.bytes);
        hasher.write_u8(key.len);
        let buckets = self.entries.len() / WAYS;
        let at = (hasher.finish() as usize & (buckets - 1)) * WAYS;
        &mut self.entries[at..at + WAYS]
    }

    /// The key's numbers, if it is there; it counts as used now.
    pub fn get(&mut self, now_ns: u64, key: &MapKey) -> Option<[f64; VALUES]> {
        let idle_ns = self.idle_ns;
        let entry = self.bucket(key).iter_mut().find(|entry| entry.taken && entry.key == *key)?;
        if now_ns.saturating_sub(entry.used_ns) >= idle_ns {
            entry.taken = false;
            return None;
        }
        entry.used_ns = now_ns;
        Some(entry.values)
    }

    /// Sets the key's numbers; it counts as used now.
    pub fn set(&mut self, now_ns: u64, key: &MapKey, values: [f64; VALUES]) {
        let idle_ns = self.idle_ns;
        let bucket = self.bucket(key);
        let free = |entry: &Entry| !entry.taken || now_ns.saturating_sub(entry.used_ns) >= idle_ns;
        let own = bucket.iter().position(|entry| entry.taken && entry.key == *key);
        let (at, evicts) = match own.or_else(|| bucket.iter().position(free)) {
            Some(at) => (at, false),
            None => ((0..WAYS).min_by_key(|&at| bucket[at].used_ns).unwrap_or(0), true),
        };
        bucket[at] = Entry { key: *key, taken: true, used_ns: now_ns, values };
        self.evicted += u64::from(evicts);
    }

    /// Forgets the key.
    pub fn remove(&mut self, key: &MapKey) {
        if let Some(entry) = self.bucket(key).iter_mut().find(|entry| entry.key == *key) {
            entry.taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map_as_long_as_there_is_room() {
        // 64 keys in 65,536 places: for a bucket to overflow, nine of them would have to meet in one of 8,192.
        let mut random = StdRng::seed_from_u64(1);
        let mut map = Expiring::new(65_536, 100, 7);
        let mut model: HashMap<u8, (u64, [f64; VALUES])> = HashMap::new();
        for now in 0..20_000 {
            let name: u8 = random.random_range(0..64);
            let key = MapKey::new(&[name; 5]).unwrap();
            match random.random_range(0..10) {
                0 => {
                    map.remove(&key);
                    model.remove(&name);
                }
                1..5 => {
                    let values = [now as f64, 1.0, 2.0, 3.0];
                    map.set(now, &key, values);
                    model.insert(name, (now, values));
                }
                _ => {
                    let there = model.get_mut(&name).filter(|(used, _)| now - *used < 100);
                    let expected = there.map(|there| {
                        there.0 = now;
                        there.1
                    });
                    assert_eq!(map.get(now, &key), expected, "at {now}");
                    if expected.is_none() {
                        model.remove(&name);
                    }
                }
            }
        }
        assert_eq!(map.evicted(), 0);
    }

    #[test]
    fn it_never_grows_and_evicts_what_was_used_longest_ago() {
        let mut map = Expiring::new(8, u64::MAX, 1);
        assert_eq!(map.capacity(), 8);
        for name in 0..8 {
            map.set(u64::from(name), &MapKey::new(&[name]).unwrap(), [f64::from(name); VALUES]);
        }
        assert!(map.get(10, &MapKey::new(&[0]).unwrap()).is_some(), "used again");
        map.set(11, &MapKey::new(&[99]).unwrap(), [1.0; VALUES]);
        assert_eq!(map.evicted(), 1);
        assert_eq!(map.get(12, &MapKey::new(&[1]).unwrap()), None, "the oldest gave way");
        assert!(map.get(12, &MapKey::new(&[0]).unwrap()).is_some());
        for flood in 0..100_000u32 {
            map.set(13, &MapKey::new(&flood.to_le_bytes()).unwrap(), [0.0; VALUES]);
        }
        assert_eq!(map.capacity(), 8);
        assert_eq!(Expiring::new(usize::MAX, 1, 1).capacity(), ENTRIES_MAX);
    }

    #[test]
    fn it_inherits_from_one_of_its_size() {
        let key = MapKey::new(b"key").unwrap();
        let mut old = Expiring::new(64, 1000, 1);
        old.set(0, &key, [7.0; VALUES]);
        assert!(!Expiring::new(128, 10, 2).inherit(&mut old));
        let mut new = Expiring::new(64, 10, 3);
        assert!(new.inherit(&mut old));
        assert_eq!(old.get(1, &key), None, "moved");
        assert_eq!(new.get(9, &key), Some([7.0; VALUES]));
        assert_eq!(new.get(19, &key), None, "it forgets when it does itself");
        new.set(20, &key, [8.0; VALUES]);
        assert!(!new.take_up(128, 1000) && new.take_up(64, 1000));
        assert_eq!(new.get(1000, &key), Some([8.0; VALUES]));
    }

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(MapKey::new(&[0; 33]), None);
        assert_ne!(MapKey::new(&[0; 4]), MapKey::new(&[0; 16]));
        assert_ne!(MapKey::new(&1f64.to_le_bytes()), Some(MapKey::number(1.0)));
        assert_ne!(MapKey::new(&[]), MapKey::new(&[0]));
    }
}
