//! What is done below the gate, as a run has it: what the configuration asks for, the thread that takes it to the driver, what it has counted.

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
    if let Some(why) = offload_obstacle(config, "what it drops or forwards") {
        return refused(why);
    }
    let on: Vec<&str> = doors(config).into_iter().filter_map(|(_, spec)| spec.interface()).collect();
    if on.is_empty() {
        return refused(no_door(config));
    }
    let forwards = match forwards(config) {
        true => "what nobody judges is forwarded",
        false => "what nobody judges is not forwarded, for bgp.flowspec is about that too",
    };
    Ok(format!("; what is declined is dropped by XDP where it can be, on {}; {forwards}", on.join(", ")))
}

/// What is to be done where no port is one that all comes from the front by.
fn no_door(config: &Config) -> String {
    let there = config.port.iter().filter(|spec| spec.interface().is_some());
    let names: Vec<String> = there.map(|spec| format!("{:?}", spec.name())).collect();
    if names.is_empty() {
        return "no port is on a network interface: give the one in front kind = \"af_packet\" or \"af_xdp\", or leave it out".into();
    }
    format!(
        "of no port on a network interface ({}) are all interfaces in front: name them in gatekeeper.front, the port itself beside its VLANs, or leave it out",
        names.join(", ")
    )
}

