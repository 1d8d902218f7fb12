//! The `tidemill` command: noun - verb, data on standard output, everything else on standard error.
//!
//! Exit status: 0 all right, 1 failed (a corrupt file, a wrong answer, a port that broke), 2 bad usage (a wrong option,
//! key, address or file name), 130 ended by Ctrl-C where there was nothing else to end (`tune`, `sim halo`). Every failure is one line: what, where, what to do.
//! That nobody reads its output any more (`| head`) ends a command, with 0; one that judges or has something to undo goes on, and its status is what it found.

#![forbid(unsafe_code)]

// The standard ones panic when nobody reads any more, or the disk is full. These end the program, or go on, in good order.
macro_rules! println {
    ($($text:tt)*) => { crate::usage::say(format_args!("{}\n", format_args!($($text)*))) };
}
macro_rules! print {
    ($($text:tt)*) => { crate::usage::say(format_args!($($text)*)) };
}
macro_rules! eprintln {
    () => { crate::usage::complain(format_args!("")) };
    ($($text:tt)*) => { crate::usage::complain(format_args!($($text)*)) };
}

mod addresses;
mod assets;
mod bench;
mod classify;
mod fib;
mod files;
mod generate;
mod json;
mod live;
mod manual;
#[cfg(all(target_os = "linux", feature = "xdp"))]
mod netns;
mod plot;
mod progress;
mod run;
#[cfg(all(target_os = "linux", feature = "xdp"))]
mod scenario;
mod sim;
mod tables;
mod tune;
mod usage;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use tidemill_control::schema::Severity;
pub(crate) use usage::{Usage, usage};

/// A software packet-processing engine: routes captures and interfaces by full tables.
#[derive(Parser)]
#[command(name = "tidemill", version, max_term_width = 110)]
#[command(after_help = "Examples:\n  tidemill run examples/router/router.toml\n  \
    tidemill fib stats --table rib.zst\n  tidemill bench lpm --table rib.zst --json\n  tidemill tune --table rib.zst\n  tidemill show ports\n  tidemill top")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a configuration until its inputs end, a limit is reached, or Ctrl-C
    Run(run::RunArgs),
    /// Check a configuration without running it
    Check(run::CheckArgs),
    /// Repeat a recorded run and compare every decision
    Replay(run::ReplayArgs),
    /// Hosts that captures show: operating systems, services, names
    Assets(assets::AssetsArgs),
    /// Look at, verify, convert and compare routing tables
    #[command(subcommand)]
    #[command(
        after_help = "Examples:\n  tidemill fib stats --table rib.zst\n  tidemill fib lookup --table rib.zst 192.0.2.1\n  \
        tidemill fib verify --table rib.zst --all"
    )]
    Fib(fib::FibCommand),
    /// Verify classifiers on rule sets
    #[command(subcommand)]
    #[command(
        after_help = "Example:\n  tidemill classify verify --rules acl1.rules.zst --trace acl1.trace.zst --json"
    )]
    Classify(classify::ClassifyCommand),
    /// Measure
    #[command(subcommand)]
    #[command(
        after_help = "Examples:\n  tidemill bench lpm --table rib.zst\n  tidemill bench flow --entries 2^20\n  \
        tidemill bench port null --table rib.zst --json"
    )]
    Bench(bench::BenchCommand),
    /// Study a role's tables and decisions without packets on a wire
    #[command(subcommand)]
    #[command(
        after_help = "Examples:\n  tidemill sim amp --figure list\n  tidemill sim amp --figure tok-5.4 --plot tok-5.4.svg\n  tidemill sim kv --model etc --policy lru,sieve"
    )]
    Sim(sim::SimCommand),
    /// Attack a Gatekeeper and a Grantor on this machine, and see what becomes of their client (needs root, and the feature `lua`)
    #[cfg(all(target_os = "linux", feature = "xdp"))]
    Scenario(scenario::ScenarioArgs),
    /// Find out what this machine's memory can do, and which lookup structure suits a table here
    Tune(Box<tune::Tune>),
    /// Make tables and traffic
    #[command(subcommand)]
    #[command(after_help = "Examples:\n  tidemill gen table -o table.zst\n  \
        tidemill gen traffic --table table.zst --pattern prefix --packets 100000 -o traffic.pcap.zst")]
    Gen(generate::GenCommand),
    /// Show what a running router has and knows
    #[command(
        after_help = "Examples:\n  tidemill show ports\n  tidemill show routes 192.0.2.1\n  tidemill show drops --json"
    )]
    Show(live::Show),
    /// Follow single packets through a running router
    #[command(after_help = "Examples:\n  tidemill trace add ip4-input 3\n  tidemill trace show")]
    Trace(live::Trace),
    /// Capture packets at a node or a port of a running router
    Capture(live::Capture),
    /// Add and delete static routes of a running router
    #[command(
        after_help = "Examples:\n  tidemill route add 10.9.0.0/16 via 10.1.0.2\n  tidemill route delete 10.9.0.0/16"
    )]
    Route(live::Route),
    /// Look into a running router's BGP: peers, the paths that they have told, BMP routers
    #[command(
        after_help = "Examples:\n  tidemill bgp peers\n  tidemill bgp routes 192.0.2.0/24\n  tidemill bgp reset upstream"
    )]
    Bgp(live::Bgp),
    /// Look into a running mitigator: what it has learnt, what it keeps away and why
    #[command(
        after_help = "Examples:\n  tidemill amp rules --status filtered\n  tidemill amp top --by victim\n  \
        tidemill amp explain '192.0.2.1:53>198.51.100.7:4000'"
    )]
    Amp(live::Amp),
    /// Look into a running Gatekeeper: flows, policies, requests, where the most is dropped; decide about flows
    #[command(
        after_help = "Examples:\n  tidemill gate flows --state granted\n  tidemill gate flow 192.0.2.1 198.51.100.7\n  \
        tidemill gate top --by destination"
    )]
    Gate(live::Gate),
    /// Look into a running Grantor: its policy, what it was asked; take back what was decided, reload
    #[command(
        after_help = "Examples:\n  tidemill grantor questions\n  tidemill grantor policy --json\n  tidemill grantor revoke 198.51.100.0/24"
    )]
    Grantor(live::Grantor),
    /// Look into a running NAT: its sessions, what an address or an endpoint is on the other side
    #[command(
        after_help = "Examples:\n  tidemill nat sessions --address 10.0.0.5\n  tidemill nat explain 192.0.2.1:61002\n  tidemill nat counters --json"
    )]
    Nat(live::Nat),
    /// Look into a running packet filter: rules with their counters, connections, tables of addresses; change those
    #[command(
        after_help = "Examples:\n  tidemill filter rules\n  tidemill filter states --address 10.0.0.5\n  tidemill filter add-to-set bad 192.0.2.1"
    )]
    Filter(live::Filter),
    /// Look into a running switch: why a packet goes where, its stations; put rules in and take them out
    #[command(
        after_help = "Examples:\n  tidemill switch trace in_port=lan,tcp,nw_dst=192.0.2.1,tp_dst=80\n  \
        tidemill switch add 'priority=100,tcp,tp_dst=22 actions=drop'\n  tidemill switch stations"
    )]
    Switch(live::Switch),
    /// Caches in front of an unchanged memcached, in the kernel or as the role kvcache, or of a Redis: attach, detach, look into them
    #[cfg(target_os = "linux")]
    #[command(
        after_help = "Examples:\n  tidemill kv attach eth0 lo\n  tidemill kv stats --json\n  tidemill kv top"
    )]
    Kv(live::Kv),
    /// Have a running process save what it has learnt, for its next start
    #[command(after_help = "Example:\n  tidemill state save")]
    State(live::State),
    /// Have a running process read its configuration anew
    Reload(live::Reload),
    /// Have a running process stop in good order
    Stop(live::Stop),
    /// Watch a running router: rates, drops, workers, neighbors
    Top(live::Top),
    /// Watch what happens: reloads, links, drops beyond a rate, workers without time
    Events(live::Events),
    /// Show or change how much a running process says on standard error, by module
    Log(live::Log),
    /// Print a script that completes this command line
    Completions(live::Completions),
    /// Write the manual: a page for each command
    Man(manual::Man),
}

