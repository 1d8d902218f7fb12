//! Tables: what was loaded, how, and the loader's common part (labels, duplicates, counts).

use crate::error::{FeedError, FileFault};
use crate::labels::{Labels, NextHopName};
use crate::lines::Lines;
use crate::{mrt, text};
use std::io::BufRead;
use std::net::IpAddr;
use std::path::Path;
use tidemill_lpm::{Address, Label, Prefix, Rib};

/// What a route's label is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelBy {
    /// Its next hop: the second column of a text file, NEXT_HOP or MP_REACH_NLRI of an MRT route.
    #[default]
    NextHop,
    /// The AS that announced it to the peer: the third column, the first AS of the AS path.
    NeighbourAs,
    /// The AS that originated it: the fourth column, the last AS of the AS path.
    OriginAs,
}

/// Labels for files that have prefixes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synthetic {
    /// Every prefix has label 1.
    Single,
    /// Label 1 to this number, by a hash of the prefix: the same prefix always has the same label, neighbours
    /// hardly ever share one. 0 counts as 1.
    Hash(u32),
}

impl Default for Synthetic {
    fn default() -> Self {
        Synthetic::Hash(148)
    }
}

impl Synthetic {
    /// The label of a prefix, from 1.
    pub fn label<A: Address>(self, prefix: Prefix<A>) -> u32 {
        match self {
            Synthetic::Single => 1,
            Synthetic::Hash(labels) => {
                let bits = prefix.first().to_u128();
                let mixed = mix(bits as u64 ^ mix((bits >> 64) as u64 ^ mix(u64::from(prefix.len()))));
                1 + (mixed % u64::from(labels.max(1))) as u32
            }
        }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): fixed, so that labels never change between runs.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Whose routes to take from an MRT dump, which often has several per prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Peer {
    /// Anybody's: the first route of a prefix in file order wins.
    #[default]
    Any,
    /// The peer with this index in the peer table (TABLE_DUMP_V2 only).
    Index(u16),
    /// The peers of this AS.
    As(u32),
    /// The peer with this address.
    Address(IpAddr),
}

impl Peer {
    fn describe(self) -> String {
        match self {
            Peer::Any => "any peer".into(),
            Peer::Index(index) => format!("peer index {index}"),
            Peer::As(asn) => format!("peer AS {asn}"),
            Peer::Address(address) => format!("peer {address}"),
        }
    }
}

/// Lines, or MRT records, of a file at most, if nothing else is said: some times what the largest dumps of all routes of all peers have.
pub const LINES_MAX: u64 = 1 << 25;

/// How to load.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions {
    /// What labels are made of.
    pub label_by: LabelBy,
    /// Labels for files without values.
    pub synthetic: Synthetic,
    /// Whose routes, in MRT files.
    pub peer: Peer,
    /// Clear the host bits of a text prefix (and count it) instead of refusing the file. In MRT, RFC 4271, 4.3
    /// makes them irrelevant: there they are always cleared and counted.
    pub mask_host_bits: bool,
    /// Leave out lines and records that are wrong (and count them) instead of refusing the file. What cannot be
    /// read at all (an I/O error, corrupt compressed data) stays an error.
    pub skip_wrong: bool,
    /// A file with more lines (comments too), or MRT records, is refused: what a compressed one comes to its size does not tell, and a pipe may have no end.
    /// `None`: [`LINES_MAX`].
    pub most: Option<u64>,
    /// Every value of a text has to be a whole number.
    pub numbers: bool,
}

impl LoadOptions {
    pub(crate) fn most(&self) -> u64 {
        self.most.unwrap_or(LINES_MAX)
    }
}

