//! `/api/labels`: the names and values of labels; with `weights=1`, the weight of each value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{json, Value};
use spanprof_answers::labels;
use spanprof_answers::selection;
use spanprof_read::query;
use spanprof_read::query::Detail;

use super::request::{ApiRequest, ApiResult};

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    if request.parameter("weights") == Some("1") {
        return weights(request);
    }
    let windows = request.windows();
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for service in windows.iter().flat_map(|window| &window.services) {
        if request.filter.service.as_ref().is_none_or(|name| *name == service.name) {
            for (name, values) in service.labels.iter() {
                labels.entry(name).or_default().extend(values.iter().map(String::as_str));
            }
        }
    }
    let labels = labels.into_iter().map(|(name, values)| json!({"name": name, "values": values}));
    Ok(json!({"labels": labels.collect::<Value>()}).into())
}

fn weights(request: &ApiRequest) -> ApiResult {
    let result = request.state.store.query(&request.filter, Detail::LabelsOnly);
    let type_name = selection::type_to_show(&result.data, &request.filter);
    let table = query::labels(&result.data, &type_name);
    let mut members = labels::members(&table, &type_name, request.limit()?);
    // Equal label sets are merged: the sum of the values tells how many observations of a label they are, or nothing does.
    let samples = result.samples_of(&type_name);
    if samples != table.samples {
        let labels = members.get_mut("labels").and_then(Value::as_array_mut).into_iter().flatten();
        labels.for_each(|label| label["samples"] = Value::Null);
    }
    members.insert("samples".to_owned(), samples.into());
    Ok(result.with_completeness(members).into())
}
