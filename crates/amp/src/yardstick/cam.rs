//! The baseline: content-addressable memory, where a tuple finds its entry wherever it is (Tokusashi 2019, 5.4.4). What it looks
//! up in one cycle we look up in a map; of interest is only that it is small.

use super::{RuleTable, Seen, Status, Tuple4};
use std::collections::{HashMap, VecDeque};

/// The memory.
#[derive(Debug, Clone)]
pub struct Cam {
    slots: usize,
    expiry_s: u32,
    entries: HashMap<Tuple4, (Status, u32)>,
    /// The suspected ones, oldest first.
    suspects: VecDeque<Tuple4>,
    /// Rules in the order of their end.
    rules: VecDeque<(u32, Tuple4)>,
}

impl Cam {
    /// Entries of the paper's.
    pub const PAPER: usize = 1024;

    /// An empty one. A rule holds for `expiry_s`.
    pub fn new(slots: usize, expiry_s: u32) -> Self {
        Cam {
            slots,
            expiry_s,
            entries: HashMap::with_capacity(slots),
            suspects: VecDeque::new(),
            rules: VecDeque::new(),
        }
    }

    fn expire(&mut self, now_s: u32) {
        while let Some((end, tuple)) = self.rules.front().copied() {
            if now_s < end {
                break;
            }
            self.rules.pop_front();
            self.entries.remove(&tuple);
        }
    }

    /// Makes room for one, if there is something that may go.
    fn make_room(&mut self) -> bool {
        while self.entries.len() >= self.slots {
            let Some(oldest) = self.suspects.pop_front() else { return false };
            self.entries.remove(&oldest);
        }
        true
    }
}

impl RuleTable for Cam {
    fn slots(&self) -> usize {
        self.slots
    }

    fn packet(&mut self, tuple: &Tuple4, now_s: u32) -> Seen {
        self.expire(now_s);
        match self.entries.get(tuple).map(|(status, _)| *status) {
            Some(Status::Filtered) => Seen::Filtered,
            Some(Status::Suspected) => Seen::Suspected,
            None if self.make_room() => {
                self.entries.insert(*tuple, (Status::Suspected, 0));
                self.suspects.push_back(*tuple);
                Seen::Suspected
            }
            None => Seen::NoRoom,
        }
    }

    fn confirm(&mut self, tuple: &Tuple4, now_s: u32) -> bool {
        self.expire(now_s);
        let end = now_s.saturating_add(self.expiry_s);
        match self.entries.get_mut(tuple) {
            Some(entry) if entry.0 == Status::Suspected => {
                *entry = (Status::Filtered, end);
                self.suspects.retain(|suspect| suspect != tuple);
                self.rules.push_back((end, *tuple));
                true
            }
            _ => false,
        }
    }
}
