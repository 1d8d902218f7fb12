//! What a command may change: Redis says it itself (`COMMAND`: flags, where keys are), and what it does not say stands here. A word that is in neither makes everything void while it is under way.

use super::counters::Counter;
use std::collections::HashMap;
use tidemill_kv::resp::integer;
use tidemill_kv::resp::item::{Item, Items};
use tidemill_kv::resp::request::Requests;

/// Reads that can be answered, of one key, which is the second word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Read {
    Get,
    Strlen,
    Exists,
    Type,
    Hget,
    Hmget,
    Hgetall,
    Hlen,
    Hexists,
    Smembers,
    Sismember,
    Scard,
    Lrange,
    Lindex,
    Llen,
    Zrange,
    Zscore,
    Zrank,
    Zcard,
}

const READS: &[(&str, Read, Counter)] = &[
    ("get", Read::Get, Counter::Get),
    ("strlen", Read::Strlen, Counter::Strlen),
    ("exists", Read::Exists, Counter::Exists),
    ("type", Read::Type, Counter::Type),
    ("hget", Read::Hget, Counter::Hget),
    ("hmget", Read::Hmget, Counter::Hmget),
    ("hgetall", Read::Hgetall, Counter::Hgetall),
    ("hlen", Read::Hlen, Counter::Hlen),
    ("hexists", Read::Hexists, Counter::Hexists),
    ("smembers", Read::Smembers, Counter::Smembers),
    ("sismember", Read::Sismember, Counter::Sismember),
    ("scard", Read::Scard, Counter::Scard),
    ("lrange", Read::Lrange, Counter::Lrange),
    ("lindex", Read::Lindex, Counter::Lindex),
    ("llen", Read::Llen, Counter::Llen),
    ("zrange", Read::Zrange, Counter::Zrange),
    ("zscore", Read::Zscore, Counter::Zscore),
    ("zrank", Read::Zrank, Counter::Zrank),
    ("zcard", Read::Zcard, Counter::Zcard),
];

impl Read {
    /// The one of a name.
    pub(super) fn named(word: &[u8]) -> Option<Self> {
        READS.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name.as_bytes())).map(|(_, read, _)| *read)
    }

    /// What counts its hits.
    pub(super) fn hit(self) -> Counter {
        READS.iter().find(|(_, read, _)| *read == self).map_or(Counter::Get, |(.., counter)| *counter)
    }

    /// A bit of its own.
    pub(super) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Whether the reply to these words has all of a value.
    pub(super) fn fills(self, words: &Requests) -> bool {
        let all = || words.word(2) == Some(&b"0"[..]) && words.word(3) == Some(&b"-1"[..]);
        match (self, words.count()) {
            (Read::Get | Read::Hgetall | Read::Smembers, 2) => true,
            (Read::Lrange, 4) => all(),
            (Read::Zrange, 5) => {
                all() && words.word(4).is_some_and(|word| word.eq_ignore_ascii_case(b"withscores"))
            }
            _ => false,
        }
    }
}

/// Words that change the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
    Select,
    Auth,
    Hello,
    /// From here on nothing is answered or kept by this connection: Redis has to see what it reads (tracking), or who it is cannot be told any more.
    Apart,
    /// From here on replies cannot be told apart either.
    Blind,
}

const SPECIALS: &[(&str, Special)] = &[
    ("multi", Special::Multi),
    ("exec", Special::Exec),
    ("discard", Special::Discard),
    ("watch", Special::Watch),
    ("unwatch", Special::Unwatch),
    ("select", Special::Select),
    ("auth", Special::Auth),
    ("hello", Special::Hello),
    ("reset", Special::Apart),
    // Redis ends the connection behind its reply: nothing may be answered after that.
    ("quit", Special::Apart),
    ("client|tracking", Special::Apart),
    ("client|caching", Special::Apart),
    ("client|reply", Special::Blind),
    // Scripts answer then as often as they like.
    ("script|debug", Special::Blind),
    ("monitor", Special::Blind),
    ("psync", Special::Blind),
    ("replconf", Special::Blind),
    ("sync", Special::Blind),
    ("psubscribe", Special::Blind),
    ("punsubscribe", Special::Blind),
    ("ssubscribe", Special::Blind),
    ("subscribe", Special::Blind),
    ("sunsubscribe", Special::Blind),
    ("unsubscribe", Special::Blind),
];

