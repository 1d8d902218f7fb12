//! The section `[mitigator]` as written; its comments are the schema's text. What follows from it: [`crate::settings`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A bridge of two ports that keeps reflected UDP floods away from those who did not ask. Everything has a default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MitigatorSection {
    /// The port that answers of amplifiers come in by. Default: the first `[[port]]`.
    pub outside: Option<String>,
    /// The port towards those who are protected. Default: the second `[[port]]`.
    pub inside: Option<String>,
    /// The protocols that can be abused, by name (`"dns"`, `"ntp"`, `"ssdp"`, `"memcached"`, `"chargen"`, `"cldap"`, `"snmp"`, `"qotd"`) or by the
    /// UDP port that their answers come from. Default: all of these. Packets from other ports are never looked at.
    pub protocols: Vec<ProtocolItem>,
    /// How many parts of a flow a rule is about, 4 to 1: both addresses and ports; not the victim's port; the addresses; the amplifier's
    /// address. Fewer parts learn faster and cost less memory, and keep away more that somebody wants: with 2 all protocols of one pair
    /// of hosts are one flow; with 1 one ICMP message keeps a server away from everybody inside.
    pub tuple: u8,
    /// Seconds that a flow stays filtered; 1 to 31,536,000. Default: 130.5 minutes, which 99 % of attacks do not outlast.
    pub expiry_s: u32,
    /// Seconds within which an ICMP message must follow a packet that it is about; 1 to 3600.
    pub suspect_s: u32,
    /// Seconds after a question during which its answers are wanted, and no ICMP message can have them filtered; 0 to 3600, 0 takes no
    /// notice of questions.
    pub query_s: u32,
    /// What is never filtered: prefixes of amplifiers (`"8.8.8.0/24"`), or tables of `source`, `destination` (prefixes) and `port` (a protocol), all of
    /// which must match.
    pub allow: Vec<AllowItem>,
    /// ICMP messages per second and inside address, in each worker, that may have a flow filtered; also how many at once. 0 is no limit.
    pub icmp_rate: u32,
    /// Whether to count only, and to let everything through.
    pub dry_run: bool,
    /// Flows that each worker has room for, of IPv4 and as many of IPv6: 45 and 70 bytes each.
    pub entries: usize,
    /// What drops the filtered before it comes in here.
    pub offload: OffloadKind,
    /// Keep the program and its rules under this name in the BPF file system (`/sys/fs/bpf/tidemill/NAME`) when this process ends, killed or in
    /// order: the program goes on dropping by them, and the next process takes both over without a gap. While a process works with them, a second one is
    /// refused. `tidemill amp pins` shows what is left, and `tidemill amp pins --remove NAME` takes it away.
    pub offload_pin: Option<String>,
}

impl MitigatorSection {
    /// Keys that cannot change while packets flow, besides the port outside, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 4] {
        [
            ("tuple", self.tuple == other.tuple),
            ("entries", self.entries == other.entries),
            ("offload", self.offload == other.offload),
            ("offload_pin", self.offload_pin == other.offload_pin),
        ]
    }
}

impl Default for MitigatorSection {
    fn default() -> Self {
        MitigatorSection {
            outside: None,
            inside: None,
            protocols: PROTOCOLS.iter().map(|(name, _)| ProtocolItem::Name((*name).into())).collect(),
            tuple: 4,
            expiry_s: 7830,
            suspect_s: 10,
            query_s: 30,
            allow: Vec::new(),
            icmp_rate: 2000,
            dry_run: false,
            entries: 262_144,
            offload: OffloadKind::None,
            offload_pin: None,
        }
    }
}

/// Protocols by name: those that the paper begins with (5.3, 5.5.1) and others that are known to be abused.
pub const PROTOCOLS: [(&str, u16); 8] = [
    ("dns", 53),
    ("ntp", 123),
    ("ssdp", 1900),
    ("memcached", 11211),
    ("chargen", 19),
    ("cldap", 389),
    ("snmp", 161),
    ("qotd", 17),
];

/// The name of a protocol's port, if it has one here.
pub fn protocol_name(port: u16) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, known)| *known == port).map(|(name, _)| *name)
}

/// A protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "mitigator.protocols: give a name, such as \"dns\", or a UDP port")]
pub enum ProtocolItem {
    /// By its name.
    Name(String),
    /// By the UDP port that answers come from.
    Port(u16),
}

/// Something that is never filtered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "mitigator.allow: give a prefix, or a table of source, destination and port")]
pub enum AllowItem {
    /// A prefix that amplifiers are in.
    Source(String),
    /// Several conditions, all of which must hold.
    All(AllowTable),
}

/// Conditions, all of which must hold; at least one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AllowTable {
    /// The prefix that the amplifier is in.
    pub source: Option<String>,
    /// The prefix that the victim is in.
    pub destination: Option<String>,
    /// The amplifier's port, or its protocol.
    pub port: Option<ProtocolItem>,
}

/// What drops below us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OffloadKind {
    /// Nothing.
    #[default]
    None,
    /// A program in the driver of the outside port's interface.
    Xdp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_carries_the_comments() {
        let schema = schemars::schema_for!(MitigatorSection).to_value().to_string();
        for text in ["99 % of attacks", "\"icmp_rate\"", "\"additionalProperties\":false", "memcached"] {
            assert!(schema.contains(text), "{text}");
        }
    }

    #[test]
    fn everything_can_be_left_out_or_written() {
        assert_eq!(toml::from_str::<MitigatorSection>("").unwrap(), MitigatorSection::default());
        let text = "outside = 'wan'\ninside = 'lan'\nprotocols = ['dns', 5683]\ntuple = 3\nallow = ['8.8.8.8/32', {destination = '10.0.0.0/8', port = \
                    'ntp'}, {port = 53}]\noffload = 'xdp'\ndry_run = true";
        let section: MitigatorSection = toml::from_str(text).unwrap();
        assert_eq!(section.protocols[1], ProtocolItem::Port(5683));
        assert_eq!(section.offload, OffloadKind::Xdp);
        assert!(matches!(&section.allow[1], AllowItem::All(table) if table.source.is_none()));
        assert!(toml::from_str::<MitigatorSection>("tupel = 3").is_err());
        assert!(toml::from_str::<MitigatorSection>("allow = [{sorce = '::/0'}]").is_err());
    }
}
