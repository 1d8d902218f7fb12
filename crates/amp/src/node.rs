//! `mitigate`: the bridge's one node. What comes from one side leaves by the other, byte for byte, but for what is kept away: `amplification`.
//!
//! Outputs: `inside`, `outside`.

use crate::control::MitigatorControl;
use crate::mitigator::{Mitigator, Side};
use crate::parse::{Parsed, parse};
use crate::settings::Settings;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_graph::{Context, GraphBuilder, Node, Verdict, Waker};
use tidemill_lookup::publish::View;

/// The outputs' names, in order.
pub(crate) const OUTPUTS: [&str; 2] = ["inside", "outside"];

/// The node's name.
pub(crate) const NAME: &str = "mitigate";

/// The node, one for each worker.
struct Mitigate {
    settings: View<Settings>,
    /// The number of the outside port.
    outside: u16,
    /// None if this graph's tables are with another engine already: then it is a bridge only.
    mitigator: Option<Box<Mitigator>>,
}

impl Mitigate {
    #[inline(always)]
    fn side(packet: &Packet, outside: u16) -> Side {
        if packet.port == outside { Side::Outside } else { Side::Inside }
    }
}

impl Node for Mitigate {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let outside = self.outside;
        for (packet, verdict) in burst.iter().zip(verdicts.iter_mut()) {
            if packet.port != outside {
                *verdict = Verdict::Next(1);
            }
        }
        let Some(mitigator) = &mut self.mitigator else { return };
        let settings = self.settings.get(cx.reader);
        mitigator.decide(
            settings,
            cx.now_ns,
            burst,
            |packet| (Self::side(packet, outside), packet.data()),
            |at| {
                if let Some(verdict) = verdicts.get_mut(at) {
                    *verdict = Verdict::Drop(DropReason::Amplification);
                }
            },
        );
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if let Some(mitigator) = &mut self.mitigator {
            mitigator.tick(self.settings.get(cx.reader), cx.now_ns);
            if mitigator.has_mail() {
                // Whoever finds nothing else to do goes on reading, and does not sleep.
                cx.wake_at(cx.now_ns);
            }
        }
    }

    fn wake_with(&mut self, waker: &Waker) {
        if let Some(mitigator) = &self.mitigator {
            mitigator.wake_with(waker);
        }
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        // The last burst's numbers, too.
        if let Some(mitigator) = &mut self.mitigator {
            mitigator.show();
        }
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        let side = Self::side(packet, self.outside);
        match (parse(packet.data()), side) {
            (Parsed::Udp { tuple, .. }, Side::Outside) => Some(format!("outside to inside, {tuple}")),
            (Parsed::Udp { tuple, .. }, Side::Inside) => Some(format!("inside to outside, {tuple}")),
            (Parsed::Unreachable { .. }, Side::Inside) => Some("port unreachable from inside".into()),
            (Parsed::Later(_), Side::Outside) => Some("later fragment".into()),
            _ => None,
        }
    }
}

/// The bridge between the two ports that `control` was made with. For one engine: its workers' tables are handed over when their nodes are made.
pub fn graph(control: &MitigatorControl) -> GraphBuilder {
    let ports = control.ports();
    let (outside, inside) = (control.outside(), control.inside());
    let mut graph = GraphBuilder::new(ports.iter().cloned());
    let (view, seats) = (control.view(), control.seats());
    let number = ports.iter().position(|port| port == outside).unwrap_or_default() as u16;
    graph.node(NAME, OUTPUTS, move |worker| {
        Box::new(Mitigate { settings: view.clone(), outside: number, mitigator: seats.take(worker) })
    });
    graph.input(outside, NAME).input(inside, NAME);
    graph.edge(NAME, "inside", &format!("port:{inside}")).edge(NAME, "outside", &format!("port:{outside}"));
    graph
}
