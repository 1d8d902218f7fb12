//! What stops a packet on its way, and what is counted and timed by then.

use crate::common::{PORTS, SECOND, run, run_between};
use crate::{burst, frame, lan, mac, sent, words};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::memory::Frame;
use tidemill_switch::{Counter, SwitchControl};
use tidemill_wire::{Protocol, ipv4};

#[test]
fn time_that_begins_at_0_is_a_time() {
    // As a capture without times has it.
    let rules = "meter=3,pktps,band=type=drop,rate=1,burst_size=10\nudp actions=meter:3,wan\n";
    let packets = (0..50).map(|_| Frame::at(0, frame(1, 3, None, "many"))).collect();
    let metered = run("", rules, lan(vec![packets]));
    assert_eq!((sent(&metered)[1], metered.dropped("metered")), (10, 40));

    let section = toml::from_str("").unwrap();
    let names = PORTS.map(str::to_owned);
    let mut control = SwitchControl::new(&section, &names, 1, &Domain::new(), 99).unwrap();
    control.load("hard_timeout=10,arp actions=drop".as_bytes(), "test", true).unwrap();
    assert!(!control.poll(0));
    assert!(!control.poll(5 * SECOND));
    // Another rule is no reason for the first one's time to begin anew.
    control.load("ip actions=drop".as_bytes(), "test", false).unwrap();
    assert!(!control.poll(6 * SECOND));
    assert_eq!(control.flows("arp").unwrap()[0].duration_ns, 6 * SECOND);
    assert!(control.poll(10 * SECOND));
    assert_eq!(control.rules(), 1);
}

#[test]
fn what_is_stopped_counts_in_no_later_table() {
    let mut dying = frame(1, 2, None, "one hop");
    dying[14 + 8] = 1;
    ipv4::fill_checksum(&mut dying[14..34]);
    let frames = [vec![dying; 3], vec![frame(1, 2, None, "many"); 47]].concat();
    for (rules, counts, dropped) in [
        (
            "meter=3,pktps,band=type=drop,rate=1,burst_size=10\n\
             udp actions=meter:3,goto_table:1\ntable=1,udp actions=wan\n",
            [50, 10],
            ("metered", 40),
        ),
        ("udp actions=dec_ttl,goto_table:1\ntable=1,udp actions=wan\n", [50, 47], ("ttl-expired", 3)),
        ("udp actions=mod_vlan_vid:5,goto_table:1\ntable=1,udp actions=drop\n", [50, 50], ("rule-drop", 50)),
    ] {
        let mut run = run("", rules, lan(vec![burst(0, &frames)]));
        let flows = run.control.flows("").unwrap();
        let counted: Vec<u64> = flows.iter().map(|flow| flow.hits.packets).collect();
        assert_eq!((counted, run.dropped(dropped.0)), (counts.to_vec(), dropped.1), "{rules}");
        let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
        assert_eq!(flows[0].hits.bytes, bytes, "{rules}");
    }
}

#[test]
fn a_port_that_a_packet_has_not_is_not_set() {
    let packet = |protocol: Protocol, fragment: [u8; 2], above: &[u8]| {
        let repr = ipv4::Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol, above.len());
        let mut header = vec![0; repr.buffer_len()];
        repr.emit(&mut header).unwrap();
        header[6..8].copy_from_slice(&fragment);
        ipv4::fill_checksum(&mut header);
        [&mac(2)[..], &mac(1), &[8, 0], &header, above].concat()
    };
    let tcp = [&[0, 80, 0, 22][..], &[0; 8], &[0x50, 2, 4, 0], &[0; 8]].concat();
    let rules = "group_id=1,type=all,bucket=mod_tp_dst:80,wan\n\
                 priority=9,tcp actions=mod_tp_dst:80,goto_table:1\n\
                 priority=9,icmp actions=group:1\n\
                 table=1,priority=9,tcp,tp_dst=80 actions=wan\n\
                 table=1,priority=1 actions=dmz\n";
    // What leaves by wan and by dmz; why it is dropped.
    for (what, packet, left, dropped) in [
        ("whole", packet(Protocol::TCP, [0, 0], &tcp), [1, 0], ""),
        ("cut", packet(Protocol::TCP, [0, 0], &tcp[..4]), [0, 0], "transport-header-cut"),
        ("a first fragment", packet(Protocol::TCP, [0x20, 0], &tcp[..8]), [0, 0], "first-fragment-cut"),
        ("a later fragment", packet(Protocol::TCP, [0, 1], &tcp), [0, 1], ""),
        ("no ports at all", packet(Protocol::ICMP, [0, 0], &[8, 0, 0, 0, 0, 0, 0, 0]), [1, 0], ""),
    ] {
        let run = run("", rules, lan(vec![burst(0, &[packet])]));
        let [_, wan, dmz] = sent(&run);
        let drops = run.drops();
        let why = drops.first().map_or("", |(name, _)| name.as_str());
        assert_eq!(([wan, dmz], why), (left, dropped), "{what}");
    }
}

