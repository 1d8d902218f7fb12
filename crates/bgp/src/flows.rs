//! The flow specifications that peers have given, and what they ask for (RFC 8955, 7).

mod redirect;

use crate::attributes::Attributes;
use crate::flowspec::FlowSpec;
use crate::rib::PeerId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_feed::bgp::Family;

pub use crate::rib::Invalid;
pub use redirect::{Redirect, RouteTarget};

/// Whether a peer's flow specifications are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlowTrust {
    /// They are not asked for.
    #[default]
    Off,
    /// Those about destinations to which it has told the best route (RFC 8955, 6; RFC 9117).
    Validated,
    /// All of them: for who says where attacks are, and has no routes.
    Trusted,
}

/// Bytes or packets a second, 0 for none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(u32);

impl Rate {
    /// By its number. What is negative is 0 (RFC 8955, 7.1).
    pub fn new(per_s: f32) -> Self {
        Rate(if per_s < 0.0 { 0 } else { per_s.to_bits() })
    }

    /// The number; not a number, where the peer has told none.
    pub fn per_s(self) -> f32 {
        f32::from_bits(self.0)
    }
}

/// What becomes of the packets that a flow specification means. All that is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Actions {
    /// traffic-rate-bytes: bytes a second that pass.
    pub bytes: Option<Rate>,
    /// traffic-rate-packets: packets a second that pass.
    pub packets: Option<Rate>,
    /// traffic-marking: the DSCP that they get.
    pub mark: Option<u8>,
    /// traffic-action, bit 47: later flow specifications apply, too.
    pub goes_on: bool,
    /// traffic-action, bit 46: some are to be sampled.
    pub samples: bool,
    /// Where they are to go instead of where they are routed.
    pub redirect: Option<Redirect>,
}

impl Actions {
    /// What extended communities ask for, and those with IPv6 addresses; `hop` is the next hop that comes with the flow specifications. Of several rates
    /// of a kind the lowest.
    pub(crate) fn read(communities: &[[u8; 8]], six: &[[u8; 20]], hop: Option<IpAddr>) -> Self {
        let mut actions = Actions::default();
        for redirect in redirect::all(communities, six, hop) {
            actions.redirect = Some(match actions.redirect {
                Some(before) if before != redirect => Redirect::Several,
                _ => redirect,
            });
        }
        for [kind, sub, rest @ ..] in communities {
            let [_, _, value @ ..] = *rest;
            let rate = Rate::new(f32::from_be_bytes(value));
            let [.., low] = value;
            match (*kind, *sub) {
                (0x80, 0x06) => actions.bytes = lower(actions.bytes, rate),
                (0x80, 0x0c) => actions.packets = lower(actions.packets, rate),
                (0x80, 0x07) => {
                    // The only two bits that mean something are the last ones.
                    actions.goes_on |= low & 1 != 0;
                    actions.samples |= low & 2 != 0;
                }
                (0x80, 0x09) => actions.mark = Some(low & 0x3f),
                _ => {}
            }
        }
        actions
    }

    /// Whether no packet passes.
    pub fn drops(&self) -> bool {
        [self.bytes, self.packets].into_iter().flatten().any(|rate| rate.per_s() == 0.0)
    }
}

fn lower(one: Option<Rate>, other: Rate) -> Option<Rate> {
    match one {
        Some(one) if one.per_s() <= other.per_s() => Some(one),
        _ => Some(other),
    }
}

impl fmt::Display for Actions {
    /// `drop`, `1000 bytes/s, DSCP 8`, `redirect to 192.0.2.9`, `pass`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.drops() {
            parts.push("drop".to_owned());
        } else {
            parts.extend(self.bytes.map(|rate| format!("{} bytes/s", rate.per_s())));
            parts.extend(self.packets.map(|rate| format!("{} packets/s", rate.per_s())));
        }
        parts.extend(self.mark.map(|mark| format!("DSCP {mark}")));
        parts.extend(self.redirect.map(|redirect| redirect.to_string()));
        for (is, name) in [(self.samples, "sample"), (self.goes_on, "go on")] {
            parts.extend(is.then(|| name.to_owned()));
        }
        f.write_str(if parts.is_empty() { "pass" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// A flow specification as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFlow {
    /// Whose.
    pub peer: PeerId,
    /// What that peer is called.
    pub name: String,
    /// Which packets.
    pub spec: FlowSpec,
    /// What becomes of them.
    pub actions: Actions,
    /// Whether it is for the peer to give.
    pub verdict: Result<(), Invalid>,
    /// Of several peers' the one that counts; none does if it is nobody's to give.
    pub best: bool,
}

/// One that a peer has given.
pub(crate) struct Given {
    pub(crate) attributes: Arc<Attributes>,
    pub(crate) actions: Actions,
    /// It is from before the peer's restart.
    pub(crate) stale: bool,
}

/// All that peers have given.
#[derive(Default)]
pub(crate) struct Flows {
    list: BTreeMap<FlowSpec, BTreeMap<PeerId, Given>>,
    counts: BTreeMap<PeerId, usize>,
    revision: u64,
}

impl Flows {
    pub(crate) fn announce(&mut self, peer: PeerId, spec: FlowSpec, given: Given) {
        self.revision += 1;
        if self.list.entry(spec).or_default().insert(peer, given).is_none() {
            *self.counts.entry(peer).or_default() += 1;
        }
    }

    pub(crate) fn withdraw(&mut self, peer: PeerId, spec: &FlowSpec) {
        let Some(of_peers) = self.list.get_mut(spec) else { return };
        if of_peers.remove(&peer).is_none() {
            return;
        }
        if of_peers.is_empty() {
            self.list.remove(spec);
        }
        self.revision += 1;
        let count = self.counts.get_mut(&peer);
        count.into_iter().for_each(|count| *count = count.saturating_sub(1));
    }

    /// Has a peer's of one family wait for the peer to give them again.
    pub(crate) fn mark_stale(&mut self, peer: PeerId, family: Family) {
        let of_family = self.list.iter_mut().filter(|(spec, _)| spec.family() == family);
        of_family.filter_map(|(_, of_peers)| of_peers.get_mut(&peer)).for_each(|given| given.stale = true);
    }

    /// Withdraws a peer's of one family; if `stale`, those alone that it has not given again.
    pub(crate) fn withdraw_family(&mut self, peer: PeerId, family: Family, stale: bool) {
        let gone = |spec: &FlowSpec, given: &Given| spec.family() == family && (given.stale || !stale);
        let mut count = 0;
        self.list.retain(|spec, of_peers| {
            if of_peers.get(&peer).is_some_and(|given| gone(spec, given)) {
                of_peers.remove(&peer);
                count += 1;
            }
            !of_peers.is_empty()
        });
        if count > 0 {
            self.revision += 1;
            let left = self.counts.get_mut(&peer);
            left.into_iter().for_each(|left| *left = left.saturating_sub(count));
        }
    }

    /// Withdraws all of a peer's.
    pub(crate) fn withdraw_all(&mut self, peer: PeerId) {
        if self.counts.remove(&peer).unwrap_or(0) == 0 {
            return;
        }
        self.revision += 1;
        self.list.retain(|_, of_peers| {
            of_peers.remove(&peer);
            !of_peers.is_empty()
        });
    }

    pub(crate) fn count(&self, peer: PeerId) -> usize {
        self.counts.get(&peer).copied().unwrap_or(0)
    }

    /// Another one whenever something was given or withdrawn.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FlowSpec, &BTreeMap<PeerId, Given>)> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests;
