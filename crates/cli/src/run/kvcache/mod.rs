//! The role `kvcache`: a bridge in front of a memcached that answers gets from two tiers of memory.

mod api;

use super::bridge::{self, Bridge};
use super::config::Config;
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::service::{lock, unchanged};
use crate::usage;
use anyhow::Result;
use std::sync::{Arc, Mutex};
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_kvcache::{Counter, KvcacheControl, KvcacheError};
use tidemill_port::Left;

/// A cache that runs.
pub(super) struct Kvcache {
    control: Mutex<KvcacheControl>,
    bridge: Bridge,
    trouble: Arc<Trouble>,
}

/// Makes a cache: its ports, which see every frame, and its control side.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let Opening { config, base, places, .. } = *opening;
    // A wrong section is found before ports are opened.
    let control = control(opening)?;
    let (ports, bridge) = Bridge::open(&bridge::seeing(config), base, places)?;
    Ok(Open { role: kvcache(control, bridge, opening), ports, state: Vec::new() })
}

/// Makes the cache of a record.
pub(super) fn reopen(opening: &Opening<'_>) -> Result<Arc<dyn Role>> {
    Ok(kvcache(control(opening)?, Bridge::recorded(opening.config), opening))
}

/// Checks a cache's configuration.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    let mut section = config.kvcache.clone().unwrap_or_default();
    let said = format!(
        "L0 of {} answers, {}-way {}; L1 of {}, {}-way {}, {} MiB in chunks of type {}; in front of {}, port {}",
        section.l0.entries,
        section.l0.ways,
        section.l0.policy,
        section.l1.entries,
        section.l1.ways,
        section.l1.policy,
        section.l1.memory_mib,
        section.l1.slab,
        section.addresses.join(", "),
        section.port
    );
    // Nothing will flow: little memory does. What cannot be is found all the same.
    let (entries, memory) = (&mut section.l1.entries, &mut section.l1.memory_mib);
    if (1 << 12..=1 << 28).contains(entries) {
        *entries = 1 << 12;
    }
    if (1..=1 << 20).contains(memory) {
        *memory = 1;
    }
    let control = KvcacheControl::new(&section, &bridge::names(config), config.run.workers);
    let control = control.map_err(|error| mistake(name, &error))?;
    let said = format!("from {} to {}, {said}", control.clients(), control.servers());
    Ok((tidemill_kvcache::graph(&control), said))
}

fn control(opening: &Opening<'_>) -> Result<KvcacheControl> {
    let Opening { config, name, .. } = *opening;
    let section = config.kvcache.clone().unwrap_or_default();
    let (ports, workers) = (bridge::names(config), config.run.workers);
    let made = if opening.record {
        // What is replayed finds its keys in the same places.
        KvcacheControl::with_secret(&section, &ports, workers, 0)
    } else {
        KvcacheControl::new(&section, &ports, workers)
    };
    made.map_err(|error| mistake(name, &error))
}

fn kvcache(control: KvcacheControl, bridge: Bridge, opening: &Opening<'_>) -> Arc<dyn Role> {
    Arc::new(Kvcache { control: Mutex::new(control), bridge, trouble: opening.trouble.clone() })
}

fn mistake(name: &str, error: &KvcacheError) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

impl Role for Kvcache {
    fn graph(&self) -> GraphBuilder {
        tidemill_kvcache::graph(&lock(&self.control))
    }

    fn turn(&self, _now_ns: u64, _recorder: Option<&Recorder>) -> bool {
        let notes = lock(&self.control).take_notes();
        notes.iter().for_each(|note| self.trouble.note("kvcache", note));
        false
    }

    fn reload(&self, name: &str, _old: &Config, new: &Config, _text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        let section = new.kvcache.clone().unwrap_or_default();
        lock(&self.control).reload(&section).map_err(|error| mistake(name, &error))?;
        Ok(LeftOver::new())
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        api::register(&self, registry);
        registry.event_kind("kvcache", "What the cache has to say: memcached was restarted, or is not heard");
        registry.panel("Key-value cache", move || figures("kv", lock(&self.control).counters().figures()));
    }

    fn tables(&self) -> Vec<Table> {
        let control = lock(&self.control);
        let (counters, section) = (control.counters(), control.section());
        let get = |counter| counters.get(counter);
        let (l0, l1) = (get(Counter::HitL0), get(Counter::HitL1));
        let missed = get(Counter::Miss);
        vec![
            Table {
                name: "L0".into(),
                kind: format!("{}-way {}", section.l0.ways, section.l0.policy),
                entries: get(Counter::EntriesL0),
                room: Some(section.l0.entries as u64),
                hits: Some(l0),
                misses: Some(l1 + missed),
                ..Table::default()
            },
            Table {
                name: "L1".into(),
                kind: format!("{}-way {}", section.l1.ways, section.l1.policy),
                entries: get(Counter::EntriesL1),
                room: Some(section.l1.entries as u64),
                bytes: Some((section.l1.memory_mib as u64) << 20),
                hits: Some(l1),
                misses: Some(missed),
                ..Table::default()
            },
            Table {
                name: "connections".into(),
                entries: get(Counter::Connections),
                room: Some(section.connections as u64),
                ..Table::default()
            },
        ]
    }

    fn link(&self, port: usize) -> Option<bool> {
        self.bridge.link(port)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.bridge.left(port)
    }

    fn progress(&self) -> String {
        let counters = lock(&self.control).counters();
        let hits = counters.get(Counter::HitL0) + counters.get(Counter::HitL1);
        format!("hits {hits}, misses {}", counters.get(Counter::Miss) + counters.get(Counter::Parked))
    }

    fn told(&self) -> Told {
        let counters = lock(&self.control).counters();
        let mut told = Told::default();
        told.counters("kvcache", "kv", counters.iter());
        told
    }
}
