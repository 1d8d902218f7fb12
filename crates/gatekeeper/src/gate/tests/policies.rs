//! Policies that change while flows live, against plain words: no number comes to mean anything else while a flow notes it, and no decision holds where its
//! Grantor is not asked any more.

use super::*;
use crate::offload::PASSES;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a policy says: the Grantors; none: drop or route. Addresses are numbers in all that is known plainly, and what is told of them to the gate is made of these.
type Meaning = (Action, Vec<u32>);

/// One worker, and what is known about its flows by other means.
struct Worker<A: Paired<W>, const W: usize> {
    gate: Gate<A, W>,
    counters: Counters,
    /// By flow: the meaning of the number that it was seen to note last.
    noted: BTreeMap<(u32, u32), (u16, Meaning)>,
    /// By flow: the Grantor whose decision it got last.
    decided: BTreeMap<(u32, u32), u32>,
    passed: u64,
}

struct World<A: Paired<W>, const W: usize> {
    address: fn(u32) -> A,
    control: Policies<A>,
    workers: Vec<Worker<A, W>>,
    /// What holds, plainly.
    policies: BTreeMap<Prefix<u32>, Meaning>,
    /// What numbers meant, for as long as the control side has them.
    meanings: BTreeMap<u32, Meaning>,
    ns: u64,
    reused: usize,
    /// The highest number.
    most: u32,
    fell: usize,
    held: usize,
}

const IDLE: u64 = 20 * SECOND;

fn prefix(random: &mut StdRng) -> Prefix<u32> {
    let len = [8, 12, 16][random.random_range(0..3)];
    Prefix::new((10 << 24) | (random.random_range(0..4_u32) << 20) | (random.random_range(0..4) << 16), len)
        .unwrap()
}

/// The prefix of addresses that are made of these numbers.
fn wide<A: Gated>(address: fn(u32) -> A, prefix: Prefix<u32>) -> Prefix<A> {
    Prefix::new(address(prefix.first()), A::BITS - 32 + prefix.len()).unwrap()
}

/// Of what number an address was made.
fn number_of<A: Gated>(address: A) -> u32 {
    address.to_u128() as u32
}

fn meaning(random: &mut StdRng) -> Meaning {
    match random.random_range(0..8) {
        0 => (Action::Route, Vec::new()),
        1 => (Action::Drop, Vec::new()),
        _ => {
            let first = random.random_range(1..9_u32);
            let grantors: Vec<u32> = (first..first + random.random_range(1..4)).collect();
            (Action::Grantor, grantors)
        }
    }
}

impl<A: Paired<W>, const W: usize> World<A, W> {
    fn new(domain: &Domain, address: fn(u32) -> A) -> Self {
        let worker = |_| Worker {
            gate: Gate::new(&size(272), Catalog::new(&[]).unwrap()).unwrap(),
            counters: Counters::default(),
            noted: BTreeMap::new(),
            decided: BTreeMap::new(),
            passed: 0,
        };
        World {
            address,
            control: Policies::new(domain, Action::Route, &[], A::MIN, Vec::new()).unwrap(),
            workers: (0..2).map(worker).collect(),
            policies: BTreeMap::new(),
            meanings: BTreeMap::new(),
            ns: 1000 * SECOND,
            reused: 0,
            most: 0,
            fell: 0,
            held: 0,
        }
    }

    fn of(&self, destination: u32) -> Option<&Meaning> {
        let here = self.policies.iter().filter(|(prefix, _)| prefix.contains(destination));
        here.max_by_key(|(prefix, _)| prefix.len()).map(|(_, meaning)| meaning)
    }

