//! What is known of a register: the abstract domain.
//!
//! A scalar is an unsigned range; what it really is lies inside. A pointer is what it leads into and how far. Two ways that meet keep what both know
//! ([`Value::join`]).

use crate::insn::{AluOp, Cond};

/// An unsigned range, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing has been written.
    Unset,
    /// One thing by one way and another by another.
    Mixed,
    Scalar(Range),
    Context(i64),
    /// So many bytes into the cookie, at least and at most.
    Cookie(i64, i64),
    /// Relative to r10; what is below is negative.
    Stack(i64),
    /// So many bytes from a base: 0 is l3, 1 is l4, others are 2 + the instruction that made them.
    Packet(u16, i64),
    /// Behind the packet's last byte.
    End,
}

/// The smallest number of the form 2^n - 1 that is no smaller.
fn ones(value: u64) -> u64 {
    if value == 0 { 0 } else { u64::MAX >> value.leading_zeros() }
}

const HALF: u64 = u32::MAX as u64;

impl Range {
    pub(crate) const ANY: Range = Range { min: 0, max: u64::MAX };

    pub(crate) fn only(value: u64) -> Self {
        Range { min: value, max: value }
    }

    pub(crate) fn up_to(max: u64) -> Self {
        Range { min: 0, max }
    }

