//! Wrong files: every message, word for word.

#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Write};
use tidemill_feed::{LabelBy, Labels, LoadOptions, Peer, UpdateOptions, Updates, load, load_from};

const COMMENT: &str = "f:1: a comment behind other fields: give it a line of its own, which begins with #";

fn load_error(bytes: &[u8], options: &LoadOptions) -> String {
    match load_from(Box::new(Cursor::new(bytes.to_vec())), "f", options) {
        Ok(table) => panic!("loads: {:?}", table.counts),
        Err(error) => error.to_string(),
    }
}

fn update_error(bytes: &[u8]) -> String {
    let options = UpdateOptions::default();
    let updates = Updates::read(Box::new(Cursor::new(bytes.to_vec())), "f", Labels::new(), options);
    let mut updates = match updates {
        Ok(updates) => updates,
        Err(error) => return error.to_string(),
    };
    let error = updates.find_map(Result::err).unwrap().to_string();
    assert!(updates.next().is_none(), "goes on behind the error");
    error
}

#[test]
fn wrong_tables_say_where_and_what() {
    for (text, message) in [
        ("10.0.0.1/8\t1\n", "f:1: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?"),
        ("# c\n\n2001:db8::1/32\t1\n", "f:3: 2001:db8::1/32 has host bits set: did you mean 2001:db8::/32?"),
        ("10.0.0.0/8\n10.0.0.0/33\n", "f:2: \"33\" is not a prefix length of 0 to 32"),
        ("10.0.0.0/8\n::/129\n", "f:2: \"129\" is not a prefix length of 0 to 128"),
        ("10.0.0/8 1\n", "f:1: \"10.0.0\" is not an IPv4 address"),
        ("10.0.0.0/8,1\nfe80:::/10,2\n", "f:2: \"fe80:::\" is not an IPv6 address"),
        ("10.0.0.0/8\t1\n11.0.0.0/8\n", "f:2: 1 fields, but the first line has 2"),
        ("10.0.0.0/8\t1\n11.0.0.0/8\t1\t2\n", "f:2: 3 fields, but the first line has 2"),
        ("10.0.0.0/8\t\n11.0.0.0/8\t1\n", "f:2: 2 fields, but the first line has 1"),
        (
            "10.0.0.0/8,a\n11.0.0.0/8,\n",
            "f:2: the next hop \"\" is no name (1 to 255 bytes without white space and quotes)",
        ),
        (
            "10.0.0.0/8 1\n\u{1}11.0.0.0/8 1\n",
            "f: neither an MRT file nor text (byte 13 is 0x01): give a routing table or an update file",
        ),
        ("10.0.0.0/8 # home\n", COMMENT),
        ("10.0.0.0/8 1 # home\n", COMMENT),
        ("10.0.0.0/8 1 # at home, really\n", COMMENT),
        ("10.0.0.0/8\t1 # home\n", COMMENT),
        ("10.0.0.0/8,1\t# home\n", COMMENT),
        ("10.0.0.0/8,1 # home, sweet\n11.0.0.0/8,1\n", COMMENT),
        ("prefix,colour\n10.0.0.0/8,red\n", "f: has no next hop column: its lines have 2 fields"),
    ] {
        assert_eq!(load_error(text.as_bytes(), &LoadOptions::default()), message, "{text:?}");
    }
    let most = LoadOptions { most: Some(2), ..LoadOptions::default() };
    let more = "f: more than 2 lines or records: give a smaller table";
    for text in ["10.0.0.0/8 1\n11.0.0.0/8 1\n12.0.0.0/8 1\n", "10.0.0.0/8 1\n#\n#\n", "\n\n\n"] {
        assert_eq!(load_error(text.as_bytes(), &most), more, "{text:?}");
    }
    assert!(load_from(Box::new(&b"10.0.0.0/8 1\n#\n"[..]), "f", &most).is_ok());
    let long = format!("10.0.0.0/8\n{}\n", "1".repeat(5000));
    assert_eq!(
        load_error(long.as_bytes(), &LoadOptions::default()),
        "f:2: longer than 4096 bytes: not a line of a table"
    );
    let endless = [b"10.0.0.0/8\n".to_vec(), b"1".repeat(1 << 21)].concat();
    let tolerant = LoadOptions { skip_wrong: true, ..LoadOptions::default() };
    assert_eq!(load_error(&endless, &tolerant), "f:2: longer than 1048576 bytes: no text");
    let numbers = LoadOptions { numbers: true, ..LoadOptions::default() };
    assert_eq!(
        load_error(b"10.0.0.0/8 1\n11.0.0.0/8 eth0\n", &numbers),
        "f:2: the value eth0 is no whole number: give one, or none at all"
    );
    let late = [b"10.0.0.0/8 1\n".repeat(100), b"11.0.0.0/8 \xff\n".to_vec()].concat();
    assert_eq!(load_error(&late, &LoadOptions::default()), "f:101: not text (byte 12 of the line)");
    let origin = LoadOptions { label_by: LabelBy::OriginAs, ..LoadOptions::default() };
    assert_eq!(
        load_error(b"10.0.0.0/8 a 1\n", &origin),
        "f: has no origin AS column: its lines have 3 fields"
    );
}

