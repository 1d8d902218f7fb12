use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

const S: u64 = SECOND_NS;
const HOST: u32 = 0x0a01_0002;

fn key(address: u32) -> Key {
    Key { interface: 0, address: IpAddr::V4(Ipv4Addr::from(address)) }
}

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

const ANSWER: How = How::Reply { solicited: true, overrides: true };

fn reply(key: Key, mac: MacAddr) -> Event {
    Event::Heard { key, mac: Some(mac), how: ANSWER }
}

/// A table with its clock.
struct Bench {
    table: Table,
    now_ns: u64,
    out: Vec<Action>,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        Bench { table: Table::new(Timers::default(), limits), now_ns: 1000 * S, out: Vec::new() }
    }

    fn default() -> Self {
        Bench::new(Limits::default())
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.table.event(self.now_ns, &event, true, &mut self.out);
        self.take()
    }

    fn tick(&mut self) -> Vec<Action> {
        while self.table.tick(self.now_ns, &mut self.out).is_some_and(|due_ns| due_ns <= self.now_ns) {}
        self.take()
    }

    fn take(&mut self) -> Vec<Action> {
        check(&self.table);
        std::mem::take(&mut self.out)
    }

    /// Everything that happens in the next `ns`, each at its time.
    fn run(&mut self, ns: u64) -> Vec<(u64, Action)> {
        let (start_ns, end_ns) = (self.now_ns, self.now_ns + ns);
        let mut all = Vec::new();
        loop {
            let next_ns = self.table.tick(self.now_ns, &mut self.out);
            all.extend(self.take().into_iter().map(|action| (self.now_ns - start_ns, action)));
            match next_ns {
                Some(due_ns) if due_ns <= end_ns => self.now_ns = due_ns,
                _ => break,
            }
        }
        self.now_ns = end_ns;
        all
    }

    fn state(&self, key: Key) -> Option<State> {
        self.table.get(key).map(|neighbor| neighbor.state)
    }

    fn resolve(&mut self, key: Key, mac: MacAddr) {
        self.tell(Event::Wanted(key));
        let said = self.tell(reply(key, mac)); // others may have given way
        assert_eq!(said.last(), Some(&Action::Resolved { key, mac, fresh: true }));
    }
}

/// Everything in the table agrees with everything else.
fn check(table: &Table) {
    let mut places = [0; 3];
    for (key, entry) in &table.entries {
        assert!(entry.due_ns.is_none_or(|due_ns| table.due.contains(&(due_ns, *key))), "{key:?}");
        assert!(
            entry.due_ns.is_some() || entry.state == State::Static || table.down.contains(&key.interface)
        );
        assert!(!entry.state.is_known() || entry.mac.is_unicast());
        places[match entry.place() {
            Place::Pinned => 0,
            Place::Answered => 1,
            Place::Unanswered => 2,
        }] += 1;
    }
    let due = table.entries.values().filter(|entry| entry.due_ns.is_some()).count();
    assert_eq!((places[1], places[2], due), (table.answered.len(), table.unanswered.len(), table.due.len()));
    assert!(places[0] + places[1] <= table.limits.entries && places[2] <= table.limits.incomplete);
    for key in table.entries.keys() {
        assert!(table.answered.count(key.interface) <= table.limits.per_interface, "{key:?}");
    }
}

fn solicit(key: Key) -> Action {
    Action::Solicit { key, to: None }
}

fn probe(key: Key, to: MacAddr) -> Action {
    Action::Solicit { key, to: Some(to) }
}

fn lost(key: Key, why: Loss) -> Action {
    Action::Lost { key, why }
}

#[test]
fn asked_three_times_a_second_apart_then_lost_then_asked_anew() {
    let (mut bench, host) = (Bench::default(), key(HOST));
    assert_eq!(bench.tell(Event::Wanted(host)), [solicit(host)]);
    assert_eq!(bench.tell(Event::Wanted(host)), [], "asked already");
    let silent = lost(host, Loss::Silent);
    assert_eq!(bench.run(3 * S), [(S, solicit(host)), (2 * S, solicit(host)), (3 * S, silent)]);
    assert_eq!(bench.tell(Event::Wanted(host)), [silent], "refused at once for a second");
    assert_eq!(bench.run(S), []);
    assert!(bench.table.is_empty());
    assert_eq!(bench.tell(Event::Wanted(host)), [solicit(host)]);
}

