//! Asks a policy: merges what is alike, calls the script once per batch, puts the fail-safe where it fails, and makes a new state when the
//! old one is spent.

use crate::answer::{Answer, Failure};
use crate::error::PolicyError;
use crate::policy::state::{Kept, State};
use crate::policy::{Policy, Surroundings};
use crate::question::{Question, Signature, Signed};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// A state that was spent is made anew at once, unless the one before was made less than so many times as long ago as that took:
const REST: u64 = 10;
/// at least so long,
pub const REST_LEAST_NS: u64 = 10_000_000;
/// and at most. So states that fill again and again take no more than a part of the time, and a granted flow is asked about again within its grace.
pub const REST_MOST_NS: u64 = 1_000_000_000;

/// When a state was made anew last, and for how long there is no other from then on.
#[derive(Clone, Copy)]
struct Rebuilt {
    at_ns: u64,
    rest_ns: u64,
}

/// One worker's policy.
pub struct Engine {
    policy: Arc<Policy>,
    around: Surroundings,
    seed: u64,
    state: Option<State>,
    /// Those of its maps, or of the last state's, that outlive it.
    maps: Vec<Kept>,
    /// By what questions are told apart; kept while there is no state.
    signature: Signature,
    rebuilt: Option<Rebuilt>,
    /// How long making a state took in the last call.
    made_ns: u64,
    /// Why the last one could not be made.
    why: Option<PolicyError>,
    groups: HashMap<Signed, usize>,
    merged: Vec<Question>,
    /// Which merged question stands for each question of the batch.
    stands: Vec<usize>,
    results: Vec<Answer>,
}

