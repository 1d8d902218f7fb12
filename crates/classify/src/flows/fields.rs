//! What stands before the actions: the rule's own words and its match.

use super::Head;
use super::source::{Source, Word};
use crate::key::{ARP, FRAGMENT_ANY, FRAGMENT_LATER, Field, IPV4, IPV6, VLAN_PRESENT};
use crate::rule::{Match, Side};
use crate::text::TextError;
use tidemill_wire::Protocol;

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    InPort,
    Mac,
    VlanId,
    VlanPriority,
    /// A number of so many bits, with a mask.
    Masked(u32),
    /// A number up to this one, the field's whole value.
    Number(u64),
    Ipv4,
    Ipv6,
    Tos,
    Dscp,
    Ecn,
    Port,
    TcpFlags,
    Fragment,
}

/// What the packet must be for a field to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// IPv4 or ARP, which share words for their addresses.
    Ipv4OrArp,
    Arp,
    Ipv6,
    Ip,
    IpOrArp,
    /// A protocol with ports.
    Ports,
    Protocol(Protocol),
    Icmp,
    Icmp6,
}

impl Needs {
    fn words(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::Ipv4OrArp => "ip or arp",
            Needs::Arp => "arp",
            Needs::Ipv6 => "ipv6",
            Needs::Ip => "ip or ipv6",
            Needs::IpOrArp => "ip, ipv6 or arp",
            Needs::Ports => "tcp, udp or sctp",
            Needs::Protocol(Protocol::TCP) => "tcp or tcp6",
            Needs::Protocol(Protocol::UDP) => "udp or udp6",
            Needs::Protocol(_) => "sctp or sctp6",
            Needs::Icmp => "icmp",
            Needs::Icmp6 => "icmp6",
        }
    }

    fn met(self, ethertype: Option<u16>, protocol: Option<u8>) -> bool {
        let (v4, v6, arp) = (ethertype == Some(IPV4), ethertype == Some(IPV6), ethertype == Some(ARP));
        let protocol = protocol.filter(|_| v4 || v6).map(Protocol);
        match self {
            Needs::Nothing => true,
            Needs::Ipv4OrArp => v4 || arp,
            Needs::Arp => arp,
            Needs::Ipv6 => v6,
            Needs::Ip => v4 || v6,
            Needs::IpOrArp => v4 || v6 || arp,
            Needs::Ports => protocol.is_some_and(Protocol::has_ports),
            Needs::Protocol(wanted) => protocol == Some(wanted),
            Needs::Icmp => v4 && protocol == Some(Protocol::ICMP),
            Needs::Icmp6 => v6 && protocol == Some(Protocol::ICMPV6),
        }
    }
}

/// A field by its name, with its form and what it needs.
pub(super) fn field(name: &str) -> Option<(Field, Form, Needs)> {
    use Needs::{Arp, Icmp, Icmp6, Ip, IpOrArp, Ipv4OrArp, Ipv6, Nothing, Ports};
    let protocol = |protocol| Needs::Protocol(protocol);
    Some(match name {
        "in_port" => (Field::InPort, Form::InPort, Nothing),
        "dl_src" | "eth_src" => (Field::MacSource, Form::Mac, Nothing),
        "dl_dst" | "eth_dst" => (Field::MacDestination, Form::Mac, Nothing),
        "dl_vlan" => (Field::Vlan, Form::VlanId, Nothing),
        "dl_vlan_pcp" | "vlan_pcp" => (Field::Vlan, Form::VlanPriority, Nothing),
        "vlan_tci" => (Field::Vlan, Form::Masked(16), Nothing),
        "vlan_vid" => (Field::Vlan, Form::Masked(13), Nothing),
        "metadata" => (Field::Metadata, Form::Masked(32), Nothing),
        "nw_src" | "ip_src" => (Field::Ipv4Source, Form::Ipv4, Ipv4OrArp),
        "nw_dst" | "ip_dst" => (Field::Ipv4Destination, Form::Ipv4, Ipv4OrArp),
        "arp_spa" => (Field::ArpSource, Form::Ipv4, Arp),
        "arp_tpa" => (Field::ArpTarget, Form::Ipv4, Arp),
        "ipv6_src" => (Field::Ipv6Source, Form::Ipv6, Ipv6),
        "ipv6_dst" => (Field::Ipv6Destination, Form::Ipv6, Ipv6),
        "nw_proto" | "ip_proto" => (Field::Protocol, Form::Number(255), IpOrArp),
        "arp_op" => (Field::Protocol, Form::Number(255), Arp),
        "nw_tos" => (Field::Tos, Form::Tos, Ip),
        "ip_dscp" => (Field::Tos, Form::Dscp, Ip),
        "nw_ecn" | "ip_ecn" => (Field::Tos, Form::Ecn, Ip),
        "ip_frag" | "nw_frag" => (Field::Fragment, Form::Fragment, Ip),
        "tp_src" => (Field::SourcePort, Form::Port, Ports),
        "tp_dst" => (Field::DestinationPort, Form::Port, Ports),
        "tcp_src" => (Field::SourcePort, Form::Port, protocol(Protocol::TCP)),
        "tcp_dst" => (Field::DestinationPort, Form::Port, protocol(Protocol::TCP)),
        "udp_src" => (Field::SourcePort, Form::Port, protocol(Protocol::UDP)),
        "udp_dst" => (Field::DestinationPort, Form::Port, protocol(Protocol::UDP)),
        "sctp_src" => (Field::SourcePort, Form::Port, protocol(Protocol::SCTP)),
        "sctp_dst" => (Field::DestinationPort, Form::Port, protocol(Protocol::SCTP)),
        "tcp_flags" => (Field::TcpFlags, Form::TcpFlags, protocol(Protocol::TCP)),
        "icmp_type" => (Field::SourcePort, Form::Number(255), Icmp),
        "icmp_code" => (Field::DestinationPort, Form::Number(255), Icmp),
        "icmpv6_type" => (Field::SourcePort, Form::Number(255), Icmp6),
        "icmpv6_code" => (Field::DestinationPort, Form::Number(255), Icmp6),
        _ => return None,
    })
}

