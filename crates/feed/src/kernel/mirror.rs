//! What the kernel has, from its messages: pure, no socket, no time.

use super::decode::{self, Frame, Link, Message, Route};
use super::paths::{LinkState, Paths};
use super::routes::Routes;
use super::slot::How;
use super::{KernelEvent, KernelPath, KernelStats};
use crate::table::AnyPrefix;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_lpm::Prefix;

/// `NLM_F_MULTI`: one of a dump's messages.
pub(super) const MULTI: u16 = 0x2;
/// `NLM_F_DUMP_INTR`: the dump is not consistent.
pub(super) const DUMP_INTR: u16 = 0x10;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_APPEND: u16 = 0x800;

/// A value and the last dump that saw it.
struct Seen<T> {
    value: T,
    seen: u32,
}

/// A neighbor's address on its link, and whether it was confirmed lately.
type Hardware = (Option<[u8; 6]>, bool);

/// What the kernel has, as far as its messages have told.
pub struct Mirror {
    routes: Routes,
    paths: Paths,
    links: BTreeMap<u32, Seen<Link>>,
    addresses: BTreeMap<(u32, IpAddr, u8), u32>,
    neighbors: BTreeMap<(u32, IpAddr), Seen<Hardware>>,
    generation: u32,
    /// The IPv4 prefixes that changed since their dump began.
    touched: Option<HashSet<(u32, Prefix<u32>)>>,
    wants_dump: bool,
    pub(super) stats: KernelStats,
}

/// What is dumped, one kind after the other: routes need links and nexthop objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Links,
    Addresses,
    Neighbors,
    Objects,
    RoutesV4,
    RoutesV6,
}

/// From which dump on something must have been seen to be there still, by [`Step`].
pub(super) type Since = [u32; 6];

/// What a message meant to the conversation with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A change of this kind.
    News(Step),
    /// A dump's message; `true` if it goes against a change that came before it. The kernel reads its table first and
    /// queues the message later; a change in between is told before and is newer.
    Dumped(bool),
    /// Of no concern.
    Nothing,
    /// The end of a dump, with an error number or 0.
    Done(i32),
    /// The answer to a request, with an error number or 0.
    Answer(i32),
}

impl Mirror {
    /// An empty mirror of the given routing tables.
    pub fn new(tables: &[u32]) -> Self {
        Mirror {
            routes: Routes::new(tables),
            paths: Paths::new(),
            links: BTreeMap::new(),
            addresses: BTreeMap::new(),
            neighbors: BTreeMap::new(),
            generation: 0,
            touched: None,
            wants_dump: false,
            stats: KernelStats::default(),
        }
    }

    /// Takes a datagram of notifications and reports what changed. A malformed message is counted and left out.
    pub fn apply(&mut self, datagram: &[u8], out: &mut Vec<KernelEvent>) {
        for frame in decode::frames(datagram) {
            match frame {
                Ok(frame) => drop(self.frame(&frame, frame.flags & MULTI != 0, out)),
                Err(wrong) => self.undecodable(0, wrong.0),
            }
        }
        self.settle(out);
    }

    /// What was last reported of each prefix that has a path, in no order.
    pub fn routes(&self) -> impl Iterator<Item = (u32, AnyPrefix, Arc<KernelPath>)> {
        self.routes
            .reported()
            .filter_map(|(table, prefix, target)| Some((table, prefix, self.paths.target(target)?)))
    }

    /// Whether something happened that the kernel does not tell all of: everything should be dumped again.
    pub(super) fn take_wants_dump(&mut self) -> bool {
        std::mem::take(&mut self.wants_dump)
    }

    pub(super) fn undecodable(&mut self, kind: u16, what: &'static str) {
        self.stats.undecodable += 1;
        self.stats.last_undecodable = Some((kind, what));
    }

