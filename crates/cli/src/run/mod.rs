//! `run`, `check`, `replay`: a configuration at work.

mod api;
mod config;
mod devices;
mod report;
mod routes;
mod rules;
mod service;
mod setup;
mod state;

use crate::usage;
use anyhow::{Context, Result};
use clap::Args;
use config::{Config, RunSection};
use report::{Live, Report};
use routes::{State, UpdateFeed};
use service::{Feeds, Kernel, Service};
use state::{Start, StateFile};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_feed::LoadedTable;
use tidemill_feed::kernel::KernelFeed;
use tidemill_graph::record::{Event, RecordReader, Recorder, VERSION};
use tidemill_graph::replay::Replayer;
use tidemill_graph::{Clock, Outcome};
use tidemill_lookup::numa::{Copies, Topology};
use tidemill_lookup::qsbr::Domain;
use tidemill_router::state::Resumed;

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
    /// Stop after so many packets from each receiving port
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
    tidemill check --schema > schema.json"
)]
pub(crate) struct CheckArgs {
    /// The configuration (TOML)
    #[arg(required_unless_present = "schema")]
    config: Option<PathBuf>,
    /// Print the graph in Graphviz's language
    #[arg(long)]
    dot: bool,
    /// Print the configuration's JSON schema
    #[arg(long)]
    schema: bool,
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
    if args.record.is_some() && config.state.is_some() {
        return Err(usage("--record: a record begins with the table's files: leave [state] out"));
    }
    let Start { table, resumed, added, origin, from_image, newer } = state::start(&config, &text)?;
    let domain = Domain::new();
    // Wrong ports are found before the tables are built.
    let places = setup::places(&config, &Topology::read(Path::new("/sys")), &name)?;
    let (ports, rules) = setup::ports(&config, &base, &table, &places)?;
    let infos = setup::port_infos(&config, false)?;
    setup::warn_of_forwarding(&config.port);
    let updates = match &config.updates {
        // Behind what the image has of them: that takes a while, and the packets do not wait for it.
        Some(updates) if from_image => crate::tables::check_input(&updates.path).map(|()| None)?,
        Some(updates) => Some(UpdateFeed::open(&updates.path, updates.speed, &table.labels)?),
        None => None,
    };
    let recorded_state = args.record.is_some().then(|| State::of(&table));
    let LoadedTable { v4, v6, labels, .. } = table;
    let (v4, v6) = (routes::routes(v4, &labels), routes::routes(v6, &labels));
    let mut control = setup::control(&config, &infos, &name, v4, v6, &resumed, &domain, &places.copies)?;
    setup::check_mtu(&config, &control)?;
    setup::warn_of_small_frames(&config);
    rules.tell(&control)?;
    control.limit_mtu(setup::longest_packet(&config));
    for left_out in control.resume_added(&added)? {
        eprintln!("tidemill: warning: state image: {left_out}: left out");
    }
    let kernel = match control.kernel_options() {
        Some(options) => Some(Kernel::new(KernelFeed::open(&options)?)),
        None => None,
    };
    if kernel.is_some() && args.record.is_some() {
        return Err(usage(
            "--record: a record cannot hold what the kernel says: use ports that are no interfaces",
        ));
    }
    let traces = args.trace.iter().map(|t| setup::trace_request(t)).collect();
    let clock = setup::clock(&config);
    let capture_clock = clock.follows_packets();
    // A run that must be repeatable changes things at burst boundaries only; any other does so at any time.
    let repeatable = args.record.is_some() || capture_clock;
    let mut engine =
        setup::engine(&config, &control, ports, &places, &domain, clock, repeatable, args.duration, traces)?;
    let graph = tidemill_router::graph(&control).build()?;
    let recorder = match (&args.record, recorded_state) {
        (Some(path), Some(state)) => {
            let header = Event::Header {
                version: VERSION,
                config: text,
                capture_clock,
                ports: graph.port_names.clone(),
                nodes: graph.node_names.clone(),
                state: postcard::to_stdvec(&state).context("the routes cannot be recorded")?,
            };
            let recorder = Recorder::create(path, &header)?;
            engine.observe(0, recorder.observer());
            Some(recorder)
        }
        _ => None,
    };