/// Ethertype and protocol that a word alone stands for.
pub(super) fn shorthand(name: &str) -> Option<(u16, Option<Protocol>)> {
    Some(match name {
        "ip" => (IPV4, None),
        "ipv6" => (IPV6, None),
        "arp" => (ARP, None),
        "icmp" => (IPV4, Some(Protocol::ICMP)),
        "icmp6" => (IPV6, Some(Protocol::ICMPV6)),
        "tcp" => (IPV4, Some(Protocol::TCP)),
        "udp" => (IPV4, Some(Protocol::UDP)),
        "sctp" => (IPV4, Some(Protocol::SCTP)),
        "tcp6" => (IPV6, Some(Protocol::TCP)),
        "udp6" => (IPV6, Some(Protocol::UDP)),
        "sctp6" => (IPV6, Some(Protocol::SCTP)),
        _ => return None,
    })
}

/// The flags' names, from bit 0 on.
pub(super) const FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// What fragments there are to ask for: the word, value and mask.
pub(super) const FRAGMENTS: [(&str, u8, u8); 5] = [
    ("no", 0, FRAGMENT_ANY),
    ("yes", FRAGMENT_ANY, FRAGMENT_ANY),
    ("first", FRAGMENT_ANY, FRAGMENT_ANY | FRAGMENT_LATER),
    ("later", FRAGMENT_ANY | FRAGMENT_LATER, FRAGMENT_ANY | FRAGMENT_LATER),
    ("not_later", 0, FRAGMENT_LATER),
];

/// Words of the rule's own.
pub(super) const OWN: [&str; 5] = ["table", "priority", "idle_timeout", "hard_timeout", "cookie"];

/// What a dump counts.
pub(super) const COUNTED: [&str; 5] = ["n_packets", "n_bytes", "duration", "idle_age", "hard_age"];

/// The flag by which a rule that is added again counts from 0.
const RESET_COUNTS: &str = "reset_counts";

/// A rule's flags, words without a value. Most are passed over: there is nobody to tell, counters always count, and who overlaps has been looked at.
pub(super) const FLOW_FLAGS: [&str; 5] =
    [RESET_COUNTS, "send_flow_rem", "check_overlap", "no_packet_counts", "no_byte_counts"];

/// Whether a word asks for a field.
pub(super) fn names(name: &str, wanted: Field) -> bool {
    let either = |field: Field| match field {
        Field::Ipv4Source => wanted == Field::ArpSource,
        Field::Ipv4Destination => wanted == Field::ArpTarget,
        _ => false,
    };
    field(name).is_some_and(|(field, ..)| field == wanted || either(field))
}

