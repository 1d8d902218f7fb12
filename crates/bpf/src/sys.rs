//! The `bpf` system call, where the loader's library has no face for it: links, pins, entries many at a time.
//!
//! This module is one of the named homes of `unsafe`: one system call, with the layouts of linux/bpf.h.

use aya::Pod;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MAP_DELETE_ELEM: i64 = 3;
const OBJ_PIN: i64 = 6;
const OBJ_GET: i64 = 7;
const OBJ_GET_INFO_BY_FD: i64 = 15;
const MAP_LOOKUP_AND_DELETE_ELEM: i64 = 21;
const MAP_LOOKUP_BATCH: i64 = 24;
const MAP_UPDATE_BATCH: i64 = 26;
const MAP_DELETE_BATCH: i64 = 27;
const LINK_CREATE: i64 = 28;
const LINK_UPDATE: i64 = 29;
const XDP: u32 = 37;
const TCX_EGRESS: u32 = 47;
const SKB_MODE: u32 = 1 << 1;
const DRIVER_MODE: u32 = 1 << 2;

/// Attributes of LINK_CREATE.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Attributes of LINK_UPDATE.
#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

/// Attributes of OBJ_PIN and OBJ_GET.
#[repr(C)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Attributes of OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct Info {
    fd: u32,
    len: u32,
    info: u64,
}

/// Attributes of MAP_*_ELEM.
#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Attributes of MAP_*_BATCH.
#[repr(C)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    entry_flags: u64,
    flags: u64,
}

/// What is known of a link: the beginning of struct bpf_link_info, as it is for XDP and TCX.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkInfo {
    kind: u32,
    id: u32,
    /// The program's number.
    pub(crate) program: u32,
    pad: u32,
    /// The device's number; 0 when that is gone.
    pub(crate) interface: u32,
    pad2: u32,
}

const _: () = assert!(size_of::<Batch>() == 56 && size_of::<Element>() == 32);
const _: () = assert!(size_of::<Info>() == 16 && size_of::<LinkInfo>() == 24);

/// Makes the call; `T` is the layout of `command`'s attributes, with pointers that hold as long as it takes.
fn bpf<T>(command: i64, attributes: &mut T) -> io::Result<i64> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes there, and takes shorter attributes than its own; every
    // caller of this private function hands in the command's own layout, and pointers to memory of the size that it says.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: i64) -> OwnedFd {
    // SAFETY: the kernel has just made it for us, and nobody else knows of it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Puts a program on an interface.
pub(crate) fn link_create(program: BorrowedFd<'_>, interface: u32, native: bool) -> io::Result<OwnedFd> {
    let flags = if native { DRIVER_MODE } else { SKB_MODE };
    let mut attributes =
        LinkCreate { program: program.as_raw_fd() as u32, interface, attach_type: XDP, flags };
    bpf(LINK_CREATE, &mut attributes).map(owned)
}

/// Puts a program on what leaves an interface, behind those that are there.
pub(crate) fn tcx_create(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let mut attributes = LinkCreate { program, interface, attach_type: TCX_EGRESS, flags: 0 };
    bpf(LINK_CREATE, &mut attributes).map(owned)
}

/// Replaces the program that a link holds.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (link, program) = (link.as_raw_fd() as u32, program.as_raw_fd() as u32);
    bpf(LINK_UPDATE, &mut LinkUpdate { link, program, flags: 0, old_program: 0 }).map(drop)
}

pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut info = LinkInfo::default();
    let address = std::ptr::from_mut(&mut info) as u64;
    let len = size_of::<LinkInfo>() as u32;
    bpf(OBJ_GET_INFO_BY_FD, &mut Info { fd: link.as_raw_fd() as u32, len, info: address })?;
    Ok(info)
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

/// Pins an object at a path of a BPF file system.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let mut attributes = Object { path: path.as_ptr() as u64, fd: object.as_raw_fd() as u32, flags: 0 };
    bpf(OBJ_PIN, &mut attributes).map(drop)
}

/// The object that is pinned at a path.
pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    bpf(OBJ_GET, &mut Object { path: path.as_ptr() as u64, fd: 0, flags: 0 }).map(owned)
}

/// Removes an entry of a map whose keys are of this size, and says whether there was one.
pub(crate) fn remove<K: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<bool> {
    let map = map.as_raw_fd() as u32;
    let mut attributes = Element { map, pad: 0, key: std::ptr::from_ref(key) as u64, value: 0, flags: 0 };
    match bpf(MAP_DELETE_ELEM, &mut attributes) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes an entry, and gives what it was at that moment.
pub(crate) fn take<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K, value: &mut V) -> io::Result<bool> {
    let map = map.as_raw_fd() as u32;
    let (key, value) = (std::ptr::from_ref(key) as u64, std::ptr::from_mut(value) as u64);
    match bpf(MAP_LOOKUP_AND_DELETE_ELEM, &mut Element { map, pad: 0, key, value, flags: 0 }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn batch<K: Pod, V: Pod>(map: BorrowedFd<'_>, keys: *const K, values: *const V, count: usize) -> Batch {
    Batch {
        from: 0,
        to: 0,
        keys: keys as u64,
        values: values as u64,
        count: count as u32,
        map: map.as_raw_fd() as u32,
        entry_flags: 0,
        flags: 0,
    }
}

/// Writes entries of a map whose keys and values are of these sizes. Of some that fail, those before have been written:
/// gives their number and the error.
pub(crate) fn update_many<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    keys: &[K],
    values: &[V],
) -> Result<(), (usize, io::Error)> {
    let mut attributes = batch(map, keys.as_ptr(), values.as_ptr(), keys.len().min(values.len()));
    bpf(MAP_UPDATE_BATCH, &mut attributes).map(drop).map_err(|error| (attributes.count as usize, error))
}

/// Removes entries; ends at the first that is not there: gives the number of those before it.
pub(crate) fn remove_many<K: Pod>(map: BorrowedFd<'_>, keys: &[K]) -> Result<(), (usize, io::Error)> {
    let mut attributes = batch(map, keys.as_ptr(), std::ptr::null::<u8>(), keys.len());
    bpf(MAP_DELETE_BATCH, &mut attributes).map(drop).map_err(|error| (attributes.count as usize, error))
}

/// Reads the entries behind `cursor` (none: from the start) into `keys` and `values`: their number, and the cursor for
/// more, `None` after the last.
pub(crate) fn read_many<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    cursor: Option<u32>,
    keys: &mut [K],
    values: &mut [V],
) -> io::Result<(usize, Option<u32>)> {
    let from = cursor.unwrap_or_default();
    let mut to = 0_u32;
    let mut attributes = batch(map, keys.as_mut_ptr(), values.as_mut_ptr(), keys.len().min(values.len()));
    attributes.from = if cursor.is_some() { std::ptr::from_ref(&from) as u64 } else { 0 };
    attributes.to = std::ptr::from_mut(&mut to) as u64;
    match bpf(MAP_LOOKUP_BATCH, &mut attributes) {
        Ok(_) => Ok((attributes.count as usize, Some(to))),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok((attributes.count as usize, None)),
        Err(error) => Err(error),
    }
}

pub(crate) fn coarse_now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one timespec; this clock is always there, and otherwise the time stays 0.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The type of the file system that holds a path.
pub(crate) fn file_system(path: &Path) -> io::Result<i64> {
    let path = c_path(path)?;
    // SAFETY: all zeros are a valid value of this struct of numbers.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends with zero, and a struct that is written.
    let result = unsafe { libc::statfs(path.as_ptr(), &mut stat) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(stat.f_type as i64) }
}
