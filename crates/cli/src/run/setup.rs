//! From a configuration to an engine that is ready to run.

use super::RunArgs;
use super::config::{ClockChoice, Config, RemapSection, Role};
use super::rules::Rules;
use super::written::nowhere;
use crate::addresses::TableAddresses;
use crate::usage;
use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidemill_burst::Memory;
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::{Clock, Engine, Graph, Limits, Options, Placement};
use tidemill_lookup::numa::{Copies, Topology};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::spec::PaceSpec;
use tidemill_port::{OpenContext, Port, PortError, PortSpec, Remap, SpreadBy};
use tidemill_wire::Summary;

/// Puts the command line's wishes into the configuration.
pub(crate) fn override_config(config: &mut Config, args: &RunArgs) -> Result<()> {
    let here = std::env::current_dir().context("cannot tell the current folder")?;
    if let Some(input) = &args.input {
        let (port, file) = named(input);
        let takes = |spec: &&mut PortSpec| matches!(spec, PortSpec::Pcap(pcap) if port.map_or(pcap.input.is_some(), |p| p == pcap.name));
        let mut fits: Vec<_> = config.port.iter_mut().filter(takes).collect();
        match &mut fits[..] {
            [PortSpec::Pcap(spec)] => spec.input = Some(here.join(file)),
            other => return Err(ambiguous("--input", file, other.len())),
        }
    }
    if let Some(output) = &args.output {
        let (port, file) = named(output);
        let takes = |spec: &&mut PortSpec| matches!(spec, PortSpec::Pcap(pcap) if port.map_or(pcap.output.is_some(), |p| p == pcap.name));
        let mut fits: Vec<_> = config.port.iter_mut().filter(takes).collect();
        match &mut fits[..] {
            [PortSpec::Pcap(spec)] => spec.output = Some(here.join(file)),
            other => return Err(ambiguous("--output", file, other.len())),
        }
    }
    if !args.table.is_empty() {
        let path = super::config::OneOrMore::More(args.table.clone());
        config.table = Some(super::config::TableSection { path, generate: None });
    }
    if let Some(path) = &args.updates {
        config.updates = Some(super::config::UpdatesSection { path: path.clone(), speed: 0.0 });
    }
    match (args.updates_speed, &mut config.updates) {
        (Some(speed), Some(updates)) => updates.speed = speed,
        (Some(_), None) => return Err(usage("--updates-speed: there are no updates: give --updates FILE")),
        (None, _) => {}
    }
    if let Some(seed) = args.remap {
        config.remap = Some(RemapSection { seed });
    }
    if let Some(workers) = args.workers {
        config.run.workers = workers;
    }
    if let Some(packets) = args.packets {
        for spec in &mut config.port {
            if !spec.limit(packets) {
                let (name, kind) = (spec.name(), spec.kind());
                return Err(usage(format!(
                    "--packets: port {name:?} ({kind}) gives what comes, so the run would not end: give --duration"
                )));
            }
        }
    }
    Ok(())
}

/// `PORT=FILE`, or a file alone.
fn named(text: &str) -> (Option<&str>, &Path) {
    match text.split_once('=') {
        Some((port, file)) if !port.contains('/') && !Path::new(text).exists() => {
            (Some(port), Path::new(file))
        }
        _ => (None, Path::new(text)),
    }
}

fn ambiguous(option: &str, file: &Path, fits: usize) -> anyhow::Error {
    let file = file.display();
    usage(format!("{option} {file}: {fits} pcap ports of the configuration fit: give {option} PORT={file}"))
}

/// Warns of interfaces on which the kernel forwards packets itself: each would leave twice.
pub(crate) fn warn_of_forwarding(ports: &[PortSpec]) {
    for spec in ports {
        let Some(device) = spec.interface().filter(|_| spec.is_copied_to_kernel()) else { continue };
        for family in ["ipv4", "ipv6"] {
            let switch = format!("net/{family}/conf/{device}/forwarding");
            let on = std::fs::read_to_string(Path::new("/proc/sys").join(&switch));
            if on.is_ok_and(|on| on.trim() == "1") {
                eprintln!(
                    "tidemill: warning: {}: the kernel forwards {family} from {device} too, so packets would leave \
                     twice: sysctl -w {}=0",
                    spec.name(),
                    switch.replace('/', ".")
                );
            }
        }
    }
}

