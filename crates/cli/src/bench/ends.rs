//! What benchmarks of whole roles have in common: the shortest frames, a port that takes what comes, a run from one port to the other, and the bound, a bridge that looks at nothing.

use anyhow::{Context as _, Result, bail};
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_burst::{Burst, Memory, Packet, Pool};
use tidemill_graph::{
    Clock, Context, Engine, Graph, GraphBuilder, Handle, Ledger, Limits, Node, Options, Verdict,
};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ipv4, ipv6, udp};

/// The ports' names.
pub(super) const PORTS: [&str; 2] = ["front", "back"];
/// Bytes of a frame, without its check sequence.
pub(super) const FRAME: usize = 60;
/// The same of IPv6: the shortest that UDP can have there.
pub(super) const FRAME6: usize = 62;

/// Where the packets go.
pub(super) const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Where those of IPv6 go.
pub(super) const DESTINATION6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);

/// Packet memory.
const FRAMES: usize = 8192;
const FRAME_SIZE: usize = 2048;

/// The shortest UDP frame from port 12345 to port 80 of `destination`, with a source of zero and an identification that takes up the difference.
pub(super) fn frame(destination: Ipv4Addr) -> Result<[u8; FRAME]> {
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[2, 0x49, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0]);
    let payload = FRAME - 14 - ipv4::HEADER_LEN;
    let header = ipv4::Repr {
        ident: 0xffff,
        ..ipv4::Repr::new(Ipv4Addr::UNSPECIFIED, destination, Protocol::UDP, payload)
    };
    header.emit(&mut frame[14..]).context("the frame")?;
    let datagram = &mut frame[14 + ipv4::HEADER_LEN..];
    datagram[..4].copy_from_slice(&[0x30, 0x39, 0x00, 0x50]);
    datagram[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    Ok(frame)
}

