//! `tok-5.7` and `tok-5.8`: can ICMP port-unreachable messages tell which packet they answer?
//!
//! Of every such message in captures (IPv4 type 3 code 3, IPv6 type 1 code 4): who sent it to whom, how long it is, how much of the packet it is about it has
//! in it, and whether that is about DNS.

use super::{Amp, Figure, named_points};
use crate::bench::drawing::{Drawing, Panel, Series};
use crate::sim::captures::{Captured, Captures};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, udp};

/// DNS.
const DNS: u16 = 53;
/// Bytes of a packet that say which flow it was: an IPv4 header and a UDP header (Tokusashi 2019, 5.4.1).
const ENOUGH_V4: usize = 28;
/// The same for IPv6.
const ENOUGH_V6: usize = 48;

/// Where the distribution of lengths is shown: the shortest messages, and those that fill what they may (RFC 1812, 4.3.2.3; RFC 4443, 2.4).
const LENGTHS: [usize; 13] = [55, 56, 64, 72, 80, 96, 128, 192, 256, 576, 1024, 1280, 1500];

/// A port-unreachable message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message {
    source: IpAddr,
    destination: IpAddr,
    /// Of the whole IP packet, as its header says.
    len: usize,
    /// Of the packet that it is about.
    embedded: usize,
    /// The ports of that packet, if it is UDP and they are there.
    ports: Option<(u16, u16)>,
}

impl Message {
    /// Reads the message in an IP packet. One that the capture has cut short counts with the length that its header says; what is
    /// embedded is read as far as it is there.
    fn read(ip: &[u8]) -> Option<Message> {
        match ipv4::version(ip) {
            4 => Self::v4(ip),
            6 => Self::v6(ip),
            _ => None,
        }
    }

    fn v4(ip: &[u8]) -> Option<Message> {
        let packet = ipv4::Packet::new_header_checked(ip).ok()?;
        if packet.protocol() != Protocol::ICMP || packet.fragment_offset() != 0 {
            return None;
        }
        let icmp = icmpv4::Packet::new_checked(packet.payload()).ok()?;
        if (icmp.kind(), icmp.code()) != (icmpv4::kind::DEST_UNREACHABLE, icmpv4::code::UNREACHABLE_PORT) {
            return None;
        }
        let len = usize::from(packet.total_len());
        Some(Message {
            source: packet.src().into(),
            destination: packet.dst().into(),
            len,
            embedded: len.saturating_sub(packet.header_len() + icmpv4::HEADER_LEN),
            ports: ports_v4(icmp.payload()),
        })
    }

    fn v6(ip: &[u8]) -> Option<Message> {
        let packet = ipv6::Packet::new_header_checked(ip).ok()?;
        let walk = ipv6_ext::walk(ip).ok()?;
        if walk.upper != Protocol::ICMPV6 || walk.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return None;
        }
        let icmp = icmpv6::Packet::new_checked(ip.get(walk.upper_offset..)?).ok()?;
        if (icmp.kind(), icmp.code()) != (icmpv6::kind::DEST_UNREACHABLE, icmpv6::code::UNREACHABLE_PORT) {
            return None;
        }
        let len = ipv6::HEADER_LEN + usize::from(packet.payload_len());
        Some(Message {
            source: packet.src().into(),
            destination: packet.dst().into(),
            len,
            embedded: len.saturating_sub(walk.upper_offset + icmpv6::HEADER_LEN),
            ports: ports_v6(icmp.payload()),
        })
    }

    /// Whether a rule can be made of it.
    fn is_enough(&self) -> bool {
        self.embedded >= if self.source.is_ipv4() { ENOUGH_V4 } else { ENOUGH_V6 }
    }

    fn is_dns(&self) -> bool {
        self.ports.is_some_and(|(source, destination)| source == DNS || destination == DNS)
    }
}

fn ports_v4(embedded: &[u8]) -> Option<(u16, u16)> {
    let packet = ipv4::Packet::new_header_checked(embedded).ok()?;
    (packet.protocol() == Protocol::UDP && packet.fragment_offset() == 0).then_some(())?;
    ports(packet.payload())
}

fn ports_v6(embedded: &[u8]) -> Option<(u16, u16)> {
    let walk = ipv6_ext::walk(embedded).ok()?;
    (walk.upper == Protocol::UDP && walk.fragment.is_none_or(|fragment| fragment.offset == 0))
        .then_some(())?;
    ports(embedded.get(walk.upper_offset..)?)
}

fn ports(datagram: &[u8]) -> Option<(u16, u16)> {
    (datagram.len() >= 4).then(|| {
        let header = udp::Packet::new_unchecked(datagram);
        (header.src_port(), header.dst_port())
    })
}

