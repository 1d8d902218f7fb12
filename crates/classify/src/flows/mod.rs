//! Rules, groups and meters as text, in the words of Open vSwitch's `ovs-ofctl`: one a line.
//!
//! ```text
//! # table 0 sorts, table 1 sends
//! table=0, priority=100, in_port=lan, tcp, nw_dst=192.0.2.0/24, tp_dst=8000-8999, actions=meter:1,goto_table:1
//! table=0, priority=10, idle_timeout=30, arp actions=normal
//! table=1, ip, actions=set_field:02:00:00:00:00:05->eth_dst,dec_ttl,group:7
//! group_id=7,type=select,bucket=weight:2,actions=output:2,bucket=weight:1,actions=mod_vlan_vid:20,output:wan
//! meter=1,pktps,band=type=drop,rate=1000,burst_size=100
//! ```
//!
//! | part | words |
//! |---|---|
//! | the rule | `table`, `priority` (32768 if none), `cookie`, `idle_timeout`, `hard_timeout` (seconds), `reset_counts` |
//! | protocols | `ip`, `ipv6`, `arp`, `icmp`, `icmp6`, `tcp`, `udp`, `sctp`, `tcp6`, `udp6`, `sctp6`, or `dl_type`, `nw_proto` |
//! | link | `in_port`, `dl_src`, `dl_dst`, `dl_vlan` (0xffff: no tag), `dl_vlan_pcp`, `vlan_tci`, `metadata` |
//! | network | `nw_src`, `nw_dst`, `ipv6_src`, `ipv6_dst`, `arp_spa`, `arp_tpa`, `arp_op`, `nw_tos`, `ip_dscp`, `nw_ecn`, `ip_frag` |
//! | transport | `tp_src`, `tp_dst` (and `tcp_`, `udp_`, `sctp_`), `tcp_flags`, `icmp_type`, `icmp_code`, `icmpv6_type`, `icmpv6_code` |
//! | actions | a port's number or name, `output`, `in_port`, `normal`, `flood`, `all`, `drop`, `set_field`, `mod_...`, `push_vlan`, `pop_vlan`, `strip_vlan`, `dec_ttl`, `write_metadata`, `group`, `meter`, `goto_table`, `resubmit(,N)` |
//!
//! A meter without `burst_size` holds what a second lets through.
//!
//! OpenFlow's longer names (`eth_src`, `ip_dst`, ...) are taken too. Masks are `/24`, `/255.0.255.0` or `/0xff00`.
//!
//! Departures: ports may be ranges (`8000-8999`); ports have names; a field without the protocol that it needs is an error
//! rather than passed over; `resubmit` leads to a later table and comes last, so it is `goto_table`. What `dump-flows` counts (`n_packets`,
//! `duration`, ...) is read and passed over, so that a dump can be loaded; so are its first line, and flags (`send_flow_rem`, `check_overlap`, ...): nobody is told of rules
//! that go, and rules may overlap. There is no controller: an action that needs one is an error.
//!
//! A rule that is added again as it is keeps what it has counted, and its time begins anew; with the flag `reset_counts` it counts from 0, as in OpenFlow 1.3. One of the same match and
//! priority that says something else is another rule, and counts from 0 (OpenFlow 1.3 copies the counters). A file that takes the place of all rules touches none of those that are as they were: there the flag is passed over.

mod actions;
mod fields;
mod groups;
mod show;
mod source;
#[cfg(test)]
mod tests;

pub use show::{show_action, show_flow, show_group, show_looked, show_match, show_meter};

use crate::key::Field;
use crate::pipeline::{Action, BookError, FlowFilter, FlowSpec, Group, Instructions, MOST_SHARED, MeterRate};
use crate::rule::{MOST_RULES, Match, Side};
use crate::text::{TextError, lines};
use source::{Source, Word};
use std::io::BufRead;

/// The priority of a rule that says none, as OpenFlow has it.
pub const DEFAULT_PRIORITY: u16 = 32_768;

/// The greatest number of a port: above are OpenFlow's reserved ones.
pub const LAST_PORT: u16 = 0xfeff;

/// The names of a switch's ports: the first is port 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortNames(pub Vec<String>);

impl PortNames {
    /// The number of a name.
    pub fn number(&self, name: &str) -> Option<u16> {
        let at = self.0.iter().position(|known| known == name)?;
        u16::try_from(at + 1).ok().filter(|&number| number <= LAST_PORT)
    }