/// What loading or replaying came across.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Lines with content, or MRT records.
    pub records: u64,
    /// Routes (or changes) that were taken from them.
    pub routes: u64,
    /// Routes to a prefix that had one: in text the last wins, in MRT the first.
    pub duplicates: u64,
    /// Prefixes whose host bits were cleared.
    pub masked: u64,
    /// MRT routes without a next hop (or AS path): their peer's address (or AS) stands in.
    pub stand_ins: u64,
    /// Well-formed records that are none of our business: peer tables, multicast, state changes, other peers.
    pub other: u64,
    /// Lines or records left out because they are wrong.
    pub wrong: u64,
    /// Why and where, for the first [`Counts::PLACES_MAX`] of them.
    pub wrong_places: Vec<String>,
}

impl Counts {
    /// How many messages about wrong lines are kept.
    pub const PLACES_MAX: usize = 10;

    /// Counts an error if that was asked for, or hands it back.
    pub(crate) fn tolerate(&mut self, skip_wrong: bool, error: FeedError) -> Result<(), FeedError> {
        if !skip_wrong || !matches!(error, FeedError::Line { .. } | FeedError::Record { .. }) {
            return Err(error);
        }
        self.wrong += 1;
        if self.wrong_places.len() < Self::PLACES_MAX {
            self.wrong_places.push(error.to_string());
        }
        Ok(())
    }
}

/// A table: both families, the labels' names, and what came up.
#[derive(Clone, Default)]
pub struct LoadedTable {
    /// IPv4 routes.
    pub v4: Rib<u32>,
    /// IPv6 routes.
    pub v6: Rib<u128>,
    /// What the labels stand for.
    pub labels: Labels,
    /// What came up.
    pub counts: Counts,
}

/// Loads a table. The format is told by the content: MRT (TABLE_DUMP, TABLE_DUMP_V2, RFC 6396; add-path, RFC 8050), or text
/// (see [`text`](crate::text)); each plain or compressed.
///
/// # Errors
/// One line with the file and the place; see [`FeedError`].
pub fn load(path: &Path, options: &LoadOptions) -> Result<LoadedTable, FeedError> {
    load_all(&[path], options)
}

/// Loads several files as one table with one dictionary, for instance one per family. A prefix that several files
/// have is a duplicate: within text files the last wins.
///
/// # Errors
/// As [`load`].
pub fn load_all(paths: &[&Path], options: &LoadOptions) -> Result<LoadedTable, FeedError> {
    let mut builder = Builder::default();
    for path in paths {
        let reader = tidemill_archive::open(path)?;
        load_into(reader, path.display().to_string(), options, &mut builder)?;
    }
    Ok(builder.finish())
}

/// Loads a table from a reader; `file` is the name for messages. The reader's data is taken as it is, not
/// decompressed.
///
/// # Errors
/// As [`load`].
pub fn load_from(
    reader: Box<dyn BufRead + Send>,
    file: &str,
    options: &LoadOptions,
) -> Result<LoadedTable, FeedError> {
    let mut builder = Builder::default();
    load_into(reader, file.into(), options, &mut builder)?;
    Ok(builder.finish())
}

fn load_into(
    mut reader: Box<dyn BufRead + Send>,
    file: String,
    options: &LoadOptions,
    builder: &mut Builder,
) -> Result<(), FeedError> {
    match Kind::detect(&mut *reader, &file)? {
        Kind::Mrt => mrt::table::load(mrt::Records::new(reader, file), options, builder),
        Kind::Text => text::load(Lines::new(reader, file).at_most(options.most()), options, builder),
    }
}

/// The two kinds of files.
pub(crate) enum Kind {
    Mrt,
    Text,
}

impl Kind {
    /// Looks at the first bytes. An MRT header has its 16-bit type in bytes 4 and 5 and all types are small: a
    /// zero, which no text has.
    pub(crate) fn detect(reader: &mut dyn BufRead, file: &str) -> Result<Kind, FeedError> {
        let head = loop {
            match reader.fill_buf() {
                Ok(head) => break head,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        };
        let head = &head[..head.len().min(512)];
        if head.len() >= mrt::HEADER_BYTES && mrt::is_type(u16::from_be_bytes([head[4], head[5]])) {
            return Ok(Kind::Mrt);
        }
        match head.iter().position(|&b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r')) {
            None => Ok(Kind::Text),
            Some(offset) => {
                let fault = FileFault::Unknown { offset, byte: head[offset] };
                Err(FeedError::File { file: file.into(), fault })
            }
        }
    }
}

/// Which of several routes to one prefix stays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicate {
    FirstWins,
    LastWins,
}

