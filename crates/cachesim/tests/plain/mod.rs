//! Obvious models of the policies: vectors that are searched from one end to the other. They share no code with what they judge.

use tidemill_cachesim::Policy;

/// The newest last; with every key how often it was used, as far as the policy counts.
pub(crate) struct Plain {
    policy: Policy,
    capacity: usize,
    kept: Vec<(u32, u32)>,
    /// SIEVE: the key that the hand rests on.
    hand: Option<u32>,
    /// S3-FIFO: `kept` is small.
    main: Vec<(u32, u32)>,
    ghost: Vec<u32>,
    evicting: bool,
}

impl Plain {
    pub(crate) fn new(policy: Policy, capacity: usize) -> Self {
        let (kept, main, ghost) = (Vec::new(), Vec::new(), Vec::new());
        Plain { policy, capacity, kept, hand: None, main, ghost, evicting: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len() + self.main.len()
    }

    pub(crate) fn get(&mut self, key: u32) -> bool {
        if let Some(at) = self.main.iter().position(|entry| entry.0 == key) {
            self.main[at].1 += 1;
            return true;
        }
        let Some(at) = self.kept.iter().position(|entry| entry.0 == key) else { return false };
        match self.policy {
            Policy::Lru => {
                let entry = self.kept.remove(at);
                self.kept.push(entry);
            }
            Policy::Clock | Policy::Sieve => self.kept[at].1 = 1,
            Policy::S3Fifo => self.kept[at].1 += 1,
            Policy::Fifo | Policy::Random => {}
        }
        true
    }

    pub(crate) fn insert(&mut self, key: u32) -> Option<u32> {
        if self.policy == Policy::S3Fifo {
            return self.insert_s3fifo(key);
        }
        let full = self.kept.len() == self.capacity;
        let evicted = full.then(|| match self.policy {
            Policy::Clock => {
                while self.kept[0].1 == 1 {
                    let (key, _) = self.kept.remove(0);
                    self.kept.push((key, 0));
                }
                self.kept.remove(0).0
            }
            Policy::Sieve => {
                let rests = self.hand.and_then(|hand| self.kept.iter().position(|entry| entry.0 == hand));
                let mut at = rests.unwrap_or(0);
                while self.kept[at].1 == 1 {
                    self.kept[at].1 = 0;
                    at = (at + 1) % self.kept.len();
                }
                let (gone, _) = self.kept.remove(at);
                self.hand = self.kept.get(at).map(|entry| entry.0);
                gone
            }
            _ => self.kept.remove(0).0,
        });
        self.kept.push((key, 0));
        evicted
    }

    pub(crate) fn remove(&mut self, key: u32) -> bool {
        self.ghost.retain(|other| *other != key);
        let before = self.len();
        if self.hand == Some(key) {
            let at = self.kept.iter().position(|entry| entry.0 == key);
            self.hand = at.and_then(|at| self.kept.get(at + 1)).map(|entry| entry.0);
        }
        self.kept.retain(|entry| entry.0 != key);
        self.main.retain(|entry| entry.0 != key);
        self.len() < before
    }

    fn insert_s3fifo(&mut self, key: u32) -> Option<u32> {
        let small = (self.capacity / 10).max(1);
        let known = self.ghost.contains(&key);
        self.ghost.retain(|other| *other != key);
        let mut evicted = None;
        while self.len() == self.capacity && evicted.is_none() {
            self.evicting = true;
            if self.main.len() > self.capacity - small || self.kept.is_empty() {
                let (key, uses) = self.main.remove(0);
                match uses.min(3) {
                    0 => evicted = Some(key),
                    uses => self.main.push((key, uses - 1)),
                }
            } else {
                let (key, uses) = self.kept.remove(0);
                if uses >= 2 {
                    // All that is moved is moved before main is looked at.
                    self.main.push((key, 0));
                    while let Some(&(key, uses)) = self.kept.first() {
                        self.kept.remove(0);
                        if uses < 2 {
                            evicted = Some(key);
                            break;
                        }
                        self.main.push((key, 0));
                    }
                } else {
                    evicted = Some(key);
                }
                if let Some(key) = evicted {
                    self.ghost.push(key);
                    if self.ghost.len() > self.capacity * 9 / 10 {
                        self.ghost.remove(0);
                    }
                }
            }
        }
        let to_main = known || !self.evicting && self.kept.len() >= small;
        if to_main {
            self.main.push((key, 0))
        } else {
            self.kept.push((key, 0))
        }
        evicted
    }
}
