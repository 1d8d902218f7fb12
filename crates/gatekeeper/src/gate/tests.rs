//! The gate against the plain words of Fu 2020, algorithms 5 to 7: a list of prefixes, a map of flows, one packet at a time.

use super::*;
use crate::config::Action;
use crate::family::Gated;
use crate::policy::{Policies, Policy};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::HashMap;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Fib, Prefix};

mod below;
mod full;
mod lives;
mod policies;
mod tunnels;

const SECOND: u64 = 1_000_000_000;

/// A packet that carries TCP, be it read as IPv4 or as IPv6: nothing that a Grantor would look into. Of IPv6 it has to be whole to be believed.
const TCP: [u8; 60] = {
    let mut ip = [0; 60];
    (ip[0], ip[5], ip[6], ip[9]) = (0x60, 20, 6, 6);
    ip
};

fn size(flows: usize) -> Size {
    Size { flows, program_flows: 64, secret: 7, spread: 9 }
}

const WAYS: [(Order, Driver); 6] = [
    (Order::OnePass, Driver::Plain),
    (Order::OnePass, Driver::Group),
    (Order::OnePass, Driver::Coroutine),
    (Order::FlowFirst, Driver::Plain),
    (Order::FlowFirst, Driver::Group),
    (Order::FlowFirst, Driver::Coroutine),
];

/// What the gate is told, plainly.
struct Oracle<A> {
    policies: Vec<(Prefix<A>, Action)>,
    flows: HashMap<(A, A), FlowState>,
}

/// A fate without the Grantor, which only the gate chooses.
#[derive(Debug, PartialEq, Eq)]
enum Plain {
    Route,
    To(u8),
    Drop(&'static str),
}

impl From<Act> for Plain {
    fn from(act: Act) -> Plain {
        match act {
            Act::Request { dscp } => Plain::To(dscp),
            Act::Granted { direct: true, .. } => Plain::Route,
            Act::Granted { dscp, .. } => Plain::To(dscp),
            Act::Declined => Plain::Drop("declined"),
            Act::OverRate => Plain::Drop("rate"),
        }
    }
}

fn plain(fate: Fate) -> Plain {
    match fate {
        Fate::Route => Plain::Route,
        Fate::Request(tag) | Fate::Unplaced(tag) | Fate::Granted(tag) => Plain::To(tag.dscp),
        Fate::Forged => Plain::Drop("forged"),
        Fate::PolicyDrop => Plain::Drop("policy"),
        Fate::Declined => Plain::Drop("declined"),
        Fate::OverRate => Plain::Drop("rate"),
    }
}

impl<A: Gated + std::hash::Hash> Oracle<A> {
    fn fate(&mut self, now_ns: u64, seen: &Seen<A>) -> Plain {
        let best = self.policies.iter().filter(|(prefix, _)| prefix.contains(seen.destination));
        match best.max_by_key(|(prefix, _)| prefix.len()).map(|(_, action)| *action) {
            Some(Action::Drop) => return Plain::Drop("policy"),
            Some(Action::Route) | None => return Plain::Route,
            Some(Action::Grantor) => {}
        }
        let flow = self.flows.entry((seen.source, seen.destination)).or_default();
        Plain::from(flow.packet(now_ns, seen.bytes))
    }
}

fn policy<A: Gated>(prefix: Prefix<A>, action: Action, grantors: &[A]) -> Policy<A> {
    let grantors = if action == Action::Grantor { grantors.to_vec() } else { Vec::new() };
    Policy { prefix, action, grantors }
}

fn verdict(random: &mut StdRng) -> Verdict {
    if random.random_bool(0.4) {
        return Verdict::Declined { expire_s: random.random_range(0..20) };
    }
    Verdict::Granted {
        rate_kib_s: random.random_range(0..4),
        expire_s: random.random_range(0..20),
        renew_ms: random.random_range(0..15_000),
        step_ms: random.random_range(0..3000),
        direct: random.random_bool(0.3),
    }
}

/// Random bursts of few flows, decisions between them, in every way at once.
fn all_ways_agree<A: Paired<W> + std::hash::Hash, const W: usize>(
    prefixes: &[(&str, Action)],
    grantors: &[A],
    address: impl Fn(u32) -> A,
) where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    for (order, driver) in WAYS {
        let mut random = StdRng::seed_from_u64(8);
        let domain = Domain::new();
        let reader = domain.register();
        let list: Vec<(Prefix<A>, Action)> =
            prefixes.iter().map(|(text, action)| (text.parse().unwrap(), *action)).collect();
        let policies: Vec<_> =
            list.iter().map(|(prefix, action)| policy(*prefix, *action, grantors)).collect();
        let control = Policies::new(&domain, Action::Route, &policies, A::MIN, Vec::new()).unwrap();
        let (fib, choices) = control.views();
        let mut oracle = Oracle { policies: list, flows: HashMap::new() };
        let mut gate = Gate::<A, W>::new(&size(4096), Catalog::new(&[]).unwrap()).unwrap();
        let mut counters = Counters::default();
        let (mut ns, mut packets, mut to) = (1_000 * SECOND, 0, HashMap::new());
        for _ in 0..600 {
            ns += random.random_range(0..SECOND / 4);
            let seen: Vec<Seen<A>> = (0..random.random_range(1..=BURST))
                .map(|_| Seen {
                    source: address(random.random_range(0..12)),
                    destination: address(random.random_range(0..40) << 24 | random.random_range(0..3)),
                    bytes: random.random_range(20..400),
                })
                .collect();
            let choices = || choices.get(&reader);
            let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
            let now = Now { ns, rules, order, driver, grace_ns: SECOND / 10, ip: &|_| &TCP };
            let mut fates = vec![Fate::PolicyDrop; seen.len()];
            gate.decide(&now, &mut counters, &seen, &mut fates);
            for (seen, fate) in seen.iter().zip(&fates) {
                // Within a burst the packets of one flow are judged in order, and flows know nothing of each other.
                assert_eq!(plain(*fate), oracle.fate(ns, seen), "{order:?} {driver:?} {seen:?}");
                if let Fate::Request(tag) | Fate::Granted(tag) = fate {
                    let key = (seen.source, seen.destination);
                    let grantor = *to.entry(key).or_insert(tag.grantor);
                    assert_eq!(grantor, tag.grantor, "a flow keeps its Grantor");
                    assert!(usize::from(grantor) < grantors.len());
                }
            }
            packets += seen.len() as u64;
            for _ in 0..random.random_range(0..6) {
                let (source, destination) =
                    (address(random.random_range(0..12)), address(random.random_range(0..40) << 24));
                let verdict = verdict(&mut random);
                let known =
                    gate.apply(ns, now.rules.of(destination), (source, destination), &verdict, None, None)
                        == Applied::Done;
                let there = oracle.flows.get_mut(&(source, destination));
                assert_eq!(known, there.is_some());
                there.into_iter().for_each(|flow| flow.decide(ns, &verdict));
            }
        }
        // All packets are accounted for, all Grantors have their part.
        let sum = [
            Counter::Requests,
            Counter::Granted,
            Counter::Declined,
            Counter::OverRate,
            Counter::PolicyDropped,
            Counter::Bypassed,
        ];
        assert_eq!(sum.map(|counter| counters.get(counter)).iter().sum::<u64>(), packets);
        assert!(sum.iter().all(|counter| counters.get(*counter) > 0), "{counters:?}");
        assert_eq!(counters.get(Counter::Front), packets);
        assert_eq!(gate.len(), oracle.flows.len());
        assert_eq!(counters.get(Counter::FlowsMade), gate.len() as u64);
        let used: std::collections::HashSet<u16> = to.values().copied().collect();
        assert_eq!(used.len(), grantors.len());
        // And the states themselves.
        let mut reader = gate.reader();
        for ((source, destination), state) in &oracle.flows {
            let mut flow = reader.get(&A::key(*source, *destination)).unwrap().state;
            flow.set_note(0);
            assert_eq!(flow, *state);
        }
    }
}