/// The queues of each port, in the order of the configuration.
pub(crate) type Queues = Vec<Vec<Box<dyn Port>>>;

/// The ports, with what the role needs of how packets are spread over workers.
pub(crate) fn specs(config: &Config) -> Vec<PortSpec> {
    let by = match config.role {
        // A flow is a pair of addresses, and its rate is kept by one worker.
        Role::Gatekeeper => SpreadBy::Addresses,
        // Where questions and answers meet, workers need not tell each other.
        Role::Mitigator => SpreadBy::Sessions,
        // What a connection is about, both of its directions tell.
        _ if config.assets.is_some() => SpreadBy::Sessions,
        // The others go by packets, or hand over by rules of their own.
        _ => SpreadBy::Flows,
    };
    let mut specs = config.port.clone();
    specs.iter_mut().for_each(|spec| spec.spread_by(by));
    specs
}

/// Refuses new destinations where there is no table to take them from.
pub(crate) fn check_remap(config: &Config, table: bool) -> Result<()> {
    if config.remap.is_some() && !table {
        return Err(usage("remap: there is no table to take destinations from: give one"));
    }
    Ok(())
}

/// Opens every port, with a queue for each worker that receives, and says how. What takes packets away from the kernel
/// takes none before its rule is told what is the kernel's. `addresses` are the run's table's.
pub(crate) fn ports(
    config: &Config,
    base: &Path,
    addresses: &TableAddresses,
    places: &Places,
) -> Result<(Queues, Rules)> {
    check_remap(config, !addresses.is_empty())?;
    for spec in &config.port {
        if let PortSpec::Pcap(spec) = spec
            && let Some(input) = &spec.input
        {
            crate::tables::check_input(&base.join(input))?;
        }
    }
    let source = || addresses.source();
    let memory: Vec<_> = places.memory.iter().step_by(config.run.depth()).cloned().collect();
    let context = OpenContext { base, table: (!addresses.is_empty()).then_some(&source), memory: &memory };
    config.dpdk.prepare(&config.port);
    let mut rules = Rules::default();
    let open = |(number, spec): (usize, &PortSpec)| -> Result<Vec<Box<dyn Port>>> {
        let open = spec.open_beside_kernel(config.run.chains(), &context).map_err(|error| match error {
            PortError::Config { .. } => usage(error),
            other => other.into(),
        })?;
        open.notes.iter().for_each(|note| eprintln!("tidemill: {note}"));
        rules.0.extend(open.rule.map(|rule| (number as u16, rule)));
        let queues = open.queues;
        Ok(match config.remap {
            Some(RemapSection { seed }) => queues
                .into_iter()
                .map(|port| Box::new(Remap::new(port, seed, addresses.choose())) as Box<dyn Port>)
                .collect(),
            None => queues,
        })
    };
    let ports = specs(config).iter().enumerate().map(open).collect::<Result<_>>()?;
    Ok((ports, rules))
}

/// A key of the configuration, and the file that it names.
pub(super) type Named = (String, PathBuf);

