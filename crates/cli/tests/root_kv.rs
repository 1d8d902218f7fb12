//! `tidemill kv` on a memcached of Debian's, with a client on another host. What the cache decides is tested in crates/kv; here it is the command.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test may

#[path = "../../port/tests/common/net.rs"]
mod net;

use net::{Host, cable, inside, run};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn tidemill(words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemill")).args(words.split_whitespace()).output().unwrap()
}

/// One JSON object that a command prints.
fn json(words: &str) -> Value {
    let output = tidemill(words);
    assert!(output.status.success(), "{words}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a command that fails says.
fn error(words: &str) -> String {
    let output = tidemill(words);
    assert_eq!(output.status.code(), Some(1), "{words}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn memcached() -> Process {
    let mut command = Command::new("memcached");
    command.args(["-u", "root", "-U", "11211", "-t", "2", "-l", "0.0.0.0"]);
    let process = Process(command.spawn().unwrap());
    until("memcached", || TcpStream::connect("127.0.0.1:11211").is_ok());
    process
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the daemon that was attached last says.
fn log() -> PathBuf {
    std::env::temp_dir().join(format!("tidemill-root-kv-{}", std::process::id()))
}

fn attach(words: &str) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["kv", "attach"]).args(words.split_whitespace()).stderr(File::create(log()).unwrap());
    let process = Process(command.spawn().unwrap());
    until("values are served", || {
        let output = tidemill("kv stats --json");
        let stats: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        stats["serving"] == 1 && stats["blind"] == 0
    });
    process
}

/// Asks over UDP and gives the reply, without the frame's header.
fn ask(socket: &UdpSocket, text: &str) -> String {
    let request = [&[0, 7, 0, 0, 0, 1, 0, 0], text.as_bytes()].concat();
    socket.send(&request).unwrap();
    let mut reply = [0; 2048];
    let length = socket.recv(&mut reply).unwrap();
    String::from_utf8_lossy(&reply[8..length]).into_owned()
}

#[test]
fn a_cache_is_attached_looked_at_flushed_and_detached() {
    let test = "a_cache_is_attached_looked_at_flushed_and_detached";
    if Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI");
        println!("skipped: {test} (needs memcached)");
        return;
    }
    if !inside(test) {
        return;
    }
    run("mount -t bpf bpf /sys/fs/bpf");
    run("ip link set lo up");
    cable("server", "client");
    run("ip addr add 10.0.0.1/24 dev server");
    let host = Host::new("client", &["10.0.0.2/24"]);
    let said = error("kv attach server");
    assert!(said.contains("11211"), "{said}");
    let _memcached = memcached();
    let said = error("kv attach sever");
    assert!(said.contains("no interface \"sever\" here: see ip link"), "{said}");
    assert_eq!(tidemill("kv attach server --allow 10.0.0.0/33").status.code(), Some(2));
    assert!(!error("kv stats").is_empty());
    for words in [
        "--memory 0",
        "--memory 99999999999999",
        "--connections 1",
        "--connections 130560",
        "--generic --native",
    ] {
        assert_eq!(tidemill(&format!("kv attach server {words}")).status.code(), Some(2), "{words}");
    }

    let path = log().with_extension("sock");
    let path = path.to_str().unwrap();
    let cache = attach(&format!("server --generic --socket {path}"));
    // The ways to memcached that it does not see are named.
    let text = std::fs::read_to_string(log()).unwrap();
    assert!(text.contains("tidemill: kv: what reaches memcached by lo"), "{text}");
    assert!(text.contains("is not seen: attach there too, or let nothing write that way"), "{text}");
    let socket = host.spawn(|| {
        let socket = UdpSocket::bind("10.0.0.2:0").unwrap();
        socket.connect("10.0.0.1:11211").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let socket = socket.join().unwrap();
    assert_eq!(ask(&socket, "set k 5 0 2\r\nhi\r\n"), "STORED\r\n");
    until("a hit", || {
        assert_eq!(ask(&socket, "get k\r\n"), "VALUE k 5 2\r\nhi\r\nEND\r\n");
        json("kv stats --json")["get-hit"].as_u64().unwrap() > 2
    });
    let top = json("kv top --json --limit 1");
    assert!(top["key"] == "k" && top["hits"].as_u64().unwrap() > 1, "{top}");
    assert_eq!(json(&format!("kv top --json --limit 1 --socket {path}"))["key"], "k");
    let text = String::from_utf8(tidemill("kv top").stdout).unwrap();
    assert!(text.trim_end().ends_with(" k"), "{text}");
    // What was kept is void: the next get is memcached's to answer.
    let counted = |name: &str| json("kv stats --json")[name].as_u64().unwrap();
    let (hits, misses) = (counted("get-hit"), counted("get-miss"));
    assert_eq!(ask(&socket, "get k\r\n"), "VALUE k 5 2\r\nhi\r\nEND\r\n");
    assert_eq!((counted("get-hit"), counted("get-miss")), (hits + 1, misses));
    assert_eq!(json("kv flush --json")["flushed"], true);
    assert_eq!(ask(&socket, "get k\r\n"), "VALUE k 5 2\r\nhi\r\nEND\r\n");
    assert_eq!((counted("get-hit"), counted("get-miss")), (hits + 1, misses + 1));
    // Each number with what it is, commands by the way they came, nothing that keeps it from serving.
    let text = String::from_utf8(tidemill("kv stats").stdout).unwrap();
    assert!(
        text.contains("datagrams answered in the kernel") && !text.contains("nothing is served:"),
        "{text}"
    );
    let stats = json("kv stats --json");
    let seen = stats["commands"].as_array().unwrap();
    assert!(
        seen.iter().any(|one| one["command"] == "set" && one["transport"] == "udp" && one["passes"] == 1),
        "{stats}"
    );
    assert!(
        stats["admitted"].as_u64().unwrap() > 0 && stats["why"].as_array().unwrap().is_empty(),
        "{stats}"
    );
    // The same by its socket, as metrics too.
    let all = json(&format!("kv stats --json --socket {path}"));
    assert!(all["counters"]["serving"] == 1 && all["counters"]["get-hit"] == hits + 1, "{all}");
    let text = String::from_utf8(tidemill(&format!("kv stats --socket {path}")).stdout).unwrap();
    assert!(text.lines().any(|line| line.split_whitespace().eq(["serving", "1"])), "{text}");
    let got = |what: &str| {
        let mut stream = UnixStream::connect(path).unwrap();
        let request = format!("GET {what} HTTP/1.1\r\nHost: tidemill\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = got("/metrics");
    let set =
        "\ntidemill_kv_attached_commands_total{command=\"set\",transport=\"udp\",by=\"memcached\"} 1.0\n";
    assert!(text.contains(set), "{text}");
    // What the live page shows of it.
    let text = got("/v1/panels");
    assert!(text.contains("\"Cache in front of memcached\""), "{text}");
    assert_eq!(json(&format!("kv flush --json --socket {path}"))["flushed"], true);
    assert!(error(&format!("kv top --socket {path}x")).contains("nothing answers at"));
    let said = error("kv attach server --generic");
    assert!(said.contains(&format!("process {}", cache.0.id())), "{said}");
    // The daemon ends, and its programs with it.
    assert_eq!(json("kv detach --json")["detached"], true);
    let mut cache = cache;
    assert!(cache.0.wait().unwrap().success());
    assert!(!std::path::Path::new(path).exists());
    assert_eq!(ask(&socket, "get k\r\n"), "VALUE k 5 2\r\nhi\r\nEND\r\n");
    assert_eq!(tidemill("kv detach").status.code(), Some(1));

    // One that is killed leaves its programs, which serve nothing once its lease is over; the next takes over, and one that stays is detached.
    let mut cache = attach("server --generic");
    cache.0.kill().unwrap();
    cache.0.wait().unwrap();
    until("the lease ends", || json("kv stats --json")["serving"] == 0);
    assert_eq!(ask(&socket, "get k\r\n"), "VALUE k 5 2\r\nhi\r\nEND\r\n");
    // One that cannot have its socket leaves them as they are.
    let taken = log().with_extension("taken");
    let listener = UnixListener::bind(&taken).unwrap();
    for socket in [taken.to_str().unwrap(), "/proc/nowhere/kv.sock"] {
        let said = error(&format!("kv attach server --generic --socket {socket}"));
        assert!(said.contains(socket.trim_end_matches("/kv.sock")), "{said}");
        assert_eq!(json("kv stats --json")["serving"], 0, "{socket}");
    }
    drop(listener);
    std::fs::remove_file(taken).unwrap();
    let mut cache = attach("server --generic --stay");
    run(&format!("kill -INT {}", cache.0.id()));
    assert!(cache.0.wait().unwrap().success());
    assert_eq!(json("kv stats --json")["serving"], 0);
    assert_eq!(json("kv detach --json")["detached"], true);
    assert!(!error("kv stats").is_empty());
    std::fs::remove_file(log()).unwrap();
}
