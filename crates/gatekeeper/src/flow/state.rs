//! What is known of one flow, in three words.
//!
//! ```text
//!          Granted                                         Declined           Request                        Program
//! word 0   63, 62: tag                                     63, 62: tag        63, 62: tag (0)                63, 62: tag
//!          61: direct                                                         9: seen
//!          60: stray                                       60: stray                                         60: stray
//!          59 ... 32: the renewal, ticks before expiry                        8 ... 6: allowance
//!          31 ... 0: expiry, tick                          31 ... 0: expiry   5 ... 0: level                 31 ... 0: expiry
//! word 1   63 ... 40: rate, KiB/s
//!          39 ... 32: rank                                 39 ... 32: rank                                   39 ... 32: rank
//!          31 ... 16: note                                 31 ... 16: note    31 ... 16: note                31 ... 16: note
//!          15 ... 0: step, ticks                                                                             7 ... 0: which
//! word 2   when the bucket is full again, 1/1024 ns                           when the last packet came, ns  where its cookie is
//! ```
//!
//! Zeros are a flow of which no packet has been seen, which is how [`FlowTable`](tidemill_flow::flowtable::FlowTable) makes new ones.
//!
//! **Times.** A *tick* is 2^24 ns (16.8 ms). A decision's times are rounded up to the next tick, so they end up to 16.8 ms late and never early.
//! No decision holds longer than [`LONGEST_NS`] (52 days); a longer one ends then, and the flow asks again. Ticks are kept modulo 2^32: an
//! expired flow would pass for a live one only if it had lain untouched for more than two years.
//!
//! **Renewal.** The first packet sent at or after the renewal's time carries DSCP 2; the next that does is the first one that comes a step
//! later than that packet (not later than the time that was due: a flow that was silent asks once, not for every step that it missed). A step
//! is [`LONGEST_STEP_NS`] (18 minutes) at most. A renewal that would come at the expiry or after it never comes.
//!
//! **The rate** is a token bucket that holds a second's worth, full at first, kept in one number: the time at which it will be full again (the
//! theoretical arrival time of the generic cell rate algorithm). A packet of `b` bytes puts that off by `b 10^9 / rate` units of 1/1024 ns (which is
//! `b` bytes at `rate` times 1024 bytes a second), rounded up to a whole unit, and passes if it is then at most a second ahead. So a packet longer than
//! a second's worth never passes, nor does any at rate 0.
//!
//! **A renewed grant keeps the bucket as full as it was**, in parts of the whole: half a second's worth of the old rate becomes half a
//! second's worth of the new one. For the same rate that changes nothing, and no renewal fills a bucket. A rate is 2^24 - 1 KiB/s (137 Gbit/s) at most; a higher
//! one is that.
//!
//! **The rank** is that of the version of its policy by which a Grantor has decided ([`tidemill_decision::revocation`]). [`FlowState::revoke`] is what becomes of a
//! flow whose decision counts no more.
//!
//! **A stray** is a flow of which it is not sure that the Grantor has decided that its policy leads it to (`gate/holds.rs`): a mark that the owner puts on a decision, and
//! the next decision is without.
//!
//! **A program** decides about each packet itself; its cookie lies elsewhere ([`crate::programs`]), so who has a state with one in hand has its
//! cookie to give back when the state goes: [`FlowState::installed`].
//!
//! **Costs.** A packet of a granted flow costs one 64-bit division; others, none. Which words it changes: 2 (granted), 0 and 2 (granted
//! and renewed; a request), none (declined; over the rate), all if the flow has just expired.

use super::priority::{self, Standing};
use crate::decision::Verdict;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bits of a nanosecond count that are below a tick.
const TICK: u32 = 24;
/// The longest that a decision holds, in ticks.
const LONGEST: u64 = (1 << 28) - 1;
/// The longest that a decision holds: 52 days.
pub const LONGEST_NS: u64 = LONGEST << TICK;
const LONGEST_STEP: u64 = (1 << 16) - 1;
/// How often a flow asks within the grace that a revocation leaves it.
const ASKED: u64 = 3;
/// The longest time between two renewals that a grant can ask for: 18 minutes.
pub const LONGEST_STEP_NS: u64 = LONGEST_STEP << TICK;

