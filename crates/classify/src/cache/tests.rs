//! What the layers do with a flood, and with what is outdated.

use super::door::SAMPLED;
use super::*;
use crate::key::Field;
use crate::live::LiveRules;
use crate::oracle::Oracle;
use crate::rule::{Match, Rank, Rule};
use crate::tuple::Grouping;
use tidemill_lookup::qsbr::Domain;

#[test]
fn no_field_is_where_masks_are_numbered() {
    assert_eq!(Mask::ALL.0[5] as u16, !MOST_MASKS);
    let key = numbered(&Key([u64::MAX; 8]), &Mask::ALL, 0x1234);
    assert_eq!((number_of(&key), key.0[5] >> 14), (0x1234, u64::MAX >> 14));
}

/// But for buckets that are not whole, and the door's half a byte or two for each megaflow.
#[test]
fn a_cache_takes_what_is_said() {
    for settings in [
        Settings { exact: 10_000, signatures: 100_000, megaflows: 20_000, masks: 256, filters: true },
        Settings { exact: 0, signatures: 0, megaflows: 20_000, masks: 16_383, filters: true },
        Settings { exact: 0, signatures: 0, megaflows: 20_000, masks: 256, filters: false },
    ] {
        let bytes = Cache::new(settings, 5).unwrap().bytes() as f64;
        let said: f64 = settings.bytes().iter().sum();
        assert!((bytes / said - 1.0).abs() < 0.03, "{bytes} bytes, said: {said}");
    }
}

/// Rules of which the first makes every decision depend on the whole MAC address of the sender, and the cache in front of them.
struct Flooded {
    rules: LiveRules,
    oracle: Oracle,
    cache: Cache,
    /// The next sender's MAC address.
    next: u32,
}

impl Flooded {
    fn new(settings: Settings) -> Self {
        let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
        let sender = Match::any().exact(Field::MacSource, 0x0266_6666_6666);
        rules.insert(Rule { matches: sender, priority: 100 }).unwrap();
        for length in [9, 12] {
            let network = Match::any().prefix(Field::Ipv4Destination, 0x1000_0000, length);
            rules.insert(Rule { matches: network, priority: length.into() }).unwrap();
        }
        rules.commit();
        let oracle = Oracle::new(rules.set());
        Flooded { rules, oracle, cache: Cache::new(settings, 5).unwrap(), next: 0 }
    }

    fn key(sender: u32, port: u16) -> Key {
        let address = 0x1000_0000 | (sender % 7) << 20;
        Key::ipv4(1, address, port, 2, 17).with(Field::MacSource, 0x0600_0000_0000 | u128::from(sender))
    }

    /// One that nobody has seen.
    fn new_key(&mut self) -> Key {
        self.next += 1;
        Flooded::key(1 << 20 | self.next, 7)
    }

    /// Every answer has to be the oracle's; what the cache has counted meanwhile.
    fn classify(&mut self, now: u32, keys: &[Key]) -> CacheCounters {
        let (before, mut out) = (self.cache.counters(), vec![Rank(0); keys.len()]);
        self.cache.classify(self.rules.snapshot(), now, keys, &mut out);
        for (key, found) in keys.iter().zip(out) {
            assert_eq!(found, self.oracle.lookup(key), "{key:?}");
        }
        self.cache.check().unwrap();
        let after = self.cache.counters();
        CacheCounters {
            misses: after.misses - before.misses,
            turned_away: after.turned_away - before.turned_away,
            exact_hits: after.exact_hits - before.exact_hits,
            megaflow_hits: after.megaflow_hits - before.megaflow_hits,
            outdated: after.outdated - before.outdated,
            ..after
        }
    }
}

const SETTINGS: Settings = Settings { exact: 310, signatures: 0, megaflows: 620, masks: 8, filters: false };

#[test]
fn a_flood_is_turned_away_and_drives_nobody_out() {
    [false, true].into_iter().for_each(turned_away);
}

