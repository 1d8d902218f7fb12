//! The API on TCP: for who is not on this machine, or reads metrics. Every call needs a token; what leaves the machine needs TLS.

use crate::lease::Lease;
use crate::page;
use crate::registry::ApiError;
use crate::serve::refuse;
use crate::server::ServerError;
use crate::strangers::Seat;
use crate::tokens::{Digest32, LONGEST, Scope, Tokens, for_few};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore, ServerConfig};
use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// Where the API answers besides its Unix socket, and to whom.
#[derive(Debug, Clone)]
pub struct Tcp {
    /// Addresses to listen at.
    pub addresses: Vec<SocketAddr>,
    /// Who may call.
    pub tokens: Arc<Tokens>,
    /// With what certificate; needed for addresses other than loopback ones.
    pub tls: Option<Tls>,
}

/// A certificate with its key, which can be [renewed](Tcp::renew).
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Secured>>);

/// What connections are secured with.
#[derive(Clone)]
struct Secured {
    config: Arc<ServerConfig>,
    /// When the server's own certificate begins and ends, seconds since 1970.
    begins_s: Option<u64>,
    ends_s: Option<u64>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// What is wrong with a certificate or its key.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsError {
    path: PathBuf,
    what: String,
}

impl Tls {
    /// Reads a chain of certificates and a private key, both PEM.
    ///
    /// # Errors
    /// A file that cannot be read or has neither in it; a key that is not the certificate's.
    pub fn read(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let fail = |path: &Path, what: String| TlsError { path: path.to_owned(), what };
        // Before it is opened: a pipe would be waited for, and a device may have no end.
        match std::fs::metadata(certificate) {
            Ok(data) if !data.is_file() => return Err(fail(certificate, "is no file".into())),
            Ok(data) => short(data.len()).map_err(|what| fail(certificate, what))?,
            // It is told of where it is opened.
            Err(_) => {}
        }
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| fail(certificate, format!("no chain of PEM certificates: {error}")))?;
        // The server's own comes first (RFC 8446, 4.4.2). What is sent with it may have ended and not be needed: a cross-signed root, for
        // clients that do not know the new one.
        let Some(own) = chain.first() else {
            return Err(fail(certificate, "has no PEM certificate in it".into()));
        };
        let (begins_s, ends_s) = (begins_s(own), ends_s(own));
        if let Err(error) = ParsedCertificate::try_from(own) {
            return Err(fail(
                certificate,
                format!("no certificate that is usable here (X.509 version 3): {error}"),
            ));
        }
        for_few(key).and_then(short).map_err(|what| fail(key, what))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| {
            let text = std::fs::read_to_string(key).unwrap_or_default();
            if text.contains("ENCRYPTED") {
                return fail(key, "is encrypted, and nobody could be asked for its password: openssl pkey -in KEY -out KEY2".into());
            }
            fail(key, format!("no PEM private key: {error}"))
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| fail(key, format!("not the key of {}: {error}", certificate.display())))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(Arc::new(RwLock::new(Secured { config: Arc::new(config), begins_s, ends_s }))))
    }

    fn secured(&self) -> Secured {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a connection that begins now is secured with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.secured().config)
    }
}

/// Refuses what no certificate or key is as long as: a wrong file is not read to its end.
fn short(bytes: u64) -> Result<(), String> {
    if bytes > LONGEST { Err(format!("has {bytes} bytes: at most {LONGEST}")) } else { Ok(()) }
}

/// When a certificate ends, seconds since 1970. Who checks one is asked in a time to come: it says since when this one is of no use.
fn ends_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    match objection(certificate, 1 << 40)? {
        CertificateError::ExpiredContext { not_after, .. } => Some(not_after.as_secs()),
        _ => None,
    }
}

/// When it begins, likewise.
fn begins_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    match objection(certificate, 0)? {
        CertificateError::NotValidYetContext { not_before, .. } => Some(not_before.as_secs()),
        _ => None,
    }
}

/// What is wrong with a certificate at a time, for who trusts nobody.
fn objection(certificate: &CertificateDer<'_>, then_s: u64) -> Option<CertificateError> {
    let then = UnixTime::since_unix_epoch(Duration::from_secs(then_s));
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], then, &[]) {
        Err(rustls::Error::InvalidCertificate(error)) => Some(error),
        _ => None,
    }
}

impl Tcp {
    /// Takes the tokens and the certificate of another one, read anew, from the next call and connection on. Addresses stay.
    pub fn renew(&self, fresh: &Tcp) {
        self.tokens.renew(&fresh.tokens);
        if let (Some(tls), Some(fresh)) = (&self.tls, &fresh.tls) {
            let fresh = fresh.secured();
            *tls.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }

    /// When the server's own certificate ends, seconds since 1970, whatever is sent with it; nothing where there is none.
    pub fn certificate_ends_s(&self) -> Option<u64> {
        self.tls.as_ref()?.secured().ends_s
    }

    /// When it begins.
    pub fn certificate_begins_s(&self) -> Option<u64> {
        self.tls.as_ref()?.secured().begins_s
    }

    /// Listens at the addresses, before anybody answers there: who cannot have them should hear of it before anything else is made. An address that is not
    /// there yet (one of IPv6 that is still tentative) is taken all the same; one of IPv6 takes nothing of IPv4, so that both may be named with one port.
    ///
    /// # Errors
    /// An address that is taken, or one of a network without TLS.
    pub fn bind(&self) -> Result<Bound, ServerError> {
        self.check()?;
        let listen = |address: &SocketAddr| {
            listen(*address).map_err(|error| ServerError::Listen { address: *address, error: error.into() })
        };
        let listeners = self.addresses.iter().map(listen).collect::<Result<_, _>>()?;
        Ok(Bound { tcp: self.clone(), listeners })
    }

    /// Whether what would be sent could be read by others on its way.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let open = self.addresses.iter().find(|address| !address.ip().is_loopback());
        match open {
            Some(address) if self.tls.is_none() => Err(ServerError::NeedsTls { address: *address }),
            _ => Ok(()),
        }
    }
}

