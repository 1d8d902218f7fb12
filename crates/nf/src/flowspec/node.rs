//! The nodes `flowspec4` and `flowspec6`: behind the checks of a packet's header, before anything else is done with it, what is to us included. They drop packets that peers'
//! flow specifications have dropped (`flowspec-drop`), or that are more than those let through (`flowspec-rate`), set their DSCP, and send them by
//! [other ways](super::redirect) than they are routed (`flowspec-redirect`, where that leads nowhere).

use crate::flowspec::control::FlowspecControl;
use crate::flowspec::packet::seen;
use crate::flowspec::redirect::{MakeWays, ON, RETURN, Redirects, Return};
use crate::flowspec::rules::{Fate, Rules};
use crate::header::{InHeader, u16_at};
use tidemill_burst::Packet;
use tidemill_feed::bgp::Family;
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};
use tidemill_ip::nodes::each;
use tidemill_lookup::publish::View;
use tidemill_lpm::Address;
use tidemill_wire::checksum;

struct Apply<A: Address> {
    rules: View<Rules>,
    redirects: Redirects<A>,
    worker: usize,
}

/// What the nodes take of the router that they are put into.
pub struct Host {
    /// Tables of IPv4.
    pub ways4: MakeWays<u32>,
    /// Tables of IPv6.
    pub ways6: MakeWays<u128>,
}

/// Puts the nodes into a router's graph, behind `ip4-input` and `ip6-input`: the last of all that are put in there, so that they see packets as they came.
pub fn splice(graph: &mut GraphBuilder, control: &FlowspecControl, host: Host) {
    one(graph, control, host.ways4, ["ip4", "flowspec4", "flowspec4-return"]);
    one(graph, control, host.ways6, ["ip6", "flowspec6", "flowspec6-return"]);
}

fn one<A: InHeader + Address + Into<u128>>(
    graph: &mut GraphBuilder,
    control: &FlowspecControl,
    ways: MakeWays<A>,
    [ip, name, back]: [&str; 3],
) {
    let ways = std::sync::Arc::new(ways);
    let (input, lookup) = (format!("{ip}-input"), format!("{ip}-lookup"));
    // What is looked up again; what NAT has kept goes to another node than the rest, perhaps.
    let again = [
        (back.to_owned(), ["forward", "neighbor", "fragment"].map(|node| format!("{ip}-{node}")).to_vec()),
        (format!("{back}-nat"), vec![ip.replace("ip", "nat")]),
    ];
    // Where what is looked up goes.
    let leads = |output: &str| {
        let to = graph.leads(&lookup, output).or_else(|| graph.leads(&input, "lookup"));
        to.unwrap_or_default().to_owned()
    };
    let (forward, neighbor) = (leads("forward"), leads("neighbor"));
    let (rules, of) = (control.view(), ways.clone());
    graph.node(name, RETURN, move |worker| {
        Box::new(Apply { rules: rules.clone(), redirects: Redirects::new(of(worker)), worker })
    });
    graph.edge(name, "forward", &forward).edge(name, "neighbor", &neighbor);
    graph.insert(&input, "lookup", name, "lookup");
    for (back, nodes) in again {
        let looks_up = |node: &String| graph.leads(node, "lookup").is_some();
        let nodes: Vec<String> = nodes.into_iter().filter(looks_up).collect();
        if nodes.is_empty() {
            continue;
        }
        let (rules, ways) = (control.view(), ways.clone());
        graph.node(&back, RETURN, move |worker| {
            Box::new(Return { rules: rules.clone(), redirects: Redirects::new(ways(worker)) })
        });
        graph.edge(&back, "forward", &forward).edge(&back, "neighbor", &neighbor);
        for node in nodes {
            graph.insert(&node, "lookup", &back, "lookup");
        }
    }
}

/// Sets the DSCP in a header.
pub(crate) fn set_dscp(ip: &mut [u8], dscp: u8, v6: bool) {
    let (shift, check) = if v6 { (6, None) } else { (2, u16_at(ip, 10)) };
    let Some(old) = u16_at(ip, 0) else { return };
    let new = (old & !(0x3f << shift)) | (u16::from(dscp & 0x3f) << shift);
    let mut put = |at: usize, word: u16| {
        if let Some(bytes) = ip.get_mut(at..at + 2) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    };
    put(0, new);
    if let Some(check) = check {
        put(10, checksum::update_u16(check, old, new));
    }
}

impl<A: InHeader + Address + Into<u128>> Node for Apply<A> {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let (reader, now_ns, worker) = (cx.reader, cx.now_ns, self.worker);
        let rules = self.rules.get(reader);
        let table = rules.of(if A::V6 { Family::V6 } else { Family::V4 });
        if table.is_empty() {
            verdicts.iter_mut().for_each(|verdict| *verdict = Verdict::Next(0));
            return;
        }
        each(burst, verdicts, |packet| {
            if rules.spares(packet.port) {
                return Verdict::Next(0);
            }
            let at = usize::from(packet.l3);
            let seen = seen::<A>(packet.data().get(at..).unwrap_or_default());
            let (mark, number) = match table.judge(now_ns, worker, &seen) {
                Fate::Drops(reason) => return Verdict::Drop(reason),
                Fate::Passes(mark) => (mark, None),
                Fate::Redirected(mark, number) => (mark, Some(number)),
            };
            if let (Some(dscp), Some(ip)) = (mark, packet.data_mut().get_mut(at..)) {
                set_dscp(ip, dscp, A::V6);
            }
            let Some((number, target)) = number.and_then(|number| Some((number, rules.target(number)?)))
            else {
                return Verdict::Next(0);
            };
            match self.redirects.send(reader, target, packet, ON) {
                Some(verdict) => {
                    packet.set_steer(number);
                    // NAT's way in, which it passes by, clears it: NAT's way out reads its own notes there.
                    packet.hash = 0;
                    verdict
                }
                None => Verdict::Next(0),
            }
        });
    }
}