/// Whether anything may be forwarded before it comes in.
fn forwards(config: &Config) -> bool {
    config.bgp.as_ref().is_none_or(|bgp| !bgp.flowspec)
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
    use super::{check, doors, forwards};
    use crate::run::config::Config;
    use crate::run::role::Opening;
    use crate::run::router::{offload_counted, offload_families, offload_memory, offload_ports};
    use crate::run::service::{lock, now_ns};
    use crate::usage;
    use anyhow::Result;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use tidemill_control::{Family, schema};
    use tidemill_gatekeeper::config::OffloadKind;
    use tidemill_gatekeeper::offload::xdp::{Offload, ROOM};
    use tidemill_gatekeeper::offload::{Bypass, PASSES, Tally, hit_rate};
    use tidemill_gatekeeper::{Counter, Counters, GateError, GatekeeperControl};
    use tidemill_router::offload::xdp as router;
    use tidemill_router::offload::xdp::{Account, Judge, OffloadPort, lines_for};

    /// Between two looks when nothing is told.
    const ROUND: Duration = Duration::from_millis(2);
    /// Rounds from one count to the next.
    const COUNT: u32 = 16;
    /// Between two looks at what is forwarded by.
    const LOOK_NS: u64 = 5_000_000;

    // The program has one number for both.
    const _: () = assert!(PASSES.0 == router::PASSES.0);

    /// The program's two halves.
    struct Both {
        /// Where it is, and what it forwards by. Before the rules: programs leave first.
        ways: router::Offload,
        rules: Offload,
        /// Whether it forwards anything.
        forwards: bool,
        /// When that was looked at last.
        looked_ns: u64,
    }

    /// The program, until it is closed, and its account.
    pub(in crate::run::gatekeeper) struct Below {
        both: Mutex<Option<Both>>,
        account: Account,
    }

    impl Both {
        fn open(config: &Config) -> Result<Self, tidemill_bpf::BpfError> {
            let forwards = forwards(config);
            let mut ports = offload_ports(config);
            if !forwards {
                let doors: Vec<u16> = doors(config).into_iter().map(|(number, _)| number).collect();
                ports.retain(|(number, _)| doors.contains(number));
            }
            let bytes = if forwards { offload_memory(config) } else { 0 };
            let rules = Offload::open(ROOM, lines_for(bytes, true))?;
            let ways = router::Offload::over(rules.object(), ports, bytes)?;
            Ok(Both { ways, rules, forwards, looked_ns: 0 })
        }

        /// Has what is forwarded follow the router and the gate. Whether anything has changed.
        fn follow(&mut self, gatekeeper: &Gatekeeper, at_ns: u64) -> bool {
            if !self.forwards || at_ns.saturating_sub(self.looked_ns) < LOOK_NS {
                return false;
            }
            self.looked_ns = at_ns;
            let ways = &mut self.ways;
            let cut = gatekeeper.router.with_control(|control| {
                let gate = lock(&gatekeeper.gate);
                // What the gate says of interfaces is about these.
                if gatekeeper.interfaces.load(Ordering::Relaxed) != control.settings_generation() {
                    return None;
                }
                let judge = |with_destinations: bool| {
                    let Bypass { is_front, keeps_dscp, passes } = gate.bypass(with_destinations);
                    Judge { is_front, keeps_dscp, passes }
                };
                ways.cut_judged(control, at_ns, gate.ways()?, &judge)
            });
            let is_new = cut.is_some();
            cut.into_iter().for_each(|cut| ways.finish(cut));
            is_new
        }

        /// What both have done so far.
        fn tally(&self, account: &Account) -> Tally {
            let mut tally = self.rules.tally();
            for port in offload_counted(account) {
                tally.forwarded += port.forwarded;
                tally.forwarded_bytes += port.bytes;
                let is_part = |(why, _): &&(&str, u64)| !router::NO_PART.contains(why);
                tally.left += port.left.iter().filter(is_part).map(|(_, count)| count).sum::<u64>();
            }
            tally
        }
    }

    impl Below {
        /// Loads it, if the configuration asks for one, and gives the configuration with ports that stand behind it. If that cannot be, the log says why, and
        /// all is done in user space.
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
            let both = match Both::open(config) {
                Ok(both) => both,
                Err(error) => {
                    let line =
                        format!("warning: offload: {error}: what is declined is dropped in user space alone");
                    opening.trouble.note("gatekeeper", &line);
                    return Ok((None, None));
                }
            };
            let mut fronted = config.clone();
            for (number, spec) in (0..).zip(&mut fronted.port) {
                if let Some(front) = both.ways.front(number) {
                    spec.set_front(front.clone());
                }
            }
            let account = both.ways.account();
            Ok((Some(Below { both: Mutex::new(Some(both)), account }), Some(fronted)))
        }

        /// Has it repeat what a gate refuses, whose graph is not made yet.
        pub(in crate::run::gatekeeper) fn repeat(
            &self,
            gate: &mut GatekeeperControl,
        ) -> Result<(), GateError> {
            if let Some(both) = &mut *lock(&self.both) {
                let picks = gate.refuse_below(both.rules.words())?;
                both.rules.follow(picks);
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
            let mut there = lock(&self.both);
            let Some(both) = &mut *there else { return false };
            let at_ns = now_ns();
            both.ways.look(at_ns);
            let any = both.rules.turn(&now_ns) | both.follow(gatekeeper, at_ns);
            let notes = [both.rules.take_notes(), both.ways.take_notes()];
            notes.iter().flatten().for_each(|note| gatekeeper.trouble.note("gatekeeper", note));
            let tally = counts.then(|| both.tally(&self.account));
            drop(there);
            tally.iter().for_each(|tally| lock(&gatekeeper.gate).done_below(tally));
            any
        }

        /// Takes the program off the interfaces.
        pub(in crate::run::gatekeeper) fn close(&self, gatekeeper: &Gatekeeper) {
            let Some(mut both) = lock(&self.both).take() else { return };
            both.ways.close();
            lock(&gatekeeper.gate).done_below(&both.tally(&self.account));
        }

        /// Flows of both families that there is room for.
        pub(in crate::run::gatekeeper) fn room(&self) -> u64 {
            2 * u64::from(ROOM)
        }

        /// What it has done, and where it is; nothing once it is closed. `counters` are the gate's.
        pub(in crate::run::gatekeeper) fn shown(&self, counters: &Counters) -> schema::Offload {
            let there = lock(&self.both);
            let Some(both) = &*there else { return schema::Offload::default() };
            let place = |(port, is_native): (&OffloadPort, Option<bool>)| schema::OffloadInterface {
                port: port.name.clone(),
                interface: port.interface.clone(),
                mode: is_native.map(|is_native| if is_native { "native" } else { "generic" }.to_owned()),
            };
            let tally = both.tally(&self.account);
            let above = declined(counters);
            let declined = schema::OffloadDeclined {
                flows: tally.rules,
                room: self.room(),
                refused: tally.refused,
                dropped: tally.dropped,
                dropped_bytes: tally.bytes,
                above,
                hit_rate: hit_rate(tally.dropped, above),
                interfaces: both.ways.places().map(place).collect(),
            };
            let bypass = schema::OffloadBypass {
                forwarded: tally.forwarded,
                forwarded_bytes: tally.forwarded_bytes,
                above: tally.left,
                hit_rate: hit_rate(tally.forwarded, tally.left),
            };
            let ports = if both.forwards { offload_counted(&self.account) } else { Vec::new() };
            schema::Offload {
                enabled: true,
                generations: self.account.generations(),
                bytes: self.account.image_bytes(),
                declined: Some(declined),
                bypass: both.forwards.then_some(bypass),
                ports: ports.into_iter().map(|port| port.shown()).collect(),
            }
        }

        /// The same as metrics.
        pub(in crate::run::gatekeeper) fn metrics(&self, counters: &Counters) -> Vec<Family> {
            let mut rates = Family::gauge(
                "offload_hit_rate",
                "The part of the packets of a kind that the offload has dealt with: declined ones, and those that nobody judges",
            );
            for (kind, rate) in hit_rates(counters) {
                rate.into_iter().for_each(|rate| rates.add_f64(&[("kind", kind)], rate));
            }
            let mut families = offload_families(&self.account);
            families.extend((!rates.is_empty()).then_some(rates));
            families
        }

        /// A line for when a run has ended.
        pub(in crate::run::gatekeeper) fn told(&self, counters: &Counters) -> String {
            let rates = hit_rates(counters).map(|(_, rate)| match rate {
                Some(rate) => format!("{:.1} % of all such", 100.0 * rate),
                None => "there were none".to_owned(),
            });
            format!(
                "offload: {} declined packets dropped below ({}), {} that nobody judges forwarded below ({}), and in no counter above",
                counters.get(Counter::OffloadDropped),
                rates[0],
                counters.get(Counter::OffloadForwarded),
                rates[1]
            )
        }
    }

    /// Packets that were declined when they had come in.
    fn declined(counters: &Counters) -> u64 {
        counters.get(Counter::Declined) + counters.get(Counter::PolicyDropped)
    }

    /// The parts of what it is for that it has dealt with, by kinds of packets.
    fn hit_rates(counters: &Counters) -> [(&'static str, Option<f64>); 2] {
        let [dropped, forwarded, left] =
            [Counter::OffloadDropped, Counter::OffloadForwarded, Counter::OffloadLeft]
                .map(|counter| counters.get(counter));
        [("declined", hit_rate(dropped, declined(counters))), ("bypass", hit_rate(forwarded, left))]
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
    use tidemill_control::{Family, schema};
    use tidemill_gatekeeper::{Counters, GateError, GatekeeperControl};

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

        pub(in crate::run::gatekeeper) fn shown(&self, _counters: &Counters) -> schema::Offload {
            match *self {}
        }

        pub(in crate::run::gatekeeper) fn metrics(&self, _counters: &Counters) -> Vec<Family> {
            match *self {}
        }

        pub(in crate::run::gatekeeper) fn told(&self, _counters: &Counters) -> String {
            match *self {}
        }
    }
}

#[cfg(all(test, feature = "xdp", target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn where_no_port_is_all_in_front_it_is_said_what_to_do() {
        let said = |ports: [&str; 2], front: &str| {
            let [wan, lan] = ports;
            let text = format!(
                "version = 1\nrole = \"gatekeeper\"\n[[port]]\nname = \"wan\"\n{wan}\n[[port]]\nname = \"lan\"\n{lan}\n\
                 [[interface]]\nport = \"wan\"\nvlan = 7\n[gatekeeper]\noffload = \"xdp\"\nfront = [{front}]\n"
            );
            let config = Config::parse(&text, "a.toml").unwrap();
            check(&config, "a.toml").map_err(|error| error.to_string())
        };
        let (file, wire) = ("kind = \"null\"", "kind = \"af_packet\"");
        let error = said([file, file], "\"wan\"").unwrap_err();
        assert!(error.contains("gatekeeper.offload: no port is on a network interface: give"), "{error}");
        for (ports, front, names) in
            [([wire, wire], "\"wan.7\"", "\"wan\", \"lan\""), ([file, wire], "\"wan\"", "\"lan\"")]
        {
            let error = said(ports, front).unwrap_err();
            assert!(error.contains(&format!("({names}) are all interfaces in front: name them")), "{error}");
        }
        assert!(said([wire, wire], "\"wan\", \"wan.7\"").is_ok());
    }
}
