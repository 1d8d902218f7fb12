//! VLAN tags, stacked to any depth up to [`MAX_TAGS`]: IEEE 802.1Q (0x8100), 802.1ad (0x88a8) and its forerunner
//! (0x9100).
//!
//! ```text
//!            12     14    16     18    20
//! | dst | src | 88a8 | TCI | 8100 | TCI | 0800 | IPv4 ...
//!                    '--- tag ----'--- tag ----'
//! ```
//! A tag, as viewed here, starts after the EtherType that announces it: TCI, then the next EtherType.
//! [`L2::parse`] is what a data path calls: final EtherType, tags and where the network header starts.

use crate::bytes::{need, part, put_u16, room, u16_at, view};
use crate::{Error, EtherType, ethernet};

mod field {
    pub(super) const TCI: usize = 0;
    pub(super) const ETHERTYPE: usize = 2;
}

/// Bytes in a tag.
pub const HEADER_LEN: usize = 4;
/// Most tags that are followed. Two are common, a third is seen in provider backbones.
pub const MAX_TAGS: usize = 4;

/// The check behind [`Packet::new_checked`].
pub fn check(data: &[u8]) -> Result<(), Error> {
    need("vlan", "tag", data, HEADER_LEN)
}

/// Tag control information: priority (3 bits), drop eligible (1), VLAN id (12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tci(pub u16);

impl Tci {
    /// Priority `pcp` (low 3 bits), drop-eligible `dei`, VLAN `id` (low 12 bits).
    pub fn new(pcp: u8, dei: bool, id: u16) -> Self {
        Tci(u16::from(pcp & 7) << 13 | u16::from(dei) << 12 | id & 0xfff)
    }

    /// VLAN id; 0 is a priority tag, 4095 reserved.
    #[inline]
    pub fn id(self) -> u16 {
        self.0 & 0xfff
    }

    /// Priority code point, 0..8.
    #[inline]
    pub fn pcp(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline]
    pub fn dei(self) -> bool {
        self.0 & 0x1000 != 0
    }
}

view! {
    /// A tag and what follows it.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Priority and VLAN id.
    #[inline]
    pub fn tci(&self) -> Tci {
        Tci(u16_at(self.bytes(), field::TCI))
    }

    /// What follows the tag; another tag perhaps.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.bytes(), field::ETHERTYPE))
    }

    /// All that follows the tag.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        part(self.bytes(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Sets priority and VLAN id.
    #[inline]
    pub fn set_tci(&mut self, tci: Tci) {
        put_u16(self.bytes_mut(), field::TCI, tci.0);
    }

    /// Sets what follows the tag.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put_u16(self.bytes_mut(), field::ETHERTYPE, ethertype.0);
    }
}

/// A tag as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Priority and VLAN id.
    pub tci: Tci,
    /// What follows the tag.
    pub ethertype: EtherType,
}

impl Repr {
    /// Reads a tag.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        Ok(Repr { tci: packet.tci(), ethertype: packet.ethertype() })
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the tag to the front of `buf`; returns its length.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        room("vlan", buf, HEADER_LEN)?;
        let mut packet = Packet::new_unchecked(buf);
        packet.set_tci(self.tci);
        packet.set_ethertype(self.ethertype);
        Ok(HEADER_LEN)
    }
}

/// One tag of a stack, with the EtherType that announced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    /// 0x8100, 0x88a8 or 0x9100.
    pub tpid: EtherType,
    /// Priority and VLAN id.
    pub tci: Tci,
}

/// The link layer of a frame in short: the tags, what they lead to and where it starts.
///
/// Tags are packed into words, so that for the usual frame, which has none, all of this stays in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct L2 {
    /// What the frame carries below its tags; never a tag's own type.
    pub ethertype: EtherType,
    /// Bytes from the start of the frame to the network header.
    pub l3_offset: usize,
    /// Tag control information, the outermost tag's in the low 16 bits.
    tcis: u64,
    /// What announced the tags, in the same order.
    tpids: u64,
}

