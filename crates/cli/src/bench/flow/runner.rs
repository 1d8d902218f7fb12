//! `bench flow --runner`: our side of the comparison with peers. The protocol is in `bench/README.md`.

use super::bound::Bound;
use super::stores::{Flows, MOST, Map, Plain, Store};
use crate::bench::pass::{BLOCK, Checksum, Pass, table_pages};
use crate::json;
use crate::usage;
use anyhow::{Context, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemill_flow::key::Key;
use tidemill_lpm::keys::Random;

/// Arguments of `--runner`.
#[derive(clap::Args)]
pub(super) struct RunnerArgs {
    /// Answer timed passes on standard input (protocol: bench/README.md)
    #[arg(long, requires_all = ["keys", "structure", "present", "slots", "queries"])]
    pub(super) runner: bool,
    /// With --runner: keys of --key-bytes each, those in the table first
    #[arg(long, value_name = "FILE", requires = "runner")]
    keys: Option<PathBuf>,
    /// With --runner: the table, or hashbrown, or what memory allows: bound-1-line, bound-2-lines (with --hash given)
    #[arg(long, value_name = "NAME", requires = "runner")]
    structure: Option<String>,
    /// With --runner: how many keys of the file are in the table
    #[arg(long, value_name = "N", requires = "runner")]
    present: Option<usize>,
    /// With --runner: slots of the table
    #[arg(long, value_name = "N", requires = "runner")]
    slots: Option<usize>,
    /// With --runner: lookups per pass, a multiple of 4096
    #[arg(long, value_name = "N", requires = "runner")]
    queries: Option<usize>,
}

/// They are laid out in memory.
const MOST_QUERIES: usize = 1 << 28;

/// What `bench flow` knows anyway.
pub(super) struct Common {
    pub(super) key_bytes: usize,
    pub(super) batch: usize,
    pub(super) seed: u64,
    /// The hash is computed in the timed part, or is there with the key, as a NIC's is.
    pub(super) keyed: bool,
}

/// Declares the structures: name and type.
macro_rules! structures {
    ($args:expr, $w:ident, $($name:literal => $store:ty,)*) => {
        match $args.structure() {
            $($name => serve::<$w, $store>(&$args),)*
            other => {
                let names = [$($name),*].join(", ");
                Err(usage(format!("--structure {other}: use one of {names}")))
            }
        }
    };
}

/// Everything, checked.
struct Asked<'a> {
    args: &'a RunnerArgs,
    common: Common,
    keys: &'a Path,
    present: usize,
    slots: usize,
    queries: usize,
}

impl Asked<'_> {
    fn structure(&self) -> &str {
        self.args.structure.as_deref().unwrap_or_default()
    }
}

/// Serves a runner of keys of `W` words.
pub(super) fn run<const W: usize>(args: &RunnerArgs, common: Common) -> Result<bool> {
    let (Some(keys), Some(present), Some(slots), Some(queries)) =
        (&args.keys, args.present, args.slots, args.queries)
    else {
        return Err(usage("--runner: needs --keys, --structure, --present, --slots, --queries"));
    };
    if queries == 0 || queries % BLOCK != 0 || queries > MOST_QUERIES {
        return Err(usage(format!("--queries {queries}: give a multiple of {BLOCK}, at most 2^28")));
    }
    if common.batch == 0 || common.batch > MOST {
        return Err(usage(format!("--batch {}: give 1 to {MOST}", common.batch)));
    }
    let asked = Asked { args, common, keys, present, slots, queries };
    if asked.structure().starts_with("bound-") && asked.common.keyed {
        return Err(usage("--structure bound-...: is told where keys are, so give --hash given"));
    }
    structures!(asked, W,
        "flowtable" => Flows<W>,
        "linear" => Plain<tidemill_flow::linear::Linear<W>, W>,
        "quadratic" => Plain<tidemill_flow::quadratic::Quadratic<W>, W>,
        "double" => Plain<tidemill_flow::double::Double<W>, W>,
        "hopscotch" => Plain<tidemill_flow::hopscotch::Hopscotch<W>, W>,
        "chaining" => Plain<tidemill_flow::chaining::Chaining<W>, W>,
        "cuckoo" => Plain<tidemill_flow::cuckoo::Cuckoo<W>, W>,
        "keystore-cuckoo" => Plain<tidemill_flow::keystore::Keystore<W>, W>,
        "hashbrown" => Map<W>,
        "bound-1-line" => Bound<W, 1>,
        "bound-2-lines" => Bound<W, 2>,
    )
}

