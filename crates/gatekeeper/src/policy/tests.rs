//! The policy table: who is asked where Grantors are down; what has room beside what.

use super::*;

/// Whoever is down: its buckets go to others that are up, and no other bucket moves. Where all are down, all are asked.
#[test]
fn only_the_share_of_who_is_down_moves() {
    let domain = Domain::new();
    let policy = |prefix: &str, grantors: &[u32]| Policy {
        prefix: prefix.parse().unwrap(),
        action: Action::Grantor,
        grantors: grantors.to_vec(),
    };
    let given = [policy("10.0.0.0/8", &[1, 2, 3, 4, 5]), policy("11.0.0.0/8", &[2, 9])];
    let mut policies = Policies::<u32>::new(&domain, Action::Drop, &given, 7, Vec::new()).unwrap();
    assert_eq!(policies.grantors(), [1, 2, 3, 4, 5, 9]);
    let read = |policies: &Policies<u32>, destination, of: fn(&Choices<u32>, u32, u64) -> u16| -> Vec<u32> {
        let choices = policies.choices();
        let Choice::Grantors(first) = choices.get(policies.label(destination)) else { panic!() };
        let spread = |bucket: u64| of(choices, first, bucket << (64 - BUCKETS.ilog2()));
        (0..BUCKETS as u64).map(|bucket| choices.grantors[usize::from(spread(bucket))]).collect()
    };
    let buckets = |policies: &Policies<u32>, destination| read(policies, destination, Choices::grantor);
    let (ten, eleven) = (10 << 24, 11 << 24);
    let before = [buckets(&policies, ten), buckets(&policies, eleven)];
    for set in 0..1_u32 << 6 {
        let down = |grantor: u32| {
            [1, 2, 3, 4, 5, 9].iter().position(|g| *g == grantor).is_some_and(|at| set >> at & 1 != 0)
        };
        policies.set_down(down);
        for (destination, before, named) in
            [(ten, &before[0], &[1, 2, 3, 4, 5][..]), (eleven, &before[1], &[2, 9])]
        {
            let none_is_up = named.iter().all(|grantor| down(*grantor));
            assert_eq!(read(&policies, destination, Choices::home), *before, "home is where it was");
            for (now, before) in buckets(&policies, destination).into_iter().zip(before) {
                let stays = none_is_up || !down(*before);
                assert!(if stays { now == *before } else { !down(now) && named.contains(&now) });
            }
            // Its decisions count as before.
            let number = policies.label(destination);
            for grantor in [1, 2, 3, 4, 5, 9, 7] {
                let at = policies.choices().decides(number, grantor);
                assert_eq!(at.is_some(), named.contains(&grantor));
                assert!(at.is_none_or(|at| policies.choices().grantors[usize::from(at)] == grantor));
            }
        }
        // One more policy with the same Grantors is spread as they are now.
        if set == 5 {
            policies.set(&[policy("12.0.0.0/8", &[1, 2, 3, 4])]).unwrap();
            assert!(buckets(&policies, 12 << 24).iter().all(|grantor| [2, 4].contains(grantor)));
        }
    }
}

/// Policies in the place of as many others have numbers of their own, for flows still have those of before: what is said is that, and what helps.
#[test]
fn policies_in_the_place_of_others_need_room_beside_them() {
    let domain = Domain::new();
    let of = |from: u32, count: u32| -> Vec<Policy<u32>> {
        let policy = |n: u32| Policy {
            prefix: Prefix::new(20 << 24 | n, 32).unwrap(),
            action: Action::Grantor,
            grantors: vec![10 << 24 | n],
        };
        (from..from + count).map(policy).collect()
    };
    let most = MOST_CHOICES as u32;
    let half = most / 2 + 4;
    let mut policies = Policies::new(&domain, Action::Route, &of(0, half), 7, Vec::new()).unwrap();
    let refused = |policies: &Policies<u32>, with: &[Policy<u32>]| {
        policies.plan_instead(with).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let others = of(half, half);
    // Two more are the default and "routed", which is never new.
    let said = refused(&policies, &others);
    let now = half + 2;
    let wanted = format!("gatekeeper.policy: {half} different actions are new, and {now} are those of now");
    assert!(said.starts_with(&wanted), "{said}");
    // What stays needs nothing, and the last that fits does.
    assert_eq!(refused(&policies, &of(half / 2, half)), "");
    assert_eq!(refused(&policies, &of(half, most - half - 2)), "");
    assert!(refused(&policies, &of(half, most - half - 1)).contains(" are new, and "));
    // As many as no restart has room for, and one less.
    let said = refused(&policies, &of(0, most - 1));
    assert_eq!(said, "gatekeeper.policy: more than 8192 different actions: give prefixes the same Grantors");
    assert_eq!(refused(&policies, &of(0, most - 2)), "");
    // In two steps. Between them it is said that it takes a while.
    let none = policies.plan_instead(&[]).unwrap();
    policies.replace(none, Action::Route, &[]).unwrap();
    let said = refused(&policies, &others);
    assert!(
        said.contains(&format!("{half} are not in use any more")) && said.contains("try again"),
        "{said}"
    );
    let said = refused(&policies, &of(0, most - 1));
    assert!(said.contains("more than 8192 different actions"), "{said}");
    policies.free(u64::MAX);
    let plan = policies.plan_instead(&others).unwrap();
    policies.replace(plan, Action::Route, &others).unwrap();
    assert_eq!(policies.list().len(), others.len());
}
