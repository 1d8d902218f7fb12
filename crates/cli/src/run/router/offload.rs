//! The router's fast path below it, as a run has it: what the configuration asks for, the thread that keeps it up to date, what it has counted.

use crate::run::config::{Config, Role};
use crate::usage;
use anyhow::Result;
use tidemill_control::schema;
use tidemill_port::PortSpec;
use tidemill_router::config::OffloadKind;

#[cfg(all(feature = "xdp", target_os = "linux"))]
pub(super) use here::Below;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub(in crate::run) use here::{counted, families, memory, ports};
#[cfg(not(all(feature = "xdp", target_os = "linux")))]
pub(super) use nowhere::Below;

/// What became of packets at one port.
pub(in crate::run) struct Counted {
    pub(in crate::run) port: String,
    pub(in crate::run) forwarded: u64,
    pub(in crate::run) bytes: u64,
    pub(in crate::run) left: Vec<(&'static str, u64)>,
    pub(in crate::run) sent: u64,
    pub(in crate::run) sent_bytes: u64,
}

impl Counted {
    /// As the API shows it.
    pub(in crate::run) fn shown(self) -> schema::OffloadPort {
        schema::OffloadPort {
            port: self.port,
            forwarded: self.forwarded,
            forwarded_bytes: self.bytes,
            left: self.left.into_iter().map(|(why, count)| (why.to_owned(), count)).collect(),
            sent: self.sent,
            sent_bytes: self.sent_bytes,
        }
    }
}

const MEGABYTES: std::ops::RangeInclusive<u32> = 8..=4096;

/// Why packets cannot be dealt with before they come in, if so: something has to see them all. `what` begins its sentence.
pub(in crate::run) fn obstacle(config: &Config, what: &str) -> Option<String> {
    if !cfg!(all(feature = "xdp", target_os = "linux")) {
        return Some(
            "this tidemill was built without the feature xdp: build it with, or leave it out".into(),
        );
    }
    for (section, is_there) in [("nat", config.nat.is_some()), ("filter", config.filter.is_some())] {
        if is_there {
            return Some(format!("{what} would pass by what [{section}] says: leave it or [{section}] out"));
        }
    }
    if config.remap.is_some() {
        return Some(format!("{what} gets no new destination: leave it or [remap] out"));
    }
    for spec in config.port.iter().filter(|spec| spec.interface().is_some()) {
        let port = spec.name();
        if spec.is_faulty() {
            return Some(format!("{what} meets no faults: leave it or port {port}'s fault out"));
        }
        if spec.tap().is_some() {
            return Some(format!("{what} is in no capture: leave it or port {port}'s tap out"));
        }
    }
    None
}

/// Where a program in front of a port's own runs.
#[cfg(all(feature = "xdp", target_os = "linux"))]
fn mode(spec: &PortSpec) -> tidemill_bpf::Mode {
    use tidemill_bpf::Mode;
    use tidemill_port::spec::Mode as PortMode;
    match spec {
        PortSpec::AfXdp(spec) => match spec.mode {
            PortMode::Auto => Mode::Auto,
            PortMode::Native | PortMode::ZeroCopy => Mode::Native,
            PortMode::Generic => Mode::Generic,
        },
        _ => Mode::Auto,
    }
}

/// Checks what a configuration asks for, and gives what to say of it.
pub(super) fn check(config: &Config, name: &str) -> Result<String> {
    let section = &config.router;
    if let Some(size) = section.offload_mb.filter(|size| !MEGABYTES.contains(size)) {
        let (least, most) = (MEGABYTES.start(), MEGABYTES.end());
        return Err(usage(format!("{name}: router.offload_mb = {size}: give {least} to {most}")));
    }
    if section.offload == OffloadKind::None {
        return Ok(String::new());
    }
    let refused = |what: String| Err(usage(format!("{name}: router.offload: {what}")));
    if config.role != Role::Router {
        return refused(format!(
            "what it forwards would pass by the {0}, which has to see it: leave it out, or set role = \"router\"",
            config.role
        ));
    }
    if config.bgp.as_ref().is_some_and(|bgp| bgp.flowspec) {
        return refused("what it forwards meets no flow specification: leave it or bgp.flowspec out".into());
    }
    if let Some(why) = obstacle(config, "what it forwards") {
        return refused(why);
    }
    let on: Vec<&str> = config.port.iter().filter_map(PortSpec::interface).collect();
    if on.is_empty() {
        return refused("no port is on a network interface (af_packet, af_xdp): leave it out".into());
    }
    Ok(format!(", forwarded by XDP where it can be, on {}", on.join(", ")))
}

#[cfg(all(feature = "xdp", target_os = "linux"))]
mod here {
    use super::super::Router;
    use super::{Counted, check, mode};
    use crate::run::config::Config;
    use crate::run::role::{Opening, Told};
    use crate::run::service::{lock, now_ns};
    use crate::usage;
    use anyhow::Result;
    use serde_json::json;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use tidemill_control::Family;
    use tidemill_feed::LoadedTable;
    use tidemill_port::PortSpec;
    use tidemill_router::config::OffloadKind;
    use tidemill_router::offload::xdp::{
        Account, Offload, OffloadPort, PORT_REASONS, PortCounters, bytes_for,
    };

