//! SIGHUP with a bad configuration and with a good one, under live TCP.

use crate::basic::ping;
use crate::lab::{Family, Plan};
use crate::net::wait_until;
use crate::traffic::Live;
use crate::{Kernel, Needs, turn};
use std::time::Duration;

/// The ways in which a new configuration can be bad, each with what the error has to contain.
const BAD: &[(&str, &str)] = &[
    ("not toml [", "router.toml:"),
    ("nonsense = 1\n", "nonsense"),
    ("[[route]]\nprefix = \"10.99.0.0/160\"\nvia = \"10.2.0.2\"\n", "10.99.0.0/160"),
    ("[[route]]\nprefix = \"10.99.0.0/16\"\nvia = \"10.2.0.2x\"\n", "10.2.0.2x"),
];

#[test]
fn root_reload() {
    let Some(turn) = turn("root_reload", Needs::Little, Kernel::Cannot) else { return };
    let lab = Plan::two_hosts().build(turn.dut);
    let target = "10.99.0.1".parse().unwrap();
    lab.right().add_address("10.99.0.1/32", "lo");
    let live = [Family::V4, Family::V6]
        .map(|family| Live::start(lab.left(), lab.right(), lab.address("right", family)));
    let alive = || {
        for live in &live {
            live.goes_on(Duration::from_secs(5));
        }
    };
    alive();
    let before = lab.router.prefixes(Family::V4);
    let good = Plan::two_hosts();
    for (text, message) in BAD {
        let said = lab.router.log().len();
        lab.router.reload(&(good.text() + text));
        wait_until(&format!("the log says {message}"), Duration::from_secs(5), || {
            lab.router.log()[said..].contains(message)
        });
        alive();
        assert_eq!((lab.router.prefixes(Family::V4), lab.router.reloads()), (before, 0), "{text}");
    }
    let (reachable, _) = lab.left().attempt("ping -c 1 -W 1 10.99.0.1");
    assert!(!reachable);

    let good = good.route("10.99.0.0/16", &[lab.address("right", Family::V4)]);
    lab.router.reload(&good.text());
    wait_until("the new route is there", Duration::from_secs(5), || lab.router.reloads() == 1);
    ping(lab.left(), target, "", 0);
    alive();

    // And back: the route goes again.
    lab.router.reload(&Plan::two_hosts().text());
    wait_until("the route is gone", Duration::from_secs(5), || lab.router.reloads() == 2);
    assert!(!lab.left().attempt("ping -c 1 -W 1 10.99.0.1").0);
    alive();
    for live in live {
        live.finish();
    }
    lab.finish();
}
