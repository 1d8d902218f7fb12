//! Tries on a routing table: lookups that are one long chain of loads.

use super::super::pass::Checksum;
use super::drivers::{Driver, Subject};
use super::work::Asked;
use super::{About, Hide, passes};
use crate::bench::report::Report;
use crate::json::Params;
use crate::progress::Progress;
use crate::tables::{LoadArgs, routes};
use crate::usage;
use anyhow::Result;
use std::future::Future;
use std::path::Path;
use tidemill_lookup::probe::Recorder;
use tidemill_lpm::binarytrie::BinaryTrie;
use tidemill_lpm::chain::Chain;
use tidemill_lpm::copies::Whole;
use tidemill_lpm::keys::{Pattern, keys};
use tidemill_lpm::patricia::Patricia;
use tidemill_lpm::{Family, Label, Oracle, Rib};

/// What `--trie` takes.
pub(super) const NAMES: [&str; 2] = ["binary-trie", "patricia"];
/// Which keys.
const PATTERNS: [Pattern; 2] = [Pattern::Random, Pattern::PrefixBased];
/// Keys whose loads are counted.
const SAMPLE: usize = 1 << 16;

/// A trie, and the keys that it is asked for; a key's number is its place.
struct Trie<A, F> {
    fib: F,
    keys: Vec<A>,
}

impl<A: Family, F: Chain<A>> Subject for Trie<A, F> {
    type Key = A;
    type Answer = Label;

    fn key(&self, number: u64) -> A {
        self.keys[number as usize]
    }

    #[inline(always)]
    fn one(&self, key: &A) -> u64 {
        self.fib.lookup(*key).0.into()
    }

    #[inline(always)]
    fn find(&self, key: &A) -> impl Future<Output = Label> {
        self.fib.find_suspended(*key)
    }

    #[inline(always)]
    fn answer(answer: Label) -> u64 {
        answer.0.into()
    }

    fn batch(&self, keys: &[A], answers: &mut [u64]) {
        let mut labels = [Label::NONE; 256];
        for (keys, answers) in keys.chunks(labels.len()).zip(answers.chunks_mut(labels.len())) {
            let labels = &mut labels[..keys.len()];
            self.fib.lookup_batch(keys, labels);
            for (answer, label) in answers.iter_mut().zip(labels) {
                *answer = label.0.into();
            }
        }
    }
}

/// All tries that were asked for, for each family that the file has; false if an answer was wrong.
pub(super) fn measure(args: &Hide, file: &Path, report: &mut Report) -> Result<bool> {
    if let Some(name) = args.tries.iter().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(usage(format!("--trie {name}: use one of {}", NAMES.join(", "))));
    }
    let table = LoadArgs::default().load(file)?;
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    let families = usize::from(!table.v4.is_empty()) + usize::from(!table.v6.is_empty());
    let each = PATTERNS.len() * args.batch.len() * args.runs * Driver::ALL.len();
    let progress = Progress::new("bench hide", (families * args.tries.len() * each) as u64);
    let mut right = family(args, &table.v4, &name, &progress, report)?;
    right &= family(args, &table.v6, &name, &progress, report)?;
    Ok(right)
}

fn family<A: Family>(
    args: &Hide,
    rib: &Rib<A>,
    table: &str,
    progress: &Progress,
    report: &mut Report,
) -> Result<bool> {
    let mut right = true;
    if rib.is_empty() {
        return Ok(right);
    }
    let oracle = Oracle::new(&routes(rib));
    for name in &args.tries {
        progress.message(format!("{name}: building"));
        let about = OfTrie { name, table, rib, oracle: &oracle };
        right &= match name.as_str() {
            "binary-trie" => about.measure(args, BinaryTrie::build(rib)?, progress, report)?,
            _ => about.measure(args, Patricia::build(rib)?, progress, report)?,
        };
    }
    Ok(right)
}

/// What is known of a trie before it is measured.
struct OfTrie<'a, A: Family> {
    name: &'a str,
    table: &'a str,
    rib: &'a Rib<A>,
    oracle: &'a Oracle<A>,
}

impl<A: Family> OfTrie<'_, A> {
    fn measure<F: Chain<A> + Whole<A>>(
        &self,
        args: &Hide,
        fib: F,
        progress: &Progress,
        report: &mut Report,
    ) -> Result<bool> {
        let OfTrie { name, table, rib, oracle } = self;
        // As the registry makes it.
        fib.collapse();
        let mut params = Params::new();
        params.insert("table".into(), (*table).into());
        params.insert("prefixes".into(), rib.len().into());
        params.insert("bytes".into(), fib.bytes().into());
        let mut trie = Trie { fib, keys: Vec::new() };
        let mut right = true;
        for pattern in PATTERNS {
            trie.keys = keys(rib, pattern, args.lookups(), args.seed);
            let asked = asked(&trie, oracle);
            for &batch in &args.batch {
                let case = format!("v{}/batch-{batch}/{pattern}", A::FAMILY);
                let about = About { name, case, batch, params: &params };
                right &= passes(args, &trie, &asked, &about, progress, report)?;
            }
        }
        Ok(right)
    }
}

/// The keys in their order, and what is right by the oracle.
fn asked<A: Family, F: Chain<A>>(trie: &Trie<A, F>, oracle: &Oracle<A>) -> Asked {
    let mut checksum = Checksum::new();
    checksum.bytes(trie.keys.iter().flat_map(|&key| u64::from(oracle.lookup(key).0).to_le_bytes()));
    let sample = &trie.keys[..trie.keys.len().min(SAMPLE)];
    let recorder = Recorder::new();
    sample.iter().for_each(|&key| _ = trie.fib.lookup_probed(key, &recorder));
    Asked {
        numbers: (0..trie.keys.len() as u64).collect(),
        expected: checksum.text(),
        loads: recorder.counts().reads as f64 / sample.len().max(1) as f64,
    }
}
