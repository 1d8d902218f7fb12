//! IP headers, as all functions read them: the addresses, what fragment it is, what lies above and where. What a function makes of that, and of what it cannot
//! read, is its own.

use tidemill_wire::{Protocol, ipv4, ipv6, ipv6_ext};

/// A family's addresses, and where they lie in a header.
pub trait InHeader: Copy {
    /// Whether it is IPv6.
    const V6: bool;
    /// Bytes of an address.
    const BYTES: usize;
    /// Where the source address lies in a header; the destination follows.
    const SOURCE: usize;

    /// Reads an address in network order; 0 where there are too few bytes.
    fn read(bytes: &[u8]) -> Self;
}

impl InHeader for u32 {
    const V6: bool = false;
    const BYTES: usize = 4;
    const SOURCE: usize = 12;

    #[inline(always)]
    fn read(bytes: &[u8]) -> u32 {
        bytes.first_chunk().map_or(0, |four| u32::from_be_bytes(*four))
    }
}

impl InHeader for u128 {
    const V6: bool = true;
    const BYTES: usize = 16;
    const SOURCE: usize = 8;

    #[inline(always)]
    fn read(bytes: &[u8]) -> u128 {
        bytes.first_chunk().map_or(0, |all| u128::from_be_bytes(*all))
    }
}

// Addresses are the last of a header.
const _: () = assert!(ipv4::HEADER_LEN == 12 + 2 * 4 && ipv6::HEADER_LEN == 8 + 2 * 16);

/// A fragment's place in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) ident: u32,
    /// Bytes of the packet before it.
    pub(crate) offset: u32,
    pub(crate) more: bool,
    /// Where its bytes begin: behind the fragment header (IPv6), not behind what may follow that in the first one.
    pub(crate) at: usize,
}

/// An IP header, and where what is behind it begins and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header<A> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) protocol: Protocol,
    pub(crate) upper: usize,
    /// As the header says, whether or not there are so many bytes.
    pub(crate) end: usize,
    /// None also of a packet in a single fragment (RFC 6946).
    pub(crate) fragment: Option<Fragment>,
    /// Where a routing header of IPv6 lies.
    pub(crate) routing: Option<usize>,
}

/// Why a header cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is none, or contradicts itself.
    Malformed,
    /// Extension headers of IPv6 cannot be followed.
    Extensions,
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

/// Reads the header of a packet, or of the beginning of one.
///
/// # Errors
/// Why not.
#[inline]
pub(crate) fn header<A: InHeader>(ip: &[u8]) -> Result<Header<A>, Unread> {
    let address = |at: usize| A::read(ip.get(at..).unwrap_or_default());
    let (source, destination) = (address(A::SOURCE), address(A::SOURCE + A::BYTES));
    if A::V6 {
        ipv6::check_header(ip).map_err(|_| Unread::Malformed)?;
        let walk = ipv6_ext::walk(ip).map_err(|_| Unread::Extensions)?;
        let fragment = match walk.fragment.filter(|_| walk.is_fragment()) {
            None => None,
            Some(fragment) => {
                let at = behind_fragment_header(ip).ok_or(Unread::Extensions)?;
                let (offset, more) = (fragment.offset.into(), fragment.more);
                Some(Fragment { ident: fragment.ident, offset, more, at })
            }
        };
        let end = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(ip));
        let (protocol, upper, routing) = (walk.upper, walk.upper_offset, walk.routing_offset);
        return Ok(Header { source, destination, protocol, upper, end, fragment, routing });
    }
    ipv4::check_header(ip).map_err(|_| Unread::Malformed)?;
    let (protocol, upper) = (ipv4::protocol(ip), ipv4::header_len(ip));
    let end = usize::from(ipv4::total_len(ip));
    let fragment = ipv4::is_fragment(ip).then(|| Fragment {
        ident: u16_at(ip, 4).unwrap_or(0).into(),
        offset: ipv4::fragment_offset(ip).into(),
        more: u16_at(ip, 6).is_some_and(|word| word & 0x2000 != 0),
        at: upper,
    });
    Ok(Header { source, destination, protocol, upper, end, fragment, routing: None })
}

/// Where an IPv6 fragment's bytes begin: behind the first fragment header that is not atomic.
fn behind_fragment_header(ip: &[u8]) -> Option<usize> {
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    let (mut next, mut at) = (*ip.get(6)?, ipv6::HEADER_LEN);
    for _ in 0..=ipv6_ext::MAX_HEADERS {
        let &[following, length] = ip.get(at..)?.first_chunk()?;
        let end = at
            + match next {
                FRAGMENT => ipv6_ext::FRAGMENT_LEN,
                AUTHENTICATION => (usize::from(length) + 2) * 4,
                _ => (usize::from(length) + 1) * 8,
            };
        // The offset and whether more come; two bits between them mean nothing.
        if next == FRAGMENT && u16_at(ip, at + 2)? & !0b110 != 0 {
            return Some(end);
        }
        (next, at) = (following, end);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragments_bytes_begin_behind_its_fragment_header() {
        // Options, an atomic fragment, one that is none, then options of the first one; UDP.
        let extensions = [
            &[44, 0, 1, 4, 0, 0, 0, 0][..],
            &[44, 0, 0, 0, 0, 0, 0, 1],
            &[60, 0, 0, 1, 0, 0, 0, 9],
            &[17, 0, 1, 4, 0, 0, 0, 0],
            &[0, 7, 0, 53, 0, 8, 0, 0],
        ]
        .concat();
        let mut ip = vec![0x60, 0, 0, 0, 0, extensions.len() as u8, 60, 64];
        ip.extend([7; 16]);
        ip.extend([8; 16]);
        ip.extend(extensions);
        let read = header::<u128>(&ip).unwrap();
        assert_eq!(read.fragment, Some(Fragment { ident: 9, offset: 0, more: true, at: 64 }));
        assert_eq!((read.protocol, read.upper, read.end), (Protocol::UDP, 72, 80));
        assert_eq!((read.source as u8, read.destination as u8, read.routing), (7, 8, None));
        // Where the packet ends early its header says what it says.
        let cut = header::<u128>(&ip[..72]).unwrap();
        assert_eq!((cut.upper, cut.end), (72, 80));
        assert_eq!(header::<u128>(&ip[..50]).unwrap_err(), Unread::Extensions);
        assert_eq!(header::<u128>(&ip[..39]).unwrap_err(), Unread::Malformed);
        assert_eq!(header::<u32>(&ip).unwrap_err(), Unread::Malformed);
    }
}
