//! The masks that megaflows have, by number.
//!
//! ```text
//! order | those that are asked, with the most hits first | those that gave way: not asked, their megaflows are swept |
//! ```
//!
//! A flood can take all masks that may be asked, with a few megaflows each, and a packet now and then would hold them for ever. So where decisions want a mask and none
//! is free, those with the fewest hits since the last [look](Masks::look) give way at the next one: at most one in [`PART`], and only as long as they had together no more
//! than half as many hits as there were decisions without a mask. Nothing that is used is given up for what is used less, and after a flood all masks are
//! others' within [`PART`] looks: those without a hit go until none is left.
//!
//! Who gives way keeps its number until [`ROUND`] looks and one have swept its megaflows, for these have the number in their keys. If it is wanted before
//! that, it is asked again, with those that are left.

use super::filter::{Filters, Standing};
use crate::key::{Mask, WORDS};
use hashbrown::HashMap;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// At one look one mask in so many gives way at most.
pub(super) const PART: usize = 8;

/// In so many looks all megaflows are swept while there are some of masks that gave way.
pub(super) const ROUND: usize = 16;

/// Numbers for so many masks that are asked. Those that gave way have numbers, too: from 5,243 masks on there are not enough for all, and a new one may have to wait
/// for a sweep.
pub(super) fn numbers(most: usize) -> usize {
    let most = most.min(usize::from(super::MOST_MASKS));
    (most + (ROUND + 1) * most.div_ceil(PART)).min(usize::from(super::MOST_MASKS))
}

/// A mask in use.
struct Used {
    mask: Mask,
    /// Megaflows that have it.
    megaflows: Cell<u32>,
    /// Hits since the last look; what made it ask is one.
    hits: Cell<u32>,
    /// It has not given way.
    asked: bool,
}

/// All masks in use. Counts are cells: they change while the order is walked.
pub(super) struct Masks {
    /// Numbers are places here.
    slots: Vec<Option<Used>>,
    free: Vec<u16>,
    by_mask: HashMap<Mask, u16>,
    /// Those that are asked, then those that gave way.
    order: Vec<u16>,
    /// How many are asked.
    asked: usize,
    /// The most that are.
    most: usize,
    /// Decisions since the last look that wanted a mask when as many as may be were asked.
    wanted: u32,
    /// There were such, and masks without a hit since.
    crowded: bool,
    empty: Cell<bool>,
    /// By the standing of megaflows.
    filters: [Filters; Standing::ALL],
}

impl Masks {
    /// Room for `most`; all memory is there already. With a secret there are filters.
    pub(super) fn new(most: usize, secret: Option<u128>) -> Self {
        let (most, numbers) = (most.min(usize::from(super::MOST_MASKS)), numbers(most));
        let filtered = if secret.is_some() { numbers } else { 0 };
        Masks {
            slots: (0..numbers).map(|_| None).collect(),
            free: (0..numbers as u16).rev().collect(),
            // Twice: a map that is half empty makes room for itself where it lies when masks come and go.
            by_mask: HashMap::with_capacity(2 * numbers + 1),
            order: Vec::with_capacity(numbers),
            asked: 0,
            most,
            wanted: 0,
            crowded: false,
            empty: Cell::new(false),
            filters: std::array::from_fn(|_| Filters::new(filtered, secret.unwrap_or_default())),
        }
    }

    /// The filters of the megaflows that have this standing.
    #[inline(always)]
    pub(super) fn filters(&self, of: Standing) -> &Filters {
        &self.filters[of as usize]
    }

    #[inline(always)]
    pub(super) fn have_filters(&self) -> bool {
        self.filters(Standing::Proven).are_there()
    }

    pub(super) fn bytes_of_filters(&self) -> usize {
        self.filters.iter().map(Filters::bytes).sum()
    }

    /// Numbers in the order in which to ask.
    pub(super) fn order(&self) -> &[u16] {
        &self.order[..self.asked]
    }

    /// Whether there can be another one.
    pub(super) fn free(&self) -> bool {
        self.asked < self.most && !self.free.is_empty()
    }

