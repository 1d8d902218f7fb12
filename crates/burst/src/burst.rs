//! A burst: up to 256 packets that move together.

use crate::memory::Packet;
use arrayvec::ArrayVec;
use std::ops::{Deref, DerefMut};

/// The most packets that a port hands over at once.
pub const BURST: usize = 256;

/// Up to [`BURST`] packets, in order of arrival. Allocate it once (boxed) and reuse it.
#[derive(Default)]
pub struct Burst(ArrayVec<Packet, BURST>);

impl Burst {
    /// An empty burst.
    pub fn new() -> Self {
        Self::default()
    }

    /// Free places.
    #[inline]
    pub fn room(&self) -> usize {
        self.0.remaining_capacity()
    }

    /// Adds a packet, or gives it back if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        self.0.try_push(packet).map_err(|full| full.element())
    }

    /// Takes all packets, in order.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.0.drain(..)
    }

    /// Takes the first `n` packets (all, if there are fewer), in order.
    #[inline]
    pub fn drain_front(&mut self, n: usize) -> impl Iterator<Item = Packet> + '_ {
        let n = n.min(self.0.len());
        self.0.drain(..n)
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
