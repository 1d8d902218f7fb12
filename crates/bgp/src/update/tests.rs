use super::*;
use crate::attributes::Origin;
use crate::message::{FAMILIES, LONGEST, frame};
use crate::path::AsPath;
use crate::testing::{any_attributes, any_nlri, nlri};
use bgpkit_parser::models::{AsnLength, BgpMessage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const BOTH: Reading = Reading {
    wide: true,
    internal: false,
    monitored: false,
    families: [true; 2],
    flows: [true; 2],
    add_path: [false; 2],
};

fn bodies(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let frame = frame(bytes, LONGEST).unwrap().unwrap();
        assert_eq!(frame.kind, message::UPDATE);
        bytes = &bytes[frame.bytes()..];
        list.push(frame.body);
    }
    list
}

#[test]
fn updates_are_read_as_they_were_written() {
    let mut rng = StdRng::seed_from_u64(4760);
    for round in 0..2000 {
        let family = FAMILIES[round % 2];
        let reading = Reading {
            wide: rng.random(),
            internal: rng.random(),
            add_path: [rng.random(), rng.random()],
            ..BOTH
        };
        let add_path = reading.add_path[at(family)];
        let attributes = any_attributes(&mut rng, family, true, reading.internal);
        let count = [1, 3, 2000][rng.random_range(0..3)];
        let prefixes: Vec<Nlri> = (0..count).map(|_| any_nlri(&mut rng, family, add_path)).collect();
        let mut bytes = Vec::new();
        put_announcement(&mut bytes, &attributes, &prefixes, family, &reading);
        let mut told = Vec::new();
        for body in bodies(&bytes) {
            let update = Update::read(body, &reading).unwrap();
            assert_eq!((&update.problems, &update.withdrawn), (&vec![], &vec![]), "round {round}");
            let [(read, list)] = &update.announced[..] else { panic!("round {round}: {update:?}") };
            assert_eq!(*read, attributes, "round {round}");
            told.extend_from_slice(list);
        }
        assert_eq!(told, prefixes, "round {round}");

        bytes.clear();
        put_withdrawal(&mut bytes, &prefixes, family, &reading);
        let updates = bodies(&bytes).into_iter().map(|body| Update::read(body, &reading).unwrap());
        assert_eq!(updates.flat_map(|update| update.withdrawn).collect::<Vec<_>>(), prefixes);

        bytes.clear();
        put_end_of_rib(&mut bytes, family);
        let update = Update::read(bodies(&bytes)[0], &reading).unwrap();
        assert_eq!(update, Update { end_of_rib: Some(family), ..Update::default() });
    }
}

/// What we write, bgpkit-parser, an independent implementation, reads the same.
#[test]
fn another_implementation_reads_the_same() {
    let mut rng = StdRng::seed_from_u64(23);
    for round in 0..500 {
        let family = FAMILIES[round % 2];
        let reading = Reading { internal: true, ..BOTH };
        let attributes = any_attributes(&mut rng, family, true, true);
        // It takes a zero at the beginning for a path identifier's.
        let any = std::iter::repeat_with(|| any_nlri(&mut rng, family, false));
        let prefixes: Vec<Nlri> =
            any.filter(|nlri| !nlri.prefix.to_string().ends_with("/0")).take(5).collect();
        let mut bytes = Vec::new();
        put_announcement(&mut bytes, &attributes, &prefixes, family, &reading);
        let mut data = bytes.into();
        let read =
            bgpkit_parser::parser::bgp::parse_bgp_message(&mut data, false, &AsnLength::Bits32).unwrap();
        let BgpMessage::Update(theirs) = read else { panic!("{read:?}") };
        let reached = match family {
            Family::V4 => theirs.announced_prefixes.clone(),
            Family::V6 => theirs.attributes.get_reachable_nlri().unwrap().prefixes.clone(),
        };
        let reached: Vec<String> = reached.iter().map(|one| one.prefix.to_string()).collect();
        let ours: Vec<String> = prefixes.iter().map(|one| one.prefix.to_string()).collect();
        assert_eq!(reached, ours, "round {round}");
        let path = theirs.attributes.as_path().map_or(0, |path| path.route_len());
        assert_eq!(path, attributes.as_path.len(), "round {round}");
        assert_eq!(theirs.attributes.multi_exit_discriminator(), attributes.med);
        assert_eq!(theirs.attributes.local_preference(), attributes.local_pref);
        if family == Family::V4 {
            assert_eq!(theirs.attributes.next_hop(), Some(attributes.next_hop));
        }
    }
}

