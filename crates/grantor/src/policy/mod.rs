//! Policies in Lua (Luau): what they may do, and what they are held to.
//!
//! ```text
//! questions --merge by signature--> batch --prefixes looked up--> buffer --one call--> decide(q) for each --> buffer --> answers
//!                                                                             (interrupt: steps, deadline; allocator: memory)
//! ```
//! - **Engine**: one Lua state. [`Engine::decide`] gives every question exactly one answer, whatever the script does.
//! - **Closed off**: the standard libraries are cut down to a list (`prelude.lua`); no files, no clock, no loading of code, no randomness but what
//!   was handed in; globals and libraries cannot be changed.
//! - **Held to limits**: memory by the allocator; steps by Luau's interrupt, `steps` for one question on average and for one alone when the batch has
//!   failed, so some `2 * batch * steps` per batch at most, and once more for each error or lack of memory; `time_ms` per batch by the clock, looked at in every step, and as
//!   long again for those behind a question at which it was up, and for this one behind them: only one that takes half of it by itself fails. What a call does in C is bounded by the lengths that the prelude
//!   allows and by the memory.
//! - **Not held: code without calls and loops.** It has no steps, and what it does with long texts takes long: a script of 600 KB with 100,000 times `n = a < b`, on
//!   texts of 4 MiB, held its companion for 9.7 s. Shorter scripts are no way out: 64 KiB of `n = s .. 1`, on 1 MiB, took 2 s of a processor to load. Nobody writes that by mistake, and scripts are the operator's own.
//! - **Errors isolated**: a question whose call fails gets the fail-safe, those before and behind it their answers. After a memory error unused
//!   memory is collected, and behind a batch that has used much; if less than a quarter is free then, the state is made anew with the next batch (not before ten times as long as that took the
//!   last time, a second at most: until then nobody is asked about), and what the script remembered is gone, but for the maps that it keeps.
//! - **Logged** once per interval for all workers together, with the script's line.
//! - **Reload**: a [`Policy`] is read and an [`Engine`] made beside the old one; [`Handle::replace`](crate::Handle::replace) swaps it in between two
//!   batches. What does not load changes nothing. Maps that both scripts keep go over, if the policy has the same name.
//!
//! What scripts are given is in `POLICIES.md`.

#[cfg(feature = "lua")]
pub mod cookie;
#[cfg(feature = "lua")]
pub mod engine;
#[cfg(not(feature = "lua"))]
mod engine_absent;
pub mod expiring;
#[cfg(feature = "lua")]
mod natives;
mod shipped;
#[cfg(feature = "lua")]
mod state;
pub mod tables;
#[cfg(feature = "lua")]
mod wire;

#[cfg(feature = "lua")]
pub use engine::Engine;
#[cfg(not(feature = "lua"))]
pub use engine_absent::Engine;
pub use shipped::SHIPPED;

use crate::answer::{FailSafe, Failure};
use crate::config::{Parameter, PolicySection};
use crate::counters::Counts;
use crate::error::PolicyError;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tables::Library;

/// The longest script, in bytes. Compiling it is outside of its limits: for each byte it may take a hundred bytes of memory for a moment.
pub const SCRIPT_MAX: u64 = 1 << 20;

/// Nanoseconds that only grow. Handed in, so that runs on captures are repeatable.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Takes one line.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What engines live in: shared by all of a Grantor.
#[derive(Clone)]
pub struct Surroundings {
    /// The time, which is that of the packets, too.
    pub clock: Clock,
    /// What loading a script is timed by: a real clock, also where the other stands still.
    pub loading: Clock,
    /// Where failures are told, once per interval.
    pub log: Log,
    /// What the scripts' randomness and the maps' hashes begin with.
    pub seed: u64,
    /// What has happened.
    pub counts: Arc<Counts>,
    quiet: Arc<Mutex<Quiet>>,
}

/// Since when nothing has been logged, and how much.
#[derive(Default)]
struct Quiet {
    last_ns: Option<u64>,
    failures: u64,
}

