//! What the kernel says of its routes, links, addresses and neighbors, taken into the router.

use crate::control::{RouterControl, RouterError};
use crate::fits::first;
use crate::labels::NextHop;
use crate::plane::{RouteChange, Source};
use crate::rules;
use crate::settings::{self, ConfigError, Device, Devices};
use std::net::IpAddr;
use tidemill_feed::AnyPrefix;
use tidemill_feed::kernel::{Hop, KernelEvent, KernelOptions, KernelPath};
use tidemill_ip::Owner;
use tidemill_ip::neighbor::Key;
use tidemill_lpm::Prefix;
use tidemill_wire::MacAddr;

impl RouterControl {
    /// What to listen to in the kernel; `None` if the configuration has no use for it.
    pub fn kernel_options(&self) -> Option<KernelOptions> {
        let owned = self.settings().interfaces.iter().any(|interface| interface.owner == Owner::Kernel);
        let devices = self.ports.iter().any(|port| port.device.is_some());
        let section = self.config.kernel.clone();
        if section.is_none() && !owned && !devices {
            return None;
        }
        let section = section.unwrap_or_default();
        let mut tables = Vec::new();
        if section.routes {
            tables.push(section.table);
            tables.extend(self.config.vrf.iter().filter_map(|vrf| vrf.table));
        }
        let default = KernelOptions::default();
        let receive_buffer = section.receive_buffer.unwrap_or(default.receive_buffer);
        Some(KernelOptions { tables, receive_buffer, ..default })
    }

