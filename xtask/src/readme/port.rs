//! Tables of packets through the router: from nowhere to nowhere, beside a busy control side, on a wire, beside forwarders on DPDK.

use super::{Recorded, figure, head, paired, pairs, row, tables, text};
use anyhow::Result;
use serde_json::Value;

pub(super) fn port() -> Result<String> {
    tables(&[
        ("bench-port", null),
        ("bench-churn", churn),
        ("bench-port-wire", wire),
        ("peers-port", peers),
        ("peers-port-v6", peers),
    ])
}

/// One row per way and number of workers.
fn null(recorded: &Recorded) -> String {
    let mut out = head(&["way", "Mpps", "ns per packet"]);
    for rate in recorded.lines.iter().filter(|line| line["metric"] == "mpps") {
        let workers = &rate["params"]["workers"];
        let is_its = |l: &&Value| {
            l["metric"] == "ns_per_packet" && l["case"] == rate["case"] && l["params"]["workers"] == *workers
        };
        let parts: Vec<String> = (recorded.lines.iter().filter(is_its))
            .map(|l| format!("{} {}", text(&l["params"], "part"), figure(l["value"].as_f64())))
            .collect();
        let way = match workers.as_u64() {
            Some(workers) if workers > 1 => format!("{}, {workers} workers", text(rate, "case")),
            _ => text(rate, "case"),
        };
        out += &row([way, figure(rate["value"].as_f64()), parts.join(", ")]);
    }
    for ratio in recorded.lines.iter().filter(|line| line["metric"] == "ratio") {
        let number = |name: &str| ratio[name].as_f64().unwrap_or(f64::NAN);
        let (value, low, high) = (number("value"), number("low"), number("high"));
        let way = format!("{}, {} to {}", text(ratio, "case"), text(ratio, "of"), text(ratio, "to"));
        out += &row([way, format!("ratio {value:.2} ({low:.2} to {high:.2})"), String::new()]);
    }
    out
}

/// A quiet control side and a busy one.
fn churn(recorded: &Recorded) -> String {
    let value = |case: &str, metric: &str| figure(recorded.value("router", case, metric));
    let mut out = format!(
        "One core routes, and another has {} route changes a second, all that `show` reads, traces and reloads, or is quiet; at capacity, and with packets that come at a share of that whether or not there is time for them.\n\n",
        value("churn", "updates_per_s")
    );
    out += &head(&["control side", "Mpps at capacity", "Mpps at a share of it", "dropped there"]);
    for (name, at_a_share) in [("quiet", "share-quiet"), ("churn", "share-churn")] {
        let is_its = |line: &&Value| line["case"] == at_a_share && line["metric"] == "dropped";
        let dropped: Vec<String> = (recorded.lines.iter().filter(is_its))
            .filter_map(|line| {
                let most = line["max"].as_f64().filter(|most| *most > 0.0)?;
                Some(format!("{} {most:.0}", text(&line["params"], "reason")))
            })
            .collect();
        let dropped = if dropped.is_empty() { "nothing".to_owned() } else { dropped.join(", ") };
        out += &row([name.to_owned(), value(name, "mpps"), value(at_a_share, "mpps"), dropped]);
    }
    let Some(slower) = recorded.lines.iter().find(|line| line["metric"] == "slower_percent") else {
        return out;
    };
    let interval = match (slower["params"]["low"].as_f64(), slower["params"]["high"].as_f64()) {
        (Some(low), Some(high)) => format!(" (95 % interval {low:.1} to {high:.1})"),
        _ => String::new(),
    };
    let percent = slower["value"].as_f64().unwrap_or(f64::NAN);
    let pairs = &slower["runs"];
    out + &format!("\nAt capacity {percent:.1} %{interval} slower, by the median of {pairs} pairs.\n")
}

