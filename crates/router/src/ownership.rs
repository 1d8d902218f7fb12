//! Who owns what, for ports that take packets away from the kernel: what must reach it is what a copy of everything would
//! have brought it to use (its routes to itself, [`crate::labels::NextHop::Kernel`]; what stays on its links).

use crate::control::RouterControl;
use std::collections::BTreeSet;
use std::net::IpAddr;
use tidemill_ip::{Interface, Owner};
use tidemill_port::Ownership;

impl RouterControl {
    /// Who owns what at port number `port`, as of now. It changes with a reload, and with what the kernel says.
    pub fn ownership(&self, port: u16) -> Ownership {
        let interfaces = &self.settings().interfaces;
        let here = |interface: &&Interface| interface.port == port;
        let mut ownership = Ownership {
            kernel: interfaces.get(port).is_some_and(|interface| interface.owner == Owner::Kernel),
            vlans: interfaces.iter().filter(here).filter_map(|interface| interface.vlan).collect(),
            ..Ownership::default()
        };
        let vrfs: BTreeSet<u16> = interfaces.iter().filter(here).map(|interface| interface.vrf).collect();
        for vrf in vrfs {
            ownership.kernel_hosts.extend(self.kernel_hosts(vrf));
            for interface in interfaces.iter().filter(|interface| interface.vrf == vrf) {
                let kernels = interface.owner == Owner::Kernel;
                let hosts = match kernels {
                    true => &mut ownership.kernel_hosts,
                    false => &mut ownership.own_hosts,
                };
                hosts.extend(interface.v4.iter().map(|(address, _)| IpAddr::V4(*address)));
                hosts.extend(interface.v6.iter().map(|(address, _)| IpAddr::V6(*address)));
                hosts.extend(interface.link_local.iter().map(|address| IpAddr::V6(*address)));
                // The broadcast address of a link of the kernel's.
                let all = interface.v4.iter().filter(|(_, prefix)| kernels && prefix.len() + 1 < 32);
                hosts.extend(all.map(|(_, prefix)| IpAddr::V4(prefix.last().into())));
            }
        }
        // What both have is ours: where two routes are the same, ours come first.
        let Ownership { kernel_hosts, own_hosts, .. } = &mut ownership;
        kernel_hosts.retain(|host| !own_hosts.contains(host));
        ownership
    }
}
