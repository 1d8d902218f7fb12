//! One mask's hash table: chains of entries, the rule that wins first.
//!
//! ```text
//! head    | filter: which of 32 hash bits occur in the chain | number of the first entry + 1, 0: none |     8 bytes
//! entry   | rank | ports | next + 1 | values of n words | masks of n words |                      a line while n <= 2
//! ```
//!
//! An entry has the words only that some rule of the table asks about: two for IPv4 5-tuples, so that a hit is one line of heads and one
//! entry, and a miss the line of heads alone (but for one case in 32 for each entry of the chain). The table's mask may be narrower than its rules'
//! masks: entries compare their own.

use crate::key::{Field, IPV4, IPV6, Key, Mask, WORDS};
use crate::rule::{Match, PortRange, Rank};
use std::collections::BTreeSet;
use tidemill_lookup::prefetch::prefetch_read;

/// Words before an entry's values.
const HEADER: usize = 3;

/// What the bits of a key are multiplied with, word by word, and what their hash is in the end.
pub(super) const FIRST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
pub(super) const LAST_FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
/// The bits of a hash that choose the bit of the filter: from the middle, where the head's number is not.
pub(super) const FILTER_SHIFT: u32 = 20;
pub(super) const FILTER_BITS: u64 = 31;

/// Heads of an empty table; a power of two.
const FEWEST_HEADS: usize = 4;

/// A cache line of an entry.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Which words of a key, a short list.
#[derive(Clone, Copy, Default)]
pub(super) struct WordList {
    index: [u8; WORDS],
    len: u8,
}

impl WordList {
    fn of(mask: &Mask) -> Self {
        let mut list = WordList::default();
        for i in (0..WORDS).filter(|&i| mask.0[i] != 0) {
            list.index[usize::from(list.len)] = i as u8;
            list.len += 1;
        }
        list
    }

    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.index[..usize::from(self.len)].iter().map(|&i| usize::from(i) % WORDS)
    }
}

/// How many rules of a family have which prefix length, for one field.
#[derive(Clone, Default)]
pub(super) struct Lengths {
    counts: Vec<(u32, u32)>,
    /// Rules whose mask of the field is no prefix.
    odd: u32,
}

impl Lengths {
    fn change(&mut self, length: Option<u32>, more: bool) {
        let count = match length {
            None => &mut self.odd,
            Some(length) => {
                let at = self.counts.partition_point(|&(other, _)| other < length);
                if self.counts.get(at).is_none_or(|&(other, _)| other != length) {
                    self.counts.insert(at, (length, 0));
                }
                &mut self.counts[at].1
            }
        };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        self.counts.retain(|&(_, count)| count > 0);
    }

    /// The prefix lengths of all rules of the family, rising; `None` if there are others.
    pub(super) fn all(&self) -> Option<impl Iterator<Item = u32>> {
        (self.odd == 0).then(|| self.counts.iter().map(|&(length, _)| length))
    }
}

/// The rules of one family in a table.
#[derive(Clone, Default)]
pub(super) struct Family {
    pub(super) rules: u32,
    /// Of each field in [`FAMILIES`].
    pub(super) lengths: [Lengths; PREFIXED],
}

/// Fields of a family whose prefixes are known.
pub(super) const PREFIXED: usize = 4;

/// The families that have addresses, by ethertype: source and destination, and the ports.
pub(super) const FAMILIES: [(u16, [Field; PREFIXED]); 2] = [
    (IPV4, [Field::Ipv4Source, Field::Ipv4Destination, Field::SourcePort, Field::DestinationPort]),
    (IPV6, [Field::Ipv6Source, Field::Ipv6Destination, Field::SourcePort, Field::DestinationPort]),
];

/// Fields of few values, one of whose bits tells much. Of a MAC address each packet would differ in another bit, and have a mask of its own.
const FEW: [Field; 5] = [Field::Protocol, Field::InPort, Field::Vlan, Field::Fragment, Field::Metadata];

/// The family that a match or a packet is of, by number in [`FAMILIES`].
pub(super) fn family(value: &Key, mask: &Mask) -> Option<usize> {
    let known = mask.get(Field::EtherType) == 0xffff;
    let ethertype = value.get(Field::EtherType);
    FAMILIES.iter().position(|&(family, _)| known && u128::from(family) == ethertype)
}

/// The table of one mask.
#[derive(Clone)]
pub(super) struct Table {
    mask: Mask,
    hashed: WordList,
    /// Words that entries have.
    words: WordList,
    lines: usize,
    heads: Vec<u64>,
    shift: u32,
    entries: Vec<Line>,
    free: Vec<u32>,
    ranks: BTreeSet<Rank>,
    families: [Family; 2],
    /// Bits of [`FEW`] that all its rules ask for alike, and their values; fewer than that once rules have gone.
    agreed: (Mask, Key),
}

