//! The role `mitigator`: a bridge that keeps amplification attacks away from what is behind it.

mod api;

use super::bridge::{self, Bridge};
use super::config::Config;
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::service::{checked_room, lock, now_ns, unchanged};
use crate::usage;
use anyhow::Result;
use std::sync::{Arc, Mutex};
use tidemill_amp::config::OffloadKind;
use tidemill_amp::offload::Offload;
use tidemill_amp::settings::MOST_ENTRIES;
use tidemill_amp::{AmpError, Counter, MitigatorControl};
use tidemill_control::Registry;
use tidemill_control::schema::Table;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Left, PortSpec};

/// A mitigator that runs.
pub(super) struct Mitigator {
    control: Mutex<MitigatorControl>,
    bridge: Bridge,
    trouble: Arc<Trouble>,
    /// The workers whose packets have flows: one of each chain.
    chains: usize,
}

/// Makes a mitigator: its ports, which see every frame, and its control side.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let Opening { config, base, places, .. } = *opening;
    // A wrong section is found before ports are opened.
    let mut control = control(opening)?;
    let mut seeing = bridge::seeing(config);
    let outside = seeing.port.iter_mut().find(|port| port.name() == control.outside());
    let offload = match (control.section().offload, outside) {
        (OffloadKind::Xdp, Some(outside)) => Some(offload(opening, outside)?),
        _ => None,
    };
    let (ports, bridge) = Bridge::open(&seeing, base, places)?;
    if let Some(offload) = offload {
        control.set_offload(offload).map_err(|error| mistake(opening.name, &error))?;
        control.adopt(now_ns());
    }
    Ok(Open { role: mitigator(control, bridge, opening), ports, state: Vec::new() })
}

/// Where an offload goes.
fn offload_interface<'a>(name: &str, outside: &'a PortSpec) -> Result<&'a str> {
    outside.interface().ok_or_else(|| {
        let port = outside.name();
        usage(format!(
            "{name}: mitigator.offload: port {port} is on no network interface: leave the offload out"
        ))
    })
}

/// What to say of an interface whose frames may be too large for a program in the driver; nothing if it is not here.
#[cfg(all(feature = "xdp", target_os = "linux"))]
fn jumbo(interface: &str) -> String {
    use tidemill_amp::offload::xdp::LARGEST_MTU;
    match tidemill_port::device(interface) {
        Ok(device) if device.mtu > LARGEST_MTU => format!(
            "; {interface} has an MTU of {}: few drivers take an XDP program at that, and behind the driver it is slower (up to {LARGEST_MTU} all do that can)",
            device.mtu
        ),
        _ => String::new(),
    }
}

#[cfg(not(all(feature = "xdp", target_os = "linux")))]
fn jumbo(_interface: &str) -> String {
    String::new()
}

/// The program on the outside port's interface. A port that has a program of its own gets this one in front of it.
#[cfg(all(feature = "xdp", target_os = "linux"))]
fn offload(opening: &Opening<'_>, outside: &mut PortSpec) -> Result<Box<dyn Offload>> {
    use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
    if opening.record {
        return Err(usage(
            "--record: what an offload drops is in no record: set mitigator.offload = \"none\"",
        ));
    }
    let interface = offload_interface(opening.name, outside)?;
    let section = opening.config.mitigator.clone().unwrap_or_default();
    let mut options = XdpOptions::new(interface);
    options.pin = section.offload_pin;
    options.entries = section.entries.saturating_mul(opening.config.run.workers);
    let offload = XdpOffload::open(&options).map_err(anyhow::Error::msg)?;
    outside.set_front(offload.front().clone());
    Ok(Box::new(offload))
}

#[cfg(not(all(feature = "xdp", target_os = "linux")))]
fn offload(opening: &Opening<'_>, _outside: &mut PortSpec) -> Result<Box<dyn Offload>> {
    let name = opening.name;
    Err(usage(format!(
        "{name}: mitigator.offload = \"xdp\": this tidemill was built without the feature xdp: build it with, or leave it out"
    )))
}

/// Makes the mitigator of a record.
pub(super) fn reopen(opening: &Opening<'_>) -> Result<Arc<dyn Role>> {
    Ok(mitigator(control(opening)?, Bridge::recorded(opening.config), opening))
}

