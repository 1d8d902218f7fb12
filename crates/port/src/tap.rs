//! The capture tap: wraps any port and writes what passes, in both directions, to a capture file.

use crate::capture::{Sense, Writer};
use crate::{Port, PortCounters, PortError, RxStatus, Wake, Waker};
use tidemill_burst::{Burst, DropReason, Packet, Pool};

/// A port whose packets are copied to a file: received ones as the worker gets them, sent ones as the worker hands them
/// over. pcapng files say which is which.
///
/// A tap on a full disk reports it once, stops copying, and lets the packets pass.
pub struct Tap<P> {
    inner: P,
    /// `None` once it has failed or was closed.
    writer: Option<Writer>,
    /// Copied, but not yet taken by the inner port.
    sending: Box<Burst>,
    refused: u64,
}

impl<P: Port> Tap<P> {
    /// Wraps `inner`. Clones of `writer` may serve other queues and ports.
    pub fn new(inner: P, writer: Writer) -> Self {
        Tap { inner, writer: Some(writer), sending: Box::default(), refused: 0 }
    }

    fn copy(
        writer: &mut Option<Writer>,
        now_ns: u64,
        sense: Sense,
        packets: &[Packet],
    ) -> Result<(), PortError> {
        let Some(open) = writer else { return Ok(()) };
        let write = || {
            if !packets.is_empty() {
                let mut file = open.lock();
                for packet in packets {
                    let timestamp_ns = match packet.timestamp_ns() {
                        0 => now_ns,
                        ns => ns,
                    };
                    file.write(timestamp_ns, sense, packet.data(), packet.wire_len())?;
                }
            }
            open.tick(now_ns)
        };
        let written = write();
        if written.is_err() {
            *writer = None;
        }
        written
    }
}

impl<P: Port> Port for Tap<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let before = burst.len();
        let status = self.inner.rx(now_ns, pool, burst);
        let copied = Self::copy(&mut self.writer, now_ns, Sense::Inbound, &burst[before..]);
        // The port's own error comes first; a tap's will come again.
        let status = status?;
        copied.map(|()| status)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut copied = Ok(());
        if self.sending.is_empty() {
            copied = Self::copy(&mut self.writer, now_ns, Sense::Outbound, burst);
            std::mem::swap(&mut *self.sending, burst);
        }
        self.inner.tx(now_ns, pool, &mut self.sending)?;
        copied
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let mut sent = Ok(());
        for _ in 0..1000 {
            if sent.is_err() || self.sending.is_empty() {
                break;
            }
            sent = self.inner.tx(now_ns, pool, &mut self.sending);
        }
        self.refused += self.sending.len() as u64;
        pool.free_all(&mut self.sending);
        let finished = self.inner.finish(now_ns, pool);
        let closed = self.writer.take().map_or(Ok(()), Writer::finish);
        sent.and(finished).and(closed)
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        counters.tx.held += self.sending.len() as u64;
        counters.tx.dropped.count_many(DropReason::TxFull, self.refused);
        counters
    }

    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        self.inner.wake(waker)
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }
}
