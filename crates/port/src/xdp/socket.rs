//! One AF_XDP socket with its rings, on a queue of a device, and how it comes to its UMEM.
//!
//! This module is one of the named homes of `unsafe`: it registers packet memory with the kernel.
//!
//! A region of packet memory is registered once: the first socket on it does, and others use that registration
//! (`XDP_SHARED_UMEM`, across interfaces from Linux 5.10 on) as long as one that has it is bound, in the same mode. Where the
//! kernel refuses, a socket registers the region again, for itself. It makes no difference to the addresses, which count
//! from the region's start either way; it saves pinning the pages again and, with zero-copy, mapping them for the device.

use super::ring::Ring;
use super::sys::{self, Desc};
use super::{Options, failed};
use crate::PortError;
use crate::spec::Mode;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidemill_burst::Memory;

/// A bound socket with its rings.
pub(super) struct Socket {
    pub(super) fill: Ring<u64>,
    pub(super) completion: Ring<u64>,
    pub(super) rx: Ring<Desc>,
    pub(super) tx: Ring<Desc>,
    pub(super) zero_copy: bool,
    /// Whether it uses another one's registration.
    pub(super) shares: bool,
    pub(super) fd: OwnedFd,
}

/// What a socket is to be.
pub(super) struct Place<'a> {
    pub(super) port: &'a str,
    pub(super) interface: &'a str,
    pub(super) index: u32,
    pub(super) queue: u32,
    pub(super) native: bool,
    pub(super) options: &'a Options,
    pub(super) memory: &'a Arc<Memory>,
    /// How long a queue that is taken is waited for.
    pub(super) patience: Duration,
    /// Tries that found it taken.
    pub(super) taken: Cell<u64>,
}

/// A bound socket of this process, as others may share with it.
struct Bound {
    fd: RawFd,
    /// Start of the region.
    region: usize,
    zero_copy: bool,
    /// The worker, and how many frames of its pool the receive side holds.
    worker: u32,
    frames: usize,
}

static BOUND: Mutex<Vec<Bound>> = Mutex::new(Vec::new());

fn bound() -> MutexGuard<'static, Vec<Bound>> {
    BOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames that the receive rings of a worker hold already, on this region.
pub(super) fn frames_in_rings(memory: &Memory, worker: u32) -> usize {
    let region = memory.as_ptr() as usize;
    bound().iter().filter(|b| b.region == region && b.worker == worker).map(|b| b.frames).sum()
}