    let handle = engine.handle();
    let hangup = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, handle.stop_flag())
            .and_then(|_| signal_hook::flag::register(signal, handle.stop_flag()))
            .context("cannot watch for signals")?;
    }
    signal_hook::flag::register(signal_hook::consts::SIGHUP, hangup.clone())
        .context("cannot watch for signals")?;
    let socket = config.control.as_ref().map(api::socket);
    let service = Arc::new(Service {
        handle,
        graph,
        control: Mutex::new(control),
        path: args.config.clone(),
        feeds: Mutex::new(Feeds::new(updates, kernel, labels, origin)),
        rates: Mutex::default(),
        hangup,
        reloads: AtomicU64::new(0),
        applied: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        started_ns: service::now_ns(),
        config: Mutex::new(written),
        rules,
        state: config.state.as_ref().map(StateFile::new),
        devices: Mutex::default(),
    });
    let server = match &socket {
        Some(socket) => Some(tidemill_control::Server::start(api::registry(&service), socket)?),
        None => None,
    };
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut live = Live::new();
            while !done.load(Ordering::Acquire) {
                live.tick(&service.handle, service.applied.load(Ordering::Relaxed));
                service.housekeeping();
                if repeatable || !service.turn(service::now_ns(), None) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            live.end();
        });
        if from_image {
            scope.spawn(|| service.catch_up(&config, newer, &done));
        }
        if let Some(file) = &service.state {
            scope.spawn(|| file.watch(&service, &done));
        }
        // Even if a worker panics: else the scope would wait for the threads above for ever.
        let _done = SetOnDrop(&done);
        engine.run(|now_ns| {
            if repeatable {
                service.turn(now_ns, recorder.as_ref());
            }
        })
    });
    drop(server);
    if let Some(file) = service.state.as_ref().filter(|file| file.is_stale(&service))
        && let Err(error) = file.save(&service)
    {
        service.complain("the state is not saved", &error);
    }
    let recorded = recorder.map(|recorder| recorder.finish()).transpose();
    let ok = print(&outcome, &service, args.json)?;
    if let Some(turns) = recorded? {
        eprintln!("tidemill: recorded {turns} turns");
    }
    Ok(ok && !service.failed.load(Ordering::Relaxed))
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn print(outcome: &Outcome, service: &Service, json: bool) -> Result<bool> {
    let ledger = outcome.snapshot.ledger();
    let control = service::lock(&service.control);
    let report = Report {
        snapshot: &outcome.snapshot,
        nodes: &service.graph.node_names,
        ports: &service.graph.port_names,
        lookups: control.lookup_stats(),
        icmp: control.icmp_stats(),
        updates: service.applied.load(Ordering::Relaxed),
        traces: &outcome.traces,
    };
    if json {
        report.print_json(&ledger)?
    } else {
        report.print(&ledger)?
    }
    outcome.errors.iter().for_each(|error| eprintln!("tidemill: {error}"));
    if !ledger.balances() {
        eprintln!("tidemill: the books do not balance: packets have gone missing; please report this");
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
    let Some(path) = args.config else { return Err(usage("give a configuration")) };
    let (config, _) = Config::read(&path)?;
    let name = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new(""));
    for spec in &config.port {
        if let tidemill_port::PortSpec::Pcap(pcap) = spec
            && let Some(input) = &pcap.input
        {
            crate::tables::check_input(&base.join(input))?;
        }
    }
    config.port.iter().try_for_each(|spec| spec.check(config.run.chains())).map_err(usage)?;
    setup::cpus(&config, &name)?;
    setup::check_files(&config, &path, base, None)?;
    config.updates.iter().try_for_each(|updates| crate::tables::check_input(&updates.path))?;
    let missing = config.table.iter().flat_map(|t| t.path.paths()).any(|path| !path.exists());
    let to_make = config.table.as_ref().and_then(|t| t.generate.as_ref()).filter(|_| missing);
    let table = match to_make {
        Some(make) => {
            LoadedTable { labels: tidemill_feed::Labels::numbers(make.next_hops), ..LoadedTable::default() }
        }
        None => routes::load(&config)?,
    };
    let (count4, count6) = (table.v4.len(), table.v6.len());
    let domain = Domain::new();
    let (v4, v6) = (routes::routes(table.v4, &table.labels), routes::routes(table.v6, &table.labels));
    let infos = setup::port_infos(&config, true)?;
    let control =
        setup::control(&config, &infos, &name, v4, v6, &Resumed::default(), &domain, &Copies::one())?;
    setup::check_mtu(&config, &control)?;
    setup::warn_of_small_frames(&config);
    let graph = tidemill_router::graph(&control).build()?;
    tidemill_graph::check_stages(&graph, &config.run.stages)
        .map_err(|error| usage(format!("{name}: run.{error}")))?;
    if args.dot {
        print!("{}", graph.dot());
        return Ok(true);
    }
    let routes = match to_make {
        Some(make) => format!("a table of {} + {} prefixes will be made", make.ipv4, make.ipv6),
        None => format!("{count4} IPv4 and {count6} IPv6 prefixes"),
    };
    println!(
        "{name}: good: a {} of {} ports ({}), {} nodes, {} workers, {routes}",
        config.role,
        graph.port_names.len(),
        graph.port_names.join(", "),
        graph.node_names.len(),
        config.run.workers
    );
    for info in infos.iter().filter(|info| info.device.is_some_and(|device| device.index == 0)) {
        eprintln!(
            "tidemill: port {}: its network interface is not here: checked as if it were there",
            info.name
        );
    }
    Ok(true)
}

/// `tidemill replay`.
pub(crate) fn replay(args: ReplayArgs) -> Result<bool> {
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
    let state: State = postcard::from_bytes(&state).map_err(|e| reader.corrupt(format!("routes: {e}")))?;
    let (v4, v6) = state.routes();
    let domain = Domain::new();
    let infos = setup::port_infos(&config, true)?;
    let control =
        setup::control(&config, &infos, "the record", v4, v6, &Resumed::default(), &domain, &places.copies)?;
    let graph = tidemill_router::graph(&control).build()?;
    if graph.port_names != ports || graph.node_names != nodes {
        return Err(reader.corrupt("was made with another graph: use the tidemill that recorded it").into());
    }
    let now = Arc::new(AtomicU64::new(0));
    let clock = if capture_clock { Clock::Capture } else { Clock::Manual(now.clone()) };
    let mut replayer = Replayer::new(reader, now);
    let queues = ports.iter().enumerate().map(|(i, name)| vec![replayer.port(i, name)]).collect();
    let mut engine =
        setup::engine(&config, &control, queues, &places, &domain, clock, true, None, Vec::new())?;
    engine.observe(0, replayer.observer());
    let control = Mutex::new(control);
    let mut apply = |change: &[u8]| -> Result<u64, String> {
        let changes: routes::Changes =
            postcard::from_bytes(change).map_err(|e| format!("route changes: {e}"))?;
        changes.apply(&mut service::lock(&control)).map_err(|e| format!("{e:#}"))
    };
    replayer.advance(&mut apply);
    let outcome = engine.run(|now_ns| {
        replayer.advance(&mut apply);
        let mut control = service::lock(&control);
        // As at the boundaries of the run that was recorded. What cannot be, could not be then.
        let _ = control.poll(now_ns);
        control.collect();
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
