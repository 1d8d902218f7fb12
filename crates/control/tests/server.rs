//! A server under use and misuse: whatever one client does, the others are answered.
#![allow(clippy::unwrap_used)] // a test may

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidemill_control::schema::{Done, RouteAdd, RouteDelete, Routes, RoutesQuery, Verbs, path};
use tidemill_control::{ApiError, Client, ClientError, Registry, Request, Server, ServerError, Stream};

/// What a test waits for at most; nothing takes that long unless it is broken.
const LONG: Duration = Duration::from_secs(20);

mod hostile;
mod live;
mod tcp;

struct Service {
    folder: TempDir,
    server: Option<Server>,
    /// Hears of every stream that has ended, with what it was told.
    ended: Mutex<Receiver<bool>>,
}

impl Service {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (registry, ended) = registry();
        let server = Server::start(registry, &folder.path().join("run/s.sock")).unwrap();
        Service { folder, server: Some(server), ended: Mutex::new(ended) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("run/s.sock")
    }

    /// Waits for the end of a stream; true if it was told to end.
    fn stream_ended(&self) -> bool {
        self.ended.lock().unwrap().recv_timeout(LONG).unwrap()
    }

    fn client(&self) -> Client {
        Client::new(&self.path()).unwrap()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Sends bytes, and reads what comes back until the other end closes.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        let _ = stream.write_all(request); // The server may have had enough before we have.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Where a stream goes that nobody keeps: how much of it has come is seen.
struct Drain<'a>(&'a AtomicU64);

impl Write for Drain<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Waits until something has come.
fn begun(come: &AtomicU64) -> bool {
    let began = Instant::now();
    while come.load(Ordering::Relaxed) == 0 && began.elapsed() < LONG {
        thread::sleep(Duration::from_millis(1));
    }
    come.load(Ordering::Relaxed) > 0
}

fn registry() -> (Registry, Receiver<bool>) {
    let (tell, ended) = channel();
    let calls = AtomicU64::new(0);
    let mut registry = Registry::new("testmill", "9.9");
    registry.elsewhere("/v1/other", "another mill");
    registry.get("/v1/echo", "Says it again", |request: &Request| request.query::<Value>());
    registry.get("/v1/count", "Counts calls", move |_: &Request| Ok(calls.fetch_add(1, Ordering::Relaxed)));
    registry.get("/v1/slow", "Takes its time", |_: &Request| {
        thread::sleep(Duration::from_millis(300));
        Ok("done")
    });
    registry.get("/v1/panic", "Panics", |_: &Request| -> Result<(), ApiError> { panic!("as asked") });
    registry.post(path::ROUTES, "Adds", |request: &Request| {
        let add: RouteAdd = request.json()?;
        Ok(Done::from(format!("{} via {}", add.prefix, add.via.join(","))))
    });
    registry.post_large("/v1/large", "Says how much", 4 << 20, |request: &Request| {
        let text: String = request.json()?;
        Ok(text.len())
    });
    registry.delete(path::ROUTES, "Removes", |request: &Request| -> Result<Done, ApiError> {
        let RouteDelete { prefix, .. } = request.query()?;
        Err(ApiError::not_found(format!("{prefix}: no static route\nto it")))
    });
    let endless = tell.clone();
    registry.stream("/v1/endless", "Never ends", move |_: &Request| {
        let tell = endless.clone();
        Ok(Stream::new("text/plain", move |sink| {
            let result = (0..).try_for_each(|n| {
                sink.send(format!("{n}\n").into_bytes())?;
                sink.wait(Duration::from_millis(1))
            });
            let _ = tell.send(result.is_err());
            result
        }))
    });
    registry.stream("/v1/silent", "Says nothing", move |_: &Request| {
        let tell = tell.clone();
        Ok(Stream::new("text/plain", move |sink| {
            let result = sink.wait(LONG);
            let _ = tell.send(result.is_err());
            result
        }))
    });
    registry.stream("/v1/ten", "Ends after ten pieces of 100 KB", |_: &Request| {
        Ok(Stream::new("text/plain", |sink| (0..10).try_for_each(|n| sink.send(vec![b'0' + n; 100_000]))))
    });
    registry.stream("/v1/breaks", "Panics in the midst of it", |_: &Request| {
        Ok(Stream::new("text/plain", |sink| {
            sink.send(b"half".to_vec())?;
            panic!("as asked")
        }))
    });
    (registry, ended)
}

#[test]
fn verbs_are_listed_and_answer() {
    let service = Service::start();
    let client = service.client();
    let verbs: Verbs = client.get("/v1", &()).unwrap();
    assert_eq!((verbs.service.as_str(), verbs.version.as_str()), ("testmill", "9.9"));
    let of = |path: &str| verbs.verbs.iter().find(|verb| verb.path == path).unwrap();
    assert_eq!((of("/v1/echo").method.as_str(), of("/v1/echo").help.as_str()), ("GET", "Says it again"));
    assert!(of("/v1/ten").stream && !of("/v1/echo").stream);
    let echo: Value = client.get("/v1/echo", &[("a", "x y&z"), ("b", "2001:db8::/32")]).unwrap();
    assert_eq!(echo, json!({"a": "x y&z", "b": "2001:db8::/32"}));
    let add = RouteAdd { prefix: "10.0.0.0/8".into(), via: vec!["10.1.0.2".into()], ..RouteAdd::default() };
    let done: Done = client.post(path::ROUTES, &add).unwrap();
    assert_eq!(done.done, ["10.0.0.0/8 via 10.1.0.2"]);
}

#[test]
fn errors_are_one_line_with_their_status() {
    let service = Service::start();
    let client = service.client();
    let why = |error: ClientError| match error {
        ClientError::Answer { status, message } => (status, message),
        other => panic!("{other}"),
    };
    let delete = RouteDelete { prefix: "10.0.0.0/8".into(), vrf: None };
    let error = client.delete::<Done>(path::ROUTES, &delete).unwrap_err();
    assert_eq!(why(error), (404, "10.0.0.0/8: no static route to it".into()));
    let (status, line) = why(client.post::<Done>(path::ROUTES, &json!({"prefix": 3})).unwrap_err());
    assert!(status == 400 && line.contains("invalid type"), "{line}");
    let (status, line) = why(client.get::<Value>("/v1/nothing", &()).unwrap_err());
    assert!(status == 404 && line.starts_with("GET /v1/nothing: no such verb"), "{line}");
    let (status, line) = why(client.get::<Value>("/v1/other/verb", &()).unwrap_err());
    let wanted = "GET /v1/other/verb: no such verb: this is testmill, and that is a verb of another mill: GET /v1 lists them";
    assert_eq!((status, line.as_str()), (404, wanted));
    let (_, line) = why(client.get::<Value>("/v1/others", &()).unwrap_err());
    assert_eq!(line, "GET /v1/others: no such verb: GET /v1 lists them");
    let (status, line) = why(client.get::<Value>(path::ROUTES, &()).unwrap_err());
    assert!(status == 405 && line.starts_with("GET /v1/routes: no such verb here"), "{line}");
    let (status, line) = why(client.get::<Value>("/v1/panic", &()).unwrap_err());
    assert!(status == 500 && line.contains("GET /v1/panic") && line.contains("panicked"), "{line}");
    assert_eq!(client.get::<u64>("/v1/count", &()).unwrap(), 0, "the server lives on");
    let error = client.get::<String>("/v1/count", &()).unwrap_err();
    assert!(error.to_string().contains("not what this version expects"), "{error}");
}

#[test]
fn many_clients_at_once_are_each_answered_once() {
    let service = Service::start();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = service.client();
                (0..50).for_each(|_| {
                    client.get::<u64>("/v1/count", &()).unwrap();
                });
            });
        }
    });
    assert_eq!(service.client().get::<u64>("/v1/count", &()).unwrap(), 400);
}

