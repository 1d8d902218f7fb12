//! Messages: as long as they say, templates first and again, numbered by records; what is refused is counted.

use crate::collector::{
    Collector, EXPORTED_RECORDS, FLOW_END_REASON, IGNORED_PACKETS, OCTETS, PACKETS, number,
};
use std::cell::RefCell;
use std::io::{Error, ErrorKind};
use tidemill_nf::ipfix::{Ended, Exporter, Left, Record};

fn record(n: u64) -> Record {
    let (source, destination) = match n % 2 {
        0 => ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
        _ => ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()),
    };
    Record {
        source,
        destination,
        ports: (n as u16, 80),
        icmp: 0,
        protocol: 6,
        class: 0,
        port: 2,
        flags: 0x12,
        packets: n + 1,
        bytes: 100 * n,
        first_ms: 1000,
        last_ms: 2000,
        ended: Ended::Idle,
    }
}

/// Gives these, one after the other.
fn list(from: u64, count: u64) -> impl FnMut() -> Option<Record> {
    let mut numbers = from..from + count;
    move || numbers.next().map(record)
}

#[test]
fn a_collector_understands_it() {
    for most in [512, 1232, 65_000] {
        let (mut exporter, collector) = (Exporter::new(most, 1, 60_000), RefCell::new(Collector::default()));
        let send = |message: &[u8]| {
            assert!(message.len() <= most);
            collector.borrow_mut().take(message);
            Ok(())
        };
        assert!(exporter.run(1000, (0, 0), list(0, 1000), send));
        assert!(!exporter.run(30_000, (0, 0), list(0, 0), send));
        assert!(exporter.run(61_000, (3, 99), list(1000, 500), send));
        exporter.end(62_000, (4, 100), send);
        let collector = collector.into_inner();
        assert_eq!((collector.flows.len(), collector.told, collector.statistics.len()), (1500, 2, 3));
        assert_eq!(collector.sum(PACKETS), (1..=1500).sum::<u64>());
        assert_eq!(collector.sum(OCTETS), (0..1500).map(|n| n * 100).sum::<u64>());
        assert_eq!(collector.sum(FLOW_END_REASON), 1500);
        let last = collector.statistics.last().unwrap();
        assert_eq!((number(last, IGNORED_PACKETS), number(last, EXPORTED_RECORDS)), (4, 1500));
        assert_eq!(exporter.messages().0 as usize, collector.messages);
        // A message of 1232 bytes holds 15 or more records of either kind.
        assert!(most < 1232 || collector.messages <= 1500 / 15, "{}", collector.messages);
    }
}

#[test]
fn what_is_refused_is_counted_and_what_blocks_waits() {
    let (mut exporter, collector) = (Exporter::new(512, 1, 60_000), RefCell::new(Collector::default()));
    let take = |message: &[u8]| {
        collector.borrow_mut().take(message);
        Ok(())
    };
    assert!(exporter.run(1000, (0, 0), list(0, 10), take));
    // Nobody takes anything: what was asked for waits, and no more is asked for.
    let mut asked = 0;
    let mut more = list(10, 100);
    let next = || {
        asked += 1;
        more()
    };
    assert!(!exporter.run(1001, (0, 0), next, |_| Err(Error::from(ErrorKind::WouldBlock))));
    assert!((2..20).contains(&asked), "{asked}");
    assert!(exporter.run(1002, (0, 0), &mut more, take));
    assert_eq!((collector.borrow().flows.len(), exporter.unsent()), (110, Left::default()));
    // An answer to what was sent before is none to this.
    let mut refused = false;
    let once = |message: &[u8]| {
        if std::mem::replace(&mut refused, true) {
            take(message)
        } else {
            Err(Error::from(ErrorKind::ConnectionRefused))
        }
    };
    assert!(exporter.run(1003, (0, 0), list(110, 1), once));
    assert_eq!((collector.borrow().flows.len(), exporter.unsent()), (111, Left::default()));
    // No way there: gone, and counted.
    exporter.run(1004, (0, 0), list(111, 2), |_| Err(Error::from(ErrorKind::NetworkUnreachable)));
    assert_eq!(exporter.unsent(), Left { records: 2, packets: 112 + 113, bytes: 11_100 + 11_200 });
    // In the end what still waits is counted, too.
    exporter.run(1005, (0, 0), list(0, 1), |_| Err(Error::from(ErrorKind::WouldBlock)));
    exporter.end(1006, (0, 0), |_| Err(Error::from(ErrorKind::WouldBlock)));
    assert_eq!((exporter.unsent().records, exporter.sent().records), (3, 111));
}

/// Templates that were lost are no templates: what is sent next begins with them.
#[test]
fn records_are_understood_as_soon_as_there_is_a_way() {
    let (mut exporter, collector) = (Exporter::new(512, 1, 60_000), RefCell::new(Collector::default()));
    let lose = |_: &[u8]| Err(Error::from(ErrorKind::NetworkUnreachable));
    let take = |message: &[u8]| {
        collector.borrow_mut().take(message);
        Ok(())
    };
    assert!(!exporter.run(1000, (0, 0), list(0, 0), lose), "nothing was done");
    exporter.run(1001, (0, 0), list(0, 3), lose);
    assert_eq!((exporter.unsent().records, exporter.messages().0), (3, 0));
    assert!(exporter.run(1002, (0, 0), list(3, 3), take));
    assert_eq!((collector.borrow().told, collector.borrow().flows.len()), (1, 3));
    // The same where they come again, as a way is lost.
    exporter.run(62_000, (0, 0), list(0, 0), lose);
    assert!(exporter.run(62_001, (0, 0), list(6, 1), take));
    assert_eq!((collector.borrow().told, collector.borrow().flows.len()), (2, 4));
}
