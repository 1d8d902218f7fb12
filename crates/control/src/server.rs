//! The server: a thread with a small asynchronous runtime that serves a [`Registry`] until it is dropped.

use crate::registry::Registry;
use crate::serve::{self, Serving};
use crate::socket::{self, SocketFile};
use crate::stream::Streams;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// Threads for handlers; more calls than that wait their turn.
const HANDLER_THREADS: usize = 16;

/// How long answers that are under way may take to end when the server closes.
const GRACE: Duration = Duration::from_secs(1);

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
    streams: Arc<Streams>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds `path` (mode 0660, its folder is made if it is missing) and serves. A socket that a killed process left
    /// behind is replaced; one at which somebody answers is not.
    ///
    /// # Errors
    /// The socket cannot be made, or a verb is registered wrongly.
    pub fn start(registry: Registry, path: &Path) -> Result<Server, ServerError> {
        let streams = Arc::new(Streams::default());
        let app = serve::router(registry, &streams)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(HANDLER_THREADS)
            .thread_name("control-verb")
            .build()?;
        let (listener, file) = {
            let _inside = runtime.enter();
            socket::bind(path)?
        };
        let (stop, stopped) = watch::channel(false);
        let serving = Serving { listener, app, stopped, grace: GRACE };
        let thread = thread::Builder::new().name("control".to_owned()).spawn(move || {
            runtime.block_on(serving.run());
            // A handler that never returns must not keep the process from ending.
            runtime.shutdown_background();
        })?;
        Ok(Server { file: Some(file), stop, streams, thread: Some(thread) })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), SocketFile::path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // First of all, so that a successor may take the place.
        self.file = None;
        let _ = self.stop.send(true);
        self.streams.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.streams.wait(GRACE);
    }
}
