//! What every lookup structure stands on, and nothing that knows packets.
//!
//! * [`mem`]: zeroed, prefaulted memory on huge pages where the machine has them.
//! * [`qsbr`]: quiescent-state-based reclamation: workers report at burst boundaries, the control side learns when
//!   nobody can still see what it replaced.
//! * [`publish`]: a root that readers load without lock, retry or fence, replaced whole by one writer.
//! * [`prefetch`]: the cache hint, safe on any address.
//! * [`probe`]: the recorder that lookups are generic over, and the small cache model behind it.
//! * [`image`]: index-only, versioned, checksummed table bytes.

pub mod mem;
pub mod publish;
pub mod qsbr;