impl Surroundings {
    /// With new counters.
    pub fn new(clock: Clock, log: Log, seed: u64) -> Surroundings {
        let began = Instant::now();
        let loading = Arc::new(move || began.elapsed().as_nanos() as u64);
        Surroundings { clock, loading, log, seed, counts: Arc::default(), quiet: Arc::default() }
    }

    /// Counts a failure, and logs it if it is time to.
    pub(crate) fn failed(&self, now_ns: u64, failure: Failure, questions: usize, what: &str, every_ns: u64) {
        self.counts.failed(failure, questions as u64);
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        if quiet.last_ns.is_some_and(|last| now_ns < last.saturating_add(every_ns)) {
            quiet.failures += questions as u64;
            return;
        }
        quiet.last_ns = Some(now_ns);
        let others = std::mem::take(&mut quiet.failures);
        drop(quiet);
        let others = if others == 0 { String::new() } else { format!("; {others} other failures since") };
        (self.log)(&format!("policy: {what} ({}){others}", failure.name()));
    }
}

/// A script with its parameters, tables and limits: what engines are made from.
pub struct Policy {
    /// What messages call it: the file's name, or `deny-list.lua`.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) parameters: BTreeMap<String, Parameter>,
    pub(crate) library: Arc<Library>,
    /// Bytes.
    pub(crate) memory: usize,
    pub(crate) steps: u64,
    pub(crate) time_ns: u64,
    pub(crate) batch: usize,
    pub(crate) wait_ns: u64,
    pub(crate) queue: usize,
    pub(crate) fail_safe: FailSafe,
    pub(crate) log_every_ns: u64,
}

impl Policy {
    /// Reads the script that the section names. Its own file and the tables are looked for in `folder`, the configuration's.
    ///
    /// # Errors
    /// Values that make no sense; a script that cannot be read. Whether it loads, [`Engine::new`] says.
    pub fn open(section: &PolicySection, folder: &Path) -> Result<Arc<Policy>, PolicyError> {
        section.check()?;
        let (name, text) = match (&section.name, &section.file) {
            (Some(name), None) => match SHIPPED.iter().find(|(known, _)| known == name) {
                Some((name, text)) => (format!("{name}.lua"), (*text).to_owned()),
                None => {
                    let known: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
                    let what = format!("there is no policy {name:?}: give one of {}", known.join(", "));
                    return Err(PolicyError::config("policy.name", what));
                }
            },
            (None, Some(file)) if file.is_empty() => {
                return Err(PolicyError::config("policy.file", "\"\": give the name of a script"));
            }
            (None, Some(file)) => {
                let path = folder.join(file);
                let wrong = |error| PolicyError::Read { path: path.clone(), error };
                (file.clone(), script(&path).map_err(wrong)?)
            }
            _ => return Err(PolicyError::config("policy", "give either a name or a file")),
        };
        Ok(Arc::new(Policy {
            name,
            text,
            parameters: section.parameters.clone(),
            library: Arc::new(Library::new(folder)),
            memory: section.memory_mib as usize * (1 << 20),
            steps: section.steps.into(),
            time_ns: u64::from(section.time_ms) * 1_000_000,
            batch: section.batch,
            wait_ns: u64::from(section.wait_ms) * 1_000_000,
            queue: section.queue,
            fail_safe: section.fail_safe()?,
            log_every_ns: u64::from(section.log_every_s) * 1_000_000_000,
        }))
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tables of prefixes that its script has asked for.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// What is answered where it fails.
    pub fn fail_safe(&self) -> FailSafe {
        self.fail_safe
    }
}

/// A script's text. Opening a pipe would wait for whoever writes to it, and a device may have no end.
fn script(path: &Path) -> std::io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(SCRIPT_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SCRIPT_MAX {
        let what = format!("longer than {SCRIPT_MAX} bytes: give a shorter one, and tables to lpm()");
        return Err(std::io::Error::other(what));
    }
    String::from_utf8(bytes).map_err(std::io::Error::other)
}
