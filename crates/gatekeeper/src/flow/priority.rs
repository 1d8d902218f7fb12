//! How early a request is sent on: who has waited longer is served first.
//!
//! The level of a request is the logarithm, to base 2 and rounded down, of the picoseconds since the flow's last packet, so a source that wants
//! to be twice as early as another must send half as much. A new flow starts at [`FIRST`]. A flow may send [`ALLOWANCE`] packets at a level,
//! whatever their distances, because the first packets of a connection come in a row:
//!
//! | a packet that by its own level would be | is sent at | and then |
//! |---|---|---|
//! | lower, while the allowance lasts | the flow's level | the allowance is one less |
//! | lower, the allowance is used up | its own level | that is the flow's, with a new allowance |
//! | as high, or higher | its own level | that is the flow's, with a new allowance |
//!
//! The packet that begins a level is the first of its allowance. Source: the wire facts of the public system (Fu 2020, section 4.3.3 has only the
//! logarithm); levels end at 63 (a wait of 106 days), where DSCPs have ended long since.

/// The level of a new flow: that of a wait of 0.27 to 0.55 s.
pub const FIRST: u8 = 38;

/// Packets that a flow may send at a level, the one that began it included.
pub const ALLOWANCE: u8 = 8;

/// The level of a packet that comes so many nanoseconds after the flow's last: 0 to 63.
#[inline(always)]
pub fn level(waited_ns: u64) -> u8 {
    let waited_ps = waited_ns.saturating_mul(1000);
    (waited_ps | 1).ilog2() as u8
}

/// The DSCP that says this level: 3 to 63, where the highest four levels are one.
#[inline(always)]
pub fn dscp(level: u8) -> u8 {
    (level + 3).min(63)
}

/// Where a flow stands that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The level of its last packet.
    pub level: u8,
    /// Packets that it may still send at this level that would come out lower: 0 to 7, or 8 of a new flow.
    pub allowance: u8,
}

impl Standing {
    /// A flow of which no packet has been seen.
    pub const NEW: Standing = Standing { level: FIRST, allowance: ALLOWANCE };

    /// After a packet that by its own level would be `own`: that is sent at the level of the result.
    #[inline(always)]
    #[must_use]
    pub fn after(self, own: u8) -> Standing {
        if own < self.level && self.allowance > 0 {
            Standing { allowance: self.allowance - 1, ..self }
        } else {
            Standing { level: own, allowance: ALLOWANCE - 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_logarithms_of_picoseconds() {
        // 2^39 ps are 549.755813888 ms.
        let cases = [
            (0, 0),
            (1, 9),
            (2, 10),
            (274_877_906, 37),
            (274_877_907, 38),
            (549_755_813, 38),
            (549_755_814, 39),
            (9_223_372_036_854_775, 62),
            (9_223_372_036_854_776, 63),
            (u64::MAX, 63),
        ];
        for (waited_ns, wanted) in cases {
            assert_eq!(level(waited_ns), wanted, "{waited_ns} ns");
        }
        assert_eq!([0, 38, 59, 60, 61, 63].map(dscp), [3, 41, 62, 63, 63, 63]);
    }

    #[test]
    fn eight_packets_at_a_level() {
        let mut standing = Standing::NEW;
        for _ in 0..8 {
            standing = standing.after(20);
            assert_eq!(standing.level, 38);
        }
        // The ninth has its own, and is the first of eight again.
        for _ in 0..8 {
            standing = standing.after(if standing.level == 38 { 20 } else { 19 });
            assert_eq!(standing.level, 20);
        }
        assert_eq!(standing.after(19), Standing { level: 19, allowance: 7 });
        // As high is enough for a new allowance.
        assert_eq!(standing.after(20), Standing { level: 20, allowance: 7 });
        assert_eq!(standing.after(21), Standing { level: 21, allowance: 7 });
    }
}
