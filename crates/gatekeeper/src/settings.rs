//! What follows from `[gatekeeper]`, checked: every error names its key and says what to do.

use crate::addresses::AddressSet;
use crate::config::Action;
use crate::config::{DecisionFormat, DefaultAction, Driver, GatekeeperSection, Order};
use crate::error::GateError;
use std::net::IpAddr;
use tidemill_ip::{Interfaces, Owner};

/// What the nodes go by; published.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether an interface, by its number, is in front.
    pub front: Vec<bool>,
    /// The sources of what is encapsulated.
    pub source4: u32,
    /// The same of IPv6.
    pub source6: u128,
    /// The numbers of the interfaces that have these addresses.
    pub behind: [u16; 2],
    /// An interface at the back that is the kernel's, by its name: what routers behind it say of our packets, the kernel gets.
    pub kernels: Option<String>,
    /// After how long a silent flow is forgotten.
    pub idle_ns: u64,
    /// Our addresses of IPv4: nobody in front has one of them.
    pub own4: AddressSet<u32>,
    /// The same of IPv6; link-local ones are not among them, for every link has its own.
    pub own6: AddressSet<u128>,
    /// Which decisions to obey.
    pub decisions: DecisionFormat,
    /// From one round of probes to the next; 0: none.
    pub probe_ns: u64,
    /// How long what was granted passes after it has been revoked, until the Grantor has answered.
    pub grace_ns: u64,
    /// Whether what is routed from the front keeps its code point.
    pub keep_dscp: bool,
    /// In which order to look up.
    pub order: Order,
    /// How to look up flows.
    pub driver: Driver,
}

impl Settings {
    /// Whether packets that came in by this interface came from the front.
    #[inline(always)]
    pub fn is_front(&self, interface: u16) -> bool {
        self.front.get(usize::from(interface)).copied().unwrap_or(false)
    }
}

/// Flows of one family and worker: what its table can number.
pub const MOST_FLOWS: usize = 3_430_000_000;

pub(crate) fn settings(section: &GatekeeperSection, interfaces: &Interfaces) -> Result<Settings, GateError> {
    if !(1..=86_400).contains(&section.idle_s) {
        return Err(GateError::config("idle_s", format!("{}: give 1 to 86400", section.idle_s)));
    }
    if !(1..=100).contains(&section.request_percent) {
        let what = format!("{}: give 1 to 100", section.request_percent);
        return Err(GateError::config("request_percent", what));
    }
    if !(1..=65_536).contains(&section.request_queue) {
        let what = format!("{}: give 1 to 65536", section.request_queue);
        return Err(GateError::config("request_queue", what));
    }
    if section.revocation_grace_ms > 10_000 {
        let what = format!("{}: give 0 to 10000", section.revocation_grace_ms);
        return Err(GateError::config("revocation_grace_ms", what));
    }
    if section.program_flows > 1 << 28 {
        return Err(GateError::config(
            "program_flows",
            format!("{}: give at most 2^28", section.program_flows),
        ));
    }
    if !(1..=MOST_FLOWS).contains(&section.flows) {
        let what = format!("{}: give 1 to {MOST_FLOWS}", section.flows);
        return Err(GateError::config("flows", what));
    }
    let mut front = vec![false; interfaces.iter().count()];
    let names = || interfaces.iter().map(|i| format!("{:?}", i.name)).collect::<Vec<_>>().join(", ");
    for (i, name) in section.front.iter().enumerate() {
        match interfaces.iter().position(|interface| interface.name == *name) {
            Some(at) => front[at] = true,
            None => {
                let what = format!("there is no interface {name:?}; there are {}", names());
                return Err(GateError::config(format!("front[{i}]"), what));
            }
        }
    }
    if section.front.is_empty() {
        // The first port with all that is on it.
        for (at, interface) in interfaces.iter().enumerate() {
            front[at] = interface.port == 0;
        }
    }
    if front.iter().all(|front| *front) {
        let what =
            format!("every interface is in front: leave those out that lead to the Grantors, of {}", names());
        return Err(GateError::config("front", what));
    }
    let (source4, source6) = sources(section, interfaces, &front)?;
    let back = || interfaces.iter().zip(&front).filter(|(_, front)| !**front).map(|(interface, _)| interface);
    let decisions = decisions(section)?;
    let behind = [IpAddr::V4(source4.into()), IpAddr::V6(source6.into())].map(|source| {
        let has = |(interface, front): (&tidemill_ip::Interface, &bool)| !*front && interface.has(source);
        interfaces.iter().zip(&front).position(has).unwrap_or(0) as u16
    });
    let kernels =
        back().find(|interface| interface.owner == Owner::Kernel).map(|interface| interface.name.clone());
    if decisions != DecisionFormat::None
        && let Some(name) = &kernels
    {
        let what = format!(
            "interface {name:?} is the kernel's, which would get the decisions: give it owner = \"us\", or set \"none\""
        );
        return Err(GateError::config("decisions", what));
    }
    let (own4, own6) = own(interfaces);
    Ok(Settings {
        front,
        source4,
        source6,
        behind,
        kernels,
        own4: AddressSet::new(own4),
        own6: AddressSet::new(own6),
        idle_ns: u64::from(section.idle_s) * 1_000_000_000,
        decisions,
        probe_ns: match decisions {
            DecisionFormat::Authenticated => u64::from(section.probes.interval_ms) * 1_000_000,
            DecisionFormat::Interoperable | DecisionFormat::None => 0,
        },
        grace_ns: u64::from(section.revocation_grace_ms) * 1_000_000,
        keep_dscp: section.keep_dscp,
        order: section.order,
        driver: section.driver,
    })
}