/// The files that a run writes.
pub(super) fn written(config: &Config, base: &Path) -> Vec<Named> {
    let state = config.state.as_ref().map(|state| &state.path);
    let nat = config.nat.as_ref().and_then(|nat| nat.handover.as_ref());
    let filter = config.filter.as_ref().and_then(|filter| filter.handover.as_ref());
    let socket = config.control.as_ref().map(super::api::socket);
    let mut files = Vec::new();
    for (key, path) in [
        ("state.path", state),
        ("nat.handover", nat),
        ("filter.handover", filter),
        ("control.socket", socket.as_ref()),
    ] {
        files.extend(path.map(|path| (key.to_owned(), path.clone())));
    }
    for (key, path) in [("nat.handover", nat), ("filter.handover", filter)] {
        files.extend(path.map(|path| (format!("{key}'s .old"), super::handover::kept(path))));
    }
    for (n, spec) in config.port.iter().enumerate() {
        let output = if let PortSpec::Pcap(spec) = spec { spec.output.as_deref() } else { None };
        for (key, path) in [("output", output), ("tap", spec.tap())] {
            files.extend(path.map(|path| (format!("port[{n}].{key}"), base.join(path))));
        }
    }
    files
}

/// The files that it reads, but for those that are named in other files (a filter's tables, a policy's).
fn read(config: &Config, config_path: &Path, base: &Path) -> Vec<Named> {
    let mut files = vec![("the configuration".to_owned(), config_path.to_path_buf())];
    let mut add =
        |key: &str, path: Option<&PathBuf>| files.extend(path.map(|path| (key.to_owned(), path.clone())));
    config.table.iter().flat_map(|table| table.path.paths()).for_each(|path| add("table.path", Some(path)));
    add("updates.path", config.updates.as_ref().map(|updates| &updates.path));
    if let Some(control) = &config.control {
        add("control.token_file", control.token_file.as_ref());
        add("control.certificate", control.certificate.as_ref());
        add("control.key", control.key.as_ref());
    }
    for (n, peer) in config.bgp.iter().flat_map(|bgp| &bgp.peer).enumerate() {
        add(&format!("bgp.peer[{n}].password_file"), peer.password_file.as_ref());
        add(&format!("bgp.peer[{n}].ao.key_file"), peer.ao.as_ref().map(|ao| &ao.key_file));
    }
    if let Some(gatekeeper) = &config.gatekeeper {
        add("gatekeeper.key_file", gatekeeper.key_file.as_ref());
        for (n, program) in gatekeeper.program.iter().enumerate() {
            add(&format!("gatekeeper.program[{n}].file"), Some(&program.file));
        }
    }
    if let Some(grantor) = &config.grantor {
        add("grantor.key_file", grantor.key_file.as_ref());
        add("grantor.policy.file", grantor.policy.file.as_ref().map(|file| base.join(file)).as_ref());
    }
    add("switch.flows", config.switch.as_ref().and_then(|switch| switch.flows.as_ref()));
    add("filter.rules", config.filter.as_ref().and_then(|filter| filter.rules.as_ref()));
    add("assets.fingerprints", config.assets.as_ref().and_then(|assets| assets.fingerprints.as_ref()));
    for (n, spec) in config.port.iter().enumerate() {
        let input = if let PortSpec::Pcap(spec) = spec { spec.input.as_ref() } else { None };
        add(&format!("port[{n}].input"), input.map(|path| base.join(path)).as_ref());
    }
    files
}

/// Refuses keys that name a file by no name, before names are put behind a folder's: that would stand for the file.
pub(super) fn check_names(config: &Config, name: &str) -> Result<()> {
    let base = Path::new("");
    let mut all = read(config, Path::new(name), base).into_iter().chain(written(config, base));
    match all.find(|(_, path)| path.as_os_str().is_empty()) {
        Some((key, _)) => {
            Err(usage(format!("{name}: {key}: is an empty name: name a file, or leave it out")))
        }
        None => Ok(()),
    }
}

