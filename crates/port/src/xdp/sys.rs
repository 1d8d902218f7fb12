//! The kernel's interface: AF_XDP sockets and the eBPF program that redirects packets to them.
//!
//! This module is one of the named homes of `unsafe`: system calls with the layouts of linux/if_xdp.h and linux/bpf.h.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub(super) const AF_XDP: i32 = 44;
const SOL_XDP: i32 = 283;
const XDP_MMAP_OFFSETS: i32 = 1;
pub(super) const XDP_RX_RING: i32 = 2;
pub(super) const XDP_TX_RING: i32 = 3;
const XDP_UMEM_REG: i32 = 4;
pub(super) const XDP_UMEM_FILL_RING: i32 = 5;
pub(super) const XDP_UMEM_COMPLETION_RING: i32 = 6;
const XDP_STATISTICS: i32 = 7;
pub(super) const XDP_SHARED_UMEM: u16 = 1;
pub(super) const XDP_COPY: u16 = 2;

/// A descriptor of the receive and transmit rings.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Desc {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) options: u32,
}

/// Where the parts of a ring lie in its mapping.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RingOffset {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) desc: u64,
    pub(super) flags: u64,
}

/// The answer to XDP_MMAP_OFFSETS.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MmapOffsets {
    pub(super) rx: RingOffset,
    pub(super) tx: RingOffset,
    pub(super) fill: RingOffset,
    pub(super) completion: RingOffset,
}

/// struct xdp_umem_reg, as of Linux 5.4 (the kernel takes shorter ones than its own).
#[repr(C)]
struct UmemReg {
    addr: u64,
    len: u64,
    chunk_size: u32,
    headroom: u32,
    flags: u32,
    pad: u32,
}

#[repr(C)]
struct SockAddr {
    family: u16,
    flags: u16,
    ifindex: u32,
    queue_id: u32,
    shared_umem_fd: u32,
}

/// struct xdp_statistics.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Statistics {
    pub(super) rx_dropped: u64,
    pub(super) rx_invalid_descs: u64,
    pub(super) tx_invalid_descs: u64,
    pub(super) rx_ring_full: u64,
    pub(super) rx_fill_ring_empty_descs: u64,
    pub(super) tx_ring_empty_descs: u64,
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The index of a network interface.
pub(super) fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a NUL-terminated string that lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new and ours.
    let fd = check(unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn set_option<T>(fd: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is `len` readable bytes.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), SOL_XDP, option, value, len) };
    check(result.into()).map(|_| ())
}

fn option<T: Default>(fd: &OwnedFd, option: i32) -> io::Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as libc::socklen_t);
    let into = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `into` is `len` writable bytes, of types (plain integers) that may hold any bits.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), SOL_XDP, option, into, &mut len) };
    check(result.into())?;
    Ok(value)
}

/// Registers memory as this socket's UMEM.
///
/// # Safety
/// The memory is mapped until the socket is closed, and every frame that is put on one of the socket's rings stays
/// untouched by the program until the kernel has given it back.
pub(super) unsafe fn register_umem(
    fd: &OwnedFd,
    start: *const u8,
    len: usize,
    chunk_size: usize,
) -> io::Result<()> {
    let umem = UmemReg {
        addr: start as u64,
        len: len as u64,
        chunk_size: chunk_size as u32,
        headroom: 0,
        flags: 0,
        pad: 0,
    };
    set_option(fd, XDP_UMEM_REG, &umem)
}

pub(super) fn set_ring_size(fd: &OwnedFd, ring: i32, entries: u32) -> io::Result<()> {
    set_option(fd, ring, &entries)
}

pub(super) fn mmap_offsets(fd: &OwnedFd) -> io::Result<MmapOffsets> {
    option(fd, XDP_MMAP_OFFSETS)
}

pub(super) fn statistics(fd: &OwnedFd) -> io::Result<Statistics> {
    option(fd, XDP_STATISTICS)
}

/// Binds to a queue of an interface; `shared` is the socket whose UMEM is used, if it is not this one's own.
pub(super) fn bind(
    fd: &OwnedFd,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<&OwnedFd>,
) -> io::Result<()> {
    let address = SockAddr {
        family: AF_XDP as u16,
        flags: flags | if shared.is_some() { XDP_SHARED_UMEM } else { 0 },
        ifindex,
        queue_id: queue,
        shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    let len = size_of::<SockAddr>() as libc::socklen_t;
    // SAFETY: `address` is `len` readable bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) }.into()).map(|_| ())
}

/// Tells the kernel to look at the transmit ring. `false`: it is busy, ask again.
pub(super) fn kick(fd: &OwnedFd) -> io::Result<bool> {
    // SAFETY: no data is passed.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    match check(sent as i64) {
        Ok(_) => Ok(true),
        Err(e) => match e.raw_os_error() {
            Some(libc::EBUSY | libc::EAGAIN | libc::ENOBUFS) => Ok(false),
            _ => Err(e),
        },
    }
}

