//! The splitters: golden transactions, any cut of any stream, the slice parser as another reading of the same bytes, replies in order.

use proptest::prelude::*;
use tidemill_kv::codec::event::{Event, Lost, Owned};
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::{Replies, Reply, Says};
use tidemill_kv::codec::request::{self, Parsed};
use tidemill_kv::codec::stream::{Place, Requests};
use tidemill_kv::golden::{self, Transaction};

fn all() -> Vec<Transaction> {
    golden::text().into_iter().chain(golden::binary()).collect()
}

/// The events of a stream that comes in these pieces.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Owned>, Place) {
    let (mut requests, mut events) = (Requests::new(), Vec::new());
    for piece in pieces {
        requests.push(piece, &mut |event: Event<'_>| events.push(event.to_owned()));
    }
    (events, requests.place())
}

/// The events of the same bytes, request by request from slices.
fn by_slices(mut bytes: &[u8]) -> (Vec<Owned>, bool) {
    let mut events = Vec::new();
    let binary = bytes.first() == Some(&0x80);
    loop {
        let parsed = request::parse(bytes, binary);
        parsed.events(&mut |event| events.push(event.to_owned()));
        let len = match parsed {
            Parsed::Need(len) => {
                assert!(len > bytes.len());
                return (events, false);
            }
            Parsed::Request(request, len) => {
                if quits(&request) {
                    return (events, true);
                }
                len
            }
            Parsed::Bad(bad) => {
                assert!(bad.at <= bytes.len());
                match bad.skip {
                    Some(len) => len,
                    None => return (events, true),
                }
            }
        };
        bytes = &bytes[len..];
    }
}

fn quits(request: &request::Request<'_>) -> bool {
    use tidemill_kv::codec::{binary::Class, verb::Verb};
    match request {
        request::Request::Binary(request) => request.class == Class::Quits,
        request::Request::Other { verb, .. } => *verb == Verb::Quit,
        _ => false,
    }
}

fn replies<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Reply> {
    let (mut replies, mut complete) = (Replies::new(), Vec::new());
    for piece in pieces {
        replies.push(piece, |reply| complete.push(reply));
    }
    complete
}

#[test]
fn golden_transactions() {
    assert!(golden::text().len() > 30 && golden::binary().len() > 8);
    for transaction in all() {
        let (events, _) = events([&transaction.request[..]]);
        assert_eq!(events, transaction.events, "{}", transaction.name);
        assert!(transaction.is_answered_by(&transaction.reply()), "{}", transaction.name);
    }
}

#[test]
fn golden_transactions_byte_by_byte() {
    for transaction in all() {
        assert_eq!(events(transaction.request.chunks(1)).0, transaction.events, "{}", transaction.name);
        let reply = transaction.reply();
        assert_eq!(replies(reply.chunks(1)), replies([&reply[..]]), "{}", transaction.name);
    }
}

#[test]
fn golden_transactions_by_slices() {
    for transaction in all() {
        assert_eq!(by_slices(&transaction.request).0, transaction.events, "{}", transaction.name);
    }
}

/// All commands of a golden transaction are released by its replies, but for those at the end that are never answered.
#[test]
fn golden_replies_release_their_commands() {
    use tidemill_kv::codec::event::Answer;
    for transaction in all() {
        if transaction.events.iter().any(|event| matches!(event, Owned::Lost(_))) {
            continue;
        }
        let mut outstanding = Outstanding::new(100);
        let mut silent_at_the_end = 0;
        for event in &transaction.events {
            if let Owned::Command(command) = event {
                outstanding.command(*command, command.answer).unwrap();
                silent_at_the_end = if command.answer == Answer::Never { silent_at_the_end + 1 } else { 0 };
            }
        }
        for reply in replies([&transaction.reply()[..]]) {
            outstanding
                .reply(reply, drop)
                .unwrap_or_else(|lost| panic!("{}: {reply:?}: {lost}", transaction.name));
        }
        assert_eq!(outstanding.len(), silent_at_the_end, "{}", transaction.name);
    }
}

#[test]
fn a_place_in_the_stream() {
    for (bytes, place) in [
        (&b""[..], Place::Between),
        (b"get a", Place::InCommand),
        (b"get a\r\n", Place::Between),
        (b"set a 0 0 10\r\nabc", Place::InValue(9)),
        (b"quit\r\n", Place::Closed),
        (b"set a 0 0 +1\r\n", Place::Lost),
        (b"\x80\x01", Place::InCommand),
        (b"\x80\x01\0\x01\x08\0\0\0\0\0\0\x0a\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0k", Place::InValue(1)),
    ] {
        assert_eq!(events([bytes]).1, place, "{bytes:?}");
    }
}

#[test]
fn a_line_without_end_is_lost() {
    let long = vec![b'x'; 5000];
    assert_eq!(events([&long[..]]).0, [Owned::Lost(Lost::LongLine)]);
    assert_eq!(events([&long[..2048]]), (vec![], Place::InCommand));
}

#[test]
fn replies_of_every_kind() {
    let text = b"VALUE k 0 5\r\nEND\r\n\r\nVALUE l 0 0 7\r\n\r\nEND\r\nVA 2 f0\r\nMN\r\nHD\r\nSTAT a 1\r\nSTAT b 2\r\nEND\r\nkey=a la=1\nkey=b la=2\nEND\r\nMN\r\n12\r\nSERVER_ERROR x y\r\nSTORED\r\n";
    use Reply::*;
    let done = Meta(Says::Done);
    let expected = [Classic, done, done, Classic, Classic, MetaNoOp, Classic, Error, Classic];
    assert_eq!(replies([&text[..]]), expected);
    assert_eq!(replies([&b"VALUE k 0 x\r\n"[..]]), [Lost]);
    // A key longer than the body; text behind binary.
    assert_eq!(replies([&b"\x81\0\0\x09\0\0\0\0\0\0\0\x08____________"[..]]), [Lost]);
    let noop = b"\x81\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x06________";
    let expected = [Binary { opcode: 10, opaque: 6 }, Lost];
    assert_eq!(replies([&noop[..], b"SERVER_ERROR out of memory\r\n"]), expected);
}

