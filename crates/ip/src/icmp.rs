//! What the two ICMP error nodes share: why an error is sent, how often, and what is counted.
//!
//! A packet that cannot be forwarded is always dropped under its own reason (`ttl-expired`, `no-route`, `too-big`),
//! whether or not its sender is told. The error that is sent is a packet that was made. An error that is *not* sent was
//! never a packet, so it is in no drop counter; [`IcmpStats`] counts those, and a packet's trace says it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::{DropReason, Packet};
use tidemill_wire::{icmpv4, icmpv6};

/// Why a packet is handed to an ICMP error node, in the packet's `label`.
///
/// ```text
/// label: | 0000 | cause | MTU of the next link, or the byte at fault |
///          8 bit  8 bit          16 bit
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The name that the packet is dropped under.
    pub reason: DropReason,
    /// Type and code of the ICMP error.
    pub v4: (u8, u8),
    /// Type and code of the ICMPv6 error.
    pub v6: (u8, u8),
}

const fn cause(reason: DropReason, v4: (u8, u8), v6: (u8, u8)) -> Cause {
    Cause { reason, v4, v6 }
}

/// What senders are told about (RFC 1812 5.2.7.1, RFC 4443 3.1).
const CAUSES: [Cause; 19] = {
    use icmpv4::{code as c4, kind as k4};
    use icmpv6::{code as c6, kind as k6};
    let host4 = (k4::DEST_UNREACHABLE, c4::UNREACHABLE_HOST);
    let address6 = (k6::DEST_UNREACHABLE, c6::UNREACHABLE_ADDRESS);
    let prohibited4 = (k4::DEST_UNREACHABLE, c4::UNREACHABLE_ADMIN_PROHIBITED);
    let prohibited6 = (k6::DEST_UNREACHABLE, c6::UNREACHABLE_ADMIN_PROHIBITED);
    [
        cause(
            DropReason::TtlExpired,
            (k4::TIME_EXCEEDED, c4::EXCEEDED_TTL),
            (k6::TIME_EXCEEDED, c6::EXCEEDED_HOP_LIMIT),
        ),
        cause(
            DropReason::TooBig,
            (k4::DEST_UNREACHABLE, c4::UNREACHABLE_FRAGMENTATION_NEEDED),
            (k6::PACKET_TOO_BIG, 0),
        ),
        cause(
            DropReason::NoRoute,
            (k4::DEST_UNREACHABLE, c4::UNREACHABLE_NET),
            (k6::DEST_UNREACHABLE, c6::UNREACHABLE_NO_ROUTE),
        ),
        cause(DropReason::Prohibited, prohibited4, prohibited6),
        // RFC 5508, REQ-8: no session could be made.
        cause(DropReason::NatPortsExhausted, prohibited4, prohibited6),
        cause(DropReason::NatHostLimit, prohibited4, prohibited6),
        cause(DropReason::NatHostSessions, prohibited4, prohibited6),
        cause(DropReason::NatTableFull, prohibited4, prohibited6),
        cause(DropReason::NatHostUnknown, prohibited4, prohibited6),
        cause(DropReason::FilterRejected, prohibited4, prohibited6),
        cause(DropReason::Unreachable, host4, address6),
        cause(DropReason::NeighborUnresolved, host4, address6),
        cause(DropReason::NextHopUnknown, host4, address6),
        cause(DropReason::InterfaceDown, host4, address6),
        cause(
            DropReason::ReassemblyTimeout,
            (k4::TIME_EXCEEDED, c4::EXCEEDED_REASSEMBLY),
            (k6::TIME_EXCEEDED, c6::EXCEEDED_REASSEMBLY),
        ),
        cause(
            DropReason::NoListener,
            (k4::DEST_UNREACHABLE, c4::UNREACHABLE_PORT),
            (k6::DEST_UNREACHABLE, c6::UNREACHABLE_PORT),
        ),
        cause(
            DropReason::ProtocolUnknown,
            (k4::DEST_UNREACHABLE, c4::UNREACHABLE_PROTOCOL),
            (k6::PARAMETER_PROBLEM, c6::PROBLEM_NEXT_HEADER),
        ),
        cause(
            DropReason::Ipv6RoutingHeader,
            (k4::PARAMETER_PROBLEM, 0), // never about IPv4
            (k6::PARAMETER_PROBLEM, c6::PROBLEM_FIELD),
        ),
        cause(
            DropReason::Ipv6OptionUnknown,
            (k4::PARAMETER_PROBLEM, 0), // never about IPv4
            (k6::PARAMETER_PROBLEM, c6::PROBLEM_OPTION),
        ),
    ]
};

