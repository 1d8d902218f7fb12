//! The tier `peers`: the runners build, and answer like the reference on small tables: of routes with everything nested, of
//! flows with keys of every width, of rules; DPDK's forwarder sends what it has to.

use super::Totals;
use crate::{env, peers};
use anyhow::Result;

/// A check and what it is called.
type Check = (&'static str, fn() -> Result<bool>);

const CHECKS: &[Check] = &[
    ("peers::lpm_checksums_ipv4", || peers::lpm::self_check(4)),
    ("peers::lpm_checksums_ipv6", || peers::lpm::self_check(6)),
    ("peers::flow_checksums", peers::flow::self_check),
    ("peers::classify_checksums", peers::classify::self_check),
    ("peers::forwarder_checksums", peers::port::self_check),
];

pub(crate) fn run() -> Result<Totals> {
    let mut totals = Totals::default();
    for (name, check) in CHECKS {
        match peers::missing() {
            // In CI the build below says what is missing, by failing.
            Some(what) if !env::in_ci() => totals.skip(name, &what),
            _ => {
                let passed = check();
                if let Err(error) = &passed {
                    println!("{error:#}");
                }
                totals.count(name, passed.unwrap_or(false));
            }
        }
    }
    Ok(totals)
}
