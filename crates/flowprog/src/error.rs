//! Why a program was not loaded.

use crate::insn::Refusal;
use std::fmt::{self, Display, Formatter};
use thiserror::Error;

/// The two functions of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Runs once, when a decision brings the program to a flow.
    Init,
    /// Runs for every packet of the flow.
    Pkt,
}

impl Function {
    /// Its name, which is that of its section as well.
    pub fn name(self) -> &'static str {
        match self {
            Function::Init => "init",
            Function::Pkt => "pkt",
        }
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a program was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// The object is none, or not one of a flow program.
    #[error("{program}: {why}")]
    Object {
        /// The program's name.
        program: String,
        /// What is wrong, and where.
        why: String,
    },
    /// An instruction is not known to be safe.
    #[error("{program}: {function}: instruction {at}: {why}")]
    Refused {
        /// The program's name.
        program: String,
        /// The function.
        function: Function,
        /// The instruction's number from 0, as `llvm-objdump -d` has it (a 64-bit constant counts twice).
        at: usize,
        /// What is not known of it.
        why: String,
    },
}

impl LoadError {
    pub(crate) fn object(program: &str, why: impl Display) -> Self {
        LoadError::Object { program: program.into(), why: why.to_string() }
    }

    pub(crate) fn refused(program: &str, function: Function, refusal: Refusal) -> Self {
        LoadError::Refused { program: program.into(), function, at: refusal.at, why: refusal.why }
    }
}
