//! One phase, from its beginning until the last packet of it has arrived or never will.

use super::attack::Attacks;
use super::file::{Phase, Read};
use super::lab::Lab;
use super::load::Family;
use super::people::{self, Newcomers, People};
use super::process::{Configurations, Folder};
use super::watch::{Moment, Pair, Span};
use crate::json::significant;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tidemill_control::schema::grantor::Revoke;
use tidemill_control::schema::{self, Done};

/// How long packets are waited for that were sent when a phase ended.
const LAST: Duration = Duration::from_millis(300);
/// Before and after a change of the policy, streams tell of it for so long.
const AROUND: Duration = Duration::from_millis(300);
/// Datagrams a second of whom a later policy declines, in thousandths: always, and around a change.
pub(super) const FALLEN_RATE: [u64; 2] = [20_000, 500_000];

/// Everything that a scenario is made of, at work.
pub(super) struct Stage<'a> {
    pub(super) read: &'a Read,
    pub(super) lab: &'a Lab,
    pub(super) folder: &'a Folder,
    pub(super) configurations: &'a Configurations,
    pub(super) people: &'a People,
    pub(super) pair: &'a mut Pair,
    pub(super) attacks: &'a mut Attacks,
    /// KiB/s that the client is granted over each family.
    pub(super) granted: [u32; 2],
    /// Newcomers, and later ones, that have come so far.
    pub(super) newcomers: u32,
    pub(super) later: u32,
    /// Datagrams of the declined source that had arrived when the last phase was counted; none before the first, so what gets through while all ask for the first time is the first's.
    pub(super) declined_came: u64,
    /// Ctrl-C.
    pub(super) interrupted: &'a AtomicBool,
}

/// What a phase came to.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    pub(super) phase: String,
    /// IPv4, IPv6: KiB/s granted; the part of it that arrived, of what was sent in this phase; datagrams lost.
    pub(super) granted_kib_s: [u32; 2],
    pub(super) goodput: [f64; 2],
    pub(super) lost: [u64; 2],
    /// The part of the transfer's rate that arrived.
    pub(super) tcp: Option<[f64; 2]>,
    pub(super) newcomers: Waits,
    /// What these are held to, in place of what all phases are.
    #[serde(skip)]
    pub(super) request_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) change: Option<Changed>,
    #[serde(flatten)]
    pub(super) span: Span,
    /// The attack's rate as a multiple of the client's.
    pub(super) attack_ratio: f64,
    pub(super) attacked: bool,
}

/// How long newcomers waited until their first packet was there, in ms.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Waits {
    pub(super) asked: usize,
    /// Of these in vain, so far.
    pub(super) waiting: usize,
    /// None if half of them or more were not.
    pub(super) p50_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
}

/// A change of the policy, in ms from the command.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Changed {
    /// Until the Grantor has said that it is done.
    pub(super) reload_ms: f64,
    /// Until somebody got through whom only the new policy grants: IPv4, IPv6.
    pub(super) granted_ms: [Option<f64>; 2],
    /// After the revocation, until the last packet arrived of somebody whom the new policy declines.
    pub(super) revoked_ms: Option<[f64; 2]>,
}

impl Waits {
    /// Who has not been heard has waited longer than all who have.
    pub(super) fn of(waits: &[Option<u64>]) -> Waits {
        let mut ms: Vec<f64> = waits.iter().flatten().map(|ns| significant(*ns as f64 / 1e6)).collect();
        ms.sort_by(f64::total_cmp);
        Waits {
            asked: waits.len(),
            waiting: waits.len() - ms.len(),
            p50_ms: ms.get(waits.len() / 2).copied(),
            max_ms: ms.last().copied(),
        }
    }
}

