//! The owner of a switch's rules: checks them, replaces and deletes them as OpenFlow says, lets them time out.
//!
//! All changes are staged until [`Pipeline::commit`], which publishes them as one version. Time is handed in, nanoseconds.

use super::action::{Action, Instructions, Output, SETTABLE};
use super::choose::Renewal;
use super::group::{Group, Meter, Shared};
use super::order::{self, BEHIND};
use super::{Entry, PipelineOracle};
use crate::key::{Field, IPV4, IPV6};
use crate::live::{Hits, LiveRules, Snapshot, WorkerCounters};
use crate::rule::{Match, Rank, Rule, RuleId, Side};
use crate::tuple::Grouping;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::Domain;
use tidemill_wire::Protocol;

const SECOND: u64 = 1_000_000_000;

/// Groups that there can be, and meters: their memory is not there from the start, as that of rules is.
pub const MOST_SHARED: usize = 1 << 16;

/// How large a pipeline is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineSettings {
    /// Tables, from 1 to 255.
    pub tables: u8,
    /// Rules in all of them together.
    pub rules: usize,
    /// How each table groups its rules, until [`Pipeline::choose_groupings`] says otherwise.
    pub grouping: Grouping,
}

/// A rule as an operator writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowSpec {
    /// Its table.
    pub table: u8,
    /// The higher one wins.
    pub priority: u16,
    /// Its packets.
    pub matches: Match,
    /// What becomes of them.
    pub instructions: Instructions,
    /// The operator's own number.
    pub cookie: u64,
    /// It goes when no packet has come for so many seconds; 0: never.
    pub idle_s: u16,
    /// It goes after so many seconds; 0: never.
    pub hard_s: u16,
}

/// A rule's time while nobody knows the time: [`Pipeline::begin`] says it later.
pub const NOT_YET: u64 = u64::MAX;

/// A rule that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// As it was written.
    pub spec: FlowSpec,
    /// When it came; [`NOT_YET`] until [`Pipeline::begin`] says it.
    pub since_ns: u64,
    /// When packets were last seen to have come: as exact as [`Pipeline::expire`] is called often.
    pub used_ns: u64,
    /// Packets by then.
    seen: u64,
}

/// Why a rule has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No packet came.
    Idle,
    /// Its time was over.
    Hard,
    /// Somebody deleted it, or a group or meter of its.
    Deleted,
}

/// A rule that has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The rule.
    pub flow: Flow,
    /// Why.
    pub why: Why,
    /// What it had counted by then.
    pub hits: Hits,
}

/// Why a rule, a group or a meter was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// No such table.
    #[error("table {0}: there are only the tables 0 to {1}")]
    NoTable(u8, u8),
    /// A goto to an earlier table, or to the rule's own.
    #[error("goto_table {0} from table {1}: give a table with a higher number")]
    Backwards(u8, u8),
    /// No such group.
    #[error("group {0}: there is no such group: add it first")]
    NoGroup(u32),
    /// No such meter.
    #[error("meter {0}: there is no such meter: add it first")]
    NoMeter(u32),
    /// A field that cannot be set.
    #[error("{0:?} cannot be set")]
    NotSettable(Field),
    /// An action on headers that the match does not promise.
    #[error("{0}: the match must ask for {1}")]
    Prerequisite(&'static str, &'static str),
    /// A bucket's actions.
    #[error("group {0}: buckets take no groups and no meters")]
    InBucket(u32),
    /// A rule, a group or a meter that the file has in an earlier line. Which of them counts would be a guess.
    #[error("this {what} is in line {first} already: take one of them out")]
    Twice {
        /// What it is.
        what: &'static str,
        /// The line, from 1.
        first: usize,
    },
    /// More groups or meters than there can be, or more rules in one file.
    #[error("no room for another {what}: there can be {most}: take one of them out")]
    TooMany {
        /// Which of both.
        what: &'static str,
        /// As many as there can be.
        most: usize,
    },
    /// As many rules as there can be.
    #[error("no room for another rule: there are {0}, as many as there can be")]
    Full(usize),
    /// More rules that are new or changed than there is room for beside those that are there: these go only when the new ones have come, and
    /// workers have seen it.
    #[error(
        "no room for {new} new or changed rules beside the {there} that are there until then: {most} can be there at once"
    )]
    FullAtOnce {
        /// New or changed.
        new: usize,
        /// There already.
        there: usize,
        /// As many as there can be.
        most: usize,
    },
}

