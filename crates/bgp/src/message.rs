//! Messages: framing, OPEN with its capabilities, NOTIFICATION, ROUTE-REFRESH (RFC 4271, 4; RFC 5492; RFC 2918). UPDATEs are
//! in [`update`](crate::update).

use crate::flowspec;
use crate::notice::{self, Notice};
use std::net::Ipv4Addr;
use tidemill_feed::bgp::{Cursor, Family};

/// Marker, length, type.
pub const HEADER_BYTES: usize = 19;
/// The longest message without RFC 8654.
pub const LONGEST: usize = 4096;
/// The longest message with it (extended messages).
pub const LONGEST_EXTENDED: usize = 65_535;
/// Stands for an AS number of 4 bytes where there are 2 (RFC 6793).
pub const AS_TRANS: u16 = 23_456;

/// OPEN.
pub const OPEN: u8 = 1;
/// UPDATE.
pub const UPDATE: u8 = 2;
/// NOTIFICATION.
pub const NOTIFICATION: u8 = 3;
/// KEEPALIVE.
pub const KEEPALIVE: u8 = 4;
/// ROUTE-REFRESH.
pub const ROUTE_REFRESH: u8 = 5;

/// The families in the order in which they are stored in pairs.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// A family's place in pairs.
pub fn at(family: Family) -> usize {
    usize::from(family == Family::V6)
}

/// The address family identifier.
pub fn afi(family: Family) -> u16 {
    match family {
        Family::V4 => 1,
        Family::V6 => 2,
    }
}

fn unicast(afi: u16, safi: u8) -> Option<Family> {
    FAMILIES.into_iter().find(|family| self::afi(*family) == afi && safi == 1)
}

/// The family whose flow specifications these are.
fn flow_family(afi: u16, safi: u8) -> Option<Family> {
    FAMILIES.into_iter().find(|family| self::afi(*family) == afi && safi == flowspec::SAFI)
}

/// One message in a stream: its type and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type.
    pub kind: u8,
    /// What is behind the header.
    pub body: &'a [u8],
}

impl Frame<'_> {
    /// Bytes with the header.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body.len()
    }
}

/// The first message of `data`, if it is whole; `longest` goes for all but OPEN and KEEPALIVE.
///
/// # Errors
/// What is wrong with the header, to be told to the peer (RFC 4271, 6.1).
pub fn frame(data: &[u8], longest: usize) -> Result<Option<Frame<'_>>, Notice> {
    let Some((header, rest)) = data.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    if header[..16] != [0xff; 16] {
        return Err(Notice::new(notice::HEADER, 1));
    }
    let stated = [header[16], header[17]];
    let (length, kind) = (usize::from(u16::from_be_bytes(stated)), header[18]);
    let (shortest, longest) = match kind {
        OPEN => (29, LONGEST),
        UPDATE => (23, longest),
        NOTIFICATION => (21, longest),
        KEEPALIVE => (HEADER_BYTES, HEADER_BYTES),
        ROUTE_REFRESH => (23, longest),
        _ => return Err(Notice::with(notice::HEADER, 3, [kind])),
    };
    if length < shortest || length > longest {
        return Err(Notice::with(notice::HEADER, 2, stated));
    }
    Ok(rest.get(..length - HEADER_BYTES).map(|body| Frame { kind, body }))
}

/// Appends a message.
pub fn put(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.extend_from_slice(&[0xff; 16]);
    out.extend_from_slice(&((HEADER_BYTES + body.len()) as u16).to_be_bytes());
    out.push(kind);
    out.extend_from_slice(body);
}

/// Appends a NOTIFICATION.
pub fn put_notice(out: &mut Vec<u8>, notice: &Notice) {
    let mut body = vec![notice.code, notice.subcode];
    let room = LONGEST - HEADER_BYTES - body.len();
    body.extend_from_slice(&notice.data[..notice.data.len().min(room)]);
    put(out, NOTIFICATION, &body);
}

/// Reads the body of a NOTIFICATION.
pub fn read_notice(body: &[u8]) -> Notice {
    match body {
        [code, subcode, data @ ..] => Notice::with(*code, *subcode, data),
        _ => Notice::new(0, 0),
    }
}

/// The family that a ROUTE-REFRESH asks for (RFC 2918); `None` for others, and for the marks of RFC 7313.
pub fn read_refresh(body: &[u8]) -> Option<Family> {
    match body {
        [a, b, 0, safi, ..] => unicast(u16::from_be_bytes([*a, *b]), *safi),
        _ => None,
    }
}