    /// Between two looks when nothing changes.
    const ROUND: Duration = Duration::from_millis(5);
    /// Memory if nothing is said: at least, and where more routes come later.
    const LEAST: u64 = 16 << 20;
    const LEAST_LIVE: u64 = 128 << 20;

    /// The fast path, until it is closed, and its account.
    pub(in crate::run::router) struct Below {
        offload: Mutex<Option<Offload>>,
        account: Account,
    }

    impl Below {
        /// Loads it, if the configuration asks for one, and gives the configuration with ports that stand behind it. If that cannot be, the log says why, and
        /// forwarding goes on without it.
        pub(in crate::run::router) fn open(
            opening: &Opening<'_>,
            table: &LoadedTable,
        ) -> Result<(Option<Self>, Option<Config>)> {
            let config = opening.config;
            check(config, opening.name)?;
            if config.router.offload == OffloadKind::None {
                return Ok((None, None));
            }
            if opening.record {
                return Err(usage(
                    "--record: what an offload forwards is in no record: set router.offload = \"none\"",
                ));
            }
            let offload = match Offload::open(ports(config), bytes(config, table)) {
                Ok(offload) => offload,
                Err(error) => {
                    let line = format!("warning: offload: {error}: forwarding goes on in user space alone");
                    opening.trouble.note("router", &line);
                    return Ok((None, None));
                }
            };
            let mut fronted = config.clone();
            for (number, spec) in (0..).zip(&mut fronted.port) {
                if let Some(front) = offload.front(number) {
                    spec.set_front(front.clone());
                }
            }
            let account = offload.account();
            Ok((Some(Below { offload: Mutex::new(Some(offload)), account }), Some(fronted)))
        }

        /// Keeps it up to date until `done`.
        pub(in crate::run::router) fn follow(&self, router: &Router, done: &AtomicBool) {
            while !done.load(Ordering::Acquire) {
                if !self.turn(router) {
                    std::thread::sleep(ROUND);
                }
            }
        }

        /// Whether there was anything to do.
        fn turn(&self, router: &Router) -> bool {
            let mut offload = lock(&self.offload);
            let Some(offload) = &mut *offload else { return false };
            let now_ns = now_ns();
            offload.look(now_ns);
            let cut = router.with_control(|control| offload.cut(control, now_ns));
            let is_new = cut.is_some();
            cut.into_iter().for_each(|cut| offload.finish(cut));
            offload.take_notes().iter().for_each(|note| router.trouble.note("router", note));
            is_new
        }

        /// Takes the programs off the interfaces.
        pub(in crate::run::router) fn close(&self) {
            if let Some(mut offload) = lock(&self.offload).take() {
                offload.close();
            }
        }

        pub(in crate::run::router) fn generations(&self) -> u64 {
            self.account.generations()
        }

        pub(in crate::run::router) fn bytes(&self) -> u64 {
            self.account.image_bytes()
        }

        pub(in crate::run::router) fn ports(&self) -> Vec<Counted> {
            counted(&self.account)
        }

        /// Says what it has done, when a run has ended.
        pub(in crate::run::router) fn tell(&self, told: &mut Told) {
            let ports = self.ports();
            let left = |port: &Counted| port.left.iter().map(|(_, count)| count).sum::<u64>();
            let (forwarded, all_left): (u64, u64) =
                (ports.iter().map(|port| port.forwarded).sum(), ports.iter().map(left).sum());
            told.last.push(format!(
                "offload: {forwarded} packets forwarded below, and in no counter above; {all_left} left to the router"
            ));
            let one = |port: &Counted| {
                let left: serde_json::Map<_, _> =
                    port.left.iter().map(|(why, count)| ((*why).to_owned(), json!(count))).collect();
                json!({"port": port.port, "forwarded": port.forwarded, "forwarded_bytes": port.bytes, "left": left, "sent": port.sent,
                    "sent_bytes": port.sent_bytes})
            };
            told.json.insert("offload".into(), ports.iter().map(one).collect());
        }

