//! The book: replaced, deleted, timed out, refused; and how narrow megaflows over several tables are.

use super::*;
use crate::cache::{Cache, Settings};
use crate::cross::Crossed;
use crate::flows::{Item, PortNames, read_filter, read_flow, show_flow};
use crate::key::{Field, Key, Mask};
use crate::live::Hits;
use crate::rule::{Rank, RuleId};
use crate::tuple::Grouping;
use tidemill_lookup::qsbr::Domain;

const SECOND: u64 = 1_000_000_000;

fn pipeline(domain: &Domain, rules: usize) -> Pipeline {
    Pipeline::new(domain, PipelineSettings { tables: 4, rules, grouping: Grouping::Exact })
}

fn spec(text: &str) -> FlowSpec {
    match read_flow(text, &PortNames::default()) {
        Ok(Item::Flow(spec)) => *spec,
        other => panic!("{text}: {other:?}"),
    }
}

fn add(book: &mut Pipeline, text: &str) -> RuleId {
    book.add(spec(text), 0).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn shown(book: &Pipeline) -> Vec<String> {
    book.flows().map(|(_, flow)| show_flow(&flow.spec, &PortNames::default())).collect()
}

#[test]
fn a_rule_replaces_its_like() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 3);
    let key = Key::ipv4(1, 2, 3, 80, 6);
    let first = add(&mut book, "priority=5,tcp,tp_dst=80 actions=1");
    add(&mut book, "priority=6,udp actions=1");
    assert_eq!(book.commit(), 2);
    let second = add(&mut book, "priority=5,tcp,tp_dst=80 actions=2");
    book.commit();
    assert_eq!((book.flows().len(), book.flow(first)), (2, None));
    let way = book.snapshot().walk(&key, |_| {}).0;
    assert_eq!((way.rules().collect::<Vec<_>>(), way.end()), (vec![second], End::Done));
    assert_eq!(book.oracle().way(&key), way);
    // Of another priority it is another rule, and there is no more room.
    add(&mut book, "priority=7,tcp,tp_dst=80 actions=2");
    let full = book.add(spec("priority=8,ip actions=1"), 0);
    assert_eq!(full, Err(BookError::Full(3)));
    assert_eq!(book.flows().len(), 3);
}

#[test]
fn deletes_are_loose_or_strict() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 100);
    let lines = [
        "cookie=0x1,table=0,priority=5,ip,nw_src=10.1.0.0/16 actions=drop",
        "table=0,priority=5,ip actions=drop",
        "table=1,priority=6,tcp,nw_src=10.1.2.3,tp_dst=80 actions=drop",
        "table=1,priority=7,tcp,nw_src=10.1.2.3,tp_dst=50-60 actions=drop",
        "table=1,priority=8,udp,tp_dst=0x1000/0xf000 actions=drop",
        "table=1,priority=9,udp,tp_dst=4096-8191 actions=drop",
        "table=1,priority=9,udp,tp_dst=0x1/0x1 actions=drop",
    ];
    for (filter, strict, left) in [
        ("", false, vec![]),
        ("table=1", false, vec![0, 1]),
        ("ip,nw_src=10.0.0.0/8", false, vec![1, 4, 5, 6]),
        ("tcp", false, vec![0, 1, 4, 5, 6]),
        ("tcp,tp_dst=70-90", false, vec![0, 1, 3, 4, 5, 6]),
        ("tcp,tp_dst=50-70", false, vec![0, 1, 2, 4, 5, 6]),
        ("tcp,tp_dst=55-70", false, vec![0, 1, 2, 3, 4, 5, 6]),
        ("cookie=1/1", false, vec![1, 2, 3, 4, 5, 6]),
        ("priority=5,ip", true, vec![0, 2, 3, 4, 5, 6]),
        ("priority=4,ip", true, vec![0, 1, 2, 3, 4, 5, 6]),
        ("udp", false, vec![0, 1, 2, 3]),
        ("udp,tp_dst=4096-8191", false, vec![0, 1, 2, 3, 6]),
        ("udp,tp_dst=4096/0xf000", false, vec![0, 1, 2, 3, 6]),
        ("udp,tp_dst=4096/0xf800", false, vec![0, 1, 2, 3, 4, 5, 6]),
        ("udp,tp_dst=0-8190", false, vec![0, 1, 2, 3, 4, 5, 6]),
        ("udp,tp_dst=1/1", false, vec![0, 1, 2, 3, 4, 5]),
    ] {
        book.delete(&FlowFilter::any());
        assert_eq!(book.flows().len(), 0);
        lines.iter().for_each(|line| {
            add(&mut book, line);
        });
        let filter_read = read_filter(filter, strict, &PortNames::default()).unwrap();
        let gone = book.delete(&filter_read);
        let mut expected: Vec<String> = left.iter().map(|&at: &usize| lines[at].to_owned()).collect();
        let mut found = shown(&book);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{filter}");
        assert_eq!(gone.len(), lines.len() - left.len());
        assert!(gone.iter().all(|gone| gone.why == Why::Deleted));
        book.commit();
    }
}

