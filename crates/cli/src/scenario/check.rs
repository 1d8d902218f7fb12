//! What a scenario says, checked without root: numbers and prefixes; its two configurations, made in a folder and checked as `tidemill check` checks any. And where in the
//! scenario a key stands.

use super::file::{Cpus, Expect, Net, Network, Read};
use super::process::{Configurations, Folder};
use crate::run::check_in_its_folder;
use crate::usage::one_line;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use tidemill_port::number;

/// Prefixes of addresses that no machine has, or only on its own link.
const NOBODY: [Net; 7] = [
    Net(IpAddr::V4(Ipv4Addr::new(0, 0, 0, 0)), 8),
    Net(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    Net(IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    Net(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 3),
    Net(IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0)), 8),
    Net(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    Net(IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

impl Network {
    pub(super) fn validate(&self) -> Result<(), String> {
        let nets = [
            ("client", &self.client, [16, 64]),
            ("access", &self.access, [30, 126]),
            ("front", &self.front, [30, 126]),
            ("back", &self.back, [30, 126]),
            ("server", &self.server, [30, 126]),
        ];
        for (at, (key, own, most)) in nets.iter().enumerate() {
            let fits = |at: usize| own[at].0.is_ipv6() == (at == 1) && own[at].1 <= most[at];
            if !(fits(0) && fits(1)) {
                let [v4, v6] = most;
                return Err(format!(
                    "network.{key}: give an IPv4 prefix of /{v4} or shorter, and an IPv6 one of /{v6} or shorter"
                ));
            }
            for net in own.iter() {
                if let Some(nobody) = NOBODY.iter().find(|nobody| net.overlaps(**nobody)) {
                    return Err(format!(
                        "network.{key}: in {net} are addresses of {nobody}, which packets are not routed to: give another prefix"
                    ));
                }
                let other =
                    nets[..at].iter().find(|(_, others, _)| others.iter().any(|other| net.overlaps(*other)));
                if let Some((other, ..)) = other {
                    return Err(format!(
                        "network.{key}: {net} has addresses of network.{other}: give each a prefix of its own"
                    ));
                }
            }
        }
        if !["af_xdp", "af_packet"].contains(&self.port.as_str()) {
            return Err(format!("network.port = {:?}: give \"af_xdp\" or \"af_packet\"", self.port));
        }
        if !(self.rx_ring.is_power_of_two() && (64..=32_768).contains(&self.rx_ring)) {
            return Err(format!("network.rx_ring = {}: give a power of two from 64 to 32768", self.rx_ring));
        }
        Ok(())
    }
}

impl Cpus {
    /// `ours`: those that we may use; none where the system does not say.
    pub(super) fn validate(&self, ours: &[usize]) -> Result<(), String> {
        let named = [
            ("gatekeeper", self.gatekeeper),
            ("grantor", self.grantor),
            ("attack", self.attack),
            ("others", self.others),
        ];
        match named.iter().find(|(_, cpu)| !ours.is_empty() && !ours.contains(cpu)) {
            Some((key, cpu)) => Err(format!("cpus.{key} = {cpu}: not ours to use: give one of {ours:?}")),
            None => Ok(()),
        }
    }
}

impl Expect {
    pub(super) fn validate(&self) -> Result<(), String> {
        let bounds = [
            ("goodput", self.goodput),
            ("tcp", self.tcp),
            ("request_s", self.request_s),
            ("change_ms", self.change_ms),
            ("attack_mpps", self.attack_mpps),
            ("attack_ratio", self.attack_ratio),
        ];
        let wrong =
            |(_, bound): &&(&str, Option<f64>)| bound.is_some_and(|of| !(of.is_finite() && of >= 0.0));
        match bounds.iter().find(wrong) {
            Some((key, bound)) => {
                let bound = number(bound.unwrap_or_default());
                Err(format!("expect.{key} = {bound}: give a number, 0 or more"))
            }
            None => Ok(()),
        }
    }
}

/// Checks both configurations, the Grantor's with each policy that a phase brings.
///
/// # Errors
/// What is wrong, by the names that the scenario has for it.
pub(super) fn configurations(read: &Read) -> Result<(), String> {
    let failed = |error: anyhow::Error| one_line(&error);
    let folder = Folder::of(read).map_err(failed)?;
    let configurations = Configurations::new(read, &super::secret().map_err(failed)?);
    let check = |name: &str, text: &str| {
        let checked = folder.write(name, text).and_then(|()| check_in_its_folder(&folder.0.join(name)));
        checked.map_err(|error| plain(&folder.0, name, &one_line(&error)))
    };
    check("gatekeeper.toml", &configurations.gatekeeper())?;
    // Without Lua there is no Grantor.
    if cfg!(feature = "lua") {
        check("grantor.toml", &configurations.grantor(None))?;
        let changes = read.scenario.phase.iter().filter_map(|phase| phase.change.as_ref());
        let policies: BTreeSet<&str> = changes.map(|change| change.policy.as_str()).collect();
        for policy in policies {
            check("grantor.toml", &configurations.grantor(Some(policy)))?;
        }
    }
    Ok(())
}

/// A message about a file in the folder, without the folder, and without the configuration that nobody has written.
fn plain(folder: &Path, name: &str, message: &str) -> String {
    let message = message.replace(&format!("{}/", folder.display()), "");
    message.strip_prefix(&format!("{name}: ")).map(str::to_owned).unwrap_or(message)
}

/// A message behind the scenario's name, and behind the line of the key with which it begins, if there is one.
pub(super) fn located(name: impl Display, text: &str, message: &str) -> String {
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
    let key = &message[..message.find(|c: char| !is_key(c)).unwrap_or(message.len())];
    match line_of(text, key) {
        Some(line) => format!("{name}:{line}: {message}"),
        None => format!("{name}: {message}"),
    }
}

/// The line where a key stands, as `grantor.policy.steps` or `gatekeeper.program[0].file`; of an inline table the whole is one.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let (mut section, mut arrays) = (String::new(), Vec::<Element<'_>>::new());
    let mut found = None;
    for (at, line) in text.lines().map(str::trim).enumerate() {
        let name = if let Some(header) = line.strip_prefix("[[") {
            let header = header.split(']').next().unwrap_or_default();
            let array = numbered(header, &arrays);
            let before = arrays.iter().filter(|other| other.array == array).count();
            section = format!("{array}[{before}]");
            arrays.push(Element { header, array, section: section.clone() });
            section.clone()
        } else if let Some(header) = line.strip_prefix('[') {
            section = numbered(header.split(']').next().unwrap_or_default(), &arrays);
            section.clone()
        } else if let Some((name, _)) = line.split_once('=') {
            if section.is_empty() { name.trim().to_owned() } else { format!("{section}.{}", name.trim()) }
        } else {
            continue;
        };
        // It, or what is around it; the longest is the nearest.
        let is_it =
            key.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        if is_it && found.is_none_or(|(longest, _)| name.len() > longest) {
            found = Some((name.len(), at + 1));
        }
    }
    found.map(|(_, line)| line)
}

/// A table of an array: `phase.attack`, `phase[1].attack`, `phase[1].attack[0]`.
struct Element<'a> {
    header: &'a str,
    array: String,
    section: String,
}

/// A header with the numbers of the tables that it lies in: of each array that is the last.
fn numbered(header: &str, arrays: &[Element<'_>]) -> String {
    let around = arrays.iter().filter_map(|element| {
        let rest = header.strip_prefix(element.header).filter(|rest| rest.starts_with('.'))?;
        Some((element.header.len(), format!("{}{rest}", element.section)))
    });
    // Of the nearest.
    around.max_by_key(|(len, _)| *len).map_or_else(|| header.to_owned(), |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "version = 1\n[gatekeeper]\nidle_s = 0\n[[gatekeeper.program]]\nnumber = 9\n\
        [[gatekeeper.program]]\nnumber = 10\nfile = \"b\"\n[grantor.policy]\nparameters = { rate = 1 }\n\
        [[phase]]\nseconds = 1\n[[phase.attack]]\npps = 1\n[[phase.attack]]\npps = 2\n\
        [[phase]]\nseconds = 2\nattack = [{ pps = 3 }]\n[phase.change]\npolicy = \"c\"\n";

    #[test]
    fn a_key_has_the_line_on_which_it_stands() {
        for (key, line) in [
            ("version", Some(1)),
            ("gatekeeper.idle_s", Some(3)),
            ("gatekeeper.bandwidth", Some(2)),
            ("gatekeeper.program[0].number", Some(5)),
            ("gatekeeper.program[0].file", Some(4)),
            ("gatekeeper.program[1].file", Some(8)),
            ("grantor.policy.steps", Some(9)),
            ("grantor.policy.parameters.rate", Some(10)),
            ("phase[0].seconds", Some(12)),
            ("phase[0].newcomers", Some(11)),
            ("phase[0].attack[1].pps", Some(16)),
            ("phase[0].attack[1].count", Some(15)),
            ("phase[1].seconds", Some(18)),
            ("phase[1].attack[0].pps", Some(19)),
            ("phase[1].change.policy", Some(21)),
            ("phase[2].seconds", None),
            ("memory.frames", None),
            ("", None),
        ] {
            assert_eq!(line_of(TEXT, key), line, "{key}");
        }
    }

    #[test]
    fn a_message_is_about_the_scenario() {
        let said =
            |message: &str| located("s.toml", TEXT, &plain(Path::new("/tmp/x"), "gatekeeper.toml", message));
        let idle = "s.toml:3: gatekeeper.idle_s: 0: give 1 to 86400";
        assert_eq!(said("/tmp/x/gatekeeper.toml: gatekeeper.idle_s: 0: give 1 to 86400"), idle);
        assert_eq!(said("/tmp/x/policy.lua: no such file"), "s.toml: policy.lua: no such file");
        assert_eq!(said("policy.lua:2: a mistake"), "s.toml: policy.lua:2: a mistake");
    }
}
