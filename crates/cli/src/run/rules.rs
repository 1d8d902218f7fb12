//! What is left to the kernel, told to the ports that take packets away from it.

use std::sync::Arc;
use tidemill_port::{Left, Ownership, PortError, Rule};

/// The rules of the ports that have one, by the port's number.
#[derive(Default)]
pub(crate) struct Rules(pub(crate) Vec<(u16, Arc<dyn Rule>)>);

impl Rules {
    /// Tells each who owns what now.
    pub(crate) fn tell(&self, ownership: impl Fn(u16) -> Ownership) -> Result<(), PortError> {
        self.0.iter().try_for_each(|(port, rule)| rule.set(&ownership(*port)))
    }

    /// What a port has left to the kernel, if it has a rule.
    pub(crate) fn left(&self, port: usize) -> Option<Left> {
        let (_, rule) = self.0.iter().find(|(number, _)| usize::from(*number) == port)?;
        Some(rule.left())
    }
}
