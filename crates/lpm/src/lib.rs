//! Longest-prefix matching: prefixes, the RIB, one folder per FIB structure, and the oracle that they all answer to.

pub mod auto;
pub mod dxr;
pub mod fib;
pub mod keys;
pub mod lulea;
pub mod oracle;
pub mod poptrie;
pub mod popdir;
pub mod prefix;
pub mod rangetrie;
pub mod rib;
pub mod suite;
pub mod table;

pub use fib::{BuildError, Fib, FibWriter, Label, Outgrown};
pub use oracle::Oracle;
pub use prefix::{Address, Prefix};
pub use rib::{Change, Rib};
pub use table::{Algorithm, Applied, Family, Table};
