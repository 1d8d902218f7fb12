//! The control side while workers work: reloads, and what an offload is told.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Flow, SECOND, frame, section};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tidemill_amp::offload::{
    Account, Hits, Lift, Offload, OffloadCounters, OffloadSettings, RuleEvent, Stands,
};
use tidemill_amp::{
    AmpError, Because, Counter, Mitigator, MitigatorControl, Side, Status, TopBy, Tuple, Wanted, graph,
};
use tidemill_lookup::qsbr::Domain;
use tidemill_wire::flow_key;

/// A control side, and its one worker's half without a graph.
struct Bench {
    control: MitigatorControl,
    mitigator: Box<Mitigator>,
    now_ns: u64,
}

impl Bench {
    fn new(toml: &str) -> Self {
        let ports = ["outside".to_string(), "inside".to_string()];
        let control = MitigatorControl::new(&section(toml), &ports, 1, &Domain::new()).unwrap();
        let mitigator = control.mitigator(0).unwrap();
        assert!(control.mitigator(0).is_none() && control.mitigator(1).is_none());
        Bench { control, mitigator, now_ns: 5000 * SECOND }
    }

    fn drops(&mut self, side: Side, packet: &[u8]) -> bool {
        let burst = [(side, frame(packet, 0))];
        let (settings, mut dropped) = (self.control.settings().clone(), false);
        self.mitigator.decide(
            &settings,
            self.now_ns,
            &burst,
            |(side, bytes)| (*side, &bytes[..]),
            |_| dropped = true,
        );
        self.mitigator.tick(&settings, self.now_ns);
        dropped
    }

    fn answer(&mut self, flow: &Flow) -> bool {
        self.drops(Side::Outside, &flow.answer())
    }

    fn complain(&mut self, flow: &Flow) {
        assert!(!self.drops(Side::Inside, &flow.complaint()));
    }

    fn query(&mut self, flow: &Flow) {
        assert!(!self.drops(Side::Inside, &flow.query()));
    }

    /// In steps that are short enough for the whole table to be swept.
    fn wait(&mut self, seconds: u64) {
        let settings = self.control.settings().clone();
        for _ in 0..seconds * 50 {
            self.now_ns += SECOND / 50;
            self.mitigator.tick(&settings, self.now_ns);
        }
    }
}

/// An offload that remembers what it was told.
#[derive(Default)]
struct Told {
    rules: HashMap<Tuple, u64>,
    settings: Vec<OffloadSettings>,
    replaced: usize,
    wrong: Vec<String>,
    /// Whether workers get a hand, and what they have taken out with it.
    hands: bool,
    lifted: Vec<Tuple>,
}

struct Hand(Arc<Mutex<Told>>);

impl Lift for Hand {
    fn lift(&mut self, key: &Tuple) -> bool {
        let mut told = self.0.lock().unwrap();
        told.rules.remove(key);
        told.lifted.push(*key);
        true
    }
}

struct FakeAccount(Arc<Mutex<Told>>);

impl Account for FakeAccount {
    fn hits(&self, _: &Tuple) -> Hits {
        Hits { packets: 1000, bytes: 100_000 }
    }
    fn collect(&self, each: &mut dyn FnMut(Tuple, Hits)) {
        let rules: Vec<Tuple> = self.0.lock().unwrap().rules.keys().copied().collect();
        rules.into_iter().for_each(|key| each(key, self.hits(&key)));
    }
}

struct Fake(Arc<Mutex<Told>>);

