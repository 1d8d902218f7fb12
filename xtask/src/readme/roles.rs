//! Tables of the other roles: the mitigator, the Gatekeeper, the cache before memcached.

use super::{Recorded, figure, head, row, tables, text};
use anyhow::Result;
use serde_json::Value;

pub(super) fn roles() -> Result<String> {
    tables(&[("bench-amp", amp), ("bench-gate", gate), ("gate-ways", super::gate::ways), ("bench-kv", kv)])
}

/// Families and numbers of flows, as columns.
const COLUMNS: [(u64, u64, &str); 4] = [
    (4, 1000, "IPv4, 1,000 flows"),
    (4, 262_144, "IPv4, 262,144"),
    (6, 1000, "IPv6, 1,000"),
    (6, 262_144, "IPv6, 262,144"),
];

/// One row per case, one column per family and number of flows.
fn amp(recorded: &Recorded) -> String {
    let mut out = "The mitigator, Mpps of the shortest DNS responses; in brackets of a bridge that looks at nothing.\n\n".to_owned();
    out += &head(&[&["responses"][..], &COLUMNS.map(|(.., name)| name)].concat());
    for (case, name) in [
        ("dns/suspected", "to a new flow each (of any number)"),
        ("dns/known", "of suspected flows"),
        ("dns/filtered", "of filtered flows"),
        ("dns/mixed", "of both"),
    ] {
        let cells = COLUMNS.iter().map(|(family, flows, _)| {
            let is_it = |line: &Value| {
                let params = &line["params"];
                let fits = params["flows"].is_null() || params["flows"] == *flows;
                line["case"] == case && line["metric"] == "mpps" && params["family"] == *family && fits
            };
            let value = |subject: &str| {
                let line = recorded.lines.iter().find(|line| is_it(line) && line["subject"] == subject);
                line.and_then(|line| line["value"].as_f64())
            };
            let ours = value("mitigator");
            match ours.zip(value("bound")) {
                Some((rate, bound)) => format!("{} ({:.2})", figure(ours), rate / bound),
                None => figure(ours),
            }
        });
        out += &row(std::iter::once(name.to_owned()).chain(cells));
    }
    out + &added(recorded)
}

/// What it adds to the time of a burst: one row per size of it. Nothing if that was not measured.
fn added(recorded: &Recorded) -> String {
    let mut bursts: Vec<u64> = Vec::new();
    for line in recorded.lines.iter().filter(|line| line["case"] == "latency") {
        let burst = line["params"]["burst"].as_u64();
        bursts.extend(burst.filter(|burst| !bursts.contains(burst)));
    }
    if bursts.is_empty() {
        return String::new();
    }
    let mut out =
        "\nWhat it adds to the time that a burst of suspected flows takes from coming in to going out (5.5.1 of the thesis): ns at the 50th and 99th percentile.\n\n".to_owned();
    out += &head(&[&["packets in a burst"][..], &COLUMNS.map(|(.., name)| name)].concat());
    for burst in bursts {
        let cells = COLUMNS.iter().map(|(family, flows, _)| {
            let value = |subject: &str, metric: &str| {
                let is_it = |line: &&Value| {
                    let params = &line["params"];
                    line["case"] == "latency"
                        && (line["subject"] == subject && line["metric"] == metric)
                        && (params["family"] == *family && params["flows"] == *flows)
                        && params["burst"] == burst
                };
                recorded.lines.iter().find(is_it).and_then(|line| line["value"].as_f64())
            };
            let more = |metric: &str| Some(value("mitigator", metric)? - value("bound", metric)?);
            match (more("p50_ns"), more("p99_ns")) {
                (Some(p50), Some(p99)) => format!("{p50:.0}, {p99:.0}"),
                _ => "-".to_owned(),
            }
        });
        out += &row(std::iter::once(burst.to_string()).chain(cells));
    }
    out
}

fn gate(recorded: &Recorded) -> String {
    let mut out = "The Gatekeeper, 60-byte packets, one core.\n\n".to_owned();
    out += &head(&["case", "Mpps"]);
    for line in
        recorded.lines.iter().filter(|line| line["subject"] == "gatekeeper" && line["metric"] == "mpps")
    {
        let case = text(line, "case");
        let what = match case.split_once('/') {
            Some(("worst", size)) => {
                // Records from before parts were told apart have none, and their tables did not always get full.
                let param = |name: &str| line["params"][name].as_f64().unwrap_or_default();
                let came = line["value"].as_f64().unwrap_or_default() * 1e6 * param("seconds");
                let filled = if came > 1.1 * param("flows") { "filling and full" } else { "filling" };
                let part = |metric: &str| recorded.value("gatekeeper", &case, metric);
                match (part("mpps_filling"), part("mpps_full")) {
                    (Some(filling), Some(full)) => format!(
                        "every packet a new flow, table of {size}: filling ({}), then full ({})",
                        figure(Some(filling)),
                        figure(Some(full))
                    ),
                    _ => format!("every packet a new flow, table of {size}, {filled}"),
                }
            }
            Some(("granted", flows)) => format!("{flows} granted flows"),
            _ => case,
        };
        out += &row([what, figure(line["value"].as_f64())]);
    }
    out
}

