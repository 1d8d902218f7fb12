//! A device: opened by the control side, started when every queue has its frames, closed when the last queue has left.
//!
//! Drivers take frames for their rings when a queue is set up, and frames come from the workers' pools, which the workers
//! alone may touch. So each queue arrives with its frames at its worker's first call, and whoever comes last starts the
//! device. In the same way whoever leaves last closes it, and sends all queues' frames home.
//!
//! This module is one of the named homes of `unsafe`: it starts and closes devices, and so says that no worker is at work
//! on their queues.

use super::queue::{Headers, Queue};
use super::sys::{self, Info, MOST_KEY, Region, Wish};
use super::{Options, eal};
use crate::rng::mix;
use crate::spec::{AROUND, room};
use crate::spread::secret;
use crate::{PortError, SpreadBy};
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_burst::{Memory, Pool};
use tidemill_lookup::mem::Pages;

/// Drivers that receive into memory which they lay out themselves: packets are copied out of it.
const COPYING: &[&str] = &["net_af_xdp"];
/// Drivers that take a packet before they ask for its frame: for each frame asked for in vain one is lost.
const TAKING_FIRST: &[&str] = &["net_pcap", "net_tap"];
/// The devices that are open, by DPDK's numbers, with their ports' names: whoever opened one again would close it under the first.
static OPEN: Mutex<Vec<(u16, String)>> = Mutex::new(Vec::new());
/// Packet memory that DPDK knows, once for each device that has it: the last to be closed has DPDK forget it, for at its place there may be other memory then.
static MAPPED: Mutex<Vec<(u16, Region)>> = Mutex::new(Vec::new());
/// Descriptors of a ring where the driver has no opinion.
const RING: u16 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Queues are still arriving.
    Waiting,
    Running,
    /// Could not be started, or was closed.
    Over,
}

pub(super) struct Device {
    name: String,
    /// How it was opened, for the operator.
    pub(super) note: String,
    port: u16,
    wish: Wish,
    stage: AtomicU8,
    /// Packets that the driver did not take at a try, on all queues.
    pub(super) refused: AtomicU64,
    /// Whether its driver is one of [`TAKING_FIRST`].
    pub(super) takes_first: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The stocks of the queues that have arrived, by number.
    arrived: Vec<(u16, Stock)>,
    /// Queues that have left, until the device is closed.
    left: Vec<Queue>,
    left_count: usize,
    closed: bool,
}

/// A queue's stock, on its way to DPDK.
struct Stock(*mut sys::Stock);

// SAFETY: only an address here; `Queue` says who may follow it.
unsafe impl Send for Stock {}

