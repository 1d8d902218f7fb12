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

/// Runs to the end and returns standard output; an error, with what it said on standard error, if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!("failed: {}\n{}", shown(command), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
