//! Strangers whose questions are slow, more of them than the policy can answer: they take it from nobody else.

use crate::lab::{CLIENT, Lab, Plan, SERVER};
use crate::net::wait_until;
use crate::pair::lost_meanwhile;
use crate::{at, turn};
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SCRIPT: &str = "signature('source', 'destination')\n\
    function decide(q)\n\
      if q.destination_port == 9 then while true do end end\n\
      return granted { rate = 50000, expire = 600 }\n\
    end\n";

/// New flows in a second.
const RATE: f64 = 3000.0;
/// Pairs for four seconds: then flows come again, and have waited for longer than who asks again after one.
const SOURCES: usize = 64;
const SERVERS: usize = 200;
/// A flow that has waited so long comes before a new one.
const AGAIN: Duration = Duration::from_millis(600);

/// Sends the first packets of flows, until it is told to stop.
fn flood(from: &[UdpSocket], done: &AtomicBool) {
    let (begun, mut sent) = (Instant::now(), 0);
    while !done.load(Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * RATE) as usize;
        while sent < due {
            let host = (40 + sent / SOURCES % SERVERS) as u8;
            from[sent % SOURCES].send_to(b"slow", SocketAddr::from(([10, 9, 0, host], 9))).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ten flows that nobody knows ask, and ask again, until all are granted.
fn newcomers(lab: &Lab, from: &UdpSocket) -> Duration {
    let mut waiting: Vec<String> = (3..13).map(|host| format!("10.9.0.{host}")).collect();
    let mut asked: Option<Instant> = None;
    wait_until("newcomers are granted", Duration::from_secs(3), || {
        if asked.is_none_or(|asked| asked.elapsed() > AGAIN) {
            asked = Some(Instant::now());
            for server in &waiting {
                from.send_to(b"ask", at(server, 7)).unwrap();
            }
        }
        waiting.retain(|server| {
            let flows = lab.first.about(CLIENT[0], server).flows;
            flows.iter().all(|flow| flow.state != "granted")
        });
        waiting.is_empty()
    })
}

/// The client, whose grant is taken back meanwhile, loses nothing; newcomers are granted; and of those who could not be asked about nobody is declined.
#[test]
fn slow_questions_of_strangers_take_the_policy_from_nobody_else() {
    let Some(_turn) = turn("slow_questions_of_strangers_take_the_policy_from_nobody_else") else { return };
    // Twice the usual steps: no machine is fast enough for all of them.
    let policy = "file = \"policy.lua\"\nsteps = 20000";
    let mut lab = Lab::planned(&Plan { policy, ..Plan::default() });
    lab.policy(SCRIPT);
    lab.grantor.ask(&["grantor", "reload"]);
    lab.first.client.sysctl(&["net.ipv4.ip_nonlocal_bind=1"]);
    lab.first.client.run("ip route add local 10.77.0.0/24 dev lo");
    let stranger = |n: usize| lab.first.client.udp(at(&format!("10.77.0.{}", n + 1), 0));
    let strangers: Vec<UdpSocket> = (0..SOURCES).map(stranger).collect();
    let newcomer = lab.first.client.udp(at(CLIENT[0], 0));
    let (from, to) = (lab.first.client.udp(at(CLIENT[0], 0)), lab.server.udp(at(SERVER[0], 9000)));
    from.connect(at(SERVER[0], 9000)).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    wait_until("the client is granted", Duration::from_secs(20), || {
        from.send(&u32::MAX.to_be_bytes()).unwrap();
        lab.first.flow(CLIENT[0], 0) == Some(("granted".into(), Some(50_000)))
    });
    let (before, done) = (lab.grantor.counters(), AtomicBool::new(false));
    let mut waited = Duration::ZERO;
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| flood(&strangers, &done));
        let act = || {
            lost_meanwhile(&[(from, to)], || {
                std::thread::sleep(Duration::from_secs(1));
                lab.grantor.ask(&["grantor", "revoke"]);
                std::thread::sleep(Duration::from_millis(500));
                waited = newcomers(&lab, &newcomer);
            })
        };
        // It ends whatever happens here.
        let went = catch_unwind(AssertUnwindSafe(act));
        done.store(true, Relaxed);
        went.unwrap_or_else(|panic| resume_unwind(panic))
    });
    let after = lab.grantor.counters();
    let more = |name: &str| after[name] - before[name];
    println!(
        "newcomers waited {waited:?}; {} slow questions, {} late",
        more("policy-timeout"),
        more("policy-late")
    );
    assert!(lost.iter().all(Vec::is_empty), "{lost:?}: {after:?}");
    // It was more than the policy could answer.
    assert!(more("policy-timeout") >= 100 && more("unjudged") >= 200, "{after:?}");
    assert!(more("fail-safe") <= more("policy-timeout"), "{after:?}");
    lab.first.gate.end();
    lab.grantor.end();
}
