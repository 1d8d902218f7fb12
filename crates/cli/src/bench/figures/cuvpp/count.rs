//! Questions to filters and to the FIB, cache misses, bytes.

use super::TRAFFIC;
use super::published::{Ask, Bloom, Cuckoo};
use super::shape::Shape;
use super::speed::rates;
use super::subject::{self, bloom_filter, cuckoo_filter, lookups};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::figures::Setting;
use crate::bench::figures::measure::Built;
use crate::progress::Progress;
use anyhow::Result;
use std::cell::RefCell;
use tidemill_lookup::cache::{CacheConfig, Hierarchy, LevelConfig, LevelStats};
use tidemill_lookup::probe::Recorder;
use tidemill_lpm::hashlengths::hash::hash;
use tidemill_lpm::{Prefix, Rib};

/// Prefixes of Tables II and III.
pub(super) const MANY: usize = 500_000;
/// Prefixes of Table IV, slots of Figure 12.
pub(super) const MILLION: usize = 1_000_000;
/// Prefixes of Figures 6, 7 and 10.
pub(super) const SIZES: [usize; 4] = [500_000, 1_000_000, 1_500_000, 2_000_000];

const STRUCTURE: &str = "structure";
/// The published filters, among structures.
const PUBLISHED: [&str; 2] = ["Bloom as published", "cuckoo as published"];

/// What a search of the lengths, the longest first, asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Profile {
    /// The filter, about one length each.
    pub(super) questions: u64,
    /// Hashes that the filter takes to answer.
    pub(super) hashes: u64,
    /// The FIB.
    pub(super) fib: u64,
    /// Of those, for nothing.
    pub(super) false_positives: u64,
}

/// The lengths of a table, the longest first.
fn lengths(rib: &Rib<u128>) -> Vec<u8> {
    let mut lengths: Vec<u8> = rib.iter().map(|(prefix, _)| prefix.len()).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.dedup();
    lengths
}

/// Searches for every key.
pub(super) fn profile_of(rib: &Rib<u128>, keys: &[u128], filter: &impl Ask) -> Profile {
    let lengths = lengths(rib);
    let mut profile = Profile::default();
    for &key in keys {
        for prefix in lengths.iter().filter_map(|&len| Prefix::new(key, len)) {
            let (maybe, hashes) = filter.ask(prefix);
            profile.questions += 1;
            profile.hashes += hashes;
            if maybe {
                profile.fib += 1;
                if rib.get(prefix).is_some() {
                    break;
                }
                profile.false_positives += 1;
            }
        }
    }
    profile
}

/// Hashes are buckets or words that the filter looks at: each is named by one.
fn counted(contains: impl Fn(u64, &Recorder) -> bool) -> impl Ask {
    move |prefix: Prefix<u128>| {
        let recorder = Recorder::new();
        let maybe = contains(hash(prefix), &recorder);
        (maybe, recorder.counts().reads)
    }
}

/// The filters that are counted: sound ones of the paper's size, and those of the published code. The first asks the FIB about
/// everything.
struct Filters {
    bloom: tidemill_lpm::bloomlpm::BloomFilter,
    cuckoo: tidemill_lpm::cuvpp::CuckooFilter<4>,
    published: (Bloom, Cuckoo),
}

impl Filters {
    fn new(rib: &Rib<u128>, seed: u64) -> Self {
        let prefixes = || rib.iter().map(|(prefix, _)| prefix);
        let (mut bloom, mut cuckoo) = (bloom_filter(), cuckoo_filter());
        for prefix in prefixes() {
            bloom.insert(hash(prefix), &());
            cuckoo.insert_always(hash(prefix), &());
        }
        Filters { bloom, cuckoo, published: (Bloom::new(prefixes()), Cuckoo::new(prefixes(), seed)) }
    }

