//! The control side: owns rules and sets and publishes them, reads the workers' connections beside them, and collects what they log.

use crate::filter::config::FilterSection;
use crate::filter::connection::{Connection, Kind, Words};
use crate::filter::counters::{Board, Counter, Counters};
use crate::filter::error::FilterError;
use crate::filter::image::{Connections, Exporter, Saved, Taken};
use crate::filter::judge::Filter;
use crate::filter::log::LogLine;
use crate::filter::net::Net;
use crate::filter::rules::{Frame, Hits, Rules};
use crate::filter::sets::AddressSet;
use crate::filter::settings::{self, Plan, Times};
use crate::filter::text::{
    MOST_BYTES, Network, Place, Rule, RuleError, Ruleset, read_rules, read_set, shown,
};
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_flow::flowtable::FlowReader;
use tidemill_ip::Interfaces;
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;

/// Bytes that a set's file may have.
const MOST_SET_BYTES: u64 = 256 << 20;
/// Lines that a worker may be ahead of the control side.
const LOG_ROOM: usize = 4096;
/// The last lines, which are kept to be shown.
const LOG_KEPT: usize = 1000;

/// What one worker has of one family.
pub(crate) struct Seat<A, const W: usize> {
    pub(crate) filter: Filter<A, W>,
    /// Fragments that may wait.
    pub(crate) fragments: usize,
    board: Board,
}

impl<A: Net<W>, const W: usize> Seat<A, W> {
    /// Shows the numbers of now.
    pub(crate) fn show(&mut self) {
        let states = self.filter.states();
        let now = [states.len(), states.half_open(), states.unanswered()];
        let names = match A::V6 {
            false => [Counter::States4, Counter::HalfOpen4, Counter::Unanswered4],
            true => [Counter::States6, Counter::HalfOpen6, Counter::Unanswered6],
        };
        for (name, now) in names.into_iter().zip(now) {
            self.filter.counters_mut().set(name, now as u64);
        }
        self.board.show(self.filter.counters());
    }
}

/// The workers' halves, until their nodes are made.
type Seats<A, const W: usize> = Mutex<Vec<Option<Box<Seat<A, W>>>>>;

/// One family's half.
pub(crate) struct Half<A, const W: usize> {
    seats: Arc<Seats<A, W>>,
    workers: Vec<(FlowReader<W, Words>, Board)>,
}

impl<A: Net<W>, const W: usize> Half<A, W> {
    fn new(
        plan: &Plan,
        workers: usize,
        secret: u128,
        log: &Arc<ArrayQueue<LogLine>>,
    ) -> Result<Self, FilterError> {
        let (mut seats, mut shown) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let filter = Filter::new(plan, (worker, workers), secret, log.clone())?;
            let board = Board::default();
            shown.push((filter.reader(), board.clone()));
            seats.push(Some(Box::new(Seat { filter, fragments: plan.fragments, board })));
        }
        Ok(Half { seats: Arc::new(Mutex::new(seats)), workers: shown })
    }

    pub(crate) fn seats(&self) -> Arc<Seats<A, W>> {
        self.seats.clone()
    }

    fn readers(&self) -> Vec<FlowReader<W, Words>> {
        self.workers.iter().map(|(reader, _)| reader.clone()).collect()
    }

    /// Whether a worker has begun.
    fn has_begun(&self) -> bool {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).iter().any(Option::is_none)
    }

    /// Has the workers go on with connections; how many do not fit, or `None` if the workers have begun already.
    fn restore(
        &self,
        now_ms: u64,
        rules: &Rules,
        connections: &[Saved<W>],
        interfaces: &[Option<u16>],
    ) -> Option<usize> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        for saved in connections {
            let worker = seats.first()?.as_ref()?.filter.owner_of_key(&saved.key);
            let seat = seats.get_mut(worker)?.as_mut()?;
            left_out += usize::from(!seat.filter.adopt(now_ms, rules, saved, interfaces));
        }
        Some(left_out)
    }

    /// Visits connections of worker `worker` from a bucket on; the bucket to go on with, 0 if there is none.
    fn scan(
        &self,
        worker: usize,
        bucket: usize,
        buckets: usize,
        now_ms: u64,
        mut visit: impl FnMut(Line),
    ) -> usize {
        let Some((reader, _)) = self.workers.get(worker) else { return 0 };
        reader.scan(bucket, buckets, |key, flow| {
            let connection = Connection::unpack(&flow.state);
            if connection.until_ms > now_ms {
                visit(Line::of::<A, W>(worker, now_ms, &A::of_key(key), &connection));
            }
        })
    }
}

