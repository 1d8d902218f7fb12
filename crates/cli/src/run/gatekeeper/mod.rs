//! The role `gatekeeper`: a router with a gate. All that a router is and answers, this is and answers too.

mod anycast;
mod api;
mod offload;
mod programs;

use super::config::{Config, OTHERS};
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::router::{self, Router};
use super::service::{checked_room, lock, unchanged};
use super::spliced;
use crate::usage;
use anycast::Standing;
use anyhow::Result;
use offload::Below;
use programs::Wrongs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_gatekeeper::settings::MOST_FLOWS;
use tidemill_gatekeeper::{Counter, GateError, GatekeeperControl};
use tidemill_graph::record::Recorder;
use tidemill_graph::{GraphBuilder, stages_of};
use tidemill_port::Left;

/// A Gatekeeper that runs. Who needs the router's control side and the gate's takes the router's first.
pub(super) struct Gatekeeper {
    router: Arc<Router>,
    gate: Mutex<GatekeeperControl>,
    /// The generation of the router's interfaces that the gate knows.
    interfaces: AtomicU64,
    /// When it was last looked at what is announced while Grantors answer.
    announced_ns: AtomicU64,
    /// What has been said of flow programs.
    wrongs: Mutex<Wrongs>,
    /// Whether this run is recorded: what an operator changes of the gate is in no record.
    recorded: bool,
    trouble: Arc<Trouble>,
    /// The workers whose packets have flows: one of each chain.
    chains: usize,
    /// What refuses and forwards before us.
    below: Option<Below>,
}

/// Makes a Gatekeeper: its router with its ports, and the gate.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    check_section(opening.config, opening.name)?;
    let (below, fronted) = Below::open(opening)?;
    let Opening { config, text, name, base, places, domain, record, .. } = *opening;
    let config = fronted.as_ref().unwrap_or(config);
    let trouble = opening.trouble.clone();
    let opening = &Opening { config, text, name, base, places, domain, record, trouble };
    let (router, ports, state) = router::make(opening)?;
    let role = Arc::new(gatekeeper(opening, router, record, below)?);
    Ok(Open { role, ports, state })
}

/// Makes the Gatekeeper of a record.
pub(super) fn reopen(opening: &Opening<'_>, state: &[u8]) -> Result<Arc<dyn Role>> {
    let router = router::remake(opening, state)?;
    Ok(Arc::new(gatekeeper(opening, router, true, None)?))
}

/// Checks a Gatekeeper's configuration.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    check_section(config, name)?;
    let below = offload::check(config, name)?;
    let (control, domain, routes) = router::check_control(config, name)?;
    let mut section = config.gatekeeper.clone().unwrap_or_default();
    // Nothing will flow: small tables do.
    section.flows = checked_room(section.flows, MOST_FLOWS);
    let interfaces = &control.settings().interfaces;
    let gate =
        GatekeeperControl::new(&section, interfaces, 1, &domain).map_err(|error| mistake(name, &error))?;
    let (mut graph, parts) = spliced::check(config, name, &control, &domain)?;
    tidemill_gatekeeper::splice(&mut graph, &gate, router::host(&control));
    router::check_flowspec(&mut graph, config, &domain, &control);
    let front: Vec<&str> = interfaces
        .iter()
        .zip(&gate.settings().front)
        .filter(|(_, front)| **front)
        .map(|(interface, _)| interface.name.as_str())
        .collect();
    remark(name, &gate);
    if config.bgp.as_ref().is_some_and(|bgp| bgp.flowspec) && !section.keep_dscp {
        eprintln!(
            "tidemill: {name}: warning: what flow specifications mark from the front leaves with DSCP 0: say gatekeeper.keep_dscp = true to keep it"
        );
    }
    let waits = config.bgp.as_ref().is_some_and(|bgp| !bgp.while_grantors().is_empty());
    if waits && gate.settings().probe_ns == 0 {
        eprintln!(
            "tidemill: {name}: warning: bgp.announce.while_grantors has no effect: Grantors are probed where decisions are authenticated and gatekeeper.probes.interval_ms is not 0"
        );
    }
    let said =
        format!("{routes}{parts}; in front: {}; {} policies{below}", front.join(", "), section.policy.len());
    Ok((graph, said))
}

/// What the section needs of the rest of the configuration.
fn check_section(config: &Config, name: &str) -> Result<()> {
    if config.port.len() < 2 {
        return Err(usage(format!(
            "{name}: a gatekeeper has a front and a back: give at least two [[port]]s"
        )));
    }
    let queue = config.gatekeeper.clone().unwrap_or_default().request_queue;
    if queue * 2 > config.memory.frames {
        return Err(usage(format!(
            "{name}: gatekeeper.request_queue: {queue} requests would hold more than half of memory.frames, {}: raise that, or \
             lower this",
            config.memory.frames
        )));
    }
    // Each is checked by itself; they wait in the same memory.
    let waiting = config.waiting();
    let needed = waiting.saturating_add(queue).saturating_add(OTHERS);
    if needed > config.memory.frames {
        return Err(usage(format!(
            "{name}: memory.frames = {}: {waiting} packets may wait in [[queue]]s or as fragments on each worker, and gatekeeper.request_queue = {queue} \
             requests: give at least {needed}, or lower these",
            config.memory.frames
        )));
    }
    Ok(())
}

