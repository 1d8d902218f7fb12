//! Roles that are a router with something put into its graph, as NAT and the filter are: all that a router is and answers, these are and answer too.

use super::config::{Config, OTHERS};
use super::role::{LeftOver, Opening, Role, Told, Trouble, figures};
use super::router::Router;
use super::service::{lock, unchanged};
use crate::usage;
use anyhow::Result;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_ip::{Interfaces, NextHops};
use tidemill_lookup::publish::View;
use tidemill_port::{Left, PortSpec};
use tidemill_router::RouterControl;

/// What is put in.
pub(super) trait Part: Sized + Send + Sync + 'static {
    /// Its control side, which workers never wait for.
    type Control: Send;
    /// What a configuration names and has to be read from a disk.
    type Files;
    /// A configuration that was found right.
    type Prepared;
    /// Its name: of its section, in counters and events.
    const NAME: &'static str;
    /// Who it is, in sentences: `the NAT`.
    const WHO: &'static str;
    /// Over its figures.
    const TITLE: &'static str;

    /// Puts its nodes into the router's graph.
    fn splice(graph: &mut GraphBuilder, control: &Self::Control, router: &RouterControl);
    /// What the section needs of the rest of the configuration.
    fn check_section(config: &Config, name: &str) -> Result<()>;
    /// Reads what a new configuration names, which may take as long as the disk likes: nothing is locked.
    fn read(config: &Config, name: &str) -> Result<Self::Files>;
    /// Checks a new configuration against the interfaces that there will be.
    fn prepare(
        control: &Self::Control,
        files: Self::Files,
        config: &Config,
        name: &str,
        interfaces: &Interfaces,
    ) -> Result<Self::Prepared>;
    /// Takes it over.
    fn commit(control: &mut Self::Control, prepared: Self::Prepared);
    /// The interfaces have changed; why it goes by those of before, if it does.
    fn interfaces(control: &mut Self::Control, interfaces: &Interfaces) -> Result<(), String>;
    /// What the configuration says that will not work as it seems.
    fn remarks(_control: &Self::Control, _interfaces: &Interfaces) -> Vec<String> {
        Vec::new()
    }
    /// One round of its control side.
    fn poll(control: &mut Self::Control);
    /// All that it counts: name, number, whether that is so now.
    fn figures(control: &Self::Control) -> Vec<(&'static str, u64, bool)>;
    /// Its tables: name, entries, and the room of each worker.
    fn tables(control: &Self::Control) -> Vec<(&'static str, u64, usize)>;
    /// What to say of itself in the line of a run that goes on.
    fn progress(control: &Self::Control) -> String;
    /// Adds the verbs that only it has.
    fn verbs(role: &Arc<Spliced<Self>>, registry: &mut Registry);

    /// What goes on beside the packets, until `done`.
    fn beside<'scope>(
        _role: &'scope Spliced<Self>,
        _scope: &'scope Scope<'scope, '_>,
        _done: &'scope AtomicBool,
    ) {
    }
    /// All workers have stopped.
    fn end(_role: &Spliced<Self>) {}
}

/// Such a role that runs. Who needs the router's control side and the part's takes the router's first.
pub(super) struct Spliced<P: Part> {
    pub(super) router: Arc<Router>,
    pub(super) part: P,
    pub(super) control: Mutex<P::Control>,
    /// One at a time reads files and takes them over: nobody who works beside packets waits for that.
    pub(super) loading: Mutex<()>,
    /// The generation of the router's interfaces that the part knows.
    interfaces: AtomicU64,
    trouble: Arc<Trouble>,
    workers: usize,
}

/// Next hops of a family, as a worker sees them, by its number.
pub(super) type Hops = Box<dyn Fn(usize) -> View<NextHops> + Send + Sync>;

/// Those of both families.
pub(super) fn hops(control: &RouterControl) -> (Hops, Hops) {
    let (ways4, ways6) = (control.ways4(), control.ways6());
    (Box::new(move |worker| ways4(worker).1), Box::new(move |worker| ways6(worker).1))
}

/// What parts whose workers hand packets over, and keep fragments, need of the rest of the configuration. `who`: `a NAT`.
pub(super) fn check_room(config: &Config, name: &str, who: &str, key: &str, fragments: usize) -> Result<()> {
    if !config.run.stages.is_empty() {
        return Err(usage(format!(
            "{name}: run.stages: {who}'s workers hand packets over by whose they are: leave stages out, and give workers"
        )));
    }
    let captures =
        config.port.iter().any(|port| matches!(port, PortSpec::Pcap(spec) if spec.input.is_some()));
    if captures && config.run.chains() > 1 {
        return Err(usage(format!(
            "{name}: run.workers = {}: {who}'s workers hand packets over by bounded rings, and a capture is read faster than any cable and ends: packets \
             would be lost: give one worker",
            config.run.workers
        )));
    }
    let held = fragments.saturating_mul(2);
    let needed = config.queued().saturating_add(held).saturating_add(OTHERS);
    if needed > config.memory.frames {
        return Err(usage(format!(
            "{name}: memory.frames = {}: {key}.fragments = {fragments} may wait on each worker of each family: give at least {needed}, or lower that",
            config.memory.frames
        )));
    }
    Ok(())
}

