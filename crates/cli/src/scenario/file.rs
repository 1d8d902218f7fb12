//! The scenario file: TOML, unknown keys are errors, every error is one line with its place.

use super::check;
use crate::run::MOST_BYTES;
use crate::usage::{in_words, usage};
use anyhow::Result;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tidemill_gatekeeper::GatekeeperSection;
use tidemill_grantor::GrantorSection;
use tidemill_port::number;

/// A scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Version of this format: 1.
    version: u32,
    /// Addresses and ports.
    #[serde(default)]
    pub(super) network: Network,
    /// Which CPU does what.
    #[serde(default)]
    pub(super) cpus: Cpus,
    /// Files that go beside the Grantor's configuration: policies, and the tables that they name.
    #[serde(default)]
    pub(super) files: Vec<PathBuf>,
    /// The Gatekeeper, as in its configuration; `front`, `policy` and keys are the scenario's. Read here for its mistakes only.
    #[serde(default, rename = "gatekeeper")]
    _gatekeeper: GatekeeperSection,
    /// The Grantor, likewise; `gatekeepers` and keys are the scenario's.
    #[serde(default)]
    grantor: GrantorSection,
    /// What is sent by those who mean well.
    #[serde(default)]
    pub(super) client: ClientSection,
    /// What happens, one after the other.
    pub(super) phase: Vec<Phase>,
    /// What has to come out.
    #[serde(default)]
    pub(super) expect: Expect,
}

/// Networks, IPv4 and IPv6, and the kind of ports that are between them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Network {
    /// Those who mean well: host 2 sends datagrams, 3 a TCP stream, 4 is declined, 5 is declined by a later policy; newcomers from host 256 on, who
    /// only a later policy grants from host 32768 on.
    pub(super) client: [Net; 2],
    /// Between them and what they reach the Internet by.
    pub(super) access: [Net; 2],
    /// In front of the Gatekeeper: 1 is the Gatekeeper, 2 the Internet.
    pub(super) front: [Net; 2],
    /// Between Gatekeeper (1) and Grantor (2).
    pub(super) back: [Net; 2],
    /// Behind the Grantor (1): 2 is the server.
    pub(super) server: [Net; 2],
    /// The Gatekeeper's and the Grantor's ports: `af_xdp` or `af_packet`. Attacks need `af_xdp`.
    pub(super) port: String,
    /// Packets that wait at a port for its worker.
    pub(super) rx_ring: usize,
}

impl Default for Network {
    fn default() -> Self {
        let net =
            |v4: [u8; 4], len, v6: u16| [Net(v4.into(), len), Net([0xfd00, v6, 0, 0, 0, 0, 0, 0].into(), 64)];
        Network {
            client: net([10, 6, 0, 0], 16, 6),
            access: net([10, 5, 0, 0], 24, 5),
            front: net([10, 7, 0, 0], 24, 7),
            back: net([10, 8, 0, 0], 24, 8),
            server: net([10, 9, 0, 0], 24, 9),
            port: "af_xdp".into(),
            rx_ring: 16_384,
        }
    }
}

/// A prefix.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Net(pub(super) IpAddr, pub(super) u8);

impl TryFrom<String> for Net {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("{text:?}: give a prefix, as 10.6.0.0/16 or fd00:6::/64");
        let (address, len) = text.split_once('/').ok_or_else(bad)?;
        let (address, len): (IpAddr, u8) =
            (address.parse().map_err(|_| bad())?, len.parse().map_err(|_| bad())?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if len > bits || Net(address, len).number() & Net(address, len).varying() != 0 {
            return Err(bad());
        }
        Ok(Net(address, len))
    }
}

impl Net {
    fn number(self) -> u128 {
        match self.0 {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        }
    }

    /// The bits in which its addresses differ.
    pub(super) fn varying(self) -> u128 {
        let bits: u32 = if self.0.is_ipv4() { 32 } else { 128 };
        let host = bits.saturating_sub(self.1.into());
        if host == 128 { u128::MAX } else { (1 << host) - 1 }
    }

