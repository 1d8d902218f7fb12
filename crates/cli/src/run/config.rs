//! The configuration file: TOML, one file, unknown keys are errors, every error is one line with its place.

use super::log::LogSection;
use crate::usage::{in_words, usage};
use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidemill_amp::MitigatorSection;
use tidemill_bgp::config::BgpSection;
use tidemill_control::{Tcp, Tls, Tokens};
use tidemill_gatekeeper::GatekeeperSection;
use tidemill_grantor::{GrantorSection, without_keys};
use tidemill_graph::Idle;
use tidemill_ip::plain::is_plain;
use tidemill_kvcache::KvcacheSection;
use tidemill_lookup::numa::cpu_list;
use tidemill_nf::assets::AssetsSection;
use tidemill_nf::filter::FilterSection;
use tidemill_nf::ipfix::IpfixSection;
use tidemill_nf::nat::NatSection;
use tidemill_port::spec::DpdkSection;
use tidemill_port::{PortSpec, number};
use tidemill_router::RouterConfig;
use tidemill_router::config::{
    InterfaceConfig, KernelSection, NeighborsSection, NextHopConfig, NextHopsSection, QueueConfig,
    RouteConfig, RouterSection, VrfConfig,
};
use tidemill_switch::SwitchSection;

/// A configuration of `tidemill run`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Version of this format: 1.
    pub(crate) version: u32,
    /// What to be.
    pub(crate) role: Role,
    /// How to run.
    #[serde(default)]
    pub(crate) run: RunSection,
    /// Packet memory.
    #[serde(default)]
    pub(crate) memory: MemorySection,
    /// Where routes come from.
    #[serde(default)]
    pub(crate) table: Option<TableSection>,
    /// Changes of routes while packets flow.
    #[serde(default)]
    pub(crate) updates: Option<UpdatesSection>,
    /// New destinations for received packets, taken from the routing table.
    #[serde(default)]
    pub(crate) remap: Option<RemapSection>,
    /// The ports.
    #[serde(default)]
    pub(crate) port: Vec<PortSpec>,
    /// Addresses and link parameters of ports and of their VLANs. A port that has no entry gets the defaults and no
    /// address.
    #[serde(default)]
    pub(crate) interface: Vec<InterfaceConfig>,
    /// How the router looks up, filters and reports.
    #[serde(default)]
    pub(crate) router: RouterSection,
    /// Which kernel tables feed which VRFs (virtual routing and forwarding). Interfaces that name a VRF are routed by a
    /// table of its own; it needs no entry here.
    #[serde(default)]
    pub(crate) vrf: Vec<VrfConfig>,
    /// Queues in front of ports, for links on the path between Gatekeepers and Grantors: each class of packets has its share.
    #[serde(default)]
    pub(crate) queue: Vec<QueueConfig>,
    /// Static routes; they win over the same prefixes from anywhere but our own addresses and links. One whose links are
    /// all down waits for one of them; the next best route is used then.
    #[serde(default)]
    pub(crate) route: Vec<RouteConfig>,
    /// How neighbors are found (ARP, neighbor discovery).
    #[serde(default)]
    pub(crate) neighbors: NeighborsSection,
    /// What comes live from the kernel (BIRD, FRR or `ip route` feed it).
    #[serde(default)]
    pub(crate) kernel: Option<KernelSection>,
    /// BGP sessions and BMP: routes from peers, and prefixes that are announced to them.
    #[serde(default)]
    pub(crate) bgp: Option<BgpSection>,
    /// How DPDK is started, if a port is of kind `dpdk`.
    #[serde(default)]
    pub(crate) dpdk: DpdkSection,
    /// The control socket, for `tidemill show`, `top`, `route` and so on. Without this section there is none.
    #[serde(default)]
    pub(crate) control: Option<ControlSection>,
    /// How much is said on standard error, by module.
    #[serde(default)]
    pub(crate) log: LogSection,
    /// The state file: what was learnt outlives the process. Without this section it does not.
    #[serde(default)]
    pub(crate) state: Option<StateSection>,
    /// The role `mitigator`: where the attacks come from, and what to do about them.
    #[serde(default)]
    pub(crate) mitigator: Option<MitigatorSection>,
    /// The role `gatekeeper`: what is in front, which Grantors decide about whom. All that a router has goes beside it.
    #[serde(default)]
    pub(crate) gatekeeper: Option<GatekeeperSection>,
    /// The role `grantor`: which Gatekeepers ask, which policy decides. All that a router has goes beside it. It needs the feature `lua`.
    #[serde(default)]
    pub(crate) grantor: Option<GrantorSection>,
    /// The role `kvcache`: which memcached is behind it, who is answered, and the two tiers of memory.
    #[serde(default)]
    pub(crate) kvcache: Option<KvcacheSection>,
    /// The role `switch`: rules, caches, VLANs.
    #[serde(default)]
    pub(crate) switch: Option<SwitchSection>,
    /// NAT: who is inside, which addresses they share. The role `nat`, or beside any role that is a router, `[filter]` with it or not.
    #[serde(default)]
    pub(crate) nat: Option<NatSection>,
    /// The packet filter: its rules, its tables. The role `filter`, or beside any role that is a router, `[nat]` with it or not: rules are about inside addresses then.
    #[serde(default)]
    pub(crate) filter: Option<FilterSection>,
    /// Passive detection of assets, beside any role. Without this section there is none.
    #[serde(default)]
    pub(crate) assets: Option<AssetsSection>,
    /// Export of flows by IPFIX, beside any role. Without this section there is none.
    #[serde(default)]
    pub(crate) ipfix: Option<IpfixSection>,
    /// What single labels of the table stand for.
    #[serde(default)]
    pub(crate) next_hop: Vec<NextHopConfig>,
    /// The rule for every next hop of a table that has no entry of its own. Without it, packets routed to such a next hop
    /// are dropped as `next-hop-unknown`.
    #[serde(default)]
    pub(crate) next_hops: Option<NextHopsSection>,
}

