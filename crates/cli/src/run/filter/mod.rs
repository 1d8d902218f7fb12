//! The packet filter in a router's graph: the role `filter`, and `[filter]` beside others.

mod api;

use super::config::Config;
use super::handover::{HandoverFile, HandsOver};
use super::role::Opening;
use super::router::Router;
use super::service::{checked_room, lock};
use super::setup::{Named, identity, written};
use super::spliced::{self, Part, Spliced, check_room, hops, mistake};
use crate::usage;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidemill_control::Registry;
use tidemill_graph::GraphBuilder;
use tidemill_ip::Interfaces;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::filter::image::{Connections, Exporter, KIND, Taken};
use tidemill_nf::filter::{
    Counter, FilterControl, FilterError, FilterFiles, FilterSection, Host, MOST_STATES, Prepared,
};
use tidemill_router::RouterControl;

/// A filter that runs.
type Filter = Spliced<FilterPart>;

/// What it has beside its control side.
pub(super) struct FilterPart {
    handover: Option<HandoverFile>,
    /// What this run writes.
    written: Vec<Named>,
}

impl Filter {
    /// Reads a section's files, and takes them over: whoever needs what is locked waits for the second only. Returns the version.
    fn load(&self, router: &Router, section: &FilterSection) -> Result<u32, String> {
        let said = |error: FilterError| error.to_string();
        let files = FilterFiles::read(section).map_err(said)?;
        check_read(&self.part.written, files.files())?;
        let taken =
            router.with_control(|control| lock(&self.control).take(files, &control.settings().interfaces));
        taken.map_err(said)
    }
}

/// Refuses files that something else writes: a capture begins with emptying its own, and an empty one is taken for an image that was lost.
fn check_read(written: &[Named], read: impl IntoIterator<Item = PathBuf>) -> Result<(), String> {
    let written: Vec<_> = written.iter().map(|(key, path)| (key, identity(path))).collect();
    read.into_iter().try_for_each(|file| {
        let this = identity(&file);
        match written.iter().find(|(_, other)| *other == this) {
            Some((key, _)) => Err(format!(
                "{key}: {}: the filter reads its rules, or a table, from that: name another one",
                file.display()
            )),
            None => Ok(()),
        }
    })
}

/// The same of a configuration, before anything is written. Of the files that its rules name nothing is read; nor are rules that come by a pipe, which says them once.
pub(super) fn check_files(config: &Config, folder: &Path, name: &str) -> Result<()> {
    let is_there = |section: &&FilterSection| section.rules.as_deref().is_some_and(Path::is_file);
    let Some(section) = config.filter.as_ref().filter(is_there) else { return Ok(()) };
    let read = FilterFiles::names(section).map_err(|error| mistake(name, &error))?;
    check_read(&written(config, folder), read).map_err(|error| mistake(name, &error))
}

fn remark(name: &str, filter: &FilterControl) {
    filter.remarks().iter().for_each(|remark| eprintln!("tidemill: {name}: {remark}"));
}

impl HandsOver for FilterControl {
    const SECTION: &'static str = "filter";
    const WHAT: &'static str = "connections";
    const KIND: &'static str = KIND;
    type Exporter = Exporter;

    fn go_on(&mut self, now_ms: u64, image: &[u8]) -> Result<(String, usize)> {
        let Taken { connections, tables, left_out } = self.import(now_ms, image)?;
        let and_tables = if tables > 0 { format!(" and {tables} tables") } else { String::new() };
        Ok((format!("{connections} connections{and_tables}"), left_out))
    }

    fn reads(&self) -> Exporter {
        self.exporter()
    }

    fn image(exporter: &Exporter, now_ms: u64) -> Result<Vec<u8>> {
        let image = exporter.export(now_ms);
        // One that would be refused is found out now, not when it is needed.
        Connections::decode(&image)?;
        Ok(image)
    }
}

impl Part for FilterPart {
    type Control = FilterControl;
    type Files = FilterFiles;
    type Prepared = Prepared;
    const NAME: &'static str = "filter";
    const WHO: &'static str = "the filter";
    const TITLE: &'static str = "Filter";