    /// Takes one message; `dumped` says that it is a part of our dump.
    pub(super) fn frame(&mut self, frame: &Frame<'_>, dumped: bool, out: &mut Vec<KernelEvent>) -> Told {
        self.stats.messages += 1;
        let message = match decode::decode(frame) {
            Ok(message) => message,
            Err(wrong) => {
                self.undecodable(frame.kind, wrong.0);
                return Told::Nothing;
            }
        };
        let kind = match message {
            Message::Done(code) => return Told::Done(code),
            Message::Answer(code) => return Told::Answer(code),
            Message::Ignored => {
                let route = matches!(frame.kind, decode::RTM_NEWROUTE | decode::RTM_DELROUTE);
                self.stats.ignored += u64::from(route);
                // It upsets a dump of IPv6 routes all the same.
                if dumped || !route || frame.body.first() != Some(&decode::AF_INET6) {
                    return Told::Nothing;
                }
                Step::RoutesV6
            }
            Message::Link(link) => {
                self.link(link, dumped, out);
                Step::Links
            }
            Message::Address(new) => {
                self.address(new, out);
                Step::Addresses
            }
            Message::Neighbor(new) => {
                self.neighbor(new, out);
                Step::Neighbors
            }
            Message::NextHop { removed, id, object } => {
                if removed {
                    self.paths.remove_object(id);
                    self.wants_dump |= self.drop_silently_gone(0, false, out);
                } else {
                    self.paths.set_object(id, object, self.generation);
                }
                Step::Objects
            }
            Message::Route(route) => return self.route(route, frame.flags, dumped, out),
        };
        if dumped { Told::Dumped(false) } else { Told::News(kind) }
    }

    fn address(&mut self, new: decode::Address, out: &mut Vec<KernelEvent>) {
        let key = (new.index, new.address, new.prefix_len);
        let changed = if new.removed {
            self.addresses.remove(&key).is_some()
        } else {
            self.addresses.insert(key, self.generation).is_none()
        };
        if changed {
            // Older kernels drop the routes with this source address without a word.
            self.wants_dump |= new.removed && new.address.is_ipv4();
            out.push(address(key, new.removed));
        }
    }

    fn neighbor(&mut self, new: decode::Neighbor, out: &mut Vec<KernelEvent>) {
        let (key, value) = ((new.index, new.address), (new.mac, new.reachable));
        let old = if new.mac.is_some() {
            self.neighbors.insert(key, Seen { value, seen: self.generation })
        } else {
            self.neighbors.remove(&key)
        };
        if old.map_or((None, false), |old| old.value) != value {
            out.push(neighbor(key, value));
        }
    }

    fn route(&mut self, route: Route, flags: u16, dumped: bool, out: &mut Vec<KernelEvent>) -> Told {
        let (kind, touched) = match route.prefix {
            AnyPrefix::V6(_) => (Step::RoutesV6, false),
            AnyPrefix::V4(prefix) => {
                let key = (route.table, prefix);
                let touched = self.touched.as_ref().is_some_and(|touched| touched.contains(&key));
                if !dumped && let Some(touched) = &mut self.touched {
                    touched.insert(key);
                }
                (Step::RoutesV4, touched)
            }
        };
        let mut added = false;
        if self.routes.wants(route.table) {
            let how = match flags {
                _ if dumped => How::Dumped,
                flags if flags & NLM_F_REPLACE != 0 => How::Replace,
                flags if flags & NLM_F_APPEND != 0 => How::Append,
                _ => How::Prepend,
            };
            let edited = self.routes.apply(route, how, self.generation, &mut self.paths, out);
            self.wants_dump |= !edited.fits;
            added = edited.added;
        }
        if dumped { Told::Dumped(touched && added) } else { Told::News(kind) }
    }

    fn link(&mut self, new: Link, dumped: bool, out: &mut Vec<KernelEvent>) {
        let index = new.index;
        if new.removed {
            self.wants_dump |= self.remove_link(index, out);
            return;
        }
        let state = LinkState { admin: new.admin, carrier: new.carrier };
        let was = self.paths.link(index).unwrap_or(state);
        self.paths.set_link(index, state);
        let same = self.links.get(&index).is_some_and(|old| old.value == new);
        if !same {
            out.push(link(&new, false));
        }
        self.links.insert(index, Seen { value: new, seen: self.generation });
        // A carrier's loss takes nexthop objects, and the routes with them; going down takes all routes.
        let flushed = was.up() && !state.up() && self.paths.flush_objects(index);
        if flushed || (was.admin && !state.admin) {
            // A dump goes on to the routes after the links anyway.
            let wants_dump = self.drop_silently_gone(index, false, out) && !dumped;
            self.wants_dump |= wants_dump;
        }
    }

