//! In an engine: the books, real captures byte for byte, several workers, and what an operator sees.

#![allow(clippy::unwrap_used)]

mod common;

use common::conversations::cut;
use common::ports::{Run, Worker, run};
use common::{Flow, SECOND, frame, section};
use std::collections::HashSet;
use std::path::PathBuf;
use tidemill_amp::{Because, Counter, Status, TopBy, TopKey, Wanted};
use tidemill_port::memory::{Frame, capture};
use tidemill_wire::flow_key;

fn data(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    path
}

fn at(bytes: Vec<u8>, time_ns: u64) -> Frame {
    Frame::at(time_ns, bytes)
}

/// All captures there are, from folders that are named.
fn captures(root: &std::path::Path) -> Vec<(String, Vec<Frame>)> {
    captures_of(root, &["ddos", "dns", "frag", "icmp", "malformed", "memcached", "mix", "proto"])
}

fn captures_of(root: &std::path::Path, folders: &[&str]) -> Vec<(String, Vec<Frame>)> {
    let mut files = Vec::new();
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(root.join("pcap").join(folder)) else { continue };
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let kinds = [".pcap.zst", ".pcapng.zst", ".pcap.xz", ".pcap", ".pcapng", ".cap.zst"];
    let readable = |path: &&PathBuf| kinds.iter().any(|kind| path.to_string_lossy().ends_with(kind));
    let small = |path: &&PathBuf| std::fs::metadata(path).unwrap().len() < 3 << 20;
    let read = |path: &PathBuf| (path.display().to_string(), capture(path).unwrap());
    files.iter().filter(readable).filter(small).map(read).collect()
}

/// Real traffic, from outside and then from inside: nobody complains, so everything leaves as it came, in order.
#[test]
fn real_captures_pass_byte_for_byte() {
    let Some(root) = data("real_captures_pass_byte_for_byte") else { return };
    let captures = captures(&root);
    assert!(captures.len() >= 13, "{} captures", captures.len());
    let mut all = 0;
    for (name, inputs) in captures {
        let inputs: Vec<Frame> = inputs.into_iter().filter(|input| input.bytes.len() < 32_000).collect();
        let bursts: Vec<Vec<Frame>> = inputs.chunks(200).map(<[Frame]>::to_vec).collect();
        let expected: Vec<_> = inputs.iter().map(|input| &input.bytes).collect();
        for side in 0..2 {
            let mut worker: Worker = [Vec::new(), Vec::new()];
            worker[side] = bursts.clone();
            let run = run(&section("entries = 10000"), vec![worker]);
            assert_eq!(run.dropped(), 0, "{name}");
            assert!(run.sent[1 - side].iter().eq(expected.iter().copied()), "{name}: from side {side}");
            assert!(run.sent[side].is_empty());
            all += expected.len();
        }
    }
    println!("{all} packets");
    assert!(all > 50_000);
}

/// Conversations on record: questions come in by the inside port, answers by the outside one, three times over; half of the hosts that got an answer say a
/// while later that nobody listens there any more, as a resolver's closed socket does. Nobody loses a packet. Where questions are not remembered, many do.
#[test]
fn real_conversations_lose_nothing_to_late_messages() {
    let Some(root) = data("real_conversations_lose_nothing_to_late_messages") else { return };
    let (mut complaints, mut unprotected) = (0, 0);
    for (name, inputs) in captures_of(&root, &["dns", "memcached", "proto"]) {
        let frames = inputs.into_iter().map(|input| input.bytes).filter(|bytes| bytes.len() < 32_000);
        let steps = cut(frames);
        if steps.iter().all(|step| step.late.is_none()) {
            continue;
        }
        let (mut outside, mut inside): (Vec<Vec<Frame>>, Vec<Vec<Frame>>) = (Vec::new(), Vec::new());
        let (mut late, mut answers) = (vec![Vec::new(); 3 * steps.len() + LATE], 0);
        for (n, step) in steps.iter().chain(&steps).chain(&steps).enumerate() {
            let time_ns = 1_000_000_000 * SECOND + n as u64 * 100_000;
            let (from, to) =
                if step.inside { (&mut inside, &mut outside) } else { (&mut outside, &mut inside) };
            from.push(vec![at(step.frame.clone(), time_ns)]);
            to.push(Vec::new());
            inside[n].extend(late[n].drain(..).map(|bytes| at(bytes, time_ns)));
            if let Some(message) = &step.late {
                answers += 1;
                if answers % 2 == 0 {
                    late[n + LATE].push(message.clone());
                }
            }
        }
        let rest = late.split_off(3 * steps.len()).into_iter().flatten();
        inside.extend(rest.map(|bytes| vec![at(bytes, 1_000_000_001 * SECOND)]));
        let play = |toml: &str| -> Run { run(&section(toml), vec![[outside.clone(), inside.clone()]]) };
        let run = play("icmp_rate = 0");
        let sent = [inside.iter().flatten().count(), outside.iter().flatten().count()];
        let count = |counter| run.control.counters().get(counter);
        assert_eq!((run.dropped(), count(Counter::RulesMade)), (0, 0), "{name}");
        assert_eq!(run.sent.each_ref().map(Vec::len), sent, "{name}");
        let refused = count(Counter::IcmpSolicited);
        assert!(refused >= answers / 2, "{name}: {refused} of {}", answers / 2);
        let lost = play("icmp_rate = 0\nquery_s = 0").dropped();
        println!(
            "{name}: {answers} answers that were asked for, {refused} late messages: 0 lost; {lost} if questions are not remembered"
        );
        complaints += refused;
        unprotected += lost;
    }
    assert!(
        complaints > 1000 && unprotected > 1000,
        "{complaints} messages, {unprotected} lost without protection"
    );
}