    /// Changes policies, by one of the ways that there are.
    fn change(&mut self, random: &mut StdRng) {
        let address = self.address;
        let make = |(prefix, (action, grantors)): (&Prefix<u32>, &Meaning)| Policy {
            prefix: wide(address, *prefix),
            action: *action,
            grantors: grantors.iter().map(|grantor| address(*grantor)).collect(),
        };
        match random.random_range(0..5) {
            0 => {
                let count = random.random_range(0..6);
                self.policies = (0..count).map(|_| (prefix(random), meaning(random))).collect();
                let all: Vec<_> = self.policies.iter().map(make).collect();
                let plan = self.control.plan(&all).unwrap();
                self.control.replace(plan, Action::Route, &all).unwrap();
            }
            1 => {
                let gone = self.policies.keys().copied().next();
                if let Some(gone) = gone {
                    self.policies.remove(&gone);
                    assert!(self.control.remove(wide(address, gone)).unwrap());
                }
            }
            _ => {
                let (prefix, meaning) = (prefix(random), meaning(random));
                self.control.set(&[make((&prefix, &meaning))]).unwrap();
                self.policies.insert(prefix, meaning);
            }
        }
        // A number that is known has the meaning that it had, unless it was freed meanwhile.
        for (prefix, now) in &self.policies {
            let number = self.control.number(wide(address, *prefix)).unwrap();
            self.most = self.most.max(number);
            if number > 1 {
                let before = self.meanings.insert(number, now.clone());
                assert!(before.is_none_or(|before| before == *now), "number {number} has another meaning");
            }
        }
    }

    /// Has some Grantors be down, or none.
    fn go_down(&mut self, random: &mut StdRng) {
        let down = if random.random_range(0..3) == 0 { 0 } else { random.random_range(0..1_u32 << 12) };
        self.control.set_down(|grantor| down >> number_of(grantor) & 1 != 0);
    }

    /// Frees what can be freed.
    fn free(&mut self) {
        let passed = self.workers.iter().map(|worker| worker.passed).min().unwrap();
        let before: Vec<u32> = self.meanings.keys().copied().collect();
        self.control.free(passed);
        for number in before {
            // The label of no prefix, and not retired: free.
            let label = |prefix: &Prefix<u32>| self.control.number(wide(self.address, *prefix));
            let in_use = self.policies.keys().any(|prefix| label(prefix) == Some(number));
            if !in_use && !self.control.choices().is_retired(number) {
                self.meanings.remove(&number);
                self.reused += 1;
            }
        }
    }

    /// No flow notes a number that does not mean what it meant when the flow noted it.
    fn check(&mut self) {
        for worker in &mut self.workers {
            let mut counts = BTreeMap::new();
            let mut now = BTreeMap::new();
            worker.gate.table.scan(0, 1 << 20, |key, _, state| {
                let (source, destination) = A::of_key(key);
                let (flow, note) = ((number_of(source), number_of(destination)), state.note());
                *counts.entry(note).or_insert(0_u32) += 1;
                if note > 1 {
                    let means = self.meanings.get(&note.into());
                    let means =
                        means.unwrap_or_else(|| panic!("{flow:?} notes {note}, which is free")).clone();
                    if let Some((before, meant)) = worker.noted.get(&flow)
                        && *before == note
                    {
                        assert_eq!(*meant, means, "{flow:?}");
                    }
                    now.insert(flow, (note, means));
                }
            });
            for (note, count) in counts.iter().filter(|(note, _)| **note > 0) {
                assert_eq!(worker.gate.uses[usize::from(*note)], *count, "number {note}");
            }
            let all: u32 = worker.gate.uses[1..].iter().sum();
            assert_eq!(
                all,
                counts.iter().filter(|(note, _)| **note > 0).map(|(_, count)| count).sum::<u32>()
            );
            worker.noted = now;
        }
    }
}

#[test]
fn no_flow_acts_under_a_policy_that_it_was_not_made_under() {
    for (order, driver) in [WAYS[1], WAYS[0], WAYS[3], WAYS[5]] {
        for seed in 0..3 {
            interleave::<u32, 1>((order, driver), seed, |n| n);
        }
        interleave::<u128, 4>((order, driver), 3, |n| 0xfd00 << 112 | u128::from(n));
    }
}

