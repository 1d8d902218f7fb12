//! What a label means: adjacencies, and the published table of them.
//!
//! ```text
//! FIB label      0        1 .. own            own + 1 ..
//!            no route   the router's own    label 1, 2, .. of the routing table
//!                       (local, connected)
//! ```
//! The router's own routes live in the same FIB, so that one lookup decides everything. Their labels come first and
//! the table's labels move up behind them: then no label that a feed may bring later can collide with one of ours.

use crate::config::{NextHopKind, RouterConfig};
use crate::settings::{ConfigError, Interface, PortInfo, port_index, unicast_mac};
use std::collections::HashMap;
use tidemill_lpm::Label;
use tidemill_wire::{EtherType, MacAddr};

/// What is to be done with a packet that was routed to a next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Send it to the neighbour.
    Forward,
    /// It is for us.
    Local,
    /// No route (label 0).
    NoRoute,
    /// The route says unreachable.
    Unreachable,
    /// The route says discard.
    Blackhole,
    /// The route says prohibited.
    Prohibited,
    /// A directed broadcast on one of our links (RFC 2644).
    Broadcast,
    /// On one of our links, with no neighbour known.
    Unresolved,
    /// Nothing is known of this label.
    Unknown,
}

/// A next hop, ready to use: half a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Adjacency {
    /// The Ethernet header to send with: neighbour, us, EtherType.
    pub header: [u8; 14],
    /// The longest IP packet in bytes that the link takes.
    pub mtu: u16,
    /// The port's number.
    pub port: u16,
    /// What to do.
    pub kind: Kind,
}
const _: () = assert!(size_of::<Adjacency>() == 32);

impl Adjacency {
    fn of(kind: Kind) -> Self {
        Adjacency { header: [0; 14], mtu: 0, port: 0, kind }
    }

    fn forward(port: usize, interfaces: &[Interface], neighbor: MacAddr, ethertype: EtherType) -> Self {
        let interface = &interfaces[port];
        let mut header = [0; 14];
        header[..6].copy_from_slice(&neighbor.0);
        header[6..12].copy_from_slice(&interface.mac.0);
        header[12..].copy_from_slice(&ethertype.0.to_be_bytes());
        Adjacency { header, mtu: interface.mtu, port: port as u16, kind: Kind::Forward }
    }
}

/// The MAC address derived from a label: `02:54` and the label in four bytes.
pub fn derived_mac(label: Label) -> MacAddr {
    let [a, b, c, d] = label.0.to_be_bytes();
    MacAddr([0x02, 0x54, a, b, c, d])
}

/// The MAC address of whoever is on the link of a port, under the default rule: `02:43:00:00` and the port's number.
/// Never that of a label.
fn link_mac(port: usize) -> MacAddr {
    let [high, low] = (port as u16).to_be_bytes();
    MacAddr([0x02, 0x43, 0, 0, high, low])
}

/// The published table: adjacencies by FIB label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHops(Box<[Adjacency]>);

/// What every label beyond the table means.
const UNKNOWN: Adjacency = Adjacency { header: [0; 14], mtu: 0, port: 0, kind: Kind::Unknown };

impl NextHops {
    /// The adjacency of a FIB label.
    #[inline]
    pub fn get(&self, label: u32) -> &Adjacency {
        self.0.get(label as usize).unwrap_or(&UNKNOWN)
    }

    /// How many labels have an entry, "no route" included.
    #[allow(clippy::len_without_is_empty)] // "no route" is always there
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// One of the router's own labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// Our address.
    Local,
    /// A connected prefix, on this port.
    Connected(usize),
    /// A connected prefix's broadcast address.
    Broadcast,
}

/// How adjacencies are made from labels, for one family.
pub(crate) struct Rules {
    ethertype: EtherType,
    interfaces: Vec<Interface>,
    own: Vec<Own>,
    /// Ports of the default rule; empty without one.
    ports: Vec<usize>,
    entries: HashMap<Label, Adjacency>,
}

/// More labels than anybody has neighbours; 128 MiB of adjacencies.
const MAX_LABEL: u32 = 1 << 22;