fn all_open() -> MutexGuard<'static, Vec<(u16, String)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mapped() -> MutexGuard<'static, Vec<(u16, Region)>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Finds or makes the device and decides how its queues are to be. Returns it with its queues.
    pub(super) fn open(
        name: &str,
        device: &str,
        options: &Options,
        memory: &[Arc<Memory>],
    ) -> Result<(Arc<Device>, Vec<Queue>), PortError> {
        let queues = memory.len();
        let failed = |action: &'static str| {
            move |said: sys::Said| PortError::Device { port: name.to_owned(), action, source: said.into() }
        };
        eal::start(name, eal::is_pci(device))?;
        let short = device.split(',').next().unwrap_or_default();
        let control = sys::control();
        let port = control.probe(short, device).map_err(|said| {
            let what = format!("DPDK has no device {device:?}: {said}");
            PortError::config(name, what)
        })?;
        claim(port, name, short)?;
        let mut device = Device {
            name: name.to_owned(),
            note: String::new(),
            port,
            wish: Wish {
                rss: 0,
                queues: queues as u16,
                mtu: options.mtu.unwrap_or(0),
                rx_ring: 0,
                tx_ring: 0,
                promiscuous: options.promiscuous.into(),
                copies: 0,
                by_addresses: (options.spread_by == SpreadBy::Addresses).into(),
                key: key(options.spread_by),
            },
            stage: AtomicU8::new(Stage::Waiting as u8),
            refused: AtomicU64::new(0),
            takes_first: false,
            inner: Mutex::default(),
        };
        let info = control.info(port);
        // From here on `device` closes it when it is dropped, for which it needs the control itself.
        drop(control);
        let info = info.map_err(failed("cannot tell what the device is"))?;
        device.check(&info, options, memory)?;
        let or = |wanted: Option<u16>, theirs: u16| wanted.unwrap_or(if theirs > 0 { theirs } else { RING });
        device.wish.rx_ring = or(options.rx_descriptors, info.rx_ring);
        device.wish.tx_ring = or(options.tx_descriptors, info.tx_ring);
        device.wish.copies = COPYING.contains(&info.driver().as_str()).into();
        device.takes_first = TAKING_FIRST.contains(&info.driver().as_str());
        sys::control().configure(port, &mut device.wish).map_err(failed("cannot configure the device"))?;
        if queues > 1 && device.wish.rss == 0 {
            return Err(PortError::config(
                name,
                format!(
                    "the device ({}) does not spread flows over its queues: set queues = 1, and the first worker does so",
                    info.driver()
                ),
            ));
        }
        device.note = note(name, &info, &device.wish, options.spread_by);
        if let Some(mtu) = options.mtu.filter(|_| device.wish.mtu == 0) {
            device.note.push_str(&format!(", MTU {mtu} here only: the driver cannot set it"));
        }
        // With two VLAN tags.
        let longest = usize::from(options.mtu.unwrap_or(info.mtu)) + 14 + 8;
        let mut list: Vec<Queue> = Vec::new();
        for (queue, memory) in memory.iter().enumerate() {
            let headers = Headers::of(memory).map_err(|source| PortError::Device {
                port: name.to_owned(),
                action: "cannot map memory for packet headers",
                source,
            })?;
            if !list.iter().any(|other| Arc::ptr_eq(other.memory(), memory)) {
                device.map(memory).map_err(|said| {
                    let what = format!(
                        "the device cannot read and write packet memory: {said}: bind it to vfio-pci with an IOMMU, \
                         and reserve huge pages (vm.nr_hugepages)"
                    );
                    PortError::config(name, what)
                })?;
            }
            list.push(
                Queue::new(port, queue as u16, headers, longest).map_err(failed("cannot make a mempool"))?,
            );
        }
        Ok((Arc::new(device), list))
    }

    fn check(&self, info: &Info, options: &Options, memory: &[Arc<Memory>]) -> Result<(), PortError> {
        let wrong = |what: String| Err(PortError::config(&self.name, what));
        let (queues, driver) = (self.wish.queues, info.driver());
        let most = info.max_rx_queues.min(info.max_tx_queues);
        if queues > most {
            return wrong(format!(
                "the device ({driver}) has {most} queues at most, not {queues}: set queues = 1, and the first worker \
                 spreads flows over all"
            ));
        }
        let (what, can) = match options.spread_by {
            SpreadBy::Sessions | SpreadBy::Flows => ("flows", info.rss),
            SpreadBy::Addresses => ("packets by their addresses alone", info.rss_ip),
        };
        if queues > 1 && can == 0 {
            return wrong(format!(
                "the device ({driver}) cannot spread {what} over {queues} queues: set queues = 1, and the first worker \
                 does so"
            ));
        }
        let mtu = options.mtu.unwrap_or(info.mtu);
        for memory in memory {
            let needed = (usize::from(mtu) + AROUND).max(info.min_frame as usize);
            if needed > room(memory.frame_size()) {
                return wrong(format!(
                    "frames of {} bytes do not hold what the device ({driver}) receives (MTU {mtu}, {needed} bytes): \
                     raise memory.frame_size, or set mtu",
                    memory.frame_size()
                ));
            }
        }
        Ok(())
    }

    fn map(&self, memory: &Arc<Memory>) -> Result<(), sys::Said> {
        let page = if memory.pages() == Pages::Huge { 2 << 20 } else { 4096 };
        let len = memory.len_bytes().next_multiple_of(page);
        let region = Region { memory: memory.as_ptr().cast_mut(), len };
        let control = sys::control();
        let mut mapped = mapped();
        let first = mapped.iter().all(|(_, other)| *other != region);
        // SAFETY: mappings are whole pages, and `Headers` keeps the memory while the device has any of it (Q3); after
        // that nothing of it is given to a device any more.
        unsafe { control.map(self.port, region, page, first) }?;
        mapped.push((self.port, region));
        Ok(())
    }

    /// DPDK's number of the device.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Descriptors in each receive ring.
    pub(super) fn rx_ring(&self) -> usize {
        self.wish.rx_ring.into()
    }

    #[inline]
    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Waiting,
            1 => Stage::Running,
            _ => Stage::Over,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queue number `number` has its frames. The last to arrive starts the device.
    pub(super) fn arrive(&self, number: u16, queue: &Queue) -> Result<(), PortError> {
        let mut inner = self.inner();
        inner.arrived.push((number, Stock(queue.stock())));
        if inner.arrived.len() < usize::from(self.wish.queues) || inner.left_count > 0 {
            return Ok(());
        }
        inner.arrived.sort_by_key(|(number, _)| *number);
        let stocks: Vec<*mut sys::Stock> = inner.arrived.iter().map(|(_, stock)| stock.0).collect();
        // SAFETY: all queues have arrived, and touch their stocks no more before the stage says `Running`; they stay until
        // the device is closed, which needs them all to have left.
        let started = unsafe { sys::control().start(self.port, &self.wish, &stocks) };
        let stage = if started.is_ok() { Stage::Running } else { Stage::Over };
        self.stage.store(stage as u8, Ordering::Release);
        started.map_err(|said| {
            let what = match said.errno {
                _ if said.words.contains("not fit in mbuf") => {
                    format!("{said}: raise memory.frame_size, or have the device use smaller frames")
                }
                libc::ENOMEM | libc::ENOBUFS => {
                    format!("{said}: fewer rx_descriptors, or more memory.frames")
                }
                _ => said.to_string(),
            };
            PortError::Device {
                port: self.name.clone(),
                action: "cannot start the device",
                source: io::Error::other(what),
            }
        })
    }

    /// A queue is no longer used. The last to leave closes the device and sends all queues' frames home. Without a pool
    /// they stay out.
    pub(super) fn leave(&self, queue: Queue, pool: Option<&mut Pool>) -> Result<(), PortError> {
        let mut inner = self.inner();
        inner.left_count += 1;
        inner.left.push(queue);
        if self.stage() == Stage::Waiting {
            // It will never be whole: who waits for the others, or comes later, is not to wait for ever.
            self.stage.store(Stage::Over as u8, Ordering::Release);
        }
        if inner.left_count < usize::from(self.wish.queues) {
            return Ok(());
        }
        self.stage.store(Stage::Over as u8, Ordering::Release);
        let closed = self.close(&mut inner);
        if let Some(pool) = pool {
            inner.left.iter_mut().for_each(|queue| queue.home(pool));
        }
        inner.left.clear();
        closed
    }

    fn close(&self, inner: &mut Inner) -> Result<(), PortError> {
        if std::mem::replace(&mut inner.closed, true) {
            return Ok(());
        }
        let control = sys::control();
        let mut mapped = mapped();
        let (mut regions, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *mapped).into_iter().partition(|(port, _)| *port == self.port);
        regions.retain(|(_, region)| others.iter().all(|(_, other)| other != region));
        let regions: Vec<Region> = regions.into_iter().map(|(_, region)| region).collect();
        *mapped = others;
        // SAFETY: every queue has left, or none was ever made: nobody is at work on a stock. It is no other port's (`claim`).
        // The regions are no other device's.
        let closed = unsafe { control.close(self.port, &regions) };
        // Before the control goes on: DPDK gives the number to the next device.
        all_open().retain(|(number, _)| *number != self.port);
        drop(control);
        closed.map_err(|said| PortError::Device {
            port: self.name.clone(),
            action: "cannot close the device",
            source: said.into(),
        })
    }
}

