//! Flow specifications as workers look at them: lists by destination.

use crate::flowspec::meter::Meter;
use crate::flowspec::packet::{Load, Seen};
use crate::flowspec::redirect::Target;
use std::ops::Range;
use std::sync::Arc;
use tidemill_bgp::flowspec::{BitTest, Bits, Comparison, Component, Number, bits_hold, number_holds};
use tidemill_bgp::{Actions, FlowSpec};
use tidemill_burst::DropReason;
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family;

/// Comparisons and tests of one flow specification that is applied.
pub const MOST_OPERATORS: usize = 64;

/// What a component asks.
enum Test {
    Source(Part),
    /// Only one with an offset: the others are in the lists' places.
    Destination(Part),
    Number(Number, Box<[Comparison]>),
    Bits(Bits, Box<[BitTest]>),
}

/// A part of an address.
struct Part {
    value: u128,
    mask: u128,
}

impl Part {
    fn new(prefix: AnyPrefix, offset: u8) -> Self {
        let ones = |bits: u32| 1_u128.checked_shl(bits).map_or(u128::MAX, |above| above - 1);
        let (value, width, length) = match prefix {
            AnyPrefix::V4(prefix) => (u128::from(prefix.first()), 32, u32::from(prefix.len())),
            AnyPrefix::V6(prefix) => (prefix.first(), 128, u32::from(prefix.len())),
        };
        Part { value, mask: ones(width - u32::from(offset)) & !ones(width - length) }
    }

    fn has(&self, address: u128) -> bool {
        address & self.mask == self.value
    }
}

impl Test {
    fn new(component: &Component) -> Option<Self> {
        Some(match component {
            Component::Destination(_, 0) => return None,
            Component::Destination(prefix, offset) => Test::Destination(Part::new(*prefix, *offset)),
            Component::Source(prefix, offset) => Test::Source(Part::new(*prefix, *offset)),
            Component::Number(number, list) => Test::Number(*number, list.clone()),
            Component::Bits(bits, list) => Test::Bits(*bits, list.clone()),
        })
    }

    fn holds(&self, seen: &Seen) -> bool {
        match self {
            Test::Source(part) => part.has(seen.source),
            Test::Destination(part) => part.has(seen.destination),
            Test::Number(number, list) => {
                let holds = |number: u32| number_holds(list, number.into());
                match (number, seen.load) {
                    (Number::Protocol, _) => seen.protocol.is_some_and(|protocol| holds(protocol.into())),
                    (Number::Length, _) => holds(seen.length),
                    (Number::Dscp, _) => holds(seen.dscp.into()),
                    (Number::FlowLabel, _) => holds(seen.flow_label),
                    (Number::Port, Load::Ports(source, destination, _)) => {
                        holds(source.into()) || holds(destination.into())
                    }
                    (Number::SourcePort, Load::Ports(source, ..)) => holds(source.into()),
                    (Number::DestinationPort, Load::Ports(_, destination, _)) => holds(destination.into()),
                    (Number::IcmpType, Load::Icmp(kind, _)) => holds(kind.into()),
                    (Number::IcmpCode, Load::Icmp(_, code)) => holds(code.into()),
                    // What a packet does not have is true of none.
                    _ => false,
                }
            }
            Test::Bits(Bits::TcpFlags, list) => match seen.load {
                Load::Ports(_, _, Some(flags)) => bits_hold(list, flags.into()),
                _ => false,
            },
            // What cannot be read is not known to be no fragment.
            Test::Bits(Bits::Fragment, list) => {
                seen.protocol.is_some() && bits_hold(list, seen.fragment.into())
            }
        }
    }
}

/// A flow specification that is applied.
pub(crate) struct Rule {
    destination: Option<AnyPrefix>,
    tests: Box<[Test]>,
    mark: Option<u8>,
    /// The number of where it redirects to.
    redirect: Option<u32>,
    goes_on: bool,
    meter: Arc<Meter>,
}

/// Whether it can be applied, wherever it redirects to.
///
/// # Errors
/// Why not.
pub(crate) fn check(spec: &FlowSpec, actions: &Actions) -> Result<(), String> {
    if [actions.bytes, actions.packets].into_iter().flatten().any(|rate| rate.per_s().is_nan()) {
        return Err("its rate is no number".into());
    }
    match spec.operators() {
        0..=MOST_OPERATORS => Ok(()),
        count => Err(format!("it has {count} comparisons: {MOST_OPERATORS} at most")),
    }
}

impl Rule {
    pub(crate) fn new(spec: &FlowSpec, actions: &Actions, redirect: Option<u32>, meter: Arc<Meter>) -> Self {
        Rule {
            destination: spec.destination(),
            tests: spec.components().filter_map(Test::new).collect(),
            mark: actions.mark,
            redirect,
            goes_on: actions.goes_on,
            meter,
        }
    }
}

