//! The nodes, put into a router's graph; the picture is in the crate's README.

use crate::lanes::Shared;
use crate::nat::control::{NatControl, take};
use crate::nat::nodes::{BEGIN, Begin, OUTPUTS, ROUTE, Route, Translate};
use tidemill_graph::GraphBuilder;
use tidemill_ip::NextHops;
use tidemill_lookup::publish::View;

/// What a worker, by its number, sees of next hops.
pub type Hops = Box<dyn Fn(usize) -> View<NextHops> + Send + Sync>;

/// What NAT takes of the router that it is put into.
pub struct Host {
    /// Next hops of IPv4.
    pub hops4: Hops,
    /// Next hops of IPv6.
    pub hops6: Hops,
}

/// Puts NAT into a router's graph. For one engine: the workers' tables are handed over when their nodes are made.
pub fn splice(graph: &mut GraphBuilder, control: &NatControl, host: Host) {
    let Host { hops4, hops6 } = host;
    if let Some(half) = &control.v4 {
        let (rules, pool) = (control.rules.view(), half.pool.clone());
        graph.node("nat4-begin", BEGIN, move |_| Box::new(Begin::new(rules.clone(), pool.clone())));
        let rules = control.rules.view();
        graph.node("nat4-route", ROUTE, move |worker| {
            Box::new(Route::new(rules.clone(), hops4(worker), false))
        });
        let (rules, seats, lanes) = (control.rules.view(), half.seats(), Shared::new(half.workers()));
        graph.node("nat4", OUTPUTS, move |worker| {
            Box::new(Translate::new(rules.clone(), take(&seats, worker), lanes.of(worker)))
        });
        wire(graph, "ip4", "nat4", "icmp4-error");
    }
    if let Some(half) = &control.v6 {
        let (rules, pool) = (control.rules.view(), half.pool.clone());
        graph.node("nat6-begin", BEGIN, move |_| Box::new(Begin::new(rules.clone(), pool.clone())));
        let rules = control.rules.view();
        graph.node("nat6-route", ROUTE, move |worker| {
            Box::new(Route::new(rules.clone(), hops6(worker), true))
        });
        let (rules, seats, lanes) = (control.rules.view(), half.seats(), Shared::new(half.workers()));
        graph.node("nat6", OUTPUTS, move |worker| {
            Box::new(Translate::new(rules.clone(), take(&seats, worker), lanes.of(worker)))
        });
        wire(graph, "ip6", "nat6", "icmp6-error");
    }
}

fn wire(graph: &mut GraphBuilder, ip: &str, nat: &str, errors: &str) {
    let (begin, route) = (format!("{nat}-begin"), format!("{nat}-route"));
    let (lookup, forward) = (format!("{ip}-lookup"), format!("{ip}-forward"));
    graph.insert(&format!("{ip}-input"), "lookup", &begin, "lookup");
    graph.edge(&begin, "nat", nat).edge(&begin, "turn", nat);
    // Errors of our own may be to what is mapped, too.
    graph.edge(errors, "lookup", &begin);
    graph.insert(&lookup, "forward", &route, "forward");
    graph.edge(&route, "nat", nat);
    let looked_up = graph.leads(&begin, "lookup").unwrap_or(&lookup).to_owned();
    let error = graph.leads(&forward, "error").unwrap_or(errors).to_owned();
    graph.edge(nat, "lookup", &looked_up).edge(nat, "forward", &forward).edge(nat, "error", &error);
}
