//! The straight way beside the whole one, on random packets: same fates, same words of the connection, same counters.

use super::*;
use crate::filter::settings::Times;
use crate::filter::text::read_rules;
use crate::filter::{AddressSet, Frame};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_lookup::qsbr::Domain;

const INTERFACES: [&str; 3] = ["lan", "wan", "dmz"];

/// State on both ways, on one, on none; ways that are skipped; connections that are picked up.
const RULES: [&str; 6] = [
    "pass all\n",
    "block all\npass in on lan\npass out on wan\n\
        pass in on wan proto { tcp icmp icmp6 }\npass out on lan proto { tcp icmp icmp6 }\n",
    "set skip on wan\npass on lan\npass on dmz no state\n",
    "set skip on lan\npass in on lan\npass out on wan flags any\n",
    "pass in no state\npass out keep state\nblock in on dmz proto udp\n",
    "pass all flags any\nblock out on lan proto tcp to port 1001\n",
];

const TIMES: Times = Times {
    tcp_opening_ms: 30_000,
    tcp_established_ms: 86_400_000,
    tcp_closing_ms: 900_000,
    tcp_closed_ms: 90_000,
    udp_first_ms: 31_000,
    udp_ms: 120_000,
    icmp_ms: 20_000,
    other_ms: 60_000,
    fragment_ms: 15_000,
};

const PLAN: Plan = Plan {
    states: 40,
    states_per_source: 14,
    half_open: 8,
    half_open_per_source: 5,
    unanswered: 12,
    unanswered_per_source: 8,
    fragments: 16,
};

fn rules(text: &str, recheck: bool, version: u32) -> Rules {
    let (file, domain) = (read_rules(text).unwrap(), Domain::new());
    let sets: Vec<AddressSet> = file.sets.iter().map(|set| AddressSet::of(&set.networks)).collect();
    let interface = |name: &str| INTERFACES.iter().position(|known| *known == name).map(|at| at as u16);
    let frame = Frame {
        interface: &interface,
        vrfs: &[0; 3],
        workers: 2,
        domain: &domain,
        times: TIMES,
        recheck,
        log_per_s: 100,
    };
    Rules::new(&file, &sets, &frame, version).unwrap()
}

fn pick<T: Copy>(random: &mut StdRng, list: &[T]) -> T {
    list[random.random_range(0..list.len())]
}

/// A packet of one of few connections, so that each is met often, and its ways.
fn packet(random: &mut StdRng, is_v6: bool, ident: u16) -> (Ways, Vec<u8>) {
    let (near, far) = (random.random_range(1..4_u8), random.random_range(1..3_u8));
    let mut ports = (random.random_range(1000..1003_u16), pick(random, &[80, 1001]));
    let mut ways = Ways { from: pick(random, &[0, 0, 0, 0, 0, 2]), to: 1 };
    let answers = random.random_bool(0.5);
    if answers {
        (ports, ways) = ((ports.1, ports.0), Ways { from: ways.to, to: ways.from });
    }
    if random.random_bool(0.03) {
        ways.to = NOWHERE;
    }
    let mut body = Vec::new();
    let protocol = match random.random_range(0..12) {
        0..6 => {
            use crate::filter::tcp::flag::{ACK, FIN, RST, SYN};
            body.extend(ports.0.to_be_bytes());
            body.extend(ports.1.to_be_bytes());
            // Few numbers, so that they fit as often as not.
            let far_off = 100_000 * u32::from(random.random_bool(0.2));
            body.extend((1000 + random.random_range(0..3_u32) + far_off).to_be_bytes());
            body.extend((1000 + random.random_range(0..3_u32)).to_be_bytes());
            body.push(5 << 4);
            let flags = [SYN, SYN, SYN | ACK, SYN | ACK, ACK, ACK, ACK, ACK, ACK | FIN, RST, RST | ACK];
            body.push(pick(random, &flags));
            body.extend(pick(random, &[0_u16, 1000, 1001, 65_535]).to_be_bytes());
            body.extend([0; 4]);
            body.extend(vec![7; random.random_range(0..2_usize)]);
            6
        }
        6..9 => {
            for word in [ports.0, ports.1, 16, 0] {
                body.extend(word.to_be_bytes());
            }
            body.extend([7; 8]);
            17
        }
        9 => {
            let asks = random.random_bool(0.5);
            let kinds = if is_v6 { [icmpv6::kind::ECHO_REPLY, icmpv6::kind::ECHO_REQUEST] } else { [0, 8] };
            body.extend([kinds[usize::from(asks)], 0, 0, 0, 0, random.random_range(1..3_u8), 0, 1]);
            if is_v6 { 58 } else { 1 }
        }
        _ => {
            body.extend([1, 2, 3, 4]);
            47
        }
    };
    let mut bytes = Vec::new();
    let length = body.len() as u8;
    if is_v6 {
        bytes.extend([0x60, 0, 0, 0, 0, length, protocol, 64]);
        let [mut source, mut destination] = [[0x20; 16], [0x21; 16]];
        (source[15], destination[15]) = (near, far);
        bytes.extend(if answers { [destination, source] } else { [source, destination] }.concat());
    } else {
        // Now and then the first fragment of a packet.
        let [high, low] = ident.to_be_bytes();
        let more = if random.random_bool(0.05) { 0x20 } else { 0 };
        bytes.extend([0x45, 0, 0, 20 + length, high, low, more, 0, 64, protocol, 0, 0]);
        let (source, destination) = ([10, 0, 0, near], [192, 0, 2, far]);
        bytes.extend(if answers { [destination, source] } else { [source, destination] }.concat());
    }
    bytes.extend(body);
    (ways, bytes)
}

