//! `bench churn`: what a busy control side costs the packets.
//!
//! A router forwards between null ports while the control side, on another core, does one of two things:
//!
//! | load | what |
//! |---|---|
//! | `quiet` | its housekeeping, every millisecond, as `tidemill run` does |
//! | `churn` | besides, route changes at the rate asked for; every 10 ms all that `show` reads; every 100 ms a trace; every half second a reload (twice in a run that is shorter than a second) |
//!
//! First at capacity, in pairs: how much slower is the router with churn, by the median of the pairs? Its 95 % interval (`low`, `high` in its
//! line's `params`) is of two of the pairs, from six pairs on. Then at a share of it, with packets that come whether
//! or not anybody has time for them (a device's ring that overflows is `rx-ring-full`), three times with churn and three without: does churn drop what quiet does not?
//! Two configurations are reloaded in turn: the other one has a static route that no packet takes, and another MTU that all packets fit into. Nobody asks through the API: `root_wire`'s `churn::` does that with all commands, beside a small table and few packets.
//! Half of the changes give a route another next hop and back, half withdraw and announce a route that no packet takes, so
//! that no packet loses its route. Before and after, every packet's next hop is looked at: they must be the same. All of it is IPv4 if
//! the table has that, else IPv6.

use super::ends::warn_unbound;
use super::forward::{Digest, Forwarded, SendOnly};
use super::pass::Checksum;
use super::port::{NullArgs, family, of_family, router, stats};
use super::report::Report;
use super::statistics;
use crate::json::{Measurement, Params, significant};
use crate::progress::Progress;
use crate::tables::TableArgs;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, DropReason, Memory, Pool};
use tidemill_feed::LoadedTable;
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::{Clock, Engine, Handle, Limits, Options, allowed_cpus};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Change, Label, Prefix, Rib};
use tidemill_port::{NullPort, Port, PortCounters, PortError, RxStatus, Supply};
use tidemill_router::{RouterConfig, RouterControl};

/// Arguments of `bench churn`.
#[derive(Args)]
#[command(after_help = "Example:\n  tidemill bench churn --table rib.zst --pairs 20 --json")]
pub(crate) struct ChurnBench {
    #[command(flatten)]
    table: TableArgs,
    /// The router's lookup structure
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algorithm: String,
    /// Route changes per second
    #[arg(long, value_name = "N", default_value_t = 10_000.0)]
    rate: f64,
    /// Pairs of a quiet run and one with churn, at capacity
    #[arg(long, value_name = "N", default_value_t = 20)]
    pairs: usize,
    /// Seconds per run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// The share of the capacity that is offered afterwards
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    share: f64,
    /// Packets that the device's receive ring holds, at that share
    #[arg(long, value_name = "N", default_value_t = 4096)]
    ring: u64,
    /// Destinations
    #[arg(long, value_name = "N", default_value_t = 1 << 18)]
    packets: usize,
    /// Seed of the destinations and of the changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// Frames of the worker's pool.
const FRAMES: usize = 8192;
/// Runs of each kind at a share of the capacity.
const SHARE_RUNS: usize = 3;
/// How often the control side turns.
const TURN: Duration = Duration::from_millis(1);
/// Seconds from one reload to the next, in runs that are long enough for two.
const RELOAD_S: f64 = 0.5;

/// A device that packets come to at their own pace, into a ring of so many; what does not fit is lost.
struct Paced<P> {
    inner: P,
    per_ns: f64,
    ring: u64,
    started_ns: Option<u64>,
    /// Packets that have come so far: taken, or lost.
    past: u64,
    lost: u64,
}

impl<P: Port> Port for Paced<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let started = *self.started_ns.get_or_insert(now_ns);
        let come = ((now_ns - started) as f64 * self.per_ns) as u64;
        let over = (come - self.past.min(come)).saturating_sub(self.ring);
        self.lost += over;
        self.past += over;
        if come.saturating_sub(self.past) < BURST as u64 {
            return Ok(RxStatus::Idle { next_due_ns: None });
        }
        let before = burst.len();
        let status = self.inner.rx(now_ns, pool, burst);
        self.past += (burst.len() - before) as u64;
        status
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.inner.tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.inner.finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        counters.rx.packets += self.lost;
        counters.rx.dropped.count_many(DropReason::RxRingFull, self.lost);
        counters
    }
}

/// The control side, and what it is to do.
struct Side<A: Forwarded> {
    control: RouterControl,
    /// The configuration that it began with, and the other one.
    configs: [RouterConfig; 2],
    /// Reloads, of all runs.
    reloads: usize,
    domain: Domain,
    changes: Vec<Change<A>>,
    next: usize,
}

