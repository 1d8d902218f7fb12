//! Packets, decisions, time and reclaim in any order, over flows in real tables, against a model of Fu 2020, figure 4.3, that is written down
//! plainly: every act agrees, and after every step the state of every flow.
//!
//! The model has no words to pack: times are whole nanoseconds that do not wrap, the bucket is filled step by step, the logarithm is counted.
//! What it takes from the manual of `flow::state`: times are rounded up to ticks of 2^24 ns; a decision holds (2^28 - 1) ticks at most, a step
//! 65,535; the bucket is a second, in units of 1/1024 ns of its rate, and a packet's part of it is rounded up to whole units.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod figure;
mod rate;

use figure::{FULL, Model};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use std::collections::BTreeMap;
use tidemill_flow::flowtable::{FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_gatekeeper::flow::{Act, FlowState};
use tidemill_gatekeeper::{Cookie, Verdict};

const DAY: i128 = 86_400_000_000_000;

/// A moment in the life of a flow at which something changes.
#[derive(Debug, Clone, Copy)]
enum Edge {
    Expiry,
    Renewal,
    /// The bucket is full enough for a packet of so many bytes.
    Fits(u32),
    /// The flow may be reclaimed after so long.
    Reclaim(u64),
}

#[derive(Debug, Clone)]
enum Step {
    /// Packets of any flows, looked up together: flow, bytes.
    Burst(Vec<(u8, u32)>),
    Decide(u8, Verdict),
    Pass(u64),
    /// To an edge of a flow, and so many nanoseconds further.
    To(u8, Edge, i8),
    /// So many buckets of the table; what has been idle for so long.
    Reclaim(usize, u64),
}

fn flow() -> impl Strategy<Value = u8> {
    0..10_u8
}

fn bytes() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 20..=1500_u32,
        // What a bucket of a few KiB/s just holds, or just does not.
        2 => prop::sample::select(vec![1024, 1025, 2048, 65_536]),
        1 => prop::sample::select(vec![0, 1, u32::MAX]),
    ]
}