#[test]
fn every_order_and_driver_does_what_the_paper_says() {
    let prefixes = [
        ("0.0.0.0/1", Action::Grantor),
        ("10.0.0.0/8", Action::Drop),
        ("20.0.0.0/8", Action::Route),
        ("20.0.0.1/32", Action::Grantor),
    ];
    all_ways_agree::<u32, 1>(&prefixes, &[1, 2, 3], |n| n);
    let prefixes = [
        ("::/1", Action::Grantor),
        ("a00::/8", Action::Drop),
        ("1400::/8", Action::Route),
        ("1400::1/128", Action::Grantor),
    ];
    // The top byte where IPv4 has it, the low bits at the end.
    let address = |n: u32| u128::from(n >> 24) << 120 | u128::from(n & 0xff_ffff);
    all_ways_agree::<u128, 4>(&prefixes, &[1, 2, 3], address);
}

/// Judges a burst of a gate at a time.
type Judge = Box<dyn FnMut(&mut Gate<u32, 1>, u64, &[Seen<u32>]) -> Vec<Fate>>;

/// A gate whose policy sends everything to one Grantor, and something to judge bursts with.
fn judge(flows: usize) -> (Gate<u32, 1>, Judge) {
    judge_by(flows, Order::OnePass, Driver::Group)
}

