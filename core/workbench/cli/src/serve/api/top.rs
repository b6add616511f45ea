//! `/api/top`: the top table, searched, sorted and paged over all functions; with `beside`, a second type in the same rows.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{json, Map, Value};
use spanprof_profile::is_gauge_type;
use spanprof_read::query::{Filter, FunctionLine, TopRow, TopTable, Weight};

use super::name_search::NameSearch;
use crate::answers;

/// Parameters beside those of the filter.
pub(crate) const PARAMETERS: [&str; 6] = ["beside", "limit", "native", "offset", "search", "sort"];
/// Rows when the request has no limit.
const DEFAULT_ROWS: usize = 200;

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
pub(crate) struct TopRequest {
    sort: TopOrder,
    search: Option<NameSearch>,
    offset: usize,
    limit: usize,
    beside: Option<String>,
}

/// A function with its weight in the second type.
struct PairedRow {
    at: FunctionLine,
    weight: Weight,
    own: i64,
    beside: Weight,
}

impl TopRequest {
    pub(crate) fn parse(parameter: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let parameter = |name: &str| parameter(name).filter(|value| !value.is_empty());
        let number = |name: &str, default: usize| match parameter(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("`{name}`: expected a number, got `{text}`")),
        };
        let beside = parameter("beside");
        let sort = match (parameter("sort").as_deref(), &beside) {
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
            search: parameter("search").and_then(|text| NameSearch::parse(&text)),
            offset: number("offset", 0)?,
            limit: number("limit", DEFAULT_ROWS)?,
            beside,
        })
    }

    /// The filter of the second type. It ignores `age`, which only objects in use have.
    pub(crate) fn beside_filter(&self, filter: &Filter) -> Option<Filter> {
        let type_name = self.beside.clone()?;
        let mut filter = Filter { type_name: Some(type_name), ..filter.clone() };
        filter.labels.retain(|label| label.key != "age");
        Some(filter)
    }

    /// The members of the response. `functions` counts the rows of both types, `matching` those that pass the search.
    pub(crate) fn members(&self, table: &TopTable, beside: Option<&TopTable>) -> Map<String, Value> {
        let mut rows = paired(table, beside);
        let functions = rows.len();
        if let Some(search) = &self.search {
            rows.retain(|row| search.matches(&row.at.function, &row.at.file, row.at.line));
        }
        self.sort(&mut rows);
        let shown = rows.iter().skip(self.offset).take(self.limit).map(|row| {
            let mut members = answers::top::row_members(&row.at, row.weight, row.own);
            if beside.is_some() {
                members.insert("beside_flat".to_owned(), row.beside.flat.into());
                members.insert("beside_cum".to_owned(), row.beside.cum.into());
            }
            Value::Object(members)
        });
        let mut members = answers::top::table_members(table, functions, shown.collect());
        members.insert("matching".to_owned(), rows.len().into());
        members.insert("gauge".to_owned(), is_gauge_type(&table.type_name).into());
        if let Some(beside) = beside {
            let summary = json!({"type": beside.type_name, "unit": beside.unit, "total": beside.total});
            members.insert("beside".to_owned(), summary);
        }
        members
    }

    fn sort(&self, rows: &mut [PairedRow]) {
        let by: fn(&PairedRow) -> [i64; 5] = match self.sort {
            // The rows of a table are in this order, but those of the second type only are at the end.
            TopOrder::Flat => |row| [row.weight.flat, row.weight.cum, row.own, row.beside.flat, row.beside.cum],
            TopOrder::Own => |row| [row.own, row.weight.flat, row.weight.cum, row.beside.flat, row.beside.cum],
            TopOrder::Cum => |row| [row.weight.cum, row.weight.flat, row.own, row.beside.cum, row.beside.flat],
            TopOrder::BesideFlat => |row| [row.beside.flat, row.beside.cum, row.weight.flat, row.weight.cum, row.own],
            TopOrder::BesideCum => |row| [row.beside.cum, row.beside.flat, row.weight.cum, row.weight.flat, row.own],
            TopOrder::Function => {
                rows.sort_by_cached_key(|row| (row.at.function.to_lowercase(), row.at.clone()));
                return;
            }
        };
        rows.sort_by(|one, other| Reverse(by(one)).cmp(&Reverse(by(other))).then_with(|| one.at.cmp(&other.at)));
    }
}

/// The functions of both tables.
fn paired(table: &TopTable, beside: Option<&TopTable>) -> Vec<PairedRow> {
    let mut of_beside: HashMap<&FunctionLine, Weight> =
        beside.into_iter().flat_map(|table| &table.rows).map(|TopRow { at, weight, .. }| (at, *weight)).collect();
    let mut rows: Vec<PairedRow> = table
        .rows
        .iter()
        .map(|TopRow { at, weight, own }| PairedRow {
            at: at.clone(),
            weight: *weight,
            own: *own,
            beside: of_beside.remove(at).unwrap_or_default(),
        })
        .collect();
    let others = of_beside.into_iter();
    rows.extend(others.map(|(at, beside)| PairedRow { at: at.clone(), weight: Weight::default(), own: 0, beside }));
    rows
}