/// What a control side did in a run.
#[derive(Default)]
struct Did {
    changes: u64,
    reloads: u64,
}

impl<A: Forwarded> Side<A> {
    /// Housekeeping and, with a rate, load, in a run of so many seconds, until told to stop.
    fn work(&mut self, handle: &Handle, rate: Option<f64>, seconds: f64, done: &AtomicBool) -> Result<Did> {
        let (started, mut did, mut turns) = (Instant::now(), Did::default(), 0_u64);
        let period = RELOAD_S.min(seconds / 2.0);
        while !done.load(Ordering::Acquire) {
            if let Some(rate) = rate {
                let due = (started.elapsed().as_secs_f64() * rate) as u64;
                let count = (due.saturating_sub(did.changes) as usize).min(self.changes.len() - self.next);
                self.control.apply(&self.changes[self.next..self.next + count])?;
                did.changes += count as u64;
                self.next = (self.next + count) % self.changes.len();
                if turns.is_multiple_of(10) {
                    std::hint::black_box((
                        handle.snapshot(),
                        handle.per_worker(),
                        self.control.lookup_stats(),
                    ));
                }
                if turns.is_multiple_of(100) {
                    // A worker that is behind with the last one says so; then this one is left out.
                    let at = format!("ip{}-lookup", A::FAMILY);
                    let asked = handle.trace(&TraceRequest { at, packets: 8 });
                    std::hint::black_box((asked.is_ok(), handle.traces(0)));
                }
                // In the middle of each period: packets are under way.
                if started.elapsed().as_secs_f64() >= (did.reloads as f64 + 0.5) * period {
                    self.reloads += 1;
                    self.control.reload(Clock::wall().now_ns(0), &self.configs[self.reloads % 2])?;
                    did.reloads += 1;
                }
            }
            self.control.poll(Clock::wall().now_ns(0))?;
            self.control.collect();
            turns += 1;
            std::thread::sleep(TURN);
        }
        // Else the packets have had nothing of it.
        if rate.is_some() && turns > 200 && handle.traces(0).is_empty() {
            bail!("no packet was traced");
        }
        if rate.is_some() && did.reloads == 0 {
            bail!("nothing was reloaded in {seconds} s: give more --seconds");
        }
        Ok(did)
    }
}

/// The same configuration, and another one: with a route that no packet takes, as its destinations are dropped whatever the table says, and with another MTU.
fn configs(config: RouterConfig) -> Result<[RouterConfig; 2]> {
    let mut other = config.clone();
    for prefix in ["240.0.0.0/24", "fe80::/64"] {
        other.route.push(toml::from_str(&format!("prefix = '{prefix}'\nkind = 'blackhole'"))?);
    }
    other.interface.iter_mut().for_each(|interface| interface.mtu = Some(8000));
    Ok([config, other])
}

/// Has the calling thread keep off the worker's processor. Where that is the only one, or it is forbidden, the system decides.
fn keep_off(handle: &Handle) {
    let workers = handle.seats().iter().filter_map(|seat| seat.cpu).collect::<Vec<_>>();
    let others: Vec<usize> = allowed_cpus().into_iter().filter(|cpu| !workers.contains(cpu)).collect();
    let mut set = CpuSet::new();
    others.iter().for_each(|&cpu| set.set(cpu));
    if !others.is_empty() && sched_setaffinity(None, &set).is_err() {
        eprintln!("tidemill: warning: the control side may run on the worker's processor");
    }
}

/// What a run came to.
struct Ran {
    mpps: f64,
    dropped: BTreeMap<&'static str, u64>,
    changes_per_s: f64,
    reloads: f64,
}

impl Ran {
    /// Packets dropped for a reason.
    fn of(&self, reason: &str) -> u64 {
        self.dropped.get(reason).copied().unwrap_or(0)
    }
}

/// For what runs have dropped packets.
fn reasons(runs: &[Ran]) -> BTreeSet<&'static str> {
    runs.iter().flat_map(|ran| ran.dropped.keys().copied()).collect()
}

/// Whether what runs with churn have dropped for a reason, of so many packets offered, may be chance: as many again as the quiet ones, and one packet in a
/// thousand; none if those have dropped none for it. So it is reasons that are judged, and counts roughly: whoever else has the worker's processor for a time slice
/// (3 ms) takes a thousandth of the packets of three seconds, and whether that comes beside quiet or beside churn is chance.
fn may_be_chance(quiet: u64, churn: u64, offered: u64) -> bool {
    churn == 0 || quiet > 0 && churn <= 2 * quiet + offered / 1000
}

