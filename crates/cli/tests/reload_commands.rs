//! What a run is beside its packets: reloads of files that come slowly, workers that stand still, what the service manager, the journal and Prometheus hear, documents, confined workers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

mod tool;

use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tool::Folder;

const PATIENCE: Duration = Duration::from_secs(60);

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tidemill(folder: &Folder, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(line.split(' ')).current_dir(folder.path(".")).stdin(Stdio::null());
    command
}

fn hang_up(running: &Running) {
    signal(running, "-HUP");
}

fn signal(running: &Running, which: &str) {
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args([which, &pid]).status().unwrap().success());
}

/// Waits until a run has said something.
fn is_said(folder: &Folder, what: &str) {
    let started = Instant::now();
    while !folder.read("said").contains(what) {
        assert!(started.elapsed() < PATIENCE, "{what}: {}", folder.read("said"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Something to run, with a socket.
const ROUTER: &str = "version = 1\nrole = \"router\"\n[control]\nsocket = \"s.sock\"\n\
    [[port]]\nname = \"a\"\nkind = \"null\"\nreceive = false\n[[port]]\nname = \"b\"\nkind = \"generator\"\nrate_pps = 1000\n";

/// A filter by `f.rules`, with a socket.
const FILTER: &str = "version = 1\nrole = \"filter\"\n[control]\nsocket = \"s.sock\"\n[filter]\nrules = \"f.rules\"\nstates = 1000\nhalf_open = 100\n\
    [[port]]\nname = \"a\"\nkind = \"null\"\nreceive = false\n[[port]]\nname = \"b\"\nkind = \"generator\"\nrate_pps = 1000\n";

/// Starts a run, and waits until it answers.
fn answering(folder: &Folder, mut command: Command) -> Running {
    let mut running = Running(command.stdout(Stdio::null()).spawn().unwrap());
    let started = Instant::now();
    while folder.run("log --socket s.sock").code != 0 {
        assert!(started.elapsed() < PATIENCE && running.0.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

/// A run of `run.toml` whose service manager wants to hear every 0.4 s that all goes on.
fn managed(folder: &Folder) -> (UnixDatagram, Command) {
    let manager = UnixDatagram::bind(folder.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = tidemill(folder, "run run.toml");
    command.env("NOTIFY_SOCKET", folder.path("notify")).env("WATCHDOG_USEC", "400000");
    command.env_remove("WATCHDOG_PID").stdout(Stdio::null());
    (manager, command)
}

/// What the manager hears next.
fn hear(manager: &UnixDatagram) -> String {
    let mut room = [0; 4096];
    let length = manager.recv(&mut room).unwrap();
    String::from_utf8(room[..length].to_vec()).unwrap()
}

/// The end of a pipe that is written to; it can be opened when somebody reads at the other one.
fn writing_end(folder: &Folder, pipe: &str) -> File {
    const NONBLOCK: i32 = 0o4000;
    let started = Instant::now();
    loop {
        match OpenOptions::new().write(true).custom_flags(NONBLOCK).open(folder.path(pipe)) {
            Ok(end) => return end,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A run of `run.toml`, whose `file` is read again while its disk gives nothing: it answers, and says that all goes on. Then it gets `text`.
fn goes_on_while_a_file_is_slow(folder: &Folder, file: &str, text: &str) {
    let (manager, mut command) = managed(folder);
    let mut running = Running(command.spawn().unwrap());
    while !hear(&manager).contains("READY=1") {}
    // A file of which nothing comes.
    std::fs::remove_file(folder.path(file)).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path(file)).status().unwrap().success());
    let mut reload = Running(tidemill(folder, "reload --socket s.sock").spawn().unwrap());
    let mut disk = writing_end(folder, file);
    // What was said before is heard.
    while manager.set_nonblocking(true).is_ok() && manager.recv(&mut [0; 4096]).is_ok() {}
    manager.set_nonblocking(false).unwrap();
    for _ in 0..4 {
        while !hear(&manager).contains("WATCHDOG=1") {}
    }
    folder.ok("show ports --socket s.sock --timeout 30");
    assert!(reload.0.try_wait().unwrap().is_none(), "it waits for its file");
    disk.write_all(text.as_bytes()).unwrap();
    drop(disk);
    assert!(reload.0.wait().unwrap().success());
    assert!(running.0.try_wait().unwrap().is_none());
}

/// A reload whose file never comes does not hold up the end.
#[test]
fn a_run_ends_while_a_reload_waits() {
    let folder = Folder::new();
    folder.write("run.toml", ROUTER);
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(Stdio::null());
    let mut running = answering(&folder, command);
    std::fs::remove_file(folder.path("run.toml")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path("run.toml")).status().unwrap().success());
    hang_up(&running);
    let disk = writing_end(&folder, "run.toml");
    signal(&running, "-TERM");
    let started = Instant::now();
    let status = loop {
        match running.0.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(started.elapsed() < PATIENCE, "it waits for its reload"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    drop(disk);
}

/// While a reload waits for its file another one is refused, and a signal's comes after it.
#[test]
fn a_reload_waits_for_no_other_without_a_word() {
    let folder = Folder::new();
    folder.write("run.toml", ROUTER);
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(File::create(folder.path("said")).unwrap());
    let running = answering(&folder, command);
    std::fs::remove_file(folder.path("run.toml")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path("run.toml")).status().unwrap().success());
    let mut first =
        Running(tidemill(&folder, "reload --socket s.sock").stderr(Stdio::null()).spawn().unwrap());
    let mut disk = writing_end(&folder, "run.toml");
    folder.fail(&[("reload --socket s.sock", 1, "a reload is under way since ")]);
    hang_up(&running);
    is_said(&folder, "s: the one that SIGHUP asks for comes after it");
    disk.write_all(ROUTER.as_bytes()).unwrap();
    drop(disk);
    assert!(first.0.wait().unwrap().success());
    let mut disk = writing_end(&folder, "run.toml");
    disk.write_all(ROUTER.as_bytes()).unwrap();
    drop(disk);
    is_said(&folder, "run.toml: reloaded (number 2)");
}

/// A packet in a capture, so many milliseconds after its beginning.
fn record(ms: u32) -> Vec<u8> {
    let mut record: Vec<u8> =
        [1 + ms / 1000, ms % 1000 * 1000, 60, 60].into_iter().flat_map(u32::to_le_bytes).collect();
    record.extend([0; 60]);
    record
}

/// A worker that stands still is not said to go on, whatever all other threads do: this one reads a capture of which nothing comes. A signal for a reload that comes before
/// there is a worker ends nothing.
#[test]
fn a_worker_that_stands_still_is_noticed() {
    let folder = Folder::new();
    let port = "[[port]]\nname = \"c\"\nkind = \"pcap\"\ninput = \"pipe\"\npace = \"time\"\n";
    folder.write("run.toml", format!("{ROUTER}{port}"));
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    let (manager, mut command) = managed(&folder);
    command.stderr(File::create(folder.path("said")).unwrap());
    let running = Running(command.spawn().unwrap());
    let mut pipe = writing_end(&folder, "pipe");
    hang_up(&running);
    // The second packet is due soon, and nothing is behind it.
    let header = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 1].into_iter().flat_map(u32::to_le_bytes);
    let beginning: Vec<u8> = header.chain(record(0)).chain(record(200)).collect();
    pipe.write_all(&beginning).unwrap();
    while !hear(&manager).contains("READY=1") {}
    is_said(&folder, "run.toml: reloaded (number 1)");
    manager.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    let started = Instant::now();
    while manager.recv(&mut [0; 4096]).is_ok() {
        assert!(started.elapsed() < PATIENCE, "it stands still, and is said to go on");
    }
    folder.ok("show ports --socket s.sock --timeout 30");
    // One that is due in an hour lets it go on.
    pipe.write_all(&record(3_600_000)).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    while !hear(&manager).contains("WATCHDOG=1") {}
}

#[test]
fn a_filter_whose_rules_come_slowly() {
    let folder = Folder::new();
    folder.write("run.toml", FILTER);
    folder.write("f.rules", "pass all\n");
    goes_on_while_a_file_is_slow(&folder, "f.rules", "block all\npass all\n");
}

/// Who is banned while files are read, and before, is so afterwards, whatever they say.
#[test]
fn what_is_put_into_a_filters_table_while_files_are_read_is_in_it() {
    let folder = Folder::new();
    folder.write("run.toml", FILTER);
    folder.write("f.rules", "table <bans> persist\ntable <bad> file \"bad.txt\"\npass all\n");
    folder.write("bad.txt", "192.0.2.1\n");
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(Stdio::null());
    let _running = answering(&folder, command);
    for table in ["bans", "bad"] {
        folder.ok(&format!("filter add-to-set {table} 203.0.113.1 --socket s.sock"));
    }
    std::fs::remove_file(folder.path("bad.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path("bad.txt")).status().unwrap().success());
    let running = |line: &str| {
        let mut command = tidemill(&folder, line);
        Running(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let mut load = running("filter load --socket s.sock");
    let mut disk = writing_end(&folder, "bad.txt");
    let mut adding = ["bans", "bad"]
        .map(|table| running(&format!("filter add-to-set {table} 203.0.113.2 --socket s.sock")));
    // It counts at once.
    let started = Instant::now();
    let listed = |table: &str| folder.ok(&format!("filter sets {table} --socket s.sock")).out;
    while ["bans", "bad"].iter().any(|table| !listed(table).contains("203.0.113.2")) {
        assert!(started.elapsed() < PATIENCE, "{}{}", listed("bans"), listed("bad"));
    }
    disk.write_all(b"198.51.100.1\n").unwrap();
    drop(disk);
    for child in std::iter::once(&mut load).chain(&mut adding) {
        assert!(child.0.wait().unwrap().success());
    }
    let [bans, bad] = ["bans", "bad"].map(listed);
    assert!(["203.0.113.1", "203.0.113.2"].iter().all(|host| bans.contains(host)), "{bans}");
    assert!(["198.51.100.1", "203.0.113.2"].iter().all(|host| bad.contains(host)), "{bad}");
    assert!(!bad.contains("203.0.113.1"), "the file has been read since: {bad}");
    folder.write("f.rules", "");
    let said = folder.ok("filter load --socket s.sock").err;
    assert!(said.contains("0 rules and 0 tables loaded: version "), "{said}");
    assert!(said.contains("; filter.rules: has no rules: everything passes"), "{said}");
}

/// All of a box that translates and filters is taken, or nothing.
#[test]
fn a_box_that_is_both_takes_both_or_neither() {
    let folder = Folder::new();
    let config = |more: &str| {
        format!("{FILTER}[nat]\ninside = [\"b\"]\noutside = [\"a\"]\npool = [\"192.0.2.1\"]\n{more}")
    };
    folder.write("run.toml", config("")).write("f.rules", "pass all\n");
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(Stdio::null());
    let _running = answering(&folder, command);
    let rules = || folder.ok("filter rules --socket s.sock").out;
    for (nat, file, wrong) in [
        (
            "filtering = \"endpoint-independent\"\n",
            "block all\n",
            "nat.filtering: cannot change while the NAT",
        ),
        ("udp_s = 200\n", "blok all\n", "f.rules: line 1"),
    ] {
        folder.write("run.toml", config(nat)).write("f.rules", file);
        folder.fail(&[("reload --socket s.sock", 1, wrong)]);
        assert!(rules().contains("pass all"), "{}", rules());
    }
    folder.write("f.rules", "block all\n").write("run.toml", FILTER);
    folder.fail(&[("reload --socket s.sock", 1, "nat: cannot change while it runs")]);
    folder.write("run.toml", config("udp_s = 200\n"));
    folder.ok("reload --socket s.sock");
    assert!(rules().contains("block all"), "{}", rules());
    folder.ok("nat counters --socket s.sock");
    folder.ok("filter counters --socket s.sock");
    folder.ok("stop --socket s.sock");
}

/// The state is written over no file of the filter's, whenever that comes to be named.
#[test]
fn a_running_filter_loads_nothing_from_the_file_of_the_state() {
    let folder = Folder::new();
    folder.write("run.toml", format!("{FILTER}[state]\npath = \"state.img\"\nevery = 0\n"));
    folder.write("f.rules", "pass all\n");
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(Stdio::null());
    let _running = answering(&folder, command);
    folder.write("state.img", "");
    let reads = "state.img: the filter reads its rules, or a table, from that: name another one";
    for rules in [
        "table <bad> file \"state.img\"\nblock all\n",
        "load \"state.img\" format classbench block\nblock all\n",
    ] {
        folder.write("f.rules", rules);
        folder.fail(&[("filter load --socket s.sock", 2, reads), ("reload --socket s.sock", 1, reads)]);
    }
    let said = folder.ok("filter rules --socket s.sock").out;
    assert!(said.contains("pass all") && !said.contains("block"), "{said}");
    // Another file is taken.
    folder.write("bad.txt", "192.0.2.1\n").write("f.rules", "table <bad> file \"bad.txt\"\nblock all\n");
    folder.ok("filter load --socket s.sock");
    folder.ok("stop --socket s.sock");
}

/// What was wrong with the file at the start is there for who looks later.
#[test]
fn a_handover_that_is_refused_is_counted_and_told() {
    let folder = Folder::new();
    let filter = FILTER.replacen("[filter]", "[filter]\nhandover = \"states\"\nhandover_s = 1", 1);
    let nat = "inside = [\"b\"]\noutside = [\"a\"]\npool = [\"192.0.2.1\"]\nhandover = \"sessions\"\nhandover_s = 1";
    folder.write("run.toml", format!("{filter}[nat]\n{nat}\n")).write("f.rules", "pass all\n");
    let both = [("nat", "nat-sessions", "sessions"), ("filter", "filter-states", "states")];
    for (_, kind, file) in both {
        let image = tidemill_lookup::image::ImageBuilder::new(kind, 1, 32).finish();
        std::fs::write(folder.path(file), &image[..40]).unwrap();
    }
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(Stdio::null());
    let _running = answering(&folder, command);
    for (part, _, file) in both {
        let count = |name: &str| {
            let counters = folder.ok(&format!("{part} counters --json --socket s.sock")).json().remove(0);
            counters["counters"][name].as_u64().unwrap()
        };
        assert_eq!((count("handover-refused"), count("handover-left-out")), (1, 0));
        let told = folder.ok(&format!("events --once --kind {part} --socket s.sock")).out;
        assert!(told.contains(&format!("starting without it; the file is kept as {file}.old")), "{told}");
        assert_eq!(std::fs::read(folder.path(&format!("{file}.old"))).unwrap().len(), 40);
        let started = Instant::now();
        while count("handover-saves") == 0 {
            assert!(started.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(count("handover-failures"), 0);
    }
    folder.ok("stop --socket s.sock");
}

/// Else that is found out when it is to be written, some time after the start.
#[test]
fn files_that_can_never_be_written_are_refused() {
    let folder = Folder::new();
    folder.write("f.rules", "pass all\n");
    let refused = |section: &str, name: &str, says: &str| {
        let section = section.replace("NAME", name);
        folder.write("wrong.toml", FILTER.replacen("[filter]", &section, 1));
        folder.fail(&[("check wrong.toml", 2, says), ("run wrong.toml", 2, says)]);
    };
    let empty = |section: &str, key: &str| {
        refused(section, "", &format!("wrong.toml: {key}: is an empty name: name a file, or leave it out"));
    };
    let nat =
        "[nat]\ninside = [\"b\"]\noutside = [\"a\"]\npool = [\"192.0.2.1\"]\nhandover = \"NAME\"\n[filter]";
    for (section, key) in [
        ("[filter]\nhandover = \"NAME\"", "filter.handover"),
        (nat, "nat.handover"),
        ("[state]\npath = \"NAME\"\n[filter]", "state.path"),
        ("[[port]]\nname = \"c\"\nkind = \"pcap\"\noutput = \"NAME\"\n[filter]", "port[0].output"),
    ] {
        for (name, says) in [
            ("no/new", "there is no folder no: make it"),
            ("f.rules/new", "f.rules is no folder: give another name"),
            ("new/", "is a folder's name: name a file"),
            (".", "is a folder: name a file in it"),
        ] {
            refused(section, name, &format!("{key}: {name}: {says}"));
        }
        empty(section, key);
    }
    // The socket has a name, also where nothing is said of it.
    let socket = tidemill_control::DEFAULT_SOCKET;
    let unsaid =
        FILTER.replacen("socket = \"s.sock\"\n[filter]", &format!("[filter]\nhandover = {socket:?}"), 1);
    folder.write("wrong.toml", unsaid);
    let twice = "would be written twice: it is control.socket and filter.handover: give each its own file";
    folder.fail(&[("check wrong.toml", 2, twice)]);
    empty("[assets]\nfingerprints = \"NAME\"\n[filter]", "assets.fingerprints");
}

#[cfg(feature = "lua")]
#[test]
fn a_grantor_whose_tables_come_slowly() {
    let folder = Folder::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/grantor/");
    let text = std::fs::read_to_string(format!("{example}grantor.toml")).unwrap();
    let of_files = [
        "kind = \"pcap\"\ninput = \"outer.pcapng.zst\"\noutput = \"out.up.pcapng\"",
        "kind = \"pcap\"\noutput = \"out.down.pcapng\"",
    ];
    assert!(of_files.iter().all(|ports| text.contains(ports)));
    let text = text.replace(of_files[0], "kind = \"null\"\nreceive = false");
    let text = text.replace(of_files[1], "kind = \"generator\"\nrate_pps = 1000");
    folder.write("run.toml", format!("{text}\n[control]\nsocket = \"s.sock\"\n"));
    std::fs::copy(format!("{example}deny.txt"), folder.path("deny.txt")).unwrap();
    goes_on_while_a_file_is_slow(&folder, "deny.txt", "192.0.2.0/24\n");
}

/// The OpenAPI document of a run says what each of its verbs takes and answers.
fn the_types_are_known(folder: &Folder) {
    let client = tidemill_control::Client::new(&folder.path("s.sock")).unwrap();
    let document: Value = client.get("/v1/openapi.json", &()).unwrap();
    let (mut answers, mut bodies) = (0, 0);
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for (method, verb) in verbs.as_object().unwrap() {
            let answer = &verb["responses"]["200"]["content"]["application/json"];
            let is_told =
                answer.is_null() || path == "/v1/openapi.json" || answer["schema"]["$ref"].is_string();
            assert!(is_told, "{method} {path}: {answer}");
            answers += usize::from(!answer.is_null());
            let body = &verb["requestBody"]["content"]["application/json"];
            // These need none.
            let is_bare = BARE.contains(&path.as_str());
            assert!(
                body.is_null() || is_bare || body["schema"]["properties"].is_object(),
                "{method} {path}: {body}"
            );
            bodies += usize::from(body["schema"].is_object());
        }
    }
    assert!(answers > 15 && bodies > 1, "{answers} {bodies}");
}

/// What is to be done, and nothing more to say of it.
const BARE: [&str; 5] = ["/v1/reload", "/v1/stop", "/v1/state", "/v1/filter/rules", "/v1/kv/flush"];

/// What one part of a run counts is a panel of the page.
fn panels(folder: &Folder) -> Vec<String> {
    let client = tidemill_control::Client::new(&folder.path("s.sock")).unwrap();
    let all: Value = client.get("/v1/panels", &()).unwrap();
    let title = |panel: &Value| panel["title"].as_str().unwrap().to_owned();
    all["panels"].as_array().unwrap().iter().map(title).collect()
}

/// A role with a section that it needs, its panels on the page, and what its own metrics begin with.
struct Case {
    role: &'static str,
    section: &'static str,
    titles: &'static [&'static str],
    metrics: &'static str,
}

const ROLES: [Case; 7] = [
    Case {
        role: "router",
        section: "[bgp]\nasn = 65000\nid = \"10.0.0.1\"\nlisten = []\n",
        titles: &["Router", "BGP"],
        metrics: "bgp_",
    },
    Case { role: "gatekeeper", section: "", titles: &["Router", "Gatekeeper"], metrics: "gate_" },
    Case { role: "mitigator", section: "", titles: &["Mitigator"], metrics: "amp_" },
    Case { role: "switch", section: "", titles: &["Switch"], metrics: "switch_" },
    Case {
        role: "nat",
        section: "[nat]\ninside = [\"b\"]\noutside = [\"a\"]\npool = [\"192.0.2.1\"]\n",
        titles: &["Router", "NAT"],
        metrics: "nat_",
    },
    Case {
        role: "filter",
        section: "[filter]\nrules = \"f.rules\"\nstates = 1000\nhalf_open = 100\n",
        titles: &["Router", "Filter"],
        metrics: "filter_",
    },
    Case {
        role: "kvcache",
        section: "[kvcache]\naddresses = [\"10.1.0.2\"]\nallow = [\"10.1.0.0/24\"]\n",
        titles: &["Key-value cache"],
        metrics: "kv_",
    },
];

impl Case {
    /// A run of it that answers.
    fn start(&self, folder: &Folder) -> Running {
        folder.write("f.rules", "pass all\n");
        folder.write("run.toml", ROUTER.replace("router", self.role) + self.section);
        let mut command = tidemill(folder, "run run.toml");
        command.stderr(Stdio::null());
        answering(folder, command)
    }
}

#[test]
fn every_role_has_types_and_panels_hears_a_signal_and_stops() {
    for case in ROLES {
        let (folder, role) = (Folder::new(), case.role);
        let mut running = case.start(&folder);
        the_types_are_known(&folder);
        assert_eq!(panels(&folder), case.titles, "{role}");
        hang_up(&running);
        let (started, mut events) = (Instant::now(), String::new());
        while !events.contains("reloaded (number 1)") {
            assert!(started.elapsed() < PATIENCE, "{role}: {events}");
            events = folder.ok("events --once --kind reload --socket s.sock").out;
        }
        folder.ok("stop --socket s.sock");
        assert!(running.0.wait().unwrap().success(), "{role}");
    }
}

#[test]
fn a_nat_says_after_a_reload_what_will_not_work_any_more() {
    let folder = Folder::new();
    let of = |address: &str| {
        format!(
            "{}[[interface]]\nport = \"a\"\naddresses = [\"{address}/24\"]\n\
            [nat]\ninside = [\"b\"]\noutside = [\"a\"]\npool = [\"192.0.2.1\"]\n",
            ROUTER.replace("router", "nat")
        )
    };
    folder.write("run.toml", of("192.0.2.1"));
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(File::create(folder.path("said")).unwrap());
    let _running = answering(&folder, command);
    let remark = "nat.pool: 192.0.2.1 is on the link of interface \"a\", where nobody answers for it";
    assert!(!folder.read("said").contains(remark), "{}", folder.read("said"));
    // Once: what it has said it does not say again.
    for address in ["192.0.2.9", "192.0.2.9"] {
        folder.write("run.toml", of(address));
        folder.ok("reload --socket s.sock");
    }
    is_said(&folder, remark);
    assert_eq!(folder.read("said").matches(remark).count(), 1, "{}", folder.read("said"));
    folder.ok("stop --socket s.sock");
}

/// Reads OpenMetrics as Prometheus' own library for Python does, which is strict: families and samples.
const READ: &str = "import sys\n\
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
    families = list(read(sys.stdin.read()))\n\
    assert all(one.documentation and one.type in ('counter', 'gauge') for one in families)\n\
    print(len(families), sum(len(one.samples) for one in families))";

/// What that makes of a text; `None` if it refuses it.
fn read_by(python: &std::ffi::OsStr, text: &str) -> Option<String> {
    let mut command = Command::new(python);
    command.args(["-c", READ]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(said)
}

#[test]
fn prometheus_reads_the_metrics_of_runs() {
    let Some(python) = std::env::var_os("TIDEMILL_PYTHON").filter(|value| !value.is_empty()) else {
        return println!("skipped: prometheus_reads_the_metrics_of_runs (TIDEMILL_PYTHON is not set)");
    };
    for case in ROLES {
        let folder = Folder::new();
        let _running = case.start(&folder);
        let mut socket = UnixStream::connect(folder.path("s.sock")).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let families = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(families > 10 && samples > families, "{text}");
        assert!(text.contains(&format!("\ntidemill_{}", case.metrics)), "{}: {text}", case.role);
        assert_eq!(read_by(&python, text), Some(format!("{families} {samples}")), "{text}");
        // It would say if anything were wrong.
        for (right, wrong) in [("# EOF\n", ""), ("_total{", "{"), ("# TYPE ", "# TYP ")] {
            assert_eq!(read_by(&python, &text.replacen(right, wrong, 1)), None, "{right}");
        }
    }
}

#[test]
fn what_is_said_follows_the_levels() {
    let folder = Folder::new();
    let text = ROUTER;
    folder.write("run.toml", format!("{text}[log]\nlevel = \"warning\"\n"));
    let said = std::fs::File::create(folder.path("said")).unwrap();
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(said);
    let mut running = answering(&folder, command);
    the_types_are_known(&folder);
    let shown = folder.ok("log --json --socket s.sock").json().remove(0);
    assert_eq!(shown["level"], "warning");
    let one = serde_json::json!({"name": "bgp", "level": "warning", "own": false});
    assert!(shown["modules"].as_array().unwrap().contains(&one), "{shown}");
    // Events are told, and at this level none of them is a line.
    folder.ok("log bgp=debug --socket s.sock");
    folder.ok("reload --socket s.sock");
    assert!(folder.ok("events --once --kind reload --socket s.sock").out.contains("reloaded (number 1)"));
    assert!(!folder.read("said").contains("reloaded"), "{}", folder.read("said"));
    let shown = folder.ok("log --json --socket s.sock").json().remove(0);
    assert!(shown["modules"].as_array().unwrap().contains(&one), "a reload has them as they are written");
    // A level in the file, then one by command.
    folder.write("run.toml", format!("{text}[log]\nmodules = {{ reload = \"debug\" }}\n"));
    folder.ok("reload --socket s.sock");
    assert!(folder.read("said").contains("tidemill: reload: run.toml: reloaded (number 2)\n"));
    // A signal's reload is a line of its own at other levels; at this one it is the event's.
    hang_up(&running);
    is_said(&folder, "reloaded (number 3)");
    let text = folder.ok("log error run=debug --socket s.sock").out;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["module", "level"], ["default", "error"], ["run", "debug"], ["reload", "debug"]]);
    folder.fail(&[
        ("log loud --socket s.sock", 2, "there is no level \"loud\": give error, warning, info or debug"),
        ("log rain=info --socket s.sock", 2, "there is no module \"rain\": give one of run, reload"),
        ("log bgp=info bgp=error --socket s.sock", 2, "bgp=error: there are two levels for one thing"),
    ]);
    folder.ok("stop --socket s.sock");
    assert!(running.0.wait().unwrap().success());
    let said = folder.read("said");
    assert!(said.contains("tidemill: run: run.toml: stops: it was asked to\n"), "{said}");
    assert_eq!(said.matches("(number 3)").count(), 1, "{said}");
    folder.write(
        "wrong.toml",
        format!(
            "{}[log]\nmodules = {{ rain = \"info\" }}\n",
            folder.read("run.toml").split("[log]").next().unwrap()
        ),
    );
    folder.fail(&[("check wrong.toml", 2, "log.modules: there is no module \"rain\"")]);
}

/// Where standard error is the journal's, each line says how severe it is; nowhere else does one.
#[test]
fn the_journal_hears_how_severe_a_line_is() {
    let folder = Folder::new();
    folder.write("run.toml", ROUTER);
    let said = std::fs::File::create(folder.path("said")).unwrap();
    let there = said.metadata().unwrap();
    let journal = format!("{}:{}", there.dev(), there.ino());
    let mut command = tidemill(&folder, "run run.toml");
    command.env("JOURNAL_STREAM", &journal).stderr(said);
    let mut running = answering(&folder, command);
    hang_up(&running);
    is_said(&folder, "<6>tidemill: run.toml: reloaded (number 1)\n");
    folder.write("run.toml", format!("{ROUTER}[nonsense]\n"));
    hang_up(&running);
    is_said(&folder, "<4>tidemill: reload refused, nothing has changed: ");
    // The level is the new file's already.
    folder.write("run.toml", format!("{ROUTER}[log]\nmodules = {{ reload = \"debug\" }}\n"));
    folder.ok("reload --socket s.sock");
    is_said(&folder, "<6>tidemill: reload: run.toml: reloaded (number 2)\n");
    folder.ok("stop --socket s.sock");
    assert!(running.0.wait().unwrap().success());
    // What is wrong with it; the second one has a standard error of its own, and has inherited the variable.
    let said = std::fs::File::options().append(true).open(folder.path("said")).unwrap();
    let mut command = tidemill(&folder, "run missing.toml");
    command.env("JOURNAL_STREAM", &journal);
    assert_eq!(command.stderr(said).status().unwrap().code(), Some(2));
    assert!(folder.read("said").contains("\n<3>tidemill: missing.toml"), "{}", folder.read("said"));
    let said = command.stderr(Stdio::piped()).output().unwrap().stderr;
    assert!(said.starts_with(b"tidemill: missing.toml"), "{}", String::from_utf8_lossy(&said));
}

/// A confined worker cannot open a file anew: that is said before it begins.
#[test]
fn who_repeats_a_file_from_the_disk_is_not_confined() {
    let folder = Folder::new();
    let config = |more: &str| {
        format!(
            "version = 1\nrole = \"router\"\n[run]\nconfine = true\n[[port]]\nname = \"a\"\nkind = \"null\"\n\
             [[port]]\nname = \"b\"\nkind = \"pcap\"\ninput = \"in.pcap\"\n{more}"
        )
    };
    folder.write("again.toml", config("repeat = 2\n"));
    let line =
        "run.confine: port b repeats a file, which its worker opens anew each time: set preload = true";
    folder.fail(&[("run again.toml", 2, line)]);
    // With it, what is missing is the file.
    folder.write("kept.toml", config("repeat = 2\npreload = true\n"));
    folder.fail(&[("run kept.toml", 2, "in.pcap")]);
}

/// What `run.confine` asks for is so of each worker, and of no other thread.
#[test]
fn the_workers_of_a_run_are_confined() {
    let folder = Folder::new();
    folder.write("run.toml", format!("{ROUTER}[run]\nconfine = true\nworkers = 2\n"));
    let mut command = tidemill(&folder, "run run.toml");
    command.stderr(Stdio::null());
    let running = answering(&folder, command);
    let filters = |status: &str| -> u32 {
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(
        own.contains("Seccomp_filters:"),
        "this kernel does not say what filters a thread has (Linux 5.9)"
    );
    let own = filters(&own);
    let confined = || {
        let mut names = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{}/task", running.0.id())).unwrap() {
            let task = task.unwrap().path();
            let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
            let status = read("status");
            if filters(&status) > own {
                assert!(status.contains("\nCapPrm:\t0000000000000000\n"), "{status}");
                names.push(read("comm").trim().to_owned());
            }
            assert!(status.is_empty() || status.contains("\nNoNewPrivs:\t1\n"), "{status}");
        }
        names.sort();
        names
    };
    // The API answers before the workers begin.
    let started = Instant::now();
    while confined() != ["worker-0", "worker-1"] {
        assert!(started.elapsed() < PATIENCE, "{:?}", confined());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is refused at a start is refused at a reload, by its name.
#[test]
fn a_reload_is_refused_for_what_a_start_is() {
    let folder = Folder::new();
    let bgp = "[[interface]]\nport = \"a\"\nname = \"back\"\n\
        [bgp]\nasn = 65000\nid = \"10.0.0.1\"\nlisten = []\nflowspec = true\nflowspec_except = [\"back\"]\n";
    let text = format!("{ROUTER}{bgp}");
    let announce = "[[bgp.announce]]\nprefix = \"192.0.2.0/24\"\nwhile_grantors = true\n";
    folder.write("run.toml", &text);
    let _running = answering(&folder, tidemill(&folder, "run run.toml"));
    folder.write("run.toml", format!("{text}{announce}"));
    let line = "bgp.announce[0].while_grantors: a router asks no Grantors: leave it out";
    folder.fail(&[("check run.toml", 2, line), ("reload --socket s.sock", 1, line)]);
    folder.write("run.toml", text.replace("name = \"back\"", "name = \"front\""));
    let line = "bgp.flowspec_except: there is no interface \"back\"; there are ";
    folder.fail(&[("check run.toml", 2, line), ("reload --socket s.sock", 1, line)]);
    folder.write("run.toml", text.replace("asn = 65000", "asn = 65001"));
    folder.fail(&[("reload --socket s.sock", 1, "bgp.asn: cannot change while it runs")]);
    folder.write("run.toml", &text);
    folder.ok("reload --socket s.sock");
}
