//! Neighbors (ARP, RFC 826; neighbor discovery, RFC 4861): who on a link has which MAC address.
//!
//! ```text
//! workers                                            control side
//! arp-input, nd-input ---- Event::Heard ---------->  Table (state machine) --> adjacencies, host routes, published
//! ip4-/ip6-neighbor ------ Event::Wanted --------->     |
//!   (keep what waits) <--- Notice, one mailbox per worker
//! ```
//!
//! Nobody waits: events and notices go through bounded queues, and what does not fit is asked for again.

pub mod solicit;
pub mod table;

use crossbeam_queue::ArrayQueue;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidemill_graph::Waker;
use tidemill_wire::MacAddr;

/// A neighbor: an address on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The interface's number.
    pub interface: u16,
    /// The neighbor's address.
    pub address: IpAddr,
}

/// How a neighbor's MAC address was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It asked us: an ARP request, a solicitation or router solicitation with its link-layer address.
    Request,
    /// It answered: an ARP reply to us, or a neighbor advertisement.
    Reply {
        /// It answers a question of ours (always so for an ARP reply).
        solicited: bool,
        /// It says that a known address is to be replaced (always so for an ARP reply).
        overrides: bool,
    },
    /// It told everybody (RFC 5227 3, RFC 4861 7.2.6): changes what is known, and adds nothing.
    Gratuitous,
}

/// What workers tell the control side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A packet waits for this neighbor.
    Wanted(Key),
    /// A neighbor's MAC address.
    Heard {
        /// Who.
        key: Key,
        /// Its MAC address; `None` if it only says that it is there (an advertisement may leave the address out).
        mac: Option<MacAddr>,
        /// How we know.
        how: How,
    },
}

/// What the control side tells workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Ask for it: everybody, or that MAC address. One worker gets this.
    Solicit {
        /// Who.
        key: Key,
        /// A probe of a known neighbor; `None` asks everybody.
        to: Option<MacAddr>,
    },
    /// The neighbor's adjacency has been published: release what waits.
    Resolved(Key),
    /// It does not answer: give up what waits.
    Lost(Key),
}

/// Events on their way, all workers together.
const EVENTS: usize = 16_384;
/// Notices on their way to one worker's node.
const NOTICES: usize = 4096;

/// The queues between workers and the control side.
#[derive(Debug)]
pub struct Link {
    events: ArrayQueue<Event>,
    lost: AtomicU64,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
}

/// One node's notices.
#[derive(Debug)]
pub struct Mailbox {
    worker: usize,
    v6: bool,
    notices: ArrayQueue<Notice>,
    waker: OnceLock<Waker>,
}

impl Default for Link {
    fn default() -> Self {
        Link { events: ArrayQueue::new(EVENTS), lost: AtomicU64::new(0), mailboxes: Mutex::default() }
    }
}

impl Link {
    /// A mailbox for the IPv4 or the IPv6 node of a worker.
    pub fn register(&self, worker: usize, v6: bool) -> Arc<Mailbox> {
        let mailbox =
            Arc::new(Mailbox { worker, v6, notices: ArrayQueue::new(NOTICES), waker: OnceLock::new() });
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner).push(mailbox.clone());
        mailbox
    }

    /// Tells the control side, from a worker. What does not fit is counted and lost: it happens again.
    pub fn tell(&self, event: Event) {
        if self.events.push(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The next event, for the control side.
    pub fn event(&self) -> Option<Event> {
        self.events.pop()
    }

    /// Events and notices that were lost because a queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Tells the workers, from the control side.
    pub fn notify(&self, notice: Notice) {
        let boxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = match notice {
            // Asked for once, by the first worker, in the protocol of the address.
            Notice::Solicit { key, .. } => {
                let asks =
                    |mailbox: &&Arc<Mailbox>| mailbox.worker == 0 && mailbox.v6 == key.address.is_ipv6();
                boxes.iter().filter(asks).filter(|mailbox| !mailbox.put(notice)).count()
            }
            // An IPv4 packet may wait for an IPv6 gateway (RFC 8950).
            Notice::Resolved(_) | Notice::Lost(_) => {
                boxes.iter().filter(|mailbox| !mailbox.put(notice)).count()
            }
        };
        self.lost.fetch_add(lost as u64, Ordering::Relaxed);
    }
}

impl Mailbox {
    /// Puts a notice in and wakes the worker; whether there was room.
    fn put(&self, notice: Notice) -> bool {
        let put = self.notices.push(notice).is_ok();
        self.waker.get().into_iter().for_each(Waker::wake);
        put
    }

    /// Whom to wake when there is a notice.
    pub fn wake_with(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
    }

    /// The next notice, for the node.
    #[inline]
    pub fn take(&self) -> Option<Notice> {
        self.notices.pop()
    }
}
