//! The golden transactions of `tidemill-kv`, which its codec and memcached itself are held to, through the cache: each on a connection of its own, whole and byte by byte, while what it is about is kept.

#![allow(clippy::unwrap_used)]

mod common;

use common::world::{CLIENT, World};
use std::collections::BTreeSet;
use tidemill_kv::codec::event::{Answer, Owned};
use tidemill_kv::golden::{self, Transaction};
use tidemill_kvcache::Fate;

/// What a segment has room for; longer ones are cut.
const SEGMENT: usize = 1400;
/// Values of a mebibyte show nothing here that shorter ones do not.
const LONGEST: usize = 100_000;

/// The keys that a plain get can name.
fn keys(transaction: &Transaction, of: impl Fn(&Owned) -> Option<&Vec<u8>>) -> BTreeSet<String> {
    let plain =
        |key: &&Vec<u8>| (1..=250).contains(&key.len()) && key.iter().all(|byte| byte.is_ascii_graphic());
    let text = |key: &Vec<u8>| String::from_utf8(key.clone()).unwrap();
    transaction.events.iter().filter_map(of).filter(plain).map(text).collect()
}

/// Whether the cache answers a get of it: one of a few, for now and then one goes with a question of the cache's own.
fn hits(world: &mut World, key: &str) -> bool {
    (0..5).any(|_| world.hits(key))
}

#[test]
fn they_void_what_they_change_and_nothing_else() {
    let (mut run, mut changed, mut read, mut again) = (0, 0, 0, 0);
    for transaction in golden::text().into_iter().chain(golden::binary()) {
        let (name, events) = (transaction.name, &transaction.events);
        if transaction.request.len() > LONGEST {
            continue;
        }
        let changes = keys(&transaction, |event| match event {
            Owned::Mutates(key) => Some(key),
            _ => None,
        });
        let all = keys(&transaction, |event| match event {
            Owned::Mutates(key) | Owned::Reads(key) => Some(key),
            _ => None,
        });
        let is_everything = events.iter().any(|event| matches!(event, Owned::All | Owned::Lost(_)));
        let is_answered = matches!(events.last(), Some(Owned::Command(_)))
            && events.iter().all(|event| match event {
                Owned::Command(command) => command.answer == Answer::Always,
                _ => true,
            });
        for size in [SEGMENT, 1] {
            let mut world = World::new("slots = 65536");
            for key in &all {
                assert!(hits(&mut world, key), "{name}: {key} is kept");
            }
            world.opens(CLIENT.1, world.client);
            for piece in transaction.request.chunks(size) {
                assert_eq!(world.sends(piece), Fate::Pass, "{name}");
            }
            for key in all.iter().map(String::as_str).chain(["other"]) {
                let is_void = is_everything || changes.contains(key);
                assert_eq!(hits(&mut world, key), !is_void, "{name}, {size} bytes at a time: {key}");
                *(if is_void { &mut changed } else { &mut read }) += 1;
            }
            run += 1;
            if is_everything || !is_answered || transaction.reply.is_empty() {
                continue;
            }
            // What was changed is kept again when memcached has said that it is.
            for piece in transaction.reply().chunks(size) {
                assert_eq!(world.says(piece), Fate::Pass, "{name}");
            }
            for key in &changes {
                assert!(hits(&mut world, key), "{name}, {size} bytes at a time: {key} is not kept again");
                again += 1;
            }
        }
    }
    println!("{run} transactions: {changed} keys void, {read} answered on, {again} kept again");
    assert!(run > 80 && changed > 80 && read > 60 && again > 20, "{run} {changed} {read} {again}");
}
