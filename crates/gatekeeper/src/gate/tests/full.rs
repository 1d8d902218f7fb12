//! Tables that are full: what becomes of newcomers, how much work there is, who gives way; and flows that expire.

use super::*;
use crate::decision::Cookie;
use tidemill_flowprog::shipped::GRANTED;

/// A gate of either family with a policy that sends everything to one Grantor.
pub(super) struct Flood<A: Paired<W>, const W: usize> {
    pub(super) gate: Gate<A, W>,
    pub(super) counters: Counters,
    law: Law<A>,
}

impl<A: Paired<W>, const W: usize> Flood<A, W> {
    pub(super) fn new(flows: usize, grantor: A) -> Self {
        let all = policy(Prefix::new(A::MIN, 0).unwrap(), Action::Grantor, &[grantor]);
        let control = Policies::new(&Domain::new(), Action::Route, &[all], A::MIN, Vec::new()).unwrap();
        Flood {
            gate: Gate::new(&size(flows), Catalog::new(&[]).unwrap()).unwrap(),
            counters: Counters::default(),
            law: Law(control.choices().clone()),
        }
    }

    pub(super) fn judge(&mut self, ns: u64, seen: &[Seen<A>]) -> Vec<Fate> {
        self.judge_by((Order::OnePass, Driver::Group), ns, seen)
    }

    fn judge_by(&mut self, way: (Order, Driver), ns: u64, seen: &[Seen<A>]) -> Vec<Fate> {
        self.judge_packets(way, ns, seen, &[])
    }

    /// The same of packets that a program may read.
    pub(super) fn judge_packets(
        &mut self,
        (order, driver): (Order, Driver),
        ns: u64,
        seen: &[Seen<A>],
        ips: &[Vec<u8>],
    ) -> Vec<Fate> {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        let tcp: &[u8] = &TCP;
        let ip = |at: usize| ips.get(at).map_or(tcp, Vec::as_slice);
        let now = Now { ns, rules, order, driver, grace_ns: SECOND / 10, ip: &ip };
        let mut fates = vec![Fate::Route; seen.len()];
        self.gate.decide(&now, &mut self.counters, seen, &mut fates);
        fates
    }

    pub(super) fn reclaim(&mut self, ns: u64, idle_ns: u64, buckets: usize) -> usize {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        self.gate.reclaim(ns, idle_ns, &rules, &mut self.counters, buckets)
    }

    fn keep_up(&mut self, ns: u64, idle_ns: u64, most: usize) -> usize {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        let before = self.gate.table.counters().swept;
        let gone = self.gate.keep_up(ns, idle_ns, &rules, &mut self.counters, most);
        assert!(self.gate.table.counters().swept - before <= most as u64, "{most} at most");
        gone
    }

    pub(super) fn apply(&mut self, ns: u64, flow: (A, A), verdict: &Verdict, by: Option<By>) -> Applied {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        self.gate.apply(ns, rules.of(flow.1), flow, verdict, None, by)
    }

    fn impose(&mut self, ns: u64, flow: (A, A), verdict: &Verdict) -> Applied {
        self.impose_by(ns, flow, verdict, None)
    }

    fn impose_by(&mut self, ns: u64, flow: (A, A), verdict: &Verdict, version: Option<u32>) -> Applied {
        let choices = || &self.law.0;
        let rules = Rules { policies: &self.law, choices: &choices };
        let by = version.map(|version| By { grantor: 0, version });
        self.gate.impose(ns, rules.of(flow.1), flow, verdict, by.map(|by| by.grantor), by)
    }

