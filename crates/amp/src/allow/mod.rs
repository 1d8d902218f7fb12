//! What is never filtered.

mod space;

use crate::config::{AllowItem, ProtocolItem, protocol_name};
use crate::error::AmpError;
use crate::settings::port_of;
use crate::tuple::{Mode, Tuple};
use space::Space;
use std::fmt;
use std::net::IpAddr;
use tidemill_lpm::{Address, Prefix};
use tidemill_wire::flow::Addresses;

/// A prefix of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpPrefix {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl IpPrefix {
    /// Reads `ADDRESS/LENGTH`, or an address alone.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            text.parse().map(IpPrefix::V6).map_err(|error| error.to_string())
        } else {
            text.parse().map(IpPrefix::V4).map_err(|error| error.to_string())
        }
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (IpPrefix::V4(prefix), IpAddr::V4(address)) => within(*prefix, address.into()),
            (IpPrefix::V6(prefix), IpAddr::V6(address)) => within(*prefix, address.into()),
            _ => false,
        }
    }
}

fn within<A: Address>(prefix: Prefix<A>, address: A) -> bool {
    prefix.first() <= address && address <= prefix.last()
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpPrefix::V4(prefix) => prefix.fmt(f),
            IpPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// One entry of the list: all that it says must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowEntry {
    /// Where the amplifier is.
    pub source: Option<IpPrefix>,
    /// Where the victim is.
    pub destination: Option<IpPrefix>,
    /// The amplifier's port.
    pub port: Option<u16>,
}

#[cfg(test)]
impl AllowEntry {
    /// The list's meaning, which the index must have too.
    fn matches(&self, tuple: &Tuple) -> bool {
        self.source.is_none_or(|prefix| prefix.contains(tuple.source()))
            && self.destination.is_none_or(|prefix| prefix.contains(tuple.destination()))
            && self.port.is_none_or(|port| port == tuple.source_port)
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.source.map(|prefix| format!("source {prefix}")));
        words.extend(self.destination.map(|prefix| format!("destination {prefix}")));
        words.extend(self.port.map(|port| match protocol_name(port) {
            Some(name) => format!("port {port} ({name})"),
            None => format!("port {port}"),
        }));
        f.write_str(&words.join(", "))
    }
}

/// The IPv4 prefix, if any is given; an error if it is one of IPv6.
fn in_v4(prefix: Option<IpPrefix>) -> Result<Option<Prefix<u32>>, ()> {
    match prefix {
        None => Ok(None),
        Some(IpPrefix::V4(prefix)) => Ok(Some(prefix)),
        Some(IpPrefix::V6(_)) => Err(()),
    }
}

/// The IPv6 prefix, if any is given; an error if it is one of IPv4.
fn in_v6(prefix: Option<IpPrefix>) -> Result<Option<Prefix<u128>>, ()> {
    match prefix {
        None => Ok(None),
        Some(IpPrefix::V6(prefix)) => Ok(Some(prefix)),
        Some(IpPrefix::V4(_)) => Err(()),
    }
}

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    entries: Vec<AllowEntry>,
    v4: Space<u32>,
    v6: Space<u128>,
}

impl Allow {
    /// Reads the list of the configuration.
    ///
    /// # Errors
    /// Which entry is wrong, and why.
    pub fn new(items: &[AllowItem]) -> Result<Self, AmpError> {
        let entries = items.iter().enumerate().map(|(i, item)| {
            let bad = |what: String| AmpError::config(format!("allow, entry {}", i + 1), what);
            let prefix = |text: &String| IpPrefix::parse(text).map_err(bad);
            let entry = match item {
                AllowItem::Source(text) => {
                    AllowEntry { source: Some(prefix(text)?), destination: None, port: None }
                }
                AllowItem::All(table) => AllowEntry {
                    source: table.source.as_ref().map(prefix).transpose()?,
                    destination: table.destination.as_ref().map(prefix).transpose()?,
                    port: table
                        .port
                        .as_ref()
                        .map(|item: &ProtocolItem| port_of(item).map_err(bad))
                        .transpose()?,
                },
            };
            let AllowEntry { source, destination, port } = entry;
            match (source, destination) {
                (None, None) if port.is_none() => {
                    Err(bad("says nothing: give source, destination or port".into()))
                }
                (Some(IpPrefix::V4(_)), Some(IpPrefix::V6(_)))
                | (Some(IpPrefix::V6(_)), Some(IpPrefix::V4(_))) => {
                    Err(bad("source and destination are of different families: no packet has both".into()))
                }
                _ => Ok(entry),
            }
        });
        entries.collect::<Result<_, _>>().map(Allow::of)
    }