#[test]
fn wrong_update_texts_say_where_and_what() {
    for (text, message) in [
        ("A\t10.0.0.0/8\nB\t10.0.0.0/8\n", "f:2: \"B\" is neither A (announce) nor W (withdraw)"),
        (
            "A\t10.0.0.0/8\t1\n",
            "f:1: 3 fields: updates are \"A|W prefix\", \"time A|W prefix nexthop\" or \"time A|W peerAS prefix nexthop\"",
        ),
        ("1\tA\t10.0.0.0/8\t1\nx\tA\t10.0.0.0/8\t1\n", "f:2: \"x\" is no time in seconds since 1970"),
        ("1\tA\tAS1\t10.0.0.0/8\t1\n", "f:1: \"AS1\" is no AS number"),
        ("1\tW\t1\t10.1.0.0/8\t-\n", "f:1: 10.1.0.0/8 has host bits set: did you mean 10.0.0.0/8?"),
        ("A 10.0.0.0/8\nA\n", "f:2: 1 fields, but the first line has 2"),
        ("10.0.0.0/8 W\n", "f:1: the fields are in another order than \"A|W prefix\""),
        ("W 1 10.0.0.0/8 -\n", "f:1: the fields are in another order than \"time A|W prefix nexthop\""),
        (
            "1\t64500\tW\t10.0.0.0/8\t-\n",
            "f:1: the fields are in another order than \"time A|W peerAS prefix nexthop\"",
        ),
        ("A 10.0.0.0/8 # home\n", COMMENT),
        ("A\t10.0.0.0/8 # home\n", COMMENT),
    ] {
        assert_eq!(update_error(text.as_bytes()), message, "{text:?}");
    }
}

/// An MRT record.
fn record(kind: u16, subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut record = 1_000_000_000u32.to_be_bytes().to_vec();
    record.extend(kind.to_be_bytes());
    record.extend(subtype.to_be_bytes());
    record.extend((body.len() as u32).to_be_bytes());
    record.extend(body);
    record
}

const NEXT_HOP: [u8; 7] = [0x40, 3, 4, 192, 0, 2, 1];

/// TABLE_DUMP: 10.0.0.0 / `len` of peer 192.0.2.9 AS 64500.
fn table_dump(len: u8, attributes: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1, 10, 0, 0, 0, len, 1, 0, 0, 0, 0, 192, 0, 2, 9, 0xfb, 0xf4];
    body.extend((attributes.len() as u16).to_be_bytes());
    body.extend(attributes);
    body
}

/// TABLE_DUMP_V2: one peer, 192.0.2.9 AS 64500.
fn peers() -> Vec<u8> {
    record(13, 1, &[1, 1, 1, 1, 0, 0, 0, 1, 2, 1, 1, 1, 1, 192, 0, 2, 9, 0, 0, 0xfb, 0xf4])
}

