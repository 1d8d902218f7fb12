//! Keys turned round for vectors.

use crate::key::{Key, WORDS};

/// Keys of a group.
pub(crate) const GROUP: usize = 32;

/// Words of a group's keys, word by word, each made when it is first asked for.
pub(crate) struct Turned {
    words: [[u64; GROUP]; WORDS],
    there: u8,
}

impl Turned {
    pub(crate) fn new() -> Self {
        Turned { words: [[0; GROUP]; WORDS], there: 0 }
    }

    /// A word of these keys, which are the same ones each time; 0 where there is no key.
    #[inline(always)]
    pub(crate) fn word(&mut self, word: usize, keys: &[Key]) -> &[u64; GROUP] {
        self.turn(word, keys);
        &self.words[word]
    }

    /// The same of two words.
    #[inline(always)]
    pub(crate) fn two(&mut self, words: [usize; 2], keys: &[Key]) -> [&[u64; GROUP]; 2] {
        words.iter().for_each(|&word| self.turn(word, keys));
        words.map(|word| &self.words[word])
    }

    #[inline(always)]
    fn turn(&mut self, word: usize, keys: &[Key]) {
        if self.there >> word & 1 == 0 {
            self.there |= 1 << word;
            self.words[word].iter_mut().zip(keys).for_each(|(turned, key)| *turned = key.0[word]);
        }
    }
}
