//! One timed pass over the keys: what `bench/README.md` says a runner does.
//!
//! Results are stored to a buffer of [`BLOCK`] labels; the clock stops after each block while the block is added to the
//! checksum, so that every timed result is stored and checked, and hashing is not charged.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lpm::{Address, Fib, Label, Oracle};

/// Lookups between two looks at the clock.
pub(crate) const BLOCK: usize = 4096;

/// FNV-1a, 64 bits, over labels as four little-endian bytes each, or over other bytes.
#[derive(Clone, Copy)]
pub(crate) struct Checksum(u64);

impl Checksum {
    pub(crate) fn new() -> Self {
        Checksum(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, labels: &[Label]) {
        self.bytes(labels.iter().flat_map(|label| label.0.to_le_bytes()));
    }

    pub(crate) fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    pub(crate) fn text(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// What a pass took, and a checksum of what it answered.
pub(crate) struct Pass {
    pub(crate) time: Duration,
    pub(crate) checksum: String,
}

/// Keys on huge pages, where tables are. A pass of 2^22 keys goes through 16 or 64 MB: on pages of 4 KB their translations would be looked
/// for beside the table's, and push them out.
pub(crate) fn on_huge_pages<A: Copy>(keys: Vec<A>) -> Arc<Array<A>> {
    let keys: Array<A> = keys.into_iter().collect();
    collapse(&keys);
    Arc::new(keys)
}

/// What [`on_huge_pages`] could do for all of these, as runners tell it: asked again, the kernel says what there is.
pub(crate) fn key_pages<A>(arrays: &[&[A]]) -> &'static str {
    if arrays.iter().all(|keys| collapse(keys)) { "2 MB" } else { "4 KB" }
}

/// The pages that a table of so many bytes lies on, nearly all of it, by the process's own books; so many bytes of keys lie on transparent
/// ones as well, if the allocator is asked for that, but for their ends.
pub(crate) fn table_pages(bytes: usize, keys: usize) -> &'static str {
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps_rollup") else {
        return "unknown";
    };
    let on = |kinds: &[&str], others: usize| {
        let of = |line: &str| {
            let (kind, size) = line.split_once(':')?;
            let kilobytes: usize = size.trim().strip_suffix(" kB")?.parse().ok()?;
            kinds.contains(&kind).then_some(kilobytes << 10)
        };
        text.lines().filter_map(of).sum::<usize>() >= bytes / 10 * 9 + others
    };
    if on(&["Private_Hugetlb"], 0) {
        "2 MB"
    } else if on(&["Private_Hugetlb", "AnonHugePages"], keys.saturating_sub(4 << 20)) {
        "2 MB, transparent"
    } else {
        "4 KB"
    }
}

/// Whether a lookup waits for the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Batches of keys; no lookup needs another's result.
    Independent {
        /// Keys per call.
        batch: usize,
    },
    /// Each key is XORed with the previous label: no lookup can start before the one before it has ended.
    Dependent,
}

/// Looks up every key once.
pub(crate) fn timed_pass<A: Address>(fib: &dyn Fib<A>, keys: &[A], order: Order) -> Pass {
    let mut labels = vec![Label::NONE; BLOCK];
    let (mut checksum, mut time) = (Checksum::new(), Duration::ZERO);
    let mut previous = Label::NONE;
    for block in keys.chunks(BLOCK) {
        let labels = &mut labels[..block.len()];
        let start = Instant::now();
        previous = look_up(fib, block, labels, order, previous);
        time += start.elapsed();
        checksum.add(labels);
    }
    Pass { time, checksum: checksum.text() }
}

/// Looks up keys that follow a lookup whose answer was `previous`; returns the last answer.
#[inline]
pub(crate) fn look_up<A: Address>(
    fib: &dyn Fib<A>,
    keys: &[A],
    labels: &mut [Label],
    order: Order,
    mut previous: Label,
) -> Label {
    match order {
        Order::Independent { batch } => {
            for (keys, out) in keys.chunks(batch).zip(labels.chunks_mut(batch)) {
                fib.lookup_batch(keys, out);
            }
        }
        Order::Dependent => {
            for (&key, out) in keys.iter().zip(labels) {
                previous = fib.lookup(key ^ A::from_u128(previous.0.into()));
                *out = previous;
            }
        }
    }
    previous
}

/// Repeats a pass of `count` lookups until `slice` has been spent in it; M lookups/s.
pub(crate) fn sustained(slice: Duration, count: usize, mut pass: impl FnMut() -> Duration) -> f64 {
    let (mut time, mut lookups) = (Duration::ZERO, 0);
    while time < slice {
        time += pass().max(Duration::from_nanos(1));
        lookups += count;
    }
    lookups as f64 / time.as_secs_f64() / 1e6
}

/// The checksum that a pass must have, by the oracle.
pub(crate) fn expected<A: Address>(oracle: &Oracle<A>, keys: &[A], order: Order) -> String {
    let mut checksum = Checksum::new();
    let mut previous = Label::NONE;
    for &key in keys {
        let key = match order {
            Order::Independent { .. } => key,
            Order::Dependent => key ^ A::from_u128(previous.0.into()),
        };
        previous = oracle.lookup(key);
        checksum.add(&[previous]);
    }
    checksum.text()
}

/// Keys in their order, and the checksum that a pass must have.
pub(crate) struct Asked<A> {
    pub(crate) keys: Arc<Array<A>>,
    pub(crate) expected: String,
}

impl<A: Address> Asked<A> {
    pub(crate) fn new(oracle: &Oracle<A>, keys: Arc<Array<A>>, order: Order) -> Self {
        Asked { expected: expected(oracle, &keys, order), keys }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_the_protocol_names() {
        let mut checksum = Checksum::new();
        checksum.add(&[Label(1), Label(2), Label(3)]);
        assert_eq!(checksum.text(), "fd1f0f4381eb0395");
    }

    #[test]
    fn keys_stay_the_same_and_few_of_them_on_small_pages() {
        let keys: Vec<u128> = (0..BLOCK as u128).collect();
        let moved = on_huge_pages(keys.clone());
        assert_eq!(moved[..], keys[..]);
        assert_eq!(key_pages(&[&moved[..]]), "4 KB", "64 KB have no whole huge page inside");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_not_there_lies_on_no_huge_pages() {
        assert_eq!(table_pages(1 << 45, 0), "4 KB");
    }
}
