//! Cases for the book: rules that replace each other, files, loose and strict deletes, timeouts, groups and meters, tables that are grouped otherwise, at
//! random and under caches. After every step the book has the rules that an obviously right list has, and every packet of a burst goes the way of the
//! linear oracle of what was committed last.

use super::piped::{TABLES, entry, packets};
use super::{Rng, Shape, shrink};
use crate::cache::{Cache, Settings};
use crate::flows::{Item, Place};
use crate::pipeline::{
    Action, BookError, Bucket, FlowFilter, FlowSpec, Group, GroupKind, Instructions, Meter, MeterRate,
    MeterUnit, Output, Pipeline, PipelineSettings, Walker, WayId, Ways, check_action,
};
use crate::rule::{Match, Rank, Rule};
use crate::tuple::Grouping;
use std::collections::BTreeSet;
use tidemill_lookup::qsbr::Domain;

/// What is done, in order.
#[derive(Debug, Clone)]
pub enum BookedStep {
    /// Put a rule in.
    Add(FlowSpec),
    /// Take rules out.
    Delete(FlowFilter),
    /// Take out just the rule at this place of the list.
    Strict(usize),
    /// Take a file in; with the mark, all else goes.
    Load(Vec<Item>, bool),
    /// Put a group in; false: take it out.
    Group(u32, bool),
    /// Put a meter in; false: take it out.
    Meter(u32, bool),
    /// Group tables by their rules.
    Choose(bool),
    /// Show the changes.
    Commit,
    /// Packets of this seed, out of so many.
    Burst(u64, usize),
    /// So many seconds pass; rules and idle cached decisions go.
    Time(u32),
}

/// A case for the book.
#[derive(Debug, Clone)]
pub struct BookedCase {
    /// How rules are grouped at first.
    pub grouping: Grouping,
    /// Room for rules.
    pub rules: usize,
    /// How large the cache is.
    pub settings: Settings,
    /// What is done.
    pub steps: Vec<BookedStep>,
}

const SECOND: u64 = 1_000_000_000;

/// Runs the case of a seed.
///
/// # Errors
/// What differed first, with as few steps as it needs.
pub fn run_booked(seed: u64, shape: Shape, grouping: Grouping, steps: usize) -> Result<(), String> {
    BookedCase::random(seed, shape, grouping, steps).check()
}

fn group(actions: Vec<Action>) -> Group {
    Group::new(GroupKind::All, vec![Bucket { weight: 0, actions }])
}

fn rate(rate: u64) -> MeterRate {
    MeterRate { unit: MeterUnit::Packets, rate, burst: rate }
}

fn spec(shape: Shape, rng: &mut Rng) -> FlowSpec {
    let (Rule { matches, priority }, entry) = (shape.rule(rng), entry(shape, rng));
    let Instructions { mut actions, goto } = entry.instructions;
    actions.retain(|action| check_action(action, &matches).is_ok());
    match rng.below(8) {
        0 => actions.push(Action::Group(rng.below(3) as u32)),
        1 => actions.insert(0, Action::Meter(rng.below(3) as u32)),
        _ => {}
    }
    let timeout = |rng: &mut Rng| if rng.once_in(5) { 1 + rng.below(4) as u16 } else { 0 };
    FlowSpec {
        table: entry.table,
        // Few priorities: rules replace each other.
        priority: (priority % 4) as u16,
        matches,
        instructions: Instructions { actions, goto: goto.filter(|&next| next < TABLES) },
        cookie: rng.below(3) as u64,
        idle_s: timeout(rng),
        hard_s: timeout(rng),
    }
}

/// One of few rules, so that they come again.
fn known(shape: Shape, (pool, size): (u64, usize), rng: &mut Rng) -> FlowSpec {
    let mut same = Rng::new(pool << 32 | rng.below(size) as u64);
    let mut spec = spec(shape, &mut same);
    if rng.once_in(3) {
        spec.instructions.actions = vec![Action::Output(Output::Port(1 + rng.below(3) as u16))];
    }
    spec
}

