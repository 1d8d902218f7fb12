//! The routes of one prefix in one table, in the kernel's order: by metric, then as they were added.

use super::Hop;
use super::decode::{PathKind, RawPath};
use super::paths::Paths;

/// One route of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) metric: u32,
    /// Number of the path in the interner.
    pub(super) path: u32,
    /// The last dump that saw it.
    pub(super) seen: u32,
}

/// The routes of one prefix; nearly always one, which then needs no allocation.
#[derive(Debug, Default)]
pub(super) enum Entries {
    #[default]
    None,
    One(Entry),
    Many(Vec<Entry>),
}

impl Entries {
    pub(super) fn as_slice(&self) -> &[Entry] {
        match self {
            Entries::None => &[],
            Entries::One(entry) => std::slice::from_ref(entry),
            Entries::Many(entries) => entries,
        }
    }

    pub(super) fn store(&mut self, entries: &[Entry]) {
        match entries {
            [] => *self = Entries::None,
            [one] => *self = Entries::One(*one),
            many => *self = Entries::Many(many.to_vec()),
        }
    }
}

/// How a new route stands to those that are there; the `NLM_F_*` flags of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Seen in a dump, in the kernel's order.
    Dumped,
    /// Takes the place of another of its metric.
    Replace,
    /// Behind those of its metric.
    Append,
    /// Before those of its metric.
    Prepend,
}

/// Adds an IPv4 route (Linux `fib_table_insert`). Two of one metric may stand beside each other; the first is used.
pub(super) fn add_v4(entries: &mut Vec<Entry>, new: Entry, how: How) {
    let start = entries.partition_point(|entry| entry.metric < new.metric);
    let end = entries.partition_point(|entry| entry.metric <= new.metric);
    match how {
        How::Replace if start < end => entries[start] = new,
        How::Replace | How::Prepend => entries.insert(start, new),
        How::Append => entries.insert(end, new),
        How::Dumped => add_dumped(entries, new, start, end),
    }
}

/// What a dump says again keeps its place among what the dump said before.
fn add_dumped(entries: &mut Vec<Entry>, new: Entry, start: usize, end: usize) {
    let known = (start..end).find(|&at| entries[at].path == new.path);
    if known.is_some_and(|at| entries[at].seen == new.seen) {
        return;
    }
    if let Some(at) = known {
        entries.remove(at);
    }
    let fresh = entries[start..].iter().take_while(|e| e.metric == new.metric && e.seen == new.seen).count();
    entries.insert(start + fresh, new);
}

/// Removes an IPv4 route: the same metric and path.
pub(super) fn remove_v4(entries: &mut Vec<Entry>, metric: u32, path: Option<u32>) -> bool {
    let found = entries.iter().position(|entry| entry.metric == metric && Some(entry.path) == path);
    match found {
        Some(at) => drop(entries.remove(at)),
        // What was to go is not what we have: let the caller read everything again.
        None => return !entries.iter().any(|entry| entry.metric == metric),
    }
    true
}

/// Whether the kernel makes this IPv6 path one set with others of its metric (Linux `rt6_qualify_for_ecmp`).
pub(super) fn joins(path: &RawPath) -> bool {
    let PathKind::Hops(hops) = &path.kind else { return false };
    hops.len() > 1 || (hops.iter().any(|hop| hop.gateway.is_some()) && !path.identity.advertised)
}

/// Adds an IPv6 route (Linux `fib6_add_rt2node`). The message holds the whole set of equal paths that the route is now
/// part of.
pub(super) fn add_v6(entries: &mut Vec<Entry>, new: Entry, how: How, paths: &Paths) {
    let start = entries.partition_point(|entry| entry.metric < new.metric);
    let end = entries.partition_point(|entry| entry.metric <= new.metric);
    let joins = |number: u32| paths.raw(number).is_some_and(joins);
    let set = joins(new.path);
    let alike = (start..end).find(|&at| joins(entries[at].path) == set);
    match (how, alike) {
        (How::Replace, _) if start < end => entries[alike.unwrap_or(start)] = new,
        (_, Some(at)) if set => entries[at] = new,
        (How::Dumped, _) => add_dumped(entries, new, start, end),
        _ => match (start..end).find(|&at| entries[at].path == new.path) {
            Some(at) => entries[at] = new,
            None => entries.insert(end, new),
        },
    }
}

/// Removes an IPv6 route; of a set of equal paths only the members that the message names.
pub(super) fn remove_v6(entries: &mut Vec<Entry>, metric: u32, gone: &RawPath, paths: &mut Paths) {
    for at in 0..entries.len() {
        let entry = entries[at];
        let Some(path) = paths.raw(entry.path).filter(|_| entry.metric == metric) else { continue };
        if path == gone {
            entries.remove(at);
            return;
        }
        let (true, PathKind::Hops(hops), PathKind::Hops(leaving)) = (joins(path), &path.kind, &gone.kind)
        else {
            continue;
        };
        let leaves =
            |hop: &Hop| leaving.iter().any(|gone| (gone.index, gone.gateway) == (hop.index, hop.gateway));
        let stay: Vec<Hop> = hops.iter().copied().filter(|hop| !leaves(hop)).collect();
        if stay.len() == hops.len() {
            continue;
        }
        if stay.is_empty() {
            entries.remove(at);
        } else {
            let kind = PathKind::Hops(stay);
            entries[at].path = paths.number(RawPath { kind, identity: path.identity });
        }
        return;
    }
}
