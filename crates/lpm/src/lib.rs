//! Longest-prefix matching: prefixes, the RIB, one folder per FIB structure, and the oracle that they all answer to.
//!
//! A [`Rib`] holds prefixes with their labels; a [`Table`] makes a FIB of it, keeps it up to date, and publishes it to workers,
//! whose lookups take no lock and never wait:
//!
//! ```
//! use tidemill_lpm::{Algorithm, Change, Domain, Label, Rib, Table};
//!
//! let mut rib = Rib::<u32>::new();
//! rib.insert("10.0.0.0/8".parse()?, Label(1));
//! rib.insert("10.1.0.0/16".parse()?, Label(2));
//! let domain = Domain::new();
//! let mut table = Table::new(&domain, rib, &Algorithm::Auto)?;
//!
//! // A worker: any thread, with a view of the table and a reader of its own.
//! let (view, mut reader) = (table.view(), domain.register());
//! let (keys, mut labels) = ([0x0a01_0203, 0x0aff_0000, 0x0b00_0000], [Label::NONE; 3]);
//! view.get(&reader).lookup_batch(&keys, &mut labels);
//! assert_eq!(labels, [Label(2), Label(1), Label::NONE]);
//! reader.quiescent(); // the burst is over: nothing of the table is held
//!
//! // The control side.
//! table.apply(&[Change::Withdraw("10.1.0.0/16".parse()?)])?;
//! assert_eq!(view.get(&reader).lookup(0x0a01_0203), Label(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A worker that sleeps goes `Reader::offline` first, and `Reader::online` before it looks again. For IPv6 the same with `u128`. Programs in C use `tidemill-lpm-c`.

pub mod algorithm;
pub mod auto;
pub mod binarytrie;
mod bits;
pub mod bloomlpm;
pub mod chain;
pub mod copies;
pub mod cuvpp;
pub mod cuvpplengths;
pub mod dir24;
pub mod dxr;
pub mod fib;
#[cfg(target_arch = "x86_64")]
mod gather;
pub mod hashlengths;
pub mod keys;
pub mod lctrie;
pub mod lengthsearch;
pub mod lulea;
pub mod lulea97;
pub mod oracle;
pub mod patricia;
pub mod pbf;
mod pool;
pub mod popdir;
pub mod poptrie;
pub mod prefix;
mod ranges;
pub mod rangetrie;
pub mod rib;
mod runs;
pub mod sail;
pub mod sail6;
pub mod suite;
pub mod table;
pub mod treebitmap;
pub mod twowaytrie;

pub use fib::{BuildError, Built, Fib, FibWriter, Label, Outgrown};
pub use oracle::Oracle;
pub use prefix::{Address, Prefix};
pub use rib::{Change, Rib};
pub use table::{Algorithm, Applied, Family, Table};
pub use tidemill_lookup::numa::Copies;
pub use tidemill_lookup::probe::Probe;
pub use tidemill_lookup::publish::View;
pub use tidemill_lookup::qsbr::{Domain, Epoch, Reader};
