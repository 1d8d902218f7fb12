//! What is read, what is refused, and that what is shown is read as the same.

use super::*;
use crate::pipeline::{Action, GroupKind, MeterUnit, Output};
use crate::{Key, Mask};

fn ports() -> PortNames {
    PortNames(["lan", "wan", "dmz"].map(str::to_owned).to_vec())
}

fn flow(text: &str) -> FlowSpec {
    match read_flow(text, &ports()) {
        Ok(Item::Flow(spec)) => *spec,
        other => panic!("{text}: {other:?}"),
    }
}

fn error(text: &str) -> String {
    match read_flow(text, &ports()) {
        Err(error) => error.to_string(),
        Ok(item) => panic!("{text}: {item:?}"),
    }
}

#[test]
fn a_rule_is_read_as_it_says() {
    let spec = flow(
        "cookie=0x2a, table=3, priority=100, idle_timeout=30, hard_timeout=60, in_port=wan, tcp, nw_dst=192.0.2.7/24, \
         tp_dst=8000-8999, tcp_flags=+syn-ack actions=meter:1, mod_vlan_vid:20, output:1, dec_ttl, lan, goto_table:4",
    );
    let expected = Match::any()
        .exact(Field::InPort, 2)
        .exact(Field::EtherType, 0x0800)
        .exact(Field::Protocol, 6)
        .prefix(Field::Ipv4Destination, 0xc000_0200, 24)
        .masked(Field::TcpFlags, 0x002, 0x012)
        .port_range(Side::Destination, 8000..=8999);
    assert_eq!(spec.matches, expected);
    assert_eq!((spec.table, spec.priority, spec.cookie, spec.idle_s, spec.hard_s), (3, 100, 42, 30, 60));
    let one = Action::Output(Output::Port(1));
    let vlan = Action::Set { field: Field::Vlan, value: 0x1014, mask: 0x1fff };
    assert_eq!(spec.instructions.actions, [Action::Meter(1), vlan, one, Action::DecTtl, one]);
    assert_eq!(spec.instructions.goto, Some(4));
    let plain = flow("actions=drop");
    assert_eq!((plain.matches, plain.priority, plain.table), (Match::any(), 32_768, 0));
    assert_eq!(plain.instructions, Instructions::default());
}

#[test]
fn names_of_one_thing_are_one_match() {
    for (one, other) in [
        ("tcp", "dl_type=0x800,nw_proto=6"),
        ("tcp", "nw_proto=6,ip"),
        ("ip,nw_src=10.1.2.3/8", "ip_src=10.0.0.0/255.0.0.0 eth_type=2048"),
        ("arp,nw_src=10.0.0.1,arp_op=1", "arp,arp_spa=10.0.0.1,nw_proto=1"),
        ("dl_vlan=5,dl_vlan_pcp=3", "vlan_tci=0x7005"),
        ("dl_vlan=5", "vlan_vid=0x1005"),
        ("vlan_vid=0/0x1000", "dl_vlan=0xffff"),
        ("ip,nw_tos=184", "ip,ip_dscp=46"),
        ("udp6,tp_src=53-53", "udp6,udp_src=0x35"),
        ("tcp,tcp_flags=+syn-ack", "tcp,tcp_flags=0x2/0x12"),
        ("in_port=1", "in_port=lan"),
        ("icmp,icmp_type=8", "icmp,icmp_type=0x8"),
    ] {
        let [one, other] = [one, other].map(|text| flow(&format!("{text} actions=drop")));
        assert_eq!(one, other);
    }
    for (one, other) in [
        ("mod_nw_dst:10.0.0.1", "set_field:10.0.0.1->ip_dst"),
        ("mod_vlan_vid:10", "set_field:4106->vlan_vid"),
        ("strip_vlan", "pop_vlan"),
        ("write_metadata:7/0xf", "set_field:7/0xf->metadata"),
        ("mod_tp_dst:80", "set_field:80->tcp_dst"),
        ("goto_table:2", "resubmit(,2)"),
        ("2", "output:wan"),
        ("NORMAL", "normal"),
        ("IN_PORT", "output:in_port"),
        ("mod_nw_tos:184", "set_field:46->ip_dscp"),
    ] {
        let [one, other] = [one, other].map(|text| flow(&format!("tcp actions={text}")));
        assert_eq!(one, other);
    }
}

