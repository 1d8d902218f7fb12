//! The control side: where markers are, and what they know.

use super::{LABEL_BITS, LengthSearch, MARKER, NONE, Search};
use crate::copies::Whole;
use crate::fib::{Label, Outgrown};
use crate::hashlengths::HashTable;
use crate::hashlengths::hash::{Cut, hash};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;

/// In a marker's count: it is a prefix itself.
pub(super) const IS_PREFIX: u32 = 1;
/// In a marker's count: one prefix that needs it.
const USER: u32 = 2;

/// The levels on the way to a length that are shorter than it.
#[derive(Debug, Clone, Copy)]
struct Path {
    /// A search among 128 levels visits no more.
    lens: [u8; 8],
    count: usize,
}

impl Path {
    fn new(levels: &[Cut], len: u8) -> Self {
        let mut path = Path { lens: [0; 8], count: 0 };
        let mut search = Search { low: 0, high: levels.len(), best: Label::NONE };
        while let Some(middle) = search.middle() {
            match levels[middle].len {
                level if level < len => {
                    path.lens[path.count] = level;
                    path.count += 1;
                    search.step(middle, Some(MARKER));
                }
                level if level > len => search.step(middle, None),
                _ => break,
            }
        }
        path
    }

    fn lens(&self) -> &[u8] {
        &self.lens[..self.count]
    }
}

/// The first bits of a prefix.
fn cut<A: Address>(prefix: Prefix<A>, len: u8) -> Prefix<A> {
    Prefix::new(prefix.first(), len).unwrap_or(prefix)
}

/// The word of what has this best match; without [`MARKER`].
fn word<A: Address>(best: Option<(Prefix<A>, Label)>) -> u32 {
    best.filter(|(prefix, _)| prefix.len() > 0).map_or(NONE, |(_, label)| label.0)
}

impl<A: Address> LengthSearch<A> {
    /// Builds it of `rib`, whose labels fit, with `levels` (whatever order) beside the lengths that the prefixes have.
    pub(super) fn over<P: Probe + ?Sized>(rib: &Rib<A>, levels: &[Cut], probe: &P) -> Self {
        let mut is_level = [false; 129];
        levels.iter().for_each(|level| is_level[usize::from(level.len)] = true);
        rib.iter().for_each(|(prefix, _)| is_level[usize::from(prefix.len())] = true);
        let levels: Vec<Cut> =
            (1..=A::BITS).filter(|&len| is_level[usize::from(len)]).map(Cut::new).collect();
        let mut structure = LengthSearch {
            key_bytes: levels.last().map_or(0, |level| level.bytes()),
            levels,
            table: HashTable::with_room(rib.len()),
            default: rib.get(Prefix::DEFAULT).unwrap_or(Label::NONE),
            markers: HashTable::with_room(0),
        };
        for level in &structure.levels {
            probe.write((&raw const *level).addr(), size_of::<Cut>());
        }
        // The prefixes that cover the one at hand, but for the default route.
        let mut open: Vec<(Prefix<A>, Label)> = Vec::new();
        for (prefix, label) in rib.iter().filter(|(prefix, _)| prefix.len() > 0) {
            while open.last().is_some_and(|(outer, _)| !outer.covers(prefix)) {
                open.pop();
            }
            let best =
                |bits: Prefix<A>| open.iter().rev().find(|(outer, _)| outer.len() <= bits.len()).copied();
            structure.insert(prefix, label, best, probe);
            open.push((prefix, label));
        }
        structure
    }

    fn get(&self, bits: Prefix<A>) -> Option<u32> {
        self.table.get(hash(bits), bits.first(), bits.len(), &())
    }

    fn marker(&self, bits: Prefix<A>) -> Option<u32> {
        self.markers.get(hash(bits), bits.first(), bits.len(), &())
    }

    /// Whether these bits are a prefix of the table.
    fn has(&self, bits: Prefix<A>) -> bool {
        self.marker(bits).map_or_else(|| self.get(bits).is_some(), |marker| marker & IS_PREFIX != 0)
    }

