//! What software executes for a lookup: instructions, loads, stores by step, as measured by callgrind (valgrind 3.19, `--cache-sim=yes --branch-sim=yes`),
//! x86-64 without extensions, keys of 16 bytes, tables of 4,096 slots filled to 0.9, November 2026.
//!
//! * [`RTE_HASH`]: DPDK 22.11's `rte_hash_lookup` with CRC32 and optimistic locks, as Debian 12 builds it; `data/rte_hash.c`. This is the paper's
//!   software. Locks: the same program without them, subtracted (for what is there; what is absent pays 43 instructions, not 34).
//! * [`KEYSTORE`], [`FLOWTABLE`]: ours (rustc 1.95, release, one codegen unit); `examples/mix.rs`.
//! * [`TABLE_1`]: the 210 instructions of the paper's Table 1, an input of the paper's, shared among steps as `rte_hash`'s are.
//!
//! Kinds of lookups were counted apart (found in the first bucket, found in the other, not there), so that steps follow by subtraction, and
//! a loop without a lookup was taken off:
//!
//! | per lookup: instructions, loads, stores, wrong guesses | first | second | absent | no lookup |
//! |---|---|---|---|---|
//! | `rte_hash` | 177.8, 48.0, 23.0, 1.24 | 253.7, 60.0, 24.0, 2.15 | 250.0, 54.0, 20.0, 2.00 | 6.0, 2.0, 1.0, 0 |
//! | without locks | 161.8, 46.0, 19.0, 1.27 | 219.8, 58.0, 19.0, 2.15 | 207.0, 50.0, 18.0, 2.00 | |
//! | of both, the hash | 42, 8, 4 | | | |
//! | `keystore-cuckoo` | 112.1, 23.0, 5.0, 0 | 137.1, 27.0, 6.0, 0 | 99.1, 18.0, 6.0, 0 | 8.1, 3.0, 1.0, 0 |
//! | `flowtable` | 81.2, 21.1, 1.1, 0 | | 68.2, 16.1, 1.1, 0 | |
//! | hash of ours | 42.3, 4.1, 0 | | | |
//! | a key of `keystore-cuckoo`'s batch | 212.4, 31.7, 5.4, 0.49 | | | |
//! | a key of `flowtable`'s batch | 139.2, 25.1, 12.2, 0.28 | | | |
//!
//! Wrong guesses of `rte_hash` come from its search of a bucket, entry by entry: the model makes them from these numbers. Whether a key is in its first bucket
//! is guessed by the model itself, for ours (callgrind has seen one kind at a time).
//!
//! **Chains**, in cycles, are not measured but read from the machine code, with the latencies of public tables (a load from L1 is the cache's own, and not in them).

use crate::machine::Step;

/// A lookup's steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// As in results.
    pub name: &'static str,
    /// From the key to the hash.
    pub hash: Step,
    /// Once for each lookup.
    pub base: Step,
    /// For each bucket, without its first load.
    pub bucket: Step,
    /// For each entry that is looked at, likewise.
    pub entry: Step,
    /// Locks: for each lookup, and for each bucket.
    pub lock: [Step; 2],
    /// Wrong guesses for each lookup, bucket, entry, beside those of which bucket it is.
    pub wrong: [f64; 3],
}

const fn step(instructions: f64, loads: f64, stores: f64, chain_cycles: f64) -> Step {
    Step { instructions, loads, stores, chain_cycles }
}

/// A loop around lookups: the next key, the sum of what was found.
pub const LOOP: Step = step(6.0, 2.0, 1.0, 1.0);
/// Masking a key of two words in software: load, and, store of each. Counted by hand.
pub const MASK: Step = step(6.0, 2.0, 2.0, 1.0);
/// Looking at a line of results: compare, gather signs, compare, jump (4.5). Counted by hand.
pub const CHECK: Step = step(4.0, 0.0, 0.0, 6.0);

