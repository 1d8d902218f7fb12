//! Any bytes as an image of a NAT's sessions, also with their checksum made right: an error, or sessions that are the same when they have been saved and
//! read again; and a NAT goes on with those that fit it, with none of a static mapping that it has not, keeps no endpoint for two, and forgets all of them in time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::image::ImageError;
use tidemill_nf::nat::config::{Filtering, Pooling};
use tidemill_nf::nat::image::Sessions;
use tidemill_nf::nat::settings::{Plan, Times, Whose};
use tidemill_nf::nat::{Endpoint, Nat, Now, Proto, Share};

const TIMES: Times = Times {
    udp_ms: 120_000,
    inbound_refresh: false,
    established_ms: 7_440_000,
    transitory_ms: 240_000,
    icmp_ms: 60_000,
    fragment_ms: 15_000,
};

fn plan<A: Copy>(pool: Vec<A>, inside: A) -> Plan<A> {
    Plan {
        fixed: vec![(Proto::Tcp, Endpoint { address: inside, port: 80 }, Endpoint { address: pool[0], port: 80 })],
        pool,
        ports: 1..=u16::MAX,
        filtering: Filtering::AddressDependent,
        pooling: Pooling::Paired,
        host_mappings: 20,
        host_sessions: 30,
        network_mappings: 25,
        network_sessions: 35,
        source_sessions: 3,
        mappings: 40,
        sessions: 40,
        fragments: 0,
        whole: Vec::new(),
        deterministic: None,
    }
}

fn look(bytes: &[u8]) -> Result<(), ImageError> {
    let sessions = Sessions::decode(bytes)?;
    let saved = sessions.clone().encode();
    assert_eq!(Sessions::decode(&saved).unwrap(), sessions);
    // Whatever addresses it has are the pool's, so that something fits.
    let mut pool4: Vec<u32> = sessions.v4.iter().map(|saved| saved.about.outside.address).take(8).collect();
    let mut pool6: Vec<u128> = sessions.v6.iter().map(|saved| saved.about.outside.address).take(8).collect();
    pool4.push(0xc000_0201);
    pool6.push(1);
    pool4.sort_unstable();
    pool4.dedup();
    pool6.sort_unstable();
    pool6.dedup();
    let share = Share { worker: 0, workers: 1 };
    let mut v4 = Nat::<u32, 1, 2, 4>::new(plan(pool4, 0x0a00_0001), share, 9).unwrap();
    let mut v6 = Nat::<u128, 3, 5, 5>::new(plan(pool6, 0xfd00 << 112 | 1), share, 9).unwrap();
    let now = Now { ms: 1000, times: &TIMES, owners: &[Whose::Pool], near: &[] };
    // All static mappings here are of this port.
    let fits = |is_static: bool, port: u16| !is_static || port == 80;
    let mut taken4 = 0;
    for saved in sessions.v4.iter().filter(|saved| v4.restore(&now, saved).is_ok()) {
        assert!(fits(saved.is_static, saved.about.outside.port), "{saved:?}");
        taken4 += 1;
    }
    let mut taken6 = 0;
    for saved in sessions.v6.iter().filter(|saved| v6.restore(&now, saved).is_ok()) {
        assert!(fits(saved.is_static, saved.about.outside.port), "{saved:?}");
        taken6 += 1;
    }
    // Connections that nobody has answered may have given way to others.
    assert!(v4.state().sessions() <= taken4 && v6.state().sessions() <= taken6);
    v4.reclaim(u64::MAX >> 16, usize::MAX);
    v6.reclaim(u64::MAX >> 16, usize::MAX);
    assert_eq!((v4.state().sessions(), v4.state().mappings()), (0, 1));
    assert_eq!((v6.state().sessions(), v6.state().mappings()), (0, 1));
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    if let Err(ImageError::Checksum { computed, .. }) = look(bytes) {
        let mut sealed = bytes.to_vec();
        sealed[44..48].copy_from_slice(&computed.to_ne_bytes());
        assert!(!matches!(look(&sealed), Err(ImageError::Checksum { .. })));
    }
});
