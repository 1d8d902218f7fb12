//! What the simulated machine is: all numbers, with where they come from. Cycles are the core's.
//!
//! Each number is of one of three kinds, which [`Config::origins`] tells: *given* by the paper (Table 2, section 4.7), *public* (manuals,
//! measurements of many), or *assumed*, because nobody has published it. No number was chosen by looking at a figure.

use super::calendar::Time;
use serde::{Deserialize, Serialize};

/// A core and what of it limits how much it does at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// Instructions that enter the window per cycle.
    pub width: u64,
    /// Entries of the reorder buffer.
    pub rob: usize,
    /// Of the load queue.
    pub loads: usize,
    /// Of the store queue.
    pub stores: usize,
    /// Cycles from a mispredicted branch's end to the next instruction.
    pub mispredict_cycles: f64,
}

/// The caches: sizes in KiB, latencies in cycles from load to use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Level 1 for data.
    pub l1_kib: usize,
    /// Its ways.
    pub l1_ways: usize,
    /// Its latency.
    pub l1_cycles: f64,
    /// Level 2.
    pub l2_kib: usize,
    /// Its ways.
    pub l2_ways: usize,
    /// Its latency.
    pub l2_cycles: f64,
    /// Lines that a core may be waiting for.
    pub mshr: usize,
    /// The last-level cache, all slices.
    pub llc_kib: usize,
    /// Its ways.
    pub llc_ways: usize,
    /// From load to use in the slice of the core's own tile.
    pub llc_cycles: f64,
    /// What of it is the slice: tags, then data.
    pub slice_cycles: f64,
    /// Cycles between two accesses that a slice begins.
    pub slice_busy_cycles: f64,
    /// What of a remote core's caches a snoop costs, beside the way there and back.
    pub snoop_cycles: f64,
    /// A writer that met a lock tries again so much later.
    pub retry_cycles: f64,
}

/// The mesh.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshConfig {
    /// Tiles in a row; there are as many tiles as slices.
    pub columns: usize,
    /// One hop.
    pub hop_cycles: f64,
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramConfig {
    /// From a core's load to use, nobody else asking.
    pub load_ns: f64,
    /// Channels.
    pub channels: usize,
    /// A channel passes a line in so long.
    pub line_ns: f64,
}

/// The accelerators of HALO (section 4.3), one at each slice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaloConfig {
    /// Queries at once.
    pub scoreboard: usize,
    /// Tables whose descriptions are kept.
    pub metadata_tables: usize,
    /// The hash unit's latency for 8 bytes of a key; it begins one key per cycle.
    pub hash_cycles: f64,
    /// Comparing a line: all signatures, or a key.
    pub compare_cycles: f64,
    /// Masking a key.
    pub mask_cycles: f64,
    /// Between two steps of a query: scoreboard, bounds.
    pub step_cycles: f64,
    /// Lookups that share a line of results and are asked for together.
    pub batch: usize,
    /// Which slice gets a query: by the table's address (the paper), by the key's, or by that of the key's first bucket.
    pub distributor: Distributor,
}

/// How queries find their slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distributor {
    /// By the address of the table: all of a table's queries go to one slice (4.3).
    Table,
    /// By the address of the key: a table's queries go everywhere, and so does its description. Ours.
    Key,
    /// To the slice that has the key's first bucket. So the key is fetched and hashed before it is known which that is: at the core's own
    /// tile, whose metadata cache has the table's description. Ours.
    Bucket,
}

/// TCAM beside the caches, in the middle of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcamConfig {
    /// A search.
    pub tcam_cycles: f64,
    /// A search of sub-tables in SRAM.
    pub sram_cycles: f64,
}

