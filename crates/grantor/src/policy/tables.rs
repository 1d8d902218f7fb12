//! Tables of prefixes for scripts: read once for a policy, looked up by all its states.
//!
//! A table is made from a file that [`tidemill_feed`] reads (text, MRT; plain or compressed) by the structure that `auto` chooses for
//! it, and never changes: a reload reads the files again. Values are whole numbers; a file that has only prefixes gives 1. Both families
//! may be mixed. The states of all workers hold the same `Arc`, so a table is in memory once.

use crate::error::PolicyError;
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_feed::{LabelBy, LoadOptions, NextHopName, Synthetic};
use tidemill_lpm::{Algorithm, Domain, Fib, Label, Rib, Table};

/// Lines, or MRT records, of a table at most: several times what the Internet's table has. A small file that is compressed may hold any number.
pub const LINES_MAX: u64 = 1 << 23;

/// One table.
pub struct PrefixTable {
    v4: Arc<dyn Fib<u32>>,
    v6: Arc<dyn Fib<u128>>,
    /// The value of each label; label 0 has none.
    values: Vec<u32>,
    prefixes: usize,
}

impl PrefixTable {
    fn load(path: &Path, name: &str, column: LabelBy) -> Result<PrefixTable, PolicyError> {
        // A device may have no end. A pipe is waited for as a slow disk is: nothing else waits with it.
        if std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.file_type().is_fifo()) {
            return Err(PolicyError::config("policy", format!("{name}: a device or a folder, and no file")));
        }
        let options = LoadOptions {
            label_by: column,
            synthetic: Synthetic::Single,
            most: Some(LINES_MAX),
            numbers: true,
            ..LoadOptions::default()
        };
        let loaded = tidemill_feed::load(path, &options)?;
        let mut values = vec![0; 1];
        for (label, value) in loaded.labels.iter() {
            // A text is refused at its line; the routes of an MRT file lead to addresses.
            let NextHopName::Number(number) = value else {
                let what = format!("{name}: the value {value} is no whole number: give one, or none at all");
                return Err(PolicyError::config("policy", what));
            };
            values.resize(values.len().max(label.0 as usize + 1), 0);
            values[label.0 as usize] = *number;
        }
        let prefixes = loaded.v4.len() + loaded.v6.len();
        Ok(PrefixTable { v4: fib(loaded.v4)?, v6: fib(loaded.v6)?, values, prefixes })
    }

    /// Prefixes in it.
    pub fn prefixes(&self) -> usize {
        self.prefixes
    }

    /// Bytes that lookups can touch.
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes() + self.values.len() * 4
    }

    fn value(&self, label: Label) -> Option<u32> {
        if label == Label::NONE { None } else { self.values.get(label.0 as usize).copied() }
    }

    /// The value of the longest prefix that the address lies in: 4 bytes are IPv4, 16 are IPv6.
    pub fn get(&self, address: &[u8]) -> Option<u32> {
        let label = match (<[u8; 4]>::try_from(address), <[u8; 16]>::try_from(address)) {
            (Ok(v4), _) => self.v4.lookup(u32::from_be_bytes(v4)),
            (_, Ok(v6)) => self.v6.lookup(u128::from_be_bytes(v6)),
            _ => Label::NONE,
        };
        self.value(label)
    }

    /// The same of many: `out[i]` answers the `i`th address. `labels` is room to work in.
    pub fn get_batch4(&self, keys: &[u32], labels: &mut Vec<Label>, out: &mut Vec<Option<u32>>) {
        labels.clear();
        labels.resize(keys.len(), Label::NONE);
        self.v4.lookup_batch(keys, labels);
        out.clear();
        out.extend(labels.iter().map(|label| self.value(*label)));
    }

    /// The same of IPv6.
    pub fn get_batch6(&self, keys: &[u128], labels: &mut Vec<Label>, out: &mut Vec<Option<u32>>) {
        labels.clear();
        labels.resize(keys.len(), Label::NONE);
        self.v6.lookup_batch(keys, labels);
        out.clear();
        out.extend(labels.iter().map(|label| self.value(*label)));
    }
}

/// The structure for a RIB that will not change. It outlives its table, which alone could patch it.
fn fib<A: tidemill_lpm::Family>(rib: Rib<A>) -> Result<Arc<dyn Fib<A>>, PolicyError> {
    Ok(Table::new(&Domain::new(), rib, &Algorithm::Auto)?.fib().clone())
}

/// The tables of one policy, by the name and the column that its script asks for.
pub struct Library {
    folder: PathBuf,
    tables: Mutex<BTreeMap<(String, &'static str), Arc<PrefixTable>>>,
}

impl Library {
    /// Files are looked for in `folder`.
    pub fn new(folder: &Path) -> Library {
        Library { folder: folder.into(), tables: Mutex::default() }
    }

