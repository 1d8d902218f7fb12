//! With rules in the driver and two workers: what one worker learns the program drops, and what any host asks for comes.

use crate::lab::{Icmp, Lab, Plan, Responses, VICTIM4, VICTIM6, amplifier};
use crate::net::{Netns, wait_until};
use crate::raw::Raw;
use crate::turn;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const FLOWS: u32 = 200;
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn two_workers_and_the_driver_in_front_of_the_real_kernel() {
    let Some(_turn) = turn("two_workers_and_the_driver_in_front_of_the_real_kernel") else { return };
    let world = Netns::new("world");
    let mitigator = "icmp_rate = 0\noffload = \"xdp\"".into();
    let plan = Plan { icmp: Icmp::ManyHosts, mitigator, more: "[run]\nworkers = 2\n", ..Plan::default() };
    let lab = Lab::on_cables(&world, &plan);
    let outside = Raw::open(&world, "eth0");
    for (round, v6) in (1..).zip([false, true]) {
        let victim = if v6 { VICTIM6 } else { VICTIM4 };
        let mut responses = Responses::to(victim, 124);
        let frames: Vec<Vec<u8>> =
            (0..FLOWS).map(|n| responses.from(amplifier(v6, n), 53, 4000).to_vec()).collect();
        // Of the family before, one has been lifted.
        let rules = u64::from(FLOWS * round - (round - 1));
        // Until every flow has been answered: then its rule is below, whichever worker has made it.
        wait_until("all rules are in the driver", LIMIT, || {
            outside.send_many(&frames);
            std::thread::sleep(Duration::from_millis(50));
            lab.counter("offload-rules") == rules
        });
        std::thread::sleep(Duration::from_millis(200));
        let (arrived, below) = (lab.no_ports(), lab.counter("offload-dropped"));
        let sent: usize = (0..5).map(|_| outside.send_many(&frames)).sum();
        wait_until("the driver has dropped it", LIMIT, || {
            lab.counter("offload-dropped") >= below + sent as u64
        });
        assert_eq!(lab.no_ports(), arrived, "IPv6 {v6}: nothing of it arrives");

        let listed = lab.ask(&["amp", "rules", "--status", "filtered", "--json"]);
        let listed: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let tuples: BTreeSet<String> = listed.iter().map(|rule| rule["source"].to_string()).collect();
        assert_eq!((listed.len() as u64, tuples.len() as u64), (rules, rules), "a tuple is listed once");
        let workers: BTreeSet<u64> = listed.iter().filter_map(|rule| rule["worker"].as_u64()).collect();
        assert_eq!(workers.into_iter().collect::<Vec<_>>(), [0, 1], "both learn");
        let hits: u64 = listed.iter().filter_map(|rule| rule["packets"].as_u64()).sum();
        let counters = lab.counters();
        if !v6 {
            assert_eq!(hits, counters["dropped"] + counters["offload-dropped"], "its hits are counted once");
        }

        // A host asks one of them: the answer comes, from the first one on.
        let asked = amplifier(v6, 7);
        let socket = lab.victim.udp(SocketAddr::new(victim.parse::<IpAddr>().unwrap(), 4000));
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.connect(SocketAddr::new(asked, 53)).unwrap();
        let queries = lab.counter("queries");
        socket.send(b"who is it?").unwrap();
        wait_until("the question has left", LIMIT, || lab.counter("queries") > queries);
        assert_eq!(outside.send_many(&frames[7..8]), 1);
        let mut bytes = [0; 2048];
        assert!(socket.recv(&mut bytes).is_ok(), "IPv6 {v6}: its answer is lost");
        wait_until("all have heard of it", LIMIT, || lab.counter("rules-lifted") >= u64::from(round));
        wait_until("its rule is gone below, and no other", LIMIT, || {
            lab.counter("offload-rules") == rules - 1
        });
    }
    let said = lab.end(Duration::from_secs(20), true);
    // Of what came in before its rule was in the driver, user space may have dropped some.
    assert!(said["dropped"].as_object().unwrap().keys().all(|reason| reason == "amplification"), "{said}");
    assert_eq!(said["amp"]["mail-lost"], 0, "{said}");
}
