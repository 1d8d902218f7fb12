//! The Grantor's nodes, put into a router's graph; its picture is in the crate's README.

use crate::control::GrantorControl;
use crate::nodes::{ask, decapsulate, probe};
use tidemill_graph::GraphBuilder;

/// Puts the Grantor into a router's graph. For one engine: the workers' judges are handed over when their nodes are made.
pub fn splice(graph: &mut GraphBuilder, control: &GrantorControl) {
    let make = decapsulate::factory(control);
    graph.node("decapsulate", decapsulate::OUTPUTS, move |worker| Box::new(make(worker)));
    let make = ask::factory(control);
    graph.node("ask", ask::OUTPUTS, move |worker| Box::new(make(worker)));
    let make = probe::factory(control);
    graph.node("probe", probe::OUTPUTS, move |worker| Box::new(make(worker)));

    graph.insert("ip4-lookup", "local", "decapsulate", "local").edge("ip6-lookup", "local", "decapsulate");
    graph.edge("decapsulate", "ip4", "ip4-input").edge("decapsulate", "ip6", "ip6-input");
    graph.edge("decapsulate", "ask", "ask").edge("decapsulate", "probe", "probe");
    graph.edge("ask", "ip4", "ip4-input").edge("ask", "ip6", "ip6-input");
    for node in ["ask", "probe"] {
        graph.edge(node, "lookup4", "ip4-lookup").edge(node, "lookup6", "ip6-lookup");
    }
}
