//! The kernel's interface: AF_XDP sockets, and what has to be known of a device to open some.
//!
//! This module is one of the named homes of `unsafe`: system calls with the layouts of linux/if_xdp.h and linux/ethtool.h.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const AF_XDP: i32 = 44;
const SOL_XDP: i32 = 283;
const XDP_MMAP_OFFSETS: i32 = 1;
pub(super) const XDP_RX_RING: i32 = 2;
pub(super) const XDP_TX_RING: i32 = 3;
const XDP_UMEM_REG: i32 = 4;
pub(super) const XDP_UMEM_FILL_RING: i32 = 5;
pub(super) const XDP_UMEM_COMPLETION_RING: i32 = 6;
const XDP_STATISTICS: i32 = 7;
const XDP_OPTIONS: i32 = 8;
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
const XDP_SHARED_UMEM: u16 = 1;
pub(super) const XDP_COPY: u16 = 2;
pub(super) const XDP_ZEROCOPY: u16 = 4;
pub(super) const XDP_USE_NEED_WAKEUP: u16 = 8;
const SO_BUSY_POLL: i32 = 46;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Where the rings are mapped.
pub(super) const RX_PAGE: i64 = 0;
pub(super) const TX_PAGE: i64 = 0x8000_0000;
pub(super) const FILL_PAGE: i64 = 0x1_0000_0000;
pub(super) const COMPLETION_PAGE: i64 = 0x1_8000_0000;

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

/// struct sockaddr_xdp.
#[repr(C)]
struct Address {
    family: u16,
    flags: u16,
    ifindex: u32,
    queue_id: u32,
    shared_umem_fd: u32,
}

/// struct xdp_statistics: since the socket was made.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Statistics {
    /// Packets for which there was no frame, or which were longer than one.
    pub(super) rx_dropped: u64,
    pub(super) rx_invalid_descs: u64,
    pub(super) tx_invalid_descs: u64,
    pub(super) rx_ring_full: u64,
    /// Times that a frame was wanted and the fill ring was empty.
    pub(super) rx_fill_ring_empty: u64,
    pub(super) tx_ring_empty: u64,
}

/// struct ifreq with a pointer.
#[repr(C, align(8))]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut libc::c_void,
    rest: [u8; 16],
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is new and ours.
    let fd = check(unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A packet socket for what is left to the kernel and concerns us as well: ARP and neighbor discovery without a VLAN tag.
/// While it is open the device lets all groups' frames through, or all there are if `promiscuous`.
pub(super) fn ear(ifindex: u32, promiscuous: bool) -> io::Result<OwnedFd> {
    const PACKET_ADD_MEMBERSHIP: i32 = 1;
    const PACKET_IGNORE_OUTGOING: i32 = 23;
    const SOL_PACKET: i32 = 263;
    // struct packet_mreq: all multicast is 2, everything 1.
    let membership = |kind: u16| [ifindex, u32::from_ne_bytes(pair(kind, 0)), 0, 0];
    // SAFETY: no pointers; the descriptor is new and ours.
    let fd = unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0).into())?;
        OwnedFd::from_raw_fd(fd as RawFd)
    };
    let mut filter =
        HEARD.map(|[code, jt, jf, k]| libc::sock_filter { code: code as u16, jt: jt as u8, jf: jf as u8, k });
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // The filter is copied within the call.
    set(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    set(&fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
    set(&fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership(2))?;
    if promiscuous {
        set(&fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership(1))?;
    }
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is `len` readable bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) }.into())?;
    Ok(fd)
}

fn pair(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d]
}

/// Classic BPF, `[code, jump if so, jump if not, constant]`: frames that carry no tag (any more) and are ARP, or ICMPv6 of
/// the types 133 to 137.
const HEARD: [[u32; 4]; 12] = [
    // A tag that the kernel has taken off (SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT): not ours to hear.
    [0x30, 0, 0, 0xFFFF_F030],
    [0x15, 0, 9, 0],
    // EtherType.
    [0x28, 0, 0, 12],
    [0x15, 6, 0, 0x0806],
    [0x15, 0, 6, 0x86DD],
    // Next header, type.
    [0x30, 0, 0, 20],
    [0x15, 0, 4, 58],
    [0x30, 0, 0, 54],
    [0x35, 0, 2, 133],
    [0x25, 1, 0, 137],
    [0x06, 0, 0, 0x0004_0000],
    [0x06, 0, 0, 0],
];

/// Fetches a frame from the ear: its length, which may be more than was taken.
pub(super) fn hear(fd: &OwnedFd, into: &mut [u8]) -> Option<usize> {
    // SAFETY: `into` is that many writable bytes.
    let len = unsafe {
        libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT | libc::MSG_TRUNC)
    };
    usize::try_from(len).ok()
}

