//! The verbs as an OpenAPI document, made of what is registered: `GET /v1/openapi.json`.

use crate::schema::Verbs;
use serde_json::{Map, Value, json};

/// Where it is.
pub(crate) const PATH: &str = "/v1/openapi.json";

/// OpenAPI 3.1. Bodies and answers are JSON of no further form here: the types are in `schema`.
pub(crate) fn document(verbs: &Verbs) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for verb in &verbs.verbs {
        let kind = match verb.path.as_str() {
            crate::METRICS => crate::metrics::CONTENT_TYPE.split(';').next().unwrap_or_default(),
            _ if verb.stream => "application/octet-stream",
            _ => "application/json",
        };
        let mut operation = json!({
            "summary": verb.help,
            "operationId": format!("{}{}", verb.method.to_lowercase(), verb.path.replace(['/', '-', '.'], "_")),
            "responses": {
                "200": {"description": "Done", "content": {kind: {}}},
                "default": {"$ref": "#/components/responses/Error"},
            },
        });
        if verb.method == "POST" {
            operation["requestBody"] = json!({"content": {"application/json": {}}});
        }
        let path = paths.entry(verb.path.clone()).or_insert_with(|| json!({}));
        path[verb.method.to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": verbs.service, "version": verbs.version},
        "paths": paths,
        "components": {
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
