//! Which datagrams lost their first fragment: later ones have no ports, and go with it.

use crate::parse::FragmentKey;
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_wire::flow::Addresses;

/// Datagrams that are remembered.
const PLACES: usize = 4096;
/// Seconds that one is: its fragments follow each other closely, and identifications come again.
const REMEMBERED_S: u32 = 3;

/// A fixed number of datagrams, the last in each place.
pub(crate) struct Fragments {
    places: Box<[Option<(FragmentKey, u32)>]>,
    hash: Keyed<5>,
    /// Whether there is anything in it: fragments are rare.
    used: bool,
}

impl Fragments {
    pub(crate) fn new(secret: u128) -> Self {
        Fragments { places: vec![None; PLACES].into(), hash: Keyed::new(secret), used: false }
    }

    fn place(&mut self, key: &FragmentKey) -> &mut Option<(FragmentKey, u32)> {
        let (src, dst, family) = match key.addresses {
            Addresses::V4 { src, dst } => (src.into(), dst.into(), 4),
            Addresses::V6 { src, dst } => (src, dst, 6),
        };
        let words = [
            (src >> 64) as u64,
            src as u64,
            (dst >> 64) as u64,
            dst as u64,
            u64::from(key.ident) << 8 | family,
        ];
        let hash = self.hash.hash(&Key(words));
        &mut self.places[(hash >> 32) as usize % PLACES]
    }

    /// The first fragment of this datagram was dropped, or was not.
    pub(crate) fn first(&mut self, key: FragmentKey, now: u32, dropped: bool) {
        if dropped {
            self.used = true;
            *self.place(&key) = Some((key, now));
        } else if self.used {
            // A new datagram with an identification that was used before.
            let place = self.place(&key);
            *place = place.filter(|(other, _)| *other != key);
        }
    }

    /// Whether this datagram's first fragment was dropped lately.
    pub(crate) fn goes(&mut self, key: &FragmentKey, now: u32) -> bool {
        self.used
            && self
                .place(key)
                .is_some_and(|(other, when)| other == *key && now.wrapping_sub(when) <= REMEMBERED_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_fragments_go_with_the_first_for_a_while() {
        let key = |ident| FragmentKey { addresses: Addresses::V4 { src: 1, dst: 2 }, ident };
        let mut fragments = Fragments::new(1);
        assert!(!fragments.goes(&key(7), 100));
        fragments.first(key(7), 100, true);
        assert!(fragments.goes(&key(7), 100) && fragments.goes(&key(7), 103));
        assert!(!fragments.goes(&key(7), 104) && !fragments.goes(&key(8), 100));
        let v6 = FragmentKey { addresses: Addresses::V6 { src: 1, dst: 2 }, ident: 7 };
        assert!(!fragments.goes(&v6, 100));
        fragments.first(key(7), 101, false);
        assert!(!fragments.goes(&key(7), 101));
        // More than there are places for: the last of each place stay.
        (0..3 * PLACES as u32).for_each(|ident| fragments.first(key(ident), 200, true));
        let kept = (0..3 * PLACES as u32).filter(|&ident| fragments.goes(&key(ident), 200)).count();
        assert!((PLACES / 2..=PLACES).contains(&kept), "{kept}");
    }
}
