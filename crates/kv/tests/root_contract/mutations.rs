//! Whatever changes a value voids what is cached of it: every command, protocol and way, loud or quiet. The role's suite has these tests, too
//! (`crates/cli/tests/root_kvcache`): which cache it is, `crate::front` says.

use crate::contract::client::{Tcp, Udp};
use crate::contract::lab::{Lab, PORT, turn};
use crate::contract::pair::{Pair, Way};
use crate::contract::proxy::Proxy;
use crate::contract::wire::{self, Ask, MODES, Mode, SPEECHES, Speech};
use crate::net::wait_until;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// Every command that may change the value of a key that holds a number.
fn asks(speech: Speech) -> Vec<Ask> {
    // An expiry long ago.
    let past = if speech == Speech::Binary { 60 * 60 * 24 * 30 + 1 } else { -1 };
    let mut asks: Vec<Ask> = MODES
        .map(|mode| Ask::Put {
            mode,
            data: b"12345".to_vec(),
            flags: if mode == Mode::Set { 99 } else { 3 },
            expiry: 0,
        })
        .to_vec();
    // A number that is nobody's.
    asks.push(Ask::Cas { token: 1, data: b"6".to_vec(), flags: 0, expiry: 0 });
    asks.extend([
        Ask::Incr(5),
        Ask::Decr(7),
        Ask::Touch(100),
        Ask::Touch(past),
        Ask::Gat(100),
        Ask::Gat(past),
    ]);
    asks.extend([Ask::Delete, Ask::Flush(0)]);
    asks
}

/// Whether a reply comes, so that one knows that it has been done.
fn answers(speech: Speech, ask: &Ask, quiet: bool) -> bool {
    let never_quiet = match speech {
        Speech::Ascii => matches!(ask, Ask::Gat(_)),
        Speech::Binary => matches!(ask, Ask::Touch(_)),
        Speech::Meta => false,
    };
    !quiet || never_quiet
}

/// Whether a value of "50" is another one afterwards.
fn changes(ask: &Ask) -> bool {
    !matches!(ask, Ask::Put { mode: Mode::Add, .. } | Ask::Cas { .. } | Ask::Touch(100) | Ask::Gat(100))
}

/// What `get` says over TCP, where nothing is cached.
fn truth(tcp: &mut Tcp, key: &[u8]) -> Vec<u8> {
    tcp.send(&[b"get ", key, b"\r\n"].concat());
    tcp.until_noop(false)
}

/// How a command reaches memcached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    Tcp,
    Udp,
    /// On memcached's own machine, past the cable.
    LoopbackTcp,
    LoopbackUdp,
}

/// All commands of a protocol, this way; how many.
pub(crate) fn all(lab: &Lab, to: To, speech: Speech) -> usize {
    let mut pair = Pair::new(lab);
    let mut count = 0;
    let local = SocketAddr::from(([127, 0, 0, 1], PORT));
    let mut near: Vec<Udp> = lab
        .sides()
        .iter()
        .map(|server| Udp::new(server.net.udp(([127, 0, 0, 1], 0).into()), local))
        .collect();
    for (number, ask) in asks(speech).into_iter().enumerate() {
        for quiet in [false, true] {
            let key = format!("{to:?}:{speech:?}:{number}:{quiet}").into_bytes();
            let what = format!("{to:?} {speech:?} {ask:?} quiet {quiet}");
            pair.given(&key, 3, 0, b"50");
            let before = truth(&mut pair.plain.text, &key);
            let bytes = wire::request(speech, &ask, &key, quiet, 5);
            match to {
                To::Tcp => drop(pair.tcp(&bytes, &what)),
                To::Udp if answers(speech, &ask, quiet) => drop(pair.udp_once(&bytes, &what)),
                To::Udp => {
                    pair.cached.udp.send(&bytes);
                    pair.plain.udp.send(&bytes);
                }
                To::LoopbackTcp => {
                    let binary = speech == Speech::Binary;
                    // A connection speaks one kind of protocol.
                    let connect = |at: usize| Tcp::new(lab.sides()[at].net.connect(local));
                    let said = [0, 1].map(|at| {
                        let mut tcp = connect(at);
                        tcp.send(&bytes);
                        crate::contract::pair::plain_binary(tcp.until_noop(binary))
                    });
                    assert_eq!(said[0], said[1], "{what}");
                }
                To::LoopbackUdp => {
                    for udp in &mut near {
                        let request = udp.send(&bytes);
                        if answers(speech, &ask, quiet) {
                            udp.wait = Duration::from_secs(5);
                            assert!(udp.receive(request).is_some(), "{what}");
                        }
                    }
                }
            }
            if matches!(to, To::Udp | To::LoopbackUdp) && !answers(speech, &ask, quiet) && changes(&ask) {
                for side in [&mut pair.cached, &mut pair.plain] {
                    wait_until(&what, Duration::from_secs(5), || truth(&mut side.text, &key) != before);
                }
            }
            pair.reads(&key, &what);
            // And again, when it may have been cached anew.
            pair.reads(&key, &what);
            count += 1;
        }
    }
    count
}

#[test]
fn every_command_over_tcp_voids_what_is_cached() {
    let Some(_turn) = turn("every_command_over_tcp_voids_what_is_cached") else { return };
    let lab = crate::front::cached();
    let count: usize = SPEECHES.iter().map(|speech| all(&lab, To::Tcp, *speech)).sum();
    assert_eq!(count, 84);
}

#[test]
fn every_command_over_udp_voids_what_is_cached() {
    let Some(_turn) = turn("every_command_over_udp_voids_what_is_cached") else { return };
    let lab = crate::front::cached();
    let count: usize = SPEECHES.iter().map(|speech| all(&lab, To::Udp, *speech)).sum();
    assert_eq!(count, 84);
}

/// The tests above fail where a cache is stale: with one before memcached that knows only what the best known one does.
#[test]
fn a_stale_cache_is_seen() {
    let Some(_turn) = turn("a_stale_cache_is_seen") else { return };
    let mut lab = Lab::plain();
    let front = lab.cached.net.udp(([10, 1, 0, 2], 0).into());
    let back = lab.cached.net.udp(([127, 0, 0, 1], 0).into());
    back.connect(SocketAddr::from(([127, 0, 0, 1], PORT))).unwrap();
    let proxy = Proxy::start(front, back);
    lab.cached.udp = proxy.address;
    for (to, speech) in [
        (To::Tcp, Speech::Ascii),
        (To::Tcp, Speech::Binary),
        (To::Udp, Speech::Meta),
        (To::LoopbackTcp, Speech::Ascii),
    ] {
        // Nothing is warmed where there is no cache of ours: a first read does it here.
        let key = format!("stale:{to:?}:{speech:?}").into_bytes();
        let mut pair = Pair::new(&lab);
        pair.given(&key, 3, 0, b"50");
        pair.ask(Way::Udp, &[b"get ", &key[..], b"\r\n"].concat(), "warm");
        let delete = wire::request(speech, &Ask::Delete, &key, false, 5);
        match to {
            To::Udp => drop(pair.udp_once(&delete, "delete")),
            _ => drop(pair.tcp(&delete, "delete")),
        }
        let seen = std::panic::catch_unwind(AssertUnwindSafe(|| pair.reads(&key, "delete")));
        assert!(seen.is_err(), "{to:?} {speech:?}: a stale answer was not seen");
    }
}