/// Takes a worker's half.
pub(crate) fn take<A, const W: usize>(seats: &Seats<A, W>, worker: usize) -> Option<Box<Seat<A, W>>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
}

/// An end of a connection, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The address.
    pub address: IpAddr,
    /// The port; of ICMP echoes the identifier.
    pub port: u16,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}:{}", self.port),
            IpAddr::V6(address) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// A connection, as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The worker that has it.
    pub worker: usize,
    /// Its protocol.
    pub protocol: u8,
    /// Who began it.
    pub from: End,
    /// The other.
    pub to: End,
    /// Where it is: of TCP `opening`, `established`, ...; of others whether it was answered.
    pub state: &'static str,
    /// Milliseconds until it ends, unless something comes.
    pub left_ms: u64,
    /// Packets of who began it.
    pub packets_from: u32,
    /// Packets of the other.
    pub packets_to: u32,
    /// The rules that let it in, by which way: in, out; of which version.
    pub rules: [Option<u32>; 2],
    /// Of which version.
    pub version: u32,
    /// The number of its VRF.
    pub vrf: u16,
}

impl Line {
    fn of<A: Net<W>, const W: usize>(
        worker: usize,
        now_ms: u64,
        ends: &crate::filter::net::Ends<A>,
        connection: &Connection,
    ) -> Line {
        let (from, to) = if connection.origin_low { (ends.low, ends.high) } else { (ends.high, ends.low) };
        let kind = Kind::of(ends.protocol);
        // Both ends have the identifier of an echo.
        let port = |port: u16| if kind == Kind::Icmp { ends.low.1 } else { port };
        let rule =
            |at: usize| connection.kept[at].then_some(connection.rules[at]).filter(|rule| *rule != u32::MAX);
        Line {
            worker,
            protocol: ends.protocol,
            from: End { address: from.0.to_ip(), port: port(from.1) },
            to: End { address: to.0.to_ip(), port: port(to.1) },
            state: connection.name(kind),
            left_ms: connection.until_ms - now_ms,
            packets_from: connection.packets[0],
            packets_to: connection.packets[1],
            rules: [rule(0), rule(1)],
            version: connection.version,
            vrf: ends.vrf,
        }
    }

    fn packets(&self) -> u64 {
        u64::from(self.packets_from) + u64::from(self.packets_to)
    }
}

/// Which connections to list.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// With this address at any end.
    pub address: Option<IpAddr>,
    /// Of this protocol.
    pub protocol: Option<u8>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// So many, and up to a few buckets more.
    pub limit: usize,
}

impl Wanted {
    fn takes(&self, line: &Line) -> bool {
        self.protocol.is_none_or(|protocol| protocol == line.protocol)
            && self.address.is_none_or(|address| [line.from.address, line.to.address].contains(&address))
    }
}

/// A set, as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLine {
    /// Its name.
    pub name: String,
    /// IPv4 addresses and prefixes.
    pub v4: usize,
    /// IPv6 addresses and prefixes.
    pub v6: usize,
    /// The files that it is read from.
    pub files: Vec<String>,
    /// Whether only the file changes it.
    pub is_const: bool,
}

