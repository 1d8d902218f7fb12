//! `tidemill bench`: measure lookup structures, hash tables and ports.

mod amp;
pub(crate) mod bound;
mod bursts;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod cable;
pub(crate) mod catalogue;
mod churn;
mod classify;
pub(crate) mod drawing;
mod ends;
mod figures;
mod flow;
mod forward;
mod gate;
mod grantor;
mod hide;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod kv;
mod lpm;
mod nf;
pub(crate) mod pass;
mod port;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod redis;
pub(crate) mod report;
mod runner;
mod scaling;
pub(crate) mod statistics;
pub(crate) mod updates;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod wire;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod zipf;

use anyhow::Result;
use clap::Subcommand;

/// The verbs of `tidemill bench`.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Lookup structures on a routing table: rates, build time, updates, bytes
    Lpm(Box<lpm::Lpm>),
    /// Hash tables and the flow table: lookups, updates, occupancy, cache lines, floods
    Flow(Box<flow::Flow>),
    /// What hiding memory latency brings: lookups of hash tables and tries by a plain loop, in groups, as coroutines
    Hide(Box<hide::Hide>),
    /// The engine without a network: null ports, capture files or DPDK's net_null, with and without a router between them
    Port(port::PortBench),
    /// The mitigator: the shortest DNS responses through its graph on one core, what it adds to a burst's time
    Amp(amp::AmpBench),
    /// The Gatekeeper: its worst case and granted flows on one core; the paper's figures; a flood on a wire, with the offload and without
    Gate(Box<gate::GateBench>),
    /// The Grantor: how fast granted packets go on while its policy loops, leaks, throws or matches patterns for ever (feature lua)
    Grantor(grantor::GrantorBench),
    /// The network functions: NAT by mapped flows, the filter's known and new connections, with 10,000 rules
    Nf(nf::NfBench),
    /// The switch: HALO's traffic cases by layer, rule sets, changes of rules, a flood of megaflows
    Classify(Box<classify::ClassifyBench>),
    /// The caches before memcached, in the kernel and the role kvcache: hits a second, round trips, what they cost where nothing can be cached (root)
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    Kv(kv::KvBench),
    /// The cache before a Redis, and the same Redis asked past it: answers a second, round trips, what it costs where nothing can be kept (root)
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    Redis(redis::RedisBench),
    /// What a busy control side (route changes, show, trace, reload) costs the packets
    Churn(churn::ChurnBench),
}

/// Runs a benchmark; false if an answer was wrong.
pub(crate) fn bench(command: BenchCommand) -> Result<bool> {
    crate::usage::to_the_end();
    match command {
        BenchCommand::Lpm(args) if args.is_runner() => runner::run(&args),
        BenchCommand::Lpm(args) if args.figure.is_some() => figures::run(&args),
        BenchCommand::Lpm(args) => lpm::run(&args),
        BenchCommand::Flow(args) => flow::run(&args),
        BenchCommand::Hide(args) => hide::run(&args),
        BenchCommand::Port(args) => port::run(&args),
        BenchCommand::Amp(args) => amp::run(&args),
        BenchCommand::Gate(args) => gate::run(&args),
        BenchCommand::Grantor(args) => grantor::run(&args),
        BenchCommand::Nf(args) => nf::run(&args),
        BenchCommand::Classify(args) => classify::run(&args),
        #[cfg(all(feature = "xdp", target_os = "linux"))]
        BenchCommand::Kv(args) => kv::run(&args),
        #[cfg(all(feature = "xdp", target_os = "linux"))]
        BenchCommand::Redis(args) => redis::run(&args),
        BenchCommand::Churn(args) => churn::run(&args),
    }
}
