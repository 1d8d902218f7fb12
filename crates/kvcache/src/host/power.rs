//! Watts: what the processors have counted (RAPL), or a model's where they count nothing.

use crate::config::PowerSource;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use tidemill_cachesim::lake::power;

/// Where watts are from.
#[derive(Debug)]
pub(crate) enum Power {
    Rapl(Vec<Zone>),
    Model(power::Power),
    /// RAPL was asked for, and is not there: why.
    Nothing(String),
}

/// A part of the machine whose energy is counted.
#[derive(Debug)]
pub(crate) struct Zone {
    path: PathBuf,
    energy: File,
    /// Behind this it begins again with 0.
    range_uj: u64,
    last_uj: Option<u64>,
}

impl Power {
    /// From this source, or from the best that there is; and what is to be said of it.
    pub(crate) fn open(source: Option<PowerSource>, powercap: &Path) -> (Self, Option<String>) {
        if source == Some(PowerSource::Model) {
            return (Power::Model(power::Power::default()), None);
        }
        match (zones(powercap), source) {
            (Ok(zones), _) => (Power::Rapl(zones), None),
            (Err(why), Some(_)) => (Power::Nothing(format!("no RAPL: {why}")), None),
            (Err(why), None) => {
                let note = format!("no RAPL ({why}): watts are the model's, by what memcached answers");
                (Power::Model(power::Power::default()), Some(note))
            }
        }
    }

    /// In a word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Power::Rapl(_) => "RAPL",
            Power::Model(_) => "model",
            Power::Nothing(_) => "unknown",
        }
    }

    /// Watts since the last reading, which was so long ago, while memcached answered so much. None: there was none before.
    pub(crate) fn watts(&mut self, elapsed_ns: u64, mqps: f64) -> Result<Option<f64>, String> {
        let zones = match self {
            Power::Model(model) => return Ok(Some(model.software_w(mqps))),
            Power::Nothing(why) => return Err(why.clone()),
            Power::Rapl(zones) => zones,
        };
        let spent: Result<Vec<Option<u64>>, String> = zones.iter_mut().map(Zone::spent_uj).collect();
        // All of them begin anew, or the next would be of different times.
        let spent = spent.inspect_err(|_| zones.iter_mut().for_each(|zone| zone.last_uj = None))?;
        let sum = spent.into_iter().try_fold(0_u64, |sum, uj| Some(sum.saturating_add(uj?)));
        Ok(sum.map(|uj| uj as f64 * 1e3 / elapsed_ns.max(1) as f64))
    }
}

/// Packages, and memory, which is outside of them. The other zones are parts of packages, or hold them.
fn zones(powercap: &Path) -> Result<Vec<Zone>, String> {
    let entries = fs::read_dir(powercap).map_err(|error| format!("{}: {error}", powercap.display()))?;
    let mut zones = Vec::new();
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("intel-rapl:") {
            continue;
        }
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.starts_with("package") || name.trim_end() == "dram" {
            zones.push(Zone::open(&entry.path())?);
        }
    }
    if zones.is_empty() {
        return Err(format!("{}: no zone of a package", powercap.display()));
    }
    Ok(zones)
}

impl Zone {
    fn open(folder: &Path) -> Result<Self, String> {
        let path = folder.join("max_energy_range_uj");
        let range = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let range_uj =
            range.trim_end().parse::<u64>().map_err(|_| format!("{}: no number", path.display()))?;
        let path = folder.join("energy_uj");
        let energy = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Zone { path, energy, range_uj, last_uj: None })
    }

    /// Since the last reading, if there was one.
    fn spent_uj(&mut self) -> Result<Option<u64>, String> {
        let said = |what: &dyn std::fmt::Display| format!("{}: {what}", self.path.display());
        let mut text = String::new();
        let read = self.energy.rewind().and_then(|()| self.energy.read_to_string(&mut text));
        read.map_err(|error| said(&error))?;
        let now_uj = text.trim_end().parse::<u64>().map_err(|_| said(&"no number"))?;
        let Some(last_uj) = self.last_uj else {
            self.last_uj = Some(now_uj);
            return Ok(None);
        };
        let spent_uj = spent(last_uj, now_uj, self.range_uj).ok_or_else(|| said(&"beyond its range"))?;
        self.last_uj = Some(now_uj);
        Ok(Some(spent_uj))
    }
}

