use super::*;
use crate::nat::config::{Filtering, Pooling};
use crate::nat::settings::Plan;
use crate::nat::state::Share;
use crate::nat::tcp::flag::{ACK, FIN, RST, SYN};

const TIMES: Times = Times {
    udp_ms: 300_000,
    inbound_refresh: false,
    established_ms: 7_440_000,
    transitory_ms: 240_000,
    icmp_ms: 60_000,
    fragment_ms: 15_000,
};
const INSIDE: Endpoint<u32> = Endpoint { address: 0x0a00_0001, port: 4000 };
const SERVER: Endpoint<u32> = Endpoint { address: 0x0a00_0002, port: 80 };
const PUBLIC: Endpoint<u32> = Endpoint { address: 0xc000_0201, port: 8080 };
const REMOTE: Endpoint<u32> = Endpoint { address: 0xc633_6401, port: 53 };

type State4 = State<u32, 1, 2, 4>;

fn state() -> State4 {
    let plan = Plan {
        pool: vec![PUBLIC.address],
        ports: 1..=u16::MAX,
        filtering: Filtering::EndpointIndependent,
        pooling: Pooling::Paired,
        host_mappings: 100,
        host_sessions: 100,
        network_mappings: 100,
        network_sessions: 100,
        source_sessions: 100,
        mappings: 100,
        sessions: 100,
        fragments: 0,
        fixed: vec![(Proto::Tcp, SERVER, PUBLIC)],
        whole: Vec::new(),
        deterministic: None,
    };
    State::new(plan, Share { worker: 0, workers: 1 }, 7).unwrap()
}

fn ask(piece: Piece, out: bool, near: Endpoint<u32>, remote: Endpoint<u32>) -> Ask<u32> {
    Ask { piece, out, near, remote, upper: 20 }
}

/// What is known of the only packet of a burst.
fn known(state: &mut State4, now_ms: u64, ask: Ask<u32>) -> Option<Known<u32>> {
    state.look_ahead([Some(ask)].into_iter());
    state.known(0, now_ms, &TIMES)
}

/// The two words of each session.
fn words(state: &State4) -> Vec<[u64; 2]> {
    let mut all = Vec::new();
    state.sessions.scan(0, usize::MAX, |_, _, state| all.push([state[0], state[1]]));
    all
}

/// A connection from outside whose handshake has gone both ways.
fn answered() -> State4 {
    let mut state = state();
    state.enter(1000, &TIMES, PUBLIC, REMOTE, Piece::Tcp(SYN)).unwrap();
    state.leave(1000, &TIMES, SERVER, REMOTE, Piece::Tcp(SYN | ACK)).unwrap();
    state.enter(1000, &TIMES, PUBLIC, REMOTE, Piece::Tcp(ACK)).unwrap();
    state
}

#[test]
fn a_packet_of_a_session_that_lives_is_noted_as_it_would_be() {
    let (mut ahead, mut plain) = (state(), state());
    for state in [&mut ahead, &mut plain] {
        state.leave(1000, &TIMES, INSIDE, REMOTE, Piece::Udp).unwrap();
    }
    let looks = plain.leave(2000, &TIMES, INSIDE, REMOTE, Piece::Udp).unwrap();
    let sent = known(&mut ahead, 2000, ask(Piece::Udp, true, INSIDE, REMOTE));
    let (proto, upper) = (Proto::Udp, 20);
    assert_eq!(sent, Some(Known { proto, out: true, upper, old: INSIDE, new: looks }));
    assert_eq!(plain.enter(3000, &TIMES, looks, REMOTE, Piece::Udp), Ok(INSIDE));
    let came = known(&mut ahead, 3000, ask(Piece::Udp, false, looks, REMOTE));
    assert_eq!(came, Some(Known { proto, out: false, upper, old: looks, new: INSIDE }));
    assert_eq!((words(&ahead), words(&ahead)[0][1]), (words(&plain), 2 << 32 | 1));
}

#[test]
fn both_sides_of_a_connection_from_outside_are_known() {
    let mut state = answered();
    for flags in [ACK, FIN | ACK, SYN | ACK] {
        assert!(known(&mut state, 2000, ask(Piece::Tcp(flags), true, SERVER, REMOTE)).is_some());
    }
    assert!(known(&mut state, 2000, ask(Piece::Tcp(ACK), false, PUBLIC, REMOTE)).is_some());
}

/// That this packet is not known, and leaves nothing.
fn is_unknown(state: &mut State4, now_ms: u64, ask: Ask<u32>) {
    let before = words(state);
    assert_eq!(known(state, now_ms, ask), None, "{ask:?}");
    assert_eq!(words(state), before, "{ask:?}");
}

#[test]
fn what_needs_more_goes_the_long_way() {
    let mut state = state();
    let looks = state.leave(1000, &TIMES, INSIDE, REMOTE, Piece::Udp).unwrap();
    is_unknown(&mut state, 301_000, ask(Piece::Udp, true, INSIDE, REMOTE));
    is_unknown(&mut state, 301_000, ask(Piece::Udp, false, looks, REMOTE));
    let other = Endpoint { port: 54, ..REMOTE };
    is_unknown(&mut state, 2000, ask(Piece::Udp, true, INSIDE, other));
    is_unknown(&mut state, 2000, ask(Piece::Udp, false, looks, other));
    let (asked, query) = (Endpoint { port: 0, ..REMOTE }, Piece::Request);
    let looks = state.leave(1000, &TIMES, INSIDE, asked, query).unwrap();
    assert!(known(&mut state, 2000, ask(Piece::Reply, false, looks, asked)).is_some());
    is_unknown(&mut state, 2000, ask(query, false, looks, asked));
    // Answered, reset by who was asked, closed by both: they count otherwise from then on.
    let mut half = self::state();
    half.enter(1000, &TIMES, PUBLIC, REMOTE, Piece::Tcp(SYN)).unwrap();
    half.leave(1000, &TIMES, SERVER, REMOTE, Piece::Tcp(SYN | ACK)).unwrap();
    is_unknown(&mut half, 2000, ask(Piece::Tcp(ACK), false, PUBLIC, REMOTE));
    is_unknown(&mut answered(), 2000, ask(Piece::Tcp(RST), true, SERVER, REMOTE));
    let mut closing = answered();
    closing.leave(1000, &TIMES, SERVER, REMOTE, Piece::Tcp(FIN | ACK)).unwrap();
    is_unknown(&mut closing, 2000, ask(Piece::Tcp(FIN | ACK), false, PUBLIC, REMOTE));
}

#[test]
fn what_was_found_is_good_until_something_ends_and_no_longer() {
    let mut state = state();
    let short = Times { udp_ms: 1, ..TIMES };
    state.leave(1000, &TIMES, INSIDE, REMOTE, Piece::Udp).unwrap();
    state.leave(1000, &short, Endpoint { port: 4001, ..INSIDE }, REMOTE, Piece::Udp).unwrap();
    let ask = ask(Piece::Udp, true, INSIDE, REMOTE);
    state.look_ahead([None, Some(ask)].into_iter());
    let known = [0, 1, 2].map(|place| state.known(place, 1000, &TIMES).is_some());
    assert_eq!(known, [false, true, false], "not read, and not there");
    assert_eq!(state.reclaim(1001, usize::MAX), 1);
    assert_eq!(state.known(1, 1001, &TIMES), None);
    state.look_ahead([None].into_iter());
    assert_eq!(state.known(1, 1001, &TIMES), None, "of a burst before");
}
