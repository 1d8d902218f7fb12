//! What texts and labels of the configuration lead to: static routes, and the labels of a table's file.

use crate::config::{MacRule, NextHopConfig, NextHopKind, RouteConfig, RouterConfig};
use crate::labels::NextHop;
use crate::settings::{ConfigError, interface_index, unicast_mac};
use std::collections::HashMap;
use std::net::IpAddr;
use tidemill_ip::Interfaces;
use tidemill_lpm::Label;
use tidemill_wire::MacAddr;

/// The MAC address derived from a label: `02:54` and the label in four bytes.
pub fn derived_mac(label: Label) -> MacAddr {
    let [a, b, c, d] = label.0.to_be_bytes();
    MacAddr([0x02, 0x54, a, b, c, d])
}

/// The MAC address of whoever is on the link of an interface, under the default rule: `02:43:00:00` and the interface's
/// number. Never that of a label.
fn link_mac(interface: u16) -> MacAddr {
    let [high, low] = interface.to_be_bytes();
    MacAddr([0x02, 0x43, 0, 0, high, low])
}

/// What the labels of a table's file lead to, in one family.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Interfaces of the default rule; empty without one.
    interfaces: Vec<u16>,
    entries: HashMap<Label, NextHop>,
}

impl Rules {
    /// Resolves the configuration's next hops. `names` are the labels' names in the table's file.
    pub(crate) fn new(
        config: &RouterConfig,
        interfaces: &Interfaces,
        names: &[(Label, String)],
    ) -> Result<Self, ConfigError> {
        let mut rules = Rules::default();
        if let Some(section) = &config.next_hops {
            let MacRule::Derived = section.mac;
            for (n, name) in section.ports.iter().enumerate() {
                rules.interfaces.push(interface_index(interfaces, name, || format!("next_hops.ports[{n}]"))?);
            }
            if rules.interfaces.is_empty() {
                return Err(ConfigError::new("next_hops.ports", "empty: name at least one port"));
            }
        }
        for (i, entry) in config.next_hop.iter().enumerate() {
            let key = |field: &str| format!("next_hop[{i}].{field}");
            let label = match (entry.label, &entry.name) {
                (Some(0), _) => {
                    return Err(ConfigError::new(key("label"), "0 means \"no route\": labels count from 1"));
                }
                (Some(label), None) => Some(Label(label)),
                (None, Some(name)) => names.iter().find(|(_, known)| known == name).map(|(label, _)| *label),
                _ => return Err(ConfigError::new(key("label"), "give exactly one of label and name")),
            };
            let hop = next_hop(entry, interfaces, label, &key)?;
            // A name may be known to the other family's table only.
            let Some(label) = label else { continue };
            if rules.entries.insert(label, hop).is_some() {
                let what = format!("label {} has an entry already: keep one", label.0);
                return Err(ConfigError::new(key("label"), what));
            }
        }
        Ok(rules)
    }

    /// What single labels lead to.
    pub(crate) fn hops(&self) -> impl Iterator<Item = &NextHop> {
        self.entries.values()
    }

    /// What a label of the table's file leads to.
    pub(crate) fn named(&self, label: Label) -> Option<NextHop> {
        if let Some(hop) = self.entries.get(&label) {
            return Some(hop.clone());
        }
        let at = label.0 as usize % self.interfaces.len().max(1);
        self.interfaces.get(at).map(|&interface| NextHop::Mac(interface, derived_mac(label)))
    }

    /// Neighbors on a link where nobody answers are as fixed as all others, if there is a rule that gives them an
    /// address.
    pub(crate) fn on_link(&self, interface: u16) -> Option<MacAddr> {
        (!self.interfaces.is_empty()).then(|| link_mac(interface))
    }
}

/// The next hop of a kind that sends nothing.
fn quiet(kind: NextHopKind) -> Option<NextHop> {
    match kind {
        NextHopKind::Forward => None,
        NextHopKind::Unreachable => Some(NextHop::Unreachable),
        NextHopKind::Blackhole => Some(NextHop::Blackhole),
        NextHopKind::Prohibited => Some(NextHop::Prohibited),
        NextHopKind::Local => Some(NextHop::Local),
    }
}

fn next_hop(
    entry: &NextHopConfig,
    interfaces: &Interfaces,
    label: Option<Label>,
    key: &dyn Fn(&str) -> String,
) -> Result<NextHop, ConfigError> {
    if let Some(hop) = quiet(entry.kind) {
        let given = [("port", &entry.port), ("via", &entry.via), ("mac", &entry.mac)];
        return match given.iter().find(|(_, value)| value.is_some()) {
            Some((field, _)) => {
                Err(ConfigError::new(key(field), "only kind = \"forward\" sends: leave it out"))
            }
            None => Ok(hop),
        };
    }
    let port =
        entry.port.as_deref().map(|port| interface_index(interfaces, port, || key("port"))).transpose()?;
    match (&entry.via, &entry.mac, port) {
        (Some(_), Some(_), _) => Err(ConfigError::new(key("mac"), "via is resolved: give one of the two")),
        (Some(via), None, port) => {
            let (hop, _) =
                gateway(via, interfaces, None, port).map_err(|what| ConfigError::new(key("via"), what))?;
            Ok(hop)
        }
        (None, mac, Some(port)) => {
            let mac = mac.as_ref().map(|text| unicast_mac(text, || key("mac"))).transpose()?;
            Ok(NextHop::Mac(port, mac.or(label.map(derived_mac)).unwrap_or_default()))
        }
        (None, _, None) => {
            let what = "missing: name the port to send by, or give a kind other than \"forward\"";
            Err(ConfigError::new(key("port"), what))
        }
    }
}

