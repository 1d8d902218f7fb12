//! Every table and update file of the data collection, with the counts that its provenance states.
//! Needs TIDEMILL_DATA; see the crate's README.

#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidemill_feed::synth::{self, SynthOptions};
use tidemill_feed::{
    FamilyChange, LabelBy, Labels, LoadOptions, LoadedTable, Numbering, Shape, Update, UpdateOptions,
    Updates, load, shape,
};
use tidemill_lpm::rib::Change;

fn data(test: &str) -> Option<PathBuf> {
    let data = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from);
    if data.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    data
}

fn load_file(data: &Path, name: &str, options: &LoadOptions) -> LoadedTable {
    let start = Instant::now();
    let table = load(&data.join(name), options).unwrap_or_else(|e| panic!("{e}"));
    println!(
        "{name}: {} + {} prefixes, {} names, {:?}, {:.2} s",
        table.v4.len(),
        table.v6.len(),
        table.labels.len(),
        table.counts,
        start.elapsed().as_secs_f64()
    );
    table
}

/// File, IPv4 prefixes, IPv6 prefixes, names, numbering.
type Case = (&'static str, usize, usize, usize, Numbering);

const TABLES: [Case; 30] = [
    ("rib/ris-as3333-20260511.v4.prefixes.zst", 1_042_325, 0, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.prefixes.zst", 0, 246_175, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.nh100.zst", 1_042_325, 0, 100, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.nh148.zst", 1_042_325, 0, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.nh30000.zst", 1_042_325, 0, 27_617, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.uni30000.zst", 1_042_325, 0, 30_000, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.nh100.zst", 0, 246_175, 100, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.nh148.zst", 0, 246_175, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.nh30000.zst", 0, 246_175, 20_506, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.uni30000.zst", 0, 246_175, 29_992, Numbering::Direct),
    ("rib/tier1-20230204.v4.prefixes.zst", 901_899, 0, 148, Numbering::Direct),
    ("rib/tier1-20230204.v6.prefixes.zst", 0, 160_147, 148, Numbering::Direct),
    ("rib/rrc06-as4777-20100701.v4.nh.zst", 323_485, 0, 23, Numbering::Appearance),
    ("rib/rrc00-as3549-20000111.v4.nh.zst", 76_575, 0, 1, Numbering::Appearance),
    ("rib/routeviews-20080501.v4.origin.zst", 270_849, 0, 28_086, Numbering::Direct),
    ("rib/routeviews-20140513.v4.origin.zst", 512_621, 0, 46_823, Numbering::Appearance),
    ("rib/asmap-20240105.v4.asn.zst", 332_162, 0, 78_147, Numbering::Appearance),
    ("rib/asmap-20240105.v6.asn.zst", 0, 80_400, 40_382, Numbering::Appearance),
    ("rib/linx-20141225.v6.nh.zst", 0, 20_440, 94, Numbering::Appearance),
    ("rib/rv-as23367-201908.v4.port32.zst", 126_806, 0, 32, Numbering::Appearance),
    ("rib/rv-as293-20210117.v6.port32.zst", 0, 105_363, 31, Numbering::Direct),
    ("rib/dpdk-mae-west.v4.prefixes.zst", 28_895, 0, 148, Numbering::Direct),
    ("rib/internet2-chic-201203.v4.fib", 14_219, 0, 47, Numbering::Appearance),
    ("rib/stanford-yoza-201106.v4.fib", 4_746, 0, 161, Numbering::Appearance),
    // 115,521 records, one route of one peer each; 36 peers.
    ("rib/mrt/bview.20020722.2337.gz", 112_988, 0, 69, Numbering::Appearance),
    ("rib/mrt/bview.ipv4_unicast_add_path.gz", 31, 0, 3, Numbering::Appearance),
    ("rib/mrt/bview.ipv6_unicast_add_path.gz", 0, 31, 3, Numbering::Appearance),
    // 1,000 lines, 18 of them repeat a prefix.
    ("vectors/dpdk-lpm6/large_route_table.tsv", 0, 982, 251, Numbering::Shifted),
    ("vectors/dpdk-l3fwd/lpm_default_v4.cfg", 16, 0, 16, Numbering::Shifted),
    ("vectors/dpdk-l3fwd/lpm_default_v6.cfg", 0, 16, 16, Numbering::Shifted),
];

#[test]
fn real_tables_load_with_the_counts_of_their_provenance() {
    let Some(data) = data("real_tables_load_with_the_counts_of_their_provenance") else { return };
    for (name, v4, v6, names, numbering) in TABLES {
        let table = load_file(&data, name, &LoadOptions::default());
        let found = (table.v4.len(), table.v6.len(), table.labels.len(), table.labels.numbering());
        assert_eq!(found, (v4, v6, names, numbering), "{name}");
        assert_eq!((table.counts.wrong, table.counts.masked), (0, 0), "{name}");
    }
}

#[test]
fn real_columns_give_other_labels() {
    let Some(data) = data("real_columns_give_other_labels") else { return };
    for (name, label_by, names) in [
        ("rib/rrc06-as4777-20100701.v4.nh.zst", LabelBy::NeighbourAs, 35),
        ("rib/rrc06-as4777-20100701.v4.nh.zst", LabelBy::OriginAs, 34_593),
        ("rib/rrc00-as3549-20000111.v4.nh.zst", LabelBy::NeighbourAs, 262),
        ("rib/routeviews-20080501.v4.origin.zst", LabelBy::OriginAs, 28_086),
    ] {
        let table = load_file(&data, name, &LoadOptions { label_by, ..LoadOptions::default() });
        assert_eq!(table.labels.len(), names, "{name} {label_by:?}");
    }
}

/// File, announcements, withdrawals, distinct prefixes, distinct peers.
type UpdateCase = (&'static str, usize, usize, usize, usize);

const UPDATES: [UpdateCase; 5] = [
    ("rib/ris-as3333-20260511.v4.updates.zst", 1_355_568, 37_853, 134_867, 0),
    ("rib/linx-as-p52-20141217.updates.txt.zst", 18_141, 5_305, 3_551, 0),
    ("rib/routeviews2-20130101.updates.txt.zst", 123_682, 13_730, 5_617, 32),
    // 53,786 changes; with 20 state changes the 53,806 of the provenance.
    ("rib/mrt/updates.20100227.1600.rrc15.gz", 52_468, 1_318, 49_049, 5),
    ("rib/mrt/updates.long_withdrawal.gz", 0, 4_096, 4_096, 1),
];

#[test]
fn real_updates_read_with_the_counts_of_their_provenance() {
    let Some(data) = data("real_updates_read_with_the_counts_of_their_provenance") else { return };
    for (name, announced, withdrawn, prefixes, peers) in UPDATES {
        let mut updates = Updates::open(&data.join(name), Labels::new(), UpdateOptions::default()).unwrap();
        let (mut a, mut w) = (0, 0);
        let (mut distinct, mut by) = (HashSet::new(), HashSet::new());
        let mut last = None;
        for update in updates.by_ref() {
            let update = update.unwrap_or_else(|e| panic!("{e}"));
            let (prefix, announce) = match update.change {
                FamilyChange::V4(c) => (c.prefix().to_string(), matches!(c, Change::Announce(..))),
                FamilyChange::V6(c) => (c.prefix().to_string(), matches!(c, Change::Announce(..))),
            };
            if announce {
                a += 1
            } else {
                w += 1
            }
            distinct.insert(prefix);
            by.extend(update.peer.map(|p| (p.asn, p.address)));
            last = update.time.or(last);
        }
        let found = (name, a, w, distinct.len(), by.len());
        println!("{found:?}, {} next hops, {:?}", updates.labels().len(), updates.counts());
        assert_eq!(found, (name, announced, withdrawn, prefixes, peers));
        assert_eq!(updates.counts().wrong, 0, "{name}");
    }
}

/// Its NLRI is 11.13.0.0/13, whose host bits do not count, and then a /11 that is cut off.
#[test]
fn real_trailing_bits_are_masked_and_what_is_cut_off_is_an_error() {
    let Some(data) = data("real_trailing_bits_are_masked_and_what_is_cut_off_is_an_error") else { return };
    let path = data.join("rib/mrt/updates.nlri_mask_trailing_bits.gz");
    let open = |skip_wrong| {
        let options = UpdateOptions { skip_wrong, ..UpdateOptions::default() };
        Updates::open(&path, Labels::new(), options).unwrap()
    };
    let error = open(false).next().unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{}: record 1 at byte 0: a prefix at byte 76 of the body reaches beyond its end",
            path.display()
        )
    );
    let mut updates = open(true);
    let all: Vec<Update> = updates.by_ref().map(Result::unwrap).collect();
    let found: Vec<String> = all.iter().map(|u| line(u, updates.labels())).collect();
    assert_eq!(found, ["1289168632 7018 11.8.0.0/13 12.0.1.63"]);
    assert_eq!((updates.counts().masked, updates.counts().wrong), (1, 1));
}

/// Prefix and next hop of every route as bgpkit-parser, an independent implementation, reads them.
#[test]
fn real_mrt_reads_as_another_parser_reads_it() {
    let Some(data) = data("real_mrt_reads_as_another_parser_reads_it") else { return };
    let theirs = |name: &str| -> Vec<bgpkit_parser::BgpElem> {
        let mut bytes = Vec::new();
        tidemill_archive::open(&data.join(name)).unwrap().read_to_end(&mut bytes).unwrap();
        bgpkit_parser::BgpkitParser::from_reader(std::io::Cursor::new(bytes)).into_iter().collect()
    };
    let table = load_file(&data, "rib/mrt/bview.20020722.2337.gz", &LoadOptions::default());
    let mut first = HashMap::new();
    let elems = theirs("rib/mrt/bview.20020722.2337.gz");
    assert_eq!(elems.len() as u64, table.counts.routes);
    for elem in &elems {
        first.entry(elem.prefix.prefix.to_string()).or_insert(elem.next_hop.unwrap().to_string());
    }
    assert_eq!(first.len(), table.v4.len());
    for (prefix, label) in table.v4.iter() {
        assert_eq!(
            first.get(&prefix.to_string()),
            table.labels.name(label).map(|n| n.to_string()).as_ref(),
            "{prefix}"
        );
    }
    for name in ["rib/mrt/updates.20100227.1600.rrc15.gz", "rib/mrt/updates.long_withdrawal.gz"] {
        let mut updates = Updates::open(&data.join(name), Labels::new(), UpdateOptions::default()).unwrap();
        let mut ours: Vec<Update> = updates.by_ref().map(Result::unwrap).collect();
        let mut ours: Vec<String> = ours.drain(..).map(|u| line(&u, updates.labels())).collect();
        let mut theirs: Vec<String> = theirs(name)
            .iter()
            .map(|e| {
                let announce = e.elem_type == bgpkit_parser::models::ElemType::ANNOUNCE;
                let next_hop = if announce { e.next_hop.unwrap().to_string() } else { "-".into() };
                format!("{} {} {} {}", e.timestamp as u64, e.peer_asn, e.prefix.prefix, next_hop)
            })
            .collect();
        ours.sort();
        theirs.sort();
        println!("{name}: {} changes", ours.len());
        assert!(
            ours == theirs,
            "{name}: {} ours, {} theirs; {:?} {:?}",
            ours.len(),
            theirs.len(),
            ours.first(),
            theirs.first()
        );
    }
}

fn line(update: &Update, labels: &Labels) -> String {
    let (prefix, label) = match update.change {
        FamilyChange::V4(Change::Announce(p, l)) => (p.to_string(), Some(l)),
        FamilyChange::V6(Change::Announce(p, l)) => (p.to_string(), Some(l)),
        FamilyChange::V4(Change::Withdraw(p)) => (p.to_string(), None),
        FamilyChange::V6(Change::Withdraw(p)) => (p.to_string(), None),
    };
    let name = label.and_then(|l| labels.name(l)).map_or("-".into(), |n| n.to_string());
    format!("{} {} {prefix} {name}", update.time.unwrap() / 1_000_000_000, update.peer.unwrap().asn)
}

fn report(name: &str, made: &Shape, real: &Shape) {
    let lengths = distance(&made.by_length, &real.by_length);
    println!(
        "  length distance {lengths:.4}, depth distance {:.4}",
        distance(&made.by_depth, &real.by_depth)
    );
    println!("{name}: made / real");
    println!("  prefixes {} / {}", made.prefixes, real.prefixes);
    println!("  nested {} / {}, depth {} / {}", made.nested, real.nested, made.max_depth, real.max_depth);
    println!("  by depth {:?} / {:?}", made.by_depth, real.by_depth);
    println!("  redundant {} / {}", made.redundant, real.redundant);
    println!("  label repeats {} / {}", made.label_repeats, real.label_repeats);
    println!("  ranges {} / {}, labels {} / {}", made.ranges, real.ranges, made.labels, real.labels);
    println!("  blocks {:?}\n       / {:?}", made.blocks, real.blocks);
    println!("  lengths {:?}\n        / {:?}", made.by_length, real.by_length);
}

/// Whether `made` is within `percent` of `real`.
fn near(what: &str, made: u64, real: u64, percent: u64) {
    assert!(
        made.abs_diff(real) * 100 <= real * percent,
        "{what}: {made} is not within {percent} % of {real}"
    );
}

/// Half the sum of the differences between two histograms, as a share of the prefixes.
fn distance(made: &[u64], real: &[u64]) -> f64 {
    let at = |histogram: &[u64], i: usize| histogram.get(i).copied().unwrap_or(0);
    let differences: u64 = (0..made.len().max(real.len())).map(|i| at(made, i).abs_diff(at(real, i))).sum();
    differences as f64 / 2.0 / real.iter().sum::<u64>() as f64
}

/// Generated tables against the real ones, for several seeds and numbers of next hops.
#[test]
fn real_tables_look_like_the_generated_ones() {
    let Some(data) = data("real_tables_look_like_the_generated_ones") else { return };
    for (next_hops, seed) in [(148, 1), (30_000, 2), (100, 3)] {
        let start = Instant::now();
        let options = SynthOptions { v4: 1_042_325, v6: 246_175, next_hops, seed };
        let made = synth::table(&options).unwrap();
        println!("generated in {:.2} s", start.elapsed().as_secs_f64());
        let real = |family| {
            load_file(
                &data,
                &format!("rib/ris-as3333-20260511.{family}.nh{next_hops}.zst"),
                &LoadOptions::default(),
            )
        };
        let (made4, real4) = (shape(&made.v4), shape(&real("v4").v4));
        report("IPv4", &made4, &real4);
        assert_eq!(made4.prefixes, real4.prefixes);
        near("IPv4 merged ranges", made4.ranges, real4.ranges, 5);
        near("IPv4 nested prefixes", made4.nested, real4.nested, 10);
        near("IPv4 redundant prefixes", made4.redundant, real4.redundant, 15);
        near("IPv4 label repeats", made4.label_repeats, real4.label_repeats, 5);
        near("IPv4 /16s used", made4.blocks[0].used, real4.blocks[0].used, 5);
        near("IPv4 /16s split", made4.blocks[0].split, real4.blocks[0].split, 15);
        near("IPv4 ranges in split /16s", made4.blocks[0].split_ranges, real4.blocks[0].split_ranges, 5);
        near("IPv4 /20s split", made4.blocks[1].split, real4.blocks[1].split, 5);
        near("IPv4 ranges in split /20s", made4.blocks[1].split_ranges, real4.blocks[1].split_ranges, 10);
        assert!(distance(&made4.by_length, &real4.by_length) < 0.05);
        assert!(distance(&made4.by_depth, &real4.by_depth) < 0.08);
        assert!((6..=12).contains(&made4.max_depth), "depth {}", made4.max_depth);
        let (made6, real6) = (shape(&made.v6), shape(&real("v6").v6));
        report("IPv6", &made6, &real6);
        assert_eq!(made6.prefixes, real6.prefixes);
        near("IPv6 merged ranges", made6.ranges, real6.ranges, 25);
        near("IPv6 nested prefixes", made6.nested, real6.nested, 20);
        near("IPv6 label repeats", made6.label_repeats, real6.label_repeats, 10);
        near("IPv6 /32s used", made6.blocks[0].used, real6.blocks[0].used, 25);
        assert!(distance(&made6.by_length, &real6.by_length) < 0.2);
        assert!((6..=12).contains(&made6.max_depth), "depth {}", made6.max_depth);
    }
}
