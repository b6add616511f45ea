//! An index entry as JSON, for the index log. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{json, Value};
use spanprof_read::query::TypeSummary;

use super::directory::DirectoryFile;
use super::file_names::RollupName;
use super::window::{LinkFilter, ServiceSummary, StoredWindow};

/// One record: everything but the directory of the file.
pub(crate) fn encode(window: &StoredWindow) -> Vec<u8> {
    let types = |service: &ServiceSummary| -> Value {
        let row =
            |it: &TypeSummary| json!([it.type_name, it.unit, it.samples, it.total, it.from_unix_nano, it.to_unix_nano]);
        service.types.iter().map(row).collect()
    };
    let services = window
        .services
        .iter()
        .map(|service| json!({"name": service.name, "types": types(service), "labels": *service.labels}));
    json!({
        "file": window.name(), "bytes": window.bytes, "modified": window.modified_unix_nano,
        "received": window.received_unix_ms, "owned": window.is_owned, "services": services.collect::<Value>(),
        "identities": window.identities, "links": window.links.to_hex(), "omitted_labels": window.omitted_labels,
    })
    .to_string()
    .into_bytes()
}

/// The entry of a record, with its file in `directory`; `None` if the record has another form.
pub(crate) fn decode(record: &[u8], directory: &Path) -> Option<StoredWindow> {
    let record: Value = serde_json::from_slice(record).ok()?;
    let number = |name: &str| record[name].as_u64();
    let name = record["file"].as_str()?;
    let file = DirectoryFile {
        path: directory.join(name),
        bytes: number("bytes")?,
        modified_unix_nano: number("modified")?,
        received_unix_ms: number("received")?,
        is_owned: record["owned"].as_bool()?,
        is_rollup: RollupName::parse(name).is_some(),
    };
    let services = record["services"].as_array()?.iter().map(service).collect::<Option<Vec<_>>>()?;
    let identities = record["identities"].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
    let links = LinkFilter::from_hex(record["links"].as_str()?)?;
    let omitted_labels = record["omitted_labels"].as_array()?.iter().map(|key| key.as_str().map(str::to_owned));
    let omitted_labels = omitted_labels.collect::<Option<_>>()?;
    Some(StoredWindow { omitted_labels, ..StoredWindow::from_parts(file, services, identities, links) })
}

fn service(value: &Value) -> Option<ServiceSummary> {
    let name = value["name"].as_str()?;
    let summary = |row: &Value| {
        Some(TypeSummary {
            service: name.to_owned(),
            type_name: row[0].as_str()?.to_owned(),
            unit: row[1].as_str()?.to_owned(),
            samples: row[2].as_u64()? as usize,
            total: row[3].as_i64()?,
            from_unix_nano: row[4].as_u64()?,
            to_unix_nano: row[5].as_u64()?,
        })
    };
    let types = value["types"].as_array()?.iter().map(summary).collect::<Option<Vec<_>>>()?;
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (key, values) in value["labels"].as_object()? {
        let values = values.as_array()?.iter().map(|value| value.as_str().map(str::to_owned));
        labels.insert(key.clone(), values.collect::<Option<_>>()?);
    }
    Some(ServiceSummary { name: name.to_owned(), types, labels: Arc::new(labels) })
}
