//! The ready graph of the router role; its picture is in the crate's README.

use crate::control::RouterControl;
use crate::nodes::ethernet_input::{self, EthernetInput};
use crate::nodes::ip4_forward::{self, Ip4Forward};
use crate::nodes::ip4_fragment::{self, Ip4Fragment};
use crate::nodes::ip4_input::{self, Ip4Input};
use crate::nodes::ip6_forward::{self, Ip6Forward};
use crate::nodes::ip6_input::{self, Ip6Input};
use crate::nodes::lookup::{self, Lookup};
use crate::plane::Views;
use tidemill_graph::GraphBuilder;
use tidemill_ip::NextHops;
use tidemill_ip::nodes::arp_input::ArpInput;
use tidemill_ip::nodes::icmp4_error::{self, Icmp4Error};
use tidemill_ip::nodes::icmp6_error::{self, Icmp6Error};
use tidemill_ip::nodes::ip_neighbor::{self, IpNeighbor};
use tidemill_ip::nodes::local::{self, Local};
use tidemill_ip::nodes::nd_input::NdInput;
use tidemill_ip::nodes::path_queue;
use tidemill_ip::nodes::tcp_coalesce::{self, TcpCoalesce};
use tidemill_ip::nodes::tcp_segment::{self, TcpSegment};
use tidemill_lookup::publish::View;

