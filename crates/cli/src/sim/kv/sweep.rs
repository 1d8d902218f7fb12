//! Configurations by the product of lists, on all cores; what is done is kept in a file, line by line, and not done again.
//!
//! A line is one JSON object: what was run (`config`), and what came of it. It is written whole, with one call; a process that is killed while
//! it writes leaves a line without its end, which the next one takes away. A whole line that cannot be read is an error, and so is an end that is none of ours.

use super::{Kv, SlabType};
use crate::bench::report::print_grid;
use crate::json::{self, significant};
use crate::progress::Progress;
use crate::sim::study::{in_parallel, threads};
use crate::usage;
use anyhow::{Context, Result, anyhow};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tidemill_cachesim::model::Model;
use tidemill_cachesim::policy::Policy;
use tidemill_cachesim::run::{Counts, Run, Ways};
use tidemill_cachesim::slab::{Slab, SlabPolicy};
use tidemill_cachesim::tiers::{Inclusion, Tiers, TiersConfig, Write};
use tidemill_cachesim::{Log, log};

/// How each line begins: names are in order, and this is the first configuration's.
const START: &[u8] = b"{\"config\":{\"entries\":";

/// Requests of a model.
pub(super) const REQUESTS: usize = 8 << 20;

/// Where requests come from.
enum Source<'a> {
    Log(&'a PathBuf),
    Model(Model),
}

/// One configuration.
#[derive(Clone, Copy)]
enum Case {
    /// Without L0 and L2 it is a single cache.
    Entries { l1: Run, l2: Option<usize> },
    /// Chunks.
    Slab { of: SlabType, policy: SlabPolicy },
}

pub(super) fn run(args: &Kv) -> Result<bool> {
    let cases = cases(args)?;
    let mut sources: Vec<Source<'_>> = args.logs.iter().map(Source::Log).collect();
    for model in &args.models {
        let mut model = *model;
        model.keys = args.keys.unwrap_or(model.keys);
        model.exponent = args.exponent.unwrap_or(model.exponent);
        if !(0.0..=10.0).contains(&model.exponent) {
            return Err(usage(format!("--exponent {}: give 0 to 10", model.exponent)));
        }
        sources.push(Source::Model(model));
    }
    let kept = args.resume.as_deref().map(Kept::open).transpose()?;
    let progress = Progress::new("sim kv", (sources.len() * cases.len()) as u64);
    let sources: Vec<Shared<'_>> =
        sources.into_iter().map(|source| Shared::new(source, cases.len())).collect();
    let jobs: Vec<(&Shared<'_>, Case)> =
        sources.iter().flat_map(|source| cases.iter().map(move |case| (source, *case))).collect();
    let one = |source: &Shared<'_>, case: &Case| -> Result<Value> {
        let read = source.read(args, &progress)?;
        let (log, facts) = &*read;
        let config = config(args, facts, case);
        if let Some(line) = kept.as_ref().and_then(|kept| kept.done.get(&config.to_string())) {
            return Ok(line.clone());
        }
        let line = simulate(args, log, case, config)?;
        kept.iter().try_for_each(|kept| kept.add(&line))?;
        Ok(line)
    };
    let has_failed = AtomicBool::new(false);
    let lines = in_parallel(threads(args.jobs), &jobs, |&(source, case)| {
        // Where one has failed no other is begun.
        let line = (!has_failed.load(Ordering::Relaxed)).then(|| one(source, &case));
        if matches!(line, Some(Err(_))) {
            has_failed.store(true, Ordering::Relaxed);
        }
        source.is_over();
        progress.add(1);
        line
    });
    let rows = lines.into_iter().flatten().collect::<Result<Vec<Value>>>()?;
    drop(progress);
    if args.json {
        rows.iter().try_for_each(json::print)?;
    } else {
        print(&rows);
    }
    Ok(true)
}

/// All of them, each possible.
fn cases(args: &Kv) -> Result<Vec<Case>> {
    let l2s: Vec<Option<usize>> =
        if args.l2.is_empty() { vec![None] } else { args.l2.iter().map(|&l2| Some(l2)).collect() };
    let mut cases = Vec::new();
    for &policy in &args.policies {
        if !args.slabs.is_empty() {
            let policy = match policy {
                Policy::Lru => SlabPolicy::Lru,
                Policy::Fifo => SlabPolicy::Fifo,
                other => return Err(usage(format!("--policy {other}: chunks go by lru or fifo"))),
            };
            cases.extend(args.slabs.iter().map(|&of| Case::Slab { of, policy }));
            continue;
        }
        for &ways in &args.ways {
            for &capacity in &args.entries {
                let l1 = Run { policy, ways, capacity, hash: args.hash, seed: args.seed };
                // What no log can change is wrong usage: it is found before one is read.
                l1.check().map_err(|error| usage(format!("--ways {ways}: {error}")))?;
                cases.extend(l2s.iter().map(|&l2| Case::Entries { l1, l2 }));
            }
        }
    }
    Ok(cases)
}