/// A body by hand: withdrawn, attributes, announced.
fn body(withdrawn: &[u8], attributes: &[&[u8]], announced: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let mut body = (withdrawn.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(withdrawn);
    body.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
    body.extend_from_slice(&attributes);
    body.extend_from_slice(announced);
    body
}

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf0];
const HOP: &[u8] = &[0x40, 3, 4, 10, 0, 0, 1];
const PREFER: &[u8] = &[0x40, 5, 4, 0, 0, 0, 200];
const NET: &[u8] = &[24, 192, 0, 2];
/// 2001:db8::/32 by 2001:db8::1.
const REACH: &[u8] = &[
    0x80, 14, 26, 0, 2, 1, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 32, 0x20, 1, 0xd,
    0xb8,
];

#[derive(Debug, PartialEq)]
enum Then {
    Taken,
    Discarded(u8),
    Withdrawn(u8),
    Reset(u8),
}

fn then(reading: &Reading, body: &[u8]) -> Then {
    match Update::read(body, reading) {
        Err(notice) => {
            assert_eq!(notice.code, notice::UPDATE);
            Then::Reset(notice.subcode)
        }
        Ok(update) => {
            let prefix = nlri("192.0.2.0/24");
            let announced = update.announced.iter().any(|(_, list)| list.contains(&prefix));
            assert_ne!(announced, update.withdrawn.contains(&prefix), "{update:?}");
            match update.problems[..] {
                [] => Then::Taken,
                [Problem::Discarded(kind)] => Then::Discarded(kind),
                [Problem::Withdrawn(kind), ..] => Then::Withdrawn(kind),
                _ => panic!("{update:?}"),
            }
        }
    }
}

