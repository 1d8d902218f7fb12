//! `peers`: measurements against programs that others wrote. Runners are processes; bench/README.md has their protocol.

mod build;
pub(crate) mod classify;
pub(crate) mod flow;
mod keys;
pub(crate) mod lpm;
mod ovs;
mod pages;
pub(crate) mod port;
mod reference;
mod report;
mod runner;
mod stats;
mod table;

use crate::{env, proc};
use anyhow::Result;
use std::path::Path;
use std::process::Command as Process;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Longest-prefix match: DPDK's rte_fib, rte_lpm, rte_fib6, rte_lpm6
    Lpm(lpm::Options),
    /// Exact match: DPDK's rte_hash, hashbrown, boost::unordered_flat_map, absl::flat_hash_map
    Flow(flow::Options),
    /// Rules: DPDK's rte_acl; the whole switch: Open vSwitch (--only ovs)
    Classify(classify::Options),
    /// Forwarding: DPDK's testpmd, and a forwarder on rte_fib or rte_lpm
    Port(port::Options),
}

/// For `GLIBC_TUNABLES`: what is large and comes from malloc, as keys do, lies on huge pages (`madvise`), where our tables and DPDK's are.
const HUGE_MALLOC: &str = "glibc.malloc.hugetlb=1";

/// Whether everything agreed.
pub(crate) fn run(command: &Command) -> Result<bool> {
    match command {
        Command::Lpm(options) => lpm::run(options),
        Command::Flow(options) => flow::run(options),
        Command::Classify(options) => classify::run(options),
        Command::Port(options) => port::run(options),
    }
}

/// Builds the runners that take long: those of crates.
pub(crate) fn build_runners() -> Result<()> {
    build::rust("lpm-crates-runner").map(drop)
}

/// What is missing to build the runners of others, if anything is.
pub(crate) fn missing() -> Option<String> {
    if ["gcc", "g++", "pkg-config"].iter().any(|program| !env::has_program(program)) {
        return Some("gcc, g++ or pkg-config is not installed".to_owned());
    }
    let known = |library| proc::output(Process::new("pkg-config").args(["--exists", library])).is_ok();
    if !known("libdpdk") {
        return Some("libdpdk-dev is not installed".to_owned());
    }
    if !known("absl_flat_hash_map") {
        return Some("libabsl-dev is not installed".to_owned());
    }
    // boost's headers come without a file for pkg-config.
    let header = Path::new("/usr/include/boost/unordered/unordered_flat_map.hpp");
    (!header.exists()).then(|| "libboost1.81-dev (or libboost-dev from 1.81 on) is not installed".to_owned())
}

/// The last CPU that we may run on: the first ones serve interrupts.
fn cpu() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let last = list.trim().rsplit([',', '-']).next()?.parse().ok();
    last.filter(|_| env::has_program("taskset"))
}
