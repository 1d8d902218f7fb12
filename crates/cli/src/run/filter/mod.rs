//! The role `filter`: a router that lets pass what its rules let. All that a router is and answers, this is and answers too.

mod api;

use super::config::{Config, OTHERS};
use super::role::{LeftOver, Open, Opening, Role, Told, figures};
use super::router::{self, Router};
use super::service::{checked_room, lock, unchanged};
use crate::usage;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_nf::filter::{Counter, FilterControl, FilterError, FilterFiles, FilterSection, Host};
use tidemill_port::Left;
use tidemill_router::RouterControl;

/// A filter that runs. Who needs the router's control side and the filter's takes the router's first.
pub(super) struct Filter {
    router: Arc<Router>,
    control: Mutex<FilterControl>,
    /// One at a time reads files and takes them over: nobody who works beside packets waits for that.
    loading: Mutex<()>,
    /// The generation of the router's interfaces that the filter knows.
    interfaces: AtomicU64,
    workers: usize,
}

/// Makes a filter: its router with its ports, and its tables.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let Opening { config, name, domain, record, .. } = *opening;
    if record {
        return Err(usage(
            "--record: a filter's rules are in no record: run it on captures, which gives the same output every time",
        ));
    }
    check_section(config, name)?;
    let (router, ports, state) = router::make(opening)?;
    let section = config.filter.clone().unwrap_or_default();
    // What follows a capture gives the same output every time.
    let repeatable = super::setup::clock(config).follows_packets();
    let made = router.with_control(|control| {
        let (interfaces, workers) = (&control.settings().interfaces, config.run.workers);
        let filter = match repeatable {
            true => FilterControl::with_secret(&section, interfaces, workers, domain, 0),
            false => FilterControl::new(&section, interfaces, workers, domain),
        };
        filter.map(|filter| (filter, control.settings_generation()))
    });
    let (control, generation) = made.map_err(|error| mistake(name, &error))?;
    let interfaces = AtomicU64::new(generation);
    let workers = config.run.workers;
    let role = Arc::new(Filter {
        router,
        control: Mutex::new(control),
        loading: Mutex::new(()),
        interfaces,
        workers,
    });
    Ok(Open { role, ports, state })
}

/// Checks a filter's configuration and its file of rules.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    check_section(config, name)?;
    let (control, domain, routes) = router::check_control(config, name)?;
    let mut section = config.filter.clone().unwrap_or_default();
    tidemill_nf::filter::settings::check(&section).map_err(|error| mistake(name, &error))?;
    // Nothing will flow: small tables do.
    section.states = checked_room(section.states);
    section.half_open = section.half_open.min(section.states);
    let interfaces = &control.settings().interfaces;
    let filter =
        FilterControl::new(&section, interfaces, 1, &domain).map_err(|error| mistake(name, &error))?;
    let mut graph = tidemill_router::graph(&control);
    tidemill_nf::filter::splice(&mut graph, &filter, host(&control));
    let sets = filter.set_list();
    let addresses: usize = sets.iter().map(|set| set.v4 + set.v6).sum();
    let said = format!(
        "{routes}; {} rules ({} matches), {} tables of {addresses} addresses",
        filter.rules().list().len(),
        filter.rules().matches(),
        sets.len()
    );
    Ok((graph, said))
}

/// What the section needs of the rest of the configuration.
fn check_section(config: &Config, name: &str) -> Result<()> {
    let Some(section) = &config.filter else {
        return Err(usage(format!("{name}: filter: is missing: name the file of rules in [filter]")));
    };
    if !config.run.stages.is_empty() {
        return Err(usage(format!(
            "{name}: run.stages: a filter's workers hand packets over by whose they are: leave stages out, and give workers"
        )));
    }
    let held = section.fragments.saturating_mul(2);
    let needed = config.queued().saturating_add(held).saturating_add(OTHERS);
    if needed > config.memory.frames {
        return Err(usage(format!(
            "{name}: memory.frames = {}: filter.fragments = {} may wait on each worker of each family: give at least {needed}, or lower that",
            config.memory.frames, section.fragments
        )));
    }
    Ok(())
}

fn mistake(name: &str, error: &FilterError) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

fn host(control: &RouterControl) -> Host {
    let (ways4, ways6) = (control.ways4(), control.ways6());
    Host { hops4: Box::new(move |worker| ways4(worker).1), hops6: Box::new(move |worker| ways6(worker).1) }
}

impl Filter {
    /// Reads a section's files, and takes them over: whoever needs what is locked waits for the second only. Returns the version.
    fn load(&self, section: &FilterSection) -> Result<u32, FilterError> {
        let files = FilterFiles::read(section)?;
        self.router.with_control(|control| lock(&self.control).take(files, &control.settings().interfaces))
    }

    /// Has the filter know interfaces that have changed.
    fn follow_interfaces(&self) {
        self.router.with_control(|control| {
            let generation = control.settings_generation();
            if self.interfaces.swap(generation, Ordering::Relaxed) != generation
                && let Err(error) = lock(&self.control).interfaces(&control.settings().interfaces)
            {
                eprintln!("tidemill: {error}: the filter goes by the interfaces of before");
            }
        });
    }
}

impl Role for Filter {
    fn graph(&self) -> GraphBuilder {
        self.router.with_control(|control| {
            let mut graph = tidemill_router::graph(control);
            tidemill_nf::filter::splice(&mut graph, &lock(&self.control), host(control));
            graph
        })
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.router.turn(now_ns, recorder);
        self.follow_interfaces();
        lock(&self.control).poll();
        did
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        check_section(new, name)?;
        let section = new.filter.clone().unwrap_or_default();
        // The filter first: it refuses rules that do not fit the interfaces of now before the router has changed anything.
        let _one = lock(&self.loading);
        let before = lock(&self.control).section().clone();
        self.load(&section).map_err(|error| mistake(name, &error))?;
        let left = match self.router.reload(name, old, new, text) {
            Ok(left) => left,
            Err(error) => {
                // The section is as before, its files are as they are now; unless the way back is closed.
                let Err(back) = self.load(&before) else { return Err(error) };
                let why = crate::usage::one_line(&error);
                vec![format!(
                    "the router keeps the old configuration ({why}), the filter the new section ({back})"
                )]
            }
        };
        self.follow_interfaces();
        Ok(left)
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        self.router.clone().verbs(registry);
        api::register(&self, registry);
        registry.panel("Filter", move || figures("filter", lock(&self.control).counters().figures()));
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
            table("IPv4 states", Counter::States4, section.states),
            table("IPv6 states", Counter::States6, section.states),
            table("IPv4 half-open", Counter::HalfOpen4, section.half_open),
            table("IPv6 half-open", Counter::HalfOpen6, section.half_open),
        ]);
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
        let states = counters.get(Counter::States4) + counters.get(Counter::States6);
        format!("{} states {states}", self.router.progress())
    }

    fn told(&self) -> Told {
        let mut told = self.router.told();
        let counters = lock(&self.control).counters();
        told.counters("filter", "filter", counters.iter());
        told
    }
}
