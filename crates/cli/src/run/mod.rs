//! `run`, `check`, `replay`: a configuration at work.

mod api;
mod bridge;
mod config;
mod devices;
mod filter;
mod gatekeeper;
mod grantor;
mod handover;
mod harden;
mod kvcache;
mod log;
mod metrics;
mod mitigator;
mod nat;
mod reference;
mod report;
mod role;
mod room;
mod router;
mod rules;
mod service;
mod setup;
mod spliced;
mod switch;
mod taps;
mod watch;
mod written;

use crate::usage::{complain_as, to_the_end, usage};
use anyhow::{Context, Result};
use clap::Args;
#[cfg(all(target_os = "linux", feature = "xdp"))]
pub(crate) use config::MOST_BYTES;
use config::{Config, ControlSection, RunSection};
use report::{Live, Report};
use role::{Open, Opening, Trouble};
use service::Service;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidemill_control::schema::Severity;
use tidemill_control::{Server, Tcp};
use tidemill_graph::record::{Event, RecordReader, Recorder, VERSION};
use tidemill_graph::replay::Replayer;
use tidemill_graph::{Clock, Graph, Outcome};
use tidemill_lookup::numa::Topology;
use tidemill_lookup::qsbr::Domain;

/// Options of `tidemill run`.
#[derive(Args)]
#[command(after_help = "Examples:\n  tidemill run examples/router/router.toml\n  \
    tidemill run router.toml --table rib.zst --input in.pcap --output out.pcapng.zst --remap 1\n  \
    tidemill run router.toml --trace ip4-input:3 --packets 1000\n  \
    tidemill run router.toml --record run.tmrec.zst && tidemill replay run.tmrec.zst")]
pub(crate) struct RunArgs {
    /// The configuration (TOML)
    config: PathBuf,
    /// Receive from this capture instead: FILE, or PORT=FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<String>,
    /// Send into this capture instead: FILE, or PORT=FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<String>,
    /// Route by this table instead (MRT, text, CSV); repeat it for several files
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Vec<PathBuf>,
    /// Apply this update file to the table while packets flow
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,
    /// How many times as fast as the updates' own times; 0 is as fast as they are taken
    #[arg(long, value_name = "FACTOR")]
    pub(crate) updates_speed: Option<f64>,
    /// Give received packets destinations that the table routes
    #[arg(long, value_name = "SEED")]
    pub(crate) remap: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "S")]
    duration: Option<f64>,
    /// Stop after so many packets from each receiving port (a device gives what comes, and has no end)
    #[arg(long, value_name = "N")]
    pub(crate) packets: Option<u64>,
    /// Worker threads
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
    /// Trace the first N packets (8) that reach a node, or port:NAME; repeatable
    #[arg(long, value_name = "NODE[:N]")]
    trace: Vec<String>,
    /// Record the run, for `tidemill replay` (one worker)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Options of `tidemill check`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidemill check router.toml\n  tidemill check router.toml --dot | dot -Tsvg > graph.svg\n  \
    tidemill check --reference | less\n  tidemill check --schema > schema.json"
)]
pub(crate) struct CheckArgs {
    /// The configuration, or a scenario (TOML)
    #[arg(required_unless_present_any = ["schema", "reference"])]
    config: Option<PathBuf>,
    /// Print the graph in Graphviz's language
    #[arg(long)]
    dot: bool,
    /// Print the configuration's JSON schema
    #[arg(long)]
    schema: bool,
    /// Print every key of the configuration with its default and meaning, as Markdown (CONFIGURATION.md)
    #[arg(long, conflicts_with = "schema")]
    reference: bool,
}

