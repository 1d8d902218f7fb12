//! The configuration, checked and resolved against the ports. Every error names the key and says what to do.

use crate::config::{InterfaceConfig, RouterConfig};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use tidemill_ip::martian::is_host_v4;
use tidemill_ip::plain::is_plain;
use tidemill_ip::{Interface, Interfaces, Owner, Settings};
use tidemill_lpm::Prefix;
use tidemill_wire::MacAddr;

/// A port that the router is to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// Whether it reads a capture: then it takes every frame unless told otherwise.
    pub capture: bool,
    /// The kernel's device behind it, if it is one.
    pub device: Option<Device>,
    /// The kernel's name of the device, by which it is known again when it has been away; empty: its number says all.
    pub interface: String,
}

/// A network device of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// The kernel's number of it.
    pub index: u32,
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is up and has a carrier.
    pub up: bool,
}

impl PortInfo {
    /// A port of this name that is neither a capture nor a device.
    pub fn new(name: impl Into<String>) -> Self {
        PortInfo { name: name.into(), capture: false, device: None, interface: String::new() }
    }
}

/// What the kernel says of its devices, by their number; it goes on top of what ports knew when they were opened.
pub type Devices = BTreeMap<u32, DeviceState>;

/// What the kernel says of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// MAC address, MTU, up; `None` before the kernel has said.
    pub link: Option<Device>,
    /// Its addresses with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// What is wrong with the configuration, or with a request.
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

/// More ports than a node has outputs for.
const MAX_PORTS: usize = 250;
const MAX_INTERFACES: usize = 8192;

/// With `coalesce_tcp` each has a node of its own, and a graph has room for so many.
const MAX_PORTS_COALESCED: usize = 100;

/// Checks `config` against the ports that there are. Interfaces that `before` had keep their numbers.
pub fn settings(
    config: &RouterConfig,
    ports: &[PortInfo],
    devices: &Devices,
    before: Option<&Interfaces>,
) -> Result<Settings, ConfigError> {
    if ports.is_empty() || ports.len() > MAX_PORTS {
        let what = format!("{} ports: a router needs 1 to {MAX_PORTS}", ports.len());
        return Err(ConfigError::new("port", what));
    }
    if config.router.coalesce_tcp && ports.len() > MAX_PORTS_COALESCED {
        let what =
            format!("{} ports: possible with {MAX_PORTS_COALESCED} at most, leave it out", ports.len());
        return Err(ConfigError::new("router.coalesce_tcp", what));
    }
    for (n, port) in ports.iter().enumerate() {
        let same = |other: &&PortInfo| {
            let index = |port: &PortInfo| port.device.map(|device| device.index);
            index(port).is_some() && index(other) == index(port)
        };
        // Index 0 is no device, but one that `check` made up.
        if let Some(twin) =
            ports[..n].iter().find(same).filter(|twin| twin.device.is_some_and(|d| d.index > 0))
        {
            let what = format!("{:?} has the same device as {:?}: give each its own", port.name, twin.name);
            return Err(ConfigError::new(format!("port[{n}].interface"), what));
        }
    }
    let vrfs = vrf_names(config)?;
    let mut list: Vec<Interface> = ports.iter().enumerate().map(|(n, p)| plain(n, p, devices)).collect();
    // A sub-interface that is gone leaves its number behind, down: labels and neighbors may still name it.
    for gone in before.into_iter().flat_map(|all| all.iter().skip(ports.len())) {
        list.push(Interface { vlan: None, up: false, name: gone.name.clone(), ..unused(gone.port) });
    }
    for (i, entry) in config.interface.iter().enumerate() {
        let key = |field: &str| format!("interface[{i}].{field}");
        let port = port_index(ports, &entry.port, || key("port"))?;
        let twin = |other: &&InterfaceConfig| other.port == entry.port && other.vlan == entry.vlan;
        if config.interface[..i].iter().any(|other| twin(&other)) {
            let what = match entry.vlan {
                None => format!("{:?} has an entry already: keep one", entry.port),
                Some(id) => format!("VLAN {id} of {:?} has an entry already: keep one", entry.port),
            };
            return Err(ConfigError::new(key("port"), what));
        }
        let name = name_of(entry);
        // Images have a name to a line, as lists do.
        if name.trim().is_empty() || !name.chars().all(is_plain) {
            return Err(ConfigError::new(key("name"), format!("{name:?}: give a name that can be shown")));
        }
        let base = plain(port, &ports[port], devices);
        let at = match entry.vlan {
            None => port,
            Some(id) if (1..=4094).contains(&id) => {
                let known = list.iter().skip(ports.len()).position(|old| old.name == name);
                known.map_or(list.len(), |at| at + ports.len())
            }
            Some(id) => {
                return Err(ConfigError::new(key("vlan"), format!("{id}: VLAN ids go from 1 to 4094")));
            }
        };
        let taken = list.iter().enumerate().any(|(n, other)| n != at && other.name == name);
        if taken || config.interface[..i].iter().any(|other| name_of(other) == name) {
            return Err(ConfigError::new(
                key("name"),
                format!("there is another interface {name:?}: rename one"),
            ));
        }
        let vrf = match &entry.vrf {
            Some(vrf) if vrf.is_empty() => {
                return Err(ConfigError::new(key("vrf"), "empty: leave it out, or give a name"));
            }
            Some(vrf) => vrf_index(&vrfs, vrf, || key("vrf"))?,
            None => 0,
        };
        let mut interface = Interface {
            name,
            vlan: entry.vlan,
            vrf,
            owner: entry.owner,
            promiscuous: entry.promiscuous.unwrap_or(base.promiscuous),
            resolves: entry.resolve.unwrap_or(base.resolves),
            ..base
        };
        fill(&mut interface, entry, &ports[port], devices, &key)?;
        if at == list.len() {
            list.push(interface);
        } else {
            list[at] = interface;
        }
    }
    if list.len() > MAX_INTERFACES {
        return Err(ConfigError::new("interface", format!("more than {MAX_INTERFACES}: remove some")));
    }
    for interface in &mut list {
        if interface.owner == Owner::Us && interface.resolves && interface.link_local.is_empty() {
            interface.link_local.push(link_local(interface.mac));
        }
    }
    let router = &config.router;
    if router.ttl == 0 {
        return Err(ConfigError::new("router.ttl", "0 would be dropped by the first router: use 64"));
    }
    Ok(Settings {
        interfaces: Interfaces::new(list, ports.len()),
        martians: router.martians,
        icmp_rate_per_s: router.icmp_rate_per_s,
        icmp_rate_per_prefix_per_s: router.icmp_rate_per_prefix_per_s,
        ttl: router.ttl,
        neighbor_rate_per_s: config.neighbors.rate_per_s,
        neighbor_rate_per_source_per_s: config.neighbors.rate_per_source_per_s,
    })
}

