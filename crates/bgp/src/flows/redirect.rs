//! Where flow specifications have packets go instead of where they are routed: to the VRF of a route target (RFC 8955, 7.4; RFC 8956, 6.1), or by way of an
//! address (draft-ietf-idr-flowspec-redirect-ip; draft-simpson-idr-flowspec-redirect, whose address is the next hop).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A route target (RFC 4360, 4): a number of an AS's, or of who has an address. In how many bytes a peer writes the AS makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteTarget {
    /// An AS's; of one beyond 65535 the number has 16 bits.
    As(u32, u32),
    /// Of who has the address.
    Address(IpAddr, u16),
}

impl FromStr for RouteTarget {
    type Err = String;

    /// `65000:100`, `192.0.2.1:100`, `[2001:db8::1]:100`.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (left, number) = text.rsplit_once(':')?;
            if let Some(six) = left.strip_prefix('[').and_then(|left| left.strip_suffix(']')) {
                let address = six.parse::<Ipv6Addr>().ok()?;
                return Some(RouteTarget::Address(address.into(), number.parse().ok()?));
            }
            if let Ok(four) = left.parse::<Ipv4Addr>() {
                return Some(RouteTarget::Address(four.into(), number.parse().ok()?));
            }
            let (asn, number) = (left.parse::<u32>().ok()?, number.parse::<u32>().ok()?);
            (asn <= 0xffff || number <= 0xffff).then_some(RouteTarget::As(asn, number))
        };
        read().ok_or_else(|| {
            format!(
                "{text:?} is no route target such as \"65000:100\", \"192.0.2.1:100\" or \"[2001:db8::1]:100\""
            )
        })
    }
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteTarget::As(asn, number) => write!(f, "{asn}:{number}"),
            RouteTarget::Address(IpAddr::V4(address), number) => write!(f, "{address}:{number}"),
            RouteTarget::Address(IpAddr::V6(address), number) => write!(f, "[{address}]:{number}"),
        }
    }
}

/// Where packets are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// To the VRF of a route target.
    Vrf(RouteTarget),
    /// By way of an address.
    Address(IpAddr),
    /// Copies of them, by whichever way; they themselves go on.
    Copies,
    /// In several ways.
    Several,
    /// By way of the next hop that the flow specification came with, which is none.
    Nowhere,
}

impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Redirect::Vrf(target) => write!(f, "redirect to VRF {target}"),
            Redirect::Address(address) => write!(f, "redirect to {address}"),
            Redirect::Copies => f.write_str("redirect copies"),
            Redirect::Several => f.write_str("redirect in several ways"),
            Redirect::Nowhere => f.write_str("redirect to no next hop"),
        }
    }
}

/// All that extended communities ask for; `hop` is the next hop that the flow specifications have come with.
pub(super) fn all(
    communities: &[[u8; 8]],
    six: &[[u8; 20]],
    hop: Option<IpAddr>,
) -> impl Iterator<Item = Redirect> {
    communities.iter().filter_map(move |one| of(one, hop)).chain(six.iter().filter_map(of_six))
}

fn of(community: &[u8; 8], hop: Option<IpAddr>) -> Option<Redirect> {
    let [kind, sub, a, b, c, d, e, f] = *community;
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([e, f]));
    Some(match (kind, sub) {
        (0x80, 0x08) => Redirect::Vrf(RouteTarget::As(high.into(), u32::from_be_bytes([c, d, e, f]))),
        (0x81, 0x08) => Redirect::Vrf(RouteTarget::Address([a, b, c, d].into(), low)),
        (0x82, 0x08) => Redirect::Vrf(RouteTarget::As(u32::from_be_bytes([a, b, c, d]), low.into())),
        // The last bit asks for copies.
        (0x08, 0x00) | (0x01, 0x0c) if f & 1 != 0 => Redirect::Copies,
        (0x08, 0x00) => hop.map_or(Redirect::Nowhere, Redirect::Address),
        (0x01, 0x0c) => Redirect::Address([a, b, c, d].into()),
        _ => return None,
    })
}

fn of_six(community: &[u8; 20]) -> Option<Redirect> {
    let (head, rest) = community.split_first_chunk::<2>()?;
    let (address, number) = rest.split_first_chunk::<16>()?;
    let (address, number) = (IpAddr::from(*address), u16::from_be_bytes(*number.first_chunk::<2>()?));
    Some(match head {
        [0, 0x0c] if number & 1 != 0 => Redirect::Copies,
        [0, 0x0c] => Redirect::Address(address),
        [0, 0x0d] => Redirect::Vrf(RouteTarget::Address(address, number)),
        _ => return None,
    })
}