    /// `true` if routes went with it.
    fn remove_link(&mut self, index: u32, out: &mut Vec<KernelEvent>) -> bool {
        self.paths.set_link(index, LinkState::REMOVED);
        self.paths.flush_objects(index);
        let dropped = self.drop_silently_gone(index, true, out);
        let of_link = |&(owner, _, _): &(u32, IpAddr, u8)| owner == index;
        for key in self.addresses.keys().copied().filter(of_link).collect::<Vec<_>>() {
            self.addresses.remove(&key);
            out.push(address(key, true));
        }
        for key in self.neighbors.keys().copied().filter(|key| key.0 == index).collect::<Vec<_>>() {
            self.neighbors.remove(&key);
            out.push(neighbor(key, (None, false)));
        }
        if let Some(old) = self.links.remove(&index) {
            out.push(link(&old.value, true));
        }
        dropped
    }

    /// Removes the routes that the kernel drops without a message when a link dies or a nexthop object goes. At once
    /// and in the order of the messages: the next one may bring the link and some of its routes back. `true` if there
    /// were any.
    fn drop_silently_gone(&mut self, index: u32, removed: bool, out: &mut Vec<KernelEvent>) -> bool {
        let Some((v4, v6)) = self.paths.dropped(index, removed) else { return false };
        let any = self.routes.purge(&v4, &v6, &self.paths, out);
        self.forget_paths();
        any
    }

    #[cfg(test)]
    pub(super) fn paths_held(&self) -> usize {
        self.paths.held()
    }

    fn forget_paths(&mut self) {
        let (raw, targets) = self.routes.in_use(&self.paths);
        self.paths.keep(&raw, &targets);
    }

    /// Reports what changed by links and nexthop objects alone. To be called after each run of messages.
    pub(super) fn settle(&mut self, out: &mut Vec<KernelEvent>) {
        if self.paths.settle() {
            self.routes.report(&self.paths, out);
        }
        if self.paths.crowded() {
            self.forget_paths();
        }
        let (v4, v6) = self.routes.len();
        (self.stats.routes_v4, self.stats.routes_v6) = (v4 as u64, v6 as u64);
    }

    /// The dump of one kind begins; the number that what it sees gets, and all that changes from now on.
    pub(super) fn begin_dump(&mut self, step: Step) -> u32 {
        self.generation += 1;
        self.touched = (step == Step::RoutesV4).then(HashSet::new);
        self.generation
    }

    /// Everything has been dumped: what was not seen is gone.
    pub(super) fn end_dump(&mut self, since: &Since, out: &mut Vec<KernelEvent>) {
        self.touched = None;
        let since = |step: Step| since[step as usize];
        self.paths.sweep_objects(since(Step::Objects));
        self.paths.settle();
        self.routes.sweep(since(Step::RoutesV4), since(Step::RoutesV6), &self.paths, out);
        self.neighbors.retain(|&key, value| {
            let stays = value.seen >= since(Step::Neighbors);
            if !stays {
                out.push(neighbor(key, (None, false)));
            }
            stays
        });
        self.addresses.retain(|&key, seen| {
            let stays = *seen >= since(Step::Addresses);
            if !stays {
                out.push(address(key, true));
            }
            stays
        });
        let gone = self.links.iter().filter(|(_, link)| link.seen < since(Step::Links));
        for index in gone.map(|(&index, _)| index).collect::<Vec<_>>() {
            self.remove_link(index, out);
        }
        self.paths.keep_links(|index| self.links.contains_key(&index));
        self.settle(out);
    }
}

fn link(link: &Link, removed: bool) -> KernelEvent {
    KernelEvent::Link {
        index: link.index,
        name: link.name.clone(),
        mac: link.mac,
        mtu: link.mtu,
        up: link.admin && link.carrier && !removed,
        removed,
    }
}

fn address((index, address, prefix_len): (u32, IpAddr, u8), removed: bool) -> KernelEvent {
    KernelEvent::Address { index, address, prefix_len, removed }
}

fn neighbor((index, address): (u32, IpAddr), (mac, reachable): Hardware) -> KernelEvent {
    KernelEvent::Neighbor { index, address, mac, reachable }
}
