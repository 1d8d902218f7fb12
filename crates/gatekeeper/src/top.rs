//! Where the most is dropped: of what policies drop, of declined flows and beyond rates, of what is dressed as ours, and of requests that the solicitor turned away or
//! out again; by flow, by source, by destination. What is dropped elsewhere (no route, too long, decisions) is not in it.
//!
//! One dropped packet in [`EVERY`] on average is counted, for as many: the gate drops at the rate of an attack, and the largest parts of
//! that are found all the same. After each [`SAMPLES`] that a window has counted, one in twice as many is counted for twice as many, until the window ends: the more is
//! dropped, the less does a drop cost, and who counts is never busy with it. The gate of each family and the solicitor collect for [`WINDOW_NS`], in each worker; then the control side gets what they have by an exchange
//! of boxes at a burst boundary, adds it up ([`crate::show`]), and shows it until the next should have come. A worker without packets comes back to hand over what it has.
//!
//! **What a number is**: an estimate. The summary bounds what was *sampled* of a key ([`HeavyHitters`]); that the sample stands for sixteen times as much, or more, holds on
//! average only. [`Estimate`] adds to those bounds what chance may do, as if all had been counted as seldom as at the window's end: the truth is between `low` and `high` in 19 of 20
//! cases. Few sampled packets say little: of a key with one that stands for sixteen, 2 to 91 may have been dropped. Who had fewer than sixteen dropped (in a window with a million
//! drops or more, than one in 65,536 of them) may not be there at all.

use crate::family::{Gated, Paired};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use tidemill_flow::hash::mix;
use tidemill_flow::heavy::HeavyHitters;
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;
use tidemill_port::rng::Rng;
use tidemill_wire::{ipv4, ipv6};

/// Dropped packets for each that is counted, at a window's beginning.
pub(crate) const EVERY: u64 = 16;

/// Packets that are counted before fewer are.
const SAMPLES: u32 = 1 << 16;

/// How long a worker collects.
pub const WINDOW_NS: u64 = 5_000_000_000;

/// Entries of a summary.
pub(crate) const ENTRIES: usize = 1024;

/// What is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Source and destination.
    Flow,
    /// The source.
    Source,
    /// The destination.
    Destination,
}

impl By {
    /// All of them.
    pub const ALL: [By; 3] = [By::Flow, By::Source, By::Destination];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            By::Flow => "flow",
            By::Source => "source",
            By::Destination => "destination",
        }
    }
}

/// The keys of a dropped packet: its flow, its source alone, its destination alone.
#[cold]
pub(crate) fn keys_of<A: Paired<W>, const W: usize>(source: A, destination: A) -> [Key<W>; 3] {
    [A::key(source, destination), A::key(source, A::MIN), A::key(A::MIN, destination)]
}

/// What summaries hash keys with: the same in all of them, so that they can be added up.
pub(crate) fn hash<const W: usize>(key: &Key<W>) -> u64 {
    key.0.iter().fold(0, |hash, word| mix(hash ^ word))
}

/// Picks packets.
struct Sampler {
    /// Packets until the next that is counted.
    gap: u64,
    /// The average gap: for so many a packet counts.
    every: u64,
    /// Packets that were counted with this one.
    taken: u32,
    random: Rng,
}

impl Sampler {
    fn new(secret: u64) -> Self {
        Sampler { gap: EVERY, every: EVERY, taken: 0, random: Rng::new(secret) }
    }

    /// Whether a packet is counted, and for how many.
    #[inline(always)]
    fn takes(&mut self) -> Option<u64> {
        self.gap -= 1;
        (self.gap == 0).then(|| self.took())
    }

    #[cold]
    fn took(&mut self) -> u64 {
        let stands_for = self.every;
        self.taken += 1;
        if self.taken == SAMPLES {
            self.taken = 0;
            self.every = self.every.saturating_mul(2).min(1 << 32);
        }
        self.draw();
        stands_for
    }

    fn draw(&mut self) {
        // A regular gap would meet regular attacks always in the same place. 1 to 31: 16 on average.
        self.gap = 1 + self.random.below(2 * self.every - 1);
    }

    /// A window has ended.
    fn begin(&mut self) {
        self.taken = 0;
        if self.every != EVERY {
            self.every = EVERY;
            self.draw();
        }
    }
}

/// What was dropped in a window, in the order of [`By::ALL`]; what a key leaves out is zero.
pub(crate) struct Summary<const W: usize>(pub(crate) [HeavyHitters<W>; 3]);

