//! What the machine says: who listens on a port, which connections there are, its addresses and subnets. From the kernel's list of sockets, /proc, and `ss`.

use super::diag::{CLOSE_WAIT, ESTABLISHED, LISTEN, SYN_RECV, Transport};
use super::layout::{SCOPE, Tuple};
use super::sockets;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

/// An address as maps have it: 16 bytes, IPv4 mapped.
pub(super) fn words(address: IpAddr) -> [u32; 4] {
    let bytes = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    std::array::from_fn(|i| {
        u32::from_ne_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
    })
}

/// Connections to a port of this machine: all that its program can still read from, and among them those whose handshake is done. The last word of each says what its
/// socket is bound to, where [`Connections::tells`] that.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) alive: HashSet<Tuple>,
    pub(super) open: HashSet<Tuple>,
    /// Sockets that wait for connections.
    pub(super) listening: Vec<u64>,
    /// Of which connections it is told by what their sockets are bound to.
    pub(super) tells: Tells,
}

/// Which connections are told apart by what memcached's socket is bound to. The kernel binds it to the interface where the client's address is a link's alone, and to
/// the VRF that it came by, if any (`tcp_l3mdev_accept`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tells {
    /// It is not known (/proc does not say it).
    #[default]
    Nothing,
    /// There are no VRFs.
    Links,
    All,
}

impl Tells {
    /// The ends of a connection, and what tells it from another one with the same.
    pub(super) fn ends(self, tuple: &Tuple, interface: u32) -> Tuple {
        let mut ends = *tuple;
        ends[SCOPE] = match self {
            Tells::Nothing => 0,
            Tells::Links if !is_link_local(&tuple[..4]) && !is_link_local(&tuple[4..8]) => 0,
            Tells::Links | Tells::All => interface,
        };
        ends
    }
}

fn is_link_local(words: &[u32]) -> bool {
    words[0] & 0xffc0_0000_u32.to_be() == 0xfe80_0000_u32.to_be()
}

/// With VRFs or without.
pub(super) fn connections(port: u16, has_domains: bool) -> Connections {
    let lines = sockets::of_port(Transport::Tcp, port);
    let tells = match has_domains {
        _ if lines.iter().any(|line| line.interface.is_none()) => Tells::Nothing,
        true => Tells::All,
        false => Tells::Links,
    };
    let mut connections = Connections { tells, ..Connections::default() };
    for line in lines {
        if line.state == LISTEN {
            connections.listening.push(line.inode);
        }
        if ![ESTABLISHED, SYN_RECV, CLOSE_WAIT].contains(&line.state) {
            continue;
        }
        let interface = line.interface.unwrap_or(0);
        let ends = tells.ends(&tuple(line.remote, line.local.0, interface), interface);
        connections.alive.insert(ends);
        if line.state != SYN_RECV {
            connections.open.insert(ends);
        }
    }
    connections
}

/// Has the kernel reset the connections to a port of this machine: their clients come again.
pub(super) fn reset(port: u16) -> io::Result<()> {
    let output =
        Command::new("ss").args(["-K", "-H", "-t", "-n"]).arg(format!("sport = :{port}")).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().next() {
        Some(line) => Err(io::Error::other(line.to_owned())),
        None if !output.status.success() => Err(io::Error::other(output.status.to_string())),
        None => Ok(()),
    }
}

pub(super) fn tuple((client, port): ([u32; 4], u16), server: [u32; 4], scope: u32) -> Tuple {
    let [a, b] = port.to_be_bytes();
    let [c, d, e, f] = client;
    let [g, h, i, j] = server;
    [c, d, e, f, g, h, i, j, u32::from_ne_bytes([a, b, 0, 0]), scope]
}

/// Sockets that listen on a port over TCP, and those that are bound to it over UDP.
pub(super) fn listeners(port: u16) -> (Vec<u64>, Vec<u64>) {
    (waiting(port), bound(port))
}

/// Sockets that listen on a port over TCP.
pub(super) fn waiting(port: u16) -> Vec<u64> {
    sockets::waiting(port).into_iter().map(|line| line.inode).collect()
}

/// How many connections to a port have come and are not accepted, those that were reset since among them: who accepts one still reads what it had brought.
pub(super) fn unaccepted(port: u16) -> u32 {
    sockets::waiting(port).iter().fold(0, |all, line| all.saturating_add(line.unread))
}

