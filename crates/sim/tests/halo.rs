//! The accelerators, behaviour by behaviour; programs; figures at small sizes.
#![allow(clippy::unwrap_used)] // a test may

use tidemill_flow::keystore::Keystore;
use tidemill_sim::halo::tcam::{Kind, Tcam};
use tidemill_sim::halo::{Accelerators, Destination, Query};
use tidemill_sim::log::Log;
use tidemill_sim::machine::config::Distributor;
use tidemill_sim::machine::memory::LINE;
use tidemill_sim::machine::{Config, Core, Memory, Time};
use tidemill_sim::mix::{FLOWTABLE, KEYSTORE, RTE_HASH, TABLE_1};
use tidemill_sim::program::{self, Lookup, Parts, Results, Software, WHOLE};
use tidemill_sim::study::run::{Asking, Outcome, Series, replay, single};
use tidemill_sim::study::scale::{self, Case};
use tidemill_sim::study::tuples::{self, Where};
use tidemill_sim::study::{self, FIGURES, Figure, Options, Place, Point, functions, hybrid, misses};
use tidemill_sim::tape::{Tape, Touch};
use tidemill_sim::workload::Filled;

fn machine() -> (Config, Memory, Accelerators) {
    let config = Config::skylake_sp();
    let (memory, halo) = (Memory::new(&config), Accelerators::new(&config));
    (config, memory, halo)
}

fn read(address: u64, dependent: bool) -> Touch {
    Touch::Read { address, bytes: 16, dependent }
}

fn query(table: u64, touches: &[Touch]) -> Query<'_> {
    Query { table, key: 1 << 20, key_bytes: 16, masked: false, touches, to: Destination::Register }
}

fn in_llc(memory: &mut Memory, addresses: &[u64]) {
    addresses.iter().for_each(|&address| memory.device_write(address, 1));
}

#[test]
fn a_lone_query_takes_the_sum_of_its_parts() {
    let (config, mut memory, mut halo) = machine();
    let (table, bucket, entry) = (4096, 8192, 12_288);
    in_llc(&mut memory, &[table, 1 << 20, bucket, entry]);
    let touches = [Touch::Step, read(bucket, false), read(entry, true)];
    let query = query(table, &touches);
    let slice = halo.slice_of(&query);
    // The table's description is fetched once.
    let first = halo.lookup(&mut memory, 0, 0, &query).done;
    let from = config.ps(10_000.0);
    let again = halo.lookup(&mut memory, 0, from, &query).done - from;
    let mesh = *memory.mesh();
    let near = |address: u64| config.ps(8.0) + 2 * mesh.travel_ps(slice, mesh.home(address / LINE));
    let way = config.ps(16.0) + mesh.travel_ps(0, slice);
    let steps = 3 + 2; // metadata, key, hash; one for each line compared
    let expected = 2 * way
        + near(1 << 20)
        + near(bucket)
        + near(entry)
        + config.ps(6.0) // the hash of two words
        + 2 * config.ps(1.0)
        + steps * config.ps(1.0);
    assert!(again.abs_diff(expected) < 10, "{again} {expected}");
    assert!((first - again).abs_diff(near(table)) < 10, "{first}: {again} and {}", near(table));
    assert_eq!((halo.activity.queries, halo.activity.metadata_misses, halo.activity.compares), (2, 1, 4));
}

/// An entry that lies on two lines goes through the comparators twice; two parts of an entry on one line together.
#[test]
fn each_line_is_compared() {
    let (config, mut memory, mut halo) = machine();
    let (one, two) = (8192, 12_288 + LINE - 8);
    in_llc(&mut memory, &[4096, 1 << 20, one, two, two + 8]);
    let mut ask = |touches: &[Touch], at: f64| {
        let before = halo.activity.compares;
        halo.lookup(&mut memory, 0, config.ps(at), &query(4096, touches));
        halo.activity.compares - before
    };
    assert_eq!(ask(&[read(one, false)], 0.0), 1);
    assert_eq!(ask(&[read(two, false)], 10_000.0), 2);
    assert_eq!(ask(&[read(one, false), read(one + 16, true)], 20_000.0), 1);
    assert_eq!(ask(&[read(one, false), read(two, true), read(one, true)], 30_000.0), 4);
}

