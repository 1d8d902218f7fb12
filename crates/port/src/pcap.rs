//! The capture port: receives the packets of one file, sends into another.
//!
//! Packets keep the capture's timestamps. A capture cut to a snap length gives packets whose
//! [`wire_len`](tidemill_burst::Packet::wire_len) says how long they were. In a loop, timestamps go on rising: each pass
//! is shifted by the capture's duration and one mean gap.

use crate::capture::{Preloaded, Sense, Source, Writer};
use crate::{Port, PortCounters, PortError, RxStatus, number};
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_burst::{Burst, DropReason, Packet, Pool};

/// When a capture's packets are received.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As fast as they are asked for.
    Flat,
    /// At the capture's pace, times a speed: 2.0 plays an hour in half an hour.
    Time {
        /// The factor, above 0.
        speed: f64,
    },
}

/// How a capture is played.
#[derive(Debug, Clone)]
pub struct Playback {
    /// The file.
    pub input: PathBuf,
    /// How often; 0 is for ever.
    pub repeat: u64,
    /// When.
    pub pace: Pace,
    /// The most packets in all.
    pub limit: Option<u64>,
    /// Read the file into memory first: no decompression or parsing while packets run.
    pub preload: bool,
}

impl Playback {
    /// Plays `input` once, flat out.
    pub fn once(input: impl Into<PathBuf>) -> Self {
        Playback { input: input.into(), repeat: 1, pace: Pace::Flat, limit: None, preload: false }
    }

    /// Refuses what cannot be played, whatever is in the file.
    pub(crate) fn check(&self, port: &str) -> Result<(), PortError> {
        match self.pace {
            Pace::Time { speed } if !(speed.is_finite() && speed > 0.0) => {
                let speed = number(speed);
                Err(PortError::config(port, format!("speed {speed} is not a number above 0")))
            }
            _ => Ok(()),
        }
    }
}

/// One queue of a capture port.
pub struct PcapPort {
    name: String,
    play: Option<Play>,
    writer: Option<Writer>,
    write_failed: bool,
    counters: PortCounters,
}

struct Play {
    source: Source,
    /// Passes still to come after this one; `None` is for ever.
    passes_left: Option<u64>,
    records_left: u64,
    pace: Pace,
    /// Which share of the flows is this queue's.
    queue: u64,
    queues: u64,
    /// A packet that has been read and is not due yet.
    waiting: Option<Packet>,
    /// `now_ns` and timestamp of the first packet.
    started: Option<(u64, u64)>,
    /// Added to this pass's timestamps.
    shift_ns: u64,
    first_ns: u64,
    last_ns: u64,
    /// Records seen in this pass.
    records: u64,
    /// Packets that this pass has given this queue.
    given: u64,
}

/// Records passed over (another queue's, too long) in one call before the worker gets its turn.
const SKIP_MAX: u32 = 4096;

/// What the source had.
enum Next {
    Packet(Packet),
    /// Received and dropped, or another queue's.
    Gone,
    NoFrame,
    End,
}

impl PcapPort {
    /// Opens a port with `queues` queues, which share the flows of `input` (each reads the file and takes its share)
    /// and write to one `output`. Without an input the port receives nothing; without an output it refuses to send.
    pub fn open(
        name: &str,
        input: Option<&Playback>,
        output: Option<&std::path::Path>,
        queues: usize,
    ) -> Result<Vec<PcapPort>, PortError> {
        input.iter().try_for_each(|input| input.check(name))?;
        let limit = input.and_then(|i| i.limit).unwrap_or(u64::MAX);
        let preloaded = match input {
            Some(input) if input.preload => Some(Arc::new(Preloaded::read(&input.input, limit)?)),
            _ => None,
        };
        let play = |queue: usize, input: &Playback| {
            let source = match &preloaded {
                Some(capture) => Source::preloaded(capture.clone()),
                None => Source::open(&input.input)?,
            };
            Ok(Play {
                source,
                passes_left: input.repeat.checked_sub(1),
                records_left: limit,
                pace: input.pace,
                queue: queue as u64,
                queues: queues as u64,
                waiting: None,
                started: None,
                shift_ns: 0,
                first_ns: 0,
                last_ns: 0,
                records: 0,
                given: 0,
            })
        };
        // The input first: a missing input must not leave an empty output behind.
        let plays: Vec<Option<Play>> = (0..queues)
            .map(|queue| input.map(|input| play(queue, input)).transpose())
            .collect::<Result<_, PortError>>()?;
        let writer = output.map(Writer::create).transpose()?;
        let port = |play| PcapPort {
            name: name.to_owned(),
            play,
            writer: writer.clone(),
            write_failed: false,
            counters: PortCounters::default(),
        };
        Ok(plays.into_iter().map(port).collect())
    }

    fn send(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let Some(writer) = self.writer.as_ref().filter(|_| !self.write_failed) else {
            self.counters.tx.dropped.count_many(DropReason::TxFailed, burst.len() as u64);
            pool.free_all(burst);
            return Ok(());
        };
        if burst.is_empty() {
            return writer.tick(now_ns);
        }
        let mut file = writer.lock();
        let mut result = Ok(());
        for packet in burst.drain() {
            // Closed: another queue has met the error and reported it.
            let refused = result.is_err() || file.is_closed();
            if !refused {
                let timestamp_ns = match packet.timestamp_ns() {
                    0 => now_ns,
                    ns => ns,
                };
                result = file.write(timestamp_ns, Sense::Unknown, packet.data(), packet.wire_len());
            }
            match refused || result.is_err() {
                true => self.counters.tx.dropped.count(DropReason::TxFailed),
                false => self.counters.tx.count(packet.len()),
            }
            pool.free(packet);
        }
        drop(file);
        result.and_then(|()| writer.tick(now_ns))
    }
}

