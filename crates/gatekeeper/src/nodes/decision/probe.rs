//! Probes of Grantors: worker 0's node sends a round of them, in order, every interval; answers are heard by whoever gets them.
//!
//! A probe also tells the Grantor what is known of it, for one whose clock has gone back over a start ([`Known`](crate::decision::authenticated::Known)).
//!
//! A probe goes from our address at the back and port 45232 to the Grantor's port 41120, under our first key, and is looked up like any packet of
//! ours. A worker without packets is woken for a round only while answers have come in the last [`UNHEARD`] rounds: where nobody sends and nobody
//! answers there is nothing to choose, and what is driven by a capture comes to its end. Any packet goes on with it. At most [`AT_ONCE`] go at a time, so the rounds of very many Grantors take longer than the interval.

use crate::counters::{Counter, Counters};
use crate::decision::authenticated::{HEADER_LEN, Header, Message, PROBE_LEN, TAG_LEN, Writer};
use crate::decision::keys::{Direction, Ends, Keyring};
use crate::decision::replay::Stamps;
use crate::decision::{GATEKEEPER_PORT, GRANTOR_PORT};
use crate::settings::Settings;
use crate::trust::Trust;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_burst::Packet;
use tidemill_graph::Context;
use tidemill_ip::datagram::datagram;

/// Probes that go at a time.
const AT_ONCE: usize = 64;
/// What is between those of a round.
const PAUSE_NS: u64 = 1_000_000;
/// Rounds for which a worker is woken though nobody answers.
const UNHEARD: u32 = 16;

/// What the sender of probes knows.
#[derive(Debug)]
pub(super) struct Prober {
    /// The round under way, for all who hear answers and judge them.
    round: Arc<AtomicU64>,
    stamps: Option<Stamps>,
    /// Whose probe is the next.
    next: usize,
    /// When the round began.
    since_ns: u64,
    /// Rounds since an answer was heard here.
    unheard: u32,
}

impl Prober {
    pub(super) fn new(round: Arc<AtomicU64>) -> Self {
        Prober { round, stamps: None, next: usize::MAX, since_ns: 0, unheard: 0 }
    }

    /// An answer has come.
    pub(super) fn heard(&mut self) {
        self.unheard = 0;
    }

    fn wake(&self, cx: &mut Context<'_>, at_ns: u64) {
        if self.unheard < UNHEARD {
            cx.wake_at(at_ns);
        }
    }

    /// Between two bursts.
    pub(super) fn tick(
        &mut self,
        cx: &mut Context<'_>,
        settings: &Settings,
        trust: &Trust,
        counters: &mut Counters,
    ) {
        let (Some(keys), false) = (&trust.keys, settings.probe_ns == 0 || trust.peers.is_empty()) else {
            return;
        };
        let now_ns = cx.now_ns;
        let stamps = self.stamps.get_or_insert_with(|| Stamps::new(now_ns));
        let due_ns = self.since_ns.saturating_add(settings.probe_ns);
        if self.next >= trust.peers.len() {
            if cx.now_ns < due_ns {
                self.wake(cx, due_ns);
                return;
            }
            if stamps.next(now_ns).is_none() {
                // The second of the start: once, if it is not the clock that stands before it.
                self.unheard += 1;
                self.wake(cx, now_ns + 1_000_000_000);
                return;
            }
            (self.next, self.since_ns) = (0, now_ns);
            self.unheard = self.unheard.saturating_add(1);
            let round = match self.round.load(Ordering::Relaxed) {
                // Above all that a run of ours before this one can have asked in: an old answer that is sent again proves nothing.
                0 => now_ns,
                round => round + 1,
            };
            self.round.store(round, Ordering::Relaxed);
        }
        let nonce = self.round.load(Ordering::Relaxed);
        for peer in trust.peers.iter().skip(self.next).take(AT_ONCE) {
            self.next += 1;
            let (source, output): (IpAddr, _) = match peer.address {
                IpAddr::V4(_) => (IpAddr::V4(settings.source4.into()), super::LOOKUP4),
                IpAddr::V6(_) => (IpAddr::V6(settings.source6.into()), super::LOOKUP6),
            };
            let (Some(stamp), false) = (stamps.next(cx.now_ns), source.is_unspecified()) else { continue };
            let ends = Ends { source: (source, GATEKEEPER_PORT), destination: (peer.address, GRANTOR_PORT) };
            let header = Header {
                direction: Direction::ToGrantor,
                key: 0,
                stamp,
                policy_version: 0,
                time_ns: cx.now_ns,
            };
            let message = Message::Probe { nonce, known: peer.known() };
            let Some(packet) = probe(cx, settings, keys, &header, &ends, &message) else { continue };
            counters.one(Counter::Probes);
            cx.emit(output, packet);
        }
        let all = self.next >= trust.peers.len();
        let next_ns = if all { self.since_ns.saturating_add(settings.probe_ns) } else { now_ns + PAUSE_NS };
        self.wake(cx, next_ns);
    }
}

/// A frame with a probe; none where there is no memory.
fn probe(
    cx: &mut Context<'_>,
    settings: &Settings,
    keys: &Keyring,
    header: &Header,
    ends: &Ends,
    message: &Message,
) -> Option<Packet> {
    let mut payload = [0; HEADER_LEN + PROBE_LEN + TAG_LEN];
    let mut writer = Writer::new(&mut payload).ok()?;
    writer.push(message).ok()?;
    let payload = writer.seal(keys, header, ends);
    let interface = settings.behind[usize::from(ends.source.0.is_ipv6())];
    datagram(cx, ends.source, ends.destination, interface, payload)
}
