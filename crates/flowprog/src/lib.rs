//! Flow programs: eBPF that decides about the packets of one flow.
//!
//! A Grantor's decision can install a program instead of a rate: a number and up to 64 bytes of cookie. `init` runs once, when the decision comes; `pkt`
//! runs for every packet of the flow, and says on (with which DSCP, direct or not) or dropped (Gatekeeper: Fu 2020, 4.3.3).
//!
//! ```text
//! ELF object --elf--> instructions --insn--> decoded --verify--> Proof --jit--> machine code (x86-64)
//!                                                          |                         |
//!                                                       refused                 init, packet: (Context, &mut Cookie) -> Ruling
//!                                                   (instruction, why)               |
//!                                                                          interp (any other machine; the specification)
//! ```
//!
//! **Safe on any input.** A program is verified before it runs; [`verify`] states the whole rule set. It runs no loop, calls nothing, reads the context,
//! its packet, its stack and its cookie inside their bounds, writes stack and cookie only, and never sees an address. So it ends, and what it says
//! depends on packet, context and cookie only: a recorded run replays.
//!
//! **Bounded.** A function has 1,024 instructions at most, and each runs once at most. The slowest instruction is a division; as many as fit take 4.4 us
//! (Zen 4; `examples/rate.rs` measures it). Loading takes about a millisecond at most, and an object is 1 MiB at most.
//!
//! **What runs it.** Machine code of our own, and an interpreter in safe Rust; README.md has the numbers. rbpf's JIT is about as fast behind the same verifier, but
//! keeps its code writable and executable at once.
//!
//! **What is trusted**: the verifier, and that machine code does what the interpreter does. The first is held by a fuzz target (what is accepted never
//! trips a check of the interpreter), the second by the same target and by random programs (`tests/differential.rs`).
//!
//! A flow keeps the number of its program and a [`Cookie`]. A [`Program`] is shared by all workers.

#![doc = include_str!("../README.md")]

mod context;
pub mod cookie;
mod elf;
mod error;
mod insn;
mod interp;
#[cfg(all(target_arch = "x86_64", unix))]
mod jit;
mod program;
pub mod shipped;
mod verify;

pub use context::{COOKIE_LEN, Context, Cookie, Fragment};
pub use elf::MAX_OBJECT;
pub use error::{Function, LoadError};
pub use insn::{MAX_SLOTS, SLOT};
pub use program::{Engine, Program, Ruling, Unproven};
