//! The ready graph of the router role; its picture is in the crate's README.

use crate::control::RouterControl;
use crate::nodes::ethernet_input::{self, EthernetInput};
use crate::nodes::icmp4_error::{self, Icmp4Error};
use crate::nodes::icmp6_error::{self, Icmp6Error};
use crate::nodes::ip4_forward::{self, Ip4Forward};
use crate::nodes::ip4_fragment::Ip4Fragment;
use crate::nodes::ip4_input::{self, Ip4Input};
use crate::nodes::ip6_forward::{self, Ip6Forward};
use crate::nodes::ip6_input::{self, Ip6Input};
use crate::nodes::local::{self, Local};
use crate::nodes::lookup::{self, Lookup};
use tidemill_graph::GraphBuilder;

/// The router's nodes between the ports that `control` was made with, all of which receive and send. Build it as it
/// is, or add to it first.
pub fn graph(control: &RouterControl) -> GraphBuilder {
    let settings = control.settings.clone();
    let ports: Vec<&str> = settings.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let with_ports = |first: &[&'static str]| -> Vec<String> {
        first.iter().chain(&ports).map(|name| (*name).to_string()).collect()
    };
    let mut graph = GraphBuilder::new(ports.iter().copied());

    // In the order in which a packet meets them: a worker then runs each node once per burst.
    let own = settings.clone();
    graph.node("ethernet-input", ethernet_input::OUTPUTS, move |_| Box::new(EthernetInput::new(own.clone())));
    let martians = settings.martians;
    graph.node("ip4-input", ip4_input::OUTPUTS, move |_| Box::new(Ip4Input::new(martians)));
    graph.node("ip6-input", ip6_input::OUTPUTS, move |_| Box::new(Ip6Input::new(martians)));
    let (fib, hops) = control.views4();
    graph.node("ip4-lookup", lookup::OUTPUTS, move |_| Box::new(Lookup::new(fib.clone(), hops.clone())));
    let (fib, hops) = control.views6();
    graph.node("ip6-lookup", lookup::OUTPUTS, move |_| Box::new(Lookup::new(fib.clone(), hops.clone())));
    let (_, hops) = control.views4();
    let outputs = with_ports(&ip4_forward::OUTPUTS);
    graph.node("ip4-forward", outputs, move |_| Box::new(Ip4Forward::new(hops.clone())));
    let (_, hops) = control.views6();
    let outputs = with_ports(&ip6_forward::OUTPUTS);
    graph.node("ip6-forward", outputs, move |_| Box::new(Ip6Forward::new(hops.clone())));
    let (_, hops) = control.views4();
    graph.node("ip4-fragment", with_ports(&[]), move |_| Box::new(Ip4Fragment::new(hops.clone())));
    let (own, board) = (settings.clone(), control.icmp.clone());
    graph.node("icmp4-error", icmp4_error::OUTPUTS, move |_| {
        Box::new(Icmp4Error::new(own.clone(), board.register()))
    });
    let (own, board) = (settings.clone(), control.icmp.clone());
    graph.node("icmp6-error", icmp6_error::OUTPUTS, move |_| {
        Box::new(Icmp6Error::new(own.clone(), board.register()))
    });
    let own = settings.clone();
    graph.node("local", local::OUTPUTS, move |_| Box::new(Local::new(own.clone())));

    graph.edge("ethernet-input", "ip4", "ip4-input").edge("ethernet-input", "ip6", "ip6-input");
    for (input, lookup, forward, error) in [
        ("ip4-input", "ip4-lookup", "ip4-forward", "icmp4-error"),
        ("ip6-input", "ip6-lookup", "ip6-forward", "icmp6-error"),
    ] {
        graph.edge(input, "lookup", lookup);
        graph.edge(lookup, "forward", forward).edge(lookup, "local", "local").edge(lookup, "error", error);
        graph.edge(forward, "error", error).edge(error, "lookup", lookup);
    }
    graph.edge("ip4-forward", "fragment", "ip4-fragment");
    graph.edge("local", "ip4", "ip4-lookup").edge("local", "ip6", "ip6-lookup");
    for port in &ports {
        graph.input(port, "ethernet-input");
        for node in ["ip4-forward", "ip6-forward", "ip4-fragment"] {
            graph.edge(node, port, &format!("port:{port}"));
        }
    }
    graph
}