/// What to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// An IP router.
    Router,
    /// A bridge between two ports that keeps amplification attacks away from what is behind it.
    Mitigator,
    /// An IP router with a gate: who wants to send to what is behind it asks a Grantor first.
    Gatekeeper,
    /// An IP router that Gatekeepers ask: it decides, by a policy in Lua, who may send how much to what is behind it.
    Grantor,
    /// A bridge between two ports in front of a memcached: gets over UDP are answered from its memory.
    Kvcache,
    /// A learning bridge with VLANs, and rules as OpenFlow has them.
    Switch,
    /// An IP router that translates addresses: hosts inside share those of a pool.
    Nat,
    /// An IP router that lets pass what its rules let: a stateful packet filter.
    Filter,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Router => f.write_str("router"),
            Role::Mitigator => f.write_str("mitigator"),
            Role::Gatekeeper => f.write_str("gatekeeper"),
            Role::Grantor => f.write_str("grantor"),
            Role::Kvcache => f.write_str("kvcache"),
            Role::Switch => f.write_str("switch"),
            Role::Nat => f.write_str("nat"),
            Role::Filter => f.write_str("filter"),
        }
    }
}

/// How to run.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunSection {
    /// Threads, one per core; each has a queue of every port.
    pub(crate) workers: usize,
    /// Whether each worker stays on a core of its own.
    pub(crate) pin: bool,
    /// The CPU of each worker, as `[2, 3]` or `"2-5,8"`. Default: the first that this process may use.
    pub(crate) cpus: Option<Cpus>,
    /// Where there are several memory nodes: whether each worker's packets, and a copy of the tables, lie on its own.
    pub(crate) numa: bool,
    /// Where the graph is cut. A packet that reaches a node of entry s is handed over to the next worker: with one entry
    /// and 4 workers, 0 and 2 receive and send, and 1 and 3 do everything from these nodes on. Runs on captures are then not
    /// the same every time. Default: every worker does everything.
    pub(crate) stages: Vec<Vec<String>>,
    /// How many microseconds a worker that finds nothing looks again and again before it sleeps, or "never".
    pub(crate) idle_us: IdleTime,
    /// How many microseconds a worker that finds nothing sleeps at most, after `idle_us`, while there are ports that cannot wake it. Network interfaces can.
    pub(crate) nap_us: u64,
    /// Where time comes from.
    pub(crate) clock: ClockChoice,
    /// The user to become once ports, sockets and tables are there, of the capabilities with those that ports need to come back; only root can. What is read or written later
    /// (tokens, the state file, this file in a reload) has to be that user's to read or write. With systemd's `User=` and `AmbientCapabilities=` the service has that user and these capabilities from the start, and keeps them.
    pub(crate) user: Option<String>,
    /// The group to become with `user`; the user's own, unless this says another.
    pub(crate) group: Option<String>,
    /// Whether workers can open neither files nor sockets, nor start programs, once they have begun (seccomp, Landlock): who takes one over by a packet has nothing but what is
    /// open already, and the memory of the process. A device that goes away does not come back then before a restart.
    pub(crate) confine: bool,
}

