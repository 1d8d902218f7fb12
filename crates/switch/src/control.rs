//! The control side: owns the rules and publishes them, lets them time out, says why a packet goes where.

use crate::config::{Classifier, SwitchError, SwitchSection};
use crate::counters::{Board, Counters};
use crate::file::RulesText;
use crate::macs::{Macs, Station};
use crate::vlan::Vlans;
use crate::would::Would;
use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tidemill_burst::DropReason;
use tidemill_classify::cache::{Cache, CacheError};
use tidemill_classify::flows::{
    Item, PortNames, read_filter, read_flows, read_flows_within, read_packet, show_flow, show_group,
    show_looked, show_meter,
};
use tidemill_classify::live::{Hits, Snapshot, WorkerCounters};
use tidemill_classify::packet::unfollowed;
use tidemill_classify::pipeline::{
    Action, Flow, FlowSpec, Loaded, NOT_YET, Output, Pipeline, PipelineSettings, Ways, Why,
};
use tidemill_classify::{Field, Match, RuleId};
use tidemill_flow::hash::mix;
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::Domain;

/// The most that `signatures` may be.
pub const MOST_SIGNATURES: usize = 1 << 28;

/// One worker's half.
pub(crate) struct Seat {
    pub(crate) cache: Cache,
    pub(crate) ways: Ways,
    pub(crate) hits: WorkerCounters,
    pub(crate) board: Board,
}

/// The workers' halves, until their nodes are made.
pub(crate) struct Seats(Mutex<Vec<Option<Box<Seat>>>>);

impl Seats {
    pub(crate) fn take(&self, worker: usize) -> Option<Box<Seat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }
}

/// What nodes share.
pub(crate) type SharedParts = (View<Arc<Snapshot>>, Arc<Vlans>, Arc<Macs>, Arc<Seats>);

/// Rules time out by looks at least so far apart, nanoseconds.
const LOOK_NS: u64 = 250_000_000;

/// Making a cross-product anew holds changes of rules up for as long as it takes: many times as long passes between two.
const PACE: u32 = 10;

/// The cross-product of the first table's rules: what packets are decided by that no cache knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossProduct {
    /// Rules that it was made of.
    pub rules: usize,
    /// Rules of these that have gone since, and rules that have come.
    pub changed: usize,
    /// Whether these are so many that the table's hash tables decide until it is made anew.
    pub worn: bool,
    /// Its memory.
    pub bytes: usize,
}

/// A rule with its numbers.
#[derive(Debug, Clone)]
pub struct ShownFlow {
    /// Its number.
    pub id: RuleId,
    /// As text.
    pub text: String,
    /// Table and priority.
    pub place: (u8, u16),
    /// What it has counted.
    pub hits: Hits,
    /// For how long it has been there, nanoseconds.
    pub duration_ns: u64,
}

/// A table on a packet's way.
#[derive(Debug, Clone)]
pub struct TracedStep {
    /// The table.
    pub table: u8,
    /// The rule that won, as text; none matched.
    pub rule: Option<String>,
    /// What was looked at, as a match.
    pub looked: String,
}

/// Why a packet goes where.
#[derive(Debug, Clone)]
pub struct Traced {
    /// Table by table.
    pub steps: Vec<TracedStep>,
    /// What is done to the packet, in order, and what the bridge and groups make of it.
    pub actions: Vec<String>,
    /// Whether anything of it leaves, else why it is dropped; and how the way through the tables ends. What meters let through and TTLs allow is not
    /// looked at.
    pub end: String,
    /// All packets that go this way for the same reason, as a match.
    pub megaflow: String,
}

/// The control side of a switch. Workers hold views of what it publishes, and never wait for it.
pub struct SwitchControl {
    section: SwitchSection,
    ports: PortNames,
    book: Pipeline,
    macs: Arc<Macs>,
    vlans: Arc<Vlans>,
    seats: Arc<Seats>,
    boards: Vec<Board>,
    /// The time of the last round; 0 before the first.
    now_ns: u64,
    /// Rules have come since then: what time it was is known with the next round.
    timeless: bool,
    /// A cross-product is made anew from then on.
    renew_from_ns: u64,
}

