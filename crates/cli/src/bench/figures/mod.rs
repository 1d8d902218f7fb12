//! `bench lpm --figure`: figures and tables of papers, made anew on the user's tables.
//!
//! Each paper has its file or folder here, which lists its figures ([`Figure`]); [`ALL`] joins the lists. A figure is made
//! with what [`measure`] offers and shown by [`crate::bench::drawing`]. What came out on our machines: `bench/figures.md`.

mod cuvpp;
mod fu;
mod measure;
mod zec;

use super::catalogue::{Named, pick};
use super::drawing::Drawing;
use super::lpm::Lpm;
use crate::tables::Families;
use crate::usage;
use anyhow::Result;
use tidemill_feed::LoadedTable;
use tidemill_lpm::{Family, Rib};

/// All papers' figures.
const ALL: &[&[Figure]] = &[zec::FIGURES, fu::FIGURES, cuvpp::FIGURES];

/// A figure or table of a paper.
struct Figure {
    /// As in `--figure`: the paper and the number, `zec-3.13`; a table's has a t behind it.
    name: &'static str,
    /// What it shows.
    title: &'static str,
    /// 4 or 6: the family of the tables.
    family: u8,
    tables: Tables,
    /// What the paper measured, for which the user's table stands in.
    instead_of: &'static str,
    make: fn(&Setting<'_>) -> Result<Drawing>,
}

/// How many tables a figure is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    /// It does without.
    None,
    One,
    /// None: what the paper says of its own is enough.
    OneOrNone,
    /// It compares them.
    Several,
}

/// A table of the user's.
struct Subject {
    /// The file's name without folders.
    name: String,
    table: LoadedTable,
}

/// What a figure is made with.
struct Setting<'a> {
    figure: &'static Figure,
    tables: Vec<Subject>,
    /// Runs, seconds, lookups, batch, seed, threads.
    args: &'a Lpm,
}

impl Named for Figure {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> String {
        let tables = match self.tables {
            Tables::None => "no table",
            Tables::One => "one table",
            Tables::OneOrNone => "one table or none",
            Tables::Several => "several tables",
        };
        format!("{} [IPv{}, {tables}]", self.title, self.family)
    }
}

impl Figure {
    /// The drawing's frame.
    fn drawing(&'static self, setting: &Setting<'_>) -> Drawing {
        let tables: Vec<String> =
            setting.tables.iter().map(|subject| subject.describe(self.family)).collect();
        let table = format!("{}; instead of {}", tables.join(" and "), self.instead_of);
        Drawing {
            figure: self.name,
            title: self.title.to_owned(),
            table: Some(table),
            panels: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Subject {
    /// The name, and how many prefixes and labels.
    fn describe(&self, family: u8) -> String {
        let (prefixes, labels) = match family {
            4 => (self.table.v4.len(), labels(&self.table.v4)),
            _ => (self.table.v6.len(), labels(&self.table.v6)),
        };
        format!("{} ({prefixes} prefixes, {labels} labels)", self.name)
    }
}

/// Distinct labels of a table.
fn labels<A: Family>(rib: &Rib<A>) -> usize {
    let mut labels: Vec<u32> = rib.iter().map(|(_, label)| label.0).collect();
    labels.sort_unstable();
    labels.dedup();
    labels.len()
}

fn figures() -> impl Iterator<Item = &'static Figure> + Clone {
    ALL.iter().copied().flatten()
}

pub(super) fn run(args: &Lpm) -> Result<bool> {
    args.check()?;
    let name = args.figure.as_deref().unwrap_or_default();
    let Some(figure) = pick(figures(), name, args.json)? else { return Ok(true) };
    let files = &args.table.files;
    let family = figure.family;
    let (least, most, wanted) = match figure.tables {
        Tables::None => (0, 0, "no --table".to_owned()),
        Tables::One => (1, 1, format!("one --table with IPv{family} routes")),
        Tables::OneOrNone => (0, 1, format!("one --table with IPv{family} routes, or none")),
        Tables::Several => {
            (1, usize::MAX, format!("--table, once or several times, with IPv{family} routes"))
        }
    };
    if !(least..=most).contains(&files.len()) {
        return Err(usage(format!("--figure {name}: give {wanted}")));
    }
    let mut tables = Vec::new();
    for file in files {
        let table = args.table.load.load(file)?;
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        let families = Families::of(&table);
        if !(if figure.family == 4 { families.v4 && !table.v4.is_empty() } else { families.v6 }) {
            return Err(usage(format!(
                "{}: no IPv{} routes: give a table that has some",
                file.display(),
                figure.family
            )));
        }
        tables.push(Subject { name, table });
    }
    let drawing = (figure.make)(&Setting { figure, tables, args })?;
    drawing.show(args.json, args.plot.as_deref())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::catalogue::list;
    use std::collections::BTreeSet;

    #[test]
    fn every_figure_has_a_name_of_its_own_a_title_and_a_family() {
        let names: BTreeSet<&str> = figures().map(|figure| figure.name).collect();
        assert_eq!(names.len(), figures().count());
        for Figure { name, title, family, tables, instead_of, .. } in figures() {
            assert!(title.len() > 10 && [4, 6].contains(family), "{name}");
            assert_eq!(
                instead_of.is_empty(),
                *tables == Tables::None,
                "{name}: stands for something or needs nothing"
            );
            let (paper, number) = name.split_once('-').unwrap();
            assert!(!paper.is_empty() && number.starts_with(|first: char| first.is_alphanumeric()), "{name}");
            assert!(list(figures()).contains(&format!("{name:<10} {title}")));
        }
    }
}
