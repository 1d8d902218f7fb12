//! Ports in memory, frames, and a router to throw them at.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of this module

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Engine, Fate, Limits, Observer, Options, Snapshot};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort, Sent};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes, graph};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{EtherType, MacAddr, Protocol, ethernet, icmpv4, icmpv6, ipv4, ipv6};

/// What became of the frames.
pub struct Run {
    pub snapshot: Snapshot,
    /// Frames sent, by port.
    pub sent: Vec<Vec<Vec<u8>>>,
    /// Fates in order.
    pub fates: Vec<Fate>,
    pub control: RouterControl,
}

impl Run {
    /// The names of the drop reasons with their counts, `reason=n`, in the order of their names.
    pub fn drops(&self) -> String {
        let ledger = self.snapshot.ledger();
        let texts: Vec<_> = ledger.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
        texts.join(" ")
    }

    /// The books balance and every frame is home: nodes that waited for something gave it up.
    pub fn check(&self) {
        let ledger = self.snapshot.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        let pool = self.snapshot.pool;
        assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
    }
}

#[derive(Clone, Default)]
struct Fates(Arc<Mutex<Vec<Fate>>>);

impl Observer for Fates {
    fn received(&mut self, _: u64, _: usize, _: &[Packet]) {}
    fn fate(&mut self, fate: Fate, _: &Packet) {
        self.0.lock().unwrap().push(fate);
    }
}

/// A routing table from text: `prefix label` pairs.
pub fn routes<A: tidemill_lpm::Family>(list: &[(&str, u32)]) -> Routes<A> {
    let rib: Rib<A> = list.iter().map(|(p, l)| (p.parse::<Prefix<A>>().unwrap(), Label(*l))).collect();
    Routes { rib, names: Vec::new() }
}

/// A router on ports `lan` and `wan`.
pub struct Router {
    pub control: RouterControl,
    pub domain: Domain,
}

impl Router {
    pub fn new(config: &str, v4: Routes<u32>, v6: Routes<u128>) -> Self {
        let config: RouterConfig = toml::from_str(config).unwrap();
        let domain = Domain::new();
        let ports = [PortInfo::new("lan"), PortInfo::new("wan")];
        let control = RouterControl::new(&config, &ports, v4, v6, &domain).unwrap();
        Router { control, domain }
    }

    /// Receives `frames` on `lan` and runs until they are through.
    pub fn run(self, frames: Vec<Frame>) -> Run {
        self.run_with(frames, 512, |_| {})
    }