/// What a static route leads to. `label` is what its MAC address may be derived from.
pub(crate) fn route(
    route: &RouteConfig,
    interfaces: &Interfaces,
    vrf: u16,
    label: Option<Label>,
    key: &dyn Fn(&str) -> String,
) -> Result<NextHop, ConfigError> {
    if let Some(hop) = quiet(route.kind) {
        let via = route.via.as_ref().map(|_| "via");
        let given = via.or(route.port.as_ref().map(|_| "port")).or(route.mac.as_ref().map(|_| "mac"));
        return match given {
            Some(field) => Err(ConfigError::new(key(field), "only kind = \"forward\" sends: leave it out")),
            None => Ok(hop),
        };
    }
    let port =
        route.port.as_deref().map(|port| interface_index(interfaces, port, || key("port"))).transpose()?;
    if let Some(via) = &route.via {
        if route.mac.is_some() {
            return Err(ConfigError::new(key("mac"), "via is resolved: give one of the two"));
        }
        let mut members = Vec::new();
        for text in via.texts() {
            members.push(
                gateway(text, interfaces, Some(vrf), port)
                    .map_err(|what| ConfigError::new(key("via"), what))?,
            );
        }
        return group(members).ok_or_else(|| ConfigError::new(key("via"), "empty: name a next hop"));
    }
    let Some(port) = port else {
        let what = "missing: give via, or the port to send by, or a kind other than \"forward\"";
        return Err(ConfigError::new(key("via"), what));
    };
    let resolves = interfaces.get(port).is_some_and(|interface| interface.resolves);
    match (&route.mac, label) {
        (Some(mac), _) => Ok(NextHop::Mac(port, unicast_mac(mac, || key("mac"))?)),
        (None, _) if resolves => Ok(NextHop::OnLink(port)),
        (None, Some(label)) => Ok(NextHop::Mac(port, derived_mac(label))),
        (None, None) => {
            let what = "missing: nobody answers on this port, so give the neighbor's MAC address";
            Err(ConfigError::new(key("mac"), what))
        }
    }
}

/// One next hop, or a group of several; members that occur twice weigh together.
pub(crate) fn group(mut members: Vec<(NextHop, u32)>) -> Option<NextHop> {
    members.sort();
    let mut merged: Vec<(NextHop, u32)> = Vec::new();
    for (hop, weight) in members {
        match merged.last_mut() {
            Some((last, sum)) if *last == hop => *sum = sum.saturating_add(weight),
            _ => merged.push((hop, weight)),
        }
    }
    match merged.len() {
        0 | 1 => merged.pop().map(|(hop, _)| hop),
        _ => Some(NextHop::Group(merged)),
    }
}

/// Most that one next hop of a group can weigh.
const MAX_WEIGHT: u32 = 65_535;

