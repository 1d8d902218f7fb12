//! The tiers that are `cargo test`: which test binaries belong to which tier, and the reading of what they print.
//!
//! A tier is a set of test targets, told apart by name: `real_*` (files named by TIDEMILL_DATA),
//! `root_*` (network namespaces), `loom*` (the model checker), everything else; `concurrent*` belongs there too, and is
//! repeated under ThreadSanitizer. A test that finds that it cannot run prints `skipped: NAME (why)` and returns; it counts
//! as skipped, not as passed.

use super::{Totals, lanes};
use crate::{env, proc, python};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Features without which tests are empty: they are off in the default build. One set for all tiers that are built without optimisation: with
/// another, half of the workspace would be built twice.
const FEATURES: &str = "tidemill-amp/xdp,tidemill-router/xdp,tidemill-gatekeeper/xdp,tidemill-port/xdp,tidemill-port/dpdk,tidemill-grantor/lua,tidemill-cli/dpdk,tidemill-cli/lua";

/// The same where there is no DPDK: a C++ compiler is all that these want.
const FEATURES_WITHOUT_DPDK: &str = "tidemill-grantor/lua,tidemill-cli/lua";

/// Crates whose own tests, which have no file of a tier's name, are run under ThreadSanitizer too: published roots.
const SANITIZED: &[&str] = &["tidemill-lookup"];

/// Variables for cargo, for a build that is unlike the others.
type Variables = Vec<(&'static str, OsString)>;

/// An integration test file of the workspace.
struct Target {
    package: String,
    name: String,
    source: PathBuf,
}

pub(crate) fn unit() -> Result<Totals> {
    let features = ["--features", features()].map(str::to_owned);
    let arguments = [&units()?[..], &features[..]].concat();
    let mut totals = cargo_test(&arguments, &python::variable().into_iter().collect())?;
    let doc = [&["--workspace".to_owned(), "--doc".to_owned()], &features[..]].concat();
    totals += cargo_test(&doc, &Vec::new())?;
    Ok(totals)
}

/// Names every test of the tier `unit`.
fn units() -> Result<Vec<String>> {
    // No examples: they have no tests, and that they compile is clippy's to say.
    let mut arguments = vec!["--workspace".to_owned(), "--lib".to_owned(), "--bins".to_owned()];
    arguments.extend(named(&targets(|name| !is_real(name) && !is_root(name) && !is_loom(name))?));
    Ok(arguments)
}

/// Builds what `unit` and `root` run, by all processors: while it runs there is other work for them.
pub(super) fn build() -> Result<()> {
    let mut arguments = units()?;
    if rootless().is_none() {
        arguments.extend(named(&targets(is_root)?));
    }
    arguments.extend(["--features", features()].map(str::to_owned));
    proc::check(test_command(&arguments, &Vec::new()).arg("--no-run"))
}

/// All features that can be built here.
fn features() -> &'static str {
    let has_dpdk = proc::output(Command::new("pkg-config").args(["--exists", "libdpdk"])).is_ok();
    if has_dpdk { FEATURES } else { FEATURES_WITHOUT_DPDK }
}

/// The command as the tests build it, with what is off by default. It is built with a test of its own, as in their tiers: what `cargo build` makes
/// has other features of dependencies, and would be a build of half the workspace.
pub(super) fn tidemill() -> Result<PathBuf> {
    let mut build = env::cargo();
    build.args([
        "test",
        "--quiet",
        "--workspace",
        "--no-run",
        "--features",
        features(),
        "--test",
        "root_grantor",
    ]);
    proc::check(&mut build)?;
    Ok(env::target_dir().join("debug").join("tidemill"))
}

/// What walks full routing tables for minutes is optimised; the others are built already.
const OPTIMISED: &str = "tidemill-lpm";

pub(crate) fn real() -> Result<Totals> {
    let why = env::data().is_none().then_some("TIDEMILL_DATA is not set");
    let python = python::variable();
    let (long, short): (Vec<_>, Vec<_>) =
        targets(is_real)?.into_iter().partition(|target| target.package == OPTIMISED);
    let flags = ["--workspace", "--exclude", OPTIMISED, "--features", features()];
    let mut totals = tier(&short, why, &flags, &python.into_iter().collect())?;
    totals += tier(&long, why, &["--package", OPTIMISED, "--release"], &Vec::new())?;
    Ok(totals)
}

