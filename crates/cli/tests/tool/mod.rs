//! Runs the program and looks at what it says.
#![allow(clippy::unwrap_used)] // a test may

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a run of the program came to.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

#[allow(dead_code)] // every test file uses some of it
impl Ran {
    /// Standard output as JSON lines.
    pub(crate) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.lines()
    }

    /// The same, whatever the exit status.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let lines: Vec<Value> = self.out.lines().map(parse).collect();
        assert!(lines.iter().all(|line: &Value| line["v"] == 1), "every line has its version: {}", self.out);
        lines
    }
}

/// A scratch folder in which the program runs.
pub(crate) struct Folder(tempfile::TempDir);

#[allow(dead_code)] // every test file uses some of it
impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs `tidemill` with a command line without spaces in its words.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_with(line, "")
    }

    /// The same with a standard input.
    pub(crate) fn run_with(&self, line: &str, input: &str) -> Ran {
        run_in(self.0.path(), line, input)
    }

    /// Runs a command line that has to succeed.
    pub(crate) fn ok(&self, line: &str) -> Ran {
        let ran = self.run(line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
        ran
    }

    /// Runs command lines that have to fail, each with its exit status and what its one error line contains.
    pub(crate) fn fail(&self, table: &[(&str, i32, &str)]) {
        for (line, code, message) in table {
            let ran = self.run(line);
            assert_eq!(ran.code, *code, "{line}: {}{}", ran.out, ran.err);
            assert!(ran.err.contains(message), "{line}: {}", ran.err);
            // Those that clap words have a usage text too.
            if ran.err.starts_with("tidemill: ") {
                assert_eq!(ran.err.lines().count(), 1, "{line}: one line: {}", ran.err);
            }
        }
    }
}

fn run_in(folder: &Path, line: &str, input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read its input may be gone already.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}