#[test]
fn what_is_shown_is_read_as_the_same() {
    for text in [
        "table=0,priority=32768 actions=drop",
        "cookie=0x2a,table=3,idle_timeout=30,hard_timeout=60,priority=100,in_port=wan,tcp,nw_dst=192.0.2.0/24,tcp_flags=+syn-ack,tp_dst=8000-8999 actions=meter:1,mod_vlan_vid:20,output:lan,goto_table:4",
        "table=1,priority=1,dl_type=0x88cc,dl_dst=01:80:c2:00:00:0e actions=lan",
        "table=1,priority=1,dl_vlan=0xffff,dl_src=02:00:00:00:00:00/ff:00:00:00:00:00 actions=push_vlan:0x88a8,mod_vlan_vid:7,mod_vlan_pcp:3,flood",
        "table=0,priority=9,ipv6,nw_proto=89,nw_tos=184,nw_ecn=1,ipv6_src=2001:db8::/32,ipv6_dst=ff02::5,ip_frag=not_later actions=all,in_port",
        "table=0,priority=9,arp,arp_op=1,arp_spa=10.0.0.0/8,arp_tpa=10.0.0.1 actions=normal",
        "table=0,priority=9,icmp6,icmpv6_type=135,icmpv6_code=0 actions=output:dmz",
        "table=0,priority=9,ip,nw_src=10.0.0.1/255.0.255.0,ip_frag=later,metadata=0x5/0xff actions=set_field:10.0.0.1->nw_src,mod_nw_tos:4,mod_nw_ecn:2,dec_ttl,group:7",
        "table=0,priority=9,vlan_tci=0x1000/0x1000,udp,tp_src=0x10/0xfff0 actions=set_field:02:00:00:00:00:09->dl_dst,set_field:53->tp_src,set_field:0x7/0xff->metadata,pop_vlan,output:9",
    ] {
        let spec = flow(text);
        let shown = show_flow(&spec, &ports());
        assert_eq!(flow(&shown), spec, "{text}: {shown}");
        // And words stand in one order.
        assert_eq!(show_flow(&flow(&shown), &ports()), shown);
    }
    let dumped = " cookie=0x0, duration=12.3s, table=0, n_packets=7, n_bytes=420, idle_age=3, priority=5,ip actions=drop";
    assert_eq!(flow(dumped), flow("priority=5,ip,actions=drop"));
}

/// Reads what a trace shows back: the values of the bits that it names, and the bits.
fn looked(text: &str) -> (Key, Mask) {
    use super::fields::{Form, field, parse, shorthand};
    let ports = ports();
    let source = Source::new(text, 1, &ports);
    let (mut key, mut mask) = (Key::default(), Mask::NONE);
    let mut put = |field: Field, value: u128, bits: u128| {
        let bits = bits & Mask::prefix(field, 128).get(field);
        assert_eq!((mask.get(field) & bits, value & !bits), (0, 0), "{field:?} in {text}");
        key = key.with(field, key.get(field) | value);
        mask = mask.with(field, mask.get(field) | bits);
    };
    for word in source.words(0, text.len()) {
        let Some(value) = word.value else {
            let (family, upper) = shorthand(word.name).unwrap_or_else(|| panic!("{text}"));
            put(Field::EtherType, family.into(), 0xffff);
            upper.into_iter().for_each(|upper| put(Field::Protocol, upper.0.into(), 0xff));
            continue;
        };
        let (field, form) = match word.name {
            "dl_type" => (Field::EtherType, Form::Masked(16)),
            name => field(name).map(|(field, form, _)| (field, form)).unwrap_or_else(|| panic!("{text}")),
        };
        // Numbers of any size, and some bits of what otherwise has words.
        let number = match form {
            Form::Number(_) => true,
            Form::InPort | Form::Fragment | Form::TcpFlags => value.starts_with(|c: char| c.is_ascii_digit()),
            Form::Tos | Form::Ecn => value.contains('/'),
            _ => false,
        };
        let (value, bits) = match form {
            _ if number => source.masked(value, word.value_at, 0xffff, word.name).unwrap(),
            form => parse(&source, value, word.value_at, form, word.name).unwrap(),
        };
        put(field, value, bits);
    }
    (key, mask)
}

/// As packets are: only those of IPv4, IPv6 and ARP have addresses.
fn as_packets_are(mut key: Key) -> Key {
    let words = match key.get(Field::EtherType) as u16 {
        crate::key::IPV6 => 4,
        crate::key::IPV4 | crate::key::ARP => 1,
        _ => 0,
    };
    key.0[words..4].fill(0);
    key
}

