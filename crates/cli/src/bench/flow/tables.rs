//! The tables that are measured: each has one line in [`subjects`].

use super::figure::{self, Climb};
use super::flood::{self, Flooded};
use super::hashbrown::Hashbrown;
use super::lines::{self, Touched};
use super::round::{self, Round};
use super::work::{MOST, Plan};
use anyhow::Result;
use tidemill_flow::chaining::Chaining;
use tidemill_flow::cuckoo::Cuckoo;
use tidemill_flow::double::Double;
use tidemill_flow::flowtable::{FlowTable, Outcome};
use tidemill_flow::hopscotch::Hopscotch;
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::linear::Linear;
use tidemill_flow::quadratic::Quadratic;
use tidemill_flow::table::HashTable;
use tidemill_lookup::probe::Probe;

/// What a table's documentation states as the most that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Cache lines that a lookup touches.
    pub(super) lookup: usize,
    /// Those that an insertion touches, its lookup included.
    pub(super) insertion: usize,
    /// Entries that it moves.
    pub(super) moves: usize,
}

/// A table, with find-or-insert.
pub(super) trait Subject<const W: usize>: HashTable<W> {
    /// Bounds that hold for every key and every load, where a table states any. Of a batch one packet may search in vain.
    const BOUNDS: Option<Bounds> = None;

    /// Packets of flows: the values of those that are in the table; the others go in with the values given, as far as
    /// there is room. Returns how many went in.
    ///
    /// A table that has no call for it looks the batch up and inserts what is missing.
    fn find_or_insert(
        &mut self,
        hashes: &[u64],
        keys: &[Key<W>],
        values: &[u64],
        out: &mut [Option<u64>],
    ) -> u64 {
        self.get_batch(hashes, keys, out);
        let mut inserted = 0;
        for (i, _) in out.iter().enumerate().filter(|(_, answer)| answer.is_none()) {
            inserted += u64::from(self.insert(hashes[i], &keys[i], values[i]).is_ok());
        }
        inserted
    }

    /// The same of one packet, told to a probe.
    fn find_or_insert_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, value: u64, probe: &P) {
        if self.get_probed(hash, key, probe).is_none() {
            // No room: the packet goes on without state, which is what is measured.
            let _ = self.insert_probed(hash, key, value, probe);
        }
    }

    /// Packets of a batch, told to a probe: the lines that are asked for ahead of their turn, too.
    fn find_or_insert_batch_probed<P: Probe>(
        &mut self,
        hashes: &[u64],
        keys: &[Key<W>],
        values: &[u64],
        probe: &P,
    ) {
        for ((hash, key), value) in hashes.iter().zip(keys).zip(values) {
            self.find_or_insert_probed(*hash, key, *value, probe);
        }
    }

    /// Entries that insertions have moved so far, if the table counts them.
    fn moves(&self) -> Option<u64> {
        None
    }
}

/// What is done with a table of keys of `W` words.
pub(super) struct Measures<const W: usize> {
    pub(super) name: &'static str,
    /// Bytes of a table of so many slots.
    pub(super) bytes: fn(usize) -> Result<usize>,
    /// One run at one load.
    pub(super) round: fn(&Plan<W>, load: f64, run: usize) -> Result<Round>,
    /// Occupancy at the first failure.
    pub(super) occupancy: fn(&Plan<W>) -> Result<f64>,
    pub(super) touched: fn(&Plan<W>) -> Result<Vec<Touched>>,
    pub(super) climb: fn(&Plan<W>, loads: &[f64]) -> Result<Vec<Climb>>,
    pub(super) bounds: Option<Bounds>,
    pub(super) flood: Option<fn(&Plan<W>) -> Result<Flooded>>,
}

/// Keys per call, usually.
const USUAL: usize = 32;

/// Slots of the table from whose size that of larger ones is extrapolated.
const SMALL: usize = 1 << 14;

fn bytes<const W: usize, T: Subject<W>>(slots: usize) -> Result<usize> {
    let small = T::new(SMALL.min(slots)).map_err(|error| super::no_table(T::NAME, &error))?;
    Ok((small.bytes() as f64 / small.capacity() as f64 * slots as f64) as usize)
}

