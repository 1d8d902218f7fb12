//! The cache in the kernel in front of a real memcached: a client's host, a cable, and the server's. Needs root and memcached; every
//! test runs in namespaces of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "root_kernel/faults.rs"]
mod faults;
#[path = "root_kernel/lab.rs"]
mod lab;
#[path = "../../port/tests/common/net.rs"]
mod net;
#[path = "root_kernel/operator.rs"]
mod operator;
#[path = "root_kernel/scopes.rs"]
mod scopes;
#[path = "root_kernel/told.rs"]
mod told;
#[path = "root_kernel/unanswered.rs"]
mod unanswered;

use lab::{Lab, ready};
use net::inside;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;
use tidemill_bpf::Mode;
use tidemill_kv::kernel::{Cache, Options};

#[test]
fn root_kernel_a_get_is_answered_until_its_key_is_written() {
    if !ready("root_kernel_a_get_is_answered_until_its_key_is_written") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 7 0 5\r\nhello\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 7 5\r\nhello\r\nEND\r\n");
    // Each kind of mutation, by TCP and by UDP: the next answer is the new one, and it is served again later.
    for (at, (request, reply, value)) in [
        ("set k 0 0 3\r\nnew\r\n", "STORED\r\n", "VALUE k 0 3\r\nnew\r\nEND\r\n"),
        ("append k 0 0 1\r\n!\r\n", "STORED\r\n", "VALUE k 0 4\r\nnew!\r\nEND\r\n"),
        ("replace k 1 0 1\r\n5\r\n", "STORED\r\n", "VALUE k 1 1\r\n5\r\nEND\r\n"),
        ("incr k 4\r\n", "9\r\n", "VALUE k 1 1\r\n9\r\nEND\r\n"),
        ("ms k 2 F9\r\nms\r\n", "HD\r\n", "VALUE k 9 2\r\nms\r\nEND\r\n"),
        ("touch k 1000\r\n", "TOUCHED\r\n", "VALUE k 9 2\r\nms\r\nEND\r\n"),
        ("gat 1000 k\r\n", "VALUE k 9 2\r\nms\r\nEND\r\n", "VALUE k 9 2\r\nms\r\nEND\r\n"),
    ]
    .iter()
    .enumerate()
    {
        let before = lab.cache.slot(b"k").0;
        if at % 2 == 0 {
            lab.tcp(request, reply);
        } else {
            assert_eq!(lab.udp(request), *reply);
        }
        assert!(lab.cache.slot(b"k").0 > before, "{request:?} is seen");
        assert_eq!(lab.udp("get k\r\n"), *value);
        lab.until_hit("k", value);
    }
    lab.tcp("delete k\r\n", "DELETED\r\n");
    assert_eq!(lab.udp("get k\r\n"), "END\r\n");
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    lab.tcp("flush_all\r\n", "OK\r\n");
    assert_eq!(lab.udp("get k\r\n"), "END\r\n");
    assert_eq!(lab.cache.blind(), 0);
    assert_eq!(lab.cache.slot(b"k").1, 0, "nothing is outstanding");
}

#[test]
fn root_kernel_several_keys_and_ipv6() {
    if !ready("root_kernel_several_keys_and_ipv6") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let long = "x".repeat(250);
    lab.tcp(
        &format!(
            "set a 0 0 1\r\n1\r\nset bb 3 0 6\r\nEND\r\nz\r\nset {long} 4294967295 0 60\r\n{}\r\n",
            "v".repeat(60)
        ),
        "STORED\r\nSTORED\r\nSTORED\r\n",
    );
    lab.until_hit("a", "VALUE a 0 1\r\n1\r\nEND\r\n");
    lab.until_hit("bb", "VALUE bb 3 6\r\nEND\r\nz\r\nEND\r\n");
    let all = format!(
        "VALUE a 0 1\r\n1\r\nVALUE bb 3 6\r\nEND\r\nz\r\nVALUE {long} 4294967295 60\r\n{}\r\nEND\r\n",
        "v".repeat(60)
    );
    lab.until_hit(&long, &all[all.find(&format!("VALUE {long}")).unwrap()..]);
    let hits = lab.cache.count("get-hit");
    assert_eq!(lab.udp(&format!("get a bb {long}\r\n")), all);
    assert_eq!(lab.udp6(&format!("get bb a {long}\r\n")).len(), all.len());
    assert_eq!(lab.cache.count("get-hit"), hits + 2);
    // One is missing, and memcached answers: a datagram for each value.
    assert_eq!(lab.udp("get a none bb\r\n"), "VALUE a 0 1\r\n1\r\n");
    assert_eq!(lab.cache.count("get-hit"), hits + 2);
}