/// Two binaries at a time: each is a `cargo test` of its own, which finds everything built.
pub(crate) fn root() -> Result<Totals> {
    let (targets, why) = (targets(is_root)?, rootless());
    let (skipped, expected) = expected(&targets, why)?;
    if why.is_some() || targets.is_empty() {
        return Ok(skipped);
    }
    let flags = ["--workspace", "--features", FEATURES];
    build_tests(&targets, &flags, &Vec::new())?;
    let totals = lanes::run(&names(&targets), |name| {
        let arguments = [&flags[..], &["--test", name]].concat();
        cargo_test(&arguments.into_iter().map(str::to_owned).collect::<Vec<_>>(), &Vec::new())
    })?;
    Ok(all_of(totals, expected))
}

/// Why the root tier cannot run here.
fn rootless() -> Option<&'static str> {
    (!env::is_root() && !env::in_ci()).then_some("not root")
}

/// Small cases under the model checker; then real threads under ThreadSanitizer, whose flags want a nightly compiler or, as
/// here, RUSTC_BOOTSTRAP. Both have build outputs of their own: the flags would throw away everybody else's.
pub(crate) fn model() -> Result<Totals> {
    let model = Model::new()?;
    let why = model.unsanitized();
    let mut totals = tier(&model.small, None, &model.small_flags(), &model.loom)?;
    totals += tier(&model.threads, why, &model.threads_flags(), &model.tsan)?;
    for name in SANITIZED {
        match why {
            Some(why) => totals.skip(name, why),
            None => totals += cargo_test(&model.sanitized(name), &model.tsan)?,
        }
    }
    Ok(totals)
}

/// Of what `model` runs, one package's tests with real threads.
pub(crate) fn sanitized(package: &str) -> Result<Totals> {
    let mut model = Model::new()?;
    model.threads.retain(|target| target.package == package);
    tier(&model.threads, model.unsanitized(), &model.threads_flags(), &model.tsan)
}

/// Builds what `model` runs.
pub(crate) fn build_model() -> Result<()> {
    let model = Model::new()?;
    build_tests(&model.small, &model.small_flags(), &model.loom)?;
    if model.unsanitized().is_none() {
        build_tests(&model.threads, &model.threads_flags(), &model.tsan)?;
        for name in SANITIZED {
            let mut command = test_command(&model.sanitized(name), &model.tsan);
            proc::check(command.args(["--no-run", "--quiet"]))?;
        }
    }
    Ok(())
}

fn build_tests(targets: &[Target], flags: &[&str], variables: &Variables) -> Result<()> {
    let mut arguments: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    arguments.extend(named(targets));
    proc::check(test_command(&arguments, variables).args(["--no-run", "--quiet"]))
}

/// What the tier `model` builds, and how.
struct Model {
    host: String,
    small: Vec<Target>,
    threads: Vec<Target>,
    loom: Variables,
    tsan: Variables,
}

impl Model {
    fn new() -> Result<Model> {
        let output = |name: &str| ("CARGO_TARGET_DIR", env::target_dir().join(name).into_os_string());
        let loom = vec![
            ("RUSTFLAGS", "--cfg loom".into()),
            ("CARGO_PROFILE_RELEASE_LTO", "off".into()),
            output("loom"),
        ];
        let suppressions = env::root().join("xtask").join("src").join("test").join("tsan-suppressions.txt");
        let tsan = vec![
            // The standard library that we link is not built for the sanitizer: hence the second flag and the suppressions.
            // The scalar form: the sanitizer does not see what intrinsics load.
            ("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg scalar".into()),
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()).into()),
            output("tsan"),
        ];
        let (small, threads) = (targets(is_loom)?, targets(is_concurrent)?);
        Ok(Model { host: env::host()?, small, threads, loom, tsan })
    }

    /// Why nothing can run under ThreadSanitizer here.
    fn unsanitized(&self) -> Option<&'static str> {
        (self.host != "x86_64-unknown-linux-gnu").then_some("no prebuilt ThreadSanitizer is known here")
    }

    fn small_flags(&self) -> Vec<&str> {
        [&packages(&self.small)[..], &["--release"]].concat()
    }

    /// With --target the flags do not reach build scripts.
    fn threads_flags(&self) -> Vec<&str> {
        [&packages(&self.threads)[..], &["--target", &self.host]].concat()
    }

    fn sanitized(&self, name: &str) -> Vec<String> {
        ["--package", name, "--lib", "--target", &self.host].map(str::to_owned).to_vec()
    }
}

fn is_real(name: &str) -> bool {
    name.starts_with("real_")
}

fn is_root(name: &str) -> bool {
    name.starts_with("root_")
}

fn is_loom(name: &str) -> bool {
    name.starts_with("loom")
}

fn is_concurrent(name: &str) -> bool {
    name.starts_with("concurrent")
}

