//! What outlives the process: programs and maps under names, in a BPF file system.
//!
//! ```text
//! /sys/fs/bpf/tidemill/NAME/native            the link, named by where its program runs (native, generic)
//! /sys/fs/bpf/tidemill/NAME/egress            the link of a TC program
//! /sys/fs/bpf/tidemill/NAME/filter            before Linux 6.6, instead: the TC program itself
//! /sys/fs/bpf/tidemill/NAME/layout-1/MAP      its maps
//! ```
//! The folder NAME is locked (`flock`) by the process that works with it.

use crate::{BpfError, Mode, egress, kernel, sys};
use aya::maps::{MapData, MapInfo};
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// As `statfs` tells it.
const BPF_FS: i64 = 0xcafe_4a11;
/// Folders of maps: this, and the layout's number.
const LAYOUT: &str = "layout-";
/// A TC program that a filter holds.
const FILTER: &str = "filter";

/// A map that is pinned, and what it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Its name in the object.
    pub name: &'static str,
    /// Bytes in a key.
    pub key: usize,
    /// Bytes in a value.
    pub value: usize,
}

/// Where a program and its maps are pinned. Ours alone, until this is dropped.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    layout: u32,
    _lock: File,
}

/// What is pinned under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftBehind {
    /// The name.
    pub name: String,
    /// The number of the interface that its program is on, and whether it is in the driver. `None` if there is only a
    /// rest: the interface is gone, or the program was taken off.
    pub attached: Option<(u32, bool)>,
    /// The process that works with it; `None` if none does, or if it cannot be seen from here.
    pub process: Option<u32>,
}

impl Pins {
    /// Where names are, unless something else is said.
    pub const ROOT: &str = "/sys/fs/bpf/tidemill";

    /// Pins under a name below `root`, for maps of this layout. Makes the folders that are missing.
    ///
    /// # Errors
    /// The name has characters that the file system does not take; there is no BPF file system; rights are missing; another
    /// process works with them.
    pub fn new(root: &Path, name: &str, layout: u32) -> Result<Self, BpfError> {
        check_name(name)?;
        let folder = root.join(name);
        let mount = root.ancestors().find(|path| path.is_dir()).unwrap_or(root);
        let kind = sys::file_system(mount).map_err(BpfError::system("cannot look at the BPF file system"))?;
        if kind != BPF_FS {
            let text = format!(
                "nothing can be pinned below {}: that is no BPF file system: mount -t bpf bpf /sys/fs/bpf",
                mount.display()
            );
            return Err(BpfError::Refused(text));
        }
        let pins = Pins { _lock: lock(&folder)?, folder, layout };
        make(&pins.maps())?;
        Ok(pins)
    }

    /// A map that is pinned under a name, to look at: nobody is kept from working with it.
    ///
    /// # Errors
    /// There is none; rights are missing.
    pub fn map(root: &Path, name: &str, layout: u32, map: &str) -> Result<MapData, BpfError> {
        check_name(name)?;
        let path = root.join(name).join(format!("{LAYOUT}{layout}")).join(map);
        MapData::from_pin(&path).map_err(|error| {
            let source = crate::to_io(error);
            if source.raw_os_error() == Some(libc::EPERM) {
                return BpfError::Refused(kernel::lacking("cannot read what is pinned"));
            }
            BpfError::System { action: "cannot open a pinned map", source }
        })
    }

    /// Lets go of the names, and leaves what is pinned.
    pub fn leave(self) {}

    /// Names that have something under them.
    ///
    /// # Errors
    /// The folder cannot be read, or what is pinned there; no folder at all is no error.
    pub fn left(root: &Path) -> Result<Vec<LeftBehind>, BpfError> {
        let mut left = Vec::new();
        let entries = match std::fs::read_dir(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(left),
            other => other.map_err(BpfError::system("cannot read pins"))?,
        };
        for entry in entries.flatten() {
            let folder = entry.path();
            let mut attached = None;
            for mode in [Mode::Native, Mode::Generic] {
                let interface = match interface(&folder.join(mode.name())) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        return Err(BpfError::Refused(kernel::lacking("cannot read what is pinned")));
                    }
                    other => other.map_err(BpfError::system("cannot read what is pinned"))?,
                };
                if interface > 0 {
                    attached = Some((interface, mode == Mode::Native));
                }
            }
            let process = entry.metadata().ok().and_then(|metadata| holder(&metadata));
            let name = entry.file_name().to_string_lossy().into_owned();
            left.push(LeftBehind { name, attached, process });
        }
        left.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(left)
    }

    /// Removes all that is pinned under a name: the program leaves the interface. Says whether there was anything.
    ///
    /// # Errors
    /// The name is none; a process works with it; a file cannot be removed.
    pub fn remove(root: &Path, name: &str) -> Result<bool, BpfError> {
        check_name(name)?;
        let folder = root.join(name);
        if !folder.exists() {
            return Ok(false);
        }
        let _lock = lock(&folder)?;
        remove_folder(&folder).map_err(BpfError::system("cannot remove pins"))
    }

    /// Removes the maps and folders, unless there is a link: one that does not fit, and that was refused.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if [Mode::Native, Mode::Generic].iter().any(|mode| self.link(*mode).exists()) {
            return Ok(());
        }
        remove_folder(&self.folder).map(drop)
    }

    /// Where the link is, by where its program runs.
    pub(crate) fn link(&self, mode: Mode) -> PathBuf {
        self.folder.join(mode.name())
    }

    /// Where the link of a program on what leaves is.
    pub(crate) fn egress(&self) -> PathBuf {
        self.folder.join("egress")
    }

    /// Where a TC program is that is held by a filter, not by a link.
    pub(crate) fn filter(&self) -> PathBuf {
        self.folder.join(FILTER)
    }

    /// The folder of the maps.
    pub(crate) fn maps(&self) -> PathBuf {
        self.folder.join(format!("{LAYOUT}{}", self.layout))
    }

    /// Refuses what is pinned by a program that could not share maps with this one. `entries` are the sizes that maps
    /// will have.
    pub(crate) fn check(&self, maps: &[Shared], entries: &[(&str, u32)]) -> Result<(), BpfError> {
        let way = format!(
            "start with what it was made for, or remove it with all it knows: rm -r {}",
            self.folder.display()
        );
        let folders = std::fs::read_dir(&self.folder).map_err(BpfError::system("cannot read pins"))?;
        for entry in folders.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(layout) = name.strip_prefix(LAYOUT) else { continue };
            if layout != self.layout.to_string() && has_entries(&entry.path()) {
                let text = format!(
                    "the maps that are pinned in {} are of layout {layout}, and this program's of layout {}: {way}",
                    self.folder.display(),
                    self.layout
                );
                return Err(BpfError::Refused(text));
            }
        }
        for map in maps {
            let Ok(info) = MapInfo::from_pin(self.maps().join(map.name)) else { continue };
            let wanted = entries.iter().find(|(name, _)| *name == map.name).map(|(_, entries)| *entries);
            let there = (info.key_size() as usize, info.value_size() as usize, info.max_entries());
            let ours = (map.key, map.value, wanted.unwrap_or(there.2));
            if there != ours {
                let text = format!(
                    "the map {} that is pinned in {} has keys of {} bytes, values of {} and {} entries, and this program's {}, {} and {}: \
                     {way}",
                    map.name,
                    self.maps().display(),
                    there.0,
                    there.1,
                    there.2,
                    ours.0,
                    ours.1,
                    ours.2
                );
                return Err(BpfError::Refused(text));
            }
        }
        Ok(())
    }
}

