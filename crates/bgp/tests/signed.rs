//! Two of ours with signed segments, over the loopback interface: TCP MD5, and TCP-AO where the kernel has it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tidemill_bgp::{
    AoAlgorithm, AoKey, PeerConfig, Runner, RunnerConfig, RunnerError, Signature, SpeakerConfig, State,
};

fn address(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

fn open(last: u8, listens: bool, peer: PeerConfig) -> Result<Runner, RunnerError> {
    let listen = listens.then(|| (address(last), 0).into()).into_iter().collect();
    let id = Ipv4Addr::new(10, 0, 0, last);
    let speaker = SpeakerConfig {
        asn: 65_000 + u32::from(last),
        id,
        hold_s: 90,
        peers: vec![peer],
        exports: Vec::new(),
    };
    Runner::open(RunnerConfig { listen, speaker, bmp_listen: Vec::new(), bmp: Vec::new() })
}

/// One that waits, and one that connects to it; their clock goes faster than the world's.
struct Pair {
    waits: Runner,
    connects: Runner,
    now: u64,
}

impl Pair {
    fn waiting(signature: &Signature) -> PeerConfig {
        PeerConfig { signature: Some(signature.clone()), ..PeerConfig::new("two", address(2), 65_002) }
    }

    fn connecting(signature: Option<&Signature>, port: u16) -> PeerConfig {
        PeerConfig {
            connect: true,
            port,
            local: Some(address(2)),
            signature: signature.cloned(),
            ..PeerConfig::new("one", address(1), 65_001)
        }
    }

    fn open(signature: &Signature) -> Result<Self, RunnerError> {
        let waits = open(1, true, Pair::waiting(signature))?;
        let port = waits.listening()[0].port();
        let connects = open(2, false, Pair::connecting(Some(signature), port))?;
        Ok(Pair { waits, connects, now: 0 })
    }

    /// Whether there is a session after at most so many turns.
    fn meets(&mut self, turns: u32) -> bool {
        for _ in 0..turns {
            self.now += 10_000_000;
            self.waits.poll(self.now, &mut Vec::new());
            self.connects.poll(self.now, &mut Vec::new());
            let up =
                |runner: &Runner| runner.speaker().peers().all(|peer| peer.state == Some(State::Established));
            if up(&self.waits) && up(&self.connects) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    fn connect_by(&mut self, signature: Option<&Signature>) {
        let port = self.waits.listening()[0].port();
        self.connects.set_peers(self.now, vec![Pair::connecting(signature, port)]).unwrap();
    }
}

/// The session stands while both have the same secret, and only then; a secret that one side changes ends it.
fn sessions_need_the_same_secret(make: impl Fn(&str) -> Signature) -> Result<(), RunnerError> {
    let (right, other) = (make("correct horse"), make("battery staple"));
    let mut pair = Pair::open(&right)?;
    assert!(pair.meets(5_000), "no session");
    for wrong in [Some(&other), None] {
        pair.connect_by(wrong);
        assert!(!pair.meets(700), "a session by {wrong:?}");
    }
    // The side that waits takes the same; as a reload does whose file has another secret under the same name.
    pair.waits.set_peers(pair.now, vec![Pair::waiting(&other)]).unwrap();
    pair.connect_by(Some(&right));
    assert!(!pair.meets(700), "a session by the secret of before");
    pair.connect_by(Some(&other));
    assert!(pair.meets(5_000), "no session by the new secret");
    // Nothing has changed: nothing happens.
    let sessions = |pair: &Pair| pair.waits.speaker().peers().next().unwrap().established;
    let before = sessions(&pair);
    pair.waits.set_peers(pair.now, vec![Pair::waiting(&other)]).unwrap();
    assert!(pair.meets(1) && sessions(&pair) == before);
    Ok(())
}

#[test]
fn md5_sessions_need_the_same_password() {
    sessions_need_the_same_secret(|secret| Signature::Md5(secret.into())).unwrap();
}

/// What cannot be taken over leaves all as it was: a peer that comes back has the password of before.
#[test]
fn a_signature_that_cannot_be_set_changes_nothing() {
    let [right, other] = ["correct horse", "battery staple"].map(|secret| Signature::Md5(secret.into()));
    let mut pair = Pair::open(&right).unwrap();
    assert!(pair.meets(5_000), "no session");
    let long = Some(Signature::Md5("x".repeat(100)));
    let three = PeerConfig { signature: long, ..PeerConfig::new("three", address(3), 65_003) };
    let error = pair.waits.set_peers(pair.now, vec![Pair::waiting(&other), three]).unwrap_err();
    assert!(error.to_string().starts_with("peer three: its segments cannot be signed: "), "{error}");
    assert!(pair.meets(1), "the session went");
    pair.connect_by(Some(&other));
    assert!(!pair.meets(700), "a session by what was not taken over");
    pair.connect_by(Some(&right));
    assert!(pair.meets(5_000), "no session by the password of before");
}

#[test]
fn ao_sessions_need_the_same_key() {
    for algorithm in [AoAlgorithm::HmacSha1, AoAlgorithm::AesCmac] {
        let make = |secret: &str| {
            Signature::Ao(AoKey { algorithm, send_id: 7, receive_id: 7, secret: secret.into() })
        };
        match sessions_need_the_same_secret(make) {
            Ok(()) => {}
            Err(error) if error.to_string().contains("this kernel has no TCP-AO") => {
                println!("skipped: ao_sessions_need_the_same_key ({error})");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