/// [`Tcp`] whose addresses are ours; who connects is kept waiting until a [`Server`](crate::Server) serves.
#[derive(Debug)]
pub struct Bound {
    pub(crate) tcp: Tcp,
    pub(crate) listeners: Vec<TcpListener>,
}

/// Connections that wait to be accepted; the system takes fewer if it likes.
const BACKLOG: i32 = 1024;

fn listen(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let (family, is_v6) = match address {
        SocketAddr::V4(_) => (AddressFamily::INET, false),
        SocketAddr::V6(_) => (AddressFamily::INET6, true),
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if is_v6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Where there is no such thing, the address has to be there.
    #[cfg(target_os = "linux")]
    let _ = if is_v6 {
        sockopt::set_ipv6_freebind(&socket, true)
    } else {
        sockopt::set_ip_freebind(&socket, true)
    };
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Handlers that work for the network at the same time. Those of the operator's socket have threads of their own.
pub(crate) const HANDLERS: usize = 8;

/// A handler's place among those that work at the same time; waits for one.
#[derive(Clone)]
pub(crate) struct Turnstile(Arc<Semaphore>);

impl Turnstile {
    pub(crate) async fn enter(self) -> Option<OwnedSemaphorePermit> {
        self.0.acquire_owned().await.ok()
    }
}

/// Lets those through who may call. `packets` are the paths whose answers are packets: nothing for who may only look. The page's files are for
/// everybody: it asks for a token itself.
pub(crate) fn guarded(app: Router, tokens: Arc<Tokens>, packets: HashSet<String>) -> Router {
    let (packets, turnstile) = (Arc::new(packets), Turnstile(Arc::new(Semaphore::new(HANDLERS))));
    app.layer(from_fn(move |mut request: Request, next: Next| {
        let (tokens, packets, turnstile) = (tokens.clone(), packets.clone(), turnstile.clone());
        async move {
            let seat = request.extensions().get::<Arc<Seat>>().cloned();
            match allowed(&tokens, &packets, &request) {
                Err(refused)
                    if page::is_asset(request.uri().path())
                        && refused.status() == StatusCode::UNAUTHORIZED =>
                {
                    let mut answer = next.run(request).await;
                    close(&mut answer);
                    answer
                }
                Ok((token, needed)) => {
                    seat.iter().for_each(|seat| seat.is_known());
                    request.extensions_mut().insert(turnstile);
                    let answer = next.run(request).await;
                    if answer.body().size_hint().exact().is_some() {
                        return answer;
                    }
                    answer.map(|body| Body::new(Lease::new(body, tokens.taken_back(token, needed))))
                }
                Err(response) => *response,
            }
        }
    }))
}

/// The caller's token, and what the call needs of it.
fn allowed(
    tokens: &Tokens,
    packets: &HashSet<String>,
    request: &Request,
) -> Result<(Digest32, Scope), Box<Response>> {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let looks = request.method() == Method::GET || request.method() == Method::HEAD;
    let path = request.uri().path();
    let needed = if looks && !packets.contains(path) { Scope::Read } else { Scope::All };
    match tokens.scope(header) {
        Some((token, scope)) if scope == Scope::All || needed == Scope::Read => Ok((token, needed)),
        Some(_) => {
            let what =
                format!("{} {path}: this token may only look: use one whose scope is all", request.method());
            Err(Box::new(refuse(&ApiError::new(StatusCode::FORBIDDEN, what))))
        }
        None => {
            let what = "send a token that is in control.token_file: Authorization: Bearer TOKEN";
            let mut response = refuse(&ApiError::new(StatusCode::UNAUTHORIZED, what)).into_response();
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            close(&mut response);
            Err(Box::new(response))
        }
    }
}

/// Who has no token holds no place: else a hundred of them could keep all others out.
fn close(response: &mut Response) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One port for both families, and addresses that are not here yet.
    #[test]
    fn all_addresses_of_both_families_can_be_listened_at() {
        let of = |text: &str| listen(text.parse().unwrap());
        let four = of("0.0.0.0:0").unwrap();
        let port = four.local_addr().unwrap().port();
        // Another process may have taken it meanwhile, but hardly.
        let six = of(&format!("[::]:{port}")).unwrap();
        assert!(of(&format!("0.0.0.0:{port}")).is_err() && of(&format!("[::]:{port}")).is_err());
        drop((four, six));
        #[cfg(target_os = "linux")]
        for later in ["192.0.2.7:0", "[2001:db8::7]:0"] {
            of(later).unwrap();
        }
    }
}