        pub(in crate::run::router) fn metrics(&self) -> Vec<Family> {
            families(&self.account)
        }
    }

    /// What an offload has counted, by port.
    pub(in crate::run) fn counted(account: &Account) -> Vec<Counted> {
        let one = |counters: PortCounters| Counted {
            port: counters.port,
            forwarded: counters.forwarded,
            bytes: counters.bytes,
            left: PORT_REASONS.into_iter().zip(counters.left).collect(),
            sent: counters.sent,
            sent_bytes: counters.sent_bytes,
        };
        account.ports().into_iter().map(one).collect()
    }

    /// The same as metrics.
    pub(in crate::run) fn families(account: &Account) -> Vec<Family> {
        let mut packets = Family::counter(
            "offload_packets",
            "Packets that an offload forwarded: by the port that they came in by (rx), and by the one that they left by (tx)",
        );
        let mut bytes = Family::counter("offload_bytes", "Their bytes");
        let mut left =
            Family::counter("offload_left_packets", "Packets that an offload left to the router, by why");
        let mut generations = Family::counter(
            "offload_generations",
            "Changes that an offload has taken over, of several at once one",
        );
        for port in counted(account) {
            let name = port.port.as_str();
            packets.add(&[("port", name), ("direction", "rx")], port.forwarded);
            packets.add(&[("port", name), ("direction", "tx")], port.sent);
            bytes.add(&[("port", name), ("direction", "rx")], port.bytes);
            bytes.add(&[("port", name), ("direction", "tx")], port.sent_bytes);
            for (why, count) in port.left {
                left.add(&[("port", name), ("reason", why)], count);
            }
        }
        generations.add(&[], account.generations());
        vec![packets, bytes, left, generations]
    }

    /// The ports that are on network interfaces. What leaves by a port with a queue is the queue's.
    pub(in crate::run) fn ports(config: &Config) -> Vec<(u16, OffloadPort)> {
        let one = |(number, spec): (u16, &PortSpec)| {
            let port = OffloadPort {
                name: spec.name().into(),
                interface: spec.interface()?.into(),
                mode: mode(spec),
                is_behind: matches!(spec, PortSpec::AfXdp(_)),
                sends: !config.queue.iter().any(|queue| queue.port == spec.name()),
            };
            Some((number, port))
        };
        (0..).zip(&config.port).filter_map(one).collect()
    }

    fn bytes(config: &Config, table: &LoadedTable) -> u64 {
        let comes_later = config.bgp.is_some() || config.kernel.is_some() || config.state.is_some();
        let least = if comes_later { LEAST_LIVE } else { LEAST };
        said(config).unwrap_or_else(|| bytes_for(&table.v4, &table.v6).max(least))
    }

    /// Memory where the table is not read yet.
    pub(in crate::run) fn memory(config: &Config) -> u64 {
        let has_none = config.bgp.is_none() && config.kernel.is_none() && config.state.is_none();
        let least = if has_none && config.table.is_none() { LEAST } else { LEAST_LIVE };
        said(config).unwrap_or(least)
    }

    fn said(config: &Config) -> Option<u64> {
        config.router.offload_mb.map(|size| u64::from(size) << 20)
    }
}

#[cfg(not(all(feature = "xdp", target_os = "linux")))]
mod nowhere {
    use super::super::Router;
    use super::{Counted, check};
    use crate::run::config::Config;
    use crate::run::role::{Opening, Told};
    use anyhow::Result;
    use std::sync::atomic::AtomicBool;
    use tidemill_control::Family;
    use tidemill_feed::LoadedTable;

    /// None can be.
    pub(in crate::run::router) enum Below {}

    impl Below {
        pub(in crate::run::router) fn open(
            opening: &Opening<'_>,
            _table: &LoadedTable,
        ) -> Result<(Option<Self>, Option<Config>)> {
            check(opening.config, opening.name)?;
            Ok((None, None))
        }

        pub(in crate::run::router) fn follow(&self, _router: &Router, _done: &AtomicBool) {
            match *self {}
        }

        pub(in crate::run::router) fn close(&self) {
            match *self {}
        }

        pub(in crate::run::router) fn generations(&self) -> u64 {
            match *self {}
        }

        pub(in crate::run::router) fn bytes(&self) -> u64 {
            match *self {}
        }

        pub(in crate::run::router) fn ports(&self) -> Vec<Counted> {
            match *self {}
        }

        pub(in crate::run::router) fn tell(&self, _told: &mut Told) {
            match *self {}
        }

        pub(in crate::run::router) fn metrics(&self) -> Vec<Family> {
            match *self {}
        }
    }
}
