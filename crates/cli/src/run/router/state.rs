//! The state file (`[state]`): written while the router runs, read when it starts again, so that a router that was killed
//! forwards at once by what it had learnt.
//!
//! ```text
//! start: image --sound?--> from these very files? --yes--> table, labels, position in the updates: no file is read
//!          |                        |--same names, other content--> forward by it; read the file; take the difference
//!          '--no: a line--> files   '--otherwise--> files; routes of the API and the kernel from the image all the same
//! run:   something changed, `every` seconds later (API: 1 s) --locks held--> copy --> encode --> check --> write --> rename
//! ```
//! What the configuration says counts over what the image says, always: interfaces, VRFs, static routes and rules are the
//! configuration's. An image is written beside the file, synchronised, and moved over it: whenever the process or the machine
//! dies, the one or the other is there and whole. Which bytes it has and why is in `crates/router/src/state.rs`.

use super::{Router, routes};
use crate::run::config::{Config, StateSection};
use crate::run::service::{lock, system_ns};
use crate::run::written::{foreign, read_image, remove_left, replace};
use crate::usage;
use crate::usage::one_line;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_feed::{Labels, LoadedTable};
use tidemill_lpm::{Address, Label, Rib};
use tidemill_router::State;
use tidemill_router::config::RouteConfig;
use tidemill_router::state::{KIND, Resumed};

/// The first image is written so long after the start, and one after a change through the API so long after the last one.
const SOON: Duration = Duration::from_secs(1);

/// A file as it was when routes were read from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileId {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since the epoch; 0 if there is no file.
    modified_ns: u64,
}

impl FileId {
    fn of(path: &Path) -> Self {
        let data = std::fs::metadata(path).ok();
        let modified = data.as_ref().and_then(|data| data.modified().ok());
        let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        FileId {
            path: path.canonicalize().unwrap_or_else(|_| path.to_path_buf()),
            bytes: data.map_or(0, |data| data.len()),
            modified_ns: since.map_or(0, |since| since.as_nanos() as u64),
        }
    }
}

/// What the table's routes were made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// CRC-32C of the configuration's text.
    config: u32,
    table: Vec<FileId>,
    updates: Option<FileId>,
    /// Updates of that file that the routes have in them.
    pub(crate) taken: u64,
    /// When it was saved, nanoseconds since the epoch.
    saved_ns: u64,
}

impl Origin {
    /// Of the files that a configuration names, as they are now.
    pub(crate) fn of(config: &Config, text: &str) -> Self {
        let tables = config.table.iter().flat_map(|table| table.path.paths());
        Origin {
            config: crc32c::crc32c(text.as_bytes()),
            table: tables.map(|path| FileId::of(path)).collect(),
            updates: config.updates.as_ref().map(|updates| FileId::of(&updates.path)),
            taken: 0,
            saved_ns: 0,
        }
    }

    /// The same files, untouched.
    fn is(&self, other: &Origin) -> bool {
        (&self.table, &self.updates) == (&other.table, &other.updates)
    }

    /// The same configuration, and files of the same names.
    fn is_like(&self, other: &Origin) -> bool {
        let paths = |files: &[FileId]| files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        self.config == other.config
            && paths(&self.table) == paths(&other.table)
            && paths(self.updates.as_slice()) == paths(other.updates.as_slice())
    }

    /// A reload has changed the configuration's text.
    pub(crate) fn set_config(&mut self, text: &str) {
        self.config = crc32c::crc32c(text.as_bytes());
    }
}

/// What a run starts from.
pub(crate) struct Start {
    pub(crate) table: LoadedTable,
    pub(crate) resumed: Resumed,
    pub(crate) added: Vec<RouteConfig>,
    /// What `table` was made from.
    pub(crate) origin: Origin,
    /// `table` is the image's, not the files'.
    pub(crate) from_image: bool,
    /// The files are others by now: they are to be read, and these are they.
    pub(crate) newer: Option<Origin>,
}

