//! Connections: who may have one, for how long, and what is said to who takes too long over it.

use crate::patience::{Heard, Impatient};
use crate::serve::Times;
use crate::strangers::{Seat, Strangers};
use crate::tcp::Tls;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::{pending, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

/// Connections at the same time; more wait to be accepted.
const CONNECTIONS: usize = 128;

/// Bytes of a request's head.
const HEAD_BYTES: usize = 1 << 16;

/// How long somebody who is sent away may take to hear why.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener, Option<Tls>),
}

/// A connection, perhaps to be secured first.
enum Accepted {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream, IpAddr, Option<Tls>),
}

impl Listener {
    async fn accept(&self) -> std::io::Result<Accepted> {
        match self {
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
            Listener::Tcp(listener, tls) => {
                let (stream, from) = listener.accept().await?;
                // Answers are short: nobody waits for more to send. What fails here fails again when it is used.
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream, from.ip(), tls.clone()))
            }
        }
    }
}

/// A listener at work.
pub(crate) struct Serving {
    pub(crate) listener: Listener,
    pub(crate) app: Router,
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) times: Times,
}

impl Serving {
    /// Serves until it is stopped, then lets the answers under way end.
    pub(crate) async fn run(self) {
        let Serving { listener, app, mut stopped, times } = self;
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let strangers = Arc::new(Strangers::default());
        let mut connections = JoinSet::new();
        loop {
            let next = async {
                let accepted = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(_) => {
                        // Out of file descriptors, most likely: it passes.
                        sleep(Duration::from_millis(50)).await;
                        return None;
                    }
                };
                let seat = match &accepted {
                    Accepted::Unix(_) => None,
                    Accepted::Tcp(_, from, _) => Some(strangers.enter(*from)),
                };
                let place = match places.clone().try_acquire_owned() {
                    Ok(place) => place,
                    Err(_) => {
                        // Where one was asked to leave, there will be a place.
                        if let Some((seat, false)) = &seat {
                            strangers.make_room(seat);
                        }
                        places.clone().acquire_owned().await.ok()?
                    }
                };
                Some((accepted, seat.map(|(seat, _)| seat), place))
            };
            let (accepted, seat, place) = tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => break,
                next = next => match next {
                    Some(next) => next,
                    None => continue,
                },
            };
            let guest = Guest { app: app.clone(), stopped: stopped.clone(), times, seat, _place: place };
            match accepted {
                Accepted::Unix(stream) => drop(connections.spawn(guest.talk(stream))),
                Accepted::Tcp(stream, _, None) => {
                    drop(connections.spawn(guest.talk(Impatient::new(stream, times.read))));
                }
                Accepted::Tcp(stream, _, Some(tls)) => drop(connections.spawn(guest.secure(stream, tls))),
            }
            while connections.try_join_next().is_some() {}
            // A question that is here already is read before the next connection is taken: it may have a token.
            yield_now().await;
        }
        drop(listener);
        let _ = timeout(times.grace, async { while connections.join_next().await.is_some() {} }).await;
    }
}

/// Who has a connection.
struct Guest {
    app: Router,
    stopped: watch::Receiver<bool>,
    times: Times,
    /// Among the strangers, on TCP.
    seat: Option<Arc<Seat>>,
    _place: OwnedSemaphorePermit,
}

/// How a connection ended.
enum End {
    /// By itself, or because of what the client did wrong, who has been told.
    Over,
    /// A request's head took too long.
    Late,
    /// There was no room for one more stranger.
    Crowded,
}

impl Guest {
    /// Returns when it has to leave; never, if nobody may ask it to.
    async fn asked_to_leave(&self) {
        match &self.seat {
            Some(seat) => seat.asked_to_leave().await,
            None => pending().await,
        }
    }

    /// Speaks TLS first. Handshakes need no bound of their own: one thread computes them, one after the other, and who keeps one waiting keeps
    /// nothing but its place among the strangers. Who does not speak TLS, or dawdles over it, hears no more.
    async fn secure(self, stream: tokio::net::TcpStream, tls: Tls) {
        let secured = {
            let mut stopped = self.stopped.clone();
            let handshake = tls.acceptor().accept(Impatient::new(stream, self.times.read));
            tokio::select! {
                secured = timeout(self.times.head, handshake) => secured,
                () = self.asked_to_leave() => return,
                _ = stopped.wait_for(|stop| *stop) => return,
            }
        };
        if let Ok(Ok(stream)) = secured {
            self.talk(stream).await;
        }
    }

    /// Answers until one of both has had enough.
    async fn talk(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut stream = Heard::new(stream);
        let end = self.serve(&mut stream).await;
        // An idle connection ends without a word.
        let (status, what) = match end {
            End::Late if stream.is_waited_for() => {
                ("408 Request Timeout", format!("the request's head took more than {:?}", self.times.head))
            }
            End::Crowded if stream.is_waited_for() => {
                let what = "too many connections without a token: send one that is in control.token_file";
                ("429 Too Many Requests", what.to_owned())
            }
            _ => return,
        };
        let _ = timeout(FAREWELL, say(&mut stream, status, &what)).await;
    }

    async fn serve(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> End {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(self.times.head).max_buf_size(HEAD_BYTES);
        let app = TowerToHyperService::new(self.app.clone());
        let seat = self.seat.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            if let Some(seat) = &seat {
                request.extensions_mut().insert(seat.clone());
            }
            app.call(request)
        });
        let mut stopped = self.stopped.clone();
        let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            done = serving.as_mut() => {
                return match done {
                    Err(error) if error.is_timeout() => End::Late,
                    _ => End::Over,
                };
            }
            () = self.asked_to_leave() => return End::Crowded,
            _ = stopped.wait_for(|stop| *stop) => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
        End::Over
    }
}

/// Answers what was not asked to its end, and closes.
async fn say(mut stream: impl AsyncWrite + Unpin, status: &str, what: &str) -> std::io::Result<()> {
    let body = serde_json::json!({ "error": what }).to_string();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        match poll_fn(|context| Pin::new(&mut stream).poll_write(context, rest)).await? {
            0 => return Ok(()),
            sent => rest = &rest[sent..],
        }
    }
    poll_fn(|context| Pin::new(&mut stream).poll_flush(context)).await?;
    poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await
}
