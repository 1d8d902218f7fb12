//! Eight rules of a list, side by side: two lines.

use std::io;
use tidemill_lookup::mem::{Arena, Table};
use tidemill_lookup::prefetch::prefetch_read;
use zerocopy::{FromBytes, Immutable, IntoBytes};

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

/// Words of a block.
pub(super) const BLOCK_WORDS: usize = 32;

/// Some of a list's rules, the first match first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Block {
    /// As [`Part`] has them.
    pub(super) first: [u32; LANES],
    pub(super) span: [u32; LANES],
    /// Rising; [`NO_RULE`] where there is none.
    pub(super) number: [u32; LANES],
    pub(super) condition: [u8; LANES],
    /// Not 0: the list ends here. Otherwise it goes on in the next block.
    last: u8,
    rest: [u8; 23],
}

/// Blocks of all lists.
pub(super) struct Blocks(Table<u32>);

impl Blocks {
    pub(super) fn bytes_for(blocks: usize) -> usize {
        Arena::bytes_for::<u32>(blocks * BLOCK_WORDS)
    }

    /// Of one list after the other.
    ///
    /// # Errors
    /// There is no room in the arena.
    pub(super) fn new(arena: &mut Arena, blocks: &[Block]) -> io::Result<Self> {
        let mut words = arena.table(blocks.len() * BLOCK_WORDS)?;
        for (words, block) in words.as_chunks_mut::<BLOCK_WORDS>().0.iter_mut().zip(blocks) {
            *words = zerocopy::transmute!(*block);
        }
        Ok(Blocks(words))
    }

    #[inline(always)]
    pub(super) fn block(&self, at: usize) -> &Block {
        zerocopy::transmute_ref!(&self.0.as_chunks::<BLOCK_WORDS>().0[at])
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, at: u32) {
        let block = self.0.as_ptr().wrapping_add(at as usize * BLOCK_WORDS);
        prefetch_read(block);
        prefetch_read(block.wrapping_add(BLOCK_WORDS / 2));
    }

    pub(super) fn bytes(&self) -> usize {
        4 * self.0.len()
    }
}

impl Block {
    /// Of no rules: a list of its own.
    pub(super) const EMPTY: Block = Block {
        first: [0; LANES],
        span: [0; LANES],
        number: [NO_RULE; LANES],
        condition: [NEVER; LANES],
        last: 1,
        rest: [0; 23],
    };

    #[inline(always)]
    pub(super) fn is_last(&self) -> bool {
        self.last != 0
    }

    /// The blocks of a list: one at least.
    pub(super) fn list(numbers: &[u32], parts: &[Option<Part>]) -> impl Iterator<Item = Block> {
        let blocks = numbers.len().div_ceil(LANES).max(1);
        (0..blocks).map(move |i| {
            let mut block = Block { last: u8::from(i + 1 == blocks), ..Block::EMPTY };
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
