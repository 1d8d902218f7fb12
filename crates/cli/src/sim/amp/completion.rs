//! `tok-5.12` and `tok-5.13`: how long an attack goes on until all of it is filtered (Tokusashi 2019, 5.4.4).
//!
//! A model in time. Amplifiers send in turn at a rate; what the mitigator lets through reaches a victim half a round trip later, who
//! sends an ICMP message if Linux's limits let it ([`super::victim`]), which is back at the mitigator after the other half. It is over when
//! every amplifier's packet in a row is dropped; its time is when the last one passed. The paper's table and CAM are
//! [yardsticks](tidemill_amp::yardstick); ours is the mitigator itself, as it comes configured. On wires, with the real kernel, the same is
//! done by the namespaces' tests.

use super::real::Real;
use super::victim::{Limits, Victim};
use super::{Amp, Figure};
use crate::bench::drawing::{Drawing, Panel, Series};
use crate::progress::Progress;
use anyhow::Result;
use std::collections::VecDeque;
use tidemill_amp::yardstick::{Bits, Cam, Direct, Function, Order, Place, RuleTable, Seen, Tuple4};

/// The paper's numbers of amplifiers.
const AMPLIFIERS: [u32; 7] = [512, 1024, 2048, 4096, 8192, 16384, 32768];
/// The paper's expiry, seconds: nothing expires meanwhile.
const EXPIRY_S: u16 = 7830;
/// Without a new rule for so long it goes on for ever.
const HOPELESS_NS: u64 = 3_000_000_000;

/// Packets between two looks whether it is time to say how far it is.
const BEAT: u64 = 1 << 16;

/// An attack.
#[derive(Debug, Clone, Copy)]
struct Attack {
    amplifiers: u32,
    pps: u64,
    round_trip_ns: u64,
    limits: Limits,
}

/// What became of it.
#[derive(Debug, Default)]
struct Course {
    /// When the last packet passed; nothing: some pass for ever.
    done_ns: Option<u64>,
    passed: u64,
    messages: u64,
    /// Packets that passed, by stretches of time.
    by_time: Vec<u32>,
}

impl Attack {
    fn tuple(&self, packet: u64) -> Tuple4 {
        let amplifier = (packet % u64::from(self.amplifiers)) as u32;
        let source = 0x0a00_0000 + amplifier;
        Tuple4 { source, destination: 0xac10_0001, source_port: 53, destination_port: 40_000 }
    }

    /// Plays it, until it is over or cannot be, but for so long at least. Packets that pass are counted by stretches of time.
    fn run(&self, table: &mut dyn RuleTable, least_ns: u64, stretch_ns: u64, progress: &Progress) -> Course {
        let (mut course, mut victim) = (Course::default(), Victim::new(self.limits));
        // On their way back to the mitigator, with the time at which they are there.
        let mut messages: VecDeque<(u64, Tuple4)> = VecDeque::new();
        let (mut dropped_in_a_row, mut last_passed_ns, mut last_rule_ns) = (0, 0, 0);
        for packet in 0_u64.. {
            let now_ns = (u128::from(packet) * 1_000_000_000 / u128::from(self.pps)) as u64;
            if packet % BEAT == 0 {
                progress.beat();
            }
            while let Some((at_ns, tuple)) = messages.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
                if table.confirm(&tuple, (at_ns / 1_000_000_000) as u32) {
                    last_rule_ns = at_ns;
                }
            }
            if now_ns >= least_ns && now_ns - last_rule_ns > HOPELESS_NS + self.round_trip_ns {
                break;
            }
            let tuple = self.tuple(packet);
            if table.packet(&tuple, (now_ns / 1_000_000_000) as u32) == Seen::Filtered {
                dropped_in_a_row += 1;
                if dropped_in_a_row == self.amplifiers {
                    course.done_ns = Some(last_passed_ns);
                    break;
                }
                continue;
            }
            (dropped_in_a_row, last_passed_ns) = (0, now_ns);
            course.passed += 1;
            let stretch = (now_ns / stretch_ns) as usize;
            course.by_time.resize(course.by_time.len().max(stretch + 1), 0);
            course.by_time[stretch] += 1;
            if victim.sends(now_ns + self.round_trip_ns / 2, tuple.source) {
                course.messages += 1;
                messages.push_back((now_ns + self.round_trip_ns, tuple));
            }
        }
        course
    }
}

/// Who keeps the rules.
const TABLES: [&str; 3] = ["table of 262144 entries, crc32", "CAM of 1024 entries", "the mitigator"];

fn table(name: &str, limits: Limits) -> Result<Box<dyn RuleTable>> {
    let place = Place { function: Function::Crc32, order: Order::Little, bits: Bits::Low };
    Ok(match name {
        name if name == TABLES[0] => Box::new(Direct::new(place, 18, EXPIRY_S)),
        name if name == TABLES[1] => Box::new(Cam::new(Cam::PAPER, EXPIRY_S.into())),
        // One address stands for many victims, as in the paper: the mitigator does not limit what it says.
        _ => Box::new(Real::new(limits.messages_per_s.is_some())?),
    })
}

/// Who is attacked.
const VICTIMS: [(&str, Limits); 3] = [
    ("one victim", Limits::ONE_HOST),
    ("one victim, and 1 a second to each amplifier", Limits::LINUX),
    ("many victims", Limits::MANY_HOSTS),
];

