//! The functions of `shim.c`, and the two structures that both sides know.
//!
//! This module is one of the named homes of `unsafe`: it is where C is called. What is safe to call at any time is a
//! safe function here; what rests on a promise about memory says so.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A packet's header as DPDK and its drivers know it (`struct rte_mbuf`). The second cache line is theirs.
#[repr(C, align(64))]
pub(super) struct Mbuf {
    pub(super) buf_addr: *mut u8,
    pub(super) buf_iova: u64,
    pub(super) data_off: u16,
    pub(super) refcnt: u16,
    pub(super) nb_segs: u16,
    pub(super) port: u16,
    pub(super) ol_flags: u64,
    pub(super) packet_type: u32,
    pub(super) pkt_len: u32,
    pub(super) data_len: u16,
    pub(super) vlan_tci: u16,
    pub(super) rss: u32,
    pub(super) other_hash: u32,
    pub(super) vlan_tci_outer: u16,
    pub(super) buf_len: u16,
    pub(super) pool: *mut Mempool,
    pub(super) second_line: [u64; 8],
}
const _: () = assert!(size_of::<Mbuf>() == 128 && std::mem::offset_of!(Mbuf, pool) == 56);

/// `rss` holds the hash that the device has computed.
pub(super) const RSS_HASH: u64 = 1 << 1;
/// What the device says of the IPv4 header's checksum, and that it is right. Of a tunnel's packet a card may mean the inner header by that, and say
/// of the outer one, which is what we check, only that it is wrong (bit 5).
pub(super) const IP_CHECKSUM: u64 = 1 << 4 | 1 << 5 | 1 << 7;
pub(super) const IP_CHECKSUM_GOOD: u64 = 1 << 7;

/// `struct rte_mempool`.
#[repr(C)]
pub(super) struct Mempool {
    _opaque: [u8; 0],
}

/// `struct tm_stock`: the frames that a queue has been lent and the driver does not hold now. In lines of its own: each call writes it, and the
/// next queue's, which is made right after it, is another worker's.
#[repr(C, align(128))]
pub(super) struct Stock {
    pub(super) stack: *mut *mut Mbuf,
    pub(super) pool: *mut Mempool,
    pub(super) count: u32,
    pub(super) room: u32,
    pub(super) port: u16,
    pub(super) queue: u16,
    pub(super) strays: AtomicU32,
    pub(super) stray: *mut *mut Mbuf,
    pub(super) lock: u32,
    /// The most frames that the driver has asked for in a worker's call, in whole chunks.
    pub(super) most: u32,
    /// Frames that it has had in this call.
    pub(super) had: u32,
}
const _: () = assert!(size_of::<Stock>() == 128 && std::mem::offset_of!(Stock, had) == 48);

/// `struct tm_info`: what a device is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Info {
    driver: [c_char; 32],
    /// What it can hash of a flow, 0 if nothing.
    pub(super) rss: u64,
    /// What of that goes by addresses alone.
    pub(super) rss_ip: u64,
    /// Bytes that each frame must have at least.
    pub(super) min_frame: u32,
    pub(super) mtu: u16,
    pub(super) max_mtu: u16,
    pub(super) max_rx_queues: u16,
    pub(super) max_tx_queues: u16,
    /// Lengths of rings that the driver recommends, 0 if it does not care.
    pub(super) rx_ring: u16,
    pub(super) tx_ring: u16,
    pub(super) mac: [u8; 6],
    pub(super) up: u8,
    /// Bytes of the key by which it hashes flows, which is ours; 0 if it has its own.
    pub(super) rss_key: u8,
}
const _: () = assert!(size_of::<Info>() == 72);

impl Info {
    pub(super) fn driver(&self) -> String {
        let name = self.driver.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8));
        name.collect()
    }
}

/// The longest key of a device's hash that we set.
pub(super) const MOST_KEY: usize = 64;

/// `struct tm_wish`: what a device's queues are to be.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// Once configured: of what the device hashes to choose a queue; 0 if it does not.
    pub(super) rss: u64,
    pub(super) queues: u16,
    /// 0: as it is; so too when it is configured, if the driver cannot set it.
    pub(super) mtu: u16,
    pub(super) rx_ring: u16,
    pub(super) tx_ring: u16,
    pub(super) promiscuous: u8,
    /// The driver keeps received packets in memory of its own.
    pub(super) copies: u8,
    /// Queues are chosen by addresses alone.
    pub(super) by_addresses: u8,
    /// The key of the hash that chooses them, as much of it as the device takes.
    pub(super) key: [u8; MOST_KEY],
}
const _: () = assert!(size_of::<Wish>() == 88);

/// `struct tm_region`: packet memory, in whole pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) memory: *mut u8,
    pub(super) len: usize,
}

// SAFETY: only an address here; nobody follows it but DPDK, by `Control::map`'s promise.
unsafe impl Send for Region {}

