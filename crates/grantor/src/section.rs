//! The section `[grantor]` as written; its comments are the schema's text. And what the nodes make of it: [`Settings`].

use crate::config::PolicySection;
use crate::error::PolicyError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use tidemill_decision::authenticated::Range;
use tidemill_decision::keys::{KeyText, Keyring};
use tidemill_ip::Interfaces;

/// Prefixes of Gatekeepers that are compared for each outer packet at most.
const MOST_PREFIXES: usize = 64;

/// Takes packets out of the outer ones that Gatekeepers put them into, lets granted ones on, and has a policy decide about the rest.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrantorSection {
    /// The prefixes of the Gatekeepers' addresses, both families: `"10.0.0.0/24"`, `"2001:db8::1/128"`. Outer packets from elsewhere are dropped. Only
    /// Gatekeepers may be able to send with these addresses, so none is shorter than /8, or /16 of IPv6: an outer packet says itself that it was granted. (A Gatekeeper lets none through from its front to a Grantor that its
    /// policies name; other edges have to be filtered.)
    pub gatekeepers: Vec<String>,
    /// In which format decisions are sent.
    pub decisions: DecisionFormat,
    /// The file of the keys that decisions are authenticated with: a line for each, its number (1 to 65,535) and 64 hexadecimal digits; the first signs,
    /// all verify. Nobody but its owner may read it. Relative to the configuration file; a reload reads it again.
    pub key_file: Option<PathBuf>,
    /// The keys themselves, one such line each, instead of a file.
    #[serde(deserialize_with = "tidemill_decision::keys::texts")]
    pub keys: Vec<KeyText>,
    /// Seconds by which a Gatekeeper's clock may differ from ours, for its probes. 1 to 300.
    pub clock_s: u16,
    /// Who may send how much.
    pub policy: PolicySection,
}

impl GrantorSection {
    /// Keys that cannot change while packets flow, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 3] {
        [
            ("policy.queue", self.policy.queue == other.policy.queue),
            ("policy.wait_ms", self.policy.wait_ms == other.policy.wait_ms),
            ("policy.fail_safe", self.policy.fail_safe == other.policy.fail_safe),
        ]
    }
}

impl Default for GrantorSection {
    fn default() -> Self {
        GrantorSection {
            gatekeepers: Vec::new(),
            decisions: DecisionFormat::Authenticated,
            key_file: None,
            keys: Vec::new(),
            clock_s: 10,
            policy: PolicySection::default(),
        }
    }
}

/// A format of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecisionFormat {
    /// Ours, version 2: authenticated, with probes and revocations. It needs keys, the Gatekeepers' own.
    Authenticated,
    /// That of the public Gatekeeper, version 1: whoever can send with our address decides as we do. It has no probes and no revocations.
    Interoperable,
}

impl DecisionFormat {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            DecisionFormat::Authenticated => "authenticated",
            DecisionFormat::Interoperable => "interoperable",
        }
    }
}

/// What the nodes go by; published.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// First and last addresses.
    pub(crate) v4: Vec<(u32, u32)>,
    pub(crate) v6: Vec<(u128, u128)>,
    /// None: decisions go in the interoperable format.
    pub(crate) keys: Option<Keyring>,
    pub(crate) tolerance_ns: u64,
}

