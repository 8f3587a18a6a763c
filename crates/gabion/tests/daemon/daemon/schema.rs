//! A validator for the part of JSON Schema that the API's description uses; it refuses keywords that it does not know.

use serde_json::Value;

/// Why a value does not fit a schema; none if it does.
pub(crate) fn misfit(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let Some(keywords) = schema.as_object() else {
        return (schema == &Value::Bool(false)).then(|| format!("{at}: nothing is allowed here"));
    };
    let wrong = |why: String| Some(format!("{at}: {why}: {value}"));
    for (keyword, wanted) in keywords {
        let list = || wanted.as_array().into_iter().flatten();
        let found =
            match keyword.as_str() {
                "$ref" => {
                    let pointer = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                    misfit(document, document.pointer(pointer).expect(pointer), value, at)
                }
                "type" => {
                    let fits = |name: &Value| is_of(name.as_str().unwrap(), value);
                    let any = if wanted.is_array() { list().any(fits) } else { fits(wanted) };
                    if any { None } else { wrong(format!("not of type {wanted}")) }
                }
                "enum" => {
                    if list().any(|one| one == value) {
                        None
                    } else {
                        wrong(format!("none of {wanted}"))
                    }
                }
                "const" => {
                    if wanted == value {
                        None
                    } else {
                        wrong(format!("not {wanted}"))
                    }
                }
                "anyOf" | "oneOf" => {
                    let misfits: Vec<_> = list().map(|one| misfit(document, one, value, at)).collect();
                    if misfits.iter().any(Option::is_none) { None } else { wrong(format!("{misfits:?}")) }
                }
                "allOf" => list().find_map(|one| misfit(document, one, value, at)),
                "required" => list()
                    .find(|key| value.is_object() && value.get(key.as_str().unwrap()).is_none())
                    .and_then(|key| wrong(format!("{key} is missing"))),
                "properties" => wanted.as_object().unwrap().iter().find_map(|(key, schema)| {
                    misfit(document, schema, value.get(key)?, &format!("{at}.{key}"))
                }),
                "additionalProperties" => {
                    let known = keywords.get("properties");
                    let of_value = value.as_object().into_iter().flatten();
                    let mut others =
                        of_value.filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()));
                    others.find_map(|(key, value)| misfit(document, wanted, value, &format!("{at}.{key}")))
                }
                "items" => value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .enumerate()
                    .find_map(|(index, item)| misfit(document, wanted, item, &format!("{at}[{index}]"))),
                "minimum" => match (value.as_f64(), wanted.as_f64()) {
                    (Some(value), Some(least)) if value < least => wrong(format!("less than {least}")),
                    _ => None,
                },
                "maximum" => match (value.as_f64(), wanted.as_f64()) {
                    (Some(value), Some(most)) if value > most => wrong(format!("more than {most}")),
                    _ => None,
                },
                // The order of a set is not checked, nor what is only for readers.
                "description" | "title" | "format" | "default" | "uniqueItems" => None,
                other => panic!("{at}: the validator does not know {other}"),
            };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}

#[test]
fn misfits_are_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"],
        "properties": { "a": { "type": ["integer", "null"], "minimum": 0 }, "b": { "$ref": "#/word" } },
    });
    let document = serde_json::json!({ "word": { "enum": ["x", "y"] } });
    let fits = |value: &Value| misfit(&document, &schema, value, "").is_none();
    assert!(fits(&serde_json::json!({ "a": null, "b": "x", "c": 1 })));
    for wrong in [
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!({ "a": -1 }),
        serde_json::json!({ "a": "1" }),
        serde_json::json!({ "a": 1, "b": "z" }),
    ] {
        assert!(!fits(&wrong), "{wrong}");
    }
}
