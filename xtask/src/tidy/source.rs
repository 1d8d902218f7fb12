//! Just enough of Rust's lexical rules to look at code without its comments and texts.

/// The code with comments, strings and characters blanked out; line breaks stay, so that line numbers do.
pub(crate) fn code(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while !rest.is_empty() {
        let skip = comment(rest).or_else(|| string(rest, &out)).or_else(|| character(rest));
        if let Some(length) = skip {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        } else if let Some(first) = rest.chars().next() {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// Length of the comment that starts here; block comments nest.
fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    let bytes = rest.starts_with("/*").then_some(rest.as_bytes())?;
    let (mut depth, mut at) = (0, 0);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

/// Length of the string that starts here: plain, byte, C or raw. `before` tells `r"` from the end of a name.
fn string(rest: &str, before: &str) -> Option<usize> {
    let in_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let prefix =
        ["br", "cr", "r", "b", "c"].into_iter().find(|p| !in_name && rest.starts_with(p)).unwrap_or("");
    let body = &rest[prefix.len()..];
    let hashes = if prefix.ends_with('r') { body.len() - body.trim_start_matches('#').len() } else { 0 };
    let text = body[hashes..].strip_prefix('"')?;
    let start = rest.len() - text.len();
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(text.find(&end).map_or(rest.len(), |at| start + at + end.len()));
    }
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(start + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Length of the character literal that starts here; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix('\'')?;
    if text.starts_with('\\') {
        return text.char_indices().skip(2).find(|(_, c)| *c == '\'').map(|(at, _)| at + 2);
    }
    let first = text.chars().next()?;
    text[first.len_utf8()..].starts_with('\'').then(|| first.len_utf8() + 2)
}

/// The numbers (from 1) of the lines on which `word` stands by itself.
pub(crate) fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let has = move |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
            let after = &line[at + word.len()..];
            !line[..at].ends_with(part_of_name) && !after.starts_with(part_of_name)
        })
    };
    code.lines().enumerate().filter(move |(_, line)| has(line)).map(|(number, _)| number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_texts_are_blank() {
        for hidden in [
            "// word",
            "/* a /* word */ word */",
            "\"a \\\" word\"",
            "r#\"a \" word\"#",
            "br\"word\\\"",
            "b\"word\"",
            "/// \"\n/* ' */ \"word\"",
        ] {
            let source = format!("x {hidden}\ny");
            let blank = code(&source);
            assert_eq!(lines_with(&blank, "word").count(), 0, "{hidden} -> {blank}");
            assert_eq!(blank.lines().count(), source.lines().count());
            assert!(blank.trim_end().ends_with('y'), "{hidden} -> {blank}");
        }
    }

    #[test]
    fn code_around_them_stays() {
        for shown in [
            "'\"'; word",
            "'\\''; word",
            "'a: word",
            "b'\"'; word",
            "r#word; word",
            "\"\"; word",
            "bar\"\"; word",
        ] {
            assert_eq!(lines_with(&code(shown), "word").count(), 1, "{shown} -> {}", code(shown));
        }
        assert_eq!(lines_with("a_word word_b sword", "word").count(), 0);
    }
}
