//! A recorded run can be repeated, and a run that decides otherwise is found out.

#![allow(clippy::unwrap_used)] // a test may

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use support::*;
use tidemill_burst::Memory;
use tidemill_graph::record::{Event, RecordReader, Recorder, VERSION};
use tidemill_graph::replay::{Replayer, Verdicts};
use tidemill_graph::*;
use tidemill_lookup::qsbr::Domain;

fn record(path: &Path) {
    let memory = Memory::new(8192, 2048).unwrap();
    let ((a, _), (b, _)) = (script("a", 3000), script("b", 0));
    let header = Event::Header {
        version: VERSION,
        config: "mixed".into(),
        capture_clock: true,
        ports: vec!["a".into(), "b".into()],
        nodes: vec!["mixed".into()],
        state: Vec::new(),
    };
    let recorder = Recorder::create(path, &header).unwrap();
    let mut engine = Engine::new(
        mixed_graph(100),
        1,
        vec![vec![a], vec![b]],
        &memory,
        &Domain::new(),
        options(8192, vec![]),
    )
    .unwrap();
    engine.observe(0, recorder.observer());
    let (control, mut boundaries) = (recorder.clone(), 0);
    let outcome = engine.run(move |_| {
        boundaries += 1;
        control.control(boundaries, vec![boundaries as u8]);
    });
    assert!(outcome.snapshot.ledger().balances());
    assert!(recorder.finish().unwrap() >= 12);
}

fn replay(reader: RecordReader, release_after: usize) -> (Verdicts, Option<String>, Vec<u8>) {
    let mut reader = reader;
    assert!(matches!(reader.next_event(), Ok(Some(Event::Header { .. }))));
    let mut replayer = Replayer::new(reader, Arc::new(AtomicU64::new(0)));
    let ports = vec![vec![replayer.port(0, "a")], vec![replayer.port(1, "b")]];
    let memory = Memory::new(8192, 2048).unwrap();
    let graph = mixed_graph(release_after);
    let mut engine = Engine::new(graph, 1, ports, &memory, &Domain::new(), options(8192, vec![])).unwrap();
    engine.observe(0, replayer.observer());
    let mut changes = Vec::new();
    let mut apply = |change: &[u8]| {
        changes.extend(change);
        Ok(changes.len() as u64)
    };
    replayer.advance(&mut apply);
    let outcome = engine.run(|_| replayer.advance(&mut apply));
    assert!(outcome.snapshot.ledger().balances());
    let (verdicts, error) = replayer.finish();
    (verdicts, error.map(|e| e.to_string()), changes)
}

#[test]
fn a_replay_repeats_every_fate_and_a_different_decision_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.tmrec.zst");
    record(&path);
    let (verdicts, error, changes) = replay(RecordReader::open(&path).unwrap(), 100);
    assert_eq!(error, None);
    assert!(verdicts.complete && verdicts.turns >= 12, "{verdicts:?}");
    assert_eq!(verdicts.wrong, 0, "{:?}", verdicts.examples);
    assert!(verdicts.checked > 3000);
    assert!(changes.len() >= 12 && changes.is_sorted());
    let (verdicts, _, _) = replay(RecordReader::open(&path).unwrap(), 99);
    assert!(verdicts.wrong > 0, "the other graph releases packets earlier");
}

#[test]
fn damage_is_reported_with_its_place_and_the_good_part_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.tmrec");
    record(&path);
    let good = std::fs::read(&path).unwrap();
    let (verdicts, error, _) = replay(RecordReader::from_bytes(good[..good.len() / 2].to_vec()), 100);
    assert!(error.unwrap().contains("cut off"));
    assert!(verdicts.turns > 2 && verdicts.wrong == 0 && !verdicts.complete);
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    let (_, error, _) = replay(RecordReader::from_bytes(bad), 100);
    assert!(error.unwrap().starts_with("(memory): event "));
    let mut text = RecordReader::from_bytes(b"this is a text file and nothing else".to_vec());
    assert!(text.next_event().unwrap_err().to_string().contains("this is not a record"));
}
