//! BGP path attributes (RFC 4271, 4.3 and 5.1; RFC 4760; RFC 6793), as far as labels and updates need them.

use super::{Cursor, Family, Fault};
use crate::error::RecordFault;
use std::net::IpAddr;

const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MP_REACH_NLRI: u8 = 14;
const MP_UNREACH_NLRI: u8 = 15;
const AS4_PATH: u8 = 17;

const EXTENDED_LENGTH: u8 = 0x10;

/// Stands in a 2-byte AS path for an AS number that needs 4 bytes (RFC 6793).
const AS_TRANS: u32 = 23_456;

/// The attributes of a route or an update, found but not yet read.
#[derive(Default)]
pub(crate) struct Attributes<'a> {
    next_hop: Option<Cursor<'a>>,
    as_path: Option<Cursor<'a>>,
    as4_path: Option<Cursor<'a>>,
    pub(crate) mp_reach: Option<Cursor<'a>>,
    pub(crate) mp_unreach: Option<Cursor<'a>>,
}

impl<'a> Attributes<'a> {
    /// Walks over all attributes; every one must end where it says, and the last at the end.
    pub(crate) fn find(mut data: Cursor<'a>) -> Fault<Self> {
        let mut found = Attributes::default();
        while !data.is_empty() {
            let flags = data.u8("an attribute's flags")?;
            let kind = data.u8("an attribute's type")?;
            let length = match flags & EXTENDED_LENGTH {
                0 => usize::from(data.u8("an attribute's length")?),
                _ => usize::from(data.u16("an attribute's length")?),
            };
            let value = data.part(length, "an attribute")?;
            let slot = match kind {
                AS_PATH => &mut found.as_path,
                NEXT_HOP => &mut found.next_hop,
                MP_REACH_NLRI => &mut found.mp_reach,
                MP_UNREACH_NLRI => &mut found.mp_unreach,
                AS4_PATH => &mut found.as4_path,
                _ => continue,
            };
            // RFC 7606, 3 g: of an attribute that occurs twice, the first counts.
            slot.get_or_insert(value);
        }
        Ok(found)
    }

    /// NEXT_HOP.
    pub(crate) fn next_hop(&self) -> Fault<Option<IpAddr>> {
        match self.next_hop {
            None => Ok(None),
            Some(mut value) if value.left() == 4 => value.v4("NEXT_HOP").map(Some),
            Some(value) => Err(RecordFault::NextHopLength(value.left())),
        }
    }

    /// The next hop in the MP_REACH_NLRI of a table's route. In TABLE_DUMP_V2 the attribute has no other fields
    /// (RFC 6396, 4.3.4), but some collectors, and TABLE_DUMP, write all of it: then it begins with an address
    /// family, whose first byte is 0.
    pub(crate) fn mp_next_hop(&self) -> Fault<Option<IpAddr>> {
        let Some(mut value) = self.mp_reach else { return Ok(None) };
        let mut whole = value;
        if whole.u8("MP_REACH_NLRI")? == 0 {
            value.u16("an address family")?;
            value.u8("a subsequent address family")?;
        }
        mp_next_hop(&mut value).map(Some)
    }

    /// The first AS of the path: who announced the route to the peer.
    pub(crate) fn neighbour(&self, wide: bool) -> Fault<Option<u32>> {
        Ok(self.path(self.as_path, wide)?.map(|(first, _)| first))
    }

    /// The last AS of the path: who originated the route. In an AS_SET at the end, the last one listed.
    pub(crate) fn origin(&self, wide: bool) -> Fault<Option<u32>> {
        let last = self.path(self.as_path, wide)?.map(|(_, last)| last);
        if last == Some(AS_TRANS) && !wide {
            return Ok(self.path(self.as4_path, true)?.map(|(_, last)| last).or(last));
        }
        Ok(last)
    }

    /// First and last AS of a path.
    fn path(&self, path: Option<Cursor<'a>>, wide: bool) -> Fault<Option<(u32, u32)>> {
        let Some(mut path) = path else { return Ok(None) };
        let mut ends = None;
        while !path.is_empty() {
            let kind = path.u8("an AS path segment's type")?;
            if !(1..=4).contains(&kind) {
                return Err(RecordFault::Segment(kind));
            }
            for _ in 0..path.u8("an AS path segment's length")? {
                let asn = path.asn(wide, "an AS path")?;
                ends = Some((ends.map_or(asn, |(first, _)| first), asn));
            }
        }
        Ok(ends)
    }
}

/// The next hop of an MP_REACH_NLRI: its length, then one address; for IPv6 a link-local one may follow (RFC 2545, 3).
pub fn mp_next_hop(value: &mut Cursor<'_>) -> Fault<IpAddr> {
    let length = value.u8("a next hop's length")?;
    let mut next_hop = value.part(usize::from(length), "a next hop")?;
    match length {
        4 => next_hop.v4("a next hop"),
        16 | 32 => next_hop.v6("a next hop"),
        other => Err(RecordFault::NextHopLength(usize::from(other))),
    }
}

/// What an MP_REACH_NLRI or MP_UNREACH_NLRI begins with; `None` for families that are not IP unicast.
pub fn mp_family(value: &mut Cursor<'_>) -> Fault<Option<Family>> {
    let afi = value.u16("an address family")?;
    let safi = value.u8("a subsequent address family")?;
    Ok(match (afi, safi) {
        (1, 1) => Some(Family::V4),
        (2, 1) => Some(Family::V6),
        _ => None,
    })
}
