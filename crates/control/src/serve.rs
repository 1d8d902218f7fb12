//! Calls: from a request to a handler and back.

use crate::events::{self, Reader};
use crate::foreign;
use crate::registry::{ApiError, Collector, Handler, Registry, Request, Verb};
use crate::schema::{EventsQuery, Verbs, VerbsEntry, path};
use crate::server::ServerError;
use crate::stream::Streams;
use crate::tcp::Turnstile;
use crate::{metrics, openapi, page};
use axum::body::{Body, HttpBody as _};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use axum::{Extension, Json, Router};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, StatusCode, Uri};
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Until a request's head is here; a connection may idle as long.
    pub(crate) head: Duration,
    /// Until its body is here.
    pub(crate) body: Duration,
    /// Until its handler returns.
    pub(crate) handler: Duration,
    /// Until answers that are under way have ended, when the server closes.
    pub(crate) grace: Duration,
    /// Between two lines of events at most.
    pub(crate) alive: Duration,
    /// Until a client of the network takes more of its answer.
    pub(crate) read: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            handler: Duration::from_secs(60),
            grace: Duration::from_secs(1),
            alive: Duration::from_secs(5),
            read: Duration::from_secs(30),
        }
    }
}

/// Makes routes of verbs. Streams of the socket and of the network have places of their own, in this order.
pub(crate) fn router(
    registry: Registry,
    streams: &[Arc<Streams>; 2],
    stopped: &watch::Receiver<bool>,
    times: Times,
) -> Result<Router, ServerError> {
    let Registry { service, version, verbs, elsewhere, packets: _, collectors, events, kinds } = registry;
    let here = service.clone();
    let entry = |verb: &Verb| VerbsEntry {
        method: verb.method.to_string(),
        path: verb.path.clone(),
        help: verb.help.clone(),
        stream: matches!(verb.handler, Handler::Stream(_)),
    };
    let mut list: Vec<VerbsEntry> = verbs.iter().map(entry).collect();
    for (path, help, stream) in [
        (openapi::PATH, "These verbs as an OpenAPI document", false),
        (metrics::METRICS, "Metrics for Prometheus", false),
        (path::PANELS, "The same figures by the parts of the service, for the live page", false),
        (path::EVENTS, "What happens, a JSON object per line", true),
    ] {
        list.push(VerbsEntry { method: "GET".into(), path: path.into(), help: help.into(), stream });
    }
    let list = Arc::new(Verbs { service, version, verbs: list, events: events::kinds(kinds) });
    let document = Arc::new(openapi::document(&list, &verbs));
    let collectors = Arc::new(collectors);
    let scrape = figures(metrics::METRICS, times, collectors.clone(), |collectors| {
        let text = metrics::text(collectors.iter().flat_map(|part| (part.collect)()).collect())?;
        Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
    });
    let panels = figures(path::PANELS, times, collectors, |collectors| {
        Ok(Json(metrics::panels(collectors)).into_response())
    });
    let readers = [(); 2].map(|()| Arc::new(Semaphore::new(events::READERS)));
    let (known, stopped) = (list.clone(), stopped.clone());
    let tell = move |request: axum::extract::Request| {
        let (events, known, stopped) = (events.clone(), known.clone(), stopped.clone());
        // Readers of the network take no place from those of the socket.
        let place = readers[usize::from(request.extensions().get::<Turnstile>().is_some())].clone();
        async move {
            let query = Request::new(request.uri().clone(), Default::default()).query::<EventsQuery>();
            let reader = query.and_then(|query| Reader::new(events, &known.events, &query));
            let reader = match (reader, place.try_acquire_owned()) {
                (Ok(reader), Ok(place)) => reader.start(place, stopped, times.alive),
                (Err(error), _) => return refuse(&error),
                (_, Err(_)) => {
                    let what =
                        format!("{} readers of events are there already: end one of them", events::READERS);
                    return refuse(&ApiError::conflict(what));
                }
            };
            ([(CONTENT_TYPE, events::CONTENT_TYPE)], Body::new(reader)).into_response()
        }
    };
    let mut app = Router::new()
        .route("/v1", on(MethodFilter::GET, async move || Json(&*list).into_response()))
        .route(openapi::PATH, on(MethodFilter::GET, async move || Json(&*document).into_response()))
        .route(metrics::METRICS, on(MethodFilter::GET, scrape))
        .route(path::PANELS, on(MethodFilter::GET, panels))
        .route(path::EVENTS, on(MethodFilter::GET, tell));
    for asset in page::ASSETS {
        app = app.route(asset.path, on(MethodFilter::GET, async move || asset.answer()));
    }
    let own = ["/v1", openapi::PATH, path::PANELS, path::EVENTS];
    let mut seen: HashSet<_> = own.iter().map(|path| (Method::GET, (*path).to_owned())).collect();
    for verb in verbs {
        let wrong = |why| ServerError::Verb { method: verb.method.to_string(), path: verb.path.clone(), why };
        let filter = MethodFilter::try_from(verb.method.clone()).map_err(|_| wrong("no such method"))?;
        if !verb.path.starts_with("/v1/") || verb.path.contains(['{', '}', '*', ':', '?', '#']) {
            return Err(wrong("a path is literal and begins with /v1/"));
        }
        if !seen.insert((verb.method.clone(), verb.path.clone())) {
            return Err(wrong("is registered twice"));
        }
        let path = verb.path.clone();
        let (verb, streams) = (Arc::new(verb), streams.clone());
        let handler = move |request: axum::extract::Request| {
            let (verb, streams) = (verb.clone(), streams.clone());
            async move { call(verb, streams, times, request).await.unwrap_or_else(|error| refuse(&error)) }
        };
        app = app.route(&path, on(filter, handler));
    }
    let app = app
        .layer(from_fn(async |request: axum::extract::Request, next: Next| {
            match foreign::elsewhere(request.uri().path(), request.headers()) {
                Some(what) => refuse(&ApiError::new(StatusCode::FORBIDDEN, what)),
                None => next.run(request).await,
            }
        }))
        .fallback(async move |method: Method, uri: Uri| {
            let path = uri.path();
            let whose = elsewhere.iter().find(|(below, _)| {
                path.strip_prefix(below.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            let why = whose.map_or(String::new(), |(_, whose)| {
                format!(": this is {here}, and that is a verb of {whose}")
            });
            let what = format!("{method} {path}: no such verb{why}: GET /v1 lists them");
            refuse(&ApiError::not_found(what))
        })
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            let what = format!("{method} {}: no such verb here: GET /v1 lists them", uri.path());
            refuse(&ApiError::new(StatusCode::METHOD_NOT_ALLOWED, what))
        });
    Ok(app)
}

/// A handler that collects figures on a thread of its own, and says them as `say` does.
fn figures(
    name: &'static str,
    times: Times,
    collectors: Arc<Vec<Collector>>,
    say: fn(&[Collector]) -> Result<Response, ApiError>,
) -> impl Fn(Option<Extension<Turnstile>>) -> Answering + Clone + Send + Sync + 'static {
    move |turnstile: Option<Extension<Turnstile>>| {
        let collectors = collectors.clone();
        Box::pin(async move {
            let place = enter(turnstile.map(|Extension(turnstile)| turnstile)).await;
            let collect = move || {
                let _place = place;
                say(&collectors)
            };
            match timeout(times.handler, spawn_blocking(collect)).await {
                Ok(Ok(Ok(answer))) => answer,
                Ok(Ok(Err(error))) => refuse(&error),
                Ok(Err(_)) => refuse(&ApiError::internal(format!(
                    "GET {name}: a bug: it panicked: see the service's log"
                ))),
                Err(_) => {
                    refuse(&ApiError::internal(format!("GET {name}: no answer within {:?}", times.handler)))
                }
            }
        })
    }
}

