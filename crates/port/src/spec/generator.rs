//! The traffic generator.

use super::destinations::check_population;
use super::{Destinations, FaultSpec, OpenContext, one, one_f64, share, shortest};
use crate::PortError;
use crate::generator::{self, GeneratorPort, Kind, PublicV4, RFC_2544, Sizes, Traffic};
use crate::rng::mix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Makes up traffic, and swallows what it is sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorSpec {
    /// The port's name.
    pub name: String,
    /// Decides everything.
    #[serde(default = "one")]
    pub seed: u64,
    /// The most packets to receive.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Packets per second, over all queues; without it, as fast as possible.
    #[serde(default)]
    pub rate_pps: Option<f64>,
    /// A frame length (with the frame check sequence), a list of them, `rfc2544` or `imix`.
    #[serde(default)]
    pub sizes: SizesSpec,
    /// The kinds of traffic with their weights.
    #[serde(default = "udp_only")]
    pub mix: Mix,
    /// Where the destinations come from.
    #[serde(default)]
    pub destinations: Destinations,
    /// With `zipf`: how many destinations there are.
    #[serde(default = "zipf_population")]
    pub population: usize,
    /// With `zipf`: the exponent.
    #[serde(default = "one_f64")]
    pub exponent: f64,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

/// How many packets of each [`Kind`], in proportion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Mix {
    /// UDP.
    pub udp: u32,
    /// TCP.
    pub tcp: u32,
    /// Echo requests.
    pub icmp: u32,
    /// SYN flood on one service.
    pub syn_flood: u32,
    /// Reflected and amplified UDP.
    pub amplification: u32,
    /// Flood of large echo requests.
    pub icmp_flood: u32,
    /// Fragments that never become whole.
    pub fragments: u32,
}

impl Mix {
    fn weights(&self) -> Vec<(Kind, u32)> {
        let Mix { udp, tcp, icmp, syn_flood, amplification, icmp_flood, fragments } = *self;
        vec![
            (Kind::Udp, udp),
            (Kind::Tcp, tcp),
            (Kind::Icmp, icmp),
            (Kind::SynFlood, syn_flood),
            (Kind::Amplification, amplification),
            (Kind::IcmpFlood, icmp_flood),
            (Kind::Fragments, fragments),
        ]
    }
}

/// Frame lengths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SizesSpec {
    /// All the same.
    One(usize),
    /// Evenly from a list.
    List(Vec<usize>),
    /// By name.
    Named(SizesName),
}

/// Names for frame lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SizesName {
    /// 64, 128, 256, 512, 1024, 1280, 1518, evenly.
    Rfc2544,
    /// 64, 594, 1518 at 7 : 4 : 1.
    Imix,
}

impl Default for SizesSpec {
    fn default() -> Self {
        SizesSpec::One(shortest())
    }
}

impl GeneratorSpec {
    fn sizes(&self) -> Sizes {
        match &self.sizes {
            SizesSpec::One(len) => Sizes::Even(vec![*len]),
            SizesSpec::List(lens) => Sizes::Even(lens.clone()),
            SizesSpec::Named(SizesName::Rfc2544) => Sizes::Even(RFC_2544.to_vec()),
            SizesSpec::Named(SizesName::Imix) => Sizes::Imix,
        }
    }

    /// Each queue's part of the rate.
    fn rate_pps(&self, queues: usize) -> Option<f64> {
        self.rate_pps.map(|rate| rate / queues as f64)
    }

    /// Finds what is wrong; `table`: whether the run has one.
    pub(super) fn check(&self, queues: usize, table: bool) -> Result<(), PortError> {
        check_population(&self.name, self.population)?;
        generator::check(&self.name, &self.sizes(), &self.mix.weights(), self.rate_pps(queues))?;
        self.destinations.check(&self.name, table, self.population, self.exponent)
    }

    pub(super) fn open(
        &self,
        queues: usize,
        context: &OpenContext<'_>,
    ) -> Result<Vec<GeneratorPort>, PortError> {
        self.check(queues, context.table.is_some())?;
        let sizes = self.sizes();
        let port = |queue: usize| {
            let destinations =
                self.destinations.source(&self.name, context, self.population, self.exponent, self.seed)?;
            let traffic = Traffic {
                seed: if queue == 0 { self.seed } else { mix(self.seed) ^ mix(queue as u64) },
                limit: self.packets.map(|n| share(n, queue, queues)),
                rate_pps: self.rate_pps(queues),
                sizes: sizes.clone(),
                mix: self.mix.weights(),
                sources: Box::new(PublicV4),
                destinations,
            };
            GeneratorPort::new(&self.name, traffic)
        };
        (0..queues).map(port).collect()
    }
}

fn zipf_population() -> usize {
    100_000
}

fn udp_only() -> Mix {
    Mix { udp: 1, ..Mix::default() }
}