/// The control side of a filter. Workers hold views of what it publishes, and never wait for it.
pub struct FilterControl {
    section: FilterSection,
    domain: Domain,
    workers: usize,
    file: Ruleset,
    /// Who hands connections over reads them beside this: they are copied only where they change meanwhile.
    sets: Vec<Arc<AddressSet>>,
    pub(crate) rules: Publisher<Rules>,
    pub(crate) v4: Half<u32, 2>,
    pub(crate) v6: Half<u128, 5>,
    log: Arc<ArrayQueue<LogLine>>,
    lines: VecDeque<LogLine>,
    /// The interfaces' names, by number.
    names: Vec<String>,
}

/// A configuration that was found right, with its rules.
pub struct Prepared {
    names: Vec<String>,
    section: FilterSection,
    file: Ruleset,
    sets: Vec<Arc<AddressSet>>,
    rules: Rules,
}

/// Reads a file of text whose first wrong byte is named. Zeros are what a loss of power, or a copy that was cut, leaves.
fn read_text(path: &Path, most: u64) -> Result<String, FilterError> {
    let file = shown(path);
    let io = |error| FilterError::File { file: file.clone(), error };
    let bytes = tidemill_archive::read_whole(path, most).map_err(io)?;
    let wrong = |before: &[u8], what: &str| {
        let line = before.iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() as u32 + 1;
        FilterError::Rules { file: file.clone(), error: RuleError::new(line, column, what) }
    };
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Err(wrong(&bytes[..at], "a byte of zero: this is no text, or was not written to its end"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        wrong(error.as_bytes().get(..at).unwrap_or_default(), "this is no UTF-8")
    })
}

fn path_of(section: &FilterSection) -> PathBuf {
    section.rules.clone().unwrap_or_default()
}

/// A rule file as it is, without those that it names.
fn read_file(path: &Path) -> Result<Ruleset, FilterError> {
    let text = read_text(path, MOST_BYTES as u64)?;
    read_rules(&text).map_err(|error| FilterError::Rules { file: shown(path), error })
}

/// A rule file with its sets.
fn read_files(path: &Path) -> Result<(Ruleset, Vec<Arc<AddressSet>>), FilterError> {
    let wrong = |error| FilterError::Rules { file: shown(path), error };
    let mut file = read_file(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let named = |name: &str, place: Place, most: u64| {
        let path = folder.join(name);
        let text = read_text(&path, most).map_err(|error| match error {
            // Who names it is to blame.
            FilterError::File { file, error } => wrong(place.error(format!("{file}: {error}"))),
            other => other,
        })?;
        Ok::<_, FilterError>((shown(&path), text))
    };
    let mut loaded = Vec::new();
    for load in &file.loads {
        let (file, text) = named(&load.file, load.place, MOST_BYTES as u64)?;
        loaded.push(load.rules(&text).map_err(|error| FilterError::Rules { file, error })?);
    }
    file.put_in(loaded).map_err(wrong)?;
    let mut sets = Vec::new();
    for set in &file.sets {
        let mut networks = set.networks.clone();
        for (name, place) in &set.files {
            let (file, text) = named(name, *place, MOST_SET_BYTES)?;
            read_set(&text, &mut networks).map_err(|error| FilterError::Rules { file, error })?;
        }
        sets.push(Arc::new(AddressSet::of(&networks)));
    }
    Ok((file, sets))
}

/// A configuration with its rule file and the files of its sets, read. Nothing has changed yet, and a slow disk has held up nobody.
#[derive(Debug)]
pub struct FilterFiles {
    section: FilterSection,
    times: Times,
    path: PathBuf,
    file: Ruleset,
    sets: Vec<Arc<AddressSet>>,
}

/// A rule file, and those that its tables and lists are read from.
fn named(path: PathBuf, file: &Ruleset) -> impl Iterator<Item = PathBuf> + '_ {
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let tables = file.sets.iter().flat_map(|set| &set.files).map(|(name, _)| name);
    let lists = file.loads.iter().map(|load| &load.file);
    std::iter::once(path).chain(tables.chain(lists).map(move |name| folder.join(name)))
}

