//! A group of keys on its way through the layers: which are open, and what they are asked for.

use super::GROUP;
use crate::turned::Turned;
use tidemill_flow::flowtable::Slot;
use tidemill_flow::key::Key as FlowKey;
use tidemill_lookup::mem::OnLines;

/// Keys of a batch, by their places in it.
#[derive(Clone, Copy)]
pub(super) struct Open {
    places: [u8; GROUP],
    pub(super) len: usize,
}

impl Open {
    /// The first ones.
    #[inline]
    pub(super) fn first(len: usize) -> Self {
        Open { places: std::array::from_fn(|i| i as u8), len }
    }

    #[inline]
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.places[..self.len].iter().map(|&place| usize::from(place))
    }

    /// Keeps the keys for which `stays` is true; it is told which one it is of those that are open, and its place.
    #[inline]
    pub(super) fn retain(&mut self, mut stays: impl FnMut(usize, usize) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            let place = self.places[at];
            self.places[kept] = place;
            kept += usize::from(stays(at, usize::from(place)));
        }
        self.len = kept;
    }

    /// Adds the keys of these bits.
    #[inline]
    pub(super) fn add(&mut self, bits: u32) {
        for place in bits_of(bits) {
            self.places[self.len] = place as u8;
            self.len += 1;
        }
    }

    /// The keys, by bits.
    #[inline]
    pub(super) fn bits(&self) -> u32 {
        self.iter().fold(0, |bits, i| bits | 1 << i)
    }
}

/// A group's probes: written before they are read, in each round.
pub(super) struct Scratch {
    pub(super) turned: Turned,
    pub(super) asked: [Asked; GROUP],
    pub(super) masked: OnLines<[FlowKey<8>; GROUP]>,
    pub(super) hashes: OnLines<[u64; GROUP]>,
    pub(super) slots: [Option<Slot>; GROUP],
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            turned: Turned::new(),
            asked: [Asked::default(); GROUP],
            masked: OnLines([FlowKey([0; 8]); GROUP]),
            hashes: OnLines([0; GROUP]),
            slots: [None; GROUP],
        }
    }
}

/// A key's place in the batch, the mask that it is asked for, and that one's place in the order.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    pub(super) place: u8,
    pub(super) number: u16,
    pub(super) order: u16,
}

/// The places of the bits that are set, from the lowest on.
#[inline]
pub(super) fn bits_of(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < GROUP).then_some(place)
    })
}
