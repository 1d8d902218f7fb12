//! What those find here who send packets by other ways than they are routed: the tables of all VRFs, and addresses that are to be reached.
//!
//! An address is looked up among all routes. Where that ends on a link of ours its neighbor is asked for beforehand, as a gateway is, and kept: whoever looks the
//! address up in the FIB finds it. Nobody's packets ask for it, for it is in none of them.

use crate::control::{RouterControl, RouterError};
use crate::labels::NextHop;
use crate::plane::{Source, Views};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_ip::NextHops;
use tidemill_lookup::publish::View;
use tidemill_lpm::Fib;

/// The FIB of each VRF, and what labels mean.
pub type AllWays<A> = (Vec<View<Arc<dyn Fib<A>>>>, View<NextHops>);

impl RouterControl {
    /// What a worker, by its number, looks up in the IPv4 routes of all VRFs.
    pub fn all_ways4(&self) -> impl Fn(usize) -> AllWays<u32> + Send + Sync + 'static {
        let views = self.v4.views();
        move |worker| {
            let Views { fibs, hops } = views(worker);
            (fibs, hops)
        }
    }

    /// The same of IPv6.
    pub fn all_ways6(&self) -> impl Fn(usize) -> AllWays<u128> + Send + Sync + 'static {
        let views = self.v6.views();
        move |worker| {
            let Views { fibs, hops } = views(worker);
            (fibs, hops)
        }
    }

    /// The number of a VRF.
    pub fn vrf(&self, name: &str) -> Option<u16> {
        self.vrfs.iter().position(|vrf| vrf == name).and_then(|number| u16::try_from(number).ok())
    }

    /// Has neighbors ready for packets that are sent to these addresses, in the VRF without a name, whatever their own are, and for no others of an earlier call. Returns the
    /// addresses that a route leads to; call it again when routes may have changed. The error is about neighbors' routes that a table has no room for; they are tried again.
    pub fn steer_to(
        &mut self,
        now_ns: u64,
        wanted: &BTreeSet<IpAddr>,
    ) -> (BTreeSet<IpAddr>, Result<(), RouterError>) {
        let reach = |address: &IpAddr| Some((*address, self.resolve(*address, Source::Neighbor)?));
        let after: BTreeMap<IpAddr, NextHop> = wanted.iter().filter_map(reach).collect();
        let before = std::mem::take(&mut self.bgp.steered);
        if before != after {
            // Those that stay are held throughout.
            after.iter().for_each(|(address, hop)| self.hold_for(*address, hop, true));
            before.iter().for_each(|(address, hop)| self.hold_for(*address, hop, false));
        }
        let (reached, changed) = (after.keys().copied().collect(), before != after);
        self.bgp.steered = after;
        let settled = if changed { self.settle(now_ns) } else { Ok(()) };
        (reached, settled)
    }

    fn hold_for(&mut self, address: IpAddr, hop: &NextHop, more: bool) {
        match address {
            IpAddr::V4(_) => self.v4.count_rule(hop, more),
            IpAddr::V6(_) => self.v6.count_rule(hop, more),
        }
    }
}
