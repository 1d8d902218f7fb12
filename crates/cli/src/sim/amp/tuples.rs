//! `tok-5.3.3`: what coarser tuples bring and cost (Tokusashi 2019, 5.3.3, which weighs them in words), on real traffic.
//!
//! Attacks: recorded reflections (SNMP, IKE), ten times over as in the paper's mixture (5.4.3), for each has hardly more than a packet of each amplifier; and, where amplifier and victim also talk with each other, reflections off
//! a real root server to some of its own clients, made of its recorded responses. With each goes the server's real traffic. The
//! decisions are the mitigator's own ([`tidemill_amp::Mitigator`]); a victim answers each packet that passes with an ICMP message, a round trip
//! later. Times are those of the captures.

use super::answer::port_unreachable;
use super::{Amp, Figure, named_points};
use crate::bench::drawing::{Drawing, Panel};
use crate::sim::captures::{Captured, Captures};
use crate::usage;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use tidemill_amp::config::ProtocolItem;
use tidemill_amp::{Counter, Mitigator, MitigatorSection, Settings, Side};
use tidemill_wire::{Protocol, checksum, ipv4, ipv6, ipv6_ext, udp};

/// DNS.
const DNS: u16 = 53;
/// The captures, by the ends of their paths below the data's folder.
const SERVER: &str = "dns/lroot-knot-live.pcap.xz";
const SNMP: &str = "ddos/amp.UDP.snmp.src161.pcapng.zst";
const IKE: &str = "ddos/amp.UDP.isakmp.pcap.zst";
/// Of the server's clients every so many is attacked.
const EVERY_CLIENT: usize = 10;
/// Ports of a victim that an attacker uses.
const PORTS: u16 = 20;
/// How often everything comes again.
const ROUNDS: u64 = 10;
/// The clock at the first packet: not zero.
const START_NS: u64 = 1_000_000_000_000;
/// Room for every flow there is.
const ENTRIES: usize = 65_536;
const MODES: [u8; 4] = [4, 3, 2, 1];
const NAMES: [&str; 4] = ["4-tuple", "3-tuple", "2-tuple", "1-tuple"];
/// Any secret will do.
const SECRET: u128 = 0x7469_6465;

/// A packet on one of the mitigator's sides.
#[derive(Debug, Clone)]
struct Event {
    at_ns: u64,
    side: Side,
    frame: Vec<u8>,
    attack: bool,
}

/// The UDP header in an IP packet that is no fragment.
#[derive(Debug, Clone, Copy)]
struct Datagram {
    at: usize,
    source: IpAddr,
    destination: IpAddr,
    source_port: u16,
    destination_port: u16,
}

impl Datagram {
    fn read(ip: &[u8]) -> Option<Datagram> {
        let (at, source, destination) = if ipv4::version(ip) == 4 {
            let packet = ipv4::Packet::new_header_checked(ip).ok()?;
            (packet.protocol() == Protocol::UDP && !packet.is_fragment()).then_some(())?;
            (packet.header_len(), packet.src().into(), packet.dst().into())
        } else {
            let packet = ipv6::Packet::new_header_checked(ip).ok()?;
            let walk = ipv6_ext::walk(ip).ok()?;
            (walk.upper == Protocol::UDP && !walk.is_fragment()).then_some(())?;
            (walk.upper_offset, packet.src().into(), packet.dst().into())
        };
        let header = udp::Packet::new_unchecked(ip.get(at..at + udp::HEADER_LEN)?);
        let (source_port, destination_port) = (header.src_port(), header.dst_port());
        Some(Datagram { at, source, destination, source_port, destination_port })
    }

    /// The packet with another destination port.
    fn to_port(self, ip: &[u8], port: u16) -> Vec<u8> {
        let mut ip = ip.to_vec();
        if let Some(header) = ip.get_mut(self.at..self.at + udp::HEADER_LEN) {
            let mut header = udp::Packet::new_unchecked(header);
            let before = header.checksum();
            header.set_dst_port(port);
            if before != 0 {
                let updated = checksum::update_u16(before, self.destination_port, port);
                header.set_checksum(checksum::for_udp(before, updated));
            }
        }
        ip
    }
}

fn frame(ip: &[u8]) -> Vec<u8> {
    let ethertype: u16 = if ipv4::version(ip) == 6 { 0x86dd } else { 0x0800 };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ethertype.to_be_bytes()[..], ip].concat()
}

