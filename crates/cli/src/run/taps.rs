//! What looks on beside any role, in front of its graph: detection of assets (`[assets]`), export of flows (`[ipfix]`).

use super::config::Config;
use super::role::{LeftOver, Opening, Role, Told, Trouble, figures};
use super::service::{checked_room, lock};
use crate::assets::{cursor, described, read_cursor};
use crate::usage;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::schema::assets::{self, path};
use tidemill_control::schema::{Counters, Table, ipfix};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_flow::flowtable::MOST_SLOTS;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_nf::assets::{AssetsControl, AssetsError, Host};
use tidemill_nf::ipfix::{Counter, IpfixControl, IpfixError};
use tidemill_port::Left;

/// Hosts in one answer.
const PAGE: u32 = 1000;

/// What there is of it.
#[derive(Debug)]
pub(crate) struct Taps {
    assets: Option<Mutex<AssetsControl>>,
    ipfix: Option<Mutex<IpfixControl>>,
    /// The workers whose packets have flows: one of each chain.
    chains: usize,
    flows: usize,
    /// The time of the last turn: that of a capture, where packets come from one.
    now_ns: AtomicU64,
}

impl Taps {
    fn make(
        config: &Config,
        name: &str,
        workers: usize,
        ipfix: impl Fn(&tidemill_nf::ipfix::IpfixSection) -> Result<IpfixControl, IpfixError>,
    ) -> Result<Self> {
        let wrong = |error: AssetsError| usage(format!("{name}: {error}"));
        let assets = config.assets.as_ref().map(|section| AssetsControl::new(section, workers)).transpose();
        let flows = config.ipfix.as_ref().map_or(0, |section| section.flows);
        let ipfix = config.ipfix.as_ref().map(ipfix).transpose();
        let ipfix = ipfix.map_err(|error| match error {
            IpfixError::Socket { .. } => anyhow::Error::new(error),
            _ => usage(format!("{name}: {error}")),
        })?;
        Ok(Taps {
            assets: assets.map_err(wrong)?.map(Mutex::new),
            ipfix: ipfix.map(Mutex::new),
            chains: config.run.chains(),
            flows,
            now_ns: AtomicU64::new(0),
        })
    }

    /// Those of a run.
    pub(super) fn open(opening: &Opening<'_>) -> Result<Self> {
        let Opening { config, name, record, .. } = *opening;
        let repeatable = record || super::setup::is_repeatable(config);
        let workers = config.run.workers;
        Self::make(config, name, workers, |section| IpfixControl::new(section, workers, repeatable))
    }

    /// Those of a record: nobody is told anything.
    pub(super) fn reopen(opening: &Opening<'_>) -> Result<Self> {
        let workers = opening.config.run.workers;
        Self::make(opening.config, opening.name, workers, |section| {
            IpfixControl::silent(section, workers, true)
        })
    }

    /// Those of a check: nothing will flow, and small tables do.
    pub(super) fn check(config: &Config, name: &str) -> Result<Self> {
        Self::make(config, name, 1, |section| {
            let flows = checked_room(section.flows, MOST_SLOTS);
            IpfixControl::silent(&tidemill_nf::ipfix::IpfixSection { flows, ..section.clone() }, 1, true)
        })
    }

    /// Puts their nodes in front of a role's.
    pub(super) fn splice(&self, graph: &mut GraphBuilder) {
        if let Some(ipfix) = &self.ipfix {
            tidemill_nf::ipfix::splice(graph, &lock(ipfix));
        }
        if let Some(assets) = &self.assets {
            tidemill_nf::assets::splice(graph, &lock(assets));
        }
    }

    /// What to say of them in a line.
    pub(super) fn said(&self) -> String {
        let mut said = String::new();
        if let Some(assets) = &self.assets {
            said += &format!(", assets by {} fingerprints", lock(assets).fingerprints().len());
        }
        if let Some(ipfix) = &self.ipfix {
            said += &format!(", flows to {}", lock(ipfix).collector());
        }
        said
    }

    fn is_none(&self) -> bool {
        self.assets.is_none() && self.ipfix.is_none()
    }
}

/// A role with what looks on; the role itself if nothing does.
pub(super) fn beside(taps: Taps, role: Arc<dyn Role>, trouble: &Arc<Trouble>) -> Arc<dyn Role> {
    if taps.is_none() { role } else { Arc::new(Tapped { role, taps, trouble: trouble.clone() }) }
}

struct Tapped {
    role: Arc<dyn Role>,
    taps: Taps,
    trouble: Arc<Trouble>,
}

impl Role for Tapped {
    fn graph(&self) -> GraphBuilder {
        let mut graph = self.role.graph();
        self.taps.splice(&mut graph);
        graph
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.role.turn(now_ns, recorder);
        self.taps.now_ns.store(now_ns, Ordering::Relaxed);
        let did = did | self.taps.assets.as_ref().is_some_and(|assets| lock(assets).poll(now_ns / 1_000_000));
        let Some(ipfix) = &self.taps.ipfix else { return did };
        let (sent, news) = {
            let mut ipfix = lock(ipfix);
            (ipfix.poll(now_ns / 1_000_000), ipfix.news())
        };
        self.say(news);
        did | sent
    }

