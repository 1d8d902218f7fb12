//! An out-of-order core, as its window: instructions enter in order, so many per cycle, as long as the reorder buffer and the queues have
//! room; they start when what they need is there; they leave in order.
//!
//! A program is a Rust function that calls [`Core::work`], [`Core::load`] and so on in program order and passes on the time at which
//! each value is there. What depends on nothing that is slow starts at once, however far behind the program is with other
//! things: that is what a window is for. A branch that was guessed wrong stops the program until it is decided.
//!
//! ```text
//! let key    = core.load(memory, key_address, 16, 0);
//! let hash   = core.work(memory, &mix.hash, key);               needs the key
//! let bucket = core.load(memory, bucket_address, 64, hash);     needs the hash; the next lookup's key does not
//! ```

use super::calendar::Time;
use super::memory::Memory;
use std::collections::VecDeque;

/// What some instructions are: counts by callgrind, and the length of their longest chain.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Step {
    /// Instructions, loads and stores among them.
    pub instructions: f64,
    /// Loads that find what they ask for in L1: the stack, another word of a line that has been loaded.
    pub loads: f64,
    /// Stores, likewise.
    pub stores: f64,
    /// Cycles from their input to their result.
    pub chain_cycles: f64,
}

impl Step {
    /// Two steps as one, one after the other.
    pub fn and(self, other: Step) -> Step {
        Step {
            instructions: self.instructions + other.instructions,
            loads: self.loads + other.loads,
            stores: self.stores + other.stores,
            chain_cycles: self.chain_cycles + other.chain_cycles,
        }
    }
}

/// Entries of a queue, each until it is let go; in order.
#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<(u32, Time)>,
    used: usize,
    room: usize,
}

impl Queue {
    fn with_room(room: usize) -> Self {
        Queue { room, ..Queue::default() }
    }

    /// When there is room for `n` more.
    fn wait(&mut self, n: usize, at: Time) -> Time {
        let mut at = at;
        while self.used + n > self.room {
            let Some((count, until)) = self.entries.pop_front() else { break };
            self.used -= count as usize;
            at = at.max(until);
        }
        at
    }

    fn put(&mut self, n: usize, until: Time) {
        self.entries.push_back((n as u32, until));
        self.used += n;
    }
}

/// What a core has done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Done {
    /// Instructions.
    pub instructions: f64,
    /// Branches that were guessed wrong.
    pub mispredicted: u64,
    /// Branches.
    pub branches: u64,
    /// Loads; no prefetches.
    pub loads: u64,
}

/// A hardware thread. See the [module](self).
#[derive(Debug)]
pub struct Core {
    /// Whose caches and front end it has.
    seat: usize,
    width: u64,
    mispredict_ps: Time,
    cycle_ps: f64,
    /// When the next instruction may enter.
    front: Time,
    /// Instructions that the current cycle still takes.
    left: u64,
    rob: Queue,
    loads: Queue,
    stores: Queue,
    retired: Time,
    /// Parts of instructions that are not whole yet.
    fraction: [f64; 3],
    guesses: [u8; 16],
    /// What it has done.
    pub done: Done,
}

impl Core {
    /// The only thread of a core.
    pub fn new(memory: &Memory, seat: usize) -> Self {
        Core::shared(memory, seat, 1)
    }

    /// One of `threads` hardware threads of a core: window and queues are divided among them, front end and caches shared.
    pub fn shared(memory: &Memory, seat: usize, threads: usize) -> Self {
        let config = memory.config();
        let part = |entries: usize| Queue::with_room(entries / threads.max(1));
        Core {
            seat,
            width: config.core.width,
            mispredict_ps: config.ps(config.core.mispredict_cycles),
            cycle_ps: 1e3 / config.ghz,
            front: 0,
            left: 0,
            rob: part(config.core.rob),
            loads: part(config.core.loads),
            stores: part(config.core.stores),
            retired: 0,
            fraction: [0.0; 3],
            guesses: [1; 16],
            done: Done::default(),
        }
    }

    /// Its core's number.
    pub fn seat(&self) -> usize {
        self.seat
    }

    /// Where it is in time: when the next instruction may enter.
    pub fn now(&self) -> Time {
        self.front
    }

    /// When all that it has begun is done.
    pub fn idle_at(&self) -> Time {
        self.retired.max(self.front)
    }

    /// Nothing enters before that.
    pub fn stall_until(&mut self, at: Time) {
        if at > self.front {
            (self.front, self.left) = (at, 0);
        }
    }

    /// Lets so many instructions enter, the last of them at the time returned.
    fn enter(&mut self, memory: &mut Memory, mut n: u64) -> Time {
        self.done.instructions += n as f64;
        while n > 0 {
            if self.left == 0 {
                self.front = memory.front(self.seat, self.front);
                self.left = self.width;
            }
            let some = n.min(self.left);
            let room = self.rob.wait(some as usize, self.front);
            if room > self.front {
                (self.front, self.left) = (room, 0);
                continue;
            }
            self.rob.put(some as usize, self.retired.max(self.front));
            self.left -= some;
            n -= some;
            if self.left == 0 {
                self.front += self.cycle_ps.round() as Time;
            }
        }
        self.front
    }

