//! All tables lead the lives that a plain map says, as long as they have room; and none ever gives up a rule that holds.

use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;

const EXPIRY_S: u32 = 100;

fn tables(log2_slots: u32) -> Vec<(String, Box<dyn RuleTable>)> {
    let mut tables: Vec<(String, Box<dyn RuleTable>)> = Vec::new();
    for function in [Function::Crc32, Function::Lookup3] {
        for order in [Order::Network, Order::Little] {
            for bits in [Bits::Low, Bits::High] {
                let place = Place { function, order, bits };
                tables
                    .push((format!("{place:?}"), Box::new(Direct::new(place, log2_slots, EXPIRY_S as u16))));
            }
        }
    }
    tables.push(("cam".into(), Box::new(Cam::new(1 << log2_slots, EXPIRY_S))));
    tables.push(("ours".into(), Box::new(Ours::new(1 << log2_slots, EXPIRY_S).unwrap())));
    tables
}

fn tuple(i: u32) -> Tuple4 {
    Tuple4 {
        source: 0xc633_6400 + i / 7,
        destination: 0xc000_0200 + i % 7,
        source_port: 53,
        destination_port: 1024 + (i % 97) as u16,
    }
}

/// The oracle of one tuple: when its rule ends, if it has one.
#[derive(Default)]
struct Oracle {
    ends: HashMap<Tuple4, u32>,
}

impl Oracle {
    fn holds(&self, tuple: &Tuple4, now_s: u32) -> bool {
        self.ends.get(tuple).is_some_and(|end| now_s < *end)
    }
}

/// Random lives. Few slots: tables may forget suspicions, and refuse; with room for everything CAM and ours may not.
fn live(seed: u64, log2_slots: u32, tuples: u32) {
    for (name, mut table) in tables(log2_slots) {
        let (mut rng, mut oracle, mut now_s) = (StdRng::seed_from_u64(seed), Oracle::default(), 65_400_u32);
        let roomy = table.slots() >= 4 * tuples as usize && !name.starts_with("Place");
        let mut suspected = HashMap::new();
        let mut rules = 0;
        for step in 0..20_000 {
            now_s += u32::from(rng.random_ratio(1, 50));
            let tuple = tuple(rng.random_range(0..tuples));
            let holds = oracle.holds(&tuple, now_s);
            if rng.random_ratio(2, 3) {
                let seen = table.packet(&tuple, now_s);
                assert_eq!(seen == Seen::Filtered, holds, "{name}, step {step}: {tuple:?}");
                assert!(!roomy || seen != Seen::NoRoom, "{name}, step {step}");
                suspected.insert(tuple, seen == Seen::Suspected);
            } else {
                let confirmed = table.confirm(&tuple, now_s);
                let may = suspected.get(&tuple) == Some(&true);
                assert!(!confirmed || may, "{name}, step {step}: a rule for what no packet brought up");
                assert!(!confirmed || !holds, "{name}, step {step}: a rule twice");
                assert!(
                    !roomy || confirmed || !may,
                    "{name}, step {step}: {tuple:?} was suspected, and there is room"
                );
                if confirmed {
                    rules += 1;
                    suspected.remove(&tuple);
                    oracle.ends.insert(tuple, now_s + EXPIRY_S);
                }
            }
        }
        assert!(rules > 10, "{name}: {rules} rules");
    }
}

#[test]
fn tables_with_room_live_as_the_oracle_says() {
    (0..4).for_each(|seed| live(seed, 10, 200));
}

#[test]
fn tables_that_are_full_keep_every_rule() {
    (0..4).for_each(|seed| live(seed, 5, 500));
}

#[test]
fn a_full_table_turns_new_tuples_away_until_a_rule_ends() {
    for (name, mut table) in tables(6) {
        let filled = (0..4000).filter(|i| {
            table.packet(&tuple(*i), 0);
            table.confirm(&tuple(*i), 0)
        });
        let filled: Vec<u32> = filled.collect();
        assert!(filled.len() > 20 && filled.len() <= table.slots(), "{name}: {}", filled.len());
        for i in &filled {
            assert_eq!(table.packet(&tuple(*i), EXPIRY_S - 1), Seen::Filtered, "{name}");
        }
        let new = |table: &mut dyn RuleTable, now_s| {
            (5000..6000).filter(|i| table.packet(&tuple(*i), now_s) == Seen::Suspected).count()
        };
        assert!(new(table.as_mut(), EXPIRY_S - 1) < 1000, "{name}: no room for all");
        assert_eq!(new(table.as_mut(), EXPIRY_S), 1000, "{name}: everything has ended, suspicions make room");
    }
}

#[test]
fn suspicions_make_room_for_each_other_and_never_for_nothing() {
    for (name, mut table) in tables(4) {
        for i in 0..1000 {
            assert_eq!(table.packet(&tuple(i), 0), Seen::Suspected, "{name}");
        }
        assert!(table.confirm(&tuple(999), 0), "{name}: the newest is there");
        assert!(!table.confirm(&tuple(0), 0), "{name}: the oldest has gone");
    }
}

#[test]
fn the_clock_of_sixteen_bits_goes_round() {
    let place = Place { function: Function::Crc32, order: Order::Network, bits: Bits::Low };
    let (one, start) = (tuple(1), u32::from(u16::MAX) - 10);
    let filtered = |expiry_s| {
        let mut table = Direct::new(place, 10, expiry_s);
        table.packet(&one, start);
        assert!(table.confirm(&one, start));
        table
    };
    let mut table = filtered(100);
    assert_eq!(table.packet(&one, start + 99), Seen::Filtered, "across the end of the clock");
    assert_eq!(table.packet(&one, start + 100), Seen::Suspected);
    // Half a round after its end the entry that nobody has touched cannot be told from one that holds.
    assert_eq!(filtered(100).packet(&one, start + 100 + 0x7fff), Seen::Suspected);
    assert_eq!(filtered(100).packet(&one, start + 100 + 0x8000), Seen::Filtered);
    assert_eq!(filtered(u16::MAX).packet(&one, start + u32::from(LONGEST_EXPIRY_S)), Seen::Suspected);
}
