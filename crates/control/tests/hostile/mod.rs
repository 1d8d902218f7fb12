//! Who means no good: random bytes, silent crowds, pages of other sites, tokens that were taken back. Each time somebody honest is answered meanwhile.

use crate::tcp::{ALL, connect, exchange, secured, tokens};
use crate::{LONG, Service};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tidemill_control::{Server, Tcp, Tokens};

/// As many clients as there are places say nothing, or half of something, over TLS; one that has a token is answered nevertheless, again and again.
#[test]
fn a_silent_crowd_shuts_nobody_out_of_tls() {
    let (_folders, server, honest) = secured();
    let dawdle = |number: usize| {
        let mut stream = connect(server.addresses()[0]);
        // Nothing, the beginning of a greeting, what is none.
        let _ = stream.write_all([&b""[..], b"\x16\x03\x01\x02\x00\x01", b"GET /v1"][number % 3]);
        stream
    };
    let crowd: Vec<TcpStream> = (0..128).map(dawdle).collect();
    for _ in 0..3 {
        let answer = exchange(honest(), "GET /v1/echo?a=b", Some(ALL), "");
        assert!(answer.ends_with("{\"a\":\"b\"}"), "{answer}");
    }
    let more: Vec<TcpStream> = (0..128).map(dawdle).collect();
    assert!(exchange(honest(), "GET /v1/echo?a=b", Some(ALL), "").ends_with("{\"a\":\"b\"}"));
    drop((crowd, more));
}

/// Who has to go because a seventeenth came from the same address is told, if it has said something.
#[test]
fn one_stranger_too_many_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let tcp =
        Tcp { addresses: vec!["127.0.0.1:0".parse().unwrap()], tokens: tokens(folder.path()), tls: None };
    let server = Server::start_on(crate::registry().0, &folder.path().join("s.sock"), Some(tcp)).unwrap();
    let mut first = connect(server.addresses()[0]);
    first.write_all(b"GET /v1 HTTP/1.1\r\n").unwrap();
    // What is at work with a token has to go for nobody.
    let mut known = connect(server.addresses()[0]);
    write!(known, "GET /v1/endless HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ALL}\r\n\r\n").unwrap();
    known.read_exact(&mut [0; 100]).unwrap();
    let crowd: Vec<TcpStream> = (0..16).map(|_| connect(server.addresses()[0])).collect();
    let mut answer = String::new();
    first.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("without a token"), "{answer}");
    known.read_exact(&mut [0; 2000]).unwrap();
    drop(crowd);
}

