//! What table-reading commands share: which files, which structures, which families.

use crate::usage;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use tidemill_feed::{Counts, LabelBy, LoadOptions, LoadedTable, Peer};
use tidemill_lpm::{Algorithm, Family, Label, Prefix, Rib};

/// The routing table that a command works on.
#[derive(Args, Clone)]
pub(crate) struct TableArgs {
    /// Routing table: MRT, text or CSV; plain, gz, xz or zst. Repeat it to join several, one per family for instance
    #[arg(long = "table", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// How tables are read.
#[derive(Args, Clone, Default)]
pub(crate) struct LoadArgs {
    /// What a route's label is made of
    #[arg(long, value_enum, default_value = "next-hop", help_heading = "Reading tables")]
    pub(crate) label_by: LabelSource,
    /// Whose routes to take from an MRT file: `index:N`, an AS number, or an address [default: anybody's]
    #[arg(long, value_name = "PEER", help_heading = "Reading tables")]
    pub(crate) peer: Option<String>,
    /// Clear host bits of a text prefix instead of refusing the file
    #[arg(long, help_heading = "Reading tables")]
    pub(crate) mask_host_bits: bool,
    /// Leave out wrong lines and records (and count them) instead of refusing the file
    #[arg(long, help_heading = "Reading tables")]
    pub(crate) skip_wrong: bool,
}

/// See [`LabelBy`].
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum LabelSource {
    /// The next hop
    #[default]
    NextHop,
    /// The AS that announced it to the peer
    NeighbourAs,
    /// The AS that originated it
    OriginAs,
}

impl LoadArgs {
    pub(crate) fn label_by(&self) -> LabelBy {
        match self.label_by {
            LabelSource::NextHop => LabelBy::NextHop,
            LabelSource::NeighbourAs => LabelBy::NeighbourAs,
            LabelSource::OriginAs => LabelBy::OriginAs,
        }
    }

    fn options(&self) -> Result<LoadOptions> {
        Ok(LoadOptions {
            label_by: self.label_by(),
            peer: self.peer.as_deref().map_or(Ok(Peer::Any), parse_peer)?,
            mask_host_bits: self.mask_host_bits,
            skip_wrong: self.skip_wrong,
            ..LoadOptions::default()
        })
    }

    /// Loads one table.
    pub(crate) fn load(&self, file: &Path) -> Result<LoadedTable> {
        self.load_all(&[file])
    }

    fn load_all(&self, files: &[&Path]) -> Result<LoadedTable> {
        files.iter().try_for_each(|file| check_input(file))?;
        let table = tidemill_feed::load_all(files, &self.options()?)?;
        report_left_out(&table.counts);
        Ok(table)
    }
}

impl TableArgs {
    /// Loads the files as one table.
    pub(crate) fn load(&self) -> Result<LoadedTable> {
        self.load.load_all(&self.files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
    }

    /// The files' names without their folders, for records.
    pub(crate) fn name(&self) -> String {
        let names =
            self.files.iter().map(|file| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
        names.collect::<Vec<_>>().join("+")
    }
}

/// Says what was left out or mended, if anything was.
pub(crate) fn report_left_out(counts: &Counts) {
    if counts.wrong > 0 {
        let first = counts.wrong_places.first().map_or("", String::as_str);
        eprintln!("tidemill: warning: left out {} wrong lines or records, the first: {first}", counts.wrong);
    }
    if counts.masked > 0 {
        eprintln!("tidemill: cleared the host bits of {} prefixes", counts.masked);
    }
}

/// Bytes of a file of keys at most.
const MOST_KEY_BYTES: u64 = 16 << 30;

/// A file that is not there is bad usage, and so are a folder and a device, which may have no end; what is in it is not. A pipe is taken.
pub(crate) fn check_input(file: &Path) -> Result<()> {
    let is_device = |of: std::fs::FileType| of.is_char_device() || of.is_block_device();
    match std::fs::metadata(file) {
        Ok(data) if data.is_dir() => Err(usage(format!("{}: is a folder: give a file", file.display()))),
        Ok(data) if is_device(data.file_type()) => {
            Err(usage(format!("{}: is a device: give a file", file.display())))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(usage(format!("{}: {error}: give a file that can be read", file.display()))),
    }
}

/// All of a file of keys.
pub(crate) fn read_keys(file: &Path) -> Result<Vec<u8>> {
    check_input(file)?;
    tidemill_archive::read_whole(file, MOST_KEY_BYTES).with_context(|| file.display().to_string())
}

fn parse_peer(text: &str) -> Result<Peer> {
    let number = |text: &str| text.parse::<u32>().ok();
    let as_number = text.strip_prefix("AS").unwrap_or(text);
    let index = text.strip_prefix("index:").and_then(|index| index.parse().ok()).map(Peer::Index);
    index
        .or_else(|| number(as_number).map(Peer::As))
        .or_else(|| text.parse().ok().map(Peer::Address))
        .ok_or_else(|| usage(format!("--peer {text}: give `index:N`, an AS number or an address")))
}

/// The structures that a command works on.
#[derive(Args, Clone)]
pub(crate) struct AlgorithmArgs {
    /// Lookup structures, separated by commas; `all` is every one, `yardsticks` those that are here to be compared with,
    /// `usual` the others
    #[arg(
        long,
        visible_alias = "structure",
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "auto",
        long_help = structures()
    )]
    pub(crate) algorithm: Vec<String>,
}

impl AlgorithmArgs {
    /// The structures for the families that the table has. A name of one family only is left out for the other.
    pub(crate) fn choose(&self, table: &LoadedTable) -> Result<Chosen> {
        let families = Families::of(table);
        let chosen = Chosen {
            v4: if families.v4 { self.of_family::<u32>() } else { Vec::new() },
            v6: if families.v6 { self.of_family::<u128>() } else { Vec::new() },
        };
        for name in self.names() {
            let (v4, v6) = (Algorithm::parse::<u32>(name).err(), Algorithm::parse::<u128>(name).err());
            let wrong = match (families.v4, families.v6) {
                (true, false) => v4,
                (false, true) => v6,
                _ => v4.and_then(|error| v6.map(|_| error)),
            };
            if let Some(error) = wrong {
                return Err(usage(format!("--algorithm: {error}")));
            }
        }
        Ok(chosen)
    }

