//! Files that a run writes over: images of its own kind, and nothing else that somebody may have there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidemill_lookup::image;

/// What is larger and has only zeros in it, as a disk's image, is none of ours.
const MOST_ZEROS: u64 = 1 << 30;

/// An image that claims more is damaged: what it claims may have no disk behind it.
const MOST_BYTES: u64 = 16 << 30;

/// Who writes to a file for so long was killed while he did.
const LEFT: Duration = Duration::from_secs(60);

/// Why a file is not ours to write, if it is not: ours is one that is not there, has nothing or only zeros in it, or begins as our images do.
pub(super) fn foreign(path: &Path, kind: &str) -> Option<&'static str> {
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

/// Puts `bytes` in the place of a file, as a whole or not at all; nothing else is left, and no other file is written to. Whose it is, and who may read it, stays as it was; a new one is
/// its owner's alone, for it says who talks to whom.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (fresh, mut file) = create_beside(path)?;
    if let Some(old) = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file) {
        // Only root can give files away; and where there is no such thing the new one stays its owner's.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        let _ = file.set_permissions(old.permissions());
    }
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    drop(file);
    if let Err(error) = written.and_then(|()| std::fs::rename(&fresh, path)) {
        // On a full disk it would be in the way. The first fault is the one to be told.
        let _ = std::fs::remove_file(&fresh);
        return Err(error);
    }
    // The name too must outlast a loss of power.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Has what is in a file stay under another name when the file is written anew. An image of its kind that has the name gives way when this one has it, and not before.
pub(super) fn keep_as(path: &Path, name: &Path, kind: &str) -> io::Result<()> {
    if let Some(what) = foreign(name, kind) {
        return Err(io::Error::other(what));
    }
    let Ok((fresh, ())) = make_beside(path, |fresh| std::fs::hard_link(path, fresh)) else {
        // Not every file system has links, and not every file may be linked to.
        return replace(name, &read_image(path)?);
    };
    let kept = std::fs::rename(&fresh, name);
    // It is there yet if the file has that name already, too: then nothing was renamed.
    let _ = std::fs::remove_file(&fresh);
    kept
}

/// Makes a file beside this one, of a name that nobody has: no file that is there is opened, and no link followed.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    make_beside(path, |fresh| File::options().write(true).create_new(true).mode(0o600).open(fresh))
}

/// Makes something beside this file, of a name that nobody has; `make` fails where somebody does.
fn make_beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let mut number = 0_u64;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{number}.new", std::process::id()));
        let fresh = path.with_file_name(name);
        match make(&fresh) {
            // Left by one that was killed while it wrote, or somebody else's.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|made| (fresh, made)),
        }
    }
}

/// Removes what others were writing beside this file when they were killed. Who writes now may be in another container, or on another machine: his number says nothing here.
pub(super) fn remove_left(path: &Path, kind: &str) {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // Who may not look into it, or remove anything there, does without.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = |data: std::fs::Metadata| {
            let since = data.modified().ok().and_then(|time| time.elapsed().ok());
            data.is_file() && since.is_some_and(|since| since > LEFT)
        };
        // A link is not followed.
        let is_left = is_written_beside(&entry.file_name(), name) && entry.metadata().is_ok_and(is_old);
        if is_left && foreign(&entry.path(), kind).is_none() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is one of those that are made beside `of`.
fn is_written_beside(name: &OsStr, of: &OsStr) -> bool {
    let numbers = || {
        let rest = name.as_encoded_bytes().strip_prefix(of.as_encoded_bytes())?;
        let numbers = rest.strip_prefix(b".")?.strip_suffix(b".new")?;
        let (process, number) = std::str::from_utf8(numbers).ok()?.split_once('-')?;
        Some((process.parse::<u32>().ok()?, number.parse::<u64>().ok()?))
    };
    numbers().is_some()
}