#[test]
fn rules_time_out() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let mut worker = book.worker();
    let idle = add(&mut book, "idle_timeout=10,priority=1,ip actions=1");
    let hard = add(&mut book, "hard_timeout=15,priority=2,ip actions=1");
    let forever = add(&mut book, "priority=3,ip actions=1");
    book.commit();
    let count = |worker: &mut crate::live::WorkerCounters, id: RuleId| {
        worker.add(crate::Rank::new(0, id), 100);
    };
    assert_eq!(book.expire(9 * SECOND), []);
    count(&mut worker, idle);
    assert_eq!(book.expire(11 * SECOND), [], "a packet has come");
    count(&mut worker, hard);
    let gone = book.expire(15 * SECOND);
    assert_eq!(gone.iter().map(|gone| (gone.why, gone.hits.packets)).collect::<Vec<_>>(), [(Why::Hard, 1)]);
    assert_eq!(book.expire(20 * SECOND), []);
    let gone = book.expire(21 * SECOND);
    assert_eq!(gone[0].why, Why::Idle);
    assert_eq!(gone[0].hits, Hits { packets: 1, bytes: 100 });
    assert_eq!(book.flows().map(|(id, _)| id).collect::<Vec<_>>(), [forever]);
    book.commit();
    assert_eq!(book.snapshot().tables()[0].len(), 1);
}

#[test]
fn a_rule_that_is_added_again_begins_its_time_anew() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let read =
        || crate::flows::read_flows(&b"hard_timeout=10,ip actions=1"[..], &PortNames::default()).unwrap();
    let kept = Loaded { added: 0, kept: 1, removed: 0 };
    book.load(read(), false, SECOND).unwrap();
    // A file that is read again is no reason.
    assert_eq!(book.load(read(), true, 4 * SECOND), Ok(kept));
    assert_eq!(book.flows().map(|(_, flow)| flow.since_ns).collect::<Vec<_>>(), [SECOND]);
    assert_eq!(book.load(read(), false, 9 * SECOND), Ok(kept));
    assert_eq!(book.expire(18 * SECOND), []);
    assert_eq!(book.expire(19 * SECOND).len(), 1);
}