#[test]
fn malformed_attributes_cost_what_rfc_7606_says() {
    use Then::{Discarded, Reset, Taken, Withdrawn};
    let external = |extra: &[u8]| then(&BOTH, &body(&[], &[ORIGIN, PATH, HOP, extra], NET));
    for (what, extra, expected) in [
        ("nothing", &[][..], Taken),
        ("MED", &[0x80, 4, 4, 0, 0, 0, 1], Taken),
        ("a short MED", &[0x80, 4, 3, 0, 0, 0], Withdrawn(4)),
        ("MED's flags", &[0x40, 4, 4, 0, 0, 0, 1], Withdrawn(4)),
        ("LOCAL_PREF of another AS", PREFER, Discarded(5)),
        ("ATOMIC_AGGREGATE", &[0x40, 6, 0], Taken),
        ("ATOMIC_AGGREGATE with a value", &[0x40, 6, 1, 0], Discarded(6)),
        ("AGGREGATOR", &[0xc0, 7, 8, 0, 0, 0, 1, 1, 1, 1, 1], Taken),
        ("AGGREGATOR of AS 0", &[0xc0, 7, 8, 0, 0, 0, 0, 1, 1, 1, 1], Discarded(7)),
        ("AGGREGATOR with 2-byte AS", &[0xc0, 7, 6, 0, 1, 1, 1, 1, 1], Discarded(7)),
        ("communities", &[0xc0, 8, 8, 0, 0, 0, 1, 0, 0, 0, 2], Taken),
        ("partial is no fault", &[0xe0, 8, 4, 0, 0, 0, 1], Taken),
        ("no communities", &[0xc0, 8, 0], Withdrawn(8)),
        ("a broken community", &[0xc0, 8, 5, 0, 0, 0, 1, 0], Withdrawn(8)),
        ("ORIGINATOR_ID of another AS", &[0x80, 9, 4, 1, 1, 1, 1], Discarded(9)),
        ("CLUSTER_LIST of another AS", &[0x80, 10, 4, 1, 1, 1, 1], Discarded(10)),
        ("an extended community", &[0xc0, 16, 8, 0, 2, 0, 0, 0, 0, 0, 0], Taken),
        ("a broken extended community", &[0xc0, 16, 7, 0, 2, 0, 0, 0, 0, 0], Withdrawn(16)),
        ("AS4_PATH of a peer with wide numbers", &[0xc0, 17, 6, 2, 1, 0, 0, 0, 1], Discarded(17)),
        ("AS4_AGGREGATOR", &[0xc0, 18, 7, 0, 0, 0, 1, 1, 1, 1], Discarded(18)),
        ("AS4_AGGREGATOR of AS 0", &[0xc0, 18, 8, 0, 0, 0, 0, 1, 1, 1, 1], Discarded(18)),
        ("a large community", &[0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3], Taken),
        ("a broken large community", &[0xc0, 32, 4, 0, 0, 0, 1], Withdrawn(32)),
        ("an unknown optional one", &[0xc0, 99, 2, 1, 2], Taken),
        ("an unknown well-known one", &[0x40, 99, 2, 1, 2], Reset(2)),
        ("an overrun", &[0xc0, 99, 200, 1], Withdrawn(0)),
        ("half a header", &[0xc0], Withdrawn(0)),
        ("an extended length that is cut", &[0xd0, 8, 0], Withdrawn(0)),
        ("ORIGIN again", &[0x40, 1, 1, 2], Discarded(1)),
        ("MP_UNREACH_NLRI twice", &[0x80, 15, 3, 0, 2, 1, 0x80, 15, 3, 0, 2, 1], Reset(1)),
        ("a next hop of 5 bytes", &[0x80, 14, 10, 0, 2, 1, 5, 1, 2, 3, 4, 5, 0], Reset(9)),
        ("MP_UNREACH_NLRI with /129", &[0x80, 15, 4, 0, 2, 1, 129], Reset(9)),
        ("another family's", &[0x80, 15, 7, 0, 1, 128, 1, 2, 3, 4], Taken),
    ] {
        assert_eq!(external(extra), expected, "{what}");
    }
    for (what, attributes, expected) in [
        ("no ORIGIN", &[PATH, HOP][..], Withdrawn(1)),
        ("ORIGIN 3", &[&[0x40, 1, 1, 3], PATH, HOP], Withdrawn(1)),
        ("ORIGIN of 2 bytes", &[&[0x40, 1, 2, 0, 0], PATH, HOP], Withdrawn(1)),
        ("ORIGIN's flags", &[&[0xc0, 1, 1, 0], PATH, HOP], Withdrawn(1)),
        ("no AS_PATH", &[ORIGIN, HOP], Withdrawn(2)),
        ("an empty AS_PATH", &[ORIGIN, &[0x40, 2, 0], HOP], Taken),
        ("an AS_PATH with a confederation", &[ORIGIN, &[0x40, 2, 6, 3, 1, 0, 0, 0, 1], HOP], Withdrawn(2)),
        ("an AS_PATH with an empty segment", &[ORIGIN, &[0x40, 2, 2, 2, 0], HOP], Withdrawn(2)),
        (
            "an AS_PATH with AS 0",
            &[ORIGIN, &[0x40, 2, 10, 2, 2, 0, 0, 0xfb, 0xf0, 0, 0, 0, 0], HOP],
            Withdrawn(2),
        ),
        ("an AS_PATH that overruns", &[ORIGIN, &[0x40, 2, 6, 2, 2, 0, 0, 0, 1], HOP], Withdrawn(2)),
        ("no NEXT_HOP", &[ORIGIN, PATH], Withdrawn(3)),
        ("NEXT_HOP of 3 bytes", &[ORIGIN, PATH, &[0x40, 3, 3, 10, 0, 0]], Withdrawn(3)),
        ("NEXT_HOP 0.0.0.0", &[ORIGIN, PATH, &[0x40, 3, 4, 0, 0, 0, 0]], Withdrawn(3)),
        ("NEXT_HOP is multicast", &[ORIGIN, PATH, &[0x40, 3, 4, 224, 0, 0, 1]], Withdrawn(3)),
    ] {
        assert_eq!(then(&BOTH, &body(&[], attributes, NET)), expected, "{what}");
    }
    let own = Reading { internal: true, ..BOTH };
    for (what, extra, expected) in [
        ("LOCAL_PREF", &[PREFER][..], Taken),
        ("no LOCAL_PREF", &[], Withdrawn(5)),
        ("LOCAL_PREF of 3 bytes", &[&[0x40, 5, 3, 0, 0, 0]], Withdrawn(5)),
        ("ORIGINATOR_ID", &[PREFER, &[0x80, 9, 4, 1, 1, 1, 1]], Taken),
        ("ORIGINATOR_ID of 3 bytes", &[PREFER, &[0x80, 9, 3, 1, 1, 1]], Withdrawn(9)),
        ("CLUSTER_LIST", &[PREFER, &[0x80, 10, 8, 1, 1, 1, 1, 2, 2, 2, 2]], Taken),
        ("an empty CLUSTER_LIST", &[PREFER, &[0x80, 10, 0]], Withdrawn(10)),
    ] {
        let attributes: Vec<&[u8]> = [ORIGIN, PATH, HOP].into_iter().chain(extra.iter().copied()).collect();
        assert_eq!(then(&own, &body(&[], &attributes, NET)), expected, "{what}");
    }
}

