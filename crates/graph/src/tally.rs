//! Counters of a service: one registry of stable names, plain numbers in each worker, a board where it shows them.

/// Declares a service's counters once: variant, stable name, what it means for an operator. Makes in the calling module
///
/// A number that does not only grow is marked: `Flows = "flows" now: "flows in the table now"`.
///
/// * `Counter`, with `ALL`, `name`, `help` and `is_now`,
/// * `Counters`: a plain number for each, of one worker or the sum,
/// * `Board`: where a worker shows its numbers. One writes, anybody reads; the numbers are of one moment each.
#[macro_export]
macro_rules! counters {
    (@is_now) => { false };
    (@is_now now) => { true };
    ($($variant:ident = $name:literal $($now:ident)? : $help:literal,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Counter { $(#[doc = $help] $variant,)* }

        impl Counter {
            /// All of them, in order.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// One line for an operator.
            pub const fn help(self) -> &'static str {
                match self { $(Counter::$variant => $help,)* }
            }

            /// Whether it is what is so now, and not what has been counted since the start.
            pub const fn is_now(self) -> bool {
                match self { $(Counter::$variant => $crate::counters!(@is_now $($now)?),)* }
            }
        }

        /// Numbers of all counters.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Counters([u64; Counter::ALL.len()]);

        impl Default for Counters {
            fn default() -> Self {
                Counters([0; Counter::ALL.len()])
            }
        }

        impl Counters {
            /// One number.
            #[inline]
            pub fn get(&self, counter: Counter) -> u64 {
                self.0[counter as usize]
            }

            /// All of them, by their stable names, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + Clone + '_ {
                Counter::ALL.iter().map(|&counter| (counter.name(), self.get(counter)))
            }

            /// The same, each with whether it is what is so now.
            pub fn figures(&self) -> impl Iterator<Item = (&'static str, u64, bool)> + '_ {
                Counter::ALL.iter().map(|&counter| (counter.name(), self.get(counter), counter.is_now()))
            }

            /// All that are not zero, in order.
            pub fn nonzero(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
                Counter::ALL.iter().map(|&counter| (counter, self.get(counter))).filter(|&(_, n)| n > 0)
            }

            #[inline(always)]
            pub(crate) fn add(&mut self, counter: Counter, more: u64) {
                self.0[counter as usize] += more;
            }

            #[inline(always)]
            pub(crate) fn one(&mut self, counter: Counter) {
                self.add(counter, 1);
            }

            pub(crate) fn set(&mut self, counter: Counter, value: u64) {
                self.0[counter as usize] = value;
            }
        }

        /// Where a worker shows its numbers. One writes, anybody reads; the numbers are of one moment each.
        #[derive(Debug, Clone)]
        pub(crate) struct Board(
            ::std::sync::Arc<[::std::sync::atomic::AtomicU64; Counter::ALL.len()]>,
        );

        impl Default for Board {
            fn default() -> Self {
                Board(::std::sync::Arc::new(
                    [const { ::std::sync::atomic::AtomicU64::new(0) }; Counter::ALL.len()],
                ))
            }
        }

        impl Board {
            pub(crate) fn show(&self, counters: &Counters) {
                for (shown, &value) in self.0.iter().zip(&counters.0) {
                    shown.store(value, ::std::sync::atomic::Ordering::Relaxed);
                }
            }

            pub(crate) fn add_to(&self, sum: &mut Counters) {
                for (sum, shown) in sum.0.iter_mut().zip(self.0.iter()) {
                    *sum = sum.wrapping_add(shown.load(::std::sync::atomic::Ordering::Relaxed));
                }
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub)] // what the macro makes is its user's to show
mod tests {
    use std::collections::HashSet;

    counters! {
        Sheep = "sheep": "over the fence",
        Goats = "goats": "under it",
        Penned = "penned" now: "in the pen",
    }

    #[test]
    fn names_are_distinct_and_numbers_add_up() {
        let names: HashSet<_> = Counter::ALL.iter().map(|counter| (counter.name(), counter.help())).collect();
        assert_eq!(
            names,
            HashSet::from([("sheep", "over the fence"), ("goats", "under it"), ("penned", "in the pen")])
        );
        let mut counters = Counters::default();
        counters.add(Counter::Sheep, 3);
        counters.one(Counter::Goats);
        counters.set(Counter::Goats, counters.get(Counter::Goats) + 1);
        let (board, mut sum) = (Board::default(), Counters::default());
        board.show(&counters);
        board.add_to(&mut sum);
        board.add_to(&mut sum);
        assert_eq!(sum.nonzero().collect::<Vec<_>>(), [(Counter::Sheep, 6), (Counter::Goats, 4)]);
        assert_eq!(sum.iter().collect::<Vec<_>>(), [("sheep", 6), ("goats", 4), ("penned", 0)]);
        let now: Vec<_> = sum.figures().filter(|(.., is_now)| *is_now).collect();
        assert_eq!(now, [("penned", 0, true)]);
    }
}
