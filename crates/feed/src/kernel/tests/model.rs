//! The mirror against a model of the kernel's table: any changes, any lost messages, then a dump.

use super::super::decode::{self, RTM_NEWLINK};
use super::super::mirror::Step;
use super::super::{Hop, KernelPath, MAIN_TABLE, Mirror};
use super::{APPEND, DEL, NEW, REPLACE, Raw, Sum, hop, link, multipath, route};
use crate::table::AnyPrefix;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member of a prefix: metric, gateway number. A gateway is on the link `number % 3 + 1`.
type Member = (u32, u8);

/// What the kernel has, in its order: one route per entry in IPv4; in IPv6 one member of a set.
#[derive(Default)]
struct Kernel {
    tables: BTreeMap<(bool, u8), Vec<Member>>,
    down: [bool; 4],
}

#[derive(Debug, Clone)]
enum Op {
    Add {
        v4: bool,
        prefix: u8,
        member: Member,
        how: u16,
    },
    /// The entry of this number, if there are so many.
    Remove {
        v4: bool,
        prefix: u8,
        at: usize,
        whole: bool,
    },
    Link {
        index: u32,
        up: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let member = || (1..4u32, 0..6u8);
    let how = prop_oneof![Just(0), Just(APPEND), Just(REPLACE)];
    prop_oneof![
        6 => (any::<bool>(), 0..5u8, member(), how).prop_map(|(v4, prefix, member, how)| Op::Add { v4, prefix, member, how }),
        4 => (any::<bool>(), 0..5u8, 0..6usize, any::<bool>()).prop_map(|(v4, prefix, at, whole)| Op::Remove { v4, prefix, at, whole }),
        1 => (1..4u32, any::<bool>()).prop_map(|(index, up)| Op::Link { index, up }),
    ]
}

fn index(gateway: u8) -> u32 {
    u32::from(gateway % 3) + 1
}

fn gateway(v4: bool, number: u8) -> String {
    if v4 { format!("10.0.0.{number}") } else { format!("fd00::{number}") }
}

fn prefix(v4: bool, number: u8) -> String {
    if v4 { format!("20.{number}.0.0/16") } else { format!("2001:db8:{number}::/48") }
}

fn single(kind: u16, flags: u16, v4: bool, p: u8, (metric, number): Member) -> Raw {
    hop(kind, flags, &prefix(v4, p), metric, &gateway(v4, number), index(number))
}

/// A set's message, `first` in front.
fn set(kind: u16, flags: u16, p: u8, members: &[Member], first: Member) -> Raw {
    let mut members: Vec<Member> = members.to_vec();
    members.sort_by_key(|member| *member != first);
    if members.len() == 1 {
        return single(kind, flags, false, p, first);
    }
    let texts: Vec<String> = members.iter().map(|member| gateway(false, member.1)).collect();
    let hops: Vec<_> =
        members.iter().zip(&texts).map(|(member, text)| (text.as_str(), index(member.1), 1)).collect();
    route(kind, flags, &prefix(false, p), first.0).with(9, &multipath(&hops))
}

impl Kernel {
    /// Does it, and says what the kernel says.
    fn apply(&mut self, op: &Op) -> Vec<Raw> {
        match *op {
            Op::Add { member, .. } if self.down[index(member.1) as usize] => vec![],
            Op::Add { v4: true, prefix: p, member, how } => {
                let routes = self.tables.entry((true, p)).or_default();
                let same = routes.iter().position(|route| *route == member);
                let first = routes.iter().position(|route| route.0 >= member.0).unwrap_or(routes.len());
                let any = routes.get(first).is_some_and(|route| route.0 == member.0);
                match how {
                    _ if same.is_some() => return vec![],
                    REPLACE if any => routes[first] = member,
                    APPEND => {
                        let behind = routes.iter().position(|route| route.0 > member.0);
                        routes.insert(behind.unwrap_or(routes.len()), member);
                    }
                    _ => routes.insert(first, member),
                }
                vec![single(NEW, if any { how } else { 0 }, true, p, member)]
            }
            Op::Add { v4: false, prefix: p, member, how } => {
                let routes = self.tables.entry((false, p)).or_default();
                if how == REPLACE {
                    routes.retain(|route| route.0 != member.0);
                } else if routes.contains(&member) {
                    return vec![];
                }
                routes.push(member);
                let members: Vec<Member> =
                    routes.iter().copied().filter(|route| route.0 == member.0).collect();
                vec![set(NEW, how, p, &members, member)]
            }
            Op::Remove { v4, prefix: p, at, whole } => {
                let routes = self.tables.entry((v4, p)).or_default();
                let Some(&member) = routes.get(at) else { return vec![] };
                if v4 || !whole {
                    routes.remove(at);
                    return vec![single(DEL, 0, v4, p, member)];
                }
                let gone: Vec<Member> = routes.iter().copied().filter(|route| route.0 == member.0).collect();
                routes.retain(|route| route.0 != member.0);
                vec![set(DEL, 0, p, &gone, member)]
            }
            Op::Link { index: i, up } => {
                let changed = std::mem::replace(&mut self.down[i as usize], !up) == up;
                let mut said = vec![link(RTM_NEWLINK, 0, i, up, up)];
                if changed && !up {
                    // IPv4's are gone without a word; IPv6's set has lost a member in use, and comes back with the link.
                    let down = self.down;
                    for (&(v4, p), routes) in &mut self.tables {
                        let dead = |member: &Member| down[index(member.1) as usize];
                        if v4 {
                            routes.retain(|member| !dead(member));
                            continue;
                        }
                        for metric in 1..4 {
                            let members: Vec<Member> =
                                routes.iter().copied().filter(|member| member.0 == metric).collect();
                            if !members.is_empty() && members.iter().all(dead) {
                                routes.retain(|member| member.0 != metric);
                                said.push(set(DEL, 0, p, &members, members[0]));
                            }
                        }
                    }
                }
                said
            }
        }
    }