/// Packets of a capture with their times from the first one on.
fn packets(captures: &Captures) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
    captures.read(|_, Captured { timestamp_ns, ip }| packets.push((*timestamp_ns, ip.to_vec())))?;
    let first = packets.iter().map(|(at_ns, _)| *at_ns).min().unwrap_or(0);
    packets.iter_mut().for_each(|(at_ns, _)| *at_ns -= first);
    Ok(packets)
}

/// A server's traffic: its clients are inside, it is outside.
struct Server {
    events: Vec<Event>,
    /// The longest response to each client.
    responses: BTreeMap<IpAddr, Vec<u8>>,
    /// Ports of clients that have responses.
    used: BTreeSet<(IpAddr, u16)>,
    length_ns: u64,
}

impl Server {
    fn of(packets: Vec<(u64, Vec<u8>)>) -> Result<Self> {
        let datagrams = packets.iter().map(|(_, ip)| Datagram::read(ip));
        let datagrams: Vec<Option<Datagram>> = datagrams.collect();
        let mut asked: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for datagram in datagrams.iter().flatten().filter(|datagram| datagram.destination_port == DNS) {
            *asked.entry(datagram.destination).or_default() += 1;
        }
        // A server may have an address of each family: those that are asked at least a tenth as much as the one asked most.
        let most = asked.values().max().copied().unwrap_or(0);
        let servers: BTreeSet<IpAddr> =
            asked.into_iter().filter(|(_, count)| *count * 10 >= most).map(|(address, _)| address).collect();
        if servers.is_empty() {
            return Err(usage("--capture: nobody is asked by DNS in it: give the capture of a DNS server"));
        }
        let mut server =
            Server { events: Vec::new(), responses: BTreeMap::new(), used: BTreeSet::new(), length_ns: 0 };
        for ((at_ns, ip), datagram) in packets.into_iter().zip(datagrams) {
            let question = datagram.is_some_and(|datagram| servers.contains(&datagram.destination));
            let response =
                datagram.filter(|datagram| servers.contains(&datagram.source) && datagram.source_port == DNS);
            if let Some(datagram) = response {
                server.used.insert((datagram.destination, datagram.destination_port));
                let longest = server.responses.entry(datagram.destination).or_default();
                if longest.len() < ip.len() {
                    longest.clone_from(&ip);
                }
            }
            let side = if question { Side::Inside } else { Side::Outside };
            server.events.push(Event { at_ns, side, frame: frame(&ip), attack: false });
            server.length_ns = server.length_ns.max(at_ns);
        }
        Ok(server)
    }

    /// Reflections off the server to some of its clients, to ports that the client has not used.
    fn reflections(&self) -> Vec<Event> {
        let victims: Vec<(&IpAddr, &Vec<u8>)> = self.responses.iter().step_by(EVERY_CLIENT).collect();
        let all = victims.len() as u64 * u64::from(PORTS) * ROUNDS;
        let (mut events, mut sent) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            for number in 0..PORTS {
                for (victim, response) in &victims {
                    let Some(datagram) = Datagram::read(response) else { continue };
                    // Not one that it has used itself.
                    let mut port = 20_000 + number * 7;
                    while self.used.contains(&(**victim, port)) {
                        port += 1;
                    }
                    let ip = datagram.to_port(response, port);
                    let at_ns = self.length_ns * sent / all.max(1);
                    events.push(Event { at_ns, side: Side::Outside, frame: frame(&ip), attack: true });
                    sent += 1;
                }
            }
        }
        events
    }
}

/// The packets of a recorded reflection from this port, in rounds that begin at even distances within `length_ns`.
fn recorded(packets: Vec<(u64, Vec<u8>)>, port: u16, length_ns: u64) -> Vec<Event> {
    let is_attack = |ip: &[u8]| Datagram::read(ip).is_some_and(|datagram| datagram.source_port == port);
    let packets: Vec<(u64, Vec<u8>)> = packets.into_iter().filter(|(_, ip)| is_attack(ip)).collect();
    let event = |round: u64, (at_ns, ip): &(u64, Vec<u8>)| {
        let at_ns = round * length_ns / ROUNDS + at_ns;
        Event { at_ns, side: Side::Outside, frame: frame(ip), attack: true }
    };
    (0..ROUNDS).flat_map(|round| packets.iter().map(move |packet| event(round, packet))).collect()
}

/// What became of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Score {
    rules: u64,
    attack: u64,
    attack_passed: u64,
    others: u64,
    others_lost: u64,
}

