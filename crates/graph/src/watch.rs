//! What the control side watches while the workers run: traces and captures.
//!
//! ```text
//! Handle --Order--> Mailbox (one per worker: a bounded lock-free queue and a flag) --burst boundary--> Watch
//!        <--entries-- Store (all workers; a worker that finds it locked tries again at the next boundary)
//!        <--copies--- Channel (one per capture, bounded; full: counted, not waited for)
//! ```
//!
//! While nothing is watched this costs a worker one relaxed load per turn, and one predictable branch per node run.

use crate::capture::Channel;
use crate::graph::Graph;
use crate::node::{Node, Verdict};
use crate::trace::{Store, Tracer, verdict_text};
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::Packet;
use tidemill_port::capture::Sense;

/// Orders that a worker may be behind with.
const MAILBOX: usize = 64;

/// Where in the graph packets are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Node(usize),
    Port { port: usize, rx: bool, tx: bool },
}

impl Place {
    /// Reads `NODE`, `port:NAME` (both directions), `port:NAME:rx` or `port:NAME:tx`.
    pub(crate) fn find(graph: &Graph, at: &str) -> Option<Self> {
        let port = |name: &str| graph.port_names.iter().position(|n| n == name);
        let Some(name) = at.strip_prefix("port:") else { return graph.node(at).map(Place::Node) };
        if let Some(port) = port(name) {
            return Some(Place::Port { port, rx: true, tx: true });
        }
        let (name, way) = name.rsplit_once(':')?;
        let (rx, tx) = (way == "rx", way == "tx");
        port(name).filter(|_| rx || tx).map(|port| Place::Port { port, rx, tx })
    }
}

/// What the control side asks of a worker.
pub(crate) enum Order {
    Trace { at: Place, packets: u32 },
    Capture(Arc<Channel>),
}

/// Why an order was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

/// One worker's orders.
pub(crate) struct Mailbox {
    waiting: AtomicBool,
    closed: AtomicBool,
    orders: ArrayQueue<Order>,
}

impl Default for Mailbox {
    fn default() -> Self {
        let (waiting, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Mailbox { waiting, closed, orders: ArrayQueue::new(MAILBOX) }
    }
}

impl Mailbox {
    /// Whether the worker has ended.
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn post(&self, order: Order) -> Result<(), Refused> {
        if self.closed() {
            return Err(Refused::Closed);
        }
        self.orders.push(order).map_err(|_| Refused::Full)?;
        self.waiting.store(true, Ordering::Release);
        // The worker closes its box and then empties it, so one of the two of us sees what the other has done.
        fence(Ordering::SeqCst);
        if self.closed() {
            self.empty();
            return Err(Refused::Closed);
        }
        Ok(())
    }

    fn empty(&self) {
        while self.orders.pop().is_some() {}
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.empty();
    }
}

/// The nodes and the receiving ports that a worker has; a worker of a chain has not all.
pub(crate) struct Scope {
    pub(crate) nodes: Vec<bool>,
    pub(crate) ports: Vec<bool>,
}

/// A worker's side of it.
pub(crate) struct Watch {
    /// Whether anything is watched: the only thing to look at while nothing is.
    pub(crate) active: bool,
    /// Whether packets are, or may be, traced.
    pub(crate) tracing: bool,
    /// The worker's number.
    pub(crate) worker: usize,
    /// Where packets can be marked here.
    scope: Scope,
    graph: Arc<Graph>,
    mailboxes: Arc<[Mailbox]>,
    store: Arc<Mutex<Store>>,
    tracer: Tracer,
    captures: Vec<Arc<Channel>>,
}

impl Watch {
    pub(crate) fn new(
        worker: usize,
        scope: Scope,
        graph: Arc<Graph>,
        mailboxes: Arc<[Mailbox]>,
        store: Arc<Mutex<Store>>,
        describe: fn(&[u8]) -> String,
    ) -> Self {
        let numbers = (worker as u64, mailboxes.len() as u64);
        let tracer = Tracer::new(graph.node_names.len(), graph.port_names.len(), numbers, describe);
        let captures = Vec::new();
        Watch { active: false, tracing: false, worker, scope, graph, mailboxes, store, tracer, captures }
    }

    /// Whether an order waits.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.mailboxes[self.worker].waiting.load(Ordering::Relaxed)
    }

    /// Takes the orders that wait.
    #[cold]
    pub(crate) fn open_mail(&mut self) {
        let mailboxes = self.mailboxes.clone();
        let mailbox = &mailboxes[self.worker];
        // First the flag: an order that comes after its queue was found empty raises it again.
        mailbox.waiting.swap(false, Ordering::AcqRel);
        while let Some(order) = mailbox.orders.pop() {
            self.take(order);
        }
    }

    pub(crate) fn take(&mut self, order: Order) {
        match order {
            Order::Trace { at, packets } => {
                let here = match at {
                    Place::Node(n) => self.scope.nodes[n],
                    Place::Port { port, .. } => self.scope.ports[port],
                };
                if !here {
                    return;
                }
                let left = match at {
                    Place::Node(n) => &mut self.tracer.at_node[n],
                    Place::Port { port, .. } => &mut self.tracer.at_port[port],
                };
                *left = left.saturating_add(packets);
                self.tracing = true;
            }
            Order::Capture(channel) => self.captures.push(channel),
        }
        self.active = true;
    }

    /// Packets that another worker traces have come over.
    #[cold]
    pub(crate) fn expect_traced(&mut self) {
        (self.active, self.tracing) = (true, true);
    }