fn turned_away(filters: bool) {
    let mut flooded = Flooded::new(Settings { filters, ..SETTINGS });
    let used: Vec<Key> = (0..100).map(|sender| Flooded::key(sender, 7)).collect();
    flooded.classify(0, &used);
    let (mut hits, mut away, mut misses) = (0, 0, 0);
    for round in 0..200 {
        // Time passes: what was not used in this second may be replaced.
        let mut keys: Vec<Key> = (0..100).map(|_| flooded.new_key()).collect();
        keys.extend_from_slice(&used);
        let counted = flooded.classify(round / 10, &keys);
        if round >= 10 {
            hits += counted.exact_hits + counted.megaflow_hits;
            away += counted.turned_away;
            misses += counted.misses;
        }
    }
    let (flood, used_keys) = (190 * 100, 190 * used.len() as u64);
    assert_eq!(misses + hits, flood + used_keys);
    // A sample of the flood is kept, and costs a place of those in use now and then.
    assert!(away > flood - flood / 32, "{away} of {flood} turned away");
    assert!(hits > used_keys - used_keys / 50, "{hits} of {used_keys}");
    let slots = flooded.cache.megaflows.slots();
    assert!(flooded.cache.megaflows() * 4 >= slots * 3 && flooded.cache.megaflows() <= slots);
}

#[test]
fn in_a_flood_who_comes_again_is_let_in() {
    [false, true].into_iter().for_each(comes_again);
}

fn comes_again(filters: bool) {
    let mut flooded = Flooded::new(Settings { filters, ..SETTINGS });
    for _ in 0..20 {
        let keys: Vec<Key> = (0..100).map(|_| flooded.new_key()).collect();
        flooded.classify(0, &keys);
    }
    // A second later, or all that is there is in use.
    let new = Flooded::key(77, 7);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut keys: Vec<Key> = (0..31).map(|_| flooded.new_key()).collect();
        let flood = flooded.classify(1, &keys).misses;
        keys.clear();
        let counted = flooded.classify(1, &[new]);
        seen.push((counted.misses, counted.exact_hits + counted.megaflow_hits));
        assert_eq!(flood, 31);
    }
    // The first time turned away (or in the sample), the second time kept.
    assert!(seen[2..] == [(0, 1), (0, 1)] && seen[0] == (1, 0), "{seen:?}");

    // Packets that never come twice, of one megaflow: the sample lets it in.
    let mut misses = 0;
    for port in 0..10 * SAMPLED as u16 {
        misses += flooded.classify(1, &[Flooded::key(78, port)]).misses;
    }
    assert!(misses <= u64::from(SAMPLED), "{misses}");
}

/// With many masks a flood's packets pay for a probe or two, not for all of them, and those in use are found as ever.
#[test]
fn many_masks_are_asked_for_a_sample_of_a_flood() {
    [false, true].into_iter().for_each(masks_of_a_flood);
}