impl Offload for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn configure(&mut self, settings: &OffloadSettings) -> Result<(), String> {
        if settings.protocols.len() > 3 {
            return Err("this one takes 3 protocols: leave some out".into());
        }
        self.0.lock().unwrap().settings.push(settings.clone());
        Ok(())
    }
    fn adopted(&mut self, _: u64) -> Vec<(Tuple, u64)> {
        self.0.lock().unwrap().rules.iter().map(|(tuple, ends)| (*tuple, *ends)).collect()
    }
    fn lifter(&mut self) -> Option<Box<dyn Lift>> {
        let hands = self.0.lock().unwrap().hands;
        hands.then(|| Box::new(Hand(self.0.clone())) as _)
    }
    fn apply(&mut self, _: u64, events: &[RuleEvent], stands: Stands<'_>) {
        let mut told = self.0.lock().unwrap();
        for event in events {
            match *event {
                RuleEvent::Filtered { key, expires_ns } if stands(&key) => {
                    told.rules.insert(key, expires_ns);
                }
                RuleEvent::Filtered { .. } => {}
                RuleEvent::Removed { key } if told.rules.remove(&key).is_none() && !told.hands => {
                    told.wrong.push(format!("{key} was not there"));
                }
                RuleEvent::Removed { .. } => {}
            }
        }
    }
    fn replace(&mut self, _: u64, rules: &mut dyn Iterator<Item = (Tuple, u64)>, _: Stands<'_>) {
        let mut told = self.0.lock().unwrap();
        told.rules = rules.collect();
        told.replaced += 1;
    }
    fn poll(&mut self, _: u64) -> bool {
        false
    }
    fn account(&self) -> Box<dyn Account> {
        Box::new(FakeAccount(self.0.clone()))
    }
    fn counters(&self) -> OffloadCounters {
        let dropped = Hits { packets: 5, bytes: 500 };
        OffloadCounters {
            dropped,
            rules: self.0.lock().unwrap().rules.len() as u64,
            ..OffloadCounters::default()
        }
    }
    fn take_notes(&mut self) -> Vec<String> {
        vec!["fake: a note".into()]
    }
}

fn tuple(flow: &Flow) -> Tuple {
    let key = flow_key(&frame(&flow.answer(), 0), 14).unwrap();
    let (source_port, destination_port) = key.ports.unwrap();
    Tuple { addresses: key.addresses, source_port, destination_port }
}

fn flows(n: u32) -> Vec<Flow> {
    flows_from(0, n)
}

fn flows_from(first: u32, n: u32) -> Vec<Flow> {
    let flow = |n| Flow { amplifier: std::net::Ipv4Addr::from(0x0900_0000 + n).into(), ..Flow::v4() };
    (first..first + n).map(flow).collect()
}

#[test]
fn full_tables_are_said_once_a_minute() {
    let mut bench = Bench::new("entries = 16\nicmp_rate = 0");
    let flow = |n: u16| Flow { victim_port: 1000 + n, ..Flow::v4() };
    for n in 0..64 {
        bench.answer(&flow(n));
        bench.complain(&flow(n));
    }
    let untracked = bench.control.counters().get(Counter::Untracked);
    assert!(untracked > 0, "{:?}", bench.control.counters());
    bench.control.poll(bench.now_ns);
    let notes = bench.control.take_notes();
    let begin =
        format!("mitigator.entries: the tables of flows are full: {untracked} more answers were let through");
    assert!(notes.len() == 1 && notes[0].starts_with(&begin), "{notes:?}");
    // More of the same within the minute, and one line when it is over.
    bench.answer(&flow(1000));
    bench.now_ns += 59 * SECOND;
    bench.control.poll(bench.now_ns);
    assert!(bench.control.take_notes().is_empty());
    bench.now_ns += SECOND;
    bench.control.poll(bench.now_ns);
    assert_eq!(bench.control.take_notes().len(), 1);
    // No more: nothing to say.
    bench.now_ns += 61 * SECOND;
    bench.control.poll(bench.now_ns);
    assert!(bench.control.take_notes().is_empty());
}

