//! The file of `nat.handover`: written while the NAT runs and when it stops, read when it starts, here or on another box. Connections go on.
//!
//! What a box knows of the last seconds before it dies is lost with it: connections that began within `handover_s` seconds. The image is written
//! beside the file, and moved over it, so that one or the other is there and whole.

use crate::run::router::replace;
use crate::run::service::{lock, now_ns};
use crate::usage::one_line;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_nf::nat::image::Sessions;
use tidemill_nf::nat::{NatControl, NatSection};

/// See the [module](self).
pub(super) struct HandoverFile {
    path: PathBuf,
    every: Duration,
}

impl HandoverFile {
    pub(super) fn new(section: &NatSection) -> Option<Self> {
        let path = section.handover.clone()?;
        Some(HandoverFile { path, every: Duration::from_secs(section.handover_s.into()) })
    }

    /// Goes on with what the file says, if there is one; what is wrong with it is said, and the NAT starts without.
    pub(super) fn take(&self, name: &str, nat: &mut NatControl) {
        let path = self.path.display();
        let image = match std::fs::read(&self.path) {
            Ok(image) => image,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                return eprintln!("tidemill: {name}: nat.handover: {path}: {error}: starting without it");
            }
        };
        match nat.import(now_ns() / 1_000_000, &image) {
            Ok(taken) => eprintln!(
                "tidemill: {path}: {} sessions go on, {} do not fit this configuration",
                taken.sessions, taken.left_out
            ),
            Err(error) => eprintln!("tidemill: {name}: {path}: {error}: starting without it"),
        }
    }

    /// Writes the file when it is due, until `done`.
    pub(super) fn watch(&self, control: &Mutex<NatControl>, done: &AtomicBool) {
        let (mut last, mut said) = (Instant::now(), None);
        while !done.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
            if last.elapsed() < self.every {
                continue;
            }
            last = Instant::now();
            let error = self.save(control).err().map(|error| one_line(&error));
            if error != said {
                error
                    .iter()
                    .for_each(|error| eprintln!("tidemill: warning: {error}: sessions are not saved"));
                said = error;
            }
        }
    }

    /// Writes the file now.
    ///
    /// # Errors
    /// What went wrong; the last one is still there.
    pub(super) fn save(&self, control: &Mutex<NatControl>) -> Result<()> {
        // Whoever asks the NAT something meanwhile does not wait for the whole table.
        let exporter = lock(control).exporter();
        let image = exporter.export(now_ns() / 1_000_000);
        // One that would be refused is found out now, not when it is needed.
        Sessions::decode(&image).context("this is a fault of the program, please report it")?;
        replace(&self.path, &image).with_context(|| format!("{}: cannot write", self.path.display()))
    }
}
