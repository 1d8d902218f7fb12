//! What is put into a router's graph, as NAT and the filter are: alone, together, and beside every other role that is a router.

use super::config::{Config, OTHERS, Role};
use super::filter::FilterPart;
use super::handover::{HandoverFile, HandsOver};
use super::nat::NatPart;
use super::role::{Opening, Told, Trouble, figures};
use super::router::Router;
use super::service::lock;
use crate::usage;
use anyhow::Result;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_ip::{Interfaces, NextHops};
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::PortSpec;
use tidemill_router::RouterControl;

/// What is put in.
pub(super) trait Part: Sized + Send + Sync + 'static {
    /// Its control side, which workers never wait for.
    type Control: HandsOver + Send;
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

    /// Makes it, and its control side, with the interfaces of now.
    fn open(
        opening: &Opening<'_>,
        is_recorded: bool,
        interfaces: &Interfaces,
    ) -> Result<(Self, Self::Control)>;
    /// The control side of what is only checked, and what to say of it.
    fn check(
        config: &Config,
        name: &str,
        interfaces: &Interfaces,
        domain: &Domain,
    ) -> Result<(Self::Control, String)>;
    /// The file that its tables are handed over by, if one is named.
    fn handover(&self) -> Option<&HandoverFile>;
    /// Puts its nodes into the router's graph.
    fn splice(graph: &mut GraphBuilder, control: &Self::Control, router: &RouterControl);
    /// What the section needs of the rest of the configuration.
    fn check_section(config: &Config, name: &str) -> Result<()>;
    /// Reads what a new configuration names, which may take as long as the disk likes: nothing is locked.
    fn read(config: &Config, name: &str) -> Result<Self::Files>;
    /// Checks a new configuration against the interfaces that there will be.
    fn prepare(
        &self,
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
    /// All that its workers count: name, number, whether that is so now.
    fn figures(control: &Self::Control) -> Vec<(&'static str, u64, bool)>;
    /// Its tables: name, entries, and the room of each worker.
    fn tables(control: &Self::Control) -> Vec<(&'static str, u64, usize)>;
    /// What to say of itself in the line of a run that goes on.
    fn progress(control: &Self::Control) -> String;
    /// Adds the verbs that only it has.
    fn verbs(part: &Arc<Spliced<Self>>, router: &Arc<Router>, registry: &mut Registry);
}

/// A part that runs. Who needs the router's control side and the part's takes the router's first, and NAT's before the filter's.
pub(super) struct Spliced<P: Part> {
    pub(super) part: P,
    pub(super) control: Mutex<P::Control>,
    /// One at a time reads files and takes them over: nobody who works beside packets waits for that.
    pub(super) loading: Mutex<()>,
    /// The generation of the router's interfaces that it knows.
    interfaces: AtomicU64,
    trouble: Arc<Trouble>,
    workers: usize,
}

/// Takes over what was found right.
pub(super) type Commit<'a> = Box<dyn FnOnce() + 'a>;
/// Checks what was read against the interfaces that there will be.
pub(super) type Prepare<'a> = Box<dyn FnOnce(&Interfaces) -> Result<Commit<'a>> + 'a>;

/// Such a part, whichever it is, as its router sees it.
pub(super) trait Runs: Send + Sync {
    /// Puts its nodes into the router's graph.
    fn splice(&self, graph: &mut GraphBuilder, router: &RouterControl);
    /// Has it know interfaces that have changed.
    fn follow(&self, router: &RouterControl);
    /// One round of its control side.
    fn poll(&self);
    /// Reads what a new configuration names: the first step of a reload, with nothing locked that packets need.
    fn read<'a>(&'a self, config: &'a Config, name: &'a str) -> Result<Prepare<'a>>;
    /// What the configuration says that will not work as it seems.
    fn remarks(&self, router: &RouterControl) -> Vec<String>;
    /// Says a line of its own.
    fn note(&self, line: &str);
    /// Adds its verbs and figures.
    fn verbs(self: Arc<Self>, router: &Arc<Router>, registry: &mut Registry);
    /// Its tables.
    fn tables(&self) -> Vec<Table>;
    /// What goes on beside the packets, until `done`.
    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool);
    /// All workers have stopped.
    fn end(&self);
    /// What to say of itself in the line of a run that goes on.
    fn progress(&self) -> String;
    /// Adds what it has counted.
    fn tell(&self, told: &mut Told);
}

/// The parts of a router that a configuration has sections for. NAT is the first: the filter stands before it where packets leave.
pub(super) fn open(
    opening: &Opening<'_>,
    is_recorded: bool,
    router: &RouterControl,
) -> Result<Vec<Arc<dyn Runs>>> {
    let mut parts: Vec<Arc<dyn Runs>> = Vec::new();
    if opening.config.nat.is_some() {
        parts.push(Arc::new(Spliced::<NatPart>::open(opening, is_recorded, router)?));
    }
    if opening.config.filter.is_some() {
        parts.push(Arc::new(Spliced::<FilterPart>::open(opening, is_recorded, router)?));
    }
    Ok(parts)
}

/// Checks what their sections, and the roles that are nothing without, need of the rest of the configuration.
pub(super) fn check_sections(config: &Config, name: &str) -> Result<()> {
    if config.nat.is_some() || config.role == Role::Nat {
        NatPart::check_section(config, name)?;
    }
    if config.filter.is_some() || config.role == Role::Filter {
        FilterPart::check_section(config, name)?;
    }
    Ok(())
}

