//! The events: queries arrive, elements take their steps one by one, the host answers. Time is in picoseconds; the order of events at one time is the order
//! in which they were put down, so that a run is the same every time.
//!
//! What an element does for a query is a list of steps. Two of them wait for others: an access takes the memory network, a read the DRAM's channel.

use super::queries::{Ask, Place, Query};
use super::{Config, ConfigError, FreeList, in_range};
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::str::FromStr;

/// Part of the queries, from the first, before rates and latencies count: a tenth.
const WARM: usize = 10;

/// The shape of ETC's gaps; their scale, 16.0292 us, is a rate of 52,718 a second.
const ETC_SHAPE: f64 = 0.154_971;

/// What lies between queries, in the mean as much as the rate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaps {
    /// All the same, as of a generator.
    Even,
    /// Exponential, as of many clients.
    Random,
    /// As of the workload ETC: generalized Pareto (Atikoglu et al., SIGMETRICS 2012), more uneven than exponential ones.
    Etc,
}

impl Gaps {
    const ALL: [Gaps; 3] = [Gaps::Even, Gaps::Random, Gaps::Etc];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Gaps::Even => "even",
            Gaps::Random => "random",
            Gaps::Etc => "etc",
        }
    }

    /// One, by a number from 0 to below 1, where their mean is 1.
    fn draw(self, unit: f64) -> f64 {
        match self {
            Gaps::Even => 1.0,
            Gaps::Random => -(1.0 - unit).ln(),
            Gaps::Etc => (1.0 - ETC_SHAPE) * ((1.0 - unit).powf(-ETC_SHAPE) - 1.0) / ETC_SHAPE,
        }
    }
}

impl FromStr for Gaps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let gaps = Gaps::ALL.into_iter().find(|gaps| gaps.name() == text);
        gaps.ok_or_else(|| format!("{text}: no such gaps: use even, random or etc"))
    }
}

/// How queries come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// How many, M/s; no more come than the port passes.
    pub offered_mqps: f64,
    /// What lies between them.
    pub gaps: Gaps,
    /// Of the gaps.
    pub seed: u64,
}

/// What came of it. `queries` is the sum of what was answered and what was lost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// That came.
    pub queries: u64,
    /// Answered from the shared cache.
    pub on_chip: u64,
    /// From the DRAM.
    pub dram: u64,
    /// By the host; sets and deletes too.
    pub host: u64,
    /// Lost before an element whose FIFO was full.
    pub lost_at_elements: u64,
    /// Lost before the host.
    pub lost_at_host: u64,
    /// That came, M/s.
    pub offered_mqps: f64,
    /// Answered by LaKe and by the host while queries came, M/s.
    pub mqps: f64,
    /// Of it, by the host.
    pub host_mqps: f64,
    /// From the wire to the wire, in the mean.
    pub mean_us: f64,
    /// The least.
    pub least_us: f64,
    /// What one in a hundred exceeds.
    pub p99_us: f64,
    /// The most.
    pub most_us: f64,
    /// Reads of the DRAM.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// A read in the mean, with its wait for the channel.
    pub read_ns: f64,
    /// The slowest.
    pub read_most_ns: f64,
    /// Part of the time that elements were at work, in the mean, while queries came.
    pub busy: f64,
}

/// What an element does next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Parse,
    /// Over the memory network, to the shared cache or the memory's controller.
    Access,
    /// And on to the DRAM, if there is one.
    Read,
    Write,
    Compare,
    Allocate,
    Reply,
}

/// What an element works at.
#[derive(Debug, Clone, Copy)]
struct Job {
    query: u32,
    /// Whether it is the host's reply.
    reply: bool,
}

