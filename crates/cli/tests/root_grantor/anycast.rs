//! A Gatekeeper's prefix, announced to BIRD as long as a Grantor of it answers.

use crate::lab::{Lab, Plan};
use crate::needs;
use crate::net::{Netns, wait_until};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// BIRD beside the Gatekeeper, by the loopback interface there.
struct Bird {
    child: Child,
    folder: tempfile::TempDir,
}

const BIRD: &str = "router id 127.0.0.2;\nprotocol device {}\nprotocol bgp ours {\nlocal 127.0.0.2 as 64496;\n\
    neighbor 127.0.0.1 port 1790 as 65000;\nmultihop; connect delay time 1; connect retry time 1; error wait time 1, 2;\n\
    ipv4 { import all; export none; };\n}\n";

const GATE: &str = "[bgp]\nasn = 65000\nid = \"10.7.0.1\"\nlisten = [\"127.0.0.1:1790\"]\n\
    [[bgp.peer]]\nname = \"bird\"\naddress = \"127.0.0.2\"\nasn = 64496\n\
    [[bgp.announce]]\nprefix = \"10.9.0.0/24\"\nnext_hop = \"10.7.0.1\"\nwhile_grantors = true\n\
    [[bgp.announce]]\nprefix = \"198.51.100.0/24\"\nnext_hop = \"10.7.0.1\"\n";

impl Bird {
    fn start(inside: &Netns) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("bird.conf"), BIRD).unwrap();
        let mut command = Command::new("bird");
        command.args(["-f", "-c", "bird.conf", "-s", "bird.ctl"]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Bird { child: inside.enter(|| command.spawn()).unwrap(), folder }
    }

    /// Which of the two prefixes it has: the one with a condition, and the other.
    fn has(&self) -> (bool, bool) {
        let mut command = Command::new("birdc");
        command.arg("-s").arg(self.folder.path().join("bird.ctl")).args(["show", "route"]);
        let told = command
            .output()
            .map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
        (told.contains("10.9.0.0/24"), told.contains("198.51.100.0/24"))
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_prefix_is_announced_while_its_grantor_answers() {
    let test = "a_prefix_is_announced_while_its_grantor_answers";
    let programs = ["ip", "sysctl", "unshare", "ethtool", "bird", "birdc"];
    let Some(_turn) = needs::alone(test, &programs) else { return };
    let mut lab = Lab::planned(&Plan { gates: GATE, ..Plan::default() });
    let bird = Bird::start(&lab.first.middle);
    let becomes = |what: &str, expected: (bool, bool)| {
        wait_until(what, Duration::from_secs(30), || bird.has() == expected);
    };
    becomes("both are announced", (true, true));
    lab.grantor.end();
    becomes("one is withdrawn", (false, true));
    lab.first.gate.says("10.9.0.0/24 is withdrawn: none of its Grantors answers");
    lab.grantor.start_again(&lab.behind);
    becomes("it is announced again", (true, true));
    lab.first.gate.end();
    becomes("all are withdrawn", (false, false));
}
