//! The API on TCP: tokens and what they are good for, TLS, who dawdles there, metrics, the OpenAPI document.

use crate::LONG;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tidemill_control::{Client, Family, Server, ServerError, Tcp, Tls, Tokens};

pub(crate) const READ: &str = "reader-reader-reader-reader";
pub(crate) const ALL: &str = "admin-admin-admin-admin-admin";

pub(crate) fn tokens(folder: &Path) -> Arc<Tokens> {
    let path = folder.join("tokens");
    std::fs::write(&path, format!("prometheus read {READ}\nadmin all {ALL}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    Arc::new(Tokens::read(&path).unwrap())
}

fn start(addresses: &[&str], tls: Option<Tls>) -> (TempDir, Result<Server, ServerError>) {
    let folder = tempfile::tempdir().unwrap();
    let (mut registry, _) = crate::registry();
    registry.metrics(|| {
        let mut packets = Family::counter("packets", "Packets");
        packets.add(&[("port", "lan")], 7);
        vec![packets]
    });
    registry.metrics(|| vec![Family::gauge("empty", "Nothing")]);
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let tcp = Tcp { addresses, tokens: tokens(folder.path()), tls };
    let server = Server::start_on(registry, &folder.path().join("s.sock"), Some(tcp));
    (folder, server)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

pub(crate) fn exchange(mut stream: impl Read + Write, head: &str, token: Option<&str>, body: &str) -> String {
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let length = body.len();
    // Who hears no HTTP may have closed already.
    let _ = write!(
        stream,
        "{head} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n{token}\r\n{body}"
    );
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // Who has closed without a farewell has said all the same.
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_call_needs_a_token_and_a_token_its_scope() {
    let (_folder, server) = start(&["127.0.0.1:0", "[::1]:0"], None);
    let server = server.unwrap();
    assert_eq!(server.addresses().len(), 2);
    for &address in server.addresses() {
        let call = |head: &str, token, body: &str| exchange(connect(address), head, token, body);
        for wrong in [None, Some(""), Some("guess"), Some(&READ[1..])] {
            for head in ["GET /v1", "GET /metrics", "GET /v1/none", "POST /v1/routes"] {
                let answer = call(head, wrong, "");
                assert!(answer.starts_with("HTTP/1.1 401 "), "{head}: {answer}");
                assert!(
                    answer.contains("www-authenticate: Bearer") && answer.contains("token_file"),
                    "{answer}"
                );
            }
        }
        assert!(call("GET /v1/echo?a=b", Some(READ), "").ends_with("{\"a\":\"b\"}"));
        for head in ["POST /v1/routes", "DELETE /v1/routes?prefix=10.0.0.0/8", "GET /v1/endless"] {
            let answer = call(head, Some(READ), "{}");
            assert!(
                answer.starts_with("HTTP/1.1 403 ") && answer.contains("may only look"),
                "{head}: {answer}"
            );
        }
        let added = call("POST /v1/routes", Some(ALL), "{\"prefix\":\"10.0.0.0/8\",\"via\":[\"10.1.0.2\"]}");
        assert!(added.starts_with("HTTP/1.1 200 "), "{added}");
        assert!(call("GET /v1/none", Some(ALL), "").starts_with("HTTP/1.1 404 "));
    }
    // Who has none is told once, and holds no place.
    let mut stream = connect(server.addresses()[0]);
    stream.write_all("GET /v1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100).as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(String::from_utf8_lossy(&answer).matches("HTTP/1.1 401 ").count(), 1);
    // On the Unix socket its mode is the guard.
    let verbs: Value = Client::new(server.path()).unwrap().get("/v1", &()).unwrap();
    assert!(verbs["verbs"].as_array().unwrap().iter().any(|verb| verb["path"] == "/metrics"));
}

#[test]
fn metrics_and_the_document_are_what_is_registered() {
    let (_folder, server) = start(&["127.0.0.1:0"], None);
    let server = server.unwrap();
    let call = |head: &str| exchange(connect(server.addresses()[0]), head, Some(READ), "");
    let metrics = call("GET /metrics");
    assert!(metrics.contains("content-type: application/openmetrics-text; version=1.0.0"), "{metrics}");
    assert!(metrics.contains("\ntidemill_packets_total{port=\"lan\"} 7.0\n"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n") && metrics.contains("# TYPE tidemill_empty gauge\n"), "{metrics}");
    let document = call("GET /v1/openapi.json");
    let document: Value = serde_json::from_str(document.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let listed: Value = Client::new(server.path()).unwrap().get("/v1", &()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for verb in listed["verbs"].as_array().unwrap() {
        let (path, method) =
            (verb["path"].as_str().unwrap(), verb["method"].as_str().unwrap().to_lowercase());
        assert_eq!(document["paths"][path][&method]["summary"], verb["help"], "{method} {path}");
    }
}

#[test]
fn nothing_is_said_in_the_clear_to_a_network() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9460"] {
        let (_folder, server) = start(&["127.0.0.1:0", address], None);
        let Err(error) = server else { panic!("{address} without TLS") };
        assert!(error.to_string().contains("control.certificate"), "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (_folder, server) = start(&[&taken.local_addr().unwrap().to_string()], None);
    let Err(error) = server else { panic!("a taken address") };
    assert!(error.to_string().starts_with("control.listen: 127.0.0.1:"), "{error}");
}

/// A server with a certificate, and what connects to it. The first address is 127.0.0.1.
pub(crate) fn secured() -> ([TempDir; 2], Server, impl Fn() -> StreamOwned<ClientConnection, TcpStream>) {
    let folder = tempfile::tempdir().unwrap();
    let (tls, root) = certificate(folder.path());
    let (other, server) = start(&["127.0.0.1:0", "0.0.0.0:0"], Some(tls));
    let server = server.unwrap();
    let connect = trusting(root, server.addresses()[0]);
    ([folder, other], server, connect)
}

/// Connects to an address by TLS, for who trusts `root` alone.
fn trusting(
    root: CertificateDer<'static>,
    address: SocketAddr,
) -> impl Fn() -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    move || {
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), connect(address))
    }
}

/// c.pem and k.pem in a folder, and what a client trusts.
fn certificate(folder: &Path) -> (Tls, CertificateDer<'static>) {
    certificate_until(folder, 4096)
}

/// One that ends with the beginning of a year.
fn certificate_until(folder: &Path, year: i32) -> (Tls, CertificateDer<'static>) {
    let (certificate, key) = (folder.join("c.pem"), folder.join("k.pem"));
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
    let pair = rcgen::KeyPair::generate().unwrap();
    let made = parameters.self_signed(&pair).unwrap();
    std::fs::write(&certificate, made.pem()).unwrap();
    std::fs::write(&key, pair.serialize_pem()).unwrap();
    private(&key);
    (Tls::read(&certificate, &key).unwrap(), CertificateDer::from(made.der().to_vec()))
}

fn private(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn with_a_certificate_it_is_tls_and_nothing_else() {
    let (folders, server, secured) = secured();
    let (folder, address) = (folders[0].path(), server.addresses()[0]);
    let (certificate, key) = (folder.join("c.pem"), folder.join("k.pem"));
    assert!(exchange(secured(), "GET /v1/echo?a=b", Some(READ), "").ends_with("{\"a\":\"b\"}"));
    assert!(exchange(secured(), "GET /metrics", None, "").starts_with("HTTP/1.1 401 "));
    let clear = exchange(connect(address), "GET /metrics", Some(READ), "");
    assert!(!clear.contains("tidemill") && !clear.contains("HTTP/1.1 200"), "{clear}");

    // Wrong files are told by their names.
    let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
    let other_key = folder.join("other.pem");
    std::fs::write(&other_key, other.signing_key.serialize_pem()).unwrap();
    private(&other_key);
    let none = folder.join("none.pem");
    std::fs::write(&none, "nothing\n").unwrap();
    private(&none);
    let open = folder.join("open.pem");
    std::fs::copy(&key, &open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let encrypted = folder.join("encrypted.pem");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(&encrypted, text).unwrap();
    private(&encrypted);
    let long = folder.join("long.pem");
    std::fs::write(&long, vec![b'#'; (1 << 20) + 1]).unwrap();
    private(&long);
    // It would be waited for.
    let pipe = folder.join("pipe.pem");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (c, k, part) in [
        (&pipe, &key, "pipe.pem: is no file"),
        (&certificate, &open, "open.pem: has mode 644"),
        (&certificate, &other_key, "other.pem: not the key of"),
        (&certificate, &none, "none.pem: no PEM private key"),
        (&none, &key, "none.pem: has no PEM certificate"),
        (&folder.join("gone.pem"), &key, "gone.pem: no chain of PEM certificates"),
        (&certificate, &encrypted, "encrypted.pem: is encrypted"),
        (&certificate, &long, "long.pem: has 1048577 bytes"),
        (&long, &key, "long.pem: has 1048577 bytes"),
    ] {
        let error = Tls::read(c, k).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn tokens_are_renewed_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let tcp = |text: &str| {
        let path = folder.path().join("tokens");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let tokens = Arc::new(Tokens::read(&path).unwrap());
        Tcp { addresses: vec!["127.0.0.1:0".parse().unwrap()], tokens, tls: None }
    };
    let first = tcp(&format!("a all {ALL}\n"));
    let server =
        Server::start_on(crate::registry().0, &folder.path().join("s.sock"), Some(first.clone())).unwrap();
    let status =
        |token| exchange(connect(server.addresses()[0]), "GET /v1", Some(token), "")[9..12].to_owned();
    assert_eq!([status(ALL), status(READ)], ["200", "401"]);
    first.renew(&tcp(&format!("b read {READ}\n")));
    assert_eq!([status(ALL), status(READ)], ["401", "200"]);
}

/// What connects after a renewal sees the new certificate and no other one; a connection that was there before goes on.
#[test]
fn a_certificate_is_renewed_while_it_runs() {
    let (folder, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((tls, root), (fresh, fresh_root)) =
        (certificate_until(folder.path(), 2040), certificate(later.path()));
    let tcp = |tls| Tcp {
        addresses: vec!["127.0.0.1:0".parse().unwrap()],
        tokens: tokens(folder.path()),
        tls: Some(tls),
    };
    let first = tcp(tls);
    let server =
        Server::start_on(crate::registry().0, &folder.path().join("s.sock"), Some(first.clone())).unwrap();
    let (before, after) =
        (trusting(root, server.addresses()[0]), trusting(fresh_root, server.addresses()[0]));
    let ask = |stream| exchange(stream, "GET /v1/echo?a=b", Some(READ), "");
    assert!(ask(before()).ends_with("{\"a\":\"b\"}"));
    assert_eq!(ask(after()), "", "a certificate that is not there yet");
    let mut long = before();
    write!(long, "GET /v1/count HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {READ}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n0") {
        let mut byte = [0];
        long.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    assert_eq!(first.certificate_ends_s(), Some(2_208_988_800));
    assert_eq!(first.certificate_begins_s(), Some(157_766_400), "1975, as rcgen has it");
    first.renew(&tcp(fresh));
    assert_eq!(first.certificate_ends_s(), Some(67_090_118_400));
    assert!(ask(after()).ends_with("{\"a\":\"b\"}"));
    assert_eq!(ask(before()), "", "the certificate is there that was before");
    assert!(ask(long).ends_with("{\"a\":\"b\"}"));
}

/// What is sent with the server's own certificate may have ended: clients need not need it.
#[test]
fn the_end_told_is_that_of_the_servers_own_certificate() {
    let (folder, old) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificate_until(folder.path(), 2040);
    certificate_until(old.path(), 2020);
    let path = |name: &str| folder.path().join(name);
    let [own, root] =
        [path("c.pem"), old.path().join("c.pem")].map(|pem| std::fs::read_to_string(pem).unwrap());
    std::fs::write(path("c.pem"), own + &root).unwrap();
    let tls = Tls::read(&path("c.pem"), &path("k.pem")).unwrap();
    let addresses = vec!["127.0.0.1:0".parse().unwrap()];
    let tcp = Tcp { addresses, tokens: tokens(folder.path()), tls: Some(tls) };
    assert_eq!(tcp.certificate_ends_s(), Some(2_208_988_800));
}

/// Handlers that take long leave threads to the operator's socket, however many callers the network has.
#[test]
fn slow_calls_of_the_network_do_not_shut_the_operator_out() {
    let (_folder, server) = start(&["127.0.0.1:0"], None);
    let server = server.unwrap();
    let request = format!("GET /v1/slow HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {READ}\r\n\r\n");
    let ask = |_| {
        let mut stream = connect(server.addresses()[0]);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let mut callers: Vec<TcpStream> = (0..100).map(ask).collect();
    // By the first answer all are waiting.
    callers[0].read_exact(&mut [0]).unwrap();
    let _: u64 = Client::new(server.path()).unwrap().get("/v1/count", &()).unwrap();
    let has_answer =
        |stream: &TcpStream| stream.set_nonblocking(true).is_ok() && stream.peek(&mut [0]).is_ok();
    let answered = callers.iter().filter(|stream| has_answer(stream)).count();
    assert!(answered < 50, "the socket's call came behind {answered} of the network's");
    // Those that wait for a place and go away have nothing begun for them.
    drop(callers);
}

#[test]
fn dawdlers_on_the_network_do_not_shut_the_operator_out() {
    let (_folder, server) = start(&["127.0.0.1:0"], None);
    let server = server.unwrap();
    let dawdle = |number: usize| {
        let mut stream = connect(server.addresses()[0]);
        stream.write_all([&b"GET /v1"[..], b"", b"\x16\x03\x01"][number % 3]).unwrap();
        stream
    };
    // More than there are places.
    let dawdlers: Vec<TcpStream> = (0..140).map(dawdle).collect();
    let count: u64 = Client::new(server.path()).unwrap().get("/v1/count", &()).unwrap();
    assert_eq!(count, 0);
    drop(server); // Returns, whatever they do.
    drop(dawdlers);
}
