//! The callers and callees of a function, as JSON.

use serde_json::{Map, Value};
use spanprof_read::query::{FunctionLine, Neighbors};

use crate::function::function_members;

/// The members of a function with its neighbors; at most `limit` callers and `limit` callees.
pub fn members(neighbors: &Neighbors, limit: usize) -> Map<String, Value> {
    let list = |rows: &[(FunctionLine, i64)]| {
        let row = |(location, weight): &(FunctionLine, i64)| {
            let mut members = function_members(location);
            members.insert("weight".to_owned(), (*weight).into());
            Value::Object(members)
        };
        rows.iter().take(limit).map(row).collect::<Value>()
    };
    let mut members = function_members(&neighbors.location);
    members
        .extend([("flat".to_owned(), neighbors.weight.flat.into()), ("cum".to_owned(), neighbors.weight.cum.into())]);
    members
        .extend([("callers".to_owned(), list(&neighbors.callers)), ("callees".to_owned(), list(&neighbors.callees))]);
    members
}
