//! In an engine: the bridge, rules, edits with checksums, groups and meters; every packet is somewhere under a name.

#![allow(clippy::unwrap_used)]

mod classifiers;
mod common;
mod files;
mod stops;

use common::{PORTS, Run, SECOND, START, run, run_with};
use tidemill_burst::Memory;
use tidemill_classify::packet::key;
use tidemill_classify::{Field, Key};
use tidemill_graph::{Clock, Engine, Limits, Options};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_switch::{Counter, SwitchControl, graph};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{MacAddr, Protocol, ipv4, udp, verify_checksums};

fn mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// A UDP packet from one station to another.
fn frame(from: u8, to: u8, vlan: Option<u16>, payload: &str) -> Vec<u8> {
    let mut frame = [mac(to), mac(from)].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x08, 0x00]);
    let (src, dst) = ([10, 0, 0, from].into(), [10, 0, 0, to].into());
    let pseudo = Pseudo::V4 { src, dst };
    let mut datagram = vec![0; udp::HEADER_LEN + payload.len()];
    datagram[udp::HEADER_LEN..].copy_from_slice(payload.as_bytes());
    let len = datagram.len() as u16;
    datagram[..6].copy_from_slice(&[0x03, 0xe8, 0x07, 0xd0, (len >> 8) as u8, len as u8]);
    let check = pseudo.checksum(Protocol::UDP, &datagram);
    datagram[6..8].copy_from_slice(&check.to_be_bytes());
    let repr = ipv4::Repr::new(src, dst, Protocol::UDP, datagram.len());
    let mut header = vec![0; repr.buffer_len()];
    repr.emit(&mut header).unwrap();
    [frame, header, datagram].concat()
}

fn broadcast(from: u8, vlan: Option<u16>) -> Vec<u8> {
    let mut bytes = frame(from, 9, vlan, "to all");
    bytes[..6].copy_from_slice(&MacAddr::BROADCAST.0);
    bytes
}

/// A burst of frames at a time.
fn burst(seconds: u64, frames: &[Vec<u8>]) -> Vec<Frame> {
    let input = |bytes: &Vec<u8>| Frame::at(START + seconds * SECOND, bytes.clone());
    frames.iter().map(input).collect()
}

fn lan(bursts: Vec<Vec<Frame>>) -> [Vec<Vec<Frame>>; 3] {
    [bursts, vec![], vec![]]
}

fn sent(run: &Run) -> [usize; 3] {
    [0, 1, 2].map(|port: usize| run.sent[port].len())
}

fn keys(run: &Run, port: usize) -> Vec<Key> {
    run.sent[port].iter().map(|frame| key(frame, 0).unwrap()).collect()
}

/// IPv4 and UDP checksums of a frame without or with one tag.
fn checksums_hold(frame: &[u8]) {
    assert_eq!(verify_checksums(frame), Ok(()), "{frame:02x?}");
}

#[test]
fn a_bridge_floods_what_it_does_not_know_and_learns() {
    // 1 is behind lan, 2 behind wan. The first packet goes everywhere, the answer only back; then 1 sends to 2 alone.
    let input = [
        vec![burst(0, &[frame(1, 2, None, "hello")]), burst(2, &[frame(1, 2, None, "again")])],
        vec![burst(1, &[frame(2, 1, None, "answer")])],
        vec![burst(1, &[]), burst(1, &[]), burst(3, &[frame(3, 3, None, "to myself")])],
    ];
    let mut run = run("", "", input);
    assert_eq!(sent(&run), [1, 2, 1]);
    assert_eq!(run.sent[2][0], frame(1, 2, None, "hello"));
    assert_eq!(run.sent[0][0], frame(2, 1, None, "answer"));
    assert_eq!(run.drops(), [("bridge-same-port".to_owned(), 1)]);
    run.control.poll(START + 3 * SECOND);
    let stations: Vec<_> = run.control.stations().iter().map(|(s, name)| (s.mac, name.clone())).collect();
    let address = |n: u64| 0x0200_0000_0000 | n;
    assert_eq!(
        stations,
        [(address(1), "lan".into()), (address(2), "wan".into()), (address(3), "dmz".into())]
    );
    assert_eq!(
        (run.control.counters().get(Counter::Flooded), run.control.counters().get(Counter::Copies)),
        (1, 1)
    );
}

#[test]
fn what_a_bridge_does_not_forward_has_a_name() {
    let mut reserved = frame(1, 2, None, "a spanning tree");
    reserved[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0]);
    let mut group = frame(1, 2, None, "from a group");
    group[6] |= 1;
    let short = vec![0; 13];
    let run = run("", "", lan(vec![burst(0, &[reserved, group, short])]));
    assert_eq!(sent(&run), [0, 0, 0]);
    let names = ["bridge-reserved", "ethernet-bad-source", "ethernet-too-short"];
    assert_eq!(names.map(|name| run.dropped(name)), [1, 1, 1], "{:?}", run.drops());
}

#[test]
fn vlans_keep_stations_apart() {
    let section =
        "[vlans.lan]\naccess = 10\n[vlans.wan]\ntrunk = [10, 20]\nnative = 20\n[vlans.dmz]\naccess = 20\n";
    let input = [
        vec![burst(0, &[broadcast(1, None), broadcast(1, Some(10))])],
        vec![burst(1, &[broadcast(2, Some(10)), broadcast(2, None), broadcast(2, Some(30))])],
        vec![burst(2, &[broadcast(3, None)])],
    ];
    let run = run(section, "", input);
    // lan's goes to the trunk with a tag; the trunk's VLAN 10 to lan without, its native VLAN 20 to dmz; dmz's to the trunk without.
    assert_eq!(run.sent[0], [broadcast(2, None)]);
    assert_eq!(run.sent[1], [broadcast(1, Some(10)), broadcast(3, None)]);
    assert_eq!(run.sent[2], [broadcast(2, None)]);
    // With a tag on an access port, and of a VLAN that the trunk is not in.
    assert_eq!(run.drops(), [("vlan-refused".to_owned(), 2)]);
}