    /// Whether an address is in both.
    pub(super) fn overlaps(self, other: Net) -> bool {
        let differ = (self.number() ^ other.number()) & !(self.varying() | other.varying());
        self.0.is_ipv4() == other.0.is_ipv4() && differ == 0
    }

    /// An address in it.
    pub(super) fn host(self, number: u32) -> IpAddr {
        let address = self.number() | u128::from(number) & self.varying();
        match self.0 {
            IpAddr::V4(_) => IpAddr::V4((address as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(address.into()),
        }
    }
}

impl std::fmt::Display for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// Which CPU does what. On a machine with more of them, more can be told apart.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cpus {
    /// The Gatekeeper's worker.
    pub(super) gatekeeper: usize,
    /// The Grantor's worker.
    pub(super) grantor: usize,
    /// The kernel's threads that make attacks. They have a lower priority than all others.
    pub(super) attack: usize,
    /// Client, server, and the rest of the scenario.
    pub(super) others: usize,
}

impl Default for Cpus {
    fn default() -> Self {
        Cpus { gatekeeper: 1, grantor: 0, attack: 0, others: 0 }
    }
}

/// What those send who mean well.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClientSection {
    /// Bytes of a datagram's payload, 16 to 1400.
    pub(super) bytes: usize,
    /// The part of its granted rate that the client sends, in datagrams, over each family.
    pub(super) share: f64,
    /// KiB/s of a TCP transfer over each family, at most 10,000,000; 0: none.
    #[serde(deserialize_with = "tcp_kib_s")]
    pub(super) tcp_kib_s: u32,
    /// Datagrams a second of somebody who is declined, over each family.
    pub(super) declined_pps: u32,
}

impl Default for ClientSection {
    fn default() -> Self {
        ClientSection { bytes: 1000, share: 0.98, tcp_kib_s: 512, declined_pps: 100 }
    }
}

/// A part of the scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Phase {
    #[serde(deserialize_with = "name")]
    pub(super) name: String,
    pub(super) seconds: f64,
    /// What is done meanwhile by those who do not mean well.
    #[serde(default)]
    pub(super) attack: Vec<Attack>,
    /// Clients that come for the first time, over each family.
    #[serde(default)]
    pub(super) newcomers: u32,
    /// What these are held to, in place of `expect.request_s`.
    #[serde(default)]
    pub(super) request_s: Option<f64>,
    /// Another policy, from the middle of the phase on.
    #[serde(default)]
    pub(super) change: Option<Change>,
}

/// Another policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    /// The script, one of `files`.
    pub(super) policy: String,
    /// Whether what was decided before is taken back.
    #[serde(default)]
    pub(super) revoke: bool,
}

/// An attack.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attack {
    pub(super) shape: Shape,
    /// Packets a second, 1 to 100,000,000.
    #[serde(deserialize_with = "pps")]
    pub(super) pps: u64,
    /// Where the sources are; their family is the attack's.
    #[serde(default)]
    pub(super) sources: Option<Net>,
    /// Whether a forgery is of IPv6, about the client's flow there.
    #[serde(default)]
    pub(super) v6: bool,
    /// How many there are, a power of two. Default: every packet has another.
    #[serde(default)]
    pub(super) count: Option<u64>,
}

/// What an attack is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// Datagrams to the server.
    Udp,
    /// Openings of connections to the server's port 80.
    Syn,
    /// Decisions that decline the client, to the Gatekeeper, with the Grantor's address and a wrong tag, from the front.
    Forgery,
    /// The same from behind the Gatekeeper.
    ForgeryBehind,
}

