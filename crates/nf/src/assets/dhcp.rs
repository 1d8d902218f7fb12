//! DHCP for IPv4 (RFC 2131, options of RFC 2132 and RFC 4702): what a client says of itself, and which address it gets.

use crate::assets::text::Text;
use std::net::Ipv4Addr;
use tidemill_wire::MacAddr;

/// The port of servers.
pub const SERVER_PORT: u16 = 67;
/// The port of clients.
pub const CLIENT_PORT: u16 = 68;
const COOKIE: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
const OPTIONS: usize = 240;

mod option {
    pub(super) const PAD: u8 = 0;
    pub(super) const HOST_NAME: u8 = 12;
    pub(super) const MESSAGE: u8 = 53;
    pub(super) const PARAMETERS: u8 = 55;
    pub(super) const VENDOR: u8 = 60;
    pub(super) const FQDN: u8 = 81;
    pub(super) const END: u8 = 255;
}

/// What clients ask for and are given that is of interest here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A client looks for an address, asks for one, or (INFORM) for the rest.
    Client,
    /// A server grants one: an ACK.
    Granted,
    /// Anything else.
    Other,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Which one.
    pub kind: Kind,
    /// The client's hardware address.
    pub client: MacAddr,
    /// The address that the client has already, or of an ACK the one that it gets.
    pub address: Option<Ipv4Addr>,
    /// What the client calls itself: its host name (option 12), or the name that it wants in the DNS (81).
    pub host_name: Text,
    /// Its vendor class (60), which mostly names the DHCP client.
    pub vendor: Text,
    /// The parameters that it asks for (55), in its order: kinds of clients differ in that.
    pub parameters: Text,
}

/// Where a message is not what it should be: the byte, from the start of the UDP payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("dhcp: byte {at}: {what}")]
pub struct DhcpError {
    /// Which byte.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Reads a UDP payload. Names in fields that options have been put into (option 52) are not looked for.
///
/// # Errors
/// Where it is no DHCP message over Ethernet.
pub fn read(payload: &[u8]) -> Result<Message, DhcpError> {
    let wrong = |at, what| Err(DhcpError { at, what });
    let Some((fixed, mut options)) = payload.split_at_checked(OPTIONS) else {
        return wrong(payload.len(), "ends before the options");
    };
    if !matches!(fixed[0], 1 | 2) {
        return wrong(0, "neither a request nor a reply");
    }
    if fixed[1] != 1 || fixed[2] != 6 {
        return wrong(1, "hardware other than Ethernet");
    }
    if fixed[236..] != COOKIE {
        return wrong(236, "no magic cookie");
    }
    let address = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
    let mut client = [0; 6];
    client.copy_from_slice(&fixed[28..34]);
    let mut message = Message {
        kind: Kind::Other,
        client: MacAddr(client),
        address: None,
        host_name: Text::EMPTY,
        vendor: Text::EMPTY,
        parameters: Text::EMPTY,
    };
    let mut said = 0;
    while let Some((&code, rest)) = options.split_first() {
        options = rest;
        if code == option::PAD {
            continue;
        }
        if code == option::END {
            break;
        }
        let at = payload.len() - options.len();
        let Some((&length, rest)) = options.split_first() else {
            return wrong(at, "an option without length");
        };
        let Some((data, rest)) = rest.split_at_checked(length.into()) else {
            return wrong(at, "an option longer than the message");
        };
        options = rest;
        match code {
            option::MESSAGE => said = data.first().copied().unwrap_or(0),
            option::HOST_NAME => message.host_name = Text::new(data),
            option::VENDOR => message.vendor = Text::new(data),
            option::PARAMETERS => message.parameters = Text::new(data),
            // Flags and two codes, then the name as text, unless a flag says that it is in DNS labels.
            option::FQDN
                if message.host_name.is_empty() && data.first().is_some_and(|flags| flags & 4 == 0) =>
            {
                message.host_name = Text::new(data.get(3..).unwrap_or_default());
            }
            _ => {}
        }
    }
    const CIADDR: usize = 12;
    const YIADDR: usize = 16;
    let (kind, at) = match (fixed[0], said) {
        (1, 1 | 3 | 8) => (Kind::Client, CIADDR),
        (2, 5) => (Kind::Granted, YIADDR),
        _ => (Kind::Other, CIADDR),
    };
    message.kind = kind;
    message.address = Some(address(at)).filter(|address| !address.is_unspecified());
    Ok(message)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A message with these options.
    pub(crate) fn message(
        op: u8,
        ciaddr: [u8; 4],
        yiaddr: [u8; 4],
        mac: [u8; 6],
        options: &[(u8, &[u8])],
    ) -> Vec<u8> {
        let mut bytes = vec![0; OPTIONS];
        bytes[..3].copy_from_slice(&[op, 1, 6]);
        bytes[12..16].copy_from_slice(&ciaddr);
        bytes[16..20].copy_from_slice(&yiaddr);
        bytes[28..34].copy_from_slice(&mac);
        bytes[236..].copy_from_slice(&COOKIE);
        for (code, data) in options {
            bytes.extend([*code, data.len() as u8]);
            bytes.extend(*data);
        }
        bytes.push(255);
        bytes
    }

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn clients_say_who_they_are() {
        let options: [(u8, &[u8]); 4] = [(53, &[3]), (12, b"laptop"), (60, b"MSFT 5.0"), (55, &[1, 3, 6])];
        let read = read(&message(1, [0; 4], [0; 4], MAC, &options)).unwrap();
        assert_eq!((read.kind, read.client, read.address), (Kind::Client, MacAddr(MAC), None));
        assert_eq!((read.host_name.bytes(), read.vendor.bytes()), (&b"laptop"[..], &b"MSFT 5.0"[..]));
        assert_eq!(read.parameters.bytes(), [1, 3, 6]);
    }

    #[test]
    fn servers_say_which_address() {
        let granted = read(&message(2, [0; 4], [10, 0, 0, 7], MAC, &[(53, &[5])])).unwrap();
        assert_eq!((granted.kind, granted.address), (Kind::Granted, Some(Ipv4Addr::new(10, 0, 0, 7))));
        let offered = read(&message(2, [0; 4], [10, 0, 0, 7], MAC, &[(53, &[2])])).unwrap();
        assert_eq!((offered.kind, offered.address), (Kind::Other, None));
    }

    #[test]
    fn names_for_the_dns_and_what_is_broken() {
        let name = read(&message(1, [0; 4], [0; 4], MAC, &[(53, &[1]), (81, b"\0\0\0pc.example")])).unwrap();
        assert_eq!(name.host_name.bytes(), b"pc.example");
        let whole = message(1, [0; 4], [0; 4], MAC, &[(53, &[1]), (12, b"x")]);
        let at = |bytes: &[u8]| read(bytes).map_err(|error| error.at);
        assert_eq!(at(&whole[..200]), Err(200));
        assert_eq!(at(&whole[..245]), Err(244));
        assert_eq!(at(&whole[..244]), Err(244));
        for (byte, place) in [(0, 0), (1, 1), (236, 236)] {
            let mut broken = whole.clone();
            broken[byte] ^= 0x7f;
            assert_eq!(at(&broken), Err(place));
        }
    }
}