impl Cause {
    /// Marks `packet` for an error node. `mtu` means something with [`DropReason::TooBig`] only, and where the error is a
    /// parameter problem: there it is the byte of the packet at fault.
    pub fn mark(packet: &mut Packet, reason: DropReason, mtu: u16) {
        let at = CAUSES.iter().position(|known| known.reason == reason).unwrap_or(CAUSES.len());
        packet.label = (at as u32) << 16 | u32::from(mtu);
    }

    /// What `packet` was marked with.
    pub(crate) fn of(packet: &Packet) -> Option<(Cause, u16)> {
        Some((*CAUSES.get((packet.label >> 16) as usize)?, packet.label as u16))
    }
}

/// What came of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was sent.
    Sent,
    /// It must not be sent (RFC 1122 3.2.2, RFC 4443 2.4).
    Suppressed,
    /// It was over the rate limit.
    RateLimited,
    /// There was no frame for it, or we have no address to send it from.
    Failed,
}

impl Told {
    const ALL: [Told; 4] = [Told::Sent, Told::Suppressed, Told::RateLimited, Told::Failed];

    /// Notes it in the packet, which is about to be dropped, for the trace.
    pub(crate) fn mark(self, packet: &mut Packet) {
        packet.label = self as u32;
    }

    /// What [`mark`](Self::mark) noted.
    pub(crate) fn of(packet: &Packet) -> Option<Told> {
        Self::ALL.get(packet.label as usize).copied()
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Told::Sent => "icmp error sent",
            Told::Suppressed => "no icmp error: must not be sent about this packet",
            Told::RateLimited => "no icmp error: over the rate limit",
            Told::Failed => "no icmp error: no frame, or no address of our own to send it from",
        })
    }
}

/// How many ICMP errors were sent, and how many were not and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IcmpStats {
    /// Made and sent towards the sender.
    pub sent: u64,
    /// Not sent, because none may be sent about such a packet.
    pub suppressed: u64,
    /// Not sent, because of the rate limit.
    pub rate_limited: u64,
    /// Not sent, for want of a frame or of an address of our own.
    pub failed: u64,
}

/// One node's counters, on one worker. Written by that worker only.
#[derive(Debug, Default)]
pub struct IcmpCounters([AtomicU64; 4]);