const REQUEST: u64 = 0;
const GRANTED: u64 = 1;
const DECLINED: u64 = 2;
const PROGRAM: u64 = 3;

const TAG_AT: u32 = 62;
const DIRECT: u64 = 1 << 61;
const STRAY: u64 = 1 << 60;
const RENEWAL_AT: u32 = 32;
const RENEWAL: u64 = LONGEST << RENEWAL_AT;
const SEEN: u64 = 1 << 9;
const RATE_AT: u32 = 40;
const RATE: u64 = (1 << 24) - 1;
const RANK_AT: u32 = 32;
const RANK: u64 = 0xff << RANK_AT;
const NOTE_AT: u32 = 16;
const NOTE: u64 = 0xffff << NOTE_AT;

/// A nanosecond of the bucket is 2^10 units.
const UNIT: u32 = 10;
/// What a bucket holds: a second.
const SECOND: u64 = 1_000_000_000 << UNIT;

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// To the Grantor, as a request.
    Request {
        /// 3 to 63.
        dscp: u8,
    },
    /// On.
    Granted {
        /// 1, or 2 when it is time to renew.
        dscp: u8,
        /// To the destination itself. False when it is time to renew: only the Grantor can do that.
        direct: bool,
    },
    /// Dropped: the flow is declined.
    Declined,
    /// Dropped: the flow is granted less.
    OverRate,
}

/// What is known of a flow. See the [module](self).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct FlowState([u64; 3]);

/// A flow's state in words for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It asks.
    Request {
        /// The level of its last packet, or of its first if none has come.
        level: u8,
        /// Packets that it may still send at this level that would come out lower.
        allowance: u8,
        /// Nanoseconds since its last packet, if there was one.
        idle_ns: Option<u64>,
    },
    /// It may send.
    Granted {
        /// How much, KiB/s.
        rate_kib_s: u32,
        /// Bytes that it may send at once.
        bucket: u64,
        /// Nanoseconds until it expires.
        left_ns: u64,
        /// Nanoseconds until it is renewed, 0 if it is time. `None`: never.
        renewal_ns: Option<u64>,
        /// Nanoseconds from one renewal to the next.
        step_ns: u64,
        /// Past the Grantor.
        direct: bool,
    },
    /// It may not.
    Declined {
        /// Nanoseconds until it expires.
        left_ns: u64,
    },
    /// A program decides.
    Program {
        /// Which.
        number: u8,
        /// Nanoseconds until it expires.
        left_ns: u64,
    },
    /// Its Grantor has taken back what was decided, and no packet has come since: the next one asks. A state does not know that by itself.
    Revoked,
}

/// A flow's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// Which.
    pub number: u8,
    /// Where its cookie is.
    pub cookie: u32,
}

/// The tick that this time lies in.
#[inline(always)]
fn tick(ns: u64) -> u32 {
    (ns >> TICK) as u32
}

/// The first tick that begins at this time or later.
#[inline(always)]
fn tick_from(ns: u64) -> u32 {
    tick(ns.wrapping_add((1 << TICK) - 1))
}

/// The tick that a decision expires at.
fn expiry(now_ns: u64, expire_s: u32) -> u64 {
    let holds_ns = (u64::from(expire_s) * 1_000_000_000).min(LONGEST_NS);
    tick_from(now_ns.wrapping_add(holds_ns)).into()
}

impl FlowState {
    #[inline(always)]
    fn tag(&self) -> u64 {
        self.0[0] >> TAG_AT
    }

    #[inline(always)]
    fn expiry(&self) -> u32 {
        self.0[0] as u32
    }