    /// Puts in a prefix that is not in, and its markers; new ones get the best match that `best` says.
    fn insert<P: Probe + ?Sized>(
        &mut self,
        prefix: Prefix<A>,
        label: Label,
        best: impl Fn(Prefix<A>) -> Option<(Prefix<A>, Label)>,
        probe: &P,
    ) {
        for &len in Path::new(&self.levels, prefix.len()).lens() {
            let bits = cut(prefix, len);
            let marker = self.marker(bits).unwrap_or_else(|| {
                let prefix = self.get(bits);
                self.table.set(bits, prefix.unwrap_or_else(|| word(best(bits))) | MARKER, probe);
                if prefix.is_some() { IS_PREFIX } else { 0 }
            });
            self.markers.set(bits, marker + USER, &());
        }
        let marker = self.marker(prefix).map(|marker| self.markers.set(prefix, marker | IS_PREFIX, &()));
        self.table.set(prefix, label.0 | if marker.is_some() { MARKER } else { 0 }, probe);
    }

    /// Takes out a prefix that is in, and the markers that only it needs.
    fn remove<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, prefix: Prefix<A>, probe: &P) {
        for &len in Path::new(&self.levels, prefix.len()).lens() {
            let bits = cut(prefix, len);
            let left = self.marker(bits).map_or(0, |marker| marker - USER);
            if left >= USER {
                self.markers.set(bits, left, &());
                continue;
            }
            self.markers.remove(bits, &());
            match self.get(bits) {
                Some(word) if left == IS_PREFIX => _ = self.table.set(bits, word & !MARKER, probe),
                _ => _ = self.table.remove(bits, probe),
            }
        }
        match self.marker(prefix) {
            Some(marker) => {
                self.markers.set(prefix, marker & !IS_PREFIX, &());
                self.table.set(prefix, word(rib.covering(prefix)) | MARKER, probe);
            }
            None => _ = self.table.remove(prefix, probe),
        }
    }

    /// Tells the markers inside of which `prefix` is, or was, the best match what is the best now.
    fn tell<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, prefix: Prefix<A>, probe: &P) {
        let best = word(rib.covering(prefix));
        // The shortest prefix inside that covers what is at hand: what is longer has another best match.
        let mut outer: Option<Prefix<A>> = None;
        for (inner, _) in rib.inside(prefix).filter(|(inner, _)| *inner != prefix) {
            let nearest = outer.filter(|outer| outer.covers(inner)).unwrap_or(inner);
            outer = Some(nearest);
            for &len in Path::new(&self.levels, inner.len()).lens() {
                let bits = cut(inner, len);
                if prefix.len() < len
                    && len < nearest.len()
                    && let Some(old) = self.get(bits)
                    && old & !MARKER != best
                {
                    self.table.set(bits, old & MARKER | best, probe);
                }
            }
        }
    }
}

impl<A: Address> Whole<A> for LengthSearch<A> {
    fn collapse(&self) {
        self.table.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let now = rib.get(prefix);
        if let Some(label) = now.filter(|label| label.0 >> LABEL_BITS != 0) {
            return Err(Outgrown::label(prefix, label, LABEL_BITS));
        }
        if prefix.len() == 0 {
            self.default = now.unwrap_or(Label::NONE);
            probe.write((&raw const self.default).addr(), size_of::<Label>());
            return Ok(());
        }
        match (self.has(prefix), now) {
            (false, Some(_)) if self.levels().all(|len| len != prefix.len()) => {
                return self.rebuild(rib, probe);
            }
            (false, Some(label)) => self.insert(prefix, label, |bits| rib.covering(bits), probe),
            (true, None) => self.remove(rib, prefix, probe),
            (true, Some(label)) => {
                let marker = self.get(prefix).map_or(0, |old| old & MARKER);
                self.table.set(prefix, label.0 | marker, probe);
            }
            (false, None) => {}
        }
        // Even if it is as it was: markers that came meanwhile may know it as the RIB had it then.
        self.tell(rib, prefix, probe);
        Ok(())
    }
}

impl<A: Address> LengthSearch<A> {
    /// A length more: every prefix's way is another one.
    fn rebuild<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, probe: &P) -> Result<(), Outgrown> {
        // Prefixes that are still to be named come in as well.
        if let Some((prefix, label)) = rib.iter().find(|(_, label)| label.0 >> LABEL_BITS != 0) {
            return Err(Outgrown::label(prefix, label, LABEL_BITS));
        }
        *self = Self::over(rib, &self.levels, probe);
        Ok(())
    }
}
