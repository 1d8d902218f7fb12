//! The null port: an endless source of ready-made packets, and a sink. For benchmarks of everything between.

use crate::template::{Fields, Payload, Template};
use crate::{Port, PortCounters, PortError, RxStatus};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tidemill_burst::{Burst, Pool};

/// What a null port gives, over and over.
#[derive(Debug, Clone)]
pub enum Supply {
    /// Nothing: the port only swallows.
    Nothing,
    /// Copies of these frames, in turn. All fit the pool's frames, or the others are left out.
    Frames(Arc<[Vec<u8>]>),
    /// UDP packets of this frame length (RFC 2544: with the frame check sequence, 64 and up) to these destinations, in
    /// turn, with right checksums. IPv4 and IPv6 may mix.
    Destinations {
        /// The frame length.
        frame_len: usize,
        /// The destinations.
        addresses: Arc<[IpAddr]>,
    },
}

/// One queue of a null port. Packets have no timestamp: nobody received them. In cache lines of its own, as other workers' queues lie
/// beside it.
#[repr(align(128))]
pub struct NullPort {
    name: String,
    supply: Supply,
    v4: Template,
    v6: Template,
    at: usize,
    left: u64,
    /// Bytes of the longest frame.
    longest: usize,
    counters: PortCounters,
}

const SRC_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
const SRC_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1));

impl NullPort {
    /// A queue that gives at most `limit` packets of `supply`. Queues that share a supply are best started at
    /// different places: `start` is the first entry.
    pub fn new(name: &str, supply: Supply, start: usize, limit: Option<u64>) -> Self {
        let frame_len = match &supply {
            Supply::Destinations { frame_len, .. } => *frame_len,
            _ => 64,
        };
        let entries = match &supply {
            Supply::Nothing => 0,
            Supply::Frames(frames) => frames.len(),
            Supply::Destinations { addresses, .. } => addresses.len(),
        };
        let (v4, v6) =
            (Template::new(false, frame_len, Payload::Udp), Template::new(true, frame_len, Payload::Udp));
        let longest = match &supply {
            Supply::Frames(frames) => frames.iter().map(Vec::len).max().unwrap_or_default(),
            _ => v4.len().max(v6.len()),
        };
        NullPort {
            name: name.to_owned(),
            supply: if entries == 0 { Supply::Nothing } else { supply },
            v4,
            v6,
            longest,
            at: start.checked_rem(entries).unwrap_or(0),
            left: limit.unwrap_or(u64::MAX),
            counters: PortCounters::default(),
        }
    }

    /// Keeps the frames that have room.
    #[cold]
    fn leave_out_longer(&mut self, room: usize) {
        self.supply = match &self.supply {
            Supply::Frames(frames) => {
                Supply::Frames(frames.iter().filter(|frame| frame.len() <= room).cloned().collect())
            }
            _ => Supply::Frames(Arc::default()),
        };
        (self.longest, self.at) = (0, 0);
    }
}

/// Where in a list of `n` to go on after `at`.
#[inline]
fn after(at: usize, n: usize) -> usize {
    if at + 1 == n { 0 } else { at + 1 }
}

impl Port for NullPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.longest > pool.room() {
            self.leave_out_longer(pool.room());
        }
        let want = (burst.room() as u64).min(self.left);
        let (mut got, mut bytes) = (0, 0);
        match &self.supply {
            _ if self.left == 0 => return Ok(RxStatus::Ended),
            Supply::Nothing => return Ok(RxStatus::Ended),
            Supply::Frames(frames) if frames.is_empty() => {}
            Supply::Frames(frames) => {
                for packet in pool.take_into(want as usize, burst) {
                    let frame = &frames[self.at];
                    self.at = after(self.at, frames.len());
                    packet.set_len(frame.len());
                    packet.data_mut().copy_from_slice(frame);
                    bytes += frame.len();
                    got += 1;
                }
            }
            Supply::Destinations { addresses, .. } => {
                for packet in pool.take_into(want as usize, burst) {
                    let dst = addresses[self.at];
                    let (template, src) = if dst.is_ipv4() { (&self.v4, SRC_V4) } else { (&self.v6, SRC_V6) };
                    self.at = after(self.at, addresses.len());
                    template.write(packet, &Fields { src, dst, src_port: 1024, dst_port: 9, ident: 0 });
                    bytes += template.len();
                    got += 1;
                }
            }
        }
        self.left -= got;
        self.counters.rx.packets += got;
        self.counters.rx.bytes += bytes as u64;
        Ok(if got > 0 { RxStatus::Received } else { RxStatus::Idle { next_due_ns: None } })
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.counters.tx.packets += burst.len() as u64;
        self.counters.tx.bytes += burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
        pool.free_all(burst);
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        self.left = 0;
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}
