//! Two ends of a TCP connection that keep to the rules, over links that lose, repeat and reorder: nothing they send is refused. And somebody who
//! does not see the connection: hardly anything that he forges fits.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tidemill_nf::filter::tcp::{Segment, Tcp, flag::*};

/// One end, its numbers counted from 0 in 64 bits.
struct End {
    first: u32,
    /// Sent, and acknowledged by the other.
    sent: u64,
    acked: u64,
    /// What the other allows: the right edge.
    allowed: u64,
    /// Received in order.
    received: u64,
    /// The window that it tells now, bytes; it does not take the right edge back.
    room: u64,
    told: u64,
    scale: u8,
    closed: bool,
}

impl End {
    fn segment(&mut self, other_first: u32, flags: u8, from: u64, len: u32, shift: u8) -> Segment {
        let edge = (self.received + self.room).max(self.told);
        let window = ((edge - self.received) >> shift).min(65_535) as u16;
        self.told = self.received + (u64::from(window) << shift);
        Segment {
            seq: self.first.wrapping_add(from as u32),
            ack: other_first.wrapping_add(self.received as u32),
            window,
            flags,
            len,
            scale: None,
        }
    }
}

/// Returns how many forged segments were refused. `is_picked_up`: what follows it has not seen the beginning.
fn lawful(seed: u64, is_picked_up: bool) -> u32 {
    let mut random = StdRng::seed_from_u64(seed);
    let scales = [random.random_bool(0.7), random.random_bool(0.7)];
    // By windows that are not shifted nothing is taken back.
    let scales = if is_picked_up { [false; 2] } else { scales };
    let mut end = |scale: bool| {
        let room = 1 << random.random_range(10..18);
        let scale = if scale { random.random_range(0..=8) } else { 0 };
        End {
            first: random.random(),
            sent: 0,
            acked: 0,
            allowed: 0,
            received: 0,
            room,
            told: 0,
            scale,
            closed: false,
        }
    };
    let mut ends = [end(scales[0]), end(scales[1])];
    let both = scales[0] && scales[1];
    if !both {
        (ends[0].scale, ends[1].scale) = (0, 0);
    }
    let first = [ends[0].first, ends[1].first];
    let option = |at: usize, ends: &[End; 2]| scales[at].then_some(if both { ends[at].scale } else { 5 });
    // SYN, SYN and ACK, ACK; windows of SYNs are not shifted.
    let mut syn = ends[0].segment(0, SYN, 0, 0, 0);
    (syn.ack, syn.scale) = (0, option(0, &ends));
    let syn_window = u64::from(syn.window);
    let mut tcp = Tcp::begun(&syn);
    if random.random_bool(0.3) {
        tcp.step(0, &syn).unwrap();
    }
    ends[0].sent = 1;
    ends[1].received = 1;
    let mut answer = ends[1].segment(first[0], SYN | ACK, 0, 0, 0);
    answer.scale = option(1, &ends);
    tcp.step(1, &answer).unwrap();
    if random.random_bool(0.3) {
        tcp.step(1, &answer).unwrap();
    }
    ends[1].sent = 1;
    ends[1].allowed = 1 + syn_window;
    ends[0].received = 1;
    ends[0].acked = 1;
    ends[0].allowed = 1 + u64::from(answer.window);
    let shift = ends[0].scale;
    let ack = ends[0].segment(first[1], ACK, 1, 0, shift);
    tcp.step(0, &ack).unwrap();
    assert!(tcp.is_established());
    ends[1].acked = 1;
    ends[1].allowed = ends[1].allowed.max(1 + (u64::from(ack.window) << shift));
    let picked_up = is_picked_up.then(|| random.random_range(0..300));
    let (mut refused, mut began) = (0, 0);
    for step in 0..400 {
        let from = random.random_range(0..2_usize);
        let shift = ends[from].scale;
        let (mine, other_first) = (&mut ends[from], first[1 - from]);
        // New data, something again, or nothing but an acknowledgement.
        let free = mine.allowed.saturating_sub(mine.sent);
        let (start, len) = match random.random_range(0..3) {
            0 if !mine.closed => (mine.sent, free.min(random.random_range(0..1461))),
            1 if mine.sent > mine.acked => {
                let start = random.random_range(mine.acked..mine.sent);
                let left = mine.sent - u64::from(mine.closed) - start.min(mine.sent - u64::from(mine.closed));
                (start, left.min(1460))
            }
            _ => (mine.sent, 0),
        };
        let mut flags = ACK;
        if !mine.closed && start == mine.sent && step > 300 && random.random_bool(0.05) && free > len {
            flags |= FIN;
            mine.closed = true;
        }
        let segment = mine.segment(other_first, flags, start, len as u32, shift);
        let end = start + len + u64::from(flags & FIN != 0);
        mine.sent = mine.sent.max(end);
        let acks = mine.received;
        let edge = acks + (u64::from(segment.window) << shift);
        if picked_up == Some(step) {
            (tcp, began) = (Tcp::picked_up(&segment), from);
        } else {
            tcp.step(from ^ began, &segment)
                .unwrap_or_else(|_| panic!("seed {seed}, step {step}: {from} sends {segment:?} of {tcp:?}"));
        }
        // What is lost behind us is lost for the other end only.
        if random.random_bool(0.8) {
            let other = &mut ends[1 - from];
            if start <= other.received && end > other.received && end <= other.told {
                other.received = end;
            }
            other.acked = other.acked.max(acks);
            other.allowed = other.allowed.max(edge);
            // Whoever reads slowly has less room.
            if random.random_bool(0.1) {
                other.room = 1 << random.random_range(8..18);
            }
        }
        // He does not know the numbers.
        let forged = Segment {
            seq: random.random(),
            ack: random.random(),
            window: random.random(),
            flags: *[ACK, ACK | FIN, RST, RST | ACK, SYN, SYN | ACK].choose(&mut random).unwrap(),
            len: random.random_range(0..1461),
            scale: None,
        };
        refused += u32::from(tcp.clone().step(random.random_range(0..2), &forged).is_err());
    }
    refused
}

#[test]
fn what_keeps_to_the_rules_passes_and_what_is_guessed_does_not() {
    let refused: u32 = (0..300).map(|seed| lawful(seed, false)).sum();
    // Of 120,000: windows are up to 2^26 of 2^32 numbers here, for what does not acknowledge.
    assert!(refused > 115_000, "{refused}");
}

/// Whatever is sent again, and whatever was sent before: a connection that is picked up goes on.
#[test]
fn what_was_there_before_passes_too() {
    let refused: u32 = (0..300).map(|seed| lawful(seed, true)).sum();
    // Before it is picked up next to all, and then not all that is far away.
    assert!(refused > 60_000, "{refused}");
}
