//! The gate's nodes, put into a router's graph; its picture is in the crate's README.

use crate::control::GatekeeperControl;
use crate::nodes::decision;
use crate::nodes::encapsulate::{self, Encapsulate};
use crate::nodes::gate::{self, GateNode};
use crate::nodes::path_mtu::{self, PathMtu};
use crate::nodes::solicitor::{self, Solicitor};
use std::sync::Arc;
use tidemill_graph::GraphBuilder;
use tidemill_ip::NextHops;
use tidemill_lookup::publish::View;
use tidemill_lpm::Fib;

/// What a worker looks Grantors' addresses up in, by its number.
pub type Ways<A> = Box<dyn Fn(usize) -> (View<Arc<dyn Fib<A>>>, View<NextHops>) + Send + Sync>;

/// What the gate takes of the router that it is put into.
pub struct Host {
    /// Routes of IPv4.
    pub ways4: Ways<u32>,
    /// Routes of IPv6.
    pub ways6: Ways<u128>,
}

/// Puts the gate into a router's graph. For one engine: the workers' flows are handed over when their nodes are made.
pub fn splice(graph: &mut GraphBuilder, control: &GatekeeperControl, host: Host) {
    let Host { ways4, ways6 } = host;
    let queue = control.section().request_queue;

    let (settings, seats) = (control.settings.view(), control.v4.seats.clone());
    let (policies, choices) = control.v4.policies.views();
    graph.node("gate4", gate::OUTPUTS, move |worker| {
        let (settings, policies, choices) = (settings.clone(), policies.clone(), choices.clone());
        Box::new(GateNode::new(settings, policies, choices, seats.take(worker)))
    });
    let (settings, seats) = (control.settings.view(), control.v6.seats.clone());
    let (policies, choices) = control.v6.policies.views();
    graph.node("gate6", gate::OUTPUTS, move |worker| {
        let (settings, policies, choices) = (settings.clone(), policies.clone(), choices.clone());
        Box::new(GateNode::new(settings, policies, choices, seats.take(worker)))
    });
    let (budget, board, notes) = (control.budget.clone(), control.solicitors.clone(), control.notes.clone());
    graph.node("solicitor", solicitor::OUTPUTS, move |worker| {
        Box::new(Solicitor::new(queue, budget.clone(), &board).with_notes(notes.take(worker)))
    });
    let endpoints = control.v4.policies.endpoints();
    graph.node("encapsulate4", encapsulate::OUTPUTS, move |worker| {
        let (fib, hops) = ways4(worker);
        Box::new(Encapsulate::<u32>::new(worker, endpoints.clone(), fib, hops))
    });
    let endpoints = control.v6.policies.endpoints();
    graph.node("encapsulate6", encapsulate::OUTPUTS, move |worker| {
        let (fib, hops) = ways6(worker);
        Box::new(Encapsulate::<u128>::new(worker, endpoints.clone(), fib, hops))
    });
    let decisions = decision::factory(control);
    graph.node("decision", decision::OUTPUTS, move |worker| Box::new(decisions(worker)));
    let (endpoints4, endpoints6) = (control.v4.policies.endpoints(), control.v6.policies.endpoints());
    let (settings, boards) = (control.settings.view(), control.paths.clone());
    graph.node("path-mtu", path_mtu::OUTPUTS, move |worker| {
        let board = boards.get(worker).cloned().unwrap_or_default();
        Box::new(PathMtu::new(settings.clone(), endpoints4.clone(), endpoints6.clone(), board))
    });

    for (input, gate, encapsulate, forward, neighbor) in [
        ("ip4-input", "gate4", "encapsulate4", "ip4-forward", "ip4-neighbor"),
        ("ip6-input", "gate6", "encapsulate6", "ip6-forward", "ip6-neighbor"),
    ] {
        graph.insert(input, "lookup", gate, "lookup");
        graph.edge(gate, "solicitor", "solicitor").edge(gate, "encapsulate", encapsulate);
        graph.edge(encapsulate, "forward", forward).edge(encapsulate, "neighbor", neighbor);
        let error = graph.leads(forward, "error").unwrap_or_default().to_owned();
        graph.edge(encapsulate, "error", &error);
    }
    graph.edge("solicitor", "encapsulate4", "encapsulate4").edge("solicitor", "encapsulate6", "encapsulate6");
    graph.insert("ip4-lookup", "local", "decision", "local").edge("ip6-lookup", "local", "decision");
    graph.insert("decision", "local", "path-mtu", "local");
    graph.edge("decision", "lookup4", "ip4-lookup").edge("decision", "lookup6", "ip6-lookup");
}