fn masks_of_a_flood(filters: bool) {
    // With filters so few masks that megaflows are near, and so much of a flood that most of what is asked for is in vain.
    let (lengths, of_flood) = if filters { (20, 300) } else { (30, 100) };
    let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
    let sender = Match::any().exact(Field::MacSource, 0x0266_6666_6666);
    rules.insert(Rule { matches: sender, priority: 100 }).unwrap();
    // Another length for each packet's network: as many masks without the flood.
    let network = |length: u32| 1_u32.rotate_right(length);
    for length in 1..=lengths {
        let matches = Match::any().prefix(Field::Ipv4Source, network(length).into(), length);
        rules.insert(Rule { matches, priority: u64::from(40 - length) }).unwrap();
    }
    rules.commit();
    let oracle = Oracle::new(rules.set());
    let settings = Settings { exact: 310, signatures: 1000, megaflows: 620, masks: 64, filters };
    let mut cache = Cache::new(settings, 5).unwrap();
    let key = |length: u32, mac: u64, port: u16| {
        Key::ipv4(network(length), 9, port, 2, 17).with(Field::MacSource, 0x0600_0000_0000 | u128::from(mac))
    };
    let used: Vec<Key> = (0..120).map(|n| key(1 + n % lengths, u64::from(n), 7)).collect();
    let mut classify = |now: u32, keys: &[Key]| {
        let (before, mut out) = (cache.counters(), vec![Rank(0); keys.len()]);
        cache.classify(rules.snapshot(), now, keys, &mut out);
        keys.iter().zip(out).for_each(|(key, found)| assert_eq!(found, oracle.lookup(key), "{key:?}"));
        cache.check().unwrap();
        let (after, masks) = (cache.counters(), cache.masks());
        let hits = after.exact_hits + after.megaflow_hits - before.exact_hits - before.megaflow_hits;
        (after.probes - before.probes, after.spared - before.spared, hits, masks)
    };
    for _ in 0..3 {
        classify(0, &used);
    }
    // A flood, with those in use between: first it fills the room, then it is on.
    let (mut next, mut probes, mut spared, mut hits, mut masks) = (0, 0, 0, 0, 0);
    for round in 0..120 {
        let mut keys: Vec<Key> = (0..of_flood)
            .map(|_| {
                next += 1;
                key(1 + next % lengths, u64::from(1 << 20 | next), 7)
            })
            .collect();
        keys.extend_from_slice(&used);
        let counted = classify(round / 20, &keys);
        if round >= 20 {
            (probes, spared, hits) = (probes + counted.0, spared + counted.1, hits + counted.2);
            masks = counted.3;
        }
    }
    let (flood, used_keys) = (100 * of_flood, 100 * used.len() as u64);
    assert!(masks >= lengths as usize, "{masks}");
    assert!(filters || spared > flood * 3 / 4, "{spared} of {flood}");
    assert!(probes < 6 * flood, "{probes} probes");
    assert!(hits > used_keys * 19 / 20, "{hits} of {used_keys}");
    // When what is idle has gone there is room again, and every key is asked for.
    cache.maintain(rules.snapshot(), 100, 10, 10_000);
    let of_port = |port: u16| (0..120).map(|n| key(1 + n % lengths, u64::from(n), port)).collect::<Vec<_>>();
    let (before, mut out) = (cache.counters(), vec![Rank(0); 120]);
    for port in [8, 9] {
        cache.classify(rules.snapshot(), 100, &of_port(port), &mut out);
    }
    let after = cache.counters();
    assert_eq!((after.spared - before.spared, after.megaflow_hits - before.megaflow_hits), (0, 120));
}

/// Two rules, and a mask for each pair of lengths that a packet's addresses share with theirs: nobody pays for more of these than the rules cost, though all have a megaflow.
#[test]
fn masks_that_cost_more_than_the_rules_are_not_asked() {
    for masks in [256, 1000] {
        let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
        let addresses = [0xaaaa_aaaa_u32, 0x5555_5555];
        for (field, address) in [Field::Ipv4Source, Field::Ipv4Destination].into_iter().zip(addresses) {
            rules.insert(Rule { matches: Match::any().exact(field, address.into()), priority: 1 }).unwrap();
        }
        rules.commit();
        let oracle = Oracle::new(rules.set());
        let settings = Settings { exact: 310, signatures: 1000, megaflows: 3100, masks, filters: false };
        let mut cache = Cache::new(settings, 5).unwrap();
        // Both addresses with one bit that is wrong.
        let key = |bits: [u32; 2], port: u32| {
            let [source, destination] = [0, 1].map(|i| addresses[i] ^ 1 << (31 - bits[i]));
            Key::ipv4(source, destination, port as u16, 2, 17)
        };
        let classify = |cache: &mut Cache, keys: &[Key]| {
            let (before, mut out) = (cache.counters(), vec![Rank(0); keys.len()]);
            cache.classify(rules.snapshot(), 0, keys, &mut out);
            keys.iter().zip(out).for_each(|(key, found)| assert_eq!(found, oracle.lookup(key), "{key:?}"));
            cache.check().unwrap();
            let after = cache.counters();
            [after.probes - before.probes, after.spared - before.spared, after.misses - before.misses]
        };
        let keys: Vec<Key> = (0..40_000).map(|n| key([n % 15, n / 15 % 15], n)).collect();
        classify(&mut cache, &keys[..20_000]);
        assert!(cache.masks() > 200, "{}", cache.masks());
        let [probes, spared, _] = classify(&mut cache, &keys[20_000..]);
        assert!(probes < 8 * 20_000, "{probes} probes of 20,000 keys");
        assert!(spared > 19_000, "{spared}");
        // When masks are sorted by use, those with much of it are asked again.
        let mut last = [0; 3];
        for round in 0..3 {
            cache.maintain(rules.snapshot(), 0, 10, 10);
            let keys: Vec<Key> = (0..1000).map(|n| key([3, 3], 50_000 + 1000 * round + n)).collect();
            last = classify(&mut cache, &keys);
        }
        assert_eq!(last[1..], [0, 0], "spared, missed");
    }
}

