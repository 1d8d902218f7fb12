//! Where the destinations of made-up traffic come from.

use super::OpenContext;
use crate::PortError;
use crate::generator::{AddressSource, PublicV4, PublicV6, Zipf};
use crate::rng::{Rng, mix};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Where destinations come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Destinations {
    /// Random public IPv4 addresses.
    #[default]
    Random,
    /// Random public IPv6 addresses.
    RandomV6,
    /// Addresses inside the prefixes of the table that the run uses.
    Table,
    /// A population of random IPv4 addresses (of the table's, where there is one) by Zipf's law.
    Zipf,
    /// These addresses.
    List(Vec<IpAddr>),
}

impl Destinations {
    pub(super) fn source(
        &self,
        port: &str,
        context: &OpenContext<'_>,
        population: usize,
        exponent: f64,
        seed: u64,
    ) -> Result<Box<dyn AddressSource>, PortError> {
        let from_table = || match context.table {
            Some(table) => Ok(table()),
            None => Err(PortError::config(port, "destinations = \"table\", and this run has no table")),
        };
        Ok(match self {
            Destinations::Random => Box::new(PublicV4),
            Destinations::RandomV6 => Box::new(PublicV6),
            Destinations::Table => from_table()?,
            Destinations::Zipf => {
                let mut rng = Rng::new(mix(seed));
                let mut of = context.table.map_or_else(|| Box::new(PublicV4) as _, |table| table());
                let addresses: Vec<IpAddr> = (0..population).map(|_| of.next(&mut rng)).collect();
                let zipf = Zipf::new(addresses, exponent);
                let bad = || PortError::config(port, "zipf needs a population and an exponent from 0");
                Box::new(zipf.ok_or_else(bad)?)
            }
            Destinations::List(list) => {
                let uniform = crate::generator::Uniform::new(list.as_slice());
                Box::new(uniform.ok_or_else(|| PortError::config(port, "destinations is an empty list"))?)
            }
        })
    }
}

/// Addresses are kept in memory: 16 million of them are 256 MB.
pub(super) fn check_population(port: &str, population: usize) -> Result<(), PortError> {
    if population <= 1 << 24 {
        return Ok(());
    }
    Err(PortError::config(port, format!("population = {population}: give 1 to {}", 1 << 24)))
}
