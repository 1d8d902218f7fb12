//! The control side with workers that are stepped by hand: reloads that are refused, decisions for full tables, what was dropped by several, lists of flows.

use super::*;
use crate::config::{DefaultAction, Driver, OffloadKind, Order, PolicyConfig, ProbesConfig, ProgramConfig};
use crate::decision::Verdict;
use crate::decision::keys::KeyText;
use crate::gate::{Fate, Now, Seen};
use crate::mail::{By as Version, Revocation};
use crate::nodes::gate::GateNode;
use crate::nodes::solicitor::{OUTPUTS, Solicitor};
use crate::seat::Seat;
use crate::tag::{Tag, UNPLACED};
use crate::top::{WINDOW_NS, keys_of};
use crate::tunnel::path::Heard;
use std::collections::VecDeque;
use tidemill_burst::{BURST, Burst, DropReason, Memory, Packet, Pool};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict as Step};
use tidemill_ip::Interface;
use tidemill_ip::queue::Bandwidth;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn interfaces() -> Interfaces {
    interfaces_at(1)
}

/// The same with another host's addresses.
fn interfaces_at(host: u8) -> Interfaces {
    let mut back = Interface::of_port(1, "back");
    back.v4.push((format!("10.0.0.{host}").parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
    back.v6.push((format!("fd00::{host}").parse().unwrap(), "fd00::/64".parse().unwrap()));
    Interfaces::new(vec![Interface::of_port(0, "front"), back], 2)
}

fn policy(prefix: &str, action: Action, grantors: &[&str]) -> PolicyConfig {
    let grantors = grantors.iter().map(|grantor| (*grantor).into()).collect();
    PolicyConfig { prefix: prefix.into(), action, grantors }
}

fn section(flows: usize) -> GatekeeperSection {
    GatekeeperSection {
        policy: vec![
            policy("203.0.113.0/24", Action::Grantor, &["10.0.0.2"]),
            policy("2001:db8::/32", Action::Grantor, &["fd00::2"]),
        ],
        flows,
        ..GatekeeperSection::default()
    }
}

fn control(section: &GatekeeperSection, workers: usize) -> (Domain, GatekeeperControl) {
    let domain = Domain::new();
    // The sample of what was dropped is drawn by the secret: the same in every run.
    let control = GatekeeperControl::with_secret(section, &interfaces(), workers, &domain, 7).unwrap();
    (domain, control)
}

/// All that a reload could change, as far as it can be seen.
fn seen(control: &mut GatekeeperControl) -> String {
    control.poll();
    let flow = Addresses::V4 { src: 5, dst: 0xcb00_7107 };
    let (four, six) = (control.v4.policies.choices(), control.v6.policies.choices());
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        control.policies(),
        control.default_action(),
        (four.get(0), six.get(0)),
        (control.v4.policies.label(0xcb00_7107), control.v4.policies.label(9)),
        control.grantor_of(&flow),
        control.section(),
        control.settings(),
    )
}

/// What is refused leaves all as it was, policies that were added while running included; what is taken takes these away.
#[test]
fn a_reload_is_whole_or_not_at_all() {
    let (_domain, mut control) = control(&section(100), 1);
    control.set_policy(&policy("198.51.100.0/24", Action::Grantor, &["10.0.0.3"])).unwrap();
    control.set_policy(&policy("2001:dba::/32", Action::Drop, &[])).unwrap();
    let before = seen(&mut control);
    assert!(before.contains("198.51.100.0/24") && before.contains("2001:dba::/32"));

    // Wrong in its last policy.
    let wrong = GatekeeperSection {
        policy: vec![
            policy("192.0.2.0/24", Action::Drop, &[]),
            policy("2001:db9::/32", Action::Grantor, &["fd00::1"]),
        ],
        ..section(100)
    };
    assert!(control.reload(&wrong, &interfaces()).is_err());
    assert_eq!(seen(&mut control), before);
    assert!(matches!(control.reload(&section(101), &interfaces()), Err(GateError::Restart(_))));
    assert_eq!(seen(&mut control), before);

    // Good, but for one of the two tables, whichever that is.
    let good = GatekeeperSection {
        policy: vec![
            policy("203.0.113.0/25", Action::Grantor, &["10.0.0.4"]),
            policy("2001:db9::/32", Action::Grantor, &["fd00::4"]),
            policy("203.0.113.0/24", Action::Route, &[]),
        ],
        default: DefaultAction::Drop,
        ..section(100)
    };
    for full in [(true, false), (false, true)] {
        (control.v4.policies.is_full, control.v6.policies.is_full) = full;
        let error = control.reload(&good, &interfaces()).unwrap_err().to_string();
        assert!(error.contains("full, says the test"), "{error}");
        assert_eq!(seen(&mut control), before, "{full:?}");
        let added = policy("192.0.2.0/24", Action::Drop, &[]);
        (control.v4.policies.is_full, control.v6.policies.is_full) = (true, true);
        assert!(control.set_policy(&added).is_err());
        assert_eq!(seen(&mut control), before, "{full:?}");
        assert!(control.remove_policy("198.51.100.0/24").is_err());
        assert_eq!(seen(&mut control), before, "{full:?}");
    }
    // What is only prepared is nothing yet.
    (control.v4.policies.is_full, control.v6.policies.is_full) = (false, false);
    let prepared = control.prepare(&good, &interfaces()).unwrap();
    assert_eq!(seen(&mut control), before);
    control.commit(prepared).unwrap();
    let after = seen(&mut control);
    assert!(!after.contains("198.51.100.0/24") && after.contains("203.0.113.0/25"), "{after}");
    assert!(after.contains("Drop (Drop, Drop)"), "{after}");
}

/// What cannot change while packets flow is refused by its name, and nothing else of that configuration is taken either.
#[test]
fn what_cannot_change_is_refused_by_name() {
    let (_domain, mut control) = control(&section(100), 1);
    let before = seen(&mut control);
    let with = |change: fn(&mut GatekeeperSection)| {
        let mut section = GatekeeperSection { order: Order::FlowFirst, idle_s: 7, ..section(100) };
        section.policy.pop();
        change(&mut section);
        section
    };
    let program = |section: &mut GatekeeperSection| {
        section.program.push(ProgramConfig { number: 5, file: "a file".into() });
    };
    let cases: [(&str, GatekeeperSection); 8] = [
        ("flows", with(|section| section.flows = 101)),
        ("program_flows", with(|section| section.program_flows = 7)),
        ("program", with(program)),
        ("spread", with(|section| section.spread = 7)),
        ("request_queue", with(|section| section.request_queue = 7)),
        ("bandwidth", with(|section| section.bandwidth = Some(Bandwidth::Bits(7_000_000)))),
        ("request_percent", with(|section| section.request_percent = 7)),
        ("offload", with(|section| section.offload = OffloadKind::Xdp)),
    ];
    for (key, section) in cases {
        let error = control.reload(&section, &interfaces()).unwrap_err().to_string();
        let wanted =
            format!("gatekeeper.{key}: cannot change while the gatekeeper runs: put it back, or restart");
        assert_eq!(error, wanted);
        assert_eq!(seen(&mut control), before, "{key}");
    }
    // It was these keys alone.
    control.reload(&with(|_| ()), &interfaces()).unwrap();
    assert_ne!(seen(&mut control), before);
}

/// All the rest is what workers see from then on, where they look. What is known of the ways to Grantors stays known by another source.
#[test]
fn what_can_change_is_seen_by_workers() {
    let (domain, mut control) = control(&section(100), 1);
    let reader = domain.register();
    let (settings, endpoints) = (control.settings.view(), control.v4.policies.endpoints());
    let mut back = Interface::of_port(1, "back");
    for host in [1, 5] {
        back.v4.push((format!("10.0.0.{host}").parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
        back.v6.push((format!("fd00::{host}").parse().unwrap(), "fd00::/64".parse().unwrap()));
    }
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back], 2);
    control.interfaces(&interfaces).unwrap();
    // Something was sent to the Grantor, and its way is known to be narrow.
    let path = endpoints.get(&reader)[0].path();
    path.note(START, 1500);
    assert_eq!(path.hear(START, 1500, 1400, 576), Heard::Lowered);
    for (order, driver) in [
        (Order::OnePass, Driver::Plain),
        (Order::FlowFirst, Driver::Coroutine),
        (Order::FlowFirst, Driver::Group),
        (Order::OnePass, Driver::Group),
    ] {
        let section = GatekeeperSection {
            order,
            driver,
            idle_s: 9,
            keep_dscp: true,
            revocation_grace_ms: 5,
            source: vec!["10.0.0.5".into(), "fd00::5".into()],
            ..section(100)
        };
        control.reload(&section, &interfaces).unwrap();
        let now = settings.get(&reader);
        assert_eq!((now.order, now.driver, now.idle_ns), (order, driver, 9 * SECOND));
        assert_eq!((now.keep_dscp, now.grace_ns), (true, 5_000_000));
        let end = &endpoints.get(&reader)[0];
        assert_eq!((end.source(), end.grantor()), (0x0a00_0005, 0x0a00_0002));
        assert_eq!(end.path().hear(START, 1500, 1400, 576), Heard::Known);
    }
    control.reload(&section(100), &interfaces).unwrap();
    assert_eq!(endpoints.get(&reader)[0].source(), 0x0a00_0001);
    assert_eq!(settings.get(&reader).idle_ns, 60 * SECOND);
}

/// A configuration and our addresses hold together or not at all: what has no room for these has none of the policies either.
#[test]
fn a_reload_without_room_for_our_addresses_is_none() {
    // Without IPv4 policies, so that the addresses are all that changes in that table.
    let of =
        |prefix: &str| GatekeeperSection { policy: vec![policy(prefix, Action::Drop, &[])], ..section(100) };
    let (_domain, mut control) = control(&of("2001:db8::/32"), 1);
    let numbers = |control: &GatekeeperControl| {
        let six = |host: u128| control.v6.policies.label(0xfd00 << 112 | host);
        [control.v4.policies.label(0x0a00_0001), control.v4.policies.label(0x0a00_0009), six(1), six(9)]
    };
    let before = seen(&mut control);
    assert_eq!(numbers(&control), [1, 0, 1, 0]);
    for full in [(true, false), (false, true)] {
        (control.v4.policies.is_full, control.v6.policies.is_full) = full;
        let error = control.reload(&of("2001:db9::/32"), &interfaces_at(9)).unwrap_err().to_string();
        assert!(error.contains("full, says the test"), "{error}");
        assert!(control.interfaces(&interfaces_at(9)).is_err());
        assert_eq!((seen(&mut control), numbers(&control)), (before.clone(), [1, 0, 1, 0]), "{full:?}");
    }
    // Those that go are known to have been ours.
    (control.v4.policies.is_full, control.v6.policies.is_full) = (false, false);
    control.reload(&of("2001:db9::/32"), &interfaces_at(9)).unwrap();
    assert_eq!(numbers(&control), [0, 1, 0, 1]);
    assert!(seen(&mut control).contains("2001:db9::/32"));
}

/// What is forwarded below goes by one state of policies and interfaces, and each change of these makes it void.
#[test]
fn what_passes_below_is_void_when_something_changes() {
    let (_domain, mut control) = control(&section(100), 1);
    assert_eq!(control.ways(), None);
    let words: Arc<dyn Words> = Arc::new((0..offload::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let _picks = control.refuse_below(words).unwrap();
    let passes = |control: &GatekeeperControl, destination: &str| {
        let (v4, v6) = control.bypass(true).passes.unwrap();
        let label = match destination.parse::<IpAddr>().unwrap() {
            IpAddr::V4(to) => v4.lookup(to.into()).map(|(_, label)| label),
            IpAddr::V6(to) => v6.lookup(to.into()).map(|(_, label)| label),
        };
        label.map(|label| label == offload::PASSES)
    };
    let mut ways = control.ways();
    let mut is_void = |control: &GatekeeperControl| std::mem::replace(&mut ways, control.ways()) != ways;
    // Nobody's, and our own; a protected one, and the Grantors.
    for there in ["8.8.8.8", "10.0.0.1", "2001:dba::1", "fd00::1"] {
        assert_eq!(passes(&control, there), Some(true), "{there}");
    }
    for there in ["203.0.113.7", "10.0.0.2", "2001:db8::7", "fd00::2"] {
        assert_eq!(passes(&control, there), Some(false), "{there}");
    }
    let bypass = control.bypass(false);
    assert!(bypass.passes.is_none() && !bypass.keeps_dscp && bypass.is_front == [true, false]);
    assert!(!is_void(&control));

    control.set_policy(&policy("8.8.8.0/24", Action::Drop, &[])).unwrap();
    assert!(is_void(&control) && passes(&control, "8.8.8.8") == Some(false));
    assert!(control.remove_policy("8.8.8.0/24").unwrap());
    assert!(is_void(&control) && passes(&control, "8.8.8.8") == Some(true));
    control.interfaces(&interfaces()).unwrap();
    assert!(is_void(&control));
    let closed = GatekeeperSection { default: DefaultAction::Drop, keep_dscp: true, ..section(100) };
    control.reload(&closed, &interfaces()).unwrap();
    assert!(is_void(&control) && passes(&control, "8.8.8.8") == Some(false));
    assert!(control.bypass(false).keeps_dscp && passes(&control, "10.0.0.1") == Some(true));
    // In whichever order flows and policies are looked up.
    let flows = GatekeeperSection { order: Order::FlowFirst, ..section(100) };
    control.reload(&flows, &interfaces()).unwrap();
    assert!(is_void(&control) && passes(&control, "8.8.8.8") == Some(true));
    assert!(!is_void(&control));
}

/// A Grantor that goes down, or comes back, has no say in what is forwarded below; what is refused there is void only where flows get another one.
#[test]
fn a_grantor_that_goes_down_stops_nothing_that_passes_below() {
    let section = GatekeeperSection {
        policy: vec![
            policy("203.0.113.0/24", Action::Grantor, &["10.0.0.2", "10.0.0.3"]),
            policy("2001:db8::/32", Action::Grantor, &["fd00::2"]),
        ],
        keys: vec![KeyText(format!("1 {}", "ab".repeat(32)))],
        probes: ProbesConfig { interval_ms: 10, fall: 1, rise: 1 },
        ..section(100)
    };
    let (_domain, mut control) = control(&section, 1);
    let words: Arc<dyn Words> = Arc::new((0..offload::WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let (picks, _picks6) = control.refuse_below(words).unwrap();
    let mut hand = picks.hand(0);
    let mut round = 0;
    let mut go_on = |control: &mut GatekeeperControl, there: &[&str]| {
        round += 1;
        control.round.store(round, Ordering::Relaxed);
        control.poll();
        for peer in &control.trust.current().peers {
            if there.contains(&peer.address.to_string().as_str()) {
                peer.pulse.answered.store(round, Ordering::Relaxed);
            }
        }
    };
    let all = ["10.0.0.2", "10.0.0.3", "fd00::2"];
    (0..3).for_each(|_| go_on(&mut control, &all[..]));
    let ways = control.ways();
    // Of a flow that sends much.
    hand.begin();
    (0..100).for_each(|_| hand.refused(START, u32::key(5, 0xcb00_7107), START + SECOND));
    let pick = picks.take().unwrap();
    // IPv6 has no other: nothing moves.
    (0..3).for_each(|_| go_on(&mut control, &all[..2]));
    assert!(control.is_down("fd00::2".parse().unwrap()) && picks.holds(pick.shard, pick.stamp));
    (0..3).for_each(|_| go_on(&mut control, &all[..1]));
    assert!(control.is_down("10.0.0.3".parse().unwrap()) && !picks.holds(pick.shard, pick.stamp));
    assert_eq!(control.ways(), ways, "down");
    (0..3).for_each(|_| go_on(&mut control, &all[..]));
    assert!(!control.is_down("10.0.0.3".parse().unwrap()));
    assert_eq!(control.ways(), ways, "back");
}

/// A worker's half of IPv4, its time and its policies.
struct Worker {
    seat: Box<Seat<u32, 1>>,
    notes: Box<Notes>,
}

fn workers(control: &GatekeeperControl, count: usize) -> Vec<Worker> {
    let of = |worker| {
        let seat = control.v4.seats.take(worker).unwrap();
        Worker { seat, notes: control.notes.take(worker).unwrap() }
    };
    (0..count).map(of).collect()
}

impl Worker {
    fn judge(&mut self, rules: &Rules<'_, u32>, ns: u64, flows: &[(u32, u32)]) -> Vec<Fate> {
        let see = |&(source, destination)| Seen { source, destination, bytes: 46 };
        let seen: Vec<Seen<u32>> = flows.iter().map(see).collect();
        let mut fates = vec![Fate::Route; seen.len()];
        let now = Now {
            ns,
            rules: *rules,
            order: crate::config::Order::OnePass,
            driver: crate::config::Driver::Group,
            grace_ns: 0,
            ip: &|_| &[0x45; 20],
        };
        self.seat.gate.decide(&now, &mut self.seat.counters, &seen, &mut fates);
        fates
    }

    fn tick(&mut self, rules: &Rules<'_, u32>, ns: u64) {
        self.seat.tick(ns, 60 * SECOND, rules);
        self.notes.refused.tick(ns);
    }
}

const HERE: u32 = 0xcb00_7107;

/// In a flood of invented sources no worker has room for a newcomer. The one that sent its request on makes its flow when the answer comes; the others do not.
#[test]
fn the_worker_that_asked_makes_the_flow_where_all_tables_are_full() {
    let (domain, mut control) = control(&section(200), 2);
    let mut workers = workers(&control, 2);
    let reader = domain.register();
    let (fib, choices) = control.v4.policies.views();
    let choices = || choices.get(&reader);
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    let mut next = 1000;
    for worker in &mut workers {
        for _ in 0..40 {
            let flood: Vec<(u32, u32)> = (next..next + 200).map(|source| (source, HERE)).collect();
            worker.judge(&rules, START, &flood);
            next += 200;
        }
    }
    let fates = workers[1].judge(&rules, START, &[(5, HERE)]);
    let Fate::Unplaced(tag) = fates[0] else { panic!("{fates:?}") };
    // What the solicitor does with that when it leaves.
    workers[1].notes.unplaced.note(5, HERE);
    let verdict = Verdict::Granted {
        rate_kib_s: 1 << 20,
        expire_s: 60,
        renew_ms: 50_000,
        step_ms: 1000,
        direct: false,
    };
    let letter = |source| Letter {
        source,
        destination: HERE,
        verdict,
        make: control.v4.post.is_alone(),
        grantor: Some(tag.grantor),
        by: None,
    };
    // About the newcomer, and about somebody who has not asked.
    assert_eq!((control.v4.post.send(&letter(5)), control.v4.post.send(&letter(6))), (0, 0));
    workers.iter_mut().for_each(|worker| worker.tick(&rules, START));
    let of = |control: &mut GatekeeperControl, src| {
        let lines = control.flow(&Addresses::V4 { src, dst: HERE }, START);
        lines.iter().map(|line| (line.worker, line.state_name())).collect::<Vec<_>>()
    };
    assert_eq!(of(&mut control, 5), [(1, "granted")]);
    assert_eq!(of(&mut control, 6), []);
    let count = |worker: &Worker, counter| worker.seat.counters.get(counter);
    let counts = |worker| {
        [Counter::DecisionsApplied, Counter::DecisionsUnknown, Counter::FlowsReplaced]
            .map(|counter| count(worker, counter))
    };
    // It goes where packets make no flows, so nobody gives way yet.
    assert_eq!([counts(&workers[0]), counts(&workers[1])], [[0, 2, 0], [1, 1, 0]]);
    assert!(matches!(workers[1].judge(&rules, START, &[(5, HERE)])[0], Fate::Granted(_)));
}

/// With stages: an operator's decision makes no flow where no packet of it comes.
#[test]
fn workers_without_a_gate_get_no_decisions() {
    let (domain, mut control) = control(&section(200), 4);
    let mut workers = workers(&control, 4);
    let reader = domain.register();
    let (fib, choices) = control.v4.policies.views();
    let choices = || choices.get(&reader);
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    control.set_gates(|worker| worker % 2 == 1, |worker| worker == 2);
    assert_eq!((control.v4.post.is_alone(), control.v6.post.is_alone()), (false, true));
    let flow = Addresses::V4 { src: 5, dst: HERE };
    assert!(control.decide(&Decision { flow, verdict: Verdict::Declined { expire_s: 60 } }));
    workers.iter_mut().for_each(|worker| worker.tick(&rules, START));
    let lines = control.flow(&flow, START);
    let of: Vec<_> = lines.iter().map(|line| (line.worker, line.state_name())).collect();
    assert_eq!(of, [(1, "declined"), (3, "declined")]);
    let counters = control.counters();
    let counts = [Counter::Flows4, Counter::DecisionsApplied, Counter::DecisionsUnknown, Counter::MailLost];
    assert_eq!(counts.map(|counter| counters.get(counter)), [2, 2, 0, 0]);
}

/// What a Grantor has taken back is not shown as if it held, though no packet has come since.
#[test]
fn a_silent_flow_is_shown_as_revoked() {
    let (domain, mut control) = control(&section(200), 1);
    let mut workers = workers(&control, 1);
    let reader = domain.register();
    let (fib, choices) = control.v4.policies.views();
    let choices = || choices.get(&reader);
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    let fates = workers[0].judge(&rules, START, &[(5, HERE)]);
    let Fate::Request(Tag { grantor, .. }) = fates[0] else { panic!("{fates:?}") };
    let verdict =
        Verdict::Granted { rate_kib_s: 1024, expire_s: 60, renew_ms: 50_000, step_ms: 1000, direct: false };
    let by = |version| Version { grantor, version };
    let letter = |version| Letter {
        source: 5,
        destination: HERE,
        verdict,
        make: true,
        grantor: Some(grantor),
        by: Some(by(version)),
    };
    let revoke = |version, to| Revocation { below: by(version), to };
    let of = |control: &mut GatekeeperControl| {
        let flow = control.flow(&Addresses::V4 { src: 5, dst: HERE }, START)[0].state_name();
        (flow, control.flows(&Wanted::default(), START).flows[0].state_name())
    };
    assert_eq!(control.v4.post.send(&letter(41)), 0);
    workers[0].tick(&rules, START);
    assert_eq!(of(&mut control), ("granted", "granted"));
    // Of another destination.
    assert_eq!(control.v4.post.revoke(&revoke(42, Some((9, 9)))), 0);
    workers[0].tick(&rules, START);
    assert_eq!(of(&mut control), ("granted", "granted"));
    assert_eq!(control.v4.post.revoke(&revoke(42, None)), 0);
    // While somebody looks the worker waits for nobody, and comes back.
    let looks = control.v4.workers[0].revoked.clone();
    let looking = looks.lock().unwrap();
    assert!(workers[0].seat.tick(START, 60 * SECOND, &rules).is_some_and(|due_ns| due_ns < START + SECOND));
    drop(looking);
    assert_eq!(of(&mut control), ("granted", "granted"));
    workers[0].tick(&rules, START);
    assert_eq!(of(&mut control), ("revoked", "revoked"));
    let of_state = |state: &str| Wanted { state: Some(state.into()), ..Wanted::default() };
    let count = |control: &GatekeeperControl, state| control.flows(&of_state(state), START).flows.len();
    assert_eq!((count(&control, "revoked"), count(&control, "granted")), (1, 0));
    // By the version of now.
    assert_eq!(control.v4.post.send(&letter(42)), 0);
    workers[0].tick(&rules, START);
    assert_eq!(of(&mut control), ("granted", "granted"));
}

/// A worker that no packets come to reads all that it was sent, not as much as it reads at once and the rest when it wakes.
#[test]
fn a_worker_comes_back_at_once_for_decisions_that_it_has_not_read() {
    let (domain, control) = control(&section(100), 1);
    let mut workers = workers(&control, 1);
    let reader = domain.register();
    let (fib, choices) = control.v4.policies.views();
    let choices = || choices.get(&reader);
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    let letter = |source| Letter {
        source,
        destination: HERE,
        verdict: Verdict::Declined { expire_s: 60 },
        make: false,
        grantor: None,
        by: None,
    };
    for source in 0..300 {
        assert_eq!(control.v4.post.send(&letter(source)), 0);
    }
    assert_eq!(workers[0].seat.tick(START, 60 * SECOND, &rules), Some(START));
    let read = |worker: &Worker| worker.seat.counters.get(Counter::DecisionsUnknown);
    assert_eq!(read(&workers[0]), 256);
    assert_ne!(workers[0].seat.tick(START, 60 * SECOND, &rules), Some(START));
    assert_eq!(read(&workers[0]), 300);
}

#[test]
fn a_packet_that_ends_in_its_header_has_no_flow_to_show() {
    let (_domain, control) = control(&section(100), 1);
    let (policies, choices) = control.v4.policies.views();
    let four = GateNode::<u32, 1>::new(control.settings.view(), policies, choices, None);
    let (policies, choices) = control.v6.policies.views();
    let six = GateNode::<u128, 4>::new(control.settings.view(), policies, choices, None);
    let memory = Memory::new(BURST, 2048).unwrap();
    let mut pool = memory.pool(BURST).unwrap();
    let nodes: [(&dyn Node, usize); 2] = [(&four, 20), (&six, 40)];
    for (node, header) in nodes {
        for len in 1..=header {
            let packet = pool.packet(&vec![0; len]).unwrap();
            assert_eq!(node.explain(&packet).is_some(), len == header, "{len} of {header}");
            pool.free(packet);
        }
    }
}

/// One line for each that was dropped of, whoever dropped it: two gates and a solicitor.
#[test]
fn what_workers_drop_is_added_up() {
    let drops = GatekeeperSection { default: DefaultAction::Drop, ..section(100) };
    let (domain, mut control) = control(&drops, 2);
    let mut workers = workers(&control, 2);
    let reader = domain.register();
    let (fib, choices) = control.v4.policies.views();
    let choices = || choices.get(&reader);
    let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
    workers.iter_mut().for_each(|worker| worker.tick(&rules, START));
    assert!(!control.top_has_begun());
    // The default drops what is to 9; of source 5 both workers drop, of 6 one.
    for _ in 0..30 {
        workers[0].judge(&rules, START, &[(5, 9); 200]);
        workers[1].judge(&rules, START, &[(5, 9); 100]);
        workers[1].judge(&rules, START, &[(6, 9); 50]);
    }
    for _ in 0..4000 {
        workers[0].notes.refused.dropped(|| &[0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 9]);
    }
    workers.iter_mut().for_each(|worker| worker.tick(&rules, START + WINDOW_NS));
    assert!(control.poll() && control.top_has_begun());
    let now_ns = START + WINDOW_NS + SECOND;
    let address = |n: u32| Some(IpAddr::V4(n.into()));
    for (by, first) in [
        (By::Source, (address(5), None)),
        (By::Flow, (address(5), address(9))),
        (By::Destination, (None, address(9))),
    ] {
        let lines = control.top(by, 10, now_ns);
        let whose: Vec<_> = lines.iter().map(|line| (line.source, line.destination)).collect();
        assert_eq!(whose.iter().filter(|whose| **whose == first).count(), 1, "{lines:?}");
        assert_eq!((whose[0], lines.len()), (first, 2 - usize::from(by == By::Destination)));
        let truth = if by == By::Destination { 14_500 } else { 13_000 };
        assert_eq!(lines[0].workers, 2);
        assert!((lines[0].low..=lines[0].high).contains(&truth), "{:?}", lines[0]);
        // One window alone would say no more than 10,000.
        assert!(lines[0].low > 10_800, "{:?}", lines[0]);
        if let Some(second) = lines.get(1) {
            assert_eq!((second.source, second.workers), (address(6), 1));
            assert!((second.low..=second.high).contains(&1500), "{second:?}");
        }
    }
    assert_eq!(control.top(By::Flow, 1, now_ns).len(), 1);
    // A window later that of worker 1 alone is the last; then none is.
    for _ in 0..2000 {
        workers[1].seat.gate.heavy().dropped(|| keys_of(8, 9));
    }
    workers[1].tick(&rules, START + 2 * WINDOW_NS);
    control.poll();
    let lines = control.top(By::Source, 10, START + 2 * WINDOW_NS + 2 * SECOND);
    assert_eq!(lines.iter().map(|line| line.source).collect::<Vec<_>>(), [address(8)]);
    assert_eq!(lines[0].ended_ns, START + 2 * WINDOW_NS);
    assert!(control.top(By::Source, 10, START + 3 * WINDOW_NS + 2 * SECOND).is_empty());
    // Boxes go to and fro for ever.
    for window in 3..9 {
        (0..1000).for_each(|_| workers[1].seat.gate.heavy().dropped(|| keys_of(8, 9)));
        workers[1].tick(&rules, START + window * WINDOW_NS);
        assert!(control.poll(), "window {window}");
    }
}

/// A source's request: level, number of its source, whether its flow found no room.
type Request = (u8, u32, bool);

/// Gives bursts at their times, sends into nothing.
struct Wire(VecDeque<(u64, Vec<Request>)>, PortCounters);

impl Port for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some((time_ns, requests)) = self.0.pop_front() else { return Ok(RxStatus::Ended) };
        for (level, source, unplaced) in requests {
            let mut frame = vec![0; 60];
            (frame[0], frame[1], frame[14]) = (level, u8::from(unplaced), 0x45);
            frame[26..30].copy_from_slice(&source.to_be_bytes());
            frame[30..34].copy_from_slice(&HERE.to_be_bytes());
            let mut packet = pool.packet(&frame).unwrap();
            packet.set_timestamp_ns(time_ns);
            self.1.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.1.tx.packets += burst.len() as u64;
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.1
    }
}

/// Stands for the gate.
struct Before;

impl Node for Before {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Step]) {
        for packet in burst {
            let unplaced = if packet.data()[1] != 0 { UNPLACED } else { 0 };
            packet.label = Tag { grantor: 0, dscp: packet.data()[0] }.label() | unplaced;
            packet.l3 = 14;
        }
    }
}

/// Requests that the solicitor refuses or pushes out are among what was dropped; of those that leave it remembers the ones whose flow found no room.
#[test]
fn the_solicitor_says_what_it_drops_and_what_leaves() {
    let (domain, mut control) = control(&section(100), 1);
    let notes = control.notes.take(0).unwrap();
    let unplaced = notes.unplaced.clone();
    // Room for 64, and a budget that lets one burst's go. The first tick begins the window.
    let mut input = VecDeque::from([(START, vec![(41, 1, false)])]);
    for at in 1..=20 {
        // Refused: source 5, but for the first; pushed out by the higher ones: source 6.
        let mut burst: Vec<Request> = vec![(40, 6, true); 64];
        burst.extend([(40, 5, true); 100]);
        burst.extend((0..64).map(|n| (50, 100 + n, n % 2 == 0)));
        input.push_back((START + at * 100_000_000, burst));
    }
    input.push_back((START + WINDOW_NS + SECOND, vec![(41, 1, false)]));
    let mut graph = GraphBuilder::new(["wire"]);
    graph.node("before", ["on"], |_| Box::new(Before));
    let (board, budget) = (control.solicitors.clone(), control.budget.clone());
    let notes = Mutex::new(Some(notes));
    graph.node("solicitor", OUTPUTS, move |_| {
        Box::new(Solicitor::new(64, budget.clone(), &board).with_notes(notes.lock().unwrap().take()))
    });
    graph.input("wire", "before").edge("before", "on", "solicitor");
    OUTPUTS.iter().for_each(|output| {
        graph.edge("solicitor", output, "port:wire");
    });
    let memory = Memory::new(8 * BURST, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 8 * BURST,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let ports: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(Wire(input, PortCounters::default()))]];
    let outcome =
        Engine::new(graph.build().unwrap(), 1, ports, &memory, &domain, options).unwrap().run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    let dropped = [DropReason::RequestQueueFull, DropReason::RequestEvicted].map(|r| ledger.dropped_for(r));
    assert_eq!(dropped, [20 * 100, 20 * 64]);
    assert!(control.poll());
    let lines = control.top(By::Source, 10, START + WINDOW_NS + SECOND);
    for (source, truth) in [(5_u32, 2000), (6, 1280)] {
        let line = lines.iter().find(|line| line.source == Some(IpAddr::V4(source.into()))).unwrap();
        assert!((line.low..=line.high).contains(&truth), "{lines:?}");
    }
    let all = control.top(By::Destination, 10, START + WINDOW_NS + SECOND);
    assert!(all.len() == 1 && (all[0].low..=all[0].high).contains(&3280), "{all:?}");
    let taken = |source: u32| unplaced.take(source, HERE);
    assert!(!taken(5) && !taken(6) && !taken(1), "who was dropped, and who had room");
    assert!((0..64).all(|n| taken(100 + n) == (n % 2 == 0)));
}

/// One flow among tables with room for many: no page looks at more than its part of them, and all together find it once.
#[test]
fn a_rare_flow_is_found_page_by_page() {
    let (_domain, mut control) = control(&section(600_000), 1);
    let flow = Addresses::V4 { src: 5, dst: HERE };
    let verdict = Verdict::Declined { expire_s: 60 };
    assert_eq!(control.decide_before_start(0, START, [Decision { flow, verdict }]), 1);
    let buckets = control.v4.workers[0].reader.buckets() + control.v6.workers[0].reader.buckets();
    let mut wanted = Wanted { state: Some("declined".into()), ..Wanted::default() };
    let (mut pages, mut found) = (0, Vec::new());
    loop {
        let page = control.flows(&wanted, START);
        found.extend(page.flows);
        pages += 1;
        wanted.cursor = page.next;
        if page.next.is_none() {
            break;
        }
        assert!(pages < 100, "it does not end");
    }
    assert_eq!(found.iter().map(|line| line.source).collect::<Vec<_>>(), [IpAddr::V4(5.into())]);
    assert!(pages >= buckets / PAGE_BUCKETS && pages <= buckets / PAGE_BUCKETS + 2, "{pages} of {buckets}");
}
