//! A cuckoo filter guides a search for the length of the longest match. IPv4 and IPv6, to the last bit.
//!
//! Source: the search on lengths of M. Waldvogel, G. Varghese, J. Turner, B. Plattner, "Scalable high speed IP routing lookups", SIGCOMM
//! 1997 ([`crate::lengthsearch`]), with the filter of [`crate::cuvpp`] in place of the hash tables that it asks.
//!
//! # Memory
//! A prefix leaves a marker at every length from which the search for it goes on to longer ones. Prefixes and markers are entries
//! of the table, each with the label of its longest match; and all of them are in the filter.
//! ```text
//! tree     a node of 32 bytes for each length: the length, where to go on if there is nothing, and if there is something
//! filter   (first bits, length): a fingerprint of 16 bits, as in `cuvpp`
//! table    (first bits, length) -> word, as in `hashlengths`
//! word     bits 0 to 30: a label; bit 31: there is no match but the default route
//! default  the label of the default route, which is not in the tree
//!
//! lengths 32 and 48, most of them 48:  root /48  --nothing--> /32      key in a /48: one question to the filter, one to the table
//!                                                                      key in a /32: two, and one
//! ```
//! # Cost
//! A lookup asks the filter once for each node on its way, on the tables of 2026 3.4 times (IPv4: 2.1) for keys inside the
//! prefixes, 6.0 (5.4) for keys at random, 6 at most, and then the table once, for the last one that was there. If the table
//! does not have it (one lookup in some thousands), the filter was wrong, and the lookup begins anew with the table in place of
//! the filter. Bursts go in lock step, so that each step's loads overlap.
//!
//! A change stores an entry and a fingerprint for its prefix and for each marker that comes or goes, and the words of those
//! entries of which it is, or was, the longest match; to find them it goes through all prefixes inside in the RIB. The default
//! route is one store. A new length changes every prefix's way: all is built anew, once for each length, since lengths stay.
//!
//! # Why one answer of the table is enough
//! An entry that is really there, prefix or marker, has markers wherever its own search goes on to longer lengths, so every
//! "maybe" before it was right; and every "no" of the filter is right always, so those after it were too. A wrong "maybe" that
//! leads nowhere is seen when the table is asked; one that leads to an entry cannot be.
//!
//! # Limits
//! Prefixes that are chosen to have one hash make lookups slow, not wrong: see [`hash`](crate::hashlengths::hash), whose hash is the paper's and has no key.
//!
//! # Invariants
//! 1. The table has the prefixes (without the default route) and their markers, and the filter has the same.
//! 2. The word of each is what the RIB says of the longest prefix over its bits.
//! 3. `users` counts who needs an entry: twice the prefixes that have it as a marker, and one more if it is a prefix.
//!
//! Where we depart from the sources: the tree is the best one for the prefixes' numbers per length when it is made (Waldvogel et al. name
//! weights too), and CuVPP has no such search: it asks for all lengths.

#[cfg(test)]
mod tests;
mod tree;
mod update;

use crate::copies;
use crate::cuvpp::{CuckooFilter, Fingerprint};
use crate::fib::{BuildError, Built, Fib, LABEL_31, Label, check_labels};
use crate::hashlengths::hash::{Sums, table_bytes};
use crate::hashlengths::{HashTable, Screen, Tally, Trace};
use crate::prefix::Address;
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;
use tree::{END, Node, Tree};

/// In a word: no match but the default route.
const DEFAULT: u32 = LABEL_31 + 1;
/// How full the filter is when it is made.
const LOAD: f64 = 0.75;
/// Keys that go in lock step.
const GROUP: usize = 32;

/// A table of prefixes and markers behind a cuckoo filter, searched by length.
#[derive(Debug, Clone)]
pub struct CuVppLengths<A> {
    tree: Tree,
    /// Bytes of a key that the longest length takes.
    key_bytes: usize,
    filter: CuckooFilter<4>,
    table: HashTable<A>,
    default: Label,
    /// For the control side.
    users: HashTable<A>,
}

