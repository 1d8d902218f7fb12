//! `ip4-input`: decides whether an IPv4 packet is one.
//!
//! * RFC 1812 5.2.2: `ipv4-too-short`, `ipv4-bad-version`, `ipv4-bad-header-length`, `ipv4-bad-length` (or
//!   `capture-truncated` if the capture lacks the rest), `ipv4-bad-checksum`. Ethernet's padding is cut off.
//! * Options that run over the header's end: `ipv4-bad-option`. Source routes: `ipv4-source-route` (RFC 7126 4.3).
//!   Other options travel unchanged (record route and timestamp are not filled in, as RFC 7126 4.5 allows).
//! * RFC 1812 5.3.4: a frame that came to a link-layer group is not forwarded: `broadcast`, `multicast`.
//! * RFC 1812 5.3.7 and RFC 6890: `martian-source`, `martian-destination`, `multicast`, `broadcast`, `link-local`. On an
//!   interface whose addresses are the kernel's, what stays on the link is the kernel's, and done with.
//!
//! Output: `lookup`.

use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::martian::Filter;
use tidemill_ip::nodes::{each, short};
use tidemill_ip::{Martians, Owner, Settings};
use tidemill_lookup::publish::View;
use tidemill_wire::checksum;
use tidemill_wire::ipv4::{self, Ipv4Option, option};

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 1] = ["lookup"];

/// The node.
pub struct Ip4Input {
    settings: View<Settings>,
    martians: Martians,
    filter: Filter<u32>,
}

impl Ip4Input {
    /// A node for one worker.
    pub fn new(settings: View<Settings>) -> Self {
        let martians = Martians::default();
        Ip4Input { settings, martians, filter: Filter::v4(martians) }
    }
}

impl Node for Ip4Input {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        if self.martians != settings.martians {
            self.martians = settings.martians;
            self.filter = Filter::v4(self.martians);
        }
        each(burst, verdicts, |packet| match self.check(packet) {
            Verdict::Drop(reason) => refused(settings, packet, reason),
            verdict => verdict,
        });
    }
}

/// Version 4 and a header without options.
const PLAIN: u8 = 0x45;

impl Ip4Input {
    #[inline(always)]
    fn check(&self, packet: &mut Packet) -> Verdict {
        let l3 = usize::from(packet.l3);
        let data = packet.data();
        let ip = data.get(l3..).unwrap_or_default();
        let Some(header) = ip.first_chunk::<{ ipv4::HEADER_LEN }>() else {
            return short(packet, DropReason::Ipv4TooShort);
        };
        let total = usize::from(ipv4::total_len(header));
        if header[0] != PLAIN {
            // Also finds out whether the total length is below the header's.
            if let Err(verdict) = unusual(packet, ip) {
                return verdict;
            }
        } else if total < ipv4::HEADER_LEN {
            return Verdict::Drop(DropReason::Ipv4BadLength);
        } else if !packet.is_checked() && !checksum::is_valid(header) {
            return Verdict::Drop(DropReason::Ipv4BadChecksum);
        }
        if total > ip.len() {
            return short(packet, DropReason::Ipv4BadLength);
        }
        if data.first().is_some_and(|first| first & 1 != 0) {
            return group(data);
        }
        if let Some(reason) = self.filter.refuse(ipv4::src_u32(header), ipv4::dst_u32(header)) {
            return Verdict::Drop(reason);
        }
        if total < ip.len() {
            packet.set_len(l3 + total);
        }
        Verdict::Next(0)
    }
}

/// Everything about a header that is not the plain 20 bytes.
#[cold]
fn unusual(packet: &Packet, ip: &[u8]) -> Result<(), Verdict> {
    let len = ipv4::header_len(ip);
    if ipv4::version(ip) != 4 {
        return Err(Verdict::Drop(DropReason::Ipv4BadVersion));
    }
    if len < ipv4::HEADER_LEN {
        return Err(Verdict::Drop(DropReason::Ipv4BadHeaderLength));
    }
    if len > ip.len() {
        return Err(short(packet, DropReason::Ipv4BadHeaderLength));
    }
    if usize::from(ipv4::total_len(ip)) < len {
        return Err(Verdict::Drop(DropReason::Ipv4BadLength));
    }
    if !ipv4::checksum_ok(ip) {
        return Err(Verdict::Drop(DropReason::Ipv4BadChecksum));
    }
    for item in ipv4::Packet::new_unchecked(ip).options() {
        match item {
            Err(_) => return Err(Verdict::Drop(DropReason::Ipv4BadOption)),
            Ok(Ipv4Option::Route {
                kind: option::LOOSE_SOURCE_ROUTE | option::STRICT_SOURCE_ROUTE, ..
            }) => {
                return Err(Verdict::Drop(DropReason::Ipv4SourceRoute));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Why a frame to a link-layer group is dropped.
#[cold]
pub(super) fn group(frame: &[u8]) -> Verdict {
    let broadcast = frame.get(..6).is_some_and(|dst| dst == [0xff; 6]);
    Verdict::Drop(if broadcast { DropReason::Broadcast } else { DropReason::Multicast })
}

/// The verdict on a packet that is not to be forwarded: what stays on the link is the kernel's, where that has the
/// addresses.
#[cold]
pub(super) fn refused(settings: &Settings, packet: &Packet, reason: DropReason) -> Verdict {
    let kernel = || settings.interfaces.get(packet.port).is_some_and(|i| i.owner == Owner::Kernel);
    match reason {
        DropReason::Multicast | DropReason::Broadcast | DropReason::LinkLocal if kernel() => Verdict::Consume,
        reason => Verdict::Drop(reason),
    }
}
