//! UPDATE messages (RFC 4271, 4.3; RFC 4760; RFC 7911; RFC 7606).

use crate::attributes::{self, Attributes, Found, Problem, Reading};
use crate::flows::Actions;
use crate::flowspec::{self, FlowSpec};
use crate::message::{self, FAMILIES, afi, at};
use crate::notice::{self, Notice};
use std::net::{IpAddr, Ipv4Addr};
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::{Cursor, Family, Fault, mp_family, mp_next_hop};

/// A prefix as an update names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nlri {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// Which of the peer's paths to it; 0 where it has one (RFC 7911).
    pub path: u32,
}

impl Nlri {
    /// The family.
    pub fn family(&self) -> Family {
        match self.prefix {
            AnyPrefix::V4(_) => Family::V4,
            AnyPrefix::V6(_) => Family::V6,
        }
    }
}

/// What an UPDATE says, withdrawals first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Withdrawn, or announced with malformed attributes.
    pub withdrawn: Vec<Nlri>,
    /// Announced: by NEXT_HOP and by MP_REACH_NLRI.
    pub announced: Vec<(Attributes, Vec<Nlri>)>,
    /// Flow specifications that are withdrawn, or announced with malformed attributes.
    pub flows_withdrawn: Vec<FlowSpec>,
    /// Those that are announced; the next hop says nothing.
    pub flows: Vec<(Attributes, Actions, Vec<FlowSpec>)>,
    /// The peer has sent everything that it has of this family (RFC 4724, 2).
    pub end_of_rib: Option<Family>,
    /// The same of flow specifications.
    pub end_of_flows: Option<Family>,
    /// What was wrong.
    pub problems: Vec<Problem>,
}

impl Update {
    /// Reads the body of an UPDATE.
    ///
    /// # Errors
    /// What cannot be mended by withdrawing routes: the session is to be reset.
    pub fn read(body: &[u8], reading: &Reading) -> Result<Self, Notice> {
        let lengths = |_| Notice::new(notice::UPDATE, 1);
        let mut rest = Cursor::new(body);
        let length = rest.u16("the withdrawn routes' length").map_err(lengths)?;
        let withdrawn = rest.part(usize::from(length), "the withdrawn routes").map_err(lengths)?;
        let length = rest.u16("the attributes' length").map_err(lengths)?;
        let attributes = rest.bytes(usize::from(length), "the attributes").map_err(lengths)?;
        let network = |_| Notice::new(notice::UPDATE, 10);
        let optional = |_| Notice::new(notice::UPDATE, 9);
        let mut update = Update::default();
        // Before RFC 4760 there was IPv4 only: it is what has no family of its own.
        let spoken = |family: Family| reading.families[at(family)];
        let mut withdrawals = prefixes(withdrawn, Family::V4, reading).map_err(network)?;
        let announced = prefixes(rest, Family::V4, reading).map_err(network)?;
        if spoken(Family::V4) {
            update.withdrawn.append(&mut withdrawals);
        }
        let mut found = Found::read(attributes, reading)?;
        let mut end_of = None;
        // Flow specifications that could not be read, by the attribute that they were in.
        let mut unread = Vec::new();
        let mut unreach = found.mp_unreach;
        if let Some(value) = &mut unreach
            && let Some(family) = flow_family(value, reading).map_err(optional)?
        {
            if value.is_empty() && !found.any {
                update.end_of_flows = Some(family);
            }
            let (mut list, malformed) = flowspec::read_all(*value, family).map_err(optional)?;
            update.flows_withdrawn.append(&mut list);
            unread.extend((malformed > 0).then_some(Problem::Discarded(attributes::MP_UNREACH)));
        } else if let Some(mut value) = unreach
            && let Some(family) = mp_family(&mut value).map_err(optional)?.filter(|family| spoken(*family))
        {
            if value.is_empty() && !found.any {
                end_of = Some(family);
            }
            update.withdrawn.append(&mut prefixes(value, family, reading).map_err(optional)?);
        }
        let mut reached = None;
        let (mut flows, mut flow_hop) = (Vec::new(), None);
        let mut reach = found.mp_reach;
        if let Some(value) = &mut reach
            && let Some(family) = flow_family(value, reading).map_err(optional)?
        {
            // RFC 8955, 4: whatever next hop there is means nothing, but for one form of redirect.
            let length = value.u8("the next hop's length").map_err(optional)?;
            flow_hop = hop_of(value.bytes(usize::from(length), "the next hop").map_err(optional)?);
            value.u8("the reserved byte").map_err(optional)?;
            let (list, malformed) = flowspec::read_all(*value, family).map_err(optional)?;
            flows = list;
            unread.extend((malformed > 0).then_some(Problem::Withdrawn(attributes::MP_REACH)));
        } else if let Some(mut value) = reach
            && let Some(family) = mp_family(&mut value).map_err(optional)?.filter(|family| spoken(*family))
        {
            let next_hop = mp_next_hop(&mut value).map_err(optional)?;
            value.u8("the reserved byte").map_err(optional)?;
            let prefixes = prefixes(value, family, reading).map_err(optional)?;
            // An IPv4 prefix has an IPv4 next hop, as long as RFC 8950 is not spoken, and IPv6 one of IPv6.
            if next_hop.is_ipv4() != (family == Family::V4) {
                return Err(Notice::new(notice::UPDATE, 9));
            }
            reached = Some((next_hop, prefixes));
        }
        if body == [0; 4] && spoken(Family::V4) {
            end_of = Some(Family::V4);
        }
        update.end_of_rib = end_of;
        let has_routes = !announced.is_empty() || found.mp_reach.is_some();
        let mut missing = None;
        if spoken(Family::V4) && !announced.is_empty() {
            let next_hop = found.next_hop.map(IpAddr::from);
            update.take(found.attributes(next_hop, reading), announced, &mut missing);
        }
        if let Some((next_hop, prefixes)) = reached.filter(|(_, prefixes)| !prefixes.is_empty()) {
            update.take(found.attributes(Some(next_hop), reading), prefixes, &mut missing);
        }
        if !flows.is_empty() {
            match found.attributes(Some(NO_HOP), reading) {
                Ok(attributes) => {
                    let actions = Actions::read(found.extended, found.extended6, flow_hop);
                    update.flows.push((attributes, actions, flows));
                }
                Err(kind) => {
                    update.flows_withdrawn.append(&mut flows);
                    missing = missing.or(Some(kind));
                }
            }
        }
        let withdraws = |problem: &Problem| matches!(problem, Problem::Withdrawn(_));
        if let Some(kind) = missing.filter(|_| !found.problems.iter().any(withdraws)) {
            found.problems.push(Problem::Withdrawn(kind));
        }
        // RFC 7606, 5.2: without any routes it cannot be told which to withdraw.
        if !has_routes && found.problems.iter().any(withdraws) {
            return Err(Notice::new(notice::UPDATE, 1));
        }
        found.problems.append(&mut unread);
        update.problems = found.problems;
        Ok(update)
    }

