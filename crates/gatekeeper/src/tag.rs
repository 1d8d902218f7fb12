//! What a packet carries from the gate to the encapsulation: to which Grantor, and under which code point.

/// In the label beside a [`Tag`]: there was no room for the packet's flow.
pub(crate) const UNPLACED: u32 = 1 << 24;

/// A Grantor's number and a DSCP, in the packet's `label`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The Grantor's number among those of its family.
    pub grantor: u16,
    /// The outer header's DSCP: 1 granted, 2 granted and to be renewed, 3 to 63 request.
    pub dscp: u8,
}

impl Tag {
    /// As a packet's `label`.
    #[inline(always)]
    pub fn label(self) -> u32 {
        u32::from(self.dscp) << 16 | u32::from(self.grantor)
    }

    /// From a packet's `label`.
    #[inline(always)]
    pub fn of(label: u32) -> Self {
        Tag { grantor: label as u16, dscp: (label >> 16) as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_back() {
        for tag in [Tag { grantor: 0, dscp: 1 }, Tag { grantor: u16::MAX, dscp: 63 }] {
            assert_eq!(Tag::of(tag.label()), tag);
            assert_eq!(Tag::of(tag.label() | UNPLACED), tag);
            assert_eq!(tag.label() & UNPLACED, 0);
        }
    }
}