/// The keys of a file.
fn read_keys<const W: usize>(asked: &Asked<'_>) -> Result<Vec<Key<W>>> {
    let (file, width) = (asked.keys, asked.common.key_bytes);
    let bytes = crate::tables::read_keys(file)?;
    let (count, present) = (bytes.len() / width, asked.present);
    if bytes.len() % width != 0 || present == 0 || count <= present {
        return Err(usage(format!(
            "{}: {} bytes are not {present} keys of {width} bytes and some that are in no table",
            file.display(),
            bytes.len()
        )));
    }
    let key = |bytes: &[u8]| {
        let mut words = [0; W];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            *word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Key(words)
    };
    Ok(bytes.chunks_exact(width).map(key).collect())
}

/// What a lookup pass asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Hit,
    Miss,
    Mixed,
    /// One at a time.
    HitSingle,
    /// Each needs the answer before it.
    HitDependent,
}

/// The queries of a case as they lie in memory. In [`Case::HitDependent`] the first word of each, and its hash, are XORed with the
/// right answer to the one before.
struct Queries<const W: usize> {
    case: Case,
    keys: Vec<Key<W>>,
    /// If hashes are given.
    hashes: Vec<u64>,
}

impl<const W: usize> Queries<W> {
    fn lay_out<S: Store<W>>(case: Case, asked: &Asked<'_>, keys: &[Key<W>], store: &S) -> Self {
        let mut random = Random::new(asked.common.seed);
        let (present, absent) = (asked.present, keys.len() - asked.present);
        let mut queries = Queries { case, keys: Vec::with_capacity(asked.queries), hashes: Vec::new() };
        let mut previous = 0;
        for _ in 0..asked.queries {
            let missing = case == Case::Miss || (case == Case::Mixed && random.bits() & 1 != 0);
            let at = if missing { present + random.below(absent) } else { random.below(present) };
            let mut key = keys[at];
            let hash = store.given(at, &key);
            key.0[0] ^= previous;
            queries.keys.push(key);
            if !asked.common.keyed {
                queries.hashes.push(hash ^ previous);
            }
            if case == Case::HitDependent {
                previous = at as u64 + 1;
            }
        }
        queries
    }

    /// Asks for all.
    fn pass<S: Store<W>>(&self, store: &S, batch: usize) -> Pass {
        let mut values = [0; BLOCK];
        let (mut checksum, mut time) = (Checksum::new(), Duration::ZERO);
        let mut previous = 0;
        for (block, keys) in self.keys.chunks_exact(BLOCK).enumerate() {
            let given = self.hashes.get(block * BLOCK..(block + 1) * BLOCK).unwrap_or_default();
            warm(keys);
            let start = Instant::now();
            match self.case {
                Case::HitSingle => {
                    for (i, (key, value)) in keys.iter().zip(&mut values).enumerate() {
                        let hash = given.get(i).copied().unwrap_or_else(|| store.hash(key));
                        *value = store.lookup(hash, key);
                    }
                }
                Case::HitDependent => {
                    for (i, (key, value)) in keys.iter().zip(&mut values).enumerate() {
                        let mut key = *key;
                        key.0[0] ^= previous;
                        let hash = given.get(i).map_or_else(|| store.hash(&key), |hash| hash ^ previous);
                        previous = store.lookup(hash, &key);
                        *value = previous;
                    }
                }
                Case::Hit | Case::Miss | Case::Mixed => {
                    let mut own = [0; MOST];
                    for (i, (keys, values)) in keys.chunks(batch).zip(values.chunks_mut(batch)).enumerate() {
                        let hashes = hashes(store, given, i * batch, keys, &mut own);
                        store.lookup_batch(hashes, keys, values);
                    }
                }
            }
            time += start.elapsed();
            checksum.bytes(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Pass { time, checksum: checksum.text() }
    }
}

/// Brings the keys of a block into the cache, where those of packets that have just been parsed are.
fn warm<const W: usize>(keys: &[Key<W>]) {
    std::hint::black_box(keys.iter().fold(0, |sum, key| sum ^ key.0[0] ^ key.0[W - 1]));
}

/// The hashes of a batch: those given, from this one on, or computed now.
#[inline(always)]
fn hashes<'a, const W: usize, S: Store<W>>(
    store: &S,
    given: &'a [u64],
    first: usize,
    keys: &[Key<W>],
    own: &'a mut [u64; MOST],
) -> &'a [u64] {
    if !given.is_empty() {
        return &given[first..first + keys.len()];
    }
    let own = &mut own[..keys.len()];
    store.hash_batch(keys, own);
    own
}

