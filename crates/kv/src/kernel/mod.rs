//! The cache in the kernel: programs at XDP and TC (bpf/kv.bpf.c), and the daemon that admits what they serve.
//!
//! What it is, what it costs, and why nothing stale is served: crates/kv/KERNEL.md. Linux 6.1, x86-64; as root, or with `cap_net_admin`,
//! `cap_bpf`, `cap_perfmon` and the right to look at memcached's process.

mod allow;
mod ask;
mod budget;
mod cache;
mod diag;
mod layout;
mod look;
mod machine;
mod netlink;
mod places;
mod prove;
mod reconcile;
mod scopes;
mod server;
mod sizes;
mod sockets;
mod state;
mod unseen;
mod values;

pub use cache::{Cache, Daemon};
pub use layout::COUNTS;
pub use look::{Blind, Command, Holding, Look, detach};
pub use tidemill_bpf::{Mode, Verdict};
pub use values::Hot;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tidemill_bpf::{BpfError, Pins};

/// Where the cache stands and how it works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Interfaces that clients come by.
    pub interfaces: Vec<String>,
    /// memcached's port, TCP and UDP.
    pub port: u16,
    /// Where the daemon asks it.
    pub memcached: SocketAddr,
    /// Bytes for values.
    pub memory: u64,
    /// Sources that may be answered, by whichever of the interfaces; none: on each interface its own subnets.
    pub allow: Vec<(IpAddr, u8)>,
    /// Longest value that is kept, bytes; at most 1,024.
    pub value_max: usize,
    /// Hot keys that are asked for now and then, so that memcached keeps them; 0: none.
    pub refresh: u32,
    /// How often.
    pub refresh_every: Duration,
    /// Answers a second for one source (an IPv4 address, or the /64 of an IPv6 one); 0: no limit.
    pub rate: u64,
    /// Answers a second for all sources together; 0: no limit.
    pub rate_total: u64,
    /// How long after its arrival memcached may still execute a datagram, or what a broken connection has brought.
    pub settle: Duration,
    /// TCP connections at once.
    pub connections: u32,
    /// Have the kernel reset the connections that are there before (`ss -K`): else nothing is served until they end.
    pub reset_connections: bool,
    /// Where in the kernel the program on what comes in runs. `Auto`: in the driver where it can, but not on a virtual cable, where what the driver sends back arrives only if the
    /// other end has an XDP program too; `Native`: there too. `lo`, which has no driver, is the same in all of them.
    pub mode: Mode,
    /// Under which name programs and maps are pinned.
    pub name: String,
    /// Where names are.
    pub pin_root: PathBuf,
    /// Of the hash.
    pub seed: u64,
}

impl Options {
    /// On these interfaces, in front of port 11211 of this machine, with 64 MiB.
    pub fn new(interfaces: &[&str], seed: u64) -> Self {
        Options {
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            port: 11211,
            memcached: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 11211),
            memory: 64 << 20,
            allow: Vec::new(),
            value_max: 1024,
            refresh: 0,
            refresh_every: Duration::from_secs(60),
            rate: 100_000,
            rate_total: 1_000_000,
            settle: Duration::from_secs(3),
            connections: 16384,
            reset_connections: false,
            mode: Mode::Auto,
            name: "kv".to_owned(),
            pin_root: Pins::ROOT.into(),
            seed,
        }
    }
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// A program could not be loaded, attached, pinned, read or written.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// It cannot be, for a reason that can be named.
    #[error("{0}")]
    Refused(String),
}