    /// Names of structures, without the words for several.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.algorithm.iter().map(String::as_str).filter(|name| !WORDS.contains(name))
    }

    /// Those of one family.
    pub(crate) fn of_family<A: Family>(&self) -> Vec<Algorithm> {
        let mut chosen: Vec<Algorithm> = Vec::new();
        for name in &self.algorithm {
            let more = match name.as_str() {
                "all" => every::<A>(),
                "usual" => every::<A>().into_iter().filter(|a| !a.is_yardstick()).collect(),
                "yardsticks" => every::<A>().into_iter().filter(Algorithm::is_yardstick).collect(),
                name => Algorithm::parse::<A>(name).into_iter().collect(),
            };
            // A name that was given twice is meant twice.
            chosen.extend(
                more.into_iter()
                    .filter(|a| !WORDS.contains(&name.as_str()) || !chosen.contains(a))
                    .collect::<Vec<_>>(),
            );
        }
        chosen
    }

    /// Whether a word has chosen, not the user: what does not fit is left out then.
    pub(crate) fn any(&self) -> bool {
        self.algorithm.iter().any(|name| WORDS.contains(&name.as_str()))
    }
}

/// What `--algorithm` takes, with the names.
fn structures() -> String {
    let of = |names: Vec<Algorithm>| names.iter().map(Algorithm::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "Lookup structures, separated by commas; `all` is every one, `yardsticks` those that are here to be compared with, `usual` the \
         others.\n\nIPv4: {}.\n\nIPv6: {}.\n\nAlso other layouts of DXR and Popdir (dxr-d20r, dxr-d12x6r, popdir-d12x7), and roots of tries \
         (rangetrie-d12, poptrie-d13). crates/lpm/README.md compares them",
        of(Algorithm::all::<u32>()),
        of(Algorithm::all::<u128>())
    )
}

/// Words for several structures.
const WORDS: [&str; 3] = ["all", "usual", "yardsticks"];

/// Every structure of a family once.
pub(crate) fn every<A: Family>() -> Vec<Algorithm> {
    Algorithm::all::<A>().into_iter().filter(|&algorithm| algorithm != Algorithm::Auto).collect()
}

/// The structures chosen for each family.
pub(crate) struct Chosen {
    pub(crate) v4: Vec<Algorithm>,
    pub(crate) v6: Vec<Algorithm>,
}

/// The families that a table has routes of; an empty table counts as IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Families {
    pub(crate) fn of(table: &LoadedTable) -> Self {
        let v6 = !table.v6.is_empty();
        Families { v4: !table.v4.is_empty() || !v6, v6 }
    }
}

/// The routes as a list: what the oracle is made from.
pub(crate) fn routes<A: Family>(rib: &Rib<A>) -> Vec<(Prefix<A>, Label)> {
    rib.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_devices_are_no_input() {
        for (path, what) in [("/dev/zero", "is a device"), ("/", "is a folder"), ("/no/such", "No such file")]
        {
            let said = read_keys(Path::new(path)).unwrap_err();
            assert!(said.is::<crate::Usage>(), "{said}");
            assert!(said.to_string().starts_with(&format!("{path}: {what}")), "{said}");
        }
    }

    #[test]
    fn peers_have_three_forms() {
        for (text, peer) in [
            ("index:3", Peer::Index(3)),
            ("3333", Peer::As(3333)),
            ("AS3333", Peer::As(3333)),
            ("192.0.2.1", Peer::Address([192, 0, 2, 1].into())),
        ] {
            assert_eq!(parse_peer(text).unwrap(), peer);
        }
        for text in ["", "index:", "ASx", "192.0.2"] {
            assert!(parse_peer(text).unwrap_err().is::<crate::Usage>(), "{text}");
        }
    }
}