/// One row per subject.
fn kv(recorded: &Recorded) -> String {
    let mut out = "Gets of memcached over a virtual cable, memcached's side on one core for the rates; round trip and residence are taken one get at a time, and a get that the kernel answers is answered on the sender's core; microseconds at the 50th and 99th percentile.\n\n".to_owned();
    out += &head(&[
        "subject",
        "gets/s, all in the cache",
        "round trip",
        "residence",
        "gets/s, nothing cacheable",
        "gets/s, Zipf 0.99 over 1 M keys",
    ]);
    for subject in recorded.subjects() {
        let rate = |case: &str| {
            let ratio = recorded.lines.iter().find(|line| {
                line["metric"] == "ratio" && line["case"] == case && line["to"] == subject.as_str()
            });
            let rate = recorded.value(&subject, case, "ops").map(|rate| rate / 1e3);
            match ratio {
                Some(ratio) => {
                    let part = |name: &str| ratio[name].as_f64().unwrap_or(f64::NAN);
                    let (value, low, high) = (part("value"), part("low"), part("high"));
                    format!("{} k; ours **{value:.2}** times ({low:.2} to {high:.2})", figure(rate))
                }
                None if rate.is_none() => "-".to_owned(),
                None => format!("{} k", figure(rate)),
            }
        };
        let times = |before: &str| {
            let us = |at: &str| {
                figure(recorded.value(&subject, "latency", &format!("{before}{at}_ns")).map(|ns| ns / 1e3))
            };
            format!("{}, {}", us("p50"), us("p99"))
        };
        out += &row([
            subject.clone(),
            rate("hits"),
            times(""),
            times("residence_"),
            rate("uncacheable"),
            rate("zipf"),
        ]);
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const HEADER: &str = r#"{"v":1,"record":"x","commit":"0123456789abcdef","cpu":"C","cores":2,"date":"2026-05-11T10:00:00Z","load":0.5}"#;

    pub(in crate::readme) fn recorded(lines: &[&str]) -> Recorded {
        Recorded::parse(&[&[HEADER], lines].concat().join("\n")).unwrap()
    }

    #[test]
    fn a_case_stands_by_family_and_flows() {
        let table = amp(&recorded(&[
            r#"{"subject":"mitigator","case":"dns/known","metric":"mpps","value":50,"params":{"family":4,"flows":1000}}"#,
            r#"{"subject":"bound","case":"dns/known","metric":"mpps","value":100,"params":{"family":4,"flows":1000}}"#,
            r#"{"subject":"mitigator","case":"dns/known","metric":"mpps","value":40,"params":{"family":6,"flows":262144}}"#,
        ]));
        assert!(table.contains("| of suspected flows | 50.0 (0.50) | - | - | 40.0 |\n"), "{table}");
        assert!(!table.contains("burst"), "what was not measured is not told: {table}");
    }

    #[test]
    fn what_it_adds_stands_by_bursts() {
        let line = |subject: &str, metric: &str, value: u32, burst: u32| {
            format!(
                r#"{{"subject":"{subject}","case":"latency","metric":"{metric}","value":{value},"params":{{"family":6,"flows":1000,"burst":{burst}}}}}"#
            )
        };
        let lines = [
            line("mitigator", "p50_ns", 260, 1),
            line("mitigator", "p99_ns", 330, 1),
            line("bound", "p50_ns", 220, 1),
            line("bound", "p99_ns", 241, 1),
            line("mitigator", "p50_ns", 500, 32),
        ];
        let table = amp(&recorded(&lines.each_ref().map(String::as_str)));
        assert!(table.contains("| 1 | - | - | 40, 89 | - |\n| 32 | - | - | - | - |\n"), "{table}");
    }

    #[test]
    fn a_subject_stands_with_our_ratio_to_it() {
        let table = kv(&recorded(&[
            r#"{"subject":"us","case":"hits","metric":"ops","value":1600000}"#,
            r#"{"subject":"us","case":"latency","metric":"p50_ns","value":5700}"#,
            r#"{"subject":"peer","case":"hits","metric":"ops","value":100000}"#,
            r#"{"case":"hits","metric":"ratio","of":"us","to":"peer","value":16,"low":15,"high":17}"#,
        ]));
        assert!(table.contains("| us | 1600 k | 5.70, - | -, - | - | - |\n"), "{table}");
        assert!(table.contains("| peer | 100 k; ours **16.00** times (15.00 to 17.00) | -, - |"), "{table}");
    }

    #[test]
    fn a_gatekeepers_case_is_told_in_words() {
        let table = gate(&recorded(&[
            r#"{"subject":"gatekeeper","case":"worst/2^20","metric":"mpps","value":21.78,"params":{"flows":1048576,"seconds":0.5}}"#,
            r#"{"subject":"gatekeeper","case":"worst/2^24","metric":"mpps","value":17.03,"params":{"flows":16777216,"seconds":0.5}}"#,
            r#"{"subject":"bound","case":"worst/2^20","metric":"mpps","value":152}"#,
            r#"{"subject":"gatekeeper","case":"worst/2^25","metric":"mpps","value":12.1}"#,
            r#"{"subject":"gatekeeper","case":"worst/2^25","metric":"mpps_filling","value":9.25}"#,
            r#"{"subject":"gatekeeper","case":"worst/2^25","metric":"mpps_full","value":17.5}"#,
        ]));
        for row in ["table of 2^20, filling and full | 21.8 |\n", "table of 2^24, filling | 17.0 |\n"] {
            assert!(table.contains(&format!("| every packet a new flow, {row}")), "{table}");
        }
        let whole = "| every packet a new flow, table of 2^25: filling (9.25), then full (17.5) | 12.1 |\n";
        assert!(table.contains(whole), "{table}");
        assert!(!table.contains("152"), "{table}");
    }
}
