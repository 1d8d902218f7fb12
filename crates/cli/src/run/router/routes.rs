//! Routes of a run: loaded or generated, changed by updates, kept in records.

use crate::run::config::{Config, GenerateSection, TableSection};
use crate::tables::report_left_out;
use crate::usage;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_feed::synth::{self, SynthOptions};
use tidemill_feed::{
    FamilyChange, Labels, LoadOptions, LoadedTable, NextHopName, Pace, Pacer, SaveFormat, Update,
    UpdateOptions, Updates,
};
use tidemill_lpm::rib::Change;
use tidemill_lpm::{Address, Label, Prefix, Rib};
use tidemill_router::{RouterControl, Routes};

/// The routes that a configuration asks for, and labels for its static ones. A table that is not there yet is made, and kept.
pub(crate) fn load(config: &Config) -> Result<LoadedTable> {
    if let Some((make, path)) = to_make(config) {
        keep(make, path)?;
    }
    read(config)
}

/// The same for a configuration that is only looked at: nothing is kept.
pub(crate) fn look(config: &Config) -> Result<LoadedTable> {
    let Some((make, _)) = to_make(config) else { return read(config) };
    let mut table = made(make)?;
    keep_static_labels(config, &mut table.labels);
    Ok(table)
}

fn read(config: &Config) -> Result<LoadedTable> {
    let mut loaded = LoadedTable::default();
    if let Some(table) = &config.table {
        let paths: Vec<&Path> = table.path.paths().iter().map(|path| path.as_path()).collect();
        paths.iter().try_for_each(|path| crate::tables::check_input(path))?;
        loaded = tidemill_feed::load_all(&paths, &LoadOptions::default())?;
        report_left_out(&loaded.counts);
    }
    keep_static_labels(config, &mut loaded.labels);
    Ok(loaded)
}

/// Gives each static route a label in the dictionary, so that no update's next hop can get the same one.
pub(crate) fn keep_static_labels(config: &Config, labels: &mut Labels) {
    for route in &config.route {
        labels.label(&NextHopName::Word(tidemill_router::static_name(&route.prefix).into()));
    }
}

/// What a table's file is to be made of, if it is not there yet.
pub(crate) fn to_make(config: &Config) -> Option<(&GenerateSection, &Path)> {
    let TableSection { path, generate: Some(make) } = config.table.as_ref()? else { return None };
    let [path] = path.paths() else { return None };
    (!path.exists()).then_some((make, path.as_path()))
}

fn made(make: &GenerateSection) -> Result<LoadedTable> {
    let GenerateSection { ipv4: v4, ipv6: v6, next_hops, seed } = *make;
    let made = synth::table(&SynthOptions { v4, v6, next_hops, seed });
    made.map_err(|error| usage(format!("table.generate: {error}")))
}

fn keep(make: &GenerateSection, path: &Path) -> Result<()> {
    eprintln!(
        "tidemill: {} does not exist yet: making {} IPv4 and {} IPv6 prefixes (seed {})",
        path.display(),
        make.ipv4,
        make.ipv6,
        make.seed
    );
    // Under another name first: an interrupted run must not leave half a table behind.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!("unfinished-{}-{name}", std::process::id()));
    let made = made(make)?;
    if let Err(error) = tidemill_feed::save(&unfinished, &made.v4, &made.v6, &made.labels, SaveFormat::Text) {
        let _ = std::fs::remove_file(&unfinished);
        return Err(error.into());
    }
    std::fs::rename(&unfinished, path).with_context(|| format!("{}: cannot rename", unfinished.display()))
}

/// One family's routes with the file's names for labels.
pub(crate) fn routes<A: tidemill_lpm::Family>(rib: Rib<A>, labels: &Labels) -> Routes<A> {
    let names = labels.iter().map(|(label, name)| (label, name.to_string())).collect();
    Routes { rib, names }
}

/// Changes read from an update file, given out when they are due.
pub(crate) struct UpdateFeed {
    pacer: Pacer<Updates>,
    batch: Vec<Update>,
    pub(crate) done: bool,
}

/// Changes applied together; more wait for the next round.
const BATCH: usize = 4096;

impl UpdateFeed {
    pub(crate) fn open(path: &Path, speed: f64, labels: &Labels) -> Result<Self> {
        crate::tables::check_input(path)?;
        Self::open_behind(path, speed, labels, 0, &AtomicBool::new(false))
    }

