//! `show`, `trace`, `capture`, `route`, `reload`, `stop`, `top`, `completions` against a control server with made-up data.
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_control::schema::{self as wire, Done, Link, path};
use tidemill_control::{Answer, ApiError, Registry, Request, Server, Stream};
use tool::{Folder, Ran};

/// A folder with a server at `s.sock` in it.
struct Fake {
    folder: Folder,
    _server: Server,
}

impl Fake {
    fn start() -> Self {
        let folder = Folder::new();
        let server = Server::start(registry(), &folder.path("s.sock")).unwrap();
        Fake { folder, _server: server }
    }

    fn ok(&self, line: &str) -> Ran {
        self.folder.ok(&format!("{line} --socket s.sock"))
    }

    fn json(&self, line: &str) -> Vec<Value> {
        self.ok(&format!("{line} --json")).json()
    }

    /// The words of a line of the text that begins with a word.
    fn words(&self, line: &str, first: &str) -> Vec<String> {
        let text = self.ok(line).out;
        let found = text.lines().find(|line| line.split_whitespace().next() == Some(first));
        let found = found.unwrap_or_else(|| panic!("{line}: no line begins with {first}: {text}"));
        found.split_whitespace().map(str::to_owned).collect()
    }
}

fn answer<T: Answer + Clone + Send + Sync + 'static>(registry: &mut Registry, path: &str, value: T) {
    registry.get(path, "", move |_: &Request| Ok(value.clone()));
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn registry() -> Registry {
    let mut registry = Registry::new("tidemill", "9.9");
    let dropped = BTreeMap::from([("no-route".to_owned(), 4)]);
    // Every look finds the router further on: what rates are made of.
    let looks = AtomicU64::new(0);
    let drops_so_far = dropped.clone();
    registry.get(path::SUMMARY, "", move |_: &Request| {
        let n = 100_000 * looks.fetch_add(1, Ordering::Relaxed);
        Ok(wire::Summary {
            received: 100 + n,
            in_bytes: 10_000,
            made: 1,
            out: 90 + n,
            out_bytes: 9000,
            consumed: 5,
            held: 2,
            dropped: drops_so_far.clone(),
            seconds: 61.0,
            version: "9.9".into(),
            config: "router.toml".into(),
            started_ns: 7,
            ..wire::Summary::default()
        })
    });
    let port = wire::Port {
        name: "left".into(),
        kind: "af_packet".into(),
        link: Some(Link::Up),
        queues: 2,
        rx: wire::Direction { packets: 100, bytes: 10_000, dropped: dropped.clone() },
        tx: wire::Direction { packets: 90, bytes: 9000, ..wire::Direction::default() },
        ..wire::Port::default()
    };
    let linkless = wire::Port { name: "file".into(), kind: "pcap".into(), ..wire::Port::default() };
    answer(&mut registry, path::PORTS, wire::Ports { ports: vec![port, linkless] });
    let output = |name: &str, to: &str| wire::Output { name: name.into(), to: to.into(), packets: 0 };
    let lookup = wire::Node {
        name: "ip4-lookup".into(),
        calls: 10,
        packets: 100,
        dropped,
        ns_per_packet: 12.34,
        outputs: vec![output("forward", "ip4-forward"), output("ip4-local", "ip4-local")],
        ..wire::Node::default()
    };
    let idle = wire::Node { name: "ip6-lookup".into(), ..wire::Node::default() };
    answer(&mut registry, path::NODES, wire::Nodes { nodes: vec![lookup, idle] });
    let worker = wire::Worker {
        index: 1,
        cpu: Some(3),
        node: Some(1),
        stage: 2,
        busy_percent: 42.0,
        asleep_percent: 7.5,
        packets: 100,
        rx_pps: 5e6,
        pool_free: 10,
        pool_frames: 64,
        unbound: Some("worker 1 is not bound".into()),
    };
    answer(&mut registry, path::WORKERS, wire::Workers { workers: vec![worker] });
    let drop = |reason: &str, count| wire::DropCount {
        reason: reason.into(),
        help: "no route to the destination".into(),
        count,
        at: "ip4-lookup".into(),
    };
    let drops = vec![drop("ttl-expired", 1), drop("no-route", 4)];
    answer(&mut registry, path::DROPS, wire::Drops { drops });
    let interface = wire::Interface {
        name: "left.10".into(),
        port: "left".into(),
        vlan: Some(10),
        vrf: "blue".into(),
        mac: "02:00:00:00:00:01".into(),
        mtu: 1500,
        owner: "us".into(),
        addresses: texts(&["10.1.0.1/24", "fd01::1/64"]),
        up: true,
    };
    answer(&mut registry, path::INTERFACES, wire::Interfaces { interfaces: vec![interface] });
    let neighbor = |address: &str, mac: Option<&str>, state: &str| wire::Neighbor {
        interface: "left".into(),
        address: address.into(),
        mac: mac.map(str::to_owned),
        state: state.into(),
        age_s: 75.0,
        kind: "learned".into(),
    };
    let neighbors = vec![
        neighbor("10.1.0.2", Some("02:00:00:00:00:02"), "reachable"),
        neighbor("10.1.0.3", None, "incomplete"),
    ];
    answer(&mut registry, path::NEIGHBORS, wire::Neighbors { neighbors });
    let class = |name: &str, sent: u64| wire::QueueClass {
        class: name.into(),
        arrived: sent + 7,
        sent,
        waiting: 3,
        dropped: BTreeMap::from([("red-drop".to_owned(), 4)]),
        wait_p50_us: (sent > 0).then_some(63.0),
        ..wire::QueueClass::default()
    };
    let classes = vec![class("operational", 0), class("requests", 9), class("granted", 1000)];
    let queue = wire::Queue { port: "left".into(), bits_per_s: 1_000_000, classes };
    answer(&mut registry, path::QUEUES, wire::Queues { queues: vec![queue] });
    let below = r#"{"ports": [{"port": "left", "forwarded": 70, "sent": 40, "left": {"ttl": 5, "options": 0, "not-ip": 2}}],
        "bypass": {"forwarded": 70, "above": 30, "hit_rate": 0.7},
        "declined": {"flows": 3, "room": 131072, "dropped": 90, "interfaces": [{"port": "wan", "interface": "eth7", "mode": "native"}, {"port": "lan", "interface": "eth8"}]}}"#;
    answer(&mut registry, path::OFFLOAD, serde_json::from_str::<wire::Offload>(below).unwrap());
    let fib = wire::Fib {
        vrf: "main".into(),
        family: 4,
        algorithm: "dxr".into(),
        why: "usual for IPv4".into(),
        prefixes: 3,
        bytes: 4096,
        shared_bytes: 1024,
        next_hops: 2,
        generation: 5,
    };
    answer(&mut registry, path::FIB, wire::Fibs { fibs: vec![fib] });
    let next_hop =
        wire::NextHop { label: 7, kind: "group".into(), members: vec![3, 4], ..wire::NextHop::default() };
    answer(&mut registry, path::NEXT_HOPS, wire::NextHops { next_hops: vec![next_hop] });
    let kernel = r#"{"enabled": true, "in_sync": true, "routes4": 100000, "overruns": 1}"#;
    answer(&mut registry, path::KERNEL, serde_json::from_str::<wire::Kernel>(kernel).unwrap());
    registry.get(path::ROUTES, "", routes);
    registry.post(path::ROUTES, "", |request: &Request| {
        let add: wire::RouteAdd = request.json()?;
        Ok(Done::from(format!("added {}", serde_json::to_string(&add).unwrap())))
    });
    registry.delete(path::ROUTES, "", |request: &Request| -> Result<Done, ApiError> {
        let delete: wire::RouteDelete = request.query()?;
        match delete.prefix.as_str() {
            "10.9.0.0/16" => Ok(Done::from("deleted 10.9.0.0/16")),
            other => Err(ApiError::not_found(format!("{other}: no static route in {:?}", delete.vrf))),
        }
    });
    tracing(&mut registry);
    registry.stream(path::CAPTURE, "", capture);
    let reloads = AtomicBool::new(false);
    registry.post(path::RELOAD, "", move |_: &Request| match reloads.swap(true, Ordering::Relaxed) {
        false => Ok(Done::from("one route more")),
        true => Err(ApiError::conflict("router.toml:3: unknown field `portt`: nothing has changed")),
    });
    registry.post(path::STOP, "", |_: &Request| Ok(Done::from("stopping")));
    registry
}