impl Stage<'_> {
    /// What is counted now.
    pub(super) fn moment(&mut self) -> Result<Moment> {
        if self.attacks.failed() {
            self.attacks.end()?;
        }
        self.pair.gatekeeper.alive()?;
        self.pair.grantor.alive()?;
        Moment::now(self.lab, self.people, self.attacks, self.pair)
    }

    /// Waits, and says what happens, once a second; until `end`.
    fn wait(
        &mut self,
        end: Instant,
        last: &mut Moment,
        say: &mut dyn FnMut(&Span) -> Result<()>,
    ) -> Result<()> {
        loop {
            if self.interrupted.load(Relaxed) {
                bail!("interrupted");
            }
            let now = Instant::now();
            let since = Duration::from_nanos(self.people.clock.now().saturating_sub(last.now));
            if since >= Duration::from_secs(1) {
                let moment = self.moment()?;
                say(&Span::between(last, &moment, self.read.scenario.client.bytes))?;
                *last = moment;
            }
            if now >= end {
                return Ok(());
            }
            std::thread::sleep((end - now).min(Duration::from_millis(20)));
        }
    }

    /// Another policy: what it takes until it holds.
    fn change(
        &mut self,
        policy: &str,
        revoke: bool,
        last: &mut Moment,
        say: &mut dyn FnMut(&Span) -> Result<()>,
    ) -> Result<Changed> {
        let people = self.people;
        let reset = || {
            for family in &people.families {
                family.fallen.first.store(0, Relaxed);
                family.later.store(0, Relaxed);
            }
        };
        // Those of whom the policies differ: first the one is granted, and then the others are, or the other way round.
        let came = || {
            let first = |of: fn(&Family) -> &AtomicU64| {
                [0, 1].map(|v6: usize| Some(of(&people.families[v6]).load(Relaxed)).filter(|at| *at > 0))
            };
            (first(|family| &family.fallen.first), first(|family| &family.later))
        };
        people.families.iter().for_each(|family| family.fallen.rate.store(FALLEN_RATE[1], Relaxed));
        let stop = Arc::new(AtomicBool::new(false));
        let later = people::later(self.lab, &self.read.scenario.network, self.later, &stop)?;
        reset();
        self.wait(Instant::now() + AROUND, last, say)?;
        let forward = match came() {
            ([Some(_), Some(_)], [None, None]) => true,
            ([None, None], [Some(_), Some(_)]) => false,
            (one, others) => {
                bail!(
                    "before the change to {policy} host 5 got through at {one:?}, hosts from 32768 at {others:?}: only either may be granted"
                )
            }
        };
        self.folder.write("grantor.toml", &self.configurations.grantor(Some(policy)))?;
        let control = &self.pair.grantor.control;
        reset();
        let begun = people.clock.now();
        let _: Done =
            control.post(schema::path::RELOAD, &()).with_context(|| format!("the policy {policy}"))?;
        let reloaded = people.clock.now();
        if revoke {
            // Whoever is granted from now on shows it; what came until here was decided before.
            if !forward {
                people.families.iter().for_each(|family| family.fallen.first.store(0, Relaxed));
            }
            let all = Revoke { prefix: None };
            let _: Done = control.post(schema::grantor::path::REVOKE, &all).context("the revocation")?;
        }
        self.wait(Instant::now() + AROUND, last, say)?;
        stop.store(true, Relaxed);
        self.later += later.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let ms = |from: u64, to: u64| significant(to.saturating_sub(from) as f64 / 1e6);
        let (one, others) = came();
        let granted_ms = (if forward { others } else { one }).map(|at| at.map(|at| ms(begun, at)));
        let revoked_ms = revoke.then(|| {
            [0, 1].map(|v6: usize| {
                let family = &people.families[v6];
                let last = if forward { &family.fallen.last } else { &family.later_last };
                ms(reloaded, last.load(Relaxed))
            })
        });
        people.families.iter().for_each(|family| family.fallen.rate.store(FALLEN_RATE[0], Relaxed));
        Ok(Changed { reload_ms: ms(begun, reloaded), granted_ms, revoked_ms })
    }

    /// Plays it.
    pub(super) fn play(
        &mut self,
        phase: &Phase,
        say: &mut dyn FnMut(&Span) -> Result<()>,
    ) -> Result<Outcome> {
        let scenario = &self.read.scenario;
        let begun = Instant::now();
        let end = begun + Duration::from_secs_f64(phase.seconds);
        let made = self.attacks.offered.load(Relaxed);
        self.attacks.begin(&phase.attack, self.lab, &scenario.network, scenario.cpus.attack)?;
        let first = self.moment()?;
        let mut last = first.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let newcomers = Newcomers::begin(
            self.people,
            self.lab,
            &scenario.network,
            self.newcomers,
            phase.newcomers,
            phase.seconds,
            &stop,
        )?;
        self.newcomers += phase.newcomers;
        let played = self.middle(phase, begun, end, &mut last, say);
        // The attack goes on while the last ones arrive: it is part of the phase.
        let to = self.moment()?;
        std::thread::sleep(LAST);
        stop.store(true, Relaxed);
        let waits = newcomers.end()?;
        self.attacks.end()?;
        // Packets are counted when a call ends that made them, so only the whole attack's rate is exact.
        let attack_mpps =
            (self.attacks.offered.load(Relaxed) - made) as f64 / begun.elapsed().as_secs_f64() / 1e6;
        let change = played?;
        if last.now + 200_000_000 < to.now {
            say(&Span::between(&last, &to, scenario.client.bytes))?;
        }
        let mut span = Span::between(&first, &to, scenario.client.bytes);
        span.attack_mpps = significant(attack_mpps);
        // Nothing of it belongs to no phase: what came while the last ones were waited for, and between two phases, too.
        let came: u64 = self.people.families.iter().map(|family| family.declined.came.load(Relaxed)).sum();
        span.declined[1] = came - self.declined_came;
        self.declined_came = came;
        let (mut goodput, mut lost) = ([0.0; 2], [0; 2]);
        for v6 in [0, 1] {
            let (from, to) = (first.sent[v6][0], to.sent[v6][0]);
            let came = self.people.families[v6].client.arrived_of(from, to);
            lost[v6] = to - from - came;
            let bytes = came as f64 * (scenario.client.bytes + [28, 48][v6]) as f64;
            let granted = f64::from(self.granted[v6]) * 1024.0 * span.seconds;
            goodput[v6] = significant(bytes / granted.max(1.0));
        }
        let rate = f64::from(scenario.client.tcp_kib_s);
        Ok(Outcome {
            phase: phase.name.clone(),
            granted_kib_s: self.granted,
            goodput,
            lost,
            tcp: (rate > 0.0).then(|| span.tcp_kib_s.map(|came| significant(came / rate))),
            newcomers: Waits::of(&waits),
            request_s: phase.request_s,
            change,
            attack_ratio: significant(span.attack_mpps * 1e6 / span.client_pps.max(1.0)),
            attacked: !phase.attack.is_empty(),
            span,
        })
    }

    fn middle(
        &mut self,
        phase: &Phase,
        begun: Instant,
        end: Instant,
        last: &mut Moment,
        say: &mut dyn FnMut(&Span) -> Result<()>,
    ) -> Result<Option<Changed>> {
        let mut changed = None;
        if let Some(change) = &phase.change {
            let middle = begun + Duration::from_secs_f64(phase.seconds / 2.0);
            self.wait(middle.checked_sub(AROUND).unwrap_or(begun), last, say)?;
            changed = Some(self.change(&change.policy, change.revoke, last, say)?);
        }
        self.wait(end, last, say)?;
        Ok(changed)
    }
}