/// Which decisions count.
fn decisions(section: &GatekeeperSection) -> Result<DecisionFormat, GateError> {
    let keys = section.key_file.is_some() || !section.keys.is_empty();
    if !(1..=300).contains(&section.clock_s) {
        return Err(GateError::config("clock_s", format!("{}: give 1 to 300", section.clock_s)));
    }
    let probes = &section.probes;
    if probes.interval_ms != 0 && !(10..=60_000).contains(&probes.interval_ms) {
        let what = format!("{}: give 10 to 60000, or 0 for none", probes.interval_ms);
        return Err(GateError::config("probes.interval_ms", what));
    }
    for (key, rounds) in [("probes.fall", probes.fall), ("probes.rise", probes.rise)] {
        if !(1..=1000).contains(&rounds) {
            return Err(GateError::config(key, format!("{rounds}: give 1 to 1000")));
        }
    }
    match section.decisions {
        Some(DecisionFormat::Authenticated) if !keys => {
            Err(GateError::config("decisions", "\"authenticated\" needs keys: give key_file"))
        }
        Some(format) => Ok(format),
        None if keys => Ok(DecisionFormat::Authenticated),
        None => Ok(DecisionFormat::None),
    }
}

/// What is said without effect, or left out though it is probably wanted.
pub(crate) fn remarks(
    section: &GatekeeperSection,
    decisions: DecisionFormat,
    kernels: Option<&str>,
) -> Vec<String> {
    let mut remarks = Vec::new();
    let usual = GatekeeperSection::default();
    if decisions != DecisionFormat::Authenticated {
        let why = match (decisions, section.decisions) {
            (DecisionFormat::Interoperable, _) => "decisions = \"interoperable\" carries no authentication",
            (_, Some(_)) => "decisions = \"none\" takes none that come",
            (_, None) => "without keys no decisions are taken",
        };
        for (key, given) in [
            ("key_file", section.key_file.is_some()),
            ("keys", !section.keys.is_empty()),
            ("clock_s", section.clock_s != usual.clock_s),
            ("probes", section.probes != usual.probes),
        ] {
            if given {
                remarks.push(format!("gatekeeper.{key} has no effect: {why}"));
            }
        }
    }
    let asks = section.policy.iter().any(|policy| policy.action == Action::Grantor);
    if asks && decisions == DecisionFormat::None && section.decisions.is_none() {
        remarks.push(
            "gatekeeper.decisions: there are no keys, so Grantors are asked and not heard, and only an operator decides: give key_file"
                .into(),
        );
    }
    if asks && section.bandwidth.is_none() {
        remarks.push(format!(
            "gatekeeper.bandwidth: there is none, so requests may take {} % of 10 Gbps, whatever the way to the Grantors takes: give it (of several links the narrowest one's)",
            section.request_percent
        ));
    }
    if let Some(name) = kernels.filter(|_| asks) {
        remarks.push(format!(
            "interface.owner: {name:?} is the kernel's, which gets what routers on the way to the Grantors say of packets that are too long, so nobody heeds it: give owner = \"us\", or an mtu that the whole way takes"
        ));
    }
    if section.policy.is_empty() {
        let fate = match section.default {
            DefaultAction::Route => "routed",
            DefaultAction::Drop => "dropped",
        };
        remarks.push(format!(
            "gatekeeper.policy: there is none, so nothing is protected: all that comes from the front is {fate} (add [[gatekeeper.policy]])"
        ));
    }
    remarks
}

/// The addresses that we send to Grantors from; 0 where there is none.
fn sources(
    section: &GatekeeperSection,
    interfaces: &Interfaces,
    front: &[bool],
) -> Result<(u32, u128), GateError> {
    let (mut source4, mut source6) = (None, None);
    let back = || interfaces.iter().zip(front).filter(|(_, front)| !**front).map(|(interface, _)| interface);
    for (i, text) in section.source.iter().enumerate() {
        let wrong = |what: String| GateError::config(format!("source[{i}]"), what);
        let address: IpAddr = text.parse().map_err(|_| wrong(format!("{text:?} is no address")))?;
        if !back().any(|interface| interface.has(address)) {
            return Err(wrong(format!(
                "{text}: no interface at the back has it: give one of their addresses"
            )));
        }
        let twice = match address {
            IpAddr::V4(address) => source4.replace(u32::from(address)).is_some(),
            IpAddr::V6(address) => source6.replace(u128::from(address)).is_some(),
        };
        if twice {
            return Err(wrong(format!("{text}: there is one of its family already")));
        }
    }
    let back = || interfaces.iter().zip(front).filter(|(_, front)| !**front).map(|(interface, _)| interface);
    let source4 =
        source4.or_else(|| back().find_map(|i| i.v4.first().map(|(address, _)| u32::from(*address))));
    let source6 =
        source6.or_else(|| back().find_map(|i| i.v6.first().map(|(address, _)| u128::from(*address))));
    Ok((source4.unwrap_or(0), source6.unwrap_or(0)))
}