/// Runs the targets, or skips every test in them by name for the reason given.
fn tier(targets: &[Target], skip: Option<&str>, flags: &[&str], variables: &Variables) -> Result<Totals> {
    let (skipped, expected) = expected(targets, skip)?;
    if skip.is_some() || targets.is_empty() {
        return Ok(skipped);
    }
    let mut arguments: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
    arguments.extend(named(targets));
    Ok(all_of(cargo_test(&arguments, variables)?, expected))
}

/// How many tests the targets' sources have; with a reason to skip them, each is skipped.
fn expected(targets: &[Target], skip: Option<&str>) -> Result<(Totals, usize)> {
    let mut totals = Totals::default();
    let mut expected = 0;
    for target in targets {
        for source in sources(&target.source)? {
            for name in test_names(&std::fs::read_to_string(&source)?) {
                expected += 1;
                if let Some(why) = skip {
                    totals.skip(&format!("{}::{}::{name}", target.package, target.name), why);
                }
            }
        }
    }
    Ok((totals, expected))
}

/// Fewer tests than the sources have is a failure: a feature may be missing.
fn all_of(mut totals: Totals, expected: usize) -> Totals {
    let seen = totals.passed + totals.failed + totals.skipped;
    if seen < expected {
        totals.count(&format!("{seen} tests were seen of {expected} in the sources"), false);
    }
    totals
}

/// `--package NAME` for each target: less to build than the workspace.
fn packages(targets: &[Target]) -> Vec<&str> {
    targets.iter().flat_map(|target| ["--package", &target.package]).collect()
}

/// The targets' names, each once: several crates have one of the same name, and cargo runs them all for one mention.
fn names(targets: &[Target]) -> Vec<&str> {
    let mut names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    names.dedup();
    names
}

/// `--test NAME` for each name.
fn named(targets: &[Target]) -> Vec<String> {
    names(targets).into_iter().flat_map(|name| ["--test".to_owned(), name.to_owned()]).collect()
}

/// The workspace's integration tests whose name is wanted, sorted by name.
fn targets(wanted: impl Fn(&str) -> bool) -> Result<Vec<Target>> {
    let metadata = env::metadata(&env::root().join("Cargo.toml"), false)?;
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let (name, source) = (&target["name"], &target["src_path"]);
            let (Some(name), Some(source)) = (name.as_str(), source.as_str()) else { continue };
            if target["kind"][0] == "test" && wanted(name) {
                let package = package["name"].as_str().unwrap_or_default().to_owned();
                found.push(Target { package, name: name.to_owned(), source: source.into() });
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The files of a test target whose root is this: of `tests/NAME/main.rs` all that lie with it.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.parent().filter(|_| root.ends_with("main.rs"));
    let Some(folder) = folder else { return Ok(vec![root.to_owned()]) };
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    files.sort();
    Ok(files)
}

/// The names of the `#[test]` functions in a source text.
fn test_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut pending = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") {
            pending = true;
        }
        if let Some((_, rest)) = line.split_once("fn ").filter(|_| pending) {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            pending = false;
        }
    }
    names
}

fn test_command(arguments: &[String], variables: &Variables) -> Command {
    let mut command = env::cargo();
    command.args(["test", "--no-fail-fast"]).args(arguments);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

fn cargo_test(arguments: &[String], variables: &Variables) -> Result<Totals> {
    let mut command = test_command(arguments, variables);
    command.args(["--", "--show-output"]);
    let turn = || SHOWING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut reader = Reader::new(|line| println!("{line}"));
    let ok = proc::lines(&mut command, |line| {
        let _turn = turn();
        reader.line(line);
    })?;
    let _turn = turn();
    let (totals, said) = reader.end(ok);
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner).extend(said);
    Ok(totals)
}

/// Another lane may show something: what is shown of one binary stays together.
static SHOWING: Mutex<()> = Mutex::new(());

