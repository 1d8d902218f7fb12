//! Nothing is allocated for a packet: a counting allocator is asked.

#![allow(clippy::unwrap_used)]

#[path = "../../lookup/tests/common/allocations.rs"]
mod allocations;
mod common;

use allocations::allocations;
use common::{ACK, ASK_PORT, PORT, SECOND, SERVER, SYN, datagram, read, section, segment};
use std::net::Ipv4Addr;
use tidemill_kvcache::{Cache, Counter, Fate, Settings, Side};

/// Gives a frame to the cache: its fate, and what was made.
type Frames<'a> = dyn FnMut(Side, &[u8]) -> (Fate, Option<common::Read>) + 'a;

#[test]
fn nothing_is_allocated_for_a_packet() {
    let on_demand = "on_demand = { up = 2, up_ms = 100, down = 1, down_ms = 1000 }";
    let times = "settle_ms = 400\nlease_ms = 400";
    let section = section(&format!("misses = 1\nl1 = {{ memory_mib = 1 }}\n{times}\n{on_demand}"));
    let mut cache = Cache::new(Settings::new(&section).unwrap(), 5);
    let (client, server) = ((Ipv4Addr::new(10, 0, 0, 1), 4000), (SERVER, PORT));
    let ask = (client.0, ASK_PORT);
    let mut now = 1_000_000 * SECOND;
    // A get, its reply, a hit, a mutation over UDP and one over TCP with its answer, made before they are counted.
    let open = segment(server, client, 999, 500, SYN | ACK, &[]);
    let mut seq = [500_u32, 1000];
    let (mut hits, mut counted) = (0, 0);
    for round in 0..200_u32 {
        let id = round as u16;
        let get = datagram(client, server, id, b"get key\r\n");
        let value = datagram(server, client, id, b"VALUE key 0 3\r\nabc\r\nEND\r\n");
        let set = segment(client, server, seq[0], seq[1], ACK, b"set key 0 0 3\r\nabc\r\n");
        let stored = segment(server, client, seq[1], seq[0] + 20, ACK, b"STORED\r\n");
        let delete = datagram(client, server, id, b"delete other noreply\r\n");
        (seq[0], seq[1]) = (seq[0] + 20, seq[1] + 8);
        now += SECOND / 10;
        let mut frame = |side, frame: &[u8]| {
            let before = allocations();
            let fate = cache.frame(side, frame, true, 1800, now);
            counted += allocations() - before;
            let made = matches!(fate, Fate::Ask | Fate::Answer).then(|| read(cache.made()));
            (fate, made)
        };
        if round == 0 {
            frame(Side::Servers, &open);
        }
        let answer = |frame: &mut Frames<'_>, made: Option<common::Read>| {
            let Some(made) = made.filter(|made| made.dst == server && made.src == ask) else { return };
            let text = String::from_utf8(made.text).unwrap();
            let told = match text.trim_end().rsplit(' ').next().unwrap() {
                "settings" => "STAT oldest 0\r\n".to_owned(),
                "stats" => {
                    format!("STAT pid 7\r\nSTAT uptime {}\r\nSTAT time {}\r\n", round / 10, 900 + round / 10)
                }
                nonce => format!("HD t-1 {nonce}\r\n"),
            };
            frame(Side::Servers, &datagram(server, ask, made.id, told.as_bytes()));
        };
        for side in [(Side::Clients, &get), (Side::Servers, &value), (Side::Clients, &get)] {
            let (fate, made) = frame(side.0, side.1);
            hits += u64::from(fate == Fate::Answer);
            answer(&mut frame, made);
        }
        for side in [(Side::Clients, &set), (Side::Servers, &stored), (Side::Clients, &delete)] {
            assert_eq!(frame(side.0, side.1).0, Fate::Pass);
        }
    }
    let count = |counter| cache.counters().get(counter);
    assert!(
        hits > 50 && count(Counter::Filled) > 50 && count(Counter::TcpReleased) > 150,
        "{:?}",
        cache.counters()
    );
    assert_eq!(counted, 0);
}
