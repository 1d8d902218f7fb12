//! `role = "gatekeeper"` on files: what it sends, that a record of it is replayed, what it says of a wrong configuration.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use tool::Folder;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");

/// The example, with its files where they are.
fn example(folder: &Folder) -> String {
    let text = std::fs::read_to_string(format!("{EXAMPLE}gatekeeper/gatekeeper.toml")).unwrap();
    let text = text.replace("../router/", &format!("{EXAMPLE}router/"));
    folder.write("gate.toml", &text);
    text
}

#[test]
fn everything_asks_and_a_record_is_repeated() {
    let folder = Folder::new();
    example(&folder);
    let said = folder.ok("run gate.toml --json --record run.tmrec.zst").json();
    let said = said.last().unwrap();
    let gate = |name: &str| said["gate"][name].as_u64().unwrap();
    assert!(gate("front") > 1000 && gate("requests") == gate("front"), "{said}");
    assert_eq!(said["held"], 0, "what waits is sent in the end: {said}");
    // The link has room for 50 Mbps of requests, and the capture's packets take less: none is lost on the way.
    assert_eq!(said["dropped"]["request-queue-full"], serde_json::Value::Null, "{said}");
    let replayed = folder.ok("replay run.tmrec.zst --json").json().remove(0);
    assert!(replayed["checked"].as_u64().unwrap() > 1000, "{replayed}");
    assert_eq!((&replayed["wrong"], &replayed["complete"]), (&0.into(), &true.into()), "{replayed}");
}

#[test]
fn orders_and_drivers_send_the_same() {
    let mut sent = Vec::new();
    for lines in
        ["order = \"one-pass\"\ndriver = \"plain\"", "order = \"flow-first\"\ndriver = \"coroutine\"", ""]
    {
        let folder = Folder::new();
        let text = example(&folder).replace("[gatekeeper]\n", &format!("[gatekeeper]\n{lines}\n"));
        folder.write("gate.toml", text);
        folder.ok("run gate.toml --json");
        sent.push(std::fs::read(folder.path("out.back.pcapng")).unwrap());
    }
    assert!(sent[0].len() > 100_000 && sent.iter().all(|other| *other == sent[0]));
}

#[test]
fn a_wrong_section_is_one_line_that_says_what_to_do() {
    let folder = Folder::new();
    let text = example(&folder);
    for (from, to, line) in [
        (
            "front = [\"front\"]",
            "front = [\"fron\"]",
            "gatekeeper.front[0]: there is no interface \"fron\"; there are \"front\", \"back\"",
        ),
        (
            "front = [\"front\"]",
            "front = [\"front\", \"back\"]",
            "gatekeeper.front: every interface is in front",
        ),
        (
            "grantors = [\"fd77:2::9\"]",
            "",
            "gatekeeper.policy[1].grantors: with action \"grantor\" give at least one Grantor",
        ),
        (
            "grantors = [\"fd77:2::9\"]",
            "grantors = [\"10.0.0.1\"]",
            "gatekeeper.policy[1].grantors: \"10.0.0.1\" is no IPv6 address",
        ),
        ("\"10.77.2.10\"]", "\"10.77.2.9\"]", "gatekeeper.policy[0].grantors: 10.77.2.9 is there twice"),
        ("prefix = \"::/0\"", "prefix = \"::/129\"", "gatekeeper.policy[1].prefix: \"::/129\""),
        (
            "bandwidth = \"1 Gbps\"",
            "bandwidth = \"1 GB/s\"",
            "gatekeeper.bandwidth: \"1 GB/s\": give bits per second",
        ),
        ("request_percent = 5", "request_percent = 0", "gatekeeper.request_percent: 0: give 1 to 100"),
        (
            "request_percent = 5",
            "request_queue = 60000",
            "gatekeeper.request_queue: 60000 requests would hold more than half",
        ),
        ("request_percent = 5", "idle_s = 0", "gatekeeper.idle_s: 0: give 1 to 86400"),
        (
            "request_percent = 5",
            "source = [\"10.77.2.1\", \"10.77.2.1\"]",
            "gatekeeper.source[1]: 10.77.2.1: there is one of its family already",
        ),
        (
            "request_percent = 5",
            "source = [\"10.77.1.1\"]",
            "gatekeeper.source[0]: 10.77.1.1: no interface at the back has it",
        ),
        (
            "\"10.77.2.10\"]",
            "\"224.0.0.1\"]",
            "gatekeeper.policy[0].grantors: 224.0.0.1 is no address that a Grantor can have",
        ),
        ("request_percent = 5", "flow = 1", "unknown field `flow`"),
        (
            ", \"fd77:2::1/64\"]",
            "]",
            "gatekeeper.source: there are IPv6 policies, and no IPv6 address to send from",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        folder.write("gate.toml", text.replace(from, to));
        folder.fail(&[("check gate.toml", 2, line)]);
    }
    // Requests and queues wait in the same memory: each fits, and both do not.
    let requests = text.replace("request_percent = 5", "request_queue = 4000");
    let queue = "\n[[queue]]\nport = \"back\"\nrate = \"1 Gbps\"\ngranted_packets = 4000\n";
    for fits in
        [requests.clone(), format!("{text}{queue}").replace("request_percent = 5", "request_queue = 100")]
    {
        folder.write("gate.toml", fits);
        folder.ok("check gate.toml");
    }
    folder.write("gate.toml", format!("{requests}{queue}"));
    folder.fail(&[("check gate.toml", 2, "and gatekeeper.request_queue = 4000 requests: give at least ")]);
    folder.write("gate.toml", text.replace("role = \"gatekeeper\"", "role = \"router\""));
    folder.fail(&[("check gate.toml", 2, "[gatekeeper]: a router has no such section: leave it out")]);
}