    /// Takes over what the kernel says.
    ///
    /// # Errors
    /// Routes that a table has no room for ([`RouterError::Refused`]: they are tried again when there may be), or a device whose
    /// parameters contradict the configuration; what else there was has been taken over.
    pub fn kernel(&mut self, now_ns: u64, events: &[KernelEvent]) -> Result<(), RouterError> {
        let mut changes4: Vec<Vec<RouteChange<u32>>> = vec![Vec::new(); self.vrfs.len()];
        let mut changes6: Vec<Vec<RouteChange<u128>>> = vec![Vec::new(); self.vrfs.len()];
        let mut devices = false;
        let mut replaced = Vec::new();
        for event in events {
            match event {
                KernelEvent::Route { table, prefix, path } => {
                    let Some(vrf) = self.vrf_of_table(*table) else { continue };
                    let hop = path.as_ref().map(|path| self.kernel_hop(path));
                    match prefix {
                        AnyPrefix::V4(prefix) => {
                            self.unconfirmed.v4.remove(&(vrf, *prefix));
                            changes4[vrf].push((*prefix, hop));
                        }
                        AnyPrefix::V6(prefix) if stays_on_link(*prefix) => {}
                        AnyPrefix::V6(prefix) => {
                            self.unconfirmed.v6.remove(&(vrf, *prefix));
                            changes6[vrf].push((*prefix, hop));
                        }
                    }
                }
                KernelEvent::Link { .. } => devices |= self.link(event, &mut replaced),
                KernelEvent::Address { .. } => devices |= note(&mut self.devices, &self.ports, event),
                KernelEvent::Neighbor { index, address, mac, .. } => {
                    let Some(interface) = self.interface_of(*index) else { continue };
                    let owner = self.settings().interfaces.get(interface).map(|interface| interface.owner);
                    if owner == Some(Owner::Kernel) {
                        let key = Key { interface, address: *address };
                        self.neighbor_of_kernel(now_ns, key, mac.map(MacAddr));
                    }
                }
                // Routes of an earlier life that the first dump has not named are no more.
                KernelEvent::InSync => {
                    let gone = std::mem::take(&mut self.unconfirmed);
                    let stale = gone.v4.len() + gone.v6.len();
                    if stale > 0 {
                        self.notes
                            .push(format!("{stale} of the kernel's routes in the state image are no more"));
                    }
                    gone.v4.into_iter().for_each(|(vrf, prefix)| changes4[vrf].push((prefix, None)));
                    gone.v6.into_iter().for_each(|(vrf, prefix)| changes6[vrf].push((prefix, None)));
                }
            }
        }
        let mut result = Ok(());
        // Whoever was on another device's link is not known to be on this one's.
        let all = self.settings().interfaces.iter().map(|interface| replaced.contains(&interface.port));
        let forgotten: Vec<u16> = (0..).zip(all).filter(|(_, is)| *is).map(|(number, _)| number).collect();
        for number in &forgotten {
            self.neighbors.interface_down(*number, &mut self.actions);
        }
        if devices {
            let before = &self.settings().interfaces;
            // What makes no sense of a device (an MTU below IPv6's, say) must not cost the routes that came with it.
            result = match settings::settings(&self.config, &self.ports, &self.devices, Some(before)) {
                Ok(settings) => first(self.set_settings(now_ns, settings)),
                Err(error) => Err(error.into()),
            };
        }
        for number in forgotten {
            if self.settings().interfaces.get(number).is_some_and(|interface| interface.up) {
                self.neighbors.interface_up(now_ns, number, &mut self.actions);
            }
        }
        for (vrf, changes) in changes4.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            result = result.and(self.change_as_fits(vrf, Source::Kernel, &changes));
        }
        for (vrf, changes) in changes6.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            result = result.and(self.change_as_fits(vrf, Source::Kernel, &changes));
        }
        result.and(self.settle(now_ns))
    }

    /// Notes what the kernel says of a link. A device that has a port's name is the port's, whatever its number; `replaced`
    /// gets ports that have another device now, or none: the next one may have the same number. Returns whether there is
    /// anything new for us.
    fn link(&mut self, event: &KernelEvent, replaced: &mut Vec<u16>) -> bool {
        let KernelEvent::Link { index, name, mac, mtu, up, removed } = event else { return false };
        let named = |port: &settings::PortInfo| {
            port.device.is_some() && !port.interface.is_empty() && port.interface == *name
        };
        if let Some(at) = self.ports.iter().position(named).filter(|_| !removed)
            && let Some(device) = &mut self.ports[at].device
            && device.index != *index
        {
            let before = std::mem::replace(&mut device.index, *index);
            device.mac = mac.map_or(device.mac, MacAddr);
            // The one before may have another name by now; it is nobody's link then, but may have addresses.
            self.devices.entry(before).or_default().link = None;
            replaced.push(at as u16);
        }
        let is_its = |port: &settings::PortInfo| port.device.is_some_and(|device| device.index == *index);
        let at = self.ports.iter().position(is_its);
        replaced.extend(at.filter(|_| *removed).map(|at| at as u16));
        let port = at.map(|at| &self.ports[at]);
        let (port, device) = match port.and_then(|port| Some((port, port.device?))) {
            Some((port, device)) if !removed => (port.name.clone(), device),
            _ => return note(&mut self.devices, &self.ports, event),
        };
        let before = self.devices.get(index).and_then(|state| state.link).map_or(device.mtu, |link| link.mtu);
        let mut kept = *mtu;
        if *mtu != before {
            self.notes.push(if *mtu > self.longest {
                kept = before.min(self.longest);
                format!(
                    "warning: port {port}: interface {name} has an MTU of {mtu} now, and frames hold packets of {} bytes at \
                     most: ours stays {kept}; set it back, or raise memory.frame_size",
                    self.longest
                )
            } else {
                format!("port {port}: interface {name} has an MTU of {mtu} now (before: {before})")
            });
        }
        let (name, mac) = (name.clone(), *mac);
        let event = KernelEvent::Link { index: *index, name, mac, mtu: kept, up: *up, removed: false };
        note(&mut self.devices, &self.ports, &event)
    }

    /// The longest packet that there is memory for: a device's MTU is not followed beyond it.
    pub fn limit_mtu(&mut self, longest: u32) {
        self.longest = longest;
    }

    /// How many routes the kernel has given us, IPv4 and IPv6, all VRFs.
    pub fn kernel_routes(&self) -> (usize, usize) {
        let vrfs = 0..self.vrfs.len();
        let v4 = vrfs.clone().map(|vrf| self.v4.count(vrf, Source::Kernel)).sum();
        (v4, vrfs.map(|vrf| self.v6.count(vrf, Source::Kernel)).sum())
    }

    /// The name of the port that is the kernel's device `index`.
    pub fn port_of_device(&self, index: u32) -> Option<String> {
        let is = |port: &&settings::PortInfo| port.device.is_some_and(|device| device.index == index);
        self.ports.iter().find(is).map(|port| port.name.clone())
    }

    /// What the kernel's own set-up does to us, a line each with what to do about it: addresses of its own where we own
    /// them (both would answer). Not at ports whose packets the kernel does not see, of which `hidden` tells: what is left to it there
    /// needs those addresses.
    pub fn kernel_conflicts(&self, hidden: impl Fn(usize) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, (port, interface)) in
            self.ports.iter().zip(self.settings().interfaces.iter()).enumerate()
        {
            let answers = interface.owner == Owner::Us && !hidden(number);
            let Some(device) = port.device.filter(|_| answers) else { continue };
            let addresses = self.devices.get(&device.index).map_or(&[][..], |state| &state.addresses);
            let list: Vec<String> =
                addresses.iter().map(|(address, len)| format!("{address}/{len}")).collect();
            if !list.is_empty() {
                lines.push(format!(
                    "{}: the kernel has addresses there ({}) and will answer too: remove them, or give the interface \
                     owner = \"kernel\"",
                    interface.name,
                    list.join(", ")
                ));
            }
        }
        lines
    }

    /// The addresses that the kernel has on devices that are no ports of ours (loopback's global ones, a management
    /// port's): where the kernel owns an interface, what is sent to them by it is the kernel's too.
    pub(crate) fn kernel_hosts(&self, vrf: u16) -> Vec<IpAddr> {
        let owned =
            |interface: &tidemill_ip::Interface| interface.owner == Owner::Kernel && interface.vrf == vrf;
        if !self.settings().interfaces.iter().any(owned) {
            return Vec::new();
        }
        let elsewhere = self.devices.iter().filter(|(index, _)| self.device(**index).is_none());
        let global = |address: &IpAddr| match address {
            IpAddr::V4(v4) => !v4.is_loopback(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
        };
        let addresses = elsewhere.flat_map(|(_, state)| state.addresses.iter().map(|(address, _)| *address));
        addresses.filter(global).collect()
    }

    fn vrf_of_table(&self, table: u32) -> Option<usize> {
        let main = self.config.kernel.clone().unwrap_or_default().table;
        if table == main {
            return Some(0);
        }
        self.config.vrf.iter().position(|vrf| vrf.table == Some(table)).map(|at| at + 1)
    }

    fn device(&self, index: u32) -> Option<Device> {
        self.ports.iter().filter_map(|port| port.device).find(|device| device.index == index)
    }

    /// The interface that is the kernel's device `index` itself.
    fn interface_of(&self, index: u32) -> Option<u16> {
        let is = |port: &settings::PortInfo| port.device.is_some_and(|device| device.index == index);
        self.ports.iter().position(is).map(|at| at as u16)
    }

    /// A path of the kernel's as a next hop of ours. What only the kernel can do, or goes by a device that we do not
    /// have, is unreachable: a less specific route must not take its packets.
    fn kernel_hop(&self, path: &KernelPath) -> NextHop {
        let hop = |hop: &Hop| {
            let interface = self.interface_of(hop.index)?;
            let next =
                hop.gateway.map_or(NextHop::OnLink(interface), |gateway| NextHop::Via(interface, gateway));
            Some((next, hop.weight.max(1)))
        };
        match path {
            KernelPath::Via(hops) => {
                rules::group(hops.iter().filter_map(hop).collect()).unwrap_or(NextHop::Unreachable)
            }
            KernelPath::Blackhole => NextHop::Blackhole,
            KernelPath::Unreachable | KernelPath::Unsupported => NextHop::Unreachable,
            KernelPath::Prohibit => NextHop::Prohibited,
            KernelPath::Local => NextHop::Kernel,
        }
    }
}

