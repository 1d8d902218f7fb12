//! Packet memory, packets, bursts, and the registry of drop reasons.
//!
//! ```text
//! Memory (one region of huge pages per NUMA node; registered as UMEM by every AF_XDP port)
//! +---------------- frame 0 ----------------+---------------- frame 1 ------
//! | cold 64 B | headroom 192 B | data ...    | cold | headroom | data ...
//! +-----------+----------------+-------------+------
//!   ^ timestamp, wire length, trace id       ^ index * frame_size
//!
//! Pool  = a worker's share of the frames: a local free stack, and a return ring for frames freed elsewhere
//! Packet = owner of one frame: pool + address, where the data lies, and what the nodes have found out (32 bytes, moves)
//! Burst = up to 256 packets
//! Lent  = the packets whose frames a device has now, by address
//! ```
//!
//! A packet has one owner and moves. A worker gives frames back in bulk with [`Pool::free`]; a packet that is merely
//! dropped finds its own way home through the pool's return ring, from any thread, and is counted as *unnamed*,
//! because every drop should have been counted under a [`DropReason`] first.

mod burst;
mod drop_reason;
mod lent;
mod memory;

pub use burst::{BURST, Burst};
pub use drop_reason::{DropCounts, DropReason};
pub use lent::{Arrived, Lent};
pub use memory::{COLD, DATA_START, DeviceClosed, Memory, Merged, Packet, Pool, PoolStats};
