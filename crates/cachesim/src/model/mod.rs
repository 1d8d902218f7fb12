//! Workload models after the Facebook pools USR, SYS, APP, ETC and VAR (Atikoglu et al., SIGMETRICS 2012), as Tokusashi (2019, 3.6.1) took them
//! from that paper's graphs by hand.
//!
//! | | published | assumed |
//! |---|---|---|
//! | USR | keys 16 and 21 B, values 2 B | half and half; 0.2 % sets |
//! | SYS | keys below 30 B, 70 % of values about 500 B, above 30 % sets | keys 17 to 29 B, other values 10 to 400 B; 33 % sets |
//! | APP | 90 % of keys 31 B, values about 270 B | other keys 20 to 60 B; 90 % of values 257 to 283 B, others 2 to 256; 3 % sets |
//! | ETC | key sizes, value sizes (GEV, generalized Pareto), gets to sets 30 to 1, "a lot of" deletes | 30 % deletes |
//! | VAR | keys 32 B, 80 % of values 50 B, above 70 % sets | other values 51 to 1000 B; 72 % sets |
//!
//! **Key popularity is published by neither paper.** It is assumed to be Zipf's law, with every request drawn anew (no locality in time), over a
//! number of keys: see [`Model`]. Both were chosen so that what Tokusashi states of miss ratios comes out where he states it: USR and
//! SYS with an L1 alone (3.6.4), APP with slab type E (3.6.6). For ETC and VAR nothing is stated, and nothing was fitted.
//!
//! Beside them YCSB's core workloads A, B, C and F ([`Model::YCSB`]; Cooper et al., SoCC 2010): there popularity is published, Zipf's law with exponent 0.99. D and E are not here: their keys come to be, and are scanned. Nor are
//! CacheLib's published workloads (`cachelib-kvcache_reg` and others: popularity, sizes and shares of operations, in files of their own): they are given for CacheBench to run, and no reader of them is built.

mod alias;
mod sizes;

use crate::log::{KeyInfo, Log, Op, Request};
use crate::random::{Random, mix, unit};
pub use alias::Alias;
pub use sizes::Sizes;

/// memcached's longest key and largest value, bytes.
const KEY_MAX_BYTES: u32 = 250;
const VALUE_MAX_BYTES: u32 = 1 << 20;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// As it is named: `usr`.
    pub name: &'static str,
    /// How many keys there are. An assumption.
    pub keys: usize,
    /// Of Zipf's law. An assumption.
    pub exponent: f64,
    /// Part of the requests that are sets, 0 to 1.
    pub sets: f64,
    /// Part that are deletes.
    pub deletes: f64,
    /// Of keys.
    pub key_sizes: Sizes,
    /// Of values.
    pub value_sizes: Sizes,
}

impl Model {
    /// The five pools.
    pub const ALL: [Model; 5] = [
        Model {
            name: "usr",
            keys: 4_700_000,
            exponent: 0.6,
            sets: 0.002,
            deletes: 0.0,
            key_sizes: Sizes::Parts(&[(0.5, 16, 16), (0.5, 21, 21)]),
            value_sizes: Sizes::Parts(&[(1.0, 2, 2)]),
        },
        Model {
            name: "sys",
            keys: 1_500_000,
            exponent: 0.6,
            sets: 0.33,
            deletes: 0.0,
            key_sizes: Sizes::Parts(&[(1.0, 17, 29)]),
            value_sizes: Sizes::Parts(&[(0.7, 490, 510), (0.3, 10, 400)]),
        },
        Model {
            name: "app",
            keys: 550_000,
            exponent: 0.8,
            sets: 0.03,
            deletes: 0.0,
            key_sizes: Sizes::Parts(&[(0.9, 31, 31), (0.1, 20, 60)]),
            value_sizes: Sizes::Parts(&[(0.9, 257, 283), (0.1, 2, 256)]),
        },
        Model {
            name: "etc",
            keys: 2_000_000,
            exponent: 0.8,
            sets: 0.7 / 31.0,
            deletes: 0.3,
            key_sizes: Sizes::Gev { location: 30.7984, scale: 8.20449, shape: 0.078688 },
            value_sizes: Sizes::Pareto { small: &ETC_SMALL, location: 15.0, scale: 214.476, shape: 0.348238 },
        },
        Model {
            name: "var",
            keys: 2_000_000,
            exponent: 0.8,
            sets: 0.72,
            deletes: 0.0,
            key_sizes: Sizes::Parts(&[(1.0, 32, 32)]),
            value_sizes: Sizes::Parts(&[(0.8, 50, 50), (0.2, 51, 1000)]),
        },
    ];