/// Five routes, two to a page.
fn routes(request: &Request) -> Result<wire::Routes, ApiError> {
    let query: wire::RoutesQuery = request.query()?;
    let path_by = |via: &str, state: &str| wire::RoutePath {
        interface: text("left"),
        via: text(via),
        weight: 1,
        state: state.into(),
    };
    let route = |vrf: &str, prefix: &str, best| wire::Route {
        vrf: vrf.into(),
        prefix: prefix.into(),
        source: "static".into(),
        kind: "forward".into(),
        next_hops: vec![path_by("10.1.0.2", "reachable"), path_by("10.1.0.3", "incomplete")],
        best,
    };
    let blackhole =
        wire::Route { kind: "blackhole".into(), next_hops: Vec::new(), ..route("blue", "0.0.0.0/0", true) };
    let mut all = vec![
        route("main", "10.9.0.0/16", true),
        route("main", "10.9.0.0/16", false),
        route("main", "10.10.0.0/16", true),
        route("main", "2001:db8::/32", true),
        blackhole,
    ];
    if let Some(prefix) = &query.prefix {
        all.retain(|route| route.prefix == *prefix);
    }
    if let Some(address) = &query.address {
        all.retain(|_| address == "10.9.0.1");
        all.truncate(2);
    }
    if let Some(vrf) = &query.vrf {
        all.retain(|route| route.vrf == *vrf);
    }
    let from: usize =
        query.after.as_deref().map_or(Ok(0), str::parse).map_err(|_| ApiError::bad_request("after"))?;
    let to = from + query.limit.unwrap_or(2).min(2) as usize;
    let next = (to < all.len()).then(|| to.to_string());
    Ok(wire::Routes { routes: all.into_iter().skip(from).take(to - from).collect(), next })
}

