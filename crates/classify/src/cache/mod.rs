//! What one worker has decided lately: exact matches, then megaflows, in front of the rules.
//!
//! ```text
//! keys (up to 32) --> megaflows, of masks whose filter lets a key through --misses--> rules (`TupleSpace::lookup_wild`)
//!       |             those that a packet has found; then the new ones            |
//!       |                 ^             ^                                         |
//!       '- if that is far '             '--------- the key under its mask --------'
//!          exact matches, then the mask of the key's signature
//! ```
//!
//! A **megaflow** is a decision on all packets that have the same values of those bits that the decision looked at (Open vSwitch's: Pfaff et
//! al., NSDI 2015, section 4). Megaflows of different masks may hold the same packet: they agree on it, so the first one found
//! counts. Both tables are [`FlowTable`]s: bounded work, no allocation, nothing grows. A full one replaces what was
//! not used in this unit of time; where all was, most decisions are not kept (`tries.rs`).
//!
//! **A flood** of packets that have a megaflow each pays for its lookups only: from three quarters of the room on a key gets a megaflow, and an exact match,
//! when it comes again, or as one of a small sample (`door.rs`); and if few of the keys that were asked for had one, or they had it behind more masks than the rules
//! cost, the masks are asked for a sample only (`sparing.rs`). What is turned away is decided by the rules as a batch, by vectors, and its mask is never made. Megaflows that a packet
//! has found since they were made are told by filters of their own, which a flood's are not in: what is in use is near, and asked for, whatever else there is (`filter.rs`).
//!
//! **Nothing stale.** Every entry has the version of the rules that it is right for. One of another version is not used as it
//! is: if none of the [changes since](Snapshot::still_holds) concerns it, it gets this version, else it is thrown away and the rules are asked.
//!
//! | cost for each key of a batch | lines of 64 bytes |
//! |---|---|
//! | filters | two for each mask before its own and for that (`filter.rs`); as long as masks come in the same order they are warm. For a megaflow that no packet has found yet: two for each mask, and those of its second filters |
//! | megaflow | one of tags, two or three of the entry (88 bytes); one of tags for each mask whose filter let it through in vain |
//! | exact match | as a megaflow |
//! | signature | one, and its megaflow |
//! | rules | a lookup, the chains' rules, and walks along two tries of a bit each step |
//!
//! As long as megaflows are about a probe away exact matches and signatures are neither asked for nor made (`near.rs`).
//!
//! Masks are asked in the order of their use ([`Cache::maintain`]). There are at most [`Settings::masks`]; a decision with another
//! mask is not kept, so rules and packets made to multiply masks (Csikor et al., "Tuple Space Explosion", CoNEXT 2019) cost that many
//! probes a packet and no more. Nor do they hold them: those that are used least give way to others (`masks.rs`).

mod door;
mod filter;
mod group;
mod masks;
mod near;
mod signatures;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
mod simd;
mod sparing;
mod tries;

use crate::decider::Decider;
use crate::key::{Key, Mask};
use crate::laps::{Laps, Layer};
use door::Door;
use filter::{Filters, Standing};
use group::{Asked, Open, Scratch, bits_of};
use masks::Masks;
use near::Near;
use signatures::Signatures;
use sparing::Sparing;
use tidemill_flow::flowtable::{FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key as FlowKey;
use tidemill_flow::table::SizeError;
use tidemill_lookup::mem::OnLines;
use tries::Tries;

/// Keys that go through the layers together.
pub const GROUP: usize = 32;

/// The greatest number of a mask: bits of a key that no field has.
const MOST_MASKS: u16 = 0x3fff;

/// Why a cache cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The table of exact matches.
    #[error("exact matches: {0}")]
    Exact(SizeError),
    /// The table of megaflows.
    #[error("megaflows: {0}")]
    Megaflows(SizeError),
    /// The signature cache.
    #[error("signatures: no memory: {0}")]
    Signatures(std::io::Error),
}

/// How large a cache is. None of it can change later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Room for exact matches; 0 for none.
    pub exact: usize,
    /// Keys whose masks are remembered; 0 for none.
    pub signatures: usize,
    /// Room for megaflows.
    pub megaflows: usize,
    /// The most masks that megaflows are asked for by, up to 16,383.
    pub masks: usize,
    /// Filters in front of the masks, two for each. Without them masks are asked one after the other, and exact matches and signatures first as soon as there are two.
    pub filters: bool,
}

