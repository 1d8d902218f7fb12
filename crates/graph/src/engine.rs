//! The engine: workers on their threads, one per core, from start to clean shutdown.
//!
//! ```text
//! run to completion                      a pipeline of two stages, two chains
//! port queue 0 -> worker 0 -> port       port queue 0 -> worker 0 -> worker 1 -> worker 0 -> port
//! port queue 1 -> worker 1 -> port       port queue 1 -> worker 2 -> worker 3 -> worker 2 -> port
//! ```

use crate::capture::Capture;
use crate::clock::Clock;
use crate::counters::Snapshot;
use crate::graph::Graph;
use crate::last::Last;
use crate::trace::{Store, TraceEntry, TraceRequest};
use crate::watch::{Mailbox, Order, Place, Refused, Scope, Watch};
pub use crate::worker::Fate;
use crate::worker::chain::{Cuts, Links};
use crate::worker::sleep::Doze;
pub use crate::worker::sleep::Idle;
use crate::worker::{self, Turn, Worker};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Memory, Packet, PoolStats};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortError, Waker};

/// Sees every burst that a worker receives and what becomes of each packet: the recorder, the replayer, tests.
pub trait Observer: Send {
    /// A burst has come in by `port`.
    fn received(&mut self, now_ns: u64, port: usize, burst: &[Packet]);
    /// A packet's fate is sealed; it is still whole.
    fn fate(&mut self, fate: Fate, packet: &Packet);
    /// A round over all ports is complete, with everything that it led to.
    fn end_turn(&mut self, _now_ns: u64) {}
}

/// When to stop by ourselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// After so many packets received (per worker, at a burst boundary).
    pub packets: Option<u64>,
    /// After so much time.
    pub duration: Option<Duration>,
}

