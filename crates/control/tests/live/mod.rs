//! What changes while one looks: events and their readers, panels, and the page that shows them.

mod colours;

use crate::LONG;
use crate::tcp::{READ, connect, exchange, tokens};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;
use tidemill_control::schema::{Event, EventsQuery, Panels, path};
use tidemill_control::{Client, Events, Family, Registry, Server, Tcp};

/// A service on both, and where it tells of events.
fn start() -> (TempDir, Server, Events) {
    let folder = tempfile::tempdir().unwrap();
    let events = Events::default();
    let mut registry = Registry::new("testmill", "9.9");
    registry.events(&events);
    registry.event_kind("tick", "When it ticks");
    registry.event_kind("tock", "When it tocks");
    registry.metrics(|| vec![Family::counter("hidden", "No panel's")]);
    registry.panel("Clockwork", || {
        let mut wheels = Family::counter("wheels", "Turns of wheels");
        (0..300).for_each(|n| wheels.add(&[("wheel", &n.to_string())], n));
        let mut spring = Family::gauge("spring", "How far it is wound");
        spring.add_f64(&[], 0.5);
        vec![wheels, spring]
    });
    let tcp =
        Tcp { addresses: vec!["127.0.0.1:0".parse().unwrap()], tokens: tokens(folder.path()), tls: None };
    let server = Server::start_on(registry, &folder.path().join("s.sock"), Some(tcp)).unwrap();
    (folder, server, events)
}

fn tell(events: &Events, kind: &str, message: impl Into<String>) {
    events.tell(Event { kind: kind.into(), message: message.into(), ..Event::default() });
}

/// A reader of events that has heard that it is one.
fn reader(server: &Server, query: &str) -> BufReader<TcpStream> {
    let mut stream = connect(server.addresses()[0]);
    write!(stream, "GET /v1/events?{query} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {READ}\r\n\r\n")
        .unwrap();
    BufReader::new(stream)
}

/// The next event in a chunked answer; headers and lengths of chunks are passed over.
fn next(reader: &mut impl BufRead) -> Event {
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the answer has ended");
        if line.starts_with("{\"seq\"") {
            return serde_json::from_str(&line).unwrap();
        }
    }
}