/// What has to come out; every phase is held to it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expect {
    /// The part of the granted rate that arrives at least.
    pub(super) goodput: Option<f64>,
    /// The part of the TCP transfer's rate that arrives at least.
    pub(super) tcp: Option<f64>,
    /// Datagrams of the declined source that arrive at most.
    pub(super) declined: Option<u64>,
    /// Seconds until a newcomer's first packet has arrived, at most.
    pub(super) request_s: Option<f64>,
    /// Milliseconds until another policy holds, and until what it takes back is gone, at most.
    pub(super) change_ms: Option<f64>,
    /// The client's packets that are lost at most in a phase with a change of the policy and without an attack.
    pub(super) change_lost: Option<u64>,
    /// Packets a second that phases with attacks have at least, in millions.
    pub(super) attack_mpps: Option<f64>,
    /// The same as a multiple of the client's.
    pub(super) attack_ratio: Option<f64>,
}

/// A scenario, read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(super) scenario: Scenario,
    /// `[gatekeeper]` and `[grantor]` as written.
    pub(super) gatekeeper: toml::Table,
    pub(super) grantor: toml::Table,
    /// The file's folder.
    pub(super) base: PathBuf,
}

/// A whole number of the range; of another one it is told where it stands, however large it is.
fn within<'de, D: Deserializer<'de>>(
    from: D,
    key: &str,
    range: &RangeInclusive<u32>,
) -> Result<u32, D::Error> {
    let number = i128::deserialize(from)?;
    let found = u32::try_from(number).ok().filter(|number| range.contains(number));
    let wrong = || D::Error::custom(format!("{key} = {number}: give {} to {}", range.start(), range.end()));
    found.ok_or_else(wrong)
}

fn tcp_kib_s<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    within(from, "client.tcp_kib_s", &(0..=10_000_000))
}

fn pps<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    within(from, "attack.pps", &(1..=100_000_000)).map(u64::from)
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    if name.trim().is_empty() { Err(D::Error::custom("phase.name: is empty: give one")) } else { Ok(name) }
}

/// Whether a text is that of a scenario rather than of a configuration. What its values are is not looked at: a wrong one is told of by who reads it.
pub(crate) fn is_scenario(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Keys {
        phase: Option<IgnoredAny>,
        role: Option<IgnoredAny>,
    }
    toml::from_str::<Keys>(text).is_ok_and(|keys| keys.phase.is_some() && keys.role.is_none())
}

/// The two configurations' sections as they are written.
#[derive(Deserialize)]
struct Sections {
    #[serde(default)]
    gatekeeper: toml::Table,
    #[serde(default)]
    grantor: toml::Table,
}

fn parse<T: DeserializeOwned>(name: impl Display, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        usage(format!("{name}:{line}: {}", in_words(error.message(), text.lines().nth(line - 1))))
    })
}

/// Reads a scenario and checks it.
pub(crate) fn read(path: &Path) -> Result<Read> {
    of(path, &crate::files::text(path, MOST_BYTES, "give a scenario's file")?)
}

/// The same of the text of that file.
pub(super) fn of(path: &Path, text: &str) -> Result<Read> {
    let name = path.display();
    let scenario = parse(&name, text)?;
    let Sections { gatekeeper, grantor } = parse(&name, text)?;
    let base = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let read = Read { scenario, gatekeeper, grantor, base };
    let checked = read.validate().and_then(|()| check::configurations(&read));
    checked.map_err(|what| usage(check::located(&name, text, &what)))?;
    Ok(read)
}

