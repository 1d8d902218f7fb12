//! Lines as the journal takes them: with their priority in front, where standard error goes there. Panics, too.
//!
//! Source: systemd's manual, sd-daemon(3) and systemd.exec(5) (`$JOURNAL_STREAM`).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

/// How severe a line is, as syslog numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The process, or a part of it, has ended where it should not have.
    Critical = 2,
    /// Something failed.
    Error = 3,
    /// Something may fail.
    Warning = 4,
    /// All others.
    Info = 6,
}

/// A text with its priority in front of each line.
pub fn lines(priority: Priority, text: &str) -> String {
    let level = priority as u8;
    text.lines().map(|line| format!("<{level}>{line}\n")).collect()
}

/// Whether standard error goes to the journal. First asked at the start: a thread that is confined later could not find out.
pub fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_standard_error(&stream)))
}

/// Whether standard error is the stream with this device and inode; a program that was started with another one has inherited the variable alone.
#[cfg(unix)]
fn is_standard_error(stream: &str) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let Ok(copy) = std::io::stderr().as_fd().try_clone_to_owned() else { return false };
    let there = std::fs::File::from(copy).metadata();
    there.is_ok_and(|there| stream == format!("{}:{}", there.dev(), there.ino()))
}

#[cfg(not(unix))]
fn is_standard_error(_: &str) -> bool {
    false
}

/// From now on a panic's lines are critical ones, where standard error goes to the journal; elsewhere they stay as they are. Everything else that a panic does is as before.
pub fn tell_panics() {
    if is_journal() {
        std::panic::set_hook(Box::new(tell));
    }
}

fn tell(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let mut text = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        text += &format!("\nstack backtrace:\n{trace}");
    }
    // Nobody who listens is no reason to panic again.
    let _ = std::io::stderr().lock().write_all(lines(Priority::Critical, &text).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_priority() {
        assert_eq!(lines(Priority::Critical, "one\ntwo"), "<2>one\n<2>two\n");
        assert_eq!(lines(Priority::Info, "one\n"), "<6>one\n");
        assert_eq!(
            (lines(Priority::Error, "a"), lines(Priority::Warning, "b")),
            ("<3>a\n".into(), "<4>b\n".into())
        );
    }
}