#[test]
fn known_neighbors_are_probed_and_packets_flow_meanwhile() {
    let (mut bench, host) = (Bench::default(), key(HOST));
    bench.resolve(host, mac(1));
    assert_eq!(bench.state(host), Some(State::Reachable));
    assert_eq!(bench.tell(Event::Wanted(host)), [Action::Resolved { key: host, mac: mac(1), fresh: false }]);
    assert_eq!(bench.run(15 * S - 1), [], "at least half of the time");
    let probed = bench.run(31 * S);
    let first_ns = probed[0].0;
    assert!(first_ns <= 30 * S + 1);
    let again = |n: u64| (first_ns + n * S, probe(host, mac(1)));
    let all = [again(0), again(1), again(2), (first_ns + 3 * S, lost(host, Loss::Silent))];
    assert_eq!(probed, all[..probed.len()]);
    bench.run(3 * S);
    assert!(bench.table.is_empty(), "lost: whoever wants it asks everybody");

    bench.resolve(host, mac(1));
    while bench.state(host) != Some(State::Probe) {
        bench.run(S);
    }
    let silent = Event::Heard { key: host, mac: None, how: ANSWER };
    assert_eq!(bench.tell(silent), [], "an advertisement may leave the address out");
    assert_eq!(bench.state(host), Some(State::Reachable));
}

#[test]
fn gateways_are_asked_for_ever_and_come_back() {
    let (mut bench, gateway) = (Bench::default(), key(HOST));
    assert!(bench.table.hold(bench.now_ns, gateway, &mut bench.out));
    assert_eq!(bench.take(), [solicit(gateway)]);
    let asked: Vec<_> = bench.run(60 * S).into_iter().map(|(ns, action)| (ns / S, action)).collect();
    let at = |s: u64| (s, solicit(gateway));
    let failed = (3, lost(gateway, Loss::Silent));
    assert_eq!(asked, [at(1), at(2), failed, at(4), at(6), at(10), at(18), at(28), at(38), at(48), at(58)]);
    // Traffic asks sooner, but not more often than once a second.
    assert_eq!(bench.tell(Event::Wanted(gateway)), [solicit(gateway)]);
    assert_eq!(bench.tell(Event::Wanted(gateway)), []);
    bench.resolve(gateway, mac(1));
    // It goes silent: lost, and asked for at once.
    let silent: Vec<_> = bench.run(50 * S).into_iter().map(|(_, action)| action).collect();
    let probes = probe(gateway, mac(1));
    assert_eq!(silent[..5], [probes, probes, probes, lost(gateway, Loss::Silent), solicit(gateway)]);
    // It comes back and says so.
    let back = Event::Heard { key: gateway, mac: Some(mac(1)), how: How::Gratuitous };
    assert_eq!(bench.tell(back), [Action::Resolved { key: gateway, mac: mac(1), fresh: true }]);
    bench.table.release(bench.now_ns, gateway, &mut bench.out);
    bench.run(100 * S);
    assert!(bench.table.is_empty(), "released, it is as any other");
}