    /// Packets of sources from this one on until none makes a flow any more; the first source that has not come yet.
    fn fill(&mut self, address: impl Fn(u32) -> A, mut next: u32) -> u32 {
        while self.gate.table.counters().skipped < 3000 {
            let to = |source: u32| Seen { source: address(source), destination: address(7), bytes: 46 };
            self.judge(SECOND, &(next..next + 200).map(to).collect::<Vec<_>>());
            next += 200;
        }
        next
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
fn a_full_table<A: Paired<W>, const W: usize>(way: (Order, Driver), address: impl Fn(u32) -> A)
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
        let fates = flood.judge_by(way, ns, &(i * 256..(i + 1) * 256).map(to).collect::<Vec<_>>());
        assert!(fates.iter().all(|fate| [Fate::Request(tag), Fate::Unplaced(tag)].contains(fate)));
        unplaced += fates.iter().filter(|fate| **fate == Fate::Unplaced(tag)).count();
        let after = flood.gate.table.counters();
        // There is room up to the last, and a search moves one entry at most.
        assert_eq!(after.failed, 0, "{way:?} {before:?} {after:?}");
        assert!(after.moves - before.moves <= after.inserted - before.inserted, "{before:?} {after:?}");
        // What a burst reclaims by, whatever is in the table.
        assert_eq!(flood.reclaim(ns, SECOND, RECLAIM_BURST), 0, "nobody has been silent for long enough");
        assert_looked_at(&flood, after.swept, RECLAIM_BURST);
    }
    let full = flood.gate.len();
    assert_eq!((full, unplaced), (10_000, 15_600), "{way:?}");
    assert_eq!(flood.counters.get(Counter::RequestsUntracked), unplaced as u64);
    ns += 2 * SECOND;
    let (mut calls, mut gone) = (0, 0);
    while !flood.gate.is_empty() {
        let before = flood.gate.table.counters().swept;
        gone += flood.reclaim(ns, SECOND, RECLAIM_BURST);
        assert_looked_at(&flood, before, RECLAIM_BURST);
        calls += 1;
        assert!(calls <= flood.gate.table.slots() / (RECLAIM_BURST * 31) + 1);
    }
    assert_eq!(gone, full);
    // Rounds of all sizes: no call looks at more than it was told to, nor twice at a bucket.
    let buckets = flood.gate.table.slots() / 31;
    for told in [1, 7, RECLAIM_TURN, 1 << 20] {
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
    for way in WAYS {
        a_full_table::<u32, 1>(way, |n| n);
        a_full_table::<u128, 4>(way, |n| 0xfd00 << 112 | u128::from(n));
    }
}

/// A burst that finds no room by search searches once, by any driver: where tables are full of what is decided and then policies send packets by hundreds. The gate
/// itself never lets it come so far, so its bound is taken away here.
#[test]
fn a_search_that_fails_is_the_last_of_its_burst() {
    for way in WAYS {
        let mut flood = Flood::<u32, 1>::new(1000, 1);
        flood.gate.table.keep_free(usize::MAX);
        let mut failed = 0;
        for i in 0..100 {
            let before = flood.gate.table.counters();
            flood.judge_by(way, SECOND, &(i * 256..(i + 1) * 256).map(to).collect::<Vec<_>>());
            let after = flood.gate.table.counters();
            assert!(after.failed - before.failed <= 1, "{way:?} {before:?} {after:?}");
            failed += after.failed - before.failed;
        }
        assert!((2..20).contains(&failed), "{way:?}: {failed}");
        assert!(flood.gate.len() > 1200, "{way:?}: {}", flood.gate.len());
    }
}

/// Time alone moves the sweep: a table is gone through in an eighth of the time that flows are kept, in short calls, with packets or without, and no faster.
#[test]
fn the_sweep_goes_by_time() {
    for bursts in [true, false] {
        let mut flood = Flood::<u32, 1>::new(100_000, 1);
        for i in 0..200 {
            flood.judge(SECOND, &(i * 200..(i + 1) * 200).map(to).collect::<Vec<_>>());
        }
        let (idle_ns, mut ns) = (16 * SECOND, SECOND);
        let buckets = flood.gate.table.slots() as u64 / 31;
        // At first nothing is due. The flows have just come: nobody goes while two seconds pass, and then two more.
        for round in 0..2 {
            let before = flood.gate.table.counters().swept;
            while ns < (3 + 2 * round) * SECOND {
                ns += 250_000;
                let gone = if bursts { flood.keep_up(ns, idle_ns, RECLAIM_BURST) } else { 0 };
                assert_eq!((gone, flood.keep_up(ns, idle_ns, RECLAIM_TURN)), (0, 0));
            }
            let looked = flood.gate.table.counters().swept - before;
            assert!((buckets - 2..=buckets + 1).contains(&looked), "{looked} of {buckets}");
        }
        // When they have been silent for long enough they go within a round.
        ns = 17 * SECOND;
        let mut gone = 0;
        while ns < 19 * SECOND + SECOND / 100 {
            gone += flood.keep_up(ns, idle_ns, RECLAIM_TURN);
            ns += 250_000;
        }
        assert_eq!((gone, flood.gate.len()), (40_000, 0));
    }
}

/// What has been decided goes as what only asks does: in the first round of the table after it has been over for as long as silent flows are kept, and not before.
fn what_is_over_goes<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A) {
    let mut flood = Flood::<A, W>::new(100_000, address(1));
    let to = |source: u32| Seen { source: address(source), destination: address(7), bytes: 46 };
    for i in 0..200 {
        flood.judge(SECOND, &(i * 200..(i + 1) * 200).map(to).collect::<Vec<_>>());
    }
    for source in 0..40_000 {
        let verdict = match source % 4 {
            1 => Verdict::Declined { expire_s: 3 },
            2 => {
                Verdict::Granted { rate_kib_s: 9, expire_s: 6, renew_ms: 9000, step_ms: 1000, direct: false }
            }
            _ => continue,
        };
        let flow = (address(source), address(7));
        assert_eq!(flood.apply(SECOND, flow, &verdict, None), Applied::Done);
    }
    // A round takes two seconds. Those that ask have been silent for long enough at 17 s, what was declined at 20 s, what was granted at 23 s; each up to a tick later.
    let (idle_ns, mut ns) = (16 * SECOND, SECOND);
    for (tenths, there) in [
        (169, [20_000, 10_000, 10_000]),
        (191, [0, 10_000, 10_000]),
        (200, [0, 10_000, 10_000]),
        (221, [0, 0, 10_000]),
        (230, [0, 0, 10_000]),
        (251, [0, 0, 0]),
    ] {
        while ns < tenths * SECOND / 10 {
            ns += 250_000;
            flood.keep_up(ns, idle_ns, RECLAIM_TURN);
        }
        let mut kinds = [0; 3];
        flood.gate.table.scan(0, 1 << 20, |_, _, state| {
            let kind = match (state.is_decided(), state.refused_until(ns)) {
                (false, _) => 0,
                (true, Some(_)) => 1,
                (true, None) => 2,
            };
            kinds[kind] += 1;
        });
        assert_eq!(kinds, there, "after {tenths} tenths of a second");
    }
    assert_eq!(flood.gate.uses[2], 0, "no policy is noted any more");
}

