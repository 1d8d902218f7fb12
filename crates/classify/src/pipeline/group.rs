//! Groups and meters: looked up when a packet gets to them, so that no cached decision depends on them.
//!
//! * **all**: every bucket gets a copy. **select**: one bucket by the packet's flow, in proportion to the weights. A bucket that comes or goes
//!   moves its own flows only: each of 1,024 slots goes to the bucket that wins a draw weighted by rendezvous hashing.
//! * A **meter** is a bucket of time (ITU-T I.371's virtual scheduling): packets lend from it what they take at the rate, and it holds a burst. Workers
//!   share it by a few atomic additions a packet, without a loop; packets that race may be off by one packet's time. Times are whole nanoseconds.

use super::action::Action;
use crate::key::{FRAGMENT_ANY, Field, Key, Mask};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_flow::hash::mix;

/// Slots that the flows of a select group are spread over.
const SLOTS: usize = 1024;

/// How a group chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Every bucket.
    All,
    /// One, by the packet's flow.
    Select,
}

/// Actions of a group that a packet may get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// How many flows it gets, against the others; 0: none.
    pub weight: u16,
    /// No groups and no meters among them.
    pub actions: Vec<Action>,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    kind: GroupKind,
    buckets: Vec<Bucket>,
    /// For select: the bucket of each slot. Empty if none has a weight.
    slots: Vec<u16>,
}

impl Group {
    /// A group of these buckets, 65,535 at most (more are not looked at).
    pub fn new(kind: GroupKind, mut buckets: Vec<Bucket>) -> Self {
        buckets.truncate(u16::MAX.into());
        let weighted = kind == GroupKind::Select && buckets.iter().any(|bucket| bucket.weight > 0);
        let slots = (0..SLOTS as u64 * u64::from(weighted)).map(|slot| winner(slot, &buckets)).collect();
        Group { kind, buckets, slots }
    }

    /// How it chooses.
    pub fn kind(&self) -> GroupKind {
        self.kind
    }

    /// All buckets.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The buckets that a packet with this key gets.
    pub fn chosen(&self, key: &Key) -> &[Bucket] {
        match self.kind {
            GroupKind::All => &self.buckets,
            GroupKind::Select => {
                let slot = flow_hash(key) as usize % SLOTS;
                let bucket = self.slots.get(slot).map(|&bucket| usize::from(bucket));
                bucket.and_then(|at| self.buckets.get(at..=at)).unwrap_or_default()
            }
        }
    }
}

/// The bucket that draws the greatest number: `ln(u) / weight`, for numbers `u` that slot and bucket choose (Schindelhauer and Schomaker,
/// "Weighted Distributed Hash Tables", SPAA 2005).
fn winner(slot: u64, buckets: &[Bucket]) -> u16 {
    let mut best = (f64::NEG_INFINITY, 0);
    for (bucket, at) in buckets.iter().zip(0_u16..) {
        if bucket.weight == 0 {
            continue;
        }
        let drawn = mix(mix(slot) ^ mix(u64::from(at) + 0x9e37_79b9)) >> 11;
        let drawn = (drawn as f64 + 0.5) / (1_u64 << 53) as f64;
        let score = drawn.ln() / f64::from(bucket.weight);
        if score > best.0 {
            best = (score, at);
        }
    }
    best.1
}

/// A hash of the flow: addresses, protocol and ports; without ports for all fragments of a packet; MAC addresses and ethertype where there
/// are no addresses. It has no secret: who wants to choose a bucket can.
pub fn flow_hash(key: &Key) -> u64 {
    let mut words = key.0;
    let fragment = key.get(Field::Fragment) & u128::from(FRAGMENT_ANY) != 0;
    // Ports, ethertype, protocol; not TOS.
    words[4] &= if fragment { 0xffff_ff00 } else { !0xff };
    let addresses = Mask(std::array::from_fn(|i| if i < 4 { u64::MAX } else { 0 }));
    let known = key.masked(&addresses) != Key::default();
    let macs = if known { 0 } else { mix(key.0[6] & (u64::MAX >> 16)) ^ key.0[7] & (u64::MAX >> 16) };
    words[..5].iter().fold(macs, |hash, word| mix(hash ^ word))
}

/// What a meter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MeterUnit {
    /// Packets a second.
    Packets,
    /// Kilobits a second.
    Kilobits,
}

/// What a meter lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MeterRate {
    /// Of what.
    pub unit: MeterUnit,
    /// So many a second. 0: none.
    pub rate: u64,
    /// So many at once, at least one packet.
    pub burst: u64,
}

/// A meter. See the [module](self).
#[derive(Debug)]
pub struct Meter {
    rate: MeterRate,
    /// Picoseconds for a packet or a byte.
    each_ps: u64,
    burst_ns: u64,
    /// The time up to which the rate is spent, nanoseconds: never before now where a packet is asked for, and at most a burst after it.
    spent_ns: AtomicU64,
    passed: AtomicU64,
    refused: AtomicU64,
}

const PS_A_SECOND: u64 = 1_000_000_000_000;

impl Meter {
    /// A meter with a full burst.
    pub fn new(rate: MeterRate) -> Self {
        let a_second = match rate.unit {
            MeterUnit::Packets => rate.rate,
            MeterUnit::Kilobits => rate.rate.saturating_mul(125),
        };
        let each_ps = PS_A_SECOND.checked_div(a_second).unwrap_or(0);
        let burst = match rate.unit {
            MeterUnit::Packets => rate.burst,
            MeterUnit::Kilobits => rate.burst.saturating_mul(125),
        };
        let burst_ns = (u128::from(burst) * u128::from(each_ps) / 1000).min(u64::MAX.into()) as u64;
        let counter = AtomicU64::default;
        Meter { rate, each_ps, burst_ns, spent_ns: counter(), passed: counter(), refused: counter() }
    }

