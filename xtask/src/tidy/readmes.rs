//! Every crate's README tells a newcomer four things: what the crate is for (in the paragraph under the title, or under a
//! label), where to begin to read, which function is hot, how to test it.

use super::File;

/// What must be told, and the words that tell it.
const TOLD: &[(&str, &str)] =
    &[("entry file", "entry"), ("hot function", "hot function"), ("how to test", "cargo test")];

pub(crate) fn check(files: &[File], findings: &mut Vec<String>) {
    for manifest in files.iter().filter(|file| is_crate(&file.name)) {
        let readme = format!("{}README.md", manifest.name.trim_end_matches("Cargo.toml"));
        match files.iter().find(|file| file.name == readme) {
            None => findings.push(format!("{readme}: missing")),
            Some(file) => {
                findings.extend(
                    lacks(&file.text).into_iter().map(|what| format!("{readme}: does not say: {what}")),
                );
            }
        }
    }
}

fn is_crate(name: &str) -> bool {
    let mut parts = name.split('/');
    let folder = (parts.next(), parts.next(), parts.next(), parts.next());
    matches!(
        folder,
        (Some("crates"), Some(_), Some("Cargo.toml"), None) | (Some("xtask"), Some("Cargo.toml"), None, None)
    )
}

/// The things that the text does not tell.
fn lacks(text: &str) -> Vec<&'static str> {
    let below = text.lines().skip(1).find(|line| !line.trim().is_empty());
    let paragraph = below.is_some_and(|line| !line.starts_with(['#', '-', '*', '|', '`']));
    let text = text.to_lowercase();
    let mut lacks: Vec<&str> =
        TOLD.iter().filter(|(_, words)| !text.contains(words)).map(|(what, _)| *what).collect();
    if !paragraph && !text.contains("purpose") {
        lacks.insert(0, "purpose");
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_things_are_told() {
        let paragraph =
            "# t\n\nFiles.\n\n- Entry file: `a`\n- Hot function: `b`\n- Test: `cargo test -p t`\n";
        assert!(lacks(paragraph).is_empty());
        assert!(
            lacks("# t\n## Purpose\nx\n## Entry\n## Hot function\n## How to test\n`cargo test`").is_empty()
        );
        assert_eq!(lacks("# t\n"), ["purpose", "entry file", "hot function", "how to test"]);
        assert_eq!(lacks("# t\nFiles. The hot function is x.\n`cargo test`"), ["entry file"]);
    }
}