/// The router's nodes between the ports that `control` was made with, all of which receive and send. Build it as it
/// is, or add to it first.
pub fn graph(control: &RouterControl) -> GraphBuilder {
    let settings = || control.settings.view();
    let ports: Vec<&str> = control.ports.iter().map(|port| port.name.as_str()).collect();
    let with_ports = |first: &[&'static str]| -> Vec<String> {
        first.iter().chain(&ports).map(|name| (*name).to_string()).collect()
    };
    let coalesce = control.config.router.coalesce_tcp;
    let mut graph = GraphBuilder::new(ports.iter().copied());
    // Where packets go that may be long ones, and what goes there is to be segments.
    let cut = |to: &str| if coalesce { format!("tcp-segment:{to}") } else { to.to_string() };
    let cutter = |graph: &mut GraphBuilder, to: &str| {
        if coalesce {
            let name = cut(to);
            graph.node(&name, tcp_segment::OUTPUTS, |_| Box::new(TcpSegment::default()));
            graph.edge(&name, "out", to);
        }
    };

    // In the order in which a packet meets them: a worker then runs each node once per burst.
    let view = settings();
    graph
        .node("ethernet-input", ethernet_input::OUTPUTS, move |_| Box::new(EthernetInput::new(view.clone())));
    let (view, link) = (settings(), control.link.clone());
    graph.node("arp-input", with_ports(&[]), move |_| Box::new(ArpInput::new(view.clone(), link.clone())));
    let view = settings();
    graph.node("ip4-input", ip4_input::OUTPUTS, move |_| Box::new(Ip4Input::new(view.clone())));
    let view = settings();
    graph.node("ip6-input", ip6_input::OUTPUTS, move |_| Box::new(Ip6Input::new(view.clone())));
    let (view, link) = (settings(), control.link.clone());
    graph.node("nd-input", with_ports(&[]), move |_| Box::new(NdInput::new(view.clone(), link.clone())));
    for (name, lookup) in [("tcp4-coalesce", "ip4-lookup"), ("tcp6-coalesce", "ip6-lookup")] {
        if coalesce {
            graph.node(name, tcp_coalesce::OUTPUTS, |_| Box::new(TcpCoalesce::default()));
            graph.edge(name, "lookup", lookup);
        }
    }
    let (view, views) = (settings(), control.v4.views());
    graph.node("ip4-lookup", lookup::OUTPUTS, move |worker| {
        let Views { fibs, hops } = views(worker);
        Box::new(Lookup::new(view.clone(), fibs, hops))
    });
    let (view, views) = (settings(), control.v6.views());
    graph.node("ip6-lookup", lookup::OUTPUTS, move |worker| {
        let Views { fibs, hops } = views(worker);
        Box::new(Lookup::new(view.clone(), fibs, hops))
    });
    let views = control.v4.views();
    let outputs = with_ports(&ip4_forward::OUTPUTS);
    graph.node("ip4-forward", outputs, move |worker| Box::new(Ip4Forward::new(views(worker).hops)));
    let views = control.v6.views();
    let outputs = with_ports(&ip6_forward::OUTPUTS);
    graph.node("ip6-forward", outputs, move |worker| Box::new(Ip6Forward::new(views(worker).hops)));
    cutter(&mut graph, "ip4-fragment");
    let views = control.v4.views();
    let outputs = with_ports(&ip4_fragment::OUTPUTS);
    graph.node("ip4-fragment", outputs, move |worker| Box::new(Ip4Fragment::new(views(worker).hops)));
    let (views4, views6) = (control.v4.views(), control.v6.views());
    type Hops = Box<dyn Fn(usize) -> View<NextHops> + Send + Sync>;
    let hops4: Hops = Box::new(move |worker| views4(worker).hops);
    let hops6: Hops = Box::new(move |worker| views6(worker).hops);
    for (name, v6, hops) in [("ip4-neighbor", false, hops4), ("ip6-neighbor", true, hops6)] {
        let (view, link) = (settings(), control.link.clone());
        graph.node(name, with_ports(&ip_neighbor::OUTPUTS), move |worker| {
            let mailbox = link.register(worker, v6);
            Box::new(IpNeighbor::new(view.clone(), hops(worker), link.clone(), mailbox))
        });
    }
    for to in ["icmp4-error", "icmp6-error", "local"] {
        cutter(&mut graph, to);
    }
    let (view, board) = (settings(), control.icmp.clone());
    graph.node("icmp4-error", icmp4_error::OUTPUTS, move |_| {
        Box::new(Icmp4Error::new(view.clone(), board.register()))
    });
    let (view, board) = (settings(), control.icmp.clone());
    graph.node("icmp6-error", icmp6_error::OUTPUTS, move |_| {
        Box::new(Icmp6Error::new(view.clone(), board.register()))
    });
    let view = settings();
    graph.node("local", with_ports(&local::OUTPUTS), move |_| Box::new(Local::new(view.clone())));
    // Where what leaves by a port goes: to the queue in front of it, if it has one.
    let queued = |at: usize| control.queues.iter().find(|queue| queue.port == at);
    let outs: Vec<String> = ports
        .iter()
        .enumerate()
        .map(|(at, port)| if queued(at).is_some() { format!("queue:{port}") } else { format!("port:{port}") })
        .collect();
    for out in &outs {
        cutter(&mut graph, out);
    }
    for (at, (port, out)) in ports.iter().zip(&outs).enumerate() {
        if let Some(queue) = queued(at) {
            let make = queue.factory();
            graph.node(out, path_queue::OUTPUTS, move |worker| Box::new(make(worker)));
            graph.edge(out, "out", &format!("port:{port}"));
        }
    }

    graph.edge("ethernet-input", "ip4", "ip4-input").edge("ethernet-input", "ip6", "ip6-input");
    graph.edge("ethernet-input", "arp", "arp-input");
    graph.edge("ip6-input", "nd", "nd-input").edge("ip6-input", "local", "local");
    for (input, merge, lookup, forward, neighbor, error) in [
        ("ip4-input", "tcp4-coalesce", "ip4-lookup", "ip4-forward", "ip4-neighbor", "icmp4-error"),
        ("ip6-input", "tcp6-coalesce", "ip6-lookup", "ip6-forward", "ip6-neighbor", "icmp6-error"),
    ] {
        graph.edge(input, "lookup", if coalesce { merge } else { lookup });
        graph.edge(lookup, "forward", forward).edge(lookup, "local", &cut("local"));
        graph.edge(lookup, "error", &cut(error)).edge(lookup, "neighbor", neighbor);
        graph.edge(forward, "error", &cut(error)).edge(forward, "lookup", lookup);
        graph.edge(neighbor, "lookup", lookup).edge(neighbor, "error", &cut(error));
        graph.edge(error, "lookup", lookup);
    }
    graph.edge("ip4-forward", "fragment", &cut("ip4-fragment")).edge("ip4-fragment", "lookup", "ip4-lookup");
    graph.edge("local", "ip4", "ip4-lookup").edge("local", "ip6", "ip6-lookup");
    graph.edge("local", "error4", "icmp4-error").edge("local", "error6", "icmp6-error");
    for (port, out) in ports.iter().zip(&outs) {
        graph.input(port, "ethernet-input");
        for node in ["ip4-forward", "ip6-forward"] {
            graph.edge(node, port, &cut(out));
        }
        for node in ["arp-input", "nd-input", "ip4-fragment", "ip4-neighbor", "ip6-neighbor", "local"] {
            graph.edge(node, port, out);
        }
    }
    graph
}
