//! The kernel's interface: packet sockets and what is known of network devices.
//!
//! This module is one of the named homes of `unsafe`: system calls with the layouts of linux/if_packet.h and linux/if.h.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const SOL_PACKET: i32 = 263;
const PACKET_ADD_MEMBERSHIP: i32 = 1;
const PACKET_RX_RING: i32 = 5;
const PACKET_STATISTICS: i32 = 6;
const PACKET_COPY_THRESH: i32 = 7;
const PACKET_VERSION: i32 = 10;
const PACKET_TX_RING: i32 = 13;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_FANOUT: i32 = 18;
const PACKET_QDISC_BYPASS: i32 = 20;
const PACKET_FANOUT_DATA: i32 = 22;
const PACKET_IGNORE_OUTGOING: i32 = 23;
pub(super) const TPACKET_V2: i32 = 1;
pub(super) const TPACKET_V3: i32 = 2;

/// Every protocol, in network byte order as the socket calls want it.
const ETH_P_ALL: u16 = 0x0003_u16.to_be();
/// ARPHRD_ETHER and ARPHRD_LOOPBACK: what has Ethernet headers.
const ETHERNET: [u16; 2] = [1, 772];

/// Which frames beside its own a device lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// All of them.
    Promiscuous = 1,
    /// Those to any group.
    AllMulticast = 2,
}

/// struct tpacket_req3.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RingRequest {
    pub(super) block_size: u32,
    pub(super) blocks: u32,
    pub(super) frame_size: u32,
    pub(super) frames: u32,
    pub(super) retire_ms: u32,
    pub(super) private: u32,
    pub(super) features: u32,
}

/// struct tpacket_stats_v3: since it was last read.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Statistics {
    /// Packets for this socket, the dropped ones too.
    pub(super) packets: u32,
    /// Those that found no room in the ring.
    pub(super) dropped: u32,
    /// How often the ring became full.
    pub(super) freezes: u32,
}

/// struct packet_mreq.
#[repr(C)]
struct MembershipRequest {
    ifindex: i32,
    kind: u16,
    len: u16,
    address: [u8; 8],
}

/// struct sockaddr_ll.
#[repr(C)]
#[derive(Default)]
struct Address {
    family: u16,
    protocol: u16,
    ifindex: i32,
    hardware: u16,
    kind: u8,
    len: u8,
    address: [u8; 8],
}

/// struct ifreq: the name and a union.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor was just made by the kernel and is ours alone.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A packet socket that receives nothing before it is bound.
pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is `len` readable bytes.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) }).map(|_| ())
}

/// # Safety
/// Any bits are a valid `T`.
unsafe fn get<T: Default>(fd: &OwnedFd, option: i32) -> io::Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as libc::socklen_t);
    let into = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `into` is `len` writable bytes; the rest is the caller's promise.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), SOL_PACKET, option, into, &mut len) })?;
    Ok(value)
}

/// Chooses the layout of the rings, and the virtio-net header in front of each frame in them.
pub(super) fn set_layout(fd: &OwnedFd, version: i32) -> io::Result<()> {
    set(fd, SOL_PACKET, PACKET_VERSION, &version)?;
    set(fd, SOL_PACKET, PACKET_VNET_HDR, &1i32)
}

pub(super) fn set_rx_ring(fd: &OwnedFd, request: &RingRequest) -> io::Result<()> {
    set(fd, SOL_PACKET, PACKET_RX_RING, request)
}

pub(super) fn set_tx_ring(fd: &OwnedFd, request: &RingRequest) -> io::Result<()> {
    set(fd, SOL_PACKET, PACKET_TX_RING, request)
}

/// Frames that are longer than a slot come whole through [`receive`], as long as they are within this many bytes.
pub(super) fn copy_longer(fd: &OwnedFd, bytes: i32) -> io::Result<()> {
    set(fd, SOL_PACKET, PACKET_COPY_THRESH, &1i32)?;
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

/// Fetches such a frame, with its virtio-net header; 0 if there is none.
pub(super) fn receive(fd: &OwnedFd, into: &mut [u8]) -> usize {
    // What happened to the device is told first, once; the frame comes after it.
    for _ in 0..3 {
        // SAFETY: `into` is that many writable bytes.
        let len =
            unsafe { libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
        if let Ok(len) = usize::try_from(len) {
            return len;
        }
    }
    0
}

/// What the host itself sends by this device is not received.
pub(super) fn ignore_outgoing(fd: &OwnedFd) -> io::Result<()> {
    set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)
}

/// Frames go to the driver directly, past the queueing discipline.
pub(super) fn bypass_qdisc(fd: &OwnedFd) -> io::Result<()> {
    set(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &1i32)
}

/// Bytes of packets that the kernel may be sending for this socket at once.
pub(super) fn set_send_buffer(fd: &OwnedFd, bytes: i32) -> io::Result<()> {
    // Beyond the system's limit takes CAP_NET_ADMIN; without it the limit is what there is.
    set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
}

/// Asks the device for more frames than those to its own address, until the socket is closed.
pub(super) fn join(fd: &OwnedFd, ifindex: u32, membership: Membership) -> io::Result<()> {
    let request =
        MembershipRequest { ifindex: ifindex as i32, kind: membership as u16, len: 0, address: [0; 8] };
    set(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
}

/// Keeps every packet out until [`open_gate`].
pub(super) fn close_gate(fd: &OwnedFd) -> io::Result<()> {
    // BPF: return 0 bytes.
    let mut refuse = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
    // The program is copied within the call.
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &libc::sock_fprog { len: 1, filter: &raw mut refuse })
}

pub(super) fn open_gate(fd: &OwnedFd) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
}

