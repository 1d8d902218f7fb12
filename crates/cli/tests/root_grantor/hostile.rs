//! A policy that hangs, while it forwards what was granted: the packets do not notice.

use crate::lab::{CLIENT, DENIED, Lab, Plan, SERVER};
use crate::{at, numbers, turn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Hangs as long as it may for one source, in a loop that catches what would end it; grants all others.
const SCRIPT: &str = "signature('source', 'destination')\n\
    local four, six = ip.address('10.7.0.3'), ip.address('fd00:7::3')\n\
    function decide(q)\n\
      if q.source == four or q.source == six then\n\
        while true do pcall(function() while true do end end) end\n\
      end\n\
      return granted { rate = 50000, expire = 600 }\n\
    end\n";

/// For four seconds sources keep asking that the script hangs about, for 100,000 steps each time. Of what another may send nothing is lost, at 500 packets a second; who asks
/// meanwhile is answered when the script has been ended, and what it hangs about gets the fail-safe.
#[test]
fn a_script_that_hangs_holds_up_no_granted_packet() {
    let Some(_turn) = turn("a_script_that_hangs_holds_up_no_granted_packet") else { return };
    let policy = "file = \"policy.lua\"\nsteps = 100000\ntime_ms = 10000\nwait_ms = 2000\nlog_every_s = 60\nfail_safe = { action = \"nothing\" }";
    let mut lab = Lab::planned(&Plan { policy, ..Plan::default() });
    lab.policy(SCRIPT);
    lab.grantor.ask(&["grantor", "reload"]);
    let (from, to) = (lab.first.client.udp(at(CLIENT[0], 0)), lab.server.udp(at(SERVER[0], 9000)));
    to.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // Neighbors are found, and it is granted.
    crate::net::wait_until("the client is granted", Duration::from_secs(20), || {
        from.send_to(&u32::MAX.to_be_bytes(), at(SERVER[0], 9000)).unwrap();
        lab.first.flow(CLIENT[0], 0) == Some(("granted".into(), Some(50_000)))
    });
    let done = AtomicBool::new(false);
    let before = lab.grantor.counters();
    let (sent, came, waited) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut number = 0_u32;
            while !done.load(Ordering::Relaxed) {
                from.send_to(&number.to_be_bytes(), at(SERVER[0], 9000)).unwrap();
                number += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            number
        });
        let receiver = scope.spawn(|| numbers(&to, &done));
        let bad = scope.spawn(|| {
            let bad = DENIED.map(|address| lab.first.client.udp(at(address, 0)));
            while !done.load(Ordering::Relaxed) {
                for (v6, socket) in bad.iter().enumerate() {
                    socket.send_to(b"harm", at(SERVER[v6], 9001)).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let began = Instant::now();
        let look = || {
            // It hangs already when somebody else asks for the first time.
            std::thread::sleep(Duration::from_secs(1));
            let asked = Instant::now();
            let newcomer = lab.first.client.udp(at(CLIENT[1], 0));
            crate::net::wait_until("a newcomer is granted", Duration::from_secs(20), || {
                newcomer.send_to(b"ask", at(SERVER[1], 9000)).unwrap();
                lab.first.flow(CLIENT[1], 1) == Some(("granted".into(), Some(50_000)))
            });
            let waited = asked.elapsed();
            std::thread::sleep(Duration::from_secs(4).saturating_sub(began.elapsed()));
            waited
        };
        // They end whatever happens here.
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        done.store(true, Ordering::Relaxed);
        bad.join().unwrap();
        let (sent, came) = (sender.join().unwrap(), receiver.join().unwrap());
        (sent, came, waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let after = lab.grantor.counters();
    let more = |name: &str| after[name] - before[name];
    println!("{sent} sent, a newcomer waited {waited:?}, {} questions failed", more("fail-safe"));
    let lost: Vec<u32> = (0..sent).filter(|number| !came.contains(number)).collect();
    assert!(lost.is_empty(), "{} of {sent}: {lost:?}", lost.len());
    // It did hang, over and over; it was said once; and what it hung about got nothing through.
    assert!(more("policy-timeout") >= 5, "{after:?}");
    let log = lab.grantor.read("log");
    assert_eq!(log.matches("(timeout)").count(), 1, "{log}");
    for (v6, address) in DENIED.iter().enumerate() {
        assert_eq!(lab.first.flow(address, v6).map(|(state, _)| state), Some("request".into()));
    }
    lab.first.gate.end();
    let said = lab.grantor.end();
    assert!(said["dropped"]["policy-failed"].as_u64() >= Some(5), "{said}");
}
