//! Memory for answers, in chunks of a few sizes, as many of each as there are from the start (Tokusashi 2019, 3.2.5, Table 3.6).
//!
//! ```text
//!  64  |........|........|........|     free: 2, 0      hand -> 1      each chunk has an owner: the entry whose answer lies in it
//! 128  |................|................|
//! ```
//! An answer takes a chunk of the smallest size that holds it. Where that size has none left, the hand says whose chunk it gets: each in turn,
//! which is nearly the oldest.

/// A chunk: its size's number, and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    class: u8,
    index: u32,
}

/// Chunks of one size.
#[derive(Debug)]
struct Class {
    bytes: usize,
    memory: Box<[u8]>,
    free: Vec<u32>,
    owners: Box<[u32]>,
    hand: u32,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Slab {
    classes: Vec<Class>,
}

impl Slab {
    /// Of sizes in ascending order, with how many there are of each; the memory is taken now.
    pub(crate) fn new(sizes: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let class = |(bytes, count): (usize, usize)| Class {
            bytes,
            memory: vec![0; bytes * count].into(),
            free: (0..count as u32).rev().collect(),
            owners: vec![0; count].into(),
            hand: 0,
        };
        Slab { classes: sizes.into_iter().filter(|(_, count)| *count > 0).map(class).collect() }
    }

    /// The size that an answer of so many bytes takes, if any is large enough.
    pub(crate) fn class(&self, len: usize) -> Option<u8> {
        self.classes.iter().position(|class| len <= class.bytes).map(|class| class as u8)
    }

    /// A free chunk of a size.
    pub(crate) fn take(&mut self, class: u8) -> Option<Chunk> {
        let index = self.classes[usize::from(class)].free.pop()?;
        Some(Chunk { class, index })
    }

    /// Says whose a chunk is.
    pub(crate) fn own(&mut self, chunk: Chunk, owner: u32) {
        self.classes[usize::from(chunk.class)].owners[chunk.index as usize] = owner;
    }

    /// Whose chunk of a size is next. All of them are taken.
    pub(crate) fn victim(&mut self, class: u8) -> u32 {
        let class = &mut self.classes[usize::from(class)];
        let owner = class.owners[class.hand as usize];
        class.hand = (class.hand + 1) % class.owners.len() as u32;
        owner
    }

    pub(crate) fn free(&mut self, chunk: Chunk) {
        self.classes[usize::from(chunk.class)].free.push(chunk.index);
    }

    #[inline]
    pub(crate) fn bytes(&self, chunk: Chunk, len: usize) -> &[u8] {
        let class = &self.classes[usize::from(chunk.class)];
        &class.memory[chunk.index as usize * class.bytes..][..len]
    }

    pub(crate) fn write(&mut self, chunk: Chunk, bytes: &[u8]) {
        let class = &mut self.classes[usize::from(chunk.class)];
        class.memory[chunk.index as usize * class.bytes..][..bytes.len()].copy_from_slice(bytes);
    }
}
