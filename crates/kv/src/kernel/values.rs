//! `kv_values`: a set of four entries for each hash. The daemon writes an entry while programs read it: its version is odd meanwhile.
//! `kv_tags`: a word for each set, 16 bits of each entry's hash: what is not there costs a miss one cache line, instead of one of each entry.

use super::ask::Answer;
use super::layout::{self, MAX_BLOB, PENDING, WAYS, entry};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tidemill_bpf::Mapped;

/// All entries.
#[derive(Debug)]
pub(super) struct Values {
    map: Mapped,
    tags: Mapped,
    sets: u64,
}

/// Under what a value is true: read before memcached was asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) hash: u64,
    pub(super) slot: usize,
    /// The slot's word; nothing is pending in it.
    pub(super) word: u64,
    pub(super) epoch: u64,
    /// Nanoseconds, `CLOCK_MONOTONIC`.
    pub(super) asked_ns: u64,
}

/// A key that is served, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hot {
    /// The key.
    pub key: Vec<u8>,
    /// Hits since it was admitted, halved at times.
    pub hits: u64,
    /// Bytes of its value.
    pub length: usize,
}

impl Values {
    pub(super) fn new(map: Mapped, tags: Mapped, sets: u64) -> Self {
        Values { map, tags, sets }
    }

    fn entry(&self, number: usize) -> &[AtomicU64] {
        &self.map.words()[number * entry::WORDS..][..entry::WORDS]
    }

    fn ways(&self, hash: u64) -> std::ops::Range<usize> {
        let first = (hash >> 32 & (self.sets - 1)) as usize * WAYS;
        first..first + WAYS
    }

    /// The bytes that answer a get.
    pub(super) fn blob(key: &[u8], answer: &Answer) -> Option<Vec<u8>> {
        let mut blob = b"VALUE ".to_vec();
        blob.extend_from_slice(key);
        blob.extend_from_slice(format!(" {} {}\r\n", answer.flags, answer.value.len()).as_bytes());
        blob.extend_from_slice(&answer.value);
        blob.extend_from_slice(b"\r\n");
        (blob.len() <= MAX_BLOB).then_some(blob)
    }

    /// Puts a value where its key belongs: over its older self, what is void, or what has the fewest hits. Says whether it fits.
    pub(super) fn store(
        &self,
        key: &[u8],
        answer: &Answer,
        token: &Token,
        expires_ns: u64,
        is_void: impl Fn(u64, u64, u64) -> bool,
    ) -> bool {
        let Some(blob) = Self::blob(key, answer) else { return false };
        let load = |number: usize, word: usize| self.entry(number)[word].load(Ordering::Relaxed);
        let rank = |number: usize| {
            if load(number, entry::HASH) == token.hash {
                return 0;
            }
            if is_void(load(number, entry::HASH), load(number, entry::WORD), load(number, entry::EPOCH)) {
                return 1;
            }
            load(number, entry::HITS).saturating_add(2)
        };
        let Some(number) = self.ways(token.hash).min_by_key(|number| rank(*number)) else { return false };
        for other in self.ways(token.hash) {
            // What was hot long ago ages.
            let hits = &self.entry(other)[entry::HITS];
            hits.store(hits.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
        let words = self.entry(number);
        let odd = words[entry::VERSION].load(Ordering::Relaxed) | 1;
        words[entry::VERSION].store(odd, Ordering::Relaxed);
        // The version is odd before anything else changes.
        fence(Ordering::SeqCst);
        let lengths = [key.len() as u16, blob.len() as u16, answer.value.len() as u16, layout::sum(&blob)];
        let lengths = lengths.iter().rev().fold(0_u64, |word, length| word << 16 | u64::from(*length));
        let head = [
            (entry::HASH, token.hash),
            (entry::WORD, token.word & !PENDING),
            (entry::EPOCH, token.epoch),
            (entry::EXPIRES, expires_ns),
            (entry::HITS, 0),
            (entry::LENGTHS, lengths),
            (entry::FLAGS, u64::from(answer.flags)),
        ];
        head.iter().for_each(|(word, value)| words[*word].store(*value, Ordering::Relaxed));
        for (word, bytes) in words[entry::BLOB..].iter().zip(blob.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(eight), Ordering::Relaxed);
        }
        words[entry::VERSION].store(odd.wrapping_add(1), Ordering::Release);
        self.tag(number, token.hash);
        true
    }

    /// Has gets that find this tag look at the entry. One that sees an older tag misses, or looks in vain.
    fn tag(&self, number: usize, hash: u64) {
        let (word, shift) = (&self.tags.words()[number / WAYS], number % WAYS * 16);
        let others = word.load(Ordering::Relaxed) & !(0xffff << shift);
        // Nobody else writes it.
        word.store(others | (hash >> 16 & 0xffff) << shift, Ordering::Release);
    }

    /// Halves the hits of one of `parts` of all entries, from `from` on; gives where to go on.
    pub(super) fn age(&self, from: usize, parts: usize) -> usize {
        let all = self.sets as usize * WAYS;
        let upto = (from + all.div_ceil(parts.max(1))).min(all);
        for number in from..upto {
            let hits = &self.entry(number)[entry::HITS];
            let had = hits.load(Ordering::Relaxed);
            if had > 0 {
                // A hit that is counted meanwhile may be lost.
                hits.store(had / 2, Ordering::Relaxed);
            }
        }
        if upto == all { 0 } else { upto }
    }

    /// Entries that pass `is_true`, most hits first.
    pub(super) fn hot(
        &self,
        limit: usize,
        is_true: impl Fn(u64, u64, u64, u64) -> bool,
    ) -> (usize, Vec<Hot>) {
        let mut hot = Vec::new();
        for number in 0..self.sets as usize * WAYS {
            let words = self.entry(number);
            let load = |word: usize| words[word].load(Ordering::Relaxed);
            let version = words[entry::VERSION].load(Ordering::Acquire);
            if version == 0 || version & 1 == 1 {
                continue;
            }
            if !is_true(load(entry::HASH), load(entry::WORD), load(entry::EPOCH), load(entry::EXPIRES)) {
                continue;
            }
            let lengths = load(entry::LENGTHS);
            let (key, length) = (lengths as u16 as usize, (lengths >> 32) as u16 as usize);
            let blob: Vec<u8> = words[entry::BLOB..][..32 + 1]
                .iter()
                .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
                .collect();
            fence(Ordering::SeqCst);
            if load(entry::VERSION) == version
                && let Some(key) = blob.get(6..6 + key)
            {
                hot.push(Hot { key: key.to_vec(), hits: load(entry::HITS), length });
            }
        }
        let count = hot.len();
        hot.sort_by(|a, b| b.hits.cmp(&a.hits).then_with(|| a.key.cmp(&b.key)));
        hot.truncate(limit);
        (count, hot)
    }
}
