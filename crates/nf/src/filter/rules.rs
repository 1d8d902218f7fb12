//! Rules as workers ask them: a table of matches for each of a packet's ways, and what each match means. pf's order of rules becomes priorities:
//!
//! ```text
//! the first `quick` rule that matches decides; where none does, the last of the others; where none of those does, the packet passes without state
//!
//! quick rules      2 N, 2 N - 1, ...     falling with their place in the file
//! others           0, 1, ...             rising with it, all below those
//! ```
//!
//! Nothing is lost by that: a `quick` rule that matches wins over every other rule that matches, whether that is before it (it comes later in
//! pf's walk) or behind it (pf's walk ends at it).
//!
//! What rules ask for and packets do not carry, the key has where routed packets have nothing: the sets of the source among the bits of the source MAC
//! address, those of the destination among those of the destination's, and in the metadata on which way it is judged, and whether it may begin a connection.
//!
//! The way in and the way out have each a table of their own, in which no match asks for the way: rules with `in` or `out` are half as many masks to try for a packet,
//! and those without a direction share the masks of those that have one, for the memory of being in both. Rules never change in place, so masks without a rule for a packet's
//! addresses are passed over (`TupleSpace::settled`): 64 KiB for each way. For the same reason packets are judged by a cross-product of addresses where the matches suit one
//! (`Crossed::choose`: 64 matches and more): up to 64 MiB for each way.

use crate::filter::net::Net;
use crate::filter::packet::Read;
use crate::filter::sets::{AddressSet, Sets};
use crate::filter::settings::Times;
use crate::filter::tcp::opens;
use crate::filter::text::{
    Action, Direction, Ends, Flags, Host, Network, Rule, RuleError, Ruleset, protocol_name, short,
};
use std::borrow::Borrow;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_classify::key::{IPV4, IPV6};
use tidemill_classify::{Crossed, Field, Grouping, Key, Match, Rank, RuleId, RuleSet, Side, TupleSpace};
use tidemill_lookup::qsbr::Domain;

/// Matches that one file may become.
pub const MOST_MATCHES: usize = 1 << 18;

/// Of the metadata: judged on the way out.
const OUT: u64 = 1;
/// Of the metadata: no TCP segment, or one that opens a connection.
const OPENS: u64 = 2;

/// What a rule counts; one worker writes.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    packets: AtomicU64,
    bytes: AtomicU64,
    states: AtomicU64,
}

impl Cell {
    fn add(word: &AtomicU64, more: u64) {
        // Nobody else writes: no read-modify-write is needed.
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// So many times a packet of so many bytes.
    #[inline]
    fn packet(&self, times: u64, bytes: u32) {
        Cell::add(&self.packets, times);
        Cell::add(&self.bytes, times * u64::from(bytes));
    }

    pub(crate) fn state(&self) {
        Cell::add(&self.states, 1);
    }
}

/// What a rule has counted since its file was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets that it has decided, those of connections that it has let in included.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Connections that it has let in.
    pub states: u64,
}

/// What the rules say of a packet on one of its ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The rule's number, from 0; none: no rule matches.
    pub rule: Option<u32>,
    /// What becomes of it.
    pub action: Action,
    /// Whether its connection is remembered.
    pub keep_state: bool,
    /// Whether it is logged.
    pub log: bool,
}

impl Decision {
    /// No rule matches.
    pub const NONE: Decision = Decision { rule: None, action: Action::Pass, keep_state: false, log: false };
}

/// What rules ask of packets on one of their ways.
struct Way {
    space: TupleSpace,
    /// The same matches, if they suit that.
    crossed: Option<Crossed>,
    /// Of each match, by its number there, the rule.
    of_match: Vec<u32>,
}

impl Way {
    /// Of all matches, and the rule of each, those that a packet can meet on this way: there they need not ask for the way.
    fn of(out: bool, matches: &RuleSet, of_match: &[u32]) -> Self {
        let here = u128::from(if out { OUT } else { 0 });
        let (mut list, mut rules) = (Vec::new(), Vec::new());
        for ((_, rule), number) in matches.iter().zip(of_match) {
            let value = rule.matches.value().get(Field::Metadata);
            let mask = rule.matches.mask().get(Field::Metadata);
            if (value ^ here) & mask & u128::from(OUT) != 0 {
                continue;
            }
            let matches = rule.matches.masked(Field::Metadata, value, mask & !u128::from(OUT));
            list.push(tidemill_classify::Rule { matches, priority: rule.priority });
            rules.push(*number);
        }
        let set = RuleSet::from_list(&list);
        let space = TupleSpace::build(&set, Grouping::for_set(&set)).settled();
        Way { crossed: Crossed::choose(&space), space, of_match: rules }
    }
}

