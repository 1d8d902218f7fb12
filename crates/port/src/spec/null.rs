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
    pub(super) fn open(&self, queues: usize, context: &OpenContext<'_>) -> Result<Vec<NullPort>, PortError> {
        if !(64..=9018).contains(&self.size) {
            return Err(PortError::config(&self.name, format!("size = {} (64 to 9018)", self.size)));
        }
        check_population(&self.name, self.population)?;
        let supply = if self.receive {
            let mut rng = Rng::new(self.seed);
            let addresses: Arc<[IpAddr]> = match &self.destinations {
                Destinations::List(list) => list.as_slice().into(),
                pattern => {
                    let mut source = pattern.source(&self.name, context, self.population, 1.0, self.seed)?;
                    (0..self.population).map(|_| source.next(&mut rng)).collect()
                }
            };
            if addresses.is_empty() {
                return Err(PortError::config(&self.name, "destinations or population is empty"));
            }
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

fn null_population() -> usize {
    1 << 16
}
