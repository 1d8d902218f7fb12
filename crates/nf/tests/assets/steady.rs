//! What goes on for long: nothing is allocated for packets that tell nothing new; bytes that are no packets are no trouble.

use crate::allocations::allocations;
use crate::frames::*;
use crate::watch::Lab;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_nf::assets::AssetsSection;

fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for n in 1..100_u8 {
        for (client, server) in [
            (format!("10.0.0.{n}"), "192.0.2.1".to_owned()),
            (format!("2001:db8::{n:x}"), "2001:db8:1::1".to_owned()),
        ] {
            let (client, server) = ((ip(&client), 40_000), (ip(&server), 80));
            frames.push(handshake(client, server, false, 64));
            frames.push(handshake(server, client, true, 64));
            frames.push(data(client, server, b"GET / HTTP/1.1\r\n\r\n"));
            frames.push(data(server, client, b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\n\r\nhello"));
            frames.push(udp(client, (server.0, 53), &[0; 30]));
        }
        frames.push(arp([2, 0, 0, 0, 1, n], [10, 0, 0, n]));
        frames.push(dhcp(1, 3, [2, 0, 0, 0, 1, n], [10, 0, 0, n], b"laptop"));
        frames.push(dhcp(2, 5, [2, 0, 0, 0, 1, n], [10, 0, 0, n], b""));
    }
    frames
}

#[test]
fn nothing_is_allocated_for_what_is_known() {
    let mut lab = Lab::new(&AssetsSection::default());
    let frames = frames();
    frames.iter().for_each(|frame| lab.look(100, frame));
    let (reports, before) = (lab.reports, allocations());
    (0..10).for_each(|_| frames.iter().for_each(|frame| lab.look(100, frame)));
    assert_eq!((allocations(), lab.reports), (before, reports));
    assert!(lab.table.len() >= 200 && reports > 600, "{} {reports}", lab.table.len());
}

#[test]
fn any_bytes_can_be_looked_at() {
    let mut lab = Lab::new(&AssetsSection { hosts: 64, ..AssetsSection::default() });
    let frames = frames();
    let mut random = StdRng::seed_from_u64(9);
    for now_s in 0..20_000 {
        let mut bytes = frames[random.random_range(0..frames.len())].clone();
        for _ in 0..random.random_range(0..5) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(0..=bytes.len()));
        lab.look(now_s, &bytes);
        lab.table.expire(u64::from(now_s) * 1000);
    }
    assert!(lab.table.is_consistent() && lab.table.done().evicted_bare > 0);
    lab.look(0, &[]);
}