fn judge_by(flows: usize, order: Order, driver: Driver) -> (Gate<u32, 1>, Judge) {
    let domain = Domain::new();
    let all = policy("0.0.0.0/0".parse().unwrap(), Action::Grantor, &[1]);
    let control = Policies::new(&domain, Action::Route, &[all], 0, Vec::new()).unwrap();
    let reader = domain.register();
    let (fib, choices) = control.views();
    let mut counters = Counters::default();
    let judge = move |gate: &mut Gate<u32, 1>, ns: u64, seen: &[Seen<u32>]| {
        let choices = || choices.get(&reader);
        let now = Now {
            ns,
            rules: Rules { policies: &**fib.get(&reader), choices: &choices },
            order,
            driver,
            grace_ns: SECOND / 10,
            ip: &|_| &TCP,
        };
        let mut fates = vec![Fate::Route; seen.len()];
        gate.decide(&now, &mut counters, seen, &mut fates);
        let _keeps = &control;
        fates
    };
    (Gate::new(&size(flows), Catalog::new(&[]).unwrap()).unwrap(), Box::new(judge))
}

/// The policy of [`judge`], without a table: everything to one Grantor.
struct Law<A>(Choices<A>);

impl<A: tidemill_lpm::Address> Fib<A> for Law<A> {
    fn lookup(&self, _: A) -> Label {
        Label(2)
    }

    fn name(&self) -> String {
        "law".into()
    }

    fn bytes(&self) -> usize {
        0
    }
}

thread_local! {
    static LAW: Law<u32> = {
        let all = policy("0.0.0.0/0".parse().unwrap(), Action::Grantor, &[1]);
        let control = Policies::new(&Domain::new(), Action::Route, &[all], 0, Vec::new()).unwrap();
        assert_eq!(control.label(7), 2);
        Law(control.choices().clone())
    };
}

fn with_law<R>(then: impl FnOnce(&Rules<'_, u32>) -> R) -> R {
    LAW.with(|law| then(&Rules { policies: law, choices: &|| &law.0 }))
}

fn reclaim(gate: &mut Gate<u32, 1>, ns: u64, idle_ns: u64, buckets: usize) -> usize {
    with_law(|rules| gate.reclaim(ns, idle_ns, rules, &mut Counters::default(), buckets))
}

fn apply(gate: &mut Gate<u32, 1>, ns: u64, flow: (u32, u32), verdict: &Verdict, by: Option<By>) -> Applied {
    with_law(|rules| gate.apply(ns, rules.of(flow.1), flow, verdict, None, by))
}

fn impose(gate: &mut Gate<u32, 1>, ns: u64, flow: (u32, u32), verdict: &Verdict) -> Applied {
    with_law(|rules| gate.impose(ns, rules.of(flow.1), flow, verdict, None, None))
}

fn to(source: u32) -> Seen<u32> {
    Seen { source, destination: 7, bytes: 46 }
}

#[test]
fn who_was_granted_before_asking_passes() {
    for (order, driver) in WAYS {
        let (mut gate, mut judge) = judge_by(100, order, driver);
        let granted =
            Verdict::Granted { rate_kib_s: 9, expire_s: 9, renew_ms: 9000, step_ms: 1000, direct: false };
        assert_eq!(impose(&mut gate, SECOND, (5, 7), &granted), Applied::Done);
        // Twice: the second packet finds a flow that knows its policy.
        for _ in 0..2 {
            let fates = judge(&mut gate, SECOND, &[to(5), to(6)]);
            let tag = |dscp| Tag { grantor: 0, dscp };
            assert_eq!(fates, [Fate::Granted(tag(1)), Fate::Request(tag(41))], "{order:?} {driver:?}");
        }
    }
}

#[test]
fn decided_flows_stay_until_their_time_is_over() {
    let (mut gate, mut judge) = judge(1000);
    let sources = [1, 2, 3];
    judge(&mut gate, SECOND, &sources.map(to));
    let granted =
        Verdict::Granted { rate_kib_s: 1, expire_s: 100, renew_ms: 90_000, step_ms: 1000, direct: false };
    assert_eq!(apply(&mut gate, SECOND, (1, 7), &granted, None), Applied::Done);
    assert_eq!(apply(&mut gate, SECOND, (2, 7), &Verdict::Declined { expire_s: 10 }, None), Applied::Done);
    assert_eq!(apply(&mut gate, SECOND, (9, 7), &granted, None), Applied::Unknown, "nobody asked");
    assert_eq!(impose(&mut gate, SECOND, (9, 7), &granted), Applied::Done, "but an operator may");
    let all = 1 << 20;
    assert_eq!(reclaim(&mut gate, 5 * SECOND, SECOND, all), 1, "who only asked is forgotten");
    assert_eq!(reclaim(&mut gate, 11 * SECOND, SECOND, all), 0, "just over, and still here for idle_ns");
    assert_eq!(reclaim(&mut gate, 13 * SECOND, SECOND, all), 1, "whose refusal is over");
    assert_eq!(gate.len(), 2);
    assert_eq!(reclaim(&mut gate, 103 * SECOND, SECOND, all), 2);
}
