//! Every table and update file of the data collection, with the counts that its provenance states.
//! Needs TIDEMILL_DATA; see the crate's README.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Instant;
use tidemill_feed::{
    FamilyChange, LabelBy, Labels, LoadOptions, LoadedTable, Numbering, Peer, UpdateOptions, Updates, load,
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

const TABLES: [Case; 29] = [
    ("rib/ris-as3333-20260511.v4.prefixes.zst", 1_042_325, 0, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.prefixes.zst", 0, 246_175, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.nh100.zst", 1_042_325, 0, 100, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.nh148.zst", 1_042_325, 0, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.nh30000.zst", 1_042_325, 0, 27_617, Numbering::Direct),
    ("rib/ris-as3333-20260511.v4.uni30000.zst", 1_042_325, 0, 30_000, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.nh100.zst", 0, 246_175, 100, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.nh148.zst", 0, 246_175, 148, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.nh30000.zst", 0, 246_175, 20_506, Numbering::Direct),
    ("rib/ris-as3333-20260511.v6.uni30000.zst", 0, 246_175, 29_994, Numbering::Direct),
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
    ("rib/internet2-chic-201203.v4.fib", 14_219, 0, 0, Numbering::Appearance),
    ("rib/stanford-yoza-201106.v4.fib", 4_746, 0, 0, Numbering::Appearance),
    // 115,521 routes of 36 peers.
    ("rib/mrt/bview.20020722.2337.gz", 112_988, 0, 0, Numbering::Appearance),
    ("rib/mrt/bview.ipv4_unicast_add_path.gz", 0, 0, 0, Numbering::Appearance),
    ("rib/mrt/bview.ipv6_unicast_add_path.gz", 0, 0, 0, Numbering::Appearance),
    ("vectors/dpdk-lpm6/large_route_table.tsv", 0, 0, 0, Numbering::Shifted),
    ("vectors/dpdk-l3fwd/lpm_default_v4.cfg", 16, 0, 16, Numbering::Shifted),
];

#[test]
fn real_tables_load_with_the_counts_of_their_provenance() {
    let Some(data) = data("real_tables_load_with_the_counts_of_their_provenance") else { return };
    for (name, v4, v6, names, numbering) in TABLES {
        let table = load_file(&data, name, &LoadOptions::default());
        let found = (table.v4.len(), table.v6.len(), table.labels.len(), table.labels.numbering());
        if found != (v4, v6, names, numbering) {
            println!("!! {name}: {found:?}");
        }
    }
}