/// Collects routes with provisional labels; the numbering is known only at the end.
#[derive(Default)]
pub(crate) struct Builder {
    v4: Routes<u32>,
    v6: Routes<u128>,
    pub(crate) labels: Labels,
    pub(crate) counts: Counts,
}

type Routes<A> = Vec<(Prefix<A>, Label, Duplicate)>;

impl std::fmt::Debug for Duplicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Duplicate::FirstWins { "first wins" } else { "last wins" })
    }
}

/// A prefix of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyPrefix {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl From<Prefix<u32>> for AnyPrefix {
    fn from(prefix: Prefix<u32>) -> Self {
        AnyPrefix::V4(prefix)
    }
}

impl From<Prefix<u128>> for AnyPrefix {
    fn from(prefix: Prefix<u128>) -> Self {
        AnyPrefix::V6(prefix)
    }
}

impl std::fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnyPrefix::V4(prefix) => prefix.fmt(f),
            AnyPrefix::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl Synthetic {
    pub(crate) fn name(self, prefix: AnyPrefix) -> NextHopName {
        NextHopName::Number(match prefix {
            AnyPrefix::V4(prefix) => self.label(prefix),
            AnyPrefix::V6(prefix) => self.label(prefix),
        })
    }
}

impl Builder {
    pub(crate) fn add(&mut self, prefix: AnyPrefix, label: Label, rule: Duplicate) {
        self.counts.routes += 1;
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push((prefix, label, rule)),
            AnyPrefix::V6(prefix) => self.v6.push((prefix, label, rule)),
        }
    }

    fn finish(mut self) -> LoadedTable {
        let map = self.labels.settle();
        let mut duplicates = 0;
        let v4 = rib(self.v4, map.as_deref(), &mut duplicates);
        let v6 = rib(self.v6, map.as_deref(), &mut duplicates);
        self.counts.duplicates += duplicates;
        LoadedTable { v4, v6, labels: self.labels, counts: self.counts }
    }
}

fn rib<A: Address>(routes: Routes<A>, map: Option<&[Label]>, duplicates: &mut u64) -> Rib<A> {
    let mut rib = Rib::new();
    for (prefix, provisional, rule) in routes {
        let label = map.map_or(provisional, |map| map[provisional.0 as usize]);
        if let Some(before) = rib.insert(prefix, label) {
            *duplicates += 1;
            if rule == Duplicate::FirstWins {
                rib.insert(prefix, before);
            }
        }
    }
    rib
}

/// Which peers had routes: for the message when the wanted one had none.
#[derive(Default)]
pub(crate) struct PeersSeen(std::collections::BTreeSet<(u32, IpAddr)>);

impl PeersSeen {
    const SHOWN: usize = 8;

    pub(crate) fn add(&mut self, asn: u32, address: IpAddr) {
        // Bounded whatever the file says; the message shows a few only.
        if self.0.len() < 4096 {
            self.0.insert((asn, address));
        }
    }

    /// The error if a peer was wanted and none of the routes was its.
    pub(crate) fn check(&self, wanted: Peer, taken: bool, file: &str) -> Result<(), FeedError> {
        if taken || wanted == Peer::Any {
            return Ok(());
        }
        let shown = self.0.iter().take(Self::SHOWN).map(|(asn, address)| format!("AS {asn} {address}"));
        let mut seen = shown.collect::<Vec<_>>().join(", ");
        match self.0.len() {
            0 => seen.push_str("none"),
            n if n > Self::SHOWN => seen.push_str(&format!(" and {} more", n - Self::SHOWN)),
            _ => {}
        }
        let fault = FileFault::NoSuchPeer { wanted: wanted.describe(), seen };
        Err(FeedError::File { file: file.into(), fault })
    }
}
