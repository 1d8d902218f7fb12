//! What a command does, as far as a cache must know: the events that [`super::stream::Requests`] gives, and any other parser is compared by.

/// One thing that a stream of requests says. A command gives its effects, each key by itself, then one [`Event::Command`]. A command without effects
/// gives that alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The command asks for the value of this key, 1 to 250 bytes.
    Reads(&'a [u8]),
    /// The command may change what is stored under this key, or for how long.
    Mutates(&'a [u8]),
    /// The command may change what is stored under any key.
    All,
    /// The command's line (or its header and key) is whole. A value may follow: memcached answers after that, or before it if it is too long.
    Command(Command),
    /// From here on nothing is known: memcached reads the stream in a way that cannot be followed, or closes the connection. It stands for any
    /// number of [`Event::All`], at any time until the connection ends. It is the last event.
    Lost(Lost),
}

/// How a command is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Whether.
    pub answer: Answer,
    /// And as what.
    pub family: Family,
}

/// Whether a command is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Once.
    Always,
    /// Not at all (`noreply`, `quit`).
    Never,
    /// Once or not at all (the quiet opcodes): it depends on what memcached finds.
    Maybe,
    /// Where something is found: `mg` with `q`. It never says that there is nothing.
    Found,
    /// Where it is not done: `ms md ma` with `q`. They never say that it is.
    Failed,
}

/// How the answer is told from answers to other commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Classic text.
    Classic,
    /// `mg ms md ma me`.
    Meta,
    /// `mn`, answered by `MN` and nothing else is.
    MetaNoOp,
    /// `watch`: if it is not refused, lines follow for ever and nothing else is answered.
    Watch,
    /// Binary: the reply repeats both.
    Binary {
        /// The command's.
        opcode: u8,
        /// The client's, as bytes in the order of the wire.
        opaque: u32,
    },
}

/// Why a stream cannot be followed any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// A number that decides whether a value follows, and that memcached may take or not.
    OddNumber,
    /// `ms` with more than 19 tokens.
    ManyTokens,
    /// The reply may hold a key with a line break in it (such keys come by the binary protocol, or encoded): nobody could tell where it ends. `mg` with
    /// flags b and k, `me` with b, `stats` with two arguments (`cachedump`), `lru_crawler mgdump`.
    Reply,
    /// A line of more than 2,048 bytes that is no `get`: memcached closes the connection or not, by how the bytes came in.
    LongLine,
    /// A binary request that breaks the protocol: memcached closes the connection, or skips a wrong number of bytes.
    Binary,
}

impl Event<'_> {
    /// The same with its key in memory of its own.
    pub fn to_owned(&self) -> Owned {
        match *self {
            Event::Reads(key) => Owned::Reads(key.to_vec()),
            Event::Mutates(key) => Owned::Mutates(key.to_vec()),
            Event::All => Owned::All,
            Event::Command(command) => Owned::Command(command),
            Event::Lost(lost) => Owned::Lost(lost),
        }
    }
}

/// An [`Event`] that owns its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owned {
    /// [`Event::Reads`]
    Reads(Vec<u8>),
    /// [`Event::Mutates`]
    Mutates(Vec<u8>),
    /// [`Event::All`]
    All,
    /// [`Event::Command`]
    Command(Command),
    /// [`Event::Lost`]
    Lost(Lost),
}