impl Play {
    /// When a packet of time `timestamp_ns` is due.
    fn due_ns(&mut self, now_ns: u64, timestamp_ns: u64) -> u64 {
        let Pace::Time { speed } = self.pace else { return 0 };
        let (start_ns, first_ns) = *self.started.get_or_insert((now_ns, timestamp_ns));
        let after = timestamp_ns.saturating_sub(first_ns) as f64 / speed;
        start_ns.saturating_add(after as u64)
    }

    fn next(&mut self, pool: &mut Pool, counters: &mut PortCounters) -> Result<Next, PortError> {
        if self.records_left == 0 {
            return Ok(Next::End);
        }
        // Without a frame the packet stays in the file.
        let Some(mut packet) = pool.take() else { return Ok(Next::NoFrame) };
        let framed = match self.source.next() {
            Ok(Some(framed)) => framed,
            end => {
                let end = end.map(|_| ());
                pool.free(packet);
                end?;
                return self.next_pass();
            }
        };
        self.records_left -= 1;
        if self.records == 0 {
            self.first_ns = framed.timestamp_ns;
        }
        self.records += 1;
        self.last_ns = self.last_ns.max(framed.timestamp_ns);
        if self.queues > 1 && framed.spread() % self.queues != self.queue {
            pool.free(packet);
            return Ok(Next::Gone);
        }
        if framed.len() > pool.room() {
            pool.free(packet);
            counters.rx.count(framed.len());
            counters.rx.dropped.count(DropReason::FrameTooSmall);
            return Ok(Next::Gone);
        }
        self.given += 1;
        framed.copy_to(&mut packet);
        packet.set_timestamp_ns(framed.timestamp_ns.saturating_add(self.shift_ns));
        Ok(Next::Packet(packet))
    }

    fn next_pass(&mut self) -> Result<Next, PortError> {
        // A capture with nothing for this queue could be looped through for ever.
        if std::mem::take(&mut self.given) == 0 || self.passes_left == Some(0) {
            self.records_left = 0;
            return Ok(Next::End);
        }
        self.passes_left = self.passes_left.map(|n| n - 1);
        let span_ns = self.last_ns.saturating_sub(self.first_ns);
        let pause_ns = (span_ns / self.records.max(1)).max(1);
        self.shift_ns = self.shift_ns.saturating_add(span_ns).saturating_add(pause_ns);
        self.records = 0;
        self.source.rewind()?;
        Ok(Next::Gone)
    }

    fn rx(
        &mut self,
        now_ns: u64,
        pool: &mut Pool,
        burst: &mut Burst,
        counters: &mut PortCounters,
    ) -> Result<RxStatus, PortError> {
        let (mut progress, mut gone) = (false, 0);
        while burst.room() > 0 {
            let packet = match self.waiting.take() {
                Some(packet) => packet,
                None => match self.next(pool, counters)? {
                    Next::Packet(packet) => packet,
                    Next::Gone => {
                        // The worker must get a chance to stop, however many packets are not for this queue.
                        (progress, gone) = (true, gone + 1);
                        if gone == SKIP_MAX {
                            break;
                        }
                        continue;
                    }
                    Next::End if !progress => return Ok(RxStatus::Ended),
                    Next::NoFrame if !progress => return Ok(RxStatus::Idle { next_due_ns: None }),
                    Next::End | Next::NoFrame => break,
                },
            };
            if self.pace != Pace::Flat {
                let due_ns = self.due_ns(now_ns, packet.timestamp_ns());
                if due_ns > now_ns {
                    self.waiting = Some(packet);
                    if progress {
                        break;
                    }
                    return Ok(RxStatus::Idle { next_due_ns: Some(due_ns) });
                }
            }
            counters.rx.count(packet.len());
            progress = true;
            if let Err(packet) = burst.push(packet) {
                self.waiting = Some(packet);
                break;
            }
        }
        Ok(RxStatus::Received)
    }
}

impl Port for PcapPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some(play) = &mut self.play else { return Ok(RxStatus::Ended) };
        let status = play.rx(now_ns, pool, burst, &mut self.counters);
        if status.is_err() {
            if let Some(packet) = play.waiting.take() {
                pool.free(packet);
            }
            // Every queue reads the file and meets the same fault; the first reports it.
            let ours = play.queue == 0 || matches!(play.source, Source::Memory { .. });
            self.play = None;
            if !ours {
                return Ok(RxStatus::Ended);
            }
        }
        status
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let sent = self.send(now_ns, pool, burst);
        self.write_failed |= sent.is_err();
        sent
    }

    fn finish(&mut self, _now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        if let Some(packet) = self.play.take().and_then(|play| play.waiting) {
            // Read ahead, but never due: it was not received.
            pool.free(packet);
        }
        match self.writer.take() {
            Some(writer) if !self.write_failed => writer.finish(),
            _ => Ok(()),
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