/// An image's bytes. One that is longer than it says is not read; of what is no image at all no more than shows that.
pub(super) fn read_image(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let there = file.metadata()?.len();
    let mut bytes = Vec::new();
    (&mut file).take(image::HEADER as u64).read_to_end(&mut bytes)?;
    let length = image::length(&bytes);
    if let Some(length) = length.filter(|length| *length < there) {
        let what = format!("has {there} bytes, and {length} by its header: it is damaged");
        return Err(io::Error::other(what));
    }
    if length.is_some() && there > MOST_BYTES {
        let what = format!("has {there} bytes, and an image {MOST_BYTES} at most: it is damaged");
        return Err(io::Error::other(what));
    }
    if length.is_some() {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;
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

    #[test]
    fn what_cannot_be_put_in_place_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"1").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1");
        // A folder keeps its place.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"2").is_err());
        let names: Vec<_> =
            folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["state"]);
    }

    #[test]
    fn no_other_file_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // A file beside it is somebody's, whatever its name.
        std::fs::write(at("state.new"), "rules").unwrap();
        // Nor is one that has our own next name, or what a link of that name leads to.
        let (first, _) = create_beside(&at("state")).unwrap();
        std::fs::write(&first, "theirs").unwrap();
        let (second, _) = create_beside(&at("state")).unwrap();
        assert_ne!(first, second);
        std::fs::remove_file(&second).unwrap();
        std::fs::write(at("precious"), "precious").unwrap();
        std::os::unix::fs::symlink(at("precious"), &second).unwrap();
        replace(&at("state"), b"image").unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let all = [&at("state"), &at("state.new"), &first, &at("precious")].map(|path| read(path));
        assert_eq!(all, ["image", "rules", "theirs", "precious"]);
        assert!(second.is_symlink() && !at("state").is_symlink());
    }

    /// Who talks to whom is not for everybody on the machine.
    #[test]
    fn who_may_read_a_file_stays_as_it_was() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        replace(&path, b"1").unwrap();
        assert_eq!(mode(), 0o600, "a new one");
        for kept in [0o640, 0o604] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(kept)).unwrap();
            replace(&path, b"2").unwrap();
            assert_eq!(mode(), kept);
        }
        // Only root can give it away, and then goes on writing it for the other.
        if std::os::unix::fs::chown(&path, Some(12_345), Some(12_346)).is_ok() {
            replace(&path, b"3").unwrap();
            let data = std::fs::metadata(&path).unwrap();
            assert_eq!((data.uid(), data.gid(), mode()), (12_345, 12_346, 0o604));
        }
    }

    #[test]
    fn what_is_kept_outlives_what_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["state", "state.old"].map(|name| folder.path().join(name));
        let image = |number| ImageBuilder::new("nat-sessions", number, 32).finish();
        for number in [1, 2] {
            replace(&path, &image(number)).unwrap();
            keep_as(&path, &old, "nat-sessions").unwrap();
            replace(&path, &image(9)).unwrap();
            let both = [&path, &old].map(|path| std::fs::read(path).unwrap());
            assert_eq!(both, [image(9), image(number)]);
        }
        // Who was killed between the two finds both names of one file.
        let names = || {
            let names = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names
        };
        for _ in 0..2 {
            keep_as(&path, &old, "nat-sessions").unwrap();
            assert_eq!(
                (std::fs::read(&old).unwrap(), names()),
                (image(9), vec!["state".into(), "state.old".into()])
            );
        }
        // What cannot be kept takes nothing's place.
        std::fs::remove_file(&path).unwrap();
        assert!(keep_as(&path, &old, "nat-sessions").is_err());
        assert_eq!((std::fs::read(&old).unwrap(), names()), (image(9), vec!["state.old".into()]));
        // Nobody else's file gives way.
        replace(&path, &image(9)).unwrap();
        std::fs::write(&old, "theirs").unwrap();
        let said = keep_as(&path, &old, "nat-sessions").unwrap_err().to_string();
        assert!(said.starts_with("is there already"), "{said}");
        assert_eq!(std::fs::read(&old).unwrap(), b"theirs");
    }

    #[test]
    fn what_killed_processes_leave_stops_nothing_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (own, image) = (std::process::id(), ImageBuilder::new("nat-sessions", 1, 32).finish());
        let long_ago = SystemTime::now() - 2 * LEFT;
        let age = |path: &Path| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(long_ago).unwrap();
        };
        // Numbers of processes end below 2^22, and those of another container begin at 1, too.
        let mut left: Vec<PathBuf> = (0..150).map(|n| at(&format!("state.{own}-{n}.new"))).collect();
        left.extend([at("state.4194400-0.new"), at("state.1-0.new")]);
        left.iter().for_each(|path| std::fs::write(path, &image[..40]).unwrap());
        left.iter().for_each(|path| age(path));
        replace(&at("state"), &image).unwrap();
        let kept: [(&str, &[u8]); 3] = [
            ("state.4194400-x.new", &image),
            ("other.4194400-0.new", &image),
            ("state.4194400-1.new", b"somebody's"),
        ];
        kept.iter().for_each(|(name, bytes)| std::fs::write(at(name), bytes).unwrap());
        kept.iter().for_each(|(name, _)| age(&at(name)));
        // What somebody is just writing, whose number means nothing here.
        let written = [at("state.4194400-3.new"), at(&format!("state.{own}-200.new"))];
        written.iter().for_each(|path| std::fs::write(path, &image[..40]).unwrap());
        let link = at("state.4194400-2.new");
        std::os::unix::fs::symlink(at("state"), &link).unwrap();
        remove_left(&at("state"), "nat-sessions");
        assert!(left.iter().all(|path| !path.exists()));
        assert!(kept.iter().all(|(name, _)| at(name).exists()) && link.is_symlink());
        assert!(written.iter().all(|path| path.exists()));
        assert_eq!(std::fs::read(at("state")).unwrap(), image);
    }

    #[test]
    fn an_image_is_read_whole_and_nothing_that_is_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let image = ImageBuilder::new("nat-sessions", 1, 32).finish();
        for bytes in [&image[..], &image[..50], &image[..20], b""] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read_image(&path).unwrap(), bytes);
        }
        std::fs::write(&path, &image).unwrap();
        // Nobody has the memory for that.
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let said = read_image(&path).unwrap_err().to_string();
        assert!(said.ends_with(&format!(", and {} by its header: it is damaged", image.len())), "{said}");
        // Nor if it says so itself.
        let mut long = image.clone();
        long[48..56].copy_from_slice(&(1_u64 << 40).to_ne_bytes());
        std::fs::write(&path, &long).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let said = read_image(&path).unwrap_err().to_string();
        assert!(said.ends_with("and an image 17179869184 at most: it is damaged"), "{said}");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_image(&path).unwrap(), [0; image::HEADER]);
    }
}
