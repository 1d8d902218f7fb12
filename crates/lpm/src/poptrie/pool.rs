//! Space for arrays of up to 64 elements, by the number of the first: which are free, which never were used.

use crate::fib::Outgrown;

/// The bookkeeping of one table.
pub(super) struct Pool {
    what: &'static str,
    /// Elements from here on have never been used.
    fresh: usize,
    capacity: usize,
    /// Free runs by their length.
    free: Vec<Vec<u32>>,
}

impl Pool {
    /// A pool whose first `used` elements are taken.
    pub(super) fn new(what: &'static str, used: usize, capacity: usize) -> Self {
        Pool { what, fresh: used, capacity, free: vec![Vec::new(); super::SLOTS + 1] }
    }

    /// Room for `count` elements in a row.
    pub(super) fn take(&mut self, count: usize) -> Result<u32, Outgrown> {
        if count == 0 {
            return Ok(0);
        }
        if let Some(first) = self.free[count].pop() {
            return Ok(first);
        }
        if self.fresh + count <= self.capacity {
            self.fresh += count;
            return Ok((self.fresh - count) as u32);
        }
        // The smallest run that is longer, cut in two.
        let longer = (count + 1..self.free.len()).find(|&len| !self.free[len].is_empty());
        let run = longer.and_then(|len| self.free[len].pop().map(|first| (first, len)));
        let Some((first, len)) = run else {
            return Err(Outgrown { what: format!("all {} {} are in use", self.capacity, self.what) });
        };
        self.give(first + count as u32, len - count);
        Ok(first)
    }

    /// Takes back what nobody can see any more.
    pub(super) fn give(&mut self, first: u32, count: usize) {
        if count > 0 {
            self.free[count].push(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_used_again_and_cut_when_nothing_else_is_left() {
        let mut pool = Pool::new("leaves", 10, 20);
        assert_eq!((pool.take(0), pool.take(6), pool.take(3)), (Ok(0), Ok(10), Ok(16)));
        assert_eq!(
            pool.take(2).unwrap_err().to_string(),
            "all 20 leaves are in use: the structure must be rebuilt"
        );
        pool.give(10, 6);
        assert_eq!((pool.take(1), pool.take(2)), (Ok(19), Ok(10)), "a fresh one before a cut");
        assert_eq!((pool.take(4), pool.take(1).is_err()), (Ok(12), true));
    }
}