#[test]
fn rules_of_a_process_before_go_on() {
    let toml =
        "offload = 'xdp'\nprotocols = ['dns']\noffload_pin = 'box'\nicmp_rate = 0\nallow = ['9.0.0.3']";
    let ports = ["outside".to_string(), "inside".to_string()];
    let mut control = MitigatorControl::new(&section(toml), &ports, 1, &Domain::new()).unwrap();
    let (flows, now_ns) = (flows(10), 5000 * SECOND);
    let told = Arc::new(Mutex::new(Told::default()));
    told.lock().unwrap().rules.extend(flows.iter().map(|flow| (tuple(flow), now_ns + 20 * SECOND)));
    control.set_offload(Box::new(Fake(told.clone()))).unwrap();
    // The list forbids one of them by now.
    assert_eq!(control.adopt(now_ns), 9);
    assert_eq!(told.lock().unwrap().rules.len(), 9);
    assert!(control.take_notes().iter().any(|note| note.contains("9 rules") && note.contains("1 are not")));
    let mitigator = control.mitigator(0).unwrap();
    let mut bench = Bench { control, mitigator, now_ns };
    let rules = bench.control.rules(&Wanted::default(), now_ns).rules;
    assert_eq!((rules.len(), rules[0].since_s), (9, None), "nobody knows how old they are");
    assert!(bench.answer(&flows[0]) && !bench.answer(&flows[3]));
    // A question lifts one as any other; the rest end when they would have.
    bench.query(&flows[1]);
    assert!(!bench.answer(&flows[1]));
    bench.wait(25);
    assert!(!bench.answer(&flows[0]));
    bench.control.poll(bench.now_ns);
    assert_eq!(told.lock().unwrap().rules.len(), 0);
    assert_eq!(told.lock().unwrap().wrong, [""; 0]);
    assert_eq!(bench.control.counters().get(Counter::RulesAdopted), 9);
    // They are not asked for twice.
    assert_eq!(bench.control.adopt(now_ns), 0);
}

#[test]
fn rules_of_a_process_before_find_room_in_all_tables() {
    // Together they have room for 186 of each family, one of them for 93.
    let toml = "entries = 64\noffload = 'xdp'\nprotocols = ['dns']\nicmp_rate = 0";
    let ports = ["outside".to_string(), "inside".to_string()];
    let mut control = MitigatorControl::with_secret(&section(toml), &ports, 2, &Domain::new(), 7).unwrap();
    let (flows, now_ns) = (flows(150), 5000 * SECOND);
    let told = Arc::new(Mutex::new(Told::default()));
    told.lock().unwrap().rules.extend(flows.iter().map(|flow| (tuple(flow), now_ns + 20 * SECOND)));
    control.set_offload(Box::new(Fake(told.clone()))).unwrap();
    assert_eq!(control.adopt(now_ns), 150);
    assert_eq!(told.lock().unwrap().rules.len(), 150, "none is taken out of the driver");
    let each: Vec<u64> =
        (0..2).map(|worker| control.counters_of(worker).unwrap().get(Counter::RulesAdopted)).collect();
    // They take turns; whose turn it is may have no room in two buckets, and the other one takes it.
    assert!(each[0] + each[1] == 150 && each[0].abs_diff(each[1]) <= 8, "{each:?}");
    assert_eq!(control.rules(&Wanted::default(), now_ns).rules.len(), 150);
    // Where they do not fit at all, what is left goes, and is said.
    let more = flows_from(1000, 100);
    told.lock().unwrap().rules = more.iter().map(|flow| (tuple(flow), now_ns + 20 * SECOND)).collect();
    let taken = control.adopt(now_ns);
    assert!((20..=36).contains(&taken), "{taken}");
    assert_eq!(told.lock().unwrap().rules.len(), taken);
    assert!(
        control.take_notes().iter().any(|note| note.contains(&format!("{} are not any more", 100 - taken)))
    );
}