/// Refuses a run that would write over a file that it reads, write one file twice, or write one where none can be.
pub(crate) fn check_files(
    config: &Config,
    config_path: &Path,
    base: &Path,
    record: Option<&Path>,
) -> Result<()> {
    if let Some(state) = &config.state {
        super::router::check_state(state)?;
    }
    let mut all = read(config, config_path, base);
    let reads = all.len();
    all.extend(record.map(|path| ("--record".to_owned(), path.to_path_buf())));
    all.extend(written(config, base));
    let files: Vec<_> = all.iter().map(|(_, path)| identity(path)).collect();
    for (at, (key, path)) in all.iter().enumerate().skip(reads) {
        let Some(before) = files[..at].iter().position(|other| *other == files[at]) else { continue };
        let (path, other) = (path.display(), &all[before].0);
        return Err(usage(if before < reads {
            format!("{path}: would be written over: it is {key}, and is read as {other}: give another file")
        } else {
            format!("{path}: would be written twice: it is {key} and {other}: give each its own file")
        }));
    }
    // The folder of a socket is made.
    for (key, path) in all.iter().skip(reads).filter(|(key, _)| key != "control.socket") {
        if let Some(what) = nowhere(path) {
            return Err(usage(format!("{key}: {}: {what}", path.display())));
        }
    }
    Ok(())
}

/// What makes two paths one regular file: device and inode, or where it would be made. Other files (pipes, devices)
/// are each their own.
pub(super) fn identity(path: &Path) -> (u64, u64, PathBuf) {
    match std::fs::metadata(path) {
        Ok(data) if data.is_file() => (data.dev(), data.ino(), PathBuf::new()),
        Ok(_) => (0, 0, path.to_path_buf()),
        Err(_) => {
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
            (0, 0, folder.join(path.file_name().unwrap_or_default()))
        }
    }
}

/// The clock that the configuration asks for.
pub(crate) fn clock(config: &Config) -> Clock {
    let flat = |spec: &PortSpec| matches!(spec, PortSpec::Pcap(pcap) if pcap.pace == PaceSpec::Flat);
    match config.run.clock {
        ClockChoice::Wall => super::service::clock(),
        ClockChoice::Capture => Clock::Capture,
        ClockChoice::Auto if config.port.iter().filter(|spec| spec.receives()).all(flat) => Clock::Capture,
        ClockChoice::Auto => super::service::clock(),
    }
}

/// Whether packets are read from captures: whatever its clock, such a run is no box that has anything to hand over.
pub(crate) fn reads_captures(config: &Config) -> bool {
    config.port.iter().any(|port| matches!(port, PortSpec::Pcap(spec) if spec.input.is_some()))
}

/// Whether each worker does the same every time: its time is its packets', no stranger sends any of them, and no other worker hands it any.
pub(crate) fn is_repeatable(config: &Config) -> bool {
    let live =
        |port: &PortSpec| matches!(port, PortSpec::AfPacket(_) | PortSpec::AfXdp(_) | PortSpec::Dpdk(_));
    clock(config).follows_packets() && config.run.stages.is_empty() && !config.port.iter().any(live)
}

/// Warns where a run on captures is not the same every time, as without stages it would be.
pub(crate) fn warn_of_stages(config: &Config, name: &str) {
    if clock(config).follows_packets() && !config.run.stages.is_empty() {
        eprintln!(
            "tidemill: warning: {name}: run.stages: packets are handed over whenever the next worker gets to it: by a \
             capture's clock, too, the output is not the same every time"
        );
    }
}

/// Where the workers run.
pub(crate) struct Places {
    /// Each worker's CPU; empty if they are not bound.
    pub(crate) cpus: Vec<usize>,
    /// Which worker reads which copy of the tables.
    pub(crate) copies: Copies,
    /// Each worker's packet memory; one region for each copy.
    pub(crate) memory: Vec<Arc<Memory>>,
}

/// Finds CPUs and memory for the workers of a machine whose nodes are `topology`.
pub(crate) fn places(config: &Config, topology: &Topology, name: &str) -> Result<Places> {
    let cpus = cpus(config, name)?;
    let (copies, frames) = copies(config, topology, &cpus);
    let region = |copy: usize| {
        let region = copies.on(copy, || Memory::new(frames[copy], config.memory.frame_size));
        region.context("packet memory")
    };
    let regions: Vec<Arc<Memory>> = (0..copies.count()).map(region).collect::<Result<_>>()?;
    let memory = (0..config.run.workers).map(|worker| regions[copies.of_worker(worker)].clone()).collect();
    Ok(Places { cpus, copies, memory })
}