#[test]
fn a_rule_that_is_added_again_counts_on_unless_it_asks_for_a_reset() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let mut worker = book.worker();
    let load = |book: &mut Pipeline, line: &str, replace: bool, seconds: u64| {
        let items = crate::flows::read_flows(line.as_bytes(), &PortNames::default()).unwrap();
        let loaded = book.load(items, replace, seconds * SECOND).unwrap();
        book.commit();
        let (id, flow) = book.flows().next().unwrap();
        assert_eq!(flow.since_ns, if replace { 0 } else { seconds * SECOND });
        (loaded.kept, book.hits(id).packets, id)
    };
    let plain = "idle_timeout=10,udp,tp_dst=99 actions=2";
    let reset = format!("reset_counts,{plain}");
    let (kept, packets, id) = load(&mut book, &reset, false, 0);
    assert_eq!((kept, packets), (0, 0));
    worker.add_all(Rank::new(0, id), Hits { packets: 2, bytes: 200 });
    assert_eq!(book.expire(SECOND), []);
    // A file that takes the place of all is no adding.
    assert_eq!(load(&mut book, &reset, true, 2), (1, 2, id));
    assert_eq!(load(&mut book, plain, false, 3), (1, 2, id));
    assert_eq!(load(&mut book, &reset, false, 4), (1, 0, id));
    worker.add(Rank::new(0, id), 100);
    assert_eq!(book.hits(id), Hits { packets: 1, bytes: 100 });
    // One that says something else is another rule.
    let (kept, packets, other) = load(&mut book, "idle_timeout=10,udp,tp_dst=99 actions=3", false, 13);
    assert!(kept == 0 && packets == 0 && other != id);
    worker.add(Rank::new(0, other), 100);
    assert_eq!(book.expire(14 * SECOND), []);
    assert_eq!(load(&mut book, "reset_counts,idle_timeout=10,udp,tp_dst=99 actions=3", false, 14).0, 1);
    // That it counts from 0 is no packet that has come.
    assert_eq!(book.expire(23 * SECOND), []);
    assert_eq!(book.expire(24 * SECOND).len(), 1);
}

#[test]
fn a_file_that_changes_too_much_at_once_is_told_so() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 5);
    let read = |actions: u8| {
        let lines: Vec<String> = (1..=3).map(|n| format!("priority={n} actions={actions}")).collect();
        crate::flows::read_flows(lines.join("\n").as_bytes(), &PortNames::default()).unwrap()
    };
    book.load(read(1), true, 0).unwrap();
    let error = book.load(read(2), true, 0).unwrap_err();
    let told =
        "no room for 3 new or changed rules beside the 3 that are there until then: 5 can be there at once";
    assert_eq!(error.to_string(), format!("line 3, column 1: {told}"));
}

#[test]
fn a_file_says_each_rule_group_and_meter_once() {
    use crate::flows::read_flows;
    let read = |text: &str| read_flows(text.as_bytes(), &PortNames::default()).unwrap();
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let meter = "meter=2,pktps,band=type=drop,rate=";
    let meters = format!("ip actions=1\n{meter}5\n{meter}6\n");
    for (text, line, column, what, first) in [
        ("priority=1 actions=2\n\n  table=0,priority=1 actions=1\n", 3, 3, "rule", 1),
        ("# a comment\nip actions=1\nip actions=1\n", 3, 1, "rule", 2),
        ("group_id=2,type=all\ngroup_id=1,type=all\ngroup_id=2,type=select\n", 3, 1, "group", 1),
        (meters.as_str(), 3, 1, "meter", 2),
    ] {
        for replace in [false, true] {
            let error = BookError::Twice { what, first };
            assert_eq!(book.load(read(text), replace, 0), Err(LoadError { line, column, error }), "{text}");
        }
    }
    assert_eq!((book.flows().len(), book.shared().groups.len()), (0, 0));
    // Of another priority, and in another table, it is another rule.
    let text = "priority=1 actions=2\npriority=2 actions=1\ntable=1,priority=1 actions=2\n";
    assert_eq!(book.load(read(text), false, 0), Ok(Loaded { added: 3, kept: 0, removed: 0 }));
}