    /// Ticks until the expiry, the one at hand included. 0: it is over.
    #[inline(always)]
    fn left(&self, now_ns: u64) -> u32 {
        let left = self.expiry().wrapping_sub(tick(now_ns));
        if u64::from(left) <= LONGEST + 1 { left } else { 0 }
    }

    /// Whether a decision held, and holds no longer.
    #[inline(always)]
    pub fn over(&self, now_ns: u64) -> bool {
        self.tag() != REQUEST && self.left(now_ns) == 0
    }

    /// A flow of which no packet has been seen, with the same note.
    #[inline(always)]
    pub fn forgotten(&self) -> Self {
        FlowState([0, self.0[1] & NOTE, 0])
    }

    /// What the table's owner has noted: 0 at first, and kept by all that happens to the flow.
    #[inline(always)]
    pub fn note(&self) -> u16 {
        (self.0[1] >> NOTE_AT) as u16
    }

    /// Notes something.
    #[inline(always)]
    pub fn set_note(&mut self, note: u16) {
        self.0[1] = self.0[1] & !NOTE | u64::from(note) << NOTE_AT;
    }

    /// Whether something was decided, be its time over or not.
    #[inline(always)]
    pub fn is_decided(&self) -> bool {
        self.tag() != REQUEST
    }

    /// The rank of its decision; 0 if it cannot be revoked.
    #[inline(always)]
    pub fn rank(&self) -> u8 {
        (self.0[1] >> RANK_AT) as u8
    }

    /// Says which rank its decision has. A request has none.
    pub fn set_rank(&mut self, rank: u8) {
        if self.tag() != REQUEST {
            self.0[1] = self.0[1] & !RANK | u64::from(rank) << RANK_AT;
        }
    }

    /// Whether the mark of a stray is on its decision.
    #[inline]
    pub fn is_stray(&self) -> bool {
        self.tag() != REQUEST && self.0[0] & STRAY != 0
    }

    /// Puts that mark on it, or takes it off. A request has none.
    pub fn set_stray(&mut self, is_stray: bool) {
        if self.tag() != REQUEST {
            self.0[0] = self.0[0] & !STRAY | if is_stray { STRAY } else { 0 };
        }
    }

    /// Its program, whether its time is over or not.
    #[inline(always)]
    pub fn installed(&self) -> Option<Installed> {
        (self.tag() == PROGRAM).then(|| Installed { number: self.0[1] as u8, cookie: self.0[2] as u32 })
    }

    /// When what was decided expires, in nanoseconds; now, if it has.
    pub fn expires_ns(&self, now_ns: u64) -> u64 {
        let left = u64::from(self.left(now_ns)) << TICK;
        now_ns + left.saturating_sub(now_ns & ((1 << TICK) - 1))
    }

    /// When a refusal expires, in nanoseconds. `None`: nothing is refused by the state alone.
    #[inline(always)]
    pub fn refused_until(&self, now_ns: u64) -> Option<u64> {
        (self.tag() == DECLINED).then(|| self.expires_ns(now_ns))
    }

    /// A decision has brought a program (transition c).
    pub fn install(&mut self, now_ns: u64, expire_s: u32, program: Installed) {
        let Installed { number, cookie } = program;
        self.0 = [
            PROGRAM << TAG_AT | expiry(now_ns, expire_s),
            self.0[1] & NOTE | u64::from(number),
            cookie.into(),
        ];
    }

    /// The decision counts no more. A refusal is over at once. What was granted, also by a program, passes for `grace_ns` at most, and this packet asks for the
    /// next decision; while none comes, a granted flow asks again each third of the grace. Whether that is for the caller to say, as a program does not know it.
    #[cold]
    pub fn revoke(&mut self, now_ns: u64, grace_ns: u64) -> bool {
        self.0[1] &= !RANK;
        if self.tag() == DECLINED {
            *self = self.forgotten();
            return false;
        }
        let until = tick_from(now_ns.wrapping_add(grace_ns));
        if until.wrapping_sub(tick(now_ns)) < self.left(now_ns) {
            self.0[0] = self.0[0] & !(RENEWAL | u64::from(u32::MAX)) | u64::from(until);
        }
        if self.tag() == GRANTED {
            // The grant's own step would lie behind its end: where many ask at once, a question may be lost.
            let step = (grace_ns / ASKED).div_ceil(1 << TICK).max(1).min(self.0[1] & LONGEST_STEP);
            self.0[1] = self.0[1] & !LONGEST_STEP | step;
            self.set_renewal(now_ns, tick(now_ns));
        }
        self.tag() == PROGRAM
    }

