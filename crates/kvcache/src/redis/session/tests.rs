//! With a Redis that is played.

use super::super::commands::tests::table;
use super::super::store::Kept;
use super::*;
use std::time::Duration;

/// A session with a Redis that is played by the test.
struct Played {
    session: Session,
    shared: Shared,
    now: Instant,
}

impl Played {
    fn new() -> Self {
        let now = Instant::now();
        let mut shared = Shared::new(1 << 20, 1 << 16);
        shared.commands = table();
        shared.is_heard = true;
        shared.store.sure(Some(now + Duration::from_secs(60)));
        Played { session: Session::default(), shared, now }
    }

    /// The client says it: what goes to Redis, and what comes back at once.
    fn says(&mut self, text: &str) -> (String, String) {
        self.session.client(text.as_bytes(), self.now, &mut self.shared);
        (sent(&mut self.session.to_redis), sent(&mut self.session.to_client))
    }

    /// Redis does: what goes to the client. What it was asked in between is answered: the value has no end.
    fn replies(&mut self, text: &str) -> String {
        assert!(self.session.redis(text.as_bytes(), self.now, &mut self.shared));
        let until = self.now + Duration::from_secs(30);
        while let Some(Question { db, key, value, token, user, read }) = self.shared.questions.pop_front() {
            self.shared.store.keep(db, &key, Kept { value, token, until, user, read });
        }
        sent(&mut self.session.to_client)
    }

    /// Both: it has to go to Redis, and the reply to the client.
    fn passes(&mut self, words: &str, reply: &str) {
        let text = format!("{words}\r\n");
        assert_eq!(self.says(&text), (text.clone(), String::new()), "{words}");
        assert_eq!(self.replies(reply), reply, "{words}");
    }

    /// It is answered here.
    fn given(&mut self, words: &str, reply: &str) {
        assert_eq!(self.says(&format!("{words}\r\n")), (String::new(), reply.to_owned()), "{words}");
    }
}

fn sent(outgoing: &mut Outgoing) -> String {
    let text = String::from_utf8(outgoing.pending().to_vec()).unwrap();
    outgoing.clear();
    text
}

#[test]
fn what_redis_has_said_is_said_again_until_it_may_have_changed() {
    let mut played = Played::new();
    played.passes("GET k", "$1\r\nv\r\n");
    played.given("GET k", "$1\r\nv\r\n");
    played.given("get k", "$1\r\nv\r\n");
    // Each command has to be answered by Redis once.
    played.passes("STRLEN k", ":1\r\n");
    played.given("STRLEN k", ":1\r\n");
    played.passes("HGET k f", "-WRONGTYPE x\r\n");
    played.passes("SET k w", "+OK\r\n");
    played.passes("GET k", "$1\r\nw\r\n");
    played.given("GET k", "$1\r\nw\r\n");
    for words in ["DEL k", "FLUSHALL", "EVAL x 0", "WHAT k", "PFCOUNT k", "MSET a 1 k 2"] {
        let mut played = Played::new();
        played.passes("GET k", "$1\r\nv\r\n");
        played.given("GET k", "$1\r\nv\r\n");
        played.says(&format!("{words}\r\n"));
        let (passed, said) = played.says("GET k\r\n");
        assert_eq!((&passed[..], &said[..]), ("GET k\r\n", ""), "{words}");
        // The answer to a read that was sent on while it was under way is not kept.
        played.replies(":0\r\n$1\r\nv\r\n");
        assert_eq!(played.says("GET k\r\n").1, "", "{words}");
    }
}

#[test]
fn replies_keep_their_order() {
    let mut played = Played::new();
    played.passes("GET k", "$1\r\nv\r\n");
    // The second could be answered; the first cannot.
    let both = "GET other\r\nGET k\r\n";
    assert_eq!(played.says(both), (both.to_owned(), String::new()));
    assert_eq!(played.replies("$-1\r\n"), "$-1\r\n");
    assert_eq!(played.says("GET k\r\n").1, "");
    played.replies("$1\r\nv\r\n$1\r\nv\r\n");
    played.given("GET k\r\nGET k", "$1\r\nv\r\n$1\r\nv\r\n");
    // Half a reply is one that is not there.
    played.says("PING\r\n");
    played.replies("+PO");
    assert_eq!(played.says("GET k\r\n").1, "");
    played.replies("NG\r\n$1\r\nv\r\n");
    played.given("GET k", "$1\r\nv\r\n");
}

