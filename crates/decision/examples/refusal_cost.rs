//! What a datagram costs the worker that refuses it: by size, and by the check that it fails at. Run with `--release`.
//!
//! A row is the fastest of several rounds, so that what else runs on the machine counts little; sizes are of the UDP payload.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;
use tidemill_decision::authenticated::{Header, Writer};
use tidemill_decision::keys::{Direction, Ends, Keyring};
use tidemill_decision::replay::{Stamp, Window};
use tidemill_decision::{Decision, Pair, Verdict, authenticated::Message};

const NOW: u64 = 1_700_000_000_000_000_000;
const ROUNDS: usize = 15;
const CALLS: u32 = 20_000;

fn ns(mut call: impl FnMut() -> bool) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut count = 0_u32;
        for _ in 0..CALLS {
            count += u32::from(black_box(call()));
        }
        black_box(count);
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}

fn main() {
    let keys = Keyring::single(1, &[7; 32]);
    let end = |last, port| (IpAddr::from([10, 0, 0, last]), port);
    let ends = Ends { source: end(2, 41120), destination: end(1, 45232) };
    let stamp = Stamp { epoch_s: 1_700_000_000, sequence: 1 };
    let header =
        Header { direction: Direction::ToGatekeeper, key: 1, stamp, policy_version: 1, time_ns: NOW };
    println!(
        "{:>6} {:>12} {:>12} {:>12} {:>12}",
        "bytes", "header ns", "forged ns", "replayed ns", "read ns"
    );
    for grants in [0, 1, 8, 18, 35, 51] {
        let mut buffer = [0; 1472];
        let Ok(mut writer) = Writer::new(&mut buffer) else { return };
        for n in 0..grants {
            let flow = Pair::V4 { src: n, dst: 2 };
            let verdict =
                Verdict::Granted { rate_kib_s: 1, expire_s: 2, renew_ms: 3, step_ms: 4, direct: false };
            if writer.push(&Message::Decision(Decision { flow, verdict })).is_err() {
                return;
            }
        }
        let good = writer.seal(&keys, &header, &ends).to_vec();
        let mut forged = good.clone();
        if let Some(last) = forged.last_mut() {
            *last ^= 1;
        }
        let window = Window::default();
        window.take(stamp);
        // The header, and how many messages were read.
        let open = |datagram: &[u8], read: bool| {
            let header = Header::read(black_box(datagram), Direction::ToGatekeeper).ok()?;
            let opened = keys.open(&header, datagram, &ends, (NOW, 1)).ok()?;
            Some((header, if read { opened.filter(Result::is_ok).count() } else { 0 }))
        };
        println!(
            "{:>6} {:>12.1} {:>12.1} {:>12.1} {:>12.1}",
            good.len(),
            ns(|| Header::read(black_box(&forged), Direction::ToGatekeeper)
                .is_ok_and(|header| window.knows(header.stamp))),
            ns(|| open(&forged, false).is_some()),
            ns(|| open(&good, false).is_some_and(|(header, _)| window.take(header.stamp))),
            ns(|| open(&good, true).is_some_and(|(_, read)| read == grants as usize)),
        );
    }
}