#[test]
fn what_a_trace_shows_is_all_that_was_looked_at() {
    use crate::suite::{Rng, Shape, flipped, key};
    use crate::{Grouping, RuleSet, TupleSpace};
    let mut partial = 0;
    for (shape, grouping) in Shape::ALL.into_iter().flat_map(|s| Grouping::ALL.map(|g| (s, g))) {
        let mut rng = Rng::new(7);
        let rules: Vec<_> = (0..60).map(|_| shape.rule(&mut rng)).collect();
        let space = TupleSpace::build(&RuleSet::from_list(&rules), grouping);
        for _ in 0..60 {
            let asked = as_packets_are(key(&rules, &mut rng));
            let (found, mask) = space.lookup_wild(&asked);
            let text = show_looked(&asked, &mask, &ports());
            let (value, shown) = looked(&text);
            assert_eq!(asked.masked(&shown), value, "{text}");
            let protocol = shown.get(Field::Protocol);
            partial += u32::from(protocol != 0 && protocol != 0xff);
            // Whatever matches the text goes that way.
            for turn in 0..12 {
                let noise = Key(std::array::from_fn(|i| rng.number() & Mask::ALL.0[i]));
                let family = [0x0800, 0x86dd, 0x0806, 0x88cc][turn % 4];
                let noise = match turn % 3 {
                    0 => noise.with(Field::EtherType, family),
                    1 => flipped(&key(&rules, &mut rng), &mut rng),
                    _ => flipped(&asked, &mut rng),
                };
                let other = Key(std::array::from_fn(|i| value.0[i] | noise.0[i] & !shown.0[i]));
                let other = as_packets_are(other);
                assert_eq!(space.lookup(&other), found, "{text}: {asked:?} and {other:?}");
            }
        }
    }
    assert!(partial > 100, "{partial} lookups saw some bits of the protocol only");
    // As they are: bits of addresses come with what addresses they are, bits of what has no address are none.
    let mask = Mask::NONE.with(Field::Ipv4Source, 0x8000_0000).with(Field::Protocol, 0x10);
    let udp = Key::ipv4(0x8001_0203, 2, 3, 4, 17);
    assert_eq!(show_looked(&udp, &mask, &ports()), "ip,nw_proto=0x10/0x10,nw_src=128.0.0.0/1");
    let frame = Key::default().with(Field::EtherType, 0x88cc);
    assert_eq!(show_looked(&frame, &mask, &ports()), "dl_type=0x88cc,nw_proto=0x0/0x10");
    let odd = Mask::NONE
        .with(Field::EtherType, 0x8000)
        .with(Field::Tos, 0x8a)
        .with(Field::InPort, 4)
        .with(Field::Fragment, 3);
    let text = show_looked(&udp.with(Field::Tos, 0x8b).with(Field::InPort, 6), &odd, &ports());
    assert_eq!(text, "in_port=0x4/0x4,dl_type=0x0/0x8000,nw_tos=0x88/0x88,nw_ecn=0x2/0x2,ip_frag=0x0/0x3");
}

#[test]
fn a_group_of_many_buckets_is_a_line() {
    let bucket = ",bucket=weight:1,actions=mod_dl_dst:02:00:00:00:00:09,output:2";
    let line = |buckets: usize| format!("group_id=7,type=select{}\n", bucket.repeat(buckets));
    let items = read_flows(line(1000).as_bytes(), &ports()).unwrap();
    let [(_, Item::Group(7, group))] = &items[..] else { panic!("{items:?}") };
    assert_eq!(group.buckets().len(), 1000);
    let error = read_flows(line(1100).as_bytes(), &ports()).unwrap_err().to_string();
    assert!(error.starts_with("line 1, column 65535: a line of more than 65535 bytes"), "{error}");
}