impl<const W: usize> Summary<W> {
    pub(crate) fn new() -> Result<Self, SizeError> {
        let new = || HeavyHitters::new(ENTRIES);
        Ok(Summary([new()?, new()?, new()?]))
    }

    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(HeavyHitters::clear);
    }
}

/// Dropped packets, by a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) packets: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Estimate {
    /// Of a key's bounds in a summary whose samples stand for `every` packets each at most. The interval is the score interval of a Poisson count (k + z²/2 ± z sqrt(k + z²/4), z = 1.96) at the bound that is nearer to it;
    /// a sample by gaps varies less than that.
    pub(crate) fn of(at_least: u64, at_most: u64, every: u64) -> Estimate {
        const Z: f64 = 1.96;
        let side = |weight: u64, sign: f64| {
            let k = weight as f64 / every as f64;
            let there = k + Z * Z / 2.0 + sign * Z * (k + Z * Z / 4.0).sqrt();
            there.max(0.0) * every as f64
        };
        Estimate {
            packets: at_least.midpoint(at_most),
            low: side(at_least, -1.0).floor() as u64,
            high: side(at_most, 1.0).ceil() as u64,
        }
    }
}

/// A window of a worker that has ended.
pub(crate) struct Window<const W: usize> {
    pub(crate) summary: Box<Summary<W>>,
    /// What one of its samples stands for at most.
    pub(crate) every: u64,
    pub(crate) length_ns: u64,
    pub(crate) ended_ns: u64,
}

/// Where a worker and the control side exchange summaries.
pub(crate) struct Exchange<const W: usize> {
    /// Cleared, for the worker.
    pub(crate) empty: ArrayQueue<Box<Summary<W>>>,
    /// For the control side.
    pub(crate) full: ArrayQueue<Window<W>>,
}

impl<const W: usize> Exchange<W> {
    pub(crate) fn new() -> Result<Arc<Self>, SizeError> {
        let exchange = Exchange { empty: ArrayQueue::new(1), full: ArrayQueue::new(1) };
        let _ = exchange.empty.push(Box::new(Summary::new()?));
        Ok(Arc::new(exchange))
    }
}

/// A worker's half of an exchange.
pub(crate) struct Heavy<const W: usize> {
    summary: Box<Summary<W>>,
    /// What one of its samples stands for at most.
    every: u64,
    exchange: Arc<Exchange<W>>,
    /// When this window began; none before the first tick.
    since_ns: Option<u64>,
    sampler: Sampler,
}

impl<const W: usize> Heavy<W> {
    pub(crate) fn new(secret: u64) -> Result<Self, SizeError> {
        let (summary, exchange) = (Box::new(Summary::new()?), Exchange::new()?);
        Ok(Heavy { summary, every: EVERY, exchange, since_ns: None, sampler: Sampler::new(secret) })
    }

    pub(crate) fn exchange(&self) -> Arc<Exchange<W>> {
        self.exchange.clone()
    }

    /// A packet was dropped; the keys are those of its flow, its source and its destination.
    #[inline(always)]
    pub(crate) fn dropped(&mut self, keys: impl FnOnce() -> [Key<W>; 3]) {
        if let Some(stands_for) = self.sampler.takes() {
            self.count(keys(), stands_for);
        }
    }

    /// So many were dropped elsewhere, where all are counted.
    pub(crate) fn add(&mut self, keys: [Key<W>; 3], packets: u64) {
        if packets > 0 {
            self.put(keys, packets);
        }
    }

    #[cold]
    fn count(&mut self, keys: [Key<W>; 3], stands_for: u64) {
        self.every = self.every.max(stands_for);
        self.put(keys, stands_for);
    }

    fn put(&mut self, keys: [Key<W>; 3], packets: u64) {
        for (summary, key) in self.summary.0.iter_mut().zip(keys) {
            summary.add(hash(&key), &key, packets);
        }
    }

    fn is_empty(&self) -> bool {
        self.summary.0.iter().all(|hitters| hitters.total() == 0)
    }

    /// Between two bursts: hands over what a window has brought, and whether it did.
    pub(crate) fn tick(&mut self, now_ns: u64) -> bool {
        let length_ns = now_ns.saturating_sub(*self.since_ns.get_or_insert(now_ns));
        if length_ns < WINDOW_NS || self.exchange.full.is_full() {
            return false;
        }
        let Some(empty) = self.exchange.empty.pop() else { return false };
        let summary = std::mem::replace(&mut self.summary, empty);
        let every = std::mem::replace(&mut self.every, EVERY);
        // There is room: only this worker fills it.
        let _ = self.exchange.full.push(Window { summary, every, length_ns, ended_ns: now_ns });
        self.since_ns = Some(now_ns);
        self.sampler.begin();
        true
    }