impl FilterFiles {
    /// The files that would be read: of these the rule file alone is.
    ///
    /// # Errors
    /// Which key is wrong, or which place of the rule file.
    pub fn names(section: &FilterSection) -> Result<Vec<PathBuf>, FilterError> {
        settings::check(section)?;
        let path = path_of(section);
        let file = read_file(&path)?;
        Ok(named(path, &file).collect())
    }

    /// The files that were read.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        named(self.path.clone(), &self.file)
    }

    /// Reads them.
    ///
    /// # Errors
    /// Which key is wrong, or which place of which file.
    pub fn read(section: &FilterSection) -> Result<Self, FilterError> {
        let (_, times) = settings::check(section)?;
        let path = path_of(section);
        let (file, sets) = read_files(&path)?;
        Ok(FilterFiles { section: section.clone(), times, path, file, sets })
    }
}

fn names(interfaces: &Interfaces) -> Vec<String> {
    interfaces.iter().map(|interface| interface.name.clone()).collect()
}

/// What rules are made for.
struct Surroundings<'a> {
    interfaces: &'a Interfaces,
    workers: usize,
    domain: &'a Domain,
}

fn make(
    section: &FilterSection,
    times: Times,
    (file, sets): (&Ruleset, &[Arc<AddressSet>]),
    path: &Path,
    around: &Surroundings<'_>,
    version: u32,
) -> Result<Rules, FilterError> {
    let vrfs: Vec<u16> = around.interfaces.iter().map(|interface| interface.vrf).collect();
    let frame = Frame {
        interface: &|name| around.interfaces.by_name(name),
        vrfs: &vrfs,
        workers: around.workers,
        domain: around.domain,
        times,
        recheck: section.recheck,
        log_per_s: section.log_per_s,
    };
    Rules::new(file, sets, &frame, version).map_err(|error| FilterError::Rules { file: shown(path), error })
}

impl FilterControl {
    /// Checks a configuration and its rule file against the interfaces, and makes the tables of so many workers of `domain`.
    ///
    /// # Errors
    /// Which key or which place of the rule file is wrong, and what to do; tables that are too large.
    pub fn new(
        section: &FilterSection,
        interfaces: &Interfaces,
        workers: usize,
        domain: &Domain,
    ) -> Result<Self, FilterError> {
        // Nobody can foresee it: an attacker picks the keys.
        let random = |n: u64| u128::from(RandomState::new().hash_one(n));
        Self::with_secret(section, interfaces, workers, domain, random(0) << 64 | random(1))
    }

