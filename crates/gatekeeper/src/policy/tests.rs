//! The policy table: who is asked where Grantors are down.

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
