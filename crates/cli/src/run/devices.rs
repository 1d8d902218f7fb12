//! Devices that go away and come back, and those that have got queues which pass the port by, as the operator reads it: a line each. The ports do the work
//! ([`PortCounters::lost`]); the router follows links by netlink, with and without `[kernel]`.

use super::role::Trouble;
use super::setup;
use std::time::{Duration, Instant};
use tidemill_control::schema::Severity;
use tidemill_graph::Handle;
use tidemill_port::{Left, PortCounters, PortSpec};

/// How often we look.
const EVERY: Duration = Duration::from_millis(20);
/// A device that is there and cannot be opened for so long is told of.
const STUCK: Duration = Duration::from_secs(3);
/// How often what passes a port by is counted, and how often in a row it has to be more: a device that is just being opened has such packets for a moment.
const COUNT: Duration = Duration::from_secs(1);
const PASSING: u32 = 3;

/// What has been said of each port's device.
#[derive(Default)]
pub(crate) struct Devices {
    looked: Option<Instant>,
    counted: Option<Instant>,
    ports: Vec<Said>,
}

#[derive(Default, Clone)]
struct Said {
    lost: u64,
    /// Since when it is away.
    away: Option<Instant>,
    /// Since when nothing was said, though a device of that name may be there all the same; and what was said of it last.
    silent: Option<Instant>,
    stuck: Option<String>,
    /// Packets that went to the kernel by queues that nobody reads, and how often in a row they were more.
    unread: u64,
    passing: u32,
}

impl Devices {
    /// Says what has changed since it last looked. `left` says what a port has not taken, and why, as far as it tells.
    pub(crate) fn look(
        &mut self,
        handle: &Handle,
        ports: &[PortSpec],
        trouble: &Trouble,
        left: impl Fn(usize) -> Option<Left>,
    ) {
        if self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let counts = self.counted.is_none_or(|at| at.elapsed() >= COUNT);
        if counts {
            self.counted = self.looked;
        }
        self.ports.resize(ports.len(), Said::default());
        let snapshot = handle.snapshot();
        for (number, ((said, spec), counters)) in
            self.ports.iter_mut().zip(ports).zip(&snapshot.ports).enumerate()
        {
            let Some(interface) = spec.interface() else { continue };
            if counts
                && counters.away() == 0
                && let Some(left) = left(number)
                && let Some(packets) = said.passing(left.unread)
            {
                let what = format!(
                    "interface {interface} has queues that nobody reads: {packets} packets of the last second went by them to the kernel: \
                     give it as many as it had at the start (ethtool -L {interface}), or start anew"
                );
                trouble.say("port", Severity::Warning, &format!("warning: port {}: {what}", spec.name()));
                trouble.note_silently("port", Severity::Warning, spec.name(), what);
            }
            let stuck =
                || tidemill_port::device(interface).ok().map(|_| left(number).and_then(|left| left.hindered));
            if let Some(line) = said.news(counters, STUCK, stuck) {
                let (warning, severity) = match said.away {
                    Some(_) => ("warning: ", Severity::Warning),
                    None => ("", Severity::Info),
                };
                let what = format!("interface {interface} {line}");
                trouble.say("port", severity, &format!("{warning}port {}: {what}", spec.name()));
                trouble.note_silently("port", severity, spec.name(), what);
                if said.away.is_none() {
                    // It is another device, with the kernel's defaults.
                    setup::warn_of_forwarding(std::slice::from_ref(spec));
                }
            }
        }
    }
}

impl Said {
    /// What is to be said; of a device that is `stuck`, that is there and not opened, at most every so often.
    fn news(
        &mut self,
        counters: &PortCounters,
        every: Duration,
        stuck: impl FnOnce() -> Option<Option<String>>,
    ) -> Option<String> {
        let more = counters.lost > self.lost;
        self.lost = counters.lost;
        match (self.away, counters.away() > 0) {
            (None, true) => {
                *self = Said { lost: self.lost, away: Some(Instant::now()), ..Said::default() };
                Some("is gone: looking for it".into())
            }
            (Some(since), false) => {
                *self = Said { lost: self.lost, ..Said::default() };
                Some(format!("is back after {:.1} s", since.elapsed().as_secs_f64()))
            }
            (None, false) if more => Some("was another for a moment: opened anew".into()),
            (Some(_), true) => {
                let silent = *self.silent.get_or_insert_with(Instant::now);
                if silent.elapsed() < every {
                    return None;
                }
                self.silent = None;
                let why = stuck()?;
                let why = why.as_deref().unwrap_or("is it up, and does the process still have its rights?");
                let line = format!("is there again, but cannot be opened: {why}");
                (self.stuck.replace(line.clone()).as_ref() != Some(&line)).then_some(line)
            }
            (None, false) => None,
        }
    }

    /// How many more packets there are by queues that nobody reads, of `unread` in all, if it is time to say so.
    fn passing(&mut self, unread: u64) -> Option<u64> {
        let more = unread.saturating_sub(self.unread);
        self.unread = unread;
        self.passing = if more > 0 { self.passing.saturating_add(1) } else { 0 };
        (self.passing == PASSING).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_said_once() {
        let (mut said, mut counters) = (Said::default(), PortCounters::default());
        let mut news = |counters: &PortCounters| said.news(counters, STUCK, || Some(None));
        assert_eq!(news(&counters), None);
        // Of two queues one notices first.
        counters.lost = 1;
        assert_eq!(news(&counters).as_deref(), Some("is gone: looking for it"));
        counters.lost = 2;
        assert_eq!(news(&counters), None);
        counters.found = 1;
        assert_eq!(news(&counters), None);
        counters.found = 2;
        assert!(news(&counters).unwrap().starts_with("is back after 0."));
        assert_eq!(news(&counters), None);
        (counters.lost, counters.found) = (4, 4);
        assert_eq!(news(&counters).as_deref(), Some("was another for a moment: opened anew"));
        assert_eq!(news(&counters), None);
    }

    #[test]
    fn queues_that_nobody_reads_are_said_once_they_go_on() {
        let mut said = Said::default();
        let mut news = |unread: u64| said.passing(unread);
        // While a device is opened.
        assert_eq!([0, 7, 9, 9].map(&mut news), [None; 4]);
        // Somebody has given it more queues; and again, when that is over.
        assert_eq!([10, 20, 50, 90, 100].map(&mut news), [None, None, Some(30), None, None]);
        assert_eq!([100, 101, 102, 103].map(&mut news), [None, None, None, Some(1)]);
    }

    #[test]
    fn what_keeps_a_port_from_its_device_is_said_when_it_changes() {
        let mut said = Said::default();
        let counters = PortCounters { lost: 1, ..PortCounters::default() };
        let mut news = |stuck: Option<Option<&str>>| {
            said.news(&counters, Duration::ZERO, || stuck.map(|why| why.map(str::to_owned)))
        };
        assert_eq!(news(None).as_deref(), Some("is gone: looking for it"));
        assert_eq!(news(None), None, "it is not there");
        let begins = "is there again, but cannot be opened: ";
        assert_eq!(news(Some(Some("taken"))), Some(format!("{begins}taken")));
        assert_eq!(news(Some(Some("taken"))), None);
        assert_eq!(news(Some(Some("too long"))), Some(format!("{begins}too long")));
        assert!(news(Some(None)).unwrap().starts_with(&format!("{begins}is it up, ")));
        assert_eq!(news(Some(None)), None);
    }
}