/// Numbers of rules that have gone are used again, and of equal rules the lower number wins: that must not say which one is meant.
#[test]
fn of_equal_rules_the_earlier_one_in_the_file_wins_whatever_was_there_before() {
    use crate::flows::read_flows;
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let mut worker = book.worker();
    let key = Key::ipv4(1, 2, 3, 80, 6).with(Field::MacSource, 0x0200_0000_0002);
    let (ip, mac) = ("priority=5,ip actions=3", "priority=5,dl_src=02:00:00:00:00:02 actions=4");
    let [longer, longest] = [",4", ",4,4"].map(|more| format!("{mac}{more}"));
    let load = |book: &mut Pipeline, lines: &[&str]| {
        let items = read_flows(lines.join("\n").as_bytes(), &PortNames::default()).unwrap();
        let loaded = book.load(items, true, 0).unwrap();
        book.commit();
        let way = book.snapshot().walk(&key, |_| {}).0;
        assert_eq!(book.oracle().way(&key), way);
        (way.rules().next().unwrap(), loaded)
    };
    let mut number = RuleId(0);
    for lines in [&["priority=9,arp actions=1", ip, mac][..], &[ip, &longer], &[ip, &longest]] {
        number = load(&mut book, lines).0;
        assert_eq!(book.flow(number).unwrap().spec, spec(ip), "{lines:?}");
    }
    worker.add(Rank::new(0, number), 100);
    // The other way round: the one that moves keeps its number, and what it has counted.
    let (first, loaded) = load(&mut book, &[&longest, ip]);
    assert_eq!(book.flow(first).unwrap().spec, spec(&longest));
    assert_eq!(loaded, Loaded { added: 0, kept: 2, removed: 0 });
    assert_eq!(book.same(&spec(ip)), Some(number));
    worker.add(Rank::new(0, number), 100);
    assert_eq!(book.hits(number), Hits { packets: 2, bytes: 200 });
    // By a command: what replaces a rule has its place, and what is new is behind.
    let replaced = add(&mut book, &format!("{mac},4,4,4"));
    add(&mut book, "priority=5,tcp actions=7");
    book.commit();
    assert_eq!(book.snapshot().walk(&key, |_| {}).0.rules().next(), Some(replaced));
    assert!(book.rank(number) < book.rank(book.same(&spec("priority=5,tcp actions=7")).unwrap()));
}

#[test]
fn the_order_of_a_file_takes_no_room() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 2);
    let key = Key::ipv4(1, 2, 3, 80, 6);
    let mut lines = ["priority=5,ip actions=3", "priority=5,tcp actions=4"];
    for turn in 0..100 {
        let items = crate::flows::read_flows(lines.join("\n").as_bytes(), &PortNames::default()).unwrap();
        book.load(items, true, 0).unwrap();
        book.commit();
        let found = book.snapshot().walk(&key, |_| {}).0.rules().next().unwrap();
        assert_eq!(book.flow(found).unwrap().spec, spec(lines[0]), "{turn}");
        lines.swap(0, 1);
    }
}

/// Rules of one priority, each of which meets half of the others.
#[test]
fn many_rules_of_one_priority_are_in_the_order_of_each_file() {
    const RULES: usize = 4000;
    let domain = Domain::new();
    let mut book = pipeline(&domain, RULES);
    let text = |n: usize| {
        let side = if n.is_multiple_of(2) { "nw_src" } else { "nw_dst" };
        format!("priority=5,ip,{side}=10.{}.{}.0/24 actions=1", n / 200, n % 200)
    };
    let mut specs: Vec<FlowSpec> = (0..RULES).map(|n| spec(&text(n))).collect();
    let mut rng = crate::suite::Rng::new(3);
    for turn in 0..8 {
        match turn {
            0 => {}
            1 | 2 => specs.reverse(),
            3 => specs.rotate_right(1),
            4 => specs.rotate_left(7),
            _ => (1..RULES).for_each(|at| specs.swap(at, rng.below(at + 1))),
        }
        let item = |spec: &FlowSpec| (crate::flows::Place::default(), Item::Flow(Box::new(spec.clone())));
        let loaded = book.load(specs.iter().map(item).collect(), true, 0).unwrap();
        assert_eq!((loaded.added, loaded.removed), (if turn == 0 { RULES } else { 0 }, 0));
        book.commit();
        let ranks: Vec<Option<Rank>> =
            specs.iter().map(|spec| book.same(spec).and_then(|id| book.rank(id))).collect();
        assert!(ranks.is_sorted_by(|one, other| one < other), "{turn}");
        let oracle = book.oracle();
        for n in 0..20 {
            let (from, to) = (rng.below(RULES / 2) * 2, rng.below(RULES / 2) * 2 + 1);
            let [from, to] = [from, to].map(|n| 0x0a00_0000 | (n as u32 / 200) << 16 | (n as u32 % 200) << 8);
            let key = Key::ipv4(from, to, 1, n, 6);
            let way = book.snapshot().walk(&key, |_| {}).0;
            assert_eq!((oracle.way(&key), way.end()), (way, End::Done), "{turn}");
        }
    }
    book.snapshot().tables()[0].check().unwrap();
}

