//! A program: loaded, verified, ready to run.

use crate::context::{Context, Cookie};
use crate::elf;
use crate::error::{Function, LoadError};
use crate::insn::{Insn, decode};
use crate::interp;
#[cfg(all(target_arch = "x86_64", unix))]
use crate::jit::code::{Code, Verified};
use crate::verify::{Proof, verify};

/// What a program says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// Dropped.
    Declined,
    /// Dropped: more than the flow is granted.
    OverRate,
    /// On, with DSCP 1.
    Granted {
        /// To the destination itself, not by way of the Grantor.
        direct: bool,
    },
    /// On, by way of the Grantor, with DSCP 2: it is time for the next decision.
    Renew,
    /// To the Grantor, as a request.
    Request {
        /// 3 to 63.
        dscp: u8,
    },
    /// Dropped: the program has said something that means nothing. To be counted.
    Fault,
}

impl Ruling {
    /// The value that stands for an over-rate packet.
    const OVER_RATE: u64 = 64;
    const DIRECT: u64 = 256;

    /// What a value of r0 means.
    #[inline(always)]
    pub fn of(value: u64) -> Self {
        const GRANTED_DIRECT: u64 = Ruling::DIRECT | 1;
        match value {
            0 => Ruling::Declined,
            1 => Ruling::Granted { direct: false },
            2 => Ruling::Renew,
            3..=63 => Ruling::Request { dscp: value as u8 },
            Ruling::OVER_RATE => Ruling::OverRate,
            GRANTED_DIRECT => Ruling::Granted { direct: true },
            _ => Ruling::Fault,
        }
    }
}

/// What runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Machine code.
    Jit,
    /// The interpreter: another CPU, or a system that forbids executable memory.
    Interpreter,
}

/// What the interpreter does not do: an access that the verifier has not proven. There is no such program as far as we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("instruction {0} was accepted, and is not safe")]
pub struct Unproven(pub usize);

/// A program that is known to be safe. Workers share it: it keeps nothing between runs.
#[derive(Debug)]
pub struct Program {
    name: String,
    init: Vec<Insn>,
    pkt: Vec<Insn>,
    #[cfg(all(target_arch = "x86_64", unix))]
    code: Option<Code>,
}

impl Program {
    /// From an ELF object with the sections `init` and `pkt`. The name is for messages.
    ///
    /// # Errors
    /// An object that is none, or a function that is not known to be safe, each with its place.
    pub fn load(object: &[u8], name: &str) -> Result<Self, LoadError> {
        let parts = elf::parts(object, name)?;
        Program::from_code(parts.init, parts.pkt, name)
    }

    /// From the bytes of both functions' instructions.
    ///
    /// # Errors
    /// A function that is not known to be safe.
    pub fn from_code(init: &[u8], pkt: &[u8], name: &str) -> Result<Self, LoadError> {
        let known = |function, code: &[u8]| -> Result<(Vec<Insn>, Proof), LoadError> {
            let refused = |refusal| LoadError::refused(name, function, refusal);
            let insns = decode(code).map_err(refused)?;
            let proof = verify(&insns).map_err(refused)?;
            Ok((insns, proof))
        };
        let init = known(Function::Init, init)?;
        let pkt = known(Function::Pkt, pkt)?;
        Ok(Program::new(name, init, pkt))
    }

    #[cfg(all(target_arch = "x86_64", unix))]
    fn new(name: &str, init: (Vec<Insn>, Proof), pkt: (Vec<Insn>, Proof)) -> Self {
        let init = Verified { insns: init.0, proof: init.1 };
        let pkt = Verified { insns: pkt.0, proof: pkt.1 };
        let code = Code::new(&init, &pkt).ok();
        Program { name: name.into(), init: init.insns, pkt: pkt.insns, code }
    }

    #[cfg(not(all(target_arch = "x86_64", unix)))]
    fn new(name: &str, init: (Vec<Insn>, Proof), pkt: (Vec<Insn>, Proof)) -> Self {
        Program { name: name.into(), init: init.0, pkt: pkt.0 }
    }

    /// The same without machine code.
    #[must_use]
    pub fn interpreted(mut self) -> Self {
        #[cfg(all(target_arch = "x86_64", unix))]
        {
            self.code = None;
        }
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What runs it.
    pub fn engine(&self) -> Engine {
        #[cfg(all(target_arch = "x86_64", unix))]
        if self.code.is_some() {
            return Engine::Jit;
        }
        Engine::Interpreter
    }

    /// Instructions of a function: no run takes more.
    pub fn instructions(&self, function: Function) -> usize {
        self.insns(function).len()
    }

    fn insns(&self, function: Function) -> &[Insn] {
        match function {
            Function::Init => &self.init,
            Function::Pkt => &self.pkt,
        }
    }

    /// A decision has brought the program to a flow, with this cookie. Whether the program takes it; if not, the flow is to be declined.
    #[inline]
    #[must_use]
    pub fn init(&self, context: &Context<'_>, cookie: &mut Cookie) -> bool {
        #[cfg(all(target_arch = "x86_64", unix))]
        if let Some(code) = &self.code {
            return code.init(context, cookie) == 0;
        }
        self.interpret(Function::Init, context, cookie) == Ok(0)
    }

    /// What becomes of a packet of the flow. Allocates nothing and ends.
    #[inline]
    pub fn packet(&self, context: &Context<'_>, cookie: &mut Cookie) -> Ruling {
        #[cfg(all(target_arch = "x86_64", unix))]
        if let Some(code) = &self.code {
            return Ruling::of(code.pkt(context, cookie));
        }
        self.interpret(Function::Pkt, context, cookie).map_or(Ruling::Fault, Ruling::of)
    }

    /// Runs a function by the interpreter, which checks every access: what r0 is. For tests of the verifier and of the machine code.
    ///
    /// # Errors
    /// An access that is not allowed, which the verifier should have found.
    pub fn interpret(
        &self,
        function: Function,
        context: &Context<'_>,
        cookie: &mut Cookie,
    ) -> Result<u64, Unproven> {
        interp::run(self.insns(function), context, cookie).map_err(|trap| Unproven(trap.0))
    }

    /// Runs a function by machine code: what r0 is. `None` where there is none.
    #[inline]
    pub fn compiled(&self, function: Function, context: &Context<'_>, cookie: &mut Cookie) -> Option<u64> {
        #[cfg(all(target_arch = "x86_64", unix))]
        if let Some(code) = &self.code {
            return Some(match function {
                Function::Init => code.init(context, cookie),
                Function::Pkt => code.pkt(context, cookie),
            });
        }
        let _ = (function, context, cookie);
        None
    }
}
