//! `fib lookup`: longest match of addresses, by a structure, with the prefix from the RIB and the oracle's word.

use crate::json;
use crate::tables::{AlgorithmArgs, TableArgs, routes};
use crate::usage;
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_feed::{LoadedTable, NextHopName};
use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, Family, Fib, Label, Oracle, Rib};

/// Bytes in a cache line.
const LINE: usize = 64;
/// Bytes in a page.
const PAGE: usize = 4096;

/// Arguments of `fib lookup`.
#[derive(Args)]
#[command(after_help = "Exit status 1 if a structure and the oracle disagree.\n\n\
    Examples:\n  tidemill fib lookup --table rib.zst 192.0.2.1 2001:db8::1\n  \
    tidemill fib lookup --table rib.zst --explain 8.8.8.8\n  \
    cut -f3 flows.txt | tidemill fib lookup --table rib.zst -")]
pub(crate) struct Lookup {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    structures: AlgorithmArgs,
    /// Addresses; `-` reads them from standard input, one per line
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,
    /// Show every memory access of the lookup: its size, whether its address depends on one before, and which cache line it is in,
    /// by the order in which the lookup comes to them
    #[arg(long)]
    explain: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// One answer.
#[derive(Serialize)]
struct Answer {
    v: u8,
    address: String,
    structure: String,
    /// 0: no route.
    label: u32,
    /// What the label stands for in the table's file.
    next_hop: Option<String>,
    /// The matching prefix, from the RIB.
    prefix: Option<String>,
    /// What the oracle says.
    oracle: u32,
    agree: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    accesses: Option<Vec<AccessLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_lines: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<usize>,
}

/// One load of a lookup. Where a structure's arrays lie is the allocator's business; that loads share a line is not.
#[derive(Serialize)]
struct AccessLine {
    /// Cache lines in the order in which the lookup comes to them, from 1 on.
    line: usize,
    /// The first byte in that line.
    byte: usize,
    /// A load may go on into the next line.
    size: usize,
    /// Its address comes from what a load before it found.
    dependent: bool,
}

/// What the scalar lookup loads, and where.
struct Accesses {
    loads: Vec<AccessLine>,
    /// Cache lines, and pages of 4 KiB, that they are in.
    lines: usize,
    pages: usize,
}

/// A family's structures and what they are compared with.
struct Subjects<'a, A: Family> {
    rib: &'a Rib<A>,
    oracle: Oracle<A>,
    fibs: Vec<Arc<dyn Fib<A>>>,
}