unsafe extern "C" {
    fn tm_eal(argc: c_int, argv: *mut *mut c_char, words: *mut c_char, room: usize) -> c_int;
    fn tm_find(name: *const c_char, port: *mut u16) -> c_int;
    fn tm_info(port: u16, out: *mut Info) -> c_int;
    fn tm_probe(
        name: *const c_char,
        arguments: *const c_char,
        port: *mut u16,
        words: *mut c_char,
        room: usize,
    ) -> c_int;
    fn tm_configure(port: u16, wish: *mut Wish, words: *mut c_char, room: usize) -> c_int;
    fn tm_start(
        port: u16,
        wish: *const Wish,
        stocks: *const *mut Stock,
        words: *mut c_char,
        room: usize,
    ) -> c_int;
    fn tm_close(port: u16, regions: *const Region, count: usize, words: *mut c_char, room: usize) -> c_int;
    fn tm_map(port: u16, region: *const Region, page: usize, first: c_int) -> c_int;
    fn tm_link(port: u16) -> c_int;
    fn tm_stats(port: u16, out: *mut u64) -> c_int;
    fn tm_pool_new(
        stock: *mut Stock,
        name: *const c_char,
        frames: u32,
        memory: *mut u8,
        len: usize,
        room: u16,
    ) -> c_int;
    fn tm_pool_free(stock: *mut Stock);

    /// Up to `n` received packets.
    ///
    /// # Safety
    /// `stock` is of a device that runs, and this thread alone is at work on its queue; `packets` has room for `n`.
    pub(super) fn tm_rx(stock: *mut Stock, packets: *mut *mut Mbuf, n: u16) -> u16;
    /// Sends up to `n` packets; returns how many. Those are the driver's, which frees them into the stock.
    ///
    /// # Safety
    /// As of [`tm_rx`]; the packets are lent to the queue.
    pub(super) fn tm_tx(stock: *mut Stock, packets: *mut *mut Mbuf, n: u16) -> u16;
    /// Copies a packet out of memory that is not the queue's, and frees that; returns its length.
    ///
    /// # Safety
    /// `packet` came from [`tm_rx`] on `stock`; `to` has `room` bytes.
    pub(super) fn tm_copy(stock: *mut Stock, packet: *mut Mbuf, to: *mut u8, room: u32) -> u32;
    /// Takes up what other threads have freed.
    ///
    /// # Safety
    /// The stock's device is closed, or this thread is at work on its queue.
    pub(super) fn tm_gather(stock: *mut Stock);
}

/// What DPDK said of a call that failed: one line.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) errno: i32,
    pub(super) words: String,
}

impl From<Said> for std::io::Error {
    fn from(said: Said) -> Self {
        let plain = std::io::Error::from_raw_os_error(said.errno);
        if said.words.is_empty() { plain } else { std::io::Error::new(plain.kind(), said.to_string()) }
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plain = std::io::Error::from_raw_os_error(self.errno);
        if self.words.is_empty() { plain.fmt(f) } else { write!(f, "{} ({plain})", self.words) }
    }
}

const WORDS: usize = 512;

/// Calls `call` with room for DPDK's words.
fn saying(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), Said> {
    let mut words: [c_char; WORDS] = [0; WORDS];
    let result = call(words.as_mut_ptr(), WORDS);
    if result >= 0 {
        return Ok(());
    }
    let words: Vec<u8> = words.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    Err(Said { errno: -result, words: String::from_utf8_lossy(&words).trim().to_owned() })
}