fn gatekeeper(
    opening: &Opening<'_>,
    router: Arc<Router>,
    record: bool,
    below: Option<Below>,
) -> Result<Gatekeeper> {
    let Opening { config, name, domain, .. } = *opening;
    let section = config.gatekeeper.clone().unwrap_or_default();
    let workers = config.run.workers;
    let made = router.with_control(|control| {
        let interfaces = &control.settings().interfaces;
        let gate = if record || super::setup::is_repeatable(config) {
            // What is replayed, or run again, finds the same room in the same tables.
            GatekeeperControl::with_secret(&section, interfaces, workers, domain, 0)
        } else {
            GatekeeperControl::new(&section, interfaces, workers, domain)
        };
        gate.map(|gate| (gate, control.settings_generation()))
    });
    let (mut gate, generation) = made.map_err(|error| mistake(name, &error))?;
    if let Some(below) = &below {
        below.repeat(&mut gate).map_err(|error| mistake(name, &error))?;
    }
    remark(name, &gate);
    let gatekeeper = Gatekeeper {
        router,
        gate: Mutex::new(gate),
        interfaces: AtomicU64::new(generation),
        announced_ns: AtomicU64::new(0),
        wrongs: Mutex::default(),
        recorded: record,
        trouble: opening.trouble.clone(),
        chains: config.run.chains(),
        below,
    };
    gatekeeper.find_gates(&config.run.stages)?;
    Ok(gatekeeper)
}

fn mistake(name: &str, error: &GateError) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

/// Says what the configuration says without effect.
fn remark(name: &str, gate: &GatekeeperControl) {
    gate.remarks().iter().for_each(|remark| eprintln!("tidemill: {name}: {remark}"));
}

/// How soon an announcement follows the Grantors: their probes take longer.
const ANNOUNCE_NS: u64 = 100_000_000;

impl Gatekeeper {
    /// Has the gate know which workers of each chain have it.
    fn find_gates(&self, stages: &[Vec<String>]) -> Result<()> {
        let graph = self.graph().build()?;
        let at = |node| stages_of(&graph, stages, node).map_err(|error| usage(format!("run.{error}")));
        let (at4, at6) = (at("gate4")?, at("gate6")?);
        let depth = stages.len() + 1;
        lock(&self.gate).set_gates(|worker| at4[worker % depth], |worker| at6[worker % depth]);
        Ok(())
    }

    /// Announces what is announced while a Grantor answers, or withdraws it.
    fn follow_grantors(&self, now_ns: u64) {
        if now_ns.abs_diff(self.announced_ns.load(Ordering::Relaxed)) < ANNOUNCE_NS {
            return;
        }
        self.announced_ns.store(now_ns, Ordering::Relaxed);
        // One after the other: who has the gate takes none of the router's locks.
        let prefixes = self.router.while_grantors();
        if prefixes.is_empty() {
            return;
        }
        let standing = Standing::of(&lock(&self.gate));
        let withheld = prefixes.into_iter().filter(|prefix| !standing.announces(*prefix)).collect();
        self.router.withhold(withheld);
    }

    /// Has the gate know interfaces that have changed.
    fn follow_interfaces(&self) {
        self.router.with_control(|control| {
            let generation = control.settings_generation();
            if self.interfaces.swap(generation, Ordering::Relaxed) != generation
                && let Err(error) = lock(&self.gate).interfaces(&control.settings().interfaces)
            {
                let line = format!("warning: {error}: the gate goes by the interfaces of before");
                self.trouble.note("gatekeeper", &line);
            }
        });
    }
}

impl Role for Gatekeeper {
    fn graph(&self) -> GraphBuilder {
        self.router.with_control(|control| {
            let mut graph = self.router.base(control);
            tidemill_gatekeeper::splice(&mut graph, &lock(&self.gate), router::host(control));
            self.router.splice_flowspec(&mut graph, control);
            graph
        })
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.router.turn(now_ns, recorder);
        self.follow_interfaces();
        let heard = {
            let mut gate = lock(&self.gate);
            let heard = gate.poll();
            gate.notices().iter().for_each(|notice| self.trouble.note("gatekeeper", &notice.to_string()));
            let lines = lock(&self.wrongs).lines(now_ns, || programs::counts(&gate.counters()));
            lines.iter().for_each(|line| self.trouble.note("gatekeeper", line));
            heard
        };
        self.follow_grantors(now_ns);
        heard || did
    }