/// What goes on ends when its token is taken back, or is good for less from now on; what others have asked for goes on.
#[test]
fn streams_end_with_their_token() {
    const OTHER: &str = "other-other-other-other-other";
    let folder = tempfile::tempdir().unwrap();
    let tcp = |text: &str| {
        let path = folder.path().join("tokens");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tokens = Arc::new(Tokens::read(&path).unwrap());
        Tcp { addresses: vec!["127.0.0.1:0".parse().unwrap()], tokens, tls: None }
    };
    let first = tcp(&format!("a all {ALL}\nb all {OTHER}\n"));
    let (registry, ended) = crate::registry();
    let server = Server::start_on(registry, &folder.path().join("s.sock"), Some(first.clone())).unwrap();
    let start = |token: &str, path: &str| {
        let mut stream = connect(server.addresses()[0]);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        stream
    };
    let mut leaked = [start(ALL, "/v1/silent"), start(ALL, "/v1/events")];
    let mut lesser = start(OTHER, "/v1/endless");
    let mut looks = start(OTHER, "/v1/events");
    first.renew(&tcp(&format!("b read {OTHER}\n")));
    for stream in leaked.iter_mut().chain([&mut lesser]) {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // Until it is closed.
        assert!(!rest.ends_with(b"0\r\n\r\n"), "broken off, not complete");
    }
    (0..2).for_each(|_| assert!(ended.recv_timeout(LONG).unwrap(), "the sources have heard of it"));
    // Events may still be seen by the other one.
    looks.read_exact(&mut [0; 100]).unwrap();
    looks.set_nonblocking(true).unwrap();
    let mut bytes = [0; 10_000];
    let end = loop {
        match looks.read(&mut bytes) {
            Ok(0) => panic!("events have ended for who may still look"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, std::io::ErrorKind::WouldBlock);
}

/// Through a forwarded port the socket is seen by browsers, which any page can have ask.
#[test]
fn pages_of_other_sites_get_nothing_from_the_socket() {
    let service = Service::start();
    let ask = |head: &str| {
        let answer =
            service.raw(format!("{head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").as_bytes());
        answer.get(9..12).unwrap_or("none").to_owned()
    };
    for (status, head) in [
        // Its name leads here since a moment: of one origin, as its browser sees it.
        ("403", "POST /v1/routes HTTP/1.1\r\nHost: evil.example:8080\r\nOrigin: http://evil.example:8080"),
        ("403", "GET /v1/none HTTP/1.1\r\nHost: evil.example:8080"),
        ("403", "GET / HTTP/1.1\r\nHost: evil.example:8080"),
        ("403", "GET /v1/count HTTP/1.1\r\nHost: localhost.evil.example"),
        // A picture of a page from elsewhere.
        ("403", "GET /v1/count HTTP/1.1\r\nHost: localhost:8080\r\nSec-Fetch-Site: cross-site"),
        ("403", "GET /v1/count HTTP/1.1\r\nHost: localhost:8080\r\nSec-Fetch-Site: same-site"),
        ("403", "POST /v1/routes HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: http://localhost:3000"),
        // The page's own, a link to it, other clients.
        ("200", "GET /v1/count HTTP/1.1\r\nHost: localhost:8080\r\nSec-Fetch-Site: same-origin"),
        ("200", "GET / HTTP/1.1\r\nHost: localhost:8080\r\nSec-Fetch-Site: cross-site"),
        ("200", "GET /v1/count HTTP/1.1\r\nHost: [::1]:8080\r\nOrigin: http://[::1]:8080"),
        ("200", "GET /v1/count HTTP/1.1\r\nHost: tidemill"),
        ("200", "GET /v1/count HTTP/1.1"),
    ] {
        assert_eq!(ask(head), status, "{head}");
    }
}

/// Requests that are cut, repeated, spliced and filled with other bytes: each is answered or closed, and a good one is answered behind it. A target of the fuzzer does
/// the same for longer: fuzz/fuzz_targets/control_api.rs.
#[test]
fn mutilated_requests_harm_nobody() {
    const SEEDS: [&[u8]; 6] = [
        b"GET /v1/echo?a=b&c=%41 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/routes HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 46\r\n\r\n{\"prefix\":\"10.0.0.0/8\",\"via\":[\"2001:db8::1\"]}",
        b"POST /v1/routes HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pre\r\n0\r\n\r\n",
        b"DELETE /v1/routes?prefix=2001%3Adb8%3A%3A%2F32 HTTP/1.1\r\nHost: tidemill:1\r\n\r\n",
        b"GET /v1/events?once=true&last=3&kind=alive HTTP/1.0\r\n\r\n",
        b"HEAD /v1/ten HTTP/1.1\r\nExpect: 100-continue\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    ];
    let service = Service::start();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut answered = 0;
    for round in 0..1500 {
        let mut bytes = SEEDS[draw(SEEDS.len())].to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            match draw(5) {
                0 => bytes.truncate(at),
                1 => bytes[at] = draw(256) as u8,
                2 => drop(bytes.splice(
                    at..at,
                    SEEDS[draw(SEEDS.len())].iter().copied().take(draw(60)).collect::<Vec<_>>(),
                )),
                3 => drop(bytes.drain(at..(at + draw(9)).min(bytes.len()))),
                _ => bytes.extend_from_within(at..),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let mut stream = service.connect();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
        // Until it is closed, which it has to be, unless events were asked for without an end.
        while !answer.windows(8).any(|window| window == b"x-ndjson") {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => answer.extend_from_slice(&piece[..length.min(4096)]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no end: {bytes:?}"),
                _ => break,
            }
            answer.truncate(1 << 14);
        }
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{bytes:?}");
        answered += usize::from(!answer.is_empty());
        if round % 100 == 0 {
            let echo: serde_json::Value =
                service.client().get("/v1/echo", &[("n", round.to_string())]).unwrap();
            assert_eq!(echo["n"], round.to_string());
        }
    }
    assert!(answered > 300, "{answered} answers: these are hardly requests any more");
    let mut good = UnixStream::connect(service.path()).unwrap();
    good.write_all(b"GET /v1/count HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    good.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