    fn take(
        &mut self,
        attributes: Result<Attributes, u8>,
        mut prefixes: Vec<Nlri>,
        missing: &mut Option<u8>,
    ) {
        match attributes {
            Ok(attributes) => self.announced.push((attributes, prefixes)),
            Err(kind) => {
                self.withdrawn.append(&mut prefixes);
                *missing = missing.or(Some(kind));
            }
        }
    }
}

/// Stands for the next hop that flow specifications do not have (RFC 7600's dummy address).
const NO_HOP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8));

/// The next hop that flow specifications come with, by its length; of two of IPv6 the global one.
fn hop_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
        16 | 32 => bytes.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
        _ => None,
    }
}

/// The family of a multiprotocol attribute whose flow specifications follow, if it has such and the session does; else `value` stands where it did.
fn flow_family(value: &mut Cursor<'_>, reading: &Reading) -> Fault<Option<Family>> {
    let mut rest = *value;
    let (number, safi) = (rest.u16("an address family")?, rest.u8("a subsequent address family")?);
    let has = |family: &Family| afi(*family) == number && reading.flows[at(*family)];
    let family = FAMILIES.into_iter().find(has).filter(|_| safi == flowspec::SAFI);
    if family.is_some() {
        *value = rest;
    }
    Ok(family)
}

fn prefixes(mut data: Cursor<'_>, family: Family, reading: &Reading) -> Fault<Vec<Nlri>> {
    let mut list = Vec::new();
    // Host bits are irrelevant (RFC 4271, 4.3).
    let mut masked = 0;
    while !data.is_empty() {
        let path = match reading.add_path[at(family)] {
            true => data.u32("a path identifier")?,
            false => 0,
        };
        list.push(Nlri { prefix: data.prefix(family, &mut masked)?, path });
    }
    Ok(list)
}