#[test]
fn advertisements_follow_rfc_4861_7_2_5() {
    use State::{Reachable, Stale};
    // Start, other MAC?, solicited, override: state after, whether the MAC changes.
    let cases = [
        (Reachable, true, false, false, Stale, false),
        (Reachable, true, true, false, Stale, false),
        (Stale, true, true, false, Stale, false),
        (State::Probe, true, true, false, State::Probe, false),
        (Reachable, true, false, true, Stale, true),
        (Stale, true, false, true, Stale, true),
        (State::Probe, true, false, true, Stale, true),
        (State::Probe, true, true, true, Reachable, true),
        (State::Probe, false, true, false, Reachable, false),
        (State::Probe, false, true, true, Reachable, false),
        (State::Probe, false, false, true, State::Probe, false),
        (Reachable, false, false, true, Reachable, false),
        (Stale, false, false, true, Stale, false),
        // Not by the RFC: we have not asked, so it answers no question of ours.
        (Stale, false, true, true, Stale, false),
        (Reachable, true, true, true, Stale, true),
    ];
    for case in cases {
        let (start, other, solicited, overrides, after, moves) = case;
        let (mut bench, host) = (Bench::default(), key(HOST));
        bench.tell(Event::Wanted(host));
        let how = How::Reply { solicited: start != Stale, overrides: false };
        bench.tell(Event::Heard { key: host, mac: Some(mac(1)), how });
        while bench.state(host) != Some(start) {
            bench.run(S / 2);
        }
        let how = How::Reply { solicited, overrides };
        let said = bench.tell(Event::Heard { key: host, mac: Some(mac(1 + u8::from(other))), how });
        assert_eq!((bench.state(host), !said.is_empty()), (Some(after), moves), "{case:?}");
        assert_eq!(bench.table.get(host).unwrap().mac, Some(mac(1 + u8::from(moves))), "{case:?}");
    }
}

#[test]
fn only_askers_on_the_link_are_learnt() {
    let (mut bench, host) = (Bench::default(), key(HOST));
    for how in [ANSWER, How::Gratuitous] {
        assert_eq!(bench.tell(Event::Heard { key: host, mac: Some(mac(1)), how }), []);
    }
    let asks = Event::Heard { key: host, mac: Some(mac(1)), how: How::Request };
    bench.table.event(bench.now_ns, &asks, false, &mut bench.out);
    bench.table.event(bench.now_ns, &Event::Wanted(host), false, &mut bench.out);
    assert_eq!(bench.take(), [lost(host, Loss::Removed)]);
    let forged = Event::Heard { key: host, mac: Some(MacAddr::BROADCAST), how: How::Request };
    assert_eq!(bench.tell(forged), []);
    let stats = bench.table.stats();
    assert_eq!((stats.unasked, stats.off_link, stats.invalid, bench.table.len()), (2, 2, 1, 0));
    assert_eq!(bench.tell(asks), [Action::Resolved { key: host, mac: mac(1), fresh: true }]);
    assert_eq!(bench.run(S), [(S, probe(host, mac(1)))], "and proven soon");
    bench.tell(reply(host, mac(1)));
    assert_eq!(bench.state(host), Some(State::Reachable));
}

#[test]
fn two_stations_with_one_address_do_not_shake_the_table() {
    let (mut bench, host) = (Bench::default(), key(HOST));
    bench.resolve(host, mac(1));
    let claim = |n| Event::Heard { key: host, mac: Some(mac(n)), how: How::Gratuitous };
    assert_eq!(bench.tell(claim(2)), [Action::Resolved { key: host, mac: mac(2), fresh: true }]);
    for n in (0..1000).map(|n| 1 + (n % 2) as u8) {
        assert_eq!(bench.tell(claim(n)), []);
    }
    let stats = bench.table.stats();
    assert_eq!((stats.moved, stats.flapping), (1, 500));
    bench.run(S);
    assert_eq!(bench.tell(claim(1)), [Action::Resolved { key: host, mac: mac(1), fresh: true }]);
}