/// What an engine could not be made for.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A port needs one queue per worker that receives, or a single one (for the first worker).
    #[error(
        "port {port}: {queues} queues for {workers} workers: give it one queue per worker, or one in all"
    )]
    Queues {
        /// The port's name.
        port: String,
        /// Queues it has.
        queues: usize,
        /// Workers that receive.
        workers: usize,
    },
    /// The graph is to be cut at a node that does not exist.
    #[error("stages: there is no node {0:?}; there are {1}")]
    StageAt(String, String),
    /// A stage without nodes, or a node at which two stages begin.
    #[error("stages: {0}")]
    Stages(&'static str),
    /// The workers cannot be put into chains.
    #[error("{workers} workers for {stages} stages: give a multiple of {stages}")]
    Chains {
        /// Workers there are.
        workers: usize,
        /// Stages, the first included.
        stages: usize,
    },
    /// The process has no descriptor left to wake a worker by.
    #[error("cannot make what wakes a worker: {0}")]
    Waker(std::io::Error),
    /// Packet memory ran out.
    #[error("packet memory: {0}")]
    Memory(#[from] std::io::Error),
    /// A request to trace somewhere that does not exist.
    #[error("trace: there is no node {0:?}; there are {1}")]
    TraceAt(String, String),
    /// A request to capture somewhere that does not exist.
    #[error("capture: there is no node {0:?}; there are {1} (also port:NAME:rx and port:NAME:tx)")]
    CaptureAt(String, String),
    /// A request to workers that have all ended.
    #[error("the run has ended")]
    Ended,
    /// A worker has not taken earlier requests yet.
    #[error("worker {0} is behind with earlier requests to trace or capture: try again")]
    Behind(usize),
}

/// Trace entries that are kept, beyond what was asked for at start.
const TRACES: usize = 65_536;
/// Steps of a packet's path that a trace asked for at start has room for.
const TRACE_STEPS: usize = 64;

/// How to run.
pub struct Options {
    /// Where time comes from.
    pub clock: Clock,
    /// Frames of packet memory per worker.
    pub frames_per_worker: usize,
    /// Whether worker n is pinned to the n-th processor that we may use.
    pub pin: bool,
    /// When to stop.
    pub limits: Limits,
    /// What to trace from the first packet on; later ones with [`Handle::trace`].
    pub traces: Vec<TraceRequest>,
    /// Describes a packet in one line, for traces.
    pub describe: fn(&[u8]) -> String,
}

/// Where workers run, and what each of them does.
pub struct Placement {
    /// Each worker's packet memory: there are as many workers as entries.
    pub memory: Vec<Arc<Memory>>,
    /// Each worker's CPU, in place of what [`Options::pin`] says; empty, or as long as `memory`.
    pub cpus: Vec<usize>,
    /// Where the graph is cut: packets that reach one of the nodes of entry s are handed over to stage s + 1 of the chain.
    /// Empty: every worker does everything (run to completion).
    pub stages: Vec<Vec<String>>,
    /// Packets that the ring between two workers holds.
    pub ring: usize,
    /// What workers do that find nothing.
    pub idle: Idle,
}

impl Default for Placement {
    fn default() -> Self {
        let (memory, cpus, stages) = (Vec::new(), Vec::new(), Vec::new());
        Placement { memory, cpus, stages, ring: 4 * BURST, idle: Idle::default() }
    }
}

impl Placement {
    /// Workers that share one region and do everything.
    pub fn simple(workers: usize, memory: &Arc<Memory>) -> Self {
        Placement { memory: vec![memory.clone(); workers], ..Placement::default() }
    }

    /// Workers in a row, the one that has the ports included.
    pub fn depth(&self) -> usize {
        self.stages.len() + 1
    }

    /// The worker that has queue `queue` of each port.
    pub fn receiver(&self, queue: usize) -> usize {
        queue * self.depth()
    }

    fn cuts(&self, graph: &Graph) -> Result<Cuts, EngineError> {
        let (workers, stages) = (self.memory.len(), self.depth());
        match workers.is_multiple_of(stages) {
            true => cuts(graph, &self.stages),
            false => Err(EngineError::Chains { workers, stages }),
        }
    }
}

/// Checks where a graph is to be cut; see [`Placement::stages`].
///
/// # Errors
/// What is wrong with the stages.
pub fn check_stages(graph: &Graph, stages: &[Vec<String>]) -> Result<(), EngineError> {
    cuts(graph, stages).map(drop)
}

/// At which stages packets can reach the node of this name, if there is one: an entry for each stage, and one more.
///
/// # Errors
/// What is wrong with the stages.
pub fn stages_of(graph: &Graph, stages: &[Vec<String>], node: &str) -> Result<Vec<bool>, EngineError> {
    let (cuts, node) = (cuts(graph, stages)?, graph.node(node));
    let reaches = |stage| node.is_some_and(|node| cuts.reach(stage, graph)[node]);
    Ok((0..=stages.len()).map(reaches).collect())
}

/// Which stage begins at which node.
fn cuts(graph: &Graph, stages: &[Vec<String>]) -> Result<Cuts, EngineError> {
    let mut cuts = vec![0; graph.node_names.len()];
    for (stage, nodes) in stages.iter().enumerate() {
        if nodes.is_empty() {
            return Err(EngineError::Stages("one has no node: name those at which it begins"));
        }
        for name in nodes {
            let known = || EngineError::StageAt(name.clone(), graph.node_names.join(", "));
            let node = graph.node(name).ok_or_else(known)?;
            if std::mem::replace(&mut cuts[node], stage + 1) != 0 {
                return Err(EngineError::Stages("a node is named twice: only one can begin there"));
            }
        }
    }
    Ok(Cuts(cuts))
}

/// A worker that the system did not let onto its CPU. Its run is right all the same, but its rates are those of wherever it is put.
#[derive(Debug, thiserror::Error)]
#[error("worker {worker} is not bound to CPU {cpu}: {source}")]
pub struct Unbound {
    /// The worker.
    pub worker: usize,
    /// The CPU that it was to be bound to.
    pub cpu: usize,
    /// What the system said.
    pub source: std::io::Error,
}

/// Where one worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// The CPU that it is to be bound to; where that failed, [`Handle::unbound`] says why.
    pub cpu: Option<usize>,
    /// Its chain.
    pub chain: usize,
    /// Its place in the chain; the first has the ports.
    pub stage: usize,
}

/// A handle for the control side: live counters, traces and captures, and the stop switch.
#[derive(Clone)]
pub struct Handle {
    stop: Arc<AtomicBool>,
    shared: Vec<Arc<Mutex<Snapshot>>>,
    graph: Arc<Graph>,
    mailboxes: Arc<[Mailbox]>,
    wakers: Arc<[Waker]>,
    seats: Arc<[Seat]>,
    /// By worker: the code of the error that kept it from its CPU, or 0.
    unbound: Arc<[AtomicI32]>,
    store: Arc<Mutex<Store>>,
}

impl Handle {
    /// Asks the workers to stop receiving, finish what they have, and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }

    /// Whether a worker has ended: it takes no orders any more.
    pub fn has_ended(&self, worker: usize) -> bool {
        self.mailboxes.get(worker).is_none_or(Mailbox::closed)
    }