/// No key has more parts.
const DEEPEST: usize = 8;

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The preset that it began as.
    pub machine: String,
    /// The core clock.
    pub ghz: f64,
    /// Cores, each at the tile of its number.
    pub cores: usize,
    /// Slices of the last-level cache: tiles.
    pub slices: usize,
    /// See [`CoreConfig`].
    pub core: CoreConfig,
    /// See [`CacheConfig`].
    pub cache: CacheConfig,
    /// See [`MeshConfig`].
    pub mesh: MeshConfig,
    /// See [`DramConfig`].
    pub dram: DramConfig,
    /// See [`HaloConfig`].
    pub halo: HaloConfig,
    /// See [`TcamConfig`].
    pub tcam: TcamConfig,
}

/// A configuration that is not one. The message is one line.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The text is no TOML, or has a key or a value that a machine has not.
    #[error("{0}")]
    Text(String),
    /// No such preset.
    #[error("machine = \"{0}\": use {names}", names = PRESETS.map(|(name, _)| name).join(", "))]
    Machine(String),
    /// A number out of its range.
    #[error("{name} = {value}: use {low} to {high}")]
    Range {
        /// Its key.
        name: &'static str,
        /// What it is.
        value: f64,
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
}

/// A preset's name, and how it is made.
type Preset = (&'static str, fn() -> Config);

/// The machines that are known by name.
pub const PRESETS: [Preset; 3] =
    [("skylake-sp", Config::skylake_sp), ("zen-4", Config::zen_4), ("zen-3", Config::zen_3)];

/// Where a number is from.
pub type Origin = (&'static str, &'static str);

impl Config {
    /// HALO's machine: Table 2 of the paper, with the latencies of Skylake-SP.
    pub fn skylake_sp() -> Self {
        Config {
            machine: "skylake-sp".into(),
            ghz: 2.1,
            cores: 16,
            slices: 16,
            core: CoreConfig { width: 4, rob: 192, loads: 128, stores: 128, mispredict_cycles: 16.0 },
            cache: CacheConfig {
                l1_kib: 32,
                l1_ways: 8,
                l1_cycles: 4.0,
                l2_kib: 1024,
                l2_ways: 16,
                l2_cycles: 14.0,
                mshr: 20,
                llc_kib: 32 << 10,
                llc_ways: 16,
                llc_cycles: 54.0,
                slice_cycles: 8.0,
                slice_busy_cycles: 2.0,
                snoop_cycles: 14.0,
                retry_cycles: 20.0,
            },
            mesh: MeshConfig { columns: 4, hop_cycles: 4.0 / 3.0 },
            dram: DramConfig { load_ns: 90.0, channels: 6, line_ns: 64.0 / 19.2 },
            halo: HaloConfig {
                scoreboard: 10,
                metadata_tables: 10,
                hash_cycles: 3.0,
                compare_cycles: 1.0,
                mask_cycles: 1.0,
                step_cycles: 1.0,
                batch: 8,
                distributor: Distributor::Table,
            },
            tcam: TcamConfig { tcam_cycles: 4.0, sram_cycles: 6.0 },
        }
    }

    /// A core complex of AMD's Zen 4 server parts, to be held against one.
    pub fn zen_4() -> Self {
        let base = Config::skylake_sp();
        Config {
            machine: "zen-4".into(),
            ghz: 3.7,
            cores: 8,
            slices: 8,
            core: CoreConfig { width: 6, rob: 320, loads: 136, stores: 64, mispredict_cycles: 13.0 },
            cache: CacheConfig { l2_ways: 8, mshr: 24, llc_cycles: 47.0, ..base.cache },
            mesh: MeshConfig { columns: 2, hop_cycles: 1.0 },
            dram: DramConfig { load_ns: 110.0, channels: 12, line_ns: 64.0 / 38.4 },
            ..base
        }
    }

    /// A core complex of AMD's Zen 3 server parts, likewise: a smaller window, half the L2, DDR4-3200.
    pub fn zen_3() -> Self {
        let next = Config::zen_4();
        Config {
            machine: "zen-3".into(),
            ghz: 3.5,
            core: CoreConfig { rob: 256, loads: 116, ..next.core },
            cache: CacheConfig { l2_kib: 512, l2_cycles: 12.0, llc_cycles: 46.0, ..next.cache },
            dram: DramConfig { channels: 8, line_ns: 64.0 / 25.6, ..next.dram },
            ..next
        }
    }

    /// A preset by its name.
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
    }

    /// A machine from TOML: `machine` names a preset, all other keys change it.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let changes: toml::Table = toml::from_str(text).map_err(|error| wrong(&error))?;
        let name = match changes.get("machine") {
            None => PRESETS[0].0,
            Some(name) => name
                .as_str()
                .ok_or_else(|| ConfigError::Machine(name.to_string().escape_debug().to_string()))?,
        };
        let unknown = || ConfigError::Machine(name.escape_debug().to_string());
        Config::named(name).ok_or_else(unknown)?.changed(changes)
    }

    /// As [`from_toml`](Self::from_toml) reads it.
    pub fn to_toml(&self) -> String {
        // Plain numbers and words: there is nothing that TOML has not.
        toml::to_string(self).unwrap_or_default()
    }

    /// This machine with one key changed, such as `halo.scoreboard`, as `--sweep` does. `machine` is another preset, as long as nothing of this one is changed.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn with(&self, path: &str, value: &str) -> Result<Self, ConfigError> {
        if path == "machine" {
            if Config::named(&self.machine).as_ref() != Some(self) {
                let text = "machine: another one has none of what was changed of this: name it first";
                return Err(ConfigError::Text(text.into()));
            }
            let unknown = || ConfigError::Machine(value.escape_debug().to_string());
            return Config::named(value).ok_or_else(unknown);
        }
        if path.split('.').count() > DEEPEST {
            return Err(ConfigError::Text("no key has so many parts".into()));
        }
        let value = value.parse::<toml::Value>().unwrap_or_else(|_| toml::Value::String(value.into()));
        // An empty one would change nothing, and a full one several keys.
        if value.is_table() {
            return Err(ConfigError::Text(format!("{path}: a table is no value: give a number or a word")));
        }
        let mut parts = path.rsplit('.');
        let mut changes = toml::Table::new();
        changes.insert(parts.next().unwrap_or_default().into(), value);
        for part in parts {
            changes = toml::Table::from_iter([(part.to_owned(), toml::Value::Table(changes))]);
        }
        self.clone().changed(changes).map_err(|error| match error {
            ConfigError::Text(text) => ConfigError::Text(format!("{path}: {text}")),
            other => other,
        })
    }

    fn changed(self, changes: toml::Table) -> Result<Self, ConfigError> {
        let mut all = toml::Table::try_from(&self).map_err(|error| ConfigError::Text(error.to_string()))?;
        merge(&mut all, changes);
        let config: Config =
            all.try_into().map_err(|error: toml::de::Error| ConfigError::Text(one_line(error.message())))?;
        config.check()?;
        Ok(config)
    }

    /// Whether the numbers make a machine.
    ///
    /// # Errors
    /// [`ConfigError::Range`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let Config { core, cache, halo, .. } = self;
        let ranges: [(&'static str, f64, f64, f64); 33] = [
            ("ghz", self.ghz, 0.1, 10.0),
            ("cores", self.cores as f64, 1.0, 64.0),
            ("slices", self.slices as f64, 1.0, 64.0),
            ("core.width", core.width as f64, 1.0, 16.0),
            ("core.rob", core.rob as f64, 16.0, 4096.0),
            ("core.loads", core.loads as f64, 16.0, 1024.0),
            ("core.stores", core.stores as f64, 16.0, 1024.0),
            ("core.mispredict_cycles", core.mispredict_cycles, 0.0, 100.0),
            ("cache.l1_kib", cache.l1_kib as f64, 1.0, 1024.0),
            ("cache.l1_ways", cache.l1_ways as f64, 1.0, 64.0),
            ("cache.l1_cycles", cache.l1_cycles, 1.0, 100.0),
            ("cache.l2_kib", cache.l2_kib as f64, 1.0, 65_536.0),
            ("cache.l2_ways", cache.l2_ways as f64, 1.0, 64.0),
            ("cache.l2_cycles", cache.l2_cycles, cache.l1_cycles, 1000.0),
            ("cache.mshr", cache.mshr as f64, 1.0, 256.0),
            ("cache.llc_kib", cache.llc_kib as f64, 1.0, 1_048_576.0),
            ("cache.llc_ways", cache.llc_ways as f64, 1.0, 64.0),
            ("cache.llc_cycles", cache.llc_cycles, cache.l2_cycles + cache.slice_cycles, 1000.0),
            ("cache.slice_cycles", cache.slice_cycles, 1.0, 500.0),
            ("cache.slice_busy_cycles", cache.slice_busy_cycles, 0.1, 100.0),
            ("cache.snoop_cycles", cache.snoop_cycles, 0.0, 1000.0),
            ("cache.retry_cycles", cache.retry_cycles, 1.0, 10_000.0),
            ("mesh.columns", self.mesh.columns as f64, 1.0, 64.0),
            ("mesh.hop_cycles", self.mesh.hop_cycles, 0.0, 100.0),
            ("dram.load_ns", self.dram.load_ns, cache.llc_cycles / self.ghz, 10_000.0),
            ("dram.channels", self.dram.channels as f64, 1.0, 64.0),
            ("dram.line_ns", self.dram.line_ns, 0.01, 1000.0),
            ("halo.scoreboard", halo.scoreboard as f64, 1.0, 1024.0),
            ("halo.metadata_tables", halo.metadata_tables as f64, 1.0, 1024.0),
            ("halo.hash_cycles", halo.hash_cycles, 0.0, 1000.0),
            ("halo.compare_cycles", halo.compare_cycles, 0.0, 1000.0),
            ("halo.batch", halo.batch as f64, 1.0, 8.0),
            ("tcam.tcam_cycles", self.tcam.tcam_cycles, 1.0, 10_000.0),
        ];
        let rest: [(&'static str, f64, f64, f64); 3] = [
            ("halo.mask_cycles", halo.mask_cycles, 0.0, 1000.0),
            ("halo.step_cycles", halo.step_cycles, 0.0, 1000.0),
            ("tcam.sram_cycles", self.tcam.sram_cycles, 1.0, 10_000.0),
        ];
        for (name, value, low, high) in ranges.into_iter().chain(rest) {
            // A value that is no number is in no range.
            if !(low..=high).contains(&value) {
                return Err(ConfigError::Range { name, value, low, high });
            }
        }
        Ok(())
    }

    /// So many cycles of the core, in picoseconds.
    #[inline]
    pub fn ps(&self, cycles: f64) -> Time {
        (cycles * 1e3 / self.ghz).round() as Time
    }

    /// Picoseconds as cycles of the core.
    #[inline]
    pub fn cycles(&self, ps: Time) -> f64 {
        ps as f64 * self.ghz / 1e3
    }

    /// Where the numbers of the first preset come from.
    pub const fn origins() -> &'static [Origin] {
        &[
            (
                "ghz, cores, slices, core.rob, core.loads, core.stores, cache sizes and ways, mshr, llc",
                "given: Table 2",
            ),
            ("halo.scoreboard, halo.metadata_tables, halo.batch, distributor", "given: 4.3, 4.7, 5.1"),
            (
                "core.width, core.mispredict_cycles",
                "public: Skylake takes 4 a cycle; some 16 cycles for a wrong guess",
            ),
            (
                "l1_cycles, l2_cycles, llc_cycles, hop_cycles",
                "public: 4, 14, and 54 to 70 cycles by distance: 16 more over 12 hops there and back",
            ),
            (
                "dram.load_ns, line_ns, channels",
                "public: some 90 ns; DDR4-2400 has 19.2 GB/s a channel; six channels",
            ),
            ("halo.hash_cycles", "public: what the same unit of a core takes for CRC32C of 8 bytes"),
            (
                "slice_cycles, slice_busy_cycles",
                "assumed: tags 3 and data 5 cycles, as designs of such slices have; a line of 64 bytes is two transfers of 32",
            ),
            ("snoop_cycles, retry_cycles", "assumed: a core's L2 lookup; the length of a short query"),
            ("compare, mask, step", "assumed: one cycle each"),
            (
                "tcam, sram",
                "assumed: \"a few cycles\" (6.1), two more for sub-tables; the way to it is the accelerators'",
            ),
        ]
    }
}

