//! Gatekeepers that know a later start of ours: what we say from their first probe on. What is said of probes that do not count.

use super::*;
use tidemill_decision::replay::Window;

/// The second in which [`Bench`] starts.
const OWN: u32 = (START / SECOND) as u32 - 2;

type Lines = Arc<Mutex<Vec<String>>>;

/// With what it logs.
fn logging() -> (Bench, Lines) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.lua"), GRANT).unwrap();
    let (domain, lines) = (Domain::new(), Lines::default());
    let to = lines.clone();
    let log = Arc::new(move |line: &str| to.lock().unwrap().push(line.to_owned()));
    let control = GrantorControl::new(&section(""), folder.path(), 1, &domain, Run::Repeatable, log).unwrap();
    (Bench { domain, control, folder, raise_ns: None, said: Vec::new(), has_local: false }, lines)
}

fn known(epoch_s: u32, sequence: u32, version: u32) -> Known {
    Known { stamp: Stamp { epoch_s, sequence }, version }
}

/// A probe at this time by a Gatekeeper that knows this.
fn telling(known: Known, v6: usize, time_ns: u64) -> Vec<u8> {
    probe_telling(known, &key(), GATE[v6], GATEKEEPER_PORT, time_ns)
}

/// The versions that are revoked by what worker 0 is given.
fn revoked(bench: &Bench) -> Vec<u32> {
    let orders = std::iter::from_fn(|| bench.control.orders.queue.pop());
    let below = orders.map(|(_, message)| match message {
        Message::Revoke { below, .. } => below,
        other => panic!("{other:?}"),
    });
    below.collect()
}

#[test]
fn a_start_with_an_earlier_clock_goes_on_from_the_first_probe() {
    for v6 in [0, 1] {
        for back_s in [8, 3 * 365 * 86_400] {
            let (first, last) = (OWN + back_s, OWN + back_s + 1);
            let mut bench = Bench::new(GRANT, "");
            let bursts = vec![
                // What that start has sent last was its 41st datagram, by its second policy.
                (START, vec![telling(known(first, 40, last), v6, START)]),
                (START + 1, vec![outer(GATE[v6], 41, 0, &inner(v6, 1, 0))]),
                // What it knows then, and what somebody has kept of the first probe.
                (START + 2, vec![telling(known(first + 1, 1, last + 1), v6, START + 2)]),
                (START + 3, vec![telling(known(first, 40, last), v6, START)]),
            ];
            let (_, out) = bench.run(bursts);
            let window = Window::default();
            assert!(window.take(Stamp { epoch_s: first, sequence: 40 }));
            let sent = out.iter().filter(|(to, _)| to.starts_with("lookup"));
            let said: Vec<(Header, Vec<Message>)> =
                sent.map(|(_, ip)| read(ip, START)).map(|(header, _, messages)| (header, messages)).collect();
            assert_eq!(said.len(), 4);
            for (sequence, (header, messages)) in said.iter().enumerate() {
                // The answer to the first probe already.
                assert_eq!(header.stamp, Stamp { epoch_s: first + 1, sequence: sequence as u32 });
                assert_eq!(header.policy_version, last + 1);
                assert!(window.take(header.stamp));
                let is_decision = matches!(messages[..], [Message::Decision(_)]);
                assert!(is_decision == (sequence == 1) && messages.len() == 1, "{messages:?}");
            }
            assert_eq!(bench.control.version(START), last + 1);
        }
    }
}

