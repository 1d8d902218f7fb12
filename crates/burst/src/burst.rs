//! A burst: up to 256 packets that move together.

use crate::memory::Packet;
use std::ops::{Deref, DerefMut};

/// The most packets that a port hands over at once.
pub const BURST: usize = 256;

/// Up to [`BURST`] packets, in order of arrival. Allocated once and reused: it never grows.
pub struct Burst {
    packets: Vec<Packet>,
    limit: usize,
}

impl Default for Burst {
    fn default() -> Self {
        Burst { packets: Vec::with_capacity(BURST), limit: BURST }
    }
}

impl Burst {
    /// An empty burst.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lowers how many packets fit (at most [`BURST`]), for callers that want no more than so many. Packets that
    /// are in already stay.
    pub fn set_limit(&mut self, packets: usize) {
        self.limit = packets.min(BURST);
    }

    /// Free places.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// Adds a packet, or gives it back if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.packets.len() < self.limit {
            self.packets.push(packet);
            Ok(())
        } else {
            Err(packet)
        }
    }

    /// Takes all packets, in order.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Packet> {
        self.packets.drain(..)
    }

    /// Takes the first `n` packets (all, if there are fewer), in order.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> std::vec::Drain<'_, Packet> {
        let n = n.min(self.packets.len());
        self.packets.drain(..n)
    }

    /// Moves all packets to the end of `queue`: one copy of 32 bytes per packet.
    #[inline]
    pub fn append_to(&mut self, queue: &mut Vec<Packet>) {
        queue.append(&mut self.packets);
    }

    /// Moves packets from the front of `queue` to the end of the burst, as many as fit.
    #[inline]
    pub fn fill_from(&mut self, queue: &mut Vec<Packet>) {
        if queue.len() <= self.room() {
            self.packets.append(queue);
        } else {
            let n = self.room();
            self.packets.extend(queue.drain(..n));
        }
    }
}

impl Deref for Burst {
    type Target = [Packet];
    #[inline]
    fn deref(&self) -> &[Packet] {
        &self.packets
    }
}

impl DerefMut for Burst {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_burst_never_grows_and_keeps_order() {
        let mut pool = Memory::new(600, 2048).unwrap().pool(600).unwrap();
        let mut packet = |n: u16| pool.packet(&n.to_be_bytes()).unwrap();
        let mut burst = Burst::new();
        (0..256).for_each(|n| burst.push(packet(n)).unwrap());
        let back = burst.push(packet(256)).unwrap_err();
        assert_eq!((burst.room(), burst.packets.capacity()), (0, BURST));
        let mut queue = vec![back];
        burst.append_to(&mut queue);
        burst.set_limit(100);
        burst.fill_from(&mut queue);
        assert_eq!((burst.len(), queue.len(), burst.room()), (100, 157, 0));
        assert_eq!(
            (burst[0].data(), burst[99].data()),
            (&256u16.to_be_bytes()[..], &98u16.to_be_bytes()[..])
        );
        assert_eq!(queue[0].data(), 99u16.to_be_bytes());
        burst.set_limit(256);
        burst.fill_from(&mut queue);
        assert_eq!((burst.len(), queue.len()), (256, 1));
        for rest in burst.drain().chain(queue) {
            pool.free(rest);
        }
        assert_eq!(pool.stats().unnamed, 0);
    }
}
