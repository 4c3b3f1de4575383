//! Nested values as one level of named values.

use serde::Serialize;
use serde_json::{Map, Value};

/// The values of an object, with nested ones named `outer.inner`. A list of objects with names becomes an object of
/// them.
pub(crate) fn flat(value: &impl Serialize) -> Map<String, Value> {
    fn add(prefix: &str, value: Value, into: &mut Map<String, Value>) {
        let within = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(map) => map.into_iter().for_each(|(name, inner)| add(&within(&name), inner, into)),
            Value::Array(list) if !list.is_empty() && list.iter().all(|part| part["name"].is_string()) => {
                for mut part in list {
                    let name = part["name"].take();
                    let named = part.as_object_mut().into_iter().flatten().filter(|(_, inner)| !inner.is_null());
                    for (field, inner) in named {
                        add(&within(&format!("{}.{field}", name.as_str().unwrap_or_default())), inner.take(), into);
                    }
                }
            }
            other => _ = into.insert(prefix.to_owned(), other),
        }
    }
    let mut into = Map::new();
    add("", serde_json::to_value(value).unwrap_or_default(), &mut into);
    into
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_of_a_list_are_known_by_their_names_and_other_lists_stay() {
        let regions = flat(&json!({ "memory": [{ "name": "K", "bytes": 8, "constant": null }, { "name": "V", "bytes": 16 }] }));
        assert_eq!(Value::Object(regions), json!({ "memory.K.bytes": 8, "memory.V.bytes": 16 }));
        assert_eq!(Value::Object(flat(&json!({ "a": { "b": [1, 2] } }))), json!({ "a.b": [1, 2] }));
    }
}
