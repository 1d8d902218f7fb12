//! What two connections with the same ends may differ by: an address may be a link's alone, or a VRF's. The programs see by which interface a packet comes, and are told
//! here what that means for interfaces of which it is not plain. And which of them is a virtual cable.

use super::KvError;
use super::cache::{Cache, system};
use super::layout::{Scope, state};
use super::netlink::{self, ALL, attribute, word};
use super::{machine, places};
use std::collections::{BTreeMap, HashMap};
use std::io;

/// An interface, as the kernel lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    index: u32,
    /// What it is a part of: a bridge, a bond, a VRF.
    master: Option<u32>,
    is_vrf: bool,
    /// One end of a virtual cable (veth).
    is_cable: bool,
}

/// `NETLINK_ROUTE`, which is 0.
const ROUTE: Option<rustix::net::Protocol> = None;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// `struct ifinfomsg`.
const INFO: usize = 16;
const MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const KIND: u16 = 1;

fn link(message: &[u8]) -> Option<Link> {
    let (index, attributes) = (word(message, 4)?, message.get(INFO..)?);
    let kind = attribute(attributes, LINK_INFO).and_then(|info| attribute(info, KIND));
    let is = |name: &[u8]| kind.is_some_and(|kind| kind.split(|byte| *byte == 0).next() == Some(name));
    Some(Link {
        index,
        master: attribute(attributes, MASTER).and_then(|bytes| word(bytes, 0)),
        is_vrf: is(b"vrf"),
        is_cable: is(b"veth"),
    })
}

fn links() -> io::Result<Vec<Link>> {
    let question = netlink::question(GET_LINK, ALL, 0, &[0; INFO]);
    netlink::list(&netlink::socket(ROUTE)?, &question, NEW_LINK, link)
}

/// Interfaces that are a VRF's, each with that.
fn vrfs() -> io::Result<HashMap<u32, u32>> {
    Ok(vrfs_of(&links()?))
}

/// Whether an interface is an end of a virtual cable; what the kernel does not list is none.
pub(super) fn is_cable(index: u32) -> bool {
    links().is_ok_and(|links| links.iter().any(|link| link.index == index && link.is_cable))
}

fn vrfs_of(links: &[Link]) -> HashMap<u32, u32> {
    let known: HashMap<u32, &Link> = links.iter().map(|link| (link.index, link)).collect();
    let vrf_of = |link: &Link| {
        let mut at = *known.get(&link.index)?;
        // A bond's member is in its bond's VRF. More than a few steps are none.
        for _ in 0..4 {
            if at.is_vrf {
                return Some((link.index, at.index));
            }
            at = known.get(&at.master?)?;
        }
        None
    };
    links.iter().filter_map(vrf_of).collect()
}

impl Cache {
    /// Tells the programs what an interface's addresses are known by, of those that they are on (`also` too) and of their members.
    pub(super) fn scope(&mut self, also: &[(String, u32)]) -> Result<(), KvError> {
        let action = "cannot tell the programs which interfaces share addresses";
        // An older kernel may not say it: then there are none.
        let vrfs = vrfs().unwrap_or_default();
        let named = self.places.iter().map(|place| (&place.interface, place.index));
        let named = named.chain(also.iter().map(|(name, index)| (name, *index)));
        let mut scopes: BTreeMap<u32, Scope> = BTreeMap::new();
        for (name, index) in named {
            let domain = vrfs.get(&index).copied().unwrap_or(0);
            let mut members = vec![index];
            for member in machine::members(name) {
                members.extend(places::index(&member)?);
            }
            scopes.extend(members.into_iter().map(|member| (member, [index, domain])));
        }
        self.has_domains = scopes.values().any(|[_, domain]| *domain != 0);
        // As it is without a word.
        scopes.retain(|interface, scope| *scope != [*interface, 0]);
        if scopes == self.scopes {
            return Ok(());
        }
        let mut table = self.object.table::<u32, Scope>("kv_scopes").map_err(system(action))?;
        for there in table.keys().map_err(system(action))? {
            if !scopes.contains_key(&there) {
                table.remove(&there).map_err(system(action))?;
            }
        }
        for (interface, scope) in &scopes {
            table.insert(interface, scope).map_err(system(action))?;
        }
        self.state.set(state::SCOPED, u64::from(!scopes.is_empty()));
        self.scopes = scopes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u32, master: Option<u32>, is_vrf: bool) -> Link {
        Link { index, master, is_vrf, is_cable: false }
    }

    #[test]
    fn a_link_is_in_the_vrf_that_it_or_its_bond_is_a_part_of() {
        let links = [
            at(1, None, false),
            at(2, Some(7), false),
            at(3, Some(4), false),
            at(4, Some(7), false),
            at(5, Some(6), false),
            at(6, None, false),
            at(7, None, true),
            // Each other's: nobody's.
            at(8, Some(9), false),
            at(9, Some(8), false),
        ];
        assert_eq!(vrfs_of(&links), HashMap::from([(2, 7), (3, 7), (4, 7), (7, 7)]));
    }

    #[test]
    fn links_are_read_however_they_are_cut() {
        let attribute = |kind: u16, bytes: &[u8]| {
            let mut all = (4 + bytes.len() as u16).to_ne_bytes().to_vec();
            all.extend(kind.to_ne_bytes());
            all.extend(bytes);
            all.resize(all.len().next_multiple_of(4), 0);
            all
        };
        let mut message = vec![0; INFO];
        message[4] = 7;
        message.extend(attribute(MASTER, &9_u32.to_ne_bytes()));
        message.extend(attribute(LINK_INFO, &attribute(KIND, b"vrf\0")));
        assert_eq!(link(&message), Some(at(7, Some(9), true)));
        for end in 0..INFO {
            assert_eq!(link(&message[..end]), None);
        }
        (INFO..message.len()).for_each(|end| assert!(link(&message[..end]).is_some(), "{end}"));
        let veth = [&message[..INFO], &attribute(LINK_INFO, &attribute(KIND, b"veth\0"))].concat();
        assert_eq!(link(&veth), Some(Link { is_cable: true, ..at(7, None, false) }));
        assert!(vrfs().is_ok_and(|vrfs| vrfs.len() < 10_000));
    }
}
