//! Who waits as long is served as early, whoever he is: what a newcomer waits behind sources that are never answered and ask again and again.

#![allow(clippy::unwrap_used)] // a test may

use tidemill_gatekeeper::flow::priority::{FIRST, level};
use tidemill_gatekeeper::{Act, FlowState};
use tidemill_ip::queue::Requests;

const MS: u64 = 1_000_000;
const START: u64 = 1_700_000_000_000 * MS;
/// From one packet of the flood to the next, and from one request that is served to the next: forty times as many come.
const PACKET_NS: u64 = 50_000;
const SERVED_NS: u64 = 40 * PACKET_NS;
/// Requests that there is room for.
const ROOM: usize = 128;
/// A newcomer asks again after so long, and then after twice as long each time.
const AGAIN_NS: u64 = 600 * MS;

#[derive(Default)]
struct Newcomer {
    flow: FlowState,
    begins: u64,
    next: u64,
    gap: u64,
    heard: Option<u64>,
}

fn asks(flow: &mut FlowState, now_ns: u64) -> u8 {
    match flow.packet(now_ns, 100) {
        Act::Request { dscp } => dscp,
        act => panic!("nobody has decided: {act:?}"),
    }
}

/// How long each of thirty newcomers waits, in ns, while each of so many sources asks in turn.
fn waits(sources: u64, until_ns: u64) -> Vec<u64> {
    let mut flood = vec![FlowState::default(); sources as usize];
    let (mut requests, mut served_ns) = (Requests::new(ROOM), START);
    // By then the flood has used up what new flows are allowed.
    let warm_ns = START + (sources * PACKET_NS * 2).max(2000 * MS);
    let newcomer = |n: u64| {
        let begins = warm_ns + n * 37 * MS;
        Newcomer { begins, next: begins, gap: AGAIN_NS, ..Newcomer::default() }
    };
    let mut newcomers: Vec<Newcomer> = (0..30).map(newcomer).collect();
    for packet in 0..(warm_ns - START + until_ns) / PACKET_NS {
        let now_ns = START + packet * PACKET_NS;
        let dscp = asks(&mut flood[(packet % sources) as usize], now_ns);
        if requests.admits(dscp) {
            requests.push(now_ns, dscp, 100, None);
        }
        for (number, one) in newcomers.iter_mut().enumerate() {
            if one.heard.is_none() && now_ns >= one.next {
                let dscp = asks(&mut one.flow, now_ns);
                if requests.admits(dscp) {
                    requests.push(now_ns, dscp, 100, Some(number));
                }
                one.next += one.gap;
                one.gap *= 2;
            }
        }
        while served_ns <= now_ns {
            served_ns += SERVED_NS;
            if let Some((_, _, Some(number))) = requests.pop(now_ns) {
                newcomers[number].heard.get_or_insert(now_ns);
            }
        }
    }
    newcomers.iter().map(|one| one.heard.unwrap() - one.begins).collect()
}

/// A newcomer is heard with the first packet that he has waited for longer than they have: at once behind those who ask more often than every 0.27 s, within a second behind those who
/// ask as he does, and behind those who wait for longer within eight times as long as they wait.
#[test]
fn a_newcomer_is_heard_when_he_has_waited_longer_than_the_flood() {
    for (apart_ms, wanted_ms) in [(100, 0), (330, 600), (700, 1800), (1400, 4200), (3000, 9000)] {
        let apart_ns = apart_ms * MS;
        assert!(wanted_ms <= 8 * apart_ms);
        assert_eq!(wanted_ms == 0, level(apart_ns) < FIRST);
        let waits = waits(apart_ns / PACKET_NS, (wanted_ms + 30 * 37 + 100) * MS);
        let shown = || waits.iter().map(|ns| ns / MS).collect::<Vec<_>>();
        // Nobody is lucky before: at the flood's own level it is the flood that finds each place that comes free.
        let wanted = wanted_ms * MS..=(wanted_ms + 10) * MS;
        assert!(waits.iter().all(|ns| wanted.contains(ns)), "{apart_ms} ms: {:?}", shown());
    }
}
