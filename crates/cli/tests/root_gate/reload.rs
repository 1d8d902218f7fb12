//! A configuration that changes while packets flow: each key takes effect or is refused by its name, and no packet is lost either way.

use crate::lab::{Answer, CLIENT, Lab, SERVER};
use crate::net::wait_until;
use crate::raw::Raw;
use crate::strangers::udp;
use crate::turn;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tidemill_control::schema::gate;

const LIMIT: Duration = Duration::from_secs(10);
/// A flow of each family that has asked once, and nobody has answered.
const SILENT: [&str; 2] = ["10.7.0.77", "fd00:7::77"];

/// Ends the traffic, whatever becomes of the test.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The address that the last packet of a family came to the Grantor from.
fn last_from(lab: &Lab, v6: usize) -> Option<IpAddr> {
    let came = lab.grantor.came.lock().unwrap();
    let last = came.iter().rev().find(|came| came.inner[0] >> 4 == [4, 6][v6])?;
    match <[u8; 4]>::try_from(&last.from[..]) {
        Ok(v4) => Some(v4.into()),
        Err(_) => Some(<[u8; 16]>::try_from(&last.from[..]).unwrap().into()),
    }
}

fn is_known(lab: &Lab, v6: usize) -> bool {
    let query = gate::FlowQuery { source: SILENT[v6].into(), destination: SERVER[v6].into() };
    let answer: gate::FlowAnswer = lab.control.get(gate::path::FLOW, &query).unwrap();
    !answer.flows.is_empty()
}

/// Changes the configuration in all ways, while packets flow.
fn change(lab: &Lab) {
    let good = lab.config();
    let with = |lines: &str| good.replace("[gatekeeper]\n", &format!("[gatekeeper]\n{lines}\n"));
    assert_ne!(with("x"), good);
    let pause = || std::thread::sleep(Duration::from_millis(100));

    for order in ["flow-first", "one-pass"] {
        for driver in ["plain", "coroutine", "group"] {
            lab.configure(&with(&format!("order = \"{order}\"\ndriver = \"{driver}\"")));
            lab.ask(&["reload"]);
            pause();
        }
    }

    // Nothing of these is taken, the source of our outer packets neither.
    let other_source = |lines: &str| with(&format!("source = [\"10.8.0.9\", \"fd00:8::9\"]\n{lines}"));
    for line in [
        "flows = 4096",
        "program_flows = 100",
        "spread = 9",
        "request_queue = 100",
        "request_percent = 6",
        "bandwidth = \"1 Gbps\"",
    ] {
        lab.configure(&other_source(line));
        let (ok, said) = lab.run(&["reload"]);
        let key = line.split(' ').next().unwrap();
        let wanted =
            format!("gatekeeper.{key}: cannot change while the gatekeeper runs: put it back, or restart");
        assert!(!ok && said.contains(&wanted), "{line}: {said}");
        pause();
        for (v6, from) in ["10.8.0.1", "fd00:8::1"].into_iter().enumerate() {
            assert_eq!(last_from(lab, v6), Some(from.parse().unwrap()), "{line}");
        }
    }

    // Without these it is.
    lab.configure(&other_source(""));
    lab.ask(&["reload"]);
    for (v6, from) in ["10.8.0.9", "fd00:8::9"].into_iter().enumerate() {
        let from = from.parse().unwrap();
        wait_until("packets come from another address of ours", LIMIT, || last_from(lab, v6) == Some(from));
    }

    // Who is silent has been forgotten by nobody so far, for much longer than a second.
    std::thread::sleep(Duration::from_secs(3));
    assert!(is_known(lab, 0) && is_known(lab, 1));
    lab.configure(&other_source("idle_s = 1"));
    lab.ask(&["reload"]);
    wait_until("silent flows are forgotten", LIMIT, || !is_known(lab, 0) && !is_known(lab, 1));
    lab.configure(&good);
    lab.ask(&["reload"]);
    pause();
}

#[test]
fn each_key_takes_effect_or_is_refused_and_nothing_is_lost() {
    let Some(_turn) = turn("each_key_takes_effect_or_is_refused_and_nothing_is_lost") else { return };
    let lab = Lab::start("");
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)), "no ping comes back");
    // The back gets more addresses.
    let one = "addresses = [\"10.8.0.1/24\", \"fd00:8::1/64\"]";
    let more = "addresses = [\"10.8.0.1/24\", \"10.8.0.9/24\", \"fd00:8::1/64\", \"fd00:8::9/64\"]";
    assert!(lab.config().contains(one));
    lab.configure(&lab.config().replace(one, more));
    lab.ask(&["reload"]);
    let wire = Raw::open(&lab.client, "eth0");
    // Somebody listens, so nothing comes back.
    let _sinks = SERVER.map(|server| lab.server.udp(SocketAddr::new(server.parse().unwrap(), 9)));
    let macs = lab.macs();
    *lab.grantor.answer.lock().unwrap() =
        Answer::Granted { rate_kib_s: 1 << 20, expire_s: 600, renew_ms: 500_000, step_ms: 1000 };
    for v6 in [0, 1] {
        wait_until("it is granted", LIMIT, || lab.pings(v6) && lab.flow(v6).flows[0].state == "granted");
    }
    *lab.grantor.answer.lock().unwrap() = Answer::Nothing;
    for v6 in [0, 1] {
        wire.send(&udp(macs, [SILENT[v6], SERVER[v6]], [9, 9], 0, b"hello"));
        wait_until("it has asked", LIMIT, || is_known(&lab, v6));
    }
    lab.grantor.came.lock().unwrap().clear();

    // A packet of each family each millisecond, with its number.
    let (stops, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stops);
        scope.spawn(|| {
            while !stops.load(Ordering::Relaxed) {
                let number = sent.load(Ordering::Relaxed).to_be_bytes();
                for v6 in [0, 1] {
                    wire.send(&udp(macs, [CLIENT[v6], SERVER[v6]], [9, 9], 0, &number));
                }
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        wait_until("packets flow", LIMIT, || last_from(&lab, 0).is_some() && last_from(&lab, 1).is_some());
        change(&lab);
    });
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent > 1000, "{sent}");
    for (v6, header) in [(0, 20), (1, 40)] {
        let numbers = || {
            let came = lab.grantor.came.lock().unwrap();
            let ours = came.iter().filter(|came| came.inner.len() == header + 8 + 4);
            let ours = ours.filter(|came| came.inner[0] >> 4 == [4, 6][v6]);
            let number = |inner: &[u8]| u32::from_be_bytes(inner[header + 8..].try_into().unwrap());
            ours.map(|came| (number(&came.inner), came.dscp)).collect::<BTreeSet<_>>()
        };
        wait_until("every packet has come", LIMIT, || numbers().len() >= sent as usize);
        // As granted ones, all of them.
        assert!(numbers().into_iter().eq((0..sent).map(|number| (number, 1))), "family {v6}");
    }
    lab.end();
}
