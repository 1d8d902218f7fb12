//! Tables of the switch and its rules: HALO's traffic cases, floods, Open vSwitch and `rte_acl` beside ours.

use super::{Paired, Recorded, figure, head, paired, row, tables, text};
use anyhow::Result;

pub(super) fn classify() -> Result<String> {
    tables(&[("bench-classify", switch), ("peers-ovs", open_vswitch), ("peers-classify", acl)])
}

/// One row per traffic case, then one per flood.
fn switch(recorded: &Recorded) -> String {
    let mut out = "The switch on one core, on HALO's five traffic cases. Cycles are the time stamp counter's; those of exact matches and megaflows are told by a stopwatch, in runs of their own.\n\n".to_owned();
    out +=
        &head(&["traffic", "flows", "rules", "Mpps", "cycles per packet", "for exact matches and megaflows"]);
    for line in recorded.lines.iter().filter(|line| line["subject"] == "switch" && line["metric"] == "mpps") {
        let case = text(line, "case");
        let value = |metric: &str| recorded.value("switch", &case, metric);
        let number =
            |name: &str| line["params"][name].as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
        let caches = value("exact_cycles").zip(value("megaflow_cycles")).map(|(exact, mega)| exact + mega);
        out += &row([
            case.trim_end_matches("/v4").to_owned(),
            number("flows"),
            number("rules"),
            figure(value("mpps")),
            figure(value("cycles_per_packet")),
            figure(caches),
        ]);
    }
    out + &floods(recorded)
}

/// What traffic has before a flood, what there is meanwhile, and after it. Nothing if that was not measured.
fn floods(recorded: &Recorded) -> String {
    let slower = recorded.lines.iter().filter(|line| line["metric"] == "slower");
    let cases = distinct(slower.map(|line| text(line, "case")));
    if cases.is_empty() {
        return String::new();
    }
    let mut out = "\nFloods, and the same traffic before and after them: Mpps.\n\n".to_owned();
    out += &head(&[
        "flood",
        "before",
        "meanwhile",
        "times slower",
        "at 90 % again within, ms",
        "times the rate of the rules without caches",
    ]);
    for case in cases {
        let value = |metric: &str| recorded.value("switch", &case, metric);
        let recovery = match value("recovery_ms") {
            // The benchmark's number for a recovery that did not come.
            Some(ms) if ms >= 1e9 => "never".to_owned(),
            ms => figure(ms),
        };
        let ratio = recorded.lines.iter().find(|line| {
            line["metric"] == "ratio" && line["case"] == case.as_str() && line["to"] == "rules-alone"
        });
        let ratio = ratio.map_or_else(
            || "-".to_owned(),
            |ratio| {
                let number = |field: &str| ratio[field].as_f64().unwrap_or(f64::NAN);
                format!("**{:.2}** ({:.2} to {:.2})", number("value"), number("low"), number("high"))
            },
        );
        out += &row([
            flood(&case),
            figure(value("before_mpps")),
            figure(value("flood_mpps")),
            figure(value("slower")),
            recovery,
            ratio,
        ]);
    }
    let after = |metric: &str| recorded.value("switch", "flood/masks-recovery", metric);
    if let (Some(first), Some(next), Some(kept)) =
        (after("missed_first_share"), after("missed_next_share"), after("kept"))
    {
        out += &format!(
            "\nAfter the flood of masks comes traffic whose mask is new: the rules decided {:.2} % of it in the first second, {:.2} % in the next; its rate then was {kept:.2} of that before a flood.\n",
            100.0 * first,
            100.0 * next
        );
    }
    out
}

/// A flood's case in words.
fn flood(case: &str) -> String {
    match case.strip_prefix("flood/") {
        Some("masks") => "few: each packet may want another of hundreds of masks".to_owned(),
        Some(rest) => {
            let (share, traffic) = rest.split_once('/').unwrap_or((rest, "few"));
            format!("{traffic}: {share} % of the packets make a megaflow each")
        }
        None => case.to_owned(),
    }
}

/// One row per traffic case, one column per form of the peer.
fn open_vswitch(recorded: &Recorded) -> String {
    let pairs = paired(recorded, "mpps");
    let peers = distinct(pairs.iter().map(|pair| pair.text("to")));
    let mut out = "The switch to Open vSwitch with DPDK, on one core. Each cell: ratio (95 % interval): our Mpps to the peer's.\n\n".to_owned();
    out += &head(&[&["traffic"][..], &short(&peers)[..]].concat());
    for case in distinct(pairs.iter().map(|pair| pair.text("case"))) {
        let name = case.trim_start_matches("traffic/").to_owned();
        out += &row(std::iter::once(name).chain(peers.iter().map(|peer| cell(&pairs, &case, peer))));
    }
    out
}

