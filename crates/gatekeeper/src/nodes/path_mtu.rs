//! `path-mtu`: ICMP errors about our outer packets, among the packets to ourselves: "fragmentation needed" (RFC 792, RFC 1191), "packet too
//! big" (RFC 4443 3.2). What is believed of them, and what becomes of it, is in [`path`](crate::tunnel::path). All else goes on to `local`.
//!
//! ```text
//!  counter              to
//!  path-mtu-lowered     consumed   the way to a Grantor is narrower than we knew
//!  path-mtu-known       consumed   we knew
//!  path-mtu-refused     local      by the front; about a packet that we have not sent; below what we go down to
//!  path-mtu-unchecked   local      more than 16 in a burst
//! ```
//! At `local` such a packet is dropped as `local-unhandled`, as any ICMP error to us.
//!
//! Costs: a look at the protocol; for an error a checksum of what it quotes and a search among the Grantors, [`LOOKS`] times a burst at most.
//!
//! Outputs: `local`.

use crate::counters::{Board, Counter, Counters};
use crate::settings::Settings;
use crate::tunnel::path::{Heard, hear};
use crate::tunnel::{Endpoints, Outer};
use tidemill_burst::{Packet, Pool};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_lookup::publish::View;
use tidemill_wire::ipv4;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["local"];

const LOCAL: u8 = 0;

/// Errors of a burst that are looked at.
pub const LOOKS: usize = 16;

/// The node.
pub struct PathMtu {
    settings: View<Settings>,
    endpoints4: View<Endpoints<u32>>,
    endpoints6: View<Endpoints<u128>>,
    counters: Counters,
    board: Board,
}

impl PathMtu {
    /// One worker's, which shows its numbers there.
    pub(crate) fn new(
        settings: View<Settings>,
        endpoints4: View<Endpoints<u32>>,
        endpoints6: View<Endpoints<u128>>,
        board: Board,
    ) -> Self {
        PathMtu { settings, endpoints4, endpoints6, counters: Counters::default(), board }
    }

    /// What an error to us says, if it is one about a tunnel's packet.
    fn heard(&self, cx: &Context<'_>, packet: &Packet, ip: &[u8]) -> Option<Heard> {
        let by_the_front = self.settings.get(cx.reader).is_front(packet.port);
        let heard = if ip.first().map(|_| ipv4::version(ip))? == 6 {
            let error = u128::too_big(ip)?;
            (!by_the_front).then(|| hear(cx.now_ns, self.endpoints6.get(cx.reader), &error))
        } else {
            let error = u32::too_big(ip)?;
            (!by_the_front).then(|| hear(cx.now_ns, self.endpoints4.get(cx.reader), &error))
        };
        Some(heard.flatten().unwrap_or(Heard::Refused))
    }
}

/// Whether the packet may be such an error, by the bytes that tell it from most others: protocol and type.
fn may_be(ip: &[u8]) -> bool {
    match ip.first() {
        Some(first) if first >> 4 == 4 => {
            ip.get(9) == Some(&1) && ip.get(usize::from(first & 15) * 4) == Some(&3)
        }
        Some(first) if first >> 4 == 6 => ip.get(6) == Some(&58) && ip.get(40) == Some(&2),
        _ => false,
    }
}

impl Node for PathMtu {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let (mut looks, mut any) = (0, false);
        for (packet, verdict) in burst.iter().zip(verdicts) {
            *verdict = Verdict::Next(LOCAL);
            let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
            if !may_be(ip) {
                continue;
            }
            looks += 1;
            let counter = match looks <= LOOKS {
                false => Counter::PathMtuUnchecked,
                true => match self.heard(cx, packet, ip) {
                    None => continue,
                    Some(Heard::Refused) => Counter::PathMtuRefused,
                    Some(heard) => {
                        *verdict = Verdict::Consume;
                        if heard == Heard::Lowered { Counter::PathMtuLowered } else { Counter::PathMtuKnown }
                    }
                },
            };
            self.counters.one(counter);
            any = true;
        }
        if any {
            self.board.show(&self.counters);
        }
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        self.board.show(&self.counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Action, GatekeeperSection, PolicyConfig};
    use crate::control::GatekeeperControl;
    use crate::tunnel::path::tests::{error4, error6};
    use std::sync::{Arc, Mutex};
    use tidemill_burst::{Burst, Memory};
    use tidemill_graph::{Clock, Engine, GraphBuilder, Limits, Options};
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_lookup::qsbr::Domain;
    use tidemill_port::{Port, PortCounters, PortError, RxStatus};

    const NOW: u64 = 1_000_000_000_000;

    /// Gives one burst, and counts what comes back.
    struct Wire {
        frames: Option<Vec<Vec<u8>>>,
        sent: Arc<Mutex<usize>>,
        counters: PortCounters,
    }

    impl Port for Wire {
        fn name(&self) -> &str {
            "wire"
        }

        fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
            let Some(frames) = self.frames.take() else { return Ok(RxStatus::Ended) };
            for frame in frames {
                let mut packet = pool.packet(&frame).unwrap();
                packet.set_timestamp_ns(NOW);
                packet.l3 = 14;
                self.counters.rx.count(frame.len());
                assert!(burst.push(packet).is_ok());
            }
            Ok(RxStatus::Received)
        }

        fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
            *self.sent.lock().unwrap() += burst.len();
            burst.iter().for_each(|packet| self.counters.tx.count(packet.len()));
            pool.free_all(burst);
            Ok(())
        }

        fn counters(&self) -> PortCounters {
            self.counters
        }
    }

    /// Gives these IP packets to the node, as they come in by port 0 (in front) or 1. Returns how many went on to `local`.
    fn run(control: &GatekeeperControl, domain: &Domain, port: u16, packets: &[Vec<u8>]) -> usize {
        let sent = Arc::new(Mutex::new(0));
        let frames = packets.iter().map(|ip| [&[0; 14][..], ip].concat()).collect();
        let mut inputs = [None, None];
        inputs[usize::from(port)] = Some(frames);
        let mut graph = GraphBuilder::new(["front", "back"]);
        graph.input("front", "path-mtu").input("back", "path-mtu");
        let (settings, board) = (control.settings.view(), control.paths[0].clone());
        let ends = (control.v4.policies.endpoints(), control.v6.policies.endpoints());
        graph.node("path-mtu", OUTPUTS, move |_| {
            Box::new(PathMtu::new(settings.clone(), ends.0.clone(), ends.1.clone(), board.clone()))
        });
        graph.edge("path-mtu", "local", "port:back");
        let ports = inputs.into_iter().map(|frames| {
            let wire = Wire {
                frames: Some(frames.unwrap_or_default()),
                sent: sent.clone(),
                counters: PortCounters::default(),
            };
            vec![Box::new(wire) as Box<dyn Port>]
        });
        let options = Options {
            clock: Clock::Capture,
            frames_per_worker: 512,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let memory = Memory::new(512, 2048).unwrap();
        let engine =
            Engine::new(graph.build().unwrap(), 1, ports.collect(), &memory, domain, options).unwrap();
        let outcome = engine.run(|_| {});
        assert!(outcome.snapshot.ledger().balances());
        *sent.lock().unwrap()
    }

    #[test]
    fn errors_count_by_the_back_only_and_a_few_of_a_burst() {
        let domain = Domain::new();
        let mut back = Interface::of_port(1, "back");
        back.v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
        back.v6.push(("2001:db8:1::1".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()));
        let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back], 2);
        let policy = |prefix: &str, grantor: &str| PolicyConfig {
            prefix: prefix.into(),
            action: Action::Grantor,
            grantors: vec![grantor.into()],
        };
        let section = GatekeeperSection {
            policy: vec![policy("10.99.0.0/16", "10.20.30.40"), policy("fd00:99::/32", "fd00:20::40")],
            flows: 100,
            ..GatekeeperSection::default()
        };
        let control = GatekeeperControl::new(&section, &interfaces, 1, &domain).unwrap();
        let reader = domain.register();
        let (ends4, ends6) = (control.v4.policies.endpoints(), control.v6.policies.endpoints());
        let paths = || (ends4.get(&reader)[0].path(), ends6.get(&reader)[0].path());
        paths().0.note(NOW, 1500);
        paths().1.note(NOW, 1500);
        // Of the last run: each has a node of its own.
        let counts = |wanted: [u64; 4]| {
            let names = [
                Counter::PathMtuLowered,
                Counter::PathMtuKnown,
                Counter::PathMtuRefused,
                Counter::PathMtuUnchecked,
            ];
            assert_eq!(names.map(|name| control.counters().get(name)), wanted);
        };
        let both = [error4(1500, 1400), error6(1500, 1400)];
        // Anything else goes on, and counts nothing.
        assert_eq!(run(&control, &domain, 1, &[vec![0x45; 60], vec![0x60; 60], vec![1; 20]]), 3);
        counts([0; 4]);
        assert_eq!(run(&control, &domain, 0, &both), 2, "by the front");
        counts([0, 0, 2, 0]);
        assert_eq!((paths().0.mtu(NOW), paths().1.mtu(NOW)), (u16::MAX, u16::MAX));
        assert_eq!(run(&control, &domain, 1, &[&both[..], &both[..]].concat()), 0, "consumed");
        counts([2, 2, 0, 0]);
        assert_eq!((paths().0.mtu(NOW), paths().1.mtu(NOW)), (1400, 1400));
        // About packets that were never so long.
        assert_eq!(run(&control, &domain, 1, &[error4(1501, 1300), error6(1501, 1300)]), 2);
        counts([0, 0, 2, 0]);
        // A flood of them: sixteen are looked at.
        let flood: Vec<_> = (0..200).map(|n| error4(1500, 1399 - n)).collect();
        assert_eq!(run(&control, &domain, 1, &flood), 200 - LOOKS);
        counts([LOOKS as u64, 0, 0, 200 - LOOKS as u64]);
        assert_eq!(paths().0.mtu(NOW), 1400 - LOOKS as u16);
    }
}
