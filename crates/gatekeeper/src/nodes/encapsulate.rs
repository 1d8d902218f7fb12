//! `encapsulate4`, `encapsulate6`: a packet for a Grantor gets its outer header ([`tunnel`](crate::tunnel)) and its next hop.
//!
//! ```text
//! label = Tag: Grantor's number, DSCP --> Endpoint --> Grantor's address --FIB, once per burst--> label --> ip4-forward, ip6-forward
//! ```
//!
//! * Where the Grantor's address leads: a next hop; of several, one by the flow's hash, so that a flow keeps its way. One whose MAC
//!   address is unknown is asked for by the neighbor node, to which the outer packet goes.
//! * TTL or hop limit of 0 or 1: `ttl-expired`, with an ICMP error. Too long for the next link with its outer header: `too-big` with
//!   an ICMP error that names what is left, or cut into parts ([`long`](crate::tunnel::long)); `fragment-failed`. Both errors are
//!   about the inner packet, as it came.
//! * Too long for a link further on, as far as ICMP errors have told us ([`path`](crate::tunnel::path)): the same. What was sent is noted there, so
//!   that such an error can be held against it.
//! * No way to the Grantor: `no-route`, `unreachable`, `blackhole`, `prohibited`, `broadcast`, `interface-down` as the router names
//!   it; `next-hop-unknown` where there is no such Grantor, or its address is ours. Nobody is told: the fault is ours or the
//!   Grantor's, not the destination's, which the sender asked for; and in a flood from invented sources we would answer every one.
//! * No headroom for the header: `frame-too-small`. A packet that was merged of TCP segments: `offload-invalid`. It cannot come here:
//!   the gate stands in front of `tcp4-coalesce`. In one outer header it would be one packet, longer than any link takes, that nobody
//!   can cut into segments any more.
//!
//! The outer packet is our own: its TTL is not lowered again, and nobody is told when it gets lost further on. It belongs to the
//! interface that it leaves by, so that whoever looks it up again (a neighbor has answered) does so in the Grantors' VRF.
//!
//! Costs: the lines of the frame that hold both headers, an entry of the endpoints and of the next hops. Work per packet is bounded;
//! cutting is off the fast path. No allocation.
//!
//! Outputs: `forward`, `error`, `neighbor`.

use crate::tag::Tag;
use crate::tunnel::long::{How, Outcome};
use crate::tunnel::{Endpoint, Endpoints, Outer, encapsulate};
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::{AHEAD, error};
use tidemill_ip::{Adjacency, Kind, NextHops};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::publish::View;
use tidemill_lpm::Fib;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 3] = ["forward", "error", "neighbor"];

const FORWARD: u8 = 0;
const ERROR: u8 = 1;
const NEIGHBOR: u8 = 2;

/// Grantors whose way is remembered during a burst; two that share a place are looked up in turn.
const PLACES: usize = 64;

/// The node of one family.
pub struct Encapsulate<A: Outer> {
    endpoints: View<Endpoints<A>>,
    fib: View<Arc<dyn Fib<A>>>,
    hops: View<NextHops>,
    /// By the Grantor's number.
    ways: [Way; PLACES],
    burst: u64,
    /// Identification of the next outer packet that is cut.
    ident: u32,
}

/// The FIB's answer for a Grantor, as of a burst.
#[derive(Debug, Clone, Copy, Default)]
struct Way {
    burst: u64,
    grantor: u16,
    label: u32,
    /// What the way takes, beyond the next link.
    mtu: u16,
    /// Packets that are longer are noted.
    bar: u16,
}

impl<A: Outer> Encapsulate<A> {
    /// A node for the worker of this number; `fib` is that of the VRF that the Grantors are in.
    pub fn new(
        worker: usize,
        endpoints: View<Endpoints<A>>,
        fib: View<Arc<dyn Fib<A>>>,
        hops: View<NextHops>,
    ) -> Self {
        // Multiples of the golden ratio lie far apart, however many workers there are.
        let ident = (worker as u32).wrapping_mul(0x9e37_79b9);
        Encapsulate { endpoints, fib, hops, ways: [Way::default(); PLACES], burst: 0, ident }
    }
}

