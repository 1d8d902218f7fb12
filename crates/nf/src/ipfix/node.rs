//! The node `ipfix`: in front of all others, where ports' packets come in. It counts each in its flow and sends it on, unchanged, where its port leads.

use crate::ipfix::control::{IpfixControl, Seat};
use crate::ipfix::counters::Counter;
use crate::tap::Ways;
use tidemill_burst::{Packet, Pool};
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};

/// The node's name.
pub const NAME: &str = "ipfix";
/// How often a part of the tables is swept.
const SWEEP_NS: u64 = 10_000_000;
/// In how many such steps a sweep comes round.
const STEPS: usize = 100;

struct Tap {
    ways: Ways,
    /// None if this graph's tables are with another engine already.
    seat: Option<Box<Seat>>,
    swept_ns: u64,
}

/// Puts the node into a graph.
pub fn splice(graph: &mut GraphBuilder, control: &IpfixControl) {
    let seats = control.seats();
    graph.front(NAME, move |worker, ways| {
        Box::new(Tap { ways: Ways::new(ways), seat: seats(worker), swept_ns: 0 })
    });
}

impl Seat {
    fn sweep(&mut self, now_ms: u64, steps: usize) {
        let Seat { meter, queue, .. } = self;
        meter.sweep(now_ms, steps, |record| queue.push(record).is_ok());
        self.show();
    }

    fn show(&mut self) {
        let (outsiders, flows, waited) =
            (self.meter.outsiders(), self.meter.len() as u64, self.meter.waited());
        for (counter, value) in [
            (Counter::NotIp, outsiders.not_ip),
            (Counter::Malformed, outsiders.malformed),
            (Counter::FlowsFull, outsiders.full),
            (Counter::FlowsFullBytes, outsiders.full_bytes),
            (Counter::Flows, flows),
            (Counter::Waited, waited),
        ] {
            self.counters.set(counter, value);
        }
        self.board.show(&self.counters);
    }
}

impl Node for Tap {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        self.ways.send_on(burst, verdicts);
        let Some(seat) = &mut self.seat else { return };
        seat.meter.count(cx.now_ns / 1_000_000, burst.iter().map(|packet| (packet.data(), packet.port)));
        seat.counters.add(Counter::Packets, burst.len() as u64);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let Some(seat) = &mut self.seat else { return };
        if cx.now_ns.saturating_sub(self.swept_ns) >= SWEEP_NS {
            // As many steps as time has passed for, at most once round.
            let steps = (cx.now_ns - self.swept_ns) / SWEEP_NS;
            self.swept_ns = cx.now_ns;
            seat.sweep(cx.now_ns / 1_000_000, STEPS.div_ceil(steps.min(STEPS as u64) as usize));
        }
        if !seat.meter.is_empty() {
            cx.wake_at(cx.now_ns + 10 * SWEEP_NS);
        }
    }

    fn surrender(&mut self, _: &mut Pool) {
        if let Some(seat) = &mut self.seat {
            let mut rest = seat.rest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            seat.meter.drain(|record| rest.push(record));
            drop(rest);
            seat.show();
        }
    }
}