impl BookedCase {
    /// The case of a seed.
    pub fn random(seed: u64, shape: Shape, grouping: Grouping, steps: usize) -> Self {
        let mut rng = Rng::new(seed);
        let tiny = Settings {
            exact: 31,
            signatures: 16,
            megaflows: 31,
            masks: 1 + rng.below(8),
            filters: rng.once_in(2),
        };
        let large =
            Settings { exact: 500, signatures: 300, megaflows: 2000, masks: 100, filters: rng.once_in(2) };
        let settings = if rng.once_in(2) { tiny } else { large };
        let rules = if rng.once_in(3) { 12 } else { 2000 };
        // At the brim there are so few that files say them as they are.
        let pool = (seed, if rules == 12 { 5 } else { 24 });
        let mut step = |_| match rng.below(20) {
            0..5 => BookedStep::Add(known(shape, pool, &mut rng)),
            5 => {
                let like = known(shape, pool, &mut rng);
                let table = (!rng.once_in(3)).then_some(like.table);
                let matches = if rng.once_in(2) { Match::any() } else { like.matches };
                let cookie = (like.cookie, if rng.once_in(2) { 3 } else { 0 });
                BookedStep::Delete(FlowFilter { table, strict: None, matches, cookie })
            }
            6 => BookedStep::Strict(rng.below(1 << 20)),
            7 | 8 => {
                let (mut items, twice) = (Vec::new(), rng.once_in(8));
                for _ in 0..rng.below(12) {
                    let spec = known(shape, pool, &mut rng);
                    let is_same = |item: &Item| matches!(item, Item::Flow(other) if same(other, &spec));
                    if twice || !items.iter().any(is_same) {
                        items.push(Item::Flow(Box::new(spec)));
                    }
                }
                for number in 0..3 {
                    match rng.below(4) {
                        0 => items.push(Item::Group(number, group(Vec::new()))),
                        1 => items.insert(0, Item::Meter(number, rate(7))),
                        _ => {}
                    }
                }
                BookedStep::Load(items, rng.once_in(3))
            }
            9 => BookedStep::Group(rng.below(3) as u32, !rng.once_in(3)),
            10 => BookedStep::Meter(rng.below(3) as u32, !rng.once_in(3)),
            11 => BookedStep::Choose(rng.once_in(2)),
            12..15 => BookedStep::Commit,
            15..19 => BookedStep::Burst(rng.below(3) as u64, 20 + rng.below(60)),
            _ => BookedStep::Time(rng.below(3) as u32),
        };
        BookedCase { grouping, rules, settings, steps: (0..steps).map(&mut step).collect() }
    }

    fn check(&self) -> Result<(), String> {
        let Err(what) = self.run() else { return Ok(()) };
        let fails = |steps: &[BookedStep]| BookedCase { steps: steps.to_vec(), ..*self }.run().is_err();
        let small = BookedCase { steps: shrink(&self.steps, fails), ..*self };
        Err(format!("{what}\nthe shortest: {:?}\n{small:#?}", small.run().err()))
    }

    /// Runs the steps.
    ///
    /// # Errors
    /// What differed first.
    pub fn run(&self) -> Result<(), String> {
        let domain = Domain::new();
        let settings = PipelineSettings { tables: TABLES, rules: self.rules, grouping: self.grouping };
        let mut book = Pipeline::new(&domain, settings);
        let (view, mut reader, mut hits) = (book.view(), domain.register(), book.worker());
        let mut cache = Cache::new(self.settings, 7).map_err(|error| error.to_string())?;
        let (mut ways, mut rng, mut now_s) = (Ways::new(500), Rng::new(1), 0_u32);
        let (mut list, mut oracle) = (List::default(), book.oracle());
        for step in &self.steps {
            let now_ns = u64::from(now_s) * SECOND;
            match step {
                BookedStep::Commit => {
                    book.commit();
                    oracle = book.oracle();
                }
                BookedStep::Choose(all) => {
                    book.choose_groupings(*all);
                }
                BookedStep::Burst(seed, pool) => {
                    let rules: Vec<Rule> = list.rules().collect();
                    let keys = packets(&rules, *seed, *pool, &mut rng);
                    let mut out = vec![WayId(0); keys.len()];
                    let snapshot = view.get(&reader);
                    cache.classify(Walker::new(snapshot, &mut ways), now_s, &keys, &mut out);
                    for (key, &found) in keys.iter().zip(&out) {
                        let (found, expected) = (*ways.get(found), oracle.way(key));
                        if found != expected {
                            return Err(format!("{key:?}: {found:?}, oracle {expected:?}"));
                        }
                        for id in found.rules() {
                            hits.add(Rank::new(0, id), 60);
                            // One that was replaced and is not published yet counts for nobody.
                            book.flow(id).into_iter().for_each(|flow| list.count(&flow.spec));
                        }
                    }
                    reader.quiescent();
                }
                BookedStep::Time(seconds) => {
                    now_s += seconds;
                    let walker = Walker::new(view.get(&reader), &mut ways);
                    cache.maintain(walker, now_s, 2, 2);
                    reader.quiescent();
                    book.expire(u64::from(now_s) * SECOND);
                    list.expire(now_s);
                }
                change => list.change(change, &mut book, now_ns, now_s)?,
            }
            list.compare(&book).map_err(|what| format!("after {step:?}: {what}"))?;
            cache.check()?;
            ways.check(&cache.held())?;
        }
        Ok(())
    }
}

