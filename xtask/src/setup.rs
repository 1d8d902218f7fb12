//! `setup`: installs what the tests need beyond Rust and a C compiler, through apt, as root. Elsewhere it says by name
//! what is missing. Tools written in Rust are not built from source here: that would cost minutes in CI.

use crate::{env, proc, python};
use anyhow::Result;
use std::process::Command;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Only say what is missing; fail if anything is
    #[arg(long)]
    check: bool,
    /// Also what `record-capture` needs
    #[arg(long)]
    recording: bool,
}

/// A Debian package and what it is for.
struct Package {
    name: &'static str,
    reason: &'static str,
}

const fn package(name: &'static str, reason: &'static str) -> Package {
    Package { name, reason }
}

/// Boost has flat maps from 1.81 on: Debian 12 names that release beside an older default, later systems have a later default.
const BOOST: (&str, &str) = ("libboost1.81-dev", "libboost-dev");

const FOR_TESTS: &[Package] = &[
    package("gcc", "C parts of dependencies; the C runners of peers"),
    package("g++", "Lua (feature lua); the C++ runners of peers; libFuzzer, which the fuzz targets link"),
    package("libc6-dev", "headers for the C parts"),
    package("pkg-config", "finds DPDK and Abseil for the runners"),
    package("dpdk-dev", "dpdk-testpmd, the peer of DPDK ports"),
    package(
        "libdpdk-dev",
        "DPDK ports (feature dpdk); the peers rte_fib, rte_lpm, rte_fib6, rte_lpm6, rte_hash",
    ),
    package(BOOST.0, "the peer boost::unordered_flat_map"),
    package("libabsl-dev", "the peer absl::flat_hash_map"),
    package("clang", "the XDP programs, to compare the objects that are kept with what their sources say"),
    package("llvm", "the same: llvm-strip"),
    package("libbpf-dev", "the same: its headers"),
    package("tshark", "an independent judge of the captures that we write"),
    package("tcpdump", "captures on the test namespaces' interfaces"),
    package("iproute2", "interfaces, addresses and routes of the root tests' namespaces"),
    package("procps", "sysctl, for the same"),
    package("ethtool", "switches offloads off on veth"),
    package(
        "nftables",
        "filters and NAT of the kernel's, to compare the mitigator's XDP program and the network functions with",
    ),
    package("iputils-ping", "real traffic for the root tests"),
    package("iputils-tracepath", "path MTU discovery in the root tests"),
    package("traceroute", "small time-to-live values on purpose"),
    package("bind9-dnsutils", "dig: a DNS client over UDP and TCP, also for `record-capture`"),
    package("dnsmasq-base", "a DNS server, for the same"),
    package(
        "bird2",
        "a routing daemon that fills the kernel's tables for the feed's root tests, and a BGP peer",
    ),
    package("frr", "a BGP peer"),
    package("gobgpd", "a BGP peer and BMP exporter"),
    package("memcached", "what the key-value cache stands in front of"),
    package(
        "python3-venv",
        "libCacheSim from PyPI, which the cache simulator counts the same hits as, and Prometheus' library, which reads our metrics",
    ),
    package("redis-server", "the same, with values of five types (BSD licence, Redis 7.0 in Debian 12)"),
];

const FOR_RECORDING: &[Package] = &[
    package("wireshark-common", "mergecap"),
    package("python3", "an HTTP server"),
    package("curl", "an HTTP client"),
];

/// Whether the machine has everything now.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let packages = packages(options)?;
    Ok(python::setup(options.check)? && packages)
}

fn packages(options: &Options) -> Result<bool> {
    let mut wanted: Vec<&Package> = FOR_TESTS.iter().collect();
    if options.recording {
        wanted.extend(FOR_RECORDING);
    }
    if !env::has_program("dpkg-query") {
        println!("setup: no dpkg here; the tests use: {}", names(&wanted));
        return Ok(!options.check);
    }
    let missing = missing(&wanted)?;
    if missing.is_empty() {
        println!("setup: all {} packages are there", wanted.len());
        return Ok(true);
    }
    for package in &missing {
        println!("setup: missing {} ({})", package.name, package.reason);
    }
    if options.check {
        return Ok(false);
    }
    if !env::is_root() || !env::has_program("apt-get") {
        println!("setup: not root, going on without; to install: apt-get install {}", names(&missing));
        return Ok(true);
    }
    install(&missing)
}

/// Installs a package that only some need, when they need it. Where that cannot be, it is said.
pub(crate) fn install_one(name: &'static str, reason: &'static str) -> Result<bool> {
    let package = package(name, reason);
    println!("setup: missing {} ({})", package.name, package.reason);
    if !env::is_root() || !env::has_program("apt-get") {
        println!("setup: not root, going on without; to install: apt-get install {name}");
        return Ok(false);
    }
    install(&[&package])
}

fn names(packages: &[&Package]) -> String {
    packages.iter().map(|package| package.name).collect::<Vec<_>>().join(" ")
}

/// The wanted packages that dpkg does not list as installed.
fn missing<'a>(wanted: &[&'a Package]) -> Result<Vec<&'a Package>> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f=${Package} ${db:Status-Status}\n", BOOST.1]);
    query.args(wanted.iter().map(|package| package.name));
    // It exits 1 when it does not know one of the names, and lists the others all the same.
    let output = query.output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let installed = |name: &str| listed.lines().any(|line| line == format!("{name} installed"));
    let has = |name: &str| installed(name) || (name == BOOST.0 && !offered(name) && installed(BOOST.1));
    Ok(wanted.iter().copied().filter(|package| !has(package.name)).collect())
}

/// Whether apt's index has the package.
fn offered(name: &str) -> bool {
    proc::output(Command::new("apt-cache").args(["show", "--no-all-versions", name])).is_ok()
}

fn install(missing: &[&Package]) -> Result<bool> {
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y"]).args(arguments);
        proc::status(&mut command)
    };
    // An index that is a few days old usually serves; a failed update alone is no reason to stop.
    if !apt(&["update"])? {
        println!("setup: apt-get update failed; trying with the index that is there");
    }
    let mut arguments = vec!["install", "--no-install-recommends"];
    let named = |name| if name == BOOST.0 && !offered(name) { BOOST.1 } else { name };
    arguments.extend(missing.iter().map(|package| named(package.name)));
    let ok = apt(&arguments)?;
    if !ok {
        println!("setup: apt-get could not install {}", names(missing));
    }
    Ok(ok)
}
