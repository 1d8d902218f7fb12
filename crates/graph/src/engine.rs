//! The engine: workers on their threads, one per core, from start to clean shutdown.

use crate::clock::Clock;
use crate::counters::Snapshot;
use crate::graph::Graph;
use crate::trace::{TraceEntry, TraceRequest, Tracer};
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
}

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
    /// What to trace.
    pub traces: Vec<TraceRequest>,
    /// Describes a packet in one line, for traces.
    pub describe: fn(&[u8]) -> String,
}

/// A handle for the control side: live counters, and the stop switch.
#[derive(Clone)]
pub struct Handle {
    stop: Arc<AtomicBool>,
    shared: Vec<Arc<Mutex<Snapshot>>>,
    size: (usize, usize),
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
        let mut sum = Snapshot::new(self.size.0, self.size.1);
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
}

/// What a run came to.
pub struct Outcome {
    /// The final counters, all workers summed.
    pub snapshot: Snapshot,
    /// What went wrong at ports: each is one line, with its place.
    pub errors: Vec<PortError>,
    /// What was traced, in order of time per worker.
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
        let size = (graph.node_names.len(), graph.port_names.len());
        let mut seats: Vec<Vec<Option<Box<dyn Port>>>> = (0..workers).map(|_| Vec::new()).collect();
        for (p, queues) in ports.into_iter().enumerate() {
            if queues.len() != workers && queues.len() != 1 {
                let port = graph.port_names.get(p).cloned().unwrap_or_default();
                return Err(EngineError::Queues { port, queues: queues.len(), workers });
            }
            let mut queues = queues.into_iter();
            seats.iter_mut().for_each(|seats| seats.push(queues.next()));
        }
        let mut shared = Vec::new();
        let mut made = Vec::new();
        for (index, ports) in seats.into_iter().enumerate() {
            let snapshot = Arc::new(Mutex::new(Snapshot::new(size.0, size.1)));
            shared.push(snapshot.clone());
            let pool = memory.pool(options.frames_per_worker)?;
            let mut reader = domain.register();
            reader.offline(); // until its thread runs
            let mut worker =
                Worker::new(index, graph.clone(), ports, pool, reader, options.clock.clone(), snapshot);
            worker.tracer = tracer(&graph, &options)?;
            made.push(worker);
        }
        let handle = Handle { stop: Arc::new(AtomicBool::new(false)), shared, size };
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
        let mut outcome = Outcome {
            snapshot: Snapshot::new(handle.size.0, handle.size.1),
            errors: Vec::new(),
            traces: Vec::new(),
        };
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
                    (snapshot, worker.errors, worker.tracer.map(|t| t.entries).unwrap_or_default())
                };
                let builder = std::thread::Builder::new().name(format!("worker-{index}"));
                threads.push(builder.spawn_scoped(scope, work));
            }
            for thread in threads {
                match thread.map(|t| t.join()) {
                    Ok(Ok((snapshot, errors, traces))) => {
                        outcome.snapshot.add(&snapshot);
                        outcome.errors.extend(errors);
                        outcome.traces.extend(traces);
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

fn tracer(graph: &Graph, options: &Options) -> Result<Option<Tracer>, EngineError> {
    if options.traces.is_empty() {
        return Ok(None);
    }
    let mut tracer = Tracer::new(graph.node_names.len(), graph.port_names.len(), options.describe);
    for request in &options.traces {
        let port =
            request.at.strip_prefix("port:").and_then(|p| graph.port_names.iter().position(|n| n == p));
        match (port, graph.node(&request.at)) {
            (Some(p), _) => tracer.at_port[p] += request.packets,
            (None, Some(n)) => tracer.at_node[n] += request.packets,
            (None, None) => {
                let names = graph.node_names.iter().cloned();
                let ports = graph.port_names.iter().map(|p| format!("port:{p}"));
                let known = names.chain(ports).collect::<Vec<_>>().join(", ");
                return Err(EngineError::TraceAt(request.at.clone(), known));
            }
        }
    }
    Ok(Some(tracer))
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