#[test]
fn an_offload_knows_the_rules_that_there_are() {
    let toml = "offload = 'xdp'\nprotocols = ['dns']\nexpiry_s = 50\nicmp_rate = 0";
    let mut bench = Bench::new(toml);
    let told = Arc::new(Mutex::new(Told::default()));
    bench.control.set_offload(Box::new(Fake(told.clone()))).unwrap();
    let first = OffloadSettings { tuple: 4, protocols: vec![53], dry_run: false, entries: 262_144 };
    assert_eq!(told.lock().unwrap().settings, [first]);
    let flows = flows(300);
    for flow in &flows[..200] {
        assert!(!bench.answer(flow));
        bench.complain(flow);
    }
    assert!(bench.control.poll(bench.now_ns));
    assert_eq!(told.lock().unwrap().rules.len(), 200);
    assert!(told.lock().unwrap().rules.values().all(|&ends| ends == (bench.now_ns / SECOND + 50) * SECOND));
    // What it has kept away is in all that an operator sees.
    let page = bench.control.rules(&Wanted::default(), bench.now_ns);
    assert!(page.rules.len() == 200 && page.rules.iter().all(|rule| rule.hits.packets == 1000));
    let top = bench.control.top(TopBy::Protocol, 5, bench.now_ns);
    assert_eq!((top[0].hits.packets, top[0].rules), (200_000, 200));
    assert_eq!(bench.control.counters().get(Counter::OffloadDropped), 5);
    assert_eq!(bench.control.counters().get(Counter::OffloadRules), 200);
    assert!(bench.control.take_notes().contains(&"fake: a note".to_string()));
    // A question ends a rule; time ends the others.
    bench.query(&flows[7]);
    bench.control.poll(bench.now_ns);
    assert_eq!(told.lock().unwrap().rules.len(), 199);
    bench.wait(60);
    bench.control.poll(bench.now_ns);
    let counts = || {
        let told = told.lock().unwrap();
        (told.rules.len(), told.wrong.len(), told.replaced)
    };
    assert_eq!(counts(), (0, 0, 0));
    assert!(!bench.control.poll(bench.now_ns), "nothing to do");
    let ended =
        [Counter::RulesLifted, Counter::RulesExpired].map(|counter| bench.control.counters().get(counter));
    assert_eq!(ended, [1, 199]);
    // More than its queue holds: it is told anew.
    for n in 0..17_000 {
        let flow = Flow {
            victim_port: n as u16,
            port: 53,
            amplifier: [11, 0, (n >> 8) as u8, n as u8].into(),
            ..Flow::v4()
        };
        bench.answer(&flow);
        bench.complain(&flow);
    }
    assert!(bench.control.counters().get(Counter::EventsLost) > 0);
    assert!(bench.control.poll(bench.now_ns));
    assert_eq!(counts(), (17_000, 0, 1));
    assert!(bench.control.take_notes().iter().any(|note| note.contains("all 17000 told anew")));
    // It may refuse; then nothing changes.
    let error = bench.control.reload(&section("offload = 'xdp'\nexpiry_s = 60")).unwrap_err();
    assert_eq!(error.to_string(), "mitigator.offload: this one takes 3 protocols: leave some out");
    assert_eq!(bench.control.settings().expiry_s, 50);
}

#[test]
fn an_offload_that_nobody_named() {
    let mut bench = Bench::new("");
    let error = bench.control.set_offload(Box::new(Fake(Arc::default()))).unwrap_err();
    assert!(matches!(error, AmpError::Offload(_)), "{error}");
    assert!(!bench.control.poll(0) && bench.control.take_notes().is_empty());
}

#[test]
fn a_reload_takes_all_or_nothing() {
    let mut bench = Bench::new("icmp_rate = 0");
    let (flow, other) = (Flow::v4(), Flow { amplifier: "9.9.9.9".parse().unwrap(), ..Flow::v4() });
    for flow in [&flow, &other] {
        assert!(!bench.answer(flow));
        bench.complain(flow);
        assert!(bench.answer(flow));
    }
    for (toml, error) in [
        (
            "tuple = 3\nexpiry_s = 1",
            "mitigator.tuple: cannot change while the mitigator runs: put it back, or restart",
        ),
        (
            "entries = 7\ntuple = 1\noutside = 'inside'",
            "mitigator.outside, mitigator.tuple, mitigator.entries: cannot change while the mitigator runs: put it back, or restart",
        ),
        (
            "dry_run = true\nallow = ['10.0.0.1/8']",
            "mitigator.allow, entry 1: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?",
        ),
        (
            "offload = 'xdp'",
            "mitigator.offload: cannot change while the mitigator runs: put it back, or restart",
        ),
    ] {
        assert_eq!(bench.control.reload(&section(toml)).unwrap_err().to_string(), error);
        assert!(bench.answer(&flow) && bench.answer(&other));
    }
    bench.control.reload(&section("icmp_rate = 0\nallow = ['8.8.8.0/24']")).unwrap();
    assert!(!bench.answer(&flow) && bench.answer(&other), "from the next burst on");
    let key = flow_key(&frame(&flow.answer(), 0), 14).unwrap();
    assert!(matches!(bench.control.explain(&key, bench.now_ns).because, Because::Allowed { .. }));
    bench.wait(5);
    let counters = bench.control.counters();
    assert_eq!((counters.get(Counter::RulesAllowed), counters.get(Counter::Rules)), (1, 1));
    // Off the list again: the rule is gone, and would have to be learnt anew.
    bench.control.reload(&section("icmp_rate = 0")).unwrap();
    assert!(!bench.answer(&flow) && bench.answer(&other));
    bench.control.reload(&section("icmp_rate = 0\ndry_run = true\nprotocols = ['ntp']")).unwrap();
    assert!(!bench.answer(&other), "not looked at");
    bench.control.reload(&section("icmp_rate = 0\ndry_run = true")).unwrap();
    assert!(!bench.answer(&other));
    assert_eq!(bench.control.counters().get(Counter::WouldDrop), 1);
    bench.control.reload(&section("")).unwrap();
    assert!(bench.answer(&other));
}

