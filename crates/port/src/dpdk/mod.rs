//! DPDK ports: any device that DPDK drives, on our packet memory.
//!
//! ```text
//! Memory (frames)      f0        f1        f2        f3   ...
//! Headers (mbufs)      m0        m1        m2        m3   ...   one per frame, buf_addr = the frame
//!
//! worker's Pool --lend--> stock (the queue's mempool) --driver takes--> [ring] --received--> adopt -> Packet -> graph
//!      ^                    ^                                                                            |
//!      +------settle--------+---------driver frees what it has sent--- [ring] <--- lend <--- Packet <----+
//! ```
//!
//! A frame of our region is the buffer of one mbuf, so packets go from DPDK to any other port and back without a copy. Each
//! queue has a mempool of our own making (`shim.c`): its store is a plain stack, the *stock*, to which a worker lends frames
//! and in which drivers leave those that they have sent. No locks and no caches: one thread is at work on a queue. What
//! another thread frees goes to a list of strays, under a lock that nobody meets in normal operation. The stock holds no more than a
//! driver asks for in a call, so that the same few frames go round, and their lines stay in the first cache.
//!
//! # Costs
//! Two calls into C per chunk of 64 packets. Per packet: the mbuf's first cache line, a table entry of 16 bytes, the packet's
//! 32 bytes; no byte of the frame itself. Memory: 128 bytes of mbuf per frame, 32 per frame and queue.
//!
//! # Books
//! A packet counts as sent when the driver takes it. What the device itself loses is folded in, on the first queue: missed
//! for want of descriptors (`rx-ring-full`), bad (`rx-error`), taken and not sent (`tx-failed`). Drivers disagree whether a
//! packet that they did not take is a transmit error; so as many errors as there were such packets are left out.
//!
//! `rx_nombuf` is no part of the books: DPDK has it as failed allocations, and most drivers count each frame that they
//! asked for in vain, though no packet was lost for it (mlx5, virtio: once or twice at the start, where they ask for more than
//! the stock has held so far). It is [`PortCounters::asked_in_vain`]. Where frames do run out for long, the device misses packets;
//! `net_pcap` and `net_tap` have taken the packet by then, and with them each is one of `no-frames`.
//!
//! # Queues
//! The device chooses a packet's queue (RSS), by a key that we give it if it takes one. The key is drawn at random for the process, unless both directions
//! of a flow have to meet ([`SpreadBy::Sessions`]): with a Toeplitz hash that takes a symmetric key, which sees nothing but the exclusive or of all 16-bit
//! words, so that whoever chooses his addresses and ports has all his packets come to one queue. Where that must not be, `queues = 1` and
//! [`spread`](crate::spread()) do better. By addresses alone means that RSS is asked for IP and for no protocol above it; a device that then has no hash for TCP or UDP
//! gives these to its first queue. What DPDK has made of it is looked at when the device is configured, and said; whether a card then does so is untested.
//!
//! # Offloads
//! Received: the IPv4 header's checksum, where the device checks it. Sent: none of checksums and segmentation (TSO), for there is nothing to gain: what
//! a forwarded packet's checksum becomes follows from the few bytes that change (RFC 1624), and nothing here sends segments that a card would have to cut.
//!
//! # What may happen
//! * A device is one port's: another port on it is refused, whatever name DPDK has for it there.
//! * A link that goes down (`net_memif`: the peer leaves) counts as lost, one that comes up again as found; meanwhile packets
//!   to send are dropped as `tx-failed`. It is looked at every 100 ms. A device that is pulled out does not come back.
//! * Chained mbufs do not occur, as scattering is not asked for; were one to come, it would be copied into one frame.
//! * `net_af_xdp` lays out its receive memory itself, and `net_ring` hands over another queue's mbufs: both are copied.
//! * A driver that attaches buffers of its own to our mbufs (mlx5 with `mprq_en=1`) is refused: a frame is its mbuf's buffer.
//! * Frames that a driver never gives back (packets left in a ring that another device is attached to) stay out.

mod device;
mod eal;
mod queue;
mod sys;

pub(crate) use eal::{check_arguments, is_pci, prepare};

