//! The mitigator with the program and without: the same packets on a real cable, the same fate and the same numbers.

use crate::net::{cable, inside, run};
use crate::packets::{Wrapping, answer, plain, tuple, unreachable};
use crate::{End, KINDS, through};
use std::collections::BTreeMap;
use tidemill_amp::offload::Hits;
use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
use tidemill_amp::{Counter, Mitigator, MitigatorControl, Side, Status, Tuple, Wanted};
use tidemill_lookup::qsbr::Domain;

/// A mitigator, driven by hand, on the end of a cable.
struct Inline {
    control: MitigatorControl,
    mitigator: Box<Mitigator>,
    left: End,
    right: End,
    now_ns: u64,
}

impl Inline {
    fn new(offload: bool, kind: &str, dry_run: bool) -> Self {
        cable("left", "right");
        let kind_of = if offload { "xdp" } else { "none" };
        let text = format!(
            "icmp_rate = 0\nallow = [\"198.51.100.6/32\"]\ndry_run = {dry_run}\noffload = \"{kind_of}\""
        );
        let ports = ["outside".to_owned(), "inside".to_owned()];
        let section = toml::from_str(&text).unwrap();
        let mut control = MitigatorControl::new(&section, &ports, 1, &Domain::new()).unwrap();
        let xdp = offload.then(|| XdpOffload::open(&XdpOptions::new("right")).unwrap());
        let right = End::new("right", kind, xdp.as_ref());
        if let Some(xdp) = xdp {
            control.set_offload(Box::new(xdp)).unwrap();
        }
        let mitigator = control.mitigator(0).unwrap();
        Inline { control, mitigator, left: End::new("left", KINDS[0], None), right, now_ns: 50_000_000_000 }
    }

    fn decide(&mut self, side: Side, frame: &[u8]) -> bool {
        let (settings, mut dropped) = (self.control.settings().clone(), false);
        let burst = [(side, frame)];
        self.mitigator.decide(&settings, self.now_ns, &burst, |item| (item.0, item.1), |_| dropped = true);
        dropped
    }

    /// Between bursts.
    fn breathe(&mut self) {
        let settings = self.control.settings().clone();
        self.mitigator.tick(&settings, self.now_ns);
        self.control.poll(self.now_ns);
    }

    /// From outside: what reaches the inside.
    fn come(&mut self, frames: &[Vec<u8>], wanted: usize) -> Vec<Vec<u8>> {
        let mut passed = through(&mut self.left, &mut self.right, frames, wanted);
        passed.retain(|frame| !self.decide(Side::Outside, frame));
        self.breathe();
        passed
    }

    fn go(&mut self, frame: &[u8]) {
        assert!(!self.decide(Side::Inside, frame));
        self.breathe();
    }
}

/// What is to be the same.
#[derive(Debug, PartialEq)]
struct Outcome {
    passed: Vec<Vec<Vec<u8>>>,
    kept_away: Hits,
    would: Hits,
    rules: BTreeMap<Tuple, Hits>,
}

fn flow(n: u16) -> Tuple {
    let (source, destination) = if n % 3 == 2 {
        (format!("2001:db8::{n:x}"), "2001:db8:1::1")
    } else {
        (format!("198.51.100.{n}"), "192.0.2.1")
    };
    tuple(&source, [53, 123, 389][usize::from(n) % 3], destination, 4000 + n)
}

/// A question for an answer.
pub(crate) fn question(answer: &Tuple) -> Vec<u8> {
    use tidemill_wire::flow::Addresses;
    let addresses = match answer.addresses {
        Addresses::V4 { src, dst } => Addresses::V4 { src: dst, dst: src },
        Addresses::V6 { src, dst } => Addresses::V6 { src: dst, dst: src },
    };
    plain(&Tuple { addresses, source_port: answer.destination_port, destination_port: answer.source_port })
}

fn history(offload: bool, kind: &str, dry_run: bool) -> (Outcome, u64) {
    let mut one = Inline::new(offload, kind, dry_run);
    let wrapped = |n: u16, wrapping: Wrapping| answer(&flow(n), &Wrapping { payload: 40, ..wrapping });
    let frames: Vec<Vec<u8>> = (1..=12)
        .flat_map(|n| {
            vec![
                plain(&flow(n)),
                wrapped(n, Wrapping { tags: vec![0x8100], ..Wrapping::default() }),
                wrapped(n, Wrapping { fragment: Some((u32::from(n), 0, true)), ..Wrapping::default() }),
                wrapped(n, Wrapping { fragment: Some((u32::from(n), 6, false)), ..Wrapping::default() }),
                crate::numbered(n.into(), 60),
            ]
        })
        .collect();
    let mut passed = vec![one.come(&frames, frames.len())];
    assert_eq!(passed[0], frames);
    // The victims of eight flows complain; one of these is on the allow-list.
    (1..=8).for_each(|n| one.go(&unreachable(&flow(n))));
    for round in 0..5 {
        if round == 3 {
            // Somebody asks after all.
            one.go(&question(&flow(4)));
        }
        passed.push(one.come(&frames, 0));
    }
    let counters = one.control.counters();
    let sum = |packets: &[Counter], bytes: &[Counter]| Hits {
        packets: packets.iter().map(|counter| counters.get(*counter)).sum(),
        bytes: bytes.iter().map(|counter| counters.get(*counter)).sum(),
    };
    let kept_away = sum(
        &[Counter::Dropped, Counter::OffloadDropped],
        &[Counter::DroppedBytes, Counter::OffloadDroppedBytes],
    );
    let would = sum(&[Counter::WouldDrop], &[Counter::WouldDropBytes]);
    let wanted = Wanted { status: Some(Status::Filtered), address: None, cursor: None, limit: 100 };
    let rules = one.control.rules(&wanted, one.now_ns).rules;
    let rules = rules.into_iter().map(|rule| (rule.tuple, rule.hits)).collect();
    let in_driver = counters.get(Counter::OffloadDropped) + counters.get(Counter::OffloadWouldDrop);
    println!("offload {offload}, {kind:?}: {:?}", counters.nonzero().collect::<Vec<_>>());
    println!("{:?}", one.control.take_notes());
    drop(one);
    run("ip link del left");
    (Outcome { passed, kept_away, would, rules }, in_driver)
}

#[test]
fn root_amp_xdp_keeps_the_same_books_as_user_space() {
    if !inside("both::root_amp_xdp_keeps_the_same_books_as_user_space") {
        return;
    }
    let (alone, none) = history(false, KINDS[0], false);
    assert_eq!((none, alone.rules.len()), (0, 6), "seven of eight may be filtered, and one was lifted");
    assert!(alone.kept_away.packets > 100, "{:?}", alone.kept_away);
    for kind in KINDS {
        let (with, in_driver) = history(true, kind, false);
        assert_eq!(with, alone);
        assert_eq!(in_driver, alone.kept_away.packets, "all of it in the driver");
    }
    // A dry run keeps nothing away, and says what it would have.
    let (alone, _) = history(false, KINDS[0], true);
    let (with, in_driver) = history(true, KINDS[0], true);
    assert_eq!(with, alone);
    assert_eq!((in_driver, alone.kept_away), (alone.would.packets, Hits::default()));
}