    /// Whether it is another state than that. Word by word: `==` compares vectors, which waits for the words to be stored.
    #[inline(always)]
    pub fn differs(&self, other: &Self) -> bool {
        (self.0[0] ^ other.0[0]) | (self.0[1] ^ other.0[1]) | (self.0[2] ^ other.0[2]) != 0
    }

    /// What the first packet of a flow is sent with: whatever it is, it is a request of the one level that these have.
    pub const FIRST_DSCP: u8 = priority::FIRST + 3;

    /// A flow whose first packet has come, with a note.
    #[inline(always)]
    pub fn first(now_ns: u64, note: u16) -> Self {
        let standing = u64::from(priority::ALLOWANCE - 1) << 6 | u64::from(priority::FIRST);
        FlowState([SEEN | standing, u64::from(note) << NOTE_AT, now_ns])
    }

    /// A packet of the flow has come at `now_ns`, of `bytes` bytes from its IP header on. What has expired is a request again (transitions
    /// e and f).
    #[inline(always)]
    pub fn packet(&mut self, now_ns: u64, bytes: u32) -> Act {
        if self.over(now_ns) {
            *self = self.forgotten();
        }
        match self.tag() {
            REQUEST => self.request(now_ns),
            GRANTED => self.granted(now_ns, bytes),
            // Nor does one with a program that nobody asks.
            _ => Act::Declined,
        }
    }

    #[inline(always)]
    fn standing(&self) -> Standing {
        let word = self.0[0];
        if word & SEEN == 0 {
            return Standing::NEW;
        }
        Standing { level: (word & 63) as u8, allowance: (word >> 6 & 7) as u8 }
    }

    #[inline(always)]
    fn request(&mut self, now_ns: u64) -> Act {
        let waited_ns = if self.0[0] & SEEN == 0 { 0 } else { now_ns.saturating_sub(self.0[2]) };
        let standing = self.standing().after(priority::level(waited_ns));
        self.0[0] = SEEN | u64::from(standing.allowance) << 6 | u64::from(standing.level);
        self.0[2] = now_ns;
        Act::Request { dscp: priority::dscp(standing.level) }
    }

    #[inline(always)]
    fn rate(&self) -> u64 {
        self.0[1] >> RATE_AT
    }

    /// Units until the bucket is full.
    #[inline(always)]
    fn missing(&self, now_ns: u64) -> u64 {
        // Both are modulo 2^54 ns, 208 days: more than twice what a grant can last.
        let ahead = self.0[2].wrapping_sub(now_ns << UNIT) as i64;
        ahead.max(0) as u64
    }

    #[inline(always)]
    fn granted(&mut self, now_ns: u64, bytes: u32) -> Act {
        let rate = self.rate();
        if rate == 0 {
            return Act::OverRate;
        }
        let missing = self.missing(now_ns) + (u64::from(bytes) * 1_000_000_000).div_ceil(rate);
        if missing > SECOND {
            return Act::OverRate;
        }
        self.0[2] = (now_ns << UNIT).wrapping_add(missing);
        if u64::from(self.left(now_ns)) > (self.0[0] & RENEWAL) >> RENEWAL_AT {
            return Act::Granted { dscp: 1, direct: self.0[0] & DIRECT != 0 };
        }
        let step = self.0[1] as u16;
        let next = tick_from(now_ns).wrapping_add(step.into());
        self.set_renewal(now_ns, next);
        Act::Granted { dscp: 2, direct: false }
    }

