//! Single cases that a random world does not come upon: each was, or could have been, an answer that was not true any more, or a cache that could be put out.

#![allow(clippy::unwrap_used)]

mod common;

use common::world::{AGE_S, CLIENT, SERVED, SETTLE, START, World};
use common::{ACK, ASK_PORT, PORT, RST, SECOND, SYN, datagram, read, section, segment, udp, with_options};
use std::net::Ipv4Addr;
use tidemill_burst::DropReason;
use tidemill_kvcache::{Cache, Counter, Fate, Settings, Side};

/// memcached does not hear of hits: after `refresh_s` one get of the key goes there, and those behind it are answered again.
#[test]
fn memcached_hears_now_and_then_of_what_is_used() {
    let passed = |world: &mut World, tenths: u64| {
        let before = (world.count(Counter::Refresh), world.count(Counter::HitL0));
        for _ in 0..tenths {
            world.now += SECOND / 10;
            world.hits("k");
        }
        assert!(world.count(Counter::HitL0) - before.1 > tenths / 4, "it goes on being answered");
        world.count(Counter::Refresh) - before.0
    };
    let mut world = World::new("refresh_s = 60");
    assert_eq!(passed(&mut world, 500), 0);
    assert_eq!(passed(&mut world, 1200), 2);
    assert_eq!(passed(&mut World::new(""), 1200), 0);
}

/// The get that goes there for a key's sake may tell that memcached has evicted it.
#[test]
fn what_memcached_has_no_more_is_not_given() {
    let mut world = World::new("refresh_s = 60");
    world.now += 60 * SECOND;
    let [first, get] = [2, 1].map(|id| datagram(CLIENT, SERVED, id, b"get k\r\n"));
    assert_eq!(world.through(Side::Clients, &first), Fate::Ask, "with a question of the cache's own");
    assert_eq!(world.through(Side::Clients, &get), Fate::Pass);
    assert_eq!(world.count(Counter::Refresh), 1);
    assert_eq!(world.through(Side::Clients, &get), Fate::Answer);
    assert_eq!(world.through(Side::Servers, &datagram(SERVED, CLIENT, 1, b"END\r\n")), Fate::Pass);
    assert!(!world.hits("k") && world.settled());
}

/// What came before the cache did may wait in memcached: a datagram, or what is not answered.
#[test]
fn what_came_before_it_is_waited_for() {
    let mut world = World::begun("");
    while world.now < START + SETTLE {
        assert!(!world.hits("k"));
        world.now += SECOND / 10;
    }
    world.now += SECOND;
    assert!(world.settled());
}

/// memcached has answered nothing for about `settle`, and goes on: what came before may be executed behind its answer. A shorter silence is a datagram or two that were lost.
#[test]
fn a_memcached_that_has_stood_is_waited_for() {
    for (tenths, is_settled) in [(10, true), (50, false)] {
        let mut world = World::new("");
        let get = datagram(CLIENT, SERVED, 9, b"get k\r\n");
        for _ in 0..tenths {
            world.now += SECOND / 10;
            world.cache.frame(Side::Clients, &get, true, 1800, world.now);
        }
        world.now += SECOND;
        assert_eq!(world.settled(), is_settled, "{tenths}: it has just answered");
        assert_eq!(world.count(Counter::Silent), u64::from(!is_settled));
        world.now += SETTLE;
        assert!(world.settled());
    }
}

