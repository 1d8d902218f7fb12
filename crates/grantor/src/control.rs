//! The control side: owns the policy, the keys and what is known of Gatekeepers; changes the policy between two batches, and takes back what was decided.
//!
//! ```text
//!  reload:  prepare (reads, loads, checks: nothing has changed) --> commit: engines handed over --> all workers have theirs --> the version rises
//!  revoke:  "below the next version counts no more" to every Gatekeeper that has asked or probed --> the version rises --> said again and again for 26 s: nobody says that it has come
//! ```
//!
//! Where a Gatekeeper knows a later start of ours ([`Voice::hear`]), what is still being revoked is said again, below the version that it is gone on from: what that start has decided is
//! revoked with the rest.

use crate::answer::{Answer, Failure};
use crate::counters::Shown;
use crate::error::PolicyError;
use crate::gatekeepers::{Gatekeepers, Reports};
use crate::judge::{Handle, Judge};
use crate::policy::{Clock, Engine, Log, Policy, Surroundings};
use crate::question::Question;
use crate::section::{DecisionFormat, GrantorSection, Settings};
use crate::tally::{Board, Counters};
use crate::voice::{Peer, Voice};
use crossbeam_queue::ArrayQueue;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tidemill_decision::authenticated::{Message, Range};
use tidemill_graph::Waker;
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;

/// Gatekeepers that are remembered for revocations.
const PEERS: usize = 4096;
/// Messages that may wait for worker 0.
const ORDERS: usize = 4 * PEERS;
/// Questions that are remembered, the last ones.
const RECORDS: usize = 1024;
/// How often a revocation is said, and what is between the first two times; it doubles, so that two datagrams may be lost within 100 ms, and a path that is broken for some seconds keeps
/// none from hearing it.
const SAID: u32 = 11;
const PAUSE_NS: u64 = 25_000_000;
/// How long to wait for workers to take up a policy: longer than a batch may take.
const PATIENCE: Duration = Duration::from_secs(12);

/// What a run gives a Grantor.
#[derive(Clone)]
pub enum Run {
    /// Packets come as time goes by: each worker's policy has a thread of its own.
    Live {
        /// Nanoseconds since 1970, as the workers have them.
        clock: Clock,
        /// Nobody can foresee it.
        seed: u64,
    },
    /// It gives the same output every time: policies are asked in line, and time is the packets'.
    Repeatable,
}

/// What worker 0 is to say.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) queue: ArrayQueue<(Peer, Message)>,
    pub(crate) waker: OnceLock<Waker>,
}

impl Orders {
    fn wake(&self) {
        self.waker.get().into_iter().for_each(Waker::wake);
    }
}

/// A question that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// When.
    pub now_ns: u64,
    /// Through whom it came.
    pub gatekeeper: IpAddr,
    /// What was asked.
    pub question: Question,
    /// What was answered.
    pub answer: Answer,
}

/// A worker's judge, and how to wake it.
type Seat = (Option<Judge>, Arc<OnceLock<Waker>>);

/// The workers' judges, until their nodes are made.
pub(crate) struct Seats(Mutex<Vec<Seat>>);

impl Seats {
    pub(crate) fn take(&self, worker: usize) -> Seat {
        let mut seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seats.get_mut(worker).map(|seat| (seat.0.take(), seat.1.clone())).unwrap_or_default()
    }
}

/// A revocation that is being said.
struct Revoking {
    to: Option<Range>,
    below: u32,
    left: u32,
    next_ns: u64,
    pause_ns: u64,
}

/// What has come of a revocation. Nobody answers one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    /// The version that counts from now on.
    pub version: u32,
    /// Gatekeepers that it is said to, whose probes come.
    pub told: Vec<IpAddr>,
    /// Gatekeepers that it is said to though no probe of theirs counts now: their keys or clocks are wrong, they are gone, they do not probe, or somebody else has asked under their
    /// address.
    pub unheard: Vec<IpAddr>,
}

/// A configuration that is to be read.
pub struct Preparation {
    section: GrantorSection,
    folder: PathBuf,
    workers: usize,
    around: Surroundings,
}

impl Preparation {
    /// Reads and checks it; nothing changes yet.
    ///
    /// # Errors
    /// As [`GrantorControl::new`].
    pub fn read(self) -> Result<Prepared, PolicyError> {
        let Preparation { section, folder, workers, around } = self;
        let (settings, policy, engines) = load(&section, &folder, workers, &around)?;
        Ok(Prepared { section, settings, policy, engines })
    }
}

