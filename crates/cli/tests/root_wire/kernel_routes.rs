//! A routing daemon on the same host feeds us through the kernel: 100,000 routes while traffic flows.

use crate::basic::ping;
use crate::dut::Dut;
use crate::lab::{Family, Lab, Owner, Plan};
use crate::net::wait_until;
use crate::traffic::{Live, Numbered};
use crate::{Kernel, Needs, turn};
use std::fmt::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUTES: usize = 100_000;

/// The kernel's socket buffer for messages that we have not read yet, in a test that wants it to overrun.
const SMALL_BUFFER: &str = "receive_buffer = 4096\n";

/// The prefix of route `i`.
fn prefix(family: Family, i: usize) -> String {
    match family {
        Family::V4 => format!("{}.{}.{}.0/24", 50 + (i >> 16), (i >> 8) & 0xff, i & 0xff),
        Family::V6 => format!("2a00:{:x}:{:x}::/48", i >> 16, i & 0xffff),
    }
}

/// An address in it.
fn inside(family: Family, i: usize) -> String {
    let prefix = prefix(family, i);
    family.pick(prefix.replace(".0/24", ".1"), prefix.replace("::/48", "::1"))
}

/// BIRD in the router's namespace.
struct Bird {
    child: Child,
    folder: tempfile::TempDir,
}

impl Bird {
    fn start(lab: &Lab, family: Family) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (channel, via) = (family.pick("ipv4", "ipv6"), lab.address("right", family));
        let mut config = format!(
            "router id 10.2.0.1;\nlog stderr all;\nprotocol device {{}}\n\
             protocol kernel {{ {channel} {{ import none; export all; }}; }}\n\
             protocol static {{ {channel};\n"
        );
        for i in 0..ROUTES {
            writeln!(config, "route {} via {via};", prefix(family, i)).unwrap();
        }
        config += "}\n";
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("bird.conf"), config).unwrap();
        let mut command = Command::new("bird");
        command.arg("-f").current_dir(folder.path()).args([
            "-c",
            "bird.conf",
            "-s",
            "bird.ctl",
            "-P",
            "bird.pid",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(at("log")).unwrap());
        let child = lab.router.ns.enter(|| command.spawn()).unwrap();
        Bird { child, folder }
    }

    /// Ends it; it takes its routes with it.
    fn stop(mut self, lab: &Lab) {
        let socket = self.folder.path().join("bird.ctl");
        lab.router.ns.run(&format!("birdc -s {} down", socket.display()));
        self.child.wait().unwrap();
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bird(dut: Dut, family: Family, kernel_section: &str) {
    let lab = Plan::two_hosts()
        .owner(Owner::Kernel)
        .config(&format!("[kernel]\nroutes = true\n{kernel_section}"))
        .build(dut);
    for i in [0, ROUTES / 2, ROUTES - 1] {
        lab.right().add_address(&inside(family, i), "lo");
    }
    let to = lab.address("right", family);
    let live = Live::start(lab.left(), lab.right(), to);
    let numbered = Numbered::start(lab.left(), lab.right(), to, 4, 2000, 200);
    live.goes_on(Duration::from_secs(5));
    std::thread::sleep(Duration::from_millis(1500));
    let (baseline, before) = (lab.router.drops(), lab.router.prefixes(family));

    let bird = Bird::start(&lab, family);
    let limit = Duration::from_secs(40);
    let took = wait_until("all routes have arrived", limit, || {
        std::thread::sleep(Duration::from_millis(200));
        lab.router.prefixes(family) >= before + ROUTES
    });
    println!("{ROUTES} routes in {:.1} s", took.as_secs_f64());
    live.goes_on(Duration::from_secs(5));
    for i in [0, ROUTES / 2, ROUTES - 1] {
        ping(lab.left(), inside(family, i).parse().unwrap(), "", 0);
    }
    let sync = || lab.router.kernel_routes();
    wait_until("we are in sync", Duration::from_secs(10), || sync().is_none_or(|kernel| kernel.in_sync));
    if let Some(kernel) = sync() {
        println!("{kernel:?}");
        assert!(family.pick(kernel.routes4, kernel.routes6) as usize >= ROUTES);
        if kernel_section == SMALL_BUFFER {
            assert!(kernel.overruns > 0 && kernel.resyncs > 0, "no overrun: the test tests nothing");
        }
    }
    bird.stop(&lab);
    wait_until("all routes are gone", limit, || {
        std::thread::sleep(Duration::from_millis(200));
        // Hosts may have become neighbors in the meantime, or ceased to be.
        lab.router.prefixes(family) <= before + 5
    });
    live.goes_on(Duration::from_secs(5));
    live.finish();
    let arrived = numbered.finish();
    assert_eq!((arrived.late, arrived.flows), (0, 4));
    // Busy as the machine is, a receive ring may have overrun; nothing else may have been lost.
    assert!(arrived.received * 100 >= arrived.sent * 99, "{arrived:?}");
    let new: Vec<String> =
        lab.router.drops().into_keys().filter(|reason| !baseline.contains_key(reason)).collect();
    assert!(new.is_empty(), "packets are dropped that were not before: {new:?}");
    lab.finish();
}

#[test]
fn root_bird_ipv4() {
    let Some(turn) = turn("root_bird_ipv4", Needs::Machine, Kernel::Can) else { return };
    bird(turn.dut, Family::V4, "");
}

#[test]
fn root_bird_ipv6() {
    let Some(turn) = turn("root_bird_ipv6", Needs::Machine, Kernel::Can) else { return };
    bird(turn.dut, Family::V6, "");
}

#[test]
fn root_bird_overrun_ipv4() {
    let Some(turn) = turn("root_bird_overrun_ipv4", Needs::Machine, Kernel::Cannot) else { return };
    bird(turn.dut, Family::V4, SMALL_BUFFER);
}

#[test]
fn root_bird_overrun_ipv6() {
    let Some(turn) = turn("root_bird_overrun_ipv6", Needs::Machine, Kernel::Cannot) else { return };
    bird(turn.dut, Family::V6, SMALL_BUFFER);
}

/// Where the kernel owns the interfaces, its addresses on other devices are its own too: a routing daemon's loopback.
#[test]
fn root_loopback_address_of_the_kernel() {
    let Some(turn) = turn("root_loopback_address_of_the_kernel", Needs::Little, Kernel::Can) else { return };
    let lab = Plan::two_hosts().owner(Owner::Kernel).build(turn.dut);
    for address in ["10.255.0.1", "fd00:255::1"] {
        let len = if address.contains(':') { 128 } else { 32 };
        lab.router.ns.run(&format!("ip address add {address}/{len} dev lo"));
        std::thread::sleep(Duration::from_millis(300));
        ping(lab.left(), address.parse().unwrap(), "", 0);
    }
    let drops = lab.router.drops();
    assert!(!drops.contains_key("no-route"), "{drops:?}");
    lab.finish();
}
