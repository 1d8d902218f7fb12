//! The C example compiles with the header, links with the library, and says what it should. The header is C++ too.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    output
}

/// Whether there is such a compiler; in CI there is.
fn has(compiler: &str, test: &str) -> bool {
    let found = Command::new(compiler).arg("--version").output().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "{test}: no {compiler}");
    if !found {
        println!("skipped: {test} (no {compiler})");
    }
    found
}

/// The library that cargo has built for this test: the newest beside it.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.path()).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libtidemill_lpm_c") && name.ends_with(".a")
    });
    found.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).unwrap());
    found.pop().unwrap_or_else(|| panic!("no libtidemill_lpm_c*.a in {}", folder.display()))
}

#[test]
fn the_example_links_and_answers() {
    if !has("cc", "the_example_links_and_answers") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("lookup");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(here("include"));
    compiler.arg("-o").arg(&program).arg(here("examples/c/lookup.c")).arg(library());
    run(compiler.args(["-lpthread", "-ldl", "-lm"]));
    let said = String::from_utf8(run(&mut Command::new(&program)).stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("IPv4: 2 prefixes in "), "{said}");
    assert_eq!(lines[1], "worker: every label was 1 or 2: yes");
    assert_eq!(lines[2], "IPv6: 2001:db8::1 leads to 7, 2002:: to 0");
    assert_eq!(lines[3], "300 VRFs: each has its own route: yes");
    assert_eq!(lines[4], "refused: route 0: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8?");
}

#[test]
fn the_header_is_cpp_too() {
    if !has("c++", "the_header_is_cpp_too") {
        return;
    }
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"]);
    run(compiler.arg(here("include/tidemill_lpm.h")).arg("-Wno-pragma-once-outside-header"));
}