/// One that does not read has so much waiting for it, and what it asks besides is Redis' to answer, which is not read meanwhile.
#[test]
fn who_does_not_read_is_not_answered_without_end() {
    let mut played = Played::new();
    let value = "v".repeat(60_000);
    let reply = format!("$60000\r\n{value}\r\n");
    played.passes("GET k", &reply);
    played.session.client("GET k\r\n".repeat(2000).as_bytes(), played.now, &mut played.shared);
    let waits = played.session.to_client.pending().len();
    assert_eq!(waits, REPLIES_BYTES.div_ceil(reply.len()) * reply.len());
    let passed = played.session.to_redis.pending().len() / "GET k\r\n".len();
    assert_eq!(passed, 2000 - waits / reply.len());
    assert!(!played.session.wants_replies() && !played.session.wants_requests());
    // Half of it is read: then what lies in front is given back, and all is in order.
    played.session.to_client.sent(waits / 2);
    assert_eq!(played.session.to_client.pending().len(), waits - waits / 2);
    assert!(played.session.wants_replies());
    sent(&mut played.session.to_client);
    assert_eq!(played.replies(&reply), reply);
}

/// Redis answers nothing (behind a `BLPOP`, say): so many requests wait, or so much that they hold; then it is the client who does.
#[test]
fn who_is_not_answered_is_not_read_without_end() {
    let long = "k".repeat(60_000);
    let slots = 256 * size_of::<usize>();
    for (request, reply, most) in [
        ("GET k\r\n".to_owned(), "$-1\r\n", WAITING),
        (format!("GET {long}\r\n"), "$-1\r\n", WAITING_BYTES.div_ceil(long.len())),
        (format!("DEL{}\r\n", " a".repeat(256)), ":0\r\n", WAITING_BYTES.div_ceil(slots)),
    ] {
        let mut played = Played::new();
        let mut asked = 0;
        while played.session.wants_requests() {
            played.says(&request);
            asked += 1;
            assert!(asked <= most, "{most}");
        }
        assert_eq!(asked, most);
        played.replies(reply);
        assert!(played.session.wants_requests(), "{most}");
        played.replies(&reply.repeat(asked - 1));
        assert!(played.session.waiting.is_empty() && played.session.waiting_bytes == 0, "{most}");
    }
}

/// Of a transaction with very many changes all is held, not each.
#[test]
fn a_transaction_holds_so_much_and_then_all() {
    let mut played = Played::new();
    let changes = 2 * QUEUED;
    played.says(&format!("MULTI\r\n{}", "SET k 1\r\n".repeat(changes)));
    played.replies(&format!("+OK\r\n{}", "+QUEUED\r\n".repeat(changes)));
    assert_eq!(played.session.queued.len(), QUEUED + 2);
    assert_eq!(played.shared.store.token(b"other"), None);
    played.passes("EXEC", "*0\r\n");
    assert!(["k", "other"].iter().all(|key| played.shared.store.token(key.as_bytes()).is_some()));
}

/// Where it ends connections that say nothing for a while.
#[test]
fn redis_hears_of_each_client_now_and_then() {
    let mut played = Played::new();
    played.passes("GET k", "$1\r\nv\r\n");
    let idle = Duration::from_secs(5);
    played.now += idle;
    played.given("GET k", "$1\r\nv\r\n");
    played.shared.idle = Some(idle);
    played.passes("GET k", "$1\r\nv\r\n");
    played.now += idle - Duration::from_millis(1);
    played.given("GET k", "$1\r\nv\r\n");
    played.now += Duration::from_millis(1);
    played.passes("GET k", "$1\r\nv\r\n");
    played.given("GET k", "$1\r\nv\r\n");
}

