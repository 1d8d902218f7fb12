//! M. Kwon and others, "CuVPP: filter-based longest prefix matching in software data planes": rates, questions, cache misses and
//! memory of a hash table by prefix length, alone, behind a Bloom filter, a trie or a cuckoo filter.
//!
//! | file | |
//! |---|---|
//! | `shape.rs` | tables of any size with a given share of each prefix length, as the paper scales its two |
//! | `subject.rs` | the paper's four structures, with filters of its size, and what is quicker; keys |
//! | `count.rs` | questions to filters and to the FIB, cache misses, bytes: nothing is timed but the lookups of Table II |
//! | `published.rs` | the two filters as the published code has them, which explain the paper's counts |
//! | `speed.rs` | rates; insertions into a filter that fills up |
//!
//! The paper draws Figures 6, 7 and 10 without numbers. Theirs here are those of the raw data that the authors published with
//! their code (github.com/cuckoovpp/CuckooVPP), of which they drew them: the ranges that the text states follow from it.

mod count;
mod published;
mod shape;
mod speed;
mod subject;

use super::{Figure, Tables};
use shape::Shape;
use subject::Traffic;

const RV_LINX: &str = "RV-linx (20440 prefixes of 34 lengths), scaled";
const DT_IP6: &str = "DT-IP6 (513 prefixes of 17 lengths), scaled";

/// What most of the figures are like.
const ONE: Figure = Figure {
    name: "",
    title: "",
    family: 6,
    tables: Tables::OneOrNone,
    instead_of: RV_LINX,
    make: |setting| count::questions(setting, count::MANY),
};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "cuvpp-1t",
        title: "Rate by how many prefix lengths there are, with one prefix each (Table I)",
        tables: Tables::None,
        instead_of: "",
        make: speed::by_lengths,
        ..ONE
    },
    Figure {
        name: "cuvpp-2t",
        title: "Questions to the filter and to the FIB, and time, of 500,000 lookups on 500,000 prefixes (Table II)",
        ..ONE
    },
    Figure {
        name: "cuvpp-3t",
        title: "Cache misses of 500,000 lookups on 500,000 prefixes, modelled (Table III)",
        make: |setting| count::misses(setting, count::MANY),
        ..ONE
    },
    Figure {
        name: "cuvpp-4t",
        title: "Memory for a million prefixes (Table IV)",
        make: |setting| count::memory(setting, count::MILLION),
        ..ONE
    },
    Figure {
        name: "cuvpp-6",
        title: "Rate by table size, RV-linx: random keys, and keys inside prefixes (Figure 6)",
        make: |setting| speed::by_size(setting, &Shape::rv_linx(), speed::RV_LINX, &count::SIZES),
        ..ONE
    },
    Figure {
        name: "cuvpp-7",
        title: "Rate by table size, DT-IP6: random keys, and keys inside prefixes (Figure 7)",
        instead_of: DT_IP6,
        make: |setting| speed::by_size(setting, &Shape::dt_ip6(), speed::DT_IP6, &count::SIZES),
        ..ONE
    },
    Figure {
        name: "cuvpp-10",
        title: "Hashes for the filter, and questions to the FIB, of 500,000 lookups by table size (Figure 10)",
        instead_of: DT_IP6,
        make: |setting| count::profile(setting, &count::SIZES),
        ..ONE
    },
    Figure {
        name: "cuvpp-12",
        title: "Time and cuckoo moves of an insertion by load, filter of a million (Figure 12)",
        tables: Tables::None,
        instead_of: "",
        make: |setting| speed::insertions(setting, count::MILLION),
        ..ONE
    },
];

const MLPS: &str = "M lookups/s";