#[test]
fn lengths_that_contradict_each_other_reset_the_session() {
    let good = body(NET, &[ORIGIN, PATH, HOP], NET);
    let code = |body: &[u8]| Update::read(body, &BOTH).map_err(|notice| (notice.code, notice.subcode));
    assert!(code(&good).is_ok());
    let with = |at: usize, byte: u8| {
        let mut body = good.clone();
        body[at] = byte;
        code(&body)
    };
    assert_eq!(with(0, 1), Err((3, 1)), "more withdrawn than there is");
    assert_eq!(with(6, 1), Err((3, 1)), "more attributes than there are");
    assert_eq!(with(2, 33), Err((3, 10)), "a prefix of 33 bits is withdrawn");
    assert_eq!(with(good.len() - 4, 33), Err((3, 10)), "a prefix of 33 bits");
    assert_eq!(with(good.len() - 4, 32), Err((3, 10)), "a prefix that ends too early");
    // RFC 7606, 5.2.
    assert_eq!(
        code(&body(&[], &[&[0x40, 1, 1, 3]], &[])),
        Err((3, 1)),
        "malformed, and no routes to withdraw"
    );
    assert!(code(&body(&[], &[ORIGIN, PATH], &[])).is_ok(), "attributes alone");
}

#[test]
fn both_families_in_one_update_have_their_next_hops() {
    let update = Update::read(&body(&[8, 10], &[ORIGIN, PATH, HOP, REACH], NET), &BOTH).unwrap();
    assert_eq!(update.withdrawn, [nlri("10.0.0.0/8")]);
    let told: Vec<(String, String)> = update
        .announced
        .iter()
        .map(|(attributes, list)| (attributes.next_hop.to_string(), list[0].prefix.to_string()))
        .collect();
    let of = |hop: &str, prefix: &str| (hop.to_string(), prefix.to_string());
    assert_eq!(told, [of("10.0.0.1", "192.0.2.0/24"), of("2001:db8::1", "2001:db8::/32")]);
    assert_eq!(update.announced[0].0.origin, Origin::Igp);
    assert_eq!(update.announced[0].0.as_path, AsPath::sequence(&[64_496]));
    // What a family is not spoken for is not taken.
    let four = Reading { families: [true, false], ..BOTH };
    assert_eq!(Update::read(&body(&[], &[ORIGIN, PATH, HOP, REACH], NET), &four).unwrap().announced.len(), 1);
    let six = Reading { families: [false, true], ..BOTH };
    let update = Update::read(&body(&[8, 10], &[ORIGIN, PATH, HOP, REACH], NET), &six).unwrap();
    assert_eq!((update.announced.len(), update.withdrawn.len()), (1, 0));
    // Malformed, they are all withdrawn.
    let update = Update::read(&body(&[], &[PATH, HOP, REACH], NET), &BOTH).unwrap();
    assert_eq!(update.withdrawn, [nlri("192.0.2.0/24"), nlri("2001:db8::/32")]);
}

