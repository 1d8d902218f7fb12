//! Tables that are full: what becomes of newcomers, how much work there is, who gives way; and flows that expire.

use super::*;

/// A gate of either family with a policy that sends everything to one Grantor.
struct Flood<A: Paired<W>, const W: usize> {
    gate: Gate<A, W>,
    counters: Counters,
    law: Law<A>,
}

impl<A: Paired<W>, const W: usize> Flood<A, W>
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    fn new(flows: usize, grantor: A) -> Self {
        let all = policy(Prefix::new(A::MIN, 0).unwrap(), Action::Grantor, &[grantor]);
        let control = Policies::new(&Domain::new(), Action::Route, &[all], A::MIN, Vec::new()).unwrap();
        Flood {
            gate: Gate::new(&size(flows), Catalog::new(&[]).unwrap()).unwrap(),
            counters: Counters::default(),
            law: Law(control.choices().clone()),
        }
    }

    fn judge(&mut self, ns: u64, seen: &[Seen<A>]) -> Vec<Fate> {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        let (order, driver) = (Order::OnePass, Driver::Group);
        let now = Now { ns, rules, order, driver, grace_ns: SECOND / 10, ip: &|_| &TCP };
        let mut fates = vec![Fate::Route; seen.len()];
        self.gate.decide(&now, &mut self.counters, seen, &mut fates);
        fates
    }

    fn reclaim(&mut self, ns: u64, idle_ns: u64, buckets: usize) -> usize {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        self.gate.reclaim(ns, idle_ns, &rules, &mut self.counters, buckets)
    }

    fn impose(&mut self, ns: u64, flow: (A, A), verdict: &Verdict) -> Applied {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        self.gate.impose(ns, &rules, flow, verdict, None)
    }

    fn state(&self, flow: (A, A)) -> Option<FlowState> {
        let key = A::key(flow.0, flow.1);
        self.gate
            .table
            .find(self.gate.table.hasher().hash(&key), &key)
            .map(|slot| self.gate.table.state(slot))
    }
}

/// With every flow a new one: the fates are those of the first packets of new flows, with or without room.
fn a_full_table<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A)
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let mut flood = Flood::<A, W>::new(10_000, address(1));
    let mut ns = SECOND;
    let to = |source: u32| Seen { source: address(source), destination: address(7), bytes: 46 };
    let tag = Tag { grantor: 0, dscp: 41 };
    let mut unplaced = 0;
    for i in 0..100 {
        ns += 1000;
        let before = flood.gate.table.counters();
        let fates = flood.judge(ns, &(i * 256..(i + 1) * 256).map(to).collect::<Vec<_>>());
        assert!(fates.iter().all(|fate| [Fate::Request(tag), Fate::Unplaced(tag)].contains(fate)));
        unplaced += fates.iter().filter(|fate| **fate == Fate::Unplaced(tag)).count();
        let after = flood.gate.table.counters();
        // One search that fails is the burst's last, and a search moves one entry at most.
        assert!(after.failed - before.failed <= 1, "{before:?} {after:?}");
        assert!(after.moves - before.moves <= after.inserted - before.inserted, "{before:?} {after:?}");
        // What a burst reclaims by, whatever is in the table.
        assert_eq!(flood.reclaim(ns, SECOND, RECLAIM_BUCKETS), 0, "nobody has been silent for long enough");
        assert_looked_at(&flood, after.swept, RECLAIM_BUCKETS);
    }
    let full = flood.gate.len();
    assert!((10_000..=11_000).contains(&full), "{full}");
    assert_eq!(unplaced, 25_600 - full);
    assert_eq!(flood.counters.get(Counter::RequestsUntracked), unplaced as u64);
    ns += 2 * SECOND;
    let (mut calls, mut gone) = (0, 0);
    while !flood.gate.is_empty() {
        let before = flood.gate.table.counters().swept;
        gone += flood.reclaim(ns, SECOND, RECLAIM_BUCKETS);
        assert_looked_at(&flood, before, RECLAIM_BUCKETS);
        calls += 1;
        assert!(calls <= full / (RECLAIM_BUCKETS * 31) + 50);
    }
    assert_eq!(gone, full);
    // Rounds of all sizes: no call looks at more than it was told to, nor twice at a bucket.
    let buckets = flood.gate.table.slots() / 31;
    for told in [1, 7, RECLAIM_IDLE, 1 << 20] {
        let before = flood.gate.table.counters().swept;
        flood.reclaim(ns, SECOND, told);
        assert_looked_at(&flood, before, told.min(buckets));
    }
}

/// At so many buckets, fewer only where the table ends.
fn assert_looked_at<A: Paired<W>, const W: usize>(flood: &Flood<A, W>, before: u64, most: usize) {
    let looked = flood.gate.table.counters().swept - before;
    assert!((1..=most as u64).contains(&looked), "{looked} buckets, not {most}");
}