impl Default for RunSection {
    fn default() -> Self {
        let Idle { poll, nap, .. } = Idle::default();
        RunSection {
            workers: 1,
            pin: true,
            cpus: None,
            numa: true,
            stages: Vec::new(),
            idle_us: poll
                .map_or(IdleTime::Never(Never::Never), |poll| IdleTime::Micros(poll.as_micros() as u64)),
            nap_us: nap.as_micros() as u64,
            clock: ClockChoice::Auto,
            user: None,
            group: None,
            confine: false,
        }
    }
}

impl RunSection {
    /// The CPUs that are named.
    pub(crate) fn cpus(&self) -> Result<Option<Vec<usize>>, String> {
        match &self.cpus {
            None => Ok(None),
            Some(Cpus::List(list)) => Ok(Some(list.clone())),
            Some(Cpus::Text(text)) => {
                cpu_list(text).map(Some).map_err(|what| format!("run.cpus = {text:?}: {what}"))
            }
        }
    }

    /// Workers in a row.
    pub(crate) fn depth(&self) -> usize {
        self.stages.len() + 1
    }

    /// Workers that receive, each with a queue of every port.
    pub(crate) fn chains(&self) -> usize {
        (self.workers / self.depth()).max(1)
    }

    /// What workers do that find nothing.
    pub(crate) fn idle(&self) -> Idle {
        let poll = match self.idle_us {
            IdleTime::Micros(us) => Some(Duration::from_micros(us)),
            IdleTime::Never(Never::Never) => None,
        };
        Idle { poll, nap: Duration::from_micros(self.nap_us), ..Idle::default() }
    }

    fn validate(&self) -> Result<(), String> {
        let RunSection { workers, stages, nap_us, .. } = self;
        if !(1..=256).contains(workers) {
            return Err(format!("run.workers = {workers}: give 1 to 256"));
        }
        if !workers.is_multiple_of(self.depth()) {
            let depth = self.depth();
            return Err(format!(
                "run.workers = {workers}: with {} run.stages a packet goes through {depth} workers: give a multiple of {depth}",
                stages.len()
            ));
        }
        if !(1..=1_000_000).contains(nap_us) {
            return Err(format!("run.nap_us = {nap_us}: give 1 to 1000000"));
        }
        if self.group.is_some() && self.user.is_none() {
            return Err("run.group: needs run.user".into());
        }
        let Some(cpus) = self.cpus()? else { return Ok(()) };
        if !self.pin {
            return Err("run.cpus: needs run.pin = true".into());
        }
        if cpus.len() != *workers {
            return Err(format!("run.cpus: {} CPUs for {workers} workers: name one for each", cpus.len()));
        }
        match cpus.iter().enumerate().find(|(at, cpu)| cpus[..*at].contains(cpu)) {
            Some((_, cpu)) => Err(format!("run.cpus: CPU {cpu} is named twice")),
            None => Ok(()),
        }
    }
}

/// CPUs, as a list or as the kernel writes them.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "run.cpus: give a list of CPUs, as [2, 3] or \"2-5,8\"")]
pub(crate) enum Cpus {
    /// Their numbers.
    List(Vec<usize>),
    /// As in `2-5,8`.
    Text(String),
}

/// How long to poll in vain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "run.idle_us: give microseconds, or \"never\"")]
pub(crate) enum IdleTime {
    /// So many microseconds; 0 sleeps at once.
    Micros(u64),
    /// Never to sleep.
    Never(Never),
}

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Never {
    /// Poll for ever.
    Never,
}

/// Where time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockChoice {
    /// From the capture if every receiving port reads one as fast as it can, else from the wall clock.
    Auto,
    /// The wall clock.
    Wall,
    /// The packets' timestamps: a run of one worker gives the same output every time, but for what devices send. Several
    /// workers have times of their own: in which order their packets come into one file, and what one leaves to another (packets
    /// with `stages`, routes that change), is another from run to run.
    Capture,
}

