//! The nodes, one file each; the header comment of a file is the node's manual page.

pub mod encapsulate;