/// Which rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFilter {
    /// Of this table; `None`: of any.
    pub table: Option<u8>,
    /// Of this priority and of just this match; `None`: of any priority, and whose packets are all matched.
    pub strict: Option<u16>,
    /// The match.
    pub matches: Match,
    /// With these bits of their cookies: values, mask.
    pub cookie: (u64, u64),
}

impl FlowFilter {
    /// Every rule.
    pub fn any() -> Self {
        FlowFilter { table: None, strict: None, matches: Match::any(), cookie: (0, 0) }
    }

    /// Whether a rule is one of these.
    pub fn wants(&self, spec: &FlowSpec) -> bool {
        let matches = match self.strict {
            Some(priority) => spec.priority == priority && spec.matches == self.matches,
            None => within(&spec.matches, &self.matches),
        };
        matches
            && self.table.is_none_or(|table| table == spec.table)
            && (spec.cookie ^ self.cookie.0) & self.cookie.1 == 0
    }
}

/// Whether every packet of one match is one of the other, as far as masks and ranges tell.
fn within(one: &Match, other: &Match) -> bool {
    // The bits that have to be the same: not those of ports that are asked for as a range.
    let mut mask = *other.mask();
    let ports = [Side::Source, Side::Destination].into_iter().all(|side| {
        let ((inner, _), (outer, whole)) = (one.span(side), other.span(side));
        let outer = if whole {
            mask = mask.with(side.field(), 0);
            outer
        } else {
            other.ports()[side as usize]
        };
        outer.first <= inner.first && inner.last <= outer.last
    });
    ports && mask.within(one.mask()) && one.value().masked(&mask) == other.value().masked(&mask)
}

/// What OpenFlow knows a rule by.
type Likeness = (u8, u16, Match);

fn likeness(spec: &FlowSpec) -> Likeness {
    (spec.table, spec.priority, spec.matches)
}

/// The rules of a switch with their groups and meters. See the [module](self).
pub struct Pipeline {
    pub(super) rules: LiveRules,
    /// Rules of each table when its grouping was last chosen.
    pub(super) looked: Vec<usize>,
    pub(super) renewal: Renewal,
    flows: BTreeMap<RuleId, Flow>,
    /// Rules by what OpenFlow takes for the same one.
    by_match: HashMap<Likeness, RuleId>,
    /// Rules with timeouts.
    timed: BTreeSet<RuleId>,
    shared: Shared,
    /// Whether `shared` is another one than at the last commit.
    shared_anew: bool,
    settings: PipelineSettings,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("flows", &self.flows.len()).finish_non_exhaustive()
    }
}

impl Pipeline {
    /// No rules.
    pub fn new(domain: &Domain, settings: PipelineSettings) -> Self {
        let settings = PipelineSettings { tables: settings.tables.max(1), ..settings };
        Pipeline {
            rules: LiveRules::with_tables(domain, settings.grouping, settings.rules, settings.tables),
            looked: vec![0; settings.tables.into()],
            renewal: Renewal::default(),
            flows: BTreeMap::new(),
            by_match: HashMap::new(),
            timed: BTreeSet::new(),
            shared: Shared::default(),
            shared_anew: false,
            settings,
        }
    }

    /// A handle for a worker.
    pub fn view(&self) -> View<Arc<Snapshot>> {
        self.rules.view()
    }

