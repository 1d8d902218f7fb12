//! The file of `nat.handover` or `filter.handover`: written while the role runs and when it stops, read when it starts, here or on another box. Connections go on.
//!
//! What a box knows of the last seconds before it dies is lost with it: connections that began within `handover_s` seconds. The image is written
//! beside the file, and moved over it, so that one or the other is there and whole. A file that is there and none of ours is not written over.
//!
//! What does not go on, or is not saved, is counted, and why is an event: who looks a week later finds both.

use super::role::{Opening, Trouble};
use super::service::{lock, now_ns};
use super::setup::{clock, reads_captures};
use super::written::{foreign, keep_as, read_image, remove_left, replace};
use crate::usage;
use crate::usage::one_line;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A control side whose tables can be handed over.
pub(super) trait HandsOver {
    /// The section whose `handover` names the file; its events are of that kind.
    const SECTION: &'static str;
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
    trouble: Arc<Trouble>,
    /// Of the file that was there at the start nothing has gone on; or so much has not.
    is_refused: bool,
    left_out: u64,
    saves: AtomicU64,
    failures: AtomicU64,
}

impl HandoverFile {
    fn new(path: PathBuf, every: Duration, trouble: Arc<Trouble>) -> Self {
        let (saves, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        HandoverFile { path, every, trouble, is_refused: false, left_out: 0, saves, failures }
    }

    /// The file of this run, if one is named, whose control side goes on with what it says. A run that is recorded, or on captures, is no box: it takes nothing over, and
    /// leaves a box's file alone.
    pub(super) fn open<C: HandsOver>(
        opening: &Opening<'_>,
        is_recorded: bool,
        path: Option<&PathBuf>,
        every_s: u32,
        control: &mut C,
    ) -> Option<Self> {
        let every = Duration::from_secs(every_s.into());
        let mut file = HandoverFile::new(path?.clone(), every, opening.trouble.clone());
        let Opening { config, name, .. } = *opening;
        if is_recorded || reads_captures(config) || clock(config).follows_packets() {
            eprintln!(
                "tidemill: {name}: {}.handover: a run that is recorded, or on captures or by their clock, takes nothing over",
                C::SECTION
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
        let wrong =
            |what: &str| Err(usage(format!("{name}: {}.handover: {}: {what}", C::SECTION, path.display())));
        foreign(path, C::KIND).map_or(Ok(()), wrong)
    }

    /// Goes on with what the file says, if there is one; what is wrong with it is said, and the role starts without.
    fn take<C: HandsOver>(&mut self, name: &str, control: &mut C) {
        remove_left(&self.path, C::KIND);
        let (error, is_something) = match read_image(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => (format!("{}.handover: {error}", C::SECTION), true),
            Ok(image) => match control.go_on(now_ns() / 1_000_000, &image) {
                Ok((taken, left_out)) => return self.went_on::<C>(&taken, left_out),
                // Of what was lost with the power nothing is to be kept.
                Err(error) => (one_line(&error), image.iter().any(|byte| *byte != 0)),
            },
        };
        self.is_refused = true;
        let kept = if is_something { self.keep::<C>() } else { String::new() };
        let path = self.path.display();
        let line = format!("warning: {name}: {path}: {error}: starting without it{kept}");
        self.trouble.note(C::SECTION, &line);
    }

    fn went_on<C: HandsOver>(&mut self, taken: &str, left_out: usize) {
        self.left_out = left_out as u64;
        let path = self.path.display();
        let line = format!("{path}: {taken} go on, {left_out} do not fit this configuration");
        let line = match left_out {
            0 => line,
            _ => format!("warning: {line}{}", self.keep::<C>()),
        };
        self.trouble.note(C::SECTION, &line);
    }

    /// Keeps an image of which not all goes on, beside the next one, which takes its place: with another configuration more of it may. Where it is, and what to do, to be said.
    fn keep<C: HandsOver>(&self) -> String {
        let old = kept(&self.path);
        match keep_as(&self.path, &old, C::KIND) {
            Ok(()) => format!(
                "; the file is kept as {}: if more is to go on, stop, move it back, and start with what it is of",
                old.display()
            ),
            Err(error) => format!(
                "; the file cannot be kept as {}: {error}: it is written over in {} s: copy it, if more is to go on",
                old.display(),
                self.every.as_secs()
            ),
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
                let line = |error: &String| format!("warning: {error}: {} are not saved", C::WHAT);
                error.iter().for_each(|error| self.trouble.note(C::SECTION, &line(error)));
                said = error;
            }
        }
    }

    /// Writes the last one, when all workers have stopped.
    pub(super) fn end<C: HandsOver>(&self, control: &Mutex<C>) {
        if let Err(error) = self.save(control) {
            self.trouble.complain(&format!("{} are not saved", C::WHAT), &error);
        }
    }

    /// What became of it: name, number, whether that is so now.
    pub(super) fn figures(&self) -> [(&'static str, u64, bool); 4] {
        [
            ("handover-refused", self.is_refused.into(), false),
            ("handover-left-out", self.left_out, false),
            ("handover-saves", self.saves.load(Ordering::Relaxed), false),
            ("handover-failures", self.failures.load(Ordering::Relaxed), false),
        ]
    }

    /// Writes the file now; if that fails the last one is still there.
    fn save<C: HandsOver>(&self, control: &Mutex<C>) -> Result<()> {
        let saved = self.write(control);
        let count = if saved.is_ok() { &self.saves } else { &self.failures };
        count.fetch_add(1, Ordering::Relaxed);
        saved
    }

    fn write<C: HandsOver>(&self, control: &Mutex<C>) -> Result<()> {
        // Somebody may have put it there since the start.
        if let Some(what) = foreign(&self.path, C::KIND) {
            bail!("{}.handover: {}: {what}", C::SECTION, self.path.display());
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
        const SECTION: &'static str = "nat";
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
        let run = |before: &[u8], takes| {
            std::fs::write(&path, before).unwrap();
            let mut file = HandoverFile::new(path.clone(), Duration::from_secs(1), Arc::default());
            let mut control = Takes(takes);
            file.take("test", &mut control);
            file.end(&Mutex::new(control));
            assert_eq!(std::fs::read(&path).unwrap(), image(9));
            (std::fs::read(&old).ok(), file.figures().map(|(_, count, _)| count))
        };
        assert_eq!(run(&image(1), Some(0)), (None, [0, 0, 1, 0]));
        assert_eq!(run(&image(2), Some(1)), (Some(image(2)), [0, 1, 1, 0]));
        assert_eq!(run(&image(3), None), (Some(image(3)), [1, 0, 1, 0]));
        let half = image(4)[..40].to_vec();
        assert_eq!(run(&half, None), (Some(half.clone()), [1, 0, 1, 0]));
        // What was lost with the power takes nothing's place.
        assert_eq!(run(&[0; 100], None), (Some(half), [1, 0, 1, 0]));
    }
}