/// Makes a folder for pins.
fn make(folder: &Path) -> Result<(), BpfError> {
    std::fs::create_dir_all(folder).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => BpfError::Refused(format!(
            "cannot make {} for pins: permission denied: run as root, or leave the pin out",
            folder.display()
        )),
        _ => BpfError::system("cannot make a folder for pins")(error),
    })
}

/// Locks a folder, and makes it if it is missing. Nobody is waited for.
fn lock(folder: &Path) -> Result<File, BpfError> {
    loop {
        make(folder)?;
        let file = match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(BpfError::system("cannot read pins"))?,
        };
        let metadata = file.metadata().map_err(BpfError::system("cannot read pins"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let who =
                    holder(&metadata).map_or("another process".to_owned(), |pid| format!("process {pid}"));
                let text = format!(
                    "{who} works with what is pinned in {}: end it first, or take another name (if it is killed, its program and rules go \
                     on, and the next process takes them over)",
                    folder.display()
                );
                return Err(BpfError::Refused(text));
            }
            Err(TryLockError::Error(error)) => {
                return Err(BpfError::system("cannot lock the folder of pins")(error));
            }
        }
        // Whoever had it a moment ago may have removed the folder.
        if std::fs::metadata(folder).is_ok_and(|there| there.ino() == metadata.ino()) {
            return Ok(file);
        }
    }
}

/// The process that has locked a file, if the kernel tells us.
fn holder(file: &Metadata) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (libc::major(file.dev()), libc::minor(file.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", file.ino());
    // 1: FLOCK  ADVISORY  WRITE 4711 00:27:2400560 0 EOF
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, locked, ..] if locked == file => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    })
}

/// The number of the interface that a pinned link's program is on; 0 if that is gone.
fn interface(link: &Path) -> io::Result<u32> {
    let link = sys::pinned(link)?;
    Ok(sys::link_info(link.as_fd())?.interface)
}

/// The file system takes no dots.
fn check_name(name: &str) -> Result<(), BpfError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        return Ok(());
    }
    Err(BpfError::Refused(format!(
        "pins cannot have the name {name:?}: give 1 to 64 letters, digits, - and _"
    )))
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Removes a folder of pins, two deep, and nothing else.
fn remove_folder(folder: &Path) -> io::Result<bool> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    let mut found = false;
    if folder.join(FILTER).exists() {
        // The XDP program beside it knows the device; a process that was killed before there was one has the device's number in the name.
        let links =
            [Mode::Native, Mode::Generic].map(|mode| interface(&folder.join(mode.name())).unwrap_or(0));
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let named = name.rsplit_once('-').and_then(|(_, index)| index.parse().ok());
        if let Some(index) = links.into_iter().find(|index| *index > 0).or(named) {
            egress::remove_filter(index)?;
        }
    }
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            for inner in std::fs::read_dir(&path)? {
                std::fs::remove_file(inner?.path())?;
                found = true;
            }
            std::fs::remove_dir(&path)?;
        } else {
            std::fs::remove_file(&path)?;
            found = true;
        }
    }
    std::fs::remove_dir(folder)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_pin_can_have_are_refused() {
        for name in ["", "eth0.100", "a/b", "..", &"x".repeat(65)] {
            let error = check_name(name).map_err(|error| error.to_string()).unwrap_err();
            assert!(error.contains("letters, digits"), "{error}");
        }
        assert!(check_name("edge-1_eth0").is_ok());
    }

    #[test]
    fn other_file_systems_are_refused() {
        let error =
            Pins::new(Path::new("/proc/self"), "x", 1).map_err(|error| error.to_string()).unwrap_err();
        assert!(error.contains("mount -t bpf bpf /sys/fs/bpf"), "{error}");
    }
}
