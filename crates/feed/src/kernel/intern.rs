//! Values stored once and named by a number: a million routes have a handful of paths.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Values and their numbers, which stay while the value does.
pub(super) struct Interner<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Option<Arc<T>>>,
    free: Vec<u32>,
}

impl<T: Eq + Hash> Interner<T> {
    pub(super) fn new() -> Self {
        Interner { numbers: HashMap::new(), values: Vec::new(), free: Vec::new() }
    }

    /// The number of `value`, and whether it is new.
    pub(super) fn intern(&mut self, value: T) -> (u32, bool) {
        if let Some(&number) = self.numbers.get(&value) {
            return (number, false);
        }
        let value = Arc::new(value);
        let number = match self.free.pop() {
            Some(number) => {
                self.values[number as usize] = Some(value.clone());
                number
            }
            None => {
                self.values.push(Some(value.clone()));
                (self.values.len() - 1) as u32
            }
        };
        self.numbers.insert(value, number);
        (number, true)
    }

    pub(super) fn number_of(&self, value: &T) -> Option<u32> {
        self.numbers.get(value).copied()
    }

    pub(super) fn get(&self, number: u32) -> Option<&Arc<T>> {
        self.values.get(number as usize)?.as_ref()
    }

    /// One more than the largest number so far.
    pub(super) fn end(&self) -> usize {
        self.values.len()
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<T>)> {
        self.values.iter().enumerate().filter_map(|(number, value)| Some((number as u32, value.as_ref()?)))
    }

    /// Forgets the values that are not in use.
    pub(super) fn keep(&mut self, in_use: impl Fn(u32) -> bool) {
        for number in 0..self.values.len() as u32 {
            if !in_use(number)
                && let Some(value) = self.values[number as usize].take()
            {
                self.numbers.remove(&value);
                self.free.push(number);
            }
        }
    }
}