/// DPDK's, the paper's software.
pub const RTE_HASH: Mix = Mix {
    name: "rte_hash",
    hash: step(42.0, 8.0, 4.0, 16.0),
    base: step(51.0, 18.0, 10.0, 6.0),
    bucket: step(57.9, 11.0, 0.0, 10.0),
    entry: step(2.7, 4.95, 4.0, 8.0),
    lock: [step(0.0, 2.0, 3.0, 0.0), step(17.0, 0.0, 1.0, 0.0)],
    wrong: [0.18, 0.91, 0.15],
};

/// The 210 instructions of Table 1, 36.2 % loads and 11.8 % stores. A hit in the first bucket is 171.8 of `rte_hash`'s, one in nine is in the other.
pub const TABLE_1: Mix = {
    const fn scaled(of: Step) -> Step {
        const BY: f64 = 210.0 / (171.8 + 75.9 / 9.0);
        const LOADS: f64 = 0.362 * 210.0 / 47.3;
        const STORES: f64 = 0.118 * 210.0 / 22.1;
        step(of.instructions * BY, of.loads * LOADS, of.stores * STORES, of.chain_cycles * BY)
    }
    Mix {
        name: "table-1",
        hash: scaled(RTE_HASH.hash),
        base: scaled(RTE_HASH.base),
        bucket: scaled(RTE_HASH.bucket),
        entry: scaled(RTE_HASH.entry),
        lock: [scaled(RTE_HASH.lock[0]), scaled(RTE_HASH.lock[1])],
        wrong: RTE_HASH.wrong,
    }
};

/// Ours in the paper's layout. Its locks are a version's two loads, a comparison and a jump.
pub const KEYSTORE: Mix = Mix {
    name: "keystore-cuckoo",
    hash: step(42.3, 4.1, 0.0, 18.0),
    base: step(41.0, 7.0, 3.0, 8.0),
    bucket: step(22.0, 1.0, 1.0, 12.0),
    entry: step(37.0, 8.0, 0.0, 4.0),
    lock: [step(0.0, 0.0, 0.0, 0.0), step(2.0, 2.0, 0.0, 0.0)],
    wrong: [0.0; 3],
};

/// The production table. What it takes for a second bucket was not counted apart: as much as for the first, less nothing.
pub const FLOWTABLE: Mix = Mix {
    name: "flowtable",
    hash: step(42.3, 4.1, 0.0, 18.0),
    base: step(0.0, 0.0, 0.0, 8.0),
    bucket: step(59.1, 12.1, 0.1, 12.0),
    entry: step(12.0, 4.0, 0.0, 4.0),
    lock: [step(0.0, 0.0, 0.0, 0.0); 2],
    wrong: [0.0; 3],
};

/// Instructions of a key in `keystore-cuckoo`'s batch of 32 beyond those of the lookup at its end: two rounds of prefetches.
pub const KEYSTORE_PREFETCHES: Step = step(100.0, 9.0, 0.5, 8.0);

/// A structure whose steps were not counted apart: all that a lookup executes (`examples/mix.rs`, `..._mixed` and `fib_...`, 200 keys that are asked again and again, so that
/// wrong guesses are few) in one step before its loads, less [`LOOP`].
const fn whole(
    name: &'static str,
    instructions: f64,
    loads: f64,
    stores: f64,
    wrong: f64,
    hash: Step,
) -> Mix {
    let after = step(0.0, 0.0, 0.0, 4.0);
    Mix {
        name,
        hash,
        base: step(instructions - 6.0, loads - 2.0, stores - 1.0, 6.0),
        bucket: after,
        entry: after,
        lock: [step(0.0, 0.0, 0.0, 0.0); 2],
        wrong: [wrong, 0.0, 0.0],
    }
}

