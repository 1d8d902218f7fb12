//! Any packets through NAT, on every way, by one worker and by two: nothing panics; what is not translated stays as it is; what is has the right
//! addresses, its length, and right checksums if it had them before.
//!
//! Input: a byte for the configuration; then records: how it comes (bits 0 and 1: the way, bit 2: IPv6, bit 3: to the second worker,
//! others: half minutes that pass), a length of two bytes, the packet from its IP header on. So that something is mapped, the first
//! addresses are put right: a source that leaves is 10.0.0.x, a destination of the pool is 192.0.2.1, with the header's checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_nf::nat::config::{Filtering, Pooling};
use tidemill_nf::nat::ip::Family;
use tidemill_nf::nat::settings::{Deterministic, Plan, Times, Whose};
use tidemill_nf::nat::{Endpoint, Fate, Nat, Now, Proto, Share, Way};
use tidemill_wire::{ipv4, verify_checksums};

const TIMES: Times = Times {
    udp_ms: 120_000,
    inbound_refresh: false,
    established_ms: 7_440_000,
    transitory_ms: 240_000,
    icmp_ms: 60_000,
    fragment_ms: 15_000,
};
const POOL6: u128 = 0x2001_0db8 << 96 | 1;
const INSIDE6: u128 = 0xfd00 << 112;

fn plan<A: Copy>(pool: A, inside: A, how: u8) -> Plan<A> {
    // An address that is one host's whole, or ports by computation: both exclude each other.
    let (whole, deterministic) = match how >> 4 & 3 {
        1 => (vec![(pool, inside)], None),
        2 => (Vec::new(), Some(Deterministic { first: inside, own_bits: 0, hosts: 2, ports: 16, from: 1024, each: 2 })),
        3 => (Vec::new(), Some(Deterministic { first: inside, own_bits: 4, hosts: 2, ports: 16, from: 1024, each: 2 })),
        _ => (Vec::new(), None),
    };
    let filterings = [Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];
    Plan {
        pool: vec![pool],
        ports: 1..=if how & 4 == 0 { u16::MAX } else { 1040 },
        filtering: filterings[usize::from(how & 3).min(2)],
        pooling: if how & 8 == 0 { Pooling::Paired } else { Pooling::Arbitrary },
        host_mappings: 20,
        host_sessions: 30,
        network_mappings: 25,
        network_sessions: 35,
        source_sessions: 3,
        mappings: 40,
        sessions: 40,
        fragments: 64,
        fixed: match whole.is_empty() {
            true => vec![(Proto::Tcp, Endpoint { address: inside, port: 80 }, Endpoint { address: pool, port: 80 })],
            false => Vec::new(),
        },
        whole,
        deterministic,
    }
}

fn is_right<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(ip: &[u8]) -> bool {
    let kind = if A::V6 { [0x86, 0xdd] } else { [8, 0] };
    verify_checksums(&[&[0; 12], &kind[..], ip].concat()).is_ok()
}

struct Lab<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    nats: Vec<Nat<A, E, S, T>>,
    pool: A,
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Lab<A, E, S, T> {
    fn new(pool: A, inside: A, how: u8) -> Self {
        let workers = 1 + usize::from(how >> 7);
        let nat = |worker| Nat::new(plan(pool, inside, how), Share { worker, workers }, 9).expect("small tables");
        Lab { nats: (0..workers).map(nat).collect(), pool }
    }

    fn come(&mut self, ms: u64, at: usize, mut way: Way, packet: &[u8]) {
        let now = Now { ms, times: &TIMES, owners: &[Whose::Ours], near: &[] };
        let mut worker = at % self.nats.len();
        let mut ip = packet.to_vec();
        let was_right = is_right::<A, E, S, T>(packet);
        let mut fate = self.nats[worker].translate(&now, way, &mut ip);
        for _ in 0..2 {
            let Fate::Elsewhere(handover) = fate else { break };
            (worker, way) = (handover.worker, handover.way);
            fate = self.nats[worker].adopt(&now, way, &mut ip);
        }
        self.nats[worker].reclaim(ms, 3);
        assert!(!matches!(fate, Fate::Elsewhere(_)), "it goes round");
        assert_eq!(ip.len(), packet.len());
        let address = |at: usize| A::read(&ip[at..]);
        match fate {
            Fate::Translated | Fate::First(..) => {
                let (source, destination) = (address(A::SOURCE), address(A::SOURCE + A::BYTES));
                match way {
                    Way::Leaving => assert_eq!(source, self.pool),
                    Way::Hairpin => assert!(source == self.pool && destination != self.pool),
                    Way::ToPool if matches!(fate, Fate::Translated) => {
                        assert!(destination != self.pool || self.nats.len() > 1 || packet == ip);
                        assert!(source != self.pool, "from outside nobody comes from the pool");
                    }
                    Way::ToPool | Way::FromUs | Way::Own => {}
                }
                assert!(!was_right || is_right::<A, E, S, T>(&ip), "its checksums were right");
            }
            // The half of a hairpin that went to another worker has another source already.
            _ => assert!(ip == packet || self.nats.len() > 1),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let (pool4, inside4) = (u32::from_be_bytes([192, 0, 2, 1]), u32::from_be_bytes([10, 0, 0, 1]));
    let mut v4 = Lab::new(pool4, inside4, how);
    let mut v6 = Lab::new(POOL6, INSIDE6 | 1, how);
    let mut ms = 1_000_000;
    while let Some((&[flags, high, low], bytes)) = rest.split_first_chunk() {
        let len = usize::from(high) << 8 | usize::from(low);
        let (packet, next) = bytes.split_at(len.min(bytes.len()));
        rest = next;
        ms += u64::from(flags >> 4) * 30_000;
        let way = [Way::Leaving, Way::ToPool, Way::Hairpin, Way::Own][usize::from(flags & 3)];
        let mut packet = packet.to_vec();
        let worker = usize::from(flags >> 3 & 1);
        if flags & 4 == 0 {
            if packet.len() >= 20 {
                if matches!(way, Way::Leaving | Way::Hairpin) {
                    packet[12..15].copy_from_slice(&[10, 0, 0]);
                }
                if matches!(way, Way::ToPool | Way::Hairpin) {
                    packet[16..20].copy_from_slice(&pool4.to_be_bytes());
                }
                if ipv4::check_header(&packet).is_ok() {
                    ipv4::fill_checksum(&mut packet);
                }
            }
            v4.come(ms, worker, way, &packet);
        } else {
            if packet.len() >= 40 {
                if matches!(way, Way::Leaving | Way::Hairpin) {
                    packet[8..23].copy_from_slice(&INSIDE6.to_be_bytes()[..15]);
                }
                if matches!(way, Way::ToPool | Way::Hairpin) {
                    packet[24..40].copy_from_slice(&POOL6.to_be_bytes());
                }
            }
            v6.come(ms, worker, way, &packet);
        }
    }
});