/// An answer in the making.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Reads the body, runs the handler, makes the response.
async fn call(
    verb: Arc<Verb>,
    streams: [Arc<Streams>; 2],
    times: Times,
    request: axum::extract::Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    // By its own word: nobody waits for what is refused.
    if body.size_hint().lower() > verb.body_bytes as u64 {
        return Err(too_long(verb.body_bytes));
    }
    let body = match timeout(times.body, axum::body::to_bytes(body, verb.body_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return Err(body_error(&error, verb.body_bytes)),
        Err(_) => {
            let what = format!("the request's body took more than {:?}", times.body);
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, what));
        }
    };
    let turnstile = head.extensions.get::<Turnstile>().cloned();
    // Who captures over the network takes no place from the operator at the socket.
    let [of_socket, of_network] = streams;
    let streams = if turnstile.is_some() { of_network } else { of_socket };
    let place = enter(turnstile).await;
    let request = Request::new(head.uri, body);
    let name = format!("{} {}", verb.method, verb.path);
    let run = spawn_blocking(move || {
        let _place = place;
        match &verb.handler {
            Handler::Answer(handler) => handler(&request).map(json),
            Handler::Stream(handler) => {
                let stream = handler(&request)?;
                let content_type = stream.content_type;
                let pieces = stream.start(&streams).map_err(|error| ApiError::conflict(error.to_string()))?;
                Ok(([(CONTENT_TYPE, content_type)], Body::new(pieces)).into_response())
            }
        }
    });
    match timeout(times.handler, run).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            Err(ApiError::internal(format!("{name}: a bug: its handler panicked: see the service's log")))
        }
        Err(_) => Err(ApiError::internal(format!(
            "{name}: no answer within {:?}: it goes on, and may still succeed: GET /v1/events tells",
            times.handler
        ))),
    }
}

/// Waits for a place where there are few; who goes away meanwhile waits no more, and nothing was begun for him.
async fn enter(turnstile: Option<Turnstile>) -> Option<OwnedSemaphorePermit> {
    match turnstile {
        Some(turnstile) => turnstile.enter().await,
        None => None,
    }
}

fn json(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// An error as a response: `{"error":"..."}`.
pub(crate) fn refuse(error: &ApiError) -> Response {
    let body = serde_json::json!({ "error": error.message });
    (error.status, json(body.to_string().into_bytes())).into_response()
}

/// Too long, or broken off.
fn too_long(most: usize) -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the request's body has more than {most} bytes"))
}

fn body_error(error: &axum::Error, most: usize) -> ApiError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return too_long(most);
        }
        cause = error.source();
    }
    ApiError::bad_request(format!("the request's body: {error}"))
}
