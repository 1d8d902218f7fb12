//! The role `switch`: a learning bridge with VLANs, and rules as OpenFlow has them.

mod api;

use super::bridge::{self, Bridge};
use super::config::Config;
use super::role::{LeftOver, Open, Opening, Role, Told, figures};
use super::service::{checked_room, lock, unchanged};
use crate::usage;
use anyhow::Result;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_flow::flowtable::MOST_SLOTS;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Left;
use tidemill_switch::{Counter, MOST_SIGNATURES, SwitchControl, SwitchError, graph};

/// A switch that runs.
pub(super) struct Switch {
    control: Mutex<SwitchControl>,
    bridge: Bridge,
}

/// Makes a switch: its ports, which see every frame, and its control side.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let Opening { config, name, base, places, domain, record, .. } = *opening;
    if record {
        return Err(usage(
            "--record: a switch's rules are in no record: run it on captures, which gives the same output every time",
        ));
    }
    // Senders choose what is hashed; what follows a capture gives the same output every time.
    let random = |n: u64| u128::from(RandomState::new().hash_one(n));
    let repeatable = super::setup::is_repeatable(config);
    let secret = if repeatable { 0 } else { random(0) << 64 | random(1) };
    // A wrong section is found before ports are opened.
    let control = control(config, name, domain, secret)?;
    let (ports, bridge) = Bridge::open(&bridge::seeing(config), base, places)?;
    let role = Arc::new(Switch { control: Mutex::new(control), bridge });
    Ok(Open { role, ports, state: Vec::new() })
}

/// Checks a switch's configuration and its file of rules.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    let section = config.switch.clone().unwrap_or_default();
    // With little memory, whatever the workers' caches are to have: one may run beside this.
    let mut small = config.clone();
    small.run.workers = 1;
    let caches = small.switch.get_or_insert_default();
    caches.exact = checked_room(caches.exact, MOST_SLOTS);
    caches.signatures = checked_room(caches.signatures, MOST_SIGNATURES);
    caches.megaflows = checked_room(caches.megaflows, MOST_SLOTS);
    let control = control(&small, name, &Domain::new(), 0)?;
    let said = format!("{} ports, {} rules in {} tables", config.port.len(), control.rules(), section.tables);
    Ok((graph(&control), said))
}

fn control(config: &Config, name: &str, domain: &Domain, secret: u128) -> Result<SwitchControl> {
    let section = config.switch.clone().unwrap_or_default();
    let ports = bridge::names(config);
    let workers = config.run.workers;
    SwitchControl::new(&section, &ports, workers, domain, secret).map_err(|error| mistake(name, &error))
}

/// What is wrong with the file of rules is said of that; all else of the configuration.
fn mistake(name: &str, error: &SwitchError) -> anyhow::Error {
    match error {
        SwitchError::Text { .. } | SwitchError::Book { .. } | SwitchError::Read { .. } => {
            usage(error.to_string())
        }
        SwitchError::Config { .. } | SwitchError::Restart(_) | SwitchError::None { .. } => {
            usage(format!("{name}: {error}"))
        }
    }
}

impl Role for Switch {
    fn graph(&self) -> GraphBuilder {
        graph(&lock(&self.control))
    }

    fn turn(&self, now_ns: u64, _recorder: Option<&Recorder>) -> bool {
        lock(&self.control).poll(now_ns)
    }

    fn reload(&self, name: &str, _old: &Config, new: &Config, _text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        let section = new.switch.clone().unwrap_or_default();
        // Without the lock that everybody else wants: a pipe or a slow disk holds up this reload only.
        let rules = section.read_rules().map_err(|error| mistake(name, &error))?;
        let loaded = lock(&self.control).reload(&section, &rules);
        let loaded = loaded.map_err(|error| mistake(name, &error))?;
        eprintln!(
            "tidemill: {} rules new, {} as they were, {} gone",
            loaded.added, loaded.kept, loaded.removed
        );
        Ok(LeftOver::new())
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        api::register(&self, registry);
        registry.panel("Switch", move || figures("switch", lock(&self.control).counters().figures()));
    }

    fn tables(&self) -> Vec<Table> {
        let control = lock(&self.control);
        let counters = control.counters();
        let get = |counter| counters.get(counter);
        let (exact, megaflows) = (get(Counter::ExactHits), get(Counter::MegaflowHits));
        let missed = get(Counter::Misses);
        let table = |name: &str, entries| Table { name: name.into(), entries, ..Table::default() };
        vec![
            table("rules", control.rules() as u64),
            Table {
                hits: Some(exact + megaflows),
                misses: Some(missed),
                ..table("cached ways", get(Counter::Ways))
            },
            Table {
                hits: Some(megaflows),
                misses: Some(missed),
                ..table("megaflows", get(Counter::Megaflows))
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
        format!("rules {}", lock(&self.control).rules())
    }

    fn told(&self) -> Told {
        let mut control = lock(&self.control);
        let counters = control.counters();
        let mut told = Told::default();
        // A filter of nothing is none that could be wrong.
        let flows = control.flows("").unwrap_or_default();
        let used = flows.iter().filter(|flow| flow.hits.packets > 0);
        told.last.extend(used.map(|flow| format!("{:>10} packets  {}", flow.hits.packets, flow.text)));
        told.counters("switch", "switch", counters.iter());
        told
    }
}
