//! How many ICMP errors a Linux host sends: net/ipv4/icmp.c as of Linux 6.12, for a host that gets packets to closed ports.
//!
//! A credit for all of them (`icmp_msgs_per_sec`, at most `icmp_msgs_burst`), filled up when it is used up and 20 ms or more have passed; and a
//! credit for each receiver (`icmp_ratelimit`), of which six can be saved. A message has to pass both. The kernel takes 0, 1
//! or 2 from the first at random, so that nobody can count along; we take what that is in the mean, 1.

use std::collections::HashMap;

/// The least time between two fillings of the credit.
const FILL_NS: u64 = 20_000_000;
/// Messages that one receiver's credit can be saved up for.
const PEER_BURST: u64 = 6;

/// The limits of `/proc/sys/net/ipv4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// `icmp_msgs_per_sec`; nothing: no limit.
    pub(super) messages_per_s: Option<u64>,
    /// `icmp_msgs_burst`.
    pub(super) burst: u64,
    /// `icmp_ratelimit`; 0: no limit.
    pub(super) peer_ms: u64,
}

impl Limits {
    /// What Linux comes with, but for the limit of each receiver.
    pub(super) const ONE_HOST: Limits = Limits { messages_per_s: Some(1000), burst: 50, peer_ms: 0 };
    /// What Linux comes with.
    pub(super) const LINUX: Limits = Limits { peer_ms: 1000, ..Limits::ONE_HOST };
    /// Many hosts, each far below its limits.
    pub(super) const MANY_HOSTS: Limits = Limits { messages_per_s: None, burst: 0, peer_ms: 0 };
}

/// The host.
#[derive(Debug)]
pub(super) struct Victim {
    limits: Limits,
    credit: u64,
    filled_ns: u64,
    /// By receiver: credit in nanoseconds, and as of when.
    peers: HashMap<u32, (u64, u64)>,
}

impl Victim {
    /// One that has sent nothing for long.
    pub(super) fn new(limits: Limits) -> Self {
        Victim { limits, credit: limits.burst, filled_ns: 0, peers: HashMap::new() }
    }

    /// Whether a message goes to `peer` at `now_ns`, which never goes backwards.
    pub(super) fn sends(&mut self, now_ns: u64, peer: u32) -> bool {
        let Some(messages_per_s) = self.limits.messages_per_s else { return self.peer(now_ns, peer) };
        if self.credit == 0 {
            let passed_ns = (now_ns - self.filled_ns).min(1_000_000_000);
            if passed_ns < FILL_NS {
                return false;
            }
            self.credit = (messages_per_s * passed_ns / 1_000_000_000).min(self.limits.burst);
            self.filled_ns = now_ns;
        }
        let sends = self.credit > 0 && self.peer(now_ns, peer);
        self.credit -= u64::from(sends);
        sends
    }

    fn peer(&mut self, now_ns: u64, peer: u32) -> bool {
        let price_ns = self.limits.peer_ms * 1_000_000;
        if price_ns == 0 {
            return true;
        }
        let (credit_ns, since_ns) = self.peers.entry(peer).or_insert((PEER_BURST * price_ns, now_ns));
        *credit_ns = (*credit_ns + (now_ns - *since_ns)).min(PEER_BURST * price_ns);
        *since_ns = now_ns;
        let sends = *credit_ns >= price_ns;
        if sends {
            *credit_ns -= price_ns;
        }
        sends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages in one second of `per_ms` packets a millisecond, from the time given on.
    fn messages(victim: &mut Victim, from_s: u64, per_ms: u64, peers: u32) -> u64 {
        let packets =
            (0..1000 * per_ms).map(|i| (from_s * 1_000_000_000 + i * 1_000_000 / per_ms, i as u32 % peers));
        packets.filter(|(at_ns, peer)| victim.sends(*at_ns, *peer)).count() as u64
    }

    #[test]
    fn a_host_sends_a_thousand_a_second() {
        let mut victim = Victim::new(Limits::ONE_HOST);
        // 50 at once, and 20 every 20 ms, the first time at 20 ms.
        assert_eq!(messages(&mut victim, 0, 100, 1000), 50 + 49 * 20);
        assert_eq!(messages(&mut victim, 1, 100, 1000), 1000);
        // Whoever was silent for long has saved no more than a burst.
        assert_eq!(messages(&mut victim, 100, 100, 1000), 50 + 49 * 20);
        // It is not the host that limits.
        assert_eq!(messages(&mut Victim::new(Limits::ONE_HOST), 0, 1, 1), 1000);
    }

    #[test]
    fn a_receiver_gets_six_and_then_one_a_second() {
        let mut victim = Victim::new(Limits::LINUX);
        assert_eq!(messages(&mut victim, 0, 100, 1), 6);
        assert_eq!((1..5).map(|s| messages(&mut victim, s, 100, 1)).collect::<Vec<_>>(), [1, 1, 1, 1]);
        assert_eq!(messages(&mut victim, 100, 100, 1), 6);
        // What one receiver is refused costs the others nothing.
        assert_eq!(messages(&mut victim, 101, 100, 2), 1 + 6);
    }

    #[test]
    fn many_hosts_answer_everything() {
        assert_eq!(messages(&mut Victim::new(Limits::MANY_HOSTS), 0, 100, 1), 100_000);
    }
}