#[test]
fn what_is_over_goes_in_time() {
    what_is_over_goes::<u32, 1>(|n| n);
    what_is_over_goes::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

const GRANT: Verdict =
    Verdict::Granted { rate_kib_s: 9000, expire_s: 99, renew_ms: 90_000, step_ms: 1000, direct: false };

/// A grant takes the place of a flow that only asks, a refusal none; what is decided stays.
fn who_gives_way<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A)
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let mut flood = Flood::<A, W>::new(1000, address(1));
    flood.fill(&address, 0);
    let (full, slots) = (flood.gate.len(), flood.gate.table.slots());
    assert_eq!(full, 1000);
    // As many as the table has, and more: at last only what is decided is there, and nothing gives way any more.
    let (mut placed, mut refused) = (Vec::new(), 0);
    for source in 1 << 20..(1 << 20) + 2500 {
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
    assert!(placed.len() > slots * 9 / 10 && refused > 900, "{} of {slots}", placed.len());
    // The last fifth first, then those that ask.
    let more = flood.gate.len() - full;
    assert!(more > (slots - full) * 9 / 10, "{more} of {}", slots - full);
    assert_eq!(flood.gate.replaced() as usize, placed.len() - more);
    assert!(placed.iter().all(|flow| flood.state(*flow).is_some_and(|state| state.is_decided())));
    let fates = flood.judge(SECOND, &[Seen { source: placed[0].0, destination: placed[0].1, bytes: 46 }]);
    assert!(matches!(fates[0], Fate::Granted(_)));
    // Who knows how many flows note a policy was told of each that went.
    let mut counts = [0_u32; 3];
    flood.gate.table.scan(0, 1 << 20, |_, _, state| counts[usize::from(state.note())] += 1);
    assert_eq!(flood.gate.uses[1..3], counts[1..]);
    assert!(counts[2] > 900);
    // What has been granted and is over gives way, too.
    let ns = SECOND + 100 * SECOND;
    let flow = (address(1 << 21), address(7));
    assert_eq!(flood.impose(ns, flow, &GRANT), Applied::Done);
    assert!(flood.state(flow).is_some_and(|state| state.is_decided() && !state.over(ns)));
}