fn interleave<A: Paired<W>, const W: usize>(
    (order, driver): (Order, Driver),
    seed: u64,
    address: fn(u32) -> A,
) {
    let (domain, mut random) = (Domain::new(), StdRng::seed_from_u64(seed));
    let mut reader = domain.register();
    let mut world = World::<A, W>::new(&domain, address);
    let (fib, choices) = world.control.views();
    let mut below = 0;
    for round in 0..6000 {
        reader.quiescent();
        world.ns += random.random_range(0..SECOND / 5);
        let ns = world.ns;
        let here = random.random_range(0..world.workers.len());
        let choices = || choices.get(&reader);
        let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
        match random.random_range(0..20) {
            0 if random.random_range(0..3) == 0 => world.go_down(&mut random),
            0 => world.change(&mut random),
            // A worker between two bursts. It may be long until it comes round, and it goes through a part of its table only.
            1..4 => {
                let worker = &mut world.workers[here];
                let buckets = random.random_range(1..8);
                worker.gate.reclaim(ns, IDLE, &rules, &mut worker.counters, buckets);
                worker.passed = worker.gate.passed(rules.choices());
            }
            4 => world.free(),
            5..9 => {
                // Any Grantor that is named now may decide about a flow, for the worker that has it: asked or not, late or in time.
                let flow = (random.random_range(0..4), 10 << 24 | random.random_range(0..64_u32) << 16);
                let Some((Action::Grantor, grantors)) = world.of(flow.1).cloned() else { continue };
                let ends = (address(flow.0), address(flow.1));
                let at = rules.of(ends.1);
                let worker = &mut world.workers[here];
                let mut by = worker.gate.decides(at.1, at.0, ends.0, ends.1);
                if random.random_range(0..3) == 0 {
                    let any = grantors[random.random_range(0..grantors.len())];
                    by = at.1.decides(at.0, address(any)).unwrap();
                }
                let named = number_of(rules.choices().grantors[usize::from(by)]);
                assert!(grantors.contains(&named));
                let verdict = verdict(&mut random);
                if worker.gate.apply(ns, at, ends, &verdict, Some(by), None) == Applied::Done {
                    worker.decided.insert(flow, named);
                }
            }
            _ => {
                let flows: Vec<(u32, u32)> = (0..random.random_range(1..40))
                    .map(|_| (random.random_range(0..4), 10 << 24 | random.random_range(0..64_u32) << 16))
                    .collect();
                let see = |flow: &(u32, u32)| Seen {
                    source: address(flow.0),
                    destination: address(flow.1),
                    bytes: 46,
                };
                let seen: Vec<Seen<A>> = flows.iter().map(see).collect();
                let mut fates = vec![Fate::PolicyDrop; seen.len()];
                let now = Now { ns, rules, order, driver, grace_ns: SECOND / 10, ip: &|_| &TCP };
                let worker = &mut world.workers[here];
                let fell = worker.counters.get(Counter::FlowsOutgrown);
                worker.gate.decide(&now, &mut worker.counters, &seen, &mut fates);
                world.fell += (worker.counters.get(Counter::FlowsOutgrown) - fell) as usize;
                // What may be forwarded below is let on here, whatever flows there are.
                let passes = world.control.passes();
                for (seen, fate) in seen.iter().zip(&fates) {
                    if passes.lookup(seen.destination).is_some_and(|(_, label)| label == PASSES) {
                        assert_eq!(*fate, Fate::Route, "in round {round}: {seen:?}");
                        below += 1;
                    }
                }
                for (&flow, fate) in flows.iter().zip(&fates) {
                    let policy = world.of(flow.1).cloned().unwrap_or((Action::Route, Vec::new()));
                    let decided = world.workers[here].decided.get(&flow).copied();
                    let asked = |grantor: u32| policy.0 == Action::Grantor && policy.1.contains(&grantor);
                    let whose = |tag: &Tag| number_of(rules.choices().grantors[usize::from(tag.grantor)]);
                    match fate {
                        // Where nobody is asked, and what a grant says that goes past the Grantor.
                        Fate::Route => assert!(policy.0 == Action::Route || decided.is_some_and(asked)),
                        Fate::PolicyDrop => assert_eq!(policy.0, Action::Drop),
                        Fate::Request(tag) | Fate::Unplaced(tag) => {
                            assert!(asked(whose(tag)), "in round {round}: {flow:?}");
                        }
                        Fate::Forged => panic!("nothing is dressed as ours"),
                        Fate::Granted(tag) => {
                            assert!(asked(whose(tag)));
                            assert!(
                                decided.is_some_and(asked),
                                "in round {round}: {flow:?}, {decided:?} of {policy:?}"
                            );
                            world.held += 1;
                        }
                        Fate::Declined | Fate::OverRate => {
                            assert!(
                                decided.is_some_and(asked),
                                "in round {round}: {flow:?}, {decided:?} of {policy:?}"
                            );
                        }
                    }
                }
            }
        }
        world.check();
    }
    assert!(
        world.reused > 50 && world.fell > 10 && world.held > 20,
        "{} {} {}",
        world.reused,
        world.fell,
        world.held
    );
    assert!(below > 1000, "{below}");
    // Numbers stay few: they come back. And when all have been through, none is left over.
    assert!(world.most < 200, "{}", world.most);
    let choices = || choices.get(&reader);
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    for worker in &mut world.workers {
        for _ in 0..2 {
            worker.gate.reclaim(world.ns, IDLE, &rules, &mut worker.counters, 1 << 20);
        }
        worker.passed = worker.gate.passed(rules.choices());
    }
    world.free();
    world.check();
    assert!(!world.control.choices().any_retired());
}

