//! The configuration file: TOML, one file, unknown keys are errors, every error is one line with its place.

use crate::usage;
use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use tidemill_port::PortSpec;
use tidemill_router::RouterConfig;
use tidemill_router::config::{
    InterfaceConfig, KernelSection, NeighborsSection, NextHopConfig, NextHopsSection, RouteConfig,
    RouterSection, VrfConfig,
};

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
    /// Static routes; they win over the same prefixes from anywhere but our own addresses and links.
    #[serde(default)]
    pub(crate) route: Vec<RouteConfig>,
    /// How neighbors are found (ARP, neighbor discovery).
    #[serde(default)]
    pub(crate) neighbors: NeighborsSection,
    /// What comes live from the kernel (BIRD, FRR or `ip route` feed it).
    #[serde(default)]
    pub(crate) kernel: Option<KernelSection>,
    /// The control socket, for `tidemill show`, `top`, `route` and so on. Without this section there is none.
    #[serde(default)]
    pub(crate) control: Option<ControlSection>,
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
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Router => f.write_str("router"),
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
    /// Where time comes from.
    pub(crate) clock: ClockChoice,
}

impl Default for RunSection {
    fn default() -> Self {
        RunSection { workers: 1, pin: true, clock: ClockChoice::Auto }
    }
}

/// Where time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockChoice {
    /// From the capture if every receiving port reads one as fast as it can, else from the wall clock.
    Auto,
    /// The wall clock.
    Wall,
    /// The packets' timestamps: a run gives the same output every time.
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
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlSection {
    /// Where it is made, relative to this file's folder. Default: `/run/tidemill/tidemill.sock`, where the commands look
    /// for it too (`--socket` and TIDEMILL_SOCKET tell them of another).
    pub(crate) socket: Option<PathBuf>,
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

impl Config {
    /// Reads a configuration file; relative paths in it are relative to its folder (ports resolve theirs on opening).
    pub(crate) fn read(path: &Path) -> Result<(Config, String)> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| usage(format!("{}: {error}: give a configuration file", path.display())))?;
        let mut config = Config::parse(&text, &path.display().to_string())?;
        config.resolve(path.parent().unwrap_or(Path::new("")));
        Ok((config, text))
    }

    /// Reads a configuration's text; `name` is for messages.
    pub(crate) fn parse(text: &str, name: &str) -> Result<Config> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let message = error.message().replace('\n', " ");
            usage(format!("{name}:{line}: {message}"))
        })?;
        config.validate().map_err(|what| usage(format!("{name}: {what}")))?;
        Ok(config)
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.version != 1 {
            return Err(format!("version = {}: this program reads version 1", self.version));
        }
        if !(1..=256).contains(&self.run.workers) {
            return Err(format!("run.workers = {}: give 1 to 256", self.run.workers));
        }
        if !(1024..=1 << 24).contains(&self.memory.frames) {
            return Err(format!("memory.frames = {}: give 1024 to 16777216", self.memory.frames));
        }
        let size = self.memory.frame_size;
        if !size.is_power_of_two() || !(2048..=32768).contains(&size) {
            return Err(format!("memory.frame_size = {size}: give a power of two from 2048 to 32768"));
        }
        if self.port.is_empty() {
            return Err("there is no [[port]]: add at least one".into());
        }
        if let Some(socket) = self.control.as_ref().and_then(|control| control.socket.as_ref()) {
            // sockaddr_un has room for so much.
            let len = socket.as_os_str().len();
            if !(1..108).contains(&len) {
                return Err(format!("control.socket: {len} characters: give a path of 1 to 107"));
            }
        }
        if let Some(table) = &self.table
            && (table.path.paths().is_empty() || table.generate.is_some() && table.path.paths().len() != 1)
        {
            return Err("table.path: give one file (several only without table.generate)".into());
        }
        if let Some(updates) = &self.updates
            && !(updates.speed >= 0.0 && updates.speed.is_finite())
        {
            return Err(format!("updates.speed = {}: give 0 or a positive factor", updates.speed));
        }
        Ok(())
    }

    fn resolve(&mut self, folder: &Path) {
        let join = |path: &mut PathBuf| *path = folder.join(&*path);
        match self.table.as_mut().map(|table| &mut table.path) {
            Some(OneOrMore::One(path)) => join(path),
            Some(OneOrMore::More(paths)) => paths.iter_mut().for_each(join),
            None => {}
        }
        self.updates.iter_mut().for_each(|updates| join(&mut updates.path));
        self.control.iter_mut().filter_map(|control| control.socket.as_mut()).for_each(join);
    }

    /// The router's part.
    pub(crate) fn router(&self) -> RouterConfig {
        RouterConfig {
            interface: self.interface.clone(),
            router: self.router.clone(),
            next_hop: self.next_hop.clone(),
            next_hops: self.next_hops.clone(),
            vrf: self.vrf.clone(),
            route: self.route.clone(),
            neighbors: self.neighbors.clone(),
            kernel: self.kernel.clone(),
        }
    }
}