impl Settings {
    /// Bytes that a cache of this size takes when it is full: of exact matches, of signatures, of megaflows, of masks' filters.
    pub fn bytes(&self) -> [f64; 4] {
        let flow = Table::BYTES_PER_SLOT;
        let filters = if self.filters { Standing::ALL * masks::numbers(self.masks) } else { 0 };
        let signatures = self.signatures as f64 * 4.0;
        let filters = (filters * Filters::BYTES_PER_MASK) as f64;
        [self.exact as f64 * flow, signatures, self.megaflows as f64 * flow, filters]
    }
}

impl Default for Settings {
    /// 8,192 exact matches and 2^20 signatures as Open vSwitch has them, 65,536 megaflows, 256 masks.
    fn default() -> Self {
        Settings { exact: 8192, signatures: 1 << 20, megaflows: 65_536, masks: 256, filters: true }
    }
}

/// What a cache has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Keys that an exact match decided.
    pub exact_hits: u64,
    /// Keys that a megaflow decided.
    pub megaflow_hits: u64,
    /// Those among them whose mask was known by their signature.
    pub signature_hits: u64,
    /// Keys that the rules decided.
    pub misses: u64,
    /// Entries of an older version that no change concerned.
    pub renewed: u64,
    /// Entries of an older version that were thrown away.
    pub outdated: u64,
    /// Decisions that were not kept as megaflows: no room, or no mask free; those that were turned away among them.
    pub not_kept: u64,
    /// Keys that the rules decided without a look at what could be kept: they came for the first time, and there was little room, or megaflows were dearer.
    pub turned_away: u64,
    /// Keys that megaflows were not probed for, or while these are near no new ones: lately that was in vain, and there was little room, or it was dearer than the rules.
    pub spared: u64,
    /// Masks that megaflows were probed with.
    pub probes: u64,
}

/// A decision, and the version of the rules; [`NEW`] or not.
type Cached = [u64; 2];
type Table = FlowTable<8, Cached>;

/// Beside the version of a megaflow that no packet has found since it was made.
const NEW: u64 = 1 << 63;

fn standing([_, version]: Cached) -> Standing {
    if version & NEW == 0 { Standing::Proven } else { Standing::New }
}

/// One worker's cache. See the [module](self).
pub struct Cache {
    exact: Option<Table>,
    signatures: Option<Signatures>,
    megaflows: Table,
    masks: Masks,
    door: Door,
    sparing: Sparing,
    hasher: Keyed<8>,
    /// Of exact matches, of megaflows.
    tries: [Tries; 2],
    near: Near,
    scratch: Box<Scratch>,
    counters: CacheCounters,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Cache {
    /// An empty cache, its memory there. Packets' senders choose keys, so hashes have a secret.
    ///
    /// # Errors
    /// Which of its tables cannot be made, and why.
    pub fn new(settings: Settings, secret: u128) -> Result<Self, CacheError> {
        let hasher = Keyed::new(secret);
        let exact = (settings.exact > 0).then(|| Table::new(settings.exact, hasher)).transpose();
        let signatures = (settings.signatures > 0).then(|| Signatures::new(settings.signatures));
        Ok(Cache {
            signatures: signatures.transpose().map_err(CacheError::Signatures)?,
            exact: exact.map_err(CacheError::Exact)?,
            megaflows: Table::new(settings.megaflows.max(1), hasher).map_err(CacheError::Megaflows)?,
            masks: Masks::new(settings.masks, settings.filters.then_some(secret)),
            door: Door::new(settings.megaflows),
            sparing: Sparing::default(),
            hasher,
            tries: Default::default(),
            near: Near::default(),
            scratch: Box::default(),
            counters: CacheCounters::default(),
        })
    }

    /// What it has done so far.
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Megaflows.
    pub fn megaflows(&self) -> usize {
        self.megaflows.len()
    }

    /// Bytes of its tables: as many from the start to the end.
    pub fn bytes(&self) -> usize {
        let exact = self.exact.as_ref().map_or(0, Table::bytes);
        let signatures = self.signatures.as_ref().map_or(0, Signatures::bytes);
        self.megaflows.bytes() + exact + signatures + self.door.bytes() + self.masks.bytes_of_filters()
    }

    /// Masks that megaflows are asked for by.
    pub fn masks(&self) -> usize {
        self.masks.order().len()
    }

    /// The decision on each key by `rules`: the first match by a [`Snapshot`](crate::live::Snapshot), or the way through the tables of a
    /// [pipeline](crate::pipeline). `out` is as long as `keys`, and what lies beyond the shorter is not looked at. `now` is the time in
    /// the caller's unit, which expiry and replacement go by.
    pub fn classify<D: Decider>(&mut self, rules: D, now: u32, keys: &[Key], out: &mut [D::Decision]) {
        self.classify_timed(rules, now, keys, out, &mut ());
    }

    /// The same, and tells a stopwatch which layer has been at work.
    pub fn classify_timed<D: Decider>(
        &mut self,
        mut rules: D,
        now: u32,
        keys: &[Key],
        out: &mut [D::Decision],
        laps: &mut impl Laps,
    ) {
        rules.begin();
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.group(&mut rules, now, keys, out, laps);
        }
    }