/// Sockets that are bound to a port over UDP.
pub(super) fn bound(port: u16) -> Vec<u64> {
    sockets::of_port(Transport::Udp, port).into_iter().map(|line| line.inode).collect()
}

/// Whether all of these sockets are a process's.
pub(super) fn holds(pid: u32, inodes: &[u64]) -> bool {
    let held = sockets_of(pid);
    inodes.iter().all(|inode| held.contains(inode))
}

/// The socket at the other end of a connection of ours, if that is on this machine and somebody has it.
pub(super) fn other_end(ours: SocketAddr, theirs: SocketAddr) -> Option<u64> {
    let end = |at: SocketAddr| (words(at.ip()), at.port());
    let lines = sockets::of_port(Transport::Tcp, theirs.port()).into_iter();
    let mut lines = lines.filter(|line| line.local == end(theirs) && line.remote == end(ours));
    // One that nobody has accepted has no number.
    lines.find(|line| line.inode != 0).map(|line| line.inode)
}

/// The processes that hold any of these sockets: their numbers, and when they were started (clock ticks).
pub(super) fn holders(inodes: &[u64]) -> Vec<(u32, u64)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|process| process.file_name().to_str()?.parse().ok());
    let holding = pids.filter(|pid| sockets_of(*pid).iter().any(|inode| inodes.contains(inode)));
    holding.filter_map(|pid| Some((pid, started(pid)?))).collect()
}

/// The sockets of a process.
fn sockets_of(pid: u32) -> HashSet<u64> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
    let inodes = descriptors.flatten().filter_map(|descriptor| {
        let target = fs::read_link(descriptor.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    inodes.collect()
}

fn is_memcached(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().starts_with("memcached")
}

/// The sockets of a process, if that is a memcached by its name: another that passes on what it reads would say by its sockets what it has read, and not what
/// memcached has.
pub(super) fn memcached_sockets(pid: u32) -> HashSet<u64> {
    if is_memcached(pid) { sockets_of(pid) } else { HashSet::new() }
}

/// A memcached that listens by Unix sockets: its number, and their paths.
pub(super) fn memcached_by_unix_sockets() -> Option<(u32, Vec<String>)> {
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let pids = pids.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_memcached(*pid))
        .map(|pid| (pid, unix_sockets(pid)))
        .find(|(_, paths)| !paths.is_empty())
}

/// Other ports that a process listens on over TCP.
pub(super) fn other_ports(pid: u32, port: u16) -> Vec<u16> {
    let held = sockets_of(pid);
    let lines = sockets::of_proc(["tcp", "tcp6"], None).into_iter();
    let others =
        lines.filter(|line| line.state == LISTEN && line.local.1 != port && held.contains(&line.inode));
    let mut ports: Vec<u16> = others.map(|line| line.local.1).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// A flag in the kernel's list of Unix sockets (`__SO_ACCEPTCON`).
const UNIX_LISTENS: u32 = 1 << 16;

/// Unix sockets that a process listens on, by path: what comes there cannot be seen.
pub(super) fn unix_sockets(pid: u32) -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let held = sockets_of(pid);
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (flags, inode, path) = (words.get(3)?, words.get(6)?, words.get(7)?);
            // A connection that is accepted has the path of its listener.
            let listens = u32::from_str_radix(flags, 16).ok()? & UNIX_LISTENS != 0;
            (listens && held.contains(&inode.parse().ok()?)).then(|| (*path).to_owned())
        })
        .collect()
}

fn hex6(text: &str) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(u128::from_str_radix(text, 16).ok()?))
}

/// This machine's own addresses; of IPv6 ones that are an interface's alone (link-local) that interface's number, else 0.
fn addresses() -> Vec<(IpAddr, u32)> {
    let mut addresses = Vec::new();
    let trie = fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let mut last = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL") {
            addresses.extend(last.map(|address| (IpAddr::V4(address), 0)));
        }
    }
    let v6 = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    addresses.extend(v6.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = hex6(words.next()?)?;
        let interface = u32::from_str_radix(words.next()?, 16).ok()?;
        Some((IpAddr::V6(address), if address.is_unicast_link_local() { interface } else { 0 }))
    }));
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Those of this machine's addresses at which these sockets take datagrams for a port; each with the interface that it is taken by, or 0: by any.
pub(super) fn udp_addresses(port: u16, sockets: &[u64]) -> Vec<(IpAddr, u32)> {
    let lines = sockets::of_port(Transport::Udp, port).into_iter();
    let bound: HashSet<[u32; 4]> =
        lines.filter(|line| sockets.contains(&line.inode)).map(|line| line.local.0).collect();
    let any = |address: &IpAddr| match address {
        IpAddr::V4(_) => bound.contains(&words(IpAddr::V4(Ipv4Addr::UNSPECIFIED))),
        IpAddr::V6(_) => bound.contains(&words(IpAddr::V6(Ipv6Addr::UNSPECIFIED))),
    };
    let mut addresses = addresses();
    addresses.retain(|(address, _)| any(address) || bound.contains(&words(*address)));
    addresses
}

