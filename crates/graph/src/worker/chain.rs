//! Workers in a row: where the graph is cut, packets go over to the next worker.
//!
//! ```text
//!  ports --rx--> worker 0: nodes before the cut --ring--> worker 1: from the cut on --ring--> worker 2 ...
//!  ports <--tx-- worker 0 <------------------------ring-- to send               <---ring-- to send
//! ```
//!
//! The rings are bounded and have one writer and one reader; a packet moves, its bytes stay where they are. What a worker
//! hands over it collects first and puts into the ring a burst at a time.
//!
//! * **Order**: a ring keeps it, so packets that take one path stay in order.
//! * **A full ring** holds back whoever fills it: as long as something it has collected finds no room, a worker takes no
//!   more from ports and from the ring before it. The first worker always takes what is to be sent, so there is no circle
//!   in which all wait. What nodes make beyond that (fragments, copies) is dropped as
//!   [`StageFull`](DropReason::StageFull) when the collection is full, too.
//! * **Time**, where it is the packets' own: a worker further down has that of what it has taken over. It stands still while the worker before
//!   may have more.
//! * **The books**: who hands a packet over counts it as passed, who takes it as taken; the difference is in rings.
//! * **The end**: a worker that has ended closes its ring, the one behind it goes on until that is empty, and the first
//!   sends until the last has closed.

use super::{QUEUE, Worker};
use crate::counters::Snapshot;
use crate::graph::{Graph, Target};
use rtrb::{Consumer, Producer, RingBuffer};
use std::time::Duration;
use tidemill_burst::{BURST, DropReason, Packet};
use tidemill_port::Waker;

/// Where a node's output leads from one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// To a node that this worker runs.
    Node(usize),
    /// To a port.
    Port(usize),
    /// To a node that a worker further down the chain runs.
    Pass(usize),
}

/// At which stage packets that reach a node have to be; 0 for nodes at which nothing is cut.
#[derive(Debug, Clone)]
pub(crate) struct Cuts(pub(crate) Vec<usize>);

impl Cuts {
    /// Where a target lies, seen from a worker of `stage`.
    pub(crate) fn edge(&self, stage: usize, target: Target) -> Edge {
        match target {
            Target::Node(n) if self.0[n] > stage => Edge::Pass(n),
            Target::Node(n) => Edge::Node(n),
            Target::Port(p) => Edge::Port(p),
        }
    }

    /// All outputs of all nodes, from a worker of `stage`.
    pub(crate) fn edges(&self, stage: usize, graph: &Graph) -> Vec<Vec<Edge>> {
        let of_node = |outputs: &Vec<(String, Target)>| {
            outputs.iter().map(|(_, target)| self.edge(stage, *target)).collect()
        };
        graph.outputs.iter().map(of_node).collect()
    }
}

impl Cuts {
    /// The nodes that packets can reach on a worker of `stage`.
    pub(crate) fn reach(&self, stage: usize, graph: &Graph) -> Vec<bool> {
        let begins = |n: &usize| self.0[*n] == stage && stage > 0;
        let mut todo: Vec<Target> = (0..self.0.len()).filter(begins).map(Target::Node).collect();
        if stage == 0 {
            todo.extend(graph.inputs.iter().flatten());
        }
        let mut seen = vec![false; self.0.len()];
        while let Some(target) = todo.pop() {
            if let Edge::Node(n) = self.edge(stage, target)
                && !std::mem::replace(&mut seen[n], true)
            {
                todo.extend(graph.outputs[n].iter().map(|(_, target)| *target));
            }
        }
        seen
    }
}

/// A packet on its way to another worker, with the number of the node or the port that it goes to.
pub(super) struct Passed {
    packet: Packet,
    to: u16,
}

/// The writing end of a ring.
struct Sender {
    ring: Producer<Passed>,
    /// Wakes the reader.
    waker: Waker,
    /// Not in the ring yet. Never grows: [`QUEUE`] packets at most.
    collected: Vec<Passed>,
}

