//! The tiers of Tokusashi's thesis (2019): L0 on the chip of a NIC (4.2), L1 in its memory, L2 in the host's kernel (3.1 to 3.2.3), memcached behind.
//!
//! ```text
//! client -> L0 -> L1 ==DMA== L2 -> memcached
//! ```
//!
//! | | a get that L1 misses and L2 has | a get that both miss | L1 evicts | L2 evicts |
//! |---|---|---|---|---|
//! | inclusive | copied to L1 | kept in both | nothing more, if it is clean | L1 lets go of it too |
//! | non-inclusive | moved to L1 | kept in L1 | moved to L2 | nothing more |
//!
//! Write-through: a set is stored in L1 and crosses to L2. Write-back: it is stored in L1, marked dirty, and crosses when L1
//! evicts it. Both bring in a key that is not kept. The paper has write-through with inclusive, write-back with non-inclusive tiers (3.6.4).
//!
//! What the paper leaves open, and what is done here:
//! - Inclusive and write-back: a set of a key that L1 has not crosses, for L2 has to make room for it too; one of a key in L1 does not.
//! - A delete crosses, and takes the key out everywhere. So does a change ([`Op::Change`]): memcached alone knows the new value.
//! - L0 is write-through and holds nothing that L1 has not. A hit in L0 is no use in L1.
//!
//! The DMA traffic is counted in bytes that cross between NIC and host, both ways together: requests that go up, replies that come down, and
//! what is evicted. Frames are 46 bytes (Ethernet without checksum and gap 14, IPv4 20, UDP 8, and 4 for a command), the key, and the value
//! where there is one; at least 60. With preamble, checksum and gap (24) a get of a 64-byte key is 134 bytes on the wire: 9.32 M/s at 10 Gbit/s,
//! the paper's number. An evicted value crosses as key, value and 16 bytes of descriptor.

use crate::Key;
use crate::log::{Log, Op};
use crate::policy::Cache;
use crate::run::Run;
use crate::sets::SetsError;

/// Headers in a frame that crosses, bytes.
const HEADER_BYTES: u64 = 46;
/// The shortest frame, without its checksum.
const FRAME_MIN_BYTES: u64 = 60;
/// Preamble, checksum, gap.
const WIRE_BYTES: u64 = 24;
/// What goes with an evicted value.
const DESCRIPTOR_BYTES: u64 = 16;

/// What L2 holds beside L1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inclusion {
    /// All that L1 holds.
    Inclusive,
    /// Nothing that L1 holds.
    NonInclusive,
}

/// When a set reaches L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Write {
    /// At once.
    Through,
    /// When L1 evicts it.
    Back,
}

/// Which tiers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TiersConfig {
    /// On the chip.
    pub l0: Option<Run>,
    /// In the NIC's memory.
    pub l1: Run,
    /// In the kernel.
    pub l2: Option<Run>,
    /// What L2 holds.
    pub inclusion: Inclusion,
    /// When sets cross.
    pub write: Write,
}

/// What came of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierCounts {
    /// All requests.
    pub requests: u64,
    /// Gets.
    pub gets: u64,
    /// Gets that L0 answers.
    pub l0_hits: u64,
    /// Gets that L1 answers.
    pub l1_hits: u64,
    /// Gets that L2 answers.
    pub l2_hits: u64,
    /// Bytes of the clients' requests on the wire.
    pub wire_bytes: u64,
    /// Bytes that crossed between NIC and host.
    pub dma_bytes: u64,
    /// Dirty values that crossed when L1 evicted them.
    pub written_back: u64,
}

impl TierCounts {
    /// Of the gets, how many neither L0 nor L1 answers, 0 to 1.
    pub fn l1_miss_ratio(&self) -> f64 {
        ratio(self.gets - self.l0_hits - self.l1_hits, self.gets)
    }

    /// Of the gets, how many go to memcached, 0 to 1.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.gets - self.l0_hits - self.l1_hits - self.l2_hits, self.gets)
    }

    /// What crosses while requests come at this rate on the wire: both in bytes per second.
    pub fn dma_rate(&self, wire_rate: f64) -> f64 {
        wire_rate * ratio(self.dma_bytes, self.wire_bytes)
    }
}

fn ratio(of: u64, to: u64) -> f64 {
    if to == 0 { 0.0 } else { of as f64 / to as f64 }
}

/// The tiers, running.
pub struct Tiers<'a> {
    log: &'a Log,
    config: TiersConfig,
    l0: Option<Box<dyn Cache>>,
    l1: Box<dyn Cache>,
    l2: Option<Box<dyn Cache>>,
    /// By key: whether L1 has what L2 has not.
    dirty: Vec<bool>,
    /// By key: the length of the value that was stored or got last, bytes.
    value_bytes: Vec<u32>,
    counts: TierCounts,
}

impl<'a> Tiers<'a> {
    /// Empty tiers for a log.
    ///
    /// # Errors
    /// See [`SetsError`].
    pub fn new(log: &'a Log, config: TiersConfig) -> Result<Self, SetsError> {
        Ok(Tiers {
            log,
            config,
            l0: config.l0.map(|run| run.cache(log)).transpose()?,
            l1: config.l1.cache(log)?,
            l2: config.l2.map(|run| run.cache(log)).transpose()?,
            dirty: vec![false; log.keys().len()],
            value_bytes: vec![0; log.keys().len()],
            counts: TierCounts::default(),
        })
    }

    /// Runs the log; the first `warm` requests are not counted.
    pub fn run(&mut self, warm: usize) -> TierCounts {
        let log = self.log;
        let (before, counted) = log.requests().split_at(warm.min(log.requests().len()));
        before.iter().for_each(|request| self.request(*request));
        self.counts = TierCounts::default();
        counted.iter().for_each(|request| self.request(*request));
        self.counts
    }

