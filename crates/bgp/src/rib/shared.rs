//! What many paths have in common, stored once: attributes, and the next hops in them.

use crate::attributes::Attributes;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Whether a next hop can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nobody has looked yet: taken for one that can be.
    Unknown,
    /// A route leads to it.
    Reached,
    /// None does: paths by it are not used.
    Lost,
}

/// A next hop.
pub(super) struct Hop {
    pub(super) address: IpAddr,
    pub(super) reach: Reach,
    /// Up to which pass of the sweep paths by it are looked at again.
    pub(super) again: u64,
    /// How many attributes have it.
    users: u32,
}

/// Next hops by number.
#[derive(Default)]
pub(super) struct Hops {
    numbers: HashMap<IpAddr, u32>,
    values: Vec<Hop>,
    free: Vec<u32>,
    /// Whether somebody says which can be reached.
    followed: bool,
    /// To be looked up.
    asked: Vec<u32>,
    /// No path has them any more.
    gone: Vec<IpAddr>,
}

impl Hops {
    fn take(&mut self, address: IpAddr) -> u32 {
        if let Some(&number) = self.numbers.get(&address) {
            self.values[number as usize].users += 1;
            return number;
        }
        let hop = Hop { address, reach: Reach::Unknown, again: 0, users: 1 };
        let number = put(&mut self.values, &mut self.free, hop);
        self.numbers.insert(address, number);
        if self.followed {
            self.asked.push(number);
        }
        number
    }

    fn give_back(&mut self, number: u32) {
        let hop = &mut self.values[number as usize];
        hop.users -= 1;
        if hop.users == 0 {
            self.numbers.remove(&hop.address);
            self.free.push(number);
            if self.followed {
                self.gone.push(hop.address);
            }
        }
    }

    pub(super) fn get(&self, number: u32) -> &Hop {
        &self.values[number as usize]
    }

    /// The hop with this address, if a path has it.
    pub(super) fn find(&mut self, address: IpAddr) -> Option<&mut Hop> {
        let number = *self.numbers.get(&address)?;
        self.values.get_mut(number as usize)
    }

    /// Whether paths by this one wait for an answer.
    pub(super) fn is_open(&self, number: u32) -> bool {
        self.followed && self.get(number).reach == Reach::Unknown
    }

    /// Whether somebody looks next hops up.
    pub(super) fn is_followed(&self) -> bool {
        self.followed
    }

    /// Those to be looked up now; from the first call on there is somebody who does.
    pub(super) fn asked(&mut self) -> Vec<u32> {
        if !std::mem::replace(&mut self.followed, true) {
            return self.numbers.values().copied().collect();
        }
        let mut asked = std::mem::take(&mut self.asked);
        asked.retain(|number| self.values[*number as usize].users > 0);
        asked
    }

    /// What is known of a hop that was looked up. Returns whether prefixes have to be looked for that have paths by it: those of
    /// one that is new are [noted](Self::is_open), if `noted`.
    pub(super) fn answer(&mut self, number: u32, reached: bool, noted: bool, pass: u64) -> bool {
        let hop = &mut self.values[number as usize];
        let now = if reached { Reach::Reached } else { Reach::Lost };
        let turned = match std::mem::replace(&mut hop.reach, now) {
            Reach::Unknown => !reached && !noted,
            before => before != now,
        };
        if turned {
            hop.again = pass;
        }
        turned
    }

    /// Has those looked up again that could not be reached.
    pub(super) fn ask_lost(&mut self) {
        let lost = |number: &u32| self.values[*number as usize].reach == Reach::Lost;
        let lost: Vec<u32> = self.numbers.values().copied().filter(lost).collect();
        self.asked.extend(lost);
    }

    /// Those that no path has any more, since the last call.
    pub(super) fn gone(&mut self) -> Vec<IpAddr> {
        let mut gone = std::mem::take(&mut self.gone);
        gone.retain(|address| !self.numbers.contains_key(address));
        gone
    }
}

/// Puts a value into a free place. Returns its number.
fn put<T>(values: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    match free.pop() {
        Some(number) => {
            values[number as usize] = value;
            number
        }
        None => {
            values.push(value);
            (values.len() - 1) as u32
        }
    }
}

struct Value {
    attributes: Arc<Attributes>,
    /// How many paths have them.
    users: u32,
    hop: u32,
}

/// Attributes by number, with how many paths have them.
#[derive(Default)]
pub(super) struct Shared {
    numbers: HashMap<Arc<Attributes>, u32>,
    values: Vec<Value>,
    free: Vec<u32>,
    pub(super) hops: Hops,
}

impl Shared {
    /// The number of these attributes, for one more path. The routes of one update come one after the other.
    pub(super) fn take(&mut self, attributes: &Arc<Attributes>) -> u32 {
        if let Some(&number) = self.numbers.get(attributes) {
            self.values[number as usize].users += 1;
            return number;
        }
        let hop = self.hops.take(attributes.next_hop);
        let value = Value { attributes: attributes.clone(), users: 1, hop };
        let number = put(&mut self.values, &mut self.free, value);
        self.numbers.insert(attributes.clone(), number);
        number
    }

    pub(super) fn give_back(&mut self, number: u32) {
        let value = &mut self.values[number as usize];
        value.users -= 1;
        if value.users == 0 {
            self.numbers.remove(&value.attributes);
            self.free.push(number);
            self.hops.give_back(value.hop);
        }
    }

    pub(super) fn get(&self, number: u32) -> &Arc<Attributes> {
        &self.values[number as usize].attributes
    }

    /// The number of their next hop.
    pub(super) fn hop_of(&self, number: u32) -> u32 {
        self.values[number as usize].hop
    }

    /// The next hop of these attributes.
    pub(super) fn hop(&self, number: u32) -> &Hop {
        self.hops.get(self.hop_of(number))
    }

    /// How many different attributes there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// How many different next hops there are.
    pub(super) fn hop_count(&self) -> usize {
        self.hops.numbers.len()
    }

    /// Panics where counts and what is there disagree; `users` is how many paths have each attributes.
    pub(super) fn check(&self, users: &HashMap<u32, u32>) {
        let mut hops: HashMap<u32, u32> = HashMap::new();
        for (number, value) in self.values.iter().enumerate() {
            let number = number as u32;
            assert_eq!(users.get(&number).copied().unwrap_or(0), value.users, "attributes {number}");
            if value.users > 0 {
                assert_eq!(self.numbers.get(&value.attributes), Some(&number), "attributes {number}");
                assert_eq!(self.hops.get(value.hop).address, value.attributes.next_hop);
                *hops.entry(value.hop).or_default() += 1;
            }
        }
        for (number, hop) in self.hops.values.iter().enumerate() {
            let number = number as u32;
            assert_eq!(hops.get(&number).copied().unwrap_or(0), hop.users, "next hop {}", hop.address);
            let known = self.hops.numbers.get(&hop.address) == Some(&number);
            assert!(hop.users == 0 || known, "next hop {}", hop.address);
        }
    }
}