/// What does not count, or cannot be done, pushes nobody out and makes no flow; and whose program is over gives way with its cookie.
fn what_cannot_be_done<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A)
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let mut flood = Flood::<A, W>::new(100, address(1));
    flood.fill(&address, 0);
    let cookie = Cookie::new(&[1_u32, 5, 1000, 1000].map(u32::to_le_bytes).concat()).unwrap();
    let bpf = |program, cookie| Verdict::Bpf { expire_s: 5, program, cookie };
    let flow = |n: u32| (address((1 << 20) + n), address(7));
    // The table is filled with grants up to its last slot.
    let mut n = 0;
    while flood.gate.replaced() == 0 {
        flood.impose_by(SECOND, flow(n), &GRANT, Some(3));
        n += 1;
    }
    let below = Revocation { below: By { grantor: 0, version: 4 }, to: None };
    flood.gate.withdraw(SECOND, &below).unwrap();
    let (len, replaced) = (flood.gate.len(), flood.gate.replaced());
    let nothing = Cookie::new(&[]).unwrap();
    let cases = [
        (GRANT, Some(3), Applied::Revoked),
        (bpf(77, cookie), Some(4), Applied::Unsupported),
        // It would be declined.
        (bpf(GRANTED, nothing), Some(4), Applied::Unknown),
    ];
    for (verdict, version, applied) in cases {
        for n in 1000..1100 {
            assert_eq!(flood.impose_by(SECOND, flow(n), &verdict, version), applied, "{verdict:?}");
            assert!(flood.state(flow(n)).is_none());
        }
    }
    assert_eq!((flood.gate.len(), flood.gate.replaced(), flood.gate.programs()), (len, replaced, 0));
    // Programs for all there is room for; then for none, though there are flows that would give way.
    let (mut full, mut done) = (0, 0);
    for n in 2000..2200 {
        match flood.impose_by(SECOND, flow(n), &bpf(GRANTED, cookie), Some(4)) {
            Applied::Done => done += 1,
            Applied::Full => {
                assert_eq!(done, 64);
                full += 1;
            }
            applied => assert_eq!(applied, Applied::Unknown),
        }
        assert_eq!(flood.gate.programs(), done);
    }
    assert!(done > 20 && (done < 64 || full > 0), "{done} {full}");
    // Later all but the grants of 99 seconds are over: grants take their places, and the cookies come back.
    let ns = 50 * SECOND;
    let before = flood.gate.programs();
    (3000..3100).for_each(|n| _ = flood.impose_by(ns, flow(n), &GRANT, Some(4)));
    assert!(flood.gate.programs() < before / 2, "{} of {before}", flood.gate.programs());
    let mut there = 0;
    flood.gate.table.scan(0, 1 << 20, |_, _, state| there += usize::from(state.installed().is_some()));
    assert_eq!(flood.gate.programs(), there);
}

