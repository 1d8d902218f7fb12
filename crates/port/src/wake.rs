//! How a worker that sleeps is woken.
//!
//! ```text
//! worker:  doze() - looks at everything once more - sleep(descriptors, time) ........ back at work
//! others:                 hand something over, wake() --one byte, if it dozes or sleeps--^
//! kernel:                                  a packet arrives: the port's descriptor is readable --^
//! ```
//!
//! Whoever hands something over does so and then looks whether the worker dozes; the worker dozes and then looks whether
//! there is something. With a fence between the two steps of both, at least one of them sees the other, so nothing is left
//! lying. While the worker is awake, waking costs a fence and a load.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// How a sleeping worker learns that one of its queues has something for it; see [`Port::wake`](crate::Port::wake).
#[derive(Debug, Clone, Copy)]
pub enum Wake<'a> {
    /// Nobody tells: it has to look.
    Poll,
    /// This descriptor becomes readable.
    Readable(BorrowedFd<'a>),
    /// The queue calls the worker's [`Waker`].
    Told,
}

/// One worker's alarm clock; clones ring the same one.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    /// The worker is about to sleep, or sleeps. Whoever clears this writes one byte.
    dozes: AtomicBool,
    reader: PipeReader,
    writer: PipeWriter,
}

/// The most descriptors that a worker waits for at once.
pub const DESCRIPTORS: usize = 32;

impl Waker {
    /// For a worker that is awake.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Waker(Arc::new(Bell { dozes: AtomicBool::new(false), reader, writer })))
    }

    /// Wakes the worker if it sleeps or is about to. To be called after something was handed over.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.0.dozes.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        if self.0.dozes.swap(false, Ordering::AcqRel) {
            // A pipe has room for the one byte that is in it at most.
            let _ = (&self.0.writer).write_all(&[0]);
        }
    }

    /// Says that the worker will sleep unless it finds something on looking once more, which it has to do now.
    pub fn doze(&self) {
        self.0.dozes.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the worker is awake.
    pub fn rouse(&self) {
        if !self.0.dozes.swap(false, Ordering::AcqRel) {
            // Somebody rang: take the byte, which is there or about to come.
            let _ = (&self.0.reader).read_exact(&mut [0]);
        }
    }

    /// Sleeps, behind [`doze`](Self::doze), until somebody wakes us, one of `descriptors` (at most [`DESCRIPTORS`] - 1;
    /// more are not looked at) is readable, or `time` is over. False if a descriptor had nothing but an error to tell: it
    /// would end every further sleep at once.
    pub fn sleep(&self, descriptors: &[BorrowedFd<'_>], time: Duration) -> bool {
        let waits = self.0.dozes.load(Ordering::Acquire);
        let mut sound = true;
        if waits && !time.is_zero() {
            let bell = self.0.reader.as_fd();
            let mut polled: [PollFd<'_>; DESCRIPTORS] =
                std::array::from_fn(|_| PollFd::from_borrowed_fd(bell, PollFlags::IN));
            let count = descriptors.len().min(DESCRIPTORS - 1);
            for (polled, descriptor) in polled[1..].iter_mut().zip(descriptors) {
                *polled = PollFd::from_borrowed_fd(*descriptor, PollFlags::IN);
            }
            let time =
                Timespec { tv_sec: time.as_secs().min(3600) as i64, tv_nsec: i64::from(time.subsec_nanos()) };
            // A signal ends it early, which does no harm.
            let ready = poll(&mut polled[..=count], Some(&time)).unwrap_or(0);
            sound = ready == 0 || polled[..=count].iter().any(|fd| fd.revents().contains(PollFlags::IN));
        }
        self.rouse();
        sound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    #[test]
    fn a_sleeper_is_woken_and_one_that_is_awake_is_not_disturbed() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.doze();
        waker.rouse();
        waker.doze();
        waker.wake();
        waker.wake();
        let start = Instant::now();
        assert!(waker.sleep(&[], Duration::from_secs(600)), "woken before it slept");
        waker.doze();
        let other = waker.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                other.wake();
            });
            assert!(waker.sleep(&[], Duration::from_secs(600)));
        });
        assert!(start.elapsed() < Duration::from_secs(300));
        waker.doze();
        assert!(waker.sleep(&[], Duration::from_millis(1)), "time passes too");
    }

    #[test]
    fn readable_descriptors_end_a_sleep_and_broken_ones_are_told_of() {
        let waker = Waker::new().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&[1]).unwrap();
        waker.doze();
        assert!(waker.sleep(&[reader.as_fd()], Duration::from_secs(600)));
        let (closed, _) = io::pipe().unwrap();
        waker.doze();
        assert!(!waker.sleep(&[closed.as_fd()], Duration::from_secs(600)), "its writer is gone");
    }

    #[test]
    fn nothing_that_is_handed_over_is_left_lying() {
        let waker = Waker::new().unwrap();
        let (given, count) = (AtomicU64::new(0), 20_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=count {
                    given.store(n, Ordering::Relaxed);
                    waker.wake();
                }
            });
            let mut taken = 0;
            while taken < count {
                waker.doze();
                let now = given.load(Ordering::Relaxed);
                if now > taken {
                    taken = now;
                    waker.rouse();
                } else {
                    // Only a wake that got lost would let this time pass.
                    let start = Instant::now();
                    waker.sleep(&[], Duration::from_secs(600));
                    assert!(start.elapsed() < Duration::from_secs(300));
                }
            }
        });
    }
}