#[test]
fn tables_are_grouped_by_their_rules() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10_000);
    // Of many lengths in table 1, of one in table 2.
    let lengths = |n: u32| {
        format!(
            "table=1,priority={n},ip,nw_src=10.{}.7.9/{},nw_dst=10.9.{}.1/{}",
            n % 200,
            17 + n % 16,
            n % 250,
            17 + n / 16 % 16
        )
    };
    let add_all = |book: &mut Pipeline, from: u32, to: u32| {
        for n in from..to {
            add(book, &format!("{} actions=1", lengths(n)));
            add(book, &format!("table=2,priority=1,ip,nw_src=10.0.{}.{} actions=1", n / 256, n % 256));
        }
        book.commit();
    };
    let now =
        |book: &Pipeline| book.groupings().map(|(_, rules, grouping)| (rules, grouping)).collect::<Vec<_>>();
    add_all(&mut book, 0, 500);
    assert!(now(&book).iter().all(|(_, grouping)| *grouping == Grouping::Exact));
    let key = |n: u32| Key::ipv4(0x0a00_0709 | (n % 200) << 16, 0x0a09_0001 | (n % 250) << 8, 1, 2, 6);
    let way = |book: &Pipeline, n: u32| {
        let space = &book.snapshot().tables()[1];
        (space.lookup(&key(n)), space.rules().count())
    };
    let before: Vec<_> = (0..300).map(|n| way(&book, n)).collect();
    assert!(book.choose_groupings(false));
    let version = book.snapshot().version();
    assert_eq!(book.commit(), version + 1);
    let expected =
        [(0, Grouping::Exact), (500, Grouping::Merged), (500, Grouping::Exact), (0, Grouping::Exact)];
    assert_eq!(now(&book), expected);
    assert_eq!((0..300).map(|n| way(&book, n)).collect::<Vec<_>>(), before, "no decision changes");
    book.snapshot().tables().iter().for_each(|space| space.check().unwrap());
    // Few rules more are no reason to look again; in either copy the table is the other one.
    add_all(&mut book, 500, 502);
    assert!(!book.choose_groupings(false));
    add_all(&mut book, 502, 504);
    assert_eq!(now(&book)[1], (504, Grouping::Merged));
    // What is left of it is of one length.
    let gone = (0..504).filter(|n| n % 256 != 3).map(lengths);
    for text in gone.collect::<Vec<_>>() {
        let filter = read_filter(&text, true, &PortNames::default()).unwrap();
        assert_eq!(book.delete(&filter).len(), 1, "{text}");
    }
    book.commit();
    assert!(book.choose_groupings(false));
    book.commit();
    assert_eq!(now(&book)[1], (2, Grouping::Exact));
}

/// Of seven masks, in tables of their own, rules suit a cross-product; not in the one table that they get.
#[test]
fn a_cross_product_has_to_be_better_than_the_grouping_that_is_chosen() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 1000);
    for n in 0..128 {
        add(&mut book, &format!("priority={n},ip,nw_src=10.{n}.170.170/{} actions=1", 17 + n % 7));
    }
    book.commit();
    assert!(Crossed::choose(book.snapshot().space()).is_some());
    assert!(book.choose_groupings(true));
    book.commit();
    assert_eq!(book.groupings().next(), Some((0, 128, Grouping::Merged)));
    assert!(book.snapshot().crossed().is_none());
    assert!(Crossed::choose(book.snapshot().space()).is_none());
}

