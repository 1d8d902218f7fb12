//! A question lifts a rule, and its answer is here in microseconds: none is lost, whatever the control side is just doing.

use crate::both::question;
use crate::net::{cable, inside, run};
use crate::packets::{plain, tuple, unreachable};
use crate::{End, KINDS, MINUTE_NS, filtered, settings};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
use tidemill_amp::offload::{Offload, RuleEvent};
use tidemill_amp::{Counter, MitigatorControl, Side, Tuple};
use tidemill_lookup::qsbr::Domain;

const ROUNDS: u64 = 210;
const SECOND_NS: u64 = 1_000_000_000;

fn flows() -> [Tuple; 3] {
    [
        tuple("198.51.100.7", 53, "192.0.2.1", 4000),
        tuple("2001:db8::7", 123, "2001:db8:1::1", 4001),
        tuple("198.51.100.8", 53, "192.0.2.1", 4000),
    ]
}

/// Ends the other thread, also when a test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn get(control: &Mutex<MitigatorControl>, counter: Counter) -> u64 {
    control.lock().unwrap().counters().get(counter)
}

fn until(what: &str, is: impl Fn() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn root_amp_xdp_no_answer_to_a_question_is_lost() {
    if !inside("lift::root_amp_xdp_no_answer_to_a_question_is_lost") {
        return;
    }
    for kind in KINDS {
        cable("left", "right");
        let ports = ["outside".to_owned(), "inside".to_owned()];
        let section = toml::from_str("icmp_rate = 0\nquery_s = 1\noffload = \"xdp\"").unwrap();
        let mut control = MitigatorControl::new(&section, &ports, 1, &Domain::new()).unwrap();
        let xdp = XdpOffload::open(&XdpOptions::new("right")).unwrap();
        let (mut left, mut right) = (End::new("left", KINDS[0], None), End::new("right", kind, Some(&xdp)));
        control.set_offload(Box::new(xdp)).unwrap();
        let mut mitigator = control.mitigator(0).unwrap();
        let settings = control.settings().clone();
        let (control, now_ns, done) =
            (Mutex::new(control), AtomicU64::new(100 * SECOND_NS), AtomicBool::new(false));
        let lock = || -> MutexGuard<'_, MitigatorControl> { control.lock().unwrap() };
        let in_driver = std::thread::scope(|scope| {
            let (control, now, stop) = (&control, &now_ns, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    control.lock().unwrap().poll(now.load(Ordering::Relaxed));
                    std::thread::yield_now();
                }
            });
            let _done = Done(&done);
            let mut decide = |side: Side, frame: &[u8]| {
                let (mut dropped, burst) = (false, [(side, frame)]);
                let now = now_ns.load(Ordering::Relaxed);
                mitigator.decide(&settings, now, &burst, |item| (item.0, item.1), |_| dropped = true);
                mitigator.tick(&settings, now);
                dropped
            };
            let mut in_driver = 0;
            for round in 0..ROUNDS {
                let flow = flows()[round as usize % 3];
                let answer = plain(&flow);
                // The question of the round before is forgotten: it is a flow as any other, and is filtered again.
                now_ns.fetch_add(4 * SECOND_NS, Ordering::Relaxed);
                assert!(!decide(Side::Outside, &answer), "round {round}");
                assert!(!decide(Side::Inside, &unreachable(&flow)));
                if round % 2 == 0 {
                    until("the rule is in the driver", || get(control, Counter::OffloadRules) == 1);
                    left.send(std::slice::from_ref(&answer));
                    in_driver += 1;
                    until("it drops", || get(control, Counter::OffloadDropped) == in_driver);
                } else {
                    // The control side is anywhere on its way.
                    let (started, wait) = (Instant::now(), Duration::from_micros(round * 7 % 90));
                    while started.elapsed() < wait {}
                }
                assert!(!decide(Side::Inside, &question(&flow)));
                left.send(std::slice::from_ref(&answer));
                assert_eq!(right.receive(1), std::slice::from_ref(&answer), "{kind}, round {round}");
                assert!(!decide(Side::Outside, &answer));
                until("the control side has heard", || get(control, Counter::OffloadRules) == 0);
            }
            in_driver
        });
        lock().poll(now_ns.load(Ordering::Relaxed));
        let count = |counter| get(&control, counter);
        assert_eq!((count(Counter::RulesMade), count(Counter::RulesLifted)), (ROUNDS, ROUNDS));
        assert_eq!((count(Counter::OffloadDropped), count(Counter::OffloadRules)), (in_driver, 0));
        assert_eq!((count(Counter::OffloadLate), count(Counter::Rules)), (0, 0));
        println!("{kind:?}: {:?}", lock().take_notes());
        drop(control);
        run("ip link del left");
    }
}

