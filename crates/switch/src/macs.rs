//! Which station is behind which port: one table for all workers.
//!
//! ```text
//! bucket   | key ^ data | data | ... four ways, one line of 64 bytes        key: MAC address, VLAN
//!                                                                           data: valid, port, seconds
//! ```
//!
//! Workers write and read without locks and without retries: an entry is two words, the first of them its key mixed with the second (Hyatt
//! and Mann, "A Lockless Transposition Table", 2002), so a mixture of two writes has a key that nobody asks for. All that two writers at once can lose is an
//! entry, which the station's next packet brings back. What they can have is the same new station in two ways: the first way counts, and who writes it next clears the other.
//!
//! **A full bucket** gives up an entry that is too old, else the oldest one of the port that has most entries there, the newcomer's if it is one of
//! them: a port that makes up addresses pushes out its own.

use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_flow::hash::mix;

const WAYS: usize = 4;

/// A station is written anew at most so often, seconds: its line stays shared between.
const FRESH_S: u32 = 2;

#[derive(Default)]
#[repr(align(64))]
struct Bucket([[AtomicU64; 2]; WAYS]);

/// The table. See the [module](self).
pub struct Macs {
    buckets: Box<[Bucket]>,
    secret: u64,
    age_s: u32,
}

impl std::fmt::Debug for Macs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Macs").field("entries", &(self.buckets.len() * WAYS)).finish_non_exhaustive()
    }
}

/// What becomes of a station that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learnt {
    /// Known already.
    Known,
    /// New.
    New,
    /// Known behind another port.
    Moved,
    /// New, in place of another.
    Replaced,
}

/// A station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Station {
    /// Its VLAN; 0 for none.
    pub vlan: u16,
    /// Its address, 48 bits.
    pub mac: u64,
    /// The port that it is behind.
    pub port: u16,
    /// Seconds since it was seen, give or take two.
    pub age_s: u32,
}

const VALID: u64 = 1 << 63;

fn key(vlan: u16, mac: u64) -> u64 {
    u64::from(vlan & 0xfff) << 48 | mac & 0xffff_ffff_ffff
}

fn data(port: u16, now_s: u32) -> u64 {
    VALID | u64::from(port) << 32 | u64::from(now_s)
}

fn port_of(data: u64) -> u16 {
    (data >> 32) as u16
}

impl Macs {
    /// Room for at least `entries` stations, which are forgotten after `age_s` seconds at the earliest, and two later at the latest. Senders choose addresses, so the hash has a secret.
    pub fn new(entries: usize, age_s: u32, secret: u64) -> Self {
        let buckets = entries.div_ceil(WAYS).max(1).next_power_of_two();
        Macs { buckets: (0..buckets).map(|_| Bucket::default()).collect(), secret, age_s }
    }

    fn bucket(&self, key: u64) -> &Bucket {
        let at = mix(key ^ self.secret) as usize & (self.buckets.len() - 1);
        &self.buckets[at]
    }

    fn old(&self, data: u64, now_s: u32) -> bool {
        // Clocks of workers differ by a burst: what is of later is new.
        let age = now_s.wrapping_sub(data as u32) as i32;
        // What is written may be of a second before its last packet's, and either second is not whole.
        let most = self.age_s.saturating_add(FRESH_S).min(i32::MAX as u32) as i32;
        data & VALID == 0 || age >= most
    }

    /// The port of a station.
    #[inline]
    pub fn find(&self, vlan: u16, mac: u64, now_s: u32) -> Option<u16> {
        let key = key(vlan, mac);
        self.bucket(key).0.iter().find_map(|[mixed, data]| {
            let (mixed, data) = (mixed.load(Ordering::Relaxed), data.load(Ordering::Relaxed));
            (mixed ^ data == key && !self.old(data, now_s)).then(|| port_of(data))
        })
    }

