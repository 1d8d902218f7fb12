//! `tidemill sim kv`: caches in front of a key-value store, by request logs and workload models; and the design exploration of
//! Tokusashi's thesis (2019, 3.5.4 and 3.6) anew. What is simulated is `tidemill_cachesim`.
//!
//! Every option that takes a list multiplies the configurations; they run on all cores ([`sweep`]). The figures are in [`figures`].

mod figures;
mod sweep;

use super::study::{self, parse_count, parse_model};
use crate::usage;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use tidemill_cachesim::Policy;
use tidemill_cachesim::log::Format;
use tidemill_cachesim::model::Model;
use tidemill_cachesim::run::{HashName, Ways};
use tidemill_cachesim::slab::Chunks;
use tidemill_cachesim::tiers::{Inclusion, Write};

/// A type of Table 3.6, and its chunks.
type SlabType = (&'static str, Chunks);

/// Arguments of `sim kv`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidemill sim kv --log web07.trace.xz --policy lru,sieve,s3fifo --entries 100,1000,5000\n  \
    tidemill sim kv --model sys --ways 8 --entries 420k --l2 1680k --inclusion non-inclusive --write back\n  \
    tidemill sim kv --model usr,sys,app,etc,var --ways 1,2,4,8,full --entries 2^17,2^18,2^19 --resume sweep.jsonl --json\n  \
    tidemill sim kv --model app --slab A,B,C,D,E --warm 50\n  tidemill sim kv --figure list\n  tidemill sim kv --figure tok-3.10 --plot tok-3.10.svg"
)]
pub(crate) struct Kv {
    /// A figure to make; `list` prints the names and what they show
    #[arg(long, value_name = "NAME", conflicts_with_all = ["logs", "models", "policies", "ways", "entries", "slabs", "l0", "l2", "resume", "warm"])]
    figure: Option<String>,
    /// A request log, plain or compressed; repeat it for several
    #[arg(long = "log", value_name = "FILE")]
    logs: Vec<PathBuf>,
    /// How the logs are written: oraclegeneral, csv (Twitter's), int32 (cache2k's) [default: as their names tell]
    #[arg(long, value_name = "FORMAT", requires = "logs")]
    format: Option<Format>,
    /// Workload models: usr, sys, app, etc, var, ycsb-a, ycsb-b, ycsb-c, ycsb-f; what of them is assumed is in crates/cachesim/src/model/mod.rs
    #[arg(long = "model", value_name = "NAMES", value_delimiter = ',', value_parser = parse_model)]
    models: Vec<Model>,
    /// Keys of the models, instead of their own numbers
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "figure")]
    keys: Option<usize>,
    /// The exponent of Zipf's law, instead of the models' own
    #[arg(long, value_name = "X", conflicts_with = "figure")]
    exponent: Option<f64>,
    /// Requests of a model, and at most of a log [default: 8M of a model, all of a log]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    requests: Option<usize>,
    /// Percent of the requests that come first and are not counted
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    warm: u8,
    /// Eviction: fifo, lru, clock, sieve, s3fifo, random
    #[arg(long = "policy", value_name = "NAMES", value_delimiter = ',', default_value = "lru")]
    policies: Vec<Policy>,
    /// Places that a key may lie in: 1 to 16, or full
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "full")]
    ways: Vec<Ways>,
    /// Entries of the cache (of L1): numbers, 2^N, or with k (1024) or M (1024 k) behind them
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_count, default_value = "2^16")]
    entries: Vec<usize>,
    /// Instead of entries the chunks of 64 bytes to 2 KB of a type of Table 3.6: A to E; the policy, lru or fifo, goes by chunks of a size
    #[arg(long = "slab", value_name = "LIST", value_delimiter = ',', value_parser = parse_slab, conflicts_with_all = ["ways", "entries", "hash", "l0", "l2"])]
    slabs: Vec<SlabType>,
    /// The hash that names a key's set: crc32, lookup3
    #[arg(long, value_name = "NAME", default_value = "crc32")]
    hash: HashName,
    /// Entries of an L0 before L1: direct-mapped, write-through; the paper's has 1024
    #[arg(long, value_name = "N", value_parser = parse_count)]
    l0: Option<usize>,
    /// Entries of an L2 behind L1: LRU, fully associative
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_count)]
    l2: Vec<usize>,
    /// Whether L2 holds all that L1 holds, or nothing of it: inclusive, non-inclusive
    #[arg(long, value_name = "HOW", default_value = "inclusive", value_parser = parse_inclusion)]
    inclusion: Inclusion,
    /// When a set crosses from L1 to L2: through, back
    #[arg(long, value_name = "WHEN", default_value = "through", value_parser = parse_write)]
    write: Write,
    /// Of models and of what is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep what is done in this file, a line for each configuration, and do not do again what it has
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Also draw the figure
    #[arg(long, value_name = "FILE.svg", requires = "figure")]
    plot: Option<PathBuf>,
}

pub(super) fn run(args: &Kv) -> Result<bool> {
    let Some(name) = &args.figure else {
        if args.logs.is_empty() && args.models.is_empty() {
            return Err(usage("sim kv: give --log FILE, --model NAMES or --figure NAME"));
        }
        return sweep::run(args);
    };
    study::show(figures::FIGURES, name, args, args.json, args.plot.as_deref())
}

fn parse_slab(text: &str) -> Result<SlabType, String> {
    let of = Chunks::TYPES.into_iter().find(|(name, _)| *name == text);
    of.ok_or_else(|| format!("{text}: no such type of slab: use A to E"))
}

fn parse_inclusion(text: &str) -> Result<Inclusion, String> {
    match text {
        "inclusive" => Ok(Inclusion::Inclusive),
        "non-inclusive" => Ok(Inclusion::NonInclusive),
        _ => Err("use inclusive or non-inclusive".into()),
    }
}

fn parse_write(text: &str) -> Result<Write, String> {
    match text {
        "through" => Ok(Write::Through),
        "back" => Ok(Write::Back),
        _ => Err("use through or back".into()),
    }
}