    pub(crate) fn constant(self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    #[cfg(test)]
    pub(crate) fn has(self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    fn join(self, other: Self) -> Self {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The lower half.
    fn low(self) -> Self {
        if self.min >> 32 == self.max >> 32 {
            Range { min: self.min & HALF, max: self.max & HALF }
        } else {
            Range::up_to(HALF)
        }
    }

    /// The range of `self op other`, of 64 bits or 32.
    pub(crate) fn alu(self, op: AluOp, other: Self, wide: bool) -> Self {
        if wide { self.alu64(op, other, 64) } else { self.low().alu32(op, other.low()).low() }
    }

    /// Of numbers of 32 bits. The result's lower half counts.
    fn alu32(self, op: AluOp, other: Self) -> Self {
        match op {
            AluOp::Arsh if self.max > HALF >> 1 => Range::up_to(HALF),
            AluOp::Neg => Range::only(0).alu64(AluOp::Sub, self, 32),
            _ => self.alu64(op, other, 32),
        }
    }

    fn alu64(self, op: AluOp, o: Self, bits: u64) -> Self {
        let by = o.constant().map(|by| by & (bits - 1));
        match op {
            AluOp::Mov => o,
            AluOp::Add => match (self.min.overflowing_add(o.min), self.max.overflowing_add(o.max)) {
                // Both wrap or none.
                ((min, low), (max, high)) if low == high => Range { min, max },
                _ => Range::ANY,
            },
            AluOp::Sub => match (self.min.overflowing_sub(o.max), self.max.overflowing_sub(o.min)) {
                ((min, low), (max, high)) if low == high => Range { min, max },
                _ => Range::ANY,
            },
            AluOp::Mul => match self.max.checked_mul(o.max) {
                Some(max) => Range { min: self.min * o.min, max },
                None => Range::ANY,
            },
            // By 0 it is 0.
            AluOp::Div if o.min == 0 => Range::up_to(self.max),
            AluOp::Div => Range { min: self.min / o.max, max: self.max / o.min },
            // By 0 it is what it was.
            AluOp::Mod if o.min > self.max => self,
            AluOp::Mod if o.min == 0 => Range::up_to(self.max),
            AluOp::Mod => Range::up_to(self.max.min(o.max - 1)),
            AluOp::And => match (self.constant(), o.constant()) {
                (Some(a), Some(b)) => Range::only(a & b),
                _ => Range::up_to(self.max.min(o.max)),
            },
            AluOp::Or => Range { min: self.min.max(o.min), max: ones(self.max | o.max) },
            AluOp::Xor => match (self.constant(), o.constant()) {
                (Some(a), Some(b)) => Range::only(a ^ b),
                _ => Range::up_to(ones(self.max | o.max)),
            },
            AluOp::Lsh => match by {
                Some(by) if self.max <= u64::MAX >> by => Range { min: self.min << by, max: self.max << by },
                _ => Range::ANY,
            },
            AluOp::Arsh if self.max > u64::MAX >> 1 => Range::ANY,
            AluOp::Rsh | AluOp::Arsh => match by {
                Some(by) => Range { min: self.min >> by, max: self.max >> by },
                None => Range::up_to(self.max),
            },
            AluOp::Neg => Range::only(0).alu64(AluOp::Sub, self, bits),
        }
    }

    /// What is known of two numbers if the condition holds between them; `None` if it cannot.
    pub(crate) fn assume(self, cond: Cond, o: Self, wide: bool) -> Option<(Self, Self)> {
        let top = if wide { u64::MAX } else { HALF };
        // Of a longer number's lower half nothing is known.
        if self.max > top || o.max > top {
            return Some((self, o));
        }
        let swapped = |cond| o.assume(cond, self, wide).map(|(o, own)| (own, o));
        match cond {
            Cond::Eq => {
                let both = Range { min: self.min.max(o.min), max: self.max.min(o.max) };
                (both.min <= both.max).then_some((both, both))
            }
            Cond::Ne => self.without(o).zip(o.without(self)),
            Cond::Lt => {
                let own = Range { min: self.min, max: self.max.min(o.max.checked_sub(1)?) };
                let other = Range { min: o.min.max(self.min.checked_add(1)?), max: o.max };
                (own.min <= own.max && other.min <= other.max).then_some((own, other))
            }
            Cond::Le => {
                let own = Range { min: self.min, max: self.max.min(o.max) };
                let other = Range { min: o.min.max(self.min), max: o.max };
                (own.min <= own.max && other.min <= other.max).then_some((own, other))
            }
            Cond::Gt => swapped(Cond::Lt),
            Cond::Ge => swapped(Cond::Le),
            Cond::Set => Some((self, o)),
            // Signed order is the unsigned one where nothing is negative.
            _ if self.max > top >> 1 || o.max > top >> 1 => Some((self, o)),
            Cond::Slt => self.assume(Cond::Lt, o, wide),
            Cond::Sle => self.assume(Cond::Le, o, wide),
            Cond::Sgt => swapped(Cond::Lt),
            Cond::Sge => swapped(Cond::Le),
        }
    }

    /// This one less that number, if the other is one; `None` if nothing is left.
    fn without(self, o: Self) -> Option<Self> {
        match o.constant() {
            Some(value) if self.constant() == Some(value) => None,
            Some(value) if self.min == value => Some(Range { min: value + 1, ..self }),
            Some(value) if self.max == value => Some(Range { max: value - 1, ..self }),
            _ => Some(self),
        }
    }
}

impl Value {
    /// What is known where two ways meet.
    pub(crate) fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(a.join(b)),
            (Value::Cookie(a, b), Value::Cookie(c, d)) => Value::Cookie(a.min(c), b.max(d)),
            (Value::Unset, _) | (_, Value::Unset) => Value::Unset,
            _ => Value::Mixed,
        }
    }

    pub(crate) fn is_pointer(self) -> bool {
        !matches!(self, Value::Unset | Value::Mixed | Value::Scalar(_))
    }

    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Value::Unset => "nothing",
            Value::Mixed => "one thing by one way and another by another",
            Value::Scalar(_) => "a number",
            Value::Context(_) => "a pointer to the context",
            Value::Cookie(..) => "a pointer to the cookie",
            Value::Stack(_) => "a pointer to the stack",
            Value::Packet(..) => "a pointer to the packet",
            Value::End => "the packet's end",
        }
    }
}

