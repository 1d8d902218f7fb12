//! What is left to the kernel, told to the ports that take packets away from it.

use std::sync::Arc;
use tidemill_port::{Left, Ownership, PortError, Rule};

/// The rules of the ports that have one, by the port's number.
#[derive(Default)]
pub(crate) struct Rules(pub(crate) Vec<(u16, Arc<dyn Rule>)>);

impl Rules {
    /// Tells each who owns what now: also the others, where one refuses.
    ///
    /// # Errors
    /// What the first of those has said.
    pub(crate) fn tell(&self, ownership: impl Fn(u16) -> Ownership) -> Result<(), PortError> {
        let mut result = Ok(());
        for (port, rule) in &self.0 {
            let told = rule.set(&ownership(*port));
            result = result.and(told);
        }
        result
    }

    /// What a port has left to the kernel, if it has a rule.
    pub(crate) fn left(&self, port: usize) -> Option<Left> {
        let (_, rule) = self.0.iter().find(|(number, _)| usize::from(*number) == port)?;
        Some(rule.left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A port's rule that keeps what it is told, or has no room for it.
    #[derive(Default)]
    struct Told {
        is_full: bool,
        vlans: Mutex<Vec<u16>>,
    }

    impl Rule for Told {
        fn set(&self, ownership: &Ownership) -> Result<(), PortError> {
            if self.is_full {
                return Err(PortError::Config { port: "p".into(), what: "no room".into() });
            }
            self.vlans.lock().unwrap().extend(&ownership.vlans);
            Ok(())
        }

        fn left(&self) -> Left {
            Left::default()
        }
    }

    #[test]
    fn a_port_that_refuses_keeps_no_other_from_hearing() {
        let ports = [false, true, false].map(|is_full| Arc::new(Told { is_full, ..Told::default() }));
        let rules = Rules((0..).zip(ports.iter().map(|port| port.clone() as Arc<dyn Rule>)).collect());
        let told = rules.tell(|port| Ownership { vlans: [100 + port].into(), ..Ownership::default() });
        assert_eq!(told.unwrap_err().to_string(), "port `p`: no room");
        let heard: Vec<Vec<u16>> = ports.iter().map(|port| port.vlans.lock().unwrap().clone()).collect();
        assert_eq!(heard, [vec![100_u16], vec![], vec![102]]);
    }
}