/// Builds a [`CuVppLengths`] of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer<A: Address>(rib: &Rib<A>, _: &Domain) -> Built<A> {
    copies::writer(CuVppLengths::build(rib)?)
}

/// A key under way.
#[derive(Clone, Copy)]
struct Walk {
    sums: Sums,
    /// The node that is asked for, and its hash; not at the end.
    node: u8,
    hash: u64,
    /// The last node that was there, and its hash; [`END`]: none.
    last: u8,
    last_hash: u64,
}

impl<A: Address> CuVppLengths<A> {
    /// Builds it of `rib`.
    ///
    /// # Errors
    /// A label of more than 31 bits.
    pub fn build(rib: &Rib<A>) -> Result<Self, BuildError> {
        Self::build_with(rib, Self::sized(rib), &[], &())
    }

    /// Builds it of `rib` with a filter, which is empty.
    ///
    /// # Errors
    /// A label of more than 31 bits.
    pub fn with_filter(rib: &Rib<A>, filter: CuckooFilter<4>) -> Result<Self, BuildError> {
        Self::build_with(rib, filter, &[], &())
    }

    /// A filter that has the table's size.
    fn sized(rib: &Rib<A>) -> CuckooFilter<4> {
        CuckooFilter::for_items(rib.len(), LOAD, Fingerprint::default())
    }

    /// Also with lengths that have no prefixes now.
    fn build_with<P: Probe + ?Sized>(
        rib: &Rib<A>,
        filter: CuckooFilter<4>,
        known: &[Node],
        probe: &P,
    ) -> Result<Self, BuildError> {
        check_labels(rib, 31)?;
        let mut counts = [0; 129];
        known.iter().for_each(|node| counts[usize::from(node.cut.len)] = 1);
        rib.iter().for_each(|(prefix, _)| counts[usize::from(prefix.len())] += 1);
        let tree = Tree::new(&counts);
        let key_bytes = tree.nodes.iter().map(|node| node.cut.bytes()).max().unwrap_or(0);
        let mut fib = CuVppLengths {
            tree,
            key_bytes,
            filter,
            table: HashTable::with_room(rib.len()),
            default: Label::NONE,
            users: HashTable::with_room(rib.len()),
        };
        fib.fill(rib, probe);
        Ok(fib)
    }

    /// The filter.
    pub fn filter(&self) -> &CuckooFilter<4> {
        &self.filter
    }

    /// Prefixes and markers, without the default route.
    pub fn entries(&self) -> usize {
        self.table.len()
    }

    /// The most questions to the filter for one lookup.
    pub fn depth(&self) -> usize {
        self.tree.depth
    }

    /// Longest match of one key, counting in `trace`.
    pub fn lookup_traced(&self, key: A, trace: &Trace) -> Label {
        self.find(key, &(), trace)
    }

