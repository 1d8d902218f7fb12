//! The node `assets`: in front of all others, where ports' packets come in. It looks at each and sends it on, unchanged, where its port leads.

use crate::assets::control::{AssetsControl, Seat};
use crate::assets::counters::Counter;
use crate::tap::Ways;
use tidemill_burst::Packet;
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};
use tidemill_ip::nodes::AHEAD;
use tidemill_lookup::prefetch::prefetch_read;

/// The node's name.
pub const NAME: &str = "assets";

struct Tap {
    ways: Ways,
    /// None of a worker that there should not be.
    seat: Option<Box<Seat>>,
}

/// Puts the node into a graph.
pub fn splice(graph: &mut GraphBuilder, control: &AssetsControl) {
    let seats = control.seats();
    graph.front(NAME, move |worker, ways| {
        Box::new(Tap { ways: Ways::new(ways), seat: seats(worker).map(Box::new) })
    });
}

impl Node for Tap {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        self.ways.send_on(burst, verdicts);
        let Some(seat) = &mut self.seat else { return };
        let Seat { watch, queue, counters, board } = &mut **seat;
        let now_s = (cx.now_ns / 1_000_000_000) as u32;
        for (at, packet) in burst.iter().enumerate() {
            if let Some(next) = burst.get(at + AHEAD) {
                prefetch_read(next.data_ptr());
            }
            watch.look(now_s, packet.data(), |observation| {
                let taken = queue.push(observation).is_ok();
                counters.one(if taken { Counter::Observations } else { Counter::Lost });
                taken
            });
        }
        counters.add(Counter::Packets, burst.len() as u64);
        counters.set(Counter::Malformed, watch.malformed());
        board.show(counters);
    }
}
