//! The program against the decision in user space: the same frames, one by one, through both.

use crate::net::inside;
use crate::packets::{Wrapping, answer, plain, unreachable};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
use tidemill_amp::offload::{Offload, OffloadSettings, RuleEvent};
use tidemill_amp::{Counter, Mitigator, MitigatorSection, Mode, Settings, Side, Tuple};
use tidemill_bpf::Verdict;
use tidemill_wire::flow::Addresses;

/// User space and the program, with the same rules.
struct Both {
    settings: Settings,
    user: Mitigator,
    xdp: XdpOffload,
    now_ns: u64,
}

fn settings_of(settings: &Settings) -> OffloadSettings {
    OffloadSettings {
        tuple: settings.mode as u8,
        protocols: settings.protocols.clone(),
        dry_run: settings.dry_run,
        entries: 1000,
    }
}

impl Both {
    fn new(section: &str) -> Self {
        let section: MitigatorSection = toml::from_str(section).unwrap();
        let settings = Settings::new(&section).unwrap();
        // An interface that is not there: the program is asked without one.
        let mut xdp = XdpOffload::open(&XdpOptions::new("nowhere")).unwrap();
        let error = xdp.configure(&settings_of(&settings)).unwrap_err();
        assert!(error.contains("nowhere"), "{error}");
        let user = Mitigator::new(1 << 16, 7).unwrap();
        Both { settings, user, xdp, now_ns: 1_000_000_000_000 }
    }

    /// User space learns it; the program is told.
    fn filter(&mut self, tuple: &Tuple) {
        self.user_drops(Side::Outside, &plain(tuple));
        self.user_drops(Side::Inside, &unreachable(tuple));
        let key = tuple.masked(self.settings.mode);
        let expires_ns = self.now_ns + 1_000_000_000_000;
        self.xdp.apply(self.now_ns, &[RuleEvent::Filtered { key, expires_ns }], &|_| true);
    }

    fn user_drops(&mut self, side: Side, frame: &[u8]) -> bool {
        let mut dropped = false;
        self.user.decide(
            &self.settings,
            self.now_ns,
            &[(side, frame)],
            |item| (item.0, item.1),
            |_| dropped = true,
        );
        dropped
    }

    fn xdp_drops(&self, frame: &[u8]) -> bool {
        let action = self.xdp.front().with(|object| object.run(frame, 1).unwrap().action);
        assert!(matches!(action, Verdict::DROP | Verdict::PASS), "{action}");
        action == Verdict::DROP
    }
}

fn pick<T: Copy>(rng: &mut StdRng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

fn random_tuple(rng: &mut StdRng) -> Tuple {
    let (s, d) = (rng.random_range(1..4_u32), rng.random_range(1..3_u32));
    let addresses = if rng.random_range(0..2) == 0 {
        Addresses::V4 { src: 0x0a00_0000 | s, dst: 0xc000_0200 | d }
    } else {
        let net = 0x2001_0db8_u128 << 96;
        Addresses::V6 { src: net | u128::from(s), dst: net | 0xff00 | u128::from(d) }
    };
    Tuple { addresses, source_port: pick(rng, &[53, 123, 5353]), destination_port: pick(rng, &[4000, 4001]) }
}

fn random_frame(rng: &mut StdRng, ident: u32) -> Vec<u8> {
    let rare = |rng: &mut StdRng, one_in: u32| rng.random_range(0..one_in) == 0;
    let tags = if rare(rng, 3) { rng.random_range(0..6) } else { 0 };
    let extensions = if rare(rng, 2) { pick(rng, &[0, 1, 2, 3, 15, 16, 17]) } else { 0 };
    let fragment = rare(rng, 2).then(|| (ident, pick(rng, &[0, 0, 1, 180]), rng.random_range(0..2) == 0));
    let wrapping = Wrapping {
        tags: (0..tags).map(|_| pick(rng, &[0x8100, 0x88a8, 0x9100])).collect(),
        options: if rare(rng, 3) { rng.random_range(0..11) } else { 0 },
        extensions: (0..extensions)
            .map(|at| if at == 0 && rare(rng, 3) { 0 } else { pick(rng, &[43, 60, 51, 44]) })
            .collect(),
        fragment,
        payload: rng.random_range(0..64),
    };
    let mut frame = answer(&random_tuple(rng), &wrapping);
    if rare(rng, 2) {
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(12..frame.len());
            let any = rng.random();
            frame[at] = pick(rng, &[0, 1, 4, 6, 17, 44, 60, 0xff, any]);
        }
    }
    if rare(rng, 4) {
        frame.truncate(rng.random_range(14..=frame.len()));
    }
    frame
}

#[test]
fn root_amp_xdp_decides_as_user_space_does() {
    if !inside("oracle::root_amp_xdp_decides_as_user_space_does") {
        return;
    }
    let mut rng = StdRng::seed_from_u64(810);
    for mode in [Mode::Four, Mode::Three, Mode::Two, Mode::One] {
        for dry_run in [false, true] {
            let section =
                format!("tuple = {}\nprotocols = [53, 123]\nicmp_rate = 0\ndry_run = {dry_run}", mode as u8);
            let mut both = Both::new(&section);
            // A third of those that there can be. What is from another port than a protocol's never becomes a rule.
            for _ in 0..if mode < Mode::Three { 6 } else { 16 } {
                let tuple = random_tuple(&mut rng);
                if tuple.source_port != 5353 {
                    both.filter(&tuple);
                }
            }
            // Of those that came twice, user space has dropped some already.
            let start = both.user.counters().clone();
            let (mut drops, mut frames) = (0, 0);
            // Identifications are new from time to time, so that nothing hangs on when exactly one is forgotten.
            for round in 0..100_u32 {
                for _ in 0..200 {
                    let ident = round * 8 + rng.random_range(0..6);
                    let frame = random_frame(&mut rng, ident);
                    let before = both.user.counters().get(Counter::WouldDrop);
                    let (user, xdp) = (both.user_drops(Side::Outside, &frame), both.xdp_drops(&frame));
                    assert_eq!(user, xdp, "{mode:?}, dry run {dry_run}: {frame:02x?}");
                    let would = both.user.counters().get(Counter::WouldDrop) - before;
                    let so_far = before + would - start.get(Counter::WouldDrop);
                    assert_eq!(both.xdp.counters().would_drop.packets, so_far, "{frame:02x?}");
                    (drops, frames) = (drops + u64::from(user) + would, frames + 1);
                }
            }
            assert!(drops > frames / 100 && drops < frames / 2, "{mode:?}: {drops} of {frames}");
            let (end, of) = (both.user.counters(), both.xdp.counters());
            let since = |counter| end.get(counter) - start.get(counter);
            assert_eq!(of.dropped.packets, since(Counter::Dropped));
            assert_eq!(of.dropped.bytes, since(Counter::DroppedBytes));
            assert_eq!(of.would_drop.bytes, since(Counter::WouldDropBytes));
            assert_eq!(of.rules, end.get(Counter::Rules), "no rule is missing");
            println!("{mode:?}, dry run {dry_run}: {frames} frames, {drops} kept away by both");
        }
    }
}