fn fill(
    interface: &mut Interface,
    entry: &InterfaceConfig,
    port: &PortInfo,
    devices: &Devices,
    key: &dyn Fn(&str) -> String,
) -> Result<(), ConfigError> {
    if let Some(text) = &entry.mac {
        interface.mac = unicast_mac(text, || key("mac"))?;
    }
    if let Some(mtu) = entry.mtu {
        if mtu < 68 {
            let what = format!("{mtu} is below IPv4's minimum of 68 (RFC 791)");
            return Err(ConfigError::new(key("mtu"), what));
        }
        interface.mtu = mtu;
    }
    match (entry.owner, port.device) {
        (Owner::Us, _) => {
            for (n, text) in entry.addresses.iter().enumerate() {
                add_address(interface, text)
                    .map_err(|what| ConfigError::new(key(&format!("addresses[{n}]")), what))?;
            }
            if !interface.v6.is_empty()
                && interface.mtu < 1280
                && entry.mtu.is_none()
                && port.device.is_some()
            {
                // The device's, which may change at any time: then there is no IPv6 there, as the kernel has it too.
                interface.v6.clear();
            }
            if !interface.v6.is_empty() && interface.mtu < 1280 {
                let what = format!("{} is below IPv6's minimum of 1280 (RFC 8200): raise it", interface.mtu);
                return Err(ConfigError::new(key("mtu"), what));
            }
        }
        (Owner::Kernel, None) => {
            let what = format!("{:?} is no device of the kernel's: only \"us\" is possible", port.name);
            return Err(ConfigError::new(key("owner"), what));
        }
        (Owner::Kernel, Some(_)) if !entry.addresses.is_empty() || entry.vlan.is_some() => {
            let what = "the kernel's addresses are taken over as they are: leave addresses and vlan out";
            return Err(ConfigError::new(key("owner"), what));
        }
        (Owner::Kernel, Some(device)) => {
            let state = devices.get(&device.index);
            for (address, len) in state.into_iter().flat_map(|state| &state.addresses) {
                match address {
                    IpAddr::V4(v4) => {
                        interface.v4.extend(Prefix::new(u32::from(*v4), *len).map(|prefix| (*v4, prefix)));
                    }
                    IpAddr::V6(v6) if v6.is_unicast_link_local() => interface.link_local.push(*v6),
                    IpAddr::V6(v6) => {
                        interface.v6.extend(Prefix::new(u128::from(*v6), *len).map(|prefix| (*v6, prefix)));
                    }
                }
            }
        }
    }
    Ok(())
}