    fn group<D: Decider>(
        &mut self,
        rules: &mut D,
        now: u32,
        keys: &[Key],
        out: &mut [D::Decision],
        laps: &mut impl Laps,
    ) {
        let n = keys.len().min(out.len());
        let mut open = Open::first(n);
        let mut hashes = OnLines([0; GROUP]);
        let near = self.is_near();
        // Without filters all are asked for at once, as of one mask.
        let apart = self.masks.have_filters() && self.masks.order().len() > 1;
        if !near {
            self.exact_group(rules, now, (&keys[..n], &mut hashes), &mut open, out);
        }
        laps.lap(Layer::Exact);
        if open.len == 0 {
            return;
        }
        let missed = open.bits();
        let whole = (!near).then_some(&hashes.0);
        let mut spared = 0;
        if !near {
            self.signature_group(rules, now, (keys, &hashes), &mut open, out);
            spared = self.spare(&mut open);
        }
        let mut asked = open;
        let mut depth = self.megaflow_group(rules, now, Standing::Proven, (keys, whole), &mut open, out);
        if near {
            // What was found so near says nothing of the others.
            spared = self.spare(&mut open);
            (asked, depth) = (open, 0);
        }
        if apart && open.len > 0 {
            depth += self.megaflow_group(rules, now, Standing::New, (keys, whole), &mut open, out);
        }
        if let Some(one) = asked.iter().next() {
            self.sparing.came_to(asked.len, asked.len - open.len, depth, || rules.lines(&keys[one]));
        }
        open.add(spared);
        laps.lap(Layer::Megaflow);
        let away = self.turn_away(rules, (&keys[..n], whole), &mut open, out);
        for i in open.iter() {
            self.counters.misses += 1;
            let (decided, mask) = rules.decide(&keys[i]);
            out[i] = decided;
            if rules.keeps(decided.into()) {
                self.keep(rules, now, (&keys[i], whole.map(|hashes| hashes[i])), &mask, decided.into());
            } else {
                self.counters.not_kept += 1;
            }
        }
        laps.lap(Layer::Rules);
        let Some(exact) = self.exact.as_mut().filter(|_| !near) else { return };
        let tries = &mut self.tries[0];
        for i in (0..n).filter(|i| (missed & !away) >> i & 1 != 0) {
            let (version, decided) = (rules.version(), out[i].into());
            if !rules.keeps(decided) || !tries.now() {
                continue;
            }
            let mut replaced = None;
            let outcome = exact.find_or_replace(now, hashes[i], &FlowKey(keys[i].0), |_, stamp, state| {
                let goes = stamp != now || state[1] != version;
                if goes {
                    replaced = Some(state[0]);
                }
                goes
            });
            tries.came_to(outcome.slot().is_some());
            settle(exact, outcome, [decided, version], rules);
            if let Some(replaced) = replaced {
                rules.release(replaced);
            }
        }
        laps.lap(Layer::Exact);
    }

