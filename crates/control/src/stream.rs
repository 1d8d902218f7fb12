//! Answers that come in pieces: a thread of the service's fills a bounded channel, the connection empties it.

use hyper::body::{Body, Bytes, Frame};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

/// Pieces that may wait for a client that reads slowly.
const WAITING: usize = 64;

/// The client has gone away, or the server is closing: there is nobody to send to, so clean up and return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client has gone away")]
pub struct Gone;

/// What fills a stream.
type Source = Box<dyn FnOnce(&mut Sink) -> Result<(), Gone> + Send>;

/// An answer in pieces: its kind, and what makes it.
pub struct Stream {
    pub(crate) content_type: &'static str,
    source: Source,
}

impl Stream {
    /// `source` runs on a thread of its own until it returns; the answer ends then. It has to look at the sink at least
    /// a few times a second ([`Sink::send`], [`Sink::wait`]), and return when that says [`Gone`]. If it panics, the
    /// client sees a broken answer, not a complete one.
    pub fn new(
        content_type: &'static str,
        source: impl FnOnce(&mut Sink) -> Result<(), Gone> + Send + 'static,
    ) -> Self {
        Stream { content_type, source: Box::new(source) }
    }

    /// Starts the source; its pieces come out of the body.
    pub(crate) fn start(self, streams: &Arc<Streams>) -> io::Result<Pieces> {
        let (sender, receiver) = channel(WAITING);
        let gone = Arc::new(Flag::default());
        let ticket = streams.enter(&gone)?;
        let mut sink = Sink { sender, gone: gone.clone() };
        let source = self.source;
        thread::Builder::new().name("control-stream".to_owned()).spawn(move || {
            let _ticket = ticket; // Given back last, also when the source panics.
            let broken = BreaksOnPanic(sink.sender.clone());
            let _ = source(&mut sink);
            drop(broken);
        })?;
        Ok(Pieces { receiver, gone })
    }
}

/// Tells the client that the answer is not whole, if the source panics.
struct BreaksOnPanic(Sender<io::Result<Bytes>>);

impl Drop for BreaksOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.blocking_send(Err(io::Error::other("the source panicked")));
        }
    }
}

/// Where the pieces of a [`Stream`] go.
pub struct Sink {
    sender: Sender<io::Result<Bytes>>,
    gone: Arc<Flag>,
}

impl Sink {
    /// Sends a piece; waits while the client reads slowly and 64 pieces wait already.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn send(&mut self, piece: Vec<u8>) -> Result<(), Gone> {
        if self.gone.is_set() {
            return Err(Gone);
        }
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| Gone)
    }

    /// Sends a piece if there is room for it now; gives it back if there is none.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn try_send(&mut self, piece: Vec<u8>) -> Result<Option<Vec<u8>>, Gone> {
        if self.gone.is_set() {
            return Err(Gone);
        }
        match self.sender.try_send(Ok(piece.into())) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(piece)) => Ok(piece.ok().map(Vec::from)),
            Err(TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Waits until the time is over, or nobody listens any more.
    ///
    /// # Errors
    /// [`Gone`], at once when it happens.
    pub fn wait(&mut self, time: Duration) -> Result<(), Gone> {
        if self.gone.wait(time) { Err(Gone) } else { Ok(()) }
    }
}

/// The body of a streamed answer. Dropped with the connection, it tells the source.
pub(crate) struct Pieces {
    receiver: Receiver<io::Result<Bytes>>,
    gone: Arc<Flag>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.receiver.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.gone.set();
    }
}

/// A flag to wait for.
#[derive(Default)]
pub(crate) struct Flag {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn set(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn is_set(&self) -> bool {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was set before the time was over.
    fn wait(&self, time: Duration) -> bool {
        let set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(set, time, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The streams that run: bounded in number, and all told when the server closes.
#[derive(Default)]
pub(crate) struct Streams {
    running: Mutex<Vec<Arc<Flag>>>,
    ended: Condvar,
}

impl Streams {
    /// Streams at the same time.
    pub(crate) const MOST: usize = 16;

    fn enter(self: &Arc<Self>, gone: &Arc<Flag>) -> io::Result<Ticket> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.len() >= Self::MOST {
            return Err(io::Error::other(format!(
                "{} streams run already: end one of them first",
                Self::MOST
            )));
        }
        running.push(gone.clone());
        Ok(Ticket { streams: self.clone(), gone: gone.clone() })
    }

    /// Tells all sources to end, so that their answers end in good order.
    pub(crate) fn close(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|gone| gone.set());
    }

    /// Waits until all sources have returned; false if the time was over first.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while !running.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            running = self.ended.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// A running stream's place.
struct Ticket {
    streams: Arc<Streams>,
    gone: Arc<Flag>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut running = self.streams.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|gone| !Arc::ptr_eq(gone, &self.gone));
        self.streams.ended.notify_all();
    }
}