    /// When to come back though no packet comes: there is something to show, and room for it.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let waits = !self.is_empty() && !self.exchange.full.is_full();
        self.since_ns.filter(|_| waits).map(|since_ns| since_ns + WINDOW_NS)
    }
}

/// What one worker's solicitor drops, of both families: one sample, so that a packet that is not in it is not looked at.
pub(crate) struct Refused {
    sampler: Sampler,
    v4: Heavy<1>,
    v6: Heavy<4>,
    ticked_ns: u64,
}

/// How often windows are looked at.
const LOOK_NS: u64 = 10_000_000;

impl Refused {
    pub(crate) fn new(secret: u64) -> Result<Self, SizeError> {
        let (v4, v6) = (Heavy::new(secret)?, Heavy::new(secret)?);
        Ok(Refused { sampler: Sampler::new(mix(secret)), v4, v6, ticked_ns: 0 })
    }

    pub(crate) fn exchanges(&self) -> (Arc<Exchange<1>>, Arc<Exchange<4>>) {
        (self.v4.exchange(), self.v6.exchange())
    }

    /// A packet was dropped; `ip` gives it from its IP header on.
    #[inline(always)]
    pub(crate) fn dropped<'a>(&mut self, ip: impl FnOnce() -> &'a [u8]) {
        if let Some(stands_for) = self.sampler.takes() {
            self.count(ip(), stands_for);
        }
    }

    #[cold]
    fn count(&mut self, ip: &[u8], stands_for: u64) {
        match ip.first().map(|first| first >> 4) {
            Some(4) if ip.len() >= ipv4::HEADER_LEN => {
                let (source, destination) = u32::pair(ip);
                self.v4.count(keys_of(source, destination), stands_for);
            }
            Some(6) if ip.len() >= ipv6::HEADER_LEN => {
                let (source, destination) = u128::pair(ip);
                self.v6.count(keys_of(source, destination), stands_for);
            }
            _ => {}
        }
    }

    /// Between two bursts: hands over what windows have brought. Returns when to come back though nothing happens, if so.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns.saturating_sub(self.ticked_ns) >= LOOK_NS {
            self.ticked_ns = now_ns;
            if self.v4.tick(now_ns) | self.v6.tick(now_ns) {
                self.sampler.begin();
            }
        }
        let due_ns = [self.v4.due_ns(), self.v6.due_ns()].into_iter().flatten().min();
        due_ns.map(|due_ns| due_ns.max(self.ticked_ns + LOOK_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the control side does with what has come.
    fn take(heavy: &Heavy<1>) -> Option<(u64, u64, u64)> {
        let Window { mut summary, length_ns, ended_ns, .. } = heavy.exchange.full.pop()?;
        let total = summary.0[By::Source as usize].total();
        summary.clear();
        assert!(heavy.exchange.empty.push(summary).is_ok());
        Some((total, length_ns, ended_ns))
    }

    /// The first window begins with the first tick, whatever the clock says; a worker comes back for what it has, and for nothing else.
    #[test]
    fn windows_begin_with_the_first_tick_and_end_without_packets() {
        let start = 1_800_000_000 * 1_000_000_000;
        let mut heavy = Heavy::<1>::new(7).unwrap();
        assert_eq!(heavy.due_ns(), None);
        heavy.tick(start);
        assert!(take(&heavy).is_none(), "nothing has been looked at yet");
        assert_eq!(heavy.due_ns(), None, "nobody need come back for nothing");
        (0..1000).for_each(|_| heavy.dropped(|| [Key([1]); 3]));
        assert_eq!(heavy.due_ns(), Some(start + WINDOW_NS));
        heavy.tick(start + WINDOW_NS - 1);
        assert!(take(&heavy).is_none());
        heavy.tick(start + WINDOW_NS);
        let (total, length, ended) = take(&heavy).unwrap();
        assert!((500..2000).contains(&total) && length == WINDOW_NS && ended == start + WINDOW_NS);
        assert_eq!(heavy.due_ns(), None);
        // While nobody takes what there is, nothing is due: time that follows packets would never end.
        (0..1000).for_each(|_| heavy.dropped(|| [Key([1]); 3]));
        heavy.tick(start + 2 * WINDOW_NS);
        (0..1000).for_each(|_| heavy.dropped(|| [Key([1]); 3]));
        assert_eq!(heavy.due_ns(), None);
        heavy.tick(start + 3 * WINDOW_NS);
        assert!(take(&heavy).is_some_and(|(_, _, ended)| ended == start + 2 * WINDOW_NS));
        // What was counted meanwhile is not lost.
        assert_eq!(heavy.due_ns(), Some(start + 3 * WINDOW_NS));
        heavy.tick(start + 3 * WINDOW_NS + 1);
        assert!(take(&heavy).is_some_and(|(total, ..)| total > 500));
    }

    /// 400 flows of 1 to 20,000 packets, mixed: the truth is in the interval in 19 of 20 cases, also for those with few samples; and the interval says something.
    #[test]
    fn the_truth_is_where_the_estimate_says() {
        let mut random = Rng::new(3);
        let truth: Vec<u64> = (0..400).map(|n| 1 + 20_000 * n * n / 160_000).collect();
        let mut packets: Vec<u64> =
            (0..400).flat_map(|n| std::iter::repeat_n(n, truth[n as usize] as usize)).collect();
        for at in (1..packets.len()).rev() {
            packets.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut heavy = Heavy::<1>::new(11).unwrap();
        heavy.tick(1);
        packets.iter().for_each(|flow| heavy.dropped(|| [Key([*flow]); 3]));
        heavy.tick(1 + WINDOW_NS);
        let window = heavy.exchange.full.pop().unwrap();
        let top = window.summary.0[By::Flow as usize].top(ENTRIES);
        let (mut shown, mut wrong, mut outside) = (0, 0, 0);
        for hitter in &top.hitters {
            let estimate = Estimate::of(hitter.at_least, hitter.at_most, window.every);
            let truth = truth[hitter.key.0[0] as usize];
            assert!(estimate.low <= estimate.packets && estimate.packets <= estimate.high);
            shown += 1;
            wrong += u64::from(!(estimate.low..=estimate.high).contains(&truth));
            outside += u64::from(!(hitter.at_least..=hitter.at_most).contains(&truth));
            if truth > 10_000 {
                assert!(estimate.high - estimate.low < truth / 3, "{estimate:?} of {truth}");
            }
        }
        // A twentieth, give or take; the bounds of the sample alone are no bounds of the truth.
        assert!(shown > 350 && wrong * 12 <= shown, "{wrong} of {shown}");
        assert!(outside * 2 > shown, "{outside} of {shown}");
        assert_eq!(window.every, 2 * EVERY);
        assert_eq!(Estimate::of(16, 16, EVERY), Estimate { packets: 16, low: 2, high: 91 });
    }

    /// A flood of one source and a quiet one: counting gets rarer with the flood, both are found, and the next window begins as the first.
    #[test]
    fn a_flood_is_sampled_ever_less() {
        let mut heavy = Heavy::<1>::new(5).unwrap();
        heavy.tick(1);
        let (mut counted, packets) = (0_u64, 16_u64 << 20);
        for n in 0..packets {
            heavy.dropped(|| {
                counted += 1;
                [Key([1 + u64::from(n % 64 == 0)]); 3]
            });
        }
        // A million at one in 16, two at one in 32, and so on: four doublings have come, the fifth has not.
        let most = u64::from(SAMPLES) * 5;
        assert!(counted > most - u64::from(SAMPLES) && counted <= most, "{counted}");
        assert!(heavy.tick(1 + WINDOW_NS));
        let window = heavy.exchange.full.pop().unwrap();
        assert_eq!((window.every, heavy.sampler.every, heavy.every), (EVERY << 4, EVERY, EVERY));
        let summary = &window.summary.0[By::Source as usize];
        assert!(summary.total().abs_diff(packets) < packets / 200, "{}", summary.total());
        for (key, truth) in [(1, packets - packets / 64), (2, packets / 64)] {
            let of = summary.get(hash(&Key([key])), &Key([key]));
            let estimate = Estimate::of(of.at_least, of.at_most, window.every);
            assert!((estimate.low..=estimate.high).contains(&truth), "{estimate:?} of {truth}");
            assert!(estimate.high - estimate.low < truth / 5, "{estimate:?} of {truth}");
        }
        (0..1000).for_each(|_| heavy.dropped(|| [Key([1]); 3]));
        assert!((500..2000).contains(&heavy.summary.0[By::Source as usize].total()));
    }
}