impl Source<'_> {
    fn name(&self) -> String {
        match self {
            Source::Log(path) => path.display().to_string(),
            Source::Model(model) => model.name.to_owned(),
        }
    }

    /// The requests, and what tells them from others.
    fn log(&self, args: &Kv) -> Result<(Log, Map<String, Value>)> {
        let mut facts = Map::new();
        facts.insert("source".into(), self.name().into());
        let log = match self {
            Source::Log(path) => {
                let log = log::load(path, args.format, args.requests.unwrap_or(usize::MAX))?;
                facts.insert("log".into(), format!("{:08x}", checksum(&log)).into());
                log
            }
            Source::Model(model) => {
                facts.insert("exponent".into(), model.exponent.into());
                let log = model.log(args.requests.unwrap_or(REQUESTS), args.seed);
                log.ok_or_else(|| anyhow!("{}: the model cannot be made", model.name))?
            }
        };
        facts.insert("requests".into(), log.requests().len().into());
        facts.insert("keys".into(), log.keys().len().into());
        Ok((log, facts))
    }
}

/// A source whose cases may be worked on by several threads.
struct Shared<'a> {
    source: Source<'a>,
    /// Its requests and facts, from the first of its cases to the last: no more sources than threads are held.
    read: Mutex<Option<Arc<Read>>>,
    /// Cases that are not over.
    left: AtomicUsize,
}

type Read = (Log, Map<String, Value>);

impl<'a> Shared<'a> {
    fn new(source: Source<'a>, cases: usize) -> Self {
        Shared { source, read: Mutex::new(None), left: AtomicUsize::new(cases) }
    }

    /// Who comes first reads them, and the others wait.
    fn read(&self, args: &Kv, progress: &Progress) -> Result<Arc<Read>> {
        let mut held = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = &*held {
            return Ok(read.clone());
        }
        let name = self.source.name();
        progress.message(format!("{name}: reading"));
        let read = Arc::new(self.source.log(args)?);
        progress.message(name);
        *held = Some(read.clone());
        Ok(read)
    }

