//! `role = "gatekeeper"` on files: what it sends, that a record of it is replayed, what it says of a wrong configuration.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use std::net::Ipv4Addr;
use tidemill_wire::{Protocol, ipv4};
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
    let ways = ["one-pass", "flow-first"].into_iter().flat_map(|order| {
        ["plain", "group", "coroutine"].map(|driver| format!("order = \"{order}\"\ndriver = \"{driver}\"\n"))
    });
    for lines in ways.chain([String::new()]) {
        let folder = Folder::new();
        let text = example(&folder).replace("[gatekeeper]\n", &format!("[gatekeeper]\n{lines}"));
        assert!(text.contains(&lines));
        folder.write("gate.toml", text);
        folder.ok("run gate.toml --json");
        sent.push((lines, std::fs::read(folder.path("out.back.pcapng")).unwrap()));
    }
    let (_, first) = &sent[0];
    assert!(sent.len() == 7 && first.len() > 100_000);
    for (lines, other) in &sent {
        assert!(other == first, "{lines}");
    }
}

/// Datagrams of 1,000 sources from far away that come again after up to some seconds, as a capture of half a minute.
fn comers(folder: &Folder) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, 1]);
    let mut random = 1_u64;
    for i in 0..12_000_u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let source = (random >> 33) as u32 % 1000;
        let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &[0; 28]].concat();
        let (src, dst) = (Ipv4Addr::from(0xc633_6400 + source), Ipv4Addr::new(203, 0, 113, 1));
        ipv4::Repr::new(src, dst, Protocol::UDP, 8).emit(&mut frame[14..34]).unwrap();
        frame[34..42].copy_from_slice(&[0x10, 0, 0x20, 0, 0, 8, 0, 0]);
        file.extend(words(&[1_700_000_000 + i / 400, i % 400 * 2500, 42, 42]));
        file.extend(frame);
    }
    folder.write("in.pcap", file);
}

/// Where flows lie, and so which of them is swept before it comes again, is the same in every run on captures.
#[test]
fn a_run_on_captures_is_the_same_every_time() {
    let folder = Folder::new();
    let text = example(&folder).replace("[gatekeeper]\n", "[gatekeeper]\nidle_s = 2\n");
    let text = text.replace(&format!("{EXAMPLE}router/capture.pcapng.zst"), "in.pcap");
    folder.write("gate.toml", text);
    comers(&folder);
    let sent = [0; 3].map(|_| {
        folder.ok("run gate.toml --json");
        std::fs::read(folder.path("out.back.pcapng")).unwrap()
    });
    assert!(sent[0].len() > 1_000_000 && sent[1] == sent[0] && sent[2] == sent[0]);
}

/// Not to where the command is called.
#[test]
fn keys_and_programs_are_relative_to_the_configuration() {
    let folder = Folder::new();
    let text = example(&folder)
        .replace("decisions = \"none\"", "decisions = \"authenticated\"\nkey_file = \"none.key\"");
    std::fs::create_dir(folder.path("sub")).unwrap();
    folder.write("sub/gate.toml", text);
    folder.fail(&[("check sub/gate.toml", 2, "gatekeeper.key_file: sub/none.key: ")]);
    let program = "[[gatekeeper.program]]\nnumber = 5\nfile = \"none.o\"\n";
    folder.write("sub/gate.toml", format!("{}{program}", example(&folder)));
    folder.fail(&[("check sub/gate.toml", 2, "sub/none.o")]);
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
        (
            "bandwidth = \"1 Gbps\"",
            "offload = \"xdp\"",
            "gatekeeper.offload: no port is on a network interface: give the one in front kind = \"af_packet\" or \"af_xdp\"",
        ),
        ("\"10.77.2.10\"]", "\"10.77.2.9\"]", "gatekeeper.policy[0].grantors: 10.77.2.9 is there twice"),
        ("prefix = \"::/0\"", "prefix = \"::/129\"", "gatekeeper.policy[1].prefix: \"::/129\""),
        (
            "bandwidth = \"1 Gbps\"",
            "bandwidth = \"1 GB/s\"",
            "gatekeeper.bandwidth: \"1 GB/s\": give a number with Gbps, Mbps, kbps or bps in quotes",
        ),
        ("request_percent = 5", "request_percent = 0", "gatekeeper.request_percent: 0: give 1 to 100"),
        ("request_percent = 5", "request_percent = 101", "gatekeeper.request_percent: 101: give 1 to 100"),
        ("request_percent = 5", "request_percent = -5", "gate.toml:43: request_percent: -5: give 1 to 100"),
        ("request_percent = 5", "request_percent = 300", "gate.toml:43: request_percent: 300: give 1 to 100"),
        ("request_percent = 5", "order = 1", "gate.toml:43: order: no word: give text in quotes"),
        (
            "request_percent = 5",
            "probes = 1",
            "gate.toml:43: probes: invalid type: integer `1`: give a table",
        ),
        (
            "bandwidth = \"1 Gbps\"",
            "bandwidth = \"99999999999999999999 Gbps\"",
            "gatekeeper.bandwidth: \"99999999999999999999 Gbps\": give 64 kbps to 10,000 Gbps",
        ),
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
            "\"10.77.2.10\"]",
            "\"10.77.1.1\"]",
            "gatekeeper.policy[0].grantors: 10.77.1.1 is no address that a Grantor can have: our own address, of interface \"front\"",
        ),
        (
            "\"10.77.2.10\"]",
            "\"10.77.2.255\"]",
            "gatekeeper.policy[0].grantors: 10.77.2.255 is no address that a Grantor can have: no machine's address but that of a whole link",
        ),
        (
            "grantors = [\"fd77:2::9\"]",
            "grantors = [\"fd77:2::9\", \"fd77:2::1\"]",
            "gatekeeper.policy[1].grantors: fd77:2::1 is no address that a Grantor can have: our own address",
        ),
        ("request_percent = 5", "flows = 0", "gatekeeper.flows: 0: give 1 to 3430000000"),
        ("request_percent = 5", "flows = 3430000001", "gatekeeper.flows: 3430000001: give 1 to 3430000000"),
        (
            "request_percent = 5",
            "flows = 100000000000000",
            "gatekeeper.flows: 100000000000000: give 1 to 3430000000",
        ),
        (
            "request_percent = 5",
            "flows = -1",
            "gate.toml:43: flows: invalid value: integer `-1`: give a whole number, 0 or more",
        ),
        (
            "request_percent = 5",
            "flows = 1e300",
            "gate.toml:43: flows: invalid type: floating point `1e300`: give a whole number, 0 or more",
        ),
        (
            "version = 1",
            "version = 1\nneighbors.reachable_s = 1e300",
            "neighbors.reachable_s: 1e300: give 0.01",
        ),
        (
            "version = 1",
            "version = 1\nstate = { path = \"s\", every = 1e300 }",
            "state.every = 1e300: give 0, or",
        ),
        (
            "request_percent = 5",
            "flows = \"2^20\"",
            "gate.toml:43: flows: invalid type: string \"2^20\": give a whole number",
        ),
        (
            "bandwidth = \"1 Gbps\"",
            "bandwidth = 1.5",
            "gate.toml:42: no bandwidth: give a number with Gbps, Mbps, kbps or bps in quotes",
        ),
        (
            "bandwidth = \"1 Gbps\"",
            "bandwidth = \"-1 Gbps\"",
            "gatekeeper.bandwidth: \"-1 Gbps\": give a number with Gbps",
        ),
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