impl Sender {
    /// Moves what has room into the ring; returns how many that were.
    fn flush(&mut self) -> u64 {
        let room = self.ring.slots().min(self.collected.len());
        if room == 0 {
            return 0;
        }
        let Ok(chunk) = self.ring.write_chunk_uninit(room) else { return 0 };
        let passed = chunk.fill_from_iter(self.collected.drain(..room));
        self.waker.wake();
        passed as u64
    }
}

/// A worker's rings to and from others; none if it runs to completion.
#[derive(Default)]
pub(crate) struct Links {
    /// To the next worker of the chain.
    next: Option<Sender>,
    /// To the first worker, which has the ports.
    back: Option<Sender>,
    /// From the worker before.
    from: Option<Consumer<Passed>>,
    /// The first worker's: what each of the others wants sent.
    returns: Vec<Consumer<Passed>>,
}

impl Links {
    /// The rings, for `size` packets each, of a chain whose workers have these wakers.
    pub(crate) fn chain(wakers: &[Waker], size: usize) -> Vec<Links> {
        let mut links: Vec<Links> = wakers.iter().map(|_| Links::default()).collect();
        let ring = |waker: &Waker| {
            let (ring, out) = RingBuffer::new(size.max(1));
            (Sender { ring, waker: waker.clone(), collected: Vec::with_capacity(QUEUE) }, out)
        };
        for stage in 1..wakers.len() {
            let (next, from) = ring(&wakers[stage]);
            let (back, returns) = ring(&wakers[0]);
            links[stage - 1].next = Some(next);
            links[stage].from = Some(from);
            links[stage].back = Some(back);
            links[0].returns.push(returns);
        }
        links
    }

    /// Whether another worker has the ports.
    pub(super) fn sends_back(&self) -> bool {
        self.back.is_some()
    }

    /// Whether packets go to another worker.
    pub(super) fn leads(&self) -> bool {
        self.next.is_some()
    }

    /// Whether packets come from another worker rather than from ports.
    pub(crate) fn follows(&self) -> bool {
        self.from.is_some()
    }

    /// Whether something that was collected found no room in its ring.
    #[inline]
    pub(super) fn blocked(&self) -> bool {
        self.next.iter().chain(&self.back).any(|sender| !sender.collected.is_empty())
    }

    /// The latest timestamp of the next `count` packets from the worker before.
    fn latest_ns(&mut self, count: usize) -> u64 {
        let Some(Ok(chunk)) = self.from.as_mut().map(|from| from.read_chunk(count)) else { return 0 };
        let (some, rest) = chunk.as_slices();
        some.iter().chain(rest).map(|passed| passed.packet.timestamp_ns()).max().unwrap_or(0)
    }

    /// Packets that were collected and are in no ring yet.
    pub(super) fn collected(&self) -> u64 {
        self.next.iter().chain(&self.back).map(|sender| sender.collected.len() as u64).sum()
    }
}

impl Worker {
    /// Hands a packet over to the worker that runs node `n`.
    #[inline]
    pub(super) fn pass(&mut self, n: usize, packet: Packet) {
        match &mut self.links.next {
            Some(next) if next.collected.len() < QUEUE => {
                next.collected.push(Passed { packet, to: n as u16 });
            }
            _ => self.drop_at(n, DropReason::StageFull, packet),
        }
    }

    /// Hands a packet over to the worker that has port `p`.
    #[inline]
    pub(super) fn pass_back(&mut self, p: usize, packet: Packet) {
        match &mut self.links.back {
            Some(back) if back.collected.len() < QUEUE => {
                back.collected.push(Passed { packet, to: p as u16 });
            }
            _ => self.refuse(p, DropReason::StageFull, packet),
        }
    }

    /// Puts what was collected into the rings, as far as they have room.
    #[inline]
    pub(super) fn flush_links(&mut self) {
        for sender in self.links.next.iter_mut().chain(&mut self.links.back) {
            if !sender.collected.is_empty() {
                self.counters.passed += sender.flush();
            }
        }
    }

