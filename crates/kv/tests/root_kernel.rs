//! The cache in the kernel in front of a real memcached: a client's host, a cable, and the server's. Needs root and memcached; every
//! test runs in namespaces of its own.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "root_kernel/lab.rs"]
mod lab;
#[path = "../../port/tests/common/net.rs"]
mod net;

use lab::{Lab, ready};
use std::time::Duration;

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