/// Binds to a device, to receive everything or only to send.
pub(super) fn bind(fd: &OwnedFd, ifindex: u32, receive: bool) -> io::Result<()> {
    let address = Address {
        family: libc::AF_PACKET as u16,
        protocol: if receive { ETH_P_ALL } else { 0 },
        ifindex: ifindex as i32,
        ..Address::default()
    };
    let len = size_of::<Address>() as libc::socklen_t;
    // SAFETY: `address` is `len` readable bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) }).map(|_| ())
}

/// Whether the device that the socket was bound to still exists.
pub(super) fn is_bound(fd: &OwnedFd) -> bool {
    let (mut address, mut len) = (Address::default(), size_of::<Address>() as libc::socklen_t);
    let into = std::ptr::from_mut(&mut address).cast();
    // SAFETY: `into` is `len` writable bytes of plain integers.
    let told = check(unsafe { libc::getsockname(fd.as_raw_fd(), into, &mut len) });
    told.is_ok() && address.ifindex > 0
}

/// Joins the fanout group `id`, or makes a new one with a number that nobody has; returns its number. `program` chooses the socket of each
/// packet, by what it returns modulo their number.
///
/// Without one a hash does, over addresses and ports (the kernel's symmetric flow hash), of fragments over addresses alone. The flag
/// that would reassemble fragments first, so that they hash with their ports, is not set: a router must pass fragments
/// on as they came, and reassembly is memory that anyone can fill.
pub(super) fn join_fanout(
    fd: &OwnedFd,
    id: Option<u16>,
    program: Option<&mut [libc::sock_filter]>,
) -> io::Result<u16> {
    let kind = if program.is_some() { libc::PACKET_FANOUT_CBPF } else { libc::PACKET_FANOUT_HASH };
    let flags = kind | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let flags = if id.is_some() { flags } else { flags | libc::PACKET_FANOUT_FLAG_UNIQUEID };
    set(fd, SOL_PACKET, PACKET_FANOUT, &(flags << 16 | u32::from(id.unwrap_or(0))))?;
    if let Some(id) = id {
        // Whoever made the group has given it its program.
        return Ok(id);
    }
    if let Some(program) = program {
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // It is copied within the call.
        set(fd, SOL_PACKET, PACKET_FANOUT_DATA, &program)?;
    }
    // SAFETY: an integer.
    unsafe { get::<u32>(fd, PACKET_FANOUT) }.map(|told| told as u16)
}

/// What happened since the last call.
pub(super) fn statistics(fd: &OwnedFd) -> io::Result<Statistics> {
    // SAFETY: plain integers.
    unsafe { get(fd, PACKET_STATISTICS) }
}

/// What came of telling the kernel to look at the transmit ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kick {
    /// It took frames.
    Sent,
    /// It has no room now: again later.
    Later,
    /// The device is down.
    Down,
    /// The device no longer exists.
    Gone,
    /// It refused a frame, or something else went wrong.
    Refused,
}

/// Tells the kernel to send what is in the transmit ring. Never waits.
pub(super) fn kick(fd: &OwnedFd) -> Kick {
    // SAFETY: no data is passed.
    let sent =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if sent >= 0 {
        return Kick::Sent;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY | libc::EINTR | libc::ENOMEM) => Kick::Later,
        Some(libc::ENETDOWN) => Kick::Down,
        Some(libc::ENXIO | libc::ENODEV) => Kick::Gone,
        _ => Kick::Refused,
    }
}

/// A socket to ask about devices with; needs no rights.
pub(crate) fn query() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

fn ask(fd: &OwnedFd, name: &str, what: libc::c_ulong) -> io::Result<[u8; 24]> {
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], value: [0; 24] };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: struct ifreq is at most 40 bytes and lives through the call; the calls used here write no more.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, std::ptr::from_mut(&mut request)) })?;
    Ok(request.value)
}

fn number(value: [u8; 24]) -> i32 {
    let [a, b, c, d, ..] = value;
    i32::from_ne_bytes([a, b, c, d])
}

/// The device's index.
pub(super) fn index(fd: &OwnedFd, name: &str) -> io::Result<u32> {
    ask(fd, name, libc::SIOCGIFINDEX).map(|value| number(value) as u32)
}

/// The device's longest packet, without the Ethernet header.
pub(super) fn mtu(fd: &OwnedFd, name: &str) -> io::Result<usize> {
    ask(fd, name, libc::SIOCGIFMTU).map(|value| number(value).max(0) as usize)
}

/// The device's address; `None` if it has no Ethernet headers.
pub(super) fn mac(fd: &OwnedFd, name: &str) -> io::Result<Option<[u8; 6]>> {
    let [a, b, mac @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
        ask(fd, name, libc::SIOCGIFHWADDR)?;
    Ok(ETHERNET.contains(&u16::from_ne_bytes([a, b])).then_some(mac))
}

/// Whether the device is up, and whether it has a carrier.
pub(super) fn flags(fd: &OwnedFd, name: &str) -> io::Result<(bool, bool)> {
    let flags = ask(fd, name, libc::SIOCGIFFLAGS).map(number)?;
    Ok((flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0))
}

/// The names of all devices in this network namespace.
pub(super) fn names() -> Vec<String> {
    // SAFETY: no arguments; the answer is a table that ends with index 0 and is given back below.
    let table = unsafe { libc::if_nameindex() };
    let mut names = Vec::new();
    if table.is_null() {
        return names;
    }
    let mut at = table;
    // SAFETY: every entry up to and including the last, whose index is 0, is readable; names are NUL-terminated.
    unsafe {
        while (*at).if_index != 0 && !(*at).if_name.is_null() {
            names.push(CStr::from_ptr((*at).if_name).to_string_lossy().into_owned());
            at = at.add(1);
        }
        libc::if_freenameindex(table);
    }
    names
}