fn merge(into: &mut toml::Table, changes: toml::Table) {
    for (key, value) in changes {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(old)), toml::Value::Table(new)) => merge(old, new),
            // 4 is a number of cycles too.
            (Some(old @ toml::Value::Float(_)), toml::Value::Integer(new)) => {
                *old = toml::Value::Float(new as f64)
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn wrong(error: &toml::de::Error) -> ConfigError {
    ConfigError::Text(one_line(&error.to_string()))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_machines_and_come_back_from_their_own_text() {
        for (name, make) in PRESETS {
            let config = make();
            assert_eq!((config.check(), config.machine.as_str()), (Ok(()), name));
            assert_eq!(Config::from_toml(&config.to_toml()), Ok(config));
        }
        // 54 to 70 cycles by distance.
        let skylake = Config::skylake_sp();
        let farthest = skylake.cache.llc_cycles + 12.0 * skylake.mesh.hop_cycles;
        assert!((farthest - 70.0).abs() < 1e-9);
        assert_eq!(Config::from_toml(""), Ok(skylake));
    }

    #[test]
    fn keys_are_changed_and_wrong_ones_named() {
        let config =
            Config::from_toml("machine = \"zen-4\"\ncores = 4\n[halo]\nscoreboard = 20\nhash_cycles = 5");
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((config.cores, config.halo.scoreboard, config.halo.hash_cycles), (4, 20, 5.0));
        assert_eq!(config.slices, 8);
        let swept = Config::skylake_sp().with("halo.distributor", "key");
        assert_eq!(swept.map(|config| config.halo.distributor), Ok(Distributor::Key));
        let of = |text: &str| Config::from_toml(text).map(|_| ()).map_err(|error| error.to_string());
        for (text, said) in [
            ("cores = 0", "cores = 0: use 1 to 64"),
            ("machine = \"486\"", "machine = \"486\": use skylake-sp, zen-4"),
            ("[halo]\nscorebord = 3", "unknown field `scorebord`"),
            ("[halo]\nscoreboard = -3", "invalid value"),
            ("[cache]\nllc_cycles = 10", "cache.llc_cycles = 10: use 22 to 1000"),
            ("ghz = nan", "ghz = NaN: use 0.1 to 10"),
            ("halo = 3", "invalid type"),
            ("cores = ", "TOML parse error at line 1"),
        ] {
            let error = of(text).expect_err(text);
            assert!(error.contains(said) && error.lines().count() == 1, "{text}: {error}");
        }
        let error =
            Config::skylake_sp().with("halo.nothing", "3").map(|_| ()).map_err(|error| error.to_string());
        assert!(
            error.as_ref().is_err_and(|error| error.starts_with("halo.nothing: unknown field")),
            "{error:?}"
        );
        // Another preset is one, with its own numbers.
        let skylake = Config::skylake_sp();
        assert_eq!(skylake.with("machine", "zen-4"), Ok(Config::named("zen-4").unwrap()));
        let error =
            |config: &Config, key: &str, value: &str| config.with(key, value).unwrap_err().to_string();
        assert!(error(&skylake, "machine", "foo").contains("machine = \"foo\": use skylake-sp"));
        let changed = skylake.with("cores", "4").unwrap();
        assert!(error(&changed, "machine", "zen-4").contains("name it first"));
        for table in ["{}", "{ scoreboard = 3 }"] {
            assert!(error(&skylake, "halo", table).starts_with("halo: a table is no value"), "{table}");
        }
        assert!(error(&skylake, &["a"; 60_000].join("."), "3").contains("so many parts"));
    }
}
