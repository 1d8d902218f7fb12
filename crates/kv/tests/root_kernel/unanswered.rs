//! Connections on which nothing says that what was written is executed: what they keep from being admitted, for how long, and that nothing stale is served then.

use crate::lab::{Lab, ready};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_bpf::Pins;
use tidemill_kv::kernel::Look;

/// Writes without an answer, one of each key from `q0` on.
fn silent(count: usize) -> String {
    (0..count).map(|n| format!("set q{n} 0 0 1 noreply\r\nz\r\n")).collect()
}

fn value(key: &str, value: &str) -> String {
    format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len())
}

#[test]
fn root_kernel_a_connection_that_only_writes_without_answers() {
    if !ready("unanswered::root_kernel_a_connection_that_only_writes_without_answers") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let look = Look::open(Path::new(Pins::ROOT), "kv").unwrap();
    lab.tcp("set k 0 0 1\r\na\r\nset v 0 0 1\r\na\r\n", "STORED\r\nSTORED\r\n");
    lab.until_hit("k", &value("k", "a"));
    for how in ["stays", "another process", "flushes"] {
        // One that asks nothing: what was counted on the one before is over.
        lab.reconnect();
        let read = lab.cache.count("tcp-read");
        let new = how.chars().next().unwrap().to_string();
        lab.tcp_begins(&format!("{}set k 0 0 1 noreply\r\n{new}\r\n", silent(1000)));
        // Never again what was there before.
        lab.wait("that they are read", |lab| lab.udp("get k\r\n") == value("k", &new));
        // A key that was not written is admitted meanwhile: not everything waits for one connection.
        lab.tcp_begins("set v 0 0 1 noreply\r\na\r\n");
        if how == "another process" {
            lab = lab.leave().attach_again();
        }
        if how == "flushes" {
            // Of everything, and silent too.
            lab.tcp_begins(
                "flush_all noreply\r\nset q5 0 0 1 noreply\r\ny\r\nset q999 0 0 1 noreply\r\ny\r\n",
            );
            lab.wait("the flush", |lab| lab.udp("get q999\r\n") == value("q999", "y"));
            lab.until_hit("q5", &value("q5", "y"));
            lab.until_hit("q999", &value("q999", "y"));
            assert_eq!(lab.udp("get k\r\n"), "END\r\n");
        } else {
            // In the ring, and beyond it.
            lab.until_hit("q5", &value("q5", "z"));
            lab.until_hit("q999", &value("q999", "z"));
            lab.until_hit("k", &value("k", &new));
            lab.until_hit("v", &value("v", "a"));
        }
        lab.wait("the last", |lab| lab.cache.count("tcp-read") - read >= 1002);
        assert_eq!((look.holding().unwrap(), lab.cache.slot(b"q5").1), (Vec::new(), 0), "{how}");
    }
}

#[test]
fn root_kernel_a_connection_that_goes_on_writing_without_answers() {
    if !ready("unanswered::root_kernel_a_connection_that_goes_on_writing_without_answers") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.reconnect();
    let (started, mut written, mut seen) = (Instant::now(), 0_u64, 0_u64);
    let (mut fresh, mut back) = (false, false);
    // For longer than any slot waits: far more writes than are told apart. A busy machine has longer.
    let (least, most) = (Duration::from_millis(8500), Duration::from_secs(40));
    while started.elapsed() < least || !(fresh && back) && started.elapsed() < most {
        written += 1;
        let quiet = if started.elapsed() < Duration::from_secs(1) { silent(60) } else { String::new() };
        let others: String = (0..30).map(|n| format!("set r{n} 0 0 1 noreply\r\nz\r\n")).collect();
        lab.tcp_begins(&format!(
            "{quiet}{others}set n 0 0 {} noreply\r\n{written}\r\n",
            written.to_string().len()
        ));
        // What is written all the time never goes back.
        let said = lab.udp("get n\r\n");
        let number = said.lines().nth(1).map_or(0, |line| line.parse().unwrap());
        assert!(number >= seen && number <= written, "{number} after {seen}, of {written}");
        seen = number;
        lab.rounds(Duration::from_millis(5));
        // One that nobody writes is admitted after a moment, one that was written in the first second once its time is over.
        let hit = |lab: &mut Lab, key: &str, has: &str| {
            let hits = lab.cache.count("get-hit");
            let said = lab.udp(&format!("get {key}\r\n"));
            assert!(said == value(key, has) || said == "END\r\n", "{said}");
            lab.cache.count("get-hit") > hits
        };
        fresh |= hit(&mut lab, "k", "a");
        back |= hit(&mut lab, "q7", "z") && hit(&mut lab, "q59", "z");
    }
    assert!(lab.cache.count("tcp-overflow") > 1000, "{:?}", lab.cache.counts());
    assert!(fresh && back, "{fresh} {back}: {:?}", lab.cache.counts());
    lab.wait("the last", |lab| lab.udp("get n\r\n") == value("n", &written.to_string()));
}

