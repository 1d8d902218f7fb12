//! Tokens to rules.

use super::lex::{Kind, Token, read_line, short, tokens};
use super::load::read_load;
use super::set_file::read_network;
use super::{
    Action, Direction, Ends, Flags, Host, MOST_BYTES, MOST_RULES, Place, Rule, RuleError, Ruleset, Set, names,
};
use crate::plain::is_plain;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Tokens of one statement when its macros are put in.
const MOST_TOKENS: usize = 1 << 14;
/// Names that a list may have, sets and negated addresses together: they are bits of a word.
pub(super) const MOST_SETS: usize = 48;

/// What pf has and this has not, and why or what instead.
const REFUSED: [(&str, &str); 16] = [
    ("anchor", "anchors are not supported: put the rules here"),
    ("include", "there is one rule file: put the rules here"),
    ("nat", "a filter does not translate: that is the role `nat`"),
    ("rdr", "a filter does not translate: that is the role `nat`"),
    ("binat", "a filter does not translate: that is the role `nat`"),
    ("nat-anchor", "a filter does not translate: that is the role `nat`"),
    ("rdr-anchor", "a filter does not translate: that is the role `nat`"),
    ("scrub", "packets are not changed: overlapping fragments are dropped always"),
    ("match", "`match` is not supported: say `pass` or `block`"),
    ("antispoof", "`antispoof` is not supported: write `block in quick on ! ...` as rules on addresses"),
    ("queue", "queues are not supported"),
    ("altq", "queues are not supported"),
    ("divert", "`divert` is not supported"),
    ("state-policy", "`state-policy` is not supported: states hold on every interface"),
    ("dummynet", "`dummynet` is not supported"),
    ("ether", "rules on Ethernet are not supported"),
];

/// Options of a rule that pf has and this has not.
const NO_OPTIONS: [&str; 24] = [
    "user",
    "group",
    "os",
    "tos",
    "prio",
    "tag",
    "tagged",
    "route-to",
    "reply-to",
    "dup-to",
    "rtable",
    "probability",
    "allow-opts",
    "fragment",
    "received-on",
    "once",
    "max-pkt-rate",
    "queue",
    "rdr-to",
    "nat-to",
    "af-to",
    "set",
    "divert-to",
    "scrub",
];

/// Reads a rule file.
///
/// # Errors
/// The first thing that is wrong, with line and column.
pub fn read_rules(text: &str) -> Result<Ruleset, RuleError> {
    if text.len() > MOST_BYTES {
        return Err(RuleError::new(
            1,
            1,
            format!("the file has more than {MOST_BYTES} bytes: read addresses from a set's file"),
        ));
    }
    let mut file = File::default();
    let tokens = tokens(text)?;
    let lines: Vec<&str> = text.split('\n').collect();
    let mut rest = &tokens[..];
    while let Some(end) = rest.iter().position(|token| token.kind == Kind::End) {
        let (statement, next) = rest.split_at(end + 1);
        rest = next;
        file.statement(statement, &lines)?;
    }
    file.finish()
}

#[derive(Default)]
pub(super) struct File {
    macros: HashMap<String, Vec<Token>>,
    set: Ruleset,
    tells: bool,
    /// Sets by name; those that are only named so far have a place where they were.
    sets: HashMap<String, (usize, Option<Place>)>,
    negated: usize,
}

/// One statement, its macros put in.
pub(super) struct Line<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Line<'_> {
    pub(super) fn peek(&self) -> &Token {
        // The last one is the end, which nobody takes.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    pub(super) fn next(&mut self) -> Token {
        let token = self.peek().clone();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn place(&self) -> Place {
        let token = self.peek();
        Place { line: token.line, column: token.column }
    }

    fn word(&self) -> Option<&str> {
        match &self.peek().kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Takes this word, if it is next.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is = self.word() == Some(word);
        self.at += usize::from(is);
        is
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.peek().kind, Kind::Sign(next) if next == sign);
        self.at += usize::from(is);
        is
    }

    fn need_sign(&mut self, sign: &str, what: &str) -> Result<(), RuleError> {
        if self.take_sign(sign) {
            return Ok(());
        }
        let next = self.peek();
        Err(next.error(format!("{what}: `{sign}` must be here, not {}", next.shown())))
    }

    pub(super) fn need_word(&mut self, what: &str) -> Result<(String, Token), RuleError> {
        let token = self.next();
        match &token.kind {
            Kind::Word(word) => Ok((word.clone(), token)),
            _ => Err(token.error(format!("{what} must be here, not {}", token.shown()))),
        }
    }

    /// An error that something else must be next.
    pub(super) fn wrong(&self, what: &str) -> RuleError {
        let next = self.peek();
        next.error(format!("{what} must be here, not {}", next.shown()))
    }

    /// One of something, or a list of them in braces.
    pub(super) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self, bool) -> Result<T, RuleError>,
    ) -> Result<Vec<T>, RuleError> {
        if !self.take_sign("{") {
            return Ok(vec![one(self, false)?]);
        }
        let mut list = Vec::new();
        loop {
            while self.take_sign(",") {}
            if self.take_sign("}") {
                break;
            }
            if self.peek().kind == Kind::End {
                return Err(self.peek().error("this list is not closed: `}` is missing"));
            }
            list.push(one(self, true)?);
        }
        match list.is_empty() {
            true => Err(self.peek().error("this list is empty")),
            false => Ok(list),
        }
    }
}