/// DPDK's control functions and its log are one for the process: whoever holds this calls them.
pub(super) struct Control(#[allow(dead_code)] MutexGuard<'static, ()>);

/// Waits for the right to call DPDK's control functions.
pub(super) fn control() -> Control {
    static CONTROL: Mutex<()> = Mutex::new(());
    Control(CONTROL.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A C string; what has a zero byte inside ends there.
pub(super) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

impl Control {
    /// Starts DPDK. Once for the process.
    pub(super) fn eal(&self, arguments: &[String]) -> Result<(), Said> {
        let arguments: Vec<CString> = arguments.iter().map(|argument| c_string(argument)).collect();
        // It may reorder the list, and keeps pointers into the strings.
        let mut list: Vec<*mut c_char> =
            arguments.iter().map(|argument| CStr::to_owned(argument).into_raw()).collect();
        let count = list.len() as c_int;
        list.push(std::ptr::null_mut());
        let list = list.leak();
        // SAFETY: `count` strings and a null, which live for ever.
        saying(|words, room| unsafe { tm_eal(count, list.as_mut_ptr(), words, room) })
    }

    /// The port of the device of that name.
    pub(super) fn find(&self, name: &str) -> Option<u16> {
        let (name, mut port) = (c_string(name), 0);
        // SAFETY: a C string and a place for the answer.
        (unsafe { tm_find(name.as_ptr(), &mut port) } == 0).then_some(port)
    }

    /// What a device is.
    pub(super) fn info(&self, port: u16) -> Result<Info, Said> {
        let mut info = std::mem::MaybeUninit::<Info>::zeroed();
        // SAFETY: a place for the answer; DPDK checks the number.
        saying(|_, _| unsafe { tm_info(port, info.as_mut_ptr()) })?;
        // SAFETY: zeroed, which is a valid value, and filled in.
        Ok(unsafe { info.assume_init() })
    }

    /// The device of that name, which is made or taken if it is not there.
    pub(super) fn probe(&self, name: &str, arguments: &str) -> Result<u16, Said> {
        let (name, arguments, mut port) = (c_string(name), c_string(arguments), 0);
        // SAFETY: C strings and a place for the answer.
        saying(|words, room| unsafe { tm_probe(name.as_ptr(), arguments.as_ptr(), &mut port, words, room) })?;
        Ok(port)
    }

    /// Decides the number of queues, and the lengths of the rings, the MTU and the hash in `wish`.
    pub(super) fn configure(&self, port: u16, wish: &mut Wish) -> Result<(), Said> {
        // SAFETY: `wish` lives; DPDK checks the number.
        saying(|words, room| unsafe { tm_configure(port, wish, words, room) })
    }

    /// Sets up the queues and starts the device.
    ///
    /// # Safety
    /// The stocks, as many as the wish has queues, have their pools, stay where they are until the device is closed, and
    /// nobody is at work on them.
    pub(super) unsafe fn start(&self, port: u16, wish: &Wish, stocks: &[*mut Stock]) -> Result<(), Said> {
        debug_assert_eq!(stocks.len(), usize::from(wish.queues));
        // SAFETY: the caller's promise.
        saying(|words, room| unsafe { tm_start(port, wish, stocks.as_ptr(), words, room) })
    }

    /// Closes the device and lets go of it, and of `regions`.
    ///
    /// # Safety
    /// Nobody is at work on its stocks. The regions were mapped, and no other device has them.
    pub(super) unsafe fn close(&self, port: u16, regions: &[Region]) -> Result<(), Said> {
        // SAFETY: the caller's promise.
        saying(|words, room| unsafe { tm_close(port, regions.as_ptr(), regions.len(), words, room) })
    }

    /// Makes memory known to the device, and to DPDK if it is the `first` device that has it.
    ///
    /// # Safety
    /// The memory lives as long as the device.
    pub(super) unsafe fn map(&self, port: u16, region: Region, page: usize, first: bool) -> Result<(), Said> {
        // SAFETY: the caller's promise.
        saying(|_, _| unsafe { tm_map(port, &region, page, first.into()) })
    }

    /// Makes the mempool of `stock` over packet memory.
    ///
    /// # Safety
    /// The stock and the memory stay where they are until [`pool_free`](Self::pool_free).
    pub(super) unsafe fn pool_new(
        &self,
        stock: *mut Stock,
        name: &str,
        frames: u32,
        memory: (*mut u8, usize),
        room: u16,
    ) -> Result<(), Said> {
        let name = c_string(name);
        // SAFETY: the caller's promise, and a C string.
        saying(|_, _| unsafe { tm_pool_new(stock, name.as_ptr(), frames, memory.0, memory.1, room) })
    }

    /// Ends the stock's mempool.
    ///
    /// # Safety
    /// It has one, and no driver has any of its frames.
    pub(super) unsafe fn pool_free(&self, stock: *mut Stock) {
        // SAFETY: the caller's promise.
        unsafe { tm_pool_free(stock) }
    }
}

/// A device's link, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    Down,
    Gone,
}

/// The state of an open device's link. May be called by any thread.
pub(super) fn link(port: u16) -> Link {
    // SAFETY: takes a number, which DPDK checks.
    match unsafe { tm_link(port) } {
        1 => Link::Up,
        0 => Link::Down,
        _ => Link::Gone,
    }
}

/// What a device has counted itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stats {
    /// Packets that came and found no descriptor.
    pub(super) missed: u64,
    /// Packets that came and were bad.
    pub(super) bad: u64,
    /// Frames that the driver did not get: asks, not packets.
    pub(super) asked_in_vain: u64,
    /// Packets that could not be sent.
    pub(super) unsent: u64,
}

/// What the device itself has counted; zeros if it cannot say.
pub(super) fn stats(port: u16) -> Stats {
    let mut out = [0; 4];
    // SAFETY: a place for four numbers; DPDK checks the port's.
    unsafe { tm_stats(port, out.as_mut_ptr()) };
    let [missed, bad, asked_in_vain, unsent] = out;
    Stats { missed, bad, asked_in_vain, unsent }
}
