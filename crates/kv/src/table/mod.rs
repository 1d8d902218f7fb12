//! What a tier remembers: values ([`store`]), and which reply will belong to which key ([`misses`]).

pub mod misses;
pub mod store;
