//! What stops a packet on its way, and what is counted and timed by then.

use crate::common::{PORTS, SECOND, run};
use crate::{frame, lan, sent};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::memory::Frame;
use tidemill_switch::SwitchControl;

#[test]
fn time_that_begins_at_0_is_a_time() {
    // As a capture without times has it.
    let rules = "meter=3,pktps,band=type=drop,rate=1,burst_size=10\nudp actions=meter:3,wan\n";
    let packets = (0..50).map(|_| Frame::at(0, frame(1, 3, None, "many"))).collect();
    let metered = run("", rules, lan(vec![packets]));
    assert_eq!((sent(&metered)[1], metered.dropped("metered")), (10, 40));

    let section = toml::from_str("").unwrap();
    let names = PORTS.map(str::to_owned);
    let mut control = SwitchControl::new(&section, &names, 1, &Domain::new(), 99).unwrap();
    control.load("hard_timeout=10,arp actions=drop".as_bytes(), "test", true).unwrap();
    assert!(!control.poll(0));
    assert!(!control.poll(5 * SECOND));
    // Another rule is no reason for the first one's time to begin anew.
    control.load("ip actions=drop".as_bytes(), "test", false).unwrap();
    assert!(!control.poll(6 * SECOND));
    assert_eq!(control.flows("arp").unwrap()[0].duration_ns, 6 * SECOND);
    assert!(control.poll(10 * SECOND));
    assert_eq!(control.rules(), 1);
}