#[test]
fn how_old_a_rule_is_does_not_change_with_a_reload() {
    let mut bench = Bench::new("icmp_rate = 0\nexpiry_s = 100");
    let flow = |n: u8| Flow { amplifier: [9, 9, 9, n].into(), ..Flow::v4() };
    let made = |bench: &mut Bench, n: u8| {
        assert!(!bench.answer(&flow(n)));
        bench.complain(&flow(n));
        bench.now_ns += 10 * SECOND;
    };
    let ages = |bench: &mut Bench| {
        let rules = bench.control.rules(&Wanted::default(), bench.now_ns).rules;
        let mut ages: Vec<_> =
            rules.iter().map(|rule| (rule.tuple.to_string(), rule.since_s, rule.left_s)).collect();
        ages.sort();
        ages.into_iter().map(|(_, since_s, left_s)| (since_s, left_s)).collect::<Vec<_>>()
    };
    made(&mut bench, 1);
    assert_eq!(ages(&mut bench), [(Some(10), 90)]);
    // Longer, shorter, and as at first: each keeps its own.
    for (n, expiry_s) in [(2, 7000), (3, 50), (4, 100)] {
        bench.control.reload(&section(&format!("icmp_rate = 0\nexpiry_s = {expiry_s}"))).unwrap();
        made(&mut bench, n);
    }
    assert_eq!(ages(&mut bench), [(Some(40), 60), (Some(30), 6970), (Some(20), 30), (Some(10), 90)]);
    let key = flow_key(&frame(&flow(2).answer(), 0), 14).unwrap();
    let because = bench.control.explain(&key, bench.now_ns).because;
    assert!(matches!(because, Because::Filtered { since_s: Some(30), left_s: 6970, .. }), "{because}");
    // More values than are told apart: what cannot be known is not said; what was known stays.
    for expiry_s in 200..220 {
        bench.control.reload(&section(&format!("icmp_rate = 0\nexpiry_s = {expiry_s}"))).unwrap();
    }
    made(&mut bench, 5);
    assert_eq!(ages(&mut bench)[3..], [(Some(20), 80), (None, 209)]);
}

#[test]
fn a_graph_is_built_of_ports_in_any_order() {
    let domain = Domain::new();
    let ports = ["lan".to_string(), "wan".to_string()];
    let control = MitigatorControl::new(&section("outside = 'wan'"), &ports, 2, &domain).unwrap();
    assert_eq!((control.outside(), control.inside()), ("wan", "lan"));
    let dot = graph(&control).build().unwrap().dot();
    assert!(dot.contains("\"mitigate\" -> \"port:lan\" [label=\"inside\"]"), "{dot}");
    for (ports, workers) in [(&ports[..1], 1), (&[][..], 1)] {
        assert!(MitigatorControl::new(&section(""), ports, workers, &domain).is_err());
    }
    let huge = MitigatorControl::new(&section("entries = 300000000"), &ports, 1, &domain).err().unwrap();
    assert_eq!(huge.to_string(), "mitigator.entries: 300000000: give 1 to 268435456");
}

