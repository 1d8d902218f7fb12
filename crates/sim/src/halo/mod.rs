//! HALO (Yuan, Wang, Wang, Huang: "HALO: Accelerating Flow Classification for Scalable Packet Processing in NFV", ISCA 2019): an accelerator for hash-table
//! lookups at every slice of the last-level cache.
//!
//! ```text
//! core: LOOKUP_B / LOOKUP_NB (key, table, result)
//!   -> distributor: hash of the table's address -> slice; waits while its busy bit is set
//!     -> accelerator   scoreboard: 10 queries
//!                      metadata cache: 10 tables      key <- LLC
//!                      mask, hash (pipelined)         lock both buckets
//!                      bucket <- LLC, compare         entry <- LLC, lock, compare        other bucket likewise
//!       -> LOOKUP_B: to the core.  LOOKUP_NB: into the line of results, which SNAPSHOT_READ looks at
//! ```
//!
//! * [`accelerator`]: the units, and what a query takes; [`register`]: the flow register and the hybrid mode; [`race`]: why buckets are locked.
//! * [`energy`]: activity times energy, area; [`tcam`]: what it is compared with.
//!
//! Which lines a query touches is told by the table's own lookup, through the probe: the accelerator does the same
//! search with other means. What the paper leaves open is said where it is decided.

pub mod accelerator;
pub mod energy;
pub mod race;
pub mod register;
pub mod tcam;

pub use accelerator::{Accelerators, Answer, Destination, Query};
