//! Request logs: what is read, and what is refused and how.
#![allow(clippy::unwrap_used)] // a test may

use std::io::Cursor;
use std::path::Path;
use tidemill_cachesim::log::{Format, Op, load, read};
use tidemill_cachesim::model::Model;
use tidemill_cachesim::{Log, LogError};

fn record(key: u64, size: u32, next: i64) -> Vec<u8> {
    let (time, key, size, next) =
        (7_u32.to_le_bytes(), key.to_le_bytes(), size.to_le_bytes(), next.to_le_bytes());
    [&time[..], &key, &size, &next].concat()
}

fn parse(bytes: &[u8], format: Format) -> Result<Log, LogError> {
    read(Cursor::new(bytes.to_vec()), "f", format, usize::MAX)
}

fn refused(bytes: &[u8], format: Format) -> String {
    let error = parse(bytes, format).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn binary_logs_are_read_and_refused_with_their_place() {
    let good = [record(9, 100, 2), record(5, 50, -1), record(9, 101, i64::MAX)].concat();
    let log = parse(&good, Format::OracleGeneral).unwrap();
    let requests: Vec<_> = log.requests().iter().map(|r| (r.op(), r.key, r.value_bytes())).collect();
    assert_eq!(requests, [(Op::Get, 0, 100), (Op::Get, 1, 50), (Op::Get, 0, 101)]);
    assert_eq!(log.keys().len(), 2);
    for (bytes, message) in [
        (good[..50].to_vec(), "f: record 3 at byte 48: 2 bytes are left of a record of 24"),
        (
            [record(1, 1, 1), record(1, 1, 1)].concat(),
            "f: record 2 at byte 24: the key's next request is number 1",
        ),
        (record(1, 1, -2), "f: record 1 at byte 0: the key's next request is number -2"),
        (record(1, 1 << 30, -1), "f: record 1 at byte 0: 1073741824 bytes"),
        (Vec::new(), "f: no requests"),
    ] {
        assert!(refused(&bytes, Format::OracleGeneral).starts_with(message), "{message}");
    }
    let log = parse(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1], Format::Int32).unwrap();
    assert_eq!(log.requests().iter().map(|request| request.key).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(
        refused(&[1, 2, 3, 4, 5], Format::Int32).split(": the").next(),
        Some("f: record 2 at byte 4: 1 bytes are left of a record of 4")
    );
}

#[test]
fn text_logs_are_read_and_refused_with_their_line() {
    let text = "0,a,17,213,4,get,0\n1,b,20,5,4,set,60\r\n2,a,17,0,4,incr,0\n3,b,20,0,4,delete,0";
    let log = parse(text.as_bytes(), Format::Csv).unwrap();
    let requests: Vec<_> = log.requests().iter().map(|r| (r.op(), r.key, r.value_bytes())).collect();
    assert_eq!(requests, [(Op::Get, 0, 213), (Op::Set, 1, 5), (Op::Change, 0, 0), (Op::Delete, 1, 0)]);
    assert_eq!(log.keys().iter().map(|key| key.key_bytes).collect::<Vec<_>>(), [17, 20]);
    let long = format!("0,{},17,213,4,get,0", "x".repeat(5000));
    for (line, message) in [
        ("0,a,17,213,4,get", "f:2: 6 fields"),
        ("0,a,b,17,213,4,get,0", "f:2: 8 fields"),
        ("", "f:2: 1 fields"),
        ("x,a,17,213,4,get,0", "f:2: the timestamp is not a number"),
        ("0,a,-1,213,4,get,0", "f:2: the key size is not a number"),
        ("0,a,17,,4,get,0", "f:2: the value size is not a number"),
        ("0,a,17,99999999999,4,get,0", "f:2: 99999999999 bytes"),
        ("0,a,17,213,4,get,soon", "f:2: the TTL is not a number"),
        ("0,,17,213,4,get,0", "f:2: the key is empty"),
        ("0,a,17,213,4,GET,0", "f:2: operation \"GET\""),
        ("0,a,17,213,4,\u{1b}[2J,0", "f:2: operation \"\\u{1b}[2J\""),
        (&long, "f:2: longer than 4096 bytes"),
    ] {
        let text = format!("0,a,17,213,4,get,0\n{line}\n0,a,17,213,4,get,0\n");
        let error = refused(text.as_bytes(), Format::Csv);
        assert!(error.starts_with(message), "{message}: {error}");
    }
}

#[test]
fn files_may_be_compressed_and_tell_their_format_by_name() {
    for (name, format) in [
        ("a.oracleGeneral", Some(Format::OracleGeneral)),
        ("a.oracleGeneral.bin.zst", Some(Format::OracleGeneral)),
        ("cluster1.csv.xz", Some(Format::Csv)),
        ("web07.trace.xz", Some(Format::Int32)),
        ("a.bin", None),
    ] {
        assert_eq!(Format::of_name(Path::new(name)), format, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.csv", "a.csv.zst", "a.csv.xz", "a.csv.gz"] {
        let path = folder.path().join(name);
        let mut file = tidemill_archive::create(&path).unwrap();
        std::io::Write::write_all(&mut file, b"0,a,17,213,4,get,0\n0,b,17,213,4,get,0\n").unwrap();
        file.finish().unwrap();
        assert_eq!(load(&path, None, usize::MAX).unwrap().requests().len(), 2, "{name}");
        assert_eq!(load(&path, None, 1).unwrap().requests().len(), 1, "{name}");
        // As another format it is refused.
        assert!(load(&path, Some(Format::OracleGeneral), usize::MAX).is_err());
    }
    let absent = load(&folder.path().join("absent.csv"), None, 1).unwrap_err().to_string();
    assert!(absent.contains("absent.csv: "), "{absent}");
    let unknown = load(&folder.path().join("a.bin"), None, 1).unwrap_err().to_string();
    assert!(unknown.ends_with("a.bin: the name does not tell the format: say oraclegeneral, csv or int32"));
}

#[test]
fn models_are_the_same_every_time_and_have_their_parts() {
    for mut model in Model::every() {
        model.keys = 20_000;
        let (log, again, other) =
            (model.log(50_000, 1).unwrap(), model.log(50_000, 1).unwrap(), model.log(50_000, 2).unwrap());
        assert_eq!((log.requests(), log.keys()), (again.requests(), again.keys()));
        assert_ne!(log.requests(), other.requests());
        let part = |op| log.requests().iter().filter(|r| r.op() == op).count() as f64 / 50_000.0;
        assert!((part(Op::Set) - model.sets).abs() < 0.01, "{}: sets {}", model.name, part(Op::Set));
        assert!((part(Op::Delete) - model.deletes).abs() < 0.01, "{}", model.name);
        let of_keys = |least, most| {
            let within = |key: &&tidemill_cachesim::log::KeyInfo| (least..=most).contains(&key.key_bytes);
            log.keys().iter().filter(within).count() as f64 / 20_000.0
        };
        let of_values = |least, most| {
            let within = |r: &&tidemill_cachesim::Request| (least..=most).contains(&r.value_bytes());
            log.requests().iter().filter(within).count() as f64 / 50_000.0
        };
        match model.name {
            "usr" => assert!(of_keys(16, 21) == 1.0 && of_values(2, 2) == 1.0),
            "sys" => assert!(of_keys(1, 29) == 1.0 && (0.6..0.8).contains(&of_values(490, 510))),
            "app" => {
                assert!((0.88..0.95).contains(&of_keys(31, 31)) && (0.8..0.97).contains(&of_values(257, 283)))
            }
            "etc" => {
                assert!(of_keys(20, 40) > 0.6 && of_values(0, 14) > 0.3 && of_values(1025, 1 << 20) > 0.01)
            }
            "var" => assert!(of_keys(32, 32) == 1.0 && (0.7..0.9).contains(&of_values(50, 50))),
            _ => {
                assert!(of_keys(23, 23) == 1.0 && of_values(1000, 1000) == 1.0, "{}", model.name);
                // Of 20,000 keys by Zipf's law with 0.99 the first has one part in eleven.
                let first = log.requests().iter().filter(|r| r.key == 0).count() as f64 / 50_000.0;
                assert!((first - 0.091).abs() < 0.01, "{}: {first}", model.name);
            }
        }
        model.sets = 1.5;
        assert!(model.log(1, 1).is_none());
    }
}