/// Packet memory.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MemorySection {
    /// Frames per worker, at least 1024.
    pub(crate) frames: usize,
    /// Bytes per frame, a power of two from 2048 to 32768; a packet may be 256 bytes shorter than that.
    pub(crate) frame_size: usize,
}

impl Default for MemorySection {
    fn default() -> Self {
        MemorySection { frames: 8192, frame_size: 2048 }
    }
}

/// Where routes come from.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSection {
    /// Files with routes: MRT, text or CSV, plain or compressed.
    pub(crate) path: OneOrMore,
    /// Makes the (single) file if it does not exist yet.
    #[serde(default)]
    pub(crate) generate: Option<GenerateSection>,
}

/// One file or several.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    /// One file.
    One(PathBuf),
    /// Several.
    More(Vec<PathBuf>),
}

impl OneOrMore {
    pub(crate) fn paths(&self) -> &[PathBuf] {
        match self {
            OneOrMore::One(path) => std::slice::from_ref(path),
            OneOrMore::More(paths) => paths,
        }
    }
}

/// A generated table, like the Internet's of 2026.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerateSection {
    /// IPv4 prefixes.
    pub(crate) ipv4: usize,
    /// IPv6 prefixes.
    pub(crate) ipv6: usize,
    /// Next hops.
    pub(crate) next_hops: u32,
    /// The same seed gives the same table.
    pub(crate) seed: u64,
}

/// The control socket.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlSection {
    /// Where it is made, relative to this file's folder. Default: `/run/tidemill/tidemill.sock`, where the commands look
    /// for it too (`--socket` and TIDEMILL_SOCKET tell them of another).
    pub(crate) socket: Option<PathBuf>,
    /// Where the same API, and `/metrics` for Prometheus, is on TCP besides: `["127.0.0.1:9460"]`. Every call needs a token there, and
    /// an address that is no loopback one needs TLS.
    pub(crate) listen: Vec<SocketAddr>,
    /// The tokens, in lines of `NAME SCOPE TOKEN` with the scopes `read` and `all`, relative to this file's folder. Not for everybody to
    /// read: `chmod 640`.
    pub(crate) token_file: Option<PathBuf>,
    /// TLS: a chain of certificates (PEM), relative to this file's folder.
    pub(crate) certificate: Option<PathBuf>,
    /// TLS: its private key (PEM).
    pub(crate) key: Option<PathBuf>,
    /// Drops for one reason beyond so many packets a second are an event of `GET /v1/events`; 0: none are.
    pub(crate) alarm_drops_pps: u64,
}

impl Default for ControlSection {
    fn default() -> Self {
        ControlSection {
            socket: None,
            listen: Vec::new(),
            token_file: None,
            certificate: None,
            key: None,
            alarm_drops_pps: 1000,
        }
    }
}

impl ControlSection {
    /// What is on TCP, with its files read.
    pub(crate) fn tcp(&self) -> Result<Option<Tcp>> {
        let Some(token_file) = self.token_file.as_ref().filter(|_| !self.listen.is_empty()) else {
            return Ok(None);
        };
        let tokens =
            Tokens::read(token_file).map_err(|error| usage(format!("control.token_file: {error}")))?;
        let tls = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(Tls::read(certificate, key).map_err(|error| usage(format!("control: {error}")))?)
            }
            _ => None,
        };
        Ok(Some(Tcp { addresses: self.listen.clone(), tokens: Arc::new(tokens), tls }))
    }

    fn check(&self) -> Result<(), String> {
        // sockaddr_un has room for so much.
        let len = self.socket.as_ref().map_or(1, |socket| socket.as_os_str().len());
        if !(1..108).contains(&len) {
            return Err(format!("control.socket: {len} characters: give a path of 1 to 107"));
        }
        let files =
            [("token_file", &self.token_file), ("certificate", &self.certificate), ("key", &self.key)];
        if self.listen.is_empty() {
            return match files.iter().find(|(_, file)| file.is_some()) {
                Some((key, _)) => {
                    Err(format!("control.{key}: is for TCP: give control.listen, or leave it out"))
                }
                None => Ok(()),
            };
        }
        if self.token_file.is_none() {
            return Err("control.listen: give control.token_file too: on TCP every call needs a token".into());
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err("control: give control.certificate and control.key, or neither".into());
        }
        for (n, address) in self.listen.iter().enumerate() {
            if address.port() != 0 && self.listen[..n].contains(address) {
                return Err(format!("control.listen[{n}]: {address} is there already"));
            }
        }
        match self.listen.iter().find(|address| !address.ip().is_loopback() && self.key.is_none()) {
            Some(address) => Err(format!(
                "control.listen: {address} is no loopback address: give control.certificate and control.key, for tokens \
                 would be readable on their way"
            )),
            None => Ok(()),
        }
    }
}