fn tracing(registry: &mut Registry) {
    registry.post(path::TRACE, "", |request: &Request| {
        let wire::TraceAdd { at, packets } = request.json()?;
        match at.as_str() {
            "ip4-input" | "port:left" => Ok(Done::from(format!("the next {packets} packets at {at}"))),
            _ => Err(ApiError::not_found(format!("{at}: no such node: tidemill show graph lists them"))),
        }
    });
    let entry = |packet, worker, time_ns, at: &str, verdict: &str| wire::TraceEntry {
        packet,
        worker,
        time_ns,
        at: at.into(),
        summary: "10.1.0.2 > 10.9.0.1 udp 64".into(),
        verdict: verdict.into(),
        note: (at == "ip4-lookup").then(|| "10.9.0.0/16".to_owned()),
    };
    let entries = vec![
        entry(1, 0, 5_000_000, "ip4-input", "next lookup"),
        entry(1, 1, 4_000_000, "ip4-input", "drop ipv4-bad-checksum"),
        entry(1, 0, 5_000_000, "ip4-lookup", "next forward"),
    ];
    answer(registry, path::TRACE, wire::Traces { entries, lost: 3 });
}

/// A pcapng with as many packets as were asked for; without a limit, until the client goes away.
fn capture(request: &Request) -> Result<Stream, ApiError> {
    let query: wire::CaptureQuery = request.query()?;
    if query.at != "port:left" {
        return Err(ApiError::not_found(format!(
            "{}: no such node: tidemill show graph lists them",
            query.at
        )));
    }
    Ok(Stream::new(wire::PCAPNG, move |sink| {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        sink.send(words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]))?;
        sink.send(words(&[1, 20, 1, 0, 20]))?;
        let packet = words(&[6, 96, 0, 0, 0, 64, 64]);
        let packet = [packet, vec![0; 64], words(&[96])].concat();
        for _ in 0..query.packets.unwrap_or(u64::MAX) {
            let (a, b) = packet.split_at(50);
            sink.send(a.to_vec())?;
            sink.wait(Duration::from_millis(1))?;
            sink.send(b.to_vec())?;
        }
        Ok(())
    }))
}