/// The action where there is no policy.
pub(crate) fn default_action(section: &GatekeeperSection) -> Action {
    match section.default {
        DefaultAction::Route => Action::Route,
        DefaultAction::Drop => Action::Drop,
    }
}

/// Bits per second of the way to the Grantors.
pub(crate) fn bits_per_s(section: &GatekeeperSection) -> Result<u64, GateError> {
    let Some(bandwidth) = &section.bandwidth else { return Ok(10_000_000_000) };
    bandwidth.bits_per_s().map_err(|what| GateError::config("bandwidth", what))
}

/// Our addresses, of both families: packets to these are never judged, and packets from the front with these as sources are dropped.
pub(crate) fn own(interfaces: &Interfaces) -> (Vec<u32>, Vec<u128>) {
    let v4 = interfaces.iter().flat_map(|interface| &interface.v4).map(|(address, _)| u32::from(*address));
    let v6 = interfaces.iter().flat_map(|interface| &interface.v6).map(|(address, _)| u128::from(*address));
    (v4.collect(), v6.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_ip::Interface;

    #[test]
    fn what_has_no_effect_is_said() {
        let asks =
            "policy = [{ prefix = \"10.0.0.0/8\", action = \"grantor\", grantors = [\"11.0.0.1\"] }]\n";
        let policy = &format!("bandwidth = 1000000000\n{asks}");
        let keys = format!("keys = [\"1 {}\"]\n", "ab".repeat(32));
        let said = |text: String| {
            let section: GatekeeperSection = toml::from_str(&text).unwrap();
            remarks(&section, decisions(&section).unwrap(), None)
        };
        assert_eq!(said(format!("{keys}clock_s = 3\nprobes = {{ fall = 9 }}\n{policy}")), [""; 0]);
        assert_eq!(said(format!("decisions = \"none\"\n{policy}")), [""; 0]);
        assert_eq!(said(format!("decisions = \"interoperable\"\n{policy}")), [""; 0]);
        let why = "decisions = \"interoperable\" carries no authentication";
        assert_eq!(
            said(format!(
                "decisions = \"interoperable\"\nclock_s = 3\nprobes = {{ fall = 9 }}\n{keys}{policy}"
            )),
            ["keys", "clock_s", "probes"].map(|key| format!("gatekeeper.{key} has no effect: {why}"))
        );
        assert_eq!(
            said(format!("decisions = \"none\"\nkey_file = \"k\"\n{policy}")),
            ["gatekeeper.key_file has no effect: decisions = \"none\" takes none that come"]
        );
        // What requests may take: given as what it is without a word, it is given.
        assert_eq!(said(format!("decisions = \"none\"\nbandwidth = \"10 Gbps\"\n{asks}")), [""; 0]);
        let unsaid = said(format!("decisions = \"none\"\n{asks}"));
        assert!(
            unsaid[0].starts_with("gatekeeper.bandwidth: there is none, so requests may take 5 % of 10 Gbps")
        );
        assert_eq!(unsaid.len(), 1);
        assert!(said(policy.clone())[0].starts_with("gatekeeper.decisions: there are no keys, so "));
        assert!(
            said(String::new())[0]
                .ends_with("all that comes from the front is routed (add [[gatekeeper.policy]])")
        );
        assert!(said(format!("{keys}default = \"drop\"\n"))[0].contains("is dropped"));
    }

    #[test]
    fn a_back_that_hears_of_no_narrow_link_is_said() {
        let mut back = Interface::of_port(1, "back");
        back.owner = Owner::Kernel;
        let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back], 2);
        let text = "decisions = \"none\"\nbandwidth = \"1 Gbps\"\n\
            policy = [{ prefix = \"10.0.0.0/8\", action = \"grantor\", grantors = [\"11.0.0.1\"] }]\n";
        let said = |text: &str| {
            let section: GatekeeperSection = toml::from_str(text).unwrap();
            let found = settings(&section, &interfaces).unwrap();
            remarks(&section, found.decisions, found.kernels.as_deref())
        };
        let lines = said(text);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("interface.owner: \"back\" is the kernel's"), "{lines:?}");
        // Where nobody is asked, nothing is sent that could be too long.
        assert_eq!(
            said(&text.replace("action = \"grantor\", grantors = [\"11.0.0.1\"]", "action = \"drop\"")),
            [""; 0]
        );
    }
}