impl<A: Outer> Node for Encapsulate<A> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let reader = cx.reader;
        let (endpoints, hops) = (self.endpoints.get(reader), self.hops.get(reader));
        let fib = self.fib.get(reader);
        self.burst += 1;
        for i in 0..burst.len().min(verdicts.len()) {
            if let Some(next) = burst.get(i + AHEAD) {
                // The outer header comes in front of the data, most often in the line before.
                prefetch_read(next.data_ptr());
                prefetch_read(next.data_ptr().wrapping_sub(A::HEADER_LEN));
            }
            let packet = &mut burst[i];
            let tag = Tag::of(packet.label);
            let Some(endpoint) = endpoints.get(usize::from(tag.grantor)) else {
                verdicts[i] = Verdict::Drop(DropReason::NextHopUnknown);
                continue;
            };
            let way = &mut self.ways[usize::from(tag.grantor) % PLACES];
            if way.burst != self.burst || way.grantor != tag.grantor {
                let label = fib.lookup(endpoint.grantor()).0;
                let path = endpoint.path();
                let (mtu, bar) = (path.mtu(cx.now_ns), path.bar(cx.now_ns).max(A::LEAST_MTU));
                *way = Way { burst: self.burst, grantor: tag.grantor, label, mtu, bar };
            }
            let mut step = Step { cx: &mut *cx, hops, endpoint, way, ident: &mut self.ident };
            verdicts[i] = step.send(packet, tag.dscp);
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        let ip = packet.data().get(usize::from(packet.l3)..)?;
        // What went elsewhere is as it came.
        let header = packet.is_own().then(|| ip.get(..A::HEADER_LEN)).flatten()?;
        let (dscp, to) = A::read(header);
        Some(format!("in an outer packet to {}, dscp {dscp}, fib label {}", to.text(), packet.label))
    }
}

/// What one packet meets.
struct Step<'s, 'c, A: Outer> {
    cx: &'s mut Context<'c>,
    hops: &'s NextHops,
    endpoint: &'s Endpoint<A>,
    way: &'s mut Way,
    ident: &'s mut u32,
}

impl<A: Outer> Step<'_, '_, A> {
    #[inline(always)]
    fn send(&mut self, packet: &mut Packet, dscp: u8) -> Verdict {
        let (mut label, mut hop) = (self.way.label, self.hops.get(self.way.label));
        if hop.kind == Kind::Group {
            (label, hop) = member(self.hops, hop, flow_hash::<A>(packet));
        }
        let output = match hop.kind {
            Kind::Forward => FORWARD,
            Kind::Glean | Kind::Unresolved => NEIGHBOR,
            kind => return ended(kind),
        };
        if packet.merged().is_some() {
            return Verdict::Drop(DropReason::OffloadInvalid);
        }
        let long = (packet.len() + A::HEADER_LEN).saturating_sub(packet.l3.into());
        if long > usize::from(hop.mtu.min(self.way.mtu)) {
            return self.too_long(packet, dscp, label, hop, output);
        }
        match encapsulate(packet, self.endpoint, dscp) {
            Ok(()) => {
                if long > usize::from(self.way.bar) {
                    self.note(long as u16);
                }
                (packet.label, packet.port) = (label, hop.interface);
                Verdict::Next(output)
            }
            Err(reason) => refused(packet, reason),
        }
    }

    /// A packet this long has been sent.
    #[cold]
    fn note(&mut self, long: u16) {
        self.endpoint.path().note(self.cx.now_ns, long);
        self.way.bar = long;
    }

    #[cold]
    fn too_long(
        &mut self,
        packet: &mut Packet,
        dscp: u8,
        label: u32,
        hop: &Adjacency,
        output: u8,
    ) -> Verdict {
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        if A::hops(ip) <= 1 {
            return refused(packet, DropReason::TtlExpired);
        }
        packet.label = label;
        let mtu = hop.mtu.min(self.way.mtu);
        let mut how = How { hop, mtu, output, ident: self.ident };
        match A::too_long(self.cx, packet, self.endpoint, dscp, &mut how) {
            Outcome::Cut => {
                // Some parts are that long.
                if mtu > self.way.bar {
                    self.note(mtu);
                }
                Verdict::Consume
            }
            Outcome::TooBig(mtu) => error(packet, DropReason::TooBig, mtu, ERROR),
            Outcome::Failed => Verdict::Drop(DropReason::FragmentFailed),
        }
    }
}

/// A group's member for flows of this hash, and its adjacency, which is no group.
#[cold]
fn member<'a>(hops: &'a NextHops, group: &Adjacency, hash: u32) -> (u32, &'a Adjacency) {
    // Labels that nothing is known of go to the end of all.
    let label = hops.member(group, hash).unwrap_or(u32::MAX);
    (label, hops.get(label))
}

fn flow_hash<A: Outer>(packet: &Packet) -> u32 {
    A::flow_hash(packet.data().get(usize::from(packet.l3)..).unwrap_or_default())
}

/// The verdict where the way ends.
#[cold]
fn ended(kind: Kind) -> Verdict {
    Verdict::Drop(match kind {
        Kind::NoRoute => DropReason::NoRoute,
        Kind::Unreachable => DropReason::Unreachable,
        Kind::Blackhole => DropReason::Blackhole,
        Kind::Prohibited => DropReason::Prohibited,
        Kind::Broadcast => DropReason::Broadcast,
        Kind::Down => DropReason::InterfaceDown,
        _ => DropReason::NextHopUnknown,
    })
}

/// The verdict on a packet that cannot be put into another.
#[cold]
fn refused(packet: &mut Packet, reason: DropReason) -> Verdict {
    match reason {
        DropReason::TtlExpired => error(packet, reason, 0, ERROR),
        _ => Verdict::Drop(reason),
    }
}