impl File {
    /// Rules so far.
    pub(super) fn rules(&self) -> usize {
        self.set.rules.len()
    }

    fn statement(&mut self, raw: &[Token], lines: &[&str]) -> Result<(), RuleError> {
        let Some(first) = raw.first().filter(|token| token.kind != Kind::End) else { return Ok(()) };
        if let [Token { kind: Kind::Word(name), .. }, Token { kind: Kind::Sign("="), .. }, ..] = raw {
            return self.define(name, first, &raw[2..]);
        }
        let tokens = self.put_in(raw)?;
        let mut line = Line { tokens: &tokens, at: 0 };
        let (word, token) = line
            .need_word("a statement (`pass`, `block`, `reject`, `load`, `table`, `set`, `name = \"...\"`)")?;
        match &word[..] {
            "pass" | "block" | "reject" => {
                let rule = self.rule(&word, &mut line, raw, lines)?;
                if self.set.rules.len() == MOST_RULES {
                    return Err(token.error(format!("there are more than {MOST_RULES} rules")));
                }
                self.set.rules.push(rule);
            }
            "load" => {
                let load = read_load(self, &mut line, raw, lines)?;
                self.set.loads.push(load);
            }
            "table" => self.table(&mut line)?,
            "set" => self.option(&mut line)?,
            _ => {
                let why = REFUSED.iter().find(|(known, _)| *known == word);
                return Err(token.error(match why {
                    Some((_, why)) => (*why).to_owned(),
                    None => format!(
                        "{} begins no statement: there are `pass`, `block`, `reject`, `load`, `table`, `set`, and `name = \"...\"`",
                        token.shown()
                    ),
                }));
            }
        }
        match &line.peek().kind {
            Kind::End => Ok(()),
            Kind::Word(word) if NO_OPTIONS.contains(&&word[..]) => {
                Err(line.peek().error(format!("`{word}` is pf's, and not supported here")))
            }
            _ => Err(line.peek().error(format!("{} has no place here", line.peek().shown()))),
        }
    }

