//! The five traffic cases of HALO's Figure 3, the floods, and their frames.
//!
//! The paper (ISCA 2019, section 3.2) has three scenarios in five configurations: few flows (under 100,000), many flows (100,000 to a million)
//! with 1 to 10 rules, many flows with 20 hot rules; the shortest UDP packets. Which numbers its five are it does not say: ours are the ends of
//! its ranges. A packet's flow is drawn at random from all of them.
//!
//! Each rule is a prefix of destinations of another length, none inside another: so there are as many masks of megaflows as rules, and no more
//! megaflows than rules, whatever flows there are.

use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_flow::hash::mix;
use tidemill_wire::{Protocol, ipv4, ipv6};

/// A traffic case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) name: &'static str,
    pub(super) flows: u32,
    pub(super) rules: u32,
    /// Cycles for a packet, where the paper's text states them.
    pub(super) paper_cycles: Option<u32>,
}

/// All of them, in the paper's order.
pub(super) const TRAFFIC: [Traffic; 5] = [
    Traffic { name: "few", flows: 10_000, rules: 1, paper_cycles: Some(340) },
    Traffic { name: "many-1", flows: 100_000, rules: 1, paper_cycles: None },
    Traffic { name: "many-10", flows: 1_000_000, rules: 10, paper_cycles: None },
    Traffic { name: "rules-100k", flows: 100_000, rules: 20, paper_cycles: None },
    Traffic { name: "rules-1M", flows: 1_000_000, rules: 20, paper_cycles: Some(993) },
];

/// The priority of these rules; floods have theirs above them.
const PRIORITY: u32 = 100;
/// The longest frame.
pub(super) const LONGEST: usize = FRAME6;

const FRAME4: usize = 60;
const FRAME6: usize = 62;
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
/// The first bits of the first rule: rule `i` has `FIRST + i` there.
const FIRST: u32 = 16;

/// The length of a rule's prefix behind its first eight bits.
fn length(rule: u32) -> u32 {
    1 + rule
}

impl Traffic {
    /// Its rules, as `ovs-ofctl` has them.
    pub(super) fn text(&self, v6: bool) -> String {
        let mut text = String::new();
        for rule in 0..self.rules {
            let (first, bits) = (FIRST + rule, 8 + length(rule));
            // Writing to a string does not fail.
            let _ = match v6 {
                false => writeln!(text, "priority={PRIORITY},ip,nw_dst={first}.0.0.0/{bits} actions=out"),
                true => writeln!(
                    text,
                    "priority={PRIORITY},ipv6,ipv6_dst=2001:db8:{first:02x}00::/{} actions=out",
                    32 + bits
                ),
            };
        }
        text
    }

    /// The rule of a flow.
    #[inline(always)]
    pub(super) fn rule(&self, flow: u32) -> u32 {
        flow % self.rules
    }
}

/// What floods there are. Each lives by rules of its own, which traffic never meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flood {
    /// None.
    None,
    /// One rule asks for a MAC address, and the traffic's packets come each from another one: each makes a megaflow.
    Megaflows,
    /// Networks inside one another that sources and destinations are in, and ranges of ports. How many leading bits a packet's addresses share with theirs is drawn anew
    /// for each: so many masks are wanted. For IPv4 only.
    Masks,
}

/// All networks of [`Flood::Masks`] have these addresses. Each begins with a bit that traffic has not.
const SOURCES: u32 = 0xaaaa_aaaa;
const DESTINATIONS: u32 = 0xd555_5555;
/// The ranges of ports are of sources that share so many bits.
const WITH_PORTS: u32 = 8;
/// Ranges: of so many ports from 2, 4, 8 and so on.
const RANGES: u32 = 15;
const RANGE: u16 = 4;
/// Networks of each address: of each length from 1 on.
const NETWORKS: u32 = 32;

impl Flood {
    /// Its rules, by falling priority.
    pub(super) fn text(self) -> String {
        match self {
            Flood::None => return String::new(),
            Flood::Megaflows => return "priority=200,dl_src=02:66:66:66:66:66 actions=drop\n".to_owned(),
            Flood::Masks => {}
        }
        let network = |address: u32, bits: u32| {
            let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
            format!("{}/{bits}", Ipv4Addr::from(address & !rest))
        };
        let mut text = String::new();
        for n in (1..=RANGES).rev() {
            let (first, last) = (1_u16 << n, (1_u16 << n) + RANGE - 1);
            let (priority, source) = (3000 + n, network(SOURCES, WITH_PORTS));
            // Writing to a string does not fail.
            let _ =
                writeln!(text, "priority={priority},udp,nw_src={source},tp_src={first}-{last} actions=out");
        }
        for (field, address, above) in [("nw_dst", DESTINATIONS, 2000), ("nw_src", SOURCES, 1000)] {
            for bits in (1..=NETWORKS).rev() {
                let (priority, network) = (above + bits, network(address, bits));
                let _ = writeln!(text, "priority={priority},udp,{field}={network} actions=out");
            }
        }
        text
    }

