//! Where packets go that flow specifications redirect: by the table of a VRF, or by the way to an address.
//!
//! ```text
//!  flowspec4 --(redirected)--> ip4-forward, ip4-neighbor      what is behind ip4-lookup; not what is before it: no gate, no NAT on the way in
//!                                 |              |
//!                                 '----lookup----'--> flowspec4-return --(redirected)--> ip4-forward, ip4-neighbor
//!                                                            '--(others)--> ip4-lookup
//! ```
//!
//! A packet whose next hop has been replaced, or whose neighbor has answered, is looked up again, and so is one that NAT has kept on the way out, until its first fragment came or another worker
//! took it over (`flowspec4-return-nat`): by the number in it ([`Packet::steer`]) where it was redirected
//! to. One that would leave by the interface that it came in by has been redirected before, and comes back: it is routed like any other.

use crate::flowspec::rules::Rules;
use crate::header::InHeader;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::each;
use tidemill_ip::{Kind, NextHops};
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::Reader;
use tidemill_lpm::{Address, Fib};
use tidemill_wire::flow::flow_key;

/// What a worker looks packets up in: the table of each VRF, and what labels mean.
pub type Ways<A> = (Vec<View<Arc<dyn Fib<A>>>>, View<NextHops>);

/// The same by the worker's number.
pub type MakeWays<A> = Box<dyn Fn(usize) -> Ways<A> + Send + Sync>;

/// Where a redirect leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The table of the VRF of this number.
    Vrf(u16),
    /// The way to an address, in the VRF without a name.
    Address(IpAddr),
}

/// The ways of one worker.
pub(crate) struct Redirects<A: Address> {
    fibs: Vec<View<Arc<dyn Fib<A>>>>,
    hops: View<NextHops>,
}

impl<A: InHeader + Address> Redirects<A> {
    pub(crate) fn new((fibs, hops): Ways<A>) -> Self {
        Redirects { fibs, hops }
    }

    /// What becomes of a packet with this target, by the numbers of the outputs for what is sent, and for what waits for a neighbor. `None`: it would leave by the
    /// interface that it came in by.
    pub(crate) fn send(
        &self,
        reader: &Reader,
        target: Target,
        packet: &mut Packet,
        [forward, neighbor]: [u8; 2],
    ) -> Option<Verdict> {
        let (vrf, key) = match target {
            Target::Vrf(vrf) => {
                let at = usize::from(packet.l3) + A::SOURCE + A::BYTES;
                (vrf, A::read(packet.data().get(at..).unwrap_or_default()))
            }
            Target::Address(IpAddr::V4(address)) => (0, A::read(&address.octets())),
            Target::Address(IpAddr::V6(address)) => (0, A::read(&address.octets())),
        };
        let Some(fib) = self.fibs.get(usize::from(vrf)) else {
            return Some(Verdict::Drop(DropReason::FlowspecRedirect));
        };
        let hops = self.hops.get(reader);
        let mut label = fib.get(reader).lookup(key).0;
        let mut hop = hops.get(label);
        if hop.kind == Kind::Group {
            // What nothing is known of lies behind the end of all.
            label = hops.member(hop, flow_hash(packet)).unwrap_or(u32::MAX);
            hop = hops.get(label);
        }
        let output = match (hop.kind, target) {
            (Kind::Forward, _) => forward,
            (Kind::Unresolved, _) | (Kind::Glean, Target::Vrf(_)) => neighbor,
            // Neighbors are asked for by a packet's own destination. This one is asked for as a gateway is, and has not answered.
            (Kind::Glean, Target::Address(_)) => {
                return Some(Verdict::Drop(DropReason::NeighborUnresolved));
            }
            (Kind::Blackhole, _) => return Some(Verdict::Drop(DropReason::Blackhole)),
            _ => return Some(Verdict::Drop(DropReason::FlowspecRedirect)),
        };
        if hop.interface == packet.port {
            return None;
        }
        packet.label = label;
        Some(Verdict::Next(output))
    }
}

/// A hash by which a flow keeps its way among several. Without ports the protocol does not count: not every fragment of an IPv6 packet tells it.
#[cold]
fn flow_hash(packet: &Packet) -> u32 {
    let mut hasher = DefaultHasher::new();
    let key = flow_key(packet.data(), usize::from(packet.l3));
    key.map(|key| (key.addresses, key.ports, key.ports.map(|_| key.protocol))).hash(&mut hasher);
    hasher.finish() as u32
}

/// The node of what comes back.
pub(crate) struct Return<A: Address> {
    pub(crate) rules: View<Rules>,
    pub(crate) redirects: Redirects<A>,
}

/// Its outputs.
pub(crate) const RETURN: [&str; 3] = ["lookup", "forward", "neighbor"];
/// The numbers of those that redirected packets go by.
pub(crate) const ON: [u8; 2] = [1, 2];

impl<A: InHeader + Address> Node for Return<A> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let reader = cx.reader;
        let rules = self.rules.get(reader);
        each(burst, verdicts, |packet| {
            let Some(number) = packet.steer() else { return Verdict::Next(0) };
            let target = rules.target(number);
            let sent = target.and_then(|target| self.redirects.send(reader, target, packet, ON));
            // Its flow specification is gone. What it has passed by, a gate or NAT, lies behind it.
            sent.unwrap_or(Verdict::Drop(DropReason::FlowspecRedirect))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::flow_hash;
    use tidemill_burst::{Memory, Packet};

    #[test]
    fn fragments_of_an_ipv6_packet_go_by_one_way() {
        let mut pool = Memory::new(3, 2048).unwrap().pool(3).unwrap();
        let mut fragment = |source: u8, field: u16, body: &[u8]| {
            let mut packet = vec![0x60, 0, 0, 0, 0, 8 + body.len() as u8, 44, 64];
            packet.extend([source; 16]);
            packet.extend([0x20; 16]);
            packet.extend([60, 0]);
            packet.extend(field.to_be_bytes());
            packet.extend([0, 0, 0, 9]);
            packet.extend(body);
            pool.packet(&packet).unwrap()
        };
        // The first one tells that UDP is behind the destination options.
        let first = fragment(0x21, 1, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 5, 0, 6, 0, 16, 0, 0]);
        let (later, other) = (fragment(0x21, 16, &[3; 8]), fragment(0x22, 16, &[3; 8]));
        let hashes: [u32; 3] = [&first, &later, &other].map(flow_hash);
        assert!(hashes[0] == hashes[1] && hashes[1] != hashes[2], "{hashes:?}");
        [first, later, other].into_iter().for_each(|packet: Packet| pool.free(packet));
    }
}