impl Read {
    fn validate(&self) -> Result<(), String> {
        let own = &self.scenario;
        if own.version != 1 {
            return Err(format!("version = {}: this program reads version 1", own.version));
        }
        for (section, table, taken) in [
            ("gatekeeper", &self.gatekeeper, &["front", "policy", "keys", "key_file"][..]),
            ("grantor", &self.grantor, &["gatekeepers", "keys", "key_file"]),
        ] {
            if let Some(key) = taken.iter().find(|key| table.contains_key(**key)) {
                return Err(format!("{section}.{key}: the scenario sets it: leave it out"));
            }
            if table.get("decisions").is_some_and(|format| format.as_str() != Some("authenticated")) {
                return Err(format!("{section}.decisions: a scenario's are authenticated: leave it out"));
            }
        }
        own.cpus.validate(&tidemill_graph::allowed_cpus())?;
        own.expect.validate()?;
        own.network.validate()?;
        let client = &own.client;
        if !(16..=1400).contains(&client.bytes) {
            return Err(format!("client.bytes = {}: give 16 to 1400", client.bytes));
        }
        if !(client.share > 0.0 && client.share <= 2.0) {
            return Err(format!("client.share = {}: give more than 0, at most 2", number(client.share)));
        }
        if !(1..=10_000).contains(&client.declined_pps) {
            return Err(format!("client.declined_pps = {}: give 1 to 10000", client.declined_pps));
        }
        // They come into one folder, with the two configurations and what the processes write.
        let mut names = HashSet::new();
        for file in &self.scenario.files {
            let path = self.base.join(file);
            let Some(name) = file.file_name().filter(|_| path.is_file()) else {
                return Err(format!("files: {}: there is no such file", path.display()));
            };
            let role =
                ["gatekeeper", "grantor"].iter().any(|role| path.file_stem() == Some(OsStr::new(role)));
            let own = role
                && ["toml", "sock", "out", "log"].iter().any(|end| path.extension() == Some(OsStr::new(end)));
            if own || !names.insert(name) {
                return Err(format!(
                    "files: {}: there is one with this name already: rename it",
                    path.display()
                ));
            }
        }
        if let Some(policy) = &own.grantor.policy.file {
            self.has_file("grantor.policy.file", policy)?;
        }
        if own.phase.is_empty() {
            return Err("phase: there is none: give [[phase]]".into());
        }
        let mut phases = own.phase.iter().enumerate();
        phases.try_for_each(|(n, phase)| self.phase(phase).map_err(|what| format!("phase[{n}].{what}")))
    }

    /// Whether a file that is named there comes into the folder.
    fn has_file(&self, key: &str, named: &str) -> Result<(), String> {
        let is_it = |file: &PathBuf| file.file_name().is_some_and(|name| name == named);
        match Path::new(named).is_absolute() || self.scenario.files.iter().any(is_it) {
            true => Ok(()),
            false => Err(format!("{key} = {named:?}: it is none of `files`: name it there, too")),
        }
    }

    /// What is wrong with a phase, by its key there.
    fn phase(&self, phase: &Phase) -> Result<(), String> {
        if !(0.5..=3600.0).contains(&phase.seconds) {
            return Err(format!("seconds = {}: give 0.5 to 3600", number(phase.seconds)));
        }
        if phase.newcomers > 1000 {
            return Err(format!("newcomers = {}: give at most 1000", phase.newcomers));
        }
        if let Some(of) = phase.request_s.filter(|of| !(of.is_finite() && *of >= 0.0)) {
            return Err(format!("request_s = {}: give a number, 0 or more", number(of)));
        }
        if let Some(Change { policy, .. }) = &phase.change {
            self.has_file("change.policy", policy)?;
        }
        if !phase.attack.is_empty() && self.scenario.network.port != "af_xdp" {
            return Err("attack: needs network.port = \"af_xdp\"".into());
        }
        let mut attacks = phase.attack.iter().enumerate();
        attacks.try_for_each(|(n, attack)| attack.validate().map_err(|what| format!("attack[{n}].{what}")))
    }
}

impl Attack {
    /// What is wrong with it, by its key there.
    fn validate(&self) -> Result<(), String> {
        if self.count.is_some_and(|count| !count.is_power_of_two()) {
            return Err("count: give a power of two".into());
        }
        if let (Some(count), Some(net)) = (self.count, self.sources)
            && u128::from(count - 1) > net.varying()
        {
            return Err(format!("count = {count}: {net} has fewer addresses"));
        }
        if self.sources.is_some() == self.is_forgery() {
            return Err("sources: needed for udp and syn, and no others: the prefix of the sources".into());
        }
        if self.v6 && !self.is_forgery() {
            return Err("v6: of forgeries only: others are of their sources' family".into());
        }
        Ok(())
    }

    pub(super) fn is_forgery(&self) -> bool {
        matches!(self.shape, Shape::Forgery | Shape::ForgeryBehind)
    }
}

