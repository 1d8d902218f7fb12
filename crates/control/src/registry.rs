//! The verbs that a service answers to: what is registered, and what a handler sees and says.

use crate::events::Events;
use crate::metrics::Family;
use crate::schema::EventKind;
use crate::stream::Stream;
use axum::extract::Query;
use hyper::body::Bytes;
use hyper::{Method, StatusCode, Uri};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A handler, as it is kept.
type Kept<T> = Box<dyn Fn(&Request) -> Result<T, ApiError> + Send + Sync>;

/// What runs when a verb is called. Handlers block at will: they run on threads of their own.
pub(crate) enum Handler {
    /// Answers with JSON, ready to be sent.
    Answer(Kept<Vec<u8>>),
    /// Answers in pieces.
    Stream(Kept<Stream>),
}

/// What JSON a type is.
pub(crate) type Form = fn(&mut SchemaGenerator) -> Schema;

/// What a verb may answer with: JSON of a form that can be told beforehand.
pub trait Answer: Serialize + JsonSchema {}

impl<T: Serialize + JsonSchema> Answer for T {}

/// A method at a path, and its handler.
pub(crate) struct Verb {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) help: String,
    /// Bytes that a request's body may have.
    pub(crate) body_bytes: usize,
    /// What comes with a call, if something does.
    pub(crate) takes: Option<Form>,
    /// What is answered, unless that comes in pieces.
    pub(crate) answers: Option<Form>,
    pub(crate) handler: Handler,
}

/// Bytes of a request's body, where a verb says nothing else.
pub(crate) const BODY_BYTES: usize = 1 << 20;

/// The verbs of a service. `GET /v1` lists them.
///
/// Paths are literal (`/v1/routes`); what a verb is about comes in the query or in a JSON body. A handler that panics
/// answers 500, and nothing else is lost.
pub struct Registry {
    pub(crate) service: String,
    pub(crate) version: String,
    pub(crate) verbs: Vec<Verb>,
    pub(crate) elsewhere: Vec<(String, String)>,
    pub(crate) packets: Vec<String>,
    pub(crate) collectors: Vec<Collector>,
    pub(crate) events: Events,
    pub(crate) kinds: Vec<EventKind>,
}

/// What says what is counted, now.
pub(crate) type Collect = Box<dyn Fn() -> Vec<Family> + Send + Sync>;

/// Figures of a part of a service; those with a title have a panel on the page.
pub(crate) struct Collector {
    pub(crate) title: Option<String>,
    pub(crate) collect: Collect,
}

impl Registry {
    /// An empty one, of a service by name and version.
    pub fn new(service: impl Into<String>, version: impl Into<String>) -> Self {
        Registry {
            service: service.into(),
            version: version.into(),
            verbs: Vec::new(),
            elsewhere: Vec::new(),
            packets: Vec::new(),
            collectors: Vec::new(),
            events: Events::default(),
            kinds: Vec::new(),
        }
    }

    /// Serves what is told to `events`: `GET /v1/events`.
    pub fn events(&mut self, events: &Events) {
        self.events = events.clone();
    }

    /// Says that there are events of a kind, and when.
    pub fn event_kind(&mut self, kind: &str, help: &str) {
        self.kinds.push(EventKind { kind: kind.into(), help: help.into() });
    }

    /// Says which service has the verbs below a path, for who asks this one in vain: `whose` completes "it is a verb of".
    pub fn elsewhere(&mut self, path: impl Into<String>, whose: impl Into<String>) {
        self.elsewhere.push((path.into(), whose.into()));
    }

    /// Registers a verb that looks.
    pub fn get<T, F>(&mut self, path: &str, help: &str, handler: F)
    where
        T: Answer,
        F: Fn(&Request) -> Result<T, ApiError> + Send + Sync + 'static,
    {
        self.answer(Method::GET, path, help, handler);
    }

    /// Registers a verb that adds or sets going.
    pub fn post<T, F>(&mut self, path: &str, help: &str, handler: F)
    where
        T: Answer,
        F: Fn(&Request) -> Result<T, ApiError> + Send + Sync + 'static,
    {
        self.answer(Method::POST, path, help, handler);
    }

    /// The same for bodies of up to so many bytes, where a mebibyte would not do.
    pub fn post_large<T, F>(&mut self, path: &str, help: &str, body_bytes: usize, handler: F)
    where
        T: Answer,
        F: Fn(&Request) -> Result<T, ApiError> + Send + Sync + 'static,
    {
        self.post(path, help, handler);
        if let Some(verb) = self.verbs.last_mut() {
            verb.body_bytes = body_bytes.max(BODY_BYTES);
        }
    }

    /// Registers a verb that removes. What to remove is in the query.
    pub fn delete<T, F>(&mut self, path: &str, help: &str, handler: F)
    where
        T: Answer,
        F: Fn(&Request) -> Result<T, ApiError> + Send + Sync + 'static,
    {
        self.answer(Method::DELETE, path, help, handler);
    }

    /// Registers a verb (GET) whose answer comes in pieces until its source ends or the client goes away.
    pub fn stream<F>(&mut self, path: &str, help: &str, handler: F)
    where
        F: Fn(&Request) -> Result<Stream, ApiError> + Send + Sync + 'static,
    {
        self.add(Method::GET, path, help, None, Handler::Stream(Box::new(handler)));
    }