impl SwitchControl {
    /// Checks a configuration against the names of the ports, and makes the caches of so many workers of `domain`. `secret` is for hashes:
    /// senders choose what is hashed.
    ///
    /// # Errors
    /// Which key is wrong, and what to do; a file of rules that is wrong, with its line.
    pub fn new(
        section: &SwitchSection,
        ports: &[String],
        workers: usize,
        domain: &Domain,
        secret: u128,
    ) -> Result<Self, SwitchError> {
        check(section, ports)?;
        let names = PortNames(ports.to_vec());
        let vlans = Vlans::new(section, &names)?;
        let settings = PipelineSettings {
            tables: section.tables,
            // A rule that is replaced makes room only when all workers have passed a burst boundary.
            rules: section.rules,
            grouping: section.classifier.grouping(),
        };
        let mut book = Pipeline::new(domain, settings);
        let caches = section.caches();
        let (mut seats, mut boards) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let cache = Cache::new(caches, secret).map_err(|error| match error {
                CacheError::Exact(error) => SwitchError::config("exact", error.to_string()),
                CacheError::Megaflows(error) => SwitchError::config("megaflows", error.to_string()),
                CacheError::Signatures(error) => SwitchError::config("signatures", error.to_string()),
            })?;
            let ways = Ways::new(section.megaflows.saturating_add(section.exact).min(1 << 16));
            let board = Board::default();
            boards.push(board.clone());
            seats.push(Some(Box::new(Seat { cache, ways, hits: book.worker(), board })));
        }
        let mut control = SwitchControl {
            macs: Arc::new(Macs::new(section.stations, section.station_age_s, mix(secret as u64))),
            section: section.clone(),
            ports: names,
            book,
            vlans: Arc::new(vlans),
            seats: Arc::new(Seats(Mutex::new(seats))),
            boards,
            now_ns: 0,
            timeless: true,
            renew_from_ns: 0,
        };
        control.load_all(&section.read_rules()?)?;
        Ok(control)
    }

    /// Takes these rules in place of all that are there.
    fn load_all(&mut self, rules: &RulesText) -> Result<Loaded, SwitchError> {
        let loaded = self.load(&rules.text[..], &rules.name, true)?;
        if loaded.added + loaded.removed > 0 {
            self.choose(true);
        }
        Ok(loaded)
    }

    /// Groups tables by the rules that they have now, if that is wanted.
    fn choose(&mut self, all: bool) {
        if self.section.classifier == Classifier::Auto && self.book.choose_groupings(all) {
            self.book.commit();
        }
    }

    /// Takes rules, groups and meters from text, all or none, and publishes them. With `replace` what is not there goes. `name` is for messages. Of more rules than there can be it
    /// keeps none, and reads no further.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn load(&mut self, text: impl BufRead, name: &str, replace: bool) -> Result<Loaded, SwitchError> {
        let items = read_flows_within(self.section.rules, text, &self.ports)
            .map_err(|error| SwitchError::Text { name: name.to_owned(), error })?;
        let loaded = self.book.load(items, replace, NOT_YET);
        self.timeless = true;
        self.book.commit();
        self.choose(false);
        loaded.map_err(|error| SwitchError::Book { name: name.to_owned(), error })
    }

    /// Takes rules out; says how many. `filter` is a rule without actions; with `strict` it is the rule itself.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn delete(&mut self, filter: &str, strict: bool) -> Result<usize, SwitchError> {
        let filter = read_filter(filter, strict, &self.ports)
            .map_err(|error| SwitchError::Text { name: "the filter".into(), error })?;
        let gone = self.book.delete(&filter).len();
        self.book.commit();
        self.choose(false);
        Ok(gone)
    }

    /// Takes a group out, and the rules that lead to it; says how many those were.
    ///
    /// # Errors
    /// There is no such group.
    pub fn delete_group(&mut self, number: u32) -> Result<usize, SwitchError> {
        if !self.book.shared().groups.contains_key(&number) {
            return Err(SwitchError::None { what: "group", number });
        }
        let gone = self.book.delete_group(number).len();
        self.book.commit();
        self.choose(false);
        Ok(gone)
    }

    /// Takes a meter out, and the rules that use it; says how many those were.
    ///
    /// # Errors
    /// There is no such meter.
    pub fn delete_meter(&mut self, number: u32) -> Result<usize, SwitchError> {
        if !self.book.shared().meters.contains_key(&number) {
            return Err(SwitchError::None { what: "meter", number });
        }
        let gone = self.book.delete_meter(number).len();
        self.book.commit();
        self.choose(false);
        Ok(gone)
    }

    /// Of each table that has rules: its number, how many, and how they are grouped.
    pub fn classifiers(&self) -> Vec<(u8, usize, &'static str)> {
        let with_rules = self.book.groupings().filter(|(_, rules, _)| *rules > 0);
        with_rules.map(|(table, rules, grouping)| (table, rules, grouping.name())).collect()
    }

    /// The cross-product of the first table's rules, if there is one.
    pub fn cross_product(&self) -> Option<CrossProduct> {
        let crossed = self.book.crossed()?;
        let (rules, changed) = (crossed.rules(), crossed.changed());
        Some(CrossProduct { rules, changed, worn: crossed.is_worn(), bytes: crossed.bytes() })
    }

    /// Bytes that a text of rules may have: see [`SwitchSection::text_bytes`].
    pub fn text_bytes(&self) -> usize {
        self.section.text_bytes()
    }

    /// Rules that a filter wants, by table and in the order in which they win.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn flows(&mut self, filter: &str) -> Result<Vec<ShownFlow>, SwitchError> {
        let filter = read_filter(filter, false, &self.ports)
            .map_err(|error| SwitchError::Text { name: "the filter".into(), error })?;
        let wanted = self.book.flows().filter(|(_, flow)| filter.wants(&flow.spec));
        let mut list: Vec<(RuleId, Flow)> = wanted.map(|(id, flow)| (id, flow.clone())).collect();
        list.sort_by_key(|(id, flow)| (flow.spec.table, self.book.rank(*id)));
        let shown = list.into_iter().map(|(id, flow)| ShownFlow {
            id,
            text: show_flow(&flow.spec, &self.ports),
            place: (flow.spec.table, flow.spec.priority),
            hits: self.book.hits(id),
            duration_ns: self.now_ns.saturating_sub(flow.since_ns),
        });
        Ok(shown.collect())
    }

    /// Groups and meters as text, meters with what they let through and refused.
    pub fn groups(&self) -> (Vec<String>, Vec<(String, u64, u64)>) {
        let shared = self.book.shared();
        let groups = shared.groups.iter().map(|(number, group)| show_group(*number, group, &self.ports));
        let meters = shared.meters.iter().map(|(number, meter)| {
            let (passed, refused) = meter.counted();
            (show_meter(*number, meter.rate()), passed, refused)
        });
        (groups.collect(), meters.collect())
    }

    /// Where a packet goes, and why: `packet` is a match that leaves nothing open.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn trace(&self, packet: &str) -> Result<Traced, SwitchError> {
        let key = read_packet(packet, &self.ports)
            .map_err(|error| SwitchError::Text { name: "the packet".into(), error })?;
        let spec = |id| self.book.flow(id).map(|flow: &Flow| &flow.spec);
        let mut steps = Vec::new();
        let (way, mask) = self.book.snapshot().walk(&key, |step| {
            let rule = step.rule.and_then(spec).map(|spec: &FlowSpec| show_flow(spec, &self.ports));
            let looked = show_looked(&step.key, &step.looked, &self.ports);
            steps.push(TracedStep { table: step.table, rule, looked });
        });
        let actions = way.rules().filter_map(spec).flat_map(|spec| &spec.instructions.actions);
        let parts = (&self.ports, &*self.vlans, &*self.macs, self.book.shared());
        let (actions, end) = if unfollowed(&key) && self.book.snapshot().way_asks_above_ipv6(&way) {
            let why = DropReason::Ipv6HeadersUnfollowed.name();
            (
                Vec::new(),
                format!("dropped: {why}: nw_proto=0 is what such headers have: give the packet's own"),
            )
        } else {
            Would::new(parts, &key, self.now_s()).take(actions, way.end())
        };
        let megaflow = show_looked(&key, &mask, &self.ports);
        Ok(Traced { steps, actions, end, megaflow })
    }

    fn now_s(&self) -> u32 {
        (self.now_ns / 1_000_000_000) as u32
    }

    /// Stations that the bridge knows, with their ports' names.
    pub fn stations(&self) -> Vec<(Station, String)> {
        let name = |port: u16| self.ports.name(port + 1).unwrap_or("?").to_owned();
        let stations = self.macs.stations(self.now_s());
        stations.into_iter().map(|station| (station, name(station.port))).collect()
    }

    /// Forgets all stations.
    pub fn forget_stations(&self) {
        self.macs.clear();
    }

    /// All that is counted, of all workers.
    pub fn counters(&self) -> Counters {
        sum(&self.boards)
    }

    /// What reads [`counters`](Self::counters) from elsewhere.
    pub fn counter_reader(&self) -> impl Fn() -> Counters + Send + use<> {
        let boards = self.boards.clone();
        move || sum(&boards)
    }

    /// Rules that there are.
    pub fn rules(&self) -> usize {
        self.book.flows().len()
    }

    /// One round: rules whose time is over go, and a worn cross-product is made anew ([`Pipeline::renew`]), which takes no more than a tenth of the time. Whether a rule has gone.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        // Rules never go before their time: those that have come since the last round count from now.
        if std::mem::take(&mut self.timeless) {
            self.book.begin(now_ns);
        }
        if self.now_ns != 0 && now_ns.saturating_sub(self.now_ns) < LOOK_NS {
            return false;
        }
        self.now_ns = now_ns;
        let gone = self.book.expire(now_ns);
        debug_assert!(gone.iter().all(|gone| gone.why != Why::Deleted));
        if !gone.is_empty() {
            self.book.commit();
            self.choose(false);
        }
        if self.section.classifier == Classifier::Auto {
            self.renew(now_ns);
        }
        !gone.is_empty()
    }

    fn renew(&mut self, now_ns: u64) {
        let start = Instant::now();
        if self.book.renew(now_ns, now_ns >= self.renew_from_ns) {
            self.book.commit();
        }
        // In vain or not, it took this long, and ended as much later.
        let rest_ns = (start.elapsed() * (PACE + 1)).as_nanos() as u64;
        self.renew_from_ns = self.renew_from_ns.max(now_ns.saturating_add(rest_ns));
    }

    /// Takes another configuration with the rules that it [names](SwitchSection::read_rules): all of it or, with what is wrong, nothing. Rules that are not in the file go;
    /// those that are as they were keep their counters. All else stays as it is.
    ///
    /// # Errors
    /// What is wrong with it, or which key would need a restart.
    pub fn reload(&mut self, section: &SwitchSection, rules: &RulesText) -> Result<Loaded, SwitchError> {
        let mut fixed = section.fixed_keys(&self.section).into_iter();
        if let Some((key, _)) = fixed.find(|(_, same)| !same) {
            return Err(SwitchError::Restart(key));
        }
        let before = std::mem::replace(&mut self.section, section.clone());
        let loaded = self.load_all(rules);
        if loaded.is_err() {
            self.section = before;
        }
        loaded
    }

    /// The ports' names.
    pub fn ports(&self) -> &PortNames {
        &self.ports
    }

    pub(crate) fn shared(&self) -> SharedParts {
        (self.book.view(), self.vlans.clone(), self.macs.clone(), self.seats.clone())
    }
}