    /// `name = "value"`.
    fn define(&mut self, name: &str, at: &Token, rest: &[Token]) -> Result<(), RuleError> {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(at.error("a macro's name is letters, digits and `_`, no digit first"));
        }
        let mut value = Vec::new();
        for token in rest.iter().take_while(|token| token.kind != Kind::End) {
            match &token.kind {
                Kind::Text(text) => {
                    let mut inside = Vec::new();
                    if read_line(text, token.line, &mut inside)? {
                        return Err(token.error("a macro's text ends with a `\\`"));
                    }
                    // Places in the text are places behind its quote.
                    for part in &mut inside {
                        part.column += token.column;
                    }
                    value.extend(self.put_in(&inside)?);
                }
                Kind::Macro(_) => value.extend(self.put_in(std::slice::from_ref(token))?),
                _ => value.push(token.clone()),
            }
            if value.len() > MOST_TOKENS {
                return Err(token.error(format!("this macro has more than {MOST_TOKENS} words")));
            }
        }
        if value.is_empty() {
            return Err(
                at.error(format!("the macro {} is nothing: give it a value, or leave it out", short(name)))
            );
        }
        self.macros.insert(name.to_owned(), value);
        Ok(())
    }

    /// Puts macros' values in, with the places where they are used.
    fn put_in(&self, raw: &[Token]) -> Result<Vec<Token>, RuleError> {
        let mut tokens = Vec::new();
        for token in raw {
            match &token.kind {
                Kind::Macro(name) => {
                    let Some(value) = self.macros.get(name) else {
                        return Err(token.error(format!("there is no macro {} above this line", short(name))));
                    };
                    tokens.extend(value.iter().map(|part| Token {
                        line: token.line,
                        column: token.column,
                        ..part.clone()
                    }));
                }
                _ => tokens.push(token.clone()),
            }
            if tokens.len() > MOST_TOKENS {
                return Err(
                    token.error(format!("this statement has more than {MOST_TOKENS} words: use a table"))
                );
            }
        }
        Ok(tokens)
    }

    /// `set skip on ...`, `set block-policy ...`.
    fn option(&mut self, line: &mut Line<'_>) -> Result<(), RuleError> {
        let (name, token) = line.need_word("an option")?;
        match &name[..] {
            "skip" => {
                if !line.take("on") {
                    return Err(line.peek().error("`set skip on INTERFACE`: `on` is missing"));
                }
                let skip = line.list(|line, _| interface(line))?;
                self.set.skip.extend(skip);
                Ok(())
            }
            "block-policy" => {
                let (policy, token) = line.need_word("`drop` or `return`")?;
                self.tells = match &policy[..] {
                    "drop" => false,
                    "return" => true,
                    _ => return Err(token.error("`drop` or `return` must be here")),
                };
                Ok(())
            }
            "timeout" | "limit" | "optimization" => {
                Err(token
                    .error(format!("`set {name}`: timeouts and room are in the configuration's [filter]")))
            }
            _ => Err(token.error(format!(
                "`set {}` is not supported: there are `skip` and `block-policy`",
                short(&name)
            ))),
        }
    }

    /// `table <name> persist const file "..." { ... }`.
    fn table(&mut self, line: &mut Line<'_>) -> Result<(), RuleError> {
        line.need_sign("<", "a table's name")?;
        let (name, token) = line.need_word("a table's name")?;
        line.need_sign(">", "behind a table's name")?;
        if name.len() > 31 {
            return Err(token.error("a table's name has 31 letters at most"));
        }
        if matches!(self.sets.get(&name), Some((_, None))) {
            return Err(token.error(format!("there is a table <{name}> already")));
        }
        let number = self.set_number(&name, Place { line: token.line, column: token.column }, true)?;
        loop {
            if line.take("persist") || line.take("counters") {
                // Tables always stay; and are there whether or not rules name them.
            } else if line.take("const") {
                self.set.sets[number].is_const = true;
            } else if line.take("file") {
                let file = line.next();
                let Kind::Text(path) = &file.kind else {
                    return Err(file.error("a file's name in quotes must be here"));
                };
                if path.is_empty() {
                    return Err(file.error("this name is empty: name a file"));
                }
                self.set.sets[number]
                    .files
                    .push((path.clone(), Place { line: file.line, column: file.column }));
            } else if matches!(line.peek().kind, Kind::Sign("{")) {
                line.take_sign("{");
                self.set.sets[number].has_list = true;
                loop {
                    while line.take_sign(",") {}
                    if line.take_sign("}") {
                        break;
                    }
                    let token = line.next();
                    match &token.kind {
                        Kind::Word(word) => {
                            let network = read_network(word).map_err(|what| token.error(what))?;
                            self.set.sets[number].networks.push(network);
                        }
                        Kind::Sign("!") => return Err(token.error("`!` in a table is not supported")),
                        Kind::End => return Err(token.error("this list is not closed: `}` is missing")),
                        _ => {
                            return Err(
                                token.error(format!("an address must be here, not {}", token.shown()))
                            );
                        }
                    }
                }
            } else {
                return Ok(());
            }
        }
    }

    fn set_number(&mut self, name: &str, place: Place, defined: bool) -> Result<usize, RuleError> {
        if let Some((number, named)) = self.sets.get_mut(name) {
            if defined {
                *named = None;
            }
            return Ok(*number);
        }
        if self.sets.len() + self.negated == MOST_SETS {
            return Err(place.error(format!("there are more than {MOST_SETS} tables and negated addresses")));
        }
        let number = self.set.sets.len();
        self.set.sets.push(Set { name: name.to_owned(), ..Set::default() });
        self.sets.insert(name.to_owned(), (number, (!defined).then_some(place)));
        Ok(number)
    }

    fn rule(
        &mut self,
        word: &str,
        line: &mut Line<'_>,
        raw: &[Token],
        lines: &[&str],
    ) -> Result<Rule, RuleError> {
        let mut rule = blank(self.action(word, line)?, raw, lines);
        rule.keep_state = word == "pass";
        way(&mut rule, line)?;
        rule.quick = line.take("quick");
        if line.take("on") {
            rule.interfaces = line.list(|line, _| interface(line))?;
        }
        if line.take("inet") {
            rule.is_v6 = Some(false);
        } else if line.take("inet6") {
            rule.is_v6 = Some(true);
        }
        if line.take("proto") {
            rule.protocols = line.list(|line, _| protocol(line))?;
        }
        if !line.take("all") {
            for (word, to) in [("from", false), ("to", true)] {
                if line.take(word) {
                    let ends = self.ends(line)?;
                    *(if to { &mut rule.to } else { &mut rule.from }) = ends;
                }
            }
        }
        self.options(&mut rule, line)?;
        Ok(rule)
    }

    /// What a word says is done, with what may follow it.
    pub(super) fn action(&self, word: &str, line: &mut Line<'_>) -> Result<Action, RuleError> {
        if word == "block" {
            if line.take("drop") {
                return Ok(Action::Drop);
            }
            if line.take("return") {
                return Ok(Action::Tell);
            }
            if line.word().is_some_and(|word| word.starts_with("return-")) {
                return Err(line.peek().error(
                    "senders are told by ICMP, `return` or `reject`: kinds of answers are not supported",
                ));
            }
        }
        Ok(match word {
            "pass" => Action::Pass,
            "reject" => Action::Tell,
            _ if self.tells => Action::Tell,
            _ => Action::Drop,
        })
    }

    fn ends(&mut self, line: &mut Line<'_>) -> Result<Ends, RuleError> {
        let hosts = match line.word() {
            // `from port 22`, as pf takes it.
            Some("port") => Vec::new(),
            _ => line.list(|line, in_list| self.host(line, in_list))?,
        };
        // One that is any host makes all of them so.
        let hosts = hosts.into_iter().collect::<Option<Vec<Host>>>().unwrap_or_default();
        let ports = match line.take("port") {
            true => line.list(|line, _| ports(line))?.concat(),
            false => Vec::new(),
        };
        Ok(Ends { hosts, ports })
    }

    /// A host; `None`: any.
    fn host(&mut self, line: &mut Line<'_>, in_list: bool) -> Result<Option<Host>, RuleError> {
        let place = line.place();
        let not = line.take_sign("!");
        if not && in_list {
            return Err(place.error(
                "`!` in a list would mean everybody (each of the list is a rule of its own): put the list into a table, and say `! <table>`",
            ));
        }
        if line.take_sign("<") {
            let (name, token) = line.need_word("a table's name")?;
            line.need_sign(">", "behind a table's name")?;
            let number = self.set_number(&name, Place { line: token.line, column: token.column }, false)?;
            return Ok(Some(Host::Set(number, not)));
        }
        if line.take("any") {
            return match not {
                true => Err(place.error("`! any` is nobody")),
                false => Ok(None),
            };
        }
        let (word, token) = line.need_word("an address, a prefix, `any` or `<table>`")?;
        let network = read_network(&word).map_err(|what| {
            let letters = word.bytes().any(|byte| byte.is_ascii_alphabetic()) && !word.contains(':');
            match letters {
                true => token.error(format!(
                    "`{}` is no address: names of hosts and interfaces are not looked up, give addresses",
                    short(&word)
                )),
                false => token.error(what),
            }
        })?;
        if not {
            self.negated += 1;
            if self.sets.len() + self.negated > MOST_SETS {
                return Err(
                    place.error(format!("there are more than {MOST_SETS} tables and negated addresses"))
                );
            }
            return Ok(Some(Host::NotIn(network)));
        }
        Ok(Some(Host::In(network)))
    }

    /// Each once: of two that say otherwise nobody knows which is meant.
    fn options(&mut self, rule: &mut Rule, line: &mut Line<'_>) -> Result<(), RuleError> {
        let mut said = Vec::new();
        loop {
            let place = line.place();
            let what = match line.word() {
                Some("flags") => "`flags`",
                Some("icmp-type" | "icmp6-type") => "a type of ICMP",
                Some("keep" | "no") => "`keep state` or `no state`",
                Some("label") => "a label",
                _ => "",
            };
            if said.contains(&what) {
                return Err(place.error(format!("{what} is there already in this rule: leave one out")));
            }
            said.push(what);
            if line.take("flags") {
                rule.flags = flags(line)?;
                let masked = matches!(rule.flags, Flags::Masked { .. });
                if masked && rule.protocols != [6] {
                    return Err(place.error("`flags` is about TCP: say `proto tcp`"));
                }
            } else if line.take("icmp-type") || line.take("icmp6-type") {
                let is_v6 = line
                    .tokens
                    .get(line.at.wrapping_sub(1))
                    .is_some_and(|token| token.shown() == "`icmp6-type`");
                let needed = if is_v6 { 58 } else { 1 };
                if rule.protocols != [needed] {
                    return Err(
                        place.error(format!("it needs `proto {}`", if is_v6 { "icmp6" } else { "icmp" }))
                    );
                }
                rule.icmp = line.list(|line, _| icmp(line, is_v6))?;
            } else if line.take("keep") {
                if !line.take("state") {
                    return Err(line.peek().error("`keep state`: `state` is missing"));
                }
                if rule.action != Action::Pass {
                    return Err(place.error("what is blocked has no state: leave `keep state` out"));
                }
                if matches!(line.peek().kind, Kind::Sign("(")) {
                    return Err(line.peek().error("`keep state` takes no options: room and timeouts are in the configuration's [filter]"));
                }
                rule.keep_state = true;
            } else if line.take("no") {
                if !line.take("state") {
                    return Err(line.peek().error("`no state`: `state` is missing"));
                }
                rule.keep_state = false;
            } else if matches!(line.word(), Some("modulate" | "synproxy")) {
                return Err(place.error(
                    "it is not supported: say `keep state`; half-open connections are bounded always",
                ));
            } else if line.take("label") {
                let token = line.next();
                let (Kind::Text(label) | Kind::Word(label)) = &token.kind else {
                    return Err(token.error("a label must be here"));
                };
                if label.is_empty() || label.len() > 63 {
                    return Err(token.error("a label has 1 to 63 bytes"));
                }
                if label.contains('$') {
                    return Err(token.error("`$` in labels is not supported"));
                }
                rule.label = Some(label.clone());
            } else {
                return Ok(());
            }
        }
    }

    fn finish(self) -> Result<Ruleset, RuleError> {
        let missing = self.sets.iter().filter_map(|(name, (_, place))| Some((place.as_ref()?, name)));
        if let Some((place, name)) = missing.min_by_key(|(place, _)| (place.line, place.column)) {
            let name = short(name);
            return Err(place.error(format!("there is no table <{name}>: write `table <{name}> persist`")));
        }
        Ok(self.set)
    }
}

