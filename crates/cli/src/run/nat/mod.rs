//! The role `nat`: a router that translates addresses. All that a router is and answers, this is and answers too.

mod api;
mod handover;

use super::config::{Config, OTHERS};
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::router::{self, Router};
use super::service::{checked_room, lock, unchanged};
use crate::usage;
use crate::usage::one_line;
use anyhow::Result;
use handover::HandoverFile;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_nf::nat::{Counter, Host, NatControl, NatError};
use tidemill_port::Left;
use tidemill_router::RouterControl;

/// A NAT that runs. Who needs the router's control side and the NAT's takes the router's first.
pub(super) struct Nat {
    router: Arc<Router>,
    control: Mutex<NatControl>,
    /// The generation of the router's interfaces that the NAT knows.
    interfaces: AtomicU64,
    trouble: Arc<Trouble>,
    workers: usize,
    handover: Option<HandoverFile>,
}

/// Makes a NAT: its router with its ports, and its tables.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    check_section(opening.config, opening.name)?;
    let (router, ports, state) = router::make(opening)?;
    let role = Arc::new(nat(opening, router, opening.record)?);
    Ok(Open { role, ports, state })
}

/// Makes the NAT of a record.
pub(super) fn reopen(opening: &Opening<'_>, state: &[u8]) -> Result<Arc<dyn Role>> {
    let router = router::remake(opening, state)?;
    Ok(Arc::new(nat(opening, router, true)?))
}

/// Checks a NAT's configuration.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    check_section(config, name)?;
    let (control, domain, routes) = router::check_control(config, name)?;
    let mut section = config.nat.clone().unwrap_or_default();
    // Nothing will flow: small tables do.
    section.mappings = checked_room(section.mappings);
    section.sessions = checked_room(section.sessions);
    let interfaces = &control.settings().interfaces;
    let nat = NatControl::new(&section, interfaces, 1, &domain).map_err(|error| mistake(name, &error))?;
    let mut graph = tidemill_router::graph(&control);
    tidemill_nf::nat::splice(&mut graph, &nat, host(&control));
    nat.remarks(interfaces).iter().for_each(|remark| eprintln!("tidemill: {name}: {remark}"));
    let (v4, v6) = nat.pool();
    let said =
        format!("{routes}; inside: {}; pool: {v4} IPv4 and {v6} IPv6 addresses", section.inside.join(", "));
    Ok((graph, said))
}

/// What the section needs of the rest of the configuration.
fn check_section(config: &Config, name: &str) -> Result<()> {
    let Some(section) = &config.nat else {
        return Err(usage(format!(
            "{name}: nat: is missing: say in [nat] who is inside, and which pool there is"
        )));
    };
    if !config.run.stages.is_empty() {
        return Err(usage(format!(
            "{name}: run.stages: a NAT's workers hand packets over by whose they are: leave stages out, and give workers"
        )));
    }
    let held = section.fragments.saturating_mul(2);
    let needed = config.queued().saturating_add(held).saturating_add(OTHERS);
    if needed > config.memory.frames {
        return Err(usage(format!(
            "{name}: memory.frames = {}: nat.fragments = {} may wait on each worker of each family: give at least {needed}, or lower that",
            config.memory.frames, section.fragments
        )));
    }
    Ok(())
}

fn nat(opening: &Opening<'_>, router: Arc<Router>, record: bool) -> Result<Nat> {
    let Opening { config, name, domain, .. } = *opening;
    let section = config.nat.clone().unwrap_or_default();
    let workers = config.run.workers;
    let made = router.with_control(|control| {
        let interfaces = &control.settings().interfaces;
        let nat = if record {
            // What is replayed finds the same ports.
            NatControl::with_secret(&section, interfaces, workers, domain, 0)
        } else {
            NatControl::new(&section, interfaces, workers, domain)
        };
        nat.map(|nat| {
            nat.remarks(interfaces).iter().for_each(|remark| eprintln!("tidemill: {name}: {remark}"));
            (nat, control.settings_generation())
        })
    });
    let (mut nat, generation) = made.map_err(|error| mistake(name, &error))?;
    let handover = HandoverFile::new(&section);
    match &handover {
        Some(_) if record => {
            eprintln!("tidemill: {name}: nat.handover: a run that is recorded takes no sessions over");
        }
        Some(file) => file.take(name, &mut nat),
        None => {}
    }
    let (control, interfaces) = (Mutex::new(nat), AtomicU64::new(generation));
    let (trouble, handover) = (opening.trouble.clone(), handover.filter(|_| !record));
    Ok(Nat { router, control, interfaces, trouble, workers, handover })
}