/// A control side with an offload whose rules workers can take out by themselves, and the workers' halves.
fn hands(toml: &str, workers: usize) -> (MitigatorControl, Vec<Mitigator>, Arc<Mutex<Told>>) {
    let ports = ["outside".to_string(), "inside".to_string()];
    let text = format!("offload = 'xdp'\nprotocols = ['dns']\nicmp_rate = 0\n{toml}");
    let mut control = MitigatorControl::new(&section(&text), &ports, workers, &Domain::new()).unwrap();
    let told = Arc::new(Mutex::new(Told { hands: true, ..Told::default() }));
    control.set_offload(Box::new(Fake(told.clone()))).unwrap();
    let mitigators = (0..workers).map(|worker| *control.mitigator(worker).unwrap()).collect();
    (control, mitigators, told)
}

#[test]
fn a_question_lifts_a_rule_below_before_it_leaves() {
    let now_ns = 5000 * SECOND;
    // A question at the worker that has the rule, at another, and of one that the offload has not heard of yet.
    for (tuple, asks, installed, lifts) in [
        (4, 0, true, true),
        (4, 1, true, true),
        (3, 1, false, true),
        (2, 0, true, false),
        (2, 1, true, false),
    ] {
        let (mut control, mut workers, told) = hands(&format!("tuple = {tuple}"), 2);
        let settings = control.settings().clone();
        for flow in [Flow::v4(), Flow::v6()] {
            let case = format!("tuple {tuple}, worker {asks} asks, installed: {installed}, {flow:?}");
            let mut say = |worker: usize, side: Side, packet: &[u8]| {
                let (burst, mut dropped) = ([(side, frame(packet, 0))], false);
                workers[worker].decide(&settings, now_ns, &burst, |(s, b)| (*s, &b[..]), |_| dropped = true);
                dropped
            };
            assert!(!say(0, Side::Outside, &flow.answer()));
            assert!(!say(0, Side::Inside, &flow.complaint()));
            assert!(say(0, Side::Outside, &flow.answer()));
            if installed {
                control.poll(now_ns);
            }
            assert_eq!(told.lock().unwrap().rules.len(), usize::from(installed), "{case}");
            assert!(!say(asks, Side::Inside, &flow.query()));
            // The worker that has the rule is asleep, and nobody has polled.
            assert_eq!(told.lock().unwrap().lifted.is_empty(), !lifts, "{case}");
            assert_eq!(told.lock().unwrap().rules.is_empty(), lifts, "{case}");
            control.poll(now_ns);
            assert_eq!(told.lock().unwrap().rules.is_empty(), lifts, "it does not come back: {case}");
            assert_eq!(say(0, Side::Outside, &flow.answer()), !lifts, "the question is read first: {case}");
            control.poll(now_ns);
            let mut told = told.lock().unwrap();
            told.rules.clear();
            told.lifted.clear();
        }
    }
}

#[test]
fn a_question_without_room_lifts_what_others_filter() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut gang = Gang::new("entries = 16", 2);
        gang.filter(0, &flow);
        // Rules fill the table of the worker that is going to be asked.
        for n in 0..64 {
            let other = Flow { victim_port: 1000 + n, ..flow };
            gang.say(1, Side::Outside, &other.answer());
            gang.say(1, Side::Inside, &other.complaint());
        }
        assert!(gang.poll().contains(&tuple(&flow)));
        assert!(!gang.say(1, Side::Inside, &flow.query()));
        assert_eq!(gang.workers[1].counters().get(Counter::QueriesUntracked), 1);
        assert!(!gang.told.lock().unwrap().rules.contains_key(&tuple(&flow)), "before the question leaves");
        assert!(!gang.say(0, Side::Outside, &flow.answer()), "it has heard of the question");
        assert_eq!(gang.workers[0].counters().get(Counter::RulesLifted), 1);
        assert!(!gang.poll().contains(&tuple(&flow)), "it does not come back");
    }
}

