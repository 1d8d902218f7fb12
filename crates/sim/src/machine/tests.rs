//! Behaviour by behaviour: plateaus, merging, bandwidth, distance, snoops, locks, the window.

use super::core::Core;
use super::memory::{LINE, Memory};
use super::{Config, Step, Time};
use tidemill_cachesim::random::Random;

fn machine() -> (Config, Memory) {
    let config = Config::skylake_sp();
    let memory = Memory::new(&config);
    (config, memory)
}

/// Cycles per load of a chain through `bytes`, each line once in a random order, again and again.
fn chase(config: &Config, bytes: u64, loads: usize) -> f64 {
    let mut memory = Memory::new(config);
    let base = memory.pages.allot(bytes);
    let mut order: Vec<u64> = (0..bytes / LINE).collect();
    let mut random = Random::new(5);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    memory.untimed(|memory| {
        order.iter().for_each(|line| {
            memory.load(0, base + line * LINE, 8, 0);
        })
    });
    let mut core = Core::new(&memory, 0);
    let (mut at, mut from, warm) = (0, 0, order.len().min(loads));
    for (i, line) in order.iter().cycle().take(warm + loads).enumerate() {
        if i == warm {
            from = at;
        }
        at = core.load(&mut memory, base + line * LINE, 8, at);
    }
    config.cycles(at - from) / loads as f64
}

#[test]
fn a_pointer_chase_has_a_plateau_for_every_level() {
    let config = Config { cores: 1, ..Config::skylake_sp() };
    assert!((chase(&config, 16 << 10, 2000) - 4.0).abs() < 0.01);
    assert!((chase(&config, 512 << 10, 10_000) - 14.0).abs() < 0.5);
    // From a corner of the mesh 3 hops on average, there and back: 54 + 8.
    assert!((chase(&config, 8 << 20, 10_000) - 62.0).abs() < 1.0, "{}", chase(&config, 8 << 20, 10_000));
    // 90 ns and the same way.
    let small = Config { cache: super::config::CacheConfig { llc_kib: 2048, ..config.cache }, ..config };
    let dram = chase(&small, 32 << 20, 10_000);
    assert!((dram - (189.0 + 8.0)).abs() < 3.0, "{dram}");
}

#[test]
fn loads_of_a_line_that_is_on_its_way_wait_for_it_and_ask_once() {
    let (config, mut memory) = machine();
    let first = memory.load(0, 4096, 8, 0);
    let counts = memory.counts;
    // Another word of the line, a little later; the next line.
    assert_eq!(memory.load(0, 4096 + 8, 8, config.ps(10.0)), first);
    assert_eq!((memory.counts.merged, memory.counts.dram), (1, counts.dram));
    assert!(memory.load(0, 4096 + 64, 8, config.ps(10.0)) > config.ps(150.0));
    // When it is there it is in L1.
    assert_eq!(memory.load(0, 4096, 8, first), first + config.ps(4.0));
}

/// Others find it in its slice, not before it is there.
#[test]
fn others_wait_for_a_line_that_is_on_its_way_from_dram() {
    let (config, mut memory) = machine();
    let line = 77;
    let home = memory.mesh().home(line);
    let there = memory.near_load(home, line * LINE, 8, 0);
    assert!(config.cycles(there) > 130.0, "{}", config.cycles(there));
    // An accelerator, a core, and one whose turn comes later, for a time at which nobody had asked.
    assert_eq!(memory.near_load(home, line * LINE, 8, config.ps(20.0)), there);
    let way = memory.to_slice_ps(3, home);
    assert_eq!(memory.load(3, line * LINE, 8, config.ps(30.0)), there + way);
    assert_eq!((memory.counts.merged, memory.counts.dram), (2, 1));
    // After that it is where it is.
    assert_eq!(memory.near_load(home, line * LINE, 8, there), there + config.ps(8.0));
    let (_, mut memory) = machine();
    let late = memory.near_load(home, line * LINE, 8, config.ps(1000.0));
    let early = memory.near_load(home, line * LINE, 8, 0);
    assert!(early < late && config.cycles(early) > 130.0, "{}", config.cycles(early));
}

/// Ten times as many as there are MSHRs, so that those that are done are forgotten several times (at four times as many).
#[test]
fn no_more_lines_are_on_their_way_than_there_are_mshrs() {
    let (config, mut memory) = machine();
    let (most, times) = (config.cache.mshr, 10);
    let mut done: Vec<Time> = (0..(times * most) as u64).map(|i| memory.load(0, i * 4096, 8, 0)).collect();
    done.sort_unstable();
    let cycles: Vec<f64> = done.iter().map(|&at| config.cycles(at)).collect();
    assert!(cycles[19] < 250.0 && cycles[20] > 350.0 && cycles[40] > 530.0, "{cycles:?}");
    // Twenty at a time, each of 90 ns (189 cycles) or more: the first of the next twenty is there only after theirs.
    for n in 0..times {
        assert!(cycles[n * most] > 188.0 * (n + 1) as f64, "{n}: {cycles:?}");
    }
    // Nor do they wait for what has long been done.
    assert!(cycles[times * most - 1] < 250.0 * times as f64, "{cycles:?}");
}

