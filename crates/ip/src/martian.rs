//! Addresses that cannot be: which sources no packet may come from, which destinations no router forwards to
//! (RFC 1812 5.3.7, RFC 6890 and its registries, RFC 4291, RFC 9637).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use tidemill_burst::DropReason;
use tidemill_lpm::Prefix;
use tidemill_wire::martian::{v4, v6};

/// Which impossible addresses are dropped. Multicast and broadcast destinations are never routed, whatever this says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Martians {
    /// None: for laboratory captures.
    Off,
    /// Addresses that never cross a router: this network, loopback, link-local, class E, multicast as a source,
    /// `::`, `::1`, IPv4-mapped (RFC 1812 5.3.7, RFC 6890, RFC 4291).
    #[default]
    Standard,
    /// And the documentation and protocol assignment ranges that RFC 6890 and RFC 9637 do not let routers forward.
    Strict,
}

/// Why an address is refused as a source and as a destination.
type Refusal = (Option<DropReason>, Option<DropReason>);

const BOTH: Refusal = (Some(DropReason::MartianSource), Some(DropReason::MartianDestination));
const LINK: Refusal = (Some(DropReason::LinkLocal), Some(DropReason::LinkLocal));
const GROUP: Refusal = (Some(DropReason::MartianSource), Some(DropReason::Multicast));

/// Refused in every setting but `off`, where only the `off` column counts.
struct Rule<A: 'static> {
    prefix: (A, u8),
    refusal: Refusal,
    from: Martians,
}

const fn rule<A: Copy>(prefix: (A, u8), refusal: Refusal, from: Martians) -> Rule<A> {
    Rule { prefix, refusal, from }
}

use Martians::{Off, Standard, Strict};

/// More specific rules come first.
const RULES4: [Rule<u32>; 13] = [
    rule((0xffff_ffff, 32), (None, Some(DropReason::Broadcast)), Off), // limited broadcast
    rule(v4::MULTICAST, (None, Some(DropReason::Multicast)), Off),
    rule(v4::MULTICAST, GROUP, Standard),
    rule(v4::CLASS_E, BOTH, Standard), // the limited broadcast as a source, too
    rule(v4::THIS_NETWORK, BOTH, Standard),
    rule(v4::LOOPBACK, BOTH, Standard),
    rule(v4::LINK_LOCAL, LINK, Standard),
    rule((0xc000_0009, 32), (None, None), Strict), // PCP anycast (RFC 7723), forwardable
    rule((0xc000_000a, 32), (None, None), Strict), // TURN anycast (RFC 8155), forwardable
    rule((0xc000_0000, 24), BOTH, Strict),         // IETF protocol assignments
    rule((0xc000_0200, 24), BOTH, Strict),         // TEST-NET-1
    rule((0xc633_6400, 24), BOTH, Strict),         // TEST-NET-2
    rule((0xcb00_7100, 24), BOTH, Strict),         // TEST-NET-3
];

const RULES6: [Rule<u128>; 8] = [
    rule(v6::MULTICAST, (None, Some(DropReason::Multicast)), Off),
    rule(v6::MULTICAST, GROUP, Standard),
    rule(v6::UNSPECIFIED, BOTH, Standard),
    rule(v6::LOOPBACK, BOTH, Standard),
    rule(v6::IPV4_MAPPED, BOTH, Standard),
    rule(v6::LINK_LOCAL, LINK, Standard),
    rule((0x2001_0db8 << 96, 32), BOTH, Strict), // documentation (RFC 3849)
    rule((0x3fff << 112, 20), BOTH, Strict),     // documentation (RFC 9637)
];

const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

/// The rules of one setting for one family, with a table over the first eight bits that lets nearly every address pass
/// with one load.
pub struct Filter<A: 'static> {
    suspects: Box<[u8; 256]>,
    rules: Vec<(Prefix<A>, Refusal)>,
}

impl Filter<u32> {
    /// The IPv4 rules.
    pub fn v4(setting: Martians) -> Self {
        Self::new(&RULES4, setting)
    }

    /// Why a packet from `src` to `dst` is refused, if it is.
    #[inline(always)]
    pub fn refuse(&self, src: u32, dst: u32) -> Option<DropReason> {
        let marks =
            self.suspects[(src >> 24) as usize] & SOURCE | self.suspects[(dst >> 24) as usize] & DESTINATION;
        if marks == 0 { None } else { self.judge(src, dst) }
    }
}