/// What a probe has found out about a head: where to go on.
#[derive(Clone, Copy)]
pub(super) struct First(u32);

impl First {
    /// Nothing to look at.
    pub(super) const NONE: First = First(0);

    /// Where a head leads.
    #[inline(always)]
    pub(super) fn of(head: u64) -> Self {
        First(head as u32)
    }
}

impl Table {
    /// An empty table. All its rules' masks contain `mask`.
    pub(super) fn new(mask: Mask) -> Self {
        let hashed = WordList::of(&mask);
        let mut table = Table {
            mask,
            hashed,
            words: hashed,
            lines: 1,
            heads: vec![0; FEWEST_HEADS],
            shift: 64 - FEWEST_HEADS.ilog2(),
            entries: Vec::new(),
            free: Vec::new(),
            ranks: BTreeSet::new(),
            families: Default::default(),
            agreed: (Mask::NONE, Key::default()),
        };
        table.lines = table.lines_of(hashed);
        table
    }

    fn lines_of(&self, words: WordList) -> usize {
        (HEADER + 2 * usize::from(words.len)).div_ceil(8)
    }

    pub(super) fn mask(&self) -> &Mask {
        &self.mask
    }

    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The rank of its first rule.
    pub(super) fn best(&self) -> Rank {
        self.ranks.first().copied().unwrap_or(Rank::NONE)
    }

    pub(super) fn family(&self, number: usize) -> &Family {
        &self.families[number]
    }

    /// Bits in which all its rules agree, and their values: a key that differs in one has no rule here.
    pub(super) fn agreed(&self) -> (&Mask, &Key) {
        (&self.agreed.0, &self.agreed.1)
    }

    pub(super) fn bytes(&self) -> usize {
        self.heads.capacity() * 8 + self.entries.capacity() * 64 + self.free.capacity() * 4
    }

    /// The hash of the bits that the mask names. Not keyed: how long chains are is up to the rules, and whoever sends packets does not
    /// make rules.
    #[inline(always)]
    pub(super) fn hash(&self, key: &Key) -> u64 {
        let mut hash = 0_u64;
        for i in self.hashed.iter() {
            hash = (hash ^ (key.0[i] & self.mask.0[i])).wrapping_mul(FIRST_FACTOR);
            hash ^= hash >> 32;
        }
        hash.wrapping_mul(LAST_FACTOR)
    }

    #[inline(always)]
    fn head(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize & (self.heads.len() - 1)
    }

    /// The filter's bit of a hash.
    #[inline(always)]
    fn bit(hash: u64) -> u64 {
        1 << 32 << (hash >> FILTER_SHIFT & FILTER_BITS)
    }

    #[inline(always)]
    pub(super) fn prefetch_head(&self, hash: u64) {
        prefetch_read(&raw const self.heads[self.head(hash)]);
    }

    /// The words that the hash is over, the heads (a power of two of them), and how far a hash is shifted to be a head's number: for the
    /// vector form.
    #[inline(always)]
    pub(super) fn hashed_words(&self) -> impl Iterator<Item = usize> {
        self.hashed.iter()
    }

    #[inline(always)]
    pub(super) fn heads(&self) -> (&[u64], u32) {
        (&self.heads, self.shift)
    }

    /// Whether there is something to look at, and where.
    #[inline(always)]
    pub(super) fn first(&self, hash: u64) -> Option<First> {
        let head = self.heads[self.head(hash)];
        (head & Self::bit(hash) != 0).then_some(First::of(head))
    }

    #[inline(always)]
    pub(super) fn prefetch_entry(&self, first: First) {
        let line = (first.0 as usize).wrapping_sub(1).wrapping_mul(self.lines);
        if let Some(line) = self.entries.get(line) {
            prefetch_read(line);
        }
    }

    #[inline(always)]
    fn word(&self, entry: usize, i: usize) -> u64 {
        self.entries[entry * self.lines + i / 8].0[i % 8]
    }

    fn set_word(&mut self, entry: usize, i: usize, value: u64) {
        self.entries[entry * self.lines + i / 8].0[i % 8] = value;
    }

    #[inline(always)]
    fn rank(&self, entry: usize) -> Rank {
        Rank(self.word(entry, 0))
    }

    #[inline(always)]
    fn next(&self, entry: usize) -> u32 {
        self.word(entry, 2) as u32
    }