/// What the kernel says of its devices, before there is a router: see
/// [`RouterControl::with_devices`].
pub fn devices(ports: &[settings::PortInfo], events: &[KernelEvent]) -> Devices {
    let mut devices = Devices::new();
    for event in events {
        note(&mut devices, ports, event);
    }
    devices
}

/// Notes what an event says of a device. Returns whether that is anything to us.
fn note(devices: &mut Devices, ports: &[settings::PortInfo], event: &KernelEvent) -> bool {
    match event {
        KernelEvent::Link { index, name, mac, mtu, up, removed } => {
            let mut changed = false;
            if *removed {
                let left = devices.remove(index);
                changed = left.is_some_and(|state| !state.addresses.is_empty());
            }
            let own = ports.iter().find(|port| port.device.is_some_and(|device| device.index == *index));
            let Some((port, device)) = own.and_then(|port| Some((port, port.device?))) else {
                return changed;
            };
            let mac = mac.map_or(device.mac, MacAddr);
            // One that has got another name is not the port's any more.
            let is = !removed && (port.interface.is_empty() || port.interface == *name);
            let link = Device { index: *index, mac, mtu: *mtu, up: *up && is };
            devices.entry(*index).or_default().link = Some(link);
            true
        }
        KernelEvent::Address { index, address, prefix_len, removed } => {
            let addresses = &mut devices.entry(*index).or_default().addresses;
            addresses.retain(|known| known != &(*address, *prefix_len));
            if !removed {
                addresses.push((*address, *prefix_len));
            }
            true
        }
        _ => false,
    }
}

/// Link-local and multicast prefixes are no routes of a router's.
pub(crate) fn stays_on_link(prefix: Prefix<u128>) -> bool {
    let first = prefix.first();
    first >> 118 == 0xfe80 >> 6 && prefix.len() >= 10 || first >> 120 == 0xff && prefix.len() >= 8
}

/// Checks what a configuration says of the kernel.
pub(crate) fn check(config: &crate::config::RouterConfig) -> Result<(), ConfigError> {
    let Some(kernel) = &config.kernel else { return Ok(()) };
    if let Some(bytes) = kernel.receive_buffer.filter(|bytes| !(1024..=1 << 30).contains(bytes)) {
        let what = format!("{bytes}: give 1024 bytes to {}", 1 << 30);
        return Err(ConfigError::new("kernel.receive_buffer", what));
    }
    if kernel.table == 0 {
        return Err(ConfigError::new("kernel.table", "0 is no table: 254 is main"));
    }
    if let Some(at) = config.vrf.iter().position(|vrf| vrf.table == Some(kernel.table)) {
        let what = format!("{} feeds the VRF without a name: give another table", kernel.table);
        return Err(ConfigError::new(format!("vrf[{at}].table"), what));
    }
    Ok(())
}