/// The copies of the tables for workers on these CPUs, and how many frames there are beside each.
fn copies(config: &Config, topology: &Topology, cpus: &[usize]) -> (Copies, Vec<usize>) {
    let run = &config.run;
    let of_worker: Vec<Option<usize>> = (0..run.workers).map(|worker| cpus.get(worker).copied()).collect();
    let copies = if run.numa { Copies::of(topology, &of_worker) } else { Copies::one() };
    let on = |copy| (0..run.workers).filter(|worker| copies.of_worker(*worker) == copy).count();
    let frames = (0..copies.count()).map(|copy| on(copy).max(1) * config.memory.frames).collect();
    (copies, frames)
}

/// Refuses ports that would not fit their workers' packet memory, without having any.
pub(crate) fn check_memory(config: &Config, topology: &Topology, cpus: &[usize]) -> Result<()> {
    let (copies, regions) = copies(config, topology, cpus);
    // Of the workers that receive; those on the same region have equal shares of it.
    let first = (0..config.run.workers).step_by(config.run.depth());
    let of_worker: Vec<usize> = first.map(|worker| copies.of_worker(worker)).collect();
    let share = |copy: &usize| regions[*copy] / of_worker.iter().filter(|other| *other == copy).count();
    let frames: Vec<usize> = of_worker.iter().map(share).collect();
    tidemill_port::spec::check_memory(&config.port, &frames, config.memory.frame_size).map_err(usage)
}

/// The CPUs that workers are to be bound to.
pub(crate) fn cpus(config: &Config, name: &str) -> Result<Vec<usize>> {
    let run = &config.run;
    let ours = tidemill_graph::allowed_cpus();
    let Some(named) = run.cpus().map_err(|what| usage(format!("{name}: {what}")))? else {
        return Ok(if run.pin { ours.into_iter().take(run.workers).collect() } else { Vec::new() });
    };
    // Where the system does not say what is ours, binding will.
    match named.iter().find(|cpu| !ours.is_empty() && !ours.contains(cpu)) {
        Some(cpu) => Err(usage(format!(
            "{name}: run.cpus: CPU {cpu} is not ours to use (taskset, a container's share?): there are {ours:?}"
        ))),
        None => Ok(named),
    }
}

/// Makes the engine around ports that are open on the workers' memory. In a run that is `repeatable` the first worker, at
/// whose boundaries everything happens, only naps.
#[allow(clippy::too_many_arguments)]
pub(crate) fn engine(
    config: &Config,
    graph: Graph,
    ports: Queues,
    places: &Places,
    domain: &Domain,
    clock: Clock,
    repeatable: bool,
    duration: Option<f64>,
    traces: Vec<TraceRequest>,
) -> Result<Engine> {
    let frames = config.memory.frames;
    let mut idle = config.run.idle();
    if repeatable {
        idle.sleep = idle.sleep.min(idle.nap);
    }
    let duration = duration
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|e| usage(format!("--duration: {e}")))?;
    let options = Options {
        clock,
        frames_per_worker: frames,
        pin: config.run.pin,
        limits: Limits { packets: None, duration },
        traces,
        describe: |data| Summary(data).to_string(),
    };
    let placement = Placement {
        memory: places.memory.clone(),
        cpus: places.cpus.clone(),
        stages: config.run.stages.clone(),
        idle,
        ..Placement::default()
    };
    Engine::placed(graph, ports, placement, domain, options).map_err(|error| match error {
        tidemill_graph::EngineError::TraceAt(..) => usage(format!("--{error}")),
        tidemill_graph::EngineError::StageAt(..) | tidemill_graph::EngineError::Stages(_) => {
            usage(format!("run.{error}"))
        }
        other => other.into(),
    })
}