/// Makes a device this port's, if it is nobody's.
fn claim(port: u16, name: &str, device: &str) -> Result<(), PortError> {
    let mut open = all_open();
    if let Some((_, other)) = open.iter().find(|(number, _)| *number == port) {
        let what = format!("device {device:?} is port {other:?}'s already: give another");
        return Err(PortError::config(name, what));
    }
    open.push((port, name.to_owned()));
    Ok(())
}

/// The key of the hash by which the device chooses queues. It is one that nobody knows, unless both directions of a flow have to have the same hash: all keys
/// that do this have hosts that choose their addresses and ports fall together.
fn key(by: SpreadBy) -> [u8; MOST_KEY] {
    let mut key = [0; MOST_KEY];
    for (i, word) in (0..).zip(key.chunks_exact_mut(8)) {
        word.copy_from_slice(&match by {
            // Woo and Park, 2012.
            SpreadBy::Sessions => 0x6D5A_6D5A_6D5A_6D5A_u64.to_be_bytes(),
            SpreadBy::Flows | SpreadBy::Addresses => mix(secret().wrapping_add(i)).to_be_bytes(),
        });
    }
    key
}

/// What the operator should know of an open device.
fn note(name: &str, info: &Info, wish: &Wish, by: SpreadBy) -> String {
    let queues = wish.queues;
    let line = format!("port {name}: dpdk, {}", info.driver());
    if queues == 1 {
        return format!("{line}, 1 queue");
    }
    let what = if wish.rss & !info.rss_ip == 0 { "RSS of addresses alone" } else { "RSS" };
    let how = match (by, info.rss_key) {
        (SpreadBy::Addresses, 0) => "by the device's own key".to_owned(),
        (_, 0) => "by the device's own key: the two directions of a flow may be on two workers".to_owned(),
        (SpreadBy::Sessions, bytes) => format!(
            "by a symmetric key of {bytes} bytes, which is known: who chooses addresses and ports can aim at one worker (queues = 1: nobody can)"
        ),
        (SpreadBy::Flows, bytes) => {
            format!("by a random key of {bytes} bytes: the two directions of a flow may be on two workers")
        }
        (SpreadBy::Addresses, bytes) => format!("by a random key of {bytes} bytes"),
    };
    format!("{line}, {queues} queues, {what} {how}")
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut inner = self.inner.lock().map(|mut inner| std::mem::take(&mut *inner)).unwrap_or_default();
        // Ports hold the device, so all queues have left, or opening failed before there were any.
        let _ = self.close(&mut inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_only_where_both_directions_must_meet() {
        let known = key(SpreadBy::Sessions);
        assert!(known.chunks(2).all(|pair| pair == [0x6D, 0x5A]), "{known:x?}");
        for by in [SpreadBy::Flows, SpreadBy::Addresses] {
            let drawn = key(by);
            assert_eq!(drawn, key(by), "of one process, one");
            // Of random words no two are alike (one in 2^58 would be right to be).
            let words: std::collections::BTreeSet<&[u8]> = drawn.chunks(8).collect();
            assert_eq!((words.len(), drawn == known), (8, false), "{drawn:x?}");
        }
    }
}