/// A configuration that can be taken over.
pub struct Prepared {
    section: GrantorSection,
    settings: Settings,
    policy: Arc<Policy>,
    engines: Vec<Engine>,
}

/// The control side of a Grantor. Workers hold views of what it publishes, and never wait for it.
pub struct GrantorControl {
    section: GrantorSection,
    folder: PathBuf,
    pub(crate) settings: Publisher<Settings>,
    policy: Arc<Policy>,
    around: Surroundings,
    handles: Vec<Handle>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) voice: Arc<Voice>,
    pub(crate) met: Arc<ArrayQueue<Peer>>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) records: Arc<ArrayQueue<Record>>,
    boards: [Arc<[Board]>; 3],
    peers: BTreeSet<Peer>,
    heard: Gatekeepers,
    last: VecDeque<Record>,
    revoking: Vec<Revoking>,
    live: bool,
}

impl GrantorControl {
    /// Checks a configuration, loads its policy for so many workers of `domain`, and starts its threads in a live run. Files are looked for in `folder`.
    ///
    /// # Errors
    /// Which key is wrong, and what to do; a script that does not load, with file and line; a table that cannot be read; no Lua in this program.
    pub fn new(
        section: &GrantorSection,
        folder: &Path,
        workers: usize,
        domain: &Domain,
        run: Run,
        log: Log,
    ) -> Result<Self, PolicyError> {
        let voice = Arc::new(Voice::default());
        let (live, clock, seed): (bool, Clock, u64) = match run {
            Run::Live { clock, seed } => {
                voice.begin(clock());
                (true, clock, seed)
            }
            // How long a script takes would differ from run to run: only its steps count.
            Run::Repeatable => (false, Arc::new(|| 0), 0),
        };
        let around = Surroundings::new(clock, log, seed);
        let (settings, policy, engines) = load(section, folder, workers, &around)?;
        let (mut seats, mut handles) = (Vec::new(), Vec::new());
        for (worker, engine) in engines.into_iter().enumerate() {
            let bell = Arc::<OnceLock<Waker>>::default();
            let (judge, handle) = if live {
                let rings = bell.clone();
                let notify = move || rings.get().into_iter().for_each(Waker::wake);
                Judge::thread(engine, worker, Arc::new(notify))?
            } else {
                Judge::inline(engine)
            };
            seats.push((Some(judge), bell));
            handles.push(handle);
        }
        let boards = || (0..workers).map(|_| Board::default()).collect();
        Ok(GrantorControl {
            section: section.clone(),
            folder: folder.to_owned(),
            settings: Publisher::new(domain, settings),
            policy,
            around,
            handles,
            seats: Arc::new(Seats(Mutex::new(seats))),
            voice,
            met: Arc::new(ArrayQueue::new(PEERS)),
            reports: Arc::default(),
            orders: Arc::new(Orders { queue: ArrayQueue::new(ORDERS), waker: OnceLock::new() }),
            records: Arc::new(ArrayQueue::new(RECORDS)),
            boards: [boards(), boards(), boards()],
            peers: BTreeSet::new(),
            heard: Gatekeepers::default(),
            last: VecDeque::with_capacity(RECORDS),
            revoking: Vec::new(),
            live,
        })
    }

    /// The boards of one of the three nodes.
    pub(crate) fn boards(&self, node: usize) -> Arc<[Board]> {
        self.boards[node].clone()
    }

    /// Packets that each worker keeps at most.
    pub(crate) fn room(&self) -> usize {
        self.section.policy.queue
    }

    /// The configuration that holds.
    pub fn section(&self) -> &GrantorSection {
        &self.section
    }

    /// The policy that decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy's version at `now_ns`.
    pub fn version(&self, now_ns: u64) -> u32 {
        self.voice.version(now_ns)
    }