    /// Takes a burst from the worker before. Whether there was one, and whether there may be more.
    pub(super) fn take_over(&mut self) -> (bool, bool) {
        let Some(from) = &self.links.from else { return (false, false) };
        // Before the packets: what was put in before the ring was closed must be seen.
        let closed = from.is_abandoned();
        let count = from.slots().min(BURST);
        if count > 0 && self.clock.follows_packets() {
            let now_ns = self.links.latest_ns(count);
            self.pass_time(now_ns);
        }
        let from = self.links.from.as_mut().filter(|_| count > 0);
        let Some(chunk) = from.and_then(|from| from.read_chunk(count).ok()) else {
            return (false, !closed);
        };
        let mut traced = false;
        for Passed { packet, to } in chunk {
            traced |= packet.trace().is_some();
            let n = usize::from(to);
            // The queues were empty before, and hold more than one burst; a cut may lie further down.
            match self.cuts.edge(self.stage, Target::Node(n)) {
                Edge::Pass(n) => match &mut self.links.next {
                    Some(next) if next.collected.len() < QUEUE => {
                        next.collected.push(Passed { packet, to: n as u16 });
                    }
                    _ => {
                        self.counters.nodes[n].dropped.count(DropReason::StageFull);
                        self.pool.free(packet);
                    }
                },
                _ => {
                    self.queues[n].push(packet);
                    self.pending |= 1 << n;
                }
            }
        }
        self.counters.taken += count as u64;
        self.counters.bursts += 1;
        if traced {
            self.watch.expect_traced();
        }
        (true, true)
    }

    /// Takes what other workers of the chain want sent. Whether there was anything.
    pub(super) fn take_returns(&mut self) -> bool {
        let mut taken = 0;
        for at in 0..self.links.returns.len() {
            let ring = &mut self.links.returns[at];
            // As much as there was on coming in: more may come for ever.
            let mut left = ring.slots();
            while left > 0 {
                let count = left.min(BURST);
                let Ok(chunk) = self.links.returns[at].read_chunk(count) else { break };
                self.returned.extend(chunk);
                let mut returned = std::mem::take(&mut self.returned);
                returned.drain(..).for_each(|Passed { packet, to }| self.put(usize::from(to), packet));
                self.returned = returned;
                left -= count;
                taken += count;
            }
        }
        self.counters.taken += taken as u64;
        taken > 0
    }

    /// Drops what was collected for a worker that is gone, which none is before this one unless it panicked.
    #[cold]
    pub(super) fn give_up_on_the_gone(&mut self) {
        let Snapshot { nodes, edge_drops, .. } = &mut self.counters;
        if let Some(next) = self.links.next.as_mut().filter(|next| next.ring.is_abandoned()) {
            for Passed { packet, to } in next.collected.drain(..) {
                nodes[usize::from(to)].dropped.count(DropReason::StageFull);
                self.pool.free(packet);
            }
        }
        if let Some(back) = self.links.back.as_mut().filter(|back| back.ring.is_abandoned()) {
            for Passed { packet, to } in back.collected.drain(..) {
                edge_drops[usize::from(to)].count(DropReason::StageFull);
                self.pool.free(packet);
            }
        }
    }

    /// Ends this worker's part of the chain in good order: what it has goes on to the others, and what they want sent is
    /// sent until they have ended, too.
    pub(crate) fn wind_down(&mut self) {
        if !self.links.follows() && self.links.next.is_none() {
            return;
        }
        loop {
            let busy = self.take_returns();
            self.flush_links();
            self.give_up_on_the_gone();
            if !self.links.blocked() {
                // Dropping our ends tells the readers that this was all.
                for sender in [self.links.next.take(), self.links.back.take()].into_iter().flatten() {
                    let Sender { ring, waker, .. } = sender;
                    drop(ring);
                    waker.wake();
                }
            }
            self.flush();
            self.reader.quiescent();
            self.show(false);
            let over = |ring: &Consumer<Passed>| ring.is_abandoned() && ring.is_empty();
            if self.links.next.is_none() && self.links.back.is_none() && self.links.returns.iter().all(over) {
                return;
            }
            if !busy {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
}
