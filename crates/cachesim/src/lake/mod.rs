//! LaKe, the in-NIC cache of Tokusashi's thesis (2019, chapter 4), as an event-driven model in picoseconds: what it answers, how late, and what it draws.
//!
//! ```text
//!  wire -> data plane -> FIFO -> element 0 --+                     +-- shared cache (BRAM)
//!                     \> FIFO -> element 1 --+-- memory network ---+-- DRAM: buckets, chunks
//!                     \> ...                 +                     +-- SRAM: free chunks
//!                                 |  misses, sets, deletes
//!                                 v
//!                         memcached on the host -> an element (fill) -> data plane -> wire
//! ```
//!
//! A processing element has one query at a time, and waits for its memory ([`engine`]). A get of 64 bytes or less is two accesses, a bucket and a chunk (4.2.3);
//! each is a hit in the shared cache or a read of the DRAM. What is a hit is decided by the caches of this crate on a log, or drawn by ratio
//! ([`queries`]). [`power`] has watts, [`ondemand`] the controller of 4.5.
//!
//! | | what the paper has | what is done with it here |
//! |---|---|---|
//! | one element | "up to 3.3 Mqps" (4.3.2); 200 MHz | 60 cycles a get: fitted |
//! | a hit | 1.16 us (Table 4.1) | 172 cycles of data plane beside the 60: fitted |
//! | an idle DRAM | 115 ns (4.2.4) | taken |
//! | a loaded DRAM | "almost doubles", up to 650 ns | a queue; the channel is taken for 48 ns: **assumed**, the row cycle of DDR3-1866 (JEDEC), no two banks at once |
//! | memory network | a bottleneck; 512 bits | 6 cycles an access, taken for 2 of them, one to arbitrate and one for a word of 512 bits: **assumed** |
//! | how 60 cycles are shared out | nothing | parse and hash 20, compare 8, reply 20, two accesses of 6: **assumed** |
//! | a query on the wire | 13.12 M/s are line rate, 4 B of key | 94 bytes, without memcached's frame header, which would make 12.25 M/s: **assumed**; 13.30 M/s |
//! | spreading | "evenly" | in turn, 16 queries in each FIFO: **assumed** |
//! | the host | 962 kqps, 238.84 us | taken; 1,024 queries may wait: **assumed** |
//! | replies of the host | update cache and DRAM, then leave | an element does it, before new queries: **assumed** |
//! | replies on the wire | 8 B of value | not a limit: at 102 bytes one port would pass 12.25 M/s, less than was measured |
//! | writes | write-through | posted: they take the channel, and no element waits: **assumed** |
//!
//! It knows kinds of queries, no bytes: the golden transactions of `tidemill-kv`, to which the codec, memcached and the role `kvcache` are held, cannot be run through it.
//!
//! The split of 60 cycles counts where accesses collide and where a query is no plain hit; nothing else depends on it.

pub mod engine;
pub mod ondemand;
pub mod power;
pub mod queries;

pub use engine::{Gaps, Load, Outcome, simulate};
pub use queries::{Ask, Place, Query};

/// Where the addresses of free chunks lie (4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeList {
    /// 144 of them on the chip.
    Bram,
    /// 4.7 million in two SRAM modules, with a FIFO before them that hides their latency.
    Sram,
    /// As many as there are chunks; a read for each chunk that is taken.
    Dram,
}

/// Which memories there are (4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// As it is named: `full`.
    pub name: &'static str,
    /// Whether there is a cache before the memory, or, with no DRAM, that takes its place.
    pub on_chip: bool,
    /// Whether there is DRAM.
    pub dram: bool,
    /// The free list.
    pub free_list: FreeList,
}

impl Variant {
    /// Those of section 4.4, and LaKe as it is first.
    pub const ALL: [Variant; 5] = [
        Variant { name: "full", on_chip: true, dram: true, free_list: FreeList::Sram },
        Variant { name: "dram", on_chip: false, dram: true, free_list: FreeList::Sram },
        Variant { name: "dram-list", on_chip: true, dram: true, free_list: FreeList::Dram },
        Variant { name: "sram", on_chip: true, dram: false, free_list: FreeList::Sram },
        Variant { name: "bram", on_chip: true, dram: false, free_list: FreeList::Bram },
    ];

    /// By name.
    pub fn named(name: &str) -> Option<Self> {
        Variant::ALL.into_iter().find(|variant| variant.name == name)
    }

    /// Values that it can hold, 64 bytes each: hash table, chunks and addresses of chunks, whichever are the fewest (4.4). That a chunk without a
    /// place in the list cannot be used is assumed.
    pub fn entries(&self) -> usize {
        let (buckets, chunks) = if self.dram { (268_000_000, 33_000_000) } else { (4096, 512) };
        let addresses = match self.free_list {
            FreeList::Bram => 144,
            FreeList::Sram => 4_700_000,
            FreeList::Dram => chunks,
        };
        addresses.min(chunks).min(buckets)
    }

    /// The card at full load, watts (4.4): 16 with BRAM alone, SRAM 6, one DRAM module 4.
    pub fn card_w(&self) -> f64 {
        let sram = if self.free_list == FreeList::Sram { 6.0 } else { 0.0 };
        16.0 + sram + if self.dram { 4.0 } else { 0.0 }
    }
}