fn name_of(entry: &InterfaceConfig) -> String {
    match (&entry.name, entry.vlan) {
        (Some(name), _) => name.clone(),
        (None, None) => entry.port.clone(),
        (None, Some(id)) => format!("{}.{id}", entry.port),
    }
}

fn plain(number: usize, port: &PortInfo, devices: &Devices) -> Interface {
    let mut interface = Interface::of_port(number as u16, &port.name);
    interface.promiscuous = port.capture;
    interface.resolves = port.device.is_some();
    let now = |device: Device| devices.get(&device.index).and_then(|state| state.link).unwrap_or(device);
    if let Some(device) = port.device.map(now) {
        interface.mac = device.mac;
        interface.mtu = u16::try_from(device.mtu).unwrap_or(u16::MAX);
        interface.up = device.up;
    }
    interface
}

fn unused(port: u16) -> Interface {
    Interface { resolves: false, ..Interface::of_port(port, "") }
}

/// The link-local address that goes with a MAC address (RFC 4291 A, RFC 2464 4).
fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let pair = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
}

/// The VRFs' names by number; 0 is the one without a name. Interfaces bring theirs with them; `[[vrf]]` is for what there
/// is to say of one.
pub(crate) fn vrf_names(config: &RouterConfig) -> Result<Vec<String>, ConfigError> {
    let mut names = vec![String::new()];
    for (i, vrf) in config.vrf.iter().enumerate() {
        let key = |field: &str| format!("vrf[{i}].{field}");
        if vrf.name.is_empty() {
            return Err(ConfigError::new(key("name"), "empty: give it a name"));
        }
        if names.contains(&vrf.name) {
            return Err(ConfigError::new(
                key("name"),
                format!("{:?} is there already: rename one", vrf.name),
            ));
        }
        let twin = |other: &crate::config::VrfConfig| other.table.is_some() && other.table == vrf.table;
        if config.vrf[..i].iter().any(twin) {
            return Err(ConfigError::new(key("table"), "feeds another VRF already: give each its own"));
        }
        names.push(vrf.name.clone());
    }
    for vrf in config.interface.iter().filter_map(|interface| interface.vrf.as_ref()) {
        if !vrf.is_empty() && !names.contains(vrf) {
            names.push(vrf.clone());
        }
    }
    Ok(names)
}

