//! The trie as a [table image](tidemill_lookup::image): cells are copied in the order of a walk from the root, so that an image has no
//! gaps, whatever patches have left behind. A loaded one is walked again: every pointer is checked before a lookup uses it.
//!
//! Kind `rangetrie`, version 1, sections `params` (address family 4 or 6, root bits) and `words` (the root, then cells).

use super::{CELL, Entry, LINE_BITS, LINE_HEAD, Node, RangeTrie, STARTS, Writer};
use crate::fib::BuildError;
use crate::prefix::Address;
use std::sync::atomic::Ordering;
use tidemill_lookup::image::{Image, ImageBuilder, ImageError};
use tidemill_lookup::qsbr::Domain;

const KIND: &str = "rangetrie";
const VERSION: u32 = 1;

/// Why an image does not become a trie.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no such image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is no memory.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl<A: Address> RangeTrie<A> {
    /// The trie's bytes. For the control side, while no patch is under way; `None` if one was.
    pub fn to_image(&self) -> Option<Vec<u8>> {
        let mut words = vec![0; 1 << self.root_bits];
        self.copy(0, 1 << self.root_bits, 0, self.root_bits, &mut words)?;
        let params = [u32::from(A::FAMILY), u32::from(self.root_bits)];
        let image = ImageBuilder::new(KIND, VERSION, 32);
        Some(image.section_u32("params", params.into_iter()).section_u32("words", words.into_iter()).finish())
    }

    /// Copies the `count` entries at `from`, whose nodes lie at `depth`, to `to`, and what is below them behind all.
    fn copy(&self, from: usize, count: usize, to: usize, depth: u8, words: &mut Vec<u32>) -> Option<()> {
        for i in 0..count {
            let entry = Entry(self.cells.get(from + i)?.load(Ordering::Acquire));
            // The free places of a line repeat its last entry.
            let repeats = i > 0 && self.cells[from + i - 1].load(Ordering::Acquire) == entry.0;
            words[to + i] = match entry.node() {
                None => entry.0,
                Some(_) if repeats => words[to + i - 1],
                Some((node, cell)) => {
                    let (first, new) = (cell as usize * CELL, words.len());
                    words.resize(new + node.cells() as usize * CELL, 0);
                    let below = depth.checked_add(node.bits()).filter(|_| depth < A::BITS)?;
                    let head = if node == Node::Line { LINE_HEAD } else { 0 };
                    for word in 0..head {
                        words[new + word] = self.cells.get(first + word)?.load(Ordering::Acquire);
                    }
                    let count = node.cells() as usize * CELL - head;
                    self.copy(first + head, count, new + head, below, words)?;
                    Entry::pointer(node, (new / CELL) as u32, depth).0
                }
            };
        }
        Some(())
    }
}

impl<A: Address> Writer<A> {
    /// A trie from an image, ready for patches - from the RIB that the image was made of.
    ///
    /// # Errors
    /// Bytes that are no image of a trie of this family (with the place), or no memory.
    pub fn from_image(bytes: &[u8], domain: &Domain) -> Result<Self, LoadError> {
        let image = Image::parse(bytes)?;
        image.expect(KIND, VERSION)?;
        let params: Vec<u32> = image.section_u32("params")?.collect();
        let root_bits = match params[..] {
            [family, bits] if family == u32::from(A::FAMILY) => {
                RangeTrie::<A>::ROOT_BITS.into_iter().find(|&known| u32::from(known) == bits).ok_or_else(
                    || image.content("params", 4, format!("{bits} root bits: 12, 16, 20 or 24 are possible")),
                )?
            }
            [family, _] => {
                let what = format!("the table is for IPv{family}, not for IPv{}", A::FAMILY);
                return Err(image.content("params", 0, what).into());
            }
            _ => return Err(image.content("params", 0, "two numbers are expected").into()),
        };
        let words: Vec<u32> = image.section_u32("words")?.collect();
        if words.len() < 1 << root_bits
            || !words.len().is_multiple_of(CELL)
            || words.len() / CELL > Entry::CELLS_MAX
        {
            let what = format!("{} words are not a root of 2^{root_bits} words and whole cells", words.len());
            return Err(image.content("words", 0, what).into());
        }
        let mut check = Check { words: &words, seen: vec![false; words.len() / CELL], width_bits: A::BITS };
        check.seen[..(1 << root_bits) / CELL].fill(true);
        let fault = |(word, what): (usize, &str)| image.content("words", 4 * word, what);
        for word in 0..1 << root_bits {
            check.entry(word, root_bits).map_err(fault)?;
        }
        if let Some(cell) = check.seen.iter().position(|seen| !seen) {
            return Err(fault((cell * CELL, "nothing points to this cell")).into());
        }
        Ok(Self::from_words(&words, root_bits, domain)?)
    }
}

/// A walk that trusts nothing. Faults are told with their word.
struct Check<'a> {
    words: &'a [u32],
    seen: Vec<bool>,
    width_bits: u8,
}

type Fault = (usize, &'static str);

impl Check<'_> {
    /// The entry at `word`, which stands for a region with `depth` bits fixed. Every node below makes the depth grow by 4 at
    /// least, and no cell is visited twice: this ends.
    fn entry(&mut self, word: usize, depth: u8) -> Result<(), Fault> {
        let entry = Entry(self.words[word]);
        let Some((node, cell)) = entry.node() else { return Ok(()) };
        let fits = match node {
            Node::Line => depth < self.width_bits,
            Node::Block(bits) => depth + bits <= self.width_bits,
        };
        let known = matches!(node, Node::Line | Node::Block(4 | 8));
        if !fits || !known || Entry::pointer(node, cell, depth) != entry {
            return Err((word, "a pointer that does not belong at its depth"));
        }
        let cells = cell as usize..cell as usize + node.cells() as usize;
        let Some(seen) = self.seen.get_mut(cells.clone()) else {
            return Err((word, "a pointer that leads outside the table"));
        };
        if seen.contains(&true) {
            return Err((word, "a pointer to a cell that another one points to"));
        }
        seen.fill(true);
        let first = cells.start * CELL;
        let below = depth + node.bits();
        match node {
            Node::Line => self.line(first, below),
            Node::Block(bits) => (first..first + (1 << bits)).try_for_each(|word| self.entry(word, below)),
        }
    }

    fn line(&mut self, first: usize, depth: u8) -> Result<(), Fault> {
        let mut previous = 0;
        for i in 0..=STARTS {
            let at = first + LINE_HEAD + i;
            let start =
                if i == 0 { 0 } else { (self.words[first + (i - 1) / 2] >> (16 * ((i - 1) % 2))) as u16 };
            if i > 0 && start == u16::MAX && self.words[at] == self.words[at - 1] {
                previous = start;
                continue; // a free place
            }
            if i > 0 && start <= previous {
                return Err((first, "the starts of a line do not rise"));
            }
            previous = start;
            let next =
                if i == STARTS { None } else { Some((self.words[first + i / 2] >> (16 * (i % 2))) as u16) };
            let one_slot = start == u16::MAX || next == start.checked_add(1);
            let may_point = one_slot && depth < self.width_bits;
            if !may_point && !Entry(self.words[at]).is_leaf() {
                return Err((at, "a pointer for more than one slot of a line"));
            }
            self.entry(at, depth)?;
        }
        Ok(())
    }
}

const _: () = assert!(LINE_BITS == 16, "starts are halfwords");
