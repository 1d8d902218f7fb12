//! What a policy answers, and what is answered where it fails.

use tidemill_decision::Cookie;

/// What the Gatekeeper is to be told about the flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: the flow goes on asking.
    None,
    /// Nothing passes for so many seconds.
    Declined {
        /// Seconds.
        expire_s: u32,
    },
    /// So much passes.
    Granted {
        /// KiB (1024 bytes) of IP packets per second.
        rate_kib_s: u32,
        /// For so many seconds.
        expire_s: u32,
        /// The first packet after so many milliseconds asks for renewal,
        renew_ms: u32,
        /// and so does the first after each so many more.
        step_ms: u32,
        /// Packets go to the destination itself, not by way of the Grantor; those that ask for renewal do not.
        direct: bool,
    },
    /// A flow program decides at the Gatekeeper.
    Program {
        /// For so many seconds.
        expire_s: u32,
        /// Its number there.
        program: u8,
        /// What it begins with.
        cookie: Cookie,
    },
}

/// Why a question was not answered by the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The script raised an error.
    Error,
    /// It took more steps, or more time, than it may.
    Timeout,
    /// It wanted more memory than it may have.
    Memory,
    /// What it returned is no answer.
    WrongAnswer,
    /// The engine itself failed.
    Panic,
    /// The state had to be thrown away, and the next one is not there yet.
    Resting,
    /// Its turn, or the answer, did not come in time.
    Late,
    /// More questions waited already than may.
    QueueFull,
}

impl Failure {
    /// All, in the order of the counters.
    pub const ALL: [Failure; 8] = [
        Failure::Error,
        Failure::Timeout,
        Failure::Memory,
        Failure::WrongAnswer,
        Failure::Panic,
        Failure::Resting,
        Failure::Late,
        Failure::QueueFull,
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Error => "error",
            Failure::Timeout => "timeout",
            Failure::Memory => "memory",
            Failure::WrongAnswer => "wrong-answer",
            Failure::Panic => "panic",
            Failure::Resting => "resting",
            Failure::Late => "late",
            Failure::QueueFull => "queue-full",
        }
    }

    /// Whether the script failed at the question itself, and so would again.
    pub(crate) fn is_of_script(self) -> bool {
        matches!(self, Failure::Error | Failure::Timeout | Failure::Memory | Failure::WrongAnswer)
    }

    /// Whether nobody has judged the flow: then nothing is decided about it, whatever the fail-safe says, and it goes on asking.
    pub fn is_unjudged(self) -> bool {
        matches!(self, Failure::Resting | Failure::Late | Failure::QueueFull)
    }
}

/// The answer to one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// What the Gatekeeper is told.
    pub decision: Decision,
    /// Whether the packet itself goes on to its destination.
    pub forward: bool,
    /// `None` if the policy said so; else why this is what [`FailSafe::answer`] says.
    pub failure: Option<Failure>,
}

/// What is answered where a policy fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailSafe {
    /// What the Gatekeeper is told.
    pub decision: Decision,
    /// Whether the packet goes on.
    pub forward: bool,
}

impl FailSafe {
    /// The answer to a question that failed so.
    pub fn answer(&self, failure: Failure) -> Answer {
        if failure.is_unjudged() {
            return Answer { decision: Decision::None, forward: false, failure: Some(failure) };
        }
        Answer { decision: self.decision, forward: self.forward, failure: Some(failure) }
    }
}