    /// The entry that has just entered leaves when it is done, and all before it.
    fn retire(&mut self, done: Time) {
        self.retired = self.retired.max(done);
        if let Some(last) = self.rob.entries.back_mut() {
            last.1 = self.retired;
        }
    }

    /// Whole instructions of what has gathered.
    fn whole(&mut self, i: usize, more: f64) -> u64 {
        self.fraction[i] += more;
        let whole = self.fraction[i] as u64;
        self.fraction[i] -= whole as f64;
        whole
    }

    /// Instructions without slow loads, whose input is there at `ready`: when their result is.
    pub fn work(&mut self, memory: &mut Memory, step: &Step, ready: Time) -> Time {
        let (n, loads) = (self.whole(0, step.instructions), self.whole(1, step.loads));
        let stores = self.whole(2, step.stores);
        self.done.loads += loads;
        let room = self.loads.wait(loads as usize, self.front);
        let room = self.stores.wait(stores as usize, room);
        self.stall_until(room);
        let entered = self.enter(memory, n);
        let result = ready.max(entered) + (step.chain_cycles * self.cycle_ps) as Time;
        self.retire(result);
        if loads > 0 {
            self.loads.put(loads as usize, self.retired);
        }
        if stores > 0 {
            self.stores.put(stores as usize, self.retired);
        }
        result
    }

    /// A load, whose address is there at `ready`: when its data is.
    pub fn load(&mut self, memory: &mut Memory, address: u64, bytes: u64, ready: Time) -> Time {
        let room = self.loads.wait(1, self.front);
        self.stall_until(room);
        let entered = self.enter(memory, 1);
        let done = memory.load(self.seat, address, bytes, entered.max(ready));
        self.done.loads += 1;
        self.retire(done);
        self.loads.put(1, self.retired);
        done
    }

    /// A prefetch: leaves at once, the line comes when it comes.
    pub fn prefetch(&mut self, memory: &mut Memory, address: u64, ready: Time) {
        let room = self.loads.wait(1, self.front);
        self.stall_until(room);
        let entered = self.enter(memory, 1);
        memory.load(self.seat, address, 1, entered.max(ready));
        self.retire(entered.max(ready));
        self.loads.put(1, self.retired);
    }

    /// A store, whose data and address are there at `ready`. It goes out when it has left the window; nothing waits for it but room in
    /// the store queue. When the line is the core's.
    pub fn store(&mut self, memory: &mut Memory, address: u64, bytes: u64, ready: Time) -> Time {
        let seat = self.seat;
        self.send(memory, ready, |memory, at| memory.store(seat, address, bytes, at))
    }

    /// What behaves like a store and is something else: LOOKUP_NB. `out` is called with the time at which it leaves the core, and says when
    /// its entry of the store queue is free again.
    pub fn send(
        &mut self,
        memory: &mut Memory,
        ready: Time,
        out: impl FnOnce(&mut Memory, Time) -> Time,
    ) -> Time {
        let room = self.stores.wait(1, self.front);
        self.stall_until(room);
        let entered = self.enter(memory, 1);
        self.retire(entered.max(ready));
        let done = out(memory, self.retired);
        let last = self.stores.entries.back().map_or(0, |&(_, until)| until);
        self.stores.put(1, done.max(last));
        done
    }

    /// What behaves like a load and is something else: LOOKUP_B, SNAPSHOT_READ. `out` is called with the time at which it leaves the core, and
    /// says when its value is there.
    pub fn ask(
        &mut self,
        memory: &mut Memory,
        ready: Time,
        out: impl FnOnce(&mut Memory, Time) -> Time,
    ) -> Time {
        let room = self.loads.wait(1, self.front);
        self.stall_until(room);
        let entered = self.enter(memory, 1);
        let done = out(memory, entered.max(ready));
        self.retire(done);
        self.loads.put(1, self.retired);
        done
    }

    /// A branch at one of 16 places in a program, decided at `ready`. Guessed by a counter of two bits for each place: keys are random, so
    /// histories tell nothing. A wrong guess lets nothing enter until the branch is decided, and some cycles more.
    pub fn branch(&mut self, place: usize, taken: bool, ready: Time) {
        let guess = &mut self.guesses[place % 16];
        let right = (*guess >= 2) == taken;
        *guess = if taken { (*guess + 1).min(3) } else { guess.saturating_sub(1) };
        self.done.branches += 1;
        if !right {
            self.mispredict(ready);
        }
    }

    /// A branch that was guessed wrong, decided at `ready`.
    pub fn mispredict(&mut self, ready: Time) {
        self.done.mispredicted += 1;
        self.stall_until(ready.max(self.front) + self.mispredict_ps);
    }
}
