//! All that is counted, at one moment; and what has happened between two.

use super::attack::Attacks;
use super::lab::Lab;
use super::people::People;
use super::process::Tidemill;
use crate::json::significant;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use tidemill_control::schema::{Counters, Drops, Ports, gate, grantor, path};

/// Clock ticks of /proc a second: the same on every architecture that Linux shows them on.
const TICKS: f64 = 100.0;

type Counts = BTreeMap<String, u64>;

/// What was counted up to a moment.
#[derive(Clone)]
pub(super) struct Moment {
    pub(super) now: u64,
    /// Of each family: sent and arrived, of the client and of the declined one; bytes of the transfer.
    pub(super) sent: [[u64; 2]; 2],
    came: [[u64; 2]; 2],
    tcp: [u64; 2],
    /// Packets that those who mean well have sent, and that the server has received.
    client_out: u64,
    server_in: u64,
    /// That the Gatekeeper has received by the front.
    front_in: u64,
    offered: u64,
    /// Gatekeeper, Grantor.
    drops: [Counts; 2],
    counters: [Counts; 2],
    /// Ticks: Gatekeeper, Grantor, this process with its attacks; each CPU's idle ticks.
    processes: [u64; 3],
    idle: Vec<u64>,
}

/// Both at work.
pub(super) struct Pair {
    pub(super) gatekeeper: Tidemill,
    pub(super) grantor: Tidemill,
}

/// What an interface has received and sent.
fn interface(lab: &crate::netns::Netns, name: &str) -> Result<(u64, u64)> {
    let text = lab.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let numbers: Vec<u64> =
        line.unwrap_or_default().split_whitespace().flat_map(|word| word.parse().ok()).collect();
    numbers.get(1).copied().zip(numbers.get(9).copied()).with_context(|| format!("/proc/net/dev: {name}"))
}

/// User and system ticks of a process.
fn ticks(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name may have spaces in it; it ends with the last parenthesis.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).flat_map(|word| word.parse::<u64>()).sum()
}

/// Idle ticks of each CPU.
fn idle() -> Vec<u64> {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).map(|line| {
        // user nice system idle iowait: the last two are.
        line.split_whitespace().skip(4).take(2).flat_map(|word| word.parse::<u64>()).sum()
    });
    cpus.collect()
}

impl Moment {
    pub(super) fn now(lab: &Lab, people: &People, attacks: &Attacks, pair: &Pair) -> Result<Moment> {
        let mut drops = [Counts::new(), Counts::new()];
        let mut counters = [Counts::new(), Counts::new()];
        for (at, (one, what)) in
            [(&pair.gatekeeper, gate::path::COUNTERS), (&pair.grantor, grantor::path::COUNTERS)]
                .into_iter()
                .enumerate()
        {
            let all: Drops = one.control.get(path::DROPS, &())?;
            for drop in all.drops {
                *drops[at].entry(drop.reason).or_default() += drop.count;
            }
            counters[at] = one.control.get::<Counters>(what, &())?.counters;
        }
        let ports: Ports = pair.gatekeeper.control.get(path::PORTS, &())?;
        let front_in = ports.ports.iter().find(|port| port.name == "wan").map_or(0, |port| port.rx.packets);
        let (mut sent, mut came, mut tcp) = ([[0; 2]; 2], [[0; 2]; 2], [0; 2]);
        for v6 in [0, 1] {
            let family = &people.families[v6];
            for (at, stream) in [&family.client, &family.declined].into_iter().enumerate() {
                // Arrivals first: none is counted that was not sent.
                came[v6][at] = stream.came.load(Relaxed);
                sent[v6][at] = stream.sent.load(Relaxed);
            }
            tcp[v6] = family.tcp_came.load(Relaxed);
        }
        Ok(Moment {
            now: people.clock.now(),
            sent,
            came,
            tcp,
            client_out: interface(&lab.client, "eth0")?.1,
            server_in: interface(&lab.server, "eth0")?.0,
            front_in,
            offered: attacks.offered.load(Relaxed),
            drops,
            counters,
            processes: [
                ticks(pair.gatekeeper.child.id()),
                ticks(pair.grantor.child.id()),
                ticks(std::process::id()),
            ],
            idle: idle(),
        })
    }
}