/// The state file: a router that was killed forwards at once by it. It holds the table with its updates, routes added
/// through the API, and the kernel's until the kernel has been asked.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateSection {
    /// The file, relative to this file's folder. One that is there and none of ours is not written over; a new one is its owner's alone (mode 600).
    pub(crate) path: PathBuf,
    /// Seconds between two images while routes change, 0.1 to 86400; changes through the API are saved within a second. 0:
    /// only when the router stops, and on `tidemill state save`.
    #[serde(default = "state_every")]
    pub(crate) every: f64,
}

fn state_every() -> f64 {
    30.0
}

/// Changes of routes while packets flow.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdatesSection {
    /// The update file: MRT or text.
    pub(crate) path: PathBuf,
    /// How many times as fast as the updates' own times; 0 is as fast as they are taken.
    #[serde(default)]
    pub(crate) speed: f64,
}

/// New destinations for received packets.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemapSection {
    /// The same seed gives every destination the same new one.
    pub(crate) seed: u64,
}

/// Bytes of a configuration file, or of a scenario's, at most.
pub(crate) const MOST_BYTES: u64 = 64 << 20;

/// Frames that ports and rings need, besides those of packets that wait.
pub(crate) const OTHERS: usize = 1024;

impl Config {
    /// Reads a configuration file; relative paths in it are relative to its folder (ports resolve theirs on opening).
    pub(crate) fn read(path: &Path) -> Result<(Config, String)> {
        let text = Config::text(path)?;
        Ok((Config::of(&text, path)?, text))
    }

    /// A configuration file's text.
    pub(crate) fn text(path: &Path) -> Result<String> {
        crate::files::text(path, MOST_BYTES, "give a configuration file")
    }

