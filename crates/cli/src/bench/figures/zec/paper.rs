//! Numbers that the paper states in tables and text.

/// A line of Table 3.1, EQIX 2018.
pub(super) struct Steps {
    pub(super) k: u8,
    /// Of the range table.
    pub(super) bytes: f64,
    /// Percent of the address space by steps, from none to 8; `None`: less than a thousandth.
    pub(super) percent: [Option<f64>; 9],
}

const LITTLE: Option<f64> = None;
const NONE: Option<f64> = Some(0.0);

const fn p(percent: f64) -> Option<f64> {
    Some(percent)
}

/// Table 3.1.
pub(super) const STEPS: [Steps; 9] = [
    Steps {
        k: 16,
        bytes: 809_308.0,
        percent: [p(71.413), p(2.090), p(5.127), p(5.177), p(5.165), p(5.075), p(3.911), p(1.973), p(0.069)],
    },
    Steps {
        k: 17,
        bytes: 804_060.0,
        percent: [p(77.556), p(2.145), p(5.051), p(4.724), p(4.449), p(3.721), p(2.229), p(0.126), NONE],
    },
    Steps {
        k: 18,
        bytes: 784_448.0,
        percent: [p(83.136), p(2.269), p(4.556), p(3.894), p(3.511), p(2.399), p(0.234), LITTLE, NONE],
    },
    Steps {
        k: 19,
        bytes: 735_420.0,
        percent: [p(88.229), p(2.007), p(3.594), p(3.290), p(2.466), p(0.412), p(0.001), NONE, NONE],
    },
    Steps {
        k: 20,
        bytes: 625_428.0,
        percent: [p(92.140), p(1.555), p(3.210), p(2.452), p(0.639), p(0.002), LITTLE, NONE, NONE],
    },
    Steps {
        k: 21,
        bytes: 372_600.0,
        percent: [p(94.863), p(1.800), p(2.412), p(0.921), p(0.003), LITTLE, NONE, NONE, NONE],
    },
    Steps {
        k: 22,
        bytes: 81_912.0,
        percent: [p(97.299), p(1.370), p(1.325), p(0.005), p(0.001), LITTLE, NONE, NONE, NONE],
    },
    Steps {
        k: 23,
        bytes: 10_012.0,
        percent: [p(98.697), p(1.293), p(0.008), p(0.001), LITTLE, NONE, NONE, NONE, NONE],
    },
    Steps {
        k: 24,
        bytes: 4_548.0,
        percent: [p(99.996), p(0.003), LITTLE, LITTLE, NONE, NONE, NONE, NONE, NONE],
    },
];

/// Bytes of the range table of EQIX 2018 (Table 3.1).
pub(super) fn range_bytes(k: u8) -> Option<f64> {
    STEPS.iter().find(|line| line.k == k).map(|line| line.bytes)
}

/// One structure on a table of Table 3.2.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) bytes: f64,
    /// Percent of the address space that the direct table resolves.
    pub(super) direct: f64,
    /// Ranges of 2 bytes, of 4.
    pub(super) short: f64,
    pub(super) long: f64,
    pub(super) build_ms: f64,
}

/// A line of Table 3.2.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) prefixes: f64,
    pub(super) next_hops: f64,
    /// D16R and D20R.
    pub(super) sizes: [Size; 2],
}

const fn size(bytes: f64, direct: f64, short: f64, long: f64, build_ms: f64) -> Size {
    Size { bytes, direct, short, long, build_ms }
}

