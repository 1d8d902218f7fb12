//! Policies as an operator sees and changes them.

use super::{GatekeeperControl, sources_exist};
use crate::config::PolicyConfig;
use crate::error::GateError;
use crate::family::Gated;
use crate::ours::Ours;
use crate::policy::{Policy, parse};
use crate::show::PolicyLine;
use std::net::IpAddr;
use std::slice::from_ref;
use tidemill_lpm::Prefix;
use tidemill_wire::flow::Addresses;

impl GatekeeperControl {
    /// Adds or replaces a policy while packets flow; it lasts until the next reload.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set_policy(&mut self, policy: &PolicyConfig) -> Result<(), GateError> {
        let parsed = parse(from_ref(policy), &self.ours, |_, field| field.to_owned())?;
        sources_exist(self.settings.current(), !parsed.v4.is_empty(), !parsed.v6.is_empty())?;
        self.v4.policies.set(&parsed.v4)?;
        self.v6.policies.set(&parsed.v6)?;
        self.wake();
        self.trust_as_configured(self.trust.current().keys.clone());
        Ok(())
    }

    /// What a policy says without effect: a line each, field first.
    pub fn remarks_of(&self, policy: &PolicyConfig) -> Vec<String> {
        self.ours.remarks(from_ref(policy), &self.settings().front, |_, field| field.to_owned())
    }

    /// Takes a policy away; false if there is none of exactly this prefix.
    ///
    /// # Errors
    /// It is no prefix.
    pub fn remove_policy(&mut self, prefix: &str) -> Result<bool, GateError> {
        let wrong =
            |error: &dyn std::fmt::Display| GateError::config("prefix", format!("{prefix:?}: {error}"));
        if prefix.contains(':') {
            let prefix: Prefix<u128> = prefix.parse().map_err(|error| wrong(&error))?;
            let there = self.v6.policies.remove(prefix)?;
            self.wake();
            self.trust_as_configured(self.trust.current().keys.clone());
            return Ok(there);
        }
        let prefix: Prefix<u32> = prefix.parse().map_err(|error| wrong(&error))?;
        let there = self.v4.policies.remove(prefix)?;
        self.wake();
        self.trust_as_configured(self.trust.current().keys.clone());
        Ok(there)
    }

    /// All policies, IPv4 first.
    pub fn policies(&self) -> Vec<PolicyLine> {
        let ours = &self.ours;
        let mut lines: Vec<_> = self.v4.policies.list().iter().map(|policy| line(ours, policy)).collect();
        lines.extend(self.v6.policies.list().iter().map(|policy| line(ours, policy)));
        lines
    }

    /// The policy that a destination falls under; none where the default counts.
    pub fn policy_of(&self, destination: IpAddr) -> Option<PolicyLine> {
        match destination {
            IpAddr::V4(to) => self.v4.policies.lookup(to.into()).map(|policy| line(&self.ours, &policy)),
            IpAddr::V6(to) => self.v6.policies.lookup(to.into()).map(|policy| line(&self.ours, &policy)),
        }
    }

    /// The Grantor that decides about a flow, if one does.
    pub fn grantor_of(&self, flow: &Addresses) -> Option<IpAddr> {
        match *flow {
            Addresses::V4 { src, dst } => self.v4.grantor(self.spread, src, dst),
            Addresses::V6 { src, dst } => self.v6.grantor(self.spread, src, dst),
        }
    }
}

fn line<A: Gated>(ours: &Ours, policy: &Policy<A>) -> PolicyLine {
    let Policy { prefix, action, grantors } = policy;
    PolicyLine {
        prefix: prefix.to_string(),
        action: *action,
        grantors: grantors.iter().map(|grantor| grantor.address()).collect(),
        ours: prefix.len() == A::BITS && ours.has(prefix.first().address()).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Action, GatekeeperSection};
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_lookup::qsbr::Domain;

    /// A policy about an address of ours, and a Grantor in front: taken, said with their places, and shown.
    #[test]
    fn policies_without_effect_are_taken_and_said() {
        let (mut front, mut back) = (Interface::of_port(0, "front"), Interface::of_port(1, "back"));
        front.v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
        back.v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
        back.v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
        let interfaces = Interfaces::new(vec![front, back], 2);
        let policy = |prefix: &str, grantors: &[&str]| PolicyConfig {
            prefix: prefix.into(),
            action: if grantors.is_empty() { Action::Drop } else { Action::Grantor },
            grantors: grantors.iter().map(|grantor| (*grantor).into()).collect(),
        };
        let section = GatekeeperSection {
            decisions: Some(crate::config::DecisionFormat::None),
            bandwidth: Some(tidemill_ip::queue::Bandwidth::Bits(1_000_000_000)),
            policy: vec![
                policy("10.0.0.1/32", &[]),
                policy("10.0.0.0/8", &[]),
                policy("203.0.113.0/24", &["10.0.0.9", "192.0.2.9"]),
            ],
            flows: 100,
            ..GatekeeperSection::default()
        };
        let domain = Domain::new();
        let mut control = GatekeeperControl::with_secret(&section, &interfaces, 1, &domain, 7).unwrap();
        let said = control.remarks();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("gatekeeper.policy[0].prefix has no effect: 10.0.0.1/32 is our own address")
        );
        assert!(said[1].starts_with("gatekeeper.policy[2].grantors: 192.0.2.9 is on the link of interface"));
        let shown = |control: &GatekeeperControl| -> Vec<(String, bool)> {
            control.policies().into_iter().map(|line| (line.prefix, line.ours)).collect()
        };
        let of = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
            list.iter().map(|(prefix, ours)| ((*prefix).into(), *ours)).collect()
        };
        let configured = [("10.0.0.0/8", false), ("10.0.0.1/32", true), ("203.0.113.0/24", false)];
        assert_eq!(shown(&control), of(&configured));
        // What is added while it runs.
        let ours = policy("fd00::1/128", &[]);
        control.set_policy(&ours).unwrap();
        assert!(control.remarks_of(&ours)[0].starts_with("prefix has no effect: fd00::1/128 is our own"));
        assert_eq!(shown(&control), of(&[&configured[..], &[("fd00::1/128", true)]].concat()));
        assert!(control.policy_of("fd00::1".parse().unwrap()).is_some_and(|line| line.ours));
        // The address goes to somebody else.
        let mut back = Interface::of_port(1, "back");
        back.v4.push(("10.0.0.2".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
        back.v6.push(("fd00::2".parse().unwrap(), "fd00::/64".parse().unwrap()));
        control.interfaces(&Interfaces::new(vec![Interface::of_port(0, "front"), back], 2)).unwrap();
        assert!(shown(&control).iter().all(|(_, ours)| !ours));
        assert_eq!(control.remarks(), [""; 0]);
    }
}
