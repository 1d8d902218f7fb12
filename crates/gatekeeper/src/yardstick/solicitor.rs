//! The solicitor, and how it gets its requests.
//!
//! ```text
//! lists     63: first <-> .. <-> last       which priorities have one: a bit each
//!           ..                              sent: the first of the highest; pushed out: the last of the lowest
//!            3: first <-> last
//! ```
//! The nodes of the lists are request records ([`HandOver::Each`]) or lie in the packets ([`HandOver::Batch`]): all else is the
//! same.

use super::MOST;
use super::packets::{Outer, Packets};
use super::ring::{Pool, Ring};

/// Requests that a solicitor keeps.
pub const KEPT: usize = 1024;
/// Requests on the way to it, at most.
const ON_THE_WAY: usize = 8192;
/// Requests that it takes at once.
const AT_ONCE: usize = 32;
/// Besides the frame: preamble, frame check sequence, gap.
const AROUND: usize = 24;
/// What it may save up for sending: a millisecond's worth.
const SAVED_NS: i64 = 1_000_000;
/// Nanoseconds for a byte at 5 % of 10 Gbit/s.
const NS_PER_BYTE: i64 = 16;

/// How requests get to the solicitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// One by one, each by a record from a pool.
    Each,
    /// All of a burst at once; the packets carry what there is to say.
    Batch,
}

/// How a packet left the solicitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// To its Grantor.
    Sent,
    /// It had the lowest priority when there was one too many.
    PushedOut,
}

/// What a solicitor has done: `handed = sent + pushed_out + thrown_away + held`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Books {
    /// Requests that came, on the way included.
    pub handed: u64,
    /// Requests that found the way full.
    pub lost: u64,
    /// To Grantors.
    pub sent: u64,
    /// Of the lowest priority when there was one too many.
    pub pushed_out: u64,
    /// Thrown away.
    pub thrown_away: u64,
}

/// A place in a list.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    before: u32,
    after: u32,
}

/// A request on its own (`priority_req`, Fu 4.5.5).
#[derive(Debug, Clone, Default)]
struct Request {
    node: Node,
    packet: u32,
    dscp: u8,
}

/// Where nodes lie.
trait Nodes {
    fn node(&mut self, at: u32) -> &mut Node;
}

impl Nodes for Vec<Request> {
    #[inline(always)]
    fn node(&mut self, at: u32) -> &mut Node {
        &mut self[at as usize].node
    }
}

impl Nodes for Packets {
    #[inline(always)]
    fn node(&mut self, at: u32) -> &mut Node {
        &mut self.at(at).node
    }
}

/// A list for each priority. Who is first or last is written here only: its node's other side is not looked at.
#[derive(Debug)]
struct Lists {
    ends: [(u32, u32); 64],
    some: u64,
    len: usize,
}

impl Lists {
    /// At the end of its priority's list.
    #[inline(always)]
    fn push(&mut self, nodes: &mut impl Nodes, priority: u8, at: u32) {
        let list = usize::from(priority & 63);
        let (first, last) = &mut self.ends[list];
        if self.some >> list & 1 == 0 {
            self.some |= 1 << list;
            *first = at;
        } else {
            nodes.node(*last).after = at;
            nodes.node(at).before = *last;
        }
        *last = at;
        self.len += 1;
    }

    /// The first of the highest priority.
    #[inline(always)]
    fn pop_first(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        let list = self.some.checked_ilog2()? as usize;
        let (first, last) = self.ends[list];
        if first == last {
            self.some &= !(1 << list);
        } else {
            self.ends[list].0 = nodes.node(first).after;
        }
        self.len -= 1;
        Some(first)
    }

    /// The last of the lowest priority.
    #[inline(always)]
    fn pop_last(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        if self.some == 0 {
            return None;
        }
        let list = self.some.trailing_zeros() as usize;
        let (first, last) = self.ends[list];
        if first == last {
            self.some &= self.some - 1;
        } else {
            self.ends[list].1 = nodes.node(last).before;
        }
        self.len -= 1;
        Some(last)
    }
}

/// The solicitor with its way.
#[derive(Debug)]
pub(super) struct Solicitor {
    way: Ring,
    /// Those of this burst that are to go together.
    batch: Vec<u32>,
    pool: Pool,
    requests: Vec<Request>,
    lists: Lists,
    /// What is on the way and in the lists.
    of: HandOver,
    /// Nanoseconds of sending that it may do, negative if the last packet was longer, and since when.
    saved_ns: i64,
    then_ns: u64,
    books: Books,
}

impl Solicitor {
    pub(super) fn new() -> Self {
        // Never the first to have no more: all that is on the way and in the lists has one.
        let (pool, requests) = Pool::new(ON_THE_WAY + KEPT + MOST);
        Solicitor {
            way: Ring::new(ON_THE_WAY),
            batch: Vec::with_capacity(MOST),
            pool,
            requests: vec![Request::default(); requests],
            lists: Lists { ends: [(0, 0); 64], some: 0, len: 0 },
            of: HandOver::Batch,
            saved_ns: 0,
            then_ns: 0,
            books: Books::default(),
        }
    }

