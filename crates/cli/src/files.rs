//! Files that are read to a bound, and files that are there whole or not at all.

use crate::progress::redraws;
use crate::usage::{complain, usage};
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is being written under another name, so that who ends the program can take it away.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn unfinished() -> MutexGuard<'static, Option<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of standard input has no more bytes, its end among them.
const MOST_LINE: u64 = 1 << 16;

/// The text of a file of at most so many bytes, or of a pipe. More are not read, and no device: it may have no end. `give`: what to give instead.
///
/// # Errors
/// Bad usage: it cannot be read, is longer than that, or no UTF-8.
pub(crate) fn text(path: &Path, most: u64, give: &str) -> Result<String> {
    let name = path.display();
    let bytes = tidemill_archive::read_whole(path, most);
    let bytes = bytes.map_err(|error| usage(format!("{name}: {error}: {give}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let right = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = 1 + right.filter(|&&byte| byte == b'\n').count();
        usage(format!("{name}: line {line}: no UTF-8: {give}"))
    })
}

/// Lines, trimmed at both ends: no caller has to. What may have no line end, as standard input may, is not read to its end: a longer line is an error, and the last.
pub(crate) fn lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<String>> {
    let mut next = move || -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MOST_LINE + 1).read_until(b'\n', &mut line)?;
        if read as u64 > MOST_LINE {
            return Err(io::Error::other(format!("a line of more than {MOST_LINE} bytes")));
        }
        let text = String::from_utf8(line).map_err(|_| io::Error::other("a line that is no UTF-8"))?;
        Ok((read > 0).then(|| text.trim().to_owned()))
    };
    let mut is_over = false;
    std::iter::from_fn(move || {
        let line = if is_over { None } else { next().transpose() };
        is_over = !matches!(line, Some(Ok(_)));
        line
    })
}

/// Writes a file under another name first: whoever is interrupted, or finds the disk full, leaves what was there before. What is no file of its own (a link, a
/// pipe), or would not be whose it was, is written as it comes.
///
/// # Errors
/// As the operating system says.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let old = fs::symlink_metadata(path).ok();
    let (Some(name), true) = (path.file_name(), old.as_ref().is_none_or(fs::Metadata::is_file)) else {
        return fs::write(path, bytes);
    };
    if old.is_some() {
        // What may not be written is not to be replaced.
        OpenOptions::new().append(true).open(path)?;
    }
    let other = format!("unfinished-{}-{}", std::process::id(), name.to_string_lossy());
    let other = path.with_file_name(other);
    let mut known = unfinished();
    // Where there is no room for another name, the system says what is wrong with this one.
    let Ok(mut file) = File::create(&other) else { return fs::write(path, bytes) };
    // Root does not take a user's file for itself, and another name of a file stays one.
    let owner = |of: &fs::Metadata| (of.uid(), of.gid());
    let made = file.metadata().ok().map(|made| owner(&made));
    if old.as_ref().is_some_and(|old| old.nlink() > 1 || made != Some(owner(old))) {
        let _ = fs::remove_file(&other);
        return fs::write(path, bytes);
    }
    *known = Some(other.clone());
    drop(known);
    let written = file.write_all(bytes).and_then(|()| match &old {
        Some(old) => file.set_permissions(old.permissions()),
        None => Ok(()),
    });
    let mut known = unfinished();
    *known = None;
    let whole = written.and_then(|()| fs::rename(&other, path));
    if whole.is_err() {
        // The first fault is the one to be told.
        let _ = fs::remove_file(&other);
    }
    whole
}

/// From now on Ctrl-C and SIGTERM end the program at once, with the status that shells give them (130, 143), and no half a file stays: for commands that only
/// compute.
///
/// # Errors
/// The system cannot.
pub(crate) fn end_on_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let end = move || {
        let Some(signal) = signals.forever().next() else { return };
        // Held to the end: nothing gets its name any more.
        let known = unfinished();
        if let Some(other) = &*known {
            let _ = fs::remove_file(other);
        }
        // On a terminal, in place of the progress.
        let clear = if redraws(&io::stderr()) { "\r\u{1b}[2K" } else { "" };
        complain(format_args!("{clear}tidemill: interrupted"));
        std::process::exit(128 + signal);
    };
    std::thread::Builder::new().name("signals".into()).spawn(end).context("cannot watch for signals")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_bound_and_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            text(&path, 8, "give less").map_err(|error| error.to_string())
        };
        assert_eq!(of(b"12345678"), Ok("12345678".to_owned()));
        assert!(of(b"123456789").is_err_and(|said| said.ends_with("a: longer than 8 bytes: give less")));
        assert!(of(b"1\n\n2\xff").is_err_and(|said| said.ends_with("a: line 3: no UTF-8: give less")));
        for no_file in [Path::new("/dev/zero"), folder.path()] {
            let said = text(no_file, 1 << 20, "give a file").unwrap_err();
            assert!(said.is::<crate::Usage>(), "{said}");
            let wanted = format!("{}: a device or a folder, and no file: give a file", no_file.display());
            assert_eq!(said.to_string(), wanted);
        }
    }

    #[test]
    fn lines_have_a_bound() {
        let of = |text: &[u8]| -> Vec<Result<String, String>> {
            lines(io::BufReader::new(text)).map(|line| line.map_err(|error| error.to_string())).collect()
        };
        let good = |text: &str| -> Result<String, String> { Ok(text.to_owned()) };
        assert!(of(b"").is_empty());
        assert_eq!(of(b"one\n\n\t two \r\nthree "), [good("one"), good(""), good("two"), good("three")]);
        assert_eq!(of(b"one\n\xff\ntwo\n"), [good("one"), Err("a line that is no UTF-8".into())]);
        let mut endless = lines(io::BufReader::new(io::repeat(0)));
        let said = endless.next().map(|line| line.unwrap_err().to_string());
        assert_eq!(said.as_deref(), Some("a line of more than 65536 bytes"));
        assert!(endless.next().is_none());
    }

    #[test]
    fn files_are_replaced_as_a_whole() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        write(&at("new"), b"1").unwrap();
        assert_eq!(fs::read(at("new")).unwrap(), b"1");
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o640)).unwrap();
        let before = File::open(at("new")).unwrap();
        write(&at("new"), b"22").unwrap();
        assert_eq!(fs::read(at("new")).unwrap(), b"22");
        assert_eq!(fs::metadata(at("new")).unwrap().permissions().mode() & 0o777, 0o640);
        // Who had it open still has the old one, whole.
        assert_eq!(io::read_to_string(before).unwrap(), "1");
        // A link stays one.
        std::os::unix::fs::symlink("new", at("link")).unwrap();
        write(&at("link"), b"3").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read(at("new")).unwrap(), b"3");
        // So does a second name.
        fs::hard_link(at("new"), at("second")).unwrap();
        write(&at("second"), b"44").unwrap();
        assert_eq!(fs::read(at("new")).unwrap(), b"44");
        assert!(write(&at("absent/new"), b"4").is_err() && write(folder.path(), b"4").is_err());
        assert_eq!(names(), ["link", "new", "second"], "nothing unfinished is left");
    }
}
