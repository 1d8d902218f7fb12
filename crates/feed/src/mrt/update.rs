//! Updates from MRT: BGP4MP and BGP4MP_ET messages (RFC 6396, 4.4; RFC 8050, 3) with BGP UPDATEs (RFC 4271, 4.3; RFC 4760).

use super::attributes::{Attributes, mp_family, mp_next_hop};
use super::{BGP4MP, BGP4MP_ET, Cursor, Family, Fault, Record, TABLE_DUMP, TABLE_DUMP_V2};
use crate::error::RecordFault;
use crate::labels::NextHopName;
use crate::table::{AnyPrefix, LabelBy};
use std::net::IpAddr;

const UPDATE: u8 = 2;
/// Marker, length, type.
const MESSAGE_HEADER_BYTES: u16 = 19;

/// What a record is to a reader of updates.
pub(crate) enum Event {
    /// An UPDATE message of this peer, at this time (nanoseconds since 1970); with a fault, only the changes before it
    /// were read.
    Update { time: u64, peer_as: u32, peer: IpAddr, fault: Option<RecordFault> },
    /// A well-formed record without updates.
    Other,
    /// A table: the wrong file.
    Table(&'static str),
}

/// One announced or withdrawn prefix; the name is the next hop's, `None` withdraws.
pub(crate) type RawChange = (AnyPrefix, Option<NextHopName>);

/// Reads a record; the changes are appended to `out` in the order in which they take effect: withdrawals first
/// (RFC 4271, 3.1: a prefix in both is announced).
pub(crate) fn read(
    record: &Record<'_>,
    by: LabelBy,
    masked: &mut u64,
    out: &mut Vec<RawChange>,
) -> Fault<Event> {
    let mut body = Cursor::new(record.body);
    let mut time = u64::from(record.seconds) * 1_000_000_000;
    match record.kind {
        BGP4MP => {}
        BGP4MP_ET => time += u64::from(body.u32("the microseconds")?) * 1_000,
        TABLE_DUMP => return Ok(Event::Table("TABLE_DUMP")),
        TABLE_DUMP_V2 => return Ok(Event::Table("TABLE_DUMP_V2")),
        _ => return Ok(Event::Other),
    }
    let wide = match record.subtype {
        1 | 6 | 8 | 10 => false,
        4 | 7 | 9 | 11 => true,
        _ => return Ok(Event::Other),
    };
    let add_path = (8..=11).contains(&record.subtype);
    let peer_as = body.asn(wide, "the peer's AS")?;
    body.asn(wide, "the local AS")?;
    body.u16("the interface index")?;
    let peer = match Family::of_afi(body.u16("the address family")?)? {
        Family::V4 => (body.v4("the peer's address")?, body.v4("the local address")?).0,
        Family::V6 => (body.v6("the peer's address")?, body.v6("the local address")?).0,
    };
    let have = body.left();
    if body.bytes(16, "the BGP marker")? != [0xff; 16] {
        return Err(RecordFault::Marker);
    }
    let len = body.u16("the BGP message length")?;
    if usize::from(len) != have || len < MESSAGE_HEADER_BYTES {
        return Err(RecordFault::MessageLength { len, have });
    }
    if body.u8("the BGP message type")? != UPDATE {
        return Ok(Event::Other);
    }
    let fault = Message { wide, add_path, peer_as, by, masked, out }.read(body).err();
    Ok(Event::Update { time, peer_as, peer, fault })
}

struct Message<'a> {
    wide: bool,
    add_path: bool,
    peer_as: u32,
    by: LabelBy,
    masked: &'a mut u64,
    out: &'a mut Vec<RawChange>,
}

impl Message<'_> {
    fn read(&mut self, mut body: Cursor<'_>) -> Fault<()> {
        let length = body.u16("the withdrawn routes' length")?;
        let withdrawn = body.part(usize::from(length), "the withdrawn routes")?;
        let length = body.u16("the attributes' length")?;
        let attributes = Attributes::find(body.part(usize::from(length), "the attributes")?)?;
        self.prefixes(withdrawn, Family::V4, None)?;
        if let Some(mut value) = attributes.mp_unreach
            && let Some(family) = mp_family(&mut value)?
        {
            self.prefixes(value, family, None)?;
        }
        if let Some(mut value) = attributes.mp_reach
            && let Some(family) = mp_family(&mut value)?
        {
            let next_hop = mp_next_hop(&mut value)?;
            value.u8("the reserved byte")?;
            let name = self.name(&attributes, Some(next_hop))?;
            self.prefixes(value, family, Some(name))?;
        }
        if !body.is_empty() {
            let name = self.name(&attributes, attributes.next_hop()?)?;
            self.prefixes(body, Family::V4, Some(name))?;
        }
        Ok(())
    }

    /// What the announced routes' label is made of; `None` if they have no next hop.
    fn name(&self, attributes: &Attributes<'_>, next_hop: Option<IpAddr>) -> Fault<Option<NextHopName>> {
        // An empty path: the peer's own AS originated the route.
        let asn = |own: Option<u32>| NextHopName::Number(own.unwrap_or(self.peer_as));
        Ok(match self.by {
            LabelBy::NextHop => next_hop.map(NextHopName::Address),
            LabelBy::NeighbourAs => Some(asn(attributes.neighbour(self.wide)?)),
            LabelBy::OriginAs => Some(asn(attributes.origin(self.wide)?)),
        })
    }

    fn prefixes(
        &mut self,
        mut data: Cursor<'_>,
        family: Family,
        announced: Option<Option<NextHopName>>,
    ) -> Fault<()> {
        while !data.is_empty() {
            if self.add_path {
                data.u32("a path identifier")?;
            }
            let prefix = data.prefix(family, self.masked)?;
            let name = match &announced {
                None => None,
                Some(Some(name)) => Some(name.clone()),
                Some(None) => return Err(RecordFault::NoNextHop(prefix.to_string())),
            };
            self.out.push((prefix, name));
        }
        Ok(())
    }
}
