//! `scenario`: a Gatekeeper and a Grantor between a client, attackers and a server, all of them real kernels and processes on this machine.
//!
//! ```text
//!  client -- [internet: attacks join here] -- gatekeeper -- grantor -- server
//!     datagrams, TCP, newcomers: real sockets in namespaces      attacks: frames that the kernel makes (bpf/attack.bpf.c)
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `file.rs`, `check.rs` | the scenario's file; its two configurations, checked before anything is made |
//! | `lab.rs`, `process.rs` | namespaces and cables; the two processes, their configurations, their folder |
//! | `attack.rs` | attacks |
//! | `load.rs`, `people.rs` | what those send who mean well; the threads that do it |
//! | `watch.rs` | everything that is counted, and what has happened between two moments |
//! | `phase.rs`, `report.rs` | a phase; what is said of it, bounds, drawing |
//!
//! * Client and attackers share one link into one port of the Gatekeeper. On two processors the Gatekeeper has one for itself (priority -15
//!   keeps other programs away, too), and everything else the other, attacks at a lower priority than client, server and Grantor.
//! * `passed` is what the server's interface received beyond what the client's sent: about right; that nothing gets through is counted exactly, for
//!   the source that is declined, by a socket.
//! * `attack_mpps` is what was made, `front_mpps` what the Gatekeeper has received by the front, its clients' packets too: the difference found the port full.
//! * Goodput is of the datagrams sent in a phase, by number, and in bytes with their IP headers: as a grant counts.

mod attack;
mod check;
mod file;
mod lab;
mod load;
mod people;
mod phase;
mod process;
mod report;
mod watch;

use crate::bench::drawing::check_plot;
use crate::usage;
use anyhow::{Context, Result, bail};
use attack::Attacks;
use clap::Args;
pub(crate) use file::is_scenario;
use file::{Phase, Read};
use lab::Lab;
use people::People;
use phase::{Outcome, Stage};
use process::{Configurations, Folder, Tidemill};
use report::Reporter;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tidemill_control::schema::gate::{FlowAnswer, FlowQuery, path};
use watch::Pair;

/// Options of `tidemill scenario`.
#[derive(Args)]
#[command(
    after_help = "It needs root: it makes network namespaces, and attacks that the kernel makes itself (Linux 5.18). Nothing outside of these namespaces is touched, and \
    nothing is left behind.\n\nExit status: 0 if all is as [expect] says, 1 if not.\n\n\
    Examples:\n  tidemill scenario examples/ddos/ddos.toml\n  tidemill scenario examples/ddos/ddos.toml --json --plot ddos.svg\n  \
    tidemill scenario examples/ddos/ddos.toml --phase quiet --phase requests\n  tidemill check examples/ddos/ddos.toml"
)]
pub(crate) struct ScenarioArgs {
    /// The scenario (TOML)
    scenario: PathBuf,
    /// Play only the phases of this name, and not without those before them that change the policy; repeatable
    #[arg(long, value_name = "NAME")]
    phase: Vec<String>,
    /// One JSON object per second, per phase, and at the end
    #[arg(long)]
    json: bool,
    /// Draw it
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// `tidemill check` of a scenario.
pub(crate) fn check(path: &Path, text: &str) -> Result<bool> {
    let read = file::of(path, text)?;
    let seconds: f64 = read.scenario.phase.iter().map(|phase| phase.seconds).sum();
    println!(
        "{}: good: a scenario of {} phases, {seconds} seconds",
        path.display(),
        read.scenario.phase.len()
    );
    if cfg!(not(feature = "lua")) {
        eprintln!(
            "tidemill: the Grantor and its policies are not checked: this program was built without the feature `lua`"
        );
    }
    Ok(true)
}

/// `tidemill scenario`.
pub(crate) fn run(args: &ScenarioArgs) -> Result<bool> {
    // Before there is anything to undo.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone()).context("cannot watch for signals")?;
    }
    let mut read = file::read(&args.scenario)?;
    if let Some(name) = args.phase.iter().find(|name| !read.scenario.phase.iter().any(|p| p.name == **name)) {
        return Err(usage(format!("--phase {name:?}: {} has no such phase", args.scenario.display())));
    }
    if !args.phase.is_empty() {
        if let Some([phase, before]) = without_change(&read.scenario.phase, &args.phase) {
            return Err(usage(format!(
                "--phase {phase:?}: it begins with the policy that the phase {before:?} brings: play that, too (--phase {before:?})"
            )));
        }
        read.scenario.phase.retain(|phase| args.phase.contains(&phase.name));
    }
    check_plot(args.plot.as_deref())?;
    if cfg!(not(feature = "lua")) {
        return Err(usage(
            "a scenario has a Grantor: build with the feature `lua` (cargo build --features lua)",
        ));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.contains("Uid:\t0\t0") {
        return Err(usage("a scenario makes network namespaces: run it as root"));
    }
    let mut reporter = Reporter::new(args.json);
    let outcomes = match play(&read, &mut reporter, &interrupted) {
        // Ctrl-C ends the commands that we run as well: what they say then is no reason.
        Err(_) if interrupted.load(Relaxed) => bail!("interrupted"),
        played => played?,
    };
    let checks = report::checks(&read.scenario.expect, &outcomes);
    if let Some(plot) = &args.plot {
        reporter.draw(plot, &outcomes)?;
    }
    reporter.summary(&checks)
}

/// A phase that would begin with another policy than it is written for, as one before it that changes the policy is not played; and that one.
fn without_change<'a>(phases: &'a [Phase], played: &[String]) -> Option<[&'a str; 2]> {
    let is_played = |phase: &Phase| played.contains(&phase.name);
    let skipped = phases.iter().position(|phase| phase.change.is_some() && !is_played(phase))?;
    let next = phases[skipped..].iter().find(|phase| is_played(phase))?;
    Some([next.name.as_str(), phases[skipped].name.as_str()])
}

