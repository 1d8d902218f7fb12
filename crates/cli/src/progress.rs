//! Progress of long jobs, on standard error: a bar on a terminal, elsewhere a line now and then. A terminal that cannot write over what is there (`TERM=dumb`) is elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Whether what was written there can be written over: it is a terminal, and one that moves its cursor.
pub(crate) fn redraws(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && moves_its_cursor(std::env::var("TERM").ok().as_deref())
}

/// What `TERM` says of that. Where there is none, only Windows' terminals do, which set none.
fn moves_its_cursor(term: Option<&str>) -> bool {
    match term {
        Some(term) => term != "dumb",
        None => cfg!(windows),
    }
}

/// The progress of one job; shared by its threads.
pub(crate) struct Progress {
    what: String,
    total: u64,
    done: AtomicU64,
    start: Instant,
    last_line: Mutex<Instant>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A job of `total` steps.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        let what = what.into();
        let bar = redraws(&std::io::stderr()).then(|| {
            let bar = ProgressBar::new(total);
            if let Ok(style) =
                ProgressStyle::with_template("{prefix} [{bar:40}] {percent} %  {eta} left {msg}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(what.clone());
            bar
        });
        let now = Instant::now();
        Progress { what, total, done: AtomicU64::new(0), start: now, last_line: Mutex::new(now), bar }
    }

    /// So many steps more are done.
    pub(crate) fn add(&self, steps: u64) {
        let done = self.done.fetch_add(steps, Ordering::Relaxed) + steps;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        self.line(done);
    }

    /// A step is taking its time.
    pub(crate) fn beat(&self) {
        match &self.bar {
            Some(bar) => bar.tick(),
            None => self.line(self.done.load(Ordering::Relaxed)),
        }
    }

    /// A line, if it is time for one.
    fn line(&self, done: u64) {
        // Whoever finds the lock taken leaves the line to the other.
        if let Ok(mut last) = self.last_line.try_lock()
            && last.elapsed() >= LINE_EVERY
        {
            *last = Instant::now();
            let percent = 100.0 * done as f64 / self.total.max(1) as f64;
            eprintln!("{}: {percent:.0} %, {:.0} s", self.what, self.start.elapsed().as_secs_f64());
        }
    }

    /// What is being done just now.
    pub(crate) fn message(&self, text: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.into());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::moves_its_cursor;

    #[test]
    fn a_dumb_terminal_gets_lines() {
        assert!(moves_its_cursor(Some("xterm-256color")) && !moves_its_cursor(Some("dumb")));
        if !cfg!(windows) {
            assert!(!moves_its_cursor(None));
        }
    }
}
