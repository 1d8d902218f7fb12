//! Rules, groups and meters as text that can be read again.

use super::PortNames;
use super::fields::{FLAGS, FRAGMENTS};
use crate::key::{ARP, Field, IPV4, IPV6, Key, Mask, VLAN_PRESENT};
use crate::pipeline::{Action, FlowSpec, Group, GroupKind, Instructions, MeterRate, MeterUnit, Output};
use crate::rule::{Match, PortRange, Side};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::{MacAddr, Protocol};

/// A rule.
pub fn show_flow(spec: &FlowSpec, ports: &PortNames) -> String {
    let mut words = Vec::new();
    if spec.cookie != 0 {
        words.push(format!("cookie={:#x}", spec.cookie));
    }
    words.push(format!("table={}", spec.table));
    for (name, seconds) in [("idle_timeout", spec.idle_s), ("hard_timeout", spec.hard_s)] {
        if seconds > 0 {
            words.push(format!("{name}={seconds}"));
        }
    }
    words.push(format!("priority={}", spec.priority));
    let matches = show_match(&spec.matches, ports);
    if !matches.is_empty() {
        words.push(matches);
    }
    format!("{} actions={}", words.join(","), show_instructions(&spec.instructions, ports))
}

/// The bits of a key that a decision has looked at, as a match: every packet that matches it has them. Some bits of a field are shown as value and mask
/// (`nw_proto=0x10/0x10`); bits of addresses come with the whole ethertype, which says what addresses they are.
pub fn show_looked(key: &Key, mask: &Mask, ports: &PortNames) -> String {
    let mut mask = *mask;
    if mask.0[..4] != [0; 4] {
        mask = mask.with(Field::EtherType, 0xffff);
    }
    show_match(&Match::from_parts(key.masked(&mask), mask, [PortRange::ALL; 2]), ports)
}

/// Some bits of a number.
fn some(value: u128, mask: u128) -> String {
    format!("{value:#x}/{mask:#x}")
}

/// A value with its mask, if that is not the whole field.
fn masked(field: Field, value: u128, mask: u128, show: impl Fn(u128) -> String) -> String {
    if mask == Mask::prefix(field, 128).get(field) {
        return show(value);
    }
    match Mask::NONE.with(field, mask).prefix_length(field) {
        Some(length) if matches!(field.bits(), 32 | 128) && field != Field::Metadata => {
            format!("{}/{length}", show(value))
        }
        _ => format!("{}/{}", show(value), show(mask)),
    }
}

fn hex(value: u128) -> String {
    format!("{value:#x}")
}

fn port(number: u16, ports: &PortNames) -> String {
    ports.name(number).map_or_else(|| number.to_string(), str::to_owned)
}

