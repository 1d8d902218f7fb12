//! The traffic generator: a port that receives made-up packets, and swallows what it is sent.
//!
//! Everything follows from the seed. A packet is one [`Kind`] of the mix, with a size, a source and a destination; all
//! headers and checksums are valid. Sizes count as in RFC 2544: with the frame check sequence, so 64 is the shortest.

mod addresses;

pub use addresses::{AddressSource, InTurn, PublicV4, PublicV6, Uniform, Zipf};

use crate::rng::Rng;
use crate::template::{Fields, Payload, Template};
use crate::{Port, PortCounters, PortError, RxStatus, number};
use std::net::IpAddr;
use tidemill_burst::{Burst, DropReason, Pool};

/// The frame lengths of RFC 2544, section 9.1.
pub const RFC_2544: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UDP between ports of a client and a service.
    Udp,
    /// TCP segments of established connections (ACK).
    Tcp,
    /// Echo requests.
    Icmp,
    /// A SYN flood on one service: minimum size, every packet from another random source.
    SynFlood,
    /// Reflected UDP: large answers from DNS, NTP, memcached, CLDAP and SSDP ports of random sources.
    Amplification,
    /// A flood of large echo requests from random sources.
    IcmpFlood,
    /// Fragments that never become whole datagrams.
    Fragments,
}

/// How long packets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// One of these, evenly.
    Even(Vec<usize>),
    /// Simple IMIX: 64, 594 and 1518 bytes at 7 : 4 : 1.
    Imix,
}

/// What to generate.
pub struct Traffic {
    /// Decides everything.
    pub seed: u64,
    /// Most packets.
    pub limit: Option<u64>,
    /// Packets per second; `None` is as fast as asked for.
    pub rate_pps: Option<f64>,
    /// Sizes of `udp`, `tcp` and `icmp` packets; the attacks have their own.
    pub sizes: Sizes,
    /// The kinds with their weights.
    pub mix: Vec<(Kind, u32)>,
    /// Sources of IPv4 packets (attacks with random sources make up their own).
    pub sources: Box<dyn AddressSource>,
    /// Destinations, which decide whether a packet is IPv4 or IPv6.
    pub destinations: Box<dyn AddressSource>,
}

/// One queue of a generator.
pub struct GeneratorPort {
    name: String,
    traffic: Traffic,
    rng: Rng,
    total_weight: u64,
    /// By kind and, within it, by IPv4 or IPv6 and size.
    recipes: Vec<Recipe>,
    sent: u64,
    started_ns: Option<u64>,
    counters: PortCounters,
}

struct Recipe {
    kind: Kind,
    weight: u64,
    v4: Vec<Template>,
    v6: Vec<Template>,
}

/// Ports that amplify.
const REFLECTORS: [u16; 5] = [53, 123, 11211, 389, 1900];
/// Ports of services; DNS is UDP's alone, whose zeros at least parse.
const SERVICES: [u16; 6] = [443, 80, 22, 25, 8080, 53];

impl Sizes {
    /// The lengths, repeated by their weight.
    fn lengths(&self) -> Vec<usize> {
        match self {
            Sizes::Even(lengths) => lengths.clone(),
            Sizes::Imix => [[64].repeat(7), [594].repeat(4), vec![1518]].concat(),
        }
    }
}

impl Kind {
    fn lengths(self, sizes: &[usize]) -> Vec<usize> {
        match self {
            Kind::Udp | Kind::Tcp | Kind::Icmp => sizes.to_vec(),
            Kind::SynFlood => vec![64],
            Kind::Amplification => vec![468, 1048, 1518],
            Kind::IcmpFlood => vec![1066],
            Kind::Fragments => vec![1518, 1518, 610],
        }
    }

    fn payloads(self) -> Vec<Payload> {
        match self {
            Kind::Udp | Kind::Amplification => vec![Payload::Udp],
            Kind::Tcp => vec![Payload::Tcp { flags: 0x10 }],
            Kind::SynFlood => vec![Payload::Tcp { flags: 0x02 }],
            Kind::Icmp | Kind::IcmpFlood => vec![Payload::Echo],
            Kind::Fragments => [0, 1480, 2960].map(|offset| Payload::Fragment { offset }).to_vec(),
        }
    }

    fn random_sources(self) -> bool {
        !matches!(self, Kind::Udp | Kind::Tcp | Kind::Icmp)
    }

    /// Source and destination port.
    fn ports(self, rng: &mut Rng) -> (u16, u16) {
        let pick = |rng: &mut Rng, list: &[u16]| list[rng.below(list.len() as u64) as usize];
        let client = 1024 + rng.below(64512) as u16;
        match self {
            Kind::Udp => (client, pick(rng, &SERVICES)),
            Kind::Tcp => (client, pick(rng, &SERVICES[..5])),
            Kind::Icmp | Kind::IcmpFlood => (client, rng.bits() as u16),
            Kind::SynFlood => (client, 443),
            Kind::Amplification => (pick(rng, &REFLECTORS), client),
            Kind::Fragments => (53, client),
        }
    }
}

