//! `classify verify`: rule sets and header traces, read strictly; the oracle against the first matches that the trace brings, every
//! structure and the caches against the oracle, also while rules come and go.

use super::check::{Checker, Set, Tally};
use crate::json::{self, Verified};
use crate::tables::check_input;
use crate::usage::{Usage, complain, one_line, to_the_end, usage};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidemill_classify::text::{Header, TextRule, read_headers_of, read_rules};
use tidemill_classify::{Grouping, suite};

/// Arguments of `classify verify`.
#[derive(Args)]
#[command(
    after_help = "A rule: `@192.0.2.0/24 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF [flags/mask]`, the first line wins. A header: `src dst sport dport proto \
    [line of the first match on these five, from 0; -1: none]`.\nEnds with {\"v\":1,\"checked\":N,\"wrong\":0,\"seconds\":S}; exit status 1 if an answer is wrong, 2 if a file is (of --data the other sets are verified \
    all the same).\n\n\
    Examples:\n  tidemill classify verify --rules acl1.rules.zst --trace acl1.trace.zst --json\n  tidemill classify verify --data rules/"
)]
pub(crate) struct Verify {
    /// Rule set in ClassBench's format; plain, gz, xz or zst
    #[arg(long, value_name = "FILE", required_unless_present = "data", conflicts_with = "data")]
    rules: Option<PathBuf>,
    /// Header trace [default: headers made from the rules]
    #[arg(long, value_name = "FILE", requires = "rules")]
    trace: Option<PathBuf>,
    /// Every NAME.rules[.zst|.gz|.xz] of a folder and those in it, with NAME.trace where there is one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Only this structure; repeat it for several
    #[arg(long = "structure", value_name = "NAME", value_enum)]
    structures: Vec<Structure>,
    /// Changes of rules, a hundredth of the set each, between which caches and structures are asked
    #[arg(long, value_name = "N", default_value_t = 5)]
    changes: usize,
    /// Headers to make where there is no trace
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    headers: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// A structure by name.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Structure {
    TupleSpace,
    TupleMerge,
    /// The one that is chosen by the set
    Auto,
    /// A cross-product of addresses, of sets that are not too large for one
    Cross,
}

pub(super) fn run(args: &Verify) -> Result<bool> {
    to_the_end();
    let start = Instant::now();
    let (mut tally, mut unread) = (Tally::default(), 0);
    let files = args.files()?;
    for (rules, trace) in &files {
        match args.one(rules, trace.as_deref(), &mut tally) {
            // One of a folder's files is no reason to leave the others out.
            Err(error) if args.data.is_some() && error.is::<Usage>() => {
                complain(format_args!("tidemill: {}", one_line(&error)));
                unread += 1;
            }
            done => done?,
        }
    }
    let verified = Verified {
        v: json::VERSION,
        checked: tally.checked,
        wrong: tally.wrong,
        seconds: json::significant(start.elapsed().as_secs_f64()),
    };
    if args.json {
        json::print(&verified)?;
    } else {
        println!("{} checked, {} wrong, {:.1} s", verified.checked, verified.wrong, verified.seconds);
    }
    if unread > 0 {
        let all = files.len();
        let what = format!("{unread} of {all} rule sets could not be read; the others were verified");
        // A wrong answer is worse, and has the status.
        if tally.wrong == 0 {
            return Err(usage(what));
        }
        complain(format_args!("tidemill: {what}"));
    }
    Ok(tally.wrong == 0)
}

/// A rule set and its trace.
pub(crate) type Pair = (PathBuf, Option<PathBuf>);

impl Verify {
    fn files(&self) -> Result<Vec<Pair>> {
        if let Some(rules) = &self.rules {
            return Ok(vec![(rules.clone(), self.trace.clone())]);
        }
        let Some(folder) = &self.data else { return Err(usage("give --rules FILE or --data DIR")) };
        let mut pairs = Vec::new();
        collect(folder, &mut pairs)?;
        pairs.sort();
        if pairs.is_empty() {
            let folder = folder.display();
            return Err(usage(format!("{folder}: has no file NAME.rules, NAME.rules.zst, .gz or .xz")));
        }
        Ok(pairs)
    }

    fn one(&self, rules_file: &Path, trace: Option<&Path>, tally: &mut Tally) -> Result<()> {
        let rules = read(rules_file, read_rules)?;
        if rules.is_empty() {
            return Err(usage(format!("{}: has no rules", rules_file.display())));
        }
        let name = rules_file.file_name().unwrap_or(rules_file.as_os_str()).to_string_lossy();
        let name = name.split(".rules").next().unwrap_or(&name).to_owned();
        let headers = match trace {
            Some(file) => {
                let headers = read(file, |reader| read_headers_of(rules.len(), reader))?;
                if headers.is_empty() {
                    return Err(usage(format!("{}: has no headers", file.display())));
                }
                headers
            }
            None => self.made(&rules),
        };
        let set = Set::new(&name, &rules, headers, self.seed);
        let groupings = self.groupings(&set);
        for part in set.parts() {
            let mut checker = Checker::new(&part, self.json, tally);
            checker.oracle()?;
            for &grouping in &groupings {
                checker.structure(grouping)?;
                checker.masks(grouping)?;
                checker.changes(grouping, self.changes)?;
            }
            let asked = self.structures.contains(&Structure::Cross);
            if (asked || self.structures.is_empty())
                && let Some(why) = checker.cross()?
                && asked
            {
                complain(format_args!("tidemill: {name}: no cross-product is made: {why}"));
            }
        }
        Ok(())
    }

    fn groupings(&self, set: &Set) -> Vec<Grouping> {
        if self.structures.is_empty() {
            return Grouping::ALL.to_vec();
        }
        let of = |structure: &Structure| match structure {
            Structure::TupleSpace => Some(Grouping::Exact),
            Structure::TupleMerge => Some(Grouping::Merged),
            Structure::Auto => Some(set.chosen()),
            Structure::Cross => None,
        };
        let mut groupings: Vec<Grouping> = self.structures.iter().filter_map(of).collect();
        groupings.dedup();
        groupings
    }

    /// Headers that rules match or nearly match.
    fn made(&self, rules: &[TextRule]) -> Vec<Header> {
        let rules = tidemill_classify::text::in_order(rules.iter().map(|rule| rule.five_tuple));
        let mut rng = suite::Rng::new(self.seed);
        let header = |_| Header { key: suite::key(&rules, &mut rng), first_match: None };
        (0..self.headers).map(header).collect()
    }
}

/// Reads a file, and puts its name before what is wrong with it.
pub(crate) fn read<T>(
    file: &Path,
    parse: impl FnOnce(Box<dyn std::io::BufRead + Send>) -> Result<T, tidemill_classify::text::TextError>,
) -> Result<T> {
    check_input(file)?;
    let reader = tidemill_archive::open(file).map_err(usage)?;
    parse(reader).map_err(|error| usage(format!("{}: {error}", file.display())))
}

/// Rule sets of a folder, with their traces.
pub(crate) fn collect(folder: &Path, pairs: &mut Vec<Pair>) -> Result<()> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| usage(format!("{}: {error}: give a folder that can be read", folder.display())))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pairs)?;
            continue;
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some((stem, ending)) = name.split_once(".rules") else { continue };
        if ["", ".zst", ".gz", ".xz"].contains(&ending) {
            let endings = ["", ".zst", ".gz", ".xz"].into_iter();
            let mut traces = endings.map(|ending| path.with_file_name(format!("{stem}.trace{ending}")));
            let trace = traces.find(|trace| trace.is_file());
            pairs.push((path, trace));
        }
    }
    Ok(())
}
