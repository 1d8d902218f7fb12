//! `ip4-lookup`, `ip6-lookup`: where a packet goes.
//!
//! Gathers the destinations of the whole burst, looks them up in one batch (one for each VRF that the burst's interfaces
//! belong to), and acts on what the label means:
//!
//! * forward, or local; the kernel's own packets are done with, it has got a copy.
//! * A group of equal-cost next hops: one of them, by the flow's hash (addresses, protocol, ports; of fragments without
//!   ports, so that they stay together).
//! * A next hop without a MAC address: to the neighbor node.
//! * An end: `blackhole` silently; `no-route`, `unreachable`, `prohibited`, `next-hop-unknown`, `interface-down` by way
//!   of the ICMP error node; a directed broadcast on one of our links is `broadcast` (RFC 2644). Packets of our own
//!   that have nowhere to go are dropped under the same reasons, without an error.
//!
//! Sets the packet's `label` to the FIB's answer, or the group's member. Outputs: `forward`, `local`, `error`,
//! `neighbor`.

use std::sync::Arc;
use tidemill_burst::{BURST, DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::{AHEAD, error};
use tidemill_ip::{Adjacency, Kind, NextHops, Settings};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::publish::View;
use tidemill_lpm::{Address, Fib, Label};
use tidemill_wire::flow::{Addresses, FlowKey, flow_key};
use tidemill_wire::{ipv4, ipv6};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 4] = ["forward", "local", "error", "neighbor"];

const LOCAL: u8 = 1;
const ERROR: u8 = 2;
const NEIGHBOR: u8 = 3;

/// An address family, as far as this node sees it.
pub trait Keyed: Address {
    /// The destination address of the packet whose network header `header` is.
    fn destination(header: &[u8]) -> Self;
}

impl Keyed for u32 {
    #[inline(always)]
    fn destination(header: &[u8]) -> u32 {
        ipv4::dst_u32(header)
    }
}

impl Keyed for u128 {
    #[inline(always)]
    fn destination(header: &[u8]) -> u128 {
        ipv6::dst_u128(header)
    }
}

/// The node.
pub struct Lookup<A: Keyed> {
    settings: View<Settings>,
    /// By VRF.
    fibs: Vec<View<Arc<dyn Fib<A>>>>,
    hops: View<NextHops>,
    keys: Box<[A; BURST]>,
    labels: Box<[Label; BURST]>,
    /// With several VRFs: which one each packet belongs to, and where in the burst the keys of one come from.
    vrfs: Box<[u16; BURST]>,
    places: Box<[u16; BURST]>,
}

impl<A: Keyed> Lookup<A> {
    /// A node for one worker; `fibs` by VRF, at least one.
    pub fn new(settings: View<Settings>, fibs: Vec<View<Arc<dyn Fib<A>>>>, hops: View<NextHops>) -> Self {
        Lookup {
            settings,
            fibs,
            hops,
            keys: Box::new([A::MIN; BURST]),
            labels: Box::new([Label::NONE; BURST]),
            vrfs: Box::new([0; BURST]),
            places: Box::new([0; BURST]),
        }
    }

    /// Looks the burst up in each VRF's table that it has packets of.
    fn lookup_vrfs(&mut self, cx: &Context<'_>, burst: &[Packet]) {
        let settings = self.settings.get(cx.reader);
        let count = burst.len();
        for (vrf, packet) in self.vrfs.iter_mut().zip(burst) {
            *vrf = settings.interfaces.get(packet.port).map_or(0, |interface| interface.vrf);
        }
        let mut labels = [Label::NONE; BURST];
        let mut keys = [A::MIN; BURST];
        for (vrf, fib) in self.fibs.iter().enumerate() {
            let mut found = 0;
            for at in (0..count).filter(|&at| usize::from(self.vrfs[at]) == vrf) {
                (keys[found], self.places[found]) = (self.keys[at], at as u16);
                found += 1;
            }
            if found > 0 {
                fib.get(cx.reader).lookup_batch(&keys[..found], &mut labels[..found]);
                for (&at, label) in self.places[..found].iter().zip(labels) {
                    self.labels[usize::from(at)] = label;
                }
            }
        }
    }
}

