//! Two workers, each with flows of its own: what a Grantor decides reaches the one that has the flow, and all of a flow's packets come to it, or it is said
//! that they may not.

use crate::lab::{Answer, Lab, SERVER};
use crate::net::wait_until;
use crate::raw::Raw;
use crate::strangers::udp;
use crate::turn;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tidemill_control::schema::gate;

/// Flows, of either family in turn.
const FLOWS: usize = 32;
/// The last byte of the first one's source; each has another.
const FIRST: usize = 100;

/// Sends a packet of each flow; by their sources' last bytes the code points that they come to the Grantor with, once all have come.
fn code_points(lab: &Lab, wire: &Raw, frames: &[Vec<u8>]) -> BTreeMap<u8, u8> {
    lab.grantor.came.lock().unwrap().clear();
    assert_eq!(wire.send_many(frames), frames.len());
    let mut points = BTreeMap::new();
    wait_until("all have come to the Grantor", Duration::from_secs(10), || {
        let came = lab.grantor.came.lock().unwrap();
        let last = |inner: &[u8]| if inner[0] >> 4 == 6 { inner[23] } else { inner[15] };
        points = came.iter().map(|came| (last(&came.inner), came.dscp)).collect();
        points.len() == frames.len()
    });
    points
}

#[test]
fn decisions_reach_the_worker_that_has_the_flow() {
    let Some(_turn) = turn("decisions_reach_the_worker_that_has_the_flow") else { return };
    let lab = Lab::start("flows = 4096\n[run]\nworkers = 2\npin = false");
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)), "no ping comes back");
    let wire = Raw::open(&lab.client, "eth0");
    // Somebody listens, so nothing comes back.
    let _sinks = SERVER.map(|server| lab.server.udp(SocketAddr::new(server.parse().unwrap(), 9)));
    let macs = lab.macs();
    let source =
        |n: usize| if n.is_multiple_of(2) { format!("10.7.0.{n}") } else { format!("fd00:7::{n:x}") };
    let sources: Vec<String> = (FIRST..FIRST + FLOWS).map(source).collect();
    let family = |source: &str| usize::from(source.contains(':'));
    let frame = |source: &String| udp(macs, [source, SERVER[family(source)]], [9, 9], 0, b"hello");
    let frames: Vec<Vec<u8>> = sources.iter().map(frame).collect();
    let flow = |source: &str| {
        let destination = SERVER[family(source)].into();
        let query = gate::FlowQuery { source: source.into(), destination };
        let answer: gate::FlowAnswer = lab.control.get(gate::path::FLOW, &query).unwrap();
        assert_eq!(answer.flows.len(), 1, "one worker has it: {answer:?}");
        (answer.flows[0].worker, answer.flows[0].state.clone())
    };

    // Both workers have some, as the kernel spreads flows.
    let asked = code_points(&lab, &wire, &frames);
    assert!(asked.values().all(|dscp| *dscp == 41), "{asked:?}");
    let workers: Vec<u32> = sources.iter().map(|source| flow(source).0).collect();
    assert!(workers.contains(&0) && workers.contains(&1), "{workers:?}");

    // Each decision comes by one worker, and is told to both.
    let all = FLOWS as u64;
    *lab.grantor.answer.lock().unwrap() =
        Answer::Granted { rate_kib_s: 1000, expire_s: 60, renew_ms: 50_000, step_ms: 1000 };
    code_points(&lab, &wire, &frames);
    lab.reaches("decisions-applied", all);
    lab.reaches("decisions-unknown", all);
    *lab.grantor.answer.lock().unwrap() = Answer::Nothing;
    let granted = code_points(&lab, &wire, &frames);
    assert!(granted.values().all(|dscp| *dscp == 1), "{granted:?}");

    // As it is with what is declined after that.
    for (source, frame) in sources.iter().zip(&frames) {
        let declined = Answer::Declined { expire_s: 60 }.bytes(&frame[14..]);
        lab.deciders[family(source)].send(&declined).unwrap();
    }
    lab.reaches("decisions-applied", 2 * all);
    lab.reaches("decisions-unknown", 2 * all);
    lab.grantor.came.lock().unwrap().clear();
    assert_eq!(wire.send_many(&frames), frames.len());
    lab.reaches("declined", all);
    assert!(lab.grantor.came.lock().unwrap().is_empty());
    for (source, worker) in sources.iter().zip(workers) {
        assert_eq!(flow(source), (worker, "declined".to_owned()), "{source}");
    }
    let counters = lab.counters();
    for (name, count) in [("decisions-applied", 2 * all), ("decisions-unknown", 2 * all), ("mail-lost", 0)] {
        assert_eq!(counters[name], count, "{name}: {counters:?}");
    }
    let said = lab.end();
    assert_eq!(said["dropped"]["flow-declined"], all, "{said}");
}

