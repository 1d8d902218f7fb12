//! Queues of keys, linked through one array that has a place for every key of the log.
//!
//! ```text
//! nodes   key 0        key 1        key 2        ...       16 bytes each
//!         newer older  newer older  newer older
//!         soon         soon         soon
//!         queue mark   queue mark   queue mark
//! queue   newest -> older -> ... -> oldest
//! ```
//!
//! Keys are numbers from 0 (a log gives them out), so whether a key is kept, in which queue, and its neighbors there is one
//! load. A key is in one queue at most. Nothing is allocated after the start.
//!
//! The oldest key's node and its neighbor's lie anywhere, and where the one after them lies is known only when they are there: one wait for memory for each key that goes. So each node names the key that
//! came [`SOON`] keys behind it, which is asked for when it goes. That is a hint: where keys were taken out meanwhile it may name any.

use crate::Key;
use tidemill_lookup::prefetch::prefetch_read;

/// No key; a log has fewer.
pub(crate) const NONE: Key = Key::MAX;
/// In no queue.
const OUT: u8 = 0;
/// Evictions between asking for a node and taking it out: a hundred nanoseconds and more.
const SOON: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Node {
    newer: Key,
    older: Key,
    /// Of the same queue, pushed [`SOON`] keys later.
    soon: Key,
    queue: u8,
    mark: u8,
}

const _: () = assert!(size_of::<Node>() == 16, "what the picture says");

/// The places of all keys.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Node>);

/// A queue: where it begins and ends.
#[derive(Debug)]
pub(crate) struct Queue {
    newest: Key,
    oldest: Key,
    len: usize,
    id: u8,
    /// The keys that were pushed last, in turn, and whose turn it is.
    pushed: [Key; SOON],
    turn: usize,
}

impl Queue {
    /// An empty queue with a number of its own, from 1.
    pub(crate) fn new(id: u8) -> Self {
        Queue { newest: NONE, oldest: NONE, len: 0, id, pushed: [NONE; SOON], turn: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// [`NONE`] if it is empty.
    pub(crate) fn newest(&self) -> Key {
        self.newest
    }

    /// [`NONE`] if it is empty.
    pub(crate) fn oldest(&self) -> Key {
        self.oldest
    }

    pub(crate) fn id(&self) -> u8 {
        self.id
    }
}

impl Nodes {
    pub(crate) fn new(keys: usize) -> Self {
        Nodes(vec![Node { newer: NONE, older: NONE, soon: NONE, queue: OUT, mark: 0 }; keys])
    }

    #[inline]
    fn at(&self, key: Key) -> &Node {
        &self.0[key as usize]
    }

    #[inline]
    fn at_mut(&mut self, key: Key) -> &mut Node {
        &mut self.0[key as usize]
    }

    #[inline]
    pub(crate) fn prefetch(&self, key: Key) {
        prefetch_read(self.0.as_ptr().wrapping_add(key as usize));
    }

    /// The number of the queue that the key is in; 0: none.
    #[inline]
    pub(crate) fn queue(&self, key: Key) -> u8 {
        self.at(key).queue
    }

    #[inline]
    pub(crate) fn is_in(&self, queue: &Queue, key: Key) -> bool {
        self.at(key).queue == queue.id
    }

    #[inline]
    pub(crate) fn mark(&self, key: Key) -> u8 {
        self.at(key).mark
    }

    #[inline]
    pub(crate) fn set_mark(&mut self, key: Key, mark: u8) {
        self.at_mut(key).mark = mark;
    }

    /// The next newer key in the same queue, or [`NONE`].
    #[inline]
    pub(crate) fn newer(&self, key: Key) -> Key {
        self.at(key).newer
    }

    /// Puts a key that is in no queue at the newest end, with mark 0.
    #[inline]
    pub(crate) fn push(&mut self, queue: &mut Queue, key: Key) {
        debug_assert_eq!(self.at(key).queue, OUT, "a key is in one queue at most");
        *self.at_mut(key) = Node { newer: NONE, older: queue.newest, soon: NONE, queue: queue.id, mark: 0 };
        match queue.newest {
            NONE => queue.oldest = key,
            newest => self.at_mut(newest).newer = key,
        }
        queue.newest = key;
        queue.len += 1;
        let before = std::mem::replace(&mut queue.pushed[queue.turn], key);
        if before != NONE {
            self.at_mut(before).soon = key;
        }
        queue.turn = (queue.turn + 1) % SOON;
    }

    /// Takes a key out of the queue that it is in.
    #[inline]
    pub(crate) fn unlink(&mut self, queue: &mut Queue, key: Key) {
        let Node { newer, older, .. } = *self.at(key);
        debug_assert!(self.is_in(queue, key), "only from its own queue");
        match newer {
            NONE => queue.newest = older,
            newer => self.at_mut(newer).older = older,
        }
        match older {
            NONE => queue.oldest = newer,
            older => self.at_mut(older).newer = newer,
        }
        self.at_mut(key).queue = OUT;
        queue.len -= 1;
    }

    /// Takes the oldest key out.
    #[inline]
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<Key> {
        let oldest = queue.oldest;
        if oldest == NONE {
            return None;
        }
        self.prefetch(self.at(oldest).soon);
        self.unlink(queue, oldest);
        Some(oldest)
    }
}