    /// Where each worker runs.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Why a worker is not on its CPU, if the system refused that: known once its thread has begun.
    pub fn unbound(&self, worker: usize) -> Option<Unbound> {
        let cpu = self.seats.get(worker)?.cpu?;
        let code = self.unbound.get(worker)?.load(Ordering::Acquire);
        (code != 0).then(|| Unbound { worker, cpu, source: std::io::Error::from_raw_os_error(code) })
    }

    /// The switch itself, for signal handlers.
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// All workers' counters, summed; a few milliseconds old.
    pub fn snapshot(&self) -> Snapshot {
        let mut sum = self.empty_snapshot();
        for shared in &self.shared {
            sum.add(&shared.lock().unwrap_or_else(PoisonError::into_inner));
        }
        sum
    }

    /// Each worker's own counters.
    pub fn per_worker(&self) -> Vec<Snapshot> {
        let copy = |s: &Arc<Mutex<Snapshot>>| s.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.shared.iter().map(copy).collect()
    }

    /// The nodes' names, in the order of [`Snapshot::nodes`].
    pub fn node_names(&self) -> &[String] {
        &self.graph.node_names
    }

    /// The ports' names, in the order of [`Snapshot::ports`].
    pub fn port_names(&self) -> &[String] {
        &self.graph.port_names
    }

    /// Traces the next packets that reach a node (or are received by a port: `port:NAME`), on each worker.
    ///
    /// # Errors
    /// There is no such place (the error lists what there is), or the workers cannot take the request.
    pub fn trace(&self, request: &TraceRequest) -> Result<(), EngineError> {
        let at = trace_place(&self.graph, &request.at)?;
        self.post(|| Order::Trace { at, packets: request.packets })
    }

    /// What has been traced, from entry number `since` on. The newest entries are kept: where [`TraceEntry::seq`] has a
    /// gap, older ones had to give way.
    pub fn traces(&self, since: u64) -> Vec<TraceEntry> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).since(since)
    }

    /// Captures what passes `at`: packets as they enter a node (its name), packets that a port receives or is given to
    /// send (`port:NAME`), or one of these (`port:NAME:rx`, `port:NAME:tx`). At most `room` copies wait (up to
    /// [`MAX_ROOM`](crate::capture::MAX_ROOM)); workers take the request up within a millisecond.
    ///
    /// # Errors
    /// There is no such place (the error lists what there is), or the workers cannot take the request.
    pub fn capture(&self, at: &str, room: usize) -> Result<Capture, EngineError> {
        let place = Place::find(&self.graph, at)
            .ok_or_else(|| EngineError::CaptureAt(at.to_owned(), places(&self.graph)))?;
        let capture = Capture::new(place, room, self.mailboxes.clone());
        self.post(|| Order::Capture(capture.channel()))?;
        Ok(capture)
    }

    /// Tells every worker that is still there.
    fn post(&self, order: impl Fn() -> Order) -> Result<(), EngineError> {
        let mut taken = false;
        for (worker, mailbox) in self.mailboxes.iter().enumerate() {
            match mailbox.post(order()) {
                Ok(()) => taken = true,
                Err(Refused::Closed) => {}
                Err(Refused::Full) => return Err(EngineError::Behind(worker)),
            }
            self.wakers[worker].wake();
        }
        if taken { Ok(()) } else { Err(EngineError::Ended) }
    }

    fn empty_snapshot(&self) -> Snapshot {
        Snapshot::new(self.graph.outputs.iter().map(Vec::len), self.graph.port_names.len())
    }
}

/// What a run came to.
pub struct Outcome {
    /// The final counters, all workers summed.
    pub snapshot: Snapshot,
    /// What went wrong at ports: each is one line, with its place.
    pub errors: Vec<PortError>,
    /// What was traced, worker by worker, in order of time. Of traces asked for while the workers ran, the newest entries.
    pub traces: Vec<TraceEntry>,
}

/// Workers, ready to run.
pub struct Engine {
    workers: Vec<Worker>,
    handle: Handle,
    limits: Limits,
    /// What each worker's thread does first.
    first: Option<Box<dyn Fn(usize) + Send + Sync>>,
}

impl Engine {
    /// Makes `workers` workers that do everything. `ports[p]` holds port p's queues: one per worker, or a single one,
    /// which the first worker gets. Each worker's pool is carved from `memory`.
    ///
    /// # Errors
    /// The ports do not fit the workers, the memory is too small, or a trace is asked for at a place that is not there.
    pub fn new(
        graph: Graph,
        workers: usize,
        ports: Vec<Vec<Box<dyn Port>>>,
        memory: &Arc<Memory>,
        domain: &Domain,
        options: Options,
    ) -> Result<Self, EngineError> {
        Self::placed(graph, ports, Placement::simple(workers, memory), domain, options)
    }