/// What a word that is no field says of the rule; false if it is none of these.
fn own_word(source: &Source<'_>, word: &Word<'_>, head: &mut Head) -> Result<bool, TextError> {
    let value = word.value.unwrap_or_default();
    let number = |most: u64| source.number(value, word.value_at, most, word.name);
    match word.name {
        "table" => (head.table, head.table_at) = (Some(number(254)? as u8), Some(word.at)),
        "priority" => head.priority = Some(number(u16::MAX.into())? as u16),
        "idle_timeout" => head.idle_s = number(u16::MAX.into())? as u16,
        "hard_timeout" => head.hard_s = number(u16::MAX.into())? as u16,
        "cookie" => {
            // The mask of all bits may be written as -1, as `ovs-ofctl` has it.
            head.cookie = Some(match value.strip_suffix("/-1") {
                Some(value) => (source.number(value, word.value_at, u64::MAX, word.name)?, u64::MAX),
                None => {
                    let (value, mask) = source.masked(value, word.value_at, u64::MAX, word.name)?;
                    (value as u64, mask as u64)
                }
            });
        }
        name if COUNTED.contains(&name) => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// A match that grows: values and masks by field.
struct Growing {
    parts: Vec<(Field, u128, u128)>,
    ranges: [Option<(u16, u16)>; 2],
}

impl Growing {
    fn add(
        &mut self,
        source: &Source<'_>,
        word: &Word<'_>,
        part: (Field, u128, u128),
    ) -> Result<(), TextError> {
        let (field, value, mask) = part;
        if let Some(known) = self.parts.iter_mut().find(|(known, ..)| *known == field) {
            // Two words may share a bit that both set: that of a tag that is there.
            let (both, new) = (known.2 & mask, mask & !known.2);
            if both != 0 && (new == 0 || (known.1 ^ value) & both != 0) {
                return Err(source.error(word.at, format!("{}: the line asks for this already", word.name)));
            }
            known.1 |= value;
            known.2 |= mask;
        } else {
            self.parts.push((field, value, mask));
        }
        Ok(())
    }
}

/// The words between two places.
pub(super) fn head(source: &Source<'_>, from: usize, to: usize) -> Result<Head, TextError> {
    let mut head = Head {
        table: None,
        table_at: None,
        priority: None,
        cookie: None,
        idle_s: 0,
        hard_s: 0,
        reset_counts: false,
        matches: Match::any(),
    };
    let mut own: Vec<&str> = Vec::new();
    let (mut ethertype, mut protocol) = (None, None);
    let mut growing = Growing { parts: Vec::new(), ranges: [None; 2] };
    let mut fields: Vec<Word<'_>> = Vec::new();
    for word in source.words(from, to) {
        let twice = |there: bool, what: &str| {
            if there {
                Err(source.error(word.at, format!("{}: the line says {what} already", word.name)))
            } else {
                Ok(())
            }
        };
        if let (Some((family, upper)), None) = (shorthand(word.name), word.value) {
            twice(ethertype.is_some() || upper.is_some() && protocol.is_some(), "a protocol")?;
            ethertype = Some(family);
            protocol = upper.map(|upper| upper.0).or(protocol);
            continue;
        }
        if word.value.is_none() && FLOW_FLAGS.contains(&word.name) {
            head.reset_counts |= word.name == RESET_COUNTS;
            continue;
        }
        let Some(value) = word.value else {
            let what =
                format!("{:?} is no word of a rule: give a protocol such as ip, or field=value", word.name);
            return Err(source.error(word.at, what));
        };
        match word.name {
            "dl_type" | "eth_type" => {
                twice(ethertype.is_some(), "a protocol")?;
                ethertype = Some(source.number(value, word.value_at, 0xffff, word.name)? as u16);
            }
            "nw_proto" | "ip_proto" | "arp_op" => {
                twice(protocol.is_some(), "a protocol")?;
                protocol = Some(source.number(value, word.value_at, 255, word.name)? as u8);
                fields.push(word);
            }
            _ if own_word(source, &word, &mut head)? => {
                twice(own.contains(&word.name), "this")?;
                own.push(word.name);
            }
            _ => fields.push(word),
        }
    }
    for word in &fields {
        let Some((field, form, needs)) = field(word.name) else {
            return Err(source.error(word.at, format!("there is no field {:?}", word.name)));
        };
        if !needs.met(ethertype, protocol) {
            return Err(
                source.error(word.at, format!("{} needs {} in the same line", word.name, needs.words()))
            );
        }
        // One name for either family's address.
        let field = match (field, ethertype) {
            (Field::Ipv4Source, Some(ARP)) => Field::ArpSource,
            (Field::Ipv4Destination, Some(ARP)) => Field::ArpTarget,
            (field, _) => field,
        };
        if field == Field::Protocol {
            continue;
        }
        let value = word.value.unwrap_or_default();
        let side = if field == Field::SourcePort { Side::Source } else { Side::Destination };
        if form == Form::Port
            && let Some(range) = range(source, value, word)?
        {
            if growing.ranges[side as usize].replace(range).is_some() {
                return Err(source.error(word.at, format!("{}: the line asks for this already", word.name)));
            }
            continue;
        }
        let (value, mask) = parse(source, value, word.value_at, form, word.name)?;
        let present = u128::from(VLAN_PRESENT);
        if field == Field::Vlan && mask & present != 0 && value & present == 0 && value != 0 {
            let id = value & 0xfff;
            let what = format!(
                "{}: no packet has a VLAN without the bit 0x1000: give it, or dl_vlan={id}",
                word.name
            );
            return Err(source.error(word.value_at, what));
        }
        growing.add(source, word, (field, value, mask))?;
    }
    let mut matches = Match::any();
    if let Some(ethertype) = ethertype {
        matches = matches.exact(Field::EtherType, ethertype.into());
    }
    if let Some(protocol) = protocol {
        matches = matches.exact(Field::Protocol, protocol.into());
    }
    for (field, value, mask) in growing.parts {
        matches = matches.masked(field, value, mask);
    }
    for (side, range) in [Side::Source, Side::Destination].into_iter().zip(growing.ranges) {
        if let Some((first, last)) = range {
            matches = matches.port_range(side, first..=last);
        }
    }
    head.matches = matches;
    Ok(head)
}

/// A range of ports, if it is one.
fn range(source: &Source<'_>, value: &str, word: &Word<'_>) -> Result<Option<(u16, u16)>, TextError> {
    let Some((first, last)) = value.split_once('-') else { return Ok(None) };
    let number = |text: &str, at: usize| source.number(text, at, u16::MAX.into(), word.name);
    let first_port = number(first, word.value_at)? as u16;
    let last_port = number(last, word.value_at + first.len() + 1)? as u16;
    if first_port > last_port {
        return Err(source.error(word.value_at, format!("{}: the range ends before it begins", word.name)));
    }
    Ok(Some((first_port, last_port)))
}

/// A value with its mask.
pub(super) fn parse(
    source: &Source<'_>,
    text: &str,
    at: usize,
    form: Form,
    what: &str,
) -> Result<(u128, u128), TextError> {
    let number = |most: u64| source.number(text, at, most, what).map(u128::from);
    let present = u128::from(VLAN_PRESENT);
    Ok(match form {
        Form::InPort => (source.port(text, at)?.into(), 0xffff),
        Form::Mac => source.mac(text, at, what)?,
        Form::VlanId => match number(0xffff)? {
            0xffff => (0, present),
            id if id <= 0xfff => (id | present, 0x1fff),
            _ => {
                return Err(source
                    .error(at, format!("{what}: {text:?}: give a VLAN from 0 to 4095, or 0xffff for none")));
            }
        },
        Form::VlanPriority => (number(7)? << 13 | present, 0xf000),
        Form::Masked(bits) => source.masked(text, at, (1 << bits) - 1, what)?,
        Form::Number(most) => (number(most)?, u128::MAX),
        Form::Ipv4 => source.ipv4(text, at, what)?,
        Form::Ipv6 => source.ipv6(text, at, what)?,
        Form::Tos => match number(255)? {
            tos if tos & 3 == 0 => (tos, 0xfc),
            _ => return Err(source.error(at, format!("{what}: the two lowest bits are nw_ecn"))),
        },
        Form::Dscp => (number(63)? << 2, 0xfc),
        Form::Ecn => (number(3)?, 3),
        Form::Port => source.masked(text, at, 0xffff, what)?,
        Form::TcpFlags => flags(source, text, at, what)?,
        Form::Fragment => match FRAGMENTS.iter().find(|(name, ..)| *name == text) {
            Some(&(_, value, mask)) => (value.into(), mask.into()),
            None => {
                return Err(
                    source.error(at, format!("{what}: {text:?}: give no, yes, first, later or not_later"))
                );
            }
        },
    })
}

/// Flags as `+syn-ack`, or a number with its mask.
fn flags(source: &Source<'_>, text: &str, at: usize, what: &str) -> Result<(u128, u128), TextError> {
    if !text.starts_with(['+', '-']) {
        return source.masked(text, at, 0xfff, what);
    }
    let (mut value, mut mask, mut place) = (0_u128, 0_u128, 0);
    while let Some(sign) = text.get(place..).and_then(|rest| rest.chars().next()) {
        let name = text.get(place + 1..).unwrap_or_default();
        let len = name.find(['+', '-']).unwrap_or(name.len());
        let Some(bit) = FLAGS.iter().position(|flag| *flag == &name[..len]) else {
            let known = FLAGS.join(", ");
            return Err(source.error(at + place, format!("{what}: {:?} is no flag: {known}", &name[..len])));
        };
        if mask >> bit & 1 != 0 {
            return Err(source.error(at + place, format!("{what}: {:?} stands here already", &name[..len])));
        }
        value |= u128::from(sign == '+') << bit;
        mask |= 1 << bit;
        place += 1 + len;
    }
    Ok((value, mask))
}