/// A flood takes all masks; who comes afterwards has megaflows within a second, though a packet of the flood comes now and then. Eight looks a second, as the switch has it.
#[test]
fn masks_that_a_flood_has_taken_are_free_within_a_second_of_its_end() {
    [false, true].into_iter().for_each(masks_are_free_again);
}

fn masks_are_free_again(filters: bool) {
    let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
    // Each length of network is a mask.
    let network = |length: u32| 1_u32.rotate_right(length);
    for length in 1..31 {
        let matches = Match::any().prefix(Field::Ipv4Source, network(length).into(), length);
        rules.insert(Rule { matches, priority: u64::from(40 - length) }).unwrap();
    }
    rules.commit();
    let oracle = Oracle::new(rules.set());
    let settings = Settings { exact: 0, signatures: 0, megaflows: 620, masks: 16, filters };
    let mut cache = Cache::new(settings, 5).unwrap();
    let mut next_port = 1000;
    let mut packets = |cache: &mut Cache, part: u32, lengths: std::ops::Range<u32>, each: u32| {
        let mut key = |n: u32| {
            next_port += 1;
            Key::ipv4(network(lengths.start + n % lengths.len() as u32), 9, next_port, 2, 17)
        };
        let keys: Vec<Key> = (0..each * lengths.len() as u32).map(&mut key).collect();
        let (before, mut out) = (cache.counters().misses, vec![Rank(0); keys.len()]);
        cache.classify(rules.snapshot(), part / 8, &keys, &mut out);
        keys.iter().zip(out).for_each(|(key, found)| assert_eq!(found, oracle.lookup(key), "{key:?}"));
        cache.check().unwrap();
        cache.counters().misses - before
    };
    let (in_use, flood, others) = (1..5, 5..25, 25..31);
    packets(&mut cache, 0, in_use.clone(), 50);
    for part in 0..16 {
        assert_eq!(packets(&mut cache, part, in_use.clone(), 50), 0, "eighth {part} of the flood");
        packets(&mut cache, part, flood.clone(), 8);
        assert_eq!(cache.masks(), 16);
        cache.maintain(rules.snapshot(), part / 8, 10, 3);
    }
    let mut misses = 0;
    for part in 16..56 {
        assert_eq!(packets(&mut cache, part, in_use.clone(), 50), 0, "eighth {part}, after the flood");
        let missed = packets(&mut cache, part, others.clone(), 50);
        if part < 24 {
            misses += missed;
        } else {
            assert_eq!(missed, 0, "eighth {part}, a second after the flood");
        }
        let one = 5 + part % 12;
        packets(&mut cache, part, one..one + 1, 1);
        cache.maintain(rules.snapshot(), part / 8, 10, 3);
    }
    assert!((300..8 * 300).contains(&misses), "{misses}: the others found no mask free at first");
}

#[test]
fn without_a_flood_the_first_packet_makes_a_megaflow() {
    let mut flooded = Flooded::new(SETTINGS);
    let keys: Vec<Key> = (0..300).map(|sender| Flooded::key(sender, 7)).collect();
    assert_eq!(flooded.classify(0, &keys).misses, 300);
    let again: Vec<Key> = (0..300).map(|sender| Flooded::key(sender, 8)).collect();
    let counted = flooded.classify(0, &again);
    assert_eq!((counted.megaflow_hits, counted.misses, counted.turned_away), (300, 0, 0));
}

#[test]
fn where_no_mask_is_free_decisions_are_made_without_masks() {
    let mut flooded = Flooded::new(Settings { masks: 1, ..SETTINGS });
    flooded.classify(0, &[Flooded::key(1, 7)]);
    let others: Vec<Key> =
        (0..1000).map(|sender| Flooded::key(sender, 7).with(Field::EtherType, 7)).collect();
    let counted = flooded.classify(0, &others);
    assert_eq!((counted.misses, flooded.cache.masks()), (1000, 1));
    assert!(counted.turned_away > 950, "{}", counted.turned_away);
}

