//! `tidemill bench nf`, as a user sees it. No times are judged.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use tool::Folder;

const SHORT: &str = "--seconds 0.0001 --runs 2";

/// Each case has its rates and a ratio to the bound. Every packet is what its case is about: the bench itself refuses a run in which one was not.
fn each_has_rates(options: &str, cases: &[(&str, &str)]) {
    let lines = Folder::new().ok(&format!("bench nf {options} {SHORT} --json")).json();
    let of = |case: &str, subject: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["case"] == case && line["subject"] == subject).collect()
    };
    for &(case, subject) in cases {
        for subject in [subject, "bound"] {
            let [line] = of(case, subject)[..] else { panic!("{case}, {subject}: {lines:?}") };
            assert!(line["value"].as_f64().unwrap() > 0.0 && line["metric"] == "mpps" && line["runs"] == 2);
        }
        let ratio = lines.iter().find(|line| line["case"] == case && line["metric"] == "ratio").unwrap();
        assert_eq!(
            (&ratio["of"], &ratio["to"], &ratio["pairs"]),
            (&subject.into(), &"bound".into(), &2.into())
        );
    }
}

#[test]
fn the_filter_has_its_rates_and_a_ratio_to_the_bound() {
    let cases = [
        ("established/1K/50 rules", "filter"),
        ("established/3K/50 rules", "filter"),
        ("established-tcp/1K/50 rules", "filter"),
        ("established-tcp/3K/50 rules", "filter"),
        ("new/50 rules", "filter"),
    ];
    each_has_rates(
        "--case established,established-tcp,new --flows 1k,3000 --rules 50 --entries 2^11",
        &cases,
    );
}

/// TCP and UDP, each header a connection that is new whenever it comes.
#[test]
fn an_access_list_has_its_rates_on_its_trace() {
    let folder = Folder::new();
    let rule = |n| format!("@10.0.{n}.0/24 0.0.0.0/0 0 : 65535 {n} : 100 0x06/0xFF\n");
    let header = |n: u32| {
        let (source, port) = (0x0a00_0001 + n, 1024 + n);
        format!("{source}\t203569230\t{port}\t80\t{}\t-1\n", if n.is_multiple_of(2) { 6 } else { 17 })
    };
    let (rules, trace): (String, String) = ((0..50).map(rule).collect(), (0..1200).map(header).collect());
    folder.write("a.rules", rules).write("a.trace", trace).write("few.trace", header(1));
    let lines =
        folder.ok(&format!("bench nf --case new --acl a.rules --trace a.trace {SHORT} --json")).json();
    for subject in ["filter", "bound"] {
        let is = |line: &&Value| line["case"] == "new/a" && line["subject"] == subject;
        let line = lines.iter().find(is).unwrap();
        assert!(line["value"].as_f64().unwrap() > 0.0 && line["params"]["rules"] == 51, "{line}");
    }
    folder.fail(&[
        ("bench nf --case new --acl a.rules --trace few.trace", 2, "give a trace with 1024 or more"),
        ("bench nf --acl a.rules --trace a.trace", 2, "give --case new"),
        ("bench nf --case new --acl a.rules", 2, "--trace"),
        ("bench nf --case new --acl no.rules --trace a.trace", 2, "no.rules"),
    ]);
}

#[test]
fn nat_has_its_rates_and_a_ratio_to_the_bound() {
    each_has_rates("--case nat --flows 1k,3000", &[("nat/1K", "nat"), ("nat/3K", "nat")]);
    let folder = Folder::new();
    let text = folder.ok(&format!("bench nf --case nat --flows 500 {SHORT}")).out;
    assert!(text.contains("nat/500, nat: ") && text.contains("nat to bound: "), "{text}");
}

#[test]
fn mistakes_get_one_line() {
    Folder::new().fail(&[
        ("bench nf --case router", 2, "established"),
        ("bench nf --flows 9M", 2, "give 1500000 at most"),
        ("bench nf --flows 3", 2, "2^20, 1M"),
        ("bench nf --rules 0", 2, "--rules"),
        ("bench nf --runs 1", 2, "2 runs or more"),
        ("bench nf --seconds 0", 2, "--seconds"),
        #[cfg(all(feature = "xdp", target_os = "linux"))]
        ("bench nf --wire --flows 1k", 2, "cannot be used with"),
        #[cfg(all(feature = "xdp", target_os = "linux"))]
        ("bench nf --wire --case established-tcp", 2, "leave --case established-tcp out"),
    ]);
}