    /// The same behind the first `taken` updates, which the routes have in them already. Ends early when `done` is set.
    pub(crate) fn open_behind(
        path: &Path,
        speed: f64,
        labels: &Labels,
        taken: u64,
        done: &AtomicBool,
    ) -> Result<Self> {
        let mut updates = Updates::open(path, labels.clone(), UpdateOptions::default())?;
        for _ in 0..taken {
            if done.load(Ordering::Relaxed) || updates.next().transpose()?.is_none() {
                break;
            }
        }
        let pace = if speed == 0.0 { Pace::FlatOut } else { Pace::Timed(speed) };
        Ok(UpdateFeed { pacer: Pacer::new(updates, pace), batch: Vec::new(), done: false })
    }

    /// The dictionary with all names that the updates have brought so far.
    pub(crate) fn labels(&self) -> &Labels {
        self.pacer.source().labels()
    }

    /// The changes due at `now_ns`, at most a batch, and what ended the file early, if anything.
    pub(crate) fn due(&mut self, now_ns: u64) -> (Changes, Option<anyhow::Error>) {
        self.batch.clear();
        let next = self.pacer.due(now_ns, BATCH, &mut self.batch);
        self.done = !matches!(&next, Ok(next) if *next != tidemill_feed::Next::Done);
        let mut changes = Changes::default();
        for update in &self.batch {
            match update.change {
                FamilyChange::V4(change) => changes.v4.push(Entry::of(&change)),
                FamilyChange::V6(change) => changes.v6.push(Entry::of(&change)),
            }
        }
        (changes, next.err().map(Into::into))
    }
}

/// A prefix with its label, 0 for a withdrawal: as records keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    addr: u128,
    len: u8,
    label: u32,
}

impl Entry {
    fn of<A: Address>(change: &Change<A>) -> Self {
        let (prefix, label) = match *change {
            Change::Announce(prefix, label) => (prefix, label.0),
            Change::Withdraw(prefix) => (prefix, 0),
        };
        Entry { addr: prefix.first().to_u128(), len: prefix.len(), label }
    }

    fn change<A: Address>(&self) -> Option<Change<A>> {
        let prefix = Prefix::new(A::from_u128(self.addr), self.len)?;
        Some(match self.label {
            0 => Change::Withdraw(prefix),
            label => Change::Announce(prefix, Label(label)),
        })
    }
}

/// Changes of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changes {
    v4: Vec<Entry>,
    v6: Vec<Entry>,
}

impl Changes {
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Applies them to a running router; the sum of both generations is the record's.
    pub(crate) fn apply(&self, control: &mut RouterControl) -> Result<u64> {
        let v4: Vec<Change<u32>> = self.v4.iter().filter_map(Entry::change).collect();
        let v6: Vec<Change<u128>> = self.v6.iter().filter_map(Entry::change).collect();
        control.apply(&v4)?;
        control.apply(&v6)?;
        control.collect();
        Ok(control.generation())
    }
}

/// The routes at the start of a recorded run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    routes: Changes,
    names: Vec<(u32, String)>,
}

impl State {
    pub(crate) fn of(table: &LoadedTable) -> Self {
        let entry4 = |(prefix, label)| Entry::of::<u32>(&Change::Announce(prefix, label));
        let entry6 = |(prefix, label)| Entry::of::<u128>(&Change::Announce(prefix, label));
        State {
            routes: Changes {
                v4: table.v4.iter().map(entry4).collect(),
                v6: table.v6.iter().map(entry6).collect(),
            },
            names: table.labels.iter().map(|(label, name)| (label.0, name.to_string())).collect(),
        }
    }

    /// The routes of both families.
    pub(crate) fn routes(&self) -> (Routes<u32>, Routes<u128>) {
        let names: Vec<_> = self.names.iter().map(|(label, name)| (Label(*label), name.clone())).collect();
        (
            Routes { rib: rib(&self.routes.v4), names: names.clone() },
            Routes { rib: rib(&self.routes.v6), names },
        )
    }
}

fn rib<A: Address>(entries: &[Entry]) -> Rib<A> {
    let announce = |entry: &Entry| match entry.change::<A>()? {
        Change::Announce(prefix, label) => Some((prefix, label)),
        Change::Withdraw(_) => None,
    };
    entries.iter().filter_map(announce).collect()
}