/// All numbers in use: a change is refused whole and says why, and goes through when flows have passed.
#[test]
fn numbers_are_bounded_and_come_back() {
    let (domain, mut counters) = (Domain::new(), Counters::default());
    let reader = domain.register();
    let mut control = Policies::<u32>::new(&domain, Action::Route, &[], 0, Vec::new()).unwrap();
    let (fib, choices) = control.views();
    let mut gate = Gate::<u32, 1>::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
    // An action of its own for each of 10.x.y.0/24: pairs of 128 Grantors.
    let policies = |shift: u32| -> Vec<Policy<u32>> {
        let pair = |n: u32| vec![1 + n / 128, 1000 + shift + n % 128];
        let make = |n: u32| policy(Prefix::new(10 << 24 | n << 8, 24).unwrap(), Action::Grantor, &pair(n));
        (0..MOST_CHOICES as u32 - 2).map(make).collect()
    };
    let replace = |control: &mut Policies<u32>, all: &[Policy<u32>]| -> Result<(), String> {
        let plan = control.plan(all).map_err(|error| error.to_string())?;
        control.replace(plan, Action::Route, all).map_err(|error| error.to_string())
    };
    replace(&mut control, &policies(0)).unwrap();
    let one_more = policy("11.0.0.0/8".parse().unwrap(), Action::Grantor, &[5]);
    let error = control.plan(std::slice::from_ref(&one_more)).err().unwrap().to_string();
    assert!(error.contains("more than 8192 different actions: give prefixes the same Grantors"), "{error}");

    // A flow by one of them; then others, of which there is no room for any.
    let choices = || choices.get(&reader);
    let see = |gate: &mut Gate<u32, 1>, counters: &mut Counters| {
        let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
        let now = Now {
            ns: SECOND,
            rules,
            order: Order::OnePass,
            driver: Driver::Group,
            grace_ns: 0,
            ip: &|_| &TCP,
        };
        let seen = [Seen { source: 5, destination: 10 << 24 | 77 << 8, bytes: 46 }];
        let mut fates = [Fate::Route];
        gate.decide(&now, counters, &seen, &mut fates);
        fates[0]
    };
    assert!(matches!(see(&mut gate, &mut counters), Fate::Request(_)));
    let one = policies(0).remove(77);
    replace(&mut control, std::slice::from_ref(&one)).unwrap();
    let error = replace(&mut control, &policies(1000)).unwrap_err();
    assert!(
        error.contains("8189 are not in use any more but flows still have them: try again in some seconds"),
        "{error}"
    );
    assert_eq!(control.list(), [one], "nothing has changed");
    // The worker says that it has none of them.
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    control.free(gate.passed(rules.choices()));
    replace(&mut control, &policies(1000)[..8000]).unwrap();
    // Number 77's flow has its old number until its next packet, and so has the number its meaning.
    let old = 77 + 2;
    assert_eq!((gate.uses[old], control.choices().is_retired(old as u32)), (1, true));
    control.free(gate.passed(rules.choices()));
    assert!(control.choices().is_retired(old as u32));
    assert!(matches!(see(&mut gate, &mut counters), Fate::Request(_)));
    control.free(gate.passed(rules.choices()));
    assert!(!control.choices().is_retired(old as u32) && !control.choices().any_retired());
    assert!(counters.get(Counter::FlowsOutgrown) == 0, "it was not decided about");
}

