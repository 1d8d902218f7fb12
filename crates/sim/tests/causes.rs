//! Where we differ from what the paper states, the cause that is given is taken away, and what is left is within a fifth of the paper's number.
#![allow(clippy::unwrap_used)] // a test may

use tidemill_sim::study::Options;
use tidemill_sim::study::functions::{self, Function};
use tidemill_sim::study::headlines::{ALL, BESIDE_A_SWITCH, Headline, worked};
use tidemill_sim::study::run::Series;
use tidemill_sim::study::smt::losses;

fn options() -> Options {
    Options { lookups: 2400, warm: 800, ..Options::default() }
}

fn is_near(headline: &Headline) -> bool {
    Headline { without: headline.ours, ..headline.clone() }.is_explained()
}

#[test]
fn what_the_paper_states_is_met_or_its_cause_explains_it() {
    for find in ALL {
        let headline = find(&Options { lookups: 1200, warm: 400, ..Options::default() }).unwrap();
        assert!(headline.is_explained(), "{headline:?}");
        // Where no cause is named there is none to name.
        assert!(!headline.cause.is_empty() || is_near(&headline), "{headline:?}");
    }
}

/// Ranges that meet say little of three functions: each by itself comes to what the paper's gain, within a fifth, and needs work beside for that if it gains more
/// without.
#[test]
fn each_function_gains_what_the_papers_do_with_the_work_that_is_its_cause() {
    let is_near = |gain: f64| (0.8 * 2.3..=1.2 * 2.7).contains(&gain);
    for function in functions::ALL {
        // NAT does as it is, once most of its translations have been touched.
        let (needs_none, warm) = if function == Function::Nat { (true, 20_000) } else { (false, 400) };
        let worked = worked(function, &Options { lookups: 1200, warm, ..Options::default() }).unwrap();
        assert!(is_near(worked.gain), "{function:?}: {worked:?}");
        assert_eq!(is_near(worked.bare), needs_none, "{function:?}: {worked:?}");
    }
}

/// HALO leaves the core alone. Beside software the ranges meet as they are, for one function waits least and loses of the front end: what the cause explains is only that the others lose more
/// where they need it too. That is not yet what the paper's lose.
#[test]
fn who_runs_beside_a_switch_loses_to_software_and_not_to_halo() {
    let [software, halo] = BESIDE_A_SWITCH.map(|find| find(&options()).unwrap());
    assert!(software.without[0] > software.ours[0], "{software:?}");
    // Of all three, the ACL first: as much as the least of the paper's, within a fifth.
    assert!(software.without[1] >= 0.8 * software.paper[0], "{software:?}");
    assert!(halo.ours[1] < 3.2, "{halo:?}");
    // Two threads of LOOKUP_B take nothing even from those that need L1.
    let beside_halo = losses(Series::Blocking, 100_000, true, &options()).unwrap();
    assert!(beside_halo[1] < 3.2, "{beside_halo:?}");
}
