//! A Grantor that starts again with an earlier clock: what probes tell it, and that it counts again once it has heard.

use super::*;
use crate::decision::replay::{Stamps, behind};
use crate::decision::revocation::Revocations;

const DESTINATION: &str = "203.0.113.9";

/// What a Grantor says under this stamp and version, with a clock that is right.
fn said(stamp: Stamp, policy_version: u32, message: Message) -> Sent {
    let header = Header { stamp, policy_version, ..header(0, 0, START) };
    sealed(&ring(1), GRANTOR, header, &[message])
}

#[test]
fn a_grantor_whose_clock_has_gone_back_is_told_and_counts_again() {
    for back_s in [8, 3 * 365 * 86_400] {
        let mut section = section(&[1]);
        section.probes = ProbesConfig { interval_ms: 100, fall: 2, rise: 2 };
        let mut bench = Bench::new(&section);
        let counts = |bench: &mut Bench, sent: &Sent, wanted: &str| {
            let (counted, _) = bench.one(START, sent.clone());
            assert!(counted.contains(&wanted), "{wanted}: {counted:?}");
        };

        // A start with a clock that is ahead decides, and takes it back.
        let now_s = (START / SECOND) as u32;
        let ahead_s = now_s + back_s;
        let first = Stamps::new(u64::from(ahead_s) * SECOND);
        let of_first = || first.next(u64::from(ahead_s + 1) * SECOND).unwrap();
        let kept = said(of_first(), ahead_s, declined(DESTINATION));
        counts(&mut bench, &kept, "decisions");
        let everything = Range::new(ip("0.0.0.0"), 0).unwrap();
        let revoke = Message::Revoke { to: everything, below: ahead_s + 1 };
        let last = of_first();
        counts(&mut bench, &said(last, ahead_s + 1, revoke), "revocations");
        let revocation = bench.control.v4.post.of(0).unwrap().revocations.pop().unwrap();
        assert_eq!(bench.letters().len(), 1);

        // The next start has a clock that is right: nothing of it counts.
        let second = Stamps::new(START);
        let of_second = || second.next(START + SECOND).unwrap();
        counts(&mut bench, &said(of_second(), now_s, declined(DESTINATION)), "decisions-replayed");
        assert_eq!(bench.letters(), []);

        // But it is told, and nobody else is.
        let (_, sent) = bench.run(ticks(START + 3 * SECOND, 21, 100 * MS));
        let known = Known { stamp: last, version: ahead_s + 1 };
        let asked = asked(&sent);
        for (_, grantor, _, told) in &asked {
            assert_eq!(*told, if *grantor == ip(GRANTOR) { known } else { Known::default() }, "{grantor}");
        }
        assert!(asked.iter().any(|(_, grantor, ..)| *grantor == ip(GRANTOR)));
        assert_eq!(second.raise(known.stamp), Ok(true));
        let version = behind(known.version).unwrap();
        counts(&mut bench, &said(of_second(), version, declined(DESTINATION)), "decisions");
        assert_eq!(bench.letters(), [(0xcb00_7109, Some(By { grantor: 0, version }))]);

        // What it decides by now stands behind the revocation; what it would have decided by does not.
        let mut revocations = Revocations::new(SECOND);
        let By { grantor, version: below } = revocation.below;
        let mut rank = |version| revocations.rank(START, grantor, 0xcb00_7109_u32, version);
        assert!(rank(ahead_s).is_some());
        revocations.revoke(START, grantor, revocation.to, below).unwrap();
        let mut rank = |version| revocations.rank(START, grantor, 0xcb00_7109_u32, version);
        assert_eq!((rank(now_s), rank(ahead_s)), (None, None));
        assert!(rank(version).is_some());

        // And nothing of the earlier start counts any more, whoever has kept it.
        counts(&mut bench, &kept, "decisions-replayed");
        counts(&mut bench, &said(of_first(), ahead_s + 1, declined(DESTINATION)), "decisions-replayed");
        assert_eq!(bench.letters(), []);
    }
}
