//! Bounds the size of a tool's result: as many rows as fit, a cursor for the rest, and short texts.

use serde_json::{json, Map, Value};

/// Longest text in a result, in characters: generated names and messages in labels may be kilobytes long.
const MAX_TEXT_CHARACTERS: usize = 200;
/// Bytes of `next_cursor` and the brackets of the rows.
const RESERVED_BYTES: usize = 64;

/// The members of `result` with as many of its rows from number `first` on as fit into `max_bytes`. The rows are the last
/// member that is a list. At least one row is returned, without the ends of its own lists where it is too large.
pub(super) fn page(mut result: Map<String, Value>, first: usize, max_bytes: usize) -> Value {
    let name = result.iter().rev().find(|(_, value)| value.is_array()).map(|(name, _)| name.clone());
    let Some(name) = name else { return shortened(Value::Object(result)) };
    let Some(Value::Array(rows)) = result.insert(name.clone(), json!([])) else { unreachable!("found above") };
    let mut free = max_bytes.saturating_sub(size(&Value::Object(result.clone())) + RESERVED_BYTES);
    let total = rows.len();
    let mut shown = Vec::new();
    for row in rows.into_iter().skip(first) {
        let mut row = shortened(row);
        if shown.is_empty() {
            shorten_lists(&mut row, free);
        }
        let needed = size(&row) + 1;
        if needed > free && !shown.is_empty() {
            break;
        }
        free = free.saturating_sub(needed);
        shown.push(row);
    }
    let next = first + shown.len();
    result.insert(name, Value::Array(shown));
    let mut result = shortened(Value::Object(result));
    if next < total {
        result["next_cursor"] = next.to_string().into();
    }
    result
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// Without the ends of long texts.
fn shortened(value: Value) -> Value {
    match value {
        Value::String(text) if text.chars().nth(MAX_TEXT_CHARACTERS).is_some() => {
            Value::String(text.chars().take(MAX_TEXT_CHARACTERS).chain(['…']).collect())
        }
        Value::Array(values) => values.into_iter().map(shortened).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, shortened(value))).collect(),
        other => other,
    }
}

/// Halves the lists of a row until it fits, and marks it.
fn shorten_lists(row: &mut Value, max_bytes: usize) {
    while size(row) > max_bytes {
        let Value::Object(members) = row else { return };
        let longest = members.values_mut().filter_map(Value::as_array_mut).max_by_key(|list| list.len());
        match longest {
            Some(list) if list.len() > 1 => list.truncate(list.len() / 2),
            _ => return,
        }
        members.insert("is_truncated".to_owned(), true.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize) -> Map<String, Value> {
        let rows: Vec<Value> =
            (0..rows).map(|nth| json!({"function": format!("function_{nth}"), "flat": nth})).collect();
        let Value::Object(members) = json!({"type": "cpu", "rows": rows, "note": "end"}) else { panic!() };
        members
    }

    #[test]
    fn pages_have_every_row_once_and_are_within_their_size() {
        let mut seen = Vec::new();
        let mut cursor = 0;
        loop {
            let page = page(table(500), cursor, 1024);
            assert!(page.to_string().len() <= 1024, "{}", page.to_string().len());
            seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row["flat"].as_u64().unwrap()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = next.parse().unwrap(),
                None => break,
            }
        }
        assert_eq!(seen, (0..500).collect::<Vec<u64>>());
        assert_eq!(page(table(3), 0, 4096)["note"], "end");
        assert_eq!(page(table(3), 9, 4096)["rows"], json!([]));
    }

    #[test]
    fn long_texts_and_lists_are_shortened() {
        let callers: Vec<Value> = (0..1000).map(|nth| json!({"function": "f".repeat(5000), "weight": nth})).collect();
        let Value::Object(members) = json!({"functions": [{"function": "é".repeat(500), "callers": callers}, 2]})
        else {
            panic!()
        };
        let page = page(members, 0, 4096);
        assert!(page.to_string().len() <= 4096);
        let row = &page["functions"][0];
        assert_eq!(row["function"].as_str().map(|text| text.chars().count()), Some(201));
        assert_eq!(row["is_truncated"], true);
        assert!((1..20).contains(&row["callers"].as_array().unwrap().len()), "{page}");
    }
}
