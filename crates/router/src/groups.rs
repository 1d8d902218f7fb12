//! Equal-cost multipath: which member of a group takes which flows, so that a change moves as few flows as possible.
//!
//! A group has [`BUCKETS`] buckets, and a flow's hash names its bucket for good. When a member dies, its buckets go to
//! the others in proportion to their weights, and no other flow moves (RFC 2992 1.3 calls this disruption and shows
//! what plain modulo does). When it comes back it takes from those who have more than their share.

use tidemill_lpm::Label;

/// Buckets of a group; shares of weights are kept to 1/256.
pub(crate) const BUCKETS: usize = 256;

/// One member: its label, its weight, whether it can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its label.
    pub(crate) label: Label,
    /// Its weight, at least 1.
    pub(crate) weight: u32,
    /// Whether it can send.
    pub(crate) alive: bool,
}

/// Gives each bucket its member's label. `before` is what the buckets held last, or empty.
pub(crate) fn spread(members: &[Member], before: &[u32]) -> Vec<u32> {
    // With nobody alive things stay as they are: the packets' fate is their member's.
    let anybody = members.iter().any(|member| member.alive);
    let live: Vec<&Member> = members.iter().filter(|member| member.alive || !anybody).collect();
    let shares = shares(&live);
    let mut have = vec![0; live.len()];
    let mut buckets = vec![None; BUCKETS];
    // Who holds a bucket keeps it, up to his share.
    for (bucket, &label) in buckets.iter_mut().zip(before) {
        let holder = live.iter().position(|member| member.label.0 == label);
        if let Some(at) = holder.filter(|&at| have[at] < shares[at]) {
            have[at] += 1;
            *bucket = Some(label);
        }
    }
    // The others go to whoever lacks most; ties to the first.
    for bucket in buckets.iter_mut().filter(|bucket| bucket.is_none()) {
        let lacks = |at: &usize| shares[*at] - have[*at];
        if let Some(at) = (0..live.len()).rev().max_by_key(lacks) {
            have[at] += 1;
            *bucket = Some(live[at].label.0);
        }
    }
    buckets.into_iter().flatten().collect()
}

/// How many buckets each is due: by weight, the largest remainders rounded up, the sum exact.
fn shares(live: &[&Member]) -> Vec<usize> {
    let total: u64 = live.iter().map(|member| u64::from(member.weight.max(1))).sum::<u64>().max(1);
    let exact = |member: &&Member| u64::from(member.weight.max(1)) * BUCKETS as u64;
    let mut shares: Vec<usize> = live.iter().map(|member| (exact(member) / total) as usize).collect();
    let mut order: Vec<usize> = (0..live.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(exact(&live[at]) % total));
    let missing = BUCKETS - shares.iter().sum::<usize>();
    for at in order.into_iter().take(missing) {
        shares[at] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(list: &[(u32, u32, bool)]) -> Vec<Member> {
        list.iter().map(|&(label, weight, alive)| Member { label: Label(label), weight, alive }).collect()
    }

    fn count(buckets: &[u32], label: u32) -> usize {
        buckets.iter().filter(|held| **held == label).count()
    }

    #[test]
    fn buckets_follow_the_weights() {
        let buckets = spread(&members(&[(7, 1, true), (8, 2, true), (9, 1, true)]), &[]);
        assert_eq!([7, 8, 9].map(|label| count(&buckets, label)), [64, 128, 64]);
        let thirds = spread(&members(&[(1, 1, true), (2, 1, true), (3, 1, true)]), &[]);
        assert_eq!([1, 2, 3].map(|label| count(&thirds, label)), [86, 85, 85]);
    }

    #[test]
    fn only_the_dead_members_flows_move_and_they_come_back() {
        let all = members(&[(1, 1, true), (2, 1, true), (3, 1, true)]);
        let first = spread(&all, &[]);
        let without = spread(&members(&[(1, 1, true), (2, 1, false), (3, 1, true)]), &first);
        for (before, after) in first.iter().zip(&without) {
            assert!(before == after || *before == 2);
            assert_ne!(*after, 2);
        }
        assert_eq!((count(&without, 1), count(&without, 3)), (128, 128));
        let again = spread(&all, &without);
        let moved = again.iter().zip(&without).filter(|(a, b)| a != b).count();
        assert_eq!(moved, count(&again, 2), "only what the returned member needs has moved");
        assert!(count(&again, 2) >= 85);
    }

    #[test]
    fn with_nobody_alive_nothing_moves() {
        let dead = members(&[(1, 1, false), (2, 1, false)]);
        let first = spread(&members(&[(1, 1, true), (2, 1, true)]), &[]);
        assert_eq!(spread(&dead, &first), first);
        assert_eq!(spread(&[], &[]), Vec::<u32>::new());
    }
}
