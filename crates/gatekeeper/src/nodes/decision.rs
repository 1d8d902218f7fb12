//! `decision`: what Grantors have decided, among the packets to ourselves. UDP to port 45232 is taken; the rest goes on to `local`.
//!
//! With `decisions = "interoperable"`, and from a Grantor's port 41120, by an interface that is not in front, with a right checksum: the
//! decisions in it are given to all workers' flows, and the packet is consumed. A decision counts from those Grantors only that the
//! policy of the flow's destination names now; others are counted as refused. Anything else to that port is dropped as `decision-refused` or
//! `decision-malformed`: nobody else listens there, and an ICMP error would tell a stranger what is here.
//!
//! Outputs: `local`.

use crate::config::DecisionFormat;
use crate::counters::{Board, Counter, Counters};
use crate::decision::wire::{DESTINATION_PORT, SOURCE_PORT};
use crate::decision::{Decision, Decisions, Verdict as Said};
use crate::mail::{Letter, Post};
use crate::policy::Views;
use crate::settings::Settings;
use std::net::IpAddr;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::flow::Addresses;
use tidemill_wire::{Protocol, ipv4, ipv6, ipv6_ext, udp};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["local"];

/// The node.
pub struct DecisionNode {
    pub(crate) settings: View<Settings>,
    pub(crate) policies4: Views<u32>,
    pub(crate) policies6: Views<u128>,
    pub(crate) post4: Post<u32>,
    pub(crate) post6: Post<u128>,
    pub(crate) counters: Counters,
    pub(crate) board: Board,
}

/// A UDP datagram to the port of decisions.
struct Datagram<'a> {
    source: IpAddr,
    source_port: u16,
    /// Whether its checksum is there and right.
    sound: bool,
    payload: &'a [u8],
}

/// What of a packet concerns us; fragments do not.
fn datagram(ip: &[u8]) -> Option<Datagram<'_>> {
    let (pseudo, at, protocol) = if ipv4::version(ip) == 6 {
        ipv6::check(ip).ok()?;
        let walk = ipv6_ext::walk(ip).ok().filter(|walk| !walk.is_fragment())?;
        let packet = ipv6::Packet::new_unchecked(ip);
        (Pseudo::V6 { src: packet.src(), dst: packet.dst() }, walk.upper_offset, walk.upper)
    } else {
        ipv4::check(ip).ok().filter(|()| !ipv4::is_fragment(ip))?;
        let packet = ipv4::Packet::new_unchecked(ip);
        (Pseudo::V4 { src: packet.src(), dst: packet.dst() }, ipv4::header_len(ip), ipv4::protocol(ip))
    };
    if protocol != Protocol::UDP {
        return None;
    }
    let datagram = ip.get(at..)?;
    let udp = udp::Packet::new_checked(datagram).ok().filter(|udp| udp.dst_port() == DESTINATION_PORT)?;
    let source = match pseudo {
        Pseudo::V4 { src, .. } => src.into(),
        Pseudo::V6 { src, .. } => src.into(),
    };
    let sound = udp.checksum() != 0 && udp.checksum_ok(&pseudo);
    let payload = datagram.get(udp::HEADER_LEN..usize::from(udp.len()))?;
    Some(Datagram { source, source_port: udp.src_port(), sound, payload })
}

impl DecisionNode {
    /// Whether this Grantor is one of those that the policy of the flow's destination names.
    fn decides(&self, cx: &Context<'_>, grantor: IpAddr, flow: &Addresses) -> bool {
        match (*flow, grantor) {
            (Addresses::V4 { dst, .. }, IpAddr::V4(grantor)) => {
                let (fib, choices) = (self.policies4.0.get(cx.reader), self.policies4.1.get(cx.reader));
                choices.decides(fib.lookup(dst).0, grantor.into())
            }
            (Addresses::V6 { dst, .. }, IpAddr::V6(grantor)) => {
                let (fib, choices) = (self.policies6.0.get(cx.reader), self.policies6.1.get(cx.reader));
                choices.decides(fib.lookup(dst).0, grantor.into())
            }
            _ => false,
        }
    }

    fn take(&mut self, cx: &Context<'_>, packet: &Packet) -> Verdict {
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        let Some(datagram) = datagram(ip) else { return Verdict::Next(0) };
        let settings = self.settings.get(cx.reader);
        let open = settings.decisions == DecisionFormat::Interoperable;
        if !open || settings.is_front(packet.port) || datagram.source_port != SOURCE_PORT {
            self.counters.one(Counter::DecisionsRefused);
            return Verdict::Drop(DropReason::DecisionRefused);
        }
        if !datagram.sound {
            self.counters.one(Counter::DecisionsMalformed);
            return Verdict::Drop(DropReason::DecisionMalformed);
        }
        let (mut taken, mut refused, mut whole) = (0, 0, true);
        for decision in Decisions::new(datagram.payload) {
            match decision {
                Ok(decision) if self.decides(cx, datagram.source, &decision.flow) => {
                    self.tell(&decision);
                    taken += 1;
                }
                Ok(_) => refused += 1,
                Err(_) => whole = false,
            }
        }
        self.counters.add(Counter::DecisionsRefused, refused);
        if !whole {
            self.counters.one(Counter::DecisionsMalformed);
            return Verdict::Drop(DropReason::DecisionMalformed);
        }
        if taken == 0 && refused > 0 {
            return Verdict::Drop(DropReason::DecisionRefused);
        }
        Verdict::Consume
    }

    /// Hands a decision to the workers. Where there is only one, its flow is made if it is not there: there was no room for it, or it
    /// was forgotten meanwhile.
    fn tell(&mut self, decision: &Decision) {
        self.counters.one(Counter::Decisions);
        if matches!(decision.verdict, Said::Bpf { .. }) {
            self.counters.one(Counter::DecisionsUnsupported);
            return;
        }
        let verdict = decision.verdict;
        let lost = match decision.flow {
            Addresses::V4 { src: source, dst: destination } => {
                let make = self.post4.is_alone();
                self.post4.send(&Letter { source, destination, verdict, make })
            }
            Addresses::V6 { src: source, dst: destination } => {
                let make = self.post6.is_alone();
                self.post6.send(&Letter { source, destination, verdict, make })
            }
        };
        self.counters.add(Counter::MailLost, lost);
    }
}

impl Node for DecisionNode {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let before = self.counters.get(Counter::Decisions);
        for (packet, verdict) in burst.iter().zip(verdicts) {
            *verdict = self.take(cx, packet);
        }
        if self.counters.get(Counter::Decisions) != before {
            self.post4.wake();
            self.post6.wake();
        }
        // Few packets come here: their numbers are shown at once.
        self.board.show(&self.counters);
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        self.board.show(&self.counters);
    }
}
