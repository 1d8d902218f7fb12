//! Building: the table is cut into parts by address, each of which is flattened, counted and encoded on whichever thread is
//! free; then the parts are put together in the order of their addresses.
//!
//! ```text
//! Rib --+-- part 0: flatten, count --+--> split --+-- part 0: encode --+--> absorb 0, 1, ... --> Store, Own
//!       +-- part 1: flatten, count --+            +-- part 1: encode --+
//! ```
//!
//! Chunks and blocks are numbered in the order in which addresses first need them, and putting parts together keeps that
//! order: the result does not depend on the number of threads. With one thread there is one part, encoded in its place.

use super::build::{Census, Range, choose_split, flatten, with_headroom};
use super::edit::{Edit, Scratch, Stop};
use super::store::{Own, Shape, Store, copy_own};
use super::{Dxr, DxrConfig, Kernel, Layout, Split};
use crate::fib::{BuildError, Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidemill_lookup::qsbr::Domain;

/// Parts per thread: prefixes are not spread evenly over the addresses.
const PARTS_PER_THREAD: usize = 4;

/// A table's ranges, ready to be encoded.
pub(super) struct Load {
    layout: Layout,
    kernel: Kernel,
    threads: usize,
    parts: Vec<Part>,
    pub(super) label_bits: u8,
    /// Without chunks for wide labels.
    census: Census,
}

struct Part {
    span: Prefix<u32>,
    ranges: Vec<Range>,
}

impl Load {
    /// Flattens and counts.
    pub(super) fn new(rib: &Rib<u32>, config: &DxrConfig) -> Result<Self, BuildError> {
        let layout = config.layout;
        let threads = config.threads.get();
        // Parts are not smaller than what a slot of the direct table covers.
        let parts = if threads == 1 { 1 } else { threads.min(64) * PARTS_PER_THREAD };
        let bits = parts.next_power_of_two().ilog2().min(layout.d.into()).min(8);
        let spans: Vec<_> =
            (0..1_u64 << bits).filter_map(|i| Prefix::new((i << (32 - bits)) as u32, bits as u8)).collect();
        let parts = each(threads, &spans, |&span| {
            let outer = rib.covering(span).map_or(Label::NONE, |(_, label)| label);
            let mut ranges = Vec::with_capacity(rib.len() / spans.len() * 3 / 2);
            flatten(span, outer, rib.inside(span), &mut ranges);
            Part { span, ranges }
        });
        let ranges = parts.iter().flat_map(|part| &part.ranges);
        let widest = ranges.map(|range| range.label).max().unwrap_or(0);
        let label_bits = label_bits(rib, widest, config.label_bits)?;
        let kernel = config.kernel.unwrap_or_else(Kernel::best).or_scalar();
        let count = |part: &Part| Census::new(layout, part.span, &part.ranges, label_bits);
        let census = each(threads, &parts, count).into_iter().sum();
        Ok(Load { layout, kernel, threads, parts, label_bits, census })
    }

    /// A structure with a store of its own, which has room for the table again, and for `room` units at least.
    pub(super) fn alone(self, room: u64, domain: &Domain) -> Result<Arc<Dxr>, BuildError> {
        let Load { layout, kernel, label_bits, .. } = self;
        let ranges = || self.parts.iter().flat_map(|part| &part.ranges);
        let with_wide = |inline| self.census.with_wide(ranges(), label_bits, inline);
        let (split, census) = choose_split(layout, room.max(1 << 10), self.census, with_wide)?;
        let units = census.units(split.unit_shift) as usize;
        let shape = Shape { layout, split, label_bits, blocks: 1 << layout.d, units };
        let (scratch, own) = Store::scratch(shape, 1 << layout.d)?;
        // No chunk is larger, and no label wider, than the census has seen, so this does not stop.
        if let Err(stop) = self.fill(&scratch, &own) {
            let what = Outgrown::from(stop).what;
            let advice = "this is a fault of the program: please report it".into();
            return Err(BuildError::TooLarge { structure: layout.to_string(), what, advice });
        }
        // To memory of the right size, all there, with room for updates.
        let used = |words: &AtomicUsize, shift: u32| (words.load(Ordering::Relaxed) >> shift) as u64;
        let units = with_headroom(used(&scratch.used_ranges, split.unit_shift), room.max(1 << 12));
        let blocks = match layout.x {
            0 => 0,
            x => with_headroom(used(&scratch.used_blocks, x.into()), 64).min(1 << 16),
        };
        let units = units.min(Shape::most_units(split)) as usize;
        let (mut store, tables) = Store::new(Shape { blocks: blocks as usize, units, ..shape }, domain)?;
        copy_own(&tables, &own);
        store.take(scratch);
        store.books().tables = 1;
        Ok(Arc::new(Dxr { layout, split, label_bits, kernel, own: tables, store: Arc::new(store) }))
    }

    /// A structure that shares a store with others, if the store has an encoding and room for it.
    pub(super) fn join(&self, store: &Arc<Store>) -> Result<Result<Arc<Dxr>, Stop>, BuildError> {
        let own = Own::new(self.layout)?;
        Ok(self.fill(store, &own).map(|()| {
            store.books().tables += 1;
            let Store { layout, split, label_bits, .. } = **store;
            Arc::new(Dxr { layout, split, label_bits, kernel: self.kernel, own, store: store.clone() })
        }))
    }

    /// Encodes everything into `store` and `own`, which is empty.
    fn fill(&self, store: &Store, own: &Own) -> Result<(), Stop> {
        let encoded = match self.parts.len() {
            1 => Vec::new(),
            _ => each(self.threads, &self.parts, |part| self.encode(part, store.split)),
        };
        let mut books = store.books();
        books.reclaim();
        let mut scratch = Scratch::default();
        let mut edit = Edit::build(store, own, 0, &mut books, &mut scratch, &());
        let result = match &self.parts[..] {
            [part] => edit.fill(part.span, &part.ranges),
            parts => parts.iter().zip(encoded).try_for_each(|(part, encoded)| match encoded {
                Some((from, tables)) => edit.absorb(&from, &tables, self.first_slot(part)),
                // No memory for a copy: here, then.
                None => edit.fill(part.span, &part.ranges),
            }),
        };
        edit.finish(result)
    }

    /// Encodes a part alone; `None` if there is no memory for that.
    fn encode(&self, part: &Part, split: Split) -> Option<(Store, Own)> {
        let Load { layout, label_bits, .. } = *self;
        let census = Census::new(layout, part.span, &part.ranges, label_bits);
        let census = census.with_wide(part.ranges.iter(), label_bits, split.values());
        let units = census.units(split.unit_shift) as usize;
        let slots = (1_usize << layout.d) >> part.span.len();
        let shape = Shape { layout, split, label_bits, blocks: slots, units };
        let (store, own) = Store::scratch(shape, slots).ok()?;
        let mut books = store.books();
        let mut scratch = Scratch::default();
        let mut edit = Edit::build(&store, &own, self.first_slot(part), &mut books, &mut scratch, &());
        let result = edit.fill(part.span, &part.ranges);
        edit.finish(result).ok()?;
        drop(books);
        Some((store, own))
    }

    fn first_slot(&self, part: &Part) -> usize {
        (u64::from(part.span.first()) >> (32 - self.layout.d)) as usize
    }
}

/// What `f` makes of each item, in their order, on at most `threads` threads with this one.
fn each<T: Sync, R: Send>(threads: usize, items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        std::iter::from_fn(|| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, f(item)))
        })
        .collect::<Vec<_>>()
    };
    let mut done = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads.min(items.len()))
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut done = work();
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The width of labels: as asked for, if all fit.
fn label_bits(rib: &Rib<u32>, widest: u32, asked: Option<u8>) -> Result<u8, BuildError> {
    match asked {
        None => Ok(if widest > 0xffff { 32 } else { 16 }),
        Some(bits @ (8 | 16 | 32)) if widest <= u32::MAX >> (32 - bits) => Ok(bits),
        Some(width_bits @ (8 | 16)) => {
            let culprit = rib.iter().find(|(_, label)| label.0 == widest);
            let prefix = culprit.map_or_else(String::new, |(prefix, _)| prefix.to_string());
            Err(BuildError::LabelTooWide { prefix, label: widest, width_bits })
        }
        Some(bits) => Err(BuildError::Parameter {
            parameter: "label_bits",
            value: bits.into(),
            expected: "labels are 8, 16 or 32 bits wide".into(),
        }),
    }
}