    /// YCSB's core workloads that read and write keys that are there. Published: shares, exponent, ten fields of 100 bytes. Assumed: a million keys (the files' 1,000 are for who runs them to change) of
    /// "user" and 19 digits; an update is a set of the whole value; of F, which reads all that it writes, a third of the requests are sets, each drawn by itself.
    pub const YCSB: [Model; 4] =
        [ycsb("ycsb-a", 0.5), ycsb("ycsb-b", 0.05), ycsb("ycsb-c", 0.0), ycsb("ycsb-f", 1.0 / 3.0)];

    /// All that have a name.
    pub fn every() -> impl Iterator<Item = Model> {
        Model::ALL.into_iter().chain(Model::YCSB)
    }

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Model::every().find(|model| model.name == name)
    }

    /// So many requests. The same seed gives the same ones. `None`: no keys, or parts and exponents that are none.
    pub fn log(&self, requests: usize, seed: u64) -> Option<Log> {
        let right = |part: f64| (0.0..=1.0).contains(&part);
        if !right(self.sets) || !right(self.deletes) || !right(self.sets + self.deletes) {
            return None;
        }
        let popularity = Alias::zipf(self.keys, self.exponent)?;
        let (mut infos, mut value_bytes) = (Vec::with_capacity(self.keys), Vec::with_capacity(self.keys));
        for rank in 0..self.keys as u64 {
            // Numbers in order would be a counter's: a CRC of those has no collisions.
            let id = mix(rank.wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            infos.push(KeyInfo::number(id, self.key_sizes.at(unit(mix(id ^ 1)), KEY_MAX_BYTES).max(1)));
            value_bytes.push(self.value_sizes.at(unit(mix(id ^ 2)), VALUE_MAX_BYTES));
        }
        let mut random = Random::new(seed);
        let mut draw = || {
            let key = popularity.draw(&mut random);
            let op = match random.unit() {
                u if u < self.sets => Op::Set,
                u if u < self.sets + self.deletes => Op::Delete,
                _ => Op::Get,
            };
            Request::new(op, key, value_bytes[key as usize])
        };
        Log::new((0..requests).map(|_| draw()).collect(), infos)
    }
}

const fn ycsb(name: &'static str, sets: f64) -> Model {
    Model {
        name,
        keys: 1_000_000,
        exponent: 0.99,
        sets,
        deletes: 0.0,
        key_sizes: Sizes::Parts(&[(1.0, 23, 23)]),
        value_sizes: Sizes::Parts(&[(1.0, 1000, 1000)]),
    }
}

/// The memory that a key takes in L1, bytes, in the mean: an entry of the hash table with 64 bytes of key (or several), and a chunk
/// (Tokusashi 2019, 3.2.2 and 3.6.6). A value above 2 KB counts as none: it is not kept.
pub fn entry_bytes(log: &Log) -> f64 {
    let mut total = 0;
    for request in log.requests() {
        let key = u64::from(log.keys()[request.key as usize].key_bytes).div_ceil(64) * 64;
        let class = crate::slab::class(request.value_bytes());
        total += key + class.map_or(0, |class| u64::from(crate::slab::CHUNK_BYTES[class]));
    }
    total as f64 / log.requests().len().max(1) as f64
}

/// Values of 0 to 14 bytes in ETC, as parts of all.
const ETC_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837,
    0.08989, 0.00092, 0.00326, 0.01980,
];