/// What failing tests have said, to be said again at the end: a log that was cut has its end.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What tests have said that failed since this was asked last.
pub(super) fn failures() -> Vec<String> {
    std::mem::take(&mut FAILURES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads what test binaries print, one after the other. Of a binary that passes only the verdict and the skipped tests
/// are shown, of one that fails which tests it has, and what those say that failed.
struct Reader {
    totals: Totals,
    binary: Vec<String>,
    failures: Vec<String>,
    /// Where lines are shown. Not our own tests' standard output: a reader of that would take them for verdicts.
    show: fn(&str),
}

impl Reader {
    fn new(show: fn(&str)) -> Self {
        Reader { totals: Totals::default(), binary: Vec::new(), failures: Vec::new(), show }
    }

    fn line(&mut self, line: &str) {
        self.binary.push(line.to_owned());
        if !line.starts_with("test result: ") {
            return;
        }
        let number = |what: &str| {
            let part = line.split([';', '.']).find_map(|part| part.trim().strip_suffix(what));
            part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        // We filter nothing: this is a test that runs itself again, in a namespace of its own, and has its own verdict.
        if number("filtered out") > 0 {
            return;
        }
        let skips: Vec<&String> = self.binary.iter().filter(|line| line.starts_with("skipped: ")).collect();
        let (passed, failed, ignored): (usize, usize, usize) =
            (number("passed"), number("failed"), number("ignored"));
        let skipped = skips.len().min(passed);
        if failed > 0 {
            // What others said that passed comes between, and can be long.
            let at = |title: &str| self.binary.iter().position(|line| line == title);
            let from = at("failures:").unwrap_or(0);
            let (tests, said) = (at("successes:").unwrap_or(from).min(from), self.binary.split_off(from));
            self.binary[..tests].iter().chain(&said).for_each(|line| (self.show)(line));
            self.failures.extend(said);
        } else {
            skips.iter().for_each(|line| (self.show)(line));
            if passed + ignored > 0 {
                (self.show)(line);
            }
        }
        self.totals += Totals { passed: passed - skipped, failed, skipped: skipped + ignored };
        self.binary.clear();
    }

    /// What was seen, given whether cargo itself succeeded: a binary that died without a verdict, or a build that failed,
    /// is one failure. Beside it what failing tests said.
    fn end(mut self, ok: bool) -> (Totals, Vec<String>) {
        if !ok && (self.totals.failed == 0 || self.binary.iter().any(|line| line.starts_with("running "))) {
            self.binary.iter().for_each(|line| (self.show)(line));
            self.failures.append(&mut self.binary);
            (self.show)(
                "FAILED: a build, or a test binary that ended without a verdict or with a sanitizer's report",
            );
            self.totals.failed += 1;
        }
        (self.totals, self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, ok: bool) -> Totals {
        let mut reader = Reader::new(|_| ());
        text.lines().for_each(|line| reader.line(line));
        reader.end(ok).0
    }

    #[test]
    fn verdicts_add_up() {
        let good = "running 3 tests\n...\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let bad = "running 5 tests\ntest result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.50s";
        assert_eq!(read(good, true), Totals { passed: 3, failed: 0, skipped: 0 });
        assert_eq!(read(&format!("{good}{bad}"), false), Totals { passed: 7, failed: 1, skipped: 0 });
    }

    #[test]
    fn what_failed_is_said_without_what_passed() {
        let text = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\nlong\n\nsuccesses:\n    a\n\n\
            failures:\n\n---- b stdout ----\nwhy\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored";
        let mut reader = Reader::new(|line| assert_ne!(line, "long"));
        text.lines().for_each(|line| reader.line(line));
        let (totals, said) = reader.end(false);
        assert_eq!(totals, Totals { passed: 1, failed: 1, skipped: 0 });
        let has = |line: &str| said.iter().any(|said| said == line);
        assert!(has("why") && !has("long") && said.last().unwrap().starts_with("test result"), "{said:?}");
    }

    #[test]
    fn a_test_that_runs_itself_again_counts_once() {
        let inner = "running 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.9s\n";
        let outer =
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        let text = format!("running 2 tests\n{inner}{inner}{outer}");
        assert_eq!(read(&text, true), Totals { passed: 2, failed: 0, skipped: 0 });
    }

    #[test]
    fn tests_that_skip_themselves_are_not_passed() {
        let text = "running 2 tests\n---- a stdout ----\nskipped: a (not root)\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured";
        assert_eq!(read(text, true), Totals { passed: 1, failed: 0, skipped: 2 });
    }

    #[test]
    fn a_binary_without_a_verdict_is_a_failure() {
        assert_eq!(read("running 2 tests\ntest a ...", false).failed, 1);
        assert_eq!(read("", false).failed, 1);
    }

    #[test]
    fn a_test_in_a_folder_is_all_its_files() {
        let file = Path::new("crates/x/tests/root_x.rs");
        assert_eq!(sources(file).unwrap(), [file]);
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = sources(&own.join("main.rs")).unwrap();
        assert!(["main.rs", "setup.rs"].iter().all(|name| files.contains(&own.join(name))), "{files:?}");
        assert!(sources(&own.join("none/main.rs")).is_err());
    }

    #[test]
    fn test_functions_are_found_in_source() {
        let source = "#[test]\nfn one() {}\nfn helper() {}\n#[test]\n#[ignore]\npub fn two_2(x: u8) {}";
        assert_eq!(test_names(source), ["one", "two_2"]);
    }
}