#[test]
fn show_prints_tables_and_lines_of_json() {
    let fake = Fake::start();
    assert_eq!(
        fake.words("show ports", "left"),
        ["left", "af_packet", "up", "2", "100", "10000", "4", "90", "9000", "0", "0"]
    );
    assert_eq!(fake.words("show ports", "file")[1..4], ["pcap", "-", "0"]);
    let ports = fake.json("show ports");
    assert_eq!(
        (ports.len(), &ports[0]["rx"]["dropped"]["no-route"], &ports[1]["link"]),
        (2, &4.into(), &Value::Null)
    );
    let graph = fake.ok("show graph").out;
    assert_eq!(graph, "ip4-lookup  forward -> ip4-forward, ip4-local\nip6-lookup  -\n");
    assert_eq!(fake.words("show counters", "ip4-lookup")[1..], ["100", "10", "10.0", "12.3", "0", "0", "4"]);
    assert!(!fake.ok("show counters").out.contains("ip6-lookup"), "has seen nothing");
    assert_eq!(fake.json("show counters").len(), 3, "nodes and books");
    let drops = fake.ok("show drops").out;
    let reasons: Vec<&str> =
        drops.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(reasons, ["no-route", "ttl-expired"], "the most frequent first");
    assert_eq!(fake.json("show drops")[0]["count"], 4);
    assert_eq!(
        fake.words("show workers", "1"),
        ["1", "3", "1", "2", "42.0", "7.5", "100", "5000000", "10", "64"]
    );
    assert!(fake.ok("show workers").out.ends_with("\nworker 1 is not bound\n"));
    assert_eq!(
        fake.words("show fib", "main"),
        ["main", "IPv4", "dxr", "3", "4096", "1024", "2", "5", "usual", "for", "IPv4"]
    );
    assert_eq!(fake.json("show fib")[0]["generation"], 5);
    assert_eq!(fake.words("show next-hops", "7"), ["7", "group", "-", "-", "-", "-", "3", "4"]);
    let interface = fake.words("show interfaces", "left.10");
    assert_eq!(interface[1..4], ["left", "10", "blue"]);
    assert_eq!(interface[7..], ["up", "10.1.0.1/24", "fd01::1/64"]);
    let neighbors = fake.ok("show neighbors").out;
    assert!(neighbors.contains("10.1.0.3  -") && neighbors.contains("1:15"), "{neighbors}");
    assert_eq!(fake.json("show neighbors")[1]["mac"], Value::Null);
    let queues = fake.ok("show queues").out;
    let lines: Vec<Vec<&str>> = queues.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[3],
        ["left", "granted", "1007", "1000", "0", "3", "4", "63", "us", "-", "-"],
        "{queues}"
    );
    assert_eq!(lines[1][7..], ["-", "-", "-"], "{queues}");
    assert_eq!(fake.json("show queues")[0]["classes"][1]["sent"], 9);
    assert_eq!(fake.words("show offload", "left")[4..], ["0", "7", "not-ip", "2,", "ttl", "5"]);
    assert_eq!(fake.words("show offload", "wan"), ["wan", "eth7", "native"]);
    assert_eq!(fake.words("show offload", "lan"), ["lan", "eth8", "nowhere"]);
    assert_eq!(fake.words("show offload", "dropped")[1..3], ["90", "packets"]);
    let text = fake.ok("show offload").out;
    assert!(text.contains("70.0 % of all such, 30 came in"), "{text}");
    assert!(text.contains("there were no others"), "{text}");
    let lines = fake.json("show offload");
    assert_eq!(lines[2]["hit_rate"], 0.7);
    assert_eq!((&lines[0]["forwarded"], &lines[1]["flows"]), (&70.into(), &3.into()));
    let kernel = fake.ok("show kernel").out;
    assert!(kernel.contains("in sync") && kernel.contains("100000 IPv4, 0 IPv6"), "{kernel}");
    assert_eq!(fake.json("show kernel")[0]["overruns"], 1);
    let summary = fake.ok("show summary").out;
    assert!(summary.starts_with("tidemill 9.9, router.toml\nup 1:01, 0 reloads\nin "), "{summary}");
    assert_eq!(fake.json("show summary")[0]["config"], "router.toml");
}

#[test]
fn routes_come_page_by_page() {
    let fake = Fake::start();
    let all = fake.ok("show routes").out;
    let expected = "\
VRF main:
* 10.9.0.0/16              static     via 10.1.0.2 dev left (reachable)
                                      via 10.1.0.3 dev left (incomplete)
";
    assert!(all.starts_with(expected), "{all}");
    assert!(all.ends_with("VRF blue:\n* 0.0.0.0/0                static     blackhole\n"), "{all}");
    assert_eq!(all.lines().count(), 2 + 4 * 2 + 1);
    assert_eq!(fake.json("show routes").len(), 5);
    assert_eq!(fake.json("show routes --limit 3").len(), 3);
    assert_eq!(fake.json("show routes --vrf blue")[0]["kind"], "blackhole");
    assert_eq!(fake.json("show routes 2001:DB8::/32")[0]["prefix"], "2001:db8::/32");
    assert_eq!(fake.json("show routes 10.9.0.1").len(), 2);
    fake.folder.fail(&[
        ("show routes 10.99.0.1 --socket s.sock", 1, "there is no route to 10.99.0.1"),
        ("show routes 10.9.0.1/16 --socket s.sock", 2, "host bits"),
        ("show routes left --socket s.sock", 2, "left: is no address and no prefix"),
    ]);
}

