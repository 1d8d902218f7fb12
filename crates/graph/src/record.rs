//! Recording: every burst that a worker received, every control event between bursts, and what became of each packet.
//!
//! A record file is a zstd stream of frames: length (`u32`, little-endian), CRC-32C of the payload (`u32`), payload (an
//! [`Event`] in postcard's format). The first event is the [`Event::Header`]; a run that ended well ends with
//! [`Event::End`]. A record that was cut off (a crash is when one wants it) is good up to the cut.

use crate::engine::{Fate, Observer};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::Packet;

/// Version of the format.
pub const VERSION: u32 = 1;
/// The longest frame that a reader accepts, in bytes.
const MAX_FRAME: u32 = 1 << 30;

/// A packet as it was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPacket {
    /// Nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// Length on the wire, if the capture was cut short.
    pub wire_len: u32,
    /// The bytes.
    pub data: Vec<u8>,
}

/// What became of a packet: where, and a checksum of its bytes then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFate {
    /// 0: sent, 1: dropped, 2: consumed.
    pub kind: u8,
    /// The port's or the node's name (as an index into the header's names: ports first, then nodes).
    pub at: u16,
    /// The drop reason's stable name, or empty.
    pub reason: String,
    /// Length in bytes.
    pub len: u32,
    /// CRC-32C of the bytes.
    pub crc: u32,
}

impl RecordedFate {
    pub(crate) fn new(fate: Fate, packet: &Packet) -> Self {
        let (kind, at, reason) = match fate {
            Fate::Sent { port } => (0, port, ""),
            Fate::Dropped { node, reason } => (1, node, reason.name()),
            Fate::Consumed { node } => (2, node, ""),
        };
        let data = packet.data();
        RecordedFate {
            kind,
            at: at as u16,
            reason: reason.into(),
            len: data.len() as u32,
            crc: crc32c::crc32c(data),
        }
    }
}

/// One entry of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// What the run was: enough to set up the same again.
    Header {
        /// [`VERSION`].
        version: u32,
        /// The configuration's text.
        config: String,
        /// Whether time followed the packets' timestamps.
        capture_clock: bool,
        /// The ports' names.
        ports: Vec<String>,
        /// The nodes' names.
        nodes: Vec<String>,
        /// The role's own start state (its tables), in the role's encoding.
        state: Vec<u8>,
    },
    /// A control event, in the role's encoding, applied between two turns; `generation` is the one it led to.
    Control {
        /// The generation published by this event.
        generation: u64,
        /// The change.
        change: Vec<u8>,
    },
    /// One turn of the worker's loop in which something happened.
    Turn {
        /// The time of the turn.
        now_ns: u64,
        /// Bursts in order: port number and packets.
        bursts: Vec<(u16, Vec<RecordedPacket>)>,
        /// Fates in order.
        fates: Vec<RecordedFate>,
    },
    /// The run ended in good order.
    End {
        /// Turns recorded.
        turns: u64,
    },
}

/// What is wrong with a record file.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system said no.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The file is no record, or is damaged.
    #[error("{}: event {event}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Which event, from 0.
        event: u64,
        /// What is wrong.
        what: String,
    },
}

struct Sink {
    path: PathBuf,
    out: Option<tidemill_archive::Output>,
    turns: u64,
    error: Option<RecordError>,
}

impl Sink {
    fn write(&mut self, event: &Event) {
        if let (Some(out), None) = (&mut self.out, &self.error)
            && let Err(source) = write_event(out, event)
        {
            self.error = Some(RecordError::Io { path: self.path.clone(), action: "cannot write", source });
        }
    }
}

fn write_event(out: &mut impl Write, event: &Event) -> std::io::Result<()> {
    let payload = postcard::to_stdvec(event).map_err(std::io::Error::other)?;
    out.write_all(&(payload.len() as u32).to_le_bytes())?;
    out.write_all(&crc32c::crc32c(&payload).to_le_bytes())?;
    out.write_all(&payload)
}

/// Writes a record; shared between the worker's [`Observer`] and the control side.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Sink>>);