/// RFC 8955: a family of its own, with or without a next hop; extended communities say what becomes of the packets.
#[test]
fn flow_specifications_come_with_their_actions() {
    const SPEC: &[u8] = &[5, 1, 24, 192, 0, 2];
    const DROP: &[u8] = &[0xc0, 16, 8, 0x80, 6, 0, 0, 0, 0, 0, 0];
    let reach = |hop: &[u8], specs: &[u8]| {
        let value = [&[0, 1, 133, hop.len() as u8][..], hop, &[0], specs].concat();
        [&[0x80, 14, value.len() as u8][..], &value].concat()
    };
    for hop in [&[][..], &[10, 0, 0, 1], &[7; 16]] {
        let update = Update::read(&body(&[], &[ORIGIN, PATH, &reach(hop, SPEC), DROP], &[]), &BOTH).unwrap();
        let [(attributes, actions, list)] = &update.flows[..] else { panic!("{update:?}") };
        assert_eq!((attributes.as_path.neighbor(), actions.to_string()), (Some(64_496), "drop".into()));
        assert_eq!(list[0].to_string(), "destination 192.0.2.0/24");
        assert!(update.announced.is_empty() && update.problems.is_empty());
    }
    let unreach = [&[0x80, 15, 9, 0, 1, 133][..], SPEC].concat();
    let update = Update::read(&body(&[], &[&unreach], &[]), &BOTH).unwrap();
    assert_eq!((update.flows_withdrawn.len(), update.end_of_rib, update.end_of_flows), (1, None, None));
    // The end of what is told is no end of the routes.
    let update = Update::read(&body(&[], &[&[0x80, 15, 3, 0, 1, 133]], &[]), &BOTH).unwrap();
    assert_eq!(update, Update { end_of_flows: Some(Family::V4), ..Update::default() });
    // A redirect may be by way of the next hop.
    let hop: [u8; 11] = [0xc0, 16, 8, 8, 0, 0, 0, 0, 0, 0, 0];
    for (next_hop, text) in [
        (&[][..], "redirect to no next hop"),
        (&[10, 0, 0, 9][..], "redirect to 10.0.0.9"),
        (&[0xfd; 16][..], "redirect to fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd"),
    ] {
        let read = Update::read(&body(&[], &[ORIGIN, PATH, &reach(next_hop, SPEC), &hop], &[]), &BOTH);
        assert_eq!(read.unwrap().flows[0].1.to_string(), text);
    }
    // Without ORIGIN they are withdrawn; one that cannot be read is left out, and the others stand.
    let update = Update::read(&body(&[], &[PATH, &reach(&[], SPEC)], &[]), &BOTH).unwrap();
    assert_eq!((update.flows_withdrawn.len(), &update.problems[..]), (1, &[Problem::Withdrawn(1)][..]));
    let two = [SPEC, &[3, 99, 0x81, 6]].concat();
    let update = Update::read(&body(&[], &[ORIGIN, PATH, &reach(&[], &two)], &[]), &BOTH).unwrap();
    assert_eq!(update.flows.iter().map(|(_, _, list)| list.len()).sum::<usize>(), 1);
    assert_eq!(update.problems, [Problem::Withdrawn(14)]);
    let over = Update::read(&body(&[], &[ORIGIN, PATH, &reach(&[], &SPEC[..4])], &[]), &BOTH);
    assert_eq!(over.map_err(|notice| (notice.code, notice.subcode)), Err((3, 9)));
    // Who does not speak it does not look.
    let none = Reading { flows: [false; 2], ..BOTH };
    let update = Update::read(&body(&[], &[ORIGIN, PATH, &reach(&[], &SPEC[..4])], &[]), &none).unwrap();
    assert_eq!(update, Update::default());
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut rng = StdRng::seed_from_u64(1);
    let good = body(NET, &[ORIGIN, PATH, HOP, PREFER, REACH, &[0xc0, 8, 4, 0, 0, 0, 1]], NET);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..50_000 {
        let mut body = good.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..body.len());
            match rng.random_range(0..3) {
                0 => body[at] = rng.random(),
                1 => body.truncate(at.max(1)),
                _ => body.insert(at, rng.random()),
            }
        }
        let reading = Reading {
            wide: rng.random(),
            internal: rng.random(),
            monitored: rng.random(),
            families: [rng.random(), rng.random()],
            flows: [rng.random(), rng.random()],
            add_path: [rng.random(), rng.random()],
        };
        match Update::read(&body, &reading) {
            Ok(update) => {
                taken += 1;
                assert!(update.announced.iter().all(|(_, list)| !list.is_empty()));
            }
            Err(notice) => {
                refused += 1;
                assert_eq!(notice.code, notice::UPDATE);
            }
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
}