/// A get's bucket and chunk; a set's; what is asked where there is nothing.
fn steps(query: Query, reply: bool) -> &'static [Step] {
    use Step::{Access, Allocate, Compare, Parse, Read, Reply, Write};
    match (query.ask, query.place, reply) {
        (Ask::Get, Place::OnChip, false) => &[Parse, Access, Compare, Access, Reply],
        (Ask::Get, Place::Dram, false) => &[Parse, Access, Read, Compare, Access, Read, Reply],
        (Ask::Get | Ask::Delete, Place::Nowhere, false) => &[Parse, Access, Read, Compare, Reply],
        (Ask::Set, Place::OnChip, false) => &[Parse, Access, Compare, Access, Write, Reply],
        (Ask::Set, Place::Dram, false) => &[Parse, Access, Read, Compare, Access, Write, Reply],
        (Ask::Set, Place::Nowhere, false) => {
            &[Parse, Access, Read, Compare, Allocate, Access, Write, Access, Write, Reply]
        }
        (Ask::Delete, Place::OnChip, false) => &[Parse, Access, Compare, Access, Write, Reply],
        (Ask::Delete, Place::Dram, false) => &[Parse, Access, Read, Compare, Access, Write, Reply],
        (Ask::Get, _, true) => &[Parse, Allocate, Access, Write, Access, Write, Reply],
        (Ask::Set | Ask::Delete, _, true) => &[Parse, Reply],
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    Step(usize),
    HostReply(u32),
}

#[derive(Default)]
struct Element {
    /// New queries.
    fifo: VecDeque<u32>,
    /// Replies of the host, which go first. As many as the host may have in hand.
    replies: VecDeque<u32>,
    /// With the steps that are left.
    job: Option<(Job, &'static [Step])>,
    since_ps: u64,
}

struct Engine<'a> {
    config: &'a Config,
    queries: &'a [Query],
    arrived_ps: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    elements: Vec<Element>,
    turn: usize,
    network_free_ps: u64,
    channel_free_ps: u64,
    host_free_ps: u64,
    /// The time in which rates count.
    counted_ps: (u64, u64),
    answered: (u64, u64),
    busy_ps: u64,
    latencies_ps: Vec<u64>,
    read_ps: u64,
    read_most_ps: u64,
    outcome: Outcome,
}

/// Runs all queries until each is answered or lost.
///
/// # Errors
/// See [`ConfigError`].
pub fn simulate(config: &Config, load: Load, queries: &[Query]) -> Result<Outcome, ConfigError> {
    config.check()?;
    in_range("offered (M/s)", load.offered_mqps, 1e-6, 1e4)?;
    in_range("queries", queries.len() as f64, 1.0, 1e8)?;
    let arrived_ps = arrivals(config, load, queries.len());
    let last_ps = arrived_ps[queries.len() - 1];
    let counted_ps = (arrived_ps[queries.len() / WARM], last_ps);
    let mut engine = Engine {
        config,
        queries,
        arrived_ps,
        events: BinaryHeap::new(),
        order: 0,
        elements: (0..config.elements).map(|_| Element::default()).collect(),
        turn: 0,
        network_free_ps: 0,
        channel_free_ps: 0,
        host_free_ps: 0,
        counted_ps,
        answered: (0, 0),
        busy_ps: 0,
        latencies_ps: Vec::with_capacity(queries.len()),
        read_ps: 0,
        read_most_ps: 0,
        outcome: Outcome { queries: queries.len() as u64, ..Outcome::default() },
    };
    engine.put(engine.arrived_ps[0] + engine.half_data_plane_ps(), Event::Arrive(0));
    while let Some(Reverse((now, _, event))) = engine.events.pop() {
        match event {
            Event::Arrive(query) => engine.arrive(now, query),
            Event::Step(element) => engine.step(now, element),
            Event::HostReply(query) => {
                let element = engine.next_element();
                engine.elements[element].replies.push_back(query);
                engine.wake(now, element);
            }
        }
    }
    Ok(engine.finish())
}