/// What does not depend on sets.
struct Compiled {
    list: Vec<Rule>,
    /// In, out.
    ways: [Way; 2],
    /// Of each match, by its number, the rule.
    of_match: Vec<u32>,
    matches: RuleSet,
    /// By an interface's number: nothing is judged on it.
    skip: Vec<bool>,
    /// By an interface's number: its VRF.
    vrfs: Vec<u16>,
    /// Of each worker, by the rule's number.
    cells: Vec<Box<[Cell]>>,
    names: Vec<String>,
    /// Sets that rules made of negated addresses; they follow those with names.
    unnamed: Vec<AddressSet>,
}

/// See the [module](self). Published: workers see one version or another, rules and sets together.
#[derive(Clone)]
pub struct Rules {
    compiled: Arc<Compiled>,
    sets: Sets,
    version: u32,
    /// Timeouts.
    pub times: Times,
    /// Whether connections of before are held to new rules.
    pub recheck: bool,
    /// Lines that each worker may log in a second.
    pub log_per_s: u32,
}

/// What rules are made for.
pub struct Frame<'a> {
    /// Numbers of interfaces by their names.
    pub interface: &'a dyn Fn(&str) -> Option<u16>,
    /// By an interface's number: its VRF; 0 of those that are not there.
    pub vrfs: &'a [u16],
    /// Workers.
    pub workers: usize,
    /// Whose readers see them.
    pub domain: &'a Domain,
    /// Timeouts.
    pub times: Times,
    /// Whether connections of before are held to new rules.
    pub recheck: bool,
    /// Lines that each worker may log in a second.
    pub log_per_s: u32,
}

impl Rules {
    /// Makes what a file says; `sets` are its sets' addresses, in order. `version` is another one than that of any rules before.
    ///
    /// # Errors
    /// What cannot be, with its place.
    pub fn new(
        file: &Ruleset,
        sets: &[impl Borrow<AddressSet>],
        frame: &Frame<'_>,
        version: u32,
    ) -> Result<Self, RuleError> {
        let mut expand = Expand {
            matches: RuleSet::new(MOST_MATCHES),
            of_match: Vec::new(),
            unnamed: Vec::new(),
            first: file.sets.len(),
        };
        let count = file.rules.len() as u32;
        for (rule, number) in file.rules.iter().zip(0_u32..) {
            let priority = if rule.quick { 2 * count - number } else { number };
            expand.rule(rule, number, priority, frame)?;
        }
        let mut skip = Vec::new();
        for (name, place) in &file.skip {
            let number = (frame.interface)(name).ok_or_else(|| place.error(no_interface(name)))?;
            skip.resize(skip.len().max(usize::from(number) + 1), false);
            skip[usize::from(number)] = true;
        }
        let ways = [false, true].map(|out| Way::of(out, &expand.matches, &expand.of_match));
        let cells = || file.rules.iter().map(|_| Cell::default()).collect();
        let compiled = Compiled {
            list: file.rules.clone(),
            ways,
            of_match: expand.of_match,
            matches: expand.matches,
            skip,
            vrfs: frame.vrfs.to_vec(),
            cells: (0..frame.workers).map(|_| cells()).collect(),
            names: file.sets.iter().map(|set| set.name.clone()).collect(),
            unnamed: expand.unnamed,
        };
        let rules = Rules {
            compiled: Arc::new(compiled),
            sets: Sets::default(),
            version,
            times: frame.times,
            recheck: frame.recheck,
            log_per_s: frame.log_per_s,
        };
        rules.with_sets(sets, frame.domain, version)
    }

    /// The same rules with other sets, as another version. What rules have counted stays.
    ///
    /// # Errors
    /// They cannot be built.
    pub fn with_sets(
        &self,
        sets: &[impl Borrow<AddressSet>],
        domain: &Domain,
        version: u32,
    ) -> Result<Self, RuleError> {
        let named = sets.iter().map(Borrow::<AddressSet>::borrow);
        let sets = Sets::new(domain, named.chain(&self.compiled.unnamed))
            .map_err(|error| RuleError::new(1, 1, format!("the tables cannot be built: {error}")))?;
        Ok(Rules { sets, version, ..self.clone() })
    }

    /// Which ones these are.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The rules in order.
    pub fn list(&self) -> &[Rule] {
        &self.compiled.list
    }

    /// Names of the sets in order.
    pub fn set_names(&self) -> &[String] {
        &self.compiled.names
    }

