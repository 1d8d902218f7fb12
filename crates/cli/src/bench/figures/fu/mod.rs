//! Q. Fu 2020, chapter 3: SAIL, what it costs and how quick it is beside the algorithms that the paper has beside it.
//!
//! | file | |
//! |---|---|
//! | `paper.rs` | the numbers that the paper states |
//! | `counts.rs` | bounds, shares of long prefixes and of keys that match them, accesses per update: nothing is timed |
//! | `speed.rs` | rates of one thread, of six algorithms |
//! | `keys.rs` | which keys they are asked for |
//! | `fibs.rs` | several FIBs in one structure, tables with more long prefixes |
//! | `six.rs` | memory of the form for large IPv6 tables: nothing is timed |

mod counts;
mod fibs;
mod keys;
mod paper;
mod six;
mod speed;

use super::{Figure, Setting, Tables};
use tidemill_lpm::Rib;

const RRC: &str = "12 tables of RIPE's collectors of 2013-08-08 (190 thousand to 480 thousand prefixes)";

/// What most of the figures are like.
const SEVERAL: Figure = Figure {
    name: "",
    title: "",
    family: 4,
    tables: Tables::Several,
    instead_of: RRC,
    make: counts::long_prefixes,
};

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "fu-3.2t",
        title: "Bounds of SAIL, and the worst that is seen: on-chip bytes, accesses per lookup and update (Table 3.2)",
        tables: Tables::One,
        instead_of: "any: the bounds hold for every table",
        make: counts::bounds,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.4t",
        title: "Shares of prefixes longer than 24 bits (Table 3.4)",
        instead_of: "24 tables of RIPE's collectors, 2002 to 2013",
        ..SEVERAL
    },
    Figure {
        name: "fu-3.5t",
        title: "On-chip memory of SAIL for large IPv6 tables (Table 3.5)",
        family: 6,
        instead_of: six::INSTEAD_OF,
        make: six::on_chip,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.7",
        title: "Rates of six algorithms, traffic with locality (Figure 3.7)",
        instead_of: "a tier-1 router's table, 12 hours of 2013-10-22, and its traffic",
        make: speed::trace,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.8",
        title: "Rates of six algorithms, keys for each prefix (Figure 3.8)",
        make: speed::prefix_based,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.9",
        title: "Rates of six algorithms, random keys (Figure 3.9)",
        tables: Tables::One,
        instead_of: "rrc00 of 2013-01-01 (495401 prefixes)",
        make: speed::random,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.10",
        title: "Shares of random keys that match a prefix longer than 24 bits (Figure 3.10)",
        tables: Tables::One,
        instead_of: "rrc00 of 2013-01-01 (495401 prefixes, 2.46 % of them longer than 24 bits)",
        make: counts::long_matches,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.11",
        title: "Memory accesses per update (Figure 3.11)",
        tables: Tables::One,
        instead_of: "rrc00, rrc01 and rrc03 of 2013, and 159500 updates of each",
        make: counts::accesses,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.12",
        title: "Rates of SAIL_M by the number of FIBs (Figure 3.12)",
        make: fibs::overlaid,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.13",
        title: "Rates of SAIL_L and Poptrie with more prefixes longer than 24 bits (Figure 3.13)",
        make: fibs::with_long_prefixes,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.16",
        title: "Pivot nodes by level in SAIL for large IPv6 tables (Figure 3.16)",
        family: 6,
        instead_of: six::INSTEAD_OF,
        make: six::pivots,
        ..SEVERAL
    },
    Figure {
        name: "fu-3.17",
        title: "Off-chip memory of SAIL for large IPv6 tables, for pivot nodes and all of it (Figure 3.17)",
        family: 6,
        instead_of: six::INSTEAD_OF,
        make: six::off_chip,
        ..SEVERAL
    },
];

/// The first table.
fn rib<'a>(setting: &'a Setting<'_>) -> &'a Rib<u32> {
    &setting.tables[0].table.v4
}

/// The least and the greatest; zeros of none.
fn extremes(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let both = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
    let (least, most) = values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), both);
    if least <= most { (least, most) } else { (0.0, 0.0) }
}
