//! The configuration, checked and resolved. Every error names the key and says what to do.

use crate::config::{Martians, RouterConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_lpm::Prefix;
use tidemill_wire::MacAddr;

/// A port that the router is to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// Whether it reads a capture: then it takes every frame unless told otherwise.
    pub capture: bool,
}

impl PortInfo {
    /// A port of this name that is no capture.
    pub fn new(name: impl Into<String>) -> Self {
        PortInfo { name: name.into(), capture: false }
    }
}

/// What is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct ConfigError {
    /// The key, as in `interface[0].mac`.
    pub key: String,
    /// What is wrong and what to do.
    pub what: String,
}

impl ConfigError {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        ConfigError { key: key.into(), what: what.into() }
    }
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The port's name.
    pub name: String,
    /// Our MAC address.
    pub mac: MacAddr,
    /// The longest IP packet in bytes.
    pub mtu: u16,
    /// Whether frames to any MAC address are taken.
    pub promiscuous: bool,
    /// Our IPv4 addresses with their links' prefixes.
    pub v4: Vec<(Ipv4Addr, Prefix<u32>)>,
    /// Our IPv6 addresses with their links' prefixes.
    pub v6: Vec<(Ipv6Addr, Prefix<u128>)>,
}

/// Everything that nodes need to know and that does not change while they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// By port number.
    pub interfaces: Vec<Interface>,
    /// Which impossible addresses are dropped.
    pub martians: Martians,
    /// ICMP errors per second and worker.
    pub icmp_rate_per_s: u32,
    /// ICMP errors per second, worker and destination prefix.
    pub icmp_rate_per_prefix_per_s: u32,
    /// TTL of our own packets.
    pub ttl: u8,
}

/// More ports than a node has outputs for.
const MAX_PORTS: usize = 250;

impl Settings {
    /// Checks `config` against the ports that there are.
    pub fn new(config: &RouterConfig, ports: &[PortInfo]) -> Result<Self, ConfigError> {
        if ports.is_empty() || ports.len() > MAX_PORTS {
            let what = format!("{} ports: a router needs 1 to {MAX_PORTS}", ports.len());
            return Err(ConfigError::new("port", what));
        }
        let mut interfaces: Vec<Interface> = ports.iter().enumerate().map(plain).collect();
        for (i, entry) in config.interface.iter().enumerate() {
            let key = |field: &str| format!("interface[{i}].{field}");
            let at = port_index(ports, &entry.port, || key("port"))?;
            if config.interface[..i].iter().any(|other| other.port == entry.port) {
                let what = format!("{:?} has an entry already: keep one", entry.port);
                return Err(ConfigError::new(key("port"), what));
            }
            let interface = &mut interfaces[at];
            if let Some(text) = &entry.mac {
                interface.mac = unicast_mac(text, || key("mac"))?;
            }
            if entry.mtu < 68 {
                let what = format!("{} is below IPv4's minimum of 68 (RFC 791)", entry.mtu);
                return Err(ConfigError::new(key("mtu"), what));
            }
            interface.mtu = entry.mtu;
            interface.promiscuous = entry.promiscuous.unwrap_or(interface.promiscuous);
            for (n, text) in entry.addresses.iter().enumerate() {
                add_address(interface, text)
                    .map_err(|what| ConfigError::new(key(&format!("addresses[{n}]")), what))?;
            }
            if !interface.v6.is_empty() && entry.mtu < 1280 {
                let what = format!("{} is below IPv6's minimum of 1280 (RFC 8200): raise it", entry.mtu);
                return Err(ConfigError::new(key("mtu"), what));
            }
        }
        let router = &config.router;
        if router.ttl == 0 {
            return Err(ConfigError::new("router.ttl", "0 would be dropped by the first router: use 64"));
        }
        Ok(Settings {
            interfaces,
            martians: router.martians,
            icmp_rate_per_s: router.icmp_rate_per_s,
            icmp_rate_per_prefix_per_s: router.icmp_rate_per_prefix_per_s,
            ttl: router.ttl,
        })
    }

    /// The source of an IPv4 packet of ours about one that came in by `port`: the interface's first address, or any
    /// other address of ours (RFC 1812 4.3.2.4 calls it the router-id).
    pub fn source_v4(&self, port: usize) -> Option<Ipv4Addr> {
        let first = |interface: &Interface| interface.v4.first().map(|(address, _)| *address);
        self.interfaces.get(port).and_then(first).or_else(|| self.interfaces.iter().find_map(first))
    }

    /// As [`source_v4`](Self::source_v4), for IPv6 (RFC 4443 2.2).
    pub fn source_v6(&self, port: usize) -> Option<Ipv6Addr> {
        let first = |interface: &Interface| interface.v6.first().map(|(address, _)| *address);
        self.interfaces.get(port).and_then(first).or_else(|| self.interfaces.iter().find_map(first))
    }
}

fn plain((number, port): (usize, &PortInfo)) -> Interface {
    let [high, low] = (number as u16).to_be_bytes();
    Interface {
        name: port.name.clone(),
        mac: MacAddr([0x02, 0x49, 0, 0, high, low]),
        mtu: 1500,
        promiscuous: port.capture,
        v4: Vec::new(),
        v6: Vec::new(),
    }
}

