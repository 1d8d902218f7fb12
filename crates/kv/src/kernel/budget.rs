//! How many missed keys the programs tell: as many as are worth a question.

use super::cache::Cache;
use super::layout::state;

/// Missed keys that are worth a question, on each processor in 4.2 ms, or a round where that takes longer (`missed` in bpf/kv_get.h), while answers can be admitted and while they cannot.
pub(super) const EVENTS: [u64; 2] = [80, 1];

/// So many say whether they can be admitted, while few are told.
const ENOUGH: u64 = 10;

impl Cache {
    /// Fewer keys are told while hardly one can be admitted: there is none such value, nothing may be admitted now.
    pub(super) fn budget(&mut self) {
        let (told, admitted) = self.since();
        // Where few are told it takes longer to know that they can be admitted again.
        if self.is_vain && told < ENOUGH {
            return;
        }
        self.set_vain(if self.is_vain { admitted * 10 < told } else { self.is_told_in_vain() });
        self.before = (self.told, self.daemon.admitted);
    }

    /// Keys that were told, and admitted, since it was last known whether that is in vain.
    fn since(&self) -> (u64, u64) {
        (self.told - self.before.0, self.daemon.admitted - self.before.1)
    }

    /// Whether hardly a key that was told since the last look could be admitted.
    pub(super) fn is_told_in_vain(&self) -> bool {
        let (told, admitted) = self.since();
        told > 50 && admitted * 10 < told
    }

    pub(super) fn set_vain(&mut self, is_vain: bool) {
        self.is_vain = is_vain;
        let word = self.state.get(state::PORT) & 0xffff_ffff;
        self.state.set(state::PORT, word | EVENTS[usize::from(self.is_vain)] << 32);
    }
}
