//! The nodes, put into a router's graph; the picture is in the crate's README.

use crate::filter::control::{FilterControl, take};
use crate::filter::nodes::{Judge, LOST_OUTPUTS, Lost, OUTPUTS, TURN_OUTPUTS, TURNS, Turn};
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

/// Puts a filter into a router's graph, where NAT is already, if it is to be there, too. For one engine: the workers' tables are handed over when their nodes are made.
pub fn splice(graph: &mut GraphBuilder, control: &FilterControl, host: Host) {
    let Host { hops4, hops6 } = host;
    let workers = control.workers();
    // Where hairpins go, if there is NAT of this family.
    let (nat4, nat6) = (hairpins(graph, "nat4-begin"), hairpins(graph, "nat6-begin"));
    let (rules, seats, between) = (control.rules.view(), control.v4.seats(), Shared::new(workers));
    let beside_nat = nat4.is_some();
    graph.node("filter4", outputs(beside_nat), move |worker| {
        let (rules, seat) = (rules.clone(), take(&seats, worker));
        Box::new(Judge::new(rules, hops4(worker), seat, between.of(worker), worker, beside_nat))
    });
    let (rules, seats, between) = (control.rules.view(), control.v6.seats(), Shared::new(workers));
    let beside_nat = nat6.is_some();
    graph.node("filter6", outputs(beside_nat), move |worker| {
        let (rules, seat) = (rules.clone(), take(&seats, worker));
        Box::new(Judge::new(rules, hops6(worker), seat, between.of(worker), worker, beside_nat))
    });
    for (ip, filter, errors, begin, nat) in [
        ("ip4", "filter4", "icmp4-error", "nat4-begin", nat4),
        ("ip6", "filter6", "icmp6-error", "nat6-begin", nat6),
    ] {
        let (lookup, forward) = (format!("{ip}-lookup"), format!("{ip}-forward"));
        graph.insert(&lookup, "forward", filter, "forward");
        graph.insert(&lookup, "neighbor", filter, "neighbor");
        let error = graph.leads(&forward, "error").unwrap_or(errors).to_owned();
        graph.edge(filter, "error", &error);
        // Who is not let in is told nothing, whether or not there is a route.
        let (lost, beside_nat) = (format!("{filter}-lost"), nat.is_some());
        graph.node(&lost, LOST_OUTPUTS, move |_| Box::new(Lost { beside_nat }));
        graph.edge(&lookup, "error", &lost).edge(&lost, LOST_OUTPUTS[0], filter);
        if let Some(nat) = nat {
            let turn = format!("{filter}-turn");
            graph.node(&turn, TURN_OUTPUTS, |_| Box::new(Turn));
            graph.edge(begin, TURNS, &turn).edge(&turn, TURN_OUTPUTS[0], filter).edge(filter, TURNS, &nat);
        }
    }
}

fn hairpins(graph: &GraphBuilder, begin: &str) -> Option<String> {
    graph.leads(begin, TURNS).map(str::to_owned)
}

fn outputs(beside_nat: bool) -> impl Iterator<Item = &'static str> {
    OUTPUTS.into_iter().chain(beside_nat.then_some(TURNS))
}