    /// No filter, Bloom, cuckoo, Bloom and cuckoo as published.
    fn profiles(&self, rib: &Rib<u128>, keys: &[u128]) -> [Profile; 5] {
        let Filters { bloom, cuckoo, published } = self;
        [
            profile_of(rib, keys, &|_| (true, 0)),
            profile_of(rib, keys, &counted(|hash, probe| bloom.contains(hash, probe))),
            profile_of(rib, keys, &counted(|hash, probe| cuckoo.contains(hash, probe))),
            profile_of(rib, keys, &published.0),
            profile_of(rib, keys, &published.1),
        ]
    }
}

/// The drawing's frame, with what the table is instead of the user's. A title that says how many lookups there are says how many
/// there really are.
pub(super) fn frame(setting: &Setting<'_>, shape: &Shape, what: &str) -> Drawing {
    let table = format!("{}, {} lengths with the default route: {what}", shape.name, shape.lengths());
    let instead = setting.figure.instead_of;
    let drawing = setting.figure.drawing(setting);
    let title = match lookups(setting) {
        subject::LOOKUPS => drawing.title,
        fewer => drawing.title.replace("500,000 lookups", &format!("{fewer} lookups")),
    };
    Drawing { title, table: Some(format!("{table}; instead of {instead}")), ..drawing }
}

fn named(name: &str, y: f64, paper: Option<f64>) -> Point {
    Point { x: X::Name(name.to_owned()), y, paper }
}

/// Table II.
pub(super) fn questions(setting: &Setting<'_>, prefixes: usize) -> Result<Drawing> {
    // Filter, FIB and seconds, of Base VPP, VPP with Bloom, trie and cuckoo filter.
    const PAPER: [[f64; 3]; subject::PAPERS] = [
        [0.0, 16_987_150.0, 0.274_702],
        [16_987_150.0, 1_205_520.0, 0.240_861],
        [0.0, 500_000.0, 0.278_208],
        [16_987_150.0, 648_800.0, 0.219_023],
    ];
    const QUANTITIES: [&str; 4] = [
        "questions to the filter",
        "questions to the FIB",
        "questions to the FIB for nothing",
        "s for all lookups",
    ];
    let shape = Shape::rv_linx().or_of_table(setting);
    let rib = shape.table(prefixes, setting.args.seed);
    let built = subject::all(setting, &rib)?;
    let filters = Filters::new(&rib, setting.args.seed);
    let mut panels: Vec<Panel> =
        QUANTITIES.iter().map(|quantity| Panel::new(STRUCTURE, *quantity, Vec::new())).collect();
    for traffic in TRAFFIC {
        let keys = traffic.keys(&rib, lookups(setting), setting.args.seed);
        // The paper's numbers are of so many.
        let stated = |number: f64| (keys.len() == subject::LOOKUPS).then_some(number);
        let [base, bloom, cuckoo, published @ ..] = filters.profiles(&rib, &keys);
        // The trie knows the length: a question for each key that something matches, and a default route matches them all.
        let trie = Profile { fib: keys.len() as u64, ..Profile::default() };
        let base = Profile { questions: 0, false_positives: 0, ..base };
        let mut points: [Vec<Point>; 4] = Default::default();
        let of = [base, bloom, trie, cuckoo].into_iter().zip(&built).zip(PAPER);
        let of = of.map(|((profile, built), paper)| (built.name.as_str(), profile, paper));
        for (name, profile, paper) in
            of.chain([(PUBLISHED[0], published[0], PAPER[1]), (PUBLISHED[1], published[1], PAPER[3])])
        {
            points[0].push(named(name, profile.questions as f64, stated(paper[0])));
            points[1].push(named(name, profile.fib as f64, stated(paper[1])));
            // All lookups of the paper found something.
            let for_nothing = stated(paper[1] - 500_000.0).filter(|_| paper[0] > 0.0);
            points[2].push(named(name, profile.false_positives as f64, for_nothing));
        }
        let rates = rates(setting, &rib, &built, traffic, &keys)?;
        for (i, (built, rate)) in built.iter().zip(rates).enumerate() {
            let paper = PAPER.get(i).and_then(|paper| stated(paper[2]));
            points[3].push(named(&built.name, keys.len() as f64 / (rate * 1e6), paper));
        }
        for (panel, points) in panels.iter_mut().zip(points) {
            panel.series.push(Series { name: traffic.name().to_owned(), points });
        }
    }
    Ok(Drawing {
        panels,
        notes: vec![
            "the paper calls its keys prefix-compliant; its 34 questions for each lookup, with code that stops at the first match, are those \
             of keys that match nothing but the default route"
                .into(),
            "its questions to the FIB for nothing are those of filters that hash a part of the prefix only: as published, modelled here; \
             a sound filter of that size asks some hundreds of times for nothing"
                .into(),
        ],
        ..frame(setting, &shape, &format!("{} prefixes", rib.len()))
    })
}

