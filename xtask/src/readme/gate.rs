//! The Gatekeeper's optimisations one by one (Fu 2020, Figure 4.6), and its orders and drivers of lookups.

use super::{Recorded, figure, head, row, text};
use crate::figures::GATE;
use anyhow::Result;
use serde_json::Value;

pub(super) fn fu_4_6() -> Result<String> {
    let recorded = Recorded::read(GATE)?;
    Ok(recorded.map_or_else(String::new, |recorded| format!("{}\n{}", recorded.origin(), steps(&recorded))))
}

/// Each once, in the order of their first appearance.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Which two variants it is of.
fn step(ratio: &Value) -> String {
    format!("{} to {}", text(ratio, "of"), text(ratio, "to"))
}

/// A ratio with its interval.
fn interval(ratio: &Value) -> String {
    let part = |name: &str| ratio[name].as_f64().unwrap_or(f64::NAN);
    format!("**{:.2}** ({:.2} to {:.2})", part("value"), part("low"), part("high"))
}

/// Of each configuration a row per step, a column per size of the table.
fn steps(recorded: &Recorded) -> String {
    let mut out = String::new();
    for (configuration, what) in [("paper", "The paper's configuration"), ("ours", "On our table")] {
        let before = format!("{GATE}/{configuration}/");
        let unit = format!("ratio of packets a second, {configuration}, ");
        let is_ratio = |line: &&Value| line["metric"] == "ratio" && text(line, "case").starts_with(&before);
        let ratios: Vec<&Value> = recorded.lines.iter().filter(is_ratio).collect();
        let is_point = |line: &&Value| line["figure"] == GATE && text(line, "unit").starts_with(&unit);
        let points: Vec<&Value> = recorded.lines.iter().filter(is_point).collect();
        let sizes = distinct(ratios.iter().map(|line| text(line, "case").replace(&before, "")));
        // Steps have a name in the drawing and two ends in the ratios, and one order in both.
        let names = distinct(points.iter().map(|point| text(point, "series")));
        let ends = distinct(ratios.iter().map(|line| step(line)));
        let gap = if out.is_empty() { "" } else { "\n" };
        out = format!(
            "{out}{gap}{what}: packets a second, as ratios with 95 % intervals; what the paper states beside.\n\n"
        );
        let columns = std::iter::once("optimisation").chain(sizes.iter().map(String::as_str));
        out += &head(&columns.collect::<Vec<_>>());
        for (name, ends) in names.iter().zip(&ends) {
            let cells = sizes.iter().map(|size| {
                let case = format!("{before}{size}");
                let ratio = ratios.iter().find(|line| step(line) == *ends && line["case"] == case.as_str());
                let stated = points
                    .iter()
                    .find(|point| point["series"] == name.as_str() && point["x"] == size.as_str())
                    .and_then(|point| point["paper"].as_f64());
                match (ratio, stated) {
                    (Some(ratio), Some(stated)) => format!("{}; paper {stated}", interval(ratio)),
                    (Some(ratio), None) => interval(ratio),
                    (None, _) => "-".to_owned(),
                }
            });
            out += &row(std::iter::once(format!("{name} ({ends})")).chain(cells));
        }
    }
    out
}

/// One row per order and driver, one column per case.
pub(super) fn ways(recorded: &Recorded) -> String {
    let rates = recorded.lines.iter().filter(|line| line["metric"] == "mpps");
    let cases = distinct(rates.map(|line| text(line, "case")));
    let mut out = "The Gatekeeper by order and driver of its lookups: Mpps, and the ratio to the usual ones with its 95 % interval.\n\n".to_owned();
    let columns = std::iter::once("order, driver").chain(cases.iter().map(String::as_str));
    out += &head(&columns.collect::<Vec<_>>());
    for name in recorded.subjects() {
        let cells = cases.iter().map(|case| {
            let is_its = |line: &&Value| {
                (line["metric"] == "ratio" && line["case"] == case.as_str())
                    && (line["of"] == name.as_str() && line["to"] == "gatekeeper")
            };
            let rate = figure(recorded.value(&name, case, "mpps"));
            match recorded.lines.iter().find(is_its) {
                Some(ratio) => format!("{rate}; {}", interval(ratio)),
                None => rate,
            }
        });
        let way = match name.strip_prefix("gatekeeper/") {
            Some(way) => way.replace('/', ", "),
            None => "one-pass, group: the usual".to_owned(),
        };
        out += &row(std::iter::once(way).chain(cells));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readme::roles::tests::recorded;

    #[test]
    fn a_step_stands_with_its_interval_and_the_papers_number() {
        let ratio = |size: &str, of: &str, value: f64| {
            format!(
                r#"{{"case":"fu-4.6/paper/{size}","metric":"ratio","of":"{of}","to":"stop","value":{value},"low":1.5,"high":2.5}}"#
            )
        };
        let point = |series: &str, size: &str, paper: &str| {
            format!(
                r#"{{"figure":"fu-4.6","unit":"ratio of packets a second, paper, bursts of 32","series":"{series}","x":"{size}","y":9,"paper":{paper}}}"#
            )
        };
        let lines = [
            ratio("2^15", "a", 2.0),
            ratio("2^15", "b", 2.1),
            ratio("2^25", "a", 2.2),
            point("early", "2^15", "1.4"),
            point("early", "2^25", "null"),
            point("late", "2^15", "null"),
        ];
        let table = steps(&recorded(&lines.each_ref().map(String::as_str)));
        for row in [
            "| optimisation | 2^15 | 2^25 |\n",
            "| early (a to stop) | **2.00** (1.50 to 2.50); paper 1.4 | **2.20** (1.50 to 2.50) |\n",
            "| late (b to stop) | **2.10** (1.50 to 2.50) | - |\n",
        ] {
            assert!(table.contains(row), "{row}: {table}");
        }
    }

    #[test]
    fn a_way_stands_beside_the_usual_one() {
        let table = ways(&recorded(&[
            r#"{"subject":"gatekeeper","case":"worst/2^20","metric":"mpps","value":18}"#,
            r#"{"subject":"gatekeeper/one-pass/plain","case":"worst/2^20","metric":"mpps","value":6}"#,
            r#"{"subject":"bound","case":"worst/2^20","metric":"mpps","value":130}"#,
            r#"{"case":"worst/2^20","metric":"ratio","of":"gatekeeper/one-pass/plain","to":"bound","value":0.05,"low":0.04,"high":0.06}"#,
            r#"{"case":"worst/2^20","metric":"ratio","of":"gatekeeper/one-pass/plain","to":"gatekeeper","value":0.33,"low":0.3,"high":0.36}"#,
        ]));
        assert!(table.contains("| one-pass, group: the usual | 18.0 |\n"), "{table}");
        assert!(table.ends_with("| one-pass, plain | 6.00; **0.33** (0.30 to 0.36) |\n"), "{table}");
    }
}
