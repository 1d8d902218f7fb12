//! `probe`: Gatekeepers ask whether we are there, and are told.
//!
//! A probe comes under one of our keys from a Gatekeeper's port 45232 to our port 41120, and is answered from there, all of one turn to one Gatekeeper in one
//! datagram. A probe that comes twice is answered twice: what the answer says is not new then, and the Gatekeeper knows that. At most [`CHECKED`] tags are checked in
//! a burst; whatever is no probe is dropped as `probe-refused`, and why is said ([`crate::gatekeepers`]): a number that is no key's, a wrong tag, or, of one whose tag is right, a
//! wrong time.
//!
//! **A probe tells what the Gatekeeper knows of us.** If that is a start with a later clock, all workers go on behind it from then on, the answer first ([`Voice::hear`]). Who sends a
//! probe again that it has kept, within the time that clocks may differ, tells what that Gatekeeper knew once: what we, or an earlier start of ours, have really given. Behind that we
//! are already, or have to go anyway; nothing is lowered by it, and it proves nothing to the Gatekeeper. So probes need no window, and a Gatekeeper that has started again
//! with an earlier clock is answered like any other.
//!
//! Outputs: `lookup4`, `lookup6`.

use crate::control::GrantorControl;
use crate::gatekeepers::{Refused, Reports};
use crate::section::Settings;
use crate::tally::{Board, Counter, Counters};
use crate::voice::{Outbox, Peer, Voice};
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet, Pool};
use tidemill_decision::authenticated::{Header, Message, Refusal};
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
    voice: Arc<Voice>,
    reports: Arc<Reports>,
    outbox: Outbox,
    counters: Counters,
    board: Board,
}

/// Makes the workers' nodes, by their numbers.
pub(crate) fn factory(control: &GrantorControl) -> impl Fn(usize) -> Probe + Send + Sync + 'static {
    let (settings, boards) = (control.settings.view(), control.boards(2));
    let (voice, met, reports) = (control.voice.clone(), control.met.clone(), control.reports.clone());
    move |worker| Probe {
        settings: settings.clone(),
        voice: voice.clone(),
        reports: reports.clone(),
        outbox: Outbox::new(voice.clone(), met.clone(), [0, 1]),
        counters: Counters::default(),
        board: boards.get(worker).cloned().unwrap_or_default(),
    }
}

impl Probe {
    fn take(&mut self, cx: &mut Context<'_>, packet: &Packet, left: &mut usize) -> Verdict {
        let Probe { settings, voice, reports, outbox, counters, .. } = self;
        let settings = settings.get(cx.reader);
        let ip = packet.data().get(usize::from(packet.l3)..).unwrap_or_default();
        let refuse = |counters: &mut Counters, counter| {
            counters.one(counter);
            Verdict::Drop(DropReason::ProbeRefused)
        };
        let Some(keys) = &settings.keys else { return refuse(counters, Counter::ProbesRefused) };
        let datagram = to_us(ip).filter(|datagram| datagram.source().1 == GATEKEEPER_PORT);
        let Some(datagram) = datagram else { return refuse(counters, Counter::ProbesRefused) };
        let gatekeeper = datagram.source().0;
        let Ok(header) = Header::read(datagram.payload, Direction::ToGrantor) else {
            return refuse(counters, Counter::ProbesRefused);
        };
        if keys.place(&header).is_none() {
            reports.refused(gatekeeper, Refused::UnknownKey(header.key));
            return refuse(counters, Counter::ProbesRefused);
        }
        let Some(less) = left.checked_sub(1) else { return refuse(counters, Counter::ProbesUnchecked) };
        *left = less;
        let ends = Ends { source: datagram.source(), destination: datagram.destination() };
        let time = (cx.now_ns, settings.tolerance_ns);
        let opened = match keys.open(&header, datagram.payload, &ends, time) {
            Ok(opened) => opened,
            Err(refusal) => {
                let why = match refusal {
                    Refusal::Stale { behind_ns } => Refused::Clock { behind_ns },
                    _ => Refused::Forged(header.key),
                };
                reports.refused(gatekeeper, why);
                return refuse(counters, Counter::ProbesRefused);
            }
        };
        let peer = Peer { gatekeeper, ours: ends.destination.0, interface: packet.port };
        let mut answered = false;
        for message in opened {
            if let Ok(Message::Probe { nonce, known }) = message {
                match voice.hear(cx.now_ns, &known) {
                    Ok(None) => {}
                    Ok(Some(below)) => reports.later(gatekeeper, below),
                    Err(_) => reports.refused(gatekeeper, Refused::Beyond),
                }
                outbox.put(cx, settings, counters, peer, Message::Answer { nonce });
                answered = true;
            }
        }
        if !answered {
            return refuse(counters, Counter::ProbesRefused);
        }
        reports.heard(gatekeeper);
        Verdict::Consume
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
