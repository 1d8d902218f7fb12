//! Strangers, and granted clients, whose questions are slow, more of them than the policy can answer: they take it from nobody else.

use crate::lab::{CLIENT, Lab, Plan, SERVER};
use crate::net::wait_until;
use crate::pair::lost_meanwhile;
use crate::{at, turn};
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Port 9 is slow; grants are of this.
fn script(grant: &str) -> String {
    format!(
        "signature('source', 'destination')\nfunction decide(q)\n\
         if q.destination_port == 9 then while true do end end\n\
         return granted {{ rate = 50000, {grant} }}\nend\n"
    )
}

const SOURCES: usize = 64;
/// A flow that has waited so long comes before a new one.
const AGAIN: Duration = Duration::from_millis(600);

/// Packets of each source to each of so many servers in turn, so many a second.
struct Flood {
    from: Vec<UdpSocket>,
    servers: usize,
    per_second: f64,
    port: AtomicU16,
    done: AtomicBool,
}

impl Flood {
    fn new(lab: &Lab, servers: usize, per_second: f64, port: u16) -> Flood {
        lab.first.client.sysctl(&["net.ipv4.ip_nonlocal_bind=1"]);
        lab.first.client.run("ip route add local 10.77.0.0/24 dev lo");
        let source = |n: usize| lab.first.client.udp(at(&format!("10.77.0.{}", n + 1), 0));
        let from = (0..SOURCES).map(source).collect();
        Flood { from, servers, per_second, port: AtomicU16::new(port), done: AtomicBool::new(false) }
    }

    /// Until it is told to stop.
    fn send(&self) {
        let (begun, mut sent) = (Instant::now(), 0);
        while !self.done.load(Relaxed) {
            let due = (begun.elapsed().as_secs_f64() * self.per_second) as usize;
            while sent < due {
                let host = (40 + sent / SOURCES % self.servers) as u8;
                let to = SocketAddr::from(([10, 9, 0, host], self.port.load(Relaxed)));
                self.from[sent % SOURCES].send_to(b"slow", to).unwrap();
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// While something goes on.
    fn beside<T>(&self, act: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            scope.spawn(|| self.send());
            // It ends whatever happens here.
            let went = catch_unwind(AssertUnwindSafe(act));
            self.done.store(true, Relaxed);
            went.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

/// A client that is granted, and the server's end.
fn client(lab: &Lab) -> (UdpSocket, UdpSocket) {
    let (from, to) = (lab.first.client.udp(at(CLIENT[0], 0)), lab.server.udp(at(SERVER[0], 9000)));
    from.connect(at(SERVER[0], 9000)).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    wait_until("the client is granted", Duration::from_secs(20), || {
        from.send(&u32::MAX.to_be_bytes()).unwrap();
        lab.first.flow(CLIENT[0], 0) == Some(("granted".into(), Some(50_000)))
    });
    (from, to)
}

/// With twice the usual steps: no machine is fast enough for all of them.
fn lab(grant: &str) -> Lab {
    let policy = "file = \"policy.lua\"\nsteps = 20000";
    let lab = Lab::planned(&Plan { policy, ..Plan::default() });
    lab.policy(&script(grant));
    lab.grantor.ask(&["grantor", "reload"]);
    lab
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
    let mut lab = lab("expire = 600");
    // Pairs for four seconds: then flows come again, and have waited for longer than who asks again after one.
    let flood = Flood::new(&lab, 200, 3000.0, 9);
    let newcomer = lab.first.client.udp(at(CLIENT[0], 0));
    let pair = client(&lab);
    let before = lab.grantor.counters();
    let mut waited = Duration::ZERO;
    let lost = flood.beside(|| {
        lost_meanwhile(&[pair], || {
            std::thread::sleep(Duration::from_secs(1));
            lab.grantor.ask(&["grantor", "revoke"]);
            std::thread::sleep(Duration::from_millis(500));
            waited = newcomers(&lab, &newcomer);
        })
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

/// The same while granted clients ask for renewal, each flow after two seconds again, with slow questions: no grant of theirs is touched, nor anybody else's.
#[test]
fn slow_renewals_take_the_policy_from_nobody_else() {
    let Some(_turn) = turn("slow_renewals_take_the_policy_from_nobody_else") else { return };
    let mut lab = lab("expire = 60, renew = 1000, step = 1000");
    let (servers, quick, slow) = (60, 7, 9);
    let flood = Flood::new(&lab, servers, 2000.0, quick);
    let newcomer = lab.first.client.udp(at(CLIENT[0], 0));
    let pair = client(&lab);
    let mut waited = [Duration::ZERO; 2];
    let (before, lost) = flood.beside(|| {
        lab.first.gate.reaches("decisions-applied", (SOURCES * servers) as u64);
        let before = lab.grantor.counters();
        flood.port.store(slow, Relaxed);
        let lost = lost_meanwhile(&[pair], || {
            std::thread::sleep(Duration::from_secs(2));
            waited[0] = newcomers(&lab, &newcomer);
            lab.grantor.ask(&["grantor", "revoke"]);
            std::thread::sleep(Duration::from_millis(500));
            waited[1] = newcomers(&lab, &newcomer);
        });
        (before, lost)
    });
    let after = lab.grantor.counters();
    let more = |name: &str| after[name] - before[name];
    println!(
        "newcomers waited {waited:?}; {} slow questions, {} late, {} not renewed",
        more("policy-timeout"),
        more("policy-late"),
        more("unrenewed")
    );
    assert!(lost.iter().all(Vec::is_empty), "{lost:?}: {after:?}");
    // It was more than the policy could answer.
    assert!(more("policy-timeout") >= 100 && more("unrenewed") >= 2000, "{after:?}");
    lab.first.gate.end();
    lab.grantor.end();
}