#[test]
fn static_entries_stand_fast() {
    let (mut bench, host) = (Bench::default(), key(HOST));
    assert!(bench.table.set_static(host, mac(9), &mut bench.out));
    assert!(bench.table.set_static(host, mac(9), &mut bench.out));
    let resolved = |n, fresh| Action::Resolved { key: host, mac: mac(n), fresh };
    assert_eq!(bench.take(), [resolved(9, true)]);
    assert_eq!(bench.tell(reply(host, mac(1))), []);
    bench.table.kernel(bench.now_ns, host, Some(mac(2)), &mut bench.out);
    bench.table.interface_down(0, &mut bench.out);
    bench.table.interface_up(bench.now_ns, 0, &mut bench.out);
    assert_eq!(bench.run(1000 * S), []);
    assert_eq!(bench.tell(Event::Wanted(host)), [resolved(9, false)]);
    assert!(bench.table.hold(bench.now_ns, host, &mut bench.out));
    assert_eq!(bench.take(), [resolved(9, false)]);
    bench.table.unset_static(bench.now_ns, host, &mut bench.out);
    assert_eq!(bench.take(), [lost(host, Loss::Removed), solicit(host)], "a route still needs it");
    let neighbor = bench.table.get(host).unwrap();
    assert_eq!((neighbor.state, neighbor.held, neighbor.mac), (State::Incomplete, true, None));
}

#[test]
fn the_kernels_word_counts_as_an_answer() {
    let (mut bench, host) = (Bench::default(), key(HOST));
    let told = |bench: &mut Bench, mac| {
        bench.table.kernel(bench.now_ns, host, mac, &mut bench.out);
        bench.take()
    };
    assert_eq!(told(&mut bench, None), []);
    assert_eq!(told(&mut bench, Some(mac(1))), [Action::Resolved { key: host, mac: mac(1), fresh: true }]);
    assert_eq!(told(&mut bench, Some(mac(1))), []);
    assert_eq!(bench.table.get(host).unwrap().origin, Origin::Kernel);
    assert_eq!(told(&mut bench, None), []);
    assert_eq!(bench.tick(), [probe(host, mac(1))]);
}

#[test]
fn an_interface_that_goes_down_takes_its_neighbors_along() {
    let (mut bench, host, gateway) = (Bench::default(), key(1), key(2));
    let elsewhere = Key { interface: 1, ..host };
    bench.resolve(host, mac(1));
    bench.resolve(elsewhere, mac(2));
    bench.table.hold(bench.now_ns, gateway, &mut bench.out);
    bench.tell(reply(gateway, mac(3)));
    bench.table.interface_down(0, &mut bench.out);
    assert_eq!(bench.take(), [lost(host, Loss::Down), lost(gateway, Loss::Down)]);
    assert_eq!(bench.tell(Event::Wanted(host)), [lost(host, Loss::Down)]);
    assert_eq!(bench.tell(Event::Wanted(gateway)), [lost(gateway, Loss::Down)]);
    assert_eq!(bench.tell(reply(gateway, mac(3))), []);
    assert!(bench.run(10 * S).is_empty(), "nobody is asked on an interface that is down");
    bench.table.interface_up(bench.now_ns, 0, &mut bench.out);
    assert_eq!(bench.take(), [solicit(gateway)]);
    assert!(bench.table.get(elsewhere).is_some() && bench.table.get(host).is_none());
}

#[test]
fn a_scan_of_a_million_addresses_does_not_lock_out_one_that_exists() {
    let limits = Limits { entries: 1000, ..Limits::default() };
    let mut bench = Bench::new(limits);
    let working = key(0x0b00_0001);
    bench.resolve(working, mac(1));
    let (mut out, mut resolved) = (Vec::new(), 0);
    for n in 0..1_000_000 {
        bench.now_ns += 1000; // a million a second
        bench.table.event(bench.now_ns, &Event::Wanted(key(0x0a00_0000 + n)), true, &mut out);
        if n % 1000 == 0 {
            bench.table.event(bench.now_ns, &Event::Wanted(key(0x0c00_0000 + n)), true, &mut out);
        }
        // Its answer takes three milliseconds.
        if n % 1000 == 0 && n >= 3000 {
            let asked = key(0x0c00_0000 + n - 3000);
            out.clear();
            bench.table.event(bench.now_ns, &reply(asked, mac(2)), true, &mut out);
            resolved += usize::from(out.contains(&Action::Resolved { key: asked, mac: mac(2), fresh: true }));
        }
        if n % 100_000 == 0 {
            check(&bench.table);
        }
        out.clear();
    }
    assert_eq!(resolved, 997);
    assert!(bench.table.len() <= limits.entries + limits.incomplete);
    assert_eq!(bench.state(working), Some(State::Reachable));
}

