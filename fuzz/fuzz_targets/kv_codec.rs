//! Any bytes as requests and replies whole in a slice: nothing panics, lengths lie within the slice, nothing is smaller than a byte; a request that is
//! read and written again is the same; what a slice says, a stream says too; a frame header there and back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_kv::codec::event::{Event, Owned};
use tidemill_kv::codec::reply::{self, Item};
use tidemill_kv::codec::request::{self, Parsed, Request};
use tidemill_kv::codec::stream::{self, Requests};
use tidemill_kv::codec::{binary, udp, write};

fn rewritten(request: &Request<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match *request {
        Request::Store { verb, key, flags, exptime, unique, value, noreply, .. } => {
            let unique = (verb == tidemill_kv::codec::verb::Verb::Cas).then_some(unique);
            write::Store { verb, key, flags, exptime, unique, value, noreply }.write(&mut bytes);
        }
        Request::Binary(request) => {
            binary::write(request.header, request.extras, request.key, request.value, &mut bytes);
        }
        _ => return None,
    }
    Some(bytes)
}

fuzz_target!(|data: &[u8]| {
    let is_binary = data.first() == Some(&binary::REQUEST);
    let mut rest = data;
    let mut sliced = Vec::new();
    let whole = loop {
        let parsed = request::parse(rest, is_binary);
        parsed.events(&mut |event: Event<'_>| sliced.push(event.to_owned()));
        let len = match parsed {
            Parsed::Need(len) => {
                assert!(len > rest.len());
                break false;
            }
            Parsed::Request(request, len) => {
                assert!(len > 0 && len <= rest.len());
                if let Some(again) = rewritten(&request) {
                    let Parsed::Request(second, whole) = request::parse(&again, is_binary) else {
                        panic!("{request:?} was written as {}", again.escape_ascii())
                    };
                    assert_eq!(whole, again.len());
                    assert_eq!(rewritten(&second), Some(again));
                }
                let quit = match request {
                    Request::Binary(request) => request.class == binary::Class::Quits,
                    Request::Other { verb, .. } => verb == tidemill_kv::codec::verb::Verb::Quit,
                    _ => false,
                };
                if quit {
                    break true;
                }
                len
            }
            Parsed::Bad(bad) => {
                assert!(bad.at <= rest.len());
                match bad.skip {
                    Some(len) => len,
                    None => break true,
                }
            }
        };
        assert!(len > 0 && len <= rest.len());
        rest = &rest[len..];
    };
    let mut streamed: Vec<Owned> = Vec::new();
    let mut requests = Requests::new();
    requests.push(data, &mut |event: Event<'_>| streamed.push(event.to_owned()));
    assert!(streamed.starts_with(&sliced), "{streamed:?}, in slices {sliced:?}");
    if whole {
        assert_eq!(streamed, sliced);
    }
    if let Some((frame, text)) = udp::Frame::read(data) {
        let mut header = Vec::new();
        frame.write(&mut header);
        assert_eq!(header, data[..udp::HEADER]);
        stream::datagram(text, &mut |_| {});
    }
    let mut rest = data;
    loop {
        rest = match reply::next(rest) {
            Item::Need(len) => {
                assert!(len > rest.len());
                break;
            }
            Item::Bad => break,
            Item::Value(_, len) | Item::Meta(_, len) | Item::Line(_, len) => &rest[len..],
        };
    }
    if let Some((_, len)) = binary::Reply::read(data) {
        assert!(len <= data.len());
    }
});
