//! The labels of samples with their values, as JSON.

use serde_json::{json, Map, Value};
use spanprof_read::query::LabelTable;

/// The members of the table; at most `limit` values of each label.
pub fn members(table: &LabelTable, type_name: &str, limit: usize) -> Map<String, Value> {
    let labels = table.keys.iter().map(|key| {
        let values = key.values.iter().take(limit).map(|(value, weight)| json!({"value": value, "weight": weight}));
        json!({
            "label": key.key,
            "resource": key.is_resource,
            "samples": key.samples,
            "count": key.values.len(),
            "values": values.collect::<Value>(),
        })
    });
    Map::from_iter([
        ("type".to_owned(), type_name.into()),
        ("unit".to_owned(), table.unit.as_str().into()),
        ("total".to_owned(), table.total.into()),
        ("samples".to_owned(), table.samples.into()),
        ("series".to_owned(), table.series.into()),
        ("labels".to_owned(), labels.collect()),
    ])
}
