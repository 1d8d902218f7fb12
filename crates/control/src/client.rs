//! The other end: asks a running service, blocking, one connection per call.
//!
//! A service that has been stopped (SIGSTOP, Ctrl-Z, a debugger) still takes connections, and never answers: the kernel does the former. Who waits for it is told so
//! after a second, with its process; for one that is only slow he waits as long as the [patience](Client::with_patience) lasts.

use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// How long an answer may take if nobody says otherwise; a little more than the server gives its handlers.
pub const PATIENCE: Duration = Duration::from_secs(65);

/// Bytes of an answer that is read whole, and of an error: whatever is at the socket, it does not fill the memory of who asks.
const LONGEST: usize = 1 << 30;
const LONGEST_ERROR: usize = 1 << 20;

/// How often somebody who waits looks whether the service has been stopped.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// How often a stream looks whether it is to stop.
const STOP_TIME: Duration = Duration::from_millis(50);

/// Why a call failed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No socket.
    #[error("nothing answers at {}: is `tidemill run` up with [control]? give --socket", path.display())]
    Missing {
        /// The socket.
        path: PathBuf,
    },
    /// A socket at which nobody listens.
    #[error(
        "nothing answers at {} any more (it was killed, perhaps): start it, or give --socket",
        path.display()
    )]
    Refused {
        /// The socket.
        path: PathBuf,
    },
    /// Not our socket.
    #[error("{}: permission denied: ask as root, or as a member of the socket's group", path.display())]
    Permission {
        /// The socket.
        path: PathBuf,
    },
    /// Anything else on the way.
    #[error("{}: {why}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// A service that cannot answer.
    #[error("{}: process {process} is stopped (SIGSTOP, Ctrl-Z or a debugger), so nothing answers: kill -CONT {process}", path.display())]
    Stopped {
        /// The socket.
        path: PathBuf,
        /// Who listens there.
        process: i32,
    },
    /// A service that does not answer.
    #[error("{}: no answer within {} s: what runs is busy or stuck: wait longer (--timeout), or look at it", path.display(), patience.as_secs_f64())]
    Late {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        patience: Duration,
    },
    /// The service said no.
    #[error("{message}")]
    Answer {
        /// The HTTP status.
        status: u16,
        /// The service's own line.
        message: String,
    },
    /// What was received could not be written.
    #[error("the answer cannot be written: {0}")]
    Write(io::Error),
}

/// Asks the service at a socket.
pub struct Client {
    path: PathBuf,
    runtime: Runtime,
    patience: Duration,
    /// The process at the other end of the last connection; 0 where it is not known (another PID namespace).
    process: AtomicI32,
}

