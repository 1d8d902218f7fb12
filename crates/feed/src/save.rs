//! Tables to files, and the difference between two.

use crate::labels::Labels;
use std::cmp::Ordering;
use std::io::{self, Write};
use std::path::Path;
use tidemill_lpm::{Address, Label, Prefix, Rib};

/// How a table is written. Both forms load again with the same prefixes and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaveFormat {
    /// `prefix<TAB>name`.
    #[default]
    Text,
    /// `prefix,nexthop` under a header of these words; a name with a comma (an AS set) in quotes.
    Csv,
}

/// Writes a table: IPv4 then IPv6, each by address and then length. `.gz`, `.xz` and `.zst` at the end of the name
/// compress. A label without a name is written as its number.
///
/// # Errors
/// As the operating system says, with the file's name.
pub fn save(
    path: &Path,
    v4: &Rib<u32>,
    v6: &Rib<u128>,
    labels: &Labels,
    format: SaveFormat,
) -> io::Result<()> {
    let mut out = tidemill_archive::create(path)?;
    let mut buffered = io::BufWriter::with_capacity(64 << 10, &mut out);
    write(&mut buffered, v4, v6, labels, format)?;
    buffered.flush()?;
    drop(buffered);
    out.finish()
}

/// Writes a table to any writer, as [`save`] does.
///
/// # Errors
/// Those of the writer.
pub fn write(
    out: &mut dyn Write,
    v4: &Rib<u32>,
    v6: &Rib<u128>,
    labels: &Labels,
    format: SaveFormat,
) -> io::Result<()> {
    if format == SaveFormat::Csv {
        out.write_all(b"prefix,nexthop\n")?;
    }
    write_family(out, v4, labels, format)?;
    write_family(out, v6, labels, format)
}

fn write_family<A: Address>(
    out: &mut dyn Write,
    rib: &Rib<A>,
    labels: &Labels,
    format: SaveFormat,
) -> io::Result<()> {
    let separator = if format == SaveFormat::Csv { ',' } else { '\t' };
    for (prefix, label) in rib.iter() {
        let name = match labels.name(label) {
            Some(name) => name.to_string(),
            None => label.0.to_string(),
        };
        match format == SaveFormat::Csv && name.contains(',') {
            true => writeln!(out, "{prefix},\"{name}\"")?,
            false => writeln!(out, "{prefix}{separator}{name}")?,
        }
    }
    Ok(())
}

/// How two tables differ at one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference<A: Address> {
    /// Only the second has it.
    Added(Prefix<A>, Label),
    /// Only the first has it.
    Removed(Prefix<A>, Label),
    /// Both have it, with different labels: the first's, the second's.
    Changed(Prefix<A>, Label, Label),
}

/// The differences from `a` to `b`, by address and then length. Labels of tables with different dictionaries cannot be
/// compared as numbers: `same` says whether a label of `a` and one of `b` mean the same.
pub fn diff<'a, A: Address>(
    a: &'a Rib<A>,
    b: &'a Rib<A>,
    mut same: impl FnMut(Label, Label) -> bool + 'a,
) -> impl Iterator<Item = Difference<A>> + 'a {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((p, _)), Some((q, _))) => p.cmp(q),
            };
            match order {
                Ordering::Less => return left.next().map(|(p, l)| Difference::Removed(p, l)),
                Ordering::Greater => return right.next().map(|(p, l)| Difference::Added(p, l)),
                Ordering::Equal => {
                    let ((p, old), (_, new)) = (left.next()?, right.next()?);
                    if !same(old, new) {
                        return Some(Difference::Changed(p, old, new));
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rib(routes: &[(&str, u32)]) -> Rib<u32> {
        routes.iter().map(|&(p, l)| (p.parse().unwrap(), Label(l))).collect()
    }

    #[test]
    fn diff_finds_added_removed_and_changed() {
        let a = rib(&[("0.0.0.0/0", 1), ("10.0.0.0/8", 1), ("10.0.0.0/16", 2), ("192.0.2.0/24", 3)]);
        let b = rib(&[("0.0.0.0/0", 1), ("10.0.0.0/9", 4), ("10.0.0.0/16", 5), ("203.0.113.0/24", 6)]);
        let found: Vec<_> = diff(&a, &b, |x, y| x == y).collect();
        let p = |text: &str| text.parse().unwrap();
        assert_eq!(
            found,
            [
                Difference::Removed(p("10.0.0.0/8"), Label(1)),
                Difference::Added(p("10.0.0.0/9"), Label(4)),
                Difference::Changed(p("10.0.0.0/16"), Label(2), Label(5)),
                Difference::Removed(p("192.0.2.0/24"), Label(3)),
                Difference::Added(p("203.0.113.0/24"), Label(6)),
            ]
        );
        assert_eq!(diff(&a, &a, |x, y| x == y).count(), 0);
        assert_eq!(diff(&a, &a, |_, _| false).count(), 4);
    }

    #[test]
    fn writing_is_in_canonical_order() {
        let v4 = rib(&[("10.0.0.0/16", 2), ("10.0.0.0/8", 1), ("9.0.0.0/8", 300)]);
        let mut text = Vec::new();
        write(&mut text, &v4, &Rib::new(), &Labels::numbers(2), SaveFormat::Csv).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "prefix,nexthop\n9.0.0.0/8,300\n10.0.0.0/8,1\n10.0.0.0/16,2\n");
    }
}
