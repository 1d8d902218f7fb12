//! What was said and is sent again counts once, though its tag is right; and keys change while packets flow.

use crate::lab::{CLIENT, Lab, SERVER, Tidemill, script};
use crate::net::wait_until;
use crate::pair::lost_meanwhile;
use crate::raw::Raw;
use crate::{at, turn};
use std::time::Duration;

/// Whether a frame is a datagram of decisions, in the authenticated format, whose first one grants something.
fn is_grant(frame: &[u8], v6: usize) -> bool {
    let (kind, udp) = [([0x08, 0x00], 34), ([0x86, 0xdd], 54)][v6];
    let ports = [41120_u16, 45232].map(u16::to_be_bytes).concat();
    // UDP's header, then that of the format: version first, the first message behind 24 bytes.
    frame.get(12..14) == Some(&kind[..])
        && frame.get(udp..udp + 4) == Some(&ports[..])
        && frame.get(udp + 8) == Some(&2)
        && frame.get(udp + 8 + 24) == Some(&(2 + v6 as u8))
}

#[test]
fn a_decision_that_is_sent_again_counts_once() {
    let Some(_turn) = turn("a_decision_that_is_sent_again_counts_once") else { return };
    let mut lab = Lab::start(1);
    for v6 in [0, 1] {
        lab.policy(&script(50_000));
        lab.grantor.ask(&["grantor", "reload"]);
        // Who stands on the way hears what the Grantor says, and can say it, too.
        let (hears, says) = (Raw::open(&lab.first.middle, "tm-lan"), Raw::open(&lab.behind, "tm-up"));
        let client = lab.first.client.udp(at(CLIENT[v6], 0));
        client.send_to(b"ask", at(SERVER[v6], 9000)).unwrap();
        // Answers to probes come between.
        let mut frames = std::iter::from_fn(|| hears.receive(Duration::from_secs(10))).take(500);
        let grant = frames.find(|frame| is_grant(&frame.bytes, v6)).unwrap().bytes;
        lab.first.becomes(CLIENT[v6], v6, "granted", Some(50_000));
        let refused = |counters: &[&str]| {
            let all = lab.first.gate.counters();
            counters.iter().map(|name| all[*name]).sum::<u64>()
        };
        let before = refused(&["decisions-replayed"]);
        says.send(&grant);
        lab.first.gate.reaches("decisions-replayed", before + 1);
        // What has been decided since is not undone by it; it may be too old by now as well.
        lab.policy(&script(60_000));
        lab.grantor.ask(&["grantor", "reload"]);
        lab.grantor.ask(&["grantor", "revoke", ["10.9.0.0/24", "fd00:9::/64"][v6]]);
        wait_until("the new grant is there", Duration::from_secs(20), || {
            client.send_to(b"more", at(SERVER[v6], 9000)).unwrap();
            lab.first.flow(CLIENT[v6], v6) == Some(("granted".into(), Some(60_000)))
        });
        let names = ["decisions-replayed", "decisions-stale"];
        let before = refused(&names);
        says.send(&grant);
        wait_until("it is refused", Duration::from_secs(10), || refused(&names) > before);
        assert_eq!(lab.first.flow(CLIENT[v6], v6), Some(("granted".into(), Some(60_000))));
    }
    let said = lab.first.gate.end();
    assert_eq!(said["gate"]["decisions-forged"], 0, "{said}");
    assert!(said["dropped"]["decision-replayed"].as_u64() >= Some(2), "{said}");
    lab.grantor.end();
}

/// A script whose grants are renewed twice a second.
fn renewed(rate: u32) -> String {
    format!(
        "signature('source', 'destination')\n\
         function decide(q) return granted {{ rate = {rate}, expire = 600, renew = 500, step = 500 }} end\n"
    )
}

/// A key is replaced in three steps, each a reload of one side after the other: what is decided in each reaches the flows, Grantors answer, and no packet is lost.
#[test]
fn keys_change_while_packets_flow_and_nothing_is_lost() {
    let Some(_turn) = turn("keys_change_while_packets_flow_and_nothing_is_lost") else { return };
    let mut lab = Lab::start(1);
    let mut rate = 40_000;
    lab.policy(&renewed(rate));
    lab.grantor.ask(&["grantor", "reload"]);
    let mut pairs = Vec::new();
    for v6 in [0, 1] {
        let (from, to) = (lab.first.client.udp(at(CLIENT[v6], 0)), lab.server.udp(at(SERVER[v6], 9000)));
        from.connect(at(SERVER[v6], 9000)).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        wait_until("the client is granted", Duration::from_secs(20), || {
            from.send(&u32::MAX.to_be_bytes()).unwrap();
            lab.first.flow(CLIENT[v6], v6) == Some(("granted".into(), Some(rate)))
        });
        pairs.push((from, to));
    }
    let lost = lost_meanwhile(&pairs, || {
        let (gate, grantor): (&Tidemill, &Tidemill) = (&lab.first.gate, &lab.grantor);
        for (side, ids) in [
            (gate, &[7, 8][..]),
            (grantor, &[7, 8]),
            (grantor, &[8, 7]),
            (gate, &[8, 7]),
            (gate, &[8]),
            (grantor, &[8]),
        ] {
            side.keys(ids);
            rate += 500;
            lab.policy(&renewed(rate));
            grantor.ask(&["grantor", "reload"]);
            for v6 in [0, 1] {
                lab.first.becomes(CLIENT[v6], v6, "granted", Some(rate));
            }
            gate.reaches("probes-answered", gate.counters()["probes-answered"] + 2);
        }
    });
    assert!(lost.iter().all(Vec::is_empty), "{lost:?}");
    let said = lab.first.gate.end();
    for name in ["decisions-forged", "decisions-unknown-key", "decisions-replayed", "decisions-malformed"] {
        assert_eq!(said["gate"][name], 0, "{name}: {said}");
    }
    let said = lab.grantor.end();
    assert_eq!(said["grantor"]["probes-refused"], 0, "{said}");
}
