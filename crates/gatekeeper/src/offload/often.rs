//! Which flows send much: a Bloom filter that counts.
//!
//! ```text
//!  flow --hash--> two counters of 65,536; the lesser of them grows (both, if they are the same)
//!                 the flow is told of when that makes it PICK, once in a window
//! ```
//! A window ends after a tenth of a second, or after 32,768 packets: so a counter is shared by few, and whoever sends at a rate of 40 packets a second, or one of 8,192 packets of a larger
//! flood, is found. A flow that shares both of its counters with others may be told of too early, or, where these had been told of, a window later.
//!
//! Cost: two random lines of 64 KiB for a packet; 64 KiB are cleared for each window.

use tidemill_flow::hash::mix;

const COUNTS: usize = 1 << 16;
/// Packets of a window that make a flow one that sends much.
pub(super) const PICK: u8 = 4;
const WINDOW_NS: u64 = 100_000_000;
const WINDOW_PACKETS: u32 = 1 << 15;

/// See the [module](self).
pub(super) struct Often {
    counts: Box<[u8; COUNTS]>,
    secret: u64,
    since_ns: u64,
    packets: u32,
}

impl Often {
    pub(super) fn new(secret: u64) -> Self {
        Often { counts: Box::new([0; COUNTS]), secret, since_ns: 0, packets: 0 }
    }

    /// A packet of the flow with this hash has come. Whether the flow is to be told of now.
    #[inline]
    pub(super) fn tells(&mut self, now_ns: u64, hash: u64) -> bool {
        if self.packets >= WINDOW_PACKETS || now_ns.saturating_sub(self.since_ns) >= WINDOW_NS {
            self.begin(now_ns);
        }
        self.packets += 1;
        let hash = mix(hash ^ self.secret);
        let [one, other] = [hash as usize % COUNTS, (hash >> 32) as usize % COUNTS];
        let least = self.counts[one].min(self.counts[other]);
        if least >= PICK {
            return false;
        }
        for at in [one, other] {
            if self.counts[at] == least {
                self.counts[at] = least + 1;
            }
        }
        least + 1 == PICK
    }

    #[cold]
    fn begin(&mut self, now_ns: u64) {
        self.counts.fill(0);
        (self.since_ns, self.packets) = (now_ns, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_much_is_told_of_once_in_a_window() {
        let mut often = Often::new(5);
        let start = 1_700_000_000_000_000_000;
        let told = |often: &mut Often, at: u64, packets: u64| {
            (0..packets).filter(|n| often.tells(start + at + n, 7)).count()
        };
        assert_eq!(told(&mut often, 0, u64::from(PICK) - 1), 0);
        assert_eq!(told(&mut often, 10, 1), 1);
        assert_eq!(told(&mut often, 20, 1000), 0);
        // As many packets as before the window's end count for nothing behind it.
        assert_eq!(told(&mut often, WINDOW_NS, u64::from(PICK) - 1), 0);
        assert_eq!(told(&mut often, 2 * WINDOW_NS, u64::from(PICK)), 1);
    }

    /// A flood of flows that send one packet each, and one of 256 packets is of the same flow: that one is found in each window, and of the others few are.
    #[test]
    fn a_flood_of_strangers_hides_nobody() {
        let mut often = Often::new(9);
        let (mut heavy, mut others) = (0, 0);
        for n in 1..=8 * u64::from(WINDOW_PACKETS) {
            let is_heavy = n.is_multiple_of(256);
            let flow = if is_heavy { 0 } else { n };
            let told = usize::from(often.tells(1, mix(flow)));
            if is_heavy { heavy += told } else { others += told }
        }
        assert!((8..=9).contains(&heavy), "{heavy}");
        assert!(others < 8 * WINDOW_PACKETS as usize / 100, "{others}");
    }
}
