//! Replay: the recorded bursts and control events again, in the same order at the same time, and every fate compared.

use crate::engine::{Fate, Observer};
use crate::record::{Event, RecordError, RecordReader, RecordedFate, RecordedPacket};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::{Burst, Packet, Pool};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

/// What a replay came to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdicts {
    /// Turns repeated.
    pub turns: u64,
    /// Packets whose fate was compared.
    pub checked: u64,
    /// Fates that differed.
    pub wrong: u64,
    /// The first few differences, in words.
    pub examples: Vec<String>,
    /// Whether the record says that the run ended in good order.
    pub complete: bool,
}

/// The recorded turn that is next. Turns in which nothing came, went or ended are in no record, and the worker makes its own: a turn
/// without bursts, in which only time brought something about, is waited for.
#[derive(Default)]
struct Stage {
    /// Whether there is one.
    staged: bool,
    now_ns: u64,
    /// Whether it had bursts.
    receives: bool,
    bursts: VecDeque<(u16, VecDeque<RecordedPacket>)>,
    expected: Vec<RecordedFate>,
    seen: Vec<RecordedFate>,
    /// Turns that have gone by without it, and the time in the last of them.
    waited: u32,
    last_ns: u64,
    ended: bool,
    verdicts: Verdicts,
}

/// Turns in which time stands still, after which a turn that has not come will not come.
const PATIENCE: u32 = 1000;

impl Stage {
    /// Whether the staged turn has been, at the end of a turn at `now_ns`.
    fn has_been(&mut self, now_ns: u64) -> bool {
        let been = match (self.receives, self.seen.is_empty()) {
            (true, _) => self.bursts.is_empty(),
            (false, false) => true,
            (false, true) => now_ns >= self.now_ns,
        };
        self.waited = if now_ns == self.last_ns { self.waited + 1 } else { 0 };
        self.last_ns = now_ns;
        been || self.waited >= PATIENCE
    }
}

type Shared = Arc<Mutex<Stage>>;

fn lock(stage: &Shared) -> std::sync::MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drives a run from a record.
pub struct Replayer {
    reader: RecordReader,
    stage: Shared,
    clock: Arc<AtomicU64>,
    error: Option<RecordError>,
}

impl Replayer {
    /// Takes over a reader whose header has been read. `clock` is the engine's (for a record of a wall-clock run).
    pub fn new(reader: RecordReader, clock: Arc<AtomicU64>) -> Self {
        Replayer { reader, stage: Shared::default(), clock, error: None }
    }

    /// The port that stands in for the recorded port number `port`.
    pub fn port(&self, port: usize, name: &str) -> Box<dyn Port> {
        Box::new(ReplayPort {
            port: port as u16,
            name: name.into(),
            stage: self.stage.clone(),
            counters: PortCounters::default(),
        })
    }

    /// The observer that compares fates.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Comparer(self.stage.clone()))
    }

    /// Stages the next turn if the last one has been; call it once before the run and then at every boundary. Control events before that turn
    /// are handed to `apply`, which returns the generation that they led to.
    pub fn advance(&mut self, mut apply: impl FnMut(&[u8]) -> Result<u64, String>) {
        let mut stage = lock(&self.stage);
        if stage.ended || stage.staged {
            return;
        }
        loop {
            let what = match self.reader.next_event() {
                Ok(Some(Event::Turn { now_ns, bursts, fates })) => {
                    self.clock.fetch_max(now_ns, Ordering::AcqRel);
                    (stage.staged, stage.now_ns, stage.receives) = (true, now_ns, !bursts.is_empty());
                    stage.waited = 0;
                    stage.bursts = bursts.into_iter().map(|(port, packets)| (port, packets.into())).collect();
                    stage.expected = fates;
                    return;
                }
                Ok(Some(Event::Control { generation, change })) => match apply(&change) {
                    Ok(reached) if reached == generation => continue,
                    Ok(reached) => format!("a control event led to generation {reached}, then {generation}"),
                    Err(what) => what,
                },
                Ok(Some(Event::End { .. })) => {
                    stage.verdicts.complete = true;
                    stage.ended = true;
                    return;
                }
                Ok(Some(Event::Header { .. })) => "a second header".into(),
                Ok(None) => {
                    stage.ended = true;
                    return;
                }
                Err(error) => {
                    self.error = Some(error);
                    stage.ended = true;
                    return;
                }
            };
            self.error = Some(self.reader.corrupt(what));
            stage.ended = true;
            return;
        }
    }

    /// What the replay came to, and the fault in the record that ended it early, if any.
    pub fn finish(self) -> (Verdicts, Option<RecordError>) {
        let verdicts = lock(&self.stage).verdicts.clone();
        (verdicts, self.error)
    }
}

struct ReplayPort {
    port: u16,
    name: String,
    stage: Shared,
    counters: PortCounters,
}

impl Port for ReplayPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let mut stage = lock(&self.stage);
        let ended = stage.ended;
        let Some((port, packets)) = stage.bursts.front_mut() else {
            return Ok(if ended { RxStatus::Ended } else { RxStatus::Idle { next_due_ns: None } });
        };
        if *port != self.port {
            return Ok(RxStatus::Idle { next_due_ns: None });
        }
        while burst.room() > 0
            && let Some(recorded) = packets.front()
        {
            let Some(mut packet) = pool.packet(&recorded.data) else { break };
            packet.set_timestamp_ns(recorded.timestamp_ns);
            packet.set_wire_len(recorded.wire_len);
            self.counters.rx.count(recorded.data.len());
            packets.pop_front();
            if let Err(packet) = burst.push(packet) {
                pool.free(packet);
            }
        }
        if packets.is_empty() {
            stage.bursts.pop_front();
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

struct Comparer(Shared);

impl Observer for Comparer {
    fn received(&mut self, _: u64, _: usize, _: &[Packet]) {}

    fn fate(&mut self, fate: Fate, packet: &Packet) {
        lock(&self.0).seen.push(RecordedFate::new(fate, packet));
    }

    fn end_turn(&mut self, now_ns: u64) {
        let mut stage = lock(&self.0);
        if stage.staged && !stage.has_been(now_ns) {
            return;
        }
        stage.staged = false;
        if stage.seen.is_empty() && stage.expected.is_empty() {
            return;
        }
        let (seen, expected) = (std::mem::take(&mut stage.seen), std::mem::take(&mut stage.expected));
        let turn = stage.verdicts.turns;
        let verdicts = &mut stage.verdicts;
        verdicts.turns += 1;
        for i in 0..seen.len().max(expected.len()) {
            verdicts.checked += 1;
            if seen.get(i) != expected.get(i) {
                verdicts.wrong += 1;
                if verdicts.examples.len() < 10 {
                    let text =
                        format!("turn {turn}, packet {i}: was {:?}, is {:?}", expected.get(i), seen.get(i));
                    verdicts.examples.push(text);
                }
            }
        }
    }
}