/// One row per rule set, one column per method of the peer, and one of changes.
fn acl(recorded: &Recorded) -> String {
    let pairs = paired(recorded, "mlps");
    let peers = distinct(pairs.iter().map(|pair| pair.text("to")));
    let mut out = "Rules to DPDK's `rte_acl`, on ClassBench sets and their traces. Each cell: ratio (95 % interval): our M lookups/s to the peer's. The last column: changes a second, each published on its own, beside the peer's method that is quickest at them; it builds anew for each.\n\n".to_owned();
    out += &head(&[&["set"][..], &short(&peers)[..], &["changes/s"]].concat());
    for set in distinct(pairs.iter().map(set)) {
        let (lookup, update) = (format!("{set}/lookup"), format!("{set}/update"));
        let its = |pair: &&Paired<'_>| pair.ratio["case"] == update.as_str();
        let quickest =
            (pairs.iter().filter(its)).min_by(|a, b| a.number("value").total_cmp(&b.number("value")));
        let cells = peers.iter().map(|peer| cell(&pairs, &lookup, peer));
        let last = quickest.map_or_else(|| "-".to_owned(), changes);
        out += &row(std::iter::once(structure(recorded, &pairs, &set)).chain(cells).chain([last]));
    }
    out
}

/// The set of a case such as `wustl-acl1/lookup`.
fn set(pair: &Paired<'_>) -> String {
    let case = pair.text("case");
    case.rsplit_once('/').map_or_else(|| case.clone(), |(set, _)| set.to_owned())
}