    /// The first rule of a chain that matches and precedes `best`; and how many entries were looked at.
    #[inline(always)]
    pub(super) fn search(&self, first: First, key: &Key, best: Rank) -> (Rank, usize) {
        let (mut next, mut looked) = (first.0, 0);
        while next != 0 {
            let entry = next as usize - 1;
            looked += 1;
            let rank = self.rank(entry);
            if rank >= best {
                break;
            }
            if self.fits(entry, key) {
                return (rank, looked);
            }
            next = self.next(entry);
        }
        (Rank::NONE, looked)
    }

    /// Lines of an entry.
    pub(super) fn entry_lines(&self) -> usize {
        self.lines
    }

    #[inline(always)]
    fn fits(&self, entry: usize, key: &Key) -> bool {
        let n = usize::from(self.words.len);
        let mut differ = 0;
        for (i, word) in self.words.iter().enumerate() {
            differ |= (key.0[word] ^ self.word(entry, HEADER + i)) & self.word(entry, HEADER + n + i);
        }
        let ranges = ranges(self.word(entry, 1));
        let [source, destination] = key.ports();
        differ == 0 && ranges[0].contains(source) && ranges[1].contains(destination)
    }

    /// The match of an entry.
    fn matches(&self, entry: usize) -> Match {
        let n = usize::from(self.words.len);
        let (mut value, mut mask) = (Key::default(), Mask::NONE);
        for (i, word) in self.words.iter().enumerate() {
            value.0[word] = self.word(entry, HEADER + i);
            mask.0[word] = self.word(entry, HEADER + n + i);
        }
        Match::from_parts(value, mask, ranges(self.word(entry, 1)))
    }

    /// The entries of the chain that a key leads to, first to last.
    pub(super) fn chain(&self, hash: u64) -> impl Iterator<Item = (Rank, Match)> {
        let mut next = self.heads[self.head(hash)] as u32;
        std::iter::from_fn(move || {
            let entry = (next as usize).checked_sub(1)?;
            next = self.next(entry);
            Some((self.rank(entry), self.matches(entry)))
        })
    }

    /// The rules whose values agree with a key in all that the mask names.
    pub(super) fn same(&self, key: &Key) -> Vec<(Rank, Match)> {
        let masked = key.masked(&self.mask);
        self.chain(self.hash(key)).filter(|(_, other)| other.value().masked(&self.mask) == masked).collect()
    }

    /// Puts a rule in. Its mask contains the table's.
    pub(super) fn insert(&mut self, rank: Rank, matches: &Match) {
        debug_assert!(self.mask.within(matches.mask()));
        let touched = WordList::of(&matches.mask().or(&self.words_mask()));
        if touched.len != self.words.len {
            self.rebuild(touched, self.heads.len());
        }
        if self.len() >= self.heads.len() {
            self.rebuild(self.words, self.heads.len() * 2);
        }
        self.link(rank, matches);
        self.agree(matches);
        self.ranks.insert(rank);
        self.count(matches, true);
    }

    /// Before a rule is one of its own: what it asks for as the others do.
    fn agree(&mut self, matches: &Match) {
        let (mask, value) = &mut self.agreed;
        if self.ranks.is_empty() {
            *mask = FEW.iter().fold(Mask::NONE, |mask, &field| mask.with(field, matches.mask().get(field)));
            *value = *matches.value();
            return;
        }
        for (i, agreed) in mask.0.iter_mut().enumerate() {
            *agreed &= matches.mask().0[i] & !(value.0[i] ^ matches.value().0[i]);
        }
    }

    /// Takes a rule out; whether it was there.
    pub(super) fn remove(&mut self, rank: Rank, matches: &Match) -> bool {
        let head = self.head(self.hash(matches.value()));
        let (mut before, mut next) = (None, self.heads[head] as u32);
        while next != 0 && self.rank(next as usize - 1) != rank {
            before = Some(next as usize - 1);
            next = self.next(next as usize - 1);
        }
        let Some(entry) = (next as usize).checked_sub(1) else { return false };
        let after = u64::from(self.next(entry));
        match before {
            Some(before) => self.set_word(before, 2, after),
            None => self.heads[head] = after,
        }
        self.free.push(entry as u32);
        self.heads[head] = self.heads[head] & u64::from(u32::MAX) | self.filter(self.heads[head] as u32);
        self.ranks.remove(&rank);
        self.count(matches, false);
        true
    }

    /// The filter of the chain that begins with `next`.
    fn filter(&self, mut next: u32) -> u64 {
        let mut filter = 0;
        while let Some(entry) = (next as usize).checked_sub(1) {
            filter |= Self::bit(self.hash(self.matches(entry).value()));
            next = self.next(entry);
        }
        filter
    }

