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
    /// The window that it tells now, bytes.
    room: u64,
    /// The right edge: it is not taken back, though shifted windows may tell a little less.
    told: u64,
    scale: u8,
    closed: bool,
}

impl End {
    fn segment(&mut self, other_first: u32, flags: u8, from: u64, len: u32, shift: u8) -> Segment {
        let edge = (self.received + self.room).max(self.told);
        let window = ((edge - self.received) >> shift).min(65_535) as u16;
        self.told = self.told.max(self.received + (u64::from(window) << shift));
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

/// What follows the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Followed {
    FromTheBeginning,
    /// From some segment on.
    PickedUp,
    /// From the beginning, but for some segments in the middle.
    HandedOver,
}

/// Segments that somebody forges who does not see the connection, once it is followed from some moment on and both ends have spoken since.
#[derive(Default)]
struct Forged {
    all: u32,
    refused: u32,
    /// Those that passed and changed something.
    moved: u32,
}

fn lawful(seed: u64, followed: Followed, forged: &mut Forged) {
    let mut random = StdRng::seed_from_u64(seed);
    let scales = [random.random_bool(0.7), random.random_bool(0.7)];
    // A window's worth of data may pass unseen, or hardly any.
    let most = *[1461, 30_000].choose(&mut random).unwrap();
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
    let turn = random.random_range(0..300);
    let (begins, unseen) = match followed {
        Followed::FromTheBeginning => (0, 0..0),
        Followed::PickedUp => (turn, 0..turn),
        Followed::HandedOver => (0, turn..turn + random.random_range(1..=50)),
    };
    let (mut began, mut spoke) = (0, [followed == Followed::FromTheBeginning; 2]);
    for step in 0..400 {
        let from = random.random_range(0..2_usize);
        let shift = ends[from].scale;
        let (mine, other_first) = (&mut ends[from], first[1 - from]);
        // New data, something again, or nothing but an acknowledgement.
        let free = mine.allowed.saturating_sub(mine.sent);
        let (start, len) = match random.random_range(0..3) {
            0 if !mine.closed => (mine.sent, free.min(random.random_range(0..most))),
            1 if mine.sent > mine.acked => {
                let start = random.random_range(mine.acked..mine.sent);
                let left = mine.sent - u64::from(mine.closed) - start.min(mine.sent - u64::from(mine.closed));
                (start, left.min(most - 1))
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
        // What is lost before us nobody sees.
        if step != begins && step != unseen.end && random.random_bool(0.1) {
            continue;
        }
        if followed == Followed::HandedOver && step == unseen.end {
            tcp = tcp.resumed();
        }
        if followed == Followed::PickedUp && step == begins {
            (tcp, began) = (Tcp::picked_up(&segment), from);
        } else if !unseen.contains(&step) {
            tcp.step(from ^ began, &segment)
                .unwrap_or_else(|_| panic!("seed {seed}, step {step}: {from} sends {segment:?} of {tcp:?}"));
        }
        spoke[from] |= step >= unseen.end;
        // What is lost behind us is lost for the other end only.
        if random.random_bool(0.8) {
            let other = &mut ends[1 - from];
            if start <= other.received && end > other.received && end <= other.told {
                other.received = end;
            }
            other.acked = other.acked.max(acks);
            other.allowed = other.allowed.max(edge);
            // Whoever reads slowly has less room, and windows grow.
            if random.random_bool(0.1) {
                let grown = followed == Followed::HandedOver && step >= unseen.start;
                other.room = 1 << random.random_range(8..if grown { 21 } else { 18 });
            }
        }
        // He does not know the numbers.
        let guess = Segment {
            seq: random.random(),
            ack: random.random(),
            window: random.random(),
            flags: *[ACK, ACK | FIN, RST, RST | ACK, SYN, SYN | ACK].choose(&mut random).unwrap(),
            len: random.random_range(0..1461),
            scale: None,
        };
        if spoke == [true; 2] {
            let mut after = tcp;
            forged.all += 1;
            forged.refused += u32::from(after.step(random.random_range(0..2), &guess).is_err());
            forged.moved += u32::from(after != tcp);
        }
    }
}

fn walks(followed: Followed) -> Forged {
    let mut forged = Forged::default();
    (0..300).for_each(|seed| lawful(seed, followed, &mut forged));
    forged
}

#[test]
fn what_keeps_to_the_rules_passes_and_what_is_guessed_does_not() {
    let Forged { all, refused, moved } = walks(Followed::FromTheBeginning);
    assert!(all > 100_000 && all - refused < 30 && moved < 10, "{all} {refused} {moved}");
}

/// Whatever is sent again, and whatever was sent before: a connection that is picked up goes on.
#[test]
fn what_was_there_before_passes_too() {
    let Forged { all, refused, moved } = walks(Followed::PickedUp);
    // Windows count as a gigabyte, so a quarter of all numbers is not far away.
    assert!(all > 60_000 && refused > all / 100 * 75 && moved < all / 100 * 8, "{all} {refused} {moved}");
}

/// Whatever was sent meanwhile, and however windows have grown.
#[test]
fn what_goes_on_elsewhere_passes_too() {
    let Forged { all, refused, moved } = walks(Followed::HandedOver);
    assert!(all > 50_000 && all - refused < 100 && moved < 10, "{all} {refused} {moved}");
}