/// The graph of a router that is only checked, with its parts, and what to say of them.
pub(super) fn check(
    config: &Config,
    name: &str,
    router: &RouterControl,
    domain: &Domain,
) -> Result<(GraphBuilder, String)> {
    let (mut graph, mut said) = (tidemill_router::graph(router), String::new());
    if config.nat.is_some() {
        said += &check_one::<NatPart>(&mut graph, config, name, router, domain)?;
    }
    if config.filter.is_some() {
        said += &check_one::<FilterPart>(&mut graph, config, name, router, domain)?;
    }
    Ok((graph, said))
}

fn check_one<P: Part>(
    graph: &mut GraphBuilder,
    config: &Config,
    name: &str,
    router: &RouterControl,
    domain: &Domain,
) -> Result<String> {
    let (control, said) = P::check(config, name, &router.settings().interfaces, domain)?;
    P::splice(graph, &control, router);
    Ok(format!("; {said}"))
}

/// Next hops of a family, as a worker sees them, by its number.
pub(super) type Hops = Box<dyn Fn(usize) -> View<NextHops> + Send + Sync>;

/// Those of both families.
pub(super) fn hops(control: &RouterControl) -> (Hops, Hops) {
    let (ways4, ways6) = (control.ways4(), control.ways6());
    (Box::new(move |worker| ways4(worker).1), Box::new(move |worker| ways6(worker).1))
}

/// What parts whose workers hand packets over, and keep fragments, need of the rest of the configuration. `who`: `a NAT`.
pub(super) fn check_room(config: &Config, name: &str, who: &str) -> Result<()> {
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
    let needed = config.waiting().saturating_add(OTHERS);
    if needed > config.memory.frames {
        let nat = config.nat.as_ref().map(|section| format!("nat.fragments = {}", section.fragments));
        let filter =
            config.filter.as_ref().map(|section| format!("filter.fragments = {}", section.fragments));
        let fragments: Vec<String> = nat.into_iter().chain(filter).collect();
        return Err(usage(format!(
            "{name}: memory.frames = {}: {} may wait on each worker of each family: give at least {needed}, or lower that",
            config.memory.frames,
            fragments.join(" and ")
        )));
    }
    Ok(())
}

pub(super) fn mistake(name: &str, error: &impl Display) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

impl<P: Part> Spliced<P> {
    fn open(opening: &Opening<'_>, is_recorded: bool, router: &RouterControl) -> Result<Self> {
        let (part, control) = P::open(opening, is_recorded, &router.settings().interfaces)?;
        Ok(Spliced {
            part,
            control: Mutex::new(control),
            loading: Mutex::new(()),
            interfaces: AtomicU64::new(router.settings_generation()),
            trouble: opening.trouble.clone(),
            workers: opening.config.run.workers,
        })
    }

    /// All that it counts, with what became of its handover.
    pub(super) fn figures(&self) -> Vec<(&'static str, u64, bool)> {
        let mut figures = P::figures(&lock(&self.control));
        figures.extend(self.part.handover().into_iter().flat_map(HandoverFile::figures));
        figures
    }
}

impl<P: Part> Runs for Spliced<P> {
    fn splice(&self, graph: &mut GraphBuilder, router: &RouterControl) {
        P::splice(graph, &lock(&self.control), router);
    }

    fn follow(&self, router: &RouterControl) {
        let generation = router.settings_generation();
        if self.interfaces.swap(generation, Ordering::Relaxed) != generation
            && let Err(error) = P::interfaces(&mut lock(&self.control), &router.settings().interfaces)
        {
            self.note(&format!("warning: {error}: {} goes by the interfaces of before", P::WHO));
        }
    }

    fn poll(&self) {
        P::poll(&mut lock(&self.control));
    }

    fn read<'a>(&'a self, config: &'a Config, name: &'a str) -> Result<Prepare<'a>> {
        let one = lock(&self.loading);
        let files = P::read(config, name)?;
        Ok(Box::new(move |interfaces: &Interfaces| -> Result<Commit<'a>> {
            let mut control = lock(&self.control);
            let prepared = self.part.prepare(&control, files, config, name, interfaces)?;
            Ok(Box::new(move || {
                P::commit(&mut control, prepared);
                drop(one);
            }))
        }))
    }

    fn remarks(&self, router: &RouterControl) -> Vec<String> {
        P::remarks(&lock(&self.control), &router.settings().interfaces)
    }

    fn note(&self, line: &str) {
        self.trouble.note(P::NAME, line);
    }

    fn verbs(self: Arc<Self>, router: &Arc<Router>, registry: &mut Registry) {
        P::verbs(&self, router, registry);
        let about = "interfaces that it cannot follow, what will not work since a reload, its handover";
        registry.event_kind(P::NAME, &format!("What {} has to say: {about}", P::WHO));
        registry.panel(P::TITLE, move || figures(P::NAME, self.figures().into_iter()));
    }

    fn tables(&self) -> Vec<Table> {
        let own = P::tables(&lock(&self.control));
        let table = |(name, entries, room): (&str, u64, usize)| Table {
            name: name.into(),
            entries,
            room: Some((room * self.workers) as u64),
            ..Table::default()
        };
        own.into_iter().map(table).collect()
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        if let Some(file) = self.part.handover() {
            scope.spawn(|| file.watch(&self.control, done));
        }
    }

    fn end(&self) {
        if let Some(file) = self.part.handover() {
            file.end(&self.control);
        }
    }

    fn progress(&self) -> String {
        P::progress(&lock(&self.control))
    }

    fn tell(&self, told: &mut Told) {
        let figures = self.figures();
        told.counters(P::NAME, P::NAME, figures.iter().map(|(name, count, _)| (*name, *count)));
    }
}
