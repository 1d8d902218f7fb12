//! Changes: entries come and go with those who need them, and their words follow the RIB.

use super::{CuVppLengths, DEFAULT};
use crate::copies::Whole;
use crate::fib::{LABEL_31, Label, Outgrown};
use crate::hashlengths::Screen;
use crate::hashlengths::hash::hash;
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;

/// In `users`: it is a prefix.
const PREFIX: u32 = 1;
/// In `users`: one prefix has it as a marker.
const MARKER: u32 = 2;

impl<A: Address> CuVppLengths<A> {
    /// Puts everything in.
    pub(super) fn fill<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, probe: &P) {
        for (prefix, label) in rib.iter() {
            if prefix.len() == 0 {
                self.default = label;
            } else {
                self.announce(rib, prefix, probe);
            }
        }
    }

    /// The lengths of a prefix's markers. A length that is not in the tree has none.
    fn markers(&self, prefix: Prefix<A>) -> Vec<Prefix<A>> {
        let lens = self.tree.markers(prefix.len()).unwrap_or_default();
        lens.iter().filter_map(|&len| Prefix::new(prefix.first(), len)).collect()
    }

    fn announce<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, prefix: Prefix<A>, probe: &P) {
        for marker in self.markers(prefix) {
            self.hold(rib, marker, MARKER, probe);
        }
        self.hold(rib, prefix, PREFIX, probe);
    }

    fn withdraw<P: Probe + ?Sized>(&mut self, prefix: Prefix<A>, probe: &P) {
        for marker in self.markers(prefix) {
            self.release(marker, MARKER, probe);
        }
        self.release(prefix, PREFIX, probe);
    }

    fn users(&self, entry: Prefix<A>) -> u32 {
        self.users.get(hash(entry), entry.first(), entry.len(), &()).unwrap_or(0)
    }

    /// One more needs an entry.
    fn hold<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, entry: Prefix<A>, user: u32, probe: &P) {
        let users = self.users(entry);
        self.users.set(entry, users + user, &());
        if users > 0 {
            return;
        }
        self.table.set(entry, word(rib, entry), probe);
        match self.filter.larger(self.table.len()) {
            None => Screen::insert(&mut self.filter, hash(entry), probe),
            Some(larger) => {
                self.filter = larger;
                self.table.iter().for_each(|(entry, _)| Screen::insert(&mut self.filter, hash(entry), probe));
            }
        }
    }

    /// One less needs an entry.
    fn release<P: Probe + ?Sized>(&mut self, entry: Prefix<A>, user: u32, probe: &P) {
        match self.users(entry).saturating_sub(user) {
            0 => {
                self.users.remove(entry, &());
                if self.table.remove(entry, probe) {
                    Screen::remove(&mut self.filter, hash(entry), probe);
                }
            }
            users => {
                self.users.set(entry, users, &());
            }
        }
    }

    /// Gives the entries of which `prefix` is, or was, the longest match their words. They are `prefix` itself, and markers of
    /// prefixes inside it, shorter than the outermost of those on their way.
    fn relabel<P: Probe + ?Sized>(&mut self, rib: &Rib<A>, prefix: Prefix<A>, probe: &P) {
        let word = word(rib, prefix);
        self.store(prefix, word, probe);
        let mut outermost = prefix;
        let mut done = prefix;
        for (inside, _) in rib.inside(prefix).filter(|&(inside, _)| inside != prefix) {
            if outermost == prefix || !outermost.covers(inside) {
                outermost = inside;
            }
            let mut i = 0;
            while let Some(&len) = self.tree.markers(inside.len()).and_then(|lens| lens.get(i)) {
                i += 1;
                let between = prefix.len() < len && len < outermost.len();
                let marker = Prefix::new(inside.first(), len).filter(|&marker| between && marker != done);
                // Neighbors share most of their markers.
                if let Some(marker) = marker {
                    self.store(marker, word, probe);
                    done = marker;
                }
            }
        }
    }

    /// Stores the word of an entry, if there is that entry and it has another one.
    fn store<P: Probe + ?Sized>(&mut self, entry: Prefix<A>, word: u32, probe: &P) {
        let old = self.table.get(hash(entry), entry.first(), entry.len(), &());
        if old.is_some_and(|old| old != word) {
            self.table.set(entry, word, probe);
        }
    }
}

/// What an entry says: the label of the longest prefix over its bits.
fn word<A: Address>(rib: &Rib<A>, entry: Prefix<A>) -> u32 {
    match rib.covering(entry) {
        // A label that is too wide is of a prefix whose turn is to come; it ends the structure then.
        Some((prefix, label)) if prefix.len() > 0 => label.0 & LABEL_31,
        _ => DEFAULT,
    }
}

impl<A: Address> Whole<A> for CuVppLengths<A> {
    fn collapse(&self) {
        self.filter.collapse();
        self.table.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let now = rib.get(prefix);
        if let Some(label) = now.filter(|label| label.0 > LABEL_31) {
            return Err(Outgrown::label(prefix, label, 31));
        }
        if prefix.len() == 0 {
            self.default = now.unwrap_or(Label::NONE);
            probe.write((&raw const self.default).addr(), size_of::<Label>());
            return Ok(());
        }
        if now.is_some() && self.tree.markers(prefix.len()).is_none() {
            // The lengths that were known stay, so that this does not happen for every one that comes again.
            *self = Self::build_with(rib, Self::sized(rib), &self.tree.nodes, probe)
                .map_err(|error| Outgrown { what: error.to_string() })?;
            return Ok(());
        }
        let was = self.users(prefix) & PREFIX == PREFIX;
        match (was, now.is_some()) {
            (false, true) => self.announce(rib, prefix, probe),
            (true, false) => self.withdraw(prefix, probe),
            _ => {}
        }
        self.relabel(rib, prefix, probe);
        Ok(())
    }
}
