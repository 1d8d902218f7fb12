//! What every lookup structure stands on, and nothing that knows packets.
//!
//! * [`mem`]: zeroed, prefaulted memory on huge pages where the machine has them.
//! * [`numa`]: memory nodes, and which worker reads which copy of what is published.
//! * [`qsbr`]: quiescent-state-based reclamation: workers report at burst boundaries, the control side learns when
//!   nobody can still see what it replaced.
//! * [`publish`]: a root that readers load without lock, retry or fence, replaced whole by one writer.
//! * [`prefetch`]: the cache hint, safe on any address.
//! * [`drive`]: how lookups hide memory latency: in lock step (group prefetching), as coroutines.
//! * [`probe`]: the recorder that lookups and updates are generic over.
//! * [`cache`]: a small cache model that a probe feeds.
//! * [`cycles`]: the CPU's time stamp counter, to measure with.
//! * [`gather`]: random loads by gather instructions, to measure what a machine can do at best.
//! * [`hash`]: the hash functions that published tables were built with.
//! * [`image`]: index-only, versioned, checksummed table bytes.

pub mod cache;
pub mod cycles;
pub mod drive;
pub mod gather;
pub mod hash;
pub mod image;
pub mod mem;
pub mod numa;
pub mod prefetch;
pub mod probe;
pub mod publish;
pub mod qsbr;
