//! What is looked up: real tables, filled through the probe, and packets with keys.
//!
//! A table is filled by core 0 of the simulated machine (of a large one the last million entries: the LLC keeps no more), so
//! that caches hold what they would hold after that. Packets come by DDIO into a ring of lines in the LLC, as from a NIC.

use crate::machine::memory::{LINE, Memory};
use crate::program::Lookup;
use crate::study::StudyError;
use crate::tape::{Tape, Touch};
use std::sync::Arc;
use tidemill_cachesim::random::{Random, mix};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::{HashTable, SizeError};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, Fib, Label, Prefix, Rib, Table};

/// Entries whose insertion the simulated machine sees.
const SEEN: u64 = 1 << 20;
/// Packets that a ring has lines for.
const RING: u64 = 512;
/// How much earlier than it is looked at a packet comes, and is asked for by software.
const AHEAD: u64 = 8;
/// Bytes of a key of two words.
pub const KEY_BYTES: u64 = 16;

/// A table with entries 0 to `len`, and its description. Keys are of `W` words.
#[derive(Debug)]
pub struct Filled<T, const W: usize = 2> {
    table: T,
    hash: Keyed<W>,
    seed: u64,
    /// Entries.
    pub len: u64,
    /// Where its description is.
    pub description: u64,
    /// Whether its keys are masked.
    pub masked: bool,
}

/// Changes the caches as some touches do, without time.
pub fn touch_all(memory: &mut Memory, core: usize, touches: &[Touch]) {
    memory.untimed(|memory| {
        for touch in touches {
            match *touch {
                Touch::Read { address, bytes, .. } => {
                    memory.load(core, address, bytes, 0);
                }
                Touch::Write { address, bytes } => {
                    memory.store(core, address, bytes, 0);
                }
                Touch::Step => {}
            }
        }
    });
}

impl<T: HashTable<W>, const W: usize> Filled<T, W> {
    /// A table of `slots` slots with so many entries; fewer, if no more go in.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn new(memory: &mut Memory, slots: u64, entries: u64, seed: u64) -> Result<Self, SizeError> {
        let hash = Keyed::new(u128::from(seed));
        let table = T::new(slots as usize)?;
        let description = memory.pages.allot(LINE);
        let mut filled = Filled { table, hash, seed, len: 0, description, masked: false };
        let (tape, mut touches) = (Tape::default(), Vec::new());
        for i in 0..entries.min(filled.table.capacity() as u64) {
            let key = filled.key(i);
            let hash = filled.hash.hash(&key);
            let room = if i + SEEN < entries {
                filled.table.insert(hash, &key, i + 1)
            } else {
                filled.table.insert_probed(hash, &key, i + 1, &tape)
            };
            if room.is_err() {
                break;
            }
            filled.len += 1;
            tape.take(memory, &mut touches);
            touch_all(memory, 0, &touches);
        }
        Ok(filled)
    }

    fn key(&self, i: u64) -> Key<W> {
        Key(std::array::from_fn(|word| match word {
            0 => mix(i ^ self.seed << 40),
            1 => i,
            _ => mix(i + word as u64),
        }))
    }

    /// The hash of entry `i`.
    pub fn hash_of(&self, i: u64) -> u64 {
        self.hash.hash(&self.key(i))
    }

    /// Looks up entry `i` (one from `len` on is not there), and writes down what that touches.
    pub fn ask(&self, i: u64, tape: &Tape) -> bool {
        let key = self.key(i);
        self.table.get_probed(self.hash.hash(&key), &key, tape).is_some()
    }

    /// Looks up these entries one after the other, as the program that is simulated does; how many are there. To be timed.
    #[inline(never)]
    pub fn really(&self, entries: &[u64]) -> u64 {
        let found = entries.iter().filter(|&&i| {
            let key = self.key(i);
            self.table.get(self.hash.hash(&key), &key).is_some()
        });
        found.count() as u64
    }

    /// Buckets that a lookup of an entry looks at, on average over so many of the first ones.
    pub fn buckets(&self, entries: u64) -> f64 {
        let (tape, mut steps) = (Tape::default(), 0);
        let entries = entries.min(self.len);
        for i in 0..entries {
            self.ask(i, &tape);
            steps += tape.take_raw().iter().filter(|touch| **touch == Touch::Step).count();
        }
        steps as f64 / entries.max(1) as f64
    }

    /// The lookup whose touches are these.
    pub fn lookup<'a>(&self, key: u64, touches: &'a [Touch]) -> Lookup<'a> {
        Lookup { table: self.description, key, key_bytes: 8 * W as u64, masked: self.masked, touches }
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }
}

/// The structures for routes that are run: DXR, Poptrie, SAIL, tree bitmap.
pub const FIBS: [&str; 4] = ["dxr-d16x4r", "poptrie-d18", "sail-l", "tree-bitmap"];

/// A structure over so many random prefixes: four in seven are /24s, others /16 to /23, 64 next hops. The addresses are random,
/// so the table is as spread out as can be; a real one is denser.
///
/// # Errors
/// No such structure, or what the structure says.
pub fn fib(name: &str, prefixes: u64, seed: u64) -> Result<Arc<dyn Fib<u32>>, StudyError> {
    let mut rib = Rib::new();
    let mut random = Random::new(seed);
    while (rib.len() as u64) < prefixes {
        let bits = random.bits();
        let length = if bits % 7 < 4 { 24 } else { 16 + (bits >> 8 & 7) as u8 };
        let address = (bits >> 32) as u32 & (u32::MAX << (32 - length));
        if let Some(prefix) = Prefix::new(address, length) {
            rib.insert(prefix, Label(1 + (bits >> 16 & 63) as u32));
        }
    }
    let algorithm = Algorithm::parse::<u32>(name)?;
    Ok(Table::new(&Domain::new(), rib, &algorithm)?.fib().clone())
}

/// Packets that come into a ring, each a line with its key in it.
#[derive(Debug, Clone, Copy)]
pub struct Packets {
    first: u64,
}

impl Packets {
    /// A ring.
    pub fn new(memory: &mut Memory) -> Self {
        let first = memory.pages.allot(RING * LINE);
        let packets = Packets { first };
        (0..RING).for_each(|n| memory.device_write(packets.key(n), LINE));
        packets
    }

    /// Where the key of packet `n` is.
    pub fn key(&self, n: u64) -> u64 {
        self.first + n % RING * LINE
    }

    /// Packet `n` is next: some later one comes; where that one's key is, which software asks for now.
    pub fn come(&self, memory: &mut Memory, n: u64) -> u64 {
        memory.device_write(self.key(n + 2 * AHEAD), LINE);
        self.key(n + AHEAD)
    }
}