#[test]
fn a_burst_lifts_so_many_rules_by_itself() {
    let (mut control, mut workers, told) = hands("tuple = 3", 1);
    let (settings, now_ns, flows) = (control.settings().clone(), 5000 * SECOND, flows(200));
    let mut say = |side: Side, packets: Vec<Vec<u8>>| {
        for packets in packets.chunks(100) {
            let burst: Vec<_> = packets.iter().map(|packet| (side, frame(packet, 0))).collect();
            workers[0].decide(&settings, now_ns, &burst, |(s, b)| (*s, &b[..]), |_| {});
        }
        workers[0].tick(&settings, now_ns);
    };
    say(Side::Outside, flows.iter().map(Flow::answer).collect());
    say(Side::Inside, flows.iter().map(Flow::complaint).collect());
    control.poll(now_ns);
    assert_eq!(told.lock().unwrap().rules.len(), 200);
    // Two bursts: 64 of each at once, the others by the control side.
    say(Side::Inside, flows.iter().map(Flow::query).collect());
    let counts = || {
        let told = told.lock().unwrap();
        (told.lifted.len(), told.rules.len())
    };
    assert_eq!(counts(), (128, 72));
    let counters = control.counters();
    assert_eq!((counters.get(Counter::RulesLifted), counters.get(Counter::OffloadLate)), (200, 72));
    control.poll(now_ns);
    assert_eq!(counts(), (128, 0));
}

/// Several workers that are driven by hand, with an offload.
struct Gang {
    control: MitigatorControl,
    workers: Vec<Mitigator>,
    told: Arc<Mutex<Told>>,
    now_ns: u64,
}

impl Gang {
    fn new(toml: &str, workers: usize) -> Self {
        let (control, workers, told) = hands(toml, workers);
        Gang { control, workers, told, now_ns: 5000 * SECOND }
    }

    fn say(&mut self, worker: usize, side: Side, packet: &[u8]) -> bool {
        let (settings, burst, mut dropped) =
            (self.control.settings().clone(), [(side, frame(packet, 0))], false);
        let now_ns = self.now_ns;
        self.workers[worker].decide(&settings, now_ns, &burst, |(s, b)| (*s, &b[..]), |_| dropped = true);
        dropped
    }

    /// Has a worker make a rule by itself.
    fn filter(&mut self, worker: usize, flow: &Flow) {
        assert!(!self.say(worker, Side::Outside, &flow.answer()));
        assert!(!self.say(worker, Side::Inside, &flow.complaint()));
        assert!(self.say(worker, Side::Outside, &flow.answer()));
    }

    fn tick(&mut self, worker: usize) {
        let settings = self.control.settings().clone();
        self.workers[worker].tick(&settings, self.now_ns);
    }

    fn poll(&mut self) -> Vec<Tuple> {
        self.control.poll(self.now_ns);
        let mut below: Vec<Tuple> = self.told.lock().unwrap().rules.keys().copied().collect();
        below.sort_unstable();
        below
    }
}

#[test]
fn a_rule_stays_below_as_long_as_a_worker_has_it() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut gang = Gang::new("expiry_s = 50\nentries = 64", 2);
        gang.filter(0, &flow);
        assert_eq!(gang.poll(), [tuple(&flow)]);
        // The other worker had nothing of it when it was told, and makes it anew by and by.
        gang.tick(1);
        gang.now_ns += 40 * SECOND;
        gang.filter(1, &flow);
        assert_eq!(gang.poll(), [tuple(&flow)]);
        gang.now_ns += 15 * SECOND;
        gang.tick(0);
        assert_eq!(gang.workers[0].counters().get(Counter::RulesExpired), 1, "over for the first one");
        assert_eq!(gang.poll(), [tuple(&flow)], "and not for the second");
        assert!(gang.say(1, Side::Outside, &flow.answer()));
        gang.now_ns += 40 * SECOND;
        gang.tick(1);
        assert_eq!(gang.poll(), []);
    }
}

