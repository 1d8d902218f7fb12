//! The section `[kvcache]` as written; its comments are the schema's text. What follows from it: [`crate::settings`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A bridge of two ports in front of a memcached, that answers gets over UDP (text, one key) from two tiers of memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KvcacheSection {
    /// The port towards the clients. Default: the first `[[port]]`.
    pub clients: Option<String>,
    /// The port towards memcached. Default: the second `[[port]]`.
    pub servers: Option<String>,
    /// All addresses of the one memcached that is cached, as clients know them. What comes to its port at any other address is heeded as well, and never answered.
    pub addresses: Vec<String>,
    /// memcached's port, UDP and TCP.
    pub port: u16,
    /// The VLAN whose gets are answered; 0: frames without a tag, or with a priority's. What comes to memcached's port in another is heeded as well, and never answered. 0 to 4,094.
    pub vlan: u16,
    /// The prefixes of clients that are answered: answers are larger than questions, and anybody can write any source on a question.
    pub allow: Vec<String>,
    /// Answers a second for one source (an IPv4 address, a /64 of IPv6), and so many at once; 0 is no limit.
    pub rate: u32,
    /// The same for all sources together, as forged ones are many; 0 is no limit.
    pub rate_total: u32,
    /// Seconds after which one get of a key that could be answered goes to memcached, which else would not hear that the key is used, and might evict it; 0: none does. At most 86,400.
    pub refresh_s: u32,
    /// Milliseconds within which memcached executes what has come to it, where it sends no proof; 100 to 60,000.
    pub settle_ms: u32,
    /// Milliseconds for which memcached is believed to be the same process, and to accept connections, after it has said so; 100 to `settle_ms`. So long values may outlive it.
    pub lease_ms: u32,
    /// The UDP port, in the clients' name, that questions of ours come from: one that no client uses. After one has, nothing is asked for three times `settle_ms`.
    pub ask_port: u16,
    /// A key is kept when it was missed so many times: 1 or 2.
    pub misses: u8,
    /// The longest value that is kept, bytes; 1 to 1,024.
    pub value_max: u16,
    /// TCP connections that can be followed, about 5 KB each. What comes by others shuts the cache for `settle_ms`.
    pub connections: usize,
    /// Slots that keys share for what may change them, 32 bytes each; rounded up to a power of two. As many mutations without proof may be under way within `settle_ms`, at least 65,536.
    pub slots: usize,
    /// Which hash of a key names its set, in L0 and in L1: `"keyed"`, with a secret, so that nobody can choose keys of one set; or one of the paper's, `"crc32"` or `"lookup3"`.
    pub hash: String,
    /// What L1 holds of what L0 has.
    pub inclusion: Inclusion,
    /// When a value that is kept in L0 gets to L1.
    pub write: Write,
    /// The cache answers only while it is asked for much; else memcached answers everything. Without this it answers always.
    pub on_demand: Option<OnDemandSection>,
    /// The same by what memcached's host does, where the cache is on it; one of the two.
    pub on_demand_host: Option<OnDemandHostSection>,
    /// The small tier in front.
    pub l0: L0Section,
    /// The large tier.
    pub l1: L1Section,
}

impl Default for KvcacheSection {
    fn default() -> Self {
        KvcacheSection {
            clients: None,
            servers: None,
            addresses: Vec::new(),
            port: 11211,
            vlan: 0,
            allow: Vec::new(),
            rate: 1_000_000,
            rate_total: 0,
            refresh_s: 0,
            settle_ms: 3000,
            lease_ms: 1000,
            ask_port: 61211,
            misses: 2,
            value_max: 1024,
            connections: 1024,
            slots: 1 << 18,
            hash: "keyed".into(),
            inclusion: Inclusion::default(),
            write: Write::default(),
            on_demand: None,
            on_demand_host: None,
            l0: L0Section::default(),
            l1: L1Section::default(),
        }
    }
}

/// When the cache begins to answer, and when it ends. It begins with memcached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnDemandSection {
    /// Gets a second (of one key in text over UDP, of clients that are answered) above which the cache answers; at least 2.
    pub up: u32,
    /// `up` is about the mean over so many milliseconds; 100 to 60,000, in hundreds.
    pub up_ms: u32,
    /// Gets a second below which memcached answers; at least 1, and below `up`.
    pub down: u32,
    /// `down` is about the mean over so many milliseconds; 100 to 60,000, in hundreds.
    pub down_ms: u32,
}

/// When the cache begins to answer, and when it ends, by CPU use and power of the host, read once a second. It begins with memcached. Not in runs that are recorded, or take their time from captures.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OnDemandHostSection {
    /// Above all of these the cache answers.
    pub up: HostUpSection,
    /// Below all of these memcached answers.
    pub down: HostDownSection,
    /// Whose CPU use: that of processes of this name (`/proc/PID/comm`, as `"memcached"`), in percent of one processor. Without it the machine's, in percent of all that it has.
    pub process: Option<String>,
    /// Where watts are from. Without it from RAPL, where that can be read, else from the model.
    pub power: Option<PowerSource>,
}