/// A rule about everything.
pub(super) fn blank(action: Action, raw: &[Token], lines: &[&str]) -> Rule {
    Rule {
        place: raw.first().map(|token| Place { line: token.line, column: token.column }).unwrap_or_default(),
        text: shown(raw, lines),
        action,
        direction: None,
        log: false,
        quick: false,
        interfaces: Vec::new(),
        is_v6: None,
        protocols: Vec::new(),
        from: Ends::default(),
        to: Ends::default(),
        flags: Flags::Default,
        icmp: Vec::new(),
        keep_state: false,
        label: None,
        matches: None,
    }
}

/// On which way, and whether packets are logged.
pub(super) fn way(rule: &mut Rule, line: &mut Line<'_>) -> Result<(), RuleError> {
    if line.take("in") {
        rule.direction = Some(Direction::In);
    } else if line.take("out") {
        rule.direction = Some(Direction::Out);
    }
    if line.take("log") {
        rule.log = true;
        if matches!(line.peek().kind, Kind::Sign("(")) {
            return Err(line
                .peek()
                .error("`log` takes no options: of a connection the first packet is logged"));
        }
    }
    Ok(())
}

/// The text of a statement on one line, without comments.
fn shown(raw: &[Token], lines: &[&str]) -> String {
    let (first, last) = (raw.first().map_or(1, |token| token.line), raw.last().map_or(1, |token| token.line));
    let lines = lines.get(first as usize - 1..last as usize).unwrap_or_default();
    let words: Vec<&str> = lines.iter().flat_map(|line| plain(line).split_ascii_whitespace()).collect();
    let whole = words.join(" ").replace(|c: char| !is_plain(c), "?");
    let mut end = whole.len().min(500);
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    whole[..end].to_owned()
}