    /// The table of this file, read if it was not yet. `column` is `"value"`, `"neighbour_as"` or `"origin_as"`.
    ///
    /// # Errors
    /// One line with the file and the place. A path that leads out of the folder is refused: scripts see nothing else.
    pub fn get(&self, file: &str, column: &str) -> Result<Arc<PrefixTable>, PolicyError> {
        let wrong = |what: String| Err(PolicyError::config("policy", what));
        let (column, by) = match column {
            "value" => ("value", LabelBy::NextHop),
            "neighbour_as" => ("neighbour_as", LabelBy::NeighbourAs),
            "origin_as" => ("origin_as", LabelBy::OriginAs),
            other => {
                return wrong(format!("lpm: no column {other:?}: give value, neighbour_as or origin_as"));
            }
        };
        let inside = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
        if file.is_empty() || !Path::new(file).components().all(inside) {
            return wrong(format!("lpm: {file:?}: give a file in the configuration's folder, without .."));
        }
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(&(file.to_owned(), column)) {
            return Ok(table.clone());
        }
        let table = Arc::new(PrefixTable::load(&self.folder.join(file), file, by)?);
        tables.insert((file.to_owned(), column), table.clone());
        Ok(table)
    }

    /// The tables that have been read: file, and table.
    pub fn list(&self) -> Vec<(String, Arc<PrefixTable>)> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.iter().map(|((file, _), table)| (file.clone(), table.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(files: &[(&str, &str)]) -> (tempfile::TempDir, Library) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let library = Library::new(folder.path());
        (folder, library)
    }

    #[test]
    fn values_of_both_families_are_found() {
        let text = "192.0.2.0/24 7\n192.0.2.128/25 70000\n2001:db8::/32 0\n";
        let (_folder, library) = library(&[("a.txt", text), ("bare.txt", "192.0.2.0/24\n")]);
        let table = library.get("a.txt", "value").unwrap();
        assert_eq!(table.get(&[192, 0, 2, 1]), Some(7));
        assert_eq!(table.get(&[192, 0, 2, 200]), Some(70_000));
        assert_eq!(table.get(&[192, 0, 3, 1]), None);
        let inside: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
        assert_eq!(table.get(&inside.to_be_bytes()), Some(0), "a value may be 0");
        assert_eq!(table.get(&[1, 2, 3]), None);
        assert_eq!(table.prefixes(), 3);
        assert_eq!(library.get("bare.txt", "value").unwrap().get(&[192, 0, 2, 1]), Some(1));
        let (mut labels, mut out) = (Vec::new(), Vec::new());
        table.get_batch4(&[0xc000_0201, 0xc000_02c8, 1], &mut labels, &mut out);
        assert_eq!(out, [Some(7), Some(70_000), None]);
        table.get_batch6(&[inside, 1], &mut labels, &mut out);
        assert_eq!(out, [Some(0), None]);
    }

    #[test]
    fn a_file_is_read_once_and_by_column() {
        let text = "192.0.2.0/24\t1\t64500\t64501\n";
        let (folder, library) = library(&[("a.txt", text)]);
        let first = library.get("a.txt", "value").unwrap();
        std::fs::remove_file(folder.path().join("a.txt")).unwrap();
        assert!(Arc::ptr_eq(&first, &library.get("a.txt", "value").unwrap()));
        assert!(library.get("a.txt", "origin_as").is_err(), "another column is another table");
        std::fs::write(folder.path().join("a.txt"), text).unwrap();
        assert_eq!(library.get("a.txt", "origin_as").unwrap().get(&[192, 0, 2, 1]), Some(64_501));
        assert_eq!(library.get("a.txt", "neighbour_as").unwrap().get(&[192, 0, 2, 1]), Some(64_500));
        assert_eq!(library.list().len(), 3);
    }

    #[test]
    fn wrong_files_are_named_and_others_not_reached() {
        let (folder, library) = library(&[
            ("words.txt", "192.0.2.0/24 1\n198.51.100.0/24 eth0\n"),
            ("bad.txt", "192.0.2.0/24 1\nnonsense 2\n"),
        ]);
        let error = |file: &str, column: &str| library.get(file, column).map(drop).unwrap_err().to_string();
        assert!(error("words.txt", "value").contains("words.txt:2: the value eth0 is no whole number"));
        assert!(error("bad.txt", "value").contains("bad.txt:2"), "{}", error("bad.txt", "value"));
        assert!(error("none.txt", "value").contains("none.txt"));
        std::fs::write(folder.path().join("long.txt"), "#\n".repeat(LINES_MAX as usize + 1)).unwrap();
        let long = error("long.txt", "value");
        assert!(long.contains("long.txt: more than 8388608 lines or records"), "{long}");
        for path in ["/etc/passwd", "../a.txt", "x/../../a", ""] {
            assert!(error(path, "value").contains("in the configuration's folder"), "{path}");
        }
        assert!(error("bad.txt", "colour").contains("no column"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/null", folder.path().join("device.txt")).unwrap();
            assert!(error("device.txt", "value").contains("device.txt: a device or a folder"));
        }
        drop(folder);
    }
}
