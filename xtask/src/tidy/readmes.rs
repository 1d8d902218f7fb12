//! Every crate's README tells a newcomer four things: what the crate is for, where to begin to read, which function is
//! hot, how to test it. The purpose is a label or simply the paragraph under the title; the other three are labels.

use super::File;

const LABELS: &[(&str, &[&str])] = &[
    ("entry file", &["entry"]),
    ("hot function", &["hot function"]),
    ("how to test", &["how to test", "test"]),
];

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
    let plain = |line: &str| line.trim_start_matches(['#', '-', '*', '|', ' ', '`']).to_lowercase();
    let labelled = |starts: &[&str]| {
        text.lines().any(|line| {
            let is_label = line.trim_start().starts_with(['#', '-', '*', '|']);
            is_label && starts.iter().any(|start| plain(line).starts_with(start))
        })
    };
    let prose = text.lines().skip(1).find(|line| !line.trim().is_empty());
    let prose = prose.is_some_and(|line| !line.starts_with(['#', '-', '*', '|', '`']));
    let mut lacks: Vec<&str> =
        LABELS.iter().filter(|(_, starts)| !labelled(starts)).map(|(what, _)| *what).collect();
    if !prose && !labelled(&["purpose"]) {
        lacks.insert(0, "purpose");
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_things_are_told() {
        let paragraph = "# t\n\nFiles.\n\n- Entry file: `a`\n- Hot function: `b`\n- Test: `c`\n";
        assert!(lacks(paragraph).is_empty());
        assert!(lacks("# t\n## Purpose\nx\n## Entry file\n## Hot function\n## How to test\n").is_empty());
        assert!(
            lacks("# t\n- **Purpose**: x\n- **Entry file**: y\n* **Hot function**: z\n- **How to test**: q")
                .is_empty()
        );
        assert_eq!(lacks("# t\n"), ["purpose", "entry file", "hot function", "how to test"]);
        assert_eq!(lacks("# t\nWe test the entry.\n- Hot function: x\n- Test: y"), ["entry file"]);
    }
}
