//! A set-associative cache with true LRU that keeps something for each line.

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Cache<T> {
    /// `sets * ways`, each set from most to least recently used.
    lines: Vec<(u64, T)>,
    ways: usize,
    sets: u64,
    /// The lowest bit of a line's number that chooses the set: where lines are spread over slices first, all of them do.
    hashed: bool,
}

const EMPTY: u64 = u64::MAX;

impl<T: Copy + Default> Cache<T> {
    /// An empty cache of this many lines in sets of `ways`; `hashed`: sets are chosen by a hash of all bits, as in the slices of a
    /// last-level cache.
    pub fn new(lines: usize, ways: usize, hashed: bool) -> Self {
        let ways = ways.clamp(1, lines.max(1));
        let sets = (lines / ways).max(1);
        Cache { lines: vec![(EMPTY, T::default()); sets * ways], ways, sets: sets as u64, hashed }
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [(u64, T)] {
        let set = if self.hashed {
            super::mesh::scaled(!line, self.sets as usize)
        } else {
            (line % self.sets) as usize
        };
        &mut self.lines[set * self.ways..][..self.ways]
    }

    /// The line, which becomes the most recently used.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<&mut T> {
        let set = self.set(line);
        let at = set.iter().position(|&(number, _)| number == line)?;
        set[..=at].rotate_right(1);
        Some(&mut set[0].1)
    }

    /// The line, whose age does not change.
    #[inline]
    pub fn peek(&mut self, line: u64) -> Option<&mut T> {
        self.set(line).iter_mut().find(|(number, _)| *number == line).map(|(_, kept)| kept)
    }

    /// Puts a line in that is not there; what went for it.
    #[inline]
    pub fn fill(&mut self, line: u64, kept: T) -> Option<(u64, T)> {
        let set = self.set(line);
        set.rotate_right(1);
        let gone = std::mem::replace(&mut set[0], (line, kept));
        (gone.0 != EMPTY).then_some(gone)
    }

    /// Takes a line out.
    #[inline]
    pub fn remove(&mut self, line: u64) -> Option<T> {
        let set = self.set(line);
        let at = set.iter().position(|&(number, _)| number == line)?;
        set[at..].rotate_left(1);
        let last = set.len() - 1;
        Some(std::mem::replace(&mut set[last], (EMPTY, T::default())).1)
    }

    /// Lines that are there.
    pub fn len(&self) -> usize {
        self.lines.iter().filter(|(number, _)| *number != EMPTY).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::random::Random;

    /// Each set a list, the most recently used first.
    #[test]
    fn it_does_what_lists_do() {
        for hashed in [false, true] {
            let mut cache: Cache<u32> = Cache::new(32, 4, hashed);
            let mut lists: Vec<Vec<(u64, u32)>> = vec![Vec::new(); 8];
            let mut random = Random::new(7);
            for i in 0..20_000 {
                let line = random.below(64);
                let set = if hashed { super::super::mesh::scaled(!line, 8) } else { (line % 8) as usize };
                let list = &mut lists[set];
                let at = list.iter().position(|&(number, _)| number == line);
                match (random.below(4), at) {
                    (0, at) => assert_eq!(cache.remove(line), at.map(|at| list.remove(at).1)),
                    (1, at) => assert_eq!(cache.peek(line).copied(), at.map(|at| list[at].1)),
                    (_, Some(at)) => {
                        let entry = list.remove(at);
                        list.insert(0, entry);
                        assert_eq!(cache.touch(line).copied(), Some(entry.1));
                    }
                    (_, None) => {
                        assert!(cache.touch(line).is_none());
                        list.insert(0, (line, i));
                        let gone = if list.len() > 4 { list.pop() } else { None };
                        assert_eq!(cache.fill(line, i), gone);
                    }
                }
            }
            assert_eq!(cache.len(), lists.iter().map(Vec::len).sum::<usize>());
        }
    }
}