/// The words of a field.
fn words(field: Field, value: u128, mask: u128) -> Option<(&'static str, String)> {
    let v4 = |value: u128| Ipv4Addr::from(value as u32).to_string();
    let v6 = |value: u128| Ipv6Addr::from(value).to_string();
    let mac = |value: u128| {
        let [_, _, a, b, c, d, e, f] = (value as u64).to_be_bytes();
        MacAddr([a, b, c, d, e, f]).to_string()
    };
    let address = |name, show: &dyn Fn(u128) -> String| Some((name, masked(field, value, mask, show)));
    match field {
        Field::Ipv4Source => address("nw_src", &v4),
        Field::Ipv4Destination => address("nw_dst", &v4),
        Field::ArpSource => address("arp_spa", &v4),
        Field::ArpTarget => address("arp_tpa", &v4),
        Field::Ipv6Source => address("ipv6_src", &v6),
        Field::Ipv6Destination => address("ipv6_dst", &v6),
        Field::MacSource => address("dl_src", &mac),
        Field::MacDestination => address("dl_dst", &mac),
        Field::Metadata => address("metadata", &hex),
        Field::SourcePort | Field::DestinationPort => {
            let name = if field == Field::SourcePort { "tp_src" } else { "tp_dst" };
            Some((name, if mask == 0xffff { value.to_string() } else { some(value, mask) }))
        }
        Field::Vlan => {
            let (present, id) = (u128::from(VLAN_PRESENT), value & 0xfff);
            Some(match mask {
                0x1fff if value & present != 0 => ("dl_vlan", id.to_string()),
                0xf000 if value & present != 0 => ("dl_vlan_pcp", (value >> 13).to_string()),
                0x1000 if value == 0 => ("dl_vlan", "0xffff".into()),
                _ => ("vlan_tci", some(value, mask)),
            })
        }
        Field::Fragment => {
            let word = FRAGMENTS.iter().find(|(_, v, m)| (u128::from(*v), u128::from(*m)) == (value, mask));
            Some(("ip_frag", word.map_or_else(|| some(value, mask), |(word, ..)| (*word).to_owned())))
        }
        Field::TcpFlags => {
            let mut text = String::new();
            for (bit, name) in FLAGS.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 != 0) {
                let _ = write!(text, "{}{name}", if value >> bit & 1 != 0 { '+' } else { '-' });
            }
            let named = mask >> FLAGS.len() == 0;
            Some(("tcp_flags", if named { text } else { some(value, mask) }))
        }
        // What stands in words of its own.
        Field::Tos | Field::EtherType | Field::Protocol | Field::InPort => None,
    }
}

/// A match; nothing for every packet.
pub fn show_match(matches: &Match, ports: &PortNames) -> String {
    let part = |field: Field| (matches.value().get(field), matches.mask().get(field));
    let mut list = Vec::new();
    let (ethertype, ethertype_mask) = part(Field::EtherType);
    let family = (ethertype_mask == 0xffff).then_some(ethertype as u16);
    let (number, number_mask) = part(Field::Protocol);
    let protocol = (number_mask == 0xff).then_some(Protocol(number as u8));
    let mut icmp = None;
    let (word, named) = match (family, protocol) {
        (Some(IPV4), Some(Protocol::TCP)) => ("tcp", true),
        (Some(IPV4), Some(Protocol::UDP)) => ("udp", true),
        (Some(IPV4), Some(Protocol::SCTP)) => ("sctp", true),
        (Some(IPV6), Some(Protocol::TCP)) => ("tcp6", true),
        (Some(IPV6), Some(Protocol::UDP)) => ("udp6", true),
        (Some(IPV6), Some(Protocol::SCTP)) => ("sctp6", true),
        (Some(IPV4), Some(Protocol::ICMP)) => {
            icmp = Some(["icmp_type", "icmp_code"]);
            ("icmp", true)
        }
        (Some(IPV6), Some(Protocol::ICMPV6)) => {
            icmp = Some(["icmpv6_type", "icmpv6_code"]);
            ("icmp6", true)
        }
        (Some(IPV4), _) => ("ip", false),
        (Some(IPV6), _) => ("ipv6", false),
        (Some(ARP), _) => ("arp", false),
        _ => ("", false),
    };
    match (word, family) {
        ("", Some(family)) => list.push(format!("dl_type={family:#06x}")),
        ("", None) if ethertype_mask != 0 => {
            list.push(format!("dl_type={}", some(ethertype, ethertype_mask)))
        }
        ("", None) => {}
        (word, _) => list.push(word.to_owned()),
    }
    if number_mask != 0 && !named {
        let name = if family == Some(ARP) { "arp_op" } else { "nw_proto" };
        let number = protocol.map_or_else(|| some(number, number_mask), |protocol| protocol.0.to_string());
        list.push(format!("{name}={number}"));
    }
    let (in_port, in_port_mask) = part(Field::InPort);
    if in_port_mask != 0 {
        let whole = in_port_mask == 0xffff;
        let text = if whole { port(in_port as u16, ports) } else { some(in_port, in_port_mask) };
        list.insert(0, format!("in_port={text}"));
    }
    let (tos, tos_mask) = part(Field::Tos);
    for (name, bits) in [("nw_tos", 0xfc), ("nw_ecn", 3)] {
        let (value, mask) = (tos & bits, tos_mask & bits);
        if mask != 0 {
            let text = if mask == bits { value.to_string() } else { some(value, mask) };
            list.push(format!("{name}={text}"));
        }
    }
    for field in Field::ALL {
        let (value, mask) = part(field);
        let other = matches!((field.needs(), family), (Some(needs), family) if Some(needs) != family);
        if mask == 0 || other {
            continue;
        }
        let Some((name, text)) = words(field, value, mask) else { continue };
        let name = match (icmp, field) {
            (Some([kind, _]), Field::SourcePort) => kind,
            (Some([_, code]), Field::DestinationPort) => code,
            _ => name,
        };
        list.push(format!("{name}={text}"));
    }
    for (side, name) in [(Side::Source, "tp_src"), (Side::Destination, "tp_dst")] {
        let PortRange { first, last } = matches.ports()[side as usize];
        if (first, last) != (0, u16::MAX) {
            list.push(format!("{name}={first}-{last}"));
        }
    }
    list.join(",")
}

