//! Plain tables for a terminal: a header, texts to the left, numbers to the right.

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use tidemill_nf::plain::is_plain;

/// A table that is being filled.
pub(crate) struct Grid(Table);

impl Grid {
    /// Column names; those that begin with `>` hold numbers.
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(header.iter().map(|name| name.trim_start_matches('>')));
        for (column, name) in table.column_iter_mut().zip(header) {
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Grid(table)
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells.map(|cell| plain(&cell)));
    }

    /// Prints it, or `nothing` if it has no rows.
    pub(crate) fn print(&self, nothing: &str) {
        if self.0.is_empty() {
            eprintln!("tidemill: {nothing}");
            return;
        }
        for line in self.0.lines() {
            println!("{}", line.trim_end());
        }
    }
}

/// A text for a terminal, whoever has made it up: clients choose keys, peers their words. What would move the cursor, and more, is a question mark.
pub(super) fn plain(text: &str) -> String {
    text.replace(|c: char| !is_plain(c) && c != '\n', "?")
}

/// A text that may be missing.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

/// A time span for people: `12 s`, `3:04`, `5:06:07`, `8 d 9:10:11`.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes, seconds) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes}:{seconds:02}"),
        (0, ..) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days} d {hours}:{minutes:02}:{seconds:02}"),
    }
}

/// The same with a unit: `999 b/s`, `1.23 kb/s`.
pub(super) fn si_unit(value: f64, unit: &str) -> String {
    let number = si(value);
    if number.contains(' ') { number + unit } else { format!("{number} {unit}") }
}

/// A number for people, with three digits and a prefix: `999`, `1.23 k`, `45.6 M`.
pub(super) fn si(value: f64) -> String {
    let mut value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    if value < 999.5 {
        return format!("{value:.0}");
    }
    for prefix in ["k", "M", "G", "T"] {
        value /= 1000.0;
        let digits = if value < 9.995 {
            2
        } else if value < 99.95 {
            1
        } else {
            0
        };
        if value < 999.5 {
            return format!("{value:.digits$} {prefix}");
        }
    }
    format!("{:.2} P", value / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::{plain, si, si_unit, span};

    #[test]
    fn nobody_writes_to_a_terminal_but_texts() {
        assert_eq!(plain("key\u{1b}]0;title\u{7}\u{9b}2J\r"), "key?]0;title??2J?");
        assert_eq!(plain("key\u{202e}yek\u{2028}\u{feff}"), "key?yek??");
        assert_eq!(plain("na\u{ef}ve \u{2713}\ntwo"), "na\u{ef}ve \u{2713}\ntwo");
    }

    #[test]
    fn numbers_keep_three_digits() {
        let table = [
            (0.0, "0"),
            (999.4, "999"),
            (999.5, "1.00 k"),
            (12_345.0, "12.3 k"),
            (999_499.0, "999 k"),
            (1e6, "1.00 M"),
            (6.34e9, "6.34 G"),
            (3e15, "3.00 P"),
            (-1.0, "0"),
            (f64::NAN, "0"),
        ];
        for (value, text) in table {
            assert_eq!(si(value), text, "{value}");
        }
        assert_eq!((si_unit(12.0, "b/s"), si_unit(12e6, "b/s")), ("12 b/s".into(), "12.0 Mb/s".into()));
    }

    #[test]
    fn spans_are_as_long_as_they_need() {
        for (seconds, text) in
            [(0.9, "0 s"), (59.0, "59 s"), (61.0, "1:01"), (3600.0, "1:00:00"), (90_061.0, "1 d 1:01:01")]
        {
            assert_eq!(span(seconds), text);
        }
    }
}
