//! `fib convert`: a table as text or CSV.

use crate::tables::TableArgs;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use tidemill_feed::SaveFormat;

/// Arguments of `fib convert`.
#[derive(Args)]
#[command(after_help = "A name that ends in .gz, .xz or .zst is compressed.\n\n\
    Examples:\n  tidemill fib convert --table bview.gz --peer 3333 --to text table.txt.zst\n  \
    tidemill fib convert --table table.txt --to csv table.csv")]
pub(crate) struct Convert {
    #[command(flatten)]
    table: TableArgs,
    /// The form to write
    #[arg(long, value_enum)]
    to: Form,
    /// The file to write
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// `prefix TAB next hop`
    Text,
    /// `prefix,nexthop` under a header
    Csv,
}

pub(super) fn run(args: &Convert) -> Result<bool> {
    let table = args.table.load()?;
    let format = match args.to {
        Form::Text => SaveFormat::Text,
        Form::Csv => SaveFormat::Csv,
    };
    tidemill_feed::save(&args.out, &table.v4, &table.v6, &table.labels, format)?;
    eprintln!("tidemill: {}: {} prefixes", args.out.display(), table.v4.len() + table.v6.len());
    Ok(true)
}