/// Options of `tidemill replay`.
#[derive(Args)]
#[command(after_help = "Example:\n  tidemill replay run.tmrec.zst --json")]
pub(crate) struct ReplayArgs {
    /// The record, made by `tidemill run --record`
    record: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// `tidemill run`.
pub(crate) fn run(args: RunArgs) -> Result<bool> {
    to_the_end();
    // Before anything that takes its time: a signal that nobody waits for would end it.
    let hangup = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, hangup.clone())
        .context("cannot watch for signals")?;
    let (mut config, text) = Config::read(&args.config)?;
    let written = config.clone();
    setup::override_config(&mut config, &args)?;
    let name = args.config.display().to_string();
    config.validate().map_err(|what| usage(format!("{name} with the command line's options: {what}")))?;
    if args.record.is_some() && config.run.workers != 1 {
        return Err(usage("--record: a record is of one worker: set run.workers = 1"));
    }
    let base = args.config.parent().unwrap_or(Path::new("")).to_path_buf();
    setup::check_files(&config, &args.config, &base, args.record.as_deref())?;
    harden::check(&config, &name, args.record.is_some())?;
    harden::forgo_new(&config)?;
    room::refuse(&name, &config)?;
    let tcp = config.control.as_ref().map(ControlSection::tcp).transpose()?.flatten();
    // So are addresses that cannot be had, which are waited for by nobody.
    let bound = tcp.as_ref().map(Tcp::bind).transpose()?;
    let domain = Domain::new();
    // Wrong ports are found before the tables are built.
    let places = setup::places(&config, &Topology::read(Path::new("/sys")), &name)?;
    setup::warn_of_forwarding(&config.port);
    let trouble = Arc::new(Trouble::default());
    trouble.levels().set(&config.log);
    let opening = Opening {
        config: &config,
        text: &text,
        name: &name,
        base: &base,
        places: &places,
        domain: &domain,
        record: args.record.is_some(),
        trouble: trouble.clone(),
    };
    let Open { role, ports, state } = role::open(&opening)?;
    let traces = args.trace.iter().map(|t| setup::trace_request(t)).collect();
    let clock = setup::clock(&config);
    let capture_clock = clock.follows_packets();
    // A run that must be repeatable changes things at burst boundaries only; any other does so at any time.
    let repeatable = args.record.is_some() || capture_clock;
    let graph = role.graph().build()?;
    let mut engine =
        setup::engine(&config, graph, ports, &places, &domain, clock, repeatable, args.duration, traces)?;
    setup::warn_of_stages(&config, &name);
    let graph = role.graph().build()?;
    let recorder = match &args.record {
        Some(path) => {
            let header = Event::Header {
                version: VERSION,
                config: text,
                capture_clock,
                ports: graph.port_names.clone(),
                nodes: graph.node_names.clone(),
                state,
            };
            let recorder = Recorder::create(path, &header)?;
            engine.observe(0, recorder.observer());
            Some(recorder)
        }
        None => None,
    };

    let handle = engine.handle();
    harden::workers(&config, &mut engine, &handle, &trouble)?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, handle.stop_flag())
            .and_then(|_| signal_hook::flag::register(signal, handle.stop_flag()))
            .context("cannot watch for signals")?;
    }
    let socket = config.control.as_ref().map(api::socket);
    let service = Arc::new(Service {
        handle,
        graph,
        role,
        path: args.config.clone(),
        rates: Mutex::default(),
        hangup,
        reloads: AtomicU64::new(0),
        trouble,
        started_ns: service::now_ns(),
        reloading: Mutex::default(),
        config: Mutex::new(written),
        devices: Mutex::default(),
        watched: Mutex::default(),
        tcp,
    });
    harden::give_up_given(&config)?;
    let server = match &socket {
        Some(socket) => Some(Server::start_bound(api::registry(&service), socket, bound)?),
        None => None,
    };
    for address in server.iter().flat_map(Server::addresses) {
        eprintln!("tidemill: the API and /metrics are at {address}");
    }
    // The last that needs more: from here on this thread, and all that it starts, have what is left.
    harden::give_up(&config, socket.as_deref())?;
    service.trouble.tell("run", Severity::Info, &name, format!("a {} begins", config.role));
    let done = Arc::new(AtomicBool::new(false));
    // Outside of the scope, which waits for all of its threads: a reload may wait for a file for ever.
    let hangups = std::thread::spawn({
        let (service, done) = (service.clone(), done.clone());
        move || service.follow_hangups(&done)
    });
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut live, mut manager) = (Live::new(), harden::Manager::new(&service));
            while !done.load(Ordering::Acquire) {
                live.tick(&service.handle, service.trouble.levels(), || service.role.progress());
                service.housekeeping();
                manager.turn();
                if repeatable || !service.role.turn(service::now_ns(), None) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            live.end();
        });
        service.role.beside(scope, &done);
        // Even if a worker panics: else the scope would wait for the threads above for ever.
        let _done = SetOnDrop(&done);
        engine.run(|now_ns| {
            if repeatable {
                service.role.turn(now_ns, recorder.as_ref());
            }
        })
    });
    join_soon(hangups);
    service.trouble.tell("run", Severity::Info, &name, "has stopped: all workers have ended");
    drop(server);
    service.role.end();
    let recorded = recorder.map(|recorder| recorder.finish()).transpose();
    let ok = print(&outcome, &service, args.json)?;
    if let Some(turns) = recorded? {
        eprintln!("tidemill: recorded {turns} turns");
    }
    Ok(ok && !service.trouble.is_any())
}

