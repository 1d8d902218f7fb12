//! A port in memory: frames that are given to it, and those that it is to send. For tests of nodes and of graphs.

use crate::pcap::{PcapPort, Playback};
use crate::{Port, PortCounters, PortError, RxStatus};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_burst::{Burst, Memory, Pool};

/// A frame to be received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// From the link header on.
    pub bytes: Vec<u8>,
    /// When it comes.
    pub time_ns: u64,
    /// Its length on the wire; 0: as long as the bytes.
    pub wire_len: u32,
}

impl Frame {
    /// A whole frame.
    pub fn at(time_ns: u64, bytes: Vec<u8>) -> Self {
        Self { bytes, time_ns, wire_len: 0 }
    }
}

/// Frames that were sent, in their order: a port's own, or several ports'.
#[derive(Debug, Clone, Default)]
pub struct Sent(Arc<Mutex<Vec<Vec<u8>>>>);

impl Sent {
    /// A copy of what is there by now.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Receives bursts that it was made with, then ends; keeps what it sends.
///
/// ```
/// use tidemill_burst::{Burst, Memory};
/// use tidemill_port::memory::{Frame, MemoryPort};
/// use tidemill_port::{Port, RxStatus};
///
/// let mut port = MemoryPort::new("lan", [vec![Frame::at(0, vec![7; 60])]]);
/// let sent = port.sent();
/// let (mut pool, mut burst) = (Memory::new(16, 2048)?.pool(16)?, Burst::new());
/// assert_eq!(port.rx(0, &mut pool, &mut burst)?, RxStatus::Received);
/// port.tx(0, &mut pool, &mut burst)?;
/// assert_eq!(sent.frames(), [vec![7; 60]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    bursts: VecDeque<VecDeque<Frame>>,
    sent: Sent,
    counters: PortCounters,
}

impl MemoryPort {
    /// A port that receives a burst with each call; with an empty one, nothing. What finds no room or no frame in the pool comes with the next call.
    pub fn new(name: &str, bursts: impl IntoIterator<Item = Vec<Frame>>) -> Self {
        Self {
            name: name.to_owned(),
            bursts: bursts.into_iter().map(VecDeque::from).collect(),
            sent: Sent::default(),
            counters: PortCounters::default(),
        }
    }

    /// The same, sending where another one does.
    #[must_use]
    pub fn sending_to(self, sent: &Sent) -> Self {
        Self { sent: sent.clone(), ..self }
    }

    /// Where its sent frames are to be found, also when the port is gone.
    pub fn sent(&self) -> Sent {
        self.sent.clone()
    }
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some(frames) = self.bursts.front_mut() else { return Ok(RxStatus::Ended) };
        let before = burst.len();
        while burst.room() > 0
            && let Some(frame) = frames.front()
        {
            if frame.bytes.len() > pool.room() {
                let (length, room) = (frame.bytes.len(), pool.room());
                return Err(PortError::Config {
                    port: self.name.clone(),
                    what: format!(
                        "a frame of {length} bytes: memory with longer frames is needed, these hold {room}"
                    ),
                });
            }
            let Some(mut packet) = pool.packet(&frame.bytes) else { break };
            packet.set_timestamp_ns(frame.time_ns);
            if frame.wire_len > 0 {
                packet.set_wire_len(frame.wire_len);
            }
            self.counters.rx.count(frame.bytes.len());
            if burst.push(packet).is_err() {
                // Cannot be: there is room.
                break;
            }
            frames.pop_front();
        }
        if frames.is_empty() {
            self.bursts.pop_front();
        }
        Ok(match burst.len() > before {
            true => RxStatus::Received,
            false => RxStatus::Idle { next_due_ns: None },
        })
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut sent = self.sent.0.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            sent.push(packet.data().to_vec());
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// The frames of a capture, with their times.
///
/// # Errors
/// The file cannot be read, or is no capture.
pub fn capture(path: &Path) -> Result<Vec<Frame>, PortError> {
    let mut port = PcapPort::open("capture", Some(&Playback::once(path)), None, 1)?.remove(0);
    let mut pool = Memory::new(512, 32768).and_then(|memory| memory.pool(512)).map_err(PortError::File)?;
    let (mut burst, mut frames) = (Burst::new(), Vec::new());
    loop {
        let status = port.rx(0, &mut pool, &mut burst)?;
        for packet in burst.drain() {
            let (bytes, time_ns) = (packet.data().to_vec(), packet.timestamp_ns());
            frames.push(Frame { bytes, time_ns, wire_len: packet.wire_len() });
            pool.free(packet);
        }
        if status == RxStatus::Ended {
            return Ok(frames);
        }
    }
}
