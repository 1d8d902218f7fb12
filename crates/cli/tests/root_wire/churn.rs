//! Everything that an operator can ask for, in a loop, while 10,000 routes change per second and packets flow: no packet is
//! dropped for it, and none is overtaken.

use crate::lab::{Family, Lab, Plan};
use crate::net::wait_until;
use crate::restart::{Input, UPDATES};
use crate::traffic::{Numbered, SetOnDrop};
use crate::{Kernel, Needs, turn};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_control::schema::{self, path};

const SECONDS: u64 = 8;
/// Updates that are taken in a second at least: those that are named, but for a twentieth, as in `bench churn`. That is what the release build is held
/// to (`cargo xtask held 6`); a control side that is hardly optimized, on a machine with other work, is to take half.
const LEAST: u64 = if cfg!(debug_assertions) { UPDATES / 2 } else { UPDATES / 20 * 19 };
/// What an operator asks for, as command lines.
const SHOWN: &[&str] = &[
    "show summary",
    "show ports",
    "show graph",
    "show counters",
    "show drops",
    "show fib",
    "show routes --limit 500",
    "show neighbors",
    "show interfaces",
    "show workers",
    "show next-hops",
    "show kernel",
    "show state",
    "trace add ip4-input 20",
    "trace show",
    "trace add port:left 5",
    "top --json --once",
    "state save",
    "capture port:left -w /dev/null --packets 200 --duration 1",
    "route add 10.88.0.0/16 via 10.2.0.2",
    "route delete 10.88.0.0/16",
    "route add 10.89.0.0/16 via 10.1.0.2,10.2.0.2",
    "route delete 10.89.0.0/16",
    "reload",
];

/// Runs a command line against the router, in its folder.
fn tidemill(lab: &Lab, line: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(line.split_whitespace()).args(["--socket", "router.sock"]).current_dir(lab.router.file(""));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn churn(test: &str, kind: &'static str, run: &str) {
    let Some(turn) = turn(test, Needs::Machine, Kernel::Cannot) else { return };
    let input = Input::small();
    input.updates(SECONDS + 60);
    let destination = input.destination();
    let lab = Plan { kind, ..input.plan(0.5, true).config(run) }.build(turn.dut);
    lab.right().add_address(&format!("{destination}/32"), "lo");
    crate::basic::ping(lab.left(), destination.parse().unwrap(), "", 0);
    crate::basic::ping(lab.right(), lab.address("left", Family::V4), "", 0);
    let mut baseline: Vec<String> = lab.router.drops().into_keys().collect();
    // Kernels say which groups they listen to whenever they like.
    baseline.push("multicast".to_owned());
    let there = Numbered::start(lab.left(), lab.right(), destination.parse().unwrap(), 16, 2000, 64);
    let back = Numbered::start(lab.right(), lab.left(), lab.address("left", Family::V4), 16, 2000, 64);
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let generation = |lab: &Lab| {
        let fibs: schema::Fibs = lab.router.get(path::FIB).unwrap();
        fibs.fibs.iter().map(|fib| fib.generation).sum::<u64>()
    };
    let updates = |lab: &Lab| {
        lab.router.post(path::STATE);
        crate::restart::image(&lab.router).1
    };
    let (before, began, updates_before) = (generation(&lab), Instant::now(), updates(&lab));
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                SHOWN.iter().for_each(|line| tidemill(&lab, line));
                asked.fetch_add(SHOWN.len() as u64, Ordering::Relaxed);
            }
        });
        std::thread::sleep(Duration::from_secs(SECONDS));
        wait_until("everything has been asked for", Duration::from_secs(60), || {
            asked.load(Ordering::Relaxed) >= SHOWN.len() as u64
        });
    });
    // While packets still flow: afterwards it could make up for what it is late with.
    let taken = updates(&lab) - updates_before;
    let rate = taken as f64 / began.elapsed().as_secs_f64();
    let changes = generation(&lab) - before;
    let (there, back) = (there.finish(), back.finish());
    println!(
        "{} questions and orders, {taken} updates taken, {rate:.0} a second, {changes} publications of routes",
        asked.load(Ordering::Relaxed)
    );
    assert!(
        rate >= LEAST as f64 && changes > SECONDS * UPDATES / 4096,
        "{rate:.0} updates a second, at least {LEAST}; {changes} changes"
    );
    for arrived in [&there, &back] {
        assert_eq!((arrived.late, arrived.received), (0, arrived.sent), "{arrived:?}");
        assert_eq!(arrived.flows, 16);
    }
    let dropped = lab.router.drops();
    let news: Vec<_> = dropped.iter().filter(|(reason, _)| !baseline.contains(reason)).collect();
    assert!(news.is_empty(), "dropped for reasons of its own: {news:?}");
    assert!(lab.router.reloads() > 0);
    lab.finish();
}

#[test]
fn root_churn_one_worker() {
    churn("root_churn_one_worker", "af_packet", "");
}

#[test]
fn root_churn_two_workers() {
    churn("root_churn_two_workers", "af_packet", "[run]\nworkers = 2\n");
}

#[cfg(feature = "xdp")]
#[test]
fn root_churn_on_af_xdp() {
    churn("root_churn_on_af_xdp", "af_xdp", "");
}
