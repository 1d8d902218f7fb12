//! A cache whose values lie in chunks of a few sizes, as many of each as there are from the start (Tokusashi 2019, 3.2.5 and 3.6.6).
//!
//! A value takes one chunk of the smallest size that holds it. If that size has no free chunk, the least recently used key (or the
//! oldest) of the same size goes; other sizes are left alone. A value for which no size is large enough, or whose size has no
//! chunks, is not kept. Keys lie in the hash table, not in chunks; the table is assumed to have room for all.

use crate::Key;
use crate::log::{Log, Op, Request};
use crate::policy::nodes::{Nodes, Queue};
use crate::run::Counts;

/// The sizes of chunks, bytes (Table 3.6).
pub const CHUNK_BYTES: [u32; 6] = [64, 128, 256, 512, 1024, 2048];

/// How many chunks of each size there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks(pub [usize; 6]);

/// The k of Table 3.6. The paper does not say; with 1024 its type A is 289 MB, and 288 MB is what section 3.6.4 gives L1.
const K: usize = 1024;

impl Chunks {
    /// The types A to E of Table 3.6.
    pub const TYPES: [(&'static str, Chunks); 5] = [
        ("A", Chunks([70 * K; 6])),
        ("B", Chunks([120 * K, 100 * K, 80 * K, 60 * K, 40 * K, 20 * K])),
        ("C", Chunks([160 * K, 140 * K, 120 * K, 0, 0, 0])),
        ("D", Chunks([140 * K, 120 * K, 100 * K, 30 * K, 20 * K, 10 * K])),
        ("E", Chunks([20 * K, 40 * K, 60 * K, 80 * K, 100 * K, 120 * K])),
    ];

    /// A type by its letter.
    pub fn named(letter: &str) -> Option<Self> {
        Self::TYPES.iter().find(|(name, _)| *name == letter).map(|(_, chunks)| *chunks)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().sum()
    }

    /// How much memory they are, bytes.
    pub fn bytes(&self) -> u64 {
        CHUNK_BYTES.iter().zip(self.0).map(|(&bytes, count)| u64::from(bytes) * count as u64).sum()
    }
}

/// Which size a value takes, if any is large enough.
pub fn class(value_bytes: u32) -> Option<usize> {
    CHUNK_BYTES.iter().position(|&bytes| value_bytes <= bytes)
}

/// Which key of a size goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlabPolicy {
    /// The least recently used.
    Lru,
    /// The oldest.
    Fifo,
}

/// The cache.
#[derive(Debug)]
pub struct Slab {
    chunks: Chunks,
    policy: SlabPolicy,
    nodes: Nodes,
    queues: [Queue; 6],
    /// Keys that had to go for others.
    evictions: u64,
}

impl Slab {
    /// For keys below `keys`.
    pub fn new(keys: usize, chunks: Chunks, policy: SlabPolicy) -> Self {
        let queues = [1, 2, 3, 4, 5, 6].map(Queue::new);
        Slab { chunks, policy, nodes: Nodes::new(keys), queues, evictions: 0 }
    }

    /// Whether the key is kept, with a value of whatever size; if it is, this is a use of it.
    pub fn get(&mut self, key: Key) -> bool {
        let Some(class) = self.class_of(key) else { return false };
        if self.policy == SlabPolicy::Lru && self.queues[class].newest() != key {
            self.nodes.unlink(&mut self.queues[class], key);
            self.nodes.push(&mut self.queues[class], key);
        }
        true
    }

    /// Keeps a value of this many bytes, in place of the key's old one; whether there is a chunk for it.
    pub fn put(&mut self, key: Key, value_bytes: u32) -> bool {
        let wanted = class(value_bytes).filter(|&class| self.chunks.0[class] > 0);
        match (self.class_of(key), wanted) {
            (Some(now), Some(wanted)) if now == wanted => return self.get(key),
            (Some(now), _) => self.nodes.unlink(&mut self.queues[now], key),
            (None, _) => {}
        }
        let Some(class) = wanted else { return false };
        let queue = &mut self.queues[class];
        if queue.len() == self.chunks.0[class] {
            self.nodes.pop(queue);
            self.evictions += 1;
        }
        self.nodes.push(queue, key);
        true
    }

    /// Lets go of a key; whether it was kept.
    pub fn remove(&mut self, key: Key) -> bool {
        let Some(class) = self.class_of(key) else { return false };
        self.nodes.unlink(&mut self.queues[class], key);
        true
    }

    /// Runs a log through the cache; the first `warm` requests are not counted. A get or a set of a key that is not kept brings it in, a change of its value in place, of which
    /// logs do not tell the new size, and a delete let go of it.
    pub fn run(&mut self, log: &Log, warm: usize) -> Counts {
        let (before, counted) = log.requests().split_at(warm.min(log.requests().len()));
        self.pass(before);
        self.pass(counted)
    }

    fn pass(&mut self, requests: &[Request]) -> Counts {
        let (mut counts, before) = (Counts::default(), self.evictions);
        for request in requests {
            let (key, bytes) = (request.key, request.value_bytes());
            match request.op() {
                Op::Get => {
                    counts.gets += 1;
                    if self.get(key) {
                        counts.hits += 1;
                    } else {
                        self.put(key, bytes);
                    }
                }
                Op::Set => {
                    counts.writes += 1;
                    self.put(key, bytes);
                }
                Op::Change => {
                    counts.writes += 1;
                    self.remove(key);
                }
                Op::Delete => {
                    counts.deletes += 1;
                    self.remove(key);
                }
            }
        }
        counts.evictions = self.evictions - before;
        counts
    }

    /// Chunks in use, by size.
    pub fn used(&self) -> [usize; 6] {
        [0, 1, 2, 3, 4, 5].map(|class| self.queues[class].len())
    }

    #[inline]
    fn class_of(&self, key: Key) -> Option<usize> {
        usize::from(self.nodes.queue(key)).checked_sub(1)
    }
}