/// What `halo-structures` runs: hash tables, then structures for routes.
pub const STRUCTURES: [Mix; 10] = [
    KEYSTORE,
    FLOWTABLE,
    // Keys of 32 bytes; of the hash's chain two additions more than with 16.
    whole("key-value", 132.6, 31.9, 9.3, 0.29, step(78.9, 12.1, 0.6, 20.0)),
    // Its loop stores nothing: what `whole` takes off.
    whole("cuckoo-filter", 39.1, 3.0, 1.0, 0.01, KEYSTORE.hash),
    whole("cuckoo", 89.8, 14.3, 2.1, 0.31, KEYSTORE.hash),
    whole("chaining", 38.6, 8.7, 1.0, 0.77, KEYSTORE.hash),
    whole("dxr-d16x4r", 61.9, 13.5, 2.0, 0.17, step(0.0, 0.0, 0.0, 0.0)),
    whole("poptrie-d18", 54.9, 17.6, 11.0, 0.32, step(0.0, 0.0, 0.0, 0.0)),
    whole("sail-l", 43.1, 7.2, 1.0, 0.34, step(0.0, 0.0, 0.0, 0.0)),
    whole("tree-bitmap", 102.6, 30.6, 25.4, 0.33, step(0.0, 0.0, 0.0, 0.0)),
];

/// Every mix that `--mix` names.
pub const ALL: [Mix; 4] = [RTE_HASH, TABLE_1, KEYSTORE, FLOWTABLE];

impl Mix {
    /// By name.
    pub fn named(name: &str) -> Option<Mix> {
        ALL.into_iter().find(|mix| mix.name == name)
    }

    /// Instructions of a lookup that looks at so many buckets and entries, its hash included.
    pub fn instructions(&self, buckets: f64, entries: f64) -> f64 {
        // Each bucket and each entry has a load of its own beside its step.
        self.hash.instructions
            + self.base.instructions
            + self.lock[0].instructions
            + buckets * (1.0 + self.bucket.instructions + self.lock[1].instructions)
            + entries * (1.0 + self.entry.instructions)
    }

    /// Loads and stores of such a lookup.
    pub fn memory(&self, buckets: f64, entries: f64) -> [f64; 2] {
        let sum = |of: fn(&Step) -> f64, own: f64| {
            of(&self.hash)
                + of(&self.base)
                + of(&self.lock[0])
                + buckets * (own + of(&self.bucket) + of(&self.lock[1]))
                + entries * (own + of(&self.entry))
        };
        [sum(|step| step.loads, 1.0), sum(|step| step.stores, 0.0)]
    }

    /// The same without locks.
    pub fn without_lock(self) -> Mix {
        Mix { lock: [Step::default(); 2], ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps add up to what was counted, for each kind: with the loop taken off, and the hash in where it was counted with it.
    #[test]
    fn steps_add_up_to_what_was_counted() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1.5, "{a} {b}");
        for (buckets, entries, counted) in [(1.0, 1.0, 171.8), (2.0, 1.0, 247.7), (2.0, 0.0, 244.0)] {
            near(RTE_HASH.instructions(buckets, entries), counted);
        }
        for (buckets, entries, counted) in [(1.0, 1.0, 155.8), (2.0, 1.0, 213.8)] {
            near(RTE_HASH.without_lock().instructions(buckets, entries), counted);
        }
        for (buckets, entries, counted) in [(1.0, 1.0, 104.0), (2.0, 1.0, 129.0), (2.0, 0.0, 91.0)] {
            near(KEYSTORE.instructions(buckets, entries) - KEYSTORE.hash.instructions, counted);
        }
        for (buckets, entries, [loads, stores]) in [(1.0, 1.0, [46.0, 22.0]), (2.0, 1.0, [58.0, 23.0])] {
            let memory = RTE_HASH.memory(buckets, entries);
            assert!((memory[0] - loads).abs() < 1.5 && (memory[1] - stores).abs() < 1.5, "{memory:?}");
        }
        for (entries, counted) in [(1.0, 73.1), (0.0, 60.1)] {
            near(FLOWTABLE.instructions(1.0, entries) - FLOWTABLE.hash.instructions, counted);
        }
        near(TABLE_1.instructions(1.0 + 1.0 / 9.0, 1.0), 210.0);
    }
}
