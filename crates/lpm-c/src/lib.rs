//! [`tidemill_lpm`] for programs in C: opaque handles, status codes, and no panic across the border. The header is
//! `include/tidemill_lpm.h`, made from [`api`].

pub mod api;
mod guard;
mod handle;