impl Scenario {
    /// Newcomers of the whole scenario, of one family.
    pub(super) fn newcomers(&self) -> u32 {
        self.phase.iter().map(|phase| phase.newcomers).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "version = 1\n[client]\ntcp_kib_s = 0\n[[phase]]\nname = \"a\"\nseconds = 1\n\
        attack = [{ shape = \"forgery\", pps = 7 }]\n";

    #[test]
    fn a_wrong_number_is_told_where_it_stands() {
        assert!(parse::<Scenario>("s", GOOD).is_ok() && is_scenario(GOOD));
        for (from, to, said) in [
            ("= 0", "= 4294967295", "s:3: client.tcp_kib_s = 4294967295: give 0 to 10000000"),
            ("= 0", "= -1", "s:3: client.tcp_kib_s = -1: give 0 to 10000000"),
            ("= 0", "= 1e300", "s:3: tcp_kib_s: invalid type: floating point `1e300`: give a whole number"),
            ("= 0", "= 1.5", "s:3: tcp_kib_s: invalid type: floating point `1.5`: give a whole number"),
            ("\"a\"", "\" \"", "s:5: phase.name: is empty: give one"),
            ("= 7", "= 0", "s:7: attack.pps = 0: give 1 to 100000000"),
            ("= 7", "= 18446744073709551615", "s:7: attack.pps = 18446744073709551615: give 1 to 100000000"),
            ("= 7", "= 99999999999999999999", "s:7: attack.pps = 99999999999999999999: give 1 to 100000000"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            assert_eq!(parse::<Scenario>("s", &text).err().unwrap().to_string(), said);
            assert!(is_scenario(&text), "{text}");
        }
        assert!(!is_scenario("role = \"router\"\n[[phase]]\n") && !is_scenario("version = 1\n"));
    }

    #[test]
    fn what_is_wrong_with_a_phase_is_told_where_it_stands() {
        let cpu = tidemill_graph::allowed_cpus().first().copied().unwrap_or(0);
        let good = format!(
            "{GOOD}[[phase]]\nname = \"b\"\nseconds = 2\nnewcomers = 3\n\
             [[phase.attack]]\nshape = \"forgery\"\npps = 8\n\
             [cpus]\ngatekeeper = {cpu}\ngrantor = {cpu}\nattack = {cpu}\nothers = {cpu}\n"
        );
        let said = |text: &str| {
            let Sections { gatekeeper, grantor } = parse("s", text).unwrap();
            let read =
                Read { scenario: parse("s", text).unwrap(), gatekeeper, grantor, base: PathBuf::new() };
            read.validate().err().map(|what| check::located("s", text, &what))
        };
        assert_eq!(said(&good), None);
        let (none, power) = ("change = { policy = \"none.lua\" }", "give a power of two");
        for (from, to, wanted) in [
            ("seconds = 1\n", "seconds = 0.1\n", "s:6: phase[0].seconds = 0.1: give 0.5 to 3600"),
            ("seconds = 2\n", "seconds = 4e3\n", "s:10: phase[1].seconds = 4000: give 0.5 to 3600"),
            ("newcomers = 3", "newcomers = 1001", "s:11: phase[1].newcomers = 1001: give at most 1000"),
            ("newcomers = 3", "request_s = -1", "s:11: phase[1].request_s = -1: give a number, 0 or more"),
            ("newcomers = 3", none, "s:11: phase[1].change.policy = \"none.lua\": it is none of `files`"),
            ("pps = 7 }", "pps = 7, count = 3 }", &format!("s:7: phase[0].attack[0].count: {power}")),
            ("pps = 8", "count = 3\npps = 8", &format!("s:14: phase[1].attack[0].count: {power}")),
            ("\"forgery\"\n", "\"udp\"\n", "s:12: phase[1].attack[0].sources: needed for udp and syn"),
        ] {
            assert!(good.contains(from), "{from}");
            let what = said(&good.replacen(from, to, 1)).unwrap();
            assert!(what.starts_with(wanted), "{what}");
        }
    }
}
