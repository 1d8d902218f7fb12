//! The paper's table: every tuple has one slot (Tokusashi 2019, 5.3.3 and 5.3.4, figure 5.5).

use super::{Order, Place, RuleTable, Seen, Status, Tuple4};

/// No rule can hold longer: half a round of the clock.
pub const LONGEST_EXPIRY_S: u16 = i16::MAX as u16;

/// An entry as it lies in the paper's memory.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Entry {
    key: [u8; 12],
    status: Status,
    valid: bool,
    /// When the rule ends, by the clock of 16 bits.
    expires_s: u16,
}

const _: () = assert!(size_of::<Entry>() == 16, "12 bytes of key and 4 of value");

impl Entry {
    fn is_over(&self, now_s: u32) -> bool {
        self.status == Status::Filtered && (now_s as u16).wrapping_sub(self.expires_s) <= LONGEST_EXPIRY_S
    }
}

/// The table. 16 bytes a slot.
#[derive(Debug, Clone)]
pub struct Direct {
    place: Place,
    log2_slots: u32,
    expiry_s: u16,
    entries: Vec<Entry>,
}

impl Direct {
    /// An empty table of `2^log2_slots` slots, 1 to 2^28. A rule holds for `expiry_s`, 1 to [`LONGEST_EXPIRY_S`]. What is more is taken for the
    /// most, what is less for the least.
    pub fn new(place: Place, log2_slots: u32, expiry_s: u16) -> Self {
        let log2_slots = log2_slots.clamp(1, 28);
        Direct {
            place,
            log2_slots,
            expiry_s: expiry_s.clamp(1, LONGEST_EXPIRY_S),
            entries: vec![Entry::default(); 1 << log2_slots],
        }
    }

    /// The slot of a tuple.
    pub fn slot(&self, tuple: &Tuple4) -> usize {
        self.place.slot(tuple, self.log2_slots)
    }
}

impl RuleTable for Direct {
    fn slots(&self) -> usize {
        self.entries.len()
    }

    fn packet(&mut self, tuple: &Tuple4, now_s: u32) -> Seen {
        let (slot, key) = (self.slot(tuple), tuple.bytes(Order::Network));
        let entry = &mut self.entries[slot];
        if entry.is_over(now_s) {
            *entry = Entry::default();
        }
        if entry.valid && entry.status == Status::Filtered {
            return if entry.key == key { Seen::Filtered } else { Seen::NoRoom };
        }
        *entry = Entry { key, status: Status::Suspected, valid: true, expires_s: 0 };
        Seen::Suspected
    }

    fn confirm(&mut self, tuple: &Tuple4, now_s: u32) -> bool {
        let (slot, key) = (self.slot(tuple), tuple.bytes(Order::Network));
        let entry = &mut self.entries[slot];
        if !entry.valid || entry.key != key || entry.status != Status::Suspected {
            return false;
        }
        entry.status = Status::Filtered;
        entry.expires_s = (now_s as u16).wrapping_add(self.expiry_s);
        true
    }
}