    /// The name of a number.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.0.get(usize::from(number).checked_sub(1)?).map(String::as_str)
    }
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A rule.
    Flow(Box<FlowSpec>),
    /// A group with its number.
    Group(u32, Group),
    /// A meter with its number.
    Meter(u32, MeterRate),
}

/// Where a line stands, and its parts in it: for what is found wrong with them later. And what it asks for that is not the rule's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// Its first word, by bytes of the line.
    start: u16,
    /// The rule's table, or the first word.
    table: u16,
    /// Each action, and behind them the one that leads to another table.
    actions: Box<[u16]>,
    /// `reset_counts`: where the rule is there as it says, it counts from 0.
    pub(crate) reset_counts: bool,
}

impl Place {
    /// The column, from 1, of what an error says of a line's item.
    pub fn column(&self, item: &Item, error: &BookError) -> usize {
        let of = |wanted: &dyn Fn(&Action) -> bool| match item {
            Item::Flow(spec) => spec.instructions.actions.iter().position(wanted),
            Item::Group(..) | Item::Meter(..) => None,
        };
        let at =
            match (item, error) {
                (Item::Flow(spec), BookError::NoTable(table, _)) if *table == spec.table => Some(self.table),
                (Item::Flow(_), BookError::NoTable(..) | BookError::Backwards(..)) => {
                    self.actions.last().copied()
                }
                (_, BookError::NoGroup(number)) => of(&|action| *action == Action::Group(*number))
                    .and_then(|at| self.actions.get(at).copied()),
                (_, BookError::NoMeter(number)) => of(&|action| *action == Action::Meter(*number))
                    .and_then(|at| self.actions.get(at).copied()),
                _ => None,
            };
        usize::from(at.unwrap_or(self.start)) + 1
    }
}

/// The longest line, bytes: places in it are of 16 bits. A group of some hundred buckets fits.
const LONGEST_LINE: usize = u16::MAX as usize;

/// What `ovs-ofctl dump-flows` begins with, by the version of OpenFlow.
const DUMPS: [&str; 2] = ["NXST_FLOW reply", "OFPST_FLOW reply"];

