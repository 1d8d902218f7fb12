//! What a node is: it sees a burst and says what becomes of each packet.

use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_lookup::qsbr::Reader;
use tidemill_port::Waker;

/// What becomes of a packet. Outcomes are verdicts, not errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// On to the node's output of this number, in the order in which the node declared its outputs.
    Next(u8),
    /// Dropped and counted under the reason, at this node.
    Drop(DropReason),
    /// Done with: delivered locally, reassembled into another, answered. The frame goes home.
    Consume,
    /// The node keeps it for now ([`Node::keep`]) and releases it later ([`Context::release`]).
    Keep,
}

impl Verdict {
    /// The verdict in 16 bits, so that many are compared at once.
    #[inline(always)]
    fn code(self) -> u16 {
        // Two matches of one value each become a load and a choice; one match of both became a jump.
        let kind = match self {
            Verdict::Next(_) => 0_u16,
            Verdict::Drop(_) => 1,
            Verdict::Consume => 2,
            Verdict::Keep => 3,
        };
        let which = match self {
            Verdict::Next(output) => output,
            Verdict::Drop(reason) => reason as u8,
            Verdict::Consume | Verdict::Keep => 0,
        };
        kind << 8 | u16::from(which)
    }

    /// How many of the first verdicts are the same.
    #[inline]
    pub(crate) fn run(verdicts: &[Verdict]) -> usize {
        verdicts.iter().take_while(|verdict| **verdict == verdicts[0]).count()
    }

    /// The same, where it is likely to be all of them: compared without a branch for each.
    #[inline]
    pub(crate) fn alike(verdicts: &[Verdict]) -> usize {
        let first = verdicts.first().map_or(0, |verdict| verdict.code());
        let odd = verdicts.iter().fold(0, |odd, verdict| odd | (verdict.code() ^ first));
        if odd == 0 { verdicts.len() } else { Verdict::run(verdicts) }
    }
}

/// A step of packet processing. One instance per worker, so `&mut self` needs no locks.
pub trait Node: Send {
    /// Gives a verdict on every packet; `verdicts` is as long as `burst` and starts as `Next(0)` throughout. Packets
    /// may be rewritten in place. At most [`BURST`](tidemill_burst::BURST) packets at a time.
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]);

    /// Receives the packets that `process` gave the verdict [`Verdict::Keep`], in order.
    fn keep(&mut self, cx: &mut Context<'_>, packet: Packet) {
        // A node that keeps packets overrides this; one that does not never gets here. Free it rather than lose it.
        cx.pool.free(packet);
    }

    /// Called once between bursts, for timers: release what is due. A worker that has nothing else to do calls it as exactly
    /// as [`Idle`](crate::Idle) has it, and at the times that nodes [ask for](Context::wake_at).
    fn tick(&mut self, _cx: &mut Context<'_>) {}

    /// Learns, once, how to wake its worker when something from outside waits for [`tick`](Self::tick).
    fn wake_with(&mut self, _waker: &Waker) {}

    /// Whether other workers' instances [hand packets over](Context::hand_over) to this one. A worker that has received its last packet goes on then, until
    /// the others have, too, and nothing is on its way to it.
    fn is_handed_packets(&self) -> bool {
        false
    }

    /// Gives up the packets kept, at the end of a run; they are counted as held.
    fn surrender(&mut self, _pool: &mut Pool) {}

    /// One line for the packet trace, about a packet that this node has just processed.
    fn explain(&self, _packet: &Packet) -> Option<String> {
        None
    }
}

/// What a node may use while it works.
pub struct Context<'a> {
    /// The time of this burst in nanoseconds since the Unix epoch: the wall clock's, or the capture's when a run is
    /// driven by a file. Nodes read no other clock.
    pub now_ns: u64,
    /// For looking at published tables: `view.get(cx.reader)`.
    pub reader: &'a Reader,
    /// The worker's packet memory, to make packets from and to free them into.
    pub pool: &'a mut Pool,
    pub(crate) out: &'a mut Vec<(Verdict, Packet)>,
    pub(crate) made: &'a mut u64,
    pub(crate) unheld: &'a mut u64,
    pub(crate) passed: &'a mut u64,
    pub(crate) taken: &'a mut u64,
    pub(crate) overflow: &'a mut u64,
    pub(crate) due_ns: &'a mut Option<u64>,
}

impl Context<'_> {
    /// Sends a packet that this node made (an ICMP error, a fragment, a copy) to one of its outputs.
    pub fn emit(&mut self, output: u8, packet: Packet) {
        *self.made += 1;
        self.send(Verdict::Next(output), packet);
    }

    /// Sends a packet that this node kept earlier to one of its outputs.
    pub fn release(&mut self, output: u8, packet: Packet) {
        *self.unheld += 1;
        self.send(Verdict::Next(output), packet);
    }

    /// Drops a packet that this node kept earlier.
    pub fn discard(&mut self, reason: DropReason, packet: Packet) {
        *self.unheld += 1;
        self.send(Verdict::Drop(reason), packet);
    }

    /// Is done with a packet that this node kept earlier; see [`Verdict::Consume`].
    pub fn consume(&mut self, packet: Packet) {
        *self.unheld += 1;
        self.send(Verdict::Consume, packet);
    }

    /// Says that a packet that this node kept earlier is with another worker now, whose node [takes it over](Self::take_over). What
    /// is on its way between two workers counts as held.
    pub fn hand_over(&mut self) {
        *self.unheld += 1;
        *self.passed += 1;
    }

    /// Says that this node keeps a packet from now on that another worker has [handed over](Self::hand_over).
    pub fn take_over(&mut self) {
        *self.taken += 1;
    }

    /// In [`Node::tick`]: asks for the next one at `at_ns` at the latest, also if no packet comes before. It holds until then:
    /// who still has something to wait for asks again. Where time follows the packets' own, it stops at `at_ns` on its way to
    /// a later burst, and goes on to there when no packets are left.
    pub fn wake_at(&mut self, at_ns: u64) {
        *self.due_ns = Some(self.due_ns.map_or(at_ns, |due| due.min(at_ns)));
    }

    fn send(&mut self, verdict: Verdict, packet: Packet) {
        // The list was allocated at start and does not grow on the data path.
        if self.out.len() < self.out.capacity() {
            self.out.push((verdict, packet));
        } else {
            *self.overflow += 1;
            self.pool.free(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{self, Consume, Drop, Keep, Next};
    use tidemill_burst::DropReason::{NoRoute, PolicyDrop};

    #[test]
    fn rows_of_one_verdict_are_as_long_as_they_are() {
        let all = [Next(0), Next(1), Drop(NoRoute), Drop(PolicyDrop), Consume, Keep];
        for a in all {
            for b in all {
                for (before, after) in [(1, 0), (1, 1), (3, 2), (200, 56), (255, 1)] {
                    let row: Vec<Verdict> = [vec![a; before], vec![b; after]].concat();
                    let expected = if a == b { before + after } else { before };
                    assert_eq!(
                        (Verdict::alike(&row), Verdict::run(&row)),
                        (expected, expected),
                        "{a:?} {b:?}"
                    );
                }
            }
        }
        assert_eq!(Verdict::alike(&[]), 0);
    }
}