#[test]
fn bandwidth_is_that_of_the_channels() {
    let mut config = Config::skylake_sp();
    config.dram.channels = 2;
    let mut memory = Memory::new(&config);
    // 16 cores ask for a line each in every cycle: far more than two channels pass.
    let (mut last, lines) = (0, 8000);
    for i in 0..lines {
        let at = config.ps((i / 16) as f64);
        last = last.max(memory.near_load(i % 16, i as u64 * LINE, 8, at));
    }
    let bytes_per_ns = (lines as u64 * LINE) as f64 / (last as f64 / 1e3);
    let theory = 2.0 * 19.2;
    assert!(bytes_per_ns < theory && bytes_per_ns > 0.9 * theory, "{bytes_per_ns} GB/s of {theory}");
}

#[test]
fn distance_costs_hops() {
    let (config, mut memory) = machine();
    for line in 0..200_u64 {
        memory.untimed(|memory| memory.load(15, line * LINE, 8, 0));
        memory.device_write(line * LINE, 64);
        let home = memory.mesh().home(line);
        let hops = memory.mesh().hops(0, home) as f64;
        // Far apart in time, so that nothing waits.
        let at = config.ps(1000.0 * (line + 1) as f64);
        let load = config.cycles(memory.load(0, line * LINE, 8, at) - at);
        assert!((load - (54.0 + 2.0 * hops * 4.0 / 3.0)).abs() < 0.1, "{hops} hops: {load}");
        let near = config.cycles(memory.near_load(0, line * LINE, 8, at + config.ps(500.0)) - at) - 500.0;
        assert!((near - (8.0 + 2.0 * hops * 4.0 / 3.0)).abs() < 0.1, "{hops} hops: {near}");
    }
}

#[test]
fn lines_that_others_have_changed_are_snooped_and_those_written_are_taken_away() {
    let (_, mut memory) = machine();
    let stored = memory.store(3, 640, 8, 0);
    assert_eq!(memory.counts.snoops, 0);
    let read = memory.load(0, 640, 8, stored);
    assert_eq!(memory.counts.snoops, 1);
    // Both may read it now; a write takes it from the other one.
    let misses = memory.counts.l2_misses;
    memory.load(3, 640, 8, read);
    assert_eq!(memory.counts.l2_misses, misses);
    memory.store(0, 640, 8, read);
    memory.load(3, 640, 8, read * 2);
    assert_eq!((memory.counts.snoops, memory.counts.l2_misses), (2, misses + 2));
    // An accelerator gets what the core has changed.
    memory.store(0, 640, 8, read * 3);
    memory.near_load(7, 640, 8, read * 4);
    assert_eq!(memory.counts.snoops, 3);
}

#[test]
fn the_books_agree_whatever_happens() {
    let mut config = Config::skylake_sp();
    // Small caches, so that lines go.
    (config.cores, config.slices, config.mesh.columns) = (4, 4, 2);
    (config.cache.l1_kib, config.cache.l2_kib, config.cache.llc_kib) = (1, 4, 16);
    let mut memory = Memory::new(&config);
    let mut random = Random::new(11);
    let mut at = 0;
    for i in 0..20_000 {
        let (who, line) = (random.below(4) as usize, random.below(400));
        at += random.below(20_000);
        match random.below(8) {
            0..3 => memory.load(who, line * LINE, 8, at),
            3..5 => memory.store(who, line * LINE, 8, at),
            5 => memory.near_load(who, line * LINE, 8, at),
            6 => memory.near_store(who, line * LINE, 8, at),
            _ => {
                memory.device_write(line * LINE, 8);
                0
            }
        };
        if i % 50 == 0 {
            memory.check(0..400).unwrap_or_else(|error| panic!("after {i}: {error}"));
        }
    }
    assert!(memory.counts.snoops > 100 && memory.counts.dram > 1000);
}

