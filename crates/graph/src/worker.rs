//! One worker: polls its ports, runs its nodes until no queue has a packet left, and reports at the burst boundary.

use crate::clock::Clock;
use crate::counters::Snapshot;
use crate::engine::Observer;
use crate::graph::Graph;
use crate::node::{Context, Node, Verdict};
use crate::watch::Watch;
use chain::{Cuts, Edge, Links, Passed};
use laps::Laps;
use sleep::Idle;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::{BURST, Burst, DropReason, Packet, Pool, PoolStats};
use tidemill_lookup::qsbr::Reader;
use tidemill_port::{Port, PortError, RxStatus, Waker};

pub(crate) mod chain;
mod laps;
pub(crate) mod sleep;

/// Packets that a node's queue can hold: a full burst, and what nodes make of one (fragments).
pub(crate) const QUEUE: usize = 16 * BURST;
/// How often the counters are shown to the control side.
const SHOW_NS: u64 = 10_000_000;

/// This worker's queue pair of one port, with what waits to be sent.
struct Seat {
    port: Box<dyn Port>,
    tx: Burst,
    /// How many of the packets at the front of `tx` the port has been given before, and had no room for.
    offered: usize,
    ended: bool,
}

/// What a turn of the loop found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Packets moved.
    Busy,
    /// Nothing to do before this time, if it is known.
    Idle(Option<u64>),
    /// Every receiving port has ended.
    Ended,
}

/// A worker's place among the others.
pub(crate) struct Place {
    /// Its place in its chain.
    pub(crate) stage: usize,
    pub(crate) cuts: Cuts,
    pub(crate) links: Links,
    pub(crate) waker: Waker,
    pub(crate) idle: Idle,
}

/// Begins and ends with a line of the cache (two, as they are fetched): another worker's may lie right behind it.
#[repr(align(128))]
pub(crate) struct Worker {
    graph: Arc<Graph>,
    /// Where each node's outputs lead from here.
    edges: Vec<Vec<Edge>>,
    stage: usize,
    cuts: Cuts,
    links: Links,
    /// Room for a burst that came back to be sent.
    returned: Vec<Passed>,
    waker: Waker,
    idle: Idle,
    nodes: Vec<Box<dyn Node>>,
    queues: Vec<Vec<Packet>>,
    /// Bit n: queue n is not empty.
    pending: u128,
    scratch: Vec<Packet>,
    verdicts: Vec<Verdict>,
    emitted: Vec<(Verdict, Packet)>,
    seats: Vec<Option<Seat>>,
    rx: Burst,
    pool: Pool,
    reader: Reader,
    clock: Clock,
    now_ns: u64,
    counters: Snapshot,
    /// Packets that nodes keep.
    kept: u64,
    /// When a node wants to be called, as of the last ticks.
    due_ns: Option<u64>,
    shared: Arc<Mutex<Snapshot>>,
    laps: Laps,
    /// Time of the node at work up to a transmission in its midst.
    aside_ns: u64,
    shown_ns: u64,
    pub(crate) watch: Watch,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) errors: Vec<PortError>,
}

/// What a node did with packets besides its verdicts.
#[derive(Default)]
struct Books {
    made: u64,
    /// Kept earlier, and not any more.
    unheld: u64,
    /// Of these, given to another worker.
    passed: u64,
    /// Kept from now on, from another worker.
    taken: u64,
    /// Lost for want of room.
    overflow: u64,
}

