//! How many missed keys the programs tell: as many as are worth a question.

use super::cache::Cache;
use super::layout::state;

/// Missed keys that are worth a question, on each processor in 4.2 ms, or a round where that takes longer (`missed` in bpf/kv_get.h), while answers can be admitted and while they cannot.
pub(super) const EVENTS: [u64; 2] = [80, 1];

/// So many say whether they can be admitted, while few are told.
const ENOUGH: u64 = 10;

/// Keys that were told, and of them those that were admitted, since it was last known whether that is in vain: what was before says nothing of the time behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) keys: u64,
    pub(super) admitted: u64,
    /// Hardly one could be admitted then: there is no such value, or nothing may be admitted.
    pub(super) is_vain: bool,
}

impl Told {
    /// Whether it is in vain from now on and was not before: that shows at once.
    pub(super) fn round(&mut self) -> bool {
        let is_new = !self.is_vain && self.is_in_vain();
        if is_new {
            self.begin(true);
        }
        is_new
    }

    /// At a look it is known again.
    fn look(&mut self) {
        // Where few are told it takes longer to know that they can be admitted again.
        if self.is_vain && self.keys < ENOUGH {
            return;
        }
        self.begin(if self.is_vain { self.admitted * 10 < self.keys } else { self.is_in_vain() });
    }

    fn is_in_vain(&self) -> bool {
        self.keys > 50 && self.admitted * 10 < self.keys
    }

    fn begin(&mut self, is_vain: bool) {
        *self = Told { is_vain, ..Told::default() };
    }
}

impl Cache {
    /// Fewer keys are told while hardly one can be admitted.
    pub(super) fn budget(&mut self) {
        self.told.look();
        self.tell_budget();
    }

    pub(super) fn tell_budget(&self) {
        let word = self.state.get(state::PORT) & 0xffff_ffff;
        self.state.set(state::PORT, word | EVENTS[usize::from(self.told.is_vain)] << 32);
    }
}

#[cfg(test)]
mod tests {
    use super::Told;

    #[test]
    fn what_was_told_before_it_was_in_vain_does_not_count_behind() {
        let mut told = Told { keys: 50, ..Told::default() };
        assert!(!told.round(), "too few");
        told.keys = 1000;
        assert!(told.round() && told.is_vain);
        assert!(!told.round(), "it is known");
        // Few say nothing yet; ten do, and it is their own share that does.
        (told.keys, told.admitted) = (9, 9);
        told.look();
        assert!(told.is_vain);
        (told.keys, told.admitted) = (10, 1);
        told.look();
        assert_eq!(told, Told::default());
        // At a look all begins anew.
        (told.keys, told.admitted) = (1000, 100);
        told.look();
        assert_eq!(told, Told::default());
        (told.keys, told.admitted) = (51, 5);
        told.look();
        assert_eq!(told, Told { is_vain: true, ..Told::default() });
    }
}
