//! Frames in the hands of a device: a kernel's AF_XDP rings, a network card's descriptors.

use crate::burst::Burst;
use crate::memory::{self, DeviceClosed, Loan, Memory, Packet, Pool};
use std::sync::Arc;

/// A packet as a device hands it over: the frame, where in it the data lies, and what the device has found out.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// The frame's number in its region.
    pub frame: u32,
    /// Where in the frame the data begins.
    pub start: usize,
    /// Bytes of data.
    pub len: usize,
    /// A hash of the flow, or 0.
    pub hash: u32,
    /// Whether the IPv4 header's checksum is right (false if the device does not know).
    pub checked: bool,
}

/// One device queue's account of the frames that it has been lent: at most one packet per frame of the region.
///
/// Devices know packets by their address, the offset of the data from the start of the region (UMEM address), or by the
/// number of their frame (DPDK). A frame that goes to the device stays somebody's: its owner is noted in here, where
/// nobody can read or free it, and comes out again as a [`Packet`] when the device gives it back. So a frame that was
/// never lent, or comes back twice, finds nothing, and a device can make us lose count of nothing.
///
/// ```text
/// pool.take() -> lend -> fill ring ... receive ring -> adopt(address, length) -> packet
/// packet      -> lend -> transmit ring ... completion ring -> returned(address) -> pool.free
/// ```
///
/// 16 bytes per frame of the region. Of a packet its frame alone comes back, not what the nodes had found out.
pub struct Lent {
    memory: Arc<Memory>,
    frame_shift: u32,
    slots: Box<[Option<Loan>]>,
    count: usize,
}

impl Lent {
    /// An empty table for one device queue on `memory`.
    pub fn new(memory: &Arc<Memory>) -> Self {
        let slots = std::iter::repeat_with(|| None).take(memory.frames()).collect();
        Lent { memory: memory.clone(), frame_shift: memory.frame_size().trailing_zeros(), slots, count: 0 }
    }

    /// Takes a packet in and says its address for the device; gives it back if its frame is of another region.
    #[inline]
    pub fn lend(&mut self, packet: Packet) -> Result<u64, Packet> {
        let start = packet.start();
        self.lend_frame(packet).map(|frame| (u64::from(frame) << self.frame_shift) + u64::from(start))
    }

    /// As [`lend`](Self::lend), for devices that go by frames: says the frame's number.
    #[inline]
    pub fn lend_frame(&mut self, packet: Packet) -> Result<u32, Packet> {
        let loan = packet.into_loan(&self.memory)?;
        let frame = loan.frame();
        match self.slots.get_mut(frame as usize) {
            Some(slot @ None) => {
                *slot = Some(loan);
                self.count += 1;
                Ok(frame)
            }
            // A frame has one owner, so its slot is free; were it not, the packet would still not get lost.
            _ => Err(loan.packet()),
        }
    }

    /// Lends packets off the front of `packets`, up to `most` of them, as long as `fits` says so of their length, and says each one's frame,
    /// start and length. Returns how many; if fewer than `most`, the next one, if there is one, does not fit or is of another region.
    #[inline]
    pub fn lend_front(
        &mut self,
        packets: &mut std::vec::Drain<'_, Packet>,
        most: usize,
        fits: impl Fn(usize) -> bool,
        mut each: impl FnMut(u32, u16, usize),
    ) -> usize {
        let (memory, slots) = (&*self.memory, &mut *self.slots);
        let mut lent = 0;
        while lent < most
            && let Some(packet) = packets.as_slice().first()
            && fits(packet.len())
            && let Some(frame) = packet.frame_in(memory)
            && let Some(slot @ None) = slots.get_mut(frame as usize)
            && let (start, len) = (packet.start(), packet.len())
            && let Some(packet) = packets.next()
        {
            *slot = Some(packet.into_loan_of(frame));
            each(frame, start, len);
            lent += 1;
        }
        self.count += lent;
        lent
    }

    /// Lends up to `count` fresh frames of the pool, with their data at [`DATA_START`](crate::DATA_START), and says their
    /// numbers. Lends none of a pool that is of another region.
    #[inline]
    pub fn lend_fresh(&mut self, pool: &mut Pool, count: usize, mut each: impl FnMut(u32)) -> usize {
        if !Arc::ptr_eq(pool.memory(), &self.memory) {
            return 0;
        }
        let slots = &mut *self.slots;
        // A frame has one owner, so its slot is free; were it not, it would stay in the pool.
        let lent = pool.loans(count, |loan| match slots.get_mut(loan.frame() as usize) {
            Some(slot @ None) => {
                each(loan.frame());
                *slot = Some(loan);
                true
            }
            _ => false,
        });
        self.count += lent;
        lent
    }

    /// The packet that the device gives back: `len` bytes of data at `address`. `None`, and nothing changed, if the
    /// device does not have that frame, or if the data would reach out of it.
    #[inline]
    pub fn adopt(&mut self, address: u64, len: usize) -> Option<Packet> {
        let frame = u32::try_from(address >> self.frame_shift).ok()?;
        self.adopt_frame(frame, address as usize & (self.memory.frame_size() - 1), len)
    }

    /// As [`adopt`](Self::adopt), with `len` bytes of data at `start` of frame number `frame`.
    #[inline]
    pub fn adopt_frame(&mut self, frame: u32, start: usize, len: usize) -> Option<Packet> {
        let slot = self.slots.get_mut(frame as usize)?;
        let packet = memory::adopt(slot, start, len, self.memory.frame_size())?;
        self.count -= 1;
        Some(packet)
    }

    /// As [`adopt_frame`](Self::adopt_frame), straight to the end of a burst, with what the device has found out, for each of `arrived` in
    /// order. What cannot be adopted is left out, as it would be there, and so is what the burst has no room for. Returns how many were adopted.
    #[inline]
    pub fn adopt_into(&mut self, burst: &mut Burst, arrived: impl Iterator<Item = Arrived>) -> usize {
        let adopted = memory::adopt_into(&mut self.slots, &self.memory, arrived, burst.vec());
        self.count -= adopted;
        adopted
    }

    /// The packet whose data the device was lent at `address`, as it was lent (a transmit completion). `None`, and
    /// nothing changed, if it was not.
    #[inline]
    pub fn returned(&mut self, address: u64) -> Option<Packet> {
        let start = address & (self.memory.frame_size() as u64 - 1);
        let frame = usize::try_from(address >> self.frame_shift).ok()?;
        let loan = self.slots.get_mut(frame)?.take_if(|loan| u64::from(loan.start()) == start)?;
        self.count -= 1;
        Some(loan.packet())
    }

    /// Frees frames that the device gives back. Those that it does not have change nothing. Returns how many were freed.
    #[inline]
    pub fn free_frames(&mut self, frames: impl Iterator<Item = u32>, pool: &mut Pool) -> usize {
        let slots = &mut *self.slots;
        let loans = frames.filter_map(|frame| slots.get_mut(frame as usize).and_then(Option::take));
        let freed = pool.repay(loans);
        self.count -= freed;
        freed
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
        self.slots.iter_mut().filter_map(Option::take).map(Loan::packet)
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({} of {} frames)", self.count, self.slots.len())
    }
}
