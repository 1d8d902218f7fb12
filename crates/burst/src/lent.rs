//! Frames in the hands of a device: a kernel's AF_XDP rings, a network card's descriptors.

use crate::memory::{DeviceClosed, Memory, Packet};
use std::sync::Arc;

/// One device queue's account of the frames that it has been lent: at most one packet per frame of the region.
///
/// Devices know packets by their address, the offset of the data from the start of the region (UMEM address). A frame
/// that goes to the device stays somebody's: its [`Packet`] waits in here, where nobody can read or free it, and comes
/// out again when the device gives the address back. So an address that was never lent, or comes back twice, finds
/// nothing, and a device can make us lose count of nothing.
///
/// ```text
/// pool.take() -> lend -> fill ring ... receive ring -> adopt(address, length) -> packet
/// packet      -> lend -> transmit ring ... completion ring -> returned(address) -> pool.free
/// ```
///
/// 32 bytes per frame of the region.
pub struct Lent {
    memory: Arc<Memory>,
    slots: Box<[Option<Packet>]>,
    count: usize,
}

impl Lent {
    /// An empty table for one device queue on `memory`.
    pub fn new(memory: &Arc<Memory>) -> Self {
        let slots = std::iter::repeat_with(|| None).take(memory.frames()).collect();
        Lent { memory: memory.clone(), slots, count: 0 }
    }

    /// Takes a packet in and says its address for the device; gives it back if its frame is of another region.
    #[inline]
    pub fn lend(&mut self, packet: Packet) -> Result<u64, Packet> {
        if !packet.is_in(&self.memory) {
            return Err(packet);
        }
        let address = packet.offset();
        match self.slots.get_mut(address as usize / self.memory.frame_size()) {
            Some(slot @ None) => {
                *slot = Some(packet);
                self.count += 1;
                Ok(address)
            }
            // A frame has one owner, so its slot is free; were it not, the packet would still not get lost.
            _ => Err(packet),
        }
    }

    /// The packet that the device gives back: `len` bytes of data at `address`. `None`, and nothing changed, if the
    /// device does not have that frame, or if the data would reach out of it.
    #[inline]
    pub fn adopt(&mut self, address: u64, len: usize) -> Option<Packet> {
        let (frame_size, address) = (self.memory.frame_size(), usize::try_from(address).ok()?);
        let slot = self.slots.get_mut(address / frame_size)?;
        if !slot.as_mut()?.place(address % frame_size, len) {
            return None;
        }
        self.count -= 1;
        slot.take()
    }

    /// The packet whose data the device was lent at `address`, as it was lent (a transmit completion). `None`, and
    /// nothing changed, if it was not.
    #[inline]
    pub fn returned(&mut self, address: u64) -> Option<Packet> {
        let index = usize::try_from(address).ok()? / self.memory.frame_size();
        let packet = self.slots.get_mut(index)?.take_if(|packet| packet.offset() == address)?;
        self.count -= 1;
        Some(packet)
    }

    /// Frames that the device has now.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The region whose frames are lent.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Takes every packet back, to be freed, once the device is gone.
    ///
    /// Only for after the device was closed: until then it may write into the frames at any moment. A table that is
    /// dropped instead keeps its frames (and with them the region) out for ever, which is always safe.
    pub fn reclaim(&mut self, _closed: DeviceClosed) -> impl Iterator<Item = Packet> + '_ {
        self.count = 0;
        self.slots.iter_mut().filter_map(Option::take)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.slots.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({} of {} frames)", self.count, self.slots.len())
    }
}
