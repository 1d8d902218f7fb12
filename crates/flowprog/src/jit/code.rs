//! Memory that holds machine code, and the one call into it. It is written, then made executable and no longer writable: never both.
//!
//! This module is one of the named homes of `unsafe`.

use super::compile;
use crate::context::{Context, Cookie};
use crate::insn::Insn;
use crate::verify::Proof;
use memmap2::{Mmap, MmapMut};
use std::io;

type Entry = unsafe extern "sysv64" fn(*const Context<'static>, *mut Cookie) -> u64;

/// A function that was decoded, and what is known of it.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) insns: Vec<Insn>,
    pub(crate) proof: Proof,
}

/// Both functions of a program.
#[derive(Debug)]
pub(crate) struct Code {
    init: Entry,
    pkt: Entry,
    /// What the two lead into.
    _map: Mmap,
}

impl Code {
    /// Translates both functions. The proofs must be those of the instructions.
    ///
    /// # Errors
    /// What the kernel says; it may forbid executable memory.
    pub(crate) fn new(init: &Verified, pkt: &Verified) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let init = compile(&init.insns, &init.proof, &mut bytes);
        let pkt = compile(&pkt.insns, &pkt.proof, &mut bytes);
        let mut map = MmapMut::map_anon(bytes.len())?;
        map[..bytes.len()].copy_from_slice(&bytes);
        let map = map.make_exec()?;
        let entry = |at: usize| {
            let code: *const u8 = map[at..].as_ptr();
            // SAFETY: at `at` begins a function of that calling convention, which `compile` has written; the mapping is executable, and lives
            // and stays as it is as long as `Code`, which does not give the pointer out.
            unsafe { std::mem::transmute::<*const u8, Entry>(code) }
        };
        Ok(Code { init: entry(init), pkt: entry(pkt), _map: map })
    }

    #[inline(always)]
    pub(crate) fn init(&self, context: &Context<'_>, cookie: &mut Cookie) -> u64 {
        // SAFETY: as for `pkt`.
        unsafe { (self.init)(std::ptr::from_ref(context).cast(), cookie) }
    }

    #[inline(always)]
    pub(crate) fn pkt(&self, context: &Context<'_>, cookie: &mut Cookie) -> u64 {
        // SAFETY: the verifier has shown that the function, given a context and a cookie, reads the context's first 56 bytes, the packet between its
        // pointers (which are those of a slice that the context borrows), its own stack and the cookie only, writes the last two only,
        // and ends. The cookie is borrowed alone. Registers that the caller needs are saved.
        unsafe { (self.pkt)(std::ptr::from_ref(context).cast(), cookie) }
    }
}