    /// One of its cases is.
    fn is_over(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Of all that a simulation sees of a log: another file may come under its name.
fn checksum(log: &Log) -> u32 {
    let requests = log.requests().iter();
    let requests = requests.map(|request| [request.key, request.value_bytes(), request.op() as u32]);
    let keys = log.keys().iter().map(|key| [key.crc32, key.lookup3, key.key_bytes]);
    requests
        .chain(keys)
        .fold(0, |sum, words| crc32c::crc32c_append(sum, words.map(u32::to_le_bytes).as_flattened()))
}

fn config(args: &Kv, facts: &Map<String, Value>, case: &Case) -> Value {
    let mut config = facts.clone();
    config.insert("seed".into(), args.seed.into());
    config.insert("warm_percent".into(), args.warm.into());
    let (l1, l2) = match *case {
        Case::Entries { l1, l2 } => (l1, l2),
        Case::Slab { of: (name, chunks), policy } => {
            let policy = if policy == SlabPolicy::Lru { Policy::Lru } else { Policy::Fifo };
            config.insert("policy".into(), policy.name().into());
            config.insert("entries".into(), chunks.count().into());
            config.insert("slab".into(), name.into());
            return Value::Object(config);
        }
    };
    config.insert("policy".into(), l1.policy.name().into());
    config.insert("ways".into(), l1.ways.to_string().into());
    config.insert("entries".into(), l1.capacity.into());
    config.insert("hash".into(), l1.hash.name().into());
    if args.l0.is_some() || l2.is_some() {
        config.insert("l0".into(), args.l0.into());
        config.insert("l2".into(), l2.into());
        config.insert("inclusive".into(), (args.inclusion == Inclusion::Inclusive).into());
        config.insert("write_back".into(), (args.write == Write::Back).into());
    }
    Value::Object(config)
}

fn simulate(args: &Kv, log: &Log, case: &Case, config: Value) -> Result<Value> {
    let requests = log.requests().len();
    let warm = (requests as u128 * u128::from(args.warm) / 100) as usize;
    let mut line = json!({ "v": json::VERSION, "sim": "kv", "config": config });
    let start = Instant::now();
    let results = match *case {
        Case::Entries { l1, l2 } if args.l0.is_some() || l2.is_some() => {
            let run = |ways, capacity| Run { policy: Policy::Lru, ways, capacity, ..l1 };
            let tiers = TiersConfig {
                l0: args.l0.map(|l0| run(Ways::Sets(1), l0)),
                l1,
                l2: l2.map(|l2| run(Ways::Full, l2)),
                inclusion: args.inclusion,
                write: args.write,
            };
            let counts = Tiers::new(log, tiers)?.run(warm);
            json!({
                "gets": counts.gets, "l0_hits": counts.l0_hits, "l1_hits": counts.l1_hits, "l2_hits": counts.l2_hits,
                "miss_ratio": significant(counts.miss_ratio()),
                "wire_bytes": counts.wire_bytes, "dma_bytes": counts.dma_bytes, "written_back": counts.written_back,
            })
        }
        Case::Entries { l1, .. } => single(l1.run(log, warm)?),
        Case::Slab { of: (_, chunks), policy } => {
            single(Slab::new(log.keys().len(), chunks, policy).run(log, warm))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    if let (Value::Object(line), Value::Object(results)) = (&mut line, results) {
        line.extend(results);
        line.insert("mrps".into(), significant(requests as f64 / seconds.max(1e-9) / 1e6).into());
    }
    Ok(line)
}

/// Of one cache.
fn single(counts: Counts) -> Value {
    json!({
        "gets": counts.gets, "hits": counts.hits, "miss_ratio": significant(counts.miss_ratio()),
        "writes": counts.writes, "deletes": counts.deletes, "evictions": counts.evictions,
    })
}

fn print(rows: &[Value]) {
    let mut grid = vec![
        [
            "source",
            "policy",
            "ways",
            "slab",
            "entries",
            "L2",
            "gets",
            "hits",
            "miss %",
            "DMA MB",
            "M requests/s",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for row in rows {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let config = |name: &str| text(&row["config"][name]);
        let hits: u64 =
            ["hits", "l0_hits", "l1_hits", "l2_hits"].iter().filter_map(|hits| row[*hits].as_u64()).sum();
        let number = |name: &str, factor: f64| {
            row[name].as_f64().map_or(String::new(), |n| format!("{:.2}", n * factor))
        };
        grid.push(vec![
            config("source"),
            config("policy"),
            config("ways"),
            config("slab"),
            config("entries"),
            config("l2"),
            text(&row["gets"]),
            hits.to_string(),
            number("miss_ratio", 100.0),
            number("dma_bytes", 1e-6),
            number("mrps", 1.0),
        ]);
    }
    print_grid(&grid);
}

/// Bytes of a file of what is done, at most: hundreds of thousands of lines.
const MOST_KEPT_BYTES: u64 = 256 << 20;

/// The file of what is done.
struct Kept {
    path: PathBuf,
    /// Lines by their configuration.
    done: HashMap<String, Value>,
    file: Mutex<File>,
}

impl Kept {
    fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        // Before it is opened: a pipe would never end, for it is open for writing, too.
        if std::fs::metadata(path).is_ok_and(|data| !data.is_file()) {
            return Err(usage(format!("--resume {name}: is no file: give a file that can be written")));
        }
        let mut file =
            File::options().read(true).append(true).create(true).open(path).map_err(|error| {
                usage(format!("--resume {name}: {error}: give a file that can be written"))
            })?;
        let mut bytes = Vec::new();
        (&mut file).take(MOST_KEPT_BYTES + 1).read_to_end(&mut bytes).with_context(|| name.to_string())?;
        if bytes.len() as u64 > MOST_KEPT_BYTES {
            return Err(usage(format!(
                "--resume {name}: longer than {MOST_KEPT_BYTES} bytes: give the file of a sweep"
            )));
        }
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let (lines, torn) = bytes.split_at(whole);
        let wrong = |i: usize| {
            anyhow!("{name}:{}: not a line of a sweep: give the file of one, or one that is not there", i + 1)
        };
        let mut done = HashMap::new();
        for (i, line) in lines.split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let value: Value = serde_json::from_slice(line).map_err(|_| wrong(i))?;
            if value["v"] != json::VERSION || value["sim"] != "kv" || !value["config"].is_object() {
                return Err(wrong(i));
            }
            done.insert(value["config"].to_string(), value);
        }
        // Somebody else's file may end without a line end: it must not lose its text.
        let seen = torn.len().min(START.len());
        if torn[..seen] != START[..seen] {
            return Err(wrong(lines.iter().filter(|&&byte| byte == b'\n').count()));
        }
        if !torn.is_empty() {
            file.set_len(whole as u64).with_context(|| name.to_string())?;
        }
        Ok(Kept { path: path.to_owned(), done, file: Mutex::new(file) })
    }

    fn add(&self, line: &Value) -> Result<()> {
        let text = format!("{line}\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).with_context(|| self.path.display().to_string())
    }
}