/// Words, and words with their second, that Redis does not call read-only and that change no key.
const HARMLESS: &[&str] = &[
    "acl|cat",
    "acl|getuser",
    "acl|list",
    "acl|log",
    "acl|users",
    "acl|whoami",
    "asking",
    "bgrewriteaof",
    "bgsave",
    "client",
    "cluster|info",
    "cluster|keyslot",
    "cluster|myid",
    "cluster|nodes",
    "cluster|shards",
    "cluster|slots",
    "command",
    "config|get",
    "config|resetstat",
    "echo",
    "info",
    "lastsave",
    "latency",
    "memory|doctor",
    "memory|stats",
    "object|help",
    "ping",
    "publish",
    "pubsub",
    "role",
    "script|exists",
    "script|load",
    "slowlog",
    "spublish",
    "time",
    "wait",
    // Of streams, which are not kept: on anything else it is an error.
    "xreadgroup",
];

/// Commands whose keys Redis says are elsewhere: behind a word that is their number.
const NUMBERED: &[(&str, usize)] = &[("lmpop", 1), ("zmpop", 1), ("blmpop", 2), ("bzmpop", 2)];

/// And those that change the first of them only.
const STORES: &[&str] = &["zdiffstore", "zinterstore", "zunionstore"];

/// Words that Redis calls read-only, and that change what GET says.
const WRITES: &[&str] = &["pfcount"];

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing to any key; the read, if it is one that can be answered.
    Reads(Option<Read>),
    Special(Special),
    /// It may change the keys at these words: the first, the last, every so many.
    Keys(usize, usize, usize),
    /// It may change any.
    All,
    /// The word is not known: it may change any, and the connection too.
    Unknown,
}

#[derive(Debug, Clone, Copy)]
struct Spec {
    reads: bool,
    first: i64,
    last: i64,
    step: i64,
    /// Its keys are elsewhere.
    movable: bool,
}

/// What Redis has said of its commands.
#[derive(Debug, Default)]
pub(super) struct Commands {
    by_name: HashMap<Vec<u8>, Spec>,
    /// The bits of reads that it calls read-only.
    reads: u32,
    name: Vec<u8>,
}

/// An array in an array in an array; `COMMAND` has eight.
const DEPTH: usize = 16;

/// An item with what belongs to it.
enum Tree<'a> {
    Leaf(Item<'a>),
    Node(Vec<Tree<'a>>),
}

impl<'a> Tree<'a> {
    fn read(items: &mut Items<'a>, depth: usize) -> Option<Self> {
        let (kind, number) = match items.next()? {
            Item::Many(kind, number) if depth < DEPTH => (kind, number),
            Item::Many(..) => return None,
            item => return Some(Tree::Leaf(item)),
        };
        let number = if kind == b'%' { number.checked_mul(2)? } else { number };
        (0..number).map(|_| Tree::read(items, depth + 1)).collect::<Option<_>>().map(Tree::Node)
    }

    fn nodes(&self) -> &[Tree<'a>] {
        match self {
            Tree::Node(all) => all,
            Tree::Leaf(_) => &[],
        }
    }

    fn text(&self) -> &'a [u8] {
        let Tree::Leaf(item) = self else { return b"" };
        match *item {
            Item::Text(text) | Item::Status(text) | Item::Number(text) => text,
            _ => b"",
        }
    }
}

impl Commands {
    /// Those of a reply to `COMMAND`.
    pub(super) fn from_reply(reply: &[u8]) -> Option<Self> {
        let all = Tree::read(&mut Items::new(reply), 0)?;
        let mut commands = Commands::default();
        for entry in all.nodes() {
            commands.add(entry)?;
        }
        let is_read = |name: &str| commands.by_name.get(name.as_bytes()).is_some_and(|spec| spec.reads);
        let reads = READS.iter().filter(|(name, ..)| is_read(name)).map(|(_, read, _)| read.bit());
        commands.reads = reads.sum();
        // A table without them is none.
        (commands.has("get") && commands.has("set")).then_some(commands)
    }