/// Graceful restart (RFC 4724, 3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graceful {
    /// The sender has just restarted.
    pub restarted: bool,
    /// How long its restart takes, in seconds, 0 to 4095.
    pub time_s: u16,
    /// For which families routes are kept meanwhile, and whether they were kept during the last one.
    pub families: Vec<(Family, bool)>,
    /// The same of flow specifications.
    pub flows: Vec<(Family, bool)>,
}

/// What a speaker can do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Unicast families (RFC 4760), by [`at`]. Without the capability it is IPv4 alone (RFC 4760, 8).
    pub families: [bool; 2],
    /// Flow specifications (RFC 8955), by [`at`].
    pub flows: [bool; 2],
    /// The AS number in 4 bytes (RFC 6793).
    pub wide_as: Option<u32>,
    /// Routes are sent again when asked for (RFC 2918).
    pub refresh: bool,
    /// Messages may be longer than 4096 bytes (RFC 8654).
    pub extended: bool,
    /// Graceful restart.
    pub graceful: Option<Graceful>,
    /// Several paths per prefix (RFC 7911), by [`at`]: bit 0 receives, bit 1 sends.
    pub add_path: [u8; 2],
}

/// An OPEN message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// The AS number, that of the capability if there is one.
    pub asn: u32,
    /// The hold time that it offers, in seconds; 0 or at least 3.
    pub hold_s: u16,
    /// The BGP identifier.
    pub id: Ipv4Addr,
    /// The capabilities.
    pub capabilities: Capabilities,
}

impl Open {
    /// Reads the body of an OPEN.
    ///
    /// # Errors
    /// What is wrong with it (RFC 4271, 6.2).
    pub fn read(body: &[u8]) -> Result<Self, Notice> {
        let unspecific = |_| Notice::new(notice::OPEN, 0);
        let mut body = Cursor::new(body);
        if body.u8("the version").map_err(unspecific)? != 4 {
            return Err(Notice::with(notice::OPEN, 1, [0, 4]));
        }
        let short_as = body.u16("the AS").map_err(unspecific)?;
        let hold_s = body.u16("the hold time").map_err(unspecific)?;
        let id = Ipv4Addr::from(body.u32("the identifier").map_err(unspecific)?);
        let capabilities = parameters(body)?;
        let asn = capabilities.wide_as.unwrap_or(short_as.into());
        if asn == 0 {
            return Err(Notice::new(notice::OPEN, 2));
        }
        if id.is_unspecified() {
            return Err(Notice::new(notice::OPEN, 3));
        }
        if matches!(hold_s, 1 | 2) {
            return Err(Notice::new(notice::OPEN, 6));
        }
        Ok(Open { asn, hold_s, id, capabilities })
    }

    /// Appends the message.
    pub fn put(&self, out: &mut Vec<u8>) {
        let capabilities = self.capabilities.write();
        let mut body = vec![4];
        body.extend_from_slice(&u16::try_from(self.asn).unwrap_or(AS_TRANS).to_be_bytes());
        body.extend_from_slice(&self.hold_s.to_be_bytes());
        body.extend_from_slice(&self.id.octets());
        // All of ours together are far below the 255 bytes of a parameter.
        let length = capabilities.len() as u8;
        match length {
            0 => body.push(0),
            _ => body.extend_from_slice(&[length + 2, 2, length]),
        }
        body.extend_from_slice(&capabilities);
        put(out, OPEN, &body);
    }
}

/// The optional parameters, of which capabilities are the only kind; of either form (RFC 9072).
fn parameters(mut body: Cursor<'_>) -> Result<Capabilities, Notice> {
    let unspecific = |_| Notice::new(notice::OPEN, 0);
    let short = body.u8("the parameters' length").map_err(unspecific)?;
    let mut peek = body;
    let extended = short == 255 && peek.u8("a parameter's type") == Ok(255);
    let length = match extended {
        true => {
            body = peek;
            usize::from(body.u16("the parameters' length").map_err(unspecific)?)
        }
        false => usize::from(short),
    };
    let mut parameters = body.part(length, "the parameters").map_err(unspecific)?;
    if !body.is_empty() {
        return Err(Notice::new(notice::OPEN, 0));
    }
    let mut capabilities = Capabilities::default();
    let mut multiprotocol = false;
    while !parameters.is_empty() {
        let kind = parameters.u8("a parameter's type").map_err(unspecific)?;
        let length = match extended {
            true => usize::from(parameters.u16("a parameter's length").map_err(unspecific)?),
            false => usize::from(parameters.u8("a parameter's length").map_err(unspecific)?),
        };
        let mut value = parameters.part(length, "a parameter").map_err(unspecific)?;
        if kind != 2 {
            return Err(Notice::new(notice::OPEN, 4));
        }
        while !value.is_empty() {
            let code = value.u8("a capability's code").map_err(unspecific)?;
            let length = value.u8("a capability's length").map_err(unspecific)?;
            let value = value.part(usize::from(length), "a capability").map_err(unspecific)?;
            capabilities.take(code, value, &mut multiprotocol).map_err(unspecific)?;
        }
    }
    if !multiprotocol {
        capabilities.families = [true, false];
    }
    Ok(capabilities)
}