impl Rules {
    /// Resolves the configuration's next hops. `names` are the labels' names in the table's file.
    pub(crate) fn new(
        config: &RouterConfig,
        ports: &[PortInfo],
        interfaces: &[Interface],
        ethertype: EtherType,
        own: Vec<Own>,
        names: &[(Label, String)],
    ) -> Result<Self, ConfigError> {
        let mut rules = Rules {
            ethertype,
            interfaces: interfaces.to_vec(),
            own,
            ports: Vec::new(),
            entries: HashMap::new(),
        };
        if let Some(section) = &config.next_hops {
            for (n, name) in section.ports.iter().enumerate() {
                rules.ports.push(port_index(ports, name, || format!("next_hops.ports[{n}]"))?);
            }
            if rules.ports.is_empty() {
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
            let adjacency = match (entry.kind, &entry.port) {
                (NextHopKind::Forward, Some(port)) => {
                    let port = port_index(ports, port, || key("port"))?;
                    let mac = entry.mac.as_ref().map(|text| unicast_mac(text, || key("mac"))).transpose()?;
                    let mac = mac.or(label.map(derived_mac)).unwrap_or_default();
                    Adjacency::forward(port, interfaces, mac, ethertype)
                }
                (NextHopKind::Forward, None) => {
                    let what = "missing: name the port to send by, or give a kind other than \"forward\"";
                    return Err(ConfigError::new(key("port"), what));
                }
                (_, Some(_)) => {
                    return Err(ConfigError::new(key("port"), "only kind = \"forward\" sends: leave it out"));
                }
                (_, None) if entry.mac.is_some() => {
                    return Err(ConfigError::new(key("mac"), "only kind = \"forward\" sends: leave it out"));
                }
                (NextHopKind::Unreachable, _) => Adjacency::of(Kind::Unreachable),
                (NextHopKind::Blackhole, _) => Adjacency::of(Kind::Blackhole),
                (NextHopKind::Prohibited, _) => Adjacency::of(Kind::Prohibited),
                (NextHopKind::Local, _) => Adjacency::of(Kind::Local),
            };
            // A name may be known to the other family's table only.
            let Some(label) = label else { continue };
            if rules.entries.insert(label, adjacency).is_some() {
                let what = format!("label {} has an entry already: keep one", label.0);
                return Err(ConfigError::new(key("label"), what));
            }
        }
        Ok(rules)
    }

    /// The FIB's label for a label of the routing table; `None` beyond the largest possible.
    pub(crate) fn fib_label(&self, label: Label) -> Option<Label> {
        match label {
            Label::NONE => Some(label),
            Label(n) if n <= MAX_LABEL => Some(Label(n + self.own.len() as u32)),
            _ => None,
        }
    }

    /// The largest label that [`fib_label`](Self::fib_label) takes.
    pub(crate) const MAX: u32 = MAX_LABEL;

    /// The table for the routing table's labels up to `highest`.
    pub(crate) fn table(&self, highest: Label) -> NextHops {
        let own = self.own.iter().map(|own| self.own_adjacency(*own));
        let routed = (1..=highest.0).map(|n| self.adjacency(Label(n)));
        NextHops(std::iter::once(Adjacency::of(Kind::NoRoute)).chain(own).chain(routed).collect())
    }

    fn own_adjacency(&self, own: Own) -> Adjacency {
        match own {
            Own::Local => Adjacency::of(Kind::Local),
            Own::Broadcast => Adjacency::of(Kind::Broadcast),
            // Neighbours on the link are as fixed as all others, if there is a rule that gives them an address.
            Own::Connected(port) if !self.ports.is_empty() => {
                Adjacency::forward(port, &self.interfaces, link_mac(port), self.ethertype)
            }
            Own::Connected(_) => Adjacency::of(Kind::Unresolved),
        }
    }

    fn adjacency(&self, label: Label) -> Adjacency {
        if let Some(adjacency) = self.entries.get(&label) {
            return *adjacency;
        }
        match self.ports.get(label.0 as usize % self.ports.len().max(1)) {
            Some(&port) => Adjacency::forward(port, &self.interfaces, derived_mac(label), self.ethertype),
            None => UNKNOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn rules(text: &str, own: Vec<Own>) -> Result<Rules, String> {
        let config: RouterConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        let ports = [PortInfo::new("lan"), PortInfo::new("wan")];
        let settings = Settings::new(&config, &ports).unwrap();
        let names = [(Label(9), "10.0.0.9".to_string())];
        Rules::new(&config, &ports, &settings.interfaces, EtherType::IPV4, own, &names)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn own_labels_come_first_and_the_rest_follow_the_rule() {
        let text = "next_hops.ports=['lan','wan']\n[[next_hop]]\nname='10.0.0.9'\nport='lan'\nmac='02:00:00:00:00:09'\n\
                    [[next_hop]]\nlabel=2\nkind='blackhole'";
        let rules = rules(text, vec![Own::Local, Own::Connected(1), Own::Broadcast]).unwrap();
        let table = rules.table(Label(9));
        let kinds: Vec<_> = (0..7).map(|n| table.get(n).kind).collect();
        use Kind::*;
        assert_eq!(kinds, [NoRoute, Local, Forward, Broadcast, Forward, Blackhole, Forward]);
        assert_eq!(rules.fib_label(Label(3)), Some(Label(6)));
        assert_eq!(table.get(6).header, *b"\x02\x54\x00\x00\x00\x03\x02\x49\x00\x00\x00\x01\x08\x00");
        assert_eq!(table.get(12).header[..6], [2, 0, 0, 0, 0, 9]);
        assert_eq!(table.get(2).header[..6], [0x02, 0x43, 0, 0, 0, 1]);
        assert_eq!((table.get(2).port, table.get(6).port, table.get(12).port), (1, 1, 0));
        assert_eq!((table.get(13).kind, table.len()), (Unknown, 13));
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
            assert_eq!(rules(text, Vec::new()).err().as_deref(), Some(error));
        }
    }
}
