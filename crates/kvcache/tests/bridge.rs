//! In an engine: the books, real captures byte for byte, an answer, and what an operator sees.

#![allow(clippy::unwrap_used)]

mod common;

use common::ports::{Script, run};
use common::{ASK_PORT, PORT, SERVER, datagram, read, section};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use tidemill_kvcache::Counter;
use tidemill_port::memory::capture;

const CLIENT: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 0, 1), 4000);

fn frames(path: &Path) -> Vec<Vec<u8>> {
    capture(path).unwrap().into_iter().map(|frame| frame.bytes).collect()
}

fn captures(root: &Path) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut files = Vec::new();
    for folder in ["ddos", "dns", "frag", "icmp", "malformed", "memcached", "mix", "proto"] {
        let Ok(entries) = std::fs::read_dir(root.join("pcap").join(folder)) else { continue };
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let kinds = [".pcap.zst", ".pcapng.zst", ".pcap.xz", ".pcap", ".pcapng", ".cap.zst"];
    let readable = |path: &&PathBuf| kinds.iter().any(|kind| path.to_string_lossy().ends_with(kind));
    let small = |path: &&PathBuf| std::fs::metadata(path).unwrap().len() < 3 << 20;
    let read = |path: &PathBuf| (path.display().to_string(), frames(path));
    files.iter().filter(readable).filter(small).map(read).collect()
}

/// Real traffic, from clients and then from servers: everything leaves as it came, in order, but for what is dropped under a name.
#[test]
fn real_captures_pass_byte_for_byte() {
    let Some(root) = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from) else {
        println!("skipped: real_captures_pass_byte_for_byte (TIDEMILL_DATA is not set)");
        return;
    };
    let captures = captures(&root);
    assert!(captures.len() >= 13, "{} captures", captures.len());
    let (mut all, mut dropped) = (0, 0);
    for (name, frames) in captures {
        let frames: Vec<Vec<u8>> = frames.into_iter().filter(|frame| frame.len() < 32_000).collect();
        let bursts: Script = frames.chunks(200).map(<[Vec<u8>]>::to_vec).collect();
        for side in 0..2 {
            let mut scripts = [Vec::new(), Vec::new()];
            scripts[side] = bursts.clone();
            // Every address is a memcached's that might be asked for, on the port that most captures have.
            let port = if name.contains("/dns/") { 53 } else { PORT };
            let run = run(&section(&format!("port = {port}\nl1 = {{ memory_mib = 1 }}")), scripts);
            let ledger = run.snapshot.ledger();
            let (sent, lost) = (&run.sent[1 - side], ledger.dropped.values().sum::<u64>());
            assert_eq!(sent.len() as u64 + lost, frames.len() as u64, "{name}");
            assert!(
                run.sent[side].is_empty() && ledger.made == 0 && ledger.consumed == 0,
                "{name}: {ledger:?}"
            );
            // What left is what came, without what was dropped.
            let mut left = sent.iter();
            let mut next = left.next();
            for frame in &frames {
                if next == Some(frame) {
                    next = left.next();
                }
            }
            assert_eq!(next, None, "{name}: from side {side}");
            all += frames.len();
            // What is no memcached's on its port is mostly half a command.
            dropped += if port == PORT { lost } else { 0 };
        }
    }
    println!("{all} packets, {dropped} dropped");
    assert!(all > 50_000 && dropped < all as u64 / 100);
}

/// Nothing for `settle_ms`; then two misses, their replies, what we ask for and its answers; then a hit, a mutation, a miss.
#[test]
fn a_value_is_kept_and_given_until_it_is_written() {
    let server = (SERVER, PORT);
    let get = |id| datagram(CLIENT, server, id, b"get key\r\n");
    let value = |id| datagram(server, CLIENT, id, b"VALUE key 5 3\r\nabc\r\nEND\r\n");
    let ask = (CLIENT.0, ASK_PORT);
    let stats = |id| datagram(server, ask, id, b"STAT pid 5\r\nSTAT uptime 100\r\nSTAT time 900\r\n");
    let settings = datagram(server, ask, 3, b"STAT maxbytes 5\r\nSTAT oldest 0\r\n");
    // A millisecond each.
    let settling: Script = vec![vec![]; 100];
    // The number of the first question is known from the same run without its answer.
    let scripts = |told: Option<Vec<u8>>| -> [Script; 2] {
        let mut clients = vec![vec![get(1)], vec![]];
        clients.extend(settling.clone());
        clients.extend([
            vec![get(8)],
            vec![],
            vec![get(9)],
            vec![],
            vec![get(2)],
            vec![],
            vec![get(3)],
            vec![],
            vec![get(4)],
            vec![],
        ]);
        clients.extend([
            vec![get(5)],
            vec![],
            vec![datagram(CLIENT, server, 6, b"delete key\r\n")],
            vec![get(7)],
        ]);
        let mut servers = vec![vec![], vec![stats(1)]];
        servers.extend(settling.clone());
        servers.extend([
            vec![],
            vec![stats(2)],
            vec![],
            vec![settings.clone()],
            vec![],
            vec![value(2)],
            vec![],
            vec![value(3)],
            vec![],
        ]);
        servers.extend([told.into_iter().collect::<Vec<_>>(), vec![]]);
        [clients, servers]
    };
    let section = section("settle_ms = 100\nlease_ms = 100\nl1 = { memory_mib = 1 }");
    let first = run(&section, scripts(None));
    let question = first.sent[1].iter().map(|frame| read(frame)).find(|frame| frame.text.starts_with(b"mg "));
    let question = question.unwrap();
    assert_eq!((question.src, question.dst), (ask, server));
    let nonce = String::from_utf8(question.text).unwrap();
    let nonce = nonce.trim_end().rsplit(' ').next().unwrap();
    let told = datagram(server, ask, 0, format!("HD t-1 {nonce}\r\n").as_bytes());

    let run = run(&section, scripts(Some(told)));
    let to_client: Vec<_> = run.sent[0].iter().map(|frame| read(frame)).collect();
    let of = |id| to_client.iter().filter(|frame| frame.id == id).collect::<Vec<_>>();
    let hit = of(5);
    assert_eq!(hit.len(), 1, "{to_client:?}");
    assert_eq!(
        (hit[0].src, hit[0].dst, &hit[0].text[..]),
        (server, CLIENT, &b"VALUE key 5 3\r\nabc\r\nEND\r\n"[..])
    );
    assert!(of(7).is_empty(), "it has been deleted");
    let ids: Vec<u16> =
        run.sent[1].iter().map(|frame| read(frame)).filter(|f| f.src == CLIENT).map(|f| f.id).collect();
    assert_eq!(ids, [1, 8, 9, 2, 3, 4, 6, 7]);
    let counters = run.control.counters();
    let count = |counter| counters.get(counter);
    assert_eq!((count(Counter::HitL0) + count(Counter::HitL1), count(Counter::Filled)), (1, 1));
    assert_eq!((count(Counter::FillOnce), count(Counter::UdpMutation), count(Counter::Checks)), (1, 1, 2));
    assert_eq!((count(Counter::Doubts), count(Counter::AskReplies)), (1, 4));
}