/// The list of one destination.
struct List {
    rules: Range<usize>,
    /// That of the next prefix around it.
    around: Option<usize>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on, perhaps with another DSCP.
    Passes(Option<u8>),
    /// The same, by the way of this number.
    Redirected(Option<u8>, u32),
    /// It is dropped.
    Drops(DropReason),
}

/// One family's.
#[derive(Default)]
pub(crate) struct Table {
    rules: Vec<Rule>,
    /// The first is that of those without a destination, and around all others.
    lists: Vec<List>,
    /// From which address on which list counts, in order; from 0 on the first.
    starts: Vec<(u128, usize)>,
}

impl Table {
    /// Of rules in the order in which they apply.
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        let mut table =
            Table { rules, lists: vec![List { rules: 0..0, around: None }], starts: vec![(0, 0)] };
        let mut prefixes: Vec<(u128, u128, usize)> = Vec::new();
        let mut from = 0;
        for part in table.rules.chunk_by(|one, other| one.destination == other.destination) {
            let list = List { rules: from..from + part.len(), around: Some(0) };
            from += part.len();
            match part.first().and_then(|rule| rule.destination) {
                None => table.lists[0].rules = list.rules,
                Some(prefix) => {
                    let (first, last) = match prefix {
                        AnyPrefix::V4(prefix) => (u128::from(prefix.first()), u128::from(prefix.last())),
                        AnyPrefix::V6(prefix) => (prefix.first(), prefix.last()),
                    };
                    prefixes.push((first, last, table.lists.len()));
                    table.lists.push(list);
                }
            }
        }
        // Those around before those inside.
        prefixes.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let mut open: Vec<(u128, usize)> = Vec::new();
        for (first, last, list) in prefixes {
            while let Some((end, _)) = open.pop_if(|(end, _)| *end < first) {
                table.begin(end.checked_add(1), open.last().map_or(0, |(_, list)| *list));
            }
            table.lists[list].around = Some(open.last().map_or(0, |(_, list)| *list));
            table.begin(Some(first), list);
            open.push((last, list));
        }
        while let Some((end, _)) = open.pop() {
            table.begin(end.checked_add(1), open.last().map_or(0, |(_, list)| *list));
        }
        table
    }

    /// From this address on this list counts.
    fn begin(&mut self, from: Option<u128>, list: usize) {
        let Some(from) = from else { return };
        match self.starts.last_mut() {
            Some(last) if last.0 == from => last.1 = list,
            _ => self.starts.push((from, list)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What becomes of a packet.
    pub(crate) fn judge(&self, now_ns: u64, worker: usize, seen: &Seen) -> Fate {
        let (mut mark, mut redirect) = (None, None);
        let passes = |mark, redirect: Option<u32>| match redirect {
            None => Fate::Passes(mark),
            Some(number) => Fate::Redirected(mark, number),
        };
        let place = self.starts.partition_point(|(from, _)| *from <= seen.destination);
        let mut next = self.starts.get(place.wrapping_sub(1)).map(|(_, list)| *list);
        while let Some(list) = next.and_then(|list| self.lists.get(list)) {
            for rule in self.rules.get(list.rules.clone()).unwrap_or_default() {
                if !rule.tests.iter().all(|test| test.holds(seen)) {
                    continue;
                }
                if let Some(reason) = rule.meter.take(now_ns, worker, seen.length) {
                    return Fate::Drops(reason);
                }
                (mark, redirect) = (mark.or(rule.mark), redirect.or(rule.redirect));
                if !rule.goes_on {
                    return passes(mark, redirect);
                }
            }
            next = list.around;
        }
        passes(mark, redirect)
    }
}

/// Both families'.
#[derive(Default)]
pub(crate) struct Rules {
    tables: [Table; 2],
    /// Where redirects lead, by number.
    targets: Vec<(u32, Target)>,
    /// By interface: whether its packets meet none of them.
    spared: Vec<bool>,
}

impl Rules {
    pub(crate) fn new(
        v4: Vec<Rule>,
        v6: Vec<Rule>,
        mut targets: Vec<(u32, Target)>,
        spared: &[bool],
    ) -> Self {
        targets.sort_by_key(|(number, _)| *number);
        Rules { tables: [Table::new(v4), Table::new(v6)], targets, spared: spared.to_vec() }
    }

    pub(crate) fn of(&self, family: Family) -> &Table {
        &self.tables[usize::from(family == Family::V6)]
    }

    /// Where the redirect of this number leads, as long as a flow specification has it.
    pub(crate) fn target(&self, number: u32) -> Option<Target> {
        let at = self.targets.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.targets.get(at).map(|(_, target)| *target)
    }

    /// Whether what comes in by this interface meets none of them.
    pub(crate) fn spares(&self, interface: u16) -> bool {
        self.spared.get(usize::from(interface)).copied().unwrap_or(false)
    }
}