/// What is outdated is thrown away by whoever finds it first, and counted then.
#[test]
fn what_is_outdated_is_counted_once() {
    for (exact, signatures, entries) in [(0, 0, 1), (0, 100, 1), (310, 0, 2), (310, 100, 2)] {
        let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
        let port = |port: u16, priority| Rule {
            matches: Match::any().exact(Field::DestinationPort, port.into()),
            priority,
        };
        // Each decision looks at another length of the address: enough masks for signatures.
        for length in 8..16 {
            let matches = Match::any().prefix(Field::Ipv4Source, u128::from(length - 7) << 27, length);
            rules.insert(Rule { matches, priority: u64::from(100 - length) }).unwrap();
        }
        rules.insert(port(4, 1)).unwrap();
        rules.commit();
        let mut cache =
            Cache::new(Settings { exact, signatures, megaflows: 310, masks: 30, filters: false }, 3).unwrap();
        let keys: Vec<Key> = (1..9).map(|i| Key::ipv4(i << 27, 1, 2, 4, 17)).collect();
        let mut out = vec![Rank::NONE; keys.len()];
        for _ in 0..3 {
            cache.classify(rules.snapshot(), 0, &keys, &mut out);
        }
        assert!(cache.masks() >= 4);
        assert_eq!(cache.counters().signature_hits > 0, signatures > 0 && exact == 0);
        let held: u32 = cache.held().values().sum();
        assert_eq!(held, entries * keys.len() as u32);
        rules.insert(port(4, 200)).unwrap();
        rules.commit();
        for _ in 0..3 {
            cache.classify(rules.snapshot(), 0, &keys, &mut out);
        }
        let counted = cache.counters().outdated;
        assert_eq!(counted, u64::from(held), "{exact} exact matches, {signatures} signatures");
    }
}

/// With one mask a megaflow is as near as an exact match, and nobody asks for both.
#[test]
fn exact_matches_are_asked_for_where_there_is_more_than_one_mask() {
    let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
    let network = |first: u128, length| Rule {
        matches: Match::any().prefix(Field::Ipv4Destination, first << 24, length),
        priority: 100,
    };
    let keys_in = |first: u32| (0..64).map(move |i| Key::ipv4(1, first << 24 | i, 7, 2, 17));
    let classify = |rules: &LiveRules, cache: &mut Cache, keys: &[Key]| {
        let oracle = Oracle::new(rules.set());
        for _ in 0..3 {
            let mut out = vec![Rank::NONE; keys.len()];
            cache.classify(rules.snapshot(), 0, keys, &mut out);
            keys.iter().zip(out).for_each(|(key, found)| assert_eq!(found, oracle.lookup(key), "{key:?}"));
        }
        cache.counters()
    };
    rules.insert(network(16, 9)).unwrap();
    rules.commit();
    for exact in [0, 310] {
        let mut cache = Cache::new(Settings { exact, ..SETTINGS }, 5).unwrap();
        let counted = classify(&rules, &mut cache, &keys_in(16).collect::<Vec<_>>());
        // The first group of keys makes the megaflow.
        let counts = (cache.masks(), counted.exact_hits, counted.megaflow_hits, counted.misses);
        assert_eq!(counts, (1, 0, 3 * 64 - GROUP as u64, GROUP as u64));
    }
    let mut cache = Cache::new(SETTINGS, 5).unwrap();
    rules.insert(network(17, 10)).unwrap();
    rules.commit();
    let counted = classify(&rules, &mut cache, &keys_in(16).chain(keys_in(17)).collect::<Vec<_>>());
    assert!(cache.masks() > 1 && counted.exact_hits >= 128, "{} masks, {counted:?}", cache.masks());
}

/// Also where there are more megaflows than room for exact matches: what is in use is one lookup away.
#[test]
fn many_megaflows_of_one_mask_are_asked_for_alone() {
    let mut flooded = Flooded::new(Settings { exact: 31, ..SETTINGS });
    let keys: Vec<Key> = (0..200).map(|sender| Flooded::key(7 * sender, 7)).collect();
    flooded.classify(0, &keys);
    assert_eq!(flooded.cache.masks(), 1);
    assert!(flooded.cache.megaflows() > 31);
    let counted = flooded.classify(0, &keys[..8]);
    assert_eq!((counted.exact_hits, counted.misses), (0, 0));
}

