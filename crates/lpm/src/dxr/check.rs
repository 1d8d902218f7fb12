//! What the invariants promise, looked at entry by entry: for tests.

use super::Dxr;
use std::sync::atomic::Ordering;

impl Dxr {
    /// Checks that every lookup stays inside the tables and that every chunk starts with 0 and ascends. The error says what is wrong.
    ///
    /// # Errors
    /// The first fault found. Never while no patch is under way, unless the program is wrong.
    pub fn check(&self) -> Result<(), String> {
        let blocks = self.used_descs() >> self.layout.x;
        for (slot, number) in self.own.direct.iter().enumerate() {
            let number = usize::from(number.load(Ordering::Relaxed));
            if number >= blocks {
                return Err(format!("slot {slot} names block {number} of {blocks}"));
            }
        }
        // Blocks that no slot names are waiting for their next use, and may say anything.
        let mut linked = vec![self.layout.x == 0; blocks];
        self.own.direct.iter().for_each(|n| linked[usize::from(n.load(Ordering::Relaxed))] = true);
        for (i, desc) in self.descs().iter().enumerate().take(blocks << self.layout.x) {
            if linked[i >> self.layout.x] {
                let named = |what| format!("descriptor {i}: {what}");
                self.check_desc(desc.load(Ordering::Relaxed)).map_err(named)?;
            }
        }
        Ok(())
    }

    fn check_desc(&self, desc: u32) -> Result<(), String> {
        let Some(chunk) = self.split.chunk(desc) else {
            return Ok(());
        };
        let used = self.store.used_ranges.load(Ordering::Relaxed);
        let first = (chunk.base as usize) << self.split.unit_shift;
        let end = first + self.store.chunk_words(chunk);
        let Some(words) = self.store.ranges.get(first..end).filter(|_| end <= used) else {
            return Err(format!("chunk at words {first} to {end} of {used}"));
        };
        let word = |i: usize| words[i].load(Ordering::Relaxed);
        let start = |i: usize| match chunk.long {
            true => word(i * self.store.long_words()) >> 16,
            false => word(i / 2) >> (i % 2 * 16) & 0xff00,
        };
        let last = chunk.last as usize;
        // Equal starts: a chunk of one range, which is written twice.
        let ascends = (1..=last).all(|i| start(i - 1) < start(i)) || (last == 1 && start(1) == 0);
        if start(0) != 0 || !ascends || start(last) >> self.layout.rest() != 0 {
            return Err(format!("the chunk at word {first} does not start with 0 and ascend"));
        }
        Ok(())
    }
}