#[test]
fn routes_are_added_and_deleted_and_configurations_reloaded() {
    let fake = Fake::start();
    let added = |line: &str| {
        let ran = fake.ok(line);
        assert_eq!(ran.out, "");
        let body = ran.err.trim().strip_prefix("tidemill: added ").unwrap().to_owned();
        serde_json::from_str::<Value>(&body).unwrap()
    };
    assert_eq!(
        added("route add 10.9.0.0/16 via 10.1.0.2,10.1.0.3 --vrf blue"),
        serde_json::json!({"prefix": "10.9.0.0/16", "via": ["10.1.0.2", "10.1.0.3"], "vrf": "blue"})
    );
    assert_eq!(added("route add 2001:db8::/32 via fe80::1 dev left")["dev"], "left");
    assert_eq!(added("route add 10.9.0.0/16 blackhole")["kind"], "blackhole");
    assert_eq!(fake.json("route delete 10.9.0.0/16")[0]["done"][0], "deleted 10.9.0.0/16");
    fake.ok("route del 10.9.0.0/16");
    assert_eq!(fake.ok("reload").err, "tidemill: one route more\n");
    assert_eq!(fake.ok("stop").err, "tidemill: stopping\n");
    fake.folder.fail(&[
        (
            "route delete 10.8.0.0/16 --vrf red --socket s.sock",
            2,
            "10.8.0.0/16: no static route in Some(\"red\")",
        ),
        ("route add 10.9.0.0/16 --socket s.sock", 2, "required"),
        ("route add 10.9.0.0/16 over left --socket s.sock", 2, "over: a route goes"),
        ("reload --socket s.sock", 1, "nothing has changed"),
    ]);
}

#[test]
fn traces_are_shown_packet_by_packet() {
    let fake = Fake::start();
    assert_eq!(fake.ok("trace add ip4-input 3").err, "tidemill: the next 3 packets at ip4-input\n");
    assert_eq!(fake.ok("trace add port:left").err, "tidemill: the next 8 packets at port:left\n");
    let ran = fake.ok("trace show");
    let expected = "\
packet 1 of worker 1, +0.000000 s
  ip4-input  -> drop ipv4-bad-checksum  10.1.0.2 > 10.9.0.1 udp 64
packet 1 of worker 0, +0.001000 s
  ip4-input  -> next lookup             10.1.0.2 > 10.9.0.1 udp 64
  ip4-lookup -> next forward            10.1.0.2 > 10.9.0.1 udp 64  [10.9.0.0/16]
";
    assert_eq!(ran.out, expected);
    assert!(ran.err.contains("3 more entries had no room"), "{}", ran.err);
    assert_eq!(fake.json("trace show").len(), 3);
    fake.folder.fail(&[
        ("trace add nowhere --socket s.sock", 2, "nowhere: no such node"),
        ("trace add ip4-input many --socket s.sock", 2, "invalid value 'many'"),
    ]);
}

#[test]
fn captures_are_whole_files() {
    let fake = Fake::start();
    let ran = fake.ok("capture port:left -w a.pcapng --packets 3");
    assert_eq!(ran.err, "tidemill: 3 packets, 336 bytes\n");
    let file = std::fs::read(fake.folder.path("a.pcapng")).unwrap();
    assert_eq!(file.len(), 48 + 3 * 96);
    let captured = fake.json("capture port:left -w a.pcapng.zst --packets 2");
    assert_eq!((&captured[0]["packets"], &captured[0]["bytes"]), (&2.into(), &240.into()));
    let mut plain = Vec::new();
    tidemill_archive::open(&fake.folder.path("a.pcapng.zst")).unwrap().read_to_end(&mut plain).unwrap();
    assert_eq!(plain, file[..240]);
    let piped = fake.run_bytes(&["capture", "port:left", "-w", "-", "--packets", "3", "--socket", "s.sock"]);
    assert_eq!(piped, file);
    fake.folder.write("old.pcapng", "precious");
    fake.folder.fail(&[
        ("capture nowhere -w old.pcapng --socket s.sock", 2, "nowhere: no such node"),
        ("capture port:left -w a --duration -1 --socket s.sock", 2, "'-1'"),
        ("capture port:left -w a --duration=-1 --socket s.sock", 2, "--duration: give seconds"),
        ("capture port:left -w - --json --socket s.sock", 2, "--json"),
        ("capture port:left --socket s.sock", 2, "required"),
        ("capture port:left -w none/a.pcapng --packets 1 --socket s.sock", 1, "none/a.pcapng"),
    ]);
    assert_eq!(fake.folder.read("old.pcapng"), "precious");
}