    fn count(&mut self, matches: &Match, more: bool) {
        let Some(number) = family(matches.value(), matches.mask()) else { return };
        let family = &mut self.families[number];
        family.rules = if more { family.rules + 1 } else { family.rules.saturating_sub(1) };
        for (lengths, field) in family.lengths.iter_mut().zip(FAMILIES[number].1) {
            lengths.change(matches.mask().prefix_length(field), more);
        }
    }

    fn words_mask(&self) -> Mask {
        let mut mask = Mask::NONE;
        self.words.iter().for_each(|i| mask.0[i] = 1);
        mask
    }

    /// Writes an entry and puts it into its place in its chain.
    fn link(&mut self, rank: Rank, matches: &Match) {
        let n = usize::from(self.words.len);
        let entry = match self.free.pop() {
            Some(entry) => entry as usize,
            None => {
                let entry = self.entries.len() / self.lines;
                self.entries.extend(std::iter::repeat_n(Line([0; 8]), self.lines));
                entry
            }
        };
        self.set_word(entry, 0, rank.0);
        self.set_word(entry, 1, packed(matches.ports()));
        let words = self.words;
        for (i, word) in words.iter().enumerate() {
            self.set_word(entry, HEADER + i, matches.value().0[word]);
            self.set_word(entry, HEADER + n + i, matches.mask().0[word]);
        }
        let hash = self.hash(matches.value());
        let head = self.head(hash);
        let (mut before, mut next) = (None, self.heads[head] as u32);
        while next != 0 && self.rank(next as usize - 1) < rank {
            before = Some(next as usize - 1);
            next = self.next(next as usize - 1);
        }
        self.set_word(entry, 2, next.into());
        let link = entry as u64 + 1;
        match before {
            Some(before) => self.set_word(before, 2, link),
            None => self.heads[head] = self.heads[head] >> 32 << 32 | link,
        }
        self.heads[head] |= Self::bit(hash);
    }

    /// Makes the table anew with other words or more heads.
    fn rebuild(&mut self, words: WordList, heads: usize) {
        let used: Vec<(Rank, Match)> = self.all().collect();
        (self.words, self.lines) = (words, self.lines_of(words));
        self.heads = vec![0; heads];
        self.shift = 64 - heads.ilog2();
        self.free.clear();
        self.entries.clear();
        self.entries.reserve(used.len() * self.lines);
        for (rank, matches) in &used {
            self.link(*rank, matches);
        }
    }

    /// All its rules.
    pub(super) fn all(&self) -> impl Iterator<Item = (Rank, Match)> {
        let firsts = self.heads.iter().map(|&head| head as u32);
        firsts.flat_map(move |mut next| {
            std::iter::from_fn(move || {
                let entry = (next as usize).checked_sub(1)?;
                next = self.next(entry);
                Some((self.rank(entry), self.matches(entry)))
            })
        })
    }

    /// What is wrong with the table, if anything is.
    pub(super) fn check(&self) -> Result<(), String> {
        let (mut entries, mut ranks) = (0, BTreeSet::new());
        for (head, &word) in self.heads.iter().enumerate() {
            let (mut next, mut before) = (word as u32, None);
            while let Some(entry) = (next as usize).checked_sub(1) {
                let (rank, matches) = (self.rank(entry), self.matches(entry));
                let hash = self.hash(matches.value());
                if before >= Some(rank) || self.head(hash) != head || word & Self::bit(hash) == 0 {
                    return Err(format!("{rank:?} is in a wrong place of chain {head}"));
                }
                if !self.mask.within(matches.mask()) {
                    return Err(format!("{matches:?} is not of the mask {:?}", self.mask));
                }
                let (agreed, value) = self.agreed();
                if !agreed.within(matches.mask()) || value.masked(agreed) != matches.value().masked(agreed) {
                    return Err(format!("{matches:?} does not agree with the others in {agreed:?}"));
                }
                (before, next) = (Some(rank), self.next(entry));
                ranks.insert(rank);
                entries += 1;
            }
        }
        let all = self.entries.len() / self.lines;
        if entries + self.free.len() != all || ranks != self.ranks {
            return Err(format!(
                "{entries} entries and {} free of {all}, {} ranks",
                self.free.len(),
                self.len()
            ));
        }
        Ok(())
    }
}

#[inline(always)]
fn ranges(word: u64) -> [PortRange; 2] {
    let range = |shift: u32| PortRange { first: (word >> (shift + 16)) as u16, last: (word >> shift) as u16 };
    [range(32), range(0)]
}

fn packed([source, destination]: [PortRange; 2]) -> u64 {
    let range = |range: PortRange| u64::from(range.first) << 16 | u64::from(range.last);
    range(source) << 32 | range(destination)
}
