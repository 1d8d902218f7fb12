//! `bench nf --case new --acl FILE --trace FILE`: the rules are an access list of ClassBench's, and the packets its trace's headers of TCP (as SYNs) and UDP, in their order, over and over.
//!
//! A header comes again when its connection has gone, so that each packet begins one: as many wait for an answer as half of the headers that differ, TCP's and UDP's each for
//! themselves. So the tables are as small as the trace is: what is measured are the rules.

use super::frames::{Ends, datagram, segment};
use crate::bench::ends::FRAME;
use crate::classify::read;
use crate::tables::check_input;
use crate::usage;
use anyhow::{Context as _, Result};
use std::collections::HashSet;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use tidemill_classify::Field;
use tidemill_classify::key::IPV4;
use tidemill_classify::text::{Header, read_headers, read_rules};
use tidemill_wire::Protocol;
use tidemill_wire::tcp::Flags;

/// Headers that differ, at least: more than any burst has.
const LEAST: usize = 1024;

/// An access list, and packets for it.
pub(super) struct Acl {
    /// The list's, of its file.
    pub(super) name: String,
    /// As it is written.
    pub(super) text: String,
    /// Its rules.
    pub(super) rules: u32,
    /// No two of one connection.
    pub(super) frames: Arc<[[u8; FRAME]]>,
    /// How many of them are TCP, and how many UDP.
    pub(super) count: [usize; 2],
}

/// Whether packets from and to there are sent on, by a router that is not there itself (198.18.0.0/15).
fn is_far(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_near = address.is_link_local() || (first, second & 0xfe) == (198, 18);
    (1..224).contains(&first) && first != 127 && !is_near
}

/// Who sends a header's packet and to whom, and whether it is TCP; none of what has no ports, or goes nowhere.
fn ends_of(header: &Header) -> Option<(Ends, bool)> {
    let field = |field| header.key.get(field);
    let end = |address, port| (Ipv4Addr::from(field(address) as u32), field(port) as u16);
    let from = end(Field::Ipv4Source, Field::SourcePort);
    let to = end(Field::Ipv4Destination, Field::DestinationPort);
    let protocol = Protocol(field(Field::Protocol) as u8);
    let is_v4 = field(Field::EtherType) == u128::from(IPV4);
    let goes = from.0 != to.0 && [from, to].iter().all(|(address, port)| is_far(*address) && *port > 0);
    let is_tcp = protocol == Protocol::TCP;
    (is_v4 && goes && (is_tcp || protocol == Protocol::UDP)).then_some(([from, to], is_tcp))
}

/// Bytes of a list at most.
const MOST_LIST_BYTES: u64 = 256 << 20;

/// The list's text, unpacked: a small file may unpack to any length.
fn unpacked(list: &Path) -> Result<String> {
    check_input(list)?;
    let (name, mut text) = (list.display(), String::new());
    let reader = tidemill_archive::open(list).map_err(usage)?;
    reader.take(MOST_LIST_BYTES + 1).read_to_string(&mut text).with_context(|| name.to_string())?;
    if text.len() as u64 > MOST_LIST_BYTES {
        return Err(usage(format!("{name}: longer than {MOST_LIST_BYTES} bytes: give a shorter list")));
    }
    Ok(text)
}

impl Acl {
    pub(super) fn read(list: &Path, trace: &Path) -> Result<Self> {
        // Once: it may be a pipe.
        let text = unpacked(list)?;
        let rules = read_rules(text.as_bytes())
            .map_err(|error| usage(format!("{}: {error}", list.display())))?
            .len() as u32;
        let (mut seen, mut frames, mut count) = (HashSet::new(), Vec::new(), [0; 2]);
        for (ends, is_tcp) in read(trace, read_headers)?.iter().filter_map(ends_of) {
            // Both directions are one connection.
            let [from, to] = ends;
            if seen.insert((from.min(to), from.max(to), is_tcp)) {
                frames.push(if is_tcp { segment(ends, Flags::SYN, 0)? } else { datagram(ends)? });
                count[usize::from(!is_tcp)] += 1;
            }
        }
        // One alone would never have to give way.
        if frames.len() < LEAST || count.contains(&1) {
            return Err(usage(format!(
                "{}: {} headers of TCP and {} of UDP over IPv4 that differ: give a trace with {LEAST} or more, and not with one of either",
                trace.display(),
                count[0],
                count[1]
            )));
        }
        let name = list.file_name().unwrap_or_default().to_string_lossy();
        let name = name.split('.').next().unwrap_or_default().to_owned();
        Ok(Acl { name, text, rules, frames: frames.into(), count })
    }

    /// How many of TCP, and of UDP, may wait for an answer.
    pub(super) fn waiting(&self) -> [usize; 2] {
        self.count.map(|count| (count / 2).max(1))
    }
}