/// Packets between an answer and its host's late message.
const LATE: usize = 50;

/// Real reflected floods; every victim says of every packet that it gets that nobody listens. Of each flow the first packet passes, the
/// rest does not, and what is no flood's is untouched.
#[test]
fn real_floods_are_kept_away_but_for_their_first_packets() {
    let Some(root) = data("real_floods_are_kept_away_but_for_their_first_packets") else { return };
    let mut all = [0, 0];
    for (name, inputs) in captures(&root).into_iter().filter(|(name, _)| name.contains("/ddos/")) {
        let (mut outside, mut inside) = (Vec::new(), Vec::new());
        let (mut flows, mut answers) = (HashSet::new(), 0);
        // Twice, so that every flow comes again.
        for (n, input) in inputs.iter().chain(&inputs).enumerate() {
            // Each packet in a burst of its own, and its complaint before the next.
            let time_ns = 1_000_000_000 * SECOND + n as u64 * 1000;
            outside.push(vec![at(input.bytes.clone(), time_ns)]);
            let quoted = quotable(&input.bytes);
            if let Some((flow, _)) = &quoted {
                answers += 1;
                flows.insert(*flow);
            }
            inside.push(quoted.map(|(_, complaint)| at(complaint, time_ns)).into_iter().collect());
        }
        let run = run(&section("icmp_rate = 0"), vec![[outside, inside]]);
        let expected = answers - flows.len() as u64;
        let counters = run.control.counters();
        let dropped = run.dropped() - counters.get(Counter::DroppedFragments);
        println!(
            "{name}: {answers} answers of {} flows, {dropped} kept away, {} later fragments too",
            flows.len(),
            counters.get(Counter::DroppedFragments)
        );
        assert_eq!(dropped, expected, "{name}");
        assert_eq!(counters.get(Counter::RulesMade), flows.len() as u64, "{name}");
        all[0] += dropped;
        all[1] += u64::from(expected > 0);
    }
    assert!(all[0] > 4000 && all[1] >= 2, "{all:?}");
}

/// The flow of a packet that the mitigator looks at, read with `wire`'s own flow keys, and what the victim says.
fn quotable(bytes: &[u8]) -> Option<(Flow, Vec<u8>)> {
    let l2 = tidemill_wire::vlan::L2::parse(bytes).ok()?;
    let packet = bytes.get(l2.l3_offset..)?;
    if tidemill_wire::ipv4::check(packet).is_err() || l2.ethertype != tidemill_wire::EtherType::IPV4 {
        return None;
    }
    // The first fragment has ports as well, which flow keys leave out.
    let mut whole = bytes.to_vec();
    let offset = tidemill_wire::ipv4::fragment_offset(packet);
    whole[l2.l3_offset + 6..l2.l3_offset + 8].fill(0);
    let key = flow_key(&whole, l2.l3_offset).filter(|key| key.protocol.0 == 17 && offset == 0)?;
    let (port, victim_port) = key.ports?;
    let tidemill_wire::flow::Addresses::V4 { src, dst } = key.addresses else { return None };
    [53, 123, 1900, 11211, 19, 389, 161, 17].contains(&port).then_some(())?;
    let flow = Flow {
        amplifier: std::net::Ipv4Addr::from(src).into(),
        victim: std::net::Ipv4Addr::from(dst).into(),
        port,
        victim_port,
    };
    let header = tidemill_wire::ipv4::header_len(packet);
    // Linux quotes the datagram as it was put together, or the packet.
    let quoted = &whole[l2.l3_offset..][..(header + 8).min(packet.len())];
    Some((flow, frame(&common::unreachable(flow.victim, flow.amplifier, &quoted_of(quoted, header)), 0)))
}