#[test]
fn root_amp_xdp_what_is_lifted_while_it_is_installed_stays_out() {
    if !inside("lift::root_amp_xdp_what_is_lifted_while_it_is_installed_stays_out") {
        return;
    }
    let mut xdp = XdpOffload::open(&XdpOptions { entries: 4, ..XdpOptions::new("nowhere") }).unwrap();
    assert!(xdp.configure(&settings()).is_err(), "there is no such interface: the maps will do");
    let hand = std::cell::RefCell::new(xdp.lifter().unwrap());
    let lift = |key: &Tuple| assert!(hand.borrow_mut().lift(key));
    let now = 5_000_000_000;
    let drops = |xdp: &XdpOffload, key: &Tuple| {
        xdp.front().with(|object| object.run(&plain(key), 1).unwrap().action) == 1
    };
    for key in flows() {
        let make = [filtered(key, now + MINUTE_NS)];
        // Lifted before: the tables know.
        lift(&key);
        xdp.apply(now, &make, &|_| false);
        assert_eq!((drops(&xdp, &key), xdp.counters().rules), (false, 0));
        // While it is there and not in force: the map knows, and nothing is dropped meanwhile.
        xdp.apply(now, &make, &|asked| {
            assert_eq!(*asked, key);
            lift(asked);
            true
        });
        assert_eq!((drops(&xdp, &key), xdp.counters().rules), (false, 0));
        // Behind it.
        xdp.apply(now, &make, &|_| true);
        assert_eq!((drops(&xdp, &key), xdp.counters().rules), (true, 1));
        lift(&key);
        lift(&key);
        assert_eq!((drops(&xdp, &key), xdp.counters().rules), (false, 0));
        // The word about it comes later, and finds nothing; then it is filtered again.
        xdp.apply(now, &[RuleEvent::Removed { key }], &|_| true);
        xdp.apply(now, &make, &|_| true);
        assert_eq!((drops(&xdp, &key), xdp.counters().rules), (true, 1));
        // Another end for one that is lifted just then.
        xdp.apply(now, &[filtered(key, now + 2 * MINUTE_NS)], &|asked| {
            lift(asked);
            true
        });
        assert_eq!((drops(&xdp, &key), xdp.counters().rules), (false, 0));
        // All anew, and one is lifted meanwhile.
        let all = [(key, now + MINUTE_NS), (tuple("198.51.100.9", 53, "192.0.2.1", 1), now + MINUTE_NS)];
        xdp.replace(now, &mut all.into_iter(), &|asked| {
            if *asked == key {
                lift(asked);
            }
            true
        });
        assert_eq!((drops(&xdp, &key), drops(&xdp, &all[1].0), xdp.counters().rules), (false, true, 1));
        lift(&all[1].0);
    }
    // A full map: what has ended makes room, what is being put in is not taken for it.
    let n = |n: u16| tuple("198.51.100.7", 53, "192.0.2.1", n);
    xdp.apply(now, &[filtered(n(0), now), filtered(n(1), now)], &|_| true);
    let more: Vec<_> = (2..8).map(|port| filtered(n(port), now + MINUTE_NS)).collect();
    xdp.apply(now, &more, &|_| true);
    assert_eq!((xdp.counters().rules, xdp.counters().refused), (4, 2));
    assert_eq!((0..8).filter(|port| drops(&xdp, &n(*port))).count(), 4);
}