/// An action.
pub fn show_action(action: &Action, ports: &PortNames) -> String {
    match *action {
        Action::Output(output) => match output {
            Output::Port(number) => format!("output:{}", port(number, ports)),
            Output::InPort => "in_port".into(),
            Output::Normal => "normal".into(),
            Output::Flood => "flood".into(),
            Output::All => "all".into(),
        },
        Action::Set { field, value, mask } => match (field, mask) {
            (Field::Vlan, 0x1fff) => format!("mod_vlan_vid:{}", value & 0xfff),
            (Field::Vlan, 0xf000) => format!("mod_vlan_pcp:{}", value >> 13),
            (Field::Vlan, _) => format!("set_field:{value:#x}/{mask:#x}->vlan_tci"),
            (Field::Tos, 0xfc) => format!("mod_nw_tos:{value}"),
            (Field::Tos, _) => format!("mod_nw_ecn:{}", value & 3),
            _ => {
                let (name, text) = words(field, value, mask).unwrap_or(("?", hex(value)));
                format!("set_field:{text}->{name}")
            }
        },
        Action::PushVlan(tpid) => format!("push_vlan:{:#06x}", tpid.0),
        Action::PopVlan => "pop_vlan".into(),
        Action::DecTtl => "dec_ttl".into(),
        Action::Group(number) => format!("group:{number}"),
        Action::Meter(number) => format!("meter:{number}"),
    }
}

fn show_instructions(instructions: &Instructions, ports: &PortNames) -> String {
    let actions = instructions.actions.iter().map(|action| show_action(action, ports));
    let goto = instructions.goto.map(|table| format!("goto_table:{table}"));
    let all: Vec<String> = actions.chain(goto).collect();
    if all.is_empty() { "drop".into() } else { all.join(",") }
}

/// A group.
pub fn show_group(number: u32, group: &Group, ports: &PortNames) -> String {
    let kind = match group.kind() {
        GroupKind::All => "all",
        GroupKind::Select => "select",
    };
    let mut text = format!("group_id={number},type={kind}");
    for bucket in group.buckets() {
        text.push_str(",bucket=");
        if group.kind() == GroupKind::Select {
            let _ = write!(text, "weight:{},", bucket.weight);
        }
        let instructions = Instructions::actions(bucket.actions.iter().copied());
        let _ = write!(text, "actions={}", show_instructions(&instructions, ports));
    }
    text
}

/// A meter.
pub fn show_meter(number: u32, rate: MeterRate) -> String {
    let unit = match rate.unit {
        MeterUnit::Packets => "pktps",
        MeterUnit::Kilobits => "kbps",
    };
    format!("meter={number},{unit},band=type=drop,rate={},burst_size={}", rate.rate, rate.burst)
}