#[test]
fn malformed_requests_are_refused() {
    let service = Service::start();
    for request in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET /v1 HTTP/9.9\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nno colon\r\n\r\n",
    ] {
        let answer = service.raw(request);
        assert!(answer.starts_with("HTTP/1.1 400"), "{request:?}: {answer}");
    }
    let long = format!("GET /v1 HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(service.raw(long.as_bytes()).starts_with("HTTP/1.1 431"));
    for body in ["{", "[1,", "\u{0}", "{\"prefix\":\"10.0.0.0/8\",\"unknown\":1}", "nul", ""] {
        let head = format!(
            "POST /v1/routes HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = service.raw(format!("{head}{body}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("{\"error\":\""), "{body:?}: {answer}");
    }
    assert_eq!(service.client().get::<u64>("/v1/count", &()).unwrap(), 0);
}

#[test]
fn oversized_bodies_are_refused_with_and_without_their_length() {
    let service = Service::start();
    let big = "x".repeat(3 << 20);
    let head =
        format!("POST /v1/routes HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", big.len());
    let answer = service.raw(format!("{head}{big}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let head = "POST /v1/routes HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(40);
    let answer = service.raw(format!("{head}{chunks}0\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Where a verb wants more, it gets that, and no more than that.
    assert_eq!(service.client().post::<usize>("/v1/large", &big).unwrap(), 3 << 20);
    let larger = "x".repeat(5 << 20);
    let head =
        format!("POST /v1/large HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", larger.len());
    let answer = service.raw(format!("{head}{larger}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("more than 4194304 bytes"), "{answer}");
}

#[test]
fn a_slow_handler_holds_up_nobody() {
    let service = Service::start();
    thread::scope(|scope| {
        let slow = scope.spawn(|| service.client().get::<String>("/v1/slow", &()).unwrap());
        assert_eq!(service.client().get::<u64>("/v1/count", &()).unwrap(), 0);
        assert_eq!(slow.join().unwrap(), "done");
    });
}

#[test]
fn streams_come_whole_or_are_errors() {
    let service = Service::start();
    let client = service.client();
    let (never, mut out) = (AtomicBool::new(false), Vec::new());
    assert_eq!(client.stream("/v1/ten", &(), &mut out, &never).unwrap(), 1_000_000);
    assert_eq!((out.len(), out[0], out[999_999]), (1_000_000, b'0', b'9'));
    let mut out = Vec::new();
    let error = client.stream("/v1/breaks", &(), &mut out, &never).unwrap_err();
    assert!(error.to_string().contains("went away"), "{error}");
    let error = client.stream("/v1/nothing", &(), &mut out, &never).unwrap_err();
    assert!(matches!(error, ClientError::Answer { status: 404, .. }), "{error}");
}

#[test]
fn sources_hear_that_their_client_is_gone() {
    let service = Service::start();
    for verb in ["endless", "silent"] {
        let mut stream = service.connect();
        stream.write_all(format!("GET /v1/{verb} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
        drop(stream); // As if it were killed.
        assert!(service.stream_ended(), "{verb}");
    }
    // A client that is told to stop leaves as well.
    let (stop, come) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let bytes = scope.spawn(|| service.client().stream("/v1/endless", &(), &mut Drain(&come), &stop));
        let has_begun = begun(&come);
        stop.store(true, Ordering::Relaxed);
        assert!(has_begun, "nothing has come");
        assert!(bytes.join().unwrap().unwrap() > 0);
    });
    assert!(service.stream_ended());
}

#[test]
fn streams_are_limited_in_number() {
    let service = Service::start();
    let open = |number: usize| {
        let mut stream = service.connect();
        stream.write_all(b"GET /v1/silent HTTP/1.1\r\n\r\n").unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        let expected: &[u8] = if number < 16 { b"HTTP/1.1 200" } else { b"HTTP/1.1 409" };
        assert_eq!(head, expected, "stream {number}");
        stream
    };
    let streams: Vec<UnixStream> = (0..18).map(open).collect();
    drop(streams);
    (0..16).for_each(|_| assert!(service.stream_ended()));
}

#[test]
fn dropping_the_server_ends_streams_and_removes_the_socket() {
    let mut service = Service::start();
    let (stop, come) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = service.client();
    let server = service.server.take();
    let bytes = thread::scope(|scope| {
        let mut dawdler = service.connect();
        dawdler.write_all(b"GET /v1/cou").unwrap();
        // Connections are taken in their order: both are there when the second one has got something.
        let stream = scope.spawn(|| client.stream("/v1/endless", &(), &mut Drain(&come), &stop));
        let has_begun = begun(&come);
        drop(server);
        assert!(has_begun, "nothing has come");
        stream.join().unwrap()
    });
    assert!(bytes.unwrap() > 0, "a complete answer");
    assert!(service.stream_ended());
    assert!(!service.path().exists());
    assert!(matches!(service.client().get::<Value>("/v1", &()), Err(ClientError::Missing { .. })));
}

#[test]
fn the_socket_is_for_owner_and_group() {
    let service = Service::start();
    let mode = service.path().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn the_dead_are_replaced_and_the_living_are_not() {
    let service = Service::start();
    let Err(error) = Server::start(registry().0, &service.path()) else { panic!("a second server") };
    assert!(matches!(error, ServerError::InUse { .. }), "{error}");
    assert_eq!(service.client().get::<u64>("/v1/count", &()).unwrap(), 0, "the first is unharmed");
    let dead = service.folder.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let client = Client::new(&dead).unwrap();
    assert!(matches!(client.get::<Value>("/v1", &()), Err(ClientError::Refused { .. })));
    let server = Server::start(registry().0, &dead).unwrap();
    assert_eq!(client.get::<u64>("/v1/count", &()).unwrap(), 0);
    assert_eq!(server.path(), dead);
    let file = service.folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let Err(error) = Server::start(registry().0, &file) else { panic!("a file replaced") };
    assert!(matches!(error, ServerError::NotASocket { .. }), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let long = service.folder.path().join("x".repeat(120));
    let Err(error) = Server::start(registry().0, &long) else { panic!("a long path") };
    assert!(matches!(error, ServerError::Bind { .. }), "{error}");
    let Err(error) = Server::start(registry().0, &file.join("below/s.sock")) else { panic!("below a file") };
    assert!(matches!(error, ServerError::Folder { .. }), "{error}");
}

#[test]
fn somebody_elses_socket_is_left_where_it_is() {
    let mut service = Service::start();
    std::fs::remove_file(service.path()).unwrap();
    let other = UnixListener::bind(service.path()).unwrap();
    service.server = None;
    assert!(service.path().exists());
    drop(other);
}

/// All references in a document.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_has_the_types_of_what_is_taken_and_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = Registry::new("testmill", "9.9");
    registry.get(path::ROUTES, "Shows", |request: &Request| {
        let _: RoutesQuery = request.query()?;
        Ok(Routes::default())
    });
    registry.takes::<RoutesQuery>();
    let done = |_: &Request| Ok(Done::from("done"));
    registry.post(path::ROUTES, "Adds", done);
    registry.takes::<RouteAdd>();
    registry.delete(path::ROUTES, "Removes", done);
    registry.takes::<RouteDelete>();
    let server = Server::start(registry, &folder.path().join("s.sock")).unwrap();
    let document: Value = Client::new(server.path()).unwrap().get("/v1/openapi.json", &()).unwrap();
    let routes = &document["paths"][path::ROUTES];
    let answered = &routes["get"]["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(answered["$ref"], "#/components/schemas/Routes");
    let list = &document["components"]["schemas"]["Routes"]["properties"]["routes"];
    assert_eq!(list["items"]["$ref"], "#/components/schemas/Route", "{list}");
    let parameters = routes["delete"]["parameters"].as_array().unwrap();
    let said = |parameter: &Value| {
        assert_eq!(parameter["in"], "query");
        (parameter["name"].as_str().unwrap().to_owned(), parameter["required"].as_bool().unwrap())
    };
    let said: Vec<(String, bool)> = parameters.iter().map(said).collect();
    assert_eq!(said, [("prefix".to_owned(), true), ("vrf".to_owned(), false)]);
    let body = &routes["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!((&body["required"], &body["additionalProperties"]), (&json!(["prefix"]), &json!(false)));
    assert_eq!(body["properties"]["via"]["items"]["type"], "string", "{body}");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 5, "{found:?}");
    for reference in found {
        let place = reference.strip_prefix('#').unwrap_or("/elsewhere");
        assert!(document.pointer(place).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn wrong_registrations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for paths in [&["/ports"][..], &["/v1/{all}"], &["/v1/a", "/v1/a"]] {
        let mut registry = Registry::new("testmill", "9.9");
        paths.iter().for_each(|path| registry.get(path, "", |_: &Request| Ok(())));
        let result = Server::start(registry, &folder.path().join("s.sock"));
        assert!(matches!(result, Err(ServerError::Verb { .. })), "{paths:?}");
    }
    assert!(!folder.path().join("s.sock").exists());
}

#[test]
fn clients_say_what_is_wrong_with_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.sock");
    let error = Client::new(&missing).unwrap().get::<Value>("/v1", &()).unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("nothing answers at {}: is ", missing.display())),
        "{error}"
    );
    // A server that is no HTTP server.
    let odd = folder.path().join("odd.sock");
    let listener = UnixListener::bind(&odd).unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1000]);
        stream.write_all(b"220 mail.example ready\r\n").unwrap();
    });
    let error = Client::new(&odd).unwrap().get::<Value>("/v1", &()).unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    answering.join().unwrap();
}

/// The kernel takes connections for who never answers. This process does not: it is not stopped, so patience decides.
#[test]
fn who_never_answers_is_waited_for_as_long_as_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let silent = folder.path().join("silent.sock");
    let _listener = UnixListener::bind(&silent).unwrap();
    let began = Instant::now();
    let client = Client::new(&silent).unwrap().with_patience(Duration::from_millis(1300));
    let error = client.get::<Value>("/v1", &()).unwrap_err();
    assert!((Duration::from_millis(1300)..LONG).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(matches!(error, ClientError::Late { .. }), "{error}");
    let line = format!("{}: no answer within 1.3 s: what runs is busy or stuck: ", silent.display());
    assert!(error.to_string().starts_with(&line), "{error}");
    let error = client.stream("/v1", &(), &mut std::io::sink(), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, ClientError::Late { .. }), "{error}");
}

/// Half an error, one without end, one that would speak to the terminal: none is waited for too long, fills the memory, or is passed on as it is.
#[test]
fn errors_of_somebody_else_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("else.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let head = |length: usize| format!("HTTP/1.1 500 No\r\ncontent-length: {length}\r\n\r\n");
    let answering = thread::spawn(move || {
        let mut kept = Vec::new();
        for turn in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]);
            match turn {
                0 => stream.write_all((head(10) + "{\"error\":").as_bytes()).unwrap(),
                1 => {
                    stream.write_all(head(1 << 40).as_bytes()).unwrap();
                    let piece = [b' '; 1 << 16];
                    while stream.write_all(&piece).is_ok() {}
                }
                _ => {
                    let body = "{\"error\":\"\\u001b[31mred\"}";
                    stream.write_all((head(body.len()) + body).as_bytes()).unwrap();
                }
            }
            kept.push(stream);
        }
        kept
    });
    let client = Client::new(&path).unwrap().with_patience(Duration::from_millis(1300));
    let error = client.stream("/v1", &(), &mut std::io::sink(), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, ClientError::Late { .. }), "{error}");
    let client = client.with_patience(LONG);
    let error = client.get::<Value>("/v1", &()).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
    let error = client.get::<Value>("/v1", &()).unwrap_err().to_string();
    assert_eq!(error, " [31mred");
    answering.join().unwrap();
}
