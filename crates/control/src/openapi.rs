//! The verbs as an OpenAPI document, made of what is registered: `GET /v1/openapi.json`.

use crate::schema::{Verbs, path};
use serde_json::{Map, Value, json};

/// Where it is.
pub(crate) const PATH: &str = "/v1/openapi.json";

/// OpenAPI 3.1. Bodies and answers are JSON of no further form here: the types are in `schema`.
pub(crate) fn document(verbs: &Verbs) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for verb in &verbs.verbs {
        let kind = match verb.path.as_str() {
            crate::METRICS => crate::metrics::CONTENT_TYPE.split(';').next().unwrap_or_default(),
            path::EVENTS => crate::events::CONTENT_TYPE,
            path::CAPTURE => crate::schema::PCAPNG,
            _ if verb.stream => "application/octet-stream",
            _ => "application/json",
        };
        let content = if verb.path == path::EVENTS {
            json!({"schema": {"$ref": "#/components/schemas/Event"}})
        } else {
            json!({})
        };
        let mut operation = json!({
            "summary": verb.help,
            "operationId": format!("{}{}", verb.method.to_lowercase(), verb.path.replace(['/', '-', '.'], "_")),
            "responses": {
                "200": {"description": "Done", "content": {kind: content}},
                "default": {"$ref": "#/components/responses/Error"},
            },
        });
        if verb.method == "POST" {
            operation["requestBody"] = json!({"content": {"application/json": {}}});
        }
        if verb.path == path::EVENTS {
            operation["description"] = json!(
                "One JSON object per line, until the reader goes away. Who reads more slowly than things happen is told how many events are lost."
            );
            operation["parameters"] = events_query();
        }
        let path = paths.entry(verb.path.clone()).or_insert_with(|| json!({}));
        path[verb.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": verbs.service, "version": verbs.version},
        "paths": paths,
        "components": {
            "schemas": {"Event": event(verbs)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Error": {
                "description": "One line: what, where, what to do",
                "content": {"application/json": {"schema": {
                    "type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}}},
            }},
        },
        // None is asked for on the Unix socket.
        "security": [{}, {"token": []}],
    })
}

/// What `GET /v1/events` can be asked: `schema::EventsQuery`.
fn events_query() -> Value {
    let parameter = |name: &str, of: &str, help: &str| json!({"name": name, "in": "query", "required": false, "description": help, "schema": {"type": of}});
    json!([
        parameter("kind", "string", "Only these kinds, with commas between them"),
        parameter("after", "integer", "Those with greater numbers, as far as they are kept"),
        parameter("of", "string", "The process whose number after is: what its alive lines are about"),
        parameter("last", "integer", "The last so many first"),
        parameter("once", "boolean", "Only what has happened: the answer ends then"),
    ])
}

/// A line of events: `schema::Event`.
fn event(verbs: &Verbs) -> Value {
    let kinds: Vec<Value> =
        verbs.events.iter().map(|kind| json!({"const": kind.kind, "description": kind.help})).collect();
    json!({
        "type": "object",
        "required": ["seq", "time_ns", "kind", "severity", "about", "message", "values"],
        "properties": {
            "seq": {"type": "integer", "description": "Its number"},
            "time_ns": {"type": "integer", "description": "Nanoseconds since the epoch"},
            "kind": {"type": "string", "oneOf": kinds},
            "severity": {"type": "string", "enum": ["info", "warning", "error"]},
            "about": {"type": "string", "description": "A port, a drop reason, a table, a worker, a file"},
            "message": {"type": "string"},
            "values": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    })
}
