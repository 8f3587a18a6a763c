//! The OpenAPI document, made from the table of routes and the types of requests and answers.

use super::access::Role;
use super::routes::{self, Route, Task};
use crate::daemon::message::{ErrorAnswer, VERSION};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Document {
    openapi: &'static str,
    info: Info,
    paths: BTreeMap<&'static str, BTreeMap<String, Operation>>,
    components: Components,
    security: Vec<BTreeMap<&'static str, Vec<String>>>,
}

#[derive(Serialize)]
struct Info {
    title: &'static str,
    description: &'static str,
    version: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Components {
    schemas: BTreeMap<String, Schema>,
    security_schemes: BTreeMap<&'static str, SecurityScheme>,
}

#[derive(Serialize)]
struct SecurityScheme {
    r#type: &'static str,
    scheme: &'static str,
    description: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    summary: &'static str,
    description: &'static str,
    operation_id: String,
    parameters: Vec<Parameter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_body: Option<Body>,
    responses: BTreeMap<String, Body>,
}

#[derive(Serialize)]
struct Parameter {
    name: String,
    r#in: &'static str,
    required: bool,
    description: &'static str,
    schema: Plain,
}

#[derive(Serialize)]
struct Plain {
    r#type: &'static str,
}

#[derive(Serialize)]
struct Body {
    description: &'static str,
    content: BTreeMap<&'static str, Media>,
}

#[derive(Serialize)]
struct Media {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Schema>,
}

fn body(description: &'static str, kind: &'static str, schema: Option<Schema>) -> Body {
    Body { description, content: BTreeMap::from([(kind, Media { schema })]) }
}

/// The document, as JSON.
pub(crate) fn document() -> serde_json::Result<String> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // What a request may leave out, an answer has.
    let mut requests = settings.clone().for_deserialize().into_generator();
    let mut answers = settings.for_serialize().into_generator();
    let mut paths: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for route in routes::all() {
        let operation = operation(&route, &mut requests, &mut answers);
        paths.entry(route.path).or_default().insert(route.method.as_str().to_lowercase(), operation);
    }
    let schemas = requests
        .take_definitions(true)
        .into_iter()
        .chain(answers.take_definitions(true))
        .map(|(name, value)| Ok((name, Schema::try_from(value)?)))
        .collect::<serde_json::Result<_>>()?;
    let bearer = SecurityScheme {
        r#type: "http",
        scheme: "bearer",
        description: "A token of daemon.toml. The Unix socket needs none: there the user decides.",
    };
    let document = Document {
        openapi: "3.1.0",
        info: Info {
            title: "Gabion daemon",
            description: "State of protected sources, their history, and control of jobs.",
            version: format!("{VERSION}"),
        },
        paths,
        components: Components { schemas, security_schemes: BTreeMap::from([("token", bearer)]) },
        security: vec![BTreeMap::new(), BTreeMap::from([("token", Vec::new())])],
    };
    serde_json::to_string_pretty(&document)
}

fn operation(route: &Route, requests: &mut SchemaGenerator, answers: &mut SchemaGenerator) -> Operation {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = in_path.map(|name| Parameter {
        name: name.to_owned(),
        r#in: "path",
        required: true,
        description: if name == "id" { "number of the job" } else { "name of the source" },
        schema: Plain { r#type: if name == "id" { "integer" } else { "string" } },
    });
    let of_query = route.query.iter().map(|parameter| Parameter {
        name: parameter.name.to_owned(),
        r#in: "query",
        required: false,
        description: parameter.text,
        schema: Plain { r#type: "string" },
    });
    let kind = match (&route.task, route.path) {
        (Task::Stream, _) => "text/event-stream",
        (_, "/metrics") => "text/plain",
        _ => "application/json",
    };
    let answer = route.answer.map(|make| make(answers));
    let error = answers.subschema_for::<ErrorAnswer>();
    Operation {
        summary: route.summary,
        description: match route.role {
            Role::Read => "Readers and administrators.",
            Role::Admin => "Administrators only.",
        },
        operation_id: identity(route),
        parameters: of_path.chain(of_query).collect(),
        request_body: route.body.map(|make| body("Parameters", "application/json", Some(make(requests)))),
        responses: BTreeMap::from([
            (route.status.to_string(), body("Success", kind, answer)),
            ("default".to_owned(), body("Error", "application/json", Some(error))),
        ]),
    }
}

/// The method and the words of the path.
fn identity(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1").trim_start_matches('/').trim_end_matches(".json");
    let words = path.split('/').map(|part| part.trim_matches(['{', '}']).to_owned());
    let words: Vec<String> = std::iter::once(route.method.as_str().to_lowercase()).chain(words).collect();
    words.join("_")
}

#[cfg(test)]
mod tests {
    use super::document;
    use crate::daemon::api::routes;

    #[test]
    fn each_route_is_in_the_document_once() {
        let text = document().unwrap();
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut identities = std::collections::BTreeSet::new();
        for route in routes::all() {
            let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert!(operation["summary"].is_string(), "{} {}", route.method, route.path);
            assert!(identities.insert(operation["operationId"].as_str().unwrap().to_owned()));
        }
        // References lead somewhere.
        for reference in text.split("\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
    }
}
