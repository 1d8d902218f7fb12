//! M. Zec 2019, chapters 3 and 4: how large DXR is, and how quick, by K: the bits that are resolved before the range search.
//!
//! | file | |
//! |---|---|
//! | `paper.rs` | the numbers that the paper states |
//! | `size.rs` | bytes, ranges, shares of the address space: nothing is timed, but builds |
//! | `speed.rs` | rates, of one thread and of several; misses of a modelled cache |

mod paper;
mod size;
mod speed;

use super::{Figure, Tables};
use crate::bench::lpm::Case;

const EQIX: &str = "EQIX 2018 (739561 prefixes, 148 next hops)";
const LINX: &str = "LINX 2017 (663729 prefixes, 560 next hops)";
const UOREG: &str = "UOREG 2018 (size not stated; 2017: 713253 prefixes, 34 next hops)";

/// What most of the figures are like.
const ONE: Figure =
    Figure { name: "", title: "", family: 4, tables: Tables::One, instead_of: EQIX, make: size::steps };

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "zec-3.1t",
        title: "Shares of the IPv4 space by steps of the range search, and bytes of ranges, by K (Table 3.1)",
        make: size::steps,
        ..ONE
    },
    Figure {
        name: "zec-3.2t",
        title: "D16R and D20R on several tables: bytes, coverage, ranges, build times (Table 3.2)",
        tables: Tables::Several,
        instead_of: "the paper's eight",
        make: size::tables,
        ..ONE
    },
    Figure {
        name: "zec-3.9",
        title: "What sharing equal chunks saves: short ranges (Figure 3.9)",
        make: |setting| size::sharing(setting, true),
        ..ONE
    },
    Figure {
        name: "zec-3.10",
        title: "What sharing equal chunks saves: long ranges (Figure 3.10)",
        make: |setting| size::sharing(setting, false),
        ..ONE
    },
    Figure { name: "zec-3.11", title: "Bytes of DxR by K (Figure 3.11)", make: size::footprint, ..ONE },
    Figure {
        name: "zec-3.13",
        title: "Rate of one thread by K, random keys (Figure 3.13)",
        instead_of: LINX,
        make: |setting| speed::by_k(setting, Case::Rnd, 235.0),
        ..ONE
    },
    Figure {
        name: "zec-3.14",
        title: "Rate of one thread by K, each lookup waiting for the one before (Figure 3.14)",
        instead_of: LINX,
        make: |setting| speed::by_k(setting, Case::Seq, 70.0),
        ..ONE
    },
    Figure {
        name: "zec-3.15",
        title: "Rate by threads, random keys: four DxR and DIR-24-8 (Figure 3.15)",
        instead_of: LINX,
        make: |setting| speed::by_threads(setting, Case::Rnd),
        ..ONE
    },
    Figure {
        name: "zec-3.16",
        title: "Rate by threads, each lookup waiting for the one before: four DxR and DIR-24-8 (Figure 3.16)",
        instead_of: LINX,
        make: |setting| speed::by_threads(setting, Case::Seq),
        ..ONE
    },
    Figure {
        name: "zec-3.17",
        title: "Rate by threads, each key eight times: four DxR and DIR-24-8 (Figure 3.17)",
        instead_of: LINX,
        make: |setting| speed::by_threads(setting, Case::Rep),
        ..ONE
    },
    Figure {
        name: "zec-3.18",
        title: "Rate of one thread and misses of the L3 cache by K, random keys (Figure 3.18)",
        instead_of: UOREG,
        make: |setting| speed::misses(setting, Case::Rnd),
        ..ONE
    },
    Figure {
        name: "zec-3.19",
        title: "Rate of one thread and misses of the L3 cache by K, each lookup waiting for the one before (Figure 3.19)",
        instead_of: UOREG,
        make: |setting| speed::misses(setting, Case::Seq),
        ..ONE
    },
    Figure {
        name: "zec-3.20",
        title: "Rate of one thread and misses of the L3 cache by K, each key eight times (Figure 3.20)",
        instead_of: UOREG,
        make: |setting| speed::misses(setting, Case::Rep),
        ..ONE
    },
    Figure {
        name: "zec-4.2",
        title: "Bytes of DdXxR over those of DxR, by K (Figure 4.2)",
        make: size::ratio,
        ..ONE
    },
    Figure {
        name: "zec-4.3",
        title: "Bytes of D12XxR by K, and of small tables (Figure 4.3)",
        make: |setting| size::parts(setting, 12),
        ..ONE
    },
    Figure {
        name: "zec-4.4",
        title: "Bytes of D14XxR by K (Figure 4.4)",
        make: |setting| size::parts(setting, 14),
        ..ONE
    },
    Figure {
        name: "zec-4.5",
        title: "Bytes of D16XxR by K (Figure 4.5)",
        make: |setting| size::parts(setting, 16),
        ..ONE
    },
    Figure {
        name: "zec-4.6",
        title: "Rate of one thread by K, random keys: DxR and three DdXxR (Figure 4.6)",
        instead_of: UOREG,
        make: |setting| speed::arrangements(setting, Case::Rnd),
        ..ONE
    },
    Figure {
        name: "zec-4.7",
        title: "Rate of one thread by K, each key eight times: DxR and three DdXxR (Figure 4.7)",
        instead_of: UOREG,
        make: |setting| speed::arrangements(setting, Case::Rep),
        ..ONE
    },
    Figure {
        name: "zec-4.8",
        title: "Rate of one thread by K, each lookup waiting for the one before: DxR and three DdXxR (Figure 4.8)",
        instead_of: UOREG,
        make: |setting| speed::arrangements(setting, Case::Seq),
        ..ONE
    },
];

/// The Ks of most figures.
const KS: std::ops::RangeInclusive<u8> = 16..=24;

/// The structure that resolves K bits before the search, with `d` bits for the direct table; all of them: without extension
/// table.
fn structure(d: Option<u8>, k: u8) -> String {
    match d {
        Some(d) if d < k => format!("dxr-d{d}x{}r", k - d),
        _ => format!("dxr-d{k}r"),
    }
}