    /// Whether a megaflow is as near as an exact match.
    #[inline(always)]
    fn is_near(&self) -> bool {
        if self.masks.have_filters() { self.near.is() } else { self.masks.order().len() == 1 }
    }

    /// Hashes the keys, and asks for exact matches.
    #[inline(always)]
    fn exact_group<D: Decider>(
        &mut self,
        rules: &mut D,
        now: u32,
        (keys, hashes): (&[Key], &mut [u64; GROUP]),
        open: &mut Open,
        out: &mut [D::Decision],
    ) {
        let n = keys.len();
        let whole = self.hash(keys.iter(), hashes);
        let Some(exact) = &mut self.exact else { return };
        let mut slots = [None; GROUP];
        exact.lookup_batch(&hashes[..n], &whole[..n], &mut slots[..n]);
        let counters = &mut self.counters;
        open.retain(|_, i| {
            let Some(slot) = slots[i] else { return true };
            let Some((decided, _)) = decision(exact, slot, rules, &keys[i], &Mask::ALL, counters) else {
                // Another place of this batch may have thrown it away already.
                if let Some([decided, _]) = exact.remove(hashes[i], &whole[i]) {
                    rules.release(decided);
                    counters.outdated += 1;
                }
                return true;
            };
            out[i] = D::Decision::from(decided);
            exact.touch(slot, now);
            counters.exact_hits += 1;
            false
        });
    }

