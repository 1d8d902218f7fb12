//! Devices that go away and come back, as the operator reads it: a line each. The ports do the work
//! ([`PortCounters::lost`]); the router follows links by netlink, with and without `[kernel]`.

use super::role::Trouble;
use super::setup;
use std::time::{Duration, Instant};
use tidemill_control::schema::Severity;
use tidemill_graph::Handle;
use tidemill_port::{PortCounters, PortSpec};

/// How often we look.
const EVERY: Duration = Duration::from_millis(20);
/// A device that is there and cannot be opened for so long is told of.
const STUCK: Duration = Duration::from_secs(3);

/// What has been said of each port's device.
#[derive(Default)]
pub(crate) struct Devices {
    looked: Option<Instant>,
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
}

impl Devices {
    /// Says what has changed since it last looked. `why` says what keeps a port from a device that is there, as far as the port tells.
    pub(crate) fn look(
        &mut self,
        handle: &Handle,
        ports: &[PortSpec],
        trouble: &Trouble,
        why: impl Fn(usize) -> Option<String>,
    ) {
        if self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        self.ports.resize(ports.len(), Said::default());
        let snapshot = handle.snapshot();
        for (number, ((said, spec), counters)) in
            self.ports.iter_mut().zip(ports).zip(&snapshot.ports).enumerate()
        {
            let Some(interface) = spec.interface() else { continue };
            let stuck = || tidemill_port::device(interface).ok().map(|_| why(number));
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