/// Else who has to be asked for many masks in turn would be asked of all filters before each of them again.
#[test]
fn filters_that_all_keys_are_past_are_not_asked_again() {
    let (mut masks, key) = (Masks::new(8, Some(5)), Key::ipv4(0x0a00_0001, 2, 3, 4, 6));
    for length in 1..9 {
        let mask = Mask::prefix(Field::Ipv4Source, length);
        let number = masks.number(&mask).unwrap();
        masks.one_more(number, &key.masked(&mask).0);
    }
    let (keys, mut scratch) = ([key; GROUP], Box::<Scratch>::default());
    for from in 0..9 {
        let (n, nowhere, _) =
            may_have(&masks, Standing::New, &keys, 0b101, (from, &[0; GROUP]), &mut scratch);
        assert_eq!((n, nowhere), if from < 8 { (2, 0) } else { (0, 0b101) });
        assert!(scratch.asked[..n].iter().all(|asked| asked.order == from), "{from}");
    }
}

/// Twenty masks with fifty megaflows each: about one probe a key, and neither exact matches nor signatures are asked for or made.
#[test]
fn filters_tell_which_mask_a_key_is_asked_for() {
    let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 2000);
    let source = |mask: u32, n: u32| mask << 24 | (n * 0x9e37) << 4;
    for mask in 1..21 {
        for n in 0..50 {
            let matches = Match::any().prefix(Field::Ipv4Source, source(mask, n).into(), 8 + mask);
            let _ = rules.insert(Rule { matches, priority: 100 });
        }
    }
    rules.commit();
    let oracle = Oracle::new(rules.set());
    let keys: Vec<Key> = (0..1000).map(|n| Key::ipv4(source(1 + n % 20, n / 20), n, 7, 2, 17)).collect();
    let probes = [false, true].map(|filters| {
        let settings = Settings { exact: 3100, signatures: 1 << 14, megaflows: 6200, masks: 256, filters };
        let mut cache = Cache::new(settings, 5).unwrap();
        let mut probes = 0;
        for round in 0..4 {
            let (before, mut out) = (cache.counters().probes, vec![Rank::NONE; keys.len()]);
            cache.classify(rules.snapshot(), 0, &keys, &mut out);
            keys.iter().zip(&out).for_each(|(key, found)| assert_eq!(*found, oracle.lookup(key), "{key:?}"));
            cache.check().unwrap();
            // The same packets with other ports: nothing but megaflows has them.
            let others = keys.iter().map(|key| key.with(Field::SourcePort, 1000 + round));
            let others: Vec<Key> = others.collect();
            cache.classify(rules.snapshot(), 0, &others, &mut out);
            cache.maintain(rules.snapshot(), 0, 100, 1);
            probes = cache.counters().probes - before;
        }
        let counters = cache.counters();
        assert!(cache.masks() >= 15, "{}", cache.masks());
        assert_eq!(counters.exact_hits == 0, filters, "{counters:?}");
        assert!(!filters || counters.signature_hits == 0, "{counters:?}");
        probes
    });
    assert!(probes[1] < 2000 * 3 / 2 && probes[0] > 2000 * 3, "{probes:?}");
}

/// Sixteen networks of different lengths, and a rule that makes every decision depend on the sender's MAC address: a mask for each network.
fn networks_and_a_sender() -> LiveRules {
    let mut rules = LiveRules::new(&Domain::new(), Grouping::Exact, 100);
    let sender = Match::any().exact(Field::MacSource, 0x0266_6666_6666);
    rules.insert(Rule { matches: sender, priority: 100 }).unwrap();
    for n in 0..16 {
        let matches = Match::any().prefix(Field::Ipv4Destination, u128::from(16 + n) << 24, 9 + n);
        rules.insert(Rule { matches, priority: 50 }).unwrap();
    }
    rules.commit();
    rules
}