#[test]
fn a_cross_product_is_made_anew_when_rules_come_to_rest() {
    const S: u64 = 1_000_000_000;
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10_000);
    let add_all = |book: &mut Pipeline, from: u32, to: u32| {
        for n in from..to {
            let (source, destination) = (17 + n % 16, 17 + n / 16 % 16);
            let addresses = format!("nw_src=10.170.170.170/{source},nw_dst=10.85.85.85/{destination}");
            add(book, &format!("priority={n},ip,{addresses} actions=1"));
        }
        book.commit();
    };
    let crossed = |book: &Pipeline| book.snapshot().crossed().map(|crossed| crossed.is_worn());
    add_all(&mut book, 0, 150);
    assert_eq!(crossed(&book), None);
    assert!(book.choose_groupings(true));
    book.commit();
    assert_eq!(crossed(&book), Some(false));
    assert!(!book.renew(S, true), "nothing is worn");
    add_all(&mut book, 150, 200);
    assert!(!book.renew(2 * S, true) && !book.renew(9 * S, true));
    add_all(&mut book, 200, 216);
    assert_eq!(crossed(&book), Some(true));
    assert!(!book.renew(10 * S, true) && !book.renew(11 * S - 1, true), "rules have come since");
    assert!(!book.renew(11 * S, false), "the last has just been made");
    let version = book.snapshot().version();
    assert!(book.renew(11 * S, true));
    assert_eq!(book.commit(), version + 1);
    assert_eq!(crossed(&book), Some(false));
    book.crossed().unwrap().check(book.snapshot().space()).unwrap();
    assert!(!book.renew(12 * S, true) && !book.renew(20 * S, true));
    // Rules come all the time: while another may not be made, one that is of no use goes.
    add_all(&mut book, 216, 300);
    assert!(!book.renew(21 * S, true), "it may come back");
    assert_eq!((book.crossed().unwrap().rules(), book.crossed().unwrap().changed()), (216, 84));
    add_all(&mut book, 300, 330);
    assert!(book.renew(22 * S, false));
    book.commit();
    assert_eq!(crossed(&book), None);
    add_all(&mut book, 330, 331);
    assert!(!book.renew(23 * S, false));
    assert!(book.renew(23 * S, true), "without rest");
    book.commit();
    assert_eq!(crossed(&book), Some(false));
    assert!(!book.renew(24 * S, true) && !book.renew(30 * S, true));
}

#[test]
fn groups_and_meters_are_there_before_their_rules_and_take_them_along() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    assert_eq!(book.add(spec("actions=group:7"), 0), Err(BookError::NoGroup(7)));
    assert_eq!(book.add(spec("actions=meter:1,2"), 0), Err(BookError::NoMeter(1)));
    let group = |actions: Vec<Action>| Group::new(GroupKind::All, vec![Bucket { weight: 0, actions }]);
    assert_eq!(book.set_group(7, group(vec![Action::Group(8)])), Err(BookError::InBucket(7)));
    book.set_group(7, group(vec![Action::Output(Output::Port(2))])).unwrap();
    book.set_meter(1, Meter::new(MeterRate { unit: MeterUnit::Packets, rate: 5, burst: 5 }));
    add(&mut book, "priority=1 actions=group:7");
    add(&mut book, "priority=2 actions=meter:1,2");
    add(&mut book, "priority=3 actions=2");
    let version = book.commit();
    assert!(book.snapshot().shared().groups.contains_key(&7));
    assert_eq!(book.delete_group(7).len(), 1);
    assert_eq!(book.delete_meter(1).len(), 1);
    assert_eq!((book.delete_group(7).len(), book.flows().len()), (0, 1));
    assert_eq!(book.commit(), version + 1);
    assert!(book.snapshot().shared().groups.is_empty() && book.snapshot().shared().meters.is_empty());
}

#[test]
fn groups_of_a_file_are_copied_once_a_commit() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let load = |book: &mut Pipeline, groups: u32| {
        let group = |n| Item::Group(n, Group::new(GroupKind::All, Vec::new()));
        let items = (0..groups).map(|n| (crate::flows::Place::default(), group(n))).collect();
        book.load(items, true, 0).map(|_| std::sync::Arc::strong_count(&book.shared().groups[&0]))
    };
    assert_eq!(load(&mut book, 500), Ok(1));
    book.commit();
    // The published ones are one copy.
    assert_eq!(load(&mut book, 1), Ok(2));
    assert_eq!(book.shared().groups.len(), 1);
    book.commit();
    assert_eq!(book.snapshot().shared().groups.len(), 1);
    assert_eq!(load(&mut book, 1), Ok(3), "the spare's, and that before it");
    assert_eq!(book.commit(), 3, "nothing is new");
}