    #[inline(always)]
    fn node<P: Probe + ?Sized>(&self, at: u8, dependent: bool, probe: &P) -> &Node {
        let node = &self.tree.nodes[usize::from(at)];
        probe.step();
        probe.read((&raw const *node).addr(), size_of::<Node>(), dependent);
        node
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized, T: Tally>(&self, key: A, probe: &P, tally: &T) -> Label {
        let sums = Sums::new(key, self.key_bytes, probe);
        let (mut at, mut last) = (self.tree.root, None);
        while at != END {
            let node = self.node(at, at != self.tree.root, probe);
            let hash = sums.at::<A, P>(node.cut, probe);
            tally.filter_probe();
            if self.filter.contains(hash, probe) {
                (at, last) = (node.longer, Some((node.cut.len, hash)));
            } else {
                at = node.shorter;
            }
        }
        let Some((len, hash)) = last else { return self.answer(DEFAULT, probe) };
        tally.fib_probe();
        if let Some(word) = self.table.get(hash, key & A::mask(len), len, probe) {
            return self.answer(word, probe);
        }
        tally.false_positive();
        self.find_without_filter(key, probe, tally)
    }

    /// The filter was wrong.
    #[cold]
    fn find_without_filter<P: Probe + ?Sized, T: Tally>(&self, key: A, probe: &P, tally: &T) -> Label {
        let sums = Sums::new(key, self.key_bytes, probe);
        let (mut at, mut best) = (self.tree.root, DEFAULT);
        while at != END {
            let node = self.node(at, true, probe);
            let (len, hash) = (node.cut.len, sums.at::<A, P>(node.cut, probe));
            tally.fib_probe();
            match self.table.get(hash, key & A::mask(len), len, probe) {
                Some(word) => (at, best) = (node.longer, word),
                None => at = node.shorter,
            }
        }
        self.answer(best, probe)
    }

    #[inline(always)]
    fn answer<P: Probe + ?Sized>(&self, word: u32, probe: &P) -> Label {
        if word & DEFAULT == 0 {
            return Label(word);
        }
        probe.read((&raw const self.default).addr(), size_of::<Label>(), true);
        self.default
    }

    /// In each round every key of a group asks the filter once; the buckets of its next question are on their way then.
    fn lock_step(&self, keys: &[A], out: &mut [Label]) {
        let mut walks = [Walk { sums: Sums::EMPTY, node: END, hash: 0, last: END, last_hash: 0 }; GROUP];
        let mut active = [0_u8; GROUP];
        let ask = |walk: &mut Walk, node: u8| {
            walk.node = node;
            walk.hash = walk.sums.at::<A, ()>(self.tree.nodes[usize::from(node)].cut, &());
            self.filter.prefetch(walk.hash);
        };
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let mut count = 0;
            if self.tree.root != END {
                for (i, &key) in keys.iter().enumerate() {
                    walks[i].sums = Sums::new(key, self.key_bytes, &());
                    walks[i].last = END;
                    ask(&mut walks[i], self.tree.root);
                    active[i] = i as u8;
                }
                count = keys.len();
            }
            while count > 0 {
                for i in 0..std::mem::take(&mut count) {
                    let walk = &mut walks[usize::from(active[i])];
                    let node = &self.tree.nodes[usize::from(walk.node)];
                    // Both ways without a jump: which one it is cannot be foreseen.
                    let there = self.filter.contains_at_once(walk.hash);
                    let next = if there { node.longer } else { node.shorter };
                    walk.last = if there { walk.node } else { walk.last };
                    walk.last_hash = if there { walk.hash } else { walk.last_hash };
                    active[count] = active[i];
                    if next == END {
                        self.table.prefetch(walk.last_hash);
                    } else {
                        ask(walk, next);
                        count += 1;
                    }
                }
            }
            for ((walk, &key), out) in walks.iter().zip(keys).zip(out) {
                *out = match self.tree.nodes.get(usize::from(walk.last)) {
                    None => self.default,
                    Some(node) => {
                        let len = node.cut.len;
                        match self.table.get(walk.last_hash, key & A::mask(len), len, &()) {
                            Some(word) => self.answer(word, &()),
                            None => self.find_without_filter(key, &(), &()),
                        }
                    }
                };
            }
        }
    }
}

impl<A: Address> Fib<A> for CuVppLengths<A> {
    fn lookup(&self, key: A) -> Label {
        self.find(key, &(), &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        self.lock_step(keys, out);
    }

    fn name(&self) -> String {
        "cuvpp-lengths".into()
    }

    fn bytes(&self) -> usize {
        let own = size_of_val(&self.tree.nodes[..]) + size_of::<Label>();
        own + self.filter.bytes() + self.table.bytes() + table_bytes::<A>()
    }

    fn shared_bytes(&self) -> usize {
        table_bytes::<A>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        self.find(key, probe, &())
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let mut all = vec![
            ("lengths", self.tree.nodes.len() as f64),
            ("depth", self.depth() as f64),
            ("entries", self.entries() as f64),
            ("table_bytes", self.table.bytes() as f64),
            ("table_load", self.table.load()),
        ];
        all.extend(Screen::details(&self.filter));
        all
    }
}
