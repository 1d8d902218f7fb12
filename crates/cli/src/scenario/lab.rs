//! Network namespaces and cables.
//!
//! ```text
//!  [client] 5.2 --access-- 5.1 [internet: attacks] 7.2 --front-- 7.1 [gatekeeper] 8.1 --back-- 8.2 [grantor] 9.1 ---- 9.2 [server]
//!  all of `client` is here     the kernel routes                     tidemill                  tidemill
//! ```
//!
//! A namespace has no name: it lives as long as a file descriptor names it, so nothing is left behind, however the scenario ends.

use super::file::{Net, Network};
use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

/// A network namespace.
pub(super) struct Netns {
    name: &'static str,
    file: File,
}

impl Netns {
    fn new(name: &'static str) -> Result<Self> {
        // A helper makes it, and stays until we have it open.
        let mut helper = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("unshare (package util-linux)")?;
        let mut line = String::new();
        let read = helper.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let file = File::open(format!("/proc/{}/ns/net", helper.id()));
        drop(helper.stdin.take());
        helper.wait()?;
        if !matches!(read, Some(Ok(1))) {
            bail!("no network namespace can be made: a scenario needs root");
        }
        let own = Netns { name, file: file.context("the new network namespace")? };
        own.run("ip link set lo up")?;
        Ok(own)
    }

    /// As a path that programs take for a namespace.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Does something on a thread inside.
    pub(super) fn enter<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R> {
        let inside = || -> std::io::Result<R> {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(act())
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        let done = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.with_context(|| format!("namespace {}", self.name))
    }

    /// It, for [`move_in`].
    pub(super) fn descriptor(&self) -> Result<File> {
        self.file.try_clone().with_context(|| format!("namespace {}", self.name))
    }

    /// Runs a command without spaces in its words.
    pub(super) fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        let output = self.enter(|| command.output())?.with_context(|| line.to_owned())?;
        if !output.status.success() {
            bail!("in {}: {line}: {}", self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(super) fn udp(&self, address: IpAddr, port: u16) -> Result<UdpSocket> {
        let at = SocketAddr::new(address, port);
        self.enter(|| UdpSocket::bind(at))?.with_context(|| format!("{}: {at}", self.name))
    }

    /// The number and the MAC address of an interface.
    pub(super) fn device(&self, interface: &str) -> Result<(u32, [u8; 6])> {
        let device = self.enter(|| tidemill_port::device(interface))??;
        Ok((device.index, device.mac.0))
    }

    fn address(&self, nets: &[Net; 2], host: u32, interface: &str) -> Result<()> {
        for net in nets {
            let nodad = if net.0.is_ipv6() { "nodad" } else { "" };
            self.run(&format!("ip addr add {}/{} dev {interface} {nodad}", net.host(host), net.1))?;
        }
        Ok(())
    }

    fn route(&self, to: &str, via: IpAddr) -> Result<()> {
        let family = if via.is_ipv6() { "-6" } else { "-4" };
        self.run(&format!("ip {family} route add {to} via {via}")).map(drop)
    }
}

/// Moves the calling thread into a namespace, for good.
pub(super) fn move_in(inside: &File) -> Result<()> {
    move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network)).context("a network namespace")
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
        client.address(&network.access, 2, "eth0")?;
        internet.address(&network.access, 1, "eth1")?;
        internet.address(&network.front, 2, "eth0")?;
        server.address(&network.server, 2, "eth0")?;
        internet.run("sysctl -qew net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
        client.run("sysctl -qew net.ipv4.ip_nonlocal_bind=1 net.ipv6.ip_nonlocal_bind=1")?;
        for v6 in [0, 1] {
            let family = ["-4", "-6"][v6];
            let net = network.client[v6];
            client.run(&format!("ip {family} route add local {net} dev lo"))?;
            client.route("default", network.access[v6].host(1))?;
            internet.route(&net.to_string(), network.access[v6].host(2))?;
            internet.route(&network.server[v6].to_string(), network.front[v6].host(1))?;
            // Answers to those who are not there end here.
            internet.run(&format!("ip {family} route add blackhole default"))?;
            server.route("default", network.server[v6].host(1))?;
        }
        Ok(lab)
    }
}