fn mistake(name: &str, error: &NatError) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

fn host(control: &RouterControl) -> Host {
    let (ways4, ways6) = (control.ways4(), control.ways6());
    Host { hops4: Box::new(move |worker| ways4(worker).1), hops6: Box::new(move |worker| ways6(worker).1) }
}

impl Nat {
    /// Has the NAT know interfaces that have changed.
    fn follow_interfaces(&self) {
        self.router.with_control(|control| {
            let generation = control.settings_generation();
            if self.interfaces.swap(generation, Ordering::Relaxed) != generation
                && let Err(error) = lock(&self.control).interfaces(&control.settings().interfaces)
            {
                self.trouble
                    .note("nat", &format!("warning: {error}: the NAT goes by the interfaces of before"));
            }
        });
    }
}

impl Role for Nat {
    fn graph(&self) -> GraphBuilder {
        self.router.with_control(|control| {
            let mut graph = tidemill_router::graph(control);
            tidemill_nf::nat::splice(&mut graph, &lock(&self.control), host(control));
            graph
        })
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.router.turn(now_ns, recorder);
        self.follow_interfaces();
        lock(&self.control).poll();
        did
    }

    fn repeat(&self, change: &[u8]) -> Result<u64, String> {
        self.router.repeat(change)
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        check_section(new, name)?;
        let section = new.nat.clone().unwrap_or_default();
        // All that can be wrong is found before anything changes; new interfaces may be in the section at once.
        let left = self.router.reload_with(
            (name, old, new, text),
            |interfaces| {
                let nat = lock(&self.control);
                let prepared = nat.prepare(&section, interfaces).map_err(|error| mistake(name, &error))?;
                Ok((nat, prepared))
            },
            |(mut nat, prepared)| {
                nat.commit(prepared);
                Vec::new()
            },
        )?;
        self.follow_interfaces();
        Ok(left)
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        self.router.clone().verbs(registry);
        api::register(&self, registry);
        registry.event_kind("nat", "What the NAT has to say: interfaces that it cannot follow");
        registry.panel("NAT", move || figures("nat", lock(&self.control).counters().figures()));
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = self.router.tables();
        let control = lock(&self.control);
        let (counters, section) = (control.counters(), control.section());
        let table = |name: &str, counter, room: usize| Table {
            name: name.into(),
            entries: counters.get(counter),
            room: Some((room * self.workers) as u64),
            ..Table::default()
        };
        tables.extend([
            table("IPv4 mappings", Counter::Mappings4, section.mappings),
            table("IPv6 mappings", Counter::Mappings6, section.mappings),
            table("IPv4 sessions", Counter::Sessions4, section.sessions),
            table("IPv6 sessions", Counter::Sessions6, section.sessions),
        ]);
        tables
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        self.router.beside(scope, done);
        if let Some(file) = &self.handover {
            scope.spawn(|| file.watch(&self.control, done));
        }
    }

    fn end(&self) {
        self.router.end();
        if let Some(file) = &self.handover
            && let Err(error) = file.save(&self.control)
        {
            eprintln!("tidemill: warning: {}: sessions are not saved", one_line(&error));
        }
    }

    fn link(&self, port: usize) -> Option<bool> {
        self.router.link(port)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.router.left(port)
    }

    fn progress(&self) -> String {
        let counters = lock(&self.control).counters();
        let sessions = counters.get(Counter::Sessions4) + counters.get(Counter::Sessions6);
        format!("{} sessions {sessions}", self.router.progress())
    }

    fn told(&self) -> Told {
        let mut told = self.router.told();
        let counters = lock(&self.control).counters();
        told.counters("nat", "nat", counters.iter());
        told
    }
}
