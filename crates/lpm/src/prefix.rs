//! Addresses and prefixes, generic over the two families: `u32` is IPv4, `u128` is IPv6 (both in host order, so that
//! numeric order is address order).

use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address as an integer in host order, with the integer's own operators.
pub trait Address:
    num_traits::PrimInt
    + num_traits::Unsigned
    + num_traits::CheckedShr
    + Hash
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// Width in bits: 32 or 128.
    const BITS: u8;
    /// 4 or 6.
    const FAMILY: u8;
    /// All bits zero.
    const MIN: Self;
    /// All bits one.
    const MAX: Self;
    /// The mask of a prefix length, `0..=BITS`.
    fn mask(len: u8) -> Self;
    /// Value as `u128`, right-aligned.
    fn to_u128(self) -> u128;
    /// Low `BITS` bits of `value`.
    fn from_u128(value: u128) -> Self;
    /// Reads the family's text form.
    fn parse(text: &str) -> Option<Self>;
    /// The address in the standard library's type, for text.
    fn to_ip(self) -> IpAddr;
}

macro_rules! address {
    ($int:ty, $bits:literal, $family:literal, $net:ty) => {
        impl Address for $int {
            const BITS: u8 = $bits;
            const FAMILY: u8 = $family;
            const MIN: Self = 0;
            const MAX: Self = <$int>::MAX;
            #[inline]
            fn mask(len: u8) -> Self {
                debug_assert!(len <= $bits);
                <$int>::MAX.checked_shl(u32::from($bits - len)).unwrap_or(0)
            }
            #[inline]
            fn to_u128(self) -> u128 {
                u128::from(self)
            }
            #[inline]
            fn from_u128(value: u128) -> Self {
                value as $int
            }
            fn parse(text: &str) -> Option<Self> {
                <$net>::from_str(text).ok().map(<$int>::from)
            }
            fn to_ip(self) -> IpAddr {
                <$net>::from(self).into()
            }
        }
    };
}
address!(u32, 32, 4, Ipv4Addr);
address!(u128, 128, 6, Ipv6Addr);

/// A prefix in canonical form: the bits behind `len` are zero, always.
///
/// ```
/// use tidemill_lpm::Prefix;
///
/// let prefix: Prefix<u32> = "10.1.0.0/16".parse().unwrap();
/// assert_eq!((prefix.first(), prefix.last(), prefix.len()), (0x0a01_0000, 0x0a01_ffff, 16));
/// let error = "10.1.0.1/16".parse::<Prefix<u32>>().unwrap_err();
/// assert_eq!(error.to_string(), "10.1.0.1/16 has host bits set: did you mean 10.1.0.0/16?");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    addr: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The default route.
    pub const DEFAULT: Self = Prefix { addr: A::MIN, len: 0 };

    /// A prefix with the host bits cleared; `None` if `len` exceeds the family's width.
    pub fn new(addr: A, len: u8) -> Option<Self> {
        (len <= A::BITS).then(|| Prefix { addr: addr & A::mask(len), len })
    }

    /// The first address.
    #[inline]
    pub fn first(self) -> A {
        self.addr
    }

    /// The last address.
    #[inline]
    pub fn last(self) -> A {
        self.addr | !A::mask(self.len)
    }

    /// The length in bits.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a prefix length is not a container's
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether `addr` lies inside.
    #[inline]
    pub fn contains(self, addr: A) -> bool {
        addr & A::mask(self.len) == self.addr
    }

    /// Whether `other` lies inside or is equal.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr.to_ip(), self.len)
    }
}

impl<A: Address> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The beginning of what may be as long as a file.
fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

/// Why a text is no prefix. Of a long one it has the first 60 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The part before the slash is no address of the family.
    #[error("{0:?} is not an IPv{1} address")]
    Address(String, u8),
    /// The part behind the slash is no length of the family.
    #[error("{0:?} is not a prefix length of 0 to {1}")]
    Length(String, u8),
    /// Bits behind the length are set; the prefix that was probably meant is given.
    #[error("{0} has host bits set: did you mean {1}?")]
    HostBits(String, String),
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = PrefixError;

    /// Reads `address/length`; an address alone is a host route.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => {
                let plain = !len.is_empty() && len.len() <= 3 && len.bytes().all(|b| b.is_ascii_digit());
                let value = plain.then(|| len.parse::<u8>().ok()).flatten().filter(|&l| l <= A::BITS);
                (addr, value.ok_or_else(|| PrefixError::Length(short(len), A::BITS))?)
            }
            None => (text, A::BITS),
        };
        let addr = A::parse(addr).ok_or_else(|| PrefixError::Address(short(addr), A::FAMILY))?;
        let prefix = Prefix { addr: addr & A::mask(len), len };
        if prefix.addr != addr {
            return Err(PrefixError::HostBits(text.into(), prefix.to_string()));
        }
        Ok(prefix)
    }
}

impl<A: Address> prefix_trie::Prefix for Prefix<A> {
    type R = A;
    fn repr(&self) -> A {
        self.addr
    }
    fn prefix_len(&self) -> u8 {
        self.len
    }
    fn from_repr_len(repr: A, len: u8) -> Self {
        Prefix { addr: repr & A::mask(len), len }
    }
    fn mask(&self) -> A {
        self.addr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_read_and_write_the_text_form() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Prefix<u32>>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<Prefix<u32>>().unwrap().len(), 32);
        for bad in
            ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "", "::/0", "10.0.0.0/8/8"]
        {
            assert!(bad.parse::<Prefix<u32>>().is_err(), "{bad}");
        }
        let error = "10.0.0.1/8".parse::<Prefix<u32>>().unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?");
    }

    #[test]
    fn of_a_long_word_the_beginning_is_said() {
        let nines = "9".repeat(60);
        assert_eq!(
            format!("{nines}9é").parse::<Prefix<u32>>().unwrap_err().to_string(),
            format!("\"{nines}...\" is not an IPv4 address")
        );
        assert_eq!(
            nines.parse::<Prefix<u32>>().unwrap_err().to_string(),
            format!("\"{nines}\" is not an IPv4 address")
        );
        let error = format!("::/{}", "é".repeat(1 << 20)).parse::<Prefix<u128>>().unwrap_err();
        assert!(error.to_string().ends_with("é...\" is not a prefix length of 0 to 128"));
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn first_and_last_bound_the_prefix() {
        let p: Prefix<u32> = "10.1.0.0/16".parse().unwrap();
        assert_eq!((p.first(), p.last()), (0x0a01_0000, 0x0a01_ffff));
        assert_eq!((Prefix::<u128>::DEFAULT.first(), Prefix::<u128>::DEFAULT.last()), (0, u128::MAX));
        assert!(p.covers("10.1.2.3/32".parse().unwrap()) && !p.covers("10.0.0.0/8".parse().unwrap()));
    }
}