    /// The same, placed as `placement` says. `ports[p]` has a queue for each chain of workers: worker `c * depth` is the
    /// first of chain c, and has its queues.
    ///
    /// # Errors
    /// As [`new`](Self::new), or stages that do not fit the graph or the workers.
    pub fn placed(
        graph: Graph,
        ports: Vec<Vec<Box<dyn Port>>>,
        placement: Placement,
        domain: &Domain,
        options: Options,
    ) -> Result<Self, EngineError> {
        let graph = Arc::new(graph);
        let cuts = placement.cuts(&graph)?;
        let (workers, depth) = (placement.memory.len(), placement.depth());
        let chains = workers / depth;
        let mut seats: Vec<Vec<Option<Box<dyn Port>>>> = (0..workers).map(|_| Vec::new()).collect();
        for (p, queues) in ports.into_iter().enumerate() {
            if queues.len() != chains && queues.len() != 1 {
                let port = graph.port_names.get(p).cloned().unwrap_or_default();
                return Err(EngineError::Queues { port, queues: queues.len(), workers: chains });
            }
            let mut queues = queues.into_iter();
            for (worker, seats) in seats.iter_mut().enumerate() {
                seats.push(if worker % depth == 0 { queues.next() } else { None });
            }
        }
        let wakers =
            (0..workers).map(|_| Waker::new().map_err(EngineError::Waker)).collect::<Result<Vec<_>, _>>()?;
        let mut links: Vec<Links> =
            wakers.chunks(depth).flat_map(|chain| Links::chain(chain, placement.ring)).collect();
        let cpus = match (placement.cpus.is_empty(), options.pin) {
            (true, true) => allowed_cpus(),
            _ => placement.cpus.clone(),
        };
        let place =
            |worker| Seat { cpu: cpus.get(worker).copied(), chain: worker / depth, stage: worker % depth };
        let asked = options.traces.iter().fold(0usize, |sum, t| sum.saturating_add(t.packets as usize));
        let limit = TRACES.saturating_add(asked.saturating_mul(workers).saturating_mul(TRACE_STEPS));
        let mut handle = Handle {
            stop: Arc::new(AtomicBool::new(false)),
            shared: Vec::new(),
            graph: graph.clone(),
            mailboxes: (0..workers).map(|_| Mailbox::default()).collect(),
            wakers: wakers.into(),
            seats: (0..workers).map(place).collect(),
            unbound: (0..workers).map(|_| AtomicI32::new(0)).collect(),
            store: Arc::new(Mutex::new(Store::new(limit))),
        };
        let mut made = Vec::new();
        for (index, (ports, memory)) in seats.into_iter().zip(&placement.memory).enumerate() {
            let snapshot = Arc::new(Mutex::new(handle.empty_snapshot()));
            handle.shared.push(snapshot.clone());
            let pool = memory.pool(options.frames_per_worker)?;
            let mut reader = domain.register();
            reader.offline(); // until its thread runs
            let (mailboxes, store) = (handle.mailboxes.clone(), handle.store.clone());
            let scope = Scope {
                nodes: cuts.reach(index % depth, &graph),
                ports: ports.iter().map(Option::is_some).collect(),
            };
            let mut watch = Watch::new(index, scope, graph.clone(), mailboxes, store, options.describe);
            for request in &options.traces {
                let at = trace_place(&graph, &request.at)?;
                watch.take(Order::Trace { at, packets: request.packets });
            }
            let clock = options.clock.clone();
            let place = worker::Place {
                stage: index % depth,
                cuts: cuts.clone(),
                links: std::mem::take(&mut links[index]),
                waker: handle.wakers[index].clone(),
                idle: placement.idle,
            };
            made.push(Worker::new(graph.clone(), ports, pool, reader, clock, snapshot, watch, place));
        }
        Ok(Engine { workers: made, handle, limits: options.limits, first: None })
    }

    /// Sets the observer of one worker.
    pub fn observe(&mut self, worker: usize, observer: Box<dyn Observer>) {
        self.workers[worker].observer = Some(observer);
    }

    /// What each worker's thread does before anything else, given its number, once it is on its CPU, or could not be put there
    /// ([`Handle::unbound`]): giving up rights, say.
    pub fn before_work(&mut self, first: impl Fn(usize) + Send + Sync + 'static) {
        self.first = Some(Box::new(first));
    }

