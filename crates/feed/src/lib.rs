//! Routing tables and updates: read from MRT, text and CSV files, written, compared, replayed at their pace, generated;
//! and live from the Linux kernel.
//!
//! [`load`] gives a [`LoadedTable`]; [`Updates`] iterates over the changes of an update file and [`Pacer`] gives them out
//! when they are due; [`save()`] and [`diff`] are the way back; [`synth`] makes tables that look like the Internet's,
//! and [`shape()`] measures what a table looks like. [`kernel`] follows the kernel's routes, links, addresses and neighbors
//! by netlink. Everything here is control side: it allocates, and it is total on
//! any input - a wrong file is a [`FeedError`] of one line with its place.

#![forbid(unsafe_code)]

pub mod bgp;
pub mod error;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod labels;
mod lines;
mod mrt;
mod pacer;
mod save;
mod shape;
pub mod synth;
pub mod table;
pub mod text;
pub mod updates;

pub use error::FeedError;
pub use labels::{Labels, NextHopName, Numbering};
pub use pacer::{Next, Pace, Pacer};
pub use save::{Difference, SaveFormat, diff, save, write};
pub use shape::{Shape, shape};
pub use table::{
    AnyPrefix, Counts, LabelBy, LoadOptions, LoadedTable, Peer, Synthetic, load, load_all, load_from,
};
pub use updates::{FamilyChange, Update, UpdateOptions, UpdatePeer, Updates};