#[test]
fn a_writer_waits_for_a_lock_and_a_reader_does_not() {
    let (config, mut memory) = machine();
    memory.untimed(|memory| memory.load(1, 6400, 8, 0));
    let free = memory.store(2, 6400, 8, config.ps(100.0));
    memory.lock(100, config.ps(1000.0), config.ps(3000.0));
    // Before the lock, and after.
    assert!(config.cycles(memory.store(3, 6400, 8, config.ps(500.0))) < 700.0);
    assert!(config.cycles(memory.load(4, 6400, 8, config.ps(1100.0))) < 1300.0);
    let waited = memory.store(5, 6400, 8, config.ps(1200.0));
    assert!(waited >= config.ps(3000.0) && waited < config.ps(3200.0), "{}", config.cycles(waited));
    // It tries again every 20 cycles.
    let tries = memory.counts.retries;
    assert!((85..=90).contains(&tries), "{tries}");
    assert!(free < config.ps(300.0));
    // Two locks on a line end with the last.
    memory.lock(100, config.ps(5000.0), config.ps(5100.0));
    memory.lock(100, config.ps(5050.0), config.ps(5400.0));
    assert!(memory.store(6, 6400, 8, config.ps(5010.0)) >= config.ps(5400.0));
    // Of two that are apart the time between is free, in whichever order they are said; other lines are free at all times.
    memory.lock(100, config.ps(9000.0), config.ps(9500.0));
    memory.lock(100, config.ps(7000.0), config.ps(7500.0));
    let took = |memory: &mut Memory, core, line: u64, at: f64| {
        config.cycles(memory.store(core, line * LINE, 8, config.ps(at))) - at
    };
    assert!(took(&mut memory, 7, 100, 7010.0) > 450.0);
    assert!(took(&mut memory, 8, 100, 8000.0) < 200.0);
    assert!(took(&mut memory, 9, 100, 9010.0) > 450.0);
    assert!(took(&mut memory, 10, 101, 9010.0) < 400.0);
}

/// Eight lookups at once through a large table lock more lines in a millisecond than are looked through at each new one.
#[test]
fn locks_of_late_are_kept_without_being_looked_through_each_time() {
    let (_, mut memory) = machine();
    const LATE: u64 = 300_000;
    (0..LATE).for_each(|n| memory.lock(n, 1000 * n, 1000 * n + 500));
    let (kept, next) = memory.locks();
    assert!(kept == LATE as usize && next > kept, "{kept} {next}");
    // Long after, they go when there are so many, and few are looked through again.
    let long = 2_000_000_000;
    (LATE..2 * LATE).for_each(|n| memory.lock(n, long + 100 * n, long + 100 * n + 50));
    let (kept, next) = memory.locks();
    assert!(kept == LATE as usize && next > kept, "{kept} {next}");
}

#[test]
fn the_window_holds_what_it_holds() {
    let (config, mut memory) = machine();
    let mut core = Core::new(&memory, 0);
    // Width.
    let ten = Step { instructions: 400.0, chain_cycles: 0.0, ..Step::default() };
    core.work(&mut memory, &ten, 0);
    assert!((config.cycles(core.now()) - 100.0).abs() < 1.5);
    // A chain is waited for by who needs it, and by nobody else.
    let slow = Step { instructions: 4.0, chain_cycles: 50.0, ..Step::default() };
    let (before, result) = (core.now(), core.work(&mut memory, &slow, 0));
    assert!(config.cycles(result - before) >= 50.0 && config.cycles(core.now() - before) < 3.0);
    // Behind a load from DRAM 192 instructions enter, and then none until it is done.
    let mut core = Core::new(&memory, 1);
    let done = core.load(&mut memory, 1 << 20, 8, 0);
    let fill = Step { instructions: 191.0, ..Step::default() };
    core.work(&mut memory, &fill, 0);
    assert!(core.now() < done);
    core.work(&mut memory, &Step { instructions: 4.0, ..Step::default() }, 0);
    assert!(core.now() >= done);
    // Stores: 128 of them.
    let mut core = Core::new(&memory, 2);
    for i in 0..128_u64 {
        core.store(&mut memory, (2 << 20) + i * 4096, 8, 0);
    }
    let before = core.now();
    assert!(config.cycles(before) < 40.0);
    core.store(&mut memory, 8 << 20, 8, 0);
    assert!(config.cycles(core.now()) > 150.0);
}

#[test]
fn a_wrong_guess_stops_the_program_until_it_is_decided() {
    let (config, mut memory) = machine();
    let mut core = Core::new(&memory, 0);
    let decided = config.ps(500.0);
    core.branch(0, false, decided);
    assert_eq!((core.now(), core.done.mispredicted), (0, 0));
    core.branch(0, true, decided);
    assert_eq!((core.now(), core.done.mispredicted), (decided + config.ps(16.0), 1));
    // Always the same is learnt; one in two is not.
    for _ in 0..10 {
        core.branch(1, true, 0);
    }
    assert_eq!(core.done.mispredicted, 2);
    let mut random = Random::new(1);
    let before = core.done.mispredicted;
    for _ in 0..1000 {
        core.branch(2, random.below(2) == 0, 0);
    }
    assert!((400..600).contains(&(core.done.mispredicted - before)));
    core.work(&mut memory, &Step::default(), 0);
}

#[test]
fn threads_of_a_core_share_its_front_end() {
    let (config, mut memory) = machine();
    let work = Step { instructions: 40.0, ..Step::default() };
    let mut threads = [Core::shared(&memory, 0, 2), Core::shared(&memory, 0, 2)];
    for _ in 0..100 {
        let i = usize::from(threads[1].now() < threads[0].now());
        threads[i].work(&mut memory, &work, 0);
    }
    // 4,000 instructions, four a cycle, for both together.
    let end = threads[0].now().max(threads[1].now());
    assert!((config.cycles(end) - 1000.0).abs() < 20.0, "{}", config.cycles(end));
}