    #[inline(always)]
    fn used_at(&self, number: u16) -> Option<&Used> {
        self.slots.get(usize::from(number)).and_then(Option::as_ref)
    }

    #[inline(always)]
    pub(super) fn mask(&self, number: u16) -> &Mask {
        match self.used_at(number) {
            Some(used) => &used.mask,
            None => &Mask::NONE,
        }
    }

    /// Whether it has not given way.
    pub(super) fn is_asked(&self, number: u16) -> bool {
        self.used_at(number).is_some_and(|used| used.asked)
    }

    /// Whether megaflows of masks that gave way are to be swept.
    pub(super) fn has_given_way(&self) -> bool {
        self.asked < self.order.len()
    }

    /// The number of a mask, which is asked from now on; `None`: there are as many as there can be. One that gets no megaflow is to be
    /// [dropped](Self::drop_empty).
    pub(super) fn number(&mut self, mask: &Mask) -> Option<u16> {
        let known = self.by_mask.get(mask).copied();
        if known.is_some_and(|number| self.is_asked(number)) {
            return known;
        }
        if self.asked == self.most {
            self.wanted = self.wanted.saturating_add(1);
            return None;
        }
        let (number, at) = match known {
            Some(number) => (number, self.order.iter().position(|&other| other == number)?),
            None => {
                let number = self.free.pop()?;
                let used = Used { mask: *mask, megaflows: Cell::new(0), hits: Cell::new(0), asked: false };
                self.slots[usize::from(number)] = Some(used);
                self.filters.iter_mut().for_each(|filters| filters.begin(number, mask));
                self.by_mask.insert(*mask, number);
                self.order.push(number);
                self.empty.set(true);
                (number, self.order.len() - 1)
            }
        };
        if let Some(used) = &mut self.slots[usize::from(number)] {
            used.asked = true;
            used.hits.set(1);
        }
        self.order.swap(self.asked, at);
        self.asked += 1;
        Some(number)
    }

    #[inline(always)]
    pub(super) fn used(&self, number: u16) {
        if let Some(used) = self.used_at(number) {
            used.hits.set(used.hits.get().saturating_add(1));
        }
    }

    /// A mask has one more megaflow, of this key, a new one.
    pub(super) fn one_more(&mut self, number: u16, key: &[u64; WORDS]) {
        if let Some(used) = self.used_at(number) {
            used.megaflows.set(used.megaflows.get() + 1);
        }
        let [_, new] = &mut self.filters;
        new.add(number, key);
    }

    /// The megaflow of this key was new, and a packet has found it.
    pub(super) fn proven(&mut self, number: u16, key: &[u64; WORDS]) {
        let [proven, new] = &mut self.filters;
        new.take(number, key);
        proven.add(number, key);
    }

    /// A megaflow of a mask has gone; whether it was the last.
    pub(super) fn one_less(&mut self, number: u16, key: &[u64; WORDS], of: Standing) -> bool {
        self.filters[of as usize].take(number, key);
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
        let Masks { slots, free, by_mask, order, asked, .. } = self;
        order.retain(|&number| {
            let slot = &mut slots[usize::from(number)];
            let Some(used) = slot.take_if(|used| used.megaflows.get() == 0) else { return true };
            *asked -= usize::from(used.asked);
            by_mask.remove(&used.mask);
            free.push(number);
            false
        });
    }

    /// Puts the masks with the most hits since the last look first, and has the last ones give way where others are wanted.
    pub(super) fn look(&mut self) {
        self.sort();
        self.give_way();
        self.slots.iter().flatten().for_each(|used| used.hits.set(0));
    }

    /// Of equal hits the one with the most megaflows first. Where nothing came at all, the order stays.
    fn sort(&mut self) {
        let Masks { slots, order, asked, .. } = self;
        let worth = |&number: &u16| {
            let used = slots[usize::from(number)].as_ref();
            used.map_or((0, 0), |used| (used.hits.get(), used.megaflows.get()))
        };
        let order = &mut order[..*asked];
        if order.iter().any(|number| worth(number).0 > 0) {
            order.sort_unstable_by_key(|number| (Reverse(worth(number)), *number));
        }
    }

