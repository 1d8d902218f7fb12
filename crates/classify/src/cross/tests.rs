//! What the [suite](crate::suite) does not reach: bounds, and changes that put a rule back.

use super::{Crossed, MOST_CONDITIONS, MOST_EVERYWHERE, NotCrossed};
use crate::key::{Field, Key};
use crate::oracle::Oracle;
use crate::rule::{Match, Rank, Rule, RuleId, Side};
use crate::rules::RuleSet;
use crate::suite::{Rng, Shape, key};
use crate::text::in_order;
use crate::tuple::{Grouping, TupleSpace};

fn space(set: &RuleSet) -> TupleSpace {
    TupleSpace::build(set, Grouping::Merged)
}

/// Asks for keys that rules match or nearly match.
fn compare(crossed: &Crossed, set: &RuleSet, keys: &[Key]) {
    let space = space(set);
    crossed.check(&space).unwrap();
    let mut found = vec![[Rank::NONE; 3]; keys.len()];
    let mut out = vec![Rank::NONE; keys.len()];
    for form in 0..3 {
        match form {
            0 => crossed.lookup_batch(&space, keys, &mut out),
            1 => crossed.lookup_batch_scalar(&space, keys, &mut out),
            _ => Oracle::new(set).lookup_batch(keys, &mut out),
        }
        found.iter_mut().zip(&out).for_each(|(found, out)| found[form] = *out);
    }
    for (key, [vectors, scalar, oracle]) in keys.iter().zip(found) {
        assert_eq!((vectors, scalar), (oracle, oracle), "{key:?}");
    }
}

fn keys(rules: &[Rule], seed: u64) -> Vec<Key> {
    let mut rng = Rng::new(seed);
    (0..1000).map(|_| key(rules, &mut rng)).collect()
}

#[test]
fn sets_are_taken_or_refused_by_what_they_ask_for() {
    for shape in Shape::ALL {
        let mut rng = Rng::new(4);
        let rules: Vec<Rule> = (0..150).map(|_| shape.rule(&mut rng)).collect();
        let set = RuleSet::from_list(&rules);
        let crossed = Crossed::build(&space(&set));
        // Conditions without end; masks without end; nothing but ranges, for every packet.
        let refused = matches!(shape, Shape::OpenFlow | Shape::Masks | Shape::Ranges);
        assert!(crossed.is_err() == refused || shape == Shape::Mixed, "{shape:?}");
        if let Ok(crossed) = crossed {
            compare(&crossed, &set, &keys(&rules, 5));
        }
    }
}

#[test]
fn small_sets_and_none_at_all_are_taken() {
    let any = Rule { matches: Match::any(), priority: 1 };
    let odd = Match::any().masked(Field::Ipv4Source, 0x0a00_0100, 0xff00_ff00);
    // Ports that no packet has, a mask of ports that is no range, one beside a range.
    let ports = Match::any().exact(Field::SourcePort, 80).port_range(Side::Source, 90..=99);
    let even = Match::any().masked(Field::DestinationPort, 0, 1).port_range(Side::Destination, 7..=9);
    let of = |matches| Rule { matches, priority: 2 };
    for rules in [vec![], vec![any], vec![any; 9], vec![of(odd), of(ports), of(even), any]] {
        let set = RuleSet::from_list(&rules);
        let crossed = Crossed::build(&space(&set)).unwrap();
        let mut asked = keys(&rules, 6);
        asked.extend((0..20).map(|port| Key::ipv4(0x0a05_0107, 1, 80 + port, port, 6)));
        compare(&crossed, &set, &asked);
        // As many answers as there is room for.
        let mut out = [Rank(7); 3];
        crossed.lookup_batch(&space(&set), &asked, &mut out);
        assert!(!out.contains(&Rank(7)));
        crossed.lookup_batch(&space(&set), &[], &mut out);
    }
}