    /// Says what the verb that was registered last takes: a POST in its body, others in their query. It is for the OpenAPI document.
    pub fn takes<T: JsonSchema>(&mut self) {
        if let Some(verb) = self.verbs.last_mut() {
            verb.takes = Some(SchemaGenerator::subschema_for::<T>);
        }
    }

    /// Says that what a path answers shows packets, as every stream's does: not for tokens that may only look.
    pub fn shows_packets(&mut self, path: &str) {
        self.packets.push(path.to_owned());
    }

    fn answer<T, F>(&mut self, method: Method, path: &str, help: &str, handler: F)
    where
        T: Answer,
        F: Fn(&Request) -> Result<T, ApiError> + Send + Sync + 'static,
    {
        let handler = move |request: &Request| {
            let value = handler(request)?;
            serde_json::to_vec(&value)
                .map_err(|error| ApiError::internal(format!("the answer is no JSON: {error}")))
        };
        let form: Form = SchemaGenerator::subschema_for::<T>;
        self.add(method, path, help, Some(form), Handler::Answer(Box::new(handler)));
    }

    fn add(&mut self, method: Method, path: &str, help: &str, answers: Option<Form>, handler: Handler) {
        let (path, help) = (path.to_owned(), help.to_owned());
        self.verbs.push(Verb { method, path, help, body_bytes: BODY_BYTES, takes: None, answers, handler });
    }
}

/// What a client asks: a query and a body, both optional.
#[derive(Debug)]
pub struct Request {
    uri: Uri,
    body: Bytes,
}

impl Request {
    pub(crate) fn new(uri: Uri, body: Bytes) -> Self {
        Request { uri, body }
    }

    /// The body, as JSON of a type. Types that say `#[serde(deny_unknown_fields)]`, as those of [`schema`](crate::schema)
    /// do, refuse misspelt fields.
    ///
    /// # Errors
    /// 400 with the line and column of what is wrong.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        if self.body.is_empty() {
            return Err(ApiError::bad_request("the request has no body: send JSON"));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let what = without_names(&error.to_string());
            ApiError::bad_request(format!("the request's body: {what}: GET /v1 lists the verbs"))
        })
    }

    /// The query (`?prefix=10.0.0.0/8&limit=10`), as a struct of optional fields.
    ///
    /// # Errors
    /// 400 with the parameter's name.
    pub fn query<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        Query::try_from_uri(&self.uri)
            .map(|Query(query)| query)
            .map_err(|error| ApiError::bad_request(format!("the request's query: {}", source_of(&error))))
    }
}

/// What the parser says, without the name that a struct has in our language, nor how many fields.
fn without_names(message: &str) -> String {
    let Some((before, from)) = message.split_once(", expected struct ") else { return message.into() };
    let place = from.find(" at line ").map_or("", |at| &from[at..]);
    format!("{before}, expected an object{place}")
}

/// The error that says most: axum's own lines say only that there is one.
fn source_of(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Why a verb was not carried out. The text is one line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl ApiError {
    /// 400: what was asked makes no sense (a wrong prefix, an unknown field).
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404: what was asked about does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 409: it makes sense, but not now or not with what is there.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 500: our own failure.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into().replace(['\n', '\r'], " ") }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{RouteAdd, RoutesQuery};

    fn request(uri: &str, body: &str) -> Request {
        Request::new(uri.parse().unwrap(), Bytes::from(body.to_owned()))
    }

    #[test]
    fn unknown_fields_and_parameters_are_named() {
        let error = request("/v1/routes", r#"{"prefix":"10.0.0.0/8","vai":"10.0.0.1"}"#).json::<RouteAdd>();
        assert!(error.unwrap_err().message.contains("unknown field `vai`"));
        let error = request("/v1/routes?limti=3", "").query::<RoutesQuery>().unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(error.message.contains("unknown field `limti`"), "{error}");
        let error = request("/v1/routes?limit=x", "").query::<RoutesQuery>().unwrap_err();
        assert!(error.message.contains("limit"), "{error}");
        assert!(request("/v1/routes", "").json::<RouteAdd>().unwrap_err().message.contains("no body"));
        for (body, what) in [("[]", "invalid length 0"), ("7", "invalid type: integer `7`")] {
            let said = request("/v1/routes", body).json::<RouteAdd>().unwrap_err().message;
            let wanted = format!("the request's body: {what}, expected an object at line 1 column ");
            assert!(said.starts_with(&wanted), "{said}");
        }
    }

    #[test]
    fn queries_come_decoded() {
        let query: RoutesQuery =
            request("/v1/routes?prefix=2001%3Adb8%3A%3A%2F32&limit=3", "").query().unwrap();
        assert_eq!((query.prefix.as_deref(), query.limit), (Some("2001:db8::/32"), Some(3)));
        assert_eq!(request("/v1/routes", "").query::<RoutesQuery>().unwrap(), RoutesQuery::default());
    }

    #[test]
    fn errors_are_one_line() {
        assert_eq!(ApiError::bad_request("a\nb").to_string(), "a b");
    }
}