/// From nothing to weeks, all magnitudes alike.
fn time() -> impl Strategy<Value = u64> {
    (0..51_u32, any::<u64>()).prop_map(|(magnitude, any)| any & ((1 << magnitude) - 1))
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let expire_s = || prop_oneof![4 => 0..10_u32, 2 => 0..10_000_u32, 1 => prop::sample::select(vec![4_503_599, 4_503_600, u32::MAX])];
    let ms = || prop_oneof![4 => 0..10_000_u32, 1 => 0..10_000_000_u32, 1 => Just(u32::MAX)];
    let rate = prop_oneof![4 => 0..4_u32, 4 => 0..100_000_u32, 1 => Just(u32::MAX)];
    prop_oneof![
        2 => expire_s().prop_map(|expire_s| Verdict::Declined { expire_s }),
        5 => (rate, expire_s(), ms(), ms(), any::<bool>()).prop_map(|(rate_kib_s, expire_s, renew_ms, step_ms, direct)| {
            Verdict::Granted { rate_kib_s, expire_s, renew_ms, step_ms, direct }
        }),
        1 => Just(Verdict::Bpf { expire_s: 9, program: 1, cookie: Cookie::new(&[7; 8]).unwrap() }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let edge = prop_oneof![
        Just(Edge::Expiry),
        Just(Edge::Renewal),
        bytes().prop_map(Edge::Fits),
        time().prop_map(Edge::Reclaim),
    ];
    prop_oneof![
        6 => prop::collection::vec((flow(), bytes()), 1..20).prop_map(Step::Burst),
        3 => (flow(), verdict()).prop_map(|(flow, verdict)| Step::Decide(flow, verdict)),
        3 => time().prop_map(Step::Pass),
        4 => (flow(), edge, -1..=1_i8).prop_map(|(flow, edge, off)| Step::To(flow, edge, off)),
        1 => (1..3_usize, time()).prop_map(|(buckets, idle_ns)| Step::Reclaim(buckets, idle_ns)),
    ]
}

/// What a run has come by.
#[derive(Debug, Default)]
struct Met {
    requests: usize,
    granted: usize,
    direct: usize,
    renewals: usize,
    declined: usize,
    over_rate: usize,
    reclaimed: usize,
}

impl Met {
    fn all(&self) -> [usize; 7] {
        [
            self.requests,
            self.granted,
            self.direct,
            self.renewals,
            self.declined,
            self.over_rate,
            self.reclaimed,
        ]
    }
}

/// A table of two buckets, the model of every flow in it, and the time.
struct World<const W: usize> {
    table: FlowTable<W, FlowState>,
    flows: BTreeMap<Key<W>, Model>,
    now_ns: i128,
    swept_ns: i128,
    met: Met,
}

fn key<const W: usize>(flow: u8) -> Key<W> {
    Key(std::array::from_fn(|word| u64::from(flow) << 32 | word as u64))
}

fn note<const W: usize>(key: &Key<W>) -> u16 {
    key.0[0] as u16 ^ (key.0[0] >> 32) as u16 ^ 0x8001
}

impl<const W: usize> World<W> {
    fn new() -> Self {
        let table = FlowTable::new(62, Keyed::new(7)).unwrap();
        assert_eq!(table.slots(), 62);
        // Not on a tick, and a time since 1970.
        let now_ns = 1_800_000_000_123_456_789;
        World { table, flows: BTreeMap::new(), now_ns, swept_ns: now_ns, met: Met::default() }
    }

    fn burst(&mut self, packets: &[(u8, u32)]) {
        let keys: Vec<Key<W>> = packets.iter().map(|packet| key(packet.0)).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| self.table.hasher().hash(key)).collect();
        let mut outcomes = vec![Outcome::Full; keys.len()];
        self.table.find_or_insert_batch(1, &hashes, &keys, &mut outcomes);
        for ((key, outcome), &(_, bytes)) in keys.iter().zip(outcomes).zip(packets) {
            let slot = outcome.slot().expect("there is room for all");
            let mut state = self.table.state(slot);
            if let Outcome::New(_) = outcome {
                assert!(!self.flows.contains_key(key));
                assert_eq!(state, FlowState::default());
                state.set_note(note(key));
            }
            let act = state.packet(self.now_ns as u64, bytes);
            self.table.set_state(slot, state);
            let model = self.flows.entry(*key).or_insert(Model::NEW);
            let before = *model;
            assert_eq!(
                act,
                model.packet(self.now_ns, bytes),
                "at {}: {bytes} bytes, {before:?}",
                self.now_ns
            );
            self.meet(act);
        }
    }

    fn meet(&mut self, act: Act) {
        let met = &mut self.met;
        *match act {
            Act::Request { .. } => &mut met.requests,
            Act::Granted { direct: true, .. } => &mut met.direct,
            Act::Granted { dscp: 2, .. } => &mut met.renewals,
            Act::Granted { .. } => &mut met.granted,
            Act::Declined => &mut met.declined,
            Act::OverRate => &mut met.over_rate,
        } += 1;
    }

    /// About a flow that is there, or is made by it: of which no packet has been seen.
    fn decide(&mut self, flow: u8, verdict: &Verdict) {
        let key = key(flow);
        let outcome = self.table.find_or_insert(1, self.table.hasher().hash(&key), &key);
        let slot = outcome.slot().expect("there is room for all");
        let mut state = self.table.state(slot);
        state.set_note(note(&key));
        state.decide(self.now_ns as u64, verdict);
        self.table.set_state(slot, state);
        self.flows.entry(key).or_insert(Model::NEW).decide(self.now_ns, verdict);
    }

    fn reclaim(&mut self, buckets: usize, idle_ns: u64) {
        let (now_ns, flows) = (self.now_ns, &mut self.flows);
        let gone = self.table.expire(buckets, |key, _, state| {
            let goes = state.reclaimable(now_ns as u64, idle_ns);
            let model = flows[key];
            assert_eq!(
                goes,
                now_ns >= model.reclaimable_from(idle_ns.into()),
                "at {now_ns}: {idle_ns}, {model:?}"
            );
            if goes {
                flows.remove(key);
            }
            goes
        });
        self.met.reclaimed += gone;
    }

    fn pass(&mut self, ns: i128) {
        self.now_ns += ns;
        // A table is walked now and then; in two years an expiry is not what it was.
        if self.now_ns - self.swept_ns > 365 * DAY {
            self.swept_ns = self.now_ns;
            self.reclaim(2, 0);
        }
    }

    fn to(&mut self, flow: u8, edge: Edge, off: i8) {
        let Some(model) = self.flows.get(&key(flow)) else { return };
        let at_ns = match (edge, model.at(self.now_ns)) {
            (Edge::Reclaim(idle_ns), model) => model.reclaimable_from(idle_ns.into()),
            (Edge::Expiry, Model::Granted { expires_at_ns, .. } | Model::Declined { expires_at_ns }) => {
                expires_at_ns
            }
            (Edge::Renewal, Model::Granted { renews_at_ns: Some(renews_at_ns), .. }) => renews_at_ns,
            (Edge::Fits(bytes), Model::Granted { rate_kib_s: rate @ 1.., held, .. }) => {
                let cost = Model::cost(rate, bytes);
                let missing = if cost > FULL { 0 } else { cost - held };
                self.now_ns + (missing + 1023) / 1024
            }
            _ => return,
        };
        self.pass((at_ns + i128::from(off) - self.now_ns).clamp(0, 60 * DAY));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Burst(packets) => self.burst(packets),
            Step::Decide(flow, verdict) => self.decide(*flow, verdict),
            Step::Pass(ns) => self.pass((*ns).into()),
            Step::To(flow, edge, off) => self.to(*flow, *edge, *off),
            Step::Reclaim(buckets, idle_ns) => self.reclaim(*buckets, *idle_ns),
        }
        assert_eq!(self.table.len(), self.flows.len());
        for (key, model) in &self.flows {
            let slot =
                self.table.find(self.table.hasher().hash(key), key).expect("a flow that was not reclaimed");
            let state = self.table.state(slot);
            assert_eq!(
                state.show(self.now_ns as u64),
                model.show(self.now_ns),
                "at {}: {model:?}",
                self.now_ns
            );
            assert_eq!(state.note(), note(key));
        }
    }
}

fn run<const W: usize>(steps: &[Step]) {
    let mut world = World::<W>::new();
    for step in steps {
        world.step(step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_state_of_ipv4_flows_differs(steps in prop::collection::vec(step(), 1..150)) {
        run::<1>(&steps);
    }

    #[test]
    fn no_state_of_ipv6_flows_differs(steps in prop::collection::vec(step(), 1..150)) {
        run::<4>(&steps);
    }
}

/// Long runs from fixed seeds, and what they met.
fn long<const W: usize>(seeds: std::ops::Range<u8>) {
    for seed in seeds {
        let rng = TestRng::from_seed(Config::default().rng_algorithm, &[seed; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let (mut world, step) = (World::<W>::new(), step());
        for _ in 0..50_000 {
            world.step(&step.new_tree(&mut runner).unwrap().current());
        }
        assert!(world.met.all().iter().all(|&times| times > 100), "seed {seed}: {:?}", world.met);
    }
}

#[test]
fn long_runs_of_ipv4_flows_agree() {
    long::<1>(0..4);
}

#[test]
fn long_runs_of_ipv6_flows_agree() {
    long::<4>(4..8);
}
