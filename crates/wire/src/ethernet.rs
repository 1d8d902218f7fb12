//! Ethernet II and IEEE 802.3 frames, without preamble and frame check sequence.
//!
//! ```text
//! 0              6              12         14
//! | destination  | source       | ethertype | payload ... padding |
//! ```
//! Frames are padded to 60 bytes; only the network header knows where the payload ends.

use crate::bytes::{array, need, part, part_mut, put, put_u16, room, u16_at, view};
use crate::{Error, EtherType, MacAddr};

mod field {
    pub(super) const DST: usize = 0;
    pub(super) const SRC: usize = 6;
    pub(super) const ETHERTYPE: usize = 12;
}

/// Bytes in the header.
pub const HEADER_LEN: usize = 14;
/// Bytes in the shortest frame on a wire, without the frame check sequence.
pub const MIN_FRAME_LEN: usize = 60;

/// The check behind [`Packet::new_checked`].
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("ethernet", "header", data, HEADER_LEN)
}

view! {
    /// A frame.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Destination address.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.bytes(), field::DST))
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.bytes(), field::SRC))
    }

    /// Type, of a VLAN tag perhaps, or length below 0x0600.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.bytes(), field::ETHERTYPE))
    }

    /// All that follows the header, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, mac: MacAddr) {
        put(self.bytes_mut(), field::DST, mac.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, mac: MacAddr) {
        put(self.bytes_mut(), field::SRC, mac.0);
    }

    /// Sets the type.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put_u16(self.bytes_mut(), field::ETHERTYPE, ethertype.0);
    }

    /// All that follows the header.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        part_mut(self.bytes_mut(), HEADER_LEN, usize::MAX)
    }
}

/// A header as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// What follows.
    pub ethertype: EtherType,
}

impl Repr {
    /// Reads a header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        Ok(Repr { dst: packet.dst(), src: packet.src(), ethertype: packet.ethertype() })
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the front of `buf`; returns its length.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        room("ethernet", buf, HEADER_LEN)?;
        let mut packet = Packet::new_unchecked(buf);
        packet.set_dst(self.dst);
        packet.set_src(self.src);
        packet.set_ethertype(self.ethertype);
        Ok(HEADER_LEN)
    }
}
