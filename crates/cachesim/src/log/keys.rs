//! Numbers for keys, in order of appearance.

use crate::Key;
use foldhash::fast::FixedState;
use std::collections::HashMap;
use tidemill_lookup::hash::{crc32, lookup3};

/// What is known of a key. The hashes are of its text, or of its 8 bytes, little-endian, if it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyInfo {
    /// Ethernet's CRC-32.
    pub crc32: u32,
    /// lookup3 with seed 0.
    pub lookup3: u32,
    /// How long the key is, bytes; 8 for a number.
    pub key_bytes: u32,
}

impl KeyInfo {
    /// Of a key that is a number.
    pub fn number(id: u64, key_bytes: u32) -> Self {
        let bytes = id.to_le_bytes();
        KeyInfo { crc32: crc32(&bytes), lookup3: lookup3(&bytes, 0), key_bytes }
    }
}

/// The keys of one log: all numbers, or all texts.
#[derive(Default)]
pub(crate) struct Keys {
    infos: Vec<KeyInfo>,
    numbers: HashMap<u64, Key, FixedState>,
    texts: HashMap<Box<[u8]>, Key, FixedState>,
}

impl Keys {
    /// `None`: there are too many.
    pub(crate) fn number(&mut self, id: u64) -> Option<Key> {
        if let Some(&key) = self.numbers.get(&id) {
            return Some(key);
        }
        let key = self.add(KeyInfo::number(id, 8))?;
        self.numbers.insert(id, key);
        Some(key)
    }

    /// `None`: there are too many.
    pub(crate) fn text(&mut self, text: &[u8], key_bytes: u32) -> Option<Key> {
        if let Some(&key) = self.texts.get(text) {
            return Some(key);
        }
        let key = self.add(KeyInfo { crc32: crc32(text), lookup3: lookup3(text, 0), key_bytes })?;
        self.texts.insert(text.into(), key);
        Some(key)
    }

    fn add(&mut self, info: KeyInfo) -> Option<Key> {
        let key = Key::try_from(self.infos.len()).ok().filter(|&key| key < Key::MAX - 1)?;
        self.infos.push(info);
        Some(key)
    }

    pub(crate) fn finish(self) -> Vec<KeyInfo> {
        self.infos
    }
}