/// `ADDRESS[%INTERFACE][@WEIGHT]`.
fn gateway(
    text: &str,
    interfaces: &Interfaces,
    vrf: Option<u16>,
    port: Option<u16>,
) -> Result<(NextHop, u32), String> {
    let (rest, weight) = match text.split_once('@') {
        Some((rest, weight)) => {
            let number = weight.parse().ok().filter(|weight| (1..=MAX_WEIGHT).contains(weight));
            (rest, number.ok_or_else(|| format!("{text:?}: a weight is a number from 1 to {MAX_WEIGHT}"))?)
        }
        None => (text, 1),
    };
    let (address, named) = match rest.split_once('%') {
        Some((address, name)) => {
            (address, Some(interface_index(interfaces, name, String::new).map_err(|e| e.what)?))
        }
        None => (rest, port),
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("{text:?} is not an address, such as 192.0.2.1, fe80::1%lan or 192.0.2.1@3"))?;
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let near = |interface: &tidemill_ip::Interface| {
        vrf.is_none_or(|vrf| interface.vrf == vrf) && !link_local && interface.on_link(address)
    };
    let found = named.or_else(|| interfaces.iter().position(near).map(|at| at as u16));
    let interface = found.ok_or_else(|| {
        format!("{address} is on none of our links: name the interface, as in \"{address}%NAME\"")
    })?;
    if interfaces.get(interface).is_some_and(|interface| interface.has(address)) {
        return Err(format!("{address} is our own address: name a neighbor's"));
    }
    Ok((NextHop::Via(interface, address), weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Devices, PortInfo, settings};

    fn interfaces(config: &RouterConfig) -> Interfaces {
        let ports = [PortInfo::new("lan"), PortInfo::new("wan")];
        settings(config, &ports, &Devices::new(), None).unwrap().interfaces
    }

    fn rules(text: &str) -> Result<Rules, String> {
        let config: RouterConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        let names = [(Label(9), "10.0.0.9".to_string())];
        Rules::new(&config, &interfaces(&config), &names).map_err(|e| e.to_string())
    }

    const LINKS: &str = "[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24','fd01::1/64']\n\
                         [[interface]]\nport='wan'\naddresses=['10.2.0.1/24']\n";

    fn static_route(text: &str) -> Result<NextHop, String> {
        let config: RouterConfig =
            toml::from_str(&format!("{LINKS}[[route]]\n{text}")).map_err(|e| e.to_string())?;
        let key = |field: &str| format!("route[0].{field}");
        route(&config.route[0], &interfaces(&config), 0, None, &key).map_err(|e| e.to_string())
    }

    #[test]
    fn labels_follow_their_entry_or_the_rule() {
        let text = "next_hops.ports=['lan','wan']\n[[next_hop]]\nname='10.0.0.9'\nport='lan'\nmac='02:00:00:00:00:09'\n\
                    [[next_hop]]\nlabel=2\nkind='blackhole'";
        let rules = rules(text).unwrap();
        assert_eq!(rules.named(Label(9)), Some(NextHop::Mac(0, MacAddr([2, 0, 0, 0, 0, 9]))));
        assert_eq!(rules.named(Label(2)), Some(NextHop::Blackhole));
        assert_eq!(rules.named(Label(3)), Some(NextHop::Mac(1, MacAddr([2, 0x54, 0, 0, 0, 3]))));
        assert_eq!(rules.on_link(1), Some(MacAddr([2, 0x43, 0, 0, 0, 1])));
        assert_eq!((Rules::default().named(Label(1)), Rules::default().on_link(0)), (None, None));
    }

    #[test]
    fn static_routes_find_their_interface() {
        let via = |interface, text: &str| NextHop::Via(interface, text.parse().unwrap());
        assert_eq!(static_route("prefix='0.0.0.0/0'\nvia='10.2.0.9'"), Ok(via(1, "10.2.0.9")));
        assert_eq!(static_route("prefix='::/0'\nvia='fe80::9%lan'"), Ok(via(0, "fe80::9")));
        assert_eq!(static_route("prefix='0.0.0.0/0'\nport='lan'\nvia='192.0.2.1'"), Ok(via(0, "192.0.2.1")));
        assert_eq!(static_route("prefix='10.9.0.0/16'\nport='lan'"), Ok(NextHop::OnLink(0)));
        let group = NextHop::Group(vec![(via(0, "10.1.0.2"), 2), (via(1, "10.2.0.2"), 3)]);
        let text = "prefix='0.0.0.0/0'\nvia=['10.2.0.2@3','10.1.0.2','10.1.0.2']";
        assert_eq!(static_route(text), Ok(group));
    }

    #[test]
    fn mistakes_name_the_key() {
        for (text, error) in [
            ("[[next_hop]]\nlabel=0", "next_hop[0].label: 0 means \"no route\": labels count from 1"),
            ("[[next_hop]]\nport='lan'", "next_hop[0].label: give exactly one of label and name"),
            (
                "[[next_hop]]\nlabel=1",
                "next_hop[0].port: missing: name the port to send by, or give a kind other than \"forward\"",
            ),
            ("next_hops.ports=[]", "next_hops.ports: empty: name at least one port"),
            (
                "[[next_hop]]\nlabel=1\nport='lan'\n[[next_hop]]\nlabel=1\nkind='local'",
                "next_hop[1].label: label 1 has an entry already: keep one",
            ),
            (
                "[[next_hop]]\nlabel=1\nkind='local'\nport='lan'",
                "next_hop[0].port: only kind = \"forward\" sends: leave it out",
            ),
        ] {
            assert_eq!(rules(text).err().as_deref(), Some(error));
        }
        for (text, error) in [
            (
                "via='10.2.0.x'",
                "\"10.2.0.x\" is not an address, such as 192.0.2.1, fe80::1%lan or 192.0.2.1@3",
            ),
            ("via='10.2.0.9@0'", "\"10.2.0.9@0\": a weight is a number from 1 to 65535"),
            (
                "via='10.3.0.9'",
                "10.3.0.9 is on none of our links: name the interface, as in \"10.3.0.9%NAME\"",
            ),
            ("via='fe80::9'", "fe80::9 is on none of our links: name the interface, as in \"fe80::9%NAME\""),
            ("via='10.2.0.1'", "10.2.0.1 is our own address: name a neighbor's"),
            ("via=[]", "empty: name a next hop"),
            ("via='fe80::9%dmz'", "there is no interface \"dmz\"; there are \"lan\", \"wan\""),
        ] {
            let error = format!("route[0].via: {error}");
            assert_eq!(static_route(&format!("prefix='0.0.0.0/0'\n{text}")), Err(error));
        }
        assert_eq!(
            static_route("prefix='10.9.0.0/16'\nport='wan'").unwrap_err(),
            "route[0].mac: missing: nobody answers on this port, so give the neighbor's MAC address"
        );
    }
}
