//! The null port.

use super::destinations::check_population;
use super::{Destinations, FaultSpec, OpenContext, one, share, shortest, yes};
use crate::rng::Rng;
use crate::{NullPort, PortError, Supply};
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Gives ready-made UDP packets as fast as possible, and swallows what it is sent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NullSpec {
    /// The port's name.
    pub name: String,
    /// Whether packets are received at all.
    #[serde(default = "yes")]
    pub receive: bool,
    /// Frame length, with the frame check sequence.
    #[serde(default = "shortest")]
    pub size: usize,
    /// Where the destinations come from.
    #[serde(default)]
    pub destinations: Destinations,
    /// How many different destinations are made before the start, and then used in turn.
    #[serde(default = "null_population")]
    pub population: usize,
    /// Seed of the destinations.
    #[serde(default = "one")]
    pub seed: u64,
    /// The most packets to receive.
    #[serde(default)]
    pub packets: Option<u64>,
    /// Faults to inject.
    #[serde(default)]
    pub fault: Option<FaultSpec>,
    /// A capture file to copy everything that passes into.
    #[serde(default)]
    pub tap: Option<PathBuf>,
}

impl NullSpec {
    /// Finds what is wrong; `table`: whether the run has one.
    pub(super) fn check(&self, table: bool) -> Result<(), PortError> {
        if !(64..=9018).contains(&self.size) {
            return Err(PortError::config(&self.name, format!("size = {} (64 to 9018)", self.size)));
        }
        check_population(&self.name, self.population)?;
        if !self.receive {
            return Ok(());
        }
        if self.population == 0 && !matches!(self.destinations, Destinations::List(_)) {
            return Err(PortError::config(&self.name, "population = 0: give 1 or more"));
        }
        self.destinations.check(&self.name, table, self.population, EXPONENT)
    }

    pub(super) fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<NullPort>, PortError> {
        self.check(context.table.is_some())?;
        let supply = if self.receive {
            let mut rng = Rng::new(self.seed);
            let addresses: Arc<[IpAddr]> = match &self.destinations {
                Destinations::List(list) => list.as_slice().into(),
                pattern => {
                    let mut source =
                        pattern.source(&self.name, context, self.population, EXPONENT, self.seed)?;
                    (0..self.population).map(|_| source.next(&mut rng)).collect()
                }
            };
            Supply::Destinations { frame_len: self.size, addresses }
        } else {
            Supply::Nothing
        };
        let port = |queue| {
            let limit = self.packets.map(|n| share(n, queue, queues));
            NullPort::new(&self.name, supply.clone(), queue * self.population / queues.max(1), limit)
        };
        Ok((0..queues).map(port).collect())
    }
}

/// Zipf's, of the destinations that are used in turn.
const EXPONENT: f64 = 1.0;

fn null_population() -> usize {
    1 << 16
}
