//! Where the destinations of made-up traffic come from.

use super::OpenContext;
use crate::PortError;
use crate::generator::{AddressSource, PublicV4, PublicV6, Uniform, Zipf};
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

const NO_TABLE: &str = "destinations = \"table\", and this run has no table";
const NO_LAW: &str = "zipf needs a population and an exponent from 0";
const NO_LIST: &str = "destinations is an empty list";

impl Destinations {
    /// Finds what [`source`](Self::source) would refuse; `table`: whether the run has one.
    pub(super) fn check(
        &self,
        port: &str,
        table: bool,
        population: usize,
        exponent: f64,
    ) -> Result<(), PortError> {
        let what = match self {
            Destinations::Table if !table => NO_TABLE,
            Destinations::Zipf if !Zipf::takes(population, exponent) => NO_LAW,
            Destinations::List(list) if list.is_empty() => NO_LIST,
            _ => return Ok(()),
        };
        Err(PortError::config(port, what))
    }

    pub(super) fn source(
        &self,
        port: &str,
        context: &OpenContext<'_>,
        population: usize,
        exponent: f64,
        seed: u64,
    ) -> Result<Box<dyn AddressSource>, PortError> {
        let wrong = |what: &str| PortError::config(port, what);
        Ok(match self {
            Destinations::Random => Box::new(PublicV4),
            Destinations::RandomV6 => Box::new(PublicV6),
            Destinations::Table => context.table.ok_or_else(|| wrong(NO_TABLE))?(),
            Destinations::Zipf => {
                let mut rng = Rng::new(mix(seed));
                let mut of = context.table.map_or_else(|| Box::new(PublicV4) as _, |table| table());
                let addresses: Vec<IpAddr> = (0..population).map(|_| of.next(&mut rng)).collect();
                Box::new(Zipf::new(addresses, exponent).ok_or_else(|| wrong(NO_LAW))?)
            }
            Destinations::List(list) => {
                Box::new(Uniform::new(list.as_slice()).ok_or_else(|| wrong(NO_LIST))?)
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
