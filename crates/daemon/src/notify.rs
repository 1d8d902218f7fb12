//! What the service manager hears (`sd_notify(3)`): ready, reloading, stopping, and that all goes on. Without one, nothing happens.
//!
//! Source: systemd's manual, sd_notify(3) and sd_watchdog_enabled(3).

use std::time::{Duration, Instant};

/// It is at work, or again after a reload; `status` is the line that `systemctl status` shows.
pub fn ready(status: &str) {
    say::ready(status);
}

/// It reads its configuration anew; [`ready`] ends that.
pub fn reloading() {
    say::reloading();
}

/// It ends: what is under way is finished, nothing new begins.
pub fn stopping(status: &str) {
    say::stopping(status);
}

/// Tells the manager that all goes on, as long as it does: each worker has to have come further since the last time. A worker that is stuck is so noticed by the
/// manager, whatever the other threads do.
#[derive(Debug)]
pub struct Watchdog {
    every: Option<Duration>,
    told: Option<Instant>,
    /// How far each worker was then.
    seen: Vec<u64>,
}

impl Watchdog {
    /// One that tells as often as the manager of this process wants it (`WatchdogSec=`): four times in its patience. None, if it does not.
    pub fn of_manager() -> Self {
        Self::every(say::patience().map(|patience| patience / 4))
    }

    /// One that tells so often at most.
    pub fn every(every: Option<Duration>) -> Self {
        Watchdog { every, told: None, seen: Vec::new() }
    }

    /// Looks how far each worker is, and tells if it is time to and all have come further; `None` is one that has ended, in good order. Returns whether it told.
    pub fn look(&mut self, now: Instant, workers: impl FnOnce() -> Vec<Option<u64>>) -> bool {
        let Some(every) = self.every else { return false };
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < every) {
            return false;
        }
        let workers = workers();
        let stuck =
            |(worker, at): (usize, &Option<u64>)| at.is_some() && self.seen.get(worker).copied() == *at;
        if workers.iter().enumerate().any(stuck) {
            return false;
        }
        self.seen = workers.into_iter().map(|at| at.unwrap_or_default()).collect();
        self.told = Some(now);
        say::goes_on();
        true
    }
}

#[cfg(target_os = "linux")]
mod say {
    use sd_notify::NotifyState;
    use std::time::Duration;

    fn say(states: &[NotifyState<'_>]) {
        // Nobody who listens is no error, and one that cannot be reached is the manager's to notice.
        let _ = sd_notify::notify(states);
    }

    /// A status is one line.
    fn line(status: &str) -> String {
        status.replace(['\n', '\r'], " ")
    }

    pub(super) fn ready(status: &str) {
        say(&[NotifyState::Ready, NotifyState::Status(&line(status))]);
    }

    pub(super) fn reloading() {
        // Type=notify-reload wants to know when that began.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(_) => say(&[NotifyState::Reloading]),
        }
    }

    pub(super) fn stopping(status: &str) {
        say(&[NotifyState::Stopping, NotifyState::Status(&line(status))]);
    }

    pub(super) fn goes_on() {
        say(&[NotifyState::Watchdog]);
    }

    pub(super) fn patience() -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }
}

#[cfg(not(target_os = "linux"))]
mod say {
    pub(super) fn ready(_: &str) {}
    pub(super) fn reloading() {}
    pub(super) fn stopping(_: &str) {}
    pub(super) fn goes_on() {}
    pub(super) fn patience() -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_while_every_worker_goes_on() {
        let second = Duration::from_secs(1);
        let (mut dog, start) = (Watchdog::every(Some(second)), Instant::now());
        let mut at =
            |seconds: u32, workers: &[Option<u64>]| dog.look(start + second * seconds, || workers.to_vec());
        assert!(at(0, &[Some(1), Some(1)]));
        assert!(!at(0, &[Some(2), Some(2)]), "too early");
        assert!(!at(1, &[Some(2), Some(1)]), "the second has not come further");
        assert!(!at(2, &[Some(9), Some(1)]), "nor has it now");
        assert!(at(3, &[Some(9), Some(2)]));
        assert!(at(4, &[None, Some(3)]), "one that has ended holds up nothing");
        assert!(at(5, &[None, Some(4)]));
        assert!(at(6, &[None, None]));
    }

    #[test]
    fn nobody_is_told_who_does_not_want_it() {
        let mut dog = Watchdog::every(None);
        assert!(!dog.look(Instant::now(), || panic!("nobody has to look")));
    }
}
