//! The control API: any bytes on its socket, and behind a good token on TCP, are answered as HTTP or the connection is closed; a good request is answered behind them. The verbs read
//! queries and bodies as the services' own do.
//!
//! Two things of libFuzzer's that a server elsewhere does not meet: its main leaves SIGPIPE as it is, so that a client that has gone would end the process; and its alarm, every few seconds, cuts
//! short whatever waits for a socket with a limit of time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tidemill_control::schema::{self, Done};
use tidemill_control::{Events, Registry, Request, Server, Stream, Tcp, Tokens};

const TOKEN: &str = "fuzzer-fuzzer-fuzzer-fuzzer";
/// Longer than anything takes; an answer has its end before.
const PATIENCE: Duration = Duration::from_secs(9);

fn query<T: DeserializeOwned>(registry: &mut Registry, path: &str) {
    registry.get(path, "", |request: &Request| request.query::<T>().map(|_| Done::from("done")));
}

fn body<T: DeserializeOwned>(registry: &mut Registry, path: &str) {
    registry.post(path, "", |request: &Request| request.json::<T>().map(|_| Done::from("done")));
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        // As in every Rust program: writing to who has gone is an error, and not the end.
        let gone = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGPIPE, gone).unwrap();
        let mut registry = Registry::new("fuzzmill", "0");
        let events = Events::default();
        registry.events(&events);
        events.tell(schema::Event { kind: "alive".into(), ..Default::default() });
        query::<schema::RoutesQuery>(&mut registry, "/v1/routes");
        body::<schema::RouteAdd>(&mut registry, "/v1/routes");
        registry.delete("/v1/routes", "", |request: &Request| {
            request.query::<schema::RouteDelete>().map(|_| Done::from("done"))
        });
        body::<schema::TraceAdd>(&mut registry, "/v1/trace");
        query::<schema::amp::RulesQuery>(&mut registry, "/v1/amp/rules");
        query::<schema::amp::ExplainQuery>(&mut registry, "/v1/amp/explain");
        query::<schema::gate::FlowsQuery>(&mut registry, "/v1/gate/flows");
        query::<schema::gate::FlowQuery>(&mut registry, "/v1/gate/flow");
        body::<schema::gate::Decide>(&mut registry, "/v1/gate/flow");
        query::<schema::gate::TopQuery>(&mut registry, "/v1/gate/top");
        query::<schema::grantor::QuestionsQuery>(&mut registry, "/v1/grantor/questions");
        body::<schema::grantor::Revoke>(&mut registry, "/v1/grantor/revoke");
        query::<schema::nat::SessionsQuery>(&mut registry, "/v1/nat/sessions");
        query::<schema::switch::FlowsQuery>(&mut registry, "/v1/switch/flows");
        body::<schema::switch::FlowsLoad>(&mut registry, "/v1/switch/flows");
        query::<schema::switch::TraceQuery>(&mut registry, "/v1/switch/trace");
        query::<schema::kv::TopQuery>(&mut registry, "/v1/kv/top");
        query::<schema::filter::StatesQuery>(&mut registry, "/v1/filter/states");
        body::<schema::filter::SetChange>(&mut registry, "/v1/filter/sets");
        query::<schema::assets::AssetsQuery>(&mut registry, "/v1/assets");
        query::<schema::bgp::RoutesQuery>(&mut registry, "/v1/bgp/routes");
        body::<schema::bgp::Reset>(&mut registry, "/v1/bgp/reset");
        registry.stream("/v1/capture", "", |request: &Request| {
            request.query::<schema::CaptureQuery>()?;
            Ok(Stream::new(schema::PCAPNG, |sink| sink.send(vec![0; 1000])))
        });
        let folder = std::env::temp_dir().join(format!("tidemill-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = folder.join("tokens");
        std::fs::write(&tokens, format!("fuzzer all {TOKEN}\n")).unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tokens = Arc::new(Tokens::read(&tokens).unwrap());
        let tcp = Tcp { addresses: vec!["127.0.0.1:0".parse().unwrap()], tokens, tls: None };
        Server::start_on(registry, &folder.join("s.sock"), Some(tcp)).unwrap()
    })
}

/// What comes back until the other end closes; where events begin, which go on, until there.
fn answer(mut stream: impl Read) -> Vec<u8> {
    const EVENTS: &[u8] = b"x-ndjson";
    let (mut answer, mut piece, began) = (Vec::new(), [0; 4096], Instant::now());
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return answer,
            Ok(length) => {
                let fresh = answer.len().saturating_sub(EVENTS.len() - 1);
                answer.extend_from_slice(&piece[..length]);
                if answer[fresh..].windows(EVENTS.len()).any(|window| window == EVENTS) {
                    return answer;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing within {PATIENCE:?}"),
            Err(_) => return answer,
        }
        assert!(began.elapsed() < PATIENCE, "no end within {PATIENCE:?}");
    }
}

fn check(answer: &[u8]) {
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(answer));
}

fuzz_target!(|bytes: &[u8]| {
    let server = server();
    let Some((first, rest)) = bytes.split_first() else { return };
    if first % 2 == 0 {
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(rest);
        let _ = stream.shutdown(Shutdown::Write);
        check(&answer(stream));
    } else {
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Half of them have a token: what is behind it is reached, too.
        let (line, more) = rest.split_at(rest.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        let _ = stream.write_all(line);
        if first % 4 == 1 {
            let _ = write!(stream, "Authorization: Bearer {TOKEN}\r\n");
        }
        let _ = stream.write_all(more);
        let _ = stream.shutdown(Shutdown::Write);
        check(&answer(stream));
    }
    let mut good = UnixStream::connect(server.path()).unwrap();
    good.set_read_timeout(Some(PATIENCE)).unwrap();
    good.write_all(b"GET /v1/routes?limit=3 HTTP/1.1\r\nHost: tidemill\r\nConnection: close\r\n\r\n")
        .unwrap();
    let answer = answer(good);
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&answer));
});
