//! The two ports of a run: one makes packets while its phases last, the other one takes what comes.

use super::traffic::Frames;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, Pool};
use tidemill_classify::laps::{Laps, Layer};
use tidemill_lookup::cycles;
use tidemill_lpm::keys::Random;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_switch::{Counter, Counters};

/// The ports' names, in the graph's order.
pub(super) const PORTS: [&str; 2] = ["in", "out"];

/// A part of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    pub(super) duration: Duration,
    /// Of 256 packets so many are the flood's.
    pub(super) flood: u32,
    /// Whether stopwatches count.
    pub(super) timed: bool,
}

/// What came in, in a slice of a phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) phase: usize,
    pub(super) packets: u64,
    pub(super) elapsed: Duration,
}

impl Slice {
    pub(super) fn mpps(&self) -> f64 {
        self.packets as f64 / self.elapsed.as_secs_f64() / 1e6
    }
}

/// What a run has measured. One worker has both ports and the switch: nothing here orders anything.
#[derive(Debug, Default)]
pub(super) struct Measured {
    timed: AtomicBool,
    /// Packets that came in while stopwatches counted.
    timed_packets: AtomicU64,
    ticks: [AtomicU64; Layer::ALL.len()],
    slices: Mutex<Vec<Slice>>,
    /// Packets of each rule, the flood's rules first.
    sent: Mutex<Vec<u64>>,
    /// What the process had in memory at the end of each phase, MiB.
    resident_mib: Mutex<Vec<f64>>,
    /// What the switch had counted at the end of each phase.
    counted: Mutex<Vec<Counters>>,
    /// For how many seconds the worker had had a processor by then.
    processor_s: Mutex<Vec<f64>>,
}

impl Measured {
    pub(super) fn slices(&self) -> Vec<Slice> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Packets of each rule, the flood's rules first, from the start to the end.
    pub(super) fn sent(&self) -> Vec<u64> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn resident_mib(&self) -> Vec<f64> {
        self.resident_mib.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Packets of a phase.
    pub(super) fn packets(&self, phase: usize) -> u64 {
        self.slices().iter().filter(|slice| slice.phase == phase).map(|slice| slice.packets).sum()
    }

    /// What the switch has counted in a phase.
    pub(super) fn counted(&self, phase: usize, counter: Counter) -> u64 {
        let ends = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |phase: Option<usize>| phase.and_then(|phase| ends.get(phase)).map_or(0, |c| c.get(counter));
        at(Some(phase)).saturating_sub(at(phase.checked_sub(1)))
    }

    /// For how long the worker had a processor in a phase but the first; the phase's length where the system does not say.
    pub(super) fn processor_time(&self, phase: usize) -> Duration {
        let elapsed =
            self.slices().iter().filter(|slice| slice.phase == phase).map(|slice| slice.elapsed).sum();
        let ends = self.processor_s.lock().unwrap_or_else(PoisonError::into_inner);
        let before = phase.checked_sub(1).and_then(|before| ends.get(before));
        let had = ends.get(phase).zip(before).map(|(end, begin)| end - begin).filter(|had| *had > 0.0);
        had.map_or(elapsed, |had| Duration::from_secs_f64(had).min(elapsed))
    }

    /// Ticks that a packet spends in each layer.
    pub(super) fn ticks_per_packet(&self) -> [f64; Layer::ALL.len()] {
        let packets = self.timed_packets.load(Relaxed).max(1) as f64;
        std::array::from_fn(|layer| self.ticks[layer].load(Relaxed) as f64 / packets)
    }
}

/// A worker's stopwatch.
pub(super) struct Watch {
    measured: Arc<Measured>,
    last: u64,
}

impl Watch {
    pub(super) fn new(measured: Arc<Measured>) -> Self {
        Watch { measured, last: cycles::now() }
    }
}

impl Laps for Watch {
    #[inline(always)]
    fn lap(&mut self, layer: Layer) {
        let now = cycles::now();
        if self.measured.timed.load(Relaxed) {
            // This worker alone writes.
            let sum = &self.measured.ticks[layer as usize];
            sum.store(sum.load(Relaxed) + now.wrapping_sub(self.last), Relaxed);
        }
        self.last = now;
    }
}

/// Makes the packets.
pub(super) struct Front {
    frames: Frames,
    flows: u32,
    phases: Vec<Phase>,
    /// Phases are looked at in slices of so long.
    slice: Duration,
    random: Random,
    flooded: u64,
    phase: usize,
    /// Of the phase and of the slice; packets of the slice.
    since: Option<[Instant; 2]>,
    given: u64,
    timed: u64,
    slices: Vec<Slice>,
    sent: Vec<u64>,
    resident_mib: Vec<f64>,
    /// Reads what the switch has counted, and what that was.
    read: Read,
    counted: Vec<Counters>,
    processor_s: Vec<f64>,
    measured: Arc<Measured>,
    counters: PortCounters,
}

/// Reads the switch's counters. Each turn of the worker ends with showing them, so at a port they are those of all packets that it has given.
pub(super) type Read = Box<dyn Fn() -> Counters + Send>;

impl Front {
    pub(super) fn new(
        (frames, flows): (Frames, u32),
        phases: Vec<Phase>,
        slice: Duration,
        seed: u64,
        (measured, read): (Arc<Measured>, Read),
    ) -> Self {
        let slices = phases.iter().map(|phase| phase.duration.div_duration_f64(slice) as usize + 2).sum();
        Front {
            sent: vec![0; frames.rules() as usize],
            frames,
            flows,
            phases,
            slice,
            random: Random::new(seed),
            flooded: seed << 32,
            phase: 0,
            since: None,
            given: 0,
            timed: 0,
            slices: Vec::with_capacity(slices),
            resident_mib: Vec::new(),
            read,
            counted: Vec::new(),
            processor_s: Vec::new(),
            measured,
            counters: PortCounters::default(),
        }
    }