    fn repeat(&self, change: &[u8]) -> Result<u64, String> {
        self.role.repeat(change)
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        self.role.reload(name, old, new, text)
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        self.role.clone().verbs(registry);
        if self.taps.assets.is_some() {
            asset_verbs(&self, registry);
        }
        if self.taps.ipfix.is_some() {
            let to = self.clone();
            registry.get(ipfix::path::COUNTERS, "All that flow export counts", move |_: &Request| {
                let counters = to.flow_counters();
                let counters = counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
                Ok::<_, ApiError>(Counters { counters })
            });
            registry.panel("Flow export", move || figures("ipfix", self.flow_counters().figures()));
        }
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        self.role.beside(scope, done);
    }

    fn end(&self) {
        let now_ms = self.taps.now_ns.load(Ordering::Relaxed) / 1_000_000;
        if let Some(assets) = &self.taps.assets {
            lock(assets).poll(now_ms);
        }
        if let Some(ipfix) = &self.taps.ipfix {
            let news = {
                let mut ipfix = lock(ipfix);
                ipfix.end(now_ms);
                ipfix.news()
            };
            self.say(news);
        }
        self.role.end();
    }

    fn link(&self, port: usize) -> Option<bool> {
        self.role.link(port)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.role.left(port)
    }

    fn progress(&self) -> String {
        self.role.progress()
    }

    fn told(&self) -> Told {
        let mut told = self.role.told();
        if let Some(assets) = &self.taps.assets {
            told.counters("assets", "assets", lock(assets).counters().iter());
        }
        if self.taps.ipfix.is_some() {
            told.counters("ipfix", "ipfix", self.flow_counters().iter());
        }
        told
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = self.role.tables();
        let table = |name: &str, entries: u64, room: usize| Table {
            name: name.into(),
            entries,
            room: Some(room as u64),
            ..Table::default()
        };
        if let Some(assets) = &self.taps.assets {
            let assets = lock(assets);
            tables.push(table("assets", assets.table().len() as u64, assets.room()));
        }
        if self.taps.ipfix.is_some() {
            let room = 2 * self.taps.flows * self.taps.chains;
            tables.push(table("exported flows", self.flow_counters().get(Counter::Flows), room));
        }
        tables
    }
}

impl Tapped {
    /// Says what is new about the way to the collector.
    fn say(&self, news: Option<String>) {
        if let Some(line) = news {
            self.trouble.note("run", &line);
        }
    }

    fn flow_counters(&self) -> tidemill_nf::ipfix::Counters {
        self.taps.ipfix.as_ref().map_or_else(Default::default, |ipfix| lock(ipfix).counters())
    }

    fn asset_counters(&self) -> tidemill_nf::assets::Counters {
        self.taps.assets.as_ref().map_or_else(Default::default, |assets| lock(assets).counters())
    }

    fn assets(&self, query: &assets::AssetsQuery) -> Result<assets::Assets, ApiError> {
        let Some(control) = &self.taps.assets else { return Ok(assets::Assets::default()) };
        let control = lock(control);
        let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE) as usize;
        if let Some(address) = &query.address {
            let address =
                address.parse().map_err(|_| ApiError::bad_request(format!("{address:?} is no address")))?;
            let asset = control.table().get(Host::Ip(address));
            let assets = asset.map(|asset| described(asset, control.fingerprints())).into_iter().collect();
            return Ok(assets::Assets { assets, next: None });
        }
        let after = query.after.as_deref().map(|text| {
            read_cursor(text).ok_or_else(|| ApiError::bad_request("after: give what the last page said"))
        });
        let mut list = control.table().after(after.transpose()?);
        let page: Vec<_> = list.by_ref().take(limit).collect();
        let next = list.next().and(page.last()).map(|last| cursor(last.host));
        let assets = page.into_iter().map(|asset| described(asset, control.fingerprints())).collect();
        Ok(assets::Assets { assets, next })
    }
}

fn asset_verbs(role: &Arc<Tapped>, registry: &mut Registry) {
    let to = role.clone();
    registry.get(path::ASSETS, "Hosts that were detected", move |r: &Request| to.assets(&r.query()?));
    registry.takes::<assets::AssetsQuery>();
    let to = role.clone();
    registry.get(path::COUNTERS, "All that detection of assets counts", move |_: &Request| {
        let counters = to.asset_counters();
        let counters = counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok::<_, ApiError>(Counters { counters })
    });
    let to = role.clone();
    registry.panel("Assets", move || figures("assets", to.asset_counters().figures()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back() {
        for text in ["10.0.0.1", "2001:db8::1", "02:00:00:00:00:07"] {
            assert_eq!(read_cursor(text).map(cursor).as_deref(), Some(text));
        }
        assert_eq!(read_cursor("what"), None);
    }
}
