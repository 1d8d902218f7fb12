//! The role `kvcache`: a bridge in front of a memcached that answers gets from two tiers of memory.

mod api;

use super::bridge::{self, Bridge};
use super::config::Config;
use super::role::{Open, Opening, Role, Told};
use super::service::{lock, unchanged};
use crate::usage;
use anyhow::Result;
use std::sync::{Arc, Mutex};
use tidemill_control::Registry;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_kvcache::{Counter, KvcacheControl, KvcacheError};
use tidemill_port::Left;

/// A cache that runs.
pub(super) struct Kvcache {
    control: Mutex<KvcacheControl>,
    bridge: Bridge,
}

/// Makes a cache: its ports, which see every frame, and its control side.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let Opening { config, base, places, .. } = *opening;
    // A wrong section is found before ports are opened.
    let control = control(opening)?;
    let (ports, bridge) = Bridge::open(&bridge::seeing(config), base, places)?;
    Ok(Open { role: kvcache(control, bridge), ports, state: Vec::new() })
}

/// Makes the cache of a record.
pub(super) fn reopen(opening: &Opening<'_>) -> Result<Arc<dyn Role>> {
    Ok(kvcache(control(opening)?, Bridge::recorded(opening.config)))
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

fn kvcache(control: KvcacheControl, bridge: Bridge) -> Arc<dyn Role> {
    Arc::new(Kvcache { control: Mutex::new(control), bridge })
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
        notes.iter().for_each(|note| eprintln!("tidemill: {note}"));
        false
    }

    fn reload(&self, name: &str, _old: &Config, new: &Config, _text: &str) -> Result<()> {
        unchanged(name, &[])?;
        let section = new.kvcache.clone().unwrap_or_default();
        lock(&self.control).reload(&section).map_err(|error| mistake(name, &error))
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        api::register(&self, registry);
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
