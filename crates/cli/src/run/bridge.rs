//! What the roles in the middle of a wire share: ports that see every frame, of which nothing is the kernel's.

use super::config::Config;
use super::rules::Rules;
use super::setup::{Places, Queues};
use crate::addresses::TableAddresses;
use anyhow::Result;
use std::path::Path;
use tidemill_port::{Left, Ownership, PortSpec};

/// The ports of a run, as such a role knows them.
pub(super) struct Bridge {
    rules: Rules,
    /// The network interfaces of the ports that are on one.
    interfaces: Vec<Option<String>>,
}

/// The configuration with ports that see every frame.
pub(super) fn seeing(config: &Config) -> Config {
    let mut seeing = config.clone();
    seeing.port.iter_mut().for_each(PortSpec::see_everything);
    seeing
}

/// The ports' names.
pub(super) fn names(config: &Config) -> Vec<String> {
    config.port.iter().map(|port| port.name().to_owned()).collect()
}

impl Bridge {
    /// Opens the ports of a configuration that is [`seeing`].
    pub(super) fn open(seeing: &Config, base: &Path, places: &Places) -> Result<(Queues, Self)> {
        let (ports, rules) = super::setup::ports(seeing, base, &TableAddresses::default(), places)?;
        // All that arrives is on its way through: nothing of it is the kernel's.
        rules.tell(|_| Ownership::default())?;
        Ok((ports, Self { rules, ..Self::recorded(seeing) }))
    }

    /// That of a run whose ports are a record's.
    pub(super) fn recorded(config: &Config) -> Self {
        let interfaces = config.port.iter().map(|port| port.interface().map(str::to_owned)).collect();
        Self { rules: Rules::default(), interfaces }
    }

    /// Whether a port's link is up, if it is on an interface.
    pub(super) fn link(&self, port: usize) -> Option<bool> {
        let interface = self.interfaces.get(port)?.as_deref()?;
        Some(tidemill_port::device(interface).is_ok_and(|device| device.running))
    }

    /// What a port has left to the kernel.
    pub(super) fn left(&self, port: usize) -> Option<Left> {
        self.rules.left(port)
    }
}