#[test]
fn a_thousand_ranges_over_one_address_are_a_list_each_of_destinations_and_one_of_sources() {
    let address = Match::any().exact(Field::Ipv4Source, 0x0a00_0001);
    // The others are looked at before the last.
    for (side, blocks) in [(Side::Destination, 1), (Side::Source, 125)] {
        let range = |i: u16| address.port_range(side, 40 * i..=40 * i + 30);
        let rules = in_order((0..1000).map(range));
        let set = RuleSet::from_list(&rules);
        let crossed = Crossed::build(&space(&set)).unwrap();
        let key = |port| Key::ipv4(0x0a00_0001, 3, port, 40_000 - port, 6);
        compare(&crossed, &set, &(0..40_000).step_by(7).map(key).collect::<Vec<Key>>());
        assert_eq!(crossed.lines(&rules[999].matches.first_key()), 3 + 2 * blocks);
        assert_eq!(crossed.lines(&Key::ipv4(0x0a00_0002, 3, 40, 40, 6)), 3, "no rule of that address");
    }
}

#[test]
fn rules_without_addresses_are_looked_at_by_themselves_where_they_would_make_lists_long() {
    let made = |ports: u16, hosts: u32| {
        let ports = (0..ports).map(|port| Match::any().exact(Field::DestinationPort, port.into()));
        let sides = [Field::Ipv4Source, Field::Ipv4Destination];
        let hosts = (0..hosts).flat_map(|i| sides.map(|side| Match::any().exact(side, i.into())));
        let rules = in_order(ports.chain(hosts).chain([Match::any()]));
        let set = RuleSet::from_list(&rules);
        let crossed = Crossed::build(&space(&set)).unwrap();
        let mut asked = keys(&rules, 9);
        asked.extend((0..60).map(|i| Key::ipv4(i % 7, i % 11, 9, i as u16, 6)));
        compare(&crossed, &set, &asked);
        // Of a host, behind all that ask for a port.
        crossed.lines(&Key::ipv4(7, 1_000_000, 9, 5000, 6))
    };
    assert_eq!(made(5, 100), 3 + 2, "few, and in each list");
    assert_eq!(made(30, 100), 3 + 2 + 2 * 4, "a list of their own: with services lists would be too many");
    assert_eq!(made(30, 20), 3 + 2, "told apart by services");
}

#[test]
fn rules_that_no_packet_gets_to_are_in_no_list() {
    let address = Match::any().exact(Field::Ipv4Source, 0x0a00_0001);
    let behind = (0..100).map(|port| address.exact(Field::DestinationPort, port).exact(Field::Protocol, 6));
    let tcp = address.exact(Field::Protocol, 6);
    let rules = in_order(std::iter::once(tcp).chain(behind).chain([address]));
    let set = RuleSet::from_list(&rules);
    let crossed = Crossed::build(&space(&set)).unwrap();
    assert_eq!(crossed.lines(&Key::ipv4(0x0a00_0001, 3, 9, 7, 17)), 3 + 2);
    compare(&crossed, &set, &keys(&rules, 7));
}