/// Another tag in front.
fn behind(outer: u16, mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(12..12, [[0x81, 0], outer.to_be_bytes()].concat());
    frame
}

#[test]
fn no_second_tag_becomes_the_first() {
    // A station behind an access port of VLAN 10 wants to be in VLAN 20 of the trunk, by tags that come off; one behind the trunk in 20 and 10 likewise.
    let section =
        "[vlans.lan]\naccess = 10\n[vlans.wan]\ntrunk = [10, 20]\nnative = 10\n[vlans.dmz]\naccess = 20\n";
    let hidden = broadcast(1, Some(20));
    let from_lan = [behind(0, hidden.clone()), behind(0x6000, hidden.clone()), behind(10, hidden.clone())];
    let from_wan = [behind(20, broadcast(2, Some(10))), behind(10, broadcast(2, Some(20)))];
    let inner_zero = [behind(20, broadcast(2, Some(0)))];
    let from_dmz = [broadcast(3, None), behind(0, broadcast(3, None))];
    let run = run(
        section,
        "",
        [
            vec![burst(0, &from_lan)],
            vec![burst(1, &[&from_wan[..], &inner_zero].concat())],
            vec![burst(2, &from_dmz)],
        ],
    );
    // What has one tag of number 0 is of the port's own VLAN, as before.
    let of_dmz = broadcast(3, Some(20));
    assert_eq!(run.sent[1], [of_dmz.clone(), of_dmz]);
    assert_eq!((run.sent[0].len(), run.sent[2].len()), (0, 0));
    assert_eq!(run.drops(), [("vlan-refused".to_owned(), 6)]);
    // Ports that show tags get both, and to a station that is known it is as to all.
    let section = "[vlans.lan]\naccess = 10\n[vlans.wan]\ntrunk = [10, 20]\nnative = 20\n";
    let double = behind(10, hidden);
    let mut back = double.clone();
    back[..6].copy_from_slice(&mac(7));
    let input = [
        vec![burst(0, &[frame(7, 1, None, "I am here")])],
        vec![burst(1, &[back])],
        vec![burst(1, std::slice::from_ref(&double))],
    ];
    let run = self::run(section, "", input);
    assert_eq!(run.sent[0].len(), 0);
    assert_eq!(run.sent[1].last(), Some(&double));
    assert_eq!(run.drops(), [("vlan-refused".to_owned(), 1)]);
}

#[test]
fn a_priority_stays_in_copies_with_a_tag() {
    // All but the number of a tag, whose port comes first: priority 7 without and with the drop bit, and the other kind of tag.
    for (untagged, tagged) in [("wan", "dmz"), ("dmz", "wan")] {
        let section = format!(
            "[vlans.lan]\naccess = 10\n[vlans.{untagged}]\naccess = 10\n[vlans.{tagged}]\ntrunk = [10]\n"
        );
        let of = |from: u16| {
            let mut other = broadcast(1, Some(from));
            other[12..14].copy_from_slice(&[0x88, 0xa8]);
            [broadcast(1, Some(from)), broadcast(1, Some(from | 0x1000)), other]
        };
        let run = run(&section, "", lan(vec![burst(0, &of(0xe000))]));
        let (plain, with) = if untagged == "wan" { (1, 2) } else { (2, 1) };
        assert_eq!(run.sent[plain], [broadcast(1, None), broadcast(1, None), broadcast(1, None)]);
        assert_eq!(run.sent[with], of(0xe00a), "{tagged} is in VLAN 10 by a tag");
    }
}

