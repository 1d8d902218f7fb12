//! The words that a command line of the text protocols begins with.

use super::event::Answer;

/// A command of the classic or the meta protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are memcached's words")]
pub enum Verb {
    Get,
    Gets,
    Gat,
    Gats,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Incr,
    Decr,
    Touch,
    Delete,
    FlushAll,
    Mg,
    Ms,
    Md,
    Ma,
    Me,
    Mn,
    Quit,
    Watch,
    Verbosity,
    Stats,
    /// `version`, `shutdown`: nothing that is stored changes; "noreply" means nothing to them.
    Asks,
    /// `lru`, `lru_crawler`, `slabs`, `cache_memlimit`, `extstore`: nothing that is stored changes but by eviction.
    Tunes,
    /// Any other: it may do anything.
    Unknown,
}

/// The longest word that is known, in bytes.
pub const LONGEST: usize = 14;

impl Verb {
    /// How a meta command with `q` is answered.
    pub fn quiet_answer(self) -> Answer {
        match self {
            Verb::Mg => Answer::Found,
            Verb::Ms | Verb::Md | Verb::Ma => Answer::Failed,
            _ => Answer::Maybe,
        }
    }

    /// Of the line's first token. Case matters.
    pub fn of(word: &[u8]) -> Self {
        match word {
            // `bget` is an old name that is still answered.
            b"get" | b"bget" => Verb::Get,
            b"gets" => Verb::Gets,
            b"gat" => Verb::Gat,
            b"gats" => Verb::Gats,
            b"set" => Verb::Set,
            b"add" => Verb::Add,
            b"replace" => Verb::Replace,
            b"append" => Verb::Append,
            b"prepend" => Verb::Prepend,
            b"cas" => Verb::Cas,
            b"incr" => Verb::Incr,
            b"decr" => Verb::Decr,
            b"touch" => Verb::Touch,
            b"delete" => Verb::Delete,
            b"flush_all" => Verb::FlushAll,
            b"mg" => Verb::Mg,
            b"ms" => Verb::Ms,
            b"md" => Verb::Md,
            b"ma" => Verb::Ma,
            b"me" => Verb::Me,
            b"mn" => Verb::Mn,
            b"quit" => Verb::Quit,
            b"watch" => Verb::Watch,
            b"verbosity" => Verb::Verbosity,
            b"stats" => Verb::Stats,
            b"version" | b"shutdown" => Verb::Asks,
            b"lru" | b"lru_crawler" | b"slabs" | b"cache_memlimit" | b"extstore" => Verb::Tunes,
            _ => Verb::Unknown,
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Gets => "gets",
            Verb::Gat => "gat",
            Verb::Gats => "gats",
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
            Verb::Cas => "cas",
            Verb::Incr => "incr",
            Verb::Decr => "decr",
            Verb::Touch => "touch",
            Verb::Delete => "delete",
            Verb::FlushAll => "flush_all",
            Verb::Mg => "mg",
            Verb::Ms => "ms",
            Verb::Md => "md",
            Verb::Ma => "ma",
            Verb::Me => "me",
            Verb::Mn => "mn",
            Verb::Quit => "quit",
            Verb::Watch => "watch",
            Verb::Verbosity => "verbosity",
            Verb::Stats => "stats",
            Verb::Asks | Verb::Tunes | Verb::Unknown => "",
        }
    }

    /// Whether a value follows the line of a right command.
    pub fn stores(self) -> bool {
        matches!(
            self,
            Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas | Verb::Ms
        )
    }

    /// Whether it is one of the meta protocol's.
    pub fn is_meta(self) -> bool {
        matches!(self, Verb::Mg | Verb::Ms | Verb::Md | Verb::Ma | Verb::Me | Verb::Mn)
    }

    /// Whether it may change what is stored under the key that it names. `mg` does with some of its flags.
    pub fn changes_key(self) -> bool {
        self.stores()
            || matches!(self, Verb::Incr | Verb::Decr | Verb::Touch | Verb::Delete | Verb::Md | Verb::Ma)
            || self.gets_and_touches()
    }

    /// `gat`, `gats`: the keys stand behind a time.
    pub fn gets_and_touches(self) -> bool {
        matches!(self, Verb::Gat | Verb::Gats)
    }

    /// Reads any number of keys.
    pub fn gets(self) -> bool {
        matches!(self, Verb::Get | Verb::Gets) || self.gets_and_touches()
    }

    /// The numbers of tokens, the word included, with which "noreply" as the last one is heard; with others `ERROR` is answered, whatever the
    /// last token says. `None`: "noreply" is not heard.
    pub fn tokens(self) -> Option<std::ops::RangeInclusive<u32>> {
        Some(match self {
            Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend => 5..=6,
            Verb::Cas => 6..=7,
            Verb::Incr | Verb::Decr | Verb::Touch => 3..=4,
            Verb::Delete => 2..=4,
            Verb::FlushAll => 1..=3,
            Verb::Verbosity => 2..=3,
            _ => return None,
        })
    }
}