    /// How many matches the rules have become.
    pub fn matches(&self) -> usize {
        self.compiled.matches.len()
    }

    /// Bytes that looking at rules may touch.
    pub fn bytes(&self) -> usize {
        let of = |way: &Way| way.space.bytes() + way.crossed.as_ref().map_or(0, Crossed::bytes);
        self.compiled.ways.iter().map(of).sum::<usize>() + self.sets.bytes()
    }

    /// What a rule has counted.
    pub fn hits(&self, rule: usize) -> Hits {
        let cells = self.compiled.cells.iter().filter_map(|cells| cells.get(rule));
        cells.fold(Hits::default(), |sum, cell| Hits {
            packets: sum.packets.wrapping_add(cell.packets.load(Ordering::Relaxed)),
            bytes: sum.bytes.wrapping_add(cell.bytes.load(Ordering::Relaxed)),
            states: sum.states.wrapping_add(cell.states.load(Ordering::Relaxed)),
        })
    }

    #[inline]
    pub(crate) fn cell(&self, worker: usize, rule: Option<u32>) -> Option<&Cell> {
        self.compiled.cells.get(worker)?.get(rule? as usize)
    }

    /// Counts a packet for the rules that have decided it, one for each of its ways: twice for one that has decided both.
    #[inline]
    pub(crate) fn count(&self, worker: usize, decided: [Option<u32>; 2], bytes: u32) {
        let [one, other] = decided;
        let both = one == other;
        if let Some(cell) = self.cell(worker, one) {
            cell.packet(if both { 2 } else { 1 }, bytes);
        }
        if let Some(cell) = self.cell(worker, other).filter(|_| !both) {
            cell.packet(1, bytes);
        }
    }

    /// Whether nothing is judged on an interface.
    #[inline]
    pub fn skips(&self, interface: u16) -> bool {
        self.compiled.skip.get(usize::from(interface)).copied().unwrap_or(false)
    }

    /// The VRF of an interface.
    #[inline]
    pub(crate) fn vrf(&self, interface: u16) -> u16 {
        self.compiled.vrfs.get(usize::from(interface)).copied().unwrap_or(0)
    }

    /// By an interface's number: its VRF.
    pub(crate) fn vrfs(&self) -> &[u16] {
        &self.compiled.vrfs
    }

    /// The first matches of many keys of one way; `out` is as long as `keys`.
    pub(crate) fn ask(&self, outward: bool, keys: &[Key], out: &mut [Rank]) {
        let way = &self.compiled.ways[usize::from(outward)];
        match &way.crossed {
            Some(crossed) => crossed.lookup_batch(&way.space, keys, out),
            None => way.space.lookup_batch(keys, out),
        }
    }

    /// Whether the matches of one way are there as a cross-product.
    #[cfg(test)]
    pub(crate) fn is_crossed(&self, out: bool) -> bool {
        self.compiled.ways[usize::from(out)].crossed.is_some()
    }

    /// The matches of one way.
    pub(crate) fn space(&self, out: bool) -> &TupleSpace {
        &self.compiled.ways[usize::from(out)].space
    }

    pub(crate) fn sets(&self) -> &Sets {
        &self.sets
    }

    /// What the rule of a rank says that was found for this way.
    #[inline]
    pub(crate) fn decision(&self, out: bool, rank: Rank) -> Decision {
        let of_match = &self.compiled.ways[usize::from(out)].of_match;
        let number = rank.rule().and_then(|id| of_match.get(id.0 as usize));
        let Some(&number) = number else { return Decision::NONE };
        let Some(rule) = self.compiled.list.get(number as usize) else { return Decision::NONE };
        Decision { rule: Some(number), action: rule.action, keep_state: rule.keep_state, log: rule.log }
    }

    /// What the rules say of a key on one way: of the same way as the key is.
    pub(crate) fn decide(&self, out: bool, key: &Key) -> Decision {
        self.decision(out, self.space(out).lookup(key))
    }

    /// The match of each rule, for tests: every packet's decision follows from walking them, on either way.
    pub fn walk(&self) -> impl Iterator<Item = (u32, Match)> + '_ {
        let number = |id: RuleId| self.compiled.of_match.get(id.0 as usize).copied().unwrap_or(u32::MAX);
        self.compiled.matches.iter().map(move |(id, rule)| (number(id), rule.matches))
    }
}

/// What rules look at: everything but interface, way, and sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<A> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) ports: (u16, u16),
    pub(crate) protocol: u8,
    pub(crate) flags: u8,
}

