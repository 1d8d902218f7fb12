//! `--json`: one object per line, with stable names and `"v":1`.

use serde::Serialize;
use serde_json::{Map, Value};
use std::io::{self, Write};
use tidemill_nf::plain::is_plain;

/// The version of the format, in every line.
pub(crate) const VERSION: u8 = 1;

/// Parameters of a measurement, by name.
pub(crate) type Params = Map<String, Value>;

/// One measured figure: the median of several runs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    pub(crate) v: u8,
    pub(crate) bench: &'static str,
    /// What was measured; `bound` is the machine itself.
    pub(crate) subject: String,
    pub(crate) case: String,
    pub(crate) metric: &'static str,
    pub(crate) value: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checksum: Option<String>,
    pub(crate) params: Params,
}

impl Measurement {
    /// The median, least and greatest of `values`.
    pub(crate) fn of(
        bench: &'static str,
        subject: &str,
        case: &str,
        metric: &'static str,
        values: &[f64],
        params: Params,
    ) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Measurement {
            v: VERSION,
            bench,
            subject: subject.into(),
            case: case.into(),
            metric,
            value: significant(crate::bench::statistics::median(values)),
            min: significant(least),
            max: significant(most),
            runs: values.len(),
            checksum: None,
            params,
        }
    }
}

/// A comparison of two subjects from one interleaved run: the geometric mean and its 95 % interval.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ratio {
    pub(crate) v: u8,
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    pub(crate) metric: &'static str,
    pub(crate) of: String,
    pub(crate) to: String,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) pairs: usize,
}

/// The last line of a verification.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verified {
    pub(crate) v: u8,
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    pub(crate) seconds: f64,
}

/// Six significant digits: more than any of our figures has.
pub(crate) fn significant(value: f64) -> f64 {
    if !value.is_finite() {
        return 0.0; // JSON has no infinity, and no figure of ours is one
    }
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Prints one object as one line on standard output.
///
/// # Errors
/// Standard output cannot be written; a reader that has gone away ends the program like any other failure.
pub(crate) fn print(object: &impl Serialize) -> io::Result<()> {
    let mut line = harmless(serde_json::to_string(object)?);
    line.push('\n');
    crate::usage::out().write_all(line.as_bytes())
}

/// The same JSON, in which what would turn a terminal's text around, or end a line for some readers, is written by number. It can be in strings alone.
fn harmless(line: String) -> String {
    if line.chars().all(is_plain) {
        return line;
    }
    let mut plain = String::with_capacity(2 * line.len());
    for c in line.chars() {
        if is_plain(c) {
            plain.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]).iter() {
                plain.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_has_the_names_that_the_records_have() {
        let mut params = Params::new();
        params.insert("keys".into(), 4096.into());
        let line = Measurement::of("lpm", "dxr", "rnd", "mlps", &[3.0, 1.0, 2.000_000_04], params);
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"v":1,"bench":"lpm","subject":"dxr","case":"rnd","metric":"mlps","value":2.0,"min":1.0,"max":3.0,"runs":3,"params":{"keys":4096}}"#
        );
    }

    #[test]
    fn strings_do_nothing_to_a_terminal_and_end_no_line() {
        let text = "\u{2713} \u{202e}evil\u{2028}\u{85}\u{7f}\u{e0041}\u{1b}\n";
        let line = harmless(serde_json::to_string(text).unwrap());
        let escaped = r#" \u202eevil\u2028\u0085\u007f\udb40\udc41\u001b\n""#;
        assert_eq!(line, ["\"\u{2713}", escaped].concat());
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }

    #[test]
    fn figures_keep_six_digits() {
        for (value, kept) in [(312.456_789, 312.457), (0.001_234_567_8, 0.001_234_57), (f64::NAN, 0.0)] {
            assert_eq!(significant(value), kept);
        }
    }
}
