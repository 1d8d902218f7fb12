//! The server: a thread with a small asynchronous runtime that serves a [`Registry`] until it is dropped.

use crate::connections::{Listener, Serving};
use crate::foreign;
use crate::registry::{Handler, Registry};
use crate::serve::{self, Times};
use crate::socket::{self, SocketFile};
use crate::stream::Streams;
use crate::tcp::{self, Bound, Tcp};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Threads for handlers of the socket; more calls than that wait their turn.
const HANDLER_THREADS: usize = 16;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A process answers at the path.
    #[error("{}: another process answers here: stop it, or give [control] another socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is at the path.
    #[error("{}: is there already and is no socket: remove it, or give [control] another socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The folder cannot be made.
    #[error("{}: the control socket's folder cannot be made: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The socket cannot be made: permissions, a path of more than 107 bytes.
    #[error("{}: the control socket cannot be made: {error}", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An address on the network, and no certificate.
    #[error(
        "control.listen: {address} is no loopback address: give control.certificate and control.key, for tokens would be readable on their way"
    )]
    NeedsTls {
        /// The address.
        address: SocketAddr,
    },
    /// An address that cannot be listened at.
    #[error("control.listen: {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The thread or its runtime cannot be made.
    #[error("the control socket's thread cannot be started: {0}")]
    Thread(#[from] io::Error),
    /// A wrong registration.
    #[error("the verb {method} {path}: {why}")]
    Verb {
        /// The method.
        method: String,
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A served [`Registry`]. Dropping it stops serving (answers under way get a second to end) and removes the socket.
pub struct Server {
    file: Option<SocketFile>,
    stop: watch::Sender<bool>,
    streams: [Arc<Streams>; 2],
    times: Times,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Binds `path` (mode 0660, its folder is made if it is missing) and serves. A socket that a killed process left
    /// behind is replaced; one at which somebody answers is not.
    ///
    /// # Errors
    /// The socket cannot be made, or a verb is registered wrongly.
    pub fn start(registry: Registry, path: &Path) -> Result<Server, ServerError> {
        Self::start_with(registry, path, None, Times::default())
    }

    /// The same, and on TCP for who has a token. Port 0 is any free one: see [`addresses`](Self::addresses).
    ///
    /// # Errors
    /// As above; an address that cannot be had, or one of a network without TLS.
    pub fn start_on(registry: Registry, path: &Path, tcp: Option<Tcp>) -> Result<Server, ServerError> {
        Self::start_with(registry, path, tcp, Times::default())
    }

    /// The same, at addresses that were [bound](Tcp::bind) before.
    ///
    /// # Errors
    /// As above.
    pub fn start_bound(registry: Registry, path: &Path, bound: Option<Bound>) -> Result<Server, ServerError> {
        Self::serve(registry, path, bound, Times::default())
    }

    fn start_with(
        registry: Registry,
        path: &Path,
        tcp: Option<Tcp>,
        times: Times,
    ) -> Result<Server, ServerError> {
        let bound = tcp.as_ref().map(Tcp::bind).transpose()?;
        Self::serve(registry, path, bound, times)
    }

    fn serve(
        registry: Registry,
        path: &Path,
        bound: Option<Bound>,
        times: Times,
    ) -> Result<Server, ServerError> {
        let streams = [(); 2].map(|()| Arc::new(Streams::default()));
        let packets = registry.verbs.iter().filter(|verb| {
            matches!(verb.handler, Handler::Stream(_)) || registry.packets.contains(&verb.path)
        });
        let packets: HashSet<String> = packets.map(|verb| verb.path.clone()).collect();
        let (stop, stopped) = watch::channel(false);
        let app = serve::router(registry, &streams, &stopped, times)?;
        let serving = |listener, app| Serving { listener, app, stopped: stopped.clone(), times };
        let (mut addresses, mut threads) = (Vec::new(), Vec::new());
        let mut network = None;
        if let Some(Bound { tcp, listeners }) = bound {
            // What strangers have computed for them (handshakes, above all) takes nothing from the socket's thread.
            let (runtime, mut all) = (runtime("control-net-verb", tcp::HANDLERS)?, Vec::new());
            let inside = runtime.enter();
            let guarded = tcp::guarded(app.clone(), tcp.tokens.clone(), packets);
            for (listener, address) in listeners.into_iter().zip(&tcp.addresses) {
                let failed = |error| ServerError::Listen { address: *address, error };
                addresses.push(listener.local_addr().map_err(failed)?);
                let listener = TcpListener::from_std(listener).map_err(failed)?;
                all.push(serving(Listener::Tcp(listener, tcp.tls.clone()), guarded.clone()));
            }
            drop(inside);
            network = Some((runtime, all));
        }
        let runtime = runtime("control-verb", HANDLER_THREADS)?;
        let (listener, file) = {
            let _inside = runtime.enter();
            socket::bind(path)?
        };
        threads.push(serve(
            "control",
            runtime,
            vec![serving(Listener::Unix(listener), foreign::by_name(app))],
        )?);
        if let Some((runtime, all)) = network {
            threads.push(serve("control-net", runtime, all)?);
        }
        Ok(Server { file: Some(file), stop, streams, times, addresses, threads })
    }

    /// The addresses on TCP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), SocketFile::path)
    }
}

/// A runtime of one thread, and so many for handlers.
fn runtime(name: &str, handlers: usize) -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(handlers)
        .thread_name(name)
        .build()
}