/// The same where it has stood while memcached answers by itself: the gets that go there have a question beside them now and then, so that is known when the cache answers again.
#[test]
fn a_memcached_that_has_stood_at_rest_is_waited_for() {
    let host = "[on_demand_host]\nup = { cpu = 60, ms = 1000 }\ndown = { cpu = 30, gets = 10, ms = 1000 }";
    for (tenths, is_settled) in [(10, true), (50, false)] {
        let mut world = World::begun(host);
        world.cache.shift_to(true);
        world.hits("k");
        world.now += SETTLE;
        assert!(world.settled());
        world.cache.shift_to(false);
        let asked = world.count(Counter::Checks);
        let get = datagram(CLIENT, SERVED, 9, b"get k\r\n");
        for _ in 0..tenths {
            world.now += SECOND / 10;
            let fate = world.cache.frame(Side::Clients, &get, true, 1800, world.now);
            assert!(matches!(fate, Fate::Pass | Fate::Ask), "{fate:?}");
        }
        assert_eq!(world.count(Counter::Resting), tenths);
        assert!(world.count(Counter::Checks) >= asked + tenths / 4, "it is asked as often as else");
        world.cache.shift_to(true);
        world.now += SECOND;
        assert_eq!(world.settled(), is_settled, "{tenths}: it has just answered");
        assert_eq!(world.count(Counter::Silent), u64::from(!is_settled));
        world.now += SETTLE;
        assert!(world.settled());
    }
}

/// The operator's flush: what is kept is void, and what comes then is kept again.
#[test]
fn what_is_flushed_is_not_given() {
    let mut world = World::new("");
    assert!(world.hits("k"));
    world.cache.flush();
    assert!(!world.hits("k") && world.settled());
    assert_eq!((world.count(Counter::Flushed), world.count(Counter::Void)), (1, 0));
}

/// A `flush_all` in a fragment, before the cache came, by a connection that it does not know: memcached alone knows of it.
#[test]
fn a_flush_that_nobody_saw_is_asked_for() {
    let mut fragment = udp(CLIENT, SERVED, &[0, 1, 0, 0, 0, 1, 0, 0, b'f', b'l']);
    fragment[20] = 0x20;
    let header: [u8; 20] = fragment[14..34].try_into().unwrap();
    let mut without = header;
    without[10..12].fill(0);
    fragment[24..26].copy_from_slice(&common::checksum(&without).to_be_bytes());
    let unknown = segment(CLIENT, SERVED, 1, 1, ACK, b"00\r\n");
    for frame in [fragment, unknown] {
        let mut world = World::new("");
        assert_eq!(world.through(Side::Clients, &frame), Fate::Pass);
        // At +100 s.
        world.oldest = AGE_S + 60 + 100;
        world.now += SETTLE;
        assert!(world.settled());
        world.now = START + 96 * SECOND;
        assert!(!world.settled(), "it is near");
        world.now = START + 120 * SECOND;
        assert!(!world.hits("k") && world.settled(), "nothing from before is given");
        assert!(world.count(Counter::Doubts) > 1);
    }
    let mut world = World::new("");
    world.now += 10 * SECOND;
    // What it does not tell is not taken for none.
    world.through(Side::Clients, &segment(CLIENT, SERVED, 1, 1, ACK, b"0"));
    let asked = world.count(Counter::Doubts);
    world.now += SETTLE;
    let get = datagram(CLIENT, SERVED, 1, b"get k\r\n");
    for _ in 0..20 {
        world.now += SECOND / 5;
        let fate = world.cache.frame(Side::Clients, &get, true, 1800, world.now);
        assert!(matches!(fate, Fate::Pass | Fate::Ask), "{fate:?}");
        let question = (fate == Fate::Ask).then(|| read(world.cache.made()));
        match question {
            Some(question) if question.text == b"stats\r\n" => world.told(&question),
            _ => {}
        }
    }
    assert!(world.count(Counter::Doubts) > asked + 5, "it is asked again");
}

/// A date counts by memcached's clock, a number that can be read in two ways by its word.
#[test]
fn a_flush_at_a_date() {
    for text in [&b"flush_all 2000000000\r\n"[..], b"flush_all +100\r\n"] {
        let mut world = World::new("");
        world.opens(CLIENT.1, world.client);
        assert_eq!(world.sends(text), Fate::Pass);
        world.oldest = AGE_S + 60 + 100;
        assert!(!world.settled(), "memcached may not have it yet");
        world.says(b"OK\r\n");
        world.now += SECOND;
        assert!(world.settled());
        world.now = START + 96 * SECOND;
        assert!(!world.settled());
        world.now = START + 120 * SECOND;
        assert!(!world.hits("k") && world.settled());
    }
}