#[test]
fn root_kernel_who_does_not_read_its_answers_is_waited_for() {
    if !ready("unanswered::root_kernel_who_does_not_read_its_answers_is_waited_for") {
        return;
    }
    const BIG: usize = 100_000;
    const ASKED: usize = 200;
    let mut lab = Lab::new(&["server"]);
    let look = Look::open(Path::new(Pins::ROOT), "kv").unwrap();
    lab.tcp("set v 0 0 1\r\na\r\nset w 0 0 1\r\na\r\n", "STORED\r\nSTORED\r\n");
    lab.tcp(&format!("set big 0 0 {BIG}\r\n{}\r\n", "x".repeat(BIG)), "STORED\r\n");
    lab.until_hit("v", &value("v", "a"));
    // memcached reads all of this at once, and executes it as far as its answers are taken: its socket is empty, and what was read waits.
    let asks = "mg big v q\r\n".repeat(ASKED);
    lab.tcp_begins(&format!("{asks}set v 0 0 1 noreply\r\nb\r\n{}set w 0 0 1 noreply\r\nb\r\n", silent(300)));
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        // True still, and nobody may keep it.
        for key in ["v", "w"] {
            let hits = lab.cache.count("get-hit");
            assert_eq!(lab.udp(&format!("get {key}\r\n")), value(key, "a"));
            assert_eq!(lab.cache.count("get-hit"), hits, "{key} is kept, and about to be changed");
        }
        lab.rounds(Duration::from_millis(10));
    }
    // Longer than a slot waits: nothing is admitted then, and who it is is said.
    lab.wait("that it is said", |_| !look.holding().unwrap().is_empty());
    let holding = look.holding().unwrap();
    let [one] = &holding[..] else { panic!("{holding:?}") };
    assert_eq!((one.client, one.mutations, one.is_deaf), (lab.tcp_address(), 302, false));
    let admitted = lab.cache.daemon().admitted;
    lab.rounds(Duration::from_secs(2));
    for key in ["v", "w"] {
        lab.udp(&format!("get {key}\r\n"));
        assert_eq!(lab.udp(&format!("get {key}\r\n")), value(key, "a"));
    }
    lab.rounds(Duration::from_millis(100));
    assert_eq!(lab.cache.daemon().admitted, admitted, "nothing is admitted");
    // Its client reads: all is executed.
    lab.tcp_reads(ASKED * (BIG + "VA 100000\r\n\r\n".len()));
    for key in ["v", "w"] {
        lab.wait("what was written", |lab| lab.udp(&format!("get {key}\r\n")) == value(key, "b"));
        lab.until_hit(key, &value(key, "b"));
    }
    assert_eq!(look.holding().unwrap(), []);
}

