//! A DXR as a table image, and back.
//!
//! Sections: `params` (words: D, X, C, unit shift), `direct` (16-bit block numbers; empty in `DxR`), `descs` and `ranges`
//! (words). The tables hold indices only, so they are stored as they are.

use super::store::{Shape, Store};
use super::{Dxr, Kernel, Layout, MAX_RANGE_WORDS, Split};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::image::{Image, ImageBuilder, ImageError};
use tidemill_lookup::qsbr::Domain;

/// What an image of a DXR calls itself.
pub const KIND: &str = "dxr";
const VERSION: u32 = 1;

impl Dxr {
    /// The structure as an image. For the control side, while no patch is under way.
    pub fn to_image(&self) -> Vec<u8> {
        let Dxr { layout, split, .. } = self;
        let params = [layout.d.into(), layout.x.into(), split.count_bits, split.unit_shift];
        let words = |table: &[AtomicU32], used: usize| -> Vec<u32> {
            table.iter().take(used).map(|word| word.load(Ordering::Relaxed)).collect()
        };
        ImageBuilder::new(KIND, VERSION, self.label_bits)
            .section_u32("params", params.into_iter())
            .section_u16("direct", self.own.direct.iter().map(|n| n.load(Ordering::Acquire)))
            .section_u32("descs", words(self.descs(), self.used_descs()).into_iter())
            .section_u32(
                "ranges",
                words(&self.store.ranges, self.store.used_ranges.load(Ordering::Relaxed)).into_iter(),
            )
            .finish()
    }

    /// Opens an image: copies its tables and checks them, so that no lookup can leave them. The result is for readers; a
    /// writer needs the RIB. `kernel`: as in [`DxrConfig`](super::DxrConfig).
    ///
    /// # Errors
    /// [`ImageError`], with the offset of what is wrong.
    pub fn from_image(bytes: &[u8], kernel: Option<Kernel>) -> Result<Dxr, ImageError> {
        let image = Image::parse(bytes)?;
        image.expect(KIND, VERSION)?;
        let params: Vec<u32> = image.section_u32("params")?.collect();
        let [d, x, count_bits, unit_shift] = params[..] else {
            return Err(image.content("params", 0, format!("{} words: there are 4", params.len())));
        };
        let layout = u8::try_from(d).ok().zip(u8::try_from(x).ok()).and_then(|(d, x)| Layout::new(d, x).ok());
        let Some(layout) = layout else {
            return Err(image.content("params", 0, format!("D = {d}, X = {x} is not a layout")));
        };
        if !(1..=layout.rest()).contains(&count_bits) || unit_shift > 16 {
            let what = format!(
                "a split with {count_bits} count bits and units of 2^{unit_shift} words is not possible"
            );
            return Err(image.content("params", 8, what));
        }
        let direct = image.section_u16("direct")?;
        let (descs, ranges) = (image.section_u32("descs")?, image.section_u32("ranges")?);
        let expected = if x > 0 { 1 << d } else { 0 };
        if direct.len() != expected {
            let what = format!("{} entries: {layout} has {expected}", direct.len());
            return Err(image.content("direct", 0, what));
        }
        if (layout.x == 0 && descs.len() != layout.chunks()) || descs.len() % (1 << layout.x) != 0 {
            let what = format!("{} descriptors do not make a {layout}", descs.len());
            return Err(image.content("descs", 0, what));
        }
        if ranges.len() > MAX_RANGE_WORDS {
            let what = format!("{} words: at most {MAX_RANGE_WORDS} are possible", ranges.len());
            return Err(image.content("ranges", 0, what));
        }
        let split = Split { count_bits, unit_shift };
        let label_bits = image.label_bits();
        let (used_descs, used_ranges) = (descs.len(), ranges.len());
        let units = used_ranges.div_ceil(1 << unit_shift);
        let shape = Shape { layout, split, label_bits, blocks: used_descs >> layout.x, units };
        // No reader is waited for: nothing is ever changed.
        let (mut store, own) = Store::new(shape, &Domain::new())
            .map_err(|error| image.content("ranges", 0, format!("no memory for the table: {error}")))?;
        for (cell, value) in own.direct.iter().zip(direct) {
            cell.store(value, Ordering::Relaxed);
        }
        fill(if layout.x == 0 { &own.descs } else { &store.blocks }, descs);
        fill(&store.ranges, ranges);
        store.used_blocks = AtomicUsize::new(if layout.x == 0 { 0 } else { used_descs });
        store.used_ranges = AtomicUsize::new(used_ranges);
        let kernel = kernel.unwrap_or_else(Kernel::best).or_scalar();
        let dxr = Dxr { layout, split, label_bits, kernel, own, store: Arc::new(store) };
        dxr.check().map_err(|fault| image.content(fault.table, fault.at_bytes, fault.what))?;
        Ok(dxr)
    }

    /// Checks that every lookup stays inside the tables and that every chunk starts with 0 and ascends.
    ///
    /// # Errors
    /// The first fault found. Never while no patch is under way, unless the program is wrong.
    pub fn check(&self) -> Result<(), Fault> {
        let blocks = self.used_descs() >> self.layout.x;
        for (i, number) in self.own.direct.iter().enumerate() {
            let number = usize::from(number.load(Ordering::Relaxed));
            if number >= blocks {
                let what = format!("block {number} of {blocks}");
                return Err(Fault { table: "direct", at_bytes: i * 2, what });
            }
        }
        // Blocks that no slot names are waiting for their next use, and may say anything.
        let mut linked = vec![self.layout.x == 0; blocks];
        self.own.direct.iter().for_each(|n| linked[usize::from(n.load(Ordering::Relaxed))] = true);
        for (i, desc) in self.descs().iter().enumerate().take(blocks << self.layout.x) {
            if linked[i >> self.layout.x] {
                self.check_desc(desc.load(Ordering::Relaxed)).map_err(|what| Fault {
                    table: "descs",
                    at_bytes: i * 4,
                    what,
                })?;
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

/// What [`Dxr::check`] found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}, byte {at_bytes}: {what}")]
pub struct Fault {
    /// The table: `direct`, `descs` or `ranges`.
    pub table: &'static str,
    /// Offset in the table.
    pub at_bytes: usize,
    /// What is wrong.
    pub what: String,
}

fn fill(table: &[AtomicU32], words: impl Iterator<Item = u32>) {
    for (cell, word) in table.iter().zip(words) {
        cell.store(word, Ordering::Relaxed);
    }
}