    /// Runs one request.
    pub fn request(&mut self, request: crate::Request) {
        let key = request.key;
        let value = if request.op() == Op::Set { request.value_bytes() } else { 0 };
        self.counts.requests += 1;
        self.counts.wire_bytes += self.frame(key, value) + WIRE_BYTES;
        match request.op() {
            Op::Get => {
                if request.value_bytes() > 0 {
                    self.value_bytes[key as usize] = request.value_bytes();
                }
                self.get(key);
            }
            Op::Set => {
                self.value_bytes[key as usize] = value;
                self.set(key, value);
            }
            Op::Change | Op::Delete => {
                // The request up, the reply down.
                self.counts.dma_bytes += self.frame(key, 0) + FRAME_MIN_BYTES;
                self.remove(key);
            }
        }
    }

    /// What the tiers hold agrees with what they promise: for tests.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        for key in 0..self.log.keys().len() as Key {
            let in_l0 = self.l0.as_ref().is_some_and(|l0| l0.contains(key));
            let (in_l1, in_l2) = (self.l1.contains(key), self.l2.as_ref().map(|l2| l2.contains(key)));
            let kept = match (self.config.inclusion, in_l2) {
                (Inclusion::Inclusive, Some(in_l2)) => !in_l1 || in_l2,
                (Inclusion::NonInclusive, Some(in_l2)) => !(in_l1 && in_l2),
                (_, None) => true,
            };
            if !kept || in_l0 && !in_l1 || self.dirty[key as usize] && !in_l1 {
                return Err(format!("key {key}: L0 {in_l0}, L1 {in_l1}, L2 {in_l2:?}"));
            }
        }
        Ok(())
    }

    fn get(&mut self, key: Key) {
        self.counts.gets += 1;
        if self.l0.as_mut().is_some_and(|l0| l0.get(key)) {
            self.counts.l0_hits += 1;
            return;
        }
        if self.l1.get(key) {
            self.counts.l1_hits += 1;
        } else {
            self.counts.dma_bytes += self.frame(key, 0) + self.frame(key, self.value_bytes[key as usize]);
            self.miss(key);
        }
        self.fill_l0(key);
    }

    /// A get that L1 has not.
    fn miss(&mut self, key: Key) {
        let in_l2 = self.l2.as_mut().is_some_and(|l2| l2.get(key));
        self.counts.l2_hits += u64::from(in_l2);
        match self.config.inclusion {
            Inclusion::Inclusive if !in_l2 => self.fill_l2(key),
            Inclusion::NonInclusive if in_l2 => {
                self.l2.as_mut().map(|l2| l2.remove(key));
            }
            _ => {}
        }
        self.fill_l1(key);
    }

    fn set(&mut self, key: Key, value: u32) {
        let in_l1 = self.l1.get(key);
        let inclusive = self.config.inclusion == Inclusion::Inclusive;
        if self.config.write == Write::Through || (inclusive && !in_l1) {
            self.counts.dma_bytes += self.frame(key, value) + FRAME_MIN_BYTES;
            if inclusive && !self.l2.as_mut().is_some_and(|l2| l2.get(key)) {
                self.fill_l2(key);
            }
        } else {
            self.dirty[key as usize] = true;
        }
        if !in_l1 {
            if !inclusive {
                // A copy there would be the old value.
                self.l2.as_mut().map(|l2| l2.remove(key));
            }
            self.fill_l1(key);
        }
        self.fill_l0(key);
    }

    fn remove(&mut self, key: Key) {
        self.l0.as_mut().map(|l0| l0.remove(key));
        self.l1.remove(key);
        self.l2.as_mut().map(|l2| l2.remove(key));
        self.dirty[key as usize] = false;
    }

    fn fill_l0(&mut self, key: Key) {
        if let Some(l0) = &mut self.l0
            && !l0.contains(key)
        {
            l0.insert(key);
        }
    }

    /// Brings a key into L1, which has it not.
    fn fill_l1(&mut self, key: Key) {
        let Some(evicted) = self.l1.insert(key) else { return };
        self.l0.as_mut().map(|l0| l0.remove(evicted));
        let dirty = std::mem::take(&mut self.dirty[evicted as usize]);
        let moves = self.config.inclusion == Inclusion::NonInclusive && self.l2.is_some();
        if dirty || moves {
            self.counts.written_back += u64::from(dirty);
            self.counts.dma_bytes += self.evicted_bytes(evicted);
        }
        if moves && let Some(l2) = &mut self.l2 {
            l2.insert(evicted);
        }
    }

    /// Brings a key into L2, which has it not.
    fn fill_l2(&mut self, key: Key) {
        let evicted = self.l2.as_mut().and_then(|l2| l2.insert(key));
        let Some(evicted) = evicted.filter(|_| self.config.inclusion == Inclusion::Inclusive) else { return };
        if self.l1.remove(evicted) {
            self.l0.as_mut().map(|l0| l0.remove(evicted));
            // The newest value lies in L1: it crosses, and goes to memcached's side.
            if std::mem::take(&mut self.dirty[evicted as usize]) {
                self.counts.written_back += 1;
                self.counts.dma_bytes += self.evicted_bytes(evicted);
            }
        }
    }

    fn frame(&self, key: Key, value_bytes: u32) -> u64 {
        let key_bytes = u64::from(self.log.keys()[key as usize].key_bytes);
        (HEADER_BYTES + key_bytes + u64::from(value_bytes)).max(FRAME_MIN_BYTES)
    }

    fn evicted_bytes(&self, key: Key) -> u64 {
        let key_bytes = u64::from(self.log.keys()[key as usize].key_bytes);
        DESCRIPTOR_BYTES + key_bytes + u64::from(self.value_bytes[key as usize])
    }
}