fn secret() -> Result<[u8; 32]> {
    let mut secret = [0; 32];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret))?;
    Ok(secret)
}

/// Everything is undone in the reverse order, whatever happens.
fn play(read: &Read, reporter: &mut Reporter, interrupted: &AtomicBool) -> Result<Vec<Outcome>> {
    let scenario = &read.scenario;
    let folder = Folder::of(read)?;
    let configurations = Configurations::new(read, &secret()?);
    folder.write("gatekeeper.toml", &configurations.gatekeeper())?;
    folder.write("grantor.toml", &configurations.grantor(None))?;
    let lab = Lab::new(&scenario.network)?;
    people::come_first()?;
    let grantor = Tidemill::start(&folder.0, "grantor", &lab.grantor)?;
    let gatekeeper = Tidemill::start(&folder.0, "gatekeeper", &lab.gate)?;
    // Workers have their own places; everything else of theirs, and all of ours, goes to the others'.
    people::stay_on(scenario.cpus.others)?;
    for child in [&gatekeeper.child, &grantor.child] {
        people::keep_on(child.id(), scenario.cpus.others);
    }
    let mut pair = Pair { gatekeeper, grantor };
    let mut people = People::begin(scenario, &lab)?;
    let mut attacks = Attacks::new();
    let granted = warm_up(read, &people, &mut pair, interrupted)?;
    let mut stage = Stage {
        read,
        lab: &lab,
        folder: &folder,
        configurations: &configurations,
        people: &people,
        pair: &mut pair,
        attacks: &mut attacks,
        granted,
        newcomers: 0,
        later: 0,
        declined_came: 0,
        interrupted,
    };
    let mut outcomes = Vec::new();
    for phase in &scenario.phase {
        let outcome = stage.play(phase, &mut |span| reporter.second(&phase.name, span))?;
        reporter.phase(&outcome)?;
        outcomes.push(outcome);
    }
    people.end()?;
    pair.gatekeeper.end()?;
    pair.grantor.end()?;
    Ok(outcomes)
}

/// Everybody asks; returns what the client is granted, KiB/s over each family, and has all send at their rates.
fn warm_up(read: &Read, people: &People, pair: &mut Pair, interrupted: &AtomicBool) -> Result<[u32; 2]> {
    const LIMIT: Duration = Duration::from_secs(30);
    let scenario = &read.scenario;
    for family in &people.families {
        family.client.rate.store(20_000, Relaxed);
        family.declined.rate.store(20_000, Relaxed);
        family.fallen.rate.store(phase::FALLEN_RATE[0], Relaxed);
    }
    let begun = Instant::now();
    let mut granted = [0; 2];
    loop {
        pair.gatekeeper.alive()?;
        pair.grantor.alive()?;
        for v6 in [0, 1] {
            let query = FlowQuery {
                source: scenario.network.client[v6].host(people::CLIENT).to_string(),
                destination: scenario.network.server[v6].host(2).to_string(),
            };
            let answer: FlowAnswer = pair.gatekeeper.control.get(path::FLOW, &query)?;
            granted[v6] = answer.flows.iter().find_map(|flow| flow.rate_kib_s).unwrap_or_default();
        }
        let all_came = people.families.iter().all(|family| family.fallen.came.load(Relaxed) > 0);
        if granted.iter().all(|rate| *rate > 0) && all_came {
            break;
        }
        if begun.elapsed() > LIMIT {
            bail!(
                "the client was granted {granted:?} KiB/s over IPv4 and IPv6 within {LIMIT:?}: does the policy grant it?"
            );
        }
        if interrupted.load(Relaxed) {
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let client = &scenario.client;
    for (v6, family) in people.families.iter().enumerate() {
        let packet = (client.bytes + [28, 48][v6]) as f64;
        let rate = client.share * f64::from(granted[v6]) * 1024.0 / packet;
        family.client.rate.store((rate * 1000.0) as u64, Relaxed);
        family.declined.rate.store(u64::from(client.declined_pps) * 1000, Relaxed);
        family.tcp_rate.store(u64::from(client.tcp_kib_s) * 1024, Relaxed);
    }
    // Transfers find their way.
    std::thread::sleep(Duration::from_millis(1500));
    Ok(granted)
}
