//! The role `kvcache`: a bridge in front of a memcached that answers gets from two tiers of memory.

mod api;

use super::bridge::{self, Bridge};
use super::config::Config;
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::service::{lock, unchanged};
use super::setup;
use crate::usage;
use anyhow::Result;
use std::sync::{Arc, Mutex};
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_kvcache::{Counter, KvcacheControl, KvcacheError, Settings};
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
    only_live(config, opening.name, opening.record)?;
    // A wrong section is found before ports are opened.
    let control = control(opening)?;
    let (ports, bridge) = Bridge::open(&bridge::seeing(config), base, places)?;
    Ok(Open { role: kvcache(control, bridge, opening), ports, state: Vec::new() })
}

/// What a host did is in no record, and what it does now has nothing to do with a capture.
fn only_live(config: &Config, name: &str, is_recorded: bool) -> Result<()> {
    let by_host = config.kvcache.as_ref().is_some_and(|section| section.on_demand_host.is_some());
    if by_host && (is_recorded || setup::clock(config).follows_packets()) {
        return Err(usage(format!(
            "{name}: kvcache.on_demand_host: not in a run that is recorded, or takes its time from captures: take kvcache.on_demand there"
        )));
    }
    Ok(())
}

/// Makes the cache of a record.
pub(super) fn reopen(opening: &Opening<'_>) -> Result<Arc<dyn Role>> {
    Ok(kvcache(control(opening)?, Bridge::recorded(opening.config), opening))
}

/// Checks a cache's configuration.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    only_live(config, name, false)?;
    let mut section = config.kvcache.clone().unwrap_or_default();
    let (l0, l1) = (&section.l0, &section.l1);
    let l0 = match l0.entries {
        0 => "no L0".to_owned(),
        entries => format!("L0 of {entries} answers, {}-way {}", l0.ways, l0.policy),
    };
    let l1 = match l1.entries {
        0 => "no L1".to_owned(),
        entries => format!(
            "L1 of {entries}, {}-way {}, {} MiB in chunks of type {}",
            l1.ways, l1.policy, l1.memory_mib, l1.slab
        ),
    };
    let said = format!("{l0}; {l1}; in front of {}, port {}", section.addresses.join(", "), section.port);
    Settings::new(&section).map_err(|error| mistake(name, &error))?;
    // Nothing will flow: little memory does.
    for entries in [&mut section.l0.entries, &mut section.l1.entries] {
        *entries = (*entries).min(1 << 12);
    }
    (section.l1.memory_mib, section.connections, section.slots) = (1, 1, 1);
    let control = KvcacheControl::new(&section, &bridge::names(config), config.run.workers);
    let control = control.map_err(|error| mistake(name, &error))?;
    let said = format!("from {} to {}, {said}", control.clients(), control.servers());
    Ok((tidemill_kvcache::graph(&control), said))
}

fn control(opening: &Opening<'_>) -> Result<KvcacheControl> {
    let Opening { config, name, .. } = *opening;
    let section = config.kvcache.clone().unwrap_or_default();
    let (ports, workers) = (bridge::names(config), config.run.workers);
    let made = if opening.record || setup::is_repeatable(config) {
        // What is replayed, or run again, finds its keys in the same places.
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

    fn turn(&self, now_ns: u64, _recorder: Option<&Recorder>) -> bool {
        let mut control = lock(&self.control);
        control.turn(now_ns);
        let notes = control.take_notes();
        drop(control);
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
        registry.event_kind(
            "kvcache",
            "What the cache has to say: memcached was restarted, or is not heard; who answers now, and why",
        );
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
                bytes: Some(if section.l1.entries == 0 { 0 } else { (section.l1.memory_mib as u64) << 20 }),
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

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: &str = "[[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n";

    /// What is only checked takes no memory, though it names more than this machine has; and it is checked as it is written.
    #[test]
    fn a_check_takes_little_memory() {
        let said = |slab: &str| {
            let text = format!(
                "version = 1\nrole = \"kvcache\"\n{PORTS}[kvcache]\naddresses = [\"10.0.0.1\"]\nallow = [\"10.0.0.0/8\"]\n\
                connections = 1048576\nslots = 1073741824\nl0 = {{ entries = 16777216, chunk = 2048 }}\n\
                l1 = {{ entries = 268435456, memory_mib = 1048576, slab = \"{slab}\" }}\n"
            );
            let checked = check(&Config::parse(&text, "test").unwrap(), "test");
            checked.map(|(_, said)| said).map_err(|error| error.to_string())
        };
        let sizes = "L0 of 16777216 answers, 1-way lru; L1 of 268435456, 8-way lru, 1048576 MiB";
        assert!(said("B").unwrap().contains(sizes));
        let wrong = "test: kvcache.l1.memory_mib: 1048576: more than 2^31 chunks";
        assert!(said("C").unwrap_err().starts_with(wrong));
    }

    /// A run that is to be repeated cannot go by what its host did.
    #[test]
    fn who_decides_by_the_host_is_not_recorded() {
        let said = |clock: &str, on_demand: &str, is_recorded| {
            let text = format!(
                "version = 1\nrole = \"kvcache\"\n[run]\nclock = \"{clock}\"\n[kvcache]\naddresses = [\"10.0.0.1\"]\nallow = [\"10.0.0.0/8\"]\n\
                {on_demand}\n[[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n"
            );
            let config = Config::parse(&text, "test").unwrap();
            only_live(&config, "test", is_recorded).map_or_else(|error| error.to_string(), |()| String::new())
        };
        let host =
            "on_demand_host = { up = { cpu = 50, ms = 1000 }, down = { cpu = 20, gets = 10, ms = 1000 } }";
        assert_eq!(said("wall", host, false), "");
        assert_eq!(said("capture", "", true), "");
        let place = "test: kvcache.on_demand_host: not in a run that is recorded";
        assert!(
            said("capture", host, false).starts_with(place) && said("wall", host, true).starts_with(place)
        );
    }
}
