//! Keys of flows, and the checksums of right passes: arithmetic on the numbers of keys, without any table.

use crate::peers::keys::{SplitMix, checksum};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The cases, as runners know them.
pub(crate) const CASES: [&str; 7] =
    ["hit", "miss", "mixed", "hit-single", "hit-dependent", "insert", "find-or-insert"];

/// Whether a case fills the table from empty.
pub(super) fn fills(case: &str) -> bool {
    matches!(case, "insert" | "find-or-insert")
}

/// What a runner asks, as far as the answers depend on it.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    /// Keys in the file.
    pub(super) keys: usize,
    /// The first of them, which are in the table.
    pub(super) present: usize,
    pub(super) queries: usize,
    pub(super) seed: u64,
}

/// Writes random keys. Two are equal with a probability that is not worth a thought, and the seed says always the same.
pub(super) fn write(path: &Path, count: usize, bytes: usize, seed: u64) -> Result<()> {
    let at = || path.display().to_string();
    let mut random = SplitMix::new(!seed);
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path).with_context(at)?);
    let mut key = Vec::with_capacity(bytes + 8);
    for _ in 0..count {
        key.clear();
        while key.len() < bytes {
            key.extend_from_slice(&random.next().to_le_bytes());
        }
        file.write_all(&key[..bytes]).with_context(at)?;
    }
    file.flush().with_context(at)
}

/// The number of the key that each query asks for. Key i has the value i + 1; keys from `present` on have none, 0.
fn asked(case: &str, numbers: &Numbers) -> impl Iterator<Item = usize> {
    let mut random = SplitMix::new(numbers.seed);
    let (present, absent) = (numbers.present, numbers.keys - numbers.present);
    let (all, some) = (case == "miss", case == "mixed");
    (0..numbers.queries).map(move |_| {
        let missing = all || (some && random.next() & 1 != 0);
        if missing { present + random.below(absent) } else { random.below(present) }
    })
}

/// The checksum of a right pass of each case.
pub(super) fn expected(numbers: &Numbers) -> BTreeMap<&'static str, String> {
    let sum = |values: &mut dyn Iterator<Item = usize>| {
        checksum(values.flat_map(|value| (value as u64).to_le_bytes()))
    };
    let value = |key: usize| if key < numbers.present { key + 1 } else { 0 };
    let filled = sum(&mut (1..=numbers.present));
    let of = |case| match fills(case) {
        true => (case, filled.clone()),
        false => (case, sum(&mut asked(case, numbers).map(value))),
    };
    CASES.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers { keys: 100, present: 60, queries: 4096, seed: 7 };

    #[test]
    fn queries_ask_for_what_their_case_says() {
        let present = |case| asked(case, &NUMBERS).filter(|key| *key < 60).count();
        assert_eq!((present("hit"), present("miss")), (4096, 0));
        assert!((1900..2200).contains(&present("mixed")), "{}", present("mixed"));
        assert_eq!(asked("mixed", &NUMBERS).max(), Some(99));
    }

    #[test]
    fn checksums_are_those_of_the_protocol() {
        // The values 1, 2, 3 as eight bytes each.
        let expected = expected(&Numbers { present: 3, ..NUMBERS });
        assert_eq!(expected["insert"], "da2bfb225e0d1f05");
        assert_eq!(expected["insert"], expected["find-or-insert"]);
        assert_eq!(expected["hit"], expected["hit-dependent"]);
        assert_ne!(expected["hit"], expected["mixed"]);
        assert_eq!(expected.len(), CASES.len());
    }
}