impl<'a, A: Family> Subjects<'a, A> {
    /// Of those that a word has chosen, one that cannot hold the table is left out, aloud.
    fn build(rib: &'a Rib<A>, algorithms: &[Algorithm], by_word: bool) -> Result<Self> {
        let mut fibs = Vec::new();
        for algorithm in algorithms {
            match algorithm.writer(rib, &Domain::new()) {
                Ok(writer) => fibs.push(writer.fib()),
                Err(error) if by_word => eprintln!("tidemill: left out {algorithm}: {error}"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Subjects { rib, oracle: Oracle::new(&routes(rib)), fibs })
    }

    fn answers(&self, table: &LoadedTable, key: A, explain: bool) -> Vec<Answer> {
        let oracle = self.oracle.lookup(key);
        let prefix = self.rib.lookup(key).map(|(prefix, _)| prefix.to_string());
        let answer = |fib: &Arc<dyn Fib<A>>| {
            let label = fib.lookup(key);
            let mut in_batch = [Label::NONE];
            fib.lookup_batch(&[key], &mut in_batch);
            let accesses = explain.then(|| accesses(fib.as_ref(), key));
            Answer {
                v: json::VERSION,
                address: key.to_ip().to_string(),
                structure: fib.name(),
                label: label.0,
                next_hop: table.labels.name(label).map(NextHopName::to_string),
                prefix: prefix.clone(),
                oracle: oracle.0,
                agree: label == oracle && in_batch == [oracle],
                cache_lines: accesses.as_ref().map(|accesses| accesses.lines),
                pages: accesses.as_ref().map(|accesses| accesses.pages),
                accesses: accesses.map(|accesses| accesses.loads),
            }
        };
        self.fibs.iter().map(answer).collect()
    }
}

/// What the scalar lookup loads, in order.
fn accesses<A: Family>(fib: &dyn Fib<A>, key: A) -> Accesses {
    let mut recorder = Recorder::with_log();
    fib.lookup_probed(key, &recorder);
    // Lines and pages as they come; a load may lie in two of them.
    let (mut lines, mut pages): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut loads = Vec::new();
    for access in recorder.take() {
        let Access::Read { address, size, dependent } = access else { continue };
        let last = address + size.max(1) - 1;
        for (seen, unit) in [(&mut lines, LINE), (&mut pages, PAGE)] {
            for number in address / unit..=last / unit {
                if !seen.contains(&number) {
                    seen.push(number);
                }
            }
        }
        let line = 1 + lines.iter().position(|&line| line == address / LINE).unwrap_or(0);
        loads.push(AccessLine { line, byte: address % LINE, size, dependent });
    }
    Accesses { loads, lines: lines.len(), pages: pages.len() }
}

pub(super) fn run(args: &Lookup) -> Result<bool> {
    // What was typed is checked before a table is loaded for it.
    let typed: Vec<IpAddr> = (args.addresses.iter().filter(|text| *text != "-"))
        .map(|text| parse(text, "command line"))
        .collect::<Result<_>>()?;
    let table = args.table.load()?;
    let chosen = args.structures.choose(&table)?;
    let both = "auto";
    let v4 = if chosen.v4.is_empty() { vec![Algorithm::parse::<u32>(both)?] } else { chosen.v4 };
    let v6 = if chosen.v6.is_empty() { vec![Algorithm::parse::<u128>(both)?] } else { chosen.v6 };
    let by_word = args.structures.any();
    let (v4, v6) = (Subjects::build(&table.v4, &v4, by_word)?, Subjects::build(&table.v6, &v6, by_word)?);
    let mut all_agree = true;
    let mut answer = |address: IpAddr| -> Result<()> {
        let answers = match address {
            IpAddr::V4(address) => v4.answers(&table, address.into(), args.explain),
            IpAddr::V6(address) => v6.answers(&table, address.into(), args.explain),
        };
        for answer in answers {
            all_agree &= answer.agree;
            if args.json { json::print(&answer)? } else { print(&answer) }
        }
        Ok(())
    };
    let mut typed = typed.into_iter();
    for text in &args.addresses {
        if text != "-" {
            typed.next().map_or(Ok(()), &mut answer)?;
            continue;
        }
        for (number, line) in crate::files::lines(std::io::stdin().lock()).enumerate() {
            let line = line.context("standard input")?;
            if !line.is_empty() {
                answer(parse(&line, &format!("standard input:{}", number + 1))?)?;
            }
        }
    }
    Ok(all_agree)
}

fn parse(text: &str, place: &str) -> Result<IpAddr> {
    text.parse().map_err(|_| usage(format!("{place}: {text:?} is not an IPv4 or IPv6 address")))
}

fn print(answer: &Answer) {
    let Answer { address, label, structure, .. } = answer;
    match (&answer.prefix, *label) {
        (_, 0) => println!("{address}  no route  ({structure})"),
        (prefix, label) => {
            let next_hop = answer.next_hop.clone().unwrap_or_else(|| format!("label {label}"));
            let prefix = prefix.as_deref().unwrap_or("no prefix");
            println!("{address}  {prefix}  next hop {next_hop}  label {label}  ({structure})");
        }
    }
    if !answer.agree {
        println!("  WRONG: the oracle says label {}", answer.oracle);
    }
    let Some(accesses) = &answer.accesses else { return };
    for (i, access) in accesses.iter().enumerate() {
        let AccessLine { line, byte, size, dependent } = access;
        let kind = if *dependent { "dependent" } else { "independent" };
        let bytes = if *size == 1 { "byte" } else { "bytes" };
        println!("  load {}: {size} {bytes}, {kind}, line {line} from byte {byte} on", i + 1);
    }
    let dependent = accesses.iter().filter(|access| access.dependent).count();
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    println!(
        "  {}, {dependent} of them dependent, in {} and {} of 4 KiB",
        count(accesses.len(), "load"),
        count(answer.cache_lines.unwrap_or(0), "cache line"),
        count(answer.pages.unwrap_or(0), "page")
    );
}
