//! From a RIB to the trie below a slot of the root.

use super::{Base, Covering, LcTrie, Node, Part, ROOT_BITS, bits};
use crate::fib::{Label, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use crate::runs::Runs;
use tidemill_lookup::mem::Array;
use tidemill_lookup::probe::Probe;

/// What every address matches, and nothing else: the element 0 of the base vector, and the outer prefix where there is none.
const NO_ROUTE: Covering = Covering { label: Label::NONE.0, shorter: 0, len: 0 };

/// Builds the trie of `rib`.
pub(super) fn whole<A: Address>(rib: &Rib<A>) -> Result<LcTrie<A>, Outgrown> {
    let slots = 1 << ROOT_BITS;
    let mut trie = LcTrie {
        root: Array::filled(slots, Node { adr: 0, branch: 0, skip: 0 }),
        nodes: Runs::new(),
        bases: Runs::new(),
        covering: Runs::new(),
        parts: vec![Part::default(); slots],
    };
    trie.bases.take(1, base_of(A::MIN, NO_ROUTE))?;
    (0..slots).try_for_each(|slot| trie.make_slot(rib, slot, &()))?;
    Ok(trie)
}

/// An element of the base vector for a slot that has no prefix of its own.
fn base_of<A: Address>(key: A, outer: Covering) -> Base<A> {
    Base { key, label: outer.label, covering: 0, len: outer.len }
}

/// The region of a slot of the root.
fn region<A: Address>(slot: usize) -> Prefix<A> {
    let addr = A::from_u128(slot as u128) << usize::from(A::BITS - ROOT_BITS);
    Prefix::new(addr, ROOT_BITS).unwrap_or(Prefix::DEFAULT) // never: every address has as many bits
}

/// The longest prefix of fewer bits than the root's around a slot.
fn outer<A: Address>(rib: &Rib<A>, slot: usize) -> Covering {
    let around = Prefix::new(region::<A>(slot).first(), ROOT_BITS - 1);
    around.and_then(|around| rib.covering(around)).map_or(NO_ROUTE, |(prefix, label)| Covering {
        label: label.0,
        shorter: 0,
        len: prefix.len(),
    })
}

/// A trie whose numbers count from 0.
struct Draft<A> {
    nodes: Vec<Node>,
    bases: Vec<Base<A>>,
    covering: Vec<Covering>,
}

impl<A: Address> Draft<A> {
    /// The vectors, and no node yet but the first, for `prefixes` in order.
    fn new(outer: Covering, prefixes: &[(Prefix<A>, Label)]) -> Self {
        let nodes = vec![Node { adr: 0, branch: 0, skip: 0 }];
        let mut draft = Draft { nodes, bases: Vec::new(), covering: vec![outer] };
        // The prefixes around this one, with their places among the covering ones.
        let mut open: Vec<(Prefix<A>, u32)> = Vec::new();
        for (i, &(prefix, Label(label))) in prefixes.iter().enumerate() {
            while open.last().is_some_and(|(last, _)| !last.covers(prefix)) {
                open.pop();
            }
            let (around, len) = (open.last().map_or(0, |&(_, at)| at), prefix.len());
            if prefixes.get(i + 1).is_some_and(|&(next, _)| prefix.covers(next)) {
                open.push((prefix, draft.covering.len() as u32));
                draft.covering.push(Covering { label, shorter: around, len });
            } else {
                draft.bases.push(Base { key: prefix.first(), label, covering: around, len });
            }
        }
        draft
    }

    /// How many different values the bits `from .. from + count` of these bases have.
    fn values(&self, bases: std::ops::Range<usize>, from: u8, count: u8) -> usize {
        let values = self.bases[bases].iter().map(|base| bits(base.key, from, count));
        let (mut last, mut number) = (usize::MAX, 0);
        values.for_each(|value| {
            number += usize::from(value != last);
            last = value;
        });
        number
    }

    /// Makes node `at` the trie of these bases, which agree in their first `depth` bits.
    fn grow(&mut self, at: usize, bases: std::ops::Range<usize>, depth: u8) {
        if bases.len() == 1 {
            self.nodes[at] = Node { adr: bases.start as u32, branch: 0, skip: 0 };
            return;
        }
        // None covers another: they differ before the shorter one's end.
        let differs = self.bases[bases.start].key ^ self.bases[bases.end - 1].key;
        let from = differs.leading_zeros() as u8;
        let mut branch = 1;
        while from + branch < A::BITS && bases.len() > 2 {
            // At least half of twice as many slots.
            let enough = 1 << branch;
            if bases.len() < enough || self.values(bases.clone(), from, branch + 1) < enough {
                break;
            }
            branch += 1;
        }
        let children = self.nodes.len();
        let empty = Node { adr: 0, branch: 0, skip: 0 };
        self.nodes.resize(children + (1 << branch), empty);
        self.nodes[at] = Node { adr: children as u32, branch, skip: from - depth };
        let (end, mut next) = (from + branch, bases.start);
        let path = self.bases[bases.start].key & A::mask(from);
        for value in 0..1 << branch {
            let here = self.bases[next..bases.end].iter();
            let count = here.take_while(|base| bits(base.key, from, branch) == value).count();
            if count > 0 {
                self.grow(children + value, next..next + count, end);
            } else {
                let slot = path | A::from_u128(value as u128) << usize::from(A::BITS - end);
                let neighbors = [next.checked_sub(1), Some(next)].into_iter().flatten();
                let neighbors = neighbors.filter(|neighbor| bases.contains(neighbor));
                let base = neighbors.max_by_key(|&base| self.longest(base, slot)).unwrap_or(next);
                self.nodes[children + value].adr = base as u32;
            }
            next += count;
        }
    }

    /// The length of the longest prefix around `key` that is this base or covers it.
    fn longest(&self, base: usize, key: A) -> u8 {
        let base = &self.bases[base];
        let matches = |len: u8| (base.key ^ key) & A::mask(len) == A::MIN;
        if matches(base.len) {
            return base.len;
        }
        let mut covering = self.covering[base.covering as usize];
        while !matches(covering.len) {
            covering = self.covering[covering.shorter as usize]; // to the outer one at last
        }
        covering.len
    }
}

/// Puts a vector into an array, whose run before is given back: the new one.
fn replace<T: Copy, P: Probe + ?Sized>(
    runs: &mut Runs<T>,
    old: (u32, u32),
    new: &[T],
    probe: &P,
) -> Result<(u32, u32), Outgrown> {
    runs.give(old.0, old.1 as usize);
    let Some(&any) = new.first() else { return Ok((0, 0)) };
    let first = runs.take(new.len(), any)?;
    runs[first as usize..][..new.len()].copy_from_slice(new);
    probe.write(runs[first as usize..].as_ptr().addr(), size_of_val(new));
    Ok((first, new.len() as u32))
}

impl<A: Address> LcTrie<A> {
    /// Makes the part of the trie below a slot of the root anew.
    pub(super) fn make_slot<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        slot: usize,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let prefixes: Vec<(Prefix<A>, Label)> = rib.inside(region(slot)).collect();
        let mut draft = Draft::new(outer(rib, slot), &prefixes);
        let old = self.parts[slot];
        if draft.bases.is_empty() {
            self.nodes.give(old.nodes.0, old.nodes.1 as usize);
            self.bases.give(old.bases.0, old.bases.1 as usize);
            self.covering.give(old.covering.0, old.covering.1 as usize);
            self.parts[slot] = Part::default();
            self.set_root(slot, Node { adr: 0, branch: 0, skip: 0 }, probe);
            return self.set_outer(rib, slot, probe);
        }
        draft.grow(0, 0..draft.bases.len(), ROOT_BITS);
        // The first node is the root's own.
        let covering = replace(&mut self.covering, old.covering, &draft.covering, &())?;
        self.covering[covering.0 as usize..][..covering.1 as usize]
            .iter_mut()
            .for_each(|one| one.shorter += covering.0);
        draft.bases.iter_mut().for_each(|base| base.covering += covering.0);
        let bases = replace(&mut self.bases, old.bases, &draft.bases, probe)?;
        let count = draft.nodes.len() - 1;
        self.nodes.give(old.nodes.0, old.nodes.1 as usize);
        let first = self.nodes.take(count, draft.nodes[0])?;
        let place = |node: Node| Node {
            // A child's number counts the first node too.
            adr: if node.branch > 0 { node.adr - 1 + first } else { node.adr + bases.0 },
            ..node
        };
        for (to, &node) in self.nodes[first as usize..][..count].iter_mut().zip(&draft.nodes[1..]) {
            *to = place(node);
        }
        if count > 0 {
            probe.write(self.nodes[first as usize..].as_ptr().addr(), count * size_of::<Node>());
        }
        probe.write(
            self.covering[covering.0 as usize..].as_ptr().addr(),
            covering.1 as usize * size_of::<Covering>(),
        );
        self.parts[slot] = Part { nodes: (first, count as u32), bases, covering };
        self.set_root(slot, place(draft.nodes[0]), probe);
        Ok(())
    }

    fn set_root<P: Probe + ?Sized>(&mut self, slot: usize, node: Node, probe: &P) {
        self.root[slot] = node;
        probe.write((&raw const self.root[slot]).addr(), size_of::<Node>());
    }

    /// Stores the prefix around a slot of the root.
    pub(super) fn set_outer<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        slot: usize,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let (outer, part) = (outer(rib, slot), self.parts[slot]);
        if part.covering.1 > 0 {
            let first = &mut self.covering[part.covering.0 as usize];
            if (first.len, first.label) != (outer.len, outer.label) {
                (first.len, first.label) = (outer.len, outer.label);
                probe.write((&raw const *first).addr(), size_of::<Covering>());
            }
            return Ok(());
        }
        let base: &[Base<A>] = &[base_of(region::<A>(slot).first(), outer)];
        let base = if outer.label == Label::NONE.0 { &[] } else { base };
        let old = part.bases;
        let same = |&Base { label, len, .. }: &Base<A>| (label, len) == (outer.label, outer.len);
        let there = &self.bases[old.0 as usize..][..old.1 as usize];
        if there.len() == base.len() && there.iter().all(same) {
            return Ok(());
        }
        let bases = replace(&mut self.bases, old, base, probe)?;
        self.parts[slot].bases = bases;
        self.set_root(slot, Node { adr: bases.0, branch: 0, skip: 0 }, probe);
        Ok(())
    }
}