    /// The same with a secret of the caller's, for runs that are to be repeated.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_secret(
        section: &FilterSection,
        interfaces: &Interfaces,
        workers: usize,
        domain: &Domain,
        secret: u128,
    ) -> Result<Self, FilterError> {
        let (plan, times) = settings::check(section)?;
        let path = path_of(section);
        let (file, sets) = read_files(&path)?;
        let around = Surroundings { interfaces, workers, domain };
        let rules = make(section, times, (&file, &sets), &path, &around, 1)?;
        let log = Arc::new(ArrayQueue::new(LOG_ROOM));
        Ok(FilterControl {
            section: section.clone(),
            domain: domain.clone(),
            workers,
            file,
            sets,
            rules: Publisher::new(domain, rules),
            v4: Half::new(&plan, workers, secret, &log)?,
            v6: Half::new(&plan, workers, !secret, &log)?,
            log,
            lines: VecDeque::with_capacity(LOG_KEPT),
            names: names(interfaces),
        })
    }

    /// The configuration that holds.
    pub fn section(&self) -> &FilterSection {
        &self.section
    }

    /// What the configuration says that may not be meant.
    pub fn remarks(&self) -> Vec<String> {
        // What a loss of power leaves of a file, too.
        let is_empty = self.rules().list().is_empty();
        is_empty.then(|| "filter.rules: has no rules: everything passes".into()).into_iter().collect()
    }

    /// Workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// What workers go by.
    pub fn rules(&self) -> &Rules {
        self.rules.current()
    }

    fn next_version(&self) -> u32 {
        self.rules().version().wrapping_add(1)
    }

    /// Takes over a new configuration with its rules, or nothing of it. Returns the version.
    ///
    /// # Errors
    /// As of [`prepare`](Self::prepare).
    pub fn take(&mut self, files: FilterFiles, interfaces: &Interfaces) -> Result<u32, FilterError> {
        let prepared = self.prepare(files, interfaces)?;
        self.commit(prepared);
        Ok(self.rules().version())
    }

    /// Checks a new configuration with its rules against the interfaces that there will be; nothing changes yet. Sets of which the file says nothing have what they have now.
    ///
    /// # Errors
    /// Which key cannot change, or which place of the file is wrong.
    pub fn prepare(&self, files: FilterFiles, interfaces: &Interfaces) -> Result<Prepared, FilterError> {
        let FilterFiles { section, times, path, file, mut sets } = files;
        for (set, addresses) in file.sets.iter().zip(&mut sets).filter(|(set, _)| set.is_open()) {
            if let Some(now) = self.shared(&set.name) {
                addresses.clone_from(now);
            }
        }
        for (key, same) in section.fixed_keys(&self.section) {
            if !same {
                return Err(FilterError::Restart(key));
            }
        }
        let around = Surroundings { interfaces, workers: self.workers, domain: &self.domain };
        let rules = make(&section, times, (&file, &sets), &path, &around, self.next_version())?;
        Ok(Prepared { names: names(interfaces), section, file, sets, rules })
    }

    /// Takes over what was prepared; nothing else may have been changed since.
    pub fn commit(&mut self, prepared: Prepared) {
        let Prepared { names, section, file, sets, rules } = prepared;
        (self.names, self.section, self.file, self.sets) = (names, section, file, sets);
        self.rules.publish(rules);
    }

    /// The interfaces have changed: they have other numbers perhaps.
    ///
    /// # Errors
    /// Rules name one that is not there any more; nothing has changed then.
    pub fn interfaces(&mut self, interfaces: &Interfaces) -> Result<(), FilterError> {
        // A link that comes or goes, or another address, is nothing to rules: what they have counted stays.
        let vrfs = interfaces.iter().map(|interface| interface.vrf);
        if names(interfaces) == self.names && vrfs.eq(self.rules().vrfs().iter().copied()) {
            return Ok(());
        }
        let (_, times) = settings::check(&self.section)?;
        let path = path_of(&self.section);
        let around = Surroundings { interfaces, workers: self.workers, domain: &self.domain };
        let version = self.next_version();
        let rules = make(&self.section, times, (&self.file, &self.sets), &path, &around, version)?;
        self.names = names(interfaces);
        self.rules.publish(rules);
        Ok(())
    }

    /// What reads all connections and tables, with nothing of this locked or copied meanwhile.
    pub fn exporter(&self) -> Exporter {
        let all = self.file.sets.iter().zip(&self.sets);
        let filled = all.filter(|(set, now)| set.is_open() && !now.is_empty());
        let tables = filled.map(|(set, now)| (set.name.clone(), now.clone())).collect();
        Exporter { interfaces: self.names.clone(), v4: self.v4.readers(), v6: self.v6.readers(), tables }
    }

    /// Goes on with the tables of an image, of which the rule file says nothing, and with its connections: those that the rules allow. Before the graph is made.
    ///
    /// # Errors
    /// The image is none; workers have begun already.
    pub fn import(&mut self, now_ms: u64, image: &[u8]) -> Result<Taken, FilterError> {
        let Connections { interfaces, v4, v6, tables } = Connections::decode(image)?;
        if self.v4.has_begun() || self.v6.has_begun() {
            return Err(FilterError::Begun);
        }
        let (all_tables, tables) = (tables.len(), self.fill(tables)?);
        let here = |name: &String| self.names.iter().zip(0..).find(|(own, _)| *own == name).map(|(_, n)| n);
        let interfaces: Vec<Option<u16>> = interfaces.iter().map(here).collect();
        let (rules, all) = (self.rules.current(), v4.len() + v6.len());
        let v4 = self.v4.restore(now_ms, rules, &v4, &interfaces);
        let v6 = self.v6.restore(now_ms, rules, &v6, &interfaces);
        let (Some(v4), Some(v6)) = (v4, v6) else { return Err(FilterError::Begun) };
        Ok(Taken { connections: all - v4 - v6, tables, left_out: v4 + v6 + all_tables - tables })
    }

    /// Has in these tables what they say, where the rule file does not; in how many.
    fn fill(&mut self, tables: Vec<(String, Arc<AddressSet>)>) -> Result<usize, FilterError> {
        let (mut sets, mut filled) = (self.sets.clone(), 0);
        for (name, addresses) in tables {
            let mut open = self.file.sets.iter().zip(&mut sets).filter(|(set, _)| set.is_open());
            if let Some((_, set)) = open.find(|(set, _)| set.name == name) {
                *set = addresses;
                filled += 1;
            }
        }
        if sets == self.sets {
            return Ok(filled);
        }
        let rules = self.rules().with_sets(&sets, &self.domain, self.next_version());
        let rules = rules.map_err(|error| FilterError::Set(format!("filter.handover: {error}")))?;
        self.rules.publish(rules);
        self.sets = sets;
        Ok(filled)
    }

    /// Puts addresses into a set; returns how many were not there. In a set that has a file or a list they stay until that is read again.
    ///
    /// # Errors
    /// There is no such set, or it is `const`.
    pub fn add_to_set(&mut self, name: &str, networks: &[Network]) -> Result<usize, FilterError> {
        self.change(name, networks, [AddressSet::add, AddressSet::delete])
    }

    /// Takes addresses out of a set; returns how many were there. Those of its file or list are there again when that is read again.
    ///
    /// # Errors
    /// There is no such set, or it is `const`.
    pub fn delete_from_set(&mut self, name: &str, networks: &[Network]) -> Result<usize, FilterError> {
        self.change(name, networks, [AddressSet::delete, AddressSet::add])
    }

    /// Changes a set, or undoes that if no tables can be made of it; returns how many addresses are new there, or gone.
    fn change(
        &mut self,
        name: &str,
        networks: &[Network],
        [change, undo]: [fn(&mut AddressSet, Network) -> bool; 2],
    ) -> Result<usize, FilterError> {
        let Some(number) = self.file.sets.iter().position(|set| set.name == name) else {
            let names: Vec<String> = self.file.sets.iter().map(|set| format!("<{}>", set.name)).collect();
            let there = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            return Err(FilterError::Set(format!("there is no table <{name}>: {there}")));
        };
        if self.file.sets[number].is_const {
            return Err(FilterError::Set(format!("<{name}> is const: change its file, and load that")));
        }
        let set = Arc::make_mut(&mut self.sets[number]);
        let changed: Vec<Network> =
            networks.iter().copied().filter(|network| change(set, *network)).collect();
        if changed.is_empty() {
            return Ok(0);
        }
        match self.rules().with_sets(&self.sets, &self.domain, self.next_version()) {
            Ok(rules) => {
                self.rules.publish(rules);
                Ok(changed.len())
            }
            Err(error) => {
                let set = Arc::make_mut(&mut self.sets[number]);
                changed.into_iter().for_each(|network| {
                    undo(set, network);
                });
                Err(FilterError::Set(format!("<{name}>: {error}")))
            }
        }
    }

    /// Every rule with what it has counted since the file was loaded.
    pub fn rule_list(&self) -> impl Iterator<Item = (&Rule, Hits)> + '_ {
        let rules = self.rules();
        rules.list().iter().enumerate().map(|(number, rule)| (rule, rules.hits(number)))
    }

    /// Every set.
    pub fn set_list(&self) -> Vec<SetLine> {
        let line = |(set, addresses): (&crate::filter::text::Set, &Arc<AddressSet>)| SetLine {
            name: set.name.clone(),
            v4: addresses.v4.len(),
            v6: addresses.v6.len(),
            files: set.files.iter().map(|(file, _)| file.clone()).collect(),
            is_const: set.is_const,
        };
        self.file.sets.iter().zip(&self.sets).map(line).collect()
    }

    /// A set's addresses, in order; `None`: there is no such set.
    pub fn set(&self, name: &str) -> Option<&AddressSet> {
        self.shared(name).map(Arc::as_ref)
    }

    fn shared(&self, name: &str) -> Option<&Arc<AddressSet>> {
        let number = self.file.sets.iter().position(|set| set.name == name)?;
        self.sets.get(number)
    }

    /// Frees what no worker sees any more, and collects what was logged: those lines.
    pub fn poll(&mut self) -> Vec<LogLine> {
        self.rules.collect();
        let new: Vec<LogLine> = std::iter::from_fn(|| self.log.pop()).take(LOG_ROOM).collect();
        for line in &new {
            if self.lines.len() == LOG_KEPT {
                self.lines.pop_front();
            }
            self.lines.push_back(*line);
        }
        new
    }

    /// The last lines that were logged, the oldest first.
    pub fn log_lines(&self) -> impl Iterator<Item = &LogLine> + '_ {
        self.lines.iter()
    }

    /// All numbers, of all workers together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.v4.workers.iter().for_each(|(_, board)| board.add_to(&mut sum));
        self.v6.workers.iter().for_each(|(_, board)| board.add_to(&mut sum));
        sum
    }

    /// Visits connections of a worker's table from a bucket on: those of IPv4 first, then those of IPv6.
    fn scan(
        &self,
        table: usize,
        bucket: usize,
        buckets: usize,
        now_ms: u64,
        visit: impl FnMut(Line),
    ) -> usize {
        match table.checked_sub(self.workers) {
            None => self.v4.scan(table, bucket, buckets, now_ms, visit),
            Some(worker) => self.v6.scan(worker, bucket, buckets, now_ms, visit),
        }
    }

    /// A page of connections in no order, and the cursor of the next one, if there is one.
    pub fn states(&self, wanted: &Wanted, now_ms: u64) -> (Vec<Line>, Option<u64>) {
        let mut lines = Vec::new();
        let all = 2 * self.workers;
        let (mut table, mut bucket) =
            wanted.cursor.map_or((0, 0), |cursor| ((cursor >> 48) as usize, cursor as u32 as usize));
        while table < all && lines.len() < wanted.limit.max(1) {
            bucket = self.scan(table, bucket, 64, now_ms, |line| {
                if wanted.takes(&line) {
                    lines.push(line);
                }
            });
            table += usize::from(bucket == 0);
        }
        (lines, (table < all).then_some((table as u64) << 48 | bucket as u64))
    }

    /// The connections with the most packets, the most first.
    pub fn top(&self, count: usize, now_ms: u64) -> Vec<Line> {
        let mut top: Vec<Line> = Vec::new();
        for table in 0..2 * self.workers {
            let mut bucket = 0;
            loop {
                bucket = self.scan(table, bucket, 256, now_ms, |line| {
                    top.push(line);
                });
                top.sort_by_key(|line| std::cmp::Reverse(line.packets()));
                top.truncate(count);
                if bucket == 0 {
                    break;
                }
            }
        }
        top
    }
}