impl<A: Copy> Asked<A> {
    pub(crate) fn of<const W: usize>(read: &Read<A, W>) -> Self {
        Asked {
            source: read.source,
            destination: read.destination,
            ports: read.ports,
            protocol: read.protocol,
            flags: read.tcp_flags(),
        }
    }

    /// The key on one way. `sets`: of the source and of the destination.
    pub(crate) fn key<const W: usize>(&self, out: bool, interface: u16, sets: (u64, u64)) -> Key
    where
        A: Net<W>,
    {
        const TCP: u8 = 6;
        let mut key = A::rule_key(self.source, self.destination, self.ports, self.protocol);
        let may_open = self.protocol != TCP || opens(self.flags);
        let notes = if out { OUT } else { 0 } | if may_open { OPENS } else { 0 };
        // As `Field` has them: in-port and TCP flags; sets of the destination; notes, sets of the source.
        key.0[5] = u64::from(interface) << 48 | u64::from(self.flags) << 16;
        key.0[6] = sets.1;
        key.0[7] = notes << 48 | sets.0;
        key
    }
}

fn no_interface(name: &str) -> String {
    format!("there is no interface {:?}", short(name))
}

struct Expand {
    matches: RuleSet,
    of_match: Vec<u32>,
    unnamed: Vec<AddressSet>,
    /// The number of the first set without a name.
    first: usize,
}

/// A part of a match that a list has one of.
type Parts = Vec<Match>;

impl Expand {
    fn rule(&mut self, rule: &Rule, number: u32, priority: u32, frame: &Frame<'_>) -> Result<(), RuleError> {
        let wrong = |what: String| rule.place.error(what);
        let mut base = rule.matches.unwrap_or_default();
        let mut notes = (0_u64, 0_u64);
        if let Some(direction) = rule.direction {
            notes = (if direction == Direction::Out { OUT } else { 0 }, OUT);
        }
        match rule.flags {
            Flags::Default if rule.keep_state => notes = (notes.0 | OPENS, notes.1 | OPENS),
            Flags::Default | Flags::Any => {}
            Flags::Masked { set, of } => base = base.masked(Field::TcpFlags, set.into(), of.into()),
        }
        base = base.masked(Field::Metadata, notes.0.into(), notes.1.into());
        let mut family = rule.is_v6;
        for protocol in &rule.protocols {
            let of = match protocol {
                1 => Some(false),
                58 => Some(true),
                _ => None,
            };
            if of.is_some() && family.is_some() && of != family {
                return Err(wrong(format!("`{}` is of the other address family", protocol_name(*protocol))));
            }
            if rule.protocols.len() == 1 {
                family = family.or(of);
            }
        }
        let with_ports = |protocol: &u8| matches!(protocol, 6 | 17);
        let ports = !rule.from.ports.is_empty() || !rule.to.ports.is_empty();
        if ports && (rule.protocols.is_empty() || !rule.protocols.iter().all(with_ports)) {
            return Err(wrong(
                "ports are of TCP and UDP: say `proto tcp`, `proto udp` or `proto { tcp udp }`".into(),
            ));
        }
        let mut heads: Parts = Vec::new();
        let interfaces: Vec<Option<u16>> = match rule.interfaces.is_empty() {
            true => vec![None],
            false => {
                let number = |(name, place): &(String, crate::filter::text::Place)| {
                    (frame.interface)(name).map(Some).ok_or_else(|| place.error(no_interface(name)))
                };
                rule.interfaces.iter().map(number).collect::<Result<_, _>>()?
            }
        };
        let protocols: Vec<Option<u8>> = match rule.protocols.is_empty() {
            true => vec![None],
            false => rule.protocols.iter().copied().map(Some).collect(),
        };
        let icmp: Vec<Option<(u8, Option<u8>)>> = match rule.icmp.is_empty() {
            true => vec![None],
            false => rule.icmp.iter().copied().map(Some).collect(),
        };
        for interface in &interfaces {
            for protocol in &protocols {
                for icmp in &icmp {
                    let mut head = base;
                    if let Some(interface) = interface {
                        head = head.exact(Field::InPort, (*interface).into());
                    }
                    if let Some(protocol) = protocol {
                        head = head.exact(Field::Protocol, (*protocol).into());
                        head = match protocol {
                            1 => head.exact(Field::EtherType, IPV4.into()),
                            58 => head.exact(Field::EtherType, IPV6.into()),
                            _ => head,
                        };
                    }
                    if let Some((kind, code)) = icmp {
                        head = head.exact(Field::SourcePort, (*kind).into());
                        if let Some(code) = code {
                            head = head.exact(Field::DestinationPort, (*code).into());
                        }
                    }
                    heads.push(head);
                }
            }
        }
        let mut any = false;
        for (from, from_v6) in self.hosts(&rule.from, family, Side::Source) {
            for (to, to_v6) in self.hosts(&rule.to, family.or(from_v6), Side::Destination) {
                let of = family.or(from_v6).or(to_v6);
                if [from_v6, to_v6].iter().flatten().any(|v6| Some(*v6) != of) {
                    continue;
                }
                any = true;
                for head in &heads {
                    let mut one = from(*head);
                    one = to(one);
                    if let Some(is_v6) = of {
                        let kind = if is_v6 { IPV6 } else { IPV4 };
                        let other = one.mask().get(Field::EtherType) != 0
                            && one.value().get(Field::EtherType) != u128::from(kind);
                        if other {
                            continue;
                        }
                        one = one.exact(Field::EtherType, kind.into());
                    }
                    self.ports(one, rule, number, priority)?;
                }
            }
        }
        match any {
            true => Ok(()),
            false => {
                Err(wrong("no packet has addresses of both of these families: give addresses of one".into()))
            }
        }
    }

