//! What the program has counted.

use super::devices::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_bpf::Object;

/// Numbers of a port in the map `counts`, and in `sent`.
const COUNTS: usize = 16;
const SENT: usize = 2;

/// Why the program leaves a packet to the router, in the order of its numbers from 2 on. The last one: somebody judges it, or what he goes by has just changed.
pub const PORT_REASONS: [&str; 12] = [
    "not-ip",
    "not-ours",
    "malformed",
    "options",
    "ttl",
    "special-address",
    "checksum-unfinished",
    "no-route",
    "next-hop",
    "too-big",
    "no-device",
    "gate",
];

/// Reasons among them for which a packet never was one to be forwarded without a second look: it is no packet of IP, or not to us, or for somebody to judge.
pub const NO_PART: [&str; 4] = ["not-ip", "not-ours", "malformed", "gate"];

/// What became of what came in by a port, and what left by it, since the start. `frames = forwarded + left in all`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// The port's name.
    pub port: String,
    /// Packets that came in by it and were forwarded by the program.
    pub forwarded: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Packets that were left to the router, by [`PORT_REASONS`].
    pub left: [u64; PORT_REASONS.len()],
    /// Packets that the program has sent by this port: redirected to its device, which may still drop them when it is overrun.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// The program's counters, for whoever reads them; also when it is on no interface any more.
#[derive(Clone)]
pub struct Account {
    object: Arc<Mutex<Object>>,
    names: Vec<(u32, String)>,
    flips: Arc<AtomicU64>,
    bytes: u64,
}

impl Account {
    pub(super) fn new(
        object: Arc<Mutex<Object>>,
        names: Vec<(u32, String)>,
        flips: Arc<AtomicU64>,
        bytes: u64,
    ) -> Self {
        Account { object, names, flips, bytes }
    }

    /// Of each port. What the system does not tell is missing.
    pub fn ports(&self) -> Vec<PortCounters> {
        let object = lock(&self.object);
        let one = |(number, name): &(u32, String)| {
            let counts = object.sums::<COUNTS>("counts", *number).ok()?;
            let [sent, sent_bytes] = object.sums::<SENT>("sent", *number).ok()?;
            let [forwarded, bytes, ..] = counts;
            let left = std::array::from_fn(|reason| counts[reason + 2]);
            Some(PortCounters { port: name.clone(), forwarded, bytes, left, sent, sent_bytes })
        };
        self.names.iter().filter_map(one).collect()
    }

    /// Generations that have come into force.
    pub fn generations(&self) -> u64 {
        self.flips.load(Ordering::Relaxed)
    }

    /// Memory of the images in the kernel.
    pub fn image_bytes(&self) -> u64 {
        self.bytes
    }
}