#[test]
fn the_scoreboard_holds_ten_and_the_busy_bit_holds_back_the_rest() {
    let (config, mut memory, mut halo) = machine();
    let touches = [read(8192, false)];
    in_llc(&mut memory, &[4096, 1 << 20, 8192]);
    halo.lookup(&mut memory, 0, 0, &query(4096, &touches));
    let at = config.ps(5000.0);
    let answers: Vec<_> = (0..25).map(|_| halo.lookup(&mut memory, 0, at, &query(4096, &touches))).collect();
    let same =
        |range: std::ops::Range<usize>| range.into_iter().all(|i| answers[i].accepted == answers[0].accepted);
    assert!(same(0..10) && answers[10].accepted > answers[0].accepted);
    assert_eq!(halo.activity.held_back, 15);
    // The eleventh begins when the first has ended, and its dispatch has come.
    let way = 2 * memory.to_slice_ps(0, answers[0].slice);
    assert!(answers[10].accepted + way >= answers[0].done && answers[20].accepted > answers[10].accepted);
    // Hashes are pipelined: ten that come together do not take ten times as long.
    assert!(answers[9].done - answers[0].done < config.ps(40.0));
}

#[test]
fn one_table_is_one_slice_unless_keys_decide() {
    let (config, mut memory, mut halo) = machine();
    let touches = [read(8192, false)];
    let slices = |halo: &Accelerators, table: &dyn Fn(u64) -> u64, key: &dyn Fn(u64) -> u64| {
        let mut all: Vec<usize> =
            (0..200).map(|i| halo.slice_of(&Query { key: key(i), ..query(table(i), &touches) })).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    assert_eq!(slices(&halo, &|_| 4096, &|i| i * 64), 1);
    assert_eq!(slices(&halo, &|i| i * 64, &|_| 0), 16);
    let by_key = config.with("halo.distributor", "key").unwrap();
    assert_eq!(by_key.halo.distributor, Distributor::Key);
    assert_eq!(slices(&Accelerators::new(&by_key), &|_| 4096, &|i| i * 64), 16);
    halo.lookup(&mut memory, 0, 0, &query(4096, &touches));
}

#[test]
fn by_the_bucket_a_query_goes_where_its_line_is() {
    let config = Config::skylake_sp().with("halo.distributor", "bucket").unwrap();
    let (mut memory, mut halo) = (Memory::new(&config), Accelerators::new(&config));
    in_llc(&mut memory, &[4096, 1 << 20]);
    for i in 0..64_u64 {
        let bucket = (2 << 20) + i * LINE;
        let touches = [Touch::Step, read(bucket, false)];
        in_llc(&mut memory, &[bucket]);
        let query = query(4096, &touches);
        let answer = halo.lookup(&mut memory, 5, config.ps(1000.0 * i as f64), &query);
        assert_eq!((answer.slice, halo.slice_of(&query)), (memory.mesh().home(bucket / LINE), answer.slice));
    }
    // The description once and keys always come to the core's own tile; buckets are at home.
    let key_elsewhere = memory.mesh().home((1 << 20) / LINE) != 5;
    let description_elsewhere = memory.mesh().home(4096 / LINE) != 5;
    let expected = 64 * u64::from(key_elsewhere) + u64::from(description_elsewhere);
    assert_eq!((memory.counts.near, memory.counts.near_elsewhere), (129, expected));
    assert_eq!((halo.activity.metadata_misses, halo.activity.hashes, halo.activity.queries), (1, 64, 64));
}

#[test]
fn ten_descriptions_are_kept_and_a_write_takes_one_away() {
    let (_, mut memory, mut halo) = machine();
    // Tables whose queries go to one slice.
    let home = halo.slice_of(&query(0, &[]));
    let tables: Vec<u64> =
        (0..).map(|i| i * 64).filter(|&table| halo.slice_of(&query(table, &[])) == home).take(11).collect();
    let mut round = |halo: &mut Accelerators, n: usize| {
        let before = halo.activity.metadata_misses;
        tables[..n].iter().for_each(|&table| {
            halo.lookup(&mut memory, 0, 0, &query(table, &[]));
        });
        halo.activity.metadata_misses - before
    };
    assert_eq!((round(&mut halo, 10), round(&mut halo, 10)), (10, 0));
    // Eleven in turn are never there under LRU.
    assert_eq!((round(&mut halo, 11), round(&mut halo, 11)), (11 - 10, 11));
    // A core writes to a description: read for ownership.
    assert_eq!((round(&mut halo, 10), round(&mut halo, 10)), (10, 0));
    memory.store(3, tables[2], 8, 0);
    let (misses, lost) = (halo.activity.metadata_misses, halo.activity.metadata_lost);
    halo.lookup(&mut memory, 0, 0, &query(tables[2], &[]));
    assert_eq!((halo.activity.metadata_misses - misses, halo.activity.metadata_lost - lost), (1, 1));
}

#[test]
fn a_writer_to_a_locked_bucket_waits_for_the_query_and_without_locks_does_not() {
    let (config, mut memory, mut halo) = machine();
    let touches = [read(8192, false), read(64 << 10, true)];
    in_llc(&mut memory, &[4096, 1 << 20, 8192, 64 << 10]);
    halo.lookup(&mut memory, 0, 0, &query(4096, &touches));
    let mut write_beside = |locking: bool, at: Time| {
        halo.locking = locking;
        let done = halo.lookup(&mut memory, 0, at, &query(4096, &touches)).done;
        // As the query has its bucket, and an entry to come.
        let write = at + config.ps(15.0);
        (memory.store(9, 8192, 8, write) - write, done - at)
    };
    let (free, _) = write_beside(false, config.ps(10_000.0));
    let (held, query) = write_beside(true, config.ps(20_000.0));
    assert!(memory.counts.retries > 0 && held > free + config.ps(10.0), "{free} {held} of {query}");
}

#[test]
fn results_are_seen_when_all_eight_are_there_and_snapshots_take_no_line() {
    let (_, mut memory, mut halo) = machine();
    let mut core = Core::new(&memory, 0);
    let mut results = Results::new(&mut memory, 4);
    let touches = [read(8192, false)];
    in_llc(&mut memory, &[4096, 1 << 20, 8192]);
    let lookup = Lookup { table: 4096, key: 1 << 20, key_bytes: 16, masked: true, touches: &touches };
    let one = program::blocking(&mut core, &mut memory, &mut halo, &lookup, 0, true);
    let mut last = core.now();
    let mut took = Vec::new();
    for n in [1, 8, 20] {
        let lookups = vec![lookup; n];
        let done = program::nonblocking(&mut core, &mut memory, &mut halo, &mut results, &lookups, last);
        took.push(done - last);
        last = done;
    }
    assert_eq!(halo.activity.queries, 1 + 29);
    // Eight at once cost little more than one, and one costs more than LOOKUP_B: results go through memory.
    assert!(took[0] > one && took[1] < 2 * took[0] && took[2] > took[1], "{one} {took:?}");
    let misses = memory.counts.l2_misses;
    memory.snapshot(0, 8192, last);
    assert_eq!(memory.counts.l2_misses, misses);
    memory.load(0, 8192, 8, last);
    assert_eq!(memory.counts.l2_misses, misses + 1);
}

#[test]
fn a_tcam_takes_its_cycles_and_the_way() {
    let (config, memory, _) = machine();
    let took = |kind| Tcam::new(&config, kind).lookup(&memory, 0, 0);
    // In the middle of the mesh: two columns and two rows from the corner.
    let way = config.ps(16.0) + 4 * config.ps(4.0 / 3.0);
    assert_eq!(took(Kind::Tcam), 2 * way + config.ps(4.0));
    assert_eq!(took(Kind::Sram), 2 * way + config.ps(6.0));
}

#[test]
fn software_executes_what_was_counted() {
    for (mix, tolerance) in [(RTE_HASH, 1.0), (TABLE_1, 1.0), (KEYSTORE, 1.0), (FLOWTABLE, 1.0)] {
        for (touches, buckets, entries) in [
            (vec![Touch::Step, read(8192, false), read(64 << 10, true)], 1.0, 1.0),
            (vec![Touch::Step, read(8192, false), Touch::Step, read(9000, false)], 2.0, 0.0),
        ] {
            let (_, mut memory, _) = machine();
            let mut core = Core::new(&memory, 0);
            let mut software = Software::new(mix, WHOLE);
            let lookup = Lookup { table: 0, key: 0, key_bytes: 16, masked: false, touches: &touches };
            for _ in 0..1000 {
                software.lookup(&mut core, &mut memory, &lookup, 0);
            }
            // The key's load is the lookup's too.
            let each = core.done.instructions / 1000.0 - 1.0;
            let counted = mix.instructions(buckets, entries);
            assert!((each - counted).abs() < tolerance, "{}: {each} {counted}", mix.name);
        }
    }
}

fn small() -> Options {
    Options { lookups: 1600, warm: 1600, most: 10, ..Options::default() }
}

fn table(slots: u64) -> (Memory, Filled<Keystore<2>>) {
    let mut memory = Memory::new(&Config::skylake_sp());
    let table = Filled::new(&mut memory, slots, slots * 9 / 10, 1).unwrap();
    (memory, table)
}

fn outcome(series: Series, slots: u64, asking: Asking) -> Outcome {
    let (memory, table) = table(slots);
    single(memory, &table, series, &small(), asking)
}

#[test]
fn runs_are_the_same_every_time_and_on_any_number_of_threads() {
    for series in
        [Series::Software(RTE_HASH), Series::Blocking, Series::NonBlocking(8), Series::Batch(KEYSTORE)]
    {
        let one = outcome(series, 4096, Asking::default());
        assert_eq!(outcome(series, 4096, Asking::default()), one);
        assert_eq!(one.lookups, 1600);
    }
    let figure = |jobs| {
        study::single::figure(&Options { jobs, lookups: 320, warm: 320, most: 6, ..small() }, &|_, _| {})
    };
    assert_eq!(figure(1).unwrap(), figure(4).unwrap());
}

#[test]
fn who_waits_for_each_lookup_is_never_quicker_and_parts_never_cost_less_than_nothing() {
    for series in [Series::Software(RTE_HASH), Series::Software(KEYSTORE), Series::Window] {
        let ns = |asking| outcome(series, 1 << 14, asking).ns();
        let free = ns(Asking::default());
        let serial = Asking { serial: true, ..Asking::default() };
        assert!(ns(serial) >= free * 0.999, "{series:?}");
        let none = Asking { parts: Parts { data: false, ..WHOLE }, placed: Some(true), ..serial };
        let llc = Asking { placed: Some(true), ..serial };
        let dram = Asking { placed: Some(false), ..serial };
        let times = [ns(none), ns(llc), ns(dram)];
        assert!(times.is_sorted(), "{series:?}: {times:?}");
    }
}

/// Groups count as a whole: where fewer lookups are asked for, the first group after the warm ones does.
#[test]
fn fewer_lookups_than_a_group_are_a_group() {
    let options = Options { lookups: 3, warm: 5, ..small() };
    let (memory, table) = table(1 << 10);
    for (series, group) in
        [(Series::Software(RTE_HASH), 3), (Series::NonBlocking(8), 8), (Series::Batch(KEYSTORE), 32)]
    {
        let outcome = single(memory.clone(), &table, series, &options, Asking::default());
        assert_eq!(outcome.lookups, group, "{series:?}");
        assert!(outcome.ns() > 1.0, "{series:?}: {outcome:?}");
    }
}

/// More tables than all metadata caches hold, in turn: each has a description of its own, which is fetched every time.
#[test]
fn every_table_of_a_log_has_a_description() {
    let (_, memory, _) = machine();
    let mut log = Log::default();
    (0..3000).for_each(|table| log.push(table, &[Touch::Step, read(4096, false)]));
    let options = Options { lookups: 3000, warm: 3000, ..small() };
    let outcome = replay(memory, &log, Series::Blocking, &options, Asking::default());
    assert_eq!((outcome.activity.queries, outcome.activity.metadata_misses), (3000, 3000));
}

#[test]
fn a_log_is_run_as_the_table_that_wrote_it() {
    let (mut memory, table) = table(1 << 12);
    let (mut log, tape) = (Log::default(), Tape::default());
    let mut random = tidemill_cachesim::random::Random::new(small().seed);
    for _ in 0..3200 {
        table.ask(random.below(table.len), &tape);
        log.push(9, &tape.take_raw());
    }
    // The table's own run has the same lookups; its description lies elsewhere, so a distance or two differ.
    for series in [Series::Software(RTE_HASH), Series::Blocking] {
        let own = single(memory.clone(), &table, series, &small(), Asking::default());
        let replayed = replay(memory.clone(), &log, series, &small(), Asking::default());
        assert_eq!((own.lookups, own.activity.queries), (replayed.lookups, replayed.activity.queries));
        assert!((own.ns() / replayed.ns() - 1.0).abs() < 0.1, "{} {}", own.ns(), replayed.ns());
    }
    memory.check(0..1000).unwrap();
    let empty = replay(
        memory,
        &Log::default(),
        Series::Blocking,
        &Options { lookups: 5, warm: 0, ..small() },
        Asking::default(),
    );
    assert_eq!(empty.counts.near_elsewhere + empty.lookups, empty.counts.near_elsewhere + 5);
}

#[test]
fn the_figures_have_their_shape() {
    // Who wins, and where that changes, each lookup waiting for the one before.
    let serial = Asking { serial: true, ..Asking::default() };
    let ns = |series, slots| outcome(series, slots, serial).ns();
    assert!(ns(Series::Software(RTE_HASH), 8) < ns(Series::Blocking, 8), "software is ahead in L1");
    assert!(ns(Series::Software(RTE_HASH), 1 << 17) > ns(Series::Blocking, 1 << 17), "not in the LLC");
    let tcam = ns(Series::Tcam(Kind::Tcam), 1 << 12);
    assert!(tcam < ns(Series::Tcam(Kind::Sram), 1 << 12) && tcam < ns(Series::Blocking, 1 << 12));

    // Tuple space: LOOKUP_NB gains with tuples, LOOKUP_B does not; TCAM is ahead of all.
    let of = |tuples: usize, series| {
        let options = Options { lookups: 300, warm: 300, ..small() };
        let mut memory = Memory::new(&options.config);
        let tables: Vec<Filled<Keystore<2>>> = tuples::tables(&mut memory, tuples, &options).unwrap();
        tuples::run(memory, &tables, series, 1, Where::Last, &options)
    };
    let gain = |tuples, series| of(tuples, Series::Software(RTE_HASH)) / of(tuples, series);
    let (few, many) = (gain(5, Series::NonBlocking(8)), gain(20, Series::NonBlocking(8)));
    assert!(many > 2.0 * few && few > 1.5, "{few} {many}");
    assert!((gain(20, Series::Blocking) / gain(5, Series::Blocking) - 1.0).abs() < 0.2);
    assert!(gain(20, Series::Tcam(Kind::Tcam)) > many);

    // Functions.
    let gain = |function, beside| {
        let ns = |series| functions::run::<Keystore<2>>(function, 1000, series, beside, &small()).unwrap();
        ns(Series::Software(RTE_HASH)) / ns(Series::NonBlocking(8))
    };
    for function in functions::ALL {
        let gains = [0.0, 400.0, 1600.0].map(|beside| gain(function, beside));
        assert!(gains[0] > gains[1] && gains[1] > gains[2] && gains[2] > 1.0, "{function:?}: {gains:?}");
    }

    // One table is one accelerator's, however many cores; by key it is everybody's.
    let rate = |distributor| {
        let case = Case { cores: 16, own: false, distributor: Some(distributor) };
        scale::run(case, &Options { lookups: 800, ..small() }).unwrap()
    };
    let (table, key) = (rate(Distributor::Table), rate(Distributor::Key));
    let bucket = rate(Distributor::Bucket);
    assert!(bucket.0 > 2.0 * table.0 && bucket.1 < 20.0, "{table:?} {bucket:?}");
    assert!(key.0 > 2.0 * table.0 && table.1 > 50.0 && key.1 < 20.0, "{table:?} {key:?}");

    // The hybrid is whichever is better where that is clear.
    let of = |policy, flows| hybrid::run(policy, flows, &small()).unwrap();
    assert!(of(hybrid::Policy::Hybrid, 8).1 > 0.99);
    assert!(of(hybrid::Policy::Hybrid, 16_384).1 < 0.01);
}

/// The paper's bend is at ten entries, ours behind 2^14: it gives L1 as the reason, and our software has L2 too. The same lookups with their lines in
/// the LLC, where it says its tables are, are quicker by the accelerator at any size.
#[test]
fn software_is_ahead_where_its_lines_are_its_own() {
    let serial = Asking { serial: true, ..Asking::default() };
    let in_llc = Asking { placed: Some(true), ..serial };
    for slots in [16, 1 << 10] {
        let ns =
            |asking| [Series::Software(RTE_HASH), Series::Blocking].map(|of| outcome(of, slots, asking).ns());
        let [[software, halo], [far_software, far_halo]] = [ns(serial), ns(in_llc)];
        assert!(software < halo, "{slots}: {software} {halo}");
        assert!(far_software > 1.5 * far_halo, "{slots}: {far_software} {far_halo}");
    }
}

/// The paper's LOOKUP_NB is a little behind LOOKUP_B and TCAM; ours is ahead of both in small tables. Its eight lookups overlap, while the core waits for each of theirs:
/// alone it is behind, and where LOOKUP_B overlaps, that is ahead.
#[test]
fn eight_at_once_are_ahead_because_they_overlap() {
    let ns = |series, serial| outcome(series, 1 << 12, Asking { serial, ..Asking::default() }).ns();
    let eight = Series::NonBlocking(8);
    let [of_eight, blocking, tcam] =
        [eight, Series::Blocking, Series::Tcam(Kind::Tcam)].map(|series| ns(series, true));
    assert!(of_eight < tcam && tcam < blocking, "{of_eight} {tcam} {blocking}");
    let alone = ns(Series::NonBlocking(1), true);
    assert!(alone > blocking, "{alone} {blocking}");
    let [of_eight, window] = [eight, Series::Window].map(|series| ns(series, false));
    assert!(window < of_eight, "{window} {of_eight}");
}

#[test]
fn a_single_hash_function_misses_where_two_do_not() {
    let mut options = Options { lookups: 3000, warm: 6000, ..small() };
    // 70,000 flows: 2.8 MiB with two hash functions, 5 MiB with one.
    (options.config.cache.l2_kib, options.config.cache.llc_kib) = (256, 4096);
    let of = |kind| misses::misses(kind, 70_000, &options).unwrap();
    let (cuckoo, sfh) = (of(misses::Kind::Cuckoo), of(misses::Kind::Sfh));
    assert!(sfh.buckets < 1.001 && cuckoo.buckets > 1.05, "{cuckoo:?} {sfh:?}");
    assert!(sfh.by_thousand[1] > 3.0 * cuckoo.by_thousand[1] + 1.0, "{cuckoo:?} {sfh:?}");
    assert!(sfh.stalled[1] > 2.0 * cuckoo.stalled[1].max(1.0), "{cuckoo:?} {sfh:?}");
    // Most loads miss nothing, whatever the table: a lookup has some fifty, of which two are for its lines.
    assert!(cuckoo.by_thousand[0] < 100.0 && cuckoo.stalled[0] > 10.0, "{cuckoo:?}");
}

/// Makes a figure, which says after each of its steps how far it is.
fn made(figure: &Figure, options: &Options) -> Vec<Point> {
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |done: usize, of: usize| told.lock().unwrap().push((done, of));
    let points = (figure.make)(options, &tell).unwrap();
    let mut told = told.into_inner().unwrap();
    told.sort_unstable();
    let steps: Vec<_> = (1..=told.len()).map(|done| (done, told.len())).collect();
    // These two are there at once.
    let is_at_once = ["halo-table1", "halo-8b"].contains(&figure.name);
    assert!(told == steps && (told.len() > 3 || is_at_once), "{}: {told:?}", figure.name);
    points
}

#[test]
fn every_figure_can_be_made() {
    // Any seed will do, the last one too.
    let options = Options { lookups: 160, warm: 80, most: 4, jobs: 2, seed: u64::MAX, ..Options::default() };
    // The largest of these take seconds even so: `tidemill sim halo --figure` makes them.
    let quick = ["halo-table1", "halo-8b", "halo-9", "halo-10", "halo-11"];
    for figure in FIGURES.iter().filter(|figure| quick.contains(&figure.name)) {
        let points = made(figure, &options);
        assert!(points.iter().all(|point| point.y.is_finite()) && points.len() > 10, "{}", figure.name);
    }
    let table4 = FIGURES.iter().find(|figure| figure.name == "halo-table4").unwrap();
    let points = made(table4, &options);
    let at = |x: f64, series: &str| {
        let point = points.iter().find(|point| {
            point.panel == "energy relative to HALO's by rules"
                && point.x == Place::Number(x)
                && point.series == series
        });
        point.unwrap().clone()
    };
    let quotient = at(100_000.0, "tcam, dynamic");
    assert_eq!((quotient.paper, (quotient.y - 48.2).abs() < 0.05), (Some(48.2), true));
    assert!(at(100_000.0, "tcam, with static").y < quotient.y);
}

/// Texts that were right until some bytes changed: each is refused with one line, or is what it says.
#[test]
fn any_text_is_a_log_or_a_machine_or_is_refused_with_one_line() {
    let mut random = tidemill_cachesim::random::Random::new(4);
    let log =
        "lookup 1\nstep\nread 0x7f0000001000 64\nread 0x7f0000402340 24 dependent\nwrite 4096 8 # done\n";
    let machine = Config::zen_4().to_toml();
    let (mut logs, mut machines) = (0, 0);
    for _ in 0..4000 {
        for text in [log, machine.as_str()] {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(3) {
                    0 => bytes[at] = b" \n0x9fg.-#[]=\""[random.below(14) as usize],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"0179 e"[random.below(6) as usize]),
                }
            }
            let text = String::from_utf8(bytes).unwrap();
            let said = match Log::parse(&text) {
                Ok(log) => {
                    logs += 1;
                    assert_eq!(Log::parse(&log.text()), Ok(log));
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            assert!(!said.contains('\n'), "{said}");
            let said = match Config::from_toml(&text) {
                Ok(config) => {
                    machines += 1;
                    assert_eq!(Config::from_toml(&config.to_toml()), Ok(config));
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            assert!(!said.contains('\n'), "{said}");
        }
    }
    assert!(logs > 100 && machines > 100, "{logs} {machines}");
}