    fn open(
        opening: &Opening<'_>,
        is_recorded: bool,
        interfaces: &Interfaces,
    ) -> Result<(Self, FilterControl)> {
        let Opening { config, name, base, domain, .. } = *opening;
        let (section, workers) = (config.filter.clone().unwrap_or_default(), config.run.workers);
        // What follows a capture gives the same output every time.
        let made = match super::setup::is_repeatable(config) {
            true => FilterControl::with_secret(&section, interfaces, workers, domain, 0),
            false => FilterControl::new(&section, interfaces, workers, domain),
        };
        let mut filter = made.map_err(|error| mistake(name, &error))?;
        remark(name, &filter);
        let (path, every_s) = (section.handover.as_ref(), section.handover_s);
        let handover = HandoverFile::open(opening, is_recorded, path, every_s, &mut filter);
        Ok((FilterPart { handover, written: written(config, base) }, filter))
    }

    fn check(
        config: &Config,
        name: &str,
        interfaces: &Interfaces,
        domain: &Domain,
    ) -> Result<(FilterControl, String)> {
        let mut section = config.filter.clone().unwrap_or_default();
        tidemill_nf::filter::settings::check(&section).map_err(|error| mistake(name, &error))?;
        // Nothing will flow: small tables do.
        section.states = checked_room(section.states, MOST_STATES);
        section.half_open = section.half_open.min(section.states);
        let filter =
            FilterControl::new(&section, interfaces, 1, domain).map_err(|error| mistake(name, &error))?;
        remark(name, &filter);
        let sets = filter.set_list();
        let addresses: usize = sets.iter().map(|set| set.v4 + set.v6).sum();
        let said = format!(
            "{} rules ({} matches), {} tables of {addresses} addresses",
            filter.rules().list().len(),
            filter.rules().matches(),
            sets.len()
        );
        Ok((filter, said))
    }

    fn splice(graph: &mut GraphBuilder, control: &FilterControl, router: &RouterControl) {
        let (hops4, hops6): (spliced::Hops, spliced::Hops) = hops(router);
        tidemill_nf::filter::splice(graph, control, Host { hops4, hops6 });
    }

    fn handover(&self) -> Option<&HandoverFile> {
        self.handover.as_ref()
    }

    fn check_section(config: &Config, name: &str) -> Result<()> {
        let Some(section) = &config.filter else {
            return Err(usage(format!("{name}: filter: is missing: name the file of rules in [filter]")));
        };
        HandoverFile::check::<FilterControl>(section.handover.as_ref(), name)?;
        check_room(config, name, "a filter")
    }

    fn read(config: &Config, name: &str) -> Result<FilterFiles> {
        let section = config.filter.clone().unwrap_or_default();
        FilterFiles::read(&section).map_err(|error| mistake(name, &error))
    }

    fn prepare(
        &self,
        control: &FilterControl,
        files: FilterFiles,
        _config: &Config,
        name: &str,
        interfaces: &Interfaces,
    ) -> Result<Prepared> {
        check_read(&self.written, files.files()).map_err(|error| mistake(name, &error))?;
        control.prepare(files, interfaces).map_err(|error| mistake(name, &error))
    }

    fn commit(control: &mut FilterControl, prepared: Prepared) {
        control.commit(prepared);
    }

    fn interfaces(control: &mut FilterControl, interfaces: &Interfaces) -> Result<(), String> {
        control.interfaces(interfaces).map_err(|error| error.to_string())
    }

    fn remarks(control: &FilterControl, _interfaces: &Interfaces) -> Vec<String> {
        control.remarks()
    }

    fn poll(control: &mut FilterControl) {
        control.poll();
    }

    fn figures(control: &FilterControl) -> Vec<(&'static str, u64, bool)> {
        control.counters().figures().collect()
    }

    fn tables(control: &FilterControl) -> Vec<(&'static str, u64, usize)> {
        let (counters, section) = (control.counters(), control.section());
        let of = |counter| counters.get(counter);
        vec![
            ("IPv4 states", of(Counter::States4), section.states),
            ("IPv6 states", of(Counter::States6), section.states),
            ("IPv4 half-open", of(Counter::HalfOpen4), section.half_open),
            ("IPv6 half-open", of(Counter::HalfOpen6), section.half_open),
            ("IPv4 unanswered", of(Counter::Unanswered4), section.unanswered),
            ("IPv6 unanswered", of(Counter::Unanswered6), section.unanswered),
        ]
    }

    fn progress(control: &FilterControl) -> String {
        let counters = control.counters();
        format!("states {}", counters.get(Counter::States4) + counters.get(Counter::States6))
    }

    fn verbs(filter: &Arc<Filter>, router: &Arc<Router>, registry: &mut Registry) {
        api::register(filter, router, registry);
    }
}
