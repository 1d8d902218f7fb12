//! What a burst is judged with: packets as the gate sees them, the time, and what holds at it.

use crate::config::{Driver, Order};
use crate::policy::Choices;
use std::sync::atomic::{Ordering, fence};
use tidemill_lpm::Fib;

/// A packet from the front, as far as the gate sees it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<A> {
    /// Its source.
    pub source: A,
    /// Its destination.
    pub destination: A,
    /// Bytes of the IP packet.
    pub bytes: u32,
}

/// The policies that hold.
#[derive(Clone, Copy)]
pub struct Rules<'a, A> {
    /// Their table.
    pub policies: &'a dyn Fib<A>,
    /// What its numbers mean: asked after they have been looked up, so that it is no older than they are.
    pub choices: &'a dyn Fn() -> &'a Choices<A>,
}

impl<'a, A: tidemill_lpm::Address> Rules<'a, A> {
    /// The number of a destination's policy, and what numbers mean.
    pub(crate) fn of(&self, destination: A) -> (u32, &'a Choices<A>) {
        let number = self.policies.lookup(destination).0;
        (number, self.choices())
    }

    /// What numbers mean that have been looked up before.
    pub(crate) fn choices(&self) -> &'a Choices<A> {
        fence(Ordering::Acquire);
        (self.choices)()
    }
}

/// The time, and what holds at it.
pub struct Now<'a, A> {
    /// Nanoseconds.
    pub ns: u64,
    /// The policies.
    pub rules: Rules<'a, A>,
    /// In which order to look up.
    pub order: Order,
    /// How to look up flows.
    pub driver: Driver,
    /// How long what was granted passes after it has been revoked, until the Grantor has answered.
    pub grace_ns: u64,
    /// Packets by their places in the burst, from their IP headers on: for programs.
    pub ip: &'a dyn Fn(usize) -> &'a [u8],
}
