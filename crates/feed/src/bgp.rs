//! What BGP messages are made of, wherever they come from: MRT files (this crate) or sessions (`tidemill-bgp`). Numbers,
//! addresses, prefixes, and the families and next hops of multiprotocol attributes are read here only.

pub use crate::mrt::attributes::{mp_family, mp_next_hop};
pub use crate::mrt::{Cursor, Family, Fault};