#[test]
fn who_and_where() {
    let mut played = Played::new();
    played.passes("GET k", "$1\r\nv\r\n");
    played.passes("SELECT 1", "+OK\r\n");
    played.passes("GET k", "$1\r\nx\r\n");
    played.given("GET k", "$1\r\nx\r\n");
    played.passes("SELECT 99", "-ERR DB index is out of range\r\n");
    played.given("GET k", "$1\r\nx\r\n");
    played.passes("SELECT 0", "+OK\r\n");
    played.given("GET k", "$1\r\nv\r\n");
    // In RESP3 a hash is a map.
    played.passes("HGETALL h", "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    played.passes("HELLO 3", "%1\r\n+proto\r\n:3\r\n");
    played.given("HGETALL h", "%1\r\n$1\r\na\r\n$1\r\nb\r\n");
    // Another user: Redis has to say that he may.
    played.passes("AUTH al secret", "-WRONGPASS x\r\n");
    played.given("GET k", "$1\r\nv\r\n");
    played.passes("AUTH al secret", "+OK\r\n");
    played.passes("GET k", "-NOPERM x\r\n");
    played.passes("GET k", "-NOPERM x\r\n");
    played.passes("HGETALL h", "%1\r\n$1\r\na\r\n$1\r\nb\r\n");
    played.given("HGETALL h", "%1\r\n$1\r\na\r\n$1\r\nb\r\n");
    played.passes("GET k", "-NOPERM x\r\n");
    // A new connection has nothing before Redis has answered it.
    played.session = Session::default();
    played.passes("GET k", "-NOAUTH x\r\n");
    played.passes("GET k", "-NOAUTH x\r\n");
    played.passes("GET other", "$1\r\no\r\n");
    played.given("GET k", "$1\r\nv\r\n");
}

#[test]
fn transactions_hold_what_they_may_change_to_their_end() {
    let mut played = Played::new();
    played.passes("GET k", "$1\r\nv\r\n");
    played.passes("MULTI", "+OK\r\n");
    played.passes("SET k w", "+QUEUED\r\n");
    played.passes("GET k", "+QUEUED\r\n");
    assert_eq!(played.shared.store.token(b"k"), None);
    played.passes("EXEC", "*2\r\n+OK\r\n$1\r\nw\r\n");
    assert!(played.shared.store.token(b"k").is_some());
    played.passes("GET k", "$1\r\nw\r\n");
    played.given("GET k", "$1\r\nw\r\n");
    // Keys that are watched have to be read of Redis.
    played.passes("WATCH k", "+OK\r\n");
    played.passes("GET k", "$1\r\nw\r\n");
    played.passes("EXEC", "-ERR EXEC without MULTI\r\n");
    played.passes("GET k", "$1\r\nw\r\n");
    played.passes("UNWATCH", "+OK\r\n");
    played.given("GET k", "$1\r\nw\r\n");
    // Two in one piece: the second's effect is not ended by the first's reply.
    let both = "MULTI\r\nSET a 1\r\nEXEC\r\nMULTI\r\nSET k 1\r\n";
    assert_eq!(played.says(both).0, both);
    played.replies("+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n+OK\r\n+QUEUED\r\n");
    assert!(played.shared.store.token(b"a").is_some());
    assert_eq!(played.shared.store.token(b"k"), None);
    played.passes("DISCARD", "+OK\r\n");
    assert!(played.shared.store.token(b"k").is_some());
    // One that we did not see begin.
    played.passes("SET k 1", "+QUEUED\r\n");
    assert_eq!(played.shared.store.token(b"k"), None);
    played.session.end(&mut played.shared);
    assert!(played.shared.store.token(b"k").is_some());
}

#[test]
fn what_is_not_followed_is_answered_by_redis() {
    let words = ["SUBSCRIBE c", "MONITOR", "CLIENT REPLY OFF", "CLIENT TRACKING ON", "RESET", "STRANGE"];
    for words in words.into_iter().chain(["QUIT", "SCRIPT DEBUG YES"]) {
        let mut played = Played::new();
        played.passes("GET k", "$1\r\nv\r\n");
        played.passes(words, "+OK\r\n");
        played.passes("GET k", "$1\r\nv\r\n");
        played.says("SET k w\r\n");
        played.session.end(&mut played.shared);
        assert!(played.shared.store.token(b"k").is_some(), "{words}");
    }
    // Pushes answer nothing.
    let mut played = Played::new();
    played.says("CLIENT TRACKING ON\r\nSET k w\r\n");
    played.replies("+OK\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n");
    assert_eq!(played.shared.store.token(b"k"), None);
    played.replies("+OK\r\n");
    assert!(played.shared.store.token(b"k").is_some());
    // What cannot be read goes on as it is, and so does what comes behind it.
    let mut played = Played::new();
    assert_eq!(played.says("*1\r\nx\r\nGET k\r\n").0, "*1\r\nx\r\nGET k\r\n");
    assert_eq!(played.says("GET k\r\n").0, "GET k\r\n");
    assert!(!played.shared.store.is_sure(played.now));
    played.session.end(&mut played.shared);
    assert!(played.shared.store.is_sure(played.now));
}

#[test]
fn a_large_value_goes_by_and_is_a_change() {
    let mut played = Played::new();
    let head = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n";
    assert_eq!(played.says(head).0, head);
    let value = "v".repeat(100_000);
    assert_eq!(played.says(&value).0, value);
    assert!(played.shared.store.token(b"k").is_some(), "it cannot have been executed");
    assert_eq!(played.says("\r\n").0, "\r\n");
    assert_eq!(played.shared.store.token(b"k"), None);
    played.replies("+OK\r\n");
    assert!(played.shared.store.token(b"k").is_some());
    // Nor is a large reply kept.
    let reply = format!("$100000\r\n{value}\r\n");
    played.passes("GET k", &reply);
    assert_eq!(played.says("GET k\r\n").1, "");
}