/// The number of the VRF `name`.
pub(crate) fn vrf_index(
    names: &[String],
    name: &str,
    key: impl FnOnce() -> String,
) -> Result<u16, ConfigError> {
    let at = names.iter().position(|known| known == name);
    at.map(|at| at as u16).ok_or_else(|| {
        let known = names.iter().skip(1).map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none: an interface must be in it".into() } else { known };
        ConfigError::new(key(), format!("there is no VRF {name:?}; there are {known}"))
    })
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

/// The number of the interface `name`.
pub(crate) fn interface_index(
    interfaces: &Interfaces,
    name: &str,
    key: impl FnOnce() -> String,
) -> Result<u16, ConfigError> {
    interfaces.by_name(name).ok_or_else(|| {
        let known = interfaces.iter().map(|i| format!("{:?}", i.name)).collect::<Vec<_>>().join(", ");
        ConfigError::new(key(), format!("there is no interface {name:?}; there are {known}"))
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
            if !is_host_v4(bits) {
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
            if address.is_unicast_link_local() {
                interface.link_local.push(address);
                return Ok(());
            }
            if address.is_multicast() || address.is_loopback() || address.is_unspecified() {
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
        let device = Device { index: 7, mac: MacAddr([2, 0, 0, 0, 0, 9]), mtu: 9000, up: true };
        let ports = [
            PortInfo::new("lan"),
            PortInfo { capture: true, ..PortInfo::new("wan") },
            PortInfo { device: Some(device), ..PortInfo::new("eth") },
        ];
        super::settings(&config, &ports, &Devices::new(), None).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_follow_the_port() {
        let settings = settings("").unwrap();
        let seen: Vec<_> =
            settings.interfaces.iter().map(|i| (i.mac.to_string(), i.mtu, i.promiscuous)).collect();
        assert_eq!(seen[0], ("02:49:00:00:00:00".into(), 1500, false));
        assert_eq!(seen[1], ("02:49:00:00:00:01".into(), 1500, true));
    }

    #[test]
    fn devices_lend_their_mac_mtu_and_a_link_local_address() {
        let text = "[[interface]]\nport='eth'\naddresses=['192.0.2.1/24']\n[[interface]]\nport='eth'\nvlan=5\nvrf='blue'\n\
                    [[vrf]]\nname='blue'";
        let settings = settings(text).unwrap();
        let eth = settings.interfaces.get(2).unwrap();
        assert_eq!((eth.mtu, eth.resolves, eth.up), (9000, true, true));
        assert_eq!(eth.link_local, ["fe80::ff:fe00:9".parse::<Ipv6Addr>().unwrap()]);
        let tagged = settings.interfaces.get(3).unwrap();
        assert_eq!((&*tagged.name, tagged.vlan, tagged.vrf, tagged.port), ("eth.5", Some(5), 1, 2));
        assert_eq!(settings.interfaces.by_vlan(2, 5), Some(3));
    }

    #[test]
    fn the_kernels_addresses_are_taken_over() {
        let config: RouterConfig = toml::from_str("[[interface]]\nport='eth'\nowner='kernel'").unwrap();
        let device = Device { index: 7, mac: MacAddr([2, 0, 0, 0, 0, 9]), mtu: 1500, up: true };
        let ports = [PortInfo { device: Some(device), ..PortInfo::new("eth") }];
        let addresses = vec![("192.0.2.7".parse().unwrap(), 24), ("fe80::7".parse().unwrap(), 64)];
        let state = DeviceState { link: Some(Device { up: false, ..device }), addresses };
        let settings = super::settings(&config, &ports, &Devices::from([(7, state)]), None).unwrap();
        let eth = settings.interfaces.get(0).unwrap();
        assert!(!eth.up && eth.has("192.0.2.7".parse().unwrap()) && eth.has("fe80::7".parse().unwrap()));
    }

    #[test]
    fn sub_interfaces_keep_their_numbers() {
        let ports = [PortInfo::new("lan")];
        let make = |text: &str, before: Option<&Interfaces>| {
            let config: RouterConfig = toml::from_str(text).unwrap();
            super::settings(&config, &ports, &Devices::new(), before).unwrap().interfaces
        };
        let one = "[[interface]]\nport='lan'\nvlan=1\n";
        let two = "[[interface]]\nport='lan'\nvlan=2\n";
        let first = make(&format!("{one}{two}"), None);
        let second = make(two, Some(&first));
        assert_eq!((second.by_vlan(0, 1), second.by_vlan(0, 2)), (None, Some(2)));
        let third = make(&format!("{two}{one}"), Some(&second));
        assert_eq!((third.by_vlan(0, 1), third.by_vlan(0, 2)), (Some(1), Some(2)));
    }

    #[test]
    fn mistakes_name_the_key_and_the_way_out() {
        for (text, error) in [
            (
                "[[interface]]\nport='dmz'",
                "interface[0].port: there is no port \"dmz\"; there are \"lan\", \"wan\", \"eth\"",
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
            (
                "[[interface]]\nport='lan'\nowner='kernel'",
                "interface[0].owner: \"lan\" is no device of the kernel's: only \"us\" is possible",
            ),
            ("[[interface]]\nport='lan'\nvlan=4095", "interface[0].vlan: 4095: VLAN ids go from 1 to 4094"),
            ("[[interface]]\nport='lan'\nvrf=''", "interface[0].vrf: empty: leave it out, or give a name"),
            (
                "[[interface]]\nport='lan'\nvlan=2\nname='wan'",
                "interface[0].name: there is another interface \"wan\": rename one",
            ),
            (
                "[[interface]]\nport='lan'\nvlan=2\nname=\"l\\nan\"",
                "interface[0].name: \"l\\nan\": give a name that can be shown",
            ),
            (
                "[[interface]]\nport='lan'\nvlan=2\nname=\"l\u{202e}an\"",
                "interface[0].name: \"l\\u{202e}an\": give a name that can be shown",
            ),
            (
                "[[interface]]\nport='lan'\nvlan=2\nname=' '",
                "interface[0].name: \" \": give a name that can be shown",
            ),
            ("[router]\nttl=0", "router.ttl: 0 would be dropped by the first router: use 64"),
        ] {
            assert_eq!(settings(text).unwrap_err(), error);
        }
        assert!(settings("[router]\nspeed=1").unwrap_err().contains("unknown field `speed`"));
        assert!(settings("[router]\nmartians='some'").unwrap_err().contains("unknown variant `some`"));
    }
}
