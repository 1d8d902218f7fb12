//! Lookups in plain code: one key, and a batch in steps whose loads do not wait for one another. This is the
//! specification that the SIMD kernels are tested against.

use super::{ASIDE, Desc, K, Labels, Popdir, REST, address, place};
use crate::fib::Label;
use crate::pool::Cell;
use std::sync::atomic::Ordering;
use tidemill_lookup::probe::Probe;

/// Keys per round of the batch: enough loads to keep the memory system busy.
const ROUND: usize = 64;

impl Popdir {
    /// Longest match of one address; `probe` sees every load and every comparison.
    #[inline(always)]
    pub fn lookup_probed<P: Probe>(&self, key: u32, probe: &P) -> Label {
        self.resolve(self.descriptor(key, probe), key, probe)
    }

    /// The descriptor of the key's chunk.
    #[inline(always)]
    fn descriptor<P: Probe>(&self, key: u32, probe: &P) -> u64 {
        let chunk = (key >> REST) as usize;
        let (index, dependent) = match self.layout.x() {
            0 => (chunk, false),
            x => {
                let slot = &self.tables.direct[chunk >> x];
                probe.read(address(slot), 2, false);
                // Acquire: the block was filled before it was put here.
                let block = usize::from(slot.load(Ordering::Acquire));
                (block << x | chunk & ((1 << x) - 1), true)
            }
        };
        let slot = &self.tables.descs[index];
        probe.read(address(slot), 8, dependent);
        slot.load(Ordering::Acquire)
    }

    /// What a descriptor says about a key in its chunk.
    #[inline(always)]
    fn resolve<P: Probe>(&self, desc: u64, key: u32, probe: &P) -> Label {
        match Desc::decode(desc) {
            Desc::Label(label) => Label(label),
            Desc::Run { map, base } => {
                probe.step();
                Label(self.tables.labels.get(base as usize + place(map, key) as usize, probe))
            }
            Desc::Aside { base } => self.search(base, key, probe),
        }
    }

    /// The binary search in an aside.
    #[cold]
    pub(super) fn search<P: Probe>(&self, base: u32, key: u32, probe: &P) -> Label {
        let words = &self.tables.asides[base as usize..];
        let word = |index: usize| {
            probe.read(address(&words[index]), 4, true);
            // Relaxed: these words are not stored to while a reader can reach them.
            words[index].load(Ordering::Relaxed)
        };
        let low = key & (u32::MAX >> K);
        // The range looked for is one of `count` from `first` on.
        let (mut first, mut count) = (0, word(0) as usize);
        while count > 1 {
            probe.step();
            let half = count / 2;
            first += if word(1 + 2 * (first + half)) <= low { half } else { 0 };
            count -= half;
        }
        Label(word(2 + 2 * first))
    }

    /// The batch in plain code.
    #[inline(always)]
    pub(super) fn lookup_batch_scalar(&self, keys: &[u32], out: &mut [Label]) {
        match &self.tables.labels {
            Labels::One(labels) => self.rounds(labels, keys, out),
            Labels::Two(labels) => self.rounds(labels, keys, out),
            Labels::Four(labels) => self.rounds(labels, keys, out),
        }
    }

    /// The descriptors of a round, then what they say: no branch depends on a key whose chunk is no aside.
    #[inline(always)]
    fn rounds<C: Cell>(&self, labels: &[C], keys: &[u32], out: &mut [Label]) {
        let mut descs = [0; ROUND];
        for (keys, out) in keys.chunks(ROUND).zip(out.chunks_mut(ROUND)) {
            for (desc, &key) in descs.iter_mut().zip(keys) {
                *desc = self.descriptor(key, &());
            }
            let mut asides = false;
            for ((out, &desc), &key) in out.iter_mut().zip(&descs).zip(keys) {
                let (map, base) = ((desc >> 32) as u32, desc as u32);
                // The load that is not needed finds the first label.
                let several = map > ASIDE;
                let label = labels[if several { base as usize + place(map, key) as usize } else { 0 }].get();
                *out = Label(if several { label as u32 } else { base });
                asides |= map == ASIDE;
            }
            if asides {
                for ((out, &desc), &key) in out.iter_mut().zip(&descs).zip(keys) {
                    *out = self.resolve(desc, key, &());
                }
            }
        }
    }
}