/// A machine that was suspended: its clock has stood, memcached's has not.
#[test]
fn a_clock_that_has_stood_voids_what_was_kept() {
    let mut world = World::new("");
    world.ahead_s = 3600;
    world.now += SECOND;
    assert!(!world.hits("k"), "it is asked first");
    world.hits("k");
    assert_eq!(world.count(Counter::Restarts), 1);
    assert!(world.settled());
}

/// A cable's kernel drops a segment with half a checksum, and takes what follows in its place: the cache believes neither.
#[test]
fn a_segment_that_memcached_never_has_is_not_read() {
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    let [seq, ack] = world.client;
    let mut half = segment(CLIENT, SERVED, seq, ack, ACK, b"get aaaaaaaaaa\r\n");
    let pseudo = [&half[26..34], &[0, 6], &((half.len() - 34) as u16).to_be_bytes()].concat();
    let sum = !common::checksum(&pseudo);
    half[50..52].copy_from_slice(&sum.to_be_bytes());
    world.through(Side::Clients, &half);
    assert_eq!(world.count(Counter::BadChecksum), 1);
    assert!(!world.settled(), "it may have been taken");
    world.now += SETTLE;
    assert!(world.settled());
    // STORED comes for this one.
    assert_eq!(world.sends(b"set k 0 0 1\r\nX\r\n"), Fate::Pass);
    world.says(b"STORED\r\n");
    assert!(!world.settled(), "it is not followed any more");
}

/// The same of a segment with an acknowledgment of what was never sent, and of one with IP options, of which a kernel takes some.
#[test]
fn a_segment_that_a_kernel_may_drop_is_not_read() {
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    let [seq, ack] = world.client;
    let beyond = segment(CLIENT, SERVED, seq, ack.wrapping_add(1), ACK, b"get aaaaaaaaaa\r\n");
    assert_eq!(world.through(Side::Clients, &beyond), Fate::Drop(DropReason::KvOutOfOrder));
    world.sends(b"set k 0 0 1\r\nX\r\n");
    assert!(!world.hits("k"), "it is void");
    world.says(b"STORED\r\n");
    assert!(world.settled());
    let [seq, ack] = world.client;
    let plain = segment(CLIENT, SERVED, seq, ack, ACK, b"get aaaaaaaaaa\r\n");
    let mut options = [&plain[..34], &[1, 1, 1, 0], &plain[34..]].concat();
    options[14] = 0x46;
    options[17] += 4;
    options[24..26].fill(0);
    let check = common::checksum(&options[14..38]);
    options[24..26].copy_from_slice(&check.to_be_bytes());
    assert_eq!(world.through(Side::Clients, &options), Fate::Pass);
    world.sends(b"set k 0 0 1\r\nY\r\n");
    assert!(!world.settled(), "it is not followed any more");
}

/// A long answer may be cut on its way, and its pieces are told from those of others; one of IPv6 that some way may not take is memcached's.
#[test]
fn a_long_answer_comes_through() {
    let mut world = World::new("");
    let value = "v".repeat(600);
    let text = format!("VALUE k 0 600\r\n{value}\r\nEND\r\n");
    let get = datagram(CLIENT, SERVED, 1, b"get k\r\n");
    world.cache.flush();
    let mut numbers = Vec::new();
    for _ in 0..20 {
        if world.through(Side::Clients, &get) == Fate::Answer {
            let made = world.cache.made();
            assert_eq!(read(made).text, text.as_bytes());
            assert_eq!(made[20..22], [0, 0], "it may be cut");
            numbers.push([made[18], made[19]]);
        } else {
            world.through(Side::Servers, &datagram(SERVED, CLIENT, 1, text.as_bytes()));
        }
    }
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert!(count > 10 && numbers.len() == count, "{numbers:?}");
}