fn measures<const W: usize, T: Subject<W>>(under_flood: bool) -> Measures<W> {
    Measures {
        name: T::NAME,
        bytes: bytes::<W, T>,
        round: round::round::<W, T>,
        occupancy: round::occupancy::<W, T>,
        touched: lines::touched::<W, T>,
        climb: figure::climb::<W, T>,
        bounds: T::BOUNDS,
        flood: under_flood.then_some(flood::flood::<W, T>),
    }
}

/// Declares the tables: name of the type, and whether its insertions are bounded, so that a flood can be survived.
macro_rules! subjects {
    ($($table:ty, $flood:literal;)*) => {
        /// All that there are.
        pub(super) fn subjects<const W: usize>() -> Vec<Measures<W>> {
            vec![$(measures::<W, $table>($flood)),*]
        }
    };
}

/// The six of Fu 2020, 4.5.6, for Figure 4.7.
pub(super) const SIX: [&str; 6] = ["linear", "quadratic", "double", "hopscotch", "chaining", "cuckoo"];

subjects! {
    Linear<W>, false;
    Quadratic<W>, false;
    Double<W>, false;
    Hopscotch<W>, true;
    Chaining<W>, true;
    Cuckoo<W>, true;
    Keystore<W>, true;
    FlowTable<W>, true;
    Hashbrown<W>, false;
}

impl<const W: usize> Subject<W> for Linear<W> {}
impl<const W: usize> Subject<W> for Quadratic<W> {}
impl<const W: usize> Subject<W> for Double<W> {}
impl<const W: usize> Subject<W> for Hopscotch<W> {}
impl<const W: usize> Subject<W> for Chaining<W> {}
impl<const W: usize> Subject<W> for Cuckoo<W> {}
impl<const W: usize> Subject<W> for Keystore<W> {}
impl<const W: usize> Subject<W> for Hashbrown<W> {}

impl<const W: usize> Subject<W> for FlowTable<W> {
    const BOUNDS: Option<Bounds> =
        Some(Bounds { lookup: Self::LOOKUP_LINES, insertion: Self::INSERT_LINES, moves: 1 });

    fn find_or_insert(
        &mut self,
        hashes: &[u64],
        keys: &[Key<W>],
        values: &[u64],
        out: &mut [Option<u64>],
    ) -> u64 {
        // Room for the usual batch, or for the longest: clearing that one each time would be felt.
        let (mut usual, mut longest);
        let outcomes = if keys.len() <= USUAL {
            usual = [Outcome::Full; USUAL];
            &mut usual[..keys.len()]
        } else {
            longest = [Outcome::Full; MOST];
            &mut longest[..keys.len()]
        };
        self.find_or_insert_batch_with(0, hashes, keys, outcomes, |i| values[i]);
        // Whether a packet is of a flood is nobody's guess here either: without a jump that depends on it.
        let mut inserted = 0;
        for (outcome, out) in outcomes.iter().zip(out) {
            let found = if let Outcome::Found(slot) = *outcome { Some(slot) } else { None };
            let word = self.word_or(found, 0, 0);
            *out = found.map(|_| word);
            inserted += u64::from(matches!(outcome, Outcome::New(_)));
        }
        inserted
    }

    fn find_or_insert_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, value: u64, probe: &P) {
        // No room, or there: as above.
        let _ = self.insert_probed(hash, key, value, probe);
    }

    fn find_or_insert_batch_probed<P: Probe>(
        &mut self,
        hashes: &[u64],
        keys: &[Key<W>],
        _: &[u64],
        probe: &P,
    ) {
        let mut outcomes = [Outcome::Full; MOST];
        FlowTable::find_or_insert_batch_probed(self, 0, hashes, keys, &mut outcomes[..keys.len()], probe);
    }

    fn moves(&self) -> Option<u64> {
        Some(self.counters().moves)
    }
}

/// Their names.
pub(super) fn names() -> Vec<&'static str> {
    subjects::<1>().iter().map(|table| table.name).collect()
}