/// Waits for a thread a second at most: what it is at then ends with the process.
fn join_soon(thread: JoinHandle<()>) {
    let begun = Instant::now();
    while !thread.is_finished() {
        if begun.elapsed() > Duration::from_secs(1) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn print(outcome: &Outcome, service: &Service, json: bool) -> Result<bool> {
    let ledger = outcome.snapshot.ledger();
    let report = Report {
        snapshot: &outcome.snapshot,
        nodes: &service.graph.node_names,
        ports: &service.graph.port_names,
        told: service.role.told(),
        traces: &outcome.traces,
    };
    if json {
        report.print_json(&ledger)?
    } else {
        report.print(&ledger)?
    }
    let complain = |line: String| complain_as(Severity::Error, &line);
    outcome.errors.iter().for_each(|error| complain(format!("tidemill: {error}")));
    if !ledger.balances() {
        complain("tidemill: the books do not balance: packets have gone missing; please report this".into());
        return Ok(false);
    }
    Ok(outcome.errors.is_empty())
}

/// `tidemill check`.
pub(crate) fn check(args: CheckArgs) -> Result<bool> {
    if args.schema {
        println!("{}", serde_json::to_string_pretty(&schemars::schema_for!(Config))?);
        return Ok(true);
    }
    if args.reference {
        print!("{}", reference::page()?);
        return Ok(true);
    }
    let Some(path) = args.config else { return Err(usage("give a configuration")) };
    // Once: it may be a pipe.
    let text = Config::text(&path)?;
    #[cfg(all(target_os = "linux", feature = "xdp"))]
    if crate::scenario::is_scenario(&text) {
        return crate::scenario::check(&path, &text);
    }
    let config = Config::of(&text, &path)?;
    let name = path.display();
    let (graph, said) = check_read(&config, &path)?;
    if args.dot {
        print!("{}", graph.dot());
        return Ok(true);
    }
    println!(
        "{name}: good: a {} of {} ports ({}), {} nodes, {} workers, {said}",
        config.role,
        graph.port_names.len(),
        graph.port_names.join(", "),
        graph.node_names.len(),
        config.run.workers
    );
    for spec in setup::specs(&config) {
        if spec.interface().is_some_and(|interface| tidemill_port::device(interface).is_err()) {
            eprintln!(
                "tidemill: port {}: its network interface is not here: checked as if it were there",
                spec.name()
            );
        } else {
            spec.remarks(config.run.chains()).iter().for_each(|remark| eprintln!("tidemill: {remark}"));
        }
    }
    Ok(true)
}

/// Checks a configuration as a process would read it that runs in its folder.
#[cfg(all(target_os = "linux", feature = "xdp"))]
pub(crate) fn check_in_its_folder(path: &Path) -> Result<()> {
    let (mut config, _) = Config::read(path)?;
    let base = path.parent().unwrap_or(Path::new(""));
    for program in config.gatekeeper.iter_mut().flat_map(|section| &mut section.program) {
        program.file = base.join(&program.file);
    }
    check_read(&config, path).map(drop)
}

/// Checks a configuration that was read from `path`, without opening anything. Returns its graph, and what to say of its role.
fn check_read(config: &Config, path: &Path) -> Result<(Graph, String)> {
    let name = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    for spec in &config.port {
        if let tidemill_port::PortSpec::Pcap(pcap) = spec
            && let Some(input) = &pcap.input
        {
            crate::tables::check_input(&base.join(input))?;
        }
    }
    let table = config.table.is_some();
    config.port.iter().try_for_each(|spec| spec.check(config.run.chains(), table)).map_err(usage)?;
    let cpus = setup::cpus(config, &name)?;
    setup::check_memory(config, &Topology::read(Path::new("/sys")), &cpus)?;
    config.dpdk.check(&config.port).map_err(usage)?;
    setup::check_remap(config, table)?;
    setup::check_files(config, path, base, None)?;
    harden::check(config, &name, false)?;
    let tcp = config.control.as_ref().map(ControlSection::tcp).transpose()?.flatten();
    let now_s = service::system_ns() / 1_000_000_000;
    let about =
        tcp.and_then(|tcp| watch::certificate(tcp.certificate_begins_s(), tcp.certificate_ends_s(), now_s));
    about.iter().for_each(|line| eprintln!("tidemill: warning: {name}: {line}"));
    let (graph, said) = role::check(config, &name)?;
    room::warn(&name, config);
    let graph = graph.build()?;
    tidemill_graph::check_stages(&graph, &config.run.stages)
        .map_err(|error| usage(format!("{name}: run.{error}")))?;
    setup::warn_of_stages(config, &name);
    Ok((graph, said))
}

/// `tidemill replay`.
pub(crate) fn replay(args: ReplayArgs) -> Result<bool> {
    to_the_end();
    crate::tables::check_input(&args.record)?;
    let mut reader = RecordReader::open(&args.record)?;
    let Some(Event::Header { version, config, capture_clock, ports, nodes, state }) = reader.next_event()?
    else {
        return Err(reader.corrupt("this is not a record: it has no header").into());
    };
    if version != VERSION {
        return Err(reader
            .corrupt(format!("version {version}; this program reads version {VERSION}"))
            .into());
    }
    let mut config = Config::parse(&config, &format!("{} (configuration)", args.record.display()))?;
    config.run = RunSection { clock: config.run.clock, ..RunSection::default() };
    let places = setup::places(&config, &Topology::default(), "the record")?;
    let domain = Domain::new();
    let opening = Opening {
        config: &config,
        text: "",
        name: "the record",
        base: Path::new(""),
        places: &places,
        domain: &domain,
        record: true,
        trouble: Arc::default(),
    };
    let role = role::reopen(&opening, &state).map_err(|error| reader.corrupt(format!("{error:#}")))?;
    let graph = role.graph().build()?;
    if graph.port_names != ports || graph.node_names != nodes {
        return Err(reader.corrupt("was made with another graph: use the tidemill that recorded it").into());
    }
    let now = Arc::new(AtomicU64::new(0));
    let clock = if capture_clock { Clock::Capture } else { Clock::Manual(now.clone()) };
    let mut replayer = Replayer::new(reader, now);
    let queues = ports.iter().enumerate().map(|(i, name)| vec![replayer.port(i, name)]).collect();
    let mut engine = setup::engine(&config, graph, queues, &places, &domain, clock, true, None, Vec::new())?;
    engine.observe(0, replayer.observer());
    let mut apply = |change: &[u8]| role.repeat(change);
    replayer.advance(&mut apply);
    let outcome = engine.run(|now_ns| {
        replayer.advance(&mut apply);
        // As at the boundaries of the run that was recorded. What cannot be, could not be then.
        role.turn(now_ns, None);
    });
    let (verdicts, error) = replayer.finish();
    let seconds = outcome.snapshot.elapsed_ns as f64 / 1e9;
    if args.json {
        println!(
            "{}",
            serde_json::json!({"v": 1, "turns": verdicts.turns, "checked": verdicts.checked, "wrong": verdicts.wrong,
                "complete": verdicts.complete, "seconds": seconds})
        );
    } else {
        println!(
            "{} turns, {} fates compared, {} wrong, {seconds:.3} s",
            verdicts.turns, verdicts.checked, verdicts.wrong
        );
    }
    verdicts.examples.iter().for_each(|example| eprintln!("tidemill: {example}"));
    match error {
        Some(error) => return Err(error.into()),
        None if !verdicts.complete => {
            eprintln!("tidemill: the record ends early (the run was killed?): all of it is compared")
        }
        None => {}
    }
    Ok(verdicts.wrong == 0)
}