/// No decision holds where its Grantor is not named, be it that another one was asked when it came, that the flow's own was down, or that a policy between named both.
#[test]
fn no_decision_passes_for_another_grantors() {
    // Who is named, who is down, who decides (0: nobody); whether the flow is granted then. It is 5's where it can be.
    type Step = (&'static [u32], u32, u32, bool);
    const CASES: [&[Step]; 7] = [
        &[(&[4], 0, 4, true), (&[4, 5, 6], 0, 0, true), (&[5, 6], 0, 0, false)],
        &[(&[4], 0, 0, false), (&[4, 5, 6], 0, 4, true), (&[5, 6], 0, 0, false)],
        &[(&[4, 5], 0, 4, true), (&[5], 0, 0, false)],
        &[(&[4, 5], 0, 5, true), (&[4, 5], 5, 0, true), (&[4], 5, 0, false)],
        &[(&[4, 5], 5, 4, true), (&[4, 5], 0, 0, true), (&[5], 0, 0, false)],
        &[(&[4], 0, 4, true), (&[4, 5, 6], 0, 5, true), (&[5, 6], 0, 0, true)],
        &[(&[4], 0, 4, true), (&[4, 5], 0, 0, true), (&[4, 5, 6], 0, 0, true), (&[6, 5, 4], 0, 0, true)],
    ];
    let grant = Verdict::Granted {
        rate_kib_s: 1 << 20,
        expire_s: 99,
        renew_ms: 90_000,
        step_ms: 1000,
        direct: false,
    };
    let flow = (3, 10 << 24);
    for (order, driver) in WAYS {
        for (case, steps) in CASES.into_iter().enumerate() {
            for sweeps in [false, true] {
                let (domain, mut counters) = (Domain::new(), Counters::default());
                let mut reader = domain.register();
                let mut control = Policies::<u32>::new(&domain, Action::Route, &[], 0, Vec::new()).unwrap();
                let (fib, choices) = control.views();
                let mut gate = Gate::<u32, 1>::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
                for (step, (named, down, by, holds)) in steps.iter().enumerate() {
                    reader.quiescent();
                    let ns = (step as u64 + 1) * SECOND;
                    control.set(&[policy("10.0.0.0/8".parse().unwrap(), Action::Grantor, named)]).unwrap();
                    control.set_down(|grantor| grantor == *down);
                    let choices = || choices.get(&reader);
                    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
                    let at = rules.of(flow.1);
                    if let Some(by) = at.1.decides(at.0, *by) {
                        assert_eq!(gate.impose(ns, at, flow, &grant, Some(by), None), Applied::Done);
                    }
                    if sweeps {
                        gate.reclaim(ns, IDLE, &rules, &mut counters, 1 << 20);
                    }
                    let now = Now { ns, rules, order, driver, grace_ns: 0, ip: &|_| &TCP };
                    let mut fates = [Fate::Route];
                    let seen = [Seen { source: flow.0, destination: flow.1, bytes: 46 }];
                    gate.decide(&now, &mut counters, &seen, &mut fates);
                    let is_granted = matches!(fates[0], Fate::Granted(_));
                    assert_eq!(
                        is_granted, *holds,
                        "case {case}, step {step}, {order:?}, {driver:?}, {sweeps}"
                    );
                }
                let fell = steps.windows(2).filter(|pair| pair[0].3 && !pair[1].3).count();
                assert_eq!(counters.get(Counter::FlowsOutgrown), fell as u64, "case {case}, {order:?}");
            }
        }
    }
}

/// What a stand-in has decided falls by its own revocation, also when home is back. While home is down, home's revocations are nothing to it: it would fall as often as it is decided.
#[test]
fn a_stand_in_can_revoke_what_it_decided_when_home_is_back() {
    for (order, driver) in WAYS {
        let domain = Domain::new();
        let all = policy("0.0.0.0/0".parse().unwrap(), Action::Grantor, &[1, 2]);
        let mut control = Policies::new(&domain, Action::Route, &[all], 0, Vec::new()).unwrap();
        let reader = domain.register();
        let (fib, choices) = control.views();
        let mut gate: Gate<u32, 1> = Gate::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
        let mut counters = Counters::default();
        let mut judge = |gate: &mut Gate<u32, 1>| {
            let choices = || choices.get(&reader);
            let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
            let now = Now { ns: SECOND, rules, order, driver, grace_ns: SECOND / 10, ip: &|_| &TCP };
            let mut fates = [Fate::Route];
            gate.decide(&now, &mut counters, &[to(5)], &mut fates);
            fates[0]
        };
        let granted = Verdict::Granted {
            rate_kib_s: 9000,
            expire_s: 99,
            renew_ms: 90_000,
            step_ms: 1000,
            direct: false,
        };
        let decide = |gate: &mut Gate<u32, 1>, control: &Policies<u32>, grantor: u16, version: u32| {
            let at = (control.label(7), control.choices());
            let by = Some(By { grantor, version });
            assert_eq!(gate.apply(SECOND, at, (5, 7), &granted, Some(grantor), by), Applied::Done);
        };
        let revoke = |gate: &mut Gate<u32, 1>, grantor: u16, version: u32| {
            gate.withdraw(SECOND, &Revocation { below: By { grantor, version }, to: None }).unwrap();
        };
        let passes = |grantor, dscp| Fate::Granted(Tag { grantor, dscp });
        let home = gate.decides(control.choices(), control.label(7), 5, 7);
        let other = 1 - home;
        let address = control.choices().grantors[usize::from(home)];
        assert!(matches!(judge(&mut gate), Fate::Request(tag) if tag.grantor == home));

        control.set_down(|grantor| grantor == address);
        decide(&mut gate, &control, other, 41);
        assert_eq!(judge(&mut gate), passes(other, 1));
        control.set_down(|_| false);
        assert_eq!(judge(&mut gate), passes(home, 1), "{order:?} {driver:?}");
        revoke(&mut gate, other, 42);
        assert_eq!(judge(&mut gate), passes(home, 2), "it asks home, {order:?} {driver:?}");
        // What home decides then is home's: the other one has no say in it.
        decide(&mut gate, &control, home, 41);
        revoke(&mut gate, other, 43);
        assert_eq!([judge(&mut gate), judge(&mut gate)], [passes(home, 1); 2]);

        // Home revokes and goes down: what the other one decides under its version of before stays.
        revoke(&mut gate, home, 44);
        control.set_down(|grantor| grantor == address);
        decide(&mut gate, &control, other, 43);
        assert_eq!([judge(&mut gate), judge(&mut gate)], [passes(other, 1); 2], "{order:?} {driver:?}");
        revoke(&mut gate, other, 44);
        assert_eq!(judge(&mut gate), passes(other, 2));
    }
}

/// A table that says what it is told to of every destination, and counts how often it is asked.
struct Told {
    label: AtomicU32,
    asked: AtomicU32,
}

impl Told {
    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl<A: tidemill_lpm::Address> Fib<A> for Told {
    fn lookup(&self, _: A) -> Label {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Label(self.label.load(Ordering::Relaxed))
    }

    fn name(&self) -> String {
        "told".into()
    }

    fn bytes(&self) -> usize {
        0
    }
}

const GRANT: Verdict =
    Verdict::Granted { rate_kib_s: 1 << 20, expire_s: 999, renew_ms: 900_000, step_ms: 1000, direct: false };

/// A prefix goes from its Grantor to where nobody is asked, and back, while another keeps the number that the flows of both note: from the next packet on by no order as before, and those of
/// the other prefix go on.
fn a_prefix_leaves<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A) {
    let net = |net: u32| Prefix::new(address(net << 24), A::BITS - 24).unwrap();
    for (order, driver) in WAYS {
        for (action, after) in [(Action::Drop, Fate::PolicyDrop), (Action::Route, Fate::Route)] {
            // Seconds from each packet to the next.
            for pause in [0, 1, 7] {
                let domain = Domain::new();
                let reader = domain.register();
                let asks = |n| policy(net(n), Action::Grantor, &[address(1)]);
                let given = [asks(10), asks(11)];
                let mut control = Policies::new(&domain, Action::Route, &given, A::MIN, Vec::new()).unwrap();
                let (fib, choices) = control.views();
                let mut gate = Gate::<A, W>::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
                let (mut counters, mut ns) = (Counters::default(), 1000 * SECOND);
                let flows = [10, 11].map(|n| (address(5), address(n << 24 | 7)));
                let mut judge = |gate: &mut Gate<A, W>| {
                    ns += pause * SECOND;
                    let choices = || choices.get(&reader);
                    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
                    let now = Now { ns, rules, order, driver, grace_ns: 0, ip: &|_| &TCP };
                    let seen = flows.map(|(source, destination)| Seen { source, destination, bytes: 46 });
                    let mut fates = [Fate::Declined; 2];
                    gate.decide(&now, &mut counters, &seen, &mut fates);
                    fates
                };
                let asked = judge(&mut gate);
                assert!(asked.iter().all(|fate| matches!(fate, Fate::Request(_))), "{asked:?}");
                let number = control.label(flows[0].1);
                for flow in flows {
                    let at = (control.label(flow.1), control.choices());
                    assert_eq!(at.0, number);
                    assert_eq!(gate.apply(1000 * SECOND, at, flow, &GRANT, Some(0), None), Applied::Done);
                }
                let granted = Fate::Granted(Tag { grantor: 0, dscp: 1 });
                for round in 0..2 {
                    assert_eq!([judge(&mut gate), judge(&mut gate)], [[granted; 2]; 2], "round {round}");
                    control.set(&[policy(net(10), action, &[])]).unwrap();
                    assert!(!control.choices().is_retired(number));
                    for _ in 0..3 {
                        assert_eq!(
                            judge(&mut gate),
                            [after, granted],
                            "{order:?} {driver:?} after {pause} s"
                        );
                    }
                    control.set(&[asks(10)]).unwrap();
                }
                assert_eq!(counters.get(Counter::FlowsOutgrown), 0);
            }
        }
    }
}

#[test]
fn a_prefix_that_leaves_its_grantor_takes_its_flows_along() {
    a_prefix_leaves::<u32, 1>(|n| n);
    a_prefix_leaves::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

/// By the paper's order a known flow asks no table; after a change once more, and as long as the second lasts in which it was seen. So a burst that still has the table of before, and sees that
/// something has changed, has not the last word.
#[test]
fn a_known_flow_is_looked_up_again_after_a_change() {
    for (order, driver) in WAYS.into_iter().filter(|(order, _)| *order == Order::FlowFirst) {
        let domain = Domain::new();
        let reader = domain.register();
        let asks = |prefix: &str| policy(prefix.parse().unwrap(), Action::Grantor, &[1]);
        let given = [asks("10.0.0.0/8"), asks("11.0.0.0/8")];
        let mut control = Policies::new(&domain, Action::Route, &given, 0, Vec::new()).unwrap();
        let (_, choices) = control.views();
        let to = 10 << 24;
        let told = Told { label: AtomicU32::new(control.label(to)), asked: AtomicU32::new(0) };
        let mut gate: Gate<u32, 1> = Gate::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
        let mut counters = Counters::default();
        // Its fate at this time, in tenths of a second, and how often the table has been asked by then.
        let mut judge = |gate: &mut Gate<u32, 1>, tenths: u64| {
            let choices = || choices.get(&reader);
            let rules = Rules { policies: &told, choices: &choices };
            let now = Now { ns: tenths * SECOND / 10, rules, order, driver, grace_ns: 0, ip: &|_| &TCP };
            let mut fates = [Fate::Declined];
            let seen = [Seen { source: 5, destination: to, bytes: 46 }];
            gate.decide(&now, &mut counters, &seen, &mut fates);
            (fates[0], told.asked())
        };
        let granted = Fate::Granted(Tag { grantor: 0, dscp: 1 });
        assert!(matches!(judge(&mut gate, 1000), (Fate::Request(_), 1)));
        let at = (control.label(to), control.choices());
        assert_eq!(gate.apply(100 * SECOND, at, (5, to), &GRANT, Some(0), None), Applied::Done);
        assert_eq!([judge(&mut gate, 1000), judge(&mut gate, 1010)], [(granted, 1); 2], "{driver:?}");
        // What numbers mean says that something has changed; the table is still the one of before.
        let before = control.label(to);
        control.set(&[policy("10.0.0.0/8".parse().unwrap(), Action::Drop, &[])]).unwrap();
        assert_eq!(judge(&mut gate, 1050), (granted, 2));
        assert_eq!(judge(&mut gate, 1059), (granted, 3), "the same second");
        told.label.store(control.label(to), Ordering::Relaxed);
        assert_eq!(judge(&mut gate, 1200), (Fate::PolicyDrop, 4));
        // Once it has been seen in another second it asks no more.
        told.label.store(before, Ordering::Relaxed);
        assert_eq!(judge(&mut gate, 1210), (granted, 5));
        assert_eq!([judge(&mut gate, 1210), judge(&mut gate, 1300)], [(granted, 5); 2], "{driver:?}");
        // A Grantor that goes down, or a change that is none of the prefixes', is no reason.
        control.set_down(|_| true);
        assert_eq!(judge(&mut gate, 1310), (granted, 5));
        // Our own addresses are.
        control.set_own(vec![to]).unwrap();
        assert_eq!(judge(&mut gate, 1320), (granted, 6));
    }
}
