//! What is known of a flow, and what its packets and decisions do to it.
//!
//! A flow is a pair of addresses, source and destination. It is in one of the states of Fu 2020, figure 4.3 (section 4.4.1); the letters
//! are those of the figure. BPF is here called Program: (c) leads there, (g) is its renewal, (h) its end.
//!
//! ```text
//!                      (a) a Grantor grants            (d) renewed: granted again
//!            +----------------------------> Granted <----+
//!            |                               |  |        |
//!   new --> Request <-----(e) it expires-----+  +--------+
//!            |   ^
//!            |   +--------(f) it expires-----+
//!            |                               |
//!            +----------------------------> Declined
//!                      (b) a Grantor declines
//! ```
//!
//! * Nothing waits for an expiry: a flow whose time is over is found to be so by its next packet, by who [shows](FlowState::show) it, and by
//!   what takes it out of the table ([`FlowState::reclaimable`]). Whenever that is, the flow is then as new.
//! * The last decision counts. One that comes for a granted or a declined flow replaces the one before it, whatever that said.
//! * One flow is 24 bytes ([`state`]), and a packet changes one or two words of them.

pub mod priority;
pub mod state;

pub use state::{Act, FlowState, Installed, Shown};