/// Plays events, which are in order. With `questions` false those packets from inside take another way, past the mitigator.
fn play(
    events: &[Event],
    tuple: u8,
    protocols: &[u16],
    questions: bool,
    round_trip_ns: u64,
) -> Result<Score> {
    let protocols = protocols.iter().map(|port| ProtocolItem::Port(*port)).collect();
    let section = MitigatorSection { tuple, protocols, icmp_rate: 0, ..MitigatorSection::default() };
    let settings = Settings::new(&section)?;
    let mut mitigator = Mitigator::new(ENTRIES, SECRET)?;
    let mut score = Score::default();
    // The victims' messages on their way.
    let mut messages: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    let mut passes = |now_ns: u64, side: Side, frame: &[u8]| {
        let mut dropped = false;
        mitigator.decide(&settings, now_ns, &[frame], |frame| (side, frame), |_| dropped = true);
        mitigator.tick(&settings, now_ns);
        (!dropped, mitigator.counters().get(Counter::Rules))
    };
    for Event { at_ns, side, frame, attack } in events {
        let now_ns = START_NS + at_ns;
        while let Some((_, message)) = messages.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
            passes(now_ns, Side::Inside, &message);
        }
        if *side == Side::Inside && !questions {
            continue;
        }
        let (passed, rules) = passes(now_ns, *side, frame);
        score.rules = score.rules.max(rules);
        if *attack {
            score.attack += 1;
            score.attack_passed += u64::from(passed);
            if let Some(message) = port_unreachable(&frame[14..]).filter(|_| passed) {
                messages.push_back((now_ns + round_trip_ns, message));
            }
        } else {
            score.others += 1;
            score.others_lost += u64::from(!passed);
        }
    }
    Ok(score)
}

/// An attack with a server's traffic.
struct Scenario {
    name: &'static str,
    events: Vec<Event>,
    protocols: Vec<u16>,
    questions: bool,
}

fn mixed(server: &Server, mut attack: Vec<Event>) -> Vec<Event> {
    attack.extend(server.events.iter().cloned());
    attack.sort_by_key(|event| event.at_ns);
    attack
}

/// The attacks: those on record, if they are there, and reflections off the server.
fn scenarios(args: &Amp, figure: &Figure) -> Result<Vec<Scenario>> {
    let only = |end: &str| packets(&Captures::find(&args.captures, figure.name)?.only(end));
    let server = Server::of(only(SERVER)?)?;
    let mut scenarios = Vec::new();
    if args.captures.is_empty() {
        for (name, file, port) in [("SNMP, recorded", SNMP, 161), ("IKE, recorded", IKE, 4500)] {
            let events = mixed(&server, recorded(only(file)?, port, server.length_ns));
            scenarios.push(Scenario { name, events, protocols: vec![DNS, port], questions: true });
        }
    }
    let events = mixed(&server, server.reflections());
    for (name, questions) in
        [("DNS, to clients of the server", true), ("the same, questions not seen", false)]
    {
        scenarios.push(Scenario { name, events: events.clone(), protocols: vec![DNS], questions });
    }
    Ok(scenarios)
}

/// `tok-5.3.3`.
pub(super) fn figure(args: &Amp, figure: &'static Figure) -> Result<Drawing> {
    let scenarios = scenarios(args, figure)?;
    let round_trip_ns = (args.rtt_ms * 1e6) as u64;
    let (mut scores, mut notes) = (Vec::new(), Vec::new());
    for Scenario { name, events, protocols, questions } in &scenarios {
        let play = |mode: &u8| play(events, *mode, protocols, *questions, round_trip_ns);
        let by_mode = MODES.iter().map(play).collect::<Result<Vec<Score>>>()?;
        let Score { attack, others, .. } = by_mode[0];
        notes.push(format!("{name}: {attack} packets of the attack, {others} others"));
        scores.push((*name, by_mode));
    }
    let panel = |y: &str, of: fn(&Score) -> f64| {
        let row = |(name, by_mode): &(&str, Vec<Score>)| {
            named_points(
                *name,
                NAMES.into_iter().zip(by_mode.iter().map(of)).map(|(mode, y)| (mode, y, None)),
            )
        };
        Panel::new("what a rule is about", y, scores.iter().map(row).collect())
    };
    let panels = vec![
        panel("rules at most", |score| score.rules as f64),
        panel("packets of the attack that passed", |score| score.attack_passed as f64),
        panel("percent of the attack removed", |score| {
            100.0 - 100.0 * score.attack_passed as f64 / score.attack.max(1) as f64
        }),
        panel("other packets lost", |score| score.others_lost as f64),
    ];
    notes.push("the paper weighs the modes in words and gives no numbers: fewer parts, fewer entries, more false positives".into());
    Ok(Drawing { panels, notes, ..figure.drawing() })
}
