//! `tidemill sim amp` on the real captures: what is in them, and what the mitigator's tuples make of them.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use tool::Folder;

fn lines(test: &str, figure: &str) -> Option<Vec<Value>> {
    if std::env::var_os("TIDEMILL_DATA").is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
        return None;
    }
    Some(Folder::new().ok(&format!("sim amp --figure {figure} --json")).json())
}

fn at(lines: &[Value], unit: &str, series: &str, x: &str) -> f64 {
    let found = lines.iter().find(|line| line["unit"] == unit && line["series"] == series && line["x"] == x);
    found.unwrap_or_else(|| panic!("{unit}, {series}, {x}"))["y"].as_f64().unwrap()
}

#[test]
fn real_messages_have_what_the_paper_found() {
    let Some(pairs) = lines("real_messages_have_what_the_paper_found", "tok-5.7") else { return };
    let of = |capture| at(&pairs, "pairs of addresses", "port unreachable", capture);
    assert!(of("amp.UDP.snmp.src161.pcapng.zst") > 0.0 && of("lroot-knot-live.pcap.xz") > 0.0);
    let all = |series| at(&pairs, "pairs of addresses", series, "all");
    assert_eq!((all("port unreachable"), all("about DNS")), (122.0, 9.0));
    let said = Folder::new().ok("sim amp --figure tok-5.7").out;
    let messages = "messages: 196 (7 of them IPv6); about DNS: ";
    assert!(said.contains(messages) && said.contains("to tell its flow: 196"), "{said}");
}

#[test]
fn real_messages_are_as_long_as_the_paper_found() {
    let Some(lines) = lines("real_messages_are_as_long_as_the_paper_found", "tok-5.8") else { return };
    let shortest = |x| at(&lines, "bytes", "IPv4", x);
    assert_eq!((shortest("IP packet"), shortest("embedded")), (56.0, 28.0));
    let share = |bytes: f64| {
        let point = |line: &&Value| {
            line["unit"] == "percent of the messages"
                && line["series"] == "IPv4"
                && line["x"].as_f64() == Some(bytes)
        };
        lines.iter().find(point).unwrap()["y"].as_f64().unwrap()
    };
    assert_eq!((share(56.0).round(), share(96.0).round()), (6.0, 73.0));
}

#[test]
fn real_tuples_cost_what_the_paper_says() {
    let Some(lines) = lines("real_tuples_cost_what_the_paper_says", "tok-5.3.3") else { return };
    let score = |unit, attack| {
        ["4-tuple", "3-tuple", "2-tuple", "1-tuple"].map(|tuple| at(&lines, unit, attack, tuple))
    };
    let (rules, passed, removed, lost) = (
        "rules at most",
        "packets of the attack that passed",
        "percent of the attack removed",
        "other packets lost",
    );
    let attacks =
        ["SNMP, recorded", "IKE, recorded", "DNS, to clients of the server", "the same, questions not seen"];
    for attack in attacks {
        let rules = score(rules, attack);
        assert!(rules[0] >= rules[1] && rules[1] >= rules[3] && rules[3] >= 1.0, "{attack}: {rules:?}");
        assert_eq!(score(lost, attack)[0], 0.0, "{attack}: 4-tuples lose nothing");
        assert!(score(passed, attack)[0] >= rules[0], "{attack}: each flow has to be learnt once");
    }
    // The recorded amplifiers are no root server: nothing else is lost. The ceiling is nine packets of ten.
    for attack in &attacks[..2] {
        assert_eq!(score(lost, attack), [0.0; 4], "{attack}");
        assert!((89.9..90.2).contains(&score(removed, attack)[0]), "{attack}");
    }
    // Where victim and amplifier talk with each other, coarser rules take what was asked for; one host's message takes it from all.
    let (seen, unseen) = (score(lost, attacks[2]), score(lost, attacks[3]));
    assert_eq!(seen[1], 0.0, "who asks gets the answer");
    assert!(unseen[1] > 0.0 && seen[2] > 0.0 && seen[3] > 10.0 * seen[2], "{seen:?} {unseen:?}");
}
