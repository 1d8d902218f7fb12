//! `switch`: the one node. Keys, caches, rules, and then each packet's actions.
//!
//! Outputs: one for each port, in their order.

use crate::control::{Seat, SwitchControl};
use crate::counters::{Counter, Counters};
use crate::macs::Macs;
use crate::send::{Bridge, Turn, straight};
use crate::vlan::Vlans;
use std::sync::Arc;
use tidemill_burst::{BURST, DropReason, Packet, Pool};
use tidemill_classify::laps::{Laps, Layer};
use tidemill_classify::live::{Hits, Snapshot};
use tidemill_classify::packet::{cut_first, key, parse_into, unfollowed};
use tidemill_classify::pipeline::{Walker, WayId};
use tidemill_classify::{Key, Rank, RuleId};
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};
use tidemill_lookup::publish::View;

/// The node's name.
pub(crate) const NAME: &str = "switch";

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Cached decisions that were not used for so long go, seconds.
pub const IDLE_S: u32 = 10;

/// Buckets that are looked at for such, each second.
pub const SWEPT: usize = 1024;

/// In so many parts, each with a look at which masks are used: where all are taken, a part of them gives way each time ([`Cache::maintain`]).
///
/// [`Cache::maintain`]: tidemill_classify::cache::Cache::maintain
const LOOKS: u64 = 8;

/// The node, one for each worker.
struct Switch<L> {
    rules: View<Arc<Snapshot>>,
    vlans: Arc<Vlans>,
    macs: Arc<Macs>,
    ports: usize,
    /// None if this graph's tables are with another engine already: then it drops everything.
    seat: Option<Box<Seat>>,
    keys: Vec<Key>,
    /// Of each key its packet's place, and whether its ports are cut off.
    places: Vec<(usize, bool)>,
    found: Vec<WayId>,
    counters: Counters,
    /// The last part of a second in which there was a look.
    looked: u64,
    laps: L,
}

impl<L: Laps + Send> Node for Switch<L> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        self.laps.lap(Layer::Io);
        let Some(seat) = &mut self.seat else {
            verdicts.fill(Verdict::Drop(DropReason::NoRule));
            return;
        };
        let snapshot: &Snapshot = self.rules.get(cx.reader);
        let now_s = (cx.now_ns / SECOND) as u32;
        self.places.clear();
        for (at, packet) in burst.iter().enumerate() {
            let place = self.places.len();
            if self.keys.len() == place {
                self.keys.push(Key::default());
            }
            let key = &mut self.keys[place];
            match parse_into(packet.data(), packet.port + 1, key) {
                Some(layers) => self.places.push((at, cut_first(key, &layers))),
                None => verdicts[at] = Verdict::Drop(DropReason::EthernetTooShort),
            }
        }
        self.laps.lap(Layer::Parse);
        let seat: &mut Seat = seat;
        let keys = &self.keys[..self.places.len()];
        let found = &mut self.found[..keys.len()];
        let walker = Walker::new(snapshot, &mut seat.ways);
        seat.cache.classify_timed(walker, now_s, keys, found, &mut self.laps);
        let bridge = Bridge { macs: &self.macs, vlans: &self.vlans, ports: self.ports };
        // Packets in a row that go straight to one port: its way, rule and port, and what is still to be counted for the rule.
        let mut run: Option<(WayId, RuleId, usize)> = None;
        let mut hits = Hits::default();
        for ((&(at, is_cut), key), &found) in self.places.iter().zip(keys).zip(found.iter()) {
            let packet = &mut burst[at];
            let in_port = usize::from(packet.port);
            let is_whole = !is_cut && !unfollowed(key);
            if run.is_none_or(|(way, ..)| way != found) {
                if let Some((_, rule, _)) = run {
                    seat.hits.add_all(Rank::new(0, rule), std::mem::take(&mut hits));
                }
                let straight = straight(snapshot, seat.ways.get(found), self.ports);
                run = straight.map(|(rule, port)| (found, rule, port));
            }
            if let Some((_, _, port)) = run
                && is_whole
                && port != in_port
            {
                hits.packets += 1;
                hits.bytes += packet.len() as u64;
                verdicts[at] = Verdict::Next(port as u8);
                continue;
            }
            let way = seat.ways.get(found);
            if !is_whole {
                if unfollowed(key) && snapshot.way_asks_above_ipv6(way) {
                    verdicts[at] = Verdict::Drop(DropReason::Ipv6HeadersUnfollowed);
                    continue;
                }
                if is_cut && snapshot.way_asks_transport(way) {
                    verdicts[at] = Verdict::Drop(DropReason::FirstFragmentCut);
                    continue;
                }
            }
            let mut turn = Turn {
                cx,
                bridge: &bridge,
                snapshot,
                counters: &mut self.counters,
                hits: &mut seat.hits,
                key,
                in_port,
                now_s,
            };
            verdicts[at] = turn.take(packet, way);
        }
        if let Some((_, rule, _)) = run {
            seat.hits.add_all(Rank::new(0, rule), hits);
        }
        self.laps.lap(Layer::Actions);
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let part = cx.now_ns / (SECOND / LOOKS);
        if self.looked != part
            && let Some(seat) = &mut self.seat
        {
            self.looked = part;
            let now_s = (cx.now_ns / SECOND) as u32;
            let walker = Walker::new(self.rules.get(cx.reader), &mut seat.ways);
            seat.cache.maintain(walker, now_s, IDLE_S, SWEPT / LOOKS as usize);
        }
        self.show();
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        // The last burst's numbers, too.
        self.show();
    }

    fn explain(&self, packet: &Packet) -> Option<String> {
        key(packet.data(), packet.port + 1).map(|key| format!("{key:?}"))
    }
}

