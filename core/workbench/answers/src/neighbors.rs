//! The callers and callees of a function, as JSON.

use serde_json::{Map, Value};
use spanprof_read::query::{FunctionLine, Neighbors};

use crate::function::function_members;

/// The members of a function with its neighbors; at most `limit` callers and `limit` callees.
pub fn members(found: &Neighbors, limit: usize) -> Map<String, Value> {
    let list = |rows: &[(FunctionLine, i64)]| {
        let row = |(at, weight): &(FunctionLine, i64)| {
            let mut members = function_members(at);
            members.insert("weight".to_owned(), (*weight).into());
            Value::Object(members)
        };
        rows.iter().take(limit).map(row).collect::<Value>()
    };
    let mut members = function_members(&found.at);
    members.extend([("flat".to_owned(), found.weight.flat.into()), ("cum".to_owned(), found.weight.cum.into())]);
    members.extend([("callers".to_owned(), list(&found.callers)), ("callees".to_owned(), list(&found.callees))]);
    members
}