    /// The control side's handle.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until the ports end, a limit is reached, or [`Handle::stop`]. `boundary` is called by the first worker
    /// at each of its burst boundaries with its time: control events that must be repeatable happen there.
    pub fn run(self, mut boundary: impl FnMut(u64) + Send) -> Outcome {
        let (handle, limits, first) = (self.handle, self.limits, &self.first);
        let mut outcome =
            Outcome { snapshot: handle.empty_snapshot(), errors: Vec::new(), traces: Vec::new() };
        let mut boundary: Option<&mut (dyn FnMut(u64) + Send)> = Some(&mut boundary);
        let last = Last::of(&self.workers);
        let last = last.as_ref();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, mut worker) in self.workers.into_iter().enumerate() {
                let (handle, cpu, mut boundary) = (&handle, handle.seats[index].cpu, boundary.take());
                let work = move || {
                    // If this worker panics, the others end and the panic is passed on.
                    let _stop = StopOnPanic(handle, last);
                    if let Some(cpu) = cpu
                        && let Err(error) = pin_to(cpu)
                    {
                        handle.unbound[index].store(error.raw_os_error(), Ordering::Release);
                    }
                    if let Some(first) = first {
                        first(index);
                    }
                    let ended = run_worker(&mut worker, &handle.stop, limits, last.is_some(), &mut boundary);
                    if let Some(last) = last {
                        last.wait(index, &mut worker, !ended);
                    }
                    worker.wind_down();
                    let snapshot = worker.finish();
                    (snapshot, worker)
                };
                let builder = std::thread::Builder::new().name(format!("worker-{index}"));
                let thread = builder.spawn_scoped(scope, work);
                if let (Err(_), Some(last)) = (&thread, last) {
                    last.give_up();
                }
                threads.push(thread);
            }
            // All pools are there until all workers have ended: who sends what another made returns its frame then.
            let mut ended = Vec::new();
            for thread in threads {
                match thread.map(|t| t.join()) {
                    Ok(Ok((snapshot, mut worker))) => {
                        outcome.snapshot.add(&snapshot);
                        outcome.errors.append(&mut worker.errors);
                        ended.push(worker);
                    }
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    Err(error) => outcome.errors.push(PortError::Device {
                        port: "worker".into(),
                        action: "cannot start a thread",
                        source: error,
                    }),
                }
            }
            outcome.snapshot.pool = PoolStats::default();
            for worker in &ended {
                outcome.snapshot.pool.add(&worker.pool_stats());
            }
        });
        outcome.traces = handle.traces(0);
        outcome.traces.sort_by_key(|entry| entry.worker);
        outcome
    }
}

struct StopOnPanic<'a>(&'a Handle, Option<&'a Last>);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
            self.1.into_iter().for_each(Last::give_up);
        }
    }
}

/// Runs a worker until its ports have ended, which is returned, or it is to stop. One that `ends_with_others` does not wait for what they send by its ports.
fn run_worker(
    worker: &mut Worker,
    stop: &AtomicBool,
    limits: Limits,
    ends_with_others: bool,
    boundary: &mut Option<&mut (dyn FnMut(u64) + Send)>,
) -> bool {
    worker.start();
    // Who follows another worker ends after it, and with nothing left.
    let follows = worker.follows();
    // A duration beyond the clock's range is none.
    let end = limits.duration.filter(|_| !follows).and_then(|d| Instant::now().checked_add(d));
    let (mut doze, mut ended) = (Doze::Awake, false);
    while follows
        || !stop.load(Ordering::Relaxed)
            && end.is_none_or(|end| Instant::now() < end)
            && limits.packets.is_none_or(|n| worker.received() < n)
    {
        match worker.turn() {
            Turn::Busy => worker.awake(&mut doze),
            Turn::Idle(due_ns) if !ends_with_others || !worker.has_received_all() => {
                worker.idle(&mut doze, due_ns, end);
            }
            Turn::Idle(_) | Turn::Ended => {
                ended = true;
                break;
            }
        }
        if let Some(boundary) = boundary {
            boundary(worker.now_ns());
        }
    }
    worker.awake(&mut doze);
    ended
}

/// Traces begin where packets come in: at a node, or where a port receives.
fn trace_place(graph: &Graph, at: &str) -> Result<Place, EngineError> {
    Place::find(graph, at)
        .filter(|place| !matches!(place, Place::Port { rx: false, .. }))
        .ok_or_else(|| EngineError::TraceAt(at.to_owned(), places(graph)))
}

fn places(graph: &Graph) -> String {
    let ports = graph.port_names.iter().map(|p| format!("port:{p}"));
    graph.node_names.iter().cloned().chain(ports).collect::<Vec<_>>().join(", ")
}

/// The CPUs that this process may use.
pub fn allowed_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
        .unwrap_or_default()
}

/// Binds the calling thread to a CPU. A container may forbid it.
fn pin_to(cpu: usize) -> Result<(), rustix::io::Errno> {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}
