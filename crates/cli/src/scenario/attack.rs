//! Attacks: frames that the kernel makes itself, millions a second (`bpf/attack.bpf.c`), on a thread of a low priority.

use super::file::{Attack, Network, Shape};
use super::lab::Lab;
use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidemill_bpf::{Kernel, Object, Source, to_io};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ipv4, ipv6, tcp, udp};

static ATTACK: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/attack.bpf.o"),
    program: "tidemill_attack",
    minimum: Kernel(5, 18),
    layout: 1,
    shared: &[],
};

/// By which an attack may be behind its time and make up for it: no more than what rings on the way have room for.
const LATE_NS: u64 = 1_000_000;
/// How long one call into the kernel takes, about. Setting one up costs time in which nothing is sent.
const CALL: Duration = Duration::from_millis(700);
/// Below so many packets a second an attack is slow.
const SLOW_PPS: u64 = 100_000;
/// Frames of the first call.
const FIRST: u32 = 1 << 18;
/// Where attacks of datagrams go to: nobody listens there.
const PORT: u16 = 9;

/// Attacks at work.
pub(super) struct Attacks {
    threads: Vec<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
    /// Packets that were made.
    pub(super) offered: Arc<AtomicU64>,
}

impl Attacks {
    /// None yet.
    pub(super) fn new() -> Attacks {
        Attacks { threads: Vec::new(), stop: Arc::default(), offered: Arc::default() }
    }

    /// Begins these.
    pub(super) fn begin(
        &mut self,
        attacks: &[Attack],
        lab: &Lab,
        network: &Network,
        cpu: usize,
    ) -> Result<()> {
        self.stop = Arc::default();
        for attack in attacks {
            let behind = attack.shape == Shape::ForgeryBehind;
            // Where it is sent from, and who is at the other end.
            let (ns, from, other, to) = match behind {
                false => (&lab.internet, "eth0", &lab.gate, "tm-wan"),
                true => (&lab.grantor, "tm-up", &lab.gate, "tm-lan"),
            };
            let (index, mac) = ns.device(from)?;
            let frame = frame(attack, network, other.device(to)?.1, mac)?;
            let state = state(attack);
            let (stop, offered) = (self.stop.clone(), self.offered.clone());
            // It moves into the namespace for good; the descriptor outlives it, for `end` comes first.
            let inside = ns.descriptor()?;
            self.threads.push(std::thread::spawn(move || {
                crate::netns::move_in(&inside)?;
                work(&frame, index, state, cpu, &stop, &offered)
            }));
        }
        Ok(())
    }

    /// Ends them.
    pub(super) fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    }

    /// Whether one has given up.
    pub(super) fn failed(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && self.threads.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Attacks {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// As `struct attack`: gap, late, until, varies, sources, due, serial.
fn state(attack: &Attack) -> [u64; 7] {
    let varies = attack.sources.map_or(0, |net| net.varying() as u64);
    let sources = attack.count.map_or(u64::MAX, |count| count - 1);
    [(1_000_000_000 << 10) / attack.pps, LATE_NS, 0, varies, sources, 0, 0]
}

fn work(
    frame: &[u8],
    index: u32,
    mut state: [u64; 7],
    cpu: usize,
    stop: &AtomicBool,
    offered: &AtomicU64,
) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cpus.attack = {cpu}"))?;
    // All others of the scenario come first. (Of this thread alone: Linux has priorities of threads.)
    // Waiting costs time as well, so a slow attack gets little of it beside a fast one.
    let slow = state[0] > (1_000_000_000 << 10) / SLOW_PPS;
    let priority = super::people::ATTACK[usize::from(slow)];
    rustix::process::setpriority_process(None, priority).context("the attack's priority")?;
    let mut object = Object::load(&ATTACK, &[], None)?;
    let (mut count, mut made) = (FIRST, 0);
    while !stop.load(Ordering::Relaxed) {
        state[2] = tidemill_bpf::coarse_now_ns() + 2 * CALL.as_nanos() as u64;
        object.array::<[u64; 7]>("attack")?.set(0, state, 0).map_err(to_io)?;
        let begun = Instant::now();
        match object.flood(frame, index, count) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                return Err(error).context("an attack");
            }
            _ => {}
        }
        state = object.array::<[u64; 7]>("attack")?.get(&0, 0).map_err(to_io)?;
        offered.fetch_add(state[6] - made, Ordering::Relaxed);
        made = state[6];
        let took = begun.elapsed().as_secs_f64().max(0.001);
        count = ((f64::from(count) * CALL.as_secs_f64() / took) as u32).clamp(1 << 14, 1 << 26);
    }
    Ok(())
}

