//! What a worker does that finds nothing: it polls for a while, and lets others go first, then it sleeps.
//!
//! ```text
//! idle turns ... poll over -> doze -> one more turn -> sleep until: a port's descriptor is readable, another worker or the
//!                                                      control side wakes us, something is due, or so much time is over
//! ```
//!
//! A port that can say that it has something lets its worker sleep; one that cannot makes it nap, and look. While a worker
//! sleeps nobody waits for it to leave a published table.

use super::Worker;
use crate::clock::Clock;
use std::time::{Duration, Instant};
use tidemill_port::{DESCRIPTORS, Wake};

/// When and how long a worker sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// How long it polls in vain before it sleeps; `None`: for ever.
    pub poll: Option<Duration>,
    /// How long it sleeps at most while something must be polled: a port that cannot wake it, packets that wait for room to
    /// be sent or are kept by nodes.
    pub nap: Duration,
    /// How long it sleeps at most while everything wakes it: nodes' timers are as exact as this.
    pub sleep: Duration,
}

impl Default for Idle {
    /// 50 us, 200 us and 10 ms.
    fn default() -> Self {
        Idle {
            poll: Some(Duration::from_micros(50)),
            nap: Duration::from_micros(200),
            sleep: Duration::from_millis(10),
        }
    }
}

/// How far a worker is on its way to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doze {
    Awake,
    /// It has found nothing since then (nanoseconds of its laps).
    Since(u64),
    /// It has said that it will sleep if one more turn finds nothing.
    Dozing,
}

impl Worker {
    /// A turn has found something.
    #[inline]
    pub(crate) fn awake(&mut self, doze: &mut Doze) {
        if *doze == Doze::Dozing {
            self.waker.rouse();
        }
        *doze = Doze::Awake;
    }

    /// A turn has found nothing, and nothing is due before `due_ns`. Sleeps when it is time to, until `end` at most.
    pub(crate) fn idle(&mut self, doze: &mut Doze, due_ns: Option<u64>, end: Option<Instant>) {
        let Some(poll) = self.idle.poll else { return };
        let poll_ns = u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX);
        let since = match *doze {
            Doze::Awake => self.laps.at_ns(),
            Doze::Since(since) => since,
            Doze::Dozing => {
                // Still nothing to do after the next turn: then no more polling before the next sleep.
                *doze = Doze::Since(self.laps.at_ns().saturating_sub(poll_ns));
                return self.sleep(due_ns, end);
            }
        };
        if self.laps.at_ns() - since >= poll_ns {
            self.waker.doze();
            *doze = Doze::Dozing;
        } else {
            *doze = Doze::Since(since);
            // What receives for us may wait for this very processor: the kernel's threads of an interface do where it has no other.
            std::thread::yield_now();
        }
    }

    /// Sleeps, away from the readers that the control side waits for.
    fn sleep(&mut self, due_ns: Option<u64>, end: Option<Instant>) {
        self.show(true);
        let mut time = self.idle.sleep;
        if let (Some(due), Clock::Wall(_)) = (due_ns, &self.clock) {
            time = time.min(Duration::from_nanos(due.saturating_sub(self.clock.now_ns(0))));
        }
        if let Some(end) = end {
            time = time.min(end.saturating_duration_since(Instant::now()));
        }
        let bell = self.waker.clone();
        let mut polled = self.kept > 0 || self.links.blocked();
        // The list is on the stack: nothing is allocated, here neither.
        let mut descriptors = arrayvec::ArrayVec::<_, { DESCRIPTORS - 1 }>::new();
        for (p, seat) in self.seats.iter_mut().enumerate() {
            let Some(seat) = seat else { continue };
            polled |= !seat.tx.is_empty() || seat.port.counters().tx.held > 0;
            if self.graph.inputs[p].is_none() || seat.ended {
                continue;
            }
            match seat.port.wake(&bell) {
                Wake::Poll => polled = true,
                Wake::Readable(descriptor) => polled |= descriptors.try_push(descriptor).is_err(),
                Wake::Told => {}
            }
        }
        if polled {
            time = time.min(self.idle.nap);
        }
        self.reader.offline();
        let sound = bell.sleep(&descriptors, time);
        if !sound {
            // A device that is down has an error to tell, and nothing else, as often as it is asked.
            std::thread::sleep(time.min(self.idle.nap));
        }
        self.reader.online();
        self.counters.slept_ns += self.laps.lap();
    }
}
