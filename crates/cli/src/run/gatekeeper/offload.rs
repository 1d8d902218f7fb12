//! Refusals below the gate, as a run has them: what the configuration asks for, and the thread that takes them to the driver.

use crate::run::config::Config;
use crate::run::router::offload_obstacle;
use crate::usage;
use anyhow::Result;
use tidemill_gatekeeper::config::OffloadKind;
use tidemill_port::PortSpec;

#[cfg(all(feature = "xdp", target_os = "linux"))]
pub(super) use here::Below;
#[cfg(not(all(feature = "xdp", target_os = "linux")))]
pub(super) use nowhere::Below;

/// Checks what a configuration asks for, and gives what to say of it.
pub(super) fn check(config: &Config, name: &str) -> Result<String> {
    if config.gatekeeper.as_ref().is_none_or(|section| section.offload == OffloadKind::None) {
        return Ok(String::new());
    }
    let refused = |what: String| Err(usage(format!("{name}: gatekeeper.offload: {what}")));
    if let Some(why) = offload_obstacle(config, "what it drops") {
        return refused(why);
    }
    let on: Vec<&str> = doors(config).into_iter().filter_map(|(_, spec)| spec.interface()).collect();
    if on.is_empty() {
        return refused(
            "no port on a network interface (af_packet, af_xdp) has all of its interfaces in front: leave it out, or name them in gatekeeper.front, the port \
             itself beside its VLANs"
                .into(),
        );
    }
    Ok(format!("; what is declined is dropped by XDP where it can be, on {}", on.join(", ")))
}

/// The ports on network interfaces of which nothing is at the back, by their numbers.
fn doors(config: &Config) -> Vec<(u16, &PortSpec)> {
    let front: &[String] = match &config.gatekeeper {
        Some(section) => &section.front,
        None => &[],
    };
    let is_front = |name: &str| front.iter().any(|there| there == name);
    let is_door = |number: u16, spec: &PortSpec| {
        if front.is_empty() {
            return number == 0;
        }
        // The port itself is an interface too, whether it has a section or not.
        let (mut all_named, mut has_itself) = (true, false);
        for interface in config.interface.iter().filter(|interface| interface.port == spec.name()) {
            has_itself |= interface.vlan.is_none();
            all_named &= match (&interface.name, interface.vlan) {
                (Some(name), _) => is_front(name),
                (None, Some(vlan)) => is_front(&format!("{}.{vlan}", spec.name())),
                (None, None) => is_front(spec.name()),
            };
        }
        all_named && (has_itself || is_front(spec.name()))
    };
    let ports = (0..).zip(&config.port).filter(|(_, spec)| spec.interface().is_some());
    ports.filter(|(number, spec)| is_door(*number, spec)).collect()
}

#[cfg(all(feature = "xdp", target_os = "linux"))]
mod here {
    use super::super::Gatekeeper;
    use super::{check, doors};
    use crate::run::config::Config;
    use crate::run::role::Opening;
    use crate::run::router::offload_mode;
    use crate::run::service::{lock, now_ns};
    use crate::usage;
    use anyhow::Result;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use tidemill_control::schema;
    use tidemill_gatekeeper::config::OffloadKind;
    use tidemill_gatekeeper::offload::xdp::{Offload, OffloadPort, ROOM};
    use tidemill_gatekeeper::{GateError, GatekeeperControl};
    use tidemill_port::PortSpec;

    /// Between two looks when nothing is told.
    const ROUND: Duration = Duration::from_millis(2);
    /// Rounds from one count to the next.
    const COUNT: u32 = 16;

    /// The program, until it is closed.
    pub(in crate::run::gatekeeper) struct Below(Mutex<Option<Offload>>);

    impl Below {
        /// Loads it, if the configuration asks for one, and gives the configuration with ports that stand behind it. If that cannot be, the log says why, and
        /// all is dropped in user space.
        pub(in crate::run::gatekeeper) fn open(
            opening: &Opening<'_>,
        ) -> Result<(Option<Self>, Option<Config>)> {
            let config = opening.config;
            check(config, opening.name)?;
            if config.gatekeeper.as_ref().is_none_or(|section| section.offload == OffloadKind::None) {
                return Ok((None, None));
            }
            if opening.record {
                return Err(usage(
                    "--record: what an offload drops is in no record: set gatekeeper.offload = \"none\"",
                ));
            }
            let port = |(number, spec): (u16, &PortSpec)| {
                let port = OffloadPort {
                    name: spec.name().into(),
                    interface: spec.interface()?.into(),
                    mode: offload_mode(spec),
                    is_behind: matches!(spec, PortSpec::AfXdp(_)),
                };
                Some((number, port))
            };
            let offload = match Offload::open(doors(config).into_iter().filter_map(port).collect(), ROOM) {
                Ok(offload) => offload,
                Err(error) => {
                    let line =
                        format!("warning: offload: {error}: what is declined is dropped in user space alone");
                    opening.trouble.note("gatekeeper", &line);
                    return Ok((None, None));
                }
            };
            let mut fronted = config.clone();
            for (number, spec) in (0..).zip(&mut fronted.port) {
                if let Some(front) = offload.front(number) {
                    spec.set_front(front.clone());
                }
            }
            Ok((Some(Below(Mutex::new(Some(offload)))), Some(fronted)))
        }