/// The frame for the source whose varying bits are zero.
fn frame(attack: &Attack, network: &Network, to: [u8; 6], from: [u8; 6]) -> Result<Vec<u8>> {
    let v6 = attack.sources.map_or(attack.v6, |net| net.0.is_ipv6());
    let at = usize::from(v6);
    let (src, dst) = match attack.sources {
        Some(net) => (net.0, network.server[at].host(2)),
        None => (network.back[at].host(2), network.back[at].host(1)),
    };
    // What takes up the source begins as ones.
    let filler = [0xff; 8];
    let (protocol, mut body) = match attack.shape {
        Shape::Udp => (Protocol::UDP, [&[0; 8], &filler[..], &[0; 10]].concat()),
        Shape::Syn => (Protocol::TCP, vec![0; 20]),
        Shape::Forgery | Shape::ForgeryBehind => (
            Protocol::UDP,
            [&[0; 8], &forged(network.client[at].host(2), network.server[at].host(2))?[..]].concat(),
        ),
    };
    let pseudo = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Pseudo::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Pseudo::V6 { src, dst },
        _ => anyhow::bail!("the attack's sources and the server are of different families"),
    };
    match attack.shape {
        Shape::Udp => {
            let head = udp::Repr { src_port: 4000, dst_port: PORT, payload_len: body.len() - 8 };
            head.emit(&mut body, &pseudo)?;
        }
        Shape::Forgery | Shape::ForgeryBehind => {
            let head = udp::Repr { src_port: 41120, dst_port: 45232, payload_len: body.len() - 8 };
            head.emit(&mut body, &pseudo)?;
        }
        Shape::Syn => {
            // The filler is all of both numbers; without ACK the second means nothing.
            let ack = if v6 { u32::MAX } else { 0 };
            let head = tcp::Repr {
                src_port: 4000,
                dst_port: 80,
                seq: u32::MAX,
                ack,
                flags: tcp::Flags::SYN,
                window: 65_535,
                urgent: 0,
                options: Default::default(),
            };
            head.emit(&mut body, &pseudo)?;
        }
    }
    let mut frame = [&to[..], &from[..], &[[8, 0], [0x86, 0xdd]][at][..]].concat();
    match pseudo {
        Pseudo::V4 { src, dst } => {
            let mut head = vec![0; 20];
            let repr = ipv4::Repr { ident: 0xffff, ..ipv4::Repr::new(src, dst, protocol, body.len()) };
            repr.emit(&mut head)?;
            frame.extend(head);
        }
        Pseudo::V6 { src, dst } => {
            let mut head = vec![0; 40];
            ipv6::Repr::new(src, dst, protocol, body.len()).emit(&mut head)?;
            frame.extend(head);
        }
    }
    frame.extend(body);
    frame.resize(frame.len().max(60), 0);
    Ok(frame)
}

