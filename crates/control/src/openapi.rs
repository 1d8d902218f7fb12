//! The verbs as an OpenAPI document, made of what is registered: `GET /v1/openapi.json`.

use crate::registry::{Form, Verb};
use crate::schema::{EventsQuery, Panels, Verbs, path};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::iter::repeat;

/// Where it is.
pub(crate) const PATH: &str = "/v1/openapi.json";

/// OpenAPI 3.1, whose types are JSON schemas: those of answers are components, as they are written; those of requests stand where they are taken.
pub(crate) fn document(verbs: &Verbs, registered: &[Verb]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut inside = settings.clone().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut answers = settings.for_serialize().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    // What every service has is listed behind what is registered.
    for (verb, registered) in verbs.verbs.iter().zip(registered.iter().map(Some).chain(repeat(None))) {
        let kind = match verb.path.as_str() {
            crate::METRICS => crate::metrics::CONTENT_TYPE.split(';').next().unwrap_or_default(),
            path::EVENTS => crate::events::CONTENT_TYPE,
            path::CAPTURE => crate::schema::PCAPNG,
            _ if verb.stream => "application/octet-stream",
            _ => "application/json",
        };
        let answered: Option<Form> = match verb.path.as_str() {
            path::PANELS => Some(SchemaGenerator::subschema_for::<Panels>),
            _ => registered.and_then(|verb| verb.answers),
        };
        let content = match answered {
            _ if verb.path == path::EVENTS => json!({"schema": {"$ref": "#/components/schemas/Event"}}),
            Some(form) => json!({"schema": form(&mut answers)}),
            None => json!({}),
        };
        let mut operation = json!({
            "summary": verb.help,
            "operationId": format!("{}{}", verb.method.to_lowercase(), verb.path.replace(['/', '-', '.'], "_")),
            "responses": {
                "200": {"description": "Done", "content": {kind: content}},
                "default": {"$ref": "#/components/responses/Error"},
            },
        });
        let taken: Option<Form> = match verb.path.as_str() {
            path::EVENTS => Some(SchemaGenerator::subschema_for::<EventsQuery>),
            _ => registered.and_then(|verb| verb.takes),
        };
        let taken = taken.map(|form| form(&mut inside));
        match (verb.method.as_str(), taken) {
            ("POST", Some(taken)) => {
                operation["requestBody"] =
                    json!({"required": true, "content": {"application/json": {"schema": taken}}});
            }
            ("POST", None) => operation["requestBody"] = json!({"content": {"application/json": {}}}),
            (_, Some(taken)) => operation["parameters"] = parameters(&taken),
            (_, None) => {}
        }
        if verb.path == path::EVENTS {
            operation["description"] = json!(
                "One JSON object per line, until the reader goes away. Who reads more slowly than things happen is told how many events are lost."
            );
        }
        let path = paths.entry(verb.path.clone()).or_insert_with(|| json!({}));
        path[verb.method.to_lowercase()] = operation;
    }
    let mut schemas = answers.take_definitions(false);
    schemas.insert("Event".into(), event(verbs));
    json!({
        "openapi": "3.1.0",
        "info": {"title": verbs.service, "version": verbs.version},
        "paths": paths,
        "components": {
            "schemas": schemas,
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

/// The fields of a query.
fn parameters(query: &Schema) -> Value {
    let needed = query.get("required").and_then(Value::as_array);
    let is_needed = |name: &str| needed.is_some_and(|needed| needed.iter().any(|known| known == name));
    let fields = query.get("properties").and_then(Value::as_object).into_iter().flatten();
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let help = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let help = help.unwrap_or_else(|| json!(""));
        json!({"name": name, "in": "query", "required": is_needed(name), "description": help, "schema": schema})
    };
    fields.map(parameter).collect()
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