/// A flow is a pair of addresses: from however many ports it comes, one worker has it, and it has one rate.
#[test]
fn a_rate_holds_over_all_ports_of_a_pair() {
    const RATE_KIB_S: u32 = 100;
    // A megabyte a second for two seconds.
    const PORTS: u16 = 64;
    const ROUNDS: u32 = 34;
    const ROUND: Duration = Duration::from_millis(60);
    let Some(_turn) = turn("a_rate_holds_over_all_ports_of_a_pair") else { return };
    let lab = Lab::start("flows = 4096\n[run]\nworkers = 2\npin = false");
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)), "no ping comes back");
    let wire = Raw::open(&lab.client, "eth0");
    // Somebody listens, so nothing comes back.
    let _sinks = SERVER.map(|server| lab.server.udp(SocketAddr::new(server.parse().unwrap(), 9)));
    let macs = lab.macs();
    *lab.grantor.answer.lock().unwrap() =
        Answer::Granted { rate_kib_s: RATE_KIB_S, expire_s: 60, renew_ms: 50_000, step_ms: 1000 };
    let judged = |counters: &BTreeMap<String, u64>| counters["granted"] + counters["over-rate"];
    for (source, destination) in ["10.7.0.77", "fd00:7::77"].into_iter().zip(SERVER) {
        let frame = |port| udp(macs, [source, destination], [port, 9], 0, &[0; 900]);
        let frames: Vec<Vec<u8>> = (1000..1000 + PORTS).map(frame).collect();
        let applied = lab.counters()["decisions-applied"];
        assert_eq!(wire.send_many(&frames), frames.len());
        lab.reaches("decisions-applied", applied + 1);
        // All buckets that there are, are full.
        std::thread::sleep(Duration::from_millis(1200));
        lab.grantor.came.lock().unwrap().clear();
        let before = lab.counters();
        let (start, mut sent) = (Instant::now(), 0);
        for round in 1..=ROUNDS {
            sent += wire.send_many(&frames) as u64;
            std::thread::sleep((start + ROUND * round).saturating_duration_since(Instant::now()));
        }
        let seconds = start.elapsed().as_secs_f64();
        let mut after = before.clone();
        wait_until("all are judged", Duration::from_secs(20), || {
            after = lab.counters();
            judged(&after) - judged(&before) == sent
        });
        let granted = after["granted"] - before["granted"];
        wait_until("what was granted comes to the Grantor", Duration::from_secs(20), || {
            lab.grantor.came.lock().unwrap().len() as u64 >= granted
        });
        let passed: usize = lab.grantor.came.lock().unwrap().iter().map(|came| came.inner.len()).sum();
        // A bucket holds a second's worth.
        let allowed = f64::from(RATE_KIB_S) * 1024.0 * (1.0 + seconds);
        let part = passed as f64 / allowed;
        assert!((0.5..1.2).contains(&part), "{source}: {part} of its rate: {passed} bytes in {seconds} s");
        let query = gate::FlowQuery { source: source.into(), destination: destination.into() };
        let answer: gate::FlowAnswer = lab.control.get(gate::path::FLOW, &query).unwrap();
        assert_eq!(answer.flows.len(), 1, "one worker has it: {answer:?}");
    }
    lab.end();
}

/// Which queue a card puts a packet into is not ours to choose: how it does that, it is asked when a configuration is checked.
#[cfg(feature = "xdp")]
#[test]
fn a_card_that_may_look_at_ports_is_named_by_check() {
    let Some(_turn) = turn("a_card_that_may_look_at_ports_is_named_by_check") else { return };
    let ns = crate::net::Netns::new("cards");
    ns.run("ip link add qa numrxqueues 2 numtxqueues 2 type veth peer name qb numrxqueues 2 numtxqueues 2");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checked.toml");
    let says = |role: &str, more: &str| {
        let text = format!(
            "version = 1\nrole = \"{role}\"\n[run]\nworkers = 2\npin = false\n\
            [[port]]\nname = \"wan\"\nkind = \"af_xdp\"\ninterface = \"qa\"\n\
            [[port]]\nname = \"lan\"\nkind = \"af_xdp\"\ninterface = \"qb\"\nqueues = 1\n\
            [[interface]]\nport = \"wan\"\naddresses = [\"10.7.0.1/24\"]\n\
            [[interface]]\nport = \"lan\"\naddresses = [\"10.8.0.1/24\"]\n{more}"
        );
        std::fs::write(&path, text).unwrap();
        let check =
            || std::process::Command::new(env!("CARGO_BIN_EXE_tidemill")).arg("check").arg(&path).output();
        let output = ns.enter(check).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    };
    let gate = "[gatekeeper]\nfront = [\"wan\"]\ndecisions = \"interoperable\"\n\
        [[gatekeeper.policy]]\nprefix = \"10.9.0.0/24\"\naction = \"grantor\"\ngrantors = [\"10.8.0.2\"]\n";
    // A virtual one does not say. What has one queue is spread by us.
    let said = says("gatekeeper", gate);
    let warning = "port wan: warning: qa does not say by what it spreads packets over its queues";
    assert!(said.contains(warning) && said.matches("by what it spreads").count() == 1, "{said}");
    assert!(!says("router", "").contains("by what it spreads"), "a router has no flows");
}
