//! `tidemill events`: what happens in a running service, as it happens.

use super::capture::stop_by_signal;
use super::{Live, failed, print_line};
use anyhow::Result;
use clap::Args;
use std::io::{self, Write};
use tidemill_control::schema::{Event, EventsQuery, path};

/// Arguments of `tidemill events`.
#[derive(Args)]
#[command(
    after_help = "Kinds are reload, table, port, drops, worker, certificate, trouble, run, and what the role has to say under its own name (GET /v1 lists them). \
    The service keeps the last 1024 events. Who reads more slowly than things happen is told how many are lost.\n\n\
    Examples:\n  tidemill events\n  tidemill events --last 20 --kind drops,port\n  tidemill events --once --json | jq -s 'group_by(.kind) | map({(.[0].kind): length}) | add'"
)]
pub(crate) struct Events {
    #[command(flatten)]
    live: Live,
    /// Only these kinds, with commas between them
    #[arg(long, value_name = "KIND,...")]
    kind: Option<String>,
    /// Begin with the last N events
    #[arg(long, value_name = "N")]
    last: Option<u32>,
    /// Print what has happened so far, and end
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: &Events) -> Result<bool> {
    let stop = stop_by_signal()?;
    let query = EventsQuery {
        kind: args.kind.clone(),
        last: args.last,
        once: args.once.then_some(true),
        ..EventsQuery::default()
    };
    let mut lines = Lines { waiting: Vec::new(), json: args.live.json };
    args.live.client()?.stream(path::EVENTS, &query, &mut lines, &stop).map_err(failed)?;
    Ok(true)
}

/// Prints whole lines, each an event.
struct Lines {
    waiting: Vec<u8>,
    json: bool,
}

/// No line of ours is longer: something else than events arrives.
const LONGEST: usize = 1 << 20;

impl Lines {
    fn print(&self, line: &[u8]) -> io::Result<()> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, format!("no event: {error}"));
        let event: Event = serde_json::from_slice(line).map_err(wrong)?;
        if event.kind == "alive" {
            return Ok(());
        }
        if self.json {
            return print_line(&event).map_err(io::Error::other);
        }
        let about = if event.about.is_empty() { String::new() } else { format!("{}: ", event.about) };
        println!(
            "{} {:7} {:8} {about}{}",
            utc(event.time_ns),
            event.severity.name(),
            event.kind,
            event.message
        );
        Ok(())
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            self.print(&line)?;
        }
        if self.waiting.len() > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the service sends no events"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        crate::usage::out().flush()
    }
}

/// A time as RFC 3339 writes it, in UTC and milliseconds.
fn utc(ns: u64) -> String {
    let (seconds, ms) = (ns / 1_000_000_000, ns / 1_000_000 % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the day that is not always there is the last one; 400 of them have 146,097 days.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS` has them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
        assert_eq!(utc(1_999_999), "1970-01-01T00:00:00.001Z");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let mut lines = Lines { waiting: Vec::new(), json: true };
        assert!(lines.write_all(b"220 mail.example\r\n").is_err());
        lines.waiting.clear();
        assert!(lines.write_all(&vec![b'x'; LONGEST + 1]).is_err());
    }
}