    fn add(&mut self, entry: &Tree<'_>) -> Option<()> {
        let [name, _arity, flags, first, last, step, more @ ..] = entry.nodes() else { return None };
        let name = name.text().to_ascii_lowercase();
        let has = |flag: &[u8]| flags.nodes().iter().any(|one| one.text() == flag);
        let number = |field: &Tree<'_>| integer(field.text());
        let reads = has(b"readonly") && !has(b"write") && !WRITES.iter().any(|word| word.as_bytes() == name);
        let spec = Spec {
            reads,
            first: number(first)?,
            last: number(last)?,
            step: number(step)?,
            movable: has(b"movablekeys"),
        };
        self.by_name.insert(name, spec);
        // Categories, tips, specifications of keys, subcommands: since Redis 7.
        for subcommand in more.get(3).map(Tree::nodes).unwrap_or_default() {
            self.add(subcommand)?;
        }
        Some(())
    }

    /// Whether there is such a command.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name.as_bytes())
    }

    /// What a request does.
    pub(super) fn class(&mut self, request: &Requests) -> Class {
        let Some(word) = request.word(0) else { return Class::Unknown };
        if let Some(read) = Read::named(word).filter(|read| self.reads & read.bit() != 0) {
            return Class::Reads(Some(read));
        }
        self.name.clear();
        self.name.extend(word.iter().map(u8::to_ascii_lowercase));
        let alone = self.name.len();
        if let Some(second) = request.word(1).filter(|word| word.len() <= 32) {
            self.name.push(b'|');
            self.name.extend(second.iter().map(u8::to_ascii_lowercase));
        }
        let names = [&self.name[..], &self.name[..alone]];
        let is = |name: &str| names.contains(&name.as_bytes());
        if let Some((_, special)) = SPECIALS.iter().find(|(name, _)| is(name)) {
            return Class::Special(*special);
        }
        if HARMLESS.iter().any(|name| is(name)) {
            return Class::Reads(None);
        }
        let Some(spec) = names.iter().find_map(|name| self.by_name.get(*name)) else {
            // Without a table nothing is known of any word; nothing is given then either.
            return if self.by_name.is_empty() { Class::All } else { Class::Unknown };
        };
        if spec.reads {
            return Class::Reads(None);
        }
        if spec.movable {
            return movable(&self.name[..alone], request);
        }
        let count = request.count() as i64;
        let last = if spec.last < 0 { count + spec.last } else { spec.last };
        let kept = !request.is_cut() || usize::try_from(last).is_ok_and(|last| request.word(last).is_some());
        match (usize::try_from(spec.first), usize::try_from(last), usize::try_from(spec.step)) {
            (Ok(first @ 1..), Ok(last), Ok(step @ 1..)) if kept => Class::Keys(first, last, step),
            _ => Class::All,
        }
    }
}

