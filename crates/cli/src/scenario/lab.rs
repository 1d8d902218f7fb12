//! Network namespaces and cables.
//!
//! ```text
//!  [client] 5.2 --access-- 5.1 [internet: attacks] 7.2 --front-- 7.1 [gatekeeper] 8.1 --back-- 8.2 [grantor] 9.1 ---- 9.2 [server]
//!  all of `client` is here     the kernel routes                     tidemill                  tidemill
//! ```

use super::file::{Net, Network};
use crate::netns::Netns;
use anyhow::Result;
use std::net::IpAddr;

fn address(ns: &Netns, nets: &[Net; 2], host: u32, interface: &str) -> Result<()> {
    for net in nets {
        let nodad = if net.0.is_ipv6() { "nodad" } else { "" };
        ns.run(&format!("ip addr add {}/{} dev {interface} {nodad}", net.host(host), net.1))?;
    }
    Ok(())
}

fn route(ns: &Netns, to: &str, via: IpAddr) -> Result<()> {
    let family = if via.is_ipv6() { "-6" } else { "-4" };
    ns.run(&format!("ip {family} route add {to} via {via}")).map(drop)
}

/// All namespaces, connected.
pub(super) struct Lab {
    pub(super) client: Netns,
    pub(super) internet: Netns,
    pub(super) gate: Netns,
    pub(super) grantor: Netns,
    pub(super) server: Netns,
}

/// The MTU between Gatekeeper and Grantor: outer headers have room.
pub(super) const BACK_MTU: u16 = 1600;

fn cable(a: &Netns, a_name: &str, b: &Netns, b_name: &str, mtu: u16) -> Result<()> {
    let path = b.path();
    a.run(&format!(
        "ip link add name {a_name} mtu {mtu} type veth peer name {b_name} mtu {mtu} netns {path}"
    ))?;
    for (ns, name) in [(a, a_name), (b, b_name)] {
        // Whole packets with whole checksums, as from a real wire.
        ns.run(&format!("ethtool -K {name} tx off sg off tso off gso off gro off"))?;
        ns.run(&format!("ip link set {name} up"))?;
    }
    Ok(())
}

impl Lab {
    pub(super) fn new(network: &Network) -> Result<Lab> {
        let lab = Lab {
            client: Netns::new("client")?,
            internet: Netns::new("internet")?,
            gate: Netns::new("gatekeeper")?,
            grantor: Netns::new("grantor")?,
            server: Netns::new("server")?,
        };
        let Lab { client, internet, gate, grantor, server } = &lab;
        for ns in [client, internet, gate, grantor, server] {
            ns.run("sysctl -qew net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.dad_transmits=0")?;
        }
        cable(client, "eth0", internet, "eth1", 1500)?;
        cable(internet, "eth0", gate, "tm-wan", 1500)?;
        cable(gate, "tm-lan", grantor, "tm-up", BACK_MTU)?;
        cable(grantor, "tm-down", server, "eth0", 1500)?;
        address(client, &network.access, 2, "eth0")?;
        address(internet, &network.access, 1, "eth1")?;
        address(internet, &network.front, 2, "eth0")?;
        address(server, &network.server, 2, "eth0")?;
        internet.run("sysctl -qew net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
        client.run("sysctl -qew net.ipv4.ip_nonlocal_bind=1 net.ipv6.ip_nonlocal_bind=1")?;
        for v6 in [0, 1] {
            let family = ["-4", "-6"][v6];
            let net = network.client[v6];
            client.run(&format!("ip {family} route add local {net} dev lo"))?;
            route(client, "default", network.access[v6].host(1))?;
            route(internet, &net.to_string(), network.access[v6].host(2))?;
            route(internet, &network.server[v6].to_string(), network.front[v6].host(1))?;
            // Answers to those who are not there end here.
            internet.run(&format!("ip {family} route add blackhole default"))?;
            route(server, "default", network.server[v6].host(1))?;
        }
        Ok(lab)
    }
}