pub(super) fn mistake(name: &str, error: &impl Display) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

impl<P: Part> Spliced<P> {
    /// Makes one around a router: `make` its part and that one's control side, with the interfaces of now.
    pub(super) fn new(
        opening: &Opening<'_>,
        router: Arc<Router>,
        make: impl FnOnce(&Interfaces) -> Result<(P, P::Control)>,
    ) -> Result<Self> {
        let made = router.with_control(|control| {
            make(&control.settings().interfaces).map(|made| (made, control.settings_generation()))
        });
        let ((part, control), generation) = made?;
        Ok(Spliced {
            router,
            part,
            control: Mutex::new(control),
            loading: Mutex::new(()),
            interfaces: AtomicU64::new(generation),
            trouble: opening.trouble.clone(),
            workers: opening.config.run.workers,
        })
    }

    fn remarks(&self) -> Vec<String> {
        self.router.with_control(|control| P::remarks(&lock(&self.control), &control.settings().interfaces))
    }

    /// Has the part know interfaces that have changed.
    fn follow_interfaces(&self) {
        self.router.with_control(|control| {
            let generation = control.settings_generation();
            if self.interfaces.swap(generation, Ordering::Relaxed) != generation
                && let Err(error) = P::interfaces(&mut lock(&self.control), &control.settings().interfaces)
            {
                let line = format!("warning: {error}: {} goes by the interfaces of before", P::WHO);
                self.trouble.note(P::NAME, &line);
            }
        });
    }
}

impl<P: Part> Role for Spliced<P> {
    fn graph(&self) -> GraphBuilder {
        self.router.with_control(|control| {
            let mut graph = tidemill_router::graph(control);
            P::splice(&mut graph, &lock(&self.control), control);
            self.router.splice_flowspec(&mut graph, control);
            graph
        })
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.router.turn(now_ns, recorder);
        self.follow_interfaces();
        P::poll(&mut lock(&self.control));
        did
    }

    fn repeat(&self, change: &[u8]) -> Result<u64, String> {
        self.router.repeat(change)
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        P::check_section(new, name)?;
        let _one = lock(&self.loading);
        let files = P::read(new, name)?;
        let before = self.remarks();
        // All that can be wrong is found before anything changes; new interfaces may be in the section at once.
        let left = self.router.reload_with(
            (name, old, new, text),
            |interfaces| {
                let control = lock(&self.control);
                let prepared = P::prepare(&control, files, new, name, interfaces)?;
                Ok((control, prepared))
            },
            |(mut control, prepared)| {
                P::commit(&mut control, prepared);
                Vec::new()
            },
        )?;
        self.follow_interfaces();
        for remark in self.remarks().iter().filter(|remark| !before.contains(remark)) {
            self.trouble.note(P::NAME, &format!("warning: {name}: {remark}"));
        }
        Ok(left)
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        self.router.clone().verbs(registry);
        P::verbs(&self, registry);
        let about = "interfaces that it cannot follow, what will not work since a reload";
        registry.event_kind(P::NAME, &format!("What {} has to say: {about}", P::WHO));
        registry.panel(P::TITLE, move || figures(P::NAME, P::figures(&lock(&self.control)).into_iter()));
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = self.router.tables();
        let own = P::tables(&lock(&self.control));
        tables.extend(own.into_iter().map(|(name, entries, room)| Table {
            name: name.into(),
            entries,
            room: Some((room * self.workers) as u64),
            ..Table::default()
        }));
        tables
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        self.router.beside(scope, done);
        P::beside(self, scope, done);
    }

    fn end(&self) {
        self.router.end();
        P::end(self);
    }

    fn link(&self, port: usize) -> Option<bool> {
        self.router.link(port)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.router.left(port)
    }

    fn progress(&self) -> String {
        format!("{} {}", self.router.progress(), P::progress(&lock(&self.control)))
    }

    fn told(&self) -> Told {
        let mut told = self.router.told();
        let figures = P::figures(&lock(&self.control));
        told.counters(P::NAME, P::NAME, figures.iter().map(|(name, count, _)| (*name, *count)));
        told
    }
}