#[test]
fn a_full_table_asks_on_and_forgets_the_silent() {
    a_full_table::<u32, 1>(|n| n);
    a_full_table::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

const GRANT: Verdict =
    Verdict::Granted { rate_kib_s: 9000, expire_s: 99, renew_ms: 90_000, step_ms: 1000, direct: false };

/// A grant takes the place of a flow that only asks, a refusal none; what is decided stays.
fn who_gives_way<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A)
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let mut flood = Flood::<A, W>::new(1000, address(1));
    let to = |source: u32| Seen { source: address(source), destination: address(7), bytes: 46 };
    let mut next = 0;
    while flood.gate.table.counters().skipped < 3000 {
        flood.judge(SECOND, &(next..next + 200).map(to).collect::<Vec<_>>());
        next += 200;
    }
    let full = flood.gate.len();
    // As many as the table has, and more: at last only what is decided is there, and nothing gives way any more.
    let (mut placed, mut refused) = (Vec::new(), 0);
    for source in 1 << 20..(1 << 20) + 2000 {
        let flow = (address(source), address(7));
        assert_eq!(
            flood.impose(SECOND, flow, &Verdict::Declined { expire_s: 99 }),
            Applied::Unknown,
            "a refusal pushes nobody out"
        );
        match flood.impose(SECOND, flow, &GRANT) {
            Applied::Done => placed.push(flow),
            applied => {
                assert_eq!(applied, Applied::Unknown);
                refused += 1;
            }
        }
    }
    assert!(placed.len() > full * 9 / 10 && refused > 900, "{} of {full}", placed.len());
    assert!((full..=full + 40).contains(&flood.gate.len()), "{} of {full}", flood.gate.len());
    assert!(flood.gate.replaced() as usize >= placed.len() - 40);
    assert!(placed.iter().all(|flow| flood.state(*flow).is_some_and(|state| state.is_decided())));
    let fates = flood.judge(SECOND, &[Seen { source: placed[0].0, destination: placed[0].1, bytes: 46 }]);
    assert!(matches!(fates[0], Fate::Granted(_)));
    // Who knows how many flows note a policy was told of each that went.
    let mut counts = [0_u32; 3];
    flood.gate.table.scan(0, 1 << 20, |_, _, state| counts[usize::from(state.note())] += 1);
    assert_eq!(flood.gate.uses[1..3], counts[1..]);
    assert!(counts[2] > 900);
}

#[test]
fn a_grant_makes_room_and_a_refusal_does_not() {
    who_gives_way::<u32, 1>(|n| n);
    who_gives_way::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

/// Seconds that this thread has worked, where the system tells.
fn worked_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

/// A million new flows a second, each silent from then on: after the time that they are kept, a million go as well.
#[test]
#[ignore = "60 million packets, 1.5 GB: cargo xtask held 8 runs it"]
fn twenty_million_flows_that_expire_at_a_million_a_second_are_reclaimed() {
    let mut flood = Flood::<u32, 1>::new(1 << 25, 1);
    let (idle_ns, mut ns, mut next) = (20 * SECOND, SECOND, 1_u32);
    let mut most = 0;
    // As a worker does it: a few buckets with each burst, some more every 10 ms.
    let mut tick = ns;
    let (mut shown, mut worked) = (ns, worked_s());
    for burst in 0..60_000_000 / 256_u64 {
        let seen: Vec<Seen<u32>> = (next..next + 256).map(to).collect();
        next += 256;
        let first = Fate::Request(Tag { grantor: 0, dscp: 41 });
        assert!(flood.judge(ns, &seen).iter().all(|fate| *fate == first));
        let before = flood.gate.table.counters().swept;
        flood.reclaim(ns, idle_ns, RECLAIM_BUCKETS);
        assert_looked_at(&flood, before, RECLAIM_BUCKETS);
        if ns >= tick {
            flood.reclaim(ns, idle_ns, RECLAIM_IDLE);
            assert_looked_at(&flood, before, RECLAIM_BUCKETS + RECLAIM_IDLE);
            tick += SECOND / 100;
        }
        ns += 256_000;
        most = most.max(flood.gate.len());
        if burst % 20_000 == 19_999 {
            let now = worked_s();
            let simulated = (ns - shown) as f64 / 1e9;
            let share = match (now, worked) {
                (Some(now), Some(before)) => {
                    format!(", {:.2} CPU seconds for each", (now - before) / simulated)
                }
                _ => String::new(),
            };
            println!("{:.0} s: {} flows{share}", ns as f64 / 1e9, flood.gate.len());
            (shown, worked) = (ns, now);
        }
    }
    println!("at most {most} flows, {} bytes of table each", Gate::<u32, 1>::BYTES_PER_FLOW);
    // Nobody was turned away: there was room all the time.
    let counters = flood.gate.table.counters();
    assert_eq!((counters.failed, counters.skipped), (0, 0), "{counters:?}");
    assert!((20_000_000..31_000_000).contains(&most), "{most}");
}
