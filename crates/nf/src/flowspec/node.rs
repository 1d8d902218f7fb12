//! The nodes `flowspec4` and `flowspec6`: behind the checks of a packet's header, before anything else is done with it, what is to us included. They drop packets that peers'
//! flow specifications have dropped (`flowspec-drop`), or that are more than those let through (`flowspec-rate`), and set their DSCP.

use crate::flowspec::control::FlowspecControl;
use crate::flowspec::packet::seen;
use crate::flowspec::rules::{Fate, Rules, Table};
use crate::header::{InHeader, u16_at};
use tidemill_burst::Packet;
use tidemill_feed::bgp::Family;
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};
use tidemill_ip::nodes::each;
use tidemill_lookup::publish::View;
use tidemill_wire::checksum;

struct Apply {
    rules: View<Rules>,
    family: Family,
    worker: usize,
}

/// Puts the nodes into a router's graph, behind `ip4-input` and `ip6-input`: the last of all that are put in there, so that they see packets as they came.
pub fn splice(graph: &mut GraphBuilder, control: &FlowspecControl) {
    for (name, input, family) in
        [("flowspec4", "ip4-input", Family::V4), ("flowspec6", "ip6-input", Family::V6)]
    {
        let rules = control.view();
        graph.node(name, ["lookup"], move |worker| Box::new(Apply { rules: rules.clone(), family, worker }));
        graph.insert(input, "lookup", name, "lookup");
    }
}

impl Apply {
    fn run<A: InHeader + Into<u128>>(
        &self,
        table: &Table,
        now_ns: u64,
        burst: &mut [Packet],
        verdicts: &mut [Verdict],
    ) {
        each(burst, verdicts, |packet| {
            let at = usize::from(packet.l3);
            let seen = seen::<A>(packet.data().get(at..).unwrap_or_default());
            match table.judge(now_ns, self.worker, &seen) {
                Fate::Drops(reason) => Verdict::Drop(reason),
                Fate::Passes(mark) => {
                    if let (Some(dscp), Some(ip)) = (mark, packet.data_mut().get_mut(at..)) {
                        set_dscp(ip, dscp, A::V6);
                    }
                    Verdict::Next(0)
                }
            }
        });
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

impl Node for Apply {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let table = self.rules.get(cx.reader).of(self.family);
        if table.is_empty() {
            verdicts.iter_mut().for_each(|verdict| *verdict = Verdict::Next(0));
            return;
        }
        match self.family {
            Family::V4 => self.run::<u32>(table, cx.now_ns, burst, verdicts),
            Family::V6 => self.run::<u128>(table, cx.now_ns, burst, verdicts),
        }
    }
}
