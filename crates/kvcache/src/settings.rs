//! The configuration checked, and the tiers that it describes.

use crate::config::{Inclusion, KvcacheSection, OnDemandSection, Write};
use crate::error::{KvcacheError, within};
use crate::host::HostRules;
use crate::shift::SAMPLE_MS;
use crate::slab::Slab;
use crate::tier::Tier;
use crate::tiers::{Rules, Tiers};
use std::net::IpAddr;
use tidemill_cachesim::lake::ondemand::Threshold;
use tidemill_cachesim::policy::Policy;
use tidemill_cachesim::run::HashName;
use tidemill_cachesim::sets::WAYS_MAX;
use tidemill_cachesim::slab::{CHUNK_BYTES, Chunks};

/// What a configuration says to the data path.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) vlan: u16,
    pub(crate) allow: Vec<Prefix>,
    pub(crate) rate: u32,
    pub(crate) rate_total: u32,
    /// 0: never.
    pub(crate) refresh_ns: u64,
    pub(crate) settle_ns: u64,
    pub(crate) lease_ns: u64,
    pub(crate) ask_port: u16,
    pub(crate) ask_at_once: bool,
    pub(crate) value_max: usize,
    pub(crate) connections: usize,
    pub(crate) slots: usize,
    /// Up and down.
    pub(crate) on_demand: Option<[Threshold; 2]>,
    pub(crate) on_demand_host: Option<HostRules>,
    /// Which hash names sets; without one a keyed one does.
    pub(crate) hash: Option<HashName>,
    rules: Rules,
    l0: Shape,
    l1: Shape,
}

/// Bytes that a followed connection takes, with what it may have under way.
const CONNECTION_BYTES: usize = 5000;
/// Bytes for each slot: its state, and an end that may wait for it.
const SLOT_BYTES: usize = 32;

