//! Loads the real tables; shared by `real_data.rs` and the example.
#![allow(dead_code)]

use std::io::Read;
use std::path::{Path, PathBuf};
use tidemill_lpm::{Address, Label, Prefix};

/// The folder of the real data; `None`, with a word on why, if there is none.
pub(crate) fn data(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TIDEMILL_DATA").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    folder
}

/// The text of a zstd file.
pub(crate) fn text(path: &Path) -> String {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(zstd::Decoder::new)
        .and_then(|mut decoder| decoder.read_to_string(&mut text));
    if let Err(error) = read {
        panic!("{}: {error}", path.display());
    }
    text
}

/// A table of lines `prefix TAB label`; a line without a label gets `1 + line % 97`.
pub(crate) fn table<A: Address>(path: &Path) -> Vec<(Prefix<A>, Label)> {
    let parse = |(line, text): (usize, &str)| {
        let (prefix, label) = text.split_once('\t').unwrap_or((text, ""));
        let prefix = prefix.parse().unwrap_or_else(|e| panic!("{}:{}: {e}", path.display(), line + 1));
        (prefix, Label(label.parse().unwrap_or(1 + line as u32 % 97)))
    };
    text(path).lines().enumerate().map(parse).collect()
}