impl<L> Switch<L> {
    /// Shows the numbers to whoever asks.
    fn show(&mut self) {
        let Some(seat) = &self.seat else { return };
        let cache = seat.cache.counters();
        for (counter, value) in [
            (Counter::ExactHits, cache.exact_hits),
            (Counter::MegaflowHits, cache.megaflow_hits),
            (Counter::SignatureHits, cache.signature_hits),
            (Counter::Misses, cache.misses),
            (Counter::Probes, cache.probes),
            (Counter::Renewed, cache.renewed),
            (Counter::Outdated, cache.outdated),
            (Counter::NotKept, cache.not_kept),
            (Counter::TurnedAway, cache.turned_away),
            (Counter::Spared, cache.spared),
            (Counter::Megaflows, seat.cache.megaflows() as u64),
            (Counter::Masks, seat.cache.masks() as u64),
            (Counter::Ways, seat.ways.len() as u64),
        ] {
            self.counters.set(counter, value);
        }
        seat.board.show(&self.counters);
    }
}

/// The switch between the ports that `control` was made with. For one engine: its workers' caches are handed over when their nodes are made.
pub fn graph(control: &SwitchControl) -> GraphBuilder {
    graph_timed(control, |_| ())
}

/// The same with a stopwatch for each worker, by its number.
pub fn graph_timed<L: Laps + Send + 'static>(
    control: &SwitchControl,
    laps: impl Fn(usize) -> L + Send + Sync + 'static,
) -> GraphBuilder {
    let ports = control.ports().0.clone();
    let mut graph = GraphBuilder::new(ports.iter().cloned());
    let (rules, vlans, macs, seats) = control.shared();
    let count = ports.len();
    graph.node(NAME, ports.iter().cloned(), move |worker| {
        Box::new(Switch {
            rules: rules.clone(),
            vlans: vlans.clone(),
            macs: macs.clone(),
            ports: count,
            seat: seats.take(worker),
            keys: Vec::with_capacity(BURST),
            places: Vec::with_capacity(BURST),
            found: vec![WayId(0); BURST],
            counters: Counters::default(),
            looked: 0,
            laps: laps(worker),
        })
    });
    for port in &ports {
        graph.input(port, NAME).edge(NAME, port, &format!("port:{port}"));
    }
    graph
}
