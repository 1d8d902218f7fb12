//! Sessions as other threads find them.

use super::{FROM_OUTSIDE, TIME_SHIFT};
use crate::nat::ip::{About, Endpoint, Family, Proto};
use crate::nat::tcp::Tcp;
use tidemill_flow::key::Key;

/// A session, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown<A> {
    /// The mapping's number.
    pub mapping: u32,
    /// What it is about.
    pub about: About<A>,
    /// With whom.
    pub remote: Endpoint<A>,
    /// When it ends unless something comes, milliseconds since the epoch.
    pub until_ms: u64,
    /// Where a TCP connection is.
    pub tcp: Option<&'static str>,
    /// Whether it was begun from outside.
    pub from_outside: bool,
    /// Packets from inside and from outside.
    pub packets: (u32, u32),
}

/// A session as a reader finds it.
pub fn show<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    key: &Key<S>,
    state: &[u64; T],
) -> Shown<A> {
    let about = A::about(key, state);
    Shown {
        mapping: A::of_state(state).0,
        about,
        remote: A::of_session(key).2,
        until_ms: state[0] >> TIME_SHIFT,
        tcp: (about.proto == Proto::Tcp).then(|| Tcp(state[0] as u8).name()),
        from_outside: state[0] & FROM_OUTSIDE != 0,
        packets: ((state[1] >> 32) as u32, state[1] as u32),
    }
}