    /// A packet of a station has come in by a port.
    #[inline]
    pub fn learn(&self, vlan: u16, mac: u64, port: u16, now_s: u32) -> Learnt {
        let key = key(vlan, mac);
        let bucket = self.bucket(key);
        let new = data(port, now_s);
        let write = |[mixed, data]: &[AtomicU64; 2]| {
            data.store(new, Ordering::Relaxed);
            mixed.store(key ^ new, Ordering::Relaxed);
        };
        let there = bucket.0.each_ref().map(|[mixed, data]| {
            let (mixed, data) = (mixed.load(Ordering::Relaxed), data.load(Ordering::Relaxed));
            (mixed ^ data, data)
        });
        if let Some(at) = (0..WAYS).find(|&at| there[at].0 == key && there[at].1 & VALID != 0) {
            let before = there[at].1;
            if port_of(before) == port && now_s.wrapping_sub(before as u32) < FRESH_S {
                return Learnt::Known;
            }
            let (old, moved) = (self.old(before, now_s), port_of(before) != port);
            write(&bucket.0[at]);
            // Who else learnt it in the same moment may have written it once more.
            for twin in at + 1..WAYS {
                if there[twin].0 == key {
                    bucket.0[twin][1].store(0, Ordering::Relaxed);
                }
            }
            return if old {
                Learnt::New
            } else if moved {
                Learnt::Moved
            } else {
                Learnt::Known
            };
        }
        if let Some(at) = (0..WAYS).find(|&at| self.old(there[at].1, now_s)) {
            write(&bucket.0[at]);
            return Learnt::New;
        }
        let count = |port: u16| there.iter().filter(|(_, data)| port_of(*data) == port).count();
        let age = |at: usize| now_s.wrapping_sub(there[at].1 as u32);
        let own = |at: usize| port_of(there[at].1) == port;
        let victim = (0..WAYS).max_by_key(|&at| (count(port_of(there[at].1)), own(at), age(at)));
        if let Some(at) = victim {
            write(&bucket.0[at]);
        }
        Learnt::Replaced
    }

    /// All stations that are not too old.
    pub fn stations(&self, now_s: u32) -> Vec<Station> {
        let mut list: Vec<Station> = self
            .buckets
            .iter()
            .flat_map(|bucket| &bucket.0)
            .filter_map(|[mixed, data]| {
                let (mixed, data) = (mixed.load(Ordering::Relaxed), data.load(Ordering::Relaxed));
                let key = mixed ^ data;
                (!self.old(data, now_s) && key >> 60 == 0).then(|| Station {
                    vlan: (key >> 48) as u16,
                    mac: key & 0xffff_ffff_ffff,
                    port: port_of(data),
                    age_s: now_s.saturating_sub(data as u32),
                })
            })
            .collect();
        list.sort_unstable();
        list
    }

    /// Forgets all stations.
    pub fn clear(&self) {
        for [_, data] in self.buckets.iter().flat_map(|bucket| &bucket.0) {
            data.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_learnt_move_and_are_forgotten() {
        let macs = Macs::new(64, 300, 1);
        assert_eq!(macs.find(0, 7, 10), None);
        assert_eq!(macs.learn(0, 7, 3, 10), Learnt::New);
        assert_eq!((macs.find(0, 7, 10), macs.find(5, 7, 10)), (Some(3), None), "a VLAN of its own");
        assert_eq!(macs.learn(0, 7, 3, 11), Learnt::Known);
        assert_eq!(macs.learn(0, 7, 4, 11), Learnt::Moved);
        assert_eq!(macs.stations(12), [Station { vlan: 0, mac: 7, port: 4, age_s: 1 }]);
        // The last packet came in second 12, and did not write that: 300 whole seconds later it may be 312.
        assert_eq!(macs.learn(0, 7, 4, 12), Learnt::Known);
        assert_eq!((macs.find(0, 7, 312), macs.find(0, 7, 313)), (Some(4), None));
        assert_eq!(macs.learn(0, 7, 4, 400), Learnt::New);
        macs.clear();
        assert_eq!((macs.find(0, 7, 400), macs.stations(400)), (None, vec![]));
        // A station with no bits at all is not found where nothing was learnt.
        assert_eq!(macs.find(0, 0, 0), None);
    }

    #[test]
    fn a_station_that_two_workers_learnt_at_once_is_there_once() {
        let macs = Macs::new(WAYS, 300, 1);
        macs.learn(0, 7, 1, 10);
        // The other worker has not seen that.
        let [mixed, word] = &macs.buckets[0].0[1];
        word.store(data(2, 10), Ordering::Relaxed);
        mixed.store(key(0, 7) ^ data(2, 10), Ordering::Relaxed);
        assert_eq!(macs.stations(10).len(), 2);
        assert_eq!(macs.learn(0, 7, 1, 20), Learnt::Known);
        assert_eq!(macs.stations(20), [Station { vlan: 0, mac: 7, port: 1, age_s: 0 }]);
    }

    #[test]
    fn a_port_that_makes_up_addresses_pushes_out_its_own() {
        let macs = Macs::new(256, 300, 1);
        (0..64).for_each(|mac| assert_ne!(macs.learn(1, mac, 1, 100), Learnt::Known));
        let known = || (0..64).filter(|&mac| macs.find(1, mac, 110) == Some(1)).count();
        let before = known();
        assert!(before > 55, "{before}");
        (0..100_000).for_each(|n| {
            macs.learn(1, 1 << 40 | n, 2, 110);
        });
        // Only where one port's stations fill a bucket by themselves some of them go.
        assert!(known() * 10 >= before * 8, "{} of {before}", known());
        assert_eq!(macs.stations(110).len(), 256);
    }
}
