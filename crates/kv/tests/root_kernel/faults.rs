//! Ways to a stale or another answer that were found by reading and by trying: each with what a client or an operator does, and what is right then.

use crate::lab::{self, Lab, ready};
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidemill_bpf::{Mapped, Pins};
use tidemill_kv::kernel::{Cache, Options};

const A: &str = "VALUE v 0 1\r\na\r\nEND\r\n";

fn kept(lab: &mut Lab) {
    lab.tcp("set v 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("v", A);
}

#[test]
fn root_kernel_a_sign_alone_is_no_time() {
    if !ready("faults::root_kernel_a_sign_alone_is_no_time") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    // memcached refuses the line, and reads what looks like its value as a command.
    lab.tcp("set k 0 - 8\r\ndelete v\r\n", "CLIENT_ERROR bad command line format\r\nDELETED\r\n");
    assert_eq!(lab.udp("get v\r\n"), "END\r\n");
}

#[test]
fn root_kernel_keys_that_look_like_answers() {
    if !ready("faults::root_kernel_keys_that_look_like_answers") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    // SET, by the binary protocol, of a key that holds lines.
    let mut set = vec![0x80, 1, 0, 10, 8, 0, 0, 0, 0, 0, 0, 19];
    set.resize(24 + 8, 0);
    set.extend(b"a\nSTORED\r\n1");
    let mut stored = vec![0x81, 1];
    stored.resize(16, 0);
    lab.tcp_starts(&set, &stored);
    lab.reconnect();
    kept(&mut lab);
    // Its answer has more lines than one: whoever counts them takes the mutations behind it for executed.
    lab.tcp("mg YQpTVE9SRUQNCg== b k\r\n", "HD ka\nSTORED\r\n\r\n");
    assert_eq!(lab.cache.blind(), 1, "not followed any more");
    lab.tcp("set v 0 0 1\r\nb\r\n", "STORED\r\n");
    assert_eq!(lab.udp("get v\r\n"), "VALUE v 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_a_stale_item_is_its_clients_to_win() {
    if !ready("faults::root_kernel_a_stale_item_is_its_clients_to_win") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set a 3 100 1\r\na\r\nset e 0 0 1\r\ne\r\n", "STORED\r\nSTORED\r\n");
    // One with an end and one without; the first by its key in base64.
    lab.tcp("md YQ== b I T60\r\nmd e I\r\n", "HD\r\nHD\r\n");
    assert_eq!((lab.cache.slot(b"a").1, lab.cache.slot(b"e").1), (0, 0), "nothing is left to wait for");
    // They are kept again, and `mg` still finds that it is the first to ask.
    lab.until_hit("a", "VALUE a 3 1\r\na\r\nEND\r\n");
    lab.until_hit("e", "VALUE e 0 1\r\ne\r\nEND\r\n");
    lab.tcp("mg a v\r\nmg e v\r\n", "VA 1 X W\r\na\r\nVA 1 X W\r\ne\r\n");
    // One with a second left is not taken for one without an end.
    lab.tcp("set s 0 2 1\r\ns\r\n", "STORED\r\n");
    lab.wait("the end", |lab| lab.udp("get s none\r\n") == "END\r\n");
    for _ in 0..20 {
        assert_eq!(lab.udp("get s\r\n"), "END\r\n");
    }
}

#[test]
fn root_kernel_what_is_silent_is_not_waited_for() {
    if !ready("faults::root_kernel_what_is_silent_is_not_waited_for") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    // Whoever waits for these takes the next answer for theirs, and the last mutation for one that is under way.
    lab.tcp(
        "verbosity 0 noreply\r\nverbosity noreply\r\nverbosity 0 0 noreply\r\nset v 0 0 1\r\na\r\n",
        "ERROR\r\nSTORED\r\n",
    );
    assert_eq!((lab.cache.slot(b"v").1, lab.cache.blind()), (0, 0));
    lab.until_hit("v", A);
}

/// Takes the programs off the interface, as making it anew does.
fn take_off() {
    let root = std::path::Path::new(Pins::ROOT);
    for left in Pins::left(root).unwrap() {
        if left.name.contains('-') {
            Pins::remove(root, &left.name).unwrap();
        }
    }
}

#[test]
fn root_kernel_what_passed_while_there_were_no_programs() {
    if !ready("faults::root_kernel_what_passed_while_there_were_no_programs") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    let mut left = lab.leave();
    take_off();
    left.tcp("set v 0 0 1\r\nb\r\n", "STORED\r\n");
    let mut lab = left.attach_again();
    lab.rounds(Duration::from_millis(20));
    assert_eq!(lab.udp("get v\r\n"), "VALUE v 0 1\r\nb\r\nEND\r\n");
    // The connection has gone on unseen: nothing is served until it ends.
    assert_eq!(lab.cache.blind(), 1);
    lab.reconnect();
    lab.wait("its end", |lab| lab.cache.blind() == 0);
    lab.until_hit("v", "VALUE v 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_a_daemon_that_was_killed_while_it_counted() {
    if !ready("faults::root_kernel_a_daemon_that_was_killed_while_it_counted") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    let left = lab.leave();
    // As such a daemon leaves it: a word that says so, and a mutation that waits for ever. (Words of `struct state` and `struct slot`.)
    let root = std::path::Path::new(Pins::ROOT);
    let map = |name: &str| Pins::map(root, "kv", 8, name).unwrap();
    Mapped::of(&map("kv_state"), 27).unwrap().words()[26].store(1, Ordering::SeqCst);
    for slot in Mapped::of(&map("kv_slots"), 8192).unwrap().words().chunks(2) {
        slot[0].fetch_add(1, Ordering::SeqCst);
    }
    let mut lab = left.attach_again();
    lab.reconnect();
    lab.wait("no connection that cannot be followed", |lab| lab.cache.blind() == 0);
    assert_eq!(lab.cache.slot(b"v").1, 0);
    lab.until_hit("v", A);
}

fn memcached(arguments: &str) -> Child {
    Command::new("memcached").args(arguments.split(' ')).spawn().unwrap()
}

#[test]
fn root_kernel_another_memcached_is_not_asked() {
    if !ready("faults::root_kernel_another_memcached_is_not_asked") {
        return;
    }
    let lab = Lab::new(&["server"]);
    let mut other = memcached("-u root -p 11212 -U 0 -l 127.0.0.1");
    let started = Instant::now();
    while std::net::TcpStream::connect("127.0.0.1:11212").is_err() {
        assert!(started.elapsed() < Duration::from_secs(10), "it does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut options = Options::new(&["lo"], 1);
    options.name = "other".to_owned();
    options.memcached = ([127, 0, 0, 1], 11212).into();
    let error = Cache::attach(&options).err().map(|error| error.to_string());
    other.kill().unwrap();
    other.wait().unwrap();
    drop(lab);
    assert!(error.as_ref().is_some_and(|error| error.contains("is not process")), "{error:?}");
}

#[test]
fn root_kernel_another_memcached_takes_the_datagrams() {
    if !ready("faults::root_kernel_another_memcached_takes_the_datagrams") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    // Of one address: what is sent there is its from now on.
    let mut other = memcached("-u root -p 11212 -U 11211 -l 10.9.0.1");
    lab.wait("the other one", |_| std::net::TcpStream::connect("10.9.0.1:11212").is_ok());
    lab.rounds(Duration::from_millis(1500));
    let answers: Vec<String> = (0..5).map(|_| lab.udp("get v\r\n")).collect();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(answers, ["END\r\n"; 5], "it has none");
    lab.until_hit("v", A);
}

#[test]
fn root_kernel_nothing_is_answered_from_a_groups_mac_address() {
    if !ready("faults::root_kernel_nothing_is_answered_from_a_groups_mac_address") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    let get = lab::frame("10.9.0.2", "10.9.0.1", 11211, "get v\r\n");
    assert_eq!(lab::came(&lab, "server", &get).0, 3, "answered");
    let denied = lab.cache.count("get-denied");
    // To a cluster, to everybody, and as if from everybody: memcached answers, by its own card's address, and to whoever has the source.
    for (at, mac) in [(0, [1, 0, 0x5e, 0, 0, 9]), (0, [0xff; 6]), (6, [0xff; 6])] {
        let mut group = get.clone();
        group[at..at + 6].copy_from_slice(&mac);
        assert_eq!(lab::came(&lab, "server", &group), (2, group), "passes untouched");
    }
    assert_eq!(lab.cache.count("get-denied"), denied + 3);
    assert_eq!(lab::came(&lab, "server", &get).0, 3);
}

/// Its connection is in the table, and memcached has nothing to say on it.
#[test]
fn root_kernel_who_writes_silently_by_another_way_than_is_answered_by() {
    if !ready("faults::root_kernel_who_writes_silently_by_another_way_than_is_answered_by") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    kept(&mut lab);
    let blind = lab.cache.count("tcp-blind");
    lab.detour();
    lab.tcp_begins("set v 0 0 1 noreply\r\nb\r\n");
    lab.wait("that it is found", |lab| lab.cache.count("tcp-blind") > blind);
    assert_eq!(lab.cache.blind(), 1);
    lab.end_detour();
    let new = "VALUE v 0 1\r\nb\r\nEND\r\n";
    for _ in 0..5 {
        assert_eq!(lab.udp("get v\r\n"), new);
    }
    lab.reconnect();
    lab.wait("its end", |lab| lab.cache.blind() == 0);
    lab.until_hit("v", new);
}

#[test]
fn root_kernel_what_comes_with_a_syn() {
    if !ready("faults::root_kernel_what_comes_with_a_syn") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    // Without memcached's leave, and without a cookie; for whoever begins to listen from now on.
    crate::net::run("sysctl -qw net.ipv4.tcp_fastopen=1538");
    lab.restart();
    lab.wait("another memcached", |lab| {
        lab.cache.daemon().deaths == 1 && lab.udp_maybe("get v\r\n").is_some()
    });
    lab.reconnect();
    kept(&mut lab);
    let blind = lab.cache.count("tcp-blind");
    let early = lab.another_with(b"set v 0 0 1 noreply\r\nb\r\n");
    let new = "VALUE v 0 1\r\nb\r\nEND\r\n";
    lab.wait("that it is executed, and seen", |lab| lab.udp("get v\r\n") == new);
    assert_eq!((lab.cache.count("tcp-blind"), lab.cache.blind()), (blind + 1, 1));
    drop(early);
    lab.wait("its end", |lab| lab.cache.blind() == 0);
    lab.until_hit("v", new);
}

/// What a connection had brought that was reset before memcached accepted it (there are no more descriptors) is executed when it does. Until then no list has it.
#[test]
fn root_kernel_a_connection_that_was_reset_before_it_was_accepted() {
    if !ready("faults::root_kernel_a_connection_that_was_reset_before_it_was_accepted") {
        return;
    }
    let mut lab = Lab::of_memcached(&["-c", "80", "-o", "no_maxconns_fast"]);
    kept(&mut lab);
    lab.tcp("set other 0 0 1\r\no\r\n", "STORED\r\n");
    let mut accepted = Vec::new();
    let mut waiting = loop {
        assert!(accepted.len() < 200, "memcached accepts them all");
        let mut one = lab.another();
        one.write_all(b"set w 0 0 1\r\nx\r\n").unwrap();
        let started = Instant::now();
        let is_answered = loop {
            lab.rounds(Duration::from_millis(1));
            if one.read(&mut [0; 8]).is_ok() {
                break true;
            }
            if started.elapsed() > Duration::from_secs(2) {
                break false;
            }
        };
        if !is_answered {
            break one;
        }
        accepted.push(one);
    };
    waiting.write_all(b"set v 0 0 1\r\nb\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rustix::net::sockopt::set_socket_linger(&waiting, Some(Duration::ZERO)).unwrap();
    drop(waiting);
    // For longer than one that is gone is waited for.
    lab.rounds(Duration::from_secs(3));
    lab.until_hit("other", "VALUE other 0 1\r\no\r\nEND\r\n");
    let hits = lab.cache.count("get-hit");
    for _ in 0..50 {
        assert_eq!(lab.udp("get v\r\n"), A);
    }
    assert_eq!(lab.cache.count("get-hit"), hits, "what may yet be changed is kept");
    drop(accepted.pop());
    let new = "VALUE v 0 1\r\nb\r\nEND\r\n";
    lab.wait("that it is executed", |lab| lab.udp("get v\r\n") == new);
    lab.until_hit("v", new);
}

/// A long key's value, kept. A frame from a socket has little room behind it, so long answers are those to long questions here.
fn long_key(lab: &mut Lab) -> (String, String) {
    let (key, value) = ("k".repeat(250), "v".repeat(10));
    lab.tcp(&format!("set {key} 0 0 10\r\n{value}\r\n"), "STORED\r\n");
    let block = format!("VALUE {key} 0 10\r\n{value}\r\n");
    lab.until_hit(&key, &format!("{block}END\r\n"));
    (key, block)
}

#[test]
fn root_kernel_an_answer_that_is_too_long_for_its_way() {
    if !ready("faults::root_kernel_an_answer_that_is_too_long_for_its_way") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let (key, block) = long_key(&mut lab);
    let ask = |times: usize| format!("get{}\r\n", format!(" {key}").repeat(times));
    let answer = |times: usize| format!("{}END\r\n", block.repeat(times));
    let counts = |lab: &Lab| (lab.cache.count("get-hit"), lab.cache.count("get-too-long"));
    let (hits, long) = counts(&lab);
    // What some way may not take is memcached's to cut: it has a datagram for each value.
    assert_eq!(lab.udp6(&ask(4)), answer(4), "1,161 bytes with headers");
    assert_eq!(lab.udp6(&ask(5)), block, "1,436");
    assert_eq!(counts(&lab), (hits + 1, long + 1));
    // A link that takes less.
    assert_eq!(lab.udp(&ask(2)), answer(2), "591");
    lab.set_mtu(580);
    for _ in 0..3 {
        assert_eq!(lab.udp(&ask(2)), block);
    }
    assert_eq!(lab.udp(&ask(1)), answer(1));
    assert_eq!(counts(&lab), (hits + 3, long + 4));
}

#[test]
fn root_kernel_a_long_answer_may_be_cut() {
    if !ready("faults::root_kernel_a_long_answer_may_be_cut") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let (key, _) = long_key(&mut lab);
    // A router on the way may cut it: and pieces of one are told from those of others.
    let long = || lab::answer_to(&lab, &format!("get {key} {key}\r\n"));
    let numbers: std::collections::HashSet<Vec<u8>> = (0..20)
        .map(|_| {
            let answer = long();
            assert_eq!(answer[20] & 0x40, 0);
            answer[18..20].to_vec()
        })
        .collect();
    assert!(numbers.len() > 10, "{numbers:?}");
    // A short one is not.
    assert_eq!(lab::answer_to(&lab, &format!("get {key}\r\n"))[20] & 0x40, 0x40);
}

#[test]
fn root_kernel_a_short_connection_that_was_not_seen() {
    if !ready("faults::root_kernel_a_short_connection_that_was_not_seen") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let said = lab.cache.describe();
    assert!(said.iter().any(|line| line.contains("by lo is not seen")), "{said:?}");
    kept(&mut lab);
    lab.rounds(Duration::from_millis(300));
    assert_eq!(lab.cache.daemon().unseen, 0, "{:?}", lab.cache.take_notes());
    // By loopback, where the programs are not; over in a millisecond.
    let mut short = std::net::TcpStream::connect("127.0.0.1:11211").unwrap();
    short.write_all(b"set v 0 0 1\r\nb\r\n").unwrap();
    let mut reply = [0; 8];
    short.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"STORED\r\n");
    drop(short);
    let written = Instant::now();
    lab.wait("that it is missed", |lab| lab.cache.daemon().unseen > 0);
    // 100 ms and memcached's answer; this machine may have more to do.
    assert!(written.elapsed() < Duration::from_secs(4), "{:?}", written.elapsed());
    for _ in 0..5 {
        assert_eq!(lab.udp("get v\r\n"), "VALUE v 0 1\r\nb\r\nEND\r\n");
    }
    let notes = lab.cache.take_notes();
    assert!(notes.iter().any(|note| note.contains("taken 1 connection(s) that were not seen")), "{notes:?}");
    // Those that are seen are none of these, and it is kept again.
    for _ in 0..5 {
        lab.reconnect();
        lab.tcp("mn\r\n", "MN\r\n");
    }
    lab.until_hit("v", "VALUE v 0 1\r\nb\r\nEND\r\n");
    assert_eq!(lab.cache.daemon().unseen, 1, "{:?}", lab.cache.take_notes());
    // An interface that comes is named.
    crate::net::run("ip link add late type veth peer name nobody");
    lab.wait("that it is named", |lab| {
        let notes = lab.cache.take_notes();
        notes.iter().any(|note| note.contains("late") && note.contains("has come"))
    });
}
