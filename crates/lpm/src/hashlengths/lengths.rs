//! Which prefix lengths a table has.

use super::hash::Cut;
use tidemill_lookup::mem::Array;
use tidemill_lookup::probe::Probe;

/// The lengths that have prefixes.
#[derive(Debug, Clone)]
pub struct Lengths {
    /// Prefixes of each length; for the control side.
    counts: Vec<u32>,
    /// The lengths that have some, longest first.
    cuts: Array<Cut>,
    /// Bytes of a key that the longest takes.
    bytes: usize,
}

impl Lengths {
    /// No prefixes.
    pub fn new() -> Self {
        Lengths { counts: vec![0; 129], cuts: Array::new(), bytes: 0 }
    }

    /// Longest first.
    #[inline(always)]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Bytes of a key that the longest length takes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Prefixes of a length.
    pub fn count(&self, len: u8) -> u32 {
        self.counts[usize::from(len)]
    }

    /// One prefix more.
    pub fn add<P: Probe + ?Sized>(&mut self, len: u8, probe: &P) {
        let count = &mut self.counts[usize::from(len)];
        *count += 1;
        if *count == 1 {
            self.list(probe);
        }
    }

    /// One prefix less.
    pub fn remove<P: Probe + ?Sized>(&mut self, len: u8, probe: &P) {
        let count = &mut self.counts[usize::from(len)];
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.list(probe);
        }
    }

    fn list<P: Probe + ?Sized>(&mut self, probe: &P) {
        let lens = (0..=128_u8).rev().filter(|&len| self.counts[usize::from(len)] > 0);
        self.cuts = lens.map(Cut::new).collect();
        self.bytes = self.cuts.first().map_or(0, |cut| cut.bytes());
        self.cuts.iter().for_each(|cut| probe.write((&raw const *cut).addr(), size_of::<Cut>()));
    }
}

impl Default for Lengths {
    fn default() -> Self {
        Self::new()
    }
}
