//! The file of `nat.handover` or `filter.handover`: written while the role runs and when it stops, read when it starts, here or on another box. Connections go on.
//!
//! What a box knows of the last seconds before it dies is lost with it: connections that began within `handover_s` seconds. The image is written
//! beside the file, and moved over it, so that one or the other is there and whole. A file that is there and none of ours is not written over.

use super::service::{lock, now_ns};
use super::written::{foreign, read_image, remove_left, replace};
use crate::usage;
use crate::usage::one_line;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
        remove_left(&self.path, C::KIND);
        let image = match read_image(&self.path) {
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
