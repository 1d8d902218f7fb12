//! The socket as a file: made with the right permissions, taken over from the dead, never from the living.

use crate::server::ServerError;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tokio::net::{UnixListener, UnixSocket};

/// Owner and group may ask, nobody else.
const MODE: u32 = 0o660;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;

/// How long another process may take to make its socket in the same folder, in tries of 20 ms.
const LOCK_TRIES: u32 = 100;

/// The path that we are bound to; dropping it removes the file, if it is still ours.
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have put another one there by hand.
        if fs::symlink_metadata(&self.path).is_ok_and(|data| (data.dev(), data.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds and listens. Has to run inside a tokio runtime.
pub(crate) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), ServerError> {
    let failed = |error: io::Error| ServerError::Bind { path: path.to_owned(), error };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(|error| ServerError::Folder { path: folder.to_owned(), error })?;
    // Between finding a dead socket and replacing it, nobody else may do the same.
    let _lock = lock(folder).map_err(failed)?;
    remove_dead(path)?;
    let socket = UnixSocket::new_stream().map_err(failed)?;
    // Linux gives the file the socket's mode less the umask: so it is never wider than it is meant to be.
    File::from(socket.as_fd().try_clone_to_owned().map_err(failed)?)
        .set_permissions(Permissions::from_mode(MODE))
        .map_err(failed)?;
    socket.bind(path).map_err(failed)?;
    let data = fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), identity: (data.dev(), data.ino()) };
    fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(failed)?;
    let listener = socket.listen(BACKLOG).map_err(failed)?;
    Ok((listener, file))
}

/// An advisory lock on the folder, given back when the file is closed.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(20)),
            // Some file systems lock no folders; the lock only guards against a race.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
    Err(io::Error::new(ErrorKind::WouldBlock, "another process holds a lock on its folder: try again"))
}

/// Removes a socket at which nobody listens.
fn remove_dead(path: &Path) -> Result<(), ServerError> {
    let failed = |error: io::Error| ServerError::Bind { path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(data) if !data.file_type().is_socket() => {
            return Err(ServerError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ServerError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        // Gone meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        // A full backlog (EAGAIN), or one that we may not reach: somebody lives there.
        Err(_) => Err(ServerError::InUse { path: path.to_owned() }),
    }
}