/// Fills an empty table. The checksum is over the values of all keys, asked for afterwards.
fn fill<const W: usize, S: Store<W>>(store: &mut S, keys: &[Key<W>], common: &Common, batched: bool) -> Pass {
    let given: Vec<u64> = match common.keyed {
        true => Vec::new(),
        false => keys.iter().enumerate().map(|(i, key)| store.given(i, key)).collect(),
    };
    let start = Instant::now();
    if batched {
        let mut own = [0; MOST];
        for (i, keys) in keys.chunks(common.batch).enumerate() {
            let first = i * common.batch;
            let hashes = hashes(store, &given, first, keys, &mut own);
            store.find_or_insert(hashes, keys, first as u64 + 1);
        }
    } else {
        for (i, key) in keys.iter().enumerate() {
            let hash = given.get(i).copied().unwrap_or_else(|| store.hash(key));
            store.insert(hash, key, i as u64 + 1);
        }
    }
    let time = start.elapsed();
    let mut checksum = Checksum::new();
    for (i, key) in keys.iter().enumerate() {
        checksum.bytes(store.lookup(store.given(i, key), key).to_le_bytes());
    }
    Pass { time, checksum: checksum.text() }
}

fn serve<const W: usize, S: Store<W>>(asked: &Asked<'_>) -> Result<bool> {
    let keys = read_keys::<W>(asked)?;
    let present = &keys[..asked.present];
    let mut store = S::new(asked.slots)?;
    let start = Instant::now();
    let mut rejected = 0;
    for (i, key) in present.iter().enumerate() {
        rejected += usize::from(!store.insert(store.given(i, key), key, i as u64 + 1));
    }
    let build_seconds = json::significant(start.elapsed().as_secs_f64());
    // A peer that is a Rust program runs in this one.
    let subject = match asked.structure() {
        "hashbrown" => "peer:hashbrown",
        "bound-1-line" => "bound:1-line",
        "bound-2-lines" => "bound:2-lines",
        ours => ours,
    };
    let common = &asked.common;
    let hash = if common.keyed { "computed" } else { "given" };
    json::print(&json!({"v": json::VERSION, "ready": true, "subject": subject,
        "entries": asked.present - rejected, "rejected": rejected, "build_seconds": build_seconds,
        "bytes": store.bytes(),
        "params": {"batch": common.batch, "capacity": store.capacity(), "hash": hash,
            "pages": table_pages(store.bytes(), size_of_val(&keys[..]))}}))?;
    let mut queries: Option<Queries<W>> = None;
    for line in crate::files::lines(std::io::stdin().lock()) {
        let line = line.context("standard input")?;
        let name = line.strip_prefix("run ").unwrap_or(&line);
        let case = match name {
            "hit" => Some(Case::Hit),
            "miss" => Some(Case::Miss),
            "mixed" => Some(Case::Mixed),
            "hit-single" => Some(Case::HitSingle),
            "hit-dependent" => Some(Case::HitDependent),
            "insert" | "find-or-insert" => None,
            "quit" => return Ok(true),
            other => {
                let error = format!("unknown command {other:?}: use run CASE or quit");
                json::print(&json!({"v": json::VERSION, "error": error}))?;
                continue;
            }
        };
        let (pass, lookups) = match case {
            Some(case) => {
                let laid = match queries.take().filter(|laid| laid.case == case) {
                    Some(laid) => laid,
                    None => Queries::lay_out(case, asked, &keys, &store),
                };
                let pass = laid.pass(&store, common.batch);
                queries = Some(laid);
                (pass, asked.queries)
            }
            None => {
                // The old one first: two would not always fit.
                drop(store);
                store = S::new(asked.slots)?;
                (fill(&mut store, present, common, name == "find-or-insert"), asked.present)
            }
        };
        json::print(&json!({"v": json::VERSION, "bench": "flow", "subject": subject, "case": name,
            "lookups": lookups, "seconds": pass.time.as_secs_f64(), "checksum": pass.checksum}))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    static ARGS: RunnerArgs =
        RunnerArgs { runner: true, keys: None, structure: None, present: None, slots: None, queries: None };

    fn asked(keys: &Path, keyed: bool) -> Asked<'_> {
        let common = Common { key_bytes: 36, batch: 32, seed: 3, keyed };
        Asked { args: &ARGS, common, keys, present: 100, slots: 256, queries: BLOCK }
    }

    #[test]
    fn every_case_answers_by_the_number_of_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        let bytes: Vec<u8> = (0..150 * 36_u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        std::fs::write(&file, &bytes).unwrap();
        for keyed in [true, false] {
            let asked = asked(&file, keyed);
            let keys = read_keys::<5>(&asked).unwrap();
            assert_eq!(keys[149].to_bytes::<36>(), bytes[149 * 36..]);
            let mut store = Map::new(256).unwrap();
            let mut sums = Vec::new();
            for batched in [false, true] {
                sums.push(fill(&mut store, &keys[..100], &asked.common, batched).checksum);
            }
            assert_eq!(sums[0], sums[1]);
            let sum = |case| Queries::lay_out(case, &asked, &keys, &store).pass(&store, 32).checksum;
            assert_eq!(sum(Case::Hit), sum(Case::HitDependent));
            assert_eq!(sum(Case::Hit), sum(Case::HitSingle));
            let mut none = Checksum::new();
            none.bytes([0; BLOCK * 8]);
            assert_eq!(sum(Case::Miss), none.text());
            assert_ne!(sum(Case::Mixed), sum(Case::Hit));
        }
        let whole = Asked { present: 150, ..asked(&file, true) };
        assert!(read_keys::<5>(&whole).unwrap_err().is::<crate::Usage>());
    }

    /// Checksums of all cases: of a table that is filled key by key, and once more in batches.
    fn sums<S: Store<5>>(asked: &Asked<'_>, keys: &[Key<5>]) -> Vec<String> {
        let mut all = Vec::new();
        for batched in [false, true] {
            let mut store = S::new(asked.slots).unwrap();
            all.push(fill(&mut store, &keys[..asked.present], &asked.common, batched).checksum);
            for case in [Case::Hit, Case::Miss, Case::Mixed, Case::HitSingle, Case::HitDependent] {
                all.push(Queries::lay_out(case, asked, keys, &store).pass(&store, 32).checksum);
            }
        }
        all
    }

    #[test]
    fn bounds_answer_as_tables_do() {
        // More absent ones than there are slots.
        let mut random = Random::new(9);
        let keys: Vec<Key<5>> = (0..400).map(|_| Key(std::array::from_fn(|_| random.bits()))).collect();
        let asked = asked(Path::new(""), false);
        let right = sums::<Map<5>>(&asked, &keys);
        assert_eq!(sums::<Bound<5, 1>>(&asked, &keys), right);
        assert_eq!(sums::<Bound<5, 2>>(&asked, &keys), right);
    }
}
