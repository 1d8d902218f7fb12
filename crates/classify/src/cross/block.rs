//! Eight rules of a list, side by side: two lines.

/// Rules of a block.
pub(super) const LANES: usize = 8;

/// No rule's number: behind all.
pub(super) const NO_RULE: u32 = u32::MAX;

/// A condition that no key meets: of places without a rule.
const NEVER: u8 = u8::MAX;

/// What a list has of a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The first source port, and in the lower half the first destination port.
    pub(super) first: u32,
    /// How many more there are of each.
    pub(super) span: u32,
    /// The number of its condition.
    pub(super) condition: u8,
}

impl Part {
    /// The first and the last destination port.
    pub(super) fn destinations(&self) -> [u16; 2] {
        let first = self.first as u16;
        [first, first + self.span as u16]
    }

    /// Every port; of sources alone, where the destinations are those of a service.
    pub(super) fn has_every_port(&self, served: bool) -> bool {
        self.span >> 16 == 0xffff && (served || self.span == u32::MAX)
    }
}

/// Some of a list's rules, the first match first.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
pub(super) struct Block {
    /// As [`Part`] has them.
    pub(super) first: [u32; LANES],
    pub(super) span: [u32; LANES],
    /// Rising; [`NO_RULE`] where there is none.
    pub(super) number: [u32; LANES],
    pub(super) condition: [u8; LANES],
    /// Whether the list ends here. Otherwise it goes on in the next block.
    pub(super) last: bool,
}

impl Block {
    /// Of no rules: a list of its own.
    pub(super) const EMPTY: Block = Block {
        first: [0; LANES],
        span: [0; LANES],
        number: [NO_RULE; LANES],
        condition: [NEVER; LANES],
        last: true,
    };

    /// The blocks of a list: one at least.
    pub(super) fn list(numbers: &[u32], parts: &[Option<Part>]) -> impl Iterator<Item = Block> {
        let blocks = numbers.len().div_ceil(LANES).max(1);
        (0..blocks).map(move |i| {
            let mut block = Block { last: i + 1 == blocks, ..Block::EMPTY };
            for (lane, &number) in numbers.iter().skip(i * LANES).take(LANES).enumerate() {
                let Some(part) = parts[number as usize] else { continue };
                block.first[lane] = part.first;
                block.span[lane] = part.span;
                block.number[lane] = number;
                block.condition[lane] = part.condition;
            }
            block
        })
    }

    /// The place of the first rule that a packet matches: its ports in one word, the conditions that it meets in another.
    #[inline(always)]
    pub(super) fn first_match(&self, ports: u32, met: u64) -> Option<usize> {
        (0..LANES).find(|&lane| {
            let inside = |shift: u32| {
                let [port, first, span] =
                    [ports, self.first[lane], self.span[lane]].map(|word| (word >> shift) as u16);
                port.wrapping_sub(first) <= span
            };
            let condition = met.checked_shr(self.condition[lane].into());
            condition.is_some_and(|met| met & 1 != 0) && inside(16) && inside(0)
        })
    }
}
