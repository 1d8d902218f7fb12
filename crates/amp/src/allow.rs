//! What is never filtered.

use crate::config::{AllowItem, ProtocolItem, protocol_name};
use crate::error::AmpError;
use crate::settings::port_of;
use crate::tuple::{Mode, Tuple};
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

impl AllowEntry {
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

/// The list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow(Vec<AllowEntry>);

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
        entries.collect::<Result<_, _>>().map(Allow)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first entry that allows this flow, all parts of which are given.
    pub fn find(&self, tuple: &Tuple) -> Option<&AllowEntry> {
        self.0.iter().find(|entry| entry.matches(tuple))
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
