//! A rule file as tokens, each with its place.

use super::RuleError;
use crate::plain::is_plain;
use std::path::Path;

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word, a number, an address.
    Word(String),
    /// Between quotes.
    Text(String),
    /// `$name`.
    Macro(String),
    /// A sign of [`SIGNS`].
    Sign(&'static str),
    /// The line ends.
    End,
}

/// A token and where it begins, both from 1; columns are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Token {
    pub(super) fn error(&self, what: impl Into<String>) -> RuleError {
        RuleError::new(self.line, self.column, what)
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            Kind::Word(word) => format!("`{}`", short(word)),
            Kind::Text(text) => format!("\"{}\"", short(text)),
            Kind::Macro(name) => format!("`${}`", short(name)),
            Kind::Sign(sign) => format!("`{sign}`"),
            Kind::End => "the end of the line".into(),
        }
    }
}

/// The beginning of what may be long; on one line.
pub(in crate::filter) fn short(text: &str) -> String {
    beginning(text, 40)
}

/// A file's name, which may have anything in it.
pub(in crate::filter) fn shown(path: &Path) -> String {
    beginning(&path.display().to_string(), 255)
}

fn beginning(text: &str, most: usize) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '?' };
    let mut short: String = text.chars().take(most).map(plain).collect();
    if text.chars().nth(most).is_some() {
        short.push_str("...");
    }
    short
}

/// Longer ones first.
const SIGNS: [&str; 14] = ["><", "<>", "<=", ">=", "!=", "{", "}", "(", ")", ",", "<", ">", "!", "="];

/// Whether a byte can be in a word: addresses with lengths, ranges of ports, flags, file names without blanks.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".:/-_*+%@".contains(&byte)
}

/// Reads all of a text. Every statement ends with [`Kind::End`]; a `\` at the end of a line goes on with the next.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, RuleError> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut goes_on = false;
    let mut last = 1;
    for (line, number) in text.split('\n').zip(1_u32..) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        last = number;
        goes_on = read_line(line, number, &mut tokens)?;
        if !goes_on && !matches!(tokens.last().map(|token| &token.kind), None | Some(Kind::End)) {
            tokens.push(Token { kind: Kind::End, line: number, column: line.len() as u32 + 1 });
        }
    }
    if goes_on {
        return Err(RuleError::new(
            last,
            1,
            "the file ends behind a `\\`: nothing follows that it could go on with",
        ));
    }
    Ok(tokens)
}

/// Adds a line's tokens; whether the next line goes on with it.
pub(super) fn read_line(line: &str, number: u32, tokens: &mut Vec<Token>) -> Result<bool, RuleError> {
    let bytes = line.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let column = at as u32 + 1;
        let wrong = |what: String| Err(RuleError::new(number, column, what));
        let mut push = |kind| tokens.push(Token { kind, line: number, column });
        let word_from = |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            from + rest.iter().take_while(|byte| is_word(**byte)).count()
        };
        match byte {
            b' ' | b'\t' => at += 1,
            b'#' => return Ok(false),
            b'\\' => {
                let rest = line.get(at + 1..).unwrap_or_default();
                if !rest.trim().is_empty() {
                    return wrong("a `\\` goes on with the next line: nothing may follow it".into());
                }
                return Ok(true);
            }
            b'"' => {
                let rest = line.get(at + 1..).unwrap_or_default();
                let Some(end) = rest.find('"') else {
                    return wrong("this quote is not closed on its line".into());
                };
                push(Kind::Text(rest[..end].into()));
                at += end + 2;
            }
            b'$' => {
                let end = word_from(at + 1);
                if end == at + 1 {
                    return wrong("a `$` begins a macro's name, and none follows".into());
                }
                push(Kind::Macro(line[at + 1..end].into()));
                at = end;
            }
            byte if is_word(byte) => {
                let end = word_from(at);
                push(Kind::Word(line[at..end].into()));
                at = end;
            }
            _ => {
                let rest = line.get(at..).unwrap_or_default();
                let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                    return wrong(match rest.chars().next() {
                        Some(c) if is_plain(c) => format!("`{c}` has no place in a rule file"),
                        Some(c) => format!("U+{:04X} has no place in a rule file", u32::from(c)),
                        None => format!("the byte {byte:#04x} has no place in a rule file"),
                    });
                };
                push(Kind::Sign(sign));
                at += sign.len();
            }
        }
    }
    Ok(false)
}
