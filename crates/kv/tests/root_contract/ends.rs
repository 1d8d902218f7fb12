//! What the tests of `time` do. The role's suite does it, too, with each combination of tiers (`crates/cli/tests/root_kvcache/combinations.rs`).
//!
//! The judge is memcached itself: once it has said over TCP, where nothing is cached, that a key is gone, no answer may have it.

use crate::contract::client::{Tcp, Udp};
use crate::contract::lab::Lab;
use crate::contract::wire::{self, Ask, Said, Speech};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A key under watch.
struct Watched {
    key: Vec<u8>,
    what: String,
    /// What is there, when it is.
    value: Vec<u8>,
    gone: bool,
}

struct Watch<'a> {
    lab: &'a Lab,
    tcp: Tcp,
    udp: Udp,
    keys: Vec<Watched>,
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

impl<'a> Watch<'a> {
    fn new(lab: &'a Lab) -> Self {
        Watch { lab, tcp: lab.tcp(&lab.cached), udp: lab.udp(&lab.cached), keys: Vec::new() }
    }

    fn set(&mut self, key: &str, expiry: i64) {
        let value = format!("value of {key}").into_bytes();
        let put = Ask::Put { mode: wire::Mode::Set, data: value.clone(), flags: 0, expiry };
        assert_eq!(self.tcp.ask(Speech::Ascii, &put, key.as_bytes()), Said::Done);
        self.keys.push(Watched {
            key: key.into(),
            what: format!("{key}, expiry {expiry}"),
            value,
            gone: false,
        });
    }

    /// One look at each key: over TCP, then over UDP in every protocol; how many are there.
    fn look(&mut self) -> usize {
        let mut there = 0;
        for watched in &mut self.keys {
            let truth = self.tcp.ask(Speech::Ascii, &Ask::Get, &watched.key);
            match &truth {
                Said::Absent => watched.gone = true,
                Said::Value { data, .. } if *data == watched.value => {
                    assert!(!watched.gone, "{}: memcached has it again", watched.what);
                    there += 1;
                }
                other => panic!("{}: {other:?}", watched.what),
            }
            for speech in wire::SPEECHES {
                let bytes = wire::request(speech, &Ask::Get, &watched.key, false, 1);
                let Some(bytes) = self.udp.ask(&bytes) else { continue };
                match wire::reply(speech, &Ask::Get, &bytes).unwrap().said {
                    Said::Absent => {}
                    Said::Value { data, .. } => {
                        assert!(
                            !watched.gone,
                            "{}: a {speech:?} answer after memcached had none",
                            watched.what
                        );
                        assert_eq!(data, watched.value, "{}", watched.what);
                    }
                    other => panic!("{}: {other:?}", watched.what),
                }
            }
        }
        there
    }

    /// Looks for so long, and at the end all have to be gone that should.
    fn during(&mut self, time: Duration, stay: &[&str]) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.look();
        }
        for watched in &self.keys {
            let stays = stay.iter().any(|key| key.as_bytes() == watched.key);
            assert_eq!(watched.gone, !stays, "{}", watched.what);
        }
    }

    /// All keys are in the cache by now, if there is one.
    fn warm(&self, keys: &[&str]) {
        keys.iter().for_each(|key| self.lab.warm(key.as_bytes()));
    }
}

/// Given as seconds, and as a date.
pub(crate) fn past(lab: &Lab) {
    let mut watch = Watch::new(lab);
    watch.set("never", 0);
    // From here on it is quick: whatever it has to ask first has been.
    watch.warm(&["never"]);
    watch.set("in-1", 1);
    watch.set("in-2", 2);
    watch.set("in-3", 3);
    watch.set("in-5", 5);
    watch.set("at-3", now_s() + 3);
    watch.set("at-5", now_s() + 5);
    watch.set("before", -1);
    watch.set("long-ago", now_s() - 100);
    // 30 days are the last number of seconds; one more is a date in 1970.
    watch.set("month", 60 * 60 * 24 * 30);
    watch.set("date", 60 * 60 * 24 * 30 + 1);
    watch.warm(&["in-5", "at-5", "month"]);
    watch.during(Duration::from_millis(7500), &["never", "month"]);
}