/// Serves on a thread until told to stop.
fn serve(name: &str, runtime: Runtime, all: Vec<Serving>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut running = JoinSet::new();
            all.into_iter().for_each(|serving| drop(running.spawn(serving.run())));
            while running.join_next().await.is_some() {}
        });
        // A handler that never returns must not keep the process from ending.
        runtime.shutdown_background();
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        // First of all, so that a successor may take the place.
        self.file = None;
        let _ = self.stop.send(true);
        self.streams.iter().for_each(|streams| streams.close());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        for streams in &self.streams {
            streams.wait(self.times.grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, ClientError, Request};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(100);
    const EVER: Duration = Duration::from_secs(3600);

    /// A server without patience; its handler at /v1/stuck returns when the sender is dropped.
    fn impatient(folder: &Path) -> (Server, Sender<()>) {
        server(folder, Times { head: SHORT, body: SHORT, handler: SHORT, grace: SHORT, ..Times::default() })
    }

    fn server(folder: &Path, times: Times) -> (Server, Sender<()>) {
        let (release, released) = channel::<()>();
        let released = std::sync::Mutex::new(released);
        let mut registry = Registry::new("testmill", "9.9");
        registry.get("/v1/stuck", "", move |_: &Request| {
            let _ = released.lock().map(|released| released.recv());
            Ok(())
        });
        registry.post("/v1/echo", "", |request: &Request| request.json::<u32>());
        (Server::start_with(registry, &folder.join("s.sock"), None, times).unwrap(), release)
    }

    fn answer(server: &Server, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap(); // Until the server closes.
        answer
    }

    #[test]
    fn dawdlers_are_shut_out() {
        let folder = tempfile::tempdir().unwrap();
        let (server, _release) = impatient(folder.path());
        for request in ["", "GET /v1 HT", "GET /v1 HTTP/1.1\r\nHost: a\r\n"] {
            let answer = answer(&server, request.as_bytes());
            // Who has said nothing hears nothing.
            let late = answer.starts_with("HTTP/1.1 408 ") && answer.contains("head took more than 100ms");
            assert!(if request.is_empty() { answer.is_empty() } else { late }, "{request}: {answer}");
        }
        // A machine that stands still makes a dawdler of anybody, now and then.
        let whole = || answer(&server, b"GET /v1 HTTP/1.1\r\n\r\n");
        let idle = (0..20).map(|_| whole()).find(|answer| answer.starts_with("HTTP/1.1 200"));
        let idle = idle.unwrap_or_else(whole);
        assert!(idle.starts_with("HTTP/1.1 200"), "answered, then shut out: {idle}");
        assert_eq!(idle.matches("HTTP/1.1 ").count(), 1, "without a word: {idle}");
        let body = answer(&server, b"POST /v1/echo HTTP/1.1\r\nContent-Length: 2\r\n\r\n1");
        assert!(body.starts_with("HTTP/1.1 408") && body.contains("took more than 100ms"), "{body}");
    }

    #[test]
    fn dawdlers_hold_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let patient = Times { head: EVER, body: EVER, handler: EVER, grace: SHORT, ..Times::default() };
        let (server, _release) = server(folder.path(), patient);
        let parts: [&[u8]; 3] =
            [b"", b"GET /v1/ech", b"POST /v1/echo HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"];
        let dawdle = |number: usize| {
            let mut stream = UnixStream::connect(server.path()).unwrap();
            stream.write_all(parts[number % 3]).unwrap();
            stream
        };
        let dawdlers: Vec<UnixStream> = (0..60).map(dawdle).collect();
        let client = Client::new(server.path()).unwrap();
        (0..20).for_each(|n| assert_eq!(client.post::<u32>("/v1/echo", &n).unwrap(), n));
        drop(server); // Returns, although they would dawdle for an hour.
        drop(dawdlers);
    }

    #[test]
    fn a_handler_that_does_not_return_costs_its_caller_an_error_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let (server, release) =
            server(folder.path(), Times { handler: SHORT, grace: SHORT, ..Times::default() });
        let client = Client::new(server.path()).unwrap();
        let error = client.get::<()>("/v1/stuck", &()).unwrap_err();
        assert!(matches!(error, ClientError::Answer { status: 500, .. }), "{error}");
        assert!(error.to_string().contains("no answer within 100ms"), "{error}");
        // Where this machine stands still another one may take as long.
        let echo = |_| match client.post::<u32>("/v1/echo", &7) {
            Err(error) if error.to_string().contains("no answer within") => None,
            answer => Some(answer.unwrap()),
        };
        assert_eq!((0..20).find_map(echo), Some(7));
        drop(server); // Does not wait for the handler.
        assert!(!folder.path().join("s.sock").exists());
        drop(release);
    }

    /// Who asks and does not read what comes loses the place on the network, and keeps it on the socket, where an operator may be looking at it.
    #[test]
    fn who_does_not_read_loses_the_place_on_the_network() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "a all admin-admin-admin-admin-admin\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tokens = Arc::new(crate::Tokens::read(&path).unwrap());
        let tcp = Tcp { addresses: vec!["127.0.0.1:0".parse().unwrap()], tokens, tls: None };
        let (tell, ended) = channel();
        let tell = std::sync::Mutex::new(tell);
        let mut registry = Registry::new("testmill", "9.9");
        registry.stream("/v1/endless", "", move |request: &Request| {
            let (name, tell) =
                (format!("{:?}", request.query::<Vec<(String, String)>>()), tell.lock().unwrap().clone());
            Ok(crate::Stream::new("text/plain", move |sink| {
                let result = (0..).try_for_each(|_| sink.send(vec![b'x'; 65536]));
                let _ = tell.send(name);
                result
            }))
        });
        let times = Times { read: SHORT, ..Times::default() };
        let server = Server::start_with(registry, &folder.path().join("s.sock"), Some(tcp), times).unwrap();
        let mut socket = UnixStream::connect(server.path()).unwrap();
        socket.write_all(b"GET /v1/endless?by=socket HTTP/1.1\r\nHost: tidemill\r\n\r\n").unwrap();
        let mut network = std::net::TcpStream::connect(server.addresses()[0]).unwrap();
        network
            .write_all(
                b"GET /v1/endless?by=network HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer admin-admin-admin-admin-admin\r\n\r\n",
            )
            .unwrap();
        let first = ended.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(first.contains("network"), "{first}");
        // The other one is still served: much more comes than can have been under way.
        let mut bytes = vec![0; 1 << 20];
        (0..30).for_each(|_| socket.read_exact(&mut bytes).unwrap());
        drop(socket);
        assert!(ended.recv_timeout(Duration::from_secs(20)).unwrap().contains("socket"));
    }
}
