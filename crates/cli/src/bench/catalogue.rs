//! `--figure NAME`: figures by their names, and `list`.

use crate::{json, usage};
use anyhow::Result;
use std::fmt::Write;

/// What has a name on the command line.
pub(crate) trait Named {
    /// The paper and the number, `zec-3.13`; a table's has a t behind it.
    fn name(&self) -> &'static str;

    /// What it shows.
    fn title(&self) -> String;
}

/// The figure of a name. None if the name is `list`, and the list has been printed: as text, or one object per figure.
pub(crate) fn pick<'a, F: Named>(
    figures: impl Iterator<Item = &'a F> + Clone,
    name: &str,
    as_json: bool,
) -> Result<Option<&'a F>> {
    if name == "list" {
        if as_json {
            for figure in figures {
                let (name, title) = (figure.name(), figure.title());
                json::print(&serde_json::json!({"v": json::VERSION, "figure": name, "title": title}))?;
            }
        } else {
            usage::say(format_args!("{}", list(figures)));
        }
        return Ok(None);
    }
    if let Some(figure) = figures.clone().find(|figure| figure.name() == name) {
        return Ok(Some(figure));
    }
    let names: Vec<&str> = figures.map(Named::name).collect();
    Err(usage(format!(
        "--figure {name}: use list, which says what they show, or one of {}",
        names.join(", ")
    )))
}

/// The figures with what they show.
pub(super) fn list<'a, F: Named + 'a>(figures: impl Iterator<Item = &'a F>) -> String {
    let mut text = String::new();
    for figure in figures {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<10} {}", figure.name(), figure.title());
    }
    text
}