/// What the earlier start had decided is revoked with the rest, though the version that was said first lies before it.
#[test]
fn what_is_being_revoked_is_revoked_of_the_later_start_too() {
    let (mut bench, lines) = logging();
    bench.run(vec![(START, vec![telling(Known::default(), 0, START)])]);
    bench.control.revoke(None, START).unwrap();
    assert_eq!(revoked(&bench), [OWN + 1]);
    bench.control.poll(START);
    assert!(revoked(&bench).is_empty());

    let probe = telling(known(OWN + 8, 40, OWN + 9), 0, START);
    bench.run(vec![(START, vec![probe.clone(), probe])]);
    bench.control.poll(START);
    assert_eq!(revoked(&bench), [OWN + 10]);
    bench.control.poll(START + SECOND);
    assert_eq!(revoked(&bench), [OWN + 10], "again");
    assert_eq!(bench.control.version(START), OWN + 10);
    let lines = lines.lock().unwrap().clone();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("warning: gatekeeper 10.0.0.1 knows a later start of ours"), "{line}");
}

#[test]
fn why_probes_are_refused_is_said_once() {
    for v6 in [0, 1] {
        let sent = |keys: &str, time_ns| probe(keys, GATE[v6], GATEKEEPER_PORT, time_ns);
        // Of what is forged nobody believes the time.
        let mut forged = sent(&key(), START - 3600 * SECOND);
        *forged.last_mut().unwrap() ^= 1;
        for (sent, wanted) in [
            (sent(&key().replace("1 ", "2 "), START), "are refused: they have key 2"),
            (forged, "are refused: their tag is wrong: its secret of key 1"),
            (sent(&key(), START - 11 * SECOND), "its clock is 11.0 s behind ours"),
            (sent(&key(), START + 7200 * SECOND), "its clock is 7200.0 s ahead of ours"),
            (telling(known(u32::MAX, 0, 0), v6, START), "start that gatekeeper again"),
        ] {
            let (mut bench, lines) = logging();
            bench.run(vec![(START, vec![sent.clone(), sent])]);
            bench.control.poll(START);
            let lines = lines.lock().unwrap().clone();
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert!(line.contains(&format!("gatekeeper {} ", GATE[v6])) && line.contains(wanted), "{line}");
        }
        let (mut bench, lines) = logging();
        bench.run(vec![(START, vec![sent(&key(), START)])]);
        bench.control.poll(START);
        assert_eq!(*lines.lock().unwrap(), Vec::<String>::new());
    }
}

/// Of whom nothing has counted, or nothing counts any more, nobody says that it is told; it is sent the revocation all the same.
#[test]
fn a_revocation_says_who_may_not_hear_it() {
    let (mut bench, _) = logging();
    let forged = |v6: usize| {
        let mut sent = probe(&key(), GATE[v6], GATEKEEPER_PORT, START);
        *sent.last_mut().unwrap() ^= 1;
        sent
    };
    bench.run(vec![(
        START,
        vec![
            telling(Known::default(), 0, START),
            outer(GATE[0], 41, 0, &inner(0, 1, 0)),
            outer(OTHER, 41, 0, &inner(0, 2, 0)),
            outer(GATE[1], 41, 0, &inner(1, 1, 0)),
            forged(1),
        ],
    )]);
    let mut revoke = |to: Option<&str>, now_ns| {
        let to = to.map(|to| crate::section::range(to).unwrap());
        let said = bench.control.revoke(to, now_ns).unwrap();
        let sent = revoked(&bench);
        assert_eq!(sent, vec![said.version; said.told.len() + said.unheard.len()]);
        (said.told, said.unheard)
    };
    let [gate, gate6, other] = [GATE[0], GATE[1], OTHER].map(ip);
    assert_eq!(revoke(None, START), (vec![gate], vec![other, gate6]));
    assert_eq!(revoke(Some("2001:db8::/32"), START), (vec![], vec![gate6]));
    assert_eq!(revoke(Some("198.51.100.0/24"), START + SECOND), (vec![gate], vec![other]));
    // It has missed its rounds.
    assert_eq!(revoke(Some("198.51.100.0/24"), START + 4 * SECOND), (vec![], vec![gate, other]));
    let known: Vec<_> = bench.control.gatekeepers().map(|(of, _, last_ns)| (of, last_ns)).collect();
    assert_eq!(known, [(gate, Some(START)), (other, None), (gate6, None)]);
}
