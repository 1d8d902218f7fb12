use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const SETTLE: u64 = 1000;

#[test]
fn what_is_below_counts_no_more() {
    let mut all = Revocations::<u32>::new(SETTLE);
    let old = all.rank(0, 3, 9, 40).unwrap();
    let new = all.rank(0, 3, 9, 41).unwrap();
    assert!(old != new && old != UNRANKED && new != UNRANKED);
    assert_eq!(all.rank(0, 3, 9, 40), Some(old), "one that comes late");
    assert!(all.stands(3, 9, old) && all.stands(3, 9, new));
    all.revoke(1, 3, None, 41).unwrap();
    assert!(!all.stands(3, 9, old) && all.stands(3, 9, new) && all.stands(3, 9, UNRANKED));
    assert_eq!((all.rank(2, 3, 9, 40), all.rank(2, 3, 9, 41)), (None, Some(new)));
    // Before anybody has decided under it.
    all.revoke(3, 3, None, 50).unwrap();
    assert!(!all.stands(3, 9, new));
    assert_eq!(all.rank(4, 3, 9, 49), None);
    let newest = all.rank(4, 3, 9, 50).unwrap();
    assert!(all.stands(3, 9, newest));
    // Said again, or too little: nothing changes.
    all.revoke(5, 3, None, 50).unwrap();
    all.revoke(5, 3, None, 1).unwrap();
    assert!(all.stands(3, 9, newest) && !all.stands(3, 9, new));
}

#[test]
fn a_prefix_is_a_prefix() {
    let mut all = Revocations::<u32>::new(SETTLE);
    let rank = all.rank(0, 0, 15, 1).unwrap();
    all.revoke(10, 0, Some((10, 19)), 2).unwrap();
    for (destination, stands) in [(9, true), (10, false), (15, false), (19, false), (20, true)] {
        assert_eq!(all.stands(0, destination, rank), stands, "{destination}");
        assert_eq!(all.rank(11, 0, destination, 1).is_some(), stands, "{destination}");
    }
    assert!(all.stands(1, 15, rank), "of another Grantor");
    assert_eq!(all.prefixes(), 1);
    all.rank(10 + SETTLE, 0, 0, 2).unwrap();
    assert_eq!(all.prefixes(), 0, "no flow has it any more");
}

/// Grantors that are one after the other: who is behind is not revoked by who is ahead, and all of them make one rank.
#[test]
fn grantors_stand_for_themselves() {
    let mut all = Revocations::<u32>::new(SETTLE);
    let old: Vec<u8> = (0..100).map(|grantor| all.rank(0, grantor, 1, 41).unwrap()).collect();
    for grantor in 0..100 {
        all.revoke(1, grantor, None, 42).unwrap();
        for other in 0..100 {
            assert_eq!(all.stands(other, 1, old[usize::from(other)]), other > grantor);
        }
        assert_eq!(all.rank(1, grantor, 1, 42).map(|rank| all.age(rank)), Some(0));
    }
    assert_eq!(all.begun, 1);
    // Who stands in for another judges its flows as well.
    assert!(!all.stands(7, 1, old[3]) && all.stands(500, 1, old[3]));
}

/// What a stand-in has decided falls with the revocations of both, whichever is said first; and they begin one rank.
#[test]
fn what_a_stand_in_has_decided_falls_too() {
    for first in [0, 1] {
        let mut all = Revocations::<u32>::new(SETTLE);
        for grantor in [0, 1] {
            all.rank(0, grantor, 9, 40).unwrap();
        }
        // One has started again, so its decisions have a rank that the other has not used; it decides about a flow of the other's, which comes back.
        let stray = all.rank(0, 1, 9, 50).unwrap();
        assert!(all.stands(0, 9, stray));
        for grantor in [first, 1 - first] {
            all.revoke(1, grantor, None, 60).unwrap();
        }
        assert!(!all.stands(0, 9, stray) && !all.stands(1, 9, stray), "{first}");
        let [one, other] = [0, 1].map(|grantor| all.rank(2, grantor, 9, 60).unwrap());
        assert!(all.stands(0, 9, one) && all.stands(1, 9, other));
        assert_eq!((one, all.begun), (other, 2));
    }
}

/// More versions than ranks: they share, and all are revoked; nothing is told to be revoked that is not.
#[test]
fn a_flood_of_versions_shares_ranks() {
    let mut all = Revocations::<u32>::new(SETTLE);
    let ranks: Vec<u8> = (0..1000).map(|version| all.rank(0, 0, 1, version).unwrap()).collect();
    assert_eq!(all.begun, usize::from(LIVING));
    assert!(all.stands(0, 1, ranks[999]) && !all.stands(0, 1, ranks[0]));
    assert_eq!(all.revoke(0, 0, None, 1000), Err(Late));
    assert!(all.stands(0, 1, ranks[999]));
    all.revoke(SETTLE, 0, None, 1000).unwrap();
    assert!(ranks.iter().all(|rank| !all.stands(0, 1, *rank)));
    let next = all.rank(SETTLE, 0, 1, 1000).unwrap();
    assert!(all.stands(0, 1, next));
}

