//! Tables as text: one route per line.
//!
//! - `prefix`, `prefix value`, or `prefix nexthop neighbourAS originAS`; separated by tabs, commas (CSV) or spaces, as the first
//!   line has it. Every line has as many fields as the first.
//! - An address without `/` is a host route. IPv4 and IPv6 may be mixed.
//! - A first line with a field `prefix` (or `network`, `cidr`) is a header and says which column is what: `nexthop`,
//!   `next_hop`, `gateway`, `label`, `value`, `port`; `neighbour_as`, `peer_as`; `origin`, `origin_as`, `asn`. Other
//!   columns are left alone.
//! - Numbers are labels only if all of the file's are at most 65,535 ([`crate::labels`]): a file with a larger one, an AS number for
//!   instance, has names, and label 1 is the first of them.
//! - Empty lines and lines that begin with `#` are left alone, as is a byte-order mark; a comment behind a route is an error.
//! - DPDK's l3fwd rules (`R198.18.0.0/24 0`) read as they are.

use crate::error::{FeedError, FileFault, LineFault};
use crate::labels::NextHopName;
use crate::lines::Lines;
use crate::table::{AnyPrefix, Builder, Duplicate, LabelBy, LoadOptions};
use std::collections::HashMap;
use tidemill_lpm::prefix::PrefixError;
use tidemill_lpm::{Address, Label, Prefix};

/// Values of a file that differ, at most: each is kept, and may have 255 bytes.
const VALUES_MAX: usize = 1 << 23;

/// What separates fields.
#[derive(Clone, Copy)]
pub(crate) enum Separator {
    Tab,
    Comma,
    Space,
}

impl Separator {
    pub(crate) fn of(line: &str) -> Self {
        match line.bytes().find(|b| matches!(b, b'\t' | b',')) {
            Some(b'\t') => Separator::Tab,
            Some(_) => Separator::Comma,
            None => Separator::Space,
        }
    }

    pub(crate) fn split(self, line: &str) -> impl Iterator<Item = &str> {
        let mut rest = Some(line);
        std::iter::from_fn(move || {
            let text = rest?;
            let (field, behind) = match self {
                Separator::Tab => split_at(text, text.find('\t')),
                Separator::Comma => split_at(text, comma(text)),
                Separator::Space => {
                    let (field, behind) = split_at(text, text.find([' ', '\t']));
                    (field, behind.map(str::trim_start))
                }
            };
            rest = behind;
            let field = field.trim();
            Some(match self {
                Separator::Comma => {
                    field.strip_prefix('"').and_then(|f| f.strip_suffix('"')).unwrap_or(field)
                }
                Separator::Tab | Separator::Space => field,
            })
        })
    }
}

/// Whether a comment stands behind other fields. Where tabs or commas separate, it may be the text of a column that is left alone.
/// `separator`: that of the lines before.
pub(crate) fn has_comment(line: &str, separator: Option<Separator>) -> bool {
    line.contains('#')
        && matches!(separator.unwrap_or_else(|| Separator::of(line)), Separator::Space)
        && Separator::Space.split(line).any(|field| field.starts_with('#'))
}

/// The next comma that is not inside a field in quotes.
fn comma(text: &str) -> Option<usize> {
    let quoted =
        text.trim_start().strip_prefix('"').and_then(|inside| inside.find('"').map(|at| (inside, at)));
    let from = quoted.map_or(0, |(inside, at)| text.len() - inside.len() + at);
    text[from..].find(',').map(|at| from + at)
}