/// An IPv6 packet behind so many destination options headers: TCP to port 22.
fn behind_options(headers: u8, hop_limit: u8) -> Vec<u8> {
    let mut rest = Vec::new();
    for left in (0..headers).rev() {
        rest.extend([if left == 0 { 6 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
    }
    let mut tcp = [0_u8; 20];
    (tcp[1], tcp[3], tcp[12]) = (80, 22, 0x50);
    let addresses: [[u8; 16]; 2] = [[0x20; 16], [0x21; 16]];
    let pseudo = Pseudo::V6 { src: addresses[0].into(), dst: addresses[1].into() };
    let check = pseudo.checksum(Protocol::TCP, &tcp);
    tcp[16..18].copy_from_slice(&check.to_be_bytes());
    rest.extend(tcp);
    let first = if headers == 0 { 6 } else { 60 };
    let head = [0x60, 0, 0, 0, 0, rest.len() as u8, first, hop_limit];
    [&mac(2)[..], &mac(1), &[0x86, 0xdd], &head, &addresses.concat(), &rest].concat()
}

#[test]
fn a_first_fragment_that_hides_its_ports_passes_no_rule_on_ports() {
    // The ports of TCP to port 22, and nothing behind them: the rest of the header is in the next fragment.
    let fragment = |bytes: &[u8]| {
        let repr = ipv4::Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::TCP, bytes.len());
        let mut header = vec![0; repr.buffer_len()];
        repr.emit(&mut header).unwrap();
        header[6] = 0x20;
        ipv4::fill_checksum(&mut header);
        [&mac(2)[..], &mac(1), &[8, 0], &header, bytes].concat()
    };
    let tcp = [&[0, 80, 0, 22][..], &[0; 8], &[0x50, 2, 4, 0], &[0; 8]].concat();
    let frames = [fragment(&tcp), fragment(&tcp[..8])];
    for (rules, sent, cut) in [
        ("actions=wan", 2, 0),
        ("priority=9,tcp actions=wan", 2, 0),
        ("priority=9,tcp,tp_dst=22 actions=drop\npriority=1 actions=wan", 0, 1),
        ("priority=9,tcp,tp_dst=0 actions=wan\npriority=1 actions=drop", 0, 1),
        (
            "priority=9,ip actions=goto_table:1\ntable=1,udp,tp_dst=9 actions=drop\ntable=1,priority=1 actions=wan",
            1,
            1,
        ),
        ("priority=9,ip actions=wan\ntable=1,udp,tp_dst=9 actions=drop", 2, 0),
    ] {
        let run = run("", rules, lan(vec![burst(0, &frames)]));
        assert_eq!((run.sent[1].len(), run.dropped("first-fragment-cut")), (sent, cut), "{rules}");
    }
}

#[test]
fn what_hides_behind_headers_passes_no_rule_on_what_it_hides() {
    let frames = [behind_options(0, 64), behind_options(16, 64), behind_options(17, 64)];
    let many = &frames[2];
    // Of rules, what leaves by wan, and what is dropped for being hidden.
    for (rules, sent, hidden) in [
        // Nobody asks for what lies above.
        ("actions=wan", 3, 0),
        ("priority=9,ipv6,ipv6_dst=2121:2121::/32 actions=wan", 3, 0),
        ("priority=9,tcp,tp_dst=22 actions=drop\npriority=1 actions=wan", 3, 0),
        ("priority=9,ipv6,ipv6_dst=2121:2121::/32 actions=drop\npriority=1 actions=wan", 0, 0),
        // Somebody does, whatever rule it would have met.
        ("priority=9,tcp6,tp_dst=22 actions=drop\npriority=1 actions=wan", 0, 1),
        ("priority=9,tcp6,tp_dst=22 actions=wan", 2, 1),
        ("priority=9,ipv6,ip_frag=yes actions=drop\npriority=1 actions=wan", 2, 1),
        (
            "priority=9,ipv6 actions=goto_table:1\ntable=1,udp6 actions=drop\ntable=1,priority=1 actions=wan",
            2,
            1,
        ),
        // In a table that it does not come by.
        ("priority=9,ipv6 actions=wan\ntable=1,udp6 actions=drop", 3, 0),
    ] {
        let run = run("", rules, lan(vec![burst(0, &frames)]));
        assert_eq!((run.sent[1].len(), run.dropped("ipv6-headers-unfollowed")), (sent, hidden), "{rules}");
    }
    // Rules that were there and have gone ask for nothing.
    let mut control = run("", "priority=9,tcp6 actions=drop\npriority=1 actions=wan\n", lan(vec![])).control;
    let asked = "in_port=lan,ipv6,ipv6_src=2001:db8::1,ipv6_dst=2001:db8::2";
    assert!(control.trace(asked).unwrap().end.starts_with("dropped: ipv6-headers-unfollowed: nw_proto=0"));
    assert_eq!(control.trace(&format!("{asked},nw_proto=89")).unwrap().end, "sent");
    assert_eq!(control.delete("tcp6", false).unwrap(), 1);
    assert_eq!(control.trace(asked).unwrap().end, "sent");
    // What is in front of the hidden is changed; what would need what it hides is dropped.
    let lowered = self::run(
        "",
        "ipv6 actions=dec_ttl,mod_nw_tos:8,wan",
        lan(vec![burst(0, std::slice::from_ref(many))]),
    );
    let changed = &lowered.sent[1][0];
    assert_eq!((changed[14], changed[15], changed[14 + 7]), (0x60, 0x80, 63));
    let dying = self::run("", "ipv6 actions=dec_ttl,wan", lan(vec![burst(0, &[behind_options(17, 1)])]));
    assert_eq!(dying.drops(), [("ttl-expired".to_owned(), 1)]);
    let rules = "ipv6 actions=set_field:2001:db8::7->ipv6_dst,wan";
    let moved = self::run("", rules, lan(vec![burst(0, &frames)]));
    assert_eq!((moved.sent[1].len(), moved.dropped("ipv6-headers-unfollowed")), (2, 1));
    checksums_hold(&moved.sent[1][0]);
    // A header that cannot be read at all is not said to be changed.
    let mut cut = many.clone();
    cut.truncate(60);
    let mut broken = frame(1, 2, None, "no such version");
    broken[14] = 0x35;
    let rules = "ipv6 actions=dec_ttl,wan\nip actions=mod_nw_tos:8,wan\n";
    let run = self::run("", rules, lan(vec![burst(0, &[cut, broken])]));
    assert_eq!(run.drops(), [("ip-header-broken".to_owned(), 2)]);
}

#[test]
fn rules_edit_packets_and_their_checksums() {
    let rules = "table=0,priority=9,in_port=lan,udp actions=output:dmz,mod_nw_dst:192.0.2.9,mod_nw_src:192.0.2.1,mod_tp_dst:53,\
                 mod_nw_tos:184,dec_ttl,set_field:02:00:00:00:00:77->eth_dst,goto_table:1\n\
                 table=1,udp,nw_dst=192.0.2.9,tp_dst=53,actions=push_vlan:0x8100,mod_vlan_vid:7,mod_vlan_pcp:5,wan\n";
    let original = frame(1, 2, None, "odd");
    let run = run("", rules, lan(vec![burst(0, std::slice::from_ref(&original))]));
    assert_eq!(sent(&run), [0, 1, 1]);
    assert_eq!(run.sent[2][0], original, "the copy is as it was by then");
    let changed = &run.sent[1][0];
    checksums_hold(changed);
    let expected = key(&original, 0)
        .unwrap()
        .with(Field::Ipv4Source, 0xc000_0201)
        .with(Field::Ipv4Destination, 0xc000_0209)
        .with(Field::DestinationPort, 53)
        .with(Field::Tos, 184)
        .with(Field::MacDestination, 0x0200_0000_0077)
        .with(Field::Vlan, 0xb007);
    assert_eq!(keys(&run, 1), [expected]);
    assert_eq!(changed[18 + 8], original[14 + 8] - 1, "TTL");
    assert_eq!(run.snapshot.ledger().made, 1);
}

#[test]
fn what_is_behind_two_tags_is_edited() {
    let tagged = frame(1, 2, Some(10), "odd");
    let checks = |frame: &[u8]| {
        // Both tags off: what is left is a packet as any other.
        let plain = [&frame[..12], &frame[20..]].concat();
        checksums_hold(&plain);
        let key = key(&plain, 0).unwrap();
        assert_eq!(frame[12..20], [0x88, 0xa8, 0, 0, 0x81, 0, 0, 10]);
        let ports = (key.get(Field::SourcePort), key.get(Field::DestinationPort));
        assert_eq!((key.get(Field::Ipv4Destination), ports), (0x0102_0304, (1000, 53)));
        assert_eq!((key.get(Field::Tos), plain[14 + 8]), (184, tagged[18 + 8] - 1));
    };
    let edits = "push_vlan:0x88a8,dec_ttl,mod_nw_dst:1.2.3.4,mod_nw_tos:184,mod_tp_dst:53,wan";
    let rules = format!("udp actions={edits}\n");
    checks(&run("", &rules, lan(vec![burst(0, std::slice::from_ref(&tagged))])).sent[1][0]);
    let rules = format!("group_id=1,type=all,bucket={edits},bucket=dmz\nudp actions=group:1\n");
    let run = run("", &rules, lan(vec![burst(0, std::slice::from_ref(&tagged))]));
    checks(&run.sent[1][0]);
    assert_eq!(run.sent[2], [tagged]);
}

#[test]
fn ipv6_addresses_keep_checksums_right() {
    let addresses: [[u8; 16]; 2] = [[0x20; 16], [0x21; 16]];
    let mut datagram = b"\x03\xe8\x07\xd0\x00\x0b\x00\x00odd".to_vec();
    let pseudo = Pseudo::V6 { src: addresses[0].into(), dst: addresses[1].into() };
    let check = pseudo.checksum(Protocol::UDP, &datagram);
    datagram[6..8].copy_from_slice(&check.to_be_bytes());
    let head = [0x60, 0, 0, 0, 0, 11, 17, 64];
    let frame = [&mac(2)[..], &mac(1), &[0x86, 0xdd], &head, &addresses.concat(), &datagram].concat();
    checksums_hold(&frame);
    let rules = "udp6 actions=set_field:2001:db8::7->ipv6_src,set_field:2001:db8::/32->ipv6_dst,mod_nw_tos:8,dec_ttl,wan";
    let run = run("", rules, lan(vec![burst(0, &[frame])]));
    checksums_hold(&run.sent[1][0]);
    let key = keys(&run, 1)[0];
    assert_eq!(key.get(Field::Ipv6Source), 0x2001_0db8_u128 << 96 | 7);
    assert_eq!(key.get(Field::Ipv6Destination) >> 96, 0x2001_0db8);
    assert_eq!(key.get(Field::Ipv6Destination) as u8, 0x21);
    assert_eq!((key.get(Field::Tos), run.sent[1][0][14 + 7]), (8, 63));
}

#[test]
fn drops_of_rules_have_names() {
    let mut dying = frame(1, 5, None, "one hop");
    dying[14 + 8] = 1;
    ipv4::fill_checksum(&mut dying[14..34]);
    let stacked =
        [&frame(1, 6, Some(10), "")[..12], &[0x88, 0xa8, 0, 9], &frame(1, 6, Some(10), "")[12..]].concat();
    let rules = "priority=9,ip,nw_dst=10.0.0.2 actions=drop\n\
                 priority=9,ip,nw_dst=10.0.0.3 actions=goto_table:1\n\
                 priority=9,ip,nw_dst=10.0.0.4 actions=lan\n\
                 priority=9,ip,nw_dst=10.0.0.5 actions=dec_ttl,wan\n\
                 priority=9,dl_vlan=9 actions=pop_vlan,goto_table:1\n\
                 priority=9,ip,nw_dst=10.0.0.8 actions=17\n";
    let to = |n: u8| frame(1, n, None, "x");
    let frames = [to(2), to(3), to(4), dying, stacked, to(8)];
    let run = run("", rules, lan(vec![burst(0, &frames)]));
    assert_eq!(sent(&run), [0, 0, 0]);
    for (name, count) in
        [("rule-drop", 1), ("no-rule", 1), ("output-nowhere", 2), ("ttl-expired", 1), ("vlan-stacked", 1)]
    {
        assert_eq!(run.dropped(name), count, "{name}: {:?}", run.drops());
    }
}

#[test]
fn groups_copy_or_choose_and_meters_hold_back() {
    let rules = "group_id=1,type=all,bucket=mod_vlan_vid:5,wan,bucket=dmz\n\
                 group_id=2,type=select,bucket=wan,bucket=dmz\n\
                 meter=3,pktps,band=type=drop,rate=1,burst_size=10\n\
                 priority=9,udp,nw_dst=10.0.0.2 actions=group:1\n\
                 priority=9,udp,nw_dst=10.0.0.3 actions=meter:3,wan\n\
                 priority=1,udp actions=group:2\n";
    let run = run("", rules, lan(vec![burst(0, &[frame(1, 2, None, "both")])]));
    assert_eq!(sent(&run), [0, 1, 1]);
    assert_eq!(keys(&run, 1)[0].get(Field::Vlan), 0x1005);
    assert_eq!(run.sent[2][0], frame(1, 2, None, "both"));

    let flows: Vec<Vec<u8>> = (10..210).map(|n| frame(1, n as u8, None, "either")).collect();
    let either = self::run("", rules, lan(vec![burst(0, &flows)]));
    let [_, wan, dmz] = sent(&either);
    assert!(wan + dmz == 200 && wan > 60 && dmz > 60, "{wan} and {dmz}");
    assert_eq!(either.snapshot.ledger().made, 0, "who is sent once is not copied");

    let metered: Vec<Vec<u8>> = (0..50).map(|_| frame(1, 3, None, "many")).collect();
    let metered = self::run("", rules, lan(vec![burst(0, &metered)]));
    assert_eq!((sent(&metered)[1], metered.dropped("metered")), (10, 40));

    // Packets of one burst have one time: a meter that says no burst does not pass only the first of them.
    let rules = "meter=3,pktps,band=type=drop,rate=100000\nudp actions=meter:3,wan\n";
    let burst = burst(0, &(0..32).map(|_| frame(1, 3, None, "at once")).collect::<Vec<_>>());
    assert_eq!(sent(&self::run("", rules, lan(vec![burst]))), [0, 32, 0]);
}

#[test]
fn buckets_get_the_packet_as_it_came() {
    // lan and dmz are in VLAN 10 without a tag, wan shows it.
    let vlans = "[vlans.lan]\naccess = 10\n[vlans.wan]\ntrunk = [10, 20]\nnative = 20\n";
    let known = || vec![burst(0, &[broadcast(2, Some(10))])];
    let plain = || vec![burst(0, &[]), burst(1, &[frame(1, 2, None, "from lan")])];
    for rules in [
        "group_id=1,type=all,bucket=normal,bucket=dmz\npriority=9,in_port=lan,udp actions=group:1\npriority=1 actions=normal\n",
        "group_id=1,type=all,bucket=normal,bucket=drop,bucket=dmz,bucket=drop\npriority=9,in_port=lan,udp actions=group:1\npriority=1 actions=normal\n",
        "priority=9,in_port=lan,udp actions=normal,dmz\npriority=1 actions=normal\n",
    ] {
        let run = run(vlans, rules, [plain(), known(), vec![]]);
        assert_eq!(run.sent[1], [frame(1, 2, Some(10), "from lan")], "{rules}");
        assert_eq!(run.sent[2].last(), Some(&frame(1, 2, None, "from lan")), "{rules}");
    }
    // From the trunk to lan, twice: the second bucket knows the VLAN still, and not the trunk's native one.
    let vlans =
        "[vlans.lan]\naccess = 10\n[vlans.wan]\ntrunk = [10, 20]\nnative = 20\n[vlans.dmz]\naccess = 20\n";
    let rules = "group_id=1,type=all,bucket=flood,bucket=normal\nactions=group:1\n";
    let run = run(vlans, rules, [vec![], known(), vec![]]);
    assert_eq!((sent(&run), &run.sent[0][0]), ([2, 0, 0], &broadcast(2, None)));
}

/// The words of a packet of [`frame`] that comes in by lan.
fn words(from: u8, to: [u8; 6], vlan: Option<u16>) -> String {
    let tag = vlan.map(|vlan| format!(",dl_vlan={vlan}")).unwrap_or_default();
    let (source, destination) = (MacAddr(mac(from)), MacAddr(to));
    let ports = "tp_src=1000,tp_dst=2000";
    format!(
        "in_port=lan,udp,dl_src={source},dl_dst={destination},nw_src=10.0.0.{from},nw_dst=10.0.0.2,{ports}{tag}"
    )
}

#[test]
fn a_trace_tells_what_happens() {
    let vlans =
        "[vlans.lan]\ntrunk = [10, 20]\nnative = 10\n[vlans.wan]\naccess = 20\n[vlans.dmz]\naccess = 30\n";
    let (known, reserved, nobody) = (mac(2), [1, 0x80, 0xc2, 0, 0, 0], mac(7));
    let group = "group_id=1,type=all,bucket=mod_vlan_vid:20,normal,bucket=output:9\n\
                 group_id=2,type=all,bucket=mod_vlan_vid:20,bucket=drop\n";
    // Actions, whom to, with which tag; the last line of the trace's actions.
    for (actions, to, tag, last) in [
        ("normal", known, Some(20), "bridge: VLAN 20: the station is behind wan"),
        ("mod_vlan_vid:20,normal", known, None, "bridge: VLAN 20: the station is behind wan"),
        ("mod_vlan_vid:20,normal", nobody, None, "bridge: VLAN 20, nobody knows the station: flooded by wan"),
        ("mod_vlan_vid:20,flood", known, Some(10), "bridge: VLAN 20: flooded by wan"),
        (
            "push_vlan:0x8100,mod_vlan_vid:20,pop_vlan,flood",
            known,
            Some(20),
            "bridge: VLAN 20: flooded by wan",
        ),
        ("pop_vlan,flood", known, Some(20), "bridge: VLAN 10: dropped: output-nowhere"),
        (
            "mod_vlan_vid:20,mod_dl_dst:02:00:00:00:00:01,normal",
            known,
            None,
            "bridge: VLAN 20: dropped: bridge-same-port",
        ),
        (
            "mod_vlan_vid:20,mod_dl_dst:02:00:00:00:00:05,normal",
            known,
            None,
            "bridge: VLAN 20: dropped: bridge-same-port",
        ),
        ("mod_dl_src:03:00:00:00:00:05,normal", known, None, "bridge: VLAN 10: dropped: ethernet-bad-source"),
        ("normal", reserved, Some(20), "bridge: VLAN 20: dropped: bridge-reserved"),
        (
            "normal",
            known,
            Some(30),
            "bridge: the port is not in its VLAN (or in_port is missing): dropped: vlan-refused",
        ),
        ("output:lan", known, None, "dropped: output-nowhere"),
        ("output:9", known, None, "dropped: output-nowhere"),
        ("in_port", known, None, "in_port"),
        ("all", known, None, "all"),
        ("output:9,wan", known, None, "output:wan"),
        ("wan,output:9", known, None, "dropped: output-nowhere"),
        ("lan,goto_table:1", known, None, "dropped: output-nowhere"),
        ("wan,goto_table:1", known, None, "output:wan"),
        ("goto_table:1", known, None, ""),
        ("mod_vlan_vid:20", known, None, "mod_vlan_vid:20"),
        ("group:1", known, None, "bucket: dropped: output-nowhere"),
        (
            "push_vlan:0x8100,mod_vlan_vid:20,normal",
            known,
            Some(10),
            "bridge: VLAN 20, where the second tag would be the first: dropped: vlan-refused",
        ),
        ("push_vlan:0x8100,mod_vlan_vid:20,flood", known, Some(10), "bridge: VLAN 20: dropped: vlan-refused"),
        (
            "push_vlan:0x8100,flood",
            known,
            Some(20),
            "bridge: there is another tag behind one of number 0: dropped: vlan-refused",
        ),
        ("group:2", known, None, "bucket: mod_vlan_vid:20"),
    ] {
        let rules =
            format!("{group}priority=9,udp,nw_dst=10.0.0.2 actions={actions}\npriority=1 actions=normal\n");
        let told = format!("{actions} to {to:02x?} with {tag:?}");
        // Station 2 is behind wan, station 5 behind lan, both in VLAN 20.
        let hello = vec![burst(0, &[broadcast(5, Some(20))])];
        let mut asked = frame(1, 2, tag, "where to?");
        asked[..6].copy_from_slice(&to);
        let input = |asked: Vec<Vec<u8>>| {
            [[hello.clone(), vec![burst(2, &asked)]].concat(), vec![burst(0, &[broadcast(2, None)])], vec![]]
        };
        let without = run(vlans, &rules, input(vec![]));
        let mut with = run(vlans, &rules, input(vec![asked]));
        with.control.poll(START + 2 * SECOND);
        let traced = with.control.trace(&words(1, to, tag)).unwrap();
        assert_eq!(traced.actions.last().map_or("", String::as_str), last, "{told}");
        // And that is what has become of it.
        let total = |run: &Run| sent(run).into_iter().sum::<usize>();
        let drops = with.drops();
        let happened = match (total(&with) > total(&without), drops.first()) {
            (true, _) => "sent".to_owned(),
            (false, Some((why, _))) => format!("dropped: {why}"),
            (false, None) => panic!("{told}: it is nowhere"),
        };
        assert_eq!(traced.end.trim_end_matches("; then cut-short: no-rule"), happened, "{told}: {drops:?}");
    }
    // A tag behind the first is in no key.
    let rules = "actions=pop_vlan,normal\n";
    let control = run(vlans, rules, lan(vec![])).control;
    let traced = control.trace("in_port=lan,dl_vlan=20,dl_type=0x8100").unwrap();
    assert_eq!(traced.end, "not known: its VLAN is that of a tag behind the first");
}

#[test]
fn a_traces_megaflow_leaves_no_bit_out() {
    let rules = "priority=10,tcp,nw_dst=10.1.2.0/24,tp_dst=80 actions=wan\n";
    // UDP's number has a bit that TCP's has not.
    let megaflow = "nw_proto=0x10/0x10";
    for classifier in ["tuple-merge", "tuple-space"] {
        let section = format!("classifier = \"{classifier}\"\n");
        let control = run(&section, rules, lan(vec![])).control;
        let traced = control.trace("in_port=lan,udp,nw_dst=10.1.2.3,tp_dst=80").unwrap();
        assert_eq!((&*traced.end, &*traced.megaflow), ("dropped: no-rule", megaflow));
        assert_eq!(traced.steps[0].looked, megaflow);
    }
}

#[test]
fn groups_and_meters_go_with_their_rules() {
    let rules = "group_id=7,type=all,bucket=wan\nmeter=1,pktps,band=type=drop,rate=5\n\
                 priority=3 actions=meter:1,group:7\npriority=2 actions=meter:1,wan\npriority=1 actions=normal\n";
    let mut control = run("", rules, lan(vec![])).control;
    assert_eq!(control.delete_group(7).unwrap(), 1);
    assert_eq!(control.delete_meter(1).unwrap(), 1);
    assert_eq!((control.rules(), control.groups().0.len(), control.groups().1.len()), (1, 0, 0));
    let errors = [control.delete_group(7), control.delete_meter(1)].map(|gone| gone.unwrap_err().to_string());
    let told = "there is none: `tidemill switch groups` shows those that there are";
    assert_eq!(errors, [format!("group 7: {told}"), format!("meter 1: {told}")]);
}

#[test]
fn what_is_lost_for_want_of_frames_is_no_rules_doing() {
    // The burst has all frames: the copy that would be sent cannot be made, and what is left of the packet goes nowhere.
    let frames: Vec<Vec<u8>> = (0..32).map(|n| frame(1, n, None, "the last frame")).collect();
    let run = run_with(32, "", "udp actions=wan,mod_vlan_vid:5\n", lan(vec![burst(0, &frames)]));
    let (sent, lost) = (sent(&run)[1] as u64, run.control.counters().get(Counter::CopiesLost));
    assert!(lost > 0 && sent + lost == 32, "{sent} and {lost}");
    assert_eq!(run.drops(), [("no-frames".to_owned(), lost)]);
}

#[test]
fn sizes_that_cannot_be_are_told_by_their_keys() {
    let names = PORTS.map(str::to_owned);
    for key in ["exact", "megaflows"] {
        let section = toml::from_str(&format!("{key} = 4000000000000000")).unwrap();
        let error = SwitchControl::new(&section, &names, 1, &Domain::new(), 99).err().unwrap().to_string();
        assert!(error.starts_with(&format!("switch.{key}: ")), "{error}");
    }
}

#[test]
fn names_of_ports_that_rules_would_read_otherwise_are_refused() {
    let made = |name: &str| {
        let names = ["lan", name].map(str::to_owned);
        SwitchControl::new(&toml::from_str("").unwrap(), &names, 1, &Domain::new(), 99).map(|_| ())
    };
    for name in ["normal", "in_port", "flood", "drop", "group", "3", "", "a b", "a,b", "a:b", "a(b"] {
        let error = made(name).unwrap_err().to_string();
        assert!(error.starts_with("switch.ports: ") && error.contains(&format!("{name:?}")), "{error}");
    }
    // Its own number says the same.
    for name in ["wan", "eth0.5", "p-2", "2"] {
        made(name).unwrap();
    }
}

#[test]
fn rules_count_time_out_and_are_explained() {
    let rules = "cookie=0x7,priority=9,idle_timeout=10,udp,nw_dst=10.0.0.2 actions=mod_vlan_vid:10,goto_table:1\n\
                 table=1,dl_vlan=10 actions=wan\n";
    let frames: Vec<Vec<u8>> = (0..5).map(|_| frame(1, 2, None, "count me")).collect();
    let mut run = run("", rules, lan(vec![burst(0, &frames)]));
    assert_eq!(run.control.flows("cookie=7/-1").unwrap().len(), 1);
    let flows = run.control.flows("cookie=7/-2").map(|_| ()).unwrap_err().to_string();
    assert!(flows.starts_with("the filter: line 1, column 10: cookie"), "{flows}");
    let flows = run.control.flows("cookie=7/0xff").unwrap();
    let bytes = 5 * frames[0].len() as u64;
    assert_eq!((flows.len(), flows[0].hits.packets, flows[0].hits.bytes), (1, 5, bytes));
    assert_eq!(run.control.flows("").unwrap().len(), 2);
    let traced = run.control.trace("in_port=lan,udp,nw_dst=10.0.0.2,tp_dst=53").unwrap();
    assert_eq!(traced.steps.len(), 2);
    assert_eq!(traced.steps[1].rule.as_deref(), Some("table=1,priority=32768,dl_vlan=10 actions=output:wan"));
    assert_eq!((&*traced.end, traced.actions.join(" ")), ("sent", "mod_vlan_vid:10 output:wan".to_owned()));
    assert!(!traced.megaflow.contains("vlan") && !traced.megaflow.contains("tp_dst"), "{}", traced.megaflow);
    assert_eq!(run.control.trace("arp").unwrap().end, "dropped: no-rule");
    // Five packets have come: it goes ten seconds after they were noticed.
    assert!(!run.control.poll(START + SECOND));
    assert!(!run.control.poll(START + 10 * SECOND));
    assert!(run.control.poll(START + 12 * SECOND));
    assert_eq!(run.control.rules(), 1);
    assert_eq!(run.control.delete("table=1", false).unwrap(), 1);
    assert_eq!(run.control.rules(), 0);
    assert_eq!(PORTS.len(), run.control.ports().0.len());
}

#[test]
fn a_live_rule_has_all_of_its_time() {
    const MS: u64 = 1_000_000;
    let mut run = run("", "priority=1 actions=drop", lan(vec![]));
    assert!(!run.control.poll(START + SECOND));
    // It comes between two rounds, just before the second one.
    run.control.load("hard_timeout=1,arp actions=drop".as_bytes(), "test", false).unwrap();
    assert_eq!(run.control.flows("arp").unwrap()[0].duration_ns, 0);
    assert!(!run.control.poll(START + SECOND + 200 * MS));
    assert!(!run.control.poll(START + 2 * SECOND + 190 * MS));
    assert_eq!(run.control.flows("arp").unwrap()[0].duration_ns, 990 * MS);
    assert!(run.control.poll(START + 2 * SECOND + 440 * MS));
    assert_eq!(run.control.rules(), 1);
}

/// A flood has taken all masks: who comes a second later is decided by megaflows within a second.
#[test]
fn a_floods_masks_are_others_within_a_second() {
    const MS: u64 = 1_000_000;
    let network = |length: u32| std::net::Ipv4Addr::from_bits(1_u32.rotate_right(length));
    let rules: Vec<String> = (1..31)
        .map(|length| format!("priority={},ip,nw_src={}/{length} actions=wan", 90 - length, network(length)))
        .collect();
    let packet = |length: u32, n: usize| {
        let mut bytes = frame(1, 2, None, "");
        bytes[26..30].copy_from_slice(&network(length).octets());
        // Each has a source port of its own.
        bytes[34..36].copy_from_slice(&(n as u16).to_be_bytes());
        bytes
    };
    let burst = |ms: u64, lengths: std::ops::Range<u32>| -> Vec<Frame> {
        let packets = (0..64).zip(lengths.cycle()).map(|(n, length)| packet(length, (ms as usize) << 6 | n));
        packets.map(|bytes| Frame::at(START + ms * MS, bytes)).collect()
    };
    let flood = (0..10).map(|n| burst(10 * n, 1..25));
    let others = (0..100).map(|n| burst(1000 + 20 * n, 25..31));
    let section = "masks = 16\nexact = 0\nsignatures = 0\n";
    let run = run(section, &(rules.join("\n") + "\n"), lan(flood.chain(others).collect()));
    let counters = run.control.counters();
    let [found, missed] = [Counter::MegaflowHits, Counter::Misses].map(|counter| counters.get(counter));
    assert_eq!(found + missed, 110 * 64);
    // All of the flood and a second of the others at most.
    assert!(missed < (10 + 50) * 64, "{missed} of {}", found + missed);
    assert_eq!(sent(&run), [0, 110 * 64, 0]);
}

/// Three workers, each with its queue of every port, while rules change: every packet meets the rules of one version in both tables, whatever its worker.
#[test]
fn workers_share_rules_and_stations_and_nothing_else() {
    const WORKERS: usize = 3;
    const BURSTS: usize = 60;
    // What the first table writes the second one's rule must agree with: 4 goes by wan, 8 by dmz.
    let version = |tos: u8, port: &str| {
        format!(
            "table=0,priority=10,ip actions=mod_nw_tos:{tos},goto_table:1\ntable=0,priority=1 actions=normal\n\
             table=1,priority=10,ip actions={port}\n"
        )
    };
    let versions = [version(4, "wan"), version(8, "dmz")];
    let section = toml::from_str("exact = 31\nmegaflows = 62\nsignatures = 16").unwrap();
    let (domain, names) = (Domain::new(), PORTS.map(str::to_owned));
    let mut control = SwitchControl::new(&section, &names, WORKERS, &domain, 3).unwrap();
    control.load(versions[0].as_bytes(), "test", true).unwrap();
    // Stations are heard by `normal`: ARP-like frames of another ethertype, from a station of each worker.
    let frames = |worker: usize| -> Vec<Vec<Frame>> {
        let one = |burst_number: usize| {
            let mut list: Vec<Vec<u8>> =
                (0..31).map(|i| frame(10 + i, 2, None, &format!("{worker} {burst_number} {i}"))).collect();
            let mut hello = [mac(2), mac(200 + worker as u8)].concat();
            hello.extend([0x88, 0xb5, 1, 2, 3, 4]);
            list.push(hello);
            burst(0, &list)
        };
        (0..BURSTS).map(one).collect()
    };
    let mut outputs: Vec<Sent> = Vec::new();
    let queues = PORTS.iter().enumerate().map(|(number, name)| {
        let bursts = |worker: usize| if number == 0 { frames(worker) } else { Vec::new() };
        let first = MemoryPort::new(name, bursts(0));
        let sent = first.sent();
        let others = (1..WORKERS).map(|worker| MemoryPort::new(name, bursts(worker)).sending_to(&sent));
        let queues: Vec<Box<dyn Port>> =
            std::iter::once(first).chain(others).map(|port| Box::new(port) as Box<dyn Port>).collect();
        outputs.push(sent);
        queues
    });
    let queues: Vec<Vec<Box<dyn Port>>> = queues.collect();
    let memory = Memory::new(4096, 2048).unwrap();
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 4096 / WORKERS,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let built = graph(&control).build().unwrap();
    let mut turn = 0;
    let outcome = Engine::new(built, WORKERS, queues, &memory, &domain, options).unwrap().run(|_| {
        turn += 1;
        control.load(versions[turn % 2].as_bytes(), "test", true).unwrap();
    });
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let (ledger, pool) = (outcome.snapshot.ledger(), &outcome.snapshot.pool);
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home");
    let all = (WORKERS * BURSTS * 32) as u64;
    assert_eq!((ledger.received, ledger.dropped_total()), (all, 0));
    let mut by_port = [0, 0];
    for (output, tos) in [(1, 4), (2, 8)] {
        for bytes in outputs[output].frames().iter().filter(|bytes| bytes[12..14] == [8, 0]) {
            assert_eq!(bytes[15], tos, "a packet of two versions of the rules: {bytes:02x?}");
            checksums_hold(bytes);
            by_port[output - 1] += 1;
        }
    }
    assert_eq!(by_port.iter().sum::<usize>(), WORKERS * BURSTS * 31);
    assert!(turn > 1 && by_port[1] > 0, "{turn} changes, {by_port:?}");
    let counters = control.counters();
    let decided = [Counter::ExactHits, Counter::MegaflowHits, Counter::Misses].map(|c| counters.get(c));
    assert_eq!(decided.iter().sum::<u64>(), all, "{counters:?}");
    // One table of stations for all workers; each of theirs was new to it once.
    let heard: Vec<u64> = control.stations().iter().map(|(station, _)| station.mac & 0xff).collect();
    assert_eq!((heard.len(), counters.get(Counter::StationsNew)), (WORKERS, WORKERS as u64), "{heard:?}");
}