/// Figure 10.
pub(super) fn profile(setting: &Setting<'_>, sizes: &[usize]) -> Result<Drawing> {
    // Of the authors' raw data, by size: hashes of Bloom and cuckoo filter; questions to the FIB of both, after Base VPP's.
    const HASHES: [[f64; 4]; 2] = [
        [16_338_760.0, 20_161_790.0, 23_794_810.0, 27_107_540.0],
        [15_858_400.0, 15_593_830.0, 15_473_470.0, 15_418_570.0],
    ];
    const FIB: [[f64; 4]; 3] = [
        [8_195_350.0, 8_075_990.0, 8_026_410.0, 8_007_850.0],
        [692_960.0, 953_300.0, 1_310_850.0, 1_724_740.0],
        [564_160.0, 616_820.0, 664_940.0, 704_220.0],
    ];
    const NAMES: [&str; 5] = ["hash-per-length", "bloom-lpm", "cuvpp", PUBLISHED[0], PUBLISHED[1]];
    let shape = Shape::dt_ip6().or_of_table(setting);
    let progress = Progress::new(setting.figure.name.to_owned(), (2 * sizes.len()) as u64);
    // By traffic, filter and size.
    let mut profiles = vec![vec![Vec::new(); NAMES.len()]; TRAFFIC.len()];
    for &size in sizes {
        let rib = shape.table(size, setting.args.seed);
        let filters = Filters::new(&rib, setting.args.seed);
        for (profiles, traffic) in profiles.iter_mut().zip(TRAFFIC) {
            progress.message(format!("{size} prefixes, {}", traffic.name()));
            let keys = traffic.keys(&rib, lookups(setting), setting.args.seed);
            for (profiles, profile) in profiles.iter_mut().zip(filters.profiles(&rib, &keys)) {
                profiles.push(profile);
            }
            progress.add(1);
        }
    }
    let stated = lookups(setting) == subject::LOOKUPS && sizes == SIZES;
    let mut panels = Vec::new();
    for (profiles, traffic) in profiles.iter().zip(TRAFFIC) {
        let series = |from: usize, of: fn(&Profile) -> u64, paper: &dyn Fn(usize) -> Option<[f64; 4]>| {
            let of_filter = |i: usize| {
                let paper = paper(i).filter(|_| stated);
                let points = sizes.iter().zip(&profiles[i]).enumerate();
                let point = points.map(move |(at, (&size, profile))| {
                    (size as f64 / 1e6, of(profile) as f64, paper.map(|paper| paper[at]))
                });
                Series::new(NAMES[i], point)
            };
            (from..NAMES.len()).map(of_filter).collect::<Vec<_>>()
        };
        // As published: what the paper has is of these.
        let hashes = series(1, |p| p.hashes, &|i| HASHES.get((i - 1) % 2).copied());
        let fib = series(0, |p| p.fib, &|i| FIB.get(if i < 3 { i } else { i - 2 }).copied());
        let y = |what: &str| format!("{what}, {}", traffic.name());
        panels.push(Panel::new(MILLIONS, y("hashes for the filter"), hashes));
        panels.push(Panel::new(MILLIONS, y("questions to the FIB"), fib));
    }
    Ok(Drawing {
        panels,
        notes: vec![
            "hashes: a cuckoo filter takes one or two to answer, a Bloom filter as many as it has bits, or up to the first that is not set; \
             questions, as in Table II, are fewer"
                .into(),
            "the paper's numbers: the authors' raw data, of which it draws the figure".into(),
        ],
        ..frame(setting, &shape, "of the sizes below")
    })
}

