//! Keys turned round for vectors.

use crate::key::{Key, WORDS};
use tidemill_lookup::mem::OnLines;

/// Keys of a group.
pub(crate) const GROUP: usize = 32;

/// Words of a group's keys, word by word, each made when it is first asked for.
pub(crate) struct Turned {
    words: OnLines<[[u64; GROUP]; WORDS]>,
    there: u8,
}

impl Turned {
    pub(crate) fn new() -> Self {
        Turned { words: OnLines([[0; GROUP]; WORDS]), there: 0 }
    }

    /// Other keys come: of those before none is there.
    pub(crate) fn clear(&mut self) {
        self.there = 0;
    }

    /// A word of these keys, which are the same ones each time. Where there is no key there is anything.
    #[inline(always)]
    pub(crate) fn word(&mut self, word: usize, keys: &[Key]) -> &[u64; GROUP] {
        self.turn(word, keys);
        &self.words[word]
    }

    /// The same of two words.
    #[inline(always)]
    pub(crate) fn two(&mut self, words: [usize; 2], keys: &[Key]) -> [&[u64; GROUP]; 2] {
        let [a, b] = words;
        self.turn(a, keys);
        self.turn(b, keys);
        [&self.words[a], &self.words[b]]
    }

    #[inline(always)]
    fn turn(&mut self, word: usize, keys: &[Key]) {
        if self.there >> word & 1 == 0 {
            self.there |= 1 << word;
            self.words[word].iter_mut().zip(keys).for_each(|(turned, key)| *turned = key.0[word]);
        }
    }
}
