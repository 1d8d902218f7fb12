//! Updates: what a routing protocol said, in order.
//!
//! Files are MRT (BGP4MP, BGP4MP_ET) or text, plain or compressed. The text forms, by the first line's number of fields
//! (separated by tabs, commas or spaces):
//!
//! ```text
//! A 192.0.2.0/24                                  op prefix
//! 1418774413 A 192.0.2.0/24 198.51.100.1          time op prefix nexthop
//! 1356999224 W 64500 192.0.2.0/24 -               time op peerAS prefix nexthop
//! ```
//!
//! `A` announces, `W` withdraws (its next hop is not read); times are seconds since 1970, with a fraction or without. Empty lines and
//! lines that begin with `#` are left alone.

use crate::error::{FeedError, FileFault, LineFault};
use crate::labels::{Labels, NextHopName};
use crate::lines::Lines;
use crate::mrt;
use crate::table::{AnyPrefix, Counts, Kind, LabelBy, Synthetic};
use crate::text::{Separator, has_comment, parse_prefix};
use std::collections::VecDeque;
use std::io::BufRead;
use std::net::IpAddr;
use std::path::Path;
use tidemill_lpm::Label;
use tidemill_lpm::rib::Change;

/// A change in either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyChange {
    /// IPv4.
    V4(Change<u32>),
    /// IPv6.
    V6(Change<u128>),
}

/// Who said it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdatePeer {
    /// The peer's AS.
    pub asn: u32,
    /// The peer's address; text files do not have it.
    pub address: Option<IpAddr>,
}

/// One change, with who said it when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update {
    /// Nanoseconds since 1970, if the file has times.
    pub time: Option<u64>,
    /// The peer, if the file names it.
    pub peer: Option<UpdatePeer>,
    /// The change.
    pub change: FamilyChange,
}

/// How to read updates.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpdateOptions {
    /// What labels are made of; text forms have a next hop or nothing.
    pub label_by: LabelBy,
    /// Labels for announcements without a next hop.
    pub synthetic: Synthetic,
    /// Only the updates of this peer AS.
    pub peer_as: Option<u32>,
    /// Clear the host bits of a text prefix instead of refusing the file.
    pub mask_host_bits: bool,
    /// Leave out what is wrong, and count it. Of a wrong UPDATE message, the changes before the fault stay.
    pub skip_wrong: bool,
}

/// The updates of one file, in order. Ends behind the first error (unless wrong lines and records are skipped).
///
/// Each peer's view of a prefix is not kept apart: the announcement or withdrawal that came last counts, as it would for a
/// router with one peer. Choose one with [`UpdateOptions::peer_as`] where that matters.
pub struct Updates {
    source: Source,
    options: UpdateOptions,
    labels: Labels,
    counts: Counts,
    pending: VecDeque<Update>,
    scratch: Vec<mrt::update::RawChange>,
    done: bool,
}

enum Source {
    Mrt(mrt::Records),
    Text(Lines, Option<(Separator, usize)>),
}

impl Updates {
    /// Opens a file. `labels` is the dictionary of the table that the updates are for (an empty one will do); it
    /// grows with every next hop that it does not have.
    ///
    /// # Errors
    /// If the file cannot be opened or is neither MRT nor text.
    pub fn open(path: &Path, labels: Labels, options: UpdateOptions) -> Result<Self, FeedError> {
        Self::read(tidemill_archive::open(path)?, &path.display().to_string(), labels, options)
    }