impl Engine {
    /// Makes a state, and loads the policy's script into it.
    ///
    /// # Errors
    /// The script does not load: one line that begins with its name and line.
    pub fn new(policy: &Arc<Policy>, around: &Surroundings, worker: u64) -> Result<Engine, PolicyError> {
        let seed = around.seed.wrapping_add(worker.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let state = State::new(policy, around, seed, &[])?;
        let (signature, maps) = (state.signature(), state.maps().to_vec());
        Ok(Engine {
            policy: policy.clone(),
            around: around.clone(),
            seed,
            state: Some(state),
            maps,
            signature,
            rebuilt: None,
            made_ns: 0,
            why: None,
            groups: HashMap::with_capacity(policy.batch),
            merged: Vec::with_capacity(policy.batch),
            stands: Vec::with_capacity(policy.batch),
            results: Vec::with_capacity(policy.batch),
        })
    }

    /// The policy.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// What it lives in.
    pub fn around(&self) -> &Surroundings {
        &self.around
    }

    /// How many different questions the last batch had.
    pub(crate) fn distinct(&self) -> usize {
        self.merged.len()
    }

    /// Takes the place of another engine of a policy of the same name: what that one's script remembers in maps that it keeps goes over to those of the
    /// same names and sizes, at once.
    pub(crate) fn succeed(&self, before: &Engine) {
        if self.policy.name == before.policy.name {
            hand_over(&before.maps, &self.maps);
        }
    }

    /// How many nanoseconds of the last call went into making a state.
    pub(crate) fn made_ns(&self) -> u64 {
        self.made_ns
    }

    /// Whether the next call has to make a state.
    pub(crate) fn is_spent(&self) -> bool {
        self.state.is_none()
    }

    /// Whether the last try to make one has failed.
    pub(crate) fn is_unmade(&self) -> bool {
        self.why.is_some()
    }

    /// For how many more nanoseconds nobody can be asked: there is no state, and it is not time for the next.
    pub(crate) fn rests_ns(&self, now_ns: u64) -> u64 {
        let Some(last) = self.rebuilt.filter(|_| self.state.is_none()) else { return 0 };
        // Clocks may go back.
        last.rest_ns.saturating_sub(now_ns.abs_diff(last.at_ns))
    }

    /// Makes another state.
    fn rebuild(&mut self, now_ns: u64) {
        let (policy, around) = (&*self.policy, &self.around);
        around.counts.rebuilt();
        let began_ns = (around.clock)();
        let made = State::new(policy, around, self.seed, &self.maps);
        self.made_ns = (around.clock)().saturating_sub(began_ns);
        let rest_ns = self.made_ns.saturating_mul(REST).clamp(REST_LEAST_NS, REST_MOST_NS);
        self.rebuilt = Some(Rebuilt { at_ns: now_ns, rest_ns });
        self.why = None;
        match made {
            Ok(state) => {
                self.maps = state.maps().to_vec();
                self.state = Some(state);
            }
            Err(error) => self.why = Some(error),
        }
    }

    /// Appends to `answers` one answer for each question, in their order, whatever the script does. `now_ns` is what the script is told; how
    /// long it takes is measured by the clock.
    pub fn decide(&mut self, now_ns: u64, questions: &[Question], answers: &mut Vec<Answer>) {
        self.made_ns = 0;
        for batch in questions.chunks(self.policy.batch) {
            let before = answers.len();
            // Only a defect of ours, or of what was handed in, ends here: what scripts do wrong comes as an error.
            let decided = catch_unwind(AssertUnwindSafe(|| self.batch(now_ns, batch, answers)));
            if decided.is_err() {
                self.state = None;
                answers.truncate(before);
                answers.extend(batch.iter().map(|_| self.policy.fail_safe.answer(Failure::Panic)));
                let what = format!("{}: the engine failed; it is made anew", self.policy.name);
                self.around.failed(now_ns, Failure::Panic, batch.len(), &what, self.policy.log_every_ns);
            }
        }
    }

    fn batch(&mut self, now_ns: u64, questions: &[Question], answers: &mut Vec<Answer>) {
        if self.state.is_none() && self.rests_ns(now_ns) == 0 {
            self.rebuild(now_ns);
        }
        let policy = &*self.policy;
        let Some(state) = &mut self.state else {
            // Each time: of many lines in an interval one is told.
            let what = match &self.why {
                Some(why) => format!("waits for a new state: {why}"),
                None => format!("{}: waits for a new state", policy.name),
            };
            self.around.failed(now_ns, Failure::Resting, questions.len(), &what, policy.log_every_ns);
            self.around.counts.batch(questions.len(), 0, 0);
            answers.extend(questions.iter().map(|_| policy.fail_safe.answer(Failure::Resting)));
            return;
        };
        self.signature = state.signature();
        self.groups.clear();
        self.merged.clear();
        self.stands.clear();
        for question in questions {
            match self.groups.entry(self.signature.of(question)) {
                Entry::Occupied(there) => {
                    self.merged[*there.get()].add(question);
                    self.stands.push(*there.get());
                }
                Entry::Vacant(free) => {
                    free.insert(self.merged.len());
                    self.stands.push(self.merged.len());
                    self.merged.push(*question);
                }
            }
        }
        self.results.clear();
        self.results.resize(self.merged.len(), policy.fail_safe.answer(Failure::Error));
        let (results, stands, around) = (&mut self.results, &self.stands, &self.around);
        let went = state.ask(now_ns, &self.merged, policy, |at, result| {
            results[at] = result.unwrap_or_else(|fault| {
                let questions = stands.iter().filter(|stands| **stands == at).count();
                around.failed(now_ns, fault.failure, questions, &fault.message, policy.log_every_ns);
                policy.fail_safe.answer(fault.failure)
            });
        });
        if went.spent {
            self.state = None;
            // Where a question has failed that is told already. A script may come to this without.
            let what = format!(
                "{}: keeps more than three quarters of its memory: its state is made anew",
                policy.name
            );
            around.failed(now_ns, Failure::Memory, 0, &what, policy.log_every_ns);
        }
        let merged = questions.len() - self.merged.len();
        self.around.counts.batch(questions.len(), merged, went.calls);
        answers.extend(self.stands.iter().map(|at| self.results[*at]));
    }
}

/// What maps have goes over to those of the same names.
fn hand_over(from: &[Kept], to: &[Kept]) {
    for (name, map) in to {
        if let Some((_, before)) = from.iter().find(|(known, _)| known == name) {
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            map.lock().unwrap_or_else(PoisonError::into_inner).inherit(&mut before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Decision;
    use crate::config::PolicySection;
    use tidemill_wire::flow::Addresses;

    /// Making them is what takes long.
    #[test]
    fn another_state_has_the_same_maps() {
        let script = "local seen = expiring { entries = 64, idle = 60, keep = 'seen' }\n\
            local other = expiring { entries = 64, idle = 60 }\nfunction decide(q)\n\
            local n = seen:get(1) or 5 seen:set(1, n + 1) return granted { rate = n }\nend";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.lua"), script).unwrap();
        let section = PolicySection { file: Some("p.lua".into()), ..PolicySection::default() };
        let policy = Policy::open(&section, folder.path()).unwrap();
        let around = Surroundings::new(Arc::new(|| 0), Arc::new(|_: &str| ()), 1);
        let mut engine = Engine::new(&policy, &around, 0).unwrap();
        let first = engine.maps[0].1.clone();
        // As clocks are: since 1970.
        let began_ns: u64 = 1_700_000_000 * 1_000_000_000;
        for rate in 5..8 {
            let mut answers = Vec::new();
            let question = Question::about(Addresses::V4 { src: 1, dst: 2 });
            engine.decide(began_ns + u64::from(rate) * REST_MOST_NS, &[question], &mut answers);
            let decision = answers[0].decision;
            assert!(
                matches!(decision, Decision::Granted { rate_kib_s, .. } if rate_kib_s == rate),
                "{rate}: {decision:?}"
            );
            engine.state = None;
        }
        assert_eq!((around.counts.shown().rebuilt, engine.maps.len()), (2, 1));
        assert!(Arc::ptr_eq(&engine.maps[0].1, &first));
        // A reload begins with maps of its own, which it has to make.
        let fresh = Engine::new(engine.policy(), engine.around(), 0).unwrap();
        assert!(!Arc::ptr_eq(&fresh.maps[0].1, &first));
    }
}