/// A reset that memcached's kernel does not take: the second half of a line is read as such.
#[test]
fn a_reset_is_no_end() {
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    world.sends(b"flush_all 1");
    let [seq, ack] = world.client;
    let reset = segment(CLIENT, SERVED, seq.wrapping_add(1 << 30), ack, RST, &[]);
    assert_eq!(world.through(Side::Clients, &reset), Fate::Pass);
    world.sends(b"00\r\n");
    world.oldest = AGE_S + 60 + 100;
    world.now += SETTLE;
    assert!(world.settled());
    world.now = START + 96 * SECOND;
    assert!(!world.settled());
}

/// SYN cookies: which SYN-ACK counts is not known.
#[test]
fn two_beginnings_make_a_connection_blind() {
    // The second is ahead, behind by one, and comes after a reset.
    for (second, reset) in
        [(1 << 20, None), (u32::MAX, None), (u32::MAX, Some(Side::Clients)), (u32::MAX, Some(Side::Servers))]
    {
        let mut world = World::new("");
        let first = world.client;
        world.opens(CLIENT.1, first);
        match reset {
            None => {}
            Some(Side::Clients) => {
                world.through(Side::Clients, &segment(CLIENT, SERVED, 5, 0, RST, &[]));
            }
            Some(Side::Servers) => {
                world.through(Side::Servers, &segment(SERVED, CLIENT, first[1], 0, RST, &[]));
            }
        }
        world.opens(CLIENT.1, first.map(|number| number.wrapping_add(second)));
        assert!(world.settled());
        assert_eq!(world.sends(b"set k 0 0 1\r\nX\r\n"), Fate::Pass);
        assert!(!world.settled(), "{second} {reset:?}");
    }
    // The first was forgotten, and what it brings lies before all that is known.
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client.map(|number| number.wrapping_add(1 << 20)));
    assert_eq!(world.sends(b"set k 0 0 1\r\nX\r\n"), Fate::Pass);
    assert!(!world.settled());
    // Long after, it is another connection.
    let mut world = World::new("");
    world.opens(CLIENT.1, [7, 7]);
    world.now += 200 * SECOND;
    world.opens(CLIENT.1, world.client);
    world.sends(b"get k\r\n");
    assert!(world.settled());
    assert_eq!(world.count(Counter::TcpLost), 0);
}

