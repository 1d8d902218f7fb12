//! The control side: takes in what workers have observed, and owns the table.

use crate::assets::config::AssetsSection;
use crate::assets::counters::{Board, Counter, Counters};
use crate::assets::fingerprints::{FingerprintError, Fingerprints};
use crate::assets::observation::Observation;
use crate::assets::seen::Seen;
use crate::assets::table::{Assets, BYTES_PER_HOST};
use crate::assets::watch::Watch;
use crate::filter::text::{Network, read_network};
use crossbeam_queue::ArrayQueue;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

/// Observations that may wait for the table.
const WAITING: usize = 8192;
/// Reports that each worker remembers for each host that there is room for.
const REPORTS: usize = 4;
/// Bytes that a list of fingerprints may have.
const MOST_BYTES: u64 = 4 << 20;

/// Why there is no detection of assets. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// A value that makes no sense.
    #[error("assets.{key}: {what}")]
    Config {
        /// The key.
        key: &'static str,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Something in the list of fingerprints.
    #[error("{file}: {error}")]
    Fingerprints {
        /// The file.
        file: String,
        /// What, and where.
        error: FingerprintError,
    },
    /// A list that cannot be read.
    #[error("{file}: {what}")]
    File {
        /// The file.
        file: String,
        /// As the system says.
        what: String,
    },
}

/// What follows from a section.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whose addresses are of interest; all if there are none.
    pub networks: Arc<[Network]>,
    /// Hosts that there is room for.
    pub hosts: usize,
    /// Seconds of silence after which a host is forgotten.
    pub idle_s: u32,
    /// Who is recognised.
    pub fingerprints: Fingerprints,
}

impl Settings {
    /// Checks a section, and reads its list of fingerprints.
    ///
    /// # Errors
    /// The first mistake.
    pub fn new(section: &AssetsSection) -> Result<Self, AssetsError> {
        let wrong = |key, what| Err(AssetsError::Config { key, what });
        let AssetsSection { networks, hosts, idle_s, fingerprints } = section;
        if !(16..=1 << 24).contains(hosts) {
            return wrong("hosts", format!("{hosts}: give 16 to 16777216"));
        }
        if !(8..=31_536_000).contains(idle_s) {
            return wrong("idle_s", format!("{idle_s}: give 8 to 31536000"));
        }
        let networks = networks.iter().map(|text| read_network(text)).collect::<Result<Vec<_>, _>>();
        let networks = match networks {
            Ok(networks) => networks.into(),
            Err(what) => return wrong("networks", what),
        };
        let fingerprints = match fingerprints {
            None => Fingerprints::shipped().map_err(|error| AssetsError::Fingerprints {
                file: "the fingerprints that come with tidemill".into(),
                error,
            })?,
            Some(path) if path.as_os_str().is_empty() => {
                return wrong("fingerprints", "is an empty name: name a file, or leave it out".into());
            }
            Some(path) => read(path)?,
        };
        Ok(Settings { networks, hosts: *hosts, idle_s: *idle_s, fingerprints })
    }

    /// A worker's look at packets. It reports what goes on four times while a host is remembered.
    pub fn watch(&self, secret: u128) -> Watch {
        Watch::new(self.hosts.saturating_mul(REPORTS), self.idle_s / 4, self.networks.clone(), secret)
    }

    /// The table.
    pub fn table(&self) -> Assets {
        Assets::new(self.hosts, u64::from(self.idle_s) * 1000)
    }
}

/// Bytes that such a section asks for at most: the table of all workers, and what each worker remembers to have reported.
pub fn table_bytes(section: &AssetsSection) -> [f64; 2] {
    let remembered = Seen::bytes_of(section.hosts.saturating_mul(REPORTS));
    [section.hosts as f64 * BYTES_PER_HOST, remembered as f64]
}

fn read(path: &Path) -> Result<Fingerprints, AssetsError> {
    let file = path.display().to_string();
    let failed = |what: String| AssetsError::File { file: file.clone(), what };
    let bytes = tidemill_archive::read_whole(path, MOST_BYTES).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| failed(error.utf8_error().to_string()))?;
    Fingerprints::parse(&text).map_err(|error| AssetsError::Fingerprints { file: file.clone(), error })
}

/// What a worker's node works with.
pub(crate) struct Seat {
    pub(crate) watch: Watch,
    pub(crate) queue: Arc<ArrayQueue<Observation>>,
    pub(crate) counters: Counters,
    pub(crate) board: Board,
}

/// The control side.
#[derive(Debug)]
pub struct AssetsControl {
    settings: Settings,
    table: Assets,
    queue: Arc<ArrayQueue<Observation>>,
    boards: Vec<Board>,
    secret: u128,
}

impl AssetsControl {
    /// That of so many workers.
    ///
    /// # Errors
    /// See [`AssetsError`].
    pub fn new(section: &AssetsSection, workers: usize) -> Result<Self, AssetsError> {
        let settings = Settings::new(section)?;
        let half = |n: u64| u128::from(RandomState::new().hash_one(n));
        let secret = half(1) << 64 | half(2);
        Ok(AssetsControl {
            table: settings.table(),
            settings,
            queue: Arc::new(ArrayQueue::new(WAITING)),
            boards: (0..workers).map(|_| Board::default()).collect(),
            secret,
        })
    }

    /// What a worker's node works with. Each is made when its node is: what it needs is in shared memory, so two nodes of one worker would only count twice.
    pub(crate) fn seats(&self) -> impl Fn(usize) -> Option<Seat> + Send + Sync + 'static {
        let (settings, queue, secret) = (self.settings.clone(), self.queue.clone(), self.secret);
        let boards = self.boards.clone();
        move |worker| {
            let board = boards.get(worker)?.clone();
            let (watch, queue) = (settings.watch(secret), queue.clone());
            Some(Seat { watch, queue, counters: Counters::default(), board })
        }
    }

    /// Takes in what waits, and forgets who was silent for too long. Returns whether there was anything.
    pub fn poll(&mut self, now_ms: u64) -> bool {
        let mut any = false;
        // As many as can wait: what comes meanwhile is for the next time.
        for _ in 0..WAITING {
            let Some(observation) = self.queue.pop() else { break };
            self.table.observe(now_ms, observation);
            any = true;
        }
        self.table.expire(now_ms);
        any
    }

    /// The table.
    pub fn table(&self) -> &Assets {
        &self.table
    }

    /// Who is recognised.
    pub fn fingerprints(&self) -> &Fingerprints {
        &self.settings.fingerprints
    }

    /// Hosts that there is room for.
    pub fn room(&self) -> usize {
        self.settings.hosts
    }

    /// All that is counted.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.boards.iter().for_each(|board| board.add_to(&mut sum));
        let done = self.table.done();
        for (counter, value) in [
            (Counter::Added, done.added),
            (Counter::Expired, done.expired),
            (Counter::EvictedBare, done.evicted_bare),
            (Counter::EvictedKnown, done.evicted_known),
            (Counter::FactsFull, done.facts_full),
            (Counter::Hosts, self.table.len() as u64),
            (Counter::KnownHosts, self.table.known() as u64),
        ] {
            sum.set(counter, value);
        }
        sum
    }
}