/// `NODE` or `NODE:N`.
pub(crate) fn trace_request(text: &str) -> TraceRequest {
    match text.rsplit_once(':').and_then(|(at, n)| Some((at, n.parse().ok()?))) {
        Some((at, packets)) => TraceRequest { at: at.into(), packets },
        None => TraceRequest { at: text.into(), packets: 8 },
    }
}

#[cfg(test)]
mod tests {
    use super::super::service;
    use super::*;
    use tidemill_lookup::numa::Node;

    /// Two memory nodes that are made up: a worker's packets lie where its copy of the tables does.
    #[test]
    fn each_worker_has_packet_memory_on_its_own_node() {
        let ours = tidemill_graph::allowed_cpus();
        if ours.len() < 2 {
            println!("skipped: one processor");
            return;
        }
        let node = |id: u32, cpu| Node { id, cpus: vec![cpu] };
        let topology = Topology { nodes: vec![node(0, ours[1]), node(1, ours[0])] };
        let placed = |run: &str| {
            let port = "[[port]]\nname = \"a\"\nkind = \"null\"\n";
            let memory = "[memory]\nframes = 1024\n";
            let text = format!("version = 1\nrole = \"router\"\n[run]\nworkers = 3\n{run}\n{memory}{port}");
            places(&Config::parse(&text, "test").unwrap(), &topology, "test").unwrap()
        };
        // A third worker, on a CPU of no node or on none, has the first one's.
        let places = placed("");
        assert_eq!(places.copies.count(), 2);
        assert_eq!([0, 1, 2].map(|worker| places.copies.of_worker(worker)), [0, 1, 0]);
        // A region has room for its workers, by which the two are told apart.
        assert_eq!(
            places.memory.iter().map(|memory| memory.frames()).collect::<Vec<_>>(),
            [2048, 1024, 2048]
        );
        assert!(Arc::ptr_eq(&places.memory[0], &places.memory[2]));
        let places = placed("numa = false");
        assert_eq!(places.copies.count(), 1);
        assert!(places.memory.iter().all(|memory| Arc::ptr_eq(memory, &places.memory[0])));
        assert_eq!(places.memory[0].frames(), 3072);
    }

