//! What the kernel has, from its messages: pure, no socket, no time.

use super::decode::{self, Frame, Link, Message};
use super::paths::{LinkState, Paths};
use super::routes::Routes;
use super::slot::How;
use super::{KernelEvent, KernelPath, KernelStats};
use crate::table::AnyPrefix;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

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

/// What the kernel has, as far as its messages have told.
pub struct Mirror {
    routes: Routes,
    paths: Paths,
    links: BTreeMap<u32, Seen<Link>>,
    addresses: BTreeMap<(u32, IpAddr, u8), u32>,
    neighbors: BTreeMap<(u32, IpAddr), Seen<(Option<[u8; 6]>, bool)>>,
    generation: u32,
    wants_dump: bool,
    pub(super) stats: KernelStats,
}

/// What a message meant to the conversation with the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// A change; `true` for an IPv6 route's.
    News(bool),
    /// A dump's message.
    Dumped,
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
        let told = if dumped { Told::Dumped } else { Told::News(false) };
        match decode::decode(frame) {
            Err(wrong) => self.undecodable(frame.kind, wrong.0),
            Ok(Message::Done(code)) => return Told::Done(code),
            Ok(Message::Answer(code)) => return Told::Answer(code),
            Ok(Message::Ignored) => {
                let route = matches!(frame.kind, decode::RTM_NEWROUTE | decode::RTM_DELROUTE);
                self.stats.ignored += u64::from(route);
                if route && !dumped {
                    return Told::News(frame.body.first() == Some(&decode::AF_INET6));
                }
            }
            Ok(Message::Link(link)) => self.link(link, dumped, out),
            Ok(Message::Address(new)) => {
                let key = (new.index, new.address, new.prefix_len);
                let changed = if new.removed {
                    // Older kernels drop the routes with this source address without a word.
                    self.wants_dump |= new.address.is_ipv4() && self.addresses.contains_key(&key);
                    self.addresses.remove(&key).is_some()
                } else {
                    self.addresses.insert(key, self.generation).is_none()
                };
                if changed {
                    out.push(address(key, new.removed));
                }
            }
            Ok(Message::Neighbor(new)) => {
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
            Ok(Message::NextHop { removed, id, object }) => {
                if removed {
                    self.paths.remove_object(id);
                    self.wants_dump |= self.drop_silently_gone(0, false, out);
                } else {
                    self.paths.set_object(id, object, self.generation);
                }
            }
            Ok(Message::Route(route)) => {
                let v6 = matches!(route.prefix, AnyPrefix::V6(_));
                if self.routes.wants(route.table) {
                    let how = match frame.flags {
                        _ if dumped => How::Dumped,
                        flags if flags & NLM_F_REPLACE != 0 => How::Replace,
                        flags if flags & NLM_F_APPEND != 0 => How::Append,
                        _ => How::Prepend,
                    };
                    let fits = self.routes.apply(route, how, self.generation, &mut self.paths, out);
                    self.wants_dump |= !fits;
                }
                return if dumped { Told::Dumped } else { Told::News(v6) };
            }
        }
        told
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

    /// A dump of everything begins: what it does not see is gone when it ends.
    pub(super) fn begin_dump(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// The dump of everything has ended.
    pub(super) fn end_dump(&mut self, out: &mut Vec<KernelEvent>) {
        let generation = self.generation;
        self.paths.sweep_objects(generation);
        self.paths.settle();
        self.routes.sweep(generation, &self.paths, out);
        self.neighbors.retain(|&key, neighbor_| {
            let stays = neighbor_.seen == generation;
            if !stays {
                out.push(neighbor(key, (None, false)));
            }
            stays
        });
        self.addresses.retain(|&key, seen| {
            if *seen != generation {
                out.push(address(key, true));
            }
            *seen == generation
        });
        let gone = self.links.iter().filter(|(_, link)| link.seen != generation);
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

fn neighbor((index, address): (u32, IpAddr), (mac, reachable): (Option<[u8; 6]>, bool)) -> KernelEvent {
    KernelEvent::Neighbor { index, address, mac, reachable }
}
