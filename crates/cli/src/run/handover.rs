//! The file of `nat.handover` or `filter.handover`: written while the role runs and when it stops, read when it starts, here or on another box. Connections go on.
//!
//! What a box knows of the last seconds before it dies is lost with it: connections that began within `handover_s` seconds. The image is written
//! beside the file, and moved over it, so that one or the other is there and whole. A file that is there and none of ours is not written over.

use super::router::replace;
use super::service::{lock, now_ns};
use crate::usage;
use crate::usage::one_line;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_lookup::image;

/// What is larger and has only zeros in it, as a disk's image, is none of ours.
const MOST_ZEROS: u64 = 1 << 30;

/// A control side whose tables can be handed over.
pub(super) trait HandsOver {
    /// The key that names the file.
    const KEY: &'static str;
    /// What is in it.
    const WHAT: &'static str;
    /// The kind of its images.
    const KIND: &'static str;
    /// What reads the tables beside the workers and the control side.
    type Exporter;

    /// Goes on with an image; how much of it, and how much does not fit.
    ///
    /// # Errors
    /// It is none.
    fn go_on(&mut self, now_ms: u64, image: &[u8]) -> Result<(usize, usize)>;
    /// See [`Exporter`](Self::Exporter).
    fn reads(&self) -> Self::Exporter;
    /// An image of now.
    ///
    /// # Errors
    /// It would be refused, which is a fault of the program.
    fn image(exporter: &Self::Exporter, now_ms: u64) -> Result<Vec<u8>>;
}

/// See the [module](self).
pub(super) struct HandoverFile {
    path: PathBuf,
    every: Duration,
}

impl HandoverFile {
    pub(super) fn new(path: Option<&PathBuf>, every_s: u32) -> Option<Self> {
        Some(HandoverFile { path: path?.clone(), every: Duration::from_secs(every_s.into()) })
    }

    /// Refuses a file that is not ours to write.
    ///
    /// # Errors
    /// What it is instead.
    pub(super) fn check<C: HandsOver>(path: Option<&PathBuf>, name: &str) -> Result<()> {
        match path.and_then(|path| Some((path, foreign(path, C::KIND)?))) {
            Some((path, what)) => Err(usage(format!("{name}: {}: {}: {what}", C::KEY, path.display()))),
            None => Ok(()),
        }
    }

    /// Goes on with what the file says, if there is one; what is wrong with it is said, and the role starts without.
    pub(super) fn take<C: HandsOver>(&self, name: &str, control: &mut C) {
        let (path, key, what) = (self.path.display(), C::KEY, C::WHAT);
        let image = match std::fs::read(&self.path) {
            Ok(image) => image,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                return eprintln!("tidemill: warning: {name}: {key}: {path}: {error}: starting without it");
            }
        };
        match control.go_on(now_ns() / 1_000_000, &image) {
            Ok((taken, left_out)) => {
                eprintln!("tidemill: {path}: {taken} {what} go on, {left_out} do not fit this configuration");
            }
            Err(error) => {
                let error = one_line(&error);
                eprintln!("tidemill: warning: {name}: {path}: {error}: starting without it");
            }
        }
    }

    /// Writes the file when it is due, until `done`.
    pub(super) fn watch<C: HandsOver>(&self, control: &Mutex<C>, done: &AtomicBool) {
        let (mut last, mut said) = (Instant::now(), None);
        while !done.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
            if last.elapsed() < self.every {
                continue;
            }
            last = Instant::now();
            let error = self.save(control).err().map(|error| one_line(&error));
            if error != said {
                let what = C::WHAT;
                error.iter().for_each(|error| eprintln!("tidemill: warning: {error}: {what} are not saved"));
                said = error;
            }
        }
    }

    /// Writes the last one, when all workers have stopped.
    pub(super) fn end<C: HandsOver>(&self, control: &Mutex<C>) {
        if let Err(error) = self.save(control) {
            eprintln!("tidemill: warning: {}: {} are not saved", one_line(&error), C::WHAT);
        }
    }

    /// Writes the file now; if that fails the last one is still there.
    fn save<C: HandsOver>(&self, control: &Mutex<C>) -> Result<()> {
        // Somebody may have put it there since the start.
        if let Some(what) = foreign(&self.path, C::KIND) {
            bail!("{}: {}: {what}", C::KEY, self.path.display());
        }
        // Whoever asks the control side something meanwhile does not wait for the whole table.
        let exporter = lock(control).reads();
        let image = C::image(&exporter, now_ns() / 1_000_000)
            .context("this is a fault of the program, please report it")?;
        replace(&self.path, &image).with_context(|| format!("{}: cannot write", self.path.display()))
    }
}

/// Why a file is not ours to write, if it is not: ours is one that is not there, has nothing or only zeros in it, or begins as our images do.
fn foreign(path: &Path, kind: &str) -> Option<&'static str> {
    if path.is_symlink() {
        // The image would be put in its place.
        return Some("is a link: name the file that it leads to");
    }
    let Ok(data) = std::fs::metadata(path) else {
        return path.file_name().is_none().then_some("names no file: give one, or leave it out");
    };
    if data.is_dir() {
        return Some("is a folder: name a file in it");
    }
    if !data.is_file() {
        return Some("is no file that can be written anew: give another name");
    }
    let mut begin = Vec::new();
    // Who may not read it any more could when it was started.
    File::open(path).ok()?.take(image::HEADER as u64).read_to_end(&mut begin).ok()?;
    let ours = image::is_begun(&begin, kind) || (is_zeros(&begin) && is_lost(path, data.len()));
    (!ours).then_some("is there already and was not written for this: give another name, or remove it")
}

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether a file is empty, or has only zeros in it: what a loss of power leaves of one that was being copied here.
fn is_lost(path: &Path, bytes: u64) -> bool {
    let Ok(mut file) = File::open(path) else { return false };
    if bytes > MOST_ZEROS {
        return false;
    }
    let mut piece = vec![0_u8; 1 << 16];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return true,
            Ok(read) if is_zeros(&piece[..read]) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_lookup::image::ImageBuilder;

    #[test]
    fn what_is_there_and_not_ours_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            foreign(&path, "nat-sessions")
        };
        let image = |kind| ImageBuilder::new(kind, 1, 32).finish();
        assert_eq!((foreign(&path, "nat-sessions"), of(b""), of(&image("nat-sessions"))), (None, None, None));
        // A damaged one of ours is of no use to anybody.
        for length in [8, 20, 31, 40] {
            assert_eq!(of(&image("nat-sessions")[..length]), None, "{length} bytes");
        }
        assert_eq!((of(&[0; 40]), of(&[0; 100_000])), (None, None), "lost with the power");
        let said = "is there already and was not written for this: give another name, or remove it";
        let (other, alike) = (image("filter-states"), image("nat-session"));
        let mut disk = vec![0_u8; 100_000];
        disk[99_999] = 1;
        for bytes in [&b"block all\n"[..], b"TIDE", &other, &other[..20], &alike, &disk] {
            assert_eq!(of(bytes), Some(said));
        }
        let said = ["", ".", "/dev/null"].map(|path| foreign(Path::new(path), "nat-sessions").unwrap());
        assert!(said[0].starts_with("names no file") && said[1].starts_with("is a folder"), "{said:?}");
        assert!(said[2].starts_with("is no file"), "{said:?}");
        std::fs::write(&path, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(foreign(&link, "nat-sessions"), Some("is a link: name the file that it leads to"));
        let nowhere = folder.path().join("no/file");
        assert_eq!(foreign(&nowhere, "nat-sessions"), None, "it says so when it writes");
    }
}
