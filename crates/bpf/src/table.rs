//! Maps of values by key, written and read many entries at a time where the kernel can.

use crate::object::to_io;
use crate::sys;
use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapError};
use std::borrow::BorrowMut;
use std::io;
use std::os::fd::AsFd;

/// A map of values by key.
pub struct Table<T, K, V> {
    map: HashMap<T, K, V>,
    data: OwnedMap,
}

/// A second handle on the same map, for the calls that take many entries.
struct OwnedMap(std::os::fd::OwnedFd);

/// A hand of its own on a map, that takes entries out and does nothing else: for another thread than the one that has the
/// [`Object`](crate::Object), without a lock. One system call for each entry.
#[derive(Debug)]
pub struct Remover<K> {
    map: std::os::fd::OwnedFd,
    key: std::marker::PhantomData<fn(K)>,
}

impl<K: Pod> Remover<K> {
    /// Of a map whose keys are `K`: the caller has looked.
    pub(crate) fn new(map: std::os::fd::OwnedFd) -> Self {
        Remover { map, key: std::marker::PhantomData }
    }

    /// Removes an entry, and says whether there was one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&self, key: &K) -> io::Result<bool> {
        sys::remove(self.map.as_fd(), key)
    }
}

/// How far a map has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor(Option<u32>);

impl<'a, K: Pod, V: Pod> Table<&'a mut MapData, K, V> {
    pub(crate) fn new(map: &'a mut Map) -> io::Result<Self> {
        let fd = match map {
            Map::HashMap(data) | Map::LruHashMap(data) => data.fd().as_fd().try_clone_to_owned()?,
            _ => return Err(io::Error::other("the map is no hash table")),
        };
        Ok(Table { map: HashMap::try_from(map).map_err(to_io)?, data: OwnedMap(fd) })
    }
}

impl<T: BorrowMut<MapData>, K: Pod, V: Pod> Table<T, K, V> {
    /// The value of a key.
    ///
    /// # Errors
    /// The system refuses.
    pub fn get(&self, key: &K) -> io::Result<Option<V>> {
        match self.map.get(key, 0) {
            Ok(value) => Ok(Some(value)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(to_io(error)),
        }
    }

    /// Writes an entry.
    ///
    /// # Errors
    /// The map is full (`E2BIG`), or there is no memory.
    pub fn insert(&mut self, key: &K, value: &V) -> io::Result<()> {
        self.map.insert(key, value, 0).map_err(to_io)
    }

    /// Gives an entry that is there another value, in one step; says whether it was there. One that is not stays out.
    ///
    /// # Errors
    /// The system refuses; there is no memory.
    pub fn replace(&mut self, key: &K, value: &V) -> io::Result<bool> {
        match self.map.insert(key, value, EXIST).map_err(to_io) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes an entry that is not there yet; says whether that was so.
    ///
    /// # Errors
    /// The map is full (`E2BIG`), or there is no memory.
    pub fn insert_new(&mut self, key: &K, value: &V) -> io::Result<bool> {
        match self.map.insert(key, value, NO_EXIST).map_err(to_io) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry and gives what it was then, in one step (Linux 5.14); into `value`, which is of the map's size. Says whether
    /// there was one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take(&mut self, key: &K, value: &mut V) -> io::Result<bool> {
        sys::take(self.data.0.as_fd(), key, value)
    }

    /// All keys; of those that come or go meanwhile some may be missed.
    ///
    /// # Errors
    /// The system refuses.
    pub fn keys(&self) -> io::Result<Vec<K>> {
        self.map.keys().collect::<Result<_, _>>().map_err(to_io)
    }

    /// A hand on this map for another thread.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn remover(&self) -> io::Result<Remover<K>> {
        Ok(Remover::new(self.data.0.try_clone()?))
    }

    /// Removes an entry, and says whether there was one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&mut self, key: &K) -> io::Result<bool> {
        match self.map.remove(key).map_err(to_io) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes entries, in order, and gives the number of those that were written: fewer than were given if one did not
    /// fit, or could not be written for another reason.
    pub fn insert_many(&mut self, keys: &[K], values: &[V]) -> usize {
        let count = keys.len().min(values.len());
        let (keys, values) = (&keys[..count], &values[..count]);
        match sys::update_many(self.data.0.as_fd(), keys, values) {
            _ if count == 0 => 0,
            Ok(()) => count,
            Err((_, error)) if is_unknown(&error) => {
                keys.iter().zip(values).take_while(|(key, value)| self.insert(key, value).is_ok()).count()
            }
            Err((done, _)) => done.min(count),
        }
    }

    /// Removes entries, whether they are there or not; gives the number of those that were.
    pub fn remove_many(&mut self, keys: &[K]) -> usize {
        let (mut removed, mut rest) = (0, keys);
        while !rest.is_empty() {
            match sys::remove_many(self.data.0.as_fd(), rest) {
                Ok(()) => return removed + rest.len(),
                // It stops at one that is not there.
                Err((done, error)) if error.raw_os_error() == Some(libc::ENOENT) && done < rest.len() => {
                    removed += done;
                    rest = &rest[done + 1..];
                }
                Err(_) => {
                    return removed + rest.iter().filter(|key| self.remove(key).unwrap_or(false)).count();
                }
            }
        }
        removed
    }

    /// Reads some of the entries behind `cursor` into `out`, and where to go on: at the start again after the last (and
    /// then `true`). Entries that come or go meanwhile may be missed.
    ///
    /// # Errors
    /// The system refuses.
    pub fn read_some(&self, cursor: Cursor, out: &mut Vec<(K, V)>) -> io::Result<(Cursor, bool)>
    where
        K: Default,
        V: Default,
    {
        let mut room = PAGE;
        loop {
            let (mut keys, mut values) = (vec![K::default(); room], vec![V::default(); room]);
            match sys::read_many(self.data.0.as_fd(), cursor.0, &mut keys, &mut values) {
                Ok((count, next)) => {
                    out.extend(keys.into_iter().zip(values).take(count));
                    return Ok((Cursor(next), next.is_none()));
                }
                // More of them lie in one place than there is room for.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < PAGE * 64 => room *= 4,
                Err(error) if is_unknown(&error) => {
                    for entry in self.map.iter() {
                        out.push(entry.map_err(to_io)?);
                    }
                    return Ok((Cursor(None), true));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// `BPF_NOEXIST`.
const NO_EXIST: u64 = 1;
/// `BPF_EXIST`.
const EXIST: u64 = 2;
/// Entries that are read at a time.
const PAGE: usize = 4096;

/// Whether a kernel before 5.6 does not know a command.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}