impl Fake {
    fn run_bytes(&self, words: &[&str]) -> Vec<u8> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(words).current_dir(self.folder.path("."));
        command.output().unwrap().stdout
    }
}

#[test]
fn a_capture_ends_well_when_interrupted_or_unread() {
    let fake = Fake::start();
    let capture = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["capture", "port:left", "-w", file, "--socket", "s.sock"]);
        command.current_dir(fake.folder.path(".")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = capture("a.pcapng");
    // The file is made when the signals' handlers have long been there.
    while !fake.folder.path("a.pcapng").exists() {
        assert!(child.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let file = std::fs::read(fake.folder.path("a.pcapng")).unwrap();
    let is_whole = file.len() == 28 || file.len() >= 48 && (file.len() - 48).is_multiple_of(96);
    assert!(is_whole, "whole blocks, of the section, the interface and packets: {}", file.len());
    let mut child = capture("-");
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 48]).unwrap();
    drop(out); // The reader goes away.
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn top_prints_a_frame_where_there_is_no_terminal() {
    let fake = Fake::start();
    for line in ["top", "top --once"] {
        let out = fake.ok(line).out;
        assert!(out.starts_with("tidemill 9.9  router.toml  up 1:01\nin "), "{out}");
        let rate = out.lines().nth(1).unwrap();
        let kilo = rate.strip_prefix("in ").unwrap().split(' ').next().unwrap();
        assert!(
            kilo.parse::<f64>().unwrap() > 1.0 && rate.contains(" kpps "),
            "100 k packets a second: {rate}"
        );
        for part in [
            "neighbors: 1 incomplete, 1 reachable",
            "[||||||||            ]  42.0 %",
            "no-route",
            "ip6-lookup",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }
    let lines = fake.json("top --once");
    assert_eq!((lines.len(), &lines[0]["rates"]["workers"][0]["cpu"]), (1, &3.into()));
    assert!(lines[0]["rates"]["in_pps"].as_f64().unwrap() > 1000.0);
}

#[test]
fn without_a_router_every_verb_says_so_in_a_line() {
    let folder = Folder::new();
    let verbs = [
        "show summary",
        "show ports",
        "show graph",
        "show counters",
        "show drops",
        "show fib",
        "show routes",
        "show neighbors",
        "show interfaces",
        "show workers",
        "show queues",
        "show offload",
        "show next-hops",
        "show kernel",
        "bgp peers",
        "trace show",
        "trace add ip4-input",
        "capture port:left -w a.pcapng",
        "route add 10.0.0.0/8 dev left",
        "route delete 10.0.0.0/8",
        "reload",
        "stop",
        "top",
        "top --once",
        "show tables",
        "events",
        "log",
    ];
    for verb in verbs {
        for json in ["", " --json"] {
            let line = format!("{verb} --socket s.sock{json}");
            folder.fail(&[(
                &line,
                1,
                "tidemill: nothing answers at s.sock: is `tidemill run` up with [control]?",
            )]);
        }
    }
    assert!(!folder.path("a.pcapng").exists());
    drop(std::os::unix::net::UnixListener::bind(folder.path("dead.sock")).unwrap());
    folder.fail(&[("show ports --socket dead.sock", 1, "nothing answers at dead.sock any more")]);
    folder.write("file", "");
    folder.fail(&[("show ports --socket file", 1, "nothing answers at file any more")]);
}

/// Ends with the test, however that ends.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is stopped takes connections and answers none: that is said soon. One that does not answer is waited for as long as one likes.
#[cfg(target_os = "linux")]
#[test]
fn who_does_not_answer_is_not_waited_for_for_ever() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = Folder::new();
    folder.write(
        "router.toml",
        "version = 1\nrole = \"router\"\n[control]\nsocket = \"router.sock\"\n\
         [[port]]\nname = \"a\"\nkind = \"null\"\nreceive = false\n[[port]]\nname = \"b\"\nkind = \"generator\"\nrate_pps = 10\n",
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "router.toml"]).current_dir(folder.path(".")).stdin(Stdio::null());
    let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while folder.run("show ports --socket router.sock").code != 0 {
        assert!(began.elapsed() < Duration::from_secs(60) && running.0.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    let process = Pid::from_child(&running.0);
    kill_process(process, Signal::STOP).unwrap();
    let line = format!("router.sock: process {} is stopped (SIGSTOP, Ctrl-Z or a debugger)", running.0.id());
    let began = Instant::now();
    let verbs = "show ports,gate top,amp rules,grantor policy,route add 10.9.0.0/16 via 10.1.0.2,top --once";
    for verb in verbs.split(',') {
        folder.fail(&[(&format!("{verb} --socket router.sock"), 1, &line)]);
    }
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    kill_process(process, Signal::CONT).unwrap();
    folder.ok("show ports --socket router.sock --timeout 60");
    for timeout in ["0", "nan", "3601", "x"] {
        folder.fail(&[(&format!("show ports --timeout {timeout}"), 2, "give seconds, 0.1 to 3600")]);
    }
    // One that listens and is not stopped: this process.
    let _silent = std::os::unix::net::UnixListener::bind(folder.path("silent.sock")).unwrap();
    let line = "silent.sock: no answer within 0.2 s: what runs is busy or stuck: wait longer (--timeout)";
    folder.fail(&[("show ports --socket silent.sock --timeout 0.2", 1, line)]);
}

/// A run with `control.listen` tells Prometheus what `show` tells an operator; only to who has a token.
#[cfg(target_os = "linux")]
#[test]
fn metrics_of_a_run_are_read_on_tcp() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    const TOKEN: &str = "prometheus-prometheus-prometheus";
    let folder = Folder::new();
    folder.write("tokens", format!("prometheus read {TOKEN}\n"));
    std::fs::set_permissions(folder.path("tokens"), std::fs::Permissions::from_mode(0o600)).unwrap();
    folder.write(
        "router.toml",
        "version = 1\nrole = \"router\"\n[control]\nsocket = \"s.sock\"\nlisten = [\"127.0.0.1:0\"]\ntoken_file = \"tokens\"\n\
         [[port]]\nname = \"a\"\nkind = \"null\"\nreceive = false\n[[port]]\nname = \"b\"\nkind = \"generator\"\nrate_pps = 1000\n",
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "router.toml"]).current_dir(folder.path(".")).stdin(Stdio::null());
    let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let address = said.find_map(|line| {
        line.unwrap().strip_prefix("tidemill: the API and /metrics are at ").map(str::to_owned)
    });
    let address = address.expect("it says where");
    let get = |token: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("guess").starts_with("HTTP/1.1 401 "));
    let began = Instant::now();
    let value = |text: &str, name: &str| -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    loop {
        let text = get(TOKEN);
        let received =
            value(&text, "tidemill_port_packets_total{port=\"b\",direction=\"rx\"}").unwrap_or(0.0);
        // Every packet that came in was dropped: the generator's frames are for somebody else's address.
        let dropped =
            value(&text, "tidemill_dropped_packets_total{reason=\"not-for-us\",at=\"ethernet-input\"}");
        if received > 100.0 && dropped == Some(received) {
            assert!(text.contains("tidemill_info{version=\"0.1.0\",role=\"router\"} 1"), "{text}");
            assert!(value(&text, "tidemill_fib_prefixes{vrf=\"\",family=\"ipv4\"}").is_some(), "{text}");
            assert!(value(&text, "tidemill_worker_frames{worker=\"0\"}").unwrap() > 0.0, "{text}");
            assert!(value(&text, "tidemill_resident_bytes{}") > Some(1e6) && text.ends_with("# EOF\n"));
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60) && running.0.try_wait().unwrap().is_none(),
            "{text}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // A token that is gone from the file is nobody's after a reload; a file that is wrong changes nothing.
    folder.write("tokens", "prometheus read short\n");
    let refused = folder.run("reload --socket s.sock");
    assert!(refused.code == 1 && refused.err.contains("line 1: a token has 24 to"), "{}", refused.err);
    assert!(get(TOKEN).starts_with("HTTP/1.1 200 "));
    folder.write("tokens", format!("prometheus read {TOKEN}-2\n"));
    folder.ok("reload --socket s.sock");
    assert!(get(TOKEN).starts_with("HTTP/1.1 401 "));
    assert!(get(&format!("{TOKEN}-2")).starts_with("HTTP/1.1 200 "));
}