/// A set, how many rules it has, and what of ours has them.
fn structure(recorded: &Recorded, pairs: &[Paired<'_>], name: &str) -> String {
    let ours = pairs.iter().find(|pair| set(pair) == name).map(|pair| pair.text("of")).unwrap_or_default();
    let build = format!("{name}/build");
    let line =
        recorded.lines.iter().find(|line| line["case"] == build.as_str() && line["subject"] == ours.as_str());
    match line.and_then(|line| line["entries"].as_u64()) {
        Some(rules) => format!("{name}, {rules} rules: {ours}"),
        None => format!("{name}: {ours}"),
    }
}

/// Changes are few: rates are per second, and ratios large. One build of theirs, of a large set, makes no interval.
fn changes(pair: &Paired<'_>) -> String {
    let number = |field: &str| figure(Some(pair.number(field)));
    let rate = |millions: Option<f64>| figure(millions.map(|rate| 1e6 * rate));
    let interval = match pair.ratio["pairs"].as_u64() {
        Some(1) => "one build of the peer's".to_owned(),
        _ => format!("{} to {}", number("low"), number("high")),
    };
    format!("**{}** ({interval}): {} to {}", number("value"), rate(pair.ours), rate(pair.theirs))
}

/// The cell of a case and a peer.
fn cell(pairs: &[Paired<'_>], case: &str, peer: &str) -> String {
    let is_it = |pair: &&Paired<'_>| pair.ratio["case"] == case && pair.ratio["to"] == peer;
    pairs.iter().find(is_it).map_or_else(|| "-".to_owned(), Paired::cell)
}

fn short(peers: &[String]) -> Vec<&str> {
    peers.iter().map(|peer| peer.trim_start_matches("peer:")).collect()
}

/// Each once, in the order of the first.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::super::roles::tests::recorded;
    use super::*;

    #[test]
    fn a_traffic_case_stands_with_its_cycles() {
        let table = switch(&recorded(&[
            r#"{"subject":"switch","case":"few/v4","metric":"mpps","value":14.04,"params":{"flows":10000,"rules":1}}"#,
            r#"{"subject":"switch","case":"few/v4","metric":"cycles_per_packet","value":185.2}"#,
            r#"{"subject":"switch","case":"few/v4","metric":"exact_cycles","value":10.5}"#,
            r#"{"subject":"switch","case":"few/v4","metric":"megaflow_cycles","value":40}"#,
            r#"{"subject":"switch-timed","case":"few/v4","metric":"mpps","value":13.5,"params":{"flows":10000,"rules":1}}"#,
            r#"{"subject":"switch","case":"rules-1M/v6","metric":"mpps","value":5,"params":{"flows":1000000,"rules":20}}"#,
            r#"{"subject":"cache","case":"caches/few","metric":"mlps","value":77.7}"#,
        ]));
        let rows = "|---|---:|---:|---:|---:|---:|\n| few | 10000 | 1 | 14.0 | 185 | 50.5 |\n\
                    | rules-1M/v6 | 1000000 | 20 | 5.00 | - | - |\n";
        assert!(table.ends_with(rows), "what was not measured is not told: {table}");
    }

    #[test]
    fn a_flood_is_told_in_words() {
        let line = |case: &str, metric: &str, value: f64| {
            format!(r#"{{"subject":"switch","case":"{case}","metric":"{metric}","value":{value}}}"#)
        };
        let mut lines = vec![
            line("flood/100", "before_mpps", 12.0),
            line("flood/100", "flood_mpps", 5.0),
            line("flood/100", "slower", 2.4),
            line("flood/100", "recovery_ms", 50.0),
            line("flood/50/rules-100k", "slower", 1.5),
            line("flood/50/rules-100k", "recovery_ms", 1e9),
            line("flood/masks", "flood_mpps", 2.5),
            r#"{"subject":"rules-alone","case":"flood/masks","metric":"flood_mpps","value":2.6}"#.to_owned(),
            line("flood/masks", "slower", 4.75),
            r#"{"case":"flood/masks","metric":"ratio","of":"switch","to":"rules-alone","value":0.96,"low":0.9,"high":1.02}"#.to_owned(),
        ];
        let table =
            |lines: &[String]| switch(&recorded(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
        let without = table(&lines);
        let rows = "| few: 100 % of the packets make a megaflow each | 12.0 | 5.00 | 2.40 | 50.0 | - |\n\
                    | rules-100k: 50 % of the packets make a megaflow each | - | - | 1.50 | never | - |\n\
                    | few: each packet may want another of hundreds of masks | - | 2.50 | 4.75 | - | **0.96** (0.90 to 1.02) |\n";
        assert!(without.ends_with(rows), "{without}");
        lines.extend([
            line("flood/masks-recovery", "missed_first_share", 0.0125),
            line("flood/masks-recovery", "missed_next_share", 0.0001),
            line("flood/masks-recovery", "kept", 0.984),
        ]);
        let with = table(&lines);
        assert!(
            with.contains("1.25 % of it in the first second, 0.01 % in the next; its rate then was 0.98 "),
            "{with}"
        );
    }

    #[test]
    fn a_traffic_case_stands_beside_each_form_of_open_vswitch() {
        let table = open_vswitch(&recorded(&[
            r#"{"subject":"switch","case":"traffic/few","metric":"mpps","value":14}"#,
            r#"{"subject":"peer:ovs","case":"traffic/few","metric":"mpps","value":4}"#,
            r#"{"case":"traffic/few","metric":"ratio","of":"switch","to":"peer:ovs","value":3.5,"low":3.4,"high":3.6,"pairs":7}"#,
            r#"{"subject":"switch","case":"traffic/many-1","metric":"mpps","value":13}"#,
            r#"{"subject":"peer:ovs-smc","case":"traffic/many-1","metric":"mpps","value":5}"#,
            r#"{"case":"traffic/many-1","metric":"ratio","of":"switch","to":"peer:ovs-smc","value":2.6,"low":2.5,"high":2.7,"pairs":7}"#,
            // With the next peer the same case has another rate of ours.
            r#"{"subject":"switch","case":"traffic/few","metric":"mpps","value":12}"#,
            r#"{"subject":"peer:ovs-smc","case":"traffic/few","metric":"mpps","value":6}"#,
            r#"{"case":"traffic/few","metric":"ratio","of":"switch","to":"peer:ovs-smc","value":2,"low":1.9,"high":2.1,"pairs":7}"#,
        ]));
        let rows = "| traffic | ovs | ovs-smc |\n|---|---:|---:|\n\
                    | few | **3.50** (3.40 to 3.60): 14.0 to 4.00 | **2.00** (1.90 to 2.10): 12.0 to 6.00 |\n\
                    | many-1 | - | **2.60** (2.50 to 2.70): 13.0 to 5.00 |\n";
        assert!(table.ends_with(rows), "{table}");
    }

    #[test]
    fn changes_stand_beside_the_quickest_peer() {
        let pair = |case: &str, to: &str, [ours, theirs, pairs]: [f64; 3]| {
            let value = ours / theirs;
            [
                format!(r#"{{"subject":"tuple-merge","case":"{case}","metric":"mlps","value":{ours}}}"#),
                format!(r#"{{"subject":"{to}","case":"{case}","metric":"mlps","value":{theirs}}}"#),
                format!(
                    r#"{{"case":"{case}","metric":"ratio","of":"tuple-merge","to":"{to}","value":{value},"low":{value},"high":{value},"pairs":{pairs}}}"#
                ),
            ]
        };
        let mut lines = vec![
            r#"{"subject":"tuple-merge","case":"s/build","metric":"bytes","value":9,"entries":752}"#
                .to_owned(),
        ];
        for (case, to, numbers) in [
            ("s/lookup", "peer:rte_acl-a", [60.0, 30.0, 21.0]),
            ("s/update", "peer:rte_acl-a", [0.25, 0.000_002, 3.0]),
            ("s/lookup", "peer:rte_acl-b", [60.0, 40.0, 21.0]),
            ("s/update", "peer:rte_acl-b", [0.25, 0.000_004, 3.0]),
            ("large/lookup", "peer:rte_acl-b", [30.0, 60.0, 21.0]),
            ("large/update", "peer:rte_acl-b", [0.125, 0.000_000_25, 1.0]),
        ] {
            lines.extend(pair(case, to, numbers));
        }
        let table = acl(&recorded(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
        let rows = "| set | rte_acl-a | rte_acl-b | changes/s |\n|---|---:|---:|---:|\n\
                    | s, 752 rules: tuple-merge | **2.00** (2.00 to 2.00): 60.0 to 30.0 | **1.50** (1.50 to 1.50): 60.0 to 40.0 | **62500** (62500 to 62500): 250000 to 4.00 |\n\
                    | large: tuple-merge | - | **0.50** (0.50 to 0.50): 30.0 to 60.0 | **500000** (one build of the peer's): 125000 to 0.25 |\n";
        assert!(table.ends_with(rows), "{table}");
    }
}
