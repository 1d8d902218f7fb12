//! What tests of the cache share: a client of its own making, a lab, and a checker of histories.
//!
//! - [`wire`]: memcached's protocols, small and plain, nothing of the library's. [`client`]: sockets.
//! - [`lab`]: namespaces with two memcacheds, one with the cache in front. [`pair`]: the same bytes to both, replies compared.
//!   [`segments`]: TCP by hand, for what a kernel would not send. [`proxy`]: a cache that is stale, so that tests are seen to fail.
//! - [`actor`], [`random`]: clients that do anything at any time. [`history`], [`checker`]: whether what they saw can be.

// Two suites use this, and neither all of it.
#![allow(dead_code)]

pub(crate) mod actor;
pub(crate) mod cache;
pub(crate) mod checker;
pub(crate) mod client;
pub(crate) mod history;
pub(crate) mod lab;
pub(crate) mod pair;
pub(crate) mod proxy;
pub(crate) mod random;
pub(crate) mod segments;
pub(crate) mod wire;