use crate::spec::Station;
use crate::{Port, PortCounters, PortError, RxStatus, SpreadBy};
use device::{Device, Stage};
use queue::{Moved, Queue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::{Link, Stats};
use tidemill_burst::{BURST, Burst, DropReason, Memory, Pool};
use tidemill_wire::MacAddr;

/// How often a queue looks at the link and the device's own counters.
const LOOK_NS: u64 = 100_000_000;
/// Frames that a queue has beyond its ring's when it starts.
const SPARE: usize = BURST;

/// How a device is to be set up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Receive frames to any address.
    pub promiscuous: bool,
    /// The longest packets, without the Ethernet header; the device's own if nothing is said.
    pub mtu: Option<u16>,
    /// Descriptors in each receive ring; what the driver recommends if nothing is said.
    pub rx_descriptors: Option<u16>,
    /// The same of each transmit ring.
    pub tx_descriptors: Option<u16>,
    /// The most packets that are received in one call: 1 to 256, 256 if nothing is said.
    pub burst: Option<u16>,
    /// By what packets are spread over several queues.
    pub spread_by: SpreadBy,
}

/// Opens a device with one queue for each region of `memory`, which are the workers'.
///
/// `device` is what DPDK's `--vdev` or `--allow` would have (`net_null0`, `net_pcap0,rx_pcap=in.pcap`, `0000:3b:00.0`), or
/// the name of a device that DPDK has already. DPDK is started when the first device is opened.
///
/// # Errors
/// DPDK cannot be started, has no such device, or the device cannot have as many queues; with DPDK's own words.
pub fn open(
    name: &str,
    device: &str,
    options: &Options,
    memory: &[Arc<Memory>],
) -> Result<Vec<DpdkPort>, PortError> {
    let (device, queues) = Device::open(name, device, options, memory)?;
    let port = |(number, queue)| DpdkPort {
        name: name.to_owned(),
        device: device.clone(),
        number: number as u16,
        queue: Some(queue),
        sending: Burst::new(),
        burst: usize::from(options.burst.unwrap_or(BURST as u16)),
        arrived: false,
        failed: false,
        link: Link::Up,
        was_up: false,
        look_ns: 0,
        counters: PortCounters::default(),
        by_device: Stats::default(),
    };
    Ok(queues.into_iter().enumerate().map(port).collect())
}

/// What an open device is called on the wire; `None` if it is not open.
pub fn station(device: &str) -> Option<Station> {
    let name = device.split(',').next().unwrap_or_default();
    let control = sys::control();
    let info = control.find(name).and_then(|port| control.info(port).ok())?;
    let driver = info.driver();
    let answers = driver != "net_null" && (driver != "net_pcap" || device.contains("iface="));
    Some(Station { mac: MacAddr(info.mac), mtu: info.mtu, answers })
}

/// One queue pair of a device. In cache lines of its own, as other workers' queues lie beside it.
#[repr(align(128))]
pub struct DpdkPort {
    name: String,
    device: Arc<Device>,
    number: u16,
    /// `None` once it has left.
    queue: Option<Queue>,
    sending: Burst,
    /// The most that is received in one call.
    burst: usize,
    arrived: bool,
    /// The error has been reported.
    failed: bool,
    link: Link,
    was_up: bool,
    look_ns: u64,
    counters: PortCounters,
    /// What the device itself has counted; on the first queue.
    by_device: Stats,
}

impl DpdkPort {
    /// How its device was opened, in a line: driver, queues, and what spreads flows over them.
    pub fn note(&self) -> &str {
        &self.device.note
    }

    /// Frames that DPDK has now.
    pub fn lent(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::lent)
    }

    /// Whether the device runs; if not, brings it nearer to that.
    fn runs(&mut self, now_ns: u64, pool: &mut Pool) -> Result<bool, PortError> {
        let Some(queue) = &mut self.queue else { return Ok(false) };
        match self.device.stage() {
            Stage::Running => {}
            Stage::Waiting if !self.arrived => {
                self.arrived = true;
                queue.refill(pool, self.device.rx_ring() + SPARE);
                self.device.arrive(self.number, queue)?;
                if self.device.stage() != Stage::Running {
                    return Ok(false);
                }
            }
            _ => return Ok(false),
        }
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_NS);
            self.look();
        }
        Ok(self.link != Link::Gone)
    }

    #[cold]
    fn look(&mut self) {
        let link = sys::link(self.device.port());
        if link != self.link || !self.was_up {
            match link {
                Link::Up => {
                    self.counters.found += u64::from(self.was_up);
                    self.was_up = true;
                }
                _ if self.was_up && self.link == Link::Up => self.counters.lost += 1,
                _ => {}
            }
            self.link = link;
        }
        if self.number == 0 {
            self.by_device = sys::stats(self.device.port());
        }
    }

    fn fail<T>(&mut self, result: Result<T, PortError>) -> Result<T, PortError> {
        self.failed |= result.is_err();
        result
    }
}

