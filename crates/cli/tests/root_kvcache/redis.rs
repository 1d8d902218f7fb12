//! `tidemill kv redis` in front of a real Redis: clients that do anything get the bytes that a Redis without it gives; clients that write and read at the same time never see what was; writes past it
//! are seen within the lease; nobody gets what Redis would not give him.

use crate::contract::lab::turn;
use crate::net::wait_until;
use crate::rng::Rng;
use crate::seed;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::Done;
use tidemill_control::schema::kv::{Counters, path};
use tidemill_kv::resp::item::{Item, Items, request};
use tidemill_kv::resp::reply::{Frame, Replies};

const PATIENCE: Duration = Duration::from_secs(10);
const LEASE_MS: u64 = 200;

/// Whether there is a Redis; in CI there is.
fn there(test: &str) -> bool {
    let there = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(
        there || std::env::var_os("CI").is_none(),
        "{test} must not be skipped in CI: needs redis-server"
    );
    if !there {
        println!("skipped: {test} (needs redis-server)");
    }
    there
}

/// An address that nobody has, and that the system gives nobody of itself: who wants it binds it a while later, and a Redis that is started again once more.
fn free() -> SocketAddr {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let first = u64::from(std::process::id()) * 64;
    let mut all = std::iter::repeat_with(|| {
        let port = 10_000 + (first + TAKEN.fetch_add(1, Ordering::Relaxed)) % 20_000;
        SocketAddr::from(([127, 0, 0, 1], port as u16))
    });
    all.find(|at| TcpListener::bind(at).is_ok()).unwrap()
}

/// A process that ends with its value.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn redis(at: SocketAddr, folder: &tempfile::TempDir) -> Process {
    let mut command = Command::new("redis-server");
    command.args([
        "--port",
        &at.port().to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--daemonize",
        "no",
    ]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let process = Process(command.spawn().unwrap());
    wait_until("redis answers", PATIENCE, || TcpStream::connect(at).is_ok());
    process
}

/// A Redis with the cache in front of it.
struct Lab {
    redis: Process,
    front: Process,
    at: SocketAddr,
    /// Past the cache.
    direct: SocketAddr,
    client: Client,
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let (at, direct, folder) = (free(), free(), tempfile::tempdir().unwrap());
        let redis = redis(direct, &folder);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["kv", "redis", "--socket", "kv.sock", "--json", "--lease", &LEASE_MS.to_string()]);
        command.args(["--listen", &at.to_string(), "--redis", &direct.to_string()]);
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(file("out")).stderr(file("err"));
        let front = Process(command.spawn().unwrap());
        let client = Client::new(&folder.path().join("kv.sock")).unwrap();
        let lab = Lab { redis, front, at, direct, client, folder };
        lab.heard();
        lab
    }

    fn heard(&self) {
        wait_until("Redis is heard", PATIENCE, || {
            self.counters().is_some_and(|all| all.counters["sure"] == 1)
        });
    }

    /// With all that has happened until now.
    fn counters(&self) -> Option<Counters> {
        self.client.get(path::COUNTERS, &()).ok()
    }

    fn count(&self, name: &str) -> u64 {
        self.counters().unwrap().counters[name]
    }

    fn hits(&self) -> u64 {
        hits(&self.counters().unwrap())
    }

    /// Reads until the cache answers it.
    fn warm(&self, conn: &mut Conn, words: &str) {
        wait_until(words, PATIENCE, || {
            let before = self.hits();
            conn.ask(words);
            self.hits() > before
        });
    }
}

/// Reads that were answered.
fn hits(counters: &Counters) -> u64 {
    let all = counters.counters.iter();
    all.filter(|(name, _)| name.starts_with("hit-")).map(|(_, count)| count).sum()
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = std::fs::read_to_string(self.folder.path().join("err"));
            println!("--- cache\n{:?}\n{said:?}", self.counters());
        }
    }
}

/// A client's connection.
struct Conn {
    stream: TcpStream,
    replies: Replies,
    rest: Vec<u8>,
}

