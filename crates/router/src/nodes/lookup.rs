//! `ip4-lookup`, `ip6-lookup`: where a packet goes.
//!
//! Gathers the destinations of the whole burst, looks them up in one batch, and acts on what the label means:
//! forward, local, or an end: `blackhole` silently; `no-route`, `unreachable`, `prohibited`, `next-hop-unknown`,
//! `neighbor-unresolved` by way of the ICMP error node; a directed broadcast on one of our links is `broadcast`
//! (RFC 2644). Packets of our own that have nowhere to go are dropped under the same reasons, without an error.
//!
//! Sets the packet's `label` to the FIB's answer. Outputs: `forward`, `local`, `error`.

use crate::icmp::{Cause, LOCAL_PORT};
use crate::next_hop::{Kind, NextHops};
use crate::nodes::AHEAD;
use std::sync::Arc;
use tidemill_burst::{BURST, DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::publish::View;
use tidemill_lpm::{Address, Fib, Label};
use tidemill_wire::{ipv4, ipv6};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 3] = ["forward", "local", "error"];

const LOCAL: u8 = 1;
const ERROR: u8 = 2;

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
    fib: View<Arc<dyn Fib<A>>>,
    hops: View<NextHops>,
    keys: Box<[A; BURST]>,
    labels: Box<[Label; BURST]>,
}

impl<A: Keyed> Lookup<A> {
    /// A node for one worker.
    pub fn new(fib: View<Arc<dyn Fib<A>>>, hops: View<NextHops>) -> Self {
        Lookup { fib, hops, keys: Box::new([A::MIN; BURST]), labels: Box::new([Label::NONE; BURST]) }
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
        let labels = &mut self.labels[..count];
        self.fib.get(cx.reader).lookup_batch(&self.keys[..count], labels);
        let hops = self.hops.get(cx.reader);
        for ((packet, verdict), label) in burst.iter_mut().zip(verdicts).zip(labels) {
            packet.label = label.0;
            let kind = hops.get(label.0).kind;
            // The verdict is `Next(0)`, forward, already.
            if kind != Kind::Forward {
                *verdict = ended(packet, kind);
            }
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        Some(format!("fib label {}", packet.label))
    }
}

#[cold]
fn ended(packet: &mut Packet, kind: Kind) -> Verdict {
    let reason = match kind {
        Kind::Forward => return Verdict::Next(0),
        Kind::Local => return Verdict::Next(LOCAL),
        Kind::Blackhole => return Verdict::Drop(DropReason::Blackhole),
        Kind::Broadcast => return Verdict::Drop(DropReason::Broadcast),
        Kind::NoRoute => DropReason::NoRoute,
        Kind::Unreachable => DropReason::Unreachable,
        Kind::Prohibited => DropReason::Prohibited,
        Kind::Unresolved => DropReason::NeighborUnresolved,
        Kind::Unknown => DropReason::NextHopUnknown,
    };
    error(packet, reason, 0, ERROR)
}

/// Hands a packet to the error node, or drops it if it is one of our own.
#[cold]
pub(super) fn error(packet: &mut Packet, reason: DropReason, mtu: u16, output: u8) -> Verdict {
    if packet.port == LOCAL_PORT {
        return Verdict::Drop(reason);
    }
    Cause::mark(packet, reason, mtu);
    Verdict::Next(output)
}