/// Changed by `touch` and `gat`, in all protocols.
pub(crate) fn touched(lab: &Lab) {
    let mut watch = Watch::new(lab);
    let mut udp = lab.udp(&lab.cached);
    udp.wait = Duration::from_secs(5);
    let mut stay = Vec::new();
    let mut names = Vec::new();
    for speech in wire::SPEECHES {
        for (number, ask) in
            [Ask::Touch(2), Ask::Gat(2), Ask::Touch(0), Ask::Gat(500)].into_iter().enumerate()
        {
            for over_udp in [false, true] {
                names.push((format!("{speech:?}:{number}:{over_udp}"), speech, ask.clone(), over_udp));
            }
        }
    }
    for (key, ..) in &names {
        watch.set(key, if key.contains(":2:") || key.contains(":3:") { 4 } else { 0 });
    }
    for (key, speech, ask, over_udp) in &names {
        if key.contains(":0:") || key.contains(":1:") {
            watch.warm(&[key]);
        }
        let said = if *over_udp {
            let request = udp.send(&wire::request(*speech, ask, key.as_bytes(), false, 3));
            let bytes = udp.receive(request).unwrap();
            wire::reply(*speech, ask, &bytes).unwrap().said
        } else {
            // A connection speaks one kind of protocol.
            lab.tcp(&lab.cached).ask(*speech, ask, key.as_bytes())
        };
        match said {
            Said::Done | Said::Value { .. } if key.contains(":2:") || key.contains(":3:") => {
                stay.push(key.as_str())
            }
            Said::Done | Said::Value { .. } | Said::Absent => {}
            other => panic!("{key}: {other:?}"),
        }
    }
    watch.during(Duration::from_secs(6), &stay);
}

/// Ended for all.
pub(crate) fn flushed(lab: &Lab) {
    let flush = |delay: i64| Ask::Flush(delay);
    type Send = fn(&Lab, &[u8], bool);
    let ways: [(&str, Send); 3] = [
        ("TCP", |lab, bytes, binary| {
            let mut tcp = lab.tcp(&lab.cached);
            tcp.send(bytes);
            tcp.until_noop(binary);
        }),
        ("UDP", |lab, bytes, _| {
            let mut udp = lab.udp(&lab.cached);
            udp.wait = Duration::from_secs(5);
            let request = udp.send(bytes);
            assert!(udp.receive(request).is_some());
        }),
        ("loopback", |lab, bytes, binary| {
            let stream = lab.cached.net.connect(([127, 0, 0, 1], crate::contract::lab::PORT).into());
            let mut tcp = crate::contract::client::Tcp::new(stream);
            tcp.send(bytes);
            tcp.until_noop(binary);
        }),
    ];
    for (number, (way, send)) in ways.into_iter().enumerate() {
        if way == "loopback" && !lab.sees_loopback {
            continue;
        }
        for speech in [Speech::Ascii, Speech::Binary] {
            let mut watch = Watch::new(lab);
            // At once.
            let key = format!("now:{number}:{speech:?}");
            watch.set(&key, 0);
            watch.warm(&[&key]);
            send(lab, &wire::request(speech, &flush(0), b"", false, 1), speech == Speech::Binary);
            assert_eq!(watch.look(), 0, "flush_all over {way} in {speech:?}");
            // Later: what is there until then goes, and what comes after it stays.
            let mut watch = Watch::new(lab);
            let before = format!("before:{number}:{speech:?}");
            watch.set(&before, 0);
            watch.warm(&[&before]);
            send(lab, &wire::request(speech, &flush(3), b"", false, 1), speech == Speech::Binary);
            let between = format!("between:{number}:{speech:?}");
            watch.set(&between, 0);
            watch.during(Duration::from_secs(5), &[]);
            let after = format!("after:{number}:{speech:?}");
            watch.set(&after, 0);
            watch.warm(&[&after]);
            watch.during(Duration::from_millis(300), &[&after]);
        }
    }
}