#[test]
fn root_kernel_commands_cut_anywhere() {
    if !ready("root_kernel_commands_cut_anywhere") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let script = b"set k 5 0 11\r\nset k 0 0 1\r\nget other\r\ndelete nothing noreply\r\nincr n 1\r\nmg k v q\r\nmn\r\nset k 0 0 2 noreply\r\nzz\r\nget k\r\n";
    let reply = "STORED\r\nEND\r\nNOT_FOUND\r\nVA 11\r\nset k 0 0 1\r\nMN\r\nVALUE k 0 2\r\nzz\r\nEND\r\n";
    for cut in 1..script.len() {
        let before = lab.cache.slot(b"k").0;
        lab.tcp_pieces(&[&script[..cut], &script[cut..]], reply);
        assert_eq!(lab.cache.slot(b"k").0, before + 2, "cut at {cut}");
        assert_eq!((lab.cache.slot(b"k").1, lab.cache.slot(b"n").1), (0, 0), "cut at {cut}");
    }
    assert_eq!((lab.cache.blind(), lab.cache.count("tcp-deaf")), (0, 0));
    // Byte by byte.
    let bytes: Vec<&[u8]> = script.chunks(1).collect();
    lab.tcp_pieces(&bytes, reply);
    lab.until_hit("k", "VALUE k 0 2\r\nzz\r\nEND\r\n");
}

#[test]
fn root_kernel_what_cannot_be_followed_stops_everything_until_it_ends() {
    if !ready("root_kernel_what_cannot_be_followed_stops_everything_until_it_ends") {
        return;
    }
    let mut lab = Lab::before_attach(&["server"]);
    assert_eq!(lab.cache.blind(), 1, "a connection that was there before");
    lab.end_old();
    lab.wait("the old connection's end", |lab| lab.cache.blind() == 0);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    let hits = lab.cache.count("get-hit");
    lab.tcp("bogus\r\n", "ERROR\r\n");
    assert_eq!(lab.cache.blind(), 1);
    assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n");
    assert_eq!(lab.cache.count("get-hit"), hits, "memcached's answer");
    lab.reconnect();
    lab.wait("the blind connection's end", |lab| lab.cache.blind() == 0);
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
}

