//! What the kernel says of its routes, links, addresses and neighbors, taken into the router.

use crate::control::{RouterControl, RouterError};
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
    /// A table that outgrows its structure, or a device whose parameters contradict the configuration; what else there
    /// was has been taken over.
    pub fn kernel(&mut self, now_ns: u64, events: &[KernelEvent]) -> Result<(), RouterError> {
        let mut changes4: Vec<Vec<RouteChange<u32>>> = vec![Vec::new(); self.vrfs.len()];
        let mut changes6: Vec<Vec<RouteChange<u128>>> = vec![Vec::new(); self.vrfs.len()];
        let mut devices = false;
        for event in events {
            match event {
                KernelEvent::Route { table, prefix, path } => {
                    let Some(vrf) = self.vrf_of_table(*table) else { continue };
                    let hop = path.as_ref().map(|path| self.kernel_hop(path));
                    match prefix {
                        AnyPrefix::V4(prefix) => changes4[vrf].push((*prefix, hop)),
                        AnyPrefix::V6(prefix) if stays_on_link(*prefix) => {}
                        AnyPrefix::V6(prefix) => changes6[vrf].push((*prefix, hop)),
                    }
                }
                KernelEvent::Link { .. } | KernelEvent::Address { .. } => {
                    devices |= note(&mut self.devices, &self.ports, event);
                }
                KernelEvent::Neighbor { index, address, mac, .. } => {
                    let Some(interface) = self.interface_of(*index) else { continue };
                    let owner = self.settings().interfaces.get(interface).map(|interface| interface.owner);
                    if owner == Some(Owner::Kernel) {
                        let key = Key { interface, address: *address };
                        self.neighbor_of_kernel(now_ns, key, mac.map(MacAddr));
                    }
                }
                KernelEvent::InSync => {}
            }
        }
        let mut result = Ok(());
        if devices {
            let before = &self.settings().interfaces;
            // What makes no sense of a device (an MTU below IPv6's, say) must not cost the routes that came with it.
            result = match settings::settings(&self.config, &self.ports, &self.devices, Some(before)) {
                Ok(settings) => self.set_settings(now_ns, settings).and(self.change_own_routes()),
                Err(error) => Err(error.into()),
            };
        }
        for (vrf, changes) in changes4.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            result = result.and(self.change(vrf, Source::Kernel, &changes).map(drop));
        }
        for (vrf, changes) in changes6.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            result = result.and(self.change(vrf, Source::Kernel, &changes).map(drop));
        }
        result.and(self.settle(now_ns))
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
    /// them (both would answer).
    pub fn kernel_conflicts(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (port, interface) in self.ports.iter().zip(self.settings().interfaces.iter()) {
            let Some(device) = port.device.filter(|_| interface.owner == Owner::Us) else { continue };
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
        KernelEvent::Link { index, mac, mtu, up, removed, .. } => {
            let mut changed = false;
            if *removed {
                let left = devices.remove(index);
                changed = left.is_some_and(|state| !state.addresses.is_empty());
            }
            let own = ports.iter().filter_map(|port| port.device).find(|device| device.index == *index);
            let Some(device) = own else { return changed };
            let mac = mac.map_or(device.mac, MacAddr);
            let link = Device { index: *index, mac, mtu: *mtu, up: *up && !removed };
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
fn stays_on_link(prefix: Prefix<u128>) -> bool {
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