/// Multipath TCP: a value may begin on one connection and end on another, and what looks like it there is the next command.
#[test]
fn a_stream_of_several_connections_is_not_read() {
    let usual: [u8; 12] = [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7];
    let capable: [u8; 12] = [30, 12, 1, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    for (options, lost) in [(&usual, 0), (&capable, 1)] {
        let mut world = World::new("");
        let [ack, seq] = world.client;
        let opens = with_options(SERVED, CLIENT, seq.wrapping_sub(1), ack, SYN | ACK, options, &[]);
        assert_eq!(world.through(Side::Servers, &opens), Fate::Pass);
        assert_eq!(world.count(Counter::TcpLost), lost);
        world.sends(b"get k\r\n");
        assert_eq!(world.settled(), lost == 0);
    }
}

/// Segments of connections that nobody has put out none that is followed.
#[test]
fn unknown_segments_evict_nobody() {
    let mut world = World::new("connections = 4");
    world.opens(CLIENT.1, world.client);
    world.sends(b"set k 0 0 1\r\nX\r\n");
    for port in 0..20 {
        let frame = segment((CLIENT.0, 5000 + port), (Ipv4Addr::new(10, 0, 0, 77), PORT), 1, 1, ACK, b"x");
        assert_eq!(world.through(Side::Clients, &frame), Fate::Pass);
    }
    assert_eq!((world.count(Counter::TcpUnknown), world.count(Counter::TcpFull)), (20, 0));
    world.says(b"STORED\r\n");
    assert_eq!(world.count(Counter::TcpReleased), 1);
}

/// What is not answered ends by the clock, when memcached's kernel has it and nothing before waits.
#[test]
fn noreply_ends_without_another_command() {
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    assert_eq!(world.sends(b"flush_all noreply\r\n"), Fate::Pass);
    world.now += 10 * SETTLE;
    assert!(!world.settled(), "it may be lost on the way, and come again");
    world.says(b"");
    world.now += SETTLE - SECOND;
    assert!(!world.settled());
    world.now += SECOND;
    assert!(world.settled());
    // Behind one that is answered, and with a value that is not whole.
    world.sends(b"get k\r\nset k 0 0 1 noreply\r\n");
    world.says(b"");
    world.now += 2 * SETTLE;
    assert!(!world.hits("k"), "nothing says that the get has been executed");
    world.says(b"END\r\n");
    world.now += 2 * SETTLE;
    assert!(!world.settled(), "it is not whole");
    world.sends(b"x\r\n");
    world.says(b"");
    world.now += SETTLE;
    assert!(world.settled());
    // A writer that never wants an answer is followed all the same.
    for _ in 0..1000 {
        world.sends(b"set k 0 0 1 noreply\r\nx\r\n");
        world.says(b"");
    }
    assert_eq!((world.count(Counter::TcpLost), world.count(Counter::TcpUnknown)), (0, 0));
}

/// A reply that came another way (fragments of IP) keeps nobody's connection shut for ever.
#[test]
fn a_reply_that_was_not_seen_ends_after_a_while() {
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    world.sends(b"get k\r\n");
    world.client[1] += 100;
    let dropped = Fate::Drop(DropReason::KvOutOfOrder);
    assert_eq!(world.sends(b"set k 0 0 1\r\nX\r\n"), dropped);
    world.client[0] -= 16;
    world.now += 4 * SECOND;
    assert_eq!(world.sends(b"set k 0 0 1\r\nX\r\n"), Fate::Pass);
    assert_eq!((world.count(Counter::TcpLost), world.count(Counter::TcpUnknown)), (1, 1));
    assert!(!world.settled());
}

/// A mutation that came without being read, as in fragments of IP, and that waited for longer than a while: behind its answer nothing from before is given.
#[test]
fn an_answer_to_what_was_not_read_voids_what_is_kept() {
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    assert!(world.hits("k"));
    // memcached has had bytes that nobody has seen.
    world.client[0] += 16;
    assert_eq!(world.says(b"STORED\r\n"), Fate::Pass);
    assert!(!world.hits("k"));
    assert_eq!(world.count(Counter::TcpLost), 1);
}

/// The same of a connection that was lost, or never known: its client reads nothing, so memcached executes what has come long after it is believed to have.
#[test]
fn an_answer_on_a_blind_connection_voids_what_is_kept() {
    for is_known in [true, false] {
        let mut world = World::new("");
        if is_known {
            world.opens(CLIENT.1, world.client);
            // More than can wait.
            world.sends(&b"get big\r\n".repeat(129));
            assert_eq!(world.count(Counter::TcpLost), 1);
        }
        world.sends(b"set k 0 0 1\r\nX\r\n");
        world.now += SETTLE;
        assert!(world.settled(), "{is_known}");
        world.says(b"");
        assert!(world.settled(), "{is_known}: an acknowledgment answers nothing");
        assert_eq!(world.says(b"STORED\r\n"), Fate::Pass);
        assert!(!world.settled(), "{is_known}");
        world.now += SETTLE;
        assert!(world.settled(), "{is_known}");
    }
}

/// memcached has as many connections as it takes: what another one has brought before it was reset is executed when one of them has ended, and nothing says so.
#[test]
fn what_waits_to_be_accepted_is_executed_later() {
    let mut world = World::new("");
    world.accepts = [0, 1];
    world.opens(CLIENT.1, world.client);
    assert_eq!(world.sends(b"set k 0 0 1\r\nX\r\n"), Fate::Pass);
    let [seq, ack] = world.client;
    assert_eq!(world.through(Side::Clients, &segment(CLIENT, SERVED, seq, ack, RST, &[])), Fate::Pass);
    for _ in 0..10 {
        world.now += SETTLE;
        assert!(!world.settled(), "it waits");
    }
    world.accepts = [1, 1];
    world.now += SETTLE;
    assert!(!world.settled(), "it is accepted, and executed now");
    world.now += SETTLE;
    assert!(world.settled());
    // Between two questions.
    world.accepts = [1, 2];
    world.now += SECOND;
    assert!(!world.settled());
    world.now += SETTLE;
    assert!(world.settled());
    assert!(world.count(Counter::Behind) >= 12);
}

/// A client on our port is given its answers, and nobody loses his for long.
#[test]
fn a_client_on_our_port_mutes_us_for_a_while() {
    let mut world = World::new("");
    let theirs = (CLIENT.0, ASK_PORT);
    assert_eq!(world.through(Side::Clients, &datagram(theirs, SERVED, 9, b"version\r\n")), Fate::Pass);
    assert_eq!(world.through(Side::Servers, &datagram(SERVED, theirs, 9, b"VERSION 1\r\n")), Fate::Pass);
    world.now += 2 * SECOND;
    assert!(!world.settled(), "memcached was not heard");
    world.now += 3 * SETTLE;
    assert!(world.settled());
}

/// memcached executes what follows a command that it does not know; half a command waits for anybody's next datagram.
#[test]
fn behind_an_unknown_command() {
    let mut world = World::new("");
    assert_eq!(
        world.through(Side::Clients, &datagram(CLIENT, SERVED, 3, b"foo\r\nflush_all 60\r\n")),
        Fate::Pass
    );
    assert_eq!(world.count(Counter::FlushLater), 1);
    let half = datagram(CLIENT, SERVED, 3, b"foo\r\nflush_all 6");
    assert_eq!(world.through(Side::Clients, &half), Fate::Drop(DropReason::KvHalfCommand));
}

/// Another VLAN may have a memcached of the same address: its values are not given here, nor ours there. What it is told is heeded, for it may be the same one.
#[test]
fn another_vlan_is_another_memcached() {
    let tagged = |vlan: u8, frame: &[u8]| [&frame[..12], &[0x81, 0, 0x20, vlan], &frame[12..]].concat();
    let get = datagram(CLIENT, SERVED, 1, b"get k\r\n");
    let mut world = World::new("");
    assert_eq!(world.through(Side::Clients, &tagged(5, &get)), Fate::Pass);
    assert_eq!(world.count(Counter::Denied), 1);
    // Two tags are nobody's, be they what they may.
    assert_eq!(world.through(Side::Clients, &tagged(0, &tagged(0, &get))), Fate::Pass);
    // A priority is no VLAN: the answer has it too.
    assert_eq!(world.through(Side::Clients, &tagged(0, &get)), Fate::Answer);
    assert_eq!(world.cache.made()[12..16], [0x81, 0, 0x20, 0]);
    // A value from there is not kept, though it is asked for from here with the same number.
    assert!(world.hits("k"));
    world.cache.flush();
    assert_eq!(world.through(Side::Clients, &get), Fate::Pass);
    let asked = world.count(Counter::Asked);
    let value = datagram(SERVED, CLIENT, 1, b"VALUE k 0 1\r\nx\r\nEND\r\n");
    assert_eq!(world.through(Side::Servers, &tagged(5, &value)), Fate::Pass);
    assert_eq!(world.count(Counter::Asked), asked);
    // A mutation from there makes void. (The get that nothing has answered has its place among the misses for a while.)
    world.now += 10 * SECOND;
    assert!(world.settled() && world.hits("k"));
    assert_eq!(
        world.through(Side::Clients, &tagged(5, &datagram(CLIENT, SERVED, 2, b"delete k\r\n"))),
        Fate::Pass
    );
    assert!(!world.hits("k"));
    // Nor is a connection there one of here. It is not followed, so it shuts the cache; here the same would be behind a hole.
    let mut world = World::new("");
    world.opens(CLIENT.1, world.client);
    let [seq, ack] = world.client;
    let ahead = segment(CLIENT, SERVED, seq.wrapping_add(500), ack, ACK, b"get k\r\n");
    assert_eq!(world.through(Side::Clients, &tagged(5, &ahead)), Fate::Pass);
    assert_eq!(world.count(Counter::TcpUnknown), 1);
    assert_eq!(world.through(Side::Clients, &ahead), Fate::Drop(DropReason::KvOutOfOrder));
    // Where the VLAN is the one that is cached, frames without a tag are the others.
    let section = section("misses = 1\nl1 = { memory_mib = 1 }\nvlan = 5");
    let mut cache = Cache::new(Settings::new(&section).unwrap(), 5);
    assert_eq!(cache.frame(Side::Clients, &get, true, 1800, START), Fate::Pass);
    assert_eq!(cache.frame(Side::Clients, &tagged(5, &get), true, 1800, START), Fate::Ask);
}

/// A get to a group's MAC address (a cluster's, or a broadcast) is memcached's to answer: what came from that address would be dropped. So is one that says that
/// it comes from there: its answer would go to everybody.
#[test]
fn nothing_is_answered_from_a_groups_mac_address_or_to_one() {
    let mut world = World::new("");
    let get = datagram(CLIENT, SERVED, 1, b"get k\r\n");
    for mac in [[1, 0, 0x5e, 0, 0, 9], [0xff; 6]] {
        for group in [[&mac[..], &get[6..]].concat(), [&get[..6], &mac, &get[12..]].concat()] {
            assert!((0..5).all(|_| world.through(Side::Clients, &group) == Fate::Pass));
            assert!((0..5).any(|_| world.hits("k")));
        }
    }
}

/// A memcached without `mg`.
#[test]
fn a_question_that_memcached_does_not_know_is_counted() {
    let mut world = World::new("");
    let refused = datagram(SERVED, (CLIENT.0, ASK_PORT), 0, b"ERROR\r\n");
    assert_eq!(world.through(Side::Servers, &refused), Fate::Consume);
    assert_eq!(world.count(Counter::FillRefused), 1);
}

/// All others have memcached's answers: who is in no prefix of `allow`, who asks at another address, and who has had as many as there are for him, or for all.
#[test]
fn whom_it_answers_and_how_often() {
    let answers = |world: &mut World, client: [u8; 4], count: usize| {
        let get = datagram((client.into(), 4000), SERVED, 1, b"get k\r\n");
        (0..count).filter(|_| world.through(Side::Clients, &get) == Fate::Answer).count()
    };
    let mut world = World::new("rate = 50");
    let before = world.count(Counter::Denied);
    assert_eq!(answers(&mut world, [10, 0, 1, 1], 10), 0);
    let elsewhere = datagram(CLIENT, (Ipv4Addr::new(10, 0, 0, 8), PORT), 1, b"get k\r\n");
    assert_eq!(world.through(Side::Clients, &elsewhere), Fate::Pass);
    assert_eq!(world.count(Counter::Denied) - before, 11);
    // A millisecond each: 50 at once, one every 20 ms, and now and then one goes to memcached with a question of ours.
    let given = answers(&mut world, [10, 0, 0, 2], 500);
    assert!((60..=76).contains(&given), "{given}");
    assert!(world.count(Counter::Limited) > 400);
    assert!(answers(&mut world, [10, 0, 0, 3], 10) > 7);
    let mut world = World::new("rate_total = 50");
    let given: usize = (20..30).map(|n| answers(&mut world, [10, 0, 0, n], 50)).sum();
    assert!((40..=76).contains(&given), "{given}");
    assert!(world.count(Counter::LimitedTotal) > 400 && world.count(Counter::Limited) == 0);
}
