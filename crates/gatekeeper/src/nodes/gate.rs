//! `gate4`, `gate6`: what becomes of packets from the front. What comes in by other interfaces goes on as it is.
//!
//! * Its source is one of our own addresses: `martian-source`. Nobody in front has them, and a Grantor that we know by another address would take it for ours.
//! * The policy of its destination says route, or it is to one of our own addresses: on, like any router's.
//! * It says drop: `policy-drop`.
//! * It is to a Grantor itself, in the form of what we send there: `tunnel-forged`. Grantors believe an outer packet by its addresses, and a stranger can forge these.
//! * What goes on from the front loses its code point, unless `keep_dscp` says otherwise: behind the gate code points are ours (`queue:PORT` goes by them), and a
//!   stranger would take the class of requests or of what was granted.
//! * A Grantor decides: what the flow's state says ([`crate::gate`]). Requests go to the solicitor, granted packets to be encapsulated, both
//!   with a [`Tag`](crate::Tag) in their label; what is granted directly goes on. `flow-declined`, `flow-over-rate`.
//!
//! Outputs: `lookup`, `solicitor`, `encapsulate`.

use crate::family::Paired;
use crate::gate::{Fate, Now, RECLAIM_BURST, Rules, Seen};
use crate::policy::Choices;
use crate::seat::Seat;
use crate::settings::Settings;
use crate::tag::UNPLACED;
use std::sync::Arc;
use tidemill_burst::{BURST, DropReason, Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::nodes::AHEAD;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::publish::View;
use tidemill_lpm::Fib;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 3] = ["lookup", "solicitor", "encapsulate"];

const LOOKUP: u8 = 0;
const SOLICITOR: u8 = 1;
const ENCAPSULATE: u8 = 2;

/// The node.
pub struct GateNode<A: Paired<W>, const W: usize> {
    settings: View<Settings>,
    policies: View<Arc<dyn Fib<A>>>,
    choices: View<Choices<A>>,
    /// None if this graph's tables are with another engine already: then it is a router only.
    seat: Option<Box<Seat<A, W>>>,
    seen: Box<[Seen<A>; BURST]>,
    fates: Box<[Fate; BURST]>,
    places: Box<[u16; BURST]>,
}

impl<A: Paired<W>, const W: usize> GateNode<A, W> {
    pub(crate) fn new(
        settings: View<Settings>,
        policies: View<Arc<dyn Fib<A>>>,
        choices: View<Choices<A>>,
        seat: Option<Box<Seat<A, W>>>,
    ) -> Self {
        let seen = Seen { source: A::MIN, destination: A::MIN, bytes: 0 };
        GateNode {
            settings,
            policies,
            choices,
            seat,
            seen: Box::new([seen; BURST]),
            fates: Box::new([Fate::Route; BURST]),
            places: Box::new([0; BURST]),
        }
    }
}

impl<A: Paired<W>, const W: usize> Node for GateNode<A, W> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let Some(seat) = &mut self.seat else { return };
        seat.gate.begin();
        let settings = self.settings.get(cx.reader);
        let mut count = 0;
        for at in 0..burst.len().min(BURST) {
            if let Some(next) = burst.get(at + AHEAD) {
                prefetch_read(next.data_ptr());
            }
            let packet = &burst[at];
            if !settings.is_front(packet.port) || packet.is_own() {
                continue;
            }
            let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
            let (source, destination) = A::pair(ip);
            let seen = Seen { source, destination, bytes: ip.len() as u32 };
            if A::own(settings).has(source) {
                seat.gate.refuse_ours(&mut seat.counters, &seen);
                verdicts[at] = Verdict::Drop(DropReason::MartianSource);
                continue;
            }
            self.seen[count] = seen;
            self.places[count] = at as u16;
            count += 1;
        }
        let (reader, view) = (cx.reader, &self.choices);
        let choices = || view.get(reader);
        let (packets, places) = (&*burst, &self.places[..count]);
        let ip = |at: usize| {
            let packet = places.get(at).and_then(|place| packets.get(usize::from(*place)));
            packet.and_then(|packet| packet.data().get(usize::from(packet.l3)..)).unwrap_or_default()
        };
        let policies = &**self.policies.get(reader);
        let now = Now {
            ns: cx.now_ns,
            rules: Rules { policies, choices: &choices },
            order: settings.order,
            driver: settings.driver,
            grace_ns: settings.grace_ns,
            ip: &ip,
        };
        let (seen, fates) = (&self.seen[..count], &mut self.fates[..count]);
        seat.gate.decide(&now, &mut seat.counters, seen, fates);
        for (fate, at) in fates.iter().zip(&self.places[..count]) {
            let at = usize::from(*at);
            verdicts[at] = match *fate {
                Fate::Route => {
                    let l3 = usize::from(burst[at].l3);
                    if !settings.keep_dscp
                        && let Some(header) = burst[at].data_mut().get_mut(l3..)
                    {
                        A::clear_dscp(header);
                    }
                    Verdict::Next(LOOKUP)
                }
                Fate::Request(tag) => {
                    burst[at].label = tag.label();
                    Verdict::Next(SOLICITOR)
                }
                Fate::Unplaced(tag) => {
                    burst[at].label = tag.label() | UNPLACED;
                    Verdict::Next(SOLICITOR)
                }
                Fate::Forged => Verdict::Drop(DropReason::TunnelForged),
                Fate::Granted(tag) => {
                    burst[at].label = tag.label();
                    Verdict::Next(ENCAPSULATE)
                }
                Fate::Declined => Verdict::Drop(DropReason::FlowDeclined),
                Fate::OverRate => Verdict::Drop(DropReason::FlowOverRate),
                Fate::PolicyDrop => Verdict::Drop(DropReason::PolicyDrop),
            };
        }
        let choices = || view.get(reader);
        let rules = Rules { policies, choices: &choices };
        seat.reclaim(cx.now_ns, settings.idle_ns, &rules, RECLAIM_BURST);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if let Some(seat) = &mut self.seat {
            let (reader, view) = (cx.reader, &self.choices);
            let choices = || view.get(reader);
            let rules = Rules { policies: &**self.policies.get(reader), choices: &choices };
            if let Some(at_ns) = seat.tick(cx.now_ns, self.settings.get(reader).idle_ns, &rules) {
                cx.wake_at(at_ns);
            }
        }
    }

    fn wake_with(&mut self, waker: &tidemill_graph::Waker) {
        if let Some(seat) = &self.seat {
            seat.mail.wake_with(waker);
        }
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        // The last burst's numbers, too.
        if let Some(seat) = &mut self.seat {
            seat.show();
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        let ip = packet.data().get(usize::from(packet.l3)..)?;
        if ip.len() < A::HEADER_LEN {
            return None;
        }
        let (source, destination) = A::pair(ip);
        Some(format!("flow {} {}", source.address(), destination.address()))
    }
}

#[cfg(test)]
mod tests;