impl Worker {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        graph: Arc<Graph>,
        ports: Vec<Option<Box<dyn Port>>>,
        pool: Pool,
        reader: Reader,
        clock: Clock,
        shared: Arc<Mutex<Snapshot>>,
        watch: Watch,
        place: Place,
    ) -> Self {
        let Place { stage, cuts, links, waker, idle } = place;
        let mut nodes = graph.factories.iter().map(|make| make(watch.worker)).collect::<Vec<_>>();
        nodes.iter_mut().for_each(|node| node.wake_with(&waker));
        let seat = |port: Box<dyn Port>| Seat { port, tx: Burst::new(), offered: 0, ended: false };
        Worker {
            queues: Vec::new(),
            pending: 0,
            scratch: Vec::new(),
            verdicts: Vec::new(),
            emitted: Vec::new(),
            counters: Snapshot::default(),
            kept: 0,
            due_ns: None,
            seats: ports.into_iter().map(|p| p.map(seat)).collect(),
            nodes,
            edges: cuts.edges(stage, &graph),
            stage,
            cuts,
            returned: Vec::with_capacity(if links.follows() { 0 } else { BURST }),
            links,
            waker,
            idle,
            graph,
            rx: Burst::new(),
            pool,
            reader,
            now_ns: clock.now_ns(0),
            clock,
            shared,
            laps: Laps::start(),
            aside_ns: 0,
            shown_ns: 0,
            watch,
            observer: None,
            errors: Vec::new(),
        }
    }

    /// Makes room for what every burst writes. On the worker's own thread, for which the allocator has memory apart from other threads':
    /// two workers' counters in one line of the cache would have each wait for the other. And it is near the worker's CPU.
    fn settle(&mut self) {
        self.queues = self.nodes.iter().map(|_| Vec::with_capacity(QUEUE)).collect();
        self.scratch = Vec::with_capacity(QUEUE);
        self.verdicts = vec![Verdict::Next(0); QUEUE];
        self.emitted = Vec::with_capacity(QUEUE);
        self.counters = Snapshot::new(self.graph.outputs.iter().map(Vec::len), self.seats.len());
        self.rx = Burst::new();
        let mut seats = Vec::with_capacity(self.seats.len());
        seats.append(&mut self.seats);
        seats.iter_mut().flatten().for_each(|seat| seat.tx = Burst::new());
        self.seats = seats;
    }

    /// Settles, and starts the worker's own clock; called on its own thread.
    pub(crate) fn start(&mut self) {
        self.settle();
        self.laps = Laps::start();
        self.reader.online();
    }

    /// One round over all ports: the packet's flow, whole.
    pub(crate) fn turn(&mut self) -> Turn {
        let (mut busy, mut open, mut due) = (false, false, None::<u64>);
        let (begun_ns, mut held_back) = (self.laps.at_ns(), false);
        if self.watch.has_mail() {
            self.watch.open_mail();
        }
        self.now_ns = self.clock.now_ns(self.now_ns).max(self.now_ns);
        // What is to be sent is always taken, so that those behind us get on.
        busy |= self.take_returns();
        if self.links.follows() {
            held_back = self.links.blocked();
            (busy, open) = if held_back { (false, true) } else { self.take_over() };
            self.drain();
        }
        for p in 0..self.seats.len() {
            if self.seats[p].as_ref().is_none_or(|seat| seat.ended) || self.graph.inputs[p].is_none() {
                continue;
            }
            if self.links.blocked() {
                // What the next worker has no room for yet would only get more.
                (held_back, open) = (true, true);
                continue;
            }
            match self.receive(p) {
                RxStatus::Received => (busy, open) = (true, true),
                RxStatus::Idle { next_due_ns } => {
                    open = true;
                    due = due.into_iter().chain(next_due_ns).min();
                }
                RxStatus::Ended => {}
            }
            self.drain();
            self.flush_links();
        }
        busy |= self.tick_all();
        let worked = busy || self.pending != 0;
        self.drain();
        let timer = self.due_ns;
        self.flush_links();
        if let Some(observer) = &mut self.observer {
            observer.end_turn(self.now_ns);
        }
        self.flush();
        self.aside_ns = 0;
        if worked {
            self.counters.busy_ns += self.laps.at_ns() - begun_ns;
        }
        self.reader.quiescent();
        if self.watch.active {
            self.watch.boundary(self.kept);
        }
        self.show(false);
        if held_back {
            self.give_up_on_the_gone();
        }
        if held_back && !busy {
            // Whoever is to make room may be waiting for this very core.
            std::thread::yield_now();
        }
        if busy || held_back {
            return Turn::Busy;
        }
        let due = due.into_iter().chain(timer).min();
        // Of the worker before, packets of an earlier time may come yet.
        let waits = open && self.links.follows();
        if let (true, Some(due)) = (self.clock.follows_packets(), due)
            && (due <= self.now_ns || !waits)
        {
            // Capture time does not pass by itself: nothing can happen before the next due time.
            self.now_ns = self.now_ns.max(due);
            return Turn::Busy;
        }
        if open { Turn::Idle(due) } else { Turn::Ended }
    }

    /// The time of the last burst.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Where the frames of this worker's pool are.
    pub(crate) fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Whether packets come from another worker.
    pub(crate) fn follows(&self) -> bool {
        self.links.follows()
    }

    /// Whether another worker may hand packets over to a node of this one.
    pub(crate) fn is_handed_packets(&self) -> bool {
        self.nodes.iter().any(|node| node.is_handed_packets())
    }

    /// Whether it is one of several workers in a row.
    pub(crate) fn is_in_chain(&self) -> bool {
        self.links.follows() || self.links.leads()
    }

    /// Whether its ports have no packet for it any more.
    pub(crate) fn has_received_all(&self) -> bool {
        let mut seats = self.seats.iter().zip(&self.graph.inputs).filter(|(_, input)| input.is_some());
        seats.all(|(seat, _)| seat.as_ref().is_none_or(|seat| seat.ended || seat.port.has_ended()))
    }

    /// Receives no more: turns only do what is left to do.
    pub(crate) fn stop_receiving(&mut self) {
        self.seats.iter_mut().flatten().for_each(|seat| seat.ended = true);
    }

    /// Packets that this worker has handed over to others, and taken over from them, so far.
    pub(crate) fn handed(&self) -> [u64; 2] {
        [self.counters.passed, self.counters.taken]
    }

    /// Packets that this worker's ports have received so far.
    pub(crate) fn received(&self) -> u64 {
        self.seats.iter().flatten().map(|seat| seat.port.counters().rx.packets).sum()
    }

    fn receive(&mut self, p: usize) -> RxStatus {
        let Some(seat) = self.seats[p].as_mut() else { return RxStatus::Ended };
        let status = match seat.port.rx(self.now_ns, &mut self.pool, &mut self.rx) {
            Ok(status) => status,
            Err(error) => {
                self.errors.push(error);
                RxStatus::Ended
            }
        };
        seat.ended = status == RxStatus::Ended;
        if !self.rx.is_empty() {
            self.counters.bursts += 1;
            if self.clock.follows_packets() {
                let now_ns = self.rx.iter().map(Packet::timestamp_ns).fold(self.now_ns, u64::max);
                self.pass_time(now_ns);
            }
            self.rx.iter_mut().for_each(|packet| packet.port = p as u16);
            if self.watch.active {
                self.watch.received(self.now_ns, p, &mut self.rx);
            }
            if let Some(observer) = &mut self.observer {
                observer.received(self.now_ns, p, &self.rx);
            }
            match self.graph.inputs[p].map(|target| self.cuts.edge(self.stage, target)) {
                Some(Edge::Node(n)) => {
                    self.rx.append_to(&mut self.queues[n]);
                    self.pending |= 1 << n;
                }
                Some(Edge::Port(to)) => self.send_received(to),
                Some(Edge::Pass(n)) => {
                    let mut packets = std::mem::take(&mut self.scratch);
                    self.rx.append_to(&mut packets);
                    packets.drain(..).for_each(|packet| self.pass(n, packet));
                    self.scratch = packets;
                }
                None => {}
            }
        }
        self.counters.port_ns[p].0 += self.laps.lap() + std::mem::take(&mut self.aside_ns);
        status
    }

    /// Runs nodes, lowest number first, until every queue is empty.
    fn drain(&mut self) {
        while self.pending != 0 {
            self.run_node(self.pending.trailing_zeros() as usize);
        }
    }

    fn run_node(&mut self, n: usize) {
        std::mem::swap(&mut self.queues[n], &mut self.scratch);
        self.pending &= !(1 << n);
        let count = self.scratch.len();
        if self.watch.active {
            self.watch.entering(self.now_ns, n, &mut self.scratch);
        }
        self.verdicts[..count].fill(Verdict::Next(0));
        let books = self.with_context(n, |node, cx, packets, verdicts| {
            for (burst, verdicts) in packets.chunks_mut(BURST).zip(verdicts[..count].chunks_mut(BURST)) {
                node.process(cx, burst, verdicts);
            }
        });
        if self.watch.active {
            let (node, verdicts) = (&*self.nodes[n], &self.verdicts[..count]);
            self.watch.processed(self.now_ns, n, node, &self.scratch, verdicts);
        }
        let counters = &mut self.counters.nodes[n];
        counters.calls += 1;
        counters.packets += count as u64;
        self.book(n, books);
        self.dispatch(n, count);
        self.deliver_emitted(n);
        self.counters.nodes[n].busy_ns += self.laps.lap() + std::mem::take(&mut self.aside_ns);
    }

    /// Makes it `now_ns`, with what nodes have to do on the way there.
    fn pass_time(&mut self, now_ns: u64) {
        while let Some(due) = self.due_ns.filter(|due| *due < now_ns) {
            // Time moves on, whatever they ask for.
            self.now_ns = due.max(self.now_ns + 1);
            self.tick_all();
            self.drain();
            self.flush_links();
            // What leaves does so now, not with what comes of the burst.
            self.flush();
        }
        self.now_ns = now_ns.max(self.now_ns);
    }

    /// Lets every node do what is due. Returns whether packets came of it.
    fn tick_all(&mut self) -> bool {
        self.due_ns = None;
        let mut moved = false;
        for n in 0..self.nodes.len() {
            moved |= self.tick(n);
        }
        moved
    }

    fn tick(&mut self, n: usize) -> bool {
        let books = self.with_context(n, |node, cx, _, _| node.tick(cx));
        self.book(n, books);
        let moved = !self.emitted.is_empty();
        self.deliver_emitted(n);
        moved
    }

    /// Lends a node what it may use; returns what it did with packets besides its verdicts.
    #[inline]
    fn with_context(
        &mut self,
        n: usize,
        work: impl FnOnce(&mut Box<dyn Node>, &mut Context<'_>, &mut [Packet], &mut [Verdict]),
    ) -> Books {
        let mut books = Books::default();
        let mut cx = Context {
            now_ns: self.now_ns,
            reader: &self.reader,
            pool: &mut self.pool,
            out: &mut self.emitted,
            made: &mut books.made,
            unheld: &mut books.unheld,
            passed: &mut books.passed,
            taken: &mut books.taken,
            overflow: &mut books.overflow,
            due_ns: &mut self.due_ns,
        };
        work(&mut self.nodes[n], &mut cx, &mut self.scratch, &mut self.verdicts);
        books
    }

    #[inline]
    fn book(&mut self, n: usize, Books { made, unheld, passed, taken, overflow }: Books) {
        self.kept += taken;
        self.kept -= unheld;
        self.counters.passed += passed;
        self.counters.taken += taken;
        let counters = &mut self.counters.nodes[n];
        counters.made += made;
        if overflow > 0 {
            counters.dropped.count_many(DropReason::QueueFull, overflow);
        }
    }

    /// Carries out the verdicts on the packets in `scratch`: those that lie together and go the same way at once.
    fn dispatch(&mut self, n: usize, count: usize) {
        let mut packets = std::mem::take(&mut self.scratch);
        let mut alike = Verdict::alike(&self.verdicts[..count]);
        // A burst that goes one way as a whole moves in one copy.
        let together = match self.verdicts[0] {
            Verdict::Next(output) if alike == count => {
                Some((output as usize, self.edges[n][output as usize]))
            }
            _ => None,
        };
        match together {
            Some((output, Edge::Node(to))) if self.queues[to].len() + count <= QUEUE => {
                self.counters.outputs[n][output] += count as u64;
                self.queues[to].append(&mut packets);
                self.pending |= 1 << to;
            }
            Some((output, Edge::Port(to))) => {
                self.counters.outputs[n][output] += count as u64;
                self.send_all(to, &mut packets);
            }
            Some((output, Edge::Pass(to))) => {
                self.counters.outputs[n][output] += count as u64;
                packets.drain(..).for_each(|packet| self.pass(to, packet));
            }
            _ => {
                let (mut at, mut rest) = (0, packets.drain(..));
                while at < count {
                    self.carry_out_alike(n, self.verdicts[at], rest.by_ref().take(alike));
                    at += alike;
                    alike = Verdict::run(&self.verdicts[at..count]);
                }
            }
        }
        self.scratch = packets;
    }

    /// Carries out one verdict on packets in a row.
    #[inline]
    fn carry_out_alike(
        &mut self,
        n: usize,
        verdict: Verdict,
        packets: impl ExactSizeIterator<Item = Packet>,
    ) {
        let count = packets.len();
        match verdict {
            Verdict::Drop(reason) if self.observer.is_none() => {
                self.counters.nodes[n].dropped.count_many(reason, count as u64);
                packets.for_each(|packet| self.pool.free(packet));
            }
            Verdict::Next(output) => match self.edges[n][output as usize] {
                Edge::Node(to) if self.queues[to].len() + count <= QUEUE => {
                    self.counters.outputs[n][output as usize] += count as u64;
                    self.queues[to].extend(packets);
                    self.pending |= 1 << to;
                }
                // Counted one by one.
                _ => packets.for_each(|packet| self.carry_out(n, verdict, packet)),
            },
            _ => packets.for_each(|packet| self.carry_out(n, verdict, packet)),
        }
    }

    #[inline]
    fn carry_out(&mut self, n: usize, verdict: Verdict, packet: Packet) {
        match verdict {
            Verdict::Next(output) => {
                self.counters.outputs[n][output as usize] += 1;
                match self.edges[n][output as usize] {
                    Edge::Node(to) if self.queues[to].len() < QUEUE => {
                        self.queues[to].push(packet);
                        self.pending |= 1 << to;
                    }
                    Edge::Node(_) => self.drop_at(n, DropReason::QueueFull, packet),
                    Edge::Port(to) => self.send(to, packet),
                    Edge::Pass(to) => self.pass(to, packet),
                }
            }
            Verdict::Drop(reason) => self.drop_at(n, reason, packet),
            Verdict::Consume => {
                if let Some(observer) = &mut self.observer {
                    observer.fate(Fate::Consumed { node: n }, &packet);
                }
                self.counters.nodes[n].consumed += 1;
                self.pool.free(packet);
            }
            Verdict::Keep => {
                self.kept += 1;
                let mut packet = Some(packet);
                let books = self.with_context(n, |node, cx, _, _| {
                    packet.take().into_iter().for_each(|packet| node.keep(cx, packet));
                });
                self.book(n, books);
            }
        }
    }

    fn deliver_emitted(&mut self, n: usize) {
        if self.emitted.is_empty() {
            return;
        }
        let mut emitted = std::mem::take(&mut self.emitted);
        emitted.drain(..).for_each(|(verdict, packet)| self.carry_out(n, verdict, packet));
        self.emitted = emitted;
    }

    fn drop_at(&mut self, n: usize, reason: DropReason, packet: Packet) {
        if let Some(observer) = &mut self.observer {
            observer.fate(Fate::Dropped { node: n, reason }, &packet);
        }
        self.counters.nodes[n].dropped.count(reason);
        self.pool.free(packet);
    }

    /// Queues a burst that goes straight from one port to another. As a whole, if nothing waits there and nobody looks.
    fn send_received(&mut self, p: usize) {
        let looked_at = self.observer.is_some() || self.watch.tracing || self.links.sends_back();
        match self.seats[p].as_mut() {
            Some(seat) if !looked_at && seat.tx.is_empty() => {
                std::mem::swap(&mut seat.tx, &mut self.rx);
                if seat.tx.room() == 0 {
                    self.transmit(p);
                }
            }
            _ => {
                let mut packets = std::mem::take(&mut self.scratch);
                self.rx.append_to(&mut packets);
                self.send_all(p, &mut packets);
                self.scratch = packets;
            }
        }
    }

    /// Queues packets for a port, transmitting whenever a burst is full.
    fn send_all(&mut self, p: usize, packets: &mut Vec<Packet>) {
        if self.observer.is_some() || self.watch.tracing {
            packets.iter().for_each(|packet| self.note_sent(p, packet));
        }
        if self.links.sends_back() {
            return packets.drain(..).for_each(|packet| self.pass_back(p, packet));
        }
        while !packets.is_empty() {
            let Some(seat) = self.seats[p].as_mut() else {
                return packets.drain(..).for_each(|packet| self.refuse(p, DropReason::TxFailed, packet));
            };
            let before = packets.len();
            seat.tx.fill_from(packets);
            if seat.tx.room() == 0 {
                self.transmit(p);
                if self.seats[p].as_ref().is_some_and(|seat| seat.tx.room() == 0) && packets.len() == before {
                    return packets.drain(..).for_each(|packet| self.refuse(p, DropReason::TxFull, packet));
                }
            }
        }
    }

    /// Queues one packet for a port.
    #[inline]
    fn send(&mut self, p: usize, packet: Packet) {
        if self.observer.is_some() || self.watch.tracing {
            self.note_sent(p, &packet);
        }
        if self.links.sends_back() {
            return self.pass_back(p, packet);
        }
        self.put(p, packet);
    }

    /// Puts one packet into what waits to be sent.
    #[inline]
    fn put(&mut self, p: usize, packet: Packet) {
        if self.seats[p].as_ref().is_some_and(|seat| seat.tx.room() == 0) {
            self.transmit(p);
        }
        let refused = match self.seats[p].as_mut() {
            Some(seat) => seat.tx.push(packet).map_err(|packet| (DropReason::TxFull, packet)),
            None => Err((DropReason::TxFailed, packet)),
        };
        if let Err((reason, packet)) = refused {
            self.refuse(p, reason, packet);
        }
    }

    #[cold]
    fn refuse(&mut self, p: usize, reason: DropReason, packet: Packet) {
        self.counters.edge_drops[p].count(reason);
        self.pool.free(packet);
    }

    #[cold]
    fn note_sent(&mut self, p: usize, packet: &Packet) {
        if let Some(observer) = &mut self.observer {
            observer.fate(Fate::Sent { port: p }, packet);
        }
        if self.watch.tracing {
            self.watch.sent(self.now_ns, p, packet);
        }
    }

    fn transmit(&mut self, p: usize) {
        // Sending may happen in the middle of a node's turn: its time is the port's, not the node's.
        self.aside_ns += self.laps.lap();
        let Some(seat) = self.seats[p].as_mut() else { return };
        if self.watch.active {
            self.watch.handed(self.now_ns, p, seat.tx.get(seat.offered..).unwrap_or_default());
        }
        if let Err(error) = seat.port.tx(self.now_ns, &mut self.pool, &mut seat.tx) {
            self.errors.push(error);
        }
        seat.offered = seat.tx.len();
        self.counters.port_ns[p].1 += self.laps.lap();
    }

    /// Hands every port what waits for it, and lets the others send what they held.
    fn flush(&mut self) {
        let mut last = None;
        for p in 0..self.seats.len() {
            match self.seats[p].as_mut() {
                // Its time goes to whoever comes next: a look at the clock takes longer.
                Some(seat) if seat.tx.is_empty() => {
                    if let Err(error) = seat.port.tx(self.now_ns, &mut self.pool, &mut seat.tx) {
                        self.errors.push(error);
                    }
                    last = Some(p);
                }
                _ => {
                    self.transmit(p);
                    last = None;
                }
            }
        }
        if let Some(p) = last {
            self.counters.port_ns[p].1 += self.laps.lap();
        }
    }

    /// Shows the counters to the control side, every few milliseconds; never waits for it.
    fn show(&mut self, now: bool) {
        if !now && self.laps.at_ns() < self.shown_ns + SHOW_NS {
            return;
        }
        self.shown_ns = self.laps.at_ns();
        self.collect();
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.clone_from(&self.counters);
        }
    }

    fn collect(&mut self) {
        self.counters.elapsed_ns = self.laps.correct();
        self.counters.pool = self.pool.stats();
        let waiting = self.seats.iter().flatten().map(|seat| seat.tx.len() as u64).sum::<u64>();
        self.counters.held = self.kept + waiting + self.links.collected();
        for (seat, counters) in self.seats.iter().zip(&mut self.counters.ports) {
            if let Some(seat) = seat {
                *counters = seat.port.counters();
            }
        }
    }

    /// Ends the run in good order: queues are empty already; ports send what they hold, nodes give up what they keep.
    pub(crate) fn finish(&mut self) -> Snapshot {
        self.flush();
        for seat in self.seats.iter_mut().flatten() {
            // A port that is still full after a flush will not take these.
            if let Err(error) = seat.port.finish(self.now_ns, &mut self.pool) {
                self.errors.push(error);
            }
        }
        for (p, seat) in self.seats.iter_mut().enumerate() {
            for packet in seat.iter_mut().flat_map(|seat| seat.tx.drain()) {
                self.counters.edge_drops[p].count(DropReason::TxFull);
                self.pool.free(packet);
            }
        }
        self.nodes.iter_mut().for_each(|node| node.surrender(&mut self.pool));
        self.collect();
        self.watch.close();
        self.counters.ended = 1;
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.counters);
        self.reader.offline();
        self.counters.clone()
    }
}

/// What finally became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Sent by a port.
    Sent {
        /// The port's number.
        port: usize,
    },
    /// Dropped at a node.
    Dropped {
        /// The node's number.
        node: usize,
        /// Why.
        reason: DropReason,
    },
    /// Consumed at a node.
    Consumed {
        /// The node's number.
        node: usize,
    },
}