#[test]
fn a_flood_costs_its_own_interface_and_no_proven_neighbor() {
    let mut bench = Bench::new(Limits { entries: 20, per_interface: 15, incomplete: 10 });
    let on = |interface, address| Key { interface, ..key(address) };
    bench.tell(Event::Wanted(on(1, 1)));
    bench.resolve(on(2, 1), mac(1));
    bench.resolve(on(0, 4000), mac(1));
    for n in 0..1000 {
        bench.tell(Event::Wanted(on(0, n)));
        let asks = Event::Heard { key: on(0, 5000 + n), mac: Some(mac(3)), how: How::Request };
        bench.tell(asks);
    }
    assert_eq!(bench.state(on(1, 1)), Some(State::Incomplete), "asked before the flood on another interface");
    assert_eq!(
        bench.state(on(0, 4000)),
        Some(State::Reachable),
        "proven, on the interface of the flood itself"
    );
    // Stations that do answer, more than there is room for.
    for n in 0..1000 {
        bench.resolve(on(0, 10_000 + n), mac(4));
    }
    assert_eq!(bench.state(on(2, 1)), Some(State::Reachable));
    assert_eq!((0..1000).filter(|n| bench.state(on(0, 10_000 + n)).is_some()).count(), 15);
    // Routes come before all others, up to the limit.
    let held: Vec<bool> = (0..25).map(|n| bench.table.hold(bench.now_ns, on(3, n), &mut bench.out)).collect();
    assert_eq!(held.iter().filter(|held| **held).count(), 20);
    assert!(!bench.table.set_static(on(4, 1), mac(1), &mut bench.out));
    bench.take();
    assert_eq!(bench.tell(reply(on(1, 1), mac(1))), [lost(on(1, 1), Loss::GaveWay)], "no room for an answer");
}

#[test]
fn who_was_silent_longest_gives_way_first() {
    let mut bench = Bench::new(Limits { entries: 2, ..Limits::default() });
    bench.resolve(key(1), mac(1));
    bench.resolve(key(2), mac(2));
    bench.tell(Event::Heard { key: key(1), mac: Some(mac(1)), how: How::Request });
    bench.resolve(key(3), mac(3));
    assert_eq!([1, 2, 3].map(|n| bench.state(key(n)).is_some()), [true, false, true]);
}

#[test]
fn clocks_start_at_zero_jump_and_step_back() {
    let host = key(HOST);
    let mut bench = Bench { now_ns: 0, ..Bench::default() };
    assert_eq!(bench.tell(Event::Wanted(host)), [solicit(host)]);
    bench.now_ns = 1_700_000_000 * S;
    assert_eq!(bench.tick(), [solicit(host)], "one question, however long it took");
    bench.now_ns -= 3600 * S;
    assert_eq!(bench.tick(), []);
    assert_eq!(bench.run(S), [(S, solicit(host))], "time goes on from where the clock was set");
    bench.now_ns -= 1000; // another thread's time, a little earlier
    assert_eq!(bench.tell(reply(host, mac(1))), [Action::Resolved { key: host, mac: mac(1), fresh: true }]);
    bench.now_ns = u64::MAX - 3600 * S;
    assert_eq!(bench.tick(), [probe(host, mac(1))]);
    assert_eq!(bench.tick(), []);
}