    /// Counters for a worker.
    pub fn worker(&mut self) -> WorkerCounters {
        self.rules.counters().worker()
    }

    /// What is published.
    pub fn snapshot(&self) -> &Snapshot {
        self.rules.snapshot()
    }

    /// The oracle of what is here now, staged or not.
    pub fn oracle(&self) -> PipelineOracle {
        PipelineOracle::new(&self.rules)
    }

    /// How large it is.
    pub fn settings(&self) -> PipelineSettings {
        self.settings
    }

    /// Rules by their numbers.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = (RuleId, &Flow)> {
        self.flows.iter().map(|(&id, flow)| (id, flow))
    }

    /// A rule.
    pub fn flow(&self, id: RuleId) -> Option<&Flow> {
        self.flows.get(&id)
    }

    /// A rule's place in the order in which its table's rules win: the least wins.
    pub fn rank(&self, id: RuleId) -> Option<Rank> {
        self.rules.set().rank(id)
    }

    /// What a rule has counted.
    pub fn hits(&mut self, id: RuleId) -> Hits {
        self.rules.counters().get(id)
    }

    /// Groups and meters.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Publishes what has changed since the last time, at once; the version.
    pub fn commit(&mut self) -> u64 {
        if std::mem::take(&mut self.shared_anew) {
            self.rules.share(self.shared.clone());
        }
        self.rules.commit()
    }

    /// Whether a rule could be added.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, spec: &FlowSpec) -> Result<(), BookError> {
        let (groups, meters) = (&self.shared.groups, &self.shared.meters);
        self.check_with(spec, &|number| groups.contains_key(&number), &|number| meters.contains_key(&number))
    }

    /// The same, where other groups and meters are there.
    pub(super) fn check_with(
        &self,
        spec: &FlowSpec,
        group: &dyn Fn(u32) -> bool,
        meter: &dyn Fn(u32) -> bool,
    ) -> Result<(), BookError> {
        let last = self.settings.tables - 1;
        if spec.table > last {
            return Err(BookError::NoTable(spec.table, last));
        }
        match spec.instructions.goto {
            Some(next) if next > last => return Err(BookError::NoTable(next, last)),
            Some(next) if next <= spec.table => return Err(BookError::Backwards(next, spec.table)),
            _ => {}
        }
        for action in &spec.instructions.actions {
            match action {
                Action::Group(number) if !group(*number) => {
                    return Err(BookError::NoGroup(*number));
                }
                Action::Meter(number) if !meter(*number) => {
                    return Err(BookError::NoMeter(*number));
                }
                _ => check_action(action, &spec.matches)?,
            }
        }
        Ok(())
    }

    /// Puts a rule in, in place of one with the same table, priority and match; if there is none, behind
    /// those of its priority that a file has put in order.
    ///
    /// # Errors
    /// What is wrong with it; then nothing has changed.
    pub fn add(&mut self, spec: FlowSpec, now_ns: u64) -> Result<RuleId, BookError> {
        let place = self.same(&spec).and_then(|id| self.place(id)).unwrap_or(BEHIND);
        self.add_at(place, spec, now_ns)
    }

    /// The same, with this place among rules of its priority.
    pub(super) fn add_at(&mut self, place: u32, spec: FlowSpec, now_ns: u64) -> Result<RuleId, BookError> {
        self.check(&spec)?;
        // The new one first: without room for it the old one stays.
        let rule = Rule { matches: spec.matches, priority: order::priority(spec.priority, place) };
        let entry = Entry { table: spec.table, instructions: spec.instructions.clone() };
        let id = self.rules.insert_entry(rule, entry).map_err(|full| BookError::Full(full.0))?;
        if let Some(old) = self.by_match.insert(likeness(&spec), id) {
            self.rules.remove(old);
            self.flows.remove(&old);
            self.timed.remove(&old);
        }
        if spec.idle_s > 0 || spec.hard_s > 0 {
            self.timed.insert(id);
        }
        self.flows.insert(id, Flow { spec, since_ns: now_ns, used_ns: now_ns, seen: 0 });
        Ok(id)
    }

    /// A rule's place among those of its table and priority.
    pub(super) fn place(&self, id: RuleId) -> Option<u32> {
        self.rules.set().get(id).map(|rule| order::place(rule.priority))
    }

    /// Gives a rule another place.
    pub(super) fn set_place(&mut self, id: RuleId, place: u32) {
        if let Some(flow) = self.flows.get(&id) {
            self.rules.set_priority(id, order::priority(flow.spec.priority, place));
        }
    }

    /// Takes rules out.
    pub fn delete(&mut self, filter: &FlowFilter) -> Vec<Gone> {
        let wanted = self.flows.iter().filter(|(_, flow)| filter.wants(&flow.spec)).map(|(&id, _)| id);
        let wanted = wanted.collect();
        self.take_out(wanted, Why::Deleted)
    }

    /// A rule's time begins anew; with `reset_counts` its counters do, too.
    pub(super) fn restart(&mut self, id: RuleId, now_ns: u64, reset_counts: bool) {
        if let Some(flow) = self.flows.get_mut(&id) {
            (flow.since_ns, flow.used_ns) = (now_ns, now_ns);
            if reset_counts {
                self.rules.counters().restart(id);
                flow.seen = 0;
            }
        }
    }

    /// The number of the rule that OpenFlow takes for the same one.
    pub(super) fn same(&self, spec: &FlowSpec) -> Option<RuleId> {
        self.by_match.get(&likeness(spec)).copied()
    }

    /// How many rules could be added now.
    pub(super) fn room(&mut self) -> usize {
        self.rules.room()
    }

    pub(super) fn take_out(&mut self, ids: Vec<RuleId>, why: Why) -> Vec<Gone> {
        let mut gone = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(flow) = self.flows.remove(&id) else { continue };
            let hits = self.rules.counters().get(id);
            self.rules.remove(id);
            self.timed.remove(&id);
            self.by_match.remove(&likeness(&flow.spec));
            gone.push(Gone { flow, why, hits });
        }
        gone
    }

    /// Rules that have come at [`NOT_YET`] have come at `now_ns`.
    pub fn begin(&mut self, now_ns: u64) {
        for flow in self.flows.values_mut().filter(|flow| flow.since_ns == NOT_YET) {
            (flow.since_ns, flow.used_ns) = (now_ns, now_ns);
        }
    }

    /// Takes out the rules whose time is over.
    pub fn expire(&mut self, now_ns: u64) -> Vec<Gone> {
        let (mut idle, mut hard) = (Vec::new(), Vec::new());
        for &id in &self.timed {
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            let packets = self.rules.counters().get(id).packets;
            if packets != flow.seen {
                (flow.seen, flow.used_ns) = (packets, now_ns);
            }
            let over = |since: u64, s: u16| s > 0 && now_ns.saturating_sub(since) >= u64::from(s) * SECOND;
            if over(flow.since_ns, flow.spec.hard_s) {
                hard.push(id);
            } else if over(flow.used_ns, flow.spec.idle_s) {
                idle.push(id);
            }
        }
        let mut gone = self.take_out(hard, Why::Hard);
        gone.extend(self.take_out(idle, Why::Idle));
        gone
    }

    /// Puts a group in, in place of the one with its number.
    ///
    /// # Errors
    /// What is wrong with it; then nothing has changed.
    pub fn set_group(&mut self, number: u32, group: Group) -> Result<(), BookError> {
        check_group(number, &group)?;
        self.shared.groups.insert(number, Arc::new(group));
        self.shared_anew = true;
        Ok(())
    }

    /// Takes a group out, and all rules that lead to it, as OpenFlow says.
    pub fn delete_group(&mut self, number: u32) -> Vec<Gone> {
        if self.shared.groups.remove(&number).is_none() {
            return Vec::new();
        }
        self.shared_anew = true;
        self.delete_users(Action::Group(number))
    }

    /// Puts a meter in, in place of the one with its number.
    pub fn set_meter(&mut self, number: u32, meter: Meter) {
        self.shared.meters.insert(number, Arc::new(meter));
        self.shared_anew = true;
    }

    /// Takes a meter out, and all rules that use it, as OpenFlow says.
    pub fn delete_meter(&mut self, number: u32) -> Vec<Gone> {
        if self.shared.meters.remove(&number).is_none() {
            return Vec::new();
        }
        self.shared_anew = true;
        self.delete_users(Action::Meter(number))
    }

    /// Takes the groups and meters out that are not to stay. No rule uses them.
    pub(super) fn retain_shared(&mut self, group: impl Fn(u32) -> bool, meter: impl Fn(u32) -> bool) {
        let Shared { groups, meters } = &mut self.shared;
        let before = (groups.len(), meters.len());
        groups.retain(|&number, _| group(number));
        meters.retain(|&number, _| meter(number));
        self.shared_anew |= before != (groups.len(), meters.len());
    }

    fn delete_users(&mut self, action: Action) -> Vec<Gone> {
        let uses = |flow: &Flow| flow.spec.instructions.actions.contains(&action);
        let users = self.flows.iter().filter(|(_, flow)| uses(flow)).map(|(&id, _)| id).collect();
        self.take_out(users, Why::Deleted)
    }
}