        /// Has it repeat what a gate refuses, whose graph is not made yet.
        pub(in crate::run::gatekeeper) fn repeat(
            &self,
            gate: &mut GatekeeperControl,
        ) -> Result<(), GateError> {
            if let Some(offload) = &mut *lock(&self.0) {
                let picks = gate.refuse_below(offload.words())?;
                offload.follow(picks);
            }
            Ok(())
        }

        /// Keeps it up to date until `done`.
        pub(in crate::run::gatekeeper) fn follow(&self, gatekeeper: &Gatekeeper, done: &AtomicBool) {
            let mut rounds = 0_u32;
            while !done.load(Ordering::Acquire) {
                let any = self.turn(gatekeeper, rounds.is_multiple_of(COUNT));
                rounds = rounds.wrapping_add(1);
                if !any {
                    std::thread::sleep(ROUND);
                }
            }
        }

        /// Whether there was anything to do.
        fn turn(&self, gatekeeper: &Gatekeeper, counts: bool) -> bool {
            let mut offload = lock(&self.0);
            let Some(below) = &mut *offload else { return false };
            let any = below.turn(&now_ns);
            below.take_notes().iter().for_each(|note| gatekeeper.trouble.note("gatekeeper", note));
            let tally = counts.then(|| below.tally());
            drop(offload);
            tally.iter().for_each(|tally| lock(&gatekeeper.gate).done_below(tally));
            any
        }

        /// Takes the program off the interfaces.
        pub(in crate::run::gatekeeper) fn close(&self, gatekeeper: &Gatekeeper) {
            let Some(mut offload) = lock(&self.0).take() else { return };
            offload.close();
            lock(&gatekeeper.gate).done_below(&offload.tally());
        }

        /// Flows of both families that there is room for.
        pub(in crate::run::gatekeeper) fn room(&self) -> u64 {
            2 * u64::from(ROOM)
        }

        /// What it has done, and where it is; nothing once it is closed.
        pub(in crate::run::gatekeeper) fn shown(&self) -> schema::Offload {
            let offload = lock(&self.0);
            let Some(offload) = &*offload else { return schema::Offload::default() };
            let place = |(port, is_native): (&OffloadPort, Option<bool>)| schema::OffloadInterface {
                port: port.name.clone(),
                interface: port.interface.clone(),
                mode: is_native.map(|is_native| if is_native { "native" } else { "generic" }.to_owned()),
            };
            let tally = offload.tally();
            let declined = schema::OffloadDeclined {
                flows: tally.rules,
                room: self.room(),
                refused: tally.refused,
                dropped: tally.dropped,
                dropped_bytes: tally.bytes,
                interfaces: offload.places().map(place).collect(),
            };
            schema::Offload { enabled: true, declined: Some(declined), ..schema::Offload::default() }
        }
    }
}

#[cfg(not(all(feature = "xdp", target_os = "linux")))]
mod nowhere {
    use super::super::Gatekeeper;
    use super::check;
    use crate::run::config::Config;
    use crate::run::role::Opening;
    use anyhow::Result;
    use std::sync::atomic::AtomicBool;
    use tidemill_control::schema;
    use tidemill_gatekeeper::{GateError, GatekeeperControl};

    /// None can be.
    pub(in crate::run::gatekeeper) enum Below {}

    impl Below {
        pub(in crate::run::gatekeeper) fn open(
            opening: &Opening<'_>,
        ) -> Result<(Option<Self>, Option<Config>)> {
            check(opening.config, opening.name)?;
            Ok((None, None))
        }

        pub(in crate::run::gatekeeper) fn repeat(
            &self,
            _gate: &mut GatekeeperControl,
        ) -> Result<(), GateError> {
            match *self {}
        }

        pub(in crate::run::gatekeeper) fn follow(&self, _gatekeeper: &Gatekeeper, _done: &AtomicBool) {
            match *self {}
        }

        pub(in crate::run::gatekeeper) fn close(&self, _gatekeeper: &Gatekeeper) {
            match *self {}
        }

        pub(in crate::run::gatekeeper) fn room(&self) -> u64 {
            match *self {}
        }

        pub(in crate::run::gatekeeper) fn shown(&self) -> schema::Offload {
            match *self {}
        }
    }
}