    /// Whether there is another packet to come.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        let [phase, slice] = *self.since.get_or_insert([now, now]);
        let elapsed = now - slice;
        let over = now - phase >= self.phases[self.phase].duration;
        if over || elapsed >= self.slice {
            self.slices.push(Slice { phase: self.phase, packets: self.given, elapsed });
            if self.phases[self.phase].timed {
                self.timed += self.given;
            }
            self.given = 0;
            if over {
                self.resident_mib.push(resident_mib());
                self.counted.push((self.read)());
                self.processor_s.push(processor_s());
            }
            let now = Instant::now();
            self.since = Some([if over { now } else { phase }, now]);
            self.phase += usize::from(over);
        }
        let timed = self.phases.get(self.phase).is_some_and(|phase| phase.timed);
        self.measured.timed.store(timed, Relaxed);
        self.phase < self.phases.len()
    }
}

impl Port for Front {
    fn name(&self) -> &str {
        PORTS[0]
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.phase >= self.phases.len() || !self.turn() {
            return Ok(RxStatus::Ended);
        }
        let (flood, len) = (u64::from(self.phases[self.phase].flood), self.frames.len());
        for packet in pool.take_into(BURST, burst) {
            packet.set_len(len);
            let bits = self.random.bits();
            let flow = (((bits >> 32) * u64::from(self.flows)) >> 32) as u32;
            let rule = if bits & 0xff < flood {
                self.flooded += 1;
                self.frames.write_flood(self.flooded, packet.data_mut())
            } else {
                self.frames.write(flow, packet.data_mut());
                self.frames.rule(flow)
            };
            self.sent[rule as usize] += 1;
            self.counters.rx.count(len);
            self.given += 1;
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        swallow(&mut self.counters, pool, burst);
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        fn put<T>(list: &Mutex<Vec<T>>, new: &mut Vec<T>) {
            *list.lock().unwrap_or_else(PoisonError::into_inner) = std::mem::take(new);
        }
        put(&self.measured.slices, &mut self.slices);
        put(&self.measured.sent, &mut self.sent);
        put(&self.measured.resident_mib, &mut self.resident_mib);
        put(&self.measured.counted, &mut self.counted);
        put(&self.measured.processor_s, &mut self.processor_s);
        self.measured.timed_packets.store(self.timed, Relaxed);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Takes what comes.
#[derive(Default)]
pub(super) struct Back(PortCounters);

impl Port for Back {
    fn name(&self) -> &str {
        PORTS[1]
    }

    fn rx(&mut self, _: u64, _: &mut Pool, _: &mut Burst) -> Result<RxStatus, PortError> {
        Ok(RxStatus::Ended)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        swallow(&mut self.0, pool, burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.0
    }
}

fn swallow(counters: &mut PortCounters, pool: &mut Pool, burst: &mut Burst) {
    counters.tx.packets += burst.len() as u64;
    counters.tx.bytes += burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
    pool.free_all(burst);
}

/// What this process has in memory, MiB; 0 where the system does not say.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// For how many seconds this thread has had a processor; 0 where the system does not say.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_the_time_that_its_thread_had_a_processor() {
        let measured = Measured::default();
        let slice = |phase, ms| Slice { phase, packets: 1, elapsed: Duration::from_millis(ms) };
        measured.slices.lock().unwrap().extend([slice(0, 500), slice(1, 700), slice(1, 300), slice(2, 100)]);
        let ms = |phase| measured.processor_time(phase).as_millis();
        assert_eq!([ms(0), ms(1), ms(2)], [500, 1000, 100], "the system does not say");
        // In the first phase there was something before it; more than the clock says is what was not told in time.
        measured.processor_s.lock().unwrap().extend([0.75, 1.0, 1.25]);
        assert_eq!([ms(0), ms(1), ms(2)], [500, 250, 100]);
        assert_eq!([0, 1, 2].map(|phase| measured.packets(phase)), [1, 2, 1]);
    }
}
