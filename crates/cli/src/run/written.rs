//! Files that a run writes over: images of its own kind, and nothing else that somebody may have there.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use tidemill_lookup::image;

/// What is larger and has only zeros in it, as a disk's image, is none of ours.
const MOST_ZEROS: u64 = 1 << 30;

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