/// Whether a group's buckets are what they may be.
pub(super) fn check_group(number: u32, group: &Group) -> Result<(), BookError> {
    for action in group.buckets().iter().flat_map(|bucket| &bucket.actions) {
        match action {
            Action::Group(_) | Action::Meter(_) => return Err(BookError::InBucket(number)),
            // What rules lead here is not known yet: what cannot be done to a packet is left undone.
            Action::Set { field, .. } if !SETTABLE.contains(field) => {
                return Err(BookError::NotSettable(*field));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the packets of a match have what an action works on.
pub(crate) fn check_action(action: &Action, matches: &Match) -> Result<(), BookError> {
    let exact =
        |field: Field, all: u128| (matches.mask().get(field) == all).then(|| matches.value().get(field));
    let ethertype = exact(Field::EtherType, 0xffff);
    let family = |wanted: &[u16]| wanted.iter().any(|&family| ethertype == Some(family.into()));
    let needs = |there: bool, what: &'static str, wanted: &'static str| {
        if there { Ok(()) } else { Err(BookError::Prerequisite(what, wanted)) }
    };
    match *action {
        Action::Set { field, .. } => match field {
            Field::Ipv4Source | Field::Ipv4Destination => needs(family(&[IPV4]), "IPv4 addresses", "ip"),
            Field::Ipv6Source | Field::Ipv6Destination => needs(family(&[IPV6]), "IPv6 addresses", "ipv6"),
            Field::Tos => needs(family(&[IPV4, IPV6]), "TOS", "ip or ipv6"),
            Field::SourcePort | Field::DestinationPort => {
                let protocol = exact(Field::Protocol, 0xff).map(|protocol| Protocol(protocol as u8));
                // SCTP's checksum is over the whole packet: nobody here computes it.
                let has = matches!(protocol, Some(Protocol::TCP | Protocol::UDP));
                needs(has && family(&[IPV4, IPV6]), "ports", "tcp or udp")
            }
            field if SETTABLE.contains(&field) => Ok(()),
            field => Err(BookError::NotSettable(field)),
        },
        Action::DecTtl => needs(family(&[IPV4, IPV6]), "dec_ttl", "ip or ipv6"),
        Action::Output(Output::Port(_) | Output::InPort | Output::Normal | Output::Flood | Output::All)
        | Action::PushVlan(_)
        | Action::PopVlan
        | Action::Group(_)
        | Action::Meter(_) => Ok(()),
    }
}