/// A generated command, and whether it is binary.
fn text_command() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("get"),
        Just("gets"),
        Just("gat"),
        Just("set"),
        Just("add"),
        Just("cas"),
        Just("incr"),
        Just("touch"),
        Just("delete"),
        Just("flush_all"),
        Just("mg"),
        Just("ms"),
        Just("md"),
        Just("ma"),
        Just("me"),
        Just("mn"),
        Just("version"),
        Just("verbosity"),
        Just("watch"),
        Just("quit"),
        Just("lru"),
        Just("foo"),
        Just("noreply"),
        Just(""),
    ];
    let token = prop_oneof![
        6 => Just("a".to_owned()),
        6 => Just("0".to_owned()),
        3 => Just("3".to_owned()),
        3 => Just("noreply".to_owned()),
        1 => Just("-1".to_owned()),
        1 => Just("+1".to_owned()),
        1 => Just("b".to_owned()),
        1 => Just("q".to_owned()),
        1 => Just("T0".to_owned()),
        1 => Just("Zm9v".to_owned()),
        1 => Just("".to_owned()),
        1 => Just("a\0b".to_owned()),
        1 => Just("a\rb".to_owned()),
        1 => (245_usize..255).prop_map(|len| "k".repeat(len)),
        1 => (700_usize..900).prop_map(|len| "k".repeat(len)),
    ];
    let end = prop_oneof![4 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r\r\n")];
    let value = prop_oneof![4 => Just("abc\r\n"), 1 => Just("abcde"), 1 => Just("\r\n"), 4 => Just("")];
    (word, proptest::collection::vec(token, 0..8), end, value).prop_map(|(word, tokens, end, value)| {
        let mut line = word.to_owned();
        tokens.iter().for_each(|token| line += &format!(" {token}"));
        (line + end + value).into_bytes()
    })
}

fn binary_command() -> impl Strategy<Value = Vec<u8>> {
    let extras =
        prop_oneof![3 => Just(0_u8), 2 => Just(8_u8), 1 => Just(4_u8), 1 => Just(20_u8), 1 => any::<u8>()];
    (0_u8..0x26, extras, prop_oneof![9 => 0_u16..6, 1 => 240_u16..260], 0_u32..9, 0_u32..20).prop_map(
        |(opcode, extras, key, value, wrong)| {
            let body = (u32::from(extras) + u32::from(key) + value).saturating_sub(u32::from(wrong == 0));
            let mut bytes = vec![0x80, opcode, (key >> 8) as u8, key as u8, extras, 0, 0, 0];
            bytes.extend(body.to_be_bytes());
            bytes.extend([0, 0, 0, opcode, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend((0..body).map(|at| at as u8));
            bytes
        },
    )
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(text_command(), 1..8).prop_map(|commands| commands.concat()),
        4 => proptest::collection::vec(binary_command(), 1..8).prop_map(|commands| commands.concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..400),
    ]
}

/// The pieces of `bytes` that these lengths cut, over and over.
fn cut<'a>(bytes: &'a [u8], lens: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for len in lens.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*len).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// However a stream is cut, it says the same, and the slice parser says so too.
    #[test]
    fn any_cut_gives_the_same(bytes in any_stream(), lens in proptest::collection::vec(1_usize..40, 1..6)) {
        let whole = events([&bytes[..]]);
        prop_assert_eq!(&events(cut(&bytes, &lens)), &whole);
        let (mut slices, ended) = by_slices(&bytes);
        let mut streamed = whole.0;
        if !ended {
            // A stream tells keys of a long line, and the line of a command whose value is yet to come, before a slice is whole.
            prop_assert!(streamed.starts_with(&slices), "{:?} {:?}", streamed, slices);
            let last = streamed.split_off(slices.len());
            prop_assert!(last.iter().filter(|event| matches!(event, Owned::Command(_))).count() <= 1);
        }
        // So of a line that turns out too long it tells the keys that came before the end.
        if matches!(slices.last(), Some(Owned::Lost(Lost::LongLine))) && streamed.last() == slices.last() {
            let told = streamed.drain(slices.len() - 1..streamed.len() - 1);
            prop_assert!(told.into_iter().all(|event| matches!(event, Owned::Mutates(_))));
        }
        slices.truncate(streamed.len());
        prop_assert_eq!(streamed, slices);
    }

    /// The same for replies.
    #[test]
    fn any_cut_of_replies_gives_the_same(parts in proptest::collection::vec(0_usize..14, 0..12), lens in proptest::collection::vec(1_usize..20, 1..6), junk in proptest::collection::vec(any::<u8>(), 0..60)) {
        let kinds: [&[u8]; 14] = [
            b"STORED\r\n", b"VALUE a 0 3\r\na\r\n\r\n", b"END\r\n", b"VA 3 f0\r\nabc\r\n", b"HD\r\n", b"MN\r\n", b"EN\n", b"\r\n", b"STAT a b\r\n",
            b"ERROR\r\n", b"VALUE a 0\r\n", b"VA\r\n", b"17\r\n", b"key=a\n",
        ];
        let mut bytes: Vec<u8> = parts.iter().flat_map(|&part| kinds[part]).copied().collect();
        bytes.extend(junk);
        prop_assert_eq!(replies(cut(&bytes, &lens)), replies([&bytes[..]]));
    }
}