/// Numbers of `gate top` are estimates, and it says so; before there are any, it says that.
#[test]
fn the_gates_top_says_what_its_numbers_are() {
    use tidemill_control::schema::gate;
    let folder = Folder::new();
    let mut registry = Registry::new("tidemill gatekeeper", "9.9");
    registry.get(gate::path::TOP, "", |request: &Request| {
        let line = gate::TopLine {
            source: text("192.0.2.1"),
            packets: 1600,
            low: 1313,
            high: 1948,
            window_s: 5.0,
            age_s: 3.0,
            ..gate::TopLine::default()
        };
        let query: gate::TopQuery = request.query()?;
        let lines = if query.by == "source" { vec![line] } else { Vec::new() };
        Ok(gate::Top { begun: query.by != "flow", window_s: 5.0, lines })
    });
    let _server = Server::start(registry, &folder.path("s.sock")).unwrap();
    let said = folder.ok("gate top --socket s.sock").out;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = said.lines().map(words).collect();
    let head = "source destination packets, about from to per second ended workers";
    assert_eq!(lines, [head, "192.0.2.1 - 1600 1313 1948 320 3 s ago 0"]);
    let said = folder.ok("gate top --socket s.sock --json").json().remove(0);
    assert_eq!((&said["packets"], &said["low"], &said["high"]), (&1600.into(), &1313.into(), &1948.into()));
    for (by, line) in [
        ("flow", "tidemill: the first window of 5 s has not ended yet: ask again\n"),
        (
            "destination",
            "tidemill: nothing was dropped in the last window of 5 s, or too little to be in the sample\n",
        ),
    ] {
        let said = folder.ok(&format!("gate top --by {by} --socket s.sock"));
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", line));
    }
    assert!(folder.ok("gate top --help").out.contains("Packets are an estimate"));
    for (verb, line) in [
        ("grant 192.0.2.1 198.51.100.7 --rate 0", "0 is not in 1..=16777215"),
        ("grant 192.0.2.1 198.51.100.7 --for 0", "0 is not in 1.."),
        ("decline 192.0.2.1 198.51.100.7 --for 0", "0 is not in 1.."),
    ] {
        folder.fail(&[(&format!("gate {verb} --socket s.sock"), 2, line)]);
    }
}