    /// The same with so many frames of memory, and something done at each burst boundary.
    pub fn run_with(
        self,
        frames: Vec<Frame>,
        memory_frames: usize,
        mut boundary: impl FnMut(&mut RouterControl) + Send,
    ) -> Run {
        let Router { mut control, domain } = self;
        let ports = [MemoryPort::new("lan", [frames]), MemoryPort::new("wan", [])];
        let outputs = ports.each_ref().map(MemoryPort::sent);
        let ports = ports.map(|port| vec![Box::new(port) as Box<dyn Port>]);
        let memory = Memory::new(memory_frames, 16384).unwrap();
        let options = Options {
            clock: Clock::Capture,
            frames_per_worker: memory_frames,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let built = graph(&control).build().unwrap();
        let mut engine = Engine::new(built, 1, ports.into(), &memory, &domain, options).unwrap();
        let fates = Fates::default();
        engine.observe(0, Box::new(fates.clone()));
        let outcome = engine.run(|_| boundary(&mut control));
        assert!(outcome.errors.is_empty());
        let run = Run {
            snapshot: outcome.snapshot,
            sent: outputs.iter().map(Sent::frames).collect(),
            fates: fates.0.lock().unwrap().clone(),
            control,
        };
        run.check();
        run
    }
}

/// `lan`'s MAC address: frames to it are for us.
pub const LAN: MacAddr = MacAddr([0x02, 0x49, 0, 0, 0, 0]);
/// `wan`'s MAC address.
pub const WAN: MacAddr = MacAddr([0x02, 0x49, 0, 0, 0, 1]);
/// Some host's.
pub const HOST: MacAddr = MacAddr([0x02, 0xaa, 0, 0, 0, 9]);

/// Puts an Ethernet header in front and pads to 60 bytes.
pub fn frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    ethernet::Repr { dst, src: HOST, ethertype }.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// An IPv4 packet; `edit` may change the header before its checksum is filled in.
pub fn ip4(
    src: &str,
    dst: &str,
    protocol: Protocol,
    payload: &[u8],
    edit: impl FnOnce(&mut ipv4::Packet<&mut Vec<u8>>),
) -> Vec<u8> {
    let (src, dst): (Ipv4Addr, Ipv4Addr) = (src.parse().unwrap(), dst.parse().unwrap());
    let mut bytes = vec![0; 20];
    ipv4::Repr::new(src, dst, protocol, payload.len()).emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    let mut packet = ipv4::Packet::new_unchecked(&mut bytes);
    packet.set_fragment(false, false, 0);
    edit(&mut packet);
    packet.fill_checksum();
    bytes
}

/// A UDP datagram below this pseudo header.
pub fn udp(pseudo: Pseudo, data: &[u8]) -> Vec<u8> {
    let len = (8 + data.len()) as u16;
    let mut bytes = [[0x30, 0x39, 0x00, 0x35], [(len >> 8) as u8, len as u8, 0, 0]].concat();
    bytes.extend_from_slice(data);
    let check = pseudo.checksum(Protocol::UDP, &bytes);
    bytes[6..8].copy_from_slice(&check.to_be_bytes());
    bytes
}

/// A TCP segment below this pseudo header; `flags` is the header's byte of them.
pub fn tcp(pseudo: Pseudo, port: u16, seq: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = [port.to_be_bytes(), 443u16.to_be_bytes()].concat();
    bytes.extend(seq.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0x50, flags, 2, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(data);
    let check = pseudo.checksum(Protocol::TCP, &bytes);
    bytes[16..18].copy_from_slice(&check.to_be_bytes());
    bytes
}

/// A whole frame with an IPv4 UDP packet to us, `edit`ed.
pub fn udp4(
    src: &str,
    dst: &str,
    data: &[u8],
    edit: impl FnOnce(&mut ipv4::Packet<&mut Vec<u8>>),
) -> Vec<u8> {
    let pseudo = Pseudo::V4 { src: src.parse().unwrap(), dst: dst.parse().unwrap() };
    frame(LAN, EtherType::IPV4, &ip4(src, dst, Protocol::UDP, &udp(pseudo, data), edit))
}

/// An IPv6 packet.
pub fn ip6(
    src: &str,
    dst: &str,
    next_header: Protocol,
    payload: &[u8],
    edit: impl FnOnce(&mut ipv6::Packet<&mut Vec<u8>>),
) -> Vec<u8> {
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (src.parse().unwrap(), dst.parse().unwrap());
    let mut bytes = vec![0; 40];
    ipv6::Repr::new(src, dst, next_header, payload.len()).emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    edit(&mut ipv6::Packet::new_unchecked(&mut bytes));
    bytes
}

/// A whole frame with an IPv6 UDP packet to us, `edit`ed.
pub fn udp6(
    src: &str,
    dst: &str,
    data: &[u8],
    edit: impl FnOnce(&mut ipv6::Packet<&mut Vec<u8>>),
) -> Vec<u8> {
    let pseudo = Pseudo::V6 { src: src.parse().unwrap(), dst: dst.parse().unwrap() };
    frame(LAN, EtherType::IPV6, &ip6(src, dst, Protocol::UDP, &udp(pseudo, data), edit))
}

/// An ICMP message with its checksum.
pub fn icmp4(repr: icmpv4::Repr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; 8], payload].concat();
    repr.emit(&mut bytes).unwrap();
    bytes
}

/// An ICMPv6 message with its checksum.
pub fn icmp6(src: &str, dst: &str, repr: icmpv6::Repr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; 8], payload].concat();
    let pseudo = Pseudo::V6 { src: src.parse().unwrap(), dst: dst.parse().unwrap() };
    repr.emit(&mut bytes, &pseudo).unwrap();
    bytes
}

/// An input of these bytes at time 0.
pub fn input(bytes: Vec<u8>) -> Frame {
    Frame { bytes, ..Frame::default() }
}