    /// The hashes of whole keys, and these as the tables have them.
    #[inline(always)]
    fn hash<'a>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a Key>,
        hashes: &mut [u64; GROUP],
    ) -> [FlowKey<8>; GROUP] {
        let (n, mut whole) = (keys.len(), [FlowKey([0; 8]); GROUP]);
        whole.iter_mut().zip(keys).for_each(|(whole, key)| whole.0 = key.0);
        self.hasher.hash_batch(&whole[..n], &mut hashes[..n]);
        whole
    }

    /// Whether whoever asks for a megaflow gets one.
    fn room(&self) -> bool {
        self.masks.free() && !Door::little_room(self.megaflows.len(), self.megaflows.slots())
    }

    /// Where asking for megaflows was in vain lately, or dearer than the rules: takes out all keys, but those of a group now and then. Which those were, by bits.
    fn spare(&mut self, open: &mut Open) -> u32 {
        self.sparing.begin(self.room());
        let masks = self.masks.order().len();
        if open.len == 0 || masks < sparing::FEWEST_MASKS || self.sparing.asks(masks, open.len) {
            return 0;
        }
        self.counters.spared += open.len as u64;
        let spared = open.bits();
        open.len = 0;
        spared
    }

    /// Where there is little room for megaflows, or they are dearer than the rules: decides by the rules alone what is to get none. Which keys those were, by
    /// bits. Without hashes of the whole keys it makes those of the ones that come to the door.
    fn turn_away<D: Decider>(
        &mut self,
        rules: &mut D,
        (keys, hashes): (&[Key], Option<&[u64; GROUP]>),
        open: &mut Open,
        out: &mut [D::Decision],
    ) -> u32 {
        let dear = self.sparing.is_deep() && self.masks.order().len() >= sparing::FEWEST_MASKS;
        if open.len == 0 || self.room() && !dear {
            return 0;
        }
        let (mut bits, mut of_open) = (0_u32, [0; GROUP]);
        if let Some(hashes) = hashes {
            of_open.iter_mut().zip(open.iter()).for_each(|(hash, i)| *hash = hashes[i]);
        } else {
            self.hash(open.iter().map(|i| &keys[i]), &mut of_open);
        }
        open.retain(|at, i| {
            let stays = self.door.admits(of_open[at]);
            bits |= u32::from(!stays) << i;
            stays
        });
        let (mut away, mut found) = ([Key::default(); GROUP], [D::Decision::from(0); GROUP]);
        let places = || (0..GROUP).filter(|i| bits >> i & 1 != 0);
        let n = bits.count_ones() as usize;
        away.iter_mut().zip(places()).for_each(|(away, i)| *away = keys[i]);
        rules.decide_batch(&away[..n], &mut found[..n]);
        found.iter().zip(places()).for_each(|(found, i)| out[i] = *found);
        self.counters.misses += n as u64;
        self.counters.not_kept += n as u64;
        self.counters.turned_away += n as u64;
        bits
    }

    /// Asks for the megaflows that keys of these hashes had last.
    fn signature_group<D: Decider>(
        &mut self,
        rules: &mut D,
        now: u32,
        (keys, hashes): (&[Key], &[u64; GROUP]),
        open: &mut Open,
        out: &mut [D::Decision],
    ) {
        let Some(signatures) = &self.signatures else { return };
        open.iter().for_each(|i| signatures.prefetch(hashes[i]));
        let mut masked = [FlowKey([0; 8]); GROUP];
        let mut hinted = [(0_u8, 0_u16); GROUP];
        let mut n = 0;
        for i in open.iter() {
            if let Some(number) = signatures.get(hashes[i]) {
                masked[n] = numbered(&keys[i], self.masks.mask(number), number);
                hinted[n] = (i as u8, number);
                n += 1;
            }
        }
        let (mut of_masked, mut slots) = ([0; GROUP], [None; GROUP]);
        self.hasher.hash_batch(&masked[..n], &mut of_masked[..n]);
        self.megaflows.lookup_batch(&of_masked[..n], &masked[..n], &mut slots[..n]);
        let Cache { megaflows: table, counters, masks, .. } = self;
        counters.probes += n as u64;
        let mut done = 0_u32;
        for (&(i, number), slot) in hinted[..n].iter().zip(slots) {
            let (i, Some(slot)) = (usize::from(i), slot) else { continue };
            // One that is outdated is thrown away when its mask's turn comes.
            let found = decision(table, slot, rules, &keys[i], masks.mask(number), counters);
            if let Some((decided, was_new)) = found {
                out[i] = D::Decision::from(decided);
                table.touch(slot, now);
                if was_new {
                    masks.proven(number, &keys[i].0);
                }
                counters.megaflow_hits += 1;
                counters.signature_hits += 1;
                masks.used(number);
                done |= 1 << i;
            }
        }
        open.retain(|_, i| done >> i & 1 == 0);
    }

    /// Asks each key's megaflow of the first mask whose filter lets it through, all at once; then those that had none of the next. The filters are those of megaflows of this standing,
    /// for the same keys first [`Standing::Proven`]. With hashes of the whole keys, signatures are kept. Returns how many probes those that were found took, together; four filters count
    /// as one.
    fn megaflow_group<D: Decider>(
        &mut self,
        rules: &mut D,
        now: u32,
        of: Standing,
        (keys, whole): (&[Key], Option<&[u64; GROUP]>),
        open: &mut Open,
        out: &mut [D::Decision],
    ) -> u64 {
        let Cache { megaflows: table, masks, scratch, counters, hasher, .. } = self;
        let (of_keys, all) = (open.len, masks.order().len());
        // The least of those in `next` that are asked for.
        let mut from = 0;
        let (mut asking, mut next, mut left) = (open.bits(), [0; GROUP], 0);
        if of == Standing::Proven {
            scratch.turned.clear();
        }
        let (mut emptied, mut probes, mut depth, mut filters) = (false, 0, 0, 0);
        for round in 1.. {
            if asking == 0 {
                break;
            }
            let (n, nowhere, words) = may_have(masks, of, keys, asking, (from, &next), scratch);
            left |= nowhere;
            if n == 0 {
                break;
            }
            let Scratch { asked, masked, hashes, slots, .. } = &mut **scratch;
            hasher.hash_sparse(&masked[..n], words, &mut hashes[..n]);
            table.lookup_batch(&hashes[..n], &masked[..n], &mut slots[..n]);
            probes += n;
            (asking, from) = (0, u16::MAX);
            let mut signatures = self.signatures.as_mut().zip(whole);
            for (at, &Asked { place, number, order }) in asked[..n].iter().enumerate() {
                let i = usize::from(place);
                next[i] = order + 1;
                if let Some(slot) = slots[at] {
                    let found = decision(table, slot, rules, &keys[i], masks.mask(number), counters);
                    if let Some((decided, was_new)) = found {
                        out[i] = D::Decision::from(decided);
                        table.touch(slot, now);
                        if was_new {
                            masks.proven(number, &keys[i].0);
                        }
                        masks.used(number);
                        if let Some((signatures, whole)) = &mut signatures {
                            signatures.put(whole[i], number);
                        }
                        filters += usize::from(next[i]);
                        depth += round;
                        continue;
                    }
                    // Another key of this batch may have thrown it away already.
                    if let Some(state) = table.remove(hashes[at], &masked[at]) {
                        rules.release(state[0]);
                        counters.outdated += 1;
                        emptied |= masks.one_less(number, &masked[at].0, standing(state));
                    }
                }
                asking |= 1 << i;
                from = from.min(next[i]);
            }
        }
        open.len = 0;
        open.add(left);
        depth += (filters / sparing::FILTERS) as u64;
        if of == Standing::Proven {
            self.near.came_to(of_keys, probes, filters + open.len * all);
        }
        self.counters.probes += probes as u64;
        self.counters.megaflow_hits += (of_keys - open.len) as u64;
        if emptied {
            self.masks.drop_empty();
        }
        depth
    }

    /// Keeps a decision as a megaflow, if there is room. With the hash of the whole key its signature is kept, too.
    fn keep<D: Decider>(
        &mut self,
        rules: &mut D,
        now: u32,
        (key, whole): (&Key, Option<u64>),
        mask: &Mask,
        decided: u64,
    ) {
        let tries = &mut self.tries[1];
        if !tries.now() {
            self.counters.not_kept += 1;
            return;
        }
        let Some(number) = self.masks.number(mask) else {
            self.counters.not_kept += 1;
            return;
        };
        let masked = numbered(key, mask, number);
        let hash = self.hasher.hash(&masked);
        let version = rules.version();
        let (mut replaced, masks) = (None, &self.masks);
        let outcome = self.megaflows.find_or_replace(now, hash, &masked, |key, stamp, state| {
            let goes = stamp != now || state[1] & !NEW != version || !masks.is_asked(number_of(key));
            if goes {
                replaced = Some((*key, state));
            }
            goes
        });
        tries.came_to(outcome.slot().is_some());
        let mark = match outcome {
            Outcome::Found(slot) => {
                // A packet has come again, though it was not found by it.
                if standing(self.megaflows.state(slot)) == Standing::New {
                    self.masks.proven(number, &masked.0);
                }
                0
            }
            Outcome::New(_) | Outcome::Full => NEW,
        };
        settle(&mut self.megaflows, outcome, [decided, version | mark], rules);
        if let Some((signatures, whole)) = self.signatures.as_mut().zip(whole)
            && outcome != Outcome::Full
        {
            signatures.put(whole, number);
        }
        match outcome {
            Outcome::New(_) => self.masks.one_more(number, &masked.0),
            Outcome::Found(_) => {}
            Outcome::Full => self.counters.not_kept += 1,
        }
        if let Some((replaced, state)) = replaced {
            rules.release(state[0]);
            self.masks.one_less(number_of(&replaced), &replaced.0, standing(state));
        }
        self.masks.drop_empty();
    }

    /// Between bursts: takes out entries of the next `buckets` buckets of either table that were not used for `idle` units of time, and puts
    /// masks in the order of their use since the last call. Where masks were wanted and none was free, an eighth of them gives way at most, those with the fewest
    /// hits, and from the next call on their megaflows are swept (a sixteenth of all buckets then, if `buckets` are fewer). So eight calls a second have all masks free for others
    /// within a second of a flood's end. Returns how many entries were taken out. `rules` are those that [`classify`](Self::classify) is given.
    pub fn maintain<D: Decider>(&mut self, mut rules: D, now: u32, idle: u32, buckets: usize) -> usize {
        let masks = &mut self.masks;
        let idles = |stamp: u32| now.wrapping_sub(stamp) >= idle;
        let least = if masks.has_given_way() { self.megaflows.buckets().div_ceil(masks::ROUND) } else { 0 };
        let mut gone = self.megaflows.expire(buckets.max(least), |key, stamp, state| {
            let goes = idles(stamp) || !masks.is_asked(number_of(key));
            if goes {
                masks.one_less(number_of(key), &key.0, standing(state));
                rules.release(state[0]);
            }
            goes
        });
        if let Some(exact) = &mut self.exact {
            gone += exact.expire(buckets, |_, stamp, [decided, _]| {
                if idles(stamp) {
                    rules.release(decided);
                }
                idles(stamp)
            });
        }
        self.masks.drop_empty();
        self.masks.look();
        self.sparing.look();
        gone
    }

    /// What is wrong with the cache's books, if anything is: for tests.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&self) -> Result<(), String> {
        let mut counts = std::collections::BTreeMap::<u16, [u32; Standing::ALL]>::new();
        let mut hidden = 0;
        self.megaflows.scan(0, usize::MAX, |key, _, state| {
            let (number, of) = (number_of(key), standing(state));
            counts.entry(number).or_default()[of as usize] += 1;
            hidden += usize::from(!self.masks.filters(of).may_have(number, &Key(key.0)));
        });
        if hidden > 0 {
            return Err(format!("{hidden} megaflows that their masks' filters do not let through"));
        }
        self.masks.check(&counts)
    }

    /// How many entries have each decision: for tests.
    pub fn held(&self) -> std::collections::BTreeMap<u64, u32> {
        let mut counts = std::collections::BTreeMap::new();
        for table in [Some(&self.megaflows), self.exact.as_ref()].into_iter().flatten() {
            table.scan(0, usize::MAX, |_, _, [decided, _]| *counts.entry(decided).or_insert(0_u32) += 1);
        }
        counts
    }
}

