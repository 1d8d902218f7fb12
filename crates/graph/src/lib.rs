//! The packet's flow: ports hand bursts to a graph of nodes, nodes give every packet a verdict, the graph carries the
//! verdicts out and counts them.
//!
//! ```text
//!            +-- worker 0 (one thread, one core) ----------------------------------+
//!  port rx --|-> queue -> node -> verdicts --Next(edge)--> queue -> node ... ----- |--> port tx
//!            |                            \--Drop(reason)-> counted, frame freed   |
//!            |                            \--Consume / Keep (the node's own)       |
//!            +---- burst boundary: quiescent, counters shown, control events ------+
//! ```
//!
//! Every worker owns an instance of each node, its queue of each port, and its pool: nothing on the path is shared but
//! published tables. The books always balance: `in + made = out + dropped + consumed + held`.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod capture;
pub mod clock;
pub mod counters;
pub mod engine;
pub mod graph;
mod last;
pub mod node;
pub mod record;
pub mod replay;
pub mod tally;
pub mod trace;
mod watch;
mod worker;

pub use capture::{Capture, Captured};
pub use clock::Clock;
pub use counters::{Ledger, Snapshot};
pub use engine::{
    Engine, EngineError, Fate, Handle, Idle, Limits, Observer, Options, Outcome, Placement, Seat, Unbound,
    allowed_cpus, check_stages, stages_of,
};
pub use graph::{Graph, GraphBuilder, GraphError};
pub use node::{Context, Node, Verdict};
pub use tidemill_port::Waker;