/// A rule of the list.
#[derive(Debug, Clone)]
struct Listed {
    spec: FlowSpec,
    since_s: u32,
    used_s: u32,
    packets: u64,
    seen: u64,
}

/// What the book should have.
#[derive(Debug, Clone, Default)]
struct List {
    flows: Vec<Listed>,
    groups: BTreeSet<u32>,
    meters: BTreeSet<u32>,
}

/// Whether, of rules of one table and priority, the earlier ones in the file win.
fn in_order(specs: &[&FlowSpec], book: &Pipeline) -> Result<(), String> {
    let number = |spec: &FlowSpec| book.flows().find(|(_, flow)| flow.spec == *spec).map(|(id, _)| id);
    let rank = |spec: &FlowSpec| number(spec).and_then(|id| book.rank(id));
    for (at, one) in specs.iter().enumerate() {
        for other in &specs[at + 1..] {
            let equal = (one.table, one.priority) == (other.table, other.priority);
            if equal && rank(one) >= rank(other) {
                return Err(format!("{one:?} is before {other:?} in the file, and behind it in the book"));
            }
        }
    }
    Ok(())
}

fn same(one: &FlowSpec, other: &FlowSpec) -> bool {
    (one.table, one.priority, &one.matches) == (other.table, other.priority, &other.matches)
}