impl Port for DpdkPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let runs = self.runs(now_ns, pool);
        let idle = Ok(RxStatus::Idle { next_due_ns: None });
        if !self.fail(runs)? {
            let over = self.failed || self.queue.is_none() || self.device.stage() == Stage::Over;
            return if over { Ok(RxStatus::Ended) } else { idle };
        }
        let Some(queue) = &mut self.queue else { return Ok(RxStatus::Ended) };
        let Moved { packets, bytes, dropped, .. } = queue.receive(pool, burst, self.burst);
        self.counters.rx.packets += packets;
        self.counters.rx.bytes += bytes;
        if let Some((reason, count)) = dropped {
            self.counters.rx.dropped.count_many(reason, count);
        }
        if packets > 0 { Ok(RxStatus::Received) } else { idle }
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let runs = self.runs(now_ns, pool);
        let runs = self.fail(runs)?;
        if burst.is_empty() {
            return Ok(());
        }
        if !runs && self.queue.is_some() && self.device.stage() == Stage::Waiting {
            // The other queues' workers will come.
            return Ok(());
        }
        let queue = self.queue.as_mut().filter(|_| runs && self.link == Link::Up);
        let Some(queue) = queue else {
            self.counters.tx.dropped.count_many(DropReason::TxFailed, burst.len() as u64);
            pool.free_all(burst);
            return Ok(());
        };
        let Moved { packets, bytes, dropped, refused } = queue.send(pool, burst, &mut self.sending);
        self.counters.tx.packets += packets;
        self.counters.tx.bytes += bytes;
        if refused > 0 {
            self.device.refused.fetch_add(refused, Ordering::Relaxed);
        }
        if let Some((reason, count)) = dropped {
            self.counters.tx.dropped.count_many(reason, count);
        }
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let Some(mut queue) = self.queue.take() else { return Ok(()) };
        if self.device.stage() == Stage::Running {
            self.look();
            if self.link != Link::Gone {
                queue.drain(pool, self.device.rx_ring());
            }
        }
        self.device.leave(queue, Some(pool))
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.counters;
        let refused = self.device.refused.load(Ordering::Relaxed);
        self.by_device.fold_into(&mut counters, refused, self.device.takes_first);
        counters
    }
}

impl Stats {
    /// Adds them to what the queues have counted, which were `refused` so many packets; `takes_first`: for each frame that the driver asked
    /// for in vain a packet is lost.
    fn fold_into(self, counters: &mut PortCounters, refused: u64, takes_first: bool) {
        let without_frame = if takes_first { self.asked_in_vain } else { 0 };
        let lost = [
            (DropReason::RxRingFull, self.missed),
            (DropReason::RxError, self.bad),
            (DropReason::NoFrames, without_frame),
        ];
        for (reason, count) in lost {
            counters.rx.packets += count;
            counters.rx.dropped.count_many(reason, count);
        }
        counters.asked_in_vain += self.asked_in_vain;
        let unsent = self.unsent.saturating_sub(refused).min(counters.tx.packets);
        counters.tx.packets -= unsent;
        counters.tx.dropped.count_many(DropReason::TxFailed, unsent);
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            // Frames that DPDK has then stay out: there is no pool to take them.
            let _ = self.device.leave(queue, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames that a driver asked for in vain are no packets: what is counted as received is what was delivered and lost.
    #[test]
    fn the_books_balance_beside_asks_in_vain() {
        let mut counters = PortCounters::default();
        (counters.rx.packets, counters.tx.packets) = (100, 50);
        let stats = Stats { missed: 7, bad: 2, asked_in_vain: 1000, unsent: 5 };
        let mut losing = counters;
        stats.fold_into(&mut counters, 3, false);
        assert_eq!((counters.delivered(), counters.taken()), (100, 50), "{counters:?}");
        assert_eq!((counters.rx.packets, counters.tx.packets), (109, 48));
        assert_eq!(counters.rx.dropped.get(DropReason::RxRingFull), 7);
        assert_eq!(counters.rx.dropped.get(DropReason::RxError), 2);
        assert_eq!(counters.rx.dropped.get(DropReason::NoFrames), 0);
        assert_eq!(counters.tx.dropped.get(DropReason::TxFailed), 2);
        assert_eq!(counters.asked_in_vain, 1000);
        // Those that had taken the packets have lost them.
        stats.fold_into(&mut losing, 3, true);
        assert_eq!((losing.delivered(), losing.rx.packets), (100, 1109));
        assert_eq!(losing.rx.dropped.get(DropReason::NoFrames), 1000);
    }
}
