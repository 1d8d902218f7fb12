//! The ports of one outside address for one protocol: a bit for each, set while it is in use.
//!
//! RFC 4787: no port is given twice (REQ-3); an inside port below 1024 gets one below 1024, others get others (REQ-3a); even ports get
//! even ones, odd ports odd ones (REQ-4). A port that is free and that this worker may give is kept as it is; so ports next to each
//! other, as RTP and RTCP have them, mostly stay so, though nobody may count on that.

use std::ops::RangeInclusive;

/// The first port that is not well-known.
pub(crate) const REGISTERED: u16 = 1024;

const EVEN: u64 = 0x5555_5555_5555_5555;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ports {
    used: Box<[u64; 1024]>,
    free: u32,
}

impl Ports {
    /// Those for which `may` is true are free.
    pub(crate) fn new(may: impl Fn(u16) -> bool) -> Self {
        let mut ports = Ports { used: Box::new([u64::MAX; 1024]), free: 0 };
        for port in (0..=u16::MAX).filter(|port| may(*port)) {
            ports.give_back(port);
        }
        ports
    }

    /// How many are free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Takes this one, if it is free.
    pub(crate) fn take(&mut self, port: u16) -> bool {
        let (word, bit) = (usize::from(port >> 6), 1 << (port & 63));
        let free = self.used[word] & bit == 0;
        self.used[word] |= bit;
        self.free -= u32::from(free);
        free
    }

    /// Frees this one.
    pub(crate) fn give_back(&mut self, port: u16) {
        let (word, bit) = (usize::from(port >> 6), 1 << (port & 63));
        self.free += u32::from(self.used[word] & bit != 0);
        self.used[word] &= !bit;
    }

    /// Takes a free port of `range`, from `start` on and round; with `parity` one that is even (0) or odd (1).
    /// At most 1,025 words are looked at.
    pub(crate) fn search(
        &mut self,
        range: RangeInclusive<u16>,
        start: u16,
        parity: Option<u16>,
    ) -> Option<u16> {
        let (first, last) = (*range.start(), *range.end());
        if self.free == 0 || first > last {
            return None;
        }
        let start = start.clamp(first, last);
        let wanted = match parity {
            None => u64::MAX,
            Some(0) => EVEN,
            Some(_) => !EVEN,
        };
        let port = self.first(start..=last, wanted).or_else(|| self.first(first..=start, wanted))?;
        self.take(port);
        Some(port)
    }

    /// The first free port of a range among those bits of each word.
    fn first(&self, range: RangeInclusive<u16>, wanted: u64) -> Option<u16> {
        let (first, last) = (*range.start(), *range.end());
        for word in first >> 6..=last >> 6 {
            let mut free = !self.used[usize::from(word)] & wanted;
            if word == first >> 6 {
                free &= u64::MAX << (first & 63);
            }
            if word == last >> 6 {
                free &= u64::MAX >> (63 - (last & 63));
            }
            if free != 0 {
                return Some(word << 6 | free.trailing_zeros() as u16);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_port_is_given_once_and_comes_back() {
        for (range, parity) in
            [(0..=u16::MAX, None), (1024..=65535, Some(1)), (63..=65, None), (64..=64, Some(0))]
        {
            let mut ports = Ports::new(|_| true);
            let wanted: BTreeSet<u16> =
                range.clone().filter(|port| parity.is_none_or(|parity| port % 2 == parity)).collect();
            let mut given = BTreeSet::new();
            let mut start = 9_u16;
            while let Some(port) = ports.search(range.clone(), start, parity) {
                assert!(given.insert(port), "{port} was given twice");
                start = start.wrapping_mul(31).wrapping_add(17);
            }
            assert_eq!(given, wanted);
            assert_eq!(ports.free() as usize, (1 << 16) - wanted.len());
            given.iter().for_each(|port| ports.give_back(*port));
            assert_eq!(ports.free(), 1 << 16);
        }
    }

    #[test]
    fn ports_that_may_not_be_given_are_not() {
        let mut ports = Ports::new(|port| port >> 1 & 1 == 1);
        assert_eq!(
            (ports.free(), ports.take(2), ports.take(2), ports.take(4)),
            (1 << 15, true, false, false)
        );
        assert_eq!(ports.search(0..=8, 4, None), Some(6));
        assert_eq!(ports.search(0..=8, 4, None), Some(7));
        assert_eq!(ports.search(0..=8, 4, None), Some(3));
        assert_eq!(ports.search(0..=8, 4, None), None);
        #[allow(clippy::reversed_empty_ranges)]
        let none = ports.search(9..=8, 4, None);
        assert_eq!(none, None);
    }
}