impl Conn {
    fn new(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Conn { stream, replies: Replies::new(), rest: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next reply; none: the connection has ended, or nothing came in time.
    fn reply(&mut self) -> Option<Vec<u8>> {
        let (mut reply, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let (read, frame) = self.replies.push(&self.rest);
            reply.extend(self.rest.drain(..read));
            match frame {
                Frame::Reply => return Some(reply),
                Frame::Push => reply.clear(),
                Frame::Broken => panic!("no reply: {:?}", String::from_utf8_lossy(&reply)),
                Frame::More => match self.stream.read(&mut bytes) {
                    Ok(read @ 1..) => self.rest.extend_from_slice(&bytes[..read]),
                    _ => return None,
                },
            }
        }
    }

    fn ask(&mut self, words: &str) -> String {
        let mut text = Vec::new();
        request(&mut text, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        self.send(&text);
        String::from_utf8_lossy(&self.reply().expect(words)).into_owned()
    }

    /// The number that a reply is, or has as its text.
    fn number(&mut self, words: &str) -> u64 {
        let reply = self.ask(words);
        match Items::new(reply.as_bytes()).last() {
            Some(Item::Number(text) | Item::Text(text)) => String::from_utf8_lossy(text).parse().unwrap(),
            Some(Item::Null | Item::Many(..)) => 0,
            other => panic!("{words}: {other:?}"),
        }
    }
}

/// Reads of a thousand commands.
const READS: u64 = 960;
/// Reads that are asked again soon.
const RECENT: usize = 6;

/// One word of these.
fn one<'a>(rng: &mut Rng, words: &[&'a str]) -> &'a str {
    words[rng.below(words.len() as u64) as usize]
}

/// A command, and whether it is a read that the cache may answer; of a few keys of each type, now and then of another's.
fn command(rng: &mut Rng) -> (bool, String) {
    const KEYS: [&str; 5] = ["s", "h", "t", "l", "z"];
    let kind = rng.below(5) as usize;
    let named = if rng.chance(0.05) { one(rng, &KEYS) } else { KEYS[kind] };
    let (k, k2) = (format!("{named}{}", rng.below(2)), format!("{}{}", KEYS[kind], rng.below(3)));
    let m = one(rng, &["a", "b", "c", "dd", ""]);
    let (n, n2) = (rng.below(5) as i64 - 2, rng.below(8) as i64 - 3);
    let reads: [&[String]; 5] = [
        &[format!("GET {k}"), format!("STRLEN {k}"), format!("GETRANGE {k} 0 1")],
        &[
            format!("HGETALL {k}"),
            format!("HGET {k} {m}"),
            format!("HMGET {k} {m} b x"),
            format!("HLEN {k}"),
            format!("HEXISTS {k} {m}"),
        ],
        &[format!("SMEMBERS {k}"), format!("SISMEMBER {k} {m}"), format!("SCARD {k}")],
        &[
            format!("LRANGE {k} 0 -1"),
            format!("LRANGE {k} {n} {n2}"),
            format!("LINDEX {k} {n}"),
            format!("LLEN {k}"),
        ],
        &[
            format!("ZRANGE {k} 0 -1 WITHSCORES"),
            format!("ZRANGE {k} {n} {n2}"),
            format!("zrange {k} {n} {n2} withscores"),
            format!("ZSCORE {k} {m}"),
            format!("ZRANK {k} {m}"),
            format!("ZCARD {k}"),
            format!("ZRANGE {k} 0 -1 REV"),
        ],
    ];
    let writes: [&[String]; 5] = [
        &[
            format!("SET {k} {m}"),
            format!("APPEND {k} {m}"),
            format!("MSET {k} 7 {k2} {m}"),
            format!("INCR {k}"),
        ],
        &[format!("HSET {k} {m} {n}"), format!("HDEL {k} {m}"), format!("HINCRBY {k} b {n}")],
        &[
            format!("SADD {k} {m}"),
            format!("SREM {k} {m}"),
            format!("SMOVE {k} {k2} {m}"),
            format!("SUNIONSTORE {k2} {k} {k2}"),
        ],
        &[
            format!("RPUSH {k} {m} x"),
            format!("LPOP {k}"),
            format!("LSET {k} 0 {m}"),
            format!("LINSERT {k} BEFORE x {m}"),
            format!("LMOVE {k} {k2} LEFT RIGHT"),
            // Their keys are where a number says; on nothing it waits a while.
            format!("LMPOP 2 {k2} {k} LEFT"),
            format!("BLMPOP 0.01 2 {k2} {k} RIGHT"),
        ],
        &[
            format!("ZADD {k} {n}.25 {m}"),
            format!("ZINCRBY {k} 1e20 {m}"),
            format!("ZADD {k} -inf {m}"),
            format!("ZREM {k} {m}"),
            format!("ZMPOP 1 {k} MIN"),
            format!("ZUNIONSTORE {k2} 1 {k}"),
        ],
    ];
    let any = [
        format!("DEL {k}"),
        format!("UNLINK {k} {k2}"),
        format!("RENAME {k} {k2}"),
        format!("COPY {k} {k2} REPLACE"),
        format!("MOVE {k} 1"),
        format!("EXPIRE {k} 100"),
        format!("PERSIST {k}"),
        format!("SET {k} {m} EX 100"),
        format!("GETEX {k} EX 100"),
        format!("GETDEL {k}"),
        format!("SCAN 0 MATCH {k} COUNT 1000"),
        format!("OBJECT ENCODING {k}"),
        format!("EVAL return{{redis.call('del',KEYS[1])}} 1 {k}"),
        format!("SORT {k} ALPHA STORE {k2}"),
        "SWAPDB 0 1".into(),
        "FLUSHDB".into(),
        "NONSENSE".into(),
        "CONFIG SET maxmemory-samples 5".into(),
    ];
    let choose = |rng: &mut Rng, all: &[String]| all[rng.below(all.len() as u64) as usize].clone();
    let roll = rng.below(1000);
    let words = match roll {
        0..860 => choose(rng, reads[kind]),
        860..READS => format!("{} {k}", one(rng, &["EXISTS", "TYPE", "type"])),
        READS..985 => choose(rng, writes[kind]),
        985..992 => choose(rng, &any[..12]),
        992..994 => choose(rng, &any[12..16]),
        // An unknown word ends the answering on its connection.
        994 => any[if rng.chance(0.02) { 16 } else { 17 }].clone(),
        995..998 => format!("SELECT {}", rng.below(2)),
        _ => "PING".into(),
    };
    (roll < READS, words)
}

