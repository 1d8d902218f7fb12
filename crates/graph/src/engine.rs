//! The engine: workers on their threads, one per core, from start to clean shutdown.

use crate::capture::Capture;
use crate::clock::Clock;
use crate::counters::Snapshot;
use crate::graph::Graph;
use crate::trace::{Store, TraceEntry, TraceRequest};
use crate::watch::{Mailbox, Order, Place, Refused, Watch};
pub use crate::worker::Fate;
use crate::worker::{Turn, Worker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_burst::{Memory, Packet};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortError};

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
    /// A port needs one queue per worker, or a single one (for the first worker).
    #[error(
        "port {port}: {queues} queues for {workers} workers: give it one queue per worker, or one in all"
    )]
    Queues {
        /// The port's name.
        port: String,
        /// Queues it has.
        queues: usize,
        /// Workers there are.
        workers: usize,
    },
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

/// A handle for the control side: live counters, traces and captures, and the stop switch.
#[derive(Clone)]
pub struct Handle {
    stop: Arc<AtomicBool>,
    shared: Vec<Arc<Mutex<Snapshot>>>,
    graph: Arc<Graph>,
    mailboxes: Arc<[Mailbox]>,
    store: Arc<Mutex<Store>>,
}

impl Handle {
    /// Asks the workers to stop receiving, finish what they have, and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
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
        }
        if taken { Ok(()) } else { Err(EngineError::Ended) }
    }

    fn empty_snapshot(&self) -> Snapshot {
        Snapshot::new(self.graph.node_names.len(), self.graph.port_names.len())
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
    pin: bool,
}

impl Engine {
    /// Makes `workers` workers. `ports[p]` holds port p's queues: one per worker, or a single one, which the first
    /// worker gets. Each worker's pool is carved from `memory`.
    pub fn new(
        graph: Graph,
        workers: usize,
        ports: Vec<Vec<Box<dyn Port>>>,
        memory: &Arc<Memory>,
        domain: &Domain,
        options: Options,
    ) -> Result<Self, EngineError> {
        let graph = Arc::new(graph);
        let mut seats: Vec<Vec<Option<Box<dyn Port>>>> = (0..workers).map(|_| Vec::new()).collect();
        for (p, queues) in ports.into_iter().enumerate() {
            if queues.len() != workers && queues.len() != 1 {
                let port = graph.port_names.get(p).cloned().unwrap_or_default();
                return Err(EngineError::Queues { port, queues: queues.len(), workers });
            }
            let mut queues = queues.into_iter();
            seats.iter_mut().for_each(|seats| seats.push(queues.next()));
        }
        let asked = options.traces.iter().fold(0usize, |sum, t| sum.saturating_add(t.packets as usize));
        let limit = TRACES.saturating_add(asked.saturating_mul(workers).saturating_mul(TRACE_STEPS));
        let mut handle = Handle {
            stop: Arc::new(AtomicBool::new(false)),
            shared: Vec::new(),
            graph: graph.clone(),
            mailboxes: (0..workers).map(|_| Mailbox::default()).collect(),
            store: Arc::new(Mutex::new(Store::new(limit))),
        };
        let mut made = Vec::new();
        for (index, ports) in seats.into_iter().enumerate() {
            let snapshot = Arc::new(Mutex::new(handle.empty_snapshot()));
            handle.shared.push(snapshot.clone());
            let pool = memory.pool(options.frames_per_worker)?;
            let mut reader = domain.register();
            reader.offline(); // until its thread runs
            let (mailboxes, store) = (handle.mailboxes.clone(), handle.store.clone());
            let mut watch = Watch::new(index, graph.clone(), mailboxes, store, options.describe);
            for request in &options.traces {
                let at = trace_place(&graph, &request.at)?;
                watch.take(Order::Trace { at, packets: request.packets });
            }
            let clock = options.clock.clone();
            made.push(Worker::new(graph.clone(), ports, pool, reader, clock, snapshot, watch));
        }
        Ok(Engine { workers: made, handle, limits: options.limits, pin: options.pin })
    }

    /// Sets the observer of one worker.
    pub fn observe(&mut self, worker: usize, observer: Box<dyn Observer>) {
        self.workers[worker].observer = Some(observer);
    }

    /// The control side's handle.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until the ports end, a limit is reached, or [`Handle::stop`]. `boundary` is called by the first worker
    /// at each of its burst boundaries with its time: control events that must be repeatable happen there.
    pub fn run(self, mut boundary: impl FnMut(u64) + Send) -> Outcome {
        let (handle, limits, pin) = (self.handle, self.limits, self.pin);
        let mut outcome =
            Outcome { snapshot: handle.empty_snapshot(), errors: Vec::new(), traces: Vec::new() };
        let cpus = if pin { allowed_cpus() } else { Vec::new() };
        let mut boundary: Option<&mut (dyn FnMut(u64) + Send)> = Some(&mut boundary);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, mut worker) in self.workers.into_iter().enumerate() {
                let (stop, cpu, mut boundary) = (&handle.stop, cpus.get(index).copied(), boundary.take());
                let work = move || {
                    // If this worker panics, the others end and the panic is passed on.
                    let _stop = StopOnPanic(stop);
                    cpu.into_iter().for_each(pin_to);
                    run_worker(&mut worker, stop, limits, &mut boundary);
                    let snapshot = worker.finish();
                    (snapshot, worker.errors)
                };
                let builder = std::thread::Builder::new().name(format!("worker-{index}"));
                threads.push(builder.spawn_scoped(scope, work));
            }
            for thread in threads {
                match thread.map(|t| t.join()) {
                    Ok(Ok((snapshot, errors))) => {
                        outcome.snapshot.add(&snapshot);
                        outcome.errors.extend(errors);
                    }
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    Err(error) => outcome.errors.push(PortError::Device {
                        port: "worker".into(),
                        action: "cannot start a thread",
                        source: error,
                    }),
                }
            }
        });
        outcome.traces = handle.traces(0);
        outcome.traces.sort_by_key(|entry| entry.worker);
        outcome
    }
}

struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// Idle turns before a worker begins to sleep, and the longest nap.
const SPINS: u32 = 64;
const NAP: Duration = Duration::from_micros(200);

fn run_worker(
    worker: &mut Worker,
    stop: &AtomicBool,
    limits: Limits,
    boundary: &mut Option<&mut (dyn FnMut(u64) + Send)>,
) {
    worker.start();
    // A duration beyond the clock's range is none.
    let end = limits.duration.and_then(|d| Instant::now().checked_add(d));
    let mut idle = 0;
    while !stop.load(Ordering::Relaxed)
        && end.is_none_or(|end| Instant::now() < end)
        && limits.packets.is_none_or(|n| worker.received() < n)
    {
        match worker.turn() {
            Turn::Busy => idle = 0,
            Turn::Idle(_) if idle < SPINS => idle += 1,
            Turn::Idle(_) => worker.sleep(NAP),
            Turn::Ended => return,
        }
        if let Some(boundary) = boundary {
            boundary(worker.now_ns());
        }
    }
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

fn allowed_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
        .unwrap_or_default()
}

fn pin_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // A container may forbid it; the run is right all the same.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
