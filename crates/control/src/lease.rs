//! An answer that goes on (a capture, events) ends when the token that it was asked for with is taken back.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is done when it may go on no more.
type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body with an end of its own.
pub(crate) struct Lease {
    body: Body,
    ended: Option<Ended>,
}

impl Lease {
    pub(crate) fn new(body: Body, ended: impl Future<Output = ()> + Send + 'static) -> Self {
        Lease { body, ended: Some(Box::pin(ended)) }
    }
}

impl HttpBody for Lease {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Before the body: what waits in it is not for this reader any more.
        let Some(ended) = &mut self.ended else { return Poll::Ready(None) };
        if ended.as_mut().poll(context).is_ready() {
            self.ended = None;
            // The client sees that the answer is broken off.
            return Poll::Ready(Some(Err(axum::Error::new("the token was taken back"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