/// The axis of table sizes.
pub(super) const MILLIONS: &str = "millions of prefixes";

/// The caches of the paper's Xeon E5-2640 v4.
fn e5_2640() -> CacheConfig {
    let level = |size_bytes, ways| LevelConfig { size_bytes, ways };
    CacheConfig { line_bytes: 64, levels: vec![level(32 << 10, 8), level(256 << 10, 8), level(25 << 20, 20)] }
}

/// What the first and the last level saw of the last two thirds of the lookups.
fn modelled(built: &Built<u128>, keys: &[u128]) -> Result<(LevelStats, LevelStats, usize)> {
    let model = RefCell::new(Hierarchy::new(&e5_2640())?);
    let warm = keys.len() / 3;
    for (i, &key) in keys.iter().enumerate() {
        if i == warm {
            model.borrow_mut().reset_stats();
        }
        built.fib.lookup_probed(key, &model);
    }
    let stats = model.borrow().stats();
    let level = |level: Option<&LevelStats>| level.copied().unwrap_or_default();
    Ok((level(stats.first()), level(stats.last()), keys.len() - warm))
}

/// Table III.
pub(super) fn misses(setting: &Setting<'_>, prefixes: usize) -> Result<Drawing> {
    // References and misses.
    const PAPER: [[f64; 2]; subject::PAPERS] = [
        [209_668_571.0, 13_921_490.0],
        [240_289_331.0, 14_692_333.0],
        [176_937_686.0, 4_805_587.0],
        [166_405_389.0, 324_970.0],
    ];
    const QUANTITIES: [&str; 3] = [
        "cache lines asked for by a lookup",
        "misses of the last level of a lookup",
        "% of them that miss the last level",
    ];
    let shape = Shape::rv_linx().or_of_table(setting);
    let rib = shape.table(prefixes, setting.args.seed);
    let built = subject::all(setting, &rib)?;
    let progress = Progress::new(setting.figure.name.to_owned(), (TRAFFIC.len() * built.len()) as u64);
    let mut panels: Vec<Panel> =
        QUANTITIES.iter().map(|quantity| Panel::new(STRUCTURE, *quantity, Vec::new())).collect();
    for traffic in TRAFFIC {
        let keys = traffic.keys(&rib, 3 * lookups(setting) / 2, setting.args.seed);
        let mut points: [Vec<Point>; 3] = Default::default();
        for (i, built) in built.iter().enumerate() {
            progress.message(format!("{}, {}", built.name, traffic.name()));
            let (first, last, counted) = modelled(built, &keys)?;
            let asked = (first.hits + first.misses) as f64;
            let missed = last.misses as f64;
            let paper = PAPER.get(i).copied();
            let of_lookup = |at: usize| Some(paper?[at] / subject::LOOKUPS as f64);
            points[0].push(named(&built.name, asked / counted as f64, of_lookup(0)));
            points[1].push(named(&built.name, missed / counted as f64, of_lookup(1)));
            let paper = paper.map(|[asked, missed]| 100.0 * missed / asked);
            points[2].push(named(&built.name, 100.0 * missed / asked.max(1.0), paper));
            progress.add(1);
        }
        for (panel, points) in panels.iter_mut().zip(points) {
            panel.series.push(Series { name: traffic.name().to_owned(), points });
        }
    }
    Ok(Drawing {
        panels,
        notes: vec![
            "a model of the paper's Xeon E5-2640 v4 (32 KB, 256 KB, 25 MB; LRU, nothing fetched ahead), of the structures alone; the paper \
             counted with the processor, and its 330 to 480 references a lookup are of more than lookups"
                .into(),
        ],
        ..frame(setting, &shape, &format!("{} prefixes", rib.len()))
    })
}