#[test]
fn there_is_an_end_to_groups_and_meters() {
    use super::book::MOST_SHARED;
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let most = MOST_SHARED as u32;
    let meter = |n| Item::Meter(n, MeterRate { unit: MeterUnit::Packets, rate: 5, burst: 5 });
    let group = |n| Item::Group(n, Group::new(GroupKind::All, Vec::new()));
    let mut load = |all: Vec<Item>, replace: bool| {
        let items = all.into_iter().map(|item| (crate::flows::Place::default(), item)).collect();
        book.load(items, replace, 0).map_err(|error| error.error)
    };
    let full = |what| Err(BookError::TooMany { what, most: MOST_SHARED });
    assert_eq!(load((0..=most).map(group).collect(), true), full("group"));
    assert_eq!(load((0..=most).map(meter).collect(), true), full("meter"));
    let all = (0..most).flat_map(|n| [group(n), meter(n)]).collect();
    assert_eq!(load(all, true), Ok(Loaded::default()));
    assert_eq!(load(vec![group(most)], false), full("group"));
    assert_eq!(load(vec![group(0), meter(most - 1)], false), Ok(Loaded::default()));
    assert_eq!(load(vec![group(most)], true), Ok(Loaded::default()));
    assert_eq!((book.shared().groups.len(), book.shared().meters.len()), (1, 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    let with = |table: u8, goto: Option<u8>| FlowSpec {
        table,
        instructions: Instructions { actions: Vec::new(), goto },
        ..spec("actions=drop")
    };
    for (spec, error) in [
        (with(4, None), "table 4: there are only the tables 0 to 3"),
        (with(0, Some(4)), "table 4: there are only the tables 0 to 3"),
        (with(2, Some(2)), "goto_table 2 from table 2: give a table with a higher number"),
    ] {
        assert_eq!(book.add(spec, 0).unwrap_err().to_string(), error);
    }
    let mut odd = spec("ip actions=dec_ttl");
    odd.instructions.actions = vec![Action::Set { field: Field::InPort, value: 1, mask: 0xffff }];
    assert_eq!(book.add(odd, 0), Err(BookError::NotSettable(Field::InPort)));
    assert_eq!(book.commit(), 1, "nothing has changed");
}

#[test]
fn what_actions_write_is_no_part_of_a_megaflow() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    add(
        &mut book,
        "table=0,priority=1,in_port=1,ip actions=mod_vlan_vid:10,write_metadata:3/0xf,goto_table:1",
    );
    add(&mut book, "table=1,priority=1,dl_vlan=10,metadata=0x3/0xf actions=2");
    add(&mut book, "table=1,priority=2,dl_vlan=11 actions=3");
    add(&mut book, "table=1,priority=3,dl_vlan_pcp=5 actions=4");
    book.commit();
    let key = Key::ipv4(1, 2, 3, 4, 6).with(Field::InPort, 1);
    let (way, mask) = book.snapshot().walk(&key, |_| {});
    assert_eq!((way.rules().count(), way.end()), (2, End::Done));
    let priority = Mask::NONE.with(Field::Vlan, 0xe000);
    assert_eq!(mask.get(Field::Metadata), 0, "{mask:?}");
    assert!(Mask::NONE.with(Field::Vlan, mask.get(Field::Vlan)).within(&priority), "{mask:?}");
    assert_eq!((mask.get(Field::InPort), mask.get(Field::EtherType)), (0xffff, 0xffff));
    let looked = [Field::Ipv4Source, Field::SourcePort, Field::MacSource, Field::Protocol];
    assert!(looked.iter().all(|&field| mask.get(field) == 0), "{mask:?}");
}

#[test]
fn a_change_in_a_later_table_is_seen_behind_what_actions_write() {
    let domain = Domain::new();
    let mut book = pipeline(&domain, 10);
    add(&mut book, "table=0,priority=1 actions=mod_vlan_vid:10,goto_table:1");
    let old = add(&mut book, "table=1,priority=1 actions=2");
    book.commit();
    let (view, reader) = (book.view(), domain.register());
    let (mut cache, mut ways) = (Cache::new(Settings::default(), 1).unwrap(), Ways::new(10));
    let key = [Key::ipv4(1, 2, 3, 4, 6).with(Field::Vlan, 0x1007)];
    let mut look = |ways: &mut Ways| {
        let mut out = [WayId(0)];
        cache.classify(Walker::new(view.get(&reader), ways), 0, &key, &mut out);
        (ways.get(out[0]).rules().last().unwrap(), cache.counters())
    };
    assert_eq!(look(&mut ways).0, old);
    // The packet came with VLAN 7: only what it has in table 1 tells that this concerns it, and the others do not.
    let new = add(&mut book, "table=1,priority=9,dl_vlan=10 actions=3");
    book.commit();
    assert_eq!(look(&mut ways).0, new);
    let before = look(&mut ways).1;
    add(&mut book, "table=1,priority=9,dl_vlan=7 actions=3");
    add(&mut book, "table=2,priority=9 actions=3");
    book.commit();
    let (found, after) = look(&mut ways);
    assert_eq!((found, after.misses, after.renewed), (new, before.misses, before.renewed + 1));
}

#[test]
fn a_file_is_taken_whole_or_not_at_all() {
    use crate::flows::read_flows;
    let domain = Domain::new();
    let mut book = pipeline(&domain, 5);
    let read = |text: &str| read_flows(text.as_bytes(), &PortNames::default()).unwrap();
    let first = "priority=1 actions=group:7\npriority=2,ip actions=meter:1,2\n\
                 group_id=7,type=all,bucket=1,bucket=2\nmeter=1,pktps,band=type=drop,rate=5\npriority=3 actions=3\n";
    let loaded = book.load(read(first), true, 0).unwrap();
    assert_eq!(loaded, Loaded { added: 3, kept: 0, removed: 0 });
    let version = book.commit();
    let at = |line, column, error| Err(LoadError { line, column, error });
    for (text, line, column, error) in [
        ("priority=4 actions=1\npriority=5 actions=2, group:8,3", 2, 23, BookError::NoGroup(8)),
        ("priority=4 actions=meter:1,meter:4", 1, 28, BookError::NoMeter(4)),
        ("priority=4 actions=1\n\npriority=5 actions=1,goto_table:9", 3, 22, BookError::NoTable(9, 3)),
        ("  table=2,priority=5,actions=resubmit(,2)", 1, 30, BookError::Backwards(2, 2)),
        ("priority=5,table=7 actions=goto_table:8", 1, 12, BookError::NoTable(7, 3)),
        (
            "priority=4 actions=1\npriority=5 actions=1\n priority=6 actions=1",
            3,
            2,
            BookError::FullAtOnce { new: 3, there: 3, most: 5 },
        ),
    ] {
        assert_eq!(book.load(read(text), false, 0), at(line, column, error), "{text}");
    }
    // What is not in the file is not there for its rules.
    assert_eq!(book.load(read("actions=group:7"), true, 0), at(1, 9, BookError::NoGroup(7)));
    assert_eq!((book.commit(), book.flows().len()), (version, 3), "nothing has changed");
    let kept = book.flows().map(|(id, _)| id).last();
    let second = "priority=3 actions=3\npriority=1 actions=2\n";
    let loaded = book.load(read(second), true, 0).unwrap();
    assert_eq!(loaded, Loaded { added: 1, kept: 1, removed: 1 });
    book.commit();
    assert!(book.flow(kept.unwrap()).is_some(), "it keeps its number and its counters");
    assert!(book.shared().groups.is_empty() && book.shared().meters.is_empty());
    book.clear();
    assert_eq!(book.flows().len(), 0);
}