fn put_prefix(out: &mut Vec<u8>, nlri: &Nlri, add_path: bool) {
    if add_path {
        out.extend_from_slice(&nlri.path.to_be_bytes());
    }
    let bytes = |len: u8| usize::from(len).div_ceil(8);
    match nlri.prefix {
        AnyPrefix::V4(prefix) => {
            out.push(prefix.len());
            out.extend_from_slice(&prefix.first().to_be_bytes()[..bytes(prefix.len())]);
        }
        AnyPrefix::V6(prefix) => {
            out.push(prefix.len());
            out.extend_from_slice(&prefix.first().to_be_bytes()[..bytes(prefix.len())]);
        }
    }
}

fn put_body(out: &mut Vec<u8>, withdrawn: &[u8], attributes: &[u8], announced: &[u8]) {
    let mut body = Vec::with_capacity(4 + withdrawn.len() + attributes.len() + announced.len());
    for part in [withdrawn, attributes] {
        body.extend_from_slice(&(part.len() as u16).to_be_bytes());
        body.extend_from_slice(part);
    }
    body.extend_from_slice(announced);
    message::put(out, message::UPDATE, &body);
}

/// Bytes for the prefixes of a message: with any attributes that we write, it stays below 4096.
const PREFIX_BYTES: usize = 2048;

/// Appends the messages that announce prefixes of one family; their next hop is of that family.
pub fn put_announcement(
    out: &mut Vec<u8>,
    attributes: &Attributes,
    prefixes: &[Nlri],
    family: Family,
    reading: &Reading,
) {
    let mut rest = prefixes;
    while !rest.is_empty() {
        let list = part(&mut rest, reading.add_path[at(family)]);
        let mut bytes = Vec::new();
        match attributes.next_hop {
            IpAddr::V4(_) => {
                attributes::put_all(&mut bytes, attributes, reading.wide);
                put_body(out, &[], &bytes, &list);
            }
            IpAddr::V6(next_hop) => {
                let mut value = afi(family).to_be_bytes().to_vec();
                value.extend_from_slice(&[1, 16]);
                value.extend_from_slice(&next_hop.octets());
                value.push(0);
                value.extend_from_slice(&list);
                // First, so that whoever reads it meets the routes even if another attribute is wrong (RFC 7606, 5.1).
                attributes::put_mp_reach(&mut bytes, &value);
                attributes::put_all(&mut bytes, attributes, reading.wide);
                put_body(out, &[], &bytes, &[]);
            }
        }
    }
}

/// Appends the messages that withdraw prefixes of one family.
pub fn put_withdrawal(out: &mut Vec<u8>, prefixes: &[Nlri], family: Family, reading: &Reading) {
    let mut rest = prefixes;
    while !rest.is_empty() {
        let list = part(&mut rest, reading.add_path[at(family)]);
        match family {
            Family::V4 => put_body(out, &list, &[], &[]),
            Family::V6 => put_unreach(out, family, UNICAST, &list),
        }
    }
}

/// The number of what is no flow specification (RFC 4760).
const UNICAST: u8 = 1;

/// Appends the mark that everything of a family has been sent (RFC 4724, 2).
pub fn put_end_of_rib(out: &mut Vec<u8>, family: Family) {
    match family {
        Family::V4 => put_body(out, &[], &[], &[]),
        Family::V6 => put_unreach(out, family, UNICAST, &[]),
    }
}

/// The same of a family's flow specifications.
pub fn put_end_of_flows(out: &mut Vec<u8>, family: Family) {
    put_unreach(out, family, flowspec::SAFI, &[]);
}

fn put_unreach(out: &mut Vec<u8>, family: Family, safi: u8, list: &[u8]) {
    let mut value = afi(family).to_be_bytes().to_vec();
    value.push(safi);
    value.extend_from_slice(list);
    let mut bytes = Vec::new();
    attributes::put_mp_unreach(&mut bytes, &value);
    put_body(out, &[], &bytes, &[]);
}

fn part(rest: &mut &[Nlri], add_path: bool) -> Vec<u8> {
    let mut list = Vec::new();
    while let Some((first, others)) = rest.split_first()
        && list.len() < PREFIX_BYTES
    {
        put_prefix(&mut list, first, add_path);
        *rest = others;
    }
    list
}

#[cfg(test)]
mod tests;