/// Refuses sizes, a mix and a rate of which no traffic can be made.
pub(crate) fn check(
    name: &str,
    sizes: &Sizes,
    mix: &[(Kind, u32)],
    rate_pps: Option<f64>,
) -> Result<(), PortError> {
    let sizes = sizes.lengths();
    if let Some(bad) = sizes.iter().find(|len| !(64..=9018).contains(*len)) {
        return Err(PortError::config(name, format!("a frame length of {bad} (64 to 9018)")));
    }
    if sizes.is_empty() || mix.iter().all(|(_, weight)| *weight == 0) {
        return Err(PortError::config(name, "sizes and mix need at least one entry with a weight"));
    }
    if let Some(rate) = rate_pps
        && !(rate.is_finite() && rate > 0.0)
    {
        let rate = number(rate);
        return Err(PortError::config(name, format!("rate_pps = {rate} is not a number above 0")));
    }
    Ok(())
}

impl GeneratorPort {
    /// Makes a generator. Mixes need a weight, sizes a length between 64 and 9018.
    pub fn new(name: &str, traffic: Traffic) -> Result<Self, PortError> {
        check(name, &traffic.sizes, &traffic.mix, traffic.rate_pps)?;
        let sizes = traffic.sizes.lengths();
        let total_weight: u64 = traffic.mix.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let recipe = |&(kind, weight): &(Kind, u32)| {
            let templates = |v6| {
                let lengths = kind.lengths(&sizes);
                let of = |payload| lengths.iter().map(move |len| Template::new(v6, *len, payload));
                kind.payloads().into_iter().flat_map(of).collect()
            };
            Recipe { kind, weight: weight.into(), v4: templates(false), v6: templates(true) }
        };
        let recipes = traffic.mix.iter().map(recipe).collect();
        Ok(GeneratorPort {
            name: name.to_owned(),
            rng: Rng::new(traffic.seed),
            traffic,
            total_weight,
            recipes,
            sent: 0,
            started_ns: None,
            counters: PortCounters::default(),
        })
    }

    /// How many packets may go by now, and when the next may.
    fn allowance(&mut self, now_ns: u64) -> (u64, Option<u64>) {
        let left = self.traffic.limit.unwrap_or(u64::MAX).saturating_sub(self.sent);
        let Some(rate) = self.traffic.rate_pps else { return (left, None) };
        let started_ns = *self.started_ns.get_or_insert(now_ns);
        let due = ((now_ns - started_ns) as f64 * rate / 1e9) as u64 + 1;
        let next_ns = started_ns.saturating_add((self.sent.max(due) as f64 * 1e9 / rate).ceil() as u64);
        (due.saturating_sub(self.sent).min(left), Some(next_ns))
    }
}

impl Port for GeneratorPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.traffic.limit.is_some_and(|limit| self.sent >= limit) {
            return Ok(RxStatus::Ended);
        }
        let (allowed, next_due_ns) = self.allowance(now_ns);
        let (before, room) = (self.sent, pool.room());
        for _ in 0..allowed.min(burst.room() as u64) {
            let Some(mut packet) = pool.take() else { break };
            let rng = &mut self.rng;
            let mut at = rng.below(self.total_weight);
            let recipe = self.recipes.iter().find(|recipe| match at.checked_sub(recipe.weight) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            let Some(Recipe { kind, v4, v6, .. }) = recipe else {
                pool.free(packet);
                break;
            };
            let dst = self.traffic.destinations.next(rng);
            let templates = if dst.is_ipv4() { v4 } else { v6 };
            let template = &templates[rng.below(templates.len() as u64) as usize];
            let src = match (dst, kind.random_sources()) {
                (IpAddr::V6(_), _) => PublicV6.next(rng),
                (IpAddr::V4(_), true) => PublicV4.next(rng),
                (IpAddr::V4(_), false) => match self.traffic.sources.next(rng) {
                    src @ IpAddr::V4(_) => src,
                    IpAddr::V6(_) => PublicV4.next(rng),
                },
            };
            let (src_port, dst_port) = kind.ports(rng);
            let ident = rng.bits() as u16;
            let timestamp_ns = match (self.traffic.rate_pps, self.started_ns) {
                (Some(rate), Some(start)) => start + (self.sent as f64 * 1e9 / rate) as u64,
                _ => now_ns,
            };
            self.sent += 1;
            self.counters.rx.count(template.len());
            if template.len() > room {
                self.counters.rx.dropped.count(DropReason::FrameTooSmall);
                pool.free(packet);
                continue;
            }
            template.write(&mut packet, &Fields { src, dst, src_port, dst_port, ident });
            packet.set_timestamp_ns(timestamp_ns);
            if let Err(packet) = burst.push(packet) {
                pool.free(packet);
                break;
            }
        }
        Ok(match self.sent > before {
            true => RxStatus::Received,
            false => RxStatus::Idle { next_due_ns },
        })
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        burst.iter().for_each(|packet| self.counters.tx.count(packet.len()));
        pool.free_all(burst);
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        self.traffic.limit = Some(self.sent);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
