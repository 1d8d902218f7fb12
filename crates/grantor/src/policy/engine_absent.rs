//! Stands for the engine in a program without Lua: none can be made, and who tries is told what to do.

use crate::answer::Answer;
use crate::error::PolicyError;
use crate::policy::{Policy, Surroundings};
use crate::question::Question;
use std::sync::Arc;

/// There is none.
pub enum Engine {}

impl Engine {
    /// Says what to do.
    ///
    /// # Errors
    /// Always [`PolicyError::NoLua`].
    pub fn new(_: &Arc<Policy>, _: &Surroundings, _: u64) -> Result<Engine, PolicyError> {
        Err(PolicyError::NoLua)
    }

    /// The policy.
    pub fn policy(&self) -> &Arc<Policy> {
        match *self {}
    }

    /// What it lives in.
    pub fn around(&self) -> &Surroundings {
        match *self {}
    }

    /// How many questions the last batch had.
    pub(crate) fn distinct(&self) -> usize {
        match *self {}
    }

    /// How long making a state took.
    pub(crate) fn made_ns(&self) -> u64 {
        match *self {}
    }

    /// Whether there is no state.
    pub(crate) fn is_spent(&self) -> bool {
        match *self {}
    }

    /// Whether making one has failed.
    pub(crate) fn is_unmade(&self) -> bool {
        match *self {}
    }

    /// For how long nobody can be asked.
    pub(crate) fn rests_ns(&self, _: u64) -> u64 {
        match *self {}
    }

    /// Takes another one's place.
    pub(crate) fn succeed(&self, _: &Engine) {
        match *self {}
    }

    /// Answers.
    pub fn decide(&mut self, _: u64, _: &[Question], _: &mut Vec<Answer>) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PolicySection;

    #[test]
    fn who_wants_an_engine_is_told_what_to_do() {
        let section = PolicySection { name: Some("web".into()), ..PolicySection::default() };
        let policy = Policy::open(&section, std::path::Path::new(".")).unwrap();
        let around = Surroundings::new(Arc::new(|| 0), Arc::new(|_: &str| ()), 0);
        let error = Engine::new(&policy, &around, 0).map(drop).unwrap_err().to_string();
        assert!(error.contains("build it with the feature `lua`"), "{error}");
    }
}