impl Settings {
    /// What a section means.
    ///
    /// # Errors
    /// Which key is wrong, and what to do; no secret is in it.
    pub fn new(section: &GrantorSection) -> Result<Settings, PolicyError> {
        if !(1..=300).contains(&section.clock_s) {
            return Err(PolicyError::config("clock_s", format!("{}: give 1 to 300", section.clock_s)));
        }
        if section.gatekeepers.is_empty() {
            let what = "there is none: give the prefixes of the Gatekeepers' addresses, as [\"10.0.0.0/24\"]";
            return Err(PolicyError::config("gatekeepers", what));
        }
        if section.gatekeepers.len() > MOST_PREFIXES {
            let what = format!("{} prefixes: give {MOST_PREFIXES} at most", section.gatekeepers.len());
            return Err(PolicyError::config("gatekeepers", what));
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (i, text) in section.gatekeepers.iter().enumerate() {
            let wrong = |what: String| PolicyError::config(format!("gatekeepers[{i}]"), what);
            let range = range(text).map_err(wrong)?;
            if let Some(why) = nobody(&range) {
                return Err(wrong(format!(
                    "{text:?}: {why}: give the prefixes of the Gatekeepers' addresses"
                )));
            }
            v4.extend(range.v4());
            v6.extend(range.v6());
        }
        let keys = Keyring::configured(section.key_file.as_deref(), &section.keys)
            .map_err(|(key, what)| PolicyError::config(key, what))?;
        match (section.decisions, &keys) {
            (DecisionFormat::Authenticated, None) => {
                let what =
                    "\"authenticated\" needs keys: give key_file, with the keys that the Gatekeepers have";
                Err(PolicyError::config("decisions", what))
            }
            (DecisionFormat::Interoperable, Some(_)) => {
                let what =
                    "\"interoperable\" has no keys: leave out key_file and keys, or say \"authenticated\"";
                Err(PolicyError::config("decisions", what))
            }
            _ => Ok(Settings { v4, v6, keys, tolerance_ns: u64::from(section.clock_s) * 1_000_000_000 }),
        }
    }

    /// Whether this is a Gatekeeper's address.
    #[inline]
    pub(crate) fn is_gatekeeper(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let address = u32::from(address);
                self.v4.iter().any(|(first, last)| (*first..=*last).contains(&address))
            }
            IpAddr::V6(address) => {
                let address = u128::from(address);
                self.v6.iter().any(|(first, last)| (*first..=*last).contains(&address))
            }
        }
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Why a prefix cannot be that of Gatekeepers, if it cannot: whoever has an address of it is believed.
fn nobody(range: &Range) -> Option<&'static str> {
    let shortest = if range.address().is_ipv4() { 8 } else { 16 };
    match range.address() {
        _ if range.bits() == 0 => Some("that is everybody"),
        address if address.is_multicast() => Some("multicast addresses, from which nobody sends"),
        address if address.is_loopback() => Some("loopback addresses, which no other machine has"),
        _ if range.bits() < shortest => Some("so many addresses that strangers have some, too"),
        address if address.is_unspecified() => Some("the address that stands for none is one of them"),
        _ if range.v4().is_some_and(|(_, last)| last == u32::MAX) => {
            Some("the broadcast address is one of them")
        }
        address if is_link_local(address) => Some("link-local addresses, which none has"),
        IpAddr::V4(address) if address.octets()[0] >= 240 => Some("reserved addresses, which nobody has"),
        _ => None,
    }
}

/// What is said of Gatekeepers without effect, where we have these interfaces: a line each, key first.
pub fn remarks(section: &GrantorSection, interfaces: &Interfaces) -> Vec<String> {
    let own = |text: &str| {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let alone = bits == if address.is_ipv4() { 32 } else { 128 };
        interfaces.iter().find(|interface| alone && interface.has(address)).map(|own| own.name.clone())
    };
    let remark = |(i, text): (usize, &String)| {
        let interface = own(text)?;
        Some(format!(
            "warning: grantor.gatekeepers[{i}]: {text:?} is our own address, of interface {interface:?}: a Gatekeeper is another machine"
        ))
    };
    section.gatekeepers.iter().enumerate().filter_map(remark).collect()
}

