//! `kv_state` and `kv_slots` in memory: what may be admitted, and what is void.

use super::layout::{PENDING, SEQ_ONE, hash, state};
use super::values::Token;
use std::sync::atomic::Ordering::SeqCst;
use tidemill_bpf::Mapped;

/// Nanoseconds of `CLOCK_MONOTONIC`: the programs' clock.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) map: Mapped,
    pub(super) slots: Mapped,
    pub(super) slot_mask: u64,
}

impl State {
    pub(super) fn get(&self, word: usize) -> u64 {
        self.map.words()[word].load(SeqCst)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.map.words()[word].store(value, SeqCst);
    }

    pub(super) fn add(&self, word: usize, more: u64) {
        self.map.words()[word].fetch_add(more, SeqCst);
    }

    /// At least so much from now on.
    pub(super) fn raise(&self, word: usize, value: u64) {
        self.map.words()[word].fetch_max(value, SeqCst);
    }

    /// Nothing of a word is left, if it is still what it was.
    pub(super) fn clear(&self, word: usize, was: u64) -> bool {
        self.map.words()[word].compare_exchange(was, 0, SeqCst, SeqCst).is_ok()
    }

    /// Whether all that may change everything is executed, of what the programs have seen.
    pub(super) fn is_settled(&self) -> bool {
        self.get(state::HOLD) == 0 && self.get(state::NOT_BEFORE) <= now_ns()
    }

    /// Everything is void.
    pub(super) fn void(&self) {
        self.add(state::EPOCH, 1);
    }

    /// A value is about to be stored under this epoch: what is asked for is looked up again. First this, then the value.
    pub(super) fn keeps(&self, epoch: u64) {
        self.raise(state::KEPT, epoch);
    }

    /// Nothing is admitted for a while: how memcached works now is not known.
    pub(super) fn unsettle(&self) {
        self.set(state::NOT_BEFORE, now_ns() + self.get(state::SETTLE));
    }

    /// Takes back a mutation that waited.
    pub(super) fn release(&self, slot: u32) {
        if let Some(word) = self.slots.words().get(2 * slot as usize) {
            word.fetch_sub(1, SeqCst);
        }
    }

    /// As [`State::release`], of one of which it is not known that it was executed.
    pub(super) fn release_unsettled(&self, slot: u32) {
        if let Some(time) = self.slots.words().get(2 * slot as usize + 1) {
            // It may be waiting for something that takes longer.
            time.fetch_max(now_ns() + self.get(state::SETTLE), SeqCst);
        }
        self.release(slot);
    }

    /// Whether a value that is asked for from now on may be admitted, and under what.
    pub(super) fn token(&self, key: &[u8]) -> Option<Token> {
        // The epoch first, then the slot, then all the rest: whoever changes them goes the other way.
        let epoch = self.get(state::EPOCH);
        let hash = hash(self.get(state::SEED), key);
        let slot = (hash & self.slot_mask) as usize;
        let word = self.slots.words()[2 * slot].load(SeqCst);
        let slot_time = self.slots.words()[2 * slot + 1].load(SeqCst);
        let asked_ns = now_ns();
        let waits = [slot_time, self.get(state::NOT_BEFORE), self.get(state::FLUSH_UNTIL)];
        let is_quiet = word & PENDING == 0
            && waits.iter().all(|until| *until <= asked_ns)
            && asked_ns < self.get(state::SURE)
            && self.get(state::BLIND) == 0
            && self.get(state::HOLD) == 0;
        is_quiet.then_some(Token { hash, slot, word, epoch, asked_ns })
    }

    /// Whether what was stored with these is void.
    pub(super) fn is_void(&self, hash: u64, word: u64, epoch: u64) -> bool {
        let slot = (hash & self.slot_mask) as usize;
        let now = self.slots.words()[2 * slot].load(SeqCst);
        epoch != self.get(state::EPOCH) || (now ^ word) & !PENDING != 0
    }

    /// Mutations seen under a slot, for tests and reports.
    pub(super) fn slot(&self, key: &[u8]) -> (u64, u64) {
        let slot = (hash(self.get(state::SEED), key) & self.slot_mask) as usize;
        let word = self.slots.words()[2 * slot].load(SeqCst);
        (word / SEQ_ONE, word & PENDING)
    }
}
