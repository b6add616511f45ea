//! `/api/top`: the top table, searched, sorted and paged over all functions; with `beside`, a second type in the same rows.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{json, Map, Value};
use spanprof_answers::selection;
use spanprof_answers::top::{row_members, table_members};
use spanprof_profile::is_gauge_type;
use spanprof_read::query::{self, Detail, Filter, FunctionLine, Granularity, TopRow, TopTable, Weight};

use super::name_search::NameSearch;
use super::request::{ApiRequest, ApiResult};
use crate::query::queries::QueryResult;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopOrder {
    Flat,
    Own,
    Cum,
    Function,
    BesideFlat,
    BesideCum,
}

/// The rows that a request asks for.
struct TopRequest {
    sort: TopOrder,
    search: Option<NameSearch>,
    offset: usize,
    limit: usize,
    beside: Option<String>,
}

/// A function with its weight in the second type.
struct PairedRow {
    row: TopRow,
    beside: Weight,
}

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let rows = TopRequest::parse(request)?;
    let result = request.stacks();
    let beside = rows.beside_filter(&request.filter);
    let beside = beside.map(|filter| (request.state.store.query(&filter, Detail::Stacks), filter));
    let beside_table = beside.as_ref().map(|(result, filter)| table(request, result, filter));
    let table = table(request, &result, &request.filter);
    let mut members = rows.members(&table, beside_table.as_deref());
    // The number of samples per stack is not kept.
    let samples = (!request.view.has_filters()).then(|| result.samples_of(&table.type_name));
    members.insert("samples".to_owned(), samples.into());
    let results = beside.iter().map(|(result, _)| result).chain([&result]);
    let least_complete = results.max_by_key(|result| result.left_out.windows).unwrap_or(&result);
    let mut answer = least_complete.with_completeness(members);
    answer["windows"] = result.windows.into();
    Ok(answer.into())
}

fn table(request: &ApiRequest, result: &Arc<QueryResult>, filter: &Filter) -> Arc<TopTable> {
    request.state.tables.get(result, filter.type_name.as_deref(), &request.view.selection().key, || {
        let data = request.view.data(result);
        query::top(&data, &selection::type_to_show(&data, filter), Granularity::Function)
    })
}

impl TopRequest {
    fn parse(request: &ApiRequest) -> Result<Self, String> {
        let beside = request.non_empty("beside").map(str::to_owned);
        let sort = match (request.non_empty("sort"), &beside) {
            (None | Some("flat"), _) => TopOrder::Flat,
            (Some("own"), _) => TopOrder::Own,
            (Some("cum"), _) => TopOrder::Cum,
            (Some("function"), _) => TopOrder::Function,
            (Some("beside_flat"), Some(_)) => TopOrder::BesideFlat,
            (Some("beside_cum"), Some(_)) => TopOrder::BesideCum,
            (Some(other), None) => return Err(format!("`sort`: expected flat, own, cum or function, got `{other}`")),
            (Some(other), Some(_)) => {
                let expected = "flat, own, cum, function, beside_flat or beside_cum";
                return Err(format!("`sort`: expected {expected}, got `{other}`"));
            }
        };
        Ok(Self {
            sort,
            search: request.parameter("search").and_then(NameSearch::parse),
            offset: request.number("offset", 0)?,
            limit: request.limit()?,
            beside,
        })
    }

    /// The filter of the second type. It ignores `age`, which only objects in use have.
    fn beside_filter(&self, filter: &Filter) -> Option<Filter> {
        let type_name = self.beside.clone()?;
        let mut filter = Filter { type_name: Some(type_name), ..filter.clone() };
        filter.labels.retain(|label| label.key != "age");
        Some(filter)
    }

    /// The members of the response. `functions` counts the rows of both types, `matching` those that pass the search.
    fn members(&self, table: &TopTable, beside: Option<&TopTable>) -> Map<String, Value> {
        let mut rows = paired(table, beside);
        let functions = rows.len();
        if let Some(search) = &self.search {
            rows.retain(|PairedRow { row: TopRow { location, .. }, .. }| {
                search.matches(&location.function, &location.file, location.line)
            });
        }
        self.sort(&mut rows);
        let shown = rows.iter().skip(self.offset).take(self.limit).map(|row| {
            let mut members = row_members(&row.row);
            if beside.is_some() {
                members.insert("beside_flat".to_owned(), row.beside.flat.into());
                members.insert("beside_cum".to_owned(), row.beside.cum.into());
            }
            Value::Object(members)
        });
        let mut members = table_members(table, functions, shown.collect());
        members.insert("matching".to_owned(), rows.len().into());
        members.insert("gauge".to_owned(), is_gauge_type(&table.type_name).into());
        if let Some(beside) = beside {
            let summary = json!({"type": beside.type_name, "unit": beside.unit, "total": beside.total});
            members.insert("beside".to_owned(), summary);
        }
        members
    }

    fn sort(&self, rows: &mut [PairedRow]) {
        let by: fn([i64; 5]) -> [i64; 5] = match self.sort {
            // The rows of a table are in this order, but those of the second type only are at the end.
            TopOrder::Flat => |[flat, own, cum, beside_flat, beside_cum]| [flat, cum, own, beside_flat, beside_cum],
            TopOrder::Own => |[flat, own, cum, beside_flat, beside_cum]| [own, flat, cum, beside_flat, beside_cum],
            TopOrder::Cum => |[flat, own, cum, beside_flat, beside_cum]| [cum, flat, own, beside_cum, beside_flat],
            TopOrder::BesideFlat => {
                |[flat, own, cum, beside_flat, beside_cum]| [beside_flat, beside_cum, flat, cum, own]
            }
            TopOrder::BesideCum => {
                |[flat, own, cum, beside_flat, beside_cum]| [beside_cum, beside_flat, cum, flat, own]
            }
            TopOrder::Function => {
                rows.sort_by_cached_key(|PairedRow { row: TopRow { location, .. }, .. }| {
                    (location.function.to_lowercase(), location.clone())
                });
                return;
            }
        };
        let key = |PairedRow { row, beside }: &PairedRow| {
            Reverse(by([row.weight.flat, row.own, row.weight.cum, beside.flat, beside.cum]))
        };
        rows.sort_by(|one, other| key(one).cmp(&key(other)).then_with(|| one.row.location.cmp(&other.row.location)));
    }
}

/// The functions of both tables.
fn paired(table: &TopTable, beside: Option<&TopTable>) -> Vec<PairedRow> {
    let mut beside_weights: HashMap<&FunctionLine, Weight> =
        beside.into_iter().flat_map(|table| &table.rows).map(|row| (&row.location, row.weight)).collect();
    let of_type = |row: &TopRow| {
        let beside = beside_weights.remove(&row.location).unwrap_or_default();
        PairedRow { row: row.clone(), beside }
    };
    let mut rows: Vec<PairedRow> = table.rows.iter().map(of_type).collect();
    rows.extend(beside_weights.into_iter().map(|(location, beside)| {
        let (location, weight) = (location.clone(), Weight::default());
        PairedRow { row: TopRow { location, weight, own: 0, with_native: 0 }, beside }
    }));
    rows
}