/// "The client is declined for ten minutes", in version 2 under the key's number, with a tag by somebody who does not know the secret.
fn forged(client: IpAddr, server: IpAddr) -> Result<Vec<u8>> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let mut payload = vec![2, 1, 0, 1];
    payload.extend([now.as_secs() as u32, 1, u32::MAX].map(u32::to_be_bytes).concat());
    payload.extend((now.as_nanos() as u64).to_be_bytes());
    payload.extend([u8::from(client.is_ipv6()), 0, 0, 0]);
    for address in [client, server] {
        match address {
            IpAddr::V4(address) => payload.extend(address.octets()),
            IpAddr::V6(address) => payload.extend(address.octets()),
        }
    }
    payload.extend(600_u32.to_be_bytes());
    payload.extend([0xa5; 16]);
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_wire::checksum;

    fn attack(text: &str) -> Attack {
        toml::from_str(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whole datagrams, from the Grantor's address, about the client's flow of their family.
    #[test]
    fn forgeries_are_of_both_families() {
        let network = Network::default();
        for (at, l4, address_len) in [(0, 34, 4), (1, 54, 16)] {
            let attack = attack(&format!("shape = \"forgery\"\npps = 1\nv6 = {}", at == 1));
            let frame = frame(&attack, &network, [2; 6], [4; 6]).unwrap_or_else(|e| panic!("{e}"));
            let len = usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
            assert_eq!(len, 8 + 48 + 2 * address_len);
            assert_eq!(usize::from(frame[l4 + 8 + 24]), at, "the decision's family");
            let pseudo = match (network.back[at].host(2), network.back[at].host(1)) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => Pseudo::V4 { src, dst },
                (IpAddr::V6(src), IpAddr::V6(dst)) => Pseudo::V6 { src, dst },
                families => panic!("{families:?}"),
            };
            assert!(pseudo.is_valid(Protocol::UDP, &frame[l4..l4 + len]));
        }
    }

    /// The program's arithmetic, on the frames that it is given: whatever the source, checksums are right.
    #[test]
    fn frames_of_any_source_have_right_checksums() {
        let network = Network::default();
        for (text, l4) in [
            ("shape = \"udp\"\npps = 1\nsources = \"11.0.0.0/8\"", 34),
            ("shape = \"syn\"\npps = 1\nsources = \"11.0.0.0/8\"", 34),
            ("shape = \"udp\"\npps = 1\nsources = \"fd00:b::/64\"", 54),
            ("shape = \"syn\"\npps = 1\nsources = \"fd00:b::/64\"", 54),
        ] {
            let attack = attack(text);
            let template = frame(&attack, &network, [2; 6], [4; 6]).unwrap_or_else(|e| panic!("{e}"));
            for number in [0_u64, 1, 0xffff, 0x00ab_cdef, 0x1234_5678_9abc_def0] {
                let varying = number & state(&attack)[3];
                let mut frame = template.clone();
                let at = if attack.shape == Shape::Syn { l4 + 4 } else { l4 + 8 };
                let udp_len = usize::from(u16::from_be_bytes([frame[l4 + 4], frame[l4 + 5]]));
                let len = if attack.shape == Shape::Syn { 20 } else { udp_len };
                let (pseudo, protocol) = if l4 == 34 {
                    let low = varying as u32;
                    let source = 0x0b00_0000 | low;
                    frame[26..30].copy_from_slice(&source.to_be_bytes());
                    let sum = (low & 0xffff) + (low >> 16);
                    let sum = (sum & 0xffff) + (sum >> 16);
                    frame[18..20].copy_from_slice(&(!(sum as u16)).to_be_bytes());
                    frame[at..at + 4].copy_from_slice(&(!low).to_be_bytes());
                    assert!(checksum::is_valid(&frame[14..34]), "{text} {number:x}");
                    let src = source.into();
                    (Pseudo::V4 { src, dst: [10, 9, 0, 2].into() }, Protocol(frame[23]))
                } else {
                    frame[30..38].copy_from_slice(&varying.to_be_bytes());
                    frame[at..at + 8].copy_from_slice(&(!varying).to_be_bytes());
                    let address = |at: usize| {
                        let bytes: [u8; 16] = frame[at..at + 16].try_into().unwrap_or_default();
                        std::net::Ipv6Addr::from(bytes)
                    };
                    (Pseudo::V6 { src: address(22), dst: address(38) }, Protocol(frame[20]))
                };
                assert!(pseudo.is_valid(protocol, &frame[l4..l4 + len]), "{text} {number:x}");
            }
        }
    }
}