impl<A: Keyed> Node for Lookup<A> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let count = burst.len().min(BURST);
        for (i, key) in self.keys[..count].iter_mut().enumerate() {
            if let Some(next) = burst.get(i + AHEAD) {
                prefetch_read(next.data_ptr());
            }
            *key = A::destination(burst[i].data().get(usize::from(burst[i].l3)..).unwrap_or_default());
        }
        match &self.fibs[..] {
            [fib] => fib.get(cx.reader).lookup_batch(&self.keys[..count], &mut self.labels[..count]),
            _ => self.lookup_vrfs(cx, &burst[..count]),
        }
        let hops = self.hops.get(cx.reader);
        // Adjacencies of many next hops lie in no near cache: all are asked for before the first is looked at.
        for label in &self.labels[..count] {
            prefetch_read(std::ptr::from_ref(hops.get(label.0)));
        }
        for ((packet, verdict), label) in burst.iter_mut().zip(verdicts).zip(&self.labels[..count]) {
            packet.label = label.0;
            let hop = hops.get(label.0);
            // The verdict is `Next(0)`, forward, already.
            if hop.kind != Kind::Forward {
                *verdict = other(packet, hops, hop);
            }
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        Some(format!("fib label {}", packet.label))
    }
}

fn other(packet: &mut Packet, hops: &NextHops, hop: &Adjacency) -> Verdict {
    if hop.kind == Kind::Group
        && let Some(member) = hops.member(hop, flow_hash(packet))
    {
        packet.label = member;
        return match hops.get(member).kind {
            Kind::Forward => Verdict::Next(0),
            kind => ended(packet, kind),
        };
    }
    ended(packet, hop.kind)
}

#[cold]
fn ended(packet: &mut Packet, kind: Kind) -> Verdict {
    let reason = match kind {
        Kind::Forward => return Verdict::Next(0),
        Kind::Local => return Verdict::Next(LOCAL),
        Kind::Glean | Kind::Unresolved => return Verdict::Next(NEIGHBOR),
        Kind::Kernel => return Verdict::Consume,
        Kind::Blackhole => return Verdict::Drop(DropReason::Blackhole),
        Kind::Broadcast => return Verdict::Drop(DropReason::Broadcast),
        Kind::NoRoute => DropReason::NoRoute,
        Kind::Unreachable => DropReason::Unreachable,
        Kind::Prohibited => DropReason::Prohibited,
        Kind::Down => DropReason::InterfaceDown,
        Kind::Unknown | Kind::Group => DropReason::NextHopUnknown,
    };
    error(packet, reason, 0, ERROR)
}

/// A hash of the packet's flow, the low bits of which depend on all of it. The same on every worker, whatever the port's
/// RSS says.
#[inline]
fn flow_hash(packet: &Packet) -> u32 {
    match flow_key(packet.data(), usize::from(packet.l3)) {
        Some(key) => mix(&key),
        None => packet.hash,
    }
}

/// Multiply and fold (wyhash's step) over the flow's words.
fn mix(key: &FlowKey) -> u32 {
    fn fold(a: u64, b: u64) -> u64 {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    }
    const SECRETS: [u64; 3] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3];
    let (source, destination) = match key.addresses {
        Addresses::V4 { src, dst } => (u64::from(src), u64::from(dst)),
        Addresses::V6 { src, dst } => (
            fold(src as u64 ^ SECRETS[0], (src >> 64) as u64 ^ SECRETS[1]),
            fold(dst as u64 ^ SECRETS[0], (dst >> 64) as u64 ^ SECRETS[1]),
        ),
    };
    // Not every fragment of an IPv6 packet tells the protocol behind the headers that were cut.
    let rest = key
        .ports
        .map_or(0, |(from, to)| u64::from(from) << 32 | u64::from(to) << 16 | u64::from(key.protocol.0));
    let hash = fold(source ^ SECRETS[0], destination ^ SECRETS[1]);
    let hash = fold(hash ^ SECRETS[2], rest ^ SECRETS[0]);
    (hash >> 32) as u32 ^ hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_wire::Protocol;

    #[test]
    fn flows_that_differ_in_a_port_are_spread_evenly() {
        let mut buckets = [0; 16];
        for n in 0..16_000 {
            let addresses = Addresses::V4 { src: 0x0a00_0001, dst: 0x0a00_0002 };
            let key = FlowKey { addresses, protocol: Protocol::UDP, ports: Some((1024 + n, 53)) };
            buckets[mix(&key) as usize % 16] += 1;
        }
        assert!(buckets.iter().all(|count| (850..1150).contains(count)), "{buckets:?}");
    }

    #[test]
    fn fragments_of_an_ipv6_packet_go_together() {
        let fragment = |field: u16, body: &[u8]| {
            let mut packet = vec![0x60, 0, 0, 0, 0, 8 + body.len() as u8, 44, 64];
            packet.extend([0x20; 32]);
            packet.extend([60, 0]);
            packet.extend(field.to_be_bytes());
            packet.extend([0, 0, 0, 9]);
            packet.extend(body);
            flow_key(&packet, 0).unwrap()
        };
        // The first one tells that UDP is behind the destination options.
        let first = fragment(1, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 5, 0, 6, 0, 16, 0, 0]);
        let later = fragment(16, &[3; 8]);
        assert_ne!(first.protocol, later.protocol);
        assert_eq!(mix(&first), mix(&later));
    }
}