    fn best(&self) -> BTreeMap<AnyPrefix, Arc<KernelPath>> {
        let mut best = BTreeMap::new();
        for (&(v4, p), routes) in &self.tables {
            let usable = |member: &&Member| !self.down[index(member.1) as usize];
            let Some(metric) = routes.iter().filter(usable).map(|member| member.0).min() else { continue };
            let members = routes.iter().filter(usable).filter(|member| member.0 == metric);
            let mut hops: Vec<Hop> = members
                .map(|member| Hop {
                    index: index(member.1),
                    gateway: Some(gateway(v4, member.1).parse().unwrap()),
                    weight: 1,
                })
                .collect();
            if v4 {
                hops.truncate(1);
            }
            hops.sort();
            let prefix = match v4 {
                true => AnyPrefix::V4(prefix(true, p).parse().unwrap()),
                false => AnyPrefix::V6(prefix(false, p).parse().unwrap()),
            };
            best.insert(prefix, Arc::new(KernelPath::Via(hops)));
        }
        best
    }

    fn dump(&self) -> Vec<Raw> {
        let mut said: Vec<Raw> =
            (1..4).map(|i| link(RTM_NEWLINK, 0, i, !self.down[i as usize], !self.down[i as usize])).collect();
        for (&(v4, p), routes) in &self.tables {
            if v4 {
                said.extend(routes.iter().map(|&member| single(NEW, 2, true, p, member)));
                continue;
            }
            for metric in 1..4 {
                let members: Vec<Member> =
                    routes.iter().copied().filter(|member| member.0 == metric).collect();
                if let Some(&first) = members.first() {
                    said.push(set(NEW, 2, p, &members, first));
                }
            }
        }
        said
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_mirror_follows_a_model(
        steps in proptest::collection::vec((op(), 0..10u8), 1..120),
        losses in any::<bool>(),
    ) {
        let mut kernel = Kernel::default();
        let mut mirror = Mirror::new(&[MAIN_TABLE]);
        let mut sum = Sum::default();
        let tell = |mirror: &mut Mirror, said: &[Raw], sum: &mut Sum| {
            let mut events = Vec::new();
            let datagram: Vec<u8> = said.iter().flat_map(|raw| raw.0.clone()).collect();
            mirror.apply(&datagram, &mut events);
            sum.take(&events);
        };
        tell(&mut mirror, &kernel.dump(), &mut sum);
        for (op, chance) in &steps {
            let said = kernel.apply(op);
            if losses && *chance == 0 {
                continue;
            }
            tell(&mut mirror, &said, &mut sum);
            if !losses {
                prop_assert_eq!(&sum.0, &kernel.best(), "after {:?}", op);
            }
        }
        // A dump of everything, in the middle of which nothing changes.
        let before = sum.clone();
        let mut events = Vec::new();
        let since = [mirror.begin_dump(Step::RoutesV4); 6];
        for raw in kernel.dump() {
            for frame in decode::frames(&raw.0) {
                mirror.frame(&frame.unwrap(), true, &mut events);
            }
        }
        mirror.end_dump(&since, &mut events);
        sum.take(&events);
        prop_assert_eq!(&sum.0, &kernel.best());
        // What stayed as it was is not told again.
        let changed = before.0.iter().filter(|(prefix, path)| sum.0.get(prefix) != Some(path)).count()
            + sum.0.keys().filter(|prefix| !before.0.contains_key(prefix)).count();
        let told = events.iter().filter(|event| matches!(event, super::super::KernelEvent::Route { .. })).count();
        if losses {
            prop_assert!(told >= changed);
        } else {
            prop_assert_eq!(told, 0);
        }
        let held: BTreeMap<_, _> = mirror.routes().map(|(_, prefix, path)| (prefix, path)).collect();
        prop_assert_eq!(held, sum.0);
    }
}
