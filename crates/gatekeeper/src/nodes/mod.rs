//! The nodes, one file each; the header comment of a file is the node's manual page.

pub mod decision;
pub mod encapsulate;
pub mod gate;
pub mod path_mtu;
pub mod solicitor;