    /// What each host of a side adds to a match, and of which family it is.
    #[allow(clippy::type_complexity)] // it is used in one place
    fn hosts(
        &mut self,
        ends: &Ends,
        family: Option<bool>,
        side: Side,
    ) -> Vec<(Box<dyn Fn(Match) -> Match>, Option<bool>)> {
        if ends.hosts.is_empty() {
            return vec![(Box::new(|one| one), None)];
        }
        let field = match side {
            Side::Source => Field::MacSource,
            Side::Destination => Field::MacDestination,
        };
        let of = |host: &Host| match host {
            Host::In(network) | Host::NotIn(network) => Some(network.is_v6()),
            Host::Set(..) => None,
        };
        let mut list: Vec<(Box<dyn Fn(Match) -> Match>, Option<bool>)> = Vec::new();
        for host in &ends.hosts {
            let is_v6 = of(host);
            if family.is_some() && is_v6.is_some() && is_v6 != family {
                continue;
            }
            let add: Box<dyn Fn(Match) -> Match> = match host {
                Host::In(Network::V4(prefix)) => {
                    let (bits, length) = (prefix.first(), prefix.len());
                    let field = if side == Side::Source { Field::Ipv4Source } else { Field::Ipv4Destination };
                    Box::new(move |one| one.prefix(field, bits.into(), length.into()))
                }
                Host::In(Network::V6(prefix)) => {
                    let (bits, length) = (prefix.first(), prefix.len());
                    let field = if side == Side::Source { Field::Ipv6Source } else { Field::Ipv6Destination };
                    Box::new(move |one| one.prefix(field, bits, length.into()))
                }
                Host::NotIn(network) => {
                    // The same address may be negated often.
                    let set = AddressSet::of(&[*network]);
                    let at = self.unnamed.iter().position(|known| *known == set).unwrap_or_else(|| {
                        self.unnamed.push(set);
                        self.unnamed.len() - 1
                    });
                    let bit = 1_u128 << (self.first + at);
                    Box::new(move |one| one.masked(field, 0, bit))
                }
                Host::Set(number, not) => {
                    let (bit, not) = (1_u128 << number, *not);
                    Box::new(move |one| one.masked(field, if not { 0 } else { bit }, bit))
                }
            };
            list.push((add, is_v6));
        }
        list
    }

    fn ports(&mut self, one: Match, rule: &Rule, number: u32, priority: u32) -> Result<(), RuleError> {
        let all = [0..=u16::MAX];
        let ranges = |ends: &Ends| -> Vec<RangeInclusive<u16>> {
            match ends.ports.is_empty() {
                true => all.to_vec(),
                false => ends.ports.clone(),
            }
        };
        let icmp = !rule.icmp.is_empty();
        for from in ranges(&rule.from) {
            for to in ranges(&rule.to) {
                let mut one = one;
                if !icmp && rule.matches.is_none() {
                    one = one.port_range(Side::Source, from.clone()).port_range(Side::Destination, to);
                }
                let matches = tidemill_classify::Rule { matches: one, priority: priority.into() };
                self.matches.insert(matches).map_err(|_| {
                    rule.place.error(format!(
                        "the rules' lists make more than {MOST_MATCHES} matches: put addresses into tables"
                    ))
                })?;
                self.of_match.push(number);
            }
        }
        Ok(())
    }
}
