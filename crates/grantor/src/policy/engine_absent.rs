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

    /// Answers.
    pub fn decide(&mut self, _: u64, _: &[Question], _: &mut Vec<Answer>) {
        match *self {}
    }
}
