//! Two ports back to back in memory: what one sends, the other receives, without a copy. For tests, and for joining
//! two graphs.

use crate::{Port, PortCounters, PortError, RxStatus};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_burst::{Burst, Packet, Pool};

struct Line {
    packets: ArrayQueue<Packet>,
    closed: AtomicBool,
}

/// One end of a channel. Packets keep their frames, which belong to the sender's pool; everything that the sender's
/// graph knew of them (hash, label, port) is forgotten.
pub struct ChannelPort {
    name: String,
    out: Arc<Line>,
    back: Arc<Line>,
    counters: PortCounters,
}

/// Makes a channel that holds up to `capacity` packets each way.
pub fn pair(a: &str, b: &str, capacity: usize) -> (ChannelPort, ChannelPort) {
    let line =
        || Arc::new(Line { packets: ArrayQueue::new(capacity.max(1)), closed: AtomicBool::new(false) });
    let (there, back) = (line(), line());
    let end = |name: &str, out: &Arc<Line>, back: &Arc<Line>| ChannelPort {
        name: name.to_owned(),
        out: out.clone(),
        back: back.clone(),
        counters: PortCounters::default(),
    };
    (end(a, &there, &back), end(b, &back, &there))
}

impl Port for ChannelPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, _now_ns: u64, _pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        // Before the packets: what was sent before the other end closed must be seen.
        let closed = self.back.closed.load(Ordering::Acquire);
        let before = burst.len();
        while burst.room() > 0 {
            let Some(mut packet) = self.back.packets.pop() else { break };
            (packet.hash, packet.label, packet.port, packet.l3) = (0, 0, 0, 0);
            packet.clear_steer();
            self.counters.rx.count(packet.len());
            if burst.push(packet).is_err() {
                break;
            }
        }
        Ok(match burst.len() > before {
            true => RxStatus::Received,
            false if closed => RxStatus::Ended,
            false => RxStatus::Idle { next_due_ns: None },
        })
    }

    fn tx(&mut self, _now_ns: u64, _pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        // The other end takes and never puts, so what has room now still has it below.
        let room = self.out.packets.capacity() - self.out.packets.len();
        for packet in burst.drain_front(room) {
            self.counters.tx.count(packet.len());
            if let Err(refused) = self.out.packets.push(packet) {
                // Cannot be: this end is the only one that puts. The packet counts itself as unnamed.
                drop(refused);
            }
        }
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        self.out.closed.store(true, Ordering::Release);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Drop for ChannelPort {
    fn drop(&mut self) {
        self.out.closed.store(true, Ordering::Release);
    }
}