#[test]
fn the_socket_may_be_named_by_the_environment() {
    let fake = Fake::start();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(arguments).current_dir(fake.folder.path(".")).env("TIDEMILL_SOCKET", "s.sock");
        command.output().unwrap().status.code()
    };
    assert_eq!(run(&["show", "ports"]), Some(0));
    assert_eq!(run(&["show", "ports", "--socket", "other.sock"]), Some(1));
}

#[test]
fn one_server_answers_many_commands_at_once() {
    let fake = Arc::new(Fake::start());
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let fake = fake.clone();
            std::thread::spawn(move || (0..5).for_each(|_| assert_eq!(fake.json("show routes").len(), 5)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn completions_are_scripts_that_the_shells_take() {
    let folder = Folder::new();
    for (shell, first) in
        [("bash", "_tidemill()"), ("zsh", "#compdef tidemill"), ("fish", "complete -c tidemill")]
    {
        let script = folder.ok(&format!("completions {shell}")).out;
        assert!(script.contains(first), "{shell}");
        for word in ["next-hops", "capture", "blackhole"].iter().take(2) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    folder.fail(&[("completions csh", 2, "invalid value 'csh'")]);
    // Bash is where we test; the others may not be there.
    let script = folder.ok("completions bash").out;
    folder.write("tidemill.bash", script);
    let bash = |command: &str| {
        let output =
            Command::new("bash").args(["--norc", "-c", command]).current_dir(folder.path(".")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    bash("bash -n tidemill.bash");
    assert!(bash("source ./tidemill.bash && complete -p tidemill").contains("-F _tidemill"));
    let ask = "source ./tidemill.bash; COMP_WORDS=(tidemill show n); COMP_CWORD=2; _tidemill tidemill n show; \
        echo ${COMPREPLY[@]}";
    assert_eq!(bash(ask).trim(), "neighbors next-hops");
}
