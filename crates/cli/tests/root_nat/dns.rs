//! Names are looked up through the box, with real programs at both ends: `dig` at Alice's, `dnsmasq` far away. Answers of one packet, in fragments, and cut short and asked for
//! again by TCP.

use crate::both;
use crate::filter::RULES;
use crate::lab::{ALICE, FAR, Lab, POOL};
use crate::net::{Netns, wait_until};
use crate::{bytes, needs, warm_up};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::time::Duration;

/// A name with an address of each family.
const HOST: &str = "www.tidemill.test";
const HOSTS: [(&str, &str); 2] = [("A", "192.0.2.80"), ("AAAA", "2001:db8::80")];
/// A name with more texts than fit a packet.
const MANY: &str = "many.tidemill.test";

/// Those texts, in order: some 3,100 bytes of an answer.
fn texts() -> Vec<String> {
    let text = |seed: u64| bytes(2 * seed, 95).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut texts: Vec<String> = (0..15).map(text).collect();
    texts.sort();
    texts
}

/// A name server.
struct NameServer {
    child: Child,
    folder: tempfile::TempDir,
}

impl NameServer {
    /// Starts one; it goes by what is said here alone, and is nobody once it has its sockets.
    fn start(ns: &Netns) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("dnsmasq");
        command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user=nobody"]);
        command.args(["--no-resolv", "--no-hosts", "--edns-packet-max=4096", "--bind-interfaces"]);
        command.args(["--log-facility=-", "--log-queries"]);
        command.args(FAR.map(|address| format!("--listen-address={address}")));
        command.arg(format!("--host-record={HOST},{},{}", HOSTS[0].1, HOSTS[1].1));
        command.args(texts().iter().map(|text| format!("--txt-record={MANY},{text}")));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = ns.enter(|| command.spawn()).unwrap();
        let mut server = NameServer { child, folder };
        wait_until("the name server is there", Duration::from_secs(10), || {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", server.log());
            server.log().contains("started, version")
        });
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// How many questions it has had, and how many of these came from there.
    fn asked(&self, from: &str) -> (usize, usize) {
        let log = self.log();
        let questions: Vec<&str> = log.lines().filter(|line| line.contains(" query[")).collect();
        let end = format!(" from {from}");
        (questions.len(), questions.iter().filter(|line| line.ends_with(&end)).count())
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `dig` says at Alice's. It asks once (and once more by TCP where it is told to), and fails if nobody answers.
fn dig(lab: &Lab, server: &str, question: &str) -> String {
    lab.alice.run(&format!("dig -r @{server} +tries=1 +time=5 {question}"))
}

/// The texts of an answer, in order.
fn found(said: &str) -> Vec<String> {
    let text = |line: &str| Some(line.split('"').nth(1)?.to_owned());
    let mut texts: Vec<String> =
        said.lines().filter(|line| line.starts_with(MANY)).filter_map(text).collect();
    texts.sort();
    texts
}

/// Alice finds names over both families; the server sees her as these.
fn names_are_found(lab: &Lab, seen: [&str; 2]) {
    let server = NameServer::start(&lab.far);
    let texts = texts();
    for v6 in [0, 1] {
        warm_up(lab, v6);
        for (kind, address) in HOSTS {
            for way in ["+notcp", "+tcp"] {
                let said = dig(lab, FAR[v6], &format!("{HOST} {kind} {way} +short"));
                assert_eq!(said.trim(), address, "{way}");
            }
        }
        // A long answer, over UDP and nothing else.
        let before = lab.counters()["fragments"];
        let said = dig(lab, FAR[v6], &format!("{MANY} TXT +bufsize=4096 +ignore"));
        assert!(found(&said) == texts && !said.contains("(TCP)"), "{said}");
        let counters = lab.counters_once(|counters| counters["fragments"] >= before + 2);
        assert!(counters["fragments"] >= before + 2, "the answer came in three parts: {counters:?}");
        // With room for less it is cut short, and the client comes again.
        let said = dig(lab, FAR[v6], &format!("{MANY} TXT +bufsize=1232"));
        assert!(found(&said) == texts && said.contains("Truncated, retrying in TCP mode"), "{said}");
        let said = dig(lab, FAR[v6], &format!("{MANY} TXT +tcp"));
        assert!(found(&said) == texts && !said.contains("Truncated"), "{said}");
        // Each question came once, and from where it should.
        let (all, own) = server.asked(seen[v6]);
        assert_eq!((all, own), (8 * (v6 + 1), 8), "{}", server.log());
    }
}

fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "ethtool", "ping", "dig", "dnsmasq"])
}

#[test]
fn names_are_found_through_a_nat() {
    let Some(_turn) = turn("names_are_found_through_a_nat") else { return };
    let lab = Lab::start(2, "");
    names_are_found(&lab, POOL);
    lab.end();
}

#[test]
fn names_are_found_through_both() {
    let Some(_turn) = turn("names_are_found_through_both") else { return };
    let lab = Lab::both(2, "", both::RULES, "");
    names_are_found(&lab, POOL);
    lab.end();
}

#[test]
fn names_are_found_through_a_filter() {
    let Some(_turn) = turn("names_are_found_through_a_filter") else { return };
    let lab = Lab::filter(2, RULES, "");
    names_are_found(&lab, ALICE);
    lab.end();
}