/// When queries come, in picoseconds: never closer than the port passes them.
fn arrivals(config: &Config, load: Load, count: usize) -> Vec<u64> {
    let (wire_ps, gap_ps) = (1e6 / config.line_mqps(), 1e6 / load.offered_mqps);
    let mut random = Random::new(load.seed);
    let mut at = 0.0;
    let mut next = || {
        let now = at as u64;
        at += (load.gaps.draw(random.unit()) * gap_ps).max(wire_ps);
        now
    };
    (0..count).map(|_| next()).collect()
}

impl Engine<'_> {
    fn put(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn half_data_plane_ps(&self) -> u64 {
        self.config.cycles_ps(self.config.data_plane_cycles) / 2
    }

    fn next_element(&mut self) -> usize {
        let element = self.turn;
        self.turn = (self.turn + 1) % self.elements.len();
        element
    }

    fn arrive(&mut self, now: u64, query: u32) {
        let next = query + 1;
        if let Some(&at) = self.arrived_ps.get(next as usize) {
            self.put(at + self.half_data_plane_ps(), Event::Arrive(next));
        }
        let element = self.next_element();
        if self.elements[element].fifo.len() >= self.config.fifo {
            self.outcome.lost_at_elements += 1;
            return;
        }
        self.elements[element].fifo.push_back(query);
        self.wake(now, element);
    }

    /// Gives an idle element what waits for it.
    fn wake(&mut self, now: u64, at: usize) {
        let element = &mut self.elements[at];
        if element.job.is_some() {
            return;
        }
        let reply = element.replies.pop_front().map(|query| Job { query, reply: true });
        let Some(job) = reply.or_else(|| element.fifo.pop_front().map(|query| Job { query, reply: false }))
        else {
            return;
        };
        element.job = Some((job, steps(self.queries[job.query as usize], job.reply)));
        element.since_ps = now;
        self.put(now, Event::Step(at));
    }

    fn step(&mut self, now: u64, at: usize) {
        let Some((job, left)) = self.elements[at].job else { return };
        let Some((&step, left)) = left.split_first() else {
            self.done(now, at, job);
            return;
        };
        self.elements[at].job = Some((job, left));
        let config = self.config;
        let until = match step {
            Step::Parse => now + config.cycles_ps(config.parse_cycles),
            Step::Compare => now + config.cycles_ps(config.compare_cycles),
            Step::Reply => now + config.cycles_ps(config.reply_cycles),
            Step::Access => {
                let start = now.max(self.network_free_ps);
                self.network_free_ps = start + config.cycles_ps(config.network_cycles);
                start + config.cycles_ps(config.access_cycles)
            }
            Step::Read => self.read(now),
            Step::Write => {
                if config.variant.dram {
                    self.outcome.writes += 1;
                    self.channel(now);
                }
                now
            }
            Step::Allocate => match config.variant.free_list {
                FreeList::Bram | FreeList::Sram => now + config.cycles_ps(config.allocate_cycles),
                FreeList::Dram => self.read(now + config.cycles_ps(config.allocate_cycles)),
            },
        };
        self.put(until, Event::Step(at));
    }

    /// Takes the channel; when it does.
    fn channel(&mut self, now: u64) -> u64 {
        let start = now.max(self.channel_free_ps);
        self.channel_free_ps = start + ps(self.config.dram_busy_ns);
        start
    }

    fn read(&mut self, now: u64) -> u64 {
        if !self.config.variant.dram {
            return now;
        }
        let until = self.channel(now) + ps(self.config.dram_ns);
        self.outcome.reads += 1;
        self.read_ps += until - now;
        self.read_most_ps = self.read_most_ps.max(until - now);
        until
    }

    /// An element is done with its job.
    fn done(&mut self, now: u64, at: usize, job: Job) {
        let element = &mut self.elements[at];
        element.job = None;
        let (from, to) = self.counted_ps;
        self.busy_ps += now.min(to).saturating_sub(element.since_ps.max(from));
        let query = self.queries[job.query as usize];
        if job.reply {
            self.outcome.host += 1;
            self.answer(now, job.query, true);
        } else if query.ask == Ask::Get && query.place != Place::Nowhere {
            match query.place {
                Place::OnChip => self.outcome.on_chip += 1,
                _ => self.outcome.dram += 1,
            }
            self.answer(now, job.query, false);
        } else {
            self.ask_host(now, job.query);
        }
        self.wake(now, at);
    }

    fn answer(&mut self, now: u64, query: u32, host: bool) {
        let left = now + self.half_data_plane_ps();
        let (from, to) = self.counted_ps;
        if now > from && now <= to {
            self.answered.0 += 1;
            self.answered.1 += u64::from(host);
        }
        if query as usize >= self.queries.len() / WARM {
            self.latencies_ps.push(left - self.arrived_ps[query as usize]);
        }
    }

    fn ask_host(&mut self, now: u64, query: u32) {
        let service = 1e6 / self.config.host_mqps;
        let waiting = self.host_free_ps.saturating_sub(now) as f64 / service;
        if waiting >= self.config.host_queue as f64 {
            self.outcome.lost_at_host += 1;
            return;
        }
        let start = now.max(self.host_free_ps);
        self.host_free_ps = start + service as u64;
        let after = (self.config.host_us * 1e6).max(service) as u64;
        self.put(start + after, Event::HostReply(query));
    }

    fn finish(mut self) -> Outcome {
        let (from, to) = self.counted_ps;
        let counted_us = (to - from) as f64 / 1e6;
        let rate = |count: u64| if counted_us > 0.0 { count as f64 / counted_us } else { 0.0 };
        let came = self.queries.len() - 1 - self.queries.len() / WARM;
        let mut outcome = self.outcome;
        outcome.offered_mqps = rate(came as u64);
        (outcome.mqps, outcome.host_mqps) = (rate(self.answered.0), rate(self.answered.1));
        outcome.busy = if counted_us > 0.0 {
            self.busy_ps as f64 / 1e6 / counted_us / self.elements.len() as f64
        } else {
            0.0
        };
        let all = &mut self.latencies_ps;
        all.sort_unstable();
        let us = |ps: u64| ps as f64 / 1e6;
        if let (Some(&least), Some(&most)) = (all.first(), all.last()) {
            (outcome.least_us, outcome.most_us) = (us(least), us(most));
            outcome.p99_us = us(all[(all.len() - 1) * 99 / 100]);
            outcome.mean_us = all.iter().map(|&ps| us(ps)).sum::<f64>() / all.len() as f64;
        }
        if outcome.reads > 0 {
            outcome.read_ns = self.read_ps as f64 / 1e3 / outcome.reads as f64;
            outcome.read_most_ns = self.read_most_ps as f64 / 1e3;
        }
        outcome
    }
}

fn ps(ns: f64) -> u64 {
    (ns * 1e3).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Their mean is the rate's, and their spread that of each distribution; at ETC's own rate, where the port's hardly counts.
    #[test]
    fn gaps_are_as_uneven_as_their_distribution() {
        let spread = (1.0 - 2.0 * ETC_SHAPE).sqrt().recip();
        for (gaps, spread) in [(Gaps::Even, 0.0), (Gaps::Random, 1.0), (Gaps::Etc, spread)] {
            let load = Load { offered_mqps: (1.0 - ETC_SHAPE) / 16.0292, gaps, seed: 1 };
            let at = arrivals(&Config::default(), load, 200_001);
            let us: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
            let mean = us.iter().sum::<f64>() / us.len() as f64;
            let variance = us.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / us.len() as f64;
            assert!((mean / 18.969 - 1.0).abs() < 0.02, "{gaps:?}: {mean} us");
            assert!((variance.sqrt() / mean - spread).abs() < 0.04, "{gaps:?}: {variance}");
            assert_eq!(gaps.name().parse::<Gaps>(), Ok(gaps));
        }
        assert!("uneven".parse::<Gaps>().is_err());
    }
}