/// What has no effect is taken, and said: by `check`, and by `run`.
#[test]
fn what_has_no_effect_is_said() {
    let folder = Folder::new();
    let text = example(&folder);
    assert_eq!(folder.ok("check gate.toml").err, "");
    let keys = format!("keys = [\"1 {}\"]\nclock_s = 3", "ab".repeat(32));
    for format in ["none", "interoperable"] {
        let with = format!("decisions = \"{format}\"\n{keys}");
        folder.write("gate.toml", text.replace("decisions = \"none\"", &with));
        for line in ["check gate.toml", "run gate.toml --json"] {
            let said = folder.ok(line).err;
            for key in ["keys", "clock_s"] {
                let wanted =
                    format!("tidemill: gate.toml: gatekeeper.{key} has no effect: decisions = \"{format}\"");
                assert!(said.contains(&wanted), "{line}: {said}");
            }
        }
    }
    let (without, _) = text.split_once("[[gatekeeper.policy]]").unwrap();
    folder.write("gate.toml", without);
    let said = folder.ok("check gate.toml").err;
    assert!(said.contains("gatekeeper.policy: there is none, so nothing is protected: all that comes from the front is dropped"), "{said}");
}

/// One Grantor more than there are numbers.
#[test]
fn too_many_grantors_are_said_to_be_too_many() {
    let folder = Folder::new();
    let text = example(&folder);
    let policy = |net: u32| {
        let grantors: Vec<String> =
            (0..8192).map(|n| format!("\"11.{net}.{}.{}\"", n / 200, 1 + n % 200)).collect();
        format!(
            "[[gatekeeper.policy]]\nprefix = \"{}.0.0.0/8\"\naction = \"grantor\"\ngrantors = [{}]\n",
            100 + net,
            grantors.join(",")
        )
    };
    // Two of the example's, and 65,534 are as many as there can be.
    let all: String = (0..8).map(policy).collect();
    folder.write("gate.toml", format!("{text}{all}"));
    let line = "gatekeeper.policy[9].grantors: 11.7.40.191 is one more than the 65,536 IPv4 Grantors that there can be: leave some out";
    folder.fail(&[("check gate.toml", 2, line)]);
    let fits = all.replace(",\"11.7.40.191\",\"11.7.40.192\"", "");
    assert_ne!(fits, all);
    folder.write("gate.toml", format!("{text}{fits}"));
    folder.ok("check gate.toml");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_with_its_place() {
    use std::fs::OpenOptions;
    use std::process::{Command, Stdio};
    let folder = Folder::new();
    example(&folder);
    let no_space = "No space left on device (os error 28)";
    let full = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(arguments.split(' ')).current_dir(folder.path(".")).stdin(Stdio::null());
        let output =
            command.stdout(OpenOptions::new().write(true).open("/dev/full").unwrap()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for arguments in [
        "run gate.toml --packets 10 --json",
        "run gate.toml --packets 10",
        "check gate.toml",
        "check gate.toml --dot",
        "check --schema",
        "check --reference",
        "completions bash",
        "--help",
        "gate --help",
        "--version",
    ] {
        let (code, said) = full(arguments);
        assert_eq!(
            (code, said),
            (Some(1), format!("tidemill: standard output: {no_space}\n")),
            "{arguments}"
        );
    }
    folder.fail(&[("run gate.toml --output back=/dev/full", 1, &format!("/dev/full: {no_space}"))]);
}