/// Reads the routes: from the image if there is one and that is right, else from the files.
pub(crate) fn start(config: &Config, text: &str) -> Result<Start> {
    // Before they are read: who writes to them meanwhile is noticed the next time.
    let now = Origin::of(config, text);
    let image = config.state.as_ref().and_then(|section| {
        remove_left(&section.path, KIND);
        let path = section.path.display();
        read(&section.path).unwrap_or_else(|error| {
            eprintln!("tidemill: warning: state image {path}: {}: starting without it", one_line(&error));
            None
        })
    });
    let name = config.state.as_ref().map(|section| section.path.display().to_string()).unwrap_or_default();
    let (mut table, mut start) = match image {
        None => (None, Start::fresh(now)),
        Some((state, origin)) => {
            let State { labels, v4, v6, added, resumed, .. } = state;
            let age = system_ns().saturating_sub(origin.saved_ns) / 1_000_000_000;
            let kernel: usize = resumed.kernel.iter().map(|k| k.v4.len() + k.v6.len()).sum();
            let more = format!("{} routes of the API, {kernel} of the kernel", added.len());
            let (same, like) = (origin.is(&now), origin.is_like(&now));
            let fresh = Start::fresh(now);
            if same || like {
                eprintln!(
                    "tidemill: state image {name}, {age} s old: {} IPv4 and {} IPv6 routes, {more}{}",
                    v4.len(),
                    v6.len(),
                    if same { "" } else { "; the files of its routes have changed: they are read meanwhile" }
                );
                let (v4, v6) = (v4.into_iter().collect(), v6.into_iter().collect());
                let table = LoadedTable { v4, v6, labels, ..LoadedTable::default() };
                let newer = (!same).then_some(fresh.origin);
                (
                    Some(table),
                    Start {
                        resumed,
                        added,
                        origin,
                        from_image: true,
                        newer,
                        ..Start::fresh(Origin::default())
                    },
                )
            } else {
                eprintln!(
                    "tidemill: state image {name}, {age} s old: {more}; its table is another than the configuration's"
                );
                (None, Start { resumed, added, ..fresh })
            }
        }
    };
    start.table = match table.take() {
        Some(mut table) => {
            routes::keep_static_labels(config, &mut table.labels);
            table
        }
        None => routes::load(config)?,
    };
    Ok(start)
}

impl Start {
    fn fresh(origin: Origin) -> Self {
        let (table, resumed, added) = (LoadedTable::default(), Resumed::default(), Vec::new());
        Start { table, resumed, added, origin, from_image: false, newer: None }
    }
}

/// Reads and checks an image; `None` if there is none.
fn read(path: &Path) -> Result<Option<(State, Origin)>> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(data) if !data.is_file() => bail!("this is no file"),
        Ok(_) => {}
    }
    let state = State::decode(&read_image(path)?)?;
    let origin = serde_json::from_slice(&state.origin).context("section \"origin\"")?;
    Ok(Some((state, origin)))
}

/// Refuses a state file that is not ours to write.
pub(crate) fn check(section: &StateSection) -> Result<()> {
    match foreign(&section.path, KIND) {
        Some(what) => Err(usage(format!("state.path: {}: {what}", section.path.display()))),
        None => Ok(()),
    }
}

/// The state file of a router that runs.
pub(crate) struct StateFile {
    path: PathBuf,
    every: Option<Duration>,
    written: Mutex<Written>,
    /// Something has changed through the API.
    pub(crate) urgent: AtomicBool,
}

/// What has been written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    /// What the file holds; `None` if we do not know.
    revision: Option<u64>,
    pub(crate) at: Option<Instant>,
    pub(crate) saves: u64,
    pub(crate) failures: u64,
    pub(crate) error: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) routes4: u64,
    pub(crate) routes6: u64,
}

impl StateFile {
    pub(crate) fn new(section: &StateSection) -> Self {
        let every = Duration::try_from_secs_f64(section.every).ok().filter(|every| !every.is_zero());
        let urgent = AtomicBool::new(false);
        StateFile { path: section.path.clone(), every, written: Mutex::default(), urgent }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn every(&self) -> Option<Duration> {
        self.every
    }

    pub(crate) fn written(&self) -> Written {
        lock(&self.written).clone()
    }

    /// Writes images when they are due, until `done`.
    pub(crate) fn watch(&self, router: &Router, done: &AtomicBool) {
        let mut last = Instant::now();
        let mut said = None;
        while !done.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
            let Some(every) = self.every else { continue };
            let first = self.written().saves == 0;
            let wait = if first || self.urgent.load(Ordering::Relaxed) { SOON.min(every) } else { every };
            if last.elapsed() < wait || !self.is_stale(router) {
                continue;
            }
            last = Instant::now();
            let error = self.save(router).err().map(|error| one_line(&error));
            if error != said {
                error.iter().for_each(|error| {
                    router.trouble.note("router", &format!("warning: the state is not saved: {error}"))
                });
                said = error;
            }
        }
    }

    /// Whether the file is not what the router knows.
    pub(crate) fn is_stale(&self, router: &Router) -> bool {
        let revision = lock(&router.control).revision();
        lock(&self.written).revision != Some(revision)
    }