    /// Rings are held against the frames that a worker would have: its share of its node's.
    #[cfg(feature = "xdp")]
    #[test]
    fn rings_have_to_leave_a_worker_frames_of_its_own_node() {
        let node = |id: u32, cpu| Node { id, cpus: vec![cpu] };
        let topology = Topology { nodes: vec![node(0, 0), node(1, 1)] };
        let checked = |run: &str, rx_ring: usize| {
            let port = format!("[[port]]\nname = \"a\"\nkind = \"af_xdp\"\nrx_ring = {rx_ring}\n");
            let memory = "[memory]\nframes = 2048\n";
            let text = format!("version = 1\nrole = \"router\"\n[run]\n{run}\n{memory}{port}");
            let config = Config::parse(&text, "test").unwrap();
            let said = check_memory(&config, &topology, &[0, 1, 0, 1]);
            said.err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        let staged = "workers = 4\nstages = [[\"ip4-lookup\"]]";
        for (run, rx_ring, wanted) in [
            ("workers = 1", 1024, ""),
            ("workers = 1", 2048, "would hold 2048 of its 2048 frames"),
            ("workers = 2", 2048, "would hold 2048 of its 2048 frames"),
            // The first and the third worker receive, and share what lies on the first node.
            (staged, 2048, "would hold 2048 of its 2048 frames"),
            // All that there is.
            (&format!("{staged}\nnuma = false"), 2048, ""),
            (&format!("{staged}\nnuma = false"), 4096, "would hold 4096 of its 4096 frames"),
        ] {
            let said = checked(run, rx_ring);
            assert!(
                said.is_empty() == wanted.is_empty() && said.contains(wanted),
                "{run}: {rx_ring}: {said}"
            );
        }
    }

    #[test]
    fn a_gatekeepers_ports_go_by_addresses_alone() {
        let config = |role: &str, more: &str| {
            let ports =
                "[[port]]\nname = \"a\"\nkind = \"af_packet\"\n[[port]]\nname = \"b\"\nkind = \"pcap\"\n";
            let text = format!("version = 1\nrole = \"{role}\"\n{more}\n{ports}");
            Config::parse(&text, "test").unwrap()
        };
        for (role, more, by) in [
            ("gatekeeper", "", SpreadBy::Addresses),
            ("gatekeeper", "[assets]", SpreadBy::Addresses),
            ("mitigator", "", SpreadBy::Sessions),
            ("router", "[assets]", SpreadBy::Sessions),
            ("router", "", SpreadBy::Flows),
        ] {
            let config = config(role, more);
            let mut wanted = config.port.clone();
            wanted[0].spread_by(by);
            assert_eq!(specs(&config), wanted, "{role} {more}");
        }
    }

    /// A terminal would show them as others, or not at all.
    #[test]
    fn ports_have_names_that_can_be_shown() {
        let parsed = |name: &str| {
            let port = format!("[[port]]\nname = \"{name}\"\nkind = \"null\"\n");
            Config::parse(&format!("version = 1\nrole = \"router\"\n{port}"), "test").map(drop)
        };
        assert!(parsed("l\u{e4}n").is_ok());
        for name in ["l\\nan", "l\u{202e}an", "l\u{200b}an", " "] {
            let said = format!("{:#}", parsed(name).unwrap_err());
            assert!(said.contains("give a name that can be shown"), "{said}");
        }
    }

    /// Whoever can send to a box must not foresee what it chooses, by whatever clock it goes.
    #[test]
    fn only_runs_that_no_stranger_sends_to_are_repeatable() {
        let config = |clock: &str, a: &str, b: &str| {
            let ports = format!("[[port]]\nname = \"a\"\n{a}\n[[port]]\nname = \"b\"\n{b}\n");
            let text = format!("version = 1\nrole = \"router\"\n[run]\nclock = \"{clock}\"\n{ports}");
            Config::parse(&text, "test").unwrap()
        };
        let capture = "kind = \"pcap\"\ninput = \"in.pcap\"";
        let slow = format!("{capture}\npace = \"time\"");
        let (slow, live) = (slow.as_str(), "kind = \"af_packet\"");
        let (writes, made) = ("kind = \"pcap\"\noutput = \"out.pcap\"", "kind = \"generator\"");
        for (clock, a, b, repeatable, reads) in [
            ("auto", capture, writes, true, true),
            ("auto", slow, writes, false, true),
            ("capture", slow, writes, true, true),
            ("wall", capture, writes, false, true),
            ("capture", made, writes, true, false),
            ("auto", made, writes, false, false),
            ("capture", live, writes, false, false),
            ("capture", live, capture, false, true),
        ] {
            let config = config(clock, a, b);
            let is = (is_repeatable(&config), reads_captures(&config));
            assert_eq!(is, (repeatable, reads), "{clock} {a} {b}");
        }
        // Behind another worker packets come at times of their own.
        let mut staged = config("auto", capture, writes);
        staged.run.stages = vec![vec!["ip4-lookup".to_owned()]];
        assert!(!is_repeatable(&staged) && clock(&staged).follows_packets());
    }

    /// As if the system's time were stepped: a clock that is begun again is another one.
    #[test]
    fn the_control_side_has_the_workers_clock() {
        let text = "version = 1\nrole = \"mitigator\"\n[run]\nclock = \"wall\"\n\
            [[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n";
        let config = Config::parse(text, "test").unwrap();
        let workers = clock(&config);
        std::thread::sleep(Duration::from_millis(2));
        assert_ne!(format!("{workers:?}"), format!("{:?}", Clock::wall()));
        assert_eq!(format!("{workers:?}"), format!("{:?}", service::clock()));
        assert_eq!(format!("{workers:?}"), format!("{:?}", clock(&config)));
        let (before, now, after) = (workers.now_ns(0), service::now_ns(), workers.now_ns(0));
        assert!(before <= now && now <= after, "{before} {now} {after}");
    }
}