/// A route to a /8 through a peer of the table.
fn rib(index: u8, prefix: &[u8], attributes: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 1];
    body.extend(prefix);
    body.extend([0, 1, 0, index, 0, 0, 0, 0]);
    body.extend((attributes.len() as u16).to_be_bytes());
    body.extend(attributes);
    body
}

fn message(prefixes: &[u8], attributes: &[u8]) -> Vec<u8> {
    let mut body = vec![0xfb, 0xf4, 0xfb, 0xf5, 0, 0, 0, 1, 192, 0, 2, 9, 192, 0, 2, 10];
    body.extend([0xff; 16]);
    body.extend((19 + 4 + attributes.len() as u16 + prefixes.len() as u16).to_be_bytes());
    body.extend([2, 0, 0]);
    body.extend((attributes.len() as u16).to_be_bytes());
    body.extend(attributes);
    body.extend(prefixes);
    body
}

#[test]
fn wrong_mrt_tables_say_where_and_what() {
    let good = record(12, 1, &table_dump(8, &NEXT_HOP));
    let after = |bad: &[u8]| [good.as_slice(), bad].concat();
    let v2 = |bad: Vec<u8>| [peers(), bad].concat();
    let place = "f: record 2 at byte 41: ";
    let second = "f: record 2 at byte 33: ";
    for (bytes, message) in [
        (after(&good[..5]), format!("{place}the file ends 5 bytes into a record of 12")),
        (after(&good[..40]), format!("{place}the file ends 40 bytes into a record of 41")),
        (
            after(&[0, 0, 0, 0, 0, 12, 0, 1, 0xff, 0, 0, 0]),
            format!("{place}a length of 4278190080 bytes: the header is corrupt"),
        ),
        (after(&record(99, 1, &[])), format!("{place}99 is no MRT type: the header is corrupt")),
        (
            after(&record(12, 1, &table_dump(33, &NEXT_HOP))),
            format!("{place}a prefix length of 33 in an IPv4 prefix"),
        ),
        (
            after(&record(12, 3, &table_dump(8, &NEXT_HOP))),
            format!("{place}address family 3 is neither IPv4 (1) nor IPv6 (2)"),
        ),
        (
            after(&record(12, 1, &table_dump(8, &NEXT_HOP[..6]))),
            format!("{place}an attribute at byte 25 of the body reaches beyond its end"),
        ),
        (
            after(&record(12, 1, &[&table_dump(8, &NEXT_HOP)[..], &[0]].concat())),
            format!("{place}1 bytes behind the last field"),
        ),
        (
            after(&record(12, 1, &table_dump(8, &[0x40, 3, 3, 1, 1, 1]))),
            format!("{place}a next hop of 3 bytes"),
        ),
        (
            after(&record(12, 1, &[0; 7])),
            format!("{place}the prefix at byte 4 of the body reaches beyond its end"),
        ),
        (
            v2(record(13, 2, &rib(1, &[8, 10], &NEXT_HOP))),
            format!("{second}peer index 1, but the peer table has 1"),
        ),
        (
            record(13, 2, &rib(0, &[8, 10], &NEXT_HOP)),
            "f: record 1 at byte 0: peer index 0, but the peer table has 0".into(),
        ),
        (
            v2(record(13, 4, &rib(0, &[129], &NEXT_HOP))),
            format!("{second}a prefix length of 129 in an IPv6 prefix"),
        ),
        (
            record(16, 1, &message(&[8, 10], &NEXT_HOP)),
            "f: holds BGP updates (MRT BGP4MP), not a table: replay it as updates".into(),
        ),
    ] {
        assert_eq!(load_error(&bytes, &LoadOptions::default()), message);
    }
    let path = [0x40, 2, 3, 9, 1, 0];
    let origin = LoadOptions { label_by: LabelBy::OriginAs, ..LoadOptions::default() };
    assert_eq!(
        load_error(&record(12, 1, &table_dump(8, &path)), &origin),
        "f: record 1 at byte 0: 9 is no AS path segment type"
    );
    let most = LoadOptions { most: Some(1), ..LoadOptions::default() };
    let two = [good.clone(), good.clone()].concat();
    assert_eq!(load_error(&two, &most), "f: more than 1 lines or records: give a smaller table");
    let other = LoadOptions { peer: Peer::As(1), ..LoadOptions::default() };
    assert_eq!(
        load_error(&good, &other),
        "f: has no route of peer AS 1; peers with routes: AS 64500 192.0.2.9"
    );
}