/// Table IV.
pub(super) fn memory(setting: &Setting<'_>, prefixes: usize) -> Result<Drawing> {
    const MB: f64 = 1e6;
    // Of all of VPP, in the order of the structures; of a node of the trie.
    const PAPER: [f64; subject::PAPERS] = [4000.0, 4006.0, 4581.0, 4006.0];
    const NODE: f64 = 24.0;
    let shape = Shape::rv_linx().or_of_table(setting);
    let rib = shape.table(prefixes, setting.args.seed);
    let built = subject::all(setting, &rib)?;
    let stated = |number: f64| (prefixes == MILLION).then_some(number);
    let (mut parts, mut all, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for (i, built) in built.iter().enumerate() {
        let name = built.name.as_str();
        all.push(named(name, built.fib.bytes() as f64 / MB, PAPER.get(i).and_then(|&mb| stated(mb))));
        let (filter, trie) = (built.detail("filter_bytes"), built.detail("trie_bytes"));
        if filter > 0.0 {
            // Those that are ours have the paper's too, which has none of them.
            parts.push(named(name, filter / MB, PAPER.get(i).and_then(|_| stated(6.0))));
        }
        if trie > 0.0 {
            let count = built.detail("nodes");
            parts.push(named(name, trie / MB, None));
            parts.push(named(&format!("{name}, {NODE} bytes a node"), NODE * count / MB, stated(581.0)));
            nodes.push(named(name, count, stated(24_212_583.0)));
        }
    }
    let series = |points| vec![Series { name: format!("{} prefixes", rib.len()), points }];
    Ok(Drawing {
        panels: vec![
            Panel::new(STRUCTURE, "MB of the filter or the trie", series(parts)),
            Panel::new(STRUCTURE, "MB in all", series(all)),
            Panel::new(STRUCTURE, "nodes of the trie", series(nodes)),
        ],
        notes: vec![
            "the paper's MB in all are of a whole VPP; ours of the structure. The paper does not say of which of its tables they are".into(),
        ],
        ..frame(setting, &shape, &format!("{} prefixes", rib.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::cuvpp::subject::Traffic;
    use tidemill_lpm::bloomlpm::BloomLpm;
    use tidemill_lpm::cuvpp::CuVpp;
    use tidemill_lpm::hashlengths::{HashPerLength, Trace};

    /// What is counted with the RIB is what the structures do.
    #[test]
    fn profiles_are_the_structures_own() {
        let rib = Shape::rv_linx().table(3_000, 1);
        let filters = Filters::new(&rib, 1);
        for traffic in TRAFFIC {
            let keys = traffic.keys(&rib, 2_000, 1);
            let profiles = filters.profiles(&rib, &keys);
            let (base, bloom, cuckoo) = (
                HashPerLength::plain(&rib),
                BloomLpm::build(&rib, bloom_filter()),
                CuVpp::build(&rib, cuckoo_filter()),
            );
            let traces = [Trace::default(), Trace::default(), Trace::default()];
            for &key in &keys {
                base.lookup_traced(key, &traces[0]);
                bloom.lookup_traced(key, &traces[1]);
                cuckoo.lookup_traced(key, &traces[2]);
            }
            for (i, (profile, trace)) in profiles.iter().zip(&traces).enumerate() {
                assert_eq!(profile.fib, trace.fib_probes(), "{i}");
                if i > 0 {
                    assert_eq!(profile.questions, trace.filter_probes(), "{i}");
                    assert_eq!(profile.false_positives, trace.false_positives(), "{i}");
                }
            }
            for profile in &profiles[1..] {
                assert_eq!(profile.questions, profiles[0].questions, "a filter changes nothing about it");
                assert_eq!(
                    profile.fib,
                    keys.len() as u64 + profile.false_positives,
                    "something matches every key"
                );
                assert!(profile.hashes > profile.questions);
            }
        }
    }

    /// Keys that match nothing ask for all lengths; keys inside prefixes stop on the way.
    #[test]
    fn the_paper_s_34_questions_are_those_of_keys_that_match_nothing() {
        let shape = Shape::rv_linx();
        let rib = shape.table(20_440, 1);
        let questions = |traffic: Traffic| {
            profile_of(&rib, &traffic.keys(&rib, 1_000, 1), &|_: Prefix<u128>| (true, 0)).fib as f64 / 1_000.0
        };
        assert!(questions(Traffic::Random) > 33.9 && questions(Traffic::Inside) < 15.0);
    }
}
