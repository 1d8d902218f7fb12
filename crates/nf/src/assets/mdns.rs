//! Multicast DNS (RFC 6762) and service discovery (RFC 6763): what hosts are called, and which services they announce.

use crate::assets::text::Text;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port.
pub const PORT: u16 = 5353;
/// Records of one message that are looked at.
const MOST_RECORDS: usize = 32;
/// Labels of a name: of 255 bytes there are no more than 127.
const MOST_LABELS: usize = 127;
const HEADER: usize = 12;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// An address has a name, without `.local`.
    Name(IpAddr, Text),
    /// A service by its instance's name (as `Printer._ipp._tcp`) or its kind alone (`_ipp._tcp`), and its port where that is said.
    Service(Text, Option<u16>),
}

/// Where a message is not what it should be: the byte, from the start of the UDP payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("mdns: byte {at}: {what}")]
pub struct MdnsError {
    /// Which byte.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

const fn wrong<T>(at: usize, what: &'static str) -> Result<T, MdnsError> {
    Err(MdnsError { at, what })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, MdnsError> {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(two) => Ok(u16::from_be_bytes(*two)),
        None => wrong(at, "cut short"),
    }
}

/// A name: its first labels, without `local`; and where what follows it begins. Pointers only lead back, so no name goes round.
fn name(bytes: &[u8], mut at: usize) -> Result<(Text, usize), MdnsError> {
    let (mut text, mut behind, mut limit) = (Text::EMPTY, None, at);
    for labels in 0..=MOST_LABELS {
        let Some(&length) = bytes.get(at) else { return wrong(at, "a name that does not end") };
        match length {
            0 => return Ok((text, behind.unwrap_or(at + 1))),
            1..=63 => {
                let end = at + 1 + usize::from(length);
                let Some(label) = bytes.get(at + 1..end) else {
                    return wrong(at, "a label longer than the message");
                };
                let is_last = matches!(bytes.get(end), Some(0));
                if !(is_last && label.eq_ignore_ascii_case(b"local")) {
                    if labels > 0 && !text.is_empty() {
                        text.push(b".");
                    }
                    text.push(label);
                }
                at = end;
            }
            0xc0.. => {
                behind.get_or_insert(at + 2);
                let to = usize::from(u16_at(bytes, at)? & 0x3fff);
                if to >= limit {
                    return wrong(at, "a pointer that does not lead back");
                }
                (at, limit) = (to, to);
            }
            _ => return wrong(at, "a label of no known kind"),
        }
    }
    wrong(at, "a name of too many labels")
}

/// Reads a UDP payload; tells `each` what an answer's records say, answers and additional ones, in their order. Queries say nothing.
///
/// # Errors
/// Where it is no DNS message; what stands before that has been told.
pub fn read(payload: &[u8], mut each: impl FnMut(Said)) -> Result<(), MdnsError> {
    const A: u16 = 1;
    const PTR: u16 = 12;
    const AAAA: u16 = 28;
    const SRV: u16 = 33;
    const RESPONSE: u16 = 0x8000;
    if u16_at(payload, 2)? & RESPONSE == 0 {
        return Ok(());
    }
    let counts = [u16_at(payload, 4)?, u16_at(payload, 6)?, u16_at(payload, 8)?, u16_at(payload, 10)?];
    let mut at = HEADER;
    let questions = usize::from(counts[0]);
    if questions > MOST_RECORDS {
        return wrong(4, "too many questions");
    }
    for _ in 0..questions {
        at = name(payload, at)?.1 + 4;
    }
    let records = counts[1..].iter().map(|count| usize::from(*count)).sum::<usize>();
    for _ in 0..records.min(MOST_RECORDS) {
        let (owner, fixed) = name(payload, at)?;
        let (kind, length) = (u16_at(payload, fixed)?, u16_at(payload, fixed + 8)?);
        let from = fixed + 10;
        at = from + usize::from(length);
        let Some(data) = payload.get(from..at) else {
            return wrong(fixed + 8, "a record longer than the message");
        };
        let is_service = owner.bytes().starts_with(b"_") || owner.bytes().windows(2).any(|two| two == b"._");
        match kind {
            A => {
                if let Some(&address) = data.first_chunk::<4>() {
                    each(Said::Name(Ipv4Addr::from(address).into(), owner));
                }
            }
            AAAA => {
                if let Some(&address) = data.first_chunk::<16>() {
                    each(Said::Name(Ipv6Addr::from(address).into(), owner));
                }
            }
            // Priority, weight, port, target.
            SRV if is_service && data.len() > 6 => each(Said::Service(owner, Some(u16_at(data, 4)?))),
            // Which kinds of services there are at all is asked of this name, and everybody answers for himself.
            PTR if is_service && owner.bytes() == b"_services._dns-sd._udp" => {
                each(Said::Service(name(payload, from)?.0, None));
            }
            PTR if is_service => each(Said::Service(owner, None)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn labels(name: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = name
            .split('.')
            .flat_map(|label| std::iter::once(label.len() as u8).chain(label.bytes()).collect::<Vec<_>>())
            .collect();
        bytes.push(0);
        bytes
    }

    fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = owner.to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0x80, 1, 0, 0, 0, 120]);
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn message(records: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0x84, 0, 0, 0, 0, records.len() as u8, 0, 0, 0, 0];
        bytes.extend(records.concat());
        bytes
    }

    /// A printer: its name, its service, and its kind by a pointer to the name before.
    pub(crate) fn printer(address: [u8; 4]) -> Vec<u8> {
        let srv = [&[0, 0, 0, 0, 2, 119][..], &labels("printer.local")].concat();
        message(&[
            record(&labels("printer.local"), 1, &address),
            record(&labels("Laser._ipp._tcp.local"), 33, &srv),
            record(&[0xc0, 12], 28, &[0xfe; 16]),
        ])
    }

    fn said(bytes: &[u8]) -> (Vec<String>, Result<(), MdnsError>) {
        let mut said = Vec::new();
        let read = read(bytes, |one| {
            said.push(match one {
                Said::Name(address, name) => format!("{address} {name}"),
                Said::Service(name, port) => format!("{name} {port:?}"),
            });
        });
        (said, read)
    }

    #[test]
    fn announcements_are_read() {
        let (said, read) = said(&printer([10, 0, 0, 9]));
        let v6 = "fefe:fefe:fefe:fefe:fefe:fefe:fefe:fefe printer";
        assert_eq!(said, ["10.0.0.9 printer", "Laser._ipp._tcp Some(631)", v6]);
        assert_eq!(read, Ok(()));
        let kinds = message(&[
            record(&labels("_services._dns-sd._udp.local"), 12, &labels("_ssh._tcp.local")),
            record(&labels("_http._tcp.local"), 12, &labels("Web._http._tcp.local")),
        ]);
        assert_eq!(self::said(&kinds).0, ["_ssh._tcp None", "_http._tcp None"]);
    }

    #[test]
    fn what_is_broken_is_named_by_its_byte() {
        let whole = printer([10, 0, 0, 9]);
        // Cut anywhere, it is an error behind what is whole.
        for length in 0..whole.len() {
            assert!(said(&whole[..length]).1.is_err_and(|error| error.at <= whole.len()), "{length}");
        }
        let at = |bytes: &[u8]| said(bytes).1.map_err(|error| error.at);
        // A pointer to itself, one forward, a label of no kind.
        assert_eq!(at(&message(&[record(&[0xc0, 12], 1, &[0; 4])])), Err(12));
        assert_eq!(at(&message(&[record(&[0xc0, 20], 1, &[0; 4])])), Err(12));
        assert_eq!(at(&message(&[record(&[0x80, 20], 1, &[0; 4])])), Err(12));
        // A query says nothing.
        let mut query = whole.clone();
        query[2] = 0;
        assert_eq!(said(&query), (Vec::new(), Ok(())));
    }
}