/// Between two readings of what begins again behind `range`.
fn spent(last: u64, now: u64, range: u64) -> Option<u64> {
    now.checked_sub(last).or_else(|| range.checked_sub(last)?.checked_add(now))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const RANGE: u64 = 262_143_328_850;

    /// A zone as the kernel shows it.
    pub(crate) fn zone(powercap: &Path, folder: &str, name: &str, uj: u64) {
        let folder = powercap.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("max_energy_range_uj"), format!("{RANGE}\n")).unwrap();
        fs::write(folder.join("energy_uj"), format!("{uj}\n")).unwrap();
    }

    #[test]
    fn packages_and_memory_are_summed_and_counters_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |package: u64, memory: u64| {
            zone(root, "intel-rapl:0", "package-0", package);
            zone(root, "intel-rapl:0:1", "dram", memory);
        };
        put(1_000_000, 5);
        // Parts of it, and all of it once more.
        for (other, name) in
            [("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys"), ("intel-rapl-mmio:0", "package-0")]
        {
            zone(root, other, name, 77);
        }
        let (mut power, note) = Power::open(None, root);
        assert_eq!((power.name(), note), ("RAPL", None));
        assert_eq!(power.watts(SECOND, 0.0), Ok(None), "nothing to compare with");
        put(41_000_000, 2_000_005);
        zone(root, "intel-rapl:1", "psys", 900_000_000);
        assert_eq!(power.watts(SECOND, 0.9), Ok(Some(42.0)));
        put(RANGE - 10_000_000, 2_000_005);
        assert!(power.watts(2 * SECOND, 0.0).is_ok());
        // 10 J to its end, and 40 more.
        put(40_000_000, 2_000_005);
        assert_eq!(power.watts(2 * SECOND, 0.0), Ok(Some(25.0)));
        assert_eq!(power.watts(SECOND, 0.0), Ok(Some(0.0)));
        // What is no number, and what cannot be, breaks the series of all zones.
        for wrong in ["", "many\n"] {
            fs::write(root.join("intel-rapl:0:1/energy_uj"), wrong).unwrap();
            assert!(power.watts(SECOND, 0.0).unwrap_err().ends_with("energy_uj: no number"));
            put(50_000_000, 3_000_000);
            assert_eq!(power.watts(SECOND, 0.0), Ok(None));
        }
        put(RANGE + 1, 3_000_000);
        assert!(power.watts(SECOND, 0.0).is_ok());
        put(5, 3_000_000);
        assert!(power.watts(SECOND, 0.0).unwrap_err().ends_with("energy_uj: beyond its range"));
    }

    #[test]
    fn where_nothing_counts_a_model_does_or_it_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let (mut model, note) = Power::open(None, &folder.path().join("none"));
        assert!(note.unwrap().starts_with("no RAPL ("));
        // The paper's server: idle, and at memcached's best.
        assert_eq!((model.name(), model.watts(SECOND, 0.0)), ("model", Ok(Some(39.0))));
        let best = model.watts(SECOND, 0.962).unwrap().unwrap();
        assert!((best - 97.2).abs() < 1e-9, "{best}");
        zone(folder.path(), "intel-rapl:0:0", "core", 5);
        let said = Power::open(None, folder.path()).1.unwrap();
        assert!(said.contains("no zone of a package"), "{said}");
        let (mut none, note) = Power::open(Some(PowerSource::Rapl), folder.path());
        assert!(note.is_none() && none.watts(SECOND, 0.0).unwrap_err().starts_with("no RAPL: "));
        // Half of what there is would be a wrong sum.
        zone(folder.path(), "intel-rapl:0", "package-0", 5);
        zone(folder.path(), "intel-rapl:1", "package-1", 5);
        fs::remove_file(folder.path().join("intel-rapl:1/energy_uj")).unwrap();
        assert!(Power::open(None, folder.path()).1.unwrap().contains("intel-rapl:1/energy_uj"));
        assert_eq!(Power::open(Some(PowerSource::Model), folder.path()).1, None);
    }

    #[test]
    fn a_wrap_is_no_leap() {
        assert_eq!(spent(5, 8, 100), Some(3));
        assert_eq!(spent(95, 8, 100), Some(13));
        assert_eq!(spent(101, 8, 100), None);
        assert_eq!(spent(u64::MAX, 8, u64::MAX), Some(8));
    }
}
