//! `fib convert`: a table as text, CSV, or the bytes of a structure's table image.

use crate::tables::{AlgorithmArgs, Families, TableArgs};
use crate::usage;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};
use tidemill_feed::{LoadedTable, SaveFormat};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, Family, Rib};

/// Arguments of `fib convert`.
#[derive(Args)]
#[command(after_help = "A name that ends in .gz, .xz or .zst is compressed.\n\n\
    Examples:\n  tidemill fib convert --table bview.gz --peer 3333 --to text table.txt.zst\n  \
    tidemill fib convert --table table.txt --to image --algorithm auto table.image")]
pub(crate) struct Convert {
    #[command(flatten)]
    table: TableArgs,
    /// The form to write
    #[arg(long, value_enum)]
    to: Form,
    #[command(flatten)]
    structure: AlgorithmArgs,
    /// The file to write
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// `prefix TAB next hop`
    Text,
    /// `prefix,nexthop` under a header
    Csv,
    /// What lookups read: index-only, checksummed
    Image,
}

pub(super) fn run(args: &Convert) -> Result<bool> {
    let table = args.table.load()?;
    let format = match args.to {
        Form::Text => SaveFormat::Text,
        Form::Csv => SaveFormat::Csv,
        Form::Image => {
            let bytes = image(args, &table)?;
            write(&args.out, &bytes)?;
            eprintln!("tidemill: {}: {} bytes", args.out.display(), bytes.len());
            return Ok(true);
        }
    };
    tidemill_feed::save(&args.out, &table.v4, &table.v6, &table.labels, format)?;
    eprintln!("tidemill: {}: {} prefixes", args.out.display(), table.v4.len() + table.v6.len());
    Ok(true)
}

fn image(args: &Convert, table: &LoadedTable) -> Result<Vec<u8>> {
    let chosen = args.structure.choose(table)?;
    match (Families::of(table), chosen.v4.as_slice(), chosen.v6.as_slice()) {
        (Families { v4: true, v6: false }, [one], _) => of_family(*one, &table.v4),
        (Families { v4: false, v6: true }, _, [one]) => of_family(*one, &table.v6),
        (Families { v4: true, v6: true }, ..) => Err(usage(format!(
            "{}: has IPv4 and IPv6 routes, an image holds one family: give a table of one",
            args.table.name()
        ))),
        _ => Err(usage("--algorithm: an image holds one structure: name one")),
    }
}

/// `auto` is the first of the likely structures that has an image.
fn of_family<A: Family>(algorithm: Algorithm, rib: &Rib<A>) -> Result<Vec<u8>> {
    let algorithms = if algorithm == Algorithm::Auto { A::likely() } else { vec![algorithm] };
    for algorithm in &algorithms {
        if let Some(image) = algorithm.writer(rib, &Domain::new())?.fib().image() {
            return Ok(image);
        }
    }
    let names: Vec<String> = algorithms.iter().map(Algorithm::to_string).collect();
    bail!("{}: has no table image; dxr-* (IPv4) and rangetrie-* (both families) have", names.join(", "))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut out = tidemill_archive::create(path)?;
    out.write_all(bytes).with_context(|| path.display().to_string())?;
    out.finish()?;
    Ok(())
}