#[test]
fn what_is_beyond_the_bounds_is_refused_by_what_it_is() {
    let refused = |matches: &mut dyn Iterator<Item = Match>| {
        let rules = in_order(matches);
        Crossed::build(&space(&RuleSet::from_list(&rules))).err()
    };
    let tos = |i: usize| Match::any().exact(Field::Tos, i as u128);
    let of = |i: usize| tos(i).exact(Field::Ipv4Source, i as u128);
    assert_eq!(refused(&mut (0..MOST_CONDITIONS).map(of)), None);
    assert_eq!(refused(&mut (0..=MOST_CONDITIONS).map(of)), Some(NotCrossed::Conditions));
    let port = |i: usize| Match::any().exact(Field::DestinationPort, i as u128);
    assert_eq!(refused(&mut (0..MOST_EVERYWHERE).map(port)), None);
    assert_eq!(refused(&mut (0..=MOST_EVERYWHERE).map(port)), Some(NotCrossed::Everywhere));
    // Hosts whose rules nobody gets to: there is one list, and for each pair of them all rules of their networks are looked at.
    let networks = Match::any().prefix(Field::Ipv4Source, 0, 1).prefix(Field::Ipv4Destination, 0, 1);
    let behind = |ports: u16, hosts: u32| {
        let ports = (0..ports).map(move |port| networks.exact(Field::DestinationPort, port.into()));
        let sides = [Field::Ipv4Source, Field::Ipv4Destination];
        let hosts = (0..hosts).flat_map(move |i| sides.map(|side| Match::any().exact(side, i.into())));
        std::iter::once(networks).chain(ports).chain(hosts)
    };
    assert_eq!(refused(&mut behind(40, 200)), None);
    assert_eq!(refused(&mut behind(400, 1800)), Some(NotCrossed::TooLarge));
    // Bits of an IPv6 address of packets that may be anything.
    let some = Match::any().exact(Field::Ipv6Destination, 7).masked(Field::EtherType, 0, 0);
    assert_eq!(refused(&mut std::iter::once(some)), Some(NotCrossed::AnyEtherType));
}

#[test]
fn a_rule_that_comes_back_is_where_it_was() {
    let rule = |i: u32, priority| {
        let matches = Match::any().exact(Field::Ipv4Source, i.into()).exact(Field::Protocol, 6);
        Rule { matches, priority }
    };
    // Two of priority 500 and the same match: only the number says which is first.
    let mut rules: Vec<Rule> = (0..200).map(|i| rule(i, i.into())).collect();
    rules.extend([rule(7, 500), rule(7, 500)]);
    let mut set = RuleSet::from_list(&rules);
    let mut crossed = Crossed::build(&space(&set)).unwrap();
    let asked = keys(&rules, 8);
    let remove = |set: &mut RuleSet, crossed: &mut Crossed, id| {
        let rule = set.remove(id).unwrap();
        crossed.remove(id, &rule);
        rule
    };
    let insert = |set: &mut RuleSet, crossed: &mut Crossed, rule: Rule| {
        let id = set.insert(rule).unwrap();
        crossed.insert(id, &rule);
        id
    };
    // Under another number.
    let gone = remove(&mut set, &mut crossed, RuleId(9));
    compare(&crossed, &set, &asked);
    let id = insert(&mut set, &mut crossed, gone);
    assert_ne!(id, RuleId(9));
    assert_eq!(crossed.changes(), (0, 0));
    compare(&crossed, &set, &asked);
    // And from there once more, and another of its kind.
    remove(&mut set, &mut crossed, id);
    insert(&mut set, &mut crossed, gone);
    insert(&mut set, &mut crossed, gone);
    assert_eq!(crossed.changes(), (0, 1));
    compare(&crossed, &set, &asked);
    // The first of two of one priority comes back behind the second.
    let twice = remove(&mut set, &mut crossed, RuleId(200));
    insert(&mut set, &mut crossed, twice);
    assert_eq!(crossed.changes(), (1, 2));
    compare(&crossed, &set, &asked);
    // Under its own number: its place.
    set.release(RuleId(200));
    let id = insert(&mut set, &mut crossed, twice);
    assert_eq!((id, crossed.changes()), (RuleId(200), (0, 2)));
    compare(&crossed, &set, &asked);
    // IPv6 addresses are asked for beside it in any case.
    let wide = Rule { matches: Match::any().exact(Field::Ipv6Source, 7), priority: 1000 };
    insert(&mut set, &mut crossed, wide);
    assert_eq!(crossed.changes(), (0, 2));
    compare(&crossed, &set, &[Key::ipv6(7, 1, 2, 3, 6), Key::ipv6(8, 1, 2, 3, 6), Key::ipv4(7, 1, 2, 3, 6)]);
    for i in 0..63 {
        assert_eq!(crossed.is_worn(), i > 62, "{i}");
        insert(&mut set, &mut crossed, rule(1000 + i, 3));
    }
    assert!(crossed.is_worn());
    compare(&crossed, &set, &asked);
}