impl Client {
    /// A client of the service at `socket`. Nothing is asked yet.
    ///
    /// # Errors
    /// The process has no file descriptors left, or the like.
    pub fn new(socket: &Path) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime
            .map_err(|error| ClientError::Broken { path: socket.to_owned(), why: error.to_string() })?;
        Ok(Client { path: socket.to_owned(), runtime, patience: PATIENCE, process: AtomicI32::new(0) })
    }

    /// Waits so long for an answer, instead of [`PATIENCE`]; for a [stream](Self::stream), until it begins.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Client { patience, ..self }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks. `query` is a struct of optional fields, or `&()`.
    ///
    /// # Errors
    /// Nobody answers, or the service said no.
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, ClientError> {
        self.call(Method::GET, path, query, None)
    }

    /// Sends a JSON body.
    ///
    /// # Errors
    /// Nobody answers, or the service said no.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.broken(error))?;
        self.call(Method::POST, path, &(), Some(body))
    }

    /// Removes what the query names.
    ///
    /// # Errors
    /// Nobody answers, or the service said no.
    pub fn delete<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, ClientError> {
        self.call(Method::DELETE, path, query, None)
    }

    /// Writes an answer that comes in pieces, until it ends or `stop` is set. Returns the number of bytes.
    ///
    /// # Errors
    /// Nobody answers, the service said no, it went away in the midst of it, or `out` cannot be written.
    pub fn stream(
        &self,
        path: &str,
        query: &impl Serialize,
        out: &mut impl Write,
        stop: &AtomicBool,
    ) -> Result<u64, ClientError> {
        let target = self.target(path, query)?;
        self.runtime.block_on(async {
            let mut answer = self.answered(self.ask(Method::GET, target, None)).await?;
            let (mut bytes, mut heard) = (0, Instant::now());
            while !stop.load(Ordering::Relaxed) {
                let Ok(piece) = timeout(STOP_TIME, answer.body_mut().frame()).await else {
                    // Nothing may happen for long; not even then, from who is stopped.
                    if heard.elapsed() >= LOOK_TIME {
                        self.stopped()?;
                        heard = Instant::now();
                    }
                    continue;
                };
                heard = Instant::now();
                let Some(piece) = piece else { break };
                let piece =
                    piece.map_err(|_| self.broken("the router went away in the midst of the answer"))?;
                if let Ok(piece) = piece.into_data() {
                    out.write_all(&piece).map_err(ClientError::Write)?;
                    bytes += piece.len() as u64;
                }
            }
            out.flush().map_err(ClientError::Write)?;
            Ok(bytes)
        })
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &impl Serialize,
        body: Option<Vec<u8>>,
    ) -> Result<T, ClientError> {
        let target = self.target(path, query)?;
        let answer = self.runtime.block_on(async {
            let whole = async {
                let answer = self.answered(self.ask(method, target, body)).await?;
                self.whole(answer, LONGEST).await
            };
            self.in_time(whole).await
        })?;
        serde_json::from_slice(&answer)
            .map_err(|error| self.broken(format!("the answer is not what this version expects: {error}")))
    }

    fn target(&self, path: &str, query: &impl Serialize) -> Result<String, ClientError> {
        let query = serde_urlencoded::to_string(query).map_err(|error| self.broken(error))?;
        Ok(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
    }

    /// Sends a request; the connection goes on in the background, for the body.
    async fn ask(
        &self,
        method: Method,
        target: String,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.path).await.map_err(|error| self.unreachable(&error))?;
        let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
        self.process.store(process.unwrap_or(0), Ordering::Relaxed);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(error))?;
        tokio::spawn(connection);
        let request = hyper::Request::builder().method(method).uri(target).header(HOST, "tidemill");
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| self.broken(error))?;
        sender.send_request(request).await.map_err(|error| {
            if error.is_incomplete_message() {
                return self.broken("the router went away before it had answered");
            }
            self.broken(error)
        })
    }

    /// The response, if it is a good one.
    async fn answered(
        &self,
        asked: impl Future<Output = Result<Response<Incoming>, ClientError>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let answer = self.in_time(asked).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = self.in_time(self.whole(answer, LONGEST_ERROR)).await?;
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = match body["error"].as_str() {
            // It goes to a terminal, and may be anybody's.
            Some(line) => line.replace(|c: char| c.is_control() && c != '\n', " "),
            None => format!("{}: answers {status}", self.path.display()),
        };
        Err(ClientError::Answer { status: status.as_u16(), message })
    }

    /// The body of an answer, of so many bytes at most.
    async fn whole(&self, answer: Response<Incoming>, most: usize) -> Result<Bytes, ClientError> {
        let body = Limited::new(answer.into_body(), most).collect().await;
        body.map(Collected::to_bytes).map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => self.broken(format!("the answer has more than {most} bytes: is this a tidemill?")),
            Err(error) => self.broken(error),
        })
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let began = Instant::now();
        let mut work = pin!(work);
        loop {
            let left = self.patience.saturating_sub(began.elapsed());
            if let Ok(done) = timeout(left.min(LOOK_TIME), &mut work).await {
                return done;
            }
            self.stopped()?;
            if began.elapsed() >= self.patience {
                return Err(ClientError::Late { path: self.path.clone(), patience: self.patience });
            }
        }
    }

    /// An error if the service has been stopped.
    fn stopped(&self) -> Result<(), ClientError> {
        let process = self.process.load(Ordering::Relaxed);
        if process > 0 && is_stopped(process) {
            return Err(ClientError::Stopped { path: self.path.clone(), process });
        }
        Ok(())
    }

    fn broken(&self, why: impl std::fmt::Display) -> ClientError {
        ClientError::Broken { path: self.path.clone(), why: why.to_string() }
    }

    fn unreachable(&self, error: &io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            ErrorKind::NotFound => ClientError::Missing { path },
            ErrorKind::ConnectionRefused => ClientError::Refused { path },
            ErrorKind::PermissionDenied => ClientError::Permission { path },
            // The kernel lets no more wait.
            ErrorKind::WouldBlock => {
                self.broken("too many wait for an answer already: what runs is stopped or stuck")
            }
            _ => ClientError::Broken { path, why: error.to_string() },
        }
    }
}

/// Whether a process is stopped, as far as the system tells (proc(5): the third field of `stat`; the second may have anything in it).
fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}