    pub(super) fn books(&self) -> Books {
        self.books
    }

    /// The gate has a request. In a batch it goes with [`hand_over`](Self::hand_over).
    #[inline(always)]
    pub(super) fn request(&mut self, how: HandOver, packets: &mut Packets, id: u32, dscp: u8) {
        debug_assert!(self.of == how || self.lists.len == 0, "`empty` before another way");
        self.of = how;
        match how {
            HandOver::Batch => {
                packets.at(id).dscp = dscp;
                self.batch.push(id);
            }
            HandOver::Each => {
                let Some(number) = self.pool.take() else { return self.lose(packets, id) };
                let request = &mut self.requests[number as usize];
                (request.packet, request.dscp) = (id, dscp);
                if self.way.put(&[number]) == 1 {
                    self.books.handed += 1;
                } else {
                    self.pool.give(number);
                    self.lose(packets, id);
                }
            }
        }
    }

    /// The end of a burst.
    #[inline(always)]
    pub(super) fn hand_over(&mut self, packets: &mut Packets) {
        let put = self.way.put(&self.batch);
        self.books.handed += put as u64;
        for at in put..self.batch.len() {
            self.lose(packets, self.batch[at]);
        }
        self.batch.clear();
    }

    #[cold]
    fn lose(&mut self, packets: &mut Packets, id: u32) {
        self.books.lost += 1;
        packets.give_back(id);
    }

    /// Takes what was handed over and sends what it may; `outer` is put before what is sent, by the Grantor's number, if it is to be.
    pub(super) fn turn(
        &mut self,
        now_ns: u64,
        packets: &mut Packets,
        outer: Option<&[Outer]>,
        mut left: impl FnMut(Left, &[u8]),
    ) {
        let mut taken = [0; AT_ONCE];
        let passed = now_ns.saturating_sub(self.then_ns).min(SAVED_NS as u64) as i64;
        self.saved_ns = (self.saved_ns + passed).min(SAVED_NS);
        self.then_ns = now_ns;
        loop {
            let count = self.way.take(&mut taken);
            for &number in &taken[..count] {
                self.list(packets, number);
                if self.lists.len > KEPT
                    && let Some(id) = self.lowest(packets)
                {
                    self.books.pushed_out += 1;
                    left(Left::PushedOut, packets.get(id).frame());
                    packets.give_back(id);
                }
            }
            if count < AT_ONCE {
                break;
            }
        }
        while self.saved_ns > 0
            && let Some(id) = self.highest(packets)
        {
            if let Some(outer) = outer {
                let packet = packets.at(id);
                if let Some(outer) = outer.get(usize::from(packet.grantor)) {
                    packet.encapsulate(outer, packet.dscp);
                }
            }
            let frame = packets.get(id).frame();
            self.saved_ns -= (frame.len() + AROUND) as i64 * NS_PER_BYTE;
            self.books.sent += 1;
            left(Left::Sent, frame);
            packets.give_back(id);
        }
    }

    /// Throws everything away.
    pub(super) fn empty(&mut self, packets: &mut Packets) {
        let mut taken = [0];
        loop {
            while self.way.take(&mut taken) == 1 {
                self.list(packets, taken[0]);
            }
            let Some(id) = self.lowest(packets) else { return };
            self.books.thrown_away += 1;
            packets.give_back(id);
        }
    }

    #[inline(always)]
    fn list(&mut self, packets: &mut Packets, number: u32) {
        match self.of {
            HandOver::Each => {
                let dscp = self.requests[number as usize].dscp;
                self.lists.push(&mut self.requests, dscp, number);
            }
            HandOver::Batch => {
                let dscp = packets.get(number).dscp;
                self.lists.push(packets, dscp, number);
            }
        }
    }

    #[inline(always)]
    fn lowest(&mut self, packets: &mut Packets) -> Option<u32> {
        match self.of {
            HandOver::Each => self.lists.pop_last(&mut self.requests).map(|number| self.packet_of(number)),
            HandOver::Batch => self.lists.pop_last(packets),
        }
    }

    #[inline(always)]
    fn highest(&mut self, packets: &mut Packets) -> Option<u32> {
        match self.of {
            HandOver::Each => self.lists.pop_first(&mut self.requests).map(|number| self.packet_of(number)),
            HandOver::Batch => self.lists.pop_first(packets),
        }
    }

    /// The packet of a request that has left its list.
    #[inline(always)]
    fn packet_of(&mut self, number: u32) -> u32 {
        self.pool.give(number);
        self.requests[number as usize].packet
    }
}
