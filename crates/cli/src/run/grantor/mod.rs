//! The role `grantor`: a router that takes packets out of Gatekeepers' tunnels and decides who may send. All that a router is and answers, this is and
//! answers too.

mod api;

use super::config::{Config, OTHERS};
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::router::{self, Router};
use super::service::{lock, now_ns, unchanged};
use super::setup;
use super::spliced;
use crate::usage;
use anyhow::Result;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use std::time::Duration;
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_grantor::section::remarks;
use tidemill_grantor::{Counter, GrantorControl, GrantorSection, PolicyError, Run};
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Left;

/// A Grantor that runs. Who needs the router's control side and the Grantor's takes the router's first.
pub(super) struct Grantor {
    router: Arc<Router>,
    control: Mutex<GrantorControl>,
    trouble: Arc<Trouble>,
}

/// Makes a Grantor: its router with its ports, its policy, the policy's threads.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let Opening { config, name, base, domain, record, .. } = *opening;
    if record {
        return Err(usage(
            "--record: a grantor's policy and its tables are in no record: run it on captures, which gives the same output every time",
        ));
    }
    // The policy first: what is wrong with it is found before any port is opened.
    let run = if setup::clock(config).follows_packets() {
        Run::Repeatable
    } else {
        Run::Live { clock: Arc::new(now_ns), seed: RandomState::new().hash_one("policy") }
    };
    if let (Run::Live { .. }, true) = (&run, config.run.pin)
        && let Some(line) = crowded(config.run.workers, tidemill_graph::allowed_cpus().len())
    {
        opening.trouble.note("grantor", &line);
    }
    let control = make(&opening.trouble, config, name, base, config.run.workers, domain, run)?;
    let (router, ports, state) = router::make(opening)?;
    router.with_control(|router| {
        let remarks = remarks(control.section(), &router.settings().interfaces);
        remarks.iter().for_each(|remark| opening.trouble.note("grantor", remark));
    });
    let role = Arc::new(Grantor { router, control: Mutex::new(control), trouble: opening.trouble.clone() });
    Ok(Open { role, ports, state })
}

/// Checks a Grantor's configuration, its script and its tables.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    let (router, domain, routes) = router::check_control(config, name)?;
    let folder = Path::new(name).parent().map(PathBuf::from).unwrap_or_default();
    let control = make(&Arc::default(), config, name, &folder, 1, &domain, Run::Repeatable)?;
    let remarks = remarks(control.section(), &router.settings().interfaces);
    remarks.iter().for_each(|remark| eprintln!("tidemill: {name}: {remark}"));
    let (mut graph, parts) = spliced::check(config, name, &router, &domain)?;
    tidemill_grantor::splice(&mut graph, &control);
    router::check_flowspec(&mut graph, config, &domain, &router);
    let tables = control.policy().library().list().len();
    let said = format!("{routes}{parts}; policy {}, {tables} tables", control.policy().name());
    Ok((graph, said))
}

/// What to say where each processor has a worker: policies run on threads of their own, and need one for these.
fn crowded(workers: usize, processors: usize) -> Option<String> {
    (workers >= processors).then(|| {
        format!(
            "warning: run.workers = {workers} of {processors} processors: the policies have none of their own, and one that hangs takes up to half of a worker's: give fewer workers"
        )
    })
}

fn section(config: &Config) -> GrantorSection {
    config.grantor.clone().unwrap_or_default()
}

fn make(
    trouble: &Arc<Trouble>,
    config: &Config,
    name: &str,
    folder: &Path,
    workers: usize,
    domain: &Domain,
    run: Run,
) -> Result<GrantorControl> {
    let section = section(config);
    check_memory(config, &section, name)?;
    let trouble = trouble.clone();
    let log = Arc::new(move |line: &str| trouble.note("grantor", line));
    GrantorControl::new(&section, folder, workers, domain, run, log).map_err(|error| mistake(name, &error))
}