/// The condition that holds where this one does not. Bits have none.
pub(crate) fn otherwise(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Le => Cond::Gt,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Sgt => Cond::Sle,
        Cond::Sle => Cond::Sgt,
        Cond::Sge => Cond::Slt,
        Cond::Slt => Cond::Sge,
        Cond::Set => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{alu, holds};
    use proptest::prelude::*;

    const OPS: [AluOp; 13] = [
        AluOp::Add,
        AluOp::Sub,
        AluOp::Mul,
        AluOp::Div,
        AluOp::Or,
        AluOp::And,
        AluOp::Lsh,
        AluOp::Rsh,
        AluOp::Neg,
        AluOp::Mod,
        AluOp::Xor,
        AluOp::Mov,
        AluOp::Arsh,
    ];
    const CONDS: [Cond; 11] = [
        Cond::Eq,
        Cond::Ne,
        Cond::Set,
        Cond::Gt,
        Cond::Ge,
        Cond::Lt,
        Cond::Le,
        Cond::Sgt,
        Cond::Sge,
        Cond::Slt,
        Cond::Sle,
    ];

    /// Numbers near the places where something happens.
    fn number() -> impl Strategy<Value = u64> {
        let near =
            prop::sample::select(vec![0, 1 << 8, 1 << 16, 1 << 31, 1 << 32, 1 << 33, 1 << 63, u64::MAX]);
        prop_oneof![
            (near, -4_i64..5).prop_map(|(at, by): (u64, i64)| at.wrapping_add_signed(by)),
            any::<u64>(),
            0..100_u64
        ]
    }

    /// A range and a number in it.
    fn range() -> impl Strategy<Value = (Range, u64)> {
        (number(), number(), number(), any::<bool>()).prop_map(|(a, b, within, only)| {
            let range = if only { Range::only(a) } else { Range { min: a.min(b), max: a.max(b) } };
            let width = range.max - range.min;
            let value = if width == u64::MAX { within } else { range.min + within % (width + 1) };
            (range, value)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_result_is_in_its_range((a, x) in range(), (b, y) in range(), op in 0..OPS.len(), wide: bool) {
            let (said, is) = (a.alu(OPS[op], b, wide), alu(OPS[op], wide, x, y));
            prop_assert!(said.has(is), "{:?} wide {wide}: {x:#x} of {a:?}, {y:#x} of {b:?}: {is:#x} not in {said:?}", OPS[op]);
        }

        #[test]
        fn what_is_assumed_holds((a, x) in range(), (b, y) in range(), cond in 0..CONDS.len(), wide: bool) {
            let cond = CONDS[cond];
            let really = if holds(cond, wide, x, y) { Some(cond) } else { otherwise(cond) };
            if let Some(cond) = really {
                let assumed = a.assume(cond, b, wide);
                prop_assert!(assumed.is_some(), "{cond:?}: {x:#x} of {a:?}, {y:#x} of {b:?}");
                let (a, b) = assumed.unwrap();
                prop_assert!(a.has(x) && b.has(y), "{cond:?}: {x:#x} of {a:?}, {y:#x} of {b:?}");
            }
        }
    }

    #[test]
    fn ranges_are_as_narrow_as_programs_need() {
        let byte = Range::up_to(255);
        assert_eq!(byte.alu(AluOp::And, Range::only(0xf0), true), Range::up_to(0xf0));
        assert_eq!(byte.alu(AluOp::Rsh, Range::only(4), false), Range::up_to(15));
        assert_eq!(Range::up_to(15).alu(AluOp::Lsh, Range::only(2), true), Range::up_to(60));
        assert_eq!(
            Range { min: 5, max: 9 }.alu(AluOp::Add, Range::only(-5_i64 as u64), true),
            Range::up_to(4)
        );
        assert_eq!(
            Range::ANY.assume(Cond::Lt, Range::only(6), true),
            Some((Range::up_to(5), Range::only(6)))
        );
        assert_eq!(Range::only(6).assume(Cond::Ne, Range::only(6), true), None);
        assert_eq!(byte.assume(Cond::Gt, Range::only(255), true), None);
    }
}