/// Checks a mitigator's configuration.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    let mut section = config.mitigator.clone().unwrap_or_default();
    // Nothing will flow: small tables do.
    section.entries = checked_room(section.entries, MOST_ENTRIES);
    let control = MitigatorControl::new(&section, &bridge::names(config), config.run.workers, &Domain::new());
    let control = control.map_err(|error| mistake(name, &error))?;
    let outside = config.port.iter().find(|port| port.name() == control.outside());
    let mut below = String::new();
    if let (OffloadKind::Xdp, Some(outside)) = (section.offload, outside) {
        below = jumbo(offload_interface(name, outside)?);
    }
    let dry = if section.dry_run { ", counting only" } else { "" };
    let said = format!(
        "from {} to {}, {} protocols, rules of {} parts for {} s{dry}{below}",
        control.outside(),
        control.inside(),
        control.protocols(),
        section.tuple,
        section.expiry_s
    );
    Ok((tidemill_amp::graph(&control), said))
}

fn control(opening: &Opening<'_>) -> Result<MitigatorControl> {
    let Opening { config, name, domain, .. } = *opening;
    let section = config.mitigator.clone().unwrap_or_default();
    let (ports, workers) = (bridge::names(config), config.run.workers);
    let made = if opening.record || super::setup::is_repeatable(config) {
        // What is replayed, or run again, finds the same room in the same tables.
        MitigatorControl::with_secret(&section, &ports, workers, domain, 0)
    } else {
        MitigatorControl::new(&section, &ports, workers, domain)
    };
    made.map_err(|error| mistake(name, &error))
}

fn mitigator(control: MitigatorControl, bridge: Bridge, opening: &Opening<'_>) -> Arc<dyn Role> {
    let (trouble, chains) = (opening.trouble.clone(), opening.config.run.chains());
    Arc::new(Mitigator { control: Mutex::new(control), bridge, trouble, chains })
}

fn mistake(name: &str, error: &AmpError) -> anyhow::Error {
    usage(format!("{name}: {error}"))
}

impl Role for Mitigator {
    fn graph(&self) -> GraphBuilder {
        tidemill_amp::graph(&lock(&self.control))
    }

    fn turn(&self, now_ns: u64, _recorder: Option<&Recorder>) -> bool {
        let (did, notes) = {
            let mut control = lock(&self.control);
            (control.poll(now_ns), control.take_notes())
        };
        notes.iter().for_each(|note| self.trouble.note("mitigator", note));
        did
    }

    fn reload(&self, name: &str, _old: &Config, new: &Config, _text: &str) -> Result<LeftOver> {
        unchanged(name, &[])?;
        let section = new.mitigator.clone().unwrap_or_default();
        lock(&self.control).reload(&section).map_err(|error| mistake(name, &error))?;
        Ok(LeftOver::new())
    }

    fn end(&self) {
        if let Some(pin) = &lock(&self.control).section().offload_pin {
            eprintln!(
                "tidemill: what is filtered stays filtered in the driver, under the name {pin}: the next process takes it over; \
                 tidemill amp pins --remove {pin} ends it"
            );
        }
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        api::register(&self, registry);
        registry.event_kind("mitigator", "What the mitigator has to say: its offload");
        registry.panel("Mitigator", move || figures("amp", lock(&self.control).counters().figures()));
    }

    fn tables(&self) -> Vec<Table> {
        let control = lock(&self.control);
        let counters = control.counters();
        let room = Some((control.section().entries * self.chains) as u64);
        let flows = |name: &str, entries| Table { name: name.into(), entries, room, ..Table::default() };
        vec![
            flows("IPv4 flows", counters.get(Counter::Flows4)),
            flows("IPv6 flows", counters.get(Counter::Flows6)),
            Table { name: "rules".into(), entries: counters.get(Counter::Rules), ..Table::default() },
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
        format!("rules {}", counters.get(Counter::Rules))
    }

    fn told(&self) -> Told {
        let counters = lock(&self.control).counters();
        let mut told = Told::default();
        told.counters("mitigator", "amp", counters.iter());
        told
    }
}
