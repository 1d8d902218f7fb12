//! `tidemill bench amp`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use std::collections::BTreeSet;
use tool::Folder;

#[test]
fn every_case_is_measured_beside_its_bound() {
    let lines =
        Folder::new().ok("bench amp --seconds 0.01 --runs 2 --flows 100,50000 --bursts 32 --json").json();
    let rate = |case: &str, subject: &str, family: u64, flows: Option<u64>| {
        let found = lines.iter().filter(|line| {
            let params = &line["params"];
            line["metric"] == "mpps"
                && line["case"] == case
                && line["subject"] == subject
                && params["family"].as_u64() == Some(family)
                && params["flows"].as_u64() == flows
        });
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "{case} {subject} IPv{family} {flows:?}");
        assert_eq!(found[0]["params"]["frame"], if family == 4 { 60 } else { 74 });
        assert!(
            found[0]["value"].as_f64().unwrap() > 0.0 && found[0]["runs"] == 2 && found[0]["bench"] == "amp"
        );
    };
    for family in [4, 6] {
        for subject in ["mitigator", "bound"] {
            rate("dns/suspected", subject, family, None);
            for case in ["dns/known", "dns/filtered", "dns/mixed", "dns/passing"] {
                rate(case, subject, family, Some(100));
                rate(case, subject, family, Some(50_000));
            }
        }
    }
    let ratios = lines.iter().filter(|line| line["metric"] == "ratio");
    assert_eq!(ratios.count(), 2 * (1 + 4 * 2));
    let latencies: BTreeSet<_> = lines
        .iter()
        .filter(|line| line["case"] == "latency")
        .map(|line| (line["subject"].as_str().unwrap(), line["metric"].as_str().unwrap()))
        .collect();
    assert_eq!(latencies.len(), 2 * 3, "{latencies:?}");
    let percentiles = |family: u64, flows: u64| {
        ["p50_ns", "p99_ns", "p999_ns"].map(|metric| {
            let found = lines.iter().find(|line| {
                line["metric"] == metric
                    && line["subject"] == "mitigator"
                    && line["params"]["family"] == family
                    && line["params"]["flows"] == flows
                    && line["params"]["burst"] == 32
            });
            found.unwrap()["value"].as_f64().unwrap()
        })
    };
    for (family, flows) in [(4, 100), (4, 50_000), (6, 100), (6, 50_000)] {
        let percentiles = percentiles(family, flows);
        assert!(percentiles[0] > 0.0, "{percentiles:?}");
    }
}

#[test]
fn wrong_words_get_a_line() {
    Folder::new().fail(&[
        ("bench amp --case dns", 2, "give some of dns/suspected"),
        ("bench amp --flows 0", 2, "--flows 0"),
        ("bench amp --family 5", 2, "--family 5"),
        ("bench amp --bursts 257", 2, "--bursts 257"),
        ("bench amp --runs 0", 2, "--runs"),
    ]);
}

#[test]
fn people_get_a_line_for_each() {
    let text = Folder::new()
        .ok("bench amp --case dns/filtered,latency --family 4 --flows 10 --bursts 1 --seconds 0.01 --runs 2")
        .out;
    assert!(
        text.contains("dns/filtered IPv4, 10 flows, mitigator: ") && text.contains("mitigator to bound: "),
        "{text}"
    );
    assert!(text.contains("latency IPv4, 10 flows, bursts of 1, bound: "), "{text}");
}