/// The host has much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostUpSection {
    /// Percent; at least 2, and at most 99 of the machine.
    pub cpu: u32,
    /// Watts; at least 2. Without it (here and in `down`) power is not looked at.
    pub watts: Option<u32>,
    /// Percent and watts are means over so many milliseconds; 1,000 to 600,000, in thousands.
    pub ms: u32,
}

/// It has little to do, and would have with what the cache is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostDownSection {
    /// Percent; at least 1, and below that of `up`.
    pub cpu: u32,
    /// Watts; at least 1, and below those of `up`.
    pub watts: Option<u32>,
    /// Gets a second, whoever answers them (of one key in text over UDP, of clients that are answered); at least 1.
    pub gets: u32,
    /// Percent, watts and gets are means over so many milliseconds; 1,000 to 600,000, in thousands.
    pub ms: u32,
}

/// Where watts are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PowerSource {
    /// What the processors count of packages and memory (`/sys/class/powercap/intel-rapl:*`).
    Rapl,
    /// That of `sim lake`: a server's watts by the gets a second that memcached answers, from Tokusashi 2019, 4.3.3 and 4.5.1.
    Model,
}

/// What L1 holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Inclusion {
    /// All that L0 has.
    #[default]
    Inclusive,
    /// What it happens to.
    NonInclusive,
}

/// When L1 gets it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Write {
    /// At once.
    #[default]
    Through,
    /// When L0 lets go of it; only non-inclusive.
    Back,
}

/// L0: chunks of one size.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct L0Section {
    /// Answers at most; 0: there is no L0.
    pub entries: usize,
    /// Places that a key can lie in; 1 to 16.
    pub ways: usize,
    /// Who has to go: `"fifo"`, `"lru"`, `"clock"`, `"sieve"`, `"s3fifo"`, `"random"`.
    pub policy: String,
    /// Bytes for one answer: `VALUE KEY FLAGS LENGTH`, the value, two line ends.
    pub chunk: usize,
}

impl Default for L0Section {
    fn default() -> Self {
        L0Section { entries: 1024, ways: 1, policy: "lru".into(), chunk: 64 }
    }
}

/// L1: chunks of 64 to 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct L1Section {
    /// Answers at most; 0: there is no L1, and `inclusion` and `write` say nothing.
    pub entries: usize,
    /// Places that a key can lie in; 1 to 16.
    pub ways: usize,
    /// Who has to go: `"fifo"`, `"lru"`, `"clock"`, `"sieve"`, `"s3fifo"`, `"random"`.
    pub policy: String,
    /// Memory for answers, MiB.
    pub memory_mib: usize,
    /// How `memory_mib` is divided into chunks of 64, 128, 256, 512, 1024 and 2048 bytes: a type of Table 3.6 (Tokusashi 2019), `"A"` to `"E"`.
    pub slab: String,
}

impl Default for L1Section {
    fn default() -> Self {
        L1Section { entries: 1 << 17, ways: 8, policy: "lru".into(), memory_mib: 64, slab: "B".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_can_be_left_out_or_written() {
        assert_eq!(toml::from_str::<KvcacheSection>("").unwrap(), KvcacheSection::default());
        let text = "addresses = ['10.0.0.1']\ninclusion = 'non-inclusive'\nwrite = 'back'\nl0 = { ways = 2 }\n[l1]\nslab = 'E'";
        let section: KvcacheSection = toml::from_str(text).unwrap();
        assert_eq!((section.inclusion, section.write), (Inclusion::NonInclusive, Write::Back));
        assert_eq!((section.l0.ways, section.l0.entries, &section.l1.slab[..]), (2, 1024, "E"));
        assert!(toml::from_str::<KvcacheSection>("adresses = []").is_err());
        assert!(toml::from_str::<KvcacheSection>("l1 = { way = 2 }").is_err());
        let text = "on_demand = { up = 9000, up_ms = 500, down = 4000, down_ms = 5000 }";
        let section: KvcacheSection = toml::from_str(text).unwrap();
        let on_demand = OnDemandSection { up: 9000, up_ms: 500, down: 4000, down_ms: 5000 };
        assert_eq!(section.on_demand, Some(on_demand));
        assert!(toml::from_str::<KvcacheSection>("on_demand = { up = 9000 }").is_err());
        let text = "[on_demand_host]\nup = { cpu = 60, watts = 45, ms = 3000 }\ndown = { cpu = 30, gets = 9000, ms = 5000 }\n\
            process = 'memcached'\npower = 'rapl'";
        let section = toml::from_str::<KvcacheSection>(text).unwrap().on_demand_host.unwrap();
        assert_eq!(section.up, HostUpSection { cpu: 60, watts: Some(45), ms: 3000 });
        assert_eq!(section.down, HostDownSection { cpu: 30, watts: None, gets: 9000, ms: 5000 });
        assert_eq!((section.process.as_deref(), section.power), (Some("memcached"), Some(PowerSource::Rapl)));
    }
}