impl Recorder {
    /// Creates the file (compressed by its extension; `.zst` is the usual one) and writes the header.
    pub fn create(path: &Path, header: &Event) -> Result<Self, RecordError> {
        let failed = |source| RecordError::Io { path: path.into(), action: "cannot create", source };
        let out = tidemill_archive::create(path).map_err(failed)?;
        let mut sink = Sink { path: path.into(), out: Some(out), turns: 0, error: None };
        sink.write(header);
        match sink.error.take() {
            Some(error) => Err(error),
            None => Ok(Recorder(Arc::new(Mutex::new(sink)))),
        }
    }

    /// The part that watches a worker.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(TurnRecorder { recorder: self.clone(), bursts: Vec::new(), fates: Vec::new() })
    }

    /// Records a control event; call it from the engine's boundary, where it is also applied.
    pub fn control(&self, generation: u64, change: Vec<u8>) {
        self.with(|sink| sink.write(&Event::Control { generation, change }));
    }

    /// Ends the record; what went wrong on the way is reported here.
    pub fn finish(&self) -> Result<u64, RecordError> {
        self.with(|sink| {
            let turns = sink.turns;
            sink.write(&Event::End { turns });
            if let Some(error) = sink.error.take() {
                return Err(error);
            }
            let finished = sink.out.take().map_or(Ok(()), tidemill_archive::Output::finish);
            finished.map(|()| turns).map_err(|source| RecordError::Io {
                path: sink.path.clone(),
                action: "cannot close",
                source,
            })
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Sink) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct TurnRecorder {
    recorder: Recorder,
    bursts: Vec<(u16, Vec<RecordedPacket>)>,
    fates: Vec<RecordedFate>,
}

impl Observer for TurnRecorder {
    fn received(&mut self, _now_ns: u64, port: usize, burst: &[Packet]) {
        let packets = burst.iter().map(|packet| RecordedPacket {
            timestamp_ns: packet.timestamp_ns(),
            wire_len: packet.wire_len(),
            data: packet.data().to_vec(),
        });
        self.bursts.push((port as u16, packets.collect()));
    }

    fn fate(&mut self, fate: Fate, packet: &Packet) {
        self.fates.push(RecordedFate::new(fate, packet));
    }

    fn end_turn(&mut self, now_ns: u64) {
        if self.bursts.is_empty() && self.fates.is_empty() {
            return;
        }
        let (bursts, fates) = (std::mem::take(&mut self.bursts), std::mem::take(&mut self.fates));
        let turn = Event::Turn { now_ns, bursts, fates };
        self.recorder.with(|sink| {
            sink.turns += 1;
            sink.write(&turn);
        });
    }
}

/// Reads a record.
pub struct RecordReader {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    events: u64,
}

impl RecordReader {
    /// Opens a record file.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError::Io { path: path.into(), action: "cannot open", source };
        Ok(RecordReader {
            path: path.into(),
            input: tidemill_archive::open(path).map_err(failed)?,
            events: 0,
        })
    }

    /// Reads events from memory (tests, fuzzing).
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        RecordReader { path: "(memory)".into(), input: Box::new(std::io::Cursor::new(bytes)), events: 0 }
    }

    /// An error about the current event.
    pub fn corrupt(&self, what: impl Into<String>) -> RecordError {
        RecordError::Corrupt { path: self.path.clone(), event: self.events, what: what.into() }
    }

    /// The next event, or `None` at the file's end.
    pub fn next_event(&mut self) -> Result<Option<Event>, RecordError> {
        let mut head = [0; 8];
        match self.input.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(self.corrupt(error.to_string())),
        }
        self.input
            .read_exact(&mut head[1..])
            .map_err(|e| self.corrupt(format!("cut off in its header: {e}")))?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, crc) = (word(0), word(4));
        if len > MAX_FRAME {
            return Err(self.corrupt(format!("claims {len} bytes: this is not a record")));
        }
        let mut payload = Vec::new();
        let read = (&mut self.input).take(u64::from(len)).read_to_end(&mut payload);
        read.map_err(|e| self.corrupt(e.to_string()))?;
        if payload.len() != len as usize {
            return Err(self.corrupt(format!("cut off after {} of {len} bytes", payload.len())));
        }
        if crc32c::crc32c(&payload) != crc {
            return Err(self.corrupt("checksum is wrong: the file is damaged"));
        }
        let event = postcard::from_bytes(&payload).map_err(|e| self.corrupt(e.to_string()))?;
        self.events += 1;
        Ok(Some(event))
    }
}