/// A prefix as it is written.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn range(text: &str) -> Result<Range, String> {
    let wrong = || format!("{text:?} is no prefix: give one as \"10.0.0.0/24\" or \"2001:db8::/32\"");
    let Some((address, bits)) = text.split_once('/') else {
        let address: IpAddr = text.parse().map_err(|_| wrong())?;
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { 32 } else { 128 };
        return Err(format!("{text:?} is no prefix: give \"{address}/{bits}\""));
    };
    let (address, bits): (IpAddr, u8) =
        (address.parse().map_err(|_| wrong())?, bits.parse().map_err(|_| wrong())?);
    let range = Range::new(address, bits)
        .ok_or_else(|| format!("{text:?} has bits behind its length, or is too long: give a prefix"))?;
    // No packet has such addresses.
    if let IpAddr::V6(v6) = address
        && let (Some(v4), Some(bits)) = (v6.to_ipv4_mapped(), bits.checked_sub(96))
    {
        if bits == 0 {
            return Err(format!("{text:?} is all of IPv4, in IPv6's form: give IPv4 prefixes"));
        }
        return Err(format!("{text:?} is an IPv4 prefix in IPv6's form: give \"{v4}/{bits}\""));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_ip::Interface;

    fn said(text: &str) -> String {
        Settings::new(&toml::from_str(text).unwrap()).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_have_their_place() {
        let key = format!("keys = [\"1 {}\"]\n", "ab".repeat(32));
        let from = "gatekeepers = [\"10.0.0.0/24\"]\n";
        for (text, wanted) in [
            (String::new(), "grantor.gatekeepers: there is none"),
            (
                "gatekeepers = [\"10.0.0.0/24\", \"10.0.0.1/24\"]".into(),
                "grantor.gatekeepers[1]: \"10.0.0.1/24\" has bits",
            ),
            (
                "gatekeepers = [\"10.0.0.1\"]".into(),
                "grantor.gatekeepers[0]: \"10.0.0.1\" is no prefix: give \"10.0.0.1/32\"",
            ),
            (
                "gatekeepers = [\"gate\"]".into(),
                "grantor.gatekeepers[0]: \"gate\" is no prefix: give one as \"10.0.0.0/24\"",
            ),
            (
                "gatekeepers = [\"::ffff:10.9.0.3\"]".into(),
                "grantor.gatekeepers[0]: \"::ffff:10.9.0.3\" is no prefix: give \"10.9.0.3/32\"",
            ),
            (
                "gatekeepers = [\"128.0.0.0/7\"]".into(),
                "grantor.gatekeepers[0]: \"128.0.0.0/7\": so many addresses that strangers have some",
            ),
            (
                "gatekeepers = [\"2000::/15\"]".into(),
                "grantor.gatekeepers[0]: \"2000::/15\": so many addresses that strangers have some",
            ),
            (
                "gatekeepers = [\"0.0.0.0/8\"]".into(),
                "grantor.gatekeepers[0]: \"0.0.0.0/8\": the address that stands for none",
            ),
            (
                "gatekeepers = [\"::/128\"]".into(),
                "grantor.gatekeepers[0]: \"::/128\": the address that stands for none",
            ),
            (
                "gatekeepers = [\"255.255.255.255/32\"]".into(),
                "grantor.gatekeepers[0]: \"255.255.255.255/32\": the broadcast address",
            ),
            (
                "gatekeepers = [\"0.0.0.0/0\"]".into(),
                "grantor.gatekeepers[0]: \"0.0.0.0/0\": that is everybody: give the prefixes",
            ),
            ("gatekeepers = [\"::/0\"]".into(), "grantor.gatekeepers[0]: \"::/0\": that is everybody"),
            (
                "gatekeepers = [\"10.0.0.0/24\", \"ff02::/16\"]".into(),
                "grantor.gatekeepers[1]: \"ff02::/16\": multicast addresses",
            ),
            (
                "gatekeepers = [\"169.254.0.0/16\"]".into(),
                "grantor.gatekeepers[0]: \"169.254.0.0/16\": link-local addresses",
            ),
            (
                "gatekeepers = [\"fe80::/64\"]".into(),
                "grantor.gatekeepers[0]: \"fe80::/64\": link-local addresses",
            ),
            (
                "gatekeepers = [\"240.0.0.0/8\"]".into(),
                "grantor.gatekeepers[0]: \"240.0.0.0/8\": reserved addresses",
            ),
            (
                "gatekeepers = [\"::ffff:0:0/96\"]".into(),
                "grantor.gatekeepers[0]: \"::ffff:0:0/96\" is all of IPv4",
            ),
            ("gatekeepers = [\"127.0.0.1/32\"]".into(), "grantor.gatekeepers[0]: \"127.0.0.1/32\": loopback"),
            (
                "gatekeepers = [\"::ffff:10.9.0.0/120\"]".into(),
                "grantor.gatekeepers[0]: \"::ffff:10.9.0.0/120\" is an IPv4 prefix in IPv6's form: give \"10.9.0.0/24\"",
            ),
            (from.into(), "grantor.decisions: \"authenticated\" needs keys"),
            (format!("{from}{key}clock_s = 0"), "grantor.clock_s: 0: give 1 to 300"),
            (
                format!("{from}{key}decisions = \"interoperable\""),
                "grantor.decisions: \"interoperable\" has no keys",
            ),
            (format!("{from}{key}key_file = \"k\""), "grantor.keys: there is a key_file as well"),
            (format!("{from}key_file = \"/nowhere/k\""), "grantor.key_file: /nowhere/k: "),
            (format!("{from}keys = [\"1 abab\"]"), "grantor.keys: line 1: no secret"),
        ] {
            let said = said(&text);
            assert!(said.starts_with(wanted) && !said.contains("abab"), "{said}");
        }
    }

    /// A prefix around our own address may be that of a link on which the Gatekeepers are.
    #[test]
    fn our_own_address_is_no_gatekeepers() {
        let mut up = Interface::of_port(0, "up");
        up.v4.push(("10.0.0.2".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
        up.v6.push(("fd00::2".parse().unwrap(), "fd00::/64".parse().unwrap()));
        let interfaces = Interfaces::new(vec![up], 1);
        let said = |gatekeepers: &[&str]| {
            let gatekeepers = gatekeepers.iter().map(|text| (*text).into()).collect();
            remarks(&GrantorSection { gatekeepers, ..GrantorSection::default() }, &interfaces)
        };
        assert!(said(&["10.0.0.0/24", "10.0.0.1/32", "fd00::/64", "fd00::1/128"]).is_empty());
        let own = said(&["10.0.0.1/32", "10.0.0.2/32", "fd00::2/128"]);
        assert_eq!(own.len(), 2, "{own:?}");
        let first =
            "warning: grantor.gatekeepers[1]: \"10.0.0.2/32\" is our own address, of interface \"up\"";
        assert!(own[0].starts_with(first) && own[1].contains("gatekeepers[2]"), "{own:?}");
    }

    #[test]
    fn keys_that_are_no_list_are_not_shown() {
        let key = format!("1 {}", "ab".repeat(32));
        for text in [format!("keys = \"{key}\""), format!("keys = {{ a = \"{key}\" }}"), "keys = 1".into()] {
            let error = toml::from_str::<GrantorSection>(&text).unwrap_err();
            assert!(error.message().contains("a list of strings, one for each key"), "{}", error.message());
            assert!(!error.message().contains("abab"), "{}", error.message());
        }
        let said = said(&format!("gatekeepers = [\"10.0.0.0/24\"]\nkey_file = \"{key}\""));
        assert!(said.starts_with("grantor.key_file: 1 (not shown): ") && !said.contains("abab"), "{said}");
    }

    #[test]
    fn gatekeepers_are_known_by_their_prefixes() {
        let text = "decisions = \"interoperable\"\ngatekeepers = [\"9.0.0.0/8\", \"2001::/16\"]";
        assert!(Settings::new(&toml::from_str(text).unwrap()).is_ok(), "as short as they may be");
        let text = "decisions = \"interoperable\"\ngatekeepers = [\"10.0.0.0/24\", \"2001:db8::1/128\"]";
        let settings = Settings::new(&toml::from_str(text).unwrap()).unwrap();
        let is = |text: &str| settings.is_gatekeeper(text.parse().unwrap());
        assert!(is("10.0.0.0") && is("10.0.0.255") && is("2001:db8::1"));
        assert!(!is("10.0.1.0") && !is("9.255.255.255") && !is("2001:db8::2") && !is("::"));
    }
}
