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
    /// Since when a device of that name is there all the same, and whether that was said.
    there: Option<Instant>,
    stuck: bool,
}

impl Devices {
    /// Says what has changed since it last looked.
    pub(crate) fn look(&mut self, handle: &Handle, ports: &[PortSpec], trouble: &Trouble) {
        if self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        self.ports.resize(ports.len(), Said::default());
        for ((said, spec), counters) in self.ports.iter_mut().zip(ports).zip(&handle.snapshot().ports) {
            let Some(interface) = spec.interface() else { continue };
            if let Some(line) = said.news(counters, || tidemill_port::device(interface).is_ok()) {
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
    fn news(&mut self, counters: &PortCounters, is_there: impl FnOnce() -> bool) -> Option<String> {
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
            (Some(_), true) if !self.stuck => {
                let there = *self.there.get_or_insert_with(Instant::now);
                if there.elapsed() < STUCK {
                    return None;
                }
                self.there = None;
                self.stuck = is_there();
                self.stuck.then(|| {
                    "is there again, but cannot be opened: is it up, and does the process still have its rights?".into()
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_is_said_once() {
        let (mut said, mut counters) = (Said::default(), PortCounters::default());
        let mut news = |counters: &PortCounters| said.news(counters, || true);
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
}