/// Packets that wait for the policy lie in the same memory as those that wait elsewhere.
fn check_memory(config: &Config, section: &GrantorSection, name: &str) -> Result<()> {
    let (waiting, asking) = (config.waiting(), section.policy.queue);
    let needed = waiting.saturating_add(asking).saturating_add(OTHERS);
    if needed > config.memory.frames {
        return Err(usage(format!(
            "{name}: memory.frames = {}: {waiting} packets may wait in [[queue]]s or as fragments on each worker, and grantor.policy.queue = {asking} \
             for the policy: give at least {needed}, or lower these",
            config.memory.frames
        )));
    }
    Ok(())
}

fn mistake(name: &str, error: &PolicyError) -> anyhow::Error {
    match error {
        // These begin with the file that they are about.
        PolicyError::Script(_) | PolicyError::Read { .. } | PolicyError::Table(_) => usage(error.to_string()),
        PolicyError::NoLua => {
            usage(format!("{name}: role = \"grantor\": {error} (cargo build --release --features lua)"))
        }
        _ => usage(format!("{name}: {error}")),
    }
}

impl Role for Grantor {
    fn graph(&self) -> GraphBuilder {
        self.router.with_control(|router| {
            let mut graph = self.router.base(router);
            tidemill_grantor::splice(&mut graph, &lock(&self.control));
            self.router.splice_flowspec(&mut graph, router);
            graph
        })
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.router.turn(now_ns, recorder);
        lock(&self.control).poll(now_ns) || did
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        let section = section(new);
        check_memory(new, &section, name)?;
        // All that can be wrong is found before anything changes.
        // Its files are read without the lock, which packets' control side needs.
        let preparation = lock(&self.control).prepare(&section);
        let prepared = preparation.and_then(|preparation| preparation.read());
        let prepared = prepared.map_err(|error| mistake(name, &error))?;
        let mut left = self.router.reload(name, old, new, text)?;
        // Not under the lock: packets' control side needs it while workers finish their batches.
        let swap = lock(&self.control).begin(prepared);
        while !lock(&self.control).is_over(&swap) {
            std::thread::sleep(Duration::from_millis(1));
        }
        match lock(&self.control).end(swap, now_ns()) {
            Ok(true) => {}
            Ok(false) => left.push(
                "a worker is still at work by the old policy: its next question is the new one's".into(),
            ),
            Err(error) => {
                left.push(format!("{error}: this worker has no policy: reload again"));
                self.trouble.complain("grantor", &error.into());
            }
        }
        Ok(left)
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        self.router.clone().verbs(registry);
        api::register(&self, registry);
        registry.event_kind("grantor", "What the policy prints, and what is wrong with it");
        registry.panel("Grantor", move || {
            let numbers = lock(&self.control).numbers();
            let is_now = |name: &str| name == Counter::Waiting.name();
            figures("grantor", numbers.iter().map(|(name, count)| (name.as_str(), *count, is_now(name))))
        });
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = self.router.tables();
        let control = lock(&self.control);
        tables.extend(control.policy().library().list().into_iter().map(|(name, table)| Table {
            name,
            kind: "policy's table".into(),
            entries: table.prefixes() as u64,
            ..Table::default()
        }));
        tables
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        self.router.beside(scope, done);
    }

    fn end(&self) {
        self.router.end();
    }

    fn link(&self, port: usize) -> Option<bool> {
        self.router.link(port)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.router.left(port)
    }

    fn progress(&self) -> String {
        let counters = lock(&self.control).counters();
        let (granted, decisions) = (counters.get(Counter::Granted), counters.get(Counter::Decisions));
        format!("{} granted {granted} decisions {decisions}", self.router.progress())
    }

    fn told(&self) -> Told {
        let mut told = self.router.told();
        let numbers = lock(&self.control).numbers();
        told.counters("grantor", "grantor", numbers.iter().map(|(name, count)| (name.as_str(), *count)));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::crowded;

    #[test]
    fn policies_want_a_processor_without_a_worker() {
        assert_eq!([crowded(1, 2), crowded(7, 8)], [None, None]);
        for (workers, processors) in [(1, 1), (2, 2), (4, 2)] {
            assert!(
                crowded(workers, processors).is_some_and(|line| line.starts_with("warning: run.workers"))
            );
        }
    }
}
