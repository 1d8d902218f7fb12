//! The file of `nat.handover` or `filter.handover`: written while the role runs and when it stops, read when it starts, here or on another box. Connections go on.
//!
//! What a box knows of the last seconds before it dies is lost with it: connections that began within `handover_s` seconds. The image is written
//! beside the file, and moved over it, so that one or the other is there and whole. A file that is there and none of ours is not written over.

use super::role::Opening;
use super::service::{lock, now_ns};
use super::setup::{clock, reads_captures};
use super::written::{foreign, keep_as, read_image, remove_left, replace};
use crate::usage;
use crate::usage::one_line;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
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

    /// Goes on with an image; how much of what is in it, in words, and how much does not fit.
    ///
    /// # Errors
    /// It is none.
    fn go_on(&mut self, now_ms: u64, image: &[u8]) -> Result<(String, usize)>;
    /// See [`Exporter`](Self::Exporter).
    fn reads(&self) -> Self::Exporter;
    /// An image of now.
    ///
    /// # Errors
    /// It would be refused, which is a fault of the program.
    fn image(exporter: &Self::Exporter, now_ms: u64) -> Result<Vec<u8>>;
}

/// Where an image is kept of which not all goes on.
pub(super) fn kept(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".old");
    path.with_file_name(name)
}

/// See the [module](self).
pub(super) struct HandoverFile {
    path: PathBuf,
    every: Duration,
}

impl HandoverFile {
    /// The file of this run, if one is named, whose control side goes on with what it says. A run that is recorded, or on captures, is no box: it takes nothing over, and
    /// leaves a box's file alone.
    pub(super) fn open<C: HandsOver>(
        opening: &Opening<'_>,
        is_recorded: bool,
        path: Option<&PathBuf>,
        every_s: u32,
        control: &mut C,
    ) -> Option<Self> {
        let file = HandoverFile { path: path?.clone(), every: Duration::from_secs(every_s.into()) };
        let Opening { config, name, .. } = *opening;
        if is_recorded || reads_captures(config) || clock(config).follows_packets() {
            eprintln!(
                "tidemill: {name}: {}: a run that is recorded, or on captures or by their clock, takes nothing over",
                C::KEY
            );
            return None;
        }
        file.take(name, control);
        Some(file)
    }

    /// Refuses a file that is not ours to write.
    ///
    /// # Errors
    /// What it is instead.
    pub(super) fn check<C: HandsOver>(path: Option<&PathBuf>, name: &str) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        let wrong = |what: &str| Err(usage(format!("{name}: {}: {}: {what}", C::KEY, path.display())));
        foreign(path, C::KIND).map_or(Ok(()), wrong)
    }

    /// Goes on with what the file says, if there is one; what is wrong with it is said, and the role starts without.
    fn take<C: HandsOver>(&self, name: &str, control: &mut C) {
        let (path, key) = (self.path.display(), C::KEY);
        remove_left(&self.path, C::KIND);
        let image = match read_image(&self.path) {
            Ok(image) => image,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let kept = self.keep::<C>();
                eprintln!("tidemill: warning: {name}: {key}: {path}: {error}: starting without it{kept}");
                return;
            }
        };
        match control.go_on(now_ns() / 1_000_000, &image) {
            Ok((taken, left_out)) => {
                let kept = if left_out > 0 { self.keep::<C>() } else { String::new() };
                eprintln!("tidemill: {path}: {taken} go on, {left_out} do not fit this configuration{kept}");
            }
            Err(error) => {
                // Of what was lost with the power nothing is to be kept.
                let is_lost = image.iter().all(|byte| *byte == 0);
                let kept = if is_lost { String::new() } else { self.keep::<C>() };
                let error = one_line(&error);
                eprintln!("tidemill: warning: {name}: {path}: {error}: starting without it{kept}");
            }
        }
    }

    /// Keeps an image of which not all goes on, beside the next one, which takes its place: with another configuration more of it may. Where it is, to be said.
    fn keep<C: HandsOver>(&self) -> String {
        let old = kept(&self.path);
        match keep_as(&self.path, &old, C::KIND) {
            Ok(()) => format!("; the file is kept as {}", old.display()),
            Err(error) => format!("; the file cannot be kept as {}: {error}", old.display()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_lookup::image::ImageBuilder;

    fn image(number: u32) -> Vec<u8> {
        ImageBuilder::new("nat-sessions", number, 32).finish()
    }

    /// Leaves out so much of an image; or takes it for none.
    struct Takes(Option<usize>);

    impl HandsOver for Takes {
        const KEY: &'static str = "nat.handover";
        const WHAT: &'static str = "sessions";
        const KIND: &'static str = "nat-sessions";
        type Exporter = ();

        fn go_on(&mut self, _now_ms: u64, _image: &[u8]) -> Result<(String, usize)> {
            Ok(("3 sessions".to_owned(), self.0.context("is damaged")?))
        }

        fn reads(&self) {}

        fn image(_exporter: &(), _now_ms: u64) -> Result<Vec<u8>> {
            Ok(image(9))
        }
    }

    /// Who has given another configuration's name has more than one try.
    #[test]
    fn an_image_of_which_not_all_goes_on_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["box", "box.old"].map(|name| folder.path().join(name));
        let file = HandoverFile { path: path.clone(), every: Duration::from_secs(1) };
        let run = |before: &[u8], takes| {
            std::fs::write(&path, before).unwrap();
            let mut control = Takes(takes);
            file.take("test", &mut control);
            file.end(&Mutex::new(control));
            assert_eq!(std::fs::read(&path).unwrap(), image(9));
            std::fs::read(&old).ok()
        };
        assert_eq!(run(&image(1), Some(0)), None);
        assert_eq!(run(&image(2), Some(1)), Some(image(2)));
        assert_eq!(run(&image(3), None), Some(image(3)));
        assert_eq!(run(&image(4)[..40], None), Some(image(4)[..40].to_vec()));
        // What was lost with the power takes nothing's place.
        assert_eq!(run(&[0; 100], None), Some(image(4)[..40].to_vec()));
    }
}