    /// Reads from a reader, uncompressed data; `file` is the name for messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(
        mut reader: Box<dyn BufRead + Send>,
        file: &str,
        labels: Labels,
        options: UpdateOptions,
    ) -> Result<Self, FeedError> {
        let source = match Kind::detect(&mut *reader, file)? {
            Kind::Mrt => Source::Mrt(mrt::Records::new(reader, file.into())),
            Kind::Text => Source::Text(Lines::new(reader, file.into()), None),
        };
        let (pending, scratch) = (VecDeque::new(), Vec::new());
        Ok(Updates { source, options, labels, counts: Counts::default(), pending, scratch, done: false })
    }

    /// The dictionary so far.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The dictionary, at the end.
    pub fn into_labels(self) -> Labels {
        self.labels
    }

    /// What came up so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Reads one line or record into `pending`; false at the end.
    fn advance(&mut self) -> Result<bool, FeedError> {
        match &mut self.source {
            Source::Text(..) => self.advance_text(),
            Source::Mrt(..) => self.advance_mrt(),
        }
    }

    fn advance_text(&mut self) -> Result<bool, FeedError> {
        let Source::Text(lines, form) = &mut self.source else { return Ok(false) };
        let parsed = match lines.next()? {
            None => return Ok(false),
            Some(Err(fault)) => Err(fault),
            Some(Ok(line)) if has_comment(line, form.map(|(separator, _)| separator)) => {
                Err(LineFault::Comment)
            }
            Some(Ok(line)) => {
                let (separator, fields) = *form.get_or_insert_with(|| {
                    let separator = Separator::of(line);
                    (separator, separator.split(line).count())
                });
                parse(line, separator, fields, &self.options, &mut self.counts.masked)
                    .map_err(|fault| fault.or_comment(line))
            }
        };
        self.counts.records += 1;
        match parsed {
            Err(fault) => self.counts.tolerate(self.options.skip_wrong, lines.error(fault))?,
            Ok(line) => self.push(line.time, line.peer, line.prefix, line.name),
        }
        Ok(true)
    }

    fn advance_mrt(&mut self) -> Result<bool, FeedError> {
        let Source::Mrt(records) = &mut self.source else { return Ok(false) };
        self.scratch.clear();
        let (by, masked) = (self.options.label_by, &mut self.counts.masked);
        let event = match records.next() {
            Ok(None) => return Ok(false),
            Ok(Some(record)) => mrt::update::read(&record, by, masked, &mut self.scratch),
            Err(error) => {
                self.counts.tolerate(self.options.skip_wrong, error)?;
                return Ok(false);
            }
        };
        self.counts.records += 1;
        match event {
            Err(fault) => self.counts.tolerate(self.options.skip_wrong, records.error(fault))?,
            Ok(mrt::update::Event::Table(kind)) => {
                let fault = FileFault::TableNotUpdates(kind);
                return Err(FeedError::File { file: records.file().into(), fault });
            }
            Ok(mrt::update::Event::Other) => self.counts.other += 1,
            Ok(mrt::update::Event::Update { time, peer_as, peer, fault }) => {
                if let Some(fault) = fault {
                    self.counts.tolerate(self.options.skip_wrong, records.error(fault))?;
                }
                let peer = UpdatePeer { asn: peer_as, address: Some(peer) };
                let mut changes = std::mem::take(&mut self.scratch);
                for (prefix, name) in changes.drain(..) {
                    self.push(Some(time), Some(peer), prefix, name);
                }
                self.scratch = changes;
            }
        }
        Ok(true)
    }

    fn push(
        &mut self,
        time: Option<u64>,
        peer: Option<UpdatePeer>,
        prefix: AnyPrefix,
        name: Option<NextHopName>,
    ) {
        if self.options.peer_as.is_some_and(|wanted| peer.map(|p| p.asn) != Some(wanted)) {
            self.counts.other += 1;
            return;
        }
        self.counts.routes += 1;
        let label: Option<Label> = name.map(|name| self.labels.label(&name));
        let change = match (prefix, label) {
            (AnyPrefix::V4(prefix), None) => FamilyChange::V4(Change::Withdraw(prefix)),
            (AnyPrefix::V6(prefix), None) => FamilyChange::V6(Change::Withdraw(prefix)),
            (AnyPrefix::V4(prefix), Some(label)) => FamilyChange::V4(Change::Announce(prefix, label)),
            (AnyPrefix::V6(prefix), Some(label)) => FamilyChange::V6(Change::Announce(prefix, label)),
        };
        self.pending.push_back(Update { time, peer, change });
    }
}

impl Iterator for Updates {
    type Item = Result<Update, FeedError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Some(Ok(update));
            }
            if self.done {
                return None;
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

struct Line {
    time: Option<u64>,
    peer: Option<UpdatePeer>,
    prefix: AnyPrefix,
    name: Option<NextHopName>,
}

fn parse(
    line: &str,
    separator: Separator,
    wanted: usize,
    options: &UpdateOptions,
    masked: &mut u64,
) -> Result<Line, LineFault> {
    let mut fields = [""; 5];
    let mut found = 0;
    for field in separator.split(line) {
        if let Some(slot) = fields.get_mut(found) {
            *slot = field;
        }
        found += 1;
    }
    if !matches!(wanted, 2 | 4 | 5) {
        return Err(LineFault::UpdateFields(wanted));
    }
    if found != wanted {
        return Err(LineFault::Fields { found, wanted });
    }
    let [a, b, c, d, e] = fields;
    let (order, time, op, peer, prefix, next_hop) = match wanted {
        2 => ("A|W prefix", None, a, None, b, None),
        4 => ("time A|W prefix nexthop", Some(a), b, None, c, Some(d)),
        _ => ("time A|W peerAS prefix nexthop", Some(a), b, Some(c), d, Some(e)),
    };
    let is_op = |field: &str| matches!(field, "A" | "W");
    if !is_op(op) && fields.into_iter().any(is_op) {
        return Err(LineFault::Order(order));
    }
    let time = time.map(|text| parse_time(text).ok_or_else(|| LineFault::Time(text.into()))).transpose()?;
    let announce = match op {
        "A" => true,
        "W" => false,
        other => return Err(LineFault::Op(other.into())),
    };
    let peer = match peer {
        None => None,
        Some(text) => {
            let asn = text.parse().map_err(|_| LineFault::Asn(text.into()))?;
            Some(UpdatePeer { asn, address: None })
        }
    };
    let prefix = parse_prefix(prefix, options.mask_host_bits, masked)?;
    let name = match (announce, next_hop) {
        (false, _) => None,
        (true, None) => Some(options.synthetic.name(prefix)),
        (true, Some(text)) => Some(NextHopName::parse(text).ok_or_else(|| LineFault::NextHop(text.into()))?),
    };
    Ok(Line { time, peer, prefix, name })
}

/// Seconds since 1970, with up to nine digits of a fraction, in nanoseconds.
fn parse_time(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nanoseconds_or_none() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1418774413", Some(1_418_774_413_000_000_000)),
            ("1.5", Some(1_500_000_000)),
            ("1.000000001", Some(1_000_000_001)),
            ("1.0000000001", None),
            ("", None),
            (".5", None),
            ("1.", None),
            ("-1", None),
            ("1e9", None),
            ("18446744074", None),
        ] {
            assert_eq!(parse_time(text), nanos, "{text}");
        }
    }
}