/// A byte of a line, which has no more than [`LONGEST_LINE`].
fn byte(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Reads a file; each item with its place.
///
/// # Errors
/// The first thing that is wrong, with line and column.
pub fn read_flows(reader: impl BufRead, ports: &PortNames) -> Result<Vec<(Place, Item)>, TextError> {
    read_flows_within(MOST_RULES, reader, ports)
}

/// The same for who has room for so many rules: of more, as of more groups or meters than there can be, none is kept, and nothing behind them is read.
///
/// # Errors
/// The first thing that is wrong, with line and column.
pub fn read_flows_within(
    rules: usize,
    reader: impl BufRead,
    ports: &PortNames,
) -> Result<Vec<(Place, Item)>, TextError> {
    let mut items = Vec::new();
    let (most, mut there) = ([rules, MOST_SHARED, MOST_SHARED], [0; 3]);
    lines(reader, LONGEST_LINE, |line| {
        let (bytes, number) = line.whole();
        let text = std::str::from_utf8(bytes).map_err(|error| TextError::Line {
            line: number,
            column: error.valid_up_to() + 1,
            what: "this is no UTF-8".into(),
        })?;
        // A comment may follow.
        let text = text.split('#').next().unwrap_or_default().trim_end();
        if DUMPS.iter().any(|begin| text.starts_with(begin)) {
            return Ok(());
        }
        let source = Source::new(text, number, ports);
        let (place, item) = item(&source)?;
        let (kind, what) = match item {
            Item::Flow(_) => (0, "rule"),
            Item::Group(..) => (1, "group"),
            Item::Meter(..) => (2, "meter"),
        };
        if there[kind] == most[kind] {
            let error = BookError::TooMany { what, most: most[kind] };
            return Err(source.error(place.start.into(), error.to_string()));
        }
        there[kind] += 1;
        items.push((place, item));
        Ok(())
    })?;
    Ok(items)
}

/// Reads one line.
///
/// # Errors
/// What is wrong with it, in line 1.
pub fn read_flow(text: &str, ports: &PortNames) -> Result<Item, TextError> {
    item(&Source::new(text, 1, ports)).map(|(_, item)| item)
}

/// Reads what to delete or to show: a rule without actions. With `strict` it has a priority, and its match is a rule's own. Words that would not be
/// looked at are refused: without them the filter would want more rules than it says.
///
/// # Errors
/// What is wrong with it, in line 1.
pub fn read_filter(text: &str, strict: bool, ports: &PortNames) -> Result<FlowFilter, TextError> {
    let source = Source::new(text, 1, ports);
    let head = fields::head(&source, 0, text.len())?;
    for word in source.words(0, text.len()) {
        let why = match word.name {
            "priority" if strict => continue,
            "priority" => "rules of every priority are wanted, but by `switch delete --strict`: leave it out",
            name if fields::FLOW_FLAGS.contains(&name) => "it is of no use here: leave it out",
            name if fields::COUNTED.contains(&name) => {
                "rules are not chosen by what they count: leave it out"
            }
            "idle_timeout" | "hard_timeout" => "rules are not chosen by their timeouts: leave it out",
            _ => continue,
        };
        return Err(source.error(word.at, format!("{}: {why}", word.name)));
    }
    Ok(FlowFilter {
        table: head.table,
        strict: strict.then_some(head.priority.unwrap_or(DEFAULT_PRIORITY)),
        matches: head.matches,
        cookie: head.cookie.unwrap_or((0, 0)),
    })
}

/// Reads a packet: a match that leaves no bit of its fields open. What it does not name is zero. A rule's own words are refused.
///
/// # Errors
/// What is wrong with it, in line 1.
pub fn read_packet(text: &str, ports: &PortNames) -> Result<crate::Key, TextError> {
    let source = Source::new(text, 1, ports);
    let head = fields::head(&source, 0, text.len())?;
    let own = |word: &Word<'_>| fields::OWN.contains(&word.name) || fields::FLOW_FLAGS.contains(&word.name);
    if let Some(word) = source.words(0, text.len()).find(own) {
        return Err(source.error(word.at, format!("{}: rules have that, packets have not", word.name)));
    }
    let family = head.matches.value().get(Field::EtherType);
    let open = |field: &Field| {
        if field.needs().is_some_and(|needs| u128::from(needs) != family) {
            return false;
        }
        let (mask, all) = (head.matches.mask().get(*field), crate::Mask::prefix(*field, 128).get(*field));
        // A VLAN without its priority, a TOS without its ECN: the rest is zero.
        mask != 0
            && mask != all
            && !matches!(field, Field::Vlan | Field::Tos | Field::Fragment | Field::TcpFlags)
    };
    let mut sides = [Side::Source, Side::Destination].into_iter().zip(head.matches.ports());
    let range = sides.find(|(_, range)| *range != crate::PortRange::ALL);
    let wrong = range.map(|(side, _)| side.field()).or_else(|| Field::ALL.into_iter().find(open));
    let Some(wrong) = wrong else { return Ok(*head.matches.value()) };
    let at = source.words(0, text.len()).find(|word| fields::names(word.name, wrong));
    let what = "a packet has one value for each field, not a mask or a range";
    Err(source.error(at.map_or(0, |word| word.value_at), what))
}

fn item(source: &Source<'_>) -> Result<(Place, Item), TextError> {
    let text = source.text();
    let begins = text.trim_start();
    let start = byte(text.len() - begins.len());
    let mut place = Place { line: source.line(), start, table: start, ..Place::default() };
    if begins.starts_with("group_id") {
        return groups::group(source).map(|(number, group)| (place, Item::Group(number, group)));
    }
    if begins.starts_with("meter=") {
        return groups::meter(source).map(|(number, rate)| (place, Item::Meter(number, rate)));
    }
    let Some(actions) = source.find_word("actions=") else {
        return Err(source.error(text.len(), "`actions=` is missing: say what is to become of the packets"));
    };
    let head = fields::head(source, 0, actions)?;
    let (instructions, places): (Instructions, Vec<u16>) =
        actions::instructions(source, actions + "actions=".len(), text.len(), &head.matches)?;
    (place.table, place.actions) = (head.table_at.map_or(start, byte), places.into());
    place.reset_counts = head.reset_counts;
    let spec = FlowSpec {
        table: head.table.unwrap_or(0),
        priority: head.priority.unwrap_or(DEFAULT_PRIORITY),
        matches: head.matches,
        instructions,
        cookie: head.cookie.map_or(0, |(cookie, _)| cookie),
        idle_s: head.idle_s,
        hard_s: head.hard_s,
    };
    Ok((place, Item::Flow(Box::new(spec))))
}

/// What a line says before its actions.
struct Head {
    table: Option<u8>,
    /// Where that stands.
    table_at: Option<usize>,
    priority: Option<u16>,
    cookie: Option<(u64, u64)>,
    idle_s: u16,
    hard_s: u16,
    /// Counters are to begin at 0.
    reset_counts: bool,
    matches: Match,
}