/// All lines of an answer that ends.
fn once(server: &Server, query: &EventsQuery) -> Vec<Event> {
    let mut out = Vec::new();
    let client = Client::new(server.path()).unwrap();
    client.stream(path::EVENTS, query, &mut out, &AtomicBool::new(false)).unwrap();
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_come_as_they_happen_to_who_may_look() {
    let (_folder, server, events) = start();
    tell(&events, "tick", "before");
    let (mut all, mut some) = (reader(&server, ""), reader(&server, "kind=tock&last=5"));
    assert_eq!((next(&mut all).kind.as_str(), next(&mut some).kind.as_str()), ("alive", "alive"));
    for (kind, message) in [("tick", "one"), ("tock", "two\nlines"), ("tick", "three")] {
        tell(&events, kind, message);
        let heard = next(&mut all);
        assert_eq!((heard.kind.as_str(), heard.message), (kind, message.replace('\n', " ")));
    }
    let heard = next(&mut some);
    assert_eq!((heard.seq, heard.kind.as_str()), (3, "tock"));
    let so_far = once(&server, &EventsQuery { once: Some(true), ..EventsQuery::default() });
    assert_eq!(so_far.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(so_far[0].time_ns > 1_700_000_000_000_000_000);
    let call = |head: &str, token| exchange(connect(server.addresses()[0]), head, token, "");
    assert!(call("GET /v1/events", None).starts_with("HTTP/1.1 401 "));
    let answer = call("GET /v1/events?once=true", Some(READ));
    assert!(
        answer.contains("content-type: application/x-ndjson") && answer.contains("\"three\""),
        "{answer}"
    );
    for (query, part) in [
        ("kind=tack", "there are no events \\\"tack\\\": give some of tick, tock, alive, lost"),
        ("last=1&after=1", "not both"),
        ("since=1", "unknown field `since`"),
        ("last=-1", "last"),
    ] {
        let answer = call(&format!("GET /v1/events?{query}"), Some(READ));
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(part), "{query}: {answer}");
    }
    let listed: Value = Client::new(server.path()).unwrap().get("/v1", &()).unwrap();
    assert_eq!(listed["events"][1], serde_json::json!({"kind": "tock", "help": "When it tocks"}));
    let document: Value = Client::new(server.path()).unwrap().get("/v1/openapi.json", &()).unwrap();
    let content = &document["paths"]["/v1/events"]["get"]["responses"]["200"]["content"];
    assert_eq!(content["application/x-ndjson"]["schema"]["$ref"], "#/components/schemas/Event");
    let kinds = &document["components"]["schemas"]["Event"]["properties"]["kind"]["oneOf"];
    assert_eq!(kinds[0]["const"], "tick");
}

/// One that does not read while much happens: others hear all of it meanwhile, and it is told how much it has missed.
#[test]
fn a_slow_reader_loses_events_and_nobody_else_does() {
    let (_folder, server, events) = start();
    let mut slow = reader(&server, "");
    assert_eq!(next(&mut slow).kind, "alive");
    let mut quick = reader(&server, "");
    assert_eq!(next(&mut quick).kind, "alive");
    // More than sockets have room for, and 20 times what is kept.
    const COUNT: u64 = 20_000;
    let long = "x".repeat(900);
    for n in 1..=COUNT {
        tell(&events, "tick", format!("{n} {long}"));
        let heard = next(&mut quick);
        assert_eq!((heard.kind.as_str(), heard.seq), ("tick", n));
    }
    let (mut at, mut lost) = (0, 0);
    while at < COUNT {
        let heard = next(&mut slow);
        match heard.kind.as_str() {
            "alive" => {}
            "lost" => {
                lost += heard.values["events"] as u64;
                at += heard.values["events"] as u64;
                assert_eq!(heard.seq, at);
            }
            _ => {
                at += 1;
                assert_eq!((heard.seq, heard.message.starts_with(&format!("{at} "))), (at, true));
            }
        }
    }
    assert!(lost > 1000, "{lost} of {COUNT}");
}

#[test]
fn readers_of_the_network_leave_places_to_the_socket() {
    let (_folder, server, events) = start();
    let mut readers: Vec<_> = (0..32).map(|_| reader(&server, "")).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(next(reader).kind, "alive"));
    let refused = exchange(connect(server.addresses()[0]), "GET /v1/events", Some(READ), "");
    assert!(refused.starts_with("HTTP/1.1 409 ") && refused.contains("32 readers"), "{refused}");
    let mut socket = UnixStream::connect(server.path()).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost:8080\r\n\r\n").unwrap();
    let mut socket = BufReader::new(socket);
    assert_eq!(next(&mut socket).kind, "alive");
    // Captures have places of their own.
    tell(&events, "tick", "all hear it");
    assert_eq!(next(&mut socket).message, "all hear it");
    readers.iter_mut().for_each(|reader| assert_eq!(next(reader).message, "all hear it"));
    // Who goes away leaves the place to another.
    readers.pop();
    let began = std::time::Instant::now();
    loop {
        let answer = exchange(connect(server.addresses()[0]), "GET /v1/events?once=true", Some(READ), "");
        if answer.starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(began.elapsed() < LONG, "{answer}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(server); // Ends the answers of all.
}

#[test]
fn panels_are_what_has_a_title() {
    let (_folder, server, _events) = start();
    let panels: Panels = Client::new(server.path()).unwrap().get(path::PANELS, &()).unwrap();
    let [panel] = &panels.panels[..] else { panic!("{panels:?}") };
    let [wheels, spring] = &panel.families[..] else { panic!("{panel:?}") };
    assert_eq!((panel.title.as_str(), wheels.grows, wheels.samples.len()), ("Clockwork", true, 256));
    assert_eq!((wheels.samples[7].labels["wheel"].as_str(), wheels.samples[7].value), ("7", 7.0));
    assert_eq!(
        (spring.grows, spring.samples[0].value, spring.help.as_str()),
        (false, 0.5, "How far it is wound")
    );
    let metrics = exchange(connect(server.addresses()[0]), "GET /metrics", Some(READ), "");
    assert!(metrics.contains("\ntidemill_wheels_total{wheel=\"299\"} 299.0\n"), "{metrics}");
    assert!(metrics.contains("# TYPE tidemill_hidden counter\n"), "{metrics}");
}

/// The paths that a file of the page asks for.
fn named(text: &str) -> Vec<String> {
    let asked = |start: &'static str| text.split(start).skip(1).filter_map(|rest| rest.split('"').next());
    let beside = asked("\"./").map(|name| format!("/page/{name}"));
    beside.chain(asked("\"/page/").map(|name| format!("/page/{name}"))).collect()
}

#[test]
fn the_page_is_whole_and_fetches_nothing_from_elsewhere() {
    let (_folder, server, _events) = start();
    let call = |head: &str, token| exchange(connect(server.addresses()[0]), head, token, "");
    let (mut todo, mut seen) = (vec!["/".to_owned()], HashSet::new());
    while let Some(file) = todo.pop() {
        if !seen.insert(file.clone()) {
            continue;
        }
        // No token: the page asks for one itself. Who has none still holds no place.
        let answer = call(&format!("GET {file}"), None);
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{file}: {head}");
        for line in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "connection: close",
        ] {
            assert!(head.contains(line), "{file}: {line}: {head}");
        }
        let kind = match Path::new(&file).extension().and_then(|end| end.to_str()) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert!(head.contains(&format!("content-type: {kind}")), "{file}: {head}");
        // The one name with a scheme is SVG's own, which is never fetched.
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("://") && !text.contains("innerHTML"), "{file}");
        assert!(
            kind != "text/html; charset=utf-8" || !text.contains("<style") && !text.contains("style="),
            "{file}"
        );
        todo.extend(named(text));
        let head_only = call(&format!("HEAD {file}"), None);
        assert!(head_only.starts_with("HTTP/1.1 200 ") && head_only.ends_with("\r\n\r\n"), "{head_only}");
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert!(call("GET /page/none.js", None).starts_with("HTTP/1.1 401 "));
    assert!(call("GET /page/none.js", Some(READ)).starts_with("HTTP/1.1 404 "));
    assert!(call("GET /page/", Some(READ)).starts_with("HTTP/1.1 404 "));
    assert!(call("GET /page/../page/main.js", Some(READ)).starts_with("HTTP/1.1 404 "));
    assert!(call("POST /", None).starts_with("HTTP/1.1 405 "));
    // What a page of another site has a browser send is not answered, with a token or without.
    for (origin, status) in [("http://a", "200"), ("http://b", "403"), ("null", "403"), ("http://a.b", "403")]
    {
        let answer = call(&format!("GET /v1 HTTP/1.1\r\nOrigin: {origin}\r\nX-Rest:"), Some(READ));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {answer}");
    }
    let mut socket = UnixStream::connect(server.path()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
}