/// What a configuration's memory is for, by key, bytes; all workers share it.
pub fn table_bytes(section: &KvcacheSection) -> [(&'static str, f64); 5] {
    let (l0, l1) = (&section.l0, &section.l1);
    let mib = if l1.entries == 0 { 0 } else { l1.memory_mib };
    let l0_entry = Tier::bytes_per_entry(l0.ways) + l0.chunk;
    let of = |count: usize, bytes: usize| count as f64 * bytes as f64;
    [
        ("kvcache.l0.entries", of(l0.entries, l0_entry)),
        ("kvcache.l1.entries", of(l1.entries, Tier::bytes_per_entry(l1.ways))),
        ("kvcache.l1.memory_mib", of(mib, 1 << 20)),
        ("kvcache.connections", of(section.connections, CONNECTION_BYTES)),
        ("kvcache.slots", of(section.slots.next_power_of_two(), SLOT_BYTES)),
    ]
}

/// Chunks of a size that 32-bit numbers name.
const CHUNKS_MAX: usize = 1 << 31;

/// A tier.
#[derive(Debug, Clone)]
struct Shape {
    entries: usize,
    ways: usize,
    policy: Policy,
    /// Sizes and how many.
    chunks: Vec<(usize, usize)>,
}

/// An address and how many of its first bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, length)| (a, Some(length)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(most), |length| length.parse().ok())?;
        (length <= most).then_some(Prefix { address, length })
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let left = u32::from(self.length);
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(32 - left).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(128 - left).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl Settings {
    /// Checks a section of the configuration.
    ///
    /// # Errors
    /// Which key is wrong, and what to do.
    pub fn new(section: &KvcacheSection) -> Result<Self, KvcacheError> {
        within("port", section.port.into(), 1, 65_535)?;
        within("vlan", section.vlan.into(), 0, 4094)?;
        within("refresh_s", section.refresh_s.into(), 0, 86_400)?;
        within("settle_ms", section.settle_ms.into(), 100, 60_000)?;
        // Where memcached accepts no connections it has to be heard that it does, before what they bring counts as executed.
        within("lease_ms", section.lease_ms.into(), 100, section.settle_ms.into())?;
        within("misses", section.misses.into(), 1, 2)?;
        within("value_max", section.value_max.into(), 1, 1024)?;
        within("connections", section.connections as u64, 1, 1 << 20)?;
        within("slots", section.slots as u64, 1, 1 << 30)?;
        within("ask_port", section.ask_port.into(), 1, 65_535)?;
        let mut on_demand = None;
        if let Some(OnDemandSection { up, up_ms, down, down_ms }) = section.on_demand {
            within("on_demand.up", up.into(), 2, u32::MAX.into())?;
            within("on_demand.down", down.into(), 1, u64::from(up) - 1)?;
            for (key, ms) in [("on_demand.up_ms", up_ms), ("on_demand.down_ms", down_ms)] {
                within(key, ms.into(), SAMPLE_MS.into(), 60_000)?;
                if !ms.is_multiple_of(SAMPLE_MS) {
                    let what = format!("{ms}: gets are counted by tenths of a second: give hundreds");
                    return Err(KvcacheError::new(key, what));
                }
            }
            let threshold = |rate: u32, ms: u32| Threshold {
                mqps: f64::from(rate) / 1e6,
                window: (ms / SAMPLE_MS) as usize,
            };
            on_demand = Some([threshold(up, up_ms), threshold(down, down_ms)]);
        }
        let on_demand_host = section.on_demand_host.as_ref().map(HostRules::new).transpose()?;
        if on_demand.is_some() && on_demand_host.is_some() {
            let what = "there is kvcache.on_demand, too: one of the two decides who answers";
            return Err(KvcacheError::new("on_demand_host", what));
        }
        if section.ask_port == section.port {
            return Err(KvcacheError::new("ask_port", "it is kvcache.port: give one that nobody uses"));
        }
        let address = |text: &String| {
            text.parse::<IpAddr>()
                .map_err(|_| KvcacheError::new("addresses", format!("{text:?} is no address")))
        };
        let addresses = section.addresses.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() {
            return Err(KvcacheError::new(
                "addresses",
                "there is none: give memcached's, as clients know it",
            ));
        }
        let prefix = |text: &String| {
            let what = || format!("{text:?}: give ADDRESS/LENGTH, or an address");
            Prefix::parse(text).ok_or_else(|| KvcacheError::new("allow", what()))
        };
        let allow = section.allow.iter().map(prefix).collect::<Result<Vec<_>, _>>()?;
        if allow.is_empty() {
            let what =
                "there is none: give the prefixes of clients that may be answered, as [\"10.0.0.0/8\"]";
            return Err(KvcacheError::new("allow", what));
        }
        let inclusive = section.inclusion == Inclusion::Inclusive;
        let through = section.write == Write::Through;
        if inclusive && !through {
            let what = "\"back\" leaves answers in L0 that L1 has not: give \"through\", or inclusion = \"non-inclusive\"";
            return Err(KvcacheError::new("write", what));
        }
        let hash = match (&section.hash[..], section.hash.parse::<HashName>()) {
            ("keyed", _) => None,
            (_, Ok(name)) => Some(name),
            (text, Err(_)) => {
                let what = format!("{text:?}: give \"keyed\", \"crc32\" or \"lookup3\"");
                return Err(KvcacheError::new("hash", what));
            }
        };
        let policy = |key: &str, text: &str| {
            text.parse::<Policy>().map_err(|_| {
                let names = Policy::ALL.map(|policy| format!("{:?}", policy.name()));
                KvcacheError::new(key, format!("{text:?}: give {}", names.join(", ")))
            })
        };
        let (l0, l1) = (&section.l0, &section.l1);
        within("l0.ways", l0.ways as u64, 1, WAYS_MAX as u64)?;
        within("l1.ways", l1.ways as u64, 1, WAYS_MAX as u64)?;
        within("l0.chunk", l0.chunk as u64, 32, 2048)?;
        if l0.entries != 0 {
            within("l0.entries", l0.entries as u64, l0.ways as u64, 1 << 24)?;
        }
        if l1.entries != 0 {
            within("l1.entries", l1.entries as u64, l1.ways as u64, 1 << 28)?;
        } else if l0.entries == 0 {
            let what = "0, as kvcache.l0.entries is: there is no tier; give one of them some";
            return Err(KvcacheError::new("l1.entries", what));
        }
        // Of one tier alone there is nothing to include, and nothing to write to.
        let rules = match l1.entries {
            0 => Rules { inclusive: false, through: false },
            _ => Rules { inclusive, through },
        };
        within("l1.memory_mib", l1.memory_mib as u64, 1, 1 << 20)?;
        let types = Chunks::named(&l1.slab);
        let types = types
            .ok_or_else(|| KvcacheError::new("l1.slab", format!("{:?}: give \"A\" to \"E\"", l1.slab)))?;
        let memory = (l1.memory_mib as u64) << 20;
        let share = |count: usize| (u128::from(memory) * count as u128 / u128::from(types.bytes())) as usize;
        let mut chunks: Vec<(usize, usize)> =
            CHUNK_BYTES.iter().zip(types.0).map(|(&bytes, count)| (bytes as usize, share(count))).collect();
        if l1.entries == 0 {
            chunks.clear();
        }
        if chunks.iter().any(|(_, count)| *count > CHUNKS_MAX) {
            let what = format!("{}: more than 2^31 chunks of a size", l1.memory_mib);
            return Err(KvcacheError::new("l1.memory_mib", what));
        }
        let l0_shape = Shape {
            entries: l0.entries,
            ways: l0.ways,
            policy: policy("l0.policy", &l0.policy)?,
            chunks: vec![(l0.chunk, l0.entries / l0.ways * l0.ways)],
        };
        let l1_shape =
            Shape { entries: l1.entries, ways: l1.ways, policy: policy("l1.policy", &l1.policy)?, chunks };
        Ok(Settings {
            addresses,
            port: section.port,
            vlan: section.vlan,
            allow,
            rate: section.rate,
            rate_total: section.rate_total,
            refresh_ns: u64::from(section.refresh_s) * 1_000_000_000,
            settle_ns: u64::from(section.settle_ms) * 1_000_000,
            lease_ns: u64::from(section.lease_ms) * 1_000_000,
            ask_port: section.ask_port,
            ask_at_once: section.misses == 1,
            value_max: section.value_max.into(),
            connections: section.connections,
            slots: section.slots,
            on_demand,
            on_demand_host,
            hash,
            rules,
            l0: l0_shape,
            l1: l1_shape,
        })
    }

    /// Empty tiers, with all their memory.
    pub(crate) fn tiers(&self, seed: u64) -> Tiers {
        let tier = |shape: &Shape, seed| {
            Tier::new(shape.entries, shape.ways, shape.policy, Slab::new(shape.chunks.iter().copied()), seed)
        };
        Tiers::new(tier(&self.l0, seed), tier(&self.l1, seed.wrapping_add(1)), self.rules)
    }

    pub(crate) fn answers(&self, source: IpAddr) -> bool {
        self.allow.iter().any(|prefix| prefix.contains(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(toml: &str) -> String {
        let base = "addresses = ['10.0.0.1']\nallow = ['10.0.0.0/8']\n";
        let section = toml::from_str(&format!("{base}{toml}")).unwrap();
        Settings::new(&section).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        assert_eq!(error(""), "");
        for (toml, said) in [
            ("write = 'back'", "kvcache.write: \"back\" leaves answers in L0"),
            ("ask_port = 11211", "kvcache.ask_port: it is kvcache.port"),
            ("misses = 3", "kvcache.misses: 3: give 1 to 2"),
            ("refresh_s = 86401", "kvcache.refresh_s: 86401: give 0 to 86400"),
            ("vlan = 4095", "kvcache.vlan: 4095: give 0 to 4094"),
            ("l1 = { slab = 'F' }", "kvcache.l1.slab: \"F\": give \"A\" to \"E\""),
            ("l0 = { policy = 'lfu' }", "kvcache.l0.policy: \"lfu\": give \"fifo\", \"lru\", "),
            ("hash = 'md5'", "kvcache.hash: \"md5\": give \"keyed\", \"crc32\" or \"lookup3\""),
            ("l1 = { ways = 17 }", "kvcache.l1.ways: 17: give 1 to 16"),
            (
                "on_demand = { up = 5, up_ms = 100, down = 5, down_ms = 100 }",
                "kvcache.on_demand.down: 5: give 1 to 4",
            ),
            (
                "on_demand = { up = 5, up_ms = 99, down = 1, down_ms = 100 }",
                "kvcache.on_demand.up_ms: 99: give 100 to 60000",
            ),
            (
                "on_demand = { up = 5, up_ms = 100, down = 1, down_ms = 250 }",
                "kvcache.on_demand.down_ms: 250: gets are counted by tenths of a second: give hundreds",
            ),
            ("lease_ms = 3001", "kvcache.lease_ms: 3001: give 100 to 3000"),
            ("settle_ms = 300", "kvcache.lease_ms: 1000: give 100 to 300"),
            ("l0 = { entries = 3, ways = 4 }", "kvcache.l0.entries: 3: give 4 to"),
            ("l1 = { entries = 7 }", "kvcache.l1.entries: 7: give 8 to"),
            ("l0 = { entries = 0 }\nl1 = { entries = 0 }", "kvcache.l1.entries: 0, as kvcache.l0.entries is"),
            (
                "on_demand = { up = 5, up_ms = 100, down = 4, down_ms = 100 }\n\
                on_demand_host = { up = { cpu = 50, ms = 1000 }, down = { cpu = 20, gets = 10, ms = 1000 } }",
                "kvcache.on_demand_host: there is kvcache.on_demand, too",
            ),
            (
                "l1 = { memory_mib = 1048576, slab = 'C' }",
                "kvcache.l1.memory_mib: 1048576: more than 2^31 chunks",
            ),
        ] {
            assert!(error(toml).starts_with(said), "{toml}: {}", error(toml));
        }
        let of = |toml: &str| Settings::new(&toml::from_str(toml).unwrap()).unwrap_err().to_string();
        assert!(of("").starts_with("kvcache.addresses: there is none"));
        assert!(of("addresses = ['10.0.0.x']").starts_with("kvcache.addresses: \"10.0.0.x\" is no address"));
        assert!(of("addresses = ['10.0.0.1']").starts_with("kvcache.allow: there is none"));
        assert!(
            of("addresses = ['::1']\nallow = ['10.0.0.0/33']").starts_with("kvcache.allow: \"10.0.0.0/33\"")
        );
    }

    #[test]
    fn every_policy_and_hash_can_be_had() {
        for policy in Policy::ALL {
            let name = policy.name();
            assert_eq!(error(&format!("l0 = {{ policy = '{name}' }}\nl1 = {{ policy = '{name}' }}")), "");
        }
        for name in ["keyed", "crc32", "lookup3"] {
            assert_eq!(error(&format!("hash = '{name}'")), "");
        }
    }

    #[test]
    fn a_tier_can_be_left_out() {
        assert_eq!(error("l0 = { entries = 0 }\nl1 = { memory_mib = 1 }"), "");
        // However much memory it would have had: it takes none.
        assert_eq!(error("l1 = { entries = 0, memory_mib = 1000 }"), "");
        let base =
            "addresses = ['10.0.0.1']\nallow = ['10.0.0.0/8']\nl1 = { entries = 0, memory_mib = 1000000 }";
        let settings = Settings::new(&toml::from_str(base).unwrap()).unwrap();
        assert!(settings.l1.chunks.is_empty());
        assert!(settings.tiers(1).fits(64) && !settings.tiers(1).fits(65), "L0's chunk alone");
    }

    #[test]
    fn prefixes() {
        let within =
            |prefix: &str, address: &str| Prefix::parse(prefix).unwrap().contains(address.parse().unwrap());
        assert!(within("10.0.0.0/8", "10.255.0.1") && !within("10.0.0.0/8", "11.0.0.1"));
        assert!(within("0.0.0.0/0", "1.2.3.4") && !within("0.0.0.0/0", "::1") && within("::/0", "fd00::1"));
        assert!(within("fd00::/16", "fd00::5") && !within("fd00::/16", "fd01::5"));
        assert!(within("10.0.0.1", "10.0.0.1") && !within("10.0.0.1", "10.0.0.0"));
    }
}
