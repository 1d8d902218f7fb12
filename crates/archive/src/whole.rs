//! Reading small files whole.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a pipe is waited for.
const WAIT: Duration = Duration::from_secs(30);
/// How often one is asked that has nothing.
const PAUSE: Duration = Duration::from_millis(10);

/// All of a file of at most `most` bytes, as it is. What a configuration names may be anything: a device may have no end, and is not read. Of a pipe what comes within 30 seconds has to be all.
///
/// # Errors
/// As the operating system says; it is neither a file nor a pipe, is longer than that, or did not come in time.
pub fn read_whole(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_within(path, most, WAIT)
}

fn read_within(path: &Path, most: u64, wait: Duration) -> io::Result<Vec<u8>> {
    // Opening may do something to a device already; and the path may mean something else when it is opened.
    readable(&fs::metadata(path)?)?;
    let file = open(path)?;
    let data = file.metadata()?;
    let is_pipe = readable(&data)?;
    let long = || io::Error::other(format!("longer than {most} bytes"));
    if data.len() > most {
        return Err(long());
    }
    let (mut file, mut bytes) = (file.take(most.saturating_add(1)), Vec::new());
    let ends = Instant::now() + wait;
    loop {
        match file.read_to_end(&mut bytes) {
            // Nobody has begun to write.
            Ok(_) if is_pipe && bytes.is_empty() => {}
            Ok(_) if bytes.len() as u64 > most => return Err(long()),
            Ok(_) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= ends {
            let seconds = wait.as_secs_f32();
            let what = format!("a pipe whose writer was not done within {seconds} s: give a file");
            return Err(io::Error::new(ErrorKind::TimedOut, what));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Without waiting for whoever writes to a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.read(true).open(path)
}

/// Whether it is a pipe; refuses what is neither that nor a file.
pub(crate) fn readable(data: &Metadata) -> io::Result<bool> {
    #[cfg(unix)]
    let is_pipe = std::os::unix::fs::FileTypeExt::is_fifo(&data.file_type());
    #[cfg(not(unix))]
    let is_pipe = false;
    match data.is_file() || is_pipe {
        true => Ok(is_pipe),
        false => Err(io::Error::other("a device or a folder, and no file")),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_has_no_end_or_never_comes_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7_u8; 100]).unwrap();
        assert_eq!(read_whole(&path, 100).unwrap(), [7; 100]);
        assert_eq!(read_whole(&path, 99).unwrap_err().to_string(), "longer than 99 bytes");
        for no_file in [Path::new("/dev/zero"), folder.path()] {
            let error = read_whole(no_file, 100).unwrap_err().to_string();
            assert_eq!(error, "a device or a folder, and no file");
        }
        assert_eq!(read_whole(&folder.path().join("none"), 9).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_pipe_is_read_to_its_end_and_not_waited_for_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let soon = Duration::from_millis(100);
        let late = |error: io::Error| assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        late(read_within(&path, 100, soon).unwrap_err());
        // Somebody who could write, and does not.
        let idle = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        late(read_within(&path, 100, soon).unwrap_err());
        drop(idle);
        let written = |parts: &[&[u8]]| {
            let reader = std::thread::spawn({
                let path = path.clone();
                move || read_whole(&path, 100)
            });
            // It waits for the reader.
            let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
            for part in parts {
                // Who has read enough may have gone.
                let _ = writer.write_all(part);
                std::thread::sleep(2 * PAUSE);
            }
            drop(writer);
            reader.join().unwrap()
        };
        assert_eq!(written(&[b"some ", b"text"]).unwrap(), b"some text");
        assert_eq!(written(&[&[7; 101]]).unwrap_err().to_string(), "longer than 100 bytes");
    }
}
