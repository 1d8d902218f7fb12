//! The best paths of BGP peers, taken into the router.
//!
//! A path's next hop is an address that need not be on a link of ours: it is looked up among the routes that do not come from BGP,
//! and what those come to is where the path leads. One that cannot be reached makes no route: whoever chooses among paths asks
//! first ([`RouterControl::bgp_reaches`]). When other routes change, next hops may come to something else:
//! [`RouterControl::bgp_turned`] names those, and their paths are handed in again. Next hops that no path has any more are to be
//! forgotten ([`RouterControl::bgp_forget`]).

use crate::control::{RouterControl, RouterError};
use crate::kernel::stays_on_link;
use crate::labels::NextHop;
use crate::plane::{RouteChange, Source};
use crate::rules;
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidemill_feed::AnyPrefix;

/// Different next hops that are known at once; paths by others are left out.
const HOPS_MAX: usize = 65_536;

/// Next hops of BGP, and what they come to.
#[derive(Default)]
pub(crate) struct BgpHops {
    known: BTreeMap<IpAddr, Option<NextHop>>,
    /// How the other routes stood then.
    looked: (u64, u64),
    /// There was no room for one.
    left_out: bool,
    /// Addresses that packets are sent to by [other ways](crate::steer), and what leads there.
    pub(crate) steered: BTreeMap<IpAddr, NextHop>,
}

impl RouterControl {
    /// Takes over changes of best paths, in the VRF without a name: the next hop's address, or `None` if there is no path any more.
    ///
    /// # Errors
    /// Routes that a table has no room for ([`RouterError::Refused`]); they are tried again when there may be.
    pub fn bgp(&mut self, now_ns: u64, changes: &[(AnyPrefix, Option<IpAddr>)]) -> Result<(), RouterError> {
        let mut changes4: Vec<RouteChange<u32>> = Vec::new();
        let mut changes6: Vec<RouteChange<u128>> = Vec::new();
        for (prefix, address) in changes {
            let hop = address.and_then(|address| self.bgp_hop(address));
            match prefix {
                AnyPrefix::V4(prefix) => changes4.push((*prefix, hop)),
                AnyPrefix::V6(prefix) if stays_on_link(*prefix) => {}
                AnyPrefix::V6(prefix) => changes6.push((*prefix, hop)),
            }
        }
        let result = self.change_as_fits(0, Source::Bgp, &changes4);
        let result = result.and(self.change_as_fits(0, Source::Bgp, &changes6));
        result.and(self.settle(now_ns))
    }

    /// Whether a route of others leads to this next hop. It is known from now on, until it is [forgotten](Self::bgp_forget).
    pub fn bgp_reaches(&mut self, address: IpAddr) -> bool {
        self.bgp_hop(address).is_some()
    }

    /// The next hops of BGP that come to something else now than when they were looked up, and whether that is anything. All paths
    /// by them are to be handed to [`bgp`](Self::bgp) again. Costs nothing while no other route changes.
    pub fn bgp_turned(&mut self) -> Vec<(IpAddr, bool)> {
        let now = (self.revision, self.settings_generation());
        if self.bgp.looked == now {
            return Vec::new();
        }
        let mut known = std::mem::take(&mut self.bgp.known);
        let mut turned = Vec::new();
        for (address, hop) in &mut known {
            let resolved = self.bgp_resolve(*address);
            if *hop != resolved {
                turned.push((*address, resolved.is_some()));
                *hop = resolved;
            }
        }
        self.bgp.known = known;
        self.bgp.looked = now;
        turned
    }

    /// No path has these next hops any more. Returns whether there is room for some that were left out: they are to be looked up
    /// again.
    pub fn bgp_forget(&mut self, gone: &[IpAddr]) -> bool {
        for address in gone {
            self.bgp.known.remove(address);
        }
        // Not for each place that gets free: whoever is left out is asked for as a whole.
        self.bgp.left_out
            && self.bgp.known.len() <= HOPS_MAX - HOPS_MAX / 8
            && std::mem::replace(&mut self.bgp.left_out, false)
    }

    /// Next hops that are known.
    pub fn bgp_hops(&self) -> usize {
        self.bgp.known.len()
    }

    /// How many routes BGP has, IPv4 and IPv6.
    pub fn bgp_routes(&self) -> (usize, usize) {
        (self.v4.count(0, Source::Bgp), self.v6.count(0, Source::Bgp))
    }

    /// What a path's next hop comes to, as of [`bgp_turned`](Self::bgp_turned).
    fn bgp_hop(&mut self, address: IpAddr) -> Option<NextHop> {
        if let Some(known) = self.bgp.known.get(&address) {
            return known.clone();
        }
        if self.bgp.known.len() >= HOPS_MAX {
            if !std::mem::replace(&mut self.bgp.left_out, true) {
                self.notes.push(format!(
                    "warning: BGP has more than {HOPS_MAX} different next hops: routes by others, {address} the first, are left out"
                ));
            }
            return None;
        }
        let hop = self.bgp_resolve(address);
        self.bgp.known.insert(address, hop.clone());
        hop
    }

    /// What a path's next hop comes to now. A link that is down leads nowhere (RFC 4271, section 9.1.2.1): else another peer's path by one that works would wait.
    fn bgp_resolve(&self, address: IpAddr) -> Option<NextHop> {
        let interfaces = &self.settings().interfaces;
        let is_up = |hop: &NextHop| match hop {
            NextHop::Via(number, _) | NextHop::Mac(number, _) | NextHop::OnLink(number) => {
                interfaces.get(*number).is_some_and(|interface| interface.up)
            }
            _ => true,
        };
        match self.resolve(address, Source::Bgp)? {
            NextHop::Group(members) => {
                rules::group(members.into_iter().filter(|(hop, _)| is_up(hop)).collect())
            }
            hop => Some(hop).filter(is_up),
        }
    }

    /// What packets to an address come to, by the routes of all but neighbors and `left_out`.
    pub(crate) fn resolve(&self, address: IpAddr, left_out: Source) -> Option<NextHop> {
        let hop = match address {
            IpAddr::V4(v4) => self.v4.without(0, left_out, u32::from(v4))?,
            IpAddr::V6(v6) => self.v6.without(0, left_out, u128::from(v6))?,
        };
        let on_link = |hop: &NextHop| match hop {
            NextHop::OnLink(interface) => NextHop::Via(*interface, address),
            other => other.clone(),
        };
        match hop {
            NextHop::Group(members) => {
                rules::group(members.iter().map(|(member, weight)| (on_link(member), *weight)).collect())
            }
            NextHop::OnLink(_) | NextHop::Via(..) | NextHop::Mac(..) | NextHop::Named(_) => {
                Some(on_link(hop))
            }
            // Ourselves, or refused: no way to anywhere.
            _ => None,
        }
    }
}