    fn give_way(&mut self) {
        let wanted = u64::from(std::mem::take(&mut self.wanted));
        self.crowded |= wanted > 0;
        if !self.crowded {
            return;
        }
        let mut lost = 0;
        for _ in 0..self.most.div_ceil(PART) {
            let Some(last) = self.asked.checked_sub(1) else { break };
            let Some(used) = &mut self.slots[usize::from(self.order[last])] else { break };
            lost += u64::from(used.hits.get());
            if 2 * lost > wanted {
                self.crowded = wanted > 0;
                break;
            }
            used.asked = false;
            self.asked = last;
        }
    }

    /// Holds the books to the megaflows that there are, by the masks' numbers and by standing.
    pub(super) fn check(&self, counts: &BTreeMap<u16, [u32; Standing::ALL]>) -> Result<(), String> {
        for (&number, of) in counts {
            for (filters, &there) in self.filters.iter().zip(of) {
                if let Some(counted) = filters.counted(number).filter(|&counted| counted != there) {
                    return Err(format!(
                        "mask {number}: a filter has counted {counted} of {there} megaflows"
                    ));
                }
            }
        }
        let counts: BTreeMap<u16, u32> =
            counts.iter().map(|(&number, of)| (number, of.iter().sum())).collect();
        let told: BTreeMap<u16, u32> = self
            .order
            .iter()
            .filter_map(|&number| self.used_at(number).map(|used| (number, used.megaflows.get())))
            .collect();
        if told != counts || self.by_mask.len() != told.len() || self.order.len() != told.len() {
            return Err(format!("megaflows by mask: counted {told:?}, there are {counts:?}"));
        }
        if told.len() + self.free.len() != self.slots.len() {
            return Err(format!("{} masks and {} free of {}", told.len(), self.free.len(), self.slots.len()));
        }
        let asked = self.order.iter().take_while(|&&number| self.is_asked(number)).count();
        let all = self.order.iter().filter(|&&number| self.is_asked(number)).count();
        if [asked, all] != [self.asked; 2] || self.asked > self.most {
            return Err(format!("{all} masks asked, {asked} in order, counted {}", self.asked));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Field;

    /// One of 1,024.
    fn mask(of: u32) -> Mask {
        Mask::prefix(Field::Ipv4Source, 1 + of % 32).or(&Mask::prefix(Field::Ipv4Destination, 1 + of / 32))
    }

    /// So many packets of a mask: whether it had a number, with a megaflow of its own from then on.
    fn packets(masks: &mut Masks, of: u32, hits: u32) -> bool {
        let mask = mask(of);
        let asked = masks.by_mask.get(&mask).is_some_and(|&number| masks.is_asked(number));
        let mut number = None;
        (0..hits).for_each(|_| number = masks.number(&mask));
        let Some(number) = number else { return false };
        let Some(used) = masks.used_at(number) else { return false };
        used.hits.set(used.hits.get() + hits - u32::from(!asked));
        if used.megaflows.get() == 0 {
            masks.one_more(number, &[0; WORDS]);
        }
        true
    }

    fn counts(masks: &Masks) -> BTreeMap<u16, [u32; Standing::ALL]> {
        masks.order.iter().map(|&number| (number, [0, 1])).collect()
    }

    #[test]
    fn a_megaflow_is_in_the_filter_of_its_standing() {
        let mut masks = Masks::new(4, Some(1));
        assert!(packets(&mut masks, 3, 1));
        let (number, key) = (masks.order()[0], [0; WORDS]);
        let told = |masks: &Masks| {
            [Standing::Proven, Standing::New].map(|of| masks.filters(of).may_have(number, &crate::Key(key)))
        };
        assert_eq!(told(&masks), [false, true]);
        masks.proven(number, &key);
        assert_eq!(told(&masks), [true, false]);
        masks.check(&BTreeMap::from([(number, [1, 0])])).unwrap();
        masks.check(&counts(&masks)).unwrap_err();
        assert!(masks.one_less(number, &key, Standing::Proven));
        assert_eq!(told(&masks), [false; 2]);
    }

    #[test]
    fn what_a_flood_has_taken_is_others_within_eight_looks() {
        let mut masks = Masks::new(256, Some(1));
        let in_use = |masks: &mut Masks| (0..8).all(|of| packets(masks, of, 50));
        for _ in 0..20 {
            assert!(in_use(&mut masks), "who is used gives no way to a flood");
            for of in 8..400 {
                packets(&mut masks, of, 1);
            }
            assert_eq!(masks.order().len(), 256);
            masks.look();
            assert!(masks.order().len() >= 256 - 256 / PART, "a few at a look");
            masks.check(&counts(&masks)).unwrap();
        }
        // It is over, and others come.
        for look in 0..PART {
            assert!(in_use(&mut masks));
            let with = (400..648).filter(|&of| packets(&mut masks, of, 2)).count();
            assert!(with >= look * 256 / PART, "{with} after {look} looks");
            masks.look();
            masks.check(&counts(&masks)).unwrap();
        }
        assert!(in_use(&mut masks) && (400..648).all(|of| packets(&mut masks, of, 2)));
        assert_eq!(masks.order().len(), 256);
    }

    #[test]
    fn what_nobody_uses_any_more_goes_once_masks_were_wanted() {
        let mut masks = Masks::new(32, Some(1));
        (0..32).for_each(|of| assert!(packets(&mut masks, of, 1)));
        // All may be taken, and nothing may come: as long as no other is wanted all stay.
        (0..100).for_each(|_| masks.look());
        assert_eq!(masks.order().len(), 32);
        assert!(!packets(&mut masks, 32, 1));
        for look in 1..=PART {
            assert!(packets(&mut masks, 3, 5));
            masks.look();
            assert_eq!(masks.order().len(), (32 - 4 * look).max(1));
        }
        // Then those that are there may rest again.
        (0..100).for_each(|_| masks.look());
        assert_eq!(masks.order().iter().map(|&number| *masks.mask(number)).collect::<Vec<_>>(), [mask(3)]);
    }

    #[test]
    fn nothing_gives_way_to_what_is_used_less() {
        let mut masks = Masks::new(16, Some(1));
        for _ in 0..10 {
            (0..16).for_each(|of| assert!(packets(&mut masks, of, 10 + of)));
            assert!(!packets(&mut masks, 16, 19));
            masks.look();
            assert_eq!(masks.order().len(), 16);
        }
        (0..16).for_each(|of| assert!(packets(&mut masks, of, 10 + of)));
        // Twice what the last one had, and less than twice what the last two had together.
        assert!(!packets(&mut masks, 16, 20));
        masks.look();
        assert_eq!(masks.order().len(), 15);
        let gone = masks.by_mask[&mask(0)];
        assert!(!masks.is_asked(gone) && masks.has_given_way());
        assert!(packets(&mut masks, 16, 1) && !packets(&mut masks, 0, 100));
        masks.look();
        // Its megaflow is there still, and so is its number.
        assert_eq!(masks.number(&mask(0)), Some(gone));
        assert!(masks.is_asked(gone));
        masks.check(&counts(&masks)).unwrap();
    }

    #[test]
    fn who_gave_way_goes_with_its_last_megaflow() {
        let mut masks = Masks::new(8, Some(1));
        (0..8).for_each(|of| assert!(packets(&mut masks, of, 1)));
        assert!(!packets(&mut masks, 8, 9));
        masks.look();
        let gone = masks.order[7];
        assert!(!masks.is_asked(gone) && masks.one_less(gone, &[0; WORDS], Standing::New));
        masks.drop_empty();
        assert!(!masks.has_given_way() && masks.order().len() == 7 && masks.free());
        masks.check(&counts(&masks)).unwrap();
    }
}
