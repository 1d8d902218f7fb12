//! `decapsulate`: outer packets among the packets to ourselves. What was granted (outer DSCP 0 or 1) goes on without its outer header, to be checked like any
//! packet that comes in; what asks (2 to 63) goes to `ask` as it is; the rest goes on to `local`.
//!
//! ```text
//!                                      counter        drop reason
//!  not from a Gatekeeper               refused        tunnel-refused
//!  no whole packet of the family in it malformed      tunnel-malformed
//!  another outer one in it, as from a
//!  Gatekeeper                          nested         tunnel-nested      whoever gets such a packet through a Gatekeeper wants to be taken for one
//!  congestion that cannot be told      congested      tunnel-congestion  RFC 6040 4.2: CE outside, not ECN-capable inside
//! ```
//! UDP to port 41120 from a Gatekeeper goes to `probe` where decisions are authenticated. Fragments of outer packets (a Gatekeeper cuts an IPv6 one where the MTU leaves less than 1,280 bytes for
//! what is in it) go to `local`, which puts them together, within its bounds on what waits, and sends the whole through the lookup: it comes back here as one that came whole, and is counted here.
//!
//! Outputs: `local`, `ip4`, `ip6` (the inputs), `ask`, `probe`.

use crate::control::GrantorControl;
use crate::section::Settings;
use crate::tally::{Board, Counter, Counters};
use crate::tunnel;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_decision::GRANTOR_PORT;
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::datagram::ends;
use tidemill_lookup::publish::View;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 5] = ["local", "ip4", "ip6", "ask", "probe"];

const LOCAL: u8 = 0;
const INPUT4: u8 = 1;
const INPUT6: u8 = 2;
const ASK: u8 = 3;
const PROBE: u8 = 4;

/// The first code point that asks.
const ASKS: u8 = 2;

/// The node.
pub struct Decapsulate {
    settings: View<Settings>,
    counters: Counters,
    board: Board,
}

/// Makes the workers' nodes, by their numbers.
pub(crate) fn factory(control: &GrantorControl) -> impl Fn(usize) -> Decapsulate + Send + Sync + 'static {
    let (settings, boards) = (control.settings.view(), control.boards(0));
    move |worker| Decapsulate {
        settings: settings.clone(),
        counters: Counters::default(),
        board: boards.get(worker).cloned().unwrap_or_default(),
    }
}

fn take(settings: &Settings, counters: &mut Counters, packet: &mut Packet) -> Verdict {
    let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
    let mut refuse = |counter, reason| {
        counters.one(counter);
        Verdict::Drop(reason)
    };
    let Some(tunnel) = tunnel::look(ip) else {
        let is_probe = settings.keys.is_some()
            && ends(ip).is_some_and(|[from, to]| to.1 == GRANTOR_PORT && settings.is_gatekeeper(from.0));
        return Verdict::Next(if is_probe { PROBE } else { LOCAL });
    };
    if !settings.is_gatekeeper(tunnel.gatekeeper) {
        return refuse(Counter::Refused, DropReason::TunnelRefused);
    }
    if !tunnel.whole {
        return refuse(Counter::Malformed, DropReason::TunnelMalformed);
    }
    if tunnel.nested(ip).is_some_and(|source| settings.is_gatekeeper(source)) {
        return refuse(Counter::Nested, DropReason::TunnelNested);
    }
    if tunnel.dscp >= ASKS {
        counters.one(if tunnel.dscp == ASKS { Counter::Renewals } else { Counter::Requests });
        return Verdict::Next(ASK);
    }
    match tunnel.cut(packet) {
        Ok(()) => {
            counters.one(Counter::Granted);
            counters.add(Counter::GrantedBytes, packet.len().saturating_sub(packet.l3.into()) as u64);
            Verdict::Next(if tunnel.gatekeeper.is_ipv6() { INPUT6 } else { INPUT4 })
        }
        Err(DropReason::TunnelCongestion) => refuse(Counter::Congested, DropReason::TunnelCongestion),
        Err(reason) => refuse(Counter::Malformed, reason),
    }
}

impl Node for Decapsulate {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let settings = self.settings.get(cx.reader);
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            *verdict = take(settings, &mut self.counters, packet);
        }
        self.board.show(&self.counters);
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        self.board.show(&self.counters);
    }
}
