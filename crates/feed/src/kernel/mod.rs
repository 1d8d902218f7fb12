//! Routes, links, addresses and neighbors live from the Linux kernel (rtnetlink, RFC 3549).
//!
//! [`KernelFeed`] listens on one non-blocking netlink socket of the network namespace that it was opened in. It mirrors
//! what the kernel has ([`Mirror`]) and gives out changes as [`KernelEvent`]s: the best path of a prefix in a table,
//! never the messages themselves. What the kernel does without telling is read again: after a lost message, and after a
//! link went down or away, it dumps everything again and reports the difference alone, so that a route that stayed does
//! not flap.
//!
//! Which path of a prefix is the best: the lowest metric whose hops live; among equal metrics the first, as in the
//! kernel. A hop lives while its link is administratively up and has a carrier (the kernel's own rule with
//! `ignore_routes_with_linkdown=1`). Nexthop objects (`ip nexthop`, used by FRR) are resolved. Left out are
//! what no table of destinations can hold: routes for one TOS, with a source prefix, of the route cache, and broadcast,
//! multicast and anycast routes.
//!
//! The decoder is our own on `netlink-packet-core`: `netlink-packet-route` gives up on a whole message when one
//! attribute surprises it, knows no nexthop objects, and allocates per attribute. The tests hold the two together.

pub mod decode;
mod feed;
mod intern;
mod mirror;
mod paths;
mod routes;
mod slot;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use feed::KernelFeed;
pub use mirror::Mirror;

use crate::table::AnyPrefix;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The kernel's `main` table (`RT_TABLE_MAIN`), where routes without a table are.
pub const MAIN_TABLE: u32 = 254;

/// What to listen to, and how.
#[derive(Debug, Clone)]
pub struct KernelOptions {
    /// The routing tables of interest, by the kernel's number.
    pub tables: Vec<u32>,
    /// Bytes of kernel memory in which unread messages wait. About a thousand bytes per message; when it is full,
    /// messages are lost, and everything is read again.
    pub receive_buffer: usize,
    /// The most datagrams that one [`KernelFeed::poll`] reads; one holds up to 32 KiB, some 400 routes.
    pub datagrams_per_poll: usize,
}

impl Default for KernelOptions {
    fn default() -> Self {
        KernelOptions { tables: vec![MAIN_TABLE], receive_buffer: 64 << 20, datagrams_per_poll: 64 }
    }
}

/// One change of what the kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEvent {
    /// The best path of a prefix in a table is another.
    Route {
        /// The kernel's number of the table.
        table: u32,
        /// The destination.
        prefix: AnyPrefix,
        /// The path; `None` is a withdrawn route. Equal paths share one allocation.
        path: Option<Arc<KernelPath>>,
    },
    /// A link is new, changed or removed.
    Link {
        /// The interface index.
        index: u32,
        /// The name, without anything that is not UTF-8.
        name: String,
        /// The hardware address, where it has six bytes.
        mac: Option<[u8; 6]>,
        /// The MTU in bytes.
        mtu: u32,
        /// Administratively up, and with a carrier.
        up: bool,
        /// It is gone (or moved to another namespace); the other fields are the last ones.
        removed: bool,
    },
    /// An address of a link is usable, or no longer. An IPv6 address is while duplicate detection has not failed or is
    /// not under way (RFC 4862, 5.4).
    Address {
        /// The interface index.
        index: u32,
        /// The address itself (not a point-to-point peer's).
        address: IpAddr,
        /// The prefix length of its subnet.
        prefix_len: u8,
        /// It is gone.
        removed: bool,
    },
    /// What the kernel's neighbor table says of an address changed.
    Neighbor {
        /// The interface index.
        index: u32,
        /// The neighbor.
        address: IpAddr,
        /// Its hardware address, where the kernel holds one to be good (reachable, permanent, stale, delay, probe) and
        /// it has six bytes.
        mac: Option<[u8; 6]>,
        /// Whether `mac` was confirmed lately or is set by hand (`NUD_REACHABLE`, `NUD_PERMANENT`).
        reachable: bool,
    },
    /// The first dump, or a later one, is complete: the events so far make up what the kernel has.
    InSync,
}

/// Where packets of a route go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelPath {
    /// To one hop, or to one of several by weight. Never empty; in order, so that equal sets are equal.
    Via(Vec<Hop>),
    /// Dropped silently.
    Blackhole,
    /// Dropped with an ICMP "host unreachable".
    Unreachable,
    /// Dropped with an ICMP "communication administratively prohibited".
    Prohibit,
    /// Delivered to this machine.
    Local,
    /// Something that only the kernel can do: a tunnel's encapsulation on a hop, or `throw` (go on in the next table).
    Unsupported,
}

/// One next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The outgoing interface's index.
    pub index: u32,
    /// The gateway; `None`: the destination is on the link. An IPv4 route may have an IPv6 gateway (RFC 8950).
    pub gateway: Option<IpAddr>,
    /// Relative share, at least 1.
    pub weight: u32,
}

/// What one [`KernelFeed::poll`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Netlink messages read.
    pub messages: u64,
    /// There may be more to read at once: the call stopped at its limit of datagrams.
    pub more: bool,
    /// A dump is under way or due: between the start or a loss and the next [`KernelEvent::InSync`].
    pub syncing: bool,
}

/// Counters since the feed was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelStats {
    /// Netlink messages read.
    pub messages: u64,
    /// Times the kernel said that it lost messages (`ENOBUFS`), and datagrams larger than our buffer.
    pub overruns: u64,
    /// Dumps of everything that were completed after the first one.
    pub resyncs: u64,
    /// Dumps that were repeated because the kernel changed under them.
    pub repeated_dumps: u64,
    /// Messages that could not be decoded; nothing else was lost with them.
    pub undecodable: u64,
    /// The last of them: message type, what is wrong.
    pub last_undecodable: Option<(u16, &'static str)>,
    /// Route messages left out: see the module's description.
    pub ignored: u64,
    /// Prefixes in the mirror, IPv4, all tables.
    pub routes_v4: u64,
    /// Prefixes in the mirror, IPv6, all tables.
    pub routes_v6: u64,
    /// How long the last complete dump took, from its start.
    pub last_sync: Option<Duration>,
    /// Bytes of kernel memory for unread messages, as the kernel granted them.
    pub receive_buffer: usize,
}

/// Why there is no feed, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A system call on the netlink socket failed.
    #[error("netlink: cannot {what}: {source}")]
    Socket {
        /// What was to be done.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The kernel refuses a dump.
    #[error("netlink: the kernel refuses to dump its {what}: {source}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}