    /// Reads the text of that configuration file.
    pub(crate) fn of(text: &str, path: &Path) -> Result<Config> {
        let name = path.display().to_string();
        let mut config = Config::parse(text, &name)?;
        super::setup::check_names(&config, &name)?;
        config.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    /// Reads a configuration's text; `name` is for messages.
    pub(crate) fn parse(text: &str, name: &str) -> Result<Config> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let what = in_words(error.message(), text.lines().nth(line - 1));
            usage(format!("{name}:{line}: {}", without_keys(&what)))
        })?;
        config.validate().map_err(|what| usage(format!("{name}: {what}")))?;
        Ok(config)
    }

    /// Packets that may wait in `[[queue]]`s, on each worker.
    pub(crate) fn queued(&self) -> usize {
        self.queue.iter().fold(0, |sum, queue| sum.saturating_add(queue.packets()))
    }

    /// Packets that may wait on each worker: those, and fragments in NAT and the filter, of both families.
    pub(crate) fn waiting(&self) -> usize {
        let in_nat = self.nat.as_ref().map_or(0, |section| section.fragments);
        let in_filter = self.filter.as_ref().map_or(0, |section| section.fragments);
        self.queued().saturating_add(in_nat.saturating_add(in_filter).saturating_mul(2))
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.version != 1 {
            return Err(format!("version = {}: this program reads version 1", self.version));
        }
        self.run.validate()?;
        if let Some(section) = self.foreign_section() {
            let why = match section {
                "nat" | "filter" => "routes nothing, and this is about what is routed",
                _ => "has no such section",
            };
            return Err(format!("[{section}]: a {} {why}: leave it out", self.role));
        }
        if !(1024..=1 << 24).contains(&self.memory.frames) {
            return Err(format!("memory.frames = {}: give 1024 to 16777216", self.memory.frames));
        }
        let size = self.memory.frame_size;
        if !size.is_power_of_two() || !(2048..=32768).contains(&size) {
            return Err(format!("memory.frame_size = {size}: give a power of two from 2048 to 32768"));
        }
        let queued = self.queued();
        if queued > 0 && queued.saturating_add(OTHERS) > self.memory.frames {
            return Err(format!(
                "memory.frames = {}: {queued} packets may wait in [[queue]]s on each worker: give at least {}, or lower \
                 granted_packets",
                self.memory.frames,
                queued.saturating_add(OTHERS)
            ));
        }
        if self.port.is_empty() {
            return Err("there is no [[port]]: add at least one".into());
        }
        for (i, port) in self.port.iter().enumerate() {
            let before = &self.port[..i];
            if port.name().trim().is_empty() || !port.name().chars().all(is_plain) {
                return Err(format!("port[{i}].name: {:?}: give a name that can be shown", port.name()));
            }
            if before.iter().any(|other| other.name() == port.name()) {
                return Err(format!(
                    "port[{i}].name: {:?} is there twice: give each port a name of its own",
                    port.name()
                ));
            }
            let shared = before
                .iter()
                .find(|other| port.interface().is_some() && other.interface() == port.interface());
            if let Some(other) = shared {
                let interface = port.interface().unwrap_or_default();
                return Err(format!(
                    "port[{i}].interface: {interface:?} is port {:?}'s already: give another",
                    other.name()
                ));
            }
            if let Some(device) = port.device()
                && let Some(other) = before.iter().find(|other| other.device().as_ref() == Some(&device))
            {
                return Err(format!(
                    "port[{i}].device: {device:?} is port {:?}'s already: give another",
                    other.name()
                ));
            }
        }
        self.control.as_ref().map_or(Ok(()), ControlSection::check)?;
        self.bgp.as_ref().map_or(Ok(()), BgpSection::check)?;
        if let Some(bgp) = self.bgp.as_ref().filter(|_| self.role != Role::Gatekeeper)
            && let Some(n) = bgp.announce.iter().position(|announce| announce.while_grantors)
        {
            let what = format!("a {} asks no Grantors: leave it out", self.role);
            return Err(format!("bgp.announce[{n}].while_grantors: {what}"));
        }
        self.log.check()?;
        if let Some(table) = &self.table
            && (table.path.paths().is_empty() || table.generate.is_some() && table.path.paths().len() != 1)
        {
            return Err("table.path: give one file (several only without table.generate)".into());
        }
        if let Some(every) = self.state.as_ref().map(|state| state.every)
            && every != 0.0
            && !(0.1..=86_400.0).contains(&every)
        {
            return Err(format!("state.every = {}: give 0, or 0.1 to 86400 seconds", number(every)));
        }
        if let Some(updates) = &self.updates
            && !(updates.speed >= 0.0 && updates.speed.is_finite())
        {
            return Err(format!("updates.speed = {}: give 0 or a positive factor", number(updates.speed)));
        }
        Ok(())
    }

    /// What cannot change while it runs, whatever it is, each with whether `other` has the same.
    pub(crate) fn fixed_sections(&self, other: &Self) -> [(&'static str, bool); 9] {
        [
            ("role", self.role == other.role),
            ("port", self.port == other.port),
            ("run", self.run == other.run),
            ("memory", self.memory == other.memory),
            ("remap", self.remap == other.remap),
            ("dpdk", self.dpdk == other.dpdk),
            ("control", self.control == other.control),
            ("assets", self.assets == other.assets),
            ("ipfix", self.ipfix == other.ipfix),
        ]
    }

    /// What else cannot where packets are routed.
    pub(crate) fn fixed_routing(&self, other: &Self) -> [(&'static str, bool); 3] {
        [
            ("table", self.table == other.table),
            ("updates", self.updates == other.updates),
            ("state", self.state == other.state),
        ]
    }

    /// A section that is there and that the role makes nothing of.
    fn foreign_section(&self) -> Option<&'static str> {
        let routers = [
            ("table", self.table.is_some()),
            ("updates", self.updates.is_some()),
            ("remap", self.remap.is_some()),
            ("[interface]", !self.interface.is_empty()),
            ("router", self.router != RouterSection::default()),
            ("[vrf]", !self.vrf.is_empty()),
            ("[route]", !self.route.is_empty()),
            ("[queue]", !self.queue.is_empty()),
            ("neighbors", self.neighbors != NeighborsSection::default()),
            ("kernel", self.kernel.is_some()),
            ("bgp", self.bgp.is_some()),
            ("state", self.state.is_some()),
            ("[next_hop]", !self.next_hop.is_empty()),
            ("next_hops", self.next_hops.is_some()),
            ("nat", self.nat.is_some()),
            ("filter", self.filter.is_some()),
        ];
        let services = [
            (Role::Mitigator, "mitigator", self.mitigator.is_some()),
            (Role::Gatekeeper, "gatekeeper", self.gatekeeper.is_some()),
            (Role::Grantor, "grantor", self.grantor.is_some()),
            (Role::Kvcache, "kvcache", self.kvcache.is_some()),
            (Role::Switch, "switch", self.switch.is_some()),
        ];
        let routes =
            matches!(self.role, Role::Router | Role::Gatekeeper | Role::Grantor | Role::Nat | Role::Filter);
        let of_routers = routers.iter().filter(|_| !routes).copied();
        let of_others = services.iter().filter(|(role, ..)| *role != self.role);
        let mut foreign = of_routers.chain(of_others.map(|(_, section, there)| (*section, *there)));
        foreign.find(|(_, there)| *there).map(|(section, _)| section)
    }

    fn resolve(&mut self, folder: &Path) {
        let join = |path: &mut PathBuf| *path = folder.join(&*path);
        match self.table.as_mut().map(|table| &mut table.path) {
            Some(OneOrMore::One(path)) => join(path),
            Some(OneOrMore::More(paths)) => paths.iter_mut().for_each(join),
            None => {}
        }
        self.updates.iter_mut().for_each(|updates| join(&mut updates.path));
        self.bgp.iter_mut().for_each(|bgp| bgp.resolve(folder));
        if let Some(control) = &mut self.control {
            let ControlSection { socket, token_file, certificate, key, .. } = control;
            [socket, token_file, certificate, key].into_iter().flatten().for_each(join);
        }
        self.state.iter_mut().for_each(|state| join(&mut state.path));
        self.nat.iter_mut().filter_map(|nat| nat.handover.as_mut()).for_each(join);
        if let Some(gatekeeper) = &mut self.gatekeeper {
            let programs = gatekeeper.program.iter_mut().map(|program| &mut program.file);
            gatekeeper.key_file.iter_mut().chain(programs).for_each(join);
        }
        self.grantor.iter_mut().filter_map(|grantor| grantor.key_file.as_mut()).for_each(join);
        self.switch.iter_mut().filter_map(|switch| switch.flows.as_mut()).for_each(join);
        self.filter.iter_mut().filter_map(|filter| filter.rules.as_mut()).for_each(join);
        self.filter.iter_mut().filter_map(|filter| filter.handover.as_mut()).for_each(join);
        self.assets.iter_mut().filter_map(|assets| assets.fingerprints.as_mut()).for_each(join);
    }

    /// The interfaces, with what open devices that are none of the kernel's say of themselves.
    fn interfaces(&self) -> Vec<InterfaceConfig> {
        let mut list = self.interface.clone();
        for port in &self.port {
            let Some(station) = port.station() else { continue };
            if !list.iter().any(|entry| entry.port == port.name() && entry.vlan.is_none()) {
                list.push(InterfaceConfig {
                    port: port.name().to_owned(),
                    name: None,
                    vlan: None,
                    vrf: None,
                    owner: tidemill_ip::Owner::Us,
                    resolve: None,
                    addresses: Vec::new(),
                    mac: None,
                    mtu: None,
                    promiscuous: None,
                });
            }
            for entry in list.iter_mut().filter(|entry| entry.port == port.name()) {
                entry.mac.get_or_insert_with(|| station.mac.to_string());
                entry.mtu.get_or_insert(station.mtu);
                entry.resolve.get_or_insert(station.answers);
            }
        }
        list
    }

    /// The router's part.
    pub(crate) fn router(&self) -> RouterConfig {
        RouterConfig {
            interface: self.interfaces(),
            router: self.router.clone(),
            next_hop: self.next_hop.clone(),
            next_hops: self.next_hops.clone(),
            vrf: self.vrf.clone(),
            route: self.route.clone(),
            queue: self.queue.clone(),
            neighbors: self.neighbors.clone(),
            kernel: self.kernel.clone(),
        }
    }
}
