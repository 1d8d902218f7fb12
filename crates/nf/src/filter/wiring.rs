//! The nodes, put into a router's graph; the picture is in the crate's README.

use crate::filter::control::{FilterControl, take};
use crate::filter::nodes::{Judge, LOST_OUTPUTS, Lost, OUTPUTS};
use crate::lanes::Shared;
use tidemill_graph::GraphBuilder;
use tidemill_ip::NextHops;
use tidemill_lookup::publish::View;

/// What a worker, by its number, sees of next hops.
pub type Hops = Box<dyn Fn(usize) -> View<NextHops> + Send + Sync>;

/// What a filter takes of the router that it is put into.
pub struct Host {
    /// Next hops of IPv4.
    pub hops4: Hops,
    /// Next hops of IPv6.
    pub hops6: Hops,
}

/// Puts a filter into a router's graph. For one engine: the workers' tables are handed over when their nodes are made.
pub fn splice(graph: &mut GraphBuilder, control: &FilterControl, host: Host) {
    let Host { hops4, hops6 } = host;
    let workers = control.workers();
    let (rules, seats, between) = (control.rules.view(), control.v4.seats(), Shared::new(workers));
    graph.node("filter4", OUTPUTS, move |worker| {
        Box::new(Judge::new(rules.clone(), hops4(worker), take(&seats, worker), between.of(worker), worker))
    });
    let (rules, seats, between) = (control.rules.view(), control.v6.seats(), Shared::new(workers));
    graph.node("filter6", OUTPUTS, move |worker| {
        Box::new(Judge::new(rules.clone(), hops6(worker), take(&seats, worker), between.of(worker), worker))
    });
    for (ip, filter, errors) in [("ip4", "filter4", "icmp4-error"), ("ip6", "filter6", "icmp6-error")] {
        let (lookup, forward) = (format!("{ip}-lookup"), format!("{ip}-forward"));
        graph.insert(&lookup, "forward", filter, "forward");
        graph.insert(&lookup, "neighbor", filter, "neighbor");
        let error = graph.leads(&forward, "error").unwrap_or(errors).to_owned();
        graph.edge(filter, "error", &error);
        // Who is not let in is told nothing, whether or not there is a route.
        let lost = format!("{filter}-lost");
        graph.node(&lost, LOST_OUTPUTS, |_| Box::new(Lost));
        graph.edge(&lookup, "error", &lost).edge(&lost, LOST_OUTPUTS[0], filter);
    }
}