    fn of(entries: Vec<AllowEntry>) -> Self {
        let (mut v4, mut v6) = (Space::default(), Space::default());
        for (number, entry) in (0..).zip(&entries) {
            let AllowEntry { source, destination, port } = *entry;
            if let (Ok(source), Ok(destination)) = (in_v4(source), in_v4(destination)) {
                v4.add(number, source, destination, port);
            }
            if let (Ok(source), Ok(destination)) = (in_v6(source), in_v6(destination)) {
                v6.add(number, source, destination, port);
            }
        }
        Allow { entries, v4, v6 }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with which the list allows every flow of both families, by number from 0. One family alone may be left out.
    pub(crate) fn everything(&self) -> Option<usize> {
        let all = |v6: bool| {
            let all = move |prefix: Option<IpPrefix>| match prefix {
                None => true,
                Some(IpPrefix::V4(prefix)) => !v6 && prefix.len() == 0,
                Some(IpPrefix::V6(prefix)) => v6 && prefix.len() == 0,
            };
            self.entries
                .iter()
                .position(|entry| entry.port.is_none() && all(entry.source) && all(entry.destination))
        };
        Some(all(false)?.max(all(true)?))
    }

    /// The first entry that allows this flow, all parts of which are given.
    pub fn find(&self, tuple: &Tuple) -> Option<&AllowEntry> {
        let port = tuple.source_port;
        let number = match tuple.addresses {
            Addresses::V4 { src, dst } => self.v4.find(src, dst, port),
            Addresses::V6 { src, dst } => self.v6.find(src, dst, port),
        };
        self.entries.get(number? as usize)
    }

    /// Whether a rule about `tuple`, masked by `mode`, is against the list. Only where the mode leaves the parts that entries are about: with
    /// three and more.
    pub(crate) fn forbids(&self, tuple: &Tuple, mode: Mode) -> bool {
        mode >= Mode::Three && self.find(tuple).is_some()
    }
}

/// The flow of a key of `wire`'s, if it is UDP with ports.
pub(crate) fn tuple_of(key: &tidemill_wire::FlowKey) -> Option<Tuple> {
    let (source_port, destination_port) = key.ports?;
    let addresses: Addresses = key.addresses;
    (key.protocol == tidemill_wire::Protocol::UDP).then_some(Tuple {
        addresses,
        source_port,
        destination_port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MitigatorSection;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    fn list(toml: &str) -> Result<Allow, AmpError> {
        Allow::new(&toml::from_str::<MitigatorSection>(&format!("allow = [{toml}]")).unwrap().allow)
    }

    fn flow(source: &str, destination: &str, port: u16) -> Tuple {
        let addresses = match (source.parse().unwrap(), destination.parse().unwrap()) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Addresses::V4 { src: s.into(), dst: d.into() },
            (IpAddr::V6(s), IpAddr::V6(d)) => Addresses::V6 { src: s.into(), dst: d.into() },
            _ => panic!("two families"),
        };
        Tuple { addresses, source_port: port, destination_port: 4000 }
    }

    #[test]
    fn all_conditions_of_an_entry_must_hold() {
        let allow = list("'8.8.8.0/24', {source = '2001:db8::/32', port = 'ntp'}, {destination = '10.9.0.0/16', port = 53}").unwrap();
        for (source, destination, port, entry) in [
            ("8.8.8.7", "1.2.3.4", 19, Some("source 8.8.8.0/24")),
            ("8.8.9.7", "1.2.3.4", 19, None),
            ("8.8.9.7", "10.9.3.4", 53, Some("destination 10.9.0.0/16, port 53 (dns)")),
            ("8.8.9.7", "10.9.3.4", 123, None),
            ("8.8.9.7", "10.8.3.4", 53, None),
            ("2001:db8::1", "::1", 123, Some("source 2001:db8::/32, port 123 (ntp)")),
            ("2001:db8::1", "::1", 53, None),
        ] {
            let found = allow.find(&flow(source, destination, port)).map(ToString::to_string);
            assert_eq!(found.as_deref(), entry, "{source} {destination} {port}");
        }
    }

    #[test]
    fn the_index_finds_what_a_walk_finds() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut hits = 0;
        for _ in 0..200 {
            let item = |rng: &mut StdRng| {
                // Few bits, so that prefixes nest and meet.
                let v4 = |rng: &mut StdRng| {
                    IpPrefix::V4(
                        Prefix::new(rng.random_range(0..8u32) << 29, rng.random_range(0..=3)).unwrap(),
                    )
                };
                let v6 = |rng: &mut StdRng| {
                    IpPrefix::V6(
                        Prefix::new(rng.random_range(0..8u128) << 125, rng.random_range(0..=3)).unwrap(),
                    )
                };
                let six = rng.random_bool(0.5);
                let prefix =
                    |rng: &mut StdRng| rng.random_bool(0.6).then(|| if six { v6(rng) } else { v4(rng) });
                let (source, destination) = (prefix(rng), prefix(rng));
                AllowEntry { source, destination, port: rng.random_bool(0.5).then(|| rng.random_range(1..4)) }
            };
            let allow = Allow::of((0..rng.random_range(0..12)).map(|_| item(&mut rng)).collect());
            for _ in 0..100 {
                let (a, b) = (rng.random_range(0..8u128), rng.random_range(0..8u128));
                let addresses = if rng.random_bool(0.5) {
                    Addresses::V4 { src: (a as u32) << 29, dst: (b as u32) << 29 }
                } else {
                    Addresses::V6 { src: a << 125, dst: b << 125 }
                };
                let tuple = Tuple { addresses, source_port: rng.random_range(1..4), destination_port: 9 };
                let walked = allow.entries.iter().position(|entry| entry.matches(&tuple));
                let found = allow.find(&tuple).map(std::ptr::from_ref);
                assert_eq!(
                    found,
                    walked.map(|at| std::ptr::from_ref(&allow.entries[at])),
                    "{allow:?} {tuple:?}"
                );
                hits += usize::from(walked.is_some());
            }
        }
        assert!((2_000..19_000).contains(&hits), "{hits}");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, error) in [
            (
                "'8.8.8.8/24'",
                "mitigator.allow, entry 1: 8.8.8.8/24 has host bits set: did you mean 8.8.8.0/24?",
            ),
            ("'::/0', {}", "mitigator.allow, entry 2: says nothing: give source, destination or port"),
            (
                "{source = '1.0.0.0/8', destination = '::/0'}",
                "mitigator.allow, entry 1: source and destination are of different families: no packet has both",
            ),
            (
                "{port = 'dnss'}",
                "mitigator.allow, entry 1: there is no protocol \"dnss\": give a UDP port, or one of dns, ntp, ssdp, memcached, chargen, cldap, snmp, qotd",
            ),
        ] {
            assert_eq!(list(text).unwrap_err().to_string(), error);
        }
    }
}