    /// Gatekeepers that have asked or probed, with the address of ours that they sent to, and when (nanoseconds since 1970) a probe of theirs counted last.
    pub fn gatekeepers(&self) -> impl Iterator<Item = (IpAddr, IpAddr, Option<u64>)> + '_ {
        self.peers.iter().map(|peer| (peer.gatekeeper, peer.ours, self.heard.last_ns(peer.gatekeeper)))
    }

    /// Workers whose policy has ended, by a fault of ours: a reload starts it again.
    pub fn ended(&self) -> usize {
        self.handles.iter().filter(|handle| !handle.alive()).count()
    }

    /// What the nodes have counted, all workers together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.boards.iter().flat_map(|boards| boards.iter()).for_each(|board| board.add_to(&mut sum));
        sum
    }

    /// What the policies have counted.
    pub fn counts(&self) -> Shown {
        self.around.counts.shown()
    }

    /// All numbers, by their stable names: the nodes', then the policies'.
    pub fn numbers(&self) -> Vec<(String, u64)> {
        let counts = self.counts();
        let policy = [
            ("policy-asked", counts.asked),
            ("policy-merged", counts.merged),
            ("policy-calls", counts.calls),
            ("policy-rebuilt", counts.rebuilt),
            ("policy-swapped", counts.swapped),
            ("policy-after-deadline", counts.after_deadline),
        ];
        let nodes = self.counters();
        let nodes = nodes.iter().map(|(name, count)| (name.to_owned(), count));
        let policy = policy.into_iter().map(|(name, count)| (name.to_owned(), count));
        let failures = Failure::ALL.iter();
        let failures =
            failures.map(|failure| (format!("policy-{}", failure.name()), counts.failed(*failure)));
        nodes.chain(policy).chain(failures).collect()
    }

    /// The last questions and their answers, the latest first.
    pub fn questions(&mut self) -> impl Iterator<Item = &Record> + '_ {
        self.collect();
        self.last.iter().rev()
    }

    fn collect(&mut self) -> bool {
        let mut any = false;
        for _ in 0..RECORDS {
            let Some(record) = self.records.pop() else { break };
            if self.last.len() >= RECORDS {
                self.last.pop_front();
            }
            self.last.push_back(record);
            any = true;
        }
        while let Some(peer) = self.met.pop() {
            if self.peers.len() < PEERS {
                self.peers.insert(peer);
            }
            any = true;
        }
        any
    }

    /// Takes what nodes report of Gatekeepers' probes, and says what is wrong. Returns whether a later start of ours was heard of.
    fn hear(&mut self, now_ns: u64) -> bool {
        let later = self.heard.collect(&self.reports, now_ns, &*self.around.log);
        let Some(below) = later else { return false };
        for revoking in self.revoking.iter_mut().filter(|revoking| revoking.below < below) {
            (revoking.below, revoking.next_ns) = (below, now_ns);
        }
        true
    }

    /// One round at `now_ns`: collects what workers have to say, says again what has to be said again. Returns whether there was anything.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.settings.collect();
        let mut any = self.collect() | self.hear(now_ns);
        for at in 0..self.revoking.len() {
            let Some(revoking) = self.revoking.get_mut(at).filter(|revoking| now_ns >= revoking.next_ns)
            else {
                continue;
            };
            revoking.left -= 1;
            revoking.pause_ns *= 2;
            revoking.next_ns = now_ns.saturating_add(revoking.pause_ns);
            let (to, below) = (revoking.to, revoking.below);
            self.say(to, below);
            self.orders.wake();
            any = true;
        }
        self.revoking.retain(|revoking| revoking.left > 0);
        any
    }

    /// Gives worker 0 a revocation for every Gatekeeper of the prefix's family, and does not wake it; returns which these are.
    fn say(&self, to: Option<Range>, below: u32) -> BTreeSet<IpAddr> {
        let mut told = BTreeSet::new();
        for peer in &self.peers {
            let v6 = peer.ours.is_ipv6();
            let every = if v6 { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
            let Some(range) = to.or(Range::new(every, 0)).filter(|range| range.address().is_ipv6() == v6)
            else {
                continue;
            };
            // The queue has room for all of them, said three times over; what it has none for is said the next time.
            if self.orders.queue.push((*peer, Message::Revoke { to: range, below })).is_ok() {
                told.insert(peer.gatekeeper);
            }
        }
        told
    }

    /// What has been decided so far counts no more, for destinations in `to` or for all: it is said to all Gatekeepers that have asked or probed.
    ///
    /// # Errors
    /// The interoperable format has no revocations.
    pub fn revoke(&mut self, to: Option<Range>, now_ns: u64) -> Result<Revoked, PolicyError> {
        if self.section.decisions == DecisionFormat::Interoperable {
            let what = "\"interoperable\" has no revocations: what was decided holds until it expires";
            return Err(PolicyError::config("decisions", what));
        }
        self.collect();
        self.hear(now_ns);
        // Handed over before anybody decides under it: a decision that came first would give the version the rank of what stand-ins have decided. But nobody is
        // woken for it between the two: what is decided there under the old version is refused.
        let below = self.voice.version(now_ns).saturating_add(1);
        let said = self.say(to, below);
        self.voice.raise(now_ns);
        self.orders.wake();
        // What takes back as much or more is said instead.
        self.revoking.retain(|before| to.is_some() && before.to != to);
        let next_ns = now_ns.saturating_add(PAUSE_NS);
        self.revoking.push(Revoking { to, below, left: SAID - 1, next_ns, pause_ns: PAUSE_NS });
        let (told, unheard) = said.into_iter().partition(|of| self.heard.is_heard(*of, now_ns));
        Ok(Revoked { version: below, told, unheard })
    }

    /// What a configuration is to be read for: [`Preparation::read`] does that, and nobody has to hold `self` meanwhile, however slow its files come.
    ///
    /// # Errors
    /// Keys that cannot change while packets flow.
    pub fn prepare(&self, section: &GrantorSection) -> Result<Preparation, PolicyError> {
        for (key, same) in section.fixed_keys(&self.section) {
            if !same {
                return Err(PolicyError::Restart(key.into()));
            }
        }
        let (section, folder) = (section.clone(), self.folder.clone());
        Ok(Preparation { section, folder, workers: self.handles.len(), around: self.around.clone() })
    }

    /// Takes over what was prepared: each worker's policy between two batches, with no question lost. Waits until all have; returns false if some are still at
    /// a batch of the old one.
    ///
    /// # Errors
    /// A thread that had ended could not be started again; the other workers have the new policy.
    pub fn commit(&mut self, prepared: Prepared, now_ns: u64) -> Result<bool, PolicyError> {
        let swap = self.begin(prepared);
        while !self.is_over(&swap) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end(swap, now_ns)
    }

    /// The first part of [`commit`](Self::commit), for who must not hold `self` while workers finish their batches: hands the policy over. Then ask
    /// [`is_over`](Self::is_over) again and again, and [`end`](Self::end) it.
    pub fn begin(&mut self, prepared: Prepared) -> Swap {
        let before = self.counts().swapped;
        let mut went = Ok(());
        for (handle, engine) in self.handles.iter_mut().zip(prepared.engines) {
            if let Err(error) = handle.replace(engine) {
                went = Err(error);
            }
        }
        if prepared.settings != *self.settings.current() {
            self.settings.publish(prepared.settings);
        }
        (self.section, self.policy) = (prepared.section, prepared.policy);
        Swap { before, went, began: Instant::now() }
    }

    /// Whether all workers have taken up what was handed over, or have been waited for long enough.
    pub fn is_over(&self, swap: &Swap) -> bool {
        self.has_taken(swap) || swap.began.elapsed() >= PATIENCE
    }

    fn has_taken(&self, swap: &Swap) -> bool {
        // In line there is nothing to wait for: the next question takes it up.
        !self.live
            || swap.went.is_err()
            || self.counts().swapped.wrapping_sub(swap.before) >= self.handles.len() as u64
    }

    /// The last part of [`commit`](Self::commit): returns what that does.
    ///
    /// # Errors
    /// As above.
    pub fn end(&mut self, swap: Swap, now_ns: u64) -> Result<bool, PolicyError> {
        let taken = self.has_taken(&swap);
        // Only now: no decision of the old policy has the new version.
        self.voice.raise(now_ns);
        swap.went.map(|()| taken)
    }
}

/// A policy that is being taken up.
#[derive(Debug)]
pub struct Swap {
    /// How often workers had taken up one before.
    before: u64,
    went: Result<(), PolicyError>,
    began: Instant,
}

type Loaded = (Settings, Arc<Policy>, Vec<Engine>);

fn load(
    section: &GrantorSection,
    folder: &Path,
    workers: usize,
    around: &Surroundings,
) -> Result<Loaded, PolicyError> {
    let settings = Settings::new(section)?;
    let policy = Policy::open(&section.policy, folder)?;
    let engines = (0..workers as u64).map(|worker| Engine::new(&policy, around, worker));
    Ok((settings, policy.clone(), engines.collect::<Result<_, _>>()?))
}
