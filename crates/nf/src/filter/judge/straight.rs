//! The usual packet: of a connection that is known and lives, covers its ways, and was held to these very rules. What such a packet changes are some words of the
//! connection; so these are read and written as they lie, each once, and no structure is made of them.
//!
//! ```text
//! word 0   is it alive, are its ways covered, has the other side answered     until when it lives now
//!      1   is it held to these rules
//!      2   by which of them                                                    what they count
//!      3                                                                       a packet more of this side
//!      4   TCP: does the segment fit                                           what it says of both sides
//!      8   TCP: does it wait for an answer, and is this the answer
//! ```
//!
//! Any other packet is judged by `whole`, and these would be, too: it is the specification (`tests.rs`).

use super::{Filter, NOWHERE};
use crate::filter::connection::{
    HALF, HEAD, Head, Kind, PACKETS, RULES, TCP, VERSION, of_two, one_more, rule_of, timeout_ms,
};
use crate::filter::counters::Counter;
use crate::filter::half::NONE;
use crate::filter::net::Net;
use crate::filter::packet::Load;
use crate::filter::rules::Rules;
use crate::filter::tcp::{Tcp, WORDS};
use tidemill_flow::flowtable::Slot;

/// What a packet changes.
pub(super) struct Change {
    slot: Slot,
    head: Head,
    packets: u64,
    /// TCP's words, before and after.
    tcp: Option<[[u64; WORDS]; 2]>,
    /// By which rules it passes, on its ways.
    decided: [Option<u32>; 2],
    bytes: u32,
}

impl<A: Net<W>, const W: usize> Filter<A, W> {
    /// What the packet at this place changes, if it goes this way. It passes then.
    #[inline(always)]
    pub(super) fn straight(&self, place: usize, now_ms: u64, rules: &Rules) -> Option<Change> {
        let (ways, Ok(read)) = self.ahead.reads.get(place)? else { return None };
        let mut slot = self.ahead.hints.get(place)?.slot?;
        if read.fragment.is_some() {
            return None;
        }
        if self.ahead.epoch != self.states.epoch() {
            // Others of its burst have had connections go, as in a flood: its own lies where it lay, mostly, and all of it is here.
            slot = self.states.find(&read.key)?;
        }
        let table = &self.states.table;
        let head = Head(table.word(slot, HEAD));
        if head.until_ms() <= now_ms || of_two(table.word(slot, VERSION), 0) != rules.version() {
            return None;
        }
        let side = usize::from(head.is_origin_low() != read.from_low);
        // The first answer is noted, and may end a wait.
        if side == 1 && !head.is_answered() {
            return None;
        }
        let (by, mut decided) = (table.word(slot, RULES), [None; 2]);
        for (way, interface) in [ways.from, ways.to].into_iter().enumerate() {
            if (way == 1 && ways.to == NOWHERE) || rules.skips(interface) {
                continue;
            }
            let of_first = way ^ side;
            if !head.keeps(of_first) {
                return None;
            }
            decided[way] = rule_of(of_two(by, of_first));
        }
        let waits = || table.word(slot, HALF) as u32 != NONE;
        let (mut state, mut tcp) = (Tcp::default(), None);
        if let Load::Tcp(segment) = &read.load {
            let before = std::array::from_fn(|i| table.word(slot, TCP + i));
            state = Tcp::unpack(before);
            let anew = state.is_over() && segment.opens();
            if anew || state.step(side, segment).is_err() {
                return None;
            }
            if (state.is_established() || state.is_over()) && waits() {
                return None;
            }
            tcp = Some([before, state.pack()]);
        } else {
            debug_assert!(!head.is_answered() || !waits(), "it waits for an answer that it has");
        }
        let silent_ms = timeout_ms(Kind::of(read.protocol), &state, head.is_answered(), &rules.times);
        Some(Change {
            slot,
            head: head.until(now_ms + silent_ms),
            packets: one_more(table.word(slot, PACKETS), side),
            tcp,
            decided,
            bytes: read.bytes,
        })
    }

    /// Lets such a packet pass.
    #[inline(always)]
    pub(super) fn go(&mut self, change: Change, rules: &Rules) {
        let Change { slot, head, packets, tcp, decided, bytes } = change;
        let table = &mut self.states.table;
        table.set_word(slot, HEAD, head.0);
        table.set_word(slot, PACKETS, packets);
        if let Some([before, after]) = &tcp {
            for i in 0..WORDS {
                // It may lie on a line that has nothing else to change.
                if before[i] != after[i] {
                    table.set_word(slot, TCP + i, after[i]);
                }
            }
        }
        self.counters.one(Counter::ByState);
        self.counters.one(Counter::Passed);
        rules.count(self.worker, decided, bytes);
    }
}