/// Makes a packet of such a frame, with this source.
#[inline(always)]
pub(super) fn write(frame: &[u8; FRAME], source: u32, packet: &mut Packet) {
    packet.set_len(FRAME);
    let Some(bytes) = packet.data_mut().first_chunk_mut::<FRAME>() else { return };
    *bytes = *frame;
    bytes[26..30].copy_from_slice(&source.to_be_bytes());
    // Identification and source add up to what they were.
    let sum = (source >> 16) + (source & 0xffff);
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[18..20].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// The shortest UDP frame of IPv6 between the same ports, from the first source.
pub(super) fn frame6(destination: Ipv6Addr) -> Result<[u8; FRAME6]> {
    let mut frame = [0; FRAME6];
    frame[..14].copy_from_slice(&[2, 0x49, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]);
    let (ip, datagram) = frame[14..].split_at_mut(ipv6::HEADER_LEN);
    let source = Ipv6Addr::from(source6(0));
    let header = ipv6::Repr::new(source, destination, Protocol::UDP, datagram.len());
    header.emit(ip).context("the frame")?;
    let udp = udp::Repr { src_port: 12_345, dst_port: 80, payload_len: 0 };
    udp.emit(datagram, &Pseudo::V6 { src: source, dst: destination }).context("the frame")?;
    Ok(frame)
}

/// Makes a packet of such a frame, with this source of [`source6`].
#[inline(always)]
pub(super) fn write6(frame: &[u8; FRAME6], source: u128, packet: &mut Packet) {
    packet.set_len(FRAME6);
    let Some(bytes) = packet.data_mut().first_chunk_mut::<FRAME6>() else { return };
    *bytes = *frame;
    bytes[22..38].copy_from_slice(&source.to_be_bytes());
}

/// The source of flow number `n`: any 32 bits, each number another.
pub(super) fn source(n: u32) -> u32 {
    // Odd factors and shifts are undone by others: a bijection (MurmurHash3's end).
    let n = (n ^ n >> 16).wrapping_mul(0x85eb_ca6b);
    let n = (n ^ n >> 13).wrapping_mul(0xc2b2_ae35);
    n ^ n >> 16
}

/// The same of IPv6: all add up to the same, so that one UDP checksum is right for all.
pub(super) fn source6(n: u32) -> u128 {
    let n = source(n);
    let sum = (n >> 16) + (n & 0xffff);
    let sum = (sum & 0xffff) + (sum >> 16);
    0x2001_0db8 << 96 | u128::from(!(sum as u16)) << 32 | u128::from(n)
}

/// The back: takes what comes.
#[derive(Default)]
pub(super) struct Back(PortCounters);

impl Port for Back {
    fn name(&self) -> &str {
        PORTS[1]
    }

    fn rx(&mut self, _: u64, _: &mut Pool, _: &mut Burst) -> Result<RxStatus, PortError> {
        Ok(RxStatus::Ended)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.0.tx.packets += burst.len() as u64;
        self.0.tx.bytes += burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.0
    }
}

/// The bridge's node.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

/// The bridge: everything to the back.
pub(super) fn bridge() -> GraphBuilder {
    let mut graph = GraphBuilder::new(PORTS);
    graph.node("on", ["on"], |_| Box::new(Pass)).input(PORTS[0], "on").input(PORTS[1], "on");
    graph.edge("on", "on", "port:back");
    graph
}

/// A router of this configuration between the ports, to which no address is a martian.
pub(super) fn router(config: &str, domain: &Domain) -> Result<RouterControl> {
    let mut config: RouterConfig = toml::from_str(config).context("the router's configuration")?;
    config.router.martians = tidemill_ip::Martians::Off;
    let port = |name: &&str| PortInfo {
        name: (*name).into(),
        capture: false,
        device: None,
        interface: String::new(),
    };
    let ports: Vec<PortInfo> = PORTS.iter().map(port).collect();
    Ok(RouterControl::new(&config, &ports, Routes::default(), Routes::default(), domain)?)
}

/// Says it where a worker was not on its CPU: then its rate is that of wherever it was put.
pub(super) fn warn_unbound(handle: &Handle) {
    for unbound in (0..handle.seats().len()).filter_map(|worker| handle.unbound(worker)) {
        eprintln!("tidemill: warning: {unbound}");
    }
}

/// Runs a graph on one worker until both ports have ended; its books, which balance.
pub(super) fn ran(graph: Graph, ports: [Box<dyn Port>; 2], domain: &Domain) -> Result<Ledger> {
    let memory = Memory::new(FRAMES, FRAME_SIZE).context("packet memory")?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let queues = ports.into_iter().map(|port| vec![port]).collect();
    let engine = Engine::new(graph, 1, queues, &memory, domain, options)?;
    let handle = engine.handle();
    let outcome = engine.run(|_| {});
    warn_unbound(&handle);
    if let Some(error) = outcome.errors.into_iter().next() {
        return Err(error.into());
    }
    let ledger = outcome.snapshot.ledger();
    if !ledger.balances() {
        bail!("the books do not balance: in {}, out {}", ledger.received, ledger.out);
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_wire::verify_checksums;

    #[test]
    fn one_frame_is_right_for_all_sources() {
        let mut pool = Memory::new(16, FRAME_SIZE).unwrap().pool(16).unwrap();
        let mut packet = pool.take().unwrap();
        let (four, six) = (frame(DESTINATION).unwrap(), frame6(DESTINATION6).unwrap());
        for n in (0..1000).chain([0xffff, 0x1_0000, u32::MAX]) {
            write(&four, source(n), &mut packet);
            assert_eq!(packet.data()[26..30], source(n).to_be_bytes());
            verify_checksums(packet.data()).unwrap();
            write6(&six, source6(n), &mut packet);
            assert_eq!(packet.data()[22..38], source6(n).to_be_bytes());
            verify_checksums(packet.data()).unwrap();
        }
        pool.free(packet);
    }
}
