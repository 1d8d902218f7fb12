//! The masks that megaflows have, by number.

use crate::key::Mask;
use hashbrown::HashMap;
use std::cell::Cell;
use std::collections::BTreeMap;

/// A mask in use.
struct Used {
    mask: Mask,
    /// Megaflows that have it.
    megaflows: Cell<u32>,
    /// Hits, halved at every sorting.
    hits: Cell<u32>,
}

/// All masks in use. Counts are cells: they change while the order is walked.
pub(super) struct Masks {
    /// Numbers are places here.
    slots: Vec<Option<Used>>,
    free: Vec<u16>,
    by_mask: HashMap<Mask, u16>,
    order: Vec<u16>,
    empty: Cell<bool>,
}

impl Masks {
    /// Room for `most`; all memory is there already.
    pub(super) fn new(most: usize) -> Self {
        let most = most.min(usize::from(super::MOST_MASKS));
        Masks {
            slots: (0..most).map(|_| None).collect(),
            free: (0..most as u16).rev().collect(),
            // Twice: a map that is half empty makes room for itself where it lies when masks come and go.
            by_mask: HashMap::with_capacity(2 * most + 1),
            order: Vec::with_capacity(most),
            empty: Cell::new(false),
        }
    }

    /// Numbers in the order in which to ask.
    pub(super) fn order(&self) -> &[u16] {
        &self.order
    }

    /// Whether there can be another one.
    pub(super) fn free(&self) -> bool {
        !self.free.is_empty()
    }

    fn used_at(&self, number: u16) -> Option<&Used> {
        self.slots.get(usize::from(number)).and_then(Option::as_ref)
    }

    pub(super) fn mask(&self, number: u16) -> Mask {
        self.used_at(number).map_or(Mask::NONE, |used| used.mask)
    }

    /// The number of a mask, a new one if need be; `None`: there are as many as there can be. One that gets no megaflow is to be
    /// [dropped](Self::drop_empty).
    pub(super) fn number(&mut self, mask: &Mask) -> Option<u16> {
        if let Some(&number) = self.by_mask.get(mask) {
            return Some(number);
        }
        let number = self.free.pop()?;
        let used = Used { mask: *mask, megaflows: Cell::new(0), hits: Cell::new(0) };
        self.slots[usize::from(number)] = Some(used);
        self.by_mask.insert(*mask, number);
        self.order.push(number);
        self.empty.set(true);
        Some(number)
    }

    pub(super) fn used(&self, number: u16) {
        if let Some(used) = self.used_at(number) {
            used.hits.set(used.hits.get().saturating_add(1));
        }
    }

    pub(super) fn one_more(&self, number: u16) {
        if let Some(used) = self.used_at(number) {
            used.megaflows.set(used.megaflows.get() + 1);
        }
    }

    /// A megaflow of a mask has gone; whether it was the last.
    pub(super) fn one_less(&self, number: u16) -> bool {
        let Some(used) = self.used_at(number) else { return false };
        let left = used.megaflows.get().saturating_sub(1);
        used.megaflows.set(left);
        if left == 0 {
            self.empty.set(true);
        }
        left == 0
    }

    /// Forgets masks without megaflows.
    pub(super) fn drop_empty(&mut self) {
        if !self.empty.replace(false) {
            return;
        }
        let Masks { slots, free, by_mask, order, .. } = self;
        order.retain(|&number| {
            let slot = &mut slots[usize::from(number)];
            let Some(used) = slot.take_if(|used| used.megaflows.get() == 0) else { return true };
            by_mask.remove(&used.mask);
            free.push(number);
            false
        });
    }

    /// Puts the masks with the most hits first.
    pub(super) fn sort(&mut self) {
        let hits = |number: &u16| self.slots[usize::from(*number)].as_ref().map_or(0, |used| used.hits.get());
        self.order.sort_unstable_by_key(|number| (std::cmp::Reverse(hits(number)), *number));
        for used in self.slots.iter().flatten() {
            used.hits.set(used.hits.get() / 2);
        }
    }

    pub(super) fn check(&self, counts: &BTreeMap<u16, u32>) -> Result<(), String> {
        let told: BTreeMap<u16, u32> = self
            .order
            .iter()
            .filter_map(|&number| self.used_at(number).map(|used| (number, used.megaflows.get())))
            .collect();
        if told != *counts || self.by_mask.len() != told.len() || self.order.len() != told.len() {
            return Err(format!("megaflows by mask: counted {told:?}, there are {counts:?}"));
        }
        if told.len() + self.free.len() != self.slots.len() {
            return Err(format!("{} masks and {} free of {}", told.len(), self.free.len(), self.slots.len()));
        }
        Ok(())
    }
}