/// What has happened from one moment to another.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Span {
    /// Since the scenario began, and how long.
    pub(super) at_s: f64,
    pub(super) seconds: f64,
    /// IPv4, IPv6: KiB/s of the client's datagrams with their IP headers that arrived.
    pub(super) goodput_kib_s: [f64; 2],
    pub(super) tcp_kib_s: [f64; 2],
    /// The client's datagrams a second, both families.
    pub(super) client_pps: f64,
    /// Datagrams of the declined source, both families, that were sent, and that arrived.
    pub(super) declined: [u64; 2],
    /// Attack packets a second: made; and packets at the server beyond those that mean well, about.
    pub(super) attack_mpps: f64,
    /// What the Gatekeeper received of all that was sent to it by the front: the rest found its port full.
    pub(super) front_mpps: f64,
    pub(super) passed_pps: f64,
    /// Drops a second, by reason.
    pub(super) gatekeeper_drops_s: BTreeMap<String, f64>,
    pub(super) grantor_drops_s: BTreeMap<String, f64>,
    /// What else the Gatekeeper and the Grantor count, a second.
    pub(super) gatekeeper_s: BTreeMap<String, f64>,
    pub(super) grantor_s: BTreeMap<String, f64>,
    /// Percent of one CPU.
    pub(super) cpu: Cpu,
}

/// Percent of one CPU.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Cpu {
    pub(super) gatekeeper: f64,
    pub(super) grantor: f64,
    /// The scenario: attacks, client, server.
    pub(super) scenario: f64,
    /// Each CPU, whatever it does.
    pub(super) busy: Vec<f64>,
}

/// Counters that go up and down: no rates.
const LEVELS: [&str; 5] = ["flows4", "flows6", "program-flows4", "program-flows6", "waiting"];

fn rates(before: &Counts, after: &Counts, seconds: f64) -> BTreeMap<String, f64> {
    let changed = |(name, now): (&String, &u64)| {
        let more = now.saturating_sub(before.get(name).copied().unwrap_or_default());
        let is_rate = !LEVELS.contains(&name.as_str());
        (more > 0 && is_rate).then(|| (name.clone(), significant(more as f64 / seconds)))
    };
    after.iter().filter_map(changed).collect()
}

impl Span {
    /// `bytes`: of a datagram's payload.
    pub(super) fn between(from: &Moment, to: &Moment, bytes: usize) -> Span {
        let seconds = (to.now.saturating_sub(from.now)).max(1) as f64 / 1e9;
        let per = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        let packet = [28, 48].map(|headers| (bytes + headers) as f64 / 1024.0);
        let both = |of: fn(&Moment) -> u64| of(to).saturating_sub(of(from));
        let (server, client) = (both(|m| m.server_in), both(|m| m.client_out));
        let percent = |at: usize| significant(100.0 * per(from.processes[at], to.processes[at]) / TICKS);
        Span {
            at_s: significant(from.now as f64 / 1e9),
            seconds: significant(seconds),
            goodput_kib_s: [0, 1].map(|v6| significant(per(from.came[v6][0], to.came[v6][0]) * packet[v6])),
            tcp_kib_s: [0, 1].map(|v6| significant(per(from.tcp[v6], to.tcp[v6]) / 1024.0)),
            client_pps: significant(both(|m| m.sent[0][0] + m.sent[1][0]) as f64 / seconds),
            declined: [both(|m| m.sent[0][1] + m.sent[1][1]), both(|m| m.came[0][1] + m.came[1][1])],
            attack_mpps: significant(per(from.offered, to.offered) / 1e6),
            front_mpps: significant(per(from.front_in, to.front_in) / 1e6),
            passed_pps: significant(server.saturating_sub(client) as f64 / seconds),
            gatekeeper_drops_s: rates(&from.drops[0], &to.drops[0], seconds),
            grantor_drops_s: rates(&from.drops[1], &to.drops[1], seconds),
            gatekeeper_s: rates(&from.counters[0], &to.counters[0], seconds),
            grantor_s: rates(&from.counters[1], &to.counters[1], seconds),
            cpu: Cpu {
                gatekeeper: percent(0),
                grantor: percent(1),
                scenario: percent(2),
                busy: (from.idle.iter().zip(&to.idle))
                    .map(|(from, to)| {
                        significant((100.0 - 100.0 * per(*from, *to) / TICKS).clamp(0.0, 100.0))
                    })
                    .collect(),
            },
        }
    }
}