fn set<T>(fd: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let (value, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is `len` readable bytes.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) };
    check(result.into()).map(|_| ())
}

/// # Safety
/// Any bits are a valid `T`.
unsafe fn get<T: Default>(fd: &OwnedFd, level: i32, option: i32) -> io::Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as libc::socklen_t);
    let into = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `into` is `len` writable bytes; the rest is the caller's promise.
    let result = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, into, &mut len) };
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
    set(fd, SOL_XDP, XDP_UMEM_REG, &umem)
}

pub(super) fn set_ring_size(fd: &OwnedFd, ring: i32, entries: u32) -> io::Result<()> {
    set(fd, SOL_XDP, ring, &entries)
}

pub(super) fn mmap_offsets(fd: &OwnedFd) -> io::Result<MmapOffsets> {
    // SAFETY: plain integers.
    unsafe { get(fd, SOL_XDP, XDP_MMAP_OFFSETS) }
}

pub(super) fn statistics(fd: &OwnedFd) -> io::Result<Statistics> {
    // SAFETY: plain integers.
    unsafe { get(fd, SOL_XDP, XDP_STATISTICS) }
}

/// Whether the driver writes into our memory itself.
pub(super) fn is_zero_copy(fd: &OwnedFd) -> bool {
    // SAFETY: an integer.
    unsafe { get::<u32>(fd, SOL_XDP, XDP_OPTIONS) }.is_ok_and(|options| options & 1 != 0)
}

/// Whether the device that the socket was bound to has gone, also where another one has its number since. The kernel says so once (`xsk_notifier` in net/xdp/xsk.c).
pub(super) fn has_lost_device(fd: &OwnedFd) -> bool {
    // SAFETY: an integer.
    unsafe { get::<i32>(fd, libc::SOL_SOCKET, libc::SO_ERROR) }.is_ok_and(|error| error == libc::ENETDOWN)
}

/// How many packets one call may send in copy mode. Kernels before 6.17 send 32 and do not let that be changed.
pub(super) fn set_send_budget(fd: &OwnedFd, packets: u32) {
    let _ = set(fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &packets);
}

/// Bytes of packets that the kernel may be sending for this socket at once, in copy mode.
pub(super) fn set_send_buffer(fd: &OwnedFd, bytes: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
}

/// Lets our calls do the driver's work, `budget` packets at a time, instead of its interrupts.
pub(super) fn set_busy_poll(fd: &OwnedFd, micros: u32, budget: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
    set(fd, libc::SOL_SOCKET, SO_BUSY_POLL, &micros)?;
    set(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget)
}

/// For how many microseconds a call polls, as the kernel has it; 0: not at all.
pub(super) fn busy_poll_us(fd: &OwnedFd) -> u32 {
    // SAFETY: an integer.
    let of = |option| unsafe { get::<u32>(fd, libc::SOL_SOCKET, option) }.unwrap_or(0);
    if of(SO_PREFER_BUSY_POLL) == 0 { 0 } else { of(SO_BUSY_POLL) }
}

/// Whether the kernel knows what to run when it polls for this socket.
pub(super) fn is_polled(fd: &OwnedFd) -> bool {
    // SAFETY: an integer.
    unsafe { get::<u32>(fd, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID) }.is_ok_and(|napi| napi != 0)
}

/// Binds to a queue of an interface; `shared` is the socket whose UMEM is used, if it is not this one's own.
pub(super) fn bind(
    fd: &OwnedFd,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<RawFd>,
) -> io::Result<()> {
    let address = Address {
        family: AF_XDP as u16,
        // Flags beside "shared" are refused: the first socket has decided them.
        flags: if shared.is_some() { XDP_SHARED_UMEM } else { flags },
        ifindex,
        queue_id: queue,
        shared_umem_fd: shared.map_or(0, |fd| fd as u32),
    };
    let len = size_of::<Address>() as libc::socklen_t;
    // SAFETY: `address` is `len` readable bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) }.into()).map(|_| ())
}

/// What came of calling the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kick {
    /// Done.
    Done,
    /// It has more to do, or no room now: again later.
    Again,
    /// The packet at the front was taken and not sent (copy mode: the device refused it).
    Refused,
    /// The device is down.
    Down,
    /// The device no longer exists.
    Gone,
    /// Something else.
    Failed(i32),
}

impl Kick {
    fn of(result: isize) -> Self {
        if result >= 0 {
            return Kick::Done;
        }
        match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EAGAIN | libc::ENOBUFS | libc::EINTR | libc::ENOMEM => Kick::Again,
            libc::EBUSY => Kick::Refused,
            libc::ENETDOWN => Kick::Down,
            libc::ENXIO | libc::ENODEV => Kick::Gone,
            other => Kick::Failed(other),
        }
    }
}

