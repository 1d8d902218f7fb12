//! The codec and the miss table allocate nothing per request: over all golden transactions, in slices and byte by byte.

#[path = "../../lookup/tests/common/allocations.rs"]
mod allocations;

use allocations::allocations;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::net::SocketAddr;
use tidemill_kv::codec::event::{Answer, Event};
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::Replies;
use tidemill_kv::codec::request::{self, Parsed};
use tidemill_kv::codec::stream::Requests;
use tidemill_kv::golden;
use tidemill_kv::table::misses::{Misses, Number};

#[test]
fn nothing_is_allocated_per_request() {
    let all: Vec<_> = golden::text().into_iter().chain(golden::binary()).collect();
    let answers: Vec<Vec<u8>> = all.iter().map(|transaction| transaction.reply()).collect();
    let mut outstanding = Outstanding::new(100);
    let (mut events, mut complete, mut released) = (0, 0, 0);
    let before = allocations();
    for (transaction, answer) in all.iter().zip(&answers) {
        let (mut requests, mut replies) = (Requests::new(), Replies::new());
        for piece in transaction.request.chunks(1) {
            requests.push(piece, &mut |event| {
                events += 1;
                if let Event::Command(command) = event
                    && command.answer != Answer::Never
                {
                    assert!(outstanding.command(command, ()).is_ok());
                }
            });
        }
        replies.push(answer, |reply| {
            complete += 1;
            let _ = outstanding.reply(reply, |()| released += 1);
        });
        outstanding.end(drop);
        let mut rest = &transaction.request[..];
        while let Parsed::Request(request, len) = request::parse(rest, rest.first() == Some(&0x80)) {
            request.events(&mut |event| {
                black_box(event);
            });
            rest = &rest[len..];
        }
    }
    assert_eq!(allocations(), before);
    assert!(events > 300 && complete > 150 && released > 100, "{events} {complete} {released}");
}

#[test]
fn a_miss_allocates_nothing() {
    let mut misses = Misses::new(64, 1000, BuildHasherDefault::<DefaultHasher>::default());
    let before = allocations();
    let mut found = 0;
    for now_ns in 0..10_000_u64 {
        let number =
            Number { client: SocketAddr::from(([127, 0, 0, 1], 1)), number: now_ns as u32 % 50, kind: 0 };
        misses.put(number, b"key", (), now_ns);
        found += u32::from(misses.take(number, now_ns).is_some());
    }
    assert_eq!(allocations(), before);
    assert_eq!(found, 10_000);
}