#[test]
fn groups_and_meters() {
    let text = "group_id=7,type=select,bucket=weight:2,actions=output:2,mod_vlan_vid:3,bucket=bucket_id:9,weight:0,actions=drop,bucket=wan";
    let Ok(Item::Group(7, group)) = read_flow(text, &ports()) else { panic!() };
    assert_eq!(group.kind(), GroupKind::Select);
    let sizes: Vec<_> = group.buckets().iter().map(|b| (b.weight, b.actions.len())).collect();
    assert_eq!(sizes, [(2, 2), (0, 0), (1, 1)]);
    let shown = show_group(7, &group, &ports());
    assert_eq!(read_flow(&shown, &ports()).unwrap(), Item::Group(7, group), "{shown}");
    let meter = MeterRate { unit: MeterUnit::Packets, rate: 1000, burst: 100 };
    for text in ["meter=1,pktps,burst,band=type=drop,rate=1000,burst_size=100", &show_meter(1, meter)] {
        assert_eq!(read_flow(text, &ports()).unwrap(), Item::Meter(1, meter), "{text}");
    }
    // Without a burst a second's worth, as Open vSwitch has it.
    let meter = MeterRate { unit: MeterUnit::Kilobits, rate: 500, burst: 500 };
    for text in ["meter=2,kbps,band=type=drop,rate=500", "meter=2,band=type=drop,rate=500,burst_size=0"] {
        assert_eq!(read_flow(text, &ports()).unwrap(), Item::Meter(2, meter), "{text}");
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (text, expected) in [
        ("priority=5,ip", "line 1, column 14: `actions=` is missing: say what is to become of the packets"),
        (
            "priority=70000 actions=drop",
            "line 1, column 10: priority: \"70000\": give a number from 0 to 65535",
        ),
        ("prio=5 actions=drop", "line 1, column 1: there is no field \"prio\""),
        (
            "ipx actions=drop",
            "line 1, column 1: \"ipx\" is no word of a rule: give a protocol such as ip, or field=value",
        ),
        ("nw_src=10.0.0.1 actions=drop", "line 1, column 1: nw_src needs ip or arp in the same line"),
        ("ip, tp_dst=80 actions=drop", "line 1, column 5: tp_dst needs tcp, udp or sctp in the same line"),
        ("udp,tcp_flags=+syn actions=drop", "line 1, column 5: tcp_flags needs tcp or tcp6 in the same line"),
        ("ip,tcp actions=drop", "line 1, column 4: tcp: the line says a protocol already"),
        ("tcp,tp_dst=80,tp_dst=81 actions=drop", "line 1, column 15: tp_dst: the line asks for this already"),
        (
            "priority=900,ip,priority=9 actions=drop",
            "line 1, column 17: priority: the line says this already",
        ),
        ("table=1,table=1 actions=drop", "line 1, column 9: table: the line says this already"),
        ("cookie=1 cookie=2 actions=drop", "line 1, column 10: cookie: the line says this already"),
        (
            "idle_timeout=1,hard_timeout=1,idle_timeout=1 actions=drop",
            "line 1, column 31: idle_timeout: the line says this already",
        ),
        ("tcp,tp_dst=90-80 actions=drop", "line 1, column 12: tp_dst: the range ends before it begins"),
        ("tcp,tp_dst=1/0 actions=drop", "line 1, column 12: tp_dst: the value has bits outside its mask 0x0"),
        (
            "ip,nw_src=10.0.0/8 actions=drop",
            "line 1, column 11: nw_src: \"10.0.0\": give an address such as 192.0.2.0/24",
        ),
        (
            "ip,nw_src=10.0.0.0/33 actions=drop",
            "line 1, column 20: nw_src: \"33\": give a number from 0 to 32",
        ),
        (
            "dl_src=02:00 actions=drop",
            "line 1, column 8: dl_src: \"02:00\": give an address such as 02:00:00:00:00:01",
        ),
        (
            "dl_vlan=4096 actions=drop",
            "line 1, column 9: dl_vlan: \"4096\": give a VLAN from 0 to 4095, or 0xffff for none",
        ),
        (
            "vlan_vid=10 actions=drop",
            "line 1, column 10: vlan_vid: no packet has a VLAN without the bit 0x1000: give it, or dl_vlan=10",
        ),
        (
            "vlan_tci=0x600a actions=drop",
            "line 1, column 10: vlan_tci: no packet has a VLAN without the bit 0x1000: give it, or dl_vlan=10",
        ),
        (
            "in_port=eth9 actions=drop",
            "line 1, column 9: port \"eth9\": give a port's number from 1 on, or its name (lan, wan, dmz)",
        ),
        (
            "in_port=0 actions=drop",
            "line 1, column 9: port \"0\": give a port's number from 1 on, or its name (lan, wan, dmz)",
        ),
        (
            "tcp,tcp_flags=+syn+fly actions=drop",
            "line 1, column 19: tcp_flags: \"fly\" is no flag: fin, syn, rst, psh, ack, urg, ece, cwr, ns",
        ),
        ("tcp,tcp_flags=+syn-syn actions=drop", "line 1, column 19: tcp_flags: \"syn\" stands here already"),
        ("actions=", "line 1, column 9: give actions, or `drop`"),
        ("actions=drop,1", "line 1, column 14: nothing may follow drop"),
        ("actions=1,drop", "line 1, column 11: drop stands alone"),
        ("actions=goto_table:2,1", "line 1, column 22: nothing may follow goto_table"),
        ("actions=resubmit(1,2)", "line 1, column 18: resubmit: give a later table, as resubmit(,2)"),
        ("actions=resubmit(,2", "line 1, column 17: `(` without `)`"),
        (
            "priority=0 actions=lan,CONTROLLER:65535",
            "line 1, column 24: controller: there is no controller here: give another action, or drop",
        ),
        (
            "actions=output:controller",
            "line 1, column 16: controller: there is no controller here: give another action, or drop",
        ),
        (
            "group_id=1,type=all,bucket=controller(max_len=9)",
            "line 1, column 28: controller: there is no controller here: give another action, or drop",
        ),
        ("actions=fly:1", "line 1, column 9: there is no action \"fly\""),
        (
            "actions=fly",
            "line 1, column 9: port \"fly\": give a port's number from 1 on, or its name (lan, wan, dmz)",
        ),
        ("actions=set_field:10.0.0.1->ip_dst", "line 1, column 9: IPv4 addresses: the match must ask for ip"),
        ("ip actions=mod_tp_dst:80", "line 1, column 12: ports: the match must ask for tcp or udp"),
        (
            "ip actions=set_field:6->nw_proto",
            "line 1, column 25: set_field: \"nw_proto\" is no field that can be set",
        ),
        ("ip actions=mod_nw_src:10.0.0.0/8", "line 1, column 23: mod_nw_src: give one value, no mask"),
        (
            "actions=push_vlan:0x800",
            "line 1, column 19: push_vlan: give the tag's ethertype, 0x8100 or 0x88a8",
        ),
        (
            "actions=set_field:10->vlan_vid",
            "line 1, column 19: set_field: a VLAN has the bit 0x1000, as 4106->vlan_vid for 10; pop_vlan takes a tag off",
        ),
        ("group_id=1,bucket=1", "line 1, column 12: type=all or type=select is missing"),
        ("group_id=1,type=all,bucket=group:2", "line 1, column 28: a bucket cannot group"),
        (
            "group_id=1,type=all,bucket=weight:1,actions=1",
            "line 1, column 28: weight: only type=select has weights",
        ),
        ("group_id=1,group_id=2,type=all", "line 1, column 12: group_id: the line says this already"),
        ("group_id=1,type=all,type=select", "line 1, column 21: type: the line says this already"),
        (
            "group_id=1,type=select,bucket=weight:1,weight:2,actions=1",
            "line 1, column 40: weight: the bucket says this already",
        ),
        ("meter=1,meter=2,rate=1", "line 1, column 9: meter: the line says this already"),
        ("meter=1,pktps,kbps,rate=1", "line 1, column 15: kbps: the line says this already"),
        ("meter=1,pktps,band=type=drop", "line 1, column 29: rate=N is missing"),
        ("meter=1,band=type=dscp_remark,rate=1", "line 1, column 14: a meter has one band, of type=drop"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    let file = "# first\n\npriority=1 actions=drop # why\n  ip actions=lan\nip actions=fly\n";
    let error = read_flows(file.as_bytes(), &ports()).unwrap_err().to_string();
    assert!(error.starts_with("line 5, column 12: port \"fly\""), "{error}");
    let good = read_flows(&file.as_bytes()[..file.len() - 15], &ports()).unwrap();
    assert_eq!(good.iter().map(|(place, _)| place.line).collect::<Vec<_>>(), [3, 4]);
    let error = read_flows(&b"ip \xff actions=drop"[..], &ports()).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 4: this is no UTF-8");
}

#[test]
fn filters_and_packets() {
    let filter = read_filter("table=1,ip,nw_src=10.0.0.0/8,cookie=1/1", false, &ports()).unwrap();
    assert_eq!((filter.table, filter.strict, filter.cookie), (Some(1), None, (1, 1)));
    assert_eq!(read_filter("", false, &ports()).unwrap(), FlowFilter::any());
    assert_eq!(read_filter("priority=3", true, &ports()).unwrap().strict, Some(3));
    // What is not looked at would widen the filter: `delete priority=100` is not to delete everything.
    for (text, strict, error) in [
        (
            "priority=100",
            false,
            "line 1, column 1: priority: rules of every priority are wanted, but by `switch delete --strict`: leave it out",
        ),
        (
            "ip, idle_timeout=5",
            false,
            "line 1, column 5: idle_timeout: rules are not chosen by their timeouts: leave it out",
        ),
        (
            "priority=3,hard_timeout=5",
            true,
            "line 1, column 12: hard_timeout: rules are not chosen by their timeouts: leave it out",
        ),
        (
            "n_packets=0",
            true,
            "line 1, column 1: n_packets: rules are not chosen by what they count: leave it out",
        ),
        (
            "duration=1s",
            false,
            "line 1, column 1: duration: rules are not chosen by what they count: leave it out",
        ),
    ] {
        assert_eq!(read_filter(text, strict, &ports()).unwrap_err().to_string(), error, "{text}");
    }
    let error = read_packet("in_port=lan,table=1", &ports()).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 13: table: rules have that, packets have not");
    let key =
        read_packet("in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=2,dl_vlan=5", &ports());
    let expected = Key::ipv4(0x0a00_0001, 0x0a00_0002, 1, 2, 6);
    assert_eq!(key.unwrap(), expected.with(Field::InPort, 1).with(Field::Vlan, 0x1005));
    for (text, column) in [
        ("in_port=1,ip,nw_src=10.0.0.0/8", 21),
        ("arp,nw_dst=10.0.0.0/8", 12),
        ("tcp,tp_src=1,tp_dst=1-2", 21),
        ("dl_src=02:00:00:00:00:00/ff:00:00:00:00:00", 8),
    ] {
        let error = read_packet(text, &ports()).unwrap_err().to_string();
        let what = "a packet has one value for each field, not a mask or a range";
        assert_eq!(error, format!("line 1, column {column}: {what}"), "{text}");
    }
    assert_eq!(read_filter("cookie=0x5/-1", false, &ports()).unwrap().cookie, (5, u64::MAX));
    let error = read_filter("ip,send_flow_rem", false, &ports()).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 4: send_flow_rem: it is of no use here: leave it out");
}

#[test]
fn a_dump_can_be_loaded() {
    let dump = "NXST_FLOW reply (xid=0x4):\n cookie=0x7, duration=3.5s, table=0, n_packets=1, n_bytes=60, idle_age=3, send_flow_rem check_overlap reset_counts no_packet_counts no_byte_counts priority=9,ip actions=output:1\n";
    let items = read_flows(dump.as_bytes(), &ports()).unwrap();
    let [(place, Item::Flow(flow))] = &items[..] else { panic!("{items:?}") };
    assert_eq!((place.line, flow.priority, flow.cookie), (2, 9, 7));
    // Rules, not packets, ask for that.
    let error = read_packet("ip,reset_counts", &ports()).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 4: reset_counts: rules have that, packets have not");
    let error = read_flows("\u{feff}ip actions=1".as_bytes(), &ports()).unwrap_err().to_string();
    assert_eq!(error, "line 1, column 1: the file begins with a byte order mark: save it without");
}

/// The same line again and again, without an end.
struct Endless(&'static [u8]);

impl std::io::Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut written = 0;
        for place in buffer.chunks_exact_mut(self.0.len()) {
            place.copy_from_slice(self.0);
            written += self.0.len();
        }
        Ok(written)
    }
}

#[test]
fn what_there_is_no_room_for_is_not_read() {
    let full = |what: &str, most: usize| {
        format!("no room for another {what}: there can be {most}: take one of them out")
    };
    for (line, place, error) in [
        (&b"actions=drop\n"[..], "line 4, column 1", full("rule", 3)),
        (&b"  group_id=1,type=all\n"[..], "line 65537, column 3", full("group", 65_536)),
        (&b"meter=1,pktps,band=type=drop,rate=5\n"[..], "line 65537, column 1", full("meter", 65_536)),
    ] {
        let reader = std::io::BufReader::new(Endless(line));
        let told = read_flows_within(3, reader, &ports()).unwrap_err().to_string();
        assert_eq!(told, format!("{place}: {error}"));
    }
    let three = "actions=1\n# no rule\ngroup_id=1,type=all\nip actions=1\narp actions=1\n";
    assert_eq!(read_flows_within(3, three.as_bytes(), &ports()).unwrap().len(), 4);
}