/// A line without its comment, and without the `\` by which it goes on.
fn plain(line: &str) -> &str {
    let mut quoted = false;
    let comment = line.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b'#' && !quoted
    });
    let line = line.get(..comment.unwrap_or(line.len())).unwrap_or(line).trim_end();
    line.strip_suffix('\\').unwrap_or(line)
}

pub(super) fn interface(line: &mut Line<'_>) -> Result<(String, Place), RuleError> {
    let place = line.place();
    if matches!(line.peek().kind, Kind::Sign("!")) {
        return Err(place.error("`! INTERFACE` is not supported: list the others"));
    }
    Ok((line.need_word("an interface's name")?.0, place))
}

fn protocol(line: &mut Line<'_>) -> Result<u8, RuleError> {
    let (word, token) = line.need_word("a protocol")?;
    names::protocol(&word).or_else(|| word.parse().ok()).ok_or_else(|| {
        token.error(format!(
            "`{}` is no protocol that is known by name: give its number, 0 to 255",
            short(&word)
        ))
    })
}

fn port(word: &str, token: &Token) -> Result<u16, RuleError> {
    names::service(word).or_else(|| word.parse().ok()).ok_or_else(|| {
        token.error(format!("`{}` is no port that is known by name: give a number, 0 to 65535", short(word)))
    })
}

