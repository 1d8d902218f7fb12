//! What a gate tells an offload, held against the gate itself: whatever packets, decisions, revocations and times come, a rule that holds is about a flow whose next packet the
//! gate would drop.

use super::full::Flood;
use super::*;
use crate::offload::{POLICY_NS, Pick, Picks, WORDS, Words};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn rules_below_refuse<A: Paired<W> + std::hash::Hash, const W: usize>(address: impl Fn(u32) -> A) {
    let words: Arc<dyn Words> = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let picks = Picks::<A, W>::new(words).unwrap();
    let mut flood = Flood::<A, W>::new(4096, address(1));
    flood.gate.set_hand(picks.hand(0));
    let flow = |source: u32| (address(source), address(7));
    let mut random = StdRng::seed_from_u64(17);
    let mut rules: HashMap<A, Pick<W>> = HashMap::new();
    let (mut ns, mut version) = (1_000 * SECOND, 1);
    let (mut kept, mut lifted, mut ended) = (0, 0, 0);
    for turn in 0..3000 {
        ns += random.random_range(0..SECOND / 50);
        // Packets of a few flows; those that a rule has do not come in, and the gate would drop them.
        let burst: Vec<u32> = (0..random.random_range(1..64)).map(|_| random.random_range(0..24)).collect();
        let holds = |source: &u32| {
            let rule = rules.get(&address(*source));
            rule.is_some_and(|pick| picks.holds(pick.shard, pick.stamp) && ns < pick.until_ns)
        };
        let (below, above): (Vec<u32>, Vec<u32>) = burst.into_iter().partition(holds);
        let mut reader = flood.gate.reader();
        for source in &below {
            let mut state = reader.get(&A::key(address(*source), address(7))).unwrap().state;
            assert_eq!(state.packet(ns, 46), Act::Declined, "turn {turn}, flow {source}");
        }
        kept += below.len();
        flood.gate.begin();
        let to = |source: &u32| Seen { source: address(*source), destination: address(7), bytes: 46 };
        let fates = flood.judge(ns, &above.iter().map(to).collect::<Vec<_>>());
        // Who is asked about is decided about, mostly declined; others now and then.
        for (source, fate) in above.iter().zip(fates) {
            let decides = match fate {
                Fate::Request(_) => random.random_bool(0.5),
                _ => random.random_bool(0.01),
            };
            if decides {
                let verdict = match random.random_bool(0.7) {
                    true => Verdict::Declined { expire_s: random.random_range(0..4) },
                    false => verdict(&mut random),
                };
                let by = random.random_bool(0.5).then_some(By { grantor: 0, version });
                assert_eq!(flood.apply(ns, flow(*source), &verdict, by), Applied::Done);
            }
        }
        // An operator, about a flow whose packets are all dropped below.
        if let Some(source) = below.first().filter(|_| random.random_bool(0.05)) {
            let granted =
                Verdict::Granted { rate_kib_s: 9, expire_s: 9, renew_ms: 9000, step_ms: 1000, direct: false };
            assert_eq!(flood.apply(ns, flow(*source), &granted, None), Applied::Done);
            assert!(!holds(source), "a rule outlives its flow's refusal");
            lifted += 1;
        }
        if random.random_bool(0.01) {
            version += 1;
            let below = By { grantor: 0, version };
            flood.gate.withdraw(ns, &Revocation { below, to: None }).unwrap();
            assert!(rules.values().all(|pick| !picks.holds(pick.shard, pick.stamp)));
        }
        ended += rules.values().filter(|pick| pick.until_ns <= ns).count();
        rules.retain(|_, pick| pick.until_ns > ns);
        rules.extend(std::iter::from_fn(|| picks.take()).map(|pick| (A::of_key(&pick.flow).0, pick)));
    }
    assert!(kept > 1000 && lifted > 10 && ended > 10, "{kept} {lifted} {ended}");
}

#[test]
fn rules_below_refuse_what_the_gate_refuses() {
    rules_below_refuse::<u32, 1>(|n| n);
    // The upper and the lower half of an address both say whose it is.
    rules_below_refuse::<u128, 4>(|n| 0xfd00 << 112 | u128::from(n & 3) << 64 | u128::from(n >> 2));
}

/// What a policy drops makes rules as a declined flow does, in each order.
#[test]
fn what_a_policy_drops_is_told_of() {
    let to = |destination| Seen { source: 5, destination, bytes: 46 };
    let [dropped, asks] = [to(0x0a00_0007), to(7)];
    for (order, driver) in WAYS {
        let domain = Domain::new();
        let reader = domain.register();
        let given = [
            policy("0.0.0.0/0".parse().unwrap(), Action::Grantor, &[1]),
            policy("10.0.0.0/8".parse().unwrap(), Action::Drop, &[]),
        ];
        let control = Policies::new(&domain, Action::Route, &given, 0, Vec::new()).unwrap();
        let (fib, choices) = control.views();
        let choices = || choices.get(&reader);
        let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
        let words: Arc<dyn Words> = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let picks = Picks::<u32, 1>::new(words).unwrap();
        let mut gate = Gate::<u32, 1>::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
        gate.set_hand(picks.hand(0));
        gate.begin();
        let ns = 1_000 * SECOND;
        let now = Now { ns, rules, order, driver, grace_ns: 0, ip: &|_| &TCP };
        let mut fates = [Fate::Route; 8];
        let seen = [dropped, asks, dropped, asks, dropped, asks, dropped, asks];
        gate.decide(&now, &mut Counters::default(), &seen, &mut fates);
        assert!(fates.iter().step_by(2).all(|fate| *fate == Fate::PolicyDrop), "{fates:?}");
        let told: Vec<_> = std::iter::from_fn(|| picks.take())
            .map(|pick| (u32::of_key(&pick.flow), pick.until_ns, pick.by_policy))
            .collect();
        assert_eq!(told, [((5, 0x0a00_0007), ns + POLICY_NS, true)], "{order:?} {driver:?}");
    }
}
