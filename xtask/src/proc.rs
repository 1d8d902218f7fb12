//! Running other programs.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The command as one would type it, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Runs to the end with our own outputs; whether it succeeded.
pub(crate) fn status(command: &mut Command) -> Result<bool> {
    let status = command.stdin(Stdio::null()).status();
    Ok(status.with_context(|| format!("cannot start {}", shown(command)))?.success())
}

/// Runs to the end with our own outputs; an error if it fails.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    if !status(command)? {
        bail!("failed: {}", shown(command));
    }
    Ok(())
}

/// Runs to the end and returns standard output; an error, with what it said on standard error and last on standard output, if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("failed: {}\n{}{}", shown(command), last(&said, LAST_LINES), wrong.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Of what a program said before it failed, on standard output.
const LAST_LINES: usize = 20;

/// The last lines of a text, each ended.
pub(crate) fn last(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].iter().flat_map(|line| [*line, "\n"]).collect()
}

/// Runs to the end and hands over standard output line by line as it comes; whether it succeeded.
pub(crate) fn lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start {}", shown(command)))?;
    let mut reader = BufReader::new(child.stdout.take().context("no standard output")?);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        each(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::{last, output};
    use std::process::Command;

    #[test]
    fn who_fails_is_heard_on_both_outputs() {
        let script = "echo $((6 * 7)); echo $((6 * 8)) >&2; exit 1";
        let error = output(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(error.ends_with("\n42\n48"), "{error}");
        assert_eq!((last("a\nb\nc", 2), last("", 2)), ("b\nc\n".to_owned(), String::new()));
    }
}