/// What one capture, or all of them together, has.
#[derive(Debug, Default)]
struct Count {
    messages: u64,
    /// Of them IPv6.
    v6: u64,
    dns: u64,
    enough: u64,
    pairs: BTreeSet<(IpAddr, IpAddr)>,
    dns_pairs: BTreeSet<(IpAddr, IpAddr)>,
    /// Messages by length of the IP packet, IPv4 and IPv6.
    lengths: [BTreeMap<usize, u64>; 2],
    /// The least that was embedded, IPv4 and IPv6.
    least: [Option<usize>; 2],
}

impl Count {
    fn add(&mut self, message: &Message) {
        let pair = (message.source, message.destination);
        let family = usize::from(message.source.is_ipv6());
        self.messages += 1;
        self.v6 += family as u64;
        self.pairs.insert(pair);
        self.enough += u64::from(message.is_enough());
        if message.is_dns() {
            self.dns += 1;
            self.dns_pairs.insert(pair);
        }
        *self.lengths[family].entry(message.len).or_default() += 1;
        let least = self.least[family].map_or(message.embedded, |least| least.min(message.embedded));
        self.least[family] = Some(least);
    }

    /// Percent of a family's messages that are at most so long.
    fn cumulative(&self, family: usize) -> Vec<(f64, f64, Option<f64>)> {
        let lengths = &self.lengths[family];
        let all = lengths.values().sum::<u64>().max(1) as f64;
        let at = |len: &usize| {
            let below: u64 = lengths.range(..=len).map(|(_, count)| count).sum();
            (*len as f64, 100.0 * below as f64 / all, None)
        };
        LENGTHS.iter().map(at).collect()
    }
}

/// All captures, and each that has any.
struct Counted {
    sum: Count,
    by_capture: BTreeMap<String, Count>,
    /// What it was counted in.
    from: String,
}

fn count(args: &Amp, figure: &Figure) -> Result<Counted> {
    let mut counted = Counted { sum: Count::default(), by_capture: BTreeMap::new(), from: String::new() };
    let read = Captures::find(&args.captures, figure.name)?.read(|name, Captured { ip, .. }| {
        if let Some(message) = Message::read(ip) {
            counted.sum.add(&message);
            counted.by_capture.entry(name.to_owned()).or_default().add(&message);
        }
    })?;
    counted.from = format!(
        "{} packets of {} captures ({} of them of other link types, or broken); instead of 15 minutes on each of 31 days of MAWI's samplepoint F",
        read.packets, read.captures, read.broken
    );
    Ok(counted)
}

/// `tok-5.7`.
pub(super) fn pairs(args: &Amp, figure: &'static Figure) -> Result<Drawing> {
    let Counted { sum, by_capture, from } = count(args, figure)?;
    let all = |count: &Count| count.pairs.len();
    let dns = |count: &Count| count.dns_pairs.len();
    let series = |name: &str, of: &dyn Fn(&Count) -> usize| {
        let all = by_capture.iter().map(|(name, count)| (name.as_str(), count)).chain([("all", &sum)]);
        named_points(name, all.map(|(name, count)| (name, of(count) as f64, None)))
    };
    let panel = Panel::new(
        "capture",
        "pairs of addresses",
        vec![series("port unreachable", &all), series("about DNS", &dns)],
    );
    Ok(Drawing {
        table: Some(from),
        panels: vec![panel],
        notes: vec![
            format!(
                "messages: {} ({} of them IPv6); about DNS: {}; with enough of the packet to tell its flow: {}",
                sum.messages, sum.v6, sum.dns, sum.enough
            ),
            "the paper draws one pair of bars a day and gives no numbers; it says that there are many about DNS".into(),
        ],
        ..figure.drawing()
    })
}

/// `tok-5.8`.
pub(super) fn lengths(args: &Amp, figure: &'static Figure) -> Result<Drawing> {
    let Counted { sum, from, .. } = count(args, figure)?;
    let (mut curves, mut shortest) = (Vec::new(), Vec::new());
    for (family, name) in ["IPv4", "IPv6"].into_iter().enumerate() {
        let (Some(least), Some((packet, _))) = (sum.least[family], sum.lengths[family].first_key_value())
        else {
            continue;
        };
        curves.push(Series::new(name, sum.cumulative(family)));
        // The paper has IPv4 alone.
        let paper = |bytes| (family == 0).then_some(bytes);
        let bytes = [("IP packet", *packet as f64, paper(56.0)), ("embedded", least as f64, paper(28.0))];
        shortest.push(named_points(name, bytes));
    }
    let percent = Panel::new("bytes of the IP packet", "percent of the messages", curves);
    let shortest = Panel::new("the shortest", "bytes", shortest);
    Ok(Drawing {
        table: Some(from),
        panels: vec![percent, shortest],
        notes: vec![format!(
            "{} of {} messages have enough of the packet to tell its flow: {ENOUGH_V4} bytes in IPv4, {ENOUGH_V6} in IPv6",
            sum.enough, sum.messages
        )],
        ..figure.drawing()
    })
}