    /// Writes an image now.
    ///
    /// # Errors
    /// What went wrong; the last image is still there.
    pub(crate) fn save(&self, router: &Router) -> Result<Written> {
        let mut written = lock(&self.written);
        self.urgent.store(false, Ordering::Relaxed);
        let saved = (|| {
            let (state, revision) = {
                // In this order, as everywhere; updates are counted and applied with both held.
                let feeds = lock(&router.feeds);
                let control = lock(&router.control);
                let origin = Origin { saved_ns: system_ns(), ..feeds.origin.clone() };
                (control.state(feeds.labels().clone(), serde_json::to_vec(&origin)?), control.revision())
            };
            let bytes = state.encode()?;
            // An image that would be refused is found out now, not when it is needed.
            State::decode(&bytes).context("this is a fault of the program, please report it")?;
            // Somebody may have put it there since the start.
            if let Some(what) = foreign(&self.path, KIND) {
                bail!("{}: {what}", self.path.display());
            }
            replace(&self.path, &bytes).with_context(|| format!("{}: cannot write", self.path.display()))?;
            anyhow::Ok((state, revision, bytes.len() as u64))
        })();
        match saved {
            Ok((state, revision, bytes)) => {
                written.revision = Some(revision);
                written.at = Some(Instant::now());
                written.saves += 1;
                (written.error, written.bytes) = (None, bytes);
                (written.routes4, written.routes6) = (state.v4.len() as u64, state.v6.len() as u64);
                Ok(written.clone())
            }
            Err(error) => {
                written.failures += 1;
                written.error = Some(one_line(&error));
                Err(error)
            }
        }
    }
}

impl Router {
    /// After a start from the image: reads files that have changed, and finds the place in the updates.
    pub(crate) fn catch_up(&self, config: &Config, newer: Option<Origin>, done: &AtomicBool) {
        if let Some(newer) = newer
            && let Err(error) = self.take_newer(config, newer)
        {
            let error = one_line(&error);
            eprintln!(
                "tidemill: warning: {error}: the table stays as it was saved, and no updates are applied to it"
            );
            return;
        }
        let Some(updates) = &config.updates else { return };
        let (labels, taken) = {
            let feeds = lock(&self.feeds);
            (feeds.labels().clone(), feeds.origin.taken)
        };
        match routes::UpdateFeed::open_behind(&updates.path, updates.speed, &labels, taken, done) {
            Ok(feed) => lock(&self.feeds).updates = Some(feed),
            Err(error) => self.trouble.complain("updates stopped", &error),
        }
    }

    fn take_newer(&self, config: &Config, newer: Origin) -> Result<()> {
        let start = Instant::now();
        let LoadedTable { v4, v6, labels: theirs, .. } = routes::load(config)?;
        // Next hops keep the labels that they have here.
        let mut labels: Labels = lock(&self.feeds).labels().clone();
        let ours: HashMap<Label, Label> =
            theirs.iter().map(|(label, name)| (label, labels.label(name))).collect();
        let (v4, v6) = (renamed(&v4, &ours), renamed(&v6, &ours));
        let (v4, v6) = (routes::routes(v4, &labels), routes::routes(v6, &labels));
        let mut feeds = lock(&self.feeds);
        let mut control = lock(&self.control);
        let changed = control.replace_table(v4)?.changed + control.replace_table(v6)?.changed;
        feeds.take_table(labels, newer);
        eprintln!(
            "tidemill: the table's files have been read after {:.1} s: {changed} routes are others now",
            start.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// Routes by our labels instead of a file's.
fn renamed<A: Address>(rib: &Rib<A>, ours: &HashMap<Label, Label>) -> Rib<A> {
    rib.iter().filter_map(|(prefix, label)| Some((prefix, *ours.get(&label)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::run::config::StateSection;

    #[test]
    fn what_is_not_ours_to_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, path) = (folder.path().join("file"), folder.path().join("state"));
        // Also one that leads nowhere yet.
        std::os::unix::fs::symlink(&file, &path).unwrap();
        let error = check(&StateSection { path, every: 1.0 }).unwrap_err().to_string();
        assert!(error.contains("is a link: name the file that it leads to"), "{error}");
        check(&StateSection { path: file.clone(), every: 1.0 }).unwrap();
        std::fs::write(&file, "my text\n").unwrap();
        let error = check(&StateSection { path: file, every: 1.0 }).unwrap_err().to_string();
        assert!(error.contains("was not written for this: give another name"), "{error}");
    }
}