/// A port, a range, or what a comparison leaves.
fn ports(line: &mut Line<'_>) -> Result<Vec<RangeInclusive<u16>>, RuleError> {
    let sign = match line.peek().kind {
        Kind::Sign(sign @ ("=" | "!=" | "<" | "<=" | ">" | ">=")) => sign,
        Kind::Sign("><" | "<>") => {
            return Err(line.peek().error("a range of ports is `first:last`"));
        }
        _ => "",
    };
    line.at += usize::from(!sign.is_empty());
    let (word, token) = line.need_word("a port")?;
    if matches!(line.peek().kind, Kind::Sign("><" | "<>")) {
        return Err(line
            .peek()
            .error("a range of ports is `first:last`; without its ends, or all others: give the ranges"));
    }
    if let Some((first, last)) = word.split_once(':') {
        let range = port(first, &token)?..=port(last, &token)?;
        return match () {
            () if !sign.is_empty() => Err(token.error("a range cannot be compared: give a port")),
            () if range.is_empty() => {
                Err(token.error(format!("the range {} ends before it begins", short(&word))))
            }
            () => Ok(vec![range]),
        };
    }
    let port = port(&word, &token)?;
    let ranges: Vec<RangeInclusive<u16>> = match sign {
        "!=" => [(port > 0).then(|| 0..=port - 1), (port < u16::MAX).then(|| port + 1..=u16::MAX)]
            .into_iter()
            .flatten()
            .collect(),
        "<" if port > 0 => vec![0..=port - 1],
        "<=" => vec![0..=port],
        ">" if port < u16::MAX => vec![port + 1..=u16::MAX],
        ">=" => vec![port..=u16::MAX],
        "<" | ">" => return Err(token.error("no port is like this")),
        _ => vec![port..=port],
    };
    Ok(ranges)
}

fn flags(line: &mut Line<'_>) -> Result<Flags, RuleError> {
    let (word, token) = line.need_word("flags (`S/SA`, `any`)")?;
    if word == "any" {
        return Ok(Flags::Any);
    }
    let read = |letters: &str| -> Option<u8> {
        letters.bytes().try_fold(0, |all, letter| {
            Some(all | 1 << b"FSRPAUEW".iter().position(|known| *known == letter)?)
        })
    };
    let read = word.split_once('/').and_then(|(set, of)| Some((read(set)?, read(of)?)));
    match read {
        Some((set, of)) if of != 0 && set & !of == 0 => Ok(Flags::Masked { set, of }),
        Some(_) => {
            Err(token.error("of the flags behind the `/` those before it are set: they must be among them"))
        }
        None => {
            Err(token.error("flags are written SET/OF, of the letters F S R P A U E W: `S/SA`; or `any`"))
        }
    }
}

fn icmp(line: &mut Line<'_>, is_v6: bool) -> Result<(u8, Option<u8>), RuleError> {
    let (word, token) = line.need_word("a type of ICMP")?;
    let kind = names::icmp(&word, is_v6).or_else(|| word.parse().ok());
    let Some(kind) = kind else {
        return Err(token.error(format!(
            "`{}` is no type of ICMP that is known by name: give its number, 0 to 255",
            short(&word)
        )));
    };
    if !line.take("code") {
        return Ok((kind, None));
    }
    let (word, token) = line.need_word("a code")?;
    let code = word.parse().map_err(|_| token.error("a code is a number, 0 to 255"))?;
    Ok((kind, Some(code)))
}