const BPF_MAP_CREATE: i64 = 0;
const BPF_MAP_UPDATE_ELEM: i64 = 2;
const BPF_PROG_LOAD: i64 = 5;
const BPF_LINK_CREATE: i64 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

/// `union bpf_attr`: fields at fixed offsets, the rest zero.
struct Attr([u64; 16]);

impl Attr {
    fn new() -> Self {
        Attr([0; 16])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at / 8] |=
            u64::from(value) << if cfg!(target_endian = "big") { 32 - at % 8 * 8 } else { at % 8 * 8 };
        self
    }

    fn pointer<T>(mut self, at: usize, value: &T) -> Self {
        self.0[at / 8] = std::ptr::from_ref(value) as u64;
        self
    }

    /// # Safety
    /// The pointers in here are what `command` expects, and alive.
    unsafe fn call(&self, command: i64) -> io::Result<i64> {
        // SAFETY: the attributes are 128 readable bytes; the rest is the caller's promise.
        check(unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), size_of_val(&self.0)) })
    }

    /// # Safety
    /// As [`call`](Self::call), and the command returns a new file descriptor.
    unsafe fn call_fd(&self, command: i64) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise.
        let fd = unsafe { self.call(command)? };
        // SAFETY: the descriptor is new and ours.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

/// The program on one interface and the map from its queues to sockets. Detached when dropped.
#[derive(Debug)]
pub(super) struct Redirect {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Redirect {
    /// Attaches the program, in the driver if it can, else in the generic path.
    pub(super) fn attach(ifindex: u32, queues: u32) -> io::Result<Self> {
        let map = Attr::new().u32(0, BPF_MAP_TYPE_XSKMAP).u32(4, 4).u32(8, 4).u32(12, queues);
        // SAFETY: no pointers.
        let map = unsafe { map.call_fd(BPF_MAP_CREATE)? };
        let program = program(map.as_raw_fd());
        let license = *b"Dual MIT/GPL\0";
        let load = Attr::new()
            .u32(0, BPF_PROG_TYPE_XDP)
            .u32(4, program.len() as u32)
            .pointer(8, &program)
            .pointer(16, &license)
            .u32(68, BPF_XDP);
        // SAFETY: instructions and a NUL-terminated licence, both alive.
        let program = unsafe { load.call_fd(BPF_PROG_LOAD)? };
        let link = |mode: u32| {
            let link =
                Attr::new().u32(0, program.as_raw_fd() as u32).u32(4, ifindex).u32(8, BPF_XDP).u32(12, mode);
            // SAFETY: no pointers.
            unsafe { link.call_fd(BPF_LINK_CREATE) }
        };
        // XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE.
        let link = link(4).or_else(|_| link(2))?;
        Ok(Redirect { map, _program: program, _link: link })
    }

    /// Sends a queue's packets to a socket.
    pub(super) fn insert(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let update = Attr::new().u32(0, self.map.as_raw_fd() as u32).pointer(8, &queue).pointer(16, &value);
        // SAFETY: a key and a value of 4 bytes, as the map was created for.
        unsafe { update.call(BPF_MAP_UPDATE_ELEM) }.map(|_| ())
    }
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS);`
fn program(map: RawFd) -> [u64; 6] {
    let insn = |op: u8, dst: u8, src: u8, offset: i16, imm: i32| {
        u64::from_ne_bytes({
            let (o, i) = (offset.to_ne_bytes(), imm.to_ne_bytes());
            let registers = if cfg!(target_endian = "big") { dst << 4 | src } else { src << 4 | dst };
            [op, registers, o[0], o[1], i[0], i[1], i[2], i[3]]
        })
    };
    [
        insn(0x61, 2, 1, 16, 0),  // r2 = *(u32 *)(r1 + 16): rx_queue_index
        insn(0x18, 1, 1, 0, map), // r1 = map (pseudo map descriptor), two words
        insn(0, 0, 0, 0, 0),
        insn(0xB7, 3, 0, 0, 2),  // r3 = XDP_PASS, where the queue has no socket
        insn(0x85, 0, 0, 0, 51), // call bpf_redirect_map
        insn(0x95, 0, 0, 0, 0),  // exit
    ]
}