    fn repeat(&self, change: &[u8]) -> Result<u64, String> {
        self.router.repeat(change)
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        let section = new.gatekeeper.clone().unwrap_or_default();
        check_section(new, name)?;
        // All that can be wrong is found before anything changes: what was added through the API goes when a configuration is taken, not when one is refused.
        let left = self.router.reload_with(
            (name, old, new, text),
            |interfaces| {
                let gate = lock(&self.gate);
                let prepared = gate.prepare(&section, interfaces).map_err(|error| mistake(name, &error))?;
                Ok((gate, prepared))
            },
            |(mut gate, prepared)| gate.commit(prepared).map_err(|error| mistake(name, &error)),
        )?;
        self.follow_interfaces();
        remark(name, &lock(&self.gate));
        Ok(left)
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        self.router.clone().verbs_but_offload(registry);
        api::register(&self, registry);
        registry.event_kind(
            "gatekeeper",
            "What the gate has to say: Grantors that do not answer, or do again; its offload; its flow programs",
        );
        registry.panel("Gatekeeper", move || {
            let counters = lock(&self.gate).counters();
            let mut families = figures("gate", counters.figures());
            families.extend(self.below.iter().flat_map(|below| below.metrics(&counters)));
            families
        });
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = self.router.tables();
        let gate = lock(&self.gate);
        let counters = gate.counters();
        let flows = |name: &str, counter| Table {
            name: name.into(),
            entries: counters.get(counter),
            room: Some((gate.section().flows * self.chains) as u64),
            ..Table::default()
        };
        tables.extend([flows("IPv4 flows", Counter::Flows4), flows("IPv6 flows", Counter::Flows6)]);
        tables.extend(self.below.as_ref().map(|below| Table {
            name: "declined flows of the offload".into(),
            kind: "xdp".into(),
            entries: counters.get(Counter::OffloadRules),
            room: Some(below.room()),
            ..Table::default()
        }));
        tables
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        self.router.beside(scope, done);
        if let Some(below) = &self.below {
            scope.spawn(|| below.follow(self, done));
        }
    }

    fn end(&self) {
        if let Some(below) = &self.below {
            below.close(self);
        }
        self.router.end();
    }

    fn link(&self, port: usize) -> Option<bool> {
        self.router.link(port)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.router.left(port)
    }

    fn progress(&self) -> String {
        let counters = lock(&self.gate).counters();
        let flows = counters.get(Counter::Flows4) + counters.get(Counter::Flows6);
        format!("{} flows {flows} requests {}", self.router.progress(), counters.get(Counter::Requests))
    }

    fn told(&self) -> Told {
        let mut told = self.router.told();
        let counters = lock(&self.gate).counters();
        told.counters("gate", "gate", counters.iter());
        told.last.extend(self.below.as_ref().map(|below| below.told(&counters)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::setup::places;
    use std::path::Path;
    use tidemill_gatekeeper::{Decision, Verdict};
    use tidemill_lookup::numa::Topology;
    use tidemill_lookup::qsbr::Domain;
    use tidemill_wire::flow::Addresses;

    /// With stages, of a chain's workers one has the gate: there is room for its flows, and it gets decisions.
    #[test]
    fn a_chain_of_workers_has_the_room_of_one() {
        let text = "version = 1\nrole = \"gatekeeper\"\n[run]\nworkers = 4\npin = false\nstages = [[\"gate4\", \"gate6\"]]\n\
            [[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n\
            [gatekeeper]\nfront = [\"a\"]\nbandwidth = \"1 Gbps\"\nflows = 1000\n";
        let config = Config::parse(text, "test").unwrap();
        let (places, domain) = (places(&config, &Topology::default(), "test").unwrap(), Domain::new());
        let opening = Opening {
            config: &config,
            text,
            name: "test",
            base: Path::new(""),
            places: &places,
            domain: &domain,
            record: false,
            trouble: Arc::default(),
        };
        let (router, ..) = router::make(&opening).unwrap();
        let made = gatekeeper(&opening, router, false, None).unwrap();
        let tables = made.tables();
        let rooms = tables.iter().filter(|table| table.name.ends_with(" flows")).map(|table| table.room);
        assert_eq!(rooms.collect::<Vec<_>>(), [Some(2000), Some(2000)]);
        // Nobody reads the mailboxes. When they are full, one decision more is lost in each.
        for flow in [Addresses::V4 { src: 1, dst: 2 }, Addresses::V6 { src: 1, dst: 2 }] {
            let lost = lock(&made.gate).counters().get(Counter::MailLost);
            let decision = Decision { flow, verdict: Verdict::Declined { expire_s: 1 } };
            while lock(&made.gate).decide(&decision) {}
            assert_eq!(lock(&made.gate).counters().get(Counter::MailLost), lost + 2);
        }
    }
}
