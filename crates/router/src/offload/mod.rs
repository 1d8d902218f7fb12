//! The fast path below us: an XDP program (`bpf/route.bpf.c`) forwards, in the driver, what the router would forward without a second look, and leaves the rest to it.
//!
//! ```text
//!                                  .--- root: the generation in force
//!  interface -> XDP program -------+--> image: ports | next hops | routes --ready--> redirected to another interface
//!                    |                     ^    ^
//!                    | all else            |    '-- the other generation is nobody's: written, then named by root,
//!                    v                     |        and the one before is nobody's when a grace period is over
//!  the port, as ever (AF_XDP: its own      |
//!  program, by a tail call)       RouterControl: best routes of the first VRF, adjacencies, interfaces
//! ```
//! **Parts.** `layout.rs`: where things lie; `image/`: the routes, built and patched; `journal.rs`: which prefixes have changed; `xdp/`: program, maps, devices.
//!
//! **What it forwards**: IPv4 without options and IPv6, to our MAC address without a VLAN tag, on interfaces of the VRF without a name, with time to live left, that fits
//! the next link, whose next hop is a neighbor that is known, by a port on a network interface, untagged, without a queue in front. Everything else goes on: so all ICMP
//! errors, ARP, what has to be cut into fragments, groups of next hops, what is to us, are the router's. (What comes in fragments is forwarded as all else: the router would
//! not look into it either.) The program asks of a header what `ip4-input` and `ip6-input` ask, and leaves alone what they might drop; of addresses it looks at the first
//! byte only, as their filter does first, so that all of 169.0.0.0/8 is left to the router for the sake of 169.254.0.0/16 (and with `martians = "strict"` every /8 that has a
//! documentation prefix in it).
//!
//! **One state.** A generation has all that a packet meets: addresses and numbers of ports, next hops, routes of both families. It is cut under the control side's lock, so
//! that each label has the meaning that it has there, and named by one store. Until then packets go by the generation before, which is some tens of milliseconds old at most, and a whole
//! rebuild longer. Changes that come meanwhile are collected.
//!
//! **The books.** What is forwarded here never came in: it is in no port's counter and no part of `in + made = out + dropped + consumed + held`. `xdp::Account` is its
//! account, by port: what came in is what was forwarded and what was left to the router, by why.
//!
//! **Who is left.** The program is held by links of this process, so that it goes with it, however that ends; nothing is pinned.

pub mod image;
pub(crate) mod journal;
pub mod layout;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;