/// The subnets of an interface: prefixes and their lengths. Of IPv4 routes without a gateway those are that have one of this machine's addresses in them: neither
/// a route to everywhere is, nor one to other hosts.
pub(super) fn subnets(interface: &str) -> Vec<(IpAddr, u8)> {
    let routes = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let own: Vec<IpAddr> = addresses().into_iter().map(|(address, _)| address).collect();
    let mut subnets = subnets_of(interface, &routes, &v6, &own);
    if interface == "lo" {
        subnets.push((IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8));
        // What this machine sends to its own addresses comes that way too.
        let bits = |address: &IpAddr| if address.is_ipv4() { 32 } else { 128 };
        subnets.extend(own.iter().map(|address| (*address, bits(address))));
    }
    subnets
}

/// The same, by /proc/net/route and if_inet6.
fn subnets_of(interface: &str, routes: &str, v6: &str, own: &[IpAddr]) -> Vec<(IpAddr, u8)> {
    let mut subnets = Vec::new();
    for line in routes.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|text| u32::from_str_radix(text, 16).ok());
        // One without a gateway.
        if words.first() != Some(&interface) || number(2) != Some(0) {
            continue;
        }
        if let (Some(network), Some(mask)) = (number(1), number(7)) {
            // As they lie in memory, printed as this machine's numbers.
            let of = |address: &IpAddr| matches!(address, IpAddr::V4(v4) if u32::from_ne_bytes(v4.octets()) & mask == network);
            if own.iter().any(of) {
                let address = Ipv4Addr::from(network.to_ne_bytes());
                subnets.push((IpAddr::V4(address), mask.count_ones() as u8));
            }
        }
    }
    for line in v6.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let length = words.get(2).and_then(|text| u8::from_str_radix(text, 16).ok());
        if words.last() == Some(&interface)
            && let (Some(address), Some(length)) = (words.first().and_then(|text| hex6(text)), length)
        {
            subnets.push((IpAddr::V6(address), length));
        }
    }
    subnets.retain(|(_, length)| *length > 0);
    subnets
}

/// The interfaces that a bond is made of; of another interface none.
pub(super) fn members(interface: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/thread-self/net/bonding/{interface}")).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.strip_prefix("Slave Interface: ")?.trim().to_owned())).collect()
}

/// Interfaces that there are.
pub(super) fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_connections_apart() {
        let of = |client: &str, interface| {
            let client = client.parse().unwrap_or_else(|_| panic!("{client}"));
            tuple((words(client), 7), words(IpAddr::from([10, 0, 0, 1])), interface)
        };
        let (plain, local) = (of("10.0.0.2", 5), of("fe80::1", 5));
        let told = |tells: Tells| [&plain, &local].map(|tuple| tells.ends(tuple, 3)[SCOPE]);
        assert_eq!((told(Tells::Nothing), told(Tells::Links), told(Tells::All)), ([0, 0], [0, 3], [3, 3]));
        assert_eq!(Tells::Links.ends(&local, 3)[..SCOPE], local[..SCOPE]);
    }

    #[test]
    fn routes_to_everywhere_and_to_other_hosts_are_no_subnets() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            wg0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0100420A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
            eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let v6 = "fd000009000000000000000000000001 02 40 00 80     eth0\n";
        let own = [IpAddr::from([10, 0, 0, 7]), IpAddr::from([127, 0, 0, 1])];
        assert_eq!(subnets_of("wg0", routes, v6, &own), []);
        let eth0 =
            [(IpAddr::from([10, 0, 0, 0]), 24), (IpAddr::V6(Ipv6Addr::from(0xfd00_0009 << 96 | 1)), 64)];
        assert_eq!(subnets_of("eth0", routes, v6, &own), eth0);
    }
}