#[test]
fn too_many_prefixes_become_all() {
    let mut all = Revocations::<u32>::new(SETTLE);
    let rank = all.rank(0, 0, 1, 1).unwrap();
    let most = MOST_PREFIXES as u32;
    for n in 0..most {
        all.revoke(0, 0, Some((n, n)), 2).unwrap();
    }
    assert!(all.stands(0, most, rank));
    all.revoke(0, 0, Some((0, 0)), 2).unwrap();
    assert!(all.stands(0, most, rank), "one that is there");
    all.revoke(0, 0, Some((99, 99)), 2).unwrap();
    assert!(!all.stands(0, most, rank));
}

#[derive(Debug, Clone)]
enum Step {
    Decide { grantor: u16, destination: u32, ahead: u32 },
    Revoke { grantor: u16, to: Option<(u32, u32)>, ahead: u32 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u16..3, 0_u32..8, 0_u32..3)
            .prop_map(|(grantor, destination, ahead)| Step::Decide { grantor, destination, ahead }),
        1 => (0_u16..3, proptest::option::of((0_u32..8, 0_u32..8)), 0_u32..4).prop_map(|(grantor, to, ahead)| {
            let to = to.map(|(a, b)| (a.min(b), a.max(b)));
            Step::Revoke { grantor, to, ahead }
        }),
        1 => (0_u64..SETTLE / 3).prop_map(Step::Wait),
    ]
}

struct Flow {
    grantor: u16,
    destination: u32,
    version: u32,
    rank: u8,
    dead_since: Option<u64>,
}

/// Runs steps beside a list of all flows and all revocations. `strictly`: nothing may be revoked that nobody has revoked.
fn run(steps: &[Step], strictly: bool) -> Result<(), TestCaseError> {
    let mut all = Revocations::<u32>::new(SETTLE);
    let (mut now, mut flows, mut revoked) = (0, Vec::<Flow>::new(), Vec::new());
    let (mut version, mut heard) = ([5_u32; 3], HashSet::new());
    for step in steps {
        match *step {
            Step::Decide { grantor, destination, ahead } => {
                // Mostly the version of now, at times the next one, at times the one before.
                let at = &mut version[usize::from(grantor)];
                *at += u32::from(ahead == 1);
                // Strictly: only one that was heard of in its time. Others share the rank of a lower one.
                let late = ahead == 2 && (!strictly || heard.contains(&(grantor, *at - 1)));
                let version = *at - u32::from(late);
                heard.insert((grantor, version));
                let gone =
                    revoked.iter().any(|&(by, (first, last), below, _): &(u16, (u32, u32), u32, u64)| {
                        by == grantor && (first..=last).contains(&destination) && version < below
                    });
                match all.rank(now, grantor, destination, version) {
                    Some(rank) => {
                        prop_assert!(!gone && rank != UNRANKED);
                        flows.push(Flow { grantor, destination, version, rank, dead_since: None });
                    }
                    None => prop_assert!(gone || !strictly),
                }
            }
            Step::Revoke { grantor, to, ahead } => {
                let below = version[usize::from(grantor)] + ahead - 1;
                version[usize::from(grantor)] = version[usize::from(grantor)].max(below);
                match all.revoke(now, grantor, to, below) {
                    Ok(()) => revoked.push((grantor, to.unwrap_or((0, u32::MAX)), below, now)),
                    Err(Late) => prop_assert!(!strictly),
                }
            }
            Step::Wait(ns) => {
                now += ns;
                // What was said before is not heard of any more.
                revoked.retain(|(_, to, _, since)| *to == (0, u32::MAX) || now - since < SETTLE);
                // And flows that are dead have gone.
                flows.retain(|flow| flow.dead_since.is_none_or(|since| now - since < SETTLE));
                for at in &mut version {
                    *at += u32::from(!strictly && ns % 2 == 0);
                }
            }
        }
        for flow in &mut flows {
            let gone = revoked.iter().any(|&(by, (first, last), below, _)| {
                by == flow.grantor && (first..=last).contains(&flow.destination) && flow.version < below
            });
            let stands = all.stands(flow.grantor, flow.destination, flow.rank);
            prop_assert!(!(gone && stands), "{} {} counts", flow.grantor, flow.version);
            prop_assert!(!strictly || gone != stands || flow.dead_since.is_some());
            prop_assert!(flow.dead_since.is_none() || !stands, "dead for good");
            if !stands && flow.dead_since.is_none() {
                flow.dead_since = Some(now);
            }
        }
    }
    Ok(())
}

proptest! {
    /// Few steps: exactly what was revoked.
    #[test]
    fn exactly_what_was_revoked(steps in proptest::collection::vec(step(), 0..8)) {
        run(&steps, true)?;
    }

    /// Many: ranks go round, are shared, are too few; never too little is revoked, and what is dead stays dead.
    #[test]
    fn never_too_little(steps in proptest::collection::vec(step(), 0..1500)) {
        run(&steps, false)?;
    }
}
