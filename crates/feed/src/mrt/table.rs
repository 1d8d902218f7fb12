//! Tables from MRT: TABLE_DUMP and TABLE_DUMP_V2 (RFC 6396, 4.2 and 4.3; RFC 8050, 4).

use super::attributes::Attributes;
use super::{
    BGP4MP, BGP4MP_ET, Cursor, Family, Fault, Record, Records, TABLE_DUMP, TABLE_DUMP_V2, canonical,
};
use crate::error::{FeedError, FileFault, RecordFault};
use crate::labels::NextHopName;
use crate::table::{AnyPrefix, Builder, Duplicate, LabelBy, LoadOptions, Peer, PeersSeen};
use std::net::IpAddr;

/// What the records of one file share.
struct Reader<'a> {
    options: &'a LoadOptions,
    builder: &'a mut Builder,
    /// The peers of the PEER_INDEX_TABLE.
    peers: Vec<(u32, IpAddr)>,
    seen: PeersSeen,
    taken: bool,
}

pub(crate) fn load(
    mut records: Records,
    options: &LoadOptions,
    builder: &mut Builder,
) -> Result<(), FeedError> {
    let mut reader = Reader { options, builder, peers: Vec::new(), seen: PeersSeen::default(), taken: false };
    let mut number = 0;
    loop {
        let read = match records.next() {
            Ok(None) => break,
            Ok(Some(Record { kind: BGP4MP | BGP4MP_ET, .. })) => {
                let fault = FileFault::UpdatesNotTable;
                return Err(FeedError::File { file: records.file().into(), fault });
            }
            Ok(Some(record)) => {
                reader.builder.counts.records += 1;
                reader.record(&record)
            }
            Err(error) => {
                // Behind a framing error no further record can be found.
                reader.builder.counts.tolerate(options.skip_wrong, error)?;
                break;
            }
        };
        if let Err(fault) = read {
            reader.builder.counts.tolerate(options.skip_wrong, records.error(fault))?;
        }
        number += 1;
        let most = options.most();
        if number > most {
            let fault = FileFault::TooLong { most };
            return Err(FeedError::File { file: records.file().into(), fault });
        }
    }
    reader.seen.check(options.peer, reader.taken, records.file())
}