/// One row per forwarder, with what it is to others.
fn wire(recorded: &Recorded) -> String {
    let mut out = "Between two virtual cables, UDP of the shortest packets, each forwarder on one core with the threads that receive for it.\n\n".to_owned();
    out += &head(&["forwarder", "Mpps", "its core busy", "ratio (95 % interval)"]);
    let all = paired(recorded, "mpps");
    for subject in recorded.subjects() {
        let its = all.iter().filter(|pair| pair.text("of") == subject);
        let ratios: Vec<String> = its
            .map(|pair| {
                let to = pair.text("to");
                let (value, low, high) = (pair.number("value"), pair.number("low"), pair.number("high"));
                format!("**{value:.2}** ({low:.2} to {high:.2}) to {}", to.trim_start_matches("peer:"))
            })
            .collect();
        let [rate, busy] = ["mpps", "busy"].map(|metric| figure(recorded.value(&subject, "wire", metric)));
        out += &row([subject.trim_start_matches("peer:").to_owned(), rate, busy, ratios.join(", ")]);
    }
    out
}

/// One row per peer, one column per case.
fn peers(recorded: &Recorded) -> String {
    let size = recorded.lines.iter().find_map(|line| line["params"]["size"].as_u64());
    let size = size.map_or_else(String::new, |size| format!(" of {size} bytes"));
    format!(
        "Between two net_null devices of DPDK's, packets{size}, one core. {}",
        pairs(recorded, "mpps", &["route", "fill", "io"], "Mpps")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readme::roles::tests::recorded;

    #[test]
    fn nodes_stand_with_their_way() {
        let table = null(&recorded(&[
            r#"{"subject":"null","case":"null","metric":"mpps","value":40.95}"#,
            r#"{"subject":"null","case":"null","metric":"ns_per_packet","value":1.392,"params":{"part":"pass"}}"#,
            r#"{"subject":"null","case":"route","metric":"mpps","value":15.5}"#,
        ]));
        assert!(table.contains("| null | 41.0 | pass 1.39 |\n| route | 15.5 |  |\n"), "{table}");
        // Of several workers each has its own.
        let table = null(&recorded(&[
            r#"{"case":"null","metric":"mpps","value":40,"params":{"workers":1}}"#,
            r#"{"case":"null","metric":"ns_per_packet","value":1.5,"params":{"workers":1,"part":"pass"}}"#,
            r#"{"case":"null","metric":"mpps","value":79,"params":{"workers":2}}"#,
            r#"{"case":"null","metric":"ns_per_packet","value":1.25,"params":{"workers":2,"part":"pass"}}"#,
            r#"{"case":"null","metric":"ratio","of":"2 cores","to":"one core","value":1.975,"low":1.9,"high":2}"#,
        ]));
        let rows = "| null | 40.0 | pass 1.50 |\n| null, 2 workers | 79.0 | pass 1.25 |\n\
                    | null, 2 cores to one core | ratio 1.98 (1.90 to 2.00) |  |\n";
        assert!(table.contains(rows), "{table}");
    }

    #[test]
    fn what_churn_costs_stands_with_its_interval_and_what_it_drops() {
        let lines = [
            r#"{"subject":"router","case":"quiet","metric":"mpps","value":20,"params":{}}"#,
            r#"{"subject":"router","case":"churn","metric":"mpps","value":19.5,"params":{}}"#,
            r#"{"subject":"router","case":"churn","metric":"updates_per_s","value":9990,"params":{}}"#,
            r#"{"subject":"router","case":"capacity","metric":"slower_percent","value":2.51,"runs":20,"params":{"low":1.2,"high":3.5}}"#,
            r#"{"subject":"router","case":"share-quiet","metric":"mpps","value":16,"params":{}}"#,
            r#"{"subject":"router","case":"share-quiet","metric":"dropped","value":0,"max":0,"params":{"reason":"no-route"}}"#,
            r#"{"subject":"router","case":"share-churn","metric":"mpps","value":15.9,"params":{}}"#,
            r#"{"subject":"router","case":"share-churn","metric":"dropped","value":0,"max":7,"params":{"reason":"rx-ring-full"}}"#,
        ];
        let table = churn(&recorded(&lines));
        assert!(table.contains("another has 9990 route changes a second"), "{table}");
        let rows = "| quiet | 20.0 | 16.0 | nothing |\n| churn | 19.5 | 15.9 | rx-ring-full 7 |\n";
        assert!(table.contains(rows), "{table}");
        let last = "\nAt capacity 2.5 % (95 % interval 1.2 to 3.5) slower, by the median of 20 pairs.\n";
        assert!(table.ends_with(last), "{table}");
        // Of few pairs there is none.
        let few = r#"{"case":"capacity","metric":"slower_percent","value":-0.5,"runs":2,"params":{}}"#;
        let table = churn(&recorded(&[few]));
        assert!(table.contains("\nAt capacity -0.5 % slower, by the median of 2 pairs.\n"), "{table}");
    }

    #[test]
    fn a_forwarder_on_a_wire_stands_with_what_it_is_to_others() {
        let table = wire(&recorded(&[
            r#"{"subject":"af_xdp","case":"wire","metric":"mpps","value":1.2}"#,
            r#"{"subject":"af_xdp","case":"wire","metric":"busy","value":0.99}"#,
            r#"{"subject":"xdp-offload","case":"wire","metric":"mpps","value":3}"#,
            r#"{"subject":"peer:kernel-forward","case":"wire","metric":"mpps","value":1}"#,
            r#"{"case":"wire","metric":"ratio","of":"af_xdp","to":"peer:kernel-forward","value":1.2,"low":1.1,"high":1.3}"#,
            r#"{"case":"wire","metric":"ratio","of":"xdp-offload","to":"peer:kernel-forward","value":3,"low":2.9,"high":3.1}"#,
            r#"{"case":"wire","metric":"ratio","of":"xdp-offload","to":"peer:bpf-fib-lookup","value":1.5,"low":1.4,"high":1.6}"#,
        ]));
        let rows = "| af_xdp | 1.20 | 0.99 | **1.20** (1.10 to 1.30) to kernel-forward |\n\
                    | xdp-offload | 3.00 | - | **3.00** (2.90 to 3.10) to kernel-forward, **1.50** (1.40 to 1.60) to bpf-fib-lookup |\n\
                    | kernel-forward | 1.00 | - |  |\n";
        assert!(table.ends_with(rows), "{table}");
    }

    #[test]
    fn a_peer_on_dpdk_stands_with_its_cases() {
        let table = peers(&recorded(&[
            r#"{"subject":"us","case":"route","metric":"mpps","value":12,"params":{"size":64}}"#,
            r#"{"subject":"peer:dpdk-fwd-fib","case":"route","metric":"mpps","value":10,"params":{"size":64}}"#,
            r#"{"case":"route","metric":"ratio","of":"us","to":"peer:dpdk-fwd-fib","value":1.2,"low":1.1,"high":1.3,"rejected":0}"#,
            r#"{"subject":"us","case":"io","metric":"mpps","value":30,"params":{"size":64}}"#,
            r#"{"subject":"peer:testpmd-io","case":"io","metric":"mpps","value":36,"params":{}}"#,
            r#"{"case":"io","metric":"ratio","of":"us","to":"peer:testpmd-io","value":0.83,"low":0.8,"high":0.86,"rejected":0}"#,
        ]));
        assert!(table.contains("packets of 64 bytes, one core. Each cell: ratio"), "{table}");
        let rows = "| us to dpdk-fwd-fib | **1.20** (1.10 to 1.30): 12.0 to 10.0 | - | - |\n\
                    | us to testpmd-io | - | - | **0.83** (0.80 to 0.86): 30.0 to 36.0 |\n";
        assert!(table.ends_with(rows), "{table}");
    }
}
