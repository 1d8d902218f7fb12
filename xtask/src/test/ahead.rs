//! Builds ahead: tests wait, those of the root tier mostly, for namespaces, daemons and timers. Meanwhile what the tiers behind it need is
//! compiled, by one job of the lowest priority, so that no test feels it.

use super::{examples, harness};
use crate::{env, fuzz, peers, proc};
use anyhow::{Context as _, Result};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// The process that builds.
pub(super) struct Ahead(Child);

impl Ahead {
    /// Starts it; `None` where there is no `nice`: then the tiers build for themselves.
    pub(super) fn start() -> Result<Option<Ahead>> {
        if !env::has_program("nice") {
            return Ok(None);
        }
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(std::env::current_exe().context("our own path")?);
        // A pipe, of which nothing comes: its end is ours, however that comes about.
        command.args(["test", "--build-ahead"]).stdin(Stdio::piped());
        // One job: tests of networks go wrong when both processors, and the disk, are busy for long.
        command.env("CARGO_BUILD_JOBS", "1").process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", proc::shown(&command)))?;
        Ok(Some(Ahead(child)))
    }

    /// Ends it: what is compiled stays compiled, and the rest the tiers build with all processors.
    pub(super) fn end(mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            // Where there is no `kill` it is waited for.
            end_group(self.0.id());
        }
        self.0.wait().ok();
    }
}

/// Ends a process with all that it has started.
fn end_group(leader: u32) {
    proc::status(Command::new("kill").args(["-TERM", "--", &format!("-{leader}")])).ok();
}

/// Ends this process when the one that started it has ended: Ctrl-C reaches no group but that one's, and what is left behind would build on.
fn end_with_parent() {
    std::thread::spawn(|| {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        end_group(std::process::id());
    });
}

/// A tier, and what builds for it.
type Build = (&'static str, fn() -> Result<()>);

/// What the tiers behind `root` build. What fails here fails there again, and is told there. The command is last: when this is ended the
/// crate that is at work is lost, and that one is minutes of work.
pub(super) fn build() -> Result<bool> {
    end_with_parent();
    let builds: [Build; 4] = [
        ("fuzz", fuzz::build_tier),
        ("model", harness::build_model),
        ("peers", peers::build_runners),
        ("examples", examples::build),
    ];
    let mut good = true;
    for (name, build) in builds {
        if let Err(error) = build() {
            println!("building ahead for the tier {name}: {error:#}");
            good = false;
        }
    }
    Ok(good)
}
