//! Two workers: both work, and the packets of a flow stay in order.

use crate::dut::Dut;
use crate::lab::{Family, Link, Plan};
use crate::net::wait_until;
use crate::tcp::exchange;
use crate::traffic::Numbered;
use crate::{Kernel, Needs, turn};
use std::time::Duration;
use tidemill_control::schema::{self, path};

const FLOWS: usize = 32;
const PACKETS: u64 = 60_000;

fn two_workers(dut: Dut, port: &'static str, family: Family) {
    let links = [("left", 1), ("right", 2)].map(|(name, net)| Link { port, ..Link::new(name, net) });
    let lab = Plan::new(links).config("[run]\nworkers = 2\n").build(dut);
    let to = lab.address("right", family);
    exchange(&lab, family, 20_000_000);
    let numbered = Numbered::start(lab.left(), lab.right(), to, FLOWS, 40_000, 64);
    let back = Numbered::start(lab.right(), lab.left(), lab.address("left", family), FLOWS, 10_000, 64);
    wait_until("enough has been sent", Duration::from_secs(20), || numbered.sent() >= PACKETS);
    if dut == Dut::Tidemill {
        wait_until("each worker's load is shown", Duration::from_secs(20), || {
            let shown: schema::Workers = lab.router.get(path::WORKERS).unwrap();
            let works = |worker: &schema::Worker| {
                worker.rx_pps > 0.0
                    && worker.busy_percent > 0.0
                    && worker.busy_percent + worker.asleep_percent < 101.0
            };
            shown.workers.len() == 2 && shown.workers.iter().all(works)
        });
    }
    for arrived in [numbered.finish(), back.finish()] {
        assert_eq!((arrived.late, arrived.flows), (0, FLOWS), "{arrived:?}");
        assert!(arrived.received * 100 >= arrived.sent * 95, "{arrived:?}");
    }
    let workers = lab.router.workers();
    println!("packets per worker: {workers:?}");
    if dut == Dut::Tidemill {
        let all: u64 = workers.iter().sum();
        assert!(workers.len() == 2 && workers.iter().all(|packets| packets * 10 > all), "{workers:?}");
    }
    lab.finish();
}

#[test]
fn root_two_workers_with_two_queues_ipv4() {
    let test = "root_two_workers_with_two_queues_ipv4";
    let Some(turn) = turn(test, Needs::Machine, Kernel::Can) else { return };
    two_workers(turn.dut, "queues = 2", Family::V4);
}

#[test]
fn root_two_workers_with_two_queues_ipv6() {
    let test = "root_two_workers_with_two_queues_ipv6";
    let Some(turn) = turn(test, Needs::Machine, Kernel::Can) else { return };
    two_workers(turn.dut, "queues = 2", Family::V6);
}

#[test]
fn root_two_workers_with_software_rss_ipv4() {
    let test = "root_two_workers_with_software_rss_ipv4";
    let Some(turn) = turn(test, Needs::Machine, Kernel::Can) else { return };
    two_workers(turn.dut, "queues = 1", Family::V4);
}

#[test]
fn root_two_workers_with_software_rss_ipv6() {
    let test = "root_two_workers_with_software_rss_ipv6";
    let Some(turn) = turn(test, Needs::Machine, Kernel::Can) else { return };
    two_workers(turn.dut, "queues = 1", Family::V6);
}