/// Tells the kernel to look at the transmit ring. Never waits.
pub(super) fn kick(fd: &OwnedFd) -> Kick {
    // SAFETY: no data is passed.
    Kick::of(unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    })
}

/// Tells the kernel to look at the fill ring, or to poll the device. Never waits.
pub(super) fn wake(fd: &OwnedFd) -> Kick {
    // SAFETY: no data is passed.
    Kick::of(unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) })
}

/// Asks a device by SIOCETHTOOL. `command` begins with the number of what is asked.
///
/// # Safety
/// The kernel writes no more than `T` for this command, and any bits are a valid `T`.
unsafe fn ethtool<T>(interface: &str, command: &mut T) -> io::Result<()> {
    const SIOCETHTOOL: u32 = 0x8946;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        data: std::ptr::from_mut(command).cast(),
        rest: [0; 16],
    };
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    request.name[..interface.len()].copy_from_slice(interface.as_bytes());
    // SAFETY: struct ifreq is at most 40 bytes; what it points to is the caller's promise. Both live through the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL as _, std::ptr::from_mut(&mut request)) };
    check(result.into()).map(|_| ())
}

/// How many queues a device has that both receive and send; `None` if its driver does not say.
pub(super) fn queues(interface: &str) -> Option<u32> {
    /// struct ethtool_channels: maxima, then counts, of receiving, sending, other and combined ones.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        max: [u32; 4],
        rx: u32,
        tx: u32,
        other: u32,
        combined: u32,
    }
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: the layout of linux/ethtool.h, plain integers.
    unsafe { ethtool(interface, &mut channels) }.ok()?;
    // A driver counts pairs as combined, or both kinds by themselves.
    Some(channels.combined + channels.rx).filter(|count| *count > 0)
}

/// Whether a device looks at the ports of packets of this kind (a number of linux/ethtool.h) when it chooses their queue; `None` if its driver does not say.
pub(super) fn hashes_ports(interface: &str, kind: u32) -> Option<bool> {
    /// struct ethtool_rxnfc, as much of it as there is of this command.
    #[repr(C)]
    struct Fields {
        command: u32,
        kind: u32,
        fields: u64,
    }
    /// RXH_L4_B_0_1 and RXH_L4_B_2_3: what are ports in TCP and UDP.
    const PORTS: u64 = 1 << 6 | 1 << 7;
    let mut asked = Fields { command: ETHTOOL_GRXFH, kind, fields: 0 };
    // SAFETY: the layout of linux/ethtool.h, of which the kernel writes 16 bytes here; plain integers.
    unsafe { ethtool(interface, &mut asked) }.ok()?;
    Some(asked.fields & PORTS != 0)
}

/// The name of a device's driver.
pub(super) fn driver(interface: &str) -> Option<String> {
    /// struct ethtool_drvinfo: the driver's name comes first.
    #[repr(C)]
    struct Info {
        command: u32,
        driver: [u8; 32],
        rest: [u8; 160],
    }
    const _: () = assert!(size_of::<Info>() == 196);
    let mut info = Info { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: the layout of linux/ethtool.h, plain bytes.
    unsafe { ethtool(interface, &mut info) }.ok()?;
    let name = info.driver.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Whether a device merges packets that it receives (GRO).
pub(super) fn merges(interface: &str) -> bool {
    let mut value = [ETHTOOL_GGRO, 0];
    // SAFETY: struct ethtool_value, plain integers.
    unsafe { ethtool(interface, &mut value) }.is_ok() && value[1] != 0
}

/// Whether a device takes VLAN tags off what it receives.
pub(super) fn takes_tags_off(interface: &str) -> bool {
    let mut value = [ETHTOOL_GFLAGS, 0];
    // SAFETY: struct ethtool_value, plain integers.
    unsafe { ethtool(interface, &mut value) }.is_ok() && value[1] & ETH_FLAG_RXVLAN != 0
}

/// Whether a file descriptor of some process, given by its path below /proc, is an AF_XDP socket.
pub(super) fn is_xdp_socket(path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    let mut name = [0u8; 32];
    // SAFETY: two NUL-terminated strings, and a buffer of that many writable bytes.
    let len = unsafe {
        libc::getxattr(path.as_ptr(), c"system.sockprotoname".as_ptr(), name.as_mut_ptr().cast(), name.len())
    };
    usize::try_from(len).is_ok_and(|len| name[..len.min(name.len())].starts_with(b"XDP"))
}