/// A LaKe. Cycles are of the core clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Processing elements.
    pub elements: usize,
    /// The core clock.
    pub clock_mhz: f64,
    /// Which memories.
    pub variant: Variant,
    /// Of a query, with preamble, checksum and gap.
    pub wire_bytes: f64,
    /// Of the port, Gbit/s.
    pub wire_gbps: f64,
    /// Before and behind the elements, together; a half each.
    pub data_plane_cycles: u64,
    /// Parsing and hashing.
    pub parse_cycles: u64,
    /// Comparing what was read.
    pub compare_cycles: u64,
    /// Making a reply, or handing on.
    pub reply_cycles: u64,
    /// Taking a chunk from the free list.
    pub allocate_cycles: u64,
    /// Of an access, until its answer is back.
    pub access_cycles: u64,
    /// Of an access, that the memory network is taken; at most `access_cycles`.
    pub network_cycles: u64,
    /// A read of an idle DRAM.
    pub dram_ns: f64,
    /// Of it, that the channel is taken; at most `dram_ns`.
    pub dram_busy_ns: f64,
    /// Queries that wait for each element.
    pub fifo: usize,
    /// What memcached answers, M/s.
    pub host_mqps: f64,
    /// What it takes, from the NIC to the NIC.
    pub host_us: f64,
    /// Queries that wait for it.
    pub host_queue: usize,
}

impl Default for Config {
    /// The paper's: five elements at 200 MHz, all memories.
    fn default() -> Self {
        Config {
            elements: 5,
            clock_mhz: 200.0,
            variant: Variant::ALL[0],
            wire_bytes: 94.0,
            wire_gbps: 10.0,
            data_plane_cycles: 172,
            parse_cycles: 20,
            compare_cycles: 8,
            reply_cycles: 20,
            allocate_cycles: 1,
            access_cycles: 6,
            network_cycles: 2,
            dram_ns: 115.0,
            dram_busy_ns: 48.0,
            fifo: 16,
            host_mqps: 0.962,
            host_us: 238.84,
            host_queue: 1024,
        }
    }
}

/// What a LaKe cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// Elements.
    #[error("{0} processing elements: use 1 to 64")]
    Elements(usize),
    /// A number of [`Config`] or [`Load`].
    #[error("{name} is {value}: use {least} to {most}")]
    Number {
        /// Of what.
        name: &'static str,
        /// That it is.
        value: f64,
        /// That it may be.
        least: f64,
        /// That it may be.
        most: f64,
    },
    /// One of a log's caches.
    #[error(transparent)]
    Sets(#[from] crate::sets::SetsError),
}

impl Config {
    /// Whether there can be such a one.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=64).contains(&self.elements) {
            return Err(ConfigError::Elements(self.elements));
        }
        for (name, value, least, most) in [
            ("clock (MHz)", self.clock_mhz, 1.0, 10_000.0),
            ("query on the wire (bytes)", self.wire_bytes, 1.0, 10_000.0),
            ("port (Gbit/s)", self.wire_gbps, 0.001, 10_000.0),
            ("DRAM read (ns)", self.dram_ns, 0.0, 1e6),
            ("DRAM busy (ns)", self.dram_busy_ns, 0.0, self.dram_ns),
            ("memory network busy (cycles)", self.network_cycles as f64, 0.0, self.access_cycles as f64),
            ("data plane (cycles)", self.data_plane_cycles as f64, 0.0, 1e6),
            ("parsing (cycles)", self.parse_cycles as f64, 0.0, 1e6),
            ("comparing (cycles)", self.compare_cycles as f64, 0.0, 1e6),
            ("replying (cycles)", self.reply_cycles as f64, 0.0, 1e6),
            ("allocating (cycles)", self.allocate_cycles as f64, 0.0, 1e6),
            ("access (cycles)", self.access_cycles as f64, 0.0, 1e6),
            ("host (M/s)", self.host_mqps, 0.001, 1e4),
            ("host (us)", self.host_us, 0.0, 1e6),
            ("FIFO (queries)", self.fifo as f64, 1.0, 1e6),
            ("host queue (queries)", self.host_queue as f64, 1.0, 1e6),
        ] {
            in_range(name, value, least, most)?;
        }
        Ok(())
    }

    /// Picoseconds of so many cycles.
    pub(crate) fn cycles_ps(&self, cycles: u64) -> u64 {
        (cycles as f64 * 1e6 / self.clock_mhz).round() as u64
    }

    /// Queries that the port passes, M/s.
    pub fn line_mqps(&self) -> f64 {
        self.wire_gbps * 1e3 / 8.0 / self.wire_bytes
    }

    /// Cycles of an element for a get that finds its value in the shared cache.
    pub fn hit_cycles(&self) -> u64 {
        self.parse_cycles + self.compare_cycles + self.reply_cycles + 2 * self.access_cycles
    }

    /// Gets that one element answers from the shared cache, M/s.
    pub fn element_mqps(&self) -> f64 {
        self.clock_mhz / self.hit_cycles() as f64
    }

    /// A get alone, microseconds, that makes so many reads of the DRAM: none, or two.
    pub fn idle_get_us(&self, dram_reads: u32) -> f64 {
        (self.data_plane_cycles + self.hit_cycles()) as f64 / self.clock_mhz
            + f64::from(dram_reads) * self.dram_ns / 1e3
    }

    /// What gets that LaKe answers cannot exceed, M/s, where this part of them (0 to 1) is found on the chip and the rest in the DRAM: the port, all elements
    /// with an idle memory, the memory network, the DRAM's channel.
    pub fn bound_mqps(&self, on_chip: f64) -> f64 {
        let reads = 2.0 * (1.0 - on_chip);
        let element_us = self.hit_cycles() as f64 / self.clock_mhz + reads * self.dram_ns / 1e3;
        let network = self.clock_mhz / (2 * self.network_cycles) as f64;
        let channel = 1e3 / (reads * self.dram_busy_ns);
        [self.line_mqps(), self.elements as f64 / element_us, network, channel]
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }
}

pub(crate) fn in_range(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Number { name, value, least, most })
    }
}