#[test]
fn wrong_mrt_updates_say_where_and_what() {
    let mut bad_marker = message(&[8, 10], &NEXT_HOP);
    bad_marker[20] = 0;
    let mut bad_length = message(&[8, 10], &NEXT_HOP);
    bad_length[33] = 200;
    for (body, message) in [
        (bad_marker, "the BGP message does not begin with its marker"),
        (bad_length, "a BGP message length of 200, but the record has 32"),
        (message(&[8, 10], &[]), "the announcement of 10.0.0.0/8 has no next hop"),
        (message(&[40, 10], &NEXT_HOP), "a prefix length of 40 in an IPv4 prefix"),
        (message(&[24, 10], &NEXT_HOP), "a prefix at byte 47 of the body reaches beyond its end"),
    ] {
        assert_eq!(update_error(&record(16, 1, &body)), format!("f: record 1 at byte 0: {message}"));
    }
    assert_eq!(
        update_error(&record(12, 1, &table_dump(8, &NEXT_HOP))),
        "f: holds a routing table (MRT TABLE_DUMP), not updates: load it as a table"
    );
}

#[test]
fn what_is_wrong_can_be_skipped_and_is_counted() {
    let options = LoadOptions { skip_wrong: true, mask_host_bits: true, ..LoadOptions::default() };
    let load = |bytes: &[u8]| load_from(Box::new(Cursor::new(bytes.to_vec())), "f", &options).unwrap();
    let table = load(b"10.0.0.1/8 1\nx 2\n11.0.0.0/8 3\n11.0.0.0/8 4\n");
    assert_eq!((table.v4.len(), table.counts.masked, table.counts.duplicates), (2, 1, 1));
    assert_eq!(table.counts.wrong_places, ["f:2: \"x\" is not an IPv4 address"]);
    let bad = record(12, 1, &table_dump(33, &NEXT_HOP));
    let good = record(12, 1, &table_dump(7, &NEXT_HOP));
    let table = load(&[bad, good.clone(), good[..20].to_vec()].concat());
    // 10.0.0.0/7 is canonical; the truncated record ends the file.
    assert_eq!((table.v4.len(), table.counts.wrong, table.counts.records), (1, 2, 2));
}

#[test]
fn right_mrt_files_load_plain_and_compressed() {
    let dir = tempfile::tempdir().unwrap();
    let bytes =
        [peers(), record(13, 2, &rib(0, &[8, 10], &NEXT_HOP)), record(13, 2, &rib(0, &[12, 11, 31], &[]))]
            .concat();
    for name in ["rib.mrt", "rib.mrt.gz", "rib.mrt.zst"] {
        let path = dir.path().join(name);
        let mut out = tidemill_archive::create(&path).unwrap();
        out.write_all(&bytes).unwrap();
        out.finish().unwrap();
        let table = load(&path, &LoadOptions::default()).unwrap();
        let routes: Vec<String> =
            (table.v4.iter()).map(|(p, l)| format!("{p} {}", table.labels.name(l).unwrap())).collect();
        // The second has host bits set, and no next hop: its peer's address stands in.
        assert_eq!(routes, ["10.0.0.0/8 192.0.2.1", "11.16.0.0/12 192.0.2.9"], "{name}");
        assert_eq!((table.counts.masked, table.counts.stand_ins, table.counts.other), (1, 1, 1));
    }
}
