//! `kvcache`: the bridge's one node. What comes from one side leaves by the other, byte for byte, but for gets that are answered, what is for us, and what
//! must not go on: `kv-half-command`, `kv-out-of-order`.
//!
//! Outputs: `servers`, `clients`.

use crate::cache::{Cache, Fate, Side};
use crate::control::{KvcacheControl, Shared};
use std::sync::Arc;
use tidemill_burst::{Packet, Pool};
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};

/// The outputs' names, in order.
const OUTPUTS: [&str; 2] = ["servers", "clients"];
const SERVERS: u8 = 0;
const CLIENTS: u8 = 1;

/// The node's name.
const NAME: &str = "kvcache";

struct Bridge {
    /// The number of the clients' port.
    clients: u16,
    shared: Arc<Shared>,
    /// None if this graph's cache is with another engine already: then it is a bridge only.
    cache: Option<Box<Cache>>,
}

impl Node for Bridge {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let (side, on) =
                if packet.port == self.clients { (Side::Clients, SERVERS) } else { (Side::Servers, CLIENTS) };
            *verdict = Verdict::Next(on);
            let Some(cache) = &mut self.cache else { continue };
            let is_one = packet.wire_len() == 0 && packet.merged().is_none();
            let room = packet.len() + packet.tailroom();
            match cache.frame(side, packet.data(), is_one, room, cx.now_ns) {
                Fate::Pass => {}
                Fate::Consume => *verdict = Verdict::Consume,
                Fate::Drop(reason) => *verdict = Verdict::Drop(reason),
                Fate::Answer => {
                    let made = cache.made();
                    // There is room: it was asked for.
                    packet.set_len(made.len().min(room));
                    packet.data_mut().copy_from_slice(&made[..made.len().min(room)]);
                    packet.clear_checked();
                    packet.set_own();
                    *verdict = Verdict::Next(CLIENTS);
                }
                Fate::Ask => {
                    // Without memory for it the question is lost, as any datagram may be.
                    if let Some(mut question) = cx.pool.packet(cache.made()) {
                        question.copy_notes(packet);
                        question.set_own();
                        cx.emit(SERVERS, question);
                    }
                }
            }
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if let Some(cache) = &mut self.cache {
            cache.turn(cx.now_ns);
            cache.show();
            self.shared.serve(cache);
        }
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        // The last burst's numbers, too.
        if let Some(cache) = &mut self.cache {
            cache.show();
        }
    }
}

/// The bridge between the two ports that `control` was made with. For one engine: its cache is handed over when its node is made.
pub fn graph(control: &KvcacheControl) -> GraphBuilder {
    let ports = control.ports();
    let (clients, servers) = (control.clients(), control.servers());
    let mut graph = GraphBuilder::new(ports.iter().cloned());
    let shared = control.shared();
    let number = ports.iter().position(|port| port == clients).unwrap_or_default() as u16;
    graph.node(NAME, OUTPUTS, move |_worker| {
        Box::new(Bridge { clients: number, cache: shared.take(), shared: shared.clone() })
    });
    graph.input(clients, NAME).input(servers, NAME);
    graph.edge(NAME, "servers", &format!("port:{servers}"));
    graph.edge(NAME, "clients", &format!("port:{clients}"));
    graph
}
