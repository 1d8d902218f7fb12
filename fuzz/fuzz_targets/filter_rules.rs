//! Rule files: any bytes are read or refused with a message of one line and a place in the file. What is read is made into rules, if its interfaces are there,
//! and a few packets are judged by them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_nf::filter::settings::{Plan, Times};
use tidemill_nf::filter::text::{read_rules, read_set};
use tidemill_nf::filter::{AddressSet, Filter, Frame, Rules, Ways};

const TIMES: Times = Times {
    tcp_opening_ms: 1000,
    tcp_established_ms: 1000,
    tcp_closing_ms: 1000,
    tcp_closed_ms: 1000,
    udp_first_ms: 1000,
    udp_ms: 1000,
    icmp_ms: 1000,
    other_ms: 1000,
    fragment_ms: 1000,
};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines = text.split('\n').count() as u32;
    let mut networks = Vec::new();
    if let Err(error) = read_set(text, &mut networks) {
        assert!(
            error.line >= 1 && error.line <= lines && error.column >= 1 && !error.to_string().contains('\n'),
            "{error}"
        );
    }
    let file = match read_rules(text) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= lines && error.column >= 1, "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    // A list of lists may be large: that is bounded, and slow here.
    let size: usize = file
        .rules
        .iter()
        .map(|rule| {
            [
                rule.interfaces.len(),
                rule.protocols.len(),
                rule.icmp.len(),
                rule.from.hosts.len(),
                rule.to.hosts.len(),
                rule.from.ports.len(),
                rule.to.ports.len(),
            ]
            .iter()
            .map(|list| (*list).max(1))
            .fold(1, usize::saturating_mul)
        })
        .fold(0, usize::saturating_add);
    if size > 2000 {
        return;
    }
    let domain = tidemill_lookup::qsbr::Domain::new();
    let sets: Vec<AddressSet> = file.sets.iter().map(|set| AddressSet::of(&set.networks)).collect();
    let frame = Frame {
        interface: &|name| ["lan", "wan"].iter().position(|known| *known == name).map(|at| at as u16),
        vrfs: &[],
        workers: 1,
        domain: &domain,
        times: TIMES,
        recheck: true,
        log_per_s: 5,
    };
    let rules = match Rules::new(&file, &sets, &frame, 1) {
        Ok(rules) => rules,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= lines && !error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    let plan = Plan {
        states: 10,
        states_per_source: 8,
        half_open: 5,
        half_open_per_source: 2,
        unanswered: 5,
        unanswered_per_source: 3,
        fragments: 64,
    };
    let log = std::sync::Arc::new(crossbeam_queue::ArrayQueue::new(1));
    let mut filter: Filter<u32, 2> = Filter::new(&plan, (0, 1), 1, log).expect("small tables");
    for n in 0..20_u8 {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, n, 192, 0, 2, n % 3];
        tidemill_wire::ipv4::fill_checksum(&mut bytes);
        bytes.extend([0, n, 0, 53, 0, 8, 0, 0]);
        let ways = if n % 2 == 0 { Ways { from: 0, to: 1 } } else { Ways { from: 1, to: 0 } };
        filter.judge_one(1, &rules, ways, &bytes);
    }
});