const MULTIPROTOCOL: u8 = 1;
const REFRESH: u8 = 2;
const EXTENDED: u8 = 6;
const GRACEFUL: u8 = 64;
const WIDE_AS: u8 = 65;
const ADD_PATH: u8 = 69;

impl Capabilities {
    /// Takes one; those that we do not know are left.
    fn take(
        &mut self,
        code: u8,
        mut value: Cursor<'_>,
        multiprotocol: &mut bool,
    ) -> Result<(), tidemill_feed::error::RecordFault> {
        match code {
            MULTIPROTOCOL => {
                let afi = value.u16("an address family")?;
                value.u8("a reserved byte")?;
                let safi = value.u8("a subsequent address family")?;
                *multiprotocol = true;
                if let Some(family) = unicast(afi, safi) {
                    self.families[at(family)] = true;
                }
                if let Some(family) = flow_family(afi, safi) {
                    self.flows[at(family)] = true;
                }
            }
            REFRESH => self.refresh = true,
            EXTENDED => self.extended = true,
            WIDE_AS => self.wide_as = Some(value.u32("an AS number")?),
            GRACEFUL => {
                let flags = value.u16("the restart time")?;
                let mut graceful = Graceful {
                    restarted: flags & 0x8000 != 0,
                    time_s: flags & 0x0fff,
                    ..Graceful::default()
                };
                while !value.is_empty() {
                    let afi = value.u16("an address family")?;
                    let safi = value.u8("a subsequent address family")?;
                    let flags = value.u8("a family's flags")?;
                    if let Some(family) = unicast(afi, safi) {
                        graceful.families.push((family, flags & 0x80 != 0));
                    }
                    if let Some(family) = flow_family(afi, safi) {
                        graceful.flows.push((family, flags & 0x80 != 0));
                    }
                }
                self.graceful = Some(graceful);
            }
            ADD_PATH => {
                while !value.is_empty() {
                    let afi = value.u16("an address family")?;
                    let safi = value.u8("a subsequent address family")?;
                    let modes = value.u8("the direction")?;
                    // RFC 7911, 4: any other value is ignored.
                    if let Some(family) = unicast(afi, safi).filter(|_| (1..=3).contains(&modes)) {
                        self.add_path[at(family)] = modes;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut one = |code: u8, value: &[u8]| {
            out.extend_from_slice(&[code, value.len() as u8]);
            out.extend_from_slice(value);
        };
        for family in FAMILIES.into_iter().filter(|family| self.families[at(*family)]) {
            one(MULTIPROTOCOL, &[0, afi(family) as u8, 0, 1]);
        }
        for family in FAMILIES.into_iter().filter(|family| self.flows[at(*family)]) {
            one(MULTIPROTOCOL, &flowspec::capability(family));
        }
        if self.refresh {
            one(REFRESH, &[]);
        }
        if self.extended {
            one(EXTENDED, &[]);
        }
        if let Some(graceful) = &self.graceful {
            let flags = u16::from(graceful.restarted) << 15 | (graceful.time_s & 0x0fff);
            let mut value = flags.to_be_bytes().to_vec();
            for (list, safi) in [(&graceful.families, 1), (&graceful.flows, flowspec::SAFI)] {
                for (family, kept) in list {
                    value.extend_from_slice(&[0, afi(*family) as u8, safi, u8::from(*kept) << 7]);
                }
            }
            one(GRACEFUL, &value);
        }
        if let Some(asn) = self.wide_as {
            one(WIDE_AS, &asn.to_be_bytes());
        }
        let modes = |family: Family| self.add_path[at(family)];
        let pairs: Vec<u8> = FAMILIES
            .into_iter()
            .filter(|family| modes(*family) != 0)
            .flat_map(|family| [0, afi(family) as u8, 1, modes(family)])
            .collect();
        if !pairs.is_empty() {
            one(ADD_PATH, &pairs);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Open {
        Open {
            asn: 4_200_000_001,
            hold_s: 90,
            id: Ipv4Addr::new(192, 0, 2, 1),
            capabilities: Capabilities {
                families: [true, true],
                flows: [false, true],
                wide_as: Some(4_200_000_001),
                refresh: true,
                extended: true,
                graceful: Some(Graceful {
                    restarted: true,
                    time_s: 120,
                    families: vec![(Family::V4, true), (Family::V6, false)],
                    flows: vec![(Family::V6, true)],
                }),
                add_path: [1, 3],
            },
        }
    }

    #[test]
    fn an_open_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        open().put(&mut bytes);
        let frame = frame(&bytes, LONGEST).unwrap().unwrap();
        assert_eq!((frame.kind, frame.bytes()), (OPEN, bytes.len()));
        assert_eq!(u16::from_be_bytes([frame.body[1], frame.body[2]]), AS_TRANS);
        assert_eq!(Open::read(frame.body), Ok(open()));
    }

    /// RFC 9072: the same parameters in the long form, by hand.
    #[test]
    fn long_parameters_are_read() {
        let capabilities = open().capabilities.write();
        let mut body = vec![4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 1, 255, 255];
        body.extend_from_slice(&(capabilities.len() as u16 + 3).to_be_bytes());
        body.push(2);
        body.extend_from_slice(&(capabilities.len() as u16).to_be_bytes());
        body.extend_from_slice(&capabilities);
        assert_eq!(Open::read(&body), Ok(open()));
    }

    #[test]
    fn what_is_wrong_with_an_open_has_its_code() {
        let good = [4, 0xfb, 0xf0, 0, 90, 192, 0, 2, 1, 0];
        let read = Open::read(&good).unwrap();
        assert_eq!((read.asn, read.capabilities.families), (64_496, [true, false]));
        let with = |at: usize, bytes: &[u8]| {
            let mut body = good.to_vec();
            body[at..at + bytes.len()].copy_from_slice(bytes);
            Open::read(&body).map_err(|notice| (notice.code, notice.subcode))
        };
        assert_eq!(with(0, &[3]), Err((2, 1)));
        assert_eq!(with(1, &[0, 0]), Err((2, 2)));
        assert_eq!(with(3, &[0, 2]), Err((2, 6)));
        assert_eq!(with(5, &[0, 0, 0, 0]), Err((2, 3)));
        assert_eq!(with(9, &[4]), Err((2, 0)));
        let tail = |tail: &[u8]| {
            let body = [&good[..9], tail].concat();
            Open::read(&body).map_err(|notice| (notice.code, notice.subcode))
        };
        assert_eq!(tail(&[2, 1, 0]), Err((2, 4)));
        assert_eq!(tail(&[4, 2, 2, 65, 4]), Err((2, 0)), "a capability reaches beyond its parameter");
        assert_eq!(tail(&[5, 2, 3, 65, 1, 7]), Err((2, 0)), "an AS number of one byte");
        assert_eq!(tail(&[0, 1]), Err((2, 0)), "bytes behind");
        assert!(tail(&[4, 2, 2, 200, 0]).is_ok(), "unknown capabilities are ignored");
    }

    #[test]
    fn headers_are_checked() {
        let mut bytes = Vec::new();
        put(&mut bytes, KEEPALIVE, &[]);
        for end in 0..bytes.len() {
            assert_eq!(frame(&bytes[..end], LONGEST), Ok(None));
        }
        assert!(frame(&bytes, LONGEST).unwrap().is_some());
        let wrong = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            frame(&bytes, LONGEST).unwrap_err()
        };
        assert_eq!(wrong(3, 0), Notice::new(1, 1));
        assert_eq!(wrong(17, 18), Notice::with(1, 2, [0, 18]));
        assert_eq!(wrong(17, 20), Notice::with(1, 2, [0, 20]), "a KEEPALIVE has no body");
        assert_eq!(wrong(16, 0x20), Notice::with(1, 2, [0x20, 19]));
        assert_eq!(wrong(18, 9), Notice::with(1, 3, [9]));
    }
}