impl L2 {
    /// Reads the Ethernet header of `frame` and its tags.
    ///
    /// Fails when the frame ends inside one of them, or with more than [`MAX_TAGS`] tags.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Error> {
        ethernet::check(frame)?;
        let ethertype = EtherType(u16_at(frame, ethernet::HEADER_LEN - 2));
        if ethertype.is_vlan() {
            return Self::descend(frame, ethertype);
        }
        Ok(L2 { ethertype, l3_offset: ethernet::HEADER_LEN, tcis: 0, tpids: 0 })
    }

    #[cold]
    fn descend(frame: &[u8], ethertype: EtherType) -> Result<Self, Error> {
        let mut l2 = L2 { ethertype, l3_offset: ethernet::HEADER_LEN, tcis: 0, tpids: 0 };
        while l2.ethertype.is_vlan() {
            let depth = l2.depth();
            if depth == MAX_TAGS {
                return Err(Error::Invalid {
                    protocol: "vlan",
                    field: "number of tags",
                    offset: l2.l3_offset,
                    value: depth as u64 + 1,
                    wanted: "at most 4",
                });
            }
            let tag = Packet::new_checked(part(frame, l2.l3_offset, usize::MAX))?;
            l2.tcis |= u64::from(tag.tci().0) << (16 * depth);
            l2.tpids |= u64::from(l2.ethertype.0) << (16 * depth);
            l2.ethertype = tag.ethertype();
            l2.l3_offset += HEADER_LEN;
        }
        Ok(l2)
    }

    /// Number of tags.
    #[inline]
    pub fn depth(&self) -> usize {
        (self.l3_offset.saturating_sub(ethernet::HEADER_LEN) / HEADER_LEN).min(MAX_TAGS)
    }

    /// The tags, outermost first.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + use<> {
        let (tcis, tpids) = (self.tcis, self.tpids);
        (0..self.depth()).map(move |index| Tag {
            tpid: EtherType((tpids >> (16 * index)) as u16),
            tci: Tci((tcis >> (16 * index)) as u16),
        })
    }

    /// The VLAN ids, outermost first.
    pub fn vlan_ids(&self) -> impl Iterator<Item = u16> + use<> {
        self.tags().map(|tag| tag.tci.id())
    }
}

const _: () = assert!(MAX_TAGS * 16 <= u64::BITS as usize, "tags are packed into one word");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_tagged_frame() {
        let mut frame = vec![0u8; 12];
        frame.extend([0x88, 0xa8, 0xe0, 0x64, 0x81, 0x00, 0x10, 0x07, 0x08, 0x00, 0x45]);
        let l2 = L2::parse(&frame).unwrap();
        assert_eq!((l2.ethertype, l2.l3_offset), (EtherType::IPV4, 22));
        assert_eq!(l2.vlan_ids().collect::<Vec<_>>(), [100, 7]);
        let tags: Vec<Tag> = l2.tags().collect();
        assert_eq!((tags[0].tci.pcp(), tags[0].tpid), (7, EtherType::QINQ));
        assert!(tags[1].tci.dei());
        for cut in 14..22 {
            let error = L2::parse(&frame[..cut]).unwrap_err();
            assert_eq!(error.protocol(), "vlan");
        }
        assert_eq!(
            L2::parse(&frame[..13]).unwrap_err().to_string(),
            "ethernet: header at byte 0 needs 14 bytes, 13 present"
        );
    }

    #[test]
    fn the_stack_is_bounded() {
        let mut frame = vec![0u8; 12];
        for _ in 0..MAX_TAGS {
            frame.extend([0x81, 0x00, 0x00, 0x01]);
        }
        let whole = [&frame[..], &[0x08, 0x00]].concat();
        assert_eq!(L2::parse(&whole).unwrap().depth(), MAX_TAGS);
        frame.extend([0x81, 0x00, 0x00, 0x01, 0x08, 0x00]);
        let error = L2::parse(&frame).unwrap_err();
        assert_eq!(error.to_string(), "vlan: number of tags 5 at byte 30 is not at most 4");
    }
}