/// How many went the straight way, of open TCP connections, UDP, echoes and others; and how many segments did not fit their open connection.
fn run<A: Net<W>, const W: usize>(seed: u64) -> [u32; 5] {
    let mut random = StdRng::seed_from_u64(seed);
    let worker = random.random_range(0..2);
    let filter = || Filter::<A, W>::new(&PLAN, (worker, 2), 7, Arc::new(ArrayQueue::new(100))).unwrap();
    let (mut straight, mut whole) = (filter(), filter());
    let recheck = random.random_bool(0.7);
    let mut text = pick(&mut random, &RULES);
    let mut version = 1;
    let both = |text: &str, version| [rules(text, recheck, version), rules(text, recheck, version)];
    let mut asked = both(text, version);
    let (mut now_ms, mut ident, mut counts) = (1_000_000_u64, 0, [0; 5]);
    for step in 0..400 {
        let waits = [1000_u64, 15_000, 20_000, 31_000, 60_000, 90_000, 120_000, 900_000, 86_400_000];
        now_ms += random.random_range(0..3_u64);
        now_ms += pick(&mut random, &waits) * u64::from(random.random_bool(0.05));
        if random.random_bool(0.02) {
            if random.random_bool(0.5) {
                text = pick(&mut random, &RULES);
            }
            version += 1;
            asked = both(text, version);
        }
        assert_eq!(straight.reclaim(now_ms, 1), whole.reclaim(now_ms, 1));
        let burst: Vec<(Ways, Vec<u8>)> = (0..random.random_range(1..20))
            .map(|_| {
                ident += 1;
                packet(&mut random, A::V6, ident)
            })
            .collect();
        for (filter, rules) in [&mut straight, &mut whole].into_iter().zip(&asked) {
            filter.read(rules, burst.iter().map(|(ways, ip)| (*ways, &ip[..])));
            filter.look_up(rules);
        }
        for (place, (ways, ip)) in burst.iter().enumerate() {
            let said = || format!("seed {seed}, step {step}, at {now_ms}: {ways:?} {ip:?}\n{text}");
            let goes = straight.straight(place, now_ms, &asked[0]).is_some();
            let fate = straight.judge(place, now_ms, &asked[0], ip);
            whole.settled = None;
            assert_eq!(fate, whole.in_full(place, now_ms, &asked[1], ip), "{}", said());
            assert_eq!(straight.settled(), whole.settled(), "{}", said());
            assert!(!goes || fate == Fate::Passes);
            let Some((_, Ok(read))) = straight.ahead.reads.get(place) else { panic!("{}", said()) };
            let words = |filter: &Filter<A, W>| {
                filter.states.find(&read.key).map(|slot| filter.states.table.state(slot))
            };
            let after = words(&whole);
            assert_eq!(words(&straight), after, "{}", said());
            let is_open = after.is_some_and(|words| Connection::unpack(&words).tcp.is_established());
            let kind = match Kind::of(read.protocol) {
                Kind::Tcp if !is_open => continue,
                Kind::Tcp => 0,
                Kind::Udp => 1,
                Kind::Icmp => 2,
                Kind::Other => 3,
            };
            counts[kind] += u32::from(goes);
            counts[4] += u32::from(fate == Fate::Drop(DropReason::FilterOutOfWindow));
        }
        let all = |filter: &Filter<A, W>| {
            let states = filter.states();
            (states.len(), states.half_open(), states.unanswered(), states.sources())
        };
        assert_eq!(all(&straight), all(&whole));
        assert_eq!(straight.counters(), whole.counters(), "seed {seed}, step {step}\n{text}");
        for rule in 0..asked[0].list().len() {
            let [one, other] = asked.each_ref().map(|rules| rules.hits(rule));
            assert_eq!(one, other, "rule {rule}, seed {seed}, step {step}\n{text}");
        }
    }
    counts
}

