//! `probe`: Gatekeepers ask whether we are there, and are told.
//!
//! A probe comes under one of our keys from a Gatekeeper's port 45232 to our port 41120, and is answered from there, all of one turn to one Gatekeeper in one
//! datagram. A probe that comes twice is answered twice: what the answer says is not new then, and the Gatekeeper knows that. At most [`CHECKED`] tags are checked in
//! a burst; whatever is no probe is dropped as `probe-refused`.
//!
//! Outputs: `lookup4`, `lookup6`.

use crate::control::GrantorControl;
use crate::section::Settings;
use crate::tally::{Board, Counter, Counters};
use crate::voice::{Outbox, Peer};
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_decision::authenticated::{Header, Message};
use tidemill_decision::keys::{Direction, Ends};
use tidemill_decision::{GATEKEEPER_PORT, GRANTOR_PORT};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::datagram::Datagram;
use tidemill_lookup::publish::View;

/// The outputs' names, in order.
pub const OUTPUTS: [&str; 2] = ["lookup4", "lookup6"];

/// Datagrams of a burst whose tags are checked.
const CHECKED: usize = 32;

/// What of a packet concerns us.
fn to_us(ip: &[u8]) -> Option<Datagram<'_>> {
    Datagram::read(ip).filter(|datagram| datagram.destination().1 == GRANTOR_PORT)
}

/// The node.
pub struct Probe {
    settings: View<Settings>,
    outbox: Outbox,
    counters: Counters,
    board: Board,
}

/// Makes the workers' nodes, by their numbers.
pub(crate) fn factory(control: &GrantorControl) -> impl Fn(usize) -> Probe + Send + Sync + 'static {
    let (settings, boards) = (control.settings.view(), control.boards(2));
    let (voice, met) = (control.voice.clone(), control.met.clone());
    move |worker| Probe {
        settings: settings.clone(),
        outbox: Outbox::new(voice.clone(), met.clone(), [0, 1]),
        counters: Counters::default(),
        board: boards.get(worker).cloned().unwrap_or_default(),
    }
}

impl Probe {
    fn take(&mut self, cx: &mut Context<'_>, packet: &Packet, left: &mut usize) -> Verdict {
        let Probe { settings, outbox, counters, .. } = self;
        let settings = settings.get(cx.reader);
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        let refuse = |counters: &mut Counters, counter| {
            counters.one(counter);
            Verdict::Drop(DropReason::ProbeRefused)
        };
        let Some(keys) = &settings.keys else { return refuse(counters, Counter::ProbesRefused) };
        let datagram = to_us(ip).filter(|datagram| datagram.source().1 == GATEKEEPER_PORT);
        let Some(datagram) = datagram else { return refuse(counters, Counter::ProbesRefused) };
        let header = Header::read(datagram.payload, Direction::ToGrantor);
        let Some(header) = header.ok().filter(|header| keys.place(header).is_some()) else {
            return refuse(counters, Counter::ProbesRefused);
        };
        let Some(less) = left.checked_sub(1) else { return refuse(counters, Counter::ProbesUnchecked) };
        *left = less;
        let ends = Ends { source: datagram.source(), destination: datagram.destination() };
        let time = (cx.now_ns, settings.tolerance_ns);
        let Ok(opened) = keys.open(&header, datagram.payload, &ends, time) else {
            return refuse(counters, Counter::ProbesRefused);
        };
        let peer = Peer { gatekeeper: ends.source.0, ours: ends.destination.0, interface: packet.port };
        let mut answered = false;
        for message in opened {
            if let Ok(Message::Probe { nonce }) = message {
                outbox.put(cx, settings, counters, peer, Message::Answer { nonce });
                answered = true;
            }
        }
        if answered { Verdict::Consume } else { refuse(counters, Counter::ProbesRefused) }
    }
}

impl Node for Probe {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let mut left = CHECKED;
        for (packet, verdict) in burst.iter().zip(verdicts) {
            *verdict = self.take(cx, packet, &mut left);
        }
        let Probe { settings, outbox, counters, .. } = self;
        outbox.flush(cx, settings.get(cx.reader), counters);
        self.board.show(&self.counters);
    }

    fn surrender(&mut self, _pool: &mut Pool) {
        self.board.show(&self.counters);
    }
}