#[test]
fn root_kernel_quiet_meta_writes_among_reads() {
    if !ready("unanswered::root_kernel_quiet_meta_writes_among_reads") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let look = Look::open(Path::new(Pins::ROOT), "kv").unwrap();
    // Whose these answers are can be known: what is quiet says none of them.
    for (request, reply) in [
        ("ms k 1 q\r\na\r\nmg k v\r\n", "VA 1\r\na\r\n"),
        ("ms k 1 q\r\nb\r\nmg k\r\n", "HD\r\n"),
        ("md k q\r\nms k 1 q\r\nc\r\nmg nosuch v\r\n", "EN\r\n"),
        ("ms k 1 q\r\nd\r\nms k 1\r\ne\r\n", "HD\r\n"),
        ("mg nosuch v q\r\nms k 1 ME\r\nx\r\n", "NS\r\n"),
    ] {
        let read = lab.cache.count("tcp-read");
        lab.tcp(request, reply);
        let said = (lab.cache.slot(b"k").1, lab.cache.count("tcp-read") - read);
        assert_eq!(said, (0, 0), "{request:?}: its answer says that all is executed");
    }
    lab.until_hit("k", &value("k", "e"));
    // Whose these are cannot: the kernel, and memcached, say what has been read and executed.
    for (request, reply, now) in [
        ("ms k 1 q\r\nf\r\nms k 1 ME\r\nx\r\n", "NS\r\n", "f"),
        ("mg k v q\r\nms k 1\r\ng\r\n", "VA 1\r\nf\r\nHD\r\n", "g"),
        ("md nosuch q\r\nmd nosuch\r\nms k 1\r\nh\r\n", "NF\r\nNF\r\nHD\r\n", "h"),
    ] {
        lab.tcp(request, reply);
        assert_eq!(lab.udp("get k\r\n"), value("k", now));
        lab.until_hit("k", &value("k", now));
    }
    lab.wait("the last", |lab| lab.cache.slot(b"k").1 == 0);
    assert_eq!(look.holding().unwrap(), []);
}

#[test]
fn root_kernel_a_thread_with_45_busy_connections() {
    if !ready("unanswered::root_kernel_a_thread_with_45_busy_connections") {
        return;
    }
    // A thread of memcached's executes 20 commands of a connection at its turn, and each of these takes its while. What one connection has brought is read at once, and
    // waits for many turns, in which nothing is said on it: longer than `--settle`. That it was read, and that time has passed, does not show that it is executed.
    const BUSY: usize = 45;
    const TURNS: usize = 25;
    let mut lab = Lab::prepared(&["server"], "1", || {});
    lab.tcp("set v 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("v", &value("v", "a"));
    let mut busy: Vec<_> = (0..BUSY).map(|_| lab.another()).collect();
    for stream in &mut busy {
        stream.set_nonblocking(true).unwrap();
        stream.write_all("stats\r\n".repeat(20 * TURNS).as_bytes()).unwrap();
    }
    lab.tcp_begins(&format!("{}set v 0 0 1 noreply\r\nb\r\n", silent(20 * TURNS)));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Answers are read as they come, or memcached would wait for that.
        scope.spawn(|| {
            let mut room = vec![0; 1 << 16];
            while !is_over.load(Ordering::Relaxed) {
                let read = busy.iter_mut().map(|stream| stream.read(&mut room).unwrap_or(0)).sum::<usize>();
                if read == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let started = Instant::now();
        let mut now = String::new();
        while now != value("v", "b") && started.elapsed() < Duration::from_secs(20) {
            let hits = lab.cache.count("get-hit");
            now = lab.udp("get v\r\n");
            let is_kept = lab.cache.count("get-hit") > hits;
            assert!(!is_kept || now == value("v", "b"), "what is about to be changed is kept");
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(now, value("v", "b"));
    });
    drop(busy);
    lab.until_hit("v", &value("v", "b"));
}

#[test]
fn root_kernel_more_connections_than_are_looked_at_in_a_step() {
    if !ready("unanswered::root_kernel_more_connections_than_are_looked_at_in_a_step") {
        return;
    }
    const MANY: usize = 700;
    let mut lab = Lab::new(&["server"]);
    let mut clients: Vec<_> = (0..MANY).map(|_| lab.another()).collect();
    let read = lab.cache.count("tcp-read");
    for (at, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("set q{at} 0 0 1 noreply\r\nz\r\n").as_bytes()).unwrap();
    }
    lab.wait("that all are read", |lab| lab.cache.count("tcp-read") - read == MANY as u64);
    for at in [0, MANY / 2, MANY - 1] {
        lab.until_hit(&format!("q{at}"), &value(&format!("q{at}"), "z"));
    }
    // All at once: what they had is over.
    for (at, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("set q{at} 0 0 1 noreply\r\ny\r\n").as_bytes()).unwrap();
    }
    drop(clients);
    lab.until_hit("q9", &value("q9", "y"));
    lab.wait("that they are forgotten", |lab| {
        (0..MANY).all(|at| lab.cache.slot(format!("q{at}").as_bytes()).1 == 0)
    });
    assert_eq!(lab.cache.blind(), 0);
}