fn attack(args: &Amp, amplifiers: u32, limits: Limits) -> Attack {
    Attack { amplifiers, pps: args.pps, round_trip_ns: (args.rtt_ms * 1e6) as u64, limits }
}

fn notes(args: &Amp) -> Vec<String> {
    vec![
        format!("a model: {} packets/s, round trip {} ms; Linux's limits of ICMP messages", args.pps, args.rtt_ms),
        "the paper draws curves and gives no numbers; it says that one victim's 1000 messages/s set the pace, that many victims are \
         served at once, and that the CAM is never done with more than 1K amplifiers"
            .into(),
    ]
}

/// `tok-5.13`.
pub(super) fn times(args: &Amp, figure: &'static Figure) -> Result<Drawing> {
    let progress = Progress::new("sim amp", (VICTIMS.len() * TABLES.len() * AMPLIFIERS.len()) as u64);
    let mut panels = Vec::new();
    for (victims, limits) in VICTIMS {
        let (mut seconds, mut passed) = (Vec::new(), Vec::new());
        for name in TABLES {
            let (mut times, mut packets) = (Vec::new(), Vec::new());
            for amplifiers in AMPLIFIERS {
                let course = attack(args, amplifiers, limits).run(
                    table(name, limits)?.as_mut(),
                    0,
                    u64::MAX,
                    &progress,
                );
                if let Some(done_ns) = course.done_ns {
                    times.push((f64::from(amplifiers), done_ns as f64 / 1e9, None));
                    packets.push((f64::from(amplifiers), course.passed as f64, None));
                }
                progress.add(1);
            }
            seconds.push(Series::new(name, times));
            passed.push(Series::new(name, packets));
        }
        let panel =
            |y, series| Panel { missing: "never", ..Panel::new(format!("amplifiers, {victims}"), y, series) };
        panels.push(panel("seconds until all are filtered", seconds));
        panels.push(panel("packets that passed", passed));
    }
    Ok(Drawing { panels, notes: notes(args), ..figure.drawing() })
}

/// `tok-5.12`.
pub(super) fn course(args: &Amp, figure: &'static Figure) -> Result<Drawing> {
    /// Points of a curve.
    const POINTS: u64 = 20;
    let shown = &AMPLIFIERS[..5];
    let progress = Progress::new("sim amp", (2 * TABLES.len() * shown.len()) as u64);
    let mut panels = Vec::new();
    for (victims, limits) in [VICTIMS[0], VICTIMS[2]] {
        // As long as the largest attack takes, by the rate of messages or of packets.
        let most = u64::from(AMPLIFIERS[4]);
        let whole_ns = match limits.messages_per_s {
            Some(messages) => most * 1_000_000_000 / messages,
            None => most * 1_000_000_000 / args.pps + (args.rtt_ms * 1e6) as u64,
        };
        let stretch_ns = (whole_ns / (POINTS - 4)).max(1);
        for name in TABLES {
            let mut curves = Vec::new();
            for &amplifiers in shown {
                let attack = attack(args, amplifiers, limits);
                let course =
                    attack.run(table(name, limits)?.as_mut(), POINTS * stretch_ns, stretch_ns, &progress);
                let rate = |stretch: u64| {
                    let passed = course.by_time.get(stretch as usize).copied().unwrap_or(0);
                    (
                        stretch as f64 * stretch_ns as f64 / 1e9,
                        f64::from(passed) * 1e6 / stretch_ns as f64,
                        None,
                    )
                };
                curves.push(Series::new(format!("{amplifiers} amplifiers"), (0..POINTS).map(rate)));
                progress.add(1);
            }
            panels.push(Panel::new(
                format!("seconds, {victims}, {name}"),
                "thousand packets/s that pass",
                curves,
            ));
        }
    }
    Ok(Drawing { panels, notes: notes(args), ..figure.drawing() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done_s(name: &str, amplifiers: u32, limits: Limits) -> Option<f64> {
        let attack = Attack { amplifiers, pps: 50_000, round_trip_ns: 1_000_000, limits };
        let course =
            attack.run(table(name, limits).unwrap().as_mut(), 0, u64::MAX, &Progress::new("test", 1));
        assert!(course.passed >= u64::from(amplifiers.min(1024)), "each has to be learnt");
        course.done_ns.map(|ns| ns as f64 / 1e9)
    }

    #[test]
    fn one_victim_takes_a_millisecond_for_each_amplifier() {
        for name in [TABLES[0], TABLES[2]] {
            for amplifiers in [512, 1024, 4096] {
                let expected = (f64::from(amplifiers) - 50.0) / 1000.0;
                let done = done_s(name, amplifiers, Limits::ONE_HOST).unwrap();
                assert!((expected..expected + 0.2).contains(&done), "{name}, {amplifiers}: {done}");
            }
        }
    }

    #[test]
    fn many_victims_take_a_packet_of_each_amplifier_and_a_round_trip() {
        for name in [TABLES[0], TABLES[2]] {
            let done = done_s(name, 4096, Limits::MANY_HOSTS).unwrap();
            assert!((0.0819..0.083).contains(&done), "{name}: {done}");
        }
    }

    #[test]
    fn a_cam_is_done_with_as_many_as_it_has_entries() {
        for limits in [Limits::ONE_HOST, Limits::MANY_HOSTS] {
            assert!(done_s(TABLES[1], 1024, limits).is_some());
            assert_eq!(done_s(TABLES[1], 1025, limits), None);
        }
    }
}