/// For each of these keys the first mask, from its `next` in the order on, whose filter lets it through, and the key under that; how many have one, which
/// have none, and which words of those keys may be other than 0. No filter before `from` is asked.
#[inline(always)]
fn may_have(
    masks: &Masks,
    standing: Standing,
    keys: &[Key],
    mut of: u32,
    (from, next): (u16, &[u16; GROUP]),
    scratch: &mut Scratch,
) -> (usize, u32, u32) {
    let (filters, all, mut n) = (masks.filters(standing), masks.order(), 0);
    // The mask's number.
    let mut words = 1 << 5;
    for (order, &number) in (from..).zip(all.get(usize::from(from)..).unwrap_or_default()) {
        if of == 0 {
            break;
        }
        // With one mask there is nothing to choose.
        let may =
            if all.len() == 1 { of } else { filters.let_through(number, keys, of, &mut scratch.turned) };
        let mask = masks.mask(number);
        words |= if may == 0 { 0 } else { mask.words() };
        for i in bits_of(may) {
            if order >= next[i] {
                of &= !(1 << i);
                scratch.masked[n] = numbered(&keys[i], mask, number);
                scratch.asked[n] = Asked { place: i as u8, number, order };
                n += 1;
            }
        }
    }
    (n, of, words)
}

/// The decision of an entry, if it is one of this version or no change since concerns it, and whether it was [`NEW`] so far; else it is to be thrown away.
#[inline(always)]
fn decision<D: Decider>(
    table: &mut Table,
    slot: Slot,
    rules: &D,
    key: &Key,
    mask: &Mask,
    counters: &mut CacheCounters,
) -> Option<(u64, bool)> {
    let [decided, marked] = table.state(slot);
    if marked == rules.version() {
        return Some((decided, false));
    }
    let version = marked & !NEW;
    if version != rules.version() {
        if !rules.still_holds(decided, version, key, mask) {
            return None;
        }
        counters.renewed += 1;
    }
    table.set_state(slot, [decided, rules.version()]);
    Some((decided, marked != version))
}

/// Writes a decision into the slot that it has got, in place of the one that was there.
fn settle<D: Decider>(table: &mut Table, outcome: Outcome, state: Cached, rules: &mut D) {
    let Some(slot) = outcome.slot() else { return };
    rules.hold(state[0]);
    if let Outcome::Found(_) = outcome {
        rules.release(table.state(slot)[0]);
    }
    table.set_state(slot, state);
}

/// A key under a mask, with the mask's number in the 14 bits that no field has.
#[inline(always)]
fn numbered(key: &Key, mask: &Mask, number: u16) -> FlowKey<8> {
    let mut masked = key.masked(mask).0;
    masked[5] |= u64::from(number);
    FlowKey(masked)
}

fn number_of(key: &FlowKey<8>) -> u16 {
    key.0[5] as u16 & MOST_MASKS
}

#[cfg(test)]
mod tests;
