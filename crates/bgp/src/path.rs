//! AS paths (RFC 4271, 4.3; RFC 5065; RFC 6793).

use std::fmt;
use tidemill_feed::bgp::{Cursor, Fault};
use tidemill_feed::error::RecordFault;

/// What a segment's AS numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentKind {
    /// Any order; counts as one.
    Set,
    /// In order, the nearest first.
    Sequence,
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Segment {
    /// What its numbers are.
    pub kind: SegmentKind,
    /// The AS numbers, 1 to 255.
    pub asns: Box<[u32]>,
}

/// The ASes that a route has come through, the nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AsPath(pub Box<[Segment]>);

impl AsPath {
    /// A path that is one sequence; empty for no AS.
    pub fn sequence(asns: &[u32]) -> Self {
        AsPath(
            asns.chunks(255).map(|part| Segment { kind: SegmentKind::Sequence, asns: part.into() }).collect(),
        )
    }

    /// Reads AS_PATH or AS4_PATH. Segments of a confederation are malformed, for we are in none (RFC 5065, 5.3), and so is AS 0 (RFC 7607).
    pub(crate) fn read(mut value: Cursor<'_>, wide: bool) -> Fault<Self> {
        let mut segments = Vec::new();
        while !value.is_empty() {
            let kind = match value.u8("an AS path segment's type")? {
                1 => SegmentKind::Set,
                2 => SegmentKind::Sequence,
                other => return Err(RecordFault::Segment(other)),
            };
            let count = value.u8("an AS path segment's length")?;
            if count == 0 {
                return Err(RecordFault::Segment(0));
            }
            let asns = (0..count).map(|_| value.asn(wide, "an AS path")).collect::<Fault<Box<[u32]>>>()?;
            if asns.contains(&0) {
                return Err(RecordFault::Segment(0));
            }
            segments.push(Segment { kind, asns });
        }
        Ok(AsPath(segments.into()))
    }

    /// Appends the attribute's value.
    pub(crate) fn write(&self, wide: bool, out: &mut Vec<u8>) {
        for segment in &self.0 {
            out.push(if segment.kind == SegmentKind::Set { 1 } else { 2 });
            out.push(segment.asns.len() as u8);
            for asn in &segment.asns {
                match wide {
                    true => out.extend_from_slice(&asn.to_be_bytes()),
                    false => {
                        let short = u16::try_from(*asn).unwrap_or(crate::message::AS_TRANS);
                        out.extend_from_slice(&short.to_be_bytes());
                    }
                }
            }
        }
    }

    /// Its length for the choice of routes: a set counts as one (RFC 4271, 9.1.2.2 a).
    pub fn len(&self) -> usize {
        let count = |segment: &Segment| match segment.kind {
            SegmentKind::Set => 1,
            SegmentKind::Sequence => segment.asns.len(),
        };
        self.0.iter().map(count).sum()
    }

    /// Whether no AS is in it: the route is of the peer's own AS.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The AS that the route was received from: the first, unless the path begins with a set.
    pub fn neighbor(&self) -> Option<u32> {
        let first = self.0.first().filter(|segment| segment.kind == SegmentKind::Sequence)?;
        first.asns.first().copied()
    }

    /// Whether the route has come through this AS.
    pub fn contains(&self, asn: u32) -> bool {
        self.0.iter().any(|segment| segment.asns.contains(&asn))
    }

    /// The path of a peer with 2-byte numbers, with the numbers of its AS4_PATH (RFC 6793, 4.2.3): what AS_PATH has more
    /// of goes before them. A longer AS4_PATH is not to be believed.
    pub(crate) fn with_wide(self, wide: AsPath) -> Self {
        let Some(mut more) = self.len().checked_sub(wide.len()) else { return self };
        let mut segments = Vec::new();
        for segment in &self.0 {
            match segment.kind {
                _ if more == 0 => break,
                SegmentKind::Set => {
                    more -= 1;
                    segments.push(segment.clone());
                }
                SegmentKind::Sequence => {
                    let taken = segment.asns.len().min(more);
                    more -= taken;
                    segments.push(Segment { kind: segment.kind, asns: segment.asns[..taken].into() });
                }
            }
        }
        segments.extend(wide.0);
        AsPath(segments.into())
    }
}

impl fmt::Display for AsPath {
    /// `64500 64501 {64502 64503}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, segment) in self.0.iter().enumerate() {
            let asns = segment.asns.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let space = if number == 0 { "" } else { " " };
            match segment.kind {
                SegmentKind::Set => write!(f, "{space}{{{asns}}}")?,
                SegmentKind::Sequence => write!(f, "{space}{asns}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(asns: &[u32]) -> Segment {
        Segment { kind: SegmentKind::Set, asns: asns.into() }
    }

    #[test]
    fn sets_count_as_one_and_name_no_neighbor() {
        let sequence = AsPath::sequence(&[1, 2, 3]);
        assert_eq!((sequence.len(), sequence.neighbor(), sequence.to_string()), (3, Some(1), "1 2 3".into()));
        let mixed = AsPath([sequence.0[0].clone(), set(&[7, 8])].into());
        assert_eq!((mixed.len(), mixed.to_string()), (4, "1 2 3 {7 8}".into()));
        let alone = AsPath([set(&[7])].into());
        assert_eq!((alone.len(), alone.neighbor(), alone.contains(7)), (1, None, true));
        assert_eq!((AsPath::default().len(), AsPath::default().is_empty()), (0, true));
    }

    /// The cases of RFC 6793, 4.2.3.
    #[test]
    fn wide_numbers_replace_the_end_of_a_path() {
        let narrow = AsPath::sequence(&[1, 23_456, 23_456]);
        let merged = narrow.clone().with_wide(AsPath::sequence(&[100_000, 200_000]));
        assert_eq!(merged.to_string(), "1 100000 200000");
        assert_eq!(merged.len(), narrow.len());
        let longer = narrow.clone().with_wide(AsPath::sequence(&[9, 9, 9, 9]));
        assert_eq!(longer, narrow, "what is longer is ignored");
        let sets = AsPath([set(&[5, 6]), narrow.0[0].clone()].into());
        assert_eq!(sets.with_wide(AsPath::sequence(&[100_000])).to_string(), "{5 6} 1 23456 100000");
        assert_eq!(narrow.clone().with_wide(AsPath::default()), narrow);
    }

    #[test]
    fn paths_are_read_as_they_were_written() {
        let path = AsPath([AsPath::sequence(&[1, 100_000]).0[0].clone(), set(&[7, 8])].into());
        for wide in [true, false] {
            let mut bytes = Vec::new();
            path.write(wide, &mut bytes);
            let read = AsPath::read(Cursor::new(&bytes), wide).unwrap();
            assert_eq!(read.contains(100_000), wide);
            assert_eq!((read.len(), read.contains(8)), (3, true));
            for end in 1..bytes.len() {
                let whole = end == 2 + 2 * if wide { 4 } else { 2 };
                assert_eq!(AsPath::read(Cursor::new(&bytes[..end]), wide).is_ok(), whole, "{end}");
            }
        }
        for wrong in [&[2, 0][..], &[3, 1, 0, 1], &[0, 1, 0, 1], &[2], &[2, 2, 0, 1, 0, 0]] {
            assert!(AsPath::read(Cursor::new(wrong), false).is_err(), "{wrong:?}");
        }
    }
}