#[test]
fn the_straight_way_is_the_whole_one() {
    let mut sums = [0; 5];
    for seed in 0..60 {
        for counts in [run::<u32, 2>(seed), run::<u128, 5>(seed)] {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    assert!(sums.iter().all(|sum| *sum > 200), "{sums:?}");
}

/// A slot is a hint: what lay there when the burst was looked up may have gone since, and another connection may have come.
#[test]
fn a_slot_that_may_be_anothers_is_not_gone_by() {
    let mut filter = Filter::<u32, 2>::new(&PLAN, (0, 1), 7, Arc::new(ArrayQueue::new(100))).unwrap();
    let (rules, mut random) = (rules(RULES[0], true, 1), StdRng::seed_from_u64(5));
    let mut udp = || loop {
        let (ways, ip) = packet(&mut random, false, 1);
        if ip[9] == 17 && ip[6] == 0 && ways.to != NOWHERE {
            break (ways, ip);
        }
    };
    let one = udp();
    let other = loop {
        let other = udp();
        // Between other hosts.
        if other.0 == one.0 && other.1[15] != one.1[15] && other.1[19] != one.1[19] {
            break other;
        }
    };
    let burst = [one, other];
    for (ways, ip) in &burst {
        assert_eq!(filter.judge_one(1000, &rules, *ways, ip), Fate::Passes);
    }
    filter.read(&rules, burst.iter().map(|(ways, ip)| (*ways, &ip[..])));
    filter.look_up(&rules);
    let goes = |filter: &Filter<u32, 2>, ms| [0, 1].map(|place| filter.straight(place, ms, &rules).is_some());
    assert_eq!(goes(&filter, 1000), [true, true]);
    assert_eq!(goes(&filter, 1000 + TIMES.udp_first_ms), [false, false]);
    let key = filter.ahead.reads[0].1.unwrap().key;
    assert!(filter.states.remove(&key));
    assert_eq!(goes(&filter, 1000), [false, true]);
}

/// Those of the other way would be tried in vain with each packet.
#[test]
fn a_way_has_the_matches_that_its_packets_can_meet() {
    let text = "block in quick from 10.0.0.0/8\nblock in quick from 10.1.0.0/16\n\
        pass out to 192.0.2.0/24\npass all\n";
    let rules = rules(text, true, 1);
    assert_eq!([false, true].map(|out| rules.space(out).len()), [3, 2]);
    assert_eq!(rules.matches(), 4);
}

/// Ranges over one network are a long chain of a table, and a short list of a cross-product.
#[test]
fn a_cross_product_answers_as_the_table_does() {
    let block = |n: u16| {
        let (first, last) = (10 * n + 1, 10 * n + 8);
        format!("block in quick proto tcp from 10.0.0.0/8 to any port {first}:{last}\n")
    };
    let text: String = (0..200).map(block).chain(["pass all\n".to_owned()]).collect();
    let rules = rules(&text, true, 1);
    assert_eq!([false, true].map(|out| rules.is_crossed(out)), [true, false]);
    let key = |port| tidemill_classify::Key::ipv4(0x0a01_0203, 7, 9, port, 6);
    let keys: Vec<_> = (0..2100).map(key).collect();
    for out in [false, true] {
        let expected: Vec<_> = keys.iter().map(|key| rules.space(out).lookup(key)).collect();
        let mut found = vec![tidemill_classify::Rank::NONE; keys.len()];
        rules.ask(out, &keys, &mut found);
        assert!(found == expected, "{out}");
    }
}
