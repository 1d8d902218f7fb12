//! A cache in front of an unchanged Redis: it ends its clients' TCP connections, has one to Redis for each, and answers reads from values of Redis' five types, as long as they are surely the same.
//!
//! ```text
//!  client ===TCP=== session ===TCP=== Redis        one connection to Redis for each client: who it is, its database, its transactions are Redis' business
//!                     |  reads answered, fills, what may change which key
//!                   store --- keeper ---TCP--- Redis     one more: told of every change of every key, by anyone (CLIENT TRACKING ON BCAST),
//!                                                        asked how long a value holds (PTTL), and four times each lease whether it is there (ROLE)
//! ```
//! Why it stands in the connection and not on the cable, as the rest of this crate does: an answer out of the middle of a TCP stream would shift every number behind it in both directions, for the rest of the
//! connection, and would have to be kept until it is acknowledged: that is a TCP of one's own. RESP has no datagrams.
//!
//! Start at `session`, which has what becomes of a request; `store` has the rules; `commands` says what a command may change.

mod commands;
mod counters;
mod front;
mod keeper;
mod session;
mod store;
mod value;

pub use counters::{Counter, Counters};
pub use front::{Front, Watch};

use commands::Commands;
use session::Question;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use store::Store;

/// Users that are told apart.
const USERS: u32 = 4096;
/// Questions that may wait to be asked, or for an answer.
const QUESTIONS: usize = 1024;

/// What a front is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// The Redis behind.
    pub redis: SocketAddr,
    /// Whom the keeper's own connection authenticates as: a user, or none for the default one, and a password.
    pub login: Option<(Option<String>, String)>,
    /// Clients at a time.
    pub connections: usize,
    /// Of them, of one address; of IPv6, of one /64.
    pub per_address: usize,
    /// Who takes nothing for so long of what waits for him is ended.
    pub unread: Duration,
    /// Bytes for values.
    pub memory: usize,
    /// The longest reply that is kept, bytes.
    pub value_max: usize,
    /// For how long Redis is believed to have told of all changes by others, once it was heard.
    pub lease: Duration,
    /// For how long a value is kept at the longest.
    pub hold: Duration,
}

/// What sessions and keeper share: one thread has all of them.
struct Shared {
    store: Store,
    commands: Commands,
    counters: Counters,
    users: HashMap<Vec<u8>, u32>,
    /// For the keeper to ask.
    questions: VecDeque<Question>,
    /// Questions asked and not answered.
    asked: usize,
    /// The keeper has its connection.
    is_heard: bool,
    /// An eighth of Redis' `timeout`, if it has one: for so long all of a connection may be answered here.
    idle: Option<Duration>,
    value_max: usize,
    /// Lines for the log.
    notes: Vec<String>,
}

impl Shared {
    fn new(memory: usize, value_max: usize) -> Self {
        Shared {
            store: Store::new(memory),
            commands: Commands::default(),
            counters: Counters::default(),
            users: HashMap::new(),
            questions: VecDeque::new(),
            asked: 0,
            is_heard: false,
            idle: None,
            value_max,
            notes: Vec::new(),
        }
    }

    /// The number of a user; 0 is whoever has not said who he is.
    fn user(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(user) = self.users.get(name) {
            return Some(*user);
        }
        let next = self.users.len() as u32 + 1;
        if next > USERS {
            return None;
        }
        self.users.insert(name.to_vec(), next);
        Some(next)
    }

    /// Has the keeper ask how long a value holds.
    fn ask(&mut self, question: Question) {
        if self.is_heard && self.questions.len() + self.asked < QUESTIONS {
            self.questions.push_back(question);
        } else {
            self.counters.one(Counter::Full);
        }
    }
}