#[test]
fn what_goes_out_by_all_ports_but_the_only_one_goes_nowhere() {
    let of = |names: &[&str], action: &str| {
        let packets = vec![burst(0, &[frame(1, 2, None, "to whom?")])];
        let mut inputs = vec![Vec::new(); names.len()];
        inputs[0] = packets;
        let rules = format!("udp actions={action}\n");
        let run = run_between(names, 2048, "", &rules, inputs);
        let traced = run.control.trace("in_port=lan,udp,nw_dst=10.0.0.2").unwrap();
        (run.drops(), traced.end)
    };
    for action in ["all", "flood"] {
        let (drops, told) = of(&["lan"], action);
        assert_eq!(drops, [("output-nowhere".to_owned(), 1)], "{action}");
        assert_eq!(told, "dropped: output-nowhere", "{action}");
        assert_eq!(of(&["lan", "wan"], action), (vec![], "sent".to_owned()), "{action}");
    }
}

#[test]
fn what_left_before_its_way_ended_early_is_cut_short_and_not_dropped() {
    // Sixteen rules, and one more.
    let deep: String = (1..16).map(|n| format!("table={n} actions=goto_table:{}\n", n + 1)).collect();
    let deep = format!("goto_table:1\n{deep}table=16 actions=dmz\n");
    let stacked = "push_vlan:0x8100,goto_table:1\ntable=1 actions=dmz\n".to_owned();
    let missed = "goto_table:1\ntable=1,tcp actions=dmz\n".to_owned();
    for (rest, why) in [(&missed, "no-rule"), (&deep, "rules-too-deep"), (&stacked, "vlan-stacked")] {
        // What was sent, without and with an edit behind it: as the packet itself, and as a copy.
        for (first, leave) in
            [("wan,", true), ("wan,mod_vlan_pcp:3,", true), ("mod_vlan_pcp:3,", false), ("", false)]
        {
            let rules = format!("udp actions={first}{rest}");
            let frames = vec![frame(1, 2, Some(10), "how far?"); 3];
            let run = run("tables = 20\n", &rules, lan(vec![burst(0, &frames)]));
            let [_, wan, dmz] = sent(&run);
            let (left, dropped) = if leave { (3, vec![]) } else { (0, vec![(why.to_owned(), 3)]) };
            assert_eq!((wan, dmz, run.drops()), (left, 0, dropped), "{rules}");
            assert_eq!(run.control.counters().get(Counter::CutShort), left as u64, "{rules}");
            let told = run.control.trace(&words(1, mac(2), Some(10))).unwrap().end;
            let expected =
                if leave { format!("sent; then cut-short: {why}") } else { format!("dropped: {why}") };
            assert_eq!(told, expected, "{rules}");
        }
    }
    // What a meter stops, likewise.
    for (edit, copies) in [("", 1), ("mod_vlan_pcp:3,", 3)] {
        let meter = "meter=3,pktps,band=type=drop,rate=1,burst_size=1\n";
        let rules = format!("{meter}udp actions=wan,{edit}meter:3,dmz\n");
        let run = run("", &rules, lan(vec![burst(0, &vec![frame(1, 2, Some(10), "many"); 3])]));
        assert_eq!((sent(&run), run.drops()), ([0, 3, 1], vec![]), "{rules}");
        let counters = run.control.counters();
        let counted = [Counter::CutShort, Counter::Copies].map(|counter| counters.get(counter));
        assert_eq!(counted, [2, copies], "{rules}");
    }
}