impl Filter<u128> {
    /// The IPv6 rules.
    pub fn v6(setting: Martians) -> Self {
        Self::new(&RULES6, setting)
    }

    /// Why a packet from `src` to `dst` is refused, if it is.
    #[inline(always)]
    pub fn refuse(&self, src: u128, dst: u128) -> Option<DropReason> {
        let marks = self.suspects[(src >> 120) as usize] & SOURCE
            | self.suspects[(dst >> 120) as usize] & DESTINATION;
        if marks == 0 { None } else { self.judge(src, dst) }
    }
}

impl<A: tidemill_lpm::Address> Filter<A> {
    fn new(rules: &'static [Rule<A>], setting: Martians) -> Self {
        let mut filter = Filter { suspects: Box::new([0; 256]), rules: Vec::new() };
        for rule in rules.iter().filter(|rule| rule.from as u8 <= setting as u8) {
            let Some(prefix) = Prefix::new(rule.prefix.0, rule.prefix.1) else { continue };
            let first_bits = |address: A| (address >> (A::BITS as usize - 8)).to_u128() as usize;
            for suspect in &mut filter.suspects[first_bits(prefix.first())..=first_bits(prefix.last())] {
                *suspect |= if rule.refusal.0.is_some() { SOURCE } else { 0 };
                *suspect |= if rule.refusal.1.is_some() { DESTINATION } else { 0 };
            }
            filter.rules.push((prefix, rule.refusal));
        }
        filter
    }

    /// By the first byte of an address: whether such sources (1) and such destinations (2) may be refused; all others never are.
    pub fn suspects(&self) -> &[u8; 256] {
        &self.suspects
    }

    #[cold]
    fn judge(&self, src: A, dst: A) -> Option<DropReason> {
        // The first rule that names a reason counts; a rule for an exception names none and ends the search.
        let of = |address: A, side: fn(&Refusal) -> Option<DropReason>| {
            let mut hits = self.rules.iter().filter(|(prefix, _)| prefix.contains(address)).map(|(_, r)| r);
            hits.find_map(|refusal| match refusal {
                (None, None) => Some(None),
                refusal => side(refusal).map(Some),
            })
        };
        let (source, destination) = (of(src, |r| r.0), of(dst, |r| r.1));
        source.flatten().or(destination.flatten())
    }
}

/// What sort of martian an address is, as "a loopback address": packets from and to those are what [`Martians::Standard`] refuses. `None`: it may be a machine's.
pub fn sort_of(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("the unspecified address"),
        _ if address.is_loopback() => Some("a loopback address"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(a) if a.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(a) if a.is_link_local() => Some("a link-local address"),
        // "This network", and class E.
        IpAddr::V4(a) if a.octets()[0] == 0 || a.octets()[0] >= 240 => Some("a reserved address"),
        IpAddr::V6(a) if a.is_unicast_link_local() => Some("a link-local address"),
        IpAddr::V6(a) if a.to_ipv4_mapped().is_some() => Some("an IPv4-mapped address"),
        _ => None,
    }
}

/// Whether `address` can be one host's, if on its own link alone: an ICMP error may go to no other, whatever the martian setting
/// (RFC 1122 3.2.2).
pub fn is_host_v4(address: u32) -> bool {
    let bytes = address.to_be_bytes();
    !matches!(bytes[0], 0 | 127 | 224..=255)
}