fn main() -> ExitCode {
    tidemill_daemon::journal::tell_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::not_a_command(&error),
    };
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => run::check(args),
        Command::Replay(args) => run::replay(args),
        Command::Assets(args) => assets::assets(&args),
        Command::Fib(command) => fib::fib(command),
        Command::Classify(command) => classify::classify(&command),
        Command::Bench(command) => bench::bench(command),
        Command::Sim(command) => sim::sim(command),
        #[cfg(all(target_os = "linux", feature = "xdp"))]
        Command::Scenario(args) => scenario::run(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Gen(command) => generate::generate(command),
        Command::Show(args) => live::show(&args),
        Command::Trace(args) => live::trace(&args),
        Command::Capture(args) => live::capture(&args),
        Command::Route(args) => live::route(&args),
        Command::Bgp(args) => live::bgp(&args),
        Command::Amp(args) => live::amp(&args),
        Command::Gate(args) => live::gate(&args),
        Command::Grantor(args) => live::grantor(&args),
        Command::Nat(args) => live::nat(&args),
        Command::Filter(args) => live::filter(&args),
        Command::Switch(args) => live::switch(&args),
        #[cfg(target_os = "linux")]
        Command::Kv(args) => live::kv(&args),
        Command::State(args) => live::state(&args),
        Command::Reload(args) => live::reload(&args),
        Command::Stop(args) => live::stop(&args),
        Command::Top(args) => live::top(&args),
        Command::Events(args) => live::events(&args),
        Command::Log(args) => live::log(&args),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::Completions(args) => live::completions(&args, &mut Cli::command()),
    };
    match result {
        Ok(true) if !usage::is_unwritten() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            if usage::nobody_reads(&error) {
                return ExitCode::SUCCESS;
            }
            usage::complain_as(Severity::Error, &format!("tidemill: {}", usage::one_line(&error)));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}