fn sum(boards: &[Board]) -> Counters {
    let mut sum = Counters::default();
    boards.iter().for_each(|board| board.add_to(&mut sum));
    sum
}

/// Whether a name means its port wherever rules may name one.
fn names_port(ports: &PortNames, number: u16, name: &str) -> bool {
    if name.is_empty() || name.parse::<u16>().is_ok_and(|other| other != number) {
        return false;
    }
    let line = format!("in_port={name} actions={name},output:{name}");
    let Ok(items) = read_flows(line.as_bytes(), ports) else { return false };
    let [(_, Item::Flow(flow))] = &items[..] else { return false };
    let output = || Action::Output(Output::Port(number));
    flow.matches == Match::any().exact(Field::InPort, number.into())
        && flow.instructions.actions == [output(), output()]
}

/// Whether numbers are in their ranges, and ports have names that rules can use.
fn check(section: &SwitchSection, ports: &[String]) -> Result<(), SwitchError> {
    let wrong = |key: &str, what: &str| Err(SwitchError::config(key, what));
    if ports.is_empty() || ports.len() > 255 {
        return wrong("ports", "a switch has 1 to 255 [[port]]");
    }
    let names = PortNames(ports.to_vec());
    if let Some((_, name)) = (1..).zip(ports).find(|(number, name)| !names_port(&names, *number, name)) {
        let what = "rules could not name this port: give it a name that is no number and no word of theirs";
        return wrong("ports", &format!("{name:?}: {what}"));
    }
    if section.tables == 0 {
        return wrong("tables", "give 1 to 255");
    }
    if !(1..=1 << 22).contains(&section.rules) {
        return wrong("rules", "give 1 to 4194304");
    }
    if section.signatures > MOST_SIGNATURES {
        return wrong("signatures", "give 0 to 268435456");
    }
    if !(1..=16_383).contains(&section.masks) {
        return wrong("masks", "give 1 to 16383");
    }
    if !(1..=1 << 24).contains(&section.stations) {
        return wrong("stations", "give 1 to 16777216");
    }
    if !(1..=1_000_000).contains(&section.station_age_s) {
        return wrong("station_age_s", "give 1 to 1000000");
    }
    Ok(())
}