#[test]
fn root_kernel_a_flush_for_later_that_was_not_seen() {
    if !ready("root_kernel_a_flush_for_later_that_was_not_seen") {
        return;
    }
    let mut lab = Lab::before_attach(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    // On a connection that is not followed, which ends long before it takes effect.
    lab.write_old("flush_all 4\r\n");
    assert_eq!(lab.read_old().unwrap(), 4, "OK");
    lab.end_old();
    lab.wait("the old connection's end", |lab| lab.cache.blind() == 0);
    // Asked for all the time, so that it would be admitted if it could be; where one key is missing memcached answers.
    lab.wait("the flush", |lab| {
        lab.udp("get k\r\n");
        lab.udp("get k none\r\n") == "END\r\n"
    });
    for _ in 0..100 {
        assert_eq!(lab.udp("get k\r\n"), "END\r\n");
    }
    // One that was asked for before there was a cache.
    lab.rounds(Duration::from_secs(3));
    lab.tcp("set k 0 0 1\r\nb\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\nb\r\nEND\r\n");
    let mut left = lab.detach();
    left.tcp("flush_all 4\r\n", "OK\r\n");
    let mut lab = left.attach_again();
    lab.reconnect();
    lab.wait("no connection that cannot be followed", |lab| lab.cache.blind() == 0);
    lab.wait("the second flush", |lab| {
        lab.udp("get k\r\n");
        lab.udp("get k none\r\n") == "END\r\n"
    });
    assert_eq!(lab.udp("get k\r\n"), "END\r\n");
}

#[test]
fn root_kernel_connections_that_were_there_are_reset_on_request() {
    if !ready("root_kernel_connections_that_were_there_are_reset_on_request") {
        return;
    }
    let mut lab = Lab::before_attach_and_reset();
    let error = lab.read_old().map_err(|error| error.kind());
    assert_eq!(error, Err(ErrorKind::ConnectionReset));
    lab.wait("no connection that cannot be followed", |lab| lab.cache.blind() == 0);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
}

#[test]
fn root_kernel_memcached_dies_and_comes_back() {
    if !ready("root_kernel_memcached_dies_and_comes_back") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    lab.restart();
    lab.wait("another memcached", |lab| {
        lab.cache.daemon().deaths == 1 && lab.udp_maybe("get k\r\n").is_some()
    });
    assert_eq!(lab.udp("get k\r\n"), "END\r\n");
    lab.reconnect();
    lab.tcp("set k 0 0 1\r\nb\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_a_value_ends_before_memcached_forgets_it() {
    if !ready("root_kernel_a_value_ends_before_memcached_forgets_it") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 4 1\r\na\r\nset never 0 1 1\r\nb\r\n", "STORED\r\nSTORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    lab.rounds(Duration::from_millis(4500));
    let hits = lab.cache.count("get-hit");
    assert_eq!(lab.udp("get k\r\n"), "END\r\n");
    assert_eq!(lab.cache.count("get-hit"), hits);
}

#[test]
fn root_kernel_a_delayed_flush_in_any_spelling() {
    if !ready("root_kernel_a_delayed_flush_in_any_spelling") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    for delay in ["+2", "\t2", "2\t", "2\tx"] {
        lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
        assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n", "{delay:?}");
        lab.tcp(&format!("flush_all {delay}\r\n"), "OK\r\n");
        // Asked for all the time, so that it would be admitted if it could be; where one key is missing memcached answers.
        lab.wait("the flush", |lab| {
            lab.udp("get k\r\n");
            lab.udp("get k none\r\n") == "END\r\n"
        });
        for _ in 0..100 {
            assert_eq!(lab.udp("get k\r\n"), "END\r\n", "{delay:?}");
        }
        // Served again later.
        lab.rounds(Duration::from_secs(3));
    }
}

#[test]
fn root_kernel_a_delayed_flush_that_does_not_wait_any_more() {
    if !ready("root_kernel_a_delayed_flush_that_does_not_wait_any_more") {
        return;
    }
    const VALUE: &str = "VALUE k 0 1\r\na\r\nEND\r\n";
    let mut lab = Lab::new(&["server"]);
    let kept = |lab: &mut Lab| {
        lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
        lab.until_hit("k", VALUE);
    };
    let flush = |lab: &mut Lab, request: &str, by_udp: bool| {
        if by_udp {
            assert_eq!(lab.udp(request), "OK\r\n");
        } else {
            lab.tcp(request, "OK\r\n");
        }
    };
    // Another one takes its place.
    for by_udp in [false, true] {
        kept(&mut lab);
        flush(&mut lab, "flush_all 600\r\n", by_udp);
        let hits = lab.cache.count("get-hit");
        // While it waits nothing is served, however often it is asked for.
        lab.rounds(Duration::from_secs(1));
        for _ in 0..50 {
            assert_eq!(lab.udp("get k\r\n"), VALUE);
        }
        assert_eq!(lab.cache.count("get-hit"), hits, "UDP {by_udp}");
        flush(&mut lab, "flush_all\r\n", !by_udp);
        assert_eq!(lab.udp("get k\r\n"), "END\r\n");
    }
    kept(&mut lab);
    // Of 32 bits this is no time to come.
    flush(&mut lab, "flush_all 4000000000\r\n", false);
    kept(&mut lab);
    // It goes with its memcached.
    flush(&mut lab, "flush_all 600\r\n", false);
    lab.restart();
    lab.wait("another memcached", |lab| {
        lab.cache.daemon().deaths == 1 && lab.udp_maybe("get k\r\n").is_some()
    });
    lab.reconnect();
    kept(&mut lab);
}

#[test]
fn root_kernel_nothing_is_admitted_between_a_write_and_its_answer() {
    if !ready("root_kernel_nothing_is_admitted_between_a_write_and_its_answer") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\nset other 0 0 1\r\no\r\n", "STORED\r\nSTORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    // Its line is here, its value is not: memcached gives the old one to whoever asks, the daemon too.
    lab.tcp_begins("set k 0 0 1\r\n");
    lab.wait("the line", |lab| lab.cache.slot(b"k").1 == 1);
    let started = std::time::Instant::now();
    let mut hits = 0;
    while started.elapsed() < Duration::from_secs(2) {
        let before = lab.cache.count("get-hit");
        assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n");
        hits += lab.cache.count("get-hit") - before;
    }
    assert_eq!((hits, lab.cache.slot(b"k").1), (0, 1), "kept, and about to be changed");
    // It is this key alone that waits.
    lab.until_hit("other", "VALUE other 0 1\r\no\r\nEND\r\n");
    lab.tcp("b\r\n", "STORED\r\n");
    assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_the_next_process_takes_over() {
    if !ready("root_kernel_the_next_process_takes_over") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\nset l 0 0 1\r\nl\r\n", "STORED\r\nSTORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    lab.until_hit("l", "VALUE l 0 1\r\nl\r\nEND\r\n");
    // Nobody serves meanwhile, but mutations are seen, on the connection that was there before.
    let before = lab.cache.slot(b"k").0;
    let mut left = lab.leave();
    left.tcp("set k 0 0 1\r\nb\r\n", "STORED\r\n");
    let mut lab = left.attach_again();
    assert_eq!(lab.cache.blind(), 0, "connections are known");
    assert_eq!(lab.cache.slot(b"k").0, before + 1);
    lab.rounds(Duration::from_millis(20));
    assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    let hits = lab.cache.count("get-hit");
    assert_eq!(lab.udp("get l\r\n"), "VALUE l 0 1\r\nl\r\nEND\r\n");
    assert_eq!(lab.cache.count("get-hit"), hits + 1, "what was not written is served still");
}

#[test]
fn root_kernel_a_source_is_answered_so_often_a_second() {
    if !ready("root_kernel_a_source_is_answered_so_often_a_second") {
        return;
    }
    let mut lab = Lab::with(|options| options.rate = 5);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    let (hits, limited) = (lab.cache.count("get-hit"), lab.cache.count("get-limited"));
    let started = std::time::Instant::now();
    for _ in 0..30 {
        assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n", "memcached answers the others");
    }
    // All of it within a second, or more where the machine is busy.
    let most = 5 * (3 + started.elapsed().as_secs());
    let (hits, limited) = (lab.cache.count("get-hit") - hits, lab.cache.count("get-limited") - limited);
    assert!(hits <= most && limited + most >= 30, "{hits} answered, {limited} not, {most} at most");
}

#[test]
fn root_kernel_on_the_generic_path() {
    if !ready("root_kernel_on_the_generic_path") {
        return;
    }
    let mut lab = Lab::with(|options| options.mode = Mode::Generic);
    assert!(lab.cache.describe().contains(&"on server, generic".to_owned()), "{:?}", lab.cache.describe());
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    lab.tcp("set k 0 0 1\r\nb\r\n", "STORED\r\n");
    assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_more_unanswered_mutations_than_are_told_apart() {
    if !ready("root_kernel_more_unanswered_mutations_than_are_told_apart") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    // Quiet ones, of which nothing says that they were executed.
    let quiet: String = (0..1000).map(|n| format!("set q{n} 0 0 1 noreply\r\nz\r\n")).collect();
    lab.tcp(&format!("{quiet}set k 0 0 1 noreply\r\nb\r\nget k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    assert!(lab.cache.count("tcp-overflow") > 0, "{:?}", lab.cache.counts());
    assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_hot_keys_are_asked_for_so_that_memcached_keeps_them() {
    if !ready("root_kernel_hot_keys_are_asked_for_so_that_memcached_keeps_them") {
        return;
    }
    let mut lab = Lab::with(|options| {
        options.refresh = 1;
        options.refresh_every = Duration::from_millis(100);
    });
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    // memcached knows when a key was asked for last (whole seconds), and so does `mg h l`.
    lab.rounds(Duration::from_millis(2500));
    let said = lab.udp("mg k h l\r\n");
    assert!(["HD h1 l0\r\n", "HD h1 l1\r\n"].contains(&said.as_str()), "without it 2 at least: {said}");
}

#[test]
fn root_kernel_where_nothing_can_be_cached_few_keys_are_asked_for() {
    if !ready("root_kernel_where_nothing_can_be_cached_few_keys_are_asked_for") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    let mut gets = 0;
    // Until the daemon has seen that it asks in vain, and the programs look at one key in 4 ms: all the others are passed by their tags alone.
    lab.wait("keys that are not told", |lab| {
        for key in 0..64 {
            assert_eq!(lab.udp(&format!("get absent-{key}\r\n")), "END\r\n");
            gets += 1;
        }
        lab.cache.count("event-lost") > 1000
    });
    // The first come before anything is served.
    assert_eq!(lab.cache.count("get-miss") + lab.cache.count("get-parked"), gets, "each is counted once");
    assert!(lab.cache.count("event") < gets / 2);
    // Keys that are here are found all the same, and new ones are admitted.
    assert_eq!(lab.udp("set absent-1 0 0 1\r\na\r\n"), "STORED\r\n");
    assert_eq!(lab.udp("get absent-1\r\n"), "VALUE absent-1 0 1\r\na\r\nEND\r\n");
    lab.until_hit("absent-1", "VALUE absent-1 0 1\r\na\r\nEND\r\n");
    assert_eq!(lab.udp("get absent-2\r\n"), "END\r\n");
}

#[test]
fn root_kernel_what_is_no_memcached_is_refused() {
    if !inside("root_kernel_what_is_no_memcached_is_refused") {
        return;
    }
    net::run("mount -t bpf bpf /sys/fs/bpf");
    net::run("ip link set lo up");
    let (tcp, _udp) =
        (TcpListener::bind("127.0.0.1:11211").unwrap(), UdpSocket::bind("127.0.0.1:11211").unwrap());
    let says = |text: &'static str| {
        let (mut stream, _) = tcp.accept().unwrap();
        let mut line = [0; 9];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"version\r\n");
        stream.write_all(text.as_bytes()).unwrap();
    };
    for (text, why) in [
        ("-ERR unknown command\r\n", "no memcached"),
        ("VERSION 1.5.22\r\n", "1.6 or later"),
        ("CLIENT_ERROR unauthenticated\r\n", "no memcached"),
    ] {
        let error = std::thread::scope(|scope| {
            scope.spawn(|| says(text));
            Cache::attach(&Options::new(&["lo"], 1)).err().map(|error| error.to_string())
        });
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{text:?}: {error:?}");
    }
}

#[test]
fn root_kernel_what_another_memcached_or_port_would_hide_is_refused() {
    if !inside("root_kernel_what_another_memcached_or_port_would_hide_is_refused") {
        return;
    }
    net::run("mount -t bpf bpf /sys/fs/bpf");
    net::run("ip link set lo up");
    let refused = |arguments: &str, other: Option<&str>, why: &str| {
        let mut memcached =
            std::process::Command::new("memcached").args(arguments.split(' ')).spawn().unwrap();
        let other = other.map(|address| TcpListener::bind(address).unwrap());
        let started = std::time::Instant::now();
        while std::net::TcpStream::connect("127.0.0.1:11211").is_err() {
            assert!(started.elapsed() < Duration::from_secs(10), "memcached {arguments} does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let error = Cache::attach(&Options::new(&["lo"], 1)).err().map(|error| error.to_string());
        memcached.kill().unwrap();
        memcached.wait().unwrap();
        drop(other);
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{arguments}: {error:?}");
    };
    refused(
        "-u root -p 11211 -U 11211 -l 127.0.0.1",
        Some("127.0.0.2:11211"),
        "several processes listen on port 11211",
    );
    refused("-u root -U 11211 -l 127.0.0.1:11211,127.0.0.1:11212", None, "listens on TCP port 11212 too");
    refused("-u root -p 11211 -U 11211 -l 127.0.0.1 -B ascii", None, "-B ascii");
}

#[test]
fn root_kernel_what_follows_a_line_that_is_not_known() {
    if !ready("root_kernel_what_follows_a_line_that_is_not_known") {
        return;
    }
    let mut lab = Lab::new(&["server"]);
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    // memcached would wait for a value in the datagrams of others.
    let before = lab.cache.count("udp-half");
    assert_eq!(lab.udp_maybe("foo\r\nset k 0 0 13\r\n"), None);
    assert_eq!(lab.cache.count("udp-half"), before + 1);
    // It executes what follows, and so all is void.
    assert_eq!(lab.udp("foo\r\nset k 0 0 1\r\nb\r\n"), "ERROR\r\n");
    lab.wait("the second command", |lab| lab.udp("get k none\r\n") == "VALUE k 0 1\r\nb\r\n");
    assert_eq!(lab.udp("get k\r\n"), "VALUE k 0 1\r\nb\r\nEND\r\n");
    assert_eq!(lab.cache.count("udp-half"), before + 1);
    // By itself it is answered.
    assert_eq!(lab.udp("foo\r\n"), "ERROR\r\n");
    assert_eq!(lab.udp("foo bar\r\n"), "ERROR\r\n");
    lab.until_hit("k", "VALUE k 0 1\r\nb\r\nEND\r\n");
}

#[test]
fn root_kernel_answers_in_a_value_release_nothing() {
    if !ready("root_kernel_answers_in_a_value_release_nothing") {
        return;
    }
    let mut lab = Lab::before_attach(&["server"]);
    let value = "STORED\r\n".repeat(20);
    // memcached takes a CR within a key.
    lab.write_old(&format!("set a\rb 7 0 {}\r\n{value}\r\n", value.len()));
    assert_eq!(lab.read_old().unwrap(), 8, "STORED");
    lab.end_old();
    lab.wait("the old connection's end", |lab| lab.cache.blind() == 0);
    lab.tcp("get a\rb\r\n", &format!("VALUE a\rb 7 {}\r\n{value}\r\nEND\r\n", value.len()));
    lab.tcp("set k 0 0 1\r\na\r\n", "STORED\r\n");
    assert_eq!(lab.cache.count("tcp-deaf"), 0, "as many answers as questions");
    lab.until_hit("k", "VALUE k 0 1\r\na\r\nEND\r\n");
    // What prints keys as they are stops everything until it ends; other statistics do not.
    lab.tcp("stats reset\r\n", "RESET\r\n");
    assert_eq!(lab.cache.blind(), 0);
    lab.tcp("stats detail on\r\n", "OK\r\n");
    assert_eq!(lab.cache.blind(), 1);
}