fn split_at(text: &str, at: Option<usize>) -> (&str, Option<&str>) {
    match at {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Which column is what.
struct Columns {
    separator: Separator,
    fields: usize,
    prefix: usize,
    value: Option<usize>,
}

impl Columns {
    /// By position, from the first line.
    fn by_position(first: &str, by: LabelBy) -> Result<Self, FileFault> {
        let separator = Separator::of(first);
        let fields = separator.split(first).count();
        let (column, wanted) = match by {
            LabelBy::NextHop => (1, "next hop"),
            LabelBy::NeighbourAs => (2, "neighbour AS"),
            // `prefix<TAB>AS` files have the origin in their only value column.
            LabelBy::OriginAs => (if fields == 2 { 1 } else { 3 }, "origin AS"),
        };
        match column < fields {
            true => Ok(Columns { separator, fields, prefix: 0, value: Some(column) }),
            false if fields == 1 => Ok(Columns { separator, fields, prefix: 0, value: None }),
            false => Err(FileFault::NoColumn { wanted, fields }),
        }
    }

    /// By name, if the first line is a header.
    fn by_header(first: &str, by: LabelBy) -> Option<Result<Self, FileFault>> {
        let separator = Separator::of(first);
        let names: Vec<String> = separator.split(first).map(str::to_ascii_lowercase).collect();
        // A route may lead to a next hop of the name "prefix".
        if parse_prefix(separator.split(first).next()?, true, &mut 0).is_ok() {
            return None;
        }
        let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
        let prefix = find(&["prefix", "network", "cidr"])?;
        let (value, wanted) = match by {
            LabelBy::NextHop => (
                find(&["nexthop", "next_hop", "next-hop", "next hop", "gateway", "label", "value", "port"]),
                "next hop",
            ),
            LabelBy::NeighbourAs => {
                (find(&["neighbour_as", "neighbor_as", "peer_as", "neighbour", "neighbor"]), "neighbour AS")
            }
            LabelBy::OriginAs => (find(&["origin", "origin_as", "asn", "as"]), "origin AS"),
        };
        let fields = names.len();
        if value.is_none() && fields > 1 {
            return Some(Err(FileFault::NoColumn { wanted, fields }));
        }
        Some(Ok(Columns { separator, fields, prefix, value }))
    }
}

pub(crate) fn load(mut lines: Lines, options: &LoadOptions, builder: &mut Builder) -> Result<(), FeedError> {
    let mut columns: Option<Columns> = None;
    let mut known: HashMap<Box<str>, Label> = HashMap::new();
    loop {
        let route = match lines.next()? {
            None => return Ok(()),
            Some(Err(fault)) => Err(fault),
            Some(Ok(line)) if has_comment(line, columns.as_ref().map(|known| known.separator)) => {
                Err(LineFault::Comment)
            }
            Some(Ok(line)) => {
                if columns.is_none() {
                    let header = Columns::by_header(line, options.label_by);
                    let is_header = header.is_some();
                    let found = header.unwrap_or_else(|| Columns::by_position(line, options.label_by));
                    match found {
                        Ok(found) => columns = Some(found),
                        Err(fault) => return Err(FeedError::File { file: lines.file().into(), fault }),
                    }
                    if is_header {
                        continue;
                    }
                }
                let Some(columns) = &columns else { continue };
                parse(line, columns, options, &mut known, builder).map_err(|fault| fault.or_comment(line))
            }
        };
        builder.counts.records += 1;
        match route {
            Ok((prefix, label)) => builder.add(prefix, label, Duplicate::LastWins),
            Err(fault) => builder.counts.tolerate(options.skip_wrong, lines.error(fault))?,
        }
    }
}

fn parse(
    line: &str,
    columns: &Columns,
    options: &LoadOptions,
    known: &mut HashMap<Box<str>, Label>,
    builder: &mut Builder,
) -> Result<(AnyPrefix, Label), LineFault> {
    let (mut prefix, mut value, mut found) = ("", "", 0);
    for (at, field) in columns.separator.split(line).enumerate() {
        if at == columns.prefix {
            prefix = field;
        } else if Some(at) == columns.value {
            value = field;
        }
        found = at + 1;
    }
    if found != columns.fields {
        return Err(LineFault::Fields { found, wanted: columns.fields });
    }
    let prefix = parse_prefix(prefix, options.mask_host_bits, &mut builder.counts.masked)?;
    if columns.value.is_none() {
        return Ok((prefix, builder.labels.label(&options.synthetic.name(prefix))));
    }
    if let Some(&label) = known.get(value) {
        return Ok((prefix, label));
    }
    let name = NextHopName::parse(value)
        .ok_or_else(|| LineFault::NextHop(value.chars().take(NextHopName::TEXT_MAX).collect()))?;
    if options.numbers && !matches!(name, NextHopName::Number(_)) {
        return Err(LineFault::Number(name));
    }
    if known.len() >= VALUES_MAX {
        return Err(LineFault::Values(VALUES_MAX));
    }
    let label = builder.labels.label(&name);
    known.insert(value.into(), label);
    Ok((prefix, label))
}

/// Reads a prefix of either family; with `mask`, host bits are cleared and counted.
pub(crate) fn parse_prefix(text: &str, mask: bool, masked: &mut u64) -> Result<AnyPrefix, LineFault> {
    // l3fwd rule files mark a route with R.
    let text = text.strip_prefix('R').unwrap_or(text);
    if text.contains(':') {
        parse_family(text, mask, masked).map(AnyPrefix::V6)
    } else {
        parse_family(text, mask, masked).map(AnyPrefix::V4)
    }
}

fn parse_family<A: Address>(text: &str, mask: bool, masked: &mut u64) -> Result<Prefix<A>, LineFault> {
    match text.parse() {
        Err(PrefixError::HostBits(_, canonical)) if mask => {
            *masked += 1;
            canonical.parse().map_err(LineFault::Prefix)
        }
        other => other.map_err(LineFault::Prefix),
    }
}
