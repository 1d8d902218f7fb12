//! Everything that an operator can ask for, in a loop, while 10,000 routes change per second and packets flow: no packet is
//! dropped for it, and none is overtaken.

use crate::lab::{Family, Lab};
use crate::net::wait_until;
use crate::restart::{Input, UPDATES};
use crate::traffic::{Numbered, SetOnDrop};
use crate::{Kernel, Needs, turn};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_control::schema::{self, path};

const SECONDS: u64 = 8;
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

fn churn(test: &str, run: &str) {
    let Some(turn) = turn(test, Needs::Machine, Kernel::Cannot) else { return };
    let input = Input::small();
    input.updates(SECONDS + 60);
    let destination = input.destination();
    let lab = input.plan(0.5, true).config(run).build(turn.dut);
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
    let before = generation(&lab);
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
    let (there, back) = (there.finish(), back.finish());
    let changes = generation(&lab) - before;
    lab.router.post(path::STATE);
    let taken = crate::restart::image(&lab.router).1;
    println!(
        "{} questions and orders, {taken} updates taken, {changes} publications of routes",
        asked.load(Ordering::Relaxed)
    );
    // 10,000 a second; a machine with other work may be late with some.
    assert!(
        taken >= SECONDS * UPDATES / 2 && changes > SECONDS * UPDATES / 4096,
        "{taken} updates, {changes} changes"
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
    churn("root_churn_one_worker", "");
}

#[test]
fn root_churn_two_workers() {
    churn("root_churn_two_workers", "[run]\nworkers = 2\n");
}