/// A reply whose order is Redis' own in each process, sorted.
fn sorted(words: &str, reply: Vec<u8>) -> Vec<u8> {
    if !words.starts_with("SMEMBERS") {
        return reply;
    }
    let mut lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[test]
fn redis_with_and_without_the_cache_says_the_same() {
    if !there("redis_with_and_without_the_cache_says_the_same") {
        return;
    }
    let (lab, mut rng) = (Lab::new(), Rng::new(seed(11)));
    let (plain, folder) = (free(), tempfile::tempdir().unwrap());
    let _plain = redis(plain, &folder);
    let mut clients: Vec<[Conn; 2]> = (0..4).map(|_| [Conn::new(lab.at), Conn::new(plain)]).collect();
    for client in &mut clients[2..] {
        client.iter_mut().for_each(|conn| drop(conn.ask("HELLO 3")));
    }
    // Reads of which none was answered yet.
    let never = |all: &Counters| -> Vec<String> {
        let zeros = all.counters.iter().filter(|(name, count)| name.starts_with("hit-") && **count == 0);
        zeros.map(|(name, _)| name.clone()).collect()
    };
    let mut recent: Vec<String> = Vec::new();
    for turn in 0..30_000 {
        // A machine with much else to do answers fewer of them: they are asked for longer.
        if turn >= 6000 && turn % 1000 == 0 {
            let all = lab.counters().unwrap();
            if hits(&all) > 700 && never(&all).is_empty() {
                break;
            }
        }
        let client = rng.below(4) as usize;
        let mut batch: Vec<String> = Vec::new();
        let commands = if rng.chance(0.7) { 1 } else { 1 + rng.below(5) };
        for _ in 0..commands {
            // What was asked is asked again soon.
            if rng.chance(0.7) && recent.len() == RECENT {
                batch.push(recent[rng.below(RECENT as u64) as usize].clone());
                continue;
            }
            let (is_read, words) = command(&mut rng);
            if is_read {
                recent.push(words.clone());
            }
            if recent.len() > RECENT {
                recent.remove(0);
            }
            batch.push(words);
        }
        if rng.chance(0.01) {
            // What a transaction reads comes in one array, whose order is not to be Redis' own.
            batch.retain(|words| !words.starts_with("SMEMBERS"));
            batch.insert(0, "MULTI".into());
            batch.push(one(&mut rng, &["EXEC", "EXEC", "DISCARD"]).into());
        } else if rng.chance(0.01) {
            batch.insert(0, "WATCH s0 h0".into());
            batch.push("UNWATCH".into());
        }
        let mut text = Vec::new();
        for words in &batch {
            // Words may be empty, and inline commands have none such.
            if rng.chance(0.1) && !words.ends_with(' ') && !words.contains("  ") && !words.contains('\'') {
                text.extend_from_slice(format!("{words}\r\n").as_bytes());
            } else {
                request(&mut text, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            }
        }
        let [front, plain] = &mut clients[client];
        plain.send(&text);
        while !text.is_empty() {
            let piece = if rng.chance(0.5) { text.len() } else { 1 + rng.below(text.len() as u64) as usize };
            front.send(&text[..piece]);
            text.drain(..piece);
        }
        for words in &batch {
            let [cached, real] =
                [front.reply(), plain.reply()].map(|reply| sorted(words, reply.expect(words)));
            let text = |reply: &[u8]| String::from_utf8_lossy(reply).into_owned();
            assert_eq!(text(&cached), text(&real), "turn {turn}, client {client}: {words} in {batch:?}");
        }
    }
    let all = lab.counters().unwrap();
    let (hits, never, all) = (hits(&all), never(&all), all.counters);
    println!("{hits} hits: {all:?}");
    assert!(hits > 700, "{hits}");
    assert!(never.is_empty(), "{never:?}");
    for name in ["pass-behind", "pass-form", "pass-state", "pass-permission", "changes-all", "invalidated"] {
        assert!(all[name] > 0, "{name}");
    }
    drop(clients);
    wait_until("all clients are gone", PATIENCE, || lab.count("connections") == 0);
    // In good order: the last line is what was counted.
    lab.front.signal(Signal::TERM);
    let out = || std::fs::read_to_string(lab.folder.path().join("out")).unwrap();
    wait_until("it ends", PATIENCE, || out().contains("\"hit-get\""));
    assert!(!lab.folder.path().join("kv.sock").exists());
}

/// Each key only grows. Whoever begins to read when a writer has its answer, sees that or more; and never what no writer has begun.
#[test]
fn what_was_written_is_read() {
    if !there("what_was_written_is_read") {
        return;
    }
    let lab = Lab::new();
    let ways = [
        ("INCR n0", "GET n0"),
        ("HINCRBY n1 f 1", "HGETALL n1"),
        ("ZINCRBY n2 1 m", "ZRANGE n2 0 -1 WITHSCORES"),
        ("RPUSH n3 x", "LLEN n3"),
        ("EVAL return(redis.call('incr',KEYS[1])) 1 n4", "GET n4"),
    ];
    let done: Vec<AtomicU64> = ways.iter().map(|_| AtomicU64::new(0)).collect();
    let begun: Vec<AtomicU64> = ways.iter().map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let seed = seed(12);
    std::thread::scope(|scope| {
        for thread in 0..5 {
            let (at, ways, done, begun, stop) = (lab.at, &ways, &done, &begun, &stop);
            scope.spawn(move || {
                let (mut rng, mut conn) = (Rng::new(seed + thread), Conn::new(at));
                while !stop.load(Ordering::Relaxed) {
                    let at = rng.below(ways.len() as u64) as usize;
                    if thread < 2 {
                        begun[at].fetch_add(1, Ordering::SeqCst);
                        let now = conn.number(ways[at].0);
                        done[at].fetch_max(now, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_micros(rng.below(3000)));
                    } else {
                        let least = done[at].load(Ordering::SeqCst);
                        // What fills a list, and then what the cache knows of it.
                        if at == 3 {
                            conn.ask("LRANGE n3 0 -1");
                        }
                        let seen = conn.number(ways[at].1);
                        let most = begun[at].load(Ordering::SeqCst);
                        if !(least..=most).contains(&seen) {
                            stop.store(true, Ordering::Relaxed);
                            panic!("{}: {seen}, and it was {least} to {most} (seed {seed})", ways[at].1);
                        }
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(1500));
        // Longer, where a machine with much else to do has answered few; a reader that fails ends it.
        // A panic here would leave the clients running: a socket that does not answer is not enough.
        let enough = || lab.counters().is_some_and(|all| hits(&all) > 100 && all.counters["fill-kept"] > 10);
        let since = Instant::now();
        while !stop.load(Ordering::Relaxed) && since.elapsed() < PATIENCE && !enough() {
            std::thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (hits, all) = (lab.hits(), lab.counters().unwrap().counters);
    println!("{hits} hits: {all:?}");
    assert!(hits > 100 && all["fill-kept"] > 10, "{all:?}");
}

#[test]
fn writes_past_the_cache_ends_and_a_redis_that_is_not_heard() {
    if !there("writes_past_the_cache_ends_and_a_redis_that_is_not_heard") {
        return;
    }
    let mut lab = Lab::new();
    let (mut conn, mut direct) = (Conn::new(lab.at), Conn::new(lab.direct));
    let changes = [
        ("SET k 0", "SET k 2", "GET k"),
        ("HSET h f 0", "HSET h f 1", "HGETALL h"),
        ("SADD s a", "SREM s a", "SMEMBERS s"),
        ("RPUSH l a", "LPOP l", "LRANGE l 0 -1"),
        ("ZADD z 1 a", "ZINCRBY z 1 a", "ZRANGE z 0 -1 WITHSCORES"),
        ("SET from 0", "RENAME from to", "GET from"),
        ("SET moved 0", "MOVE moved 1", "GET moved"),
        ("SET script 0", "EVAL return(redis.call('incr',KEYS[1])) 1 script", "GET script"),
        ("HSET past f 0", "EXPIRE past -1", "HGETALL past"),
        ("RPUSH soon a", "PEXPIRE soon 1", "LRANGE soon 0 -1"),
    ];
    for turn in [&changes[..], &[("SET k 3", "FLUSHALL", "GET k")]] {
        for (first, _, read) in turn {
            direct.ask(first);
            lab.warm(&mut conn, read);
        }
        let before: Vec<String> = turn.iter().map(|(.., read)| direct.ask(read)).collect();
        turn.iter().for_each(|(_, second, _)| drop(direct.ask(second)));
        std::thread::sleep(Duration::from_millis(LEASE_MS + 50));
        for ((_, second, read), before) in turn.iter().zip(before) {
            let now = direct.ask(read);
            assert_ne!(now, before, "{second}");
            assert_eq!(conn.ask(read), now, "{second}");
        }
    }
    // Ends by time, and not later than Redis has it: to the end of its millisecond, by a clock of its own. What may end before it is given is set again.
    let [lasts, slack] = [1500, 10].map(Duration::from_millis);
    let mut set: Option<Instant> = None;
    wait_until("a key that ends is given", PATIENCE, || {
        if set.is_none_or(|set| set.elapsed() > lasts / 2) {
            conn.ask("SET k 1 PX 1500");
            set = Some(Instant::now());
        }
        let before = lab.hits();
        conn.ask("GET k");
        lab.hits() > before
    });
    let set = set.unwrap();
    while set.elapsed() < lasts + 10 * slack {
        let asked = set.elapsed();
        let is_there = conn.ask("GET k") != "$-1\r\n";
        assert!(!is_there || asked < lasts + slack, "{asked:?}");
    }
    // The operator's flush.
    conn.ask("SET k 1");
    lab.warm(&mut conn, "GET k");
    let (hits, flushed) = (lab.hits(), lab.count("flushed"));
    let _: Done = lab.client.post(path::FLUSH, &serde_json::json!({})).unwrap();
    conn.ask("GET k");
    assert_eq!((lab.hits(), lab.count("flushed")), (hits, flushed + 1));
    // A Redis that stands gives no more leases.
    lab.warm(&mut conn, "GET k");
    lab.redis.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(LEASE_MS + 50));
    conn.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    conn.send(b"GET k\r\n");
    assert_eq!(conn.reply(), None);
    lab.redis.signal(Signal::CONT);
    conn.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(conn.reply().as_deref(), Some(&b"$1\r\n1\r\n"[..]));
    lab.heard();
    lab.warm(&mut conn, "GET k");
    // Another one has nothing.
    let lost = lab.count("redis-lost");
    drop(std::mem::replace(&mut lab.redis, Process(Command::new("true").spawn().unwrap())));
    assert_eq!(conn.reply(), None);
    wait_until("the loss is counted", PATIENCE, || lab.count("redis-lost") == lost + 1);
    lab.redis = redis(lab.direct, &lab.folder);
    lab.heard();
    assert_eq!(Conn::new(lab.at).ask("GET k"), "$-1\r\n");
}

#[test]
fn nobody_gets_what_redis_would_not_give_him() {
    if !there("nobody_gets_what_redis_would_not_give_him") {
        return;
    }
    let lab = Lab::new();
    let (mut all, mut al) = (Conn::new(lab.at), Conn::new(lab.at));
    for words in [
        "SET mine 1",
        "SET yours 2",
        "ACL SETUSER al on >pw ~yours +get +ping",
        "ACL SETUSER bo on >pw ~* +strlen",
    ] {
        all.ask(words);
    }
    ["GET mine", "GET yours", "STRLEN mine"].iter().for_each(|words| lab.warm(&mut all, words));
    assert_eq!(al.ask("AUTH al wrong").split(' ').next(), Some("-WRONGPASS"));
    assert_eq!(al.ask("AUTH al pw"), "+OK\r\n");
    lab.warm(&mut al, "GET yours");
    let hits = lab.hits();
    for _ in 0..3 {
        assert_eq!(al.ask("GET mine").split(' ').next(), Some("-NOPERM"));
        assert_eq!(al.ask("STRLEN yours").split(' ').next(), Some("-NOPERM"));
    }
    assert_eq!(lab.hits(), hits);
    assert!(al.ask("HELLO 3 AUTH bo pw").starts_with('%'));
    lab.warm(&mut al, "STRLEN mine");
    assert_eq!(al.ask("GET mine").split(' ').next(), Some("-NOPERM"));
    // Strangers have to say who they are first, from now on.
    all.ask("CONFIG SET requirepass secret");
    lab.warm(&mut all, "GET mine");
    let mut stranger = Conn::new(lab.at);
    (0..3).for_each(|_| assert_eq!(stranger.ask("GET mine").split(' ').next(), Some("-NOAUTH")));
    // Those who subscribe, or track, are told by Redis.
    let mut other = Conn::new(lab.at);
    other.ask("AUTH secret");
    lab.warm(&mut other, "GET mine");
    other.ask("HELLO 3");
    other.ask("CLIENT TRACKING ON");
    let hits = lab.hits();
    (0..3).for_each(|_| assert_eq!(other.ask("GET mine"), "$1\r\n1\r\n"));
    assert_eq!(lab.hits(), hits);
    all.ask("SET mine 3");
    let mut bytes = [0; 256];
    let read = other.stream.read(&mut bytes).unwrap();
    assert!(bytes[..read].starts_with(b">2\r\n$10\r\ninvalidate\r\n"));
}

/// `tidemill bench redis`: both have answers, each of which it has compared with Redis' own, and the front has answered what can be kept and nothing else. No times are judged.
#[test]
fn bench_redis_measures_both_and_names_what_it_lacks() {
    let bench = |more: &[&str], path: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["bench", "redis"]).args(more).stdin(Stdio::null());
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (good, _, said) = bench(&[], Some("/nowhere"));
    assert!(!good && said.contains("install the package redis-server"), "{said}");
    let name = "bench_redis_measures_both_and_names_what_it_lacks";
    if !there(name) {
        return;
    }
    let Some(_turn) = turn(name) else { return };
    let short = ["--case", "pipelined,latency", "--seconds", "0.02", "--runs", "2", "--json"];
    let (good, out, said) = bench(&[&["--ask", "lrange,absent"][..], &short].concat(), None);
    assert!(good, "{said}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |case: &str, subject: &str, metric: &str| {
        let is_it = |line: &&Value| {
            let whose = line["subject"] == subject || line["of"] == subject;
            whose && line["case"] == case && line["metric"] == metric
        };
        let line = lines.iter().find(is_it);
        line.and_then(|line| line["value"].as_f64())
            .unwrap_or_else(|| panic!("{case} {subject} {metric}: {out}"))
    };
    for (ask, least, most) in [("lrange", 0.9, 1.0), ("absent", 0.0, 0.0)] {
        for (case, metrics) in [("pipelined", &["ops"][..]), ("latency", &["p50_ns", "p99_ns"][..])] {
            let case = format!("{case}/{ask}");
            for subject in ["redis-front", "peer:redis"] {
                assert!(metrics.iter().all(|metric| of(&case, subject, metric) > 0.0), "{case}: {out}");
            }
            assert!((least..=most).contains(&of(&case, "redis-front", "hit_share")), "{case}: {out}");
            assert!(of(&case, "redis-front", "ratio") > 0.0);
        }
    }
    let ratios: Vec<&Value> = lines.iter().filter(|line| line["metric"] == "ratio").collect();
    assert_eq!(ratios.len(), 4);
    assert!(ratios.iter().all(|ratio| ratio["to"] == "peer:redis" && ratio["pairs"] == 2), "{out}");
}
