//! What the program says: errors that are the caller's to mend (exit status 2), and output that may find no reader.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidemill_control::schema::Severity;
use tidemill_daemon::journal::{self, Priority, is_journal};
use tidemill_port::number;

/// Bad usage: a wrong option, key, address or file name.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Makes a usage error of a line that says what, where, and what to do.
pub(crate) fn usage(line: impl std::fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Usage(line.to_string()))
}

/// What the parser says, without the words of the language that it is written in: which key it is about, by the line that it is on, and what numbers can be.
pub(crate) fn in_words(message: &str, line: Option<&str>) -> String {
    let large = "this number is too large: give 9223372036854775807 or less";
    let message =
        message.replace('\n', " ").replace("` as i128", "`").replace("u64 value was too large", large);
    let message = shortened(&message).unwrap_or(message);
    // What it says of a word that is one of several.
    let no_word = (message == "wanted string or table").then_some(("no word", "a string"));
    let Some((what, kind)) = message.rsplit_once(", expected ").or(no_word) else { return message };
    let wanted = match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i64" | "isize" | "i32" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        "path string" => "a path in quotes",
        "a sequence" => "a list, in brackets",
        "a map" => "a table",
        // By the name that it has in our language.
        _ if kind.starts_with("struct ") => "a table",
        _ => return message,
    };
    let key = line.and_then(|line| line.split_once('=')).map_or("", |(key, _)| key.trim());
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    let key = if is_key { format!("{key}: ") } else { String::new() };
    format!("{key}{what}: give {wanted}")
}

/// The parser's message where it tells all digits of a number that has many.
fn shortened(message: &str) -> Option<String> {
    let (before, from) = message.split_once("floating point `")?;
    let (digits, behind) = from.split_once('`')?;
    let short = number(digits.parse().ok()?);
    short.contains('e').then(|| format!("{before}floating point `{short}`{behind}"))
}

/// The command goes on to its end when nobody reads its output any more.
static TO_THE_END: AtomicBool = AtomicBool::new(false);
/// Something that was to be read was not written.
static UNWRITTEN: AtomicBool = AtomicBool::new(false);

/// From now on the command goes on to its end, and its exit status is what it found, whatever becomes of its output: for those that judge, or
/// have something to undo. What nobody reads is left out.
pub(crate) fn to_the_end() {
    TO_THE_END.store(true, Relaxed);
}

/// Whether a command that [went on](to_the_end) could not write its output, and that for another reason than that nobody reads it.
pub(crate) fn is_unwritten() -> bool {
    UNWRITTEN.load(Relaxed)
}

/// Writes to standard output. If its reader has gone (`| head`) that is the end of the program, and a good one; any
/// other failure is a bad one. A command that goes on [to the end](to_the_end) fails there.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let Err(error) = std::io::stdout().lock().write_fmt(text) else { return };
    let (is_unread, goes_on) = (error.kind() == ErrorKind::BrokenPipe, TO_THE_END.load(Relaxed));
    if !is_unread && !UNWRITTEN.swap(true, Relaxed) {
        complain(format_args!("tidemill: standard output: {error}"));
    }
    if !goes_on {
        std::process::exit(i32::from(!is_unread));
    }
}

/// Standard output, whose errors say that they are its.
pub(crate) struct Out(std::io::StdoutLock<'static>);

/// Standard output, for who handles its errors.
pub(crate) fn out() -> Out {
    Out(std::io::stdout().lock())
}

/// The error, named; or `done` if it is none to a command that goes on to its end.
fn named<T>(error: std::io::Error, done: T) -> std::io::Result<T> {
    if error.kind() == ErrorKind::BrokenPipe && TO_THE_END.load(Relaxed) {
        return Ok(done);
    }
    Err(std::io::Error::new(error.kind(), format!("standard output: {error}")))
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes).or_else(|error| named(error, bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush().or_else(|error| named(error, ()))
    }
}

/// Prints what clap has to say: a mistake in the command line (2), or a help that was asked for (0, if it could be written).
pub(crate) fn not_a_command(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        Err(failed) if !error.use_stderr() && failed.kind() != ErrorKind::BrokenPipe => {
            complain(format_args!("tidemill: standard output: {failed}"));
            ExitCode::from(1)
        }
        _ => ExitCode::from(error.exit_code() as u8),
    }
}

/// Writes a line to standard error; that nobody reads it is no reason to stop.
pub(crate) fn complain(text: std::fmt::Arguments<'_>) {
    if !is_journal() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
        return;
    }
    let text = text.to_string();
    let severity = if text.contains("warning: ") { Severity::Warning } else { Severity::Info };
    complain_as(severity, &text);
}

/// The same of a line whose severity is known: the journal hears of that, too.
pub(crate) fn complain_as(severity: Severity, text: &str) {
    let mut out = std::io::stderr().lock();
    if is_journal() {
        let priority = match severity {
            Severity::Error => Priority::Error,
            Severity::Warning => Priority::Warning,
            Severity::Info => Priority::Info,
        };
        let _ = out.write_all(journal::lines(priority, text).as_bytes());
    } else {
        let _ = writeln!(out, "{text}");
    }
}

/// Whether the error is only that the reader of standard output has gone. Of a command that goes on to its end it is never: it is another pipe's.
pub(crate) fn nobody_reads(error: &anyhow::Error) -> bool {
    !TO_THE_END.load(Relaxed)
        && error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The error with its causes, each said once: some errors' texts have their causes in them.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string().replace('\n', " ");
        if !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parser_says_names_the_key_and_no_type_of_ours() {
        for (line, message, said) in [
            ("default = 1", "wanted string or table", "default: no word: give text in quotes"),
            (
                "probes = 1",
                "invalid type: integer `1`, expected struct ProbesConfig",
                "probes: invalid type: integer `1`: give a table",
            ),
            (
                "  keep_dscp = 1 # no",
                "invalid type: integer `1`, expected a boolean",
                "keep_dscp: invalid type: integer `1`: give true or false",
            ),
            (
                "front = \"wan\"",
                "invalid type: string \"wan\", expected a sequence",
                "front: invalid type: string \"wan\": give a list, in brackets",
            ),
            (
                "key_file = 1",
                "invalid type: integer `1`, expected path string",
                "key_file: invalid type: integer `1`: give a path in quotes",
            ),
            (
                "n = -1",
                "invalid value: integer `-1`, expected u8",
                "n: invalid value: integer `-1`: give a whole number from 0 to 255",
            ),
            // A line that says no key; messages that say all themselves.
            (
                "  1,",
                "invalid type: integer `1`, expected a string",
                "invalid type: integer `1`: give text in quotes",
            ),
            ("a = 1", "unknown field `a`, expected `b`", "unknown field `a`, expected `b`"),
            ("a = 1", "no bandwidth: give a number", "no bandwidth: give a number"),
        ] {
            assert_eq!(in_words(message, Some(line)), said);
        }
    }
}