/// A flood of seven hundred megaflows for each mask: what is in use is one probe away meanwhile and afterwards, and who is new comes to have a megaflow.
#[test]
fn what_a_flood_leaves_is_not_asked_before_what_is_in_use() {
    let rules = networks_and_a_sender();
    let oracle = Oracle::new(rules.set());
    let settings = Settings { exact: 3100, signatures: 1 << 14, megaflows: 18_600, masks: 64, filters: true };
    let mut cache = Cache::new(settings, 5).unwrap();
    let key = |sender: u32, port: u16| {
        Key::ipv4(1, (16 + sender % 16) << 24 | 1, port, 2, 17)
            .with(Field::MacSource, 0x0600_0000_0000 | u128::from(sender))
    };
    let mut classify = |keys: &[Key]| {
        let (before, mut out) = (cache.counters(), vec![Rank(0); keys.len()]);
        cache.classify(rules.snapshot(), 0, keys, &mut out);
        keys.iter().zip(out).for_each(|(key, found)| assert_eq!(found, oracle.lookup(key), "{key:?}"));
        cache.check().unwrap();
        let after = cache.counters();
        let probes = after.probes - before.probes;
        ([after.misses - before.misses, after.exact_hits + after.signature_hits], probes, cache.megaflows())
    };
    let used = |port: u16| (0..100).map(|sender| key(sender, port)).collect::<Vec<_>>();
    let mut next = 1 << 20;
    let mut flood = || {
        next += 1000;
        (next - 1000..next).map(|sender| key(sender, 7)).collect::<Vec<_>>()
    };
    assert_eq!(classify(&used(1)).0, [100, 0]);
    assert_eq!(classify(&used(2)).0, [0, 0]);
    // While there is room each packet of the flood gets a megaflow, which fills its mask's filter of new ones.
    for port in 10..22 {
        assert_eq!(classify(&flood()).0, [1000, 0]);
        let (missed, probes, megaflows) = classify(&used(port));
        assert!(probes < 150, "{probes} probes of 100 keys beside {megaflows} megaflows");
        assert_eq!(missed, [0, 0]);
    }
    // With little room they are asked for a sample; and somebody else comes.
    let (mut found, mut probes) = (Vec::new(), 0);
    for port in 30..60 {
        let (missed, of_flood, megaflows) = classify(&flood());
        assert_eq!(missed, [1000, 0], "beside {megaflows} megaflows");
        let (missed, of_used, _) = classify(&used(port));
        assert_eq!(missed, [0, 0]);
        if port >= 40 {
            probes += of_flood + of_used;
            found.push(classify(&[key(100, 1)]).0[0] == 0);
        }
    }
    assert!(probes < 3 * 20 * 1100, "{probes} probes of {} keys", 20 * 1100);
    assert!(!found[0] && found[10..].iter().all(|&found| found), "{found:?}");
}

/// The first packet that finds a megaflow takes it from the new ones to the proven; and what has gone is in neither filter.
#[test]
fn a_megaflow_changes_filters_when_it_is_found() {
    let rules = networks_and_a_sender();
    let settings = Settings { exact: 0, signatures: 0, megaflows: 3100, masks: 64, filters: true };
    let mut cache = Cache::new(settings, 5).unwrap();
    let keys: Vec<Key> = (0..16).map(|n| Key::ipv4(1, (16 + n) << 24 | 1, 7, 2, 17)).collect();
    let told = |cache: &Cache| {
        let mut told = [0; Standing::ALL];
        cache.megaflows.scan(0, usize::MAX, |key, _, state| {
            let has = |of| cache.masks.filters(of).may_have(number_of(key), &Key(key.0));
            let both = [Standing::Proven, Standing::New];
            assert_eq!(both.map(has), both.map(|of| of == standing(state)));
            told[standing(state) as usize] += 1;
        });
        told
    };
    let mut out = vec![Rank::NONE; keys.len()];
    let after = [[0, 16], [16, 0], [16, 0]].map(|expected| {
        cache.classify(rules.snapshot(), 0, &keys, &mut out);
        cache.check().unwrap();
        assert_eq!(told(&cache), expected);
        cache.counters()
    });
    assert_eq!(after.map(|after| (after.misses, after.megaflow_hits)), [(16, 0), (16, 16), (16, 32)]);
    assert_eq!(cache.maintain(rules.snapshot(), 20, 10, 1000), 16);
    cache.check().unwrap();
    assert_eq!((cache.masks(), told(&cache)), (0, [0, 0]));
}