/// The quoted headers with lengths that fit each other: captures hold first fragments whose UDP length is the datagram's.
fn quoted_of(quoted: &[u8], header: usize) -> Vec<u8> {
    let mut quoted = quoted.to_vec();
    let len = u16::from_be_bytes([quoted[header + 4], quoted[header + 5]]).max(8);
    quoted[header + 4..header + 6].copy_from_slice(&len.to_be_bytes());
    quoted[2..4].copy_from_slice(&(len.saturating_add(header as u16)).to_be_bytes());
    quoted
}

/// Many flows, half of them complained of: lists, pages, sums.
#[test]
fn what_an_operator_sees() {
    let flows: Vec<Flow> = (0..3000)
        .map(|n: u32| Flow {
            amplifier: std::net::Ipv4Addr::from(0x0808_0000 + n % 30).into(),
            victim: std::net::Ipv4Addr::from(0x0a00_0000 + n % 7).into(),
            port: if n.is_multiple_of(3) { 53 } else { 123 },
            victim_port: 10_000 + n as u16,
        })
        .collect();
    let t = 1_000_000 * SECOND;
    let (mut outside, mut inside): (Vec<Vec<Frame>>, Vec<Vec<Frame>>) = (Vec::new(), Vec::new());
    for flows in flows.chunks(100) {
        let answers = |_| flows.iter().map(|flow| at(frame(&flow.answer(), 0), t)).collect::<Vec<_>>();
        outside.extend((0..3).map(answers));
        inside.push(flows.iter().step_by(2).map(|flow| at(frame(&flow.complaint(), 0), t)).collect());
        inside.extend([Vec::new(), Vec::new()]);
    }
    let mut run = run(&section("icmp_rate = 0"), vec![[outside, inside]]);
    assert_eq!(run.dropped(), 2 * 1500);
    let control = &mut run.control;
    let bytes = frame(&flows[0].answer(), 0).len() as u64;

    let (mut seen, mut wanted, mut pages) = (HashSet::new(), Wanted { limit: 77, ..Wanted::default() }, 0);
    loop {
        let page = control.rules(&wanted, t);
        assert!(page.rules.len() <= 77 && (page.next.is_none() || page.rules.len() == 77));
        for rule in &page.rules {
            assert!(seen.insert((rule.tuple, rule.status)));
            let hits = if rule.status == Status::Filtered { (2, 2 * bytes, 7830) } else { (0, 0, 10) };
            assert_eq!((rule.hits.packets, rule.hits.bytes, rule.left_s), hits);
        }
        wanted.cursor = page.next;
        pages += 1;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (3000, 39));
    let filtered = Wanted { status: Some(Status::Filtered), limit: 10_000, ..Wanted::default() };
    assert_eq!(control.rules(&filtered, t).rules.len(), 1500);
    let prefix = tidemill_amp::IpPrefix::parse("10.0.0.3/32").ok();
    let of_one = control.rules(&Wanted { address: prefix, ..filtered.clone() }, t).rules;
    assert!(
        !of_one.is_empty() && of_one.iter().all(|rule| rule.tuple.destination().to_string() == "10.0.0.3")
    );
    assert!(control.rules(&filtered, t + 7830 * SECOND).rules.is_empty(), "all over");

    for (by, lines) in [(TopBy::Rule, 1500), (TopBy::Amplifier, 15), (TopBy::Victim, 7), (TopBy::Protocol, 2)]
    {
        let top = control.top(by, 10_000, t);
        assert_eq!(top.len(), lines, "{by:?}");
        assert_eq!(top.iter().map(|line| line.hits.packets).sum::<u64>(), 3000);
        assert_eq!(top.iter().map(|line| line.rules).sum::<u64>(), 1500);
        assert!(top.is_sorted_by_key(|line| std::cmp::Reverse(line.hits.bytes)));
        assert_eq!(control.top(by, 2, t), top[..2]);
    }
    let protocols = control.top(TopBy::Protocol, 1, t);
    assert_eq!((protocols[0].key, protocols[0].key.to_string().as_str()), (TopKey::Port(Some(123)), "ntp"));

    let mut explain = |flow: &Flow| {
        let key = flow_key(&frame(&flow.answer(), 0), 14).unwrap();
        control.explain(&key, t + SECOND).because
    };
    assert!(
        matches!(explain(&flows[0]), Because::Filtered { since_s: Some(1), left_s: 7829, hits, dry_run: false } if hits.packets == 2)
    );
    assert_eq!(explain(&flows[1]), Because::Suspected { age_s: 1 });
    assert_eq!(explain(&Flow { port: 54, ..flows[0] }), Because::NotAProtocol { port: 54 });
    assert_eq!(explain(&Flow { victim_port: 1, ..flows[0] }), Because::Unknown);
    assert!(matches!(explain(&flows[0]).to_string(), text if text.starts_with("filtered: the victim said")));
}