#[test]
fn what_cannot_be_done_pushes_nobody_out() {
    what_cannot_be_done::<u32, 1>(|n| n);
    what_cannot_be_done::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

#[test]
fn a_grant_makes_room_and_a_refusal_does_not() {
    who_gives_way::<u32, 1>(|n| n);
    who_gives_way::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}

const TWO_SECONDS: Verdict =
    Verdict::Granted { rate_kib_s: 9000, expire_s: 2, renew_ms: 9000, step_ms: 1000, direct: false };

/// Seconds that this thread has worked, where the system tells.
fn worked_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

/// A million new flows a second, each silent from then on: after the time that they are kept, a million go as well. Of eight one is declined for a second, and one is granted for two; these go
/// so much later.
fn reclaims_twenty_million<A: Paired<W>, const W: usize>(address: impl Fn(u32) -> A)
where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let mut flood = Flood::<A, W>::new(1 << 25, address(1));
    let to = |source: u32| Seen { source: address(source), destination: address(7), bytes: 46 };
    let (idle_ns, mut ns, mut next) = (20 * SECOND, SECOND, 1_u32);
    let mut most = 0;
    // As a worker does it: a few buckets with each burst, some more in each of its turns, of which there are more than eight in the time of a burst.
    let (mut shown, mut worked) = (ns, worked_s());
    for burst in 0..60_000_000 / 256_u64 {
        let seen: Vec<Seen<A>> = (next..next + 256).map(to).collect();
        next += 256;
        let first = Fate::Request(Tag { grantor: 0, dscp: 41 });
        assert!(flood.judge(ns, &seen).iter().all(|fate| *fate == first));
        for flow in seen.chunks(8) {
            let flow = |at: usize| (flow[at].source, flow[at].destination);
            assert_eq!(flood.apply(ns, flow(2), &Verdict::Declined { expire_s: 1 }, None), Applied::Done);
            assert_eq!(flood.apply(ns, flow(5), &TWO_SECONDS, None), Applied::Done);
        }
        flood.keep_up(ns, idle_ns, RECLAIM_BURST);
        for _ in 0..8 {
            flood.keep_up(ns, idle_ns, RECLAIM_TURN);
            ns += 32_000;
        }
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
    println!("at most {most} flows, {} bytes of table each", Gate::<A, W>::BYTES_PER_FLOW);
    // Nobody was turned away: there was room all the time.
    let counters = flood.gate.table.counters();
    assert_eq!((counters.failed, counters.skipped), (0, 0), "{counters:?}");
    assert!((20_000_000..31_000_000).contains(&most), "{most}");
    // Then nobody comes any more: none is left, decided or not. Its own time, two seconds more, a round, and a tick.
    let end = ns + idle_ns + 2 * SECOND + 5 * SECOND / 2 + SECOND / 10;
    while ns < end {
        flood.keep_up(ns, idle_ns, RECLAIM_TURN);
        ns += 32_000;
    }
    assert_eq!((flood.gate.len(), flood.gate.uses[2]), (0, 0));
}

#[test]
#[ignore = "60 million packets, 1.8 GB: cargo xtask held 8 runs it"]
fn twenty_million_flows_that_expire_at_a_million_a_second_are_reclaimed() {
    reclaims_twenty_million::<u32, 1>(|n| n);
}

#[test]
#[ignore = "60 million packets, 2.8 GB: cargo xtask held 8 runs it"]
fn twenty_million_flows_of_ipv6_that_expire_at_a_million_a_second_are_reclaimed() {
    reclaims_twenty_million::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n));
}