impl List {
    fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        self.flows.iter().map(|flow| Rule { matches: flow.spec.matches, priority: flow.spec.priority.into() })
    }

    fn count(&mut self, spec: &FlowSpec) {
        let flow = self.flows.iter_mut().find(|flow| flow.spec == *spec);
        flow.into_iter().for_each(|flow| flow.packets += 1);
    }

    fn put(&mut self, spec: &FlowSpec, now_s: u32) {
        self.flows.retain(|flow| !same(&flow.spec, spec));
        self.flows.push(Listed { spec: spec.clone(), since_s: now_s, used_s: now_s, packets: 0, seen: 0 });
    }

    fn expire(&mut self, now_s: u32) {
        let over = |since: u32, timeout: u16| timeout > 0 && now_s - since >= timeout.into();
        for flow in &mut self.flows {
            if flow.packets != flow.seen {
                (flow.seen, flow.used_s) = (flow.packets, now_s);
            }
        }
        self.flows
            .retain(|flow| !over(flow.since_s, flow.spec.hard_s) && !over(flow.used_s, flow.spec.idle_s));
    }

    /// Whether what a rule leads to is there.
    fn leads(&self, spec: &FlowSpec) -> bool {
        spec.instructions.actions.iter().all(|action| match action {
            Action::Group(number) => self.groups.contains(number),
            Action::Meter(number) => self.meters.contains(number),
            _ => true,
        })
    }

    fn without(&mut self, action: Action) {
        self.flows.retain(|flow| !flow.spec.instructions.actions.contains(&action));
    }

    /// Changes both.
    fn change(
        &mut self,
        step: &BookedStep,
        book: &mut Pipeline,
        now_ns: u64,
        now_s: u32,
    ) -> Result<(), String> {
        let unlike = |what: &str, got: String| Err(format!("{what}, and the book says {got}"));
        match step {
            BookedStep::Add(spec) => match (book.add(spec.clone(), now_ns), self.leads(spec)) {
                (Ok(_), true) => self.put(spec, now_s),
                (Err(BookError::NoGroup(_) | BookError::NoMeter(_)), false)
                | (Err(BookError::Full(_)), _) => {}
                (got, leads) => {
                    return unlike(&format!("a rule leads somewhere: {leads}"), format!("{got:?}"));
                }
            },
            BookedStep::Delete(filter) => {
                let before = self.flows.len();
                self.flows.retain(|flow| !filter.wants(&flow.spec));
                let (gone, expected) = (book.delete(filter).len(), before - self.flows.len());
                if gone != expected {
                    return unlike(&format!("{expected} rules are deleted"), gone.to_string());
                }
            }
            BookedStep::Strict(at) if !self.flows.is_empty() => {
                let FlowSpec { table, priority, matches, .. } =
                    self.flows.swap_remove(at % self.flows.len()).spec;
                let filter =
                    FlowFilter { table: Some(table), strict: Some(priority), matches, cookie: (0, 0) };
                let gone = book.delete(&filter).len();
                if gone != 1 {
                    return unlike("one rule is deleted", gone.to_string());
                }
            }
            BookedStep::Load(items, replace) => return self.load(items, *replace, book, (now_ns, now_s)),
            BookedStep::Group(number, true) => {
                book.set_group(*number, group(Vec::new())).map_err(|error| error.to_string())?;
                self.groups.insert(*number);
            }
            BookedStep::Group(number, false) => {
                book.delete_group(*number);
                self.groups.remove(number);
                self.without(Action::Group(*number));
            }
            BookedStep::Meter(number, true) => {
                book.set_meter(*number, Meter::new(rate(5)));
                self.meters.insert(*number);
            }
            BookedStep::Meter(number, false) => {
                book.delete_meter(*number);
                self.meters.remove(number);
                self.without(Action::Meter(*number));
            }
            _ => {}
        }
        Ok(())
    }

    fn load(
        &mut self,
        items: &[Item],
        replace: bool,
        book: &mut Pipeline,
        (now_ns, now_s): (u64, u32),
    ) -> Result<(), String> {
        let mut after =
            if replace { List { flows: self.flows.clone(), ..List::default() } } else { self.clone() };
        for item in items {
            match item {
                Item::Group(number, _) => after.groups.insert(*number),
                Item::Meter(number, _) => after.meters.insert(*number),
                Item::Flow(_) => false,
            };
        }
        let specs = || {
            items.iter().filter_map(|item| match item {
                Item::Flow(spec) => Some(&**spec),
                _ => None,
            })
        };
        let leads = specs().all(|spec| after.leads(spec));
        let twice = specs().enumerate().any(|(at, spec)| specs().take(at).any(|other| same(spec, other)));
        for spec in specs() {
            match after.flows.iter_mut().find(|flow| flow.spec == *spec) {
                Some(flow) if !replace => (flow.since_s, flow.used_s) = (now_s, now_s),
                Some(_) => {}
                None => after.put(spec, now_s),
            }
        }
        if replace {
            after.flows.retain(|flow| specs().any(|spec| same(spec, &flow.spec)));
        }
        let placed = items.iter().map(|item| (Place::default(), item.clone())).collect();
        match (book.load(placed, replace, now_ns).map_err(|error| error.error), leads) {
            (Ok(_), true) if !twice => {
                if replace {
                    in_order(&specs().collect::<Vec<_>>(), book)?;
                }
                *self = after;
            }
            (Err(BookError::Twice { .. }), _) if twice => {}
            (Err(BookError::NoGroup(_) | BookError::NoMeter(_)), false)
            | (Err(BookError::FullAtOnce { .. }), true) => {}
            (got, leads) => {
                return Err(format!("a file leads somewhere: {leads}, and the book says {got:?}"));
            }
        }
        Ok(())
    }

    fn compare(&self, book: &Pipeline) -> Result<(), String> {
        let [mut expected, mut found] = [
            self.flows.iter().map(|flow| format!("{:?}", flow.spec)).collect::<Vec<_>>(),
            book.flows().map(|(_, flow)| format!("{:?}", flow.spec)).collect(),
        ];
        expected.sort_unstable();
        found.sort_unstable();
        if found != expected {
            return Err(format!("rules {found:#?}, expected {expected:#?}"));
        }
        let shared = book.shared();
        let (groups, meters): (BTreeSet<u32>, BTreeSet<u32>) =
            (shared.groups.keys().copied().collect(), shared.meters.keys().copied().collect());
        if (&groups, &meters) != (&self.groups, &self.meters) {
            return Err(format!("groups {groups:?}, meters {meters:?}: expected {self:?}"));
        }
        Ok(())
    }
}
