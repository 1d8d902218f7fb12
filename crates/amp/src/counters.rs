//! What has been counted: one registry of stable names; a board for each worker, read while it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the counters once: variant, stable name, what it means for an operator.
macro_rules! counters {
    ($($variant:ident = $name:literal : $help:literal,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Counter { $(#[doc = $help] $variant,)* }

        impl Counter {
            /// All of them, in order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// One line for an operator.
            pub const fn help(self) -> &'static str {
                match self { $(Counter::$variant => $help,)* }
            }
        }
    };
}

counters! {
    Answers = "answers": "UDP packets from a protocol's port, outside to inside",
    AnswersSolicited = "answers-solicited": "answers that somebody inside asked for",
    Dropped = "dropped": "packets kept away: answers of filtered flows, and later fragments of such",
    DroppedBytes = "dropped-bytes": "their bytes, from the Ethernet header on",
    DroppedFragments = "dropped-fragments": "later fragments among them",
    WouldDrop = "would-drop": "packets let through in a dry run that would have been kept away",
    WouldDropBytes = "would-drop-bytes": "their bytes",
    Suspected = "suspected": "flows that became suspected",
    SuspectedReplaced = "suspected-replaced": "suspected flows that gave way to others in a full table",
    Untracked = "untracked": "answers whose flow found no room in the table; let through",
    Queries = "queries": "UDP packets to a protocol's port, inside to outside",
    QueriesUntracked = "queries-untracked": "queries whose flow found no room in the table",
    RulesMade = "rules-made": "flows that became filtered",
    RulesAdopted = "rules-adopted": "rules that the offload had from a process before",
    RulesExpired = "rules-expired": "rules whose time was over",
    RulesLifted = "rules-lifted": "rules that ended because somebody inside asked",
    RulesAllowed = "rules-allowed": "rules that ended because a new configuration allows the flow",
    IcmpSeen = "icmp-seen": "port unreachable messages, inside to outside",
    IcmpOutside = "icmp-from-outside": "port unreachable messages from outside: never believed",
    IcmpMalformed = "icmp-malformed": "messages whose lengths or headers contradict each other",
    IcmpTruncated = "icmp-truncated": "messages that end before the UDP header they are about",
    IcmpFragmented = "icmp-fragmented": "messages in fragments, or about a later fragment",
    IcmpChecksum = "icmp-checksum": "messages with a wrong checksum",
    IcmpOtherProtocol = "icmp-other-protocol": "messages about something else than a protocol's answer",
    IcmpNotVictims = "icmp-not-victims": "messages not from the victim to the amplifier",
    IcmpAllowed = "icmp-allowed": "messages about a flow on the allow-list",
    IcmpUnknown = "icmp-unknown": "messages about a flow that nothing came of lately (not to this worker)",
    IcmpSolicited = "icmp-solicited": "messages about a flow that somebody inside asked for",
    IcmpAlready = "icmp-already": "messages about a flow that is filtered already",
    IcmpRate = "icmp-rate": "messages beyond icmp_rate of their sender",
    MailConfirmed = "mail-confirmed": "rules among those made that another worker's message led to",
    MailLost = "mail-lost": "queries and messages that another worker's mailbox had no room for",
    EventsLost = "events-lost": "changes of rules that the offload's queue had no room for; everything is told anew then",
    Malformed = "malformed": "frames with headers that contradict themselves; let through",
    Rules = "rules": "rules that hold now",
    Flows4 = "flows4": "IPv4 flows in the tables now: suspected, asked for, filtered",
    Flows6 = "flows6": "IPv6 flows in the tables now",
    OffloadDropped = "offload-dropped": "packets that the offload dropped: they never came in here",
    OffloadDroppedBytes = "offload-dropped-bytes": "their bytes",
    OffloadWouldDrop = "offload-would-drop": "packets that the offload let through in a dry run; they came in here and are counted as would-drop as well",
    OffloadRules = "offload-rules": "rules that the offload has now",
    OffloadRefused = "offload-refused": "rules that the offload had no room for",
}

/// How many there are.
const COUNT: usize = Counter::ALL.len();

/// Numbers of all counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters([u64; COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Counters([0; COUNT])
    }
}

impl Counters {
    /// One number.
    #[inline]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// All of them, by their stable names, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.iter().map(|&counter| (counter.name(), self.get(counter)))
    }

    /// All that are not zero, in order.
    pub fn nonzero(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().map(|&counter| (counter, self.get(counter))).filter(|&(_, n)| n > 0)
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, counter: Counter, more: u64) {
        self.0[counter as usize] += more;
    }

    #[inline(always)]
    pub(crate) fn one(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn set(&mut self, counter: Counter, value: u64) {
        self.0[counter as usize] = value;
    }
}

/// Where a worker shows its numbers. One writes, anybody reads; the numbers are of one moment each.
#[derive(Debug, Clone)]
pub(crate) struct Board(Arc<[AtomicU64; COUNT]>);

impl Default for Board {
    fn default() -> Self {
        Board(Arc::new([const { AtomicU64::new(0) }; COUNT]))
    }
}

impl Board {
    pub(crate) fn show(&self, counters: &Counters) {
        for (shown, &value) in self.0.iter().zip(&counters.0) {
            shown.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_to(&self, sum: &mut Counters) {
        for (sum, shown) in sum.0.iter_mut().zip(self.0.iter()) {
            *sum = sum.wrapping_add(shown.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_numbers_add_up() {
        let names: HashSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert_eq!(names.len(), COUNT);
        assert!(
            Counter::ALL
                .iter()
                .enumerate()
                .all(|(i, counter)| *counter as usize == i && !counter.help().is_empty())
        );
        let mut counters = Counters::default();
        counters.add(Counter::Queries, 3);
        counters.one(Counter::Rules);
        let (board, mut sum) = (Board::default(), Counters::default());
        board.show(&counters);
        board.add_to(&mut sum);
        board.add_to(&mut sum);
        assert_eq!(sum.nonzero().collect::<Vec<_>>(), [(Counter::Queries, 6), (Counter::Rules, 2)]);
    }
}
