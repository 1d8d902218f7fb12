//! What files may be: not too long, nothing unfinished, no path of the place where they were written; every lookup
//! structure in its family's suite.

use super::{File, source};

/// A file that outgrows this is two.
const LONGEST: usize = 800;

/// Pages of the repository that must be there.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONFIGURATION.md", "GLOSSARY.md", "CHANGELOG.md"];

pub(crate) fn check(files: &[File], findings: &mut Vec<String>) {
    for page in PAGES {
        if !files.iter().any(|file| file.name == *page) {
            findings.push(format!("{page}: missing"));
        }
    }
    for file in files {
        length(file, findings);
        unfinished(file, findings);
        workplace(file, findings);
    }
    suites(files, findings);
}

fn is_source(name: &str) -> bool {
    [".rs", ".c", ".h", ".sh", ".py"].iter().any(|ending| name.ends_with(ending))
}

fn length(file: &File, findings: &mut Vec<String>) {
    let lines = file.text.lines().count();
    if is_source(&file.name) && lines > LONGEST {
        findings.push(format!("{}: {lines} lines, at most {LONGEST}", file.name));
    }
}

/// Marks of unfinished work. Macros are looked for in the code, notes everywhere in a source.
fn unfinished(file: &File, findings: &mut Vec<String>) {
    if !is_source(&file.name) {
        return;
    }
    let code = source::code(&file.text);
    let code: &str = &code;
    let macros = ["todo", "unimplemented"].into_iter().flat_map(|name| {
        let called = format!("{name}!");
        let calls = move |line: &usize| code.lines().nth(line - 1).is_some_and(|text| text.contains(&called));
        source::lines_with(code, name).filter(calls)
    });
    // Put together here, so that this file does not find itself.
    let notes = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let notes = notes.into_iter().flat_map(|note| source::lines_with(&file.text, note));
    for line in macros.chain(notes) {
        findings.push(format!("{}:{line}: unfinished", file.name));
    }
}

/// Paths of the place where the project is written: they mean nothing to a reader. `.ci/run` alone may know where that
/// place keeps its data, once.
fn workplace(file: &File, findings: &mut Vec<String>) {
    let paths = [concat!("/wo", "rk"), concat!("../sha", "red")];
    let mut allowed = usize::from(file.name == ".ci/run");
    for (number, line) in file.text.lines().enumerate() {
        let found = paths.iter().any(|path| {
            line.match_indices(path).any(|(at, _)| {
                let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.';
                !line[..at].ends_with(word) && !line[at + path.len()..].starts_with(word)
            })
        });
        if !found {
            continue;
        }
        if allowed > 0 {
            allowed -= 1;
        } else {
            findings.push(format!("{}:{}: a path of the workplace", file.name, number + 1));
        }
    }
}

/// Folders of crates/lpm/src that hold no lookup structure.
const NO_STRUCTURE: &[&str] = &["suite"];

/// Where structures without parameters have their names, and where the suite's list of these is.
const NAMES: &str = "crates/lpm/src/algorithm.rs";
const NAMED: &str = "crates/lpm/tests/suite.rs";

/// What stands in the suite's list for the structures of a folder.
fn named(files: &[File], structure: &str) -> Vec<String> {
    let names = files.iter().filter(|file| file.name == NAMES).flat_map(|file| file.text.lines());
    let of_folder = names.filter(|line| line.contains(&format!("writer: {structure}::")));
    let name = |line: &str| Some(line.split_once("name: \"")?.1.split_once('"')?.0.to_owned());
    of_folder.filter_map(name).map(|name| format!(", \"{name}\";")).collect()
}

/// Every folder of a structure is in its family's suite: in the list stand the names of its structures, or its own name, which those of its
/// layouts begin with.
fn suites(files: &[File], findings: &mut Vec<String>) {
    let list = files.iter().find(|file| file.name == NAMED).map_or("", |file| &file.text);
    for file in files {
        let inside = file.name.strip_prefix("crates/lpm/src/").and_then(|name| name.strip_suffix("/mod.rs"));
        let Some(structure) = inside.filter(|name| !name.contains('/') && !NO_STRUCTURE.contains(name))
        else {
            continue;
        };
        let (named, own) = (named(files, structure), format!(", \"{structure}"));
        let joins = match named.is_empty() {
            true => ["\";", "-d"].iter().any(|end| list.contains(&format!("{own}{end}"))),
            false => named.iter().all(|name| list.contains(name)),
        };
        if !joins {
            findings.push(format!("{}: not in the suite (a line with `{own}...\";` in {NAMED})", file.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> File {
        File { name: name.into(), text: text.into() }
    }

    fn count(check: impl Fn(&File, &mut Vec<String>), name: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(&file(name, text), &mut findings);
        findings.len()
    }

    #[test]
    fn long_sources_are_found() {
        assert_eq!(count(length, "a.rs", &"x\n".repeat(800)), 0);
        assert_eq!(count(length, "a.rs", &"x\n".repeat(801)), 1);
        assert_eq!(count(length, "Cargo.lock", &"x\n".repeat(801)), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        let name = concat!("to", "do");
        assert_eq!(count(unfinished, "a.rs", &format!("fn f() {{ {name}!() }}")), 1);
        assert_eq!(count(unfinished, "a.rs", &format!("// {}: later", name.to_uppercase())), 1);
        assert_eq!(count(unfinished, "a.rs", &format!("let {name} = 1; // the list of things")), 0);
    }

    #[test]
    fn workplace_paths_are_found() {
        let path = concat!("/wo", "rk");
        for text in
            [format!("cd {path}"), format!("\"{path}/main\""), concat!("../sha", "red/data").to_owned()]
        {
            assert_eq!(count(workplace, "a.md", &text), 1, "{text}");
        }
        assert_eq!(
            count(workplace, "a.md", &format!("net{path}, a{path}, .{path}, {path}ers, (x{path}er)")),
            0
        );
        let shared = concat!("../sha", "red/data");
        assert_eq!(count(workplace, ".ci/run", shared), 0);
        assert_eq!(count(workplace, ".ci/run", &format!("{shared}\n{shared}")), 1);
    }

    #[test]
    fn structures_join_the_suite() {
        let check = |tests: &str| {
            let mut findings = Vec::new();
            let files = [
                file("crates/lpm/src/dxr/mod.rs", ""),
                file("crates/lpm/src/dxr/simd/mod.rs", ""),
                file("crates/lpm/src/suite/mod.rs", ", \"dxr-d16r\";"),
                file("crates/lpm/tests/suite.rs", tests),
            ];
            suites(&files, &mut findings);
            findings.len()
        };
        assert_eq!(check("dxr_d16r, u32, \"dxr-d16r\";"), 0);
        assert_eq!(check("dxr, u32, \"dxr\";"), 0);
        assert_eq!(check("poptrie_d16, u32, \"poptrie-d16\";"), 1);
        assert_eq!(check("dxr_d16r, u32, \"dxr2-d16r\";"), 1);
    }

    #[test]
    fn structures_without_parameters_join_by_their_names() {
        let check = |list: &str| {
            let mut findings = Vec::new();
            let names = "Named { name: \"sail-b\", writer: sail::writer_b },\nNamed { name: \"sail-u\", writer: sail::writer_u },";
            let files = [file("crates/lpm/src/sail/mod.rs", ""), file(NAMES, names), file(NAMED, list)];
            suites(&files, &mut findings);
            findings.len()
        };
        assert_eq!(check("b, u32, \"sail-b\";\nu, u32, \"sail-u\";"), 0);
        assert_eq!(check("b, u32, \"sail-b\";"), 1, "all of them");
    }
}