    /// The next renewal comes at that tick, if the flow does not expire before.
    #[inline(always)]
    fn set_renewal(&mut self, now_ns: u64, at: u32) {
        let until = u64::from(at.wrapping_sub(tick(now_ns)));
        let before = u64::from(self.left(now_ns)).saturating_sub(until);
        self.0[0] = self.0[0] & !RENEWAL | before << RENEWAL_AT & RENEWAL;
    }

    /// A decision about the flow has come: transitions a, b, and d, which is a again. What [`Verdict::Bpf`] brings, [`install`](Self::install)
    /// takes.
    pub fn decide(&mut self, now_ns: u64, verdict: &Verdict) {
        let (Verdict::Declined { expire_s } | Verdict::Granted { expire_s, .. }) = *verdict else { return };
        let expiry = expiry(now_ns, expire_s);
        let note = self.0[1] & NOTE;
        match *verdict {
            Verdict::Granted { rate_kib_s, renew_ms, step_ms, direct, .. } => {
                let renewed = self.tag() == GRANTED && !self.over(now_ns);
                let missing = if renewed { self.missing(now_ns) } else { 0 };
                let step = (u64::from(step_ms) * 1_000_000).div_ceil(1 << TICK).min(LONGEST_STEP);
                let direct = if direct { DIRECT } else { 0 };
                self.0 = [
                    GRANTED << TAG_AT | direct | expiry,
                    u64::from(rate_kib_s).min(RATE) << RATE_AT | note | step,
                    (now_ns << UNIT).wrapping_add(missing),
                ];
                let renew_ns = u64::from(renew_ms) * 1_000_000;
                self.set_renewal(now_ns, tick_from(now_ns.wrapping_add(renew_ns)));
            }
            _ => self.0 = [DECLINED << TAG_AT | expiry, note, 0],
        }
    }

    /// Whether the flow can be forgotten: it asks and no packet has come for `idle_ns`, or what was decided has been over for that long.
    #[inline]
    pub fn reclaimable(&self, now_ns: u64, idle_ns: u64) -> bool {
        if self.tag() == REQUEST {
            return self.0[0] & SEEN == 0 || now_ns.saturating_sub(self.0[2]) >= idle_ns;
        }
        let over = u64::from(tick(now_ns).wrapping_sub(self.expiry()));
        self.left(now_ns) == 0 && (over << TICK | now_ns & ((1 << TICK) - 1)) >= idle_ns
    }

    /// The state at this time, for operators: one that has expired is that of a new flow.
    pub fn show(&self, now_ns: u64) -> Shown {
        if self.over(now_ns) {
            return self.forgotten().show(now_ns);
        }
        // Ticks from now on, in nanoseconds.
        let until = |ticks: u64| (ticks << TICK).saturating_sub(now_ns & ((1 << TICK) - 1));
        let left = u64::from(self.left(now_ns));
        match self.tag() {
            REQUEST => {
                let Standing { level, allowance } = self.standing();
                let idle_ns = (self.0[0] & SEEN != 0).then(|| now_ns.saturating_sub(self.0[2]));
                Shown::Request { level, allowance, idle_ns }
            }
            GRANTED => {
                let before = (self.0[0] & RENEWAL) >> RENEWAL_AT;
                let there = u128::from(SECOND.saturating_sub(self.missing(now_ns)));
                Shown::Granted {
                    rate_kib_s: self.rate() as u32,
                    bucket: (there * u128::from(self.rate()) / 1_000_000_000) as u64,
                    left_ns: until(left),
                    renewal_ns: (before > 0).then(|| until(left.saturating_sub(before))),
                    step_ns: u64::from(self.0[1] as u16) << TICK,
                    direct: self.0[0] & DIRECT != 0,
                }
            }
            PROGRAM => Shown::Program { number: self.0[1] as u8, left_ns: until(left) },
            _ => Shown::Declined { left_ns: until(left) },
        }
    }
}

#[cfg(test)]
mod tests;