    /// How many rules that are.
    pub(super) fn rules(self) -> u32 {
        match self {
            Flood::None => 0,
            Flood::Megaflows => 1,
            Flood::Masks => RANGES + 2 * NETWORKS,
        }
    }
}

/// An address that shares so many leading bits with this one, and no more.
#[inline(always)]
fn sharing(address: u32, bits: u32, random: u32) -> u32 {
    let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
    let next = rest ^ rest >> 1;
    (address & !rest) | (!address & next) | (random & rest >> 1)
}

/// Writes frames of flows.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    traffic: Traffic,
    flood: Flood,
    v6: bool,
    template: [u8; LONGEST],
    seed: u64,
}

/// Any of these last bits, for each number of so many bits others.
#[inline(always)]
fn scattered(n: u32, bits: u32) -> u32 {
    // Odd factors and shifts are undone by others: a bijection (MurmurHash3's end).
    let n = (n ^ n >> 16).wrapping_mul(0x85eb_ca6b) & bits;
    let n = (n ^ n >> 13).wrapping_mul(0xc2b2_ae35) & bits;
    n ^ n >> 16
}

impl Frames {
    pub(super) fn new(traffic: Traffic, flood: Flood, v6: bool, seed: u64) -> Result<Self> {
        let mut template = [0; LONGEST];
        template[..12].copy_from_slice(&MACS);
        template[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        let at = if v6 {
            let payload = FRAME6 - 14 - ipv6::HEADER_LEN;
            let any = Ipv6Addr::UNSPECIFIED;
            let header = ipv6::Repr::new(any, any, Protocol::UDP, payload);
            header.emit(&mut template[14..]).context("the frame")?;
            14 + ipv6::HEADER_LEN
        } else {
            let payload = FRAME4 - 14 - ipv4::HEADER_LEN;
            let any = Ipv4Addr::UNSPECIFIED;
            // What the addresses add to the checksum the identification takes away.
            let header = ipv4::Repr { ident: 0xffff, ..ipv4::Repr::new(any, any, Protocol::UDP, payload) };
            header.emit(&mut template[14..]).context("the frame")?;
            14 + ipv4::HEADER_LEN
        };
        let end = if v6 { FRAME6 } else { FRAME4 };
        template[at + 4..at + 6].copy_from_slice(&((end - at) as u16).to_be_bytes());
        Ok(Frames { traffic, flood, v6, template, seed })
    }

    /// The place of a flow's rule among all of them: the flood's are before those of the traffic.
    #[inline(always)]
    pub(super) fn rule(&self, flow: u32) -> u32 {
        self.flood.rules() + self.traffic.rule(flow)
    }

    /// All rules, the flood's too.
    pub(super) fn rules(&self) -> u32 {
        self.flood.rules() + self.traffic.rules
    }

    /// The length of a frame.
    pub(super) fn len(&self) -> usize {
        if self.v6 { FRAME6 } else { FRAME4 }
    }

    /// Writes the frame of a flow; `bytes` are as long as one. No two flows have the same source address. UDP has no checksum: nobody looks at it.
    #[inline(always)]
    pub(super) fn write(&self, flow: u32, bytes: &mut [u8]) {
        let rule = self.traffic.rule(flow);
        let bits = mix(u64::from(flow) ^ self.seed << 32);
        let open = u32::MAX >> (8 + length(rule));
        let destination = (FIRST + rule) << 24 | bits as u32 & open;
        // The flood's networks begin with the other bit: then each of the traffic's rules is one mask.
        let source = scattered(flow, if self.flood == Flood::Masks { u32::MAX >> 1 } else { u32::MAX });
        let ports = ((bits >> 32) as u32 | 0x0400_0400).to_be_bytes();
        if self.v6 {
            let Some(bytes) = bytes.first_chunk_mut::<FRAME6>() else { return };
            bytes.copy_from_slice(&self.template[..FRAME6]);
            bytes[22..26].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
            bytes[34..38].copy_from_slice(&source.to_be_bytes());
            bytes[38..42].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
            bytes[42..46].copy_from_slice(&destination.to_be_bytes());
            bytes[54..58].copy_from_slice(&ports);
            return;
        }
        self.write4([source, destination], ports, bytes);
    }

    #[inline(always)]
    fn write4(&self, [source, destination]: [u32; 2], ports: [u8; 4], bytes: &mut [u8]) {
        let Some(bytes) = bytes.first_chunk_mut::<FRAME4>() else { return };
        bytes.copy_from_slice(&self.template[..FRAME4]);
        bytes[26..30].copy_from_slice(&source.to_be_bytes());
        bytes[30..34].copy_from_slice(&destination.to_be_bytes());
        bytes[34..38].copy_from_slice(&ports);
        let halves = |address: u32| (address >> 16) + (address & 0xffff);
        let sum = halves(source) + halves(destination);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        bytes[18..20].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }

    /// A frame of the flood, for each number another one. Returns the place of its rule.
    #[inline(always)]
    pub(super) fn write_flood(&self, number: u64, bytes: &mut [u8]) -> u32 {
        if self.flood == Flood::Masks {
            return self.write_masks(number, bytes);
        }
        let flow = number as u32 % self.traffic.flows;
        self.write(flow, bytes);
        self.write_source(number, bytes);
        self.rule(flow)
    }

    /// Addresses that share any number of bits with the networks', the source at least one; any ports.
    #[inline(always)]
    fn write_masks(&self, number: u64, bytes: &mut [u8]) -> u32 {
        let (drawn, random) = (mix(number), mix(!number));
        let (in_source, in_destination) = (1 + (drawn as u32 & 31), (drawn >> 32) as u32 % (NETWORKS + 1));
        let source = sharing(SOURCES, in_source, random as u32);
        let destination = sharing(DESTINATIONS, in_destination, (random >> 32) as u32);
        let [port, other] = [(drawn >> 5) as u16, (drawn >> 16) as u16];
        let [a, b] = port.to_be_bytes();
        let [c, d] = other.to_be_bytes();
        self.write4([source, destination], [a, b, c, d], bytes);
        // A port that is in two ranges is of the one that begins at its highest bit.
        let range = port.checked_ilog2().filter(|&n| n > 0 && port - (1_u16 << n) < RANGE);
        match range {
            Some(n) if in_source >= WITH_PORTS => RANGES - n,
            _ if in_destination > 0 => RANGES + NETWORKS - in_destination,
            _ => RANGES + 2 * NETWORKS - in_source,
        }
    }

    /// A source that never was before: its MAC address has the number.
    #[inline(always)]
    fn write_source(&self, number: u64, bytes: &mut [u8]) {
        let Some(mac) = bytes.get_mut(6..12) else { return };
        // A local address, no group's; a bijection on what is left of 40 bits.
        let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1) & 0xff_ffff_ffff;
        mac.copy_from_slice(&(0x0600_0000_0000 | scattered).to_be_bytes()[2..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tidemill_classify::{Field, packet};

    #[test]
    fn a_flows_frame_is_whole_and_of_its_rule() {
        for v6 in [false, true] {
            let traffic = TRAFFIC[4];
            let frames = Frames::new(traffic, Flood::Megaflows, v6, 7).unwrap();
            let mut bytes = [0; LONGEST];
            let bytes = &mut bytes[..frames.len()];
            let mut keys = HashSet::new();
            for flow in (0..2000).chain([traffic.flows - 1]) {
                frames.write(flow, bytes);
                let (key, layers) = packet::parse(bytes, 1).unwrap();
                assert!(layers.transport.is_some());
                if !v6 {
                    assert!(ipv4::checksum_ok(&bytes[14..34]), "{flow}");
                }
                let destination = match v6 {
                    false => key.get(Field::Ipv4Destination) as u32,
                    true => (key.get(Field::Ipv6Destination) >> 64) as u32,
                };
                let rule = traffic.rule(flow);
                assert_eq!(destination >> (31 - 8 - rule), (FIRST + rule) << (1 + rule), "{flow}");
                assert!(keys.insert(key));
                frames.write_flood(flow.into(), bytes);
                assert!(keys.insert(packet::key(bytes, 1).unwrap()));
            }
        }
    }
}