    /// Port `p` has received these.
    #[cold]
    pub(crate) fn received(&mut self, now_ns: u64, p: usize, burst: &mut [Packet]) {
        if self.tracing {
            self.tracer.mark_at_port(p, burst);
            let at = format!("port:{}", self.graph.port_names[p]);
            for packet in burst.iter().filter(|packet| packet.trace().is_some()) {
                self.tracer.note(self.worker, now_ns, &at, packet, "received".into(), None);
            }
        }
        for channel in &self.captures {
            channel.at_port(self.worker, now_ns, p, Sense::Inbound, burst);
        }
    }

    /// Node `n` is about to process these.
    #[cold]
    pub(crate) fn entering(&mut self, now_ns: u64, n: usize, packets: &mut [Packet]) {
        if self.tracing {
            self.tracer.mark_at_node(n, packets);
        }
        for channel in &self.captures {
            channel.at_node(self.worker, now_ns, n, packets);
        }
    }

    /// Node `n` has given its verdicts.
    #[cold]
    pub(crate) fn processed(
        &mut self,
        now_ns: u64,
        n: usize,
        node: &dyn Node,
        packets: &[Packet],
        verdicts: &[Verdict],
    ) {
        if !self.tracing {
            return;
        }
        for (packet, verdict) in packets.iter().zip(verdicts) {
            if packet.trace().is_some() {
                let verdict = verdict_text(*verdict, &self.graph.outputs[n]);
                let (at, note) = (&self.graph.node_names[n], node.explain(packet));
                self.tracer.note(self.worker, now_ns, at, packet, verdict, note);
            }
        }
    }

    /// The graph sends this packet by port `p`.
    #[cold]
    pub(crate) fn sent(&mut self, now_ns: u64, p: usize, packet: &Packet) {
        if packet.trace().is_some() {
            let at = format!("port:{}", self.graph.port_names[p]);
            self.tracer.note(self.worker, now_ns, &at, packet, "sent".into(), None);
        }
    }

    /// Port `p` is about to be given these for the first time.
    #[cold]
    pub(crate) fn handed(&mut self, now_ns: u64, p: usize, packets: &[Packet]) {
        for channel in &self.captures {
            channel.at_port(self.worker, now_ns, p, Sense::Outbound, packets);
        }
    }

    /// Shows what has been traced, and ends what is over. `kept` packets are with nodes, some of them traced perhaps.
    #[cold]
    pub(crate) fn boundary(&mut self, kept: u64) {
        if !self.tracer.entries.is_empty()
            && let Ok(mut store) = self.store.try_lock()
        {
            store.add(&mut self.tracer.entries);
        }
        self.captures.retain(|channel| !channel.off());
        self.tracing &= kept > 0 || self.tracer.wants_more() || !self.tracer.entries.is_empty();
        self.active = self.tracing || !self.captures.is_empty();
    }

    /// The worker has ended: nothing will be watched any more.
    pub(crate) fn close(&mut self) {
        if !self.tracer.entries.is_empty() {
            self.store.lock().unwrap_or_else(PoisonError::into_inner).add(&mut self.tracer.entries);
        }
        self.captures.clear();
        self.active = false;
        self.mailboxes[self.worker].close();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A worker that panics ends, too.
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Capture;
    use crate::graph::GraphBuilder;

    fn watch() -> (Watch, Arc<[Mailbox]>) {
        let graph = GraphBuilder::new(["a:rx", "a"]).build().unwrap();
        let mailboxes: Arc<[Mailbox]> = [Mailbox::default()].into();
        let store = Arc::new(Mutex::new(Store::new(4)));
        let scope = Scope { nodes: vec![], ports: vec![true; 2] };
        (Watch::new(0, scope, Arc::new(graph), mailboxes.clone(), store, |_| String::new()), mailboxes)
    }

    #[test]
    fn a_watch_is_at_rest_before_and_after() {
        let (mut watch, mailboxes) = watch();
        assert!(!watch.has_mail() && !watch.active);
        let place = Place::find(&watch.graph, "port:a").unwrap();
        let capture = Capture::new(place, 1, mailboxes.clone());
        mailboxes[0].post(Order::Capture(capture.channel())).unwrap();
        mailboxes[0].post(Order::Trace { at: place, packets: 1 }).unwrap();
        assert!(watch.has_mail());
        watch.open_mail();
        assert!(!watch.has_mail() && watch.active && watch.tracing);
        drop(capture);
        watch.boundary(0);
        assert!(watch.active && watch.captures.is_empty(), "a packet is still to be traced");
        watch.tracer.at_port[1] = 0;
        watch.boundary(1);
        assert!(watch.active, "the packet that is kept may be the traced one");
        watch.boundary(0);
        assert!(!watch.active);
    }

    #[test]
    fn a_mailbox_is_bounded_and_closes_with_its_worker() {
        let (watch, mailboxes) = watch();
        let order = || Order::Trace { at: Place::Node(0), packets: 1 };
        for _ in 0..MAILBOX {
            assert_eq!(mailboxes[0].post(order()), Ok(()));
        }
        assert_eq!(mailboxes[0].post(order()), Err(Refused::Full));
        drop(watch);
        assert_eq!(mailboxes[0].post(order()), Err(Refused::Closed));
        assert!(mailboxes[0].orders.is_empty());
    }

    #[test]
    fn places_have_names() {
        let (watch, _) = watch();
        let find = |at| Place::find(&watch.graph, at);
        let port = |port, rx, tx| Some(Place::Port { port, rx, tx });
        assert_eq!(find("port:a"), port(1, true, true));
        assert_eq!(find("port:a:tx"), port(1, false, true));
        assert_eq!(find("port:a:rx"), port(0, true, true), "a whole name comes first");
        assert_eq!(find("port:a:rx:rx"), port(0, true, false));
        assert_eq!((find("port:a:both"), find("port:"), find("a")), (None, None, None));
    }
}