impl Place<'_> {
    /// Opens and binds the socket; its packets still go to the kernel.
    pub(super) fn open(&self) -> Result<Socket, PortError> {
        let flags: &[u16] = match (self.options.mode, self.native) {
            (Mode::ZeroCopy, _) => &[sys::XDP_ZEROCOPY],
            (Mode::Auto, true) => &[sys::XDP_ZEROCOPY, sys::XDP_COPY],
            _ => &[sys::XDP_COPY],
        };
        let mut result = Err(io::Error::from(io::ErrorKind::Unsupported));
        for &flags in flags {
            for share in [true, false] {
                if share && !self.options.share {
                    continue;
                }
                result = self.bind(flags, share);
                match &result {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(self.taken()),
                    Err(_) => {}
                    Ok(_) => return result.map_err(failed(self.port, "cannot bind")),
                }
            }
        }
        let source = result.err().unwrap_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
        let action = match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "cannot open an AF_XDP socket (run as root, or give the program cap_net_admin, cap_net_raw, cap_bpf)"
            }
            Some(libc::ENOBUFS) => "cannot pin packet memory (raise RLIMIT_MEMLOCK: ulimit -l)",
            Some(libc::EOPNOTSUPP) if self.options.mode == Mode::ZeroCopy => {
                "the driver has no zero-copy: mode = \"auto\" takes what there is"
            }
            Some(libc::EINVAL) => "cannot bind (no such queue? ring sizes?)",
            _ => "cannot open an AF_XDP socket on the queue",
        };
        Err(failed(self.port, action)(source))
    }

    /// One way to bind; waits while the queue is taken by a socket that is just being closed.
    fn bind(&self, flags: u16, share: bool) -> io::Result<Socket> {
        let started = Instant::now();
        loop {
            let result = self.attempt(flags, share);
            if !matches!(&result, Err(error) if error.raw_os_error() == Some(libc::EBUSY)) {
                return result;
            }
            self.taken.set(self.taken.get() + 1);
            if started.elapsed() >= self.patience {
                return result;
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn attempt(&self, flags: u16, share: bool) -> io::Result<Socket> {
        let (memory, options) = (self.memory, self.options);
        let region = memory.as_ptr() as usize;
        let zero_copy = flags == sys::XDP_ZEROCOPY;
        // Locked until we are bound: what we share with is not closed meanwhile.
        let mut bound = bound();
        let with = bound.iter().find(|b| b.region == region && b.zero_copy == zero_copy).map(|b| b.fd);
        if share && with.is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let fd = sys::socket()?;
        if !share {
            // SAFETY: the port's `Lent` holds the region alive, and on drop keeps every lent frame from being used again
            // unless the socket was closed before (see `XdpPort::close`).
            unsafe { sys::register_umem(&fd, memory.as_ptr(), memory.len_bytes(), memory.frame_size()) }?;
        }
        let (rx_size, tx_size) = (options.rx_ring as u32, options.tx_ring as u32);
        sys::set_ring_size(&fd, sys::XDP_UMEM_FILL_RING, rx_size)?;
        sys::set_ring_size(&fd, sys::XDP_UMEM_COMPLETION_RING, tx_size)?;
        sys::set_ring_size(&fd, sys::XDP_RX_RING, rx_size)?;
        sys::set_ring_size(&fd, sys::XDP_TX_RING, tx_size)?;
        let at = sys::mmap_offsets(&fd)?;
        let fill = Ring::map(&fd, sys::FILL_PAGE, &at.fill, rx_size, true)?;
        let completion = Ring::map(&fd, sys::COMPLETION_PAGE, &at.completion, tx_size, false)?;
        let rx = Ring::map(&fd, sys::RX_PAGE, &at.rx, rx_size, false)?;
        let tx = Ring::map(&fd, sys::TX_PAGE, &at.tx, tx_size, true)?;
        if options.busy_poll_us > 0 {
            sys::set_busy_poll(&fd, options.busy_poll_us, BUDGET)?;
        }
        sys::bind(&fd, self.index, self.queue, flags | sys::XDP_USE_NEED_WAKEUP, with.filter(|_| share))?;
        sys::set_send_budget(&fd, tx_size);
        sys::set_send_buffer(&fd, (options.tx_ring * memory.frame_size()).min(1 << 29) as i32)?;
        let zero_copy = sys::is_zero_copy(&fd);
        bound.push(Bound {
            fd: fd.as_raw_fd(),
            region,
            zero_copy,
            worker: self.queue,
            frames: options.rx_ring,
        });
        Ok(Socket { fill, completion, rx, tx, zero_copy, shares: share, fd })
    }

    /// Somebody else has the queue. Who does not wait for it is a worker: its packets must not wait either until all
    /// processes have been looked at.
    fn taken(&self) -> PortError {
        if self.patience.is_zero() {
            return failed(self.port, TAKEN)(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let what = format!(
            "queue {} of {} {TAKEN} ({}): stop that program, or use another interface",
            self.queue,
            self.interface,
            who()
        );
        PortError::config(self.port, what)
    }
}

/// How long after one try to bind to a taken queue the next one comes.
pub(super) const AGAIN: Duration = Duration::from_millis(10);

/// What is said of a queue that somebody else has.
pub(super) const TAKEN: &str = "is taken by another AF_XDP socket";

/// Who may have it, in words: it takes a look at every process.
pub(super) fn who() -> String {
    let holders = holders();
    match holders.is_empty() {
        true => "nobody that can be seen has one open".to_owned(),
        false => format!("these have some open: {}", holders.join(", ")),
    }
}

/// Packets that one call does the driver's work for.
const BUDGET: u32 = 64;

impl Drop for Socket {
    fn drop(&mut self) {
        let fd = self.fd.as_raw_fd();
        bound().retain(|bound| bound.fd != fd);
    }
}

/// The processes in our network namespace with AF_XDP sockets.
fn holders() -> Vec<String> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let ours = namespace("self");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) || namespace(&pid) != ours {
            continue;
        }
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        if descriptors.into_iter().any(|fd| sys::is_xdp_socket(&fd.path().to_string_lossy())) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            found.push(format!("{} (pid {pid})", name.trim()));
        }
    }
    found
}