/// Table 3.2.
pub(super) const TABLES: [Table; 8] = [
    Table {
        name: "PAIX 2014",
        prefixes: 504_818.0,
        next_hops: 58.0,
        sizes: [
            size(879_964.0, 75.6, 269_536.0, 19_687.0, 70.1),
            size(4_636_992.0, 94.0, 210_208.0, 5_568.0, 316.0),
        ],
    },
    Table {
        name: "EQIX 2014",
        prefixes: 493_049.0,
        next_hops: 58.0,
        sizes: [
            size(807_280.0, 77.6, 236_388.0, 18_090.0, 92.0),
            size(4_563_208.0, 94.7, 177_834.0, 3_309.0, 687.2),
        ],
    },
    Table {
        name: "LINX 2014",
        prefixes: 513_644.0,
        next_hops: 239.0,
        sizes: [
            size(954_568.0, 75.3, 269_850.0, 38_181.0, 98.7),
            size(4_706_452.0, 93.8, 237_728.0, 9_173.0, 758.9),
        ],
    },
    Table {
        name: "PAIX 2017",
        prefixes: 675_791.0,
        next_hops: 85.0,
        sizes: [
            size(970_664.0, 73.3, 313_376.0, 20_442.0, 94.1),
            size(4_694_696.0, 93.0, 237_316.0, 6_440.0, 501.0),
        ],
    },
    Table {
        name: "EQIX 2017",
        prefixes: 672_790.0,
        next_hops: 159.0,
        sizes: [
            size(952_136.0, 73.7, 302_256.0, 21_370.0, 120.0),
            size(4_663_640.0, 93.2, 220_446.0, 7_111.0, 911.3),
        ],
    },
    Table {
        name: "LINX 2017",
        prefixes: 663_729.0,
        next_hops: 560.0,
        sizes: [
            size(1_170_504.0, 73.0, 280_318.0, 86_931.0, 120.4),
            size(4_856_504.0, 92.7, 293_006.0, 19_047.0, 900.4),
        ],
    },
    Table {
        name: "UOR 2017",
        prefixes: 713_253.0,
        next_hops: 34.0,
        sizes: [
            size(1_192_072.0, 72.4, 287_726.0, 88_619.0, 102.1),
            size(4_873_896.0, 92.6, 286_844.0, 26_476.0, 524.3),
        ],
    },
    Table {
        name: "EQIX 2018",
        prefixes: 739_561.0,
        next_hops: 148.0,
        sizes: [
            size(1_071_452.0, 71.4, 377_030.0, 13_812.0, 95.0),
            size(4_819_732.0, 92.1, 305_498.0, 3_608.0, 757.0),
        ],
    },
];

/// The line of Table 3.2 that is most like a table: above all in the number of prefixes.
pub(super) fn most_like(prefixes: usize, next_hops: usize) -> &'static Table {
    let apart = |a: f64, b: usize| (a / b.max(1) as f64).ln().abs();
    let far = |line: &Table| apart(line.prefixes, prefixes) + 0.25 * apart(line.next_hops, next_hops);
    TABLES.iter().fold(&TABLES[0], |best, line| if far(line) < far(best) { line } else { best })
}

/// M lookups/s of one thread of an i7-4771 with UOREG 2018, by pattern (3.18, 4.3): bits of the direct table (0: no extension
/// table), K, rate.
pub(super) const RND: [(u8, u8, f64); 5] =
    [(0, 21, 211.18), (12, 19, 205.7), (12, 22, 177.6), (14, 22, 220.3), (16, 22, 255.4)];
pub(super) const REP: [(u8, u8, f64); 2] = [(0, 21, 409.5), (16, 22, 397.0)];

/// M lookups/s of all threads of a Ryzen 7 1700 together, at most (3.15), with LINX 2017.
pub(super) const RND_TOGETHER: f64 = 2449.0;

/// Misses of that CPU's L3 cache per lookup, of DxR by K (3.18 and, the text says, 3.19).
pub(super) const MISSES: [(u8, f64); 7] =
    [(16, 0.0939), (17, 0.0939), (18, 0.0939), (19, 0.0939), (20, 0.0939), (21, 0.0988), (22, 0.546)];
/// The same with each key eight times: the text has one number, for where the structure is in the caches (3.20).
pub(super) const REP_MISSES: [(u8, f64); 1] = [(16, 0.0126)];

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own arithmetic: a typing error here would show.
    #[test]
    fn the_papers_numbers_agree_with_each_other() {
        for Steps { k, percent, .. } in &STEPS {
            let all: f64 = percent.iter().flatten().sum();
            assert!((all - 100.0).abs() < 0.01, "K = {k}: {all}");
        }
        for Table { name, sizes, .. } in &TABLES {
            for (Size { bytes, short, long, .. }, k) in sizes.iter().zip([16, 20]) {
                assert_eq!(*bytes, f64::from(4 << k) + 2.0 * short + 4.0 * long, "{name}, K = {k}");
            }
        }
        let [d16, d20] = TABLES[7].sizes;
        assert_eq!(Some(d16.bytes - f64::from(4 << 16)), range_bytes(16));
        assert_eq!(Some(d20.bytes - f64::from(4 << 20)), range_bytes(20));
    }

    #[test]
    fn a_table_is_held_against_one_like_it() {
        for (prefixes, next_hops, like) in [
            (739_000, 148, "EQIX 2018"),
            (505_000, 58, "PAIX 2014"),
            (1_042_325, 148, "EQIX 2018"),
            (660_000, 600, "LINX 2017"),
        ] {
            assert_eq!(most_like(prefixes, next_hops).name, like);
        }
    }
}