#[test]
fn a_rule_of_a_process_before_reaches_the_workers_that_get_its_flow() {
    for flow in [Flow::v4(), Flow::v6()] {
        let ports = ["outside".to_string(), "inside".to_string()];
        let text = "offload = 'xdp'\nprotocols = ['dns']\nicmp_rate = 0\nexpiry_s = 50";
        let mut control = MitigatorControl::new(&section(text), &ports, 2, &Domain::new()).unwrap();
        let told = Arc::new(Mutex::new(Told { hands: true, ..Told::default() }));
        let now_ns = 5000 * SECOND;
        told.lock().unwrap().rules.insert(tuple(&flow), now_ns + 20 * SECOND);
        control.set_offload(Box::new(Fake(told.clone()))).unwrap();
        assert_eq!(control.adopt(now_ns), 1);
        let workers = (0..2).map(|worker| *control.mitigator(worker).unwrap()).collect();
        let mut gang = Gang { control, workers, told, now_ns };
        // The first one took it on. It comes to the second, and the victim's message to the first.
        assert!(gang.say(0, Side::Outside, &flow.answer()) && !gang.say(1, Side::Outside, &flow.answer()));
        assert!(!gang.say(0, Side::Inside, &flow.complaint()));
        gang.tick(1);
        assert!(gang.say(1, Side::Outside, &flow.answer()), "it passes as long as the rule holds");
        assert_eq!(gang.poll(), [tuple(&flow)]);
    }
}

#[test]
fn what_a_new_list_allows_leaves_the_offload_at_once() {
    let mut gang = Gang::new("entries = 100_000", 2);
    let some = flows(40);
    for (n, flow) in some.iter().enumerate() {
        gang.filter(n % 2, flow);
    }
    assert_eq!(gang.poll().len(), 40);
    // One of which the control side has not heard yet.
    let late = Flow { amplifier: "9.0.1.9".parse().unwrap(), ..Flow::v4() };
    gang.filter(1, &late);
    let text = |allow: &str| {
        format!("entries = 100_000\noffload = 'xdp'\nprotocols = ['dns']\nicmp_rate = 0\nallow = [{allow}]")
    };
    gang.control.reload(&section(&text("'9.0.0.0/28', '9.0.1.0/24'"))).unwrap();
    // No worker has moved since.
    let below = gang.poll();
    let kept: Vec<Tuple> = some[16..].iter().map(tuple).collect();
    assert_eq!(below, kept, "none of the list, and all others");
    assert_eq!(gang.poll(), kept);
    // The workers' words about it, later, change nothing.
    for _ in 0..200 {
        gang.now_ns += SECOND / 50;
        (0..2).for_each(|worker| gang.tick(worker));
    }
    assert_eq!(gang.control.counters().get(Counter::RulesAllowed), 17);
    assert_eq!(gang.poll(), kept);
}

#[test]
fn an_operator_sees_a_tuple_once_whichever_workers_have_it() {
    let mut gang = Gang::new("", 3);
    let (flow, six) = (Flow::v4(), Flow::v6());
    let some = flows(30);
    for flow in [&flow, &six].into_iter().chain(&some) {
        for worker in [2, 0] {
            gang.filter(worker, flow);
            (0..3).for_each(|worker| gang.tick(worker));
        }
        // The third suspects it, or knows no more than that.
        gang.say(1, Side::Outside, &flow.answer());
    }
    assert_eq!(gang.poll().len(), 32);
    let look = gang.control.look();
    // Whoever looks holds nobody up: the control side goes on.
    let section = gang.control.section().clone();
    gang.control.reload(&section).unwrap();
    let page = |limit: usize, status: Option<Status>| {
        let (mut all, mut wanted) = (Vec::new(), Wanted { limit, status, ..Wanted::default() });
        loop {
            let page = look.rules(&wanted, gang.now_ns);
            all.extend(page.rules);
            wanted.cursor = page.next;
            if page.next.is_none() {
                return all;
            }
        }
    };
    for limit in [1, 7, 100] {
        let all = page(limit, None);
        assert_eq!(all.len(), 32, "{limit}");
        // Two drops by our own rules, and the driver's once.
        assert!(all.iter().all(|rule| rule.status == Status::Filtered && rule.worker == 0));
        assert!(all.iter().all(|rule| rule.hits.packets == 1002), "{all:?}");
    }
    assert_eq!(page(10, Some(Status::Filtered)).len(), 32);
    assert_eq!(page(10, Some(Status::Suspected)), []);
    let top = look.top(TopBy::Protocol, 5, gang.now_ns);
    assert_eq!((top.len(), top[0].rules, top[0].hits.packets), (1, 32, 32 * 1002));
}
