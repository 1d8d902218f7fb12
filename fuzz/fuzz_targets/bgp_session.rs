//! A session's bytes: any are taken, or end it with the NOTIFICATION that it tells of; where they are cut does not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr};
use tidemill_bgp::message::{self, Capabilities, Graceful, Open};
use tidemill_bgp::{
    End, Event, FlowTrust, PeerConfig, Session, SessionConfig, Speaker, SpeakerConfig, State,
};

const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// OPEN and KEEPALIVE of a peer that can do all; which keeps what it has told while it restarts, or not.
fn hello(asn: u32, keeps: bool) -> Vec<u8> {
    let all: Vec<_> = message::FAMILIES.into_iter().filter(|_| keeps).map(|family| (family, true)).collect();
    let graceful = Some(Graceful { time_s: 60, families: all.clone(), flows: all, ..Graceful::default() });
    let capabilities = Capabilities {
        families: [true; 2],
        flows: [true; 2],
        wide_as: Some(asn),
        extended: true,
        graceful,
        add_path: [3; 2],
        ..Capabilities::default()
    };
    let mut bytes = Vec::new();
    Open { asn, hold_s: 90, id: PEER, capabilities }.put(&mut bytes);
    message::put(&mut bytes, message::KEEPALIVE, &[]);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let peer_as = if choice & 1 == 0 { 64_496 } else { 65_000 };
    let config = SessionConfig {
        local_as: 65_000,
        id: US,
        peer_as,
        hold_s: 90,
        families: [choice & 2 == 0, true],
        flows: choice & 1 == 0,
        add_path: choice & 4 != 0,
        local: IpAddr::V4(US),
    };
    let keeps = choice & 4 == 0;
    let stream = if choice & 8 == 0 { [&hello(peer_as, keeps)[..], data].concat() } else { data.to_vec() };
    let run = |step: usize| {
        let mut session = Session::new(config.clone(), 0);
        let mut events = Vec::new();
        stream.chunks(step).for_each(|part| session.receive(0, part, &mut events));
        (events, session.output().clone(), session.state())
    };
    let whole = run(stream.len().max(1));
    assert_eq!(run(usize::from(choice >> 4) + 1), whole);
    let (events, output, state) = whole;
    assert_eq!(state == State::Closed, matches!(events.last(), Some(Event::Closed(_))));
    if let Some(Event::Closed(End::Sent(notice))) = events.last() {
        let mut last = Vec::new();
        message::put_notice(&mut last, notice);
        assert!(output.ends_with(&last));
    }

    // The same to a speaker: what it tells is what its table holds.
    let flows = if choice & 2 == 0 { FlowTrust::Validated } else { FlowTrust::Trusted };
    let peer = PeerConfig::new("peer", PEER.into(), peer_as);
    let peers = vec![PeerConfig { add_path: choice & 4 != 0, flows, ..peer }];
    let config = SpeakerConfig { asn: 65_000, id: US, hold_s: 90, peers, exports: Vec::new() };
    let mut speaker = Speaker::new(config);
    let mut changes = Vec::new();
    if let Ok(id) = speaker.connected(0, PEER.into(), US.into(), false, &mut changes) {
        speaker.receive(0, id, &stream, &mut changes);
        speaker.rib().check();
        assert_eq!(speaker.flows().len(), speaker.peers().map(|peer| peer.flows).sum::<usize>());
        assert!(speaker.flows().iter().all(|flow| !flow.actions.to_string().is_empty()));
        speaker.closed(0, id, &mut changes);
        // It may be back, with what it has kept, say the same again, and be gone for good.
        if let Ok(id) = speaker.connected(0, PEER.into(), US.into(), false, &mut changes) {
            speaker.receive(0, id, &stream, &mut changes);
            assert_eq!(speaker.flows().len(), speaker.peers().map(|peer| peer.flows).sum::<usize>());
            speaker.closed(0, id, &mut changes);
        }
        speaker.tick(u64::MAX, &mut changes);
        while speaker.rib_mut().sweep(100, &mut changes) {}
        assert!(speaker.rib().is_empty() && speaker.flows().is_empty());
    }
});