/// One run, at capacity or at a pace (packets per second).
fn run_once<A: Forwarded>(
    args: &ChurnBench,
    side: &mut Side<A>,
    supply: &Supply,
    rate: Option<f64>,
    pace: Option<f64>,
) -> Result<Ran> {
    let source = NullPort::new("in", supply.clone(), 0, None);
    let source: Box<dyn Port> = match pace {
        None => Box::new(source),
        Some(pps) => {
            let per_ns = pps / 1e9;
            Box::new(Paced { inner: source, per_ns, ring: args.ring, started_ns: None, past: 0, lost: 0 })
        }
    };
    let sink = Box::new(SendOnly(NullPort::new("out", Supply::Nothing, 0, None)));
    let duration = Some(Duration::from_secs_f64(args.seconds));
    let engine = engine(side, source, sink, duration)?;
    let (handle, done) = (engine.handle(), AtomicBool::new(false));
    let (outcome, did) = std::thread::scope(|scope| {
        let (handle, done_flag) = (&handle, &done);
        let control = scope.spawn(move || {
            keep_off(handle);
            side.work(handle, rate, args.seconds, done_flag)
        });
        let outcome = engine.run(|_| {});
        done.store(true, Ordering::Release);
        (outcome, control.join())
    });
    warn_unbound(&handle);
    let did = match did {
        Ok(did) => did?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    if let Some(error) = outcome.errors.into_iter().next() {
        return Err(error.into());
    }
    let ledger = outcome.snapshot.ledger();
    if !ledger.balances() {
        bail!("the books do not balance: in {}, out {}", ledger.received, ledger.out);
    }
    let seconds = outcome.snapshot.elapsed_ns as f64 / 1e9;
    let dropped = ledger.dropped.iter().map(|(reason, count)| (*reason, *count)).collect();
    let changes_per_s = did.changes as f64 / seconds;
    let mpps = ledger.out as f64 / seconds / 1e6;
    Ok(Ran { mpps, dropped, changes_per_s, reloads: did.reloads as f64 })
}

fn engine<A: Forwarded>(
    side: &Side<A>,
    source: Box<dyn Port>,
    sink: Box<dyn Port>,
    duration: Option<Duration>,
) -> Result<Engine> {
    let memory = Memory::new(FRAMES, 2048).context("packet memory")?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits { packets: None, duration },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let graph = tidemill_router::graph(&side.control).build()?;
    Ok(Engine::new(graph, 1, vec![vec![source], vec![sink]], &memory, &side.domain, options)?)
}

/// The labels by which each destination's packet is sent, as a digest.
fn digest<A: Forwarded>(side: &Side<A>, supply: &Supply, packets: usize) -> Result<String> {
    let source = Box::new(NullPort::new("in", supply.clone(), 0, Some(packets as u64)));
    let seen = Arc::new(Mutex::new((0, Checksum::new())));
    let sink = Box::new(Digest { seen: seen.clone(), counters: PortCounters::default(), most: packets });
    engine(side, source, sink, None)?.run(|_| {});
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.0 == 0 {
        bail!("nothing was forwarded");
    }
    Ok(seen.1.text())
}

/// Changes that come back to where they began. Even ones give a route another label, odd ones withdraw a route that holds none
/// of the destinations (sorted); each is undone `DISTANCE` changes later.
fn changes<A: Forwarded>(rib: &Rib<A>, destinations: &[A], seed: u64) -> Vec<Change<A>> {
    const ROUTES: usize = 50_000;
    let mut routes: Vec<(Prefix<A>, Label)> = rib.iter().collect();
    let mut random = tidemill_lpm::keys::Random::new(seed);
    for at in 0..routes.len().min(4 * ROUTES) {
        let other = at + random.below(routes.len() - at);
        routes.swap(at, other);
    }
    let labels: Vec<Label> = routes.iter().map(|(_, label)| *label).collect();
    let empty = |prefix: &Prefix<A>| {
        let from = destinations.partition_point(|&address| address < prefix.first());
        destinations.get(from).is_none_or(|&address| address > prefix.last())
    };
    let (mut away, mut back) = (Vec::new(), Vec::new());
    for (at, &(prefix, label)) in routes.iter().enumerate().take(ROUTES) {
        let change = match at % 2 == 0 || !empty(&prefix) {
            true => Change::Announce(prefix, labels[(at + 1) % labels.len()]),
            false => Change::Withdraw(prefix),
        };
        away.push(change);
        back.push(Change::Announce(prefix, label));
    }
    away.into_iter().chain(back).collect()
}

/// Whether churn dropped nothing that quiet did not.
pub(super) fn run(args: &ChurnBench) -> Result<bool> {
    let in_range = args.seconds > 0.0 && args.seconds <= 3600.0 && args.rate > 0.0 && args.rate <= 1e7;
    if !in_range || args.pairs < 2 || !(args.share > 0.0 && args.share <= 1.0) || args.ring < BURST as u64 {
        return Err(usage(
            "give --seconds and --rate above 0 (3600 and 10 million at most), at least 2 --pairs, a --share from 0 to 1 and a --ring of 256 or more",
        ));
    }
    let table = args.table.load()?;
    if family(&table) == 4 { run_with::<u32>(args, table) } else { run_with::<u128>(args, table) }
}

fn run_with<A: Forwarded>(args: &ChurnBench, table: LoadedTable) -> Result<bool> {
    let null = NullArgs { packets: args.packets, seed: args.seed };
    let addresses = null.destinations(Some(&table));
    let mut sorted: Vec<A> = of_family(&addresses);
    sorted.sort_unstable();
    let changes = changes(A::rib(&table), &sorted, args.seed);
    if changes.is_empty() || addresses.is_empty() {
        return Err(usage("--table: has no routes that packets can take: give one that has"));
    }
    let domain = Domain::new();
    let (control, config) = router(&args.algorithm, table, &domain)?;
    let mut side = Side { control, configs: configs(config)?, reloads: 0, domain, changes, next: 0 };
    let supply = Supply::Destinations { frame_len: 64, addresses: addresses.into() };
    let before = digest(&side, &supply, args.packets)?;

    let mut params = Params::new();
    let stats = stats(&side.control, A::FAMILY)?;
    params.insert("algorithm".into(), stats.algorithm.into());
    params.insert("prefixes".into(), stats.prefixes.into());
    if A::FAMILY == 6 {
        params.insert("family".into(), A::FAMILY.into());
    }
    params.insert("updates_per_s".into(), args.rate.into());
    let progress = Progress::new("bench churn", 2 * (args.pairs + SHARE_RUNS) as u64);
    let (mut quiet, mut churn) = (Vec::new(), Vec::new());
    let (mut changes_per_s, mut reloads) = (Vec::new(), Vec::new());
    for pair in 0..args.pairs {
        // Who goes first alternates, so that a drift of the machine favours nobody.
        for turn in 0..2 {
            let busy = (pair + turn) % 2 == 1;
            let ran = run_once(args, &mut side, &supply, busy.then_some(args.rate), None)?;
            if busy {
                churn.push(ran.mpps);
                changes_per_s.push(ran.changes_per_s);
                reloads.push(ran.reloads);
            } else {
                quiet.push(ran.mpps);
            }
            progress.add(1);
        }
    }
    let pace = statistics::median(&quiet) * 1e6 * args.share;
    let (mut baseline, mut loaded) = (Vec::new(), Vec::new());
    for run in 0..SHARE_RUNS {
        for turn in 0..2 {
            let busy = (run + turn) % 2 == 1;
            let ran = run_once(args, &mut side, &supply, busy.then_some(args.rate), Some(pace))?;
            let runs = if busy { &mut loaded } else { &mut baseline };
            runs.push(ran);
            progress.add(1);
        }
    }
    // What is away comes back, and every packet goes where it went.
    let rest = &side.changes[side.next..];
    for block in rest.chunks(1000) {
        side.control.apply(block)?;
    }
    let after = digest(&side, &supply, args.packets)?;
    if before != after {
        bail!("packets go elsewhere after the changes were undone: {before}, {after}");
    }

    let mut report = Report::new(args.json);
    for (case, values) in [("quiet", &quiet), ("churn", &churn)] {
        report.line(Measurement::of("churn", "router", case, "mpps", values, params.clone()))?;
    }
    for (metric, values) in [("updates_per_s", &changes_per_s), ("reloads", &reloads)] {
        report.line(Measurement::of("churn", "router", "churn", metric, values, params.clone()))?;
    }
    report.ratio("churn", "capacity", ("churn", &churn), ("quiet", &quiet))?;
    let slower: Vec<f64> =
        quiet.iter().zip(&churn).map(|(quiet, churn)| 100.0 * (1.0 - churn / quiet)).collect();
    let interval = statistics::median_interval(&slower);
    let mut of_median = params.clone();
    if let Some((low, high)) = interval {
        of_median.insert("low".into(), significant(low).into());
        of_median.insert("high".into(), significant(high).into());
    }
    report.line(Measurement::of("churn", "router", "capacity", "slower_percent", &slower, of_median))?;
    let mut good = true;
    let offered = (pace * args.seconds * SHARE_RUNS as f64) as u64;
    for (case, ran) in [("share-quiet", &baseline), ("share-churn", &loaded)] {
        let of = |figure: fn(&Ran) -> f64| ran.iter().map(figure).collect::<Vec<f64>>();
        let mpps = of(|ran| ran.mpps);
        report.line(Measurement::of("churn", "router", case, "mpps", &mpps, params.clone()))?;
        for (metric, values) in
            [("updates_per_s", of(|ran| ran.changes_per_s)), ("reloads", of(|ran| ran.reloads))]
        {
            if values.iter().any(|value| *value > 0.0) {
                report.line(Measurement::of("churn", "router", case, metric, &values, params.clone()))?;
            }
        }
        for reason in reasons(ran) {
            let mut params = params.clone();
            params.insert("reason".into(), reason.into());
            let counts: Vec<f64> = ran.iter().map(|ran| ran.of(reason) as f64).collect();
            let all = |runs: &[Ran]| runs.iter().map(|ran| ran.of(reason)).sum::<u64>();
            params.insert("all_runs".into(), all(ran).into());
            report.line(Measurement::of("churn", "router", case, "dropped", &counts, params))?;
            good &= case == "share-quiet" || may_be_chance(all(&baseline), all(&loaded), offered);
        }
    }
    if !args.json {
        let ratio = statistics::ratio(&churn, &quiet);
        println!(
            "at capacity: {:.2} Mpps quiet, {:.2} with {:.0} changes/s: {:.1} % slower by the median of {} pairs",
            statistics::median(&quiet),
            statistics::median(&churn),
            statistics::median(&changes_per_s),
            statistics::median(&slower),
            args.pairs
        );
        if let Some((low, high)) = interval {
            println!("  with a 95 % interval of {low:.1} to {high:.1} %");
        }
        if let Some(ratio) = ratio {
            println!("  ratio {:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high);
        }
        for (name, runs) in [("quiet", &baseline), ("churn", &loaded)] {
            for ran in runs {
                println!(
                    "at {:.1} Mpps offered, {name}: {:.1} Mpps, dropped {:?}",
                    pace / 1e6,
                    ran.mpps,
                    ran.dropped
                );
            }
        }
    }
    if !good {
        eprintln!("tidemill: churn drops packets for reasons that a quiet run does not have");
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_quiet_runs_do_not_have_is_no_chance() {
        assert!(may_be_chance(0, 0, 1_000_000));
        assert!(!may_be_chance(0, 1, 1_000_000));
        assert!(may_be_chance(1, 1002, 1_000_000) && !may_be_chance(1, 1003, 1_000_000));
        assert!(may_be_chance(5000, 11_000, 1_000_000) && !may_be_chance(5000, 11_001, 1_000_000));
    }

    #[test]
    fn each_reload_changes_a_route_and_the_interfaces() {
        let domain = Domain::new();
        let (mut control, config) = router("auto", LoadedTable::default(), &domain).unwrap();
        let seen = |control: &RouterControl| {
            let prefixes: Vec<usize> = control.lookup_stats().iter().map(|stats| stats.prefixes).collect();
            (prefixes, control.settings_generation())
        };
        let (both, mut before) = (configs(config).unwrap(), seen(&control));
        for at in [1, 0, 1] {
            control.reload(0, &both[at]).unwrap();
            let now = seen(&control);
            assert!(now.1 > before.1);
            let (with, without) = if at == 1 { (&now, &before) } else { (&before, &now) };
            assert_eq!(with.0, without.0.iter().map(|prefixes| prefixes + 1).collect::<Vec<_>>());
            before = now;
        }
    }

    #[test]
    fn what_any_run_has_dropped_is_looked_at() {
        let ran = |reason, count| Ran {
            mpps: 1.0,
            dropped: BTreeMap::from([(reason, count)]),
            changes_per_s: 0.0,
            reloads: 0.0,
        };
        let runs = [ran("no-route", 1), ran("rx-ring-full", 2), ran("no-route", 3)];
        assert_eq!(reasons(&runs), BTreeSet::from(["no-route", "rx-ring-full"]));
        assert_eq!(runs.iter().map(|ran| ran.of("no-route")).collect::<Vec<_>>(), [1, 0, 3]);
    }
}