impl IcmpCounters {
    pub(crate) fn count(&self, told: Told) {
        let counter = &self.0[told as usize];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// All nodes' counters, for the control side.
#[derive(Debug, Default)]
pub struct IcmpBoard(Mutex<Vec<Arc<IcmpCounters>>>);

impl IcmpBoard {
    /// Counters for one node.
    pub fn register(&self) -> Arc<IcmpCounters> {
        let counters = Arc::new(IcmpCounters::default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(counters.clone());
        counters
    }

    /// All counters together.
    pub fn sum(&self) -> IcmpStats {
        let mut stats = IcmpStats::default();
        for counters in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let [sent, suppressed, rate_limited, failed] =
                [0, 1, 2, 3].map(|i| counters.0[i].load(Ordering::Relaxed));
            stats.sent += sent;
            stats.suppressed += suppressed;
            stats.rate_limited += rate_limited;
            stats.failed += failed;
        }
        stats
    }
}

/// Destination prefixes are told apart by a hash of this many values.
const BUCKETS: usize = 1024;

/// A rate limit: one token bucket for all, and one per hash of a destination prefix, on the time that is handed in.
///
/// A bucket is one number, the time at which it will be full again (GCRA, ITU-T I.371): it holds a second's worth of
/// tokens, so `rate` errors may go at once and `rate` per second later.
#[derive(Debug)]
pub struct RateLimit {
    rates: (u32, u32),
    all: Rate,
    each: Rate,
    all_full_at_ns: u64,
    full_at_ns: Box<[u64; BUCKETS]>,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    interval_ns: u64,
    depth_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Rate {
    fn new(per_s: u32) -> Self {
        match u64::from(per_s) {
            0 => Rate { interval_ns: u64::MAX, depth_ns: 0 },
            n => Rate { interval_ns: SECOND_NS / n.min(SECOND_NS), depth_ns: SECOND_NS },
        }
    }

    /// When the bucket will be full again after one more token is taken at `now_ns`; `None` if it holds none.
    fn take(self, full_at_ns: u64, now_ns: u64) -> Option<u64> {
        let full_at_ns = full_at_ns.max(now_ns).checked_add(self.interval_ns)?;
        (full_at_ns - now_ns <= self.depth_ns).then_some(full_at_ns)
    }
}

impl RateLimit {
    /// So many per second in all, and for each prefix.
    pub fn new(all_per_s: u32, each_per_s: u32) -> Self {
        RateLimit {
            rates: (all_per_s, each_per_s),
            all: Rate::new(all_per_s),
            each: Rate::new(each_per_s),
            all_full_at_ns: 0,
            full_at_ns: Box::new([0; BUCKETS]),
        }
    }

    /// Starts anew if the rates are other ones than those that it was made with.
    pub fn set(&mut self, all_per_s: u32, each_per_s: u32) {
        if self.rates != (all_per_s, each_per_s) {
            *self = RateLimit::new(all_per_s, each_per_s);
        }
    }

    /// Whether an error may go to the destination prefix `prefix` now; if so, it is charged for.
    pub fn allow(&mut self, now_ns: u64, prefix: u64) -> bool {
        // Fibonacci hashing: the high bits of the product depend on all bits of the prefix.
        let bucket = (prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros())) as usize;
        let each = self.each.take(self.full_at_ns[bucket], now_ns);
        let all = self.all.take(self.all_full_at_ns, now_ns);
        let (Some(each), Some(all)) = (each, all) else { return false };
        (self.full_at_ns[bucket], self.all_full_at_ns) = (each, all);
        true
    }
}

/// The time of an error about `packet`: the packet's own, as far as it is in the past. A burst of a capture spans any
/// time, and the clock that the capture drives stands at the burst's end.
pub(crate) fn own_time(now_ns: u64, packet: &Packet) -> u64 {
    match packet.timestamp_ns() {
        0 => now_ns,
        own => own.min(now_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(limit: &mut RateLimit, now_ns: u64, prefix: u64) -> usize {
        (0..1000).filter(|_| limit.allow(now_ns, prefix)).count()
    }

    #[test]
    fn one_prefix_and_all_together_are_limited() {
        let now = 1_700_000_000 * SECOND_NS;
        let mut limit = RateLimit::new(25, 10);
        assert_eq!(count(&mut limit, now, 1), 10);
        assert_eq!(count(&mut limit, now, 2), 10);
        assert_eq!(count(&mut limit, now, 3), 5, "the bucket for all is empty");
        assert_eq!(count(&mut limit, now, 1), 0);
        assert_eq!(count(&mut limit, now + SECOND_NS / 5, 1), 2);
        assert_eq!(count(&mut limit, now + 10 * SECOND_NS, 1), 10, "a bucket holds one second's worth");
    }

    #[test]
    fn none_and_many() {
        assert_eq!(count(&mut RateLimit::new(0, 5), 7, 1), 0);
        assert_eq!(count(&mut RateLimit::new(5, 0), 7, 1), 0);
        assert_eq!(count(&mut RateLimit::new(u32::MAX, u32::MAX), 7, 1), 1000);
    }

    #[test]
    fn causes_survive_in_the_label() {
        let mut pool = tidemill_burst::Memory::new(1, 2048).unwrap().pool(1).unwrap();
        let mut packet = pool.packet(&[0; 60]).unwrap();
        for cause in CAUSES {
            Cause::mark(&mut packet, cause.reason, 1280);
            assert_eq!(Cause::of(&packet), Some((cause, 1280)));
        }
        Cause::mark(&mut packet, DropReason::Blackhole, 0);
        assert_eq!(Cause::of(&packet), None);
        for told in Told::ALL {
            told.mark(&mut packet);
            assert_eq!(Told::of(&packet), Some(told));
        }
        pool.free(packet);
    }
}