#[test]
fn zero_timers_and_limits_ask_no_more_than_a_thousand_times_a_second() {
    let timers = Timers {
        reachable_ns: 0,
        delay_ns: 0,
        retransmit_ns: 0,
        solicits: 0,
        probes: 0,
        failed_hold_ns: 0,
        backoff_ns: 0,
        lock_ns: 0,
    };
    let limits = Limits { entries: 0, per_interface: 0, incomplete: 0 };
    let mut bench = Bench { table: Table::new(timers, limits), ..Bench::default() };
    bench.table.hold(bench.now_ns, key(1), &mut bench.out);
    let mut asked = 0;
    for n in 0..10_000 {
        bench.now_ns += 100_000;
        bench.tell(Event::Wanted(key(2 + n % 3)));
        let actions = bench.tick();
        asked += actions.iter().filter(|action| matches!(action, Action::Solicit { key: Key { address, .. }, .. } if *address == key(1).address)).count();
        bench.tell(reply(key(1 + n % 4), mac(1)));
    }
    assert!((100..=1000).contains(&asked), "{asked}");
}

/// What whoever listens to the actions believes.
#[derive(Default)]
struct Believer {
    macs: HashMap<Key, MacAddr>,
    asked_ns: HashMap<Key, u64>,
}

impl Believer {
    fn hear(&mut self, now_ns: u64, action: &Action) {
        match *action {
            Action::Solicit { key, to } => {
                if let Some(last_ns) = self.asked_ns.insert(key, now_ns) {
                    assert!(now_ns - last_ns >= S, "{key:?} asked after {} ns", now_ns - last_ns);
                }
                assert!(to.is_none() || to == self.macs.get(&key).copied(), "probed at its address");
            }
            Action::Resolved { key, mac, fresh } => {
                let before = self.macs.insert(key, mac);
                assert_eq!(fresh, before != Some(mac), "{key:?} {before:?} {mac}");
            }
            Action::Lost { key, why } => {
                self.macs.remove(&key);
                if why != Loss::Silent {
                    self.asked_ns.remove(&key); // what is forgotten may be asked for again at once
                }
            }
        }
    }
}

/// Random events: bounds hold, nobody is asked too often, and whoever believes the actions knows what the table knows.
#[test]
fn whoever_follows_the_actions_knows_the_table() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let limits = Limits { entries: 12, per_interface: 6, incomplete: 5 };
        let mut bench = Bench::new(limits);
        let (mut believer, mut held) = (Believer::default(), std::collections::HashSet::new());
        for _ in 0..4000 {
            bench.now_ns += rng.random_range(0..S / 2);
            let key = Key { interface: rng.random_range(0..3), ..key(rng.random_range(0..10)) };
            let mac = mac(rng.random_range(1..4));
            let (table, out, now_ns) = (&mut bench.table, &mut bench.out, bench.now_ns);
            match rng.random_range(0..40) {
                0..12 => table.event(now_ns, &Event::Wanted(key), rng.random_bool(0.9), out),
                12..30 => {
                    let (solicited, overrides) = (rng.random(), rng.random());
                    let how = match rng.random_range(0..5) {
                        0 => How::Request,
                        1 => How::Gratuitous,
                        _ => How::Reply { solicited, overrides },
                    };
                    let event = Event::Heard { key, mac: rng.random_bool(0.9).then_some(mac), how };
                    table.event(now_ns, &event, rng.random_bool(0.9), out);
                }
                30..32 => {
                    if table.hold(now_ns, key, out) {
                        held.insert(key);
                    }
                }
                32..35 => {
                    held.remove(&key);
                    table.release(now_ns, key, out);
                }
                35 => drop(table.set_static(key, mac, out)),
                36 => table.unset_static(now_ns, key, out),
                37 => table.kernel(now_ns, key, rng.random_bool(0.6).then_some(mac), out),
                38 => table.interface_down(key.interface, out),
                _ => (0..3).for_each(|interface| table.interface_up(now_ns, interface, out)),
            }
            bench.out.iter().for_each(|action| believer.hear(now_ns, action));
            bench.take();
            bench.tick().iter().for_each(|action| believer.hear(now_ns, action));
            let known: HashMap<_, _> =
                bench.table.iter().filter_map(|neighbor| Some((neighbor.key, neighbor.mac?))).collect();
            assert_eq!(known, believer.macs, "seed {seed}");
            assert!(held.iter().all(|key| bench.table.get(*key).is_some_and(|n| n.held)), "seed {seed}");
        }
    }
}
