//! `test`: the tests in tiers, each with its time, and totals at the end. A tier that this machine cannot run is skipped
//! by the names of its tests; in CI nothing is skipped that a machine can be given (root, packages).

mod ahead;
mod examples;
mod harness;
mod lanes;
mod peers;

use crate::{env, fuzz, setup};
use anyhow::{Result, bail};
use std::ops::AddAssign;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this tier
    #[arg(long, value_enum)]
    tier: Option<Tier>,
    /// Seconds of fuzzing per target
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u32,
    /// Only build what the tiers from `real` on need, until standard input ends
    #[arg(long, hide = true)]
    build_ahead: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tier {
    /// Everything that needs nothing but Rust and a C compiler; doc tests too
    Unit,
    /// tests/root_*: namespaces, veth, AF_PACKET, AF_XDP
    Root,
    /// Tests named real_*, on the data that TIDEMILL_DATA names
    Real,
    /// Concurrency: small cases under the model checker, tests with threads under ThreadSanitizer
    Model,
    /// The runners of peers build and answer like the reference
    Peers,
    /// Every fuzz target for a few seconds
    Fuzz,
    /// The README's first command, its output judged by tshark; the router on a wire (root)
    Examples,
}

impl Tier {
    const ALL: [(Tier, &str); 7] = [
        (Tier::Unit, "unit"),
        (Tier::Root, "root"),
        (Tier::Real, "real"),
        (Tier::Model, "model"),
        (Tier::Peers, "peers"),
        (Tier::Fuzz, "fuzz"),
        (Tier::Examples, "examples"),
    ];
}

/// How many tests of a tier ended how.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Totals {
    /// Counts and names a skipped test.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("skipped: {name} ({reason})");
        self.skipped += 1;
    }

    /// Counts a test that is not one of cargo's.
    pub(crate) fn count(&mut self, name: &str, passed: bool) {
        println!("{}: {name}", if passed { "passed" } else { "FAILED" });
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The tier of the examples by itself.
pub(crate) fn examples_tier() -> Result<Totals> {
    examples::run()
}

/// The demonstration of the router on a wire by itself; what it says.
pub(crate) fn wire_demo(router: &str) -> Result<String> {
    examples::wire_demo(router)
}

/// The tier of the real data by itself.
pub(crate) fn real_tier() -> Result<Totals> {
    harness::real()
}

/// The tests with threads of one package, under ThreadSanitizer.
pub(crate) fn sanitized(package: &str) -> Result<Totals> {
    harness::sanitized(package)
}

/// Whether no test failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.build_ahead {
        return ahead::build();
    }
    if !setup::run(&setup::Options::default())? && env::in_ci() {
        bail!("set-up failed, and nothing may be skipped in CI");
    }
    let mut total = Totals::default();
    let mut ahead = if options.tier.is_none() { build_first()? } else { None };
    for (tier, name) in Tier::ALL {
        if options.tier.is_some_and(|only| only != tier) {
            continue;
        }
        println!("== tier {name}");
        let start = Instant::now();
        // From here on there is more to compute than to wait for.
        if tier == Tier::Real
            && let Some(ahead) = ahead.take()
        {
            ahead.end();
        }
        let totals = match tier {
            Tier::Unit => harness::unit(),
            Tier::Root => harness::root(),
            Tier::Real => harness::real(),
            Tier::Model => harness::model(),
            Tier::Peers => peers::run(),
            Tier::Fuzz => fuzz::tier(options.fuzz_seconds),
            Tier::Examples => examples::run(),
        };
        let totals = totals.unwrap_or_else(|error| {
            println!("FAILED: tier {name}: {error:#}");
            Totals { failed: 1, ..Totals::default() }
        });
        println!("== tier {name}: {totals} in {:.1} s", start.elapsed().as_secs_f64());
        total += totals;
    }
    let said = harness::failures();
    if !said.is_empty() {
        println!("== once more, what failed");
        said.iter().for_each(|line| println!("{line}"));
    }
    println!("{total}");
    Ok(total.failed == 0)
}

/// Builds the tests of `unit` and `root`; then a process begins to build what the tiers behind them need.
fn build_first() -> Result<Option<ahead::Ahead>> {
    println!("== build");
    let start = Instant::now();
    if let Err(error) = harness::build() {
        // The tier that needs it fails of it again, and is counted.
        println!("{error:#}");
        return Ok(None);
    }
    println!("== build: {:.1} s", start.elapsed().as_secs_f64());
    ahead::Ahead::start()
}
