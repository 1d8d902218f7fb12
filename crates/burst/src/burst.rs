//! A burst: up to 256 packets that move together.

use crate::memory::Packet;
use std::ops::{Deref, DerefMut};

/// The most packets that a port hands over at once.
pub const BURST: usize = 256;

/// Up to [`BURST`] packets, in order of arrival. Allocated once and reused: it never grows.
pub struct Burst(Vec<Packet>);

impl Default for Burst {
    fn default() -> Self {
        Burst(Vec::with_capacity(BURST))
    }
}

impl Burst {
    /// An empty burst.
    pub fn new() -> Self {
        Self::default()
    }

    /// Free places.
    #[inline]
    pub fn room(&self) -> usize {
        BURST - self.0.len()
    }

    /// Adds a packet, or gives it back if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.0.len() < BURST {
            self.0.push(packet);
            Ok(())
        } else {
            Err(packet)
        }
    }

    /// The packets, for adding some within the capacity.
    pub(crate) fn vec(&mut self) -> &mut Vec<Packet> {
        &mut self.0
    }

    /// Takes all packets, in order.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Packet> {
        self.0.drain(..)
    }

    /// Takes the first `n` packets (all, if there are fewer), in order.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> std::vec::Drain<'_, Packet> {
        let n = n.min(self.0.len());
        self.0.drain(..n)
    }

    /// Moves all packets to the end of `queue`: one copy of 32 bytes per packet.
    #[inline]
    pub fn append_to(&mut self, queue: &mut Vec<Packet>) {
        queue.append(&mut self.0);
    }

    /// Moves packets from the front of `queue` to the end of the burst, as many as fit.
    #[inline]
    pub fn fill_from(&mut self, queue: &mut Vec<Packet>) {
        if queue.len() <= self.room() {
            self.0.append(queue);
        } else {
            let n = self.room();
            self.0.extend(queue.drain(..n));
        }
    }
}

impl Deref for Burst {
    type Target = [Packet];
    #[inline]
    fn deref(&self) -> &[Packet] {
        &self.0
    }
}

impl DerefMut for Burst {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Packet] {
        &mut self.0
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
        assert_eq!((burst.room(), burst.0.capacity()), (0, BURST));
        let mut queue = vec![back];
        burst.append_to(&mut queue);
        burst.fill_from(&mut queue);
        assert_eq!((burst.len(), queue.len(), burst.room()), (256, 1, 0));
        assert_eq!(
            (burst[0].data(), burst[255].data()),
            (&256u16.to_be_bytes()[..], &254u16.to_be_bytes()[..])
        );
        assert_eq!(queue[0].data(), 255u16.to_be_bytes());
        for rest in burst.drain().chain(queue) {
            pool.free(rest);
        }
        assert_eq!(pool.stats().unnamed, 0);
    }
}
