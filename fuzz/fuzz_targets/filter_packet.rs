//! Any packets through the filter, of both families, both ways, alone and as bursts: nothing panics, bursts are judged as their packets one by one, and tables stay
//! within their bounds.
//!
//! Input: records: how it comes (bit 0: the way, bit 1: IPv6, bit 2: the burst ends here, others: seconds that pass), a length of two bytes, the packet from its IP
//! header on. So that something gets through, IPv4 headers' checksums are put right.
#![no_main]

use crossbeam_queue::ArrayQueue;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use tidemill_nf::filter::settings::{Plan, Times};
use tidemill_nf::filter::text::read_rules;
use tidemill_nf::filter::{AddressSet, Fate, Filter, Frame, LogLine, Net, Rules, Ways};
use tidemill_wire::ipv4;

const TIMES: Times = Times {
    tcp_opening_ms: 30_000,
    tcp_established_ms: 300_000,
    tcp_closing_ms: 60_000,
    tcp_closed_ms: 20_000,
    udp_first_ms: 10_000,
    udp_ms: 30_000,
    icmp_ms: 10_000,
    other_ms: 10_000,
    fragment_ms: 15_000,
};
const PLAN: Plan = Plan {
    states: 20,
    states_per_source: 9,
    half_open: 6,
    half_open_per_source: 3,
    unanswered: 7,
    unanswered_per_source: 4,
    fragments: 64,
};
const RULES: &str = "table <bad> { 10.0.0.64/26, 2001:db8:bad::/48 }\nblock log all\npass in on lan\npass out on wan\nblock return quick from <bad>\n\
    pass in on wan proto tcp to any port { 22, 80:90 } flags any\npass out on lan proto tcp to any port { 22, 80:90 } flags any\n";

struct Twins<A, const W: usize> {
    one: Filter<A, W>,
    all: Filter<A, W>,
    burst: Vec<(Ways, Vec<u8>)>,
}

impl<A: Net<W>, const W: usize> Twins<A, W> {
    fn new(log: &Arc<ArrayQueue<LogLine>>) -> Self {
        let filter = || Filter::new(&PLAN, (0, 1), 3, log.clone()).expect("small tables");
        Twins { one: filter(), all: filter(), burst: Vec::new() }
    }

    fn judge(&mut self, ms: u64, rules: &Rules) {
        for burst in self.burst.chunks(256) {
            self.all.read(rules, burst.iter().map(|(ways, ip)| (*ways, &ip[..])));
            self.all.look_up(rules);
            for (place, (ways, ip)) in burst.iter().enumerate() {
                let fate = self.all.judge(place, ms, rules, ip);
                assert_eq!(self.one.judge_one(ms, rules, *ways, ip), fate);
                assert_eq!(self.one.settled(), self.all.settled());
                if let Fate::Waits(token) = fate {
                    assert_eq!(self.one.resume(ms, token), self.all.resume(ms, token));
                }
            }
        }
        self.burst.clear();
        self.one.reclaim(ms, 3);
        self.all.reclaim(ms, 3);
        assert_eq!(self.one.states().len(), self.all.states().len());
        assert!(self.all.states().len() <= PLAN.states && self.all.states().half_open() <= PLAN.half_open);
        assert!(self.all.states().unanswered() <= PLAN.unanswered);
    }
}

fuzz_target!(|data: &[u8]| {
    let log = Arc::new(ArrayQueue::new(10));
    let (mut v4, mut v6) = (Twins::<u32, 2>::new(&log), Twins::<u128, 5>::new(&log));
    let file = read_rules(RULES).expect("rules");
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
    let rules = Rules::new(&file, &sets, &frame, 1).expect("rules");
    let (mut ms, mut rest) = (1_000_000, data);
    while let Some((&[how, high, low], bytes)) = rest.split_first_chunk() {
        let len = usize::from(high) << 8 | usize::from(low);
        let (packet, next) = bytes.split_at(len.min(bytes.len()));
        rest = next;
        let mut packet = packet.to_vec();
        let ways = if how & 1 == 0 { Ways { from: 0, to: 1 } } else { Ways { from: 1, to: 0 } };
        if how & 2 == 0 {
            if packet.len() >= 20 && ipv4::check_header(&packet).is_ok() {
                ipv4::fill_checksum(&mut packet);
            }
            v4.burst.push((ways, packet));
        } else {
            v6.burst.push((ways, packet));
        }
        if how & 4 != 0 {
            v4.judge(ms, &rules);
            v6.judge(ms, &rules);
        }
        ms += u64::from(how >> 3) * 1000;
    }
    v4.judge(ms, &rules);
    v6.judge(ms, &rules);
});