    /// What it lets through.
    pub fn rate(&self) -> MeterRate {
        self.rate
    }

    /// Packets that it has let through, and refused.
    pub fn counted(&self) -> (u64, u64) {
        (self.passed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Whether a packet of so many bytes may pass at `now_ns`.
    pub fn passes(&self, now_ns: u64, bytes: usize) -> bool {
        let units = match self.rate.unit {
            MeterUnit::Packets => 1,
            MeterUnit::Kilobits => bytes as u64,
        };
        let cost = (u128::from(units) * u128::from(self.each_ps) / 1000).min(u64::MAX.into()) as u64;
        // A burst ahead of time, not behind it: time may begin at 0. A burst that holds no packet holds one.
        let latest = now_ns.saturating_add(self.burst_ns.max(cost));
        self.spent_ns.fetch_max(now_ns, Ordering::Relaxed);
        let spent = self.spent_ns.fetch_add(cost, Ordering::Relaxed);
        let passes = self.each_ps > 0 && spent.checked_add(cost).is_some_and(|spent| spent <= latest);
        if !passes {
            self.spent_ns.fetch_sub(cost, Ordering::Relaxed);
        }
        let counter = if passes { &self.passed } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        passes
    }
}

/// Groups and meters by number, as workers see them.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// Groups.
    pub groups: BTreeMap<u32, Arc<Group>>,
    /// Meters.
    pub meters: BTreeMap<u32, Arc<Meter>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(weights: &[u16]) -> Vec<Bucket> {
        let bucket = |(&weight, at): (&u16, u32)| Bucket { weight, actions: vec![Action::Group(at)] };
        weights.iter().zip(0..).map(bucket).collect()
    }

    fn flows() -> impl Iterator<Item = Key> {
        (0..20_000).map(|i| Key::ipv4(i * 7, 99, (i % 50) as u16, 80, 6))
    }

    #[test]
    fn a_select_group_follows_its_weights_and_moves_only_what_it_must() {
        let group = Group::new(GroupKind::Select, buckets(&[1, 3, 0, 4]));
        let smaller = Group::new(GroupKind::Select, buckets(&[1, 3, 0, 0]));
        let chosen = |group: &Group, key: &Key| match group.chosen(key) {
            [bucket] => bucket.actions[0],
            other => panic!("{other:?}"),
        };
        let mut counts = [0_u32; 4];
        for key in flows() {
            let Action::Group(at) = chosen(&group, &key) else { panic!("{key:?}") };
            counts[at as usize] += 1;
            if at != 3 {
                assert_eq!(chosen(&smaller, &key), Action::Group(at));
            }
        }
        let shares = counts.map(|count| f64::from(count) / 20_000.0);
        let near = |share: f64, wanted: f64| (share - wanted).abs() < 0.05;
        assert!(near(shares[0], 0.125) && near(shares[1], 0.375) && near(shares[3], 0.5), "{shares:?}");
        assert_eq!(counts[2], 0);
        assert_eq!(Group::new(GroupKind::Select, buckets(&[0])).chosen(&Key::default()), []);
        assert_eq!(Group::new(GroupKind::All, buckets(&[0, 1])).chosen(&Key::default()).len(), 2);
    }

    #[test]
    fn a_packet_and_its_fragments_have_one_bucket() {
        let whole = Key::ipv4(1, 2, 3, 4, 17);
        let first = whole.with(Field::Fragment, 1);
        let later = Key::ipv4(1, 2, 0, 0, 17).with(Field::Fragment, 3);
        assert_eq!(flow_hash(&first), flow_hash(&later));
        assert_ne!(flow_hash(&first), flow_hash(&whole));
        assert_eq!(flow_hash(&whole), flow_hash(&whole.with(Field::Tos, 4).with(Field::MacSource, 9)));
        let link = Key::default().with(Field::EtherType, 0x1234);
        assert_ne!(flow_hash(&link.with(Field::MacSource, 1)), flow_hash(&link.with(Field::MacSource, 2)));
    }

    #[test]
    fn a_meter_lets_its_rate_through_and_a_burst() {
        let second = 1_000_000_000;
        // A capture without times begins at 0.
        for start in [0, 1_700_000_000 * second] {
            for (unit, bytes, rate, burst) in [
                (MeterUnit::Packets, 60, 100, 10),
                // 800 kbit/s are 100 packets of 1000 bytes, 80 kbit ten.
                (MeterUnit::Kilobits, 1000, 800, 80),
            ] {
                let meter = Meter::new(MeterRate { unit, rate, burst });
                let at_once = (0..50).filter(|_| meter.passes(start, bytes)).count();
                assert_eq!(at_once, 10, "{unit:?} from {start}");
                // Then a thousand packets a second for ten seconds.
                let passed = (1..=10_000).filter(|i| meter.passes(start + i * second / 1000, bytes)).count();
                assert_eq!(passed, 1000, "{unit:?} from {start}");
                assert_eq!(meter.counted(), (1010, 9040));
                // Who was silent has a burst, and no more.
                let later = (0..50).filter(|_| meter.passes(start + 60 * second, bytes)).count();
                assert_eq!(later, 10, "{unit:?} from {start}");
            }
            let none = Meter::new(MeterRate { unit: MeterUnit::Packets, rate: 0, burst: 10 });
            assert!(!none.passes(start, 60));
            let single = Meter::new(MeterRate { unit: MeterUnit::Packets, rate: 1, burst: 0 });
            assert!(single.passes(start, 60) && !single.passes(start + second / 2, 60));
            assert!(single.passes(start + second, 60));
        }
    }
}