/// As [`is_host_v4`], for IPv6 (RFC 4443 2.4 e.6).
pub fn is_host_v6(address: u128) -> bool {
    address > 1 && address >> 120 != 0xff && address >> 32 != 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use tidemill_lpm::Address;

    fn v4(setting: Martians, src: &str, dst: &str) -> Option<&'static str> {
        let bits = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
        Filter::v4(setting).refuse(bits(src), bits(dst)).map(DropReason::name)
    }

    fn v6(setting: Martians, src: &str, dst: &str) -> Option<&'static str> {
        let bits = |text: &str| u128::from(text.parse::<Ipv6Addr>().unwrap());
        Filter::v6(setting).refuse(bits(src), bits(dst)).map(DropReason::name)
    }

    /// At the ends of all prefixes of a list, and beside them: what is in it is refused as source and destination, and has a name; nothing else does.
    fn check<A: Address>(all: &[(A, u8)], refuse: impl Fn(A, A) -> Option<DropReason>, good: A) {
        let all: Vec<Prefix<A>> = all.iter().filter_map(|(first, len)| Prefix::new(*first, *len)).collect();
        for prefix in &all {
            let (first, last) = (prefix.first().to_u128(), prefix.last().to_u128());
            for address in [first.wrapping_sub(1), first, last, last.wrapping_add(1)].map(A::from_u128) {
                let is_in = all.iter().any(|prefix| prefix.contains(address));
                let said = [refuse(address, good).is_some(), refuse(good, address).is_some()];
                assert_eq!(said, [is_in; 2], "{}", address.to_ip());
                assert_eq!(sort_of(address.to_ip()).is_some(), is_in, "{}", address.to_ip());
            }
        }
    }

    #[test]
    fn the_lists_are_what_the_standard_setting_refuses() {
        let (filter4, filter6) = (Filter::v4(Standard), Filter::v6(Standard));
        check(&v4::ALL, |src, dst| filter4.refuse(src, dst), 0x0a01_0203);
        check(&v6::ALL, |src, dst| filter6.refuse(src, dst), 0x2001_4860 << 96);
    }

    #[test]
    fn ipv4_addresses() {
        let ok = "10.1.2.3";
        let (source, destination) = (Some("martian-source"), Some("martian-destination"));
        for (address, as_source, as_destination) in [
            ("0.0.0.0", source, destination),
            ("0.1.2.3", source, destination),
            ("1.0.0.1", None, None),
            ("126.255.255.255", None, None),
            ("127.0.0.1", source, destination),
            ("169.254.1.1", Some("link-local"), Some("link-local")),
            ("169.253.1.1", None, None),
            ("198.18.0.1", None, None),
            ("192.0.2.1", None, None),
            ("223.255.255.255", None, None),
            ("224.0.0.5", source, Some("multicast")),
            ("239.1.2.3", source, Some("multicast")),
            ("240.0.0.1", source, destination),
            ("255.255.255.255", source, Some("broadcast")),
        ] {
            assert_eq!(v4(Standard, address, ok), as_source, "{address} as source");
            assert_eq!(v4(Standard, ok, address), as_destination, "{address} as destination");
        }
        for address in ["192.0.0.1", "192.0.2.1", "198.51.100.7", "203.0.113.255"] {
            assert_eq!(
                (v4(Strict, address, ok), v4(Strict, ok, address)),
                (source, destination),
                "{address}"
            );
        }
        for address in ["192.0.0.9", "192.0.0.10", "192.0.1.1", "198.51.101.1", "10.0.0.1"] {
            assert_eq!((v4(Strict, address, ok), v4(Strict, ok, address)), (None, None), "{address}");
        }
        assert_eq!((v4(Off, "127.0.0.1", ok), v4(Off, "224.0.0.1", "0.0.0.0")), (None, None));
        assert_eq!(
            (v4(Off, ok, "224.0.0.1"), v4(Off, ok, "255.255.255.255")),
            (Some("multicast"), Some("broadcast"))
        );
    }

    #[test]
    fn ipv6_addresses() {
        let ok = "2001:4860::1";
        let (source, destination) = (Some("martian-source"), Some("martian-destination"));
        for (address, as_source, as_destination) in [
            ("::", source, destination),
            ("::1", source, destination),
            ("::2", None, None),
            ("::ffff:10.0.0.1", source, destination),
            ("64:ff9b::1", None, None),
            ("fc00::1", None, None),
            ("fe80::1", Some("link-local"), Some("link-local")),
            ("febf::1", Some("link-local"), Some("link-local")),
            ("fec0::1", None, None),
            ("ff02::1", source, Some("multicast")),
            ("2001:db8::1", None, None),
        ] {
            assert_eq!(v6(Standard, address, ok), as_source, "{address} as source");
            assert_eq!(v6(Standard, ok, address), as_destination, "{address} as destination");
        }
        for address in ["2001:db8::1", "3fff::1", "3fff:fff::1"] {
            assert_eq!(
                (v6(Strict, address, ok), v6(Strict, ok, address)),
                (source, destination),
                "{address}"
            );
        }
        assert_eq!((v6(Strict, "3fff:1000::1", ok), v6(Off, "::1", ok)), (None, None));
        assert_eq!(v6(Off, ok, "ff02::1"), Some("multicast"));
    }
}