/// Which keys a command changes of which Redis does not say where they are.
fn movable(name: &[u8], request: &Requests) -> Class {
    let is = |known: &str| known.as_bytes() == name;
    if STORES.iter().any(|known| is(known)) && request.word(1).is_some() {
        return Class::Keys(1, 1, 1);
    }
    let Some((_, at)) = NUMBERED.iter().find(|(known, _)| is(known)) else { return Class::All };
    let number = request.word(*at).and_then(integer).and_then(|number| usize::try_from(number).ok());
    match number.and_then(|number| at.checked_add(number)) {
        Some(last) if last > *at && request.word(last).is_some() => Class::Keys(at + 1, last, 1),
        _ => Class::All,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tidemill_kv::resp::item::request;

    /// As Redis 7.0.15 says it, of some commands.
    pub(in crate::redis) fn table() -> Commands {
        let mut text = String::new();
        let all: &[(&str, &str, [i64; 3])] = &[
            ("get", "readonly", [1, 1, 1]),
            ("set", "write", [1, 1, 1]),
            ("mset", "write", [1, -1, 2]),
            ("del", "write", [1, -1, 1]),
            ("exists", "readonly", [1, -1, 1]),
            ("hgetall", "readonly", [1, 1, 1]),
            ("hget", "readonly", [1, 1, 1]),
            ("strlen", "readonly", [1, 1, 1]),
            ("keys", "readonly", [0, 0, 0]),
            ("pfcount", "readonly", [1, -1, 1]),
            ("flushall", "write", [0, 0, 0]),
            ("eval", "movablekeys", [0, 0, 0]),
            ("zunionstore", "write movablekeys", [1, 1, 1]),
            ("blmpop", "write blocking movablekeys", [0, 0, 0]),
            ("debug", "admin", [0, 0, 0]),
        ];
        text += &format!("*{}\r\n", all.len() + 1);
        let entry = |name: &str, flags: &str, [first, last, step]: [i64; 3], more: &str| {
            let flags: Vec<String> = flags.split(' ').map(|flag| format!("+{flag}\r\n")).collect();
            format!(
                "*10\r\n${}\r\n{name}\r\n:-2\r\n~{}\r\n{}:{first}\r\n:{last}\r\n:{step}\r\n*0\r\n*0\r\n*0\r\n{more}",
                name.len(),
                flags.len(),
                flags.concat()
            )
        };
        for (name, flags, keys) in all {
            text += &entry(name, flags, *keys, "*0\r\n");
        }
        let create = entry("xgroup|create", "write", [2, 2, 1], "*0\r\n");
        text += &entry("xgroup", "", [0, 0, 0], &format!("*1\r\n{create}"));
        Commands::from_reply(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_not_known_may_change_anything() {
        let mut commands = table();
        let class = |commands: &mut Commands, words: &str| {
            let (mut text, mut requests) = (Vec::new(), Requests::new());
            request(&mut text, &words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            requests.push(&text);
            commands.class(&requests)
        };
        for (words, is) in [
            ("get k", Class::Reads(Some(Read::Get))),
            ("GET k", Class::Reads(Some(Read::Get))),
            ("KEYS *", Class::Reads(None)),
            ("PING", Class::Reads(None)),
            ("CLIENT ID", Class::Reads(None)),
            ("CLIENT TRACKING ON", Class::Special(Special::Apart)),
            ("client REPLY off", Class::Special(Special::Blind)),
            ("SCRIPT DEBUG sync", Class::Special(Special::Blind)),
            ("script LOAD x", Class::Reads(None)),
            ("quit", Class::Special(Special::Apart)),
            ("SELECT 1", Class::Special(Special::Select)),
            ("CONFIG GET x", Class::Reads(None)),
            ("CONFIG SET x y", Class::Unknown),
            ("SET k v", Class::Keys(1, 1, 1)),
            ("MSET a 1 b 2", Class::Keys(1, 4, 2)),
            ("DEL a b c", Class::Keys(1, 3, 1)),
            ("PFCOUNT a", Class::Keys(1, 1, 1)),
            ("XGROUP CREATE s g 0", Class::Keys(2, 2, 1)),
            ("XGROUP OTHER s", Class::All),
            ("FLUSHALL", Class::All),
            ("EVAL x 0", Class::All),
            ("ZUNIONSTORE d 1 a", Class::Keys(1, 1, 1)),
            ("BLMPOP 0 2 a b LEFT", Class::Keys(3, 4, 1)),
            ("BLMPOP 0 9 a b LEFT", Class::All),
            ("BLMPOP 0 0 a", Class::All),
            ("BLMPOP 0 x a", Class::All),
            ("XREADGROUP GROUP g c STREAMS s >", Class::Reads(None)),
            ("DEBUG SLEEP 0", Class::All),
            ("RENAMED k", Class::Unknown),
        ] {
            assert_eq!(class(&mut commands, words), is, "{words}");
            // Before Redis has said anything, all of it may.
            let unsaid = class(&mut Commands::default(), words);
            assert!(matches!(unsaid, Class::All | Class::Special(_) | Class::Reads(None)), "{words}");
        }
        assert!(Commands::from_reply(b"*0\r\n").is_none());
        assert!(Commands::from_reply(b"-NOPERM x\r\n").is_none());
    }
}
