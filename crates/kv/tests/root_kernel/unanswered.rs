//! Connections on which nothing says that what was written is executed: what they keep from being admitted, for how long, and that nothing stale is served then.

use crate::lab::{Lab, ready};
use std::path::Path;
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
