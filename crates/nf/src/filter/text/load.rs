//! Access lists of other makes as rules: `load "FILE" format ...`. Each line of the list becomes a rule that decides at once, so that its first line that matches
//! does, as it is meant; the rules stand where the statement does.

use super::cisco::{AclLine, read_acl};
use super::lex::{Kind, Token, short};
use super::parse::{File, Line, blank, interface, way};
use super::{Action, Flags, MOST_RULES, Place, Rule, RuleError, Ruleset};
use tidemill_classify::key::IPV4;
use tidemill_classify::text::{TextError, read_rules};
use tidemill_classify::{Field, Match};

/// What is in a file to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// ClassBench's rules, which say nothing of what is done: that is said here. Their flags are passed over, as their traces do.
    ClassBench(Action),
    /// A configuration of a Cisco router, of which the access list of this name or number.
    Cisco(String),
}

/// A `load` as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The file.
    pub file: String,
    /// Its place.
    pub place: Place,
    /// How it is written.
    pub format: Format,
    /// How many rules there are before it.
    pub at: usize,
    /// What all its rules have: direction, interfaces, log, state.
    pub head: Rule,
}

/// A statement behind its `load`: `"FILE" format classbench ACTION ...`, `"FILE" format cisco acl NAME ...`.
pub(super) fn read_load(
    file: &File,
    line: &mut Line<'_>,
    raw: &[Token],
    lines: &[&str],
) -> Result<Load, RuleError> {
    let token = line.next();
    if matches!(&token.kind, Kind::Word(word) if word == "anchor") {
        return Err(token.error("anchors are not supported: put the rules here"));
    }
    let Kind::Text(name) = &token.kind else {
        return Err(token.error("a file's name in quotes must be here"));
    };
    if name.is_empty() {
        return Err(token.error("this name is empty: name a file"));
    }
    let place = Place { line: token.line, column: token.column };
    if !line.take("format") {
        return Err(line.wrong("`format`"));
    }
    let (format, named) = line.need_word("`classbench` or `cisco`")?;
    let format = match &format[..] {
        "classbench" => {
            let (word, action) =
                line.need_word("`pass`, `block` or `reject`: what is done with its packets")?;
            if !matches!(&word[..], "pass" | "block" | "reject") {
                return Err(action
                    .error("`pass`, `block` or `reject` must be here: the file does not say what is done"));
            }
            Format::ClassBench(file.action(&word, line)?)
        }
        "cisco" => {
            if !line.take("acl") {
                return Err(line.wrong("`acl` and the list's name or number"));
            }
            let token = line.next();
            let (Kind::Word(list) | Kind::Text(list)) = &token.kind else {
                return Err(token.error("the list's name or number must be here"));
            };
            Format::Cisco(list.clone())
        }
        _ => return Err(named.error("there are the formats `classbench` and `cisco`")),
    };
    let mut head = blank(Action::Drop, raw, lines);
    head.quick = true;
    way(&mut head, line)?;
    if line.take("on") {
        head.interfaces = line.list(|line, _| interface(line))?;
    }
    if line.take("keep") {
        if !line.take("state") {
            return Err(line.peek().error("`keep state`: `state` is missing"));
        }
        head.keep_state = true;
    }
    Ok(Load { file: name.clone(), place, format, at: file.rules(), head })
}

impl Load {
    /// The rules of this file.
    ///
    /// # Errors
    /// What is wrong with it, with line and column.
    pub fn rules(&self, text: &str) -> Result<Vec<Rule>, RuleError> {
        match &self.format {
            Format::ClassBench(action) => {
                let rules = read_rules(text.as_bytes()).map_err(|error| match error {
                    TextError::Line { line, column, what } => {
                        RuleError::new(line as u32, column as u32, what)
                    }
                    TextError::Read { line, source } => {
                        RuleError::new(line as u32 + 1, 1, source.to_string())
                    }
                })?;
                let lines = text.lines().zip(1_u32..).filter(|(line, _)| {
                    let line = line.trim_start();
                    !line.is_empty() && !line.starts_with('#')
                });
                let rule = |(rule, (line, number)): (tidemill_classify::text::TextRule, (&str, u32))| {
                    let words: Vec<&str> = line.split_ascii_whitespace().collect();
                    self.rule(*action, rule.five_tuple, number, &words.join(" "))
                };
                Ok(rules.into_iter().zip(lines).map(rule).collect())
            }
            Format::Cisco(name) => {
                let lines = read_acl(text, name)?;
                let mut rules: Vec<Rule> = lines.iter().flat_map(|line| self.lines(line)).collect();
                // What no line permits is denied.
                let rest = Match::any().exact(Field::EtherType, IPV4.into());
                rules.push(self.rule(Action::Drop, rest, 0, "deny ip any any"));
                Ok(rules)
            }
        }
    }

    fn lines<'a>(&'a self, line: &'a AclLine) -> impl Iterator<Item = Rule> + 'a {
        let action = if line.permits { Action::Pass } else { Action::Drop };
        line.matches.iter().map(move |matches| Rule {
            log: self.head.log || line.log,
            // With state, such a line would let begin what only goes on.
            flags: if line.established { Flags::Any } else { Flags::Default },
            keep_state: self.head.keep_state && line.permits && !line.established,
            ..self.rule(action, *matches, line.line, &line.text)
        })
    }

    fn rule(&self, action: Action, matches: Match, number: u32, text: &str) -> Rule {
        let place = if number == 0 { String::from("at its end") } else { number.to_string() };
        Rule {
            action,
            text: format!("{}:{place}: {text}", short(&self.file)),
            keep_state: self.head.keep_state && action == Action::Pass,
            matches: Some(matches),
            ..self.head.clone()
        }
    }
}

impl Ruleset {
    /// Puts the rules of all `load`s in; `rules` are theirs in order.
    ///
    /// # Errors
    /// There are too many.
    pub fn put_in(&mut self, rules: Vec<Vec<Rule>>) -> Result<(), RuleError> {
        let mut all = Vec::new();
        let mut own = std::mem::take(&mut self.rules).into_iter().enumerate().peekable();
        for (load, rules) in self.loads.iter().zip(rules) {
            while let Some((_, rule)) = own.next_if(|(at, _)| *at < load.at) {
                all.push(rule);
            }
            all.extend(rules);
            if all.len() > MOST_RULES {
                return Err(load.place.error(format!("with it there are more than {MOST_RULES} rules")));
            }
        }
        all.extend(own.map(|(_, rule)| rule));
        self.rules = all;
        Ok(())
    }
}