/// Both kinds of keys, as the paper names its panels.
const TRAFFIC: [Traffic; 2] = [Traffic::Random, Traffic::Inside];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drawing::{Drawing, X};
    use crate::bench::figures::{Setting, Subject};
    use crate::bench::lpm::Lpm;
    use clap::Parser;
    use std::collections::BTreeSet;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        lpm: Lpm,
    }

    /// A figure with next to no lookups; with or without a table.
    fn draw(name: &str, table: bool, make: impl Fn(&Setting<'_>) -> anyhow::Result<Drawing>) -> Drawing {
        let line = "x --figure any --runs 1 --seconds 0.0001 --lookups-ki 4";
        let args = Line::parse_from(line.split(' ')).lpm;
        let figure = FIGURES.iter().find(|figure| figure.name == name).unwrap();
        let options = tidemill_feed::synth::SynthOptions { v4: 0, v6: 500, ..Default::default() };
        let subject =
            || Subject { name: "t.txt".to_owned(), table: tidemill_feed::synth::table(&options).unwrap() };
        let tables = if table { vec![subject()] } else { Vec::new() };
        make(&Setting { figure, tables, args: &args }).unwrap()
    }

    fn series(drawing: &Drawing, panel: usize) -> Vec<&str> {
        drawing.panels[panel].series.iter().map(|series| series.name.as_str()).collect()
    }

    fn names(drawing: &Drawing, panel: usize) -> BTreeSet<String> {
        let points = drawing.panels[panel].series.iter().flat_map(|series| &series.points);
        points.map(|point| point.x.to_string()).collect()
    }

    const FOUR: [&str; 4] = ["hash-per-length", "bloom-lpm", "two-way-trie", "cuvpp"];

    #[test]
    fn rates_are_by_size_and_by_keys() {
        let sizes = [400, 800];
        let rv = draw("cuvpp-6", false, |s| speed::by_size(s, &Shape::rv_linx(), speed::RV_LINX, &sizes));
        let of_table = draw("cuvpp-7", true, |s| speed::by_size(s, &Shape::dt_ip6(), speed::DT_IP6, &sizes));
        for drawing in [&rv, &of_table] {
            assert_eq!(drawing.panels.len(), 2);
            for panel in &drawing.panels {
                assert_eq!(series(drawing, 0)[..4], FOUR, "and what is quicker");
                let behind = ["length-search", "cuvpp-simd", "cuvpp-lengths"];
                assert_eq!(series(drawing, 0)[4..7], behind);
                assert_eq!(series(drawing, 0)[7..], behind.map(|name| format!("{name}, key by key")));
                for series in &panel.series {
                    let xs: Vec<&X> = series.points.iter().map(|point| &point.x).collect();
                    assert_eq!(xs, [&X::Number(0.0004), &X::Number(0.0008)]);
                    assert!(series.points.iter().all(|point| point.y > 0.0 && point.paper.is_none()));
                }
            }
        }
        assert!(rv.table.unwrap().starts_with("RV-linx as the paper describes it, 34 lengths"));
        assert!(of_table.table.unwrap().starts_with("the lengths of t.txt, "));
    }

    #[test]
    fn the_papers_numbers_are_beside_its_sizes() {
        // Tables as large are left to the users: what is stated for which size is what the types say.
        let drawing = draw("cuvpp-1t", false, speed::by_lengths);
        assert_eq!(drawing.panels.len(), 4);
        let base = &drawing.panels[0].series[0];
        let papers: Vec<Option<f64>> = base.points.iter().map(|point| point.paper).collect();
        assert_eq!((base.name.as_str(), papers), (FOUR[0], vec![Some(8.55), Some(4.34), Some(1.7)]));
        assert!(drawing.panels.iter().all(|panel| panel.series[3].points.iter().all(|p| p.paper.is_none())));
        assert!(drawing.panels[2].series.iter().all(|series| series.points[0].y == 1.0));
    }

    #[test]
    fn questions_misses_and_bytes_are_by_structure_and_by_keys() {
        let questions = draw("cuvpp-2t", false, |s| count::questions(s, 2_000));
        let misses = draw("cuvpp-3t", true, |s| count::misses(s, 2_000));
        let memory = draw("cuvpp-4t", false, |s| count::memory(s, 2_000));
        assert_eq!((questions.panels.len(), misses.panels.len(), memory.panels.len()), (4, 3, 3));
        for drawing in [&questions, &misses] {
            for panel in 0..drawing.panels.len() {
                assert_eq!(series(drawing, panel), TRAFFIC.map(Traffic::name));
                let names = names(drawing, panel);
                assert!(FOUR.iter().all(|name| names.contains(*name)), "{names:?}");
            }
        }
        assert!(questions.title.contains(", of 4096 lookups on 500,000 prefixes"), "{}", questions.title);
        // Bloom, Base, trie, cuckoo; as published.
        let point = |panel: usize, at: usize| questions.panels[panel].series[0].points[at].y;
        assert_eq!((point(0, 0), point(0, 2), point(1, 2)), (0.0, 0.0, 4096.0));
        assert_eq!(point(0, 1), point(0, 3));
        assert_eq!(point(0, 1), point(1, 0), "what has no filter asks the FIB");
        let sound = |at: usize| point(2, at) < 100.0;
        assert!(sound(1) && sound(3));
        let bytes = &memory.panels[0].series[0].points;
        let of = |name: &str| bytes.iter().find(|p| p.x == X::Name(name.to_owned())).unwrap().y;
        for name in ["bloom-lpm", "cuvpp", "cuvpp-simd", "cuvpp-lengths"] {
            assert!((of(name) - 6.0).abs() < 0.1, "{name}");
        }
        assert!((of("two-way-trie, 24 bytes a node") / of("two-way-trie") - 3.0).abs() < 0.01);
    }

    #[test]
    fn profiles_are_by_size_and_filter() {
        let drawing = draw("cuvpp-10", false, |s| count::profile(s, &[1_000, 2_000]));
        assert_eq!(drawing.panels.len(), 4);
        let filters = ["bloom-lpm", "cuvpp", "Bloom as published", "cuckoo as published"];
        for (panel, of) in drawing.panels.iter().enumerate() {
            let hashes = panel % 2 == 0;
            assert_eq!(series(&drawing, panel)[usize::from(!hashes)..], filters);
            assert!(of.series.iter().all(|series| series.points.len() == 2));
        }
    }

    #[test]
    fn insertions_fill_the_filter() {
        let drawing = draw("cuvpp-12", false, |s| speed::insertions(s, 4_000));
        let [time, moves] = [0, 1].map(|panel| &drawing.panels[panel].series[0].points);
        assert!(time.len() > 15 && time.len() == moves.len());
        assert!(time.iter().all(|point| point.y > 0.0));
        assert_eq!(moves[0].y, 0.0, "nothing is in the way at first");
        let load = |at: usize| if let X::Number(load) = moves[at].x { load } else { f64::NAN };
        assert!((load(0) - 0.05).abs() < 0.001 && load(moves.len() - 1) > 0.8);
        assert!(moves[moves.len() - 1].y > moves[moves.len() / 2].y);
        // "0 until the load factor of 0.8".
        assert!((0..moves.len()).all(|at| moves[at].paper == (load(at) < 0.801).then_some(0.0)));
        assert!(time.iter().all(|point| point.paper.is_none()));
    }
}