/// The number of the port `name`.
pub(crate) fn port_index(
    ports: &[PortInfo],
    name: &str,
    key: impl FnOnce() -> String,
) -> Result<usize, ConfigError> {
    ports.iter().position(|port| port.name == name).ok_or_else(|| {
        let known = ports.iter().map(|port| format!("{:?}", port.name)).collect::<Vec<_>>().join(", ");
        ConfigError::new(key(), format!("there is no port {name:?}; there are {known}"))
    })
}

/// A station's MAC address.
pub(crate) fn unicast_mac(text: &str, key: impl FnOnce() -> String) -> Result<MacAddr, ConfigError> {
    match text.parse::<MacAddr>() {
        Ok(mac) if mac.is_unicast() => Ok(mac),
        Ok(mac) => {
            let what = format!("{mac} is no single station's address: use one such as 02:00:00:00:00:01");
            Err(ConfigError::new(key(), what))
        }
        Err(error) => Err(ConfigError::new(key(), error.to_string())),
    }
}

fn add_address(interface: &mut Interface, text: &str) -> Result<(), String> {
    let wanted = || {
        format!("{text:?} is not an address with its prefix's length, such as 192.0.2.1/24 or 2001:db8::1/64")
    };
    let (address, len) = text.split_once('/').ok_or_else(wanted)?;
    let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
    let len = len.parse::<u8>().ok().filter(|_| digits).ok_or_else(wanted)?;
    match address.parse::<IpAddr>().map_err(|_| wanted())? {
        IpAddr::V4(address) => {
            let prefix = Prefix::new(u32::from(address), len).filter(|p| p.len() > 0).ok_or_else(wanted)?;
            let bits = u32::from(address);
            if address.is_multicast() || address.is_loopback() || bits >> 24 == 0 || bits >> 28 == 0xf {
                return Err(format!("{address} cannot be a router's address: use a unicast one"));
            }
            if prefix.len() < 31 && (bits == prefix.first() || bits == prefix.last()) {
                return Err(format!(
                    "{address} is the network's or the broadcast address of {prefix}: use another"
                ));
            }
            interface.v4.push((address, prefix));
        }
        IpAddr::V6(address) => {
            let prefix = Prefix::new(u128::from(address), len).filter(|p| p.len() > 0).ok_or_else(wanted)?;
            if address.is_multicast()
                || address.is_loopback()
                || address.is_unspecified()
                || address.is_unicast_link_local()
            {
                return Err(format!(
                    "{address} cannot be a router's global address: use a global or unique local one"
                ));
            }
            interface.v6.push((address, prefix));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, String> {
        let config: RouterConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        let ports = [PortInfo::new("lan"), PortInfo { name: "wan".into(), capture: true }];
        Settings::new(&config, &ports).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_follow_the_port() {
        let settings = settings("").unwrap();
        let seen: Vec<_> =
            settings.interfaces.iter().map(|i| (i.mac.to_string(), i.mtu, i.promiscuous)).collect();
        assert_eq!(seen[0], ("02:49:00:00:00:00".into(), 1500, false));
        assert_eq!(seen[1], ("02:49:00:00:00:01".into(), 1500, true));
        assert_eq!(settings.source_v4(0), None);
    }

    #[test]
    fn the_source_is_the_incoming_interfaces_address_or_any() {
        let settings =
            settings("[[interface]]\nport='wan'\naddresses=['192.0.2.1/24', '2001:db8::1/64']").unwrap();
        assert_eq!(settings.source_v4(1), Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(settings.source_v4(0), settings.source_v4(1));
        assert!(settings.source_v6(0).is_some());
    }

    #[test]
    fn mistakes_name_the_key_and_the_way_out() {
        for (text, error) in [
            (
                "[[interface]]\nport='dmz'",
                "interface[0].port: there is no port \"dmz\"; there are \"lan\", \"wan\"",
            ),
            (
                "[[interface]]\nport='lan'\nmac='01:00:5e:00:00:01'",
                "interface[0].mac: 01:00:5e:00:00:01 is no single station's address: use one such as 02:00:00:00:00:01",
            ),
            (
                "[[interface]]\nport='lan'\nmtu=60",
                "interface[0].mtu: 60 is below IPv4's minimum of 68 (RFC 791)",
            ),
            (
                "[[interface]]\nport='lan'\nmtu=1000\naddresses=['2001:db8::1/64']",
                "interface[0].mtu: 1000 is below IPv6's minimum of 1280 (RFC 8200): raise it",
            ),
            (
                "[[interface]]\nport='lan'\naddresses=['192.0.2.1']",
                "interface[0].addresses[0]: \"192.0.2.1\" is not an address with its prefix's length, such as \
                 192.0.2.1/24 or 2001:db8::1/64",
            ),
            (
                "[[interface]]\nport='lan'\naddresses=['192.0.2.255/24']",
                "interface[0].addresses[0]: 192.0.2.255 is the network's or the broadcast address of 192.0.2.0/24: \
                 use another",
            ),
            (
                "[[interface]]\nport='lan'\n[[interface]]\nport='lan'",
                "interface[1].port: \"lan\" has an entry already: keep one",
            ),
            ("[router]\nttl=0", "router.ttl: 0 would be dropped by the first router: use 64"),
        ] {
            assert_eq!(settings(text).unwrap_err(), error);
        }
        assert!(settings("[router]\nspeed=1").unwrap_err().contains("unknown field `speed`"));
        assert!(settings("[router]\nmartians='some'").unwrap_err().contains("unknown variant `some`"));
    }
}