impl Reader<'_> {
    fn record(&mut self, record: &Record<'_>) -> Fault<()> {
        let mut body = Cursor::new(record.body);
        let read = match (record.kind, record.subtype) {
            (TABLE_DUMP, 1) => self.table_dump(&mut body, Family::V4),
            (TABLE_DUMP, 2) => self.table_dump(&mut body, Family::V6),
            (TABLE_DUMP, afi) => Err(RecordFault::Family(afi)),
            (TABLE_DUMP_V2, 1) => self.peer_table(&mut body),
            (TABLE_DUMP_V2, 2) => self.rib(&mut body, Family::V4, false),
            (TABLE_DUMP_V2, 4) => self.rib(&mut body, Family::V6, false),
            (TABLE_DUMP_V2, 8) => self.rib(&mut body, Family::V4, true),
            (TABLE_DUMP_V2, 10) => self.rib(&mut body, Family::V6, true),
            _ => {
                self.builder.counts.other += 1;
                return Ok(());
            }
        };
        read?;
        match body.left() {
            0 => Ok(()),
            left => Err(RecordFault::Trailing(left)),
        }
    }

    /// One route of one peer: view, sequence, prefix, status, time, peer, attributes. AS numbers have 2 bytes.
    fn table_dump(&mut self, body: &mut Cursor<'_>, family: Family) -> Fault<()> {
        body.u16("the view number")?;
        body.u16("the sequence number")?;
        let address = address(body, family, "the prefix")?;
        let len = body.u8("the prefix length")?;
        body.u8("the status")?;
        body.u32("the time")?;
        let peer_address = self::address(body, family, "the peer's address")?;
        let peer_as = u32::from(body.u16("the peer's AS")?);
        let length = body.u16("the attributes' length")?;
        let attributes = body.part(usize::from(length), "the attributes")?;
        let masked = &mut self.builder.counts.masked;
        let prefix = match address {
            IpAddr::V4(a) => AnyPrefix::V4(canonical(u32::from(a), len, masked)?),
            IpAddr::V6(a) => AnyPrefix::V6(canonical(u128::from(a), len, masked)?),
        };
        if self.wants(None, peer_as, peer_address) {
            self.route(prefix, attributes, false, (peer_as, peer_address))?;
        }
        Ok(())
    }

    fn peer_table(&mut self, body: &mut Cursor<'_>) -> Fault<()> {
        self.builder.counts.other += 1;
        self.peers.clear();
        body.u32("the collector's identifier")?;
        let length = body.u16("the view name's length")?;
        body.bytes(usize::from(length), "the view name")?;
        for _ in 0..body.u16("the peer count")? {
            let kind = body.u8("a peer's type")?;
            body.u32("a peer's identifier")?;
            let family = if kind & 1 == 0 { Family::V4 } else { Family::V6 };
            let address = address(body, family, "a peer's address")?;
            let asn = body.asn(kind & 2 != 0, "a peer's AS")?;
            self.peers.push((asn, address));
        }
        Ok(())
    }

    /// All routes of one prefix: sequence, prefix, count, then per route peer, time, path identifier, attributes.
    fn rib(&mut self, body: &mut Cursor<'_>, family: Family, add_path: bool) -> Fault<()> {
        body.u32("the sequence number")?;
        let prefix = body.prefix(family, &mut self.builder.counts.masked)?;
        let mut taken = false;
        for _ in 0..body.u16("the route count")? {
            let index = body.u16("a peer index")?;
            body.u32("a route's time")?;
            if add_path {
                body.u32("a path identifier")?;
            }
            let length = body.u16("the attributes' length")?;
            let attributes = body.part(usize::from(length), "the attributes")?;
            let peers = self.peers.len();
            let &(asn, address) =
                self.peers.get(usize::from(index)).ok_or(RecordFault::Peer { index, peers })?;
            if !self.wants(Some(index), asn, address) {
                continue;
            }
            if taken {
                // Checked all the same, so that a corrupt record does not depend on the choice of peer.
                Attributes::find(attributes)?;
                self.builder.counts.routes += 1;
                self.builder.counts.duplicates += 1;
            } else {
                self.route(prefix, attributes, true, (asn, address))?;
                taken = true;
            }
        }
        Ok(())
    }

    fn wants(&mut self, index: Option<u16>, asn: u32, address: IpAddr) -> bool {
        let wanted = match self.options.peer {
            Peer::Any => return true,
            Peer::Index(wanted) => index == Some(wanted),
            Peer::As(wanted) => asn == wanted,
            Peer::Address(wanted) => address == wanted,
        };
        if wanted {
            self.taken = true;
        } else {
            self.builder.counts.other += 1;
            self.seen.add(asn, address);
        }
        wanted
    }

    fn route(
        &mut self,
        prefix: AnyPrefix,
        attributes: Cursor<'_>,
        wide: bool,
        (peer_as, peer): (u32, IpAddr),
    ) -> Fault<()> {
        let attributes = Attributes::find(attributes)?;
        let name = match self.options.label_by {
            LabelBy::NextHop => {
                let (plain, mp) = (attributes.next_hop()?, attributes.mp_next_hop()?);
                let own = if matches!(prefix, AnyPrefix::V4(_)) { plain.or(mp) } else { mp.or(plain) };
                self.builder.counts.stand_ins += u64::from(own.is_none());
                NextHopName::Address(own.unwrap_or(peer))
            }
            LabelBy::NeighbourAs => self.asn(attributes.neighbour(wide)?, peer_as),
            LabelBy::OriginAs => self.asn(attributes.origin(wide)?, peer_as),
        };
        let label = self.builder.labels.label(&name);
        self.builder.add(prefix, label, Duplicate::FirstWins);
        Ok(())
    }

    /// An AS of the path; the path is empty where the peer's own AS originated the route.
    fn asn(&mut self, own: Option<u32>, peer_as: u32) -> NextHopName {
        self.builder.counts.stand_ins += u64::from(own.is_none());
        NextHopName::Number(own.unwrap_or(peer_as))
    }
}

fn address(body: &mut Cursor<'_>, family: Family, field: &'static str) -> Fault<IpAddr> {
    match family {
        Family::V4 => body.v4(field),
        Family::V6 => body.v6(field),
    }
}
